"""What all briefs share: the size limit, and JSON on one line without what is unknown."""

import json
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Final, TypeVar

from nightsight.model.report import Json

MOST_BYTES: Final = 3_000
"""The size limit of a brief, about 700 tokens."""
FORMAT: Final = 1
"""The version of brief.json, of any kind."""
_DIGITS: Final = 4

_Brief = TypeVar("_Brief")


def fitted(versions: Iterable[_Brief], render: Callable[[_Brief], str], most_bytes: int = MOST_BYTES) -> bytes:
    """Return the first version of a brief that is short enough, or the last one."""
    written = b""
    for each in versions:
        written = render(each).encode("utf-8", "backslashreplace")
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
