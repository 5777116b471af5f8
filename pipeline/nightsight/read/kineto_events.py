"""Sorts the events of a torch.profiler trace by kind, and reads their fields as columns.

Every event needs a name, times, and the place where it ran. All other fields are optional. Findings count events that
are dropped, and values that have the wrong type.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, TypeGuard

import numpy as np
import pandas as pd
import pyarrow as pa

from nightsight.errors import CaptureError
from nightsight.model.report import Finding
from nightsight.read.chrome import EXPORT
from nightsight.tables import Frame, categorical

Fields = Mapping[str, Any]
Rows = Sequence[Fields]
Values = np.ndarray[Any, Any]

MEMORY: Final = "[memory]"
OF_MODULE: Final = "nn.Module: "
"""The prefix of names of module calls: torch (with_stack) adds the class, our own collector the path in the model."""
MODULES: Final = {"cpu_op": "module", "user_annotation": "module", "python_function": "class of a module"}
"""The kinds of module calls, by category: our collector writes the first one, with older torch the second one."""
FORWARD_BACKWARD: Final = "fwdbwd"
"""The category of arrows from operators of the forward pass to those of the backward pass."""
# the process of all events in traces of the older torch.autograd.profiler, which have no categories
_OF_AUTOGRAD: Final = "CPU functions"
# the categories of torch 1.8 to 1.12, and its names of threads and streams
_OLD_CATEGORIES: Final = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
_OLD_THREAD: Final = re.compile(r"(?:stream )?(\d{1,18})")
_STEP: Final = "ProfilerStep"
_OPERATOR: Final = re.compile(r"\w+::|detach_?$|record_param_comms$|.*(?:Backward\d*|AccumulateGrad)$", re.DOTALL)
# the name of an annotation, and what torchtitan writes
_LABELS: Final = ("name", "module_fqn")
_HALF_ID: Final = 1 << 32
_CALL: Final = re.compile(r"(?:cuda|hip|cu)[A-Z][a-z]\w*")
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{1,16}")
NO_CATEGORY: Final = "events without a category"
"""The kind of these events, followed by their phase in parentheses unless they are spans."""
# instants of Kineto itself
_OF_KINETO: Final = ("Iteration Start: PyTorch Profiler", "Record Window End")
# metadata, and the ends of events that began in another row
_CONTINUED: Final = ("M", "E", "e", "n", "f", "t")
# with a later time (the year 2096, in microseconds), the end of an event could exceed int64 nanoseconds
_LATEST_US: Final = 4e15
# the fields that are equal in duplicates of an event, and those of its arguments
_FIELDS_OF_IDENTITY: Final = ("ph", "cat", "name", "ts", "dur", "pid", "tid", "id")
_ARGUMENTS_OF_IDENTITY: Final = (
    "correlation",
    "External id",
    "Ev Idx",
    "Python id",
    "Python parent id",
    "stream",
    "name",
    "Addr",
    "Bytes",
)
# a trace has duplicates if more than this share of its most frequent kind of events repeat; a few are equal by chance
_MOST_REPEATED: Final = 0.2
_FEW: Final = 10

INTEGER: Final = pa.int64()
NUMBER: Final = pa.float64()
TEXT: Final = pa.string()
TRIPLE: Final = pa.list_(pa.int64(), 3)
# our name of each type, and the types that JSON gives for it; a column without values has Arrow's null type
_ACCEPTED: Final = {
    INTEGER: ("an integer", (pa.int64(),)),
    NUMBER: ("a number", (pa.int64(), pa.float64())),
    TEXT: ("a string", (pa.string(),)),
    TRIPLE: ("a list of three integers", (pa.list_(pa.int64()),)),
}


class TraceEvents:
    """The events of one trace by kind, and counts of data that was left out.

    `kinds_read`: the kinds that readers used; `wrong_types`: the number of values of each field with the wrong type;
    `untimed`: GPU operations without possible times.
    """

    def __init__(self, file: str, document: Fields, findings: Sequence[Finding] = ()) -> None:
        self.file = file
        self.document = document
        self.findings = list(findings)
        self.events: dict[str, list[Fields]] = {}
        self.kinds_read: set[str] = set()
        self.wrong_types: Counter[str] = Counter()
        self.untimed: list[Frame] = []
        try:
            for event in document["traceEvents"]:
                if kind := _kind(event):
                    is_old = type(event.get("tid")) is str or event.get("pid") == _OF_AUTOGRAD
                    self.events.setdefault(kind, []).append(_as_today(event) if is_old else event)
        except (AttributeError, TypeError) as error:
            raise self.unexpected("an item of 'traceEvents'", "an event with a category") from error

    def has_duplicates(self) -> bool:
        """Whether many events occur more than once, as in a file that was written or merged twice."""
        largest = max(self.events.values(), key=len, default=[])
        limit = max(_MOST_REPEATED * len(largest), _FEW)
        try:
            # a quick check that nearly no trace passes; nested operators can begin and end together
            places = {(event.get("ts"), event.get("tid"), event.get("dur")) for event in largest}
        except TypeError:
            # a list instead of a number
            return False
        return len(largest) - len(places) > limit and len(largest) - len(set(map(_identity, largest))) > limit

    # -- columns --------------------------------------------------------------------------------------------------

    def unexpected(self, what: str, expected: str) -> CaptureError:
        """Return the error for a required field with a wrong value."""
        return CaptureError(f"{self.file}: {what} is not {expected}", EXPORT)

    def required(self, rows: Rows, key: str, kind: pa.DataType = INTEGER) -> pa.Array:
        """Return a field of all rows; CaptureError if any lacks it or has another type."""
        values = _typed([row.get(key) for row in rows], kind)
        if values is None or values.null_count:
            raise self.unexpected(f"'{key}'", f"{_ACCEPTED[kind][0]} in every event")
        return values

    def times(self, rows: Rows, key: str) -> Values:
        """Return a field in microseconds as floats, NaN where it is missing."""
        values = _typed([row.get(key) for row in rows], NUMBER)
        if values is None:
            raise self.unexpected(f"'{key}'", "a number in every event")
        array: Values = values.to_numpy(zero_copy_only=False)
        return array

    def optional(self, rows: Rows, key: str, kind: pa.DataType = INTEGER) -> pa.Array:
        """Return a field of all rows, missing if absent. Values of another type are missing, and in `wrong_types`."""
        raw = [row.get(key) for row in rows]
        values = _typed(raw, kind)
        if values is not None:
            return values
        accepted = [value if _typed([value], kind) is not None else None for value in raw]
        self.wrong_types[key] += accepted.count(None) - raw.count(None)
        return pa.array(accepted, type=kind)

    def numbers(self, rows: Rows, key: str) -> "pd.Series[int]":
        """Return whole numbers, as `optional` does."""
        return pd.Series(self.optional(rows, key), dtype=pd.ArrowDtype(INTEGER))

    def lists(self, rows: Rows, key: str, accepts: Callable[[object], bool]) -> "pd.Categorical[Any]":
        """Return lists as compact JSON, "" if absent. Those that `accepts` refuses are absent, and in `wrong_types`."""
        raw = [row.get(key) for row in rows]
        codes, _ = pd.factorize(np.array([_key(value) for value in raw], dtype=object))
        distinct = [raw[position] for position in np.unique(codes, return_index=True)[1]]
        is_wrong = np.array([value is not None and not accepts(value) for value in distinct], dtype=bool)
        self.wrong_types[key] += int(is_wrong[codes].sum())
        texts = [
            "" if is_refused or value is None else json.dumps(value, separators=(",", ":"))
            for is_refused, value in zip(is_wrong, distinct, strict=True)
        ]
        return categorical(np.array(texts, dtype=object), codes)

    def names(self, rows: Rows, *meanings: Callable[[str], str]) -> "list[pd.Categorical[Any]]":
        """Apply each of `meanings` to the names of all rows, once per distinct name; one column per meaning."""
        encoded = self.required(rows, "name", TEXT).dictionary_encode()
        texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        return [categorical(np.array([meaning(text) for text in texts], dtype=object), codes) for meaning in meanings]

    # -- rows -----------------------------------------------------------------------------------------------------

    def spans(self, *kinds: str) -> tuple[Rows, Frame]:
        """Return the events of `kinds` and their times; drops events with impossible times, with a finding."""
        return self._possible(*kinds)[:2]

    def _possible(self, *kinds: str) -> tuple[Rows, Frame, Rows]:
        """Return the events of `kinds`, their times, and the events with impossible times, which a finding counts."""
        self.kinds_read |= set(kinds)
        rows: Rows = [row for kind in kinds for row in self.events.get(kind, ())]
        start = self.times(rows, "ts")
        # instants have no duration
        duration = np.zeros(len(rows)) if kinds == (MEMORY,) else self.times(rows, "dur")
        # Kineto writes 0 for times before the base of its clock, so the real time is unknown
        is_possible = (start > 0) & (start < _LATEST_US) & (duration >= 0) & (duration < _LATEST_US)
        impossible: Rows = ()
        if not is_possible.all():
            categories = " and ".join(filter(self.events.get, kinds))
            count, total = int((~is_possible).sum()), len(rows)
            self.findings.append(DAMAGED.filled(categories=categories, count=count, total=total))
            rows, impossible = list(compress(rows, is_possible)), list(compress(rows, ~is_possible))
        start_ns = _nanoseconds(start[is_possible])
        end_ns = start_ns + _nanoseconds(duration[is_possible])
        return rows, pd.DataFrame({"start_ns": start_ns, "end_ns": end_ns}), impossible

    def arrows(self, category: str) -> Frame:
        """Return the arrows of a category: thread and start_ns of the first event, and of the second one (`_after`)."""
        ends = []
        for phase in ("s", "f"):
            rows = self.events.get(f"{category} ({phase})", ())
            self.kinds_read.add(f"{category} ({phase})")
            start = self.optional(rows, "ts", NUMBER).to_numpy(zero_copy_only=False)
            is_possible = np.abs(start) < _LATEST_US
            start_ns = np.where(is_possible, _nanoseconds(np.where(is_possible, start, 0)), -1)
            ids = {name: self.numbers(rows, name) for name in ("id", "tid")}
            ends.append(pd.DataFrame({**ids, "start_ns": start_ns})[is_possible].dropna().drop_duplicates("id"))
        arrows: Frame = ends[0].merge(ends[1], on="id", suffixes=("", "_after"))
        return arrows

    def arguments(self, rows: Rows) -> Rows:
        """Return the `args` of all rows, empty if absent; CaptureError if any is not an object."""
        arguments = [row.get("args", {}) for row in rows]
        if not all(isinstance(fields, dict) for fields in arguments):
            raise self.unexpected("'args'", "an object in every event")
        return arguments

    def on_thread(self, *kinds: str) -> tuple[Rows, Frame]:
        """Return the CPU events of `kinds`, with process and thread."""
        rows, frame = self.spans(*kinds)
        process, thread = (self.required(rows, key).to_numpy() for key in ("pid", "tid"))
        (name,) = self.names(rows, str)
        return rows, frame.assign(process=process, thread=thread, pid=process, tid=thread, name=name)

    def on_stream(self, *kinds: str) -> tuple[Rows, Rows, Frame]:
        """Return the GPU operations of `kinds`: rows, arguments and common columns."""
        rows, frame, impossible = self._possible(*kinds)
        arguments = [_placed(row, fields) for row, fields in zip(rows, self.arguments(rows), strict=True)]
        if impossible:
            placed = [_placed(row, fields) for row, fields in zip(impossible, self.arguments(impossible), strict=True)]
            ids = {name: self.numbers(placed, name) for name in ("device", "stream", "correlation")}
            untimed = pd.DataFrame(ids).dropna(subset=["device", "stream"])
            self.untimed.append(untimed.assign(context=0, start_ns=None))
        node = self._nodes(arguments)
        labels = [node_label(fields) for fields in arguments] if node.notna().any() else [None] * len(rows)
        return (
            rows,
            arguments,
            frame.assign(
                device=self.required(arguments, "device").to_numpy(),
                context=self._contexts(arguments),
                stream=self.required(arguments, "stream").to_numpy(),
                correlation=self.numbers(arguments, "correlation"),
                graph_node=node,
                label=pd.Series(labels, dtype=object),
            ),
        )

    def _nodes(self, arguments: Rows) -> "pd.Series[int]":
        """Return the node of a CUDA graph that each operation is; the upper half of its id is that of the graph.

        In torch 2.14 and later, the monitor of CUPTI writes both halves separately.
        """
        node = self.numbers(arguments, "graph node id")
        if not node.notna().any():
            return node
        graph = self.numbers(arguments, "graph id").fillna(0)
        is_half = ((graph > 0) & (graph < _HALF_ID >> 1) & (node >= 0) & (node < _HALF_ID)).fillna(value=False)
        # other numbers could overflow
        node = node.where(~is_half, graph.where(is_half, 0) * _HALF_ID + node.where(is_half, 0))
        return node.mask(node == 0)

    def _contexts(self, arguments: Rows) -> "pd.Series[int]":
        """Return the context of each operation: a number, or, for Intel's GPUs, an address, which is numbered here."""
        contexts = [fields.get("context") for fields in arguments]
        addresses = sorted({value for value in contexts if isinstance(value, str) and _ADDRESS.fullmatch(value)})
        if addresses:
            number = {address: place for place, address in enumerate(addresses, start=1)}
            arguments = [
                {"context": number.get(value, value) if isinstance(value, str) else value} for value in contexts
            ]
        return self.numbers(arguments, "context").fillna(0)


def node_label(fields: Fields) -> str | None:
    """Return what `torch.cuda.graph_annotations.mark_kernels` says of a node of a CUDA graph, if anything.

    Exporters write it as `annotation`, a text or fields, or write its fields among the arguments.
    """
    annotation = fields.get("annotation")
    parts = annotation if isinstance(annotation, list) else [annotation]
    merged: dict[str, object] = dict(fields)
    for part in parts:
        # of nested annotations, the inner one comes last
        merged |= part if isinstance(part, dict) else {"name": part} if isinstance(part, str) else {}
    label = next((value for key in _LABELS if isinstance(value := merged.get(key), str) and value.strip()), None)
    return f"{label} (backward)" if label and merged.get("autograd_phase") == "backward" else label


def distinct(events: Rows) -> Rows:
    """Return the events without duplicates of earlier ones."""
    return list({_identity(event): event for event in reversed(events)}.values())[::-1]


def _identity(event: Fields) -> tuple[object, ...]:
    """Return the values in which duplicates of an event are equal."""
    arguments = event.get("args")
    ids = [str(arguments.get(key)) for key in _ARGUMENTS_OF_IDENTITY] if isinstance(arguments, dict) else []
    return (*(str(event.get(key)) for key in _FIELDS_OF_IDENTITY), *ids)


def _kind(event: Fields) -> str:
    """Return the kind of an event: its category, with the phase unless it is a span; "" if it is not to be counted."""
    phase, category = event.get("ph"), event.get("cat")
    if category in _OLD_CATEGORIES:
        is_step = category == "Operator" and str(event.get("name")).startswith(_STEP)
        category = "user_annotation" if is_step else _OLD_CATEGORIES[category]
    if phase == "X":
        if category in MODULES and str(event.get("name")).startswith(OF_MODULE):
            return MODULES[category]
        if not category and event.get("pid") == _OF_AUTOGRAD:
            name = str(event.get("name"))
            if _OPERATOR.match(name):
                return "cpu_op"
            return "cuda_runtime" if _CALL.fullmatch(name) else "user_annotation"
        return category or NO_CATEGORY
    # the first exporters gave instants no category
    if event.get("name") == MEMORY:
        return MEMORY
    is_counted = phase not in _CONTINUED or (category == FORWARD_BACKWARD and phase == "f")
    is_counted = is_counted and (bool(category) or event.get("name") not in _OF_KINETO)
    return f"{category or NO_CATEGORY} ({phase})" if is_counted else ""


def _as_today(event: Fields) -> Fields:
    """Return an event of an older profiler as Kineto writes it today."""
    if event.get("pid") == _OF_AUTOGRAD:
        # its times start at 0, which means an unknown time in Kineto's traces
        time = event.get("ts")
        return {**event, "pid": 0, "ts": time + 1 if isinstance(time, int | float) else time}
    thread = _OLD_THREAD.fullmatch(str(event.get("tid")))
    return {**event, "tid": int(thread[1])} if thread else event


def _placed(row: Fields, fields: Fields) -> Fields:
    """Return the arguments of a GPU operation with device and stream, which default to `pid` and `tid`."""
    if "inDevice" in fields:
        # a peer-to-peer copy has three devices and contexts: take those it ran on
        return {**fields, "device": fields["inDevice"], "context": fields.get("inContext", 0)}
    if "device" in fields and "stream" in fields:
        return fields
    return {"device": row.get("pid"), "stream": row.get("tid"), **fields}


def is_id(value: object) -> TypeGuard[int]:
    """Whether a value is an integer that fits into an int64."""
    return type(value) is int and abs(value) < 2**63


def is_texts(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_shapes(value: object) -> bool:
    """Whether a value is a list of shapes, or, for arguments that are lists of tensors, of lists of shapes."""
    return isinstance(value, list) and all(
        isinstance(item, list) and (_is_shape(item) or all(isinstance(part, list) and _is_shape(part) for part in item))
        for item in value
    )


def _is_shape(sizes: list[Any]) -> bool:
    return all(is_id(size) for size in sizes)


def _key(value: object) -> str:
    """Return a text that differs for different values."""
    try:
        return str(value)
    except RecursionError:
        return "too deep"


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return values as an array of this type, with None as missing; None if any value has another type."""
    try:
        # let Arrow infer the type: given an integer type, it truncates 1.5 to 1
        array = pa.array(values)
        if array.type not in (*_ACCEPTED[kind][1], pa.null()):
            return None
        array = array.cast(kind)
        # a triple with a missing number is not a triple
        return None if kind == TRIPLE and array.flatten().null_count else array
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _nanoseconds(microseconds: Values) -> Values:
    """Convert to int64 nanoseconds, exactly for Kineto's three decimals up to 2^43 µs (101 days after its time base).

    Multiplying a double by 1000 would lose digits, so the whole and the fraction are converted separately.
    """
    whole = np.floor(microseconds)
    nanoseconds: Values = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return nanoseconds


DAMAGED: Final = Finding(
    "damaged_events",
    "warning",
    "{count:,} of {total:,} {categories} events were left out",
    "Their start or duration is missing, zero, negative or not a number, so they have no place in time.",
    "Capture again. If it happens again, the profiler lost or mixed up events.",
)
"""The finding for events that were left out."""


def unreadable_fields(counts: Counter[str]) -> Finding:
    """Return the finding for fields with the wrong type, with the number of their values."""
    fields = ", ".join(f"'{name}' ({count:,} x)" for name, count in counts.most_common() if count)
    return Finding(
        "unreadable_fields",
        "warning",
        "Some fields of the trace could not be read",
        f"Their values have another type than torch.profiler writes, and count as unknown: {fields}.",
        "Export the trace again with export_chrome_trace of torch.profiler.",
    )
