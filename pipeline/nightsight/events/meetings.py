"""Finds calls of collectives that block a CPU thread until the last rank has made the same call.

NCCL creates a communicator on request or when it is first used, and no rank returns from that call before all ranks
have made it. Later calls return immediately, and only the GPU waits.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import PAIRWISE
from nightsight.events.timeline import Timeline, of_capture
from nightsight.tables import empty

# shorter waits are not worth reporting
_LEAST_NS: Final = 1_000_000
# all ranks return together, within this time and this share of the wait
_TOGETHER_NS: Final = 2_000_000
_TOGETHER: Final = 0.1


@of_capture
def meetings(timeline: Timeline) -> pd.DataFrame:
    """Return one row per thread that such a call blocked: from `begin_ns` until `met_ns`, when thread `last` arrived.

    Columns: process, thread, begin_ns, last, met_ns. Calls can be matched if the captures have all calls of a
    communicator, starting with the one that created it.
    """
    called = timeline.profile.tables.get("collectives", empty("collectives"))
    called = called[called["is_whole"].to_numpy() & ~called["name"].isin(PAIRWISE).to_numpy()]
    called = called.assign(group=called["group"].astype("str") + " " + called["ranks"].astype("str"))
    called = called.sort_values("start_ns", kind="stable", ignore_index=True)
    called = called.assign(number=called.groupby(["process", "group"]).cumcount())
    last = called.groupby(["group", "number"])["start_ns"].transform("idxmax").to_numpy(dtype=np.int64)
    start, end, thread = (called[name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    met = start[last]
    waited = met - np.minimum(start, met)
    returns = np.abs(end - end[last]) <= _TOGETHER_NS + _TOGETHER * waited
    waits = np.flatnonzero((waited >= _LEAST_NS) & (end >= met) & returns)
    process = called["process"].to_numpy()[waits]
    facts = {"begin_ns": start[waits], "last": thread[last[waits]], "met_ns": met[waits]}
    return pd.DataFrame({"process": process, "thread": thread[waits], **facts})
