"""Predicted gain of each fix, alone and in the best sequence: the results of the causal model.

Gains apply to the program without the profiler: its overhead is subtracted before any fix is applied.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.cost import fitted, taken_off, timed_ns
from nightsight.analyze.causes.functions import Code, function_in, waits_in
from nightsight.analyze.causes.remedies import Remedy, remedies
from nightsight.analyze.causes.replay import CALL, FEWEST, Floats, Model
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.stretches import replayed
from nightsight.analyze.no_work import next_to_none
from nightsight.analyze.unseen_work import MOST_CAPTURING, MOST_UNSEEN, capturing_share, unseen_share
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags
from nightsight.results.causes import PROFILER_COST, REPLAY, WHAT_IF
from nightsight.results.rules import RULE
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE
from nightsight.units import format_value

MOST_UNEXPLAINED: Final = 0.1
"""No gain is predicted if the replay of the unchanged window is off by more than this share of the measured time."""
# share of a step: smaller gains do not get a row, or a place in the best sequence
_LEAST_SHARE: Final = 0.005
_LEAST_OF_SEQUENCE: Final = 0.02
_MOST_IN_SEQUENCE: Final = 4
# share of launches without an operation, and of operations without a call or before it: more means too much is missing
_MOST_LACKING: Final = 0.1
_EARLY_NS: Final = 1_000
# a wait and host code count as one cause if their joint gain is this many times the better single gain
_TOGETHER: Final = 1.2


@dataclass(frozen=True, eq=False)
class Gain:
    """The gain of a remedy per step, alone, in ns.

    `function`: what runs in its host code, `caller`: the function that called it, and `waits_in`: the operating system
    call in which it mostly waits, "" if unknown. `order`: its place in the best sequence from 1, 0 if not in it.
    `after_ns`: the length of a step after this and all before it in the sequence.
    """

    remedy: Remedy
    gain_ns: float
    function: str = ""
    caller: str = ""
    waits_in: str = ""
    order: int = 0
    after_ns: float = 0.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """The replay of a window: a step as measured, as replayed, and without the profiler; times in ns.

    A step is one of the repetitions, or the window if there are none. If the model has no whole repetitions, a stretch
    represents them: a step takes its share of the time. predicted_ns: without the profiler, from its usual overhead.
    timed_ns: in a run without it, NaN if there was none. unprofiled_ns: the base of the gains, with the usual overhead
    scaled by `factor` to match `timed_ns`. costs: the rows of `profiler_cost`. lacks: what makes the capture too
    incomplete to replay, "" for nothing.
    """

    model: Model
    repetitions: int
    measured_ns: float
    replayed_ns: float
    predicted_ns: float
    timed_ns: float
    unprofiled_ns: float
    factor: float
    call_cost_ns: float
    is_calibrated: bool
    costs: pd.DataFrame
    gains: tuple[Gain, ...]
    lacks: str = ""

    @property
    def unexplained(self) -> float:
        """The relative difference of the replay from the measurement."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns > 0 else 0.0

    @property
    def doubt(self) -> str:
        """Why no gain can be predicted; "" if gains can."""
        if self.lacks or not self.measured_ns:
            return self.lacks
        if abs(self.unexplained) <= MOST_UNEXPLAINED:
            return ""
        return f"something missing from the capture takes {100 * abs(self.unexplained):.0f} % of the time"

    @property
    def is_trusted(self) -> bool:
        """Whether gains can be predicted."""
        return self.measured_ns > 0 and not self.doubt


@memoize
def outcome(timeline: Timeline) -> Outcome:
    """Replay the window as it was, without the profiler, and with each remedy; the largest gain first."""
    scene = Scene(replayed(timeline))
    found, cost = scene.model, scene.cost
    if not len(found.first):
        return Outcome(found, 0, 0.0, 0.0, 0.0, np.nan, 0.0, 1.0, 0.0, cost.is_calibrated, _costs(scene, 1.0), ())
    repetitions = len(timeline.window.repetitions)
    repetitions *= repetitions >= FEWEST
    # the length of a step in replayed stretches
    share = timeline.window.length_ns / max(repetitions, 1) / max(scene.timeline.window.length_ns, 1)
    share = 1.0 if found.steps else share
    known, timed, factor = remedies(scene), timed_ns(timeline.profile, scene.timeline.window), 1.0
    if timed > 0:
        stripped = partial(_without_profiler, scene)
        factor = fitted(lambda factors: share * _replayed(found, list(map(stripped, factors))), timed)
    base = _without_profiler(scene, factor)
    lags = [found.lag, _without_profiler(scene), base, *(scene.applied(remedy.edit, base) for remedy in known)]
    replayed_ns, predicted_ns, base_ns, *lengths = (float(length) for length in _replayed(found, lags))
    # nothing takes longer without the profiler; where it seems to, the start of a step moved more than its end
    predicted_ns, base_ns = min(predicted_ns, replayed_ns), min(base_ns, replayed_ns)
    pairs = zip(known, lengths, strict=True)
    gains = sorted((Gain(remedy, max(base_ns - length, 0.0)) for remedy, length in pairs), key=_by_gain)
    measured = float(found.lengths(found.measured[:, None])[0])
    kept = _distinct(tuple(gain for gain in gains if gain.gain_ns > _LEAST_SHARE * base_ns))
    measured, replayed_ns, predicted_ns, base_ns = (
        share * length for length in (measured, replayed_ns, predicted_ns, base_ns)
    )
    named = (_with_code(scene, gain) for gain in _best_sequence(scene, base, kept))
    ordered = tuple(_times(gain, share) for gain in named)
    taken = (factor, factor * cost.launch_ns, cost.is_calibrated, _costs(scene, factor))
    return Outcome(
        found, repetitions, measured, replayed_ns, predicted_ns, timed, base_ns, *taken, ordered, _lacks(scene)
    )


def _lacks(scene: Scene) -> str:
    """Return what makes the capture too incomplete to replay, or its clocks too different; "" for nothing."""
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
    is_launch = np.asarray(calls.names.str.contains("LaunchKernel"), dtype=bool)
    launches = scene.in_calls[is_launch[calls.name[scene.in_calls]]]
    records_graphs = calls.names.str.contains("BeginCapture").any()  # what it records is not run
    mine = np.flatnonzero(work.start >= scene.timeline.window.start_ns)
    early = work.call[mine] >= 0
    early &= work.start[mine] < calls.start[work.call[mine]] - _EARLY_NS
    of_gpu, of_cpu = "GPU operations in this part", "launches in this part"
    shares = (
        (0.0 if records_graphs else _share(~scene.launching[launches]), of_cpu, "have no GPU operation in the capture"),
        (_share(~work.is_recorded[mine]), of_gpu, "have no CUDA call in the capture"),
        (_share(early), of_gpu, "begin before their launch: the CPU and GPU clocks differ"),
    )
    return next(
        (f"{100 * share:.0f} % of the {what} {lack}" for share, what, lack in shares if share > _MOST_LACKING), ""
    )


def _share(flags: Flags) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _with_code(scene: Scene, gain: Gain) -> Gain:
    cut, calls = gain.remedy.code, scene.graph.calls
    if cut is None:
        return gain
    code = Code(calls.thread[cut.piece], cut.start, cut.length, calls.start[cut.piece])
    function, caller = function_in(scene.timeline, code)
    return replace(gain, function=function, caller=caller, waits_in=waits_in(scene.timeline, code))


def _times(gain: Gain, factor: float) -> Gain:
    """Return the gain of a window that is `factor` times as long."""
    remedy = replace(gain.remedy, cases=factor * gain.remedy.cases, time_ns=factor * gain.remedy.time_ns)
    return replace(gain, remedy=remedy, gain_ns=factor * gain.gain_ns, after_ns=factor * gain.after_ns)


def _without_profiler(scene: Scene, factor: float = 1.0) -> Floats:
    return taken_off(scene.model, scene.cost.by_call, factor)


def _distinct(gains: tuple[Gain, ...]) -> tuple[Gain, ...]:
    """Leave out joint remedies for a wait and host code that gain hardly more than one of the two alone."""
    alone: dict[str, float] = {}
    for gain in gains:
        if gain.remedy.rule in ("wait", "host_code"):
            alone[gain.remedy.path] = max(alone.get(gain.remedy.path, 0.0), gain.gain_ns)
    return tuple(
        gain
        for gain in gains
        if gain.remedy.rule != "wait_and_host_code" or gain.gain_ns > _TOGETHER * alone.get(gain.remedy.path, 0.0)
    )


def _by_gain(gain: Gain) -> float:
    return -gain.gain_ns


def _replayed(found: Model, lags: list[Floats]) -> Floats:
    stacked = np.stack(lags, axis=1)
    return np.maximum(found.lengths(found.replay(stacked)), found.floor(stacked))


def _best_sequence(scene: Scene, base: Floats, gains: tuple[Gain, ...]) -> tuple[Gain, ...]:
    """Take the remedy with the largest gain, then the one that gains most of what is left, and so on.

    Gains are weighted as for the first advice.
    """
    found = scene.model
    lag, left, ordered = base, float(_replayed(found, [base])[0]), dict.fromkeys(range(len(gains)), (0, 0.0))
    whole, open_ = left, set(range(len(gains)))
    for order in range(1, _MOST_IN_SEQUENCE + 1):
        tried = sorted(open_)
        if not tried:
            break
        edits = [scene.applied(gains[place].remedy.edit, lag) for place in tried]
        lengths = _replayed(found, edits)
        rules = [RULE.get(gains[place].remedy.rule) for place in tried]
        counts = np.array([rule.counts if rule else 1.0 for rule in rules])
        best = int(np.argmax(counts * (left - lengths)))
        if left - lengths[best] < _LEAST_OF_SEQUENCE * whole:
            break
        lag, left = edits[best], float(lengths[best])
        ordered[tried[best]] = (order, left)
        open_.discard(tried[best])
    return tuple(replace(gain, order=ordered[place][0], after_ns=ordered[place][1]) for place, gain in enumerate(gains))


def what_if(timeline: Timeline) -> Table:
    """Return one row per remedy with a gain, the largest first."""
    found = outcome(timeline)
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
            "gain_ns": gain.gain_ns if found.is_trusted else None,
            "gain_pct": 100 * gain.gain_ns / found.unprofiled_ns if found.is_trusted else None,
            "order": gain.order or None,
            "after_ns": gain.after_ns if gain.order else None,
            "kernels": "\n".join(gain.remedy.kernels),
        }
        for gain in found.gains
    ]
    table = pd.DataFrame(rows, columns=WHAT_IF.column_names)
    numbers = dict.fromkeys(("cases", "time_ns", "gain_ns", "gain_pct", "after_ns"), "float64")
    texts = dict.fromkeys(("rule", "path", "name", "function", "caller", "waits_in", "kernels"), "str")
    return Table(table.astype({**numbers, **texts, "order": NULLABLE}), tuple(_notes(found)))


def _notes(found: Outcome) -> Iterator[str]:
    """Yield notes on how reliable the gains are."""
    if not found.measured_ns:
        return
    steps, all_steps = found.model.steps, found.repetitions
    sample = f"{steps:,} of {all_steps:,}" if steps else "from a stretch of the window"
    of = f"a repetition ({sample})" if all_steps else "the window"
    measured, replayed = (format_value(time, "time_ns") for time in (found.measured_ns, found.replayed_ns))
    yield (
        f"Simulated without changes, {of} takes {replayed}; measured: {measured}. "
        f"{100 * found.unexplained:+.1f} % is unexplained."
    )
    if found.is_trusted:
        yield from _said_of_profiler(found)
    else:
        yield f"So no gain is predicted: {found.doubt}."


def replay(timeline: Timeline) -> Table:
    """Return one row that compares the replay with the measurement; no rows if there is nothing to replay."""
    found = outcome(timeline)
    row = {
        "repetitions": found.model.steps,
        "of_repetitions": found.repetitions,
        "family": timeline.window.family if found.repetitions else "",
        "calls": int((found.model.kind == CALL).sum()),
        "events": len(found.model.first),
        "measured_ns": found.measured_ns,
        "replayed_ns": found.replayed_ns,
        "unexplained_pct": 100 * found.unexplained,
        "call_cost_ns": found.call_cost_ns,
        "predicted_ns": found.predicted_ns,
        "timed_ns": found.timed_ns,
        "unprofiled_ns": found.unprofiled_ns,
        "doubt": found.doubt,
    }
    return Table(pd.DataFrame([row], columns=REPLAY.column_names)[: int(found.measured_ns > 0)])


def profiler_cost(timeline: Timeline) -> Table:
    """Return one row per kind of call in the replayed stretch: the assumed overhead of the profiler."""
    found = outcome(timeline)
    return Table(found.costs, tuple(_said_of_profiler(found)))


def _costs(scene: Scene, factor: float) -> pd.DataFrame:
    calls, mine, cost = scene.graph.calls, scene.in_calls, scene.cost
    length, added = (calls.end - calls.start)[mine], factor * cost.by_call[mine]
    by_kind = pd.DataFrame({"kind": cost.kind[mine], "recorded": length, "added": added}).groupby("kind")
    summed = by_kind.agg(count=("added", "size"), recorded_ns=("recorded", "median"), total=("added", "sum"))
    summed = summed[summed["total"] > 0].sort_values("total", ascending=False, kind="stable").reset_index()
    columns = {
        "kind": summed["kind"].astype("str"),
        "calls": summed["count"] / scene.steps,
        "recorded_ns": summed["recorded_ns"].astype("float64"),
        "added_ns": summed["total"] / summed["count"],
        "time_ns": summed["total"] / scene.steps,
    }
    return pd.DataFrame(columns, columns=PROFILER_COST.column_names)


def _said_of_profiler(found: Outcome) -> Iterator[str]:
    """Yield notes on how the time without the profiler is known, and how well it was predicted."""
    if not found.measured_ns:
        return
    if not found.call_cost_ns and not found.timed_ns > 0:
        yield "The profiler's overhead per call is unknown, so gains apply to the profiled program."
        return
    one = "A repetition" if found.repetitions else "The window"
    source = _CALIBRATED if found.is_calibrated else _TYPICAL
    predicted = format_value(found.predicted_ns, "predicted_ns")
    said = f"{one} takes {format_value(found.measured_ns, 'measured_ns')} in the capture; {source} predicts {predicted}"
    if not found.timed_ns > 0:
        yield f"{said} without the profiler (not timed)."
        return
    off = round(100 * (found.predicted_ns / found.timed_ns - 1))
    compared = f"{abs(off)} % {'more' if off > 0 else 'less'} than" if off else "the same as"
    timed = format_value(found.timed_ns, "timed_ns")
    yield f"{said} without the profiler, {compared} timed in a run without it ({timed})."
    if abs(found.unprofiled_ns - found.timed_ns) <= _AS_TIMED * found.timed_ns:
        if found.factor != 1:
            yield f"For the gains, this overhead is scaled by {found.factor:.2g} to match that run."
    else:
        yield (
            "No overhead per call explains the time of that run: the runs differ in something else. Gains refer to "
            f"{format_value(found.unprofiled_ns, 'unprofiled_ns')}."
        )


_CALIBRATED: Final = "the profiler's overhead per call, calibrated on that machine,"
_TYPICAL: Final = "the profiler's typical overhead per call"
_AS_TIMED: Final = 0.02

ANALYSES: Final = (Analysis(REPLAY, replay), Analysis(WHAT_IF, what_if), Analysis(PROFILER_COST, profiler_cost))
