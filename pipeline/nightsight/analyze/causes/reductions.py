"""Find unneeded all-reduces of gradients: those of all backward passes between two updates except the last.

With gradient accumulation, the optimizer uses only the sum, so one reduction is enough. The buckets of a backward pass
identify it: the same sizes in the same order, after a forward pass without any. The reductions of tensor parallelism
look alike, but their results are needed at once: the next kernel waits for them. DistributedDataParallel scales each
gradient into its bucket, and copies all of them back when the last bucket is reduced.
"""

import re
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.causes.model import LAUNCH, TRANSFER
from nightsight.analyze.causes.scene import Scene
from nightsight.events.communication import communication
from nightsight.events.kernel_labels import FOREACH, family_of
from nightsight.intervals import Floats, Ints
from nightsight.tables import are_named, positions

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# smaller reductions are those of a loss or a norm (stored: 32 to 128 KiB)
_LEAST_BYTES: Final = 1 << 16
# share of the largest number of kernels between two reductions: at or above it, a forward pass is among them (stored:
# 0.25 to 0.75)
_FORWARD: Final = 0.5
# one bucket per pass could be any reduction (stored: 1 to 4)
_FEWEST_BUCKETS: Final = 2
# share of the reductions before the last of each pass that must not block the next kernel (stored: 0.375 to 0.875)
_NOT_BLOCKING: Final = 0.75
# the kernel that divides gradients by the number of ranks on their way into a bucket (two H200, PyTorch 2.11:
# tests/data/nsys/ddp2/accumulation)
_SCALES: Final = re.compile(r"(?:Mul|Div)Functor")
# at most this many times as many kernels as gradients: the same kernel also scales the loss (stored: 1.05 to 1.2)
_MOST_SCALING: Final = 1.1
# kinds of operations other than kernels that scale
_WITHIN_GPU, _OTHER_KIND = -1, -2


class Unneeded(NamedTuple):
    """Unneeded work if gradients are summed, by position in OperationNodes; passes: between two updates, 0 for none.

    copies: the copies of gradients into the buckets and back.
    """

    reductions: Ints
    copies: Ints
    passes: int


_NOTHING: Final = Unneeded(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0)


def unneeded_reductions(scene: Scene) -> Unneeded:
    """Return the unneeded reductions and their copies."""
    model, work = scene.model, scene.graph.work
    calls = communication(scene.timeline)
    size = np.asarray(calls["bytes"].astype("float64").fillna(np.inf), dtype=np.float64)
    reduces = (calls["name"] == "allreduce").to_numpy() & (size >= _LEAST_BYTES)
    reduces &= model.edges[TRANSFER][scene.place[calls["operation"]]] >= 0
    if not reduces.any():
        return _NOTHING
    calls, size = calls[reduces], size[reduces]
    rows, call_ns, end = scene.place[calls["operation"]], calls["called_ns"].to_numpy(), calls["end_ns"].to_numpy()
    updates, kinds = _update_flags(scene, work.operation), _copy_kinds(scene)
    unneeded: list[Ints] = []
    copies: list[Ints] = []
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
        for key, of_update in positions(groups * (len(update_ns) + 1) + update_number).items():
            bucket_rows, number = of_device[of_update], key % (len(update_ns) + 1)
            kernels_before = np.searchsorted(launch_ns, call_ns[bucket_rows], side="right")
            passes = _count_passes(size[bucket_rows], np.diff(kernels_before))
            is_overlapped = start[kernels_before] < end[bucket_rows]
            if passes and is_overlapped.reshape(passes, -1)[:, :-1].mean() >= _NOT_BLOCKING:
                unneeded.append(rows[bucket_rows[: -len(bucket_rows) // passes]])
                since_ns = int(update_ns[number - 1]) if number else 0
                copies.append(_copies(scene, kinds, rows[bucket_rows].reshape(passes, -1), since_ns))
                passes_of.append(passes)
    if not unneeded:
        return _NOTHING
    return Unneeded(np.concatenate(unneeded), np.concatenate(copies), int(np.median(passes_of)))


def _copies(scene: Scene, kinds: Ints, reductions: Ints, since_ns: int) -> Ints:
    """Return the copies of all passes of an update except the last; none if their numbers differ.

    kinds: of all operations (`_copy_kinds`). reductions: positions in OperationNodes, a row for each pass. since_ns:
    the update before.
    """
    work, thread = scene.graph.work, np.append(scene.graph.calls.thread, -1)[scene.graph.work.call]
    first, last = reductions[0, 0], work.launch_ns[reductions[:, -1]]
    own = np.flatnonzero((work.device == work.device[first]) & (thread == thread[first]) & (work.launch_ns > since_ns))
    own = own[np.argsort(work.launch_ns[own], kind="stable")]
    kind = kinds[work.operation[own]]
    # the last bucket of a pass is the end of that pass
    table = pd.DataFrame({"row": own, "kind": kind, "pass": np.searchsorted(last, work.launch_ns[own], side="left")})
    table["run"] = (table["kind"] != table["kind"].shift()).cumsum()
    table = table[table["pass"] < len(last)]
    # back: the longest run after the last bucket
    back = table[(table["kind"] == _WITHIN_GPU) & (table["pass"] > 0)]
    lengths = back.groupby(["pass", "run"]).size()
    longest = lengths.groupby("pass").idxmax()
    counts = lengths[longest].unique()
    if len(longest) < len(last) - 1 or len(counts) > 1 or counts[0] < reductions.shape[1]:
        return np.empty(0, dtype=np.int64)
    back = back[back["run"].isin([run for _, run in longest])]
    # there: the last kernels of one name, as many in each pass; a loss may be scaled before
    scaling = table[table["kind"] >= 0]
    by_pass = scaling.groupby(["kind", "pass"]).size().unstack(fill_value=0).reindex(columns=range(len(last)))
    is_enough = ((by_pass >= counts[0]) & (by_pass <= _MOST_SCALING * counts[0])).all(axis=1)
    there = scaling[scaling["kind"].isin(by_pass.index[is_enough]) & (scaling["pass"] < len(last) - 1)]
    there = there.groupby(["kind", "pass"]).tail(counts[0])
    return np.concatenate([back["row"].to_numpy(), there["row"].to_numpy()])


def _copy_kinds(scene: Scene) -> Ints:
    """Return for each operation of the timeline the code of a kernel that scales, or another of the kinds above."""
    tables, operations = scene.timeline.profile.tables, scene.timeline.operations
    kinds = np.full(len(operations.kind), _OTHER_KIND, dtype=np.int64)
    if "kernels" in tables:
        names = tables["kernels"]["name"]
        kinds[operations.of("kernels")] = np.where(are_named(names, _SCALES.search), names.cat.codes, _OTHER_KIND)
    if "memory_ops" in tables:
        is_within = (tables["memory_ops"]["operation"] == "Device-to-Device").to_numpy(dtype=bool)
        kinds[operations.of("memory_ops")] = np.where(is_within, _WITHIN_GPU, _OTHER_KIND)
    return kinds


def _update_flags(scene: Scene, operation: Ints) -> Ints:
    """Return 1 for each operation that is a kernel of an optimizer, 0 for other kernels, and -1 for the rest."""
    is_update = are_named(scene.timeline.profile.recorded("kernels")["name"], lambda name: family_of(name) == FOREACH)
    # kernels are the first operations
    flags = np.append(is_update, -1)[np.minimum(operation, len(is_update))]
    return np.where(scene.graph.work.is_communication, -1, flags)


def _count_passes(size: Floats, between: Ints) -> int:
    """Return the number of backward passes of these reductions, from the kernels between them; 0 if unclear."""
    forward = 1 + np.flatnonzero(between >= _FORWARD * between.max(initial=1))
    passes = 1 + len(forward)
    buckets, rest = divmod(len(size), passes)
    if passes == 1 or rest or buckets < _FEWEST_BUCKETS or (forward != buckets * np.arange(1, passes)).any():
        return 0
    return passes if (size.reshape(passes, buckets) == size[:buckets]).all() else 0
