"""Find steps so small that a larger batch would take hardly longer: each kernel fills a small part of the GPU.

Such a step takes the time of its launches and of the first and last instructions of its kernels, whatever they compute.
With more samples, environments or requests per step, kernels have more blocks and run at the same time on more SMs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.analyze.causes.remedies import is_launch_code, link_rate, request_waits, shorten
from nightsight.analyze.causes.replay import BEGIN, LAUNCH, STREAM
from nightsight.analyze.causes.scene import Change, Edit, Scene
from nightsight.intervals import Floats
from nightsight.tables import empty, integers

# kernels with this share of the time fill at most a quarter of the GPU, and are as short as this: longer ones compute
# for long in few blocks, and may do so for other reasons (`small_grid`)
_NEARLY_ALL: Final = 0.95
_LEAST_ROOM: Final = 4
_SHORT_NS: Final = 20_000
# fewer kernels per step: its repetition is more likely a part of a step
_FEWEST_KERNELS: Final = 10
# with more, kernels get longer
_MOST_TIMES: Final = 8


@dataclass(frozen=True, eq=False)
class LargerSteps:
    """Steps that do several times as much. blocks: of nearly all kernels at most. multiprocessors: of the GPU."""

    times: int
    blocks: int
    multiprocessors: int
    edit: Edit


def larger_steps(scene: Scene) -> LargerSteps | None:
    """Return larger steps if the GPU has room for them: the same kernels and launches, other host code several times.

    None without steps, grids, or the number of SMs.
    """
    timeline, work = scene.timeline, scene.graph.work
    kernels, devices = (timeline.profile.tables.get(name, empty(name)) for name in ("kernels", "devices"))
    grid = [f"grid_{axis}" for axis in "xyz"]
    if not scene.model.steps or not set(grid) <= set(kernels.columns):
        return None
    is_replayed = scene.model.has(LAUNCH) | scene.model.has(STREAM)
    rows = np.flatnonzero((work.operation < len(kernels)) & ~work.is_communication & is_replayed)
    used = devices[devices["device"].isin(work.device[rows])]
    multiprocessors = int(integers(used["multiprocessors"]).min(initial=1 << 20)) if len(used) else 0
    if multiprocessors <= 0 or len(rows) < _FEWEST_KERNELS * scene.steps:
        return None
    blocks = kernels[grid].to_numpy(dtype=np.float64)[work.operation[rows]].prod(axis=1)
    length = scene.length[rows].astype(np.float64)
    most = _quantile(blocks, length)
    if most < 1 or multiprocessors < _LEAST_ROOM * most or _quantile(length, length) > _SHORT_NS:
        return None
    times = int(min(multiprocessors // most, _MOST_TIMES))
    return LargerSteps(times, int(most), multiprocessors, _repeat_host_code(scene, times))


def _quantile(values: Floats, weights: Floats) -> float:
    """Return the value that nearly all of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, _NEARLY_ALL * total[-1])])


def _repeat_host_code(scene: Scene, times: int) -> Edit:
    """Return the edit that does host code other than that of launches several times, and copies as many bytes."""
    work, table = scene.graph.work, scene.timeline.profile.tables.get("memory_ops", empty("memory_ops"))
    longer = scene.in_calls[~is_launch_code(scene)[scene.in_calls]]
    longer = longer[scene.model.has(BEGIN)[longer] & ~np.isin(longer, request_waits(scene))]
    copies = np.flatnonzero((work.direction >= 0) & scene.model.has(LAUNCH))
    first_copy = int(scene.timeline.operations.of("kernels").sum())
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=0.0)[work.operation[copies] - first_copy]
    return (
        Change(scene.model.edges_of(BEGIN, longer), "earlier", (1 - times) * scene.gap[longer]),
        *shorten(scene, copies, (1 - times) * size / link_rate(scene.timeline)),
    )
