"""Renders proofs for someone in a hurry: what was proven, each switch predicted and measured, and what to edit.

All texts are printable. See `nightsight.render.brief` for that of a report.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from nightsight.model.prove import DIFFERENT, FASTER, NO_EFFECT, PROVEN, UNKNOWN, UNMEASURED, Proof, ProofReport
from nightsight.render.fit import MOST_BYTES, brief_json, brief_text
from nightsight.render.prove.words import change_of, doubt_of
from nightsight.results.switches import SWITCH, jitted
from nightsight.texts import excerpt, log_line, printable, prose
from nightsight.units import counted, format_value

_MOST_SWITCHES: Final = 10
_MOST_EDITS: Final = 3
_MOST_NOTES: Final = 2
_ROUNDS: Final = 6
# in characters
_NAME: Final = 60
_TITLE: Final = 120
_SENTENCE: Final = 200
_EDIT: Final = "nightsight ab --base HEAD --head . PROGRAM"


@dataclass(frozen=True)
class BriefProof:
    """A switch, or several together: the predicted step, the measured one, and whether results are equal.

    change: in words, with its uncertainty. gain_pct: how much shorter a step is. why: why it is not proven.
    """

    switches: tuple[str, ...]
    rule: str
    predicted_ns: float | None
    base_ns: float | None
    measured_ns: float | None
    gain_pct: float | None
    change: str
    rounds: int
    results: str
    verdict: str
    why: str


@dataclass(frozen=True)
class BriefEdit:
    """A cause that no switch fixes: its fix, and lines to paste if they are certain."""

    rule: str
    cause: str
    gain_pct: float | None
    fix: str
    code: str


@dataclass(frozen=True)
class ProofBrief:
    """The brief of the proofs of a program. code: what applies what was proven. commands: what to do next."""

    title: str
    step: str
    gpu: str
    base_ns: float | None
    verdict: str
    code: str
    together: BriefProof | None
    switches: tuple[BriefProof, ...]
    without_effect: tuple[str, ...]
    edits: tuple[BriefEdit, ...]
    more_edits: int
    notes: tuple[str, ...]
    commands: tuple[str, ...]
    is_cut: bool = False


def brief(report: ProofReport) -> ProofBrief:
    """Return the brief of proofs, with everything that may be left out."""
    best = report.best_proven
    # those that gain most first, then those that could not be measured
    told = sorted(
        (proof for proof in report.proofs if proof.verdict != NO_EFFECT),
        key=lambda proof: (proof.verdict in UNMEASURED, -(proof.gain_pct or 0.0)),
    )
    silent = [switch for proof in report.proofs if proof.verdict == NO_EFFECT for switch in proof.switches]
    edits = [
        BriefEdit(
            excerpt(each.rule, _NAME),
            excerpt(each.cause, _TITLE),
            each.gain_pct,
            prose(each.remedy, _SENTENCE),
            _code(each.code),
        )
        for each in report.todo[:_MOST_EDITS]
    ]
    return ProofBrief(
        excerpt(report.program, _NAME),
        excerpt(report.step, _TITLE),
        prose(report.gpu, _NAME),
        next((proof.base_ns for proof in report.proofs if proof.base_ns), None),
        _verdict(report),
        _code(best.code) if best else "",
        _proof(report.best) if report.best else None,
        tuple(_proof(proof) for proof in told[:_MOST_SWITCHES]),
        tuple(printable(name) for name in silent),
        tuple(edits),
        len(report.todo) - len(edits),
        tuple(prose(note, _SENTENCE) for note in report.notes[:_MOST_NOTES]),
        tuple(_commands(report)),
    )


def _verdict(report: ProofReport) -> str:
    best = report.best_proven
    if best:
        before, after = (format_value(value, "time_ns") if value else "?" for value in (best.base_ns, best.step_ns))
        results = excerpt(best.results.verdict, _NAME)
        return f"proven: {_names(best)}: {change_of(best)}, {before} → {after}, results {results}"
    faster = [_names(proof) for proof in report.proofs if proof.verdict == FASTER]
    if faster:
        return f"nothing is proven; faster: {excerpt(', '.join(faster), _TITLE)}"
    if not report.proofs:
        return "no switch fixes a cause in this report"
    measured = [proof for proof in report.proofs if proof.verdict not in UNMEASURED]
    return f"nothing is proven; {counted(len(measured), 'switch', 'switches')} measured"


def _names(proof: Proof) -> str:
    return excerpt(" + ".join(proof.switches), _TITLE)


def _proof(proof: Proof) -> BriefProof:
    return BriefProof(
        tuple(excerpt(name, _NAME) for name in proof.switches),
        prose(proof.rule, _NAME),
        proof.promised_ns,
        proof.base_ns,
        proof.step_ns,
        proof.gain_pct,
        change_of(proof),
        proof.rounds,
        excerpt(proof.results.verdict, _NAME) if proof.step_ns is not None else "",
        excerpt(proof.verdict, _NAME),
        prose(doubt_of(proof) if proof.verdict == FASTER else proof.why * (proof.verdict != PROVEN), _SENTENCE),
    )


def _code(text: str) -> str:
    return "\n".join(log_line(line) for line in text.split("\n"))


def _commands(report: ProofReport) -> Iterator[str]:
    """Yield the commands to go on with: more rounds if they would settle something, and the check of an edit."""
    best = report.best_proven
    unsettled = [proof for proof in report.proofs if proof.verdict == FASTER and _needs_rounds(proof)]
    if unsettled and not best:
        names = " ".join(f"--switch {quote(name)}" for name in unsettled[0].switches)
        yield f"nightsight prove {names} --rounds {max(2 * unsettled[0].rounds, _ROUNDS)} PROGRAM"
    if best or report.todo:
        yield _EDIT


def _needs_rounds(proof: Proof) -> bool:
    # of a switch in a file, the path is unknown
    is_named = all(name in SWITCH or jitted(name) for name in proof.switches)
    return is_named and proof.results.verdict not in (DIFFERENT, UNKNOWN)


# -- text and JSON ----------------------------------------------------------------------------------------------------


def proof_brief(report: ProofReport, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the brief as text."""
    return brief_text(_shorter(brief(report)), brief_lines, most_bytes)


def proof_brief_json(report: ProofReport) -> bytes:
    """Return the brief as JSON on one line."""
    return brief_json(_shorter(brief(report)))


def _shorter(each: ProofBrief) -> Iterator[ProofBrief]:
    """Yield a brief, then shorter and shorter ones; the verdict stays, and the code to add for as long as possible."""
    yield each
    each = replace(each, is_cut=True)
    for place in reversed(range(len(each.edits))):
        edits = [*each.edits]
        edits[place] = replace(edits[place], code="")
        yield (each := replace(each, edits=tuple(edits)))
    yield (each := replace(each, without_effect=(), notes=each.notes[:1]))
    while len(each.switches) > 1:
        each = replace(each, switches=each.switches[:-1])
        yield each
    while each.edits:
        each = replace(each, edits=each.edits[:-1], more_edits=each.more_edits + 1)
        yield each
    yield replace(each, code="", notes=(), switches=(), together=None)
    yield replace(each, code="", notes=(), switches=(), together=None, commands=())


def brief_lines(each: ProofBrief) -> Iterator[str]:
    """Yield the lines of a brief."""
    base = format_value(each.base_ns, "time_ns") + " unchanged" if each.base_ns else ""
    yield f"{each.title}: {', '.join(filter(None, (each.step, base, each.gpu)))}"
    yield f"verdict: {each.verdict}"
    if each.code:
        yield "code:"
        yield from (f"  {line}" for line in each.code.split("\n"))
    yield from (f"note: {note}" for note in each.notes)
    for word, proofs in (("together", [each.together] if each.together else []), ("switch", each.switches)):
        for proof in proofs:
            yield f"{word} {' + '.join(proof.switches)}: {_numbers(proof)}"
            if proof.why:
                yield f"   {proof.why}"
    if each.without_effect:
        yield f"without effect here: {', '.join(each.without_effect)}"
    for number, edit in enumerate(each.edits, start=1):
        gain = f", about −{edit.gain_pct:.0f} %" if edit.gain_pct is not None else ""
        yield f"edit {number}. {edit.rule}{gain}: {edit.cause}"
        yield f"   fix: {edit.fix}"
        if edit.code:
            yield "   code:"
            yield from (f"     {line}" for line in edit.code.split("\n"))
    if each.more_edits:
        yield f"{counted(each.more_edits, 'more cause needs', 'more causes need')} an edit"
    yield from (f"{'check after the edit' if command == _EDIT else 'next'}: {command}" for command in each.commands)


def _numbers(proof: BriefProof) -> str:
    predicted = f"predicted {format_value(proof.predicted_ns, 'time_ns')}" if proof.predicted_ns is not None else ""
    measured = f"measured {format_value(proof.measured_ns, 'time_ns')}" if proof.measured_ns is not None else ""
    results = f"results {proof.results}" if proof.results else ""
    return ", ".join(filter(None, (proof.verdict, predicted, measured, proof.change, results)))
