"""How long the host takes without the profiler, from ranges that were timed in both runs.

A step that the GPU limits takes as long with a slow host as with a fast one, so its time does not show how much the
profiler slows the host down. A range in which no thread waits for the GPU shows it: it takes as long as its calls and
the code between them, in the capture as in the run without the profiler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.model import BEGIN, CALL, Model
from nightsight.analyze.causes.scene import Scene
from nightsight.events.loops import ENDS_WITH, timed_step
from nightsight.events.ranges import recorded_ranges, without_numbers
from nightsight.intervals import Floats, Ints

# ranges that wait for a larger share of their time do not show the speed of the host
_MOST_WAITING: Final = 0.02
# instances that take this many times the median of their name have a pause, which the other run has elsewhere
_MOST_LENGTH: Final = 1.5
# the share of the calls of the replayed stretch that the ranges must have, to represent all host code
_LEAST_CALLS: Final = 0.5
# calls of one name count as the same in both runs if there are as many per step, up to this share
_EQUAL_COUNT: Final = 0.25
_OPTIMIZER: Final = "Optimizer.step#"


@dataclass(frozen=True, eq=False)
class HostRanges:
    """Ranges of the replayed stretch without waits, which were also timed without the profiler.

    calls: the calls in them, one after the other on one thread per range. recorded_ns, timed_ns: how long the ranges
    take in all, in the capture and without the profiler.
    """

    calls: Ints
    recorded_ns: float
    timed_ns: float

    def lengths(self, model: Model, lags: Sequence[Floats]) -> Floats:
        """Return how long the ranges take in all with each of several lags of the model, in ns."""
        edges = np.concatenate([model.edges[kind][self.calls] for kind in (BEGIN, CALL)])
        edges = edges[edges >= 0]
        return np.array([self.recorded_ns - float((model.lag[edges] - lag[edges]).sum()) for lag in lags])


def host_ranges(scene: Scene) -> HostRanges | None:
    """Return the outermost ranges that show the speed of the host; None if they have too few of the calls."""
    timed = _timed_without_profiler(scene)
    ranges = recorded_ranges(scene.timeline.profile)
    if not len(timed) or not len(ranges):
        return None
    window, paths = scene.timeline.window, ranges["path"].cat
    repetitions = max(len(window.repetitions), 1)
    name = without_numbers(paths.categories).str.rsplit(" / ", n=1).str[-1].take(paths.codes.to_numpy())
    is_inside = (ranges["start_ns"] >= window.start_ns) & (ranges["end_ns"] <= window.end_ns) & ~ranges["is_open"]
    spans = ranges[["start_ns", "end_ns", "process", "level"]].assign(name=name)[is_inside & name.isin(timed.index)]
    spans = spans.assign(length=spans["end_ns"] - spans["start_ns"], waiting=_waiting(scene, spans))
    by_name = spans.groupby("name")
    usual_ns = by_name["length"].transform("median")
    share = (spans["waiting"] / spans["length"].clip(lower=1)).groupby(spans["name"]).transform("median")
    per_step = by_name["length"].transform("size") / repetitions / timed["per_step"].reindex(spans["name"]).to_numpy()
    spans = spans[(share <= _MOST_WAITING) & (abs(per_step - 1) <= _EQUAL_COUNT)]
    spans = _outermost(spans[spans["length"] <= _MOST_LENGTH * usual_ns.loc[spans.index]])
    calls = _calls_in(scene, spans)
    if len(calls) < max(_LEAST_CALLS * len(scene.in_calls), 1):
        return None
    timed_ns = timed["host_ns"].reindex(spans["name"]).to_numpy()
    return HostRanges(calls, float(spans["length"].sum()), float(timed_ns.sum()))


def _timed_without_profiler(scene: Scene) -> pd.DataFrame:
    """Return by name how long the CPU is in a range or call without the profiler, and how many there are per step."""
    table = scene.timeline.profile.recorded("timed_ranges")
    step, _ = timed_step(table, scene.timeline.window.family)
    if not step:
        return table[:0]
    steps = int(table.loc[table["path"] == step, "instances"].max())
    table = table[table["host_ns"].notna()]
    paths = table["path"].astype("str")
    begin, end = ENDS_WITH.split("{}")
    ends_step = paths.str.startswith(begin)
    names = paths.str.rsplit(" / ", n=1).str[-1]
    names = names.where(~ends_step, _OPTIMIZER + paths.str.removeprefix(begin).str.removesuffix(end))
    columns = {"host_ns": table["host_ns"].astype("float64"), "per_step": table["instances"] / steps}
    timed = pd.DataFrame(columns).set_index(names)
    return timed[~timed.index.duplicated(keep=False)]


def _waiting(scene: Scene, spans: pd.DataFrame) -> Ints:
    """Return how long calls of its process wait in each span, for the GPU or for other ranks."""
    calls = scene.graph.calls
    waits = np.where(calls.waits_for >= 0, calls.end - calls.start - calls.work_ns, 0) + calls.rank_wait_ns
    total = np.zeros(len(spans), dtype=np.int64)
    for process in np.unique(spans["process"]).tolist():
        of_process = np.flatnonzero(calls.process == process)
        of_process = of_process[np.argsort(calls.start[of_process], kind="stable")]
        rows = np.flatnonzero(spans["process"] == process)
        until = np.append(0, np.cumsum(waits[of_process]))
        first, last = (
            np.searchsorted(calls.start[of_process], spans[bound].to_numpy()[rows]) for bound in ("start_ns", "end_ns")
        )
        total[rows] = until[last] - until[first]
    return total


def _outermost(spans: pd.DataFrame) -> pd.DataFrame:
    """Leave out spans that begin inside another one of the same process."""
    spans = spans.sort_values(["process", "start_ns", "level"], kind="stable")
    ends = spans.groupby("process")["end_ns"].cummax().groupby(spans["process"]).shift(fill_value=0)
    return spans[spans["start_ns"] >= ends]


def _calls_in(scene: Scene, spans: pd.DataFrame) -> Ints:
    """Return the replayed calls in each span, of the thread that makes most of them."""
    calls, found = scene.graph.calls, []
    for process, of_process in spans.groupby("process"):
        replayed = scene.in_calls[calls.process[scene.in_calls] == process]
        span = np.searchsorted(of_process["start_ns"], calls.start[replayed], side="right") - 1
        is_inside = (span >= 0) & (calls.start[replayed] < of_process["end_ns"].to_numpy()[span])
        inside = pd.DataFrame({"call": replayed, "span": span, "thread": calls.thread[replayed]})[is_inside]
        counts = inside.groupby(["span", "thread"])["call"].transform("size")
        main = inside.loc[counts.groupby(inside["span"]).idxmax()].set_index("span")["thread"]
        found.append(inside["call"].to_numpy()[inside["thread"].to_numpy() == main.reindex(inside["span"]).to_numpy()])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
