"""Published peak rates of NVIDIA GPUs: memory, links and arithmetic. Profilers do not record them."""

import re
from typing import Final, NamedTuple


class Peaks(NamedTuple):
    """Published peaks of one GPU model in GB/s (10^9 bytes); None if unpublished, or if boards of that name differ.

    `pcie_gb_per_s` (sixteen lanes) and `nvlink_gb_per_s` count both directions: a copy can use half of it. Arithmetic
    is in 10^12 operations per second; tensor cores with FP16 inputs, without sparsity.
    """

    memory_gb_per_s: float | None
    pcie_generation: int | None
    pcie_gb_per_s: float | None
    nvlink_gb_per_s: float | None
    l2_mib: float | None
    fp32_tflop_per_s: float | None
    tensor_fp16_tflop_per_s: float | None
    source: str


def published(name: str) -> Peaks:
    """Return the peaks of the GPU with this driver name; all None for unknown GPUs and for MIG slices."""
    for pattern, peaks in _PEAKS.items():
        if re.fullmatch(rf"(?:NVIDIA |Tesla )?{pattern}", name):
            return peaks
    return _NOT_KNOWN


MEMORIES: Final = ("DRAM", "L2", "L1", "memory")
"""The units of a GPU that move data."""

LIMITED_PCT: Final = 60.0
"""The share of its peak from which a unit limits a kernel: the threshold of ncu's speed-of-light rules."""

OF_TENSOR_PEAK: Final = 0.85
"""TF32 products reach a smaller share of their peak than FP32 products do. On an H200, where the peaks differ by a
factor of 7.4, products of 2048 to 8192 in each dimension became 5.7 to 8 times as fast, and training 6.1 times."""


class TensorRate(NamedTuple):
    """The ratio of the peak of tensor cores to the FP32 peak of CUDA cores, and the type that tensor cores multiply."""

    ratio: float
    type: str


def tensor_rate(name: str, compute_capability: str) -> TensorRate | None:
    """Return the rate of tensor cores for FP32 products on this GPU; None if it is unknown.

    With TF32 their rate is half of that with FP16. Volta and Turing have no TF32.
    """
    peaks = published(name)
    if not peaks.fp32_tflop_per_s or not peaks.tensor_fp16_tflop_per_s:
        return _TENSOR_RATES.get(compute_capability)
    ratio = peaks.tensor_fp16_tflop_per_s / peaks.fp32_tflop_per_s
    return TensorRate(ratio, "FP16") if re.search(_WITHOUT_TF32, name) else TensorRate(ratio / 2, "TF32")


def arithmetic_tflop_per_s(name: str, kind: str) -> float | None:
    """Return the published peak of "FP32" (on CUDA cores), "tensor BF16" and similar kinds; None if it is unknown."""
    peaks = published(name)
    tensor = peaks.tensor_fp16_tflop_per_s
    if kind == "FP32":
        return peaks.fp32_tflop_per_s
    if not tensor or (kind in ("tensor BF16", "tensor TF32") and re.search(_WITHOUT_TF32, name)):
        return None
    if kind == "tensor FP8" and not re.search(_WITH_FP8, name):
        return None
    return tensor * _OF_FP16[kind] if kind in _OF_FP16 else None


# rates of tensor cores in relation to FP16
_OF_FP16: Final = {"tensor FP16": 1.0, "tensor BF16": 1.0, "tensor TF32": 0.5, "tensor FP8": 2.0}
# multiply-adds of an SM per cycle, TF32 versus FP32: the same for all boards of a chip, and for a MIG slice. Other
# compute capabilities are shared by different chips
_TENSOR_RATES: Final = {
    "8.0": TensorRate(512 / 64, "TF32"),
    "9.0": TensorRate(1024 / 128, "TF32"),
    "10.0": TensorRate(2048 / 128, "TF32"),
}
# these do not support BF16 either
_WITHOUT_TF32: Final = r"\b(?:V100|T4)\b"
_WITH_FP8: Final = r"\b(?:L4|L40S|H100|H200|B200)\b"
_NOT_KNOWN: Final = Peaks(None, None, None, None, None, None, None, "")


# None for PCIe boards: they may have an NVLink bridge, which the name does not show
_PEAKS: Final = {
    r"V100-SXM2-(?:16|32)GB": Peaks(900, 3, 32, 300, 6, 15.7, 125, "V100 datasheet (2020); Volta whitepaper"),
    r"V100-PCIE-(?:16|32)GB": Peaks(900, 3, 32, None, 6, 14, 112, "V100 datasheet (2020); Volta whitepaper"),
    r"T4": Peaks(320, 3, 32, None, 4, 8.1, 65, "T4 datasheet (2019); Turing whitepaper"),
    r"A100-SXM4-40GB": Peaks(1555, 4, 64, 600, 40, 19.5, 312, "A100 datasheet (2020); Ampere whitepaper"),
    r"A100-PCIE-40GB": Peaks(1555, 4, 64, None, 40, 19.5, 312, "A100 datasheet (2020); Ampere whitepaper"),
    r"A100-SXM4-80GB": Peaks(2039, 4, 64, 600, 40, 19.5, 312, "A100 80GB datasheet (2021); Ampere whitepaper"),
    r"A100 80GB PCIe": Peaks(1935, 4, 64, None, 40, 19.5, 312, "A100 80GB datasheet (2021); Ampere whitepaper"),
    r"A10": Peaks(600, 4, 64, None, 6, 31.2, 125, "A10 datasheet (2021); GA102 whitepaper"),
    r"L4": Peaks(300, 4, 64, None, 48, 30.3, 121, "L4 datasheet (2023); Ada whitepaper"),
    r"L40S": Peaks(864, 4, 64, None, 96, 91.6, 362, "L40S datasheet (2023); Ada whitepaper"),
    r"H100 80GB HBM3": Peaks(3350, 5, 128, 900, 50, 67, 989, "H100 SXM datasheet (2023); Hopper whitepaper"),
    r"H100 PCIe": Peaks(2000, 5, 128, None, 50, 51, 756, "H100 PCIe datasheet (2022); Hopper whitepaper"),
    r"H200": Peaks(4800, 5, 128, 900, None, 67, 989, "H200 datasheet (2024)"),
    # NVIDIA's documents disagree: PCIe 5 in one, PCIe 6 in another
    r"B200": Peaks(
        8000,
        None,
        None,
        1800,
        None,
        None,
        2250,
        "DGX B200 datasheet (2024), one of eight GPUs; HGX B200 datasheet (2024)",
    ),
}
