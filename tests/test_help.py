"""--help: commands and options by what they are for, the most used first, and on narrow terminals."""

import re
from typing import Any

import click
import pytest

from nightsight.cli import main
from nightsight.commands.help import COMMANDS, MOST_USED, PROFILE_OPTIONS

PROFILE = main.commands["profile"]


def long_names(text: str) -> list[str]:
    """Return the options that have a row in a help text."""
    rows = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    return [name.split()[0] for row in rows for name in re.findall(r"--[\w-]+", row)[:1]]


def test_each_command_is_in_one_section(run: Any) -> None:
    listed = [name for names in COMMANDS.values() for name in names.split()]
    assert sorted(listed) == sorted(main.commands)
    text = run("--help").stdout
    assert re.findall(r"^  ([a-z][\w-]*)  +[A-Z]", text, re.MULTILINE) == listed
    assert re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE) == [*COMMANDS, "Options"]


def test_each_option_of_profile_is_in_one_section(run: Any) -> None:
    listed = [name for names in PROFILE_OPTIONS.values() for name in names.split()]
    options = [option for option in PROFILE.params if isinstance(option, click.Option)]
    longest = {max(option.opts, key=len) for option in options}
    assert sorted(listed) == sorted(longest - {"--help-all"})
    # none is hidden, and each is described
    assert long_names(run("profile", "--help-all").stdout) == [*listed, "--help-all", "--help"]


def test_the_help_of_profile_has_the_ten_most_used_options_and_says_what_else_there_is(run: Any) -> None:
    text = run("profile", "-h").stdout
    used = PROFILE_OPTIONS[MOST_USED].split()
    assert len(used) == 10
    assert long_names(text) == [*used, "--help-all", "--help"]
    more = sum(len(names.split()) for names in PROFILE_OPTIONS.values()) - 10
    assert f"--help-all has {more} more options: What nsys records, " in text


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("words", [(), ("profile",), ("show",), ("history", "show"), ("completion",)])
def test_help_fits_the_terminal(run: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = run(*words, "--help-all" if words == ("profile",) else "--help").stdout
    assert "\x1b" not in text
    # an example or the values of an option can be pasted: neither is broken
    broad = [line for line in text.splitlines() if len(line) > width and " " in line.strip()]
    assert [line for line in broad if not re.match(r"    .*nightsight |  -\S+(, --\S+)? \S+$", line)] == []


def test_every_mistake_says_what_to_do(run: Any) -> None:
    for words, hint in (
        (("profil", "x"), "Did you mean 'profile'?"),
        (("profile", "--naems", "off", "x.py"), "Did you mean one of: '--names'"),
        (("completion", "ksh"), "'bash', 'zsh', 'fish'"),
    ):
        assert hint in run(*words, expect=2).stderr
