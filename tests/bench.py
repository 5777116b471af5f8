"""`make bench`: times what docs/benchmarks.md lists, in processes of their own, and prints Markdown tables.

The large captures are real ones repeated (tests/tile.py). `python -m tests.bench --large` adds ten million kernels.
"""

import argparse
import lzma
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.workflow import build_report
from tests.browser.chromium import chromium
from tests.browser.speed import page_speed
from tests.tile import tile

API = "CUPTI_ACTIVITY_KIND_RUNTIME"
DATA = Path(__file__).parent / "data" / "nsys"
NIGHTSIGHT = (sys.executable, "-m", "nightsight")
# `mlp` holds 580 kernels, 902 API calls and 61 ranges
MILLION = 1725
# so many short ones between them make two million beside a million kernels
CALLS = 258
FIVE = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_kern_exec_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also ten million kernels (1.5 GB, some minutes)")
    parser.add_argument("--nsys", help="compare `stats` with this nsys")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| what | runs | median | slowest | peak memory |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure("`nightsight --help`", [*NIGHTSIGHT, "--help"], runs=5)
        largest = unpacked(max(DATA.glob("*/*.sqlite.xz"), key=lambda path: path.stat().st_size), folder)
        report(largest, folder, runs=5)
        for copies in (MILLION, 10 * MILLION) if options.large else (MILLION,):
            capture = folder / f"{copies * 580 // 10**6}M.sqlite"
            tile(unpacked(DATA / "mlp" / "mlp.sqlite.xz", folder), capture, copies)
            add_calls(capture, CALLS * copies)
            report(capture, folder, runs=3 if copies == MILLION else 1)
            if copies == MILLION:
                # in a process of its own: what a process has used counts for its children too
                call = f"from tests.bench import *; rendering(Path({str(capture)!r}))"
                subprocess.run([sys.executable, "-c", call], check=True)
            stats(capture, options.nsys)
            browse(folder / "out.html", capture.name)


def add_calls(capture: Path, count: int) -> None:
    """Add short calls without GPU work right after others, in the order of their starts."""
    with closing(sqlite3.connect(capture)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({API})")]
        (last,) = connection.execute(f"SELECT MAX(correlationId) FROM {API}").fetchone()
        moved = {"start": "end + 100", "end": "end + 300", "correlationId": f"correlationId + {last}"}
        columns = ", ".join(moved.get(name, name) for name in names)
        connection.execute(f"CREATE TABLE more AS SELECT * FROM {API}")
        connection.execute(f"INSERT INTO more SELECT {columns} FROM {API} WHERE rowid % 7 IN (1, 3) LIMIT {count}")
        connection.execute(f"DELETE FROM {API}")
        connection.execute(f"INSERT INTO {API} SELECT * FROM more ORDER BY start")
        connection.execute("DROP TABLE more")
        connection.commit()
        connection.execute("VACUUM")


def report(capture: Path, folder: Path, *, runs: int) -> None:
    size = f"{capture.stat().st_size / 1e6:.0f} MB"
    for style in ("html", "json"):
        command = [*NIGHTSIGHT, "report", str(capture), "--format", style, "-o", str(folder / f"out.{style}")]
        measure(f"`nightsight report {capture.name} --format {style}` ({size})", command, runs=runs)


def rendering(capture: Path) -> None:
    """Time only what makes the page of a report and its events."""
    profile = read(capture, details=False)
    source = Source(build_report(profile, capture.stem), profile)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        FORMATS["html"].render(source)
        times.append(time.perf_counter() - start)
    print(
        f"| rendering the page of {capture.name} | 3 | {statistics.median(times):.2f} s | {max(times):.2f} s | |",
        flush=True,
    )


def stats(capture: Path, nsys: str | None) -> None:
    chosen = [option for name in FIVE for option in ("-r", name)]
    what = f"five tables of {capture.name}"
    measure(f"`nightsight stats`, {what}", [*NIGHTSIGHT, "stats", str(capture), *chosen, "--format", "csv"], runs=3)
    if nsys:
        tables = ["-r", ",".join(FIVE)]
        measure(f"`nsys stats`, {what}", [nsys, "stats", *tables, "--format", "csv", str(capture)], runs=1)


def browse(page: Path, name: str) -> None:
    """Open the page several times in Chromium, and zoom its timeline."""
    with chromium() as browser:
        runs = [page_speed(browser, page) for _ in range(3)]
    titles = ("first paint", "ready", "frame, median", "frame, 95th percentile")
    for title, column in zip(titles, vars(runs[0]), strict=True):
        times = [getattr(run, column) for run in runs]
        row = (
            f"page of {name} ({page.stat().st_size / 1e6:.1f} MB): {title}",
            "3",
            f"{statistics.median(times):.1f} ms",
        )
        print(f"| {' | '.join(row)} | {max(times):.1f} ms | |", flush=True)


def unpacked(path: Path, folder: Path) -> Path:
    target = folder / path.stem
    target.write_bytes(lzma.decompress(path.read_bytes()))
    return target


def measure(what: str, command: Sequence[str], *, runs: int) -> None:
    seconds, peaks = zip(*(run(command) for _ in range(runs)), strict=True)
    row = (what, f"{runs}", f"{statistics.median(seconds):.2f} s", f"{max(seconds):.2f} s", f"{max(peaks):.0f} MB")
    print(f"| {' | '.join(row)} |", flush=True)


def run(command: Sequence[str]) -> tuple[float, float]:
    """Return the wall-clock seconds of a command and the peak memory in MB of its process."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed with exit status {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
