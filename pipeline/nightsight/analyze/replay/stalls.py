"""Why warps stall: ncu's stall reasons as words."""

from typing import Final

import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import in_order, replays
from nightsight.analyze.replay.metrics import STALLS, matching
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_STALLS
from nightsight.tables import Frame

_MOST: Final = 5
# not a stall: the warp issued an instruction
_NO_STALL: Final = "selected"
# two reasons have different names in samples and in cycles
_SAME: Final = {"no_instructions": "no_instruction", "gmma": "warpgroup_arrive"}


def ncu_stalls(timeline: Timeline) -> Table:
    """Return up to five rows per replayed launch: its most common stall reasons, in percent."""
    stalls = _reasons(timeline)
    share = 100.0 * stalls["value"] / stalls.groupby("launch")["value"].transform("sum")
    stalls = stalls.assign(reason=in_words(stalls["reason"]), stall_pct=share)
    stalls = stalls.sort_values(["launch", "stall_pct", "reason"], ascending=[True, False, True])
    table = in_order(timeline, stalls.groupby("launch").head(_MOST))[NCU_STALLS.column_names]
    lacking = len(replays(timeline)) - table["launch"].nunique()
    notes = (f"Launches whose stalls were not collected (section WarpStateStats): {lacking:,}.",) if lacking else ()
    return Table(table, notes)


def in_words(reasons: "pd.Series[str]") -> "pd.Series[str]":
    """Return ncu's names of stall reasons as words, with one name per reason."""
    return reasons.replace(_SAME).str.replace("_", " ")


def _reasons(timeline: Timeline) -> Frame:
    """Return launch, reason and value: cycles per issued instruction, else samples; the first that a launch has."""
    ways = [matching(timeline, pattern).assign(way=way) for way, pattern in enumerate(STALLS)]
    rows = pd.concat(ways, ignore_index=True)
    best = rows.groupby("launch")["way"].transform("min")
    return rows[(rows["way"] == best) & (rows["reason"] != _NO_STALL) & (rows["value"] > 0)]


ANALYSES: Final = (Analysis(NCU_STALLS, ncu_stalls),)
