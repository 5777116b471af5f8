"""Summaries like NVIDIA's: the statistics per group, their columns, and the order of the rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from nightsight.intervals import Ints
from nightsight.tables import STATISTICS, Frame, integers, nullable_integers, numbered, renamed

_TIMES: Final = {
    "pct": "Time_pct",
    "total": "Total Time_ns",
    "count": "Instances",
    "avg": "Avg_ns",
    "med": "Med_ns",
    "min": "Min_ns",
    "max": "Max_ns",
    "stddev": "StdDev_ns",
}
# ids of CUDA have 32 bits, so their product with any number of groups fits into int64
_LARGEST_ID: Final = (1 << 32) - 1


@dataclass(frozen=True)
class Groups:
    """Rows grouped by equal values: `codes` has the group of each row, `first` the first row of each group.

    Groups are numbered in ascending order of their values, missing ones first, as in SQLite.
    """

    codes: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.first)


def group_by(columns: Sequence["pd.Series[Any]"]) -> Groups:
    """Group rows by the values of several columns of equal length."""
    codes, _ = numbered([_codes(column) for column in columns])
    first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
    # assigned from the last row to the first, so the first row of each group wins
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return Groups(codes, first)


def statistics(values: "pd.Series[Any]", groups: Groups) -> Frame:
    """Return the STATISTICS of `values` per group; sums and extremes of integers are integers, missing values ignored.

    As in NVIDIA's tables, the standard deviation of one value or none is 0, but the average of none is missing.
    """
    by_group = pd.Series(values.to_numpy()).groupby(groups.codes)
    table = by_group.agg(["count", "sum", "median", "min", "max", "std"])
    table.columns = pd.Index(["count", "total", "med", "min", "max", "stddev"])
    table["avg"] = table["total"] / table["count"].where(table["count"] > 0)
    table["stddev"] = table["stddev"].fillna(0.0)
    for name in ("total", "min", "max"):
        if table[name].dtype.kind == "f":
            table[name] = nullable_integers(table[name].to_numpy())
    return table[list(STATISTICS)]


def time_table(durations: "pd.Series[Any]", by: Mapping[str, "pd.Series[Any]"], *, count: str = "Instances") -> Frame:
    """Sum durations by the columns `by`, largest total first: NVIDIA's eight time columns, then `by`.

    Percentages are of this table's total; equal totals are sorted by the columns `by`.
    """
    groups = group_by(list(by.values()))
    table = statistics(durations, groups)
    table["pct"] = table["total"] * 100.0 / max(int(table["total"].sum()), 1)
    table = table[list(_TIMES)].rename(columns={**_TIMES, "count": count})
    table = table.assign(**{name: column.take(groups.first).to_numpy() for name, column in by.items()})
    return table.sort_values("Total Time_ns", ascending=False, kind="stable", ignore_index=True)


def throughput(sizes: "pd.Series[Any]", durations: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return bytes per second as NVIDIA does: the size times the integer quotient of one second and the duration."""
    # floats are exact up to 9 PB/s, and do not overflow beyond
    rates = sizes.astype("float64") * (10**9 // durations.where(durations > 0))
    return nullable_integers(rates.to_numpy()).set_axis(rates.index)


def rounded_once(value: float) -> Decimal:
    """Round the exact value to one decimal like SQLite, halves away from zero."""
    return Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP)


def api_names(names: "pd.Series[Any]") -> "pd.Series[Any]":
    """Strip `_v` and four characters off API names, as NVIDIA does; a longer suffix (`_v11060`) stays."""
    return renamed_texts(names, lambda texts: texts.str.replace(r"_v.{4}$", "", regex=True))


def renamed_texts(texts: "pd.Series[Any]", change: Callable[["pd.Index[Any]"], "pd.Index[Any]"]) -> "pd.Series[Any]":
    """Apply `change` to a categorical text column, once per distinct text."""
    return pd.Series(renamed(texts, change), index=texts.index)


def _codes(column: "pd.Series[Any]") -> Ints:
    """Number the values of a column in ascending order; -1 for missing ones."""
    return (
        integers(column.cat.codes)
        if isinstance(column.dtype, pd.CategoricalDtype)
        else pd.factorize(column, sort=True)[0]
    )


def concatenated(columns: Sequence["pd.Series[Any]"]) -> "pd.Series[Any]":
    """Concatenate categorical columns, with sorted categories."""
    texts = [column.cat.rename_categories(column.cat.categories.astype("str").array).array for column in columns]
    return pd.Series(union_categoricals(texts, sort_categories=True))


def distinct_counts(codes: Ints, values: Ints) -> Ints:
    """Count the distinct values of each group 0, 1, ...; negative values do not count."""
    is_counted = values >= 0
    ids = values[is_counted]
    if ids.max(initial=0) > _LARGEST_ID:
        ids = pd.factorize(ids)[0].astype(np.int64)
    span = int(ids.max(initial=0)) + 1
    # numpy sorts a million keys in 15 ms; hashing them takes 60 ms
    keys = np.sort(codes[is_counted] * span + ids)
    keys = keys[np.diff(keys, prepend=-1) != 0]
    counts: Ints = np.bincount(keys // span, minlength=int(codes.max(initial=-1)) + 1)
    return counts


def dimensions(frame: Frame, shape: str) -> "pd.Series[Any]":
    """Format the three sizes of `grid` or `block` like NVIDIA, each four wide; categories sort by the numbers."""
    axes = [frame[f"{shape}_{axis}"] for axis in "xyz"]
    groups = group_by(axes)
    sizes = zip(*(axis.to_numpy()[groups.first] for axis in axes), strict=True)
    texts = [f"{x:4d} {y:4d} {z:4d}" for x, y, z in sizes]
    return pd.Series(pd.Categorical.from_codes(groups.codes, categories=pd.Index(texts, dtype="str")))
