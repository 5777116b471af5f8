"""How fast the host is without the profiler, as ranges without waits show it, where the GPU limits the step."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.host_time import host_ranges
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.simulation import profiler_cost, simulate
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.program import (
    CALL_US,
    Body,
    Expect,
    Host,
    Kernel,
    Post,
    Statement,
    Sync,
    Thread,
    captured,
    repeated,
    step_us,
    within,
)
from tests.properties import examples

SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(T1::Params)"
LAUNCHES = 20


def step(kernel_us: float, code_us: float, *inside: Statement) -> Body:
    """Return a step that calls a model: launches with code before each, a wait after all, and `inside` of the model."""
    launches = [part for _ in range(LAUNCHES) for part in (Host(code_us), Kernel(kernel_us, name=SGEMM))]
    return (within("Net", *launches, *inside), Sync())


def recorded(body: Body, *timed: tuple[str, float, float | None], added_us: float, cost_us: float) -> Profile:
    """Return the capture of 12 steps, in which each call took so much longer, and was thought to do.

    timed: in the run without the profiler, ranges, the time between two, and how long the CPU was in one, in µs.
    """
    profile = captured(*repeated(12, body), added_us=added_us, capability="9.0")
    times: list[dict[str, Any]] = [
        {
            "path": path,
            "instances": 100,
            "med_ns": 1000 * us,
            "on_gpu": True,
            "host_ns": host_us and round(1000 * host_us),
        }
        for path, us, host_us in timed
    ]
    cost = {"kind": ["launch", "wait"], "added_ns": 1000 * cost_us, "recorded_ns": 1000 * (CALL_US + added_us / 2)}
    tables = {"timed_ranges": pd.DataFrame(times), "profiler_costs": pd.DataFrame(cost)}
    return replace(profile, tables={**profile.tables, **{name: conform(name, rows) for name, rows in tables.items()}})


@given(st.floats(0.5, 12), st.floats(2, 8), st.floats(16, 40))
@examples(15)
def test_a_step_that_becomes_limited_by_the_host_is_predicted_from_ranges_that_were_timed(
    added_us: float, cost_us: float, code_us: float
) -> None:
    # on tensor cores, a kernel of 60 µs is predicted to take less than the host code before it
    base_us, fixed_us = step_us(step(60, code_us)), step_us(step(9.5, code_us))
    host_us = LAUNCHES * (code_us + CALL_US)
    timed = [("step", base_us, None), ("Net", base_us, host_us)]
    result = simulate(Timeline(recorded(step(60, code_us), *timed, added_us=added_us, cost_us=cost_us)))
    (gain,) = (gain for gain in result.gains if gain.remedy.rule == "tensor_cores")
    assert result.unprofiled_ns == pytest.approx(1000 * base_us, rel=0.02)
    assert result.unprofiled_ns - gain.gain_ns == pytest.approx(1000 * fixed_us, rel=0.1)


def host_of(body: Body, *timed: tuple[str, float, float]) -> float | None:
    """Return by how much the host is found to be faster, as a ratio; None if nothing shows it."""
    profile = recorded(body, ("step", 1_000, None), *timed, added_us=0, cost_us=2)
    ranges = host_ranges(Scene(Timeline(profile)))
    return None if ranges is None else ranges.recorded_ns / ranges.timed_ns


def test_only_ranges_without_waits_show_the_speed_of_the_host() -> None:
    in_net = LAUNCHES * (10 + CALL_US)
    assert host_of(step(1, 10), ("Net", 1_000, in_net / 2)) == pytest.approx(2, rel=0.01)
    # the whole step waits for the GPU, and then so does the model
    assert host_of(step(60, 10), ("Net", 1_000, in_net / 2)) == pytest.approx(2, rel=0.01)
    assert host_of(step(60, 10, Sync()), ("Net", 1_000, in_net / 2)) is None


def test_ranges_that_occur_more_often_in_one_of_the_runs_are_others() -> None:
    body = (*step(1, 10), *step(1, 10))
    assert host_of(body, ("Net", 500, 140)) is None
    assert host_of((within("Net", *step(1, 10)[:-1]), Sync()), ("Net", 500, 140)) is None


def test_few_of_the_calls_do_not_show_the_speed_of_the_host() -> None:
    outside = [Kernel(1) for _ in range(LAUNCHES + 5)]
    assert host_of((*outside[:10], *step(1, 10)), ("Net", 1_000, 140)) == pytest.approx(2, rel=0.01)
    assert host_of((*outside, *step(1, 10)), ("Net", 1_000, 140)) is None


def test_the_outermost_ranges_count_and_the_call_of_an_optimizer_by_its_name() -> None:
    (net, wait), update = step(1, 10), [Kernel(1) for _ in range(10)]
    body = (within("loss", Kernel(1), net), within("Optimizer.step#Adam.step", *update), wait)
    ends = ("step (ends with Adam.step)", 1_000, 10.0 * CALL_US)
    # 284 µs, and 40 of the optimizer
    assert host_of(body, ("loss", 1_000, 100.0), ("Net", 1_000, 7.0), ends) == pytest.approx(324 / 140, rel=0.02)
    assert host_of(body, ("Net", 1_000, 280.0), ends) == pytest.approx(1, rel=0.02)


def test_calls_of_the_thread_that_launches_count_in_a_range_of_a_thread_that_waits_for_it() -> None:
    backward = Thread((Expect("go"), *step(1, 10)[:-1], Post("done")))
    main = Thread((Post("go"), within("torch.autograd.backward", Kernel(1), Expect("done")), Sync()))
    profile = captured(*repeated(12, main, backward), capability="9.0")
    times = {"path": ["step", "torch.autograd.backward"], "instances": 100, "med_ns": 1e6, "on_gpu": True}
    table = conform("timed_ranges", pd.DataFrame({**times, "host_ns": [None, 150_000]}))
    profile = replace(profile, tables={**profile.tables, "timed_ranges": table})
    scene = Scene(Timeline(profile))
    ranges = host_ranges(scene)
    assert ranges is not None
    assert len(set(scene.graph.calls.thread[ranges.calls])) == 1
    assert len(ranges.calls) >= 0.9 * LAUNCHES / (LAUNCHES + 2) * len(scene.in_calls)


def test_what_the_host_takes_is_reported() -> None:
    timed = [("step", 1_300, None), ("Net", 1_300, 0.75 * LAUNCHES * (10 + CALL_US))]
    (note,) = (
        note
        for note in profiler_cost(Timeline(recorded(step(60, 10), *timed, added_us=0, cost_us=2))).notes
        if "show the speed of the host" in note
    )
    assert "25 % less time in them than the capture" in note
