"""Writes tables: CSV and JSON with NVIDIA's headers, units and digits, and plain aligned text."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nightsight.errors import UsageError
from nightsight.stats.summary import rounded_once
from nightsight.tables import Frame
from nightsight.units import split

Texts = list[str]

# unit of time: its name in headers, the factor from ns (NVIDIA multiplies; division rounds differently), its decimals
_TIME_UNITS: Final[Mapping[str, tuple[str, float, int]]] = {
    "ns": ("ns", 1, 1),
    "us": ("us", 1e-3, 3),
    "ms": ("ms", 1e-6, 4),
    "s": ("sec", 1e-9, 4),
}
_TIME_NAMES: Final = {
    "nsec": "ns",
    "nanoseconds": "ns",
    "usec": "us",
    "microseconds": "us",
    "msec": "ms",
    "milliseconds": "ms",
    "seconds": "s",
}
_UNITS: Final = {"pct": " (%)", "bytes": " (MB)", "bytes_per_s": " (MB/s)", "": ""}


def time_unit(name: str) -> str:
    """Return ns, us, ms or s for one of NVIDIA's names of a unit, or a prefix of it (msec, milli); else UsageError."""
    units = {unit for full, unit in _TIME_NAMES.items() if name and (full.startswith(name) or name == unit)}
    if len(units) != 1:
        raise UsageError(f"unknown unit of time {name!r}", "Use ns, us, ms or s (or nsec, usec, msec, sec).")
    return units.pop()


def write_stats(table: Frame, style: str, *, unit: str = "ns") -> str:
    """Write a report as `csv` (NVIDIA's, byte for byte), `table` (aligned text) or `json`; times in `unit`."""
    headers = []
    for column in table.columns:
        stem, kind = split(column)
        headers.append(stem + (f" ({_TIME_UNITS[unit][0]})" if kind == "ns" else _UNITS[kind]))
    columns = [_texts(table[column], column, unit) for column in table.columns]
    are_numbers = [not _is_text(table[column]) for column in table.columns]
    return _STYLES[style](headers, columns, are_numbers)


def _is_text(values: "pd.Series[Any]") -> bool:
    # group keys may be categories of numbers, such as process ids
    kind = values.dtype.categories.dtype if isinstance(values.dtype, pd.CategoricalDtype) else values.dtype
    return not (pd.api.types.is_numeric_dtype(kind) or isinstance(kind, pd.ArrowDtype))


def _texts(values: "pd.Series[Any]", column: str, unit: str) -> Texts:
    """Format a column; values other than plain integers are formatted once per distinct value."""
    if _is_text(values):
        codes, distinct = pd.factorize(values)
        return list(np.array([*distinct, ""], dtype=object)[codes])
    kind = split(column)[1]
    is_plain = kind == "" or (kind == "ns" and unit == "ns")
    if is_plain and pd.api.types.is_integer_dtype(values):
        texts: Texts = pc.fill_null(pa.array(values).cast(pa.string()), "").to_pylist()
        return texts
    codes, distinct = pd.factorize(values)
    numbers = [_formatted(value, kind, unit) for value in distinct.tolist()]
    return list(np.array([*numbers, ""], dtype=object)[codes])


def _formatted(value: float, kind: str, unit: str) -> str:
    """Format one number: SQLite rounds averages and percentages to one decimal, then NVIDIA's formatter scales."""
    if kind.startswith("bytes"):
        return f"{value / 1e6:.3f}"
    rounded = value if isinstance(value, int) else rounded_once(value)
    _, factor, decimals = _TIME_UNITS[unit]
    return str(rounded) if kind != "ns" or unit == "ns" else f"{float(rounded) * factor:.{decimals}f}"


def _as_csv(headers: Texts, columns: list[Texts], are_numbers: list[bool]) -> str:  # noqa: ARG001 (one form for all)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _as_json(headers: Texts, columns: list[Texts], are_numbers: list[bool]) -> str:
    """Format as JSON records like NVIDIA: numbers with the same decimals as in CSV, "" for missing ones."""
    fields = [
        [f"    {header}: {text if text and is_number else _quoted(text)}" for text in column]
        for header, column, is_number in zip(map(_quoted, headers), columns, are_numbers, strict=True)
    ]
    records = ["  {\n" + ",\n".join(row) + "\n  }" for row in zip(*fields, strict=True)]
    return "[\n" + ",\n".join(records) + "\n]\n" if records else "[]\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _as_text(headers: Texts, columns: list[Texts], are_numbers: list[bool]) -> str:
    """Format as aligned columns: text to the left, numbers to the right."""
    widths = [max(map(len, [header, *column])) for header, column in zip(headers, columns, strict=True)]
    aligned = [
        [cell.rjust(width) if is_number else cell.ljust(width) for cell in (header, "-" * width, *column)]
        for header, column, width, is_number in zip(headers, columns, widths, are_numbers, strict=True)
    ]
    return "".join("  ".join(line).rstrip() + "\n" for line in zip(*aligned, strict=True))


_STYLES: Final[Mapping[str, Callable[[Texts, list[Texts], list[bool]], str]]] = {
    "csv": _as_csv,
    "table": _as_text,
    "json": _as_json,
}
