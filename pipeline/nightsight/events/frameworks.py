"""The framework of a program, by its traces in a capture: advice uses its terms."""

import re
from typing import Final

import numpy as np

from nightsight.model.report import Profile, Report
from nightsight.results.causes import REPLAY
from nightsight.system.parallel import memoize
from nightsight.tables import FUNCTION, MODULE

PYTORCH: Final = "PyTorch"
JAX: Final = "JAX"
CUPY: Final = "CuPy"
NUMBA: Final = "Numba"
CUDA: Final = "CUDA"

_BY_KERNELS: Final = (
    (PYTORCH, re.compile(r"\bat::|\bc10::|\btorch_|triton_(?:poi|red|per|tem|mm)_")),
    (
        JAX,
        re.compile(r"\bstream_executor::|^(?:input|loop|wrapped|gemm|command_buffer)_\w*(?:fusion|transpose|reduce)"),
    ),
    (CUPY, re.compile(r"^cupy_|\bcupy::")),
    # the module of older versions, and the version that Numba adds to names
    (NUMBA, re.compile(r"cudapy\d|\[abi:v\d|B2v\dB")),
)


@memoize
def framework_of(profile: Profile) -> str:
    """Return the framework of a program: the first that left a trace; CUDA without any and without Python, else ""."""
    ranges = profile.recorded("ranges")
    kernels = profile.recorded("kernels")
    of_kernels = kernels["name"].cat
    names = of_kernels.categories[np.bincount(of_kernels.codes + 1, minlength=len(of_kernels.categories) + 1)[1:] > 0]
    if len(profile.recorded("cpu_ops")) or ranges["style"].isin([MODULE, FUNCTION]).any():
        return PYTORCH
    if (ranges["domain"] == "TSL").any():
        return JAX
    for framework, pattern in _BY_KERNELS:
        if any(pattern.search(name) for name in names):
            return framework
    is_python = len(profile.recorded("python_samples")) or len(profile.recorded("python_functions"))
    return CUDA if len(names) and not is_python else ""


def reported_framework(report: Report) -> str:
    """Return the framework of the program of a report; "" if it is unknown."""
    rows = report.rows(REPLAY)
    name = rows["framework"].iloc[0] if len(rows) and "framework" in rows else ""
    return name if isinstance(name, str) else ""
