"""Results on the program: the CUDA API, the system, memory, counters."""

from typing import Final

from nightsight.results.columns import (
    DEVICE,
    DEVICE_OR_CPU,
    FUNCTION,
    LAUNCH_TABLES,
    OPERATION_TABLES,
    PID,
    PROGRAM,
    RANGE_PATH,
    STEPS_WITH,
    times,
)
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

CUDA_API_SYNC: Final = Entry(
    "cuda_api_sync",
    "Synchronization",
    "Calls in which the CPU waits for the GPU, per function and range in which they were made. A driver call inside a "
    "runtime call is not counted again.",
    ("api_calls", *OPERATION_TABLES),
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
        *STEPS_WITH,
        Column(
            "kind",
            TEXT,
            "whether the purpose of the call is to wait",
            (
                ("explicit", "...Synchronize"),
                (
                    "implicit",
                    "copies and memsets that return only when done (blocking ones, and copies to pageable "
                    "memory), frees, and allocations that spent most of their time waiting for earlier work",
                ),
            ),
        ),
        FUNCTION,
        RANGE_PATH,
        PID,
        Column("frame", TEXT, "the innermost stack frame of the call", is_optional=True),
    ),
    rows="synchronizing calls",
    header="Function",
    group=PROGRAM,
    is_core=True,
    bars=("total_ns",),
    constant=("pid",),
    jump="call",
)

GRAPH_RECORDED: Final = "its CUDA graph is recorded"
GRAPH_RECORDED_AGAIN: Final = (
    "its CUDA graph is recorded again: an input has another address or size, or other graphs ran before it"
)
KERNELS_TUNED: Final = "its kernels are tuned"
"""Reasons of COMPILATIONS: what torch.compile does with compiled functions when they are called."""
GRAPHS_SKIPPED: Final = "CUDA graphs are skipped: "
"""Begin of a reason of COMPILATIONS: why torch.compile made no CUDA graph of a function although it was asked to."""
SKIPS_FUNCTION: Final = ", so all of the function runs as Python"
"""End of a graph break that torch.compile cannot continue after."""
WAITING_BREAK: Final = r"^`Tensor\.|\bof a tensor\b"
"""Graph breaks of COMPILATIONS at which the CPU waits for a value from the GPU."""
COMPILATIONS: Final = Entry(
    "compilations",
    "Compilations",
    "What torch.compile compiled, tuned and recorded as CUDA graphs in the window, and why: one row per function and "
    "reason. `nightsight profile` records it from PyTorch's log.",
    ("compilations",),
    (
        Column("compilations", WHOLE, "how often", is_plain=True),
        Column("total_ns", WHOLE, "time of these compilations, including those inside them", is_plain=True),
        Column("idle_ns", WHOLE, "the part of it in which no GPU worked"),
        Column("steps", WHOLE, "number of steps in which one began"),
        Column("of_steps", WHOLE, "number of steps in the window"),
        Column("name", TEXT, "the compiled function, its file and line"),
        Column(
            "reason",
            TEXT,
            "why it was compiled again, tuned or recorded, or got no CUDA graph; empty for the first compilation",
        ),
        Column("fix", TEXT, "code that avoids it"),
        Column("graph_break", TEXT, "what torch.compile could not compile in it, so that it ran as Python"),
    ),
    rows="compiled functions",
    header="Function",
    group=PROGRAM,
    bars=("total_ns",),
)

OSRT_SUM: Final = Entry(
    "osrt_sum",
    "OS runtime",
    "Calls into operating system libraries, summed over all threads. Threads that always wait, in poll or "
    "pthread_cond_wait, come first and cost nothing. Calls shorter than a microsecond are not recorded.",
    ("os_calls",),
    (*times("calls"), Column("name", TEXT, "the function", is_plain=True)),
    rows="OS runtime calls",
    header="Function",
    group=PROGRAM,
    bars=("time_pct",),
)

SETUP_CALLS: Final = Entry(
    "setup_calls",
    "Loading and allocation in the window",
    "Calls that load modules, compile, or allocate or free memory, per function and range in which they were made. A "
    "program that has warmed up makes none of them. A driver call inside a runtime call is not counted again.",
    LAUNCH_TABLES,
    (
        Column("calls", WHOLE, "number of calls", is_plain=True),
        Column("total_ns", WHOLE, "CPU time in the calls, whether the GPU was idle or not"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
        *STEPS_WITH,
        Column("kind", TEXT, "`module load and JIT` or `allocation and free`", is_plain=True),
        FUNCTION,
        RANGE_PATH,
        PID,
    ),
    rows="calls that load, compile, allocate or free",
    header="Function",
    group=PROGRAM,
    bars=("total_ns",),
    constant=("pid",),
    jump="call",
)

MEMORY_USAGE: Final = Entry(
    "memory_usage",
    "Memory usage",
    "Memory that the program allocated. nsys records allocations from CUDA; PyTorch keeps memory that its tensors "
    "have released, so the tensors may need less. torch.profiler records the memory of tensors, also on the CPU.",
    ("memory_usage",),
    (
        DEVICE_OR_CPU,
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
    constant=("device",),
    jump="memory",
)

MEMORY_OVER_TIME: Final = Entry(
    "memory_over_time",
    "Memory over time",
    "Memory allocated on each GPU, and on the CPU where recorded, after each change. Long captures are thinned out: "
    "each interval keeps its highest and its last level.",
    ("memory_usage",),
    (
        DEVICE_OR_CPU,
        Column("time_ns", WHOLE, "since the start of the window", is_plain=True),
        Column("bytes", WHOLE, "allocated from this time onwards", is_plain=True),
        Column(
            "reserved_bytes",
            WHOLE,
            "memory that PyTorch had reserved for tensors; left out if not recorded",
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
        PID,
        Column("device", WHOLE, "number of the GPU in its process", is_plain=True),
        Column("event", TEXT, "what happened", is_plain=True),
        Column("count", WHOLE, "number of events; for GPU page faults the number of faults, which come in groups"),
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum; for GPU page faults the time of the groups"),
        Column("rate_bytes_per_s", NUMBER, "bytes divided by time", is_plain=True),
    ),
    rows="kinds of events",
    header="Event",
    named_by="event",
    group=PROGRAM,
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
        DEVICE,
        Column("metric", TEXT, "the metric, with its unit in brackets", is_plain=True),
        Column("mean", NUMBER, "of its samples", is_plain=True),
        Column("max", NUMBER, "of its samples", is_plain=True),
        Column("samples", WHOLE, "number of samples", is_plain=True),
    ),
    rows="counters",
    header="Metric",
    named_by="metric",
    group=PROGRAM,
    constant=("device",),
    jump="counter",
)

RANGE_COUNTERS: Final = Entry(
    "range_counters",
    "Counters of kernels",
    "Counters of CUPTI's range profiler under torch.profiler: for each kernel, or for ranges of the program if it was "
    "not set to measure single kernels. They cover the whole trace, because these events have no times.",
    ("range_counters",),
    (
        DEVICE,
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
    constant=("device",),
    kernels=("name",),
)

CUDA_API_SUM: Final = Entry(
    "cuda_api_sum",
    "CUDA API",
    "CPU time in CUDA calls, by function.",
    ("api_calls",),
    (
        *times("calls"),
        FUNCTION,
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
    bars=("time_pct",),
    jump="call",
    names="code",
)
