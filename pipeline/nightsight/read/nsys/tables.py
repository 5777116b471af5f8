"""Reads nsys SQLite exports of all schema versions into canonical tables.

The tables and columns that an export has decide how it is read, not its version.
"""

import copy
import datetime as dt
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.captures import EXPORT_AGAIN
from nightsight.errors import CaptureError
from nightsight.model.report import Environment, Profile
from nightsight.read.nsys import memory as nsys_memory
from nightsight.read.nsys.export import KERNEL, NVTX, OF_PROCESS, RUNTIME, Export
from nightsight.read.nsys.nvtx import ranges_and_marks, with_ids
from nightsight.read.sqlite import Database
from nightsight.read.vocabulary import (
    COPY_OPERATIONS,
    MEMORY_KINDS,
    OS_CALL,
    SEVERITIES,
    cuda_version,
    label,
    list_gpus,
)
from nightsight.system.parallel import thread_map
from nightsight.tables import (
    NO_RANKS,
    NOT_COMPILED,
    NOT_REPLAYED,
    OF_COMPILER,
    OF_REPLAY,
    RESOURCES,
    Details,
    Frame,
    conform,
    detail_columns,
    empty,
)
from nightsight.texts import without_private

MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
NODES: Final = "CUDA_GRAPH_NODE_EVENTS"
_SESSION: Final = "TARGET_INFO_SESSION_START_TIME"
_EVENT: Final = {"event": "eventId", "record": "eventSyncId"}
_NO_EVENT: Final = (1 << 32) - 1
_GRAPH_NODE: Final = "graphNodeId"

# the usual size of a row of an export, with its share of indices and texts
_ROW_BYTES: Final = 50
_KERNEL_DETAILS: Final = {
    "grid_x": "gridX",
    "grid_y": "gridY",
    "grid_z": "gridZ",
    "block_x": "blockX",
    "block_y": "blockY",
    "block_z": "blockZ",
    "registers": "registersPerThread",
    "static_shared_bytes": "staticSharedMemory",
    "dynamic_shared_bytes": "dynamicSharedMemory",
    "green_context": "greenContextId",
}
_KERNEL_NAMES: Final = {"short_name": "shortName", "mangled_name": "mangledName"}
_NULLABLE_DETAILS: Final = ("graph_node", "green_context", "mangled_name_id", *RESOURCES)


def read_nsys(path: Path, *, details: Details = True) -> Profile:
    """Read an nsys SQLite export; CaptureError if it is not one, is damaged or lacks a required column.

    Of the columns in DETAILS of nightsight.tables, only those in `details` are read.
    """
    database = Database(path)
    refuse_foreign(database)
    # `nsys export --lazy=false` also writes tables without rows, which mean the same as absent tables
    for table in database.without_rows():
        del database.columns[table]
    return _profile(Export(database, details=details))


def refuse_foreign(database: Database) -> None:
    """Raise CaptureError unless a database has a table of nsys, or if a view replaces one."""
    if views := sorted(database.computed & {*_EXPORT_TABLES, "StringIds"}):
        raise CaptureError(
            f"{database.path.name}: {views[0]} is a view or a virtual table, which nsys does not write", EXPORT_AGAIN
        )
    if not _EXPORT_TABLES & database.columns.keys():
        raise CaptureError(
            f"{database.path.name} is an SQLite file but not an nsys export: it has none of the tables of nsys",
            "Make one with: nsys export --type sqlite REPORT.nsys-rep",
        )


def _profile(export: Export) -> Profile:
    tables: dict[str, Frame] = {}
    missing = {
        "cpu_ops": _NO_OPERATORS,
        **dict.fromkeys(OF_COMPILER, NOT_COMPILED),
        **dict.fromkeys(OF_REPLAY, NOT_REPLAYED),
    }
    present = [name for name, reader in _READERS.items() if set(reader.sources) & export.database.columns.keys()]
    # SQLite can serve several threads at a time; if the largest tables come first, all are done at about the same time
    present.sort(key=lambda name: _LARGEST.index(name) if name in _LARGEST else len(_LARGEST))
    rows = export.database.path.stat().st_size // _ROW_BYTES
    parts = dict(zip(present, thread_map(lambda name: _read(export, name), present, rows=rows), strict=True))
    for name, reader in _READERS.items():
        if name in parts:
            tables_of_part, part = parts[name]
            tables |= tables_of_part
            export.add_findings(part)
        elif name in tables:
            continue
        elif _was_traced(export, reader.trace):
            tables[name] = conform(name, empty(name), details=export.details)
        else:
            is_known = reader.why_missing and (export.traced or reader.trace == "never")
            missing[name] = reader.why_missing if is_known else _UNKNOWN
    missing = {name: why for name, why in missing.items() if name not in tables}
    # one of the two tables about Python is enough
    missing["python_functions"] = missing.get("python_samples", "nsys does not record calls of Python functions")
    tables["unread"] = conform("unread", _unread(export.database, tables.get("unread", empty("unread"))))
    if export.untimed:
        tables["untimed"] = pd.concat([conform("untimed", part) for part in export.untimed], ignore_index=True)
    epoch_ns = _epoch(export)
    environment, findings = _environment(export, tables, epoch_ns), export.all_findings()
    return Profile(tables, missing, environment, findings, epoch_ns=epoch_ns, ahead_ns=_ahead(export))


def _unread(database: Database, unread_rows: Frame) -> Frame:
    """Count the rows of tables that no reader used, and add the rows that readers left out."""
    unread = sorted(table for table in database.columns.keys() - database.asked if not _LOOKUPS.fullmatch(table))
    rows = pd.DataFrame({"source": unread, "events": [database.last_row(table) for table in unread]})
    rows = rows.assign(kind=rows["source"].map(lambda table: _UNREAD_KINDS.get(table, table)))
    rows = pd.concat([rows, unread_rows.astype({"kind": "str", "source": "str"})])
    return rows[rows["events"] > 0].sort_values("events", ascending=False, kind="stable")


def _read(export: Export, name: str) -> tuple[dict[str, Frame], Export]:
    """Read a canonical table and any tables read with it; also return the partial export with its findings."""
    part = copy.copy(export)
    part.findings, part.unresolved, part.untimed = [], set(), []
    frames = _READERS[name].read(part)
    if isinstance(frames, Frame):
        frames = {name: frames}
    tables = {table: conform(table, frame, details=export.details) for table, frame in frames.items()}
    if "kernels" in tables and not _has_graph_nodes(export):
        tables["kernels"] = tables["kernels"].drop(columns="graph_node")
    return tables, part


def _has_graph_nodes(export: Export) -> bool:
    """Whether the export shows which kernels a CUDA graph launched; exports before 2022 do not."""
    return _GRAPH_NODE in export.database.columns[KERNEL]


def _was_traced(export: Export, trace: str) -> bool:
    """Whether a missing table means that no such event happened: nsys does not write empty tables.

    Exports before 2024 do not list what was traced; there, any CUDA table shows that CUDA was.
    """
    if not trace or trace in export.database.columns:
        return True
    if export.traced:
        return trace in export.traced
    return trace == "Cuda" and bool({KERNEL, RUNTIME, MEMCPY} & export.database.columns.keys())


def _environment(export: Export, tables: Mapping[str, Frame], epoch_ns: int | None) -> Environment:
    system = export.metadata("TARGET_INFO_SYSTEM_ENV")
    exported = export.metadata("META_DATA_EXPORT", "EXPORT_META_DATA")
    captured = None if epoch_ns is None else dt.datetime.fromtimestamp(epoch_ns // 10**9, dt.UTC)

    def fact(source: Mapping[str, list[str]], name: str) -> str:
        return source.get(name, [""])[0]

    return Environment(
        collector="nsys",
        collector_version=fact(exported, "EXPORT_PRODUCT_VERSION"),
        schema_version=fact(exported, "EXPORT_SCHEMA_VERSION"),
        captured_utc=f"{captured:%Y-%m-%d %H:%M:%S}" if captured else "",
        gpu=list_gpus(tables),
        driver=fact(system, "NvDriverVersion"),
        cuda=cuda_version(fact(system, "CudaDriverVersion")),
        cpu=fact(system, "CpuDescription"),
        os=fact(system, "OsDescription"),
    )


def _epoch(export: Export) -> int | None:
    """Return the UTC time of time 0 in ns: the start of the session."""
    (start,) = _session_start(export, "utcEpochNs")
    return start if isinstance(start, int) and start > 0 else None


def _ahead(export: Export) -> int | None:
    """Return how far the wall clock of the machine was ahead of UTC in ns."""
    texts = _session_start(export, "localTime", "utcTime")
    try:
        local, utc = (dt.datetime.fromisoformat(str(text)) for text in texts)
        return round((local - utc).total_seconds()) * 10**9
    except (ValueError, TypeError):
        return None


def _session_start(export: Export, *columns: str) -> list[object]:
    """Return what the export says of the start of the session; None for what it lacks."""
    if not set(columns) <= set(export.database.columns.get(_SESSION, ())):
        return [None] * len(columns)
    rows = export.database.fetch(_SESSION, {name: name for name in columns}).to_pylist()
    return [rows[0][name] if rows else None for name in columns]


def _export_kernels(export: Export) -> Frame:
    details = detail_columns("kernels", export.details)
    columns = {"name_id": "demangledName", "graph_node": _GRAPH_NODE}
    columns |= {ours: theirs for ours, theirs in _KERNEL_DETAILS.items() if ours in details}
    columns |= {f"{name}_id": theirs for name, theirs in _KERNEL_NAMES.items() if name in details}
    frame = export.on_stream(KERNEL, columns, nullable=_NULLABLE_DETAILS)
    names = {"name": frame["name_id"]}
    names |= {name: frame[f"{name}_id"].fillna(frame["name_id"]) for name in _KERNEL_NAMES if name in details}
    frame = frame.assign(**{name: export.text(ids) for name, ids in names.items()})
    if _has_graph_nodes(export):
        export.check_launches(frame)
    return frame


def _memory_ops(export: Export) -> Frame:
    parts = []
    if MEMCPY in export.database.columns:
        columns = {
            "bytes": "bytes",
            "copy": "copyKind",
            "source": "srcKind",
            "target": "dstKind",
            "graph_node": _GRAPH_NODE,
            "green_context": "greenContextId",
            "address": "virtualAddress",
        }
        copies = export.on_stream(MEMCPY, columns, nullable=("graph_node", "green_context", "address"))
        parts.append(copies.assign(operation=label(copies["copy"], COPY_OPERATIONS)))
    if MEMSET in export.database.columns:
        columns = {
            "bytes": "bytes",
            "target": "memKind",
            "graph_node": _GRAPH_NODE,
            "green_context": "greenContextId",
        }
        sets = export.on_stream(MEMSET, columns, nullable=("graph_node", "green_context", "target"))
        parts.append(sets.assign(operation="memset", source=None))
    frame = pd.concat(parts, ignore_index=True)
    kinds = {f"{end}_kind": label(frame[end], MEMORY_KINDS) for end in ("source", "target")}
    return frame.assign(**kinds)


def _graph_launches(export: Export) -> Frame:
    return export.on_stream(GRAPH, {"graph": "graphId"})


def _syncs(export: Export) -> Frame:
    return _with_event(export.on_stream(SYNC, {"kind": "syncType", **_EVENT}, nullable=tuple(_EVENT)))


def _event_records(export: Export) -> Frame:
    columns = {"process": "globalPid", "stream": "streamId", "correlation": "correlationId", **_EVENT}
    frame = export.fetch(EVENT, columns, nullable=("correlation", "event", "record"))
    return _with_event(frame.assign(process=frame["process"] & OF_PROCESS))


def _graph_nodes(export: Export) -> Frame:
    columns = {"thread": "globalTid", "node": _GRAPH_NODE, "original": "originalGraphNodeId"}
    if not {"start", "end", "globalTid", _GRAPH_NODE} <= export.database.columns[NODES]:
        # without them, kernels belong to the launch of their graph
        return empty("graph_nodes")
    nodes = export.fetch(NODES, {"start_ns": "start", "end_ns": "end", **columns}, nullable=("thread", "original"))
    # nsys lists nodes that were made before the recording, too, with negative times
    nodes = export.keep_possible(NODES, nodes[(nodes["start_ns"] >= 0).to_numpy(dtype=bool)])
    return with_ids(nodes[nodes["thread"].notna()])


def _with_event(frame: Frame) -> Frame:
    """Replace nsys's id of no event by missing values."""
    return frame.assign(**{name: frame[name].mask(frame[name] == _NO_EVENT) for name in _EVENT})


def _api_calls(export: Export) -> Frame:
    columns = {"thread": "globalTid", "correlation": "correlationId", "name_id": "nameId", "class": "eventClass"}
    if "status" in detail_columns("api_calls", export.details):
        columns["status"] = "returnValue"
    frame = export.spans(RUNTIME, columns, nullable=("class", "correlation", "status"))
    frame = with_ids(export.without_repeats(RUNTIME, frame))
    export.check_ids(frame)
    layer = label(frame["class"], {0: "runtime", 1: "driver"})
    return frame.assign(name=export.text(frame["name_id"]), layer=layer)


def _export_devices(export: Export) -> Frame:
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
    # older exports have no such column, and zeros do not identify a GPU
    has_uuid = "uuid" in export.database.columns[source]
    uuids = [text if text.strip("0-") else "" for text in export.database.texts(source, "uuid")] if has_uuid else []
    uuid = np.array(uuids, dtype=object)[frame.index] if has_uuid else ""
    return frame.assign(name=names, uuid=uuid, compute_capability=capability.where(frame["major"].notna(), ""))


def _diagnostics(export: Export) -> Frame:
    source = "DIAGNOSTIC_EVENT"
    frame = export.fetch(source, {"time_ns": "timestamp", "severity": "severity"})
    texts = np.array([without_private(text) for text in export.database.texts(source, "text")], dtype=object)
    return frame.assign(severity=label(frame["severity"], SEVERITIES), text=texts[frame.index])


def _overheads(export: Export) -> Frame:
    frame = export.spans("PROFILER_OVERHEAD", {"thread": "globalTid", "name_id": "nameId"})
    return with_ids(frame).assign(name=export.text(frame["name_id"]))


def _threads(export: Export) -> Frame:
    columns = {"thread": "globalTid", "name_id": "nameId", "priority": "priority"}
    frame = export.fetch("ThreadNames", columns, nullable=("priority",))
    return frame.assign(name=export.text(frame["name_id"]))


def _os_calls(export: Export) -> Frame:
    frame = export.spans("OSRT_API", {"thread": "globalTid", "name_id": "nameId", "class": "eventClass"})
    frame = frame[frame["class"] == OS_CALL]
    return with_ids(frame).assign(name=export.text(frame["name_id"]))


def _cpu_page_faults(export: Export) -> Frame:
    columns = {
        "time_ns": "start",
        "process": "globalPid",
        "address": "address",
        "instruction_id": "CpuInstruction",
        "file_id": "sourceFile",
        "source_line": "sourceLine",
    }
    frame = export.fetch("CUDA_UM_CPU_PAGE_FAULT_EVENTS", columns, nullable=("file_id", "source_line"))
    return frame.assign(instruction=export.text(frame["instruction_id"]), source_file=export.text(frame["file_id"]))


def _gpu_page_faults(export: Export) -> Frame:
    columns = {"process": "globalPid", "ordinal": "deviceId", "address": "address", "faults": "numberOfPageFaults"}
    frame = export.spans("CUDA_UM_GPU_PAGE_FAULT_EVENTS", columns)
    return frame.assign(device=export.devices(frame))


# lookup tables, and tables about nsys itself
_LOOKUPS: Final = re.compile(
    r"StringIds|ProcessStreams|PROCESSES|ThreadNames|(?:ANALYSIS|ENUM|EXPORT|META_DATA|NVTX_PAYLOAD|TARGET_INFO)_\w+|"
    r"sqlite_\w+"
)
# names of tables that are not read; other tables have the name in the export
_UNREAD_KINDS: Final = {
    "COMPOSITE_EVENTS": "CPU samples",
    "SAMPLING_CALLCHAINS": "stack frames of CPU samples",
    "SCHED_EVENTS": "thread scheduling events",
    "OSRT_CALLCHAINS": "stack frames of OS runtime calls",
    "OSRT_FILE_ACCESS_EVENTS": "file accesses",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "spans of CUPTI overhead",
    "CUBLAS_EVENTS": "cuBLAS calls",
    "CUDNN_EVENTS": "cuDNN calls",
    "GPU_CONTEXT_SWITCH_EVENTS": "GPU context switches",
}


class _Reader(NamedTuple):
    """How a canonical table is read.

    sources: tables of the export. trace: the trace that fills them (as in META_DATA_CAPTURE), or a table that is
    present whenever they were traced; "" = always, "never" = unknown. why_missing: the reason if they were not traced.
    """

    sources: tuple[str, ...]
    trace: str
    why_missing: str
    read: Callable[[Export], Frame | dict[str, Frame]]


_NO_CUDA: Final = "CUDA tracing was off (nightsight profile --trace cuda,nvtx; nsys profile --trace=cuda)"
_NO_NVTX: Final = "NVTX tracing was off (nightsight profile --trace cuda,nvtx; nsys profile --trace=nvtx)"
_NO_OPERATORS: Final = (
    "PyTorch's operators were not named (nightsight profile --names shapes; nsys profile "
    "--pytorch=autograd-shapes-nvtx)"
)
_NO_OS: Final = "OS runtime tracing was off (nightsight profile --trace cuda,nvtx,osrt; nsys profile --trace=osrt)"
_NO_FAULTS: Final = (
    "page faults were not recorded (nightsight profile --page-faults; nsys profile --cuda-um-cpu-page-faults=true "
    "--cuda-um-gpu-page-faults=true)"
)
_NO_USAGE: Final = (
    "no memory usage was recorded (nightsight profile --memory-usage; nsys profile --cuda-memory-usage=true)"
)
_NO_METRICS: Final = (
    "the GPU was not sampled (nightsight profile --gpu-metrics; nsys profile --gpu-metrics-devices=all)"
)
_NO_COLLECTIVES: Final = (
    "the program called no collective of NCCL, or the export lacks the arguments of its calls (nsys export "
    "--include-json=true)"
)
_NO_RECORDS: Final = "no CUDA event was recorded, or events were not traced (nsys profile --cuda-event-trace=true)"
_NO_NODES: Final = (
    "no CUDA graph was made during the recording, or graphs were traced as a whole (nsys profile "
    "--cuda-graph-trace=node)"
)
_NO_STACKS: Final = (
    "no stacks were recorded (nightsight profile --python-backtrace; nsys profile --python-backtrace=cuda)"
)
_NO_SAMPLES: Final = (
    "Python was not sampled (nightsight profile --names python; nsys profile "
    "--python-sampling=true), or exported without its stacks (nsys export --include-json=true)"
)
_UNKNOWN: Final = "this export does not have them, and does not say whether they were traced"
_READERS: Final[Mapping[str, _Reader]] = {
    "kernels": _Reader((KERNEL,), "Cuda", _NO_CUDA, _export_kernels),
    "memory_ops": _Reader((MEMCPY, MEMSET), "Cuda", _NO_CUDA, _memory_ops),
    "graph_launches": _Reader((GRAPH,), "Cuda", _NO_CUDA, _graph_launches),
    "api_calls": _Reader((RUNTIME,), "Cuda", _NO_CUDA, _api_calls),
    "syncs": _Reader((SYNC,), "Cuda", _NO_CUDA, _syncs),
    "event_records": _Reader((EVENT,), "never", _NO_RECORDS, _event_records),
    "graph_nodes": _Reader((NODES,), "never", _NO_NODES, _graph_nodes),
    "ranges": _Reader((NVTX,), "NvtxEvents", _NO_NVTX, ranges_and_marks),
    # the following have no sources, since they are read with the ranges
    "marks": _Reader((), "NvtxEvents", _NO_NVTX, ranges_and_marks),
    "python_samples": _Reader((), "never", _NO_SAMPLES, ranges_and_marks),
    "collectives": _Reader((), "never", _NO_COLLECTIVES, ranges_and_marks),
    "ranks": _Reader((), "never", NO_RANKS, ranges_and_marks),
    "threads": _Reader(("ThreadNames",), "never", "this export names no threads", _threads),
    "os_calls": _Reader(("OSRT_API",), "OSRuntime", _NO_OS, _os_calls),
    "cpu_page_faults": _Reader(("CUDA_UM_CPU_PAGE_FAULT_EVENTS",), "never", _NO_FAULTS, _cpu_page_faults),
    "gpu_page_faults": _Reader(("CUDA_UM_GPU_PAGE_FAULT_EVENTS",), "never", _NO_FAULTS, _gpu_page_faults),
    "memory_usage": _Reader((nsys_memory.USAGE,), "never", _NO_USAGE, nsys_memory.memory_usage),
    "gpu_metrics": _Reader((nsys_memory.METRICS,), "never", _NO_METRICS, nsys_memory.gpu_metrics),
    "call_frames": _Reader((nsys_memory.STACKS,), "never", _NO_STACKS, nsys_memory.call_frames),
    "devices": _Reader(("TARGET_INFO_GPU",), "never", "this export names no GPU", _export_devices),
    "diagnostics": _Reader(("DIAGNOSTIC_EVENT",), "META_DATA_EXPORT", "", _diagnostics),
    "overheads": _Reader(("PROFILER_OVERHEAD",), "", "", _overheads),
}
# those that take longest to read, if there are any
_LARGEST: Final = ("os_calls", "api_calls", "kernels", "ranges")
_EXPORT_TABLES: Final = frozenset(
    {source for reader in _READERS.values() for source in reader.sources} | {"META_DATA_EXPORT", "EXPORT_META_DATA"}
)
