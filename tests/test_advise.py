"""Advice: causes that were replayed, ranked, each with its place, and silence where nothing is wrong."""

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from nightsight.advise import advise, advise_on_whole, unchecked_rules
from nightsight.advise.tables import Tables
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Result
from nightsight.results.categories import COMMUNICATION, COMPUTE
from nightsight.results.causes import REPLAY, WHAT_IF
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME, TIME_SPLIT
from nightsight.results.operators import CPU_OP_SHAPES
from nightsight.results.program import COMPILATIONS, GRAPH_RECORDED, GRAPH_RECORDED_AGAIN, KERNELS_TUNED
from nightsight.results.ranks import COLLECTIVES
from nightsight.results.rules import RULE, RULES
from tests.recorded import Recorded
from tests.reports import advised, gpu_table, result
from tests.timeline import draw

# one launch ahead, and the GPU computes from beginning to end
BUSY = """
    nvtx  [step][step][step][step]
    cpu   L..L..L..L..L...........
    s7    aaaaabbbbbaaaaabbbbbaaaa
    """
KEPT_WAITING = {"rule": "host_code", "path": "step / load", "name": "", "function": "", "waits_in": "", "cases": 1.0}
COPY = {
    "rule": "pageable_copy",
    "path": "step / load",
    "name": "Host-to-Device",
    "function": "",
    "waits_in": "",
    "cases": 2.0,
}
GRAPH = {"rule": "launch_bound", "path": "step", "name": "", "function": "", "waits_in": "", "cases": 400.0}


def replayed(**changes: Any) -> Result:
    row: dict[str, Any] = dict.fromkeys(REPLAY.column_names, 0) | {
        "repetitions": 10,
        "of_repetitions": 10,
        "family": "step",
        "calls": 50,
        "events": 100,
        "call_cost_ns": 5_000,
        "unexplained_pct": 0.5,
        "doubt": "",
    }
    row |= {"measured_ns": 12e6, "replayed_ns": 12e6, "predicted_ns": 10e6, "unprofiled_ns": 10e6, "timed_ns": None}
    return result(REPLAY.name, pd.DataFrame([row | changes]))


def what_if(*rows: dict[str, Any]) -> Result:
    usual = {"caller": "", "time_ns": 1e6, "order": None, "after_ns": None}
    gains = (row["gain_pct"] for row in rows)
    complete = [
        {**usual, "gain_ns": gain and gain * 1e5, "counted_pct": gain and gain * RULE[row["rule"]].counts, **row}
        for row, gain in zip(rows, gains, strict=True)
    ]
    return result(WHAT_IF.name, pd.DataFrame(complete, columns=WHAT_IF.column_names))


def advise_on(*rows: dict[str, Any], **changes: Any) -> tuple[Finding, ...]:
    return advise([result(GPU_TIME.name, gpu_table(25.0)), replayed(**changes), what_if(*rows)])


def test_nothing_is_reported_about_a_gpu_that_is_kept_busy() -> None:
    assert advised(Timeline(draw(BUSY))) == ()


def test_a_finding_names_cause_place_and_cost() -> None:
    (finding,) = advise_on({**KEPT_WAITING, "gain_pct": 60.0})
    assert (finding.rule, finding.severity, finding.source) == ("host_code", "advice", WHAT_IF.name)
    assert finding.title == "The GPU waits for host code in `load`: 6.00 ms of the 10.0 ms of each step"
    assert "With the fix, a step takes 4.00 ± " in finding.detail
    # of ten repetitions
    assert finding.gain_ns == 60e6
    assert finding.gain_pct == 60.0


def test_a_gain_may_be_off_by_what_is_unexplained_and_by_half_of_the_profilers_cost_that_is_left() -> None:
    """The profiler adds a sixth of a step: of what is gained, that part is gained too, whatever it is."""
    for gain_pct, left in ((20.0, "8.00 ± 0.77 ms"), (60.0, "4.00 ± 0.43 ms"), (99.9, "about 10.0 µs")):
        (finding,) = advise_on({**KEPT_WAITING, "gain_pct": gain_pct})
        assert f"With the fix, a step takes {left} without the profiler." in finding.detail


@pytest.mark.parametrize(
    ("gain", "doubt", "rules"),
    [
        (60.0, "", ["host_code", "lone_rank", "launch_bound"]),
        (20.0, "", ["lone_rank", "host_code", "launch_bound"]),
        # without gains, what a rank waits for is still known
        (None, "half is missing", ["lone_rank"]),
    ],
)
def test_what_a_rank_waits_for_alone_comes_first_unless_a_gain_is_larger(
    gain: float | None, doubt: str, rules: list[str]
) -> None:
    split = pd.DataFrame({"device": 0, "category": [COMMUNICATION, COMPUTE], "share_pct": [30.0, 70.0]})
    call = {"name": "AllReduce", "skew_ns": None, "transfer_ns": None, "group_size": 2, "exposed_ns": 5e5}
    calls = pd.DataFrame([{**call, "total_ns": 1e6, "avg_ns": 1e5, "calls": 10}])
    gains = what_if({**KEPT_WAITING, "gain_pct": gain}, {**GRAPH, "gain_pct": gain and 10.0})
    tables = [replayed(doubt=doubt), gains, result(TIME_SPLIT.name, split), result(COLLECTIVES.name, calls)]
    assert [finding.rule for finding in advise(tables)] == rules


def test_without_repetitions_it_is_about_the_window() -> None:
    (finding,) = advise_on({**GRAPH, "gain_pct": 60.0}, repetitions=0, of_repetitions=0)
    assert finding.title.endswith("(400 in all): 6.00 ms of the 10.0 ms of the window")


@pytest.mark.parametrize(
    ("rule", "cases", "noun"),
    [("launch_bound", 69.5, "launches"), ("exposed_communication", 17.0, "collectives"), ("wait", 1.0, "wait")],
)
def test_evidence_says_what_was_counted_and_what_was_simulated(rule: str, cases: float, noun: str) -> None:
    (finding,) = advise_on({**GRAPH, "rule": rule, "cases": cases, "gain_pct": 60.0})
    assert finding.evidence[0] == f"In step: {cases:.3g} {noun} per step, 1.00 ms in total, as profiled"
    assert finding.evidence[-1] == "The simulation of a step without any change differs from the measurement by +0.5 %"


@pytest.mark.parametrize("row", [KEPT_WAITING, GRAPH, COPY])
def test_of_the_start_up_no_advice_is_for_a_loop(row: dict[str, Any]) -> None:
    tables = [result(GPU_TIME.name, gpu_table(25.0)), replayed(repetitions=0, of_repetitions=0)]
    then = {**row, "rule": "loading", "path": "then", "gain_pct": 40.0, "order": 2, "after_ns": 1e6}
    findings = advise([*tables, what_if({**row, "gain_pct": 60.0, "order": 1}, then)], is_start_up=True)
    for finding in findings:
        assert finding.remedy.startswith("One-time cost")
        assert finding.action == ""
        assert not re.search("loop|each step|Then: |DataLoader|compile\\(", finding.detail + finding.remedy)


def test_of_the_whole_run_what_happens_before_the_loop_is_reported_to_happen_once() -> None:
    (early,) = advise_on({**KEPT_WAITING, "gain_pct": 60.0})
    longer = replace(early, gain_ns=2 * (early.gain_ns or 0))
    elsewhere = replace(early, cause="The GPU waits for host code in `other`")
    first, second, third = advise_on_whole((early, longer, elsewhere), (early,))
    assert first.remedy.startswith("One-time cost")
    assert first.action == ""
    assert (second, third) == (longer, elsewhere)
    assert advise_on_whole((early,), ()) == (early,)


def test_the_function_that_runs_is_part_of_the_place_and_all_of_it_outside_of_ranges() -> None:
    inside = {**KEPT_WAITING, "function": "augment (data.py:12)", "gain_pct": 60.0}
    (finding,) = advise_on(inside)
    assert "host code in `load` (`augment` in data.py:12): " in finding.title
    (finding,) = advise_on({**inside, "path": "(no range)"})
    assert "host code in `augment` (data.py:12): " in finding.title
    (finding,) = advise_on({**inside, "path": "(no range)", "function": ""})
    assert "host code in parts without NVTX ranges: " in finding.title


def test_a_place_outside_of_ranges_is_only_named_if_there_are_ranges() -> None:
    row = what_if({**KEPT_WAITING, "path": "(no range)", "gain_pct": 60.0})
    of_library = ["(no range)", "CCCL:cub::DeviceReduce::Sum", "cub::DeviceSelect::Flagged"]
    somewhere = " in parts without NVTX ranges"
    for paths, place in ((["", "(no range)"], ""), (of_library, ""), ([*of_library, "step"], somewhere)):
        path = result(CRITICAL_PATH.name, pd.DataFrame({"path": paths}))
        (finding,) = advise([result(GPU_TIME.name, gpu_table(25.0)), replayed(), row, path])
        assert finding.cause == f"The GPU waits for host code{place}"


def test_copying_ahead_is_the_next_fix_where_memory_has_to_be_pinned_first() -> None:
    pageable, ahead = {**COPY, "gain_pct": 60.0}, {**COPY, "rule": "exposed_copy", "gain_pct": 20.0}
    assert [each.rule for each in advise_on(pageable, ahead)] == ["pageable_copy"]
    elsewhere = {**ahead, "path": "step / save"}
    assert [each.rule for each in advise_on(pageable, elsewhere)] == ["pageable_copy", "exposed_copy"]
    assert [each.rule for each in advise_on(ahead)] == ["exposed_copy"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_gain_that_is_not_worth_it_is_not_reported(rule: Any) -> None:
    row = {**COPY, "rule": rule.name}
    assert advise_on({**row, "gain_pct": rule.worth_pct - 0.1}) == ()
    (finding,) = advise_on({**row, "gain_pct": rule.worth_pct})
    assert finding.title
    assert finding.detail
    assert finding.remedy
    assert "{" not in finding.title


def test_causes_are_ranked_by_their_gains_and_graphs_count_for_less() -> None:
    rows = ({**GRAPH, "gain_pct": 50.0}, {**COPY, "gain_pct": 30.0}, {**KEPT_WAITING, "gain_pct": 10.0})
    assert [finding.rule for finding in advise_on(*rows)] == ["pageable_copy", "launch_bound", "host_code"]


def test_of_remedies_that_gain_the_same_time_the_best_is_reported() -> None:
    wait = {**KEPT_WAITING, "rule": "wait", "name": "cudaDeviceSynchronize"}
    assert [finding.rule for finding in advise_on({**wait, "gain_pct": 30.0}, {**KEPT_WAITING, "gain_pct": 40.0})] == [
        "host_code"
    ]
    elsewhere = {**wait, "path": "step / log", "gain_pct": 30.0}
    assert len(advise_on(elsewhere, {**KEPT_WAITING, "gain_pct": 40.0})) == 2


def test_no_gain_is_promised_where_the_replay_is_not_trusted() -> None:
    assert advise_on({**KEPT_WAITING, "gain_pct": float("nan"), "gain_ns": float("nan")}) == ()


def test_the_error_grows_with_what_is_not_known() -> None:
    errors = []
    for changes in ({}, {"unexplained_pct": 5.0}, {"unexplained_pct": 5.0, "replayed_ns": 20e6}):
        (finding,) = advise_on({**KEPT_WAITING, "gain_pct": 60.0}, **changes)
        errors.append(finding.detail.partition("± ")[2])
    assert len(set(errors)) == 3


def test_the_first_finding_says_how_to_go_on() -> None:
    first = {**KEPT_WAITING, "gain_pct": 60.0, "order": 1, "after_ns": 4e6}
    then = {**GRAPH, "gain_pct": 20.0, "order": 2, "after_ns": 2.5e6}
    findings = advise_on(first, then)
    assert "Then: use CUDA graphs in `step` → 2.50 ms." in findings[0].detail
    assert "Then: " not in findings[1].detail


def test_a_cuda_graph_is_first_only_if_it_gains_much_more() -> None:
    graph, load = {**GRAPH, "gain_pct": 40.0}, {**KEPT_WAITING, "gain_pct": 30.0}
    other = {**COPY, "gain_pct": 10.0}
    assert [finding.rule for finding in advise_on(other, graph, load)] == ["host_code", "launch_bound", "pageable_copy"]
    assert advise_on(other, {**graph, "gain_pct": 80.0}, load)[0].rule == "launch_bound"


def test_evidence_is_of_the_critical_path_of_the_place() -> None:
    path = {"cause": "host code", "name": "", "tid": 7, "time_ns": 1, "count": 1}
    rows = [
        {**path, "path": "step / log", "time_pct": 71.0, "step_ns": 7e6},
        {**path, "path": "step / load", "time_pct": 61.0, "step_ns": 6e6},
    ]
    tables = (result(GPU_TIME.name, gpu_table(25.0)), result(CRITICAL_PATH.name, pd.DataFrame(rows)))
    (finding,) = advise([*tables, replayed(), what_if({**KEPT_WAITING, "gain_pct": 60.0})])
    assert "host code in step / load, 6.00 ms per step, 61.0 % of the window" in finding.evidence[1]


def test_what_could_not_be_checked_is_reported_with_the_reason() -> None:
    names = {rule.name for rule in RULES}
    assert unchecked_rules([result(WHAT_IF.name, None, unavailable="no calls"), replayed()]) == dict.fromkeys(
        names, "no calls"
    )
    nothing = result(REPLAY.name, pd.DataFrame(columns=REPLAY.column_names))
    assert unchecked_rules([what_if(), nothing]) == dict.fromkeys(names, "there is nothing to simulate")
    assert unchecked_rules([what_if(), replayed(doubt="half is missing")]) == dict.fromkeys(names, "half is missing")
    # only ncu tells how a kernel uses the GPU, and only calls what the CPU does
    assert set(unchecked_rules([what_if(), replayed()]).values()) == {"no kernel was replayed with ncu"}
    without = unchecked_rules([what_if(), replayed(calls=0)])
    assert (without["host_code"], without.get("fusion")) == ("no CUDA calls were recorded", None)


@pytest.mark.parametrize(
    ("family", "repetitions", "of"),
    [("step #", 10, "of each step"), ("the same 2 launches", 10, "of each repetition"), ("", 0, "of the window")],
)
def test_what_gains_refer_to_has_its_name(family: str, repetitions: int, of: str) -> None:
    changes = {"family": family, "repetitions": repetitions, "of_repetitions": repetitions}
    (finding,) = advise_on({**GRAPH, "gain_pct": 60.0}, **changes)
    assert finding.title.endswith(f"6.00 ms of the 10.0 ms {of}")


def test_what_happens_once_has_a_remedy_of_its_own() -> None:
    row = {**KEPT_WAITING, "rule": "compilation", "name": "cuModuleLoadData", "gain_pct": 60.0}
    (often,), (single,) = advise_on(row), advise_on(row, repetitions=0, of_repetitions=0, family="")
    assert ("Compile once" in often.remedy, single.remedy.startswith("One-time cost")) == (True, True)
    # what comes and goes does so many times, also where no loop is known
    loads = {**row, "rule": "loading"}
    for kernels, begins in (("", "One-time cost"), ("vector_fft", "Load each module once")):
        (finding,) = advise_on({**loads, "kernels": kernels}, repetitions=0, of_repetitions=0, family="")
        assert finding.remedy.startswith(begins)


def test_attention_that_cudnn_compiles_has_its_own_fix() -> None:
    row = {**KEPT_WAITING, "rule": "compilation", "name": "cuLibraryLoadData", "gain_pct": 60.0}
    (finding,), (other,) = (
        advise_on({**row, "kernels": "cudnn_generated_sdpa\nx"}, framework=""),
        advise_on({**row, "kernels": "x\ncudnn"}, framework=""),
    )
    assert ("Without it, PyTorch takes" in finding.remedy, "PyTorch" in other.remedy) == (True, False)
    assert (finding.code, other.code) == ("torch.backends.cuda.enable_cudnn_sdp(False)", "")
    assert finding.kernels == ("cudnn_generated_sdpa", "x")


@pytest.mark.parametrize(
    ("loader", "action", "fix"),
    [
        ("_SingleProcessDataLoaderIter", "start DataLoader workers (num_workers)", "Worker processes prepare"),
        ("_MultiProcessingDataLoaderIter", "use more DataLoader workers", "The workers are slower than the GPU"),
    ],
)
def test_host_code_of_a_data_loader_has_its_own_fix(loader: str, action: str, fix: str) -> None:
    row = {**KEPT_WAITING, "path": f"step / enumerate(DataLoader)#{loader}.__next__ / collate", "gain_pct": 60.0}
    (finding,) = advise_on(row, framework="PyTorch")
    assert (finding.action, finding.remedy.startswith(fix)) == (action, True)
    # how many workers they have already is unknown
    assert ("num_workers=8" in finding.code) == (loader == "_SingleProcessDataLoaderIter")


def test_advice_on_compilation_says_why_torch_compile_compiled_again() -> None:
    row = {**KEPT_WAITING, "rule": "compilation", "name": "cuModuleLoadData", "gain_pct": 60.0}
    common = {"idle_ns": 0, "of_steps": 14, "name": "scale (train.py:3)", "graph_break": ""}
    rows = [
        {**common, "compilations": 9, "total_ns": 9_000_000, "steps": 1, "reason": "", "fix": ""},
        {**common, "compilations": 12, "total_ns": 5_000_000, "steps": 12}
        | {"reason": "the size of `x` in dimension 1 changes", "fix": "torch._dynamo.mark_dynamic(x, 1)"},
    ]
    compiled = result(COMPILATIONS.name, pd.DataFrame(rows))
    (finding,) = advise([what_if(row), replayed(), compiled])
    assert (
        "torch.compile compiled `scale (train.py:3)` again in 12 of 14 steps, 5.00 ms in total: the size of `x` in "
        "dimension 1 changes." in finding.detail
    )
    assert finding.remedy.startswith("torch._dynamo.mark_dynamic(x, 1). Compile once")
    # graphs that are recorded again, but neither the first record nor the tuning of kernels
    again = {"reason": GRAPH_RECORDED_AGAIN, "fix": "copy", "total_ns": 6_000_000, "compilations": 3, "steps": 3}
    first = [
        {**again, "reason": reason, "fix": "", "total_ns": 9_000_000} for reason in (GRAPH_RECORDED, KERNELS_TUNED)
    ]
    compiled = result(COMPILATIONS.name, pd.DataFrame([{**common, **each} for each in (*first, again)]))
    (finding,) = advise([what_if(row), replayed(), compiled])
    assert (
        "torch.compile worked on `scale (train.py:3)` in 3 of 14 steps, 6.00 ms for the recording alone: its CUDA"
        in finding.detail
    )


def test_tables_that_a_report_lacks_read_as_empty() -> None:
    tables = Tables([])
    assert tables.rows(WHAT_IF, "rule").empty
    assert tables.window_ns == 0
    with pytest.raises(KeyError):
        tables.rows(WHAT_IF, "no such column")


def test_the_training_loop_has_its_causes(recorded: Recorded) -> None:
    rules = [finding.rule for finding in recorded.report("train").findings if finding.severity == "advice"]
    assert rules[:2] == ["tensor_cores", "pageable_copy"]


@pytest.mark.parametrize(
    ("name", "avg_us", "share_pct", "is_decode"),
    [
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 20.0, 60, True),
        ("void gemvNSP_kernel<__nv_bfloat16, float, 1, 16, 4>", 20.0, 60, True),
        # wide, short, or little
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NTT", 20.0, 60, False),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 4.0, 60, False),
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", 20.0, 20, False),
    ],
)
def test_decoding_of_few_sequences_reads_all_weights(
    name: str, avg_us: float, share_pct: int, *, is_decode: bool
) -> None:
    window_ns = 1_000_000_000
    kernels = pd.DataFrame(
        {"name": [name, "softmax"], "total_ns": [share_pct * window_ns // 100, 1], "instances": [30, 1]}
    ).assign(avg_ns=[avg_us * 1000, 1.0])
    times = pd.DataFrame({"device": [0], "window_ns": [window_ns]})
    findings = advise([result("cuda_gpu_kern_sum", kernels), result("gpu_time", times)])
    assert [each.rule for each in findings] == ["memory_bound_decode"] * is_decode
    assert all(each.gain_pct is None for each in findings)


SDPA = "aten::scaled_dot_product_attention"
QUERIES = "[32, 12, 512, 64], [32, 12, 512, 64], [32, 12, 512, 64]"


@pytest.mark.parametrize(
    ("name", "mask", "is_padded"),
    [
        (SDPA, "[32, 1, 1, 512]", True),
        (SDPA, "[32, 1, 512, 512]", True),
        (SDPA, "[32, 12, 1, 512]", True),
        # none, a causal one, a bias for each head (positions), and one of another operator
        (SDPA, "[]", False),
        (SDPA, "[512, 512]", False),
        (SDPA, "[1, 1, 512, 512]", False),
        (SDPA, "[32, 12, 512, 512]", False),
        (SDPA, "[32, 1, 1, 64]", False),
        ("aten::_scaled_dot_product_efficient_attention", "[32, 1, 512, 512]", False),
    ],
)
def test_a_mask_for_each_sample_means_padding(name: str, mask: str, *, is_padded: bool) -> None:
    def advise_on_calls(*calls: int) -> list[Finding]:
        operators = pd.DataFrame(
            {"name": name, "calls": calls, "shapes": [f"[{QUERIES}, {each}, [], []]" for each in (mask, "[]")]}
        )
        return [*advise([result(CPU_OP_SHAPES.name, operators)])]

    findings = advise_on_calls(24, 24)
    assert [each.rule for each in findings] == ["padding"] * is_padded
    assert [each.gain_pct for each in findings] == [None] * is_padded
    assert advise_on_calls(23, 24) == []
    if is_padded:
        assert findings[0].evidence == (f"{SDPA} with a mask of {mask[1:-1].replace(', ', '×')}: 24 calls",)


@pytest.mark.parametrize(
    ("widths", "gain_pct", "rules"),
    [
        # all batches have one length, so that they are not padded to their longest sample
        ((512, 512), 14.0, ["padding", "host_code"]),
        ((512, 512), 16.0, ["host_code", "padding"]),
        ((512, 384), 4.0, ["host_code", "padding"]),
    ],
)
def test_padding_to_one_length_comes_before_small_gains(
    widths: tuple[int, int], gain_pct: float, rules: list[str]
) -> None:
    shapes = [f"[{QUERIES.replace('512', str(width))}, [32, 1, 1, {width}], [], []]" for width in widths]
    operators = pd.DataFrame({"name": SDPA, "calls": [24, 12], "shapes": shapes})
    gains = what_if({**KEPT_WAITING, "gain_pct": gain_pct})
    assert [each.rule for each in advise([replayed(), gains, result(CPU_OP_SHAPES.name, operators)])] == rules


@pytest.mark.parametrize(("gain_pct", "rules"), [(14.0, ["small_batch", "wait"]), (16.0, ["wait", "small_batch"])])
def test_larger_steps_come_before_gains_that_are_much_smaller_than_those_of_each_item(
    gain_pct: float, rules: list[str]
) -> None:
    """Four times as much in twice the time is half per item, which counts like a gain of 15 %."""
    wait = {**KEPT_WAITING, "rule": "wait", "gain_pct": gain_pct}
    room = {"times": 4, "blocks": 192, "filled_pct": 18.2, "multiprocessors": 132, "larger_ns": 20e6}
    findings = advise_on(wait, unprofiled_ns=10e6, **room)
    assert [each.rule for each in findings] == rules
    (larger,) = (each for each in findings if each.rule == "small_batch")
    assert larger.gain_pct is None
    assert larger.title.endswith(
        "with 4 times the work, each step would take 20.0 ms instead of 10.0 ms, 50 % less per item"
    )
    assert "at most 192 blocks, 18.2 % of what the SMs hold" in larger.evidence[0]


@pytest.mark.parametrize(
    ("waits", "rules"),
    [(96.0, ["small_batch", "launch_bound"]), (8.0, ["launch_bound", "small_batch"])],
)
def test_a_graph_in_many_pieces_comes_after_larger_steps(waits: float, rules: list[str]) -> None:
    """An environment that waits for each action: the graphs between would gain 82 %, which counts as 33 %."""
    launches = {**KEPT_WAITING, "rule": "launch_bound", "gain_pct": 82.0, "counted_pct": 32.8}
    wait = {**KEPT_WAITING, "rule": "wait", "gain_pct": 1.0, "counted_pct": 1.0, "cases": waits}
    room = {"times": 8, "blocks": 8, "filled_pct": None, "multiprocessors": 132, "larger_ns": 12.5e6}
    findings = advise_on(launches, wait, unprofiled_ns=10e6, **room)
    assert [each.rule for each in findings] == rules
    (larger,) = (each for each in findings if each.rule == "small_batch")
    assert larger.action == "process more per step (8 times the work: 84 % less time per item)"


def test_one_sample_is_never_padded() -> None:
    shapes = "[[1, 12, 512, 64], [1, 12, 512, 64], [1, 12, 512, 64], [1, 1, 1, 512], [], []]"
    operators = pd.DataFrame({"name": [SDPA], "calls": [24], "shapes": [shapes]})
    assert advise([result(CPU_OP_SHAPES.name, operators)]) == ()


def test_what_occurs_in_one_step_only_promises_nothing_for_each() -> None:
    def rules(in_steps_pct: float, steps: int) -> list[str]:
        row = {**KEPT_WAITING, "gain_pct": 40.0, "in_steps_pct": in_steps_pct}
        return [finding.rule for finding in advise_on(row, repetitions=steps, of_repetitions=steps)]

    assert rules(10.0, 10) == ["occurred_once"]
    assert rules(20.0, 10) == ["host_code"]
    (note,) = advise_on({**KEPT_WAITING, "gain_pct": 40.0, "in_steps_pct": 10.0, "time_ns": 2e6})
    assert note.severity == "info"
    assert note.title.endswith(" in one step: 20.0 ms")
    # few steps do not show how often it occurs
    assert rules(25.0, 4) == ["host_code"]
    (finding,) = advise_on({**KEPT_WAITING, "gain_pct": 40.0, "in_steps_pct": 20.0, "time_ns": 2e6})
    assert " in 1 of 5 steps: " in finding.title
    assert "It takes 10.0 ms each time." in finding.detail
