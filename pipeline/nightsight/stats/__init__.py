"""The tables of `nsys stats`, with NVIDIA's definitions, headers, row order and digits, even where ours differ.

Each report is a frame whose columns are NVIDIA's names with our unit suffix, which decides the header and the digits.
docs/stats.md lists the definitions, and where they differ from those of the report page.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nightsight.errors import MissingTable, UsageError
from nightsight.model.report import Profile
from nightsight.stats.calls import cuda_api_sum, cuda_api_trace, osrt_sum
from nightsight.stats.events import Joins, NameColumn, Options, StatsEvents
from nightsight.stats.gpu import (
    cuda_api_gpu_sum,
    cuda_gpu_kern_gb_sum,
    cuda_gpu_kern_sum,
    cuda_gpu_mem_size_sum,
    cuda_gpu_mem_time_sum,
    cuda_gpu_sum,
    cuda_gpu_trace,
)
from nightsight.stats.launches import cuda_kern_exec_sum, cuda_kern_exec_trace
from nightsight.stats.ranges import (
    nvtx_gpu_proj_sum,
    nvtx_gpu_proj_trace,
    nvtx_kern_sum,
    nvtx_pushpop_sum,
    nvtx_pushpop_trace,
    nvtx_startend_sum,
    nvtx_sum,
)
from nightsight.stats.text import time_unit, write_stats
from nightsight.stats.unified_memory import um_cpu_page_faults_sum, um_sum, um_total_sum
from nightsight.stats.window import narrowed, range_window, time_window
from nightsight.system.parallel import thread_map
from nightsight.tables import AS_RECORDED, DETAILS, Frame
from nightsight.texts import did_you_mean

__all__ = [
    "EXTENSIONS",
    "OF_A_FILE",
    "OF_A_RUN",
    "OF_NSYS_ALONE",
    "REPORTS",
    "Selection",
    "details_of",
    "refuse_unknown",
    "stats_table",
    "stats_texts",
    "write_stats",
]

_NAMES: Final[Mapping[str, NameColumn]] = {"base": "short_name", "mangled": "mangled_name"}
_KERNEL_NAMES: Final = tuple(_NAMES)
_NAMED: Final = ("nvtx-name", *_KERNEL_NAMES)
# characters that some systems forbid in file names
_NOT_IN_NAMES: Final = re.compile(r'[\x00-\x1f<>:"/\\|?*]')
_ALL: Final = frozenset[str]().union(*DETAILS.values())
_NONE: Final = frozenset[str]()
_THREAD: Final = frozenset({"tid"})
_ORDINAL: Final = frozenset({"ordinal"})
EXTENSIONS: Final = {"csv": ".csv", "table": ".txt", "json": ".json"}


@dataclass(frozen=True)
class StatsReport:
    """How a report is made, the arguments its name can take, and the columns of DETAILS that it needs.

    By default, it needs all of them, which are half of the data of a large capture. Columns with names of kernels are
    also read if an argument needs them.
    """

    make: Callable[[StatsEvents], Frame]
    arguments: tuple[str, ...] = ()
    details: frozenset[str] = _ALL


@dataclass(frozen=True)
class Selection:
    """The requested reports (`NAME[:ARGUMENT...]`), the output style, the unit of time, and the filters of events."""

    reports: Sequence[str]
    style: str = "csv"
    timeunit: str = "ns"
    filter_time: str = ""
    filter_nvtx: str = ""


REPORTS: Final[Mapping[str, StatsReport]] = {
    report.make.__name__: report
    for report in (
        StatsReport(cuda_api_sum, details=_NONE),
        StatsReport(cuda_api_gpu_sum, _NAMED),
        StatsReport(cuda_api_trace),
        StatsReport(cuda_gpu_kern_sum, _NAMED, _NONE),
        StatsReport(cuda_gpu_kern_gb_sum, _NAMED),
        StatsReport(cuda_gpu_mem_size_sum),
        StatsReport(cuda_gpu_mem_time_sum),
        StatsReport(cuda_gpu_sum, _NAMED),
        StatsReport(cuda_gpu_trace, _NAMED),
        StatsReport(cuda_kern_exec_sum, _NAMED, _THREAD | _ORDINAL),
        StatsReport(cuda_kern_exec_trace, _NAMED),
        StatsReport(nvtx_sum, details=_NONE),
        StatsReport(nvtx_pushpop_sum),
        StatsReport(nvtx_pushpop_trace),
        StatsReport(nvtx_startend_sum),
        StatsReport(nvtx_gpu_proj_sum, details=_NONE),
        StatsReport(nvtx_gpu_proj_trace),
        StatsReport(nvtx_kern_sum, _KERNEL_NAMES, _THREAD),
        StatsReport(osrt_sum, details=_NONE),
        StatsReport(um_sum, ("rows=",)),
        StatsReport(um_total_sum),
        StatsReport(um_cpu_page_faults_sum),
    )
}


OF_A_RUN: Final = (
    "nvtx_sum",
    "osrt_sum",
    "cuda_api_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
)
"""The reports that `nsys profile --stats=true` prints."""
OF_A_FILE: Final = (*OF_A_RUN, "um_sum", "um_total_sum", "um_cpu_page_faults_sum")
"""The reports that `nsys stats FILE` prints, except for OF_NSYS_ALONE."""
OF_NSYS_ALONE: Final = (
    "openmp_sum",
    "opengl_khr_range_sum",
    "opengl_khr_gpu_range_sum",
    "vulkan_marker_sum",
    "vulkan_gpu_marker_sum",
    "dx11_pix_sum",
    "dx12_gpu_marker_sum",
    "dx12_pix_sum",
    "wddm_queue_sum",
    "openacc_sum",
    "syscall_sum",
)
"""The reports that `nsys stats FILE` of nsys 2025.3 also prints if the capture has their events."""


def refuse_unknown(reports: Sequence[str]) -> None:
    """Raise UsageError for reports, `NAME[:ARGUMENT...]`, that do not exist or do not take their argument."""
    for report in reports:
        _options(report)


def details_of(selection: Selection) -> frozenset[str]:
    """Return the columns of DETAILS that these reports need; unknown reports need none.

    AS_RECORDED is always among them: nsys does not know operators, and its tables list them as ranges.
    """
    needed = {AS_RECORDED, "domain_start_ns"} if selection.filter_nvtx else {AS_RECORDED}
    for report in selection.reports:
        name, *arguments = report.split(":")
        if name in REPORTS:
            needed |= REPORTS[name].details
        needed |= {_NAMES[kind] for kind in arguments if kind in _NAMES}
    return frozenset(needed)


def stats_table(profile: Profile, report: str) -> Frame:
    """Return one report, `NAME[:ARGUMENT...]`.

    UsageError if the report or its argument is unknown, MissingTable if its events were not captured.
    """
    return _report_rows(Joins(profile), report)


def stats_texts(
    profile: Profile, selection: Selection, *, skip: Callable[[str, str], None] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield each report, the suffix of its file name in nsys (`_cuda_gpu_kern_sum_base.csv`), and its text.

    UsageError for invalid reports, units or filters, before the first report. MissingTable if the events of a report
    are missing; if `skip` is given, it is called with the report and the reason instead.
    """
    unit = time_unit(selection.timeunit)
    refuse_unknown(selection.reports)
    profile, filters = _filtered(profile, selection)
    joins = Joins(profile)

    def written(report: str) -> tuple[str, str, str] | MissingTable:
        name, _, arguments = report.partition(":")
        ending = "_".join(["", name, *filters, *filter(None, arguments.split(":"))]) + EXTENSIONS[selection.style]
        try:
            return report, ending, write_stats(_report_rows(joins, report), selection.style, unit=unit)
        except MissingTable as error:
            return error

    results = thread_map(written, selection.reports, rows=profile.rows)
    for report, result in zip(selection.reports, results, strict=True):
        if not isinstance(result, MissingTable):
            yield result
        elif skip is None:
            raise result
        else:
            skip(report, result.message)


def _report_rows(joins: Joins, report: str) -> Frame:
    events = StatsEvents(joins, _options(report))
    return REPORTS[report.partition(":")[0]].make(events)


def _options(report: str) -> Options:
    name, *arguments = report.split(":")
    if name not in REPORTS:
        raise UsageError(
            f"unknown report {name!r}", f"{did_you_mean(name, REPORTS)}Known reports: {', '.join(REPORTS)}"
        )
    options, accepted = Options(), REPORTS[name].arguments
    for argument in filter(None, arguments):
        key, equals, value = argument.partition("=")
        if key + equals not in accepted:
            listed = ", ".join(accepted) or "none"
            raise UsageError(f"report {name} does not take the argument {argument!r}", f"Its arguments: {listed}")
        if key == "nvtx-name":
            options = replace(options, nvtx_name=True)
        elif key == "rows":
            if not value.isdecimal():
                raise UsageError(f"rows must be a number, got {value!r}", "Example: um_sum:rows=20")
            options = replace(options, rows=int(value))
        elif options.names != "short_name":
            # if both kinds of names are given, nsys uses the base name
            options = replace(options, names=_NAMES[key])
    return options


def _filtered(profile: Profile, selection: Selection) -> tuple[Profile, list[str]]:
    """Apply the filter of a selection (a range, else a time); also return its parts of nsys's file name."""
    if selection.filter_nvtx:
        window = range_window(profile, selection.filter_nvtx)
        return narrowed(profile, window), ["nvtx=" + _NOT_IN_NAMES.sub("-", selection.filter_nvtx)]
    if selection.filter_time:
        window = time_window(selection.filter_time)
        return narrowed(profile, window), [f"start={window.start_ns}", f"end={window.end_ns}"]
    return profile, []
