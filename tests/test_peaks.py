"""Published peaks are found by the names that drivers use, and by no others."""

import pytest

from nightsight.peaks import published


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
