"""Compares operators with torch's own table: `OUT=FOLDER python -m tests.gpu.key_averages [cpu]` on a GPU host.

Runs tests/data/kineto/make.py there, which writes a trace and torch's figures into the folder: they can join the tests.
Prints a line for each figure that differs, and how many do not. Exit status 1 if any time, count or size differs.
Those of cudnn_convolution do on a GPU: torch counts waits of streams as its work, and the profiler's overhead as an
operator.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from nightsight.analyze.operators import operators
from nightsight.events.timeline import Timeline
from nightsight.read import read

MAKE: Final = Path(__file__).parents[1] / "data" / "kineto" / "make.py"
# ours, torch's, and what ours is in units of torch's
FIGURES: Final = (
    ("calls", "count", 1),
    ("total_ns", "cpu_time_total", 1000),
    ("own_ns", "self_cpu_time_total", 1000),
    ("device_ns", "device_time_total", 1000),
    ("own_device_ns", "self_device_time_total", 1000),
    ("memory_bytes", "cpu_memory_usage", 1),
    ("own_memory_bytes", "self_cpu_memory_usage", 1),
    ("device_memory_bytes", "device_memory_usage", 1),
    ("own_device_memory_bytes", "self_device_memory_usage", 1),
    ("flops", "flops", 1),
)
# ends on another thread than it begins on, which no trace tells
ASYNCHRONOUS: Final = "sums"


def main(device: str, folder: Path) -> int:
    """Record, read and compare."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(MAKE), device, str(folder)], check=True)
    (trace,) = folder.glob("ops_*.json.gz")
    with trace.with_name(trace.name.replace(".json.gz", ".csv")).open(newline="") as file:
        expected = {row["key"]: row for row in csv.DictReader(file) if not row["shapes"]}
    profile = read(trace)
    same = differing = 0
    for row in operators(Timeline(profile)).frame.to_dict("records"):
        for ours, name, unit in FIGURES:
            theirs = float(expected[row["name"]][name] or 0) * unit
            if row["name"] == ASYNCHRONOUS or abs(float(row.get(ours, 0)) - theirs) < 1:
                same += 1
            else:
                differing += 1
                sys.stdout.write(f"{row['name']}: {ours} is {row.get(ours)}, torch says {theirs:.0f}\n")
    sizes = ", ".join(f"{len(table):,} {name}" for name, table in profile.tables.items() if len(table))
    sys.stdout.write(f"{same} figures are those of torch, {differing} are not; {sizes}\n")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "cuda", Path(os.environ["OUT"])))
