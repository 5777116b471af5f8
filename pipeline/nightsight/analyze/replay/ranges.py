"""Assigns launches in the timeline to replays if ncu replayed their kernel in several NVTX ranges.

A launch goes to the replay with the same range path. Launches and replays without a counterpart are matched with each
other, or with the first replay. All of a kernel's time is thus assigned, and every replay has a match.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.owners import operation_owners
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline
from nightsight.tables import Frame, renamed

PART: Final = ["group", "part"]
"""The key that joins replays and timeline: number of the kernel (name, grid, block), and range path if it matters."""


def split_by_range(timeline: Timeline, kernels: Frame, launches: Frame) -> tuple[Frame, Frame]:
    """Return kernels (columns group and row, in their table) and replayed launches (group, range_path) with `part`.

    `part` is the range path for kernels that were replayed in several ranges, with `#` for the numbers of repetitions,
    and empty for all others.
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
    """Return launches; those that ncu saw in no range get the range path in which their kernel took the most time.

    ncu sees only ranges of the launching thread, and PyTorch runs its backward pass on another one.
    """
    lacking = launches["group"][(launches["range_path"].astype("str") == "") & (launches["group"] >= 0)]
    unranged = kernels[kernels["group"].isin(lacking)]
    if not len(unranged) or not {"ranges", "api_calls"} <= timeline.profile.tables.keys():
        return launches
    unranged = unranged.assign(path=_paths(timeline, unranged["row"].to_numpy()))
    # ascending by time, so the last row of each group has the most
    sums = unranged.groupby(["group", "path"])["time"].sum().reset_index().sort_values("time", kind="stable")
    most = sums.drop_duplicates("group", keep="last").set_index("group")["path"]
    paths = launches["range_path"].astype("str")
    path_of_group = launches["group"].map(most).astype("object").fillna("")
    return launches.assign(range_path=paths.where(paths != "", path_of_group))


def _paths(timeline: Timeline, rows: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return the path of the range that owns each of these rows of kernels (see `operation_owners`); empty for none."""
    owner = operation_owners(timeline)[rows]
    paths = renamed(nested_ranges(timeline.profile)["path"], without_numbers)
    texts = np.append(paths.categories.to_numpy(dtype=object), "")
    path_of_row: np.ndarray[Any, Any] = texts[np.append(paths.codes, -1)[owner]]
    return path_of_row


def _with_partners(kernels: Frame, launches: Frame) -> tuple[Frame, Frame]:
    """Assign a part to kernels and launches whose own part has no counterpart on the other side."""
    distinct = kernels[PART].drop_duplicates()
    both = launches[PART].merge(distinct, on=PART).drop_duplicates()
    # groups with leftovers, in the timeline and among the replays
    leftovers = [_without(frame, both)["group"] for frame in (distinct, launches[PART])]
    # leftovers on both sides match each other (the empty part); on one side only, they join the first match
    leftover_pairs = leftovers[0][leftovers[0].isin(leftovers[1])]
    first = both[~both["group"].isin(leftover_pairs)].drop_duplicates("group").set_index("group")["part"]
    return _placed(kernels, both, first), _placed(launches, both, first)


def _without(frame: Frame, others: Frame) -> Frame:
    return frame[~pd.MultiIndex.from_frame(frame[PART]).isin(pd.MultiIndex.from_frame(others))]


def _placed(frame: Frame, both: Frame, first: "pd.Series[str]") -> Frame:
    has_partner = pd.MultiIndex.from_frame(frame[PART]).isin(pd.MultiIndex.from_frame(both))
    others = frame["group"].map(first).astype("object").fillna("")
    return frame.assign(part=np.where(has_partner, frame["part"], others))
