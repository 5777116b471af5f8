"""What kernels could gain: by their names, their order on a stream and their grids, and by ncu's replays.

The timeline has neither bytes nor operations, so an estimate is a ratio of durations: of peaks of the GPU for products
of matrices, of the kernels of one chain for elementwise arithmetic. Constants are measurements on an H200. Where a
kernel was replayed, what limits it bounds the gain.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.owners import call_owners
from nightsight.analyze.replay.join import stands_for
from nightsight.analyze.replay.limits import MEMORIES, ncu_limits
from nightsight.events.kernel_kinds import Kind, converts, is_named_product, is_softmax, kind_of, listed, operation
from nightsight.events.kernel_labels import label_of
from nightsight.events.kernel_names import communicates
from nightsight.events.peaks import OF_TENSOR_PEAK, TensorRate, tensor_rate
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline, by_device, distinct, operation_column, positions
from nightsight.intervals import Flags, Ints, depth
from nightsight.results.ncu import NCU_LIMITS
from nightsight.system.parallel import memoize
from nightsight.tables import ANNOTATION, PUSH_POP, START_END, empty, integers, nearest
from nightsight.units import format_value

# no product gets faster than this: its first loads and last stores (products of 256 to 1024: 4.4, 6.8 and 12.6 µs)
_LEAST_PRODUCT_NS: Final = 6_000
# within a chain, kernels shorter than this share of the longest work on fewer elements: statistics of rows, scalars
_FULL_SIZE: Final = 0.4
# PyTorch's Adam writes and reads 18 tensors one operation at a time and 7 in one kernel, which took 0.39 to 0.46
_FUSED_OPTIMIZER: Final = 0.45
# kernels as short as this move next to nothing
_TINY_NS: Final = 3_000
# what a kernel takes that does nothing (H100 and H200: 1.2 to 2 µs)
_EMPTY_NS: Final = 1_500
# momentum: 8 tensors one operation at a time, 5 in one kernel
_FUSED_UPDATE: Final = 0.62
_OF_ADAM: Final = frozenset(("lerp", "addcmul", "sqrt", "addcdiv"))
# chains of a loop over tensors: neighbors that often differ in length by this factor; or one after the other
_DIFFERS: Final = 2
_SOMETIMES: Final = 0.25
_MOSTLY: Final = 0.75
# a chain is proposed if it occurs this many times, spread over this share of the window
_FEWEST: Final = 3
_LEAST_SPREAD: Final = 0.5
_FEWEST_KERNELS: Final = 3
_LONGEST_PERIOD: Final = 64
_MOST_RUNS: Final = 256
# how often a sequence has to follow itself to be told from chance: the shorter it is, the more often
_REPEATS: Final = {1: 4, 2: 3, 3: 3}
# about what a launch takes of a CPU that does nothing else
_LAUNCH_NS: Final = 4_000
_LEAST_PCT: Final = 0.5
_MOST: Final = 8
_NAME_LENGTH: Final = 60
_WORDS: Final = 4
# a grid that leaves more than half of the SMs without a block, in a kernel with at least this time and share of time
_FILLED: Final = 0.5
_LONG_NS: Final = 20_000
_DOMINATES: Final = 0.05
# what moves or computes twice the bytes takes half of its time with half of them, but for what a kernel takes anyhow
_HALF: Final = 0.5
_FP64: Final = re.compile(r"<double\b|\bf64\b")
_FP64_PRODUCT: Final = "d884gemm"
_LAYOUT: Final = re.compile(r"^(?:nchw to nhwc|nhwc to nchw)\b")
# PyTorch copies this way what is not in the order of the result; casts and plain copies have other kernels
_REORDERS: Final = re.compile(
    r"\bat::native::elementwise_kernel<.*gpu_kernel_impl_nocast<at::native::direct_copy_kernel"
)
# of the time of all GPU work: attention alone needs some such copies
_MUCH_COPIED: Final = 0.1
_CONCATENATION: Final = re.compile(r"^cat\b")
# runs of at least this many different foreach kernels are an optimizer; momentum has fewer than Adam
_FEWEST_UPDATES: Final = 3
_UPDATES_OF_ADAM: Final = 5
_NO_OPERATIONS: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class KernelRemedy:
    """A change of kernels: which operations it concerns, and how long each of these would then take.

    `place`: the kernels, in words of a reader. `operations`: positions in `Timeline.operations`, in order. `new_ns`: 0
    for those that another kernel absorbs; `removed` says which would not be launched any more. `kernels`: the names of
    those that take the most time.
    """

    rule: str
    place: str
    operations: Ints
    new_ns: Ints
    removed: Flags
    evidence: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Work:
    """The operations in the window, in the order of their streams: by lane (a stream), then by start.

    `position`: in `Timeline.operations`; `code`: of the kernel's name, -1 for copies within a device, -2 for all else
    that is not a kernel; `thread`: that launched it, -1 if unknown; `launched`: when its call began, else its start;
    `path`: a number for the path of the program's ranges around that call, -1 for none.
    """

    position: Ints
    lane: Ints
    start: Ints
    time: Ints
    code: Ints
    thread: Ints
    launched: Ints
    device: Ints
    path: Ints

    def of(self, chosen: Flags) -> Ints:
        """Return the chosen rows, in order of their positions."""
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(self.position[rows], kind="stable")]


@dataclass(frozen=True)
class _Names:
    """What the distinct names of kernels tell."""

    texts: tuple[str, ...]
    kinds: tuple[Kind, ...]

    def are(self, *kinds: Kind) -> Flags:
        """Return for each code whether it is of these kinds; False for codes -1 and -2, which are not kernels."""
        return np.array([*(kind in kinds for kind in self.kinds), False, False], dtype=bool)


@dataclass(frozen=True, eq=False)
class _Chains:
    """Chains of kernels: the rows of all, where each chain begins in these, and a number for equal sequences."""

    rows: Ints
    first: Ints
    pattern: Ints

    @property
    def chain(self) -> Ints:
        """The chain of each row."""
        return np.repeat(np.arange(len(self.first)), self.lengths)

    @property
    def lengths(self) -> Ints:
        """The number of rows of each chain."""
        return np.diff(np.append(self.first, len(self.rows)))


def kernel_remedies(timeline: Timeline, steps: Ints = _NO_OPERATIONS) -> tuple[KernelRemedy, ...]:
    """Return what kernels of the window could gain, the largest first; gains of less than 0.5 % are left out.

    steps: when the CPU began each repetition of the program's loop, if that is known: no chain goes on from one to the
    next.
    """
    if not len(timeline.profile.tables.get("kernels", ())):
        return ()
    in_order = (*_fusion(timeline, steps), *_foreach(timeline, steps), *_attention(timeline))
    by_names = (*_tensor_cores(timeline), *_doubles(timeline), *_moves(timeline), *_small_grids(timeline))
    found = [*by_names, *in_order, *_replayed(timeline)]
    time = timeline.operations.end - timeline.operations.start
    gains = [
        int((time[remedy.operations] - remedy.new_ns).sum()) + _LAUNCH_NS * int(remedy.removed.sum())
        for remedy in found
    ]
    least = _LEAST_PCT / 100 * timeline.window.length_ns
    order = sorted(range(len(found)), key=lambda place: -gains[place])
    return tuple(found[place] for place in order if gains[place] >= max(least, 1))[:_MOST]


def _remedy(
    rule: str, place: str, timeline: Timeline, found: tuple[Ints, Ints], evidence: tuple[str, ...]
) -> KernelRemedy:
    """Make a remedy of rows of `_work` and their new times; what takes no time any more is not launched any more."""
    (rows, new), work = found, _work(timeline)
    order = np.argsort(work.position[rows], kind="stable")
    rows, new = rows[order], new[order]
    times = pd.Series(work.time[rows]).groupby(work.code[rows]).sum().sort_values(ascending=False, kind="stable")
    kernels = tuple(_names(timeline).texts[code] for code in times.index if code >= 0)[:_MOST]
    return KernelRemedy(rule, place, work.position[rows], new, (new == 0) & (work.time[rows] > 0), evidence, kernels)


@memoize
def _work(timeline: Timeline) -> _Work:
    operations, window = timeline.operations, timeline.window
    inside = (operations.start >= window.start_ns) & (operations.start < window.end_ns)
    position = np.flatnonzero(inside)
    lanes = [operation_column(timeline, name)[position] for name in ("process", "context")]
    lane = np.zeros(len(position), dtype=np.int64)
    for part in (*lanes, operations.device[position], operations.stream[position]):
        codes, known = pd.factorize(part)
        lane = lane * max(len(known), 1) + codes
    start = operations.start[position]
    in_order = (lane[1:] == lane[:-1]) & (start[1:] >= start[:-1])
    if not in_order.all():
        order = np.lexsort((start, lane))
        position, lane, start = position[order], lane[order], start[order]
    calls, call = timeline.profile.tables.get("api_calls", empty("api_calls")), operations.call[position]
    thread = np.append(calls["thread"].to_numpy(dtype=np.int64), -1)[call]
    launched = np.where(call >= 0, np.append(calls["start_ns"].to_numpy(dtype=np.int64), 0)[call], start)
    time, device = operations.end[position] - start, operations.device[position]
    path = np.append(_paths(timeline, len(calls)), -1)[call]
    return _Work(position, lane, start, time, _codes(timeline)[position], thread, launched, device, path)


def _paths(timeline: Timeline, calls: int) -> Ints:
    """Return for each call a number for the path of the program's own ranges around it, -1 for none."""
    ranges = nested_ranges(timeline.profile)
    if not calls or not len(ranges):
        return np.full(calls, -1, dtype=np.int64)
    # modules and functions of a library are not sections of the program
    foreign = ~ranges["style"].isin([PUSH_POP, START_END, ANNOTATION]).to_numpy(dtype=bool)
    row = nearest(ranges["parent"].to_numpy(), foreign)
    codes = np.append(ranges["path"].cat.codes.to_numpy(dtype=np.int64), -1)
    path: Ints = codes[np.append(row, -1)][call_owners(timeline)[0]]
    return path


def _codes(timeline: Timeline) -> Ints:
    tables = timeline.profile.tables
    codes = np.full(len(timeline.operations.kind), -2, dtype=np.int64)
    codes[timeline.operations.of("kernels")] = tables["kernels"]["name"].cat.codes
    if "memory_ops" in tables:
        within = np.asarray(tables["memory_ops"]["operation"] == "Device-to-Device", dtype=bool)
        codes[timeline.operations.of("memory_ops")] = np.where(within, -1, -2)
    return codes


@memoize
def _names(timeline: Timeline) -> _Names:
    texts = tuple(str(text) for text in timeline.profile.table("kernels")["name"].cat.categories)
    return _Names(texts, tuple(kind_of(text) for text in texts))


def _tensor_cores(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find products of matrices and convolutions that CUDA cores do in FP32, where tensor cores do TF32."""
    names, work = _names(timeline), _work(timeline)
    kinds: tuple[tuple[Kind, str], ...] = (("product", "matrix products"), ("convolution", "convolutions"))
    for kind, words in kinds:
        is_kind = names.are(kind)[work.code]
        for rate, on_gpus in _tensor_rates(timeline, work.device):
            rows = work.of(is_kind & on_gpus)
            if not len(rows):
                continue
            time, reached = work.time[rows], OF_TENSOR_PEAK * rate.ratio
            slower = np.maximum(time - _LEAST_PRODUCT_NS, 0)
            new = time - slower + np.ceil(slower / max(reached, 1.0)).astype(np.int64)
            new = np.maximum(new, np.ceil(time * _floor(timeline)[work.position[rows]]).astype(np.int64))
            totals = pd.Series(time).groupby([names.texts[code] for code in work.code[rows]]).sum()
            labels = totals.groupby(lambda name: label_of(name, _NAME_LENGTH)).sum().sort_values(ascending=False)
            evidence = [
                f"{name}: {format_value(float(total), 'time_ns')}" for name, total in labels.head(_WORDS).items()
            ]
            reason = f"{rate.type} on tensor cores: {reached:.1f} times as fast, 85 % of the ratio of the peaks"
            place = f"{words} ({listed((str(name) for name in labels.index), _WORDS - 1)})"
            yield _remedy("tensor_cores", place, timeline, (rows, new), (*evidence, reason))


def _doubles(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find kernels that compute in FP64: in FP32 they move half of the bytes, and do arithmetic at twice the rate."""
    names, work = _names(timeline), _work(timeline)
    of_name = [bool(_FP64.search(label_of(text, _NAME_LENGTH))) or _FP64_PRODUCT in text for text in names.texts]
    rows = work.of(np.array([*of_name, False, False], dtype=bool)[work.code])
    if len(rows):
        time = work.time[rows]
        new = time - (_HALF * np.maximum(time - _TINY_NS, 0)).astype(np.int64)
        evidence = (f"{len(rows):,} kernels, together {format_value(float(time.sum()), 'time_ns')}",)
        yield _remedy("fp64", _longest(names, work, rows), timeline, (rows, new), evidence)


def _moves(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find what only moves data: between the layouts of images, into longer tensors, in another order, or elsewhere."""
    names, work = _names(timeline), _work(timeline)
    labels = [label_of(text, _NAME_LENGTH) for text in names.texts]
    for rule, pattern in (("layout", _LAYOUT), ("concatenation", _CONCATENATION)):
        rows = work.of(np.array([*(bool(pattern.search(label)) for label in labels), False, False])[work.code])
        if len(rows):
            total = format_value(float(work.time[rows].sum()), "time_ns")
            evidence = (f"{len(rows):,} kernels, together {total}",)
            yield _remedy(rule, _longest(names, work, rows), timeline, (rows, np.zeros_like(rows)), evidence)
    copies = np.array([*(bool(_REORDERS.search(text)) for text in names.texts), False, True])[work.code]
    rows = work.of(copies)
    if work.time[rows].sum() >= max(_MUCH_COPIED * work.time.sum(), 1):
        of_kernels = rows[work.code[rows] >= 0]
        within = len(rows) - len(of_kernels)
        words = [
            *([_longest(names, work, of_kernels)] if len(of_kernels) else []),
            *(["Device-to-Device"] * (within > 0)),
        ]
        total = format_value(float(work.time[rows].sum()), "time_ns")
        evidence = (f"{len(rows):,} copies, together {total}",)
        yield _remedy("device_copy", listed(words, _WORDS), timeline, (rows, np.zeros_like(rows)), evidence)


def _longest(names: _Names, work: _Work, rows: Ints) -> str:
    """Return in words the kernels among these rows that take the most time."""
    totals = pd.Series(work.time[rows]).groupby([label_of(names.texts[code], _NAME_LENGTH) for code in work.code[rows]])
    return listed((str(name) for name in totals.sum().sort_values(ascending=False).index), _WORDS - 1)


def _foreach(timeline: Timeline, steps: Ints) -> Iterator[KernelRemedy]:
    """Find optimizers that do one operation after the other on all tensors: runs of different foreach kernels."""
    names, work = _names(timeline), _work(timeline)
    rows = np.flatnonzero(names.are("foreach")[work.code])
    if not len(rows):
        return
    step = np.searchsorted(steps, work.launched[rows], side="right")
    begins = np.append(True, (np.diff(rows) != 1) | (np.diff(step) != 0))
    for column in (work.lane, work.thread):
        begins[1:] |= column[rows][1:] != column[rows][:-1]
    run = np.cumsum(begins) - 1
    different = pd.Series(work.code[rows]).groupby(run).nunique().to_numpy()[run]
    is_update = different >= _FEWEST_UPDATES
    rows, run, different = rows[is_update], np.unique(run[is_update], return_inverse=True)[1], different[is_update]
    if not len(rows) or run[-1] + 1 < _FEWEST:
        return
    if work.start[rows].max() - work.start[rows].min() < _LEAST_SPREAD * timeline.window.length_ns:
        return
    share = np.where(
        different[np.searchsorted(run, np.arange(run[-1] + 1))] >= _UPDATES_OF_ADAM, _FUSED_OPTIMIZER, _FUSED_UPDATE
    )
    new = _given_to_longest(work.time[rows], run, share)
    before, after = (format_value(float(time.sum()) / (run[-1] + 1), "time_ns") for time in (work.time[rows], new))
    evidence = (f"{len(rows) / (run[-1] + 1):,.0f} kernels in a row: {before} each time; fused: about {after}",)
    yield _remedy("fused_optimizer", _longest(names, work, rows), timeline, (rows, new), evidence)


def _tensor_rates(timeline: Timeline, device: Ints) -> Iterator[tuple[TensorRate, Flags]]:
    """Return the different rates of the GPUs, each with the rows of `device` that have it."""
    devices = timeline.profile.tables.get("devices", empty("devices")).drop_duplicates("device")
    rates: dict[TensorRate, list[int]] = {}
    facts = (devices[name].tolist() for name in ("device", "name", "compute_capability"))
    for number, name, capability in zip(*facts, strict=True):
        rate = tensor_rate(str(name), str(capability))
        if rate:
            rates.setdefault(rate, []).append(number)
    for rate, mine in rates.items():
        yield rate, np.isin(device, mine)


@memoize
def _limits(timeline: Timeline) -> tuple[pd.DataFrame, Ints]:
    """Return the rows of `ncu_limits`, and for each kernel the row of the replay that represents it, -1 if none."""
    if not set(NCU_LIMITS.needs) <= timeline.profile.tables.keys():
        return pd.DataFrame(columns=NCU_LIMITS.column_names), np.full(len(timeline.profile.table("kernels")), -1)
    table = ncu_limits(timeline).frame
    row_of = dict(zip(table["launch"].tolist(), range(len(table)), strict=True))
    launches, codes = np.unique(stands_for(timeline), return_inverse=True)
    return table, np.array([row_of.get(launch, -1) for launch in launches.tolist()], dtype=np.int64)[codes]


@memoize
def _floor(timeline: Timeline) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of its time that each kernel needs on tensor cores too, because of its data; 0 if unknown."""
    table, row = _limits(timeline)
    gain = table["gain_pct"].to_numpy(dtype=np.float64)
    used = np.where(table["unit"].isin(MEMORIES), np.nan_to_num(table["used_pct"].to_numpy(dtype=np.float64)), 0.0)
    needed = np.where(table["rule"] == "tensor_cores", 100.0 - np.nan_to_num(gain), used) / 100.0
    return np.append(needed, 0.0)[row]


def _replayed(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find the fixes that ncu's replays suggest for their kernels, except for products known by name."""
    work, names = _work(timeline), _names(timeline)
    table, row_of = _limits(timeline)
    is_kernel = work.code >= 0
    row = np.full(len(work.code), -1, dtype=np.int64)
    row[is_kernel] = row_of[work.position[is_kernel]]
    is_told = names.are("product", "convolution")[work.code]
    for number in np.flatnonzero(~table["rule"].isin(["", "at_roof"])):
        found = table.iloc[number]
        rows = work.of((row == number) & ~(is_told & (found["rule"] == "tensor_cores")))
        if not len(rows):
            continue
        name = label_of(found["name"], _NAME_LENGTH)
        new = np.ceil(work.time[rows] * (1 - found["gain_pct"] / 100)).astype(np.int64)
        limit = f"{found['used_pct']:.0f} % of {found['unit']} used (ncu)"
        evidence = (f"{name}: {found['reason']} (ncu)", f"{len(rows):,} × {name}, {limit}")
        yield _remedy(found["rule"], f"{name} ({found['reason']})", timeline, (rows, new), evidence)


_OF_SCORES: Final = re.compile(r"dropout|triu_tril|FillFunctor|arange")
# shorter kernels do not wait for memory: what fusing them saves is their launches
_MOVES_NS: Final = 3_000


def _fusion(timeline: Timeline, steps: Ints) -> Iterator[KernelRemedy]:
    """Find chains of elementwise kernels that follow each other on a stream again and again.

    Those of an optimizer go on from tensor to tensor: one kernel does them all. One compiler fuses all others, so they
    are one remedy.
    """
    names, work = _names(timeline), _work(timeline)
    texts = np.array([*(operation(text) for text in names.texts), "copy"], dtype=object)
    chains, loops = list[_Chain](), dict[str, list[_Chain]]()
    for rows, chain in _repeated(_chains(work, names, steps), work, timeline.window.length_ns):
        # a compiler has fused what it could
        if not names.are("elementwise")[work.code[rows]].any():
            continue
        words = [str(word) for word in texts[np.maximum(work.code[rows[chain == 0]], -1)]]
        is_adam, is_loop = set(words) >= _OF_ADAM, _is_loop(work, steps, rows.reshape(-1, len(words)))
        if is_adam or is_loop:
            loops.setdefault("fused_optimizer" if is_adam else "fusion", []).append(_Chain(words, rows, chain))
        elif np.median(work.time[rows]) >= _MOVES_NS:
            chains.append(_Chain(words, rows, chain))
    for rule, found in loops.items():
        rows = np.concatenate([each.rows for each in found])
        new = _over_tensors(work, steps, rows, _FUSED_OPTIMIZER if rule == "fused_optimizer" else _FUSED_UPDATE)
        count, said = sum(each.count for each in found), listed(found[0].words, _WORDS)
        place = f"Adam ({said})" if rule == "fused_optimizer" else f"{said} on one tensor after the other"
        total = format_value(float(work.time[rows].sum()) / count, "time_ns")
        kept = len(rows) / max(int((new > 0).sum()), 1)
        evidence = (
            f"{len(found[0].words)} kernels in a row, {count:,} ×: {total} each time",
            f"one kernel in the place of {kept:,.0f}",
        )
        yield _remedy(rule, place, timeline, (rows, new), evidence)
    if chains:
        rows = np.concatenate([each.rows for each in chains])
        fused = [_as_one(work, names, each.rows, each.chain) for each in chains]
        others = len(chains) - 1
        place = listed(chains[0].words, _WORDS) + (f" and {others} more chain{'s' * (others > 1)}" if others else "")
        of_chains = tuple(_said_of_chains(work, chains, fused))
        yield _remedy("fusion", place, timeline, (rows, np.concatenate(fused)), of_chains)


@dataclass(frozen=True, eq=False)
class _Chain:
    """A chain that repeats: what its kernels compute, the rows of all repetitions, and the repetition of each row."""

    words: list[str]
    rows: Ints
    chain: Ints

    @property
    def count(self) -> int:
        """The number of repetitions."""
        return int(self.chain[-1]) + 1


def _said_of_chains(work: _Work, chains: Sequence[_Chain], fused: Sequence[Ints]) -> Iterator[str]:
    """Yield the evidence of the longest chains: the times of their kernels, and of one kernel (`fused`)."""
    for each, new in list(zip(chains, fused, strict=True))[:_WORDS]:
        before, after = int(work.time[each.rows].sum()), int(new.sum())
        words = f"{listed(each.words, _WORDS)}: " if len(chains) > 1 else ""
        yield (
            f"{words}{len(each.words)} kernels in a row, {each.count:,} ×: "
            f"{format_value(before / each.count, 'time_ns')} each time"
        )
        yield f"as one kernel: about {format_value(after / each.count, 'time_ns')}"


def _over_tensors(work: _Work, steps: Ints, rows: Ints, share: float) -> Ints:
    """Return the times of kernels that go through tensors one by one when one kernel per step does that for all.

    It moves this share of the bytes. What each small kernel takes to begin and end is only needed once.
    """
    order = np.argsort(work.launched[rows], kind="stable")
    ordered = rows[order]
    # without steps, what is launched in a row is one pass over the tensors
    step = np.searchsorted(steps, work.launched[ordered], side="right") if len(steps) else np.zeros_like(ordered)
    begins = np.append(True, (step[1:] != step[:-1]) | (work.lane[ordered[1:]] != work.lane[ordered[:-1]]))
    if not len(steps):
        begins[1:] |= np.diff(ordered) > 1
    first = np.flatnonzero(begins)
    moving = np.maximum(work.time[ordered] - _EMPTY_NS, 0)
    new = np.zeros_like(ordered)
    new[first] = np.rint(share * np.add.reduceat(moving, first)).astype(np.int64) + _EMPTY_NS
    result = np.empty_like(new)
    result[order] = new
    return result


def _attention(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find a softmax, or its gradient, between two products with only elementwise kernels around it: unfused attention.

    One kernel keeps the scores on the chip, so that what is between the products takes no time. The products are left
    as they are, although they write and read the scores too: a lower bound of the gain.
    """
    names, work = _names(timeline), _work(timeline)
    texts = [*(operation(text) for text in names.texts), "copy"]
    is_softmax_, is_product = (
        np.array([*map(tells, names.texts), False, False], dtype=bool)[work.code]
        for tells in (is_softmax, is_named_product)
    )
    # dropout, and what makes a mask
    is_minor = np.array([*(_OF_SCORES.search(text) is not None for text in names.texts), False, False], dtype=bool)
    # copies of a layout stand there too, and cuBLAS sets some bytes before a product
    between = (names.are("elementwise", "compiled") | is_minor)[work.code] | (work.code < 0)
    between &= ~is_softmax_
    rows, other = np.arange(len(work.code)), ~between
    # the nearest rows on both sides that are not elementwise, -1 and len(rows) for none
    before = np.append(-1, np.maximum.accumulate(np.where(other, rows, -1)))[:-1]
    after = np.append(np.minimum.accumulate(np.where(other, rows, len(rows))[::-1])[::-1], len(rows))[1:]
    low, high = before[is_softmax_], after[is_softmax_]
    inside = (low >= 0) & (high < len(rows))
    low, high = low[inside], high[inside]
    together = is_product[low] & is_product[high]
    for column in (work.lane, work.thread, work.path):
        together &= column[low] == column[high]
    low, high = low[together], high[together]
    if len(low) < _FEWEST or work.start[high].max() - work.start[low].min() < _LEAST_SPREAD * timeline.window.length_ns:
        return
    count = high - low - 1
    mine = np.repeat(low + 1, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first = mine[: count[0]]
    words = listed(("softmax" if is_softmax_[row] else texts[max(work.code[row], -1)] for row in first), _WORDS)
    total = format_value(float(work.time[mine].sum()) / len(low), "time_ns")
    evidence = (f"{words} between two products, {len(low):,} ×: {total} each time",)
    yield _remedy("attention", words, timeline, (mine, np.zeros_like(mine)), evidence)


def _is_loop(work: _Work, steps: Ints, turns: Ints) -> bool:
    """Whether chains (a row of `turns` each) are a loop over tensors, such as the parameters of an optimizer.

    It is if they follow each other with different lengths, or many times in a step. Its kernels update what is kept in
    memory, so that one kernel has to read and write more than the shortest of them. Of tiny kernels only the number
    matters.
    """
    if len(turns) < _FEWEST or work.time[turns].mean() < _TINY_NS:
        return False
    step = np.searchsorted(steps, work.launched[turns[:, 0]], side="right")
    follows = (turns[1:, 0] - turns[:-1, -1] == 1) & (step[1:] == step[:-1])
    time = np.maximum(work.time[turns].sum(axis=1), 1)
    differs = np.maximum(time[1:], time[:-1]) > _DIFFERS * np.minimum(time[1:], time[:-1])
    return bool(np.mean(follows & differs) > _SOMETIMES or (len(steps) > 1 and np.mean(follows) >= _MOSTLY))


def _chains(work: _Work, names: _Names, steps: Ints) -> _Chains:
    """Return runs of elementwise kernels, divided where a sequence of them begins again.

    None goes on in another range: sections that the program tells apart are rather alternatives, or passes.
    """
    has_rows, own = names.are("reduction")[work.code], names.are("elementwise", "compiled")[work.code]
    copies = work.code == -1
    step = np.searchsorted(steps, work.launched, side="right")
    member = own | has_rows | copies
    broken = step[1:] != step[:-1]
    for column in (work.lane, work.thread, work.path):
        broken |= column[1:] != column[:-1]
    begins = member & np.append(True, broken | ~member[:-1])[: len(member)]
    run = np.cumsum(begins) - 1
    # reductions and copies only between elementwise kernels
    rows = np.flatnonzero(own)
    if not len(rows):
        return _Chains(rows, rows, rows)
    low, high = np.full((2, int(run[-1]) + 1), -1, dtype=np.int64)
    high[run[rows]] = rows
    low[run[rows[::-1]]] = rows[::-1]
    at = np.arange(len(run))
    rows = np.flatnonzero(member & (at >= low[run]) & (at <= high[run]))
    first = np.flatnonzero(np.append(True, run[rows[1:]] != run[rows[:-1]]))
    first = _divided(work.code[rows], first)
    return _Chains(rows, first, _patterns(work.code[rows], first))


def _patterns(code: Ints, first: Ints) -> Ints:
    """Return a number for each sequence of codes, equal for equal sequences (and, by a rare chance, for others)."""
    lengths = np.diff(np.append(first, len(code)))
    place = np.arange(len(code)) - np.repeat(first, lengths)
    mixed = (code.astype(np.uint64) + np.uint64(3)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    sums = np.add.reduceat(mixed ^ (mixed >> np.uint64(32)), first)
    return np.asarray(pd.factorize(sums)[0], dtype=np.int64)


def _divided(code: Ints, first: Ints) -> Ints:
    """Divide runs where a sequence of kernels follows itself: `add mul add mul add mul` are three chains.

    Kernels of one name in a row are chains of one: they rather work on one tensor after the other. Each different run
    is looked at once; of many different ones only those that are most of the work.
    """
    pattern, lengths = _patterns(code, first), np.diff(np.append(first, len(code)))
    totals = np.bincount(pattern, lengths)
    example = np.zeros(len(totals), dtype=np.int64)
    example[pattern[::-1]] = np.arange(len(pattern))[::-1]
    cuts = [first]
    for number in np.argsort(-totals, kind="stable")[:_MOST_RUNS]:
        begin, length = first[example[number]], lengths[example[number]]
        inner = _periods(code[begin : begin + length])
        if len(inner):
            cuts.append((first[pattern == number][:, None] + inner[None, :]).ravel())
    return distinct(np.concatenate(cuts))


def _periods(code: Ints) -> Ints:
    """Return where a run is to be divided: at the begin of each repetition of a sequence that follows itself.

    The shortest sequences are looked for first; what they take is not taken by longer ones.
    """
    taken = np.zeros(len(code), dtype=bool)
    cuts: list[Ints] = []
    for period in range(1, min(_LONGEST_PERIOD, len(code) // 2) + 1):
        repeats = _REPEATS.get(period, 2)
        same = np.concatenate(
            ([False], (code[period:] == code[:-period]) & ~taken[period:] & ~taken[:-period], [False])
        )
        edges = np.flatnonzero(same[1:] != same[:-1])
        low, high = edges[::2], edges[1::2]
        often = high - low >= (repeats - 1) * period
        low, high = low[often], high[often] + period
        # whole repetitions, and the rest as a separate chain
        counts = (high - low) // period + 1
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        cuts.append(np.repeat(low, counts) + period * place)
        change = np.bincount(low, minlength=len(code) + 1) - np.bincount(high, minlength=len(code) + 1)
        taken |= np.cumsum(change)[:-1] > 0
        if taken.all():
            break
    inner = distinct(np.concatenate([_NO_OPERATIONS, *cuts]))
    return inner[(inner > 0) & (inner < len(code))]


def _repeated(chains: _Chains, work: _Work, window_ns: int) -> Iterator[tuple[Ints, Ints]]:
    """Return for each sequence that is there again and again its rows, and the number of the chain of each row."""
    if not len(chains.first):
        return
    time = np.add.reduceat(work.time[chains.rows], chains.first)
    last = chains.rows[np.append(chains.first[1:], len(chains.rows)) - 1]
    begin, end = work.start[chains.rows[chains.first]], work.start[last] + work.time[last]
    table = pd.DataFrame({"pattern": chains.pattern, "time": time, "begin": begin, "end": end})
    sums = (
        table.assign(length=chains.lengths)
        .groupby("pattern")
        .agg(
            count=("time", "size"),
            time=("time", "sum"),
            low=("begin", "min"),
            high=("end", "max"),
            length=("length", "first"),
        )
    )
    sums = sums[(sums["count"] >= _FEWEST) & (sums["high"] - sums["low"] >= _LEAST_SPREAD * window_ns)]
    for pattern, total in sums.sort_values("time", ascending=False).head(_MOST)[["length", "count"]].iterrows():
        mine, length = np.flatnonzero(chains.pattern == pattern), int(total["length"])
        rows = chains.rows[chains.first[mine][:, None] + np.arange(length)[None, :]]
        # two kernels may well have nothing to do with each other, unless they take turns
        takes_turns = np.mean(rows[1:, 0] - rows[:-1, -1] == 1) > _LEAST_SPREAD
        if length >= _FEWEST_KERNELS or (length > 1 and takes_turns):
            yield rows.ravel(), np.repeat(np.arange(len(mine)), length)


def _as_one(work: _Work, names: _Names, rows: Ints, chain: Ints) -> Ints:
    """Return the times of the kernels of chains when one kernel does the work of each chain.

    It reads and writes once, as the shortest of those that work on all elements does. Where kernels convert types, the
    shortest may be one on smaller elements: then the mean of the shortest and the longest. A gradient kernel reads what
    the forward pass has left, so with one of these it takes no less. Of a softmax (5 kernels, 681 µs on an H200) 165 µs
    were left and this says 125, of a normalization (10, 1140 µs) 124 and 125, of a GELU (9, 1376 µs) 126 and 125.
    """
    time, code = work.time[rows], work.code[rows]
    first = np.flatnonzero(np.append(True, chain[1:] != chain[:-1]))
    own = names.are("elementwise", "compiled")[code]
    longest = np.maximum.reduceat(np.where(own, time, 0), first)
    full = own & (time >= _FULL_SIZE * longest[chain])
    shortest = np.minimum.reduceat(np.where(full, time, np.iinfo(np.int64).max), first)
    converting = np.array([*(converts(text) for text in names.texts), False, False])[code[chain == 0]].any()
    once_ns = (shortest + longest) // 2 if converting else shortest
    backward = np.array([*("Backward" in text for text in names.texts), False, False])[code] & own
    once_ns = np.maximum(once_ns, np.maximum.reduceat(np.where(backward, time, 0), first))
    return _given_to_longest(time, chain, once_ns / np.maximum(np.add.reduceat(time, first), 1))


def _given_to_longest(time: Ints, chain: Ints, share: "float | np.ndarray[Any, np.dtype[np.float64]]") -> Ints:
    """Give what is left, a share of each chain's time, to its kernels, none of which gets longer: the longest first."""
    order = np.lexsort((-time, chain))
    ordered = time[order]
    before = np.cumsum(ordered) - ordered
    first = np.flatnonzero(np.append(True, chain[1:] != chain[:-1]))
    total = np.rint(share * np.add.reduceat(time, first)).astype(np.int64)
    before -= np.repeat(before[first], np.diff(np.append(first, len(time))))
    new = np.empty_like(time)
    new[order] = np.clip(total[chain] - before, 0, ordered)
    return new


def _small_grids(timeline: Timeline) -> Iterator[KernelRemedy]:
    """Find kernels with fewer blocks than half of the SMs that take much of the time and run alone.

    Only where grids were read: captures of more than 60 MB are read without.
    """
    kernels, work, names = timeline.profile.table("kernels"), _work(timeline), _names(timeline)
    if not {"grid_x", "grid_y", "grid_z"} <= set(kernels.columns):
        return
    is_kernel = work.code >= 0
    rows = np.flatnonzero(is_kernel)
    position = work.position[rows]
    blocks = np.prod([kernels[f"grid_{axis}"].to_numpy(dtype=np.int64)[position] for axis in "xyz"], axis=0)
    share = blocks / np.maximum(_multiprocessors(timeline, work.device[rows]), 1)
    waits = np.array([communicates(text) or "persist" in text.lower() for text in names.texts], dtype=bool)
    small = (share > 0) & (share < _FILLED) & (work.time[rows] >= _LONG_NS) & ~waits[work.code[rows]]
    # of a kernel that was replayed, ncu tells more
    small &= _limits(timeline)[1][position] < 0
    small[small] = _alone(timeline, position[small])
    groups = pd.DataFrame({"code": work.code[rows], "blocks": blocks, "time": work.time[rows]})[small]
    totals = groups.groupby(["code", "blocks"])["time"].sum().sort_values(ascending=False)
    least = _DOMINATES * work.time[is_kernel].sum()
    for (code, number), total in totals[totals >= least].items():
        chosen = small & (work.code[rows] == code) & (blocks == number)
        mine = rows[chosen]
        # every SM does at most its share, and a kernel takes some microseconds anyhow
        floor = np.minimum(work.time[mine], _LEAST_PRODUCT_NS)
        new = np.maximum(np.ceil(work.time[mine] * share[chosen]).astype(np.int64), floor)
        name = label_of(names.texts[code], _NAME_LENGTH)
        sms = round(float(number / share[chosen][0]))
        said = f"{number:,} {'block' if number == 1 else 'blocks'} on {sms:,} SMs"
        evidence = (f"{name}: {said}, {len(mine):,} ×, {format_value(float(total), 'time_ns')} in total",)
        yield _remedy("small_grid", f"{name} ({said})", timeline, (mine, new), evidence)


def _multiprocessors(timeline: Timeline, device: Ints) -> Ints:
    """Return the number of SMs of the GPU of each kernel; 0 if unknown."""
    devices = timeline.profile.tables.get("devices", empty("devices")).drop_duplicates("device")
    known = dict(zip(devices["device"].tolist(), integers(devices["multiprocessors"]).tolist(), strict=True))
    numbers, distinct = pd.factorize(device)
    return np.array([max(known.get(int(number), 0), 0) for number in distinct], dtype=np.int64)[numbers]


def _alone(timeline: Timeline, position: Ints) -> Flags:
    """Return which kernels run while no other kernel does on their GPU."""
    operations = timeline.operations
    is_kernel = operations.of("kernels")
    alone = np.zeros(len(position), dtype=bool)
    lanes = by_device(timeline) if len(position) else {}
    for device, asked in positions(operations.device[position]).items():
        mine = lanes[device][is_kernel[lanes[device]]]
        begins, ends = np.sort(operations.start[mine]), np.sort(operations.end[mine])
        start, end = operations.start[position[asked]], operations.end[position[asked]]
        # no other has begun and not ended when it begins, and none begins before it ends
        before = depth(begins, ends, start) <= 1
        during = np.searchsorted(begins, end, side="left") - np.searchsorted(begins, start, side="left") <= 1
        alone[asked] = before & during
    return alone
