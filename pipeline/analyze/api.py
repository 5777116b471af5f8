"""Where the CPU's time in CUDA went, and what PyTorch's operators cost it."""

from typing import Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.model import Profile
from pipeline.tables import duration, nest, time_summary


def api_name(names: "pd.Series[str]") -> "pd.Series[str]":
    """Strip the version of a CUDA entry point (`_v3020`, `_v11060`), not its ABI suffix (`_v2`)."""
    return names.astype("str").str.replace(r"_v\d{4,}$", "", regex=True)


def cuda_api(profile: Profile) -> Table:
    """One row per CUDA function and layer."""
    calls = profile.table("api_calls")
    calls = calls.assign(name=api_name(calls["name"]))
    return Table(time_summary(calls, ["name", "layer"]).rename(columns={"count": "calls"}))


def operators(profile: Profile) -> Table:
    """One row per PyTorch operator: CPU time with and without the operators inside it."""
    table = nest(profile.table("cpu_ops"))
    total, parent = duration(table).to_numpy(), table["parent"].to_numpy()
    own = total.copy()
    np.subtract.at(own, parent[parent >= 0], total[parent >= 0])
    table = table.assign(total=total, own=own)
    grouped = table.groupby("name", observed=True)
    summed = grouped.agg(
        calls=("own", "size"), own_ns=("own", "sum"), total_ns=("total", "sum"), max_ns=("total", "max")
    )
    summed = summed.reset_index().sort_values(["own_ns", "name"], ascending=[False, True], ignore_index=True)
    summed.insert(0, "own_pct", 100.0 * summed["own_ns"] / max(summed["own_ns"].sum(), 1))
    return Table(summed[["own_pct", "own_ns", "total_ns", "calls", "max_ns", "name"]])


ANALYSES: Final = (
    Analysis(
        "cuda_api_sum",
        "CUDA API",
        "CPU time inside CUDA calls by function. Layer: the runtime (cuda...) or the driver below it (cu...); a "
        "driver call made by a runtime call is inside the latter's time as well, so the two do not add up.",
        ("api_calls",),
        cuda_api,
    ),
    Analysis(
        "cpu_ops",
        "Operators",
        "PyTorch operators on the CPU. Own: without the operators called inside. Total: with them.",
        ("cpu_ops",),
        operators,
    ),
)
