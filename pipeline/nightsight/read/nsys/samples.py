"""Reads where Python was at each sample of its stack: nsys keeps stacks as JSON of marks in a domain of their own."""

import html
import json
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.model import Finding
from nightsight.read.frames import frame_name, is_of_library
from nightsight.read.nsys.export import Export
from nightsight.tables import categorical

SAMPLES: Final = "Python Periodic Sampling"
"""The domain of these marks, and the key of their stacks."""
# SQLite takes at most 127 arguments, three for each frame
_DEEPEST: Final = 32
_FRAME: Final = ("Function", "File", "Line")
_LARGEST: Final = 1 << 53
_MANY: Final = 0.1

Frame = pd.DataFrame


def python_samples(export: Export, source: str, marks: Frame) -> Frame | None:
    """Return the function in which each of these marks of `source` found Python; None if no mark has its stack.

    It is the innermost function that is not of a library, else the innermost, with the name of its file: no path.
    """
    stack, frames = _stacks(export, source, marks)
    if not len(frames):
        return None
    places, names = _functions(export, frames)
    kept = stack >= 0
    if (lost := int((~kept).sum())) > _MANY * len(marks):
        export.findings.append(_without_stacks(lost, len(marks)))
    found: Frame = marks[kept].assign(function=categorical(names, places[stack[kept]]))
    return found


def _stacks(export: Export, source: str, marks: Frame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the stack of each mark, -1 for none, and the distinct stacks: function, file and line of each frame.

    What is not there, or is no number, is -1.
    """
    registered = '(SELECT value FROM "StringIds" WHERE id = "jsonTextId")'
    known = {"jsonText": '"jsonText"', "jsonTextId": registered}
    present = [text for column, text in known.items() if column in export.database.columns[source]]
    none = np.full(len(marks), -1), np.empty((0, _DEEPEST, len(_FRAME)), dtype=np.int64)
    if not present:
        return none
    text = f"COALESCE({', '.join(present)}, '')"
    paths = ", ".join(f"""'$."{SAMPLES}".Frames[{row}].{name}'""" for row in range(_DEEPEST) for name in _FRAME)
    numbers = f'CASE WHEN "eventType" = 34 AND json_valid({text}) THEN json_extract({text}, {paths}) END'
    found = export.database.fetch(source, {"stack": f"CAST(COALESCE({numbers}, '') AS BLOB)"})["stack"]
    encoded = found.combine_chunks().dictionary_encode()
    distinct = [json.loads(row) if row else [-1] for row in encoded.dictionary.to_pylist()]
    rows = [[_number(value) for value in row] for row in distinct]
    has_function = np.array([max(row[:: len(_FRAME)]) >= 0 for row in rows], dtype=bool)
    frames = [row for row, known in zip(rows, has_function, strict=True) if known]
    if not frames:
        return none
    codes = np.where(has_function, np.cumsum(has_function) - 1, -1)
    return codes[encoded.indices.to_numpy()[marks.index]], np.array(frames).reshape(len(frames), _DEEPEST, len(_FRAME))


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else -1


def _functions(export: Export, stacks: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the function of each stack as a position in the names, and these names."""
    files = export.text(pd.Series(stacks[:, :, 1].ravel()))
    of_library = np.array([is_of_library(html.unescape(file)) for file in files.categories], dtype=bool)
    exists = stacks[:, :, 0] >= 0
    own = exists & ~of_library[files.codes].reshape(exists.shape)
    frame = np.where(own.any(axis=1), own.argmax(axis=1), exists.argmax(axis=1))
    chosen = pd.DataFrame(stacks[np.arange(len(stacks)), frame], columns=["function", "file", "line"])
    codes = chosen.groupby(list(chosen), sort=False).ngroup().to_numpy()
    distinct = chosen.drop_duplicates()
    texts = zip(export.text(distinct["function"]), export.text(distinct["file"]), distinct["line"], strict=True)
    # nsys escapes names as in HTML, and gives no file for some
    named = [frame_name(html.unescape(function), html.unescape(file), line) for function, file, line in texts]
    return codes, np.array(named, dtype=object)


def _without_stacks(count: int, total: int) -> Finding:
    return Finding(
        rule="damaged_events",
        severity="warning",
        title=f"{count:,} of {total:,} samples of Python's stack were left out",
        detail="Their stack is missing or damaged, so host code may be given the name of another function.",
        remedy="Export the report again: nsys export --type sqlite --include-json=true REPORT.nsys-rep",
    )
