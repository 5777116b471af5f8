"""Loads the JSON of a Chrome trace, plain or gzip, as an object or a list of events, up to a size limit.

Profilers write strings and numbers unescaped. JSON that is invalid for that reason is repaired, with a finding.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple

from nightsight.errors import CaptureError
from nightsight.model.report import Finding
from nightsight.texts import middle_cut, printable
from nightsight.units import counted

MOST_BYTES: Final = 1_000_000_000
"""The default size limit of a trace, uncompressed; in memory it takes several times as much."""
EXPORT: Final = "Export the trace again with export_chrome_trace of torch.profiler (.json or .json.gz)."
GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 1 << 20
# a string, with its escapes
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# valid escapes; a backslash outside of them is part of a path, such as D:\prof
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
# a backslash to escape, or an escape to keep
_BACKSLASH: Final = re.compile(r'\\(?!["\\])|(\\.)')
# in the place of a value, a word that is not JSON: N/A, -inf, 1.#QNAN, ncclFloat32, 0x5f
_WORD: Final = (
    r"(?<![\w.])-?(?!(?:true|false|null|NaN|Infinity)\b)[A-Za-z_][\w/.#()+-]*|-NaN\b|-?\d[\w.]*#[\w.]*|0x[0-9a-fA-F]+"
)
_STRING_OR_WORD: Final = re.compile(f"({_STRING})|{_WORD}", re.DOTALL)


class ParsedTrace(NamedTuple):
    """A trace as an object, and findings about its format."""

    document: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()


def read_document(path: Path, most_bytes: int) -> ParsedTrace:
    """Return the JSON object of a trace; a plain list of events becomes the `traceEvents` of an object.

    CaptureError if it is neither, or larger than `most_bytes`; no more than that is ever loaded.
    """
    # Kineto does not escape names: control characters and invalid UTF-8 in them must not make the trace unreadable
    text = _content(path, most_bytes).decode("utf-8-sig", errors="replace")
    findings: tuple[Finding, ...] = ()
    try:
        try:
            document = _parse(text)
        except json.JSONDecodeError as error:
            repaired, finding = _repaired(text, error)
            document, findings = _parse(repaired), (finding,)
    except json.JSONDecodeError as error:
        raise _not_json(path, error, text) from error
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{path.name} cannot be read: its nesting or a number is too large", EXPORT) from error
    if isinstance(document, list):
        return ParsedTrace({"traceEvents": document}, findings)
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise CaptureError(f"{path.name} is JSON but not a Chrome trace: it has no list 'traceEvents'", EXPORT)
    return ParsedTrace(document, findings)


@contextmanager
def open_unpacked(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """Open a file for reading, and decompress it if it is gzip."""
    with path.open("rb") as file:
        is_packed = file.peek(len(GZIP)).startswith(GZIP)
        with gzip.open(file) if is_packed else file as content:
            yield content


def _parse(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError:
        if not text.lstrip().startswith("["):
            raise
        # Chrome allows a list of events without its closing bracket
        with suppress(json.JSONDecodeError):
            return json.loads(f"{text.rstrip().removesuffix(',')}]", strict=False)
        raise


def _repaired(text: str, error: json.JSONDecodeError) -> tuple[str, Finding]:
    """Return a text with invalid escapes as plain backslashes and invalid values as unknown, and a finding."""
    first_word, words, paths = "", 0, 0

    def repair(match: re.Match[str]) -> str:
        nonlocal first_word, words, paths
        string = match[1]
        if string is None:
            first_word, words = first_word or match[0], words + 1
            return "null"
        if "\\" not in _ESCAPE.sub("", string):
            return string
        paths += 1
        # a writer that does not escape one backslash escapes none: \r in D:\prof\run is not a line end
        return _BACKSLASH.sub(lambda backslash: backslash[1] or r"\\", string)

    text = _STRING_OR_WORD.sub(repair, text)
    repairs = []
    if words:
        repairs.append(f"invalid values, such as {middle_cut(first_word, 20)}, count as unknown ({words:,} x)")
    if paths:
        repairs.append(f"unescaped backslashes are kept (in {counted(paths, 'string')})")
    summary = "; ".join(repairs)
    finding = Finding(
        "mended_json",
        "warning",
        "The trace is not valid JSON",
        f"{summary[:1].upper()}{summary[1:]}. The first is on line {error.lineno:,}, column {error.colno:,}.",
        "A newer torch may write it correctly.",
    )
    return text, finding


def _not_json(path: Path, error: json.JSONDecodeError, text: str) -> CaptureError:
    """Return the error for a trace that is truncated, or invalid somewhere."""
    # an unterminated string extends to the end
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        lines = error.doc.count("\n") + 1
        return CaptureError(
            f"{path.name} is truncated: it ends on line {lines:,} in the middle of its JSON",
            "The program that wrote it was stopped too early, or the disk was full. Record fewer steps, and let the "
            "export finish.",
        )
    # in a repaired text, columns differ from those in the file
    near = "".join(error.doc[max(error.pos - 10, 0) : error.pos + 20].splitlines()[-1:])
    place = f"column {error.colno:,}" if error.doc == text else f"near {printable(near)}"
    return CaptureError(
        f"{path.name} is not JSON on line {error.lineno:,}, {place}: {error.msg}",
        "Fix that place, or export the trace again with export_chrome_trace of torch.profiler.",
    )


def _content(path: Path, most_bytes: int) -> bytearray:
    content = bytearray()
    try:
        with open_unpacked(path) as file:
            while piece := file.read(_PIECE):
                content += piece
                if len(content) > most_bytes:
                    unpacked = "uncompressed, it has" if isinstance(file, gzip.GzipFile) else "it has"
                    raise CaptureError(
                        f"{path.name} is too large: {unpacked} more than {most_bytes:,} bytes",
                        "If you trust the file and have several times its size in memory, raise the limit: "
                        f"nightsight report {path.name} --max-input BYTES. Or profile fewer steps.",
                    )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CaptureError(f"{path.name} is a damaged or truncated gzip file", EXPORT) from error
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "Check path and permissions.") from error
    # strip would copy it
    if not content or content.isspace():
        raise CaptureError(f"{path.name} is empty", EXPORT)
    return content
