"""Chooses the Python that runs workloads and scripts: the user's, which may differ from nightsight's."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nightsight.collect.tools import ask_python
from nightsight.errors import ToolError
from nightsight.system.installing import Place, for_programs

_FIND_MISSING: Final = """
import importlib.util, json
def is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print(json.dumps([name for name in {names!r} if not is_installed(name)]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and why it was chosen, without a path. `is_substitute`: used because the default one lacks a module."""

    path: str
    reason: str
    is_substitute: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is the Python that runs nightsight.

        Compares the folders too: virtual environments share the program itself.
        """
        try:
            return all(map(os.path.samefile, _path_and_parent(self.path), _path_and_parent(sys.executable)))
        except OSError:
            return False

    @property
    def remark(self) -> str:
        """The line that tells users which Python runs their program; "" if it is nightsight's own, as usual."""
        if self.is_own and not self.is_substitute:
            return ""
        whose = "" if self.is_own else ", not nightsight's own"
        return f"Python: {self.path} ({self.reason}){whose}"


def interpreter(requested: str | None = None, needs: Callable[[], Collection[str]] = tuple) -> Interpreter:
    """Choose a Python: the requested one, the active environment's, python3 on PATH, or nightsight's own.

    `needs` returns the modules that the program needs: python3 on PATH is not used if it lacks some of them that
    nightsight's own has.
    """
    if requested:
        path = shutil.which(Path(requested).expanduser())
        return Interpreter(str(Path(path).absolute()) if path else requested, "named with --python")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable)
        path = folder and next(filter(None, map(shutil.which, (f"{folder}/bin/python", f"{folder}/bin/python3"))), None)
        if path:
            return Interpreter(str(Path(path).absolute()), f"of the active environment, {variable}")
    if path := shutil.which("python3"):
        chosen = Interpreter(str(Path(path).absolute()), "python3 on PATH")
        return chosen if chosen.is_own else _unless_own_is_better(chosen, needs())
    return Interpreter(sys.executable, "nightsight's own")


def missing_modules(python: str, modules: Collection[str]) -> set[str]:
    """Return which of these modules a Python cannot import: all of them if it cannot be run."""
    try:
        code = _FIND_MISSING.format(names=sorted(modules))
        missing: list[str] = json.loads(ask_python(python, code)) if modules else []
    except (ToolError, ValueError):
        return set(modules)
    return set(missing)


def install_hint(package: str, place: Place) -> str:
    """Return how to install a package, whose module has the same name, for programs of a Python."""
    if missing_modules(sys.executable, (package,)):
        return for_programs(place, package)
    own = f"nightsight's own Python has it: --python {sys.executable}"
    return f"{own}. Or install it there: {place.command(package)}" if place.is_environment else own


def _unless_own_is_better(chosen: Interpreter, needs: Collection[str]) -> Interpreter:
    missing = missing_modules(chosen.path, needs)
    missing_in_own = missing_modules(sys.executable, needs) if missing else missing
    if not missing_in_own < missing:
        return chosen
    reason = f"nightsight's own: {chosen.reason} lacks {', '.join(sorted(missing - missing_in_own))}"
    return Interpreter(sys.executable, reason, is_substitute=True)


def _path_and_parent(path: str) -> tuple[Path, Path]:
    return Path(path), Path(path).parent
