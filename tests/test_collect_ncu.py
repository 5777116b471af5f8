"""Collecting with ncu: what it is asked for, how it is ended, and in which ways it fails."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.collect.ncu import collect_ncu, replay_kernels
from nightsight.collect.replay import GRAPHS, Replay
from nightsight.collect.workloads import Program, Request, resolve
from nightsight.errors import ToolError, UsageError, WorkloadError
from nightsight.read import read
from tests.progress import progress_into

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


def replays(ncu: Path, *names: str) -> list[str]:
    """Which of these kernels its filter lets through."""
    expression = seen(ncu)["--kernel-name"].removeprefix("regex:")
    return [name for name in names if re.search(expression, name)]


def test_a_replay_leaves_a_report_that_can_be_read(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu()
    messages: list[str] = []
    replayed = replay_kernels(program, replace(request_, progress=progress_into(messages)), Replay(expected=3))
    assert replayed.report == request_.captures / "train.ncu-rep"
    assert replayed.findings == ()
    assert len(read(replayed.report).table("profiled_launches")) == 3
    assert any(
        re.fullmatch(r"replaying kernels with ncu: \d of 3 done(, about \d+ s left)?", line) for line in messages
    )


def test_chosen_kernels_are_asked_for_by_name(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay = Replay(names=("_Z3addPf", "a.b"), base="mangled", skip=2, launches=3, collected=("--section", "Occupancy"))
    replay_kernels(program, request_, replay)
    options = seen(ncu)
    assert options["--kernel-name-base"] == "mangled"
    assert replays(ncu, "_Z3addPf", "a.b", "axb", "x_Z3addPf", "_Z3addPfx") == ["_Z3addPf", "a.b"]
    assert (options["--launch-skip"], options["--launch-count"]) == ("2", "3")
    assert (options["--filter-mode"], options["--section"]) == ("per-launch-config", "Occupancy")
    assert options["--nvtx-push-pop-scope"] == "process"
    assert options["--import-source"] == "yes"
    assert "--set" not in options
    assert "--profile-from-start" not in options


PEERS = (
    *("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "NCCLKernel", "nvshmemi_put", "_ZN7deep_ep9intranode8dispatchEv"),
    *("one_shot_all_reduce_kernel", "oneShotAllReduceKernel", "multimem_kernel", "cross_device_reduce_1stage"),
)


@pytest.mark.parametrize(
    "replay",
    [
        Replay(everything=True),
        Replay(nvtx_range="step"),
        Replay(pattern="nccl|all|_|k|K"),
        Replay(names=("add", *PEERS)),
        Replay(),
    ],
)
def test_kernels_that_communicate_are_never_replayed(
    fake_ncu: FakeNcu, program: Program, request_: Request, replay: Replay
) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, replay)
    assert replays(ncu, *PEERS) == []
    base = seen(ncu)["--kernel-name-base"]
    # function names have no namespaces to tell them by
    assert base == "function" if replay.pattern or replay.names else base == "mangled"


@pytest.mark.parametrize("pattern", ["add", "^my_add$", "add|mul", "a.d"])
def test_kernels_are_found_by_a_part_of_their_name(
    fake_ncu: FakeNcu, program: Program, request_: Request, pattern: str
) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, Replay(pattern=pattern))
    assert replays(ncu, "my_add", "reduce_kernel", "other") == ["my_add"]


def test_what_torch_compile_names_after_communication_is_replayed(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, Replay())
    assert replays(ncu, "triton_poi_fused_add_all_reduce_wait_tensor_0", "triton_all_reduce") == [
        "triton_poi_fused_add_all_reduce_wait_tensor_0"
    ]


@pytest.mark.parametrize(
    "whole", [{"replay_mode": "range"}, {"replay_mode": "app-range"}, {"graph_profiling": "graph"}]
)
def test_ncu_alone_replays_nothing_as_a_whole(
    fake_ncu: FakeNcu, program: Program, request_: Request, whole: dict[str, Any]
) -> None:
    ncu = fake_ncu()
    with pytest.raises(UsageError, match="may wait for their peers"):
        collect_ncu(program, replace(request_, replay=Replay(**whole)))
    assert not ncu.with_name("ncu.seen.json").exists()


@pytest.mark.parametrize("mode", ["range", "app-range"])
def test_options_that_ncu_refuses_beside_ranges_are_left_out(
    fake_ncu: FakeNcu, program: Program, request_: Request, mode: str
) -> None:
    ncu = fake_ncu()
    request = replace(request_, capture_range="cudaProfilerApi")
    replayed = replay_kernels(program, request, Replay(replay_mode=mode, nvtx_range="step", launches=2))
    assert replayed.report is not None
    options = seen(ncu)
    refused = ("--kernel-name", "--kernel-name-base", "--filter-mode", "--profile-from-start", "--import-source")
    assert not options.keys() & {*refused, "--graph-profiling"}
    assert (options["--replay-mode"], options["--launch-count"], options["--nvtx-include"]) == (mode, "2", "step/")


def test_of_graphs_so_many_launches_are_replayed_in_all(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay_kernels(program, request_, Replay(graph_profiling="graph", names=GRAPHS, launches=3))
    assert "--filter-mode" not in seen(ncu)
    assert seen(ncu)["--launch-count"] == "3"
    assert replays(ncu, "graph", "graph_kernel", "add") == ["graph"]


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
    assert not {"--nvtx-push-pop-scope", "--import-source"} & seen(ncu).keys()
    assert "--nvtx" in seen(ncu)


def test_profilers_start_where_the_program_says_so(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu()
    replay_kernels(program, replace(request_, capture_range="cudaProfilerApi"), Replay())
    assert seen(ncu)["--profile-from-start"] == "off"


def test_at_the_end_of_the_budget_what_is_done_is_kept(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("slow")
    replayed = replay_kernels(program, request_, Replay(budget_s=2, expected=3))
    assert replayed.report is not None
    (finding,) = replayed.findings
    assert finding.title == "1 of 3 chosen launches were replayed within 2 s"
    assert "--ncu-budget" in finding.remedy


def test_no_more_launches_are_replayed_than_wanted(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("endless")
    replayed = replay_kernels(program, request_, Replay(most=2))
    assert replayed.report is not None
    (finding,) = replayed.findings
    assert (finding.title, finding.severity) == ("Only the first 2 launches were replayed", "info")
    assert "--ncu-all" in finding.remedy


def test_several_launches_of_each_kernel_are_within_the_limit(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    fake_ncu("endless")
    messages: list[str] = []
    replay = Replay(names=("a",), most=1, launches=3, expected=3)
    replayed = replay_kernels(program, replace(request_, progress=progress_into(messages)), replay)
    assert replayed.findings == ()
    assert "replaying kernels with ncu: 3 of 3 done" in messages


def test_a_time_limit_is_distinguished_from_the_budget(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu("slow")
    (finding,) = replay_kernels(program, replace(request_, timeout_s=2), Replay(expected=3)).findings
    assert finding.title.endswith("within 2 s")
    assert "--timeout" in finding.remedy
    ncu.with_name("ncu.seen.json").unlink()
    (finding,) = replay_kernels(program, replace(request_, timeout_s=-1), Replay(expected=3)).findings
    assert finding.title == "No time was left to replay kernels"
    assert not ncu.with_name("ncu.seen.json").exists()


def test_what_the_program_prints_is_not_taken_for_ncus(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("mixed")
    messages: list[str] = []
    replayed = replay_kernels(program, replace(request_, progress=progress_into(messages)), Replay(expected=2))
    assert replayed.findings == ()
    assert messages[-1] == "replaying kernels with ncu: 2 of 2 done"


def test_explicit_choices_have_a_most(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("endless")
    messages: list[str] = []
    replay_kernels(program, replace(request_, progress=progress_into(messages)), Replay(pattern="x", most=3))
    assert re.fullmatch(r"replaying kernels with ncu: [12] of at most 3 done(, at most \d+ s left)?", messages[0])


def test_application_replay_shows_which_run_it_is(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    ncu = fake_ncu("application")
    messages: list[str] = []
    replayed = replay_kernels(
        program, replace(request_, progress=progress_into(messages)), Replay(replay_mode="application")
    )
    assert seen(ncu)["--replay-mode"] == "application"
    assert (replayed.report is not None, replayed.findings) == (True, ())
    assert messages[-1] == "replaying kernels with ncu: run 2 of the program"


def test_a_percent_sign_in_a_folder_is_no_pattern(fake_ncu: FakeNcu, program: Program, tmp_path: Path) -> None:
    fake_ncu()
    request = Request(captures=tmp_path / "%p", logs=tmp_path / "log", timeout_s=60)
    assert replay_kernels(program, request, Replay()).report == tmp_path / "%p" / "train.ncu-rep"


def test_it_is_ended_without_a_program_called_kill(
    fake_ncu: FakeNcu, program: Program, request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu = fake_ncu("slow")
    (tmp_path / "slim").mkdir()
    (tmp_path / "slim" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", f"{ncu.parent}{os.pathsep}{tmp_path / 'slim'}")
    assert replay_kernels(program, request_, Replay(budget_s=2)).report is not None


@pytest.mark.parametrize(
    ("behavior", "words"),
    [
        ("no permission", ("may not read GPU performance counters", "CAP_SYS_ADMIN|SYS_ADMIN")),
        ("busy", ("Another profiler", "dcgmi")),
        (
            "unknown section",
            ("does not know the requested set, section or metric", "refused NoSuch", "--list-sections"),
        ),
        (
            "unknown metric",
            ("does not know the requested set, section or metric", "refused no_such", "--query-metrics"),
        ),
        ("unknown set", ("does not know the requested set, section or metric", "--list-sets")),
        ("no kernels", ("No kernel was replayed", "matches gelu in the range step", "gelu_kernel, elementwise_kernel")),
        ("unheard of", ("ncu ended with exit status 1; nothing was replayed", "ncu.log")),
        ("killed", ("ncu was terminated by SIGKILL", "ncu.log")),
    ],
)
def test_why_there_is_no_report_is_reported_with_what_to_do(
    fake_ncu: FakeNcu, program: Program, request_: Request, behavior: str, words: tuple[str, ...]
) -> None:
    fake_ncu(behavior)
    collected = ("--section", "NoSuch", "--section", "Occupancy", "--metrics", "no_such,sm__cycles.sum")
    replay = Replay(pattern="gelu", nvtx_range="step", collected=collected)
    replayed = replay_kernels(program, request_, replay)
    (finding,) = replayed.findings
    assert replayed.report is None
    for word in words:
        assert re.search(word, f"{finding.title} {finding.detail} {finding.remedy}")
    assert not re.search("Occupancy|sm__cycles|hunter2|alice", finding.detail)
    with pytest.raises(ToolError, match=words[0]) as raised:
        collect_ncu(program, replace(request_, replay=replay))
    assert str(request_.logs / "ncu.log") in raised.value.hint


def test_a_program_that_fails_under_replay_keeps_what_was_done(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    fake_ncu("program fails")
    replayed = replay_kernels(program, request_, Replay())
    (finding,) = replayed.findings
    assert replayed.report is not None
    assert finding.title == "The program under ncu ended with exit status 3"
    assert finding.detail.startswith("3 launches were replayed first.")


def test_a_program_that_fails_before_its_first_kernel_is_its_own_error(
    fake_ncu: FakeNcu, program: Program, request_: Request
) -> None:
    fake_ncu("program fails at once")
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert finding.title == "The program under ncu ended with exit status 3; nothing was replayed"
    with pytest.raises(WorkloadError, match="train ended with exit status 3") as raised:
        collect_ncu(program, request_)
    assert "trained" in raised.value.hint


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        (Replay(names=("_Z3add", "_Z3mul")), "None of the 2 kernels chosen from the timeline"),
        (Replay(nvtx_range="step"), "ncu found nothing to replay in the range step.*push/pop"),
        (Replay(nvtx_range="step", ranges=("stop", "x")), "in the range step.*Ranges of the program: stop, x"),
        (Replay(replay_mode="range"), "marks none.*--ncu-range NAME"),
        (Replay(replay_mode="range", nvtx_range="a"), "nothing to replay in the range a"),
        (Replay(), "The program launched no replayable kernel.*--capture-range none"),
    ],
)
def test_what_was_looked_for_in_vain_is_named(
    fake_ncu: FakeNcu, program: Program, request_: Request, replay: Replay, words: str
) -> None:
    fake_ncu("no kernels")
    (finding,) = replay_kernels(program, request_, replay).findings
    assert re.search(words, f"{finding.detail} {finding.remedy}")
    assert "_Z3" not in finding.detail


@pytest.mark.parametrize(("behavior", "has_report"), [("slow", True), ("nothing yet", False)])
def test_ctrl_c_keeps_what_is_done(
    fake_ncu: FakeNcu, program: Program, request_: Request, interrupt: Any, behavior: str, *, has_report: bool
) -> None:
    ncu = fake_ncu(behavior)
    interrupt(ncu.with_name("ncu.seen.json"))
    replayed = replay_kernels(program, request_, Replay())
    assert (replayed.report is not None) is has_report
    assert "interrupted" in replayed.findings[0].title


def test_an_ncu_that_does_not_run_is_no_path_in_a_report(program: Program, request_: Request, tmp_path: Path) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("#!/bin/sh\necho /home/alice/lib.so >&2; exit 1\n")
    broken.chmod(0o755)
    (finding,) = replay_kernels(program, replace(request_, ncu=broken), Replay()).findings
    assert finding.title == "ncu does not run"
    assert "/" not in f"{finding.detail} {finding.remedy}"


def test_without_ncu_it_is_reported_where_it_was_looked_for(program: Program, request_: Request) -> None:
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert (finding.severity, finding.title) == ("info", "ncu was not found")
    assert "opt/nvidia/nsight-compute" in finding.remedy
    with pytest.raises(ToolError) as raised:
        collect_ncu(program, request_)
    # there is nothing else to leave ncu out for
    assert "--no-ncu" not in raised.value.hint


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


def test_no_message_about_a_failure_names_a_path(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu("no permission")
    (finding,) = replay_kernels(program, request_, Replay()).findings
    assert "/" not in finding.detail.replace("<…>", "")


def test_ncu_alone_makes_a_capture(fake_ncu: FakeNcu, program: Program, request_: Request) -> None:
    fake_ncu()
    capture = collect_ncu(program, request_)
    assert (capture.collector, capture.environment.collector_version) == ("ncu", "2025.3.1.0")
    assert capture.parameters["ncu clock control"] == "none"


def test_the_program_sees_the_same_variables_as_under_nsys(
    fake_ncu: FakeNcu, request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_JOB_TOKEN", "planted")
    monkeypatch.setenv("KEPT", "kept")
    (tmp_path / "train.py").write_text("import os; print('sees', sorted(os.environ))\n")
    fake_ncu()
    replay_kernels(resolve(str(tmp_path / "train.py"), ()), replace(request_, keep_env=("KEPT",)), Replay())
    log = (request_.logs / "ncu.log").read_text()
    assert "'KEPT'" in log
    assert "CI_JOB_TOKEN" not in log
