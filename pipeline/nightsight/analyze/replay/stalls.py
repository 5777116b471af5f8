"""Why warps wait: ncu's stall reasons, in words, with what each means."""

from typing import Final

import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import in_order, replays
from nightsight.analyze.replay.metrics import STALLS, matching
from nightsight.events.timeline import Timeline

Frame = pd.DataFrame

_MOST: Final = 5
_COLUMNS: Final = ["launch", "name", "reason", "stall_pct"]
# the warp did issue
_NO_STALL: Final = "selected"
# samples and cycles have other names for two of them
_SAME: Final = {"no_instructions": "no_instruction", "gmma": "warpgroup_arrive"}
_MEANINGS: Final = {
    "barrier": "waits for the other warps of its block at a barrier",
    "branch_resolving": "waits for the target of a branch",
    "dispatch_stall": "the dispatcher holds the issue back",
    "drain": "has ended, and its stores are still on their way",
    "imc_miss": "a constant is not in the cache for immediate constants",
    "lg_throttle": "the queue for local and global memory instructions is full",
    "long_scoreboard": "waits for global, local, texture or surface memory (L1TEX)",
    "math_pipe_throttle": "the arithmetic pipe it needs is taken",
    "membar": "waits at a memory barrier",
    "mio_throttle": "the queue for shared memory, special functions and dynamic branches is full",
    "misc": "any other reason",
    "no_instruction": "its next instruction is not there yet (instruction cache)",
    "not_selected": "could have issued; another warp was chosen",
    "short_scoreboard": "waits for shared memory or a special function (MIO)",
    "sleeping": "sleeps, as the program asked for",
    "tex_throttle": "the queue for texture instructions is full",
    "wait": "a fixed delay between dependent instructions",
    "warpgroup_arrive": "waits for tensor cores that work for a whole warp group",
}


def ncu_stalls(timeline: Timeline) -> Table:
    """Up to five rows per replayed launch: its largest stall reasons."""
    stalls = _reasons(timeline)
    share = 100.0 * stalls["value"] / stalls.groupby("launch")["value"].transform("sum")
    stalls = stalls.assign(reason=in_words(stalls["reason"]), stall_pct=share)
    stalls = stalls.sort_values(["launch", "stall_pct", "reason"], ascending=[True, False, True])
    table = in_order(timeline, stalls.groupby("launch").head(_MOST))[_COLUMNS]
    lacking = len(replays(timeline)) - table["launch"].nunique()
    notes = (f"Launches whose stalls were not collected (section WarpStateStats): {lacking:,}.",) if lacking else ()
    return Table(table, notes)


def in_words(reasons: "pd.Series[str]") -> "pd.Series[str]":
    """Write ncu's names of stall reasons as words; one reason has one name."""
    return reasons.replace(_SAME).str.replace("_", " ")


def _reasons(timeline: Timeline) -> Frame:
    """Launch, reason and value: cycles per issued instruction, or samples of launches that lack those."""
    ways = [matching(timeline, pattern).assign(way=way) for way, pattern in enumerate(STALLS)]
    rows = pd.concat(ways, ignore_index=True)
    best = rows.groupby("launch")["way"].transform("min")
    return rows[(rows["way"] == best) & (rows["reason"] != _NO_STALL) & (rows["value"] > 0)]


def _help() -> str:
    meanings = "; ".join(f"{reason.replace('_', ' ')}: {meaning}" for reason, meaning in _MEANINGS.items())
    return (
        "The five largest reasons why the warps of a replayed launch did not issue an instruction, each in percent of "
        f"all cycles that warps were stalled (or of samples, where cycles were not collected). {meanings}."
    )


ANALYSES: Final = (Analysis("ncu_stalls", "Warp stalls", _help(), ("profiled_launches", "kernel_metrics"), ncu_stalls),)
