"""What a report keeps of each window that a reader can choose. One line says where the time of the start-up went."""

from collections.abc import Sequence
from typing import Final

import pandas as pd

from nightsight.events.window import START_UP, Window
from nightsight.model import Finding, Result, View
from nightsight.results import TIME_SPLIT
from nightsight.units import format_value

_MOST: Final = 3
# of the start-up: less is not worth a word
_LEAST_PCT: Final = 1.0


def view_of(window: Window, results: Sequence[Result] | None, findings: tuple[Finding, ...] = ()) -> View:
    """Return the view of a window with its results; without results it is the one that the report is about."""
    split = next((result.rows for result in results or () if result.name == TIME_SPLIT.name), None)
    sentence = window.sentence
    if window.name == START_UP:
        sentence = f"{sentence.rstrip('.')}{_parts(split)}."
    return View(
        window.name,
        window.start_ns,
        window.end_ns,
        sentence,
        window.family,
        len(window.repetitions),
        results is None,
        split,
        findings,
    )


def _parts(split: pd.DataFrame | None) -> str:
    """Return the largest parts of the start-up, as the end of a sentence: `: 3.080 s host code, 157.8 ms launch`."""
    if split is None or split.empty:
        return ""
    # of several GPUs, the first one: they start together
    mine = split[split["device"] == split["device"].iloc[0]].nlargest(_MOST, "time_ns")
    named = mine[mine["share_pct"] >= _LEAST_PCT][["time_ns", "category"]].itertuples(index=False)
    said = ", ".join(f"{format_value(time, 'time_ns')} {category}" for time, category in named)
    return said and f": {said}"
