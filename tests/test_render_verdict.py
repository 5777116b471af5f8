"""The verdict: a report in two sentences."""

import math
from typing import Any

import pandas as pd
import pytest

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import Finding, Result, View
from nightsight.render.page.figures import first_figures
from nightsight.render.page.findings import advice, without_simulation
from nightsight.render.page.headline import headline
from nightsight.render.page.html import render_html
from nightsight.render.page.page import page
from nightsight.render.page.places import Places
from nightsight.render.summary import Numbers, numbers
from nightsight.render.terminal import first_screen
from nightsight.render.verdict import Verdict, busy_by_device, cause_of, gain_of, largest_wait, verdict, verdict_on
from nightsight.results.categories import COMMUNICATION, COMPUTE, HOST, LAUNCH
from nightsight.results.causes import REPLAY, SIMULATED, WHAT_IF
from nightsight.results.gpu import IDLE_STACKS
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS
from nightsight.results.ranks import RANKS
from nightsight.results.rules import RULE, RULES
from nightsight.results.steps import STEP_PARTS
from nightsight.workflows.analysis import build_report
from tests.program import Host, Kernel, Sync, captured, within
from tests.reports import HOSTILE, gpu_table, result, small_report


def split(*times: tuple[int, str, int]) -> pd.DataFrame:
    frame = pd.DataFrame(times, columns=["device", "category", "time_ns"])
    return frame.assign(group="", share_pct=0.0, hidden_ns=0, functions="")


def waits(gain: float | None = 14.6, **fields: Any) -> Finding:
    texts = {"cause": "The GPU is launch-bound in `forward`", "action": "use a CUDA graph", **fields}
    title = "The GPU is launch-bound in `forward`: 1 ms of the 7 ms of each step"
    return Finding("launch_bound", "advice", title, "", gain_ns=1, gain_pct=gain, **texts)


def verdict_of(*results: Any, **changes: Any) -> Verdict:
    report = small_report(results=results, **changes)
    return verdict(report, numbers(report))


def on_gpus(*times: tuple[int, str, int]) -> tuple[Result, Result]:
    """Return the split of a window, and how busy each GPU was in it."""
    frame = split(*times)
    whole = frame.groupby("device")["time_ns"].sum()
    busy = frame[frame["category"].isin([COMPUTE, COMMUNICATION])].groupby("device")["time_ns"].sum()
    return result(TIME_SPLIT.name, frame), result("gpu_time", gpu_table(*(100 * busy / whole)))


BUSY = on_gpus((0, COMPUTE, 190), (0, HOST, 650), (0, LAUNCH, 160))


def test_the_cause_comes_after_how_busy_the_gpu_was_and_before_what_to_do() -> None:
    assert verdict_of(*BUSY, findings=(waits(), waits(5.0))).text == (
        "GPU 19.0 % busy. The GPU is launch-bound in `forward`. First: use a CUDA graph, about −15 %."
    )


def test_a_finding_that_is_not_advice_is_not_the_cause() -> None:
    note = Finding("lost_events", "warning", "Events were lost", "")
    assert verdict_of(*BUSY, findings=(note, waits())).cause == "The GPU is launch-bound in `forward`."


def test_several_gpus_are_given_from_the_least_to_the_most_busy() -> None:
    both = on_gpus((0, COMPUTE, 19), (0, HOST, 81), (1, COMPUTE, 99), (1, HOST, 1))
    assert verdict_of(*both, findings=(waits(),)).state == "2 GPUs 19.0 to 99.0 % busy."
    alike = on_gpus((0, COMPUTE, 99), (0, HOST, 1), (3, COMPUTE, 198), (3, HOST, 2))
    assert verdict_of(*alike, findings=(waits(),)).state == "2 GPUs 99.0 % busy."


def test_a_gpu_that_only_communicates_does_not_count_as_computing() -> None:
    both = on_gpus((0, COMPUTE, 60), (0, COMMUNICATION, 39), (0, HOST, 1), (1, COMPUTE, 92), (1, COMMUNICATION, 8))
    expected = "2 GPUs compute 60.0 to 92.0 % of the time, and only communicate in 8.0 to 39.0 %."
    assert verdict_of(*both, findings=(waits(),)).state == expected
    alone = on_gpus((0, COMPUTE, 60), (0, COMMUNICATION, 39), (0, HOST, 1))
    assert verdict_of(*alone).state == "GPU computes 60.0 % of the time, and only communicates in 39.0 %."
    little = on_gpus((0, COMPUTE, 97), (0, COMMUNICATION, 2), (0, HOST, 1))
    assert verdict_of(*little).state == "GPU 99.0 % busy."


def test_of_a_job_whose_report_holds_some_ranks_it_says_of_how_many() -> None:
    both = on_gpus((0, COMPUTE, 19), (0, HOST, 81), (1, COMPUTE, 19), (1, HOST, 81))
    ranks = result(RANKS.name, pd.DataFrame({"rank": range(64), "like_rank": [0, 1] * 32}))
    assert verdict_of(*both, ranks, findings=(waits(),)).state == "2 of 64 GPUs 19.0 % busy."
    every = result(RANKS.name, pd.DataFrame({"rank": [0, 1], "like_rank": [0, 1]}))
    assert verdict_of(*both, every, findings=(waits(),)).state == "2 GPUs 19.0 % busy."


def test_of_a_healthy_program_the_verdict_says_what_was_looked_for() -> None:
    whole = on_gpus((0, COMPUTE, 99), (0, HOST, 1))
    replay = result(REPLAY.name, pd.DataFrame({"calls": [10], "doubt": [""]}))
    gains = result(WHAT_IF.name, pd.DataFrame({"rule": ["fusion", "wait"], "gain_pct": [7.5, 0.1]}))
    healthy = verdict_of(*whole, replay, gains)
    assert healthy.cause == ""  # 1 % of idle time is not worth a word
    assert healthy.first == (
        "Nothing worth fixing was found. The best fix would save 7.5 %: fuse the elementwise kernels "
        "(rarely worth the work below 13 %). Kernel efficiency was not measured. Profile with ncu to check it."
    )


def test_what_lies_outside_of_the_window_is_not_called_healthy() -> None:
    train = within("train", Kernel(1400), Kernel(1500, name="b"), Host(20))
    validation = within("validation", Kernel(500, name="c"), Sync(), Host(500))
    report = build_report(captured((*[train] * 60, *[validation] * 200)), "two loops")
    result = verdict(report, numbers(report))
    assert result.text == (
        "GPU 99.9 % busy. No known cause is worth fixing in these steps, but outside of them: The CPU waits for the "
        "GPU in `validation` (cudaDeviceSynchronize). First: remove the sync, about −27 % of the whole run."
    )
    assert headline(result, report, numbers(report)).title == result.cause
    assert report.windows[0].sentence.endswith("The 202 ms of GPU work after it are not part of it.")
    waiting = within("train", Kernel(1400), Kernel(1500, name="b"), Sync(), Host(200))
    report = build_report(captured((*[waiting] * 60, *[validation] * 200)), "two loops")
    assert verdict(report, numbers(report)).text == (
        "GPU 93.2 % busy. The CPU waits for the GPU in `train` (cudaDeviceSynchronize). First: remove the sync, about "
        "\N{MINUS SIGN}6.8 %. A step then takes 2.90 ms instead of 3.11 ms. After these steps (51.9 % of the run): The "
        "CPU waits for the GPU in `validation` (cudaDeviceSynchronize)."
    )
    alone = build_report(captured(tuple([train] * 60)), "one loop")
    assert "None of" in verdict(alone, numbers(alone)).text
    assert "after it" not in alone.windows[0].sentence


@pytest.mark.parametrize(("seconds", "times", "is_told"), [(30.0, 1, True), (9.0, 1, False), (30.0, 30, False)])
def test_what_takes_most_of_the_run_before_its_loop_is_told(seconds: float, times: int, is_told: bool) -> None:
    load = within("load", Kernel(5), Sync(), Host(round(1e6 * seconds)), Kernel(5))
    healthy, waiting = (
        within("train", Kernel(1400 * times), Kernel(1500 * times, name="b"), *more)
        for more in ((Host(20),), (Sync(), Host(200 * times)))
    )
    for step, cause, share in (
        (healthy, "None of", "94.5 %"),
        (waiting, "First: remove the sync", "94.1 %"),
    ):
        report = build_report(captured((load, *[step] * 600)), "start-up")
        text = verdict(report, numbers(report)).text
        assert cause in text
        told = f"Before these steps ({share} of the run): The GPU waits for host code in `load`, 26.3 s once."
        assert text.endswith(told) == is_told
        assert ("Before these steps" in text) == is_told


def test_of_a_busy_gpu_it_says_whether_its_kernels_were_measured() -> None:
    replay = result(REPLAY.name, pd.DataFrame({"calls": [10], "doubt": [""]}))
    limits = pd.DataFrame({"name": ["a"], "replay_ns": [1.0], "unit": "DRAM", "used_pct": [90.0]})
    whole = on_gpus((0, COMPUTE, 99), (0, HOST, 1))
    sentence = f"None of {len(RULES)} known causes applies."
    assert (
        verdict_of(*whole, replay).first
        == f"{sentence} Kernel efficiency was not measured. Profile with ncu to check it."
    )
    assert verdict_of(*whole, replay, result(NCU_LIMITS.name, limits)).first == sentence


def test_of_a_gpu_that_waits_for_host_code_it_says_how_to_see_which() -> None:
    def after(framework: str, *others: Result) -> str:
        row = {"calls": [10], "doubt": [""], "framework": [framework]}
        text = verdict_of(*BUSY, result(REPLAY.name, pd.DataFrame(row)), *others).first
        return text.removeprefix(f"None of {len(RULES)} known causes applies.").strip()

    unknown = "The capture does not show which code that is."
    assert after("PyTorch") == f"{unknown} Profile with `--names python` to see it."
    assert after("CUDA") == f"{unknown} Mark the parts of the program with NVTX ranges to see it."
    assert after("PyTorch", result(IDLE_STACKS.name, pd.DataFrame({"name": ["f"]}))) == ""


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_what_is_not_worth_its_work_is_named_in_words(rule: str) -> None:
    gains = result(WHAT_IF.name, pd.DataFrame({"rule": [rule], "gain_pct": [1.0]}))
    first = verdict_of(*BUSY, result(REPLAY.name, pd.DataFrame({"calls": [10], "doubt": [""]})), gains).first
    assert first.startswith(f"Nothing worth fixing was found. The best fix would save 1.0 %: {RULE[rule].action}.")


def test_a_list_that_was_cut_ends_with_its_own_dots() -> None:
    cause = "Kernels in a row: add, pow, ..."
    assert verdict_of(*BUSY, findings=(waits(cause=cause),)).cause == cause


def test_an_idle_gpu_without_advice_is_not_called_healthy() -> None:
    idle = verdict_of(*BUSY, unchecked={"host_code": "no CUDA calls were recorded."})
    assert idle.text == (
        "GPU 19.0 % busy. Largest wait: host code, 65.0 % of the window. "
        "Causes could not be checked: no CUDA calls were recorded."
    )


def test_single_kernels_have_a_verdict_of_their_own() -> None:
    replayed = result(NCU_KERNELS.name, pd.DataFrame({"name": ["a", "b"]}))
    assert verdict_of(replayed).text == (
        "2 kernels replayed by ncu, without a timeline. What limits them was not collected."
    )
    limits = pd.DataFrame({"name": ["a", "b"], "replay_ns": [1.0, 2.0], "unit": "DRAM", "used_pct": [90.0, 30.0]})
    assert verdict_of(replayed, result(NCU_LIMITS.name, limits)).cause == (
        "The longest, `b`, waits on latencies: its busiest unit is used to 30.0 % (DRAM)."
    )
    near = limits.assign(replay_ns=[2.0, 1.0], used_pct=[61.0, 95.0])
    limited = verdict_of(replayed, result(NCU_LIMITS.name, near))
    assert limited.cause == "The longest, `a`, is limited by DRAM, used to 61.0 %."
    unknown = limits.assign(used_pct=[61.0, math.nan])
    assert (
        verdict_of(replayed, result(NCU_LIMITS.name, unknown)).cause
        == "What limits the longest, `b`, was not collected."
    )
    far = Finding("uncoalesced", "advice", "Threads access distant memory", "", source="ncu_limits")
    roof = Finding("at_roof", "info", "Kernels at the peak", "", source="ncu_limits")
    assert verdict_of(replayed, findings=(roof, far)).cause == "Threads access distant memory."
    assert verdict_of(replayed, findings=(roof,)).cause == "Kernels at the peak."


def test_without_work_on_a_gpu_the_verdict_says_so() -> None:
    assert verdict_of().text == "No work on a GPU."
    lost = Finding("nothing_recorded", "warning", "torch.profiler recorded nothing", "")
    none = result("cpu_ops", pd.DataFrame(columns=["name", "calls", "own_ns", "own_pct"]))
    assert verdict_of(none, findings=(lost,)).text == "No work on a GPU."
    assert verdict_of(none).text == (
        "No work on a GPU, and no PyTorch operator. torch.profiler records only the thread that starts it. "
        "First: if other threads do the work, record them (--record threads, or profile_all_threads=True)."
    )
    operators = pd.DataFrame(
        {"name": ["aten::mm", "aten::add"], "calls": [2, 2], "own_ns": [9, 1], "own_pct": [90.0, 10.0]}
    )
    assert verdict_of(result("cpu_ops", operators)).text == (
        "No work on a GPU. The top operator, `aten::mm`, takes 90.0 % of operator time. "
        "Reports of GPU work also have kernels, copies, launches and causes."
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("gpu_not_recorded", "GPU work was not recorded. First: record the GPU, too."),
        ("lost_events", "GPU work was not saved. First: record the GPU, too."),
        ("no_gpu_work", "No work on a GPU. First: record the GPU, too."),
    ],
)
def test_a_capture_that_lacks_the_gpu_says_so_before_what_the_cpu_did(rule: str, text: str) -> None:
    operators = pd.DataFrame({"name": ["aten::mm"], "calls": [2], "own_ns": [9], "own_pct": [100.0]})
    lacking = Finding(rule, "warning", "GPU", "", "Record the GPU, too.")
    assert verdict_of(result("cpu_ops", operators), findings=(lacking,)).text == text


def test_that_forks_use_the_gpu_says_more_than_that_nothing_was_recorded() -> None:
    nothing = Finding("gpu_not_recorded", "warning", "GPU", "", "Update nsys.")
    forked = Finding("forked_work_lost", "warning", "GPU", "It forked 2 processes.", "Start processes with spawn.")
    text = "GPU work was not recorded. It forked 2 processes. First: start processes with spawn."
    assert verdict_of(findings=(nothing, forked)).text == text


def test_what_the_verdict_says_of_a_capture_is_not_repeated() -> None:
    lacking = Finding("lost_events", "warning", "No GPU work was saved", "It was lost. So it is.", "End by itself.")
    other = Finding("odd", "warning", "Odd", "")
    report = small_report(results=(), findings=(lacking, other))
    screen, view = first_screen(report), page(report)
    assert screen.verdict.text == "GPU work was not saved. It was lost. First: end by itself."
    assert [text for _, text in screen.doubts] == ["Warning: Odd"]
    assert [banner.title for banner in view.doubts] == ["Odd"]


def test_of_a_healthy_program_the_causes_do_not_repeat_the_verdict() -> None:
    replay = result(REPLAY.name, pd.DataFrame({"calls": [10], "doubt": [""]}))
    report = small_report(results=(*on_gpus((0, COMPUTE, 99), (0, HOST, 1)), replay), findings=())
    text = render_html(report)
    assert text.count(f"None of {len(RULES)} known causes") == 1
    assert "Nothing here is worth fixing." in text


def test_the_sentence_about_the_simulation_stands_once_where_gains_are_defined() -> None:
    simulated = SIMULATED.format(one="a step", difference="+0.5 %")
    findings = tuple(waits(gain, evidence=("mine", simulated)) for gain in (14.6, 5.0))
    items, simulation = without_simulation(advice(findings, {}, KernelLabels(()), Places()))
    assert [item.evidence for item in items] == [("mine",), ("mine",)]
    assert simulation == f"{simulated}."
    assert render_html(small_report(results=BUSY, findings=findings)).count("The simulation of a") == 1


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        (60.0, "60.0 % of the window is outside operators."),
        (10.0, "80.0 % of the window is in operators."),
    ],
)
def test_on_a_cpu_shares_are_of_the_window_or_of_operator_time_and_say_so(host: float, cause: str) -> None:
    operators = pd.DataFrame({"name": ["aten::mm"], "calls": [2], "own_ns": [9], "own_pct": [90.0]})
    parts = pd.DataFrame(
        {
            "tid": 1,
            "steps": 0,
            "category": ["operators", "operators", "host code"],
            "name": ["aten::mm", "aten::add", "host code"],
            "time_ns": [30.0, 10.0, host],
        }
    )
    largest = "The top operator, `aten::mm`, takes 90.0 % of operator time."
    results = (result("cpu_ops", operators), result(STEP_PARTS.name, parts))
    assert verdict_of(*results).cause == f"{cause} {largest}"
    report = small_report(results=results)
    (top,) = (one for one in first_figures(numbers(report), report) if one.label == "Top operator")
    assert f"{top.value} {top.note}" == "90.0 % of operator time: aten::mm"
    both = pd.concat([parts, parts.assign(tid=2)])
    # of several threads, no share of the window is known
    assert verdict_of(result("cpu_ops", operators), result(STEP_PARTS.name, both)).cause == largest


def test_another_window_has_its_own_verdict() -> None:
    frame = split((0, COMPUTE, 2), (0, HOST, 98))
    waited = "GPU 2.0 % busy. Largest wait: host code, 98.0 % of the window."
    assert verdict_on(View("whole", 0, 10, "", split=frame), Numbers()).text == waited
    assert verdict_on(View("start-up", 0, 10, "", split=frame), Numbers()).text == f"{waited} One-time cost."
    start_up = verdict_on(View("start-up", 0, 10, "", split=frame, findings=(waits(action=""),)), Numbers())
    assert start_up.text == "GPU 2.0 % busy. The GPU is launch-bound in `forward`. One-time cost."
    assert verdict_on(View("whole", 0, 10, ""), Numbers()).text == ""


def test_the_largest_wait_is_idle_time_or_communication_that_nothing_hides() -> None:
    frame = split((0, COMPUTE, 50), (0, COMMUNICATION, 30), (0, HOST, 20))
    assert largest_wait(frame) == (COMMUNICATION, 30.0)
    assert largest_wait(split((0, COMPUTE, 50))) is None
    assert largest_wait(pd.DataFrame()) is None


@pytest.mark.parametrize(("gain", "text"), [(None, ""), (3.21, "−3.2 %"), (9.96, "−10 %"), (48.7, "−49 %")])
def test_a_gain_is_given_as_a_change_of_time(gain: float | None, text: str) -> None:
    assert gain_of(waits(gain)) == text


def test_a_long_list_of_names_is_left_out_of_a_sentence() -> None:
    names = ", ".join(f"cutlass sgemm {number}" for number in range(20))
    assert cause_of(waits(cause=f"Products run without tensor cores ({names})")) == "Products run without tensor cores"
    assert cause_of(waits(cause="Calls in `f` (f.py:3)")) == "Calls in `f` (f.py:3)"


def test_a_line_of_causes_says_what_a_kernel_alone_could_gain() -> None:
    alone = waits(None, action="let threads go in order, up to \N{MINUS SIGN}78 % of its time")
    weighed = waits(14.6, action="let threads go in order, up to \N{MINUS SIGN}78 % of its time")
    causes = [one.cause for one in advice((alone, weighed), {}, KernelLabels(()), Places())]
    assert causes == [f"{alone.cause}, up to \N{MINUS SIGN}78 % of its time", weighed.cause]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_cause_stays_one_short_line(text: str) -> None:
    sentence = verdict_of(*BUSY, findings=(waits(cause=text, action=text),)).text
    assert len(cause_of(waits(cause=text))) <= 160
    assert len(sentence) <= 400
    assert "\n" not in sentence
    assert "\x00" not in sentence


def test_rows_of_an_unknown_gpu_or_category_are_in_no_share() -> None:
    known = pd.DataFrame({"device": [0, 0, 1], "category": ["compute", "launch", "launch"], "time_ns": [1, 3, 4]})
    unknown = pd.DataFrame({"device": [None, 1], "category": ["compute", None], "time_ns": [9, 9]})
    for split in (known, pd.concat([known, unknown])):
        assert busy_by_device(split) == [25.0, 0.0]
