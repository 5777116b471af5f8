"""How a Chrome trace comes out of its file: unpacked in pieces up to a limit, in both of the forms it may have."""

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nightsight.errors import CaptureError

MOST_BYTES: Final = 1_000_000_000
"""How large a trace may be, unpacked, unless more is allowed; in memory it takes several times that."""
EXPORT: Final = "expected what torch.profiler's export_chrome_trace writes (.json or .json.gz): export the trace again"
_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 1 << 20


def read_document(path: Path, most_bytes: int) -> Mapping[str, Any]:
    """Return the JSON object of a trace, a list of events as the `traceEvents` of one; CaptureError if it is neither.

    A trace that is larger than `most_bytes` is refused before more than that is in memory.
    """
    # Kineto writes names as they are: control characters and broken UTF-8 in them must not lose the trace
    text = _content(path, most_bytes).decode("utf-8-sig", errors="replace")
    try:
        document = _parse(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "its nesting or a number is too large"
        raise CaptureError(f"{path.name} is not JSON, or was cut off: {reason}", EXPORT) from error
    if isinstance(document, list):
        return {"traceEvents": document}
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise CaptureError(f"{path.name} is JSON but not a Chrome trace: it has no list 'traceEvents'", EXPORT)
    return document


def _parse(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError:
        if not text.lstrip().startswith("["):
            raise
        # what writes a list event by event may end without closing it, which Chrome allows
        return json.loads(f"{text.rstrip().removesuffix(',')}]", strict=False)


def _content(path: Path, most_bytes: int) -> bytearray:
    content = bytearray()
    try:
        with path.open("rb") as file:
            is_packed = file.peek(len(_GZIP)).startswith(_GZIP)
            with gzip.open(file) if is_packed else file as source:
                while piece := source.read(_PIECE):
                    content += piece
                    if len(content) > most_bytes:
                        raise _too_large(path, most_bytes, "unpacked " if is_packed else "")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CaptureError(f"{path.name} is a gzip file that is damaged or was cut off", EXPORT) from error
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "check the path and its rights") from error
    if not content.strip():
        raise CaptureError(f"{path.name} is empty", EXPORT)
    return content


def _too_large(path: Path, most_bytes: int, unpacked: str) -> CaptureError:
    return CaptureError(
        f"{path.name} was not read: {unpacked}it has more than {most_bytes:,} bytes",
        "if you trust the file, and memory is there for several times its size, raise the limit: "
        f"nightsight report {path.name} --max-input BYTES; or profile fewer steps",
    )
