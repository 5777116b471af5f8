"""Find faster kernels: from kernel names, their order on a stream, their grids, and replays in ncu.

A timeline has neither bytes nor FLOP, so gains are estimated from ratios: of peak rates for matrix products, of the
durations in a chain for elementwise kernels. Constants were measured on an H200. In replayed kernels, the limiting unit
bounds the gain.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.owners import operation_owners
from nightsight.analyze.replay.join import replay_of_kernels
from nightsight.analyze.replay.limits import MEMORIES, ncu_limits
from nightsight.events.kernel_kinds import Kind, converts, is_named_product, is_softmax, kind_of, listed, operation
from nightsight.events.kernel_labels import label_of
from nightsight.events.kernel_names import communicates
from nightsight.events.peaks import OF_TENSOR_PEAK, TensorRate, tensor_rate
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline, by_device, distinct, operation_column
from nightsight.intervals import Flags, Floats, Ints, depth
from nightsight.results.ncu import NCU_LIMITS
from nightsight.system.parallel import memoize
from nightsight.tables import (
    ANNOTATION,
    PUSH_POP,
    SHAPE,
    START_END,
    aggregate,
    integers,
    names_and_grids,
    nearest,
    positions,
)
from nightsight.units import counted

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# no matrix product is faster, because of its first loads and last stores (sizes 256 to 1024: 4.4, 6.8 and 12.6 µs)
_LEAST_PRODUCT_NS: Final = 6_000
# kernels shorter than this share of the longest in a chain work on fewer elements, such as scalars or row statistics
# (stored: 0.2 to 0.8)
_FULL_SIZE: Final = 0.4
# PyTorch's Adam reads and writes 18 tensors with separate operations and 7 in one kernel, which took 0.39 to 0.46
_FUSED_OPTIMIZER: Final = 0.45
# kernels as short as this move hardly any data: an empty one takes up to 2 µs
_TINY_NS: Final = 3_000
# the duration of an empty kernel (H100 and H200: 1.2 to 2 µs)
_EMPTY_NS: Final = 1_500
# SGD with momentum: 8 tensors with separate operations, 5 in one kernel
_FUSED_UPDATE: Final = 0.62
_ADAM_OPERATIONS: Final = frozenset(("lerp", "addcmul", "sqrt", "addcdiv"))
# chains form a loop over tensors if this share of neighbors differs in length by this factor, or if this share is
# consecutive. `cupy_options` (tests/data/real) has other chains with a factor of 1 or a share of 0.375; stored: up to
# 4, 0.125 to 0.5, up to 0.875
_UNEQUAL: Final = 2
_LEAST_UNEQUAL: Final = 0.25
_LEAST_CONSECUTIVE: Final = 0.75
# a chain counts if it occurs this many times, spread over this share of the window (stored: 1 to 6, 0.25 to 0.75, and 1
# to 6 kernels in it)
_FEWEST: Final = 3
_LEAST_SPREAD: Final = 0.5
_FEWEST_KERNELS: Final = 3
# these two only limit the search
_LONGEST_PERIOD: Final = 64
_MOST_RUNS: Final = 256
# the number of repetitions that rules out coincidence, by the length of a sequence (stored: up to twice; with half as
# many, chains begin at other kernels, such as that of `gelu`)
_REPEATS: Final = {1: 4, 2: 3, 3: 3}
# about the CPU time of a launch: under nsys, 7 µs in the median of the stored captures (stored: 2 to 8 µs)
_LAUNCH_NS: Final = 4_000
# remedies with smaller gains are left out, and so are those after the first _MOST of a kind; names are cut
_LEAST_PCT: Final = 0.5
_MOST: Final = 8
_NAME_LENGTH: Final = 60
_WORDS: Final = 4
# a grid is small if it leaves more than half of the SMs without a block; its kernel must have this duration and this
# share of the kernel time (stored: up to 0.75, as `one_stream` of tests/data/planted fills between a quarter and half;
# 10 to 40 µs; 0.025 to 0.1)
_FILLED_SHARE: Final = 0.5
_LONG_NS: Final = 20_000
_DOMINATES: Final = 0.05
# forward and backward of 12 convolutions in one and two dimensions were 1.2 to 6.7 times as fast in TF32, in the median
# 3.9 times, as layouts are converted; products are 6.3 times as fast. In three dimensions, nine were 3 to 12 times as
# fast, in the median 7.3 times: in FP32, the gradient of the weights has few blocks and leaves schedulers of the GPU
# without a warp, in TF32 it is split (an H200, PyTorch 2.11, cuDNN 9, 2026-11-29)
_CONVOLUTION_SHARE: Final = 0.65
_LEAST_FILLED: Final = 1 / 3
_SCHEDULERS: Final = 4
_WARP: Final = 32
_GRID, _BLOCK = SHAPE[:3], SHAPE[3:]
# half the bytes take half the time, apart from the time of an empty kernel
_HALF: Final = 0.5
_FP64: Final = re.compile(r"<double\b|\bf64\b")
_FP64_PRODUCT: Final = "d884gemm"
_LAYOUT: Final = re.compile(r"^(?:nchw to nhwc|nhwc to nchw)\b")
# PyTorch uses this kernel for copies that change the order of elements; casts and plain copies use others
_REORDERING_COPY: Final = re.compile(
    r"\bat::native::elementwise_kernel<.*gpu_kernel_impl_nocast<at::native::direct_copy_kernel"
)
# share of the time of all GPU work: attention needs some such copies, in `transformer` of tests/data/planted between 5
# and 10 % (stored: up to 0.2)
_LEAST_COPIED: Final = 0.1
_CONCATENATION: Final = re.compile(r"^cat\b")
# runs of at least this many different foreach kernels are an optimizer: that of `ctr_recsys`
# (tests/data/planted/others) has fewer than six. Adam has more than SGD with momentum (stored: from 1, 2 to 10)
_FEWEST_UPDATES: Final = 3
_FEWEST_ADAM_UPDATES: Final = 5
_SCORE_KERNEL: Final = re.compile(r"dropout|triu_tril|FillFunctor|arange")
# shorter kernels and copies do not wait for memory: without them, only launches are saved (stored: 1.5 to 6 µs)
_MOVES_NS: Final = 3_000
# the alignment of operands of CUTLASS, in elements: loads of 1 or 2 elements instead of 16 bytes. The share of its time
# that such a product needs with the best alignment: `gpt2_vocabulary` (tests/data/real) took 25.2 ms without such loads
# instead of 37.9 ms, and 0.35 predicts 28.0 ms; with 0.7, another finding is its first (stored: from half). Products in
# FP64 (d884gemm) always load single elements
_ALIGNMENT: Final = re.compile(r"tensorop_(?!d884)\w*_align([12])\b")
_MISALIGNED_SHARE: Final = {"1": 0.35, "2": 0.6}
# this many kernels in a row, with a product, are equal in the forward and backward pass only if they compute the same:
# none in ten programs without checkpointing, 344 kernels per step in one with it (Llama with LoRA, an H100)
_RECOMPUTED_RUN: Final = 6
_BACKWARD: Final = re.compile(r"[Bb]ackward|_bwd|bwd_|dgrad|wgrad")
# FlashAttention-2, without its kernels for decoding (splitkv), which wait for memory, and the share of their time that
# cuDNN's take, by the size of heads: forward and backward together, BF16, 1024 and 4096 tokens, for 64 and 128 from 512
# to 8192 tokens with and without a causal mask, where it is 0.59 to 0.67 and 0.53 to 0.60 (an H100, PyTorch 2.11, cuDNN
# 9.19, 2026-11-27). Published: 0.5 to 0.67 for FlashAttention-3 (arXiv:2407.08608). A grid of one block in x has at
# most 128 queries
_FLASH_2: Final = re.compile(r"\bflash_(?:fwd|bwd_dq_dk_dv_loop\w*)_kernel\b")
_FLASH_HEAD: Final = re.compile(r"_kernel_traits<(?:\(int\))?(\d+)")
_FLASH_3_CAPABILITY: Final = "9.0"
_FLASH_3_SHARES: Final = {"32": 0.93, "64": 0.62, "96": 0.66, "128": 0.55, "192": 0.72, "256": 0.64}
_FLASH_3_SHARE: Final = 0.72
# stored: 10 to 40 µs
_LEAST_ATTENTION_NS: Final = 20_000
_NO_OPERATIONS: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class KernelRemedy:
    """A change of kernels: the affected operations, and how long each would then take.

    `place`: the kernels in words. `operations`: positions in `Timeline.operations`, in order. `new_ns`: 0 for kernels
    that another one absorbs. `removed`: those that would no longer be launched. `kernels`: the names of those with the
    most time. `compiles_model`: whether a compiler of the whole model makes it, in PyTorch.
    """

    rule: str
    place: str
    operations: Ints
    new_ns: Ints
    removed: Flags
    kernels: tuple[str, ...]
    compiles_model: bool = False


@dataclass(frozen=True, eq=False)
class _WindowWork:
    """The operations in the window, by lane (a stream), then by start, and the distinct names of kernels with kinds.

    `position`: in `Timeline.operations`. `code`: of the kernel name, -1 for copies within a device, -2 for other
    operations. `thread`: the launching thread, -1 if unknown. `launch_ns`: the start of its call, or its own start if
    unknown. `path`: a number for the program's range path around that call, -1 for none.
    """

    timeline: Timeline
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    position: Ints
    lane: Ints
    start: Ints
    time: Ints
    code: Ints
    thread: Ints
    launch_ns: Ints
    device: Ints
    path: Ints

    def rows_where(self, chosen: Flags) -> Ints:
        """Return the rows where `chosen` is set, in order of their positions."""
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(self.position[rows], kind="stable")]

    def named(self, is_chosen: Callable[[str], object]) -> Flags:
        """Return which rows are kernels whose names are chosen."""
        return self._by_name(bool(is_chosen(name)) for name in self.names)

    def labeled(self, words: re.Pattern[str]) -> Flags:
        """Return which rows are kernels whose labels contain these words."""
        return self.named(lambda name: words.search(label_of(name, _NAME_LENGTH)))

    def of_kinds(self, *kinds: Kind) -> Flags:
        """Return which rows are kernels of one of these kinds."""
        return self._by_name(kind in kinds for kind in self.kinds)

    def _by_name(self, flags: Iterable[bool]) -> Flags:
        # the last two are for the codes -1 and -2, which are not kernels
        return np.array([*flags, False, False], dtype=bool)[self.code]

    def is_spread(self, rows: Ints) -> bool:
        """Whether rows are spread over the window, and so not a single event in it."""
        start = self.start[rows]
        return bool(start.max() - start.min() >= _LEAST_SPREAD * self.timeline.window.length_ns)

    def main_kernels(self, rows: Ints) -> str:
        """Return the kernels with the most time among these rows, in words."""
        by_code = pd.Series(self.time[rows]).groupby(self.code[rows]).sum()
        by_label = by_code.groupby([label_of(self.names[code], _NAME_LENGTH) for code in by_code.index]).sum()
        return listed((str(label) for label in by_label.sort_values(ascending=False).index), _WORDS - 1)

    def remedy(self, rule: str, place: str, rows: Ints, new: Ints) -> KernelRemedy:
        """Return the remedy that gives rows new times; a row without time is no longer launched."""
        order = np.argsort(self.position[rows], kind="stable")
        rows, new = rows[order], new[order]
        times = pd.Series(self.time[rows]).groupby(self.code[rows]).sum().sort_values(ascending=False, kind="stable")
        kernels = tuple(self.names[code] for code in times.index if code >= 0)[:_MOST]
        return KernelRemedy(rule, place, self.position[rows], new, (new == 0) & (self.time[rows] > 0), kernels)


@dataclass(frozen=True, eq=False)
class _Chains:
    """Chains of kernels: all rows, where each chain starts in them, and a number for equal sequences."""

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


@dataclass(frozen=True, eq=False)
class _RepeatedChain:
    """A chain that repeats: what its kernels compute, the rows of all repetitions, and the repetition of each row."""

    words: list[str]
    rows: Ints
    chain: Ints


def kernel_remedies(timeline: Timeline, steps: Ints = _NO_OPERATIONS) -> tuple[KernelRemedy, ...]:
    """Return the remedies for kernels of the window, the largest gain first, without gains of less than 0.5 %.

    steps: when the CPU started each repetition of the program's loop, if known: no chain continues into the next one.
    """
    if not len(timeline.profile.recorded("kernels")):
        return ()
    work = _window_work(timeline)
    all_remedies = [
        *_find_fp32_products(work),
        *_find_fp64(work),
        *_find_data_movers(work),
        *_find_small_grids(work),
        *_find_chains_to_fuse(work, steps),
        *_find_foreach_optimizers(work, steps),
        *_find_attention(work),
        *_find_flash_attention_2(work),
        *_find_recomputation(work, steps),
        *_find_misaligned_products(work),
        *_find_ncu_fixes(work),
    ]
    time = timeline.operations.end - timeline.operations.start
    gains = [
        int((time[remedy.operations] - remedy.new_ns).sum()) + _LAUNCH_NS * int(remedy.removed.sum())
        for remedy in all_remedies
    ]
    least_ns = _LEAST_PCT / 100 * timeline.window.length_ns
    order = sorted(range(len(all_remedies)), key=lambda place: -gains[place])
    return tuple(all_remedies[place] for place in order if gains[place] >= max(least_ns, 1))[:_MOST]


def _window_work(timeline: Timeline) -> _WindowWork:
    operations, window = timeline.operations, timeline.window
    names = tuple(map(str, timeline.profile.table("kernels")["name"].cat.categories))
    is_inside = (operations.start >= window.start_ns) & (operations.start < window.end_ns)
    position = np.flatnonzero(is_inside)
    lanes = [operation_column(timeline, name)[position] for name in ("process", "context")]
    lane = np.zeros(len(position), dtype=np.int64)
    for part in (*lanes, operations.device[position], operations.stream[position]):
        codes, distinct_values = pd.factorize(part)
        lane = lane * max(len(distinct_values), 1) + codes
    start = operations.start[position]
    is_ordered = (lane[1:] == lane[:-1]) & (start[1:] >= start[:-1])
    if not is_ordered.all():
        order = np.lexsort((start, lane))
        position, lane, start = position[order], lane[order], start[order]
    calls, call = timeline.profile.recorded("api_calls"), operations.call[position]
    thread = np.append(calls["thread"].to_numpy(dtype=np.int64), -1)[call]
    launch_ns = np.where(call >= 0, np.append(calls["start_ns"].to_numpy(dtype=np.int64), 0)[call], start)
    time, device = operations.end[position] - start, operations.device[position]
    code, path = _name_codes(timeline)[position], _range_paths(timeline)[position]
    kinds = tuple(map(kind_of, names))
    return _WindowWork(timeline, names, kinds, position, lane, start, time, code, thread, launch_ns, device, path)


def _range_paths(timeline: Timeline) -> Ints:
    """Return for each operation a number for the path of the program's ranges that own it, -1 for none."""
    ranges, owner = nested_ranges(timeline.profile), operation_owners(timeline)
    if not len(ranges):
        return np.full(len(owner), -1, dtype=np.int64)
    # modules and functions of libraries are not ranges of the program
    is_foreign = ~ranges["style"].isin([PUSH_POP, START_END, ANNOTATION]).to_numpy(dtype=bool)
    range_row = nearest(ranges["parent"].to_numpy(), is_foreign)
    codes = np.append(ranges["path"].cat.codes.to_numpy(dtype=np.int64), -1)
    path: Ints = codes[np.append(range_row, -1)][owner]
    return path


def _name_codes(timeline: Timeline) -> Ints:
    tables = timeline.profile.tables
    codes = np.full(len(timeline.operations.kind), -2, dtype=np.int64)
    codes[timeline.operations.of("kernels")] = tables["kernels"]["name"].cat.codes
    if "memory_ops" in tables:
        is_within = np.asarray(tables["memory_ops"]["operation"] == "Device-to-Device", dtype=bool)
        codes[timeline.operations.of("memory_ops")] = np.where(is_within, -1, -2)
    return codes


def _find_fp32_products(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find matrix products and convolutions that run in FP32 on CUDA cores, where tensor cores could use TF32."""
    kinds: tuple[tuple[Kind, str], ...] = (("product", "matrix products"), ("convolution", "convolutions"))
    rates = list(_tensor_rates(work.timeline, work.device))
    for kind, plural in kinds:
        is_kind = work.of_kinds(kind)
        for rate, has_rate in rates:
            rows = work.rows_where(is_kind & has_rate)
            if not len(rows):
                continue
            time, speedup = work.time[rows], np.full(len(rows), OF_TENSOR_PEAK * rate.ratio)
            if kind == "convolution":
                speedup *= _CONVOLUTION_SHARE / np.maximum(_filled_share(work, rows), _LEAST_FILLED)
            shrinkable_ns = np.maximum(time - _LEAST_PRODUCT_NS, 0)
            new_ns = time - shrinkable_ns + np.ceil(shrinkable_ns / np.maximum(speedup, 1.0)).astype(np.int64)
            least_ns = np.ceil(time * _least_share(work.timeline)[work.position[rows]]).astype(np.int64)
            place = f"{plural} ({work.main_kernels(rows)})"
            yield work.remedy("tensor_cores", place, rows, np.maximum(new_ns, least_ns))


def _filled_share(work: _WindowWork, rows: Ints) -> Floats:
    """Return for kernels the share of the schedulers of their GPU that have a warp; 1 if grids are unknown."""
    kernels = work.timeline.profile.table("kernels")
    if not set(SHAPE) <= set(kernels.columns):
        return np.ones(len(rows))
    position = work.position[rows]
    blocks, threads = (
        np.prod([kernels[name].to_numpy(dtype=np.float64, na_value=np.nan)[position] for name in names], axis=0)
        for names in (_GRID, _BLOCK)
    )
    schedulers = _SCHEDULERS * np.maximum(_sm_counts(work.timeline, work.device[rows]), 1)
    filled: Floats = np.nan_to_num(np.minimum(blocks * np.ceil(threads / _WARP) / schedulers, 1.0), nan=1.0)
    return filled


def _find_fp64(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find kernels that compute in FP64: in FP32 they move half the bytes, and compute at twice the rate."""
    rows = work.rows_where(work.labeled(_FP64) | work.named(lambda name: _FP64_PRODUCT in name))
    if len(rows):
        time = work.time[rows]
        new_ns = time - (_HALF * np.maximum(time - _TINY_NS, 0)).astype(np.int64)
        yield work.remedy("fp64", work.main_kernels(rows), rows, new_ns)


def _find_data_movers(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find kernels and copies that only move data: layout conversions, concatenations, and reordering copies."""
    for rule, pattern in (("layout", _LAYOUT), ("concatenation", _CONCATENATION)):
        rows = work.rows_where(work.labeled(pattern))
        if len(rows):
            yield work.remedy(rule, work.main_kernels(rows), rows, np.zeros_like(rows))
    # the cost of shorter copies is their launches
    rows = work.rows_where((work.named(_REORDERING_COPY.search) | (work.code == -1)) & (work.time >= _MOVES_NS))
    if work.time[rows].sum() >= max(_LEAST_COPIED * work.time.sum(), 1):
        kernel_rows = rows[work.code[rows] >= 0]
        words = [work.main_kernels(kernel_rows)] if len(kernel_rows) else []
        words += ["Device-to-Device"] if len(kernel_rows) < len(rows) else []
        yield work.remedy("device_copy", listed(words, _WORDS), rows, np.zeros_like(rows))


def _find_foreach_optimizers(work: _WindowWork, steps: Ints) -> Iterator[KernelRemedy]:
    """Find optimizers that run one operation after another on all tensors: runs of different foreach kernels."""
    rows = np.flatnonzero(work.of_kinds("foreach"))
    if not len(rows):
        return
    step = np.searchsorted(steps, work.launch_ns[rows], side="right")
    begins = np.append(True, (np.diff(rows) != 1) | (np.diff(step) != 0))
    for column in (work.lane, work.thread):
        begins[1:] |= column[rows][1:] != column[rows][:-1]
    run = np.cumsum(begins) - 1
    distinct_kernels = pd.Series(work.code[rows]).groupby(run).nunique().to_numpy()[run]
    is_update = distinct_kernels >= _FEWEST_UPDATES
    rows, distinct_kernels = rows[is_update], distinct_kernels[is_update]
    run = np.unique(run[is_update], return_inverse=True)[1]
    if not len(rows) or run[-1] + 1 < _FEWEST or not work.is_spread(rows):
        return
    is_adam = distinct_kernels[np.searchsorted(run, np.arange(run[-1] + 1))] >= _FEWEST_ADAM_UPDATES
    share = np.where(is_adam, _FUSED_OPTIMIZER, _FUSED_UPDATE)
    new_ns = _distribute(work.time[rows], run, share)
    yield work.remedy("fused_optimizer", work.main_kernels(rows), rows, new_ns)


def _tensor_rates(timeline: Timeline, device: Ints) -> Iterator[tuple[TensorRate, Flags]]:
    """Yield the distinct tensor core rates of the GPUs, each with the rows of `device` that have it."""
    devices = timeline.profile.recorded("devices").drop_duplicates("device")
    rates: dict[TensorRate, list[int]] = {}
    columns = (devices[name].tolist() for name in ("device", "name", "compute_capability"))
    for number, name, capability in zip(*columns, strict=True):
        rate = tensor_rate(str(name), str(capability))
        if rate:
            rates.setdefault(rate, []).append(number)
    for rate, numbers in rates.items():
        yield rate, np.isin(device, numbers)


@memoize
def _ncu_rows(timeline: Timeline) -> tuple[pd.DataFrame, Ints]:
    """Return the rows of `ncu_limits`, and for each kernel the row of the replay that represents it; -1 for none."""
    if not set(NCU_LIMITS.needs) <= timeline.profile.tables.keys():
        return pd.DataFrame(columns=NCU_LIMITS.column_names), np.full(len(timeline.profile.table("kernels")), -1)
    table = ncu_limits(timeline).frame
    row_of = dict(zip(table["launch"].tolist(), range(len(table)), strict=True))
    launches, codes = np.unique(replay_of_kernels(timeline), return_inverse=True)
    return table, np.array([row_of.get(launch, -1) for launch in launches.tolist()], dtype=np.int64)[codes]


@memoize
def _least_share(timeline: Timeline) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of its time that each kernel needs even on tensor cores, to move its data; 0 if unknown."""
    table, row = _ncu_rows(timeline)
    gain = table["gain_pct"].to_numpy(dtype=np.float64)
    used = np.where(table["unit"].isin(MEMORIES), np.nan_to_num(table["used_pct"].to_numpy(dtype=np.float64)), 0.0)
    needed = np.where(table["rule"] == "tensor_cores", 100.0 - np.nan_to_num(gain), used) / 100.0
    return np.append(needed, 0.0)[row]


def _find_misaligned_products(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find products on tensor cores whose rows do not start at multiples of 16 bytes, so that loads are narrow.

    Those of unfused attention are left to its own fix.
    """
    is_misaligned = _aligned_times(work, np.arange(len(work.code)))[1]
    is_misaligned[np.concatenate(_attention_products(work))] = False
    rows = work.rows_where(is_misaligned)
    if len(rows):
        place = work.main_kernels(rows)
        yield work.remedy("misaligned", place, rows, _aligned_times(work, rows)[0])


def _aligned_times(work: _WindowWork, rows: Ints) -> tuple[Ints, Flags]:
    """Return how long kernels would take with aligned operands, and which are misaligned."""
    alignments = [_ALIGNMENT.search(text) for text in work.names]
    shares = np.array([*(_MISALIGNED_SHARE[match[1]] if match else 1.0 for match in alignments), 1.0, 1.0])
    time, share = work.time[rows], shares[work.code[rows]]
    new_ns = np.maximum(np.rint(time * share), np.minimum(time, _LEAST_PRODUCT_NS)).astype(np.int64)
    return new_ns, share < 1


def _find_flash_attention_2(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find kernels of FlashAttention-2 on GPUs that have faster ones, which use Hopper's own instructions.

    It needs grids: attention of a few queries over a cache is memory-bound in any kernel.
    """
    kernels, devices = (work.timeline.profile.recorded(name) for name in ("kernels", "devices"))
    on_hopper = np.isin(work.device, devices["device"][devices["compute_capability"] == _FLASH_3_CAPABILITY])
    rows = work.rows_where(work.named(_FLASH_2.search) & on_hopper & (work.time >= _LEAST_ATTENTION_NS))
    has_grids = "grid_x" in kernels.columns
    rows = rows[integers(kernels["grid_x"])[work.position[rows]] > 1] if has_grids else rows[:0]
    if len(rows):
        heads = (_FLASH_HEAD.search(text) for text in work.names)
        shares = np.array([_FLASH_3_SHARES.get(head[1], _FLASH_3_SHARE) if head else _FLASH_3_SHARE for head in heads])
        new_ns = np.maximum(shares[work.code[rows]] * work.time[rows], _LEAST_ATTENTION_NS).astype(np.int64)
        yield work.remedy("flash_attention_2", work.main_kernels(rows), rows, new_ns)


def _find_recomputation(work: _WindowWork, steps: Ints) -> Iterator[KernelRemedy]:
    """Find kernels of the forward pass that run again within the backward pass: activation checkpointing.

    PyTorch runs the backward pass on its own thread. There, runs of kernels with a product equal those of the
    forward pass, with the same grids, only if they are recomputed.
    """
    rows = np.flatnonzero((work.code >= 0) & (work.thread >= 0))
    rows = rows[np.lexsort((work.launch_ns[rows], work.thread[rows], work.lane[rows]))]
    if len(rows) < _FEWEST * _RECOMPUTED_RUN:
        return
    # kernels are the first operations
    alike = names_and_grids(work.timeline.profile.table("kernels"))[work.position[rows]]
    backward_threads = np.unique(work.thread[rows[work.named(_BACKWARD.search)[rows]]])
    on_backward = np.isin(work.thread[rows], backward_threads)
    is_product = work.named(is_named_product)[rows]
    process = operation_column(work.timeline, "process")[work.position[rows]]
    step = np.searchsorted(steps, work.launch_ns[rows], side="right")
    # runs of this many kernels on one thread, and whether there is a product in them
    first = np.arange(len(rows) - _RECOMPUTED_RUN + 1)
    last = first + _RECOMPUTED_RUN - 1
    has_product = np.diff(np.append(0, np.cumsum(is_product))[np.stack([first, last + 1])], axis=0)[0] > 0
    is_run = (work.thread[rows[first]] == work.thread[rows[last]]) & (step[first] == step[last])
    is_run &= work.lane[rows[first]] == work.lane[rows[last]]
    run = np.zeros(len(first), dtype=np.uint64)
    for offset in range(_RECOMPUTED_RUN):
        run = (run ^ alike[first + offset].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        run ^= run >> np.uint64(29)
    # the forward pass of the same step of the same process
    table = pd.DataFrame({"run": run, "step": step[first], "process": process[first]})
    keys = table.groupby(["run", "step", "process"], sort=False).ngroup().to_numpy()
    again = is_run & on_backward[first] & np.isin(keys, keys[is_run & ~on_backward[first]])
    edges = np.bincount(first[again], minlength=len(rows) + 1) - np.bincount(last[again] + 1, minlength=len(rows) + 1)
    is_repeated = np.cumsum(edges)[:-1] > 0
    # kernels without a product may be equal by chance, unless they are next to one
    stretch = np.cumsum(np.diff(is_repeated, prepend=False) != 0)
    with_product = np.unique(stretch[first[again & has_product]])
    repeated = rows[is_repeated & np.isin(stretch, with_product)]
    if len(repeated) and work.is_spread(repeated):
        yield work.remedy("recomputation", work.main_kernels(repeated), repeated, np.zeros_like(repeated))


def _find_ncu_fixes(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find the fixes that ncu's replays suggest for their kernels, except for products known by name."""
    table, row_of_kernel = _ncu_rows(work.timeline)
    is_kernel = work.code >= 0
    row_of = np.full(len(work.code), -1, dtype=np.int64)
    row_of[is_kernel] = row_of_kernel[work.position[is_kernel]]
    is_product = work.of_kinds("product", "convolution")
    for number in np.flatnonzero(~table["rule"].isin(["", "at_roof"])):
        fix = table.iloc[number]
        rows = work.rows_where((row_of == number) & ~(is_product & (fix["rule"] == "tensor_cores")))
        if not len(rows):
            continue
        name = label_of(fix["name"], _NAME_LENGTH)
        new_ns = np.ceil(work.time[rows] * (1 - fix["gain_pct"] / 100)).astype(np.int64)
        yield work.remedy(fix["rule"], f"{name} ({fix['reason']})", rows, new_ns)


def _find_chains_to_fuse(work: _WindowWork, steps: Ints) -> Iterator[KernelRemedy]:
    """Find repeated chains of elementwise kernels on a stream.

    Chains of an optimizer go from tensor to tensor: one kernel can replace them all. A compiler fuses all others, so
    they are one remedy.
    """
    texts = np.array([*map(operation, work.names), "copy"], dtype=object)
    chains, loops = list[_RepeatedChain](), dict[str, list[_RepeatedChain]]()
    for rows, chain in _repeated_sequences(_find_chains(work, steps), work):
        # compiled kernels are already fused
        if not work.of_kinds("elementwise")[rows].any():
            continue
        words = [str(word) for word in texts[np.maximum(work.code[rows[chain == 0]], -1)]]
        is_adam, is_loop = set(words) >= _ADAM_OPERATIONS, _is_loop(work, steps, rows.reshape(-1, len(words)))
        if is_adam or is_loop:
            loops.setdefault("fused_optimizer" if is_adam else "fusion", []).append(_RepeatedChain(words, rows, chain))
        elif np.median(work.time[rows]) >= _MOVES_NS:
            chains.append(_RepeatedChain(words, rows, chain))
    for rule, of_rule in loops.items():
        rows = np.concatenate([repeated.rows for repeated in of_rule])
        new = _one_kernel_per_step(work, steps, rows, _FUSED_OPTIMIZER if rule == "fused_optimizer" else _FUSED_UPDATE)
        operations = listed(of_rule[0].words, _WORDS)
        place = f"Adam ({operations})" if rule == "fused_optimizer" else f"{operations} on one tensor after the other"
        yield work.remedy(rule, place, rows, new)
    if chains:
        rows = np.concatenate([repeated.rows for repeated in chains])
        fused = [_fused_times(work, repeated.rows, repeated.chain) for repeated in chains]
        others = len(chains) - 1
        place = listed(chains[0].words, _WORDS) + (f", and {counted(others, 'other chain')}" if others else "")
        yield replace(work.remedy("fusion", place, rows, np.concatenate(fused)), compiles_model=True)


def _one_kernel_per_step(work: _WindowWork, steps: Ints, rows: Ints, share: float) -> Ints:
    """Return the times of kernels that update tensors one by one if one kernel per step updates all of them.

    It moves this share of the bytes, and has the time of an empty kernel only once.
    """
    order = np.argsort(work.launch_ns[rows], kind="stable")
    ordered = rows[order]
    # without steps, consecutive launches are one pass over the tensors
    step = np.searchsorted(steps, work.launch_ns[ordered], side="right") if len(steps) else np.zeros_like(ordered)
    begins = np.append(True, (step[1:] != step[:-1]) | (work.lane[ordered[1:]] != work.lane[ordered[:-1]]))
    if not len(steps):
        begins[1:] |= np.diff(ordered) > 1
    first = np.flatnonzero(begins)
    moving_ns = np.maximum(work.time[ordered] - _EMPTY_NS, 0)
    new_ns = np.zeros_like(ordered)
    new_ns[first] = np.rint(share * np.add.reduceat(moving_ns, first)).astype(np.int64) + _EMPTY_NS
    result = np.empty_like(new_ns)
    result[order] = new_ns
    return result


def _find_attention(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find unfused attention: a softmax or its gradient between two products, with only elementwise kernels around it.

    A fused kernel keeps the scores on the chip, so the kernels between the products take no time. The products keep
    their times, unless they are misaligned, although they write and read the scores too: the gain is a lower bound.
    """
    low, high = _attention_products(work)
    if not len(low):
        return
    count = high - low - 1
    inner = np.repeat(low + 1, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    products = distinct(np.append(low, high))
    new_ns, is_misaligned = _aligned_times(work, products)
    rows = np.append(inner, products[is_misaligned])
    times = np.append(np.zeros_like(inner), new_ns[is_misaligned])
    example = (work.names[code] if code >= 0 else "" for code in work.code[inner[: count[0]]])
    words = ("softmax" if is_softmax(name) else operation(name) if name else "copy" for name in example)
    yield work.remedy("attention", listed(words, _WORDS), rows, times)


@memoize
def _attention_products(work: _WindowWork) -> tuple[Ints, Ints]:
    """Return the rows of the products before and after each softmax of unfused attention; none if there are few."""
    is_softmax_row, is_product = work.named(is_softmax), work.named(is_named_product)
    # layout copies, dropout and masks occur there too, and cuBLAS sets some bytes before a product
    is_between = work.of_kinds("elementwise", "compiled") | work.named(_SCORE_KERNEL.search) | (work.code < 0)
    is_between &= ~is_softmax_row
    rows, is_other = np.arange(len(work.code)), ~is_between
    # the nearest other rows on both sides, -1 and len(rows) for none
    before = np.append(-1, np.maximum.accumulate(np.where(is_other, rows, -1)))[:-1]
    after = np.append(np.minimum.accumulate(np.where(is_other, rows, len(rows))[::-1])[::-1], len(rows))[1:]
    low, high = before[is_softmax_row], after[is_softmax_row]
    is_enclosed = (low >= 0) & (high < len(rows))
    low, high = low[is_enclosed], high[is_enclosed]
    is_same = is_product[low] & is_product[high]
    for column in (work.lane, work.thread, work.path):
        is_same &= column[low] == column[high]
    low, high = low[is_same], high[is_same]
    return (low, high) if len(low) >= _FEWEST and work.is_spread(np.append(low, high)) else (low[:0], high[:0])


def _is_loop(work: _WindowWork, steps: Ints, chains: Ints) -> bool:
    """Whether repetitions of a chain (the rows of `chains`) are a loop over tensors, such as those of an optimizer.

    Such chains follow each other with different lengths, or many times in a step. Each updates tensors in memory, so a
    fused kernel must read and write more than the shortest of them. For tiny kernels, only their number matters.
    """
    if len(chains) < _FEWEST or work.time[chains].mean() < _TINY_NS:
        return False
    step = np.searchsorted(steps, work.launch_ns[chains[:, 0]], side="right")
    follows = (chains[1:, 0] - chains[:-1, -1] == 1) & (step[1:] == step[:-1])
    time = np.maximum(work.time[chains].sum(axis=1), 1)
    is_unequal = np.maximum(time[1:], time[:-1]) > _UNEQUAL * np.minimum(time[1:], time[:-1])
    if len(steps) > 1 and np.mean(follows) >= _LEAST_CONSECUTIVE:
        return True
    return bool(np.mean(follows & is_unequal) > _LEAST_UNEQUAL)


def _find_chains(work: _WindowWork, steps: Ints) -> _Chains:
    """Return runs of elementwise kernels, divided where a sequence starts again.

    No chain crosses a range of the program: its parts are more likely alternatives, or passes.
    """
    is_reduction, is_elementwise = work.of_kinds("reduction"), work.of_kinds("elementwise", "compiled")
    is_copy = work.code == -1
    step = np.searchsorted(steps, work.launch_ns, side="right")
    is_member = is_elementwise | is_reduction | is_copy
    is_broken = step[1:] != step[:-1]
    for column in (work.lane, work.thread, work.path):
        is_broken |= column[1:] != column[:-1]
    begins = is_member & np.append(True, is_broken | ~is_member[:-1])[: len(is_member)]
    run = np.cumsum(begins) - 1
    # reductions and copies only between elementwise kernels
    rows = np.flatnonzero(is_elementwise)
    if not len(rows):
        return _Chains(rows, rows, rows)
    low, high = np.full((2, int(run[-1]) + 1), -1, dtype=np.int64)
    high[run[rows]] = rows
    low[run[rows[::-1]]] = rows[::-1]
    row = np.arange(len(run))
    rows = np.flatnonzero(is_member & (row >= low[run]) & (row <= high[run]))
    first = np.flatnonzero(np.append(True, run[rows[1:]] != run[rows[:-1]]))
    first = _divide_runs(work.code[rows], first)
    return _Chains(rows, first, _sequence_numbers(work.code[rows], first))


def _sequence_numbers(code: Ints, first: Ints) -> Ints:
    """Return a number for each sequence of codes: a hash, equal for equal sequences."""
    lengths = np.diff(np.append(first, len(code)))
    place = np.arange(len(code)) - np.repeat(first, lengths)
    mixed = (code.astype(np.uint64) + np.uint64(3)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    sums = np.add.reduceat(mixed ^ (mixed >> np.uint64(32)), first)
    return np.asarray(pd.factorize(sums)[0], dtype=np.int64)


def _divide_runs(code: Ints, first: Ints) -> Ints:
    """Divide runs where a sequence of kernels repeats: `add mul add mul add mul` are three chains.

    Consecutive kernels of one name are chains of one: they more likely work on one tensor after the other. Each
    distinct run is examined once, and only those with the most kernels.
    """
    pattern, lengths = _sequence_numbers(code, first), np.diff(np.append(first, len(code)))
    totals = np.bincount(pattern, lengths)
    example = np.zeros(len(totals), dtype=np.int64)
    example[pattern[::-1]] = np.arange(len(pattern))[::-1]
    cuts = [first]
    for number in np.argsort(-totals, kind="stable")[:_MOST_RUNS]:
        begin, length = first[example[number]], lengths[example[number]]
        inner = _repetition_starts(code[begin : begin + length])
        if len(inner):
            cuts.append((first[pattern == number][:, None] + inner[None, :]).ravel())
    return distinct(np.concatenate(cuts))


def _repetition_starts(code: Ints) -> Ints:
    """Return where to divide a run: at each repetition of a sequence.

    Shorter sequences come first, and longer ones do not include their kernels.
    """
    is_taken = np.zeros(len(code), dtype=bool)
    cuts: list[Ints] = []
    for period in range(1, min(_LONGEST_PERIOD, len(code) // 2) + 1):
        repeats = _REPEATS.get(period, 2)
        is_free = ~is_taken[period:] & ~is_taken[:-period]
        is_same = np.concatenate(([False], (code[period:] == code[:-period]) & is_free, [False]))
        edges = np.flatnonzero(is_same[1:] != is_same[:-1])
        low, high = edges[::2], edges[1::2]
        is_enough = high - low >= (repeats - 1) * period
        low, high = low[is_enough], high[is_enough] + period
        # whole repetitions; the rest is a separate chain
        counts = (high - low) // period + 1
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        cuts.append(np.repeat(low, counts) + period * place)
        depth_change = np.bincount(low, minlength=len(code) + 1) - np.bincount(high, minlength=len(code) + 1)
        is_taken |= np.cumsum(depth_change)[:-1] > 0
        if is_taken.all():
            break
    inner = distinct(np.concatenate([_NO_OPERATIONS, *cuts]))
    return inner[(inner > 0) & (inner < len(code))]


def _repeated_sequences(chains: _Chains, work: _WindowWork) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of each repeated sequence, and the number of the chain of each row."""
    if not len(chains.first):
        return
    time = np.add.reduceat(work.time[chains.rows], chains.first)
    last = chains.rows[np.append(chains.first[1:], len(chains.rows)) - 1]
    begin, end = work.start[chains.rows[chains.first]], work.start[last] + work.time[last]
    columns = {"pattern": chains.pattern, "time": time, "begin": begin, "end": end, "length": chains.lengths}
    sequences = aggregate(
        pd.DataFrame(columns).groupby("pattern"),
        count=("time", "size"),
        time=("time", "sum"),
        low=("begin", "min"),
        high=("end", "max"),
        length=("length", "first"),
    )
    is_spread = sequences["high"] - sequences["low"] >= _LEAST_SPREAD * work.timeline.window.length_ns
    sequences = sequences[(sequences["count"] >= _FEWEST) & is_spread]
    for pattern, total in sequences.sort_values("time", ascending=False).head(_MOST)[["length", "count"]].iterrows():
        of_pattern, length = np.flatnonzero(chains.pattern == pattern), int(total["length"])
        rows = chains.rows[chains.first[of_pattern][:, None] + np.arange(length)[None, :]]
        # two kernels are only related if they alternate
        takes_turns = np.mean(rows[1:, 0] - rows[:-1, -1] == 1) > _LEAST_SPREAD
        if length >= _FEWEST_KERNELS or (length > 1 and takes_turns):
            yield rows.ravel(), np.repeat(np.arange(len(of_pattern)), length)


def _fused_times(work: _WindowWork, rows: Ints, chain: Ints) -> Ints:
    """Return the times of the kernels of chains if one kernel does the work of each chain.

    It reads and writes once, like the shortest kernel on all elements. If kernels convert types, the shortest may have
    smaller elements, so take the mean of the shortest and the longest. A gradient kernel reads results of the forward
    pass, so the fused kernel takes at least as long. Kernels that compute for longer than they read and write (powers
    in FP64) do so in it, too. Measured on an H200, then estimated: softmax (5 kernels, 681 µs)
    165 and 125 µs, normalization (10, 1140 µs) 124 and 125, GELU (9, 1376 µs) 126 and 125.
    """
    time = work.time[rows]
    first = np.flatnonzero(np.append(True, chain[1:] != chain[:-1]))
    is_elementwise = work.of_kinds("elementwise", "compiled")[rows]
    longest = np.maximum.reduceat(np.where(is_elementwise, time, 0), first)
    is_full_size = is_elementwise & (time >= _FULL_SIZE * longest[chain])
    shortest = np.minimum.reduceat(np.where(is_full_size, time, np.iinfo(np.int64).max), first)
    converts_types = work.named(converts)[rows[chain == 0]].any()
    fused_ns = (shortest + longest) // 2 if converts_types else shortest
    is_backward = work.named(lambda name: "Backward" in name)[rows] & is_elementwise
    fused_ns = np.maximum(fused_ns, np.maximum.reduceat(np.where(is_backward, time, 0), first))
    computes = is_full_size & work.named(lambda name: _COMPUTES.search(operation(name)))[rows]
    computes &= time >= _LONGER_THAN_MOVING * shortest[chain]
    fused_ns = np.maximum(fused_ns, np.add.reduceat(np.where(computes, time, 0), first))
    return _distribute(time, chain, fused_ns / np.maximum(np.add.reduceat(time, first), 1))


# with one operand: reading two of them and writing takes half as long again as reading and writing one
_COMPUTES: Final = re.compile("pow|exp|log|sin|cos|tan|erf|gamma|sigmoid|gelu|silu|mish", re.IGNORECASE)
_LONGER_THAN_MOVING: Final = 1.4


def _distribute(time: Ints, chain: Ints, share: "float | np.ndarray[Any, np.dtype[np.float64]]") -> Ints:
    """Distribute a share of the time of each chain over its kernels, the longest first; none becomes longer."""
    order = np.lexsort((-time, chain))
    longest_first = time[order]
    before = np.cumsum(longest_first) - longest_first
    first = np.flatnonzero(np.append(True, chain[1:] != chain[:-1]))
    total = np.rint(share * np.add.reduceat(time, first)).astype(np.int64)
    before -= np.repeat(before[first], np.diff(np.append(first, len(time))))
    new_ns = np.empty_like(time)
    new_ns[order] = np.clip(total[chain] - before, 0, longest_first)
    return new_ns


def _find_small_grids(work: _WindowWork) -> Iterator[KernelRemedy]:
    """Find long kernels that run alone and have fewer blocks than half of the SMs.

    It needs grids, which are not read from captures of more than 60 MB.
    """
    kernels = work.timeline.profile.table("kernels")
    if not set(_GRID) <= set(kernels.columns):
        return
    is_kernel = work.code >= 0
    rows = np.flatnonzero(is_kernel)
    position = work.position[rows]
    blocks = np.prod([kernels[name].to_numpy(dtype=np.int64)[position] for name in _GRID], axis=0)
    share = blocks / np.maximum(_sm_counts(work.timeline, work.device[rows]), 1)
    is_waiting = work.named(lambda name: communicates(name) or "persist" in name.lower())[rows]
    is_small = (share > 0) & (share < _FILLED_SHARE) & (work.time[rows] >= _LONG_NS) & ~is_waiting
    # for replayed kernels, ncu has better data
    is_small &= _ncu_rows(work.timeline)[1][position] < 0
    is_small[is_small] = _runs_alone(work.timeline, position[is_small])
    groups = pd.DataFrame({"code": work.code[rows], "blocks": blocks, "time": work.time[rows]})[is_small]
    totals = groups.groupby(["code", "blocks"])["time"].sum().sort_values(ascending=False)
    least_total_ns = _DOMINATES * work.time[is_kernel].sum()
    for code, number in totals[totals >= least_total_ns].index:
        is_group = is_small & (work.code[rows] == code) & (blocks == number)
        of_group = rows[is_group]
        # each SM takes its share of the work; a kernel takes some microseconds in any case
        least_ns = np.minimum(work.time[of_group], _LEAST_PRODUCT_NS)
        new_ns = np.maximum(np.ceil(work.time[of_group] * share[is_group]).astype(np.int64), least_ns)
        name = label_of(work.names[code], _NAME_LENGTH)
        sms = round(float(number / share[is_group][0]))
        grid = f"{counted(number, 'block')} on {sms:,} SMs"
        yield work.remedy("small_grid", f"{name} ({grid})", of_group, new_ns)


def _sm_counts(timeline: Timeline, device: Ints) -> Ints:
    """Return the number of SMs of the GPU of each kernel; 0 if unknown."""
    devices = timeline.profile.recorded("devices").drop_duplicates("device")
    count_of = dict(zip(devices["device"].tolist(), integers(devices["multiprocessors"]).tolist(), strict=True))
    numbers, distinct = pd.factorize(device)
    return np.array([max(count_of.get(int(number), 0), 0) for number in distinct], dtype=np.int64)[numbers]


def _runs_alone(timeline: Timeline, position: Ints) -> Flags:
    """Return which kernels run while no other kernel runs on their GPU."""
    operations = timeline.operations
    is_kernel = operations.of("kernels")
    is_alone = np.zeros(len(position), dtype=bool)
    operations_of = by_device(timeline) if len(position) else {}
    for device, rows in positions(operations.device[position]).items():
        kernel_rows = operations_of[device][is_kernel[operations_of[device]]]
        begins, ends = np.sort(operations.start[kernel_rows]), np.sort(operations.end[kernel_rows])
        start, end = operations.start[position[rows]], operations.end[position[rows]]
        # no other kernel runs at its start, and none starts before its end
        before = depth(begins, ends, start) <= 1
        during = np.searchsorted(begins, end, side="left") - np.searchsorted(begins, start, side="left") <= 1
        is_alone[rows] = before & during
    return is_alone
