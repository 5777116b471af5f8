"""The headline: what is wrong, and a step now and after the fix."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from nightsight.model.report import Finding
from nightsight.render.page.headline import Headline, headline, headline_on
from nightsight.render.summary import numbers
from nightsight.render.verdict import Verdict, verdict
from nightsight.results.categories import COMPUTE, COPIES, GRAPHS, HOST, LAUNCH
from nightsight.results.causes import REPLAY, WHAT_IF
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ncu import NCU_LIMITS
from nightsight.results.rules import RULES
from tests.reports import gpu_table, result, small_report

SPLIT = {COMPUTE: 80.0, HOST: 20.0}


def advice(rule: str = "tensor_cores", gain: float | None = 20.0, **fields: Any) -> Finding:
    usual = {"cause": "FP32 math runs without tensor cores", "action": "multiply in TF32", **fields}
    return Finding(rule, "advice", "", "", gain_pct=gain, **usual)


def headline_of_advice(
    *findings: Finding,
    fixes: pd.DataFrame | None = None,
    steps: int = 9,
    split: Mapping[str, float] = SPLIT,
    limits: pd.DataFrame | None = None,
    replay: Mapping[str, float] | None = None,
) -> Headline:
    frame = pd.DataFrame({"device": 0, "category": [*split], "time_ns": [*split.values()], "group": ""})
    simulated = pd.DataFrame({"unprofiled_ns": [3_160_000.0], "of_repetitions": steps, "calls": 9, "doubt": ""})
    simulated = simulated.assign(**(replay or {}))
    kernels = pd.DataFrame({"name": ["a", "b"], "total_ns": [9.0, 3.0], "time_pct": [75.0, 25.0]})
    results = [result(TIME_SPLIT.name, frame), result("gpu_time", gpu_table(80.0)), result(REPLAY.name, simulated)]
    results += [result(CUDA_GPU_KERN_SUM.name, kernels)]
    results += [] if fixes is None else [result(WHAT_IF.name, fixes)]
    results += [] if limits is None else [result(NCU_LIMITS.name, limits)]
    report = small_report(results=tuple(results), findings=findings, benchmark=None)
    run = numbers(report)
    return headline(verdict(report, run), report, run)


def sequence(*fixes: tuple[str, float, float | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(fixes, columns=["rule", "gain_pct", "order", "after_ns"]).assign(path="")


FIXES = sequence(
    ("tensor_cores", 20.0, 1, 2_528_000.0),
    ("wait", 9.0, None, None),
    ("pageable_copy", 14.0, 3, 1_200_000.0),
    ("fusion", 7.0, 2, 1_900_000.0),
)


def test_a_fix_has_a_step_now_and_after_it_and_all_fixes_the_shortest_step() -> None:
    found = headline_of_advice(advice(), fixes=FIXES)
    assert found.title == "FP32 math runs without tensor cores."
    assert found.fix == (
        "Multiply in TF32: *3.16 ms → 2.53 ms* per step, \N{MINUS SIGN}20 % (predicted). "
        "All 3 fixes together: *1.20 ms*."
    )


def test_a_fix_that_was_measured_says_so() -> None:
    found = headline_of_advice(advice(proof="measured −18 %"), fixes=FIXES[:1])
    assert found.fix == "Multiply in TF32: *3.16 ms → 2.53 ms* per step, \N{MINUS SIGN}20 % (measured −18 %)."


@pytest.mark.parametrize(
    ("unexplained_pct", "gain", "sure"),
    [
        (0.5, 20.0, "predicted, ± 0.03 ms"),
        (-1.5, 20.0, "predicted, ± 0.06 ms"),
        # more than what remains
        (4.0, 97.0, "predicted, roughly"),
    ],
)
def test_a_predicted_fix_says_how_far_the_step_may_be_off(unexplained_pct: float, gain: float, sure: str) -> None:
    found = headline_of_advice(
        advice(gain=gain),
        fixes=sequence(("tensor_cores", gain, 1, 2_528_000.0)),
        replay={"unexplained_pct": unexplained_pct, "replayed_ns": 3_160_000.0},
    )
    assert found.fix.endswith(f" % ({sure}).")


def test_code_that_nothing_names_is_said_with_how_to_name_it() -> None:
    waits, hint = (
        advice("host_code", 20.0),
        "The capture does not show which code that is. Profile with `--names python` to see it.",
    )
    outside = sequence(("host_code", 20.0, 1, 2_528_000.0)).assign(path="(no range)")
    assert headline_of_advice(waits, fixes=outside, split={COMPUTE: 20.0, HOST: 80.0}).more == hint
    assert headline_of_advice(waits, fixes=outside, split={COMPUTE: 20.0, LAUNCH: 80.0}).more == ""
    named = outside.assign(path="step / load")
    assert headline_of_advice(waits, fixes=named, split={COMPUTE: 20.0, HOST: 80.0}).more == ""


def test_a_note_that_is_the_verdict_has_the_first_sentences_of_its_remedy() -> None:
    note = Finding("at_roof", "info", "Kernels at the limit", "", "Do less of that work. Fuse kernels.")
    assert headline_on(Verdict("", "Kernels at the limit.", advice=note)).fix == note.remedy
    # the page has it below the headline
    assert headline_on(Verdict("", "It waits.", advice=replace(note, severity="advice"))).fix == ""


def test_what_does_not_repeat_has_no_step() -> None:
    fix = headline_of_advice(advice(), fixes=FIXES[:1], steps=0).fix
    assert fix == "Multiply in TF32: *3.16 ms → 2.53 ms*, \N{MINUS SIGN}20 % (predicted)."


def test_a_fix_outside_the_best_sequence_is_not_one_of_those_together() -> None:
    fix = headline_of_advice(advice("wait", 9.0, action="remove the sync"), fixes=FIXES).fix
    assert fix == "Remove the sync: *3.16 ms → 2.88 ms* per step, \N{MINUS SIGN}9.0 % (predicted)."


@pytest.mark.parametrize("fixes", [None, FIXES, FIXES.drop(columns="order"), FIXES.assign(gain_pct=None)])
def test_a_fix_without_a_simulated_step_has_its_gain(fixes: pd.DataFrame | None) -> None:
    assert headline_of_advice(advice("tail", 12.0), fixes=fixes).fix == "Multiply in TF32: about *\N{MINUS SIGN}12 %*."
    assert headline_of_advice(advice("tail", None), fixes=fixes).fix == "Multiply in TF32."
    assert headline_of_advice(advice("tail", 12.0, action=""), fixes=fixes).fix == ""


@pytest.mark.parametrize(
    ("shortest_ns", "texts"),
    [
        (120_000.0, ("3.16 ms", "0.12 ms")),
        (9_000.0, ("3.16 ms", "9.00 µs")),
        (2_000_000.0, ("3.16 ms", "2.00 ms")),
        # thousandths of a millisecond would show one digit at most: each has its own unit
        (1_500.0, ("3.16 ms", "1.50 µs")),
    ],
)
def test_a_short_step_keeps_two_digits(shortest_ns: float, texts: tuple[str, str]) -> None:
    fix = headline_of_advice(
        advice(), fixes=sequence(("tensor_cores", 20.0, 1, 2e6), ("wait", 9.0, 2, shortest_ns))
    ).fix
    assert fix.startswith(f"Multiply in TF32: *{texts[0]} → ")
    assert fix.endswith(f"Both fixes together: *{texts[1]}*.")


def test_without_a_cause_the_largest_part_of_the_time_is_named() -> None:
    for split, part in (
        (SPLIT, "The largest kernel, `a`, takes 75 % of the kernel time."),
        ({GRAPHS: 90.0, HOST: 10.0}, "CUDA graphs take 90.0 % of the time, recorded as a whole."),
        ({COMPUTE: 30.0, HOST: 10.0, COPIES: 60.0}, "Copies and memsets take 60.0 % of the time."),
    ):
        found = headline_of_advice(split=split)
        assert found.title == f"None of {len(RULES)} known causes applies."
        assert part in found.more
    # a GPU that mostly waits is not called healthy
    waits = headline_of_advice(split={COMPUTE: 20.0, HOST: 80.0})
    assert waits.title == "Largest wait: host code, 80.0 % of the window."


@pytest.mark.parametrize(
    ("name", "used_pct", "sentence"),
    [
        ("a", 90.0, "It is limited by DRAM, used to 90.0 %."),
        ("a", 20.0, "It waits on latencies: its busiest unit is used to 20.0 % (DRAM)."),
        ("a", None, "What limits it was not measured: select it for ncu, too."),
        ("b", 90.0, "What limits it was not measured: select it for ncu, too."),
    ],
)
def test_the_largest_kernel_has_its_limit_if_that_was_measured(
    name: str, used_pct: float | None, sentence: str
) -> None:
    limits = pd.DataFrame({"name": [name], "unit": "DRAM", "used_pct": [used_pct], "replay_ns": [9.0]})
    limits = limits.astype({"used_pct": "float64"})
    assert f" of the kernel time. {sentence}" in headline_of_advice(limits=limits).more
    assert "measured" not in headline_of_advice(split={COMPUTE: 20.0, HOST: 80.0}, limits=limits).more


def test_another_window_has_its_cause_and_no_step() -> None:
    found = headline_on(Verdict("GPU 9 % busy.", "It waits.", "First: hurry.", advice=advice()))
    assert (found.title, found.fix) == ("It waits.", "Multiply in TF32: about *\N{MINUS SIGN}20 %*.")
    assert headline_on(Verdict("GPU 9 % busy.", "It waits.", "Once.")) == Headline("It waits.", more="Once.")
    assert headline_on(Verdict("GPU 99 % busy.")) == Headline("GPU 99 % busy.")
