"""Find unneeded all-reduces of gradients: those of all backward passes between two updates except the last.

With gradient accumulation, the optimizer uses only the sum, so one reduction is enough. The buckets of a backward pass
identify it: the same sizes in the same order, after a forward pass without any. The reductions of tensor parallelism
look alike, but their results are needed at once: the next kernel waits for them.
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

# smaller reductions are of a loss or a norm
_LEAST_BYTES: Final = 1 << 16
# share of the largest number of kernels between two reductions: at or above it, a forward pass is among them
_FORWARD: Final = 0.5
# one bucket per pass could be any reduction
_FEWEST_BUCKETS: Final = 2
# share of the reductions before the last of each pass that must not block the next kernel
_NOT_BLOCKING: Final = 0.75


def unneeded_reductions(scene: Scene) -> tuple[Ints, int]:
    """Return the unneeded operations (positions in OperationNodes), and the passes per update; 0 if there are none."""
    model, work = scene.model, scene.graph.work
    calls = communication(scene.timeline)
    size = np.asarray(calls["bytes"].astype("float64").fillna(np.inf), dtype=np.float64)
    reduces = (calls["name"] == "allreduce").to_numpy() & (size >= _LEAST_BYTES)
    reduces &= model.edges[TRANSFER][scene.place[calls["operation"]]] >= 0
    calls, size = calls[reduces], size[reduces]
    rows, call_ns, end = scene.place[calls["operation"]], calls["called_ns"].to_numpy(), calls["end_ns"].to_numpy()
    updates = _update_flags(scene, work.operation)
    unneeded: list[Ints] = []
    passes_of: list[int] = []
    for device, of_device in positions(calls["device"].to_numpy()).items():
        kernel_rows = np.flatnonzero((work.device == device) & (updates >= 0) & model.has(LAUNCH))
        kernel_rows = kernel_rows[np.argsort(work.launch_ns[kernel_rows], kind="stable")]
        launch_ns, update_ns = work.launch_ns[kernel_rows], work.launch_ns[kernel_rows[updates[kernel_rows] == 1]]
        if not len(update_ns):
            continue
        start = np.append(work.start[kernel_rows], np.iinfo(np.int64).max)
        groups = pd.factorize(calls["group"].to_numpy(dtype=object)[of_device])[0]
        update_number = np.searchsorted(update_ns, call_ns[of_device])
        for of_update in positions(groups * (len(update_ns) + 1) + update_number).values():
            bucket_rows = of_device[of_update]
            kernels_before = np.searchsorted(launch_ns, call_ns[bucket_rows], side="right")
            passes = _count_passes(size[bucket_rows], np.diff(kernels_before))
            is_overlapped = start[kernels_before] < end[bucket_rows]
            if passes and is_overlapped.reshape(passes, -1)[:, :-1].mean() >= _NOT_BLOCKING:
                unneeded.append(rows[bucket_rows[: -len(bucket_rows) // passes]])
                passes_of.append(passes)
    return (np.concatenate(unneeded), int(np.median(passes_of))) if unneeded else (np.empty(0, dtype=np.int64), 0)


def _update_flags(scene: Scene, operation: Ints) -> Ints:
    """Return 1 for each operation that is a kernel of an optimizer, 0 for other kernels, and -1 for the rest."""
    kernels = scene.timeline.profile.tables.get("kernels")
    if kernels is None or not len(kernels):
        return np.full(len(operation), -1)
    names = kernels["name"].cat
    is_update = np.array([family_of(name) == FOREACH for name in names.categories], dtype=np.int64)
    by_code = np.append(is_update, -1)[names.codes]
    flags = np.where(operation < len(kernels), by_code[np.minimum(operation, len(kernels) - 1)], -1)
    return np.where(scene.graph.work.is_communication, -1, flags)


def _count_passes(size: Floats, between: Ints) -> int:
    """Return the number of backward passes of these reductions, from the kernels between them; 0 if unclear."""
    forward = 1 + np.flatnonzero(between >= _FORWARD * between.max(initial=1))
    passes = 1 + len(forward)
    buckets, rest = divmod(len(size), passes)
    if passes == 1 or rest or buckets < _FEWEST_BUCKETS or (forward != buckets * np.arange(1, passes)).any():
        return 0
    return passes if (size.reshape(passes, buckets) == size[:buckets]).all() else 0
