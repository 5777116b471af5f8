"""Times and records the programs of ranks.py on a GPU host: `python -m tests.gpu.record_ranks FOLDER [--seconds N]`.

Each is timed in both forms, and its bad form is recorded in three ways: each rank apart under nsys (`CASE.RANK`), all
in one capture (`CASE.bad`), and under torch.profiler (`kineto_CASE.RANK`). With NCCL_DEBUG=INFO the output tells how
ranks were connected. What is most needed comes first; nothing is started after so many seconds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.planted.store import packed

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("ranks.py")
# the first four come before other ways to record
APART = (
    *("straggler_compute", "exposed", "staged", "experts"),
    *("unequal_batches", "accumulated", "checkpointed", "overlapped", "straggler_host", "sharded"),
    *("late_joiner", "mismatch"),
)
UNTIMED = {"late_joiner", "mismatch"}
TOGETHER = ("straggler_compute", "sharded", "staged")
KINETO = ("straggler_compute", "exposed", "experts", "staged", "overlapped")
KEPT = ("NCCL_*", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
LAUNCH = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.record_ranks", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument(
        "--skip", nargs="*", default=[], metavar="NAME", help="what is recorded already: CASE.apart, ..."
    )
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    options.folder.mkdir(parents=True, exist_ok=True)
    timed = [case for case in APART if case not in UNTIMED]
    run("times", [*LAUNCH, str(PROGRAM), "--time", str(options.folder), *timed], options.seconds / 3)
    nsys: tuple[str, ...] = ()
    torch = ("--collector", "torch", "--wait", "6", "--active", "8")
    todo = [(f"{case}.apart", case, True, nsys) for case in APART[:4]]
    todo += [(f"kineto_{case}.apart", case, True, torch) for case in KINETO[:1]]
    todo += [(f"{case}.bad", case, False, nsys) for case in TOGETHER[:1]]
    todo += [(f"{case}.apart", case, True, nsys) for case in APART[4:]]
    todo += [(f"kineto_{case}.apart", case, True, torch) for case in KINETO[1:]]
    todo += [(f"{case}.bad", case, False, nsys) for case in TOGETHER[1:]]
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(8) as pool:
        pending = []
        for name, case, is_apart, words in todo:
            if name in options.skip:
                continue
            if time.monotonic() > deadline:
                say(f"{name}: no time left")
                continue
            for path, target in record(Path(scratch) / name, case, words, is_apart=is_apart):
                pending.append(pool.submit(pack, path, options.folder / target))
        for each in pending:
            each.result()


def record(folder: Path, case: str, words: Sequence[str], *, is_apart: bool) -> list[tuple[Path, str]]:
    """Record the bad form of a program; return its captures, and the names to keep them by."""
    kept = [word for name in KEPT for word in ("--keep-env", name)]
    nightsight = (
        sys.executable,
        str(ROOT / "pipeline"),
        "profile",
        "--no-ncu",
        "--python",
        sys.executable,
        "--timeout",
        "60",
        *kept,
        *words,
    )
    if is_apart:
        reports = ("--reports", f'{folder}/rank"$RANK"')
        command = " ".join((*nightsight, *reports, str(PROGRAM), "--", case))
        launched = [
            *LAUNCH,
            "--no-python",
            "sh",
            "-c",
            f"exec {command.replace('NCCL_*', chr(39) + 'NCCL_*' + chr(39))}",
        ]
    else:
        launched = [*nightsight, "--reports", str(folder), "--", *LAUNCH, str(PROGRAM), case]
    run(folder.name, launched, 90)
    for log in sorted(folder.rglob("log/*.log")):
        lines = log.read_text(errors="replace").splitlines()
        say(*[line for line in lines if " via " in line or "Error" in line][:4])
    prefix = folder.name.removesuffix(".apart")
    paths = [path for path in folder.rglob("capture/*") if path.suffix == ".sqlite" or path.name.endswith(".json.gz")]
    if not is_apart:
        return [(path, f"{prefix}{path.suffix}") for path in paths]
    return [(path, f"{prefix}.{rank(path, folder)}{path.suffix}") for path in paths]


def rank(path: Path, folder: Path) -> str:
    return path.relative_to(folder).parts[0].removeprefix("rank")


def run(name: str, command: Sequence[str], seconds: float) -> None:
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'pipeline'}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        state = f"exit status {done.returncode}"
        output = done.stdout[-1500:] + done.stderr[-2500:]
    except subprocess.TimeoutExpired as error:
        state, output = "out of time", str(error.stderr)[-1500:]
    say(f"== {name}: {state} ({time.monotonic() - started:.1f} s)", output)


def say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def pack(path: Path, target: Path) -> None:
    """Keep a capture, compressed, without what tells of the machine."""
    if path.suffix == ".gz":
        shutil.copy(path, target.with_suffix(".json.gz"))
    else:
        target.with_name(f"{target.name}.xz").write_bytes(packed(path, ROOT))


if __name__ == "__main__":
    main()
