"""The register: every result a report can hold, with its definition, its columns and its place on the page.

Analyses fill the tables, advice and renderers refer to them by these constants, and docs/report-json.md is generated
from them. Entries stand in report order: put a new one where its result is to be shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd

Type = Literal["text", "whole", "number"]
TEXT: Final = "text"
WHOLE: Final = "whole"
NUMBER: Final = "number"

Place = Literal["section", "lead", "method", "points"]
"""Where the page shows a result: in a section of its own, in the one before the advice, under *How it was measured*, or
only as the points of another result's picture."""

Jump = Literal[
    "",
    "kernel",
    "copy",
    "call",
    "functions",
    "operator",
    "range",
    "repetition",
    "mark",
    "replay",
    "span",
    "memory",
    "counter",
    "place",
    "part",
]
"""What a row is in the page's timeline, and so how the page finds it there (templates/scripts/tables/jumps.js)."""

Names = Literal["", "code", "kernel", "replay", "prose"]
"""How style sheets set the first column: `code` for names in a program, `kernel` for (long) kernel names, `replay` for
replayed kernels, which stay in view while the table scrolls sideways, `prose` for names with sentences below them."""


@dataclass(frozen=True)
class Column:
    """A column of a result; the suffix of its name is the unit (`nightsight.units`).

    values: the texts it can hold, each with its meaning. is_optional: left out of the table if the capture has nothing
    of the kind. is_plain: the heading is clear enough, so the page does not explain the column.
    """

    name: str
    type: Type
    meaning: str
    values: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False
    is_plain: bool = False


@dataclass(frozen=True)
class Entry:
    """One result: its definition, the tables it needs, its columns, and how the page shows it.

    needs: canonical tables without which it cannot be computed; one_of: those of which one is enough. help: what a row
    is and what the table leaves out; the columns say the rest. rows: what the rows are, in the plural. header: heading
    of the page's first column, which shows column `named_by`. full: column with more text about each name. bars:
    columns that draw a bar in each cell. minor: columns that a wide table shows on request. constant: columns left out
    if all rows agree. is_folded: a picture shows the same, so the table starts closed. kernels: columns of kernel
    names, which the page shortens so that they still differ. numbered: column whose texts begin with the number of a
    replay. group, short: its group and title in the navigation. is_core: if it is missing, the page says so where it
    would stand.
    """

    name: str
    title: str
    help: str
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: str
    header: str = "Name"
    named_by: str = "name"
    place: Place = "section"
    group: str = ""
    short: str = ""
    is_core: bool = False
    full: str = ""
    bars: tuple[str, ...] = ()
    minor: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    is_folded: bool = False
    numbered: str = ""
    jump: Jump = ""
    names: Names = ""
    kernels: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    @property
    def column_names(self) -> list[str]:
        """The names of all columns, in order."""
        return [column.name for column in self.columns]

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        types = {TEXT: "str", WHOLE: "int64", NUMBER: "float64"}
        needed = (column for column in self.columns if not column.is_optional)
        return pd.DataFrame({column.name: pd.Series(dtype=types[column.type]) for column in needed})

    def check(self, table: pd.DataFrame) -> None:
        """Raise ValueError if the columns of `table`, or their order, differ from this entry."""
        expected = [column.name for column in self.columns if not column.is_optional or column.name in table]
        if list(table.columns) != expected:
            raise ValueError(f"{self.name} has the columns {list(table.columns)}, not {expected}")


# categories of a device's time; where several apply, the first one gets the time
COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies and sets"
GRAPHS: Final = "CUDA graphs"
UNSEEN: Final = "not recorded"
MODULE: Final = "module load and JIT"
ALLOCATION: Final = "allocation and free"
CAPTURE: Final = "graph capture"
BLOCKING_COPY: Final = "blocking copy"
LAUNCH: Final = "launch"
DEPENDENCY: Final = "dependency"
SYNC: Final = "synchronizing call"
OTHER_CALL: Final = "other CUDA call"
UNKNOWN: Final = "unknown"
HOST: Final = "host code"
BUSY: Final = (COMPUTE, COMMUNICATION, COPIES, GRAPHS)
IDLE: Final = (
    UNSEEN,
    MODULE,
    ALLOCATION,
    CAPTURE,
    BLOCKING_COPY,
    LAUNCH,
    DEPENDENCY,
    SYNC,
    OTHER_CALL,
    UNKNOWN,
    HOST,
)
"""What a GPU without a recorded operation waits for; of UNSEEN it is not even known whether it waits."""


def group_of(category: str) -> str:
    """Return `busy`, `idle`, or `unknown`: the capture does not tell whether anything ran."""
    return "busy" if category in BUSY else "unknown" if category == UNSEEN else "idle"


_CATEGORIES: Final = (
    (COMPUTE, "kernels"),
    (COMMUNICATION, "NCCL and NVSHMEM kernels, and copies between devices"),
    (COPIES, "all other copies, and memsets"),
    (GRAPHS, "CUDA graphs traced as a whole"),
    (
        UNSEEN,
        "nothing was recorded, but the GPU may have worked: on something from before the recording, on what no "
        "profiler records, or in a pause of the recording",
    ),
    (MODULE, "a call that loads a module or compiles code"),
    (ALLOCATION, "a call that allocates or frees memory"),
    (CAPTURE, "a CUDA graph was captured: launches between begin and end of a capture run nothing"),
    (BLOCKING_COPY, "a blocking copy: a call without Async, or a copy from or to pageable memory"),
    (
        LAUNCH,
        "the call that launched the operation after the gap was running, or had returned less than 10 µs before (a "
        "note names GPUs whose clocks need another limit)",
    ),
    (DEPENDENCY, "that call had returned earlier: the operation waited on the GPU, for an event or for its turn"),
    (SYNC, "a call that waits for the GPU"),
    (OTHER_CALL, "any other CUDA call"),
    (UNKNOWN, "the launching call was not recorded"),
    (HOST, "no CUDA call was running"),
)
PATH_CAUSES: Final = (
    COMPUTE,
    COMMUNICATION,
    COPIES,
    GRAPHS,
    LAUNCH,
    DEPENDENCY,
    SYNC,
    BLOCKING_COPY,
    ALLOCATION,
    MODULE,
    CAPTURE,
    OTHER_CALL,
    HOST,
    UNSEEN,
    UNKNOWN,
)
"""What a piece of the critical path can be."""
_PATH_CAUSES: Final = (
    (COMPUTE, "a kernel"),
    (COMMUNICATION, "NCCL and NVSHMEM kernels, and copies between devices: once the last rank has come, if known"),
    (COPIES, "all other copies, and memsets"),
    (GRAPHS, "CUDA graphs traced as a whole"),
    (LAUNCH, "a call that gives work to the GPU, until the work begins"),
    (DEPENDENCY, "from the end of one operation to the beginning of the next, which waited for it"),
    (SYNC, "the return of a waiting call, from the end of what it waited for on; or such a call that need not wait"),
    (BLOCKING_COPY, "the work of the CPU in a blocking copy"),
    (ALLOCATION, "a call that allocates or frees memory, without waiting"),
    (MODULE, "a call that loads a module or compiles code, or a first launch that loads its kernel"),
    (CAPTURE, "a CUDA graph was captured, so nothing ran"),
    (OTHER_CALL, "any other CUDA call"),
    (HOST, "no CUDA call was running on the thread, and nothing else was waited for"),
    (UNSEEN, "nothing was recorded, but the GPU may have worked"),
    (UNKNOWN, "what led to it was not recorded"),
)
_STALLS: Final = (
    ("barrier", "waits for the other warps of its block at a barrier"),
    ("branch resolving", "waits for a branch target to be computed"),
    ("dispatch stall", "the dispatcher holds back the issue"),
    ("drain", "has exited, and its memory stores are still in progress"),
    ("imc miss", "waits for a miss in the immediate constant cache"),
    ("lg throttle", "the queue for local and global memory instructions is full"),
    ("long scoreboard", "waits for global, local, texture or surface memory (L1TEX)"),
    ("math pipe throttle", "the math pipe it needs is busy"),
    ("membar", "waits at a memory barrier"),
    ("mio throttle", "the MIO queue is full (shared memory, special functions, dynamic branches)"),
    ("misc", "any other reason"),
    ("no instruction", "waits for its next instruction to be fetched (instruction cache)"),
    ("not selected", "was ready to issue, but another warp was selected"),
    ("short scoreboard", "waits for shared memory or a special function (MIO)"),
    ("sleeping", "sleeps at the program's request"),
    ("tex throttle", "the queue for texture instructions is full"),
    ("wait", "a fixed latency between dependent instructions"),
    ("warpgroup arrive", "waits for a tensor core operation of its whole warpgroup"),
)

OPERATORS: Final = "operators"
"""The category of a step for the time of PyTorch operators on the CPU, where no GPU is at work."""
STEP_CATEGORIES: Final = {
    OPERATORS: "operators_ns",
    COMPUTE: "compute_ns",
    COMMUNICATION: "communication_ns",
    COPIES: "copies_ns",
    GRAPHS: "graphs_ns",
    UNSEEN: "unseen_ns",
    MODULE: "module_ns",
    ALLOCATION: "allocation_ns",
    CAPTURE: "capture_ns",
    BLOCKING_COPY: "blocking_copy_ns",
    LAUNCH: "launch_ns",
    DEPENDENCY: "dependency_ns",
    SYNC: "sync_ns",
    OTHER_CALL: "other_call_ns",
    UNKNOWN: "unknown_ns",
    HOST: "host_ns",
}
"""The columns of STEP_TIMES, by category."""
OUTLIER: Final = 1.5
"""A repetition that takes more than this many times the median is an outlier."""

GPU: Final = "GPU"
LAUNCHES: Final = "Launches"
NCU: Final = "Nsight Compute"
PROGRAM: Final = "Program"

_OPERATIONS: Final = ("kernels", "memory_ops")
_LAUNCHED: Final = ("kernels", "memory_ops", "api_calls")
_REPLAYED: Final = ("profiled_launches", "kernel_metrics")

_DEVICE: Final = Column("device", WHOLE, "number of the GPU in the machine", is_plain=True)
_DEVICE_OR_CPU: Final = Column("device", WHOLE, "number of the GPU in the machine; none for the CPU")
_PID: Final = Column("pid", WHOLE, "process ID", is_plain=True)
_CALLS: Final = Column("calls", WHOLE, "number of calls", is_plain=True)
_COUNT: Final = Column("count", WHOLE, "how many", is_plain=True)
_INSTANCES: Final = Column("instances", WHOLE, "number of instances", is_plain=True)
_FUNCTION: Final = Column("name", TEXT, "the CUDA function", is_plain=True)
_PATH: Final = Column(
    "path", TEXT, "the NVTX ranges around the call, outermost first, joined by ` / `; `(no range)` if there are none"
)
_LAUNCH: Final = Column("launch", WHOLE, "number of the replayed launch, in replay order")
_KERNEL_OF: Final = Column("name", TEXT, "the kernel", is_plain=True)
_STEPS: Final = (
    Column(
        "steps", WHOLE, "number of repetitions of the range around it, in the same process, that contain such a call"
    ),
    Column("of_steps", WHOLE, "number of all repetitions of that range in the process"),
)


def _times(of: str) -> Iterator[Column]:
    """Yield the statistics columns of `nsys stats` for durations."""
    yield Column("time_pct", NUMBER, f"share of the total time of all {of}, not of wall time")
    yield Column("total_ns", WHOLE, "sum", is_plain=True)
    yield Column("calls" if "calls" in of else "instances", WHOLE, f"number of {of}", is_plain=True)
    yield Column("avg_ns", NUMBER, "mean", is_plain=True)
    yield Column("med_ns", NUMBER, "median", is_plain=True)
    yield Column("min_ns", WHOLE, "shortest", is_plain=True)
    yield Column("max_ns", WHOLE, "longest", is_plain=True)
    yield Column("stddev_ns", NUMBER, "sample standard deviation", is_plain=True)


def _classes(of: str) -> tuple[Column, ...]:
    """Return the columns of a histogram."""
    return (
        _DEVICE,
        Column("figure", TEXT, "the quantity measured"),
        Column("from_ns", WHOLE, "lower edge of the bin, inclusive"),
        Column("below_ns", WHOLE, "upper edge, exclusive"),
        _COUNT,
        Column("total_ns", WHOLE, "their total time"),
        Column("med_ns", NUMBER, f"median of all {of}; the same in each row"),
        Column("p95_ns", NUMBER, f"95th percentile of all {of}; the same in each row"),
    )


GPU_TIME: Final = Entry(
    "gpu_time",
    "GPU time",
    "What each GPU did in the report's window. Times per kind count every operation, so with several streams they can "
    "add up to more than busy.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("window", TEXT, "how the window was chosen"),
        Column("window_ns", WHOLE, "its length"),
        Column("busy_ns", WHOLE, "time in which at least one operation ran; overlaps count once"),
        Column("idle_ns", WHOLE, "time in which nothing ran: the rest of the window, without what is not recorded"),
        Column("unseen_ns", WHOLE, "time of which the capture does not tell what the GPU did", is_optional=True),
        Column("busy_pct", NUMBER, "busy time in percent of the window"),
        Column("kernels", WHOLE, "kernels that ran in the window", is_plain=True),
        Column("kernel_ns", WHOLE, "their time in the window", is_plain=True),
        Column("copies", WHOLE, "copies", is_plain=True),
        Column("copy_ns", WHOLE, "their time in the window", is_plain=True),
        Column("copied_bytes", WHOLE, "bytes that they copied", is_plain=True),
        Column("sets", WHOLE, "memsets", is_plain=True),
        Column("set_ns", WHOLE, "their time in the window", is_plain=True),
        Column("graph_launches", WHOLE, "CUDA graphs traced as a whole"),
        Column("graph_ns", WHOLE, "their time in the window", is_plain=True),
        Column("launches", WHOLE, "launches of kernels and graphs; a graph launch counts once"),
        Column("launch_api_med_ns", NUMBER, "median CPU time of a launch call"),
    ),
    rows="devices with GPU work",
    header="Device",
    named_by="device",
    group=GPU,
    short="busy time",
    is_core=True,
)

TIME_SPLIT: Final = Entry(
    "time_split",
    "Where the time went",
    "For each device, every instant of the window belongs to exactly one row, so the rows add up to the window.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("group", TEXT, "`busy`, `idle`, or `unknown`", is_plain=True),
        Column(
            "category",
            TEXT,
            "busy: what ran; idle: what the CPU was doing in the process whose operation ended the gap. If several "
            "apply, the first in this list counts",
            _CATEGORIES,
        ),
        Column("time_ns", WHOLE, "time of the window in this category"),
        Column("share_pct", NUMBER, "the same in percent of the window"),
        Column("hidden_ns", WHOLE, "time that overlapped a category further up; not included in the time"),
        Column("functions", TEXT, "the CUDA functions that took the most time, at most three"),
    ),
    rows="parts of the window",
    header="Category",
    named_by="category",
    place="lead",
    group=GPU,
    short="where the time went",
    bars=("share_pct",),
    constant=("device",),
    is_folded=True,
    jump="functions",
)

CRITICAL_PATH: Final = Entry(
    "critical_path",
    "Critical path",
    "What the end of the window waited for, and what that waited for, back to its beginning. Every nanosecond of the "
    "window belongs to exactly one row. Time that is not on this path costs nothing: it is hidden behind it.",
    _LAUNCHED,
    (
        Column("cause", TEXT, "what the time went to", _PATH_CAUSES),
        Column(
            "name",
            TEXT,
            "the kernel, the direction of copies, the CUDA function, or what runs in host code, if recorded",
        ),
        Column(
            "path",
            TEXT,
            "the NVTX ranges around the call or the host code, outermost first, joined by ` / `; `(no range)` if there "
            "are none; empty for GPU work",
        ),
        Column("tid", WHOLE, "the thread of the call or of the host code; missing for GPU work"),
        Column("time_ns", WHOLE, "time on the path", is_plain=True),
        Column("time_pct", NUMBER, "the same in percent of the window"),
        Column("step_ns", NUMBER, "the same per repetition; of the whole window if nothing repeats"),
        Column("count", WHOLE, "number of pieces of the path", is_plain=True),
    ),
    rows="causes",
    header="Cause",
    named_by="cause",
    group=GPU,
    short="critical path",
    bars=("time_pct",),
    jump="place",
    kernels=("name",),
)

REMEDIES: Final = (
    (
        "host_code",
        "this host code does not hold the GPU up: it runs ahead of time, or in another thread or process; `name`: of "
        "several GPUs the one whose process runs it",
    ),
    (
        "interpreter",
        "Python code of threads that launch nothing runs in another process, so that no thread that launches waits for "
        "its turn (GIL); `name`: the function that runs most",
    ),
    ("wait", "no wait for the GPU here; the copy to the host that it waits for is made, but not waited for"),
    ("wait_and_host_code", "neither the wait nor the host code in this range"),
    (
        "launch_bound",
        "the launches of a step as one CUDA graph, or one between two waits; `name`: where most of them are, if in "
        "several places",
    ),
    ("allocation", "nothing is allocated or freed"),
    ("loading", "no module is loaded, and no kernel for the first time"),
    ("compilation", "nothing is compiled: no module is loaded, and no host code runs just before"),
    ("pageable_copy", "copies from pinned memory, on a stream of their own, ahead of time"),
    ("exposed_copy", "copies on a stream of their own, ahead of time"),
    ("copies_to_host", "copies to pinned memory, on a stream of their own, that nothing waits for"),
    ("many_small_copies", "the copies of a step as one"),
    ("migration", "pages of managed memory are moved ahead of time, at the rate of the link"),
    (
        "exposed_communication",
        "computation does not wait for half of the communication that it waits for now; over NVLink, for a seventh",
    ),
    (
        "repeated_reduction",
        "gradients are reduced only in the last of the backward passes before an update; `name`: how many there are",
    ),
    ("straggler", "all GPUs compute for as long as they do on average, those of a pipeline as others of their stage"),
    ("uneven_experts", "between two all-to-alls of experts, all GPUs compute for as long as they do on average"),
    ("uneven_stages", "all stages of a pipeline compute for as long as they do on average"),
    ("tensor_cores", "matrix products of FP32 on tensor cores (TF32)"),
    ("fusion", "chains of elementwise kernels as one kernel each"),
    ("attention", "attention as one kernel: nothing between its two products"),
    ("fused_optimizer", "one fused kernel for the operations of an optimizer on its tensors"),
    ("fp64", "kernels that compute in FP64 take half of their time in FP32"),
    ("layout", "nothing turns tensors from NCHW to NHWC or back"),
    ("concatenation", "nothing is concatenated: what comes is written in its place at once"),
    ("small_grid", "as many blocks as fill the GPU"),
)
"""What can be changed, by the name of the rule that proposes it."""
WORTH_PCT: Final = 3.0
"""From which gain on, in percent of a step, a remedy is worth a word."""
WORTH_PCT_OF: Final = {
    "launch_bound": 5.0,
    "exposed_communication": 2.0,
    # a compiler, or a kernel written by hand, takes more work than a setting
    "fusion": 10.0,
    "attention": 5.0,
    "fused_optimizer": 5.0,
    # joining is what many programs are for; if it takes so much, a cache or a list grows
    "concatenation": 20.0,
    "small_grid": 5.0,
}
"""The same of remedies that take more or less work than others."""
RANKED_BY: Final = {"launch_bound": 0.4}
"""How a gain counts for the first place, where it is not 1.

A CUDA graph takes more work than other remedies, and presupposes some: it cannot hold a wait.
"""

SIMULATED: Final = "The simulation of {one} without any change differs from what was measured by {difference}"
"""The evidence of all advice on a window: how well the simulation, from which gains are, gives what was measured."""

REPLAY: Final = Entry(
    "replay",
    "How far the simulation is trusted",
    "The window, or as many of its repetitions as are quick to simulate, computed again from what waited for what and "
    "a few typical latencies. What the simulation does not give back, it does not explain.",
    _LAUNCHED,
    (
        Column("repetitions", WHOLE, "whole repetitions that were simulated; 0: a stretch of the window"),
        Column(
            "of_repetitions",
            WHOLE,
            "those of the window; 0 if fewer than three: times are then of the window",
        ),
        Column("family", TEXT, "what repeats: the ranges, or how many launches"),
        Column("calls", WHOLE, "CUDA calls that were simulated; without any, nothing is known of the host"),
        Column("events", WHOLE, "beginnings and ends that were simulated"),
        Column("measured_ns", NUMBER, "one repetition, or the window, as measured"),
        Column("replayed_ns", NUMBER, "the same as simulated"),
        Column("unexplained_pct", NUMBER, "the difference, relative to the measured time"),
        Column("call_cost_ns", NUMBER, "what the profiler is taken to add to a launch and the host code after it"),
        Column(
            "predicted_ns", NUMBER, "one repetition without the profiler, by the calibrated or typical cost of calls"
        ),
        Column("timed_ns", NUMBER, "one repetition in a run without the profiler: median; missing if there was none"),
        Column("unprofiled_ns", NUMBER, "one repetition without the profiler, which gains refer to: as timed if known"),
        Column("doubt", TEXT, "why the simulation is not trusted and promises no gain; empty if it is"),
    ),
    rows="simulations",
    place="points",
)

WHAT_IF: Final = Entry(
    "what_if",
    "What remedies would gain",
    "Each row changes what waits for what, as its remedy would, and simulates it: the gain is the difference. Gains "
    "are of the program without the profiler, each for this change alone; changes of the best sequence also say what "
    "is left after them and all before them.",
    _LAUNCHED,
    (
        Column("rule", TEXT, "what is changed", REMEDIES),
        Column("path", TEXT, "the NVTX ranges in which it is; empty: in several, or in none"),
        Column("name", TEXT, "the function, the direction of copies, the kernels, or the GPU"),
        Column(
            "function", TEXT, "the operator, Python function or frame in which most of this host code runs, if recorded"
        ),
        Column("caller", TEXT, "the function of the program that called this function, if recorded"),
        Column("waits_in", TEXT, "the call of the operating system in which most of this host code waits, if recorded"),
        Column("cases", NUMBER, "how many calls, pieces of host code or operations it changes, per repetition"),
        Column("time_ns", NUMBER, "how long these take, per repetition"),
        Column("gain_ns", NUMBER, "how much shorter a repetition gets; missing if the simulation is not trusted"),
        Column("gain_pct", NUMBER, "the same, relative to a repetition without the profiler"),
        Column("order", WHOLE, "its place in the best sequence, from 1; missing if it is not in it"),
        Column("after_ns", NUMBER, "one repetition after this and all before it in the sequence"),
        Column(
            "kernels",
            TEXT,
            "the kernels that it is about, those with the most time first, at most 8: a name per line",
            is_optional=True,
        ),
    ),
    rows="remedies",
    header="Remedy",
    named_by="rule",
    group=GPU,
    short="what if",
    minor=("caller", "after_ns"),
    constant=("function", "caller", "waits_in"),
    bars=("gain_pct",),
    jump="place",
)

PROFILER_COST: Final = Entry(
    "profiler_cost",
    "The profiler's own cost",
    "What the profiler is taken to add to the program: time in each CUDA call and in the host code after it. It is "
    "taken off before anything is said of gains.",
    _LAUNCHED,
    (
        Column("kind", TEXT, "kind of call", is_plain=True),
        Column("calls", NUMBER, "calls per repetition, or in the window"),
        Column("recorded_ns", NUMBER, "how long such a call is in the capture: median"),
        Column("added_ns", NUMBER, "what the profiler adds to such a call and the host code after it: mean"),
        Column("time_ns", NUMBER, "the same of all such calls in a repetition, whether or not anything waits for them"),
    ),
    rows="kinds of calls",
    header="Calls",
    named_by="kind",
    place="method",
)

STEP_SPLIT: Final = Entry(
    "step_split",
    "Time of a step",
    "How long a repetition of the window takes on each device, and where its time goes. On a device, a step begins "
    "with the first operation that was launched in it: the CPU can be many steps ahead. Without GPU work: on the CPU, "
    "and how long any thread of the process was in a PyTorch operator.",
    (),
    (
        _DEVICE_OR_CPU,
        Column("step", TEXT, "what repeats: a range, with `#` for its number, or a sequence of launches"),
        Column("steps", WHOLE, "number of repetitions", is_plain=True),
        Column("category", TEXT, "`whole step`, or a category of *Where the time went*; `operators` without GPU work"),
        Column("avg_ns", NUMBER, "mean; those of the categories add up to that of the whole step"),
        Column("med_ns", NUMBER, "median; those of the categories do not add up", is_plain=True),
        Column("p25_ns", NUMBER, "25th percentile"),
        Column("p75_ns", NUMBER, "75th percentile: half of the steps lie between the two"),
        Column("min_ns", WHOLE, "shortest", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
    ),
    rows="steps",
    header="Category",
    named_by="category",
    group=GPU,
    short="each step",
    constant=("device", "step", "steps"),
    bars=("avg_ns",),
    is_folded=True,
    one_of=("kernels", "ranges"),
)
WHOLE_STEP: Final = "whole step"
"""The category of STEP_SPLIT that is the step itself."""

STEP_TIMES: Final = Entry(
    "step_times",
    "Steps one by one",
    "The steps of each device in the order they ran, and where the time of each went. Of more than 150 steps, a row "
    "holds several that follow one another: their means, and the slowest of them.",
    (),
    (
        _DEVICE_OR_CPU,
        Column("number", WHOLE, "of the first step in the row, counted from 0 in the window"),
        Column(
            "of_program",
            WHOLE,
            "the same in the program, if that differs: the number in the name of its range, else counted from 0 in the "
            "capture",
            is_optional=True,
        ),
        Column("steps", WHOLE, "how many steps the row holds", is_plain=True),
        Column("start_ns", WHOLE, "when the first of them begins, since the start of the window"),
        Column("time_ns", NUMBER, "length of a step: mean"),
        Column("outliers", WHOLE, "how many of them take more than 1.5 times the median of all"),
        Column("slowest", WHOLE, "number of the slowest", is_plain=True),
        Column("slowest_start_ns", WHOLE, "when it begins, since the start of the window"),
        Column("slowest_ns", WHOLE, "its length", is_plain=True),
        *(
            Column(
                name,
                NUMBER,
                f"time in the category *{category}* of *Where the time went*: mean"
                if category != OPERATORS
                else "without GPU work: time in which any thread of the process was in a PyTorch operator: mean",
                is_optional=True,
            )
            for category, name in STEP_CATEGORIES.items()
        ),
    ),
    rows="steps",
    place="points",
    one_of=("kernels", "ranges"),
)

STEP_PARTS: Final = Entry(
    "step_parts",
    "What a step is made of",
    "Which ranges and kernels a repetition of the window consists of, and what the device waits for in between; of the "
    "whole window if nothing repeats. The rows of a device add up to exactly the mean step.",
    (),
    (
        Column("device", WHOLE, "number of the GPU in the machine; none without GPU work", is_plain=True),
        Column("tid", WHOLE, "without GPU work: the thread", is_optional=True),
        Column("step", TEXT, "what repeats: a range, with `#` for its number, or a sequence of launches"),
        Column("steps", WHOLE, "number of repetitions; 0 if nothing repeats", is_plain=True),
        Column(
            "path",
            TEXT,
            "the ranges in which the work was launched, outermost first, with `#` for numbers; `(no range)` if there "
            "are none. Work outside of all ranges of a step stands under its module or its outermost operator. Idle "
            "time: the ranges in which the CPU was then; for *launch* and *dependency* those of the work that "
            "the GPU waited for. A range that takes less than 0.1 % counts for the one around it",
        ),
        Column("group", TEXT, "`busy`, `idle`, or `unknown`", is_plain=True),
        Column(
            "category",
            TEXT,
            "the category of *Where the time went*. Without GPU work: `operators`, and `host code` for what is outside "
            "of them",
        ),
        Column("family", TEXT, "kernels that do the same; of operators the outermost"),
        Column("name", TEXT, "the kernel, copy or operator; the category if idle"),
        Column(
            "time_ns",
            NUMBER,
            "time in a repetition: mean. Each instant counts once: of those that run together, the first category gets "
            "it, and kernels of one category share it",
        ),
        Column("time_pct", NUMBER, "the same in percent of the mean step"),
        Column("hidden_ns", NUMBER, "time in a repetition that others got: mean"),
        Column("count", NUMBER, "how often in a repetition: mean"),
        Column("longest_ns", WHOLE, "the longest", is_plain=True),
        Column("longest_at_ns", WHOLE, "when it begins, since the start of the window"),
    ),
    rows="parts of a step",
    header="Part",
    group=GPU,
    short="step",
    constant=("device", "tid", "step", "steps"),
    bars=("time_pct",),
    minor=("group", "hidden_ns", "longest_ns", "longest_at_ns"),
    is_folded=True,
    jump="part",
    names="kernel",
    kernels=("name",),
    one_of=("kernels", "cpu_ops"),
)
OTHER_PARTS: Final = "(others)"
"""The path, family or name of what is too small for a row of its own in STEP_PARTS."""

STEP_WORK: Final = Entry(
    "step_work",
    "Work of a step",
    "What a repetition of the window runs, or the window if nothing repeats: for comparisons of runs, whose start-up "
    "and number of repetitions may differ. Work belongs to the repetition in which the CPU launched it.",
    (),
    (
        Column(
            "kind",
            TEXT,
            "what it is",
            (
                ("kernel", "a kernel, or a CUDA graph that was traced as a whole"),
                ("copy", "copies or memsets, by the kinds of memory"),
                ("call", "a CUDA function"),
                ("operator", "a PyTorch operator, without what runs inside"),
                ("range", "a range, with `#` for numbers"),
            ),
        ),
        Column("count", NUMBER, "how often in a repetition: mean"),
        Column("time_ns", NUMBER, "its time in a repetition: median, or mean if not all repetitions have it"),
        Column(
            "copied_bytes",
            NUMBER,
            "of copies and memsets: bytes in a repetition, mean; none if the profiler did not say the size of each",
            is_optional=True,
        ),
        Column("place", TEXT, "of kernels: the ranges and the operator in which most of its time is launched"),
        Column("name", TEXT, "its name", is_plain=True),
    ),
    rows="kinds of work",
    place="points",
)

REQUESTS: Final = "requests"
FAILED_REQUESTS: Final = "failed requests"
INPUT_TOKENS: Final = "input tokens"
OUTPUT_TOKENS: Final = "output tokens"
ALL_TOKENS: Final = "all tokens"
TTFT: Final = "time to first token"
TPOT: Final = "time per output token"
ITL: Final = "inter-token latency"
REQUEST_LATENCY: Final = "request latency"
BATCH_LATENCY: Final = "batch latency"
UNPROFILED_RUN: Final = "without the profiler"
PROFILED_RUN: Final = "with the profiler"
UNKNOWN_RUN: Final = "unknown run"
SERVING: Final = Entry(
    "serving",
    "Serving figures",
    "Throughput and latencies of an inference engine, as its own benchmark measured them: by the benchmark of a "
    "workload, or in a result file given with --attach.",
    (),
    (
        Column(
            "metric",
            TEXT,
            "what was measured",
            (
                (REQUESTS, "requests that were answered: their number, and how many in a second"),
                (FAILED_REQUESTS, "requests without an answer"),
                (INPUT_TOKENS, "tokens of the prompts"),
                (OUTPUT_TOKENS, "generated tokens"),
                (ALL_TOKENS, "both together"),
                (TTFT, "TTFT: from a request to its first token"),
                (
                    TPOT,
                    "TPOT: one value per request, the latency of the request without that of its first token, divided "
                    "by the number of its other tokens",
                ),
                (ITL, "ITL: from one token to the next; all such times of all requests"),
                (REQUEST_LATENCY, "from a request to its last token (end to end)"),
                (BATCH_LATENCY, "the same, of a whole batch of requests"),
            ),
        ),
        Column(
            "measured",
            TEXT,
            "in which run",
            (
                (UNPROFILED_RUN, "the benchmark of a workload"),
                (PROFILED_RUN, "the run in this capture, which the profiler slowed down"),
                (UNKNOWN_RUN, "the file was given to `nightsight report`, or was there before the profiled run"),
            ),
        ),
        Column("source", TEXT, "the program that writes such a file, or the workload"),
        Column("count", WHOLE, "how many", is_optional=True, is_plain=True),
        Column("rate_per_s", NUMBER, "throughput: how many in a second", is_optional=True),
        Column("avg_ns", NUMBER, "mean", is_optional=True, is_plain=True),
        Column("med_ns", NUMBER, "median", is_optional=True, is_plain=True),
        Column("p90_ns", NUMBER, "90th percentile", is_optional=True),
        Column("p95_ns", NUMBER, "95th percentile", is_optional=True),
        Column("p99_ns", NUMBER, "99th percentile", is_optional=True),
    ),
    rows="serving figures",
    header="Figure",
    named_by="metric",
    group=GPU,
    short="serving",
)

GPU_GAPS: Final = Entry(
    "gpu_gaps",
    "Longest idle gaps",
    "Stretches of the window in which nothing ran on a GPU: the 100 longest per GPU.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("time_ns", WHOLE, "start of the gap, since the start of the window"),
        Column("gap_ns", WHOLE, "its length"),
        Column("share_pct", NUMBER, "in percent of the window"),
        Column("cause", TEXT, "the idle category of *Where the time went* that covers most of the gap"),
        Column("cause_pct", NUMBER, "share of the gap that this category covers"),
        Column("before", TEXT, "the operation before it"),
        Column("after", TEXT, "the operation after it"),
        Column("path", TEXT, "the range in which the operation after it was launched"),
    ),
    rows="idle gaps",
    header="Cause",
    named_by="cause",
    group=GPU,
    short="idle gaps",
    constant=("device",),
    jump="span",
    kernels=("before", "after"),
)

IDLE_STACKS: Final = Entry(
    "idle_stacks",
    "Python while the GPU waits",
    "Where Python was while a GPU was idle, from samples of its stack or from calls that torch.profiler records: on "
    "the thread that launched the work after the gap, or, if that runs no Python (PyTorch's backward pass), on that "
    "of its process that launches most. Rows of a device and cause add up to its idle time. Without GPU work: where "
    "each thread of Python was; its rows add up to the window.",
    (),
    (
        Column("device", WHOLE, "number of the GPU in the machine; none without GPU work", is_plain=True),
        Column("tid", WHOLE, "without GPU work: the thread", is_optional=True),
        Column(
            "cause",
            TEXT,
            "the idle category of *Where the time went*. Without GPU work: `operators`, and `host code` for what is "
            "outside of them",
        ),
        Column("time_ns", WHOLE, "idle time with this stack; with samples, their number times their distance"),
        Column("share_pct", NUMBER, "the same in percent of the device's idle time, or of the thread's time"),
        Column("samples", WHOLE, "samples of Python with this stack in that time", is_optional=True),
        Column(
            "function",
            TEXT,
            "the innermost function that is not of a library, and its line: where it is defined in a torch.profiler "
            "trace, else the most frequent one; `(not recorded)`: time without a stack",
        ),
        Column("calls", TEXT, "the function of a library that it calls, and where that led"),
        Column(
            "stack",
            TEXT,
            "its callers, outermost first, and what it calls; functions of libraries in brackets, only the first of "
            "those between two others, and the last of those at the end. A stack that takes less than 0.1 % counts for "
            "its caller. Of a torch.profiler trace, functions of libraries are left out",
        ),
    ),
    rows="stacks",
    header="Function",
    named_by="function",
    full="stack",
    group=GPU,
    short="Python",
    bars=("share_pct",),
    constant=("device", "tid"),
    names="code",
    one_of=("python_samples", "python_functions"),
)

GPU_UTILIZATION: Final = Entry(
    "gpu_utilization",
    "Utilization over time",
    "The window, divided into 30 equal stretches.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("from_ns", WHOLE, "start of the stretch, since the start of the window"),
        Column("to_ns", WHOLE, "end of the stretch, since the start of the window"),
        Column("busy_pct", NUMBER, "share of the stretch in which at least one operation ran"),
    ),
    rows="stretches of the window",
    place="points",
)

CUDA_GPU_KERN_SUM: Final = Entry(
    "cuda_gpu_kern_sum",
    "Kernel time",
    "Execution time on the GPU, per kernel.",
    ("kernels",),
    (*_times("kernels"), Column("name", TEXT, "the kernel", is_plain=True)),
    rows="kernels",
    header="Kernel",
    group=GPU,
    short="kernels",
    is_core=True,
    bars=("time_pct",),
    jump="kernel",
    names="kernel",
    kernels=("name",),
)

MEMORY_OPERATIONS: Final = Entry(
    "memory_operations",
    "Memory operations",
    "Copies and memsets by direction and kind of memory. A copy from or to pageable host memory goes through a driver "
    "buffer, and the call waits; pinned memory avoids both.",
    ("memory_ops",),
    (
        Column("operation", TEXT, "`memcpy` with its direction, or `memset`", is_plain=True),
        Column("source_kind", TEXT, "kind of memory that is read", is_plain=True),
        Column("target_kind", TEXT, "kind of memory that is written", is_plain=True),
        _COUNT,
        Column("time_pct", NUMBER, "share of the total time of all copies and memsets, not of wall time"),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("avg_ns", NUMBER, "mean", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("avg_bytes", NUMBER, "mean", is_plain=True),
        Column("max_bytes", WHOLE, "largest", is_plain=True),
        Column("rate_bytes_per_s", NUMBER, "bytes divided by the time of the operations themselves"),
        Column(
            "peak_pct",
            NUMBER,
            "time that the operations would take at the peak rate of what they cross, in percent of the time they "
            "took. They cross device memory (a copy within a device reads and writes each byte), the PCIe link in one "
            "direction, or NVLink between devices. Small copies never come close. Empty if the peak is not known",
        ),
    ),
    rows="copies and memsets",
    header="Operation",
    group=GPU,
    short="copies",
    is_core=True,
    bars=("time_pct",),
    jump="copy",
)

COPY_SIZES: Final = Entry(
    "copy_sizes",
    "Copy sizes",
    "Copies by direction, kind of host memory and size, in bins that double in size. Many small copies cost more in "
    "calls and latency than in bytes.",
    ("memory_ops",),
    (
        Column("operation", TEXT, "direction of the copy", is_plain=True),
        Column("host_kind", TEXT, "kind of host memory, if any", is_plain=True),
        Column("from_bytes", WHOLE, "lower edge of the size bin, inclusive"),
        Column("below_bytes", WHOLE, "upper edge, exclusive"),
        _COUNT,
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("rate_bytes_per_s", NUMBER, "bytes divided by the time of the copies themselves"),
    ),
    rows="copy sizes",
    header="Operation",
    named_by="operation",
    group=GPU,
    short="copy sizes",
    jump="copy",
)

SLOW_COPIES: Final = Entry(
    "slow_copies",
    "Copies and memsets that make the CPU wait",
    "Copies from or to pageable host memory, and copies and memsets by blocking calls (cudaMemcpy without Async; "
    "cudaMemset of pinned or managed memory), per range in which the call was made.",
    ("memory_ops", "api_calls"),
    (
        _PATH,
        _FUNCTION,
        Column("operation", TEXT, "direction of the copy, or `memset`", is_plain=True),
        Column("host_kind", TEXT, "kind of host memory", is_plain=True),
        _DEVICE,
        _COUNT,
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("copy_ns", WHOLE, "time on the GPU"),
        Column("cpu_ns", WHOLE, "CPU time in the calls, including the wait for earlier work"),
        Column(
            "exposed_ns",
            WHOLE,
            "time of the window, from the start of the call to the end of the copy, in which the GPU ran no kernel",
        ),
        _PID,
    ),
    rows="copies and memsets that make the CPU wait",
    header="Function",
    group=GPU,
    short="slow copies",
    bars=("cpu_ns",),
    constant=("device", "pid"),
    jump="call",
)

GPU_PEAKS: Final = Entry(
    "gpu_peaks",
    "Peaks",
    "Peak rates that measured rates are compared with. Memory and L2: as the driver reports, else as published. "
    "Links: half of the published rate for both directions; a board in a slot with fewer lanes has less.",
    ("devices",),
    (
        _DEVICE,
        Column("name", TEXT, "the GPU", is_plain=True),
        Column("memory_bytes_per_s", NUMBER, "bandwidth of device memory", is_plain=True),
        Column("pcie_generation", WHOLE, "PCIe generation of the link to the host", is_plain=True),
        Column("host_link_bytes_per_s", NUMBER, "bandwidth of that link, in one direction", is_plain=True),
        Column("nvlink_bytes_per_s", NUMBER, "NVLink bandwidth to other GPUs, in one direction", is_plain=True),
        Column("l2_bytes", WHOLE, "size of the L2 cache", is_plain=True),
        Column("source", TEXT, "where the figures come from", is_plain=True),
    ),
    rows="devices",
    place="method",
)

LAUNCH_OVERHEAD: Final = Entry(
    "launch_overhead",
    "Launch overhead",
    "What launches cost the CPU, per kernel. API, queue and execution time overlap, so they do not add up. The first "
    "launch of a kernel also loads its code: compare the maximum.",
    ("kernels", "api_calls"),
    (
        Column("launches", WHOLE, "number of launches", is_plain=True),
        Column("api_total_ns", WHOLE, "CPU time in the launch calls"),
        Column("api_med_ns", NUMBER, "median of it", is_plain=True),
        Column("api_max_ns", WHOLE, "longest", is_plain=True),
        Column("queued", WHOLE, "launches that started on the GPU after their call had returned"),
        Column(
            "queue_med_ns",
            NUMBER,
            "for these, median time from the end of the call to the start of the kernel. It is not overhead in "
            "itself: the GPU had other work",
        ),
        Column("queue_max_ns", WHOLE, "longest", is_plain=True),
        Column("execution_total_ns", WHOLE, "time on the GPU", is_plain=True),
        Column("execution_med_ns", NUMBER, "median of it", is_plain=True),
        _DEVICE,
        Column("name", TEXT, "the kernel, or `[CUDA graph]`", is_plain=True),
    ),
    rows="launches",
    header="Kernel",
    group=LAUNCHES,
    short="launches",
    is_core=True,
    bars=("api_total_ns",),
    constant=("device",),
    jump="kernel",
    names="kernel",
    kernels=("name",),
)

LAUNCH_PHASES: Final = Entry(
    "launch_phases",
    "Launch figures",
    "Figures of the launches whose work began in the window. They measure different things, so they do not add up. A "
    "launch of a CUDA graph is one launch.",
    _LAUNCHED,
    (
        _DEVICE,
        Column(
            "figure",
            TEXT,
            "what is measured",
            (
                ("API time", "CPU time in the launch call"),
                (
                    "launch latency",
                    "from the start of the call to the start on the GPU, if the stream was empty when the call began "
                    "and no other work on the device ended in between; negative if the GPU's clock is behind",
                ),
                (
                    "queue time (no overhead)",
                    "the same for all other launches: they waited behind earlier work, which is not overhead",
                ),
            ),
        ),
        Column(
            "launch",
            TEXT,
            "which launches",
            (
                ("first", "the first recorded launch of a kernel in a process, which may load or compile the kernel"),
                ("steady", "all other launches"),
            ),
        ),
        _COUNT,
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p95_ns", NUMBER, "95th percentile"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
    ),
    rows="launch figures",
    header="Figure",
    named_by="figure",
    group=LAUNCHES,
    short="figures",
    constant=("device",),
)

LAUNCH_BOUND: Final = Entry(
    "launch_bound",
    "Launch bound",
    "Whether the CPU stays ahead of each GPU. An operation is in flight from the return of its launch call (or from "
    "its own start, if that is earlier) to its end.",
    _LAUNCHED,
    (
        _DEVICE,
        Column("launches", WHOLE, "launches whose work began in the window", is_plain=True),
        Column("launch_idle_ns", WHOLE, "idle time in the category *launch* of *Where the time went*"),
        Column("launch_idle_pct", NUMBER, "the same in percent of the window"),
        Column(
            "first_launch_idle_ns",
            WHOLE,
            "the part of it in which the first launch of a kernel took longer than the median of later launches; a "
            "first launch may load or compile the kernel",
        ),
        Column("in_flight_avg", NUMBER, "operations in flight, mean over the window", is_plain=True),
        Column("in_flight_max", WHOLE, "operations in flight, maximum", is_plain=True),
        Column("drained", WHOLE, "how many times the queue ran empty before the end of the window"),
        Column(
            "drained_in_sync",
            WHOLE,
            "in how many of these the CPU was inside a synchronizing call (see Functions); in the others the CPU was "
            "too slow to launch",
        ),
        Column("functions", TEXT, "the functions of these synchronizing calls, most frequent first"),
    ),
    rows="devices with launches",
    header="Device",
    named_by="device",
    group=LAUNCHES,
    short="launch bound",
)

IN_FLIGHT: Final = Entry(
    "in_flight",
    "Operations in flight",
    "How far the CPU ran ahead of the GPU, over up to 500 equal stretches of the window.",
    _LAUNCHED,
    (
        _DEVICE,
        Column("time_ns", WHOLE, "start of the stretch, since the start of the window"),
        Column("in_flight_avg", NUMBER, "operations launched and not yet finished, mean"),
        Column("in_flight_max", WHOLE, "the same, maximum"),
    ),
    rows="stretches of the window",
    place="points",
)

KERNEL_DURATIONS: Final = Entry(
    "kernel_durations",
    "Kernel durations",
    "Histogram of kernel durations, with ten bins per decade. Empty bins have no row; the totals are those of *Kernel "
    "time*.",
    ("kernels",),
    _classes("kernels on the device"),
    rows="duration bins",
    place="points",
)

LAUNCH_LATENCIES: Final = Entry(
    "launch_latencies",
    "Launch latencies",
    "Histograms of API time and launch latency (see *Launch figures*) of first and steady launches together, with the "
    "bins of *Kernel durations*.",
    _LAUNCHED,
    _classes("launches with this figure on the device"),
    rows="duration bins",
    place="points",
)

NCU_MATCH: Final = Entry(
    "ncu_match",
    "Replays matched with the timeline",
    "How many of the launches that ncu replayed match a kernel of the timeline: one with the same normalized name, "
    "grid and block that ran in the window. If a kernel was replayed several times, NVTX ranges tell its replays "
    "apart.",
    ("profiled_launches",),
    (
        Column("replayed", WHOLE, "launches that ncu replayed", is_plain=True),
        Column("matched", WHOLE, "those that match a kernel of the timeline"),
        Column("match_pct", NUMBER, "the same in percent"),
        Column(
            "coverage_pct",
            NUMBER,
            "time of the matched kernels, in percent of the time of all kernels in the window and of CUDA graphs "
            "traced as a whole",
        ),
    ),
    rows="captures",
    header="Launches replayed",
    named_by="replayed",
    place="method",
)

NCU_KERNELS: Final = Entry(
    "ncu_kernels",
    "Replayed kernels",
    "Launches that Nsight Compute (ncu) replayed. Each stands for all kernels in the window with the same name, grid "
    "and block; their times come from the timeline. An empty cell: the metric was not collected, or is a ratio with a "
    "zero denominator.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("grid", TEXT, "blocks in x, y, z", is_plain=True),
        Column("block", TEXT, "threads per block in x, y, z", is_plain=True),
        Column(
            "path",
            TEXT,
            "the NVTX ranges around the launch; if its thread had none, those in which the kernel took the most time "
            "in the timeline",
        ),
        _DEVICE,
        Column(
            "gpu_pct",
            NUMBER,
            "time of these kernels in percent of the time of all kernels in the window; if a kernel was replayed in "
            "several ranges, of those in its own range only",
        ),
        Column("launches", WHOLE, "number of these kernels in the timeline"),
        Column("timeline_med_ns", NUMBER, "their median duration in the timeline"),
        Column("gpu_total_ns", WHOLE, "their total time in the timeline"),
        Column("busiest_gpu_ns", WHOLE, "the same on the GPU where they took the most time"),
        Column(
            "replay_ns",
            NUMBER,
            "duration of the replay, under ncu's control of clocks and caches: do not compare it with other times",
        ),
        Column("sm_pct", NUMBER, "SM throughput, in percent of the peak that can be sustained"),
        Column("memory_pct", NUMBER, "memory and cache throughput, likewise"),
        Column("dram_pct", NUMBER, "DRAM throughput, likewise"),
        Column("l2_pct", NUMBER, "L2 throughput, likewise"),
        Column("l1_pct", NUMBER, "L1 throughput, likewise"),
        Column("l2_hit_pct", NUMBER, "L2 hit rate", is_plain=True),
        Column("l1_hit_pct", NUMBER, "L1 hit rate", is_plain=True),
        Column("tensor_pct", NUMBER, "share of cycles in which the tensor pipe was active"),
        Column("occupancy_pct", NUMBER, "active warps, in percent of the maximum per SM"),
        Column("theoretical_pct", NUMBER, "the highest occupancy that the launch allows"),
        Column("limiter", TEXT, "what limits the theoretical occupancy"),
        Column("registers", WHOLE, "registers per thread", is_plain=True),
        Column("shared_bytes", WHOLE, "shared memory per block, including the driver's own"),
        Column("waves", NUMBER, "blocks of the grid divided by the blocks that fit on the GPU at once"),
        Column("tail_pct", NUMBER, "the last, partial wave as a share of all waves: the most that it can cost"),
        Column(
            "sectors_per_request",
            NUMBER,
            "32-byte sectors per global load of a warp; 4 are needed for 4 bytes per thread",
        ),
        Column("excessive_pct", NUMBER, "share of global sectors beyond those that the requested bytes would fill"),
    ),
    rows="replayed kernels",
    header="Kernel",
    group=NCU,
    short="kernels",
    bars=("gpu_pct", "sm_pct", "memory_pct", "occupancy_pct"),
    minor=(
        "block",
        "launches",
        "l2_pct",
        "l1_pct",
        "l2_hit_pct",
        "l1_hit_pct",
        "tensor_pct",
        "theoretical_occupancy_pct",
        "occupancy_limit",
        "registers",
        "shared_bytes",
        "waves",
        "tail_pct",
        "sectors_per_request",
        "excessive_pct",
        "path",
    ),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_LIMITS: Final = Entry(
    "ncu_limits",
    "Limits of kernels",
    "The unit of the GPU that each replayed launch keeps busiest, and how far from its peak that unit is. Whatever is "
    "done about anything else, a launch gets no shorter than that unit needs for the same work.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("gpu_pct", NUMBER, "time of these kernels in percent of the time of all kernels in the window"),
        Column("replay_ns", NUMBER, "duration of the replay", is_plain=True),
        Column("unit", TEXT, "the unit that is used most", is_plain=True),
        Column("used_pct", NUMBER, "throughput of that unit, in percent of the peak that can be sustained"),
        Column("left_pct", NUMBER, "the rest: the most that a launch which does the same work could get shorter"),
        Column(
            "rule",
            TEXT,
            "what could be changed",
            (
                ("tensor_cores", "multiply on tensor cores, not in FP32 on CUDA cores"),
                ("uncoalesced", "let neighbouring threads access neighbouring memory"),
                ("small_grid", "launch more blocks: there are SMs without any"),
                ("tail", "divide the work so that the last blocks do not run alone"),
                ("registers", "use fewer registers, so that more warps run at once"),
                ("shared_memory", "use less shared memory, so that more warps run at once"),
                ("at_roof", "nothing but the amount of work"),
                ("", "nothing that these figures tell"),
            ),
        ),
        Column("gain_pct", NUMBER, "how much shorter the launch could get by that"),
        Column("reason", TEXT, "the figures behind it", is_plain=True),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    short="limits",
    bars=("used_pct",),
    minor=("replay_ns",),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_RULES: Final = Entry(
    "ncu_rules",
    "Nsight Compute rules",
    "Results of ncu's rules for each replayed launch. Their estimates overlap: do not add them up, neither per kernel "
    "nor per rule.",
    ("profiled_launches", "kernel_rules"),
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("rule", TEXT, "ncu's name for the rule", is_plain=True),
        Column("title", TEXT, "ncu's title", is_plain=True),
        Column("message", TEXT, "ncu's message", is_plain=True),
        Column(
            "kind",
            TEXT,
            "type of the result",
            (
                ("optimization", "advice"),
                ("warning", "a warning"),
                ("info", "a statement of fact, without an estimate"),
            ),
        ),
        Column(
            "speedup_kind",
            TEXT,
            "what ncu's estimate is about",
            (
                ("global", "how much shorter the launch could get"),
                ("local", "how much better a single unit could be used, which says nothing about the launch's time"),
            ),
        ),
        Column("speedup_pct", NUMBER, "ncu's estimate"),
        Column(
            "bound_pct", NUMBER, "a global estimate times the kernel's share of the time of all kernels in the window"
        ),
    ),
    rows="rules",
    header="Rule",
    named_by="title",
    group=NCU,
    short="rules",
    full="message",
    bars=("bound_pct",),
    numbered="kernel",
    jump="replay",
    names="prose",
    kernels=("kernel",),
)

NCU_ROOFLINE: Final = Entry(
    "ncu_roofline",
    "Roofline",
    "Arithmetic of each replayed launch, by type: operations per second, and per byte that the whole launch moved. A "
    "fused multiply-add counts as two operations. Times and clocks are those of the replay. If ncu collected bytes "
    "but no rate, the rate is the bytes divided by that time.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        _DEVICE,
        Column(
            "kind",
            TEXT,
            "type of arithmetic. Tensor core work is by input type, from ncu's operation counters, else from the "
            "executed instructions. FP16 excludes instructions that only load a constant",
        ),
        Column("flop_per_s", NUMBER, "operations per second, of integers too"),
        Column("flop_per_byte", NUMBER, "operations per byte of DRAM traffic"),
        Column("l2_flop_per_byte", NUMBER, "operations per byte moved between L2 and the SMs"),
        Column(
            "peak_pct",
            NUMBER,
            "in percent of the roof for this type, which is drawn at the clock of the GPU's longest replay",
        ),
        Column(
            "clock_hz",
            NUMBER,
            "SM clock during the launch; a launch at a lower clock, for example at the power limit, cannot reach the "
            "roof",
        ),
    ),
    rows="types of arithmetic",
    header="Kernel",
    group=NCU,
    short="roofline",
    bars=("of_roof_pct",),
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_ROOFS: Final = Entry(
    "ncu_roofs",
    "Roofs",
    "What each GPU can sustain according to its own reports: peak per cycle times the unit's clock in its longest "
    "replay. The SM clock is capped at the one that the driver reports.",
    _REPLAYED,
    (
        _DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
        Column(
            "roof",
            TEXT,
            "DRAM: reads and writes together. L2: from the cache to the SMs. Tensor: the fastest instruction for the "
            "type, on dense matrices",
        ),
        Column("bytes_per_s", NUMBER, "bandwidth, if the roof is a memory", is_plain=True),
        Column("flop_per_s", NUMBER, "operations per second, if the roof is arithmetic", is_plain=True),
    ),
    rows="roofs",
    header="Roof",
    named_by="roof",
    place="method",
)

NCU_STALLS: Final = Entry(
    "ncu_stalls",
    "Warp stalls",
    "The five most common reasons why the warps of a replayed launch did not issue an instruction.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("reason", TEXT, "why they stalled", _STALLS),
        Column(
            "stall_pct",
            NUMBER,
            "in percent of all cycles in which warps were stalled (of samples, if cycles were not collected)",
        ),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    short="stalls",
    is_folded=True,
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_INSTRUCTIONS: Final = Entry(
    "ncu_instructions",
    "Instruction mix",
    "Instructions that the warps of a replayed launch executed. Each counts once, however much work it does: one "
    "tensor core instruction does the work of thousands of others.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("instructions", NUMBER, "number of instructions", is_plain=True),
        Column("fp64_pct", NUMBER, "FP64 arithmetic", is_plain=True),
        Column("fp32_pct", NUMBER, "FP32 arithmetic", is_plain=True),
        Column("fp16_pct", NUMBER, "FP16 arithmetic; includes HFMA2, which compilers also use to load constants"),
        Column("integer_pct", NUMBER, "integer arithmetic, logic, shifts and the uniform datapath"),
        Column("tensor_pct", NUMBER, "tensor core instructions", is_plain=True),
        Column("load_store_pct", NUMBER, "loads and stores, of any memory", is_plain=True),
        Column("control_pct", NUMBER, "branches, barriers, waits"),
        Column("other_pct", NUMBER, "moves, conversions, shuffles, predicates"),
    ),
    rows="kernels",
    header="Kernel",
    group=NCU,
    short="instructions",
    is_folded=True,
    numbered="name",
    jump="replay",
    names="replay",
    kernels=("name",),
)

NCU_SOURCE: Final = Entry(
    "ncu_source",
    "Hottest lines",
    "The source lines of each replayed launch with the most warp samples, at most ten. They are instructions (SASS) "
    "if the program has no line information (nvcc -lineinfo; Triton has it).",
    ("profiled_launches", "kernel_lines"),
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("file", TEXT, "name of the file, without folders", is_plain=True),
        Column("line", WHOLE, "in that file", is_plain=True),
        Column("pc", WHOLE, "address of the instruction within the kernel"),
        Column("source", TEXT, "text of the line, if ncu imported it (--import-source), or the instruction"),
        Column("samples", WHOLE, "samples on it", is_plain=True),
        Column("share_pct", NUMBER, "in percent of all samples of the launch"),
        Column("stall", TEXT, "the most common reason why they did not issue, as in *Warp stalls*"),
    ),
    rows="lines",
    header="Line or instruction",
    named_by="source",
    group=NCU,
    short="lines",
    bars=("share_pct",),
    numbered="kernel",
    jump="replay",
    names="code",
    kernels=("kernel",),
)

NVTX_RANGES: Final = Entry(
    "nvtx_ranges",
    "NVTX ranges",
    "CPU and GPU time of each range of the program, including the ranges inside it. An operation belongs to the "
    "innermost range open on the launching thread, else to the innermost range open in the process at that time. "
    "Totals can exceed the time of the range.",
    ("ranges",),
    (
        Column("path", TEXT, "the range and those around it, outermost first, joined by ` / `"),
        _PID,
        _INSTANCES,
        Column("cpu_total_ns", WHOLE, "from start to end on the CPU", is_plain=True),
        Column("cpu_med_ns", NUMBER, "median of it", is_plain=True),
        Column("cpu_min_ns", WHOLE, "shortest", is_plain=True),
        Column("cpu_max_ns", WHOLE, "longest", is_plain=True),
        Column(
            "style",
            TEXT,
            "`PushPop`, `StartEnd` or `Annotation`; `Module` and `Function`: a call that PyTorch or the profiler named",
            is_plain=True,
        ),
        Column("level", WHOLE, "number of ranges around it", is_plain=True),
        Column("kernels", WHOLE, "kernels launched inside it", is_optional=True),
        Column("kernel_ns", WHOLE, "their time", is_optional=True),
        Column("copies", WHOLE, "copies launched inside it", is_optional=True, is_plain=True),
        Column("copy_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("sets", WHOLE, "memsets launched inside it", is_optional=True, is_plain=True),
        Column("set_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("graph_launches", WHOLE, "CUDA graphs traced as a whole", is_optional=True, is_plain=True),
        Column("graph_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("launches", WHOLE, "launches of kernels and graphs", is_optional=True, is_plain=True),
        Column("gpu_busy_ns", WHOLE, "time in which a GPU ran work launched inside it", is_optional=True),
        Column(
            "gpu_idle_ns",
            WHOLE,
            "time between the first and the last of that work in which no such work ran",
            is_optional=True,
        ),
    ),
    rows="ranges",
    header="Range",
    group=PROGRAM,
    short="ranges",
    is_core=True,
    bars=("cpu_total_ns", "kernel_ns"),
    minor=("cpu_med_ns", "cpu_min_ns", "cpu_max_ns", "style", "copies", "copy_ns", "sets", "set_ns"),
    constant=("pid",),
    jump="range",
    names="code",
)

RANGE_KERNELS: Final = Entry(
    "range_kernels",
    "Kernels of ranges",
    "Execution time on the GPU, per kernel and range in which it was launched: *Kernel time* by range.",
    ("kernels", "api_calls", "ranges"),
    (
        Column(
            "path",
            TEXT,
            "the innermost range and those around it, outermost first, joined by ` / `, with `#` for numbers; `(no "
            "range)` if there are none",
        ),
        *_times("kernels"),
        Column("name", TEXT, "the kernel", is_plain=True),
    ),
    rows="kernels of ranges",
    place="points",
    kernels=("name",),
)

RANGE_COVERAGE: Final = Entry(
    "range_coverage",
    "GPU work in ranges",
    "How much of the GPU work belongs to a range. Migrations of managed memory are not counted: no call launches them.",
    ("ranges", *_LAUNCHED),
    (
        Column("operations", WHOLE, "kernels, copies, memsets and graph launches", is_plain=True),
        Column("on_thread", WHOLE, "launched by the range's own thread"),
        Column("in_process", WHOLE, "launched by another thread of the process, like PyTorch's backward pass"),
        Column("outside", WHOLE, "launched while no range was open"),
        Column("without_call", WHOLE, "the launching call was not recorded, so the range is not known"),
        Column("attributed", WHOLE, "sum of *on thread* and *in process*"),
        Column("coverage_pct", NUMBER, "the same in percent of all operations"),
    ),
    rows="captures",
    header="Operations",
    named_by="operations",
    place="method",
)

RANGE_ITERATIONS: Final = Entry(
    "range_iterations",
    "Range repetitions",
    "CPU time of ranges that occur at least three times. Ranges whose names differ only by a number count as one.",
    ("ranges",),
    (
        Column("path", TEXT, "the range, with `#` for the number", is_plain=True),
        _PID,
        _INSTANCES,
        Column("first_ns", WHOLE, "the instance that began first; it often pays for loading and allocation"),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p95_ns", NUMBER, "95th percentile"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("outliers", TEXT, "instances that took more than 1.5 times the median, numbered from 0"),
    ),
    rows="repeated ranges",
    header="Range",
    named_by="path",
    group=PROGRAM,
    short="repetitions",
    bars=("med_ns",),
    constant=("pid",),
    jump="repetition",
)

NVTX_MARKS: Final = Entry(
    "nvtx_marks",
    "NVTX marks",
    "Instants that the program marked, inside the window or outside.",
    ("marks",),
    (
        _INSTANCES,
        Column("first_ns", WHOLE, "time of the first, since the start of the window; negative if it was before"),
        Column("last_ns", WHOLE, "time of the last", is_plain=True),
        Column("median_interval_ns", NUMBER, "median interval between consecutive marks of a thread"),
        Column("domain", TEXT, "its NVTX domain", is_plain=True),
        Column("category", TEXT, "its NVTX category", is_plain=True),
        Column("name", TEXT, "its text", is_plain=True),
    ),
    rows="marks",
    header="Mark",
    group=PROGRAM,
    short="marks",
    jump="mark",
)

CUDA_API_SYNC: Final = Entry(
    "cuda_api_sync",
    "Synchronization",
    "Calls in which the CPU waits for the GPU, per function and range in which they were made. A driver call inside a "
    "runtime call is not counted again.",
    ("api_calls", *_OPERATIONS),
    (
        Column("calls", WHOLE, "number of calls", is_plain=True),
        Column("total_ns", WHOLE, "CPU time in the calls", is_plain=True),
        Column("idle_ns", WHOLE, "the part of it in which no GPU work of that process ran"),
        Column(
            "lost_ns",
            WHOLE,
            "upper bound on how much shorter the window could be without the call: its own time, or the GPU's idle "
            "time from its start until its thread waits again, whichever is less. Waits with no launch by the thread "
            "in between count as one; their cost is listed with the longest of them",
        ),
        Column("other_waits", WHOLE, "how many other waits that cost includes"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        *_STEPS,
        Column(
            "kind",
            TEXT,
            "whether the purpose of the call is to wait",
            (
                ("explicit", "...Synchronize"),
                (
                    "implicit",
                    "copies and memsets that return only when they are done (blocking ones, and copies to pageable "
                    "memory), frees, and allocations that spent most of their time waiting for earlier work",
                ),
            ),
        ),
        _FUNCTION,
        _PATH,
        _PID,
        Column("frame", TEXT, "the innermost stack frame of the call", is_optional=True),
    ),
    rows="synchronizing calls",
    header="Function",
    group=PROGRAM,
    short="synchronization",
    is_core=True,
    bars=("total_ns",),
    constant=("pid",),
    jump="call",
)

OSRT_SUM: Final = Entry(
    "osrt_sum",
    "OS runtime",
    "Calls into operating system libraries, summed over all threads. Threads that wait all the time, in poll or "
    "pthread_cond_wait, come first and cost nothing. Calls shorter than a microsecond are not recorded.",
    ("os_calls",),
    (*_times("calls"), Column("name", TEXT, "the function", is_plain=True)),
    rows="OS runtime calls",
    header="Function",
    group=PROGRAM,
    short="OS calls",
    bars=("time_pct",),
)

SETUP_CALLS: Final = Entry(
    "setup_calls",
    "Loading and allocation in the window",
    "Calls that load modules, compile, or allocate or free memory, per function and range in which they were made. A "
    "program that has warmed up makes none of them. A driver call inside a runtime call is not counted again.",
    _LAUNCHED,
    (
        Column("calls", WHOLE, "number of calls", is_plain=True),
        Column("total_ns", WHOLE, "CPU time in the calls, whether the GPU was idle or not"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        *_STEPS,
        Column("kind", TEXT, "`module load and JIT` or `allocation and free`", is_plain=True),
        _FUNCTION,
        _PATH,
        _PID,
    ),
    rows="calls that load, compile, allocate or free",
    header="Function",
    group=PROGRAM,
    short="loading, allocation",
    bars=("total_ns",),
    constant=("pid",),
    jump="call",
)

MEMORY_USAGE: Final = Entry(
    "memory_usage",
    "Memory usage",
    "Memory that the program allocated. nsys records allocations from CUDA; PyTorch keeps memory that its tensors "
    "have released, so the tensors may need less. torch.profiler records what tensors were given, on the CPU too.",
    ("memory_usage",),
    (
        _DEVICE_OR_CPU,
        Column("kind", TEXT, "kind of memory; `Host` is that of the CPU", is_plain=True),
        Column("peak_bytes", WHOLE, "the most at any time", is_plain=True),
        Column("end_bytes", WHOLE, "memory still allocated at the end of the capture"),
        Column("allocations", WHOLE, "number of allocations", is_plain=True),
        Column("allocated_bytes", WHOLE, "sum", is_plain=True),
        Column("frees", WHOLE, "number of frees", is_plain=True),
        Column("freed_bytes", WHOLE, "sum", is_plain=True),
    ),
    rows="kinds of memory",
    header="Kind",
    named_by="kind",
    group=PROGRAM,
    short="memory use",
    constant=("device",),
    jump="memory",
)

MEMORY_OVER_TIME: Final = Entry(
    "memory_over_time",
    "Memory over time",
    "Memory allocated on each GPU, and on the CPU where recorded, after each change. Long captures are thinned out: of "
    "each piece of time, the highest and the last level are kept.",
    ("memory_usage",),
    (
        _DEVICE_OR_CPU,
        Column("time_ns", WHOLE, "since the start of the window", is_plain=True),
        Column("bytes", WHOLE, "allocated from then on", is_plain=True),
        Column(
            "reserved_bytes",
            WHOLE,
            "what PyTorch had reserved, from which tensors get their memory; left out if not recorded",
            is_optional=True,
        ),
    ),
    rows="changes",
    place="points",
)

UNIFIED_MEMORY: Final = Entry(
    "unified_memory",
    "Unified memory",
    "Pages that the driver moved between host and device because a processor accessed them, and the page faults that "
    "caused it. Faults are recorded only with `profile --page-faults`.",
    ("memory_ops",),
    (
        _PID,
        Column("device", WHOLE, "number of the GPU in its process", is_plain=True),
        Column("event", TEXT, "what happened", is_plain=True),
        Column("count", WHOLE, "how many; for GPU page faults the number of faults, which come in groups"),
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum; for GPU page faults the time of the groups"),
        Column("rate_bytes_per_s", NUMBER, "bytes divided by time", is_plain=True),
    ),
    rows="kinds of events",
    header="Event",
    named_by="event",
    group=PROGRAM,
    short="unified memory",
    constant=("pid",),
    jump="copy",
)

GPU_METRICS: Final = Entry(
    "gpu_metrics",
    "GPU metrics",
    "Counters sampled on the GPU in the window. They count everything that ran on it, including other programs. "
    "Requests, instructions and other counts are per sample, warps per cycle are per SM. Left out: warps as [Avg], "
    "which adds up all cycles of a sample.",
    ("gpu_metrics",),
    (
        _DEVICE,
        Column("metric", TEXT, "the metric, with its unit in brackets", is_plain=True),
        Column("mean", NUMBER, "of its samples", is_plain=True),
        Column("max", NUMBER, "of its samples", is_plain=True),
        Column("samples", WHOLE, "number of samples", is_plain=True),
    ),
    rows="counters",
    header="Metric",
    named_by="metric",
    group=PROGRAM,
    short="GPU metrics",
    constant=("device",),
    jump="counter",
)

RANGE_COUNTERS: Final = Entry(
    "range_counters",
    "Counters of kernels",
    "What CUPTI's range profiler counted under torch.profiler: for each kernel, or for ranges of the program if it was "
    "not told to measure single kernels. All of the trace, because these events have no times of their own.",
    ("range_counters",),
    (
        _DEVICE,
        Column("metric", TEXT, "the metric, as CUPTI calls it", is_plain=True),
        Column("ranges", WHOLE, "how many kernels or ranges of this name were measured", is_plain=True),
        Column("mean", NUMBER, "of their values", is_plain=True),
        Column("min", NUMBER, "of their values", is_plain=True),
        Column("max", NUMBER, "of their values", is_plain=True),
        Column("name", TEXT, "the kernel or range"),
    ),
    rows="counters",
    header="Kernel",
    named_by="name",
    group=PROGRAM,
    short="Counters",
    constant=("device",),
    kernels=("name",),
)

CUDA_API_SUM: Final = Entry(
    "cuda_api_sum",
    "CUDA API",
    "CPU time in CUDA calls, by function.",
    ("api_calls",),
    (
        *_times("calls"),
        _FUNCTION,
        Column(
            "layer",
            TEXT,
            "the runtime (cuda...) or the driver below it (cu...). The time of a runtime call includes that of the "
            "driver calls it makes, so the two layers do not add up",
        ),
    ),
    rows="CUDA calls",
    header="Function",
    group=PROGRAM,
    short="CUDA API",
    bars=("time_pct",),
    jump="call",
    names="code",
)

_OF_OPERATORS: Final = (
    Column("own_pct", NUMBER, "own time in percent of the own time of all operators"),
    Column("own_ns", WHOLE, "time on the CPU without the operators, ranges and CUDA calls inside"),
    Column("total_ns", WHOLE, "time on the CPU including them", is_plain=True),
    _CALLS,
    Column("max_ns", WHOLE, "longest", is_plain=True),
    Column(
        "own_device_ns",
        WHOLE,
        "time of the GPU work that it launched itself, added up; left out if operators launched none",
        is_optional=True,
    ),
    Column("device_ns", WHOLE, "the same, with what the operators inside launched", is_optional=True),
    Column(
        "own_memory_bytes",
        WHOLE,
        "CPU memory allocated less freed while it ran, without what ran inside; left out if not recorded",
        is_optional=True,
    ),
    Column("memory_bytes", WHOLE, "the same, with what ran inside", is_optional=True),
    Column("own_device_memory_bytes", WHOLE, "as `own_memory_bytes`, of GPUs", is_optional=True),
    Column("device_memory_bytes", WHOLE, "as `memory_bytes`, of GPUs", is_optional=True),
    Column(
        "flops",
        NUMBER,
        "floating-point operations, by torch's formulas for mm, addmm, bmm, baddbmm, conv2d, mul and add; 0 for other "
        "operators; left out if shapes were not recorded",
        is_optional=True,
    ),
    Column("name", TEXT, "the operator", is_plain=True),
)
_MEMORY_OF_OPERATORS: Final = (
    "max_ns",
    "own_memory_bytes",
    "memory_bytes",
    "own_device_memory_bytes",
    "device_memory_bytes",
)

CPU_OPS: Final = Entry(
    "cpu_ops",
    "Operators",
    "PyTorch operators, as torch's key_averages counts them. An operator that only calls itself again, with other "
    "arguments, is one call.",
    ("cpu_ops",),
    _OF_OPERATORS,
    rows="operators",
    header="Operator",
    group=PROGRAM,
    short="operators",
    bars=("own_pct",),
    minor=_MEMORY_OF_OPERATORS,
    jump="operator",
    names="code",
)

CPU_OP_SHAPES: Final = Entry(
    "cpu_op_shapes",
    "Operators by shape",
    "The same by the shapes of the inputs, as key_averages(group_by_input_shape=True). Operators without recorded "
    "shapes are left out.",
    ("cpu_ops",),
    (
        *_OF_OPERATORS,
        Column("shapes", TEXT, "shape of each input as JSON; `[]` for what is no tensor, or has one value"),
    ),
    rows="operators and shapes",
    header="Operator",
    group=PROGRAM,
    short="operators by shape",
    bars=("own_pct",),
    minor=_MEMORY_OF_OPERATORS,
    jump="operator",
    names="code",
)

KERNEL_OPERATORS: Final = Entry(
    "kernel_operators",
    "Kernels by operator",
    "Execution time of kernels on the GPU, by the PyTorch operator that launched them: the innermost one around the "
    "launching call.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        Column("time_pct", NUMBER, "share of the total time of all kernels, not of wall time"),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        _INSTANCES,
        Column("avg_ns", NUMBER, "mean", is_plain=True),
        Column("operator", TEXT, "the operator; empty for kernels that no operator launched"),
        Column(
            "forward",
            TEXT,
            "for kernels of the backward pass, the operator of the forward pass with the same sequence number",
        ),
        Column(
            "module",
            TEXT,
            "the module in which the operator was called, in the backward pass that of the forward operator: its path "
            "in the model, or its class; empty if not recorded",
        ),
        Column(
            "function",
            TEXT,
            "the Python function, not of a library, that called the operator, in the backward pass the forward one; "
            "left out if functions were not recorded",
            is_optional=True,
        ),
        Column("name", TEXT, "the kernel", is_plain=True),
    ),
    rows="kernels by operator",
    header="Kernel",
    group=PROGRAM,
    short="kernels by operator",
    bars=("time_pct",),
    constant=("forward", "module", "function"),
    jump="kernel",
    names="kernel",
    kernels=("name",),
)

RANKS: Final = Entry(
    "ranks",
    "Ranks",
    "The GPUs of a job that meet in collectives. None can go on before the last one has come: that one did not wait, "
    "and the others did.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column(
            "host",
            WHOLE,
            "number of its machine, as launchers tell; left out unless known for all ranks",
            is_optional=True,
        ),
        _DEVICE,
        _PID,
        Column("steps", WHOLE, "repetitions in the window", is_plain=True),
        Column("step_ns", NUMBER, "length of a step on its GPU: median"),
        Column(
            "work_ns",
            NUMBER,
            "mean step without its waits for other ranks, known or possible: what it would take alone",
        ),
        Column("waited_ns", NUMBER, "how long, in a step, its GPU only waited for other ranks to come: mean"),
        Column("awaited_ns", NUMBER, "how long, in a step, all others only waited for this one to come: mean"),
        Column("last_pct", NUMBER, "at how many of the collectives it was the last to come"),
        Column("late_ns", WHOLE, "in the whole capture: the longest that all others only waited for it once"),
        Column("late_at_ns", WHOLE, "when it came then, since the first GPU operation"),
        Column("shift_ns", WHOLE, "by how much its times were moved to the clock of the first rank"),
        Column("spread_ns", WHOLE, "how far from that nine in ten collectives are at most"),
        Column("like_rank", WHOLE, "of a large job: the rank whose events are in the report for it", is_optional=True),
    ),
    rows="ranks",
    header="Rank",
    named_by="rank",
    group=GPU,
    short="ranks",
    is_folded=True,
    bars=("waited_ns", "awaited_ns"),
    minor=("late_ns", "late_at_ns"),
    constant=("host", "pid", "steps", "shift_ns", "spread_ns", "like_rank"),
)

RANK_STEPS: Final = Entry(
    "rank_steps",
    "Ranks, step by step",
    "The steps of each rank, and what of each it only waited for other ranks. Of more than 150 steps, a row holds "
    "several that follow one another: their means.",
    ("kernels",),
    (
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("number", WHOLE, "of the first step in the row, counted from 0 in the window"),
        Column("steps", WHOLE, "how many steps the row holds", is_plain=True),
        Column("start_ns", WHOLE, "when the first of them begins, since the start of the window"),
        Column("time_ns", NUMBER, "length of a step: mean"),
        Column("waited_ns", NUMBER, "how long its GPU only waited for other ranks to come"),
        Column("work_ns", NUMBER, "the rest, but for collectives of which not all ranks have a capture"),
    ),
    rows="steps of ranks",
    place="points",
)

COLLECTIVES: Final = Entry(
    "collectives",
    "Collectives",
    "What ranks call together, in the window. A kernel of a collective also waits for the other ranks: the shortest "
    "one of those that belong together has only transferred.",
    (),
    (
        Column("total_ns", WHOLE, "time of their kernels, added up over all ranks"),
        Column("calls", NUMBER, "how many there are in a step, else in the window, on one rank"),
        Column("avg_ns", NUMBER, "length of a kernel: mean, waiting included"),
        Column("exposed_ns", NUMBER, "the same of all in a step, else in the window, while nothing else ran"),
        Column("skew_ns", NUMBER, "how much later the last rank comes than the first: mean"),
        Column("transfer_ns", NUMBER, "how long the shortest kernel of those that belong together takes: median"),
        Column("last_rank", WHOLE, "the rank that comes last most often"),
        Column("last_pct", NUMBER, "how often it does"),
        Column("message_bytes", WHOLE, "what a rank gives in one call"),
        Column("algorithm_bytes_per_s", NUMBER, "the whole message over the transfer, as nccl-tests counts it"),
        Column("bus_bytes_per_s", NUMBER, "what that is on each link: bus bandwidth, as nccl-tests defines it"),
        Column("link_pct", NUMBER, "the same in percent of NVLink's published rate in one direction", is_optional=True),
        Column("group_size", WHOLE, "number of ranks in the communicator", is_plain=True),
        Column("group", TEXT, "the communicator"),
        Column("name", TEXT, "the collective", is_plain=True),
    ),
    one_of=("kernels", "collectives"),
    rows="collectives",
    header="Collective",
    group=GPU,
    short="collectives",
    bars=("exposed_ns",),
    minor=("algorithm_bytes_per_s",),
    constant=("group", "group_size", "last_pct"),
    names="code",
)

SENDS: Final = Entry(
    "sends",
    "Sends and receives",
    "What one rank sends to another, in the window. Kernels of both sides wait until the other one is there, but small "
    "messages are sent ahead.",
    ("kernels",),
    (
        Column("from_rank", WHOLE, "the rank that sends", is_plain=True),
        Column("to_rank", WHOLE, "the rank that receives", is_plain=True),
        Column("calls", NUMBER, "how many messages there are in a step, else in the window"),
        Column("message_bytes", NUMBER, "size of a message: mean"),
        Column("transfer_ns", NUMBER, "from when both are there until the receiver has it: median"),
        Column("bytes_per_s", NUMBER, "the message over the transfer"),
        Column("to_waited_ns", NUMBER, "how long, in a step, the receiver waits for the sender to begin: mean"),
        Column("from_waited_ns", NUMBER, "how long, in a step, the sender waits for the receiver to begin: mean"),
    ),
    rows="pairs of ranks",
    header="From rank",
    named_by="from_rank",
    group=GPU,
    short="sends",
    bars=("to_waited_ns", "from_waited_ns"),
)

PIPELINE_STAGES: Final = Entry(
    "pipeline_stages",
    "Stages of a pipeline",
    "Ranks that send and receive in a chain, in the order in which a step begins on them. The bubble is what of a step "
    "a stage only waits for its neighbours: to fill the pipeline, to drain it, and for slower stages.",
    ("kernels",),
    (
        Column("pipeline", WHOLE, "which of several pipelines, counted from 0", is_plain=True),
        Column("stage", WHOLE, "counted from 0", is_plain=True),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("step_ns", NUMBER, "length of a step: mean"),
        Column("work_ns", NUMBER, "the rest of a step beside sends and receives that nothing hides: mean"),
        Column("waited_ns", NUMBER, "how long, in a step, it only waits for a neighbour to send or receive: mean"),
        Column("bubble_pct", NUMBER, "the same in percent of a step"),
        Column(
            "microbatches",
            WHOLE,
            "messages to the next stage in a step, of the size that moves most; missing if stages differ in it",
        ),
        Column(
            "even_pct",
            NUMBER,
            "the bubble of so many even stages with so many microbatches: (p - 1) / (m + p - 1); missing if nothing is "
            "sent back, since steps may then overlap",
        ),
    ),
    rows="stages",
    header="Stage",
    named_by="stage",
    group=GPU,
    short="pipeline",
    bars=("bubble_pct",),
    constant=("pipeline", "microbatches", "even_pct"),
)

ALL_TO_ALL: Final = Entry(
    "all_to_all",
    "All-to-alls",
    "What ranks give to and get from all others, as experts do with tokens, and how long each then computes until it "
    "calls the next all-to-all of that step: of the first until the second, of the third until the fourth.",
    ("kernels",),
    (
        Column("group", WHOLE, "number of the communicator"),
        Column("rank", WHOLE, "its number in the job", is_plain=True),
        Column("calls", NUMBER, "how many there are in a step, else in the window"),
        Column("given_bytes", NUMBER, "what it gives in one call: mean"),
        Column("received_bytes", NUMBER, "what it gets in one call: mean; missing if the capture does not tell"),
        Column("received_pct", NUMBER, "the same in percent of the mean of all ranks"),
        Column("between_ns", NUMBER, "how long, in a step, it takes from the end of one to the next: mean"),
        Column("between_pct", NUMBER, "the same in percent of the mean of all ranks"),
    ),
    rows="ranks with all-to-alls",
    header="Rank",
    named_by="rank",
    group=GPU,
    short="all-to-alls",
    bars=("between_ns",),
    constant=("group",),
)

OPERATOR_ROOFLINE: Final = Entry(
    "operator_roofline",
    "Roofline of operators",
    "What each PyTorch operator calculates and moves, from the shapes of its arguments, over the time of the work on "
    "the GPU that it launched itself. Operations count as in closed formulas (a multiply-add is two), bytes as if each "
    "input was read once and each output written once. No counters are needed. Copies from and to the host, and "
    "communication, are left out.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        Column("name", TEXT, "the operator", is_plain=True),
        Column("shapes", TEXT, "shapes of the tensors among its arguments", is_plain=True),
        Column("types", TEXT, "their types, each once"),
        Column("time_pct", NUMBER, "share of the time of all kernels, memsets and copies within a device"),
        Column("total_ns", WHOLE, "time of the work on the GPU that these calls launched"),
        Column("calls", WHOLE, "number of calls", is_plain=True),
        Column("avg_ns", NUMBER, "time on the GPU of a call", is_plain=True),
        Column("work_flop", NUMBER, "operations of a call; missing if they are not known"),
        Column("data_bytes", NUMBER, "bytes that a call has to read and write at least; missing if not known"),
        Column("work_flop_per_byte", NUMBER, "operations per such byte"),
        Column("work_flop_per_s", NUMBER, "operations per second", is_plain=True),
        Column("data_bytes_per_s", NUMBER, "such bytes per second", is_plain=True),
        Column(
            "kind",
            TEXT,
            "the arithmetic whose peak it is compared with: on CUDA cores (FP32), or on tensor cores by type of the "
            "inputs. Whether products in FP32 are multiplied as TF32, the name of their kernel tells",
        ),
        Column("compute_pct", NUMBER, "operations per second, in percent of the published peak of that arithmetic"),
        Column("memory_pct", NUMBER, "bytes per second, in percent of the memory's peak"),
        Column(
            "bound",
            TEXT,
            "what limits it",
            (
                ("compute", "at least 60 % of the arithmetic's peak, and more than of the memory's"),
                ("memory", "at least 60 % of the memory's peak"),
                ("latency", "neither: too little work for the GPU, or a kernel that waits"),
                ("", "not known"),
            ),
        ),
        Column("shortest_ns", NUMBER, "the shortest time of a call that these peaks allow"),
        Column("measured_flop", NUMBER, "operations of a call that ncu counted", is_optional=True),
        Column("flop_difference_pct", NUMBER, "by how much these are more (or less) than computed", is_optional=True),
        Column("measured_bytes", NUMBER, "DRAM traffic of a call that ncu measured", is_optional=True),
        Column("bytes_difference_pct", NUMBER, "by how much it is more (or less) than computed", is_optional=True),
        Column("measured_ns", NUMBER, "duration of the replays of the kernels of a call", is_optional=True),
        Column("measured_flop_per_s", NUMBER, "counted operations per second of that", is_optional=True),
        Column("measured_bytes_per_s", NUMBER, "DRAM bytes per second of that", is_optional=True),
        _DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
    ),
    rows="operators",
    header="Operator",
    group=PROGRAM,
    short="operator roofline",
    bars=("compute_pct", "memory_pct"),
    minor=(
        *("types", "total_ns", "work_flop", "data_bytes", "work_flop_per_byte", "kind", "shortest_ns"),
        *("measured_flop", "measured_bytes", "measured_ns", "measured_flop_per_s", "measured_bytes_per_s"),
    ),
    constant=("device", "gpu"),
    jump="operator",
    names="code",
)

OPERATOR_ROOFS: Final = Entry(
    "operator_roofs",
    "Peaks of operators",
    "The peaks with which operators are compared: of memory as the driver reports it, else as published; of arithmetic "
    "as published, for dense matrices.",
    ("kernels", "api_calls", "cpu_ops"),
    (
        _DEVICE,
        Column("gpu", TEXT, "name of the GPU", is_plain=True),
        Column("roof", TEXT, "DRAM, or the arithmetic", is_plain=True),
        Column("bytes_per_s", NUMBER, "bandwidth, if the roof is a memory", is_plain=True),
        Column("flop_per_s", NUMBER, "operations per second, if the roof is arithmetic", is_plain=True),
    ),
    rows="peaks",
    header="Peak",
    named_by="roof",
    place="method",
)

DEVICES: Final = Entry(
    "devices",
    "Devices",
    "The GPUs of the machine, as the driver describes them.",
    ("devices",),
    (
        _DEVICE,
        Column("name", TEXT, "name of the GPU", is_plain=True),
        Column("used", TEXT, "whether anything in the capture ran on it", is_plain=True),
        Column("compute_capability", TEXT, "compute capability", is_plain=True),
        Column("multiprocessors", WHOLE, "number of SMs", is_plain=True),
        Column("memory_bytes", WHOLE, "size of device memory", is_plain=True),
        Column("l2_bytes", WHOLE, "size of the L2 cache", is_plain=True),
        Column("memory_bandwidth_bytes_per_s", WHOLE, "bandwidth of device memory", is_plain=True),
        Column("clock_hz", WHOLE, "highest SM clock", is_plain=True),
    ),
    rows="devices",
    header="Device",
    named_by="device",
    place="method",
)

DIAGNOSTICS: Final = Entry(
    "diagnostics",
    "Diagnostics",
    "Warnings and errors that the profiler recorded about its own work. File paths are left out.",
    ("diagnostics",),
    (
        Column("severity", TEXT, "`warning` or `error`", is_plain=True),
        Column("times", WHOLE, "how many times", is_plain=True),
        Column("text", TEXT, "the profiler's words", is_plain=True),
    ),
    rows="warnings and errors",
    header="Text",
    named_by="text",
    place="method",
)

PROFILER_OVERHEAD: Final = Entry(
    "profiler_overhead",
    "Profiler overhead",
    "Time that the profiler itself took inside the program, by activity. It is part of the times above.",
    ("overheads",),
    (
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("count", WHOLE, "how many times", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("name", TEXT, "the activity", is_plain=True),
    ),
    rows="kinds of overhead",
    header="Activity",
    place="method",
    bars=("total_ns",),
)

NOT_SHOWN: Final = Entry(
    "not_shown",
    "Recorded but not shown",
    "Events that the profiler recorded and that this report does not use.",
    ("unread",),
    (
        Column("kind", TEXT, "kind of event", is_plain=True),
        Column("events", WHOLE, "number of events", is_plain=True),
        Column("source", TEXT, "the table or event category, as the file names it"),
    ),
    rows="events that are not shown",
    header="Events",
    named_by="kind",
    place="method",
)

RESULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Entry))
"""Every entry above, in this order."""

_BY_NAME: Final = {entry.name: entry for entry in RESULTS}


def entry_of(name: str) -> Entry | None:
    """Return the entry of the result called `name`; None if only another version of nightsight has it."""
    return _BY_NAME.get(name)
