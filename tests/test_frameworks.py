"""Which framework a capture is of, and advice in its words."""

from pathlib import Path

import pandas as pd
import pytest

from nightsight.events import frameworks
from nightsight.events.frameworks import CUDA, CUPY, JAX, NUMBA, PYTORCH, framework_of
from nightsight.model.report import Profile
from nightsight.results.rules import RULES
from nightsight.tables import conform
from tests.kernel_tables import one_after_the_other, torch_kernel
from tests.planted.judge import diagnose, read_packed
from tests.recorded import Recorded

REAL = Path(__file__).parent / "data" / "real"


@pytest.mark.parametrize(
    ("kernel", "framework"),
    [
        (torch_kernel("mul"), PYTORCH),
        ("triton_poi_fused_add_0", PYTORCH),
        ("input_reduce_fusion_1", JAX),
        ("cupy_multiply__float64_float64_float64", CUPY),
        ("_ZN8__main__6smoothB2v1B94cw51cXTLSUwv1sCUtE5ArrayIfLi1E1C7mutableE", NUMBA),
        ("__main__::smooth[abi:v1,cw51cXTLSUwv1](Array<float, 1, C, mutable, aligned>)", NUMBA),
        ("_ZN6cudapy8__main__6smoothB2v1E", NUMBA),
        ("void jacobi(float *, float const *)", CUDA),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_nn_align4>(T1)", CUDA),
    ],
)
def test_a_framework_is_known_by_its_kernels(kernel: str, framework: str) -> None:
    assert framework_of(one_after_the_other([(kernel, 5.0)]).profile) == framework


def test_without_a_trace_a_python_program_is_of_none() -> None:
    profile = one_after_the_other([("void mine(float *)", 5.0)]).profile
    times = {"start_ns": 0, "process": 5 << 24, "thread": 7, "pid": 5, "tid": 7}
    sample = conform("python_samples", pd.DataFrame([{**times, "function": "f", "stack": "f"}]))
    assert framework_of(Profile({**profile.tables, "python_samples": sample})) == ""
    assert framework_of(Profile({})) == ""


def test_recorded_programs_of_pytorch(recorded: Recorded) -> None:
    assert {framework_of(recorded.profile(name)) for name in ("train", "fp32", "gelu")} == {PYTORCH}


def test_remedies_are_for_frameworks_that_are_known() -> None:
    names = {value for name, value in vars(frameworks).items() if name.isupper() and isinstance(value, str)}
    assert {framework for rule in RULES for framework in rule.remedies} <= names - {PYTORCH}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("numba_arrays", "cuda.to_device"),
        ("cupy_options", "cupy.ElementwiseKernel"),
        ("flax_batches", "jax.device_put"),
    ],
)
def test_advice_speaks_the_language_of_the_program(name: str, words: str) -> None:
    first = diagnose(read_packed(REAL / f"{name}.sqlite.xz")).advice[0]
    assert words in first.remedy
    assert "torch" not in first.remedy
