"""Drawn timelines: one character is one microsecond, a run of one letter is one event.

    nvtx  [step        ]
    mark  .........x
    cpu   LLL..LL..SSSS
    s7    ....aaa..bb

`cpu` holds CUDA calls (L launch, C copy, B blocking copy, G graph launch, S synchronize, A allocate, F free, J load a
module, E record an event, W let a stream wait for one), `nvtx` ranges from bracket to bracket, `mark` marks of that
name, `sN` a stream: small letters are kernels of that name (n one of NCCL), H and D copies to the device and back, I
within it, P to a peer, M a set, G a whole graph. The n-th launching call (L, C, B, G) launches the n-th operation.
`cpu:8`, `nvtx:8` and `mark:8` are thread 8 (7 otherwise).
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from nightsight.model.report import Profile
from nightsight.tables import conform, empty

CALLS = {
    "L": "cudaLaunchKernel",
    "C": "cudaMemcpyAsync",
    "B": "cudaMemcpy",
    "G": "cudaGraphLaunch",
    "S": "cudaStreamSynchronize",
    "A": "cudaMalloc",
    "F": "cudaFree",
    "J": "cuLibraryLoadData",
    "E": "cudaEventRecord",
    "W": "cudaStreamWaitEvent",
}
LAUNCHING = "LCBG"
KERNELS = {"n": "ncclDevKernel_AllReduce_Sum_f32"}
COPIES = {
    "H": ("Host-to-Device", "Pageable", "Device"),
    "D": ("Device-to-Host", "Device", "Pageable"),
    "P": ("Peer-to-Peer", "Device", "Device"),
    "I": ("Device-to-Device", "Device", "Device"),
}
_MEMORY = (*COPIES, "M")
_NO_KERNELS = (*_MEMORY, "G")
PROCESS = 5 << 24

Rows = Sequence[dict[str, Any]]


def draw(picture: str) -> Profile:
    """Make a Profile of a picture."""
    calls: list[dict[str, Any]] = []
    ranges: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    operations: list[dict[str, Any]] = []
    for line in filter(str.strip, picture.splitlines()):
        label, track = re.match(r"\s*(\S+) {2,}(.*)", line).groups()  # type: ignore[union-attr]
        kind, _, number = label.partition(":")
        thread = _thread(int(number or 7))
        if kind == "cpu":
            calls += [{**span, **thread, "letter": letter} for letter, span in _events(track)]
        elif kind == "nvtx":
            ranges += [{**span, **thread, "name": name} for name, span in _ranges(track)]
        elif kind == "mark":
            marks += [{**span, **thread, "name": letter} for letter, span in _instants(track)]
        else:
            stream = {"stream": int(kind[1:]), "device": int(number or 0)}
            operations += [{**span, **stream, "letter": letter} for letter, span in _events(track)]
    _launch(calls, operations)
    return profile_of(calls, ranges, marks, operations)


def profile_of(calls: Rows, ranges: Rows = (), marks: Rows = (), operations: Rows = ()) -> Profile:
    """Make a Profile of calls with names, of operations with letters (see above), and of ranges and marks.

    An operation and the call that launched it have the same `correlation`. Any other column of its table may be given.
    """
    calls = [{"layer": "runtime"} | call for call in calls]
    operations = [{"process": PROCESS, "context": 1, "graph_node": None, "correlation": None} | op for op in operations]
    kernels: Rows = [
        _KERNEL | dict.fromkeys(("name", "short_name"), KERNELS.get(op["letter"], op["letter"])) | op
        for op in operations
        if op["letter"] not in _NO_KERNELS
    ]
    range_facts = {"end_thread": None, "domain": "", "style": "PushPop", "is_open": False}
    return Profile(
        {
            "kernels": _table("kernels", list(kernels)),
            "memory_ops": _table("memory_ops", [_memory(op) for op in operations if op["letter"] in _MEMORY]),
            "graph_launches": _table("graph_launches", [op | {"graph": 1} for op in operations if op["letter"] == "G"]),
            "api_calls": _table("api_calls", calls),
            "ranges": _table("ranges", [range_facts | item for item in ranges]),
            "marks": _table("marks", [mark | {"domain": "", "category": ""} for mark in marks]),
            "diagnostics": empty("diagnostics"),
        }
    )


def side_by_side(first: Profile, second: Profile) -> Profile:
    """Join two drawn programs that ran at the same time: the second is process 6, its GPUs come after all of the first.

    Correlation ids and numbers of devices may be the same in both, as each process counts its own.
    """
    other = 6 << 24
    gpus = 1 + max((int(first.table(name)["device"].max()) for name in _ON_GPUS if len(first.table(name))), default=-1)
    moved = {}
    for name, table in second.tables.items():
        changes: dict[str, Any] = {"process": other} if "process" in table else {}
        if "pid" in table:
            changes |= {"pid": 6, "thread": table["thread"] - PROCESS + other}
        if name in _ON_GPUS:
            changes |= {"device": table["device"] + gpus}
        moved[name] = table.assign(**changes)
    joined = {name: [first.tables[name], moved[name]] for name in first.tables}
    return Profile({name: conform(name, pd.concat(tables, ignore_index=True)) for name, tables in joined.items()})


_ON_GPUS = ("kernels", "memory_ops", "graph_launches")


def _events(track: str) -> list[tuple[str, dict[str, int]]]:
    events, position = [], 0
    for letter, run in groupby(track):
        length = len(list(run))
        if letter.isalpha():
            events.append((letter, {"start_ns": position * 1000, "end_ns": (position + length) * 1000}))
        position += length
    return events


def _ranges(track: str) -> list[tuple[str, dict[str, int]]]:
    return [
        (match[1], {"start_ns": match.start() * 1000, "end_ns": match.end() * 1000})
        for match in re.finditer(r"\[(\w+)[^\]]*\]", track)
    ]


def _instants(track: str) -> list[tuple[str, dict[str, int]]]:
    return [
        (letter, {"start_ns": position * 1000, "end_ns": position * 1000})
        for position, letter in enumerate(track)
        if letter.isalpha()
    ]


def _thread(tid: int) -> dict[str, int]:
    return {"process": PROCESS, "thread": PROCESS | tid, "pid": 5, "tid": tid}


def _launch(calls: list[dict[str, Any]], operations: list[dict[str, Any]]) -> None:
    """Number the calls, and let the n-th launching one launch the n-th operation."""
    launching = sorted((call for call in calls if call["letter"] in LAUNCHING), key=lambda call: call["start_ns"])
    operations.sort(key=lambda operation: operation["start_ns"])
    for number, call in enumerate(calls, start=1000):
        call |= {"correlation": number, "name": CALLS[call["letter"]]}
    for call, operation in zip(launching, operations, strict=False):
        operation["correlation"] = call["correlation"]


_KERNEL = {
    **dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1),
    **dict.fromkeys(("registers", "static_shared_bytes", "dynamic_shared_bytes"), 0),
}


def _memory(operation: dict[str, Any]) -> dict[str, Any]:
    name, source, target = COPIES.get(operation["letter"], ("memset", "", "Device"))
    return {"operation": name, "source_kind": source, "target_kind": target, "bytes": 1024} | operation


def _table(name: str, rows: Rows) -> pd.DataFrame:
    return conform(name, pd.DataFrame(rows)) if rows else empty(name)
