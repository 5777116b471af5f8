"""A pynvml for machines without a GPU: it answers as the real one does, from a description of the GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What NVML raises if it cannot answer."""


@dataclass
class Gpu:
    """A GPU. `lacks`: the functions that this driver does not support for it; `slices`: profiles of MIG."""

    busy: int = 90
    sm: int = 1980
    memory: int = 3201
    heat: int = 54
    milliwatts: int = 512_000
    reasons: int = 0
    pids: tuple[int, ...] = ()
    slices: tuple[str, ...] = ()
    clocks: tuple[int, int] = (1980, 1980)
    uuid: str = "GPU-5a11"
    lacks: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)


def nvml(*gpus: Gpu, problem: str = "") -> ModuleType:
    """Return the module; `problem`: what nvmlInit fails with."""

    def answering(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(handle: Any, *arguments: Any) -> Any:
            of = handle[0] if isinstance(handle, tuple) else handle
            of.asked.append(name)
            if name in of.lacks:
                raise NVMLError("Not Supported")
            return answer(handle, *arguments)

        return call

    def init() -> None:
        if problem:
            raise NVMLError(problem)

    def slice_of(gpu: Gpu, index: int) -> tuple[Gpu, int]:
        if index >= len(gpu.slices):
            raise NVMLError("Not Found")
        return gpu, index

    def name_of(handle: Any) -> str:
        return f"NVIDIA H200 MIG {handle[0].slices[handle[1]]}" if isinstance(handle, tuple) else "NVIDIA H200"

    def uuid_of(handle: Any) -> str:
        return f"MIG-{handle[0].uuid}-{handle[1]}" if isinstance(handle, tuple) else str(handle.uuid)

    answers: dict[str, Callable[..., Any]] = {
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.busy, memory=0),
        "nvmlDeviceGetPowerUsage": lambda gpu: gpu.milliwatts,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: gpu.sm if kind == 1 else gpu.memory,
        "nvmlDeviceGetClock": lambda gpu, _, kind: gpu.clocks[kind - 1],
        "nvmlDeviceGetTemperature": lambda gpu, _: gpu.heat,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=pid) for pid in gpu.pids],
        "nvmlDeviceGetMigMode": lambda gpu: [int(bool(gpu.slices))] * 2,
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7 * bool(gpu.slices),
        "nvmlDeviceGetMigDeviceHandleByIndex": slice_of,
        "nvmlDeviceGetName": name_of,
        "nvmlDeviceGetUUID": uuid_of,
    }
    module = ModuleType("pynvml")
    vars(module).update({name: answering(name, answer) for name, answer in answers.items()})
    vars(module).update(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: gpus[index],
    )
    return module
