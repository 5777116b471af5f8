"""What the list of all runs shows: every workload's runs, newest first, in units common to all."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pipeline.render.view import Cell, Column, Row, TableView, counted, printable
from pipeline.units import Scale, scale_for, split


@dataclass(frozen=True)
class IndexEntry:
    """One run in the list; `href` is relative to the list, None is what the run did not measure."""

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


_TEXTS = {"Captured (UTC)": "captured_utc", "GPU": "gpu", "Collector": "collector"}
_NUMBERS = {"Window": "window_ns", "GPU busy": "busy_pct", "Kernel time": "kernel_ns", "Step": "step_ns"}


@dataclass(frozen=True)
class IndexPage:
    """The runs of each workload, the workload that ran last first."""

    groups: tuple[tuple[str, TableView], ...]
    summary: str


def index_page(entries: Sequence[IndexEntry]) -> IndexPage:
    """Group runs by workload; a run without a time comes last."""
    newest = sorted(entries, key=lambda entry: (entry.captured_utc, entry.run_id), reverse=True)
    scales = {title: scale_for(split(name)[1], _known(newest, name)) for title, name in _NUMBERS.items()}
    columns = (
        Column("Run", is_number=False),
        *(Column(title, is_number=False) for title in (*_TEXTS, "Outcome")),
        *(Column(title, scale.symbol if _known(newest, _NUMBERS[title]) else "") for title, scale in scales.items()),
    )
    workloads = list(dict.fromkeys(entry.workload for entry in newest))
    groups = tuple(
        (
            printable(workload),
            TableView(
                f"Runs of {printable(workload)}",
                columns,
                tuple(_row(entry, scales) for entry in newest if entry.workload == workload),
            ),
        )
        for workload in workloads
    )
    return IndexPage(groups, f"{counted(len(newest), 'run')} of {counted(len(workloads), 'workload')}")


def _row(entry: IndexEntry, scales: dict[str, Scale]) -> Row:
    # quoted whole, so that whatever it holds it stays a relative path
    link = Cell(printable(entry.run_id), href=quote(entry.href, safe="/"))
    texts = (printable(getattr(entry, name)) if getattr(entry, name) else "–" for name in _TEXTS.values())
    values = (scales[title].format(getattr(entry, name)) for title, name in _NUMBERS.items())
    return Row(link, tuple(Cell(text) for text in (*texts, "failed" if entry.failed else "complete", *values)))


def _known(entries: Sequence[IndexEntry], name: str) -> list[float]:
    values = (getattr(entry, name) for entry in entries)
    return [value for value in values if value is not None]
