"""The register: every result a report can hold, with its definition, its columns and its place on the page.

Analyses compute the tables, advice and renderers refer to them by these constants, and docs/report-json.md is written
from them. The order is that of the report: an entry stands where its result is to be shown.
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
"""Where a result stands: a section of its own, the one before the advice, under *How this was measured*, or in a
picture of another result whose points it is."""

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
]
"""What a row is in the timeline of the page, and so how it is found there (templates/scripts/tables/jumps.js)."""

Names = Literal["", "code", "kernel", "replay", "prose"]
"""How style sheets set the first column: as names of a program, as those of kernels, which are long, as those of
replayed kernels, which stay in sight while the table is scrolled, or with sentences below the names."""


@dataclass(frozen=True)
class Column:
    """A column of a result; its unit is the suffix of its name (`nightsight.units`).

    values: the texts it can hold, each with what it means. is_optional: left out of the table where the capture has
    nothing of the kind. is_plain: its heading says it all, so the page does not explain it.
    """

    name: str
    type: Type
    meaning: str
    values: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False
    is_plain: bool = False


@dataclass(frozen=True)
class Entry:
    """One result: what it is, what it needs, what its columns mean, and how it is shown.

    needs: canonical tables without which it cannot be computed. help: what a row is and what the table leaves out; the
    columns say the rest. rows: what its rows are, in the plural. header: the heading of the first column of the page,
    which shows column `named_by`. full: the column that says more about each name. bars: columns with a bar in each
    cell. minor: columns that a wide table shows on request. constant: columns that are left out where all rows agree.
    is_folded: a picture says the same. kernels: columns with names of kernels, which a page tells apart. numbered: the
    column whose texts begin with the number of a replay. group, short: its place and title in the navigation. is_core:
    where it is missing the page says so in its place.
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

    @property
    def column_names(self) -> list[str]:
        """The names of all columns, in their order."""
        return [column.name for column in self.columns]

    def check(self, table: pd.DataFrame) -> None:
        """Raise ValueError where a table has other columns than this entry says, or in another order."""
        expected = [column.name for column in self.columns if not column.is_optional or column.name in table]
        if list(table.columns) != expected:
            raise ValueError(f"{self.name} has the columns {list(table.columns)}, not {expected}")


# categories of the time of a device, each in the order in which it is taken off the window
COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies and sets"
GRAPHS: Final = "CUDA graphs"
MODULE: Final = "module load and JIT"
ALLOCATION: Final = "allocation and free"
BLOCKING_COPY: Final = "blocking copy"
LAUNCH: Final = "launch"
DEPENDENCY: Final = "dependency"
SYNC: Final = "synchronizing call"
OTHER_CALL: Final = "other CUDA call"
UNKNOWN: Final = "unknown"
HOST: Final = "host code"
BUSY: Final = (COMPUTE, COMMUNICATION, COPIES, GRAPHS)
IDLE: Final = (MODULE, ALLOCATION, BLOCKING_COPY, LAUNCH, DEPENDENCY, SYNC, OTHER_CALL, UNKNOWN, HOST)
_CATEGORIES: Final = (
    (COMPUTE, "kernels"),
    (COMMUNICATION, "NCCL and NVSHMEM kernels, and copies between devices"),
    (COPIES, "other copies, and sets"),
    (GRAPHS, "CUDA graphs that were traced as a whole"),
    (MODULE, "a call that loads a module or compiles"),
    (ALLOCATION, "a call that allocates or frees memory"),
    (BLOCKING_COPY, "a copy that blocks: without Async, or of pageable memory"),
    (
        LAUNCH,
        "the call that launched the operation after the gap was under way, or had returned less than 10 µs ago (a note "
        "says where clocks of GPUs do not allow that)",
    ),
    (DEPENDENCY, "that call had returned earlier: the operation waited on the GPU, for an event or for its turn"),
    (SYNC, "a call that waits for the GPU"),
    (OTHER_CALL, "any other CUDA call"),
    (UNKNOWN, "the launching call was not recorded"),
    (HOST, "no CUDA call at all"),
)
_STALLS: Final = (
    ("barrier", "waits for the other warps of its block at a barrier"),
    ("branch resolving", "waits for the target of a branch"),
    ("dispatch stall", "the dispatcher holds the issue back"),
    ("drain", "has ended, and its stores are still on their way"),
    ("imc miss", "a constant is not in the cache for immediate constants"),
    ("lg throttle", "the queue for local and global memory instructions is full"),
    ("long scoreboard", "waits for global, local, texture or surface memory (L1TEX)"),
    ("math pipe throttle", "the arithmetic pipe it needs is taken"),
    ("membar", "waits at a memory barrier"),
    ("mio throttle", "the queue for shared memory, special functions and dynamic branches is full"),
    ("misc", "any other reason"),
    ("no instruction", "its next instruction is not there yet (instruction cache)"),
    ("not selected", "could have issued; another warp was chosen"),
    ("short scoreboard", "waits for shared memory or a special function (MIO)"),
    ("sleeping", "sleeps, as the program asked for"),
    ("tex throttle", "the queue for texture instructions is full"),
    ("wait", "a fixed delay between dependent instructions"),
    ("warpgroup arrive", "waits for tensor cores that work for a whole warp group"),
)

GPU: Final = "GPU"
LAUNCHES: Final = "Launches"
NCU: Final = "Nsight Compute"
PROGRAM: Final = "Program"

_OPERATIONS: Final = ("kernels", "memory_ops")
_LAUNCHED: Final = ("kernels", "memory_ops", "api_calls")
_REPLAYED: Final = ("profiled_launches", "kernel_metrics")

_DEVICE: Final = Column("device", WHOLE, "the GPU, by its number in the machine", is_plain=True)
_PID: Final = Column("pid", WHOLE, "the process, by its number in the system", is_plain=True)
_CALLS: Final = Column("calls", WHOLE, "how many calls", is_plain=True)
_COUNT: Final = Column("count", WHOLE, "how many", is_plain=True)
_INSTANCES: Final = Column("instances", WHOLE, "how many", is_plain=True)
_FUNCTION: Final = Column("name", TEXT, "the CUDA function", is_plain=True)
_PATH: Final = Column(
    "path", TEXT, "the NVTX ranges around it, outermost first, joined by ` / `; empty: outside of all"
)
_LAUNCH: Final = Column("launch", WHOLE, "the replayed launch, by its number in the order of the replay")
_KERNEL_OF: Final = Column("name", TEXT, "its kernel", is_plain=True)
_STEPS: Final = (
    Column("steps", WHOLE, "in how many repetitions of a range, in its process, it was called"),
    Column("of_steps", WHOLE, "how many repetitions that range has there"),
)


def _times(of: str) -> Iterator[Column]:
    """Return the columns of `nsys stats` for durations."""
    yield Column("time_pct", NUMBER, f"share of the time of all {of}; not of wall time")
    yield Column("total_ns", WHOLE, "sum", is_plain=True)
    yield Column("calls" if "calls" in of else "instances", WHOLE, "how many", is_plain=True)
    yield Column("avg_ns", NUMBER, "mean", is_plain=True)
    yield Column("med_ns", NUMBER, "median", is_plain=True)
    yield Column("min_ns", WHOLE, "shortest", is_plain=True)
    yield Column("max_ns", WHOLE, "longest", is_plain=True)
    yield Column("stddev_ns", NUMBER, "standard deviation of the sample", is_plain=True)


def _classes(of: str) -> tuple[Column, ...]:
    """Return the columns of a distribution in classes."""
    return (
        _DEVICE,
        Column("figure", TEXT, "what is counted"),
        Column("from_ns", WHOLE, "the class begins here"),
        Column("below_ns", WHOLE, "and ends before this"),
        _COUNT,
        Column("total_ns", WHOLE, "their time together"),
        Column("med_ns", NUMBER, f"median of all {of}, the same in each row"),
        Column("p95_ns", NUMBER, f"of all {of}, 19 of 20 take no longer; the same in each row"),
    )


GPU_TIME: Final = Entry(
    "gpu_time",
    "GPU time",
    "What each GPU did in the window that the report is about. Sums by kind count every operation, so work on several "
    "streams can add up to more than busy.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("window", TEXT, "where the window comes from"),
        Column("window_ns", WHOLE, "its length"),
        Column("busy_ns", WHOLE, "the part in which at least one operation ran; overlaps count once"),
        Column("idle_ns", WHOLE, "the rest of the window"),
        Column("busy_pct", NUMBER, "busy in percent of the window"),
        Column("kernels", WHOLE, "kernels that ran in the window", is_plain=True),
        Column("kernel_ns", WHOLE, "their time in the window", is_plain=True),
        Column("copies", WHOLE, "copies", is_plain=True),
        Column("copy_ns", WHOLE, "their time in the window", is_plain=True),
        Column("copied_bytes", WHOLE, "what they copied", is_plain=True),
        Column("sets", WHOLE, "memory sets", is_plain=True),
        Column("set_ns", WHOLE, "their time in the window", is_plain=True),
        Column("graph_launches", WHOLE, "CUDA graphs that were traced as a whole"),
        Column("graph_ns", WHOLE, "their time in the window", is_plain=True),
        Column("launches", WHOLE, "launches of kernels and graphs; one of a graph counts once"),
        Column("launch_api_med_ns", NUMBER, "median time of the CPU in a launch call"),
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
    "Every instant of the window belongs to one row of each device, so the rows add up to the window.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("group", TEXT, "`busy` or `idle`", is_plain=True),
        Column(
            "category",
            TEXT,
            "busy: what ran. Idle: what the CPU did in the process whose operation ended the gap. The first that "
            "applies",
            _CATEGORIES,
        ),
        Column("time_ns", WHOLE, "its part of the window"),
        Column("share_pct", NUMBER, "the same in percent of the window"),
        Column("hidden_ns", WHOLE, "what ran behind a category further up; not part of the time"),
        Column("functions", TEXT, "the CUDA functions with most of the time, at most three"),
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

GPU_GAPS: Final = Entry(
    "gpu_gaps",
    "Longest idle gaps",
    "Stretches of the window in which nothing ran on a GPU: the 100 longest of each.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("time_ns", WHOLE, "when it began, since the start of the window"),
        Column("gap_ns", WHOLE, "its length"),
        Column("share_pct", NUMBER, "in percent of the window"),
        Column("cause", TEXT, "the idle category of *Where the time went* with most of it"),
        Column("cause_pct", NUMBER, "the share of that category in the gap"),
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

GPU_UTILIZATION: Final = Entry(
    "gpu_utilization",
    "Utilization over time",
    "The window in 30 equal stretches.",
    _OPERATIONS,
    (
        _DEVICE,
        Column("from_ns", WHOLE, "start of the stretch, since the start of the window"),
        Column("to_ns", WHOLE, "its end"),
        Column("busy_pct", NUMBER, "the share of it in which at least one operation ran"),
    ),
    rows="stretches of the window",
    place="points",
)

CUDA_GPU_KERN_SUM: Final = Entry(
    "cuda_gpu_kern_sum",
    "Kernel time",
    "Execution time on the GPU, by kernel.",
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
    "Copies and sets by direction and kind of memory. Pageable host memory goes through a buffer of the driver, and "
    "the call waits; pinned memory does neither.",
    ("memory_ops",),
    (
        Column("operation", TEXT, "`memcpy` with its direction, or `memset`", is_plain=True),
        Column("source_kind", TEXT, "kind of memory that is read", is_plain=True),
        Column("target_kind", TEXT, "kind of memory that is written", is_plain=True),
        _COUNT,
        Column("time_pct", NUMBER, "share of the time of all copies and sets; not of wall time"),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("avg_ns", NUMBER, "mean", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("avg_bytes", NUMBER, "mean", is_plain=True),
        Column("max_bytes", WHOLE, "largest", is_plain=True),
        Column("rate_bytes_per_s", NUMBER, "bytes over time of the operations themselves"),
        Column(
            "peak_pct",
            NUMBER,
            "the share of their time that they would take at the peak of what they cross: the device's memory (a copy "
            "inside it reads and writes each byte), the PCIe link in one direction, NVLink between devices. Small "
            "copies never come near it. Empty: the peak is not known",
        ),
    ),
    rows="copies and sets",
    header="Operation",
    group=GPU,
    short="memory operations",
    is_core=True,
    bars=("time_pct",),
    jump="copy",
)

COPY_SIZES: Final = Entry(
    "copy_sizes",
    "Copy sizes",
    "Copies by direction, kind of host memory and size, in classes that double. Many small copies cost more in calls "
    "and latency than in bytes.",
    ("memory_ops",),
    (
        Column("operation", TEXT, "direction of the copy", is_plain=True),
        Column("host_kind", TEXT, "kind of host memory, if any", is_plain=True),
        Column("from_bytes", WHOLE, "the class begins at this size"),
        Column("below_bytes", WHOLE, "and ends before this one"),
        _COUNT,
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("rate_bytes_per_s", NUMBER, "bytes over time of the copies themselves"),
    ),
    rows="sizes of copies",
    header="Operation",
    named_by="operation",
    group=GPU,
    short="copy sizes",
    jump="copy",
)

SLOW_COPIES: Final = Entry(
    "slow_copies",
    "Copies and sets that make the CPU wait",
    "Copies from or to pageable host memory, and copies and sets by calls that block (cudaMemcpy without Async; "
    "cudaMemset of pinned or managed memory), by the range that the call was made in.",
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
        Column("cpu_ns", WHOLE, "time of the CPU in the calls, which includes waiting for earlier work"),
        Column(
            "exposed_ns",
            WHOLE,
            "from the start of the call to the end of the copy, the time of the window in which the GPU ran no kernel",
        ),
        _PID,
    ),
    rows="copies and sets that make the CPU wait",
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
    "What rates are compared with. Memory and L2: as the driver says, else as published. Links: as published, half of "
    "the figure for both directions; a board in a slot with fewer lanes has less.",
    ("devices",),
    (
        _DEVICE,
        Column("name", TEXT, "the GPU", is_plain=True),
        Column("memory_bytes_per_s", NUMBER, "of the device's memory", is_plain=True),
        Column("pcie_generation", WHOLE, "of the link to the host", is_plain=True),
        Column("host_link_bytes_per_s", NUMBER, "of that link, in one direction", is_plain=True),
        Column("nvlink_bytes_per_s", NUMBER, "to other GPUs, in one direction", is_plain=True),
        Column("l2_bytes", WHOLE, "size of the L2 cache", is_plain=True),
        Column("source", TEXT, "where the figures come from", is_plain=True),
    ),
    rows="devices",
    place="method",
)

LAUNCH_OVERHEAD: Final = Entry(
    "launch_overhead",
    "Launch overhead",
    "What launches cost the CPU, by kernel. API, queue and execution overlap, so they do not add up. The first launch "
    "of a kernel also loads its code: compare the maximum.",
    ("kernels", "api_calls"),
    (
        Column("launches", WHOLE, "how many", is_plain=True),
        Column("api_total_ns", WHOLE, "time of the CPU in the launch calls"),
        Column("api_med_ns", NUMBER, "median of it", is_plain=True),
        Column("api_max_ns", WHOLE, "longest", is_plain=True),
        Column("queued", WHOLE, "how many began after their call had returned"),
        Column(
            "queue_med_ns",
            NUMBER,
            "of these, median time from the end of the call to the start of the kernel; no overhead in itself, the GPU "
            "had other work",
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
    short="overhead",
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
    "Figures of the launches whose work began in the window. They measure different things and must not be added up. "
    "A launch of a CUDA graph is one launch.",
    _LAUNCHED,
    (
        _DEVICE,
        Column(
            "figure",
            TEXT,
            "what is measured",
            (
                ("API time", "of the CPU in the launch call"),
                (
                    "launch latency",
                    "from the start of the call to the start on the GPU, where the stream was empty when the call "
                    "began and no other work of the device ended in between; below 0 where the clock of the GPU is "
                    "behind",
                ),
                (
                    "queue time (no overhead)",
                    "the same for all others: they stood behind earlier work, which is not overhead",
                ),
            ),
        ),
        Column(
            "launch",
            TEXT,
            "which launches",
            (
                ("first", "the first recorded launch of a kernel in a process, which may load or compile it"),
                ("steady", "all others"),
            ),
        ),
        _COUNT,
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p95_ns", NUMBER, "19 of 20 take no longer"),
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
    "Whether the CPU keeps ahead of each GPU. An operation is in flight from the return of its call (or its start, if "
    "that comes first) to its end.",
    _LAUNCHED,
    (
        _DEVICE,
        Column("launches", WHOLE, "launches whose work began in the window", is_plain=True),
        Column("launch_idle_ns", WHOLE, "the category *launch* of *Where the time went*"),
        Column("launch_idle_pct", NUMBER, "the same in percent of the window"),
        Column(
            "first_launch_idle_ns",
            WHOLE,
            "the part of it in which the first launch of a kernel, which may load or compile it, took longer than the "
            "median of later ones",
        ),
        Column("in_flight_avg", NUMBER, "operations in flight, mean over the window", is_plain=True),
        Column("in_flight_max", WHOLE, "operations in flight, at most", is_plain=True),
        Column("drained", WHOLE, "how often none was left before the end of the window"),
        Column(
            "drained_in_sync",
            WHOLE,
            "how often the CPU was in a synchronizing call then; otherwise it was too slow to launch",
        ),
        Column("functions", TEXT, "these calls, the most frequent first"),
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
        Column("in_flight_avg", NUMBER, "operations handed over and not ended, mean"),
        Column("in_flight_max", WHOLE, "the same, at most"),
    ),
    rows="stretches of the window",
    place="points",
)

KERNEL_DURATIONS: Final = Entry(
    "kernel_durations",
    "Kernel durations",
    "How many kernels took how long, in ten classes per decade. A class without a kernel has no row; the sums are "
    "those of *Kernel time*.",
    ("kernels",),
    _classes("kernels of the device"),
    rows="classes of durations",
    place="points",
)

LAUNCH_LATENCIES: Final = Entry(
    "launch_latencies",
    "Launch latencies",
    "API time and launch latency of *Launch figures*, first and steady launches together, in classes as in *Kernel "
    "durations*.",
    _LAUNCHED,
    _classes("launches of the figure and device"),
    rows="classes of durations",
    place="points",
)

NCU_MATCH: Final = Entry(
    "ncu_match",
    "Replays and timeline",
    "How many of ncu's replays belong to a kernel of the timeline: one with the same normalised name, grid and block "
    "that ran in the window. NVTX ranges tell several replays of one kernel apart.",
    ("profiled_launches",),
    (
        Column("replayed", WHOLE, "launches that ncu measured", is_plain=True),
        Column("matched", WHOLE, "those with a kernel in the timeline"),
        Column("match_pct", NUMBER, "the same in percent"),
        Column(
            "coverage_pct",
            NUMBER,
            "the share of the time of all kernels of the window, and of CUDA graphs that were traced as a whole, that "
            "the matched kernels take",
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
    "Launches that Nsight Compute (ncu) replayed, with what the timeline says of the kernels that each stands for: "
    "those of the same name, grid and block in the window. An empty cell was not collected, or is a ratio of nothing.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("grid", TEXT, "blocks", is_plain=True),
        Column("block", TEXT, "threads of a block", is_plain=True),
        Column(
            "path",
            TEXT,
            "the NVTX ranges around the launch; where its thread had none, those in which the kernel took most time in "
            "the timeline",
        ),
        _DEVICE,
        Column(
            "gpu_pct",
            NUMBER,
            "share of these kernels in the time of all kernels of the window; where one kernel was replayed in several "
            "ranges, of those in its own",
        ),
        Column("launches", WHOLE, "how many these are in the timeline"),
        Column("timeline_med_ns", NUMBER, "their median duration in the timeline"),
        Column("gpu_total_ns", WHOLE, "their time in the timeline"),
        Column("busiest_gpu_ns", WHOLE, "the same on the GPU with most of it"),
        Column(
            "replay_ns", NUMBER, "duration of the replay, with ncu's clocks and caches: compare it with no other time"
        ),
        Column("sm_pct", NUMBER, "throughput of the multiprocessors, in percent of the peak that can be sustained"),
        Column("memory_pct", NUMBER, "throughput of memory and caches, likewise"),
        Column("dram_pct", NUMBER, "throughput of DRAM, likewise"),
        Column("l2_pct", NUMBER, "throughput of L2, likewise"),
        Column("l1_pct", NUMBER, "throughput of L1, likewise"),
        Column("l2_hit_pct", NUMBER, "hit rate of L2", is_plain=True),
        Column("l1_hit_pct", NUMBER, "hit rate of L1", is_plain=True),
        Column("tensor_pct", NUMBER, "cycles in which the tensor pipe is active"),
        Column("occupancy_pct", NUMBER, "active warps, in percent of the most that a multiprocessor holds"),
        Column("theoretical_pct", NUMBER, "the highest occupancy that the launch allows"),
        Column("limiter", TEXT, "what keeps that from being higher"),
        Column("registers", WHOLE, "of a thread", is_plain=True),
        Column("shared_bytes", WHOLE, "shared memory of a block, the driver's own included"),
        Column("waves", NUMBER, "blocks of the grid over blocks that fit the GPU at once"),
        Column("tail_pct", NUMBER, "the last, partial wave as a share of all waves: the most it can cost"),
        Column(
            "sectors_per_request",
            NUMBER,
            "32-byte sectors that a global load of a warp touches; 4 are needed for 4 bytes a thread",
        ),
        Column("excessive_pct", NUMBER, "global sectors beyond what the bytes asked for would fill"),
    ),
    rows="replayed kernels",
    header="Kernel",
    group=NCU,
    short="kernels",
    bars=("gpu_pct",),
    minor=(
        "l2_pct",
        "l1_pct",
        "l2_hit_pct",
        "l1_hit_pct",
        "tensor_pct",
        "theoretical_occupancy_pct",
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

NCU_RULES: Final = Entry(
    "ncu_rules",
    "Rules of Nsight Compute",
    "What ncu's rules say of each replayed launch. Its estimates overlap: they do not add up, neither of one kernel "
    "nor of one rule.",
    ("profiled_launches", "kernel_rules"),
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("rule", TEXT, "ncu's name of the rule", is_plain=True),
        Column("title", TEXT, "ncu's title", is_plain=True),
        Column("message", TEXT, "ncu's text", is_plain=True),
        Column(
            "kind",
            TEXT,
            "what sort of rule spoke",
            (
                ("optimization", "advice"),
                ("warning", "a warning"),
                ("info", "a verdict, which says what is so and has no estimate"),
            ),
        ),
        Column(
            "speedup_kind",
            TEXT,
            "what ncu estimates",
            (
                ("global", "how much shorter the launch could get"),
                ("local", "how much better one unit could be used, which says nothing of the launch's time"),
            ),
        ),
        Column("speedup_pct", NUMBER, "ncu's estimate"),
        Column(
            "bound_pct", NUMBER, "a global estimate times the kernel's share of the time of all kernels of the window"
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
    "What each replayed launch computes, by kind of arithmetic, per second and per byte that all of the launch "
    "moved. A fused multiply-add is two operations. Times and clocks are those of the replay; bytes without a rate "
    "are divided by its time.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        _DEVICE,
        Column(
            "kind",
            TEXT,
            "the arithmetic; of tensor cores by type of the input, from ncu's counters of operations, else by "
            "instruction. FP16 is without instructions that only load a constant",
        ),
        Column("flop_per_s", NUMBER, "operations per second; of integers likewise"),
        Column("flop_per_byte", NUMBER, "operations per byte of DRAM traffic"),
        Column("l2_flop_per_byte", NUMBER, "operations per byte between L2 and the multiprocessors"),
        Column("peak_pct", NUMBER, "of the roof of that kind that is drawn, at the clock of the GPU's longest replay"),
        Column(
            "clock_hz",
            NUMBER,
            "clock of the launch; one that ran at a lower clock, as it does if power is short, cannot reach the roof",
        ),
    ),
    rows="kinds of arithmetic",
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
    "What each GPU can sustain, as its own reports say: peak per cycle times the clock of the unit in its longest "
    "replay, at most the clock that the driver tells.",
    _REPLAYED,
    (
        _DEVICE,
        Column("gpu", TEXT, "its name", is_plain=True),
        Column(
            "roof",
            TEXT,
            "DRAM: both directions together. L2: from the cache to the multiprocessors. Tensor: the fastest "
            "instruction of the type on dense matrices",
        ),
        Column("bytes_per_s", NUMBER, "of a memory", is_plain=True),
        Column("flop_per_s", NUMBER, "of arithmetic", is_plain=True),
    ),
    rows="roofs",
    header="Roof",
    named_by="roof",
    place="method",
)

NCU_STALLS: Final = Entry(
    "ncu_stalls",
    "Warp stalls",
    "The five largest reasons why the warps of a replayed launch did not issue an instruction.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("reason", TEXT, "why they waited", _STALLS),
        Column(
            "stall_pct",
            NUMBER,
            "of all cycles in which warps were stalled (of samples, where cycles were not collected)",
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
    "Instructions that the warps of a replayed launch executed. An instruction counts once, whatever work it does: one "
    "of a tensor core does that of thousands of others.",
    _REPLAYED,
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("instructions", NUMBER, "all of them", is_plain=True),
        Column("fp64_pct", NUMBER, "arithmetic in FP64", is_plain=True),
        Column("fp32_pct", NUMBER, "in FP32", is_plain=True),
        Column("fp16_pct", NUMBER, "in FP16; HFMA2 is here, with which compilers also load constants"),
        Column("integer_pct", NUMBER, "with logic, shifts and the uniform datapath"),
        Column("tensor_pct", NUMBER, "of tensor cores", is_plain=True),
        Column("load_store_pct", NUMBER, "of any memory", is_plain=True),
        Column("control_pct", NUMBER, "branches, barriers, waiting"),
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
    "The source lines of each replayed launch on which most samples of its warps fell, at most ten; instructions "
    "(SASS) where the program has no line information (nvcc -lineinfo; Triton has it).",
    ("profiled_launches", "kernel_lines"),
    (
        _LAUNCH,
        _KERNEL_OF,
        Column("file", TEXT, "its name without folders", is_plain=True),
        Column("line", WHOLE, "in that file", is_plain=True),
        Column("pc", WHOLE, "address of the instruction in the kernel"),
        Column("source", TEXT, "text of the line, if ncu imported it (--import-source), or the instruction"),
        Column("samples", WHOLE, "samples on it", is_plain=True),
        Column("share_pct", NUMBER, "of all samples of the launch"),
        Column("stall", TEXT, "why most of them did not issue, as in *Warp stalls*"),
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
    "What each range of the program takes on the CPU and on the GPU, ranges inside it included. An operation belongs "
    "to the innermost range open on the launching thread, else to the innermost open in the process at that time. "
    "Sums can exceed the time of the range.",
    ("ranges",),
    (
        Column("path", TEXT, "the range and those around it, outermost first, joined by ` / `"),
        _PID,
        _INSTANCES,
        Column("cpu_total_ns", WHOLE, "from start to end on the CPU", is_plain=True),
        Column("cpu_med_ns", NUMBER, "median of it", is_plain=True),
        Column("cpu_min_ns", WHOLE, "shortest", is_plain=True),
        Column("cpu_max_ns", WHOLE, "longest", is_plain=True),
        Column("style", TEXT, "`PushPop` or `StartEnd`", is_plain=True),
        Column("level", WHOLE, "how many ranges are around it", is_plain=True),
        Column("kernels", WHOLE, "launched inside it", is_optional=True),
        Column("kernel_ns", WHOLE, "their time", is_optional=True),
        Column("copies", WHOLE, "launched inside it", is_optional=True, is_plain=True),
        Column("copy_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("sets", WHOLE, "launched inside it", is_optional=True, is_plain=True),
        Column("set_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("graph_launches", WHOLE, "CUDA graphs traced as a whole", is_optional=True, is_plain=True),
        Column("graph_ns", WHOLE, "their time", is_optional=True, is_plain=True),
        Column("launches", WHOLE, "launches of kernels and graphs", is_optional=True, is_plain=True),
        Column("gpu_busy_ns", WHOLE, "time in which a GPU worked on what was launched inside", is_optional=True),
        Column("gpu_idle_ns", WHOLE, "time from the first to the last of it in which none did", is_optional=True),
    ),
    rows="ranges",
    header="Range",
    group=PROGRAM,
    short="ranges",
    is_core=True,
    bars=("cpu_total_ns", "kernel_ns"),
    constant=("pid",),
    jump="range",
    names="code",
)

RANGE_COVERAGE: Final = Entry(
    "range_coverage",
    "GPU work in ranges",
    "How much of the GPU's work belongs to a range. Pages of managed memory that move by themselves are not counted.",
    ("ranges", *_LAUNCHED),
    (
        Column("operations", WHOLE, "kernels, copies, sets and graph launches", is_plain=True),
        Column("on_thread", WHOLE, "launched by the thread of the range"),
        Column("in_process", WHOLE, "launched by another thread of the process, as PyTorch's backward pass is"),
        Column("outside", WHOLE, "launched while no range was open"),
        Column("without_call", WHOLE, "the launching call was not recorded, so no range can be found"),
        Column("attributed", WHOLE, "on thread and in process together"),
        Column("coverage_pct", NUMBER, "the same in percent of all"),
    ),
    rows="captures",
    header="Operations",
    named_by="operations",
    place="method",
)

RANGE_ITERATIONS: Final = Entry(
    "range_iterations",
    "Repetitions of ranges",
    "CPU time of ranges that occur at least three times. Names that differ only by a number are one range.",
    ("ranges",),
    (
        Column("path", TEXT, "the range, with `#` for the number", is_plain=True),
        _PID,
        _INSTANCES,
        Column("first_ns", WHOLE, "the one that began first, which often pays for loading and allocation"),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p95_ns", NUMBER, "19 of 20 take no longer"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("outliers", TEXT, "those that took more than 1.5 times the median, counted from 0"),
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

ITERATION_TIMES: Final = Entry(
    "iteration_times",
    "Times of repetitions",
    "Each instance of the three outermost repeated ranges, in the order they began: at most 2,000 of each, evenly "
    "picked, and always the slowest five.",
    ("ranges",),
    (
        Column("path", TEXT, "the range, as in *Repetitions of ranges*"),
        _PID,
        Column("number", WHOLE, "counted from 0", is_plain=True),
        Column("start_ns", WHOLE, "since the start of the window", is_plain=True),
        Column("time_ns", WHOLE, "time on the CPU", is_plain=True),
        Column(
            "gpu_busy_ns",
            WHOLE,
            "time in which the GPU worked on what was launched inside: overlaps once, devices added up",
        ),
    ),
    rows="repetitions",
    place="points",
)

NVTX_MARKS: Final = Entry(
    "nvtx_marks",
    "NVTX marks",
    "Instants that the program marked, inside the window or not.",
    ("marks",),
    (
        _INSTANCES,
        Column("first_ns", WHOLE, "the first, since the start of the window; negative before it"),
        Column("last_ns", WHOLE, "the last", is_plain=True),
        Column("median_interval_ns", NUMBER, "from one to the next of the same thread"),
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
    "Calls in which the CPU waits for the GPU, by function and the range they were made in. A driver call inside a "
    "runtime call is not counted again.",
    ("api_calls", *_OPERATIONS),
    (
        Column("calls", WHOLE, "how many", is_plain=True),
        Column("total_ns", WHOLE, "time of the CPU in the calls", is_plain=True),
        Column("idle_ns", WHOLE, "the part of it in which no GPU work of that process ran"),
        Column(
            "lost_ns",
            WHOLE,
            "the most that the window could be shorter without the call: its own time, or what a GPU idles from its "
            "start until its thread waits again if that is less. Waits between which the thread launches nothing are "
            "one: what they cost together is said of the longest",
        ),
        Column("other_waits", WHOLE, "how many more waits that includes"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        *_STEPS,
        Column(
            "kind",
            TEXT,
            "whether waiting is its purpose",
            (
                ("explicit", "...Synchronize"),
                (
                    "implicit",
                    "copies that return only when they are done (blocking ones, and those to pageable memory), frees, "
                    "and allocations that spent most of their time until all earlier work was done",
                ),
            ),
        ),
        _FUNCTION,
        _PATH,
        _PID,
        Column("frame", TEXT, "the innermost frame of the stack that made the call", is_optional=True),
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
    "Calls into the libraries of the operating system, summed over all threads. Threads that wait all the time, in "
    "poll or pthread_cond_wait, come first and cost nothing. Calls shorter than a microsecond are not recorded.",
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
    "Calls that load modules or compile, or that allocate or free memory, by function and the range they were made in. "
    "A program that has warmed up makes none of them. A driver call inside a runtime call is not counted again.",
    _LAUNCHED,
    (
        Column("calls", WHOLE, "how many", is_plain=True),
        Column("total_ns", WHOLE, "time of the CPU in the calls, whether the GPU idled or not"),
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
    "What the program allocated. nsys records what was allocated from CUDA; PyTorch keeps memory that its tensors have "
    "released, so they may need less. torch.profiler records what tensors were given.",
    ("memory_usage",),
    (
        _DEVICE,
        Column("kind", TEXT, "kind of memory", is_plain=True),
        Column("peak_bytes", WHOLE, "the most at a time", is_plain=True),
        Column("end_bytes", WHOLE, "what was left at the end of the capture"),
        Column("allocations", WHOLE, "how many", is_plain=True),
        Column("allocated_bytes", WHOLE, "sum", is_plain=True),
        Column("frees", WHOLE, "how many", is_plain=True),
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
    "Memory allocated on each device after each change. Long captures are thinned out: of each piece of time its "
    "highest and its last level are kept.",
    ("memory_usage",),
    (
        _DEVICE,
        Column("time_ns", WHOLE, "since the start of the window", is_plain=True),
        Column("bytes", WHOLE, "allocated from then on", is_plain=True),
    ),
    rows="changes",
    place="points",
)

UNIFIED_MEMORY: Final = Entry(
    "unified_memory",
    "Unified memory",
    "What the driver moved between host and device because a page was touched where it was not, and the page faults "
    "that made it do so. Faults are recorded only on request.",
    ("memory_ops",),
    (
        _PID,
        Column("device", WHOLE, "the GPU, as its process numbers it", is_plain=True),
        Column("event", TEXT, "what happened", is_plain=True),
        Column("count", WHOLE, "how many; of GPU page faults the faults, which come in groups"),
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum; of GPU page faults the time of the groups"),
        Column("rate_bytes_per_s", NUMBER, "bytes over time", is_plain=True),
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
    "Counters that were sampled on the GPU in the window. All that ran on it counts, of other programs too. "
    "Requests, instructions and other counts are those of one sample, warps per cycle those of one multiprocessor. "
    "Left out: warps as [Avg], which adds up those of all cycles of a sample.",
    ("gpu_metrics",),
    (
        _DEVICE,
        Column("metric", TEXT, "with its unit in brackets", is_plain=True),
        Column("mean", NUMBER, "of its samples", is_plain=True),
        Column("max", NUMBER, "of its samples", is_plain=True),
        Column("samples", WHOLE, "how many", is_plain=True),
    ),
    rows="counters",
    header="Metric",
    named_by="metric",
    group=PROGRAM,
    short="GPU metrics",
    constant=("device",),
    jump="counter",
)

CUDA_API_SUM: Final = Entry(
    "cuda_api_sum",
    "CUDA API",
    "Time of the CPU in CUDA calls, by function.",
    ("api_calls",),
    (
        *_times("calls"),
        _FUNCTION,
        Column(
            "layer",
            TEXT,
            "the runtime (cuda...) or the driver below it (cu...); a driver call made by a runtime call is part of the "
            "latter's time too, so the two do not add up",
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

CPU_OPS: Final = Entry(
    "cpu_ops",
    "Operators",
    "PyTorch operators on the CPU. An operator that only calls itself again, with other arguments, is one call, as in "
    "torch's key_averages.",
    ("cpu_ops",),
    (
        Column("own_pct", NUMBER, "own time in percent of that of all operators"),
        Column("own_ns", WHOLE, "time without the operators called inside"),
        Column("total_ns", WHOLE, "time with them", is_plain=True),
        Column("calls", WHOLE, "how many", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("name", TEXT, "the operator", is_plain=True),
    ),
    rows="operators",
    header="Operator",
    group=PROGRAM,
    short="operators",
    bars=("own_pct",),
    jump="operator",
    names="code",
)

DEVICES: Final = Entry(
    "devices",
    "Devices",
    "The GPUs of the machine, as the driver describes them.",
    ("devices",),
    (
        _DEVICE,
        Column("name", TEXT, "of the GPU", is_plain=True),
        Column("used", TEXT, "whether anything in the capture ran on it", is_plain=True),
        Column("compute_capability", TEXT, "as NVIDIA numbers it", is_plain=True),
        Column("multiprocessors", WHOLE, "how many", is_plain=True),
        Column("memory_bytes", WHOLE, "size", is_plain=True),
        Column("l2_bytes", WHOLE, "size", is_plain=True),
        Column("memory_bandwidth_bytes_per_s", WHOLE, "of the device's memory", is_plain=True),
        Column("clock_hz", WHOLE, "highest clock of the multiprocessors", is_plain=True),
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
        Column("times", WHOLE, "how often", is_plain=True),
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
    "Time the profiler took inside the program, by what it did. It is part of the times above.",
    ("overheads",),
    (
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("count", WHOLE, "how often", is_plain=True),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        Column("name", TEXT, "what it did", is_plain=True),
    ),
    rows="kinds of overhead",
    header="What",
    place="method",
    bars=("total_ns",),
)

NOT_SHOWN: Final = Entry(
    "not_shown",
    "In the file and not shown",
    "What the profiler recorded and nothing in this report is made of.",
    ("unread",),
    (
        Column("kind", TEXT, "what it is", is_plain=True),
        Column("events", WHOLE, "how many", is_plain=True),
        Column("source", TEXT, "the table, or the category of events, as the file calls it"),
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
    """Return the entry of a result by name; None for one of another version of nightsight."""
    return _BY_NAME.get(name)
