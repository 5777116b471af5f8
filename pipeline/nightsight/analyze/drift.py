"""Kernels that take longer, or shorter, after some step, although their work is the same: the GPU's clock changed.

The same kernels with the same grids are compared. Work that grows, such as attention over a longer cache, slows down
some kernels only; a clock slows down nearly all that compute.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.steps import computing_by_step
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Floats, Ints
from nightsight.model.report import Finding
from nightsight.robust import standard_deviation
from nightsight.tables import duration, names_and_grids

# a change is reported if it is this large, and this many times larger than the noise
_LEAST_CHANGE: Final = 0.1
_LEAST_OF_NOISE: Final = 4.0
# the least number of steps on each side, and the share of the kernels' time that must have changed by half as much
_FEWEST_STEPS: Final = 8
_NEARLY_ALL: Final = 0.8


def drift(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding for the first GPU whose kernels change their speed within the window."""
    for device, steps, kernels, step in computing_by_step(timeline, least=2 * _FEWEST_STEPS):
        length = np.asarray(duration(kernels), dtype=np.float64)
        kind = pd.factorize(names_and_grids(kernels))[0]
        # a mean of the relative lengths, weighted by the usual time of each kind
        usual = _means(kind, length)[kind]
        usual_of_step = np.bincount(step, usual, steps)
        if not (usual_of_step > 0).all():
            continue
        relative: Floats = np.bincount(step, length, steps) / usual_of_step
        place = _change(relative)
        if place is None:
            continue
        is_late = step >= place
        before, after = (_means(kind, length, part)[kind] for part in (~is_late, is_late))
        factor = float(np.median(relative[place:]) / np.median(relative[:place]))
        has_changed = (after / before - 1) * np.sign(factor - 1) >= abs(factor - 1) / 2
        if usual[has_changed].sum() >= _NEARLY_ALL * usual.sum():
            yield _finding(device, factor, place, steps)
            return


def _means(kind: Ints, length: Floats, chosen: Flags | None = None) -> Floats:
    """Return the mean length of each kind, of the chosen kernels; NaN for a kind without any."""
    weights = np.ones(len(kind)) if chosen is None else chosen.astype(np.float64)
    count = int(kind.max(initial=-1)) + 1
    with np.errstate(invalid="ignore"):
        means: Floats = np.bincount(kind, length * weights, count) / np.bincount(kind, weights, count)
    return means


def _change(relative: Floats) -> int | None:
    """Return the first step after which kernels take longer or shorter; None if they only vary."""
    count = len(relative)
    places = np.arange(_FEWEST_STEPS, count - _FEWEST_STEPS + 1)
    total = np.cumsum(relative)
    before, after = total[places - 1] / places, (total[-1] - total[places - 1]) / (count - places)
    # the split that explains most of the variance
    place = int(places[np.argmax((after - before) ** 2 * places * (count - places))])
    levels = [float(np.median(part)) for part in (relative[:place], relative[place:])]
    size = abs(levels[1] / levels[0] - 1)
    if size < _LEAST_CHANGE:
        return None
    noise = float(standard_deviation(np.append(relative[:place] - levels[0], relative[place:] - levels[1])))
    return place if abs(levels[1] - levels[0]) >= _LEAST_OF_NOISE * noise else None


def _finding(device: int, factor: float, place: int, steps: int) -> Finding:
    longer = "longer" if factor > 1 else "shorter"
    return Finding(
        "drift",
        "warning",
        f"Kernels take {100 * abs(factor - 1):.0f} % {longer} since step {place}",
        f"On GPU {device}, in {steps - place} of {steps} steps, kernels with the same names and grids: the clock of "
        "the GPU changed (power limit, heat, other programs).",
        "Read the clocks while it runs (nvidia-smi -q -d CLOCK,PERFORMANCE), and compare only runs with equal clocks.",
    )
