"""Export to ui.perfetto.dev and chrome://tracing: Chrome's trace-event JSON, gzip-compressed.

Arrow builds the rows of JSON from columns of text, one block of events at a time. Names and arguments that many events
share are formatted once. Times are microseconds with three decimals, so they are exact.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nightsight.events.launches import launching_calls
from nightsight.intervals import Floats, Ints
from nightsight.model.report import Profile
from nightsight.render.export.rows import Text, blocks, digits, join, one_text, strings, take, where
from nightsight.render.tracks import (
    LAYERS,
    ON_THREADS,
    OS_CALLS,
    Places,
    Slices,
    TraceTrack,
    event_names,
    layer_slices,
    mark_slices,
    process_slices,
    stream_slices,
    thread_slices,
    with_layers,
)
from nightsight.tables import RESOURCES, SHAPE, combinations, integers, memory_levels, numbered, renamed
from nightsight.texts import printable

_CATEGORIES: Final[Mapping[str, str]] = {
    "ranges": "range",
    "marks": "mark",
    "python_functions": "python",
    "cpu_ops": "operator",
    "api_calls": "api",
    "os_calls": "os",
    "kernels": "kernel",
    "memory_ops": "memory",
    "graph_launches": "graph",
    LAYERS: "range",
}
# the arguments of an event, in addition to its name, if its table has them
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ranges": ("domain", "is_open"),
    "marks": ("domain", "category"),
    "python_functions": (),
    "cpu_ops": (),
    "api_calls": ("layer", "status"),
    "os_calls": (),
    "kernels": (*SHAPE, *RESOURCES, "graph_node"),
    "memory_ops": ("bytes", "source_kind", "target_kind", "graph_node"),
    "graph_launches": ("graph",),
    LAYERS: ("domain",),
}
# higher levels take twice the time to save a tenth of the size
_COMPRESSION: Final = 3
_FRACTIONS: Final = strings(f".{fraction:03d}" for fraction in range(1000))


def perfetto_trace(profile: Profile) -> bytes:
    """Return all events of a profile as a gzip-compressed trace; times are relative to the first event.

    Processes contain threads; each GPU is a process whose threads are its streams. Flow arrows lead from a call to the
    operations it launched. An operation that appears to start before its call (clocks can disagree) has no arrow.
    """
    # wbits=31 selects the gzip container
    compressor = zlib.compressobj(_COMPRESSION, wbits=31)
    return b"".join([*map(compressor.compress, _document(profile)), compressor.flush()])


def _document(profile: Profile) -> Iterator[bytes]:
    profile = with_layers(profile)
    places = Places(profile)
    threads = thread_slices(profile, places, tables=(*ON_THREADS, OS_CALLS))
    marks, ranges, layers, streams = (
        lay_out(profile, places) for lay_out in (mark_slices, process_slices, layer_slices, stream_slices)
    )
    counters = _counters(profile, places)
    events: list[Slices | _Counters] = [threads, marks, ranges, layers, streams, *counters]
    origin = min((int(item.start.min()) for item in events if len(item.start)), default=0)
    # marks share the tracks of their threads, so each track is listed once
    tracks = list(dict.fromkeys(track for item in events for track in item.tracks))
    launching, launched = _flows(profile, threads, streams)
    rows = chain(
        _metadata(tracks),
        _slice_rows(profile, threads, origin, _Arrows(launching, "out")),
        _instant_rows(profile, marks, origin),
        _async_rows(profile, ranges, origin),
        _slice_rows(profile, layers, origin, _Arrows(np.zeros(len(layers.row), dtype=np.int64), "in")),
        _slice_rows(profile, streams, origin, _Arrows(launched, "in")),
        *(_counter_rows(counter, origin) for counter in counters),
    )
    yield b'{"displayTimeUnit":"ns","traceEvents":['
    # each row starts with a comma; remove that of the first
    yield next(rows, b"").removeprefix(b",")
    yield from rows
    yield b"\n]}\n"


def _metadata(tracks: Sequence[TraceTrack]) -> Iterator[bytes]:
    """Yield the names and the order of processes and threads."""
    for index, (pid, name) in enumerate({track.pid: track.process for track in tracks}.items()):
        yield _metadata_rows("process", {"pid": pid}, name, index)
    for index, track in enumerate(tracks):
        if track.name:
            yield _metadata_rows("thread", {"pid": track.pid, "tid": track.tid}, track.name, index)


def _metadata_rows(kind: str, ids: Mapping[str, int], name: str, index: int) -> bytes:
    facts = {f"{kind}_name": {"name": name}, f"{kind}_sort_index": {"sort_index": index}}
    rows = ({"ph": "M", "name": fact, **ids, "args": value} for fact, value in facts.items())
    return "".join(f",\n{_json(row)}" for row in rows).encode()


@dataclass(frozen=True)
class _Arrows:
    """The flow number of each slice, 0 for none; the slices start ("out") or end ("in") the flows."""

    number: Ints
    direction: str


def _flows(profile: Profile, threads: Slices, streams: Slices) -> tuple[Ints, Ints]:
    """Number the flow arrows from calls to the operations they launched."""
    begins, ends = np.zeros(len(threads.row), dtype=np.int64), np.zeros(len(streams.row), dtype=np.int64)
    if "api_calls" not in threads.tables:
        return begins, ends
    of_calls = np.flatnonzero(threads.table == threads.tables.index("api_calls"))
    # one extra entry: index -1 represents operations without a call
    slice_of_call = np.full(len(profile.table("api_calls")) + 1, -1, dtype=np.int64)
    slice_of_call[threads.row[of_calls]] = of_calls
    # `launching_calls` numbers the operations of all tables consecutively
    offset = np.cumsum([0, *(len(profile.table(name)) for name in streams.tables)])
    call = slice_of_call[launching_calls(profile)[offset[streams.table] + streams.row]]
    launched = np.flatnonzero(call >= 0)
    # without arrows that would lead backwards in time
    launched = launched[streams.start[launched] >= threads.start[call[launched]]]
    # + 1, because 0 means no arrow
    begins[call[launched]] = ends[launched] = call[launched] + 1
    return begins, ends


@dataclass(frozen=True)
class _Labels:
    """Name and arguments of each slice: `text[code]`, followed by its correlation id unless that is -1."""

    code: Ints
    text: pa.Array
    correlation: Ints

    def of(self, block: slice) -> list[Text]:
        correlation = self.correlation[block]
        return [take(self.text, self.code[block]), where(correlation >= 0, digits(correlation)), "}}"]


def _labels(profile: Profile, slices: Slices) -> _Labels:
    code, correlation = np.zeros(len(slices.row), dtype=np.int64), np.full(len(slices.row), -1, dtype=np.int64)
    texts: list[pa.Array] = []
    for index, table in enumerate(slices.tables):
        frame, is_of_table = profile.table(table), slices.table == index
        rows = slices.row[is_of_table]
        codes, text = _table_labels(table, frame)
        code[is_of_table] = sum(map(len, texts)) + codes[rows]
        texts.append(text)
        if "correlation" in frame:
            correlation[is_of_table] = integers(frame["correlation"])[rows]
    return _Labels(code, pa.concat_arrays([*texts, strings([])]), correlation)


def _table_labels(table: str, frame: pd.DataFrame) -> tuple[Ints, pa.Array]:
    """Return the index of each event's label, and the labels: name, category and arguments as JSON.

    The JSON stays open at the end, so that a correlation id can be appended.
    """
    name_code, names = event_names(table, frame)
    columns = {name: _argument_values(frame[name]) for name in _ARGUMENTS[table] if name in frame}
    has_id = integers(frame["correlation"]) >= 0 if "correlation" in frame else np.zeros(len(frame), dtype=bool)
    # events repeat the same name and arguments thousands of times: format each combination once
    keys = [name_code, has_id.astype(np.int64), *(values for values, _ in columns.values())]
    code, example = numbered(keys)
    name_codes, id_flags, *values_of_columns = (key[example] for key in keys)
    parts = [
        _argument(name, values, texts)
        for (name, (_, texts)), values in zip(columns.items(), values_of_columns, strict=True)
    ]
    # chrome://tracing merges the arguments at both ends of an arrow, and rejects one name with two values
    identity = "correlation" if table == "api_calls" else "launch_correlation"
    parts.append(where(id_flags == 1, strings([f',"{identity}":'] * len(id_flags))))
    arguments = pc.ascii_ltrim(join(*parts), characters=",")
    head = f',"cat":"{_CATEGORIES[table]}","args":{{'
    return code, join(',"name":', take(strings(map(_json, names)), name_codes), head, arguments)


def _argument_values(column: "pd.Series[Any]") -> tuple[Ints, pa.Array | None]:
    """Return a column as integers (-1 for no value), and the texts that they index; None if they are plain numbers."""
    if column.dtype == bool:
        # False becomes -1 (no argument), True becomes 0
        return column.to_numpy().astype(np.int64) - 1, strings(["true"])
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return integers(column), None
    texts = column.cat.categories
    has_text = np.asarray(texts != "", dtype=bool)
    codes = np.asarray(column.cat.codes, dtype=np.int64)
    return np.where(np.append(has_text, False)[codes], codes, -1), strings(_json(printable(text)) for text in texts)


def _argument(name: str, values: Ints, texts: pa.Array | None) -> pa.Array:
    # one extra text, so that `take` works even if there are no values
    text = digits(values) if texts is None else take(pa.concat_arrays([texts, strings([""])]), values.clip(0))
    return where(values >= 0, join(f',"{name}":', text))


def _placed(profile: Profile, slices: Slices) -> Iterator[tuple[slice, pa.Array, list[Text]]]:
    """Yield slices block by block: the block, the tracks, and the names with arguments."""
    labels = _labels(profile, slices)
    tracks = strings(f',"pid":{track.pid},"tid":{track.tid}' for track in slices.tracks)
    for block in blocks(0, len(slices.row)):
        yield block, take(tracks, slices.track[block]), labels.of(block)


def _slice_rows(profile: Profile, slices: Slices, origin: int, arrows: _Arrows) -> Iterator[bytes]:
    for block, place, label in _placed(profile, slices):
        start, end, number = slices.start[block], slices.end[block], arrows.number[block]
        arrow = join(',"bind_id":"', digits(number), f'","flow_{arrows.direction}":true')
        times = (',"ts":', _microseconds(start - origin), ',"dur":', _microseconds(end - start))
        yield _text(',\n{"ph":"X"', place, *times, where(number > 0, arrow), *label)


def _instant_rows(profile: Profile, slices: Slices, origin: int) -> Iterator[bytes]:
    for block, place, label in _placed(profile, slices):
        stamp = _microseconds(slices.start[block] - origin)
        yield _text(',\n{"ph":"i","s":"t"', place, ',"ts":', stamp, *label)


def _async_rows(profile: Profile, slices: Slices, origin: int) -> Iterator[bytes]:
    """Yield begin and end events of ranges that can cross; each pair has its own id within its process."""
    for block, place, label in _placed(profile, slices):
        number = digits(np.arange(block.start, block.stop) + 1)
        columns = [',"id2":{"local":"', number, '"}', place, *label]
        for phase, times in (("b", slices.start), ("e", slices.end)):
            yield _text(f',\n{{"ph":"{phase}","ts":', _microseconds(times[block] - origin), *columns)


@dataclass(frozen=True)
class _Counters:
    """Counter values from their start (ns); `label` is an index into `labels`: place, name and unit as JSON."""

    start: Ints
    value: Ints | Floats
    label: Ints
    labels: pa.Array
    tracks: tuple[TraceTrack, ...]


def _counters(profile: Profile, places: Places) -> list[_Counters]:
    """Return the counters: memory in use, and sampled GPU metrics."""
    counters = []
    events = profile.recorded("memory_usage")
    if len(events):
        levels = memory_levels(events, ["device", "kind"])
        names = renamed(levels["kind"], lambda kinds: pd.Index([f"{printable(kind)} memory in use," for kind in kinds]))
        counters.append(_counters_of(levels, names, levels["bytes"], "bytes", places))
    samples = profile.recorded("gpu_metrics")
    if len(samples):
        names = renamed(samples["metric"], lambda names: names.map(printable))
        counters.append(_counters_of(samples, names, samples["value"], "value", places))
    return counters


def _counters_of(
    frame: pd.DataFrame, names: "pd.Categorical[Any]", values: "pd.Series[Any]", unit: str, places: Places
) -> _Counters:
    label, pairs = combinations([integers(frame["device"]), np.asarray(names.codes, dtype=np.int64)])
    gpus = [(*places.gpu(device), _json(names.categories[name])) for device, name in pairs]
    labels = (f',"pid":{pid},"tid":0,"cat":"counter","name":{name},"args":{{"{unit}":' for pid, _, name in gpus)
    tracks = {pid: TraceTrack(pid, 0, process, "") for pid, process, _ in gpus}
    return _Counters(integers(frame["start_ns"]), values.to_numpy(), label, strings(labels), (*tracks.values(),))


def _counter_rows(counters: _Counters, origin: int) -> Iterator[bytes]:
    for block in blocks(0, len(counters.start)):
        labels, value = take(counters.labels, counters.label[block]), digits(counters.value[block])
        yield _text(',\n{"ph":"C","ts":', _microseconds(counters.start[block] - origin), labels, value, "}}")


def _microseconds(time: Ints) -> pa.Array:
    """Format nanoseconds (never negative) as microseconds with three decimals."""
    return join(digits(time // 1000), take(_FRACTIONS, time % 1000))


def _json(value: object) -> str:
    """Format a value as JSON without escaping non-ASCII letters: Perfetto would show the escapes literally."""
    return json.dumps(value, ensure_ascii=False)


def _text(*parts: Text) -> bytes:
    return one_text(join(*parts), "")
