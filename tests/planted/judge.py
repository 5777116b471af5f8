"""Judges advice: whether the first one names what was planted, and how far its gain is from the measured one."""

import json
import lzma
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightsight.model import Finding, Profile, Report
from nightsight.read import read
from nightsight.workflow import build_report
from tests.planted.cases import Case, Form

LEAST_FALSE_PCT = 3.0


@dataclass(frozen=True)
class Verdict:
    """What was planted, what the fix gained, and what nightsight says of the capture."""

    case: Case
    bad_ms: float | None
    fixed_ms: float | None
    advice: tuple[Finding, ...] | None

    @property
    def first(self) -> Finding | None:
        return self.advice[0] if self.advice else None

    @property
    def gain_pct(self) -> float | None:
        """The share of a step that the fix took away, without a profiler."""
        return None if self.bad_ms is None or self.fixed_ms is None else 100 * (1 - self.fixed_ms / self.bad_ms)

    @property
    def is_named(self) -> bool:
        """Whether the first advice has the planted cause and its place."""
        said, place = self.first, self.case.place
        return bool(said and said.rule in self.case.rules and (not place or any(word in said.title for word in place)))

    @property
    def factor(self) -> float | None:
        """The larger of the two gains, predicted and measured, over the smaller; None if one is unknown or nothing."""
        gains = (self.first.gain_pct if self.first else None, self.gain_pct)
        low, high = min(gain or 0 for gain in gains), max(gain or 0 for gain in gains)
        return high / low if low > 0 else None

    def is_near(self, most: float) -> bool:
        """Whether the cause is named and its gain right within a factor; what is said of another cause is not."""
        return self.is_named and self.factor is not None and self.factor <= most

    @property
    def false(self) -> tuple[Finding, ...]:
        """What a healthy program is promised to gain, above the allowed."""
        if not self.case.is_healthy:
            return ()
        return tuple(said for said in self.advice or () if (said.gain_pct or 0) > LEAST_FALSE_PCT)


def judged(cases: Sequence[Case], folder: Path) -> list[Verdict]:
    """Judge the captures in a folder; what is neither timed nor captured is left out."""
    known = folder / "times.json"
    times = json.loads(known.read_text()) if known.exists() else {}
    verdicts = []
    for case in cases:
        report = reported(case, "bad", folder)
        ms = times.get(case.name, {})
        if report or ms:
            advice = tuple(said for said in report.findings if said.severity == "advice") if report else None
            verdicts.append(Verdict(case, ms.get("bad"), ms.get("fixed"), advice))
    return verdicts


def reported(case: Case, form: Form, folder: Path) -> Report | None:
    """Return the report of a stored capture, with what ncu measured; None if there is none."""
    name = f"{case.name}.{form}"
    profile: Profile | None = None
    for suffix in (".sqlite", ".ncu-rep"):
        packed = folder / f"{name}{suffix}.xz"
        if not packed.exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / f"{name}{suffix}"
            path.write_bytes(lzma.decompress(packed.read_bytes()))
            found = read(path)
        profile = profile.joined(found) if profile else found
    return build_report(profile, name) if profile else None


def table(verdicts: Sequence[Verdict]) -> str:
    """Write the verdicts and their sum as Markdown."""
    planted = [verdict for verdict in verdicts if not verdict.case.is_healthy]
    healthy = [verdict for verdict in verdicts if verdict.case.is_healthy]
    return "\n".join(
        [
            "| program | planted cause | bad ms | fixed ms | gain | first advice | predicted | named | factor |",
            "|---|---|---|---|---|---|---|---|---|",
            *(row(verdict) for verdict in planted),
            "",
            "| healthy program | ms | first advice | predicted |",
            "|---|---|---|---|",
            *(f"| `{each.case.name}` | {number(each.bad_ms, 3)} | {' | '.join(said(each))} |" for each in healthy),
            "",
            *summary(planted, healthy),
        ]
    )


def row(verdict: Verdict) -> str:
    case = verdict.case
    cells = [
        f"`{case.name}`",
        case.cause,
        number(verdict.bad_ms, 3),
        number(verdict.fixed_ms, 3),
        percent(verdict.gain_pct),
        *said(verdict),
        "yes" if verdict.is_named else "no",
        number(verdict.factor, 2),
    ]
    return f"| {' | '.join(cells)} |"


def said(verdict: Verdict) -> tuple[str, str]:
    if verdict.advice is None:
        return "not captured", ""
    if verdict.first is None:
        return "none", ""
    return f"`{verdict.first.rule}`: {verdict.first.title}", percent(verdict.first.gain_pct)


def summary(planted: Sequence[Verdict], healthy: Sequence[Verdict]) -> Iterator[str]:
    captured = [verdict for verdict in planted if verdict.advice is not None]
    yield f"Named first: {sum(verdict.is_named for verdict in captured)} of {len(captured)}."
    compared = [verdict for verdict in captured if verdict.gain_pct is not None]
    for most in (1.5, 2.0):
        near = sum(verdict.is_near(most) for verdict in compared)
        share = 100 * near / max(len(compared), 1)
        yield f"Named first with a gain within a factor of {most:g}: {near} of {len(compared)} ({share:.0f} %)."
    wrong = [verdict.case.name for verdict in healthy if verdict.false]
    names = f": {', '.join(wrong)}" if wrong else ""
    yield f"Healthy programs with advice above {LEAST_FALSE_PCT:g} %: {len(wrong)} of {len(healthy)}{names}."


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"
