"""Stacked bars of *Where the time went* and of the critical path: the GPU's part first, then the remaining time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from nightsight.intervals import Floats
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import finite_floats
from nightsight.render.figure.plot import LegendEntry, Picture
from nightsight.render.table.view import share_of, short_text
from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    BUSY,
    CAPTURE,
    COMMUNICATES_PCT,
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
from nightsight.tables import Frame
from nightsight.units import in_text

_NEEDED: Final = ("device", "group", "category", "time_ns")
# percent of a bar: minimum width for a share, width of a letter, and margin around a text
_SHARE_WIDTH: Final = 6.5
_LETTER: Final = 0.95
_MARGIN: Final = 1.5
_MAX_BARS: Final = 8
LEAST_PCT: Final = 1.0
"""Percent of a whole: legends leave smaller parts out, or add them up."""
_SIDES: Final = ("Busy", "Idle")
_COMPUTING: Final = ("Computing", "Idle")
# busy parts are solid and idle parts pale, so both can use the same colors
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
    """A part of a bar, in percent from the left; `inside`: the text that fits, "all", "share", or "" for none.

    series: "" for several small parts in a legend.
    """

    label: str
    series: str
    is_busy: bool
    share: str
    time: str
    x: float
    width: float
    inside: str


@dataclass(frozen=True)
class StackedBar:
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
    """Stacked bars with one legend, which has the numbers of the only bar, or the means of several.

    key: the largest part first, those below LEAST_PCT together at the end. of: the name of the sum of a bar.
    """

    layout: ClassVar = "wholes"
    look: str = "wholes"
    title: str = ""
    bars: tuple[StackedBar, ...] = ()
    key: tuple[Slice, ...] = ()
    total: str = ""
    of: str = "Window"

    def __bool__(self) -> bool:
        return bool(self.bars)


def wholes(frame: Frame, called: Callable[[object], str] = gpu_name) -> Wholes:
    """Return one bar per device of time_split, as many as fit on a screen; none if a column is missing."""
    if not set(_NEEDED) <= set(frame.columns):
        return Wholes()
    time = finite_floats(frame["time_ns"])
    # the same order in all bars and in their legend, although devices can lack different parts
    order = {name: number for number, name in enumerate((*BUSY, *IDLE))}
    parts = frame.assign(time_ns=time)[time > 0].sort_values(
        "category", key=lambda names: names.astype("str").map(order).fillna(len(order)), kind="stable"
    )
    devices = list(parts.groupby("device", sort=True))
    if not devices:
        return Wholes()
    are_several = len(devices) > 1
    # one word for all bars
    sides = _COMPUTING if any(_communicates(rows) for _, rows in devices) else _SIDES
    bars = tuple(
        _stacked_bar(rows, called(device) if are_several else "", sides) for device, rows in devices[:_MAX_BARS]
    )
    mean = parts
    note = "Each instant is counted once. Solid: the GPU was busy. Pale: it was idle, by cause."
    if are_several:
        means = parts.groupby(["group", "category"], sort=False)["time_ns"].sum() / len(devices)
        mean = means.reset_index()
        note = f"The numbers are means of all bars. {note}"
    if (parts["category"] == UNSEEN).any():
        note += " Not recorded: the GPU may have worked there, or not."
    if len(devices) > len(bars):
        note += f" {len(devices) - len(bars)} more are in the table, and in the means."
    look = "wholes several" if are_several else "wholes"
    return Wholes(
        look=look, bars=bars, key=_key(mean), total=in_text(float(mean["time_ns"].sum()), "time_ns"), notes=(note,)
    )


def path_whole(frame: Frame) -> tuple[Wholes, ...]:
    """Return one bar of the critical path by cause, the largest first on each side; () if the path has no time."""
    if not {"cause", "time_ns"} <= set(frame.columns):
        return ()
    causes = frame.assign(time_ns=finite_floats(frame["time_ns"])).groupby("cause", sort=False)["time_ns"].sum()
    rows = causes[causes > 0].sort_values(ascending=False, kind="stable").rename_axis("category").reset_index()
    if rows.empty:
        return ()
    group = rows["category"].isin(BUSY).map({True: "busy", False: "idle"})
    rows = rows.assign(group=group)
    bar = _stacked_bar(rows, "", ("GPU work", "CPU and latencies"))
    note = "Each instant is counted once. Solid: GPU work on the critical path. Pale: what that work waited for."
    return (Wholes(bars=(bar,), key=_key(rows), total=bar.total, notes=(note,)),)


def whole_percents(times: Sequence[float]) -> list[str]:
    """Format the parts of a whole in percent with one decimal, so that the printed numbers add up to 100.0.

    All are rounded down, and the largest remainders up again. A part below 0.05 % is "<0.1 %", and counts as zero.
    """
    values = np.asarray(times, dtype=np.float64)
    return [
        in_text(0.01 if value > 0 and count == 0 else count / 10, "share_pct")
        for value, count in zip(values.tolist(), _tenths(values).tolist(), strict=True)
    ]


def _tenths(values: Floats) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the parts of a whole as tenths of a percent, which add up to 1000, or to 0 without time."""
    total = float(values.sum())
    if not total > 0:
        return np.zeros(len(values), np.int64)
    exact = 1000.0 * values / total
    tenths = np.floor(exact + 1e-9).astype(np.int64)
    # parts that are printed as "<0.1 %" are never rounded up
    order = np.argsort(-np.where(exact < 0.5, -1.0, exact - tenths), kind="stable")
    tenths[order[: 1000 - int(tenths.sum())]] += 1
    return tenths


def keys_of(times: Mapping[str, float]) -> tuple[LegendEntry, ...]:
    """Return the legend of a picture of categories of the split: the largest first, without those below LEAST_PCT."""
    least = LEAST_PCT / 100 * sum(times.values())
    return tuple(
        LegendEntry(name, f"series-{CAUSE_COLORS[name]}", is_idle=name in IDLE)
        for name in sorted(times, key=lambda name: -times[name])
        if times[name] >= least
    )


def _stacked_bar(rows: Frame, label: str, sides: tuple[str, str] = _SIDES) -> StackedBar:
    # one bracket spans all busy parts, so these must come first
    rows = rows.sort_values("group", key=lambda group: group != "busy", kind="stable")
    total = float(rows["time_ns"].sum())
    busy, unknown = (float(rows.loc[rows["group"] == group, "time_ns"].sum()) for group in ("busy", "unknown"))

    def side(name: str, time: float) -> str:
        return f"{name} {share_of(time, total)}, {in_text(time, 'time_ns')}"

    idle_text = side(sides[1], total - busy - unknown)
    times = rows.groupby("category", observed=True)["time_ns"].sum()
    busy_text = side(sides[0], busy)
    if sides == _COMPUTING:
        # communication is mostly waiting, and looks busy
        computing = float(times.reindex([COMPUTE, GRAPHS]).sum())
        also = "" if label else f", communicating {share_of(float(times.get(COMMUNICATION, 0.0)), total)}"
        busy_text = f"{sides[0]} {share_of(computing, total)}{also}"
    parts = tuple(_slices(rows, total))
    whole = in_text(total, "time_ns")
    return StackedBar(
        short_text(label) if label else "",
        parts,
        busy=round(100.0 * busy / total, 2),
        busy_text=busy_text,
        idle_text=f"{idle_text}; {side(UNSEEN, unknown)}" if unknown else idle_text,
        total=whole,
        summary=f"{label and label + ', '}{whole}: {', '.join(f'{part.label} {part.share}' for part in parts)}",
    )


def _communicates(rows: Frame) -> bool:
    """Whether the time of a device has enough communication to count it apart from being busy."""
    communicating = float(rows.loc[rows["category"] == COMMUNICATION, "time_ns"].sum())
    return communicating >= COMMUNICATES_PCT / 100 * float(rows["time_ns"].sum())


def _key(rows: Frame) -> tuple[Slice, ...]:
    """Return the entries of the legend of a bar."""
    rows = rows.sort_values("time_ns", ascending=False, kind="stable")
    times = rows["time_ns"].to_numpy(dtype=np.float64)
    parts = list(_slices(rows, float(times.sum())))
    small = int((100.0 * times < LEAST_PCT * times.sum()).sum())
    if small < 2:
        return tuple(parts)
    share = in_text(float(_tenths(times)[-small:].sum()) / 10, "share_pct")
    rest = Slice(
        f"{small} more, each below {LEAST_PCT:.0f} %",
        "",
        is_busy=False,
        share=share if share != "0 %" else "<0.1 %",
        time=in_text(float(times[-small:].sum()), "time_ns"),
        x=0.0,
        width=0.0,
        inside="",
    )
    return (*parts[:-small], rest)


def _slices(rows: Frame, total: float) -> Iterator[Slice]:
    ends = (100.0 * rows["time_ns"].cumsum() / total).round(3).tolist()
    shares = whole_percents(rows["time_ns"].tolist())
    for row, share, begin, end in zip(rows.to_dict("records"), shares, [0.0, *ends], ends, strict=False):
        label, width = short_text(str(row["category"])), round(end - begin, 3)
        letters = (width - _MARGIN) / _LETTER
        yield Slice(
            label,
            CAUSE_COLORS.get(str(row["category"]), "others"),
            is_busy=row["group"] == "busy",
            share=share,
            time=in_text(row["time_ns"], "time_ns"),
            x=begin,
            width=width,
            inside="all" if letters >= len(f"{label} {share}") else "share" if width >= _SHARE_WIDTH else "",
        )
