"""Calls that belong before what is measured: which they are, where they were made, and in how many repetitions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from nightsight.analyze.ranges.setup import setup_calls
from nightsight.events.timeline import Timeline
from nightsight.events.window import WHOLE
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.recorded import Recorded
from tests.timeline import draw, side_by_side

CaptureFile = Callable[[str], Path]


def rows(profile: Profile, *columns: str) -> list[list[object]]:
    return list(setup_calls(Timeline(profile)).frame[list(columns)].to_numpy().tolist())


def test_calls_are_listed_by_kind_function_and_range() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        cpu   LAAFJJJ.L.A.....L.......
        s7    a.......a.......a......b
        """
    assert rows(draw(picture), "kind", "name", "path", "calls", "total_ns", "max_ns", "steps", "of_steps") == [
        ["allocation and free", "cudaMalloc", "step", 2, 3000, 2000, 2, 3],
        ["module load and JIT", "cuLibraryLoadData", "step", 1, 3000, 3000, 1, 3],
        ["allocation and free", "cudaFree", "step", 1, 1000, 1000, 1, 3],
    ]


def test_a_step_of_each_of_two_processes_is_one_of_its_own_steps() -> None:
    one = draw("nvtx  [step][step][step]\ncpu   L.JJ....L.....L...\ns7    .aaaaaaaaaaaaa.bb")
    figures = rows(side_by_side(one, one), "name", "path", "pid", "calls", "steps", "of_steps")
    assert figures == [["cuLibraryLoadData", "step", pid, 1, 1, 3] for pid in (5, 6)]


def test_each_rank_of_a_real_capture_loads_in_one_of_its_own_twelve_steps(recorded: Recorded) -> None:
    table = setup_calls(Timeline(replace(recorded.profile("ddp2"), window=WHOLE))).frame
    loads = table[(table["name"] == "cuLibraryLoadData") & (table["path"] == "step / forward")]
    assert loads[["calls", "steps", "of_steps"]].to_numpy().tolist() == [[6, 1, 12], [6, 1, 12]]
    assert loads["pid"].nunique() == 2


def test_calls_before_the_window_are_the_warm_up() -> None:
    assert rows(draw("nvtx  .....[measure]\ncpu   AAA..L......\ns7    ......aaaa.."), "name") == []


def test_a_driver_call_inside_a_runtime_call_is_not_counted_again() -> None:
    profile = draw("cpu  AAAA\ns7   a..a")
    outer = profile.table("api_calls")
    inner = outer.assign(name="cuMemAlloc_v2", layer="driver", start_ns=1000, end_ns=3000)
    calls = conform("api_calls", pd.concat([inner, outer]))
    assert rows(Profile({**profile.tables, "api_calls": calls}), "name", "calls") == [["cudaMalloc", 1]]
