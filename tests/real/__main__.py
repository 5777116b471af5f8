"""Times, captures, proves and judges the real programs: `python -m tests.real COMMAND [NAME ...]`.

time: each form without a profiler. capture: `nightsight profile` of the form `base`, and torch.profiler for some; both
on a GPU host. record: both, one program after the other, so that the times and the capture of a program are of the same
minutes. With --at-once, what comes before the first step (imports) and after the last (reports) overlaps with other
programs; while one uses a GPU, the others wait. With four at a time on one GPU, host code took up to 1.8 times as long:
with --gpus, each program has a GPU and its share of the cores to itself. prove:
`nightsight profile` of the form `base`, then `nightsight prove` of its causes. check: compares the advice with the
times; needs no GPU.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from nightsight.captures import unprofiled_file
from tests.planted.store import packed
from tests.real.blind_cases import ALL
from tests.real.cases import RealCase
from tests.real.judge import judged, table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STEP = re.compile(r"^\S+ \S+ step ([\d.]+) ms$", re.MULTILINE)
Job = TypeVar("Job")
COLLECTORS = ("nsys", "torch")
_FILES = {"C": "blind.py", "D": "fresh.py", "E": "fresh.py", "F": "third.py", "G": "third.py"}
KEPT = ("REAL_LOCK", "REAL_BUILD", "REAL_SHARE", "REAL_SMALL", "HF_HUB_OFFLINE", "CC", "CUDA_VISIBLE_DEVICES")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.real", description=__doc__)
    parser.add_argument("command", choices=["time", "capture", "record", "prove", "check"])
    parser.add_argument("cases", nargs="*", metavar="NAME[=SWITCH+...]", help="only these (default: all)")
    parser.add_argument("--halves", default="ABCDEFG", help="without names, those of these halves (default: ABCDEFG)")
    parser.add_argument("--folder", type=Path, required=True, help="for times and captures")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="more are faster, but slow each other down")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="programs at the same time use different ones")
    parser.add_argument("--collector", choices=COLLECTORS, help="capture, record: only with this one")
    parser.add_argument("--base", action="store_true", help="time the form `base` only")
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after this time")
    parser.add_argument("--budget", default="4", metavar="MINUTES", help="of the proof of one program (default: 4)")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="prove: where NAME.report.json is, not captured")
    options = parser.parse_intermixed_args()
    # what is proven of each: the causes of its report, or these
    switches = {
        name: chosen.split("+") for name, _, chosen in (word.partition("=") for word in options.cases) if chosen
    }
    cases = [ALL[word.partition("=")[0]] for word in options.cases] or [
        case for case in ALL.values() if case.half in options.halves
    ]
    if options.command == "check":
        print(table([verdict for verdict in judged(options.folder) if verdict.case in cases]))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    collectors = (options.collector,) if options.collector else COLLECTORS
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "build").mkdir()
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pipeline"), os.environ.get("PYTHONPATH", "")]),
            "REAL_BUILD": f"{scratch}/build",
        }
        places = places_of(variables, at_once=max(options.at_once, options.gpus), gpus=options.gpus, folder=scratch)
        writing = Lock()

        def time_and_keep(job: tuple[RealCase, str], variables: Mapping[str, str]) -> None:
            if (step_ms := timed(*job, variables)) is not None:
                with writing:
                    keep(options.folder / "times.json", job[0].name, job[1], step_ms)

        def record(case: RealCase, variables: Mapping[str, str]) -> None:
            for form in case.forms:
                time_and_keep((case, form), variables)
            for collector in collectors:
                if collects(case, collector):
                    captured(case, collector, variables, options.folder)

        def prove(case: RealCase, variables: Mapping[str, str]) -> None:
            proven(case, variables, options.folder, options.budget, options.reports, switches.get(case.name, []))

        if options.command == "time":
            forms = [(case, form) for case in cases for form in (("base",) if options.base else case.forms)]
            all_at_once(forms, time_and_keep, places, deadline)
        elif options.command == "record":
            all_at_once(cases, record, places, deadline)
        elif options.command == "prove":
            all_at_once(cases, prove, places, deadline)
        else:
            jobs = [(case, collector) for case in cases for collector in collectors if collects(case, collector)]
            # the first measures what the profiler costs, for all
            captured(*jobs[0], places[0].variables, options.folder)
            all_at_once(jobs[1:], lambda job, given: captured(*job, given, options.folder), places, deadline)


@dataclass(frozen=True)
class Place:
    """Where one program at a time runs: the variables that choose its GPU, and its cores."""

    variables: Mapping[str, str]
    cores: frozenset[int]


def places_of(variables: Mapping[str, str], *, at_once: int, gpus: int, folder: str) -> list[Place]:
    """Return where programs run at the same time; those on one GPU share a lock and the cores of that GPU."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // gpus
    places = []
    for place in range(at_once):
        gpu = place % gpus
        chosen = {**variables, "REAL_LOCK": f"{folder}/lock{gpu}"}
        if gpus > 1:
            chosen["CUDA_VISIBLE_DEVICES"] = str(gpu)
        places.append(Place(chosen, frozenset(cores[gpu * each : (gpu + 1) * each])))
    return places


def collects(case: RealCase, collector: str) -> bool:
    return collector == "nsys" or case.has_kineto


def all_at_once(
    jobs: Sequence[Job], call: Callable[[Job, Mapping[str, str]], object], places: Sequence[Place], deadline: float
) -> None:
    """Do all jobs that can begin before the deadline, each with the variables of a free place."""
    free = SimpleQueue[Place]()
    for place in places:
        free.put(place)

    def done(job: Job) -> None:
        place = free.get()
        try:
            if time.monotonic() < deadline:
                # of this thread, and of the processes that it starts
                os.sched_setaffinity(0, place.cores)
                call(job, place.variables)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(done, jobs))


def keep(path: Path, name: str, form: str, step_ms: float) -> None:
    """Add a time to those in a file at once: a session on a GPU host may end early."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(name, {})[form] = step_ms
    rows = (f" {json.dumps(name)}: {json.dumps(forms)}" for name, forms in known.items())
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def program(case: RealCase) -> Path:
    """Return the file that contains a program."""
    return HERE / _FILES.get(case.half, "programs.py")


def script_of(case: RealCase, folder: Path) -> Path:
    """Write a script that runs one program, as its author would have it: nightsight looks what a script imports.

    All programs are in one file, some of them of JAX, whose Python stacks nsys cannot sample.
    """
    source = program(case).read_text()
    own = source.partition(f"\ndef {case.name}(")[2].partition("\ndef ")[0]
    imports = "import jax  # noqa: F401\n" if "import jax" in own or "import flax" in own else ""
    script = folder / f"{case.name}.py"
    run = f"sys.argv[0] = {str(program(case))!r}\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    script.write_text(f"import runpy\nimport sys\n\n{imports}{run}")
    return script


def timed(case: RealCase, form: str, variables: Mapping[str, str]) -> float | None:
    """Return the milliseconds of a step without a profiler; None if the program failed."""
    began = time.monotonic()
    command = [sys.executable, str(program(case)), case.name, form]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=400)
    step = STEP.search(done.stdout)
    last = done.stderr[-1500:] if done.returncode or not step else ""
    print(f"{case.name} {form}: {step[1] if step else None} ms ({time.monotonic() - began:.0f} s) {last}", flush=True)
    return float(step[1]) if step else None


def nightsight(
    words: Sequence[str], case: RealCase, variables: Mapping[str, str], folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Run a command of nightsight on a program; the folder gets its script."""
    kept = [word for name in KEPT if name in variables for word in ("--keep-env", name)]
    options = [*kept, "--python", sys.executable, str(script_of(case, folder)), "--", case.name]
    command = [sys.executable, str(ROOT / "pipeline"), *words, *options]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def captured(case: RealCase, collector: str, variables: Mapping[str, str], folder: Path) -> bool:
    """Profile a program and keep its export, the times of its steps without the profiler, and the step under it."""
    with tempfile.TemporaryDirectory() as reports:
        return profiled(case, collector, variables, folder, Path(reports))


def profiled(case: RealCase, collector: str, variables: Mapping[str, str], folder: Path, reports: Path) -> bool:
    """Profile a program; the report stays in `reports`, and what a test needs of it in `folder`."""
    began = time.monotonic()
    share = case.share if collector == "nsys" else case.share / 4
    variables = {**variables, "REAL_SHARE": str(share)}
    options = ["--collector", collector, "--reports", str(reports), "--timeout", "240", "--no-ncu"]
    done = nightsight(["profile", *options], case, variables, reports)
    paths = [path for path in reports.glob("*/2*/capture/*") if path.suffix in {".sqlite", ".gz"}]
    for path in paths:
        data = packed(path, ROOT) if path.suffix == ".sqlite" else path.read_bytes()
        name = f"{case.name}.sqlite.xz" if path.suffix == ".sqlite" else f"{case.name}.torch.json.gz"
        (folder / name).write_bytes(data)
        if (unprofiled := unprofiled_file(path)).exists():
            unprofiled_file(folder / name.removesuffix(".xz")).write_bytes(unprofiled.read_bytes())
    logs = "".join(path.read_text(errors="replace") for path in reports.glob("*/2*/log*/*.log"))
    step = STEP.search(logs)
    (folder / f"{case.name}.{collector}.log").write_text(
        f"{done.stderr[-6000:]}\n{step[0] if step else logs[-3000:]}\n"
    )
    size = sum(path.stat().st_size for path in paths) / 1e6
    print(
        f"{case.name} {collector}: status {done.returncode}, {len(paths)} files of {size:.1f} MB, step "
        f"{step[1] if step else None} ms ({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return bool(paths)


def proven(
    case: RealCase,
    variables: Mapping[str, str],
    folder: Path,
    minutes: str,
    earlier: Path | None,
    switches: Sequence[str],
) -> None:
    """Profile a program, prove what can be switched, and keep the capture, the proof and what was said.

    earlier: a folder with a report of it; then it is not profiled. switches: only these.
    """
    with tempfile.TemporaryDirectory() as reports:
        report = earlier / f"{case.name}.report.json" if earlier else None
        if report is None and not profiled(case, "nsys", variables, folder, Path(reports)):
            return
        began = time.monotonic()
        variables = {**variables, "REAL_SHARE": str(case.share)}
        options = [
            "--reports",
            reports,
            "--rounds",
            "3",
            "--budget",
            minutes,
            *(["--report", str(report)] if report else []),
        ]
        options += [word for name in switches for word in ("--switch", name)]
        done = nightsight(["prove", *options], case, variables, Path(reports))
        for path in Path(reports).glob("*/proof/proof.json"):
            (folder / f"{case.name}.proof.json").write_bytes(path.read_bytes())
        # what a program says that a switch breaks
        logs = [
            f"== {path}\n{path.read_text(errors='replace')[-3000:]}"
            for path in Path(reports).glob("*/proof/log/**/*.log")
        ]
        (folder / f"{case.name}.prove.log").write_text("\n".join(logs))
        print(f"{case.name}: status {done.returncode} ({time.monotonic() - began:.0f} s)\n{done.stdout}", flush=True)
        print(done.stderr[-1500:] if done.returncode else "", flush=True)


if __name__ == "__main__":
    main()
