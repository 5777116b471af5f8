"""Texts that are safe to print, as names in captures are untrusted and of any length; what a mistyped name meant."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

NO_NAME: Final = "(no name)"

# control characters, lone surrogates, and marks that change the direction of surrounding text
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: object) -> str:
    """Make any text safe to print: one line, no control characters, no change of direction, not empty."""
    if not isinstance(text, str):
        # a missing value
        return NO_NAME
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\n\r]+", " ", text)).strip()
    return text or NO_NAME


def middle_cut(text: str, length: int) -> str:
    """Cut the middle out of a text that is longer than `length` characters."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def meant(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return "Did you mean ...? " for a mistyped name, with a space to go on after; "" if no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=most)
    return f"Did you mean {' or '.join(near)}? " if near else ""
