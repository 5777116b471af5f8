"""Checks what the collectors need on this machine, and how to fix what is missing or broken."""

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nightsight.collect import conditions, tools
from nightsight.collect.interpreter import Interpreter, install_hint, interpreter
from nightsight.collect.isolation import isolation
from nightsight.errors import ToolError
from nightsight.system.installing import Place, for_programs
from nightsight.units import counted

_ABILITIES: Final = (
    ("read captures from anywhere: report, stats, compare, fleet, history", ()),
    ("profile Python programs with torch.profiler", ("python", "torch")),
    ("... including GPU work", ("python", "torch", "gpu")),
    ("profile any program with nsys", ("nsys", "gpu")),
    ("replay kernels with ncu", ("ncu", "counters", "gpu")),
)
_NVIDIA: Final = "https://developer.nvidia.com/nsight"
_UNLOADABLE: Final = re.compile(r"error while loading shared libraries: ([^\s:]+)")
# reads the versions of packages without importing them, which takes seconds
_PROBE: Final = """
import importlib.metadata, importlib.util, json, platform, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"
names = [name for name in ("torch", "triton", "nvtx") if importlib.util.find_spec(name)]
place = [sys.prefix, sys.base_prefix, importlib.util.find_spec("pip") is not None]
versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
print(json.dumps({"place": place, "versions": versions}))
"""
_ASK_TORCH: Final = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


@dataclass(frozen=True)
class Check:
    """The result of one check; `remedy`: the fix if it is not ok."""

    name: str
    status: Literal["ok", "missing", "broken"]
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Ability:
    """Something that people do with nightsight, and which of the checks it needs fail."""

    name: str
    missing: tuple[str, ...]


def examine(*, nsys: Path | None = None, python: str | None = None) -> tuple[Check, ...]:
    """Check everything that the collectors need. Missing or broken tools are reported in a Check, never raised."""
    chosen = interpreter(python, lambda: ("torch",))
    python_check, place, versions = _python(chosen)
    return (
        _nsys(nsys),
        _privacy(),
        _tool("ncu", tools.find_ncu, "compute")[0],
        _counters(),
        _gpu(),
        _conditions(),
        python_check,
        _torch(place, versions),
        _package("triton", place, versions, "It comes with the CUDA builds of PyTorch for Linux."),
        _package("nvtx", place, versions, "Without it, nsys and ncu see no ranges in the workloads."),
    )


def abilities(checks: Sequence[Check]) -> tuple[Ability, ...]:
    """Return what this machine can do, according to the checks."""
    wrong = {check.name for check in checks if check.status != "ok"}
    return tuple(Ability(name, tuple(needed for needed in needs if needed in wrong)) for name, needs in _ABILITIES)


def _nsys(explicit: Path | None) -> Check:
    tool, path = _tool("nsys", lambda: tools.find_nsys(explicit), "systems")
    library = _unloadable_library(path) if path else ""
    if not library:
        return tool
    return Check(
        "nsys",
        "broken",
        f"{tool.detail}, but its importer cannot load {library}: nsys will print 'Importer error status: An unknown "
        "error occurred.' and write a .qdstrm file instead of a .nsys-rep",
        _remedy_for(library),
    )


def _privacy() -> Check:
    if isolation(Path(tempfile.gettempdir())):
        return Check("privacy", "ok", "nsys cannot see other processes (PID namespaces work)")
    return Check(
        "privacy",
        "missing",
        "this system does not allow PID namespaces, so nsys records the environment of other processes in its files",
        "Publish only report.html, not the files under capture/. To get PID namespaces, run as root or allow "
        "`unshare` in the container.",
    )


def _tool(name: str, find: Callable[[], Path | None], product: str) -> tuple[Check, Path | None]:
    try:
        path = find()
        if path is None:
            remedy = f"Install Nsight {product.title()} ({_NVIDIA}-{product}), or set {name.upper()}=/path/to/{name}"
            return Check(name, "missing", "not on PATH and not in NVIDIA's folders", remedy), None
        return Check(name, "ok", f"{tools.tool_version(path)} at {path}"), path
    except ToolError as error:
        return Check(name, "broken", error.message, error.hint), None


def _unloadable_library(nsys: Path) -> str:
    """Return the missing library that keeps nsys's importer from starting; "" if it starts, or is not next to nsys.

    Without the library, nsys still answers `--version` and profiles, but writes no report.
    """
    for importer in sorted(nsys.resolve().parent.parent.glob("*/QdstrmImporter")):
        try:
            tools.ask([str(importer), "--version"])
        except ToolError as error:
            if match := _UNLOADABLE.search(error.hint):
                return match[1]
    return ""


def _remedy_for(library: str) -> str:
    if not library.startswith("libdw."):
        return f"Install the package that contains {library}."
    return (
        "apt-get install libdw1 (Debian, Ubuntu) or dnf install elfutils-libs (Fedora, RHEL). "
        "Offline: copy the packages libdw1 and libelf1 here, unpack each with dpkg -x FILE.deb / and run ldconfig."
    )


def _counters() -> Check:
    """Check access to the GPU's performance counters: ncu needs it, nsys only for --gpu-metrics."""
    parameters = tools.read_system("proc/driver/nvidia/params")
    if not parameters:
        return Check("counters", "missing", "no NVIDIA driver is loaded", "ncu needs an NVIDIA GPU and its driver.")
    if tools.may_read_counters():
        restricted = re.search(r"^RmProfilingAdminOnly: *1", parameters, re.MULTILINE)
        whose = "only administrators may read GPU performance counters; this process has CAP_SYS_ADMIN"
        return Check("counters", "ok", whose if restricted else "every user may read GPU performance counters")
    return Check(
        "counters",
        "broken",
        "only administrators may read GPU performance counters (RmProfilingAdminOnly: 1), and this process lacks "
        "CAP_SYS_ADMIN: ncu and profile --gpu-metrics will fail with ERR_NVGPUCTRPERM",
        tools.ALLOW_COUNTERS,
    )


def _gpu() -> Check:
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        remedy = "Install the NVIDIA driver. Without a GPU, you can still create reports of other machines' captures."
        return Check("gpu", "missing", "nvidia-smi is not on PATH: no NVIDIA driver is installed", remedy)
    try:
        answer = tools.ask([nvidia_smi, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    except ToolError as error:
        return Check(
            "gpu", "broken", error.message, "Run nvidia-smi by hand. You may need to reload the driver or reboot."
        )
    gpus = Counter(line.strip().replace(", ", ", driver ") for line in answer.splitlines() if "," in line)
    if not gpus:
        return Check("gpu", "missing", "nvidia-smi lists no GPU", "In a container, pass the GPUs through: --gpus all")
    kinds = [gpu if count == 1 else f"{count} × {gpu}" for gpu, count in gpus.items()]
    return Check("gpu", "ok", "; ".join(kinds))


def _conditions() -> Check:
    """Check NVML, which reports the state of the GPUs during a measurement."""
    try:
        gpus = conditions.current_state()
    except ToolError as error:
        return Check("conditions", "broken" if tools.has_gpu() else "missing", error.message, error.hint)
    if not gpus:
        return Check("conditions", "missing", "NVML lists no GPU", "In a container, pass the GPUs through: --gpus all")
    unreported = [name for name in ("busy_pct", "sm_mhz", "temperature_c", "power_w") if getattr(gpus[0], name) is None]
    facts = [f"logs clocks, temperature, power and other processes of {counted(len(gpus), 'GPU')}"]
    facts += [f"not reported by the driver: {', '.join(unreported)}"] * bool(unreported)
    facts += [f"MIG {gpu.mig}" for gpu in gpus if gpu.mig]
    facts += [f"GPU {gpu.device} is shared with other processes" for gpu in gpus if gpu.is_shared]
    return Check("conditions", "ok", "; ".join(facts))


def _python(chosen: Interpreter) -> tuple[Check, Place, dict[str, str]]:
    """Check the Python that runs workloads and scripts; also return its place and package versions."""
    try:
        facts = json.loads(tools.ask_python(chosen.path, _PROBE))
    except ToolError as error:
        unknown = Place(chosen.path, "", "", has_pip=False)
        remedy = "Activate another environment, or choose a working Python: --python PATH"
        return Check("python", "broken", f"{chosen.path} ({chosen.reason}): {error.message}", remedy), unknown, {}
    whose = "" if chosen.is_own else ", not nightsight's own"
    versions: dict[str, str] = facts["versions"]
    check = Check("python", "ok", f"{versions['python']} at {chosen.path} ({chosen.reason}){whose}")
    return check, Place(chosen.path, *facts["place"]), versions


def _torch(place: Place, versions: Mapping[str, str]) -> Check:
    if "torch" not in versions:
        return _missing_package("torch", place, "The workloads need it.")
    try:
        # the last three words: importing torch may print something first
        version, cuda, available = tools.ask_python(place.python, _ASK_TORCH).split()[-3:]
    except ToolError as error:
        reason = error.hint.splitlines()[-1]
        return Check(
            "torch", "broken", f"cannot be imported: {reason}", f"Reinstall it. {for_programs(place, 'torch')}"
        )
    if available == "True":
        return Check("torch", "ok", f"{version}, CUDA {cuda}")
    if not tools.has_gpu():
        return Check("torch", "ok", f"{version}, CPU only; this machine has no GPU")
    if cuda == "None":
        return Check("torch", "broken", f"{version} is built without CUDA", "Install a CUDA build: https://pytorch.org")
    remedy = f"Check that the driver is recent enough for CUDA {cuda}, and that CUDA_VISIBLE_DEVICES shows the GPU."
    return Check("torch", "broken", f"{version} finds no GPU, though the driver does", remedy)


def _package(name: str, place: Place, versions: Mapping[str, str], reason: str) -> Check:
    return Check(name, "ok", versions[name]) if name in versions else _missing_package(name, place, reason)


def _missing_package(name: str, place: Place, reason: str) -> Check:
    return Check(name, "missing", f"not installed for {place.python}", f"{reason} {install_hint(name, place)}")
