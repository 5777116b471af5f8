"""Chooses the Python that runs workloads and scripts: the user's, which may differ from the one of nightsight."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Interpreter:
    """A Python, and why it was chosen, in words that name no path."""

    path: str
    reason: str

    @property
    def is_own(self) -> bool:
        """Whether it is the Python that runs nightsight.

        Compares the folders too: virtual environments share the program itself.
        """
        try:
            return all(map(os.path.samefile, _places(self.path), _places(sys.executable)))
        except OSError:
            return False


def interpreter(asked: str | None = None) -> Interpreter:
    """Choose a Python: the one asked for, that of the active environment, python3 on PATH, or nightsight's own."""
    if asked:
        found = shutil.which(Path(asked).expanduser())
        return Interpreter(str(Path(found).absolute()) if found else asked, "named with --python")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable)
        found = folder and next(
            filter(None, map(shutil.which, (f"{folder}/bin/python", f"{folder}/bin/python3"))), None
        )
        if found:
            return Interpreter(str(Path(found).absolute()), f"of the active environment, {variable}")
    if found := shutil.which("python3"):
        return Interpreter(str(Path(found).absolute()), "python3 on PATH")
    return Interpreter(sys.executable, "nightsight's own")


def _places(path: str) -> tuple[Path, Path]:
    return Path(path), Path(path).parent
