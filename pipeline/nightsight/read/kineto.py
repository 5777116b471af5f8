"""Reads the Chrome traces of torch.profiler (Kineto) into canonical tables, by category and names of arguments."""

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.errors import CaptureError
from nightsight.events.frames import frame_name, is_of_library
from nightsight.events.kernel_names import communicates
from nightsight.model.report import TORCH_PROFILER, Environment, Finding, Profile
from nightsight.read.chrome import MOST_BYTES, read_document
from nightsight.read.foreign import as_foreign
from nightsight.read.kineto_events import (
    DAMAGED,
    FORWARD_BACKWARD,
    MEMORY,
    MODULES,
    OF_MODULE,
    TEXT,
    TRIPLE,
    Rows,
    TraceEvents,
    distinct,
    is_id,
    is_shapes,
    is_texts,
    unreadable_fields,
)
from nightsight.read.vocabulary import cuda_version, list_gpus
from nightsight.tables import (
    ANNOTATION,
    HOST_MEMORY,
    NO_RANKS,
    NOT_COMPILED,
    NOT_REPLAYED,
    OF_COMPILER,
    OF_REPLAY,
    Frame,
    categorical,
    conform,
    empty,
    innermost_of,
    integers,
    nullable_integers,
    renamed,
    used_devices,
)
from nightsight.units import counted

# MTIA's accelerators have no kernels, but operations of their control processor
_KERNELS: Final = ("kernel", "mtia_ccp_events")
_GPU: Final = (*_KERNELS, "gpu_memcpy", "gpu_memset")
# cuda_runtime (HIP too), xpu_runtime, mtia_runtime, privateuse1_runtime; the category of Gaudi has another name
_CALLS: Final = re.compile(r"(?:\w+_)?(runtime|driver)|hpu_op")
_SYNC: Final = "cuda_sync"
# CUPTI's numbers of synchronizations
_SYNCS: Final = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
_FUNCTION: Final = "python_function"
# the field of operators with the stack in torch before 1.13, and still in TorchScript
_CALL_STACK: Final = "Call stack"
# PyTorch's device type of the CPU
_CPU: Final = 0
# a kernel, or a range of the program, with the counters of CUPTI's range profiler
COUNTED: Final = "cuda_profiler_range"
# names of kinds of events that are not read; other kinds have the name of the trace
_UNREAD_KINDS: Final = {
    "overhead": "spans of profiler overhead",
    _CALL_STACK: "operators with a call stack",
    "mtia_insight": "events of MTIA Insight",
    "cuda_event": "records of CUDA events",
    "collective_comm": "collectives of another communication library",
}
# kinds of CPU events, which do not show whether an accelerator was recorded
_OF_CPU: Final = (_FUNCTION, "overhead", "cpu_instant_event (i)", _CALL_STACK)
# the profiler's own span, arrows, and ranges projected onto the GPU: correlation ids contain the same facts
_NOT_COUNTED: Final = ("Trace", "ac2g (s)", "async_cpu_to_gpu (s)", "gpu_user_annotation")
# Intel's GPUs have M2D (MEMORY -> DEVICE): M is host memory that SYCL did not allocate, H is host memory that it did
_COPY: Final = re.compile(r"Memcpy ([HDAPM])(?:to|2)([HDAPM]) \((.+) -> (.+)\)")
_SET: Final = re.compile(r"Memset \((?:\d+ -> )?(.+)\)")
_PLACES: Final = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer", "M": "Host"}
_MEMORY_KINDS: Final = {"MEMORY": "Pageable", "HOST": "Pinned", "DEVICE": "Device", "SHARED": "Managed"}
# a number that fits into an int64
_SIZE: Final = re.compile(r"[0-9]{1,18}")
# file, line and function of a call; the line fits into an int64
PYTHON: Final = re.compile(r"(.+)\((\d{1,18})\): (.+)", re.DOTALL)
_TEMPLATE: Final = re.compile(r"<[^<>]*>")

_NO_CUDA: Final = "the trace has no CUDA events: it was recorded on the CPU only"
# CUDA calls are recorded with CPU events, so they do not show whether GPU events were recorded
_NO_GPU: Final = "the trace has CUDA calls but not the GPU work that they started (add ProfilerActivity.CUDA)"
_NO_USAGE: Final = "no memory usage was recorded (torch.profiler.profile(profile_memory=True))"
_NO_FUNCTIONS: Final = "calls of Python functions were not recorded (torch.profiler.profile(with_stack=True))"
_NO_SYNCS: Final = (
    "synchronizations were not recorded (torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))"
)
_NO_COUNTERS: Final = (
    "counters were not recorded (torch.profiler._ExperimentalConfig(profiler_metrics=[...], "
    "profiler_measure_per_kernel=True))"
)
_ONLY_COUNTERS: Final = "torch.profiler recorded counters of the GPU, and then records nothing else of it"
_NO_COLLECTIVES: Final = "the program called no collective, or its torch does not record their names (2.1 and later do)"
_MOST_RANKS: Final = 10_000_000
# backends that need no GPU
_CPU_BACKENDS: Final = ("gloo", "mpi", "fake")
# `cuda:nccl`, or `cpu:gloo,cuda:nccl`
_BACKEND: Final = re.compile(r"\w+(?=,|$)")
_NO_DEVICE: Final = "the trace names no GPU"
_IF_EMPTY: Final = {
    "devices": _NO_DEVICE,
    "range_counters": _NO_COUNTERS,
    "collectives": _NO_COLLECTIVES,
    "ranks": NO_RANKS,
}
# prefixes of calls that start GPU work, in CUDA, HIP, Unified Runtime and Level Zero
_STARTS_WORK: Final = (
    "cudaLaunch",
    "cuLaunch",
    "cudaGraphLaunch",
    "cuGraphLaunch",
    "cudaMemcpy",
    "cudaMemset",
    "hipLaunch",
    "hipExtLaunch",
    "hipModuleLaunch",
    "hipExtModuleLaunch",
    "hipGraphLaunch",
    "hipMemcpy",
    "hipMemset",
    "urEnqueueKernelLaunch",
    "urEnqueueUSM",
    "urEnqueueMem",
    "zeCommandListAppend",
    "zeCommandListImmediateAppend",
)
_NEVER: Final = {
    "graph_launches": "torch.profiler records the kernels inside a CUDA graph, not its launch as a whole",
    "marks": "torch.profiler records no NVTX marks; --collector nsys does",
    "overheads": "torch.profiler does not assign its overhead to a process",
}


def read_kineto(path: Path, *, most_bytes: int = MOST_BYTES) -> Profile:
    """Read a Chrome trace that torch.profiler exported.

    CaptureError if it is not one, is damaged, has no events, or is larger than `most_bytes` uncompressed.
    `static_shared_bytes` holds the static and dynamic shared memory, for which these traces have only one number.
    """
    try:
        document, findings = read_document(path, most_bytes)
        trace = _Trace(path.name, document, findings)
        if trace.has_duplicates():
            document = {**document, "traceEvents": distinct(document["traceEvents"])}
            trace = _Trace(path.name, document, (*findings, _DUPLICATES))
        return trace.profile()
    except CaptureError as error:
        raise as_foreign(path, error) from error


class _Trace(TraceEvents):
    """A trace while it is read, with the devices, processes and times that the file describes."""

    def profile(self) -> Profile:
        tables = {name: read(self) for name, read in _HOST_TABLES.items()}
        of_gpu = {name: read(self) for name, read in {**_GPU_TABLES, **_SYNC_TABLES}.items()}
        if self.untimed:
            of_gpu["untimed"] = pd.concat(self.untimed, ignore_index=True)
        tables |= {name: self._with_process(table, tables) for name, table in of_gpu.items()}
        tables["unread"] = self._unread()
        if all(table.empty for name, table in tables.items() if name not in ("unread", "untimed")):
            self._refuse_foreign(tables["unread"])
            if tables["unread"].empty:
                self.findings.append(_NOTHING_RECORDED)
        tables |= {
            "devices": self._devices(used_devices(tables)),
            "diagnostics": empty("diagnostics"),
            "ranks": self._ranks(tables),
        }
        graphs = _annotated(tables)
        missing = _NEVER | dict.fromkeys(OF_REPLAY, NOT_REPLAYED) | self._not_recorded(tables)
        missing |= dict.fromkeys(OF_COMPILER, NOT_COMPILED)
        tables = {name: conform(name, table) for name, table in tables.items() if name not in missing}
        if self.wrong_types.total():
            self.findings.append(unreadable_fields(self.wrong_types))
        if communication := self._missing_communication(tables):
            self.findings.append(communication)
        environment, findings = self._environment(tables), tuple(self.findings)
        return Profile(tables, missing, environment, findings, epoch_ns=self._epoch(), graphs=graphs)

    @cached_property
    def distributed(self) -> Mapping[str, Any]:
        """The facts about the job in a trace: the rank, the size of the job, its process groups and their backends."""
        info = self.document.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    def _refuse_foreign(self, unread: Frame) -> None:
        """Raise CaptureError unless torch.profiler wrote this trace and nothing happened while it recorded."""
        if "schemaVersion" not in self.document or any(self.events.get(kind) for kind in self.kinds_read):
            kinds = ", ".join(f"{row.events:,} {row.kind}" for row in unread[:3].itertuples())
            raise CaptureError(
                f"{self.file} has no torch.profiler events{kinds and f', only {kinds}'}",
                "Export the trace while the profiler still holds the recorded steps: in on_trace_ready, "
                "or after the 'with' block if there is no schedule.",
            )

    def _unread(self) -> Frame:
        """Count the events that no reader used, by kind."""
        kinds = set(self.events) - self.kinds_read - set(_NOT_COUNTED)
        counts = Counter({kind: len(self.events[kind]) for kind in kinds})
        if not self.events.keys() & {_FUNCTION, MODULES[_FUNCTION]}:
            # calls of functions contain the same stacks
            counts[_CALL_STACK] = sum(_CALL_STACK in fields for fields in self.operators[0])
        rows = [(_UNREAD_KINDS.get(kind, str(kind)), count, str(kind)) for kind, count in counts.items() if count]
        frame = pd.DataFrame(rows, columns=["kind", "events", "source"])
        return frame.sort_values(["events", "source"], ascending=[False, True], ignore_index=True)

    def _not_recorded(self, tables: Mapping[str, Frame]) -> dict[str, str]:
        """Return the tables that were not recorded, with reasons. Inferred from events: a trace has no such list."""
        missing = {name: why for name, why in _IF_EMPTY.items() if tables[name].empty}
        if MEMORY not in self.events:
            missing["memory_usage"] = _NO_USAGE
        if not {_FUNCTION, MODULES[_FUNCTION]} & self.events.keys():
            missing["python_functions"] = _NO_FUNCTIONS
        # one of the two tables about Python is enough
        missing["python_samples"] = missing.get("python_functions", "torch.profiler does not sample Python")
        if _SYNC not in self.events:
            missing |= dict.fromkeys(("syncs", "event_records"), _NO_SYNCS)
        has_calls, has_work = bool(self.kinds_of_calls()), any(kind in self.events for kind in _GPU)
        starts_work = tables["api_calls"]["name"].astype("str").str.startswith(_STARTS_WORK).any()
        unread_kinds = tables["unread"][~tables["unread"]["source"].isin(_OF_CPU)]
        if not tables["range_counters"].empty:
            unread = _ONLY_COUNTERS
        elif len(unread_kinds):
            kinds = "; ".join(f"{row.events:,} {row.kind}" for row in unread_kinds.itertuples())
            unread = f"the trace has events of kinds that are not read: {kinds}"
        else:
            unread = ""
        # if there are calls but none starts GPU work, the GPU was idle: then the tables are empty, not missing
        if not has_work and (starts_work or not has_calls):
            missing |= dict.fromkeys(_GPU_TABLES, unread or (_NO_GPU if has_calls else _NO_CUDA))
        if not has_calls and (unread or not has_work):
            missing["api_calls"] = unread or _NO_CUDA
        return missing

    def kinds_of_calls(self) -> list[str]:
        """Return the categories of calls of this trace."""
        kinds = (kind for kind in self.events if _CALLS.fullmatch(str(kind)))
        return sorted(kinds, key=lambda kind: (kind.endswith("driver"), kind))

    @cached_property
    def operators(self) -> tuple[Rows, Frame]:
        """The arguments of operators, and where they ran."""
        rows, frame = self.on_thread("cpu_op")
        return self.arguments(rows), frame

    @cached_property
    def waits(self) -> Frame:
        """Synchronizations with the GPU. `of_stream`: the stream on which the event was recorded that they wait for."""
        rows, arguments, frame = self.on_stream(_SYNC)
        (name,) = self.names(rows, str)
        columns = {
            "event": "wait_on_cuda_event_id",
            "record": "wait_on_cuda_event_record_corr_id",
            "of_stream": "wait_on_stream",
        }
        kind = pd.Series(name).astype("str").map(_SYNCS).fillna(0)
        return frame.assign(kind=kind, **{column: self.numbers(arguments, key) for column, key in columns.items()})

    def sizes_of_calls(self) -> dict[int, int]:
        """Return the sizes in bytes that calls carry, by correlation id: ROCm stores them there, as text."""
        calls = self.arguments([row for kind in self.kinds_of_calls() for row in self.events[kind]])
        texts = ((fields.get("correlation"), str(fields.get("bytes", fields.get("size")))) for fields in calls)
        return {call: int(text) for call, text in texts if is_id(call) and _SIZE.fullmatch(text)}

    def _with_process(self, operations: Frame, tables: Mapping[str, Frame]) -> Frame:
        """Add the process that launched each GPU operation: in the trace, its `pid` is the device."""
        calls = tables["api_calls"]
        hosts = [calls] if len(calls) else [tables[name] for name in _HOST_TABLES if "process" in tables[name]]
        processes = np.unique(np.concatenate([table["process"].to_numpy(dtype=np.int64) for table in hosts]))
        if len(processes) <= 1:
            return operations.assign(process=processes[0] if len(processes) else None)
        launching = calls[["correlation", "process"]].dropna().drop_duplicates()
        is_shared = launching["correlation"].duplicated(keep=False)
        if operations["correlation"].isin(launching["correlation"][is_shared]).any():
            raise CaptureError(
                f"{self.file} has events of {len(processes)} processes, and its GPU events do not say to which "
                "process they belong",
                "Read the trace of each process (rank) separately, not a merged one.",
            )
        owner = launching[~is_shared].set_index("correlation")["process"]
        return operations.assign(process=operations["correlation"].map(owner))

    def _missing_communication(self, tables: Mapping[str, Frame]) -> Finding | None:
        """Return a finding if ranks call collectives on GPUs, but the trace has no kernel or copy of one."""
        calls, kernels, copies = (tables.get(name, empty(name)) for name in ("collectives", "kernels", "memory_ops"))
        calls = calls[(calls["group_size"] > 1).fillna(value=False).to_numpy(dtype=bool)]
        groups = self.distributed.get("pg_config")
        cpu_groups = [
            str(group.get("pg_name"))
            for group in (groups if isinstance(groups, list) else [])
            if isinstance(group, dict)
            and (backends := _BACKEND.findall(str(group.get("backend_config"))))
            and set(backends) <= set(_CPU_BACKENDS)
        ]
        calls = calls[~calls["group"].isin(cpu_groups).to_numpy(dtype=bool)]
        runs = any(map(communicates, kernels["name"].cat.categories)) or (copies["operation"] == "Peer-to-Peer").any()
        if not len(calls) or not len(kernels) or runs or str(self.distributed.get("backend")) in _CPU_BACKENDS:
            return None
        return _NO_COMMUNICATION.filled(calls=counted(len(calls), "call"), ranks=int(calls["group_size"].max()))

    def _devices(self, used: set[int]) -> Frame:
        """Read the GPUs that the trace describes, with the numbers that its events use."""
        properties = self.document.get("deviceProperties", [])
        properties = properties if isinstance(properties, list) else [properties]
        rows = [row for row in properties if isinstance(row, dict) and is_id(row.get("id"))]
        self.wrong_types["deviceProperties"] += len(properties) - len(rows)
        major, minor = (self.numbers(rows, key) for key in ("computeMajor", "computeMinor"))
        capability = major.astype("str") + "." + minor.astype("str")
        frame = empty("devices").reindex(range(len(rows)))
        return frame.assign(
            device=self._numbers_of_events([row["id"] for row in rows], rows, used),
            uuid="",
            name=self.optional(rows, "name", TEXT).fill_null("").to_numpy(zero_copy_only=False),
            compute_capability=capability.where(major.notna() & minor.notna(), ""),
            multiprocessors=self.numbers(rows, "numSms"),
            memory_bytes=self.numbers(rows, "totalGlobalMem"),
        )

    def _numbers_of_events(self, ids: list[int], rows: Rows, used: set[int]) -> list[int]:
        """Return the numbers of GPUs in events: with ROCm, these number all nodes of the machine, also CPUs.

        They can be matched if there is one GPU, or if all are alike; else a finding says that they cannot.
        """
        unknown = sorted(used - set(ids))
        if not unknown or not rows:
            return ids
        facts = {json.dumps({key: value for key, value in row.items() if key != "id"}, sort_keys=True) for row in rows}
        if len(facts) > 1 or len(unknown) > len(ids):
            events, properties = (", ".join(map(str, numbers)) for numbers in (unknown, ids))
            self.findings.append(_TWO_NUMBERINGS.filled(events=events, properties=properties))
            return ids
        renumbered = dict(zip((number for number in ids if number not in used), unknown, strict=False))
        return [renumbered.get(number, number) for number in ids]

    def _ranks(self, tables: Mapping[str, Frame]) -> Frame:
        """Read which rank wrote the trace: from torch's facts about the job, else from calls of the largest group."""
        hosts = [tables[name] for name in _HOST_TABLES if "process" in tables[name] and len(tables[name])]
        rank, size = self.distributed.get("rank"), self.distributed.get("world_size")
        calls = tables["collectives"].dropna(subset=["rank", "group_size"])
        if not is_id(rank) and len(calls):
            largest = calls.sort_values("group_size", kind="stable").iloc[-1]
            rank, size = int(largest["rank"]), int(largest["group_size"])
        if not is_id(rank) or not 0 <= rank < _MOST_RANKS or not hosts:
            return empty("ranks")
        process = int(hosts[0]["process"].iloc[0])
        size = size if is_id(size) and rank < size < _MOST_RANKS else None
        return pd.DataFrame({"process": [process], "rank": [rank], "world_size": [size], "source": TORCH_PROFILER})

    def _environment(self, tables: Mapping[str, Frame]) -> Environment:
        version = self.document.get("schemaVersion")
        captured_utc = ""
        # older traces do not give the base of their times
        if (base_ns := self._epoch()) is not None:
            starts = [int(table["start_ns"].min()) for table in tables.values() if "start_ns" in table and len(table)]
            first = dt.datetime.fromtimestamp((base_ns + min(starts, default=0)) // 10**9, dt.UTC)
            captured_utc = f"{first:%Y-%m-%d %H:%M:%S}"
        return Environment(
            collector=TORCH_PROFILER,
            schema_version=str(version) if isinstance(version, int) else "",
            captured_utc=captured_utc,
            gpu=list_gpus(tables),
            cuda=cuda_version(str(self.document.get("cuda_runtime_version"))),
        )

    def _epoch(self) -> int | None:
        base = self.document.get("baseTimeNanoseconds")
        # a base before 2001 is not wall-clock time
        return base if isinstance(base, int) and 10**18 < base < 2**63 else None


def _trace_kernels(trace: _Trace) -> Frame:
    rows, arguments, frame = trace.on_stream(*_KERNELS)
    name, short_name = trace.names(rows, str, _short_name)
    for shape in ("grid", "block"):
        triples = trace.optional(arguments, shape, TRIPLE)
        sizes = np.zeros((len(rows), 3), dtype=np.int64)
        # the flat list skips missing values
        sizes[triples.is_valid().to_numpy(zero_copy_only=False)] = triples.flatten().to_numpy().reshape(-1, 3)
        frame = frame.assign(**{f"{shape}_{axis}": sizes[:, position] for position, axis in enumerate("xyz")})
    return frame.assign(
        name=name,
        short_name=short_name,
        registers=trace.numbers(arguments, "registers per thread"),
        static_shared_bytes=trace.numbers(arguments, "shared memory"),
        dynamic_shared_bytes=0,
    )


def _memory_ops(trace: _Trace) -> Frame:
    rows, arguments, frame = trace.on_stream("gpu_memcpy", "gpu_memset")
    operation, source, target = trace.names(rows, _operation, _source_kind, _target_kind)
    size = trace.numbers(arguments, "bytes")
    if size.hasnans:
        sizes = pd.Series(trace.sizes_of_calls(), dtype=size.dtype)
        size = size.fillna(frame["correlation"].map(sizes).astype(size.dtype))
    if unknown := int(size.isna().sum()):
        trace.findings.append(_SIZELESS.filled(count=unknown, total=len(size)))
    return frame.assign(operation=operation, source_kind=source, target_kind=target, bytes=size)


def _annotated(tables: Mapping[str, Frame]) -> Profile | None:
    """Return the labels of nodes of CUDA graphs as a recording of their making: one range after the other.

    A node with several labels has none: its id was used again for another graph.
    """
    columns = ["process", "graph_node", "label"]
    marked = pd.concat([frame.loc[frame["label"].notna(), columns] for frame in (tables[name] for name in _GPU_TABLES)])
    if not len(marked):
        return None
    nodes = pd.DataFrame({"process": integers(marked["process"]), "node": integers(marked["graph_node"])})
    nodes = nodes.assign(label=marked["label"].to_numpy(dtype=object)).query("node >= 0").drop_duplicates()
    nodes = nodes[~nodes.duplicated(["process", "node"], keep=False)].reset_index(drop=True)
    number, labels = pd.factorize(nodes["label"])
    # a range begins before its nodes, and each capture before all ranges
    nodes = nodes.assign(thread=nodes["process"], pid=nodes["process"], tid=nodes["process"], start_ns=3 * number + 2)
    ranges = nodes.assign(start_ns=3 * number + 1, end_ns=3 * number + 3, number=number).drop_duplicates(
        ["process", "number"]
    )
    ranges = ranges.assign(name=labels[ranges["number"]], end_thread=None, domain="", style=ANNOTATION, is_open=False)
    calls = nodes.drop_duplicates("process").assign(
        start_ns=0, end_ns=0, name="cudaStreamBeginCapture", layer="runtime"
    )
    made = {"ranges": ranges, "graph_nodes": nodes.assign(original=None), "api_calls": calls.assign(correlation=None)}
    return Profile({name: conform(name, table) for name, table in made.items()})


def _memory_usage(trace: _Trace) -> Frame:
    rows, frame = trace.spans(MEMORY)
    arguments = trace.arguments(rows)
    columns = {"change": "Bytes", "device": "Device Id", "type": "Device Type"}
    columns |= {"level_bytes": "Total Allocated", "reserved_bytes": "Total Reserved"}
    frame = frame.assign(**{name: trace.numbers(arguments, key) for name, key in columns.items()})
    frame = frame.assign(process=trace.required(rows, "pid").to_numpy())
    is_on_cpu = ((frame["type"] == _CPU) | (frame["device"] < 0)).fillna(value=False).to_numpy(dtype=bool)
    # nothing is reserved on the CPU
    frame = frame.assign(
        device=frame["device"].where(~is_on_cpu, -1),
        kind=np.where(is_on_cpu, HOST_MEMORY, "Device"),
        reserved_bytes=frame["reserved_bytes"].where(~is_on_cpu),
    )
    is_complete = frame[["change", "device"]].notna().all(axis=1).to_numpy(dtype=bool)
    if not is_complete.all():
        count = int((~is_complete).sum())
        trace.findings.append(DAMAGED.filled(categories=MEMORY, count=count, total=len(frame)))
    frame = frame[is_complete]
    return frame.assign(bytes=frame["change"].abs(), is_allocation=(frame["change"] > 0).astype("bool"))


def _syncs(trace: _Trace) -> Frame:
    waits = trace.waits
    return waits.assign(**{name: waits[name].where(waits["event"] >= 0) for name in ("event", "record")})


def _event_records(trace: _Trace) -> Frame:
    """Read the records of the events that streams wait for, from these waits. A record has the id of its call."""
    waits = trace.waits
    records = waits[["event", "record"]].assign(stream=waits["of_stream"], correlation=waits["record"])
    return records[(records.fillna(-1) >= 0).all(axis=1).to_numpy(dtype=bool)].drop_duplicates(ignore_index=True)


def _collectives(trace: _Trace) -> Frame:
    """Read PyTorch's records of calls of collectives, except for waits."""
    arguments, frame = trace.operators
    positions = [position for position, fields in enumerate(arguments) if "Collective name" in fields]
    rows = [arguments[position] for position in positions]
    texts = {"name": "Collective name", "type": "dtype", "group": "Process Group Name", "ranks": "Process Group Ranks"}
    numbers = {"in_elements": "In msg nelems", "out_elements": "Out msg nelems"}
    numbers |= {"group_size": "Group size", "rank": "Rank"}
    columns = {name: trace.optional(rows, key, TEXT).fill_null("").to_pylist() for name, key in texts.items()}
    counts = {name: trace.numbers(rows, key).array for name, key in numbers.items()}
    element_bytes = np.array([_ELEMENT_BYTES.get(name.lower(), np.nan) for name in columns["type"]])
    sent, received = (
        nullable_integers(counts[name].to_numpy(dtype=np.float64, na_value=np.nan) * element_bytes).array
        for name in ("in_elements", "out_elements")
    )
    calls = frame.iloc[positions].assign(**columns, **counts, bytes=sent, received_bytes=received)
    calls = _with_peers(trace, calls)
    # torch also records when a group is made
    is_whole = (calls["name"] == "init").groupby([calls["group"], calls["ranks"]]).transform("any")
    collectives: Frame = calls.assign(is_whole=is_whole)[~calls["name"].isin(["", "wait"])]
    return collectives


def _with_peers(trace: _Trace, calls: Frame) -> Frame:
    """Add the peers of sends and receives: as their rank, torch records that of the peer in the group."""
    is_send, is_receive = (calls["name"] == name for name in ("send", "recv"))
    is_pair = (is_send | is_receive).to_numpy()
    if not is_pair.any():
        return calls
    rank = trace.distributed.get("rank")
    rank = rank if is_id(rank) else None
    rank_in_group: dict[str, int | None] = {}
    for text in calls["ranks"].unique():
        # torch lists at most the first thirty ranks of a group
        members = [int(number) for number in re.findall(r"\d+", text)]
        rank_in_group[text] = members.index(rank) if rank in members else None
    # the largest group has the ranks of the job
    is_job = (calls["group_size"] == trace.distributed.get("world_size")).fillna(value=False)
    own_rank = pd.Series([rank_in_group[text] for text in calls["ranks"]], index=calls.index, dtype=calls["rank"].dtype)
    own_rank = own_rank.where((own_rank.notna() | ~is_job).to_numpy(dtype=bool), rank)
    return calls.assign(
        peer=calls["rank"].where(is_pair),
        rank=calls["rank"].where(~is_pair, own_rank),
        bytes=calls["bytes"].where(~is_receive, 0),
        received_bytes=calls["received_bytes"].where(~is_send, 0),
    )


def _range_counters(trace: _Trace) -> Frame:
    """Read the counters of kernels or ranges. Their times have no meaning: torch divides the span evenly among them."""
    rows, frame = trace.spans(COUNTED)
    (name,) = trace.names(rows, str)
    device, arguments = trace.required(rows, "pid").to_numpy(), trace.arguments(rows)
    counters = [{key: value for key, value in fields.items() if _is_count(value)} for fields in arguments]
    row = np.repeat(np.arange(len(frame)), [len(values) for values in counters])
    return pd.DataFrame(
        {
            "range": row,
            "name": name[row],
            "device": device[row],
            "metric": [metric for values in counters for metric in values],
            "value": np.array([value for values in counters for value in values.values()], dtype=np.float64),
        }
    )


def _is_count(value: object) -> bool:
    # excludes NaN, and integers that a float cannot hold
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _api_calls(trace: _Trace) -> Frame:
    layers = []
    for kind in trace.kinds_of_calls() or ("cuda_runtime",):
        rows, frame = trace.on_thread(kind)
        correlation = trace.numbers(trace.arguments(rows), "correlation")
        layer = "driver" if kind.endswith("driver") else "runtime"
        layers.append(frame.assign(correlation=correlation, layer=layer, name=frame["name"].astype(object)))
    return pd.concat(layers, ignore_index=True)


def _ranges(trace: _Trace) -> Frame:
    rows, frame = trace.on_thread("user_annotation")
    is_open = [fields.get("finished") is False for fields in trace.arguments(rows)]
    # torch numbers its steps; drop the number so that they count as instances of one range
    name = frame["name"].astype("str").str.replace(r"^ProfilerStep#\d+$", "ProfilerStep", regex=True)
    ranges = frame.assign(name=name, end_thread=None, domain="", style=ANNOTATION, is_open=is_open)
    # the torch collector opens a step after the last one, which never ends
    return ranges[~(ranges["is_open"] & (name == "ProfilerStep"))]


def _python_functions(trace: _Trace) -> Frame:
    """Read the calls of functions outside libraries: `folder/train.py(12): load` becomes `load (train.py:12)`."""

    def function(name: str) -> str:
        # the names of built-in functions and modules do not match
        match = PYTHON.fullmatch(name)
        if not match or is_of_library(match[1], is_relative=True):
            return ""
        return frame_name(match[3], match[1], int(match[2]))

    _, frame = trace.on_thread(_FUNCTION)
    calls = frame.assign(function=renamed(frame["name"].astype("category"), lambda names: names.map(function)))
    of_program: Frame = calls[calls["function"] != ""]
    return of_program


def _cpu_ops(trace: _Trace) -> Frame:
    arguments, frame = trace.operators
    return frame.assign(
        shapes=trace.lists(arguments, "Input Dims", is_shapes),
        types=trace.lists(arguments, "Input type", is_texts),
        inputs=trace.lists(arguments, "Concrete Inputs", is_texts),
        strides=trace.lists(arguments, "Input Strides", is_shapes),
        sequence=trace.numbers(arguments, "Sequence number"),
        forward_thread=_forward_threads(trace, frame.assign(number=trace.numbers(arguments, "Fwd thread id"))),
        module=_modules(trace, frame),
    )


def _forward_threads(trace: _Trace, operators: Frame) -> "pd.Series[Any]":
    """Return the thread of the forward operator for each operator of the backward pass.

    Backward operators have torch's own number of that thread; arrows show which thread it is.
    """
    arrows = trace.arrows(FORWARD_BACKWARD).rename(columns={"tid": "forward"})
    backward = operators[operators["number"].fillna(0) > 0]
    ends = backward.merge(arrows, left_on=["tid", "start_ns"], right_on=["tid_after", "start_ns_after"])
    thread = ends.drop_duplicates("number").set_index("number")["forward"]
    return backward["number"].map(thread).reindex(operators.index)


def _modules(trace: _Trace, operators: Frame) -> "pd.Categorical[Any]":
    """Return the module in which each operator was called: its path in the model, else its class."""
    texts, codes = [np.array([""], dtype=object)], np.zeros(len(operators), dtype=np.int64)
    for kind in dict.fromkeys(MODULES.values()):
        spans = trace.on_thread(kind)[1]
        row = innermost_of(spans, operators["thread"].to_numpy(), operators["start_ns"].to_numpy())
        names = spans["name"].array
        codes = np.where((codes == 0) & (row >= 0), sum(map(len, texts)) + np.append(names.codes, 0)[row], codes)
        texts.append(names.categories.str.removeprefix(OF_MODULE).to_numpy(dtype=object))
    return categorical(np.concatenate(texts), codes)


_NOTHING_RECORDED: Final = Finding(
    rule="nothing_recorded",
    severity="warning",
    title="torch.profiler recorded nothing",
    detail="The trace has no operators, ranges or GPU work: the program did not use torch while it was profiled.",
    remedy="Name the script that uses torch, or profile the program with nsys on a machine with a GPU.",
)
_DUPLICATES: Final = Finding(
    rule="repeated_events",
    severity="warning",
    title="The trace contains duplicate events",
    detail="Events with the same name, time, place and ids occur more than once. Each is counted once.",
    remedy="Export the trace once, or merge each file only once.",
)
_Reader = Callable[[_Trace], Frame]
_HOST_TABLES: Final[Mapping[str, _Reader]] = {
    "api_calls": _api_calls,
    "ranges": _ranges,
    "cpu_ops": _cpu_ops,
    "python_functions": _python_functions,
    "collectives": _collectives,
    "memory_usage": _memory_usage,
    "range_counters": _range_counters,
}
_GPU_TABLES: Final[Mapping[str, _Reader]] = {"kernels": _trace_kernels, "memory_ops": _memory_ops}
_SYNC_TABLES: Final[Mapping[str, _Reader]] = {"syncs": _syncs, "event_records": _event_records}
# PyTorch's names of types, in lower case
_ELEMENT_BYTES: Final = {
    "byte": 1,
    "char": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "short": 2,
    "half": 2,
    "bfloat16": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}


def _short_name(name: str) -> str:
    """Return a kernel's name without return type, namespaces, template arguments and parameters, like nsys."""
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
    return _memory_kind(copy[3]) if copy else ""


def _target_kind(name: str) -> str:
    copy, set_ = _COPY.fullmatch(name), _SET.fullmatch(name)
    return _memory_kind(copy[4]) if copy else _memory_kind(set_[1]) if set_ else ""


def _memory_kind(name: str) -> str:
    return _MEMORY_KINDS.get(name.upper(), name) if name.isupper() else name


_NO_COMMUNICATION: Final = Finding(
    "no_communication",
    "warning",
    "The trace lacks communication kernels",
    "{calls} of collectives of up to {ranks:,} ranks were recorded, but no communication kernel. Their time on the "
    "GPU, and what waited for them, is unknown.",
    "Record with a newer torch or driver, or with nsys (--trace cuda,nvtx).",
)
_TWO_NUMBERINGS: Final = Finding(
    "gpu_numbers",
    "warning",
    "The GPU model is unknown",
    "Events ran on GPU {events}, but the trace describes GPU {properties}, which are not all alike. Facts that depend "
    "on the model are missing: its name, multiprocessors, peak rates, and related advice.",
    "Make one kind of GPU visible to the program (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES).",
)
_SIZELESS: Final = Finding(
    "unknown_sizes",
    "info",
    "The size of {count:,} of {total:,} copies and memsets is not in the trace",
    "Neither they nor the calls that launched them record their size. Sums and rates that include them are unknown.",
)
