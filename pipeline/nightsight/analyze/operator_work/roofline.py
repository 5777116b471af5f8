"""Compare PyTorch operators with the peaks of the GPU: their work, from shapes, divided by the time of their kernels.

Work on the GPU belongs to the innermost operator around its launch, so `aten::linear`, which calls `aten::addmm`, does
not count the same product again. Work, peaks and percentages are per call.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import gpu_peaks
from nightsight.analyze.operator_work.arguments import Unknown, parse_list
from nightsight.analyze.operator_work.formulas import OperatorWork, operator_work
from nightsight.analyze.operator_work.fused import work_of_fused
from nightsight.analyze.replay.join import replay_of_kernels
from nightsight.analyze.replay.roofline import measured_work
from nightsight.events.graph_nodes import joined_origins, node_origins
from nightsight.events.kernel_kinds import arithmetic, element_type
from nightsight.events.kernel_names import communicates
from nightsight.events.operators import all_operators, launching_operators
from nightsight.events.peaks import LIMITED_PCT, arithmetic_tflop_per_s
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Ints
from nightsight.results.ncu import NCU_ROOFLINE
from nightsight.results.operator_roofline import OPERATOR_ROOFLINE, OPERATOR_ROOFS
from nightsight.system.parallel import memoize
from nightsight.tables import Frame, are_named
from nightsight.texts import some_of
from nightsight.units import format_value

_CALL: Final = ["name", "shapes", "types", "inputs", "strides"]
_SHOWN: Final = ["device", "gpu", "name", "shapes", "types", "kind", "is_product", "work_flop", "data_bytes"]
_MEASURED: Final = ["measured_ns", "measured_flop", "measured_bytes"]
# calls with other arguments do the same work if their kernels take at most this many times longer
_MOST_UNEQUAL: Final = 1.25
_WITHIN: Final = "Device-to-Device"
_TENSOR: Final = {
    "c10::Half": "tensor FP16",
    "c10::BFloat16": "tensor BF16",
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2"), "tensor FP8"),
    "signed char": "tensor INT8",
}
# longer lists of tensors are summarized
_MOST_TENSORS: Final = 3
_MOST_NAMED: Final = 5
_LEAST_PCT: Final = 0.1


class _OwnedOperations(NamedTuple):
    """Operations in the window that operators launched: kernels, memsets and copies within a device.

    `operation`: a position in `Timeline.operations`. `operator`: a row in `all_operators`. `execution`: a number for
    each call of an operator, and for each replay of a captured one. total_ns: the time of all such operations, with or
    without an operator. unowned_ns: the time of those without one.
    """

    operation: Ints
    operator: Ints
    execution: Ints
    total_ns: int
    unowned_ns: int


@memoize
def operator_roofline(timeline: Timeline) -> Table:
    """Return one row per operator, shapes, types, work of a call, and GPU, the longest time first."""
    launched = _owned_operations(timeline)
    groups = _group_calls(timeline, launched)
    if not (groups["shapes"] != "").any():
        return Table(_empty(), (_NOT_RECORDED,) if len(groups) else ())
    groups = _add_work(groups, work_of_fused(timeline)["data_bytes"])
    sums = {name: groups[name] for name in ("calls", "total_ns", *_MEASURED) if name in groups}
    # a sum with a missing part is unknown
    parts = groups[_SHOWN].assign(**sums).groupby(_SHOWN, dropna=False, sort=False)
    table = pd.DataFrame(
        {name: parts[name].sum(min_count=1).where(parts[name].count() == parts.size()) for name in sums}
    )
    table = table.astype({"calls": "int64", "total_ns": "int64"})
    table = _add_rates(timeline, table.reset_index())
    table = table.assign(time_pct=100.0 * table["total_ns"] / max(launched.total_ns, 1))
    order = ["total_ns", "name", "shapes", "work_flop"]
    table = table.sort_values(order, ascending=[False, True, True, False], ignore_index=True)
    columns = [name for name in OPERATOR_ROOFLINE.column_names if name in table]
    return Table(table[columns], tuple(_table_notes(table, launched)))


def operator_roofs(timeline: Timeline) -> Table:
    """Return one row per device and peak that operators are compared with."""
    used = operator_roofline(timeline).frame[["device", "kind"]].drop_duplicates()
    devices = _device_bandwidths(timeline)
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


# -- operations of operators -------------------------------------------------------------------------------------------


def _owned_operations(timeline: Timeline) -> _OwnedOperations:
    operations = timeline.operations
    is_link = _crosses_link(timeline)
    is_counted = timeline.window.contains(operations.start) & ~is_link & ~operations.of("graph_launches")
    owner = launching_operators(timeline)
    time = operations.end - operations.start
    # operators with copies across a link, or with communication, have other peaks
    is_foreign = is_link | _is_communication(timeline)
    left_out = np.unique(owner[is_foreign & (owner >= 0)])
    is_captured = (node_origins(timeline.profile).time >= 0) | (joined_origins(timeline.profile).time >= 0)
    is_owned = is_counted & (owner >= 0) & ~np.isin(owner, left_out) & (is_captured | ~operations.in_graph)
    is_unowned = is_counted & ~is_foreign & (owner < 0)
    rows = np.flatnonzero(is_owned)
    replay = np.where(is_captured, operations.call, -1)[rows]
    execution = pd.factorize(owner[rows] * (replay.max(initial=0) + 2) + replay)[0]
    return _OwnedOperations(rows, owner[rows], execution, int(time[is_counted].sum()), int(time[is_unowned].sum()))


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
    flags[timeline.operations.of("kernels")] = are_named(timeline.profile.table("kernels")["name"], communicates)
    return flags


def _group_calls(timeline: Timeline, owned: _OwnedOperations) -> Frame:
    """Return one row per device and set of calls with equal arguments: calls, total_ns, and the longest `kernel`.

    If kernels were replayed, add the measurements of ncu for all calls; missing if a part was not replayed.
    """
    operations, rows = timeline.operations, owned.operation
    calls = all_operators(timeline.profile)[_CALL].iloc[owned.operator].reset_index(drop=True)
    is_kernel = operations.of("kernels")[rows]
    names = timeline.profile.table("kernels")["name"]
    work = calls.assign(
        device=operations.device[rows],
        execution=owned.execution,
        total_ns=operations.end[rows] - operations.start[rows],
        # kernels come first among the operations, so a position is a row
        code=np.where(is_kernel, np.append(names.cat.codes.to_numpy(), -1)[np.where(is_kernel, rows, -1)], -1),
    )
    keys = ["device", *_CALL]
    work = work.assign(group=work.groupby(keys, observed=True, sort=False).ngroup(), **_ncu_columns(timeline, rows))
    if "launch" in work:
        work[_MEASURED] = work[_MEASURED].where(_represents_one_call(work))
    by_group = work.groupby("group", sort=True)
    groups = by_group[keys].first().astype(dict.fromkeys(_CALL, "str"))
    groups = groups.assign(calls=by_group["execution"].nunique(), total_ns=by_group["total_ns"].sum())
    longest = work[work["code"] >= 0].groupby(["group", "code"])["total_ns"].sum().reset_index()
    longest = longest.sort_values("total_ns", kind="stable").drop_duplicates("group", keep="last").set_index("group")
    kernel = names.cat.categories.to_numpy(dtype=object)[longest["code"].to_numpy(dtype=np.int64)]
    kernel_of_group = pd.Series(kernel, longest.index, dtype="str").reindex(groups.index).fillna("")
    for name in _MEASURED:
        if name in work:
            # a sum with a missing part is unknown, and ncu replays no memsets
            is_known = (by_group[name].count() == by_group.size()) & (kernel_of_group != "")
            groups = groups.assign(**{name: by_group[name].sum().where(is_known)})
    gpus = _gpus(timeline)
    gpu = pd.Series([gpus.get(device, "") for device in groups["device"]], groups.index, dtype="str")
    return groups.assign(kernel=kernel_of_group, gpu=gpu).reset_index(drop=True)


def _ncu_columns(timeline: Timeline, rows: Ints) -> dict[str, Any]:
    """Return the measurements of ncu for each operation; memsets need none."""
    if not set(NCU_ROOFLINE.needs) <= timeline.profile.tables.keys():
        return {}
    is_kernel = timeline.operations.of("kernels")[rows]
    launch = np.append(replay_of_kernels(timeline), -1)[np.where(is_kernel, rows, -1)]
    if not (launch >= 0).any():
        return {}
    measured = measured_work(timeline).reindex(launch).reset_index(drop=True)
    is_set = timeline.is_set[rows]
    return {"launch": launch, **{name: measured[name].where(~is_set, 0.0) for name in _MEASURED}}


def _represents_one_call(work: Frame) -> "pd.Series[bool]":
    """Whether the replayed kernel represents this call: kernels of one name and grid may do more or less work.

    A persistent kernel has the same grid for any size. The replayed call is unknown, but equal times mean equal work.
    """
    time = work.groupby(["launch", "group"])["total_ns"].mean().groupby("launch")
    is_alike = time.max() <= _MOST_UNEQUAL * time.min()
    return (work["launch"] < 0) | work["launch"].map(is_alike).fillna(value=True).astype("bool")


# -- work of operators -------------------------------------------------------------------------------------------------


def _add_work(groups: Frame, of_fused: "pd.Series[float]") -> Frame:
    """Add the work of calls. of_fused: the bytes of kernels of torch.compile, whose launches are operators."""
    kernels = groups["kernel"].tolist()
    fused = {name: _memory_work(size) for name, size in of_fused.dropna().items() if "_tem_" not in str(name)}
    works = [
        operator_work(name, *texts, element=element_type(kernel)) or fused.get(name, _UNKNOWN_WORK)
        for kernel, name, *texts in zip(kernels, *(groups[column] for column in _CALL), strict=True)
    ]
    kinds = [_arithmetic_kind(work, kernel) for work, kernel in zip(works, kernels, strict=True)]
    return groups.assign(
        shapes=pd.Series([_format_shapes(shapes) for shapes in groups["shapes"]], groups.index, dtype="str"),
        types=pd.Series([_format_types(types) for types in groups["types"]], groups.index, dtype="str"),
        kind=pd.Series(kinds, groups.index, dtype="str"),
        is_product=[work.is_product for work in works],
        # None becomes NaN
        work_flop=np.array([work.flop for work in works], dtype=np.float64),
        data_bytes=np.array([work.data_bytes for work in works], dtype=np.float64),
    )


def _memory_work(data_bytes: float) -> OperatorWork:
    return OperatorWork(None, int(data_bytes), is_product=False, type="")


_UNKNOWN_WORK: Final = OperatorWork(None, None, is_product=False, type="")


def _arithmetic_kind(work: OperatorWork, kernel: str) -> str:
    """Return the arithmetic of an operator; "" if unknown.

    With inputs in single precision, only the kernel shows whether tensor cores multiply them.
    """
    if not work.is_product:
        return ""
    of_kernel = arithmetic(kernel)
    if work.type == "double":
        return "FP64"
    return of_kernel if of_kernel == "FP32" or work.type in ("float", "") else _TENSOR.get(work.type, "")


def _format_shapes(shapes: str) -> str:
    """Write shapes as `8192×4096, 4096×4096`, without arguments that have none; summarize lists of tensors."""
    try:
        arguments = parse_list(shapes)
    except Unknown:
        return ""
    texts = [_format_tensor_list(item) if _is_list(item) else "×".join(map(str, item)) for item in arguments if item]
    return ", ".join(texts)


def _is_list(item: object) -> bool:
    return isinstance(item, list) and any(isinstance(part, list) for part in item)


def _format_tensor_list(shapes: list[Any]) -> str:
    if len(shapes) <= _MOST_TENSORS:
        return f"[{', '.join('×'.join(map(str, shape)) or 'scalar' for shape in shapes)}]"
    return f"[{len(shapes):,} tensors of {sum(int(np.prod(shape, dtype=np.float64)) for shape in shapes):,}]"


def _format_types(types: str) -> str:
    try:
        names = [kind for kind in parse_list(types) if isinstance(kind, str)]
    except Unknown:
        return ""
    words = [kind.removeprefix("c10::") for kind in names if kind not in ("", "Scalar", "ScalarList", "TensorList")]
    return ", ".join(dict.fromkeys(words))


def _gpus(timeline: Timeline) -> dict[int, str]:
    devices = _device_bandwidths(timeline)
    return dict(zip(devices["device"], devices["gpu"], strict=True))


def _device_bandwidths(timeline: Timeline) -> Frame:
    """Return device, gpu (its name) and memory_bytes_per_s of each device."""
    if "devices" not in timeline.profile.tables:
        return Frame(columns=["device", "gpu", "memory_bytes_per_s"])
    return gpu_peaks(timeline).frame.rename(columns={"name": "gpu"})[["device", "gpu", "memory_bytes_per_s"]]


def _add_rates(timeline: Timeline, table: Frame) -> Frame:
    """Add rates, their shares of the peaks, and the bound."""
    devices = _device_bandwidths(timeline).drop_duplicates("device").set_index("device")
    memory = table["device"].map(devices["memory_bytes_per_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    peaks = [arithmetic_tflop_per_s(gpu, kind) for gpu, kind in zip(table["gpu"], table["kind"], strict=True)]
    compute = np.array(peaks, dtype=np.float64) * 1e12
    avg = table["total_ns"] / table["calls"]
    seconds = avg.where(avg > 0) / 1e9
    flop, data_bytes = table["work_flop"], table["data_bytes"]
    table = table.assign(
        avg_ns=avg,
        work_flop_per_s=flop / seconds,
        data_bytes_per_s=data_bytes / seconds,
        work_flop_per_byte=flop / data_bytes.where(data_bytes > 0),
        shortest_ns=1e9 * pd.concat([(flop / compute).where(flop > 0), data_bytes / memory], axis=1).max(axis=1),
    )
    table = table.assign(
        compute_pct=100.0 * table["work_flop_per_s"] / compute,
        memory_pct=100.0 * table["data_bytes_per_s"] / memory,
    )
    table = table.assign(bound=_bound(table))
    return _add_differences(table) if "measured_ns" in table else table


def _bound(table: Frame) -> "pd.Series[str]":
    shares = table[["compute_pct", "memory_pct"]].to_numpy(dtype=np.float64)
    highest = np.nan_to_num(shares, nan=-1.0).max(axis=1)
    words = np.where(np.nan_to_num(shares[:, 0], nan=-1.0) >= highest, "compute", "memory")
    # only matrix products can be limited by arithmetic
    is_unknown = np.isnan(shares[:, 1]) | (np.isnan(shares[:, 0]) & table["is_product"].to_numpy())
    others = np.where(is_unknown, "", "latency")
    return pd.Series(np.where(highest >= LIMITED_PCT, words, others), table.index, dtype="str")


def _add_differences(table: Frame) -> Frame:
    """Divide the measurements of ncu by the calls, and add their difference from the computed work."""
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


def _table_notes(table: Frame, owned: _OwnedOperations) -> Iterator[str]:
    unknown = table[table["work_flop"].isna() & table["data_bytes"].isna()]
    shares = unknown.groupby("name")["time_pct"].sum().sort_values(ascending=False, kind="stable")
    shares = shares[shares >= _LEAST_PCT]
    if len(shares):
        operators = [f"{name} {format_value(share, 'time_pct')}" for name, share in shares.items()]
        names = some_of(operators, _MOST_NAMED)
        yield f"The work of these operators is not known: {names}. They are listed without figures."
    outside = 100.0 * owned.unowned_ns / max(owned.total_ns, 1)
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
