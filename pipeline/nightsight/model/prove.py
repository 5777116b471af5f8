"""The measurements of switches: whether they reach the predicted gain, and whether results stay the same."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any, Final

from nightsight.errors import CaptureError
from nightsight.model.report import read_as

VERSION: Final = 1
Place = tuple[str, int]
"""A file and a line of it, from 1."""

EQUAL: Final = "equal"
WITHIN: Final = "within noise"
DIFFERENT: Final = "different"
UNKNOWN: Final = "not checked"
"""Whether the results of a program with switches equal those of the unchanged program."""

PROVEN: Final = "proven"
FASTER: Final = "faster"
NO_GAIN: Final = "no gain"
SLOWER: Final = "slower"
NO_EFFECT: Final = "no effect"
FAILED: Final = "failed"
NOT_MEASURED: Final = "not measured"
UNMEASURED: Final = (NO_EFFECT, FAILED, NOT_MEASURED)
"""Verdicts: `proven` is faster with the same results, `faster` is only faster. UNMEASURED have no measured step."""


@dataclass(frozen=True)
class Agreement:
    """Whether results agree. detail: in words. worst_pct: the largest relative difference, None if not compared."""

    verdict: str
    detail: str = ""
    worst_pct: float | None = None


@dataclass(frozen=True)
class Proof:
    """One switch, or several together, measured in turns with the unchanged program.

    cause: the finding that it fixes, "" for none; promised_ns: the step that the finding predicts, None without a gain.
    step_ns: the median step with the switches, base_ns: without them. log_ratio: the mean logarithm of step_ns /
    base_ns over the rounds; error: half the width of its 95 % interval, None for one round. p: the probability that
    chance alone makes any of the switches differ this much, None for one round. places: the changed lines of the
    program, by switch.
    """

    switches: tuple[str, ...]
    rule: str
    cause: str
    promised_ns: float | None
    base_ns: float | None
    step_ns: float | None
    log_ratio: float | None
    error: float | None
    rounds: int
    results: Agreement
    verdict: str
    why: str = ""
    code: str = ""
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    p: float | None = None

    @property
    def gain_pct(self) -> float | None:
        """How much shorter a step is, in percent."""
        return None if self.log_ratio is None else 100 * (1 - exp(self.log_ratio))


@dataclass(frozen=True)
class Todo:
    """A finding that no switch fixes: its cause and its fix, in words and as code if that is certain."""

    rule: str
    cause: str
    remedy: str
    gain_pct: float | None
    code: str = ""


@dataclass(frozen=True)
class ProofReport:
    """The proofs of a program: single switches, the best set if it has several; and the causes that need an edit."""

    program: str
    step: str
    gpu: str
    versions: Mapping[str, str]
    proofs: tuple[Proof, ...]
    best: Proof | None
    todo: tuple[Todo, ...]
    notes: tuple[str, ...] = ()

    @property
    def best_proven(self) -> Proof | None:
        """The best set if it is proven, or else the proven switch that gains most; None if nothing is proven."""
        if self.best and self.best.verdict == PROVEN:
            return self.best
        proven = (proof for proof in self.proofs if proof.verdict == PROVEN)
        return min(proven, key=lambda proof: proof.log_ratio or 0.0, default=None)

    def to_json(self) -> str:
        """Return the report as JSON (docs/prove.md)."""
        document = {"nightsight_proof": VERSION, **asdict(self)}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "ProofReport":
        """Read the output of `to_json`; CaptureError for anything else."""
        try:
            document = json.loads(text)
            if document.pop("nightsight_proof") != VERSION:
                raise CaptureError("unsupported version of proof.json", _AGAIN)
            report: ProofReport = read_as(cls, document, "the proof")
            return report
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CaptureError(f"not a proof.json of nightsight: {error}", _AGAIN) from error


_AGAIN: Final = "Create it again with `nightsight prove`."


def calibration_lines(report: ProofReport) -> list[str]:
    """Return a line of JSON for the best switch of each cause with a predicted gain: no names, no code."""
    of_cause: dict[str, list[Proof]] = {}
    for proof in report.proofs:
        if proof.promised_ns is not None and proof.step_ns and proof.verdict not in UNMEASURED:
            of_cause.setdefault(proof.cause, []).append(proof)
    best = [min(proofs, key=lambda proof: proof.step_ns or 0.0) for proofs in of_cause.values()]
    rows: list[dict[str, Any]] = [
        {
            "rule": proof.rule,
            # of `jit=MODULE.FUNCTION`, the function is the program's
            "switches": [name.partition("=")[0] for name in proof.switches],
            "promised_ns": proof.promised_ns,
            "measured_ns": proof.step_ns,
            "base_ns": proof.base_ns,
            "verdict": proof.verdict,
            "gpu": report.gpu,
            "versions": dict(report.versions),
        }
        for proof in best
    ]
    return [json.dumps(row) for row in rows]
