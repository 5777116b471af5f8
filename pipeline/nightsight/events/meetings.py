"""Which calls of collectives keep a thread of the CPU until the last rank has called them, too.

NCCL makes a communicator when it is first used, or asked to: no rank returns from that call before all have come. Later
calls return at once, and only the GPU waits.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import PAIRWISE
from nightsight.events.timeline import Timeline, of_capture
from nightsight.tables import empty

# shorter waits are nobody's cause
_LEAST_NS: Final = 1_000_000
# all return together, but for this and a share of the wait
_TOGETHER_NS: Final = 2_000_000
_TOGETHER: Final = 0.1


@of_capture
def meetings(timeline: Timeline) -> pd.DataFrame:
    """Return one row per thread that such a call held: from `begin_ns` until `met_ns`, when thread `last` arrived.

    Columns: process, thread, begin_ns, last, met_ns. What is the same call is known where the captures have all calls
    in a communicator from the one that made it on.
    """
    called = timeline.profile.tables.get("collectives", empty("collectives"))
    called = called[called["is_whole"].to_numpy() & ~called["name"].isin(PAIRWISE).to_numpy()]
    called = called.assign(group=called["group"].astype("str") + " " + called["ranks"].astype("str"))
    called = called.sort_values("start_ns", kind="stable", ignore_index=True)
    called = called.assign(number=called.groupby(["process", "group"]).cumcount())
    last = called.groupby(["group", "number"])["start_ns"].transform("idxmax").to_numpy(dtype=np.int64)
    start, end, thread = (called[name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    met = start[last]
    held = met - np.minimum(start, met)
    returns = np.abs(end - end[last]) <= _TOGETHER_NS + _TOGETHER * held
    mine = np.flatnonzero((held >= _LEAST_NS) & (end >= met) & returns)
    process = called["process"].to_numpy()[mine]
    facts = {"begin_ns": start[mine], "last": thread[last[mine]], "met_ns": met[mine]}
    return pd.DataFrame({"process": process, "thread": thread[mine], **facts})
