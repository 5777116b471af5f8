"""`python -m tests.fleet_bench`: times `nightsight fleet` with one worker and several, and prints a Markdown table.

Captures are a real one repeated (tests/tile.py), each a file of its own, so that each is read. What is allowed: with
two workers at least 1.8 times as fast as with one, less than 1.5 GB of memory a worker, time in proportion to the
number of captures, and a worker that is killed loses nothing. The exit status is 1 if something is not kept.

By default it is small. docs/benchmarks.md has the large one: `--captures 50 100 200 --kernels 100000 --workers 1 2`.
Other work on the machine spoils the ratios.
"""

import argparse
import os
import platform
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench import AS_INSTALLED, DATA, NIGHTSIGHT, unpacked
from tests.tile import tile

# `mlp` holds so many kernels
KERNELS = 580
ALLOWED_RATIO = 1.8
ALLOWED_MB = 1500
# of the time for one capture, from the fewest to the most
ALLOWED_GROWTH = 1.15
QUIET_PCT = 3.0
# looking often takes time from those that are measured
_POLL_S = 1.0


@dataclass(frozen=True)
class Measured:
    """One run: seconds of the whole command, the largest memory of a worker, and how many captures it read.

    cpu_seconds: of all its processes. others_pct: of the machine, what other work took meanwhile.
    """

    captures: int
    workers: int
    seconds: float
    peak_mb: float
    read: int
    cpu_seconds: float
    others_pct: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=int, nargs="+", default=[4, 8], help="how many, for several runs")
    parser.add_argument("--kernels", type=int, default=20_000, help="in each capture")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| captures | workers | seconds | a capture | CPU time | memory of a worker | other work |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "captures", max(options.captures), options.kernels)
        runs = [measure(folder, count, workers) for count in options.captures for workers in options.workers]
        killed = measure(folder, min(options.captures), 2, kill=True)
    print(f"\nWith a worker killed: {killed.read} of {killed.captures} captures read, {killed.seconds:.1f} s")
    sys.exit(not all([*judged(runs), killed.read == killed.captures]))


def write(folder: Path, count: int, kernels: int) -> None:
    folder.mkdir()
    first = folder / "night0000.sqlite"
    tile(unpacked(DATA / "mlp" / "mlp.sqlite.xz", folder.parent), first, max(kernels // KERNELS, 1))
    for number in range(1, count):
        shutil.copy(first, folder / f"night{number:04}.sqlite")
    for number, path in enumerate(sorted(folder.iterdir())):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number + 1}")


def measure(folder: Path, count: int, workers: int, *, kill: bool = False) -> Measured:
    """Run the command once, without any summary; kill a worker when the first one is there, if asked to."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    captures = sorted((folder / "captures").iterdir())[:count]
    command = [*NIGHTSIGHT, "fleet", *map(str, captures), "-o", str(folder / "out" / "fleet.html"), "-q"]
    start, own, busy = time.perf_counter(), of_ours(), of_machine()
    process = psutil.Popen([*command, "--workers", str(workers)], env=AS_INSTALLED, stdout=subprocess.DEVNULL)
    peak, is_killed = 0.0, not kill
    while process.poll() is None:
        for worker in process.children(recursive=True):
            try:
                peak = max(peak, peak_mb(worker.pid))
                if not is_killed and (folder / "out" / "fleet.summaries" / "files.parquet").exists():
                    is_killed = "spawn_main" in " ".join(worker.cmdline())
                    os.kill(worker.pid, signal.SIGKILL if is_killed else 0)
            except psutil.NoSuchProcess:
                continue
        time.sleep(_POLL_S)
    process.wait()
    seconds, own, busy = time.perf_counter() - start, of_ours() - own, of_machine() - busy
    others = 100 * max(busy - own, 0.0) / (seconds * (os.cpu_count() or 1))
    read = len(list((folder / "out" / "fleet.summaries" / "captures").glob("*.parquet")))
    if not kill:
        times = f"{seconds:.1f} s | {seconds / count:.2f} s | {own:.1f} s"
        print(f"| {count} | {workers} | {times} | {peak:.0f} MB | {others:.0f} % |", flush=True)
    return Measured(count, workers, seconds, peak, read, own, others)


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had so far, as Linux counts it; 0 if it is gone."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
    return 0.0


def of_ours() -> float:
    """Return the CPU seconds of this process, and of all that it started, directly or not, and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def of_machine() -> float:
    """Return for how many seconds the cores of this machine were busy since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def judged(runs: Sequence[Measured]) -> list[bool]:
    """Print how the runs relate, and say what is kept."""
    most = max(run.captures for run in runs)
    of = {(run.captures, run.workers): run for run in runs}
    kept = [all(run.read == run.captures for run in runs)]
    print()
    if {(most, 1), (most, 2)} <= of.keys():
        ratio = of[most, 1].seconds / of[most, 2].seconds
        kept.append(ratio >= ALLOWED_RATIO)
        print(f"Two workers are {ratio:.2f} times as fast as one (allowed: {ALLOWED_RATIO}).")
        if max(run.others_pct for run in runs) > QUIET_PCT:
            print("Other work took part of the machine: this is not what they can do.")
    peak = max(run.peak_mb for run in runs)
    kept.append(peak <= ALLOWED_MB)
    print(f"A worker takes at most {peak:.0f} MB (allowed: {ALLOWED_MB}).")
    for workers in sorted({run.workers for run in runs}):
        each = sorted((run for run in runs if run.workers == workers), key=lambda run: run.captures)
        growth = each[-1].seconds / each[-1].captures / (each[0].seconds / each[0].captures)
        kept.append(growth <= ALLOWED_GROWTH)
        print(f"With {workers}: {growth:.2f} times the time for a capture with {most} captures as with the fewest.")
    return kept


if __name__ == "__main__":
    main()
