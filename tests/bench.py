"""`make bench`: times what docs/benchmarks.md lists, in processes of their own, and prints a Markdown table."""

import lzma
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).parent / "data" / "nsys"
NIGHTSIGHT = (sys.executable, "-m", "pipeline")


def main() -> None:
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
    print("| what | median of 5 | slowest | peak memory |\n|---|---|---|---|")
    measure("`nightsight --help`", [*NIGHTSIGHT, "--help"])
    with tempfile.TemporaryDirectory() as folder:
        largest = max(DATA.glob("*/*.sqlite.xz"), key=lambda path: path.stat().st_size)
        capture = Path(folder) / largest.stem
        capture.write_bytes(lzma.decompress(largest.read_bytes()))
        size = f"{capture.stat().st_size / 1e6:.1f} MB"
        page = str(Path(folder) / "page.html")
        measure(f"`nightsight report {capture.name}` ({size})", [*NIGHTSIGHT, "report", str(capture), "-o", page])
        kernels = ["stats", str(capture), "-r", "cuda_gpu_kern_sum"]
        measure(f"`nightsight stats {capture.name} -r cuda_gpu_kern_sum`", [*NIGHTSIGHT, *kernels])


def measure(what: str, command: Sequence[str]) -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    # the largest of all children so far: commands are listed from the smallest to the largest
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"| {what} | {statistics.median(seconds):.2f} s | {max(seconds):.2f} s | {peak:.0f} MB |")


if __name__ == "__main__":
    main()
