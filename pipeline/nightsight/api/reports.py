"""Reports of captures and of new runs."""

import base64
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.api.shown import MOST_BYTES_SHOWN, text_of, written
from nightsight.collect import Choice
from nightsight.collect.interpreter import interpreter
from nightsight.collect.replay import Replay
from nightsight.collect.workloads import Program, Request, resolve, target_of
from nightsight.errors import MissingTable
from nightsight.events.window import AUTO
from nightsight.model.report import Finding, names_of
from nightsight.progress import silent
from nightsight.read import MOST_BYTES
from nightsight.render import FORMATS, Source
from nightsight.render.brief import BriefCause, cause_of_brief, identified, render_brief
from nightsight.render.summary import numbers
from nightsight.render.terminal import first_screen, screen_html
from nightsight.render.verdict import verdict
from nightsight.texts import did_you_mean, some_of
from nightsight.workflows.opening import Reading, open_file
from nightsight.workflows.profile import Plan, profile_program

_HTML: Final = FORMATS["html"]
_MOST_NAMES: Final = 12


@dataclass(frozen=True, repr=False)
class Report:
    """The report of a capture: its verdict, its causes, its tables by result name, and its findings.

    `report["cuda_gpu_kern_sum"]` is a DataFrame (columns: docs/report-json.md); `list(report)` lists all results.
    """

    source: Source

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Return the table of a result; KeyError for an unknown name, MissingTable if the capture lacks its events."""
        names = names_of(self.source.report.results)
        if name not in names:
            raise KeyError(f"{name} is not a table of this report. {did_you_mean(name, names, most=2)}{self._tables()}")
        result = self.source.report.result(name)
        if result.table is None:
            raise MissingTable(f"{name} is not available: {result.unavailable.rstrip('.')}. {self._tables()}")
        return result.table

    def _tables(self) -> str:
        """Return the names of the tables that have rows."""
        filled = [result.name for result in self.source.report.results if len(result.rows)]
        return f"Tables with rows: {some_of(filled, _MOST_NAMES)}; all: list(report)."

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the results, in report order."""
        return iter(names_of(self.source.report.results))

    def __repr__(self) -> str:
        """Return the brief: the verdict, and the causes with their gains and fixes."""
        return text_of(render_brief(self.source.report, most_bytes=MOST_BYTES_SHOWN))

    @property
    def verdict(self) -> str:
        """What costs most, and what to do first."""
        return verdict(self.source.report, numbers(self.source.report)).text

    @property
    def causes(self) -> tuple[BriefCause, ...]:
        """The causes of lost time, the largest gain first: `id`, `cause`, `gain_pct`, `place`, `fix`, `code`."""
        return tuple(cause_of_brief(self.source.report, name) for name in identified(self.source.report))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings: those about the capture first, then advice by gain."""
        return self.source.report.findings

    def to_html(self, path: str | Path) -> Path:
        """Write the HTML page to a file and return its path."""
        return written(path, _HTML.render(self.source)[""])

    def to_json(self, path: str | Path) -> Path:
        """Write the report as JSON to a file and return its path."""
        return written(path, FORMATS["json"].render(self.source)[""])

    def _repr_html_(self) -> str:
        """Show in a notebook: a bar for a step now and after each fix, the verdict, the causes, and the top kernels."""
        picture = base64.b64encode(FORMATS["svg"].render(self.source)[""]).decode()
        ladder = f'<img src="data:image/svg+xml;base64,{picture}" alt="A step now and after each fix">'
        return ladder + screen_html(first_screen(self.source.report))


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
    program = program_of(command, python)
    request = Request(timeout_s=timeout_s, replay=Replay() if ncu else None, time_steps=time_steps)
    plan = Plan(program, collector, Path(reports), window=window, attach=tuple(map(Path, attach)))
    return report(profile_program(plan, request).path.with_name("report.json"))


def program_of(command: Sequence[str], python: str | None) -> Program:
    """Return the program that a command runs."""
    target, arguments = target_of(command)
    return resolve(target, arguments, python=interpreter(python or sys.executable).path)
