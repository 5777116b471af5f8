"""Comparisons of runs that GPUs made in turns (tests/gpu/trials.py): what did not change, and what did."""

from pathlib import Path

import pytest

from nightsight.compare import Settings, compare
from nightsight.model.compare import Comparison
from tests.gpu.trials import CASES, Case, Runs, drawn, flagged, gated, kept, named_by

DATA = Path(__file__).parent / "data" / "trials"
CHANGED = {case.name: case for case in CASES if case.kinds and case.program == "mlp"}
PROGRAMS = ("mlp", "attention", "copying")


@pytest.fixture(scope="module")
def rounds() -> Runs:
    """Return the runs of each case by round: three programs, the same again, and one of them changed in six ways."""
    return kept(DATA / "rounds.jsonl.xz")


@pytest.fixture(scope="module")
def elsewhere() -> Runs:
    """Return runs of an H100 whose host was busier than the first: the three programs, and the same again."""
    return kept(DATA / "rounds-h100.jsonl.xz")


@pytest.fixture(scope="module")
def busy() -> Runs:
    """Return runs of an H100 whose host was as busy as hosts get: a step of 2 ms took up to 40 % longer in some."""
    return kept(DATA / "rounds-busy-host.jsonl.xz")


def compared(rounds: Runs, program: str, case: str) -> Comparison:
    numbers = sorted(rounds[case])
    before, after = ([rounds[name][number] for number in numbers] for name in (program, case))
    comparison = compare(before, after, settings=Settings())
    assert comparison.is_paired
    return comparison


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("machine", ["rounds", "elsewhere"])
def test_what_did_not_change_is_not_flagged(machine: str, program: str, request: pytest.FixtureRequest) -> None:
    comparison = compared(request.getfixturevalue(machine), program, f"{program} again")
    assert flagged(comparison) == []
    # host code of `attention` is nearly as long as its kernels: three of its twenty runs took up to 24 % longer
    assert (comparison.verdict, comparison.decision.status) == ("unchanged", 0)
    assert "no regression above 5 %: counts equal" in comparison.decision.line


@pytest.mark.nightly
@pytest.mark.parametrize("machine", ["rounds", "elsewhere"])
def test_unchanged_runs_are_flagged_as_rarely_as_in_made_up_noise(machine: str, request: pytest.FixtureRequest) -> None:
    """Of a gate, 9 of 10 comparisons of five runs a side are green, whether they were made in turns or not."""
    runs = request.getfixturevalue(machine)
    pairs = {count: [each for name in PROGRAMS for each in drawn(runs, name, count, 8)] for count in (3, 5, 10)}
    every = [each for of_count in pairs.values() for each in of_count]
    assert len(every) == 56
    assert sum(bool(flagged(each)) for each in every) <= 0.03 * len(every)
    five = pairs[5] + [each for name in PROGRAMS for each in drawn(runs, name, 5, 8, in_turns=False)]
    gate = gated(five)
    assert gate["green"] >= 0.9 * len(five)
    assert gate["red"] + gate["better"] == 0
    assert gated(every)["red"] == 0


def test_on_a_busy_host_counts_and_kernels_decide_and_the_step_is_not_believed(busy: Runs) -> None:
    for case, status in (("kernel 51 % longer", 1), ("copy to the host", 1), ("host busy for 200 µs", 4)):
        decided = gated(drawn(busy, "hosted", 3, 6, case=case, in_turns=False))
        assert decided == {"red" if status == 1 else "open": 6, "better": 0}, case
    unchanged = gated(drawn(busy, "hosted", 3, 6, in_turns=False) + drawn(busy, "waiting", 3, 6, in_turns=False))
    assert unchanged["red"] + unchanged["better"] == 0


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_each_change_is_found_by_three_pairs_and_named(rounds: Runs, case: Case) -> None:
    comparison = compared(rounds, case.program, case.name)
    assert len(comparison.baseline) == 3
    assert any(named_by(case, kind, name) for kind, name in flagged(comparison))
    # a kernel that is 6 % of a step changes the step by more than counts if it takes half as long again
    is_small = case.name in {f"kernel {share} % longer" for share in (3, 5, 10)}
    assert (comparison.verdict, comparison.decision.status) == (("unchanged", 0) if is_small else ("regressed", 1))
    assert comparison.decision.status in case.gate


@pytest.mark.nightly
@pytest.mark.parametrize("share", [3, 5, 10, 50])
def test_a_longer_kernel_is_found_by_its_share(rounds: Runs, share: int) -> None:
    comparison = compared(rounds, "mlp", f"kernel {share} % longer")
    is_kernel = (comparison.changes["kind"] == "kernel") & (comparison.changes["verdict"] == "regressed")
    (row,) = comparison.changes[is_kernel].to_dict("records")
    assert "sin_kernel" in row["name"]
    assert row["low_pct"] < share + 0.5
    assert row["high_pct"] > share - 0.5
    assert row["high_pct"] - row["low_pct"] < 1
    assert "vectorized_elementwise_kernel (sin)" in comparison.sentence


def test_what_each_change_is_called(rounds: Runs) -> None:
    sentences = {name: compared(rounds, "mlp", name).sentence for name in ("synchronization", "lost fusion")}
    assert sentences["synchronization"].startswith("New: The CPU waits for the GPU in `step` (cudaStreamSynchronize)")
    assert "The largest part: vectorized_elementwise_kernel (mul), +178.5 µs per step" in sentences["lost fusion"]
