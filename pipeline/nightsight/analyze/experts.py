"""All-to-alls of experts: how unequal what ranks get is, and what they compute until they give it back."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.communication import of_all_ranks, ranks_of
from nightsight.events.steps import steps_in_window
from nightsight.events.timeline import Timeline, positions
from nightsight.results.ranks import ALL_TO_ALL
from nightsight.system.parallel import once

_MOSTLY: Final = 0.8
# torch says all_to_all, all_to_allv, alltoall_base
_NAMES: Final = "^all_?to_?all"
# share of the largest: smaller messages hold token counts, not tokens
_SMALL: Final = 0.1
_UNPAIRED: Final = (
    "Ranks do not call an even number of all-to-alls in each step, so what they compute between two is not told."
)


@once
def stretches(timeline: Timeline) -> pd.DataFrame:
    """Return what devices compute between the first and the second all-to-all of a step, the third and the fourth...

    Columns: group (number of the communicator), device, key (equal for what all of a group compute at the same time),
    start_ns and end_ns. Only where ranks call an even number in nearly each step.
    """
    told, keys = _exchanged(timeline), ["group", "device", "step"]
    # at the edges of what was recorded, a step may lack some
    is_even = told.groupby(keys)["place"].transform("size") % 2 == 0
    told = told[is_even & (is_even.groupby(told["group"]).transform("mean") >= _MOSTLY)]
    told = told.assign(pair=told["place"] // 2)
    first, second = (told[told["place"] % 2 == half] for half in (0, 1))
    both = first.merge(second, on=[*keys, "pair"], suffixes=("_x", "_y"))
    return pd.DataFrame(
        {
            "group": both["group"],
            "device": both["device"],
            "key": both["collective_x"],
            "start_ns": both["end_ns_x"],
            "end_ns": np.maximum(both["start_ns_y"], both["end_ns_x"]),
        }
    ).reset_index(drop=True)


@once
def _exchanged(timeline: Timeline) -> pd.DataFrame:
    """Return the all-to-alls of the window in which several ranks meet, in steps.

    Columns in addition to those of `communication`: step, place (in the step, counted from 0); group is a number.
    """
    window, found = timeline.window, of_all_ranks(timeline)
    mine = found["name"].astype("str").str.contains(_NAMES) & (found["collective"] >= 0)
    found = found[mine & (found["end_ns"] > window.start_ns) & (found["end_ns"] <= window.end_ns)]
    found = found.assign(group=pd.factorize(found["group"].to_numpy(dtype=object))[0])
    size = found["bytes"].astype("float64").groupby(found["collective"]).transform("max")
    found = found[~(size < _SMALL * size.groupby(found["group"]).transform("max"))].reset_index(drop=True)
    step = np.zeros(len(found), dtype=np.int64)
    for device, rows in positions(found["device"].to_numpy()).items():
        # a step that begins during one has the next
        begin, _ = steps_in_window(timeline, device)
        step[rows] = np.searchsorted(begin, found["start_ns"].to_numpy()[rows], side="right")
    found = found.assign(step=step).sort_values(["group", "device", "start_ns"], kind="stable", ignore_index=True)
    return found.assign(place=found.groupby(["group", "device", "step"]).cumcount())


def all_to_all(timeline: Timeline) -> Table:
    """Return one row per rank of each communicator with all-to-alls, the one that gets the most first."""
    told = _exchanged(timeline)
    if not len(told):
        return Table(pd.DataFrame(columns=ALL_TO_ALL.column_names))
    keys = ["group", "device"]
    steps = max(len(timeline.window.repetitions), 1)
    sized = told.assign(given=told["bytes"].astype("float64"), got=told["received_bytes"].astype("float64"))
    table = sized.groupby(keys).agg(
        count=("start_ns", "size"),
        given_bytes=("given", "mean"),
        received_bytes=("got", "mean"),
        name=("name", "first"),
    )
    table["calls"] = table.pop("count") / steps
    between = stretches(timeline)
    spent = (between["end_ns"] - between["start_ns"]).groupby([between[key] for key in keys]).sum() / steps
    table["between_ns"] = spent.reindex(table.index)
    for name, column in (("received_pct", "received_bytes"), ("between_pct", "between_ns")):
        table[name] = 100 * table[column] / table.groupby("group")[column].transform("mean")
    table = table.reset_index()
    table["rank"] = ranks_of(timeline, table["device"].to_numpy())
    table = table.sort_values(
        ["group", "between_ns", "received_bytes", "rank"], ascending=[True, False, False, True], ignore_index=True
    )
    return Table(table[ALL_TO_ALL.column_names], (_UNPAIRED,) if table["between_ns"].isna().all() else ())


ANALYSES: Final = (Analysis(ALL_TO_ALL, all_to_all),)
