"""Kernel time by the ranges in which the kernels were launched."""

from typing import Final

import numpy as np

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import operation_owners
from nightsight.events.ranges import repetitions
from nightsight.events.timeline import Timeline, begun
from nightsight.results.ranges import RANGE_KERNELS
from nightsight.tables import categorical, time_summary


def range_kernels(timeline: Timeline) -> Table:
    """Return one row per kernel and path of the innermost range that launched it; nothing without ranges."""
    kernels, paths = timeline.profile.table("kernels"), repetitions(timeline.profile)["path"].cat
    owner = operation_owners(timeline)[: len(kernels)]
    # the last text means no range
    code = np.append(np.asarray(paths.codes, dtype=np.int64), len(paths.categories))[owner]
    texts = np.append(np.asarray(paths.categories, dtype=object), OUTSIDE)
    with_path = kernels[["start_ns", "end_ns", "name"]].assign(path=categorical(texts, code))
    with_path = with_path[begun(timeline, with_path["start_ns"])]
    summed = time_summary(with_path, ["path", "name"]).rename(columns={"count": "instances"})
    table = summed[list(RANGE_KERNELS.column_names)].astype({"path": "str"})
    return Table(table[: len(table) * bool(len(paths.categories))])


ANALYSES: Final = (Analysis(RANGE_KERNELS, range_kernels),)
