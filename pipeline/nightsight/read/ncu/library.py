"""Finds NVIDIA's `ncu_report` module (from PyPI, or part of Nsight Compute) and runs it on a report."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from nightsight.captures import AS_CSV, PROFILE_AGAIN
from nightsight.errors import CaptureError, ToolError
from nightsight.read.ncu import dump as ncu_dump
from nightsight.system.installing import EXTRAS, for_nightsight

_FOLDER: Final = Path("extras/python")
_PLACES: Final = (
    "opt/nvidia/nsight-compute/*",
    "usr/local/cuda*/nsight-compute*",
    "usr/local/NVIDIA-Nsight-Compute*",
    "usr/lib/nsight-compute",
)
_ROOT = Path("/")
_ALTERNATIVES: Final = f"Or install Nsight Compute. Or convert the report on a machine with ncu: {AS_CSV}"

Dump = list[dict[str, Any]]


def dump(path: Path) -> Dump:
    """Return the launches that `ncu_report` reads from a report, as nightsight.read.ncu.dump writes them.

    ToolError if neither the package nor an Nsight Compute with the module is installed; CaptureError if it crashes.
    """
    package = [""] if importlib.util.find_spec(ncu_dump.MODULE) else []
    reason = "neither the package nor Nsight Compute is installed"
    for folder in (*package, *map(str, _folders_of_modules())):
        # -P keeps this folder off sys.path: its csv.py and numbers.py would hide the standard modules
        command = [sys.executable, "-P", ncu_dump.__file__, str(path), folder]
        process = subprocess.run(command, capture_output=True, check=False)
        if process.returncode == 0:
            launches: Dump = json.loads(process.stdout)
            return launches
        if process.returncode != ncu_dump.ABSENT:
            raise CaptureError(
                f"{path.name} cannot be read: NVIDIA's {ncu_dump.MODULE} module failed on it", PROFILE_AGAIN
            )
        reason = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    raise ToolError(
        f"cannot read .ncu-rep files without the module {ncu_dump.MODULE} ({reason})",
        f"{for_nightsight(*EXTRAS['ncu'])}. {_ALTERNATIVES}",
    )


def _folders_of_modules() -> Iterator[Path]:
    """Yield the folders of the modules shipped with ncu: of the ncu on PATH, then of installed ones, newest first."""
    program = shutil.which("ncu")
    homes = [Path(program).resolve().parent] if program else []
    installed = [home for place in _PLACES for home in _ROOT.glob(place)]
    # by version, in the name of the folder
    installed.sort(key=lambda home: [int(number) for number in re.findall(r"\d+", home.name)], reverse=True)
    for home in (*homes, *installed):
        if (home / _FOLDER / f"{ncu_dump.MODULE}.py").is_file():
            yield home / _FOLDER
