"""Advice on programs with a planted cause: captures and step times of a GPU host are in tests/data/planted."""

import lzma
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze.causes.reductions import unneeded_reductions
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.simulation import simulate
from nightsight.collect.compilations import compilations_of
from nightsight.events.kernel_labels import FOREACH, family_of
from nightsight.events.loops import launched_work
from nightsight.events.timeline import Timeline
from nightsight.events.window import chosen_window
from nightsight.read import read
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict as first_sentence
from nightsight.runs.unprofiled import from_text, to_text
from tests.documents import check
from tests.planted.__main__ import DATA, ROOT
from tests.planted.cases import CASES, JOBS, OTHERS, PEOPLE, RANKS, Case
from tests.planted.judge import Verdict, joined_ranks, judged, number, table
from tests.planted.store import of_compilations, times
from tests.recorded import Recorded, made_once

# known misses: one that is mended must be taken out here
MISNAMED: dict[str, str] = {
    "small_gradients": "the rest of its step is launch-bound, too: a CUDA graph promises 85 %, and joining the small "
    "collectives 18 %, which is the second finding",
}
"""Whose cause is not named first, and why."""
FAR_OF_RANKS = {
    "exposed": "over NVLink, what is hidden takes nearly all that it saves from the products beside it: 0.9 %, not 2.6",
}
"""Ranks whose predicted gain is off by more than a factor of 2, and why."""


Verdicts = tuple[Verdict, ...]


@pytest.fixture(scope="module")
def verdicts(shared: Path) -> Verdicts:
    return made_once(lambda: tuple(judged(list(CASES.values()), DATA)), shared / "planted.verdicts")


@pytest.fixture(scope="module")
def of_others(shared: Path) -> Verdicts:
    return made_once(lambda: tuple(judged(list(OTHERS.values()), DATA / "others")), shared / "others.verdicts")


@pytest.fixture(scope="module")
def of_ranks(shared: Path) -> Verdicts:
    return made_once(lambda: tuple(judged(list(RANKS.values()), DATA / "ranks")), shared / "ranks.verdicts")


def planted(verdicts: Verdicts) -> list[Verdict]:
    return [verdict for verdict in verdicts if not verdict.case.is_healthy]


@pytest.mark.nightly
def test_each_program_is_captured_and_timed(verdicts: Verdicts) -> None:
    recorded = CASES.keys()
    assert {verdict.case.name for verdict in verdicts if verdict.diagnosis} == recorded
    trials = times(DATA)
    assert trials.keys() == recorded
    assert {name: tuple(forms) for name, forms in trials.items()} == {name: CASES[name].timed_forms for name in trials}


def test_captures_are_small_and_do_not_tell_of_the_machine() -> None:
    files, jobs = ([path for path in folder.rglob("*") if path.is_file()] for folder in (DATA, JOBS_DATA))
    assert max(sum(path.stat().st_size for path in stored) for stored in (files, jobs)) < 16e6
    files += jobs
    private = (b"PYTHONPATH=", b"/home/", b"/root/", b"/work/")
    packed = [path for path in files if path.suffix == ".xz"]
    assert [path.name for path in packed if any(word in lzma.decompress(path.read_bytes()) for word in private)] == []


def test_what_is_kept_next_to_a_capture_is_what_was_compiled() -> None:
    row = {"start_ns": 5, "end_ns": 6, "pid": 1, "function": "f (a.py:1)", "reason": "", "fix": "", "graph_break": ""}
    costs = pd.DataFrame([{"kind": "launch", "added_ns": 1.0, "recorded_ns": 2.0}])
    measured = {"profiler_costs": costs, "compilations": compilations_of([row])}
    kept = from_text(of_compilations(to_text(measured)))
    assert kept.keys() == {"compilations"}
    assert kept["compilations"].drop(columns="process").to_dict("records") == [row]
    assert of_compilations(to_text({"profiler_costs": costs})) == ""


def test_every_fix_gains_enough_to_be_worth_advice(verdicts: Verdicts) -> None:
    assert [verdict.case.name for verdict in planted(verdicts) if (verdict.gain_pct or 0) < 4] == []


def test_the_first_advice_names_the_planted_cause(verdicts: Verdicts) -> None:
    missed = {verdict.case.name for verdict in planted(verdicts) if not verdict.is_named}
    assert missed == MISNAMED.keys(), table(verdicts)
    assert len(missed) <= 0.05 * len(planted(verdicts))


def test_the_gain_is_near_the_measured_one(verdicts: Verdicts) -> None:
    far = {
        most: {verdict.case.name for verdict in planted(verdicts) if not verdict.is_near(most)} for most in (1.5, 2.0)
    }
    assert far[1.5] == MISNAMED.keys(), table(verdicts)
    assert len(far[1.5]) <= 0.2 * len(planted(verdicts))
    assert len(far[2.0]) <= 0.05 * len(planted(verdicts)), table(verdicts)


def test_healthy_programs_are_promised_nothing(verdicts: Verdicts, of_others: Verdicts) -> None:
    assert [(verdict.case.name, verdict.false) for verdict in (*verdicts, *of_others) if verdict.false] == []


def test_the_replay_gives_the_step_back(verdicts: Verdicts, of_others: Verdicts) -> None:
    unexplained = sorted(
        abs(verdict.diagnosis.unexplained_pct) for verdict in (*verdicts, *of_others) if verdict.diagnosis
    )
    assert unexplained[-1] <= 3
    assert unexplained[int(0.9 * len(unexplained))] <= 1


def test_a_step_without_the_profiler_is_near_the_measured_one(verdicts: Verdicts) -> None:
    # compiling takes half as long again in some runs as in others, and loading modules up to twice as long under nsys
    steady = [each for each in verdicts if not {"compilation", "loading"} & {*each.case.rules}]
    ratios = [each.unprofiled_ms / each.bad_ms for each in steady if each.unprofiled_ms and each.bad_ms]
    assert sum(0.8 <= ratio <= 1.25 for ratio in ratios) >= 0.9 * len(ratios), table(verdicts)


def test_causes_in_programs_of_others_are_named(of_others: Verdicts) -> None:
    verdicts = [verdict for verdict in of_others if not verdict.case.is_healthy]
    assert len(verdicts) == len(OTHERS) - 1
    assert [verdict.case.name for verdict in verdicts if not verdict.is_named] == [], table(of_others)
    far = [verdict.case.name for verdict in verdicts if not verdict.is_near(1.5)]
    assert far == [], table(of_others)


@pytest.mark.nightly
def test_programs_as_people_write_them_are_promised_the_step_that_they_got() -> None:
    verdicts = judged(list(PEOPLE.values()), DATA / "people")
    assert [verdict.case.name for verdict in verdicts if not verdict.is_named] == [], table(verdicts)
    factors = {verdict.case.name: (verdict.promised_ms or 0) / (verdict.fixed_ms or 1) for verdict in verdicts}
    far = [name for name, factor in factors.items() if not 1 / 1.5 <= factor <= 1.5]
    # the first batch of an epoch takes some time with workers that live on, too: 1.53
    assert far == ["epoch_workers"], factors


@pytest.mark.nightly
def test_causes_in_ranks_are_named_with_the_rank(of_ranks: Verdicts) -> None:
    verdicts = [verdict for verdict in of_ranks if not verdict.case.is_healthy]
    assert len(of_ranks) == len(RANKS)
    assert [verdict.case.name for verdict in verdicts if not verdict.is_named] == [], table(of_ranks)
    assert [verdict.case.name for verdict in of_ranks if verdict.false] == [], table(of_ranks)
    assert [verdict.case.name for verdict in verdicts if (verdict.factor or 1) > 2] == [*FAR_OF_RANKS], table(of_ranks)


JOBS_DATA = DATA.parent / "jobs"
FAR_JOBS = {
    "fsdp_whole": "the fix gains 1.3 %, within the spread of its trials, and 3.8 % are promised",
    "uneven_experts": "18 % are promised, 38 % were measured; the reason is not known",
}
"""Whose predicted gain is off by more than a factor of 1.5, and why."""


def judged_jobs(*names: str) -> list[Verdict]:
    """Return the verdicts on jobs of four ranks that nothing annotates."""
    cases: list[Case] = [JOBS[name] for name in names]
    return judged(cases, JOBS_DATA)


def check_jobs(verdicts: list[Verdict]) -> None:
    text = table(verdicts)
    assert [verdict.case.name for verdict in verdicts if not verdict.diagnosis] == [], text
    assert [verdict.case.name for verdict in planted(tuple(verdicts)) if not verdict.is_named] == [], text
    assert [verdict.case.name for verdict in planted(tuple(verdicts)) if not (verdict.step_factor or 9) <= 1.5] == [], (
        text
    )
    assert [verdict.case.name for verdict in verdicts if verdict.false] == [], text
    far = {verdict.case.name for verdict in planted(tuple(verdicts)) if (verdict.factor or 9) > 1.5}
    assert far == FAR_JOBS.keys() & {verdict.case.name for verdict in verdicts}, text


def test_causes_in_jobs_of_four_ranks_are_named() -> None:
    """Host code of one rank next to NCCL's watchdog, new lengths now and then, experts of tokens without gradients."""
    check_jobs(judged_jobs("one_rank_augments", "lengths_differ", "uneven_experts"))


@pytest.mark.nightly
def test_causes_in_more_jobs_of_four_ranks_are_named() -> None:
    check_jobs(judged_jobs("fsdp", "one_rank_has_more", "reduced_after_backward", "fsdp_whole", "fsdp_logs"))


def test_the_first_ten_steps_of_distributed_data_parallel_are_no_steady_part(
    capture_file: Callable[[str], Path],
) -> None:
    window = chosen_window(read(capture_file("one_rank_augments.bad")))
    assert {len(starts) for starts in window.steps.values()} == {5}
    assert "the CPU waits in cudaEventSynchronize" in window.sentence


def test_the_gain_of_a_rank_that_comes_late_is_what_it_is_late(of_ranks: Verdicts) -> None:
    (late,) = (verdict for verdict in of_ranks if verdict.case.name == "late_joiner")
    assert late.first
    assert late.diagnosis
    gain_ms = (late.first.gain_pct or 0) / 100 * late.diagnosis.unprofiled_ms
    assert 2_600 < gain_ms < 3_000


@pytest.mark.parametrize("case", ["overlapped", "straggler_compute"])
def test_reductions_of_each_backward_pass_are_repeated_if_only_their_sum_is_used(case: str) -> None:
    profile = joined_ranks(RANKS[case], DATA / "ranks")
    assert profile
    assert unneeded_reductions(Scene(Timeline(profile))).passes == 0
    # as if an update followed each fourth backward pass only
    kernels, window = profile.table("kernels"), chosen_window(profile)
    launched, updates = launched_work(profile).launch_ns[: len(kernels)], kernels["name"].astype("str").map(family_of)
    step = np.concatenate([np.searchsorted(starts, launched, side="right")[None] for starts in window.steps.values()])
    of_process = np.array([(kernels["process"] == process).to_numpy() for process in window.steps])
    left_out = (updates == FOREACH).to_numpy() & (of_process & (step % 4 != 0)).any(axis=0)
    names = kernels["name"].astype("str").mask(left_out, "plain").astype("category")
    summed = replace(profile, tables={**profile.tables, "kernels": kernels.assign(name=names)})
    scene = Scene(Timeline(summed))
    unneeded = unneeded_reductions(scene)
    assert unneeded.passes == 4
    # three of four, but for a bucket of a broken update at either end
    reductions = scene.graph.work.group >= 0
    assert 0.6 < len(unneeded.reductions) / reductions.sum() <= 0.75


def test_what_only_brings_gradients_to_buckets_and_back_is_unneeded_too(capture_file: Callable[[str], Path]) -> None:
    """Four passes per update of two ranks, on two H200, with 96 parameters in 13 buckets."""
    timeline = Timeline(read(capture_file("accumulation")))
    scene = Scene(timeline)
    unneeded = unneeded_reductions(scene)
    assert unneeded.passes == 4
    updates = len(unneeded.reductions) / (3 * 13)
    assert updates == int(updates) >= 4
    assert len(unneeded.copies) == updates * 3 * 2 * 96
    # the CPU limits these ranks: only with the launches, something is gained
    assert "repeated_reduction" in {gain.remedy.rule for gain in simulate(timeline).gains}


def test_what_is_written_from_the_captures_is_current(
    verdicts: Verdicts, of_others: Verdicts, of_ranks: Verdicts
) -> None:
    others = f"### Programs by other authors\n\n{table(of_others)}"
    ranks = f"### Ranks recorded separately\n\n{table(of_ranks)}"
    written = "\n\n".join((table(verdicts), others, ranks))
    check(ROOT / "docs" / "causes.md", written)


WORKED = ("launch", "loader", "fp32", "pageable", "unfused")


def worked() -> dict[str, str]:
    """Return the parts of docs/cases.md by their headings; what comes before the first has none."""
    before, *parts = re.split(r"^## ", (ROOT / "docs" / "cases.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": before, **{part.partition("\n")[0]: part for part in parts}}


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_case_quotes_the_first_sentence_of_its_report(name: str, recorded: Recorded) -> None:
    (capture,) = re.findall(r"^Capture: `(.+)\.sqlite\.xz`", worked()[name], flags=re.MULTILINE)
    assert (ROOT / f"{capture}.sqlite.xz").is_file()
    report = recorded.report(name)
    assert f"\n> {first_sentence(report, numbers(report)).text}\n" in worked()[name]


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_case_gives_what_was_predicted_and_measured(name: str, of_others: Verdicts) -> None:
    (verdict,) = (verdict for verdict in of_others if verdict.case.name == name)
    assert verdict.first
    predicted_ms, gain_pct = verdict.unprofiled_ms, verdict.first.gain_pct
    assert predicted_ms
    assert gain_pct
    rows = {
        "predicted": (predicted_ms, predicted_ms * (1 - gain_pct / 100), gain_pct),
        "measured": (verdict.bad_ms, verdict.fixed_ms, verdict.gain_pct),
    }
    for word, (before, after, gain) in rows.items():
        steps = f"{number(before, 2)} ms | {number(after, 2)} ms"
        assert f"| {word} | {steps} | {number(gain, 1)} % |" in worked()[name]
    gains = f"{number(gain_pct, 1)} % | {number(verdict.gain_pct, 1)} % |"
    assert re.search(rf"^\| \[{name}\].*\| {re.escape(gains)}$", worked()[""], flags=re.MULTILINE)
