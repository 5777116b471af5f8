"""A small bundler: turns the page's JavaScript modules into one script, each module a function with its own scope.

The sources are standard modules, so Node, type checkers and linters read them unchanged. The bundler supports only the
syntax they use: `import { names } from "./file.js";` on its own line, and `export` before a declaration. Any other
import or export, and any circular import, is a ValueError. JSDoc comments are only for type checkers and are removed.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

_IMPORT: Final = re.compile(r'^import \{([\w$,\s]+)\} from "(\.{1,2}/[\w./-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) ([\w$]+))", re.MULTILINE)
# JSDoc comments: the page does not need them
_TYPES: Final = re.compile(r"^ */\*\*[^*]*(?:\*(?!/)[^*]*)*\*/\n", re.MULTILINE)
_OTHER: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundle(entry: Path) -> str:
    """Return one script equivalent to the module; each module it imports is in it once, before its use."""
    written: dict[Path, _Module] = {}
    _add(entry.resolve(), written, ())
    return '"use strict";\n(() => {\n' + "".join(module.text for module in written.values()) + "})();"


class _Module(NamedTuple):
    """A written module: its number, by which others refer to it, its text, and the names that it exports."""

    number: int
    text: str
    exports: list[str]


def _add(file: Path, written: dict[Path, _Module], importers: tuple[Path, ...]) -> None:
    if file in importers:
        raise ValueError(f"modules import one another: {' -> '.join(one.name for one in (*importers, file))}")
    if file in written:
        return
    text = file.read_text(encoding="utf-8")
    imports = []
    for names, path in _IMPORT.findall(text):
        # not resolved: following each link of the file system takes longer than all else here
        source = Path(os.path.normpath(file.parent / path))
        names_wanted = [name for name in re.split(r"[\s,]+", names) if name]
        _add(source, written, (*importers, file))
        if missing := set(names_wanted) - set(written[source].exports):
            raise ValueError(f"{file.name} imports names {source.name} does not export: {', '.join(sorted(missing))}")
        imports.append(f"const {{ {', '.join(names_wanted)} }} = module{written[source].number};\n")
    exports = _EXPORT.findall(text)
    body = _TYPES.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
    if other := _OTHER.search(body):
        raise ValueError(f"{file.name}: cannot bundle `{other[0]}`")
    code = f"{''.join(imports)}{body}return {{ {', '.join(exports)} }};\n"
    number = len(written)
    written[file] = _Module(number, f"const module{number} = (() => {{\n{code}}})();\n", exports)
