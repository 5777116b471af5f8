"""Finds NVIDIA's tools and builds the environment of child processes, which nsys records in its report."""

import errno
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nightsight.collect.variables import is_allowed, is_secret_name, is_secret_value, known_settings
from nightsight.errors import CaptureError, ToolError

ROOT = Path("/")
"""The root of the folders below and of /proc: tests replace it."""
NSYS_PLACES: Final = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
NCU_PLACES: Final = (
    "opt/nvidia/nsight-compute/*/ncu",
    "usr/local/cuda*/bin/ncu",
    "usr/local/cuda*/nsight-compute*/ncu",
    "usr/lib/nsight-compute/ncu",
)
ALLOW_COUNTERS: Final = (
    "Run as root (a container: --cap-add=SYS_ADMIN), or allow every user: put 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/nvidia.conf and reboot."
)
"""The hint for users who may not read GPU performance counters."""
_CAP_SYS_ADMIN: Final = 1 << 21
_LEAST_FREE_BYTES: Final = 1 << 20


def find_nsys(explicit: Path | None = None) -> Path | None:
    """Find nsys: `explicit`, $NSYS, PATH, then NVIDIA's folders, each with the newest version first.

    None if there is none; ToolError if `explicit` or $NSYS names a file that is not a program.
    """
    return _find("nsys", explicit, NSYS_PLACES)


def find_ncu(explicit: Path | None = None) -> Path | None:
    """Find ncu in the same way, with $NCU."""
    return _find("ncu", explicit, NCU_PLACES)


def tool_version(path: Path) -> str:
    """Ask a tool for its version, such as "2025.3.1.0"; ToolError if it cannot run or prints none."""
    answer = ask([str(path), "--version"])
    match = re.search(r"\d+(\.\d+)+", answer)
    if match is None:
        raise ToolError(f"{path} --version prints no version", "Is this NVIDIA's program? If not, name another one.")
    return match[0]


def ask(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
    """Run a short command and return its stdout; ToolError if it does not start, fails or takes over 60 s."""
    name = Path(command[0]).name
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            env=allowed_environment() if environment is None else dict(environment),
        )
    except OSError as error:
        raise start_error(command[0], error) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} did not answer within {error.timeout:g} s", f"Try it by hand: {command[0]}") from error
    if answer.returncode != 0:
        error_output = answer.stderr.decode(errors="replace").strip() or "It printed nothing."
        raise ToolError(f"{name} failed with exit status {answer.returncode}", f"{error_output[-2000:]}")
    return answer.stdout.decode(errors="replace")


def ask_python(python: str, code: str, *, environment: Mapping[str, str] | None = None) -> str:
    """Run `code` with a Python, without modules from the working directory; return its stdout, as `ask` does.

    Scripts do not see those modules either, unless they are in the same folder. `-P` needs Python 3.11.
    """
    return ask(
        [python, "-c", f"import sys; sys.path = [path for path in sys.path if path]\n{code}"], environment=environment
    )


def has_gpu() -> bool:
    """Whether this machine has a usable NVIDIA GPU, according to nvidia-smi or else the driver's list."""
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        gpus = ROOT / "proc/driver/nvidia/gpus"
        return gpus.is_dir() and any(gpus.iterdir())
    try:
        return ask([nvidia_smi, "-L"]).startswith("GPU ")
    except ToolError:
        return False


def commit() -> str:
    """Return the Git commit of the working directory, with a + if tracked files differ; "" if there is none."""
    try:
        head = ask(["git", "rev-parse", "--short=12", "HEAD"]).strip()
        return head + "+" * bool(ask(["git", "status", "--porcelain", "--untracked-files=no"]).strip())
    except ToolError:
        return ""


def may_read_counters() -> bool:
    """Whether this process may read the GPU's performance counters; True if the driver does not say."""
    if not re.search(r"^RmProfilingAdminOnly: *1", read_system("proc/driver/nvidia/params"), re.MULTILINE):
        return True
    capabilities = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", read_system("proc/self/status"), re.MULTILINE)
    return bool(capabilities and int(capabilities[1], 16) & _CAP_SYS_ADMIN)


def read_system(path: str) -> str:
    """Return the content of a system file; "" if it cannot be read, as on a machine without the driver."""
    try:
        return (ROOT / path).read_text(errors="replace")
    except OSError:
        return ""


def allowed_environment(keep: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that a child may see: our allow-list and `keep`, exact names or prefixes ending in `*`.

    A likely secret passes only if `keep` has its exact name.
    """
    prefixes = tuple(pattern[:-1] for pattern in keep if pattern.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep
        or is_allowed(name, value)
        or (prefixes and name.startswith(prefixes) and not (is_secret_name(name) or is_secret_value(value)))
    }


def withheld_variables(keep: Sequence[str] = ()) -> list[str]:
    """Return the names of variables that look like settings of CUDA or torch but are not passed to a child."""
    return known_settings(os.environ.keys() - allowed_environment(keep).keys())


def writable_folder(folder: Path) -> Path:
    """Create a folder with its parents and check that it is writable; CaptureError if not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise write_error(folder, error) from error


def refuse_lost_folder(folder: Path) -> None:
    """Raise CaptureError if a folder is gone or out of space: tools that fail for that reason rarely say so."""
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError as error:
        hint = "If the program deletes its working directory, keep the reports elsewhere: --reports DIR."
        raise CaptureError(f"{folder} was deleted while the program ran", hint) from error
    except OSError as error:
        raise write_error(folder, error) from error
    if free < _LEAST_FREE_BYTES:
        raise write_error(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def write_error(folder: Path, error: OSError) -> CaptureError:
    """Return the CaptureError for a folder that cannot be written to."""
    reason = error.strerror or str(error)
    return CaptureError(f"cannot write to {folder}: {reason}", "Free some space, or choose another folder.")


def _find(name: str, explicit: Path | None, places: Sequence[str]) -> Path | None:
    variable = name.upper()
    from_variable = Path(os.environ[variable]) if os.environ.get(variable) else None
    requested = explicit or from_variable
    if requested is None:
        on_path = shutil.which(name)
        candidates = [Path(on_path)] if on_path else [path for place in places for path in _newest_first(place)]
        return next((path.absolute() for path in candidates if _is_program(path)), None)
    if _is_program(requested.expanduser()):
        # resolve the folder, because a program may delete the working directory; do not resolve a link to the tool
        return requested.expanduser().parent.resolve() / requested.name
    by = f"--{name}" if explicit else f"${variable}"
    raise ToolError(f"{requested} is not an executable file", f"Correct or remove {by}.")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _newest_first(place: str) -> list[Path]:
    return sorted(ROOT.glob(place), key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])[::-1]


def start_error(program: str, error: OSError) -> ToolError:
    """Return the ToolError for a program that could not be started."""
    return ToolError(f"cannot start {program}: {error.strerror}", "Does it exist, and is it built for this machine?")
