"""The canonical tables that every reader fills and every analysis reads, and the statistics computed from them.

Times are int64 nanoseconds. `process` and `thread` are join keys and never shown; `pid` and `tid` are for display.
Text is categorical (categories sorted); nullable integers are Arrow-backed.

`device` is the number of a GPU in the report, -1 for the CPU: readers use the number of the GPU in the machine, or
CUDA's if a capture has only that. A job gives its GPUs the numbers of their ranks, also if ranks share a GPU. `ordinal`
is CUDA's number within the process, for NVIDIA's tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from nightsight.intervals import NOTHING, Flags, Floats, Ints, in_order, innermost, outer

Frame = pd.DataFrame

INT: Final = "int64"
NULLABLE: Final = "int64[pyarrow]"
TEXT: Final = "category"

_SPAN: Final = {"start_ns": INT, "end_ns": INT}
_MOST_COUNTED: Final = 1 << 16
_ON_STREAM: Final = {
    "process": NULLABLE,
    "device": INT,
    "context": INT,
    "stream": INT,
    "correlation": NULLABLE,
}
_ON_THREAD: Final = {"process": INT, "thread": INT, "pid": INT, "tid": INT}

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "kernels": {
        **_SPAN,
        **_ON_STREAM,
        "ordinal": INT,
        "name": TEXT,
        "short_name": TEXT,
        "mangled_name": TEXT,
        "green_context": NULLABLE,
        "grid_x": INT,
        "grid_y": INT,
        "grid_z": INT,
        "block_x": INT,
        "block_y": INT,
        "block_z": INT,
        "registers": NULLABLE,
        "static_shared_bytes": NULLABLE,
        "dynamic_shared_bytes": NULLABLE,
        # set for kernels that a CUDA graph launched; the column is absent if an nsys export has no such data
        "graph_node": NULLABLE,
    },
    # operation: the direction of a copy ("Host-to-Device") or "memset"; the kinds: "Pageable", "Pinned", "Device"...
    "memory_ops": {
        **_SPAN,
        **_ON_STREAM,
        "ordinal": INT,
        "operation": TEXT,
        "source_kind": TEXT,
        "target_kind": TEXT,
        "bytes": NULLABLE,
        "graph_node": NULLABLE,
        "green_context": NULLABLE,
        # virtual address of pages that unified memory migrated
        "address": NULLABLE,
    },
    # one row per launch of a CUDA graph traced as a whole; the kernels inside it are not in any table
    "graph_launches": {**_SPAN, **_ON_STREAM, "graph": INT},
    # layer: "runtime" or "driver"
    "api_calls": {**_SPAN, **_ON_THREAD, "correlation": NULLABLE, "name": TEXT, "layer": TEXT, "status": NULLABLE},
    # style: "PushPop", "StartEnd" or "Annotation" (torch), or for calls by PyTorch "Module" (named by its path in the
    # model) or "Function"; is_open: it never ended and is cut off at the last event
    "ranges": {
        **_SPAN,
        **_ON_THREAD,
        "end_thread": NULLABLE,
        "domain": TEXT,
        # when the domain got its name; missing for the default domain
        "domain_start_ns": NULLABLE,
        "name": TEXT,
        "style": TEXT,
        "is_open": "bool",
        # the row in the capture, counted from 1
        "number": NULLABLE,
    },
    # instants: start and end are equal; category: its name, or its number if it has none
    "marks": {**_SPAN, **_ON_THREAD, "domain": TEXT, "category": TEXT, "name": TEXT},
    # event: the number of a CUDA event in its process; record: the number of the record that this waits for
    "syncs": {**_SPAN, **_ON_STREAM, "kind": INT, "event": NULLABLE, "record": NULLABLE},
    # calls of cudaEventRecord: waiting for a record means waiting for the work submitted to the stream before it
    "event_records": {"process": INT, "stream": INT, "correlation": NULLABLE, "event": NULLABLE, "record": NULLABLE},
    # nodes of CUDA graphs when they were made; original: the node that this is a copy of
    "graph_nodes": {"start_ns": INT, **_ON_THREAD, "node": INT, "original": NULLABLE},
    # operators of PyTorch, which can be nested. shapes, types, inputs, strides: of the arguments, as compact JSON in
    # PyTorch's words ("" if not recorded): [[64,256],[256],[]], ["float","c10::BFloat16","Scalar"], ["","","1"]
    # (values of non-tensors) and [[256,1],[1],[]] (0 along an axis that repeats one value). sequence: autograd's
    # number, shared by an operator of the forward pass and its operators of the backward pass, whose forward_thread is
    # the thread of the former. module: its path in the model, "layers.3.mlp", or its class, "Linear_0"
    "cpu_ops": {
        **_SPAN,
        **_ON_THREAD,
        "name": TEXT,
        "shapes": TEXT,
        "types": TEXT,
        "inputs": TEXT,
        "strides": TEXT,
        "sequence": NULLABLE,
        "forward_thread": NULLABLE,
        "module": TEXT,
    },
    # calls of collectives. name: "allreduce"; type: PyTorch's or NCCL's name; in_elements, bytes: sent by this rank;
    # out_elements, received_bytes: received by it; group: name of the communicator; ranks: its ranks, as JSON if known;
    # rank: this process's number in it; peer: the number of the other rank of a send or recv; is_whole: the capture has
    # all earlier calls in the communicator, because it was created during the capture
    "collectives": {
        **_SPAN,
        **_ON_THREAD,
        "name": TEXT,
        "type": TEXT,
        "in_elements": NULLABLE,
        "out_elements": NULLABLE,
        "bytes": NULLABLE,
        "received_bytes": NULLABLE,
        "group": TEXT,
        "group_size": NULLABLE,
        "ranks": TEXT,
        "rank": NULLABLE,
        "peer": NULLABLE,
        "is_whole": "bool",
    },
    # the rank of each process, and the number of ranks; source: where this is known from; group: the communicator that
    # numbers these ranks, "" for the job. shift_ns: the shift of its times to the clock of the other ranks, missing if
    # they share a clock; spread_ns: how far single collectives deviate from that; host: number of its machine, missing
    # unless known for all ranks
    "ranks": {
        "process": INT,
        "rank": INT,
        "world_size": NULLABLE,
        "source": TEXT,
        "group": TEXT,
        "shift_ns": NULLABLE,
        "spread_ns": NULLABLE,
        "host": NULLABLE,
    },
    "threads": {"thread": INT, "name": TEXT, "priority": NULLABLE},
    "os_calls": {**_SPAN, **_ON_THREAD, "name": TEXT},
    # page faults of unified memory: CPU faults one by one, GPU faults in groups
    "cpu_page_faults": {
        "time_ns": INT,
        "process": INT,
        "address": INT,
        "instruction": TEXT,
        "source_file": TEXT,
        "source_line": NULLABLE,
    },
    "gpu_page_faults": {**_SPAN, "process": INT, "device": INT, "address": INT, "faults": INT},
    # allocations and frees of memory
    "memory_usage": {
        "start_ns": INT,
        "process": INT,
        "device": INT,
        "kind": TEXT,
        "bytes": INT,
        "is_allocation": "bool",
        # total allocated on the device after this event, and total reserved by PyTorch, if the profiler records them
        "level_bytes": NULLABLE,
        "reserved_bytes": NULLABLE,
    },
    # samples of the GPU's counters; metric: with the unit of `value` in brackets
    "gpu_metrics": {"start_ns": INT, "device": INT, "metric": TEXT, "value": "float64"},
    # counters of kernels, or of ranges of the program, that a profiler collected without times; range: its number
    "range_counters": {"range": INT, "name": TEXT, "device": INT, "metric": TEXT, "value": "float64"},
    # the most informative frame in the call stack of the CUDA call that this thread made at this time
    "call_frames": {"thread": INT, "start_ns": INT, "frame": TEXT},
    # calls of Python functions outside libraries, with the line of their definition: "load (train.py:12)"
    "python_functions": {**_SPAN, **_ON_THREAD, "function": TEXT},
    # samples of the Python stack: the innermost function outside libraries with the current line, and all frames
    # (nightsight.events.stacks)
    "python_samples": {"start_ns": INT, **_ON_THREAD, "function": TEXT, "stack": TEXT},
    # what ncu replayed, in this order; kind: "kernel", "range", "graph" or "command list" (grid and block are 0 for
    # all but kernels); range_path: the NVTX push/pop ranges around it, "step / forward"
    "profiled_launches": {
        "launch": INT,
        "kind": TEXT,
        "process": INT,
        "pid": INT,
        "device": INT,
        "context": INT,
        "stream": INT,
        "name": TEXT,
        "short_name": TEXT,
        "mangled_name": TEXT,
        "grid_x": INT,
        "grid_y": INT,
        "grid_z": INT,
        "block_x": INT,
        "block_y": INT,
        "block_z": INT,
        "range_path": TEXT,
        "compute_capability": TEXT,
    },
    # value: in base units (bytes, ns, Hz and their quotients), NaN if the value is text, which is in `text`;
    # instance: the name of a part ("FMUL" of sass__inst_executed_per_opcode), otherwise empty; no row: not collected
    "kernel_metrics": {
        "launch": INT,
        "metric": TEXT,
        "instance": TEXT,
        "value": "float64",
        "unit": TEXT,
        "text": TEXT,
    },
    # kind: "info", "optimization", "warning" or "error"; speedup_kind: "local" (of one unit), "global" (of the kernel)
    # or "" if speedup_pct is NaN; estimates overlap, so they do not add up
    "kernel_rules": {
        "launch": INT,
        "section": TEXT,
        "rule": TEXT,
        "name": TEXT,
        "title": TEXT,
        "kind": TEXT,
        "message": TEXT,
        "speedup_kind": TEXT,
        "speedup_pct": "float64",
    },
    # one row per SASS instruction; pc_bytes: its offset in the kernel; stall: the most frequent stall reason
    "kernel_lines": {
        "launch": INT,
        "file": TEXT,
        "line": NULLABLE,
        "source": TEXT,
        "pc_bytes": INT,
        "sass": TEXT,
        "samples": NULLABLE,
        "stall": TEXT,
        "stall_samples": NULLABLE,
        "instructions": NULLABLE,
    },
    # uuid: equal for numbers of the same GPU, "" if unknown; never part of a report
    "devices": {
        "device": INT,
        "uuid": TEXT,
        "name": TEXT,
        "compute_capability": TEXT,
        "multiprocessors": NULLABLE,
        "memory_bytes": NULLABLE,
        "l2_bytes": NULLABLE,
        "memory_bandwidth_bytes_per_s": NULLABLE,
        "clock_hz": NULLABLE,
    },
    # events in the file that readers ignore; source: their name in the file
    "unread": {"kind": TEXT, "events": INT, "source": TEXT},
    # operations that ran on a stream but have impossible times; start_ns: their start, if it is possible
    "untimed": {**_ON_STREAM, "start_ns": NULLABLE},
    # messages of the profiler; severity: "info", "warning" or "error"
    "diagnostics": {"time_ns": INT, "severity": TEXT, "text": TEXT},
    "overheads": {**_SPAN, "process": INT, "thread": INT, "name": TEXT},
    # all that follow are not from the capture, but from the file next to it (runs/unprofiled.py): the time that the
    # profiler adds to a call of each kind on its machine, and the duration that it records for such a call
    "profiler_costs": {"kind": TEXT, "added_ns": "float64", "recorded_ns": "float64"},
    # repeated ranges in a run without the profiler, by path with `#` for numbers; med_ns: from one start to
    # the next, the mean if some take much longer; on_gpu: whether starts are times on the GPU or on the CPU
    # host_ns: how long the CPU is in such a range or call, typically; for steps that end with an optimizer, in its call
    "timed_ranges": {"path": TEXT, "instances": INT, "med_ns": "float64", "on_gpu": "bool", "host_ns": NULLABLE},
    # what torch.compile compiled; start_ns: since the epoch in the file; reason: why it was compiled again;
    # fix: code that avoids that; graph_break: what torch.compile could not compile in it
    "compilations": {
        "process": NULLABLE,
        "start_ns": INT,
        "end_ns": INT,
        "pid": INT,
        "function": TEXT,
        "reason": TEXT,
        "fix": TEXT,
        "graph_break": TEXT,
    },
    # kernels that torch.compile wrote, as their graphs have them; several can have the same name.
    # operators: "gelu, add"; places: lines of the program, "forward (model.py:42)"; read_bytes, written_bytes, flop: of
    # a launch; graphs: how many compiled graphs have it like this
    "fused_kernels": {
        "name": TEXT,
        "operators": TEXT,
        "places": TEXT,
        "read_bytes": NULLABLE,
        "written_bytes": NULLABLE,
        "flop": NULLABLE,
        "graphs": INT,
    },
    # figures of serving benchmarks; metric, measured: as in the result `serving`; statistic: a column of it;
    # source: the program that wrote the file, or a workload
    "serving_figures": {"metric": TEXT, "measured": TEXT, "source": TEXT, "statistic": TEXT, "value": "float64"},
    # requests of a server in the order of arrival; what happened when: by the client's clock sent, first and
    # last token seen, by the server's the others; without is_dated, times are not on the clock of the capture
    "requests": {
        "sent_ns": NULLABLE,
        "received_ns": NULLABLE,
        "tokenized_ns": NULLABLE,
        "scheduled_ns": NULLABLE,
        "first_token_ns": NULLABLE,
        "last_token_ns": NULLABLE,
        "first_seen_ns": NULLABLE,
        "last_seen_ns": NULLABLE,
        "failed_ns": NULLABLE,
        "input_tokens": NULLABLE,
        "output_tokens": NULLABLE,
        "preemptions": INT,
        "is_dated": "bool",
    },
    # how full the KV cache of an engine was, by its log; iteration: the number of the step, in names of TensorRT-LLM;
    # engine: its number, of several that share the requests
    "kv_cache": {"time_ns": NULLABLE, "iteration": NULLABLE, "engine": INT, "usage_pct": "float64"},
    # what the log of an engine says of its model, on each GPU: the weights that a step reads, keys and values of a
    # token, and for how many tokens the KV cache has room
    "served_model": {"weight_bytes": NULLABLE, "kv_token_bytes": NULLABLE, "kv_tokens": NULLABLE},
    # the rank of the program and the number of ranks by its launcher; source: the launcher; node: the number
    # of its machine, from 0
    "launched_as": {"rank": INT, "world_size": INT, "source": TEXT, "node": NULLABLE},
}

ABOUT_GPUS: Final = ("gpu_page_faults", "memory_usage", "gpu_metrics", "devices")
"""The tables of facts about GPUs: in a job, they only have rows about GPUs whose rank is known. The rows of the other
tables are about the program, and all stay.
"""
UNPROFILED: Final = (
    "profiler_costs",
    "timed_ranges",
    "compilations",
    "fused_kernels",
    "serving_figures",
    "requests",
    "kv_cache",
    "served_model",
    "launched_as",
)
"""The tables that are not part of any capture."""

SHAPE: Final = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
RESOURCES: Final = ["registers", "static_shared_bytes", "dynamic_shared_bytes"]
"""The resources of a kernel launch: its grid and block, registers per thread, and shared memory per block."""

DETAILS: Final[Mapping[str, frozenset[str]]] = {
    "kernels": frozenset({"ordinal", "short_name", "mangled_name", "green_context", *SHAPE, *RESOURCES}),
    "memory_ops": frozenset({"ordinal"}),
    "api_calls": frozenset({"status", "tid"}),
    "ranges": frozenset({"domain_start_ns"}),
}
"""Columns that only NVIDIA's tables need: most of the data of a large capture."""

PUSH_POP: Final = "PushPop"
START_END: Final = "StartEnd"
ANNOTATION: Final = "Annotation"
MODULE: Final = "Module"
FUNCTION: Final = "Function"
"""The styles of ranges: the two of NVTX, that of torch.profiler, and calls of modules and functions of PyTorch."""

AS_RECORDED: Final = "ranges as recorded"
"""A detail to request that is not a column: every range by its full name, as in NVIDIA's tables."""

Details = bool | frozenset[str]
"""The columns of DETAILS to read: all, none, or these."""

HOST_MEMORY: Final = "Host"
"""The kind of CPU memory that PyTorch allocated for tensors; its device is -1."""
ON_DEVICE: Final = ("Device", "Device Static", "Array")
"""The kinds of memory of a GPU."""

OF_REPLAY: Final = ("profiled_launches", "kernel_metrics", "kernel_rules", "kernel_lines")
"""The tables that only ncu fills."""
NOT_REPLAYED: Final = "no kernel was replayed with ncu"
OF_COMPILER: Final = ("compilations", "fused_kernels")
NOT_COMPILED: Final = "torch.compile compiled nothing, or its log was not recorded (nightsight profile)"
"""Why a timeline without a replay lacks these tables."""

NO_RANKS: Final = "the capture does not show which rank of a job a process is"
"""Why a capture lacks the table `ranks`."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "mangled_name": None,
    **dict.fromkeys(("shapes", "types", "inputs", "strides", "module", "type", "group", "ranks", "uuid"), ""),
    "is_whole": False,
}

# rows from which it pays to look for a quicker way
_MANY: Final = 100_000
# products of whole numbers below this do not overflow
_LARGEST: Final = 1 << 62
# up to this many values, a comparison with each is quicker than a sort
_FEW: Final = 8
# numbers whose range is at most this many times their count are dense
_DENSE: Final = 4
# tables of work on GPUs
_OF_GPU: Final = ("kernels", "memory_ops", "graph_launches", "profiled_launches")

STATISTICS: Final = ("count", "total", "avg", "med", "min", "max", "stddev")


def empty(table: str) -> pd.DataFrame:
    """Return a canonical table without rows, for events that were searched and did not occur."""
    return _empty_table(table).copy(deep=False)


@cache
def _empty_table(table: str) -> pd.DataFrame:
    columns = {name: _no_values(kind) for name, kind in TABLES[table].items()}
    return pd.DataFrame(columns, index=pd.RangeIndex(0), copy=False)


@cache
def _no_values(kind: Any) -> "pd.Series[Any]":  # noqa: ANN401 (any type of pandas)
    # some types take a millisecond, and most analyses ask for tables that a capture may lack
    return pd.Series([], dtype="object").astype(kind)


def are_named(texts: "pd.Series[Any]", words: str | Callable[[str], object]) -> Flags:
    """Return which rows of a categorical column have a text that contains a pattern, or that a function chooses."""
    categories, codes = texts.cat.categories, texts.cat.codes
    chosen = categories.str.contains(words) if isinstance(words, str) else (bool(words(text)) for text in categories)
    flags: Flags = np.array([*chosen, False], dtype=bool)[codes]
    return flags


def names_and_grids(kernels: pd.DataFrame) -> Ints:
    """Return equal numbers for kernels with equal names and grids; names alone count if grids were not recorded."""
    number = integers(kernels["name"].cat.codes)
    for axis in SHAPE[:3]:
        if axis in kernels:
            number = number * 1_000_003 + integers(kernels[axis])
    return number


def detail_columns(table: str, details: Details) -> frozenset[str]:
    """Return the columns of DETAILS to read."""
    names = DETAILS.get(table, frozenset())
    return names & details if isinstance(details, frozenset) else names if details else frozenset()


def conform(table: str, frame: pd.DataFrame, *, details: Details = True) -> pd.DataFrame:
    """Return `frame` with exactly the columns, order and types of a canonical table; KeyError if it lacks one.

    Absent columns get defaults: nullable numbers and optional texts are missing, other texts are "", and flags False.
    An absent ordinal is the device. Columns of DETAILS that `details` excludes are dropped.
    """
    left_out = DETAILS.get(table, frozenset()) - detail_columns(table, details)
    if not (isinstance(frame.index, pd.RangeIndex) and (frame.index.start, frame.index.step) == (0, 1)):
        frame = frame.reset_index(drop=True)
    columns: dict[str, Any] = {}
    kinds: Mapping[str, Any] = TABLES[table]
    for name, kind in kinds.items():
        if name in left_out:
            continue
        if name == "ordinal" and name not in frame:
            columns[name] = columns["device"]
        elif name not in frame and (kind == NULLABLE or name in _DEFAULTS):
            columns[name] = _absent(name, kind, len(frame))
        else:
            column = frame[name]
            # columns from canonical tables have their type already
            column = column if column.dtype == kind else column.astype(kind)
            columns[name] = column
            if kind == INT and (single := compact(values := column.to_numpy())) is not values:
                columns[name] = single
    # column by column: operations on whole tables take pandas milliseconds
    return pd.DataFrame(columns, index=frame.index, copy=False)


def compact(values: Ints) -> Ints:
    """Return many values; if all are equal, such as the process of calls, in an array that has only one in memory."""
    if len(values) < _MANY or values[0] != values[-1] or (values != values[0]).any():
        return values
    return np.broadcast_to(values[:1].copy(), values.shape)


def _absent(name: str, kind: str, rows: int) -> Any:  # noqa: ANN401 (any array)
    if kind == NULLABLE:
        return pd.array(pa.nulls(rows, pa.int64()), dtype=NULLABLE)
    if kind == TEXT:
        return pd.Categorical(pd.Series([_DEFAULTS[name]] * rows, dtype="str"))
    return np.full(rows, _DEFAULTS[name])


def categorical(values: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> "pd.Categorical[Any]":
    """Return the texts `values[codes]` as a categorical without building the long list; merges equal texts."""
    distinct, positions = np.unique(values.astype(object), return_inverse=True)
    # in the type that the categorical has for its codes: millions of them are converted before they are looked up
    kind = np.min_scalar_type(-max(len(distinct), 1))
    return pd.Categorical.from_codes(positions.astype(kind)[codes], categories=pd.Index(distinct, dtype="str"))


def numbered(keys: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Number the distinct combinations of keys in sorted order; return each row's number, and a row of each."""
    # constant keys distinguish nothing, and cost time
    varying = [key for key in keys if len(key) and key.min() != key.max()] or keys[:1]
    codes, _ = _ranks(varying[0])
    for key in varying[1:]:
        key_codes, count = _ranks(key)
        # renumbered after each key, so that the product cannot overflow
        codes, _ = _ranks(codes.astype(np.int64) * count + key_codes)
    example = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    example[codes] = np.arange(len(codes))
    return codes, example


def combinations(keys: Sequence[Ints]) -> tuple[Ints, list[tuple[int, ...]]]:
    """Number the distinct combinations of keys in sorted order; return each row's number, and the combinations."""
    codes, example = numbered(keys)
    return codes, list(zip(*(key[example].tolist() for key in keys), strict=True))


def _ranks(values: Ints) -> tuple[Ints, int]:
    """Return the place of each value among the distinct values in sorted order, and how many there are."""
    least = int(values.min(initial=0))
    if int(values.max(initial=0)) - least < max(_MOST_COUNTED, len(values)):
        # names, threads: counting small numbers takes a third of the time of hashing
        shifted = values.astype(np.int64) - least if least else values
        occurs = np.bincount(shifted) > 0
        return (np.cumsum(occurs) - 1)[shifted], int(occurs.sum())
    codes, distinct_values = pd.factorize(values, sort=True)
    return codes, len(distinct_values)


def combined(columns: "Sequence[pd.Series[Any]]", write: Callable[..., str]) -> "pd.Categorical[Any]":
    """Return a text for each row, which `write` makes of the texts in several columns, "" for a missing one.

    Each combination is written once.
    """
    texts = [["", *column.cat.categories] for column in columns]
    # missing texts have the code -1
    codes, rows = combinations([integers(column.cat.codes) + 1 for column in columns])
    written = [write(*(of_column[code] for of_column, code in zip(texts, row, strict=True))) for row in rows]
    return categorical(np.array(written, dtype=object), codes)


def unique(column: "pd.Series[Any]") -> list[int]:
    """Return the distinct values of a column of integers, at once if all are equal (`once`)."""
    values = column.to_numpy()
    distinct: list[int] = (values[:1] if values.strides == (0,) else pd.unique(values)).tolist()
    return distinct


def renamed(texts: "pd.Series[Any]", change: Callable[["pd.Index[Any]"], "pd.Index[Any]"]) -> "pd.Categorical[Any]":
    """Apply `change` to a categorical text column, once per distinct text."""
    return categorical(change(texts.cat.categories).to_numpy(dtype=object), texts.cat.codes.to_numpy())


def used_devices(tables: Mapping[str, pd.DataFrame]) -> set[int]:
    """Return the GPUs with work in these tables."""
    return {device for name in _OF_GPU if name in tables for device in unique(tables[name]["device"])}


def nullable_integers(values: np.ndarray[Any, Any]) -> "pd.Series[Any]":
    """Convert floats to nullable int64; NaN and values out of range become missing."""
    missing = ~(np.abs(values) < 2.0**63)
    return pd.Series(pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing), dtype=NULLABLE)


def summarize(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Return one row per group of `by` with the STATISTICS of `value`, groups in ascending order.

    The median averages the two middle values; the standard deviation is that of a sample (n-1), missing for a single
    value. Missing values are not counted; a group of missing values has missing statistics.
    """
    texts = [frame[name].cat for name in by if frame[name].dtype == TEXT]
    if len(texts) < len(by) or len(frame) < _MANY or any((text.codes < 0).any() for text in texts):
        return _statistics(frame.groupby(list(by), observed=True, sort=True)[value]).reset_index()
    # one number of all texts: pandas combines the codes of millions of rows in three times the time
    key = np.zeros(len(frame), dtype=np.int64)
    for text in texts:
        key *= len(text.categories)
        key += text.codes.to_numpy()
    values = frame[value].to_numpy(dtype=np.int64)
    groups = grouped(key, values)
    # the last digits of the standard deviation depend on how pandas adds up
    stddev = pd.Series(values, copy=False).groupby(key, sort=True).std().to_numpy()
    codes = np.unravel_index(groups.key, [len(text.categories) for text in texts])
    keys = {
        name: pd.Categorical.from_codes(code, categories=text.categories)
        for name, text, code in zip(by, texts, codes, strict=True)
    }
    average = groups.total / groups.count
    ends = (groups.least, groups.most)
    statistics = (groups.count, groups.total, average, groups.median, *ends, stddev)
    return pd.DataFrame({**keys, **dict(zip(STATISTICS, statistics, strict=True))})


@dataclass(frozen=True)
class Grouped:
    """Whole numbers by group, in ascending order of keys: how many there are, and statistics of them."""

    key: Ints
    count: Ints
    total: Ints
    least: Ints
    most: Ints
    median: Floats


def grouped(key: Ints, values: Ints) -> Grouped:
    """Return the groups of values with equal keys.

    One sort by group and value shows all of them: numpy sorts numbers several times as fast as pandas finds medians.
    """
    if not len(key):
        return Grouped(*(NOTHING,) * 5, NOTHING.astype(np.float64))
    lowest = int(values.min())
    span = int(values.max()) - lowest + 1
    if (int(np.abs(key).max()) + 1) * span < _LARGEST:
        # both in one number
        ordered = key * span
        ordered += values
        ordered -= lowest
        ordered.sort()
        of = ordered // span
        ordered -= of * span
        ordered += lowest
    else:
        order = np.lexsort((values, key))
        of, ordered = key[order], values[order]
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    count = np.diff(first, append=len(of))
    last = first + count - 1
    median = (ordered[(first + last) // 2].astype(np.float64) + ordered[(first + last + 1) // 2]) / 2
    return Grouped(of[first], count, np.add.reduceat(ordered, first), ordered[first], ordered[last], median)


def _statistics(grouped: Any) -> pd.DataFrame:  # noqa: ANN401 (a type that pandas does not export)
    functions = dict(zip(STATISTICS, ("count", "sum", "mean", "median", "min", "max", "std"), strict=True))
    return _side_by_side({name: getattr(grouped, function)() for name, function in functions.items()})


def aggregate(grouped: Any, **columns: tuple[str, str]) -> pd.DataFrame:  # noqa: ANN401 (as above)
    """Return a column for each keyword, from a column and the name of a function, as `grouped.agg(**columns)` does.

    pandas takes several times as long, which counts where groups are few, as in most tables.
    """
    return _side_by_side({name: getattr(grouped[of], function)() for name, (of, function) in columns.items()})


def _side_by_side(columns: "Mapping[str, pd.Series[Any]]") -> pd.DataFrame:
    """Return columns with the same index as a table; pandas would compare their indexes."""
    index = next(iter(columns.values())).index
    return pd.DataFrame({name: column.array for name, column in columns.items()}, index=index, copy=False)


def total(sizes: "pd.Series[Any]", by: Sequence[Any]) -> "pd.Series[Any]":
    """Sum sizes by group. One missing size makes the sum missing; pandas alone would count it as 0."""
    grouped = sizes.groupby(list(by), observed=True, dropna=False)
    return grouped.sum().where(grouped.count() == grouped.size())


def memory_levels(events: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the bytes allocated after each change in memory_usage, per group of `keys`, in order of time.

    `earlier` is the memory allocated before the capture: the level before the first change of each process if the
    profiler recorded levels, otherwise the memory that was freed without an allocation in the capture.
    """
    keys = list(keys)
    change = events["bytes"].where(events["is_allocation"], -events["bytes"])
    events = events.assign(change=change, before=events["level_bytes"] - change)
    levels = events.groupby([*keys, "start_ns"], observed=True, sort=True)["change"].sum().reset_index()
    grouped = levels.groupby(keys, observed=True)
    level = grouped["change"].cumsum()
    lowest = level.groupby([levels[key] for key in keys], observed=True).transform("min")
    first = events.sort_values("start_ns", kind="stable").drop_duplicates([*keys, "process"])
    recorded = (
        first.groupby(keys, observed=True)["before"].agg(lambda before: before.sum(min_count=1)).rename("recorded")
    )
    earlier = levels.join(recorded, on=keys)["recorded"].astype("float64").fillna(-lowest.clip(upper=0)).astype("int64")
    return levels.assign(bytes=level + earlier, earlier=earlier)


def integers(column: "pd.Series[Any]") -> Ints:
    """Return a nullable column as plain int64, with -1 for NULL."""
    return column.to_numpy(dtype=np.int64, na_value=-1) if column.dtype != np.int64 else column.to_numpy()


def duration(frame: pd.DataFrame) -> "pd.Series[int]":
    """Return the duration of each row in ns."""
    return frame["end_ns"] - frame["start_ns"]


def time_summary(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Summarize the durations of `frame`, the largest total first (ties: groups in ascending order).

    Columns: time_pct (share of this table's total, not of wall time), total_ns, count, avg_ns, med_ns, min_ns,
    max_ns, stddev_ns, then `by`.
    """
    table = summarize(frame.assign(duration=duration(frame)), by, "duration")
    table = table.sort_values("total", ascending=False, kind="stable", ignore_index=True)
    table.insert(0, "time_pct", table["total"] * 100.0 / max(table["total"].sum(), 1))
    in_ns = {name: f"{name}_ns" for name in STATISTICS if name != "count"}
    order = ["time_pct", "total_ns", "count", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns", *by]
    return table.rename(columns=in_ns)[order]


def nest(spans: pd.DataFrame) -> pd.DataFrame:
    """Sort spans by thread and start; add `parent`, the row of the innermost enclosing span on the thread, or -1.

    Also add `level`, the number of enclosing spans.
    """
    order = ["thread", "start_ns", "end_ns"]
    spans = spans.sort_values(order, ascending=[True, True, False], kind="stable", ignore_index=True)
    parent = np.full(len(spans), -1, dtype=np.int64)
    end = spans["end_ns"].to_numpy(dtype=np.int64)
    for rows in spans.groupby("thread").indices.values():
        local = outer(end[rows])
        parent[rows] = np.where(local >= 0, rows[local], -1)
    return spans.assign(parent=parent, level=levels(parent))


def are_dense(values: Ints) -> bool:
    """Whether numbers are mostly consecutive, as ids are: then a table by number is quicker than a sort."""
    return bool(len(values)) and int(values.max()) - int(values.min()) < _DENSE * len(values)


def positions(values: Ints) -> dict[int, Ints]:
    """Return the positions of each value, in ascending order of values: one pass over the array instead of one each."""
    # one GPU, one process, one thread: often there is only one value
    if len(values) and (values == values[0]).all():
        return {int(values[0]): np.arange(len(values))}
    several: list[int] = np.sort(pd.unique(values)).tolist()
    if len(several) <= _FEW:
        return {value: np.flatnonzero(values == value) for value in several}
    codes, distinct_values = pd.factorize(values, sort=True)
    # numpy sorts short numbers by counting
    order = np.argsort(codes.astype(np.int16) if len(distinct_values) < 1 << 15 else codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(distinct_values)))
    return {
        value: order[end - count : end]
        for value, end, count in zip(distinct_values.tolist(), ends, np.diff(ends, prepend=0), strict=True)
    }


def innermost_of(spans: pd.DataFrame, keys: Ints, time: Ints, *, by: str = "thread") -> Ints:
    """Return the row of the innermost of `spans` open at each of these times on its thread (`by`), -1 for none."""
    row = np.full(len(time), -1, dtype=np.int64)
    requests = positions(keys)
    starts, ends = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    for key, rows in positions(spans[by].to_numpy()).items():
        if key in requests:
            ordered = rows[in_order(starts[rows], -ends[rows])]
            inner = innermost(starts[ordered], ends[ordered], outer(ends[ordered]), time[requests[key]])
            row[requests[key]] = np.where(inner >= 0, ordered[inner], -1)
    return row


def levels(parent: Ints) -> Ints:
    """Count the ancestors of each row; each round doubles the distance."""
    level, above = (parent >= 0).astype(np.int64), parent.copy()
    rows = np.flatnonzero(above >= 0)
    while len(rows):
        position = above[rows]
        level[rows] += level[position]
        above[rows] = above[position]
        rows = rows[above[rows] >= 0]
    return level


def nearest(parent: Ints, is_skipped: Flags) -> Ints:
    """Return for each row its nearest ancestor or itself that is not skipped, -1 for none, as fast as `levels`."""
    # one more entry, so that -1 leads to itself
    is_skipped = np.append(is_skipped, False)
    target = np.append(np.where(is_skipped[:-1], parent, np.arange(len(parent))), -1)
    while is_skipped[target].any():
        target = target[target]
    return target[:-1]


def ancestors(parent: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield, level by level upwards, the rows that have an ancestor there, and the rows of these ancestors."""
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    while len(rows):
        yield rows, above
        above = parent[above]
        rows, above = rows[above >= 0], above[above >= 0]
