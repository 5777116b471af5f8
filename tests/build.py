"""Writes drawn timelines as nsys exported them in its time: one SQLite schema for each generation, 2021 to 2026.

The tables and columns of 2025 are those of our recorded captures; the other generations are told by what each added.
"""

import functools
import lzma
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nightsight.model.report import Profile
from nightsight.tables import empty
from tests.timeline import draw

GENERATIONS = ("2021", "2023", "2024", "2025", "2026")

_DATA = Path(__file__).parent / "data" / "nsys"
_CUPTI = "CUPTI_ACTIVITY_KIND"
_VERSIONS = {"2023": ("2023.1", "3.1.2"), "2024": ("2024.2", "3.9.4"), "2025": ("2025.3", "3.20.3")} | {
    "2026": ("2026.2", "3.25.0")
}
# tables (no columns named) and columns that came with a generation
_ADDED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "2021": {},
    "2023": {
        "PROCESSES": (),
        f"{_CUPTI}_KERNEL": ("mangledName", "graphNodeId", "sharedMemoryLimitConfig"),
        f"{_CUPTI}_MEMCPY": ("virtualAddress", "graphNodeId"),
        f"{_CUPTI}_MEMSET": ("graphNodeId",),
        "NVTX_EVENTS": ("textId", "jsonTextId"),
        "PROFILER_OVERHEAD": ("returnValue",),
    },
    "2024": {
        f"{_CUPTI}_GRAPH_TRACE": (),
        "DIAGNOSTIC_EVENT": (),
        "META_DATA_CAPTURE": (),
        "META_DATA_EXPORT": (),
        "NVTX_EVENTS": ("binaryData",),
    },
    "2025": {
        "TARGET_INFO_CUDA_DEVICE": (),
        "TARGET_INFO_CUDA_CONTEXT_INFO": (),
        f"{_CUPTI}_KERNEL": ("greenContextId",),
        f"{_CUPTI}_MEMCPY": ("greenContextId", "copyCount"),
        f"{_CUPTI}_MEMSET": ("greenContextId",),
        f"{_CUPTI}_GRAPH_TRACE": ("greenContextId",),
        f"{_CUPTI}_SYNCHRONIZATION": ("greenContextId", "deprecatedSyncType", "eventSyncId"),
    },
    "2026": {},
}
_KERNEL_2026 = ("graphId", "clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy", "qmdId")

_ON_STREAM = {
    "start": "start_ns",
    "end": "end_ns",
    "deviceId": "ordinal",
    "contextId": "context",
    "streamId": "stream",
    "correlationId": "correlation",
    "globalPid": "process",
    "greenContextId": "green_context",
    "graphNodeId": "graph_node",
}
_ON_THREAD = {"start": "start_ns", "end": "end_ns", "globalTid": "thread"}
_KERNEL = {f"{part}{axis.upper()}": f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"} | {
    "registersPerThread": "registers",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
    "demangledName": "name_id",
    "shortName": "short_name_id",
    "mangledName": "mangled_name_id",
}
# their table: our table and their columns as ours; `_id` marks texts that are in StringIds
_EVENTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    f"{_CUPTI}_KERNEL": ("kernels", {**_ON_STREAM, **_KERNEL}),
    f"{_CUPTI}_MEMCPY": (
        "memory_ops",
        {**_ON_STREAM, "bytes": "bytes", "copyKind": "copy", "srcKind": "source", "dstKind": "target"}
        | {"virtualAddress": "address"},
    ),
    f"{_CUPTI}_MEMSET": ("memory_ops", {**_ON_STREAM, "bytes": "bytes", "memKind": "target"}),
    f"{_CUPTI}_GRAPH_TRACE": ("graph_launches", {**_ON_STREAM, "graphId": "graph"}),
    f"{_CUPTI}_SYNCHRONIZATION": ("syncs", {**_ON_STREAM, "syncType": "kind"}),
    f"{_CUPTI}_RUNTIME": (
        "api_calls",
        {**_ON_THREAD, "correlationId": "correlation", "nameId": "name_id", "eventClass": "class"}
        | {"returnValue": "status"},
    ),
    "OSRT_API": ("os_calls", {**_ON_THREAD, "nameId": "name_id", "eventClass": "class"}),
    "ThreadNames": ("threads", {"globalTid": "thread", "nameId": "name_id", "priority": "priority"}),
    "PROFILER_OVERHEAD": ("overheads", {**_ON_THREAD, "nameId": "name_id"}),
    "DIAGNOSTIC_EVENT": ("diagnostics", {"timestamp": "time_ns", "severity": "level", "text": "text"}),
    "TARGET_INFO_GPU": (
        "devices",
        {"id": "device", "name": "name", "smCount": "multiprocessors", "totalMemory": "memory_bytes"}
        | {"l2CacheSize": "l2_bytes", "memoryBandwidth": "memory_bandwidth_bytes_per_s", "clockRate": "clock_hz"}
        | {"computeMajor": "major", "computeMinor": "minor"},
    ),
}
# CUPTI's numbers, told apart from the reader's own list of them
_COPIES = {"Host-to-Device": 1, "Device-to-Host": 2, "Device-to-Device": 8, "Peer-to-Peer": 10}
_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2, "Managed": 4}
_LEVELS = {"info": 1, "warning": 2, "error": 3}
_STYLES = {"PushPop": 59, "StartEnd": 60}
_MARK, _CATEGORY, _DOMAIN, _DOMAIN_END = 34, 33, 75, 76

Schema = dict[str, dict[str, str]]
Frame = pd.DataFrame


def build(picture: str | Profile, target: Path, *, generation: str) -> Path:
    """Write a picture, or the profile of one, as an export of `generation`; return `target`.

    Tables without rows are not written, as nsys exports lazily. A table that the profile lacks was not traced.
    What the generation has no place for is left out.
    """
    profile = draw(picture) if isinstance(picture, str) else picture
    strings = _Strings()
    rows = {table: _rows(profile, table, strings) for table in _EVENTS}
    rows |= {"NVTX_EVENTS": _nvtx(profile, strings, inline=generation == "2021")}
    rows |= _facts(profile, generation) | {f"{_CUPTI}_OVERHEAD": rows["PROFILER_OVERHEAD"]}
    rows |= {"StringIds": pd.DataFrame({"id": strings.ids.values(), "value": strings.ids.keys()})}
    with closing(sqlite3.connect(target)) as connection:
        for table, columns in _schema(generation).items():
            if len(rows.get(table, ())) or table.startswith("ENUM_"):
                definitions = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
                connection.execute(f'CREATE TABLE "{table}" ({definitions})')
                _insert(connection, table, rows.get(table, Frame()), columns)
        connection.commit()
    return target


class _Strings:
    """The table StringIds as it fills."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def column(self, texts: "pd.Series[Any]") -> "pd.Series[Any]":
        ids = [None if pd.isna(text) else self.ids.setdefault(text, len(self.ids)) for text in texts]
        return pd.Series(ids, index=texts.index, dtype="Int64")


def _schema(generation: str) -> Schema:
    """Return the tables and columns of a generation: those of 2025 less what came after it, plus what 2026 added."""
    schema = {table: dict(columns) for table, columns in _recorded().items()}
    later = GENERATIONS[GENERATIONS.index(generation) + 1 :]
    for table, columns in ((table, columns) for year in later for table, columns in _ADDED[year].items()):
        schema[table] = {name: kind for name, kind in schema[table].items() if columns and name not in columns}
    schema = {table: columns for table, columns in schema.items() if columns}
    if generation in ("2021", "2023", "2024"):
        schema["TARGET_INFO_CUDA_NULL_STREAM"] = dict.fromkeys(("streamId", "hwId", "vmId", "processId"), "INTEGER")
    if generation == "2021":
        schema = {table: columns for table, columns in schema.items() if not table.startswith("ENUM_")}
    if generation == "2023":
        schema["EXPORT_META_DATA"] = {"name": "TEXT", "value": "TEXT"}
        schema["ENUM_CUDA_KRENEL_LAUNCH_TYPE"] = schema.pop("ENUM_CUDA_KERNEL_LAUNCH_TYPE")
    if generation == "2026":
        del schema["TARGET_INFO_GPU"], schema["PROFILER_OVERHEAD"]["returnValue"]
        schema["PROFILER_OVERHEAD"]["overheadType"] = "INTEGER NOT NULL"
        schema[f"{_CUPTI}_OVERHEAD"] = dict(schema["PROFILER_OVERHEAD"])
        schema[f"{_CUPTI}_KERNEL"] |= dict.fromkeys(_KERNEL_2026, "INTEGER")
    return schema


@functools.cache
def _recorded() -> Schema:
    """Return the tables of our recorded exports, their columns and the types of these."""
    schema: Schema = {}
    for name in ("train", "graph"):
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(lzma.decompress((_DATA / name / f"{name}.sqlite.xz").read_bytes()))
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
                schema[table] = {column[1]: column[2] + " NOT NULL" * column[3] for column in columns}
    return schema


def _rows(profile: Profile, table: str, strings: _Strings) -> Frame:
    ours, columns = _EVENTS[table]
    if ours not in profile.tables:
        return Frame()
    frame = _coded(profile.tables[ours], table)
    if "ordinal" in columns.values() and "ordinal" not in frame:
        frame["ordinal"] = frame["device"]
    for name in ("name", "short_name", "mangled_name"):
        if f"{name}_id" in columns.values() and name in frame:
            frame[f"{name}_id"] = strings.column(frame[name])
    return frame[[column for column in columns.values() if column in frame]].rename(
        columns={our: their for their, our in columns.items()}
    )


def _coded(frame: Frame, table: str) -> Frame:
    """Turn texts that nsys stores as numbers into those; of memory_ops, take those of `table`."""
    if table == f"{_CUPTI}_RUNTIME":
        versioned = frame["name"].astype("str").str.replace(r"^(cuda(?!.*_v\d)\w+)$", r"\1_v3020", regex=True)
        return frame.assign(name=versioned).assign(**{"class": (frame["layer"] == "driver").astype("int64")})
    if table in (f"{_CUPTI}_MEMCPY", f"{_CUPTI}_MEMSET"):
        frame = frame[(frame["operation"] == "memset") == table.endswith("MEMSET")]
        source, target = (
            frame[f"{end}_kind"].astype(object).map(_KINDS).astype("Int64") for end in ("source", "target")
        )
        return frame.assign(source=source, target=target, copy=frame["operation"].astype(object).map(_COPIES))
    if table == "OSRT_API":
        return frame.assign(**{"class": 27})
    if table == "DIAGNOSTIC_EVENT":
        return frame.assign(level=frame["severity"].astype(object).map(_LEVELS))
    if table == "TARGET_INFO_GPU":
        version = frame["compute_capability"].astype("str").str.split(".", expand=True).astype("int64")
        return frame.assign(major=version[0], minor=version[1])
    return frame.copy()


def _nvtx(profile: Profile, strings: _Strings, *, inline: bool) -> Frame:
    """Write ranges and marks, then the other rows that stand in this table: row numbers are the ranges' own.

    Every second name is registered, unless the generation has only inline texts.
    """
    ranges, marks = (profile.tables.get(name, empty(name)).astype(object) for name in ("ranges", "marks"))
    events = pd.concat([ranges, marks], ignore_index=True)
    if events.empty:
        return Frame()
    names, registered = events["name"], np.arange(len(events)) % 2 == (2 if inline else 0)
    domains, categories = _domains(events), _categories(marks)
    frame = Frame(
        {
            "start": events["start_ns"],
            "end": events["end_ns"].astype("Int64").where(events["is_open"].eq(other=False)),
            "eventType": events["style"].map(_STYLES).fillna(_MARK).astype("int64"),
            "text": names.mask(registered | (names == "")),
            "textId": strings.column(names.where(registered & (names != ""))),
            "globalTid": events["thread"],
            "endGlobalTid": events["end_thread"].astype("Int64"),
            "domainId": [domains.get(key, 0) for key in zip(events["process"], events["domain"], strict=True)],
            "category": [categories.get(key) for key in _keys(events)],
            "rangeId": range(len(events)),
        }
    )
    return pd.concat([frame, _other_nvtx(events, domains), _named(categories, domains)], ignore_index=True)


_Category = tuple[int, str, str]


def _keys(events: Frame) -> Iterator[_Category]:
    """Return the process, the domain and the category of each event."""
    return zip(events["process"], events["domain"], events["category"], strict=True)


def _domains(events: Frame) -> dict[tuple[int, str], int]:
    """Number the named domains of each process from 1."""
    named = events[events["domain"] != ""][["process", "domain"]].drop_duplicates()
    numbers = named.groupby("process").cumcount() + 1
    return dict(zip(zip(named["process"], named["domain"], strict=True), numbers, strict=True))


def _categories(marks: Frame) -> dict[_Category, int]:
    """Number the categories of each domain from 1; one whose name is a number has no other name."""
    numbers: dict[_Category, int] = {}
    for process, domain, category in dict.fromkeys(_keys(marks)):
        before = sum(key[:2] == (process, domain) for key in numbers)
        if category:
            numbers[process, domain, category] = int(category) if category.isdecimal() else before + 1
    return numbers


def _named(categories: Mapping[_Category, int], domains: Mapping[tuple[int, str], int]) -> Frame:
    """Write the names of categories, each twice: what it is called later does not count."""
    rows = [
        {"start": start, "eventType": _CATEGORY, "text": text, "category": number, "globalTid": process | 90}
        | {"domainId": domains.get((process, domain), 0)}
        for (process, domain, name), number in categories.items()
        for start, text in ((2, "later"), (1, name))
        if not name.isdecimal()
    ]
    return Frame(rows)


def _other_nvtx(events: Frame, domains: Mapping[tuple[int, str], int]) -> Frame:
    """Write each domain as created on two threads, with a category of its own, and its end."""
    first, last = int(events["start_ns"].min()), int(events["end_ns"].max())
    rows = []
    for (process, domain), number in {**domains, (int(events["process"].iloc[0]), ""): 0}.items():
        created = [(first, _DOMAIN, domain), (first + 1, _DOMAIN, domain), (last, _DOMAIN_END, None)] if domain else []
        for row, (start, kind, text) in enumerate([*created, (first, _CATEGORY, "kept")]):
            rows.append(
                {"start": start, "eventType": kind, "text": text, "domainId": number, "globalTid": process | 90 + row}
            )
    return pd.DataFrame(rows)


def _facts(profile: Profile, generation: str) -> dict[str, Frame]:
    """Write what an export says of itself, of what was traced and of the processes."""
    product, version = _VERSIONS.get(generation, ("", ""))
    versions = {"EXPORT_PRODUCT_VERSION": product, "EXPORT_SCHEMA_VERSION": version}
    export = pd.DataFrame({"name": versions.keys(), "value": versions.values()})
    traced = [event for table, event in (("kernels", "Cuda"), ("ranges", "NvtxEvents")) if table in profile.tables]
    capture = pd.DataFrame({"name": "CAPTURE_EVENT_TYPE", "value": ["OSRuntime", *traced]})
    calls = profile.tables.get("api_calls", pd.DataFrame({"process": [], "pid": []}))
    processes = calls[["process", "pid"]].drop_duplicates().rename(columns={"process": "globalPid"})
    facts = {"META_DATA_EXPORT": export, "EXPORT_META_DATA": export, "META_DATA_CAPTURE": capture}
    facts |= {"PROCESSES": processes, "TARGET_INFO_CUDA_NULL_STREAM": pd.DataFrame({"streamId": [7]})}
    return facts | {"TARGET_INFO_CUDA_DEVICE": _cuda_devices(profile)}


def _cuda_devices(profile: Profile) -> Frame:
    """Write which GPU each process knew by which number."""
    used = profile.tables.get("kernels", empty("kernels")).dropna(subset=["process"])
    pid = used["process"].to_numpy(dtype=np.int64) >> 24 & 0xFFFFFF
    return Frame({"gpuId": used["device"], "cudaId": used["ordinal"], "pid": pid}).drop_duplicates()


def _insert(connection: sqlite3.Connection, table: str, rows: Frame, columns: Mapping[str, str]) -> None:
    """Insert what the generation has columns for; a number that may not be NULL and that we do not draw is 0."""
    drawn = [column for column in columns if column in rows and rows[column].notna().any()]
    filled = [column for column, kind in columns.items() if column not in drawn and kind == "INTEGER NOT NULL"]
    values = rows.assign(**dict.fromkeys(filled, 0))[[*drawn, *filled]].astype(object)
    places = ", ".join("?" * len(values.columns))
    names = ", ".join(f'"{column}"' for column in values.columns)
    connection.executemany(
        f'INSERT INTO "{table}" ({names}) VALUES ({places})', values.where(values.notna(), None).to_numpy().tolist()
    )
