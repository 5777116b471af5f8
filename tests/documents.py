"""Parts of documents that are written by a program."""

import os
from pathlib import Path


def check(path: Path, written: str) -> None:
    """Compare the part of a document between its two comments, or write it."""
    begin, end = "<!-- written by `make docs`", "<!-- end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    comment, _, rest = rest.partition("-->\n")
    _, _, after = rest.partition(end)
    current = f"{before}{begin}{comment}-->\n{written.rstrip()}\n{end}{after}"
    if os.environ.get("NIGHTSIGHT_DOCS") == "write":
        path.write_text(current, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == current, f"{path.name} is out of date: make docs"
