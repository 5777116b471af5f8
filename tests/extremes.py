"""Captures with very many events in one place, equal or nested: what reading them costs must grow like the file."""

import gzip
import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

DATA = Path(__file__).parent / "data"


def operators(target: Path, count: int, *, are_nested: bool = False) -> Path:
    """Write a trace with so many more operators around a launch: equal to the one there, or each around the last."""
    trace = json.loads(gzip.decompress((DATA / "kineto" / "adam_loop.json.gz").read_bytes()))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    launch = next(event for event in events if event["name"] == "cudaLaunchKernel")
    one = next(
        event
        for event in events
        if event["cat"] == "cpu_op" and event["ts"] <= launch["ts"] < event["ts"] + event["dur"]
    )
    insets = (place * are_nested for place in range(count))
    # whole microseconds more, which no rounding makes cross
    more = ({**one, "ts": one["ts"] - inset, "dur": one["dur"] + 2 * inset} for inset in insets)
    trace["traceEvents"] += more
    target.write_text(json.dumps(trace), encoding="utf-8")
    return target


def ranges(target: Path, count: int, names: int = 1, *, are_nested: bool = True) -> Path:
    """Write an nsys export with so many more ranges around all others: each inside the one before, or equal in time."""
    target.write_bytes(lzma.decompress((DATA / "nsys" / "mlp" / "mlp.sqlite.xz").read_bytes()))
    with closing(sqlite3.connect(target)) as connection:
        outside = "SELECT MIN(start), MAX(end), globalTid FROM NVTX_EVENTS WHERE eventType = 59"
        first, last, thread = connection.execute(outside).fetchone()
        columns = "start, end, eventType, rangeId, domainId, globalTid, text"
        rows = (
            (first - inset, last + inset, 59, 0, 0, thread, f"nested {place % names}")
            for place in range(count)
            for inset in [count - place if are_nested else count]
        )
        connection.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    return target
