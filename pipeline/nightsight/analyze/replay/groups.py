"""Which kernels are worth a closer look: groups of launches that one launch can stand for, by their share of the time.

A group is one kernel with one grid and one block. Kernels that communicate are left out: replayed by themselves they
would wait for their peers for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.model import Profile
from nightsight.tables import SHAPE, duration

_LEAST_TO_SKIP: Final = 2


@dataclass(frozen=True)
class Chosen:
    """Kernels by name, mangled or else base names (`base`), and what choosing these means.

    `launches`: how many groups of theirs are replayed, one launch of each; `skip`: how many launches of each group
    come first, before the window or as its first; `coverage_pct`: their share of the time of all kernels that can be
    replayed, with all of their groups.
    """

    names: tuple[str, ...]
    base: str
    launches: int
    skip: int
    coverage_pct: float


def kernel_groups(timeline: Timeline, name: str) -> pd.DataFrame:
    """Return one row per value of the name column, grid and block of what ran in the window, the most time first.

    Columns: the name, SHAPE, launches, total_ns, and `before`, the launches that came before the window.
    """
    kernels, window = timeline.profile.table("kernels"), timeline.window
    waits = np.array([communicates(name) for name in kernels["name"].cat.categories], dtype=bool)
    is_early, is_late = kernels["start_ns"] < window.start_ns, kernels["start_ns"] >= window.end_ns
    inside = ~(is_early | is_late)
    replayable = ~waits[kernels["name"].cat.codes] & ~is_late
    chosen = kernels[[name, *SHAPE]].assign(inside=inside, time=duration(kernels).where(inside, 0))[replayable]
    grouped = chosen.groupby([name, *SHAPE], observed=True)
    groups = grouped.agg(launches=("inside", "sum"), total_ns=("time", "sum"), all=("inside", "size")).reset_index()
    groups = groups.assign(before=groups["all"] - groups["launches"]).drop(columns="all")
    groups = groups[groups["launches"] > 0].sort_values(["total_ns", name], ascending=[False, True])
    return groups.reset_index(drop=True)


def choose_kernels(profile: Profile, *, coverage_pct: float, most: int) -> Chosen:
    """Choose the fewest launches that stand for `coverage_pct` of the time of kernels, `most` at most.

    Filters of ncu know names and not grids, so with a name come all of its groups. Needs DETAILS of nightsight.tables.
    """
    base, column = _names_of(profile.table("kernels"))
    groups = kernel_groups(Timeline(profile), column)
    names = groups.groupby(column, observed=True).agg(total_ns=("total_ns", "sum"), count=("total_ns", "size"))
    # what a replay is worth
    order = (names["total_ns"] / names["count"]).sort_values(ascending=False, kind="stable").index
    names = names.loc[order]
    taken = _fewest(names["total_ns"].to_numpy(), names["count"].to_numpy(), coverage_pct=coverage_pct, most=most)
    mine = groups[groups[column].isin(names.index[taken])]
    total = int(groups["total_ns"].sum())
    return Chosen(
        tuple(str(value) for value in names.index[taken]),
        base,
        min(len(mine), most),
        int((mine["before"] + (mine["launches"] >= _LEAST_TO_SKIP)).min()) if len(mine) else 0,
        100.0 * int(mine["total_ns"].sum()) / total if total else 0.0,
    )


def _fewest(time: Ints, count: Ints, *, coverage_pct: float, most: int) -> list[int]:
    """Take from the front what fits into `most`, the first in any case, until enough of the time is covered.

    One that did not fit comes first if as many of its groups as do are likely to take more time than what did.
    """
    wanted = time.sum() * coverage_pct / 100
    taken = _taken(range(len(time)), time, count, (wanted, most))
    alone = time * np.minimum(1.0, most / count)
    if alone.max(initial=0.0) <= time[taken].sum():
        return taken
    best = int(alone.argmax())
    return _taken([best, *(place for place in range(len(time)) if place != best)], time, count, (wanted, most))


def _taken(order: Iterable[int], time: Ints, count: Ints, limits: tuple[float, int]) -> list[int]:
    taken: list[int] = []
    covered, used, (wanted, most) = 0, 0, limits
    for position in order:
        if covered >= wanted or used >= most:
            break
        if not taken or used + count[position] <= most:
            taken.append(position)
            covered, used = covered + time[position], used + count[position]
    return taken


def _names_of(kernels: pd.DataFrame) -> tuple[str, str]:
    """Return what ncu calls the best names there are, and their column: exports before 2023 have no mangled ones."""
    mangled = kernels["mangled_name"].cat.categories
    is_mangled = not mangled.str.contains(r"[(<: ]").any() and bool(kernels["mangled_name"].notna().all())
    return ("mangled", "mangled_name") if is_mangled else ("function", "short_name")
