"""Times a program's steps in a run without a profiler (`profile --time-steps`).

A hook in the program (workloads/timed/sitecustomize.py) notes when NVTX ranges and calls of PyTorch begin, or when
iterations of its loops end.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.collect.process import Child, run_logged
from nightsight.collect.tools import writable_folder
from nightsight.collect.workloads import PACKAGE, Program, Request, child_environment
from nightsight.errors import ToolError
from nightsight.events.loops import ENDS_WITH, ends_a_step, slow_at_start
from nightsight.events.ranges import LEAST, without_numbers
from nightsight.model.report import Benchmark, Finding
from nightsight.tables import TABLES, conform

_VARIABLE: Final = "NIGHTSIGHT_TIMES"
LOOPS: Final = {"NIGHTSIGHT_LOOPS": "1"}
"""The environment variable for the hook to time loops."""
_STEP: Final = "measure / step"
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
# a mean that differs from the median by this factor is that of steps some of which take much longer, or shorter
_UNEVEN: Final = 1.25
_COLUMNS: Final = ["path", "thread", "cpu_ns", "gpu_ns", "since_ns", "took_ns"]


@dataclass(frozen=True)
class RunLimit:
    """When a program is ended early: after some steps of a family, or, without one, some seconds after the first."""

    steps: int = 0
    seconds: float = 0.0
    family: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable for the hook."""
        return {"NIGHTSIGHT_LIMIT": f"{self.steps} {self.seconds} {self.family}"}


@dataclass(frozen=True)
class RangeTimes:
    """The table `timed_ranges` of a run, its duration, and findings that explain missing rows."""

    ranges: pd.DataFrame
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()


def of_benchmark(benchmark: Benchmark) -> pd.DataFrame:
    """Return the step times of a built-in workload as the table `timed_ranges`."""
    times = pd.Series(benchmark.step_ns, dtype="float64")
    count = len(times) * benchmark.steps_per_trial
    row = {"path": _STEP, "instances": count, "med_ns": times.median(), "on_gpu": True}
    return conform("timed_ranges", pd.DataFrame([row]))


def time_ranges(
    program: Program, request: Request, limit: RunLimit | None = None, *, has_names: bool = True
) -> RangeTimes:
    """Run a program without a profiler and record when its possible steps start; a failure becomes a finding.

    limit: it ends then; None: by itself. has_names: whether its steps are ranges or calls with names; otherwise, they
    are iterations of its loops. If it was not asked for, a failure is only a note, and a program without steps to time
    gets none.
    """
    is_asked = bool(request.time_steps)
    much = f": {limit.seconds:.0f} s of its steps" if limit else ""
    request.progress(f"timing {program.name} without a profiler{much}")
    folder = writable_folder(request.logs / "times").absolute()
    for old in folder.iterdir():
        old.unlink()
    environment = child_environment(request)
    path = [str(PACKAGE / "timed"), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment |= {"PYTHONPATH": os.pathsep.join(path), _VARIABLE: str(folder)}
    environment |= limit.environment if limit else {}
    environment |= {} if has_names else LOOPS
    try:
        outcome = run_logged(
            Child(program.command, environment),
            log=request.logs / "times.log",
            timeout_s=request.timeout_s,
            verbose=request.verbose,
        )
    except ToolError:
        # not quoted: its message names a path
        return RangeTimes(_NOTHING, findings=(not_timed(f"{program.name} could not be started", is_asked=is_asked),))
    if outcome.interrupted:
        raise KeyboardInterrupt
    table = summarize_ranges(folder)
    if len(table):
        return RangeTimes(table, outcome.seconds)
    if outcome.ok and not is_asked:
        return RangeTimes(_NOTHING, outcome.seconds)
    nothing = "no range, step of an optimizer, call of a PyTorch model or loop of the program repeats often enough"
    reason = nothing if outcome.ok else f"in a run without the profiler, {program.name} {outcome.ending}"
    return RangeTimes(_NOTHING, outcome.seconds, (not_timed(reason, is_asked=is_asked),))


def summarize_ranges(folder: Path) -> pd.DataFrame:
    """Return the table `timed_ranges` of the files that the processes of a program left in a folder."""
    rows = [row for file in sorted(folder.glob("*.json")) for row in _of_process(file)]
    table = pd.DataFrame(rows, columns=list(TABLES["timed_ranges"]))
    # of several processes and threads, the one with the most instances; of those, the slowest: others wait for it
    table = table.sort_values(["instances", "med_ns"], ascending=False, kind="stable").drop_duplicates("path")
    return conform("timed_ranges", table.sort_index())


def _of_process(file: Path) -> Iterator[tuple[str, int, float, bool, int | None]]:
    """Yield a row of `timed_ranges` for each family of ranges of each thread; nothing from a damaged file."""
    try:
        document: Any = json.loads(file.read_bytes())
        starts = pd.DataFrame(document["began"], columns=_COLUMNS).astype(
            {name: "float64" if name in ("gpu_ns", "took_ns") else "int64" for name in _COLUMNS}
        )
        names = pd.Index([str(path) for path in document["paths"]], dtype="str")
        families = without_numbers(names).str.replace("##", "#").take(starts["path"].to_numpy())
    except _DAMAGED:
        return
    for (family, _), began in starts.groupby([families, "thread"], sort=True):
        rows = began
        if str(family).startswith(ENDS_WITH.partition("{")[0]):
            rows = began[ends_a_step(began["since_ns"].to_numpy(), began["cpu_ns"].to_numpy())]
        # ranges that started before CUDA was set up have no time on the GPU
        gpu = rows["gpu_ns"].dropna()
        on_gpu = len(gpu) >= max(LEAST, len(rows) // 2)
        start_ns = (gpu if on_gpu else rows["cpu_ns"]).to_numpy()
        intervals = np.diff(start_ns)
        if len(intervals) < LEAST - 1 or not (median_ns := float(np.median(intervals))) > 0:
            continue
        # occasional long steps (a checkpoint, workers that start) count as often as they occur, and so do steps
        # in bursts (batches of several workers)
        mean_ns = float(intervals[slow_at_start(start_ns) :].mean())
        is_even = median_ns / _UNEVEN <= mean_ns <= _UNEVEN * median_ns
        took_ns = rows["took_ns"].iloc[slow_at_start(start_ns) :].median()
        host_ns = None if np.isnan(took_ns) else round(took_ns)
        yield str(family), len(start_ns), median_ns if is_even else mean_ns, on_gpu, host_ns


_NOTHING: Final = conform("timed_ranges", pd.DataFrame(columns=["path", "instances", "med_ns", "on_gpu"]))


def not_timed(reason: str, *, is_asked: bool) -> Finding:
    """Return the finding that the steps of a program were not timed: a warning only if that was asked for."""
    return Finding(
        "steps_not_timed",
        "warning" if is_asked else "info",
        "No step times without a profiler",
        f"{reason[:1].upper()}{reason[1:]}. The report can only predict how long a step takes without the profiler.",
        "Timing works for Python programs that can run twice: with PyTorch, nvtx or torch.cuda.nvtx, or, in Python "
        "3.12 or later, with a loop over the steps in the program itself. See times.log in "
        "the logs of this run. To leave it out: --no-time-steps.",
    )
