"""Where NVIDIA's tools lie, and what a child process may see of us: nsys records its environment in its report."""

import errno
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nightsight.collect.variables import ALLOWED, is_secret_name, is_secret_value, of_a_family
from nightsight.errors import CaptureError, ToolError

ROOT = Path("/")
"""Where the folders below and /proc/driver start: tests put another machine there."""
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
"""What a user who may not read the GPU's performance counters can do."""
_CAP_SYS_ADMIN: Final = 1 << 21
_LEAST_FREE_BYTES: Final = 1 << 20


def find_nsys(explicit: Path | None = None) -> Path | None:
    """Find nsys: `explicit`, $NSYS, PATH, then NVIDIA's folders, the newest of each first.

    ToolError when one was asked for by name and is not there.
    """
    return _find("nsys", explicit, NSYS_PLACES)


def find_ncu(explicit: Path | None = None) -> Path | None:
    """Find ncu in the same way; it is $NCU that names one."""
    return _find("ncu", explicit, NCU_PLACES)


def tool_version(path: Path) -> str:
    """Ask a tool for its version, as in "2025.3.1.0"; ToolError when it cannot run or does not say."""
    answer = ask([str(path), "--version"])
    found = re.search(r"\d+(\.\d+)+", answer)
    if found is None:
        raise ToolError(f"{path} --version names no version", "Is this NVIDIA's program? Name another one.")
    return found[0]


def ask(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
    """Return what a short command prints to stdout; ToolError when it does not run, fails or takes too long."""
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
        raise not_started(command[0], error) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} did not answer within {error.timeout:g} s", f"Try it by hand: {command[0]}") from error
    if answer.returncode != 0:
        said = answer.stderr.decode(errors="replace").strip() or "it said nothing"
        raise ToolError(f"{name} failed with exit status {answer.returncode}", f"{said[-2000:]}")
    return answer.stdout.decode(errors="replace")


def ask_python(python: str, code: str, *, environment: Mapping[str, str] | None = None) -> str:
    """Return what a Python prints that runs `code`, with no module taken from the working folder.

    A program that lies elsewhere does not get those either; `-P` would do, but that Python may be older.
    """
    return ask(
        [python, "-c", f"import sys; sys.path = [path for path in sys.path if path]\n{code}"], environment=environment
    )


def has_gpu() -> bool:
    """Say whether an NVIDIA GPU can be used here: nvidia-smi's word, else the driver's list."""
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        cards = ROOT / "proc/driver/nvidia/gpus"
        return cards.is_dir() and any(cards.iterdir())
    try:
        return ask([nvidia_smi, "-L"]).startswith("GPU ")
    except ToolError:
        return False


def commit() -> str:
    """Name the Git commit of the working directory, with a + if tracked files differ from it; "" if there is none."""
    try:
        head = ask(["git", "rev-parse", "--short=12", "HEAD"]).strip()
        return head + "+" * bool(ask(["git", "status", "--porcelain", "--untracked-files=no"]).strip())
    except ToolError:
        return ""


def may_read_counters() -> bool:
    """Say whether this process may read the GPU's performance counters; True where the driver does not say."""
    if not re.search(r"^RmProfilingAdminOnly: *1", read_system("proc/driver/nvidia/params"), re.MULTILINE):
        return True
    capabilities = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", read_system("proc/self/status"), re.MULTILINE)
    return bool(capabilities and int(capabilities[1], 16) & _CAP_SYS_ADMIN)


def read_system(path: str) -> str:
    """Return a file of the system's; "" if it is not there, which it is not on a machine without the driver."""
    try:
        return (ROOT / path).read_text(errors="replace")
    except OSError:
        return ""


def allowed_environment(keep: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables a child may see: our allow-list and `keep`, exact names or prefixes ending in `*`.

    What looks like a secret passes only when `keep` has its name exactly.
    """
    prefixes = tuple(pattern[:-1] for pattern in keep if pattern.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name in keep
        or (name in ALLOWED and not is_secret_value(value))
        or (prefixes and name.startswith(prefixes) and not (is_secret_name(name) or is_secret_value(value)))
    }


def withheld(keep: Sequence[str] = ()) -> list[str]:
    """Name the variables that look as if they steered CUDA or torch, and that a child does not see all the same."""
    return of_a_family(os.environ.keys() - allowed_environment(keep).keys())


def writable_folder(folder: Path) -> Path:
    """Make a folder, with its parents, and prove that a file can be written in it; CaptureError if not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise unwritable(folder, error) from error


def refuse_lost_folder(folder: Path) -> None:
    """Raise CaptureError if a folder is gone or has no space left: tools that fail for it seldom say so."""
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError as error:
        hint = "If the program deletes the folder that it works in, keep the reports elsewhere: --reports DIR."
        raise CaptureError(f"{folder} was deleted while the program ran", hint) from error
    except OSError as error:
        raise unwritable(folder, error) from error
    if free < _LEAST_FREE_BYTES:
        raise unwritable(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def unwritable(folder: Path, error: OSError) -> CaptureError:
    """Turn what the system said about a folder into our error."""
    reason = error.strerror or str(error)
    return CaptureError(f"cannot write to {folder}: {reason}", "Free some space, or choose another folder.")


def _find(name: str, explicit: Path | None, places: Sequence[str]) -> Path | None:
    variable = name.upper()
    from_variable = Path(os.environ[variable]) if os.environ.get(variable) else None
    asked = explicit or from_variable
    if asked is None:
        on_path = shutil.which(name)
        candidates = [Path(on_path)] if on_path else [path for place in places for path in _newest_first(place)]
        return next((path.absolute() for path in candidates if _is_program(path)), None)
    if _is_program(asked.expanduser()):
        # a link stays one, but the way there does not lead through the working folder, which a program may delete
        return asked.expanduser().parent.resolve() / asked.name
    by = f"--{name}" if explicit else f"${variable}"
    raise ToolError(f"{asked} is not a program that can be run", f"{by} names it: correct it or leave it out.")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _newest_first(place: str) -> list[Path]:
    return sorted(ROOT.glob(place), key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])[::-1]


def not_started(program: str, error: OSError) -> ToolError:
    """Turn what the system said about a program into our error."""
    return ToolError(f"{program} cannot be started: {error.strerror}", "Is it there, and made for this machine?")
