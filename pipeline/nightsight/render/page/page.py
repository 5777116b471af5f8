"""Content and order of a report page: banners, key figures, advice, one section per result, and the method."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nightsight.model import Environment, Report, Result
from nightsight.render.figure.bars import DotPlot, trials
from nightsight.render.figure.charts import Pictures, pictures_of
from nightsight.render.page.figures import Figure, key_figures
from nightsight.render.page.findings import Advice, Banner, advice, banners
from nightsight.render.page.summary import numbers
from nightsight.render.page.windows import Choices, choices
from nightsight.render.table.layouts import labels_of, layout_of
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.replayed import HEADINGS, PREFIX, numbered
from nightsight.render.table.view import Labels, TableView, printable, table_view, texts_of
from nightsight.results import GPU_TIME, REMEDIES, REPLAY, TIME_SPLIT, WHAT_IF, Place, entry_of
from nightsight.units import format_value, heading

Pairs = tuple[tuple[str, str], ...]

TABLE_BYTES: Final = 400_000
"""How many bytes of a page table rows may take beyond those that are printed."""
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
    "schema_version": "Schema of capture files",
    "captured_utc": "Captured (UTC)",
    "commit": "Commit",
}


@dataclass(frozen=True)
class Definition:
    """The meaning of a column whose heading does not explain itself; `values` are its possible texts with meanings."""

    heading: str
    meaning: str
    values: Pairs = ()


@dataclass(frozen=True)
class Section:
    """One result: its pictures and table, or the sentence `message` instead."""

    anchor: str
    title: str
    help: str = ""
    columns: tuple[Definition, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    table: TableView | None = None
    notes: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Method:
    """How the report was measured: environment, parameters, and time per stage."""

    environment: Pairs
    parameters: Pairs
    stages: Pairs
    trials: DotPlot | None
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Links:
    """A group of links to sections, as (anchor, text); `group` is "" for results that are not in the register."""

    group: str
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Page:
    """Everything that the template of a report prints.

    lead: the section before the advice. windows: those that a reader can choose there. unchecked: advice rules that
    could not be checked, with the reason. nothing: what to say if there is no advice. unavailable: titles of missing
    results, with the reason. tables: all rows of the tables, compressed (packed_tables).
    """

    title: str
    facts: tuple[str, ...]
    banners: tuple[Banner, ...]
    advice: tuple[Advice, ...]
    unchecked: Pairs
    nothing: str
    figures: tuple[Figure, ...]
    nav: tuple[Links, ...]
    lead: Section | None
    windows: Choices
    sections: tuple[Section, ...]
    unavailable: Pairs
    method: Method
    generator: str
    tables: str


def page(report: Report, *, table_bytes: int = TABLE_BYTES) -> Page:
    """Build the page of a report; table rows beyond the printed ones get at most `table_bytes`."""
    # labels come from the plain names, before launches are numbered
    labels = labels_of(report.results)
    report = replace(report, results=numbered(report.results))
    there = [result for result in report.results if result.table is not None]
    sections = tuple(_section(result, report, labels) for result in there if _has_section(result))
    method = _method(report, labels)
    tables = (section.table for section in (*sections, *method.sections) if section.table)
    return Page(
        printable(report.title),
        _facts(report.environment),
        banners(report.findings),
        advice(report.findings, {section.anchor: section.title for section in sections}),
        _unchecked(report.unchecked),
        _nothing(report),
        key_figures(numbers(report)),
        links((section.anchor, section.title) for section in sections),
        next((section for section in sections if section.anchor == TIME_SPLIT.name), None),
        choices(report),
        tuple(section for section in sections if section.anchor != TIME_SPLIT.name),
        _unavailable(report.results),
        method,
        printable(report.generator) if report.generator else "",
        packed_tables(tables, most_bytes=table_bytes),
    )


def _has_section(result: Result) -> bool:
    entry = entry_of(result.name)
    return _is_at(result, "section", "lead") and (len(result.rows) > 0 or (entry is not None and entry.is_core))


def _is_at(result: Result, *places: Place) -> bool:
    """Whether a result belongs in one of these places; one that is not in the register gets a section."""
    entry = entry_of(result.name)
    return (entry.place if entry else "section") in places


def _nothing(report: Report) -> str:
    """Return what to say if there is no advice: what was looked for, and the most that any of it costs.

    Nothing if nothing could be looked for: the page then lists what was not checked, and why.
    """
    if not len(report.rows(REPLAY)) or REMEDIES[0][0] in report.unchecked:
        return ""
    gains = report.rows(WHAT_IF)
    if not {"gain_pct", "rule"} <= set(gains) or gains["gain_pct"].isna().all():
        return f"Looked for {len(REMEDIES)} causes, and found none."
    most = gains.nlargest(1, "gain_pct").to_dict("records")[0]
    gain = format_value(float(most["gain_pct"]), "gain_pct")
    return f"Looked for {len(REMEDIES)} causes. None costs enough to act on: the most is {gain} ({most['rule']})."


def _unchecked(rules: Mapping[str, str]) -> Pairs:
    """Group the advice rules that could not be checked by reason; return (names, reason)."""
    reasons: dict[str, list[str]] = {}
    for rule, reason in rules.items():
        # the page adds the full stop itself
        reasons.setdefault(printable(reason).rstrip("."), []).append(printable(rule))
    return tuple((", ".join(names), reason) for reason, names in reasons.items())


def _facts(environment: Environment) -> tuple[str, ...]:
    """Return the facts of the header that are known: GPU, collector, date and versions."""
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
    """Group the results that are missing or empty by reason; return (titles, reason)."""
    lacking: dict[str, list[Result]] = {}
    for result in results:
        if result.table is None:
            lacking.setdefault(printable(result.unavailable).rstrip("."), []).append(result)
        elif result.rows.empty and _is_at(result, "section", "lead") and not _has_section(result):
            reason = "; ".join(note.rstrip(".") for note in result.notes) or "none found in this capture"
            lacking.setdefault(printable(reason), []).append(result)
    replays = sum(result.name.startswith(PREFIX) for result in results)
    return tuple((", ".join(_titles(group, replays)), reason) for reason, group in lacking.items())


def _titles(results: list[Result], replays: int) -> Iterator[str]:
    """Yield titles; if all `replays` results of ncu are among them, one title stands for all of these."""
    of_ncu = [result for result in results if result.name.startswith(PREFIX)]
    is_one = len(of_ncu) == replays > 1
    for result in results:
        if not is_one or result not in of_ncu:
            yield printable(result.title)
        elif result is of_ncu[0]:
            yield "Single kernels (Nsight Compute)"


def _section(result: Result, report: Report, labels: Labels) -> Section:
    layout = layout_of(result).labelled(labels)
    title, notes = printable(result.title), tuple(printable(note) for note in result.notes)
    section = Section(printable(result.name), title, printable(result.help) if result.help else "", notes=notes)
    if not len(result.rows):
        return replace(
            section, message=f"{layout.noun[:1].upper()}{layout.noun[1:]}: none were recorded in this capture."
        )
    section = replace(section, columns=_definitions(result), pictures=pictures_of(result.name, report, labels))
    if result.name == GPU_TIME.name and len(result.rows) == 1:
        return section  # the chart and the key figures already show all of it
    return replace(section, table=table_view(result.rows, layout, caption=title, name=section.anchor))


def _definitions(result: Result) -> tuple[Definition, ...]:
    entry = entry_of(result.name)
    return tuple(
        Definition(heading(HEADINGS.get(column.name, column.name)), column.meaning, column.values)
        for column in (entry.columns if entry else ())
        if column.name in result.rows and not column.is_plain
    )


def _method(report: Report, labels: Labels) -> Method:
    environment = {label: getattr(report.environment, name) for name, label in _FACTS.items()}
    stages = {name: format_value(1e9 * seconds, "stage_ns") for name, seconds in report.stages_s.items()}
    results = [result for result in report.results if _is_at(result, "method") and result.table is not None]
    times = report.benchmark.step_ns if report.benchmark else ()
    return Method(
        texts_of(environment),
        texts_of(report.parameters),
        texts_of(stages),
        trials("Step time of each trial, without a profiler", times) if times else None,
        tuple(_section(result, report, labels) for result in results),
    )


def links(sections: Iterable[tuple[str, str]]) -> tuple[Links, ...]:
    """Group sections (anchor, title) for the navigation, in the order of each group's first section."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for anchor, title in sections:
        entry = entry_of(anchor)
        group, text = (entry.group, entry.short or title) if entry else ("", title)
        groups.setdefault(group, []).append((anchor, text))
    return tuple(Links(group, tuple(targets)) for group, targets in groups.items())
