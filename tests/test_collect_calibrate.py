"""What nsys adds to a call: the arithmetic, the cache, and each reason for which it stays unknown."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nightsight.collect import calibrate
from nightsight.collect.calibrate import calibration_of, costs_of
from nightsight.collect.workloads import Program, Request
from nightsight.errors import ToolError
from nightsight.events.names import call_kinds
from tests.progress import progress_into

# the fake nsys tells its children where to say that they started the profiler: so they know whether they are watched
_TIMES = """
import json, os, sys
watched = "FAKE_PROFILER_START" in os.environ
times = {"host": 500.0, "launch": 2_000.0, "copy": 2_500.0}
if watched:
    times = {"host": 1000.0, "launch": 10_000.0, "copy": 9_000.0}
open(sys.argv[1], "w").write(json.dumps({"call_ns": times}))
"""


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=30)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program("train", "script", (sys.executable, str(tmp_path / "train.py")))


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_nsys: Callable[..., Path]) -> Callable[..., None]:
    """Put a GPU into the machine, and what measures calls; `measured(text)` replaces that program."""
    fake_nsys()
    smi = tmp_path / "fake" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.95.05'\n")
    smi.chmod(0o755)

    def install(text: str = _TIMES) -> None:
        path = tmp_path / "calls.py"
        path.write_text(text)
        monkeypatch.setattr(calibrate, "_PROGRAM", path)

    install()
    return install


def cached(machine: Path) -> list[Path]:
    return sorted((machine / "cache" / "nightsight").glob("*"))


def test_the_cost_is_the_difference_at_the_speed_of_the_host_under_nsys() -> None:
    plain = {"host": 500.0, "launch": 2_000.0, "wait": 1_000.0, "allocation": 20_000.0, "copy": 3_000.0}
    traced = {"host": 1_000.0, "launch": 10_000.0, "wait": 1_900.0, "allocation": 50_000.0}
    recorded = {"launch": 6_000.0, "wait": 3_000.0, "allocation": 15_000.0, "other": 200.0}
    costs = costs_of(plain, traced, recorded).to_dict("records")
    assert costs == [
        {"kind": "launch", "added_ns": 6_000.0, "recorded_ns": 6_000.0},
        # a difference below zero is noise
        {"kind": "wait", "added_ns": 0.0, "recorded_ns": 3_000.0},
        # two calls each time
        {"kind": "allocation", "added_ns": 5_000.0, "recorded_ns": 15_000.0},
    ]


@pytest.mark.parametrize(
    ("plain", "traced"),
    [
        ({"launch": 2_000.0}, {"launch": 2_000.0}),
        ({"launch": 2_000.0}, {"launch": 900_000.0}),
        ({"launch": 2_000.0}, {}),
        ({"launch": 2_000.0}, {"launch": float("nan")}),
        ({"launch": 2_000.0, "host": 1.0}, {"launch": 8_000.0, "host": 10.0}),
    ],
)
def test_disturbed_times_are_refused(plain: dict[str, float], traced: dict[str, float]) -> None:
    with pytest.raises(ToolError, match="are implausible"):
        costs_of(plain, traced, {"launch": 6_000.0})


def test_functions_are_of_the_kinds_that_are_calibrated() -> None:
    names = {
        "cudaLaunchKernel": "launch",
        "cuLaunchKernelEx": "launch",
        "cudaGraphLaunch": "launch",
        "cudaMemcpyAsync": "copy",
        "cuMemsetD8Async": "memset",
        "cudaEventRecordWithFlags": "event",
        "cudaEventSynchronize": "wait",
        "cuCtxSynchronize": "wait",
        "cudaHostAlloc": "allocation",
        "cuMemFree_v2": "allocation",
        "cudaStreamIsCapturing": "other",
        "cuKernelGetName": "other",
    }
    assert call_kinds(pd.Index(names)).tolist() == list(names.values())


def test_a_machine_is_measured_once(
    machine: Path, measured: Callable[..., None], program: Program, request_: Request
) -> None:
    messages: list[str] = []
    request_ = replace(request_, progress=progress_into(messages))
    first = calibration_of(program, request_)
    assert first.costs["kind"].tolist() == ["launch", "copy"]
    # twice as slow a host: 10 µs less twice 2 µs
    assert first.costs["added_ns"].tolist() == [6_000.0, 4_000.0]
    assert first.costs["recorded_ns"].between(500, 50_000).all()
    assert (len(messages), first.seconds > 0, first.reason) == (1, True, "")
    (file,) = cached(machine)
    assert not {"H200", "580.95", "2025.3", os.uname().nodename} & set(file.read_text().split('"'))
    measured("raise SystemExit(5)")
    again = calibration_of(program, request_)
    assert (again.costs.to_dict(), again.seconds, len(messages)) == (first.costs.to_dict(), 0.0, 1)
    assert calibration_of(program, replace(request_, calibrate=True)).reason.endswith("ended with exit status 5")
    assert len(calibration_of(program, replace(request_, calibrate=False)).costs) == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unprofiled": 99}', '{"unprofiled": 1}'])
def test_a_damaged_cache_is_measured_again(
    *, machine: Path, measured: Callable[..., None], program: Program, request_: Request, content: str
) -> None:
    calibration_of(program, request_)
    (file,) = cached(machine)
    whole = file.read_text()
    file.write_text(content)
    assert len(calibration_of(program, request_).costs) == 2
    assert file.read_text() == whole


@pytest.mark.usefixtures("measured")
def test_another_nsys_or_other_options_are_another_machine(
    machine: Path, tmp_path: Path, program: Program, request_: Request
) -> None:
    calibration_of(program, request_)
    calibration_of(program, replace(request_, recordings=("memory-usage",)))
    nsys = tmp_path / "fake" / "nsys"
    nsys.write_text(nsys.read_text().replace("2025.3.1.0", "2026.1.0.0"))
    assert len(calibration_of(program, request_).costs) == 2
    assert len(cached(machine)) == 3


@pytest.mark.usefixtures("measured")
def test_a_cache_that_cannot_be_written_costs_only_time(machine: Path, program: Program, request_: Request) -> None:
    (machine / "cache").write_text("a file where the folder would be")
    assert len(calibration_of(program, request_).costs) == 2


def test_what_keeps_it_unknown_is_reported(
    *, measured: Callable[..., None], program: Program, request_: Request, tmp_path: Path
) -> None:
    for text, reason in (
        ("raise SystemExit(3)", "has no torch with CUDA"),
        ("import no_such_module", "has no torch with CUDA"),
        ("import sys; open(sys.argv[1], 'w').write('[]')", "wrote no times"),
        ("print('nothing')", "wrote no times"),
    ):
        measured(text)
        calibration = calibration_of(program, request_)
        assert (len(calibration.costs), reason in calibration.reason) == (0, True), calibration.reason
    (tmp_path / "fake" / "nvidia-smi").unlink()
    assert "nvidia-smi is not on PATH" in calibration_of(program, request_).reason


def test_a_command_that_is_a_python_is_measured_with_it(measured: Callable[..., None], request_: Request) -> None:
    command = Program("python", "command", ("/no/such/python3.12", "-m", "train"))
    assert "cannot start" in calibration_of(command, request_).reason
    assert len(calibration_of(Program("torchrun", "command", ("/bin/true",)), request_).costs) == 2
