"""The scripts of the page: modules become one script that needs no other file, each a function with a scope of its own.

What is written is JavaScript's own modules, which Node, type checkers and linters read as they are. Of their syntax as
much is understood as they use: lines that import names from a file by its relative path, and `export` before what a
line of its own declares. All else that begins with these words is refused, as is a circle of imports. Comments that
begin with two stars tell types, and stay behind.
"""

import re
from pathlib import Path
from typing import Final

_IMPORT: Final = re.compile(r'^import \{([\w$,\s]+)\} from "(\.{1,2}/[\w./-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) ([\w$]+))", re.MULTILINE)
# for type checkers only
_TYPES: Final = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)
_OTHER: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundle(entry: Path) -> str:
    """Return a script that does what the module does: those that it imports come first, each of them once."""
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
        source, wanted = (file.parent / path).resolve(), [name for name in re.split(r"[\s,]+", names) if name]
        _add(source, written, (*importers, file))
        if missing := set(wanted) - set(written[source][1]):
            raise ValueError(f"{file.name} imports what {source.name} does not export: {', '.join(sorted(missing))}")
        imports.append(f"const {{ {', '.join(wanted)} }} = module{list(written).index(source)};\n")
    exports = _EXPORT.findall(text)
    body = _TYPES.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
    if other := _OTHER.search(body):
        raise ValueError(f"{file.name}: cannot bundle `{other[0]}`")
    code = f"{''.join(imports)}{body}return {{ {', '.join(exports)} }};\n"
    written[file] = f"const module{len(written)} = (() => {{\n{code}}})();\n", exports
