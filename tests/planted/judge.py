"""Judges advice: whether the first one names what was planted, and how far its gain is from the measured one."""

import lzma
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nightsight.advise import NEEDS, advise
from nightsight.analyze import ANALYSES
from nightsight.captures import unprofiled_file
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from nightsight.model.report import Finding, Profile
from nightsight.read import read
from nightsight.results.causes import REPLAY
from nightsight.runs.unprofiled import with_unprofiled
from tests.planted.cases import RANKS, Case
from tests.planted.store import median_ms, times

LEAST_FALSE_PCT: Final = 3.0
_NEAR: Final = 1.5
# the end of a title, which the columns of the table say too
_COST: Final = r": [\d.,]+ \S+ of the [\d.,]+ \S+ of (?:each step|each repetition|the window)(?: can be saved)?$"


@dataclass(frozen=True)
class Diagnosis:
    """What nightsight says of a capture: its advice, and the replay as ms per repetition."""

    advice: tuple[Finding, ...]
    replayed_ms: float
    unprofiled_ms: float
    unexplained_pct: float


@dataclass(frozen=True)
class Verdict:
    """What was planted, what the fix gained, and what nightsight says of the capture, if there is one."""

    case: Case
    bad_ms: float | None
    fixed_ms: float | None
    diagnosis: Diagnosis | None

    @property
    def first(self) -> Finding | None:
        return self.diagnosis.advice[0] if self.diagnosis and self.diagnosis.advice else None

    @property
    def gain_pct(self) -> float | None:
        """The share of a step that the fix took away, without a profiler."""
        return None if self.bad_ms is None or self.fixed_ms is None else 100 * (1 - self.fixed_ms / self.bad_ms)

    @property
    def unprofiled_ms(self) -> float | None:
        """What a step takes without the profiler, as predicted."""
        return self.diagnosis.unprofiled_ms * self.case.parts if self.diagnosis else None

    @property
    def promised_ms(self) -> float | None:
        """What a step takes after the first advice, as predicted."""
        if self.unprofiled_ms is None or self.first is None or self.first.gain_pct is None:
            return None
        return self.unprofiled_ms * (1 - self.first.gain_pct / 100)

    @property
    def step_factor(self) -> float | None:
        """The larger of the promised step and the one after the fix over the smaller; None if one is unknown."""
        if self.promised_ms is None or self.fixed_ms is None:
            return None
        return max(self.promised_ms / self.fixed_ms, self.fixed_ms / self.promised_ms)

    @property
    def is_named(self) -> bool:
        """Whether the first advice has the planted cause and its place."""
        finding, place = self.first, self.case.place
        return bool(
            finding and finding.rule in self.case.rules and (not place or any(word in finding.title for word in place))
        )

    @property
    def factor(self) -> float | None:
        """The larger of the two gains, predicted and measured, over the smaller; None if one is unknown or nothing."""
        gains = (self.first.gain_pct if self.first else None, self.gain_pct)
        low, high = min(gain or 0 for gain in gains), max(gain or 0 for gain in gains)
        return high / low if low > 0 else None

    def is_near(self, most: float) -> bool:
        """Whether the cause is named and its gain right within a factor; the gain of another cause is not.

        An advice that promises no gain is right if it names the cause.
        """
        return self.is_named and (not self.case.has_gain or (self.factor is not None and self.factor <= most))

    @property
    def false(self) -> tuple[Finding, ...]:
        """What a healthy program is promised to gain, above the allowed."""
        if not self.case.is_healthy or not self.diagnosis:
            return ()
        return tuple(each for each in self.diagnosis.advice if (each.gain_pct or 0) > LEAST_FALSE_PCT)


def judged(cases: Sequence[Case], folder: Path) -> list[Verdict]:
    """Judge the captures in a folder; what is neither timed nor captured is left out."""
    trials_by_case, verdicts = times(folder), []
    for case in cases:
        diagnosis, trials = diagnose_case(case, folder), trials_by_case.get(case.name, {})
        if diagnosis or trials:
            bad, fixed = (median_ms(trials.get(form, ())) for form in ("bad", "fixed"))
            verdicts.append(Verdict(case, bad, fixed, diagnosis))
    return verdicts


def diagnose_case(case: Case, folder: Path) -> Diagnosis | None:
    """Diagnose a stored capture, with what ncu measured; None if there is none."""
    profile = joined_ranks(case, folder) if case in RANKS.values() else _of_program(case, folder)
    return diagnose(replace(profile, window=case.window)) if profile else None


def diagnose(profile: Profile) -> Diagnosis:
    """Diagnose a profile in the window that a report is about: no more than advice needs."""
    timeline = Timeline(profile)
    results = [analysis.run(timeline) for analysis in ANALYSES if analysis.entry in NEEDS]
    (table,) = (result.table for result in results if result.name == REPLAY.name)
    row: dict[Any, Any] = table.iloc[0].to_dict() if table is not None and len(table) else {}
    advice = tuple(each for each in advise(results) if each.severity == "advice")
    replayed, unprofiled = (row.get(name, 0.0) / 1e6 for name in ("replayed_ns", "unprofiled_ns"))
    return Diagnosis(advice, replayed, unprofiled, row.get("unexplained_pct", 0.0))


def _of_program(case: Case, folder: Path) -> Profile | None:
    profile: Profile | None = None
    for suffix in (".sqlite", ".ncu-rep"):
        packed = folder / f"{case.file}{suffix}.xz"
        if packed.exists():
            part = read_packed(packed)
            profile = profile.joined(part) if profile else part
    return profile


def joined_ranks(case: Case, folder: Path) -> Profile | None:
    """Return the captures of all ranks of a case as one; None if there are none."""
    files = sorted(folder.glob(f"{case.name}.[0-9].*.xz"))
    return merge_ranks([RankCapture(file.name.split(".")[0], read_packed(file)) for file in files]) if files else None


def read_packed(packed: Path) -> Profile:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / packed.stem
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        unprofiled = packed.with_name(unprofiled_file(path).name)
        if unprofiled.exists():
            unprofiled_file(path).write_bytes(unprofiled.read_bytes())
        return with_unprofiled(read(path), path)


def table(verdicts: Sequence[Verdict]) -> str:
    """Write the verdicts and their sum as Markdown."""
    planted = [verdict for verdict in verdicts if not verdict.case.is_healthy]
    healthy = [verdict for verdict in verdicts if verdict.case.is_healthy]
    tables = (
        [*headers("program", "planted cause", *TIMES, "fixed ms", "gain", *ADVICE, "factor"), *map(row, planted)],
        [*headers("healthy program", "what it is", *TIMES, *ADVICE), *map(healthy_row, healthy)],
        [f"- {line}" for line in summary(planted, healthy)],
    )
    return "\n\n".join("\n".join(lines) for lines in tables if lines)


TIMES: Final = ("unexplained", "predicted ms", "bad ms")
ADVICE: Final = ("first finding", "predicted gain")


def promise(verdict: Verdict) -> str:
    """Write what the first advice says, and the step that it promises next to the one after the fix."""
    if verdict.first is None:
        return f"{verdict.case.name}: no advice"
    steps = f"promised {number(verdict.promised_ms, 3)} ms, fixed {number(verdict.fixed_ms, 3)} ms"
    named = "named" if verdict.is_named else "not named"
    texts = (verdict.first.title, verdict.first.detail, verdict.first.remedy)
    return "\n  ".join((f"{verdict.case.name}: {named}, {steps}, factor {number(verdict.step_factor, 2)}", *texts))


def headers(*names: str) -> tuple[str, str]:
    return f"| {' | '.join(names)} |", "|---" * len(names) + "|"


def row(verdict: Verdict) -> str:
    cells = [
        number(verdict.fixed_ms, 2),
        number(verdict.gain_pct, 1, " %"),
        *advised(verdict),
        number(verdict.factor, 2) if verdict.is_named else "not named",
    ]
    return f"| {' | '.join((*begun(verdict), *cells))} |"


def healthy_row(verdict: Verdict) -> str:
    return f"| {' | '.join((*begun(verdict), *advised(verdict)))} |"


def begun(verdict: Verdict) -> tuple[str, ...]:
    unexplained = number(verdict.diagnosis.unexplained_pct if verdict.diagnosis else None, 1, " %")
    steps = (number(value, 2) for value in (verdict.unprofiled_ms, verdict.bad_ms))
    return (f"`{verdict.case.name}`", verdict.case.cause, unexplained, *steps)


def advised(verdict: Verdict) -> tuple[str, str]:
    if verdict.diagnosis is None:
        return "not captured", ""
    if verdict.first is None:
        return "none", ""
    title = re.sub(_COST, "", verdict.first.title)
    return f"`{verdict.first.rule}`: {title}", number(verdict.first.gain_pct, 1, " %")


def summary(planted: Sequence[Verdict], healthy: Sequence[Verdict]) -> Iterator[str]:
    captured = [verdict for verdict in planted if verdict.diagnosis]
    if captured:
        named = sum(verdict.is_named for verdict in captured)
        yield f"Named first: {named} of {len(captured)} ({share(named, captured)})."
    compared = [verdict for verdict in captured if verdict.gain_pct is not None and verdict.case.has_gain]
    for most in (1.5, 2.0) if compared else ():
        near = sum(verdict.is_near(most) for verdict in compared)
        yield (
            f"Named first, and the gain right within a factor of {most:g}: {near} of {len(compared)} "
            f"({share(near, compared)})."
        )
    steps = [verdict.step_factor for verdict in compared if verdict.step_factor is not None]
    if steps:
        near = sum(factor <= _NEAR for factor in steps)
        yield f"The predicted step within a factor of {_NEAR:g} of the fixed one: {near} of {len(steps)}."
    replays = [verdict for verdict in (*planted, *healthy) if verdict.diagnosis]
    for least in (1.0, 3.0) if replays else ():
        close = sum(abs(verdict.diagnosis.unexplained_pct) <= least for verdict in replays if verdict.diagnosis)
        yield f"The simulation explains the step within {least:g} %: {close} of {len(replays)}."
    if healthy:
        wrong = [verdict.case.name for verdict in healthy if verdict.false]
        names = f": {', '.join(wrong)}" if wrong else ""
        yield f"Healthy programs with advice above {LEAST_FALSE_PCT:g} %: {len(wrong)} of {len(healthy)}{names}."


def share(some: int, of: Sequence[Verdict]) -> str:
    return f"{100 * some / len(of):.0f} %"


def number(value: float | None, digits: int, unit: str = "") -> str:
    # without a zero below zero
    return "" if value is None else f"{round(value, digits) + 0.0:.{digits}f}{unit}"
