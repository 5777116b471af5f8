"""The texts of proofs, for all of their forms."""

from math import exp

from nightsight.model.prove import DIFFERENT, UNKNOWN, Proof
from nightsight.units import signed


def doubt_of(proof: Proof) -> str:
    """Return why a faster result is not a proof."""
    if proof.results.verdict in {DIFFERENT, UNKNOWN}:
        return f"results {proof.results.verdict} ({proof.results.detail})"
    if proof.error is not None:
        is_clear = (proof.log_ratio or 0.0) + proof.error < 0
        why = "with several switches, chance may explain the gain" if is_clear else "its rounds vary too much"
        return f"{why}. Give more --rounds, or more --budget"
    return "it ran in one round only. Give more --rounds, or more --budget"


def change_of(proof: Proof) -> str:
    """Return the change of the step in percent, with its interval."""
    if proof.log_ratio is None:
        return ""
    change = f"{signed(100 * (exp(proof.log_ratio) - 1))} %"
    return change if proof.error is None else f"{change} ± {100 * exp(proof.log_ratio) * proof.error:.1f}"
