"""Profiles a program in several forms on a GPU host, and judges each report."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nightsight.model.report import Report

ROOT: Final = Path(__file__).parents[2]


def judge_forms(description: str | None, forms: Iterable[str], is_right: Callable[[str, Path], bool]) -> int:
    """Judge all forms, or those on the command line, with a folder for captures; return how many are wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("forms", nargs="*", metavar="FORM", help=f"only these: {', '.join(forms)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return sum(not is_right(form, folder) for form in options.forms or forms)


def profiled(
    program: str,
    form: str,
    folder: Path,
    options: Sequence[str],
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Report | None:
    """Run a form of a program under `nightsight profile`; None if that failed, and then say why."""
    script = folder / f"{form}.py"
    script.write_text(program)
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "--python", sys.executable, "--no-ncu"]
    command += ["--no-time-steps", *options, "--reports", str(folder), str(script), "--", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    path = folder / form / "latest" / "report.json"
    if done.returncode or not path.is_file():
        print(f"{form}: status {done.returncode}: {done.stderr[-1500:]}", flush=True)
        return None
    return Report.from_json(path.read_bytes())
