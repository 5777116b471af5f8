"""Encodes a Python stack as one text: frames outermost first, joined by ";", library frames in brackets.

`train (train.py:40);[backward (_tensor.py:631)]`: readers write such texts; analyses and pictures split them.
"""

import re
from collections.abc import Iterable
from typing import Final

_SEPARATOR: Final = ";"
_CUT: Final = "…"
_LINE: Final = re.compile(r":\d+(?=\)\]?$)| \(line \d+\)(?=\]?$)")
# a name must stay one frame on one line
_CLEAN: Final = str.maketrans({_SEPARATOR: ",", "\n": " ", "\r": " "})


def framed(name: str, *, is_of_library: bool) -> str:
    """Return a frame in the form that it has in a stack."""
    clean = name.translate(_CLEAN).strip()
    return f"[{clean}]" if is_of_library and clean else clean


def joined(frames: Iterable[str], *, is_cut: bool = False) -> str:
    """Return a stack; `is_cut`: outer frames are missing. Frames without a name are left out."""
    return _SEPARATOR.join([_CUT] * is_cut + [frame for frame in frames if frame])


def split(stack: str) -> list[str]:
    """Return the frames of a stack."""
    return stack.split(_SEPARATOR) if stack else []


def of_library(frame: str) -> bool:
    """Whether a frame belongs to a library."""
    return frame.startswith("[")


def without_line(frame: str) -> str:
    """Return a frame without its line number: `train (train.py)`."""
    return _LINE.sub("", frame)
