"""How each rule of advice finds its cases in the results of a report, and bounds the gain."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import base_name
from nightsight.events.names import GRAPH
from nightsight.model import Result
from nightsight.results import (
    ALLOCATION,
    COMPUTE,
    COPIES,
    CUDA_API_SYNC,
    DEPENDENCY,
    GPU_GAPS,
    GPU_TIME,
    GPU_UTILIZATION,
    HOST,
    LAUNCH_BOUND,
    LAUNCH_OVERHEAD,
    MODULE,
    OTHER_CALL,
    RANGE_COVERAGE,
    SETUP_CALLS,
    SLOW_COPIES,
    TIME_SPLIT,
    Entry,
)
from nightsight.units import format_value

MOST_EVIDENCE: Final = 3
# of the window: any program has shorter gaps between its kernels
LONG_GAP_PCT: Final = 1.0
# of the window: if the GPU waits less than that for launches, the CPU keeps up
LAUNCH_IDLE_PCT: Final = 1.0
# nsys's own default
LOW_UTILIZATION_PCT: Final = 50.0
_LOW_COVERAGE_PCT: Final = 90.0
_NAME_LENGTH: Final = 60

# idle categories that no other rule covers
_OTHER_IDLE: Final = (HOST, DEPENDENCY, OTHER_CALL)
_ALLOCATES: Final = "Malloc|Alloc|Free|Register"
_TO_HOST: Final = ("Device-to-Host", "Array-to-Host")
_BLOCKS: Final = r"^cu(?:da)?Mem(?!.*Async)"

Frame = pd.DataFrame


class Tables:
    """The tables of a report; one that the report lacks reads as a table without rows."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._tables = {result.name: result.rows for result in results}
        pids = [table["pid"].dropna() for table in self._tables.values() if "pid" in table]
        self._has_processes = len({int(pid) for some in pids for pid in some.unique()}) > 1
        windows = self.rows(GPU_TIME, "window_ns")["window_ns"]
        self.window_ns = int(windows.max()) if len(windows) else 0

    def rows(self, entry: Entry, *columns: str) -> Frame:
        """Return a result's table; without rows if it is missing or lacks one of `columns`.

        A table with a column `pid` gets a text column `of_process` (" of process 123"), empty if the report has only
        one process. KeyError for a column that the register does not list for this result.
        """
        if unknown := set(columns) - {column.name for column in entry.columns}:
            raise KeyError(f"{entry.name} never has {', '.join(sorted(unknown))}")
        table = self._tables.get(entry.name, pd.DataFrame())
        table = table if set(columns) <= set(table.columns) else pd.DataFrame(columns=list(columns))
        if "pid" not in table:
            return table
        known = table["pid"].notna() & self._has_processes
        return table.assign(of_process=(" of process " + table["pid"].astype("str")).where(known, ""))

    def split(self, category: str) -> Frame:
        """Return one category of the split of the window, a row per device."""
        table = self.rows(TIME_SPLIT, "device", "category", "time_ns", "hidden_ns")
        return table[table["category"] == category]


@dataclass(frozen=True)
class Case:
    """What a rule found: an upper bound on the gain in ns, None if it is not known, and the evidence as sentences."""

    gain_ns: float | None
    evidence: Iterable[str]


# -- how each is found ------------------------------------------------------------------------------------------------


def pageable(tables: Tables) -> Case:
    """Find asynchronous copies from and to host memory that is not pinned."""
    copies = _slow_copies(tables)
    return _of_copies(tables, copies[(copies["host_kind"] == "Pageable") & ~_blocks(copies)])


def blocking_copies(tables: Tables) -> Case:
    """Find copies by blocking calls."""
    copies = _slow_copies(tables)
    return _of_copies(tables, copies[_blocks(copies) & (copies["operation"] != "memset")])


def blocking_sets(tables: Tables) -> Case:
    """Find memsets of host memory by blocking calls."""
    copies = _slow_copies(tables)
    return _of_copies(tables, copies[_blocks(copies) & (copies["operation"] == "memset")])


def synchronizations(tables: Tables) -> Case:
    """Find explicit synchronizations, except those in every step: `waits_in_steps` has these."""
    waits = _waits(tables)
    return _of_waits(waits[(waits["kind"] == "explicit") & ~_in_most_steps(waits)])


def waits_in_steps(tables: Tables) -> Case:
    """Find calls that wait in every step, explicitly or not, except allocations: `allocations` has these."""
    waits = _waits(tables)
    return _of_waits(waits[_in_most_steps(waits) & ~waits["name"].astype("str").str.contains(_ALLOCATES)])


def gaps(tables: Tables) -> Case:
    """Find long idle gaps."""
    found = tables.rows(GPU_GAPS, "device", "time_ns", "gap_ns", "share_pct", "cause", "after", "path")
    long = found[found["share_pct"] >= LONG_GAP_PCT]
    after, path = (long[column].astype("str") for column in ("after", "path"))
    names = after.map(_base).astype("str")  # without rows, `map` forgets the type
    ending = ("ended by " + names + " in " + path).where(after != "", "nothing followed")
    sentence = "GPU {device}, {gap_ns} from {time_ns} on: {cause}; {ending}"
    return Case(_worst(long, "device", "gap_ns"), _sentences(long.assign(ending=ending), "gap_ns", sentence))


def utilization(tables: Tables) -> Case:
    """Find stretches of the window with low utilization; adjacent ones are one piece of evidence."""
    low = _low_stretches(tables)
    grouped = low.groupby(["device", "run"])
    runs = grouped.agg(from_ns=("from_ns", "min"), to_ns=("to_ns", "max"), idle_ns=("idle_ns", "sum")).reset_index()
    runs = runs.assign(busy_pct=100 * (1 - runs["idle_ns"] / (runs["to_ns"] - runs["from_ns"])))
    evidence = _sentences(
        runs, "idle_ns", "GPU {device}, {from_ns} to {to_ns}: {busy_pct} busy", most=MOST_EVIDENCE - 1
    )
    sentence = "Most idle time of GPU {device}: {category}, {share_pct} of the window"
    return Case(
        _worst(low, "device", "idle_ns"), [*evidence, *_sentences(_idle(tables), "share_pct", sentence, most=1)]
    )


def short_gaps(tables: Tables) -> Case:
    """Find idle time by cause, without the time that the rules for long gaps, low utilization and waits cover."""
    idle = _idle(tables)
    causes = idle[idle["category"].isin(_OTHER_IDLE)]
    listed = tables.rows(GPU_GAPS, "device", "gap_ns", "share_pct")
    sums = {
        "idle": idle.groupby("device")["time_ns"].sum(),
        "causes": causes.groupby("device")["time_ns"].sum(),
        "long": listed[listed["share_pct"] >= LONG_GAP_PCT].groupby("device")["gap_ns"].sum(),
        "low": _low_stretches(tables).groupby("device")["idle_ns"].sum(),
    }
    of_device = pd.DataFrame(sums).astype("float64").fillna(0)
    # a long gap makes its stretch one of low utilization: the larger of the two, not their sum
    known = of_device[["long", "low"]].max(axis=1) + _worst(_waits(tables), "pid", "lost_ns")
    gain = of_device["causes"].clip(upper=of_device["idle"] - known)
    sentence = "GPU {device}: {category}, {share_pct} of the window"
    return Case(_most(gain), _sentences(causes, "share_pct", sentence))


def launches(tables: Tables) -> Case:
    """Find idle time due to launches under way, without the extra time of first launches."""
    bound = _launch_bound(tables)
    sentence = "GPU {device}: idle for {launch_idle_ns}, {launches} launches, nothing was in flight {drained} times"
    return Case(_most(bound["launch_idle_ns"]), _sentences(bound, "launch_idle_ns", sentence))


def tiny_kernels(tables: Tables) -> Case:
    """Find kernels shorter than the calls that launch them, if the GPU waits for launches."""
    columns = ("launches", "execution_med_ns", "execution_total_ns", "api_med_ns", "device", "name")
    launched = tables.rows(LAUNCH_OVERHEAD, *columns)
    # the only launch of a kernel also loads it, so its call says nothing about steady launches
    kernels = launched[(launched["name"] != GRAPH) & (launched["launches"] > 1)]
    tiny = kernels[kernels["execution_med_ns"] < kernels["api_med_ns"]]
    idle = _most(_launch_bound(tables)["launch_idle_ns"])
    is_waiting = 100 * idle >= LAUNCH_IDLE_PCT * tables.window_ns
    if not len(tiny) or tiny["launches"].sum() * 2 < kernels["launches"].sum() or not is_waiting:
        return Case(0, ())
    # shorten only the names that are shown: there may be a million, and it is slow
    most = tiny.sort_values("launches", ascending=False, kind="stable").head(MOST_EVIDENCE)
    # kernels on several streams overlap: they cannot save more than the GPU's compute time
    compute = min(_worst(tiny, "device", "execution_total_ns"), _most(tables.split(COMPUTE)["time_ns"]))
    on_device = " on GPU " + most["device"].astype("str") if launched["device"].nunique() > 1 else ""
    words = most.assign(name=most["name"].map(_base), on_device=on_device)
    sentence = "{name}{on_device}: {launches} ×, {execution_med_ns} each, and {api_med_ns} for the call"
    return Case(compute + idle, _sentences(words, "launches", sentence))


def exposed_copies(tables: Tables) -> Case:
    """Find copies that no kernel hides."""
    copies = tables.split(COPIES)
    sentence = "GPU {device}: {time_ns} exposed, {hidden_ns} hidden behind kernels"
    return Case(_most(copies["time_ns"]), _sentences(copies, "time_ns", sentence))


def loading(tables: Tables) -> Case:
    """Find modules loaded or compiled in the window, and first launches that take longer than later ones."""
    calls = _setup_calls(tables, MODULE)
    bound = _launch_bound(tables)
    first = bound[bound["first_launch_idle_ns"] > 0]
    sentence = "GPU {device}: idle for {first_launch_idle_ns} because first launches took longer than later ones"
    evidence = [
        *_sentences(calls, "total_ns", _SETUP_CALL, most=MOST_EVIDENCE - 1),
        *_sentences(first, "first_launch_idle_ns", sentence, most=1),
    ]
    return Case(_most(tables.split(MODULE)["time_ns"]) + _most(first["first_launch_idle_ns"]), evidence)


def allocations(tables: Tables) -> Case:
    """Find memory that is allocated or freed in every step."""
    calls = _setup_calls(tables, ALLOCATION)
    calls = calls[_in_most_steps(calls)]
    waits = _waits(tables)
    waits = waits[_in_most_steps(waits) & waits["name"].astype("str").str.contains(_ALLOCATES)]
    idle = _most(tables.split(ALLOCATION)["time_ns"]) + _worst(waits, "pid", "lost_ns")
    gain = min(idle, _worst(calls, "pid", "total_ns"))
    return Case(gain, _sentences(calls, "total_ns", _SETUP_CALL))


def coverage(tables: Tables) -> Case:
    """Find GPU work that no range owns, in a capture that has ranges; the gain is not known."""
    columns = ("operations", "attributed", "without_call", "coverage_pct")
    known = tables.rows(RANGE_COVERAGE, *columns)
    sentence = (
        "{attributed} of {operations} GPU operations ({coverage_pct}) belong to a range; "
        "the launch of {without_call} was not recorded"
    )
    return Case(None, _sentences(known[known["coverage_pct"] < _LOW_COVERAGE_PCT], "operations", sentence))


# -- what they share --------------------------------------------------------------------------------------------------


def _slow_copies(tables: Tables) -> Frame:
    columns = ("path", "name", "operation", "host_kind", "device", "pid", "count", "copy_ns", "exposed_ns")
    return tables.rows(SLOW_COPIES, *columns)


def _blocks(copies: Frame) -> "pd.Series[bool]":
    return copies["name"].astype("str").str.contains(_BLOCKS)


def _of_copies(tables: Tables, copies: Frame) -> Case:
    """Add up the exposed time of copies and the cost of their waiting calls, counting idle time once.

    If the call waits for its copy, idle time is already in the cost of the wait (`lost_ns`): only the copy's own
    execution is added.
    """
    waits, keys = _waits(tables), ["path", "name", "pid"]
    waits = waits[(waits["kind"] == "implicit") & _among(waits[keys], copies[keys])]
    itself = np.minimum(copies["exposed_ns"], copies["copy_ns"])
    is_waited = _blocks(copies) | copies["operation"].isin(_TO_HOST)
    cost = copies["exposed_ns"].where(~is_waited, itself)
    sentence = "GPU {device}: {name} ({operation}) in {path}{of_process}, {count} ×: {exposed_ns} without a kernel"
    gain = _worst(copies.assign(cost=cost), "device", "cost") + _worst(waits, "pid", "lost_ns")
    return Case(gain, _sentences(copies, "exposed_ns", sentence))


def _among(rows: Frame, others: Frame) -> "pd.Series[bool]":
    """Tell which rows are also in `others`, comparing their values as text."""
    known = pd.MultiIndex.from_frame(others.astype("str"))
    return pd.Series(pd.MultiIndex.from_frame(rows.astype("str")).isin(known), index=rows.index, dtype=bool)


def _waits(tables: Tables) -> Frame:
    columns = ("kind", "name", "path", "pid", "calls", "lost_ns", "other_waits", "steps", "of_steps")
    return tables.rows(CUDA_API_SYNC, *columns)


def _idle(tables: Tables) -> Frame:
    """Return the idle categories of the split of the window, one row per device and category."""
    causes = tables.rows(TIME_SPLIT, "device", "group", "category", "time_ns", "share_pct")
    return causes[causes["group"] == "idle"]


def _low_stretches(tables: Tables) -> Frame:
    """Return the stretches with low utilization and their `idle_ns`; adjacent ones share a number `run`."""
    stretches = tables.rows(GPU_UTILIZATION, "device", "from_ns", "to_ns", "busy_pct")
    is_low = stretches["busy_pct"] < LOW_UTILIZATION_PCT
    idle = (stretches["to_ns"] - stretches["from_ns"]) * (1 - stretches["busy_pct"] / 100)
    return stretches.assign(idle_ns=idle, run=(~is_low).cumsum())[is_low]


def _of_waits(waits: Frame) -> Case:
    place = " from " + waits["frame"].astype("str").where(waits["frame"] != "", "?") if "frame" in waits else ""
    others = ", with " + waits["other_waits"].astype("str") + " other waits"
    words = _in_words(waits).assign(place=place, others=others.where(waits["other_waits"] > 0, ""))
    sentence = _CALLS + "{place}{others}: {lost_ns} lost"
    return Case(_worst(waits, "pid", "lost_ns"), _sentences(words[words["lost_ns"] > 0], "lost_ns", sentence))


def _setup_calls(tables: Tables, kind: str) -> Frame:
    calls = tables.rows(SETUP_CALLS, "kind", "name", "path", "pid", "calls", "total_ns", "steps", "of_steps")
    return _in_words(calls[calls["kind"] == kind])


_CALLS: Final = "{name} in {path}{of_process}, {calls} ×{repeated}"
_SETUP_CALL: Final = _CALLS + ": {total_ns}"


def _in_words(calls: Frame) -> Frame:
    """Add `repeated`: " in 10 of 10 repetitions", empty for calls outside repeated ranges."""
    counts = " in " + calls["steps"].astype("str") + " of " + calls["of_steps"].astype("str") + " repetitions"
    return calls.assign(repeated=counts.where(calls["of_steps"] > 0, ""))


def _in_most_steps(calls: Frame) -> "pd.Series[bool]":
    """Tell which rows are calls made in most repetitions of a range; calls in the first few only are warm-up."""
    return calls["steps"] * 2 > calls["of_steps"]


def _launch_bound(tables: Tables) -> Frame:
    """Return a row per device; `launch_idle_ns` excludes the extra time of first launches, which `loading` covers."""
    bound = tables.rows(LAUNCH_BOUND, "device", "launches", "launch_idle_ns", "first_launch_idle_ns", "drained")
    return bound.assign(launch_idle_ns=bound["launch_idle_ns"] - bound["first_launch_idle_ns"])


def _sentences(frame: Frame, by: str, sentence: str, *, most: int = MOST_EVIDENCE) -> Iterable[str]:
    """Yield `sentence` filled in for each of the rows with the largest `by`; numbers get the unit of their column."""
    largest = frame.sort_values(by, ascending=False, kind="stable").head(most)
    for row in largest.to_dict("records"):
        yield sentence.format_map({str(name): _shown(value, str(name)) for name, value in row.items()})


def _shown(value: object, column: str) -> str:
    return format_value(float(value), column) if isinstance(value, (int, float)) else str(value)


def _base(name: str) -> str:
    """Shorten a kernel's name to its base name, without namespaces and arguments."""
    base = base_name(name)
    return base if len(base) <= _NAME_LENGTH else f"{base[: _NAME_LENGTH - 1]}…"


def _worst(frame: Frame, key: str, column: str) -> float:
    """Return the largest sum of a column over one device or process: these run in parallel, so they do not add up."""
    return _most(frame.groupby(key)[column].sum())


def _most(values: "pd.Series[Any]") -> float:
    """Return the largest known value, 0 if there is none."""
    known = values.dropna().to_numpy(dtype=np.float64)
    return float(known.max(initial=0.0))
