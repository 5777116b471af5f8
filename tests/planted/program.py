"""Runs planted programs: `program.py CASE` in its bad form for a profiler, `program.py CASE... --time FILE` without."""

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from tests.planted.cases import CASES, Case, Form, Step
from tests.planted.store import Times, median_ms

WARM = 5
TRIALS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+", metavar="CASE", help="a case to show a profiler, or cases to time")
    parser.add_argument("--time", type=Path, metavar="FILE", help="write the step times of both forms as JSON")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="run the bad form this often, for a proof")
    options = parser.parse_args()
    with process_group():
        if options.time:
            time_cases(options.words, options.time)
        else:
            (name,) = options.words
            if options.steps:
                run(CASES[name].make(True), options.steps, count())
            else:
                show(CASES[name])


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other ranks, if torchrun started this process."""
    if "RANK" not in os.environ:
        yield
        return
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    yield
    torch.distributed.destroy_process_group()


def show(case: Case) -> None:
    """Run some steps of the bad form as warm-up, then those to capture."""
    step = case.make(True)
    numbers = count()
    run(step, WARM, numbers)
    torch.cuda.profiler.start()
    run(step, case.captured, numbers)
    torch.cuda.profiler.stop()


def run(step: Step, steps: int, numbers: Iterator[int]) -> float:
    """Return the milliseconds a step took."""
    together()
    start = time.perf_counter()
    for _ in range(steps):
        step(next(numbers))
    together()
    return (time.perf_counter() - start) / steps * 1e3


def together() -> None:
    torch.cuda.synchronize()
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.cuda.synchronize()


def time_cases(names: list[str], target: Path) -> None:
    """Time cases one by one; what fails is said and left out. The file is complete after each case."""
    times: Times = {}
    for name in names:
        started = time.perf_counter()
        try:
            times[name] = trials_ms(CASES[name])
        except Exception:  # noqa: BLE001 (a program that fails must not cost the others their times)
            traceback.print_exc()
        gc.collect()
        torch.cuda.empty_cache()
        if os.environ.get("RANK", "0") == "0":
            medians = {form: median_ms(trials) for form, trials in times.get(name, {}).items()}
            summary = " ".join(f"{form} {value:.3f} ms" for form, value in medians.items()) or "FAILED"
            print(f"{name:24}{summary} ({time.perf_counter() - started:.1f} s)", file=sys.stderr, flush=True)
            target.write_text(json.dumps(times))


def trials_ms(case: Case) -> dict[Form, list[float]]:
    """Return the milliseconds of a step in each trial, by form; the forms take turns."""
    steps = {form: (case.make(form == "bad"), count()) for form in case.timed_forms}
    trials: dict[Form, list[float]] = {form: [] for form in steps}
    for step, numbers in steps.values():
        run(step, WARM, numbers)
    for _ in range(TRIALS):
        for form, (step, numbers) in steps.items():
            run(step, 2, numbers)
            trials[form].append(round(run(step, case.steps, numbers), 4))
    return trials


if __name__ == "__main__":
    main()
