"""Explains why a capture has (almost) no GPU work: the message of the profiler, and the likely reason."""

import re
from typing import Final

from nightsight.events.launches import GPU_TABLES
from nightsight.model.report import Environment, Finding, Profile
from nightsight.units import counted, format_value

NOT_RECORDED: Final = "gpu_not_recorded"
LOST: Final = "lost_events"
NO_WORK: Final = "no_gpu_work"
NO_KERNELS: Final = "no_kernels"
"""Names of findings; each gives a different reason why a capture has no kernels."""

_NOT_STARTED: Final = "profiling might have not been started correctly"
_NO_EVENTS: Final = "No CUDA events collected"
_NOT_ALL: Final = "Not all CUDA events might have been collected"
# the first nsys that came with a CUDA toolkit for a driver
_FIRST_NSYS: Final = {
    580: (2025, 3),
    575: (2025, 1),
    570: (2024, 6),
    560: (2024, 4),
    555: (2024, 2),
    550: (2023, 4),
    535: (2023, 2),
    525: (2022, 4),
}
# a program that copies a lot without kernels (a bandwidth test) does not count as empty
_FEW: Final = 10
# share of the time from the first call to the last
_BRIEF: Final = 0.01
_ANOTHER: Final = (
    "Check that the program uses CUDA in a process that nsys starts (not in one that a launcher, container or server "
    "starts elsewhere), and that the capture range (cudaProfilerStart/Stop) encloses the work."
)
# the importer of nsys gives up on a part of a recording
_UNIMPORTED: Final = "ProcessEventsError"
_WITHOUT_RANGES: Final = (
    "Record again without the NVTX ranges that nsys cannot import: --nsys-arg=--nvtx-domain-exclude=DOMAIN (of a JAX "
    "program: TSL), or --trace cuda for none. Do not sample Python: --names modules."
)
_ENDS: Final = (
    "Let the program exit normally: events that nsys has not saved are lost if it is killed, aborts or calls os._exit. "
    "Or call cudaProfilerStop (torch.cuda.profiler.stop()) first; nightsight (--timeout, Ctrl-C) saves before it stops."
)


def no_work(profile: Profile, *, are_lost: bool) -> Finding:
    """Return the finding for a capture without any GPU operation, in which CUDA was traced.

    are_lost: launches were recorded, or the profiler reports lost events.
    """
    calls = len(profile.recorded("api_calls"))
    quote = (
        _diagnostic(profile, _NOT_STARTED, _NOT_ALL, _NO_EVENTS)
        if calls
        else _diagnostic(profile, _NOT_STARTED, _NO_EVENTS)
    )
    if not calls and _NOT_STARTED in quote:
        newer = _newer_driver(profile.environment)
        remedy = newer or f"{_ANOTHER} If it does, the driver may be newer than nsys: update nsys."
        return Finding(NOT_RECORDED, "warning", "CUDA was not recorded", quote, remedy)
    if not calls and quote:
        return Finding(NO_WORK, "warning", "No CUDA work was recorded", quote, _ANOTHER)
    if are_lost:
        count = counted(calls, "CUDA call was", "CUDA calls were") if calls else "No call was"
        detail = f"{quote} {count} recorded, but no kernel, copy or memset.".strip()
        remedy = _WITHOUT_RANGES if _diagnostic(profile, _UNIMPORTED) else _ENDS
        return Finding(LOST, "warning", "No GPU work was saved", detail, remedy)
    return Finding(
        NO_WORK,
        "warning",
        "No GPU work was captured",
        "CUDA was traced, but no kernel, copy or memset ran while the capture was on.",
        "Check that the program uses the GPU, and that the capture range (cudaProfilerStart/Stop) encloses the work.",
    )


def unimported(profile: Profile) -> Finding | None:
    """Return a finding if nsys could not import a part of what it recorded."""
    if not (message := _diagnostic(profile, _UNIMPORTED)):
        return None
    what = re.search(r"tag_message\*\] = (.+)", message)
    quote = f" nsys says: “{what[1].strip(' ”')}”" if what else ""
    return Finding(
        LOST,
        "warning",
        "nsys could not import a part of its recording",
        f"All events in that part are missing: calls, kernels and ranges.{quote}",
        _WITHOUT_RANGES,
    )


def not_traced(profile: Profile) -> Finding:
    """Return the finding for an nsys capture without CUDA events, which may not have been traced."""
    why = profile.why_missing("kernels")
    quote = _diagnostic(profile, _NOT_STARTED, _NO_EVENTS)
    return Finding(
        NOT_RECORDED, "warning", "CUDA was not traced", f"{why[:1].upper()}{why[1:]}. {quote}".strip(), _TRACE
    )


_TRACE: Final = "Trace CUDA: nightsight profile, or nsys profile --trace=cuda,nvtx."


def next_to_none(profile: Profile) -> Finding | None:
    """Return a finding if no kernel or graph ran, and hardly anything else."""
    kernels, copies, graphs = (profile.recorded(name) for name in GPU_TABLES)
    calls = profile.recorded("api_calls")
    if len(kernels) or len(graphs) or not 0 < len(copies) <= _FEW or not len(calls):
        return None
    copy_ns = int((copies["end_ns"] - copies["start_ns"]).sum())
    if copy_ns >= _BRIEF * int(calls["end_ns"].max() - calls["start_ns"].min()):
        return None
    time = format_value(copy_ns, "time_ns")
    work = counted(len(copies), "copy or memset", "copies and memsets")
    detail = f"The only GPU work in the capture: {work} ({time}), with {counted(len(calls), 'CUDA call')}."
    quote = _diagnostic(profile, _NOT_STARTED, _NOT_ALL, _NO_EVENTS)
    remedy = _newer_driver(profile.environment) if _NOT_STARTED in quote else _ENDS if quote else ""
    record = "Record the part of the program that computes: a longer run, or a capture range (cudaProfilerStart/Stop)."
    return Finding(NO_KERNELS, "warning", "No kernel was recorded", f"{detail} {quote}".strip(), remedy or record)


def _diagnostic(profile: Profile, *texts: str) -> str:
    """Return the first of these messages that the profiler wrote, as a sentence; "" for none."""
    messages = profile.recorded("diagnostics")["text"].astype("str")
    for text in texts:
        matching = messages[messages.str.contains(text, regex=False)]
        if len(matching):
            return f"nsys says: “{matching.iloc[0].strip()}”"
    return ""


def _newer_driver(environment: Environment) -> str:
    """Return what to do if the driver is newer than nsys; "" if it is not, or its version is unknown."""
    driver, tool = (re.match(r"(\d+)\.(\d+)", text) for text in (environment.driver, environment.collector_version))
    if driver is None or tool is None:
        return ""
    needed = next((first for major, first in _FIRST_NSYS.items() if int(driver[1]) >= major), None)
    if needed is None or (int(tool[1]), int(tool[2])) >= needed:
        return ""
    return (
        f"The driver ({driver[0]}) is newer than nsys {tool[0]}, which most likely cannot trace it: "
        f"use nsys {needed[0]}.{needed[1]} or later."
    )
