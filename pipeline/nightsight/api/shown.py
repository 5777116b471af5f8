"""How objects of the API are shown and written."""

from html import escape
from pathlib import Path
from typing import Final

from nightsight.runs.layout import write_file

MOST_BYTES_SHOWN: Final = 2_000
"""The most bytes of the text of an object, about a screen."""


def text_of(brief: bytes) -> str:
    """Return a brief as the text of an object."""
    return brief.decode().rstrip("\n")


def preformatted(text: str) -> str:
    """Return a text as HTML, for a notebook."""
    return f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'


def written(path: str | Path, content: bytes) -> Path:
    """Write a file and return its path."""
    write_file(Path(path), content)
    return Path(path)
