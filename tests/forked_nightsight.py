"""nightsight as a program that starts at once (tests/forked.py).

If the variable RECORDED names a folder, `profile` and `ab` only check their words and leave what that folder has: runs
in `reports`, a comparison in `out`, whose status is 4. What they were asked is appended to `asked` in it.
"""

import json
import os
import shutil
from pathlib import Path

import click

# commands import these when they are called, which takes longer than most of the calls
from nightsight.cli import main
from nightsight.workflows import compare, history, profile, report, stats, trials  # noqa: F401
from tests.forked import serve


def run(words: list[str]) -> int | None:
    """Run a command, or leave what it left before."""
    recorded = os.environ.get("RECORDED", "")
    if recorded and words[1] in ("profile", "ab"):
        return _replay(Path(recorded), words[1:])
    main(words[1:], prog_name="nightsight")
    return None


def _replay(recorded: Path, words: list[str]) -> int:
    command = main.get_command(click.Context(main), words[0])
    assert command
    asked = command.make_context(words[0], words[1:]).params
    with (recorded / "asked").open("a") as file:
        file.write(f"{json.dumps(words)}\n")
    if words[0] == "ab":
        shutil.copytree(recorded / "out", asked["output"], dirs_exist_ok=True)
        return 4
    shutil.copytree(recorded / "reports", asked["reports"], symlinks=True, dirs_exist_ok=True)
    return 0


if __name__ == "__main__":
    serve(run)
