"""Groups *Kernel time* by family, range and operator: trees of its rows, among which a reader can choose."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nightsight.events.kernel_labels import family_of
from nightsight.model.report import Report
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.operators import KERNEL_OPERATORS
from nightsight.results.ranges import RANGE_KERNELS

Frame = pd.DataFrame

_SEPARATOR: Final = " / "
_NO_OPERATOR: Final = "(no operator)"
# columns from the replay of a kernel, which do not depend on where it is launched
_REPLAYED: Final = ("sm_pct", "dram_pct", "limiter")
# how a row aggregates the rows inside it; medians over several kernels are unknown
_SUMMED: Final = {"time_pct": "sum", "total_ns": "sum", "instances": "sum", "min_ns": "min", "max_ns": "max"}


def kernel_groups(report: Report) -> dict[str, Frame]:
    """Return the groupings of *Kernel time*: a tree of rows for each, with the columns of that table and `level`.

    Only groupings that the capture supports: ranges, operators, and families if there is more than one.
    """
    kernels = report.rows(CUDA_GPU_KERN_SUM)
    if not len(kernels):
        return {}
    groups: dict[str, Frame] = {}
    families = kernels["name"].astype("str").map(family_of)
    figures = kernels.drop_duplicates("name").set_index("name").reindex(columns=[*_REPLAYED])
    if families.nunique() > 1:
        groups["family"] = _tree(kernels, ((family,) for family in families))
    ranges = report.rows(RANGE_KERNELS)
    if len(ranges):
        paths = ranges["path"].astype("str")
        groups["range"] = _tree(ranges.join(figures, on="name"), (path.split(_SEPARATOR) for path in paths))
    operators = report.rows(KERNEL_OPERATORS)
    if len(operators):
        keys = ["operator", "name"]
        by_operator = operators.assign(operator=operators["operator"].astype("str").replace("", _NO_OPERATOR))
        summed = by_operator.groupby(keys, sort=False, observed=True)[["time_pct", "total_ns", "instances"]].sum()
        summed = summed.reset_index().join(figures, on="name")
        groups["operator"] = _tree(summed, ((operator,) for operator in summed["operator"]))
    return {by: frame.reindex(columns=[*kernels.columns, "level"]) for by, frame in groups.items()}


def _tree(rows: Frame, places: Iterable[Sequence[str]]) -> Frame:
    """Return rows as a tree: each place has the sums of its rows and of the places inside it, the most time first."""
    places = [tuple(place) for place in places]
    paths = list(dict.fromkeys(place[:depth] for place in places for depth in range(1, len(place) + 1)))
    number = {path: at for at, path in enumerate(paths)}
    inside = pd.DataFrame(
        [(at, number[place[:depth]]) for at, place in enumerate(places) for depth in range(1, len(place) + 1)],
        columns=["row", "place"],
    )
    aggregates = {name: how for name, how in _SUMMED.items() if name in rows}
    sums = rows.iloc[inside["row"]].groupby(inside["place"].to_numpy())[list(aggregates)].agg(aggregates)
    sums = sums.assign(avg_ns=sums["total_ns"] / sums["instances"].clip(lower=1), name=[path[-1] for path in paths])
    kernels = rows.assign(avg_ns=rows["total_ns"] / rows["instances"].clip(lower=1))
    combined = pd.concat([sums, kernels], ignore_index=True)
    of: dict[int, list[int]] = {}
    for at, path in enumerate(paths):
        of.setdefault(number.get(path[:-1], -1), []).append(at)
    for at, place in enumerate(places):
        of.setdefault(number[place], []).append(len(paths) + at)
    order, levels = _in_order(of, combined["total_ns"].tolist())
    return combined.iloc[order].assign(level=levels).reset_index(drop=True)


def _in_order(of: Mapping[int, Sequence[int]], total: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the rows of a tree in printing order, the most time first, and the depth of each."""
    order, levels = [], []
    waiting = [(row, 0) for row in sorted(of.get(-1, ()), key=lambda row: total[row])]
    while waiting:
        row, level = waiting.pop()
        order.append(row)
        levels.append(level)
        waiting += [(below, level + 1) for below in sorted(of.get(row, ()), key=lambda row: total[row])]
    return order, levels
