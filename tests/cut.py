"""Cuts an nsys export to the last steps of each process, so that it is small: `python -m tests.cut IN OUT STEPS`.

A step ends with that of an optimizer of PyTorch. Ranks are cut between the same two steps, as they may be steps apart
in time. What a rank launched before is left out, too; who takes part in a communicator stays.
"""

import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_OF_THREADS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD")
# columns that hold rows of StringIds, and numbers of them in the JSON of stacks
_STRINGS = re.compile(r".*[nN]ame|.*NameId|textId|jsonTextId|value")
_FRAME = re.compile(r'"(?:Function|File)": ?(\d+)')
# names of domains (75), and who takes part in a communicator, are told once, when it is made
_KEPT = "eventType = 75 OR coalesce(textId IN (SELECT id FROM StringIds WHERE value LIKE 'ncclComm%'), FALSE)"
_STEPS = """
    SELECT globalTid >> 24, end FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
    WHERE coalesce(text, value) LIKE 'Optimizer.step#%' ORDER BY end
"""
_CALLS = (
    "CREATE TEMP TABLE calls AS SELECT correlationId AS id, globalTid >> 24 AS pid FROM CUPTI_ACTIVITY_KIND_RUNTIME"
)


def cut(source: Path, target: Path, steps: int) -> None:
    """Write `target`: what each process of `source` did in its last steps."""
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ends: dict[int, list[int]] = {}
        for process, end in database.execute(_STEPS):
            ends.setdefault(process, []).append(end)
        for table in set(tables).intersection(_OF_THREADS):
            kept = _KEPT if table == "NVTX_EVENTS" else "FALSE"
            for process, times in ends.items():
                early = f"globalTid >> 24 = {process} AND start < {times[-steps - 1]}"
                database.execute(f"DELETE FROM {table} WHERE {early} AND NOT ({kept})")
        database.execute(_CALLS)
        database.execute("CREATE INDEX temp.by_id ON calls (id, pid)")
        for table in tables:
            if table.startswith("CUPTI_ACTIVITY_KIND_") and table not in _OF_THREADS:
                is_known = f"SELECT 1 FROM calls WHERE id = {table}.correlationId AND pid = {table}.globalPid >> 24"
                database.execute(f"DELETE FROM {table} WHERE NOT EXISTS ({is_known})")
        used = _strings(database, [table for table in tables if table != "StringIds"])
        database.create_function("is_used", 1, used.__contains__, deterministic=True)
        database.execute("DELETE FROM StringIds WHERE NOT is_used(id)")
        database.commit()
        database.execute("VACUUM")


def _strings(database: sqlite3.Connection, tables: list[str]) -> set[int]:
    """Return the rows of StringIds that these tables name."""
    used: set[int] = set()
    for table in tables:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        for column in filter(_STRINGS.fullmatch, columns):
            numbers = database.execute(f"SELECT DISTINCT {column} FROM {table} WHERE typeof({column}) = 'integer'")
            used.update(number for (number,) in numbers)
        if "jsonText" in columns:
            for (text,) in database.execute(f"SELECT jsonText FROM {table} WHERE jsonText IS NOT NULL"):
                used.update(map(int, _FRAME.findall(text)))
    return used


if __name__ == "__main__":
    cut(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
