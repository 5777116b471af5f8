"""Launches: their overhead, phases and latencies."""

from typing import Final

from nightsight.results.columns import COUNT, DEVICE, LAUNCH_TABLES, LAUNCHES, classes
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

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
            "for these, median time from the end of the call to the start of the kernel. This is not overhead by "
            "itself: the GPU had other work",
        ),
        Column("queue_max_ns", WHOLE, "longest", is_plain=True),
        Column("execution_total_ns", WHOLE, "time on the GPU", is_plain=True),
        Column("execution_med_ns", NUMBER, "median of it", is_plain=True),
        DEVICE,
        Column("name", TEXT, "the kernel, or `[CUDA graph]`", is_plain=True),
    ),
    rows="launches",
    header="Kernel",
    group=LAUNCHES,
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
    LAUNCH_TABLES,
    (
        DEVICE,
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
        COUNT,
        Column("total_ns", WHOLE, "sum", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p95_ns", NUMBER, "95th percentile"),
        Column("max_ns", WHOLE, "longest", is_plain=True),
    ),
    rows="launch figures",
    header="Figure",
    named_by="figure",
    group=LAUNCHES,
    constant=("device",),
)

LAUNCH_BOUND: Final = Entry(
    "launch_bound",
    "Launch bound",
    "Whether the CPU stays ahead of each GPU. An operation is in flight from the return of its launch call (or from "
    "its own start, if that is earlier) to its end.",
    LAUNCH_TABLES,
    (
        DEVICE,
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
            "how many of these happened while the CPU was in a synchronizing call (see Functions); otherwise it was "
            "too slow to launch",
        ),
        Column("functions", TEXT, "the functions of these synchronizing calls, most frequent first"),
    ),
    rows="devices with launches",
    header="Device",
    named_by="device",
    group=LAUNCHES,
)

IN_FLIGHT: Final = Entry(
    "in_flight",
    "Operations in flight",
    "How far the CPU ran ahead of the GPU, over up to 500 equal stretches of the window.",
    LAUNCH_TABLES,
    (
        DEVICE,
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
    classes("kernels on the device"),
    rows="duration bins",
    place="points",
)

LAUNCH_LATENCIES: Final = Entry(
    "launch_latencies",
    "Launch latencies",
    "Histograms of API time and launch latency (see *Launch figures*) of first and steady launches together, with the "
    "bins of *Kernel durations*.",
    LAUNCH_TABLES,
    classes("launches with this figure on the device"),
    rows="duration bins",
    place="points",
)
