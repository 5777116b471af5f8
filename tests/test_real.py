"""Advice on programs as people write them, with the loops of their libraries: captures, and times of their fixes."""

from functools import cache
from pathlib import Path

import pytest

from tests.documents import check
from tests.real.blind_cases import ALL
from tests.real.judge import RealVerdict, judged, proofs_table, table

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "data" / "real"
STORED = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.sqlite.xz"))
# in halves B and C, whose captures only count: padding is equal in each step; convergence tests and metrics read on the
# CPU are other host code; host code between the waits gains more than they do. Only ncu sees what `lattice_flow` does
NOT_NAMED = {"bert_padding", "cupy_converges", "jax_metrics", "trainer_norms", "lattice_flow"}
# of halves that are developed on, or whose captures count. A solver with fixed steps still launches. Without masks, or
# without large arrays on the host, other code is faster, too. Neighbors are found on the GPU, not ahead of time
FAR = {"neural_ode", "particles_masks", "dqn_frames", "cupy_seismic", "jax_neighbors"}


@cache
def verdicts() -> dict[str, RealVerdict]:
    return {verdict.case.name: verdict for verdict in judged(FOLDER)}


def test_captures_of_all_halves_and_of_healthy_programs_are_stored() -> None:
    assert {ALL[name].half for name in STORED} == {*"ABCDEFG"}
    assert sum(not ALL[name].rules for name in STORED) >= 2


@pytest.mark.parametrize("name", sorted({*STORED} - NOT_NAMED))
def test_the_first_finding_names_the_cause(name: str) -> None:
    verdict = verdicts()[name]
    assert verdict.is_right, verdict.first and verdict.first.title


@cache
def of_torch() -> list[RealVerdict]:
    return judged(FOLDER, ".torch.json")


def test_captures_of_torch_profiler_show_the_same_causes() -> None:
    assert len(of_torch()) == 5
    assert [verdict.case.name for verdict in of_torch() if not verdict.is_right] == []


def test_the_document_has_what_was_found() -> None:
    check(ROOT / "docs" / "causes.md", table(of_torch()), "tests/data/real, by torch.profiler")
    check(ROOT / "docs" / "causes.md", table([*verdicts().values()]), "tests/data/real, without the profiler")


def test_the_document_has_what_was_proven() -> None:
    for folder in ("real", "planted"):
        proofs = FOLDER.parent / folder / "proofs"
        check(ROOT / "docs" / "causes.md", proofs_table(proofs), f"tests/data/{folder}/proofs")


def test_the_promised_step_is_the_one_that_was_got() -> None:
    # the promises of halves C, E and G are only reported
    counted = {name: verdict for name, verdict in verdicts().items() if ALL[name].half not in "CEG"}
    factors = {name: verdict.factor for name, verdict in counted.items() if verdict.factor}
    far = {name for name, factor in factors.items() if not 1 / 1.5 <= factor <= 1.5}
    assert far <= FAR | NOT_NAMED, factors
