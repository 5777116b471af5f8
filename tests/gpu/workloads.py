"""Profiles every workload, small, and prints a line for each: `python -m tests.gpu.workloads [NAME ...]` on a GPU host.

With KEEP=FOLDER in the environment, each report is kept there as JSON.

The lines are what docs/workloads.md needs: whether the program and its report came to an end, the time of a step, that
of the ranges in it, what unified memory did, and the first finding. Exit status 1 if a program failed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nightsight.collect.workloads import registered_workloads
from nightsight.model.report import Report
from nightsight.results.program import UNIFIED_MEMORY
from nightsight.results.ranges import NVTX_RANGES

ROOT: Final = Path(__file__).parents[2]
SHORT: Final = ("--iterations", "5", "--warmup", "2", "--trials", "3")
RUNS: Final = (
    ("mlp", "--optimizer", "adam", "--print-loss"),
    ("mlp", "--optimizer", "sgd"),
    ("matmul", "--dim", "128,1024,4096", "--dtype", "all"),
    ("elementwise",),
    ("cdist",),
    ("sleep",),
    ("gelu",),
    ("softmax",),
    ("vector_add",),
    ("memcpy",),
    ("unified_memory",),
    ("unified_memory", "--part", "prefetched", "--size", str(1 << 24), "--fatbin"),
    ("launch_bound", "--graph"),
    ("streams", "--threads", "3", "--streams", "2", "--dim", "1024"),
    ("jit", "--iterations", "2", "--trials", "2"),
    ("dataloader",),
    ("dataloader", "--workers", "4", "--pin"),
    ("allocator",),
    ("attention",),
    ("attention", "--dtype", "float32", "--seq", "1024"),
    ("transformer",),
    ("transformer", "--ddp"),
    ("generate",),
    ("generate", "--cuda-graph"),
    ("generate", "--model", "hf", "--tokens", "32"),
    ("serve",),
)


def main(names: Sequence[str]) -> int:
    """Run what is named, or all."""
    failed = 0
    for name, *options in RUNS:
        if not names or name in names:
            line, ended_well = summary(name, options)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            failed += not ended_well
    return int(failed > 0)


def summary(name: str, options: Sequence[str]) -> tuple[str, bool]:
    """Profile a workload, and say in a line what came of it, and whether it ended well."""
    begin = time.monotonic()
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, str(ROOT / "pipeline"), "profile", "--no-ncu", "--python", sys.executable),
                *("--reports", folder, name, "--", *SHORT, *options),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        reports = list(Path(folder).glob("*/2*/report.json"))
        facts = found(Report.from_json(reports[0].read_bytes())) if reports else [_error(done.stderr)]
        if reports and "KEEP" in os.environ:
            kept = Path(os.environ["KEEP"]) / f"{'_'.join([name, *options]).replace(',', '-')}.json"
            kept.write_bytes(reports[0].read_bytes())
    state = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
    line = " | ".join([" ".join([name, *options]), state, f"{time.monotonic() - begin:.0f} s", *facts])
    return line, done.returncode == 0


def found(report: Report) -> Iterator[str]:
    """Yield the time of a step, of its ranges, and the title of the first finding."""
    if report.benchmark:
        yield f"step {min(report.benchmark.step_ns) / 1e6:.4g} ms"
    ranges = report.rows(NVTX_RANGES)
    timed = "gpu_busy_ns" if "gpu_busy_ns" in ranges else "cpu_total_ns"
    inside = ranges[ranges["path"].str.contains(" / step / ")] if len(ranges) else ranges
    yield f"{timed} of ranges: " + ", ".join(
        f"{path.partition(' / step / ')[2]} {total / instances / 1e6:.4g} ms"
        for path, total, instances in inside.reindex(columns=["path", timed, "instances"]).itertuples(index=False)
    )
    moved = report.rows(UNIFIED_MEMORY)
    if len(moved):
        yield ", ".join(f"{count} {event}" for event, count in moved[["event", "count"]].itertuples(index=False))
    yield report.findings[0].title if report.findings else "no findings"


def _error(text: str) -> str:
    """Return the last line that tells of an error: that of the workload comes after ours."""
    lines = text.strip().splitlines() or ["no output"]
    return next((line.strip() for line in reversed(lines) if "error:" in line.lower()), lines[-1])


def missing() -> set[str]:
    """Return the workloads of the registry that no run here is for."""
    return {workload.name for workload in registered_workloads()} - {name for name, *_ in RUNS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
