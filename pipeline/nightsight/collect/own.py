"""The user's own workloads: scripts named in a folder or a pyproject.toml, and the template for new ones.

A user's script takes precedence over a built-in workload of the same name. Otherwise, new built-in workloads could take
a name that a nightly job uses.
"""

import ast
import os
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nightsight.errors import UsageError
from nightsight.system.settings_file import PYPROJECT, document_of, refuse_unknown
from nightsight.system.shipped import shipped

_TABLE: Final = "tool.nightsight"
_KEYS: Final = ("workloads", "gate", "accepted")  # the last two: nightsight.compare.settings
_KEYS_OF_SCRIPT: Final = ("script", "arguments")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,47}")
_TEMPLATE_NAME: Final = "my_workload"
_IMPORTED: Final = frozenset({"torch", "nvtx", "numpy", "triton", "nightsight"})
"""Modules that a script of this name would hide from its imports, like those of Python."""


@dataclass(frozen=True)
class OwnWorkload:
    """A script that `profile NAME` runs, with arguments that come before those of the command line."""

    name: str
    script: Path
    arguments: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the script's docstring; "" if it has none or cannot be read."""
        try:
            docstring = ast.get_docstring(ast.parse(self.script.read_bytes()))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
        return (docstring or "").partition("\n")[0].strip()


@dataclass(frozen=True)
class _ProjectSettings:
    """The value of `workloads` in the [tool.nightsight] of a pyproject.toml, and its folder."""

    folder: Path
    workloads: Any

    def refusal(self, reason: str, hint: str = "") -> UsageError:
        return UsageError(f"[{_TABLE}] in {self.folder / PYPROJECT}: {reason}", hint or "See docs/workloads.md.")


def own_workloads(folder: Path | None = None) -> tuple[OwnWorkload, ...]:
    """Return the workloads of a folder, by default those of the nearest pyproject.toml with a [tool.nightsight].

    Raise UsageError if they are invalid.
    """
    if folder is not None:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", "Check the path of --workloads.")
        return tuple(_of_folder(folder))
    settings = _settings()
    if settings is None:
        return ()
    try:
        if isinstance(settings.workloads, str):
            there = _inside(settings, settings.workloads, "workloads")
            if not there.is_dir():
                hint = "Create it, or correct the path."
                raise settings.refusal(f"workloads = {settings.workloads!r} is not a folder", hint)
            return tuple(_of_folder(there))
        if isinstance(settings.workloads, dict):
            return tuple(_of_table(settings, name, value) for name, value in settings.workloads.items())
    except OSError as error:
        raise settings.refusal(f"cannot access a path in it: {error.strerror}") from error
    raise settings.refusal("workloads is neither a folder nor a table")


def write_workload(name: str, folder: Path | None, taken: Collection[str]) -> Path:
    """Write a new script and return its path: in `folder`, that of pyproject.toml, or the current one.

    Raise UsageError if it exists, or if the name is invalid or in `taken`, the names of built-in workloads.
    """
    _refuse_name(name, taken)
    settings = _settings() if folder is None else None
    if settings and isinstance(settings.workloads, str):
        folder = _inside(settings, settings.workloads, "workloads")
    path = (folder or Path()) / f"{name}.py"
    text = (shipped("workloads") / "template.py").read_text(encoding="utf-8").replace(_TEMPLATE_NAME, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if path.exists():
            raise UsageError(f"{path} exists", "Choose another name, or remove it.") from error
        raise UsageError(f"cannot write {path}: {error.strerror or error}", "Name another folder.") from error
    return path


def _refuse_name(name: str, taken: Collection[str]) -> None:
    if not _NAME.fullmatch(name):
        hint = "Use up to 48 letters, digits, _ and -, without a - at the start: train, train-small."
        raise UsageError(f"{name!r} is not a valid workload name", hint)
    if name in taken:
        raise UsageError(f"a workload {name!r} already exists", "Choose another name.")
    if name in sys.stdlib_module_names or name in _IMPORTED:
        raise UsageError(
            f"a script {name}.py would hide the Python module {name} from its imports", "Choose another name."
        )


def _settings() -> _ProjectSettings | None:
    """Return the settings of the nearest pyproject.toml, from the current folder upwards, with a [tool.nightsight]."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (document := document_of(folder / PYPROJECT)) is None:
            continue
        tools = document.get("tool")
        if not isinstance(tools, dict) or "nightsight" not in tools:
            continue
        table = tools["nightsight"]
        if not isinstance(table, dict):
            raise _ProjectSettings(folder, None).refusal("it is not a table")
        settings = _ProjectSettings(folder, table.get("workloads", {}))
        refuse_unknown(table, _KEYS, "", settings.refusal)
        return settings
    return None


def _of_folder(folder: Path) -> Iterator[OwnWorkload]:
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_") and path.is_file():
            yield OwnWorkload(path.stem, path.absolute())


def _of_table(settings: _ProjectSettings, name: str, value: object) -> OwnWorkload:
    if not _NAME.fullmatch(name):
        raise settings.refusal(f"{name!r} is not a valid workload name", "Use letters, digits, _ and -.")
    table = {"script": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise settings.refusal(f"workloads.{name} is neither a script nor a table")
    refuse_unknown(table, _KEYS_OF_SCRIPT, f"workloads.{name}.", settings.refusal)
    script, arguments = table.get("script"), table.get("arguments", [])
    if not isinstance(script, str):
        raise settings.refusal(f"workloads.{name} has no script", f'Name it: {name} = "{name}.py"')
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        raise settings.refusal(f"workloads.{name}.arguments is not a list of strings", 'Write ["--epochs", "1"].')
    path = _inside(settings, script, f"workloads.{name}")
    if path.suffix != ".py" or not path.is_file():
        reason = "is not a Python script" if path.is_file() else "does not exist"
        raise settings.refusal(f"the script {script!r} of workloads.{name} {reason}", "Check the path and its .py.")
    return OwnWorkload(name, path, tuple(arguments))


def _inside(settings: _ProjectSettings, path: str, key: str) -> Path:
    """Return the absolute path; raise UsageError if it is not inside the folder of pyproject.toml."""
    resolved = Path(os.path.normpath(settings.folder / path))
    if not resolved.is_relative_to(settings.folder):
        raise settings.refusal(
            f"{key} = {path!r} is outside the folder of pyproject.toml", "For other folders: --workloads DIR."
        )
    return resolved
