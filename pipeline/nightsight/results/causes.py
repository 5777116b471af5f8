"""Results of the simulation: predicted gains, its reliability, the cost of the profiler."""

from collections.abc import Mapping
from typing import Any, Final

from nightsight.results.categories import CATEGORY_MEANINGS
from nightsight.results.columns import GPU, LAUNCH_TABLES
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry
from nightsight.results.rules import RULES

SIMULATED: Final = "The simulation of {one} without any change differs from the measurement by {difference}"
"""Evidence of all advice on a window: how well the simulation behind the gains matches the measurement."""

REPLAY: Final = Entry(
    "replay",
    "How reliable the simulation is",
    "The window, or as many of its repetitions as are quick to simulate, recomputed from its dependencies and a few "
    "typical latencies. The difference from the measurement is unexplained.",
    LAUNCH_TABLES,
    (
        Column("repetitions", WHOLE, "whole repetitions that were simulated; 0: a stretch of the window"),
        Column(
            "of_repetitions",
            WHOLE,
            "repetitions in the window; 0 if there are fewer than three: times then refer to the window",
        ),
        Column("family", TEXT, "what repeats: the ranges, or the number of launches"),
        Column("calls", WHOLE, "CUDA calls that were simulated; if 0, nothing is known about the host"),
        Column("events", WHOLE, "starts and ends that were simulated"),
        Column("measured_ns", NUMBER, "one repetition, or the window, as measured"),
        Column("replayed_ns", NUMBER, "the same as simulated"),
        Column("unexplained_pct", NUMBER, "the difference, relative to the measured time"),
        Column("call_cost_ns", NUMBER, "estimated cost of the profiler per launch and the host code after it"),
        Column(
            "predicted_ns", NUMBER, "one repetition without the profiler, by the calibrated or typical cost of calls"
        ),
        Column(
            "timed_ns",
            NUMBER,
            "one repetition in a run without the profiler, typically; missing if there was no such run",
        ),
        Column("unprofiled_ns", NUMBER, "one repetition without the profiler, which gains refer to: as timed if known"),
        Column("doubt", TEXT, "why no gain is given; empty if the simulation is reliable"),
        Column(
            "framework",
            TEXT,
            "the framework of the program, for the words of fixes: PyTorch, JAX, CuPy, Numba or CUDA; empty: unknown",
            is_optional=True,
        ),
        Column(
            "times",
            WHOLE,
            "how many times larger a repetition could be, at least, with the same kernels on more SMs; left out, like "
            "the next four, unless its kernels are short or matrix products, and fill at most a quarter of the GPU",
            is_optional=True,
        ),
        Column("blocks", WHOLE, "the most blocks of these kernels, which have 95 % of the time", is_optional=True),
        Column(
            "filled_pct",
            NUMBER,
            "the largest share of the SMs' capacity that these kernels fill, if they have 70 % of the time",
            is_optional=True,
        ),
        Column("multiprocessors", WHOLE, "SMs of the GPU", is_optional=True),
        Column(
            "larger_ns",
            NUMBER,
            "one such repetition without the profiler: the same launches and kernels, other host code as many times",
            is_optional=True,
        ),
    ),
    rows="simulations",
    place="points",
)

WHAT_IF: Final = Entry(
    "what_if",
    "Predicted gain of each fix",
    "Each row changes the dependencies as its fix would, and simulates the result: the gain is the difference. "
    "Gains refer to the program without the profiler, each for this change alone; changes in the best sequence also "
    "show the time left after them and all before them.",
    LAUNCH_TABLES,
    (
        Column("rule", TEXT, "what is changed", tuple((rule.name, rule.change) for rule in RULES)),
        Column("path", TEXT, "the NVTX ranges around it; empty: several, or none"),
        Column("name", TEXT, "the function, the direction of copies, the kernels, or the GPU"),
        Column(
            "function", TEXT, "the operator, Python function or frame where most of this host code runs, if recorded"
        ),
        Column("caller", TEXT, "the function of the program that called this function, if recorded"),
        Column("waits_in", TEXT, "the operating system call where most of this host code waits, if recorded"),
        Column("cases", NUMBER, "number of calls, pieces of host code or operations it changes, per repetition"),
        Column("time_ns", NUMBER, "their time, per repetition"),
        Column("gain_ns", NUMBER, "how much shorter a repetition becomes; missing if the simulation is not reliable"),
        Column("gain_pct", NUMBER, "the same, relative to a repetition without the profiler"),
        Column(
            "counted_pct",
            NUMBER,
            "the gain as it counts when the first cause is chosen: less if code may prevent the fix, such as that of a "
            "CUDA graph",
            is_optional=True,  # older reports do not have it
        ),
        Column("order", WHOLE, "its place in the best sequence, from 1; missing if it is not in it"),
        Column("after_ns", NUMBER, "one repetition after this and all before it in the sequence"),
        Column(
            "kernels",
            TEXT,
            "the kernels concerned, those with the most time first, at most 8: a name per line",
            is_optional=True,
        ),
        Column("also", TEXT, "further NVTX ranges with a part of this host code: a path per line", is_optional=True),
        Column(
            "in_steps_pct",
            NUMBER,
            "the smallest share of the repetitions that has nearly all of its time",
            is_optional=True,
        ),
        Column(
            "obstacle",
            TEXT,
            "the graph break of torch.compile there, or why it skipped CUDA graphs: one per line, at most 2",
            is_optional=True,
        ),
        Column("obstacle_fix", TEXT, "code that avoids it", is_optional=True),
    ),
    rows="fixes",
    header="Fix",
    named_by="rule",
    group=GPU,
    minor=("caller", "counted_pct", "after_ns", "in_steps_pct", "obstacle_fix"),
    constant=("function", "caller", "waits_in", "also", "in_steps_pct", "obstacle", "obstacle_fix"),
    bars=("gain_pct",),
    jump="place",
)

FIX_LADDER: Final = Entry(
    "fix_ladder",
    "A step after each fix",
    "How a step (the window, if nothing repeats) divides now, and after each fix of the best sequence and all before "
    "it: means of all GPUs, without the profiler, from the same simulation as the gains. The parts add up to the step.",
    LAUNCH_TABLES,
    (
        Column("order", WHOLE, "the last of the fixes, by its place in the best sequence; 0: none"),
        Column(
            "group",
            TEXT,
            "what the GPU did",
            (("busy", "it ran an operation"), ("idle", "it waited"), ("unknown", "it may have run something")),
        ),
        Column("category", TEXT, "what ran, or what the GPU waited for", CATEGORY_MEANINGS),
        Column("time_ns", NUMBER, "its time in a step"),
    ),
    rows="parts of steps",
    place="points",
)

PROFILER_COST: Final = Entry(
    "profiler_cost",
    "The profiler's own cost",
    "Estimated time that the profiler adds to each CUDA call and the host code after it, and torch.profiler to each "
    "operator. It is subtracted before gains are computed.",
    LAUNCH_TABLES,
    (
        Column("kind", TEXT, "kind of call", is_plain=True),
        Column("calls", NUMBER, "calls per repetition, or in the window"),
        Column("recorded_ns", NUMBER, "how long such a call is in the capture: median"),
        Column("added_ns", NUMBER, "time that the profiler adds to such a call and the host code after it: mean"),
        Column(
            "time_ns", NUMBER, "the same for all such calls in a repetition, whether or not anything waits for them"
        ),
    ),
    rows="kinds of calls",
    header="Calls",
    named_by="kind",
    place="method",
)


def error_pct(replay: Mapping[Any, Any], gain_pct: float) -> float:
    """Return the possible error of a gain by a row of REPLAY; both are percentages of a step.

    It is the unexplained part of the simulation, plus half of the profiler's overhead in the remaining time.
    """
    cost = 1 - replay["unprofiled_ns"] / replay["replayed_ns"] if replay["replayed_ns"] else 0.0
    return float(abs(replay["unexplained_pct"]) + 50 * max(cost, 0.0) * (1 - gain_pct / 100) + 0.5)
