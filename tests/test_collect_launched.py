"""Which rank a launcher says that this process is, and ranks that run without a profiler."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.analyze.collectives import ANALYSES
from nightsight.collect.launched import LaunchedRank, launched_rank
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from nightsight.model.report import Profile, Report
from nightsight.runs.unprofiled import from_text, to_text
from nightsight.tables import conform
from tests.test_cli import USAGE
from tests.world import world

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, LaunchedRank(3, 8, "torchrun")),
        ({**TORCHRUN, "GROUP_RANK": "1"}, LaunchedRank(3, 8, "torchrun", 1)),
        ({**TORCHRUN, "GROUP_RANK": "x"}, LaunchedRank(3, 8, "torchrun")),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_NODEID": "2"}, LaunchedRank(5, 8, "Slurm", 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, LaunchedRank(0, 2, "Slurm")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, LaunchedRank(1, 4, "Open MPI")),
        # torchrun inside of Slurm
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", **TORCHRUN}, LaunchedRank(3, 8, "torchrun")),
        # the batch script itself
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "8", "WORLD_SIZE": "8"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, None),
        ({"RANK": "a", "WORLD_SIZE": "8"}, None),
        ({"RANK": "٣", "WORLD_SIZE": "8"}, None),
        ({"RANK": "9" * 30, "WORLD_SIZE": "9" * 31}, None),
        ({"RANK": "1"}, None),
        ({}, None),
    ],
)
def test_launchers_tell_ranks(environment: dict[str, str], expected: LaunchedRank | None) -> None:
    assert launched_rank(environment) == expected


@pytest.mark.parametrize(
    ("nodes", "hosts", "is_near"),
    [((0, 0, 0), [0, 0, 0], True), ((4, 4, 7), [0, 0, 1], False), ((0, 0, None), None, True)],
)
def test_a_link_is_only_compared_to_on_one_machine(
    nodes: tuple[int | None, ...], hosts: list[int] | None, *, is_near: bool
) -> None:
    captures = []
    for rank, (part, node) in enumerate(zip(world([[1_000_000] * 20] * 3), nodes, strict=True)):
        launched = pd.DataFrame([LaunchedRank(rank, 3, "Slurm", node)])
        tables = from_text(to_text({"launched_as": conform("launched_as", launched)}))
        captures.append(RankCapture(part.name, part.profile.joined(Profile(tables))))
    results = {one.entry.name: one.run(Timeline(merge_ranks(captures))) for one in ANALYSES}
    ranks, collectives = (results[name].rows for name in ("ranks", "collectives"))
    assert (ranks.sort_values("rank")["host"].tolist() if "host" in ranks else None) == hosts
    assert ("link_pct" in collectives and collectives["link_pct"].notna().all()) == is_near
    # what is only inferred is said
    assert any("as their clocks suggest" in note for note in results["collectives"].notes) == (hosts is None)


def test_a_capture_that_tells_no_rank_has_that_of_its_launcher() -> None:
    parts = world([[1_000_000] * 20] * 3, tells_ranks=False)
    captures = []
    for rank, part in zip((2, 0, 1), parts, strict=True):
        launched = pd.DataFrame([LaunchedRank(rank, 3, "Slurm")])
        tables = from_text(to_text({"launched_as": conform("launched_as", launched)}))
        captures.append(RankCapture("train", part.profile.joined(Profile(tables))))
    table = merge_ranks(captures).table("ranks")
    assert table["rank"].tolist() == [0, 1, 2]
    assert set(table["source"]) == {"Slurm"}


def test_the_rank_is_kept_beside_a_capture(
    run: Any, fake_nsys: Callable[..., Path], gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('rank', os.environ['RANK'])\n")
    run("profile", "--no-ncu", "--no-calibrate", "--names", "off", "--reports", tmp_path / "reports", script)
    (kept,) = (tmp_path / "reports").rglob("*.unprofiled.json")
    rank = {"rank": 3, "world_size": 8, "source": "torchrun", "node": None}
    assert json.loads(kept.read_text())["launched_as"] == [rank]


@pytest.mark.parametrize(("ranks", "is_recorded"), [("0,7", False), ("3", True)])
def test_other_ranks_run_without_a_profiler(tmp_path: Path, ranks: str, is_recorded: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\nprint('rank', os.environ['RANK'], os.environ['SECRET'], sys.argv[1:])\nsys.exit(7)\n"
    )
    words = ["--collector", "nsys", "--nsys", str(tmp_path / "none"), "--ranks", ranks, str(script), "--", "a b"]
    done = subprocess.run(
        [sys.executable, "-m", "nightsight", "profile", "--python", sys.executable, *words],
        env={**os.environ, **TORCHRUN, "SECRET": "kept"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    if is_recorded:
        assert "nsys" in done.stderr
        assert done.returncode != 7
    else:
        assert (done.returncode, done.stdout) == (7, "rank 3 kept ['a b']\n")
        assert not (tmp_path / "reports").exists()


def test_ranks_need_a_launcher(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    stderr = run("profile", "--ranks", "0", script, expect=USAGE).stderr
    assert "Error: --ranks needs a launcher: the rank of this process is unknown" in stderr
    assert "'x' is not a list of ranks" in run("profile", "--ranks", "x", script, expect=USAGE).stderr


def test_the_script_for_clusters_records_each_rank_and_all_are_one_report(tmp_path: Path) -> None:
    """Processes stand for machines: each has a folder, and what a launcher would tell it."""
    document = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```$", document, re.MULTILINE | re.DOTALL)
    (tmp_path / "record.sh").write_text(script)
    (tmp_path / "train.py").write_text(TRAINING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    common = {**os.environ, "PATH": path, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = ["sh", "record.sh", "--collector", "torch", "train.py"]
    ranks = [
        subprocess.Popen(words, cwd=tmp_path, env={**common, "RANK": str(rank)}, stderr=subprocess.DEVNULL)
        for rank in range(2)
    ]
    assert [process.wait(300) for process in ranks] == [0, 0]
    # the pattern of the document
    files = sorted(tmp_path.glob("run/rank*/*/*/capture/*.json.gz"))
    page = tmp_path / "job.json"
    subprocess.run(["nightsight", "report", *map(str, files), "-o", page], env=common, check=True)
    # and the link to the latest run of each
    assert len({file.resolve() for file in files}) == 2
    report = Report.from_json(page.read_bytes())
    assert report.title == "train"
    rules = {finding.rule for finding in report.findings}
    assert "unknown_clock" in rules
    assert not rules & {"missing_ranks", "unread_rank"}


# without collectives: gloo under torch.profiler, on a busy machine, may never end
TRAINING = """
import torch

weights = torch.ones(64, 64)
for _ in range(12):
    with torch.profiler.record_function("step"):
        weights = torch.tanh(weights @ weights)
"""
