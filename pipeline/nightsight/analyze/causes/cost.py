"""What the profiler itself costs: how much it adds to each call, and how that is taken off the model of a window.

It is known in one of three ways: typical of nsys; calibrated on the machine of the capture; or, where the program was
also timed without the profiler, scaled so that the model gives that time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import Calls
from nightsight.analyze.causes.replay import BEGIN, CALL, LAUNCH, Floats, Model
from nightsight.events.names import LAUNCHES, OTHERS, call_kinds
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import Flags
from nightsight.model.report import Profile
from nightsight.tables import empty

# nsys makes each call that gives work to the GPU longer, and the host code after it: together by about this many times
# the median of the recorded length of such calls (an H200 host, nsys 2025.3, ten programs: 0.8 to 1.9), and other calls
# of at least a microsecond by this share of that
_COST_OF_CALL: Final = 1.3
_COST_OF_OTHERS: Final = 0.4
_LAUNCH_NS: Final = 5_000
_COUNTS_NS: Final = 1_000
# lower bound of a call without the profiler
_SHORTEST_CALL_NS: Final = 1_500
# the host of a capture is no more than this many times as fast or slow as when it was calibrated
_SPEED: Final = 2.0
# the cost is scaled by at most this to give the time without the profiler
MOST_FACTOR: Final = 3.0
_FACTORS: Final = 13
# times that differ by less than this share are equal
_EQUAL: Final = 0.002


@dataclass(frozen=True, eq=False)
class Cost:
    """What the profiler adds to each call of a model, in ns: `by_call`, and for a launch.

    kind: of each call. recorded_ns: how long a launch is recorded to take. is_calibrated: whether the cost was measured
    on the machine of the capture.
    """

    by_call: Floats
    kind: "pd.Index[str]"
    launch_ns: float
    recorded_ns: float
    is_calibrated: bool


def cost_of(timeline: Timeline, calls: Calls, launching: Flags) -> Cost:
    """Return what the profiler is taken to add to each call; `launching` calls give work to the GPU."""
    length = calls.end - calls.start
    kind = call_kinds(calls.names).take(calls.name)
    kind = kind.where(~((kind == OTHERS) & launching), LAUNCHES)
    plain = launching & (calls.awaited < 0)
    recorded = float(np.median(length[plain])) if plain.any() else _LAUNCH_NS
    known = timeline.profile.tables.get("profiler_costs", empty("profiler_costs")).set_index("kind")
    is_calibrated = LAUNCHES in known.index
    # that is the cost of nsys; what other profilers add is not known
    launch = _COST_OF_CALL * recorded if timeline.profile.environment.collector in ("nsys", "") else 0.0
    if is_calibrated:
        added = known["added_ns"] * _speed(recorded, float(known["recorded_ns"][LAUNCHES]))
        launch = float(added[LAUNCHES])
    by_call = np.where(launching, launch, np.where(length >= _COUNTS_NS, _COST_OF_OTHERS * launch, 0.0))
    if is_calibrated:
        by_call = np.where(kind.isin(added.index), added.reindex(kind).to_numpy(dtype=np.float64), by_call)
    return Cost(by_call, kind, launch, recorded, is_calibrated)


def _speed(recorded: float, calibrated: float) -> float:
    """Return how much slower the host was than when it was calibrated, by the median launch in both recordings."""
    return min(max(recorded / calibrated, 1 / _SPEED), _SPEED) if calibrated > 0 and recorded > 0 else 1.0


def taken_off(found: Model, by_call: Floats, factor: float = 1.0) -> Floats:
    """Return the lags without `factor` times the cost: half taken from each call, half from the host code after it."""
    calls, work = found.graph.calls, found.graph.work
    length, cost, lag = calls.end - calls.start, factor * by_call / 2, found.lag.copy()
    following = np.flatnonzero((calls.before >= 0) & (found.edges[BEGIN][:-1] >= 0))
    edges = found.edges[BEGIN][following]
    lag[edges] = np.maximum(lag[edges] - cost[calls.before[following]], np.minimum(lag[edges], 0))
    # its work arrives earlier by as much as the call gets shorter
    shorter = length - np.maximum(length - cost, np.minimum(length, _SHORTEST_CALL_NS))
    mine = np.flatnonzero(found.edges[CALL][:-1] >= 0)
    own = found.edges[CALL][mine]
    lag[own] = np.maximum(lag[own] - shorter[mine], 0)
    operations = np.flatnonzero((work.call >= 0) & (found.edges[LAUNCH][:-1] >= 0))
    lag[found.edges[LAUNCH][operations]] -= np.minimum(shorter[work.call[operations]], work.latency_ns[operations])
    return lag


def fitted(lengths: Callable[[Floats], Floats], wanted_ns: float) -> float:
    """Return how many times the cost must be taken off so that a step takes as long as it should.

    lengths: of a step, for several factors. If none gives that, or many do, it is that of the best closest to 1.
    """
    factors = np.linspace(0, MOST_FACTOR, _FACTORS)
    found = np.minimum.accumulate(lengths(factors))
    off, close = np.abs(found - wanted_ns), _EQUAL * wanted_ns
    usual = int(np.argmin(np.abs(factors - 1)))
    if off[usual] <= close or not found[-1] < wanted_ns < found[0]:
        good = factors[off <= off.min() + close]
        return float(good[np.argmin(np.abs(good - 1))])
    after = int(np.argmax(found < wanted_ns))
    finer = np.linspace(factors[after - 1], factors[after], _FACTORS)
    return float(np.interp(-wanted_ns, -np.minimum.accumulate(lengths(finer)), finer))


def timed_ns(profile: Profile, window: Window) -> float:
    """Return how long a repetition of the window took in a run without the profiler; NaN if that was not timed."""
    table = profile.tables.get("timed_ranges")
    if table is None or not len(table) or not window.family:
        return float("nan")
    paths = table["path"].astype("str")
    mine = table[paths == window.family]
    if not len(mine):
        # the same range, in another place of the other run
        mine = table[paths.str.rsplit(" / ", n=1).str[-1] == window.family.rsplit(" / ", 1)[-1]]
    ordered = mine.sort_values("instances", ascending=False, kind="stable")
    return float(ordered["med_ns"].iloc[0]) if len(ordered) else float("nan")
