"""The profiler's own cost, taken off: by typical costs, as calibrated, and so that the step is as it was timed."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.cost import fit_factor, fit_host_speed, timed_ns
from nightsight.analyze.causes.simulation import ANALYSES, Simulation, fix_ladder, profiler_cost, simulate, what_if
from nightsight.events.timeline import Timeline, busy_spans
from nightsight.events.window import chosen_window
from nightsight.model.report import TORCH_PROFILER, Profile, Report
from nightsight.results.causes import PROFILER_COST, REPLAY
from nightsight.tables import conform, empty
from nightsight.workflows.analysis import build_report
from tests.program import Call, Host, Kernel, Thread, captured, within
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

_RANGE = "[step" + " " * 34 + "]"
# in a step of 40 µs, four launches of 6 µs and little work: the GPU mostly waits for the CPU
LAUNCH_BOUND = f"nvtx  {_RANGE * 8}\ncpu   {'LLLLLL....' * 32}\ns7    {'......a...' * 32}"
# two launches, and work all the time
GPU_BOUND = f"nvtx  {_RANGE * 8}\ncpu   {('LLLLLL..LLLLLL' + '.' * 26) * 8}\ns7    ......{('a' * 30 + 'b' * 10) * 8}"


def known(picture: str, **tables: list[dict[str, Any]]) -> Profile:
    """Draw a capture, beside which these tables lie."""
    return draw(picture).joined(Profile({name: conform(name, pd.DataFrame(rows)) for name, rows in tables.items()}))


def found(profile: Profile) -> Simulation:
    return simulate(Timeline(profile))


def cost(kind: str, added_ns: float, recorded_ns: float = 6000.0) -> dict[str, Any]:
    return {"kind": kind, "added_ns": added_ns, "recorded_ns": recorded_ns}


def timed(med_ns: float, path: str = "step", instances: int = 8) -> dict[str, Any]:
    return {"path": path, "instances": instances, "med_ns": med_ns, "on_gpu": True}


def rows(profile: Profile) -> dict[str, dict[Any, Any]]:
    """Return the table of the profiler's cost by kind of call."""
    return {row["kind"]: row for row in profiler_cost(Timeline(profile)).frame.to_dict("records")}


def test_without_calibration_a_call_costs_what_is_typical() -> None:
    result = found(draw(LAUNCH_BOUND))
    assert result.replayed_ns == pytest.approx(40_000)
    # 1.3 times 6 µs for each of four launches
    (launch,) = rows(draw(LAUNCH_BOUND)).values()
    assert (launch["kind"], launch["recorded_ns"]) == ("launch", 6_000)
    assert (launch["calls"], launch["added_ns"], launch["time_ns"]) == pytest.approx((4, 7_800, 31_200))
    assert result.unprofiled_ns == result.predicted_ns == pytest.approx(40_000 - 31_200, rel=0.01)


def test_operators_that_torch_profiler_records_cost_time_before_the_next_call() -> None:
    thread = {name: draw(LAUNCH_BOUND).table("api_calls")[name].iloc[0] for name in ("process", "thread", "pid", "tid")}
    operators = [
        {"name": "aten::add", "start_ns": start, "end_ns": start + 1_000, **thread}
        for start in range(7_000, 320_000, 10_000)
    ]
    profile = known(LAUNCH_BOUND, cpu_ops=operators)
    assert found(of_unknown_profiler(profile)).predicted_ns == pytest.approx(40_000)
    recorded = replace(profile, environment=replace(profile.environment, collector=TORCH_PROFILER))
    result = found(recorded)
    costs = {kind: (row["calls"], round(row["added_ns"])) for kind, row in rows(recorded).items()}
    # before the first call, operators are unknown
    assert costs == {"launch": (4, 2_400), "operator": (4 - 1 / 8, 2_400)}
    # 0.4 times 6 µs for each of four launches, and for each of four operators
    assert result.call_cost_ns == pytest.approx(2_400)
    assert result.predicted_ns == pytest.approx(40_000 - 4 * 2 * 2_400, rel=0.01)


def of_unknown_profiler(profile: Profile) -> Profile:
    return replace(profile, environment=replace(profile.environment, collector="other"))


@pytest.mark.parametrize(("name", "step_us"), [("DistributedDataParallel.forward", 36), ("Sequential.forward", 40)])
def test_later_steps_have_no_waits_in_which_distributed_data_parallel_measures(name: str, step_us: int) -> None:
    picture = (
        f"nvtx  {_RANGE * 8}\ncpu   {('.SSSSSSSSSSSS.LL' + '.' * 24) * 8}\ns7    {'.' * 17}{('a' * 36 + '....') * 8}"
    )
    profile = of_unknown_profiler(draw(picture))
    renamed = {
        table: profile.table(table).assign(name=profile.table(table)["name"].cat.rename_categories(names))
        for table, names in {
            "api_calls": {"cudaStreamSynchronize": "cudaEventSynchronize"},
            "ranges": {"step": name},
        }.items()
    }
    result = found(replace(profile, tables={**profile.tables, **renamed}))
    assert result.measured_ns == pytest.approx(40_000)
    assert result.predicted_ns == pytest.approx(1_000 * step_us, abs=2_500)
    assert ("wait" in {gain.remedy.rule for gain in result.gains}) == (step_us == 40)


@pytest.mark.parametrize(
    ("steps", "slow", "is_fast_later", "ends"),
    # few steps are those of a start; in many, new shapes go on; without fast calls, nothing tells that it is set up
    [(7, (3,), True, True), (20, (2, 8, 14), True, False), (7, (3,), False, False)],
)
def test_what_an_operator_does_once_for_new_shapes_is_not_in_later_steps(
    steps: int, slow: tuple[int, ...], *, is_fast_later: bool, ends: bool
) -> None:
    lengths_us = [4_040 if number in slow else 40 for number in range(steps)]
    begun_us, shape = np.cumsum([0, *lengths_us]), np.cumsum([number in slow for number in range(steps)])
    picture = "\n".join(
        (
            "nvtx  " + "".join(f"[step{' ' * (length - 6)}]" for length in lengths_us),
            "cpu   " + "".join(f"{'.' * (length - 10)}LL........" for length in lengths_us),
            "s7    " + "".join("." * (length - 8) + "abcd"[shape[n]] * 8 for n, length in enumerate(lengths_us)),
        )
    )
    profile = of_unknown_profiler(draw(picture))
    thread = {name: profile.table("api_calls")[name].iloc[0] for name in ("process", "thread", "pid", "tid")}
    operators = [
        {
            "name": "aten::attention",
            "shapes": f"[[{shape[number] if is_fast_later else number}]]",
            "start_ns": 1_000 * (begun_us[number] + 1),
            "end_ns": 1_000 * (begun_us[number] + length - 5),
            **thread,
        }
        for number, length in enumerate(lengths_us)
    ]
    result = found(profile.joined(Profile({"cpu_ops": conform("cpu_ops", pd.DataFrame(operators))})))
    assert result.replayed_ns == pytest.approx(40_000 + len(slow) * 4_000_000 / steps, rel=0.25)
    assert (result.predicted_ns < 60_000) == ends
    assert (result.temporary_ns > 400_000) == ends
    assert ("compilation" in {gain.remedy.rule for gain in result.gains}) == (is_fast_later and not ends)


def loading(*numbers: int) -> Thread:
    """Return a rank of 20 steps, some of which compile a kernel."""
    work = (Host(100), Kernel(100))
    compiles = within("step", Host(5_000), Call("cuLibraryLoadData", 300), *work)
    return Thread(tuple(compiles if number in numbers else within("step", *work) for number in range(20)))


@pytest.mark.parametrize(
    ("ranks", "ends"),
    [
        # one rank, in the first steps or now and then; four, one of which goes on
        ((range(1, 9),), True),
        (((1, 4, 8, 14),), False),
        ((range(20), *(range(1, 9),) * 3), False),
    ],
)
def test_loads_that_get_rare_are_not_in_later_steps(ranks: tuple[Iterable[int], ...], *, ends: bool) -> None:
    result = found(captured(*(loading(*numbers) for numbers in ranks)))
    assert (result.predicted_ns < 250_000) == ends
    assert ("compilation" in {gain.remedy.rule for gain in result.gains}) != ends


def test_the_log_of_pytorch_is_a_cost_of_the_profiler() -> None:
    """A third of the host code before each launch writes it, by the samples of Python's stack."""
    profile = captured(Thread((within("step", Host(3_000), Kernel(100)),) * 12))
    calls = profile.table("api_calls")
    facts = {name: calls[name].iloc[0] for name in ("process", "thread", "pid", "tid")}
    stacks = ("train (train.py:9);work (train.py:3)",) * 2 + (
        "train (train.py:9);trace_structured (_internal.py:1478)",
    )
    samples = [
        {"start_ns": time, "stack": stacks[number % 3], "function": "work (train.py:3)", **facts}
        for number, time in enumerate(range(0, int(calls["end_ns"].max()), 100_000))
    ]
    plain = found(profile)
    logging = found(profile.joined(Profile({"python_samples": conform("python_samples", pd.DataFrame(samples))})))
    assert plain.predicted_ns - logging.predicted_ns == pytest.approx(1_000_000, rel=0.1)


def test_what_was_compiled_is_what_the_thread_launches_next() -> None:
    # cuDNN sets its kernel up between the load and the launch
    compiles = within(
        "step",
        Host(100),
        Kernel(100, name="before"),
        Host(5_000),
        Call("cuLibraryLoadData", 300),
        Call("cuKernelSetAttribute", 5),
        Kernel(100, name="cudnn_generated_fort_native_sdpa"),
        Kernel(100, name="after"),
    )
    (gain,) = (gain for gain in found(captured(Thread((compiles,) * 6))).gains if gain.remedy.rule == "compilation")
    assert gain.remedy.kernels == ("cudnn_generated_fort_native_sdpa",)


def test_a_compiler_that_runs_in_each_step_stays_although_libraries_load_at_the_start() -> None:
    load = Call("cuLibraryLoadData", 20)
    steps = [within("step", *((load,) if number < 3 else ()), Host(5_000), Kernel(100)) for number in range(20)]
    profile = captured(Thread(tuple(steps)))
    calls = profile.table("api_calls")
    stack = {"function": "bind (fx.py:3)", "stack": "train (line 9);_compile (convert_frame.py:1200);bind (fx.py:3)"}
    thread = {name: calls[name].iloc[0] for name in ("process", "thread", "pid", "tid")}
    samples = [{"start_ns": time, **stack, **thread} for time in range(0, int(calls["end_ns"].max()), 500_000)]
    sampled = profile.joined(Profile({"python_samples": conform("python_samples", pd.DataFrame(samples))}))
    result = found(sampled)
    assert result.predicted_ns > 4_900_000
    assert result.gains[0].remedy.rule == "compilation"


@pytest.mark.parametrize(
    ("added_ns", "recorded_ns", "expected_ns"),
    [
        (3_000.0, 6_000.0, 3_000.0),
        # the host was twice as slow in the capture as when it was calibrated
        (2_000.0, 3_000.0, 4_000.0),
        # and half as slow at most
        (1_000.0, 600.0, 2_000.0),
        (3_000.0, 60_000.0, 1_500.0),
        (0.0, 6_000.0, 0.0),
    ],
)
def test_a_calibrated_launch_costs_what_it_did_at_the_speed_of_the_host(
    added_ns: float, recorded_ns: float, expected_ns: float
) -> None:
    result = found(known(LAUNCH_BOUND, profiler_costs=[cost("launch", added_ns, recorded_ns)]))
    assert result.call_cost_ns == expected_ns
    assert result.unprofiled_ns == result.predicted_ns == pytest.approx(40_000 - 4 * expected_ns, rel=0.01)


def test_calls_of_python_programs_cost_more_than_those_of_the_calibration() -> None:
    sample = {"start_ns": 0, "thread": 7, "process": 1, "pid": 1, "tid": 7, "function": "main", "stack": "main"}
    profile = known(LAUNCH_BOUND, profiler_costs=[cost("launch", 1_500.0, 6_000.0)], python_samples=[sample])
    assert found(profile).call_cost_ns == 3_000.0


def test_each_kind_of_call_has_its_own_cost() -> None:
    picture = "nvtx  [measure                    ]\ncpu   LLLLLL..CCCC..EE..SSSSSS..AA\ns7    ......aa.H"
    costs = [cost("launch", 1000.0), cost("copy", 2000.0), cost("wait", 3000.0), cost("event", 0.0)]
    added = {kind: row["added_ns"] for kind, row in rows(known(picture, profiler_costs=costs)).items()}
    # what is not calibrated costs a share of a launch; what costs nothing is not listed
    assert added == {"launch": 1000.0, "copy": 2000.0, "wait": 3000.0, "allocation": 400.0}


def test_calibration_without_launches_counts_for_nothing() -> None:
    result = found(known(LAUNCH_BOUND, profiler_costs=[cost("copy", 1.0)]))
    assert not result.is_calibrated
    assert result.unprofiled_ns == found(draw(LAUNCH_BOUND)).unprofiled_ns


@pytest.mark.parametrize("true_ns", [8_000.0, 15_000.0, 36_000.0])
def test_gains_are_of_the_step_as_it_was_timed(true_ns: float) -> None:
    result = found(known(LAUNCH_BOUND, timed_ranges=[timed(true_ns)]))
    assert result.unprofiled_ns == pytest.approx(true_ns, rel=0.005)
    assert result.predicted_ns == found(draw(LAUNCH_BOUND)).predicted_ns
    assert result.timed_ns == true_ns
    table = what_if(Timeline(known(LAUNCH_BOUND, timed_ranges=[timed(true_ns)])))
    best = table.frame.iloc[0]
    assert best["gain_pct"] == pytest.approx(100 * best["gain_ns"] / result.unprofiled_ns)
    off = 100 * (result.predicted_ns / true_ns - 1)
    assert any(f"{abs(round(off))} % {'more' if off > 0 else 'less'} than timed" in note for note in table.notes)


def test_where_the_gpu_limits_no_cost_is_made_up() -> None:
    # the GPU was a little faster, or slower, in the run without the profiler
    for true_ns in (39_000.0, 40_000.0, 42_000.0):
        result = found(known(GPU_BOUND, timed_ranges=[timed(true_ns)]))
        assert result.factor == 1
        assert result.explained_ns == pytest.approx(40_000, rel=0.01)
        assert result.unprofiled_ns == pytest.approx(true_ns)


@pytest.mark.parametrize("true_ns", [60_000.0, 90_000.0])
def test_times_are_scaled_to_one_that_no_cost_explains_if_it_can_be_of_the_same_step(true_ns: float) -> None:
    profile = known(LAUNCH_BOUND, timed_ranges=[timed(true_ns)])
    result, notes = found(profile), profiler_cost(Timeline(profile)).notes
    assert (result.factor, result.explained_ns) == (0.0, result.replayed_ns)
    assert "Neither the overhead nor the speed of the host explains" in notes[-1]
    scale = true_ns / result.replayed_ns if true_ns < 2 * result.replayed_ns else 1.0
    assert result.unprofiled_ns == pytest.approx(scale * result.replayed_ns)
    exact = found(known(LAUNCH_BOUND, timed_ranges=[timed(result.replayed_ns)]))
    shares = [[gain.gain_ns / each.unprofiled_ns for gain in each.gains] for each in (result, exact)]
    assert shares[0] == pytest.approx(shares[1])
    assert sum(fix_ladder(Timeline(profile)).frame.query("order == 0")["time_ns"]) == pytest.approx(
        result.unprofiled_ns
    )
    assert ("scaled to that run" in notes[-1]) == (scale != 1)


def test_the_timed_range_is_the_one_that_repeats() -> None:
    ranges = [timed(11.0, "load"), timed(60_000.0, "run / step", 8), timed(12.0, "other / step", 3)]
    assert found(known(LAUNCH_BOUND, timed_ranges=ranges)).timed_ns == 60_000
    assert found(known(LAUNCH_BOUND, timed_ranges=[*ranges, timed(70_000.0, "step", 5)])).timed_ns == 70_000
    assert np.isnan(found(known(LAUNCH_BOUND, timed_ranges=ranges[:1])).timed_ns)


def test_the_step_of_torch_profiler_is_that_of_the_optimizer_or_the_outermost_call() -> None:
    ranges = [timed(9.0, "Net / Linear", 90), timed(60_000.0, "Net", 8), timed(12.0, "Loss", 9)]
    of_torch = replace(chosen_window(draw(LAUNCH_BOUND)), family="ProfilerStep")
    assert timed_ns(known(LAUNCH_BOUND, timed_ranges=ranges), of_torch) == 60_000
    ends = timed(70_000.0, "step (ends with Adam.step)", 7)
    assert timed_ns(known(LAUNCH_BOUND, timed_ranges=[*ranges, ends]), of_torch) == 70_000


def test_the_cost_that_gives_a_time_is_found_to_a_hundredth() -> None:
    for factor in (0.1, 0.77, 1.0, 1.32, 2.9):
        assert fit_factor(lambda factors: 100 - 20 * factors, 100 - 20 * factor) == pytest.approx(factor, abs=0.02)
    # if it makes no difference, it is the usual one; if it makes none from 2 on, no more than that is taken off
    assert fit_factor(lambda factors: 0 * factors + 7, 3.0) == 1.0
    assert fit_factor(lambda factors: 10 - np.minimum(factors, 2), 5.0) == pytest.approx(2.0)


def test_a_step_that_hardly_depends_on_the_host_does_not_show_its_speed() -> None:
    # all of the difference, all that the host can be faster, and a third of the difference
    assert fit_host_speed(lambda shares: 100 * (1 - shares), 80.0) == pytest.approx(0.2, abs=0.01)
    assert fit_host_speed(lambda shares: 100 * (1 - shares), 40.0) == pytest.approx(0.5)
    assert fit_host_speed(lambda shares: 100 - 2 * shares, 97.0) == 0.0
    assert fit_host_speed(lambda shares: 100 * (1 - shares), 100.0) == 0.0


tracks = st.text(st.sampled_from("LLLCSAE...."), min_size=6, max_size=24)


@given(st.lists(tracks, min_size=1, max_size=4), st.integers(1, 40), st.floats(0, 40_000), st.floats(100, 200_000))
@examples(25)
def test_without_the_profiler_a_step_is_no_longer_and_no_shorter_than_the_work_of_the_gpu(
    pieces: list[str], busy_us: int, added_ns: float, true_ns: float
) -> None:
    step = "L." + "".join(f"{piece}." for piece in pieces)
    letters = [letter for letter in _calls(step) if letter in "LC"]
    # as many operations as launches, one after the other, each after its call
    kernels = "".join(("a" if letter == "L" else "H") * (1 + busy_us % 5) + "." for letter in letters)
    length = len(step) + len(kernels) + 8
    cpu, gpu = step.ljust(length, "."), ("." * len(step) + kernels).ljust(length, ".")
    nvtx = f"[step{' ' * (length - 6)}]"
    picture = f"nvtx  {nvtx * 4}\ncpu   {cpu * 4}\ns7    {gpu * 4}"
    for tables in ({}, {"profiler_costs": [cost("launch", added_ns)]}, {"timed_ranges": [timed(true_ns)]}):
        profile = known(picture, **tables)
        timeline = Timeline(profile)
        result = simulate(timeline)
        assert result.explained_ns <= result.replayed_ns + 1
        assert result.predicted_ns <= result.replayed_ns + 1
        spans = busy_spans(timeline)
        busy = sum(int((here[1] - here[0]).sum()) for here in spans.values()) / 4
        if result.model.steps >= 3 and result.is_trusted:
            assert result.explained_ns >= 0.99 * busy
            assert result.predicted_ns >= 0.99 * busy


def _calls(track: str) -> list[str]:
    return [letter for place, letter in enumerate(track) if letter != "." and track[place - 1 : place] != letter]


def test_old_captures_and_empty_ones_have_results_too(recorded: Recorded) -> None:
    report = recorded.report("train")
    replay = report.rows(REPLAY).iloc[0]
    assert replay["predicted_ns"] == replay["unprofiled_ns"]
    assert np.isnan(replay["timed_ns"])
    assert len(report.rows(PROFILER_COST))
    profile = Profile({name: empty(name) for name in ("kernels", "memory_ops", "api_calls", "ranges")})
    for analysis in ANALYSES:
        assert not len(analysis.run(Timeline(profile)).rows)


def test_a_report_from_before_is_still_read(recorded: Recorded) -> None:
    document = json.loads(recorded.report("train").to_json())
    document["results"] = [result for result in document["results"] if result["name"] != PROFILER_COST.name]
    (replay,) = (result["table"] for result in document["results"] if result["name"] == REPLAY.name)
    for column in ("predicted_ns", "timed_ns"):
        place = replay["columns"].index(column)
        replay["columns"].pop(place)
        replay["rows"] = [[*row[:place], *row[place + 1 :]] for row in replay["rows"]]
    report = Report.from_json(json.dumps(document))
    assert "timed_ns" not in report.rows(REPLAY)


def test_a_report_holds_what_was_timed() -> None:
    profile = known(LAUNCH_BOUND, timed_ranges=[timed(20_000.0)], profiler_costs=[cost("launch", 3000.0)])
    report = Report.from_json(build_report(profile, "drawn").to_json())
    replay = report.rows(REPLAY).iloc[0]
    assert replay["timed_ns"] == 20_000
    assert replay["predicted_ns"] == pytest.approx(28_000, rel=0.01)
    notes = " ".join(report.result(PROFILER_COST.name).notes)
    assert "calibrated on that machine" in notes
    assert "40 % more than timed in a run without it" in notes


def test_the_host_of_another_run_can_be_faster() -> None:
    # five launches a step, with host code of 20 µs that no profiler adds to
    step = {
        "nvtx": "[step                          ]",
        "cpu": f"L.L.L{'.' * 20}LL.....",
        "s7": f".a.b.c{'.' * 20}de....",
    }
    picture = "\n".join(f"{name}  {events * 8}" for name, events in step.items())
    plain = found(draw(picture))
    faster = found(known(picture, timed_ranges=[timed(0.75 * plain.unprofiled_ns)]))
    assert faster.unprofiled_ns == pytest.approx(0.75 * plain.unprofiled_ns, rel=0.02)
    # not more than twice as fast
    assert found(known(picture, timed_ranges=[timed(1_000.0)])).unprofiled_ns > 0.3 * plain.unprofiled_ns
