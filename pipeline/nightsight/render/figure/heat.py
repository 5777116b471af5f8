"""Heat maps of ranks: a row per rank, a cell per step, the stronger the longer the rank itself took.

One is of all that a rank does without waiting for others. More are of the categories in which ranks differ.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import Tick, drawable, measured, step_ticks
from nightsight.render.figure.plot import GRID, Key, Picture
from nightsight.render.table.view import Floats, counted
from nightsight.results.categories import COMMUNICATION
from nightsight.results.steps import STEP_CATEGORIES
from nightsight.units import format_value

_LEVELS: Final = 6
# of a rank: analyses make 150 of them
_MOST_CELLS: Final = 1_000
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ROWS: Final = 64
# of the longest: cells that differ by less look alike
_LEAST_RANGE: Final = 0.1
_NEEDED: Final = ("rank", "number", "steps", "time_ns", "waited_ns", "work_ns")
_OF_PARTS: Final = ("device", "number", "steps", "time_ns")
# of a step: ranks whose means differ by less are alike in a category; more maps than these say no more
_LEAST_APART: Final = 0.02
_MOST_MAPS: Final = 4


@dataclass(frozen=True)
class Row:
    """A rank: the paths of its cells on the GRID, by level from the lightest, and what it waited for.

    cells: the time of each as a share of the longest, two digits of base 36, `--` where there is none; ""
    if there are too many.
    """

    label: str
    paths: tuple[str, ...]
    title: str
    cells: str = ""


@dataclass(frozen=True, kw_only=True)
class Heat(Picture):
    """All ranks on one scale; the legend has the times at which the levels begin.

    longest: the time of the longest cell, in ns. steps: how many there are, size: how many of them are a cell, first:
    the number of the first. is_own: whether they are counted from the first one of each rank.
    """

    layout: ClassVar = "heat"
    grid: ClassVar = GRID
    rows: tuple[Row, ...]
    numbers: tuple[Tick, ...]
    summary: str
    longest: int
    steps: int
    size: int
    first: int
    is_own: bool = False


def heat(frame: pd.DataFrame, steps: pd.DataFrame) -> tuple[Heat, ...]:
    """Return the heat map of rank_steps; none if there are fewer than two ranks or a column lacks.

    steps: step_times, which know what number the program gives the first step.
    """
    known = drawable(frame, _NEEDED)
    known = known[(known["steps"] > 0) & (known["number"] >= 0) & (known["work_ns"] >= 0)]
    if known["rank"].nunique() < 2:
        return ()
    work, waited = _means(known, "work_ns"), _means(known, "waited_ns")
    slowest, fastest = max(work, key=work.__getitem__), min(work, key=work.__getitem__)
    count = float((known["number"] + known["steps"]).max())
    summary = (
        f"{counted(len(work), 'rank')}, {counted(count, 'step')}. Rank {slowest:.0f} takes the longest without waiting "
        f"for others, {format_value(work[slowest], 'time_ns')} on average; rank {fastest:.0f} the shortest, "
        f"{format_value(work[fastest], 'time_ns')}."
    )
    titles = {
        rank: f"{format_value(time, 'time_ns')} a step, and {format_value(waited[rank], 'time_ns')} of waiting"
        for rank, time in work.items()
    }
    notes = tuple(_notes(known, len(work)))
    named = _Named("Each rank, step by step", titles, summary, notes)
    return (_map(known.assign(value=known["work_ns"]), named, _first(steps)),)


def heats_of_parts(steps: pd.DataFrame, ranks: pd.DataFrame) -> tuple[Heat, ...]:
    """Return a heat map for each category of step_times in which the ranks differ, the one with the most first."""
    if not set(_OF_PARTS) <= set(steps.columns) or not {"rank", "device"} <= set(ranks.columns):
        return ()
    numbers = ranks[["rank", "device"]].dropna().drop_duplicates("device")
    named = steps.merge(numbers, on="device")
    found = []
    for category, column in STEP_CATEGORIES.items():
        # who communicates for long waits for the others
        if column in named and category != COMMUNICATION:
            known = drawable(named, ("rank", "number", "steps", "time_ns", column)).rename(columns={column: "value"})
            known = known[(known["steps"] > 0) & (known["number"] >= 0) & (known["value"] >= 0)]
            mean = _means(known, "value")
            apart = max(mean.values()) - min(mean.values()) if mean else 0.0
            if apart > 0 and apart >= _LEAST_APART * float(known["time_ns"].mean()):
                found.append((apart, category, known, mean))
    maps = []
    for _, category, known, mean in sorted(found, key=lambda one: -one[0])[:_MOST_MAPS]:
        each = {rank: f"{format_value(time, 'time_ns')} a step" for rank, time in mean.items()}
        least, *_, most = (f"rank {rank:.0f} ({each[rank]})" for rank in sorted(mean, key=mean.__getitem__))
        said = f"{category}: the most on {most}, the least on {least}."
        maps.append(replace(_map(known, _Named(category, each, said), _first(steps)), is_own=True))
    return tuple(maps)


def _means(known: pd.DataFrame, column: str) -> dict[float, float]:
    """Return the mean of a column for each rank."""
    mean = known.groupby("rank", sort=True)[column].mean()
    return dict(zip(mean.index.tolist(), mean.tolist(), strict=True))


def _first(steps: pd.DataFrame) -> float:
    """Return how many steps of the program come before the first one."""
    if not {"of_program", "number"} <= set(steps.columns):
        return 0.0
    left_out = measured(steps["of_program"]) - measured(steps["number"])
    return float(np.nanmin(left_out)) if np.isfinite(left_out).any() else 0.0


@dataclass(frozen=True)
class _Named:
    """The words of a map; titles: of each rank."""

    title: str
    titles: Mapping[float, str]
    summary: str
    notes: tuple[str, ...] = ()


def _map(known: pd.DataFrame, named: _Named, first: float) -> Heat:
    """Return the map of `value`, for each rank with a title; `first`: the number of the first step."""
    value = known["value"].to_numpy()
    longest = float(value.max())
    low = min(float(value.min()), (1 - _LEAST_RANGE) * longest)
    edges = low + (longest - low) * np.arange(_LEVELS) / _LEVELS
    count = float((known["number"] + known["steps"]).max())
    size = int(known["steps"].max())
    mine = {rank: known[known["rank"] == rank] for rank in named.titles}
    rows = tuple(
        Row(
            f"{rank:.0f}",
            _paths(mine[rank], edges, count),
            f"Rank {rank:.0f}: {each}",
            _cells(mine[rank], longest, (int(count), size)),
        )
        for rank, each in named.titles.items()
    )
    began = [format_value(float(edge), "time_ns") for edge in edges]
    return Heat(
        look="over-time heat",
        title=named.title,
        keys=tuple(Key(f"{'' if place else 'from '}{text}", f"level-{place}") for place, text in enumerate(began)),
        notes=named.notes,
        rows=rows[:_ROWS],
        numbers=tuple(step_ticks(count, first)),
        summary=named.summary,
        longest=int(longest),
        steps=int(count),
        size=size,
        first=int(first),
    )


def _cells(mine: pd.DataFrame, longest: float, steps: tuple[int, int]) -> str:
    """Return the value of each cell of a rank; steps: how many there are, and how many of them are a cell."""
    count, size = steps
    if count > _MOST_CELLS * size:
        return ""
    written = ["--"] * -(-count // size)
    share = np.rint(mine["value"].to_numpy() / (longest or 1.0) * (len(_DIGITS) ** 2 - 1)).astype(int)
    for cell, value in zip((mine["number"].to_numpy() // size).astype(int).tolist(), share.tolist(), strict=True):
        written[cell] = _DIGITS[value // len(_DIGITS)] + _DIGITS[value % len(_DIGITS)]
    return "".join(written)


def _paths(mine: pd.DataFrame, edges: Floats, count: float) -> tuple[str, ...]:
    number, steps = mine["number"].to_numpy(), mine["steps"].to_numpy()
    begin, end = (np.rint(GRID * values / count).astype(int) for values in (number, number + steps))
    level = np.searchsorted(edges, mine["value"].to_numpy(), side="right") - 1
    paths = []
    for wanted in range(len(edges)):
        cells = np.flatnonzero(level == wanted)
        drawn = zip(begin[cells].tolist(), np.maximum(end - begin, 1)[cells].tolist(), strict=True)
        paths.append("".join(f"M{at} 0h{width}v1h-{width}z" for at, width in drawn))
    return tuple(paths)


def _notes(known: pd.DataFrame, rows: int) -> Iterator[str]:
    yield "The stronger the color, the longer a step took without its waits. The others wait for the strongest one."
    if (most := int(known["steps"].max())) > 1:
        yield f"Each cell is the mean of up to {most:,} steps that follow one another."
    if rows > _ROWS:
        yield f"The first {_ROWS} of {rows:,} ranks; the table and report.json (rank_steps) have them all."
