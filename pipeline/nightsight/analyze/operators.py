"""Counts PyTorch operators like torch's `key_averages`, by name and by input shapes, and the kernels that they launch.

Tests compare the results with torch (tests/data/kineto). They differ for operators that end on another thread than they
began on, which have no own time in torch, and until torch 2.0, whose times are whole microseconds.
"""

import json
from collections.abc import Callable, Sequence
from math import nan, prod
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.operators import all_operators, launching_operators, nested_operators, operator_modules
from nightsight.events.timeline import Timeline, begun, of_capture
from nightsight.intervals import Ints
from nightsight.results.operators import CPU_OP_SHAPES, CPU_OPS, KERNEL_OPERATORS
from nightsight.tables import HOST_MEMORY, ON_DEVICE, innermost_of, time_summary

_NO_SHAPES: Final = "Shapes were not recorded (torch.profiler.profile(record_shapes=True))."
_NO_INPUTS: Final = (
    "FLOPs of convolutions are not known: this version of torch does not record the values of stride and padding."
)
_CONVOLUTION: Final = "aten::conv2d"


def operators(timeline: Timeline) -> Table:
    """Return one row per operator."""
    figures = _figures(timeline)
    unknown = figures["name"].eq(_CONVOLUTION) & figures["flops"].isna() if "flops" in figures else pd.Series()
    return Table(
        _sum_by(figures, ["name"])[_columns_with_values(figures, "name")], (_NO_INPUTS,) if unknown.any() else ()
    )


def shapes(timeline: Timeline) -> Table:
    """Return one row per operator and input shapes."""
    figures = _figures(timeline)
    shaped = figures[figures["shapes"] != ""]
    table = _sum_by(shaped, ["name", "shapes"])
    return Table(
        table[[*_columns_with_values(figures, "name"), "shapes"]],
        () if len(shaped) or not len(figures) else (_NO_SHAPES,),
    )


def kernel_operators(timeline: Timeline) -> Table:
    """Return one row per kernel, launching operator, and module of that operator."""
    kernels, operators = timeline.profile.table("kernels"), all_operators(timeline.profile)
    row = launching_operators(timeline)[: len(kernels)]
    modules, forward = operator_modules(timeline)
    names = np.append(operators["name"].to_numpy(dtype=object), "")
    launched = kernels[["start_ns", "end_ns", "name"]].assign(
        operator=names[row],
        forward=names[np.append(forward, -1)[row]],
        module=np.append(np.asarray(modules, dtype=object), "")[row],
    )
    keys = ["operator", "forward", "module"]
    functions = timeline.profile.recorded("python_functions")
    if len(functions) and len(operators):
        # the operator that the program called: the forward one, in the backward pass
        forward_operator = np.where(np.append(forward, -1)[row] >= 0, np.append(forward, -1)[row], row)
        outermost = operators.iloc[forward_operator.clip(0)]
        inside = innermost_of(functions, outermost["thread"].to_numpy(), outermost["start_ns"].to_numpy())
        of_functions = np.append(np.asarray(functions["function"], dtype=object), "")
        # another capture has another clock
        is_own = (forward_operator >= 0) & (forward_operator < len(timeline.profile.table("cpu_ops")))
        launched["function"] = of_functions[np.where(is_own, inside, -1)]
        keys.append("function")
    launched = launched[begun(timeline, launched["start_ns"])]
    summed = time_summary(launched, ["name", *keys]).rename(columns={"count": "instances"})
    return Table(summed[["time_pct", "total_ns", "instances", "avg_ns", *keys, "name"]])


def _columns_with_values(figures: pd.DataFrame, *names: str) -> list[str]:
    """Return the columns of a table that have any values."""
    pairs = ("own_device_ns", "device_ns"), ("own_memory_bytes", "memory_bytes")
    of_gpu = ("own_device_memory_bytes", "device_memory_bytes")
    chosen = [name for pair in (*pairs, of_gpu) for name in pair if name in figures]
    return [
        "own_pct",
        "own_ns",
        "total_ns",
        "calls",
        "max_ns",
        *chosen,
        *(["flops"] if "flops" in figures else []),
        *names,
    ]


def _sum_by(figures: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    grouped = figures.groupby(list(by), observed=True, sort=True)
    sums = [name for name in figures if name not in ("name", "shapes", "flops")]
    table = grouped[sums].sum().assign(calls=grouped.size(), max_ns=grouped["total_ns"].max())
    if "flops" in figures:
        # one call of unknown cost makes the sum unknown
        table["flops"] = grouped["flops"].sum().where(grouped["flops"].count() == grouped.size())
    table = table.reset_index().sort_values(["own_ns", *by], ascending=[False, *[True] * len(by)], ignore_index=True)
    return table.assign(own_pct=100.0 * table["own_ns"] / max(table["own_ns"].sum(), 1))


def _figures(timeline: Timeline) -> pd.DataFrame:
    """Return the rows of `_every_call` that began in the window."""
    figures = _every_call(timeline)
    is_in_window = begun(timeline, figures["start_ns"])
    return (figures if is_in_window.all() else figures[is_in_window]).drop(columns="start_ns")


@of_capture
def _every_call(timeline: Timeline) -> pd.DataFrame:
    """Return one row per call of an operator: name, shapes, start, and figures with and without inner calls."""
    table, nested = timeline.profile.table("cpu_ops"), nested_operators(timeline)
    is_operator = nested.row >= 0
    calls = np.flatnonzero(is_operator & (nested.call == np.arange(len(nested.row))))
    row, of_calls = nested.row[calls], dict[str, Ints]()

    def add(name: str, total: Ints, own: Ints) -> None:
        merged = np.zeros(len(own), dtype=np.int64)
        # a span that repeats an operator is a part of it
        np.add.at(merged, nested.call[is_operator], own[is_operator])
        of_calls[f"own_{name}"], of_calls[name if name != "ns" else "total_ns"] = merged[calls], total[calls]

    time = nested.end - nested.start
    add("ns", time, nested.without_children(time))
    launched = launching_operators(timeline)
    # calls that another capture recorded do not count here
    launched = np.where(launched < len(table), launched, -1)
    if (launched >= 0).any():
        place = np.full(len(table), -1, dtype=np.int64)
        place[nested.row[is_operator]] = np.flatnonzero(is_operator)
        own = np.zeros(len(nested.row), dtype=np.int64)
        operations, has_operator = timeline.operations, launched >= 0
        np.add.at(own, place[launched[has_operator]], (operations.end - operations.start)[has_operator])
        add("device_ns", nested.with_children(own), own)
    for name, kinds in (("memory_bytes", (HOST_MEMORY,)), ("device_memory_bytes", ON_DEVICE)):
        events = timeline.profile.recorded("memory_usage")
        events = events[events["kind"].isin(kinds)]
        if len(events):
            total = _changes(events, nested.process, nested.start, nested.end)
            add(name, total, nested.without_children(total))
    start = {"start_ns": table["start_ns"].array[row]}
    figures = pd.DataFrame(
        {**start, **of_calls, "name": table["name"].array[row], "shapes": table["shapes"].array[row]}
    )
    if (table["shapes"] != "").any():
        figures["flops"] = _flops(table.iloc[row])
    return figures


def _changes(events: pd.DataFrame, process: Ints, start: Ints, end: Ints) -> Ints:
    """Return the growth of the memory of its process during each span."""
    grown = np.zeros(len(start), dtype=np.int64)
    for key, of_process in events.sort_values("start_ns", kind="stable").groupby("process"):
        rows, time = np.flatnonzero(process == key), of_process["start_ns"].to_numpy()
        change = np.where(of_process["is_allocation"], of_process["bytes"], -of_process["bytes"])
        sums = np.concatenate(([0], np.cumsum(change)))
        low, high = np.searchsorted(time, start[rows]), np.searchsorted(time, end[rows], side="right")
        grown[rows] = sums[high] - sums[low]
    return grown


def _flops(operators: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return the floating-point operations of each call, like torch's `with_flops`; 0 for other operators."""
    flops = np.zeros(len(operators))
    rows = np.flatnonzero(operators["name"].isin(list(_FORMULAS)) & (operators["shapes"] != ""))
    candidates = operators.iloc[rows]
    group = candidates.groupby(["name", "shapes", "inputs"], observed=True, sort=False)
    values = [_flops_of_call(*map(str, key)) for key, _ in group]
    flops[rows] = np.array(values)[group.ngroup().to_numpy()] if values else 0
    return flops


def _flops_of_call(name: str, shapes: str, inputs: str) -> float:
    try:
        return float(_FORMULAS[name](json.loads(shapes), json.loads(inputs or "[]")))
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        # shapes that the operator cannot have; torch gives 0 as well
        return 0.0


def _product(first: list[int], second: list[int]) -> int:
    return 2 * prod(first) * prod(second) // first[-1] if first else 0


def _batched_product(first: list[int], second: list[int]) -> int:
    return 2 * prod(first) * prod(second) // first[-1] // first[0] if first else 0


def _convolution(shapes: list[list[int]], inputs: list[str]) -> float:
    if len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return 0
    if not inputs:
        return nan
    stride, padding, dilation, groups = (json.loads(text) for text in inputs[3:7])
    (batch, channels, *size), (out_channels, _, *kernel) = shapes[:2]
    out = [
        (size[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]
    return float(2 * batch * prod(out) * prod(kernel) * channels * out_channels // groups)


_FORMULAS: Final[dict[str, Callable[[Any, Any], float]]] = {
    "aten::mm": lambda shapes, _: _product(*shapes[:2]),
    "aten::addmm": lambda shapes, _: _product(*shapes[1:3]),
    "aten::bmm": lambda shapes, _: _batched_product(*shapes[:2]),
    "aten::baddbmm": lambda shapes, _: _batched_product(*shapes[1:3]),
    _CONVOLUTION: _convolution,
    "aten::mul": lambda shapes, _: prod(shapes[0]),
    "aten::add": lambda shapes, _: prod(shapes[0]),
}
"""The formulas of torch/csrc/profiler/util.cpp."""

ANALYSES: Final = (
    Analysis(CPU_OPS, operators),
    Analysis(CPU_OP_SHAPES, shapes),
    Analysis(KERNEL_OPERATORS, kernel_operators),
)
