"""The overhead of the profiler: how much it adds to each call, and how a model is corrected for it.

The overhead is either typical of nsys or calibrated on the machine of the capture. If the program was also timed
without the profiler, the overhead is scaled so that the model predicts that time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import CallNodes
from nightsight.analyze.causes.model import BEGIN, CALL, LAUNCH, Model
from nightsight.events.frameworks import CUDA, framework_of
from nightsight.events.loops import timed_loop, timed_step
from nightsight.events.names import LAUNCHES, OTHERS, call_kinds
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import Flags, Floats, Ints
from nightsight.model.report import TORCH_PROFILER, Profile
from nightsight.tables import are_named, positions

# nsys adds time to each call that submits work to the GPU, and to the host code after it: in all, about this many times
# the median recorded length of such calls (an H200 host, nsys 2025.3, ten programs: 0.8 to 1.9). To other calls of at
# least a microsecond, it adds this share of that
_COST_OF_CALL: Final = 1.3
_COST_OF_OTHERS: Final = 0.4
# torch.profiler adds less to a call, but also time to each operator that it records (four ranks on an H100 host, torch
# 2.11, shapes recorded: with these shares, three steps are predicted within 17 %)
_COST_OF_OPERATOR: Final = 0.4
_COST_OF_LAUNCH: Final = {"nsys": _COST_OF_CALL, "": _COST_OF_CALL, TORCH_PROFILER: 0.4}
_LAUNCH_NS: Final = 5_000
_LEAST_OTHER_NS: Final = 1_000
# frames of PyTorch's structured log (TORCH_TRACE)
_LOGS: Final = r"\b(?:trace_structured|_log_timed_event) \("
# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# a call in a Python program costs this many times what it costs at calibration, in a short loop whose code and data
# stay in the caches: in steps of 17 programs on H200 that the host limits (tests/real, 2026-11-28), timed with and
# without nsys, 1.1 to more than 3 times, in the median 2.4. Runs of one program differ by as much
_IN_PYTHON: Final = 2.0
# lower bound of a call without the profiler (stored: 0.75 to 3 µs)
_SHORTEST_CALL_NS: Final = 1_500
# the host of a capture is at most this many times faster or slower than it was at calibration: hosts vary by half from
# one hour to the next (stored: 1 to 4)
_MOST_SLOWDOWN: Final = 2.0
# the largest factor that scales the overhead to match the time without the profiler (stored: 1.5 to 6)
MOST_FACTOR: Final = 3.0
_FACTORS: Final = 13
# of the difference from the time without the profiler: if the host explains less, the GPU limits the step. Of the
# programs recorded on H200 on 2026-11-28 (tests/real), the host explains at most 0.47 for three, and 0.97 for others
_LEAST_EXPLAINED: Final = 0.5
# times that differ by less than this share are equal (stored: 0.001 to 0.004)
_EQUAL: Final = 0.002


@dataclass(frozen=True, eq=False)
class Cost:
    """The overhead of the profiler: for each call of a model (`by_call`, in ns), and for a launch.

    before_call: the overhead of operators, and of PyTorch's log, in the host code before each call, in ns;
    `operator_ns`: that of an operator.
    kind: the kind of each call. recorded_ns: the recorded length of a launch. is_calibrated: whether the overhead of
    calls was measured on the machine of the capture.
    """

    by_call: Floats
    before_call: Floats
    operator_ns: float
    kind: "pd.Index[str]"
    launch_ns: float
    recorded_ns: float
    is_calibrated: bool


def cost_of(timeline: Timeline, calls: CallNodes, launching: Flags) -> Cost:
    """Return the assumed overhead of the profiler for each call; `launching` calls submit work to the GPU."""
    length = calls.end - calls.start
    kind = call_kinds(calls.names).take(calls.name)
    kind = kind.where(~((kind == OTHERS) & launching), LAUNCHES)
    plain = launching & (calls.waits_for < 0)
    recorded_ns = float(np.median(length[plain])) if plain.any() else _LAUNCH_NS
    calibration = timeline.profile.recorded("profiler_costs").set_index("kind")
    is_calibrated = LAUNCHES in calibration.index
    collector = timeline.profile.environment.collector
    # the overhead of profilers other than nsys and PyTorch's is unknown
    launch_ns = _COST_OF_LAUNCH.get(collector, 0.0) * recorded_ns
    if is_calibrated:
        slowdown = _slowdown(recorded_ns, float(calibration["recorded_ns"][LAUNCHES]))
        of_program = 1.0 if framework_of(timeline.profile) == CUDA else _IN_PYTHON
        added_ns = of_program * slowdown * calibration["added_ns"]
        launch_ns = float(added_ns[LAUNCHES])
    by_call = np.where(launching, launch_ns, np.where(length >= _LEAST_OTHER_NS, _COST_OF_OTHERS * launch_ns, 0.0))
    if is_calibrated:
        by_call = np.where(kind.isin(added_ns.index), added_ns.reindex(kind).to_numpy(dtype=np.float64), by_call)
    operator_ns = _COST_OF_OPERATOR * recorded_ns if collector == TORCH_PROFILER else 0.0
    before_call: Floats = operator_ns * _operators_before(timeline.profile, calls).astype(np.float64)
    before_call += _log_before(timeline.profile, calls)
    return Cost(by_call, before_call, operator_ns, kind, launch_ns, recorded_ns, is_calibrated)


def _operators_before(profile: Profile, calls: CallNodes) -> Ints:
    """Return how many operators of PyTorch start between the previous call of the thread and each call."""
    operators, count = profile.recorded("cpu_ops"), np.zeros(len(calls), dtype=np.int64)
    started = positions(operators["thread"].to_numpy())
    for thread, on_thread in positions(calls.thread).items():
        start = operators["start_ns"].to_numpy()[started.get(thread, on_thread[:0])]
        rows = on_thread[np.argsort(calls.start[on_thread], kind="stable")]
        count[rows] = np.diff(np.searchsorted(np.sort(start), calls.start[rows]), prepend=0)
        # of the first call, it is unknown
        count[rows[:1]] = 0
    return count


def _log_before(profile: Profile, calls: CallNodes) -> Floats:
    """Return the time before each call in which PyTorch writes its log, which it does for the collector, in ns.

    It is the share of the samples of Python's stack before all calls of a function.
    """
    time = np.zeros(len(calls))
    samples = profile.recorded("python_samples")
    is_log = are_named(samples["stack"], _LOGS)
    if not is_log.any():
        return time
    samples = samples.assign(is_log=is_log).sort_values("start_ns", kind="stable")
    sampled = positions(samples["thread"].to_numpy())
    for thread, on_thread in positions(calls.thread).items():
        rows = on_thread[np.argsort(calls.start[on_thread], kind="stable")]
        since = np.append(calls.start[rows[:1]], np.maximum.accumulate(calls.end[rows])[:-1])
        of_thread = samples.iloc[sampled.get(thread, on_thread[:0])]
        low, high = (np.searchsorted(of_thread["start_ns"], bound) for bound in (since, calls.start[rows]))
        logging = np.append(0, of_thread["is_log"].cumsum())
        # by the call that follows
        logged, every = (
            np.bincount(calls.name[rows], count, len(calls.names))
            for count in (logging[high] - logging[low], high - low)
        )
        share = np.divide(logged, every, out=np.zeros(len(calls.names)), where=every > 0)
        time[rows] = np.maximum(calls.start[rows] - since, 0) * share[calls.name[rows]]
    return time


def _slowdown(recorded_ns: float, calibrated_ns: float) -> float:
    """Return how much slower the host was than at calibration, by the median launch in both recordings."""
    if calibrated_ns <= 0 or recorded_ns <= 0:
        return 1.0
    return min(max(recorded_ns / calibrated_ns, 1 / _MOST_SLOWDOWN), _MOST_SLOWDOWN)


def subtract_cost(model: Model, overhead: Cost, factor: float = 1.0) -> Floats:
    """Return the lags less `factor` times the overhead.

    Half of that of a call is in the call, and half in the host code after it.
    """
    calls, work = model.graph.calls, model.graph.work
    length, cost, lag = calls.end - calls.start, factor * overhead.by_call / 2, model.lag.copy()
    next_calls = np.flatnonzero((calls.before >= 0) & model.has(BEGIN))
    begin_edges = model.edges[BEGIN][next_calls]
    between = cost[calls.before[next_calls]] + factor * overhead.before_call[next_calls]
    lag[begin_edges] = np.maximum(lag[begin_edges] - between, np.minimum(lag[begin_edges], 0))
    # its work arrives earlier by the time that the call saves
    reduction = length - np.maximum(length - cost, np.minimum(length, _SHORTEST_CALL_NS))
    replayed_calls = np.flatnonzero(model.has(CALL))
    call_edges = model.edges[CALL][replayed_calls]
    lag[call_edges] = np.maximum(lag[call_edges] - reduction[replayed_calls], 0)
    operations = np.flatnonzero((work.call >= 0) & model.has(LAUNCH))
    lag[model.edges[LAUNCH][operations]] -= np.minimum(reduction[work.call[operations]], work.latency_ns[operations])
    return lag


def fit_factor(lengths: Callable[[Floats], Floats], target_ns: float, usual: float = 1.0) -> float:
    """Return the factor by which the overhead must be scaled so that a step takes `target_ns`.

    lengths: returns the length of a step for each of several factors. If none or many of them match, return the one
    closest to the usual one among the best.
    """
    factors = np.linspace(0, MOST_FACTOR, _FACTORS)
    step_ns = np.minimum.accumulate(lengths(factors))
    error, tolerance = np.abs(step_ns - target_ns), _EQUAL * target_ns
    closest = int(np.argmin(np.abs(factors - usual)))
    if error[closest] <= tolerance or not step_ns[-1] < target_ns < step_ns[0]:
        return _closest(factors, error <= error.min() + tolerance, usual)
    upper = int(np.argmax(step_ns < target_ns))
    finer = np.linspace(factors[upper - 1], factors[upper], _FACTORS)
    return float(np.interp(-target_ns, -np.minimum.accumulate(lengths(finer)), finer))


def _closest(values: Floats, fits: Flags, usual: float) -> float:
    """Return the value closest to the usual one that lies among those that fit, or between two of them."""
    best = np.flatnonzero(fits)
    if fits[best[0] : best[-1] + 1].all():
        return float(np.clip(usual, values[best[0]], values[best[-1]]))
    return float(values[best][np.argmin(np.abs(values[best] - usual))])


def fit_host_speed(lengths: Callable[[Floats], Floats], target_ns: float, usual: float = 0.0) -> float:
    """Return by which share of its time host code must be faster so that a step takes `target_ns`.

    lengths: returns the length of a step for each of several shares. The host can be twice as fast as it was in
    another run: it is shared, and its clock varies. If that explains less than half of the difference, as for a step
    that the GPU limits, or none is left, it is the usual share, or the one closest to it with which the step fits.
    """
    shares = np.linspace(0, 1 - 1 / _MOST_SLOWDOWN, _FACTORS)
    step_ns = np.minimum.accumulate(lengths(shares))
    difference_ns, tolerance = step_ns[0] - target_ns, _EQUAL * target_ns
    if difference_ns <= tolerance:
        return _closest(shares, np.abs(step_ns - target_ns) <= np.abs(difference_ns) + tolerance, usual)
    if step_ns[0] - step_ns[-1] < _LEAST_EXPLAINED * difference_ns:
        return usual
    return float(np.interp(-target_ns, -step_ns, shares))


def speed_up_host(model: Model, lag: Floats, share: float) -> Floats:
    """Return the lags with host code and calls shorter by a share of their time."""
    new = lag.copy()
    for kind in (BEGIN, CALL):
        edges = model.edges[kind][:-1]
        edges = edges[edges >= 0]
        new[edges] = np.where(lag[edges] > 0, (1 - share) * lag[edges], lag[edges])
    return new


def timed_ns(profile: Profile, window: Window) -> float:
    """Return the length of a repetition in a run without the profiler; NaN if it was not timed."""
    table, count = profile.tables.get("timed_ranges"), len(window.repetitions)
    if table is None or not window.family:
        return float("nan")
    step_ns = timed_step(table, window.family)[1]
    return step_ns if step_ns > 0 or not count else timed_loop(table, count, window.length_ns / count)[1]
