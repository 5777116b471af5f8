"""Content of the index page: the runs of each workload, newest first, in units that suit that workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import quote

from nightsight.model import Report
from nightsight.render.page.summary import numbers
from nightsight.render.table.view import Cell, Column, Row, TableView, counted, printable
from nightsight.units import ABSENT, Scale, format_cell, format_value, scale_for, split


@dataclass(frozen=True)
class IndexEntry:
    """One run in the index; `href` is relative to the index page; None means not measured."""

    workload: str
    run_id: str
    href: str
    captured_utc: str
    gpu: str
    collector: str
    window_ns: float | None
    busy_pct: float | None
    kernel_ns: float | None
    step_ns: float | None
    failed: bool
    commit: str = ""


# the columns that distinguish runs come first: a narrow screen shows only those
_NUMBERS: Final = {
    "Step, unprofiled": "step_ns",
    "GPU busy": "busy_pct",
    "Window": "window_ns",
    "Kernel time": "kernel_ns",
}
_TEXTS: Final = {"GPU": "gpu", "Collector": "collector", "Captured (UTC)": "captured_utc", "Commit": "commit"}
_SPARK: Final = ("step_ns", "window_ns")
_MOST_DOTS: Final = 40


@dataclass(frozen=True)
class Spark:
    """A number over the newest runs, oldest first: points in percent of the plot, and its range as text."""

    title: str
    points: tuple[tuple[float, float], ...]
    low: str
    high: str

    @property
    def lines(self) -> tuple[tuple[tuple[float, float], tuple[float, float]], ...]:
        """The line segments between consecutive points."""
        return tuple(pairwise(self.points))


@dataclass(frozen=True)
class Group:
    """The runs of one workload."""

    workload: str
    table: TableView
    spark: Spark | None


@dataclass(frozen=True)
class IndexPage:
    """The runs of each workload, the most recent workload first."""

    groups: tuple[Group, ...]
    summary: str


def index_entry(report: Report, *, run_id: str, href: str, failed: bool) -> IndexEntry:
    """Return the index entry of one run; `failed` means that its program did not exit cleanly."""
    run, environment = numbers(report), report.environment
    return IndexEntry(
        workload=report.title,
        run_id=run_id,
        href=href,
        captured_utc=environment.captured_utc,
        gpu=environment.gpu,
        collector=environment.collector,
        window_ns=run.window_ns,
        busy_pct=run.busy_pct,
        kernel_ns=run.kernel_ns,
        step_ns=run.step_ns,
        failed=failed,
        commit=environment.commit,
    )


def index_page(entries: Sequence[IndexEntry]) -> IndexPage:
    """Group runs by workload; runs without a timestamp come last."""
    newest = sorted(entries, key=lambda entry: (entry.captured_utc, entry.run_id), reverse=True)
    workloads = list(dict.fromkeys(entry.workload for entry in newest))
    groups = tuple(_group(name, [entry for entry in newest if entry.workload == name]) for name in workloads)
    return IndexPage(groups, f"{counted(len(newest), 'run')} of {counted(len(workloads), 'workload')}")


def _group(workload: str, runs: Sequence[IndexEntry]) -> Group:
    scales = {title: scale_for(split(name)[1], _known(runs, name)) for title, name in _NUMBERS.items()}
    columns = (
        *(Column(title, is_number=False, name=title.lower()) for title in ("Run", "Outcome")),
        *(_column(title, scale, runs) for title, scale in scales.items()),
        *(Column(title, is_number=False, name=name) for title, name in _TEXTS.items()),
    )
    name = printable(workload)
    table = TableView(f"Runs of {name}", columns, tuple(_row(entry, scales) for entry in runs))
    return Group(name, table, _spark(runs))


def _spark(runs: Sequence[IndexEntry]) -> Spark | None:
    """Return the step times, else the windows, of the newest complete runs; None for fewer than two."""
    complete = [entry for entry in reversed(runs) if not entry.failed]
    name = next((name for name in _SPARK if len(_known(complete, name)) > 1), None)
    if name is None:
        return None
    values = _known(complete, name)[-_MOST_DOTS:]
    low, high = min(values), max(values)
    span = high - low or 1.0
    steps = len(values) - 1
    points = tuple(
        (round(100 * place / steps, 2), round(100 - 100 * (value - low) / span, 2) if high > low else 50.0)
        for place, value in enumerate(values)
    )
    title = next(title for title, column in _NUMBERS.items() if column == name)
    return Spark(
        f"{title}, last {len(values)} complete runs", points, *(format_value(end, name) for end in (low, high))
    )


def _column(title: str, scale: Scale, runs: Sequence[IndexEntry]) -> Column:
    name = _NUMBERS[title]
    return Column(title, scale.symbol if _known(runs, name) else "", name=name, scale=scale)


def _row(entry: IndexEntry, scales: dict[str, Scale]) -> Row:
    # fully quoted, so that it stays a relative path whatever it contains
    link = Cell(printable(entry.run_id), href=quote(entry.href, safe="/"))
    values = (format_cell(getattr(entry, name), name, scale=scales[title]) for title, name in _NUMBERS.items())
    texts = (printable(getattr(entry, name)) if getattr(entry, name) else ABSENT for name in _TEXTS.values())
    outcome = "failed" if entry.failed else "complete"
    return Row(link, tuple(Cell(text) for text in (outcome, *values, *texts)))


def _known(entries: Sequence[IndexEntry], name: str) -> list[float]:
    values = (getattr(entry, name) for entry in entries)
    return [value for value in values if value is not None]
