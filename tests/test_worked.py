"""The worked cases of real programs quote their reports, their times and their proofs."""

from pathlib import Path

import pytest

from tests.documents import check
from tests.worked import WORKED, Worked, said

CASES = Path(__file__).parents[1] / "docs" / "cases.md"


@pytest.mark.parametrize("worked", WORKED, ids=lambda worked: worked.name)
def test_a_case_of_a_real_program_is_current(worked: Worked) -> None:
    check(CASES, "\n".join(said(worked)), f"tests/worked.py: {worked.name}")


@pytest.mark.parametrize("worked", WORKED, ids=lambda worked: worked.name)
def test_a_case_of_a_real_program_shows_its_picture(worked: Worked) -> None:
    picture = f"img/case-{worked.name}.svg"
    assert f"]({picture})" in CASES.read_text(encoding="utf-8")
    assert (CASES.parent / picture).is_file()
