"""Logs the state of the GPUs during a measurement, from NVML: clocks, temperature, power, and other users.

It only reads. NVML identifies processes by id: descendants of this process are ours; of all others, only their
existence is kept. In a container, NVML does not show processes outside of it.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from statistics import median
from types import ModuleType
from typing import Any, Final

from nightsight.collect.tools import allowed_environment, read_system
from nightsight.errors import ToolError
from nightsight.model.report import Conditions, Finding
from nightsight.system.installing import for_nightsight

_EVERY_S: Final = 0.2
# a hanging driver must not block the report
_PATIENCE_S: Final = 2.0
# the bits of nvmlClocksEventReasons that slow a GPU down, and what messages call them
_SLOWDOWNS: Final = {
    0x004: ("SwPowerCap", "its power limit"),
    0x008: ("HwSlowdown", "heat or power (hardware)"),
    0x010: ("SyncBoost", "the slowest GPU of its group"),
    0x020: ("SwThermalSlowdown", "heat"),
    0x040: ("HwThermalSlowdown", "heat (hardware)"),
    0x080: ("HwPowerBrakeSlowdown", "the power supply"),
    0x200: ("BoardLimit", "the limit of its board"),
    0x400: ("Reliability", "its voltage limit"),
}
_SET_CLOCKS: Final = 0x002
_LOCKED: Final = "locked"
Nvml = Any
"""The module pynvml, which has no types."""


@dataclass(frozen=True)
class GpuSample:
    """The state of one GPU at one moment, from NVML; None where the driver has no value. `reasons`: NVML's bits.

    is_ours: one of our processes used the GPU; is_shared: another process did.
    """

    device: int
    busy_pct: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: int = 0
    mig: str = ""
    is_ours: bool = False
    is_shared: bool = False
    has_set_clocks: bool = False


@dataclass
class Log:
    """The samples of a run; `problem` says why there are none."""

    samples: list[GpuSample] = field(default_factory=list)
    problem: str = ""

    @property
    def conditions(self) -> tuple[Conditions, ...]:
        """The conditions of each GPU that the program used."""
        return conditions_of(tuple(self.samples))


@contextmanager
def logging_gpus(every_s: float = _EVERY_S) -> Iterator[Log]:
    """Log the GPUs until the end of the block; without NVML, the log stays empty."""
    log, end = Log(), threading.Event()
    thread = threading.Thread(target=_log_samples, args=(log, end, every_s), name="conditions", daemon=True)
    thread.start()
    try:
        yield log
    finally:
        end.set()
        thread.join(_PATIENCE_S)


def current_state() -> tuple[GpuSample, ...]:
    """Return a sample of each GPU that programs can see; raise ToolError if NVML does not answer."""
    with _nvml() as nvml:
        return _take_samples(nvml, _visible_gpus(nvml))


def conditions_of(samples: Sequence[GpuSample]) -> tuple[Conditions, ...]:
    """Return the medians for each GPU used by our processes, otherwise by any process, otherwise for all GPUs.

    Only samples while the GPU was busy count, because clocks drop when it is idle; all samples count if the driver does
    not report utilization (MIG).
    """
    used = {sample.device for sample in samples if sample.is_ours} or {s.device for s in samples if s.busy_pct}
    relevant = [sample for sample in samples if not used or sample.device in used]
    return tuple(
        _device_conditions([sample for sample in relevant if sample.device == device])
        for device in sorted({sample.device for sample in relevant})
    )


def findings_of(conditions: Sequence[Conditions]) -> tuple[Finding, ...]:
    """Return warnings for throttled and shared GPUs: times then vary for reasons outside the program."""
    findings = []
    slowed = [condition for condition in conditions if condition.throttled]
    if slowed:
        names = dict(_SLOWDOWNS.values())
        causes = dict.fromkeys(names.get(reason, reason) for gpu in slowed for reason in gpu.throttled)
        findings.append(
            Finding(
                "throttled",
                "warning",
                f"The GPU was throttled by {', '.join(causes)}",
                f"{' '.join(map(_slowdown, slowed))} Kernels run slower than they could, and times vary between runs.",
                "Compare only runs with the same clocks. Let the GPU cool down, or lock its clocks below the limit: "
                "nvidia-smi -lgc MHZ (needs root; undo with -rgc).",
            )
        )
    if shared := [condition.device for condition in conditions if condition.is_shared]:
        gpus = ", ".join(f"GPU {device}" for device in shared)
        findings.append(
            Finding(
                "shared_gpu",
                "warning",
                "Another process used the GPU",
                f"A process outside the program had a context on {gpus}. If it was active, the times in this report "
                "include waiting for it.",
                "Stop it (nvidia-smi lists processes), or use a dedicated GPU.",
            )
        )
    return tuple(findings)


def _slowdown(gpu: Conditions) -> str:
    clocks = f" at {gpu.sm_mhz:.0f} MHz" if gpu.sm_mhz is not None else ""
    lowest = f", at least {gpu.lowest_sm_mhz:.0f} MHz while it was busy" if gpu.lowest_sm_mhz is not None else ""
    return f"GPU {gpu.device} ran{clocks} (median{lowest}): {', '.join(gpu.throttled)}."


def _device_conditions(samples: Sequence[GpuSample]) -> Conditions:
    busy = [sample for sample in samples if sample.busy_pct]
    relevant = busy if any(sample.busy_pct is not None for sample in samples) else samples
    reasons = 0
    for sample in relevant:
        reasons |= sample.reasons

    def middle(name: str) -> float | None:
        values = [value for sample in relevant if (value := getattr(sample, name)) is not None]
        return round(median(values), 1) if values else None

    is_locked = bool(reasons & _SET_CLOCKS) or any(sample.has_set_clocks for sample in samples)
    return Conditions(
        device=samples[0].device,
        sm_mhz=middle("sm_mhz"),
        lowest_sm_mhz=min((sample.sm_mhz for sample in busy if sample.sm_mhz is not None), default=None),
        memory_mhz=middle("memory_mhz"),
        temperature_c=middle("temperature_c"),
        power_w=middle("power_w"),
        throttled=tuple(name for bit, (name, _) in _SLOWDOWNS.items() if reasons & bit),
        mig=samples[0].mig,
        is_shared=any(sample.is_shared for sample in samples),
        clock_policy=_LOCKED if is_locked else "default",
        samples=len(relevant),
    )


# -- NVML -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gpu:
    """A GPU: its number in the machine, NVML's handle, the profile of its MIG slice, and whether clocks were set."""

    device: int
    handle: Nvml
    mig: str = ""
    has_set_clocks: bool = False


def _log_samples(log: Log, end: threading.Event, every_s: float) -> None:
    try:
        with _nvml() as nvml:
            gpus = _visible_gpus(nvml)
            while True:
                log.samples += _take_samples(nvml, gpus)
                if end.wait(every_s):
                    return
    except ToolError as error:
        log.problem = error.message


@contextmanager
def _nvml() -> Iterator[Nvml]:
    """Open NVML; turn its errors into ToolError."""
    try:
        nvml: ModuleType = import_module("pynvml")
    except ImportError as error:
        raise ToolError(
            "GPU clocks and temperatures are not logged: nvidia-ml-py is not installed", for_nightsight("nvidia-ml-py")
        ) from error
    try:
        nvml.nvmlInit()
        try:
            yield nvml
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise ToolError(f"GPU clocks and temperatures are not logged: NVML failed: {error}", _DRIVER) from error


_DRIVER: Final = "NVML is part of the NVIDIA driver. In a container, pass the GPUs through: --gpus all"


def _visible_gpus(nvml: Nvml) -> tuple[_Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES allows; all GPUs if it names none of them."""
    allowed = allowed_environment().get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    gpus, chosen = [], []
    for device in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(device)
        slices = _slices(nvml, handle)
        own = _answer(nvml, "nvmlDeviceGetUUID", handle) or "?"
        # CUDA takes the first slice of a GPU, unless one is named
        profile_named = next((profile for uuid, profile in slices if any(uuid.startswith(name) for name in names)), "")
        gpu = _Gpu(device, handle, profile_named or (slices[0][1] if slices else ""), _has_set_clocks(nvml, handle))
        gpus.append(gpu)
        if profile_named or any(name == str(device) or own.startswith(name) for name in names):
            chosen.append(gpu)
    return tuple(chosen or gpus)


def _slices(nvml: Nvml, handle: Nvml) -> list[tuple[str, str]]:
    """Return the id and profile (such as 1g.18gb) of each visible MIG slice of a GPU."""
    mode = _answer(nvml, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        return []
    slices = []
    for index in range(_answer(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = _answer(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if part is None:
            continue
        name = str(_answer(nvml, "nvmlDeviceGetName", part) or "")
        uuid = str(_answer(nvml, "nvmlDeviceGetUUID", part) or "")
        slices.append((uuid, name.partition("MIG ")[2] or "unknown"))
    return slices or [("", "unknown")]


def _has_set_clocks(nvml: Nvml, handle: Nvml) -> bool:
    """Whether application clocks differ from the default; False if the driver has none."""
    # NVML_CLOCK_ID_APP_CLOCK_TARGET and NVML_CLOCK_ID_APP_CLOCK_DEFAULT
    target, default = (_answer(nvml, "nvmlDeviceGetClock", handle, nvml.NVML_CLOCK_SM, kind) for kind in (1, 2))
    return target is not None and default is not None and target != default


def _take_samples(nvml: Nvml, gpus: Sequence[_Gpu]) -> tuple[GpuSample, ...]:
    owned: dict[int, bool | None] = {}
    return tuple(_sample(nvml, gpu, owned) for gpu in gpus)


def _sample(nvml: Nvml, gpu: _Gpu, owned: dict[int, bool | None]) -> GpuSample:
    """Return the current state of a GPU; `owned` caches which processes are ours."""
    handle = gpu.handle
    busy = _answer(nvml, "nvmlDeviceGetUtilizationRates", handle)
    power = _answer(nvml, "nvmlDeviceGetPowerUsage", handle)
    pids = {process.pid for process in _answer(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()}
    for pid in pids - owned.keys():
        owned[pid] = _is_ours(pid)
    sample = GpuSample(
        gpu.device,
        sm_mhz=_answer(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        memory_mhz=_answer(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
        temperature_c=_answer(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if power is None else power / 1000,
        reasons=_reasons(nvml, handle),
        mig=gpu.mig,
        is_ours=any(owned[pid] is True for pid in pids),
        is_shared=any(owned[pid] is False for pid in pids),
        has_set_clocks=gpu.has_set_clocks,
    )
    return sample if busy is None else replace(sample, busy_pct=float(busy.gpu))


def _reasons(nvml: Nvml, handle: Nvml) -> int:
    # drivers before 535 know only the old name
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        if (reasons := _answer(nvml, name, handle)) is not None:
            return int(reasons)
    return 0


def _answer(nvml: Nvml, name: str, *arguments: Any) -> Any:  # noqa: ANN401 (whatever NVML answers)
    """Return the result of an NVML function, or None if this GPU or driver does not support it."""
    function = getattr(nvml, name, None)
    try:
        return function and function(*arguments)
    except nvml.NVMLError:
        return None


def _is_ours(pid: int) -> bool | None:
    """Whether a process descends from this one; None if it has ended or is not visible."""
    while pid > 1:
        if pid == os.getpid():
            return True
        # the name of the program may contain anything, so skip to the last parenthesis
        fields = read_system(f"proc/{pid}/stat").rpartition(")")[2].split()
        if len(fields) < 2:
            return None
        pid = int(fields[1])
    return False
