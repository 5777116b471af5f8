"""Advice: each rule speaks where its fault is drawn, and stays silent where it is not."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.advise import RULES, advise, unchecked
from nightsight.advise.cases import Tables
from nightsight.analyze import analyze
from nightsight.events.window import WHOLE
from nightsight.model import Finding, Profile
from nightsight.render import render_html
from nightsight.results import GPU_TIME
from nightsight.tables import conform
from nightsight.workflow import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import beside, draw

CaptureFile = Callable[[str], Path]

# one launch ahead, and the GPU computes from beginning to end
BUSY = """
    nvtx  [step][step][step][step]
    cpu   L..L..L..L..L...........
    s7    aaaaabbbbbaaaaabbbbbaaaa
    """


def advice(profile: Profile) -> dict[str, Finding]:
    return {finding.rule: finding for finding in advise(analyze(profile)[0])}


def gains(picture: str) -> dict[str, float]:
    """The gain of each piece of advice in microseconds."""
    return {rule: (finding.gain_ns or 0) / 1000 for rule, finding in advice(draw(picture)).items()}


def with_memory(profile: Profile, **columns: str) -> Profile:
    table = conform("memory_ops", profile.table("memory_ops").assign(**columns))
    return Profile({**profile.tables, "memory_ops": table})


def test_nothing_is_said_of_a_gpu_that_is_kept_busy() -> None:
    assert advice(draw(BUSY)) == {}


def test_a_few_idle_moments_in_a_long_window_are_no_cause_for_advice() -> None:
    picture = "cpu  LL..\n" + f"s7   {'a' * 300}.{'b' * 300}"
    assert advice(draw(picture)) == {}


def test_pageable_copies_cost_what_the_gpu_did_not_compute_from_call_to_end() -> None:
    picture = "cpu  LCCCCL...\ns7   aa..HHb..b"
    assert gains(picture)["cuda_memcpy_async"] == 4
    pinned = with_memory(draw(picture), source_kind="Pinned")
    assert "cuda_memcpy_async" not in advice(pinned)


def test_hidden_pageable_copies_cost_nothing() -> None:
    assert "cuda_memcpy_async" not in gains("cpu  LCCCC\ns7   aaaaaaaa\ns8   ...HHH..")


def test_blocking_copies_are_told_from_asynchronous_ones() -> None:
    profile = with_memory(draw("cpu  LBBBBBL..\ns7   aa.DDD.bb"), target_kind="Pinned")
    found = advice(profile)
    assert found["cuda_memcpy_sync"].gain_ns == 5000
    assert found["cuda_memcpy_sync"].evidence == (
        "GPU 0: cudaMemcpy (Device-to-Host) in (no range), 1 ×: 4.000 µs without a kernel",
    )
    assert "cuda_memcpy_async" not in found


def test_a_blocking_copy_costs_what_the_gpu_idles_after_it_too() -> None:
    # a copy that need not be waited for leaves ten idle microseconds to be filled
    picture = "cpu  L.BBBBBBBBBB..........L\ns7   aaaaaaaaaaaD...........b"
    assert gains(picture)["cuda_memcpy_sync"] == 1 + 10
    assert gains(picture.replace("B", "C"))["cuda_memcpy_async"] == 1 + 10


@pytest.mark.parametrize(("kind", "found"), [("Pinned", True), ("Managed", True), ("Device", False)])
def test_sets_of_memory_that_the_cpu_uses_block(kind: str, *, found: bool) -> None:
    profile = with_memory(draw("cpu  LBBBBBL..\ns7   aa.MMM.bb"), target_kind=kind)
    calls = profile.table("api_calls")
    names = calls["name"].astype("str").replace("cudaMemcpy", "cudaMemset")
    tables = {**profile.tables, "api_calls": conform("api_calls", calls.assign(name=names))}
    assert ("cuda_memset_sync" in advice(Profile(tables))) is found


def test_a_wait_costs_no_more_than_it_lasts() -> None:
    # two idle microseconds inside the call, and five more before the next work
    assert gains("cpu  L.SSSS.....L.\ns7   aaaa.........b")["cuda_api_sync"] == 4


def test_a_wait_costs_no_more_than_the_gpu_idles_until_the_next_one() -> None:
    assert gains("cpu  L.SSSSSSL.\ns7   aaaaaaaa.b")["cuda_api_sync"] == 1


def test_waits_of_another_thread_do_not_end_the_loss_of_one() -> None:
    waiting = "cpu:7  L.SSSSSS.....L.\ns7     aaaaaaa.......b"
    assert gains(waiting)["cuda_api_sync"] == 6
    assert gains(f"{waiting}\ncpu:8  ...S")["cuda_api_sync"] >= 6


def test_a_busy_gpu_does_not_hide_that_another_one_of_the_process_idles() -> None:
    picture = "cpu  LL.SSSSSS.......L.\ns7   aaaaaaa...........b\ns7:1  .cccccccccccccccccc"
    assert gains(picture)["cuda_api_sync"] == 6


def test_waits_of_every_step_are_a_case_of_their_own() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        cpu   L.SSS...L.SSS...L.SSS...
        s7    .aa......aa......aa....b
        """
    found = advice(draw(picture))
    assert "cuda_api_sync" not in found
    assert found["sync_every_step"].gain_ns == 9000
    assert found["sync_every_step"].evidence == (
        "cudaStreamSynchronize in step, 3 × in 3 of 3 repetitions: 9.000 µs lost",
    )


def test_steps_of_two_processes_that_both_wait_are_one_case_that_names_them() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        cpu   L.SSS...L.SSS...L.SSS...
        s7    .aa......aa......aa....b
        """
    found = advice(beside(draw(picture), draw(picture)))
    assert "cuda_api_sync" not in found
    assert found["sync_every_step"].gain_ns == 9000
    assert found["sync_every_step"].evidence == tuple(
        f"cudaStreamSynchronize in step of process {pid}, 3 × in 3 of 3 repetitions: 9.000 µs lost" for pid in (5, 6)
    )


def test_evidence_of_copies_and_of_set_up_calls_names_its_process() -> None:
    copying = draw("nvtx  [step     ]\ncpu   LJJJCCCL..\ns7    a.....HH.b")
    found = advice(beside(copying, copying))
    for rule in ("cuda_memcpy_async", "jit_in_measured_range"):
        first, second = found[rule].evidence
        assert " in step of process 5, 1 ×" in first
        assert " in step of process 6, 1 ×" in second
    assert " of process " not in str(advice(copying))


def test_a_wait_in_the_first_step_alone_is_not_one_of_every_step() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        cpu   L.SSS...L.......L.......
        s7    .aa......aa......aa.....
        """
    assert "sync_every_step" not in gains(picture)


# a copy to pageable memory waits for the kernel, a small one and a synchronization follow, then the host works: no gap
# takes 1 % of the window
POWER_ITERATION = f"""
    nvtx  {("[step" + " " * 36 + "]") * 44}
    cpu   {("L" + "C" * 23 + ".C.S" + "." * 14) * 44}
    s7    {("." + "a" * 20 + "DD" + "." * 2 + "D" + "." * 16) * 44}
    """


@pytest.mark.parametrize(("picture", "rule"), [(POWER_ITERATION, "sync_every_step"), ("", "cuda_memcpy_async")])
def test_waits_in_a_row_cost_the_idle_time_after_the_last_of_them(picture: str, rule: str) -> None:
    results = analyze(draw(picture or POWER_ITERATION.replace("[", ".")))[0]
    (gpu,) = next(result.rows for result in results if result.name == "gpu_time")["idle_ns"]
    (found,) = [finding for finding in advise(results) if finding.rule == rule]
    lost = next(result.rows for result in results if result.name == "cuda_api_sync")["lost_ns"].sum()
    assert 0.95 * gpu <= lost <= gpu
    assert found.gain_ns is not None
    assert found.gain_ns >= lost


def test_waits_that_are_one_are_said_once() -> None:
    evidence = advice(draw(POWER_ITERATION))["sync_every_step"].evidence
    assert evidence == ("cudaMemcpyAsync in step, 88 × in 44 of 44 repetitions, with 88 other waits: 835.0 µs lost",)


def test_idle_time_that_comes_again_and_again_counts_however_short_each_gap_is() -> None:
    # sixty gaps of 0.5 % of the window each, in no stretch of which the GPU idles for most of the time
    found = advice(draw(f"cpu  {('L' + '.' * 39) * 60}\ns7   {('.' + 'a' * 28 + '.' * 11) * 60}"))
    assert set(found) == {"short_gaps"}
    assert found["short_gaps"].gain_ns == 59 * 11_000
    assert found["short_gaps"].evidence == ("GPU 0: host code, 27.2 % of the window",)


def test_short_gaps_that_waits_explain_are_no_case_of_their_own() -> None:
    assert "short_gaps" not in gains(POWER_ITERATION)


def test_long_gaps_are_named_with_their_cause_and_what_ended_them() -> None:
    found = advice(draw("nvtx  [load      ]\ncpu   L........L..\ns7    .a.........b"))["gpu_gaps"]
    assert found.gain_ns == 9000
    assert found.evidence == ("GPU 0, 9.000 µs from 1.000 µs on: host code; ended by b in load",)


def test_every_long_gap_counts() -> None:
    found = advice(draw("cpu  " + "L..." * 40 + "\ns7   " + "aa.." * 40))["gpu_gaps"]
    assert found.gain_ns == 39 * 2000


def test_neighbouring_stretches_of_low_use_are_one() -> None:
    found = advice(draw("cpu  L" + "." * 60 + "L\n" + f"s7   {'a' * 30}{'.' * 30}{'b' * 30}"))["gpu_time_util"]
    assert found.gain_ns == 30_000
    assert found.evidence == (
        "GPU 0, 30.00 µs to 60.00 µs: 0 % busy",
        "Most idle time of GPU 0: host code, 33.3 % of the window",
    )


def test_a_gpu_that_waits_for_launches() -> None:
    assert gains("cpu  LLLL.LLLL.LLLL\ns7   ...aa...aa...aa")["launch_bound"] == 6


def test_kernels_shorter_than_their_launch() -> None:
    short = gains("cpu  LLL.LLL.LLL.LLL\ns7   ..a...b...a...b.")
    assert short["many_tiny_kernels"] == short["launch_bound"] + 4
    assert "many_tiny_kernels" not in gains("cpu  LL..LL..LL..\ns7   .aaa.aaa.aaa")


def test_short_graphs_are_no_kernels_to_put_into_a_graph() -> None:
    assert "many_tiny_kernels" not in gains("cpu  GGG.GGG.GGG.GGG\ns7   ..G...G...G...G.")


def test_short_kernels_of_a_gpu_that_is_kept_busy_are_no_fault() -> None:
    assert gains("cpu  LLL.LLL............\ns8   ..aabbbbbbbbbbbbbbbbbb") == {}


def test_copies_are_exposed_where_nothing_hides_them() -> None:
    assert gains("cpu  LC......L\ns7   aaaa....bb\ns8   ..HHHH....")["exposed_copies"] == 2
    assert "exposed_copies" not in gains("cpu  LC......L\ns7   aaaaaaaabb\ns8   ..HHHH....")


def test_modules_that_are_loaded_in_the_window() -> None:
    found = advice(draw("nvtx  [step   ]\ncpu   LJJJJL..\ns7    a.....bb"))["jit_in_measured_range"]
    assert found.gain_ns == 4000
    assert found.evidence == ("cuLibraryLoadData in step, 1 ×: 4.000 µs",)


def test_first_launches_that_take_longer_count_as_loading() -> None:
    picture = "nvtx  [measure               ]\ncpu   LLLLLLLLLL.L.L.L.L.L.L.\ns7    .........aa.aa.aa.aa.aa."
    found = advice(draw(picture))["jit_in_measured_range"]
    assert found.gain_ns == 9000
    assert found.evidence == ("GPU 0: idle for 9.000 µs because first launches took longer than later ones",)
    # the others take a microsecond each: that is what launching costs
    assert gains(picture)["launch_bound"] == 4


def test_memory_that_is_allocated_in_every_step() -> None:
    picture = """
        nvtx  [step  ][step  ][step  ]
        cpu   AAA.L...AAA.L...AAA.L...
        s7    b....aaa.....aaa.....aaa
        """
    found = advice(draw(picture))["allocation_in_loop"]
    assert found.gain_ns == 8000
    assert found.evidence == ("cudaMalloc in step, 3 × in 3 of 3 repetitions: 9.000 µs",)
    assert "allocation_in_loop" not in gains(picture.replace("step", "load", 1))


def test_frees_of_every_step_cost_the_idle_time_after_them() -> None:
    picture = """
        nvtx  [step      ][step      ][step      ]
        cpu   LFFFF.......LFFFF.......LFFFF.......
        s7    aaaaa.......aaaaa.......aaaaa......b
        """
    assert gains(picture)["allocation_in_loop"] == 12


def test_pages_that_move_by_themselves_belong_to_no_range_and_need_none() -> None:
    profile = draw("nvtx  [s]\ncpu   L..\ns7    .aHHDD.b")
    kernels = profile.table("kernels").iloc[:1]
    pages = profile.table("memory_ops").assign(operation="Unified Host-to-Device", correlation=None)
    moved = {"kernels": kernels, "memory_ops": conform("memory_ops", pages)}
    assert "low_coverage" not in advice(Profile({**profile.tables, **moved}))


@pytest.mark.parametrize(("outside", "said"), [(1, ()), (2, ("9 of 11 GPU operations (81.8 %) belong to a range",))])
def test_work_outside_of_ranges(outside: int, said: tuple[str, ...]) -> None:
    picture = f"nvtx  {'[s]' * 9}\ncpu   {'.L.' * 9}{'.L' * outside}\ns7    {'ab' * 20}"
    found = advice(draw(picture[: picture.rindex("ab" * 20) + 9 + outside])).get("low_coverage")
    assert tuple(text.partition(";")[0] for text in (found.evidence if found else ())) == said


def test_devices_and_processes_are_not_added_up() -> None:
    one = gains("cpu  CCCC.L\ns7   ....H.a")["cuda_memcpy_async"]
    two = gains("cpu  CCCCCCCC..L\ns7   ....H......\ns7:1  ........H.a")["cuda_memcpy_async"]
    assert two <= 2 * one


@pytest.mark.parametrize("other", ["1", "2"])
def test_of_several_gpus_the_one_that_lost_most_counts(other: str) -> None:
    # GPU 0 idles for six microseconds, the other one for four or five
    work = {"1": "ccccccc....cccc", "2": "ccccc.....ccccc"}[other]
    picture = f"cpu   L\ns7    aaaa......bbbbb\ns7:1  {work}"
    assert gains(picture)["gpu_gaps"] == 6
    assert gains("cpu   CLCL\ns7    HHaaaaaaaa\ns7:1  ccHHHccccc")["exposed_copies"] == 3


def test_of_several_processes_the_one_that_allocates_most_counts() -> None:
    # the calls take less than the GPU idles in them and after them
    picture = """
        nvtx  [step      ][step      ][step      ]
        cpu   LFFFF.......LFFFF.......LFFFF.......
        s7    aaa.........aaa.........aaa........b
        """
    assert gains(picture)["allocation_in_loop"] == 12
    assert advice(beside(draw(picture), draw(picture)))["allocation_in_loop"].gain_ns == 12_000


def test_tiny_kernels_of_several_gpus_are_not_added_up() -> None:
    picture = """
        cpu   LLLLLL.LLLLLL.LLLLLL.LLLLLL.L
        s7    .....a........a..............cccccccccc
        s7:1  ............b.............b
        """
    found = gains(picture)
    assert found["many_tiny_kernels"] - found["launch_bound"] == 2


def test_a_rule_speaks_from_its_share_of_the_window_on() -> None:
    at_the_limit, below = (f"cpu  CL\ns7   {'H' + 'a' * length}" for length in (19, 20))
    assert advice(draw(at_the_limit))["exposed_copies"].gain_pct == 5.0
    assert "exposed_copies" not in gains(below)


def test_a_gap_of_one_percent_of_the_window_is_long() -> None:
    nine = ".".join(["a" * 9] * 9 + ["a"])
    assert gains(f"cpu  L\ns7   {nine}{'a' * 9}")["gpu_gaps"] == 9  # of 100 microseconds
    assert "gpu_gaps" not in gains(f"cpu  L\ns7   {nine}{'a' * 10}")  # of 101


def test_a_gpu_that_is_busy_half_of_the_time_is_not_of_low_use() -> None:
    measured = f"nvtx  [measure{' ' * 51}]\ncpu   L\ns7    "
    assert "gpu_time_util" not in gains(measured + "a." * 30)
    assert "gpu_time_util" in gains(f"{measured}{'.' * 4}{'a.' * 28}")


def test_half_of_the_steps_are_not_most_of_them() -> None:
    picture = "nvtx  [step][step][step][step]\ncpu   L.SS..L.SS..L.....L....L\ns7    .aa...aa....aa....aa....b"
    found = gains(picture)
    assert "cuda_api_sync" in found
    assert "sync_every_step" not in found


def test_half_of_all_launches_are_enough_for_tiny_kernels() -> None:
    long = "cpu  LLL.LLL.LLLL......LLLL......\ns7   ..a...a....bbbbbbb....bbbbbbb"
    assert "many_tiny_kernels" in gains(long)


def test_kernels_that_take_as_long_as_their_launch_are_not_tiny() -> None:
    picture = "cpu  LLLL.LLLL.LLLL.LLLL\ns7   ...aaaa.aaaa.aaaa.aaaa"
    assert "many_tiny_kernels" not in gains(picture)
    assert "many_tiny_kernels" in gains(picture.replace("aaaa", "aaa."))


def test_a_gpu_that_waits_one_percent_of_the_window_for_launches_waits_for_tiny_kernels() -> None:
    picture = f"cpu  L.LLLLL{'.' * 85}LLLLL\ns7   {'.' * 10}aaaa{'.' * 82}aaaa\ns8   {'c' * 95}"
    assert gains(picture)["many_tiny_kernels"] == 8 + 1


def test_a_capture_without_gpu_work_has_no_advice() -> None:
    assert advice(draw("cpu  LSSS")) == {}
    assert advise(()) == ()


@pytest.mark.slow
@examples(40)
@given(
    st.text("L.SABCJF", max_size=40),
    st.text("ab.HDM", min_size=1, max_size=60),
    st.text("c.P", max_size=60),
)
def test_no_gain_exceeds_the_window(calls: str, first: str, second: str) -> None:
    results = analyze(draw(f"nvtx  [step][step][step]\ncpu   {calls}\ns7    {first}\ns8    {second}"))[0]
    window = Tables(results).window_ns
    for finding in advise(results):
        assert finding.evidence
        if finding.gain_ns is not None and finding.gain_pct is not None:
            assert 0 < finding.gain_ns <= window
            assert finding.gain_pct == pytest.approx(100 * finding.gain_ns / window)


def test_the_same_program_gets_the_same_advice_whenever_it_ran() -> None:
    profile = draw("nvtx  [step][step][step]\ncpu   LSSS..LSSS..LSSS..\ns7    .a.....a.....a....")
    later = {
        name: table.assign(**{column: table[column] + 10**15 for column in table if column in ("start_ns", "end_ns")})
        for name, table in profile.tables.items()
    }
    assert advice(Profile(later)) == advice(profile)


def test_every_rule_of_nvidia_has_its_name() -> None:
    names = {rule.name for rule in RULES}
    assert names >= {"cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync", "cuda_api_sync"}
    assert names >= {"gpu_gaps", "gpu_time_util"}
    assert len(names) == len(RULES)


# -- real captures ----------------------------------------------------------------------------------------------------


def test_the_advice_on_a_training_loop(recorded: Recorded) -> None:
    found = advice(recorded.profile("train"))
    assert set(found) == {"cuda_memcpy_async", "exposed_copies", "sync_every_step", "short_gaps"}


def test_the_advice_on_a_training_loop_with_its_start_up(recorded: Recorded) -> None:
    found = advice(replace(recorded.profile("train"), window=WHOLE))
    assert set(found) == {"gpu_time_util", "gpu_gaps", "jit_in_measured_range"}
    assert "cuLibraryLoadData in iteration # / forward, 7 × in 1 of 20 repetitions" in str(found)


def test_pageable_copies_of_two_processes_are_found(recorded: Recorded) -> None:
    found = advice(replace(recorded.profile("ddp2"), window=WHOLE))["cuda_memcpy_async"]
    assert found.gain_ns is not None
    assert 0 < found.gain_ns < 12_300_000_000


def test_the_name_of_a_kernel_is_the_function_s_own() -> None:
    profile = draw("cpu  L........L\ns7   .a.........b")
    kernels = profile.table("kernels").assign(name="std::enable_if<!(false), void>::type gemvx::kernel<int>(int)")
    (evidence,) = advice(Profile({**profile.tables, "kernels": conform("kernels", kernels)}))["gpu_gaps"].evidence
    assert "ended by kernel in" in evidence


def test_names_of_any_length_are_cut() -> None:
    profile = draw("cpu  L........L\ns7   .a.........b")
    kernels = profile.table("kernels").assign(name="void at::native::" + "x" * 500 + "<int>(int)")
    evidence = advice(Profile({**profile.tables, "kernels": conform("kernels", kernels)}))["gpu_gaps"].evidence[0]
    assert "ended by " + "x" * 59 + "… in" in evidence
    assert pd.Series(evidence).str.len().item() < 150


@pytest.mark.parametrize("table", ["api_calls", "memory_ops"])
def test_rules_that_could_not_look_are_named_with_the_reason(table: str) -> None:
    profile = draw(BUSY)
    tables = {name: frame for name, frame in profile.tables.items() if name != table}
    results, _ = analyze(Profile(tables, {table: "tracing was off"}))
    lacking = {result.name for result in results if result.unavailable == "tracing was off"}
    expected = {rule.name for rule in RULES if {need.name for need in rule.needs} & lacking}
    assert unchecked(results) == dict.fromkeys(expected, "tracing was off")
    assert "cuda_api_sync" in expected
    assert unchecked(analyze(profile)[0]) == {}


def test_a_rule_that_asks_for_a_column_that_its_result_never_has_is_a_bug() -> None:
    with pytest.raises(KeyError, match="gpu_time never has windw_ns"):
        Tables(()).rows(GPU_TIME, "windw_ns")


def test_the_page_says_what_was_looked_for_in_vain_and_what_could_not_be() -> None:
    profile = draw(BUSY)
    assert "No rule found a cost worth acting on" in render_html(build_report(profile, "busy"))
    tables = {name: frame for name, frame in profile.tables.items() if name != "api_calls"}
    page = render_html(build_report(Profile(tables, {"api_calls": "CUDA calls were not traced"}), "busy"))
    assert re.search(r"Not checked: <code>[^<]*launch_bound[^<]*</code>. CUDA calls were not traced.", page)
