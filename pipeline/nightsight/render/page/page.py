"""Content and order of a report page: the first screen, causes, the most used sections, and the rest as details."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nightsight.events.frameworks import reported_framework
from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import Conditions, Environment, Report, Result
from nightsight.render.figure.bars import Strip, trials
from nightsight.render.figure.charts import Pictures, pictures_of
from nightsight.render.page.figures import Figure, key_figures
from nightsight.render.page.findings import Advice, Banner, advice, banners
from nightsight.render.page.places import Places
from nightsight.render.page.windows import Choices, choices
from nightsight.render.summary import numbers
from nightsight.render.table.fused import with_fused
from nightsight.render.table.grouped import kernel_groups
from nightsight.render.table.layouts import labels_of, layout_of, with_ranks
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.replayed import HEADINGS, PREFIX, number_launches, with_figures
from nightsight.render.table.view import TableView, table_view, texts_of
from nightsight.render.verdict import mean_shares
from nightsight.results import entry_of
from nightsight.results.causes import WHAT_IF
from nightsight.results.entry import Place
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, IDLE_STACKS, MEMORY_OPERATIONS
from nightsight.results.gpu_time import GPU_TIME, TIME_SPLIT
from nightsight.results.launches import LAUNCH_OVERHEAD
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS, NCU_ROOFLINE
from nightsight.results.operators import CPU_OPS
from nightsight.results.program import MEMORY_USAGE
from nightsight.results.ranges import NVTX_RANGES, RANGE_ITERATIONS
from nightsight.results.ranks import RANKS
from nightsight.results.rules import RULES
from nightsight.results.serving import DECODE_ROOFLINE, ENGINE_STEPS, REQUEST_TIMES, SERVING
from nightsight.results.steps import STEP_PARTS, STEP_SPLIT
from nightsight.texts import excerpt, printable
from nightsight.units import ABSENT, format_value, heading

Pairs = tuple[tuple[str, str], ...]

_TITLE_LENGTH: Final = 60
_NOTHING: Final = "Nothing here is worth fixing."
_CAUSES: Final = "Causes and fixes"
_ON_A_GPU: Final = (
    SERVING.name,
    REQUEST_TIMES.name,
    ENGINE_STEPS.name,
    DECODE_ROOFLINE.name,
    RANKS.name,
    STEP_PARTS.name,
    STEP_SPLIT.name,
    CUDA_GPU_KERN_SUM.name,
    MEMORY_OPERATIONS.name,
    LAUNCH_OVERHEAD.name,
    NVTX_RANGES.name,
)
_OF_SINGLE_KERNELS: Final = (NCU_KERNELS.name, NCU_LIMITS.name, NCU_ROOFLINE.name)
_ON_A_CPU: Final = (
    SERVING.name,
    REQUEST_TIMES.name,
    ENGINE_STEPS.name,
    STEP_PARTS.name,
    IDLE_STACKS.name,
    STEP_SPLIT.name,
    RANGE_ITERATIONS.name,
    CPU_OPS.name,
    MEMORY_USAGE.name,
    NVTX_RANGES.name,
)
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
class PageSection:
    """One result: its pictures and table, or instead the sentence `message`, or the values of its only row."""

    anchor: str
    title: str
    help: str = ""
    columns: tuple[Definition, ...] = ()
    pictures: Pictures = field(default_factory=Pictures)
    table: TableView | None = None
    notes: tuple[str, ...] = ()
    message: str = ""
    row: Pairs = ()


@dataclass(frozen=True)
class Method:
    """How the report was measured: environment, parameters, time per stage, and how each GPU ran."""

    environment: Pairs
    parameters: Pairs
    stages: Pairs
    conditions: Pairs
    trials: Strip | None
    sections: tuple[PageSection, ...]


@dataclass(frozen=True)
class Details:
    """Sections that start closed, under the title of their group; "" for results that are not in the register."""

    group: str
    sections: tuple[PageSection, ...]


@dataclass(frozen=True)
class Page:
    """Everything that the template of a report prints.

    doubts: problems of the capture; notes: other facts about it. figures: all key figures. windows:
    those that a reader can choose. lead: where the time went. unchecked: causes that could not be checked, with the
    reason. nothing: the text if causes were checked and there is no advice. sections: those that are open.
    unavailable: titles of missing results, with the reason. tables: all rows of the tables, compressed (packed_tables).
    """

    title: str
    facts: tuple[str, ...]
    doubts: tuple[Banner, ...]
    notes: tuple[Banner, ...]
    figures: tuple[Figure, ...]
    windows: Choices
    lead: PageSection | None
    unchecked: tuple[tuple[tuple[str, ...], str], ...]
    nothing: str
    sections: tuple[PageSection, ...]
    details: tuple[Details, ...]
    unavailable: Pairs
    method: Method
    generator: str
    tables: str

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The advice on the window that the report is about."""
        return self.windows.windows[0].advice

    @property
    def has_causes(self) -> bool:
        """Whether there is advice, or causes were checked."""
        return bool(self.advice or self.lead)

    @property
    def has_what_if(self) -> bool:
        """Whether the page has the predicted gain of each fix."""
        return any(section.anchor == WHAT_IF.name for section in self.results)

    @property
    def results(self) -> tuple[PageSection, ...]:
        """All sections of results except those of the method, in the order of the page."""
        closed = (section for group in self.details for section in group.sections)
        return (*((self.lead,) if self.lead else ()), *self.sections, *closed)


def page(report: Report) -> Page:
    """Build the page of a report."""
    # labels come from the plain names, before launches are numbered
    labels = labels_of(report.results)
    report = replace(report, results=number_launches(with_fused(with_figures(report.results))))
    by_name = {result.name: _section(result, report, labels) for result in report.results if _has_section(result)}
    method, run = _method(report, labels), numbers(report)
    lead = by_name.pop(TIME_SPLIT.name, None)
    is_open = _open(report)
    sections = tuple(by_name.pop(name) for name in is_open if name in by_name)
    closed = tuple(_without_table(section) for section in by_name.values())
    all_sections = (*((lead,) if lead else ()), *sections, *closed, *method.sections)
    titles = {section.anchor: section.title for section in all_sections}
    unchecked = _unchecked_rules(report.unchecked)
    advice_items = advice(report.findings, titles, labels, Places(report))
    # without either, no section gives the reason
    causes = () if advice_items or lead else tuple((_CAUSES, reason) for _, reason in unchecked)
    tables = packed_tables(section.table for section in all_sections if section.table)
    # last: other windows take longest, and may be computed elsewhere meanwhile
    windows = choices(report, run, advice_items, labels)
    about = windows.windows[0].verdict.about
    doubtful = banners(tuple(finding for finding in report.findings if finding is not about))
    doubts = tuple(banner for banner in doubtful if banner.severity != "info")
    return Page(
        excerpt(report.title, _TITLE_LENGTH),
        _facts(report.environment),
        doubts,
        tuple(banner for banner in doubtful if banner not in doubts),
        key_figures(run, mean_shares(report.rows(TIME_SPLIT))),
        windows,
        lead,
        unchecked,
        "" if RULES[0].name in report.unchecked else _NOTHING,
        sections,
        _details(closed),
        (*causes, *_unavailable(report.results)),
        method,
        printable(report.generator) if report.generator else "",
        tables,
    )


def _open(report: Report) -> tuple[str, ...]:
    """Return the results whose sections are open, in order: those that readers of such a capture need first."""
    if len(report.rows(GPU_TIME)):
        return _ON_A_GPU
    return _OF_SINGLE_KERNELS if len(report.rows(NCU_KERNELS)) else _ON_A_CPU


def _details(sections: Iterable[PageSection]) -> tuple[Details, ...]:
    groups: dict[str, list[PageSection]] = {}
    for section in sections:
        entry = entry_of(section.anchor)
        groups.setdefault(entry.group if entry else "", []).append(section)
    return tuple(Details(group, tuple(members)) for group, members in groups.items())


def _without_table(section: PageSection) -> PageSection:
    """Return a section whose table has one row, which leads nowhere, with the values of the row instead."""
    table = section.table
    if table is None or len(table.rows) != 1 or table.timeline or section.pictures != Pictures():
        return section
    (row,), headings = table.rows, table.columns
    texts: dict[str, str] = {}
    for column, cell in zip(headings, (row.name, *row.cells), strict=True):
        if cell.text != ABSENT:
            # a time and its share have one title
            text = f"{cell.text} {column.unit}".rstrip()
            texts[column.title] = f"{texts[column.title]}, {text}" if column.title in texts else text
    return replace(section, table=None, row=tuple(texts.items()))


def _has_section(result: Result) -> bool:
    entry = entry_of(result.name)
    if result.table is None or not _is_at(result, "section", "lead"):
        return False
    return len(result.rows) > 0 or (entry is not None and entry.is_core)


def _is_at(result: Result, *places: Place) -> bool:
    """Whether a result belongs in one of these places; a result that is not in the register gets a section."""
    entry = entry_of(result.name)
    return (entry.place if entry else "section") in places


def _unchecked_rules(rules: Mapping[str, str]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Group the advice rules that could not be checked by reason; return (causes, reason)."""
    reasons: dict[str, list[str]] = {}
    for rule, reason in rules.items():
        # the page adds the full stop itself
        words = _IN_WORDS.get(rule) or printable(rule).replace("_", " ")
        reasons.setdefault(printable(reason).rstrip("."), []).append(words)
    return tuple((tuple(names), reason) for reason, names in reasons.items())


# rules about single kernels, whose names do not describe a cause
_IN_WORDS: Final = {
    "at_roof": "kernels at the hardware limit",
    "registers": "too many registers",
    "shared_memory": "too much shared memory",
    "tail": "a last wave of blocks that does not fill the GPU",
    "uncoalesced": "neighboring threads that access distant memory",
}


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


def _unavailable(results: Sequence[Result]) -> Pairs:
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
    """Yield titles; if all `replays` results of ncu are among them, one title represents them all."""
    of_ncu = [result for result in results if result.name.startswith(PREFIX)]
    is_one = len(of_ncu) == replays > 1
    for result in results:
        if not is_one or result not in of_ncu:
            yield printable(result.title)
        elif result is of_ncu[0]:
            yield "Single kernels (Nsight Compute)"


def _section(result: Result, report: Report, labels: KernelLabels) -> PageSection:
    framework = reported_framework(report)
    layout = with_ranks(layout_of(result, framework), report, result.rows).labeled(labels)
    title, notes = printable(result.title), tuple(printable(note) for note in result.notes)
    help_text = printable(result.help) if result.help else ""
    section = PageSection(printable(result.name), title, help_text, notes=notes)
    if not len(result.rows):
        return replace(section, message=f"{layout.noun[:1].upper()}{layout.noun[1:]}: none recorded in this capture.")
    section = replace(
        section,
        columns=_definitions(result, layout.titles, framework),
        pictures=pictures_of(result.name, report, labels),
    )
    if result.name == GPU_TIME.name and len(result.rows) == 1:
        return section  # the chart and the key figures already show all of it
    table = table_view(result.rows, layout, caption=title, name=section.anchor)
    groups = kernel_groups(report) if result.name == CUDA_GPU_KERN_SUM.name else {}
    return replace(section, table=table.grouped(groups))


def _definitions(result: Result, titles: Mapping[str, str], framework: str) -> tuple[Definition, ...]:
    # the table has the words, too
    fixes = tuple((rule.action_in(framework), rule.change) for rule in RULES)
    entry = entry_of(result.name)
    return tuple(
        Definition(
            titles.get(column.name) or heading(HEADINGS.get(column.name, column.name)),
            column.meaning,
            fixes if (result.name, column.name) == (WHAT_IF.name, "rule") else column.values,
        )
        for column in (entry.columns if entry else ())
        if column.name in result.rows and not column.is_plain
    )


def _method(report: Report, labels: KernelLabels) -> Method:
    environment = {label: getattr(report.environment, name) for name, label in _FACTS.items()}
    stages = {name: format_value(1e9 * seconds, "stage_ns") for name, seconds in report.stages_s.items()}
    results = [result for result in report.results if _is_at(result, "method") and result.table is not None]
    times = report.benchmark.step_ns if report.benchmark else ()
    return Method(
        texts_of(environment),
        texts_of(report.parameters),
        texts_of(stages),
        tuple((f"GPU {gpu.device}", printable(_conditions(gpu))) for gpu in report.conditions),
        trials("Step time of each trial, without a profiler", times) if times else None,
        tuple(_without_table(_section(result, report, labels)) for result in results),
    )


def _conditions(gpu: Conditions) -> str:
    """Return the state of a GPU in one line."""
    lowest = f" (lowest {gpu.lowest_sm_mhz:,.0f})" if gpu.lowest_sm_mhz is not None else ""
    facts = (
        gpu.sm_mhz is not None and f"{gpu.sm_mhz:,.0f} MHz{lowest}",
        gpu.memory_mhz is not None and f"memory {gpu.memory_mhz:,.0f} MHz",
        gpu.temperature_c is not None and f"{gpu.temperature_c:.0f} °C",
        gpu.power_w is not None and f"{gpu.power_w:.0f} W",
        gpu.clock_policy and f"clocks {gpu.clock_policy}",
        gpu.mig and f"MIG {gpu.mig}",
        gpu.is_shared and "shared with other processes",
        gpu.throttled and f"slowed down: {', '.join(gpu.throttled)}",
        f"{gpu.samples:,} samples",
    )
    return ", ".join(fact for fact in facts if fact)
