"""Geometry of the heat map of ranks: a row per rank, a cell per step, the stronger the longer the rank itself took."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import Tick, measured, step_ticks
from nightsight.render.figure.curves import GRID
from nightsight.render.table.view import Floats, counted
from nightsight.units import format_value

_LEVELS: Final = 6
_ROWS: Final = 64
# of the longest: cells that differ by less look alike
_LEAST_RANGE: Final = 0.1
_NEEDED: Final = ("rank", "number", "steps", "time_ns", "waited_ns", "work_ns")


@dataclass(frozen=True)
class Row:
    """A rank: the paths of its cells on the GRID, by level from the lightest, and what it waited for."""

    label: str
    paths: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class Heat:
    """All ranks on one scale; `keys`: the times at which the levels begin, in words."""

    title: str
    rows: tuple[Row, ...]
    keys: tuple[str, ...]
    numbers: tuple[Tick, ...]
    summary: str
    notes: tuple[str, ...]
    grid: int = GRID


def heat(frame: pd.DataFrame) -> tuple[Heat, ...]:
    """Return the heat map of rank_steps; none if there are fewer than two ranks or a column lacks."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    known = pd.DataFrame({name: measured(frame[name]) for name in _NEEDED}).dropna()
    known = known[(known["steps"] > 0) & (known["number"] >= 0) & (known["work_ns"] >= 0)]
    ranks = known.groupby("rank", sort=True)
    if ranks.ngroups < 2:
        return ()
    work = known["work_ns"].to_numpy()
    longest = float(work.max())
    low = min(float(work.min()), (1 - _LEAST_RANGE) * longest)
    edges = low + (longest - low) * np.arange(_LEVELS) / _LEVELS
    count = float((known["number"] + known["steps"]).max())
    rows = tuple(_row(mine, edges, count) for _, mine in ranks)
    mean = ranks["work_ns"].mean()
    slowest = f"Rank {mean.idxmax():.0f}"
    summary = (
        f"{counted(ranks.ngroups, 'rank')}, {counted(count, 'step')}. {slowest} takes the longest without waiting for "
        f"others, {format_value(float(mean.max()), 'time_ns')} on average; rank {mean.idxmin():.0f} the shortest, "
        f"{format_value(float(mean.min()), 'time_ns')}."
    )
    keys = tuple(format_value(float(edge), "time_ns") for edge in edges)
    notes = tuple(_notes(known, len(rows)))
    return (Heat("Each rank, step by step", rows[:_ROWS], keys, tuple(step_ticks(count)), summary, notes),)


def _row(mine: pd.DataFrame, edges: Floats, count: float) -> Row:
    number, steps = mine["number"].to_numpy(), mine["steps"].to_numpy()
    begin, end = (np.rint(GRID * values / count).astype(int) for values in (number, number + steps))
    level = np.searchsorted(edges, mine["work_ns"].to_numpy(), side="right") - 1
    paths = []
    for wanted in range(len(edges)):
        cells = np.flatnonzero(level == wanted)
        drawn = zip(begin[cells].tolist(), np.maximum(end - begin, 1)[cells].tolist(), strict=True)
        paths.append("".join(f"M{at} 0h{width}v1h-{width}z" for at, width in drawn))
    waited, whole = float(mine["waited_ns"].mean()), float(mine["work_ns"].mean())
    rank, took = f"{mine['rank'].iloc[0]:.0f}", format_value(whole, "time_ns")
    title = f"Rank {rank}: {took} a step, and {format_value(waited, 'time_ns')} of waiting"
    return Row(rank, tuple(paths), title)


def _notes(known: pd.DataFrame, rows: int) -> Iterator[str]:
    yield "The stronger the color, the longer a step took without its waits. The others wait for the strongest one."
    if (most := int(known["steps"].max())) > 1:
        yield f"Each cell is the mean of up to {most:,} steps that follow one another."
    if rows > _ROWS:
        yield f"The first {_ROWS} of {rows:,} ranks; the table and report.json (rank_steps) have them all."
