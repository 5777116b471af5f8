"""Which all-reduces of gradients are not needed: those of all backward passes between two updates but the last.

Where gradients are accumulated, the optimizer uses only their sum, so reducing them once is enough. A pass is known by
its buckets: the same sizes in the same order, after a forward pass without any. The reductions of tensor parallelism
look much like it, but their results are needed at once: what is launched next waits for them.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.replay import LAUNCH, TRANSFER, Floats
from nightsight.analyze.causes.scene import Scene
from nightsight.events.communication import communication
from nightsight.events.kernel_labels import FOREACH, family_of
from nightsight.events.timeline import positions
from nightsight.intervals import Ints

# smaller ones reduce a loss or a norm
_LEAST_BYTES: Final = 1 << 16
# share of the most kernels launched between two reductions: at or above it, a forward pass is among them
_FORWARD: Final = 0.5
# one bucket in each pass could be anything
_FEWEST_BUCKETS: Final = 2
# share of the reductions before the last of each pass that must not hold up the next launch
_NOT_AWAITED: Final = 0.75


def unneeded_reductions(scene: Scene) -> tuple[Ints, int]:
    """Return the operations that need not be (positions in Work), and how many passes an update has; none if 0."""
    found, work = scene.model, scene.graph.work
    calls = communication(scene.timeline)
    size = np.asarray(calls["bytes"].astype("float64").fillna(np.inf), dtype=np.float64)
    reduces = (calls["name"] == "allreduce").to_numpy() & (size >= _LEAST_BYTES)
    reduces &= found.edges[TRANSFER][scene.place[calls["operation"]]] >= 0
    calls, size = calls[reduces], size[reduces]
    row, called, end = scene.place[calls["operation"]], calls["called_ns"].to_numpy(), calls["end_ns"].to_numpy()
    kernels = _updates(scene, work.operation)
    gone: list[Ints] = []
    often: list[int] = []
    for device, here in positions(calls["device"].to_numpy()).items():
        others = np.flatnonzero((work.device == device) & (kernels >= 0) & (found.edges[LAUNCH][:-1] >= 0))
        others = others[np.argsort(work.launched[others], kind="stable")]
        launched, updated = work.launched[others], work.launched[others[kernels[others] == 1]]
        if not len(updated):
            continue
        start = np.append(work.start[others], np.iinfo(np.int64).max)
        groups = pd.factorize(calls["group"].to_numpy(dtype=object)[here])[0]
        update = np.searchsorted(updated, called[here])
        for some in positions(groups * (len(updated) + 1) + update).values():
            mine = here[some]
            before = np.searchsorted(launched, called[mine], side="right")
            passes = _passes(size[mine], np.diff(before))
            if passes and (start[before] < end[mine]).reshape(passes, -1)[:, :-1].mean() >= _NOT_AWAITED:
                gone.append(row[mine[: -len(mine) // passes]])
                often.append(passes)
    return (np.concatenate(gone), int(np.median(often))) if gone else (np.empty(0, dtype=np.int64), 0)


def _updates(scene: Scene, operation: Ints) -> Ints:
    """Return for each operation 1 if it is a kernel of an optimizer, 0 for other computation, and -1 for the rest."""
    kernels = scene.timeline.profile.tables.get("kernels")
    if kernels is None or not len(kernels):
        return np.full(len(operation), -1)
    names = kernels["name"].cat
    is_update = np.array([family_of(name) == FOREACH for name in names.categories], dtype=np.int64)
    told = np.append(is_update, -1)[names.codes]
    found = np.where(operation < len(kernels), told[np.minimum(operation, len(kernels) - 1)], -1)
    return np.where(scene.graph.work.communicates, -1, found)


def _passes(size: Floats, between: Ints) -> int:
    """Return how many backward passes reduced these, given the kernels launched between them; 0 if that is unclear."""
    forward = 1 + np.flatnonzero(between >= _FORWARD * between.max(initial=1))
    passes = 1 + len(forward)
    buckets, rest = divmod(len(size), passes)
    if passes == 1 or rest or buckets < _FEWEST_BUCKETS or (forward != buckets * np.arange(1, passes)).any():
        return 0
    return passes if (size.reshape(passes, buckets) == size[:buckets]).all() else 0
