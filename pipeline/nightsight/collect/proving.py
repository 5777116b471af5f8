"""Runs a program without a profiler and with switches: how long its steps take, what it computes, what was changed.

A hook in the program does both (workloads/timed/sitecustomize.py); each process leaves its values in a file.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.collect.process import Child, run_logged
from nightsight.collect.timing import summarize_ranges
from nightsight.collect.tools import writable_folder
from nightsight.collect.workloads import PACKAGE, Program, Request, child_environment
from nightsight.errors import ToolError
from nightsight.results.switches import SWITCH

_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Attempt:
    """A run of a program. times: the table `timed_ranges`. values: losses, or outputs of models, of each process.

    effects: how often each switch changed something, by name; why: the reason if it could not. failure: how the run
    failed, "" if it did not. checked: whether the user's check accepted the results, None without one.
    """

    times: pd.DataFrame
    seconds: float
    values: tuple[tuple[float, ...], ...] = ()
    effects: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    interrupted: bool = False
    checked: bool | None = None


def attempt(program: Program, request: Request, switches: tuple[str, ...], folder: Path, *, check: str = "") -> Attempt:
    """Run a program once with these switches; `folder` gets its logs only. ToolError if it cannot be started."""
    folder = writable_folder(folder).absolute()
    for old in folder.iterdir():
        old.unlink()
    plain = child_environment(request)
    environment = dict(plain)
    path = [str(PACKAGE / "timed"), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment |= {
        "PYTHONPATH": os.pathsep.join(path),
        "NIGHTSIGHT_TIMES": str(folder),
        "NIGHTSIGHT_PROOF": str(folder),
        "NIGHTSIGHT_SWITCHES": " ".join(name for name in switches if not SWITCH[name].environment),
    }
    for name in switches:
        environment |= SWITCH[name].environment
    outcome = run_logged(
        Child(program.command, environment),
        log=folder / "run.log",
        timeout_s=request.timeout_s,
        verbose=request.verbose,
    )
    values, effects, why = _outcomes(folder)
    for name in switches:
        if variables := SWITCH[name].environment:
            effects[name] = int(not variables.items() <= plain.items())
            why |= {} if effects[name] else {name: "is set already"}
    failure = "" if outcome.ok else outcome.ending
    checked = _check(check, environment, folder, request) if check and not failure else None
    return Attempt(
        summarize_ranges(folder), outcome.seconds, values, effects, why, failure, outcome.interrupted, checked
    )


def _outcomes(folder: Path) -> tuple[tuple[tuple[float, ...], ...], dict[str, int], dict[str, str]]:
    """Return the values of each process, and the effects of switches in any of them."""
    values: list[tuple[float, ...]] = []
    effects: dict[str, int] = {}
    why: dict[str, str] = {}
    for file in sorted(folder.glob("*.outcome"), key=lambda path: [int(part) for part in path.stem.split(".")]):
        try:
            document: dict[str, Any] = json.loads(file.read_bytes())
            found = tuple(float(value) for value in document["losses"] or document["outputs"])
            for name, count in document["effects"].items():
                effects[str(name)] = effects.get(str(name), 0) + int(count)
            why |= {str(name): str(text) for name, text in document["why"].items()}
        except _DAMAGED:
            continue
        values += [found] if found else []
    return tuple(values), effects, why


def _check(check: str, environment: dict[str, str], folder: Path, request: Request) -> bool:
    """Run the user's check; it accepts the results with status 0."""
    try:
        child = Child(("sh", "-c", check), environment)
        return run_logged(child, log=folder / "check.log", timeout_s=request.timeout_s).ok
    except ToolError:
        return False
