"""Stacks of Python by the cause of idle time: which thread and which samples count, what a sample stands for, sums."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.idle_stacks import ANALYSES, idle_stacks
from nightsight.analyze.split import time_split
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read.kineto import read_kineto
from nightsight.results.steps import OPERATORS
from nightsight.tables import conform, empty
from tests.kineto import ON_GPU, call, kernel, write
from tests.recorded import Recorded
from tests.timeline import PROCESS, draw, side_by_side

# idle from 6 to 24 µs and from 27 to 35: launches for 2 and 4 µs, a wait for 2, host code for the other 18
PICTURE = "cpu  LL....................LL....SS.LL.....\ns7   ..aaaa..................aaa........aaa"
HOST, SYNC, LAUNCH = "host code", "synchronizing call", "launch"
NOTHING = ""
Rows = list[dict[str, Any]]


def on(thread: int) -> dict[str, int]:
    return {"process": PROCESS, "thread": PROCESS | thread, "pid": 5, "tid": thread}


def samples(stacks: Mapping[int, str], thread: int = 7) -> Rows:
    """Return a sample with each stack, at its µs."""
    return [{"start_ns": time * 1000, "function": "f", "stack": stack, **on(thread)} for time, stack in stacks.items()]


def calls(*spans: tuple[int, int, str], thread: int = 7) -> Rows:
    """Return calls of functions from a µs to another."""
    return [
        {"start_ns": 1000 * start, "end_ns": 1000 * end, "function": name, **on(thread)} for start, end, name in spans
    ]


def recorded_in(profile: Profile, **tables: Rows) -> Timeline:
    frames = {name: conform(name, pd.DataFrame(rows)) if rows else empty(name) for name, rows in tables.items()}
    return Timeline(Profile({**profile.tables, **frames}, window="whole"))


def drawn(**tables: Rows) -> Timeline:
    return recorded_in(draw(PICTURE), **tables)


def found(timeline: Timeline) -> dict[tuple[str, str], float]:
    """Return the µs of each cause and stack."""
    table = idle_stacks(timeline).frame
    return {(row["cause"], row["stack"]): row["time_ns"] / 1000 for row in table.to_dict("records")}


def stacks_of(*texts: str, **tables: Any) -> list[str]:
    """Return the stacks that host code has, if samples have these, a µs apart; the largest first."""
    rows = samples({6 + number: text for number, text in enumerate(texts)})
    return [stack for cause, stack in found(drawn(python_samples=rows, **tables)) if cause == HOST and stack]


def test_each_sample_in_idle_time_stands_for_the_distance_of_two() -> None:
    stacks = dict.fromkeys(range(3, 38, 2), "main") | dict.fromkeys((7, 9, 27), "main;load") | {29: "main;wait"}
    timeline = drawn(python_samples=samples(stacks))
    assert found(timeline) == {(HOST, "main"): 12, (HOST, "main;load"): 6, (LAUNCH, "main"): 6, (SYNC, "main;wait"): 2}
    table = idle_stacks(timeline)
    assert table.frame["samples"].tolist() == [6, 3, 3, 1]
    assert table.frame["function"].tolist() == ["main", "load", "main", "wait"]
    assert table.frame["share_pct"].sum() == pytest.approx(100)
    assert table.notes == (
        "13 samples, each worth 2.000 µs, their mean distance. Expect a time from 25 samples to be off by a fifth, one "
        "from 100 by a tenth.",
    )


def test_samples_stand_for_no_more_than_the_time_of_their_cause_and_the_rest_is_reported() -> None:
    timeline = drawn(python_samples=samples(dict.fromkeys((3, 13, 23, 33), "main")))
    assert found(timeline) == {
        (HOST, "main"): 10,
        (HOST, NOTHING): 8,
        (LAUNCH, "main"): 6,
        (SYNC, NOTHING): 2,
    }
    table = idle_stacks(timeline)
    assert table.frame.loc[table.frame["stack"] == "", "function"].tolist() == ["(not recorded)"] * 2
    assert table.notes[-1] == "38.5 % of the idle time has no stack."


def test_a_sampler_that_misses_turns_still_covers_the_time_and_one_that_pauses_does_not() -> None:
    often = dict.fromkeys((6, 7, 8, 9, 10, 11, 12, 13, 14, 19), "main")
    assert found(drawn(python_samples=samples(often)))[HOST, "main"] == pytest.approx(13 / 9 * 10, abs=0.001)
    paused = dict.fromkeys((6, 7, 8, 21), "main")
    assert found(drawn(python_samples=samples(paused)))[HOST, "main"] == 4


def test_the_thread_that_launches_next_counts_if_it_runs_python() -> None:
    own = samples(dict.fromkeys(range(3, 38, 2), "mine"))
    other = samples(dict.fromkeys(range(3, 38, 2), "other"), thread=9)
    assert {stack for _, stack in found(drawn(python_samples=own + other))} == {"mine"}
    assert {stack for _, stack in found(drawn(python_samples=other))} == {NOTHING}


def test_for_a_thread_without_python_the_one_of_its_process_that_launches_most_stands_in() -> None:
    """As in PyTorch's backward pass, whose launches come from a thread of C++."""
    profile = draw(
        "cpu:7  L..L..................................\n"
        "cpu:9  ......L...............................\n"
        "cpu:8  ......................LL....SS.LL.....\n"
        "s7     ..aaaabc................aaa........aaa"
    )
    backward = samples(dict.fromkeys(range(3, 38, 2), "backward"))
    other = samples(dict.fromkeys(range(3, 38, 2), "other"), thread=9)
    timeline = recorded_in(profile, python_samples=backward + other)
    assert {stack for _, stack in found(timeline)} == {"backward"}


def test_calls_are_counted_by_their_own_time() -> None:
    rows = calls((0, 40, "main (m.py:1)"), (5, 12, "load (m.py:9)"), (8, 10, "read (m.py:20)"), (28, 31, "wait"))
    timeline = drawn(python_functions=rows)
    main, load = "main (m.py:1)", "main (m.py:1);load (m.py:9)"
    assert found(timeline) == {
        (HOST, main): 11,
        (HOST, load): 4,
        (HOST, f"{load};read (m.py:20)"): 2,
        (HOST, f"{main};wait"): 1,
        (LAUNCH, main): 6,
        (SYNC, f"{main};wait"): 2,
    }
    table = idle_stacks(timeline)
    assert "samples" not in table.frame
    assert table.notes == ()


def test_calls_of_functions_with_one_name_are_two_where_they_are_defined_twice() -> None:
    rows = calls((0, 40, "main"), (6, 10, "forward (m.py:9)"), (10, 20, "forward (m.py:30)"))
    assert [stack for cause, stack in found(drawn(python_functions=rows)) if cause == HOST] == [
        "main;forward (m.py:30)",
        "main",
        "main;forward (m.py:9)",
    ]


def test_lines_of_a_function_are_one_frame_that_is_named_by_the_most_frequent() -> None:
    lines = [f"main (m.py:{line});load (m.py:{number})" for line, number in ((3, 9), (3, 10), (3, 10))]
    assert stacks_of(*lines, "main (m.py:4)", "main (m.py:4)") == [
        "main (m.py:3);load (m.py:10)",
        "main (m.py:3)",
    ]


def test_functions_of_one_name_stay_apart_if_they_are_called_from_different_lines() -> None:
    attention, mlp = "block (m.py:3);forward (m.py:20)", "block (m.py:4);forward (m.py:40)"
    assert stacks_of(attention, attention, mlp) == [
        "block (m.py:3);forward (m.py:20)",
        "block (m.py:3);forward (m.py:40)",
    ]
    # the same line in both: one function, called from two lines
    assert stacks_of("main (m.py:3);f (m.py:20)", "main (m.py:4);f (m.py:20)") == ["main (m.py:3);f (m.py:20)"]


@pytest.mark.parametrize(
    ("stack", "folded"),
    [
        # what own code calls, and what that led to
        ("main;[a (t.py:1)];[b (t.py:2)];[c (u.py:3)]", "main;[a (t.py)];[c (u.py)]"),
        ("main;[a (t.py:1)]", "main;[a (t.py)]"),
        # between own functions, what the first of them calls
        ("main;[a (t.py:1)];[b (t.py:2)];forward (m.py:4)", "main;[a (t.py)];forward (m.py:4)"),
        # what starts the program, imports modules or is made while it runs
        ("[run (runpy.py:1)];main", "main"),
        ("main;[wrapped (<string>:24)];[a (t.py:1)];[exec (<frozen importlib._bootstrap>:9)]", "main;[a (t.py)]"),
        ("main;[wrapped (<string>:24)]", "main"),
        # nothing else is known
        ("[a (t.py:1)];[b (t.py:2)]", "[a (t.py)];[b (t.py)]"),
        ("[wrapped (<string>:24)];[made (<string>:2)]", "[made (<string>)]"),
        ("…;[a (t.py:1)];main", "…;[a (t.py)];main"),
    ],
)
def test_of_libraries_only_what_says_something_is_kept(stack: str, folded: str) -> None:
    assert stacks_of(stack, stack) == [folded]


@pytest.mark.parametrize(
    ("stack", "function", "called"),
    [
        ("main (m.py:1);load (m.py:2)", "load (m.py:2)", ""),
        ("main (m.py:1);[a (t.py:1)];load (m.py:2);[b (t.py:3)]", "load (m.py:2)", "b (t.py)"),
        ("main (m.py:1);[a (t.py:1)];[b (t.py:2)]", "main (m.py:1)", "a (t.py) → b (t.py)"),
        ("[a (t.py:1)];[b (t.py:2)]", "[b (t.py)]", ""),
    ],
)
def test_a_stack_is_named_by_the_innermost_function_that_is_not_of_a_library(
    stack: str, function: str, called: str
) -> None:
    table = idle_stacks(drawn(python_samples=samples({6: stack, 7: stack}))).frame
    row = next(row for row in table.to_dict("records") if row["stack"])
    assert (row["function"], row["calls"]) == (function, called)


def test_a_function_that_takes_next_to_nothing_counts_for_its_caller() -> None:
    def of(count: int) -> list[str]:
        rows = [
            {"start_ns": 6000 + number, "function": "f", "stack": "main;rare" if number < count else "main", **on(7)}
            for number in range(16000)
        ]
        return [stack for cause, stack in found(drawn(python_samples=rows)) if cause == HOST and stack]

    # 0.1 % of 26 µs
    assert of(25) == ["main"]
    assert of(26) == ["main", "main;rare"]
    rows = samples({6: "rare"}) + samples(dict.fromkeys(range(7, 22), "main"))
    assert (HOST, "rare") in found(drawn(python_samples=rows))


def test_each_gpu_has_the_stacks_of_its_own_process() -> None:
    first, second = draw(PICTURE), draw(PICTURE)
    rows = samples(dict.fromkeys(range(3, 38, 2), "first"))
    other = [{**row, "stack": "second", "process": 6 << 24, "thread": 6 << 24 | 7, "pid": 6} for row in rows]
    table = idle_stacks(recorded_in(side_by_side(first, second), python_samples=rows + other)).frame
    assert table[["device", "stack"]].drop_duplicates().to_numpy().tolist() == [[0, "first"], [1, "second"]]
    assert table.groupby("device")["share_pct"].sum().tolist() == pytest.approx([100, 100])


def test_a_capture_without_stacks_says_how_to_get_them() -> None:
    (analysis,) = ANALYSES
    profile = Profile(drawn().profile.tables, missing={"python_samples": "Python was not sampled"})
    result = analysis.run(Timeline(profile))
    assert result.table is None
    assert "Python was not sampled" in result.unavailable
    table = idle_stacks(drawn(python_samples=[], python_functions=[]))
    assert table.frame.empty
    assert table.notes == ("only library functions of Python were recorded, or too few samples",)


def test_without_gpu_work_the_stacks_are_those_of_the_threads_in_operators_and_outside_of_them() -> None:
    spans = (0, 0), (10_000, 16_000), (40_000, 40_000)
    operators = [{"start_ns": start, "end_ns": end, "name": "aten::mm", **on(7)} for start, end in spans]
    rows = calls((0, 30, "main (m.py:1)"), (8, 20, "step (m.py:9)"))
    others = calls((0, 15, "load (m.py:20)"), thread=8) + calls((90, 95, "later (m.py:30)"), thread=9)
    table = idle_stacks(recorded_in(Profile({}), cpu_ops=operators, python_functions=rows + others))
    main, step = "main (m.py:1)", "main (m.py:1);step (m.py:9)"
    assert table.title == "Where Python was"
    assert table.frame[["tid", "cause", "stack", "time_ns", "share_pct"]].to_numpy().tolist() == [
        [7, HOST, main, 18_000, 45],
        [7, HOST, "", 10_000, 25],
        [7, HOST, step, 6_000, 15],
        [7, OPERATORS, step, 6_000, 15],
        [8, HOST, "", 25_000, 62.5],
        [8, HOST, "load (m.py:20)", 15_000, 37.5],
    ]
    assert table.frame["device"].isna().all()
    assert table.notes == ("43.8 % of the time has no stack.",)


def test_a_trace_of_nothing_but_python_functions_has_their_time() -> None:
    table = idle_stacks(recorded_in(Profile({}), python_functions=calls((2, 12, "main"), (4, 8, "load"))))
    assert table.frame[["cause", "stack", "time_ns"]].to_numpy().tolist() == [
        [HOST, "main", 6_000],
        [HOST, "main;load", 4_000],
    ]


def test_one_sample_does_not_say_how_often_there_is_one() -> None:
    assert idle_stacks(drawn(python_samples=samples({8: "main"}))).frame.empty


FRAMES = st.sampled_from(["main (m.py:1)", "main (m.py:2)", "[lib (t.py:1)]", "[made (<string>:1)]", "load", "…"])
TIMES = st.integers(0, 40)


@given(
    st.lists(st.tuples(TIMES, st.lists(FRAMES, max_size=5).map(";".join), st.sampled_from([7, 8])), max_size=30),
    st.lists(st.tuples(TIMES, TIMES, FRAMES), max_size=10),
)
def test_the_rows_of_each_cause_add_up_to_its_idle_time(
    sampled: Sequence[tuple[int, str, int]], spans: Sequence[tuple[int, int, str]]
) -> None:
    by_sample = [row for time, stack, thread in sampled for row in samples({time: stack}, thread)]
    # spans may cross
    by_call = calls(*((min(start, end), max(start, end), name) for start, end, name in spans))
    for tables in ({"python_samples": by_sample}, {"python_functions": by_call}):
        timeline = drawn(**tables)
        table, split = idle_stacks(timeline).frame, time_split(timeline).frame
        if len(table):
            idle = split[split["group"] == "idle"].set_index("category")["time_ns"]
            assert table.groupby("cause")["time_ns"].sum().to_dict() == idle.to_dict()
            assert (table["time_ns"] > 0).all()
            assert not table.duplicated(["cause", "stack"]).any()


def test_a_trace_with_stacks(tmp_path: Path) -> None:
    def function(name: str, start: int, length: int) -> dict[str, Any]:
        return call(cat="python_function", name=name, ts=start, dur=length, args={})

    functions = (
        function("/home/someone/train.py(12): train", 5, 100),
        function("/home/someone/data.py(41): collate", 30, 30),
        function("torch/nn/modules/module.py(1739): _wrapped_call_impl", 65, 30),
    )
    second = {"args": {"correlation": 6}, "ts": 80}
    trace = write(
        tmp_path, call(), kernel(), call(**second), kernel(args={**ON_GPU, "correlation": 6}, ts=86), *functions
    )
    table = idle_stacks(Timeline(replace(read_kineto(trace), window="whole")))
    train, both = "train (train.py:12)", "train (train.py:12);collate (data.py:41)"
    assert table.frame[["cause", "stack", "time_ns"]].to_numpy().tolist() == [
        [HOST, both, 30_000],
        [HOST, train, 25_500],
        [LAUNCH, train, 6_000],
    ]


def test_a_program_without_annotations(recorded: Recorded) -> None:
    rows = recorded.report("python_names").result("idle_stacks").rows
    most = rows.to_dict("records")[0]
    assert (most["cause"], most["function"], most["calls"]) == (HOST, "collate (line 4)", "")
    assert most["stack"] == "<module> (line 9);train (line 7);collate (line 4)"
    assert most["share_pct"] > 80
