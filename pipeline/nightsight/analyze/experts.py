"""Analyzes all-to-alls of experts: how unequally ranks receive tokens, and how long they compute before the return."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.communication import of_all_ranks, ranks_of
from nightsight.events.steps import steps_in_window
from nightsight.events.timeline import Timeline
from nightsight.results.ranks import ALL_TO_ALL
from nightsight.system.parallel import memoize
from nightsight.tables import aggregate, positions

_MOSTLY: Final = 0.8
_ALIKE: Final = 0.01
# torch says all_to_all, all_to_allv, alltoall_base
_NAMES: Final = "^all_?to_?all"
# share of the largest: smaller messages hold token counts, not tokens
_SMALL: Final = 0.1
_UNPAIRED: Final = (
    "The number of all-to-alls in a step is odd, or differs, so the time between two of them is not shown."
)


@memoize
def stretches(timeline: Timeline) -> pd.DataFrame:
    """Return the spans between the first and second all-to-all of a step, the third and fourth, and so on.

    Columns: group (number of the communicator), device, key (equal for simultaneous spans of a group), start_ns and
    end_ns. Only for ranks that call an even number of all-to-alls in nearly each step; or the same odd number, if the
    second of each pair returns what the first brought. The last then has no partner: the first layer of experts needs
    no gradients of its tokens if these are data.
    """
    calls, keys = _all_to_alls(timeline), ["group", "device", "step"]
    # at the ends of the recording, a step may lack some
    size = calls.groupby(keys)["place"].transform("size")
    usual = size.groupby(calls["group"]).transform("median")
    is_paired = (size % 2 == 0) | ((size == usual) & (usual > 1))
    calls = calls[is_paired & (is_paired.groupby(calls["group"]).transform("mean") >= _MOSTLY)]
    calls = calls.assign(pair=calls["place"] // 2)
    first, second = (calls[calls["place"] % 2 == half] for half in (0, 1))
    pairs = first.merge(second, on=[*keys, "pair"], suffixes=("_x", "_y"))
    # tokens may return in another type
    there, back = (
        pairs[f"{name}_x"].astype("float64") * pairs[f"{name}_y"].astype("float64")
        for name in ("bytes", "received_bytes")
    )
    returns = ((there - back).abs() <= _ALIKE * there).groupby(pairs["group"])
    is_odd = (pairs["group"].map(usual.groupby(calls["group"]).first()) % 2 == 1).to_numpy()
    pairs = pairs[~is_odd | (returns.transform("mean") >= _MOSTLY).to_numpy()]
    return pd.DataFrame(
        {
            "group": pairs["group"],
            "device": pairs["device"],
            "key": pairs["collective_x"],
            "start_ns": pairs["end_ns_x"],
            "end_ns": np.maximum(pairs["start_ns_y"], pairs["end_ns_x"]),
        }
    ).reset_index(drop=True)


@memoize
def _all_to_alls(timeline: Timeline) -> pd.DataFrame:
    """Return the all-to-alls of several ranks in the window, by step.

    Columns in addition to those of `communication`: step, place (in the step, counted from 0); group is a number.
    """
    kernels = of_all_ranks(timeline)
    is_all_to_all = kernels["name"].astype("str").str.contains(_NAMES) & (kernels["collective"] >= 0)
    kernels = kernels[is_all_to_all & timeline.window.contains_end(kernels["end_ns"])]
    kernels = kernels.assign(group=pd.factorize(kernels["group"].to_numpy(dtype=object))[0])
    size = kernels["bytes"].astype("float64").groupby(kernels["collective"]).transform("max")
    kernels = kernels[~(size < _SMALL * size.groupby(kernels["group"]).transform("max"))].reset_index(drop=True)
    step = np.zeros(len(kernels), dtype=np.int64)
    for device, rows in positions(kernels["device"].to_numpy()).items():
        # if a step begins during an all-to-all, the next one belongs to it
        begin, _ = steps_in_window(timeline, device)
        step[rows] = np.searchsorted(begin, kernels["start_ns"].to_numpy()[rows], side="right")
    kernels = kernels.assign(step=step).sort_values(["group", "device", "start_ns"], kind="stable", ignore_index=True)
    return kernels.assign(place=kernels.groupby(["group", "device", "step"]).cumcount())


def all_to_all(timeline: Timeline) -> Table:
    """Return one row per rank of each communicator with all-to-alls, the rank that receives most first."""
    calls = _all_to_alls(timeline)
    if not len(calls):
        return Table(pd.DataFrame(columns=ALL_TO_ALL.column_names))
    keys = ["group", "device"]
    steps = max(len(timeline.window.repetitions), 1)
    with_sizes = calls.assign(given=calls["bytes"].astype("float64"), got=calls["received_bytes"].astype("float64"))
    table = aggregate(
        with_sizes.groupby(keys),
        count=("start_ns", "size"),
        given_bytes=("given", "mean"),
        received_bytes=("got", "mean"),
        name=("name", "first"),
    )
    table["calls"] = table.pop("count") / steps
    between = stretches(timeline)
    compute_ns = (between["end_ns"] - between["start_ns"]).groupby([between[key] for key in keys]).sum() / steps
    table["between_ns"] = compute_ns.reindex(table.index)
    for name, column in (("received_pct", "received_bytes"), ("between_pct", "between_ns")):
        table[name] = 100 * table[column] / table.groupby("group")[column].transform("mean")
    table = table.reset_index()
    table["rank"] = ranks_of(timeline, table["device"].to_numpy())
    table = table.sort_values(
        ["group", "between_ns", "received_bytes", "rank"], ascending=[True, False, False, True], ignore_index=True
    )
    return Table(table[ALL_TO_ALL.column_names], (_UNPAIRED,) if table["between_ns"].isna().all() else ())


ANALYSES: Final = (Analysis(ALL_TO_ALL, all_to_all),)
