"""`make bench`: times what docs/benchmarks.md lists, in processes of their own, and prints a Markdown table.

A median, or a peak of memory, above what is allowed is marked; the exit status is then 1. Large captures are real ones
repeated (tests/tile.py). `python -m tests.bench --large` adds ten million kernels. With `--against COMMIT`, commands
run in turns with those of the commit, so that figures of a noisy machine compare; pages are not opened then.
"""

import argparse
import datetime as dt
import lzma
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from nightsight.history import HistoryRow
from nightsight.model.history import Key
from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.browser.chromium import chromium
from tests.browser.speed import ALLOWED, ALLOWED_TABLE_MS, page_speed, table_speed
from tests.browser.table_pages import COUNT, kernels
from tests.browser.timeline_page import many, timeline_page
from tests.extremes import operators, ranges
from tests.reports import result, small_report, with_gpu_time
from tests.tile import Lanes, tile

API = "CUPTI_ACTIVITY_KIND_RUNTIME"
DATA = Path(__file__).parent / "data" / "nsys"
NIGHTSIGHT = (sys.executable, "-m", "nightsight")
# as installed: modules and templates stay compiled, which a quarter of a small report's time depends on
AS_INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
# `mlp` holds 580 kernels, 902 API calls and 61 ranges
MILLION = 1725
# so many short ones between them make two million beside a million kernels
CALLS = 258
# pairs of runs with those of another commit
PAIRS = 5
# of a command: seconds, and MB of memory
Allowed = tuple[float | None, float | None]
# for an ordinary capture, and for a million kernels, by format
ALLOWED_SMALL: Mapping[str, Allowed] = {"html": (1.5, None), "json": (1.5, None)}
ALLOWED_REPORT: Mapping[str, Allowed] = {"html": (5.0, 1000.0), "json": (3.0, None)}
ALLOWED_RENDERING_S = 2.0
ALLOWED_HISTORY: Allowed = (10.0, None)
ALLOWED_TRENDS_MB = 1.5
ALLOWED_PAGE_MB = 1.5
# `ddp_exposed` holds 765 kernels of each of its two processes
RANKS, RANK_COPIES = 64, 131
ALLOWED_JOB: Allowed = (60.0, 4000.0)
# for 100,000 events in one place, as in a program that recurses without end
ALLOWED_EXTREME_S = 15.0
# of a million kernels each, with their calls: one loop, many threads and streams, and a process for each of many GPUs
SHAPES = {
    "1M": Lanes(),
    "threads": Lanes(threads=250, streams=60, at_a_time=8),
    "gpus": Lanes(processes=16, at_a_time=16),
}
# pages of ordinary captures
PAGES = {
    "training": DATA / "train" / "train.sqlite.xz",
    "two GPUs": DATA / "ddp2" / "ddp2.sqlite.xz",
    "ncu only": DATA.parent / "ncu" / "measure.ncu-rep.xz",
}
FIVE = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_kern_exec_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also ten million kernels (1.5 GB, some minutes)")
    parser.add_argument("--nsys", help="compare `stats` with this nsys")
    parser.add_argument("--against", metavar="COMMIT", help="run each command in turns with that of a commit")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if options.against:
        in_turns(options.against)
    else:
        sys.exit(not all(alone(options)))


def alone(options: argparse.Namespace) -> list[bool]:
    """Print all figures of this commit; return whether each is within its limit."""
    print("| what | runs | median | slowest | peak memory | allowed |\n|---|---|---|---|---|---|")
    kept = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        measure("`nightsight --help`", [*NIGHTSIGHT, "--help"], runs=5)
        largest = unpacked(max(DATA.glob("*/*.sqlite.xz"), key=lambda path: path.stat().st_size), folder)
        kept += [report(largest, folder, style, runs=5, allowed=each) for style, each in ALLOWED_SMALL.items()]
        for shape, lanes in SHAPES.items():
            capture = large(folder, f"{shape}.sqlite", MILLION, lanes)
            kept += [report(capture, folder, style, runs=3, allowed=each) for style, each in ALLOWED_REPORT.items()]
            # in a process of its own: what a process has used counts for its children too
            call = f"from tests.bench import *; sys.exit(not rendering(Path({str(capture)!r})))"
            kept.append(not subprocess.run([sys.executable, "-c", call], check=False).returncode)
            stats(capture, options.nsys)
            measure(f"`nightsight sanitize {capture.name}`", sanitizing(capture), runs=3)
            kept += browse(folder / "out.html", f"page of {capture.name}")
            capture.unlink()
        if options.large:
            capture = large(folder, "10M.sqlite", 10 * MILLION, Lanes())
            for style in ALLOWED_REPORT:
                report(capture, folder, style, runs=1)
            stats(capture, options.nsys)
        (folder / "many.html").write_text(timeline_page(many(1_000_000)), encoding="utf-8")
        kept += browse(folder / "many.html", "1,000,000 events that do not repeat", allowed_mb=None)
        kept.append(tables(folder / "table.html"))
        kept.append(comparing(folder))
        kept += [*ordinary(folder), *history(folder), *job(folder), *extremes(folder)]
    return kept


def in_turns(commit: str) -> None:
    """Print how long commands take here and at another commit, run one after the other."""
    print(f"| what | pairs | median | at {commit} | quotient | slowest pair | memory | at {commit} |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch, checkout(commit, Path(scratch) / "other") as other:
        folder = Path(scratch)
        small = unpacked(max(DATA.glob("*/*.sqlite.xz"), key=lambda path: path.stat().st_size), folder)
        million = large(folder, "1M.sqlite", MILLION, Lanes())
        pair("`nightsight --help`", [*NIGHTSIGHT, "--help"], other)
        for capture in (small, million):
            for style in ("html", "json", "markdown"):
                command = [*NIGHTSIGHT, "report", str(capture), "--format", style, "-o", str(folder / f"out.{style}")]
                pair(f"`nightsight report {capture.name} --format {style}`", command, other)
        options = [option for name in FIVE for option in ("-r", name)]
        command = [*NIGHTSIGHT, "stats", str(million), *options, "--format", "csv"]
        pair(f"`nightsight stats`, five tables of {million.name}", command, other)
        sides = ("--baseline", str(small), "--candidate", str(small))
        command = [*NIGHTSIGHT, "compare", *sides, "-o", str(folder / "comparison.html")]
        pair(f"`nightsight compare` of {small.name} with itself", command, other)


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """Check out a commit; yield the environment in which its package is found first."""
    subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, commit], check=True)
    try:
        if not (folder / "pipeline" / "nightsight").is_dir():
            raise SystemExit(f"{commit} has another package: Python would run the one that is here")
        yield {**AS_INSTALLED, "PYTHONPATH": str(folder / "pipeline")}
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", folder], check=True)


def pair(what: str, command: Sequence[str], other: Mapping[str, str]) -> None:
    """Print a row: a command here and elsewhere, after one run each that compiles."""
    run(command)
    run(command, other)
    pairs = [(run(command), run(command, other)) for _ in range(PAIRS)]
    quotients = [here[0] / there[0] for here, there in pairs]
    (here_s, here_mb), (there_s, there_mb) = (
        [statistics.median(each[side][figure] for each in pairs) for figure in (0, 1)] for side in (0, 1)
    )
    figures = (f"{here_s:.2f} s", f"{there_s:.2f} s", f"{statistics.median(quotients):.2f}", f"{max(quotients):.2f}")
    print(f"| {what} | {PAIRS} | {' | '.join(figures)} | {here_mb:.0f} MB | {there_mb:.0f} MB |", flush=True)


def large(folder: Path, name: str, copies: int, lanes: Lanes) -> Path:
    """Make a capture of so many copies of `mlp`."""
    capture = folder / name
    tile(unpacked(DATA / "mlp" / "mlp.sqlite.xz", folder), capture, copies, lanes)
    add_calls(capture, CALLS * copies)
    return capture


def sanitizing(capture: Path) -> list[str]:
    """Return the command that takes what is private out of a capture."""
    return [*NIGHTSIGHT, "sanitize", str(capture), "-o", str(capture.with_suffix(".clean.sqlite"))]


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


def report(capture: Path, folder: Path, style: str, *, runs: int, allowed: Allowed = (None, None)) -> bool:
    what = f"`nightsight report {capture.name} --format {style}` ({capture.stat().st_size / 1e6:.0f} MB)"
    command = [*NIGHTSIGHT, "report", str(capture), "--format", style, "-o", str(folder / f"out.{style}")]
    return measure(what, command, runs=runs, allowed=allowed)


def rendering(capture: Path) -> bool:
    """Time only what makes the page of a report and its events."""
    profile = read(capture, details=False)
    source = Source(build_report(profile, capture.stem), profile)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        FORMATS["html"].render(source)
        times.append(time.perf_counter() - start)
    return show(f"rendering the page of {capture.name}", times, "s", ALLOWED_RENDERING_S)


def comparing(folder: Path) -> bool:
    """Compare five runs a side, each with 2,000 kernels in its step and as many names."""
    runs = []
    for number in range(10):
        times = np.random.default_rng(number).normal(50_000, 50, 2000)
        names = [f"void kernel_{place}<{place}, float>(float*, int)" for place in range(2000)]
        work = pd.DataFrame({"kind": "kernel", "count": 1.0, "time_ns": times, "place": "step", "name": names})
        report = small_report(results=(*with_gpu_time(90.0).results, result("step_work", work)))
        runs.append(folder / f"run_{number}.json")
        runs[-1].write_text(report.to_json(), encoding="utf-8")
    sides = ("--baseline", *map(str, runs[:5]), "--candidate", *map(str, runs[5:]))
    command = [*NIGHTSIGHT, "compare", *sides, "-o", str(folder / "comparison.html")]
    return measure("`nightsight compare`, 5 + 5 runs of 2,000 kernels", command, runs=3, allowed=(3.0, None))


def job(folder: Path) -> list[bool]:
    """Make the report of a job: a real rank of two again and again, and as many files of it as there are ranks."""
    rank, page = folder / "rank.sqlite", folder / "job.html"
    tile(one_process(unpacked(DATA / "ddp_exposed" / "ddp_exposed.sqlite.xz", folder)), rank, RANK_COPIES)
    files = [folder / f"train_rank{number}.sqlite" for number in range(RANKS)]
    for number, file in enumerate(files):
        shutil.copy(rank, file)
        # a copy is refused: each began recording a little later
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", (number,))
            connection.commit()
    command = [*NIGHTSIGHT, "report", *map(str, files), "-o", str(page)]
    start = time.perf_counter()
    with (
        (folder / "stderr").open("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=AS_INSTALLED) as process,
    ):
        peak = peak_of_all(psutil.Process(process.pid))
    seconds = time.perf_counter() - start
    for file in (rank, *files):
        file.unlink()
    if process.returncode:
        print((folder / "stderr").read_text(encoding="utf-8")[-500:], file=sys.stderr)
        return [False]
    what = f"`nightsight report`, a job of {RANKS} ranks of 100,000 kernels"
    is_quick = show(what, [seconds], "s", ALLOWED_JOB[0], peak_mb=peak, allowed_mb=ALLOWED_JOB[1])
    return [is_quick, show("its page: size", [page.stat().st_size / 1e6], "MB", 2.0)]


def extremes(folder: Path) -> Iterator[bool]:
    """Read events that are equal or nested in each other: twice as many take at most about twice as long."""
    for count in (100_000, 200_000):
        for capture in (
            operators(folder / f"{count}-equal-operators.json", count),
            operators(folder / f"{count}-nested-operators.json", count, are_nested=True),
            ranges(folder / f"{count}-equal-ranges.sqlite", count, count, are_nested=False),
            ranges(folder / f"{count}-nested-ranges.sqlite", count),
        ):
            for style in ("html", "perfetto"):
                allowed = (ALLOWED_EXTREME_S * count / 100_000, None)
                yield report(capture, folder, style, runs=1, allowed=allowed)
            capture.unlink()


def one_process(capture: Path) -> Path:
    """Leave only the events of the first process that used a GPU."""
    with closing(sqlite3.connect(capture)) as connection:
        (kept,) = connection.execute("SELECT MIN(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for name in names & {"globalPid", "globalTid"} if table != "PROCESSES" else ():
                # the lower 24 bits are the thread
                connection.execute(f"DELETE FROM {table} WHERE {name} >> 24 != {kept >> 24}")
        connection.commit()
    return capture


def peak_of_all(process: psutil.Process) -> float:
    """Wait for a process; return the most memory in MB that it and its children had together."""
    peak = 0.0
    while process.status() != psutil.STATUS_ZOMBIE:
        with suppress(psutil.NoSuchProcess):
            every = [process, *process.children(recursive=True)]
            peak = max(peak, sum(one.memory_full_info().pss for one in every) / 1e6)
        time.sleep(0.2)
    return peak


def stats(capture: Path, nsys: str | None) -> None:
    chosen = [option for name in FIVE for option in ("-r", name)]
    what = f"five tables of {capture.name}"
    measure(f"`nightsight stats`, {what}", [*NIGHTSIGHT, "stats", str(capture), *chosen, "--format", "csv"], runs=3)
    if nsys:
        tables = ["-r", ",".join(FIVE)]
        measure(f"`nsys stats`, {what}", [nsys, "stats", *tables, "--format", "csv", str(capture)], runs=1)


def browse(page: Path, name: str, allowed_mb: float | None = ALLOWED_PAGE_MB) -> list[bool]:
    """Open a page several times in Chromium, and zoom its timeline."""
    with chromium() as browser:
        runs = [page_speed(browser, page) for _ in range(3)]
    titles = ("first paint", "ready", "frame, median", "frame, 95th percentile")
    times = [
        show(f"{name}: {title}", [getattr(run, column) for run in runs], "ms", allowed)
        for title, (column, allowed) in zip(titles, vars(ALLOWED).items(), strict=True)
        if not isnan(getattr(runs[0], column))
    ]
    return [show(f"{name}: size", [page.stat().st_size / 1e6], "MB", allowed_mb), *times]


def ordinary(folder: Path) -> Iterator[bool]:
    """Open pages of ordinary captures."""
    for name, path in PAGES.items():
        command = [*NIGHTSIGHT, "report", str(unpacked(path, folder)), "--output", str(folder / "page.html")]
        subprocess.run(command, check=True, capture_output=True, env=AS_INSTALLED)
        yield from browse(folder / "page.html", f"page of {name}")


def tables(file: Path) -> bool:
    """Sort and filter a long table in Chromium."""
    long = small_report(results=(result("cuda_gpu_kern_sum", kernels(COUNT), title="Kernels"),))
    file.write_text(render_html(long), encoding="utf-8")
    with chromium() as browser:
        times = [table_speed(browser, file, "cuda_gpu_kern_sum") for _ in range(3)]
    return show(f"a table of {COUNT:,} rows: sort and filter", times, "ms", ALLOWED_TABLE_MS)


def history(folder: Path) -> list[bool]:
    """Make the trend page of 365 nights, 3 runs each, of 7 workloads with 7 metrics and 50 kernels."""
    place, page = folder / "history", folder / "history.html"
    for row in year():
        (place / row.file).parent.mkdir(parents=True, exist_ok=True)
        with (place / row.file).open("a", encoding="utf-8") as file:
            file.write(row.line())
    command = [*NIGHTSIGHT, "history", "report", "--history", str(place), "-o", str(page)]
    is_quick = measure("`nightsight history report`, 365 nights x 399 series", command, runs=3, allowed=ALLOWED_HISTORY)
    return [is_quick, show("its page: size", [page.stat().st_size / 1e6], "MB", ALLOWED_TRENDS_MB)]


def year() -> Iterator[HistoryRow]:
    random = np.random.default_rng(1)
    metrics = ("step_ns", "unprofiled_step_ns", "kernel_ns", "copy_ns", "compute", "launches", "copies")
    names = {"gate": metrics, "kernel": [f"void at::native::elementwise_kernel<{n}, float>(int)" for n in range(50)]}
    first = dt.datetime(2025, 11, 21, 2, tzinfo=dt.UTC)
    for workload in range(7):
        sizes = {name: random.uniform(1e5, 1e7) for kind in names.values() for name in kind}
        for night in range(365):
            slower = 1.05 if night > 330 and workload == 0 else 1.0
            values = {
                kind: {name: tuple(sizes[name] * slower * np.exp(random.normal(0, 0.01, 3))) for name in listed}
                for kind, listed in names.items()
            }
            time = f"{first + dt.timedelta(days=night):%Y-%m-%dT%H:%M:%SZ}"
            yield HistoryRow(f"w{workload}", Key("NVIDIA H200", driver="580"), time, values, f"{night:07x}" * 4)


def unpacked(path: Path, folder: Path) -> Path:
    target = folder / path.stem
    target.write_bytes(lzma.decompress(path.read_bytes()))
    return target


def measure(what: str, command: Sequence[str], *, runs: int, allowed: Allowed = (None, None)) -> bool:
    seconds, peaks = zip(*(run(command) for _ in range(runs)), strict=True)
    return show(what, seconds, "s", allowed[0], peak_mb=max(peaks), allowed_mb=allowed[1])


def show(
    what: str,
    values: Sequence[float],
    unit: str,
    allowed: float | None = None,
    *,
    peak_mb: float | None = None,
    allowed_mb: float | None = None,
) -> bool:
    """Print a row of the table; say whether the median and the memory are within what is allowed."""
    median, digits = statistics.median(values), 1 if unit == "ms" else 2
    limits = [(median, allowed, unit), (peak_mb, allowed_mb, "MB")]
    is_kept = all(value is None or limit is None or value <= limit for value, limit, _ in limits)
    figures = (
        what,
        str(len(values)),
        *(f"{value:.{digits}f} {unit}" for value in (median, max(values))),
        "" if peak_mb is None else f"{peak_mb:.0f} MB",
        ", ".join(f"{limit:,g} {of}" for _, limit, of in limits if limit is not None) + " **exceeded**" * (not is_kept),
    )
    print(f"| {' | '.join(figures)} |", flush=True)
    return is_kept


def run(command: Sequence[str], environment: Mapping[str, str] = AS_INSTALLED) -> tuple[float, float]:
    """Return the wall-clock seconds of a command and the peak memory in MB of its process."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed with exit status {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
