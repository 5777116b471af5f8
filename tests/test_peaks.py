"""Published peaks are found by the names that drivers use, and by no others."""

import pytest

from nightsight.events.peaks import arithmetic_tflop_per_s, published


@pytest.mark.parametrize(
    ("name", "memory", "pcie", "nvlink"),
    [
        ("NVIDIA H200", 4800, 128, 900),
        ("NVIDIA H100 80GB HBM3", 3350, 128, 900),
        ("NVIDIA H100 PCIe", 2000, 128, None),
        ("NVIDIA A100-SXM4-40GB", 1555, 64, 600),
        ("NVIDIA A100 80GB PCIe", 1935, 64, None),
        ("Tesla V100-SXM2-16GB", 900, 32, 300),
        ("Tesla T4", 320, 32, None),
        ("NVIDIA L4", 300, 64, None),
        ("NVIDIA B200", 8000, None, 1800),
    ],
)
def test_a_model_has_its_own_peaks(name: str, memory: float, pcie: float | None, nvlink: float | None) -> None:
    peaks = published(name)
    assert (peaks.memory_gb_per_s, peaks.pcie_gb_per_s, peaks.nvlink_gb_per_s) == (memory, pcie, nvlink)
    assert "datasheet" in peaks.source


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A10G",
        "NVIDIA L40",
        "NVIDIA GH200 480GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM2e",
    ],
)
def test_nothing_is_guessed_for_other_names(name: str) -> None:
    assert set(published(name)) == {None, ""}


@pytest.mark.parametrize(
    ("name", "peaks"),
    [
        ("NVIDIA H200", {"FP32": 67, "tensor FP16": 989, "tensor BF16": 989, "tensor TF32": 494.5, "tensor FP8": 1978}),
        ("NVIDIA A100-SXM4-80GB", {"FP32": 19.5, "tensor BF16": 312, "tensor TF32": 156, "tensor FP8": None}),
        ("Tesla T4", {"FP32": 8.1, "tensor FP16": 65, "tensor BF16": None, "tensor TF32": None, "tensor FP8": None}),
        ("NVIDIA L4", {"tensor FP8": 242}),
        ("NVIDIA H200", {"FP64": None, "tensor INT8": None, "": None}),
        ("another", {"FP32": None, "tensor FP16": None}),
    ],
)
def test_arithmetic_has_its_own_peak(name: str, peaks: dict[str, float | None]) -> None:
    assert {kind: arithmetic_tflop_per_s(name, kind) for kind in peaks} == peaks
