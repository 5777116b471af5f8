"""Advice on programs with a planted cause: captures and step times of a GPU host are in tests/data/planted."""

import pytest

from tests.planted.__main__ import DATA
from tests.planted.cases import CASES
from tests.planted.judge import Verdict, judged, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    found = [verdict for verdict in judged(list(CASES.values()), DATA) if verdict.advice is not None]
    if not found:
        pytest.skip("nothing is captured yet: make planted, on a GPU host")
    return found


def planted(verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if not verdict.case.is_healthy]


def test_every_fix_gains_enough_to_be_worth_advice(verdicts: list[Verdict]) -> None:
    small = [verdict.case.name for verdict in planted(verdicts) if (verdict.gain_pct or 0) < 10]
    assert small == []


def test_the_first_advice_names_the_planted_cause(verdicts: list[Verdict]) -> None:
    named = [verdict for verdict in planted(verdicts) if verdict.is_named]
    assert len(named) >= 0.85 * len(planted(verdicts)), table(verdicts)


def test_the_gain_is_near_the_measured_one(verdicts: list[Verdict]) -> None:
    near = {most: sum(verdict.is_near(most) for verdict in planted(verdicts)) for most in (1.5, 2.0)}
    count = len(planted(verdicts))
    assert near[1.5] >= 0.7 * count, table(verdicts)
    assert near[2.0] >= 0.85 * count, table(verdicts)


def test_healthy_programs_are_promised_nothing(verdicts: list[Verdict]) -> None:
    assert [(verdict.case.name, verdict.false) for verdict in verdicts if verdict.false] == []
