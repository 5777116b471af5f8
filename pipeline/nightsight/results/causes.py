"""What the simulation of the program tells: remedies, how far to trust it, what the profiler costs."""

from typing import Final

from nightsight.results.columns import GPU, LAUNCH_TABLES
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

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
