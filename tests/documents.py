"""Parts of documents that are written by a program."""

import os
from difflib import unified_diff
from pathlib import Path


def check(path: Path, written: str, source: str = "") -> None:
    """Compare the part of a document between its two comments, or write it; source: what the first one names."""
    begin, end = f"<!-- written by `make docs`{source and f' from {source}'}", "<!-- end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    comment, _, rest = rest.partition("-->\n")
    _, _, after = rest.partition(end)
    current = f"{before}{begin}{comment}-->\n{written.rstrip()}\n{end}{after}"
    if os.environ.get("NIGHTSIGHT_DOCS") == "write":
        path.write_text(current, encoding="utf-8")
    there = path.read_text(encoding="utf-8")
    changes = unified_diff(there.splitlines(), current.splitlines(), path.name, "make docs", lineterm="", n=0)
    assert there == current, "\n".join([f"{path.name} is out of date: make docs", *changes])
