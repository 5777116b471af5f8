"""How GPUs ran, as NVML says it: medians of what it said while they were busy, and nothing that names a machine."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect import doctor
from nightsight.collect.conditions import GpuSample, conditions_of, current_state, findings_of, logging_gpus
from nightsight.collect.doctor import Check, examine
from nightsight.errors import ToolError
from nightsight.model.report import Conditions, Report
from tests.fake_tools.nvml import Gpu, NVMLError, nvml
from tests.test_cli import FakeNsys, only_run

Install = Callable[..., None]
CALLS = [name for name in dir(nvml()) if name.startswith("nvmlDevice") and name != "nvmlDeviceGetCount"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a driver with these GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda *gpus, **other: monkeypatch.setitem(sys.modules, "pynvml", nvml(*gpus, **other))


def process(machine: Path, pid: int, parent: int) -> int:
    """Start a process, as far as /proc goes, whose name is hard to read."""
    path = machine / "proc" / str(pid) / "stat"
    path.parent.mkdir(parents=True)
    path.write_text(f"{pid} (a) b ( ) S {parent} 1 1")
    return pid


def logged_for_a_moment() -> tuple[Conditions, ...]:
    with logging_gpus(every_s=0.001) as log:
        deadline = time.monotonic() + 5
        while len(log.samples) < 4 and time.monotonic() < deadline:
            time.sleep(0.002)
    return log.conditions


def test_a_run_is_described_by_what_nvml_says(driver: Install) -> None:
    driver(Gpu(reasons=0x1))
    (conditions,) = logged_for_a_moment()
    assert conditions.samples >= 4
    assert conditions == Conditions(
        0, 1980, 1980, 3201, 54, 512, (), mig="", is_shared=False, clock_policy="default", samples=conditions.samples
    )


@pytest.mark.parametrize("lacking", CALLS)
def test_a_call_that_fails_leaves_out_only_what_it_would_have_reported(driver: Install, lacking: str) -> None:
    driver(Gpu(lacks=(lacking,)))
    if lacking == "nvmlDeviceGetHandleByIndex":
        return
    (conditions,) = logged_for_a_moment()
    assert conditions.samples >= 4
    lacks = [name for name, value in vars(conditions).items() if value is None]
    assert lacks == {
        "nvmlDeviceGetClockInfo": ["sm_mhz", "lowest_sm_mhz", "memory_mhz"],
        "nvmlDeviceGetTemperature": ["temperature_c"],
        "nvmlDeviceGetPowerUsage": ["power_w"],
        "nvmlDeviceGetUtilizationRates": ["lowest_sm_mhz"],
    }.get(lacking, [])


def test_without_a_driver_or_without_the_package_nothing_is_logged(
    driver: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(Gpu(), problem="Driver Not Loaded")
    assert logged_for_a_moment_or_not() == (
        (),
        "GPU clocks and temperatures are not logged: NVML failed: Driver Not Loaded",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert logged_for_a_moment_or_not() == (
        (),
        "GPU clocks and temperatures are not logged: nvidia-ml-py is not installed",
    )


def logged_for_a_moment_or_not() -> tuple[tuple[Conditions, ...], str]:
    with logging_gpus(every_s=0.001) as log:
        pass
    return log.conditions, log.problem


def test_a_gpu_that_falls_off_the_bus_ends_the_log_and_not_the_run(driver: Install) -> None:
    module = nvml(Gpu())
    driver()
    sys.modules["pynvml"] = module

    def lost() -> int:
        raise NVMLError("GPU is lost")

    vars(module)["nvmlDeviceGetCount"] = lost
    assert logged_for_a_moment_or_not() == ((), "GPU clocks and temperatures are not logged: NVML failed: GPU is lost")


def test_nothing_is_ever_set() -> None:
    source = (Path(__file__).parents[1] / "pipeline/nightsight/collect/conditions.py").read_text()
    assert "nvmlDeviceSet" not in source
    assert "nvmlDeviceReset" not in source


# -- whose GPU it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parent", "is_shared"), [(os.getpid(), False), (1, True)], ids=["ours", "other"])
def test_a_process_that_does_not_descend_from_ours_shares_the_gpu(
    driver: Install, machine: Path, parent: int, *, is_shared: bool
) -> None:
    pid = process(machine, 90_001, process(machine, 90_000, parent))
    driver(Gpu(pids=(pid,)))
    (conditions,) = logged_for_a_moment()
    assert conditions.is_shared is is_shared
    assert [finding.rule for finding in findings_of([conditions])] == ["shared_gpu"] * is_shared


def test_a_process_that_cannot_be_seen_is_not_taken_for_another_user(driver: Install) -> None:
    driver(Gpu(pids=(90_002,)))
    assert not logged_for_a_moment()[0].is_shared


def test_only_gpus_that_the_program_uses_are_described(driver: Install, machine: Path) -> None:
    own, other = process(machine, 90_001, os.getpid()), process(machine, 90_002, 1)
    driver(Gpu(busy=0), Gpu(busy=100, pids=(other,)), Gpu(busy=50, pids=(own,)))
    assert [(conditions.device, conditions.is_shared) for conditions in logged_for_a_moment()] == [(2, False)]
    driver(Gpu(busy=0), Gpu(busy=100))
    assert [conditions.device for conditions in logged_for_a_moment()] == [1]


@pytest.mark.parametrize(("visible", "devices"), [("1", [1]), ("GPU-b", [1]), ("0,1", [0, 1]), ("7", [0, 1])])
def test_only_visible_gpus_are_asked(
    driver: Install, monkeypatch: pytest.MonkeyPatch, visible: str, devices: list[int]
) -> None:
    gpus = Gpu(uuid="GPU-a"), Gpu(uuid="GPU-b")
    driver(*gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [conditions.device for conditions in logged_for_a_moment()] == devices
    assert ["nvmlDeviceGetPowerUsage" in gpu.asked for gpu in gpus] == [device in devices for device in (0, 1)]


@pytest.mark.parametrize(("visible", "profile"), [("", "1g.18gb"), ("MIG-GPU-a-1", "3g.71gb")])
def test_the_slice_of_mig_is_named(
    driver: Install, monkeypatch: pytest.MonkeyPatch, visible: str, profile: str
) -> None:
    driver(Gpu(uuid="GPU-a", slices=("1g.18gb", "3g.71gb"), lacks=("nvmlDeviceGetUtilizationRates",)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (conditions,) = logged_for_a_moment()
    assert (conditions.mig, conditions.lowest_sm_mhz, conditions.sm_mhz) == (profile, None, 1980)


# -- from samples to conditions ---------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.none(), st.floats(0, 1e5))
SAMPLES = st.lists(
    st.builds(
        GpuSample,
        device=st.integers(0, 2),
        busy_pct=st.one_of(st.none(), st.integers(0, 100).map(float)),
        sm_mhz=NUMBERS,
        memory_mhz=NUMBERS,
        temperature_c=NUMBERS,
        power_w=NUMBERS,
        reasons=st.integers(0, 0xFFF),
        is_ours=st.booleans(),
        is_shared=st.booleans(),
    )
)


@given(SAMPLES)
def test_conditions_are_medians_of_the_samples_of_a_busy_gpu(samples: list[GpuSample]) -> None:
    conditions = {condition.device: condition for condition in conditions_of(samples)}
    used = {s.device for s in samples if s.is_ours} or {s.device for s in samples if s.busy_pct}
    assert set(conditions) == (used or {s.device for s in samples})
    for device, condition in conditions.items():
        of_device = [s for s in samples if s.device == device]
        says_when = any(s.busy_pct is not None for s in of_device)
        counted = [s for s in of_device if s.busy_pct] if says_when else of_device
        assert condition.samples == len(counted)
        for name in ("sm_mhz", "memory_mhz", "temperature_c", "power_w"):
            values = [getattr(s, name) for s in counted if getattr(s, name) is not None]
            assert getattr(condition, name) == (round(median(values), 1) if values else None)
        assert condition.is_shared == any(s.is_shared for s in of_device)
        assert ("SwPowerCap" in condition.throttled) == any(s.reasons & 4 for s in counted)
        assert (condition.clock_policy == "locked") == any(s.reasons & 2 for s in counted)


@given(SAMPLES, st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[GpuSample], random: Any) -> None:
    shuffled = samples.copy()
    random.shuffle(shuffled)
    assert conditions_of(shuffled) == conditions_of(samples)


def test_clocks_that_drop_when_the_gpu_is_idle_are_no_slowdown() -> None:
    idle = GpuSample(0, busy_pct=0, sm_mhz=345, reasons=0x5)
    (conditions,) = conditions_of([idle, GpuSample(0, busy_pct=80, sm_mhz=1980), idle])
    assert (conditions.sm_mhz, conditions.lowest_sm_mhz, conditions.throttled, conditions.samples) == (
        1980,
        1980,
        (),
        1,
    )


def test_clocks_that_were_set_are_a_policy() -> None:
    assert conditions_of([GpuSample(0, busy_pct=1, has_set_clocks=True)])[0].clock_policy == "locked"


def test_a_slowdown_is_a_warning_that_names_its_causes() -> None:
    gpu = Conditions(1, 1200.0, 900.0, throttled=("SwPowerCap", "HwThermalSlowdown", "SomethingNew"))
    (finding,) = findings_of([gpu])
    assert finding.severity == "warning"
    assert finding.title == "The GPU was throttled by its power limit, heat (hardware), SomethingNew"
    assert finding.detail.startswith("GPU 1 ran at 1200 MHz (median, at least 900 MHz while it was busy): SwPowerCap, ")
    assert findings_of([Conditions(0, 1980.0)]) == ()


# -- in reports, and for doctor ---------------------------------------------------------------------------------------


def test_a_report_says_how_the_gpu_ran_and_names_no_machine(
    *, driver: Install, machine: Path, fake_nsys: FakeNsys, run: Any, script: Any, tmp_path: Path
) -> None:
    other = process(machine, 90_001, 1)
    driver(Gpu(reasons=0x40, uuid="GPU-secret", pids=(other,)))
    run("profile", "--collector", "nsys", "--nsys", fake_nsys(), "--no-ncu", script("import time; time.sleep(0.3)"))
    folder = only_run(tmp_path, "train")
    text = (folder / "report.json").read_text()
    (conditions,) = Report.from_json(text).conditions
    assert (conditions.device, conditions.sm_mhz, conditions.throttled, conditions.is_shared) == (
        0,
        1980,
        ("HwThermalSlowdown",),
        True,
    )
    assert {"throttled", "shared_gpu"} <= {finding["rule"] for finding in json.loads(text)["findings"]}
    page = (folder / "report.html").read_text()
    assert "1,980 MHz (lowest 1,980), memory 3,201 MHz, 54 °C, 512 W, clocks default, shared with other" in page
    for name in ("GPU-secret", str(other)):
        assert name not in text + page


def test_doctor_says_what_is_logged_or_why_nothing_is(
    driver: Install, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # to import torch takes seconds
    monkeypatch.setattr(doctor, "_torch", lambda *_: Check("torch", "ok", ""))

    def check_conditions() -> tuple[str, str]:
        (check,) = (check for check in examine() if check.name == "conditions")
        return check.status, check.detail

    driver(Gpu(), Gpu(slices=("1g.18gb",), lacks=("nvmlDeviceGetPowerUsage",)))
    assert check_conditions() == ("ok", "logs clocks, temperature, power and other processes of 2 GPUs; MIG 1g.18gb")
    driver(Gpu(lacks=("nvmlDeviceGetPowerUsage",)))
    assert check_conditions()[1].endswith("of 1 GPU; not reported by the driver: power_w")
    driver(problem="Unknown Error")
    assert check_conditions() == ("broken", "GPU clocks and temperatures are not logged: NVML failed: Unknown Error")
    driver()
    assert check_conditions() == ("missing", "NVML lists no GPU")
    driver(problem="Driver Not Loaded")
    with pytest.raises(ToolError):
        current_state()
