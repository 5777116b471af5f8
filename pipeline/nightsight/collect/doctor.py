"""What a machine must have for the collectors to work, how its absence shows, and what mends it."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nightsight.collect import tools
from nightsight.collect.interpreter import Interpreter, interpreter
from nightsight.collect.isolation import isolation
from nightsight.errors import ToolError

_NVIDIA: Final = "https://developer.nvidia.com/nsight"
_UNLOADABLE: Final = re.compile(r"error while loading shared libraries: ([^\s:]+)")
# the versions of packages, which are not imported: that takes seconds
_PROBE: Final = """
import importlib.metadata, importlib.util, json, platform
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
names = [name for name in ("torch", "triton", "nvtx") if importlib.util.find_spec(name)]
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in names}}))
"""
_ASK_TORCH: Final = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `remedy` says what to do when it is not ok."""

    name: str
    status: Literal["ok", "missing", "broken"]
    detail: str
    remedy: str = ""


def examine(*, nsys: Path | None = None, python: str | None = None) -> tuple[Check, ...]:
    """Look at everything that the collectors need. What is absent or broken is a Check, never an error."""
    chosen = interpreter(python)
    found, versions = _python(chosen)
    install = f"{chosen.path} -m pip install"
    return (
        _nsys(nsys),
        _privacy(),
        _tool("ncu", tools.find_ncu, "compute")[0],
        _counters(),
        _gpu(),
        found,
        _torch(chosen, versions),
        _package("triton", chosen, versions, f"It comes with PyTorch's builds for CUDA on Linux: {install} torch"),
        _package("nvtx", chosen, versions, f"Without it nsys and ncu see no ranges of the workloads: {install} nvtx"),
    )


def _nsys(explicit: Path | None) -> Check:
    tool, path = _tool("nsys", lambda: tools.find_nsys(explicit), "systems")
    library = _unloadable_library(path) if path else ""
    if not library:
        return tool
    return Check(
        "nsys",
        "broken",
        f"{tool.detail}, but its importer cannot load {library}: it will print 'Importer error status: An unknown "
        "error occurred.' and leave a .qdstrm file without a .nsys-rep",
        _remedy_for(library),
    )


def _privacy() -> Check:
    if isolation():
        return Check("privacy", "ok", "nsys can be kept from seeing other processes (PID namespaces)")
    return Check(
        "privacy",
        "missing",
        "this system allows no PID namespaces: nsys writes the environment of other processes into its files",
        "Publish report.html, not the files under capture/. To allow it: run as root, or let the container unshare.",
    )


def _tool(name: str, find: Callable[[], Path | None], product: str) -> tuple[Check, Path | None]:
    try:
        path = find()
        if path is None:
            remedy = (
                f"Install Nsight {product.title()} ({_NVIDIA}-{product}), or name it: {name.upper()}=/path/to/{name}"
            )
            return Check(name, "missing", "not on PATH and not in NVIDIA's folders", remedy), None
        return Check(name, "ok", f"{tools.tool_version(path)} at {path}"), path
    except ToolError as error:
        return Check(name, "broken", error.message, error.hint), None


def _unloadable_library(nsys: Path) -> str:
    """Name the library that keeps nsys's importer from starting; "" if none does, or if it is not beside nsys.

    nsys itself answers `--version` and profiles without it: only the report is never written.
    """
    for importer in sorted(nsys.resolve().parent.parent.glob("*/QdstrmImporter")):
        try:
            tools.ask([str(importer), "--version"])
        except ToolError as error:
            if found := _UNLOADABLE.search(error.hint):
                return found[1]
    return ""


def _remedy_for(library: str) -> str:
    if not library.startswith("libdw."):
        return f"Install the package that holds {library}."
    return (
        "apt-get install libdw1 (Debian, Ubuntu) or dnf install elfutils-libs (Fedora, RHEL). "
        "Offline: bring the packages libdw1 and libelf1, unpack each with dpkg -x FILE.deb / and run ldconfig."
    )


def _counters() -> Check:
    """Check who may read the GPU's performance counters: ncu cannot work without, nsys can but for --gpu-metrics."""
    parameters = tools.read_system("proc/driver/nvidia/params")
    if not parameters:
        return Check("counters", "missing", "no NVIDIA driver is loaded", "ncu needs an NVIDIA GPU and its driver.")
    if tools.may_read_counters():
        restricted = re.search(r"^RmProfilingAdminOnly: *1", parameters, re.MULTILINE)
        whose = "only administrators may read them, and this process is one (CAP_SYS_ADMIN)"
        return Check("counters", "ok", whose if restricted else "every user may read the GPU's performance counters")
    return Check(
        "counters",
        "broken",
        "only administrators may read the GPU's performance counters (RmProfilingAdminOnly: 1), and this process "
        "lacks CAP_SYS_ADMIN: ncu and profile --gpu-metrics will fail with ERR_NVGPUCTRPERM",
        tools.ALLOW_COUNTERS,
    )


def _gpu() -> Check:
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        remedy = "Install the NVIDIA driver. Without a GPU, captures made elsewhere can still be reported."
        return Check("gpu", "missing", "nvidia-smi is not on PATH: no NVIDIA driver is installed here", remedy)
    try:
        answer = tools.ask([nvidia_smi, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    except ToolError as error:
        return Check(
            "gpu", "broken", error.message, "Run nvidia-smi by hand: the driver may need a reload or a reboot."
        )
    gpus = Counter(line.strip().replace(", ", ", driver ") for line in answer.splitlines() if "," in line)
    if not gpus:
        return Check("gpu", "missing", "nvidia-smi lists no GPU", "In a container, pass the GPUs on: --gpus all")
    kinds = [gpu if count == 1 else f"{count} × {gpu}" for gpu, count in gpus.items()]
    return Check("gpu", "ok", "; ".join(kinds))


def _python(chosen: Interpreter) -> tuple[Check, dict[str, str]]:
    """Check the Python that runs workloads and scripts, and return the versions of what is installed for it."""
    try:
        versions: dict[str, str] = json.loads(tools.ask_python(chosen.path, _PROBE))
    except ToolError as error:
        remedy = "Activate another environment, or name a Python that works: --python PATH"
        return Check("python", "broken", f"{chosen.path} ({chosen.reason}): {error.message}", remedy), {}
    whose = "" if chosen.is_own else ", not nightsight's own"
    return Check("python", "ok", f"{versions['python']} at {chosen.path} ({chosen.reason}){whose}"), versions


def _torch(chosen: Interpreter, versions: Mapping[str, str]) -> Check:
    install = f"{chosen.path} -m pip install torch"
    if "torch" not in versions:
        remedy = (
            f"The workloads need it: {install}. Or activate the environment that has it, or name its Python: --python"
        )
        return Check("torch", "missing", f"not installed for {chosen.path}", remedy)
    try:
        version, cuda, available = tools.ask_python(chosen.path, _ASK_TORCH).split()[-3:]
    except ToolError as error:
        reason = error.hint.splitlines()[-1]
        return Check("torch", "broken", f"it cannot be imported: {reason}", f"Install it again: {install}")
    if available == "True":
        return Check("torch", "ok", f"{version}, CUDA {cuda}")
    if not tools.has_gpu():
        return Check("torch", "ok", f"{version}, CPU only, as this machine is")
    if cuda == "None":
        return Check("torch", "broken", f"{version} is built without CUDA", "Install a CUDA build: https://pytorch.org")
    remedy = f"The driver must be recent enough for CUDA {cuda}, and CUDA_VISIBLE_DEVICES must not hide the GPU."
    return Check("torch", "broken", f"{version} finds no GPU, though the driver does", remedy)


def _package(name: str, chosen: Interpreter, versions: Mapping[str, str], remedy: str) -> Check:
    if name not in versions:
        return Check(name, "missing", f"not installed for {chosen.path}", remedy)
    return Check(name, "ok", versions[name])
