"""Where a capture cannot tell what a GPU did: it holds no operation there, but the GPU need not have been idle.

Work from before the recording, or after it; work that no profiler records (another process, a loop on the device);
operations whose times are impossible; pauses of the recording: each leaves the hole that an idle GPU leaves, too. What
tells them apart is on the CPU: an operation that begins long after its launch although nothing ran, a wait that returns
long after the last operation, ids that go on counting while no call is recorded.

Recording a CUDA graph (from begin to end of a capture) is the opposite: calls that launch nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.categories import call_causes
from nightsight.events.launches import GPU_TABLES, are_launched, find_keys, launch_keys, launching_calls
from nightsight.events.loops import loops_of
from nightsight.intervals import Flags, Ints, Spans, gaps, inside, shared, touches, union, union_of, without
from nightsight.model.report import Profile
from nightsight.results.categories import IDLE, SYNC
from nightsight.system.parallel import once
from nightsight.tables import empty, integers

PAUSED: Final = "the recording was paused"
UNTIMED: Final = "operations whose times are not known"
BEFORE: Final = "work from before the recording"
AFTER: Final = "work that ended after the recording"
WAITED: Final = "work that was waited for and is not in the capture"
REASONS: Final = (PAUSED, UNTIMED, BEFORE, AFTER, WAITED)
"""Why it is not known what a GPU did; where several apply, the first one counts."""

# in 125 captures of H100, H200 and older GPUs, waits return within 0.2 ms of the last operation (0.7 ms where two
# processes share the GPU), and the first operation begins within 0.4 ms of its launch
_LATE_NS: Final = 1_000_000
# CUPTI numbers all calls, recorded or not: profilers leave out some (350 in a row at most in these captures, while
# cuBLAS is set up), but in a pause there are thousands
_MOST_UNRECORDED: Final = 1_000
# of the operations of a GPU: single launches fail, or their work is lost
_FEW_LOST: Final = 0.002
# of a program that nothing else is recorded of
_FEW_PAUSES: Final = 2
# without ids: the only stretch without any event that is most of the loop and this many times as long as a step
_MOST_OF_LOOP: Final = 0.5
_STEPS_LONG: Final = 20
_ALONE: Final = 10
_LEAST_SILENCE_NS: Final = 10_000_000
# of the operations: a single wrong time says nothing of a clock
_FEW_EARLY: Final = 0.01
_LAUNCHES: Final = r"Launch(?:Cooperative)?Kernel|GraphLaunch"
_ON_HOST: Final = ("api_calls", "ranges", "marks", "cpu_ops")
# whose ends and beginnings break a silence; ranges can be open meanwhile
_BUSY_TABLES: Final = (*GPU_TABLES, "api_calls", "cpu_ops", "python_functions", "os_calls")
_POINT_TABLES: Final = ("ranges", "marks", "python_samples", "memory_usage")
# what is recorded all the time, where it is recorded
_CONTINUOUS: Final = ("cpu_ops", "os_calls", "python_functions")
_NONE: Final = np.empty(0, dtype=np.int64)
_NO_SPANS: Final[Spans] = (_NONE, _NONE)
_SPAN: Final = ("start_ns", "end_ns")
_LATEST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Unseen:
    """Disjoint spans (ns) in which it is not known what a GPU did, in order, each with its place in REASONS."""

    start: Ints
    end: Ints
    reason: Ints

    @property
    def spans(self) -> Spans:
        """All of them, those that touch as one."""
        return union(self.start, self.end)

    def of(self, reason: str) -> Spans:
        """Return those with one reason."""
        mine = self.reason == REASONS.index(reason)
        return self.start[mine], self.end[mine]


@dataclass(frozen=True, eq=False)
class _Operations:
    """The operations of a GPU in order of start; asked, called: start and end (ns) of the call of each, -1 if unknown.

    is_launched: migrations of managed memory are launched by no call.
    """

    start: Ints
    end: Ints
    process: Ints
    stream: Ints
    asked: Ints
    called: Ints
    is_launched: Flags


@once
def unseen(profile: Profile) -> dict[int, Unseen]:
    """Return for each GPU with work the spans in which it is not known whether anything ran."""
    bounds = _recorded(profile)
    if bounds is None:
        return {}
    operations = dict(_by_gpu(profile))
    lost, found = _untimed(profile, operations), {}
    waited = {process: _waited(profile, process, operations) for process in _processes(operations)}
    for gpu, own in operations.items():
        idle = gaps(union(own.start, own.end), bounds)
        processes = np.unique(own.process)
        paused = [spans for process, spans in pauses(profile).items() if process in processes]
        layers = (
            union_of(paused),
            lost.get(gpu, _NO_SPANS),
            _before(profile, gpu, operations, bounds[0]),
            _after(profile, own, bounds[1]),
            union_of(waited[process] for process in processes.tolist()),
        )
        parts = []
        for reason, spans in enumerate(layers):
            taken = shared(idle, spans)
            idle = without(idle, spans)
            parts.append((*taken, np.full(len(taken[0]), reason)))
        start, end, reason_of = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(start, kind="stable")
        found[gpu] = Unseen(start[order], end[order], reason_of[order])
    return found


def unseen_by(profile: Profile, gpus_of: Ints) -> Spans:
    """Return when it is not known of any of these GPUs what it did."""
    return union_of(each.spans for gpu, each in unseen(profile).items() if len(each.start) and (gpus_of == gpu).any())


@once
def pauses(profile: Profile) -> dict[int, Spans]:
    """Return for each process the stretches in which the recording was paused, or may have been (`silences`)."""
    found = {process: [spans] for process, spans in _counted(profile).items()}
    for process, span in silences(profile).items():
        found.setdefault(process, []).append(span)
    return {process: spans for process, each in found.items() if len((spans := union_of(each))[0])}


@once
def _counted(profile: Profile) -> dict[int, Spans]:
    """Return for each process the stretches in which calls were made that are not recorded."""
    calls = profile.tables.get("api_calls", empty("api_calls"))
    owner, number = calls["process"].to_numpy(dtype=np.int64), integers(calls["correlation"])
    found = {}
    for process in pd.unique(owner).tolist():
        mine = np.flatnonzero((owner == process) & (number > 0))
        start, end = (calls[name].to_numpy()[mine] for name in _SPAN)
        order = np.argsort(start, kind="stable")
        begin, until = np.maximum.accumulate(end[order])[:-1], start[order][1:]
        missing = np.diff(np.maximum.accumulate(number[mine][order]))
        is_pause = (missing > _MOST_UNRECORDED) & (until - begin > _LATE_NS)
        if is_pause.any():
            stretches = begin[is_pause], until[is_pause]
            is_pause = _launched_unseen(profile, process, stretches) | _are_silent(profile, process, stretches)
            found[process] = stretches[0][is_pause], stretches[1][is_pause]
    return found


def _launched_unseen(profile: Profile, process: int, spans: Spans) -> Flags:
    """Tell in which stretches operators or ranges lie that launch work wherever else they run."""
    calls = profile.table("api_calls")
    calls = calls[_are_named(calls, _LAUNCHES) & (calls["process"] == process).to_numpy()]
    found = np.zeros(len(spans[0]), dtype=bool)
    for table in (profile.tables.get(name, empty(name)) for name in ("cpu_ops", "ranges")):
        own = table[(table["process"] == process).to_numpy()]
        if not len(own) or not len(calls):
            continue
        start, end = (own[name].to_numpy(dtype=np.int64) for name in _SPAN)
        launches = np.zeros(len(own), dtype=np.int64)
        threads = own["thread"].to_numpy()
        for thread in pd.unique(threads):
            launched = np.sort(calls["start_ns"].to_numpy()[(calls["thread"] == thread).to_numpy()])
            rows = threads == thread
            launches[rows] = np.searchsorted(launched, end[rows]) - np.searchsorted(launched, start[rows])
        place, inside_one = _within(spans, own)
        name = own["name"].cat.codes.to_numpy(dtype=np.int64)
        elsewhere, most = name[~inside_one], int(name.max()) + 1
        count, launching = (np.bincount(elsewhere, weight, most) for weight in (None, launches[~inside_one] > 0))
        found[place[inside_one & (launching > count / 2)[name]]] = True
    return found


def _within(spans: Spans, table: pd.DataFrame) -> tuple[Ints, Flags]:
    """Return the stretch before whose end each row begins, -1 for none, and whether the row is all inside of it."""
    start = table["start_ns"].to_numpy(dtype=np.int64)
    end = table["end_ns"].to_numpy(dtype=np.int64) if "end_ns" in table else start
    place = np.searchsorted(spans[0], start, side="right") - 1
    return place, (place >= 0) & (end <= spans[1][place])


def _are_silent(profile: Profile, process: int, spans: Spans) -> Flags:
    """Tell in which stretches nothing else was recorded either, although it should have been.

    Profilers also leave out calls that only ask or set something, and host code can make many: that comes back in each
    step, and hardly takes longer than one. It may be a pause all the same if operators or calls of the operating system
    are recorded elsewhere.
    """
    silent, is_told = np.ones(len(spans[0]), dtype=bool), len(spans[0]) <= _FEW_PAUSES
    for name in (*_CONTINUOUS, "ranges", "marks"):
        table = profile.tables.get(name, empty(name))
        table = table[(table["process"] == process).to_numpy()]
        place, is_inside = _within(spans, table)
        silent[place[is_inside]] = False
        is_told |= name in _CONTINUOUS and len(table) > 0
    if is_told:
        return silent
    steps = [np.diff(loop.starts) for loop in loops_of(profile) if loop.process == process and len(loop.starts) > 1]
    return silent & (spans[1] - spans[0] > max((2 * float(np.median(step)) for step in steps), default=0.0))


@once
def silences(profile: Profile) -> dict[int, Spans]:
    """Return the one stretch without any event that is most of the loop (or the trace) of a process, if there is one.

    It may be a pause of the recording, or something that the program did once: either way it is not part of a step.
    """
    loops, recorded = loops_of(profile), _recorded(profile)
    if len(loops) > 1 or recorded is None:
        return {}
    if loops:
        (loop,) = loops
        process, bounds = loop.process, (int(loop.starts[0]), max(loop.end_ns, int(loop.starts[-1])))
        usual = float(np.median(np.diff(loop.starts))) if len(loop.starts) > 1 else np.inf
    elif profile.environment.collector != "nsys" and not any(
        len(profile.tables.get(name, ())) for name in (*GPU_TABLES, "api_calls")
    ):
        # torch.profiler does not record how the program starts up, in which nothing happens for long; nsys does
        owners = [profile.tables[name]["process"] for name in _ON_HOST if len(profile.tables.get(name, ()))]
        process, bounds, usual = int(owners[0].iloc[0]) if owners else -1, recorded, 0.0
    else:
        return {}
    tables = [profile.tables[name] for name in _BUSY_TABLES if len(profile.tables.get(name, ()))]
    points = [profile.tables[name] for name in _POINT_TABLES if len(profile.tables.get(name, ()))]
    edges = np.concatenate([_NONE, *(table[name] for table in points for name in _SPAN if name in table)])
    spans = [(edges, edges + 1), *((table["start_ns"], table["end_ns"]) for table in tables)]
    start, end = (np.concatenate([np.asarray(each[place], dtype=np.int64) for each in spans]) for place in (0, 1))
    silent = gaps(inside(start, end, bounds), bounds)
    lasting = silent[1] - silent[0]
    if len(lasting) < 2:
        return {}
    second, first = np.partition(lasting, -2)[-2:].tolist()
    if first <= max(_MOST_OF_LOOP * (bounds[1] - bounds[0]), _STEPS_LONG * usual, _ALONE * second, _LEAST_SILENCE_NS):
        return {}
    place = int(lasting.argmax())
    if touches(_counted(profile).get(process, _NO_SPANS), *(edge[place : place + 1] for edge in silent)).any():
        return {}
    return {process: (silent[0][place : place + 1], silent[1][place : place + 1])}


@once
def graph_captures(profile: Profile) -> dict[int, Spans]:
    """Return for each process when it recorded CUDA graphs: from the begin to the end of each capture."""
    calls = profile.tables.get("api_calls", empty("api_calls"))
    begins, ends = (calls[_are_named(calls, kind)] for kind in ("StreamBeginCapture", "StreamEndCapture"))
    found: dict[int, list[Spans]] = {}
    # a capture ends on the thread that began it
    for thread in begins["thread"].unique().tolist():
        mine = begins[begins["thread"] == thread]
        opened = np.sort(mine["start_ns"].to_numpy(dtype=np.int64))
        closed = np.sort(ends.loc[ends["thread"] == thread, "end_ns"].to_numpy(dtype=np.int64))
        place = np.searchsorted(closed, opened)
        opened, place = opened[place < len(closed)], place[place < len(closed)]
        found.setdefault(int(mine["process"].iloc[0]), []).append((opened, closed[place]))
    return {process: union_of(spans) for process, spans in found.items()}


def _are_named(calls: pd.DataFrame, pattern: str) -> Flags:
    names = calls["name"].cat
    flags: Flags = np.append(np.asarray(names.categories.str.contains(pattern), dtype=bool), False)[names.codes]
    return flags


def _recorded(profile: Profile) -> tuple[int, int] | None:
    """Return when the first event that is recorded begins and the last one ends; None without events."""
    names = (*GPU_TABLES, *_ON_HOST)
    tables = [profile.tables[name] for name in names if len(profile.tables.get(name, ()))]
    if not tables:
        return None
    return min(int(table["start_ns"].min()) for table in tables), max(int(table["end_ns"].max()) for table in tables)


def _by_gpu(profile: Profile) -> Iterator[tuple[int, _Operations]]:
    frames = [profile.tables[name] for name in GPU_TABLES if name in profile.tables]
    if not sum(map(len, frames)):
        return
    call, calls = launching_calls(profile), profile.tables.get("api_calls", empty("api_calls"))
    asked, called = (np.append(calls[name].to_numpy(dtype=np.int64), -1)[call] for name in _SPAN)
    gpu, start, end, process, stream = (
        np.concatenate([integers(frame[name]) for frame in frames])
        for name in ("device", "start_ns", "end_ns", "process", "stream")
    )
    is_launched = np.concatenate([are_launched(frame) for frame in frames])
    order = np.argsort(start, kind="stable")
    for number in np.unique(gpu).tolist():
        mine = order[gpu[order] == number]
        times = start[mine], end[mine]
        of_call = asked[mine], called[mine]
        yield number, _Operations(*times, process[mine], stream[mine], *of_call, is_launched[mine])


def _processes(operations: dict[int, _Operations]) -> list[int]:
    found: list[int] = np.unique(np.concatenate([_NONE, *(own.process for own in operations.values())])).tolist()
    return found


def _before(profile: Profile, gpu: int, operations: dict[int, _Operations], first: int) -> Spans:
    """Return the time before the first operation of a GPU if that begins long after its launch, or has none.

    Unless a wait returned before that launch: then the GPU had nothing left to do. Or another GPU of the process had
    just ended something: then the operation waited for that.
    """
    own = operations[gpu]
    begun, called, process = int(own.start[0]), int(own.called[0]), int(own.process[0])
    if not own.is_launched[0] or begun - max(called, first) <= _LATE_NS:
        return _NO_SPANS
    calls = profile.tables.get("api_calls", empty("api_calls"))
    # where no call is recorded, nothing tells what came before
    is_traced = bool((calls["process"] == process).any())
    has_waited = called >= 0 and bool((_waits(profile, process)[1] <= called).any())
    follows = any(
        bool(((begun - _LATE_NS < other.end) & (other.end <= begun) & (other.process == process)).any())
        for number, other in operations.items()
        if number != gpu
    )
    return _NO_SPANS if has_waited or follows or not is_traced else (np.array([first]), np.array([begun]))


def _after(profile: Profile, own: _Operations, last: int) -> Spans:
    """Return the time after the last operation of a GPU if its process launched more, which is not in the capture."""
    ended, process = int(own.end.max()), int(own.process[-1])
    calls = profile.tables.get("api_calls", empty("api_calls"))
    if last - ended <= _LATE_NS or not len(calls) or own.called.max() < 0:
        return _NO_SPANS
    start = calls["start_ns"].to_numpy()
    gives = _are_named(calls, _LAUNCHES) & (calls["process"] == process).to_numpy() & (start > own.called.max())
    launched, keys = launch_keys(profile)
    known = np.append(np.sort(launched), np.iinfo(np.int64).max)
    lost = np.flatnonzero(gives)
    lost = start[lost[known[find_keys(known, keys[lost])] != keys[lost]]]
    low, high = graph_captures(profile).get(process, _NO_SPANS)
    place = np.searchsorted(low, lost, side="right") - 1
    lost = lost[(place < 0) | (lost >= np.append(high, 0)[place])]
    if len(lost) <= _FEW_LOST * len(own.start):
        return _NO_SPANS
    return np.array([max(ended, int(lost.min()))]), np.array([last])


@once
def _all_waits(profile: Profile) -> tuple[Ints, Ints, Ints]:
    """Return process, start and end (ns) of all calls that wait for the GPU, in order of their ends."""
    calls, mine = profile.tables.get("api_calls", empty("api_calls")), call_causes(profile) == IDLE.index(SYNC)
    process, start, end = (calls[name].to_numpy(dtype=np.int64)[mine] for name in ("process", *_SPAN))
    order = np.argsort(end, kind="stable")
    return process[order], start[order], end[order]


def _waits(profile: Profile, process: int) -> Spans:
    """Return when a process waited for the GPU, in order of the ends."""
    owner, start, end = _all_waits(profile)
    return start[owner == process], end[owner == process]


def _waited(profile: Profile, process: int, operations: dict[int, _Operations]) -> Spans:
    """Return the last part of waits that returned long after the last operation of their process had ended.

    The first call of a program that nsys recorded from its start does not count: it sets up CUDA.
    """
    start, end = _waits(profile, process)
    calls = profile.tables.get("api_calls", empty("api_calls"))
    if profile.environment.collector == "nsys" and len(start):
        later = start > calls["start_ns"].to_numpy()[(calls["process"] == process).to_numpy()].min()
        start, end = start[later], end[later]
    names = ("start", "end", "asked")
    mine = [own.process == process for own in operations.values()]
    begun, done, asked = (
        np.concatenate([getattr(own, name)[flags] for own, flags in zip(operations.values(), mine, strict=True)])
        for name in names
    )
    if not len(start):
        return _NO_SPANS
    order = np.argsort(begun, kind="stable")
    reach = np.maximum.accumulate(done[order])
    place = np.searchsorted(begun[order], end) - 1
    since = np.maximum(np.where(place >= 0, reach[np.maximum(place, 0)], start), start)
    # operations that begin before they are launched: the clock of the GPU is behind
    ahead = (begun - asked)[asked >= 0]
    behind = max(0, -int(np.quantile(ahead, _FEW_EARLY, method="lower"))) if len(ahead) else 0
    late = end - since > _LATE_NS + behind
    # another GPU of the process may still be at work
    return without(union(since[late], end[late]), union(begun, done)) if late.any() else _NO_SPANS


def _untimed(profile: Profile, operations: dict[int, _Operations]) -> dict[int, Spans]:
    """Return for each GPU where operations without known times may have run.

    Such an operation follows its launch, or begins when it says, and precedes the next one on its stream, and the end
    of the next wait.
    """
    lost = profile.tables.get("untimed", empty("untimed"))
    if not len(lost):
        return {}
    calls, keys = profile.tables.get("api_calls", empty("api_calls")), ["process", "correlation"]
    called = calls[[*keys, "start_ns"]].dropna().drop_duplicates(keys).astype("float64")
    launch = lost[keys].astype("float64").merge(called, on=keys, how="left", validate="m:1")["start_ns"]
    begun = lost["start_ns"].astype("float64").reset_index(drop=True).fillna(launch)
    found: dict[int, list[Spans]] = {}
    place = ["device", "stream", "process"]
    known = pd.DataFrame({**{name: integers(lost[name]) for name in place}, "begun": begun.to_numpy()}).dropna()
    for gpu, stream, process in set(zip(*(known[name].tolist() for name in place), strict=True)):
        if (own := operations.get(gpu)) is None:
            continue
        alike = (known["device"] == gpu) & (known["stream"] == stream) & (known["process"] == process)
        low = known.loc[alike, "begun"].to_numpy(dtype=np.int64)
        ends = (np.sort(own.start[own.stream == stream]), _waits(profile, process)[1])
        high = np.full(len(low), int(own.end.max()))
        for times in ends:
            high = np.minimum(high, np.append(times, _LATEST)[np.searchsorted(times, low, side="right")])
        found.setdefault(gpu, []).append(union(low[high > low], high[high > low]))
    return {gpu: union_of(spans) for gpu, spans in found.items()}
