"""Chooses the kernels that ncu should replay: groups of launches that one launch can represent, by share of the time.

A group is one kernel with one grid and one block. Kernels that communicate are left out, because a replay would wait
for their peers forever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.tables import SHAPE, aggregate, are_named, duration

_LEAST_TO_SKIP: Final = 2


@dataclass(frozen=True)
class KernelChoice:
    """The kernels to replay, and what replaying them covers.

    `names`: the names for ncu's filter; `base`: their --kernel-name-base, "mangled" or "function". `launches`: the
    number of groups to replay, one launch of each. `skip`: the launches of each group to skip, that is, those before
    the window and the first one in it. `coverage_pct`: the share of all groups with these names in the time of all
    kernels that can be replayed.
    """

    names: tuple[str, ...]
    base: str
    launches: int
    skip: int
    coverage_pct: float


def kernel_groups(timeline: Timeline, name: str) -> pd.DataFrame:
    """Return one row per kernel name (column `name`), grid and block that ran in the window, the most time first.

    Columns: the name, SHAPE, launches, total_ns, and `before`, the number of launches before the window. Kernels that
    communicate are left out.
    """
    kernels, window = timeline.profile.table("kernels"), timeline.window
    is_early, is_late = kernels["start_ns"] < window.start_ns, kernels["start_ns"] >= window.end_ns
    inside = ~(is_early | is_late)
    replayable = ~are_named(kernels["name"], communicates) & ~is_late
    chosen = kernels[[name, *SHAPE]].assign(inside=inside, time=duration(kernels).where(inside, 0))[replayable]
    grouped = chosen.groupby([name, *SHAPE], observed=True)
    groups = aggregate(
        grouped, launches=("inside", "sum"), total_ns=("time", "sum"), all=("inside", "size")
    ).reset_index()
    groups = groups.assign(before=groups["all"] - groups["launches"]).drop(columns="all")
    groups = groups[groups["launches"] > 0].sort_values(["total_ns", name], ascending=[False, True])
    return groups.reset_index(drop=True)


def choose_kernels(profile: Profile, *, coverage_pct: float, most: int) -> KernelChoice:
    """Choose the fewest launches, at most `most`, that represent `coverage_pct` of the kernel time.

    ncu filters by name and not by grid, so a name comes with all of its groups. Needs DETAILS of nightsight.tables.
    """
    base, column = _names_of(profile.table("kernels"))
    groups = kernel_groups(Timeline(profile), column)
    names = aggregate(groups.groupby(column, observed=True), total_ns=("total_ns", "sum"), count=("total_ns", "size"))
    # the kernels with the most time per replay first
    order = (names["total_ns"] / names["count"]).sort_values(ascending=False, kind="stable").index
    names = names.loc[order]
    positions = _fewest(names["total_ns"].to_numpy(), names["count"].to_numpy(), coverage_pct=coverage_pct, most=most)
    covered = groups[groups[column].isin(names.index[positions])]
    total = int(groups["total_ns"].sum())
    return KernelChoice(
        tuple(str(value) for value in names.index[positions]),
        base,
        min(len(covered), most),
        # one filter serves all groups, so the group with the fewest launches to skip decides
        int((covered["before"] + (covered["launches"] >= _LEAST_TO_SKIP)).min()) if len(covered) else 0,
        100.0 * int(covered["total_ns"].sum()) / total if total else 0.0,
    )


def _fewest(time: Ints, count: Ints, *, coverage_pct: float, most: int) -> list[int]:
    """Return positions from the front that fit into `most` launches, until enough time is covered; always the first.

    If a kernel with many groups does not fit, but as many of its groups as fit would probably take more time than all
    that did, it comes first.
    """
    target_ns = time.sum() * coverage_pct / 100
    positions = _fit(range(len(time)), time, count, (target_ns, most))
    # the time that `most` groups of one kernel take on average
    most_time = time * np.minimum(1.0, most / count)
    if most_time.max(initial=0.0) <= time[positions].sum():
        return positions
    best = int(most_time.argmax())
    return _fit([best, *(place for place in range(len(time)) if place != best)], time, count, (target_ns, most))


def _fit(order: Iterable[int], time: Ints, count: Ints, limits: tuple[float, int]) -> list[int]:
    positions: list[int] = []
    covered, used, (target_ns, most) = 0, 0, limits
    for position in order:
        if covered >= target_ns or used >= most:
            break
        if not positions or used + count[position] <= most:
            positions.append(position)
            covered, used = covered + time[position], used + count[position]
    return positions


def _names_of(kernels: pd.DataFrame) -> tuple[str, str]:
    """Return ncu's --kernel-name-base, and the column with these names: exports before 2023 have no mangled ones."""
    mangled = kernels["mangled_name"].cat.categories
    is_mangled = not mangled.str.contains(r"[(<: ]").any() and bool(kernels["mangled_name"].notna().all())
    return ("mangled", "mangled_name") if is_mangled else ("function", "short_name")
