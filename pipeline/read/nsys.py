"""The schema of nsys SQLite exports, of every generation: found by looking at tables and columns, not at versions."""

import copy
import datetime as dt
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.errors import CaptureError
from pipeline.model import Environment, Finding, Profile
from pipeline.read.sqlite import Database
from pipeline.read.vocabulary import (
    COPY_OPERATIONS,
    DOMAIN_CREATE,
    MEMORY_KINDS,
    RANGE_STYLES,
    SEVERITIES,
    cuda_version,
    label,
    without_private,
)
from pipeline.tables import categorical, conform, empty

KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX: Final = "NVTX_EVENTS"

_OF_PROCESS: Final = ~0xFFFFFF
# 104 days after the start: later times are damage, and sums of them would overflow
_LATEST_NS: Final = 1 << 53
_ON_STREAM: Final = {
    "start_ns": "start",
    "end_ns": "end",
    "process": "globalPid",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
}

Frame = pd.DataFrame


def read_nsys(path: Path) -> Profile:
    """Read an nsys SQLite export; CaptureError if it is none, is damaged or lacks a column we cannot do without."""
    database = Database(path)
    if not _EXPORT_TABLES & database.columns.keys():
        raise CaptureError(
            f"{path.name} is an SQLite file but not an nsys export: none of its tables is one of nsys's",
            "make one with: nsys export --type sqlite REPORT.nsys-rep",
        )
    return _Export(database).profile()


class _Export:
    """One export being read: its strings, what was traced, and what had to be left out."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.strings = self._strings()
        self.traced = self._metadata("META_DATA_CAPTURE").get("CAPTURE_EVENT_TYPE", [])
        self.findings: list[Finding] = []
        self.unresolved: set[int] = set()

    def profile(self) -> Profile:
        tables: dict[str, Frame] = {}
        missing = {"cpu_ops": "nsys records no PyTorch operators; --collector torch does"}
        present = [name for name, reader in _READERS.items() if set(reader[0]) & self.database.columns.keys()]
        # SQLite gives rows to several threads at a time; two are enough to keep the conversion to pandas busy
        with ThreadPoolExecutor(2) as pool:
            parts = dict(zip(present, pool.map(self._read, present), strict=True))
        for name, (_, event, option, _read) in _READERS.items():
            if name in parts:
                tables[name], part = parts[name]
                self.findings += part.findings
                self.unresolved |= part.unresolved
            elif self._was_traced(event):
                tables[name] = empty(name)
            else:
                missing[name] = option if self.traced or event == "never" else _UNKNOWN
        if self.unresolved:
            self.findings.append(_nameless(len(self.unresolved)))
        return Profile(tables, missing, self._environment(tables), tuple(self.findings))

    def _read(self, name: str) -> tuple[Frame, "_Export"]:
        """Read one canonical table, with what had to be left out of it."""
        part = copy.copy(self)
        part.findings, part.unresolved = [], set()
        return conform(name, _READERS[name][3](part)), part

    def _was_traced(self, event: str) -> bool:
        """Say whether absence means none happened: exports are lazy, so a table without rows is not written.

        Exports before 2024 do not say what was traced; there any CUDA table tells that CUDA was.
        """
        if self.traced or not event:
            return not event or event in self.traced
        return event == "Cuda" and bool({KERNEL, RUNTIME, MEMCPY} & self.database.columns.keys())

    # -- rows -----------------------------------------------------------------------------------------------------

    def fetch(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch whole numbers, `columns` being ours: theirs; the index is the row in the export.

        One that is `nullable` may be absent from this generation, or NULL. Rows that lack another are left out, and
        a finding says how many.
        """
        present = self.database.columns[source]
        absent = {theirs for ours, theirs in columns.items() if theirs not in present and ours not in nullable}
        if absent:
            raise self._strange(source, f"has no column {', '.join(sorted(absent))}")
        chosen = {ours: f'"{theirs}"' if theirs in present else "NULL" for ours, theirs in columns.items()}
        table = self.database.fetch(source, chosen)
        if not all(pa.types.is_integer(kind) for kind in table.schema.types):
            raise self._strange(source, "holds something else where whole numbers belong")
        frame = _to_frame(table)
        lacking = [ours for ours in columns if ours not in nullable and frame[ours].hasnans]
        return self._keep(source, frame, frame[lacking].notna().all(axis=1).to_numpy(dtype=bool))

    def spans(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch rows with a start and an end; those whose times cannot be are left out as well."""
        return self.keep_possible(source, self.fetch(source, columns, nullable=nullable))

    def keep_possible(self, source: str, frame: Frame) -> Frame:
        """Leave out rows whose end is before their start, or whose times are before or long after the capture."""
        start, end = frame["start_ns"], frame["end_ns"]
        return self._keep(source, frame, ((start >= 0) & (end >= start) & (end < _LATEST_NS)).to_numpy(dtype=bool))

    def on_stream(self, source: str, columns: Mapping[str, str], *, nullable: Collection[str] = ()) -> Frame:
        """Fetch spans of GPU work, with their process."""
        nullable = ("process", "correlation", *nullable)
        frame = self.spans(source, {**_ON_STREAM, **columns}, nullable=nullable)
        return frame.assign(process=frame["process"] & _OF_PROCESS)

    def _keep(self, source: str, frame: Frame, good: np.ndarray[Any, Any]) -> Frame:
        if good.all():
            return frame
        self.findings.append(_damaged(source, int((~good).sum()), len(frame)))
        return frame[good]

    def _strange(self, source: str, what: str) -> CaptureError:
        return CaptureError(
            f"{self.database.path.name}: table {source} {what}",
            "this is not an export that nsys wrote, or one of a version that is not known yet: please report it",
        )

    def text(self, ids: "pd.Series[Any]") -> "pd.Categorical[Any]":
        """Look ids up in StringIds; one that is not there is the empty text."""
        codes, unique = pd.factorize(ids.fillna(-1).to_numpy(dtype=np.int64))
        found = self.strings.reindex(unique)
        self.unresolved |= set(unique[found.isna().to_numpy()].tolist()) - {-1}
        values = found.fillna("").to_numpy(dtype=object)
        return categorical(values, codes)

    def _strings(self) -> "pd.Series[str]":
        if "StringIds" not in self.database.columns:
            if {KERNEL, RUNTIME} & self.database.columns.keys():
                raise self._strange("StringIds", "is not there, so nothing in this export has a name")
            return pd.Series([], dtype=object)
        ids = self.database.fetch("StringIds", {"id": "id"})["id"].to_numpy()
        strings = pd.Series(self.database.texts("StringIds", "value"), index=ids, dtype=object)
        return strings[~strings.index.duplicated()]

    def _metadata(self, *sources: str) -> dict[str, list[str]]:
        """Read a name/value table under whichever of its names this generation uses."""
        found: dict[str, list[str]] = {}
        for source in sources:
            if source in self.database.columns:
                names, values = (self.database.texts(source, column) for column in ("name", "value"))
                for name, value in zip(names, values, strict=True):
                    found.setdefault(name, []).append(value)
        return found

    # -- facts ----------------------------------------------------------------------------------------------------

    def _environment(self, tables: Mapping[str, Frame]) -> Environment:
        system = self._metadata("TARGET_INFO_SYSTEM_ENV")
        export = self._metadata("META_DATA_EXPORT", "EXPORT_META_DATA")

        def fact(source: Mapping[str, list[str]], name: str) -> str:
            return source.get(name, [""])[0]

        return Environment(
            collector="nsys",
            collector_version=fact(export, "EXPORT_PRODUCT_VERSION"),
            schema_version=fact(export, "EXPORT_SCHEMA_VERSION"),
            captured_utc=self._start_time(),
            gpu=_list_gpus(tables.get("devices", empty("devices"))),
            driver=fact(system, "NvDriverVersion"),
            cuda=cuda_version(fact(system, "CudaDriverVersion")),
            cpu=fact(system, "CpuDescription"),
            os=fact(system, "OsDescription"),
        )

    def _start_time(self) -> str:
        table = "TARGET_INFO_SESSION_START_TIME"
        if "utcEpochNs" not in self.database.columns.get(table, ()):
            return ""
        rows = self.database.fetch(table, {"ns": "utcEpochNs"})["ns"].to_pylist()
        if not rows or not isinstance(rows[0], int) or rows[0] <= 0:
            return ""
        seconds = rows[0] // 10**9
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _kernels(export: _Export) -> Frame:
    columns = {
        "name_id": "demangledName",
        "short_id": "shortName",
        "grid_x": "gridX",
        "grid_y": "gridY",
        "grid_z": "gridZ",
        "block_x": "blockX",
        "block_y": "blockY",
        "block_z": "blockZ",
        "registers": "registersPerThread",
        "static_shared_bytes": "staticSharedMemory",
        "dynamic_shared_bytes": "dynamicSharedMemory",
        "graph_node": "graphNodeId",
    }
    nullable = ("graph_node", "registers", "static_shared_bytes", "dynamic_shared_bytes")
    frame = export.on_stream(KERNEL, columns, nullable=nullable)
    return frame.assign(name=export.text(frame["name_id"]), short_name=export.text(frame["short_id"]))


def _memory_ops(export: _Export) -> Frame:
    parts = []
    if MEMCPY in export.database.columns:
        columns = {
            "bytes": "bytes",
            "copy": "copyKind",
            "source": "srcKind",
            "target": "dstKind",
            "graph_node": "graphNodeId",
        }
        copies = export.on_stream(MEMCPY, columns, nullable=("graph_node",))
        operation = label(copies["copy"], COPY_OPERATIONS)
        parts.append(copies.assign(operation=operation))
    if MEMSET in export.database.columns:
        columns = {"bytes": "bytes", "target": "memKind", "graph_node": "graphNodeId"}
        sets = export.on_stream(MEMSET, columns, nullable=("graph_node", "target"))
        parts.append(sets.assign(operation="memset", source=None))
    frame = pd.concat(parts, ignore_index=True)
    kinds = {f"{end}_kind": label(frame[end], MEMORY_KINDS) for end in ("source", "target")}
    return frame.assign(**kinds)


def _graph_launches(export: _Export) -> Frame:
    return export.on_stream(GRAPH, {"graph": "graphId"})


def _syncs(export: _Export) -> Frame:
    return export.on_stream(SYNC, {"kind": "syncType"})


def _api_calls(export: _Export) -> Frame:
    columns = {
        "start_ns": "start",
        "end_ns": "end",
        "thread": "globalTid",
        "correlation": "correlationId",
        "name_id": "nameId",
        "class": "eventClass",
    }
    frame = export.spans(RUNTIME, columns, nullable=("class", "correlation"))
    layer = label(frame["class"], {0: "runtime", 1: "driver"})
    return _with_ids(frame).assign(name=export.text(frame["name_id"]), layer=layer)


def _ranges(export: _Export) -> Frame:
    columns = {
        "start_ns": "start",
        "end_ns": "end",
        "thread": "globalTid",
        "end_thread": "endGlobalTid",
        "type": "eventType",
        "text_id": "textId",
        "domain_id": "domainId",
    }
    frame = export.fetch(NVTX, columns, nullable=("end_ns", "text_id", "end_thread", "domain_id"))
    frame = frame.assign(name=_range_names(export, frame))
    last = int(max(frame["start_ns"].max(), frame["end_ns"].fillna(0).max())) if len(frame) else 0
    domains = _domain_names(frame)
    frame = frame[frame["type"].isin(list(RANGE_STYLES))]
    frame = frame.assign(is_open=frame["end_ns"].isna(), end_ns=frame["end_ns"].fillna(last))
    frame = export.keep_possible(NVTX, frame)
    frame = _with_ids(frame.assign(style=label(frame["type"], RANGE_STYLES)))
    keys = pd.MultiIndex.from_arrays([frame["process"], frame["domain_id"].fillna(0)])
    return frame.assign(domain=domains.reindex(keys).fillna("").to_numpy())


def _range_names(export: _Export, events: Frame) -> np.ndarray[Any, Any]:
    """Take a name from StringIds where it is registered (the nvtx package does), else inline (torch.cuda.nvtx)."""
    registered = np.asarray(export.text(events["text_id"]))
    if "text" not in export.database.columns[NVTX]:
        return registered
    inline = np.array(export.database.texts(NVTX, "text"), dtype=object)[events.index]
    return np.where(events["text_id"].notna(), registered, inline)


def _domain_names(events: Frame) -> "pd.Series[str]":
    """Name each (process, domain): NVTX_EVENTS names a domain in the row that created it."""
    created = events[events["type"] == DOMAIN_CREATE].sort_values("start_ns", kind="stable")
    process = created["thread"].to_numpy(dtype=np.int64) & _OF_PROCESS
    index = pd.MultiIndex.from_arrays([process, created["domain_id"].fillna(0)])
    names = pd.Series(created["name"].to_numpy(dtype=object), index=index, dtype=object)
    return names[~names.index.duplicated()]


def _devices(export: _Export) -> Frame:
    source = "TARGET_INFO_GPU"
    columns = {
        "device": "id",
        "multiprocessors": "smCount",
        "memory_bytes": "totalMemory",
        "l2_bytes": "l2CacheSize",
        "memory_bandwidth_bytes_per_s": "memoryBandwidth",
        "clock_hz": "clockRate",
        "major": "computeMajor",
        "minor": "computeMinor",
    }
    frame = export.fetch(source, columns, nullable=columns.keys() - {"device"})
    names = np.array(export.database.texts(source, "name"), dtype=object)[frame.index]
    capability = frame["major"].astype("str") + "." + frame["minor"].astype("str")
    return frame.assign(name=names, compute_capability=capability.where(frame["major"].notna(), ""))


def _diagnostics(export: _Export) -> Frame:
    source = "DIAGNOSTIC_EVENT"
    frame = export.fetch(source, {"time_ns": "timestamp", "severity": "severity"})
    texts = np.array([without_private(text) for text in export.database.texts(source, "text")], dtype=object)
    return frame.assign(severity=label(frame["severity"], SEVERITIES), text=texts[frame.index])


def _overheads(export: _Export) -> Frame:
    columns = {"start_ns": "start", "end_ns": "end", "thread": "globalTid", "name_id": "nameId"}
    frame = export.spans("PROFILER_OVERHEAD", columns)
    return _with_ids(frame).assign(name=export.text(frame["name_id"]))


_Reader = tuple[tuple[str, ...], str, str, Callable[[_Export], Frame]]
_NO_CUDA: Final = "CUDA tracing was off (nsys profile --trace=cuda)"
_NO_NVTX: Final = "NVTX tracing was off (nsys profile --trace=nvtx)"
_UNKNOWN: Final = "this export does not hold them, and does not say whether they were traced"
# table: its sources, the trace that fills it (as META_DATA_CAPTURE names it; "" = always), why it may be missing
_READERS: Final[Mapping[str, _Reader]] = {
    "kernels": ((KERNEL,), "Cuda", _NO_CUDA, _kernels),
    "memory_ops": ((MEMCPY, MEMSET), "Cuda", _NO_CUDA, _memory_ops),
    "graph_launches": ((GRAPH,), "Cuda", _NO_CUDA, _graph_launches),
    "api_calls": ((RUNTIME,), "Cuda", _NO_CUDA, _api_calls),
    "syncs": ((SYNC,), "Cuda", _NO_CUDA, _syncs),
    "ranges": ((NVTX,), "NvtxEvents", _NO_NVTX, _ranges),
    "devices": (("TARGET_INFO_GPU",), "never", "this export names no GPU", _devices),
    "diagnostics": (("DIAGNOSTIC_EVENT",), "", "", _diagnostics),
    "overheads": (("PROFILER_OVERHEAD",), "", "", _overheads),
}
_EXPORT_TABLES: Final = frozenset(
    {source for sources, *_ in _READERS.values() for source in sources} | {"META_DATA_EXPORT", "EXPORT_META_DATA"}
)


def _to_frame(table: pa.Table) -> Frame:
    """Integers become int64 where none is NULL, else Arrow-backed; a column that is all NULL is of no use as text."""
    series = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count == 0:
            series[name] = pd.Series(column.to_numpy(zero_copy_only=False))
        else:
            series[name] = pd.Series(column, dtype=pd.ArrowDtype(column.type))
    return pd.DataFrame(series, copy=False)


def _with_ids(frame: Frame) -> Frame:
    """Split the global thread id: bits 0-23 are the thread, 24-47 the process (NVIDIA's export documentation)."""
    thread = frame["thread"].to_numpy(dtype=np.int64)
    return frame.assign(thread=thread, process=thread & _OF_PROCESS, pid=thread >> 24 & 0xFFFFFF, tid=thread & 0xFFFFFF)


def _list_gpus(devices: Frame) -> str:
    counts = devices["name"].astype("str").value_counts(sort=False)
    return ", ".join(f"{name}" if count == 1 else f"{count} × {name}" for name, count in counts.items())


def _nameless(count: int) -> Finding:
    return Finding(
        rule="damaged_names",
        severity="warning",
        title=f"{count:,} names of this export are missing",
        detail="Kernels, calls or ranges refer to them; they are shown without a name, and summed up together.",
        remedy="Export the report again, without --tables.",
    )


def _damaged(source: str, count: int, total: int) -> Finding:
    return Finding(
        rule="damaged_events",
        severity="warning",
        title=f"{count:,} of {total:,} rows of {source} were left out",
        detail="Their start or end is missing, negative or in the wrong order, so no time can be computed from them.",
        remedy="Capture again; if it happens again, the profiler lost or mixed up events.",
    )
