"""Where CUDA calls were made."""

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.callers import NOT_RECORDED, OUTSIDE, call_names, call_paths, outermost
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.timeline import draw


def test_a_call_is_named_by_the_ranges_around_it() -> None:
    timeline = Timeline(
        draw(
            """
            nvtx  [step      ]....
            nvtx  .[fwd  ]........
            cpu   ..LL.....LL...LL
            """
        )
    )
    calls = np.array([0, 1, 2, -1])
    assert list(call_paths(timeline, calls)) == ["step / fwd", "step", OUTSIDE, OUTSIDE]
    assert list(call_names(timeline, calls)) == ["cudaLaunchKernel"] * 3 + [NOT_RECORDED]


def test_numbered_repetitions_of_a_range_are_one_but_numbers_inside_words_stay() -> None:
    timeline = Timeline(draw("nvtx  [step_1][step_2][h2d  ]\ncpu   ..LL....LL......LL..."))
    assert list(call_paths(timeline, np.arange(3))) == ["step_#", "step_#", "h2d"]


def test_without_ranges_all_calls_are_outside() -> None:
    profile = draw("cpu  LL..SS")
    tables = {name: table for name, table in profile.tables.items() if name != "ranges"}
    assert list(call_paths(Timeline(Profile(tables)), np.arange(2))) == [OUTSIDE, OUTSIDE]


def test_a_driver_call_inside_a_runtime_call_is_not_outermost_whatever_their_order() -> None:
    profile = draw("cpu  SSSS..SS")
    outer = profile.table("api_calls")
    inner = outer.assign(name="cuStreamSynchronize", layer="driver")
    inner["end_ns"] -= [1000, 0]
    for parts in ([outer, inner], [inner, outer]):
        calls = conform("api_calls", pd.concat(parts))
        callers = outermost(Timeline(Profile({**profile.tables, "api_calls": calls})), np.arange(4))
        assert calls["layer"].iloc[callers].tolist() == ["runtime", "runtime"]


def test_calls_of_two_threads_do_not_contain_one_another() -> None:
    timeline = Timeline(draw("cpu    SSSSSS\ncpu:8  ..SS.."))
    assert outermost(timeline, np.arange(2)).tolist() == [0, 1]
