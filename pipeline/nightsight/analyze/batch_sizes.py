"""Batches that differ in size from step to step: the same kernels run with different grids, and take different times.

Such a capture shows that samples differ in length, or images in size. Grids do not show how much of a batch is padding,
so no gain is predicted; a warning says that steps differ.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.steps import computing_by_step
from nightsight.events.timeline import Timeline
from nightsight.intervals import Floats, Ints
from nightsight.model.report import Finding
from nightsight.tables import duration, integers
from nightsight.units import format_value

# with fewer steps, or fewer kernels whose grids vary, there may be other reasons
_FEWEST_STEPS: Final = 8
_FEWEST_KERNELS: Final = 3
# grids vary if those of larger steps are this many times those of smaller ones; times must vary as much
_UNEVEN: Final = 1.25
_SMALLER, _LARGER = 0.1, 0.9
# how closely the time of the kernels must follow the grids
_CORRELATED: Final = 0.8
# a cache that grows with each step, or batches in the order of their lengths
_ORDERED: Final = 0.9


def batch_sizes(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding for the first GPU whose kernels have different grids in each step of the window."""
    grid = [f"grid_{axis}" for axis in "xyz"]
    if not set(grid) <= set(timeline.profile.recorded("kernels").columns):
        return
    for device, steps, kernels, step in computing_by_step(timeline, least=_FEWEST_STEPS):
        blocks = np.nan_to_num(kernels[grid].to_numpy(dtype=np.float64).prod(axis=1))
        sizes = _relative_sizes(integers(kernels["name"].cat.codes), step, blocks, steps)
        times = np.bincount(step, duration(kernels), steps).astype(np.float64)
        if sizes is not None and _vary_together(sizes, times):
            yield _finding(device, sizes, times)
            return


def _relative_sizes(name: Ints, step: Ints, blocks: Floats, steps: int) -> Floats | None:
    """Return the size of each step relative to the median one; None if grids do not vary.

    It is the size of kernels that run equally often in each step, but with different grids. Parameters have the same
    size in each step, and libraries choose other kernels for products of another size.
    """
    code, distinct = pd.factorize(name)
    place, shape = code * steps + step, (len(distinct), steps)
    count = np.bincount(place, minlength=len(distinct) * steps).reshape(shape)
    total = np.bincount(place, blocks, len(distinct) * steps).reshape(shape)
    middle = np.median(total, axis=1, keepdims=True)
    # without a grid in the capture, a kernel has no size
    is_common = (count == count[:, :1]).all(axis=1) & (count[:, 0] > 0) & (middle[:, 0] > 0)
    relative = total[is_common] / middle[is_common]
    if len(relative) < _FEWEST_KERNELS:
        return None
    low, high = np.quantile(relative, (_SMALLER, _LARGER), axis=1)
    varying = relative[high >= _UNEVEN * low]
    return np.median(varying, axis=0) if len(varying) >= _FEWEST_KERNELS else None


def _vary_together(sizes: Floats, times: Floats) -> bool:
    """Whether both vary from step to step, in the same way and without an order."""
    for values in (sizes, times):
        low, high = np.quantile(values, (_SMALLER, _LARGER))
        if high < _UNEVEN * low:
            return False
    size, time, step = (pd.Series(values).rank() for values in (sizes, times, np.arange(len(sizes))))
    return bool(size.corr(time) >= _CORRELATED and abs(size.corr(step)) < _ORDERED)


def _finding(device: int, sizes: Floats, times: Floats) -> Finding:
    least, most = (format_value(float(time), "time_ns") for time in (times.min(), times.max()))
    return Finding(
        "batch_sizes",
        "info",
        f"Batches differ in size from step to step: kernels take {least} to {most} per step",
        f"On GPU {device}, the same kernels have {sizes.min():.2g} to {sizes.max():.2g} times their usual grids. "
        "Times and gains are those of the steps in the window. If a batch is padded to its longest sample, padding is "
        "computed as well; the capture does not show how much there is, so no gain is predicted.",
        "If samples are padded, put samples of similar length into one batch "
        '(`train_sampling_strategy="group_by_length"` in TrainingArguments of transformers 5, `group_by_length=True` '
        "before; or a sampler that sorts within blocks), fill batches by tokens instead of samples, or pack samples "
        "without padding (`DataCollatorWithFlattening()` of transformers, torch.nested).",
    )
