"""Content of the page of a survey: what costs most over all captures first, then what they share and differ in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from nightsight.events.kernel_labels import Labels
from nightsight.model.fleet import Survey
from nightsight.render.figure.shares import Wholes, wholes
from nightsight.render.page.figures import Figure
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.view import Cell, Column, Layout, Row, TableView, counted, floats, short_text, table_view
from nightsight.texts import middle_cut, printable
from nightsight.units import ABSENT, format_cell, format_value, scale_for, split

TABLE_BYTES: Final = 400_000
_MOST_CAPTURES: Final = 2_000
_MOST_VALUES: Final = 6
_MOST_FAILURES: Final = 200
_HOUR: Final = 3.6e12
_LONGEST: Final = 160
_CELL: Final = 70
_NOT_SAID: Final = "(not said)"
_KERNELS: Final = Layout(
    "kernels",
    header="Kernel",
    names="kernel",
    bars=("time_pct",),
    minor=("low_ns", "high_ns"),
    kernels={"name": 90},
    same_unit=("low_ns", "med_ns", "high_ns"),
)
_CAUSES: Final = Layout("causes", header="Cause", name="cause", names="prose", bars=("share_pct",))


@dataclass(frozen=True)
class Verdict:
    """What many captures say in three sentences: what they are, what costs most, what to do first; "" for nothing."""

    state: str
    cause: str = ""
    first: str = ""


@dataclass(frozen=True)
class FleetPage:
    """All of the page."""

    title: str
    facts: tuple[str, ...]
    verdict: Verdict
    figures: tuple[Figure, ...]
    failures: tuple[tuple[str, str], ...]
    failed: str
    left_out: str
    notes: tuple[str, ...]
    split: Wholes
    causes: TableView | None
    common: tuple[tuple[str, str], ...]
    differing: TableView | None
    outliers: TableView | None
    judged: str
    rule: str
    kernels: TableView | None
    captures: TableView
    packed: str


def fleet_page(survey: Survey) -> FleetPage:
    """Lay out the page."""
    kernels, causes = _kernels(survey), _causes(survey)
    captures = survey.captures
    dates = sorted(text[:10] for text in captures["captured_utc"] if text)
    facts = (
        *_few(captures["gpu"], "kinds of GPU"),
        *_few(captures["workload"], "workloads"),
        *([dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"] if dates else []),
    )
    more = len(survey.failures) - _MOST_FAILURES
    return FleetPage(
        title=counted(len(captures), "capture"),
        facts=facts,
        verdict=verdict_of(survey),
        figures=tuple(_figures(survey)),
        failures=tuple(
            (printable(each.name), middle_cut(printable(each.reason), 300)) for each in survey.failures[:_MOST_FAILURES]
        ),
        failed=counted(len(survey.failures), "file"),
        left_out=f"And {more:,} more." if more > 0 else "",
        notes=tuple(printable(note) for note in survey.notes[:_MOST_FAILURES]),
        split=_split(survey),
        causes=causes,
        common=tuple((title, short_text(value)) for title, value in survey.common),
        differing=_differing(survey),
        outliers=_outliers(survey),
        judged=counted(survey.judged, "capture"),
        rule=survey.rule,
        kernels=kernels,
        captures=_captures(survey),
        packed=packed_tables([view for view in (causes, kernels) if view is not None], most_bytes=TABLE_BYTES),
    )


def verdict_of(survey: Survey) -> Verdict:
    """Return the verdict on a survey."""
    captures = survey.captures
    whole, busy = float(captures["gpu_ns"].sum()), float(captures["busy_ns"].sum())
    count = counted(len(captures), "capture")
    if not whole:
        return Verdict(f"{count} without work on a GPU.")
    state = f"{count}, {_gpu_time(whole)} of GPU time: GPUs {format_value(100 * busy / whole, 'busy_pct')} busy."
    # what these wait for is in other captures, so nothing here is a cause of it
    lone = int(captures["lone"].sum())
    waits = f"{lone:,} of {counted(len(captures), 'capture')} {'waits' if lone == 1 else 'wait'} for ranks not in them."
    if not len(survey.causes):
        if lone:
            return Verdict(state, waits, "First: report the captures of each job together (`nightsight report rank*`).")
        return Verdict(state, "No cause of lost time costs enough to act on.")
    state = f"{state} {waits}" if lone else state
    most: dict[Any, Any] = survey.causes.iloc[0].to_dict()
    share = format_value(float(most["share_pct"]), "share_pct")
    where = "all captures" if most["captures"] == len(captures) else f"{most['captures']} of {len(captures)}"
    cause = f"{_prose(most['cause'])}: {share} of all GPU time, in {where}."
    return Verdict(state, cause, f"First: {_prose(most['action'])}." if most["action"] else "")


def _prose(text: object, length: int = _LONGEST) -> str:
    return middle_cut(printable(text).rstrip("."), length)


def _cell(text: object, length: int = _LONGEST) -> str:
    """Return a sentence for a table, where nothing is marked as code."""
    return _prose(text, length).replace("`", "")


def _few(values: "pd.Series[str]", noun: str) -> tuple[str, ...]:
    texts = sorted({text for text in values if text})
    return tuple(map(short_text, texts)) if len(texts) <= 2 else (f"{len(texts)} {noun}",)


def _gpu_time(time_ns: float) -> str:
    hours = time_ns / _HOUR
    return f"{hours:,.{1 if hours >= 10 else 2}f} h" if hours >= 0.1 else format_value(time_ns, "time_ns")


def _figures(survey: Survey) -> Iterator[Figure]:
    captures = survey.captures
    whole, busy = float(captures["gpu_ns"].sum()), float(captures["busy_ns"].sum())
    failed = f"{counted(len(survey.failures), 'file')} could not be read" if survey.failures else "all could be read"
    yield Figure("Captures", f"{len(captures):,}", failed)
    if whole:
        note = f"windows of all captures, for each GPU; {format_value(100 * busy / whole, 'busy_pct')} of it busy"
        yield Figure("GPU time", _gpu_time(whole), note)
    if len(survey.causes):
        first: dict[Any, Any] = survey.causes.iloc[0].to_dict()
        note = f"lost to the first cause, in {counted(first['captures'], 'capture')}"
        yield Figure("Largest loss", format_value(float(first["share_pct"]), "share_pct"), note)
    if survey.judged:
        said = f"of {counted(survey.judged, 'capture')} in groups of five or more"
        yield Figure("Unlike the others", f"{len(survey.outliers):,}", said)


def _split(survey: Survey) -> Wholes:
    bars = wholes(survey.split.assign(device=0))
    return replace(bars, of="GPU time of all captures")


def _causes(survey: Survey) -> TableView | None:
    causes = survey.causes
    if not len(causes):
        return None
    others = causes["others"].map(lambda count: f" (and {count} more of this kind)" if count else "")
    with_others = causes.assign(cause=causes["cause"].map(_cell) + others)
    columns = ["cause", "share_pct", "captures", "gain_med_pct", "gain_max_pct", "action", "rule"]
    renamed = {"action": "what_to_do", "share_pct": "gpu_time_pct", "gain_med_pct": "median_gain_pct"}
    renamed["gain_max_pct"] = "largest_gain_pct"
    layout = replace(_CAUSES, bars=("gpu_time_pct",))
    return table_view(with_others[columns].rename(columns=renamed), layout, caption="Causes", name="causes")


def _kernels(survey: Survey) -> TableView | None:
    if not len(survey.kernels):
        return None
    labels = Labels(survey.kernels["name"])
    columns = ["name", "time_pct", "total_ns", "captures", "instances", "med_ns", "low_ns", "high_ns", "spread_pct",
               "family"]  # fmt: skip
    frame = survey.kernels[columns]
    view = table_view(frame, _KERNELS.labelled(labels), caption="Kernels of all captures", name="kernels")
    if view.more:
        view = replace(view, more=f"The first {len(view.rows)} of {len(frame):,} kernels. The summaries hold all.")
    return view.grouped({"family": _by_family(frame)}) if frame["family"].nunique() > 1 else view


def _by_family(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the rows below their families, the most time first."""
    sums = kernels.groupby("family")[["time_pct", "total_ns", "instances"]].sum().reset_index()
    ordered = sums.sort_values(["total_ns", "family"], ascending=[False, True])
    parts = []
    for family in ordered.to_dict("records"):
        members = kernels[kernels["family"] == family["family"]]
        parts += [pd.DataFrame([{**family, "name": family["family"], "level": 0}]), members.assign(level=1)]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return table.reindex(columns=[*kernels.columns, "level"])


def _differing(survey: Survey) -> TableView | None:
    """Return the values of each fact that differs, the rare ones of many in one row."""
    table, count = survey.differing, len(survey.captures)
    if not len(table):
        return None
    rows = []
    for fact, values_of_fact in table.groupby("fact", sort=False):
        values = [
            (short_text(row["value"]) if row["value"] else _NOT_SAID, row["captures"])
            for row in values_of_fact.to_dict("records")
        ]
        if len(values) > _MOST_VALUES + 1:
            rest = values[_MOST_VALUES:]
            values = [*values[:_MOST_VALUES], (f"{len(rest)} other values", sum(many for _, many in rest))]
        for value, many in values:
            cells = (
                Cell(value),
                Cell(f"{many:,}"),
                Cell(f"{100 * many / count:.1f}", share=round(100 * many / count, 2)),
            )
            rows.append(Row(Cell(str(fact)), cells))
    columns = (
        Column("Fact", is_number=False, name="fact"),
        Column("Value", is_number=False, name="value"),
        Column("Captures", name="captures"),
        Column("Share", "%", name="share_pct"),
    )
    return TableView("What differs", columns, tuple(rows), name="differing")


def _outliers(survey: Survey) -> TableView | None:
    outliers = survey.outliers
    if not len(outliers):
        return None
    of = survey.captures.set_index("capture")[["workload", "gpu"]]
    shown = outliers.join(of, on="capture").assign(
        group=lambda frame: frame["workload"] + " on " + frame["gpu"].where(frame["gpu"] != "", "no GPU")
    )
    mostly = [
        f"{name}, {'+' if time > 0 else '−'}{format_value(abs(time), 'time_ns')}" if isinstance(name, str) else ""
        for name, time in zip(shown["category"], floats(shown["category_ns"]), strict=True)
    ]
    texts = {"group": "Group", "mostly": "Mostly", "disturbed": "Disturbed"}
    numbers = {"step_ns": "Step", "usual_ns": "Usual step", "change_pct": "Change", "z": "Deviations"}
    return _linked(shown.assign(mostly=mostly), "Captures unlike the others", "outliers", numbers, texts)


def _captures(survey: Survey) -> TableView:
    captures = survey.captures
    whole = captures["gpu_ns"]
    shown = captures.assign(busy_pct=100 * captures["busy_ns"] / whole.where(whole > 0))
    numbers = {"step_ns": "Step", "busy_pct": "GPU busy", "gpu_ns": "GPU time", "gpus": "GPUs", "gain_pct": "Gain"}
    texts = {"workload": "Workload", "gpu": "GPU", "captured_utc": "Captured (UTC)", "cause": "First cause"}
    more = len(captures) - _MOST_CAPTURES
    view = _linked(shown.head(_MOST_CAPTURES), "Captures", "captures", numbers, texts)
    return replace(view, more=f"{more:,} more are in the summaries.") if more > 0 else view


def _linked(frame: pd.DataFrame, caption: str, name: str, numbers: dict[str, str], texts: dict[str, str]) -> TableView:
    """Return a table of captures that leads to their reports."""
    scales = {column: scale_for(split(column)[1], floats(frame[column])) for column in numbers}
    if "usual_ns" in scales:
        scales["usual_ns"] = scales["step_ns"]
    columns = (
        Column("Capture", is_number=False, name="file"),
        *(Column(title, scales[column].symbol, name=column, scale=scales[column]) for column, title in numbers.items()),
        *(Column(title, is_number=False, name=column) for column, title in texts.items()),
    )
    rows = []
    for row in frame.to_dict("records"):
        values = (
            format_cell(None if pd.isna(row[column]) else float(row[column]), column, scale=scales[column])
            for column in numbers
        )
        said = (_cell(row[column], _CELL) if row[column] else ABSENT for column in texts)
        rows.append(Row(Cell(short_text(row["file"]), href=str(row["report"])), tuple(map(Cell, (*values, *said)))))
    return TableView(caption, columns, tuple(rows), name=name)
