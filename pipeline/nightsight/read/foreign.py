"""Recognizes traces of other profilers by patterns in their text, and says what to do with them."""

import re
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from nightsight.errors import CaptureError
from nightsight.read.chrome import open_unpacked

_SEARCHED_BYTES: Final = 1 << 20


class _Origin(NamedTuple):
    """A profiler: the name of its files, a pattern that occurs in them, and what to do with them."""

    name: str
    pattern: re.Pattern[str]
    hint: str


_WITH_NSYS: Final = "Record the program with nsys instead: nightsight profile --collector nsys SCRIPT.py."
_PERFETTO: Final = "ui.perfetto.dev shows this file."
_ORIGINS: Final = (
    _Origin(
        "a trace of jax.profiler or TensorFlow (XLA)",
        re.compile(r'"/device:(?:GPU|TPU|CPU):\d|"/host:CPU"|"hlo_(?:op|module)"'),
        f"{_WITH_NSYS} XProf and ui.perfetto.dev show this file.",
    ),
    _Origin(
        "a trace of Ascend's profiler (torch_npu)",
        re.compile(r'"Ascend Hardware"|"CANN"|"AI_(?:CORE|VECTOR_CORE|CPU)"'),
        "nightsight supports NVIDIA, AMD and Intel GPUs, but not NPUs. MindStudio Insight shows this file.",
    ),
    _Origin(
        "a profile of Triton's Proton",
        # its trees (hatchet) have frames, and its traces have the call stack of each kernel
        re.compile(r'"frame"\s*:\s*\{|"call_stack"\s*:\s*\['),
        f"{_WITH_NSYS} proton-viewer shows a profile (.hatchet), ui.perfetto.dev a trace.",
    ),
    _Origin(
        "a trace of NCCL's example profiler plugin",
        re.compile(r'"cat"\s*:\s*"(?:(?:GROUP|COLL|P2P)(?:_API)?|PROXY|KERNEL_LAUNCH)"'),
        "nightsight takes NCCL's collectives from captures of nsys and torch.profiler: nightsight profile SCRIPT.py. "
        + _PERFETTO,
    ),
)


def as_foreign(path: Path, error: CaptureError) -> CaptureError:
    """Return the error for a trace of another profiler if this is one, else the same error."""
    try:
        with open_unpacked(path) as file:
            start = file.read(_SEARCHED_BYTES).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return error
    for origin in _ORIGINS:
        if origin.pattern.search(start):
            return CaptureError(f"{path.name} is {origin.name}, which nightsight cannot read", origin.hint)
    return error
