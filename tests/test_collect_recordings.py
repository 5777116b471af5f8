"""What nsys is asked to record beyond its trace, and what it says when it does not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nightsight.collect import RECORDINGS, choose_collector
from nightsight.collect.nsys import collect_nsys
from nightsight.collect.workloads import Program, Request
from nightsight.errors import ToolError, UsageError

# the fake nsys is the parent of what it starts
SHOW = "tr '\\0' '\\n' < /proc/$PPID/cmdline"
PROGRAM = Program("tiny", "command", ("/bin/sh", "-c", SHOW))
SCRIPT = Program("tiny", "script", ("python3", "tiny.py"))


@pytest.fixture
def arguments_of(fake_nsys: Callable[..., Path], tmp_path: Path) -> Callable[..., list[str]]:
    """Record something with a fake nsys; return the arguments that it was given."""

    def collect(*recordings: str, behavior: str = "ok") -> list[str]:
        fake_nsys(behavior)
        request = Request(tmp_path / "captures", tmp_path / "logs", timeout_s=20, recordings=recordings)
        collect_nsys(PROGRAM, request)
        return (request.logs / "profile.log").read_text().splitlines()

    return collect


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(tmp_path / "captures", tmp_path / "logs", timeout_s=20, recordings=RECORDINGS)


def test_nothing_is_recorded_that_was_not_asked_for(arguments_of: Callable[..., list[str]]) -> None:
    options = arguments_of()
    assert options.count("--sample=none") == 1
    assert not any("backtrace" in option or "metrics" in option or "memory" in option for option in options)


def test_stacks_need_samples_of_the_cpu_and_a_choice_of_calls(arguments_of: Callable[..., list[str]]) -> None:
    options = arguments_of("python-backtrace")
    wanted = ("--python-backtrace=cuda", "--cudabacktrace=memory:1000,sync:1000", "--sample=process-tree")
    assert [options.count(option) for option in wanted] == [1, 1, 1]
    assert "--sample=none" not in options


def test_memory_usage_needs_no_samples(arguments_of: Callable[..., list[str]]) -> None:
    options = arguments_of("memory-usage")
    assert "--cuda-memory-usage=true" in options
    assert "--sample=none" in options


@pytest.mark.parametrize(("behavior", "option"), [("ok", "devices"), ("no help", "devices"), ("old", "device")])
def test_the_name_of_the_option_for_counters_is_that_of_the_version(
    arguments_of: Callable[..., list[str]], behavior: str, option: str
) -> None:
    assert f"--gpu-metrics-{option}=all" in arguments_of("gpu-metrics", behavior=behavior)


@pytest.mark.parametrize(
    ("behavior", "remedy"),
    [
        ("no right to counters", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("counters in use", "dcgmi profile --pause"),
        ("old GPU", "omit --gpu-metrics"),
    ],
)
def test_counters_that_nsys_cannot_sample(
    fake_nsys: Callable[..., Path], request_: Request, behavior: str, remedy: str
) -> None:
    fake_nsys(behavior)
    with pytest.raises(ToolError, match="nsys did not start tiny: Illegal --gpu-metrics-devices") as raised:
        collect_nsys(PROGRAM, request_)
    first, *details = raised.value.hint.splitlines()
    assert remedy in first
    assert details[-1] == str(request_.logs / "profile.log")
    assert collect_nsys(PROGRAM, replace(request_, recordings=("memory-usage",))).failure == ""


@pytest.mark.parametrize(
    ("behavior", "recordings", "rules"),
    [
        ("no sampling", ("python-backtrace",), ["no_stacks"]),
        ("no sampling", ("memory-usage",), []),
        ("ok", ("python-backtrace",), []),
    ],
)
def test_stacks_that_could_not_be_taken_are_a_finding(
    *, fake_nsys: Callable[..., Path], request_: Request, behavior: str, recordings: tuple[str, ...], rules: list[str]
) -> None:
    fake_nsys(behavior)
    capture = collect_nsys(PROGRAM, replace(request_, recordings=recordings))
    assert [finding.rule for finding in capture.findings] == rules


def test_a_program_that_fails_without_its_stacks_has_both_findings(
    fake_nsys: Callable[..., Path], request_: Request
) -> None:
    fake_nsys("no sampling")
    fails = Program("tiny", "command", ("/bin/sh", "-c", "exit 3"))
    capture = collect_nsys(fails, request_)
    assert [finding.rule for finding in capture.findings] == ["partial_capture", "no_stacks"]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_torch_records_none_of_it(recording: str) -> None:
    with pytest.raises(UsageError, match=f"--{recording}: only nsys can record this.*--collector torch") as raised:
        choose_collector("torch", SCRIPT, recordings=(recording,))
    assert "--collector nsys" in raised.value.hint
    assert choose_collector("torch", SCRIPT) == ("torch", None)


def test_where_auto_would_be_torch_the_reason_is_named(gpu: None, fake_nsys: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"--gpu-metrics, --memory-usage: .*this machine has no nsys"):
        choose_collector("auto", SCRIPT, recordings=("gpu-metrics", "memory-usage"))
    fake_nsys()
    assert choose_collector("auto", SCRIPT, recordings=RECORDINGS) == ("nsys", None)


def test_where_there_is_no_gpu_the_reason_is_named(fake_nsys: Callable[..., Path]) -> None:
    fake_nsys()
    with pytest.raises(UsageError, match="this machine has no GPU"):
        choose_collector("auto", SCRIPT, recordings=RECORDINGS)
    assert choose_collector("nsys", SCRIPT, recordings=RECORDINGS) == ("nsys", None)
