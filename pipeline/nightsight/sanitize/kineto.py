"""Rewrites a torch.profiler trace with only the parts of its events that a report and a trace viewer need.

The whole trace is in memory, as when its report is made.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from nightsight.read.chrome import read_document
from nightsight.read.kineto import COUNTED, PYTHON
from nightsight.read.kineto_events import OF_MODULE
from nightsight.sanitize.named import PLAIN
from nightsight.sanitize.private import Private

Json = Any
_Clean = Callable[[Private, str], str]

# numbers that the profilers of ROCm and Intel write as text, and addresses
_NUMERIC: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?|0x[0-9a-f]{1,16}")
_RANKS: Final = re.compile(r"[\[\]0-9, .]*")
_TRACK: Final = re.compile(r"(?:thread|stream|GPU|CPU)(?: -?[0-9]{1,20})?")
_METRIC: Final = re.compile(r"[a-z][a-z0-9]*__\w+(?:\.\w+)*")
_PHASE: Final = re.compile(r"[A-Za-z(){}]")
# processes and threads of events that are not from the program
_PLACES: Final = frozenset(("", "Spans", "Traces", "PyTorch Profiler", "Trace PyTorch Profiler", "CPU functions"))


def _matching(pattern: re.Pattern[str]) -> _Clean:
    return lambda _, text: text if pattern.fullmatch(text) else ""


def _no_text(_: Private, __: str) -> str:
    return ""


def _content(private: Private, text: str) -> str:
    return private.text(text)


_NUMBER: Final = _matching(_NUMERIC)
_OF_TRACE: Final[Mapping[str, _Clean]] = {
    **dict.fromkeys(("schemaVersion", "baseTimeNanoseconds", "with_stack", "with_flops", "with_modules"), _no_text),
    **dict.fromkeys(("profile_memory", "record_shapes", "cuda_runtime_version", "cuda_driver_version"), _no_text),
    "cupti_version": _no_text,
    "displayTimeUnit": lambda _, text: text if text in ("ms", "ns") else "",
}
_OF_DEVICE: Final[Mapping[str, _Clean]] = {
    "name": _content,
    **dict.fromkeys(["id", "totalGlobalMem", "computeMajor", "computeMinor", "numSms", "warpSize"], _no_text),
    **dict.fromkeys(["maxThreadsPerBlock", "maxThreadsPerMultiprocessor", "regsPerBlock"], _no_text),
    **dict.fromkeys(["regsPerMultiprocessor", "sharedMemPerBlock", "sharedMemPerBlockOptin"], _no_text),
    "sharedMemPerMultiprocessor": _no_text,
}
_OF_EVENT: Final[Mapping[str, _Clean]] = {
    "ph": _matching(_PHASE),
    "cat": _content,
    "name": _content,
    "pid": lambda _, text: text if text in _PLACES else "",
    "tid": lambda _, text: text if text in _PLACES else "",
    "ts": _no_text,
    "dur": _no_text,
    "id": _NUMBER,
    "s": _matching(_PHASE),
    "bp": _matching(_PHASE),
}
_OF_ARGUMENTS: Final[Mapping[str, _Clean]] = {
    **dict.fromkeys(("External id", "Sequence number", "Fwd thread id", "Record function id", "Ev Idx"), _NUMBER),
    **dict.fromkeys(("Python id", "Python parent id", "Python module id", "Python thread", "finished"), _NUMBER),
    **dict.fromkeys(("correlation", "cbid", "device", "context", "stream", "queued", "priority"), _NUMBER),
    **dict.fromkeys(("registers per thread", "shared memory", "blocks per SM", "warps per SM"), _NUMBER),
    **dict.fromkeys(("grid", "block", "est. achieved occupancy %", "graph node id", "graph id"), _NUMBER),
    **dict.fromkeys(("bytes", "size", "memory bandwidth (GB/s)", "Op count", "sort_index"), _NUMBER),
    **dict.fromkeys(("inDevice", "outDevice", "fromDevice", "toDevice", "inContext", "outContext"), _NUMBER),
    **dict.fromkeys(("Bytes", "Total Allocated", "Total Reserved", "Device Id", "Device Type", "Addr"), _NUMBER),
    **dict.fromkeys(("In msg nelems", "Out msg nelems", "Group size", "Rank"), _NUMBER),
    **dict.fromkeys(("wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id", "wait_on_stream"), _NUMBER),
    **dict.fromkeys(("Input Dims", "Input Strides"), _NUMBER),
    **dict.fromkeys(("Input type", "Concrete Inputs"), _content),
    # of nodes of CUDA graphs
    **dict.fromkeys(("annotation", "module_fqn", "autograd_phase"), _content),
    **dict.fromkeys(("Collective name", "dtype", "Process Group Name", "Process Group Description"), _content),
    "Process Group Ranks": _matching(_RANKS),
    "Call stack": lambda private, text: ";".join(_frame(private, frame) for frame in text.split(";")),
    "labels": _matching(_TRACK),
}
# events that name processes and threads for the viewer
_TRACKS: Final = ("process_name", "thread_name", "process_labels", "process_sort_index", "thread_sort_index")
_ANY_TRACK: Final = re.compile("|".join(_TRACKS))
_MOST_DEEP: Final = 8

VOCABULARY: Final = (
    *_OF_TRACE,
    *_OF_DEVICE,
    *_OF_EVENT,
    *_OF_ARGUMENTS,
    *_TRACKS,
    *_PLACES,
    "distributedInfo rank world_size",
    "deviceProperties traceEvents args true false null python_function user_annotation cpu_op kernel gpu_memcpy",
)


def sanitize_kineto(source: Path, target: Path, private: Private, *, most_bytes: int, is_packed: bool) -> None:
    """Write the required parts of the trace `source` to the new file `target`; CaptureError if it is damaged."""
    document = read_document(source, most_bytes).document
    for name, value in document.items():
        if name not in (*_OF_TRACE, "deviceProperties", "traceEvents"):
            _learn(private, name, value)
            private.left_out["facts about the machine and the capture"] += 1
    events = document["traceEvents"]
    for event in events:
        _learn(private, "", event)
    with (
        target.open("wb") as file,
        # without name and time, so that the same trace gives the same bytes
        gzip.GzipFile("", "wb", 6, file, mtime=0) if is_packed else nullcontext(file) as output,
    ):
        for piece in _pieces(document, events, private):
            output.write(piece.encode())


def _pieces(document: Mapping[str, Json], events: list[Json], private: Private) -> Iterator[str]:
    head = _allowed(private, document, _OF_TRACE)
    devices = document.get("deviceProperties")
    if devices is not None:
        head["deviceProperties"] = [
            _allowed(private, device, _OF_DEVICE) if isinstance(device, dict) else _clean(private, device, _no_text)
            for device in (devices if isinstance(devices, list) else [devices])
        ]
    distributed = document.get("distributedInfo")
    if isinstance(distributed, dict):
        head["distributedInfo"] = _allowed(private, distributed, dict.fromkeys(("rank", "world_size"), _no_text))
    start = _json(head).removesuffix("}")
    yield f'{start}{"," if head else ""}"traceEvents":['
    for number, event in enumerate(events):
        cleaned = _event(private, event) if isinstance(event, dict) else _clean(private, event, _no_text)
        yield f"{',' if number else ''}\n{_json(cleaned)}"
    yield "\n]}\n"


def _event(private: Private, event: Mapping[str, Json]) -> dict[str, Json]:
    is_track = event.get("ph") == "M"
    clean_name: _Clean = _matching(_ANY_TRACK) if is_track else _content
    if event.get("cat") == "python_function" and not str(event.get("name")).startswith(OF_MODULE):
        clean_name = _frame
    cleaned = _allowed(private, event, {**_OF_EVENT, "name": clean_name})
    arguments = event.get("args", {})
    if isinstance(arguments, dict):
        extra: dict[str, _Clean] = {"name": _track} if is_track else {}
        if event.get("cat") == COUNTED:
            extra = {name: _no_text for name in arguments if _METRIC.fullmatch(name) and not private.found_in(name)}
        cleaned_arguments = _allowed(private, arguments, {**_OF_ARGUMENTS, **extra})
        private.left_out["arguments of events"] += len(arguments) - len(cleaned_arguments)
        if cleaned_arguments or "args" in event:
            cleaned["args"] = cleaned_arguments
    elif "args" in event:
        cleaned["args"] = _clean(private, arguments, _no_text)
    return cleaned


def _allowed(private: Private, fields: Mapping[str, Json], cleaners: Mapping[str, _Clean]) -> dict[str, Json]:
    """Return the fields that have a cleaner, with clean texts."""
    return {name: _clean(private, value, cleaners[name]) for name, value in fields.items() if name in cleaners}


def _clean(private: Private, value: Json, clean: _Clean, deep: int = 0) -> Json:
    """Clean the texts in a JSON value; malformed values stay malformed, since reports count them."""
    if isinstance(value, str):
        return clean(private, value)
    if isinstance(value, list):
        return [_clean(private, item, clean, deep + 1) for item in value] if deep < _MOST_DEEP else []
    return {} if isinstance(value, dict) else value


def _frame(private: Private, name: str) -> str:
    """Clean a function call such as `folder/train.py(12): load`."""
    match = PYTHON.fullmatch(name)
    if not match:
        return private.function(name)
    return f"{private.file(match[1], is_relative=True)}({match[2]}): {private.function(match[3])}"


def _track(_: Private, text: str) -> str:
    """Keep only `stream 7` of the name of a track, which may also contain names of programs and threads."""
    match = _TRACK.match(text)
    return match[0] if match else ""


def _learn(private: Private, name: str, value: Json) -> None:
    """Learn private data from all texts in a value, including texts that are not kept."""
    if isinstance(value, str):
        if name:
            private.learn_value(name, value)
        else:
            private.learn_text(value)
    elif isinstance(value, dict):
        for field, item in value.items():
            # field names describe values in the metadata of a trace, but rarely in its events
            _learn(private, field if name or PLAIN.fullmatch(field) else "", item)
    elif isinstance(value, list):
        for item in value:
            _learn(private, name, item)


def texts_of_kineto(path: Path, most_bytes: int) -> Iterator[str]:
    """Return all texts in a trace, and the names of its fields."""
    return _texts(read_document(path, most_bytes).document)


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        yield from (value if isinstance(value, dict) else ())
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))
