"""Reads NVTX_EVENTS of an nsys export: ranges, operators, marks and samples; other rows name domains and categories."""

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nightsight.intervals import Ints, outer, reaching
from nightsight.model.report import Finding
from nightsight.read.nsys.export import LIMIT, NVTX, OF_PROCESS, Export, process_id
from nightsight.read.nsys.names import OF_HOOK, ParsedNames, cost_of_names, fold_ranges, parse_names, place_operators
from nightsight.read.nsys.nccl import NCCL, nccl_tables
from nightsight.read.nsys.samples import SAMPLES, python_samples
from nightsight.read.vocabulary import CATEGORY_NAMES, DOMAIN_CREATE, EVENTS, MARKS, RANGE_STYLES, label
from nightsight.tables import MODULE, NULLABLE, PUSH_POP, Frame

_COLUMNS: Final = {
    "start_ns": "start",
    "end_ns": "end",
    "thread": "globalTid",
    "end_thread": "endGlobalTid",
    "type": "eventType",
    "text_id": "textId",
    "domain_id": "domainId",
    "category_id": "category",
}
_NULLABLE: Final = ("end_ns", "text_id", "end_thread", "domain_id", "category_id")


def ranges_and_marks(export: Export) -> dict[str, Frame]:
    """Read ranges and marks in one pass.

    Operators become cpu_ops, marks with a Python stack python_samples, and calls of NCCL collectives and ranks.
    """
    frame = export.fetch(NVTX, _COLUMNS, nullable=_NULLABLE)
    frame = frame.assign(**_names(export, frame)._asdict())
    domains = _domains(frame)
    marks = _marks(export, frame, domains)
    is_sample = marks["domain"] == SAMPLES
    samples = python_samples(export, marks[is_sample]) if is_sample.any() else None
    ranges = _ranges(export, frame, domains)
    tables = {"marks": marks[~is_sample], "ranges": ranges}
    if not export.as_recorded:
        is_operator = ranges["is_operator"].to_numpy()
        operators = ranges[is_operator & ~ranges["is_open"]]
        tables["ranges"] = ranges = fold_ranges(ranges[~is_operator])
        if len(operators):
            tables["cpu_ops"] = place_operators(operators, ranges[ranges["style"] == MODULE])
        if cost := cost_of_names(tables["marks"]):
            export.findings.append(cost)
            tables["marks"] = tables["marks"][~tables["marks"]["name"].astype("str").str.startswith(OF_HOOK)]
        tables |= nccl_tables(export, ranges[ranges["domain"] == NCCL])
    if samples is not None:
        tables["python_samples"] = samples
    unread = int((~frame["type"].isin(EVENTS)).sum())
    tables["unread"] = pd.DataFrame({"kind": ["NVTX events of other types"], "events": [unread], "source": [NVTX]})
    return tables


def with_ids(frame: Frame) -> Frame:
    """Split the global thread id into the join keys `thread` and `process`, and the `pid` and `tid` of the system."""
    thread = frame["thread"].to_numpy(dtype=np.int64)
    pid = process_id(pd.Series(thread, copy=False))
    ids = {"thread": thread, "process": thread & OF_PROCESS, "pid": pid, "tid": thread & ~OF_PROCESS}
    return frame.assign(**{name: pd.Series(column, index=frame.index, copy=False) for name, column in ids.items()})


def _ranges(export: Export, events: Frame, domains: Frame) -> Frame:
    times = events[["start_ns", "end_ns"]].fillna(0).to_numpy(dtype=np.int64)
    last = int(times[times < LIMIT].max(initial=0))
    frame = events[events["type"].isin(list(RANGE_STYLES))]
    frame = frame.assign(is_open=frame["end_ns"].isna(), end_ns=frame["end_ns"].fillna(last))
    frame = with_ids(export.keep_possible(NVTX, frame))
    frame = frame.assign(style=label(frame["type"], RANGE_STYLES), number=frame.index + 1)
    # ranges that never ended are not compared
    has_length = (frame["end_ns"] > frame["start_ns"]) & ~frame["is_open"]
    frame = export.without_repeats(NVTX, frame, _SAME, where=has_length & ~frame["is_operator"])
    _check_nesting(export, frame[(frame["end_ns"] > frame["start_ns"]) & ~frame["is_open"]])
    return _with_domains(frame, domains)


# the columns in which repeated ranges are equal; operators are not compared, since their names lost their unique parts
_SAME: Final = ("start_ns", "end_ns", "thread", "end_thread", "type", "domain_id", "category_id", "name")


def _check_nesting(export: Export, ranges: Frame) -> None:
    """Add a finding if push/pop ranges do not nest."""
    # each thread has one stack per domain
    stacks = ranges[ranges["style"] == PUSH_POP].assign(domain_id=lambda pushed: pushed["domain_id"].fillna(0))
    stacks = stacks.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    start, end = stacks["start_ns"].to_numpy(), stacks["end_ns"].to_numpy(dtype=np.int64)
    parts = stacks.groupby(["thread", "domain_id"], sort=False).indices.values()
    if count := sum(_crossing(start[rows], end[rows]) for rows in parts):
        export.findings.append(_CROSSED.filled(count=count, total=len(ranges)))


def _crossing(start: Ints, end: Ints) -> int:
    """Count the spans, sorted by (start, longest first), that end after the innermost span open at their start."""
    # the last span before each one that is still open when it starts
    around = reaching(np.arange(-1, len(end) - 1, dtype=np.int64), end, start + 1, outer(end))
    return int(((around >= 0) & (end[around] < end)).sum())


_CROSSED: Final = Finding(
    "crossing_ranges",
    "warning",
    f"{{count:,}} of {{total:,}} ranges of {NVTX} cross another range of their thread",
    "They begin inside a range that ends before they do, which push and pop cannot produce: the profiler lost or mixed "
    "up events. Their nesting, and the work counted inside them, may be wrong.",
    "Capture a shorter part of the program. If it happens again, use start/end ranges where spans overlap.",
)


def _marks(export: Export, events: Frame, domains: Frame) -> Frame:
    frame = events[events["type"].isin(MARKS)]
    frame = with_ids(export.keep_possible(f"{NVTX} (marks)", frame.assign(end_ns=frame["start_ns"])))
    names = _categories(events).reindex(pd.MultiIndex.from_arrays(_category_keys(frame))).set_axis(frame.index)
    number = frame["category_id"].fillna(0)
    # a category without a name is shown as its number; 0 means no category
    category = names.where(names.notna(), number.astype("str")).where(number != 0, "")
    return _with_domains(frame.assign(category=category), domains)


def _names(export: Export, events: Frame) -> ParsedNames:
    """Return names from StringIds if registered (by the nvtx package), else inline names (by torch.cuda.nvtx)."""
    registered = export.text(events["text_id"])
    values = pa.array([text.encode("utf-8", "replace") for text in registered.categories], pa.binary())
    texts = values.take(pa.array(registered.codes))
    if "text" in export.database.columns[NVTX]:
        inline = export.database.encoded(NVTX, "text").combine_chunks().take(pa.array(events.index))
        texts = pc.if_else(pa.array(events["text_id"].notna()), texts, inline)
    # PyTorch names operators in the default domain
    is_of_torch = events["type"].isin(list(RANGE_STYLES)) & (events["domain_id"].fillna(0) == 0)
    return parse_names(texts, is_of_torch.to_numpy(dtype=bool) & (not export.as_recorded))


def _domains(events: Frame) -> Frame:
    """Return the name and creation time of each (process, domain), from the row that created the domain."""
    created = events[events["type"] == DOMAIN_CREATE].sort_values("start_ns", kind="stable")
    process = created["thread"].to_numpy(dtype=np.int64) & OF_PROCESS
    index = pd.MultiIndex.from_arrays([process, created["domain_id"].fillna(0)])
    starts = created["start_ns"].astype(NULLABLE)
    columns = {"domain": created["name"].astype("str").array, "domain_start_ns": starts.array}
    return pd.DataFrame(columns, index=index)[~index.duplicated()]


def _with_domains(frame: Frame, domains: Frame) -> Frame:
    keys = pd.MultiIndex.from_arrays([frame["process"], frame["domain_id"].fillna(0)])
    domains = domains.reindex(keys).set_axis(frame.index)
    return frame.assign(**domains.assign(domain=domains["domain"].fillna("")))


def _categories(events: Frame) -> "pd.Series[str]":
    """Return the name of each (process, domain, category), from the first row that names it."""
    rows = events[events["type"].isin(CATEGORY_NAMES)].sort_values("start_ns", kind="stable")
    index = pd.MultiIndex.from_arrays(_category_keys(rows))
    return pd.Series(rows["name"].astype("str").array, index=index)[~index.duplicated()]


def _category_keys(frame: Frame) -> "list[pd.Series[int]]":
    process = frame["thread"].astype("int64") & OF_PROCESS
    return [process, *(frame[name].fillna(0).astype("int64") for name in ("domain_id", "category_id"))]
