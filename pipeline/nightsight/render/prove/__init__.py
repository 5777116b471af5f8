"""The forms of proofs: lines for a terminal, and a brief."""

from nightsight.render.prove.brief import proof_brief, proof_brief_json
from nightsight.render.prove.lines import proof_lines

__all__ = ["proof_brief", "proof_brief_json", "proof_lines"]
