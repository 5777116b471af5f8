"""Trees of rows: *Kernel time* by family, range and operator, among which a reader can choose."""

from collections.abc import Iterable, Sequence
from typing import Final

import pandas as pd

from nightsight.events.kernel_labels import family_of
from nightsight.model.report import Report
from nightsight.render.table.fused import FUSED
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.operators import KERNEL_OPERATORS
from nightsight.results.ranges import RANGE_KERNELS
from nightsight.tables import Frame

_SEPARATOR: Final = " / "
_NO_OPERATOR: Final = "(no operator)"
# columns from the replay of a kernel and from torch.compile, which do not depend on where it is launched
_OF_KERNEL: Final = ("sm_pct", "dram_pct", "limiter", *FUSED)
# how a row aggregates the rows inside it; medians over several kernels are unknown
_AGGREGATES: Final = {"time_pct": "sum", "total_ns": "sum", "instances": "sum", "min_ns": "min", "max_ns": "max"}


def kernel_groups(report: Report) -> dict[str, Frame]:
    """Return the groupings of *Kernel time* that the capture supports: for each, a tree of rows as a table.

    The columns are those of *Kernel time*, and `level`. Families need at least two.
    """
    kernels = report.rows(CUDA_GPU_KERN_SUM)
    if not len(kernels):
        return {}
    groups: dict[str, Frame] = {}
    families = kernels["name"].astype("str").map(family_of)
    figures = kernels.drop_duplicates("name").set_index("name").reindex(columns=[*_OF_KERNEL])
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
        sums = by_operator.groupby(keys, sort=False, observed=True)[["time_pct", "total_ns", "instances"]].sum()
        sums = sums.reset_index().join(figures, on="name")
        groups["operator"] = _tree(sums, ((operator,) for operator in sums["operator"]))
    return {by: frame.reindex(columns=[*kernels.columns, "level"]) for by, frame in groups.items()}


def _tree(rows: Frame, paths: Iterable[Sequence[str]]) -> Frame:
    """Return rows as a tree: each node has the sums of its rows and of the nodes inside it, the most time first."""
    paths = [tuple(path) for path in paths]
    nodes = dict.fromkeys(path[:depth] for path in paths for depth in range(1, len(path) + 1))
    number = {node: index for index, node in enumerate(nodes)}
    members = pd.DataFrame(
        [(row, number[path[:depth]]) for row, path in enumerate(paths) for depth in range(1, len(path) + 1)],
        columns=["row", "node"],
    )
    aggregates = {name: method for name, method in _AGGREGATES.items() if name in rows}
    sums = rows.iloc[members["row"]].groupby(members["node"].to_numpy())[list(aggregates)].agg(aggregates)
    sums = sums.assign(name=[node[-1] for node in nodes])
    combined = pd.concat([sums, rows], ignore_index=True)
    combined = combined.assign(avg_ns=combined["total_ns"] / combined["instances"].clip(lower=1))
    parents = [number.get(node[:-1], -1) for node in nodes] + [number[path] for path in paths]
    order, levels = preorder(parents, combined["total_ns"].tolist())
    return combined.iloc[order].assign(level=levels).reset_index(drop=True)


def preorder(parents: Sequence[int], sizes: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return the rows of a tree in preorder, and their depths; iterative, because trees can be deep.

    parents: the row of each parent, -1 for none. Of rows with one parent, those of the largest size come first.
    """
    children: dict[int, list[int]] = {}
    for row in sorted(range(len(parents)), key=sizes.__getitem__):
        children.setdefault(parents[row], []).append(row)
    rows, depths = list[int](), list[int]()
    # a stack, so the largest is last
    stack = [(row, 0) for row in children.get(-1, ())]
    while stack:
        row, depth = stack.pop()
        rows.append(row)
        depths.append(depth)
        stack += [(child, depth + 1) for child in children.get(row, ())]
    return rows, depths
