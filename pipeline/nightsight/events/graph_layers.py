"""The time on the GPU of ranges that were open while a CUDA graph was captured, per replay and stream.

In a replay, nothing records such a range. It lasts from the start of the first operation that it owns on a
stream to the end of the last, as Nsight Systems projects ranges onto the GPU.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.launches import GPU_TABLES, launching_calls
from nightsight.events.ranges import nested_ranges, owners_in_graphs
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import aggregate

ON_STREAM: Final = ("device", "process", "context", "stream")
_COLUMNS: Final = (*ON_STREAM, "start_ns", "end_ns", "domain", "name", "call")


@memoize
def graph_layers(profile: Profile) -> pd.DataFrame:
    """Return one row per range, replay and stream, by start, enclosing ranges first; no rows without any.

    Columns: those of ON_STREAM, `start_ns`, `end_ns`, `domain` and `name` as in `ranges`, and `call`: the launch of the
    graph, as a row in api_calls.
    """
    owner = owners_in_graphs(profile)
    operation = np.flatnonzero(owner >= 0)
    if not len(operation):
        return pd.DataFrame(columns=list(_COLUMNS))
    names = [*ON_STREAM, "start_ns", "end_ns"]
    frames = [profile.tables[name][names] for name in GPU_TABLES if len(profile.recorded(name))]
    on_gpu = pd.concat(frames, ignore_index=True).iloc[operation].astype("int64")
    stream = on_gpu.groupby(list(ON_STREAM), sort=False).ngroup().to_numpy()
    example = np.unique(stream, return_index=True)[1]
    ranges, streams = nested_ranges(profile), len(example)
    spans = on_gpu[["start_ns", "end_ns"]].assign(
        place=owner[operation] * streams + stream, call=launching_calls(profile)[operation]
    )
    spans = _with_enclosing(spans, ranges, streams)
    row, of_stream = np.divmod(spans["place"].to_numpy(), streams)
    layers = pd.concat(
        [
            on_gpu[list(ON_STREAM)].iloc[example[of_stream]].reset_index(drop=True),
            spans.drop(columns="place"),
            ranges[["domain", "name", "level"]].iloc[row].reset_index(drop=True),
        ],
        axis=1,
    )
    order = np.lexsort((layers["level"], -layers["end_ns"], layers["start_ns"]))
    return layers[list(_COLUMNS)].iloc[order].reset_index(drop=True)


def _with_enclosing(spans: pd.DataFrame, ranges: pd.DataFrame, streams: int) -> pd.DataFrame:
    """Return the span of each range and stream (`place`: row of the range * streams + stream), ranges around included.

    Only ranges of the replay count, not those around its launch.
    """
    parent, in_graph = ranges["parent"].to_numpy(), ranges["in_graph"].to_numpy()
    parts: list[pd.DataFrame] = []
    while len(spans):
        spans = _joined(spans)
        parts.append(spans)
        row, stream = np.divmod(spans["place"].to_numpy(), streams)
        above = parent[row]
        is_kept = (above >= 0) & in_graph[above]
        spans = spans[is_kept].assign(place=above[is_kept] * streams + stream[is_kept])
    return _joined(pd.concat(parts))


def _joined(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one span per place."""
    of_place = spans.groupby("place")
    return aggregate(
        of_place, start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), call=("call", "first")
    ).reset_index()
