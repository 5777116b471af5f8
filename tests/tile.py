"""Makes large captures of small ones: the same events again and again, later each time and with ids of their own."""

import shutil
import sqlite3
from pathlib import Path

EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "NVTX_EVENTS",
    "OSRT_API",
)


def tile(source: Path, target: Path, copies: int) -> None:
    """Write `target`: the events of `source` `copies` times in a row, times and correlation ids shifted."""
    shutil.copy(source, target)
    connection = sqlite3.connect(target)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    columns = {
        table: names
        for table in EVENTS
        if (names := [row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
    }
    period = _extent(connection, columns, "end") - _extent(connection, columns, "start", "MIN") + 1000
    step = _extent(connection, columns, "correlationId") + 1
    connection.execute("CREATE TEMP TABLE n (i INTEGER)")
    connection.executemany("INSERT INTO n VALUES (?)", ((number,) for number in range(1, copies)))
    for table, names in columns.items():
        shifted = ", ".join(_shifted(name, period, step) for name in names)
        # domains of NVTX are created once
        once = "WHERE e.eventType != 75" if table == "NVTX_EVENTS" else ""
        connection.execute(f"INSERT INTO {table} SELECT {shifted} FROM n CROSS JOIN {table} AS e {once} ORDER BY n.i")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ANALYSIS_DETAILS'").fetchone():
        later = f"+ {period * (copies - 1)}"
        connection.execute(f"UPDATE ANALYSIS_DETAILS SET duration = duration {later}, stopTime = stopTime {later}")
    connection.commit()
    connection.close()


def _shifted(column: str, period: int, step: int) -> str:
    by = {"start": period, "end": period, "correlationId": step}.get(column)
    return f"e.{column} + n.i * {by}" if by else f"e.{column}"


def _extent(connection: sqlite3.Connection, columns: dict[str, list[str]], column: str, kind: str = "MAX") -> int:
    values = [
        connection.execute(f"SELECT {kind}({column}) FROM {table}").fetchone()[0]
        for table, names in columns.items()
        if column in names
    ]
    present = [value for value in values if value is not None]
    return int(max(present) if kind == "MAX" else min(present))
