"""Keeps measurements without a profiler next to a capture: `train.unprofiled.json` for `train.sqlite`.

It contains the tables UNPROFILED: only numbers, the names of ranges, figures and compiled functions, and why these were
compiled again. Times are since the epoch in the file. Reading the capture later also reads this file.
"""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.captures import unprofiled_file
from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.tables import TABLES, UNPROFILED, conform

FORMAT: Final = 1
_MOST_BYTES: Final = 1 << 24
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def to_text(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the content of the file."""
    recorded = {name: tables[name].astype(object) for name in UNPROFILED if len(tables.get(name, ()))}
    # only a job knows processes
    recorded = {name: table.drop(columns="process", errors="ignore") for name, table in recorded.items()}
    rows = {name: table.where(table.notna(), None).to_dict("records") for name, table in recorded.items()}
    return json.dumps({"unprofiled": FORMAT, **rows}, indent=1, ensure_ascii=False) + "\n"


def from_text(text: str | bytes) -> dict[str, pd.DataFrame]:
    """Return the tables in the content of such a file; CaptureError if it is damaged or from another version."""
    try:
        document: Any = json.loads(text)
        if document["unprofiled"] != FORMAT:
            raise ValueError("unknown version")
        return {name: _read_table(name, document[name]) for name in UNPROFILED if name in document}
    except _DAMAGED as error:
        raise CaptureError(f"this file was not written by nightsight: {error}") from error


def with_unprofiled(profile: Profile, capture: Path) -> Profile:
    """Add the tables from the file next to a capture, if there is a valid one."""
    path = unprofiled_file(capture)
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return profile
        return profile.joined(Profile(on_clock_of_capture(from_text(path.read_bytes()), profile.epoch_ns)))
    except (OSError, CaptureError):
        # the file is optional: without it, typical costs are assumed
        return profile


def on_clock_of_capture(tables: Mapping[str, pd.DataFrame], epoch_ns: int | None) -> dict[str, pd.DataFrame]:
    """Shift times since the epoch to the clock of the capture. Without its date, leave out what is only times."""
    shifted = dict(tables)
    compilations, requests, cache = (shifted.pop(name, None) for name in ("compilations", "requests", "kv_cache"))
    if compilations is not None and epoch_ns:
        times = {name: compilations[name] - epoch_ns for name in ("start_ns", "end_ns")}
        shifted["compilations"] = compilations.assign(**times)
    if requests is not None:
        shift = requests["is_dated"].astype("int64") * (epoch_ns or 0)
        names = [str(name) for name in requests if str(name).endswith("_ns")]
        times = {name: requests[name] - shift for name in names}
        shifted["requests"] = requests.assign(**times, is_dated=requests["is_dated"] & bool(epoch_ns))
    if cache is not None:
        # the number of an iteration is also a place
        placed = cache.drop(columns="time_ns")
        placed = placed.assign(time_ns=cache["time_ns"] - epoch_ns) if epoch_ns else placed
        shifted["kv_cache"] = conform("kv_cache", placed)
    return shifted


def _read_table(name: str, rows: Any) -> pd.DataFrame:  # noqa: ANN401 (JSON)
    # integers next to missing ones would become floats, which cannot hold times since the epoch
    table = conform(name, pd.DataFrame(rows, columns=list(TABLES[name]), dtype="object"))
    for column, kind in TABLES[name].items():
        if kind == "float64" and not all(isfinite(value) and value >= 0 for value in table[column]):
            raise ValueError(f"{column} holds a value that is not a time")
    return table
