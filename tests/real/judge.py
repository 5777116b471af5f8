"""Judge the advice on the real programs: whether the first finding names the cause, and the step that it predicts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from nightsight.model.prove import ProofReport, calibration_lines
from nightsight.model.report import Finding
from tests.planted.judge import LEAST_FALSE_PCT, diagnose, headers, number, read_packed
from tests.real.blind_cases import ALL
from tests.real.cases import RealCase


@dataclass(frozen=True)
class RealVerdict:
    """A program, its first finding, a step of it in ms as the report has it, and the times of its forms."""

    case: RealCase
    first: Finding | None
    step_ms: float
    times: dict[str, float]

    @property
    def is_right(self) -> bool:
        """Whether the first finding names the cause; for a healthy program, whether the predicted gain is small."""
        if not self.case.rules:
            return self.first is None or (self.first.gain_pct or 0.0) <= LEAST_FALSE_PCT
        return self.first is not None and self.first.rule in self.case.rules

    @property
    def form(self) -> str:
        """The form of the program that the first finding asks for; "" if it was not timed."""
        forms = dict(self.case.fixes)
        form = forms.get(self.first.rule, forms.get("", "")) if self.first else ""
        return form if form in self.times else ""

    @property
    def predicted_ms(self) -> float | None:
        """The step that the report predicts with the first fix.

        If what repeats in the report is not a step of the program, the gain applies to the measured step.
        """
        if self.first is None or self.first.gain_pct is None or "base" not in self.times:
            return None
        base_ms = self.times["base"]
        is_same_unit = base_ms / _SAME_UNIT < self.step_ms < base_ms * _SAME_UNIT
        return (self.step_ms if is_same_unit else base_ms) * (1 - self.first.gain_pct / 100)

    @property
    def factor(self) -> float | None:
        """The predicted step divided by the measured one."""
        return self.predicted_ms / self.times[self.form] if self.form and self.predicted_ms is not None else None


# host code of programs that were captured at the same time took up to 1.8 times as long
_SAME_UNIT: Final = 2.0


def judged(folder: Path, suffix: str = ".sqlite") -> list[RealVerdict]:
    """Judge all captures in a folder: of nsys, or, with the suffix `.torch.json`, of torch.profiler."""
    times: dict[str, dict[str, float]] = json.loads((folder / "times.json").read_text())
    verdicts = []
    for case in ALL.values():
        if (packed := folder / f"{case.name}{suffix}.xz").exists():
            diagnosis = diagnose(read_packed(packed))
            first = diagnosis.advice[0] if diagnosis.advice else None
            verdicts.append(RealVerdict(case, first, diagnosis.unprofiled_ms, times.get(case.name, {})))
    return verdicts


def table(verdicts: Sequence[RealVerdict]) -> str:
    """Write the verdicts as Markdown, those of each half with their sum."""
    names = (
        "program",
        "half",
        "step ms",
        "step ms in the report",
        "first finding",
        "predicted ms",
        "fixed ms",
        "factor",
    )
    lines = [*headers(*names)]
    for each in verdicts:
        rule = f"`{each.first.rule}`" if each.first else "none"
        gain = number(each.first.gain_pct, 0, " %") if each.first else ""
        label = f"{rule}{gain and f', {gain}'}{'' if each.is_right else ' (another cause)'}"
        fixed = f"`{each.form}`: {short(each.times[each.form])}" if each.form else ""
        cells = (f"`{each.case.name}`", each.case.half, short(each.times.get("base")), short(each.step_ms))
        more = (label, short(each.predicted_ms), fixed, number(each.factor, 2))
        lines.append(f"| {' | '.join((*cells, *more))} |")
    lines.append("")
    for half in sorted({each.case.half for each in verdicts}):
        of_half = [each for each in verdicts if each.case.half == half]
        factors = [each.factor for each in of_half if each.factor is not None and each.is_right]
        near = sum(1 / 1.5 <= factor <= 1.5 for factor in factors)
        right = sum(each.is_right for each in of_half)
        lines.append(f"- {half}: {right} of {len(of_half)} right, {near} of {len(factors)} predicted steps within 1.5.")
    return "\n".join(lines)


def short(ms: float | None) -> str:
    """Write milliseconds with three digits."""
    return "" if ms is None else np.format_float_positional(ms, 3, unique=False, fractional=False, trim="-")


def proofs_table(folder: Path) -> str:
    """Write the proofs in a folder as Markdown: of each cause, the switch that made the step shortest."""
    names = ("program", "cause", "step before", "predicted", "switch", "measured", "predicted / measured", "results")
    lines = [*headers(*names)]
    quotients = []
    for path in sorted(folder.glob("*.json")):
        report = ProofReport.from_json(path.read_bytes())
        for row in map(json.loads, calibration_lines(report)):
            proof = next(each for each in report.proofs if each.switches == tuple(row["switches"]))
            before, promised, after = (1e-6 * row[name] for name in ("base_ns", "promised_ns", "measured_ns"))
            quotients.append(promised / after)
            detail = f" {proof.results.detail.removeprefix('different ')}" if proof.results.detail else ""
            cells = (f"`{path.stem}`", f"`{row['rule']}`", number(before, 2), number(promised, 2))
            more = (f"`{'`, `'.join(row['switches'])}`", number(after, 2), number(promised / after, 2))
            lines.append(f"| {' | '.join((*cells, *more, f'{proof.verdict}, {proof.results.verdict}{detail}'))} |")
    near = sum(1 / 1.5 <= quotient <= 1.5 for quotient in quotients)
    return "\n".join(
        [*lines, "", f"{near} of {len(quotients)} predicted steps are within a factor of 1.5 of the measured one."]
    )
