"""Captures and times as they are stored: without what tells of the machine, and with every trial."""

import json
import lzma
import sqlite3
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from nightsight.events.frames import is_of_library
from nightsight.runs.unprofiled import from_text, to_text
from tests.planted.cases import Form

Times = dict[str, dict[Form, list[float]]]
"""The milliseconds of a step in each trial, by case and form."""

# rows of nsys's tables that may stay; the others hold variables, paths and hosts
_KEPT: Final = {
    "TARGET_INFO_SYSTEM_ENV": "name IN ('NvDriverVersion', 'CudaDriverVersion', 'CpuDescription', 'OsDescription')",
    "META_DATA_CAPTURE": "name = 'CAPTURE_EVENT_TYPE'",
    "META_DATA_EXPORT": "name LIKE 'EXPORT_PRODUCT%' OR name LIKE 'EXPORT_SCHEMA%'",
    "PROCESSES": "FALSE",
    "ANALYSIS_FILE": "FALSE",
    "ANALYSIS_DETAILS": "FALSE",
}
_BLANK: Final = "UPDATE StringIds SET value = neutral(value) WHERE value LIKE '/%' OR instr(CAST(value AS BLOB), x'00')"


def packed(path: Path, root: Path) -> bytes:
    """Return what nsys or ncu wrote, compressed; `root` is the folder of the programs, which must not be named."""
    data = path.read_bytes()
    if path.suffix == ".sqlite":
        data = _without_machine(data, root)
    else:
        # lengths are part of ncu's format
        data = data.replace(bytes(root), b"/" + b"x" * (len(bytes(root)) - 1))
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def _neutral(path: str) -> str:
    """Return a file of Python without its folder, which still shows whether it belongs to a library; "" for others."""
    name = path.rsplit("/", 1)[-1]
    if "\0" in path or not name.endswith(".py"):
        return ""
    return f"/site-packages/{name}" if is_of_library(path) else name


def _without_machine(data: bytes, root: Path) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "export.sqlite"
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            for table, kept in _KEPT.items():
                if table in tables:
                    database.execute(f"DELETE FROM {table} WHERE NOT ({kept})")
            for table in tables:
                if table.startswith("ENUM_"):
                    database.execute(f"DROP TABLE {table}")  # the same in each capture, and never read
            database.create_function("neutral", 1, _neutral, deterministic=True)
            database.execute(_BLANK)
            # XLA puts places in the program into the texts of its ranges
            for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
                if table in tables:
                    names = f"{column} = replace({column}, ?, '')"
                    database.execute(f"UPDATE {table} SET {names} WHERE instr({column}, ?)", (f"{root}/", f"{root}/"))
            database.commit()
            database.execute("VACUUM")
        return path.read_bytes()


def of_compilations(text: str) -> str:
    """Return what a file next to a capture says of compilations; "" if it says nothing of them.

    The rest belongs to another machine: measured costs and times.
    """
    tables = from_text(text)
    return to_text({"compilations": tables["compilations"]}) if "compilations" in tables else ""


def times(folder: Path) -> Times:
    """Return the stored times; none if nothing was timed yet."""
    path = folder / "times.json"
    trials: Times = json.loads(path.read_text()) if path.exists() else {}
    return trials


def keep(trials: Mapping[str, Mapping[Form, Sequence[float]]], folder: Path) -> None:
    """Add times to the stored ones; they replace earlier ones of the same programs."""
    cases = {**times(folder), **trials}
    rows = (f" {json.dumps(name)}: {json.dumps(forms)}" for name, forms in cases.items())
    (folder / "times.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


def median_ms(trials: Sequence[float]) -> float | None:
    """Return what a step took, None if it was not timed."""
    return statistics.median(trials) if trials else None
