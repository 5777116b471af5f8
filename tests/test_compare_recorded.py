"""Comparisons of runs that an H200 made in turns (tests/gpu/trials.py): what did not change, and what did."""

import re
import tarfile
from pathlib import Path

import pytest

from nightsight.compare import Settings, compare, measures
from nightsight.comparison import Comparison, Measures
from nightsight.model import Report

ROUNDS = Path(__file__).parent / "data" / "trials" / "rounds.tar.xz"
_NAME = re.compile(r"(.+)-(\d+)\.json")


@pytest.fixture(scope="module")
def rounds() -> dict[str, list[Measures]]:
    """Return the runs of each case: a program, the same again, with a longer kernel, with a wait in each step."""
    runs: dict[str, list[Measures]] = {}
    with tarfile.open(ROUNDS) as archive:
        for member in archive:
            named, content = _NAME.fullmatch(member.name), archive.extractfile(member)
            assert named is not None
            assert content is not None
            report = Report.from_json(content.read())
            run = measures(report, source=member.name, series="rounds", side=named[1], order=int(named[2]))
            runs.setdefault(named[1], []).append(run)
    return runs


def compared(rounds: dict[str, list[Measures]], case: str) -> Comparison:
    found = compare(rounds["mlp"], rounds[case], settings=Settings())
    assert found.is_paired
    assert len(found.baseline) == 3
    return found


def flagged(found: Comparison) -> set[str]:
    sure = found.changes["verdict"].isin(["regressed", "improved", "added", "removed"])
    return set(found.changes.loc[sure, "name"])


def test_the_same_program_again_is_unchanged(rounds: dict[str, list[Measures]]) -> None:
    found = compared(rounds, "mlp_again")
    assert flagged(found) == set()
    assert (found.verdict, found.decision.status) == ("unchanged", 0)


def test_a_kernel_that_takes_a_tenth_longer_is_found_by_its_share(rounds: dict[str, list[Measures]]) -> None:
    found = compared(rounds, "kernel_10_%_longer")
    (kernel,) = found.changes[(found.changes["kind"] == "kernel") & (found.changes["verdict"] == "regressed")].index
    row = found.changes.loc[kernel]
    assert "sin_kernel" in str(row["name"])
    assert row["low_pct"] < 10.2 < row["high_pct"]
    assert " But vectorized_elementwise_kernel (sin) changed: +12." in found.sentence
    # 0.6 % of a step is less than what counts as a change of the step
    assert (found.verdict, found.decision.status) == ("unchanged", 0)


def test_a_wait_in_each_step_is_a_regression_and_named(rounds: dict[str, list[Measures]]) -> None:
    found = compared(rounds, "synchronization")
    assert found.decision.status == 1
    assert found.sentence.startswith("New: The CPU waits for the GPU in `step` (cudaStreamSynchronize)")
    assert "cudaStreamSynchronize" in flagged(found)
