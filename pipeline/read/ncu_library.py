"""Where NVIDIA's `ncu_report` module is: the package on PyPI, or the one that each Nsight Compute ships."""

import importlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pipeline.errors import ToolError

Native = Any
"""An object of the library, which has no types: its module, or a context, action, metric or rule."""

_MODULE: Final = "ncu_report"
_FOLDER: Final = Path("extras/python")
_PLACES: Final = (
    "opt/nvidia/nsight-compute/*",
    "usr/local/cuda*/nsight-compute*",
    "usr/local/NVIDIA-Nsight-Compute*",
    "usr/lib/nsight-compute",
)
_ROOT = Path("/")


def library() -> Native:
    """Import `ncu_report`; ToolError if neither the package nor an Nsight Compute that ships it is here."""
    # modules that SWIG made warn of themselves from Python 3.12 on
    with warnings.catch_warnings(), _own_symbols():
        warnings.simplefilter("ignore", DeprecationWarning)
        reasons = []
        for folder in (None, *_shipped()):
            try:
                return _import(folder)
            except (ImportError, OSError) as error:
                reasons.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
    raise ToolError(
        f"no module {_MODULE} is here to read .ncu-rep files with ({reasons[-1]})",
        "pip install 'nightsight[ncu]' (or ncu-report), or install Nsight Compute, or print the report where it is: "
        "ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv",
    )


@contextmanager
def _own_symbols() -> Iterator[None]:
    """Let what is loaded prefer its own symbols: with those of pyarrow's C++ library, ncu_report 2025.3 crashes."""
    if not hasattr(os, "RTLD_DEEPBIND"):
        yield
        return
    before = sys.getdlopenflags()
    sys.setdlopenflags(before | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


def _import(folder: Path | None) -> Native:
    """Import the module, from `folder` if one is given: what it ships imports its own parts by name."""
    if folder is None:
        return importlib.import_module(_MODULE)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(_MODULE)
    finally:
        sys.path.remove(str(folder))


def _shipped() -> Iterator[Path]:
    """Yield the folders of modules that ncu ships: of the ncu on PATH, then of those installed, the newest first."""
    program = shutil.which("ncu")
    homes = [Path(program).resolve().parent] if program else []
    installed = [home for place in _PLACES for home in _ROOT.glob(place)]
    for home in (*homes, *sorted(installed, key=_version, reverse=True)):
        if (home / _FOLDER / f"{_MODULE}.py").is_file():
            yield home / _FOLDER


def _version(home: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", home.name)))
