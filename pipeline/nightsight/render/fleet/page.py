"""The content of the page of a fleet: what recurs first, then common and different facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.fleet import Fleet
from nightsight.render.figure.shares import Wholes, wholes
from nightsight.render.page.figures import Figure
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.view import Cell, Heading, Layout, Row, TableView, floats, short_text, table_view
from nightsight.texts import excerpt, middle_cut, printable
from nightsight.units import ABSENT, counted, difference, format_cell, format_value, scale_for, split

_MAX_CAPTURES: Final = 2_000
_MAX_VALUES: Final = 6
_MAX_FAILURES: Final = 200
_SENTENCE: Final = 160
_CELL: Final = 70
_KERNELS: Final = Layout(
    "kernels",
    header="Kernel",
    names="kernel",
    bars=("time_pct",),
    minor=("low_ns", "high_ns"),
    kernels={"name": 90},
    same_unit=("low_ns", "med_ns", "high_ns"),
)
_MAX_LINKS: Final = 12


@dataclass(frozen=True)
class FleetVerdict:
    """Three sentences about many captures: a summary, the largest loss, and the first thing to do; "" for none."""

    state: str
    cause: str = ""
    first: str = ""


@dataclass(frozen=True)
class FleetCause:
    """A cause of lost time: its share of the GPU time of all captures, and the captures that have it, with links.

    width: of a bar, in percent. more: captures that are not listed. recurs: several captures have it.
    """

    share: str
    width: float
    title: str
    action: str
    gains: str
    captures: str
    within: tuple[tuple[str, str], ...]
    more: int
    recurs: bool


@dataclass(frozen=True)
class FleetPage:
    """All values that the template of the page prints."""

    title: str
    facts: tuple[str, ...]
    verdict: FleetVerdict
    figures: tuple[Figure, ...]
    failures: tuple[tuple[str, str], ...]
    failed: str
    more_failures: str
    notes: tuple[str, ...]
    split: Wholes
    causes: tuple[FleetCause, ...]
    common: tuple[tuple[str, str], ...]
    differing: TableView | None
    outliers: TableView | None
    judged: str
    rule: str
    kernels: TableView | None
    captures: TableView
    packed: str


def fleet_page(fleet: Fleet) -> FleetPage:
    """Lay out the page."""
    kernels = _kernels_table(fleet)
    captures = fleet.captures
    failures = fleet.failures[:_MAX_FAILURES]
    more = len(fleet.failures) - len(failures)
    return FleetPage(
        title=counted(len(captures), "capture"),
        facts=facts_of(fleet),
        verdict=verdict_of(fleet),
        figures=tuple(_figures(fleet)),
        failures=tuple((printable(failure.name), excerpt(failure.reason, 300)) for failure in failures),
        failed=counted(len(fleet.failures), "file"),
        more_failures=f"And {more:,} more." if more else "",
        notes=tuple(printable(note) for note in fleet.notes[:_MAX_FAILURES]),
        split=replace(wholes(fleet.split.assign(device=0)), of="GPU time of all captures"),
        causes=tuple(_causes(fleet)),
        common=tuple((title, short_text(value)) for title, value in fleet.common),
        differing=_facts_table(fleet),
        outliers=_outliers(fleet),
        judged=counted(fleet.judged, "capture"),
        rule=fleet.rule,
        kernels=kernels,
        captures=_captures(fleet),
        packed=packed_tables([kernels] if kernels else []),
    )


def facts_of(fleet: Fleet) -> tuple[str, ...]:
    """Describe the captures: their GPUs, workloads and dates."""
    captures = fleet.captures
    dates = sorted(text[:10] for text in captures["captured_utc"] if text)
    return (
        *_few(captures["gpu"], "kinds of GPU"),
        *_few(captures["workload"], "workloads"),
        *([dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"] if dates else []),
    )


def verdict_of(fleet: Fleet) -> FleetVerdict:
    """Return the verdict on a fleet."""
    captures = fleet.captures
    whole, busy = float(captures["gpu_ns"].sum()), float(captures["busy_ns"].sum())
    count = counted(len(captures), "capture")
    if not whole:
        return FleetVerdict(f"{count} without work on a GPU.")
    state = f"{count}, {_gpu_time(whole)} of GPU time: GPUs {format_value(100 * busy / whole, 'busy_pct')} busy."
    # the causes of these waits are in other captures
    lone = int(captures["lone"].sum())
    waits = f"{lone:,} of {count} {'waits' if lone == 1 else 'wait'} for ranks not in them."
    if not len(fleet.causes):
        if lone:
            advice = "First: report the captures of each job together (`nightsight report rank*`)."
            return FleetVerdict(state, waits, advice)
        return FleetVerdict(state, "No cause of lost time costs enough to act on.")
    largest: dict[Any, Any] = fleet.causes.iloc[0].to_dict()
    share = format_value(float(largest["share_pct"]), "share_pct")
    where = "all captures" if largest["captures"] == len(captures) else f"{largest['captures']} of {count}"
    return FleetVerdict(
        f"{state} {waits}" if lone else state,
        f"{_prose(largest['cause'])}: {share} of all GPU time, in {where}.",
        f"First: {_prose(largest['action'])}." if largest["action"] else "",
    )


def _prose(text: object, length: int = _SENTENCE) -> str:
    sentence = printable(text)
    # the dots of a list that goes on stay
    return middle_cut(sentence if sentence.endswith("...") else sentence.rstrip("."), length)


def _few(values: "pd.Series[str]", noun: str) -> tuple[str, ...]:
    """Return the distinct values, or their number if there are more than two."""
    texts = sorted({text for text in values if text})
    return tuple(map(short_text, texts)) if len(texts) <= 2 else (f"{len(texts)} {noun}",)


def _gpu_time(time_ns: float) -> str:
    hours = time_ns / 3.6e12
    return f"{hours:,.{1 if hours >= 10 else 2}f} h" if hours >= 0.1 else format_value(time_ns, "time_ns")


def _figures(fleet: Fleet) -> Iterator[Figure]:
    captures = fleet.captures
    whole, busy = float(captures["gpu_ns"].sum()), float(captures["busy_ns"].sum())
    failed = f"{counted(len(fleet.failures), 'file')} could not be read" if fleet.failures else "all could be read"
    yield Figure("Captures", f"{len(captures):,}", failed)
    if whole:
        note = f"windows of all captures, for each GPU; {format_value(100 * busy / whole, 'busy_pct')} of it busy"
        yield Figure("GPU time", _gpu_time(whole), note)
    if len(fleet.causes):
        largest: dict[Any, Any] = fleet.causes.iloc[0].to_dict()
        recurs = largest["captures"] > 1
        share, note = format_value(float(largest["share_pct"]), "share_pct"), counted(largest["captures"], "capture")
        yield Figure("Largest recurring loss" if recurs else "Largest loss", share, f"of all GPU time, in {note}")
    if fleet.judged:
        note = f"of {counted(fleet.judged, 'capture')} in groups of five or more"
        yield Figure("Unlike the others", f"{len(fleet.outliers):,}", note)


def _causes(fleet: Fleet) -> Iterator[FleetCause]:
    """Yield the causes, those that recur first."""
    captures = fleet.captures
    files = dict(zip(captures["capture"], zip(captures["file"], captures["report"], strict=True), strict=True))
    for row in fleet.causes.to_dict("records"):
        cause: dict[Any, Any] = row
        median, largest = (format_value(float(cause[name]), "gain_pct") for name in ("gain_med_pct", "gain_max_pct"))
        others = f" (and {cause['others']} more of this kind)" if cause["others"] else ""
        within = [files[capture] for capture in cause["within"][:_MAX_LINKS]]
        action = _prose(cause["action"])
        yield FleetCause(
            share=format_value(float(cause["share_pct"]), "share_pct"),
            width=round(min(float(cause["share_pct"]), 100.0), 2),
            title=f"{_prose(cause['cause'])}{others}",
            action=f"{action[:1].upper()}{action[1:]}",
            gains=f"a step becomes {median} shorter" + (f", up to {largest}" if largest != median else ""),
            captures=f"{cause['captures']:,} of {counted(len(captures), 'capture')}",
            within=tuple((short_text(file), report) for file, report in within),
            more=int(cause["captures"]) - len(within),
            recurs=int(cause["captures"]) > 1,
        )


def _kernels_table(fleet: Fleet) -> TableView | None:
    if not len(fleet.kernels):
        return None
    labels = KernelLabels(fleet.kernels["name"])
    columns = ["name", "time_pct", "total_ns", "captures", "instances", "med_ns", "low_ns", "high_ns", "spread_pct",
               "family"]  # fmt: skip
    frame = fleet.kernels[columns]
    view = table_view(frame, _KERNELS.labeled(labels), caption="Kernels of all captures", name="kernels")
    if view.more:
        view = replace(view, more=f"The first {len(view.rows)} of {len(frame):,} kernels. The summaries hold all.")
    if frame["family"].nunique() <= 1:
        return view
    sums = frame.groupby("family", as_index=False)[["time_pct", "total_ns", "instances"]].sum()
    families = sums.sort_values(["total_ns", "family"], ascending=[False, True], ignore_index=True)
    rows = pd.concat([families.assign(name=families["family"], level=0), frame.assign(level=1)], ignore_index=True)
    # each family, and below it its kernels in their order
    rank = rows["family"].map({name: number for number, name in enumerate(families["family"])})
    rows = rows.iloc[np.lexsort((rows["level"], rank))].reindex(columns=[*columns, "level"])
    return view.grouped({"family": rows.reset_index(drop=True)})


def _facts_table(fleet: Fleet) -> TableView | None:
    """Return the values of each fact that differs, the rare ones of many in one row."""
    if not len(fleet.differing):
        return None
    rows = []
    for fact, of_fact in fleet.differing.groupby("fact", sort=False):
        texts = [short_text(value) if value else "(not said)" for value in of_fact["value"]]
        values = list(zip(texts, of_fact["captures"].tolist(), strict=True))
        if len(values) > _MAX_VALUES + 1:
            rare = [count for _, count in values[_MAX_VALUES:]]
            values = [*values[:_MAX_VALUES], (f"{len(rare)} other values", sum(rare))]
        for value, count in values:
            share = 100 * count / len(fleet.captures)
            cells = (Cell(value), Cell(f"{count:,}"), Cell(f"{share:.1f}", share=round(share, 2)))
            rows.append(Row(Cell(str(fact)), cells))
    columns = (
        Heading("Fact", is_number=False, name="fact"),
        Heading("Value", is_number=False, name="value"),
        Heading("Captures", name="captures"),
        Heading("Share", "%", name="share_pct"),
    )
    return TableView("What differs", columns, tuple(rows), name="differing")


def _outliers(fleet: Fleet) -> TableView | None:
    outliers = fleet.outliers
    if not len(outliers):
        return None
    frame = outliers.join(fleet.captures.set_index("capture")[["workload", "gpu"]], on="capture")
    group = frame["workload"] + " on " + frame["gpu"].where(frame["gpu"] != "", "no GPU")
    mostly = [
        f"{name}, {difference(time, 'time_ns')}" if isinstance(name, str) else ""
        for name, time in zip(frame["category"], floats(frame["category_ns"]), strict=True)
    ]
    texts = {"group": "Group", "mostly": "Mostly", "disturbed": "Disturbed"}
    numbers = {"step_ns": "Step", "usual_ns": "Usual step", "change_pct": "Change", "z": "Deviations"}
    frame = frame.assign(group=group, mostly=mostly)
    return _capture_table(frame, "Captures unlike the others", "outliers", numbers, texts)


def _captures(fleet: Fleet) -> TableView:
    captures = fleet.captures
    whole = captures["gpu_ns"]
    frame = captures.assign(busy_pct=100 * captures["busy_ns"] / whole.where(whole > 0)).head(_MAX_CAPTURES)
    numbers = {"step_ns": "Step", "busy_pct": "GPU busy", "gpu_ns": "GPU time", "gpus": "GPUs", "gain_pct": "Gain"}
    texts = {"workload": "Workload", "gpu": "GPU", "captured_utc": "Captured (UTC)", "cause": "First cause"}
    view, more = _capture_table(frame, "Captures", "captures", numbers, texts), len(captures) - len(frame)
    return replace(view, more=f"{more:,} more are in the summaries.") if more else view


def _capture_table(
    frame: pd.DataFrame, caption: str, name: str, numbers: Mapping[str, str], texts: Mapping[str, str]
) -> TableView:
    """Return a table of captures, with links to their reports; `numbers`, `texts`: the titles of columns."""
    scales = {column: scale_for(split(column)[1], floats(frame[column])) for column in numbers}
    if "usual_ns" in scales:
        scales["usual_ns"] = scales["step_ns"]
    columns = (
        Heading("Capture", is_number=False, name="file"),
        *(
            Heading(title, scales[column].symbol, name=column, scale=scales[column])
            for column, title in numbers.items()
        ),
        *(Heading(title, is_number=False, name=column) for column, title in texts.items()),
    )
    rows = []
    for row in frame.to_dict("records"):
        cells = [
            format_cell(None if pd.isna(row[column]) else float(row[column]), column, scale=scales[column])
            for column in numbers
        ]
        # without marks of code
        cells += [_prose(row[column], _CELL).replace("`", "") if row[column] else ABSENT for column in texts]
        rows.append(Row(Cell(short_text(row["file"]), href=str(row["report"])), tuple(map(Cell, cells))))
    return TableView(caption, columns, tuple(rows), name=name)
