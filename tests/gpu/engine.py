"""Profiles the server of `workloads.serve` with each planted fault: `python -m tests.gpu.engine` on a GPU host.

Prints a line for each fault: whether the first finding names it, the predicted and the measured time per output token
(of the healthy server), and how far the parts of the time to the first token are from what the client logged. Exit
status 1 if fewer than nine of ten are named. `--keep FOLDER` keeps the reports. Takes about ten minutes.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pandas as pd

from nightsight.model.report import Finding, Report
from nightsight.results.serving import ENGINE_STEPS, REQUEST_TIMES, SERVING, TPOT, TTFT, UNPROFILED_RUN

ROOT: Final = Path(__file__).parents[2]
# rules that name a fault, and a part of the action or cause
NAMED: Final[dict[str, Callable[[Finding], bool]]] = {
    "whole-prompts": lambda finding: finding.rule == "prompts_block",
    "new-shapes": lambda finding: finding.rule == "compilation" and "cudnn_sdp" in finding.code,
    "small-batch": lambda finding: finding.rule in ("few_at_a_time", "small_batch"),
    "slow-scheduler": lambda finding: finding.rule == "host_code" and "schedule" in finding.cause,
    "no-overlap": lambda finding: finding.rule == "wait" and "output" in finding.cause,
    "sampling-syncs": lambda finding: "sample" in finding.cause,
    "eager": lambda finding: finding.rule == "launch_bound",
    "few-graphs": lambda finding: finding.rule == "launch_bound",
    "small-cache": lambda finding: finding.rule == "cache_full",
    "tokenize-in-engine": lambda finding: finding.rule == "host_code" and "tokenize" in finding.cause,
}
# launches take longer than the work of small models only, a burst would be tokenized in a single step, and what is
# compiled takes long
SMALL: Final = ("--dim", "1024", "--heads", "8", "--prompt", "256", "--chunk", "256")
OPTIONS: Final = {
    "eager": SMALL,
    "few-graphs": SMALL,
    "new-shapes": ("--requests", "8"),
    "tokenize-in-engine": ("--rate", "8"),
}
PARTS: Final = [
    column.name for column in REQUEST_TIMES.columns if column.name.endswith("_ns") and column.name != "time_ns"
]


def main(arguments: list[str]) -> int:
    """Profile all faults, or those that are named, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", choices=["none", *NAMED, []], help="default: all")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--options", default="", help="more options of the workload")
    options = parser.parse_args(arguments)
    faults, named, summed = options.faults or ["none", *NAMED], 0, True
    with TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).absolute()
        for fault in faults:
            report = profiled(folder, fault, options.options.split())
            if report is None:
                say(f"{fault}: no report")
                continue
            first = next((finding for finding in report.findings if finding.severity == "advice"), None)
            is_named = first is None if fault == "none" else first is not None and NAMED[fault](first)
            named += is_named
            error = sum_error(report, folder / fault / "log" / "client.jsonl")
            summed &= error < 0.02
            say(f"{fault}: {'named' if is_named else 'NOT NAMED'}; {first.title if first else 'nothing found'}")
            say(f"    {figures(report)}; parts of TTFT {100 * error:.2f} % from the client's")
    say(f"{named} of {len(faults)} are right")
    return int(named < 0.9 * len(faults) or not summed)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def profiled(folder: Path, fault: str, more: list[str]) -> Report | None:
    """Profile the server with a fault, and return its report."""
    reports, log = folder / fault, folder / fault / "log"
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "--python", sys.executable, "--reports", str(reports)]
    command += ["--no-ncu", "--nsys-arg=--cuda-graph-trace=node"]
    command += [part for side in ("server", "client") for part in ("--attach", str(log / f"{side}.jsonl"))]
    workload = [
        "serve",
        "--",
        "--fault",
        fault,
        "--log",
        str(log),
        "--iterations",
        "2",
        "--warmup",
        "1",
        "--trials",
        "2",
        *more,
    ]
    workload += ["--requests", "20", *OPTIONS.get(fault, ()), *more]
    done = subprocess.run([*command, *workload], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        say(done.stderr[-2000:])
    files = sorted(reports.glob("serve/2*/report.json"))
    return Report.from_json(files[-1].read_bytes()) if files else None


def figures(report: Report) -> str:
    """Return what the engine and its client did, in a line."""
    steps = report.rows(ENGINE_STEPS)
    kinds = [f"{row['kind']} {row['steps']} × {row['med_ns'] / 1e6:.2f} ms" for row in steps.to_dict("records")]
    serving = report.rows(SERVING)
    tpot = serving["avg_ns"][(serving["metric"] == TPOT) & (serving["measured"] == UNPROFILED_RUN)] / 1e6
    times = report.rows(REQUEST_TIMES)
    unseen = times["unseen_ns"].sum() / times["time_ns"].sum() if "unseen_ns" in times else 1.0
    figures = f"{', '.join(kinds)}; {100 * unseen:.1f} % of the time of requests unseen"
    return f"{figures}; unprofiled TPOT {float(tpot.iloc[0]):.2f} ms" if len(tpot) else figures


def sum_error(report: Report, log: Path) -> float:
    """Return how far the parts of TTFT are from what the client logged for the same requests, the largest share."""
    times = report.rows(REQUEST_TIMES)
    rows = times[(times["metric"] == TTFT) & times["request"].notna()] if len(times) else times
    if not len(rows):
        return 1.0
    lines = pd.DataFrame(map(json.loads, log.read_text().splitlines()))
    events = lines.pivot_table("time_ns", "id", "event", aggfunc="min").sort_values("sent")
    logged = (events["first_seen"] - events["sent"]).to_numpy()
    parts = rows.reindex(columns=PARTS).fillna(0).sum(axis=1)
    return float(abs(parts.to_numpy() / logged[rows["request"].to_numpy(dtype=int) - 1] - 1).max())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
