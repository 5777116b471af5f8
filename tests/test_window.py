"""Which part of a capture a report is about: its steady part, found in ranges or launches, or what was asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nightsight as ns
from nightsight.analyze.split import device_splits, time_split
from nightsight.analyze.step_split import step_split
from nightsight.analyze.views import other_timelines
from nightsight.errors import UsageError
from nightsight.events.loops import ends_a_step
from nightsight.events.timeline import Timeline
from nightsight.events.window import (
    AFTER_PAUSE,
    ANNOTATED,
    GPU_WORK,
    RECORDED,
    START_UP,
    STEADY,
    Window,
    check_window,
    chosen_window,
    offered_windows,
    steady_window,
    whole_window,
)
from nightsight.model.report import Profile, Report
from nightsight.results.steps import WHOLE_STEP
from nightsight.tables import FUNCTION, MODULE, PUSH_POP, SHAPE, conform, empty
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw, side_by_side

MS = 1_000_000
ON_STREAM = {"context": 1, "stream": 7, **dict.fromkeys(SHAPE, 1)}

# a slow first step, after a long start-up
TRAINING = """
    nvtx  ..............[step         ][step][step][step][step]
    cpu   JJJJ.L........L......A......L.....L.....L.....L.....
    s7    ......aa.......b............bbbb..bbbb..bbbb..bbbb..
    """


def window_of(picture: str) -> Window:
    return chosen_window(draw(picture))


def with_ranges(profile: Profile, **columns: Any) -> Profile:
    ranges = conform("ranges", profile.table("ranges").assign(**columns))
    return replace(profile, tables={**profile.tables, "ranges": ranges})


def without(profile: Profile, *tables: str) -> Profile:
    return replace(profile, tables={name: table for name, table in profile.tables.items() if name not in tables})


def spans(window: Window) -> tuple[int, int]:
    """The window in microseconds."""
    return window.start_ns // 1000, window.end_ns // 1000


# -- loops of ranges --------------------------------------------------------------------------------------------------


def test_the_steady_part_leaves_out_the_start_up_and_the_slow_first_step() -> None:
    window = window_of(TRAINING)
    assert (window.name, window.family, spans(window)) == (STEADY, "step", (29, 53))
    assert (window.repetitions // 1000).tolist() == [29, 35, 41, 47]
    assert window.sentence == (
        "The steady part consists of 4 repetitions of `step`. "
        "The first one is skipped as warm-up (much slower than the others)."
    )


@pytest.mark.parametrize(
    ("waiting", "kept"),
    [
        # as in DistributedDataParallel: in the first steps only, then in each hundredth
        ([1, 1, 1, 1, 0, 0, 0], 3),
        ([1] * 10 + ([0] * 90 + [1]) + [0] * 19, 110),
        # in each other one, so that too few remain, in all, only in the first
        ([1, 0, 1, 0, 0, 0, 0], 7),
        ([1, 1, 1, 1, 1, 0, 0], 7),
        ([1] * 7, 7),
        ([1] + [0] * 6, 7),
    ],
)
def test_steps_at_the_start_that_wait_as_later_ones_do_not_are_left_out(waiting: list[int], kept: int) -> None:
    step = {True: "LSS.....", False: "L......."}
    window = window_of(
        f"nvtx  {'[step  ]' * len(waiting)}\n"
        f"cpu   {''.join(step[bool(waits)] for waits in waiting)}\n"
        f"s7    {'.aa.....' * len(waiting)}"
    )
    assert len(window.repetitions) == kept
    assert ("the CPU waits in cudaStreamSynchronize" in window.sentence) == (kept < len(waiting))


def test_the_work_of_the_last_repetition_belongs_to_the_window_even_if_it_ends_later() -> None:
    window = window_of("nvtx  [s][s][s]\ncpu   L..L..L........\ns7    aaaaaaaaaaabbbb")
    assert spans(window) == (0, 15)


@pytest.mark.parametrize(("name", "family"), [("step {}", "step #"), ("step_{}", "step_#"), ("ProfilerStep#{}",) * 2])
def test_numbered_ranges_are_one_family(name: str, family: str) -> None:
    profile = draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    a..a..a..")
    window = chosen_window(with_ranges(profile, name=[name.format(number) for number in (8, 9, 10)]))
    assert (window.name, len(window.repetitions)) == (STEADY, 3)
    assert window.family == family.format("")


def test_the_outermost_family_counts() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        nvtx  .[f][b].[f][b]..[f][b]..
        cpu   .L..L....L..L....L..L...
        s7    ..aa.bb...aa.bb...aa.bb.
        """
    assert window_of(picture).family == "step"


def test_siblings_in_a_cycle_begin_with_the_first_of_them_and_end_with_the_last() -> None:
    picture = """
        nvtx  [forward][back][forward][back][forward][back]
        cpu   .L........L.....L........L.....L........L.....
        s7    ..aa.......bb....aa.......bb....aa.......bb...
        """
    window = window_of(picture)
    assert (window.family, len(window.repetitions), spans(window)) == ("forward", 3, (0, 45))


def test_the_family_that_covers_most_of_the_work_is_the_loop() -> None:
    # a family of brief ranges in the start-up, and the loop
    picture = """
        nvtx  [i][i][i]....[step][step][step]
        cpu   L..L..L......L.....L.....L.....
        s7    a..a..a......aaaa..aaaa..aaaa..
        """
    assert window_of(picture).family == "step"


@pytest.mark.parametrize("name", ["warmup", "Warm-up", "warm_up", "warm up", "compile", "torch compilation"])
def test_a_warm_up_is_not_the_loop(name: str) -> None:
    profile = draw("nvtx  [w][w][w][s][s][s]\ncpu   L..L..L..L..L..L..\ns7    aa.aa.aa.bb.bb.bb.")
    named = profile.table("ranges")["name"].astype("str").replace({"w": name})
    assert chosen_window(with_ranges(profile, name=named.to_numpy())).family == "s"


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_long_warm_up_does_not_hide_a_short_loop(has_gpu: bool) -> None:
    long = 40
    ranges = f"nvtx  [{'w' * long}][s][s][s]"
    profile = draw(f"{ranges}\ncpu   {'L'.ljust(long + 2)}L..L..L..\ns7    {'a' * (long + 2)}b..b..b..")
    names = profile.table("ranges")["name"].astype("str").replace({"w" * long: "warmup"}).to_numpy()
    profile = with_ranges(profile, name=names)
    window = chosen_window(profile if has_gpu else without(profile, "kernels", "api_calls"))
    assert (window.family, len(window.repetitions)) == ("s", 3)


# -- steps of programs without ranges of their own --------------------------------------------------------------------

# in each step: data and zero_grad `z`, the model `m` with a part `p` in it, backward `b` on its own, the optimizer `o`
STEPS = """
    nvtx  ....[z].[m   ].[b].[o].....[z].[m   ].[b].[o].....[z].[m   ].[b].[o]..
    nvtx  .........[p].................[p]................[p].....................
    cpu   L........L.L....L...L......L..L.L....L...L.......L..L.L....L...L........
    s7    .h.......aaaa...bb..cc......h..aaaa...bb..cc.......h..aaaa...bb..cc.....
    """
OF_TORCH = {
    "z": ("Optimizer.zero_grad#Adam.zero_grad", FUNCTION),
    "m": ("GPT", MODULE),
    "p": ("layers.0", MODULE),
    "b": ("torch.autograd.backward", FUNCTION),
    "o": ("Optimizer.step#Adam.step", FUNCTION),
}


def of_torch(picture: str, names: Mapping[str, tuple[str, str]] = OF_TORCH) -> Profile:
    """Draw a picture in which letters stand for what PyTorch or the profiler named, and others for the program's."""
    profile = draw(picture)
    given = profile.table("ranges")["name"].astype("str").tolist()
    ranges = [names.get(name, (name, PUSH_POP)) for name in given]
    return with_ranges(profile, name=[name for name, _ in ranges], style=[style for _, style in ranges])


def test_a_step_ends_with_that_of_the_optimizer() -> None:
    window = chosen_window(of_torch(STEPS))
    assert (window.name, window.family) == (STEADY, "step (ends with Adam.step)")
    ends = draw(STEPS).table("ranges").query("name == 'o'")["end_ns"].tolist()
    # nothing tells where the first one began
    assert window.repetitions.tolist() == ends[:-1]
    assert window.start_ns == ends[0]
    assert window.end_ns >= ends[-1]
    assert "2 repetitions of `step (ends with Adam.step)`" in window.sentence


def test_ranges_of_the_program_itself_come_first() -> None:
    picture = STEPS.replace("[z]", "[s]")
    window = chosen_window(of_torch(picture))
    # the last one holds less than the others: what follows it may not be its own
    assert (window.family, len(window.repetitions)) == ("s", 2)


@pytest.mark.parametrize(
    "library", ["NCCL", "CCCL", "TSL", "libcudf", "cuBLASLt", "cuml_python", "cuDNN", "TransformerEngine"]
)
def test_ranges_of_libraries_are_never_the_loop(library: str) -> None:
    profile = of_torch(STEPS.replace("[z]", "[s]"))
    names = profile.table("ranges")["name"].astype("str")
    in_domain = with_ranges(profile, domain=[library if name == "s" else "" for name in names])
    assert chosen_window(in_domain).family == "step (ends with Adam.step)"
    # not even where nothing else repeats
    alone = draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    a..a..a..")
    assert chosen_window(with_ranges(alone, domain=library)).family != f"{library}:s"
    assert chosen_window(with_ranges(alone, domain="my program")).family == "my program:s"


@pytest.mark.parametrize("name", ["ncclAllReduce", "cub::DeviceRadixSort", "thrust::sort", "XlaModule:#prefix=a"])
def test_libraries_are_known_without_the_names_of_domains(name: str) -> None:
    profile = of_torch(STEPS.replace("[z]", "[s]"))
    given = profile.table("ranges")["name"].astype("str")
    renamed = with_ranges(profile, name=given.where(given != "s", name).tolist())
    assert chosen_window(renamed).family == "step (ends with Adam.step)"


# XLA puts a range around each execution of a program; a copy of the batch is a program, too
OF_JAX = {
    "u": "XlaModule:#prefix=jit(update),hlo_module=jit_update,program_id=12#",
    "c": "XlaModule:#prefix=args[0],hlo_module=jit_stage,program_id=11#",
    "k": "XlaModule:#hlo_module=gemm_fusion.3#",
}


def of_jax(picture: str) -> Profile:
    profile = draw(picture)
    names = profile.table("ranges")["name"].astype("str").map(OF_JAX).tolist()
    return with_ranges(profile, name=names, domain="TSL")


def test_a_step_of_jax_is_an_execution_of_the_program_with_most_of_the_work() -> None:
    step = ("[c].[u     ]...", ".L..LLLLLL.....", "..h..aabbccdde.")
    nvtx, cpu, stream = ("".join(part) for part in zip(*[step] * 5, strict=True))
    # another thread tunes kernels for longer than all steps take
    tuning = "[k]" * 60
    picture = f"""
        nvtx    {"." * 180}{nvtx}
        nvtx:8  {tuning}
        cpu     {"." * 180}{cpu}
        cpu:8   {"L.." * 60}
        s7      {"xx." * 60}{stream.replace("h", "H")}
    """
    window = chosen_window(of_jax(picture))
    assert (window.family, len(window.repetitions)) == ("jit_update", 5)
    assert (window.repetitions // 1000).tolist() == [184 + 15 * step for step in range(5)]


def test_operations_of_jax_outside_of_jit_are_no_steps() -> None:
    names = {letter: f"XlaModule:#hlo_module=jit_{letter},program_id={ord(letter)}#" for letter in "abcdef"}
    ranges = "".join(f"[{letter}]" for letter in "abcdef") * 6
    profile = draw(f"nvtx  {ranges}\ncpu   {'.L.' * 36}\ns7    {'..' + ''.join(f'{x}..' for x in 'abcdef') * 6}")
    given = profile.table("ranges")["name"].astype("str").map(names).tolist()
    window = chosen_window(with_ranges(profile, name=given, domain="TSL"))
    assert (window.family, len(window.repetitions)) == ("the same 6 launches", 6)


def test_without_an_optimizer_a_step_begins_with_the_call_of_the_model() -> None:
    names = {**OF_TORCH, "o": ("ignored", FUNCTION), "z": ("ignored too", FUNCTION)}
    inference = "\n".join(line.replace("[o]", "...").replace("[z]", "...") for line in STEPS.splitlines())
    window = chosen_window(of_torch(inference, names))
    assert (window.family, len(window.repetitions)) == ("GPT", 2)


@pytest.mark.parametrize("second", ["o", "q"])
def test_two_optimizers_in_a_row_end_one_step(second: str) -> None:
    names = {**OF_TORCH, "q": ("Optimizer.step#Muon.step", FUNCTION)}
    family = "step (ends with Muon.step)" if second == "q" else "step (ends with Adam.step)"
    step = f".[m      ].[o][{second}]..."
    window = chosen_window(
        of_torch(
            f"nvtx  {step * 4}\ncpu   {'..L..L......L..L...'[: len(step)] * 4}\n"
            + (f"s7    {'...aa.bb.....cc.dd.'[: len(step)] * 4}"),
            names,
        )
    )
    assert (window.family, len(window.repetitions)) == (family, 3)


@pytest.mark.parametrize(
    ("between", "kept"),
    [
        # two optimizers, three, five
        ([1, 100] * 3 + [1], [False, True] * 3 + [False]),
        ([1, 1, 100] * 3 + [1, 1], [False, False, True] * 3 + [False, False]),
        (([1] * 4 + [100]) * 3 + [1] * 4, ([False] * 4 + [True]) * 3 + [False] * 4),
        # compilation before the second step, and validations
        ([100_000, 100, 101, 102], [True] * 4),
        ([100_000, 1, 100, 1, 101, 1, 102, 1], [True, False] * 4),
        (([100] * 20 + [100_000]) * 4, [True] * 84),
        # batches of very different lengths
        ([400, 180, 190, 360, 30, 330, 27, 60], [True] * 8),
        # no time between
        ([0, 0, 0], [True] * 3),
        ([], []),
    ],
)
def test_a_pause_hides_no_step_of_an_optimizer(between: list[int], kept: list[bool]) -> None:
    end = np.cumsum([10, *(np.asarray(between, dtype=np.int64) + 10)])
    assert ends_a_step(end - 10, end).tolist() == [*kept, True]


def test_a_checkpoint_after_each_fifth_step_hides_no_step() -> None:
    end = np.cumsum([10, *([190] * 4 + [9500]) * 6])
    assert ends_a_step(end - 10, end).all()


def test_an_optimizer_that_wraps_another_is_one_step() -> None:
    step = ".[m    ].[o    ]..\n"
    inner = "..........[o].....\n"
    calls, work = "..L..L....L......." * 4, "...aa.bb...cc....." * 4
    picture = f"nvtx  {step.strip() * 4}\nnvtx  {inner.strip() * 4}\ncpu   {calls}\ns7    {work}"
    window = chosen_window(of_torch(picture))
    assert (window.family, len(window.repetitions)) == ("step (ends with Adam.step)", 3)


def test_two_steps_of_an_optimizer_are_no_loop() -> None:
    picture = "nvtx  [o]..[o].\ncpu   .L...L..\ns7    ..a...a."
    assert "ends with" not in chosen_window(of_torch(picture)).family


@given(st.lists(st.integers(1, 9), min_size=3, max_size=9), st.integers(0, 20))
def test_every_step_begins_where_an_optimizer_ended(lengths: list[int], lead: int) -> None:
    step = [f"[m{' ' * length}].[o]." for length in lengths]
    track = "." * lead + "".join(step)
    calls = "".join("L" if letter == "[" else "." for letter in track)
    work = "".join("." if place % 2 else "a" for place in range(len(track)))
    profile = of_torch(f"nvtx  {track}\ncpu   {calls}\ns7    {work}")
    ends = profile.table("ranges").query("name == 'Optimizer.step#Adam.step'")["end_ns"].tolist()
    steady = chosen_window(profile)
    assert steady.repetitions.tolist() == ends[len(ends) - 1 - len(steady.repetitions) : -1]
    assert len(steady.repetitions) >= min(2, len(ends) - 1)


def test_a_torch_trace_without_steps_of_the_profiler_has_those_of_the_optimizer() -> None:
    profile = with_ranges(of_torch(STEPS), style="Annotation")
    kept = profile.table("ranges")["name"].isin(["Optimizer.zero_grad#Adam.zero_grad", "Optimizer.step#Adam.step"])
    ranges = profile.table("ranges")[kept.to_numpy()]
    profile = replace(profile, tables={**profile.tables, "ranges": ranges})
    assert chosen_window(profile).family == "step (ends with Adam.step)"


def test_the_recorded_program_takes_seven_steps(recorded: Recorded) -> None:
    """Before, its 14 calls of `aten::to` were taken for its loop."""
    window = chosen_window(recorded.profile("python_names"))
    assert (window.family, len(window.repetitions)) == ("step (ends with Adam.step)", 6)


# -- other loops ------------------------------------------------------------------------------------------------------


def test_a_compiled_region_can_be_the_loop() -> None:
    profile = draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    a..a..a..")
    assert chosen_window(with_ranges(profile, name="Torch-Compiled Region: 0/0")).name == STEADY


def test_ranks_go_through_their_steps_together() -> None:
    one = draw("nvtx  [s  ][s][s][s]\ncpu   L....L..L..L..\ns7    a....a..a..a..")
    other = draw("nvtx  .[s][s][s][s]\ncpu   .L..L..L..L..\ns7    .a..a..a..aa.")
    window = chosen_window(side_by_side(one, other))
    # what is slow for one rank is left out for both
    assert [len(starts) for starts in window.steps.values()] == [3, 3]
    assert spans(window) == (4, 14)
    assert "3 repetitions of `s` in each of 2 processes" in window.sentence


def test_ranks_can_take_different_numbers_of_steps() -> None:
    one = draw("nvtx  [s][s][s][s]\ncpu   L..L..L..L..\ns7    aa.aa.aa.aa.")
    other = draw("nvtx  [s][s][s]...\ncpu   L..L..L.....\ns7    a..a..a.....")
    profile = side_by_side(one, other)
    window = chosen_window(profile)
    assert "3 to 4 repetitions of `s` in each of 2 processes" in window.sentence
    assert len(window.repetitions) == 4
    assert spans(window) == (0, 12)
    assert step_split(Timeline(profile)).frame.groupby("device")["steps"].max().tolist() == [4, 3]


def test_threads_side_by_side_are_one_loop() -> None:
    profile = draw(
        """
        nvtx    [s  ][s  ][s  ]
        nvtx:8  .[s  ][s  ][s  ]
        cpu     L....L....L.....
        s7      aaaa.aaaa.aaaa..
        """
    )
    assert len(chosen_window(profile).repetitions) == 3


def test_steps_of_threads_side_by_side_that_are_asked_for_are_those_of_one() -> None:
    picture = """
        nvtx    [s  ][s  ][s  ]
        nvtx:8  .[s  ][s  ][s  ]
        """
    profile = replace(draw(picture), window="s")
    window = chosen_window(profile)
    assert (window.repetitions // 1000).tolist() == [0, 5, 10]
    assert spans(window) == (0, 16)
    other = draw("nvtx  ....................[s][s][s]")
    both = chosen_window(replace(side_by_side(profile, other), window="s"))
    assert [(starts // 1000).tolist() for starts in both.steps.values()] == [[0, 5, 10], [20, 23, 26]]


def test_ranges_may_overlap() -> None:
    profile = draw("nvtx  [s][s][s][s]\ncpu   L..L..L..L..\ns7    aaaaaaaaaaaa")
    ranges = profile.table("ranges")
    late = with_ranges(profile, end_ns=ranges["end_ns"] + 1000, style="StartEnd")
    window = chosen_window(late)
    assert (window.name, len(window.repetitions), spans(window)) == (STEADY, 4, (0, 13))


def test_ranges_that_never_ended_are_left_out() -> None:
    profile = draw("nvtx  [s][s][s][s][s]\ncpu   L..L..L..L..L..\ns7    aa.aa.aa.aa.aa.")
    ranges = profile.table("ranges")
    is_open = np.arange(5) == 3
    end = ranges["end_ns"].where(~is_open, 15_000)
    window = chosen_window(with_ranges(profile, is_open=is_open, end_ns=end))
    assert (window.repetitions // 1000).tolist() == [0, 3, 6, 12]
    assert "Ranges that never ended are ignored." in window.sentence


def test_one_repetition_is_none() -> None:
    window = window_of("nvtx  [step]\ncpu   L.....\ns7    .aa.a.")
    assert (window.name, spans(window), len(window.repetitions)) == (ANNOTATED, (0, 5), 0)
    assert window.sentence.startswith("Nothing repeats, ")


@pytest.mark.parametrize(
    ("ranges", "name", "expected"),
    [
        ("............[forward ][backward]....", ANNOTATED, (12, 32)),
        ("[warmup    ][forward ][backward]....", ANNOTATED, (12, 32)),
        ("............[compile ][backward]....", GPU_WORK, (1, 35)),  # most of the work is outside
        ("[forward               ][compile   ]", ANNOTATED, (0, 31)),
        ("[main                              ]", ANNOTATED, (0, 35)),
        ("................................[log]", GPU_WORK, (1, 35)),
    ],
)
def test_without_repetitions_the_window_is_what_ranges_hold(ranges: str, name: str, expected: tuple[int, int]) -> None:
    calls, kernels = "L...........L.........L.......L.....", ".aa..........bbbbbbb...ccccccccd..e."
    window = window_of(f"nvtx  {ranges}\ncpu   {calls}\ns7    {kernels}")
    assert (window.name, spans(window)) == (name, expected)


def test_a_family_without_the_work_is_not_the_loop() -> None:
    picture = "nvtx  [log][log][log]\ncpu   L..............L.\ns7    a..............bbbbbbbbbbbbbbbbbbbbbbbb"
    assert window_of(picture).name != STEADY


# -- loops of launches ------------------------------------------------------------------------------------------------

CALLS, KERNELS = "L.L.L.L.L..........", "a.b.c.a.b.........."
LAUNCHES = f"cpu   {CALLS * 6}\ns7    {KERNELS * 6}"


def test_without_ranges_the_same_launches_are_the_steps() -> None:
    window = window_of(f"cpu   L.L.{CALLS * 6}\ns7    x.y.{KERNELS * 6}")
    assert (window.name, window.family) == (STEADY, "the same 5 launches")
    assert (window.repetitions // 1000).tolist() == [4, 23, 42, 61, 80, 99]
    assert window.sentence == (
        "There are no ranges, but the same kernels are launched repeatedly. The steady part consists of 6 "
        "repetitions of the same 5 launches."
    )


# a solver: after each iteration it reads the residual; the number of iterations differs
ITERATION, ITERATED = "L.L.L.SS", "a.b.c..."
SOLVES = [6, 4, 7, 5, 6, 3]


def solves(iteration: str) -> str:
    calls, kernels = (
        "".join(f"{begin}{body * count}" for count in SOLVES)
        for begin, body in (("L.L.....", iteration), ("x.y.....", ITERATED))
    )
    return f"cpu   {calls}\ns7    {kernels}"


def test_iterations_that_wait_are_the_steps_if_their_number_differs() -> None:
    window = window_of(solves(ITERATION))
    # no launch shows that the last one has waited
    assert (window.family, len(window.repetitions)) == ("the same 3 launches", sum(SOLVES) - 1)
    starts = window.repetitions // 1000
    # an iteration begins after a wait, and the last one of a solve lasts until the next solve iterates
    assert np.diff(starts).tolist() == [*np.concatenate([[8] * (count - 1) + [16] for count in SOLVES])[:-2]]


def test_iterations_of_one_launch_are_not_counted_as_two() -> None:
    solved = "".join(f"L.L.....{'L.SS' * count}" for count in (8, 13, 6, 11, 9))
    kernels = "".join(f"x.y.....{'a...' * count}" for count in (8, 13, 6, 11, 9))
    window = window_of(f"cpu   {solved}\ns7    {kernels}")
    assert (window.family, len(window.repetitions)) == ("the same launch", 46)


def test_iterations_with_little_of_the_work_are_no_loop() -> None:
    """Steps of an environment wait for each action; the updates between them have most of the work."""
    updates = "".join(f"L.L{'.' * 60}{ITERATION * count}" for count in SOLVES)
    kernels = "".join(f"xxxy{'y' * 59}{ITERATED * count}" for count in SOLVES)
    assert window_of(f"cpu   {updates}\ns7    {kernels}").name == GPU_WORK


def test_what_repeats_without_waits_and_is_interrupted_is_no_loop() -> None:
    assert window_of(solves(ITERATION.replace("S", "."))).name == GPU_WORK


def test_few_launches_prove_nothing() -> None:
    assert window_of("cpu   L.L.L.L.\ns7    a.a.a.a.").name == GPU_WORK


def test_a_sequence_that_holds_little_of_the_work_is_no_loop() -> None:
    assert window_of(f"cpu   L{'.' * 90}{CALLS * 6}\ns7    {'x' * 90}.{KERNELS * 6}").name == GPU_WORK


def test_what_runs_before_the_last_load_does_not_count_against_a_loop() -> None:
    # kernels are tuned for longer than the loop takes, and modules are loaded meanwhile
    tuned = f"cpu   L{'.' * 90}J.{CALLS * 6}\ns7    {'x' * 90}...{KERNELS * 6}"
    assert window_of(tuned).family == "the same 5 launches"


def test_a_graph_traced_as_a_whole_repeats_as_one_launch() -> None:
    window = window_of(f"cpu   {'G..' * 25}\ns7    {'GG.' * 25}")
    assert (window.family, len(window.repetitions)) == ("the same launch", 25)


def test_the_kernels_of_a_graph_count_as_one_launch() -> None:
    drawn = draw(f"cpu   {'L.L.......' * 12}\ns7    {'abcd.e....' * 12}")
    kernels = drawn.table("kernels")
    # the graph's four kernels share the first launch of each step
    calls = drawn.table("api_calls")["correlation"].to_numpy()
    of_step = np.repeat(np.arange(12), 5)
    launched = np.where(np.tile([True, True, True, True, False], 12), calls[2 * of_step], calls[2 * of_step + 1])
    tables = {**drawn.tables, "kernels": conform("kernels", kernels.assign(correlation=launched))}
    window = chosen_window(replace(drawn, tables=tables))
    assert (window.family, len(window.repetitions)) == ("the same 2 launches", 12)


def test_without_calls_the_times_on_the_gpu_count() -> None:
    window = chosen_window(without(draw(LAUNCHES), "api_calls"))
    assert (window.name, len(window.repetitions)) == (STEADY, 6)
    assert "No CUDA calls were recorded" in window.sentence
    with_steps = without(draw(TRAINING), "api_calls")
    assert chosen_window(with_steps).family == "step"


def test_work_of_an_unknown_process_may_be_that_of_any() -> None:
    drawn = draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    aa.aa.aa.")
    kernels = conform("kernels", drawn.table("kernels").assign(process=None))
    window = chosen_window(replace(drawn, tables={**drawn.tables, "kernels": kernels}))
    assert (window.name, len(window.repetitions)) == (STEADY, 3)


def test_a_capture_that_was_cut_has_the_repetitions_that_are_whole() -> None:
    drawn = draw(LAUNCHES)
    tables = {
        name: table[table["start_ns"].between(21_000, 103_000)]
        for name, table in drawn.tables.items()
        if name in ("kernels", "api_calls")
    }
    window = chosen_window(replace(drawn, tables={**drawn.tables, **tables}))
    assert window.name == STEADY
    assert (window.repetitions // 1000).tolist() == [38, 57, 76, 95]


# -- neither ----------------------------------------------------------------------------------------------------------


def test_without_a_loop_it_is_what_follows_the_last_long_pause() -> None:
    window = window_of(f"cpu   L{'.' * 40}LLLLL\ns7    a{'.' * 40}b.cc.d.ee")
    assert (window.name, spans(window)) == (AFTER_PAUSE, (41, 50))
    assert "last long GPU pause (40.0 µs)" in window.sentence


def test_a_pause_before_little_of_the_work_does_not_count() -> None:
    assert window_of(f"cpu   LLL{'.' * 40}L\ns7    aaaa.bbb.ccc{'.' * 40}d").name == GPU_WORK


def test_no_gpu_work_at_all() -> None:
    window = window_of("nvtx  .[x]\ncpu   AA.F..")
    assert (window.name, spans(window)) == (RECORDED, (0, 4))
    nothing = chosen_window(Profile({}))
    assert (nothing.length_ns, nothing.name) == (0, RECORDED)
    assert offered_windows(Profile({})) == (nothing,)


def test_steps_without_gpu_work_are_steps() -> None:
    window = window_of("nvtx  ..[s][s][s]\ncpu   A..........")
    assert (window.name, len(window.repetitions), spans(window)) == (STEADY, 3, (2, 11))


@pytest.mark.parametrize(("window", "end"), [("auto", 32), ("s", 32), ("0us/", 32), ("/25us", 25)])
def test_without_gpu_work_the_last_step_ends_with_the_loop_of_its_process(window: str, end: int) -> None:
    profile = side_by_side(draw("nvtx  [s    ][s    ][s    ]"), draw("nvtx  ....................[s ][s ][s ]"))
    timeline = Timeline(replace(profile, window=window))
    rows = step_split(timeline).frame
    assert rows[["steps", "min_ns", "max_ns"]].to_numpy()[0].tolist() == [3, 7000, 7000]
    assert spans(timeline.window) == (0, end)


def test_a_step_that_the_window_cuts_is_none_of_it() -> None:
    rows = step_split(Timeline(replace(draw("nvtx  [s  ][s  ][s  ][s  ]"), window="/12us"))).frame
    assert rows[["steps", "min_ns", "max_ns"]].to_numpy()[0].tolist() == [2, 5000, 5000]


@pytest.mark.parametrize("after", [1, 200])
def test_without_gpu_work_steps_of_the_optimizer_must_cover_the_time_as_ranges_must(after: int) -> None:
    """Else a few steps at the beginning would be the loop of a program that does something else."""
    step = "[m].[o]."
    window = chosen_window(of_torch(f"nvtx  {step * 4}[e{'.' * after}]"))
    assert window.family == ("step (ends with Adam.step)" if after == 1 else "")


def test_only_of_gpu_work_the_sentence_says_where_it_counts() -> None:
    sentence = "so work counts toward the repetition in which it began on the GPU"
    assert sentence not in window_of("nvtx  [s ][s ][s ]").sentence
    assert sentence in window_of("nvtx  [s ][s ][s ]\ns7    a...a...a...").sentence


def test_no_cpu_work_at_all() -> None:
    drawn = without(draw(LAUNCHES), "api_calls", "ranges", "marks")
    assert chosen_window(drawn).name == STEADY
    assert build_report(drawn, "drawn").windows[0].is_chosen


# -- what is measured -------------------------------------------------------------------------------------------------


def test_the_measured_range_is_the_window_and_keeps_all_its_steps() -> None:
    picture = TRAINING.replace("nvtx  .", f"nvtx  .............[measure{' ' * 31}]\n    nvtx  .")
    window = window_of(picture)
    assert (window.name, window.family, len(window.repetitions)) == ("measure", "step", 5)
    assert window.start_ns == 13_000


# -- asked for --------------------------------------------------------------------------------------------------------


def asked(text: str) -> Window:
    return chosen_window(replace(draw(TRAINING), window=text))


@pytest.mark.parametrize(
    ("text", "span", "repetitions"),
    [
        ("whole", (6, 50), 0),
        ("step", (14, 53), 5),
        ("step/0", (14, 29), 1),
        ("step/1:2", (29, 41), 2),
        ("20us/40us", (20, 40), 1),
        ("/40us", (0, 40), 2),
        # inside one step
        ("15us/28us", (15, 28), 0),
        # a step of 6 µs, as one copies its times: rounded
        ("29030ns/40970ns", (29, 40), 2),
        ("40000/", (40, 53), 2),
    ],
)
def test_windows_that_are_asked_for(text: str, span: tuple[int, int], repetitions: int) -> None:
    window = asked(text)
    assert (spans(window), len(window.repetitions)) == (span, repetitions)
    assert window.sentence.startswith("The window ")


def test_a_name_stands_for_ranges_that_are_numbered() -> None:
    profile = draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    a..a..a..")
    numbered = with_ranges(profile, name=["step 0", "step 1", "step 2"])
    for text in ("step", "step #"):
        window = chosen_window(replace(numbered, window=text))
        assert (window.family, len(window.repetitions)) == ("step #", 3)
    assert spans(chosen_window(replace(numbered, window="step 1"))) == (3, 6)
    assert spans(chosen_window(replace(numbered, window="step/1"))) == (3, 6)


def test_a_range_of_a_domain() -> None:
    profile = with_ranges(draw("nvtx  [s][t][s]\ncpu   L..L..L..\ns7    a..a..a.."), domain=["x", "", "x"])
    assert spans(chosen_window(replace(profile, window="s@x/1"))) == (6, 9)
    with pytest.raises(UsageError) as raised:
        chosen_window(replace(profile, window="s"))
    assert raised.value.hint == "Ranges of this capture: s@x, t"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no range 'nothing' in this capture"),
        ("step/5", "only 5 of them"),
        ("step/2:9", "only 5 of them"),
        ("step/3:1", "ends before it starts"),
        ("3us/1us", "ends before it starts"),
        ("3us/3us", "is empty"),
        ("1s/2s", "nothing was recorded"),
        ("", "no range ''"),
        ("step\\", "not a valid range"),
    ],
)
def test_windows_that_there_are_not(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        asked(text)
    assert message in raised.value.message
    assert raised.value.hint


def test_a_range_of_no_length_is_empty() -> None:
    profile = draw("nvtx  [s]\ncpu   L..\ns7    a..")
    point = with_ranges(profile, end_ns=profile.table("ranges")["start_ns"], window="s")
    with pytest.raises(UsageError, match="is empty"):
        chosen_window(replace(point, window="s"))


def test_what_no_capture_can_have_is_refused_before_one_is_made() -> None:
    for text in ("auto", "whole", "step/1:2", "1s/2s", "any range"):
        check_window(text)
    for text in ("2s/1s", "1s/1s", "step/2:1"):
        with pytest.raises(UsageError):
            check_window(text)


@given(st.text(alphabet="ab/:@#\\.0123456789msu ", max_size=12))
def test_any_text_is_a_window_or_an_error(text: str) -> None:
    try:
        window = asked(text)
    except UsageError as error:
        assert error.hint
    else:
        assert 0 <= window.start_ns < window.end_ns <= 53_000


# -- what a reader can choose -----------------------------------------------------------------------------------------


def views(report: Report) -> dict[str, tuple[int, int]]:
    return {view.name: (view.start_ns // 1000, view.end_ns // 1000) for view in report.windows}


def test_a_report_offers_the_steady_part_the_whole_and_the_start_up() -> None:
    report = build_report(draw(TRAINING), "drawn")
    assert views(report) == {STEADY: (29, 53), GPU_WORK: (6, 50), START_UP: (6, 29)}
    chosen, whole, start_up = report.windows
    assert (chosen.is_chosen, chosen.split, chosen.findings, chosen.repetitions) == (True, None, (), 4)
    for view in (whole, start_up):
        assert view.split is not None
        assert view.split["time_ns"].sum() == view.end_ns - view.start_ns
    parts = "17.0 µs host code, 4.00 µs compute, 1.00 µs allocation and free"
    assert start_up.sentence == f"23.0 µs until the steady part: {parts}."
    again = Report.from_json(report.to_json())
    assert again.to_json() == report.to_json()


def test_windows_that_hardly_differ_are_offered_once() -> None:
    assert [window.name for window in offered_windows(draw("nvtx  [s][s][s]\ncpu   L..L..L..\ns7    aaaaaaaaa"))] == [
        STEADY
    ]


def test_a_start_up_without_gpu_work_is_what_the_gpus_wait_for() -> None:
    report = build_report(draw("nvtx  ........[s][s][s]\ncpu   JJJJJJ..L..L..L..\ns7    ........aaaaaaaaa"), "drawn")
    assert views(report)[START_UP] == (0, 8)
    assert (
        report.windows[-1].sentence == "8.00 µs until the steady part: 6.00 µs module load and JIT, 2.00 µs host code."
    )


def test_what_was_asked_for_comes_first() -> None:
    report = build_report(replace(draw(TRAINING), window="step/1"), "drawn")
    assert list(views(report)) == ["step/1", STEADY, GPU_WORK, START_UP]
    assert report.windows[0].is_chosen


# -- steps ------------------------------------------------------------------------------------------------------------


def test_a_step_on_the_gpu_begins_with_its_first_operation() -> None:
    # the CPU is far ahead
    picture = "nvtx  [s][s][s]......\ncpu   L..L..L..........\ns7    aaaaabbbbbccccc"
    timeline = Timeline(draw(picture))
    begin, end = device_splits(timeline)[0].steps
    assert (begin // 1000).tolist() == [0, 5, 10]
    assert (end // 1000).tolist() == [5, 10, 15]
    (whole, compute) = step_split(timeline).frame.to_dict("records")
    assert (whole["category"], whole["steps"], whole["med_ns"], whole["min_ns"]) == (WHOLE_STEP, 3, 5000, 5000)
    assert (compute["category"], compute["avg_ns"]) == ("compute", 5000)


def test_a_step_without_work_on_the_gpu_begins_with_the_cpu() -> None:
    timeline = Timeline(draw("nvtx  [s][s][s][s]\ncpu   L.....L..L..\ns7    aa....aa.aa."))
    assert (device_splits(timeline)[0].steps[0] // 1000).tolist() == [0, 3, 6, 9]


def test_without_repetitions_there_are_no_steps() -> None:
    table = step_split(Timeline(draw("cpu   L.\ns7    a.")))
    assert table.frame.empty
    assert table.notes == ("The window is not known to consist of repetitions.",)


# -- properties -------------------------------------------------------------------------------------------------------


@st.composite
def loops(draws: st.DrawFn) -> tuple[Profile, int, int, int]:
    """Draw a program: its start-up, a loop with numbers and noise, in one process or several; slow steps at first.

    Returns it with the number of processes, of steps, and of slow ones.
    """
    count, slow, processes = draws(st.integers(6, 30)), draws(st.integers(0, 2)), draws(st.integers(1, 3))
    noise = np.random.default_rng(draws(st.integers(0, 2**32 - 1)))
    is_numbered, start_up = draws(st.booleans()), draws(st.integers(1, 500)) * MS
    ranges, calls, kernels = [], [], []
    for process in range(1, processes + 1):
        length = (10 + noise.uniform(0, 2, count)) * MS
        length[:slow] *= 5
        start = (start_up + np.concatenate(([0], np.cumsum(length)[:-1]))).astype(np.int64)
        end = (start + 0.95 * length).astype(np.int64)
        name = [f"step {number}" for number in range(count)] if is_numbered else ["step"] * count
        thread = {"process": process, "thread": process * 100, "pid": process, "tid": process}
        facts = {"domain": "", "style": "PushPop", "is_open": False}
        ranges.append(pd.DataFrame({"start_ns": start, "end_ns": end, "name": name, **thread, **facts}))
        # once something in the start-up, then a few launches in each step
        launched = np.sort(np.append(start[:, None] + noise.uniform(0, 8, (count, 4)) * MS, noise.uniform(0, start_up)))
        launched = launched.astype(np.int64)
        correlation = np.arange(len(launched))
        calls.append(
            pd.DataFrame(
                {
                    "start_ns": launched,
                    "end_ns": launched + 5000,
                    "correlation": correlation,
                    **thread,
                    "name": "cudaLaunchKernel",
                    "layer": "runtime",
                }
            )
        )
        began = launched + 10_000
        kernels.append(
            pd.DataFrame(
                {
                    "start_ns": began,
                    "end_ns": began + MS,
                    "process": process,
                    "device": process - 1,
                    **ON_STREAM,
                    "correlation": correlation,
                    "name": "k",
                    "short_name": "k",
                }
            )
        )
    tables = {
        name: conform(name, pd.concat(frames).sample(frac=1, random_state=0))
        for name, frames in {"ranges": ranges, "kernels": kernels}.items()
    }
    tables["api_calls"] = conform("api_calls", pd.concat(calls).sort_values("start_ns"))
    return Profile({**tables, "memory_ops": empty("memory_ops")}), processes, count, slow


@examples(60)
@given(loops())
def test_the_loop_is_found_whatever_surrounds_it(made: tuple[Profile, int, int, int]) -> None:
    profile, processes, count, slow = made
    window = chosen_window(profile)
    assert window.name == STEADY
    assert [len(starts) for starts in window.steps.values()] == [count - slow] * processes
    ranges = profile.table("ranges")
    assert window.start_ns in set(ranges["start_ns"])
    assert window.end_ns >= ranges["end_ns"].max()
    assert (np.diff(window.repetitions) > 0).all()
    everything = [profile.table(name) for name in ("ranges", "kernels", "api_calls")]
    assert min(table["start_ns"].min() for table in everything) <= window.start_ns
    assert window.end_ns <= max(table["end_ns"].max() for table in everything)


@examples(30)
@given(loops())
def test_the_split_of_any_window_adds_up_and_so_do_its_steps(made: tuple[Profile, int, int, int]) -> None:
    profile, processes, *_ = made
    for window in offered_windows(profile):
        timeline = Timeline(profile, window)
        split = time_split(timeline).frame
        assert (split.groupby("device")["time_ns"].sum() == window.length_ns).all()
    steps = step_split(Timeline(profile)).frame
    assert steps["device"].nunique() == processes
    for _, mine in steps.groupby("device"):
        whole = mine["avg_ns"].iloc[0]
        assert mine["avg_ns"].iloc[1:].sum() == pytest.approx(whole)
        assert (mine["min_ns"] <= mine["med_ns"]).all()
        assert (mine["med_ns"] <= mine["max_ns"]).all()


@examples(60)
@given(
    st.integers(2, 12),
    st.integers(4, 30),
    st.integers(0, 8),
    st.integers(0, 2**32 - 1),
)
def test_the_period_of_launches_is_found(period: int, count: int, before: int, seed: int) -> None:
    noise = np.random.default_rng(seed)
    # a cycle whose kernels all differ has no smaller period
    names = [f"init {number}" for number in range(before)] + [f"kernel {number}" for number in range(period)] * count
    pauses = np.concatenate([np.full(before, 2.0), np.tile([20.0, *[1.0] * (period - 1)], count)])
    launched = np.cumsum((pauses + noise.uniform(0, 0.5, len(pauses))) * 10_000).astype(np.int64)
    kernels = pd.DataFrame(
        {
            "start_ns": launched,
            "end_ns": launched + 5000,
            "process": 1,
            "device": 0,
            **ON_STREAM,
            "name": names,
            "short_name": names,
        }
    )
    profile = Profile({"kernels": conform("kernels", kernels), "memory_ops": empty("memory_ops")})
    window = steady_window(profile)
    if period * count < 20:
        return
    assert window is not None
    assert window.family == f"the same {period:,} launches"
    assert count - 1 <= len(window.repetitions) <= count


@examples(30)
@given(loops())
def test_a_window_put_together_from_others_has_the_split_that_it_has_alone(made: tuple[Profile, int, int, int]) -> None:
    timeline = Timeline(made[0])
    for other in other_timelines(timeline):
        alone = time_split(Timeline(made[0], other.window)).frame
        pd.testing.assert_frame_equal(time_split(other).frame, alone)


# -- real captures ----------------------------------------------------------------------------------------------------


def whole_of(profile: Profile) -> Timeline:
    return next(timeline for timeline in other_timelines(Timeline(profile)) if timeline.window.name == GPU_WORK)


def test_a_training_loop_is_busy_in_its_steady_part(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    window = chosen_window(profile)
    assert (window.family, len(window.repetitions)) == ("iteration #", 19)
    split = time_split(Timeline(profile)).frame
    assert split.loc[split["group"] == "busy", "share_pct"].sum() == pytest.approx(86.8, abs=0.1)
    alone, whole = (
        time_split(timeline).frame for timeline in (Timeline(profile, whole_window(profile)), whole_of(profile))
    )
    pd.testing.assert_frame_equal(whole, alone)
    assert whole.loc[whole["group"] == "busy", "share_pct"].sum() == pytest.approx(1.9, abs=0.1)


def test_a_training_loop_without_its_ranges_has_the_same_steps(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    bare = chosen_window(without(profile, "ranges"))
    assert (bare.family, len(bare.repetitions)) == ("the same 29 launches", 19)
    steps = chosen_window(profile).repetitions
    assert np.abs(np.diff(bare.repetitions) - np.diff(steps)).max() < 0.3 * MS


def test_two_ranks_are_found_together(recorded: Recorded) -> None:
    window = chosen_window(recorded.profile("ddp2"))
    assert (window.family, [len(starts) for starts in window.steps.values()]) == ("step", [11, 11])


@pytest.mark.parametrize(("name", "window"), [("gelu", GPU_WORK), ("graph", ANNOTATED)])
def test_programs_of_several_phases_are_shown_from_the_first_to_the_last(
    name: str, window: str, recorded: Recorded
) -> None:
    assert chosen_window(recorded.profile(name)).name == window


# -- the command line -------------------------------------------------------------------------------------------------


def test_a_window_on_the_command_line(run: Any, capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    train = capture_file("train")
    run("report", train, "--window", "iteration/3:5", "-o", "out.json")
    report = Report.from_json((tmp_path / "out.json").read_bytes())
    assert (report.windows[0].name, report.windows[0].repetitions) == ("iteration/3:5", 3)
    assert report.result("gpu_time").rows["window"].tolist() == ["iteration/3:5"]
    stderr = run("report", train, "--window", "step", expect=2).output
    assert "no range 'step' in this capture" in stderr
    assert "Hint: Ranges of this capture: iteration 0" in stderr
    assert "ends before" in run("report", train, "--window", "2s/1s", expect=2).output
    assert "its window cannot be changed" in run("report", "out.json", "--window", "whole", expect=2).output


def test_a_run_is_profiled_with_a_window(run: Any, script: Any, fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--window", "measure/torch", script())
    (folder,) = (path for path in (tmp_path / "reports/train").iterdir() if path.is_dir() and not path.is_symlink())
    report = Report.from_json((folder / "report.json").read_bytes())
    assert report.windows[0].name == "measure/torch"


def test_a_window_that_a_run_lacks_is_a_finding(
    run: Any, script: Any, fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--window", "nothing", script())
    (folder,) = (path for path in (tmp_path / "reports/train").iterdir() if path.is_dir() and not path.is_symlink())
    report = Report.from_json((folder / "report.json").read_bytes())
    (finding,) = [finding for finding in report.findings if finding.rule == "unknown_window"]
    assert finding.detail.startswith("No range 'nothing' in this capture")
    assert finding.remedy.startswith("Ranges of this capture: warmup/naive")
    assert report.windows[0].name == GPU_WORK


def test_an_impossible_window_is_refused_before_the_program_runs(
    run: Any, script: Any, fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    assert "is empty" in run("profile", "--collector", "nsys", "--window", "1s/1s", script(), expect=2).output
    assert not (tmp_path / "reports").exists()


def test_a_window_in_a_notebook(capture_file: Callable[[str], Path]) -> None:
    report = ns.report(capture_file("train"), window="iteration/3:5")
    assert report["gpu_time"]["window"].tolist() == ["iteration/3:5"]


def test_steps_of_a_process_that_was_recorded_later_have_later_numbers() -> None:
    starts = {1: [0, 10, 20, 30], 2: [21, 31], 3: [6, 16, 26, 36], 4: [9, 20, 30], 5: []}
    window = Window(0, 40, "steady part", steps={key: np.array(times, dtype=np.int64) for key, times in starts.items()})
    # one with as many steps lacks none, however late it is
    assert window.first_steps == {1: 0, 2: 2, 3: 0, 4: 1}


def test_calls_have_their_names_without_the_version_that_cupti_appends(recorded: Recorded) -> None:
    window = chosen_window(recorded.profile("straggler.bad"))
    assert "the CPU waits in cudaEventSynchronize, which is rare in later ones" in window.sentence
