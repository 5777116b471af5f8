"""Timelines made up for the tests in a browser, and where their parts are on the screen."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nightsight.units import format_value
from tests.browser.timeline_page import Row, events, in_view, packed, pixels, timeline_page, timeline_visit
from tests.reports import HOSTILE

MS = 1_000_000
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
Span = tuple[int, int, int]
NAMES = ["void ns::gemm<float>(float*)", "[CUDA memcpy Host-to-Device]", "cudaLaunchKernel", "cudaMemcpyAsync", "step"]
GEMM, COPY, LAUNCH, COPYING, STEP = range(5)
GROUPS = [{"label": "GPU 0"}, {"label": "Process 5"}]
CURVE = {"group": 0, "label": "Memory in use", "unit": "bytes", "time_ns": [0, 4 * MS], "value": [10, 2e9], "max": 2e9}


def small(short: Sequence[tuple[int, str]] = ()) -> str:
    """Two launches of a kernel, the second after a copy that runs beside it; a step around them, from 1 ms on."""
    kernels = events([(2 * MS, 4 * MS, GEMM), (6 * MS, 9 * MS, GEMM)], call=[(2, 0), (2, 2)])
    copies = events([(5 * MS, 7 * MS, COPY)], call=[(2, 1)])
    calls = [(1 * MS, 1 * MS + 500_000, LAUNCH), (3 * MS, 3 * MS + 700_000, COPYING), (4 * MS, 5 * MS, LAUNCH)]
    rows = [
        Row(0, "Stream 7", "kernel", (kernels,)),
        Row(0, "Stream 13", "kernel", (copies,)),
        Row(1, "Main thread, CUDA API", "api", (events(calls),)),
        Row(1, "Main thread, NVTX", "range", (events([(1 * MS, 9 * MS, STEP)]),)),
    ]
    labels = [[at, "grid 8×1×1" if at == GEMM else ""] for at in range(len(NAMES))]
    header = {"names": NAMES, "labels": labels, "groups": GROUPS, "curves": [CURVE], "window": [1 * MS, 9 * MS]}
    return packed(rows, span_ns=10 * MS, short=short, **header)


def coarse() -> str:
    """Blocks of a hundred kernels of 10 µs and their exact middle; each block has the length of its events."""
    spans = [(at * 20_000, at * 20_000 + 10_000, 0) for at in range(1_000)]
    blocks = events([(at * 2 * MS, at * 2 * MS + MS, 0) for at in range(10)], count=[100] * 10)
    layers = [
        {"quantum_ns": 62_500, "from_ns": 0, "to_ns": 20 * MS, "is_merged": True, "merge_ns": 2 * MS},
        {"quantum_ns": 1, "from_ns": 8 * MS, "to_ns": 12 * MS, "is_merged": False, "merge_ns": 0},
    ]
    row = Row(0, "Stream 7", "kernel", (blocks, events(spans[399:600])))
    thinned = ["Shorter events are merged; exact from 8 ms to 12 ms."]
    return packed([row], span_ns=20 * MS, names=["add"], layers=layers, thinned=thinned)


def dense_rows() -> tuple[str, list[list[Span]]]:
    """A row of short events with a long one in it, another row beside it, and both as (start, end, label)."""
    noise = random.Random(9)
    spans: list[list[Span]] = [[], []]
    for row, count in ((0, 60_000), (1, 5_000)):
        time = 0
        for at in range(count):
            start = time + noise.randrange(0, 400 if row == 0 else 9_000)
            time = start + (5 * MS if (row, at) == (0, 20_000) else noise.randrange(0, 900))
            spans[row].append((start, time, 2 if time - start == 5 * MS else noise.randrange(2)))
    rows = [Row(0, f"Stream {at}", "kernel", (events(row),)) for at, row in enumerate(spans)]
    return packed(rows, names=["add", "multiply", "long"]), spans


def hostile() -> str:
    names = list(dict.fromkeys(name.replace("\x00", "\ufffd") or "(no name)" for name in HOSTILE))
    rows = [Row(0, name, "range", (events([(at * MS, (at + 1) * MS, at)]),)) for at, name in enumerate(names)]
    labels = [[at, name] for at, name in enumerate(names)]
    curve = {**CURVE, "label": names[0]}
    return packed(rows, names=names, labels=labels, groups=[{"label": names[0]}], curves=[curve], thinned=names)


PAGES: dict[str, Callable[[], str]] = {
    "small": small,
    "labeled": lambda: small([(GEMM, "gemm f32")]),
    "coarse": coarse,
    "hostile": hostile,
    "one": lambda: packed([Row(0, "Stream 7", "kernel", (events([(0, 0, 0)]),))], names=["add"]),
    "instants": lambda: packed(
        [Row(0, "Marks", "mark", (events([(at * MS, at * MS, 0) for at in (0, 1, 1, 5)]),))], names=["mark"]
    ),
    "none": lambda: packed([Row(0, "Stream 7", "kernel", (None,))], names=[], labels=[]),
    "rows": lambda: packed(
        [Row(0, f"Stream {at}", "kernel", (events([(at * 1_000, at * 1_000 + 900, 0)]),)) for at in range(10_000)],
        names=["add"],
    ),
    "dense": lambda: dense_rows()[0],
}


def visitor(browser: Any, folder: Path) -> Callable[..., Any]:
    """Return what opens a page by its name, and makes it first if need be."""

    def visit(name: str, **options: Any) -> Any:
        file = folder / f"{name}.html"
        if not file.exists():
            file.write_text(timeline_page(PAGES[name]()), encoding="utf-8")
        return timeline_visit(browser, file, **options)

    return visit


def click(page: Any, ms: float, row: str, **options: Any) -> None:
    page.mouse.click(*place(page, ms, row), **options)


def place(page: Any, ms: float, row: str) -> tuple[float, float]:
    """Return where a time of the page `small`, in ms since its window, is on the screen; rows as they are laid out."""
    tops = {"axis": 10, "Stream 7": 70, "Stream 13": 90, "curve": 118, "CUDA API": 174, "NVTX": 194}
    box = page.locator(".timeline-box canvas").bounding_box()
    gutter = left_of_plot(page)
    first, last = in_view(page)
    return box["x"] + gutter + (ms - first) / (last - first) * (box["width"] - gutter), box["y"] + tops[row]


def left_of_plot(page: Any) -> int:
    """Return where rows begin: right of the rule that the canvas draws beside their names."""
    reds = [red for red, _, _ in pixels(page, 0, 64, 400, 1)]
    return next(at for at in range(100, 400) if reds[at] == 223 and reds[at - 1] == 255) + 1


def text(page: Any, part: str) -> str:
    return str(page.locator(f".timeline-{part}").inner_text())


def value(page: Any, term: str) -> str:
    pair = page.locator(".timeline-event dl > div").filter(has=page.locator("dt", has_text=term))
    return str(pair.locator("dd").inner_text())


def cells(page: Any, rows: str) -> list[list[str]]:
    return [row.locator("th, td").all_inner_texts() for row in page.locator(rows).all()]


def number(written: str) -> float:
    """Return a time in ms."""
    amount, unit = written.replace(",", "").split()
    return float(amount) * UNITS[unit] / 1e6


def nearly(written: str, ns: float) -> bool:
    """Tell whether a time is written as the report's tables write it."""
    return written == format_value(ns, "time_ns")


def clipped(spans: Sequence[Span], low: float, high: float) -> list[tuple[float, float, int]]:
    """Return the parts inside of [low, high); an event without length is in it if it begins there."""
    return [
        (max(start, low), min(stop, high), label)
        for start, stop, label in spans
        if (start < high and stop > low) or (start == stop and low <= start < high)
    ]


def union(spans: Sequence[tuple[float, float, int]]) -> float:
    total = reached = 0.0
    for start, stop, *_ in sorted(spans):
        total += max(stop - max(start, reached), 0)
        reached = max(reached, stop)
    return total
