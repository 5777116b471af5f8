"""What a report's page says and in which order: banners, key figures, a section per result, how it was measured."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nightsight.model import Environment, Report, Result
from nightsight.render.figure.bars import Chart, DotPlot, Mix, trials
from nightsight.render.figure.charts import SERIES, Pictures, charts_of, curves_of, mixes_of, pictures_of
from nightsight.render.figure.curves import TimeChart
from nightsight.render.figure.rooflines import Roofline, rooflines_of
from nightsight.render.page.figures import Figure, key_figures
from nightsight.render.page.findings import Advice, Banner, advice, banners
from nightsight.render.page.nav import Links, links
from nightsight.render.page.summary import numbers
from nightsight.render.table.layouts import layout_of
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.replayed import PREFIX, numbered
from nightsight.render.table.view import TableView, printable, table_view, texts_of
from nightsight.units import format_value

Pairs = tuple[tuple[str, str], ...]

_METHOD: Final = (
    *(
        "devices",
        "gpu_peaks",
        "range_coverage",
        "ncu_match",
        "ncu_roofs",
        "diagnostics",
        "profiler_overhead",
        "not_shown",
    ),
)
# what most captures have; what others lack is listed together and not section by section
_CORE: Final = ("gpu_time", "cuda_gpu_kern_sum", "memory_operations", "launch_overhead", "nvtx_ranges", "cuda_api_sum")
_LEAD: Final = "time_split"
TABLE_BYTES: Final = 400_000
"""The most bytes that a page spends on the rows of tables beyond those it prints."""
_FACTS: Final = {
    "gpu": "GPU",
    "driver": "Driver",
    "cuda": "CUDA",
    "cpu": "CPU",
    "os": "Operating system",
    "python": "Python",
    "torch": "PyTorch",
    "collector": "Collector",
    "collector_version": "Collector version",
    "schema_version": "Schema of its files",
    "captured_utc": "Captured (UTC)",
    "commit": "Commit",
}


@dataclass(frozen=True)
class Section:
    """One result: pictures and table, or the sentence `message` in their place."""

    anchor: str
    title: str
    help: str = ""
    charts: tuple[Chart, ...] = ()
    curves: tuple[TimeChart, ...] = ()
    mixes: tuple[Mix, ...] = ()
    rooflines: tuple[Roofline, ...] = ()
    pictures: Pictures | None = None
    table: TableView | None = None
    notes: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Method:
    """How the numbers were come by."""

    environment: Pairs
    parameters: Pairs
    stages: Pairs
    trials: DotPlot | None
    sections: tuple[Section, ...]
    definitions: Pairs


@dataclass(frozen=True)
class Page:
    """A report ready to be placed on a page.

    lead: the section that comes before the advice. unavailable: titles of results, with why these are not there.
    tables: all rows of the tables, compressed (packed_tables).
    """

    title: str
    facts: tuple[str, ...]
    banners: tuple[Banner, ...]
    advice: tuple[Advice, ...]
    figures: tuple[Figure, ...]
    nav: tuple[Links, ...]
    lead: Section | None
    sections: tuple[Section, ...]
    unavailable: Pairs
    method: Method
    generator: str
    tables: str


def page(report: Report, *, table_bytes: int = TABLE_BYTES) -> Page:
    """Turn a report into the page that shows it."""
    report = replace(report, results=numbered(report.results))
    there = [result for result in report.results if result.table is not None]
    sections = tuple(_section(result, report) for result in there if _has_section(result))
    method = _method(report)
    tables = (section.table for section in (*sections, *method.sections) if section.table)
    return Page(
        printable(report.title),
        _facts(report.environment),
        banners(report.findings),
        advice(report.findings, {section.anchor: section.title for section in sections}),
        key_figures(numbers(report)),
        links((section.anchor, section.title) for section in sections),
        next((section for section in sections if section.anchor == _LEAD), None),
        tuple(section for section in sections if section.anchor != _LEAD),
        _unavailable(report.results),
        method,
        printable(report.generator) if report.generator else "",
        packed_tables(tables, most_bytes=table_bytes),
    )


def _has_section(result: Result) -> bool:
    return result.name not in (*_METHOD, *SERIES) and (len(result.rows) > 0 or result.name in _CORE)


def _facts(environment: Environment) -> tuple[str, ...]:
    """What the header says: GPU, collector, date and versions, as far as they are known."""
    facts = (
        environment.gpu,
        f"{environment.collector} {environment.collector_version}".strip(),
        environment.captured_utc and f"{environment.captured_utc} UTC",
        environment.driver and f"driver {environment.driver}",
        environment.cuda and f"CUDA {environment.cuda}",
        environment.torch and f"PyTorch {environment.torch}",
        environment.commit and f"commit {environment.commit}",
    )
    return tuple(printable(fact) for fact in facts if fact)


def _unavailable(results: tuple[Result, ...]) -> Pairs:
    """Return each reason for which results could not be had, after their titles."""
    lacking: dict[str, list[Result]] = {}
    for result in results:
        if result.table is None:
            lacking.setdefault(printable(result.unavailable).rstrip("."), []).append(result)
        elif result.rows.empty and result.name not in (*_CORE, *_METHOD, *SERIES):
            reason = "; ".join(note.rstrip(".") for note in result.notes) or "looked for, and none in this capture"
            lacking.setdefault(printable(reason), []).append(result)
    replays = sum(result.name.startswith(PREFIX) for result in results)
    return tuple((", ".join(_titles(group, replays)), reason) for reason, group in lacking.items())


def _titles(results: list[Result], replays: int) -> Iterator[str]:
    """Name the results of ncu once if all of these `replays` are among them."""
    of_ncu = [result for result in results if result.name.startswith(PREFIX)]
    is_one = len(of_ncu) == replays > 1
    for result in results:
        if not is_one or result not in of_ncu:
            yield printable(result.title)
        elif result is of_ncu[0]:
            yield "Single kernels (Nsight Compute)"


def _section(result: Result, report: Report) -> Section:
    layout = layout_of(result)
    title, notes = printable(result.title), tuple(printable(note) for note in result.notes)
    section = Section(printable(result.name), title, printable(result.help) if result.help else "", notes=notes)
    if not len(result.rows):
        return replace(
            section, message=f"{layout.noun[:1].upper()}{layout.noun[1:]}: none were recorded in this capture."
        )
    section = replace(
        section,
        charts=charts_of(result.name, result.rows),
        curves=curves_of(result.name, report),
        mixes=mixes_of(result.name, result.rows),
        rooflines=rooflines_of(result.name, report),
        pictures=pictures_of(result.name, report),
    )
    if result.name == "gpu_time" and len(result.rows) == 1:
        return section  # the chart and the key figures say it all
    return replace(section, table=table_view(result.rows, layout, caption=title, name=section.anchor))


def _method(report: Report) -> Method:
    environment = {label: getattr(report.environment, name) for name, label in _FACTS.items()}
    stages = {name: format_value(1e9 * seconds, "stage_ns") for name, seconds in report.stages_s.items()}
    results = [result for result in report.results if result.name in _METHOD and result.table is not None]
    times = report.benchmark.step_ns if report.benchmark else ()
    return Method(
        texts_of(environment),
        texts_of(report.parameters),
        texts_of(stages),
        trials("Step time of each trial, without a profiler", times) if times else None,
        tuple(_section(result, report) for result in results),
        tuple((printable(result.title), printable(result.help)) for result in report.results if result.help),
    )
