"""What a gate decides: limits, accepted changes, what could not be measured; and the settings that say so."""

from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import pytest

from nightsight.compare import Limit, Settings, compare, settings_of
from nightsight.errors import UsageError
from nightsight.model.compare import AcceptedChange, Decision, Measures
from nightsight.model.report import Environment
from tests.measured import hot, run, side

SAME = (1.0e6, 1.001e6, 0.999e6)
SLOWER = (1.05e6, 1.051e6, 1.049e6)
NOISY = (1.0e6, 1.1e6, 0.9e6)
FASTER = (0.9e6, 0.901e6, 0.899e6)


def decision(before: tuple[float, ...], after: tuple[float, ...], rules: Settings | None = None) -> Decision:
    return compare(side(before), side(after), settings=rules or Settings()).decision


@pytest.mark.parametrize(
    ("after", "status", "begins"),
    [
        (SAME, 0, "passed: no regression above 5 %: step time within ±0.2 %, on 3 + 3 runs"),
        (FASTER, 0, "passed: step time \N{MINUS SIGN}10"),
        (SLOWER, 1, "regression: step time +5.0 % (+4."),
        (NOISY, 4, "inconclusive: step time"),
        (SLOWER[:1], 4, "inconclusive: step time +5.0 %, fewer than 3 runs a side, on 3 + 1 runs"),
    ],
)
def test_the_status_and_its_line(after: tuple[float, ...], status: int, begins: str) -> None:
    outcome = decision(SAME, after)
    assert outcome.status == status
    assert outcome.line.startswith(begins)
    assert "\n" not in outcome.line


def test_a_larger_change_may_be_allowed() -> None:
    assert decision(SAME, SLOWER, Settings(limits={"step_ns": Limit(most_pct=8)})).status == 0
    outcome = decision(SAME, SLOWER, Settings(limits={"step_ns": Limit(most_pct=4)}))
    assert outcome.status == 1
    assert outcome.line.endswith("at most +4 % allowed, on 3 + 3 runs")


def test_a_limit_below_what_tests_look_for_is_reported() -> None:
    tight = Settings(limits={"step_ns": Limit(most_pct=0.5), "launches": Limit(most=40), "copy_ns": Limit(most_pct=1)})
    runs = [run({"step_ns": time, "launches": 40.0, "copy_ns": 0.0}) for time in SAME]
    (note,) = compare(runs, runs, settings=tight).notes
    assert note.startswith("step_ns may change by 0.5 %, but tests ignore changes below 1 %")
    assert compare(runs, runs, settings=replace(tight, least_pct=0.5)).notes == ()


def test_a_wide_interval_that_stays_below_the_limit_is_no_doubt() -> None:
    before, after = (1.0e6, 1.03e6, 0.97e6), (1.01e6, 1.04e6, 0.98e6)
    assert decision(before, after).status == 4
    assert decision(before, after, Settings(limits={"step_ns": Limit(most_pct=20)})).status == 0


def test_a_limit_does_not_settle_what_cannot_be_compared() -> None:
    other = side(SAME, environment=Environment(collector="nsys", gpu="B200"))
    rules = Settings(limits={"step_ns": Limit(most_pct=20)})
    decision = compare(side(SAME), other, settings=rules).decision
    assert (decision.status, "not comparable (GPU)" in decision.line) == (4, True)


def test_an_amount_is_a_limit_whatever_it_was_before() -> None:
    runs = [run({"step_ns": time, "launches": 41.0}) for time in SAME]
    rules = Settings(limits={"launches": Limit(most=40)})
    decision = compare(runs, runs, settings=rules).decision
    assert (decision.status, decision.broken) == (1, ("launches per step 41, at most 40 allowed",))
    assert compare(runs, runs, settings=Settings(limits={"launches": Limit(most=41)})).decision.status == 0
    # with one run, too: nothing has to be compared
    assert compare(runs[:1], runs[:1], settings=rules).decision.status == 1


def test_an_amount_limits_the_median_of_all_runs_of_the_candidate() -> None:
    rules = Settings(limits={"step_ns": Limit(most=1.02e6)})
    slow_once, slow_mostly = (1.0e6, 1.01e6, 1.3e6), (0.6e6, 1.03e6, 1.04e6)
    # the means are on the other side of the limit
    assert geometric_mean(slow_mostly) < 1.02e6 < geometric_mean(slow_once)
    assert decision(SAME, slow_once, rules).broken == ()
    broken = decision(SAME, slow_mostly, rules).broken
    assert broken == ("step time 1.030 ms in the median run, at most 1.020 ms allowed",)


def test_categories_decide_only_with_a_limit() -> None:
    before, after = ([run({"step_ns": time, "host code": host}) for time in SAME] for host in (1e5, 2e5))
    comparison = compare(before, after, settings=Settings())
    assert comparison.changes.set_index("name").loc["host code", "verdict"] == "regressed"
    assert comparison.decision.status == 0
    assert compare(before, after, settings=Settings(limits={"host code": Limit(most_pct=5)})).decision.status == 1


def test_an_accepted_change_passes_and_is_reported() -> None:
    accepted = AcceptedChange("step_ns", "checks its input", "2026-11-20", workload="mlp")
    outcome = decision(SAME, SLOWER, Settings(accepted=(accepted,)))
    assert outcome.status == 0
    assert "1 accepted" in outcome.line
    assert outcome.accepted[0].endswith("checks its input (2026-11-20)")
    assert decision(SAME, SLOWER, Settings(accepted=(replace(accepted, up_to_pct=4.0),))).status == 1
    assert decision(SAME, SLOWER, Settings(accepted=(replace(accepted, workload="other"),))).status == 1


def test_what_was_not_measured_is_neither_passed_nor_regressed() -> None:
    empty = [run() for _ in range(3)]
    assert compare(empty, empty, settings=Settings()).decision.status == 3
    rules = Settings(limits={"host code": Limit(most_pct=5)})
    decision = compare(side(SAME), side(SAME), settings=rules).decision
    assert (decision.status, "host code" in decision.line) == (3, True)


def test_runs_in_which_nothing_happened_are_not_green() -> None:
    runs = [run({"step_ns": 0.0, "kernel_ns": 0.0, "exposed_communication_ns": 0.0}) for _ in SAME]
    decision = compare(runs, runs, settings=Settings()).decision
    assert decision.status == 3
    assert decision.line.startswith("could not measure")


def test_what_came_from_nothing_is_a_regression() -> None:
    before = [run({"step_ns": time, "kernel_ns": 1e6, "exposed_communication_ns": 0.0, "copies": 0.0}) for time in SAME]
    after = [run({"step_ns": time, "kernel_ns": 1e6, "exposed_communication_ns": 2e5, "copies": 3.0}) for time in SAME]
    comparison = compare(before, after, settings=Settings())
    assert (comparison.verdict, comparison.decision.status) == ("regressed", 1)
    assert comparison.decision.broken == (
        "exposed communication: 200.0 µs, none before",
        "copies per step: 3, none before",
    )
    only_times = Settings(deciding=("step_ns",), limits={"copies": Limit(most_pct=5)})
    assert compare(before, after, settings=only_times).decision.regressed == ("copies",)


@pytest.mark.parametrize("lost", ["step_ns", "kernel_ns"])
def test_what_the_candidate_lost_is_not_green(lost: str) -> None:
    known = {"unprofiled_step_ns": 1e6, "step_ns": 1e6, "kernel_ns": 1e6}
    before = [run(known) for _ in SAME]
    after = [run({name: value for name, value in known.items() if name != lost}) for _ in SAME]
    decision = compare(before, after, settings=Settings()).decision
    assert decision.status == 3
    assert "the candidate has no" in decision.line


def test_an_accepted_change_excuses_no_budget() -> None:
    runs = [run({"step_ns": time, "launches": 60.0}) for time in SAME]
    accepted = AcceptedChange("launches", "a larger model", "2026-11-20")
    rules = Settings(limits={"launches": Limit(most=40)}, accepted=(accepted,))
    assert compare(runs, runs, settings=rules).decision.status == 1


def test_a_sure_change_of_no_weight_is_unchanged() -> None:
    rules = Settings(least_ns=1e6)
    assert decision(SAME, SLOWER, rules).status == 0


def test_what_is_new_and_too_small_to_be_tested_is_unchanged() -> None:
    old, new = {"old": (1.0, 90_000.0)}, {"large": (1.0, 90_000.0), "small": (1.0, 400.0)}
    sides = [[run({"step_ns": time}, kernels) for time in SAME] for kernels in (old, old | new)]
    changes = compare(*sides, settings=Settings()).changes.set_index("name")
    assert changes["verdict"][["old", "large", "small"]].tolist() == ["unchanged", "added", "unchanged"]
    assert changes["note"]["small"] == "less than 0.05 % of a step: not tested"


def test_sides_without_runs_and_other_workloads_are_refused() -> None:
    with pytest.raises(UsageError, match="the candidate has no runs"):
        compare(side(SAME), [], settings=Settings())
    with pytest.raises(UsageError, match="different workloads: gemm, mlp"):
        compare(side(SAME), side(SAME, workload="gemm"), settings=Settings())


def test_runs_made_in_turns_are_pairs_and_drift_does_not_matter() -> None:
    order = {"baseline": (0, 3, 4, 7), "candidate": (1, 2, 5, 6)}
    # 2 % slower with each run
    sides = [
        [run({"step_ns": 1e6 * 1.02**place}, series="s", side=name, order=place) for place in places]
        for name, places in order.items()
    ]
    paired = compare(sides[0][::-1], sides[1], settings=Settings())
    assert (paired.is_paired, [run.order for run in paired.baseline]) == (True, [0, 3, 4, 7])
    assert paired.changes["change_pct"].iloc[0] == pytest.approx(0, abs=1e-9)
    unpaired = [[replace(each, order=each.order + 8 * number) for each in runs] for number, runs in enumerate(sides)]
    assert not compare(*unpaired, settings=Settings()).is_paired


def test_starts_tell_that_runs_were_made_in_turns() -> None:
    sides = [
        [run({"step_ns": 1e6 + minute}, started=f"2026-11-22 10:{minute:02}:00") for minute in minutes]
        for minutes in ((0, 3, 4), (1, 2, 5))
    ]
    assert compare(*sides, settings=Settings()).is_paired
    assert not compare(sides[0], [replace(run, started="") for run in sides[1]], settings=Settings()).is_paired


def test_throttled_runs_are_left_out_with_their_pair() -> None:
    sides = [
        [run({"step_ns": 1e6 + 100 * place}, series="s", side=name, order=2 * place + number) for place in range(5)]
        for number, name in enumerate(("baseline", "candidate"))
    ]
    sides[1][2] = replace(sides[1][2], conditions=hot())
    comparison = compare(*sides, settings=Settings())
    assert (len(comparison.baseline), len(comparison.candidate)) == (4, 4)
    assert comparison.notes == ("1 pair of runs was left out: a GPU was throttled.",)
    assert compare(side(SAME, conditions=hot()), side(SAME), settings=Settings()).decision.status == 4


TOML = """
[gate]
least_pct = 2
[gate.limits]
step_ns = { most_pct = 5 }
[gate.workloads.mlp.limits]
launches = { most = 40 }
[[accepted]]
name = "kernel_ns"
workload = "mlp"
reason = "a larger model"
date = 2026-11-20
up_to_pct = 6
"""


@pytest.mark.parametrize("name", ["nightsight.toml", "pyproject.toml"])
def test_settings_of_the_nearest_file(tmp_path: Path, name: str) -> None:
    inside = TOML.replace("[gate", "[tool.nightsight.gate").replace("[[", "[[tool.nightsight.")
    text = TOML if name == "nightsight.toml" else inside
    (tmp_path / name).write_text(text, encoding="utf-8")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    # one that says nothing of gates does not hide it
    (below / "pyproject.toml").write_text('[tool.nightsight]\nworkloads = "bench"', encoding="utf-8")
    nearest = settings_of(below)("mlp")
    assert nearest.limits == {"step_ns": Limit(most_pct=5), "launches": Limit(most=40)}
    assert (nearest.least_pct, nearest.judged) == (2, Settings().deciding)
    assert nearest.accepted == (
        AcceptedChange("kernel_ns", "a larger model", "2026-11-20", workload="mlp", up_to_pct=6),
    )
    assert settings_of(below)("gemm").limits == {"step_ns": Limit(most_pct=5)}


def test_without_a_file_there_are_usual_settings(tmp_path: Path) -> None:
    assert settings_of(tmp_path)("mlp") == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gate = 5", "gate is not a table"),
        ("[gates]", "unknown key 'gates'"),
        ("[gate]\nleast = 1", "unknown key 'gate.least'"),
        ("[gate]\nleast_pct = -1", "gate.least_pct is not a number of at least 0"),
        ("[gate]\nleast_pct = true", "gate.least_pct is not a number"),
        ("[gate]\nsame_pct = nan", "gate.same_pct is not a number"),
        ("[gate]\nalpha = 1", "gate.alpha is not between 0 and 1"),
        ('[gate]\ndeciding = "step_ns"', "gate.deciding is not a list"),
        ('[gate]\ndeciding = ["steps"]', "unknown key 'gate.deciding: steps'"),
        ("[gate.limits]\nsteps = { most = 1 }", "unknown key 'gate.limits.steps'"),
        ("[gate.limits]\nstep_ns = 5", "gate.limits.step_ns is not a table"),
        ("[gate.limits]\nstep_ns = {}", "gate.limits.step_ns says nothing"),
        ("[gate.limits]\nstep_ns = { least = 1 }", "unknown key 'gate.limits.step_ns.least'"),
        ("[gate.workloads.mlp]\nlimit = 1", "unknown key 'gate.workloads.mlp.limit'"),
        ("accepted = 1", "accepted is not a list"),
        ("[[accepted]]\nname = 'step_ns'", "accepted change 1 has no reason"),
        ("[[accepted]]\nname = 'step_ns'\nreason = 'x'\ndate = 'soon'", "the date of accepted change 1 is not a date"),
        ("[[accepted]]\nname = 'a'\nreason = 'x'\ndate = 2026-11-20\nkind = 'b'", "kind of accepted change 1: b"),
        ("[gate", "is not valid TOML"),
    ],
)
def test_bad_settings_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "nightsight.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        settings_of(tmp_path)("mlp")
    assert message in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0.0, 0.0, "Step time 0 on both sides"),
        (0.0, 1e6, "Step time only on one side"),
        (1e6, 1.5e6, "Step time +50.0 %, on one run a side: too few runs to distinguish a change from noise."),
    ],
)
def test_the_sentence_says_which_side_has_what(before: float, after: float, expected: str) -> None:
    assert compare(side([before]), side([after]), settings=Settings()).sentence.startswith(expected)


KERNELS = {"gemm": (4.0, 5e5), "sin": (1.0, 1e5)}


def of_kernels(factor: float, **gate: float) -> list[Measures]:
    kernels = {**KERNELS, "sin": (1.0, 1e5 * factor)}
    return [run({"step_ns": 1e6 * noise, **gate}, kernels) for noise in (1.0, 1.0002, 0.9998)]


@pytest.mark.parametrize(
    ("before", "after", "ending"),
    [
        # the step is as long as before
        (of_kernels(1.0), of_kernels(1.1), " But sin changed: +10.00 µs per step (+10.0 %)."),
        (of_kernels(1.0), of_kernels(1.0), "on 3 + 3 runs."),
        (of_kernels(1.0), of_kernels(5.0, step_ns=1.4e6), " Most of it: sin, +400.0 µs per step."),
        (of_kernels(1.0), of_kernels(5.0, step_ns=2.4e6), " The largest part: sin, +400.0 µs per step."),
        (
            of_kernels(1.0, **{"host code": 1e5}),
            of_kernels(1.0, step_ns=1.3e6, **{"host code": 4e5}),
            " Most of it: host code, +300.0 µs per step.",
        ),
    ],
)
def test_without_a_cause_the_sentence_names_what_changed_most(
    before: list[Measures], after: list[Measures], ending: str
) -> None:
    assert compare(before, after, settings=Settings()).sentence.endswith(ending)


def test_metrics_that_are_open_for_one_reason_share_it() -> None:
    before, after = (run({"step_ns": 1e6 * factor, "kernel_ns": 5e5 * factor}) for factor in (1.0, 1.1))
    line = compare([before], [after], settings=Settings()).decision.line
    assert line.startswith("inconclusive: step time +10.0 %, GPU kernel time +10.0 %, fewer than 3 runs a side, on")
    other = replace(after, environment=replace(after.environment, gpu="A100"))
    comparison = compare([before], [other], settings=Settings())
    assert ("step time +10.0 %, GPU kernel time +10.0 %, not comparable (GPU), on one run") in comparison.decision.line
    assert comparison.sentence == "Step time +10.0 %, on one run a side: not comparable (GPU)."
