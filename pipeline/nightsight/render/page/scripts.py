"""A small bundler: turns the page's JavaScript modules into one script, each module a function with its own scope.

The sources are standard modules, so Node, type checkers and linters read them unchanged. The bundler supports only the
syntax they use: `import { names } from "./file.js";` on its own line, and `export` before a declaration. Any other
import or export, and any circular import, is a ValueError. JSDoc comments are only for type checkers and are removed.
"""

import re
from pathlib import Path
from typing import Final

_IMPORT: Final = re.compile(r'^import \{([\w$,\s]+)\} from "(\.{1,2}/[\w./-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) ([\w$]+))", re.MULTILINE)
# JSDoc comments: the page does not need them
_TYPES: Final = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)
_OTHER: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundle(entry: Path) -> str:
    """Return one script equivalent to the module; each module it imports is in it once, before its use."""
    written: dict[Path, tuple[str, list[str]]] = {}
    _add(entry.resolve(), written, ())
    return '"use strict";\n(() => {\n' + "".join(text for text, _ in written.values()) + "})();"


def _add(file: Path, written: dict[Path, tuple[str, list[str]]], importers: tuple[Path, ...]) -> None:
    if file in importers:
        raise ValueError(f"modules import one another: {' -> '.join(one.name for one in (*importers, file))}")
    if file in written:
        return
    text = file.read_text(encoding="utf-8")
    imports = []
    for names, path in _IMPORT.findall(text):
        source, names_wanted = (file.parent / path).resolve(), [name for name in re.split(r"[\s,]+", names) if name]
        _add(source, written, (*importers, file))
        if missing := set(names_wanted) - set(written[source][1]):
            raise ValueError(f"{file.name} imports names {source.name} does not export: {', '.join(sorted(missing))}")
        # a module refers to another by its position, which is fixed because dicts keep their order
        imports.append(f"const {{ {', '.join(names_wanted)} }} = module{list(written).index(source)};\n")
    exports = _EXPORT.findall(text)
    body = _TYPES.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
    if other := _OTHER.search(body):
        raise ValueError(f"{file.name}: cannot bundle `{other[0]}`")
    code = f"{''.join(imports)}{body}return {{ {', '.join(exports)} }};\n"
    written[file] = f"const module{len(written)} = (() => {{\n{code}}})();\n", exports
