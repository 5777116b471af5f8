"""Reads samples of the Python stack: nsys stores stacks as JSON of marks in a separate domain."""

import html
import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.stacks import framed, joined
from nightsight.model.report import Finding
from nightsight.read.frames import frame_name, is_of_library
from nightsight.read.nsys.export import Export
from nightsight.tables import categorical

SAMPLES: Final = "Python Periodic Sampling"
"""The domain of these marks, and the key of their stacks."""
# what is further out is cut off: PyTorch's imports go 150 frames deep
_DEEPEST: Final = 256
_FRAME: Final = ("Function", "File", "Line")
_LARGEST: Final = 1 << 53
_MANY: Final = 0.1

Frame = pd.DataFrame
Values = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class _Stacks:
    """Distinct stacks, innermost frame first: function, file and line of each frame, -1 for what is not known.

    `rows`: how many frames each stack has, one stack after the other. `is_cut`: it has more.
    """

    frames: Values
    rows: Values
    is_cut: list[bool]


def python_samples(export: Export, source: str, marks: Frame) -> Frame | None:
    """Return the function in which each of these marks of `source` found Python; None if no mark has its stack.

    It is the innermost function that is not of a library, else the innermost, with the name of its file: no path.
    """
    position, stacks = _stacks(export, source, marks)
    if stacks is None:
        return None
    functions, texts = _named(export, stacks)
    kept = position >= 0
    if (lost := int((~kept).sum())) > _MANY * len(marks):
        export.findings.append(_WITHOUT_STACKS.filled(count=lost, total=len(marks)))
    of = position[kept]
    found: Frame = marks[kept].assign(function=categorical(functions, of), stack=categorical(texts, of))
    return found


def _stacks(export: Export, source: str, marks: Frame) -> tuple[Values, _Stacks | None]:
    """Return the stack of each mark, -1 for none, and these; None if no mark has a frame with a function."""
    text = export.payload(source)
    if not text:
        return np.full(len(marks), -1), None
    # quoted: json_extract returns a text as it is, and not as JSON
    frames = f"""json_quote(json_extract({text}, '$."{SAMPLES}".Frames'))"""
    found = f'CASE WHEN "eventType" = 34 AND json_valid({text}) THEN {frames} END'
    column = export.database.fetch(source, {"frames": f"CAST(COALESCE({found}, '') AS BLOB)"})["frames"]
    # few texts are distinct: a program is often in the same place
    encoded = column.combine_chunks().dictionary_encode()
    distinct = [frames_of(text) for text in encoded.dictionary.to_pylist()]
    has_frames = np.array([bool(frames) for frames in distinct], dtype=bool)
    codes = np.where(has_frames, np.cumsum(has_frames) - 1, -1)
    position: Values = codes[encoded.indices.to_numpy()[marks.index]]
    stacks = [frames for frames in distinct if frames]
    if not stacks:
        return position, None
    cut = [frames[:_DEEPEST] for frames in stacks]
    flat = np.array([frame for frames in cut for frame in frames], dtype=np.int64)
    is_cut = [len(frames) > _DEEPEST for frames in stacks]
    return position, _Stacks(flat, np.array([len(frames) for frames in cut]), is_cut)


def frames_of(text: bytes) -> list[list[int]]:
    """Return the frames of a stack that have a function; none if the text is damaged, or something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    frames = [[_number(frame.get(name)) for name in _FRAME] for frame in found if isinstance(frame, dict)]
    return [frame for frame in frames if frame[0] >= 0]


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else -1


def _named(export: Export, stacks: _Stacks) -> tuple[Values, Values]:
    """Return of each stack the function that it is named by, and its text."""
    frames, position = np.unique(stacks.frames, axis=0, return_inverse=True)
    # nsys escapes names as in HTML, and gives no file for some
    functions, files = (
        [html.unescape(text) for text in export.text(pd.Series(frames[:, column]))] for column in (0, 1)
    )
    named = [frame_name(*frame) for frame in zip(functions, files, frames[:, 2].tolist(), strict=True)]
    library = [is_of_library(file) for file in files]
    shown = [framed(name, is_of_library=its) for name, its in zip(named, library, strict=True)]
    names, texts, last = [], [], np.cumsum(stacks.rows)
    for of, is_cut in zip(np.split(position.reshape(-1), last[:-1]), stacks.is_cut, strict=True):
        rows = of.tolist()
        names.append(named[next((row for row in rows if not library[row]), rows[0])])
        texts.append(joined((shown[row] for row in reversed(rows)), is_cut=is_cut))
    return np.array(names, dtype=object), np.array(texts, dtype=object)


_WITHOUT_STACKS: Final = Finding(
    "damaged_events",
    "warning",
    "{count:,} of {total:,} samples of Python's stack were left out",
    "Their stack is missing or damaged, so host code may carry the name of another function.",
    "Export the report again: nsys export --type sqlite --include-json=true REPORT.nsys-rep",
)
