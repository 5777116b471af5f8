"""Finds calls of collectives that block a CPU thread until the last rank has made the same call.

NCCL creates a communicator on request or when it is first used, and no rank returns from that call before all ranks
have made it. Later calls return immediately, and only the GPU waits.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import PAIRWISE
from nightsight.events.timeline import Timeline, of_capture

# shorter waits are not worth reporting
_LEAST_NS: Final = 1_000_000
# all ranks return together, within this time and this share of the wait
_TOGETHER_NS: Final = 2_000_000
_TOGETHER_SHARE: Final = 0.1


@of_capture
def meetings(timeline: Timeline) -> pd.DataFrame:
    """Return one row per thread that such a call blocked: from `begin_ns` until `met_ns`, when thread `last` arrived.

    Columns: process, thread, begin_ns, last, met_ns. Calls can be matched if the captures have all calls of a
    communicator, starting with the one that created it.
    """
    calls = timeline.profile.recorded("collectives")
    calls = calls[calls["is_whole"].to_numpy() & ~calls["name"].isin(PAIRWISE).to_numpy()]
    calls = calls.assign(group=calls["group"].astype("str") + " " + calls["ranks"].astype("str"))
    calls = calls.sort_values("start_ns", kind="stable", ignore_index=True)
    calls = calls.assign(number=calls.groupby(["process", "group"]).cumcount())
    last = calls.groupby(["group", "number"])["start_ns"].transform("idxmax").to_numpy(dtype=np.int64)
    start, end, thread = (calls[name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    met_ns = start[last]
    wait_ns = met_ns - np.minimum(start, met_ns)
    returns = np.abs(end - end[last]) <= _TOGETHER_NS + _TOGETHER_SHARE * wait_ns
    waits = np.flatnonzero((wait_ns >= _LEAST_NS) & (end >= met_ns) & returns)
    process = calls["process"].to_numpy()[waits]
    facts = {"begin_ns": start[waits], "last": thread[last[waits]], "met_ns": met_ns[waits]}
    return pd.DataFrame({"process": process, "thread": thread[waits], **facts})
