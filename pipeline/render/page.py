"""What a report's page says and in which order: banners, key figures, a section per result, how it was measured."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import pandas as pd

from pipeline.model import Environment, Finding, Report, Result
from pipeline.render.figures import Figure, key_figures
from pipeline.render.svg import Bar, Chart, DotPlot, Group, compare_phases, ranking, share, trials, width
from pipeline.render.view import (
    Layout,
    TableView,
    middle_cut,
    numbers,
    printable,
    short_name,
    short_text,
    table_view,
    texts_of,
)
from pipeline.units import format_value, heading

Frame = pd.DataFrame
Pairs = tuple[tuple[str, str], ...]

_SEVERITIES: Final = {"error": "Error", "warning": "Warning", "info": "Note"}
_BARS: Final = 10
_METHOD: Final = ("devices", "diagnostics", "profiler_overhead")
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
}


@dataclass(frozen=True)
class Banner:
    """A finding, its severity in words."""

    severity: str
    word: str
    title: str
    detail: str
    remedy: str


@dataclass(frozen=True)
class Section:
    """One result: charts and table, or the sentence `message` in their place; `absent` lists results not to be had."""

    anchor: str
    title: str
    help: str = ""
    charts: tuple[Chart, ...] = ()
    table: TableView | None = None
    notes: tuple[str, ...] = ()
    message: str = ""
    absent: Pairs = ()


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
    """A report ready to be placed on a page."""

    title: str
    facts: tuple[str, ...]
    banners: tuple[Banner, ...]
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    method: Method
    generator: str


def page(report: Report) -> Page:
    """Turn a report into the page that shows it."""
    shown = [result for result in report.results if result.name not in _METHOD]
    return Page(
        printable(report.title),
        _facts(report.environment),
        _banners(report.findings),
        key_figures(report),
        _sections(shown),
        _method(report),
        printable(report.generator) if report.generator else "",
    )


def _facts(environment: Environment) -> tuple[str, ...]:
    """What the header says: GPU, collector, date and versions, as far as they are known."""
    facts = (
        environment.gpu,
        f"{environment.collector} {environment.collector_version}".strip(),
        environment.captured_utc and f"{environment.captured_utc} UTC",
        environment.driver and f"driver {environment.driver}",
        environment.cuda and f"CUDA {environment.cuda}",
        environment.torch and f"PyTorch {environment.torch}",
    )
    return tuple(printable(fact) for fact in facts if fact)


def _banners(findings: tuple[Finding, ...]) -> tuple[Banner, ...]:
    order = list(_SEVERITIES)
    return tuple(
        Banner(
            finding.severity,
            _SEVERITIES[finding.severity],
            _prose(finding.title, 200),
            _prose(finding.detail, 1_000),
            _prose(finding.remedy, 1_000),
        )
        for finding in sorted(findings, key=lambda finding: order.index(finding.severity))
    )


def _prose(text: str, length: int) -> str:
    """Return text fit to print, "" for none: a finding may quote what a program said, at any length."""
    return middle_cut(printable(text), length) if text else ""


def _sections(results: list[Result]) -> tuple[Section, ...]:
    """Return a section per result; neighbours that are unavailable share one."""
    sections: list[Section] = []
    for is_absent, group in groupby(results, key=lambda result: result.table is None):
        if is_absent:
            sections.append(_absent(list(group)))
        else:
            sections += [_section(result) for result in group]
    return tuple(sections)


def _absent(results: list[Result]) -> Section:
    pairs = tuple((printable(result.title), printable(result.unavailable)) for result in results)
    return Section(results[0].name, " · ".join(title for title, _ in pairs), absent=pairs)


def _section(result: Result) -> Section:
    layout = _LAYOUTS.get(result.name) or _plain(result)
    title, notes = printable(result.title), tuple(printable(note) for note in result.notes)
    section = Section(printable(result.name), title, printable(result.help) if result.help else "", notes=notes)
    if not len(result.rows):
        return replace(
            section, message=f"{layout.noun[:1].upper()}{layout.noun[1:]}: none were recorded in this capture."
        )
    charts = _CHARTS[result.name](result.rows) if result.name in _CHARTS else ()
    return replace(section, charts=charts, table=table_view(result.rows, layout, caption=title))


def _plain(result: Result) -> Layout:
    """Lay out a result that has no layout of its own: its first text column, or else its first, names the rows."""
    columns = list(result.rows.columns) or ["name"]
    name = "name" if "name" in columns else str(columns[0])
    return Layout("rows", heading(name), name)


def _method(report: Report) -> Method:
    environment = {label: getattr(report.environment, name) for name, label in _FACTS.items()}
    stages = {name: format_value(1e9 * seconds, "stage_ns") for name, seconds in report.stages_s.items()}
    results = [result for result in report.results if result.name in _METHOD]
    times = report.benchmark.step_ns if report.benchmark else ()
    return Method(
        texts_of(environment),
        texts_of(report.parameters),
        texts_of(stages),
        trials("Step time of each trial, without a profiler", times) if times else None,
        _sections(results),
        tuple((printable(result.title), printable(result.help)) for result in report.results if result.help),
    )


def _operations(frame: Frame) -> Frame:
    """Name each memory operation by its direction and the kinds of memory: `Host-to-Device, Pageable → Device`."""
    operation = frame["operation"].astype("str")
    source, target = (_known(frame[name]) for name in ("source_kind", "target_kind"))
    kinds = source.where(target == "", source + " → " + target).where(source != "", target)
    name = operation.where(kinds == "", operation + ", " + kinds)
    rest = frame.drop(columns=["operation", "source_kind", "target_kind"])
    return rest.assign(name=name)


def _known(kinds: "pd.Series[str]") -> "pd.Series[str]":
    texts = kinds.astype("str")
    return texts.where(texts != "Unknown", "")


def _per_device(frame: Frame) -> Frame:
    """Leave out the device where all rows have the same."""
    return frame if frame["device"].nunique() > 1 else frame.drop(columns="device")


def _without_unused_graphs(frame: Frame) -> Frame:
    """Leave out the columns for graphs where none was traced as a whole."""
    return frame.drop(columns=[] if frame["graph_launches"].any() else ["graph_launches", "graph_ns"])


def _tree(frame: Frame) -> Frame:
    """Put every range below the one around it and name it by the last part of its path."""
    paths = frame["path"].astype("str").tolist()
    levels = dict(zip(paths, frame["level"].tolist(), strict=True))
    first = {path: row for row, path in enumerate(paths)}
    chains = [_chain(path, levels) for path in paths]
    places = [tuple(first[path] for path in reversed(chain)) for chain in chains]
    names = [path[len(chain[1]) + 3 :] if len(chain) > 1 else path for path, chain in zip(paths, chains, strict=True)]
    constant = ["style"] if frame["style"].nunique() == 1 else []
    named = frame.assign(name=names, level=[len(chain) - 1 for chain in chains]).drop(columns=["path", *constant])
    return named.iloc[sorted(range(len(paths)), key=places.__getitem__)]


def _chain(path: str, levels: Mapping[str, int]) -> list[str]:
    """Return `path` and the paths around it, innermost first; a name may itself hold the separator."""
    chain = [path]
    while " / " in path:
        path = path.rpartition(" / ")[0]
        if levels.get(path) == levels[chain[-1]] - 1:
            chain.append(path)
    return chain


def _busy_chart(frame: Frame) -> tuple[Chart, ...]:
    """Per device, how much of the window was busy, and the summed times of what ran beside it."""
    columns = {"busy_ns": "Busy", "kernel_ns": "Kernels, sum", "copy_ns": "Copies and sets, sum"}
    if numbers(frame["graph_ns"]).any():
        columns["graph_ns"] = "CUDA graphs, sum"
    window = _most(frame, "window_ns")
    largest = max(window, *(_most(frame, name) for name in columns))
    groups = tuple(
        Group(f"Device {row['device']}", tuple(_busy_bar(row, name, text, largest) for name, text in columns.items()))
        for row in frame.to_dict("records")
    )
    full = f"{format_value(largest, 'window_ns')}, {'the window' if largest == window else 'the largest sum'}"
    note = (
        f"Full width: {full}. Percentages are of the window. Busy counts overlaps once; the sums count every "
        "operation, so they can exceed busy."
    )
    return (Chart("Busy time and sums by kind, per device", groups, note=note, has_track=True),)


def _busy_bar(row: Mapping[Hashable, float], column: str, label: str, largest: float) -> Bar:
    value, window = float(row[column]), float(row["window_ns"])
    return Bar(_SERIES[column], label, format_value(value, column), width(value, largest), share(value, window))


def _most(frame: Frame, column: str) -> float:
    return float(np.nanmax(numbers(frame[column])))


_SERIES: Final = {"busy_ns": "busy", "kernel_ns": "kernel", "copy_ns": "copy", "graph_ns": "graph"}


def _ranked(
    title: str, column: str, series: str, *, shorten: Callable[[str], str] = short_text
) -> Callable[[Frame], tuple[Chart, ...]]:
    """Make a chart of one column, its first rows by name, in the order of the table."""

    def chart(frame: Frame) -> tuple[Chart, ...]:
        names = [shorten(name) for name in frame["name"].head(_BARS).astype("str")]
        return (ranking(title, names, numbers(frame[column]), column=column, series=series),)

    return chart


def _memory_charts(frame: Frame) -> tuple[Chart, ...]:
    named = _operations(frame)
    by_time, by_size = _ranked("Time", "total_ns", "copy"), _ranked("Size", "total_bytes", "bytes")
    return (*by_time(named), *by_size(named))


def _launch_chart(frame: Frame) -> tuple[Chart, ...]:
    """Median API, queue and execution time of the kernels with the largest API time."""
    top = frame.head(_BARS)
    names = top["name"].astype("str").map(short_name)
    if frame["device"].nunique() > 1:
        names = names + " (device " + top["device"].astype("str") + ")"
    phases = [(key, label, numbers(top[f"{column}_med_ns"])) for key, label, column in _PHASES]
    return (compare_phases("Median time per launch, by kernel: largest API total first", names.tolist(), phases),)


_PHASES: Final = (
    ("api", "API", "api"),
    ("queue", "Queue", "queue"),
    ("kernel", "Execution", "execution"),
)

_LAYOUTS: Final[Mapping[str, Layout]] = {
    "gpu_time": Layout("devices with GPU work", "Device", "device", prepare=_without_unused_graphs),
    "cuda_gpu_kern_sum": Layout("kernels", "Kernel", bars=("time_pct",), shorten=short_name),
    "memory_operations": Layout("copies and sets", "Operation", bars=("time_pct",), prepare=_operations),
    "launch_overhead": Layout("launches", "Kernel", bars=("api_total_ns",), prepare=_per_device, shorten=short_name),
    "nvtx_ranges": Layout("ranges", "Range", bars=("cpu_total_ns", "kernel_ns"), prepare=_tree),
    "cuda_api_sum": Layout("CUDA calls", "Function", bars=("time_pct",)),
    "cpu_ops": Layout("operators", "Operator", bars=("own_pct",)),
    "devices": Layout("devices", "Device", "device"),
    "diagnostics": Layout("warnings and errors", "Text", "text", shorten=printable),
    "profiler_overhead": Layout("kinds of overhead", "What", bars=("total_ns",), most=10),
}

_CHARTS: Final[Mapping[str, Callable[[Frame], tuple[Chart, ...]]]] = {
    "gpu_time": _busy_chart,
    "cuda_gpu_kern_sum": _ranked("Total time by kernel", "total_ns", "kernel", shorten=short_name),
    "memory_operations": _memory_charts,
    "launch_overhead": _launch_chart,
    "cuda_api_sum": _ranked("Total time by function", "total_ns", "api"),
    "cpu_ops": _ranked("Own time by operator", "own_ns", "cpu"),
}
