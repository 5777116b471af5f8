"""Comparisons of runs and commits, and proofs of fixes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, overload

import pandas as pd

from nightsight.api.functions import Function, Functions, compare_functions
from nightsight.api.reports import Report, profile, program_of
from nightsight.api.reports import report as open_report
from nightsight.api.shown import MOST_BYTES_SHOWN, preformatted, text_of, written
from nightsight.collect import Choice
from nightsight.collect.interpreter import interpreter
from nightsight.collect.prove import switch_of_file
from nightsight.collect.workloads import Request, target_of
from nightsight.collect.worktrees import ProgramRequest
from nightsight.compare import settings_of
from nightsight.errors import UsageError
from nightsight.events.window import AUTO
from nightsight.model import compare as comparisons
from nightsight.model.prove import Proof, ProofReport
from nightsight.progress import silent
from nightsight.read import MOST_BYTES
from nightsight.render.compare import comparison_brief
from nightsight.render.prove import proof_brief
from nightsight.results.switches import SWITCH, Switch, jitted
from nightsight.runs.layout import PROOF
from nightsight.texts import did_you_mean
from nightsight.workflows.compare import STYLES, Sources, compare_runs, load_sides, select_runs, sources_of
from nightsight.workflows.opening import Reading
from nightsight.workflows.prove import ProofPlan, refuse_other
from nightsight.workflows.prove import prove as measure
from nightsight.workflows.trials import Trial, compare_commits

_PAIRS_OF_COMMITS: Final = 5
_PAIRS_OF_FUNCTIONS: Final = 10
Paths = str | Path | Sequence[str | Path]
"""A path, or several."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two sides of runs, and what changed between them (docs/statistics.md)."""

    result: comparisons.Comparison
    sources: Sources

    @property
    def verdict(self) -> str:
        """`regressed`, `improved`, `unchanged` or `inconclusive`."""
        return self.result.verdict

    @property
    def sentence(self) -> str:
        """The verdict in words: the cause, the metric, and its uncertainty."""
        return self.result.sentence

    @property
    def changes(self) -> pd.DataFrame:
        """All measures of both sides, the largest change first."""
        return self.result.changes

    def to_html(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        return written(path, STYLES["html"](self.result, self.sources).encode())

    def to_json(self, path: str | Path) -> Path:
        """Write the comparison as JSON to a file and return its path."""
        return written(path, STYLES["json"](self.result, self.sources).encode())

    def __repr__(self) -> str:
        """Return the brief: slower or faster, believed or not, and what changed most."""
        return text_of(comparison_brief(self.result, MOST_BYTES_SHOWN))

    def _repr_html_(self) -> str:
        """Show the brief in a notebook."""
        return preformatted(repr(self))


@dataclass(frozen=True, repr=False)
class Proofs:
    """The measured gains of fixes (docs/prove.md). path: its proof.json."""

    result: ProofReport
    path: Path

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """Each switch: its predicted and its measured step, and whether results stay the same."""
        return self.result.proofs

    @property
    def best(self) -> Proof | None:
        """The proven set or switch that gains most; None if nothing is proven."""
        return self.result.best_proven

    def __repr__(self) -> str:
        """Return the brief: what is proven, each switch, and what needs an edit."""
        return text_of(proof_brief(self.result, MOST_BYTES_SHOWN))

    def _repr_html_(self) -> str:
        """Show the brief in a notebook."""
        return preformatted(repr(self))


def compare(baseline: Paths, candidate: Paths, *, workload: str = "", window: str = AUTO) -> Comparison:
    """Compare runs: run folders, report.json files or captures, one or several of each side.

    A difference counts only if it exceeds the noise between runs of a side: give at least three of each. Settings come
    from nightsight.toml or [tool.nightsight] in the current folder. workload: of captures that do not name one.
    """
    reading = Reading(None, MOST_BYTES, silent, window)
    chosen = [select_runs(_paths(side)).runs for side in (baseline, candidate)]
    before, after = load_sides(chosen, reading, workload=workload)
    return Comparison(compare_runs(before, after, settings=settings_of(Path.cwd())), sources_of(before, after, reading))


def _paths(given: Paths) -> list[Path]:
    return [Path(given)] if isinstance(given, str | Path) else [Path(path) for path in given]


@overload
def ab(base: Function, head: Function, *, pairs: int = ...) -> Functions: ...


@overload
def ab(
    base: str,
    head: str,
    command: Sequence[str],
    *,
    pairs: int = ...,
    collector: Choice = ...,
    reports: str | Path = ...,
    python: str | None = ...,
    build: str = ...,
    timeout_s: float = ...,
    window: str = ...,
) -> Comparison: ...


def ab(  # noqa: PLR0913 (all by name)
    base: str | Function,
    head: str | Function,
    command: Sequence[str] = (),
    *,
    pairs: int = 0,
    collector: Choice = "auto",
    reports: str | Path = "reports",
    python: str | None = None,
    build: str = "",
    timeout_s: float = 3600.0,
    window: str = AUTO,
) -> Comparison | Functions:
    """Measure two commits of this repository in turns, each in its own worktree, or two functions of this process.

    A dot means the checkout with its edits: `ns.ab("HEAD", ".", ["train.py"])`. build: a shell command for each commit.
    pairs: 5 of commits, unless you say otherwise. Functions are called without arguments, in 10 pairs of batches, and
    what they return is compared: `ns.ab(lambda: f(x), lambda: g(x))`.
    """
    if not isinstance(base, str) and not isinstance(head, str):
        return compare_functions(base, head, pairs or _PAIRS_OF_FUNCTIONS)
    if not isinstance(base, str) or not isinstance(head, str) or not command:
        raise UsageError(
            "ab compares two commits or two functions", 'Use: ns.ab("HEAD", ".", ["train.py"]), or ns.ab(f, g)'
        )
    target, arguments = target_of(command)
    program = ProgramRequest(target, tuple(arguments), interpreter(python or sys.executable).path)
    trial = Trial(program, Path(reports).resolve(), Request(timeout_s=timeout_s), collector, window, build)
    result = compare_commits(trial, base, head, pairs or _PAIRS_OF_COMMITS, settings=settings_of(Path.cwd()))
    reading = Reading(None, MOST_BYTES, silent)
    before, after = load_sides((result.baseline, result.candidate), reading)
    return Comparison(result.comparison, sources_of(before, after, reading))


def prove(  # noqa: PLR0913 (all by name)
    command: Sequence[str],
    *,
    report: Report | str | Path | None = None,
    causes: Sequence[str] = (),
    switches: Sequence[str] = (),
    rounds: int = 3,
    budget_s: float = 600.0,
    steps: int = 0,
    check: str = "",
    reports: str | Path = "reports",
    python: str | None = None,
    timeout_s: float = 3600.0,
) -> Proofs:
    """Apply fixes from outside, without editing the program, and measure their gains.

    report: the report whose causes are proven (default: the latest run of the program in `reports`; without one, the
    program is profiled first, unless `switches` says what to measure). causes: only these rules. switches: names, files
    NAME.py, or jit=MODULE.FUNCTION. check: a command that exits with 0 if results are right.
    """
    program = program_of(command, python)
    chosen = tuple(map(_switch, switches))
    latest = Path(reports) / program.name / "latest" / "report.json"
    if report is None and latest.is_file():
        report = latest
    if report is None and not chosen:
        report = profile(command, reports=reports, python=python, timeout_s=timeout_s)
    opened = report if isinstance(report, Report) or report is None else open_report(report)
    if opened:
        refuse_other(opened.source.report, program)
    folder = Path(reports).resolve() / program.name / PROOF.parent
    plan = ProofPlan(
        program,
        folder,
        opened.source.report if opened else None,
        tuple(causes),
        chosen,
        rounds=rounds,
        budget_s=budget_s,
        steps=steps,
        check=check,
    )
    return Proofs(measure(plan, Request(timeout_s=timeout_s)), folder / PROOF.name)


def _switch(name: str) -> Switch:
    switch = switch_of_file(Path(name)) if name.endswith(".py") else SWITCH.get(name) or jitted(name)
    if switch is None:
        raise UsageError(f"{name} is not a switch", f"{did_you_mean(name, SWITCH)}All: {', '.join(SWITCH)}")
    return switch
