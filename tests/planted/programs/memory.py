"""Set-up that belongs before the loop: memory is allocated, kernels are compiled and modules loaded in each step."""

import ctypes
import re
from itertools import count
from pathlib import Path
from typing import Any

import nvtx
import torch
import triton
import triton.language as tl

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, training

# as many entries as a small library has; loading it compiles them
PTX = """
.version 7.0
.target sm_80
.address_size 64
""" + "".join(
    f"""
.visible .entry plugin{number}(.param .u64 pointer)
{{
    .reg .b64 %rd<5>;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [pointer];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    add.f32 %f2, %f1, 0f3F80000{number % 8};
    st.global.f32 [%rd4], %f2;
    ret;
}}
"""
    for number in range(64)
)
VALUES = 1 << 20


def empty_cache(bad: bool) -> Step:
    train = training(2048, 4096, 4)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()
            if bad:
                torch.cuda.empty_cache()

    return step


def plan_cache(bad: bool) -> Step:
    """Spectra of windows of four lengths, with room for the plan of one."""
    signals = [torch.randn(64, length, device=GPU, dtype=torch.complex64) for length in (1000, 1500, 2000, 3000)]
    torch.backends.cuda.cufft_plan_cache.clear()
    torch.backends.cuda.cufft_plan_cache.max_size = 1 if bad else 4096

    def step(_: int) -> None:
        # the two forms take turns
        torch.backends.cuda.cufft_plan_cache.max_size = 1 if bad else 4096
        with nvtx.annotate("step"):
            for signal in signals:
                torch.fft.ifft(torch.fft.fft(signal) * 0.5)

    return step


def raw_allocation(bad: bool) -> Step:
    train, runtime = training(2048, 4096, 4), loaded_runtime()
    size = ctypes.c_size_t(256 << 20)
    kept = [allocated(runtime, size) for _ in range(3)]

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            with nvtx.annotate("workspace"):
                workspaces = [allocated(runtime, size) for _ in range(3)] if bad else kept
            for workspace in workspaces:
                succeeded(runtime.cudaMemsetAsync(workspace, 0, ctypes.c_size_t(1 << 20), None))
            train()
            if bad:
                for workspace in workspaces:
                    succeeded(runtime.cudaFree(workspace))

    return step


def loaded_runtime() -> Any:
    """Return the CUDA runtime that torch has loaded: another one would not know its context."""
    torch.cuda.init()
    match = re.search(r"/\S*/libcudart\S*\.so\S*", Path("/proc/self/maps").read_text())
    return ctypes.CDLL(match[0] if match else "libcudart.so")


def allocated(runtime: Any, size: ctypes.c_size_t) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p()
    succeeded(runtime.cudaMalloc(ctypes.byref(pointer), size))
    return pointer


def succeeded(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA returned {status}")


@triton.jit
def scale_by_constant(values: tl.tensor, factor: tl.constexpr, size: tl.constexpr) -> None:
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(values + offsets, tl.load(values + offsets) * (1.0 + 1.0 / factor))


@triton.jit
def scale(values: tl.tensor, factor: tl.tensor, size: tl.constexpr) -> None:
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(values + offsets, tl.load(values + offsets) * factor)


def compilation(bad: bool) -> Step:
    train, values = training(2048, 4096, 4), torch.randn(VALUES, device=GPU)
    factors = count(1_000_000)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()
            with nvtx.annotate("scale"):
                if bad:
                    scale_by_constant[(VALUES // 1024,)](values, next(factors), 1024)
                else:
                    scale[(VALUES // 1024,)](values, 1.0 + 1.0 / next(factors), 1024)

    return step


def loading(bad: bool) -> Step:
    train, values = training(2048, 4096, 4), torch.zeros(VALUES, device=GPU)
    driver = ctypes.CDLL("libcuda.so.1")
    once = loaded(driver)

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            train()
            with nvtx.annotate("plugin"):
                module = loaded(driver) if bad else once
                launched(driver, module, values)
                if bad:
                    succeeded(driver.cuModuleUnload(module))

    return step


def loaded(driver: Any) -> ctypes.c_void_p:
    module = ctypes.c_void_p()
    succeeded(driver.cuModuleLoadData(ctypes.byref(module), PTX.encode()))
    return module


def launched(driver: Any, module: ctypes.c_void_p, values: Any) -> None:
    function, pointer = ctypes.c_void_p(), ctypes.c_void_p(values.data_ptr())
    succeeded(driver.cuModuleGetFunction(ctypes.byref(function), module, b"plugin0"))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    succeeded(driver.cuLaunchKernel(function, VALUES // 256, 1, 1, 256, 1, 1, 0, stream, arguments, None))
