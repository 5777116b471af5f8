"""Rewrites the CSV pages of ncu: keeps some of their columns, and none of the output around them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from nightsight.read.ncu.csv import (
    NAMED_RANGE,
    PUSH_POP,
    RANGE,
    RAW_METRIC,
    messages_of,
    read_ncu_csv,
    rows_of,
    text_of,
)
from nightsight.read.ncu.model import file_names_only
from nightsight.sanitize.private import Private

_Clean = Callable[[Private, str], str]

_LETTERS: Final = re.compile(r"[^\W\d_]+")
_ABOUT_PROCESSES: Final = re.compile("^==PROF== ", re.MULTILINE)
_START_END: Final = "Start/Stop_Range"
_OF_RANGES: Final = re.compile(r"(?:thread|Id)[\w:/ ]*(?:Push/Pop_Range|Start/Stop_Range)[\w:/ ]*")

# metrics that identify one GPU among others of its model
_OF_MACHINE: Final = re.compile(r"^device__attribute_(?:\w*_)?(?:pci|uuid|serial|luid)(?:_|$)")


def _without_letters(_: Private, cell: str) -> str:
    return _LETTERS.sub("", cell)


def _text(private: Private, cell: str) -> str:
    return private.text(cell)


def _words(private: Private, cell: str) -> str:
    return private.words(cell)


def _rule(private: Private, cell: str) -> str:
    return private.words(file_names_only(cell))


def _ranges(private: Private, cell: str) -> str:
    """Clean the names of ranges, `thread  "domain:name:payload...:name"`; keep only the parts that a report reads."""
    return "".join(f' "{_range(private, text)}"' for text in RANGE.findall(cell))


def _range(private: Private, text: str) -> str:
    if match := NAMED_RANGE.fullmatch(text):
        domain, name = (private.text(match[part]).replace('"', "'") for part in ("domain", "name"))
        return f"{domain}:{name}:none:none:none:none:none:{name}"
    domain, _, fields = text.partition(":")
    return f"{private.text(domain)}:{private.text(fields.partition(':')[0])}:"


_COLUMNS: Final[Mapping[str, _Clean]] = {
    **dict.fromkeys(
        ("ID", "Process ID", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"), _without_letters
    ),
    "Process Name": lambda _, cell: cell and "process",
    "Host Name": lambda _, cell: cell and "host",
    "Kernel Name": _text,
    **dict.fromkeys(("Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Rule Name"), _words),
    **dict.fromkeys(("Rule Type", "Estimated Speedup Type", "Estimated Speedup"), _words),
    "Metric Value": _text,
    "Rule Description": _rule,
}

VOCABULARY: Final = (
    *_COLUMNS,
    PUSH_POP,
    _START_END,
    "==WARNING== ==ERROR== process host thread Domain Id PL_Type PL_Value CLR_Type Color Msg_Type Msg none default",
    "sm smsp gpu dram launch device lts l1tex NVIDIA throughput memory compute",
)


def sanitize_ncu(source: Path, target: Path, private: Private) -> None:
    """Write the pages in `source`, and ncu's warnings, to the new file `target`; CaptureError if they are damaged."""
    # refuses damaged pages
    read_ncu_csv(source)
    text = text_of(source.read_bytes())
    rows = rows_of(source, text)
    _learn(private, rows)
    private.learn_text(text)
    lines = [f"=={kind}== {private.message(message)}" for kind, message in messages_of(text)]
    cleaners: list[_Clean | None] = []
    for cells in rows:
        if cells[0] == "ID":
            cleaners = [_cleaner(name) for name in cells]
            private.left_out["columns"] += cleaners.count(None)
            columns = enumerate(zip(cells, cleaners, strict=True), start=1)
            cleaned = [
                private.words(name) if clean else f"column {number} was left out" for number, (name, clean) in columns
            ]
        else:
            cleaned = [clean(private, cell) if clean else "" for clean, cell in zip(cleaners, cells, strict=False)]
        lines.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cleaned))
    private.left_out["messages about processes"] += len(_ABOUT_PROCESSES.findall(text))
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def texts_of_ncu(path: Path) -> Iterator[str]:
    """Return all texts in pages: their cells, and the lines around them."""
    text = text_of(path.read_bytes())
    yield from text.splitlines()
    for row in rows_of(path, text):
        yield from row


def _learn(private: Private, rows: Sequence[Sequence[str]]) -> None:
    header: Sequence[str] = ()
    for cells in rows:
        if cells[0] == "ID":
            header = cells
            continue
        for name, cell in zip(header, cells, strict=False):
            if name == "Host Name":
                private.learn_host(cell)
            elif name == "Process Name":
                private.learn_value("", cell)


def _cleaner(name: str) -> _Clean | None:
    """Return the function that cleans the cells of a column; None if the column is left out."""
    if name in _COLUMNS:
        return _COLUMNS[name]
    if _OF_RANGES.fullmatch(name):
        return _ranges
    return _text if RAW_METRIC.fullmatch(name) and not _OF_MACHINE.search(name) else None
