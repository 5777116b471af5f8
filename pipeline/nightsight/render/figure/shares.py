"""*Where the time went* and of the critical path: stacked bars, the GPU's part first, then the rest."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import measured
from nightsight.render.figure.plot import Key, Picture
from nightsight.render.table.view import share_of, short_text
from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    BUSY,
    CAPTURE,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DEPENDENCY,
    GRAPHS,
    HOST,
    IDLE,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    SYNC,
    UNKNOWN,
    UNSEEN,
)
from nightsight.results.steps import OPERATORS
from nightsight.units import format_value

Frame = pd.DataFrame

_NEEDED: Final = ("device", "group", "category", "time_ns")
# percent of a bar: minimum width for a share, width of a letter, and margin around a text
_LEAST: Final = 6.5
_LETTER: Final = 0.95
_SPACE: Final = 1.5
_MOST_BARS: Final = 8
_SPLIT_NOTE: Final = "Each instant is counted once. Solid: the GPU was busy. Striped: it was idle, by cause."
_UNSEEN_NOTE: Final = " Not recorded: the GPU may have worked there, or not."
_PATH_NOTE: Final = (
    "Each instant is counted once. Solid: work of the GPU that the end of the window waited for. Striped: what that "
    "work waited for."
)
# busy parts are solid and idle parts striped, so both can use the same colors
CAUSE_COLORS: Final[Mapping[str, str]] = {
    OPERATORS: "cpu",
    COMPUTE: "kernel",
    COMMUNICATION: "set",
    COPIES: "copy",
    GRAPHS: "graph",
    UNSEEN: "busy",
    MODULE: "set",
    ALLOCATION: "mix-5",
    CAPTURE: "graph",
    BLOCKING_COPY: "copy",
    LAUNCH: "api",
    DEPENDENCY: "graph",
    SYNC: "kernel",
    OTHER_CALL: "busy",
    UNKNOWN: "busy",
    HOST: "others",
}


@dataclass(frozen=True)
class Slice:
    """A part of a bar, in percent from the left; `inside` is the text that fits: "all", "share", or "" for none."""

    label: str
    series: str
    is_busy: bool
    share: str
    time: str
    x: float
    width: float
    inside: str


@dataclass(frozen=True)
class Whole:
    """A window; `busy` is the total width of its busy parts, `summary` describes it in words."""

    label: str
    parts: tuple[Slice, ...]
    busy: float
    busy_text: str
    idle_text: str
    total: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class Wholes(Picture):
    """Bars under one key: that of the only one, or of the mean of several. of: what the bar is the whole of."""

    layout: ClassVar = "wholes"
    look: str = "wholes"
    title: str = ""
    bars: tuple[Whole, ...] = ()
    key: tuple[Slice, ...] = ()
    total: str = ""
    of: str = "Window"

    def __bool__(self) -> bool:
        return bool(self.bars)


def wholes(frame: Frame, called: Callable[[object], str] = gpu_name) -> Wholes:
    """Return one bar per device of time_split, as many as a screen has room for; none if a column is missing."""
    if not set(_NEEDED) <= set(frame.columns):
        return Wholes()
    time = measured(frame["time_ns"])
    # in the split's own order in every bar and in their key: devices can lack different parts
    known = frame.assign(time_ns=time)[time > 0].sort_values("category", key=_places, kind="stable")
    devices = list(known.groupby("device", sort=True))
    if not devices:
        return Wholes()
    bars = tuple(_whole(rows, called(device) if len(devices) > 1 else "") for device, rows in devices[:_MOST_BARS])
    mean = bars[0]
    if len(devices) > 1:
        together = known.groupby(["group", "category"], sort=False)["time_ns"].sum() / len(devices)
        mean = _whole(together.reset_index(), "")
    note = "The numbers are means of all bars. " if len(devices) > 1 else ""
    note += _SPLIT_NOTE
    note += _UNSEEN_NOTE if (known["category"] == UNSEEN).any() else ""
    note += f" {len(devices) - len(bars)} more are in the table, and in the means." if len(devices) > len(bars) else ""
    look = "wholes several" if len(bars) > 1 else "wholes"
    return Wholes(look=look, bars=bars, key=mean.parts, total=mean.total, notes=(note,))


def path_whole(frame: Frame) -> tuple[Wholes, ...]:
    """Return one bar of the critical path by cause, the largest first on each side; none if it has no time."""
    if not {"cause", "time_ns"} <= set(frame.columns):
        return ()
    causes = frame.assign(time_ns=measured(frame["time_ns"])).groupby("cause", sort=False)["time_ns"].sum()
    rows = causes[causes > 0].sort_values(ascending=False, kind="stable").rename_axis("category").reset_index()
    if rows.empty:
        return ()
    group = rows["category"].isin(BUSY).map({True: "busy", False: "idle"})
    whole = _whole(rows.assign(group=group), "", ("GPU work", "CPU, and on the way"))
    return (Wholes(bars=(whole,), key=whole.parts, total=whole.total, notes=(_PATH_NOTE,)),)


def whole_percents(times: Sequence[float]) -> list[str]:
    """Format the parts of a whole in percent with one decimal, so that what is shown adds up to 100.0.

    What is left over by rounding down goes to the largest remainders. A part that is too small for a decimal is
    "<0.1 %", and counts as none.
    """
    values = np.asarray(times, dtype=np.float64)
    total = float(values.sum())
    if not total > 0:
        return [format_value(0.0, "share_pct") for _ in times]
    exact = 1000.0 * values / total
    tenths = np.floor(exact + 1e-9).astype(np.int64)
    missing = 1000 - int(tenths.sum())
    # a part below half a decimal is shown as "<0.1 %" whatever happens, so it takes nothing
    order = np.argsort(-np.where(exact < 0.5, -1.0, exact - tenths), kind="stable")
    tenths[order[:missing]] += 1
    return [
        format_value(0.01 if value > 0 and count == 0 else count / 10, "share_pct")
        for value, count in zip(values.tolist(), tenths.tolist(), strict=True)
    ]


def keys_of(categories: Iterable[str]) -> tuple[Key, ...]:
    """Return the legend of categories in pictures that show only some of the split."""
    return tuple(Key(name, f"series-{CAUSE_COLORS[name]}", is_idle=name in IDLE) for name in categories)


def _places(categories: "pd.Series[Any]") -> "pd.Series[int]":
    order = {name: place for place, name in enumerate((*BUSY, *IDLE))}
    return categories.astype("str").map(order).fillna(len(order))


def _whole(rows: Frame, label: str, sides: tuple[str, str] = ("Busy", "Idle")) -> Whole:
    # one bracket spans all busy parts, so these must come first
    rows = rows.sort_values("group", key=lambda group: group != "busy", kind="stable")
    total = float(rows["time_ns"].sum())
    busy, unknown = (float(rows.loc[rows["group"] == group, "time_ns"].sum()) for group in ("busy", "unknown"))
    rest = _side(sides[1], total - busy - unknown, total)
    parts = tuple(_parts(rows, total))
    whole = format_value(total, "time_ns")
    words = ", ".join(f"{part.label} {part.share}" for part in parts)
    return Whole(
        short_text(label) if label else "",
        parts,
        round(100.0 * busy / total, 2),
        _side(sides[0], busy, total),
        f"{rest}; {_side(UNSEEN, unknown, total)}" if unknown else rest,
        whole,
        f"{label and label + ', '}{whole}: {words}",
    )


def _side(name: str, time: float, total: float) -> str:
    return f"{name} {share_of(time, total)}, {format_value(time, 'time_ns')}"


def _parts(rows: Frame, total: float) -> Iterator[Slice]:
    ends = (100.0 * rows["time_ns"].cumsum() / total).round(3).tolist()
    shares = whole_percents(rows["time_ns"].tolist())
    for row, share, begin, end in zip(rows.to_dict("records"), shares, [0.0, *ends], ends, strict=False):
        yield _part(row, share, begin, end)


def _part(row: Mapping[Any, Any], share: str, begin: float, end: float) -> Slice:
    label, width = short_text(str(row["category"])), round(end - begin, 3)
    # compares the number of letters that fit into the part
    has_room = (width - _SPACE) / _LETTER >= len(f"{label} {share}")
    inside = "all" if has_room else "share" if width >= _LEAST else ""
    series, is_busy = CAUSE_COLORS.get(str(row["category"]), "others"), row["group"] == "busy"
    return Slice(label, series, is_busy, share, format_value(row["time_ns"], "time_ns"), begin, width, inside)
