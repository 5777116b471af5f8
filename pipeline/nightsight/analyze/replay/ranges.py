"""Which of several replays of one kernel each of its launches in the timeline goes to: the one in the same NVTX ranges.

Ranges decide between replays and never against one: what has no partner in the other's ranges goes together, or else to
the replay that came first. So a kernel keeps all of its time, and no replay loses its match.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.owners import call_owners, nested_ranges
from nightsight.events.repetitions import without_numbers
from nightsight.events.timeline import Timeline
from nightsight.tables import renamed

Frame = pd.DataFrame

PART: Final = ["group", "part"]
"""What tells one share of the timeline from another: the kernel (name, grid, block), and the ranges if they matter."""


def told_apart(timeline: Timeline, kernels: Frame, launches: Frame) -> tuple[Frame, Frame]:
    """Add `part` to kernels (columns group and row, that of its table) and to replayed launches (group, range_path).

    It is empty but for kernels that were replayed in several ranges; there the numbers of repetitions do not count.
    """
    paths = launches["range_path"].astype("str")
    paths = pd.Series(without_numbers(pd.Index(paths)), launches.index, dtype="str")
    matters = paths.groupby(launches["group"]).transform("nunique") > 1
    kernels, launches = kernels.assign(part=""), launches.assign(part=paths.where(matters, ""))
    rows = np.flatnonzero(kernels["group"].isin(launches["group"][matters]))
    if not len(rows) or not {"ranges", "api_calls"} <= timeline.profile.tables.keys():
        return kernels, launches.assign(part="")
    part = kernels["part"].to_numpy(dtype=object)
    part[rows] = _paths(timeline, kernels["row"].to_numpy()[rows])
    return _with_partners(kernels.assign(part=part), launches)


def with_paths(timeline: Timeline, kernels: Frame, launches: Frame) -> Frame:
    """Give launches that ncu saw in no range that of the timeline in which their kernel took most of its time.

    ncu looks at the launching thread alone, and PyTorch's backward pass has one of its own.
    """
    lacking = launches["group"][(launches["range_path"].astype("str") == "") & (launches["group"] >= 0)]
    mine = kernels[kernels["group"].isin(lacking)]
    if not len(mine) or not {"ranges", "api_calls"} <= timeline.profile.tables.keys():
        return launches
    mine = mine.assign(path=_paths(timeline, mine["row"].to_numpy()))
    sums = mine.groupby(["group", "path"])["time"].sum().reset_index().sort_values("time", kind="stable")
    most = sums.drop_duplicates("group", keep="last").set_index("group")["path"]
    paths = launches["range_path"].astype("str")
    found = launches["group"].map(most).astype("object").fillna("")
    return launches.assign(range_path=paths.where(paths != "", found))


def _paths(timeline: Timeline, rows: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The path of the ranges that each row of kernels belongs to, as nightsight.analyze.ranges.owners defines it."""
    call = timeline.operations.call[rows]
    owner = np.where(call >= 0, np.append(call_owners(timeline)[0], -1)[call], -1)
    paths = renamed(nested_ranges(timeline)["path"], without_numbers)
    texts = np.append(paths.categories.to_numpy(dtype=object), "")
    found: np.ndarray[Any, Any] = texts[np.append(paths.codes, -1)[owner]]
    return found


def _with_partners(kernels: Frame, launches: Frame) -> tuple[Frame, Frame]:
    """Put what has no partner into the part of its group that is for it."""
    distinct = kernels[PART].drop_duplicates()
    both = launches[PART].merge(distinct, on=PART).drop_duplicates()
    alone = [_without(frame, both)["group"] for frame in (distinct, launches[PART])]
    together = alone[0][alone[0].isin(alone[1])]
    first = both[~both["group"].isin(together)].drop_duplicates("group").set_index("group")["part"]
    return _placed(kernels, both, first), _placed(launches, both, first)


def _without(frame: Frame, others: Frame) -> Frame:
    return frame[~pd.MultiIndex.from_frame(frame[PART]).isin(pd.MultiIndex.from_frame(others))]


def _placed(frame: Frame, both: Frame, first: "pd.Series[str]") -> Frame:
    has_partner = pd.MultiIndex.from_frame(frame[PART]).isin(pd.MultiIndex.from_frame(both))
    others = frame["group"].map(first).astype("object").fillna("")
    return frame.assign(part=np.where(has_partner, frame["part"], others))
