"""What many captures say together: computed by hand, and properties that hold for any of them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.fleet.overall import workloads_of
from nightsight.model.fleet import Summary
from tests.fleets import STEP, made_fleet, summary
from tests.properties import examples

RULES = st.dictionaries(st.sampled_from(["wait", "host_code", "fusion"]), st.floats(0, 100), max_size=3)
KERNELS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(1, 10**6), st.integers(0, 10**12)), max_size=3
)
FLEETS = st.lists(st.tuples(st.floats(1e3, 1e9), st.integers(1, 8), RULES, KERNELS), min_size=1, max_size=6)


def made(fleet: list[tuple[float, int, dict[str, float], dict[str, tuple[int, int]]]]) -> list[Summary]:
    return [
        summary(f"c{number}", step_ns=step, gpus=gpus, causes=causes, kernels=kernels)
        for number, (step, gpus, causes, kernels) in enumerate(fleet)
    ]


@examples(40)
@given(FLEETS)
def test_sums_over_captures_are_the_totals(
    fleet: list[tuple[float, int, dict[str, float], dict[str, tuple[int, int]]]],
) -> None:
    summaries = made(fleet)
    summed = made_fleet(summaries)
    gpu_ns = sum(each["captures"]["gpu_ns"].sum() for each in summaries)
    assert summed.captures["gpu_ns"].sum() == gpu_ns
    assert summed.split["time_ns"].sum() == sum(each["split"]["time_ns"].sum() for each in summaries)
    assert summed.kernels["total_ns"].sum() == sum(each["kernels"]["total_ns"].sum() for each in summaries)
    assert summed.kernels["instances"].sum() == sum(each["kernels"]["instances"].sum() for each in summaries)
    lost = sum(each["causes"]["lost_ns"].sum() for each in summaries)
    assert summed.causes["lost_ns"].sum() == pytest.approx(lost)
    assert (summed.causes["share_pct"] <= 100 + 1e-6).all()
    if summed.kernels["total_ns"].sum():
        assert summed.kernels["time_pct"].sum() == pytest.approx(100)
    assert (summed.kernels["low_ns"] <= summed.kernels["med_ns"]).all()
    assert (summed.kernels["med_ns"] <= summed.kernels["high_ns"]).all()


@examples(20)
@given(FLEETS, st.randoms(use_true_random=False))
def test_the_order_of_captures_changes_nothing(
    fleet: list[tuple[float, int, dict[str, float], dict[str, tuple[int, int]]]], random: np.random.Generator
) -> None:
    summaries = made(fleet)
    shuffled = list(summaries)
    random.shuffle(shuffled)
    one, other = made_fleet(summaries), made_fleet(shuffled)
    assert one.common == other.common
    for name in ("captures", "differing", "split", "causes", "kernels", "outliers"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), rtol=1e-9)


def test_a_cause_counts_with_the_gpu_time_of_its_captures() -> None:
    fleet = made_fleet(
        [
            summary("a", causes={"wait": 50.0, "fusion": 10.0}),
            summary("b", gpus=3, causes={"fusion": 20.0}),
        ]
    )
    # of 4 parts of GPU time, fusion loses 0.1 + 0.6, and wait 0.5
    assert fleet.causes[["rule", "captures"]].to_numpy().tolist() == [["fusion", 2], ["wait", 1]]
    assert fleet.causes["share_pct"].tolist() == pytest.approx([17.5, 12.5])
    assert fleet.causes["gain_med_pct"].tolist() == pytest.approx([15.0, 50.0])
    assert fleet.captures["gain_pct"].tolist() == pytest.approx([50.0, 20.0])


def test_several_causes_of_one_rule_in_a_capture_count_as_the_largest() -> None:
    one = summary("a", causes={"wait": 30.0})
    twice = pd.concat([one["causes"], one["causes"].assign(cause="elsewhere", gain_pct=10.0, lost_ns=1e8)])
    fleet = made_fleet([Summary({**one.tables, "causes": twice})])
    assert fleet.causes["share_pct"].tolist() == pytest.approx([30.0])
    assert fleet.causes["others"].tolist() == [0]


def test_captures_that_wait_for_ranks_elsewhere_are_counted() -> None:
    few = [summary(capture, lone=lone) for capture, lone in (("a", 1), ("b", 0), ("c", 1))]
    (note,) = made_fleet(few).notes
    assert note.startswith("2 captures wait for ranks outside of it: nightsight report rank* makes one")
    assert made_fleet(few[1:2]).notes == ()


def test_facts_are_common_or_differ() -> None:
    fleet = made_fleet([summary("a"), summary("b"), summary("c", driver="590.10", torch="2.13")])
    assert ("GPU", "NVIDIA H200") in fleet.common
    assert {title for title, _ in fleet.common}.isdisjoint({"Driver", "PyTorch", "CUDA"})
    differing = fleet.differing[["fact", "value", "captures"]].to_numpy().tolist()
    assert differing == [["Driver", "580.95", 2], ["Driver", "590.10", 1], ["PyTorch", "", 2], ["PyTorch", "2.13", 1]]


def test_a_capture_unlike_its_group_is_found_with_the_part_that_differs() -> None:
    usual = [summary(f"n{night}", step_ns=STEP * (1 + 0.002 * (night % 3))) for night in range(9)]
    odd = summary("odd", step_ns=1.5 * STEP, split={"compute": 0.5, "host code": 0.5}, disturbed="shared")
    (row,) = made_fleet([*usual, odd]).outliers.to_dict("records")
    assert (row["file"], row["of"], row["disturbed"]) == ("odd.sqlite", 10, "shared")
    assert row["change_pct"] == pytest.approx(50, abs=1)
    # half of 15 ms instead of a quarter of 10
    assert row["category"] == "host code"
    assert row["category_ns"] == pytest.approx(5e6, rel=0.01)
    assert made_fleet(usual).outliers.empty


def test_a_small_group_is_not_judged_and_neither_is_another_machine() -> None:
    few = [summary(f"n{night}") for night in range(3)]
    slow = summary("slow", step_ns=3 * STEP)
    fleet = made_fleet([*few, slow])
    assert (fleet.judged, len(fleet.outliers)) == (0, 0)
    others = [summary(f"m{night}", gpu="NVIDIA A10", step_ns=3 * STEP) for night in range(9)]
    assert made_fleet([*few, *others]).outliers.empty
    # patches of a driver do not change speed
    assert made_fleet([*few, *(summary(f"p{n}", driver="580.10") for n in range(2))]).judged == 5


def test_a_deviation_of_less_than_a_few_percent_is_none_however_steady_the_others_are() -> None:
    assert made_fleet(
        [*(summary(f"n{night}") for night in range(20)), summary("x", step_ns=1.03 * STEP)]
    ).outliers.empty
    assert (
        len(made_fleet([*(summary(f"n{night}") for night in range(20)), summary("x", step_ns=1.05 * STEP)]).outliers)
        == 1
    )


def test_captures_without_gpu_and_without_steps_are_no_problem() -> None:
    nothing = summary("a", step_ns=0.0, gpu_ns=0, gpus=0, busy_ns=0, causes={})
    fleet = made_fleet([Summary({**nothing.tables, "split": nothing["split"].head(0)})])
    assert fleet.kernels.empty
    assert fleet.causes.empty
    assert fleet.outliers.empty
    assert fleet.judged == 0


@pytest.mark.parametrize(
    ("files", "workloads"),
    [
        (["nights/2026-11-20/train.sqlite"], ["train"]),
        (["rank0.sqlite", "rank12.sqlite"], ["rank#"] * 2),
        (["d2h-bad.sqlite", "d2h-good.sqlite"], ["d2h-bad", "d2h-good"]),
        (["d2h_1.sqlite", "d2h_2.sqlite"], ["d2h_#"] * 2),
        (["mlp_dim512.pt.trace.json.gz"], ["mlp_dim512"]),
        (["mlp/20261120-111931", "mlp/20261121-111931"], ["#-111931"] * 2),
    ],
)
def test_a_capture_that_does_not_say_is_of_what_its_name_says(files: list[str], workloads: list[str]) -> None:
    assert workloads_of(pd.Series(files)).tolist() == workloads


def test_a_name_given_for_captures_holds_for_those_that_do_not_say() -> None:
    fleet = made_fleet([summary("a", workload=""), summary("b")], workload=["ours", "ours"])
    assert fleet.captures["workload"].tolist() == ["ours", "mlp"]
