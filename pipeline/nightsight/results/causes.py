"""What the simulation of the program tells: what remedies gain, how far to trust it, what the profiler costs."""

from typing import Final

from nightsight.results.columns import GPU, LAUNCH_TABLES
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry
from nightsight.results.rules import RULES

SIMULATED: Final = "The simulation of {one} without any change differs from what was measured by {difference}"
"""The evidence of all advice on a window: how well the simulation, from which gains are, gives what was measured."""

REPLAY: Final = Entry(
    "replay",
    "How far the simulation is trusted",
    "The window, or as many of its repetitions as are quick to simulate, computed again from what waited for what and "
    "a few typical latencies. What the simulation does not give back, it does not explain.",
    LAUNCH_TABLES,
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
    LAUNCH_TABLES,
    (
        Column("rule", TEXT, "what is changed", tuple((rule.name, rule.change) for rule in RULES)),
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
    LAUNCH_TABLES,
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
