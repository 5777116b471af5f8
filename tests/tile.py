"""Makes large captures of small ones: the same events again and again, later each time and with ids of their own.

They can go to many threads, streams or processes in turn, some of them at the same time.
"""

import shutil
import sqlite3
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lanes:
    """Where the copies run, in turn, and how many of them at a time. Each process has a GPU of its own."""

    threads: int = 1
    streams: int = 1
    processes: int = 1
    at_a_time: int = 1


ONE = Lanes()


def tile(source: Path, target: Path, copies: int, lanes: Lanes = ONE) -> None:
    """Write `target`: the events of `source` `copies` times, times and correlation ids shifted, in order of time."""
    shutil.copy(source, target)
    connection = sqlite3.connect(target)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    columns = {
        table: names
        for table in EVENTS
        if (names := [row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
    }
    length = _extent(connection, columns, "end") - _extent(connection, columns, "start", "MIN") + 1000
    period = length // lanes.at_a_time
    step = _extent(connection, columns, "correlationId") + 1
    shifts = _shifts(lanes, period, step)
    connection.execute("CREATE TEMP TABLE n (i INTEGER)")
    connection.executemany("INSERT INTO n VALUES (?)", ((number,) for number in range(1, copies)))
    for table, names in columns.items():
        shifted = ", ".join(f"e.{name} + {shifts[name]}" if name in shifts else f"e.{name}" for name in names)
        # domains of NVTX are created once
        condition = "WHERE e.eventType != 75" if table == "NVTX_EVENTS" else ""
        connection.execute(
            f"INSERT INTO {table} SELECT {shifted} FROM n CROSS JOIN {table} AS e {condition} ORDER BY n.i"
        )
        if lanes.at_a_time > 1:
            # in order of time, as nsys writes them
            connection.execute(f"CREATE TEMP TABLE t AS SELECT * FROM {table} ORDER BY start")
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM t")
            connection.execute("DROP TABLE t")
    _add_gpus(connection, lanes.processes)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ANALYSIS_DETAILS'").fetchone():
        later = f"+ {period * (copies - 1)}"
        connection.execute(f"UPDATE ANALYSIS_DETAILS SET duration = duration {later}, stopTime = stopTime {later}")
    connection.commit()
    connection.close()


def _shifts(lanes: Lanes, period: int, step: int) -> dict[str, str]:
    """Return what is added to each column for copy n.i; the process is in bits 24 to 47 of a global id."""
    process = f"(n.i % {lanes.processes} << 24)"
    thread = f"{process} + n.i % {lanes.threads}"
    return {
        "start": f"n.i * {period}",
        "end": f"n.i * {period}",
        "correlationId": f"n.i * {step}",
        "globalPid": process,
        "globalTid": thread,
        "endGlobalTid": thread,
        "streamId": f"n.i % {lanes.streams}",
        "deviceId": f"n.i % {lanes.processes}",
    }


def _add_gpus(connection: sqlite3.Connection, processes: int) -> None:
    """Repeat the GPU and the process that uses it."""
    tables = {
        "TARGET_INFO_GPU": ("id", "cuDevice"),
        "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
        "TARGET_INFO_CUDA_CONTEXT_INFO": ("deviceId", "processId"),
    }
    for number in range(1, processes):
        for table, shifts in tables.items():
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            shifted = ", ".join(f"{name} + {number}" if name in shifts else name for name in names)
            connection.execute(f"INSERT INTO {table} SELECT {shifted} FROM {table} WHERE rowid = 1")


def _extent(connection: sqlite3.Connection, columns: dict[str, list[str]], column: str, kind: str = "MAX") -> int:
    values = [
        connection.execute(f"SELECT {kind}({column}) FROM {table}").fetchone()[0]
        for table, names in columns.items()
        if column in names
    ]
    present = [value for value in values if value is not None]
    return int(max(present) if kind == "MAX" else min(present))
