"""Times and records the jobs of jobs.py on a host with several GPUs: `python -m tests.gpu.record_jobs FOLDER`.

Each job is timed in both forms, and its faulty form is recorded in up to three ways: all ranks in one capture of nsys
(`JOB.bad`), a capture of nsys per rank (`JOB.RANK`), and a trace of torch.profiler per rank (`kineto/JOB.RANK`). Some
are started at a time, and use the GPUs one after another. Nothing is started after so many seconds.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.planted.store import packed

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("jobs.py")
NAMES = (
    *("ddp", "fsdp", "one_rank_augments", "one_rank_has_more", "lengths_differ", "reduced_after_backward"),
    *(
        "accumulated",
        "fsdp_whole",
        "fsdp_logs",
        "tensor_and_data",
        "uneven_stages",
        "few_microbatches",
        "uneven_experts",
    ),
)
KEPT = ("NCCL_*", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS", "JOBS_LOCK")
AT_ONCE = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.record_jobs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--time", nargs="*", default=NAMES, metavar="JOB")
    parser.add_argument("--together", nargs="*", default=NAMES, metavar="JOB", help="with one capture of all ranks")
    parser.add_argument("--apart", nargs="*", default=(), metavar="JOB", help="with a capture per rank")
    parser.add_argument("--trace", nargs="*", default=NAMES, metavar="JOB", help="with torch.profiler")
    parser.add_argument("--rates", action="store_true", help="measure and record collectives")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.seconds
    (options.folder / "kineto").mkdir(parents=True, exist_ok=True)
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks))
    with TemporaryDirectory() as scratch:
        os.environ.setdefault("JOBS_LOCK", f"{scratch}/lock")
        if options.time:
            run("times", [*launch, str(PROGRAM), "--time", str(options.folder), *options.time], options.deadline)
        with ProcessPoolExecutor(8) as packers, ThreadPoolExecutor(AT_ONCE) as pool:
            profile = (
                *(sys.executable, str(ROOT / "pipeline"), "profile", "--no-ncu", "--timeout", "120"),
                *(word for name in KEPT for word in ("--keep-env", name)),
            )
            for name in options.together:
                command = [*profile, "--reports", f"{scratch}/{name}.bad", "--", *launch, str(PROGRAM), name]
                pool.submit(record, name, command, Path(scratch, f"{name}.bad"), options, packers)
            if options.rates:
                rates = [str(PROGRAM), "--rates", f"{options.folder}/rates.json"]
                command = [*profile, "--reports", f"{scratch}/rates.bad", "--", *launch, *rates]
                pool.submit(record, "rates", command, Path(scratch, "rates.bad"), options, packers)
            if options.trace:
                command = [*launch, str(PROGRAM), "--trace", str(options.folder / "kineto"), *options.trace]
                pool.submit(run, "traces", command, options.deadline)
            for name in options.apart:
                words = " ".join(f"'{word}'" for word in (*profile, "--python", sys.executable))
                one = f"exec {words} --reports {scratch}/{name}/$RANK {PROGRAM} -- {name}"
                pool.submit(
                    record, name, [*launch, "--no-python", "sh", "-c", one], Path(scratch, name), options, packers
                )


def record(name: str, command: Sequence[str], reports: Path, options: argparse.Namespace, packers: Executor) -> None:
    """Record a job, and keep its captures without what tells of the machine: JOB.bad, or JOB.RANK."""
    run(reports.name, command, options.deadline)
    for log in sorted(reports.rglob("log/*.log")):
        lines = log.read_text(errors="replace").splitlines()
        say(*[line for line in lines if "Error" in line][:4])
    for path in sorted(reports.rglob("capture/*.sqlite")):
        suffix = "bad" if reports.name.endswith(".bad") else path.relative_to(reports).parts[0]
        packers.submit(pack, path, options.folder / f"{name}.{suffix}.sqlite.xz")


def pack(path: Path, target: Path) -> None:
    target.write_bytes(packed(path, ROOT))


def run(name: str, command: Sequence[str], deadline: float) -> None:
    started = time.monotonic()
    if started > deadline:
        say(f"{name}: no time left")
        return
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'pipeline'}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=220)
        except subprocess.TimeoutExpired:
            # ranks that are left would wait for each other on the GPUs, next to the following job
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    last = output.decode(errors="replace")[-1500:] if process.returncode or name == "times" else ""
    say(f"== {name}: exit status {process.returncode} ({time.monotonic() - started:.1f} s) {last}")


def say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
