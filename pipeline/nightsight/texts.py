"""Makes texts safe to print, and suggests names for mistyped ones.

Names in captures are untrusted: they can have any length, and can reveal hosts and users.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

NO_NAME: Final = "(no name)"

# control characters, lone surrogates, and marks that change the direction of surrounding text
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# GitHub: `::error::` at the beginning of a line, `##[error]` anywhere in it; Azure: `##vso[`; TeamCity: `##teamcity[`
_COMMAND: Final = re.compile(r"^\s*:(?=:)|#(?=#(?:vso|teamcity)?\[)")
_OF_HANDLER: Final = re.compile(r"([^\s/\\]+)_(\d+\.\d{10,20})(?=\.pt\.trace)")
_WORKER: Final = re.compile(
    r"(?:(?:local|global|dp|tp|pp|ep)[_-])?(?:rank|worker|gpu|node|process|trainer|device|stage)", re.IGNORECASE
)
# anything with a slash, anything quoted, and option values: the rest is the profiler's text
_PRIVATE: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\S*[/\\]\S*|--?\w[\w-]*=\S+|~\S*")


def printable(text: object) -> str:
    """Make any text safe to print: one line, no control characters, no change of direction, not empty."""
    if not isinstance(text, str):
        # a missing value
        return NO_NAME
    return _on_one_line(text).strip() or NO_NAME


def log_line(text: str) -> str:
    """Make a text one line of a log, without control characters and commands of CI services."""
    return _COMMAND.sub(r"\g<0> ", _on_one_line(text))


def _on_one_line(text: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\n\r]+", " ", text))


def middle_cut(text: str, length: int) -> str:
    """Cut the middle out of a text that is longer than `length` characters."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def excerpt(text: object, length: int) -> str:
    """Return printable text of at most `length` characters; longer text loses its middle."""
    return middle_cut(printable(text), length)


def prose(text: str, length: int) -> str:
    """Return an excerpt of a sentence, "" for none: sentences can quote program output of any length."""
    return excerpt(text, length) if text else ""


def some_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Join the first texts, with the number of the others: `a, b and 3 more`."""
    return f"{separator.join(texts[:most])}{f' and {len(texts) - most:,} more' * (len(texts) > most)}"


def did_you_mean(name: str, allowed: Iterable[str], *, most: int = 1) -> str:
    """Return "Did you mean ...? " for a mistyped name, with a trailing space; "" if no allowed name is similar."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(allowed)), n=most)
    return f"Did you mean {' or '.join(near)}? " if near else ""


def without_private(text: str) -> str:
    """Mask paths, quoted text and option values: messages of profilers may name files and users."""
    return _PRIVATE.sub("<…>", text)


def without_host(text: str) -> str:
    """Remove host names from file names of torch's tensorboard_trace_handler: HOST_PID.TIME.pt.trace.

    Names that a user gave to workers, such as rank_3, have the same form, and stay.
    """
    return _OF_HANDLER.sub(lambda name: name[0] if _WORKER.fullmatch(name[1]) else f"trace_{name[2]}", text)
