"""The ladder: a bar for a step now, and one after each fix in the order to apply them, on one scale."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import pandas as pd

from nightsight.render.figure.axes import finite_floats
from nightsight.render.figure.plot import Picture
from nightsight.render.figure.shares import CAUSE_COLORS, LEAST_PCT, keys_of
from nightsight.render.fixes import Fix, Fixes
from nightsight.results.categories import BUSY, IDLE
from nightsight.results.rules import RULE
from nightsight.tables import Frame
from nightsight.texts import excerpt, printable
from nightsight.units import in_text

_NEEDED: Final = {"order", "category", "time_ns"}
_LENGTH: Final = 60
_ACTION: Final = 50
# a step that the profiler makes longer by more is named with both lengths
_LONGER: Final = 1.1


class Explained(NamedTuple):
    """Where a page explains a fix, what it gained when it was measured, and its name there; "" for unknown ones."""

    anchor: str
    proof: str = ""
    action: str = ""


@dataclass(frozen=True)
class RungPart:
    """A part of a bar, in percent from the left."""

    label: str
    look: str
    is_idle: bool
    x: float
    width: float
    time: str


@dataclass(frozen=True)
class Rung:
    """A bar: a step after a fix and all before it. change: from the bar above. anchor: where the fix is explained.

    proof: what the fix gained when it was measured.
    """

    time: str
    label: str
    summary: str
    parts: tuple[RungPart, ...]
    change: str = ""
    anchor: str = ""
    proof: str = ""


@dataclass(frozen=True, kw_only=True)
class Ladder(Picture):
    """Bars from the top down, the step now first. whole_ns: the time of the first bar."""

    layout: ClassVar = "ladder"
    look: str = "ladder"
    rungs: tuple[Rung, ...]
    whole_ns: float

    def on_scale(self, longest_ns: float) -> "Ladder":
        """Return this ladder on the scale of a longer one, without links."""
        share = self.whole_ns / longest_ns

        def scaled(part: RungPart) -> RungPart:
            return replace(part, x=round(share * part.x, 3), width=round(share * part.width, 3))

        rungs = (replace(rung, anchor="", parts=tuple(map(scaled, rung.parts))) for rung in self.rungs)
        return replace(self, rungs=tuple(rungs))


def ladder(
    parts: Frame, fixes: Fixes, explained: Callable[[Fix], Explained], *, is_of_others: bool = False
) -> Ladder | None:
    """Return the ladder of the result `fix_ladder`; None without a fix, or if the tables do not belong together.

    is_of_others: no gain is predicted for the first fix on the page.
    """
    if not fixes.sequence or not set(parts) >= _NEEDED:
        return None
    table = _by_category(parts)
    if table.index.tolist() != list(range(len(fixes.sequence) + 1)):
        return None
    whole = float(table.iloc[0].sum())
    if not whole > 0:
        return None
    largest = table.max()
    named = {str(name): float(time) for name, time in largest.items() if time >= LEAST_PCT / 100 * whole}
    rungs, before_ns = [], fixes.now_ns
    for fix, (_, row) in zip((None, *fixes.sequence), table.iterrows(), strict=True):
        drawn = tuple(_parts(row, whole))
        if fix is None:
            time = fixes.text(fixes.now_ns)
            profiled = f" ({fixes.text(fixes.profiled_ns)} with the profiler)"
            label = f"now{profiled * (fixes.profiled_ns > _LONGER * fixes.now_ns)}"
            rungs.append(Rung(time, label, f"Now: {time}. {_summary(row[[*named]], fixes)}", drawn))
            continue
        anchor, proof, action = explained(fix)
        label, time = _label(fix, action, fixes.framework), fixes.text(fix.after_ns)
        summary = f"{label.replace('`', '')}: {time}. {_summary(row[[*named]], fixes)}"
        rungs.append(Rung(time, label, summary, drawn, fixes.saved(before_ns, fix.after_ns), anchor, proof))
        before_ns = fix.after_ns
    one = "A step" if fixes.is_step else "The window"
    each = "other fix" if is_of_others else "fix"
    title = f"{one} now, and after each {each} in the best order (predicted, without the profiler)"
    return Ladder(title=title, keys=keys_of(named), rungs=tuple(rungs), whole_ns=whole)


def _by_category(parts: Frame) -> pd.DataFrame:
    """Return the time of each category, a row per bar; the categories in the order of the split."""
    times = finite_floats(parts["time_ns"])
    table = parts.assign(time_ns=times)[times > 0].pivot_table(
        index="order", columns="category", values="time_ns", aggfunc="sum", fill_value=0.0, observed=True
    )
    return table.reindex(columns=[name for name in (*BUSY, *IDLE) if name in table])


def _label(fix: Fix, action: str, framework: str) -> str:
    """Return the name of a fix as on the page if it is short, and its place."""
    name = RULE[fix.rule].action_in(framework) if fix.rule in RULE else printable(fix.rule)
    name = action if 0 < len(action) <= _ACTION else name
    place = fix.path.rsplit(" / ", 1)[-1] if not fix.path.startswith("(") else ""
    return f"{name} in `{excerpt(place, _LENGTH)}`" if place else name


def _summary(row: "pd.Series[float]", fixes: Fixes) -> str:
    return ", ".join(f"{name} {fixes.text(time)}" for name, time in row.items() if time > 0)


def _parts(row: "pd.Series[float]", whole: float) -> Iterator[RungPart]:
    end = 0.0
    for name, time in row.items():
        begin, end = end, end + 100 * time / whole
        if time > 0:
            category, width = str(name), round(end - begin, 3)
            look, text = f"series-{CAUSE_COLORS[category]}", in_text(time, "time_ns")
            yield RungPart(category, look, category in IDLE, round(begin, 3), width, text)
