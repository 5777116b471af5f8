"""Where the time of each GPU went."""

from typing import Final

from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    CAPTURE,
    CATEGORY_MEANINGS,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DEPENDENCY,
    GRAPHS,
    HOST,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    SYNC,
    UNKNOWN,
    UNSEEN,
)
from nightsight.results.columns import DEVICE, GPU, LAUNCH_TABLES, OPERATION_TABLES
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

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
"""The kinds of pieces of the critical path."""
_PATH_CAUSES: Final = (
    (COMPUTE, "a kernel"),
    (COMMUNICATION, "NCCL and NVSHMEM kernels, and copies between devices: once the last rank has arrived, if known"),
    (COPIES, "all other copies, and memsets"),
    (GRAPHS, "CUDA graphs traced as a whole"),
    (LAUNCH, "a call that submits work to the GPU, until the work begins"),
    (DEPENDENCY, "from the end of one operation to the beginning of the next, which waited for it"),
    (SYNC, "the return of a blocking call, after the end of what it waited for; or such a call that need not wait"),
    (BLOCKING_COPY, "the work of the CPU in a blocking copy"),
    (ALLOCATION, "a call that allocates or frees memory, without waiting"),
    (MODULE, "a call that loads a module or compiles code, or a first launch that loads its kernel"),
    (CAPTURE, "a CUDA graph was captured, so nothing ran"),
    (OTHER_CALL, "any other CUDA call"),
    (HOST, "no CUDA call was running on the thread, and nothing else was waited for"),
    (UNSEEN, "nothing was recorded, but the GPU may have worked"),
    (UNKNOWN, "what led to it was not recorded"),
)


GPU_TIME: Final = Entry(
    "gpu_time",
    "GPU time",
    "What each GPU did in the report's window. Times per kind count every operation, so with several streams they can "
    "add up to more than busy.",
    OPERATION_TABLES,
    (
        DEVICE,
        Column("window", TEXT, "how the window was chosen"),
        Column("window_ns", WHOLE, "its length"),
        Column("busy_ns", WHOLE, "time in which at least one operation ran; overlaps count once"),
        Column(
            "idle_ns", WHOLE, "time in which nothing ran: the rest of the window, except time that was not recorded"
        ),
        Column("unseen_ns", WHOLE, "time for which the capture does not show what the GPU did", is_optional=True),
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
    is_core=True,
)

TIME_SPLIT: Final = Entry(
    "time_split",
    "Where the time went",
    "For each device, every instant of the window belongs to exactly one row, so the rows add up to the window.",
    OPERATION_TABLES,
    (
        DEVICE,
        Column("group", TEXT, "`busy`, `idle`, or `unknown`", is_plain=True),
        Column(
            "category",
            TEXT,
            "busy: the work that ran; idle: the CPU's activity in the process whose operation ended the gap. If "
            "several apply, the first in this list counts",
            CATEGORY_MEANINGS,
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
    bars=("share_pct",),
    constant=("device",),
    is_folded=True,
    jump="functions",
)

CRITICAL_PATH: Final = Entry(
    "critical_path",
    "Critical path",
    "The chain of events that the end of the window waited for, back to its beginning. Every nanosecond of the "
    "window belongs to exactly one row. Time that is not on this path costs nothing: it is hidden behind it.",
    LAUNCH_TABLES,
    (
        Column("cause", TEXT, "the activity that took the time", _PATH_CAUSES),
        Column(
            "name",
            TEXT,
            "the kernel, the direction of copies, the CUDA function, or the function running in host code, if recorded",
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
    bars=("time_pct",),
    jump="place",
    kernels=("name",),
)
