"""The GPU: its gaps, kernels and copies."""

from typing import Final

from nightsight.results.columns import COUNT, DEVICE, FUNCTION, GPU, INSTANCES, OPERATION_TABLES, PID, RANGE_PATH, times
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

GPU_GAPS: Final = Entry(
    "gpu_gaps",
    "Longest idle gaps",
    "Stretches of the window in which nothing ran on a GPU: the 100 longest per GPU.",
    OPERATION_TABLES,
    (
        DEVICE,
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
    constant=("device",),
    jump="span",
    kernels=("before", "after"),
)

IDLE_STACKS: Final = Entry(
    "idle_stacks",
    "Python while the GPU waits",
    "The Python stack while a GPU was idle, from samples or from calls that torch.profiler records: on the thread that "
    "launched the work after the gap, or, if that thread runs no Python (PyTorch's backward pass), on the thread of "
    "its process that launches most. Rows of a device and cause add up to its idle time. Without GPU work: the stack "
    "of each Python thread; its rows add up to the window.",
    (),
    (
        Column("device", WHOLE, "number of the GPU in the machine; none without GPU work", is_plain=True),
        Column("tid", WHOLE, "without GPU work: the thread", is_optional=True),
        Column(
            "cause",
            TEXT,
            "the idle category of *Where the time went*. Without GPU work: `operators`, and `host code` outside them",
        ),
        Column("time_ns", WHOLE, "idle time with this stack; for samples, their number times the sampling interval"),
        Column("share_pct", NUMBER, "the same in percent of the device's idle time, or of the thread's time"),
        Column("samples", WHOLE, "samples of Python with this stack in that time", is_optional=True),
        Column(
            "function",
            TEXT,
            "the innermost function outside libraries, and its line: where it is defined in a torch.profiler "
            "trace, else the most frequent one; `(not recorded)`: time without a stack",
        ),
        Column("calls", TEXT, "the library function that it calls, and where that leads"),
        Column(
            "stack",
            TEXT,
            "its callers, outermost first, and what it calls; library functions in brackets, only the first between "
            "two others, and the last at the end. A stack that takes less than 0.1 % counts for its caller. For a "
            "torch.profiler trace, library functions are left out",
        ),
    ),
    rows="stacks",
    header="Function",
    named_by="function",
    full="stack",
    group=GPU,
    bars=("share_pct",),
    constant=("device", "tid"),
    names="code",
    one_of=("python_samples", "python_functions"),
)

GPU_UTILIZATION: Final = Entry(
    "gpu_utilization",
    "Utilization over time",
    "The window, divided into 30 equal stretches.",
    OPERATION_TABLES,
    (
        DEVICE,
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
    (*times("kernels"), Column("name", TEXT, "the kernel", is_plain=True)),
    rows="kernels",
    header="Kernel",
    group=GPU,
    is_core=True,
    bars=("time_pct",),
    jump="kernel",
    names="kernel",
    kernels=("name",),
)

FUSED_KERNELS: Final = Entry(
    "fused_kernels",
    "Fused kernels",
    "Kernels that torch.compile wrote (Triton): the operators that each of them fuses, the lines of the program that "
    "these come from, and its bandwidth. `nightsight profile` records this from PyTorch's log.",
    ("kernels", "fused_kernels"),
    (
        DEVICE,
        Column("time_pct", NUMBER, "share of the total time of all kernels, not of wall time"),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        INSTANCES,
        Column("avg_ns", NUMBER, "mean", is_plain=True),
        Column("operators", TEXT, "the operators of PyTorch that it fuses, without `aten::`"),
        Column(
            "places",
            TEXT,
            "functions and lines of the program that call these operators; in the backward pass those of the forward "
            "pass; empty if unknown",
        ),
        Column("data_bytes", NUMBER, "least bytes that a launch has to read and write; missing if unknown"),
        Column("data_bytes_per_s", NUMBER, "these bytes per second", is_plain=True),
        Column("memory_pct", NUMBER, "bytes per second, in percent of the memory's peak"),
        Column(
            "work_flop",
            NUMBER,
            "floating-point operations of a launch: one per element of each result, or per element that a reduction "
            "reads; a function such as exp counts as one; missing if unknown",
        ),
        Column("work_flop_per_s", NUMBER, "operations per second", is_plain=True),
        Column(
            "kernels",
            WHOLE,
            "number of different kernels with this name, from several compiled graphs: operators and lines are those "
            "of all of them; bytes and operations are missing unless equal",
        ),
        Column("name", TEXT, "the kernel", is_plain=True),
    ),
    rows="fused kernels",
    header="Kernel",
    group=GPU,
    bars=("memory_pct",),
    minor=("total_ns", "data_bytes", "work_flop", "work_flop_per_s"),
    constant=("device", "kernels"),
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
        COUNT,
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
            "time that the operations would take at the peak rate of the path they use, in percent of the time they "
            "took. Paths: device memory (a copy within a device reads and writes each byte), the PCIe link in one "
            "direction, or NVLink between devices. Small copies never come close. Empty if the peak is unknown",
        ),
    ),
    rows="copies and memsets",
    header="Operation",
    group=GPU,
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
        COUNT,
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("rate_bytes_per_s", NUMBER, "bytes divided by the time of the copies themselves"),
    ),
    rows="copy sizes",
    header="Operation",
    named_by="operation",
    group=GPU,
    jump="copy",
)

SLOW_COPIES: Final = Entry(
    "slow_copies",
    "Blocking copies and memsets",
    "Copies from or to pageable host memory, and copies and memsets by blocking calls (cudaMemcpy without Async; "
    "cudaMemset of pinned or managed memory), per range in which the call was made.",
    ("memory_ops", "api_calls"),
    (
        RANGE_PATH,
        FUNCTION,
        Column("operation", TEXT, "direction of the copy, or `memset`", is_plain=True),
        Column("host_kind", TEXT, "kind of host memory", is_plain=True),
        DEVICE,
        COUNT,
        Column("total_bytes", WHOLE, "sum", is_plain=True),
        Column("copy_ns", WHOLE, "time on the GPU"),
        Column("cpu_ns", WHOLE, "CPU time in the calls, including the wait for earlier work"),
        Column(
            "exposed_ns",
            WHOLE,
            "time from the start of the call to the end of the copy, in the window, in which the GPU ran no kernel",
        ),
        PID,
    ),
    rows="blocking copies and memsets",
    header="Function",
    group=GPU,
    bars=("cpu_ns",),
    constant=("device", "pid"),
    jump="call",
)

STREAMS: Final = Entry(
    "streams",
    "Streams",
    "Work on each stream of a GPU, and how much of it ran at the same time as work on other streams. Work on one "
    "stream runs in order; only work on different streams can overlap. Migrations of managed memory use no stream.",
    OPERATION_TABLES,
    (
        DEVICE,
        Column("pid", WHOLE, "process ID; missing if no launching call was recorded"),
        Column("stream", WHOLE, "the number of the stream in the capture"),
        Column("kernels", WHOLE, "kernels that ran in the window", is_plain=True),
        Column("copies", WHOLE, "copies and memsets that ran in the window"),
        Column("graph_launches", WHOLE, "CUDA graphs traced as a whole", is_optional=True),
        Column("busy_ns", WHOLE, "time of the window in which the stream had work running", is_plain=True),
        Column("busy_pct", NUMBER, "the same in percent of the window"),
        Column("overlap_ns", WHOLE, "the part of it in which another stream of the GPU had work running, too"),
        Column("overlap_pct", NUMBER, "the same in percent of the time in which the stream had work running"),
        Column("main_operation", TEXT, "the operation with the most time on the stream"),
        Column("main_operation_pct", NUMBER, "its time in percent of the time of all operations on the stream"),
    ),
    rows="streams",
    header="Stream",
    named_by="stream",
    group=GPU,
    bars=("busy_pct", "overlap_pct"),
    constant=("device", "pid"),
    kernels=("main_operation",),
)

GPU_PEAKS: Final = Entry(
    "gpu_peaks",
    "Peaks",
    "Peak rates that measured rates are compared with. Memory and L2: as the driver reports, else as published. "
    "Links: half of the published rate for both directions; a board in a slot with fewer lanes has less.",
    ("devices",),
    (
        DEVICE,
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
