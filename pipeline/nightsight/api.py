"""The Python API for notebooks and scripts: `import nightsight as ns` (docs/api.md)."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.collect import Choice
from nightsight.collect.interpreter import interpreter
from nightsight.collect.own import own_workloads
from nightsight.collect.replay import Replay
from nightsight.collect.workloads import Request, registered_workloads, resolve
from nightsight.errors import MissingTable
from nightsight.events.window import AUTO
from nightsight.model.report import Finding, names_of
from nightsight.progress import silent
from nightsight.read import MOST_BYTES
from nightsight.render import FORMATS, Source
from nightsight.render.terminal import first_screen, screen_html
from nightsight.runs.layout import write_file
from nightsight.workflows.opening import Reading, open_file
from nightsight.workflows.profile import Plan, profile_program

_HTML: Final = FORMATS["html"]


@dataclass(frozen=True)
class Report:
    """The report of a capture: its tables by result name, and its findings.

    `report["cuda_gpu_kern_sum"]` is a DataFrame (columns: docs/report-json.md); `list(report)` lists all results.
    """

    source: Source

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Return the table of a result; KeyError for an unknown name, MissingTable if the capture lacks its events."""
        result = self.source.report.result(name)
        if result.table is None:
            raise MissingTable(f"{name} is not available: {result.unavailable}")
        return result.table

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the results, in report order."""
        return iter(names_of(self.source.report.results))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings: those about the capture first, then advice by gain."""
        return self.source.report.findings

    def to_html(self, path: str | Path) -> Path:
        """Write the HTML page to a file and return its path."""
        write_file(Path(path), _HTML.render(self.source)[""])
        return Path(path)

    def to_json(self, path: str | Path) -> Path:
        """Write the report as JSON to a file and return its path."""
        write_file(Path(path), FORMATS["json"].render(self.source)[""])
        return Path(path)

    def _repr_html_(self) -> str:
        """Show the first screen in a notebook: the verdict, the top causes with their gains, and the top kernels."""
        return screen_html(first_screen(self.source.report))


def report(
    path: str | Path, *, window: str = AUTO, nsys: str | Path | None = None, most_bytes: int = MOST_BYTES
) -> Report:
    """Open a capture: a .nsys-rep (needs nsys), its SQLite export, a .ncu-rep, an ncu CSV page, or a torch trace.

    Also opens a run folder or a report.json, which has no events, so its page has no timeline. `window`: the part to
    report on, as on the command line (UsageError if it is not found). Raise CaptureError for anything else, and for a
    trace larger than `most_bytes` uncompressed.
    """
    reading = Reading(Path(nsys) if nsys else None, most_bytes, progress=silent, window=window)
    return Report(open_file(Path(path), _HTML, reading))


def profile(  # noqa: PLR0913 (all by name)
    command: Sequence[str],
    *,
    collector: Choice = "auto",
    reports: str | Path = "reports",
    python: str | None = None,
    timeout_s: float = 3600.0,
    ncu: bool = True,
    time_steps: bool | None = None,
    window: str = AUTO,
    attach: Sequence[str | Path] = (),
) -> Report:
    """Profile a workload, script or command (`["train.py", "--epochs", "1"]`) and open its report.

    The run is kept in the folder `reports`, as with `nightsight profile`. Workloads and scripts run with `python`
    (default: the current Python). Raise WorkloadError if the program fails, after writing the report. With
    `ncu=False`, no kernels are replayed. `time_steps`: whether to time the steps in a run without a profiler (default:
    for some steps of Python programs). `attach`: result files of serving benchmarks that the program writes.
    """
    first, *rest = command
    names = {workload.name for workload in registered_workloads()} | {workload.name for workload in own_workloads()}
    is_named = first.endswith(".py") or first in names
    target, arguments = (first, rest) if is_named else (None, list(command))
    program = resolve(target, arguments, python=interpreter(python or sys.executable).path)
    request = Request(timeout_s=timeout_s, replay=Replay() if ncu else None, time_steps=time_steps)
    plan = Plan(program, collector, Path(reports), window=window, attach=tuple(map(Path, attach)))
    return report(profile_program(plan, request).path.with_name("report.json"))
