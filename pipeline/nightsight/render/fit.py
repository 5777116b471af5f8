"""What all briefs share: the size limit, and JSON on one line without what is unknown."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeVar

from nightsight.model.report import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_BYTES: Final = 3_000
"""The size limit of a brief, about 700 tokens."""
FORMAT: Final = 1
"""The version of brief.json, of any kind."""
_DIGITS: Final = 4

_Brief = TypeVar("_Brief")


def brief_text(
    versions: Iterable[_Brief], lines: Callable[[_Brief], Iterable[str]], most_bytes: int = MOST_BYTES
) -> bytes:
    """Return the lines of the first version of a brief that is short enough, or of the last one."""
    return _fitted(("".join(f"{line}\n" for line in lines(each)) for each in versions), most_bytes)


def brief_json(versions: Iterable["DataclassInstance"]) -> bytes:
    """Return the first version of a brief that is short enough, or the last one, as JSON on one line."""
    return _fitted((one_line(brief_document(each)) for each in versions), MOST_BYTES)


def brief_document(brief: "DataclassInstance") -> dict[str, Json]:
    """Return a brief as JSON has it: without what is unknown, and with numbers of four digits."""
    document: dict[str, Json] = known({"format": FORMAT, **asdict(brief)})
    return document


def _fitted(texts: Iterable[str], most_bytes: int) -> bytes:
    written = b""
    for text in texts:
        written = text.encode("utf-8", "backslashreplace")
        if len(written) <= most_bytes:
            break
    return written


def one_line(document: dict[str, Json]) -> str:
    """Return a document as JSON on one line."""
    return f"{json.dumps(document, ensure_ascii=False, allow_nan=False)}\n"


def known(value: Json) -> Json:
    """Return a value without fields that are unknown, and with rounded numbers."""
    if isinstance(value, dict):
        items = {name: known(item) for name, item in value.items()}
        return {name: item for name, item in items.items() if item is not None and item != ""}
    if isinstance(value, list | tuple):
        return [known(item) for item in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if isfinite(value) else None
