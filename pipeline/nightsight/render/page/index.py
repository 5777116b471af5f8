"""Content of the index page: the runs of each workload, newest first, in units that suit that workload."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from nightsight.model.history import Key, off_level, relevant_parameters
from nightsight.model.report import Report
from nightsight.render.page.html import fill, with_policy
from nightsight.render.summary import numbers
from nightsight.render.table.view import Cell, Heading, Row, TableView
from nightsight.texts import excerpt, printable
from nightsight.units import ABSENT, Scale, counted, format_cell, scale_for, signed, split


@dataclass(frozen=True)
class IndexEntry:
    """One run in the index; `href` is relative to the index page; None means not measured.

    machine: the facts other than the GPU that must be equal for runs to be comparable, in words.
    """

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
    machine: str = ""


# the columns that distinguish runs come first: a narrow screen shows only those
_NUMBERS: Final = {
    "Step, unprofiled": "step_ns",
    "GPU busy": "busy_pct",
    "Window": "window_ns",
    "Kernel time": "kernel_ns",
}
_TEXTS: Final = {"GPU": "gpu", "Collector": "collector", "Captured (UTC)": "captured_utc", "Commit": "commit"}
_WATCHED: Final = ("step_ns", "window_ns")
_LAST: Final = 5
_WORDS: Final = 240  # characters
_BEFORE: Final = 4  # runs that make a level


@dataclass(frozen=True)
class Machine:
    """The measurements of the newest complete runs on one machine, newest first, compared with earlier ones.

    is_off: the last runs deviate from the previous level.
    """

    name: str
    last: str
    state: str
    is_off: bool


@dataclass(frozen=True)
class IndexGroup:
    """The runs of one workload."""

    workload: str
    table: TableView
    machines: tuple[Machine, ...]


@dataclass(frozen=True)
class IndexPage:
    """The runs of each workload, the most recent workload first."""

    groups: tuple[IndexGroup, ...]
    summary: str
    trends: str


def index_entry(report: Report, *, failed: bool) -> IndexEntry:
    """Return the index entry of one run, wherever it is; `failed` means that its program did not exit cleanly."""
    run, environment = numbers(report), report.environment
    return IndexEntry(
        workload=report.title,
        run_id="",
        href="",
        captured_utc=environment.captured_utc,
        gpu=environment.gpu,
        collector=environment.collector,
        window_ns=run.window_ns,
        busy_pct=run.busy_pct,
        kernel_ns=run.kernel_ns,
        step_ns=run.step_ns,
        failed=failed,
        commit=environment.commit,
        machine=_machine(report),
    )


def _machine(report: Report) -> str:
    """Return the facts that must be equal, with the arguments as given, or their digest if they may be private."""
    key = Key.of(report.environment, report.conditions, report.parameters)
    arguments = (f"{name} {text}" for name, text in relevant_parameters(report.parameters).items())
    return ", ".join(filter(None, (key.without_arguments, *arguments)))


def render_index(entries: Sequence[IndexEntry], *, trends: str = "") -> str:
    """Render the index of runs as one HTML page. `trends`: the address of the trend page, if there is one."""
    return with_policy(fill("index.html", page=index_page(entries, trends=trends)))


def index_page(entries: Sequence[IndexEntry], *, trends: str = "") -> IndexPage:
    """IndexGroup runs by workload; runs without a timestamp come last. `trends`: the address of the trend page."""
    newest = sorted(entries, key=lambda entry: (entry.captured_utc, entry.run_id), reverse=True)
    workloads = list(dict.fromkeys(entry.workload for entry in newest))
    groups = tuple(_group(name, [entry for entry in newest if entry.workload == name]) for name in workloads)
    return IndexPage(groups, f"{counted(len(newest), 'run')} of {counted(len(workloads), 'workload')}", trends)


def _group(workload: str, runs: Sequence[IndexEntry]) -> IndexGroup:
    scales = {title: scale_for(split(name)[1], _entry_values(runs, name)) for title, name in _NUMBERS.items()}
    columns = (
        *(Heading(title, is_number=False, name=title.lower()) for title in ("Run", "Outcome")),
        *(_column(title, scale, runs) for title, scale in scales.items()),
        *(Heading(title, is_number=False, name=name) for title, name in _TEXTS.items()),
    )
    name = printable(workload)
    table = TableView(f"Runs of {name}", columns, tuple(_row(entry, scales) for entry in runs))
    return IndexGroup(name, table, tuple(_machines(runs)))


def _machines(runs: Sequence[IndexEntry]) -> Iterator[Machine]:
    """Yield the last measurements of each machine; runs on different machines are never compared."""
    keys = dict.fromkeys((run.gpu, run.machine) for run in runs)
    for gpu, machine in keys:
        complete = [run for run in runs if (run.gpu, run.machine) == (gpu, machine) and not run.failed]
        name = next((name for name in _WATCHED if _entry_values(complete, name)), None)
        if name is None:
            continue
        values = _entry_values(complete, name)
        count, percent = off_level(values[::-1], least=_BEFORE)
        if len(values) <= _BEFORE:
            state = f"no trend from {counted(len(values), 'run')}"
        elif count:
            state = f"the last {counted(count, 'run')} {signed(percent)} % from the runs before"
        else:
            state = "steady"
        title = next(title for title, column in _NUMBERS.items() if column == name)
        scale = scale_for("ns", values)
        last = ", ".join(map(scale.format, values[:_LAST]))
        words = ", ".join(filter(None, (gpu or "no GPU", machine)))
        yield Machine(excerpt(words, _WORDS), f"{title} (newest first): {last} {scale.symbol}", state, bool(count))


def _column(title: str, scale: Scale, runs: Sequence[IndexEntry]) -> Heading:
    name = _NUMBERS[title]
    return Heading(title, scale.symbol if _entry_values(runs, name) else "", name=name, scale=scale)


def _row(entry: IndexEntry, scales: dict[str, Scale]) -> Row:
    # fully quoted, so that it stays a relative path whatever it contains
    link = Cell(printable(entry.run_id), href=quote(entry.href, safe="/"))
    values = (format_cell(getattr(entry, name), name, scale=scales[title]) for title, name in _NUMBERS.items())
    texts = (printable(getattr(entry, name)) if getattr(entry, name) else ABSENT for name in _TEXTS.values())
    outcome = "failed" if entry.failed else "complete"
    return Row(link, tuple(Cell(text) for text in (outcome, *values, *texts)))


def _entry_values(entries: Sequence[IndexEntry], name: str) -> list[float]:
    values = (getattr(entry, name) for entry in entries)
    return [value for value in values if value is not None]
