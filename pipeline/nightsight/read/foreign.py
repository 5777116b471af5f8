"""Which other profiler wrote a trace that cannot be read, by signs in its text, and what to do instead."""

import gzip
import re
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from nightsight.errors import CaptureError

_SEARCHED_CHARACTERS: Final = 1 << 20


class _Origin(NamedTuple):
    """A profiler: what its files are called, how one is recognized, and what to do with it."""

    name: str
    sign: re.Pattern[str]
    hint: str


_WITH_NSYS: Final = "Record the program with nsys instead: nightsight profile --collector nsys SCRIPT.py."
_PERFETTO: Final = "ui.perfetto.dev shows this file."
_ORIGINS: Final = (
    _Origin(
        "a trace of jax.profiler or TensorFlow (XLA)",
        re.compile(r'"/device:(?:GPU|TPU|CPU):\d|"/host:CPU"|"hlo_(?:op|module)"'),
        f"{_WITH_NSYS} XProf and {_PERFETTO}",
    ),
    _Origin(
        "a trace of Ascend's profiler (torch_npu)",
        re.compile(r'"Ascend Hardware"|"CANN"|"AI_(?:CORE|VECTOR_CORE|CPU)"'),
        "nightsight supports NVIDIA, AMD and Intel GPUs, but not NPUs. MindStudio Insight shows this file.",
    ),
    _Origin(
        "a profile of Triton's Proton",
        # its tree (hatchet) has frames, and its traces have the stack of each kernel's calls
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
    """Return the error for a trace of another profiler, if it is one of those, else the same error."""
    text = _beginning(path)
    for origin in _ORIGINS:
        if origin.sign.search(text):
            return CaptureError(f"{path.name} is {origin.name}, which nightsight cannot read", origin.hint)
    return error


def _beginning(path: Path) -> str:
    """Return what of the beginning can be read; "" if nothing can."""
    try:
        with path.open("rb") as file:
            is_packed = file.peek(2).startswith(b"\x1f\x8b")
            with gzip.open(file) if is_packed else file as source:
                return source.read(_SEARCHED_CHARACTERS).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""
