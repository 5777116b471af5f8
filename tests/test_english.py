"""The check of our English finds habits, also across lines, and leaves the table of words to avoid alone."""

from pathlib import Path

import pytest

from tests.english import BRITISH, DOCUMENTS, HABITS, habits, main

FOUND = (
    "A loop is told launch-bound.",
    "the switches that mend them",
    "what is got of a promised gain",
    "a gain that can be had",
    "weights that are nudged",
    "Loads get rarer.",
    "If it differs, the program runs as it was.",
    "differences that training carries on.",
    "The switches are put together.",
    "with less than three values",
    "a change of yours",
    "64 in place of 8",
    "It is no file.",
    "ranks that are recorded apart",
)
ALLOWED = (
    "The program is told to end.",
    "There is no file, and it is no longer there.",
    "new Promise(resolve => wait())",
    "It takes less than two seconds, or less than five times as long.",
    "two columns that are 20 px apart",
    "recommended and amended",
)


@pytest.mark.parametrize("text", FOUND)
def test_a_habit_is_found_on_one_line_and_on_two(text: str) -> None:
    assert [*habits(text, HABITS)]
    at_each_space = (f"{text[:place]}\n{{}}{text[place + 1 :]}" for place, sign in enumerate(text) if sign == " ")
    broken = [at.format(begin) for at in at_each_space for begin in ("", "    # ", " * ")]
    assert [each for each in broken if not [*habits(each, HABITS)]] == []


@pytest.mark.parametrize("text", ALLOWED)
def test_what_native_speakers_write_is_not_a_habit(text: str) -> None:
    assert [*habits(text, HABITS | BRITISH)] == []


def test_a_remedy_is_a_fix_in_documents_except_as_a_name() -> None:
    assert [words for _, words, _ in habits("a remedy, `remedy`, _remedy_of", DOCUMENTS)] == ["remedy"]


def test_words_to_avoid_are_not_checked_where_they_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "| word | meaning | not |\n|---|---|---|\n| predicted gain | from the simulation | promise |\n"
    (tmp_path / "CONTRIBUTING.md").write_text(f"{rows}\nIt is no promise.\n")
    (tmp_path / "page.md").write_text(rows)
    assert main([str(tmp_path / name) for name in ("CONTRIBUTING.md", "page.md")]) == 1
    assert [line.rsplit(":", 3)[1:3] for line in capsys.readouterr().out.splitlines()] == [
        ["5", " 'is no'"],
        ["5", " 'promise'"],
        ["3", " 'promise'"],
    ]
