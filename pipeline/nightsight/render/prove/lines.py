"""Write proofs as lines for a terminal: a table, the best set, the code to add, and the causes that need an edit."""

from collections.abc import Iterator
from typing import Final

from nightsight.model.prove import FASTER, PROVEN, Proof, ProofReport
from nightsight.render.lines import align, cut, wrap
from nightsight.render.prove.words import change_of, doubt_of
from nightsight.texts import excerpt, printable
from nightsight.units import format_value

_HEADER: Final = ("Switch", "Predicted", "Measured", "Change", "Results", "Verdict")
_CAUSE_LENGTH: Final = 80


def proof_lines(report: ProofReport, *, width: int = 100) -> list[str]:
    """Return the lines of a report of proofs, each of at most `width` characters."""
    return [cut(line, width) if len(line) > width else line for line in _lines(report, width)]


def _lines(report: ProofReport, width: int) -> Iterator[str]:
    base = next((proof.base_ns for proof in report.proofs if proof.base_ns), None)
    step = f", {format_value(base, 'time_ns')}" if base else ""
    yield from wrap(f"{report.program}: {printable(report.step)}{step} unchanged", width)
    yield ""
    if report.proofs:
        yield from align([_HEADER, *(_row(proof) for proof in report.proofs)], right=(1, 2, 3))
        if report.best:
            yield ""
            yield from wrap(f"Together: {_sentence(report.best)}", width)
    else:
        yield "No switch fixes a cause in this report. --all tries all switches."
    for proof in report.proofs:
        if proof.why and proof.verdict not in {PROVEN, FASTER}:
            yield from wrap(f"{proof.switches[0]}: {proof.why}", width)
        if proof.verdict == FASTER:
            yield from wrap(f"{proof.switches[0]} is not proven: {doubt_of(proof)}", width)
    best = report.best_proven
    if best and best.code:
        yield ""
        yield "Add to the program:"
        yield from (f"  {line}" for line in best.code.split("\n"))
    if report.todo:
        yield ""
        yield "These need an edit:"
        for each in report.todo:
            gain = f" (about \N{MINUS SIGN}{each.gain_pct:.0f} %)" if each.gain_pct is not None else ""
            yield from wrap(f"  {excerpt(each.cause, _CAUSE_LENGTH)}{gain}: {each.remedy}", width, indent="    ")
            yield from (f"      {line}" for line in each.code.split("\n") if each.code)
    for note in report.notes:
        yield from wrap(note, width)


def _row(proof: Proof) -> tuple[str, ...]:
    """Return the cells of a proof."""
    predicted = format_value(proof.promised_ns, "time_ns") if proof.promised_ns is not None else ""
    measured = format_value(proof.step_ns, "time_ns") if proof.step_ns is not None else ""
    results = proof.results.verdict if proof.step_ns is not None else ""
    return (" + ".join(proof.switches), predicted, measured, change_of(proof), results, proof.verdict)


def _sentence(proof: Proof) -> str:
    """Return one sentence on a proof: its switches, the step before and after, and its results."""
    before, after = (format_value(value, "time_ns") if value else "unknown" for value in (proof.base_ns, proof.step_ns))
    detail = f" ({proof.results.detail})" if proof.results.detail else ""
    return (
        f"{' + '.join(proof.switches)}: {before} -> {after}, {proof.verdict}; results {proof.results.verdict}{detail}."
    )
