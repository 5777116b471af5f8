"""What runs in host code: named by samples of Python's stack, by operators, or by the call after it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from nightsight.advise import describe_place
from nightsight.analyze.causes.path import path_table
from nightsight.analyze.causes.simulation import what_if
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform, empty
from tests.recorded import Recorded
from tests.reports import advised
from tests.timeline import PROCESS, draw

STEPS = 6
STEP_US = 400
THREAD = {"process": PROCESS, "thread": PROCESS | 7, "pid": 5, "tid": 7}
OTHER = {"process": PROCESS, "thread": PROCESS | 8, "pid": 5, "tid": 8}
# in each step, 290 µs of host code come before the launch
RANGES = f"[step{' ' * (STEP_US - 6)}]" * STEPS
CALLS = f"cpu   {('.' * 300 + 'L' * 10 + '.' * 90) * STEPS}\ns7    {('.' * 315 + 'a' * 40 + '.' * 45) * STEPS}"
PICTURE = f"nvtx  {RANGES}\n{CALLS}"

Rows = list[dict[str, Any]]


def samples(*functions: str, at: int = 100, **changes: Any) -> Rows:
    """Return a sample of each function in each step, a µs apart."""
    return [
        {
            "start_ns": (step * STEP_US + at + number) * 1000,
            "function": function,
            "stack": function,
            **THREAD,
            **changes,
        }
        for step in range(STEPS)
        for number, function in enumerate(functions)
    ]


def operators(*names: str, start: int = 20, length: int = 270) -> Rows:
    """Return operators in each step, one inside the other."""
    return [
        {"start_ns": begin + level * 1000, "end_ns": begin + length * 1000 - level * 1000, "name": name, **THREAD}
        for begin in ((step * STEP_US + start) * 1000 for step in range(STEPS))
        for level, name in enumerate(names)
    ]


def frames(*names: str) -> Rows:
    """Return the frame of the call of each step."""
    starts = [(step * STEP_US + 300) * 1000 for step in range(STEPS)]
    return [
        {"thread": THREAD["thread"], "start_ns": start, "frame": names[step % len(names)]}
        for step, start in enumerate(starts)
    ]


def with_tables(picture: str = PICTURE, **tables: Rows) -> Profile:
    frames_by_name = {name: conform(name, pd.DataFrame(rows)) if rows else empty(name) for name, rows in tables.items()}
    return draw(picture).joined(Profile(frames_by_name))


def named(profile: Profile, rule: str = "host_code") -> dict[str, str]:
    """Return by path what runs in the host code of a remedy."""
    table = what_if(Timeline(profile)).frame
    frame = table[table["rule"] == rule]
    return dict(zip(frame["path"], frame["function"], strict=True))


def test_the_critical_path_names_it_too() -> None:
    rows = path_table(Timeline(with_tables(python_samples=samples("collate (train.py:10)")))).frame
    host = rows[rows["cause"] == "host code"]
    assert (host["name"].iloc[0], host["path"].iloc[0]) == ("collate (train.py:10)", "step")
    assert path_table(Timeline(draw(PICTURE))).frame["name"].iloc[0] == ""


def os_calls(name: str, start: int = 20, length: int = 270, **thread: int) -> Rows:
    """Return a call of the operating system in each step."""
    starts = [(step * STEP_US + start) * 1000 for step in range(STEPS)]
    return [
        {"start_ns": begin, "end_ns": begin + length * 1000, "name": name, **(thread or THREAD)} for begin in starts
    ]


@pytest.mark.parametrize(
    ("calls", "waits"),
    [
        (os_calls("pthread_cond_timedwait"), "pthread_cond_timedwait"),
        (os_calls("sem_clockwait", 0, 80) + os_calls("futex", 100, 190), "futex"),
        (os_calls("poll", 20, 50), ""),  # most of the time it computes
        (os_calls("mmap64"), ""),  # that is work
        (os_calls("sem_wait", **OTHER), ""),
        ([], ""),
    ],
)
def test_host_code_that_waits_says_so(calls: Rows, waits: str) -> None:
    profile = with_tables(os_calls=calls)
    table = what_if(Timeline(profile)).frame
    assert table.loc[table["rule"] == "host_code", "waits_in"].tolist() == [waits]
    (finding, *_) = advised(Timeline(profile))
    assert ("Most of this time is spent in" in finding.detail, "a lock" in finding.remedy) == (bool(waits), bool(waits))


def test_nothing_is_named_where_the_capture_is_silent() -> None:
    assert named(draw(PICTURE)) == {"step": ""}
    assert named(with_tables(python_samples=[], cpu_ops=[], call_frames=[])) == {"step": ""}


def test_a_wait_and_host_code_together_have_the_function_of_the_code_and_a_wait_alone_has_none() -> None:
    """In each step a launch, in `load` a wait for its kernel and host code, then other code and a wait for nothing."""
    loads = ("." * 12 + f"[load{' ' * 312}]" + "." * 70) * STEPS
    calls = "L" * 10 + ".." + "S" * 118 + "." * 267 + "SS."
    picture = (
        f"nvtx  {RANGES}\nnvtx  {loads}\ncpu   {calls * STEPS}\ns7    {('.' * 15 + 'a' * 113 + '.' * 272) * STEPS}"
    )
    profile = with_tables(picture, python_samples=samples("load (a.py:3)", at=200))
    assert named(profile, "wait") == {"step / load": ""}
    assert named(profile, "wait_and_host_code") == {"step / load": "load (a.py:3)"}
    assert named(profile)["step / load"] == "load (a.py:3)"


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        # lines of one function are one, and the most frequent is named
        (("a (a.py:1)", "a (a.py:2)", "a (a.py:2)", "b (b.py:9)", "b (b.py:9)"), "a (a.py:2)"),
        (("a (line 1)", "a (line 2)", "a (line 2)", "b (line 9)", "b (line 9)"), "a (line 2)"),
        # the same name in other files is another function
        (("a (a.py:1)", "a (b.py:1)", "a (c.py:1)", "b (b.py:1)", "b (b.py:1)"), "b (b.py:1)"),
        # 40 % are enough, less is not
        (("a", "a", "b", "c", "d"), "a"),
        (("a", "a", "a", "b", "b", "c", "d", "e"), ""),
    ],
)
def test_the_function_of_most_samples(functions: tuple[str, ...], name: str) -> None:
    assert named(with_tables(python_samples=samples(*functions))) == {"step": name}


def test_samples_of_other_threads_and_times_do_not_count() -> None:
    load = samples("load")
    elsewhere = samples(*["other"] * 5, **OTHER)
    during_the_call = samples(*["call"] * 5, at=302)
    assert named(with_tables(python_samples=[*elsewhere, *during_the_call, *load])) == {"step": "load"}
    assert named(with_tables(python_samples=elsewhere)) == {"step": ""}


def test_two_samples_tell_nothing() -> None:
    assert named(with_tables(python_samples=samples("load")[1:3])) == {"step": ""}
    assert named(with_tables(python_samples=samples("load")[1:4])) == {"step": "load"}


def test_samples_in_any_order() -> None:
    rows = samples("a", "b", "b", "a", "a")
    order = np.random.default_rng(5).permutation(len(rows))
    assert named(with_tables(python_samples=[rows[row] for row in order])) == {"step": "a"}


def test_the_innermost_operator_in_the_middle_of_the_code() -> None:
    assert named(with_tables(cpu_ops=operators("aten::to", "aten::_to_copy"))) == {"step": "aten::_to_copy"}
    assert named(with_tables(cpu_ops=operators("aten::to", start=20, length=40))) == {"step": ""}
    some = operators("aten::to")
    assert named(with_tables(cpu_ops=some[:2])) == {"step": ""}
    assert named(with_tables(cpu_ops=some[:4])) == {"step": "aten::to"}
    assert named(with_tables(cpu_ops=[{**row, **OTHER} for row in some])) == {"step": ""}


def test_the_innermost_python_function_comes_before_operators() -> None:
    calls = [{**row, "function": row["name"]} for row in operators("main (a.py:1)", "load (a.py:9)")]
    inside = operators("aten::to", "aten::copy_", "aten::empty", start=30, length=250)
    assert named(with_tables(python_functions=calls, cpu_ops=inside)) == {"step": "load (a.py:9)"}
    assert named(with_tables(python_functions=calls, python_samples=samples("other"))) == {"step": "other"}


def test_the_frame_of_the_call_that_comes_next() -> None:
    assert named(with_tables(call_frames=frames("train"))) == {"step": "train"}
    assert named(with_tables(call_frames=frames("a", "b", "c", "d", "e", "f"))) == {"step": ""}
    assert named(with_tables(call_frames=[*frames("train"), *frames("again")])) == {"step": "train"}


def test_samples_say_it_better_than_operators_and_these_than_the_next_call() -> None:
    after, inside = frames("frame"), operators("operator")
    assert named(with_tables(call_frames=after, cpu_ops=inside)) == {"step": "operator"}
    for functions, name in (["load"], "load"), (["a", "b", "c"], "operator"):
        profile = with_tables(call_frames=after, cpu_ops=inside, python_samples=samples(*functions))
        assert named(profile) == {"step": name}


def test_code_outside_of_ranges_has_a_name() -> None:
    assert named(with_tables(CALLS, python_samples=samples("load"))) == {"(no range)": "load"}


@pytest.mark.parametrize(
    ("stacks", "caller"),
    [
        (("main (a.py:9);train (a.py:5);load (a.py:1)",), "train (a.py:5)"),
        # frames of libraries, and the function itself, do not count
        (("main (a.py:9);[map (x.py:3)];load (a.py:7);load (a.py:1);[sort (x.py:1)]",), "main (a.py:9)"),
        (("load (a.py:1)",), ""),
        (("[run (threading.py:4)];load (a.py:1)",), ""),
        # of several the most frequent
        (("a (a.py:2);load (a.py:1)", "b (a.py:3);load (a.py:1)", "b (a.py:3);load (a.py:1)"), "b (a.py:3)"),
        (("",), ""),
        (("…;load (a.py:1)",), ""),
    ],
)
def test_the_function_that_called_it(stacks: tuple[str, ...], caller: str) -> None:
    rows = [row for at, stack in enumerate(stacks) for row in samples("load (a.py:1)", at=100 + at, stack=stack)]
    table = what_if(Timeline(with_tables(python_samples=rows))).frame
    assert table.loc[table["rule"] == "host_code", "caller"].tolist() == [caller]
    (finding, *_) = advised(Timeline(with_tables(python_samples=rows)))
    assert ("called from" in finding.title) == bool(caller)


@pytest.mark.parametrize(
    ("path", "function", "caller", "expected"),
    [
        ("(no range)", "load (a.py:3)", "train (a.py:9)", "`load` (a.py:3), called from `train`"),
        ("(no range)", "load", "train (a.py:9)", "`load`, called from `train`"),
        ("step / x", "load (a.py:3)", "train (a.py:9)", "`x` (`load` in a.py:3, called from `train`)"),
        ("", "load", "<module> (a.py:9)", "`load`, called from `<module>`"),
    ],
)
def test_how_a_caller_is_described(path: str, function: str, caller: str, expected: str) -> None:
    assert describe_place(path, function, caller) == expected


@pytest.mark.parametrize(
    ("path", "function", "expected"),
    [
        ("step / load", "augment (data.py:12)", "`load` (`augment` in data.py:12)"),
        ("step / load", "augment (line 12)", "`load` (`augment` at line 12)"),
        ("step / load", "aten::copy_", "`load` (`aten::copy_`)"),
        ("step / load", "", "`load`"),
        ("(no range)", "augment (data.py:12)", "`augment` (data.py:12)"),
        ("(no range)", "", ""),
        ("", "augment", "`augment`"),
    ],
)
def test_how_a_place_is_described(path: str, function: str, expected: str) -> None:
    assert describe_place(path, function) == expected


def test_a_program_without_ranges_is_named_by_the_functions_it_was_found_in(recorded: Recorded) -> None:
    titles = [finding.title for finding in recorded.report("python_names").findings if finding.rule == "host_code"]
    assert titles[0].startswith("The GPU waits for host code in `collate` (line 4), called from `train`: ")
    profile = recorded.profile("python_names")
    assert len(profile.table("marks")) == 0
    assert not any("/" in name for name in profile.table("python_samples")["function"].cat.categories)


def test_a_torch_trace_names_operators(recorded: Recorded) -> None:
    assert named(recorded.profile("mini_torch"))["ProfilerStep"] == "aten::normal_"
