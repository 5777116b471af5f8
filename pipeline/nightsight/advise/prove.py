"""Add the measured gains of fixes (nightsight prove) to the causes of a report."""

from collections import Counter
from dataclasses import replace

from nightsight.model.prove import UNMEASURED, Proof, ProofReport
from nightsight.model.report import Finding, Report
from nightsight.units import format_value, signed


def with_proofs(report: Report, proofs: ProofReport) -> Report:
    """Return the report with a sentence in each cause whose fix was measured; of several fixes, the best."""
    advice = Counter(finding.rule for finding in report.advice)
    is_same = proofs.program == report.title
    findings = (_proven(each, proofs, is_only=is_same and advice[each.rule] == 1) for each in report.findings)
    return replace(report, findings=tuple(findings))


def _proven(finding: Finding, proofs: ProofReport, *, is_only: bool) -> Finding:
    """Add the sentence to a finding. is_only: it is the only one of its rule in a report of the same program."""
    rule = [
        proof
        for proof in proofs.proofs
        if finding.severity == "advice" and proof.rule == finding.rule and proof.verdict not in UNMEASURED
    ]
    # another run of the program may name its only cause of a rule in other words
    measured = [proof for proof in rule if proof.cause == finding.cause] or (rule if is_only else [])
    if not measured:
        return finding
    best = min(measured, key=lambda proof: proof.log_ratio or 0.0)
    change = f"{signed(-(best.gain_pct or 0.0), 0)} %"
    proof = f"{best.verdict} with {' + '.join(best.switches)}: {change}"
    return replace(finding, proof=proof, detail=f"{finding.detail} {_sentence(best)}")


def _sentence(proof: Proof) -> str:
    before, after = (format_value(value or 0.0, "time_ns") for value in (proof.base_ns, proof.step_ns))
    predicted = f" (predicted: {format_value(proof.promised_ns, 'time_ns')})" if proof.promised_ns is not None else ""
    names, results = " + ".join(proof.switches), proof.results.verdict
    return f"Measured with `{names}`: {before} became {after}{predicted}, results {results}: {proof.verdict}."
