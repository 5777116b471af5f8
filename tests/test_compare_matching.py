"""Kernels of two sides: the same by name, renamed, fused, split, new or gone; and how their change adds up."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.compare import Settings, compare
from nightsight.compare.matching import matches
from tests.measured import run
from tests.properties import examples

GEMM = "ampere_sgemm_128x64_tn"
OTHER_GEMM = "ampere_sgemm_64x64_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Array<char*, 3>>"
TANH = "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)>"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float*)"
FUSED = "triton_poi_fused_add_tanh_0"


def kernels(*rows: tuple[str, float, float, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["name", "count", "value", "place"])


def found(before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(match.name, match.baseline, match.candidate) for match in matches(before, after).kernels]


def test_another_tile_is_a_new_name_for_the_same_kernel() -> None:
    before, after = kernels((GEMM, 6, 600.0, "step / forward")), kernels((OTHER_GEMM, 6, 500.0, "step / forward"))
    assert found(before, after) == [(OTHER_GEMM, (GEMM,), (OTHER_GEMM,))]
    assert matches(before, after).kernels[0].note == f"renamed from {GEMM}"


def test_the_same_work_at_the_same_place_is_renamed_whatever_it_is_called() -> None:
    before, after = kernels((GEMM, 6, 600.0, "fc")), kernels(("nvjet_tst_128x256_64x4_1x2_h_bz_coopA", 6, 200.0, "fc"))
    assert len(found(before, after)) == 1


@pytest.mark.parametrize(
    "after",
    [
        (OTHER_GEMM, 60, 500.0, "step / forward"),
        (OTHER_GEMM, 6, 50_000.0, "step / forward"),
        (OTHER_GEMM, 6, 500.0, "step / backward"),
        ("flash_fwd_kernel", 6, 500.0, "step / forward"),
    ],
    ids=["other count", "other time", "other place", "other work"],
)
def test_what_is_not_alike_came_and_went(after: tuple[str, float, float, str]) -> None:
    assert found(kernels((GEMM, 6, 600.0, "step / forward")), kernels(after)) == []


def test_each_name_is_used_once() -> None:
    before = kernels((GEMM, 6, 600.0, "a"), ("ampere_sgemm_128x64_nn", 6, 610.0, "a"))
    after = kernels((OTHER_GEMM, 6, 590.0, "a"), ("ampere_sgemm_64x64_nn", 6, 605.0, "a"))
    pairs = {match[1][0]: match[2][0] for match in found(before, after)}
    assert pairs == {GEMM: OTHER_GEMM, "ampere_sgemm_128x64_nn": "ampere_sgemm_64x64_nn"}


@pytest.mark.parametrize("place", ["", "step / loss"])
def test_several_that_go_and_one_that_comes_are_fused(place: str) -> None:
    before, after = kernels((ADD, 2, 200.0, place), (TANH, 1, 100.0, place)), kernels((FUSED, 1, 150.0, place))
    (match,) = matches(before, after).kernels
    assert (match.name, set(match.baseline), match.candidate) == (FUSED, {ADD, TANH}, (FUSED,))
    assert match.note.startswith("fused from ")


def test_a_lost_fusion_is_the_reverse() -> None:
    (match,) = matches(kernels((FUSED, 1, 150.0, "")), kernels((ADD, 2, 200.0, ""), (TANH, 1, 100.0, ""))).kernels
    assert (match.name, match.baseline, set(match.candidate)) == (FUSED, (FUSED,), {ADD, TANH})
    assert match.note.startswith("split into ")


def test_what_takes_longer_than_its_parts_is_no_fusion() -> None:
    assert found(kernels((ADD, 2, 200.0, ""), (TANH, 1, 100.0, "")), kernels((FUSED, 1, 900.0, ""))) == []


@pytest.mark.parametrize(
    "whole",
    [
        ("flash_fwd_kernel<Traits>", 6, 900.0, "attention"),
        ("void fmha_cutlassF_bf16_aligned_64x64_rf_sm80(Params)", 6, 900.0, "attention"),
    ],
)
def test_attention_is_what_its_parts_were(whole: tuple[str, float, float, str]) -> None:
    parts = kernels((GEMM, 12, 600.0, "attention"), (SOFTMAX, 6, 500.0, "attention"))
    assert found(parts, kernels(whole)) == [(whole[0], (GEMM, SOFTMAX), (whole[0],))]


def test_a_kernel_that_says_it_is_fused_takes_the_place_of_what_was_there() -> None:
    before, after = kernels(("a", 2, 200.0, "loss"), ("b", 1, 100.0, "loss")), kernels(("fusion_12", 1, 250.0, "loss"))
    assert found(before, after) == [("fusion_12", ("a", "b"), ("fusion_12",))]
    assert found(before, after.assign(place="")) == []


@pytest.mark.parametrize(
    "new",
    [
        ("checksum_kernel", 1, 250.0, "step"),
        ("triton_poi_fused_cos_0", 1, 250.0, "elsewhere"),
        ("fusion_12", 1, 3.0, "step"),
        ("fusion_12", 5, 250.0, "step"),
        ("gelu_kernel", 1, 250.0, "other step"),
    ],
    ids=["says nothing", "says something else", "far too short", "runs more often", "another place"],
)
def test_new_work_does_not_hide_behind_what_went(new: tuple[str, float, float, str]) -> None:
    before = kernels((ADD, 2, 200.0, "step"), (TANH, 1, 100.0, "step"))
    assert found(before, kernels(new)) == []
    # nor does what went hide what was split
    assert found(kernels(new), before) == []


def test_another_operation_is_no_new_name() -> None:
    assert found(kernels((ADD, 2, 200.0, "step")), kernels((TANH, 2, 200.0, "step"))) == []
    unrolled = ADD.replace("vectorized_elementwise_kernel<4", "unrolled_elementwise_kernel<2")
    assert len(found(kernels((ADD, 2, 200.0, "step")), kernels((unrolled, 2, 200.0, "step")))) == 1


def test_of_very_many_new_names_those_that_do_the_same_are_found() -> None:
    before, after = (
        kernels(*((name.format(chr(97 + n % 26) * (1 + n // 26)), 1.0, 1000.0 + n * way, "") for n in range(300)))
        for name, way in (("void mine::work_{}<float>(float*)", 1), ("void mine::work_{}<half>(float*)", -1))
    )
    matched = matches(before, after)
    assert {(one.baseline, one.candidate) for one in matched.kernels} == {
        ((name,), (name.replace("float>", "half>"),)) for name in before["name"]
    }
    assert matched.note == ""


def test_that_not_all_names_were_looked_at_is_reported() -> None:
    sides = [[run({"step_ns": 1e6}, {f"{name}{n}": (1, 1000.0 + n) for n in range(40)})] for name in ("old", "other")]
    (note,) = compare(*sides, settings=Settings()).notes
    assert note.startswith("40 kernels disappeared and 40 appeared: only those with the nearest times were checked")


def test_a_renamed_kernel_is_compared_as_one() -> None:
    before = [run({"step_ns": 1e6}, {GEMM: (6, 6e5 + place)}, places={GEMM: "fc"}) for place in range(3)]
    after = [run({"step_ns": 1e6}, {OTHER_GEMM: (6, 5e5 + place)}, places={OTHER_GEMM: "fc"}) for place in range(3)]
    changes = compare(before, after, settings=Settings()).changes
    (row,) = changes[changes["kind"] == "kernel"].to_dict("records")
    assert (row["name"], row["verdict"], row["note"]) == (OTHER_GEMM, "improved", f"renamed from {GEMM}")


def test_a_kernel_of_one_side_is_added_or_removed() -> None:
    before = [run({"step_ns": 1e6}, {"a": (1, 5e5), "b": (2, 3e5)}) for _ in range(3)]
    after = [run({"step_ns": 1e6}, {"a": (1, 5e5), "c": (7, 1e4)}) for _ in range(3)]
    changes = compare(before, after, settings=Settings()).changes.set_index("name")
    assert changes.loc[["a", "b", "c"], "verdict"].tolist() == ["unchanged", "removed", "added"]
    assert list(changes.loc["b", ["count_part", "time_part"]]) == [-3e5, 0]
    assert list(changes.loc["c", ["count_part", "time_part"]]) == [1e4, 0]


def test_a_kernel_of_some_runs_only_is_neither() -> None:
    before = [run({"step_ns": 1e6}, {"a": (1, 5e5)}) for _ in range(3)]
    after = [*before[:2], run({"step_ns": 1e6}, {"a": (1, 5e5), "c": (1, 1e5)})]
    row: Any = compare(before, after, settings=Settings()).changes.set_index("name").loc["c"]
    assert (row["verdict"], row["note"]) == ("inconclusive", "in 0 of 3 and 1 of 3 runs")


AMOUNT = st.tuples(st.integers(1, 1000), st.floats(1.0, 1e9))


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), AMOUNT), max_size=6),
    st.lists(st.tuples(st.sampled_from("abcdef"), AMOUNT), max_size=6),
)
@examples(50)
def test_the_parts_of_a_change_add_up(before: list[Any], after: list[Any]) -> None:
    sides = [[run({"step_ns": 1e6}, dict(rows))] for rows in (before, after)]
    changes = compare(*sides, settings=Settings()).changes
    groups = changes[changes["kind"] == "kernel"]
    delta = groups["candidate"].fillna(0) - groups["baseline"].fillna(0)
    assert (groups["count_part"] + groups["time_part"]).to_numpy() == pytest.approx(
        delta.to_numpy(), rel=1e-9, abs=1e-3
    )
    both = groups.dropna(subset=["baseline", "candidate"])
    each = both["candidate"] / both["candidate_count"] - both["baseline"] / both["baseline_count"]
    expected = both["candidate_count"] * each
    assert both["time_part"].to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(
    ("share", "total", "verdict", "note"),
    [
        (0.0004, 1e6, "unchanged", "less than 0.05 % of a step: not tested"),
        (0.002, 20.0, "inconclusive", "less than 50 µs in a run: too short to test"),
    ],
)
def test_what_is_too_small_is_not_tested(share: float, total: float, verdict: str, note: str) -> None:
    repetitions = max(int(total / (share * 1e6)), 1) if verdict == "inconclusive" else 100_000
    runs = [
        [run({"step_ns": 1e6}, {"small": (1, share * 1e6 * factor)}, repetitions=repetitions) for _ in range(3)]
        for factor in (1.0, 1.2)
    ]
    row = compare(*runs, settings=Settings()).changes.set_index("name").loc["small"]
    assert (row["verdict"], row["note"]) == (verdict, note)
