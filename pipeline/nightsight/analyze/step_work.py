"""Counts the work per repetition of the window: how often each kernel, copy, call, operator and range runs, how long.

Other tables cover the whole capture, including its start-up, but runs with different numbers of repetitions can only
be compared per repetition. Work belongs to the repetition in which the CPU launched it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.owners import operation_owners
from nightsight.events.names import GRAPH
from nightsight.events.operators import all_operators, launching_operators, nested_operators
from nightsight.events.ranges import repetitions
from nightsight.events.timeline import Timeline, function_names, launch_times
from nightsight.intervals import Floats, Ints, last_started
from nightsight.results.steps import STEP_WORK
from nightsight.tables import categorical, combinations, combined, duration, integers

# sums of names by repetition up to which a table of all of them is the quickest
_DENSE: Final = 4_000_000


def step_work(timeline: Timeline) -> Table:
    """Return one row per kind and name."""
    tables = [_per_repetition(timeline, work) for work in _kinds_of_work(timeline)]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=STEP_WORK.column_names)
    place = table["name"].map(_launch_places(timeline)).where(table["kind"] == "kernel")
    table = table.assign(place=place.astype("object").fillna(""))
    table = table[[name for name in STEP_WORK.column_names if name in table]]
    return Table(table.sort_values(["kind", "time_ns", "name"], ascending=[True, False, True], ignore_index=True))


@dataclass(frozen=True, eq=False)
class _StepEvents:
    """Pieces of one kind of work: name and process of each, when the CPU began it, and how long it took.

    bytes: how much each of them copied or set, NaN if unknown.
    """

    kind: str
    names: "pd.Categorical[Any]"
    process: Ints
    start: Ints
    length: Ints
    bytes: Floats | None = None


def _kinds_of_work(timeline: Timeline) -> Iterator[_StepEvents]:
    """Yield each kind of work that the capture has."""
    tables, operations = timeline.profile.tables, timeline.operations
    length, begin = operations.end - operations.start, launch_times(timeline)
    for kind, table in (("kernel", "kernels"), ("copy", "memory_ops"), ("kernel", "graph_launches")):
        rows = np.flatnonzero(operations.of(table))
        if len(rows):
            frame = tables[table]
            process = frame["process"].to_numpy(dtype=np.int64, na_value=-1)
            size = frame["bytes"].to_numpy(dtype=np.float64, na_value=np.nan) if kind == "copy" else None
            yield _StepEvents(kind, _names(table, frame), process, begin[rows], length[rows], size)
    for kind, table in (("call", "api_calls"), ("range", "ranges")):
        if table in tables and len(tables[table]):
            frame = tables[table] if table == "api_calls" else repetitions(timeline.profile).query("not in_graph")
            names = function_names(timeline) if table == "api_calls" else frame["path"].array
            start, end, process = (frame[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns", "process"))
            yield _StepEvents(kind, names, process, start, end - start)
    if "cpu_ops" in tables and len(tables["cpu_ops"]):
        nested = nested_operators(timeline)
        of_operators = np.flatnonzero(nested.row >= 0)
        own = nested.without_children(nested.end - nested.start)[of_operators]
        names = tables["cpu_ops"]["name"].array[nested.row[of_operators]]
        yield _StepEvents("operator", names, nested.process[of_operators], nested.start[of_operators], own)


def _names(table: str, frame: pd.DataFrame) -> "pd.Categorical[Any]":
    if table == "memory_ops":
        return copy_names(frame, _copy_text)
    if table == "graph_launches":
        return categorical(np.array([GRAPH], dtype=object), np.zeros(len(frame), dtype=np.int64))
    names: pd.Categorical[Any] = frame["name"].array
    return names


def copy_names(copies: pd.DataFrame, write: Callable[[str, str, str], str]) -> "pd.Categorical[Any]":
    """Return a text for each row of memory_ops, made from its operation and its kinds of memory ("" for unknown)."""
    return combined([copies[name] for name in ("operation", "source_kind", "target_kind")], write)


def _copy_text(operation: str, source: str, target: str) -> str:
    return operation if operation == "memset" or not (source or target) else f"{operation} ({source} to {target})"


def _repetition(timeline: Timeline, process: Ints, time: Ints) -> Ints:
    """Return the number of the repetition in which a process was at a time; -1 outside of the window.

    A process without repetitions uses those of the process with the most GPU work.
    """
    window = timeline.window
    of_busiest = window.repetitions if len(window.repetitions) else np.array([window.start_ns])
    numbers, is_other = np.empty(len(time), dtype=np.int64), np.ones(len(time), dtype=bool)
    for key, starts in window.steps.items():
        is_of_process = process == key
        if is_of_process.all():
            numbers = last_started(starts, time)
        else:
            numbers[is_of_process] = last_started(starts, time[is_of_process])
        is_other &= ~is_of_process
    numbers[is_other] = last_started(of_busiest, time[is_other])
    np.minimum(numbers, len(of_busiest) - 1, out=numbers)
    numbers[(time < window.start_ns) | (time >= window.end_ns) | (numbers < 0)] = -1
    return numbers


def _per_repetition(timeline: Timeline, work: _StepEvents) -> pd.DataFrame:
    """Return the count and time of each name per repetition: the median, or the mean if some repetitions lack it.

    Copies also have bytes.
    """
    size, name_count = max(len(timeline.window.repetitions), 1), len(work.names.categories)
    step = _repetition(timeline, work.process, work.start)
    # eight bits for few names
    code = np.asarray(work.names.codes)
    is_inside = (step >= 0) & (code >= 0)
    code, time, key = code[is_inside], work.length[is_inside].astype(np.float64), step[is_inside]
    key += np.multiply(code, size, dtype=np.int64)
    count = np.bincount(code, minlength=name_count)
    total = np.bincount(code, weights=time, minlength=name_count)
    if name_count * size <= _DENSE:
        keys = np.flatnonzero(np.bincount(key, minlength=name_count * size))
        sums = np.bincount(key, weights=time, minlength=name_count * size)[keys]
    else:
        keys, place = np.unique(key, return_inverse=True)
        sums = np.bincount(place, weights=time)
    of = keys // size
    order = np.lexsort((sums, of))
    step_count = np.bincount(of, minlength=name_count)
    first = np.cumsum(step_count) - step_count
    full = np.flatnonzero(step_count == size)
    mean = total / size
    sums = sums[order]
    mean[full] = (sums[first[full] + (size - 1) // 2] + sums[first[full] + size // 2]) / 2
    rows = np.flatnonzero(count)
    texts = np.asarray(work.names.categories, dtype=object)[rows]
    columns = {"kind": work.kind, "name": texts, "count": count[rows] / size, "time_ns": mean[rows]}
    if work.bytes is not None:
        columns["copied_bytes"] = np.bincount(code, weights=work.bytes[is_inside], minlength=name_count)[rows] / size
    return pd.DataFrame(columns)


def _launch_places(timeline: Timeline) -> dict[str, str]:
    """Return where the CPU launches each kernel: the ranges and the operator that launch most of its time."""
    tables = timeline.profile.tables
    if not {"kernels", "api_calls"} <= tables.keys() or not len(tables["kernels"]):
        return {}
    kernels, call = tables["kernels"], timeline.operations.call[: len(tables["kernels"])]
    paths = repetitions(timeline.profile)["path"]
    owner = operation_owners(timeline)[: len(call)]
    path = np.where(owner >= 0, np.append(np.asarray(paths.cat.codes, dtype=np.int64), -1)[owner], -1)
    operator, operators = np.full(len(call), -1), np.empty(0, dtype=object)
    if "cpu_ops" in tables:
        names = all_operators(timeline.profile)["name"].cat
        row = launching_operators(timeline)[: len(call)]
        operator = np.where(row >= 0, np.append(np.asarray(names.codes, dtype=np.int64), -1)[row], -1)
        operators = np.asarray(names.categories, dtype=object)
    part, keys = combinations([integers(kernels["name"].cat.codes), path, operator])
    ns = np.zeros(len(keys), dtype=np.int64)
    np.add.at(ns, part, duration(kernels).to_numpy())
    sums = pd.DataFrame(keys, columns=["code", "path", "operator"]).assign(ns=ns)
    most = sums.sort_values("ns", ascending=False, kind="stable").drop_duplicates("code")
    texts = np.append(np.asarray(paths.cat.categories, dtype=object), "")
    parts = zip(texts[most["path"]], np.append(operators, "")[most["operator"]], strict=True)
    kernel_names = np.asarray(kernels["name"].cat.categories, dtype=object)[most["code"]]
    return dict(zip(kernel_names, (" / ".join(part for part in pair if part) for pair in parts), strict=True))


ANALYSES: Final = (Analysis(STEP_WORK, step_work),)
