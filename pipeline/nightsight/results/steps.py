"""The repetitions of the program: their length, parts and work."""

from typing import Final

from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    CAPTURE,
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
from nightsight.results.columns import DEVICE_OR_CPU, GPU
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

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

STEP_SPLIT: Final = Entry(
    "step_split",
    "Time of a step",
    "How long a repetition of the window takes on each device, and where its time goes. On a device, a step begins "
    "with the first operation that was launched in it: the CPU can be many steps ahead. Without GPU work: on the CPU, "
    "and how long any thread of the process was in a PyTorch operator.",
    (),
    (
        DEVICE_OR_CPU,
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
    "The steps of each device in the order they ran, and where the time of each went. With more than 150 steps, a row "
    "holds several consecutive ones: their means, and the slowest of them.",
    (),
    (
        DEVICE_OR_CPU,
        Column("number", WHOLE, "number of the first step in the row, counted from 0 in the window"),
        Column(
            "of_program",
            WHOLE,
            "the same in the program, if that differs: the number in the name of its range, else counted from 0 in the "
            "capture",
            is_optional=True,
        ),
        Column("steps", WHOLE, "number of steps in the row", is_plain=True),
        Column("start_ns", WHOLE, "when the first of them begins, since the start of the window"),
        Column("time_ns", NUMBER, "length of a step: mean"),
        Column("outliers", WHOLE, "number of them that take more than 1.5 times the median of all"),
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
    "Parts of a step",
    "The ranges and kernels in a repetition of the window, and the waits of the device in between; for the whole "
    "window if nothing repeats. The rows of a device add up to exactly the mean step.",
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
            "are none. Work outside all ranges of a step is listed under its module or its outermost operator. Idle "
            "time: the ranges in which the CPU was then; for *launch* and *dependency* those of the work that "
            "the GPU waited for. A range that takes less than 0.1 % counts for the one around it",
        ),
        Column("group", TEXT, "`busy`, `idle`, or `unknown`", is_plain=True),
        Column(
            "category",
            TEXT,
            "the category of *Where the time went*. Without GPU work: `operators`, and `host code` outside of them",
        ),
        Column("family", TEXT, "kernels that do the same; for operators the outermost"),
        Column("name", TEXT, "the kernel, copy or operator; the category if idle"),
        Column(
            "time_ns",
            NUMBER,
            "time in a repetition: mean. Each instant counts once: if several overlap, the first category gets it, and "
            "kernels of one category share it",
        ),
        Column("time_pct", NUMBER, "the same in percent of the mean step"),
        Column("hidden_ns", NUMBER, "overlapped time in a repetition that counts for others: mean"),
        Column("count", NUMBER, "number per repetition: mean"),
        Column("longest_ns", WHOLE, "the longest", is_plain=True),
        Column("longest_at_ns", WHOLE, "when it begins, since the start of the window"),
    ),
    rows="parts of a step",
    header="Part",
    group=GPU,
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
"""The path, family or name of parts that are too small for a separate row in STEP_PARTS."""

STEP_WORK: Final = Entry(
    "step_work",
    "Work of a step",
    "The work of a repetition, or of the window if nothing repeats: for comparisons of runs, whose start-up "
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
                ("operator", "a PyTorch operator, without the operators inside"),
                ("range", "a range, with `#` for numbers"),
            ),
        ),
        Column("count", NUMBER, "number per repetition: mean"),
        Column("time_ns", NUMBER, "its time in a repetition: median, or mean if not all repetitions have it"),
        Column(
            "copied_bytes",
            NUMBER,
            "for copies and memsets: bytes per repetition, mean; none if the profiler did not record the size of each",
            is_optional=True,
        ),
        Column("place", TEXT, "for kernels: the ranges and the operator in which most of its time is launched"),
        Column("name", TEXT, "its name", is_plain=True),
    ),
    rows="kinds of work",
    place="points",
)
