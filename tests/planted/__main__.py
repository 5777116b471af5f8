"""Checks nightsight's advice against programs in which one cause of slowness is planted: `make planted` on a GPU host.

time: measures each program in its bad and its fixed form, without a profiler. capture: runs `nightsight profile` on the
bad forms. prove: runs `nightsight prove` on the bad forms, with the causes of the stored captures. check: compares the
first advice on each capture with what the fix gained; needs no GPU.
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.planted.cases import CASES, OTHERS, Case
from tests.planted.judge import judged, promise, table
from tests.planted.store import Times, keep, of_compilations, packed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data" / "planted"
PROGRAM = HERE / "program.py"
# steps of a program that a proof ends
_MANY = 100_000
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
KEPT = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS", *CACHES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("command", choices=["time", "capture", "prove", "check"])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these (default: all for --gpus)")
    parser.add_argument("--folder", type=Path, default=DATA, help="for times and captures (default: %(default)s)")
    parser.add_argument("--gpus", type=int, choices=[1, 2], help="only programs for as many GPUs")
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after this time")
    parser.add_argument("--budget", default="1", metavar="MINUTES", help="of a proof (default: %(default)s)")
    options = parser.parse_args()
    chosen = [CASES[name] for name in options.cases] or list(CASES.values())
    chosen = [case for case in chosen if options.gpus in {None, case.gpus}]
    options.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    if options.command == "time":
        time_all(chosen, options.folder, deadline)
    elif options.command == "capture":
        sys.exit(capture_all(chosen, options.folder, deadline))
    elif options.command == "prove":
        for case in chosen:
            if time.monotonic() < deadline:
                prove(case, options.folder, options.budget)
    else:
        verdicts = judged(chosen, options.folder)
        print(table(verdicts))
        if options.cases:
            print("\n".join(["", *map(promise, verdicts)]))
        if options.folder == DATA and not options.cases:
            print(f"\nPrograms by other authors:\n\n{table(judged(list(OTHERS.values()), DATA / 'others'))}")


def environment(scratch: Path) -> dict[str, str]:
    """Return our variables, with caches of Triton and Inductor of their own: warm ones would hide compilation."""
    path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "pipeline"), os.environ.get("PYTHONPATH"))))
    compiler = os.environ.get("CC") or shutil.which("gcc") or "cc"
    return {**os.environ, "PYTHONPATH": path, "CC": compiler, **{name: str(scratch / name) for name in CACHES}}


def time_all(cases: Sequence[Case], folder: Path, deadline: float) -> None:
    """Measure the programs of each number of GPUs in one process, and add the times to times.json."""
    for gpus in (1, 2):
        names = [case.name for case in cases if case.gpus == gpus]
        trials = timed(names, gpus, folder, deadline)
        missing = [name for name in names if name not in trials]
        # a program that breaks its process takes the later ones with it: they get another, in which it comes last
        timed([*missing[1:], *missing[:1]], gpus, folder, deadline)


def timed(names: Sequence[str], gpus: int, folder: Path, deadline: float) -> Times:
    """Measure programs in one process; return what it could measure."""
    if not names:
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "times.json"
        command = [*launcher(gpus), str(PROGRAM), *names, "--time", str(target)]
        with suppress(subprocess.TimeoutExpired):
            left = max(deadline - time.monotonic(), 1)
            subprocess.run(command, env=environment(Path(scratch)), timeout=left, check=False)
        trials: Times = json.loads(target.read_text()) if target.exists() else {}
    keep(trials, folder)
    return trials


def launcher(gpus: int) -> tuple[str, ...]:
    """Return the command that runs a script, in as many processes as it needs GPUs."""
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus))
    return (sys.executable, *(ranks if gpus > 1 else ()))


def capture_all(cases: Sequence[Case], folder: Path, deadline: float) -> int:
    """Capture the programs; return 1 if some could not be, or if there was no time left for them."""
    done = [capture(case, folder) for case in cases if time.monotonic() < deadline]
    print(f"{sum(done)} of {len(cases)} captured", file=sys.stderr)
    return int(sum(done) < len(cases))


def capture(case: Case, folder: Path) -> bool:
    """Capture the bad form and keep its export, and what ncu wrote, as FOLDER/CASE.bad.*.xz."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        variables = environment(Path(scratch))
        ncu = ("--ncu-kernels", "2", "--ncu-budget", "60") if case.counts else ("--no-ncu",)
        region = "none" if case.is_whole else "cudaProfilerApi"
        options = ["--collector", "nsys", "--capture-range", region, "--reports", scratch, "--timeout", "90", *ncu]
        options += ["--no-time-steps", "--names", case.names]
        options += [word for name in KEPT if name in variables for word in ("--keep-env", name)]
        program = (*launcher(case.gpus), str(PROGRAM), case.name)
        done = subprocess.run(
            [sys.executable, str(ROOT / "pipeline"), "profile", *options, "--", *program],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        files = list(Path(scratch).glob("*/2*/capture/*"))
        exports = [path for path in files if path.suffix in {".sqlite", ".ncu-rep"}]
        for path in exports:
            (folder / f"{case.name}.bad{path.suffix}.xz").write_bytes(packed(path, ROOT))
        for path in (path for path in files if path.name.endswith(".unprofiled.json")):
            if compiled := of_compilations(path.read_text()):
                (folder / f"{case.name}.bad.unprofiled.json").write_text(compiled)
        message = f"{len(exports)} files ({time.monotonic() - started:.1f} s)"
        if done.returncode:
            logs = (path.read_text(errors="replace")[-2000:] for path in Path(scratch).glob("*/2*/log/*.log"))
            message = "\n".join([f"exit status {done.returncode}, {message}", done.stderr[-2000:], *logs])
        print(f"{case.name}: {message}", file=sys.stderr, flush=True)
    return bool(exports)


def prove(case: Case, folder: Path, minutes: str) -> None:
    """Prove the causes of a stored capture on the bad form; print the proof, and keep it as FOLDER/CASE.proof.json."""
    with tempfile.TemporaryDirectory() as scratch:
        # a report is of the program that its title names
        capture, report = Path(scratch) / f"{PROGRAM.stem}.sqlite", Path(scratch) / "report.json"
        capture.write_bytes(lzma.decompress((DATA / f"{case.file}.sqlite.xz").read_bytes()))
        pipeline = (sys.executable, str(ROOT / "pipeline"))
        subprocess.run(
            [*pipeline, "report", str(capture), "--format", "json", "-o", str(report)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        variables = environment(Path(scratch))
        options = ["--report", str(report), "--reports", scratch, "--budget", minutes]
        options += [word for name in KEPT if name in variables for word in ("--keep-env", name)]
        program = (*launcher(case.gpus), str(PROGRAM), case.name, "--steps", str(_MANY))
        subprocess.run([*pipeline, "prove", *options, "--", *program], cwd=ROOT, env=variables, check=False)
        for path in Path(scratch).glob("*/proof/proof.json"):
            (folder / f"{case.name}.proof.json").write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
