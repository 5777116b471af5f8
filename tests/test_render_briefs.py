"""The briefs of comparisons, proofs and fleets: their size, what they say first, and the commands to go on with."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.model.compare import Comparison, Measures
from nightsight.model.fleet import Failure
from nightsight.model.prove import Agreement, Proof, ProofReport, Todo
from nightsight.model.report import Report
from nightsight.render.compare import comparison_brief, comparison_brief_json
from nightsight.render.compare.brief import brief as brief_of_comparison
from nightsight.render.fit import MOST_BYTES
from nightsight.render.fleet import fleet_brief, fleet_brief_json
from nightsight.render.prove import proof_brief, proof_brief_json
from nightsight.render.show import Choice, shown
from tests.comparisons import CAUSES, changed, compared, hostile_comparison, runs, train_comparison
from tests.fleets import STEP, made_fleet, summary
from tests.recorded import Recorded
from tests.reports import HOSTILE
from tests.test_cli import CaptureFile
from tests.test_render_brief import CONTROLS


@pytest.fixture(scope="module")
def trained(recorded: Recorded) -> Report:
    return recorded.report("train")


def short(text: bytes, document: bytes) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of a brief and its JSON, which are short and printable."""
    assert max(len(text), len(document)) <= MOST_BYTES
    assert not CONTROLS.search(text.decode())
    assert document.count(b"\n") == 1
    read: dict[str, Any] = json.loads(document)
    assert read["format"] == 1
    return text.decode().splitlines(), read


# -- comparisons ------------------------------------------------------------------------------------------------------


def of_comparison(comparison: Comparison) -> tuple[list[str], dict[str, Any]]:
    return short(comparison_brief(comparison), comparison_brief_json(comparison))


def commands(lines: list[str]) -> list[str]:
    return [line.removeprefix("next: ") for line in lines if line.startswith("next: ")]


def test_a_regression_is_told_with_its_belief_its_largest_changes_and_their_places(trained: Report) -> None:
    comparison = train_comparison(trained)
    lines, document = of_comparison(comparison)
    assert lines[0] == "train: 5 + 5 runs, interleaved, NVIDIA H200, commit a1b2c3d → f6e5d4c"
    assert lines[1].startswith("verdict: regressed. A wait for the GPU in every step appeared, in loss.item:")
    assert lines[2].startswith("Believed. Step, profiled: longer in 5 of 5 pairs; 90 % interval ")
    assert (document["verdict"], document["is_believed"]) == ("regressed", True)
    (step, *_) = document["metrics"]
    changes = comparison.changes
    (row,) = changes[(changes["kind"] == "gate") & (changes["name"] == "step_ns")].to_dict("records")
    for name in ("baseline", "candidate", "change_pct", "low_pct", "high_pct"):
        assert step[name] == pytest.approx(row[name], rel=1e-3)
    place = lines.index("   place: iteration # / forward")
    assert lines[place - 1].startswith("4. kernel gemm f32 tn 64x64x8: +211.5 µs, +29.9 % ")
    assert "cause added: sync: The CPU waits for the GPU in every step, in `loss.item`" in lines
    assert "not comparable: driver: 570.86 → 575.10 (inconclusive: “Step, profiled”, kernels)" in lines


def test_a_new_kernel_or_cause_is_shown_next_and_found_in_the_report(trained: Report) -> None:
    comparison = train_comparison(trained)
    show, bisect = commands(of_comparison(comparison)[0])
    assert bisect == "nightsight bisect --good a1b2c3d --bad f6e5d4c PROGRAM"
    name = show.removeprefix("nightsight show CANDIDATE ").strip("'")
    assert next(shown(trained, name, Choice())).startswith("kernel")
    # two causes of one rule: the second one is new
    told = [("sync", "elsewhere", 3.0, "Elsewhere"), ("sync", "loss.item", 6.4, "In `loss.item`")]
    having = [
        replace(run, causes=pd.DataFrame(told, columns=["rule", "name", "gain_pct", "title"]))
        for run in comparison.candidate
    ]
    lines, document = of_comparison(replace(comparison, candidate=tuple(having)))
    assert commands(lines)[0] == "nightsight show CANDIDATE sync-2"
    assert lines[-1] == f"CANDIDATE is the run {document['candidate']}"
    assert document["candidate"] == having[0].source


def test_what_is_not_settled_is_measured_again(trained: Report) -> None:
    sides = partial(runs, trained)
    one = compared(sides("baseline", count=1), sides("candidate", count=1, commit="f6e5d4c"))
    lines, document = of_comparison(one)
    assert "Not believed: fewer than 3 runs a side cannot be distinguished from noise." in lines
    assert not document["is_believed"]
    assert commands(lines)[0] == "nightsight ab --base a1b2c3d --head f6e5d4c --pairs 5 PROGRAM"
    same = compared(sides("baseline", count=1), sides("candidate", count=1))
    assert commands(of_comparison(same)[0])[0] == "nightsight profile --repeat 5 PROGRAM"
    # files differed from the commit, so it is that of the checkout
    edited = compared(sides("baseline", count=1), sides("candidate", count=1, commit="a1b2c3d+"))
    assert commands(of_comparison(edited)[0])[0] == "nightsight ab --base a1b2c3d --head . --pairs 5 PROGRAM"


def test_nothing_changed(trained: Report) -> None:
    lines, document = of_comparison(compared(runs(trained, "baseline"), runs(trained, "candidate")))
    assert lines[1].startswith("verdict: unchanged. ")
    assert (document["changes"], document["causes"]) == ([], [])
    assert commands(lines) == ["nightsight report CANDIDATE --format brief"]


def test_of_longer_ranges_the_innermost_one_with_most_of_the_change_is_told(trained: Report) -> None:
    def slower(run: Measures) -> Measures:
        paths = {"iteration #": 1.2, "iteration # / forward": 2.0}
        return changed(run, {**paths, "step_ns": 1.2})

    comparison = compared(runs(trained, "baseline"), [slower(run) for run in runs(trained, "candidate")])
    ranges = [each["name"] for each in of_comparison(comparison)[1]["changes"] if each["kind"] == "range"]
    assert ranges == ["iteration # / forward"]


def test_hostile_names_of_a_comparison_stay_on_their_lines() -> None:
    for count in (1, 3):
        for place in range(len(HOSTILE)):
            of_comparison(hostile_comparison(HOSTILE[place:], count=count))
    wide = hostile_comparison(["\N{CJK UNIFIED IDEOGRAPH-6F22}" * 4096])
    of_comparison(replace(wide, verdict="inconclusive", sentence=wide.sentence * 9))


def test_a_side_without_runs_or_measures_has_a_brief_too() -> None:
    empty = hostile_comparison([])
    nothing = replace(empty, baseline=(), candidate=(), causes=pd.DataFrame(columns=list(CAUSES)))
    assert brief_of_comparison(nothing).candidate == ""
    of_comparison(nothing)


# -- proofs -----------------------------------------------------------------------------------------------------------

TF32 = Proof(("tf32",), "tensor_cores", "Slow", 40e6, 50e6, 41e6, -0.2, 0.01, 3, Agreement("within noise"), "proven")
BF16 = replace(TF32, switches=("bf16",), promised_ns=None, log_ratio=-0.4, verdict="faster")
PROOFS = ProofReport(
    "train",
    "step (ends with SGD.step)",
    "NVIDIA H200",
    {},
    (TF32, replace(BF16, results=Agreement("different", "since step 1")), replace(TF32, switches=("sdpa",),
     step_ns=None, log_ratio=None, error=None, verdict="no effect")),
    None,
    (Todo("wait", "The CPU waits", "Read it later.", 12.0, "x = y"),) * 5,
)  # fmt: skip


def of_proofs(report: ProofReport) -> tuple[list[str], dict[str, Any]]:
    return short(proof_brief(report), proof_brief_json(report))


def test_each_switch_is_told_as_predicted_and_measured_with_its_results() -> None:
    lines, document = of_proofs(replace(PROOFS, proofs=(replace(TF32, code="torch.x = 1"), *PROOFS.proofs[1:])))
    assert lines[:4] == [
        "train: step (ends with SGD.step), 50.00 ms unchanged, NVIDIA H200",
        "verdict: proven: tf32: −18.1 % ± 0.8, 50.00 ms → 41.00 ms, results within noise",
        "code:",
        "  torch.x = 1",
    ]
    assert "switch tf32: proven, predicted 40.00 ms, measured 41.00 ms, −18.1 % ± 0.8, results within noise" in lines
    assert lines[lines.index("   results different (since step 1)") - 1].startswith("switch bf16: faster, measured ")
    assert "without effect here: sdpa" in lines
    assert "2 more causes need an edit" in lines
    assert lines[-1] == "check after the edit: nightsight ab --base HEAD --head . PROGRAM"
    bf16, tf32 = document["switches"]
    assert (tf32["predicted_ns"], tf32["measured_ns"], tf32["results"]) == (4e7, 4.1e7, "within noise")
    assert bf16["gain_pct"] == pytest.approx(33.0, abs=0.05)
    assert "predicted_ns" not in bf16


def test_a_gain_that_is_not_settled_needs_more_rounds_unless_its_results_differ() -> None:
    report = replace(PROOFS, proofs=(BF16,), todo=())
    assert commands(of_proofs(report)[0]) == ["nightsight prove --switch bf16 --rounds 6 PROGRAM"]
    for results in ("different", "not checked"):
        rejected = replace(report, proofs=(replace(BF16, results=Agreement(results)),))
        assert commands(of_proofs(rejected)[0]) == []
    # of a switch in a file, the path is unknown
    assert commands(of_proofs(replace(report, proofs=(replace(BF16, switches=("my own",)),)))[0]) == []


def test_proofs_of_any_size_are_short() -> None:
    for text in HOSTILE:
        proof = Proof((text,) * 4, text, text, 1.0, 1.0, 1.0, 0.1, 0.1, 3, Agreement(text, text), "faster", text, text)
        of_proofs(
            ProofReport(text, text, text, {}, (proof,) * 30, proof, (Todo(text, text, text, 1.0, text),) * 9, (text,))
        )
        of_proofs(ProofReport(text, text, text, {}, (), replace(proof, verdict="proven"), (), (text,) * 9))


def test_the_command_prints_a_brief_and_its_paths_elsewhere(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nightsight.workflows.prove.prove", lambda *_: PROOFS)
    (tmp_path / "train.py").write_text("")
    done = run("prove", "--switch", "tf32", "--format", "brief", str(tmp_path / "train.py"))
    assert done.stdout == proof_brief(PROOFS).decode()
    assert "proof: reports/train/proof/proof.json" in done.stderr
    done = run("prove", "--switch", "tf32", "--format", "brief.json", str(tmp_path / "train.py"))
    assert done.stdout == proof_brief_json(PROOFS).decode()


# -- fleets -----------------------------------------------------------------------------------------------------------


def test_what_recurs_is_told_with_the_captures_that_it_costs_most_in() -> None:
    causes = [{"wait": 40.0}, {"fusion": 5.0}, {"fusion": 10.0}]
    fleet = made_fleet([summary(name, causes=gains) for name, gains in zip("abc", causes, strict=True)])
    lines, document = short(fleet_brief(fleet), fleet_brief_json(fleet))
    assert lines[0] == "3 captures: NVIDIA H200, mlp, 2026-11-20"
    assert lines[1].startswith("verdict: 3 captures, 3.000 s of GPU time: GPUs 75.0 % busy. The GPU waits")
    assert "1. fusion: 5.0 % of all GPU time, in 2 of 3 captures" in lines
    assert lines[-1] == "next: nightsight report c.sqlite --format brief"
    fusion, wait = document["causes"]
    assert (fusion["captures"], fusion["within"], fusion["most_gain_pct"]) == (2, ["c.sqlite", "b.sqlite"], 10.0)
    assert (wait["captures"], wait["share_pct"]) == (1, pytest.approx(13.33, abs=0.01))


def test_outliers_and_unread_files_are_counted_and_few_are_told() -> None:
    odd = [
        summary(f"odd{number}", step_ns=(2 + number) * STEP, split={"compute": 0.5, "host code": 0.5})
        for number in range(4)
    ]
    fleet = made_fleet([*(summary(f"n{night}") for night in range(20)), *odd])
    fleet = replace(fleet, failures=tuple(Failure(f"f{number}", "no capture") for number in range(9)))
    lines, document = short(fleet_brief(fleet), fleet_brief_json(fleet))
    assert "not read: 9 files: f0: no capture; f1: no capture" in lines
    first = lines.index("unlike the others of their group (24 captures judged):") + 1
    assert lines[first].startswith("odd3.sqlite: step 50.00 ms instead of 10.00 ms, +400.0 %, mostly ")
    assert "1 more on the page" in lines
    assert (len(document["outliers"]), document["more_outliers"], document["unread"]) == (3, 1, 9)


def test_a_fleet_of_any_names_is_short() -> None:
    for text in (*HOSTILE, "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 4096):
        hostile = summary("a", workload=text, gpu=text, causes=dict.fromkeys((text, *"bcdefgh"), 9.0))
        fleet = made_fleet([hostile, summary("b")], file=[text, "b"])
        fleet = replace(fleet, failures=(Failure(text, text),) * 9, notes=(text,) * 9)
        short(fleet_brief(fleet), fleet_brief_json(fleet))


# -- commands ---------------------------------------------------------------------------------------------------------


def test_a_comparison_is_printed_as_a_brief_or_written(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    pair = (capture_file("train"), capture_file("mlp"))
    done = run("compare", *pair, "--format", "brief")
    assert done.stdout.splitlines()[0].startswith("train → mlp: 1 + 1 runs, NVIDIA H200")
    assert done.stdout.splitlines()[1].startswith("verdict: inconclusive. ")
    assert len(done.stdout.encode()) <= MOST_BYTES
    run("compare", *pair, "-o", tmp_path / "c.brief.json")
    assert json.loads((tmp_path / "c.brief.json").read_text())["verdict"] == "inconclusive"


def test_a_fleet_is_printed_as_a_brief_beside_its_page(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    done = run("fleet", capture_file("mlp"), "-o", "fleet.html", "--workers", 1, "--format", "brief")
    assert done.stdout.startswith("1 capture: ")
    assert "report: fleet.html" in done.stderr
    assert (tmp_path / "fleet.html").is_file()
