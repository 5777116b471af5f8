"""Predicted gain of each fix, alone and in the best sequence: the results of the causal model.

Gains apply to the program without the profiler: its overhead is subtracted before any fix is applied.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.batching import LargerSteps, larger_steps
from nightsight.analyze.causes.bound import least_lengths
from nightsight.analyze.causes.breaks import obstacles_at
from nightsight.analyze.causes.cost import (
    MOST_FACTOR,
    fit_factor,
    fit_host_speed,
    speed_up_host,
    subtract_cost,
    timed_ns,
)
from nightsight.analyze.causes.functions import Code, function_in, waits_in
from nightsight.analyze.causes.host_time import HostRanges, host_ranges
from nightsight.analyze.causes.ladder import Replay, split_step
from nightsight.analyze.causes.model import CALL, FEWEST, Model
from nightsight.analyze.causes.remedies import Remedy, remedies, request_waits, temporary_costs
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.stretches import replay_stretch
from nightsight.analyze.no_work import next_to_none
from nightsight.analyze.unseen_work import MOST_CAPTURING, MOST_UNSEEN, capturing_share, unseen_share
from nightsight.events.compiled import Obstacle
from nightsight.events.frameworks import framework_of
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Floats
from nightsight.results.categories import group_of
from nightsight.results.causes import FIX_LADDER, PROFILER_COST, REPLAY, WHAT_IF
from nightsight.results.rules import RULE, WORTH_PCT
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, aggregate
from nightsight.units import format_value, signed

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# stored: 0.05 to 0.2
MOST_UNEXPLAINED: Final = 0.1
"""No gain is predicted if the replay of the unchanged window is off by more than this share of the measured time."""
# share of a step: smaller gains do not get a row, or a place in the best sequence. What rests on them is what is shown,
# not what is found first
_LEAST_SHARE: Final = 0.005
_LEAST_OF_SEQUENCE: Final = 0.02
_MOST_IN_SEQUENCE: Final = 4
# shares of the window or of a step that only decide whether a note has them: idle time, temporary costs, and what is
# left of a difference from the time without the profiler
_LEAST_IDLE: Final = 0.05
_LEAST_TEMPORARY: Final = 0.02
_AS_TIMED: Final = 0.02
# a time that differs by this factor from what explains it is that of something else than the step of the capture
_MOST_UNLIKE: Final = 2.0
# more launches between two waits are ahead of the GPU before the next one (stored: 10 to 40)
_LAUNCHES_PER_WAIT: Final = 20
# share of launches without an operation, and of operations without a call or before it: more means too much is missing
# (stored: 0.05 to 0.2). In stored captures, no operation begins less than 3.4 µs after its call does
_MOST_MISSING: Final = 0.1
_EARLY_NS: Final = 1_000
# a wait and host code count as one cause if their joint gain is this many times the better single gain (stored: up to
# 1.4; with 1.1, the wait of `fsdp_logs`, tests/data/jobs, is joined with its host code)
_LEAST_JOINT_GAIN: Final = 1.2
# rules about waits, and about host code; those in both join two others
_OF_WAITS: Final = {name for name, rule in RULE.items() if rule.is_wait}
_OF_HOST: Final = {name for name, rule in RULE.items() if rule.is_host}


@dataclass(frozen=True, eq=False)
class Gain:
    """The gain of a remedy per step, alone, in ns.

    `counted_ns`: as it counts when the first cause is chosen. `function`: what runs in its host code, `caller`: the
    function that called it, and `waits_in`: the operating system call in which it mostly waits, "" if unknown. `order`:
    its place in the best sequence from 1, 0 if not in it. `after_ns`: the length of a step after this and all before it
    in the sequence. `obstacles`: what keeps torch.compile from making one graph there.
    """

    remedy: Remedy
    gain_ns: float
    counted_ns: float
    function: str = ""
    caller: str = ""
    waits_in: str = ""
    order: int = 0
    after_ns: float = 0.0
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, eq=False)
class Simulation:
    """The replay of a window: a step as measured, as replayed, and without the profiler; times in ns.

    A step is one of the repetitions, or the window if there are none. If the model has no whole repetitions, a stretch
    represents them: a step takes its share of the time. predicted_ns: without the profiler, from its usual overhead.
    timed_ns: in a run without it, NaN if there was none. unprofiled_ns: the base of the gains, with the usual overhead
    scaled by `factor` to match `timed_ns`, and the host faster by a share of its time; scaled as a whole if neither
    explains it. explained_ns: the base before that. costs: the rows of `profiler_cost`. obstacle: why the capture
    cannot be replayed, "" if it can. idle_share: of the replayed time, in which a server waits for requests. host:
    ranges that show the speed of the host, if they were timed. larger: steps with several times the work, if the GPU
    has room for them, and how long one takes (`larger_ns`). temporary_ns: the temporary costs of a step, which
    `predicted_ns` and the gains exclude. replays: a step without the profiler, then after each fix of the best
    sequence.
    """

    model: Model
    repetitions: int
    measured_ns: float
    replayed_ns: float
    predicted_ns: float
    timed_ns: float
    unprofiled_ns: float
    explained_ns: float
    factor: float
    call_cost_ns: float
    is_calibrated: bool
    costs: pd.DataFrame
    gains: tuple[Gain, ...]
    obstacle: str = ""
    faster_by: float = 0.0
    idle_share: float = 0.0
    host: HostRanges | None = None
    larger: LargerSteps | None = None
    larger_ns: float = 0.0
    temporary_ns: float = 0.0
    replays: tuple[Replay, ...] = ()

    @property
    def unexplained(self) -> float:
        """The relative difference of the replay from the measurement."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns > 0 else 0.0

    @property
    def doubt(self) -> str:
        """Why no gain can be predicted; "" if gains can."""
        if self.obstacle or not self.measured_ns:
            return self.obstacle
        if abs(self.unexplained) <= MOST_UNEXPLAINED:
            return ""
        return f"something missing from the capture takes {100 * abs(self.unexplained):.0f} % of the time"

    @property
    def is_trusted(self) -> bool:
        """Whether gains can be predicted."""
        return self.measured_ns > 0 and not self.doubt


@memoize
def simulate(timeline: Timeline) -> Simulation:
    """Replay the window unchanged, without the profiler, and with each remedy; the largest gain first."""
    scene = Scene(replay_stretch(timeline))
    model, cost = scene.model, scene.cost
    if not len(model.first):
        overhead = (1.0, 0.0, cost.is_calibrated, _cost_table(scene, 1.0))
        return Simulation(model, 0, 0.0, 0.0, 0.0, np.nan, 0.0, 0.0, *overhead, ())
    repetitions = len(timeline.window.repetitions)
    repetitions *= repetitions >= FEWEST
    # a step as a share of the replayed stretch
    share = timeline.window.length_ns / max(repetitions, 1) / max(scene.timeline.window.length_ns, 1)
    share = 1.0 if model.steps else share
    fixes, timed_step_ns = remedies(scene), timed_ns(timeline.profile, timeline.window)
    host = host_ranges(scene)
    factor, faster_by = _host_speed(scene, host, lambda lags: share * _step_lengths(model, lags), timed_step_ns)
    base_lag = speed_up_host(model, _without_profiler(scene, factor), faster_by)
    larger = larger_steps(scene)
    edits = [larger.edit if larger else (), *(remedy.edit for remedy in fixes)]
    recorded = (model.lag, scene.apply(temporary_costs(scene), model.lag))
    unchanged = (*recorded, _without_profiler(scene), base_lag)
    lags = [*unchanged, *(scene.apply(edit, base_lag) for edit in edits)]
    event_times, step_lengths = _replay(model, lags)
    replayed_ns, lasting_ns, predicted_ns, base_ns, larger_ns, *lengths = map(float, step_lengths)
    # no step takes longer without the profiler; it only seems to if its start moves more than its end
    predicted_ns, base_ns = min(predicted_ns, replayed_ns), min(base_ns, replayed_ns)
    base = Replay(base_lag, event_times[:, len(unchanged) - 1].copy(), base_ns)
    alone = np.maximum(base_ns - np.array(lengths), 0.0)
    fixes = [
        _if_worthwhile(remedy, saved_ns / max(base_ns, 1.0)) for remedy, saved_ns in zip(fixes, alone, strict=True)
    ]
    saved, counted = _with_launching(scene, base, fixes, alone)
    gains = [Gain(*each) for each in zip(fixes, saved.tolist(), counted.tolist(), strict=True)]
    gains.sort(key=lambda gain: -gain.gain_ns)
    measured_ns = float(model.lengths(model.measured_ns[:, None])[0])
    idle_share = float(scene.gap[request_waits(scene)].sum()) / max(scene.timeline.window.length_ns, 1)
    worthwhile = _drop_joint_remedies(tuple(gain for gain in gains if gain.gain_ns > _LEAST_SHARE * base_ns))
    placed, replays = _best_sequence(scene, base, worthwhile)
    sequence = (_add_obstacles(scene, _add_function(scene, gain)) for gain in placed)
    # what neither explains, such as copies at another speed, is spread evenly
    of_timed = share * base_ns / timed_step_ns
    base_share = share / of_timed if 1 / _MOST_UNLIKE < of_timed < _MOST_UNLIKE else share
    scaled = tuple(_scale(gain, base_share) for gain in _share_obstacles(list(sequence)))
    overhead = (factor, factor * cost.launch_ns, cost.is_calibrated, _cost_table(scene, factor))
    replays = tuple(replace(each, length_ns=base_share * each.length_ns) for each in replays)
    measured_ns, replayed_ns, predicted_ns, lasting_ns = (
        share * length for length in (measured_ns, replayed_ns, predicted_ns, lasting_ns)
    )
    times = (measured_ns, replayed_ns, predicted_ns, timed_step_ns, base_share * base_ns, share * base_ns)
    size = (larger, base_share * larger_ns, max(replayed_ns - lasting_ns, 0.0))
    return Simulation(
        model, repetitions, *times, *overhead, scaled, _obstacle(scene), faster_by, idle_share, host, *size, replays
    )


def _obstacle(scene: Scene) -> str:
    """Return why the capture cannot be replayed: missing data or different clocks; "" if it can."""
    calls, work = scene.graph.calls, scene.graph.work
    if (share := capturing_share(scene.timeline)) > MOST_CAPTURING:
        return f"{100 * share:.0f} % of this part captures CUDA graphs, which runs nothing"
    if (share := unseen_share(scene.timeline)) > MOST_UNSEEN:
        return f"GPU activity is missing from the capture for {100 * share:.0f} % of this part"
    operations = scene.timeline.operations
    if not (operations.of("kernels") | operations.of("graph_launches")).any() and next_to_none(scene.timeline.profile):
        return "no kernel was recorded"
    if not len(calls):
        return ""
    is_launch = np.asarray(calls.names.str.contains("LaunchKernel|GraphLaunch"), dtype=bool)
    launches = scene.in_calls[is_launch[calls.name[scene.in_calls]]]
    records_graphs = calls.names.str.contains("BeginCapture").any()  # launches that it records do not run
    in_window = np.flatnonzero(work.start >= scene.timeline.window.start_ns)
    is_early = work.call[in_window] >= 0
    is_early &= work.start[in_window] < calls.start[work.call[in_window]] - _EARLY_NS
    of_gpu, of_cpu = "GPU operations in this part", "launches in this part"
    shares = (
        (0.0 if records_graphs else _mean(~scene.launching[launches]), of_cpu, "have no GPU operation in the capture"),
        (_mean(~work.is_recorded[in_window]), of_gpu, "have no CUDA call in the capture"),
        (_mean(is_early), of_gpu, "begin before their launch: the CPU and GPU clocks differ"),
    )
    nothing = "" if len(operations.kind) else "no GPU work was recorded"
    return next(
        (f"{100 * share:.0f} % of the {what} {problem}" for share, what, problem in shares if share > _MOST_MISSING),
        nothing,
    )


def _mean(flags: Flags) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _add_function(scene: Scene, gain: Gain) -> Gain:
    host_code, calls = gain.remedy.code, scene.graph.calls
    if host_code is None:
        return gain
    code = Code(calls.thread[host_code.piece], host_code.start, host_code.length, calls.start[host_code.piece])
    function, caller = function_in(scene.timeline, code)
    return replace(gain, function=function, caller=caller, waits_in=waits_in(scene.timeline, code))


def _add_obstacles(scene: Scene, gain: Gain) -> Gain:
    rule = RULE.get(gain.remedy.rule)
    if rule is None or not (rule.is_host or rule.is_wait or rule.is_graph):
        return gain
    return replace(gain, obstacles=obstacles_at(scene, gain.remedy.edit, rule))


def _share_obstacles(gains: Sequence[Gain]) -> Iterator[Gain]:
    """Yield gains; launches have the obstacles of the waits between them.

    After a wait, no launch is ahead of the GPU, and no CUDA graph can contain it.
    """
    rules = [RULE.get(gain.remedy.rule) for gain in gains]
    waits = {gain.remedy.path: gain for gain, rule in zip(gains, rules, strict=True) if rule and rule.is_wait}
    for gain, rule in zip(gains, rules, strict=True):
        wait = waits.get(gain.remedy.path)
        if rule and rule.is_graph and not gain.obstacles and wait:
            are_many = wait.remedy.cases * _LAUNCHES_PER_WAIT >= gain.remedy.cases
            yield replace(gain, obstacles=wait.obstacles) if are_many else gain
        else:
            yield gain


def _scale(gain: Gain, factor: float) -> Gain:
    """Return the gain of a window that is `factor` times as long."""
    remedy = replace(gain.remedy, cases=factor * gain.remedy.cases, time_ns=factor * gain.remedy.time_ns)
    times = {name: factor * getattr(gain, name) for name in ("gain_ns", "counted_ns", "after_ns")}
    return replace(gain, remedy=remedy, **times)


def _host_speed(
    scene: Scene, host: HostRanges | None, step_lengths: Callable[[list[Floats]], Floats], timed_ns: float
) -> tuple[float, float]:
    """Return the factor of the overhead, and the share by which the host is faster without the profiler.

    step_lengths: returns the length of a step for each of several lags. timed_ns: that without the profiler, NaN if it
    was not timed.
    """
    factor, faster_by = 1.0, 0.0
    if host:
        factor, faster_by = _fit_host(scene, partial(host.lengths, scene.model), host.timed_ns, factor, faster_by)
        (step_ns,) = step_lengths([speed_up_host(scene.model, _without_profiler(scene, factor), faster_by)])
        # a step that the host hardly delays does not show its speed better than these ranges
        if abs(step_ns - timed_ns) <= _AS_TIMED * timed_ns:
            return factor, faster_by
    return _fit_host(scene, step_lengths, timed_ns, factor, faster_by) if timed_ns > 0 else (factor, faster_by)


def _fit_host(
    scene: Scene, lengths: Callable[[list[Floats]], Floats], target_ns: float, factor: float, faster_by: float
) -> tuple[float, float]:
    """Return the factor of the overhead, and the share by which the host is faster, that give a time.

    lengths: returns this time for each of several lags. factor, faster_by: what they are if it does not show them.
    """
    faster = partial(speed_up_host, scene.model)

    def lengths_with(factors: Floats) -> Floats:
        return lengths([faster(_without_profiler(scene, each), faster_by) for each in factors])

    fitted = fit_factor(lengths_with, target_ns, factor)
    # no profiler costs that much: the host was faster in that run, as its speed varies
    factor = fitted if fitted < MOST_FACTOR else factor
    lag = _without_profiler(scene, factor)
    return factor, fit_host_speed(
        lambda shares: lengths([faster(lag, share) for share in shares]), target_ns, faster_by
    )


def _without_profiler(scene: Scene, factor: float = 1.0) -> Floats:
    """Return the lags without the profiler's overhead, and without what later steps do not have."""
    return scene.apply(temporary_costs(scene), subtract_cost(scene.model, scene.cost, factor))


def _drop_joint_remedies(gains: tuple[Gain, ...]) -> tuple[Gain, ...]:
    """Omit joint remedies that gain hardly more than one of their parts, and remedies that are parts of others.

    Joint are a wait and the host code after it, and the host code of several ranges between the same two calls.
    """
    single_gain: dict[str, float] = {}
    for gain in gains:
        if gain.remedy.rule in _OF_WAITS ^ _OF_HOST and not gain.remedy.also:
            single_gain[gain.remedy.path] = max(single_gain.get(gain.remedy.path, 0.0), gain.gain_ns)

    def is_worthwhile(gain: Gain) -> bool:
        is_joint = gain.remedy.rule in _OF_WAITS & _OF_HOST or gain.remedy.also
        return not is_joint or gain.gain_ns > _LEAST_JOINT_GAIN * single_gain.get(gain.remedy.path, 0.0)

    worthwhile = tuple(filter(is_worthwhile, gains))
    named = {path for gain in worthwhile if gain.remedy.also for path in (gain.remedy.path, *gain.remedy.also)}
    whole = {path: gain.gain_ns for gain in worthwhile if gain.remedy.also for path in gain.remedy.also}
    return tuple(
        gain
        for gain in worthwhile
        if gain.remedy.rule not in _OF_HOST - _OF_WAITS
        or gain.remedy.also
        or gain.remedy.path not in named
        # a range that has host code elsewhere, too, is a cause by itself
        or gain.gain_ns > whole.get(gain.remedy.path, gain.gain_ns)
    )


def _if_worthwhile(remedy: Remedy, share: float) -> Remedy:
    """Return a remedy without its effect on launches that remain if the rest gains too little (`share` of a step)."""
    if remedy.launching and 100 * share < RULE[remedy.rule].worth_pct:
        return replace(remedy, launching=())
    return remedy


def _with_launching(scene: Scene, base: Replay, fixes: Sequence[Remedy], alone: Floats) -> tuple[Floats, Floats]:
    """Return what each remedy saves per step in ns, and as it counts when the first cause is chosen.

    alone: what it saves without its effect on launches that remain. That counts as it does for a CUDA graph: less,
    since the same code prevents both. base: the replay without the remedies.
    """
    rules = [RULE.get(remedy.rule) for remedy in fixes]
    saved, counts = alone.copy(), np.array([rule.counts if rule else 1.0 for rule in rules])
    if places := [place for place, remedy in enumerate(fixes) if remedy.launching]:
        lags = [scene.apply(fixes[place].whole_edit, base.lag) for place in places]
        saved[places] = np.maximum(base.length_ns - _step_lengths(scene.model, lags), alone[places])
    return saved, counts * alone + RULE["launch_bound"].counts * (saved - alone)


def _step_lengths(model: Model, lags: list[Floats]) -> Floats:
    return _replay(model, lags)[1]


def _replay(model: Model, lags: list[Floats]) -> tuple[Floats, Floats]:
    """Return the time of each event, and the length of a step, per column of lags."""
    stacked = np.stack(lags, axis=1)
    times = model.replay(stacked)
    return times, np.maximum(model.lengths(times), least_lengths(model, stacked))


def _best_sequence(scene: Scene, base: Replay, gains: tuple[Gain, ...]) -> tuple[tuple[Gain, ...], tuple[Replay, ...]]:
    """Take the remedy with the largest gain, then the one that gains most of what is left, and so on.

    Gains are weighted as for the first advice. A remedy that then gains less than its rule asks for is not advised, so
    it is not in the sequence either. base: the replay without any remedy. Return the gains with their places, and the
    replays: without any remedy, and after each of the sequence.
    """
    model, replays = scene.model, [base]
    lag, remaining = base.lag, base.length_ns
    places = dict.fromkeys(range(len(gains)), (0, 0.0))
    whole, open_places = remaining, set(range(len(gains)))
    for order in range(1, _MOST_IN_SEQUENCE + 1):
        candidates = sorted(open_places)
        if not candidates:
            break
        open_remedies = [gains[index].remedy for index in candidates]
        edits = [scene.apply(remedy.edit, lag) for remedy in open_remedies]
        times, lengths = _replay(model, edits)
        saved, counted = _with_launching(scene, replays[-1], open_remedies, remaining - lengths)
        worth_pct = [RULE[each.rule].worth_pct if each.rule in RULE else WORTH_PCT for each in open_remedies]
        is_worthwhile = (100 * saved >= np.array(worth_pct) * remaining) & (saved >= _LEAST_OF_SEQUENCE * whole)
        if not is_worthwhile.any():
            break
        best = int(np.argmax(np.where(is_worthwhile, counted, -np.inf)))
        remedy, remaining = open_remedies[best], remaining - float(saved[best])
        if remedy.launching:
            lag = scene.apply(remedy.whole_edit, lag)
            event_times = _replay(model, [lag])[0][:, 0]
        else:
            lag, event_times = edits[best], times[:, best].copy()
        replays.append(Replay(lag, event_times, remaining, (*replays[-1].edits, remedy.whole_edit)))
        places[candidates[best]] = (order, remaining)
        open_places.discard(candidates[best])
    placed = (replace(gain, order=places[index][0], after_ns=places[index][1]) for index, gain in enumerate(gains))
    return tuple(placed), tuple(replays)


def what_if(timeline: Timeline) -> Table:
    """Return one row per remedy with a gain, the largest first."""
    simulation = simulate(timeline)
    rows = [
        {
            "rule": gain.remedy.rule,
            "path": gain.remedy.path,
            "name": gain.remedy.name,
            "function": gain.function,
            "caller": gain.caller,
            "waits_in": gain.waits_in,
            "cases": round(gain.remedy.cases, 1),
            "time_ns": gain.remedy.time_ns,
            "gain_ns": gain.gain_ns if simulation.is_trusted else None,
            "gain_pct": 100 * gain.gain_ns / simulation.unprofiled_ns if simulation.is_trusted else None,
            "counted_pct": 100 * gain.counted_ns / simulation.unprofiled_ns if simulation.is_trusted else None,
            "order": gain.order or None,
            "after_ns": gain.after_ns if gain.order else None,
            "kernels": "\n".join(gain.remedy.kernels),
            "also": "\n".join(gain.remedy.also),
            "in_steps_pct": 100 * gain.remedy.in_steps,
            "obstacle": "\n".join(each.text for each in gain.obstacles),
            "obstacle_fix": "\n".join(dict.fromkeys(each.fix for each in gain.obstacles if each.fix)),
        }
        for gain in simulation.gains
    ]
    table = pd.DataFrame(rows, columns=WHAT_IF.column_names)
    numbers = dict.fromkeys(
        ("cases", "time_ns", "gain_ns", "gain_pct", "counted_pct", "after_ns", "in_steps_pct"), "float64"
    )
    texts = ("rule", "path", "name", "function", "caller", "waits_in", "kernels", "also", "obstacle", "obstacle_fix")
    return Table(
        table.astype({**numbers, **dict.fromkeys(texts, "str"), "order": NULLABLE}),
        tuple(_reliability_notes(simulation)),
    )


def fix_ladder(timeline: Timeline) -> Table:
    """Return how a step divides without the profiler, and after each fix of the best sequence."""
    simulation = simulate(timeline)
    replays = simulation.replays if simulation.is_trusted else ()
    rows = [
        {"order": order, "group": group_of(category), "category": category, "time_ns": time}
        for order, each in enumerate(replays)
        for category, time in split_step(timeline, simulation.model, each).items()
    ]
    table = pd.DataFrame(rows, columns=FIX_LADDER.column_names)
    types = {"order": "int64", "group": "str", "category": "str", "time_ns": "float64"}
    return Table(table.astype(types))


def _reliability_notes(simulation: Simulation) -> Iterator[str]:
    """Yield notes on how reliable the gains are."""
    if not simulation.measured_ns:
        return
    steps, all_steps = simulation.model.steps, simulation.repetitions
    sample = f"{steps:,} of {all_steps:,}" if steps else "from a stretch of the window"
    of = f"a repetition ({sample})" if all_steps else "the window"
    measured = format_value(simulation.measured_ns, "time_ns")
    replayed = format_value(simulation.replayed_ns, "time_ns")
    yield (
        f"Simulated without changes, {of} takes {replayed}; measured: {measured}. "
        f"{signed(100 * simulation.unexplained)} % is unexplained."
    )
    if simulation.idle_share >= _LEAST_IDLE:
        idle = f"{100 * simulation.idle_share:.0f} %"
        yield f"For {idle} of the time, the program waits for requests. That is not a cause."
    if simulation.is_trusted:
        yield from _profiler_notes(simulation)
    else:
        yield f"So no gain is predicted: {simulation.doubt}."


def replay(timeline: Timeline) -> Table:
    """Return one row that compares the replay with the measurement; no rows if there is nothing to replay."""
    simulation = simulate(timeline)
    row = {
        "repetitions": simulation.model.steps,
        "of_repetitions": simulation.repetitions,
        "family": timeline.window.family if simulation.repetitions else "",
        "calls": int((simulation.model.kind == CALL).sum()),
        "events": len(simulation.model.first),
        "measured_ns": simulation.measured_ns,
        "replayed_ns": simulation.replayed_ns,
        "unexplained_pct": 100 * simulation.unexplained,
        "call_cost_ns": simulation.call_cost_ns,
        "predicted_ns": simulation.predicted_ns,
        "timed_ns": simulation.timed_ns,
        "unprofiled_ns": simulation.unprofiled_ns,
        "doubt": simulation.doubt,
        "framework": framework_of(timeline.profile),
    }
    if (larger := simulation.larger) is not None and simulation.is_trusted and simulation.repetitions:
        row |= {"times": larger.times, "blocks": larger.blocks, "filled_pct": 100 * larger.filled}
        row |= {"multiprocessors": larger.multiprocessors, "larger_ns": simulation.larger_ns}
    columns = [name for name in REPLAY.column_names if name in row]
    return Table(pd.DataFrame([row], columns=columns)[: int(simulation.measured_ns > 0)])


def profiler_cost(timeline: Timeline) -> Table:
    """Return one row per kind of call in the replayed stretch: the assumed overhead of the profiler."""
    simulation = simulate(timeline)
    return Table(simulation.costs, tuple(_profiler_notes(simulation)))


def _cost_table(scene: Scene, factor: float) -> pd.DataFrame:
    calls, replayed, cost = scene.graph.calls, scene.in_calls, scene.cost
    recorded, added = (calls.end - calls.start)[replayed], factor * cost.by_call[replayed]
    by_kind = pd.DataFrame({"kind": cost.kind[replayed], "recorded": recorded, "added": added}).groupby("kind")
    by_total = aggregate(by_kind, count=("added", "size"), recorded_ns=("recorded", "median"), total=("added", "sum"))
    by_total = by_total.reset_index().astype({"kind": "str"})
    if cost.operator_ns:
        before_ns = float(cost.before_call[replayed].sum())
        count = round(before_ns / cost.operator_ns)
        row = {"kind": ["operator"], "count": [count], "recorded_ns": [np.nan], "total": [factor * before_ns]}
        by_total = pd.concat([by_total, pd.DataFrame(row)], ignore_index=True)
    by_total = by_total[by_total["total"] > 0].sort_values("total", ascending=False, kind="stable").reset_index()
    columns = {
        "kind": by_total["kind"].astype("str"),
        "calls": by_total["count"] / scene.steps,
        "recorded_ns": by_total["recorded_ns"].astype("float64"),
        "added_ns": by_total["total"] / by_total["count"],
        "time_ns": by_total["total"] / scene.steps,
    }
    return pd.DataFrame(columns, columns=PROFILER_COST.column_names)


def _profiler_notes(simulation: Simulation) -> Iterator[str]:
    """Yield notes on the time without the profiler: its source, and how well it was predicted."""
    if not simulation.measured_ns:
        return
    if simulation.temporary_ns >= _LEAST_TEMPORARY * simulation.measured_ns:
        temporary = format_value(simulation.temporary_ns, "temporary_ns")
        yield f"{temporary} per step are temporary costs, such as loads for new lengths. Gains exclude them."
    if not simulation.call_cost_ns and not simulation.timed_ns > 0:
        yield "The profiler's overhead per call is unknown, so gains apply to the profiled program."
        return
    one = "A repetition" if simulation.repetitions else "The window"
    source = _CALIBRATED if simulation.is_calibrated else _TYPICAL
    predicted = format_value(simulation.predicted_ns, "predicted_ns")
    measured = format_value(simulation.measured_ns, "measured_ns")
    prediction = f"{one} takes {measured} in the capture; {source} predicts {predicted}"
    if not simulation.timed_ns > 0:
        yield f"{prediction} without the profiler (not timed)."
        return
    error_pct = round(100 * (simulation.predicted_ns / simulation.timed_ns - 1))
    comparison = f"{abs(error_pct)} % {'more' if error_pct > 0 else 'less'} than" if error_pct else "the same as"
    timed = format_value(simulation.timed_ns, "timed_ns")
    yield f"{prediction} without the profiler, {comparison} timed in a run without it ({timed})."
    if simulation.host:
        change_pct = 100 * (simulation.host.timed_ns / simulation.host.recorded_ns - 1)
        yield (
            f"Ranges in which no thread waits show the speed of the host: that run took {abs(change_pct):.0f} % "
            f"{'less' if change_pct < 0 else 'more'} time in them than the capture."
        )
    if abs(simulation.explained_ns - simulation.timed_ns) <= _AS_TIMED * simulation.timed_ns:
        if simulation.factor != 1:
            yield f"For the gains, this overhead is scaled by {simulation.factor:.2g} to match that run."
        if simulation.faster_by:
            yield f"For the gains, host code is {100 * simulation.faster_by:.0f} % shorter, to match that run."
    else:
        explained = format_value(simulation.explained_ns, "explained_ns")
        is_scaled = simulation.unprofiled_ns != simulation.explained_ns
        then = "All times after a fix are scaled to that run" if is_scaled else f"Gains refer to {explained}"
        yield (
            "Neither the overhead nor the speed of the host explains the time of that run: they give "
            f"{explained}. {then}."
        )


_CALIBRATED: Final = "the profiler's overhead per call, calibrated on that machine,"
_TYPICAL: Final = "the profiler's typical overhead per call"

ANALYSES: Final = (
    Analysis(REPLAY, replay),
    Analysis(WHAT_IF, what_if),
    Analysis(FIX_LADDER, fix_ladder),
    Analysis(PROFILER_COST, profiler_cost),
)
