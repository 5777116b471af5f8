"""Pages that hold nothing but a timeline, of events made up here and encoded by the contract alone."""

import base64
import gzip
import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nightsight.events.ranges import NUMBER
from nightsight.render.page import html
from tests.browser.table_pages import wait_until

Ints = npt.NDArray[np.int64]
CATEGORIES: Final = (("compute", "kernel", True), ("copies and sets", "copy", True), ("launch", "api", False))
SOURCE: Final = """{% extends "base.html" %}{% from "macros/timeline.html" import timeline %}
{% block title %}timeline{% endblock %}
{% block body %}<main id="content"><h1>A page</h1><p id="above">Above.</p>{{ timeline(data) }}</main>{% endblock %}"""


def timeline_page(data: str) -> str:
    """Fill the page's frame, style, scripts and policy around a timeline."""
    template = html._environment().from_string(SOURCE)
    text = template.render(policy=html._POLICY, style=html._style(), script=html._script(), data=data)
    return html.with_policy(text)


@contextmanager
def timeline_visit(browser: Any, file: Path, *, script: str = "", **options: Any) -> Iterator[Any]:
    """Open a page once its timeline is drawn; in the end there must have been no message and no further request."""
    seen: list[str] = []
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: seen.append(request.url))
    if script:
        page.add_init_script(script)
    page.goto(file.as_uri())
    if not script and options.get("java_script_enabled", True):
        wait_until(page, lambda: bool(durations(page, "ready")))
    yield page
    page.close()
    assert seen == [file.as_uri()]


def durations(page: Any, name: str) -> list[float]:
    """Return what the timeline has measured of itself, in ms."""
    durations_ms: list[float] = page.evaluate(
        f"performance.getEntriesByName('timeline: {name}').map((one) => one.duration)"
    )
    return durations_ms


def in_view(page: Any) -> tuple[float, float]:
    """Return the span of time that is shown, in ms from the start of the window, as it is written."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    text = page.locator(".timeline-range").inner_text().replace(",", "").replace("\N{MINUS SIGN}", "-")
    first, last, unit = re.match(r"(\S+) \S+ to (\S+) (\S+)", text).groups()  # type: ignore[union-attr]
    size = {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3}[unit]
    return float(first) * size, float(last) * size


def pixels(page: Any, x: int, y: int, width: int, height: int) -> list[tuple[int, ...]]:
    """Return colors of the canvas, row by row, through a copy: reading the canvas itself would slow it down."""
    script = """([x, y, width, height]) => {
      const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(document.querySelector(".timeline-box canvas"), -x, -y);
      const { data } = copy.getImageData(0, 0, width, height);
      const parts = [];
      for (let from = 0; from < data.length; from += 4096) {
        parts.push(String.fromCharCode(...data.subarray(from, from + 4096)));
      }
      return btoa(parts.join(""));
    }"""
    values = base64.b64decode(page.evaluate(script, [x, y, width, height]))
    return list(zip(values[::4], values[1::4], values[2::4], strict=True))


def show(page: Any, **detail: Any) -> None:
    """Ask for a name or a span as other parts of the page do."""
    page.evaluate("(detail) => document.dispatchEvent(new CustomEvent('timeline:show', { detail }))", detail)
    page.evaluate("new Promise((done) => setTimeout(done))")


@dataclass(frozen=True)
class Events:
    """Events of a row in one layer, in ns; call: (row, position) of each launch; count: how many each block holds."""

    start: Ints
    end: Ints
    label: Ints
    call: list[tuple[int, int]] = field(default_factory=list)
    count: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """A row; `layers` has its events in each layer."""

    group: int
    label: str
    kind: str
    layers: tuple[Events | None, ...]


def events(spans: list[tuple[int, int, int]], **more: Any) -> Events:
    """Make events of (start, end, label)."""
    start, end, label = np.array(spans, dtype="int64").reshape(-1, 3).T
    return Events(start, end, label, **more)


def packed(rows: list[Row], **header: Any) -> str:
    """Encode a timeline: whatever the header leaves out is empty, and there is one exact layer."""
    names = header.pop("names")
    ends = [layer.end.max() for row in rows for layer in row.layers if layer]
    span = header.pop("span_ns", int(max(ends, default=0)))
    whole = {"quantum_ns": 1, "from_ns": 0, "to_ns": span, "is_merged": False, "merge_ns": 0}
    words = {
        "format": 2,
        "number": NUMBER,
        "span_ns": span,
        "window": None,
        "window_name": "steady part",
        "names": names,
        "short": [],
        "labels": [[at, ""] for at in range(len(names))],
        "groups": [{"label": "GPU 0"}],
        "layers": [whole],
        "begin_ns": None,
        "curves": [],
        "categories": CATEGORIES,
        "activity": [],
        "activity_groups": [],
        "ranks": None,
        "thinned": [],
        "totals": {"events": sum(len(row.layers[0].start) for row in rows if row.layers[0]), "rows": len(rows)},
        **header,
    }
    # labels without a category have none
    words["labels"] = [[*label, -1][:3] for label in words["labels"]]
    binary = bytearray()
    layers = [
        _layer([row.layers[number] for row in rows], layer, binary) for number, layer in enumerate(words["layers"])
    ]
    described = [{"group": row.group, "label": row.label, "kind": row.kind} for row in rows]
    text = json.dumps({**words, "rows": described, "layers": layers}).encode()
    packed = gzip.compress(struct.pack("<I", len(text)) + text + bytes(binary), 9, mtime=0)
    return base64.b64encode(packed).decode()


def _layer(rows: list[Events | None], layer: dict[str, Any], binary: bytearray) -> dict[str, Any]:
    counts = [len(row.start) if row else 0 for row in rows]
    begins = [0, *accumulate(counts)]
    columns: dict[str, list[Ints]] = {"gap": [], "duration": [], "label": [], "events": [], "is_launched": []}
    calls = []
    for row in filter(None, rows):
        start, end = ((times - layer["from_ns"]) // layer["quantum_ns"] for times in (row.start, row.end))
        columns["gap"].append(start - np.append(0, end[:-1]))
        columns["duration"].append(end - start)
        columns["label"].append(row.label)
        columns["events"].append(np.array(row.count, dtype="int64"))
        launches = row.call or [(-1, 0)] * len(start)
        columns["is_launched"].append(np.array([caller >= 0 for caller, _ in launches], dtype="int64"))
        calls += [begins[caller] + position for caller, position in launches if caller >= 0]
    written = {name: np.concatenate([np.empty(0, dtype="int64"), *values]) for name, values in columns.items()}
    written["call"] = np.diff(np.array(calls, dtype="int64"), prepend=0)
    left_out = {"is_launched", "call"} if layer["is_merged"] else {"events"}
    shapes, at = {}, len(binary)
    for name, values in written.items():
        if name not in left_out:
            shapes[name] = [len(values), 6]
            binary += values.astype("<i8").view("uint8").reshape(-1, 8).T[:6].tobytes()
    return {**layer, "counts": counts, "at": at, "columns": shapes}


def many(count: int) -> str:
    """Make a training run of about so many events: a stream, calls that launch its kernels, and ranges around them."""
    generator = np.random.default_rng(7)
    kernels, steps = count * 9 // 20, count // 100
    gaps, lengths = generator.integers(500, 4_000, kernels), generator.integers(1_500, 9_000, kernels)
    end = np.cumsum(gaps + lengths)
    start = end - lengths
    label = generator.choice(40, kernels, p=np.arange(40, 0, -1) / 820)
    call = start - generator.integers(400, 500, kernels)
    edges = np.append(start[:: max(kernels // steps, 1)][:steps], end[-1] + 1)
    calls = Events(call, call + 300, np.full(kernels, 40))
    ranges = Events(edges[:-1], edges[1:], np.full(len(edges) - 1, 41))
    halves = np.sort(np.append(edges[:-1], (edges[:-1] + edges[1:]) // 2))
    phases = Events(halves, np.append(halves[1:], edges[-1]), 42 + np.arange(len(halves)) % 2)
    launches = [(1, position) for position in range(kernels)]
    rows = [
        Row(0, "Stream 7", "kernel", (Events(start, end, label, launches),)),
        Row(1, "Main thread, CUDA API", "api", (calls,)),
        Row(1, "Main thread, NVTX", "range", (ranges,)),
        Row(1, "Main thread, NVTX (2)", "range", (phases,)),
        Row(2, "Main thread, operators", "op", (Events(start - 100, start + 350, label % 7 + 44),)),
    ]
    names = [*(f"void kernel_{at}<float, {at}>(float const*, int)" for at in range(40)), "cudaLaunchKernel", "step"]
    names += ["forward", "backward", *(f"aten::op_{at}" for at in range(7))]
    groups = [{"label": "GPU 0 (NVIDIA H200)"}, {"label": "Process 1"}, {"label": "Process 2"}]
    span = int(end[-1]) + 1
    return packed(rows, names=names, groups=groups, window=[span // 10, span], span_ns=span)
