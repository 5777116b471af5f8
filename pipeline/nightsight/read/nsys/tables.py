"""Reads nsys SQLite exports of all schema versions: looks at the tables and columns present, not at the version."""

import copy
import datetime as dt
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from nightsight.errors import CaptureError
from nightsight.model.report import Environment, Profile
from nightsight.read.nsys import memory as nsys_memory
from nightsight.read.nsys.export import KERNEL, OF_PROCESS, RUNTIME, Export
from nightsight.read.nsys.nvtx import NVTX, ranges_and_marks, with_ids
from nightsight.read.sqlite import AGAIN, Database
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
from nightsight.tables import NO_RANKS, NOT_REPLAYED, OF_REPLAY, RESOURCES, Details, conform, detail_columns, empty
from nightsight.texts import without_private

MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_EVENT: Final = {"event": "eventId", "record": "eventSyncId"}
_NO_EVENT: Final = (1 << 32) - 1
_GRAPH_NODE: Final = "graphNodeId"

# about as long is a row of an export, with its share of indices and texts
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

Frame = pd.DataFrame


def read_nsys(path: Path, *, details: Details = True) -> Profile:
    """Read an nsys SQLite export; CaptureError if it is not one, is damaged or lacks a required column.

    Of the columns in DETAILS of nightsight.tables, only those in `details` are read.
    """
    database = Database(path)
    refuse_foreign(database)
    # `nsys export --lazy=false` writes all tables that it knows: one without rows tells nothing, as one that is absent
    for table in database.without_rows():
        del database.columns[table]
    return _profile(Export(database, details=details))


def refuse_foreign(database: Database) -> None:
    """Raise CaptureError unless a database has a table of nsys, or if it has a view in place of one."""
    if strange := sorted(database.computed & {*_EXPORT_TABLES, "StringIds"}):
        raise CaptureError(
            f"{database.path.name}: {strange[0]} is a view or a virtual table, which nsys does not write", AGAIN
        )
    if not _EXPORT_TABLES & database.columns.keys():
        raise CaptureError(
            f"{database.path.name} is an SQLite file but not an nsys export: it has none of the tables of nsys",
            "Make one with: nsys export --type sqlite REPORT.nsys-rep",
        )


def _profile(export: Export) -> Profile:
    tables: dict[str, Frame] = {}
    missing = {"cpu_ops": _NO_OPERATORS}
    missing |= dict.fromkeys(OF_REPLAY, NOT_REPLAYED)
    present = [name for name, reader in _READERS.items() if set(reader[0]) & export.database.columns.keys()]
    # SQLite can serve several threads at a time; calls take longest, so that other tables are read beside them
    first = sorted(present, key=lambda name: name != "api_calls")
    rows = export.database.path.stat().st_size // _ROW_BYTES
    parts = dict(zip(first, thread_map(lambda name: _read(export, name), first, rows=rows), strict=True))
    for name, (_, event, option, _) in _READERS.items():
        if name in parts:
            found, part = parts[name]
            tables |= found
            export.add_findings(part)
        elif name in tables:
            continue
        elif _was_traced(export, event):
            tables[name] = conform(name, empty(name), details=export.details)
        else:
            missing[name] = option if option and (export.traced or event == "never") else _UNKNOWN
    missing = {name: why for name, why in missing.items() if name not in tables}
    # of Python, either of the two is enough
    missing["python_functions"] = missing.get("python_samples", "nsys does not record calls of Python functions")
    tables["unread"] = conform("unread", _unread(export.database, tables.get("unread", empty("unread"))))
    if export.untimed:
        lost = [conform("untimed", rows) for rows in export.untimed]
        tables["untimed"] = pd.concat(lost, ignore_index=True)
    environment, epoch_ns = _environment(export, tables), _epoch(export)
    return Profile(tables, missing, environment, export.all_findings(), epoch_ns=epoch_ns)


def _unread(database: Database, rows_of_tables: Frame) -> Frame:
    """Count the rows of tables that no reader asked for, and add what readers left out of others."""
    others = sorted(table for table in database.columns.keys() - database.asked if not _LOOKUPS.fullmatch(table))
    rows = pd.DataFrame({"source": others, "events": [database.last_row(table) for table in others]})
    rows = rows.assign(kind=rows["source"].map(lambda table: _KINDS.get(table, table)))
    rows = pd.concat([rows, rows_of_tables.astype({"kind": "str", "source": "str"})])
    return rows[rows["events"] > 0].sort_values("events", ascending=False, kind="stable")


def _read(export: Export, name: str) -> tuple[dict[str, Frame], Export]:
    """Read a canonical table and any tables read with it; also return the partial export with its findings."""
    part = copy.copy(export)
    part.findings, part.unresolved, part.untimed = [], set(), []
    found = _READERS[name][3](part)
    frames = {name: found} if isinstance(found, Frame) else found
    tables = {table: conform(table, frame, details=export.details) for table, frame in frames.items()}
    if "kernels" in tables and not _tells_graphs(export):
        tables["kernels"] = tables["kernels"].drop(columns="graph_node")
    return tables, part


def _tells_graphs(export: Export) -> bool:
    """Whether the export says which kernels a CUDA graph launched; exports before 2022 do not."""
    return _GRAPH_NODE in export.database.columns[KERNEL]


def _was_traced(export: Export, event: str) -> bool:
    """Whether a missing table means that no such event happened: nsys does not write empty tables.

    Exports before 2024 do not say what was traced; there, any CUDA table shows that CUDA was.
    """
    if not event or event in export.database.columns:
        return True
    if export.traced:
        return event in export.traced
    return event == "Cuda" and bool({KERNEL, RUNTIME, MEMCPY} & export.database.columns.keys())


def _environment(export: Export, tables: Mapping[str, Frame]) -> Environment:
    system = export.metadata("TARGET_INFO_SYSTEM_ENV")
    exported = export.metadata("META_DATA_EXPORT", "EXPORT_META_DATA")

    def fact(source: Mapping[str, list[str]], name: str) -> str:
        return source.get(name, [""])[0]

    return Environment(
        collector="nsys",
        collector_version=fact(exported, "EXPORT_PRODUCT_VERSION"),
        schema_version=fact(exported, "EXPORT_SCHEMA_VERSION"),
        captured_utc=_start_time(export),
        gpu=list_gpus(tables),
        driver=fact(system, "NvDriverVersion"),
        cuda=cuda_version(fact(system, "CudaDriverVersion")),
        cpu=fact(system, "CpuDescription"),
        os=fact(system, "OsDescription"),
    )


def _start_time(export: Export) -> str:
    epoch_ns = _epoch(export)
    return "" if epoch_ns is None else f"{dt.datetime.fromtimestamp(epoch_ns // 10**9, dt.UTC):%Y-%m-%d %H:%M:%S}"


def _epoch(export: Export) -> int | None:
    """Return the UTC time, in ns, from which times count: the start of the session."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if "utcEpochNs" not in export.database.columns.get(table, ()):
        return None
    rows = export.database.fetch(table, {"ns": "utcEpochNs"})["ns"].to_pylist()
    return rows[0] if rows and isinstance(rows[0], int) and rows[0] > 0 else None


def _kernels(export: Export) -> Frame:
    details = detail_columns("kernels", export.details)
    columns = {"name_id": "demangledName", "graph_node": _GRAPH_NODE}
    columns |= {ours: theirs for ours, theirs in _KERNEL_DETAILS.items() if ours in details}
    columns |= {f"{name}_id": theirs for name, theirs in _KERNEL_NAMES.items() if name in details}
    frame = export.on_stream(KERNEL, columns, nullable=_NULLABLE_DETAILS)
    ids = {name: frame[f"{name}_id"].fillna(frame["name_id"]) for name in _KERNEL_NAMES if name in details}
    frame = frame.assign(**{name: export.text(texts) for name, texts in {"name": frame["name_id"], **ids}.items()})
    if _tells_graphs(export):
        export.check_launches(KERNEL, frame)
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
        operation = label(copies["copy"], COPY_OPERATIONS)
        parts.append(copies.assign(operation=operation))
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
    frame = export.on_stream(SYNC, {"kind": "syncType", **_EVENT}, nullable=tuple(_EVENT))
    return _with_event(frame)


def _event_records(export: Export) -> Frame:
    columns = {"process": "globalPid", "stream": "streamId", "correlation": "correlationId", **_EVENT}
    frame = export.fetch(EVENT, columns, nullable=("correlation", "event", "record"))
    return _with_event(frame.assign(process=frame["process"] & OF_PROCESS))


def _with_event(frame: Frame) -> Frame:
    """Return missing values where nsys writes that there is no event."""
    return frame.assign(**{name: frame[name].mask(frame[name] == _NO_EVENT) for name in _EVENT})


def _api_calls(export: Export) -> Frame:
    columns = {
        "start_ns": "start",
        "end_ns": "end",
        "thread": "globalTid",
        "correlation": "correlationId",
        "name_id": "nameId",
        "class": "eventClass",
    }
    if "status" in detail_columns("api_calls", export.details):
        columns["status"] = "returnValue"
    every = export.spans(RUNTIME, columns, nullable=("class", "correlation", "status"))
    frame = with_ids(export.without_repeats(RUNTIME, every))
    export.check_ids(RUNTIME, frame)
    layer = label(frame["class"], {0: "runtime", 1: "driver"})
    return frame.assign(name=export.text(frame["name_id"]), layer=layer)


def _devices(export: Export) -> Frame:
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
    # older exports have no such column, and zeros identify nothing
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
    columns = {"start_ns": "start", "end_ns": "end", "thread": "globalTid", "name_id": "nameId"}
    frame = export.spans("PROFILER_OVERHEAD", columns)
    return with_ids(frame).assign(name=export.text(frame["name_id"]))


def _threads(export: Export) -> Frame:
    columns = {"thread": "globalTid", "name_id": "nameId", "priority": "priority"}
    frame = export.fetch("ThreadNames", columns, nullable=("priority",))
    return frame.assign(name=export.text(frame["name_id"]))


def _os_calls(export: Export) -> Frame:
    columns = {"start_ns": "start", "end_ns": "end", "thread": "globalTid", "name_id": "nameId", "class": "eventClass"}
    frame = export.spans("OSRT_API", columns)
    frame = frame[frame["class"] == OS_CALL]
    return with_ids(frame).assign(name=export.text(frame["name_id"]))


def _cpu_page_faults(export: Export) -> Frame:
    source, (process, line) = "CUDA_UM_CPU_PAGE_FAULT_EVENTS", ("process", "source_line")
    columns = {"time_ns": "start", process: "globalPid", "address": "address", "instruction_id": "CpuInstruction"}
    columns |= {"file_id": "sourceFile", line: "sourceLine"}
    frame = export.fetch(source, columns, nullable=("file_id", line))
    return frame.assign(instruction=export.text(frame["instruction_id"]), source_file=export.text(frame["file_id"]))


def _gpu_page_faults(export: Export) -> Frame:
    columns = {"start_ns": "start", "end_ns": "end", "process": "globalPid", "ordinal": "deviceId"}
    columns |= {"address": "address", "faults": "numberOfPageFaults"}
    frame = export.spans("CUDA_UM_GPU_PAGE_FAULT_EVENTS", columns)
    return frame.assign(device=export.devices(frame))


# lookup tables, and tables about nsys itself
_LOOKUPS: Final = re.compile(
    r"StringIds|ProcessStreams|PROCESSES|ThreadNames|(?:ANALYSIS|ENUM|EXPORT|META_DATA|NVTX_PAYLOAD|TARGET_INFO)_\w+|"
    r"sqlite_\w+"
)
# names of tables that are not read; other tables keep their own name
_KINDS: Final = {
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
_Reader = tuple[tuple[str, ...], str, str, Callable[[Export], Frame | dict[str, Frame]]]
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
    "the program called no collective of NCCL, or the export lacks what it was called with (nsys export "
    "--include-json=true)"
)
_NO_RECORDS: Final = "no CUDA event was recorded, or events were not traced (nsys profile --cuda-event-trace=true)"
_NO_STACKS: Final = (
    "no stacks were recorded (nightsight profile --python-backtrace; nsys profile --python-backtrace=cuda)"
)
_NO_SAMPLES: Final = (
    "Python was not sampled (nightsight profile --names python; nsys profile "
    "--python-sampling=true), or exported without its stacks (nsys export --include-json=true)"
)
_UNKNOWN: Final = "this export does not have them, and does not say whether they were traced"
# table: its sources; the trace that fills it (as in META_DATA_CAPTURE; "" = always), or a table that is present
# whenever it was traced; why it may be missing; its reader
_READERS: Final[Mapping[str, _Reader]] = {
    "kernels": ((KERNEL,), "Cuda", _NO_CUDA, _kernels),
    "memory_ops": ((MEMCPY, MEMSET), "Cuda", _NO_CUDA, _memory_ops),
    "graph_launches": ((GRAPH,), "Cuda", _NO_CUDA, _graph_launches),
    "api_calls": ((RUNTIME,), "Cuda", _NO_CUDA, _api_calls),
    "syncs": ((SYNC,), "Cuda", _NO_CUDA, _syncs),
    "event_records": ((EVENT,), "never", _NO_RECORDS, _event_records),
    "ranges": ((NVTX,), "NvtxEvents", _NO_NVTX, ranges_and_marks),
    # no sources: these are read with the ranges
    "marks": ((), "NvtxEvents", _NO_NVTX, ranges_and_marks),
    "python_samples": ((), "never", _NO_SAMPLES, ranges_and_marks),
    "collectives": ((), "never", _NO_COLLECTIVES, ranges_and_marks),
    "ranks": ((), "never", NO_RANKS, ranges_and_marks),
    "threads": (("ThreadNames",), "never", "this export names no threads", _threads),
    "os_calls": (("OSRT_API",), "OSRuntime", _NO_OS, _os_calls),
    "cpu_page_faults": (("CUDA_UM_CPU_PAGE_FAULT_EVENTS",), "never", _NO_FAULTS, _cpu_page_faults),
    "gpu_page_faults": (("CUDA_UM_GPU_PAGE_FAULT_EVENTS",), "never", _NO_FAULTS, _gpu_page_faults),
    "memory_usage": ((nsys_memory.USAGE,), "never", _NO_USAGE, nsys_memory.memory_usage),
    "gpu_metrics": ((nsys_memory.METRICS,), "never", _NO_METRICS, nsys_memory.gpu_metrics),
    "call_frames": ((nsys_memory.STACKS,), "never", _NO_STACKS, nsys_memory.call_frames),
    "devices": (("TARGET_INFO_GPU",), "never", "this export names no GPU", _devices),
    "diagnostics": (("DIAGNOSTIC_EVENT",), "META_DATA_EXPORT", "", _diagnostics),
    "overheads": (("PROFILER_OVERHEAD",), "", "", _overheads),
}
_EXPORT_TABLES: Final = frozenset(
    {source for sources, *_ in _READERS.values() for source in sources} | {"META_DATA_EXPORT", "EXPORT_META_DATA"}
)
