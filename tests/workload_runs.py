"""Runs workloads one after the other in one process: to import torch for each of them would take most of the time.

As a program it does so: it reads what to run from its standard input, and writes how each ended.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Ended(NamedTuple):
    """How a workload ended, and what it said."""

    status: int
    stdout: str
    stderr: str


def run_together(
    commands: Sequence[tuple[str, ...]],
    folder: Path,
    environment: dict[str, str] | None = None,
    *,
    is_traced: bool = False,
    python: str = sys.executable,
) -> list[Ended]:
    """Run workloads, given as the name of one and its arguments, in a folder; traced, each leaves NAME.json there."""
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), **(environment or {})}
    done = subprocess.run(
        [python, str(Path(__file__).absolute())],
        input=json.dumps([is_traced, commands]),
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*ended) for ended in json.loads(done.stdout.splitlines()[-1])]


@contextmanager
def _traced(name: str) -> Iterator[None]:
    """Leave a trace, with the ranges that a workload makes where there is no nvtx."""
    sys.modules["nvtx"] = None  # type: ignore[assignment]
    profiler = import_module("torch.profiler").profile()
    with profiler:
        yield
    profiler.export_chrome_trace(f"{name}.json")


def _run(name: str, arguments: Sequence[str], traced: AbstractContextManager[None]) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    status = 0
    sys.argv = [f"{name}.py", *arguments]
    with redirect_stdout(out), redirect_stderr(err), traced:
        try:
            import_module(f"workloads.{name}").main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
            if isinstance(end.code, str):
                print(end.code, file=err)
    return Ended(status, out.getvalue(), err.getvalue())


if __name__ == "__main__":
    is_traced, commands = json.load(sys.stdin)
    ended = [_run(name, given, _traced(name) if is_traced else nullcontext()) for name, *given in commands]
    json.dump(ended, sys.stdout)
