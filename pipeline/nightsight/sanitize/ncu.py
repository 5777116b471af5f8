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

# metrics that tell one GPU from others of its kind
_OF_MACHINE: Final = re.compile(r"^device__attribute_(?:\w*_)?(?:pci|uuid|serial|luid)(?:_|$)")


def _number(_: Private, cell: str) -> str:
    return _LETTERS.sub("", cell)


def _text(private: Private, cell: str) -> str:
    return private.text(cell)


def _words(private: Private, cell: str) -> str:
    return private.words(cell)


def _rule(private: Private, cell: str) -> str:
    return private.words(file_names_only(cell))


def _ranges(private: Private, cell: str) -> str:
    """Clean the names of ranges, `thread  "domain:name:payload...:name"`; only what a report reads of them is kept."""
    return "".join(f' "{_range(private, written)}"' for written in RANGE.findall(cell))


def _range(private: Private, written: str) -> str:
    if named := NAMED_RANGE.fullmatch(written):
        domain, name = (private.text(named[part]).replace('"', "'") for part in ("domain", "name"))
        return f"{domain}:{name}:none:none:none:none:none:{name}"
    domain, _, rest = written.partition(":")
    return f"{private.text(domain)}:{private.text(rest.partition(':')[0])}:"


_COLUMNS: Final[Mapping[str, _Clean]] = {
    **dict.fromkeys(("ID", "Process ID", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"), _number),
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
    # refuses what is damaged
    read_ncu_csv(source)
    text = text_of(source.read_bytes())
    rows = rows_of(source, text)
    _learn(private, rows)
    private.learn_text(text)
    messages = [(kind, private.message(words)) for kind, words in messages_of(text)]
    header: Sequence[str] = ()
    lines = [f"=={kind}== {words}" for kind, words in messages]
    for cells in rows:
        if cells[0] == "ID":
            header = cells
            lines.append(_line(_header(private, cells)))
            private.left_out["columns"] += sum(not _is_known(name) for name in cells)
        else:
            cleaned = [_column(name)(private, cell) for name, cell in zip(header, cells, strict=False)]
            lines.append(_line(cleaned))
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


def _header(private: Private, cells: Sequence[str]) -> list[str]:
    return [
        private.words(name) if _is_known(name) else f"column {place} was left out"
        for place, name in enumerate(cells, start=1)
    ]


def _is_known(name: str) -> bool:
    is_metric = RAW_METRIC.fullmatch(name) and not _OF_MACHINE.search(name)
    return name in _COLUMNS or bool(is_metric or _OF_RANGES.fullmatch(name))


def _column(name: str) -> _Clean:
    if not _is_known(name):
        return lambda _, __: ""
    return _COLUMNS.get(name, _ranges if _OF_RANGES.fullmatch(name) else _text)


def _line(cells: Sequence[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
