"""Writes the sentence of a comparison: causes that appeared or disappeared, the metric, and the largest part."""

from collections.abc import Sequence
from math import isfinite
from typing import Final

import numpy as np
import pandas as pd

from nightsight.compare.metric import Metric
from nightsight.events.kernel_kinds import kind_of, operation
from nightsight.events.kernel_names import base_name
from nightsight.model.compare import Difference, Verdict
from nightsight.results.categories import IDLE
from nightsight.units import difference, signed

_MOST: Final = 3
_LONGEST: Final = 80


def comparison_sentence(
    verdict: Verdict,
    about: Metric | None,
    changes: pd.DataFrame,
    causes: pd.DataFrame,
    *,
    size: str,
    unlike: Sequence[Difference],
) -> str:
    """Return the verdict in words: the causes that appeared or disappeared, the metric, and its uncertainty."""
    if about is None:
        return f"No deciding metric was measured, on {size}."
    delta = about.delta
    came = {"regressed": "added", "improved": "removed", "inconclusive": "added" if delta > 0 else "removed"}.get(
        verdict
    )
    titles = causes.loc[causes["verdict"] == came, "title"].tolist()[:_MOST] if came else []
    gist = "; ".join(str(title).partition(": ")[0] for title in titles)
    cause = f"{'New' if came == 'added' else 'Gone'}: {gist}. " if gist else ""
    why = about.doubt(unlike) if verdict == "inconclusive" else ""
    why = "too few runs to distinguish a change from noise" if why.startswith("fewer than") else why
    text = f"{cause}{about.change_text[:1].upper()}{about.change_text[1:]}, on {size}{f': {why}' if why else ''}."
    return text if gist or about.is_fact else f"{text}{_largest(changes, verdict, delta)}"


def _largest(changes: pd.DataFrame, verdict: Verdict, delta: float) -> str:
    """Return the kernel or idle part that explains most of the change, or that changed although the step did not."""
    directions = {"regressed": ("regressed", "added"), "improved": ("improved", "removed")}
    verdicts = directions.get(verdict, ("regressed", "added", "improved", "removed"))
    is_part = (changes["kind"] == "kernel") | (changes["kind"] == "gate") & changes["name"].isin(IDLE)
    parts = changes[is_part & changes["verdict"].isin(verdicts)]
    moves = (parts["candidate"].fillna(0) - parts["baseline"].fillna(0)).to_numpy(dtype=np.float64)
    if not moves.any():
        return ""
    place = int(np.abs(moves).argmax())
    move, share, name = (
        float(moves[place]),
        float(parts["change_pct"].iloc[place]),
        _kernel_label(str(parts["name"].iloc[place])),
    )
    per_step = f"{difference(move, 'delta_ns')} per step"
    if verdict in directions:
        return f" {'Most of it' if abs(move) > abs(delta) / 2 else 'The largest part'}: {name}, {per_step}."
    return f" But {name} changed: {per_step}{f' ({signed(share)} %)' if isfinite(share) else ''}."


def _kernel_label(name: str) -> str:
    """Return a short name of a kernel for a sentence: the function, and what it computes."""
    base, what = base_name(name), operation(name)
    short = base if len(base) <= _LONGEST else f"{base[:50]}…{base[-25:]}"
    is_told = what in base.lower() or what == "elementwise" or kind_of(name) not in ("elementwise", "reduction")
    return short if is_told else f"{short} ({what})"
