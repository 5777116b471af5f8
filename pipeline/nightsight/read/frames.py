"""Frames of Python's stack as profilers write them: which are of a library, and how they are called without paths."""

import re
import sys
from typing import Final

from nightsight.texts import without_private

# installed packages, the standard library, and code that libraries make up; what is typed into a notebook or into
# Python itself is the user's own
_LIBRARY: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\][Ll]ib[/\\]python3|^<(?!stdin|ipython)")
# torch.profiler takes off the folders in which Python looks for modules
_MODULES: Final = sys.stdlib_module_names | {"numpy", "torch", "torchaudio", "torchvision", "triton"}
_SEPARATOR: Final = re.compile(r"[/\\]")


def is_of_library(file: str, *, is_relative: bool = False) -> bool:
    """Whether a file is of a library, made by one, or of Python; `is_relative`: to a folder of modules, perhaps."""
    module = _SEPARATOR.split(file)[0].removesuffix(".py")
    return bool(_LIBRARY.search(file)) or (is_relative and module in _MODULES)


def frame_name(function: str, file: str, line: int) -> str:
    """Return `load (train.py:12)`, without the folder of the file; line 0 or a file without a name is left out."""
    name, number = _SEPARATOR.split(file)[-1], str(line) if line > 0 else ""
    where = f"{name}:{number}".rstrip(":") if name else f"line {number}" if number else ""
    return without_private(function) + f" ({where})" * bool(where)
