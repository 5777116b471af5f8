"""Instructions for installing missing packages: the Python to install into, and the command.

nightsight is not on a package index, so the instructions name the packages of an extra one by one. The system's Python
belongs to its package manager, so they never install anything there.
"""

import importlib.metadata
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXTRAS: Final = {
    "fleet": ("dask", "distributed"),
    "mcp": ("mcp",),
    "ncu": ("ncu-report",),
}
"""The packages of the extras that add features to nightsight, as in pyproject.toml."""


@dataclass(frozen=True)
class Place:
    """A Python that packages can be installed for: its `sys.prefix` and `sys.base_prefix`, and whether it has pip."""

    python: str
    prefix: str
    base_prefix: str
    has_pip: bool

    @property
    def is_environment(self) -> bool:
        """Whether it is in a virtual or conda environment, not the system's."""
        return self.prefix != self.base_prefix or Path(self.prefix, "conda-meta").is_dir()

    def command(self, *packages: str) -> str:
        """Return the command that installs packages for this Python."""
        pip = (self.python, "-m", "pip", "install") if self.has_pip else ("uv", "pip", "install", "-p", self.python)
        return shlex.join((*pip, *packages))


def for_nightsight(*packages: str) -> str:
    """Return how to install packages that nightsight itself lacks."""
    # checks the metadata: looking for the module would make setuptools undo its changes to distutils
    has_pip = any(importlib.metadata.distributions(name="pip"))
    own = Place(sys.executable, sys.prefix, sys.base_prefix, has_pip)
    if own.is_environment:
        return f"Install them for nightsight: {own.command(*packages)}"
    return (
        "nightsight runs with the system's Python, where nothing should be installed. Create an environment "
        f"(python3 -m venv ENV), and install nightsight and these packages there: {' '.join(packages)}"
    )


def for_programs(place: Place, *packages: str) -> str:
    """Return how to install packages for programs that a Python runs."""
    if place.is_environment:
        return f"Install it: {place.command(*packages)}. Or choose a Python that has it: --python PATH"
    return (
        "Activate an environment that has it, or name its Python: --python PATH. To create one: python3 -m venv ENV, "
        f"then ENV/bin/python -m pip install {' '.join(packages)}"
    )
