"""Heat maps of ranks: a row per rank, a cell per step; the longer the rank's own work took, the stronger the color.

One map shows all work of a rank except waiting for others, and further maps the categories in which ranks differ.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Floats
from nightsight.render.figure.axes import Tick, finite_floats, finite_rows, step_ticks
from nightsight.render.figure.plot import GRID, LegendEntry, Picture
from nightsight.render.table.view import omission
from nightsight.results.categories import COMMUNICATION
from nightsight.results.steps import STEP_CATEGORIES
from nightsight.units import counted, in_text

_LEVELS: Final = 6
# per rank: analyses make 150
_MAX_CELLS: Final = 1_000
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_MAX_ROWS: Final = 64
# of the longest time: cells that differ by less look alike
_LEAST_RANGE: Final = 0.1
_NEEDED: Final = ("rank", "number", "steps", "time_ns", "waited_ns", "work_ns")
_NEEDED_OF_PARTS: Final = ("device", "number", "steps", "time_ns")
# of a step: a category needs no map if the means of ranks differ by less
_LEAST_DIFFERENCE: Final = 0.02
_MAX_MAPS: Final = 4


@dataclass(frozen=True)
class HeatRow:
    """A rank: the paths of its cells on the GRID, by level from the lightest.

    cells: the time of each cell as a share of the longest one, in two digits of base 36, `--` for a missing cell; ""
    if there are too many.
    """

    label: str
    paths: tuple[str, ...]
    title: str
    cells: str = ""


@dataclass(frozen=True, kw_only=True)
class Heat(Picture):
    """All ranks on one scale; the legend has the times at which the levels begin.

    longest: the time of the longest cell, in ns. steps: the number of steps. size: the number of steps in a cell.
    first: the number of the first step. is_own: whether each rank counts its steps from its own first one.
    """

    layout: ClassVar = "heat"
    grid: ClassVar = GRID
    rows: tuple[HeatRow, ...]
    numbers: tuple[Tick, ...]
    summary: str
    longest: int
    steps: int
    size: int
    first: int
    is_own: bool = False


@dataclass(frozen=True)
class _HeatWords:
    """The texts of a map. details: of each rank."""

    title: str
    details: Mapping[float, str]
    summary: str
    notes: tuple[str, ...] = ()


def heat(frame: pd.DataFrame, steps: pd.DataFrame) -> tuple[Heat, ...]:
    """Return the heat map of rank_steps; () if there are fewer than two ranks or a column is missing.

    steps: step_times, which tells the program's number of the first step.
    """
    cells = finite_rows(frame, _NEEDED)
    cells = cells[(cells["steps"] > 0) & (cells["number"] >= 0) & (cells["work_ns"] >= 0)]
    if cells["rank"].nunique() < 2:
        return ()
    work, waited = _means(cells, "work_ns"), _means(cells, "waited_ns")
    slowest, fastest = max(work, key=work.__getitem__), min(work, key=work.__getitem__)
    count = float((cells["number"] + cells["steps"]).max())
    summary = (
        f"{counted(len(work), 'rank')}, {counted(count, 'step')}. Rank {slowest:.0f} takes the longest without waiting "
        f"for others, {in_text(work[slowest], 'time_ns')} on average; rank {fastest:.0f} the shortest, "
        f"{in_text(work[fastest], 'time_ns')}."
    )
    details = {
        rank: f"{in_text(time, 'time_ns')} a step, and {in_text(waited[rank], 'time_ns')} of waiting"
        for rank, time in work.items()
    }
    words = _HeatWords("Each rank, step by step", details, summary, tuple(_heat_notes(cells, len(work))))
    return (_map(cells.assign(value=cells["work_ns"]), words, _first_step(steps)),)


def heats_of_parts(steps: pd.DataFrame, ranks: pd.DataFrame) -> tuple[Heat, ...]:
    """Return a heat map of each category of step_times in which ranks differ, by decreasing difference."""
    if not set(_NEEDED_OF_PARTS) <= set(steps.columns) or not {"rank", "device"} <= set(ranks.columns):
        return ()
    by_rank = steps.merge(ranks[["rank", "device"]].dropna().drop_duplicates("device"), on="device")
    candidates = []
    for category, column in STEP_CATEGORIES.items():
        # a rank that communicates for long waits for the others
        if column not in by_rank or category == COMMUNICATION:
            continue
        cells = finite_rows(by_rank, ("rank", "number", "steps", "time_ns", column)).rename(columns={column: "value"})
        cells = cells[(cells["steps"] > 0) & (cells["number"] >= 0) & (cells["value"] >= 0)]
        means = _means(cells, "value")
        difference = max(means.values()) - min(means.values()) if means else 0.0
        if difference > 0 and difference >= _LEAST_DIFFERENCE * float(cells["time_ns"].mean()):
            candidates.append((difference, category, cells, means))
    maps = []
    for _, category, cells, means in sorted(candidates, key=lambda candidate: -candidate[0])[:_MAX_MAPS]:
        details = {rank: f"{in_text(time, 'time_ns')} a step" for rank, time in means.items()}
        fastest, *_, slowest = (f"rank {rank:.0f} ({details[rank]})" for rank in sorted(means, key=means.__getitem__))
        words = _HeatWords(category, details, f"{category}: the most on {slowest}, the least on {fastest}.")
        maps.append(_map(cells, words, _first_step(steps), is_own=True))
    return tuple(maps)


def _means(cells: pd.DataFrame, column: str) -> dict[float, float]:
    """Return the mean of a column for each rank."""
    means = cells.groupby("rank", sort=True)[column].mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def _first_step(steps: pd.DataFrame) -> float:
    """Return the program's number of the first step."""
    if not {"of_program", "number"} <= set(steps.columns):
        return 0.0
    offsets = finite_floats(steps["of_program"]) - finite_floats(steps["number"])
    return float(np.nanmin(offsets)) if np.isfinite(offsets).any() else 0.0


def _map(cells: pd.DataFrame, words: _HeatWords, first: float, *, is_own: bool = False) -> Heat:
    """Return the map of the column `value`, with a row for each rank that `words` describe."""
    value = cells["value"].to_numpy()
    longest = float(value.max())
    low = min(float(value.min()), (1 - _LEAST_RANGE) * longest)
    edges = low + (longest - low) * np.arange(_LEVELS) / _LEVELS
    count = float((cells["number"] + cells["steps"]).max())
    size = int(cells["steps"].max())
    rows = []
    for rank, detail in list(words.details.items())[:_MAX_ROWS]:
        of_rank = cells[cells["rank"] == rank]
        times = _times(of_rank, longest, int(count), size)
        rows.append(HeatRow(f"{rank:.0f}", _paths(of_rank, edges, count), f"Rank {rank:.0f}: {detail}", times))
    thresholds = [in_text(float(edge), "time_ns") for edge in edges]
    return Heat(
        look="over-time heat",
        title=words.title,
        keys=tuple(
            LegendEntry(f"{'' if level else 'from '}{text}", f"level-{level}") for level, text in enumerate(thresholds)
        ),
        notes=words.notes,
        rows=tuple(rows),
        numbers=tuple(step_ticks(count, first)),
        summary=words.summary,
        longest=int(longest),
        steps=int(count),
        size=size,
        first=int(first),
        is_own=is_own,
    )


def _times(of_rank: pd.DataFrame, longest: float, count: int, size: int) -> str:
    """Return the time of each cell of a rank as digits (`HeatRow.cells`), for `count` steps, `size` in each cell."""
    if count > _MAX_CELLS * size:
        return ""
    texts = ["--"] * -(-count // size)
    shares = np.rint(of_rank["value"].to_numpy() / (longest or 1.0) * (len(_DIGITS) ** 2 - 1)).astype(int)
    for cell, share in zip((of_rank["number"].to_numpy() // size).astype(int).tolist(), shares.tolist(), strict=True):
        texts[cell] = _DIGITS[share // len(_DIGITS)] + _DIGITS[share % len(_DIGITS)]
    return "".join(texts)


def _paths(of_rank: pd.DataFrame, edges: Floats, count: float) -> tuple[str, ...]:
    number, steps = of_rank["number"].to_numpy(), of_rank["steps"].to_numpy()
    begin, end = (np.rint(GRID * values / count).astype(int) for values in (number, number + steps))
    width = np.maximum(end - begin, 1)
    level_of_cell = np.searchsorted(edges, of_rank["value"].to_numpy(), side="right") - 1
    paths = []
    for level in range(len(edges)):
        is_drawn = level_of_cell == level
        cells = zip(begin[is_drawn].tolist(), width[is_drawn].tolist(), strict=True)
        paths.append("".join(f"M{x} 0h{width}v1h-{width}z" for x, width in cells))
    return tuple(paths)


def _heat_notes(cells: pd.DataFrame, ranks: int) -> Iterator[str]:
    yield "The stronger the color, the longer a step took without its waits. The others wait for the strongest one."
    if (size := int(cells["steps"].max())) > 1:
        yield f"Each cell is the mean of up to {size:,} consecutive steps."
    if ranks > _MAX_ROWS:
        yield omission(_MAX_ROWS, ranks, "ranks")
