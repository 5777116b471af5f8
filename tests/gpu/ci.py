"""Runs the CI parts with the real profilers: `python -m tests.gpu.ci [OPTION]...`, options for `profile` and `ab`.

A line has what was done, how it ended, how long it took, and the first words of the comment: a pull request that
changes nothing, one that makes every step slower, one that does not run, and two nights. They are made in a repository
of their own, and GitHub is the fake one of the tests. Exit status 1 if something ended otherwise than it should.

Run it at the top of the repository, with a Python that has what nightsight needs and PyYAML. On PATH are nsys, git,
bash, and a python3 with torch. It needs no network, and at most 8 minutes.
"""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.continuous import ROOT, GitHub, Job, clone, downloaded, git, load, repository

PROGRAM: Final = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE) for _ in range(8))).to(device)
x = torch.randn(SIZE, SIZE, device=device)
for step in range(60):
    with torch.profiler.record_function("step"):
        torch.cuda.nvtx.range_push("step") if device == "cuda" else None
        model(x).sum().backward()
        torch.cuda.nvtx.range_pop() if device == "cuda" else None
"""
SIZE: Final = 1024
PULL_REQUESTS: Final = (
    # what is done, the program, the most pairs of runs, and how it may end: from one pair nothing can be told
    ("nothing changed", PROGRAM.replace("SIZE", str(SIZE)) + "# a comment\n", 1, (0,)),
    ("steps are slower", PROGRAM.replace("SIZE", str(SIZE + SIZE // 4)), 3, (1,)),
    ("it does not run", "raise SystemExit(7)\n", 1, (1, 3)),
)


def main(options: list[str], *, nightsight: Path | None = None, may_differ: bool = True) -> int:
    """Run everything, and return the exit status.

    `nightsight`: the program, by default this checkout's. `may_differ`: whether a slower program can be told.
    """
    workflows = ROOT / "templates" / "ci" / "github"
    with TemporaryDirectory(prefix="nightsight-ci-") as name:
        folder = Path(name)
        checkout = repository(folder, **{"train.py": PROGRAM.replace("SIZE", str(SIZE))})
        environment = _environment(folder, nightsight)
        contexts = {
            "test.install": "false",
            "test.repeat": "2",
            "matrix.workload": "train.py",
            "env.CANARY": "none",
            "github.server_url": "https://github.com",
            "github.repository": "owner/program",
            "github.run_id": "77",
            "github.token": "a token",
        }
        start = git(checkout, "rev-parse", "HEAD")
        (compare,) = load(workflows / "pull-request.yml")["jobs"].values()
        is_right = True
        for number, (label, text, pairs, allowed) in enumerate(PULL_REQUESTS, start=1):
            git(checkout, "checkout", "--quiet", "--detach", start)
            (checkout / "train.py").write_text(text)
            git(checkout, "commit", "--quiet", "--all", "-m", label)
            asked = {"test.pairs": str(pairs), "test.options": shlex.join(options)}
            job = Job(checkout, {**contexts, **asked, "github.event.pull_request.number": number}, environment)
            is_right &= _line(label, allowed if may_differ else (0,), job, compare["steps"])
        git(checkout, "checkout", "--quiet", "--detach", start)
        nightly = load(workflows / "nightly.yml")["jobs"]
        for night in ("first night", "second night"):
            # what ncu replays is of no history, and takes minutes
            measure = Job(checkout, {**contexts, "test.options": shlex.join([*options, "--no-ncu"])}, environment)
            is_right &= _line(night, (0,), measure, nightly["measure"]["steps"])
            runs = {name: files for name, files in measure.uploaded.items() if "-runs-" in name}
            workspace = clone(folder, night.partition(" ")[0])
            downloaded(runs, workspace / "runs")
            record = Job(workspace, contexts, environment)
            is_right &= _line("its history", (0,), record, nightly["record"]["steps"])
    return 0 if is_right else 1


def _environment(folder: Path, nightsight: Path | None) -> Mapping[str, str]:
    """Return variables with which nightsight and a fake gh are on PATH."""
    github = GitHub(folder / "fake-gh")
    program = github.folder / "nightsight"
    ours = [str(nightsight)] if nightsight else [sys.executable, str(ROOT / "pipeline")]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(ours)} "$@"\n')
    program.chmod(0o755)
    place = f"{github.folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": place, "GH_TOKEN": "a token", "GITHUB_REPOSITORY": "owner/program"}


def _line(label: str, allowed: tuple[int, ...], job: Job, steps: Sequence[Mapping[str, Any]]) -> bool:
    began = time.monotonic()
    status = job.run(steps)
    took = time.monotonic() - began
    words = next((line for line in job.summary.splitlines() if line and not line.startswith("<!--")), "")
    is_right = status in allowed
    sys.stdout.write(f"{label:18} status {status}{'' if is_right else ' WRONG'}, {took:.0f} s. {words[:120]}\n")
    if not is_right:
        sys.stdout.write(job.output[-3000:])
    sys.stdout.flush()
    return is_right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
