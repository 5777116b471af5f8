"""Pages with many rows for the tests of tables in a browser, and what these tests do to them."""

import csv
import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

from nightsight.render.page.html import render_html
from nightsight.render.page.index import IndexEntry, render_index
from tests.browser.looks import OPEN_ALL
from tests.replay_tables import replay_report
from tests.reports import hostile_report, kernel_table, launch_table, range_table, result, small_report

COUNT: Final = 5_000
FORMULAS: Final = ("=1+1", "+cmd", "-2", "@SUM(A1)", 'quote " and, comma')


def kernels(count: int) -> pd.DataFrame:
    """Return kernels whose names and numbers are in different orders; some have no deviation."""
    noise = random.Random(4)
    names = tuple(f"void at::native::kernel_{place}<(int){noise.randrange(10**6)}>(T1, T2)" for place in range(count))
    deviations = [float("nan") if place % 7 == 0 else noise.lognormvariate(8, 3) for place in range(count)]
    layers = [("runtime", "driver")[place % 2] for place in range(count)]
    return kernel_table(names).assign(stddev_ns=deviations, layer=layers)


def tree() -> pd.DataFrame:
    rows = [(name, level) for step in range(30) for name, level in _step(f"step {step}")]
    noise = random.Random(5)
    # functions, which are no repetitions: these would be one row
    return range_table(rows).assign(style="Function", cpu_total_ns=[noise.randrange(1_000, 10**9) for _ in rows])


def _step(name: str) -> list[tuple[str, int]]:
    parts = [(f"{name} / {part}", 1) for part in ("forward", "backward")]
    return [(name, 0), *(row for part in parts for row in (part, (f"{part[0]} / layer", 2)))]


def frames() -> dict[str, pd.DataFrame]:
    """Return the tables of the page `big` by what they are about."""
    gaps = pd.DataFrame({"device": 0, "time_ns": [1_000, 5_000], "gap_ns": [500, 250], "cause": ["host", "sync"]})
    gaps["after"] = ["void at::native::kernel<float, at::native::Add<float>>(int, at::Tensor, at::Tensor)", ""]
    return {"big": kernels(COUNT), "ranges": tree(), "launches": launch_table(FORMULAS), "gaps": gaps}


def write_pages(folder: Path, frames: dict[str, pd.DataFrame], train: str) -> dict[str, Path]:
    """Write the pages that the tests open, by name."""
    results = (
        result("cuda_gpu_kern_sum", frames["big"], title="Kernels"),
        result("nvtx_ranges", frames["ranges"], title="NVTX ranges"),
        result("launch_overhead", frames["launches"], title="Launches"),
        result("gpu_gaps", frames["gaps"], title="Gaps"),
    )
    pages = {
        "big": render_html(small_report(results=results)),
        "replays": render_html(replay_report()),
        "hostile": render_html(hostile_report()),
        "train": train,
        "index": render_index(_runs()),
        "framed": '<!doctype html><title>f</title><iframe sandbox="allow-scripts" src="big.html"></iframe>',
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


def _runs() -> list[IndexEntry]:
    numbers: dict[str, Any] = dict.fromkeys(("busy_pct", "kernel_ns", "step_ns"))
    return [
        IndexEntry("mlp", f"run {place}", "x", "", "", "", window_ns=window, failed=False, **numbers)
        for place, window in enumerate((80.0, 2e9, 3e6, None, 5e9, 4e3))
    ]


@contextmanager
def visited(browser: Any, file: Path, *, script: str = "", **options: Any) -> Iterator[Any]:
    """Open a page once its tables are ready; in the end there must be no message."""
    messages: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800}, **options)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    if script:
        page.add_init_script(script)
    page.goto(file.as_uri())
    if options.get("java_script_enabled", True) and file.stem != "framed":
        wait_until(page, lambda: bool(page.evaluate("performance.getEntriesByName('table: ready').length")))
    for frame in page.frames:
        frame.evaluate(OPEN_ALL)
    yield page
    page.close()
    assert messages == []


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    for _ in range(100):
        if holds():
            return
        page.wait_for_timeout(50)
    pytest.fail("it did not come to be")


def rows_of(section: Any) -> Any:
    return section.locator("tbody:not(.printed) tr[data-row]")


def shown(section: Any, column: int = 0) -> list[str]:
    """Return the texts of a column in the rows that are in the page."""
    texts: list[str] = rows_of(section).evaluate_all(
        "(rows, at) => rows.map(row => (at ? row.cells[at] : row.querySelector('bdi')).textContent)", column
    )
    return texts


def scroll(section: Any, top: float) -> None:
    section.locator(".scroll").evaluate(
        """async (box, top) => {
            box.scrollTop = top;
            for (let frame = 0; frame < 4; frame++) await new Promise(requestAnimationFrame);
        }""",
        top,
    )


def sort_by(section: Any, title: str) -> str:
    heading = section.locator("thead th", has=section.page.get_by_role("button", name=title))
    heading.get_by_role("button").click()
    order: str = heading.get_attribute("aria-sort")
    return order


def downloaded(page: Any, section: Any) -> tuple[str, list[list[str]]]:
    with page.expect_download() as waiting:
        section.get_by_role("button", name="as CSV").click()
    text = Path(waiting.value.path()).read_bytes().decode()
    return waiting.value.suggested_filename, list(csv.reader(io.StringIO(text, newline="")))
