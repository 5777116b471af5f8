"""Timelines of kernels one after the other on a stream, by their names and durations."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Profile
from nightsight.tables import conform, empty

PROCESS = 5 << 24
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NTN"
SGEMM = "ampere_sgemm_128x64_nn"


def torch_kernel(word: str) -> str:
    """Return the name of PyTorch's elementwise kernel, "copy" and "gelu backward" too; reductions are "mean", "sum"."""
    if word in ("mean", "sum"):
        operator = "MeanOps<float>" if word == "mean" else "func_wrapper_t<float, at::native::sum_functor<float>>"
        return (
            f"void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::{operator}>>(T3)"
        )
    functor = {
        "mul": "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>",
        "div": "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float>>",
        "add": "at::native::CUDAFunctor_add<float>",
        "copy": "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]",
        "gelu backward": "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)",
        "fill": "at::native::FillFunctor<float>",
    }.get(word, f"at::native::{word}_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]")
    return f"void at::native::vectorized_elementwise_kernel<(int)4, {functor}, std::array<char *, 3>>(int, T2, T3)"


def one_after_the_other(
    kernels: Sequence[tuple[str, float]],
    *,
    gpu: str = "NVIDIA H200",
    capability: str = "9.0",
    threads: Sequence[int] = (),
    **columns: Any,
) -> Timeline:
    """Make a timeline of kernels (name, duration in µs), 1 µs between them; `threads`: the one that launched each.

    "D2D" and "memset" are a copy within the GPU and a memset. `columns`: further columns of kernels, such as streams.
    """
    rows, time = [], 0
    for number, (name, length) in enumerate(kernels):
        span = {"start_ns": time, "end_ns": time + round(length * 1000)}
        rows.append({**_STREAM, **span, "name": name, "correlation": number})
        time = span["end_ns"] + 1000
    calls = [
        {"start_ns": number, "end_ns": number + 1, "thread": thread, "correlation": number, **_CALL}
        for number, thread in enumerate(threads or [7] * len(rows))
    ]
    of_kernels = [{**row, **_SHAPE, "short_name": row["name"]} for row in rows if row["name"] not in _MEMORY]
    copies = [{**row, **_KINDS, "operation": _MEMORY[str(row["name"])]} for row in rows if row["name"] in _MEMORY]
    devices = [{"device": 0, "name": gpu, "compute_capability": capability, "multiprocessors": 132}]
    given: dict[str, list[dict[str, Any]]] = {
        "kernels": of_kernels,
        "memory_ops": copies,
        "api_calls": calls,
        "devices": devices,
    }
    tables = {name: conform(name, pd.DataFrame(some)) if some else empty(name) for name, some in given.items()}
    return whole(Profile({**tables, "kernels": tables["kernels"].assign(**columns)}))


def whole(profile: Profile) -> Timeline:
    """Return the timeline of all that ran on the GPU, however steady it was."""
    tables = [profile.tables[name] for name in ("kernels", "memory_ops") if len(profile.tables.get(name, ()))]
    begin = min((int(table["start_ns"].min()) for table in tables), default=0)
    return Timeline(profile, Window(begin, max((int(table["end_ns"].max()) for table in tables), default=0), "all"))


_STREAM = {"process": PROCESS, "device": 0, "context": 1, "stream": 7, "graph_node": None}
_CALL = {"process": PROCESS, "pid": 5, "tid": 7, "name": "cudaLaunchKernel", "layer": "runtime"}
_SHAPE = {
    **dict.fromkeys([f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"], 1),
    **dict.fromkeys(("registers", "static_shared_bytes", "dynamic_shared_bytes"), 0),
    "grid_x": 1000,
}
_MEMORY = {"D2D": "Device-to-Device", "memset": "memset"}
_KINDS = {"source_kind": "Device", "target_kind": "Device", "bytes": 1024}
