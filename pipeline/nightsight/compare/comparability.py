"""Finds differences other than the program that make runs hard to compare: machine, tools, and recorded data."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pandas as pd

from nightsight.model.compare import COPYING, COUNTS, EXPOSED, KERNELS, STEP, UNPROFILED, Difference, Measures
from nightsight.model.report import Conditions
from nightsight.results.categories import BUSY, GRAPHS, IDLE

_Sides = tuple[Sequence[Measures], Sequence[Measures]]

_ON_HOST: Final = ("api", "operator", "range", STEP, *IDLE)
_ON_GPU: Final = ("kernel", "family", "copy", KERNELS, COPYING, EXPOSED, *BUSY)
_TIMES: Final = (*_ON_HOST, *_ON_GPU, UNPROFILED)
_PROFILED: Final = (*_ON_HOST, *_ON_GPU, *COUNTS)
_EVERYTHING: Final = (*_PROFILED, UNPROFILED)

# parameters that affect the length of a measurement, or that nightsight adds, but not the work of a step
_HARMLESS: Final = frozenset(
    ("steps", "iterations", "iters", "warmup", "warmup_steps", "trials", "repeat", "duration", "interpreter")
)
_RECORDED: Final = {"api": "CUDA calls", "operator": "operators", "range": "ranges", "kernel": "kernels"}
_GRAPH_LAUNCH: Final = re.compile(r"^cu(?:da)?GraphLaunch|^hipGraphLaunch")
_CLOCK_PCT: Final = 1.0


def differences(baseline: Sequence[Measures], candidate: Sequence[Measures]) -> tuple[Difference, ...]:
    """Return the differences between the two sides, with the measures whose verdicts they invalidate."""
    sides = (baseline, candidate)
    return (*_machine(sides), *_tools(sides), *_arguments(sides), *_recording(sides), *_states(sides))


def _facts(runs: Sequence[Measures], fact: Callable[[Measures], str]) -> list[str]:
    return sorted({fact(run) for run in runs} - {""})


def _differences_of_fact(
    what: str, sides: _Sides, fact: Callable[[Measures], str], *affects: str
) -> Iterator[Difference]:
    """Yield a difference if a fact is known for both sides, but not equal in all runs."""
    baseline, candidate = (_facts(runs, fact) for runs in sides)
    if baseline and candidate and len({*baseline, *candidate}) > 1:
        yield Difference(what, ", ".join(baseline), ", ".join(candidate), affects)


def _machine(sides: _Sides) -> Iterator[Difference]:
    yield from _differences_of_fact("GPU", sides, lambda run: run.environment.gpu, *_EVERYTHING)
    yield from _differences_of_fact(
        "MIG slice", sides, lambda run: ", ".join(one.mig or "none" for one in run.conditions), *_TIMES
    )
    yield from _differences_of_fact("driver", sides, lambda run: run.environment.driver, *_TIMES)
    yield from _differences_of_fact("CPU", sides, lambda run: run.environment.cpu, *_ON_HOST, UNPROFILED)
    torch = list(_differences_of_fact("PyTorch", sides, lambda run: run.environment.torch))
    yield from torch
    # another PyTorch version brings another CUDA version, so both are part of the comparison
    yield from _differences_of_fact("CUDA", sides, lambda run: run.environment.cuda, *(() if torch else _TIMES))
    yield from _differences_of_fact("Python", sides, lambda run: run.environment.python)
    yield from _differences_of_fact("operating system", sides, lambda run: run.environment.os)


def _tools(sides: _Sides) -> Iterator[Difference]:
    profilers = list(_differences_of_fact("profiler", sides, lambda run: run.environment.collector, *_PROFILED))
    yield from profilers
    if not profilers:
        yield from _differences_of_fact(
            "version of the profiler", sides, lambda run: run.environment.collector_version, *_ON_HOST
        )
    yield from _differences_of_fact("window", sides, lambda run: run.window, *_PROFILED)
    yield from _differences_of_fact("what repeats", sides, lambda run: run.family, *_PROFILED)
    if len({bool(run.repetitions) for side in sides for run in side}) > 1:
        before, after = ("repetitions" if runs[0].repetitions else "no repetitions" for runs in sides)
        yield Difference("steps of the window", before, after, _PROFILED)


def _arguments(sides: _Sides) -> Iterator[Difference]:
    runs = [run for side in sides for run in side]
    # raw captures do not contain parameters
    if not all(run.parameters for run in runs):
        return
    for name in sorted({name for run in runs for name in run.parameters}):
        affects = () if name in _HARMLESS else _EVERYTHING
        yield from _differences_of_fact(name, sides, lambda run: run.parameters.get(name, "not set"), *affects)  # noqa: B023 (called at once)


def _recording(sides: _Sides) -> Iterator[Difference]:
    recorded = [{kind for run in runs for kind in run.table["kind"].unique()} for runs in sides]
    for kind, what in _RECORDED.items():
        if (kind in recorded[0]) != (kind in recorded[1]):
            before, after = ("recorded" if kind in there else "not recorded" for there in recorded)
            affected = {"kernel": (*_ON_GPU, *COUNTS), "api": COUNTS}.get(kind, ())
            yield Difference(what, before, after, tuple(dict.fromkeys((kind, *_ON_HOST, *affected))))
    if any(run.is_incomplete for run in (*sides[0], *sides[1])):
        before, after = (f"in {sum(run.is_incomplete for run in runs)} of {len(runs)} runs" for runs in sides)
        yield Difference("lost events", before, after, _PROFILED)
    modes = [{_graph_mode(run.table) for run in runs} - {""} for runs in sides]
    if all(modes) and modes[0] != modes[1]:
        before, after = (" and ".join(sorted(mode)) for mode in modes)
        yield Difference("CUDA graphs", before, after, _PROFILED)


def _graph_mode(table: pd.DataFrame) -> str:
    """Return how CUDA graphs were traced: as a whole, or kernel by kernel; "" if there are none."""
    names = table["name"].astype("str")
    if ((table["kind"] == "gate") & (names == GRAPHS)).any():
        return "traced as a whole"
    launched = (table["kind"] == "api") & names.str.contains(_GRAPH_LAUNCH)
    return "traced kernel by kernel" if launched.any() else ""


def _states(sides: _Sides) -> Iterator[Difference]:
    clocks = [[condition.sm_mhz for run in runs for condition in run.conditions if condition.sm_mhz] for runs in sides]
    if all(clocks):
        before, after = (float(pd.Series(of_side).median()) for of_side in clocks)
        if abs(after / before - 1) * 100 > _CLOCK_PCT:
            yield Difference("SM clock", f"{before:.0f} MHz", f"{after:.0f} MHz", _TIMES)
    yield from _differences_of_fact("clock policy", sides, lambda run: _any(run, lambda one: one.clock_policy), *_TIMES)
    for what, words in (("throttling", _throttling), ("other processes on the GPU", _sharing)):
        there, here = (", ".join(_facts(runs, words)) for runs in sides)
        if there or here:
            yield Difference(what, there or "none", here or "none", _TIMES)


def _any(run: Measures, fact: Callable[[Conditions], str]) -> str:
    return ", ".join(sorted({fact(condition) for condition in run.conditions} - {""}))


def _throttling(run: Measures) -> str:
    return ", ".join(sorted({reason for condition in run.conditions for reason in condition.slowdowns}))


def _sharing(run: Measures) -> str:
    return "some" if run.is_shared else ""
