"""The schema of the Chrome traces that torch.profiler (Kineto) exports: categories, argument names, relative time."""

import datetime as dt
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.errors import CaptureError
from pipeline.model import Environment, Finding, Profile
from pipeline.read.vocabulary import cuda_version
from pipeline.tables import NOT_REPLAYED, OF_REPLAY, categorical, conform, empty

Frame = pd.DataFrame
Fields = Mapping[str, Any]
Rows = Sequence[Fields]
Values = np.ndarray[Any, Any]

_GZIP: Final = b"\x1f\x8b"
_HOST: Final = ("cuda_runtime", "cuda_driver", "user_annotation", "cpu_op")
_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_CUDA: Final = (*_GPU, "cuda_runtime", "cuda_driver")
_CATEGORIES: Final = frozenset((*_HOST, *_CUDA))
# beyond this (the year 2096, in microseconds) the end of an event could leave int64 nanoseconds
_LATEST_US: Final = 4e15

_INTEGER: Final = pa.int64()
_NUMBER: Final = pa.float64()
_TEXT: Final = pa.string()
_TRIPLE: Final = pa.list_(pa.int64(), 3)
# what JSON gives for each, and how we call it; a column without any value has Arrow's null type
_ACCEPTED: Final = {
    _INTEGER: ("an integer", (pa.int64(),)),
    _NUMBER: ("a number", (pa.int64(), pa.float64())),
    _TEXT: ("a text", (pa.string(),)),
    _TRIPLE: ("a list of three integers", (pa.list_(pa.int64()),)),
}

_COPY: Final = re.compile(r"Memcpy ([HDAP])to([HDAP]) \((.+) -> (.+)\)")
_SET: Final = re.compile(r"Memset \((.+)\)")
_PLACES: Final = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}
_TEMPLATE: Final = re.compile(r"<[^<>]*>")

_EXPORT: Final = "expected what torch.profiler's export_chrome_trace writes (.json or .json.gz): export the trace again"
_NO_CUDA: Final = "the trace has no CUDA events: it was recorded on the CPU only"
# CUDA calls are recorded with the CPU's events, so they do not tell whether the GPU's were recorded
_NO_GPU: Final = "the trace has CUDA calls but none of the work they gave the GPU (add ProfilerActivity.CUDA)"
_NO_DEVICE: Final = "the trace names no GPU"
_GIVES_WORK: Final = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "cudaMemcpy", "cudaMemset")
_NEVER: Final = {
    "graph_launches": "torch.profiler records the kernels inside a CUDA graph, not its launch as a whole",
    "marks": "torch.profiler records no NVTX marks; --collector nsys does",
    "syncs": "they are not read from torch.profiler traces, whose API calls show every synchronization",
    "overheads": "torch.profiler ties its own overhead to no process",
}


def read_kineto(path: Path) -> Profile:
    """Read a Chrome trace that torch.profiler exported; CaptureError if it is none, is damaged or holds no events.

    Static and dynamic shared memory are one number in these traces: it stands in `static_shared_bytes`.
    """
    return _Trace(path.name, _parse(path)).profile()


def _parse(path: Path) -> Fields:
    try:
        # Kineto writes names as they are: control characters and broken UTF-8 in them must not lose the trace
        document = json.loads(_content(path).decode("utf-8-sig", errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "its nesting or a number is too large"
        raise CaptureError(f"{path.name} is not JSON, or was cut off: {reason}", _EXPORT) from error
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise CaptureError(f"{path.name} is JSON but no Chrome trace: it has no list 'traceEvents'", _EXPORT)
    return document


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CaptureError(f"{path.name} is a gzip file that is damaged or was cut off", _EXPORT) from error
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "check the path and its rights") from error
    if not content.strip():
        raise CaptureError(f"{path.name} is empty", _EXPORT)
    return content


class _Trace:
    """One trace being read: its complete events by category, and what had to be left out."""

    def __init__(self, file: str, document: Fields) -> None:
        self.file = file
        self.document = document
        self.findings: list[Finding] = []
        self.events: dict[str, list[Fields]] = {category: [] for category in _CATEGORIES}
        try:
            for event in document["traceEvents"]:
                # metadata, flow arrows, instants and the profiler's own spans are no events of the program
                if event.get("ph") == "X" and event.get("cat") in _CATEGORIES:
                    self.events[event["cat"]].append(event)
        except (AttributeError, TypeError) as error:
            raise self.unexpected("an item of 'traceEvents'", "an event with a category") from error

    def profile(self) -> Profile:
        tables = {name: read(self) for name, read in _HOST_TABLES.items()}
        process = self._process(tables)
        tables |= {name: read(self).assign(process=process) for name, read in _GPU_TABLES.items()}
        if all(table.empty for table in tables.values()):
            self._refuse_foreign()
            self.findings.append(_NOTHING_RECORDED)
        tables |= {"devices": self._devices(), "diagnostics": empty("diagnostics")}
        missing = _NEVER | dict.fromkeys(OF_REPLAY, NOT_REPLAYED) | self._not_recorded(tables)
        kept = {name: conform(name, table) for name, table in tables.items() if name not in missing}
        return Profile(kept, missing, self._environment(kept), tuple(self.findings))

    def _refuse_foreign(self) -> None:
        """Only of a trace that torch.profiler wrote can one say that nothing happened in it."""
        if "schemaVersion" not in self.document or any(self.events.values()):
            raise CaptureError(
                f"{self.file} holds no torch.profiler events",
                "export the trace while the profiler holds the steps it recorded: in on_trace_ready, "
                "or after the 'with' block when there is no schedule",
            )

    def _not_recorded(self, tables: Mapping[str, Frame]) -> dict[str, str]:
        """Tell what was not looked for from what was not found: the trace does not say which it is."""
        missing = {"devices": _NO_DEVICE} if tables["devices"].empty else {}
        if not any(self.events[category] for category in _CUDA):
            return missing | dict.fromkeys((*_GPU_TABLES, "api_calls"), _NO_CUDA)
        calls = tables["api_calls"]["name"].astype("str").str.startswith(_GIVES_WORK)
        if calls.any() and not any(self.events[category] for category in _GPU):
            return missing | dict.fromkeys(_GPU_TABLES, _NO_GPU)
        return missing

    # -- columns --------------------------------------------------------------------------------------------------

    def unexpected(self, what: str, expected: str) -> CaptureError:
        return CaptureError(f"{self.file}: {what} is not {expected}", _EXPORT)

    def column(self, rows: Rows, key: str, kind: pa.DataType, *, default: object = None) -> pa.Array:
        """Return one field of all rows, with `default` where it is absent; CaptureError if any has another type."""
        expected, accepted = _ACCEPTED[kind]
        try:
            # the type is inferred: when it is told, Arrow cuts 1.5 to the integer 1
            values = pa.array([row.get(key, default) for row in rows])
            if values.type not in (*accepted, pa.null()):
                raise self.unexpected(f"'{key}'", f"{expected} in every event")
            return values.cast(kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise self.unexpected(f"'{key}'", f"{expected} in every event") from error

    def required(self, rows: Rows, key: str, *, kind: pa.DataType = _INTEGER, default: object = None) -> Values:
        """Return a column as an array; CaptureError if a row lacks the field and there is no `default`."""
        values = self.column(rows, key, kind, default=default)
        flat = values.flatten() if kind == _TRIPLE else values
        if values.null_count or flat.null_count:
            raise self.unexpected(f"'{key}'", f"{_ACCEPTED[kind][0]} in every event")
        array: Values = flat.to_numpy(zero_copy_only=False)
        return array

    def optional(self, rows: Rows, key: str) -> "pd.Series[int]":
        return pd.Series(self.column(rows, key, _INTEGER), dtype=pd.ArrowDtype(_INTEGER))

    def names(self, rows: Rows, *meanings: Callable[[str], str]) -> "list[pd.Categorical[Any]]":
        """Return the name of every row under each of `meanings`, which are asked once per distinct name."""
        values = self.column(rows, "name", _TEXT)
        if values.null_count:
            raise self.unexpected("'name'", "a text in every event")
        encoded = values.dictionary_encode()
        unique, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        return [categorical(np.array([meaning(name) for name in unique], dtype=object), codes) for meaning in meanings]

    # -- rows -----------------------------------------------------------------------------------------------------

    def spans(self, *categories: str) -> tuple[Rows, Frame]:
        """Return the events of `categories` and their times; those whose times cannot be are left out and counted."""
        rows = [row for category in categories for row in self.events[category]]
        start, duration = (self.column(rows, key, _NUMBER).to_numpy(zero_copy_only=False) for key in ("ts", "dur"))
        # Kineto writes 0 for a time before its clock's base: it is not known when that event was
        good = (start > 0) & (start < _LATEST_US) & (duration >= 0) & (duration < _LATEST_US)
        if not good.all():
            self.findings.append(_damaged(" and ".join(categories), int((~good).sum()), len(rows)))
            rows = list(compress(rows, good))
        start_ns = _nanoseconds(start[good])
        return rows, pd.DataFrame({"start_ns": start_ns, "end_ns": start_ns + _nanoseconds(duration[good])})

    def arguments(self, rows: Rows) -> Rows:
        arguments = [row.get("args", {}) for row in rows]
        if not all(isinstance(fields, dict) for fields in arguments):
            raise self.unexpected("'args'", "an object in every event")
        return arguments

    def on_thread(self, *categories: str) -> tuple[Rows, Frame]:
        rows, frame = self.spans(*categories)
        process, thread = (self.required(rows, key) for key in ("pid", "tid"))
        (name,) = self.names(rows, str)
        return rows, frame.assign(process=process, thread=thread, pid=process, tid=thread, name=name)

    def on_stream(self, *categories: str) -> tuple[Rows, Rows, Frame]:
        """Return the GPU operations of `categories`: rows, arguments and the columns that all of them have."""
        rows, frame = self.spans(*categories)
        # a copy between two devices names three of each: the one it ran on counts
        arguments = [
            {**fields, "device": fields["inDevice"], "context": fields.get("inContext", 0)}
            if "inDevice" in fields
            else fields
            for fields in self.arguments(rows)
        ]
        node = self.optional(arguments, "graph node id")
        return (
            rows,
            arguments,
            frame.assign(
                device=self.required(arguments, "device"),
                context=self.required(arguments, "context", default=0),
                stream=self.required(arguments, "stream"),
                correlation=self.optional(arguments, "correlation"),
                graph_node=node.mask(node == 0),
            ),
        )

    # -- facts ----------------------------------------------------------------------------------------------------

    def _process(self, tables: Mapping[str, Frame]) -> int | None:
        """Return the id of the process: GPU events carry the device instead of it."""
        ids = sorted({int(value) for table in tables.values() for value in table["process"].unique()})
        if len(ids) > 1:
            raise CaptureError(
                f"{self.file} holds events of {len(ids)} processes, and its GPU events do not say of which they are",
                "read the trace of each process (rank) by itself, not a merged one",
            )
        return ids[0] if ids else None

    def _devices(self) -> Frame:
        rows = self.document.get("deviceProperties", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.unexpected("'deviceProperties'", "a list of objects")
        major, minor = (pd.Series(self.required(rows, key)).astype("str") for key in ("computeMajor", "computeMinor"))
        frame = empty("devices").reindex(range(len(rows)))
        return frame.assign(
            device=self.required(rows, "id"),
            name=self.required(rows, "name", kind=_TEXT),
            compute_capability=major + "." + minor,
            multiprocessors=self.optional(rows, "numSms"),
            memory_bytes=self.optional(rows, "totalGlobalMem"),
        )

    def _environment(self, tables: Mapping[str, Frame]) -> Environment:
        version = self.document.get("schemaVersion")
        counts = Counter(tables["devices"]["name"] if "devices" in tables else ())
        return Environment(
            collector="torch.profiler",
            schema_version=str(version) if isinstance(version, int) else "",
            captured_utc=self._start_time(tables),
            gpu=", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items()),
            cuda=cuda_version(str(self.document.get("cuda_runtime_version"))),
        )

    def _start_time(self, tables: Mapping[str, Frame]) -> str:
        """Return the wall clock of the first event: its time is relative to a base that newer traces name."""
        base = self.document.get("baseTimeNanoseconds")
        # a base before 2001 is no wall clock
        if not isinstance(base, int) or not 10**18 < base < 2**63:
            return ""
        starts = [int(table["start_ns"].min()) for table in tables.values() if "start_ns" in table and len(table)]
        first = min(starts, default=0)
        return dt.datetime.fromtimestamp((base + first) // 10**9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _kernels(trace: _Trace) -> Frame:
    rows, arguments, frame = trace.on_stream("kernel")
    name, short_name = trace.names(rows, str, _short_name)
    for shape in ("grid", "block"):
        sizes = trace.required(arguments, shape, kind=_TRIPLE, default=(0, 0, 0)).reshape(-1, 3)
        frame = frame.assign(**{f"{shape}_{axis}": sizes[:, position] for position, axis in enumerate("xyz")})
    return frame.assign(
        name=name,
        short_name=short_name,
        registers=trace.required(arguments, "registers per thread", default=0),
        static_shared_bytes=trace.required(arguments, "shared memory", default=0),
        dynamic_shared_bytes=0,
    )


def _memory_ops(trace: _Trace) -> Frame:
    rows, arguments, frame = trace.on_stream("gpu_memcpy", "gpu_memset")
    operation, source, target = trace.names(rows, _operation, _source_kind, _target_kind)
    size = trace.required(arguments, "bytes")
    return frame.assign(operation=operation, source_kind=source, target_kind=target, bytes=size)


def _api_calls(trace: _Trace) -> Frame:
    layers = []
    for layer in ("runtime", "driver"):
        rows, frame = trace.on_thread(f"cuda_{layer}")
        correlation = trace.optional(trace.arguments(rows), "correlation")
        layers.append(frame.assign(correlation=correlation, layer=layer, name=frame["name"].astype(object)))
    return pd.concat(layers, ignore_index=True)


def _ranges(trace: _Trace) -> Frame:
    rows, frame = trace.on_thread("user_annotation")
    is_open = [fields.get("finished") is False for fields in trace.arguments(rows)]
    # torch numbers its steps; as instances of one range they can be summed up
    name = frame["name"].astype("str").str.replace(r"^ProfilerStep#\d+$", "ProfilerStep", regex=True)
    return frame.assign(name=name, end_thread=None, domain="", style="Annotation", is_open=is_open)


def _cpu_ops(trace: _Trace) -> Frame:
    return trace.on_thread("cpu_op")[1]


_NOTHING_RECORDED: Final = Finding(
    rule="nothing_recorded",
    severity="warning",
    title="torch.profiler recorded nothing",
    detail="The trace holds no operator, range or GPU work: the program used no torch while it was profiled.",
    remedy="Name the script that uses torch, or profile any program with nsys on a machine that has a GPU.",
)
_Reader = Callable[[_Trace], Frame]
_HOST_TABLES: Final[Mapping[str, _Reader]] = {"api_calls": _api_calls, "ranges": _ranges, "cpu_ops": _cpu_ops}
_GPU_TABLES: Final[Mapping[str, _Reader]] = {"kernels": _kernels, "memory_ops": _memory_ops}


def _nanoseconds(microseconds: Values) -> Values:
    """Convert to int64: exact for Kineto's three decimals up to 2^43 µs (101 days), which its clock's base is within.

    The product of a double with 1000 would not be; whole and fraction each are.
    """
    whole = np.floor(microseconds)
    nanoseconds: Values = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return nanoseconds


def _short_name(name: str) -> str:
    """Return a kernel's name without return type, namespaces, template arguments and parameters, as nsys has it."""
    bare = name.replace("(anonymous namespace)::", "")
    while (stripped := _TEMPLATE.sub("", bare)) != bare:
        bare = stripped
    return bare.partition("(")[0].rpartition("::")[2].rpartition(" ")[2] or name


def _operation(name: str) -> str:
    if _SET.fullmatch(name):
        return "memset"
    copy = _COPY.fullmatch(name)
    return f"{_PLACES[copy[1]]}-to-{_PLACES[copy[2]]}" if copy else "Unknown"


def _source_kind(name: str) -> str:
    copy = _COPY.fullmatch(name)
    return copy[3] if copy else ""


def _target_kind(name: str) -> str:
    copy, set_ = _COPY.fullmatch(name), _SET.fullmatch(name)
    return copy[4] if copy else set_[1] if set_ else ""


def _damaged(categories: str, count: int, total: int) -> Finding:
    return Finding(
        rule="damaged_events",
        severity="warning",
        title=f"{count:,} of {total:,} {categories} events were left out",
        detail="Their start or duration is missing, zero, negative or not a number, so they have no place in time.",
        remedy="Capture again; if it happens again, the profiler lost or mixed up events.",
    )
