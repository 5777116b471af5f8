"""Programs as data, and a machine that executes them: what a capture of each would hold, without any GPU.

A program is what its threads do, statement after statement. The machine is simple enough to foresee with a pencil: the
CPU goes on after a launch, a stream runs its operations one after the other, a wait returns when the work is done, and
every latency is one of the constants below. As nothing is measured, a program without its fault can be executed too,
and what the fault costs is known.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pandas as pd

from nightsight.model.report import Environment, Profile
from nightsight.tables import conform, empty
from tests.timeline import profile_of

# what a call takes on the CPU; from its end to the start of its work on an idle GPU; from one operation to the next on
# a busy stream; from the end of awaited work to the return of the call; from a thread to another that waits for it.
# An H200 is as fast: the model takes its latencies where a capture has too few samples
CALL_US: Final = 4.0
WAY_US: Final = 4.0
HOP_US: Final = 1.0
RETURN_US: Final = 4.0
WAKE_US: Final = 5.0
# one kernel to the next in a CUDA graph, and its launch
GRAPH_HOP_US: Final = 0.4
GRAPH_CALL_US: Final = 9.0
# so many operations can be queued on a GPU: a launch blocks until there is room
ROOM: Final = 1000
# what copies of pinned memory reach, in bytes per µs
LINK: Final = 25_000


@dataclass(frozen=True)
class Host:
    """Host code."""

    us: float


@dataclass(frozen=True)
class Kernel:
    """A launch, and its kernel; the first one of a kernel can take long, as it loads it."""

    us: float
    stream: int = 7
    name: str = "a"
    call_us: float = CALL_US
    blocks: int = 1


@dataclass(frozen=True)
class Graph:
    """The launch of a CUDA graph: so many kernels of this length; `is_whole`: traced as one."""

    kernels: int
    us: float
    stream: int = 7
    is_whole: bool = False


@dataclass(frozen=True)
class Copy:
    """A copy H (to the device), D (to the host), I (within the GPU) or P (to a peer).

    The call of a copy of pageable memory returns when it is done.
    """

    way: str
    size: int
    stream: int = 7
    is_pinned: bool = True
    us: float = 0.0

    @property
    def length_us(self) -> float:
        """How long it takes: if not given, what the link allows, and pageable memory takes three times as long."""
        return self.us or self.size / LINK * (1 if self.is_pinned else 3)


@dataclass(frozen=True)
class Reduce:
    """A collective: the n-th of each rank is the same, and transfers data once the last rank's kernel has begun.

    size: its bytes, 0 if the capture does not tell.
    """

    us: float
    stream: int = 7
    size: int = 0


@dataclass(frozen=True)
class Sync:
    """A wait for a stream, or for the whole GPU."""

    stream: int | None = None


@dataclass(frozen=True)
class Record:
    """The record of an event, after all that the stream was given."""

    event: int
    stream: int = 7


@dataclass(frozen=True)
class Follow:
    """What the stream is given from now on follows the last record of an event."""

    event: int
    stream: int = 7


@dataclass(frozen=True)
class Call:
    """Any other call, by its name; `waits`: for all work of the GPU, as cudaFree does, before it does its own."""

    name: str
    us: float
    waits: bool = False


@dataclass(frozen=True)
class Post:
    """Let a thread of the process go on that expects this."""

    name: str


@dataclass(frozen=True)
class Expect:
    """Wait until this was posted as often as it is expected, without a CUDA call."""

    name: str


@dataclass(frozen=True)
class Range:
    """An NVTX range; `is_left_open`: it never ends."""

    name: str
    body: "Body"
    is_left_open: bool = False


Statement = Host | Kernel | Graph | Copy | Reduce | Sync | Record | Follow | Call | Post | Expect | Range
Body = tuple[Statement, ...]


def within(name: str, *body: Statement) -> Range:
    """Return statements in an NVTX range."""
    return Range(name, body)


@dataclass(frozen=True)
class Thread:
    """What one thread does, of which rank: ranks are processes, each with the GPU of its number or with another."""

    body: Body
    rank: int = 0
    gpu: int | None = None


def captured(*threads: Thread | Body, added_us: float = 0.0, records: bool = True, capability: str = "") -> Profile:
    """Execute a program, and return what was recorded.

    added_us: what the profiler adds to each call, half in it and half after it. The capture knows that cost, as if it
    had been calibrated. records: whether the profiler recorded events, too. capability: the compute capability of the
    GPUs; unknown if not given.
    """
    profile = _executed(threads, added_us).profile(records=records)
    if not capability:
        return profile
    numbers = sorted(profile.table("kernels")["device"].unique().tolist())
    facts = {"name": "", "compute_capability": capability, "multiprocessors": 132}
    devices = [{"device": number, **facts} for number in numbers]
    return replace(profile, tables={**profile.tables, "devices": conform("devices", pd.DataFrame(devices))})


def run_us(*threads: Thread | Body) -> float:
    """Return what a program takes, until its last work is done."""
    return _executed(threads, 0.0).length_us


def step_us(*steps: Thread | Body, added_us: float = 0.0) -> float:
    """Return what one more repetition takes, until the last work is done, of a program whose threads repeat these."""
    short, long = (_executed(repeated(times, *steps), added_us).length_us for times in (6, 12))
    return (long - short) / 6


def repeated(times: int, *steps: Thread | Body) -> tuple[Thread, ...]:
    """Return a program whose threads repeat these steps, each time in a range `step`."""
    threads = (step if isinstance(step, Thread) else Thread(step) for step in steps)
    return tuple(Thread((within("step", *thread.body),) * times, thread.rank) for thread in threads)


def _executed(threads: tuple[Thread | Body, ...], added_us: float) -> "_Machine":
    started = (thread if isinstance(thread, Thread) else Thread(thread) for thread in threads)
    machine = _Machine([_Execution(thread, number) for number, thread in enumerate(started)], added_us)
    machine.execute()
    return machine


# -- the machine ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Operation:
    """GPU work: it begins after it arrived, and a hop after all that it follows; times in µs."""

    rank: int
    stream: int
    letter: str
    launched: float
    arrival: float
    length: float
    correlation: int
    after: list["_Operation"]
    hop: float = HOP_US
    meets: int = -1
    columns: dict[str, Any] = field(default_factory=dict)
    start: float = -1.0
    end: float = -1.0


class _Execution:
    """A thread under way: its time in µs, its statement, and the ranges that are open."""

    def __init__(self, thread: Thread, number: int) -> None:
        self.rank, self.number, self.clock = thread.rank, number, 0.0
        self.gpu = thread.rank if thread.gpu is None else thread.gpu
        self.open: list[tuple[str, float]] = []
        self.posted: Counter[str] = Counter()
        self._statements = _flat(thread.body)
        self.statement = next(self._statements, None)

    def go_on(self, until: float) -> None:
        self.clock, self.statement = until, next(self._statements, None)

    @property
    def columns(self) -> dict[str, int]:
        pid, tid = 5 + self.rank, 7 + self.number
        return {"process": pid << 24, "thread": pid << 24 | tid, "pid": pid, "tid": tid}


def _flat(body: Body) -> Iterator[Statement | None]:
    """Yield statements; a range is its own beginning, and its end is one without a body."""
    for statement in body:
        yield statement
        if isinstance(statement, Range):
            yield from _flat(statement.body)
            if not statement.is_left_open:
                yield Range("", ())


class _Machine:
    """The threads of a program, and what they have given to the GPUs so far."""

    def __init__(self, threads: list[_Execution], added_us: float) -> None:
        self.threads, self.added = threads, added_us
        self.ranks = len({thread.rank for thread in threads})
        self.gpus = {thread.rank: thread.gpu for thread in threads}
        self.operations: defaultdict[int, list[_Operation]] = defaultdict(list)
        self.pending: list[_Operation] = []
        self.last: dict[Any, _Operation] = {}
        self.records: dict[tuple[int, int], tuple[int, _Operation | None]] = {}
        self.awaited: defaultdict[tuple[int, int], list[_Operation]] = defaultdict(list)
        self.reductions: Counter[int] = Counter()
        self.posts: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
        self.correlations = 0
        self.rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)

    def execute(self) -> None:
        while waiting := [thread for thread in self.threads if thread.statement is not None]:
            # the thread that is behind the others goes on, unless what it waits for is not known yet
            for thread in sorted(waiting, key=lambda each: each.clock):
                until = self._executed(thread, thread.statement)
                if until is not None:
                    thread.go_on(until)
                    break
            else:
                message = "the threads wait for each other"
                raise AssertionError(message)
        for thread in self.threads:
            for name, start in thread.open:
                self._range(thread, name, start, self.length_us, is_open=True)

    @property
    def length_us(self) -> float:
        """When all was done."""
        ends = [op.end for operations in self.operations.values() for op in operations]
        return max([thread.clock for thread in self.threads] + ends)

    def _executed(self, thread: _Execution, statement: Statement | None) -> float | None:  # noqa: PLR0911
        """Return when a statement has ended on the CPU; None if that is not known yet."""
        now, rank = thread.clock, thread.rank
        match statement:
            case Host(us):
                return now + us
            case Range("", ()):
                self._range(thread, *thread.open.pop(), now)
                return now
            case Range(name):
                thread.open.append((name, now))
                return now
            case Post(name):
                self.posts[rank, name].append(now)
                return now
            case Expect(name):
                posts, seen = self.posts[rank, name], thread.posted[name]
                if len(posts) <= seen:
                    return None
                thread.posted[name] += 1
                return max(now, posts[seen] + WAKE_US)
            case Call(name, us, waits):
                done = self._done(rank, now) if waits else now
                return None if done is None else self._called(thread, name, max(now, done) + us)
            case Sync(stream):
                return self._synchronized(thread, stream)
            case Record(event, stream):
                return self._recorded(thread, event, stream)
            case Follow(event, stream):
                return self._followed(thread, event, stream)
            case Kernel() | Graph() | Copy() | Reduce():
                return self._launched(thread, statement)
        return None

    def _called(self, thread: _Execution, name: str, end: float) -> float:
        """Record a call; return when the thread goes on after it."""
        self.correlations += 1
        times = {"start_ns": _ns(thread.clock), "end_ns": _ns(end + self.added / 2)}
        self.rows["calls"].append({**times, **thread.columns, "name": name, "correlation": self.correlations})
        return end + self.added

    def _range(self, thread: _Execution, name: str, start: float, end: float, *, is_open: bool = False) -> None:
        times = {"start_ns": _ns(start), "end_ns": _ns(end), "is_open": is_open}
        self.rows["ranges"].append({**times, **thread.columns, "name": name})

    def _done(self, rank: int, now: float, stream: int | None = None) -> float | None:
        """Return when all that was launched by now has ended; None if that is not known yet."""
        awaited = [op for op in self.operations[rank] if op.launched <= now and stream in (None, op.stream)]
        ends = [op.end for op in awaited]
        return None if min(ends, default=0.0) < 0 else max(ends, default=0.0)

    def _synchronized(self, thread: _Execution, stream: int | None) -> float | None:
        done = self._done(thread.rank, thread.clock, stream)
        if done is None:
            return None
        name = "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"
        after = self._called(thread, name, max(thread.clock, done) + RETURN_US)
        if stream is not None:
            self._add_sync(thread, stream)
        return after

    def _add_sync(self, thread: _Execution, stream: int, **columns: int) -> None:
        """Add the row that says which stream the last call was about."""
        times = {"start_ns": 0, "end_ns": 0, "kind": 0}
        where = {"process": thread.columns["process"], "device": thread.gpu, "context": 1, "stream": stream}
        self.rows["syncs"].append({**times, **where, "correlation": self.correlations, **columns})

    def _recorded(self, thread: _Execution, event: int, stream: int) -> float:
        number, _ = self.records.get((thread.rank, event), (0, None))
        self.records[thread.rank, event] = (number + 1, self.last.get((thread.rank, stream)))
        after = self._called(thread, "cudaEventRecord", thread.clock + CALL_US / 2)
        row = {"process": thread.columns["process"], "stream": stream, "correlation": self.correlations}
        self.rows["event_records"].append({**row, "event": event, "record": number + 1})
        return after

    def _followed(self, thread: _Execution, event: int, stream: int) -> float:
        # an event that was never recorded is nothing to wait for
        number, reason = self.records.get((thread.rank, event), (0, None))
        self.awaited[thread.rank, stream] += [reason] if reason else []
        after = self._called(thread, "cudaStreamWaitEvent", thread.clock + CALL_US / 2)
        self._add_sync(thread, stream, event=event, record=number)
        return after

    def _launched(self, thread: _Execution, statement: Kernel | Graph | Copy | Reduce) -> float | None:
        """Queue the work of a launch; return when the thread goes on after it."""
        rank, queued = thread.rank, self.operations[thread.rank]
        follows = self._follows(rank, statement)
        blocks = isinstance(statement, Copy) and not statement.is_pinned
        full = queued[-ROOM : -ROOM + 1]
        if any(op.end < 0 for op in (*full, *(follows if blocks else ()))):
            return None
        call = GRAPH_CALL_US if isinstance(statement, Graph) else getattr(statement, "call_us", CALL_US)
        over = max([thread.clock + call, *(op.end for op in full)])
        self.awaited.pop((rank, statement.stream), None)
        last = None
        for number, (letter, us, columns) in enumerate(_pieces(statement)):
            is_first = number == 0
            last = _Operation(
                rank,
                statement.stream,
                letter,
                thread.clock,
                over + WAY_US,
                us,
                self.correlations + 1,
                follows if is_first or last is None else [last],
                hop=HOP_US if is_first else GRAPH_HOP_US,
                columns=columns,
            )
            self._queue(last, statement)
        if blocks and last:
            # it runs while its call does
            over = last.end + RETURN_US
        name = {Graph: "cudaGraphLaunch", Copy: "cudaMemcpyAsync"}.get(type(statement), "cudaLaunchKernel")
        after = self._called(thread, name, over)
        if isinstance(statement, Reduce) and statement.size:
            times = {"start_ns": _ns(thread.clock), "end_ns": _ns(after)}
            facts = {"bytes": statement.size, "group_size": self.ranks, "rank": rank, "group": "all", "is_whole": True}
            self.rows["collectives"].append({**times, **thread.columns, **_ALL_REDUCE, **facts})
        return after

    def _follows(self, rank: int, statement: Kernel | Graph | Copy | Reduce) -> list[_Operation]:
        """Return what a launch follows: its stream, what that was told to follow, and the copy before in its way."""
        lanes = [(rank, statement.stream), *([(rank, statement.way)] if isinstance(statement, Copy) else [])]
        return [*(self.last[lane] for lane in lanes if lane in self.last), *self.awaited[rank, statement.stream]]

    def _queue(self, operation: _Operation, statement: Statement) -> None:
        rank = operation.rank
        if isinstance(statement, Reduce):
            operation.meets = self.reductions[rank]
            self.reductions[rank] += 1
        if isinstance(statement, Copy):
            self.last[rank, statement.way] = operation
        self.last[rank, operation.stream] = operation
        self.operations[rank].append(operation)
        self.pending.append(operation)
        while self._settled():
            pass

    def _settled(self) -> bool:
        """Find when operations begin and end of which that is known by now; say if there were any."""
        before = len(self.pending)
        for operation in self.pending:
            if operation.start < 0 and all(op.end >= 0 for op in operation.after):
                hops = [op.end + operation.hop for op in operation.after]
                operation.start = max([operation.arrival, *hops])
            if operation.start >= 0:
                operation.end = self._end(operation)
        self.pending = [operation for operation in self.pending if operation.end < 0]
        return 0 < len(self.pending) < before

    def _end(self, operation: _Operation) -> float:
        """Return when an operation that has begun ends; -1 for a collective that waits for a rank."""
        if operation.meets < 0:
            return operation.start + operation.length
        parts = [op for some in self.operations.values() for op in some if op.meets == operation.meets]
        begun = [op.start for op in parts]
        return max(begun) + operation.length if len(parts) == self.ranks and min(begun) >= 0 else -1.0

    def profile(self, *, records: bool) -> Profile:
        """Return what a profiler recorded; without records of events, what streams wait for is unknown, too."""
        rows = [
            {
                "start_ns": _ns(op.start),
                "end_ns": _ns(op.end),
                "process": 5 + op.rank << 24,
                "device": self.gpus[op.rank],
            }
            | {"stream": op.stream, "letter": op.letter, "correlation": op.correlation, **op.columns}
            for operations in self.operations.values()
            for op in operations
        ]
        drawn = profile_of(self.rows["calls"], self.rows["ranges"], (), rows)
        recorded = _ns(CALL_US + self.added / 2)
        cost = {"kind": "launch", "added_ns": 1000 * self.added, "recorded_ns": recorded}
        kinds = ("launch", "copy", "memset", "wait", "event", "allocation", "other")
        rows_by_table = {name: self.rows[name] for name in ("syncs", "event_records")} if records else {}
        rows_by_table["collectives"] = self.rows["collectives"]
        rows_by_table["profiler_costs"] = [cost | {"kind": kind} for kind in kinds]
        tables = {
            name: conform(name, pd.DataFrame(rows)) if rows else empty(name) for name, rows in rows_by_table.items()
        }
        return Profile({**drawn.tables, **tables}, environment=Environment(collector="nsys"))


def _pieces(statement: Kernel | Graph | Copy | Reduce) -> list[tuple[str, float, dict[str, Any]]]:
    """Return the operations of a launch: the letter of each, its length in µs, and more of its columns."""
    match statement:
        case Kernel(us, _, name, blocks=blocks):
            return [(name, us, {"grid_x": blocks, "block_x": 256})]
        case Reduce(us):
            return [("n", us, {})]
        case Graph(kernels, us, _, is_whole):
            if is_whole:
                return [("G", kernels * (us + GRAPH_HOP_US), {})]
            return [(letter, us, {"graph_node": node}) for node, letter in enumerate("b" * kernels)]
        case Copy(way, size):
            host, device = "Pinned" if statement.is_pinned else "Pageable", "Device"
            kinds = {"H": (host, device), "D": (device, host)}.get(way, (device, device))
            return [(way, statement.length_us, {**dict(zip(_KINDS, kinds, strict=True)), "bytes": size})]


_KINDS: Final = ("source_kind", "target_kind")
_ALL_REDUCE: Final = {
    "name": "allreduce",
    "type": "",
    "ranks": "",
    **dict.fromkeys(("in_elements", "out_elements", "received_bytes", "peer")),
}


def _ns(us: float) -> int:
    return round(1000 * us)
