"""Names source files in printed texts by their path on this machine, for `--local-paths`.

Reports have the names of files without folders, so that they can be attached. The folders are looked up here and now,
in the folder of the reader, and never come from a capture or go into a file.
"""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from nightsight.texts import printable

_ENDINGS: Final = (".py", ".pyx", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".jl", ".rs")
# `load` in train.py:12, load (train.py:12), train.py:12; names with a folder are left alone
_PLACE: Final = re.compile(
    r"(?:`(?P<quoted>\w+)` in |(?P<before>\w+) \()?"
    r"(?<![\w./\\~-])(?P<name>[^\s()\[\]{}`'\"/\\:,;]+(?:"
    + "|".join(map(re.escape, _ENDINGS))
    + r")):(?P<line>\d{1,7})\b"
)
_LIBRARIES: Final = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})
# a home folder can have millions
_MOST_FILES: Final = 100_000
_MOST_BYTES: Final = 5_000_000


class LocalFiles:
    """The source files of the folder in which a command runs, or of the repository around it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._by_name: dict[str, list[Path]] | None = None
        self._functions = cache(_functions)

    def named(self, text: str) -> str:
        """Return a text with `src/train.py:12` instead of `train.py:12`, where only one file can be meant."""
        return _PLACE.sub(self._with_folder, text)

    def _with_folder(self, place: re.Match[str]) -> str:
        path = self._path(place["name"], int(place["line"]), place["quoted"] or place["before"] or "")
        if path is None:
            return place[0]
        start = place.start("name") - place.start()
        return f"{place[0][:start]}{printable(os.path.relpath(path, self._folder))}:{place['line']}"

    def _path(self, name: str, line: int, function: str) -> Path | None:
        """Return the only file of that name which can have the line; None if there are several, or none.

        Of several, the one in which the function has the line.
        """
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for path in _source_files(_root(self._folder)):
                self._by_name[path.name].append(path)
        paths = self._by_name.get(name, [])
        if len(paths) > 1:
            paths = [path for path in paths if function in self._functions(path, line)]
        return paths[0] if len(paths) == 1 else None


def _root(folder: Path) -> Path:
    """Return the repository around a folder, or the folder."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)


def _source_files(root: Path) -> Iterator[Path]:
    """Yield the source files below a folder, without those of libraries, hidden folders and links."""
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _LIBRARIES and not name.startswith(".") and not Path(folder, name, "pyvenv.cfg").exists()
        )
        for name in files:
            count += 1
            if count > _MOST_FILES:
                return
            if name.endswith(_ENDINGS):
                yield Path(folder, name)


def _functions(path: Path, line: int) -> frozenset[str]:
    """Return the names of the Python functions that have a line; none for what is not Python."""
    try:
        if path.suffix != ".py" or path.stat().st_size > _MOST_BYTES:
            return frozenset()
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return frozenset()
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(each.name for each in functions if each.lineno <= line <= (each.end_lineno or each.lineno))
