"""Tries servers, spans and serving figures with the real nsys: `python -m tests.gpu.serving [CASE ...]` on a GPU host.

Prints a line for each case: what was done, whether that is right, and what was found. Exit status 1 if one is wrong.
`--keep FOLDER` keeps the reports. Takes about five minutes.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pandas as pd

from nightsight.model.report import Report
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import GPU_TIME
from nightsight.results.ranges import NVTX_RANGES
from nightsight.results.serving import SERVING

ROOT: Final = Path(__file__).parents[2]
REQUESTS: Final = 40
# runs kernels for 25 s, one range per second, and writes a result at its end
LOOP: Final = """
import json, sys, time, nvtx, torch
x, begin = torch.randn(1024, 1024, device="cuda"), time.monotonic()
while time.monotonic() - begin < 25:
    with nvtx.annotate("second"):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            x = torch.tanh(x @ x)
            torch.cuda.synchronize()
json.dump({"output_throughput": 123.0}, open(sys.argv[1], "w"))
"""


_NUMBERS: Final = [column.name for column in SERVING.columns if column.type != "text"]


class Ended(NamedTuple):
    """How `nightsight profile` ended: its status, its output, its report if there is one."""

    status: int
    output: str
    report: Report | None


Problems = Iterator[str]
"""What is wrong; a text that begins with `=` says only what was found."""


def profile(folder: Path, *options: str) -> Ended:
    """Run `nightsight profile`."""
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "--python", sys.executable, "--reports", str(folder)]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    reports = sorted(folder.glob("*/2*/report.json"))
    report = Report.from_json(reports[-1].read_bytes()) if reports else None
    return Ended(done.returncode, done.stderr, report)


def served(folder: Path, fault: str = "none", *, within_s: int = 120, requests: int = REQUESTS) -> Ended:
    """Profile the server of ours under the load of the client of ours."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python, results = sys.executable, folder / "results.json"
    return profile(
        folder,
        *("--server", f"{python} -m tests.gpu.server --port {port} --fault {fault}"),
        *("--ready", f"http://127.0.0.1:{port}/health", "--ready-timeout", str(within_s)),
        *("--client", f"{python} -m tests.gpu.client --port {port} --requests {requests} --out {results}"),
        *("--attach", str(results), "--window", "whole"),
    )


def server(folder: Path) -> Problems:
    """A server and its worker process, while a client loads it."""
    ended = served(folder)
    yield from ended_with(ended, 0)
    if ended.report:
        yield from has_figures(ended.report, "with the profiler")
        ranges = instances(ended.report)
        yield f"= {ranges.get('request', 0)} requests of {REQUESTS}, ranges {sorted(ranges)}"
        if ranges.get("request") != REQUESTS:
            yield f"{REQUESTS} requests should be in the capture: the client sent so many while it was recorded"
        if "warm-up" in ranges:
            yield "the warm-up should not be in the capture: it was before the client"
        yield from has_kernels(ended.report)


def server_dies(folder: Path) -> Problems:
    """A server that ends under the load."""
    ended = served(folder, "dies")
    yield from ended_with(ended, 1, "ended with exit status 7 while", "server_ended")


def server_early(folder: Path) -> Problems:
    """A server that ends before it is ready."""
    yield from ended_with(served(folder, "early"), 1, "before it was ready; nothing was captured")


def server_never(folder: Path) -> Problems:
    """A server that is never ready."""
    yield from ended_with(served(folder, "never", within_s=30), 1, "was not ready after 30 s")


def server_stubborn(folder: Path) -> Problems:
    """A server that ignores SIGINT and SIGTERM."""
    begin = time.monotonic()
    ended = served(folder, "stubborn")
    yield from ended_with(ended, 0)
    yield f"= ended after {time.monotonic() - begin:.0f} s, findings {rules(ended)}"
    if ended.report:
        yield from has_kernels(ended.report)


def span(folder: Path) -> Problems:
    """A span in the middle of a program, which goes on and writes its results."""
    program, results = folder / "loop.py", folder / "results.json"
    program.write_text(LOOP, encoding="utf-8")
    ended = profile(
        folder,
        *("--no-ncu", "--delay", "12", "--duration", "5", "--window", "whole", "--attach", str(results)),
        *(str(program), "--", str(results)),
    )
    yield from ended_with(ended, 0)
    if ended.report:
        yield from has_figures(ended.report, "with the profiler")
        yield from has_kernels(ended.report)
        window = ended.report.rows(GPU_TIME)["window_ns"]
        yield f"= a window of {window.max() / 1e9:.3g} s"
        if not 3e9 < window.max() < 8e9:
            yield "the window should have about 5 s"


def generated(*options: str) -> Callable[[Path], Problems]:
    """Return the case of the workload `generate` with these options."""

    def case(folder: Path) -> Problems:
        ended = profile(folder, "--no-ncu", "generate", "--", "--iterations", "5", "--trials", "3", *options)
        yield from ended_with(ended, 0)
        if ended.report:
            yield from has_figures(ended.report, "without the profiler")
            yield from has_kernels(ended.report)

    return case


def ended_with(ended: Ended, status: int, words: str = "", rule: str = "") -> Problems:
    """Yield what is wrong about how it ended."""
    last = next((line for line in ended.output.splitlines() if line.startswith("Error: ")), "")
    if last:
        yield f"= {last}"
    if ended.status != status:
        yield f"exit status {ended.status}, not {status}: {ended.output[-1500:]}"
    if words not in last:
        yield f"it should say {words!r}"
    if rule and rule not in rules(ended):
        yield f"the report should have the finding {rule}, not {rules(ended)}"


def rules(ended: Ended) -> list[str]:
    """Return the findings of a report that are no advice."""
    findings = ended.report.findings if ended.report else ()
    return [finding.rule for finding in findings if finding.severity != "advice"]


def has_figures(report: Report, measured: str) -> Problems:
    """Yield the serving figures of a report, and what is wrong about them."""
    rows = report.rows(SERVING)
    if not len(rows) or set(rows["measured"]) != {measured}:
        yield f"there should be serving figures {measured}: {rows.to_dict('records')}"
    for row in rows.to_dict("records"):
        numbers = {str(name): float(value) for name, value in row.items() if pd.notna(value) and name in _NUMBERS}
        yield f"= {row['metric']}: {json.dumps({name: round(number, 1) for name, number in numbers.items()})}"


def has_kernels(report: Report) -> Problems:
    """Yield how many kernels a report has; none is wrong."""
    kernels = report.rows(CUDA_GPU_KERN_SUM)
    count = int(kernels["instances"].sum()) if len(kernels) else 0
    yield f"= {count} kernels" if count else "there should be kernels"


def instances(report: Report) -> dict[str, int]:
    """Return how often each range is in a report, by its own name."""
    rows = report.rows(NVTX_RANGES).reindex(columns=["path", "instances"]).itertuples(index=False)
    return {str(path).rpartition(" / ")[2]: int(count) for path, count in rows}


CASES: Final[Mapping[str, Callable[[Path], Problems]]] = {
    "server": server,
    "server-dies": server_dies,
    "server-early": server_early,
    "server-never": server_never,
    "server-stubborn": server_stubborn,
    "span": span,
    "generate": generated(),
    "generate-graph": generated("--cuda-graph"),
    "generate-hf": generated("--model", "hf", "--tokens", "32"),
}


def main() -> int:
    """Run what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    wrong = 0
    for name in options.cases or CASES:
        with TemporaryDirectory() as aside:
            folder = (options.keep or Path(aside)).absolute() / name
            folder.mkdir(parents=True)
            begin = time.monotonic()
            texts = list(CASES[name](folder))
        problems = [text for text in texts if not text.startswith("= ")]
        wrong += bool(problems)
        state = f"WRONG ({len(problems)})" if problems else "ok"
        lines = [f"{name} | {state} | {time.monotonic() - begin:.0f} s", *(f"    {text}" for text in texts)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
