"""SKILL.md: all of its commands work, and whoever knows only these finds the cause and the code of planted programs."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from nightsight.agents import __file__ as agents
from nightsight.cli import main
from tests.planted.cases import CASES, OTHERS, PEOPLE, Case
from tests.recorded import DATA, unpacked
from tests.test_cli import FakeNsys

SKILL = Path(agents).with_name("SKILL.md").read_text("utf-8")
COMMANDS = [line for block in re.findall(r"^```\n(.*?)^```$", SKILL, re.M | re.S) for line in block.splitlines()]
RUN = ("doctor", "profile", "report", "show", "compare")
PLANTED = {
    **{
        name: (DATA / "planted", CASES[name])
        for name in ("small_grid", "wait_mask", "decode", "empty_cache", "loading")
    },
    **{name: (DATA / "planted/others", OTHERS[name]) for name in ("pageable", "launch", "unfused", "molecule_md")},
    **{name: (DATA / "planted/people", PEOPLE[name]) for name in ("attention", "slow_items", "hf_trainer")},
}


def command(words: str, **placeholders: str) -> list[str]:
    """Return the command of SKILL.md that begins with some words, with values for its placeholders."""
    line = next(line for line in COMMANDS if line.startswith(f"nightsight {words}"))
    for name, value in placeholders.items():
        line = line.replace(name, value)
    assert not re.search(r"\b[A-Z]{4,}\b", line.replace("HEAD", "")), line
    return shlex.split(line)[1:]


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options of a command that is not run."""
    outer = click.Context(main, info_name="nightsight", **main.context_settings)
    known = main.get_command(outer, words[0])
    assert known
    return known.make_context(words[0], words[1:], parent=outer).params


def test_the_file_has_what_agents_look_for() -> None:
    header = re.match(r"---\nname: nightsight\ndescription: (.+)\n---\n", SKILL)
    assert header
    assert len(header[1]) < 1_024
    assert len(SKILL.encode()) < 5_000


def test_its_path_and_its_text_can_be_printed(run: Callable[..., Result]) -> None:
    assert Path(run("skill").stdout.strip()).read_text("utf-8") == SKILL
    assert run("skill", "--print").stdout == SKILL


def test_each_command_works(
    run: Callable[..., Result], script: Callable[..., Path], fake_nsys: FakeNsys, without_pages: None
) -> None:
    fake_nsys(export="train/train.sqlite.xz")
    script()
    values = {"REPORT": "reports/train/latest", "CAUSE": "tensor_cores", "PROGRAM": "--collector nsys train.py"}
    values |= {"BEFORE...": values["REPORT"], "AFTER...": values["REPORT"]}
    assert {line.split()[1] for line in COMMANDS} == {*RUN, "prove", "ab"}
    # those that read come last, as they need a run
    for line in sorted(COMMANDS, key=lambda line: " profile " not in line):
        words = command(line.removeprefix("nightsight "), **values)
        if words[0] not in RUN:
            parsed([word for word in words if word not in ("--collector", "nsys")])
            continue
        done = run(*words)
        assert len(done.stdout.encode()) <= (4_500 if words[0] in ("doctor", "show") else 3_000)
        assert done.stdout


@pytest.mark.parametrize("name", PLANTED)
def test_who_knows_only_these_commands_finds_the_cause_and_what_to_change(
    run: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    folder, case = PLANTED[name]
    capture = unpacked(folder / f"{case.file}.sqlite.xz", tmp_path)
    # the brief is read as a person reads it, and only as far as SKILL.md describes it
    brief = run(*command("report REPORT", REPORT=str(capture))).stdout
    first = re.search(r"^1\. ([\w-]+)", brief, re.M)
    assert first, brief
    cause = run(*command("show REPORT CAUSE", REPORT=str(capture), CAUSE=first[1])).stdout
    assert_found(case, first[1], cause)
    check = re.search(r"^ *check(?: after the edit)?: nightsight (\w+) .*PROGRAM$", cause, re.M)
    assert check
    asked = parsed(command(check[1], PROGRAM="train.py", CAUSE=first[1]))
    assert (asked["style"], asked["target"]) == ("brief", "train.py")


def assert_found(case: Case, cause: str, text: str) -> None:
    """Check that an answer has the planted cause, its place, and what to change."""
    assert cause.partition("-")[0] in case.rules
    assert not case.place or any(place in text for place in case.place)
    fix = re.search(r"^ *fix: (.+)$", text, re.M)
    assert fix
    assert re.search(r"^ *code:\n +\S", text, re.M) or len(fix[1]) > 20
