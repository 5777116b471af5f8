"""All-reduces whose result the next kernel needs, as in tensor parallelism: no other work can overlap with them.

In tensor parallelism, all ranks compute parts of each layer, whose sum the next layer needs. Gradients are different:
nothing needs them before the optimizer, and the forward pass of a step reduces none.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import communicating, communication
from nightsight.events.timeline import Timeline, by_device, launch_times
from nightsight.intervals import NOTHING, Ints
from nightsight.system.parallel import memoize
from nightsight.tables import positions

_ALL_REDUCE: Final = "allreduce"
# fewer per step can be those of a loss or a norm
_FEWEST: Final = 4
# a kernel starts this long after its launch (nightsight.analyze.causes.graph), or somewhat later
_LATENCY_NS: Final = 10_000
# share of them that the next kernel waits for
_NEEDED: Final = 0.75
# between most of them, kernels compute for at least this share of the mean: gradients that are reduced one by one have
# nothing between them but a division
_EVEN: Final = 0.3
_MOST: Final = 0.25
# share of a step: gradients are not reduced in the forward pass, which takes about a third of it
_LONGEST: Final = 0.3
# activations have one size, gradients many
_SAME_SIZE: Final = 0.75


@memoize
def needed_at_once(timeline: Timeline) -> Ints:
    """Return the all-reduces of the window, as positions in Timeline.operations, whose result the next kernel needs."""
    calls, operations, window = communication(timeline), timeline.operations, timeline.window
    if "operation" not in calls:
        # of a large job, collectives are kept without their operations
        return NOTHING
    calls = calls[(calls["name"] == _ALL_REDUCE) & (calls["group_size"].fillna(2) > 1)]
    calls = calls[(calls["start_ns"] >= window.start_ns) & (calls["end_ns"] <= window.end_ns)]
    steps = max(len(window.repetitions), 1)
    computes = operations.of("kernels") & ~communicating(timeline)
    launch_ns = launch_times(timeline)
    parts = [NOTHING]
    for device, rows in positions(calls["device"].to_numpy()).items():
        of_device = calls.iloc[rows]
        kernels = by_device(timeline)[device]
        kernels = kernels[computes[kernels]]
        kernels = kernels[np.argsort(launch_ns[kernels], kind="stable")]
        following = np.searchsorted(launch_ns[kernels], of_device["called_ns"].to_numpy(), side="right")
        has_next = following < len(kernels)
        next_kernel = kernels[np.minimum(following, len(kernels) - 1)] if len(kernels) else following
        total_ns = np.append(0, np.cumsum((operations.end - operations.start)[kernels]))
        between_ns = np.diff(total_ns[following])
        if len(rows) >= _FEWEST * steps and _is_spread(between_ns, steps) and _has_one_size(of_device["bytes"]):
            end = of_device["end_ns"].to_numpy()
            # on another stream, a kernel waited only if it could have started before
            waits = operations.stream[next_kernel] == of_device["stream"].to_numpy()
            waits |= launch_ns[next_kernel] + _LATENCY_NS < end
            waits &= has_next & (operations.start[next_kernel] >= end)
            parts += [of_device["operation"].to_numpy()[waits]] if waits.sum() >= _NEEDED * len(rows) else []
    return np.concatenate(parts)


def _is_spread(between_ns: Ints, steps: int) -> bool:
    """Whether kernels compute between all of these, and never for as long as a forward pass; given: their times."""
    longest = np.sort(between_ns)[-steps:]
    return bool(
        np.quantile(between_ns, _MOST) >= _EVEN * between_ns.mean() > 0
        and np.median(longest) <= max(_LONGEST * between_ns.sum() / steps, 2 * np.median(between_ns))
    )


def _has_one_size(size: "pd.Series[float]") -> bool:
    counts = size.value_counts()
    return not len(counts) or bool(counts.iloc[0] >= _SAME_SIZE * counts.sum())
