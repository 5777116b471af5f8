"""NVTX ranges and marks."""

from typing import Final

from nightsight.results.columns import INSTANCES, LAUNCH_TABLES, PID, PROGRAM, times
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

NVTX_RANGES: Final = Entry(
    "nvtx_ranges",
    "NVTX ranges",
    "CPU and GPU time of each range of the program, including the ranges inside it. An operation belongs to the "
    "innermost range open on the launching thread, else to the innermost range open in the process at that time. "
    "Totals can exceed the time of the range.",
    ("ranges",),
    (
        Column("path", TEXT, "the range and those around it, outermost first, joined by ` / `"),
        PID,
        INSTANCES,
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
        *times("kernels"),
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
    ("ranges", *LAUNCH_TABLES),
    (
        Column("operations", WHOLE, "kernels, copies, memsets and graph launches", is_plain=True),
        Column("on_thread", WHOLE, "launched by the range's own thread"),
        Column("in_process", WHOLE, "launched by another thread of the process, like PyTorch's backward pass"),
        Column("outside", WHOLE, "launched while no range was open"),
        Column("without_call", WHOLE, "the launching call was not recorded, so the range is unknown"),
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
        PID,
        INSTANCES,
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
    bars=("med_ns",),
    constant=("pid",),
    jump="repetition",
)

NVTX_MARKS: Final = Entry(
    "nvtx_marks",
    "NVTX marks",
    "Instants that the program marked, inside or outside the window.",
    ("marks",),
    (
        INSTANCES,
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
    jump="mark",
)
