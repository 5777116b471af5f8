"""Run a program with switches and without a profiler: step times, results, and the changes that switches made.

A hook in the program applies and records them (workloads/timed/sitecustomize.py); each process writes a file.
"""

import ast
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.collect.process import Child, run_logged
from nightsight.collect.timing import LOOPS, RunLimit, summarize_ranges
from nightsight.collect.tools import writable_folder
from nightsight.collect.workloads import PACKAGE, Program, Request, child_environment
from nightsight.errors import ToolError, UsageError
from nightsight.model.prove import Place
from nightsight.results.switches import NONE, NUMERICS, Switch

_SWITCHES: Final = "NIGHTSIGHT_SWITCHES"
# variables that hold several options, and the separator of the options
_LISTS: Final = {"PYTORCH_CUDA_ALLOC_CONF": ",", "XLA_FLAGS": " "}
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Attempt:
    """A run of a program. times: the table `timed_ranges`. values: series of losses, norms, or outputs, by process.

    By name of the switch: effects is its number of changes, why the reason if it could not change anything, places the
    lines of the program that it changed. failure: how the run failed, "" if it did not. checked: whether the user's
    check accepted the results, None without one; check_s: its duration. torch: the version of PyTorch. is_cut: the run
    ended at its limit.
    """

    times: pd.DataFrame
    seconds: float
    values: tuple[tuple[float, ...], ...] = ()
    effects: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    failure: str = ""
    interrupted: bool = False
    timed_out: bool = False
    checked: bool | None = None
    check_s: float = 0.0
    torch: str = ""
    is_cut: bool = False


def attempt(  # noqa: PLR0913 (options by name)
    program: Program,
    request: Request,
    switches: Sequence[Switch],
    folder: Path,
    *,
    limit: RunLimit | None = None,
    check: str = "",
    functions: Sequence[str] = (),
    is_search: bool = False,
    are_loops_timed: bool = False,
) -> Attempt:
    """Run a program once with these switches; `folder` then holds only its logs. ToolError if it cannot be started.

    functions: `MODULE.NAME` of functions of a JAX program, whose calls are timed and whose results are recorded.
    is_search: the program runs unchanged, and `effects` counts what the switches would change; the user's own switches
    cannot be searched. are_loops_timed: iterations of the program's loops count as possible steps.
    """
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
        _SWITCHES: "\n".join(
            switch.key for switch in switches if not (switch.environment or (is_search and switch.file))
        ),
        "NIGHTSIGHT_SEARCH": "1" if is_search else "",
        "NIGHTSIGHT_FUNCTIONS": "\n".join(functions),
    }
    environment |= limit.environment if limit else {}
    environment |= LOOPS if are_loops_timed else {}
    wanted = {
        name: _joined(name, plain.get(name, ""), value)
        for switch in switches
        for name, value in switch.environment.items()
    }
    environment |= {} if is_search else wanted
    outcome = run_logged(
        Child(program.command, environment),
        log=folder / "run.log",
        timeout_s=request.timeout_s,
        verbose=request.verbose,
    )
    recorded = _recorded(folder, {switch.key: switch.name for switch in switches})
    effects, why = dict(recorded.effects), dict(recorded.why)
    for switch in switches:
        if switch.environment:
            is_set = all(plain.get(name) == wanted[name] for name in switch.environment)
            effects[switch.name] = int(not is_set)
            why |= {} if effects[switch.name] else {switch.name: "is set already"}
    failure = "" if outcome.ok else outcome.ending
    run = replace(
        recorded,
        seconds=outcome.seconds,
        effects=effects,
        why=why,
        failure=failure,
        interrupted=outcome.interrupted,
        timed_out=outcome.timed_out,
    )
    if not check or failure:
        return run
    started = time.monotonic()
    checked = _check(check, {**plain, _SWITCHES: environment[_SWITCHES]}, folder, request)
    return replace(run, checked=checked, check_s=time.monotonic() - started)


def _joined(name: str, given: str, value: str) -> str:
    """Return the value of a variable with that of a switch; a variable for several options keeps the given ones."""
    between = _LISTS.get(name)
    if not (between and given):
        return value
    return given if value in given.split(between) else f"{given}{between}{value}"


def _recorded(folder: Path, names: Mapping[str, str]) -> Attempt:
    """Return what the processes of a run wrote into a folder. names: the switches, by their keys in the program."""
    values: list[tuple[float, ...]] = []
    effects: dict[str, int] = {}
    why: dict[str, str] = {}
    places: dict[str, tuple[Place, ...]] = {}
    torch = ""
    for file in sorted(folder.glob("*.outcome"), key=lambda path: [int(part) for part in path.stem.split(".")]):
        try:
            document: dict[str, Any] = json.loads(file.read_bytes())
            series = [document["losses"], document["norms"]] if document["losses"] else [document["outputs"]]
            recorded = [tuple(float(value) for value in each) for each in series if each]
            for key, name in names.items():
                if count := int(document["effects"].get(key, 0)):
                    effects[name] = effects.get(name, 0) + count
                if reason := str(document["why"].get(key, "")):
                    why[name] = reason
                lines = [(str(path), int(line)) for path, line in document["places"].get(key, ())]
                places[name] = tuple(dict.fromkeys((*places.get(name, ()), *lines)))
            torch = str(document["torch"]) or torch
        except _DAMAGED:
            continue
        values += recorded
    is_cut = (folder / "cut").exists()
    return Attempt(summarize_ranges(folder), 0.0, tuple(values), effects, why, places, torch=torch, is_cut=is_cut)


def _check(check: str, environment: dict[str, str], folder: Path, request: Request) -> bool:
    """Whether the user's check exits with status 0. It runs unchanged: without switches and without a limit."""
    try:
        child = Child(("sh", "-c", check), environment)
        return run_logged(child, log=folder / "check.log", timeout_s=request.timeout_s).ok
    except ToolError:
        return False


def switch_of_file(path: Path) -> Switch:
    """Return the switch that a user's file defines (docs/prove.md), without running it; UsageError if it has none."""
    try:
        module = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"cannot read the switch {path}: {error}") from error
    constants = {
        target.id: ast.literal_eval(statement.value)
        for statement in module.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    functions = {statement.name for statement in module.body if isinstance(statement, ast.FunctionDef)}
    if missing := {"change", "holds"} - functions or {"MODULE"} - constants.keys():
        raise UsageError(
            f"the switch {path} has no {min(missing)}",
            "It needs a constant MODULE and the functions change(module) and holds(): see docs/prove.md.",
        )
    numerics = constants.get("NUMERICS", NONE)
    if numerics not in NUMERICS:
        raise UsageError(f"NUMERICS of the switch {path} is not one of: {', '.join(NUMERICS)}")
    done = (ast.get_docstring(module) or "the user's change").split("\n")[0].rstrip(".")
    return Switch(
        name=path.stem, done=done, rules=(), numerics=numerics, code=f"# as in {path.name}", file=str(path.absolute())
    )
