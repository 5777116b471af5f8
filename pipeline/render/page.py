"""What a report's page says and in which order: banners, key figures, a section per result, how it was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from pipeline.model import Environment, Report, Result
from pipeline.render.charts import CURVES, charts_of, curves_of
from pipeline.render.curves import TimeChart
from pipeline.render.figures import Figure, key_figures
from pipeline.render.findings import Advice, Banner, advice, banners
from pipeline.render.summary import numbers
from pipeline.render.svg import Chart, DotPlot, trials
from pipeline.render.view import (
    Layout,
    TableView,
    operation_names,
    printable,
    short_name,
    table_view,
    texts_of,
)
from pipeline.units import format_value, heading

Frame = pd.DataFrame
Pairs = tuple[tuple[str, str], ...]

_METHOD: Final = ("devices", "gpu_peaks", "range_coverage", "diagnostics", "profiler_overhead")
# points of a curve: as a table they say nothing
_SERIES: Final = tuple(kind.source for kind in CURVES.values())
# what most captures have; what others lack is listed together and not section by section
_CORE: Final = ("gpu_time", "cuda_gpu_kern_sum", "memory_operations", "launch_overhead", "nvtx_ranges", "cuda_api_sum")
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
class Section:
    """One result: charts and table, or the sentence `message` in their place."""

    anchor: str
    title: str
    help: str = ""
    charts: tuple[Chart, ...] = ()
    curves: tuple[TimeChart, ...] = ()
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
    """A report ready to be placed on a page; `unavailable` pairs the titles of results with why they are not there."""

    title: str
    facts: tuple[str, ...]
    banners: tuple[Banner, ...]
    advice: tuple[Advice, ...]
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    unavailable: Pairs
    method: Method
    generator: str


def page(report: Report) -> Page:
    """Turn a report into the page that shows it."""
    there = [result for result in report.results if result.table is not None]
    return Page(
        printable(report.title),
        _facts(report.environment),
        banners(report.findings),
        advice(report.findings),
        key_figures(numbers(report)),
        tuple(_section(result, report) for result in there if _has_section(result)),
        _unavailable(report.results),
        _method(report),
        printable(report.generator) if report.generator else "",
    )


def _has_section(result: Result) -> bool:
    return result.name not in (*_METHOD, *_SERIES) and (len(result.rows) > 0 or result.name in _CORE)


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


def _unavailable(results: tuple[Result, ...]) -> Pairs:
    """Return each reason for which results could not be had, after their titles."""
    titles: dict[str, list[str]] = {}
    for result in results:
        if result.table is None:
            titles.setdefault(printable(result.unavailable).rstrip("."), []).append(printable(result.title))
        elif result.rows.empty and result.name not in (*_CORE, *_METHOD, *_SERIES):
            titles.setdefault("looked for, and none in this capture", []).append(printable(result.title))
    return tuple((", ".join(names), reason) for reason, names in titles.items())


def _section(result: Result, report: Report) -> Section:
    layout = _LAYOUTS.get(result.name) or _plain(result)
    title, notes = printable(result.title), tuple(printable(note) for note in result.notes)
    section = Section(printable(result.name), title, printable(result.help) if result.help else "", notes=notes)
    if not len(result.rows):
        return replace(
            section, message=f"{layout.noun[:1].upper()}{layout.noun[1:]}: none were recorded in this capture."
        )
    section = replace(section, charts=charts_of(result.name, result.rows), curves=curves_of(result.name, report))
    if result.name == "gpu_time" and len(result.rows) == 1:
        return section  # the chart and the key figures say it all
    return replace(section, table=table_view(result.rows, layout, caption=title))


def _plain(result: Result) -> Layout:
    """Lay out a result that has no layout of its own: its first text column, or else its first, names the rows."""
    columns = list(result.rows.columns) or ["name"]
    name = "name" if "name" in columns else str(columns[0])
    return Layout("rows", heading(name), name)


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


def _named_operations(frame: Frame) -> Frame:
    """Name each memory operation, in place of what its name is made of."""
    rest = frame.drop(columns=["operation", "source_kind", "target_kind"])
    return rest.assign(name=operation_names(frame))


def _per_device(frame: Frame) -> Frame:
    """Leave out the device where all rows have the same."""
    return frame if frame["device"].nunique() > 1 else frame.drop(columns="device")


def _per_process(frame: Frame) -> Frame:
    """Leave out the process where all rows have the same, and repetitions where there are none."""
    unused = [name for name in ("steps", "of_steps") if not frame[name].any()]
    return frame.drop(columns=[*unused, *(["pid"] if frame["pid"].nunique() == 1 else [])])


def _devices(frame: Frame) -> Frame:
    """Leave out the window, which is the same for all, and the kinds of work that no device did."""
    unused = [kind for kind in _KINDS_OF_WORK if kind in frame and not frame[kind].any()]
    columns = [name for kind in unused for name in _KINDS_OF_WORK[kind]]
    return frame.drop(columns=[*columns, "window", "window_ns"], errors="ignore")


_KINDS_OF_WORK: Final = {
    "copies": ("copies", "copy_ns", "copied_bytes"),
    "sets": ("sets", "set_ns"),
    "graph_launches": ("graph_launches", "graph_ns"),
}


def _tree(frame: Frame) -> Frame:
    """Put every range below the one around it, named by the last part of its path; drop what is the same for all."""
    paths = frame["path"].astype("str").tolist()
    levels = dict(zip(paths, frame["level"].tolist(), strict=True))
    first = {path: row for row, path in enumerate(paths)}
    chains = [_chain(path, levels) for path in paths]
    places = [tuple(first[path] for path in reversed(chain)) for chain in chains]
    names = [path[len(chain[1]) + 3 :] if len(chain) > 1 else path for path, chain in zip(paths, chains, strict=True)]
    idle = ["style"] if frame["style"].nunique() == 1 else []
    if (frame["instances"] == 1).all():
        idle += ["cpu_med_ns", "cpu_min_ns", "cpu_max_ns"]
    named = frame.assign(name=names, level=[len(chain) - 1 for chain in chains])
    named = named.drop(columns=["path", *idle], errors="ignore")
    return named.iloc[sorted(range(len(paths)), key=places.__getitem__)]


def _chain(path: str, levels: Mapping[str, int]) -> list[str]:
    """Return `path` and the paths around it, innermost first; a name may itself hold the separator."""
    chain = [path]
    while " / " in path:
        path = path.rpartition(" / ")[0]
        if levels.get(path) == levels[chain[-1]] - 1:
            chain.append(path)
    return chain


_LAYOUTS: Final[Mapping[str, Layout]] = {
    "gpu_time": Layout("devices with GPU work", "Device", "device", prepare=_devices),
    "time_split": Layout("parts of the window", "Category", "category", bars=("share_pct",), prepare=_per_device),
    "cuda_gpu_kern_sum": Layout("kernels", "Kernel", bars=("time_pct",), shorten=short_name),
    "memory_operations": Layout("copies and sets", "Operation", bars=("time_pct",), prepare=_named_operations),
    "launch_overhead": Layout("launches", "Kernel", bars=("api_total_ns",), prepare=_per_device, shorten=short_name),
    "launch_phases": Layout("launch figures", "Figure", "figure", prepare=_per_device),
    "launch_bound": Layout("devices with launches", "Device", "device"),
    "gpu_gaps": Layout("idle gaps", "Cause", "cause", prepare=_per_device, most=10),
    "setup_calls": Layout("calls that load, compile, allocate or free", "Function", bars=("total_ns",)),
    "cuda_api_sync": Layout("synchronizing calls", "Function", bars=("total_ns",), prepare=_per_process),
    "slow_copies": Layout("copies and sets that make the CPU wait", "Function", bars=("cpu_ns",), prepare=_per_device),
    "range_iterations": Layout("repeated ranges", "Range", "path", bars=("med_ns",)),
    "osrt_sum": Layout("OS runtime calls", "Function", bars=("time_pct",), most=20),
    "memory_usage": Layout("kinds of memory", "Kind", "kind", prepare=_per_device),
    "nvtx_ranges": Layout("ranges", "Range", bars=("cpu_total_ns", "kernel_ns"), prepare=_tree),
    "cuda_api_sum": Layout("CUDA calls", "Function", bars=("time_pct",)),
    "cpu_ops": Layout("operators", "Operator", bars=("own_pct",)),
    "devices": Layout("devices", "Device", "device"),
    "diagnostics": Layout("warnings and errors", "Text", "text", shorten=printable),
    "profiler_overhead": Layout("kinds of overhead", "What", bars=("total_ns",), most=10),
}
