"""How close operators of PyTorch come to the peaks of the GPU: their work, from shapes, over the time of their kernels.

Work on the GPU belongs to the innermost operator around the call that launched it, so that `aten::linear`, which calls
`aten::addmm`, does not count the same product again. Work, peaks and percentages are per call.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import gpu_peaks
from nightsight.analyze.operator_work.arguments import Unknown, loaded
from nightsight.analyze.operator_work.formulas import Work, work_of
from nightsight.analyze.replay.join import stands_for
from nightsight.analyze.replay.roofline import measured_work
from nightsight.events.kernel_kinds import arithmetic, element_type
from nightsight.events.kernel_names import communicates
from nightsight.events.operators import launching_operators
from nightsight.events.peaks import LIMITED_PCT, arithmetic_tflop_per_s
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Ints
from nightsight.results.ncu import NCU_ROOFLINE
from nightsight.results.operator_roofline import OPERATOR_ROOFLINE, OPERATOR_ROOFS
from nightsight.system.parallel import memoize
from nightsight.units import format_value

Frame = pd.DataFrame

_CALL: Final = ["name", "shapes", "types", "inputs", "strides"]
_SHOWN: Final = ["device", "gpu", "name", "shapes", "types", "kind", "is_product", "work_flop", "data_bytes"]
_MEASURED: Final = ["measured_ns", "measured_flop", "measured_bytes"]
# calls with other arguments do the same work if their kernels take at most this many times as long
_ALIKE: Final = 1.25
_WITHIN: Final = "Device-to-Device"
_TENSOR: Final = {
    "c10::Half": "tensor FP16",
    "c10::BFloat16": "tensor BF16",
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2"), "tensor FP8"),
    "signed char": "tensor INT8",
}
# a longer list of tensors is told by its sums
_FEW: Final = 3
_NAMED: Final = 5
_LEAST_PCT: Final = 0.1


class _Launched(NamedTuple):
    """Work on GPUs that operators launched in the window: kernels, memsets and copies within a device.

    `operation`: its position in `Timeline.operations`; `operator`: row in `cpu_ops`; total_ns: the time of all such
    work, also of what no operator launched; unowned_ns: of that.
    """

    operation: Ints
    operator: Ints
    total_ns: int
    unowned_ns: int


@memoize
def operator_roofline(timeline: Timeline) -> Table:
    """Return one row per operator, shapes, types and work of a call, on each GPU, those that took longest first."""
    launched = _launched(timeline)
    groups = _groups(timeline, launched)
    if not (groups["shapes"] != "").any():
        return Table(_empty(), (_NOT_RECORDED,) if len(groups) else ())
    groups = _with_work(groups)
    sums = {name: groups[name] for name in ("calls", "total_ns", *_MEASURED) if name in groups}
    # a sum that lacks a part is not known
    parts = groups[_SHOWN].assign(**sums).groupby(_SHOWN, dropna=False, sort=False)
    table = pd.DataFrame(
        {name: parts[name].sum(min_count=1).where(parts[name].count() == parts.size()) for name in sums}
    )
    table = table.astype({"calls": "int64", "total_ns": "int64"})
    table = _rates(timeline, table.reset_index())
    table = table.assign(time_pct=100.0 * table["total_ns"] / max(launched.total_ns, 1))
    order = ["total_ns", "name", "shapes", "work_flop"]
    table = table.sort_values(order, ascending=[False, True, True, False], ignore_index=True)
    columns = [name for name in OPERATOR_ROOFLINE.column_names if name in table]
    return Table(table[columns], tuple(_notes(table, launched)))


def operator_roofs(timeline: Timeline) -> Table:
    """Return one row per device and peak that an operator is compared with."""
    used = operator_roofline(timeline).frame[["device", "kind"]].drop_duplicates()
    devices = _devices(timeline)
    rows = [
        {"device": device, "gpu": gpu, "roof": "DRAM", "bytes_per_s": memory, "flop_per_s": None}
        for device, gpu, memory in devices.itertuples(index=False)
        if device in set(used["device"]) and memory > 0
    ]
    names = dict(zip(devices["device"], devices["gpu"], strict=True))
    for device, kind in sorted(used.itertuples(index=False)):
        gpu = names.get(device, "")
        if peak := arithmetic_tflop_per_s(gpu, kind):
            rows.append({"device": device, "gpu": gpu, "roof": kind, "bytes_per_s": None, "flop_per_s": peak * 1e12})
    return Table(Frame(rows, columns=OPERATOR_ROOFS.column_names))


def _empty() -> Frame:
    return Frame({column.name: [] for column in OPERATOR_ROOFLINE.columns if not column.is_optional})


# -- which work is whose -----------------------------------------------------------------------------------------------


def _launched(timeline: Timeline) -> _Launched:
    operations, window = timeline.operations, timeline.window
    is_link = _crosses_link(timeline)
    inside = (operations.start >= window.start_ns) & (operations.start < window.end_ns)
    chosen = inside & ~is_link & ~operations.of("graph_launches")
    owner = launching_operators(timeline)
    time = operations.end - operations.start
    # what crosses a link, or waits for peers, has other peaks, and so has the operator that does it
    foreign = is_link | _is_communication(timeline)
    left_out = np.unique(owner[foreign & (owner >= 0)])
    mine = chosen & (owner >= 0) & ~np.isin(owner, left_out) & ~operations.in_graph
    unowned = chosen & ~foreign & (owner < 0)
    rows = np.flatnonzero(mine)
    return _Launched(rows, owner[rows], int(time[chosen].sum()), int(time[unowned].sum()))


def _crosses_link(timeline: Timeline) -> Flags:
    """Return which operations are copies that leave a device."""
    flags = np.zeros(len(timeline.operations.kind), dtype=bool)
    if "memory_ops" in timeline.profile.tables:
        kinds = timeline.profile.table("memory_ops")["operation"].cat
        flags[timeline.operations.of("memory_ops")] = ~np.isin(
            kinds.categories.to_numpy(dtype=object), [_WITHIN, "memset"]
        )[kinds.codes]
    return flags


def _is_communication(timeline: Timeline) -> Flags:
    flags = np.zeros(len(timeline.operations.kind), dtype=bool)
    names = timeline.profile.table("kernels")["name"].cat
    waits = np.array([communicates(name) for name in names.categories], dtype=bool)
    flags[timeline.operations.of("kernels")] = waits[names.codes]
    return flags


def _groups(timeline: Timeline, launched: _Launched) -> Frame:
    """Return one row per device and call with the same arguments: calls, total_ns, `kernel`, the longest one's name.

    Where kernels were replayed, also what ncu measured of all calls; missing if a part of it was not replayed.
    """
    operations, rows = timeline.operations, launched.operation
    calls = timeline.profile.table("cpu_ops")[_CALL].iloc[launched.operator].reset_index(drop=True)
    is_kernel = operations.of("kernels")[rows]
    names = timeline.profile.table("kernels")["name"]
    work = calls.assign(
        device=operations.device[rows],
        operator=launched.operator,
        total_ns=operations.end[rows] - operations.start[rows],
        # kernels come first among the operations, so a position is a row
        code=np.where(is_kernel, np.append(names.cat.codes.to_numpy(), -1)[np.where(is_kernel, rows, -1)], -1),
    )
    keys = ["device", *_CALL]
    work = work.assign(group=work.groupby(keys, observed=True, sort=False).ngroup(), **_replayed(timeline, rows))
    if "launch" in work:
        work[_MEASURED] = work[_MEASURED].where(_is_of_one(work))
    by_group = work.groupby("group", sort=True)
    groups = by_group[keys].first().astype(dict.fromkeys(_CALL, "str"))
    groups = groups.assign(calls=by_group["operator"].nunique(), total_ns=by_group["total_ns"].sum())
    longest = work[work["code"] >= 0].groupby(["group", "code"])["total_ns"].sum().reset_index()
    longest = longest.sort_values("total_ns", kind="stable").drop_duplicates("group", keep="last").set_index("group")
    kernel = names.cat.categories.to_numpy(dtype=object)[longest["code"].to_numpy(dtype=np.int64)]
    told = pd.Series(kernel, longest.index, dtype="str").reindex(groups.index).fillna("")
    for name in _MEASURED:
        if name in work:
            # a sum that lacks a part is not known; and ncu replays kernels: of a memset alone it tells nothing
            known = (by_group[name].count() == by_group.size()) & (told != "")
            groups = groups.assign(**{name: by_group[name].sum().where(known)})
    gpus = _gpus(timeline)
    named = pd.Series([gpus.get(device, "") for device in groups["device"]], groups.index, dtype="str")
    return groups.assign(kernel=told, gpu=named).reset_index(drop=True)


def _replayed(timeline: Timeline, rows: Ints) -> dict[str, Any]:
    """Return what ncu measured of each operation; memsets need no replay."""
    if not set(NCU_ROOFLINE.needs) <= timeline.profile.tables.keys():
        return {}
    is_kernel = timeline.operations.of("kernels")[rows]
    launch = np.append(stands_for(timeline), -1)[np.where(is_kernel, rows, -1)]
    if not (launch >= 0).any():
        return {}
    found = measured_work(timeline).reindex(launch).reset_index(drop=True)
    is_set = timeline.is_set[rows]
    return {"launch": launch, **{name: found[name].where(~is_set, 0.0) for name in _MEASURED}}


def _is_of_one(work: Frame) -> "pd.Series[bool]":
    """Whether what was replayed is the work of this call: kernels of one name and grid may do more or less of it.

    A persistent kernel has the same grid whatever the size. Which call was replayed nobody tells, but their times do
    if they differ.
    """
    time = work.groupby(["launch", "group"])["total_ns"].mean().groupby("launch")
    alike = time.max() <= _ALIKE * time.min()
    return (work["launch"] < 0) | work["launch"].map(alike).fillna(value=True).astype("bool")


# -- what it comes to --------------------------------------------------------------------------------------------------


def _with_work(groups: Frame) -> Frame:
    kernels = groups["kernel"].tolist()
    found = [
        work_of(name, *texts, element=element_type(kernel)) or _NOTHING
        for kernel, name, *texts in zip(kernels, *(groups[column] for column in _CALL), strict=True)
    ]
    kinds = [_kind(work, kernel) for work, kernel in zip(found, kernels, strict=True)]
    return groups.assign(
        shapes=pd.Series([_readable(shapes) for shapes in groups["shapes"]], groups.index, dtype="str"),
        types=pd.Series([_readable_types(types) for types in groups["types"]], groups.index, dtype="str"),
        kind=pd.Series(kinds, groups.index, dtype="str"),
        is_product=[work.is_product for work in found],
        # None becomes NaN
        work_flop=np.array([work.flop for work in found], dtype=np.float64),
        data_bytes=np.array([work.data_bytes for work in found], dtype=np.float64),
    )


_NOTHING: Final = Work(None, None, is_product=False, type="")


def _kind(work: Work, kernel: str) -> str:
    """Return the arithmetic that an operator does; "" if it is not known.

    With inputs in single precision, only the kernel tells whether tensor cores multiply them.
    """
    if not work.is_product:
        return ""
    told = arithmetic(kernel)
    if work.type == "double":
        return "FP64"
    return told if told == "FP32" or work.type in ("float", "") else _TENSOR.get(work.type, "")


def _readable(shapes: str) -> str:
    """Write shapes as `8192×4096, 4096×4096`, without arguments that have none; a list of tensors by its size."""
    try:
        given = loaded(shapes)
    except Unknown:
        return ""
    texts = [_tensors(item) if _is_list(item) else "×".join(map(str, item)) for item in given if item]
    return ", ".join(texts)


def _is_list(item: object) -> bool:
    return isinstance(item, list) and any(isinstance(part, list) for part in item)


def _tensors(shapes: list[Any]) -> str:
    if len(shapes) <= _FEW:
        return f"[{', '.join('×'.join(map(str, shape)) or 'scalar' for shape in shapes)}]"
    return f"[{len(shapes):,} tensors of {sum(int(np.prod(shape, dtype=np.float64)) for shape in shapes):,}]"


def _readable_types(types: str) -> str:
    try:
        given = [kind for kind in loaded(types) if isinstance(kind, str)]
    except Unknown:
        return ""
    words = [kind.removeprefix("c10::") for kind in given if kind not in ("", "Scalar", "ScalarList", "TensorList")]
    return ", ".join(dict.fromkeys(words))


def _gpus(timeline: Timeline) -> dict[int, str]:
    devices = _devices(timeline)
    return dict(zip(devices["device"], devices["gpu"], strict=True))


def _devices(timeline: Timeline) -> Frame:
    """Return device, gpu (its name) and memory_bytes_per_s of each device."""
    if "devices" not in timeline.profile.tables:
        return Frame(columns=["device", "gpu", "memory_bytes_per_s"])
    return gpu_peaks(timeline).frame.rename(columns={"name": "gpu"})[["device", "gpu", "memory_bytes_per_s"]]


def _rates(timeline: Timeline, table: Frame) -> Frame:
    """Add rates, their shares of the peaks, and what follows from these."""
    devices = _devices(timeline).drop_duplicates("device").set_index("device")
    memory = table["device"].map(devices["memory_bytes_per_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    peaks = [arithmetic_tflop_per_s(gpu, kind) for gpu, kind in zip(table["gpu"], table["kind"], strict=True)]
    compute = np.array(peaks, dtype=np.float64) * 1e12
    avg = table["total_ns"] / table["calls"]
    seconds = avg.where(avg > 0) / 1e9
    flop, moved = table["work_flop"], table["data_bytes"]
    table = table.assign(
        avg_ns=avg,
        work_flop_per_s=flop / seconds,
        data_bytes_per_s=moved / seconds,
        work_flop_per_byte=flop / moved.where(moved > 0),
        shortest_ns=1e9 * pd.concat([(flop / compute).where(flop > 0), moved / memory], axis=1).max(axis=1),
    )
    table = table.assign(
        compute_pct=100.0 * table["work_flop_per_s"] / compute,
        memory_pct=100.0 * table["data_bytes_per_s"] / memory,
    )
    table = table.assign(bound=_bound(table))
    return _compared(table) if "measured_ns" in table else table


def _bound(table: Frame) -> "pd.Series[str]":
    shares = table[["compute_pct", "memory_pct"]].to_numpy(dtype=np.float64)
    highest = np.nan_to_num(shares, nan=-1.0).max(axis=1)
    words = np.where(np.nan_to_num(shares[:, 0], nan=-1.0) >= highest, "compute", "memory")
    # only what multiplies matrices can be limited by arithmetic
    is_unknown = np.isnan(shares[:, 1]) | (np.isnan(shares[:, 0]) & table["is_product"].to_numpy())
    others = np.where(is_unknown, "", "latency")
    return pd.Series(np.where(highest >= LIMITED_PCT, words, others), table.index, dtype="str")


def _compared(table: Frame) -> Frame:
    """Bring what ncu measured to one call, and say by how much it differs."""
    each = {name: table[name] / table["calls"] for name in _MEASURED}
    seconds = each["measured_ns"].where(each["measured_ns"] > 0) / 1e9
    return table.assign(
        **each,
        flop_difference_pct=100.0 * (each["measured_flop"] / table["work_flop"].where(table["work_flop"] > 0) - 1),
        bytes_difference_pct=100.0 * (each["measured_bytes"] / table["data_bytes"].where(table["data_bytes"] > 0) - 1),
        measured_flop_per_s=each["measured_flop"] / seconds,
        measured_bytes_per_s=each["measured_bytes"] / seconds,
    )


# -- notes -------------------------------------------------------------------------------------------------------------

_NOT_RECORDED: Final = (
    "Operators were recorded without shapes: torch.profiler.profile(record_shapes=True), "
    "or nsys profile --pytorch=autograd-shapes-nvtx."
)


def _notes(table: Frame, launched: _Launched) -> Iterator[str]:
    unknown = table[table["work_flop"].isna() & table["data_bytes"].isna()]
    shares = unknown.groupby("name")["time_pct"].sum().sort_values(ascending=False, kind="stable")
    shares = shares[shares >= _LEAST_PCT]
    if len(shares):
        named = ", ".join(f"{name} {format_value(share, 'time_pct')}" for name, share in shares.head(_NAMED).items())
        more = f" and {len(shares) - _NAMED} more" if len(shares) > _NAMED else ""
        yield f"The work of these operators is not known: {named}{more}. They are listed without figures."
    outside = 100.0 * launched.unowned_ns / max(launched.total_ns, 1)
    if outside >= _LEAST_PCT:
        yield f"{format_value(outside, 'time_pct')} of the time is of work that no operator launched."
    if (table["memory_pct"] > 100).any():
        yield (
            "More than 100 % of the memory's peak: the data came from the L2 cache, or an input repeats its values, so "
            "that less is read than its shape says (strides were not recorded)."
        )
    if (table["gpu"] == "").any() or table[["compute_pct", "memory_pct"]].isna().all().all():
        yield "The peaks of this GPU are not known, so there are no percentages."
    if "measured_ns" in table:
        yield (
            "Measured by ncu, with caches emptied before each kernel. Fewer bytes than computed: what was written was "
            "still in L2 when the kernel ended. More bytes: data was read several times, or "
            "went to a workspace. More operations: padding or recomputation."
        )


ANALYSES: Final = (
    Analysis(OPERATOR_ROOFLINE, operator_roofline),
    Analysis(OPERATOR_ROOFS, operator_roofs),
)
