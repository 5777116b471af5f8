"""Loads the JSON of a Chrome trace, plain or gzip, as an object or a list of events, up to a size limit."""

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nightsight.errors import CaptureError

MOST_BYTES: Final = 1_000_000_000
"""The default size limit of a trace, uncompressed; in memory it takes several times as much."""
EXPORT: Final = "Export the trace again with export_chrome_trace of torch.profiler (.json or .json.gz)."
_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 1 << 20


def read_document(path: Path, most_bytes: int) -> Mapping[str, Any]:
    """Return the JSON object of a trace; a plain list of events becomes the `traceEvents` of an object.

    CaptureError if it is neither, or larger than `most_bytes`; no more than that is ever loaded.
    """
    # Kineto does not escape names: control characters and invalid UTF-8 in them must not make the trace unreadable
    text = _content(path, most_bytes).decode("utf-8-sig", errors="replace")
    try:
        document = _parse(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "its nesting or a number is too large"
        raise CaptureError(f"{path.name} is not JSON, or is truncated: {reason}", EXPORT) from error
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
        # Chrome allows a list of events without its closing bracket
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
        raise CaptureError(f"{path.name} is a damaged or truncated gzip file", EXPORT) from error
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "Check path and permissions.") from error
    # strip would copy it
    if not content or content.isspace():
        raise CaptureError(f"{path.name} is empty", EXPORT)
    return content


def _too_large(path: Path, most_bytes: int, unpacked: str) -> CaptureError:
    return CaptureError(
        f"{path.name} is too large: {unpacked}it has more than {most_bytes:,} bytes",
        "If you trust the file and have several times its size in memory, raise the limit: "
        f"nightsight report {path.name} --max-input BYTES. Or profile fewer steps.",
    )
