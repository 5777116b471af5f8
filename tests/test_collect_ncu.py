"""Collecting with ncu: what it is asked for, how it is ended, and in which ways it fails."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import main
from pipeline.collect.ncu import collect_ncu, replay_kernels
from pipeline.collect.replay import Replay
from pipeline.collect.workloads import Program, Request, resolve
from pipeline.errors import ToolError
from pipeline.model import Report
from pipeline.read import read

FakeNcu = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    script = tmp_path / "train.py"
    script.write_text("print('trained')\n")
    return resolve(str(script), ())


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "capture", logs=tmp_path / "log", timeout_s=60)


def seen(ncu: Path) -> dict[str, Any]:
    """What the fake was asked for."""
    return dict(json.loads(ncu.with_name("ncu.seen.json").read_text())["options"])


def test_a_replay_leaves_a_report_that_can_be_read(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu()
    said: list[str] = []
    replayed = replay_kernels(program, replace(request_, progress=said.append), Replay(expected=3))
    assert replayed.report == request_.captures / "train.ncu-rep"
    assert replayed.findings == ()
    assert len(read(replayed.report).table("profiled_launches")) == 5
    assert any(re.fullmatch(r"replaying kernels with ncu: \d of 3 done(, about \d+ s left)?", line) for line in said)


def test_chosen_kernels_are_asked_for_by_name(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay = Replay(names=("_Z3addPf", "a.b"), base="mangled", skip=2, launches=3, collected=("--section", "Occupancy"))
    replay_kernels(program, request_, replay)
    options = seen(ncu)
    assert (options["--kernel-name-base"], options["--kernel-name"]) == ("mangled", r"regex:^(_Z3addPf|a\.b)$")
    assert (options["--launch-skip"], options["--launch-count"]) == ("2", "3")
    assert (options["--filter-mode"], options["--section"]) == ("per-launch-config", "Occupancy")
    assert options["--nvtx-push-pop-scope"] == "process"
    assert "--set" not in options
    assert "--profile-from-start" not in options


@pytest.mark.parametrize(
    ("name", "matches"),
    [("add", True), ("gelu_kernel", True), ("ncclDevKernel_AllReduce_Sum", False), ("nvshmem_x", False)],
)
def test_kernels_that_communicate_are_never_replayed(
    fake_ncu: FakeNcu, program: Program, request_: Request, name: str, *, matches: bool
) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, Replay(everything=True))
    expression = seen(ncu)["--kernel-name"].removeprefix("regex:")
    assert bool(re.search(expression, name)) is matches


def test_a_range_is_quoted_for_the_filter(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, Replay(pattern="add", nvtx_range="step 1/2@io"))
    assert seen(ncu)["--nvtx-include"] == r"step 1\/2\@io/"
    assert re.search(seen(ncu)["--kernel-name"].removeprefix("regex:"), "my_add")


def test_an_ncu_without_process_scope_is_not_asked_for_it(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    ncu = fake_ncu("old")
    replay_kernels(program, request_, Replay())
    assert "--nvtx-push-pop-scope" not in seen(ncu)
    assert "--nvtx" in seen(ncu)


def test_profilers_start_where_the_program_says_so(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay_kernels(program, replace(request_, capture_range="cudaProfilerApi"), Replay())
    assert seen(ncu)["--profile-from-start"] == "off"


def test_at_the_end_of_the_budget_what_is_done_is_kept(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("slow")
    begun = time.monotonic()
    replayed = replay_kernels(program, request_, Replay(budget_s=2, expected=3))
    assert time.monotonic() - begun < 20
    assert replayed.report is not None
    (finding,) = replayed.findings
    assert finding.title == "1 of 3 chosen launches were replayed within 2 s"
    assert "--ncu-budget" in finding.remedy


def test_no_more_launches_are_replayed_than_wanted(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("endless")
    begun = time.monotonic()
    replayed = replay_kernels(program, request_, Replay(most=2))
    assert time.monotonic() - begun < 20
    assert (replayed.report is not None, replayed.findings) == (True, ())


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("no permission", ("may not read the GPU's performance counters", "CAP_SYS_ADMIN|SYS_ADMIN")),
        ("busy", ("Another profiler", "dcgmi")),
        ("unknown section", ("no such section", "did not match any section")),
        ("no kernels", ("No kernel was replayed", "matches gelu, in the range step|gelu_kernel, elementwise_kernel")),
    ],
)
def test_why_there_is_no_report_is_said_with_what_to_do(
    fake_ncu: FakeNcu, program: Program, request_: Request, behaviour: str, words: tuple[str, ...]
) -> None:
    fake_ncu(behaviour)
    replayed = replay_kernels(program, request_, Replay(pattern="gelu"))
    (finding,) = replayed.findings
    assert replayed.report is None
    for word in words:
        assert re.search(word, f"{finding.title} {finding.detail} {finding.remedy}")
    with pytest.raises(ToolError, match=words[0]):
        collect_ncu(program, replace(request_, replay=Replay(pattern="gelu")))


def test_a_program_that_fails_under_replay_keeps_what_was_done(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    fake_ncu("program fails")
    replayed = replay_kernels(program, request_, Replay())
    (finding,) = replayed.findings
    assert replayed.report is not None
    assert finding.title == "The program under ncu ended with exit status 3"
    assert finding.detail.startswith("3 launches were replayed before.")


def test_without_ncu_it_is_said_where_it_was_looked_for(program: Program, request_: Request) -> None:
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert (finding.severity, finding.title) == ("info", "ncu was not found")
    assert "opt/nvidia/nsight-compute" in finding.remedy


def test_counters_are_asked_for_before_minutes_are_spent(
    fake_ncu: FakeNcu, program: Program, request_: Request, machine: Path
) -> None:
    ncu = fake_ncu()
    (machine / "proc/driver/nvidia").mkdir(parents=True)
    (machine / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    (machine / "proc/self").mkdir()
    (machine / "proc/self/status").write_text("CapEff:\t0000000000000000\n")
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert "may not read" in finding.title
    assert not ncu.with_name("ncu.seen.json").exists()


def test_nothing_that_is_said_of_a_failure_names_a_path(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("no permission")
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert "/" not in finding.detail.replace("<…>", "")


# -- the whole of `profile` --------------------------------------------------------------------------------------------


def profiled(tmp_path: Path, *options: str) -> tuple[Result, Report]:
    (tmp_path / "train.py").write_text("print('done')\n")
    reports = ("--reports", str(tmp_path / "reports"))
    result = CliRunner().invoke(main, ["profile", *reports, *options, str(tmp_path / "train.py")])
    return result, Report.from_json((tmp_path / "reports/train/latest/report.json").read_text())


def test_profile_replays_the_fewest_kernels_that_take_most_of_the_time(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path
) -> None:
    fake_nsys()
    ncu = fake_ncu()
    result, report = profiled(tmp_path, "--collector", "nsys", "--ncu-coverage", "50")
    assert result.exit_code == 0
    options = seen(ncu)
    # the one kernel of `gelu` that takes more than half of the time
    assert options["--kernel-name-base"] == "mangled"
    assert options["--kernel-name"].count("|") < 6
    assert report.parameters["ncu collects"] == "set full"
    assert "replay" in report.stages_s
    assert len(report.result("cuda_gpu_kern_sum").rows)


@pytest.mark.parametrize("behaviour", ["no permission", "no kernels", "garbage", "program fails"])
def test_the_timeline_stands_when_the_replay_fails(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path, behaviour: str
) -> None:
    fake_nsys()
    fake_ncu(behaviour)
    result, report = profiled(tmp_path, "--collector", "nsys")
    assert result.exit_code == 0
    assert {finding.rule for finding in report.findings} & {"no_kernel_metrics", "replay_failed"}
    assert str(tmp_path) not in report.to_json()


def test_no_ncu_leaves_it_out(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    ncu = fake_ncu()
    _, report = profiled(tmp_path, "--collector", "nsys", "--no-ncu")
    assert not ncu.with_name("ncu.seen.json").exists()
    assert "replay" not in report.stages_s


def test_ncu_alone_makes_a_report(fake_ncu: FakeNcu, tmp_path: Path) -> None:
    ncu = fake_ncu()
    result, report = profiled(tmp_path, "--collector", "ncu", "--ncu-metric", "gpu__time_duration.sum")
    assert result.exit_code == 0
    assert report.environment.collector == "ncu"
    assert seen(ncu)["--metrics"] == "gpu__time_duration.sum"
    assert "--set" not in seen(ncu)


def test_ncu_alone_makes_a_capture(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu()
    capture = collect_ncu(program, request_)
    assert (capture.collector, capture.environment.collector_version) == ("ncu", "2025.3.1.0")
    assert capture.parameters["ncu clock control"] == "none"
