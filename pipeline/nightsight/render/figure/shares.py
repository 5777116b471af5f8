"""Geometry of *Where the time went* and of the critical path: stacked bars, the GPU's part first, then the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from nightsight import results
from nightsight.render.figure.axes import measured
from nightsight.render.table.view import short_text
from nightsight.units import format_value

Frame = pd.DataFrame

_NEEDED: Final = ("device", "group", "category", "time_ns")
# percent of a bar: minimum width for a share, width of a letter, and margin around a text
_LEAST: Final = 6.5
_LETTER: Final = 0.95
_SPACE: Final = 1.5
# busy parts are solid and idle parts striped, so both can use the same colors
_COLORS: Final[Mapping[str, str]] = {
    results.COMPUTE: "kernel",
    results.COMMUNICATION: "set",
    results.COPIES: "copy",
    results.GRAPHS: "graph",
    results.MODULE: "set",
    results.ALLOCATION: "mix-5",
    results.BLOCKING_COPY: "copy",
    results.LAUNCH: "api",
    results.DEPENDENCY: "graph",
    results.SYNC: "kernel",
    results.OTHER_CALL: "busy",
    results.UNKNOWN: "busy",
    results.HOST: "others",
}


@dataclass(frozen=True)
class Part:
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
    """The window of one device; `busy` is the total width of its busy parts, `summary` describes it in words."""

    label: str
    parts: tuple[Part, ...]
    busy: float
    busy_text: str
    idle_text: str
    total: str
    summary: str


def wholes(frame: Frame) -> tuple[Whole, ...]:
    """Return one bar per device of time_split; empty if the table has no time or lacks a column."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    time = measured(frame["time_ns"])
    known = frame.assign(time_ns=time)[time > 0]
    devices = list(known.groupby("device", sort=True))
    return tuple(_whole(rows, f"Device {device}" if len(devices) > 1 else "") for device, rows in devices)


def path_wholes(frame: Frame) -> tuple[Whole, ...]:
    """Return one bar of the critical path by cause, the largest first on each side; empty if it has no time."""
    if not {"cause", "time_ns"} <= set(frame.columns):
        return ()
    causes = frame.assign(time_ns=measured(frame["time_ns"])).groupby("cause", sort=False)["time_ns"].sum()
    rows = causes[causes > 0].sort_values(ascending=False, kind="stable").rename_axis("category").reset_index()
    if rows.empty:
        return ()
    group = rows["category"].isin(results.BUSY).map({True: "busy", False: "idle"})
    return (_whole(rows.assign(group=group), "", ("GPU work", "CPU, and on the way")),)


def _whole(rows: Frame, label: str, sides: tuple[str, str] = ("Busy", "Idle")) -> Whole:
    # one bracket spans all busy parts, so these must come first
    rows = rows.sort_values("group", key=lambda group: group != "busy", kind="stable")
    total, busy = float(rows["time_ns"].sum()), float(rows.loc[rows["group"] == "busy", "time_ns"].sum())
    parts = tuple(_parts(rows, total))
    whole = format_value(total, "time_ns")
    words = ", ".join(f"{part.label} {part.share}" for part in parts)
    return Whole(
        short_text(label) if label else "",
        parts,
        round(100.0 * busy / total, 2),
        _side(sides[0], busy, total),
        _side(sides[1], total - busy, total),
        whole,
        f"{label and label + ', '}{whole}: {words}",
    )


def _side(name: str, time: float, total: float) -> str:
    return f"{name} {_share(time, total)}, {format_value(time, 'time_ns')}"


def _share(time: float, total: float) -> str:
    return format_value(100.0 * time / total, "share_pct")


def _parts(rows: Frame, total: float) -> Iterator[Part]:
    ends = (100.0 * rows["time_ns"].cumsum() / total).round(3).tolist()
    for row, begin, end in zip(rows.to_dict("records"), [0.0, *ends], ends, strict=False):
        yield _part(row, _share(row["time_ns"], total), begin, end)


def _part(row: Mapping[Any, Any], share: str, begin: float, end: float) -> Part:
    label, width = short_text(str(row["category"])), round(end - begin, 3)
    # compares the number of letters that fit into the part
    has_room = (width - _SPACE) / _LETTER >= len(f"{label} {share}")
    inside = "all" if has_room else "share" if width >= _LEAST else ""
    series, is_busy = _COLORS.get(str(row["category"]), "others"), row["group"] == "busy"
    return Part(label, series, is_busy, share, format_value(row["time_ns"], "time_ns"), begin, width, inside)
