"""Reads samples of the Python stack: nsys stores stacks as JSON of marks in a separate domain."""

import html
import json
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.frames import frame_name, is_internal
from nightsight.events.stacks import framed, joined
from nightsight.model.report import Finding
from nightsight.read.nsys.export import NVTX, Export, payload_of
from nightsight.tables import Frame, categorical

SAMPLES: Final = "Python Periodic Sampling"
"""The domain of these marks, and the key of their stacks."""
# outer frames are cut off: PyTorch's imports are 150 frames deep
_DEEPEST: Final = 256
_FRAME: Final = ("Function", "File", "Line")
_LARGEST: Final = 1 << 53
_MANY: Final = 0.1

Values = np.ndarray[Any, Any]


def python_samples(export: Export, marks: Frame) -> Frame | None:
    """Return the function that Python executed at each of these marks; None if no mark has its stack.

    It is the innermost function outside libraries, else the innermost one, with the name of its file without folders.
    Of functions without a file, those with a leading underscore are a library's.
    """
    position, stacks = _stacks(export, marks)
    if not stacks:
        return None
    functions, texts = _names_of_stacks(export, stacks)
    has_stack = position >= 0
    if (count := int((~has_stack).sum())) > _MANY * len(marks):
        export.findings.append(_WITHOUT_STACKS.filled(count=count, total=len(marks)))
    codes = position[has_stack]
    samples: Frame = marks[has_stack].assign(function=categorical(functions, codes), stack=categorical(texts, codes))
    return samples


def _stacks(export: Export, marks: Frame) -> tuple[Values, list[list[list[int]]]]:
    """Return the position of the stack of each mark, -1 if it has none, and the distinct stacks: see `frames_of`."""
    payload = payload_of(export.database)
    if not payload:
        return np.full(len(marks), -1), []
    # json_quote, since json_extract returns a string without its quotes
    frames = f"""json_quote(json_extract({payload}, '$."{SAMPLES}".Frames'))"""
    of_marks = f'CASE WHEN "eventType" = 34 AND json_valid({payload}) THEN {frames} END'
    # few texts are distinct: a program is often in the same place
    texts, text_of_row = export.database.distinct(NVTX, f"CAST(COALESCE({of_marks}, '') AS BLOB)")
    distinct = [frames_of(text) for text in texts]
    has_frames = np.array([bool(frames) for frames in distinct], dtype=bool)
    codes = np.where(has_frames, np.cumsum(has_frames) - 1, -1)
    position: Values = codes[text_of_row[marks.index]]
    return position, [frames for frames in distinct if frames]


def frames_of(text: bytes) -> list[list[int]]:
    """Return the frames of a stack that have a function, innermost first; none if the text is not a stack.

    A frame has the string ids of function and file, and the line; -1 if unknown.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, list):
        return []
    frames = [[_id_or_unknown(frame.get(name)) for name in _FRAME] for frame in document if isinstance(frame, dict)]
    return [frame for frame in frames if frame[0] >= 0]


def _id_or_unknown(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else -1


def _names_of_stacks(export: Export, stacks: list[list[list[int]]]) -> tuple[Values, Values]:
    """Return for each stack the function that names it, and its text."""
    depths = [min(len(stack), _DEEPEST) for stack in stacks]
    flat = np.array([frame for stack in stacks for frame in stack[:_DEEPEST]], dtype=np.int64)
    frames, rows = np.unique(flat, axis=0, return_inverse=True)
    # nsys escapes names as in HTML, and gives no file for some
    functions, files = (
        [html.unescape(text) for text in export.text(pd.Series(frames[:, column]))] for column in (0, 1)
    )
    names = [frame_name(*frame) for frame in zip(functions, files, frames[:, 2].tolist(), strict=True)]
    in_library = [is_internal(*frame) for frame in zip(functions, files, strict=True)]
    texts = [framed(name, is_of_library=is_its) for name, is_its in zip(names, in_library, strict=True)]
    names_of_stacks, texts_of_stacks = [], []
    for stack, part in zip(stacks, np.split(rows.reshape(-1), np.cumsum(depths)[:-1]), strict=True):
        innermost_first = part.tolist()
        row = next((row for row in innermost_first if not in_library[row]), innermost_first[0])
        names_of_stacks.append(names[row])
        outermost_first = (texts[row] for row in reversed(innermost_first))
        texts_of_stacks.append(joined(outermost_first, is_cut=len(stack) > _DEEPEST))
    return np.array(names_of_stacks, dtype=object), np.array(texts_of_stacks, dtype=object)


_WITHOUT_STACKS: Final = Finding(
    "damaged_events",
    "warning",
    "{count:,} of {total:,} samples of Python's stack were left out",
    "Their stack is missing or damaged, so host code may carry the name of another function.",
    "Export the report again: nsys export --type sqlite --include-json=true REPORT.nsys-rep",
)
