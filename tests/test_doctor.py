"""Doctor on machines that lack everything, one thing, or nothing: programs are small scripts, /proc is a folder."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.collect.doctor import Check, abilities, examine
from tests.fake_tools.nvml import Gpu, nvml

NAMES = ["nsys", "privacy", "ncu", "counters", "gpu", "conditions", "python", "torch", "triton", "nvtx"]
PACKAGES = ("torch", "triton", "nvtx")
SMI_ANSWER = "case $1 in -L) echo 'GPU 0: NVIDIA H200';; *) echo 'NVIDIA H200, 580.159.04';; esac"
RESTRICTED = "RmMsg: \nRmProfilingAdminOnly: 1\n"
Install = Callable[[str, str], Path]
LOADER = "error while loading shared libraries: {}: cannot open shared object file: No such file or directory"


def check(name: str, *, nsys: Path | None = None) -> Check:
    (result,) = (result for result in examine(nsys=nsys) if result.name == name)
    return result


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def proc(machine: Path, parameters: str, capabilities: str) -> None:
    for name, text in {"driver/nvidia/params": parameters, "self/status": f"CapEff:\t{capabilities}\n"}.items():
        path = machine / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def bare_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Activate an environment in which nothing is installed but what a test wrote."""
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return script(tmp_path / "env/bin/python", f'exec {sys.executable} -S "$@"')


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a shell script on PATH, by name and body."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return lambda name, body: script(tmp_path / "bin" / name, body)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a Python module, by name and code; return the folder it is in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def install(name: str, code: str) -> Path:
        (folder / f"{name}.py").write_text(code)
        return folder

    return install


@pytest.mark.usefixtures("no_namespaces")
def test_bare_machine_lacks_everything_and_gets_remedies() -> None:
    checks = examine()

    assert [check.name for check in checks] == NAMES
    missing = [check for check in checks if check.name != "python"]
    assert {check.status for check in missing} == {"missing"}
    assert all(check.detail and check.remedy for check in missing)


def test_complete_machine_is_all_ok(
    machine: Path, program: Install, module: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc(machine, RESTRICTED, "000001ffffffffff")
    for name, body in {"nsys": "echo 2025.3.1", "ncu": "echo 2025.3.1", "nvidia-smi": SMI_ANSWER}.items():
        program(name, body)
    for name in PACKAGES:
        module(name, fake_torch("2.11.0", "13.0", available=True))
    monkeypatch.setitem(sys.modules, "pynvml", nvml(Gpu()))

    assert {check.status for check in examine() if check.name != "privacy"} == {"ok"}


@pytest.mark.parametrize(
    ("wrong", "lacking"),
    [
        ((), [(), (), (), (), ()]),
        (("nsys", "ncu", "counters", "gpu"), [(), (), ("gpu",), ("nsys", "gpu"), ("ncu", "counters", "gpu")]),
        (("torch",), [(), ("torch",), ("torch",), (), ()]),
    ],
)
def test_what_can_be_done_follows_from_the_checks(wrong: tuple[str, ...], lacking: list[tuple[str, ...]]) -> None:
    checks = [Check(name, "missing" if name in wrong else "ok", "") for name in NAMES]
    assert [ability.missing for ability in abilities(checks)] == lacking


# -- nsys and ncu -----------------------------------------------------------------------------------------------------


def test_nsys_that_works(program: Install) -> None:
    path = program("nsys", "echo NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")

    assert check("nsys") == Check("nsys", "ok", f"2025.3.1.90 at {path}")


def nsys_of_nsight_compute(machine: Path, library: str) -> Path:
    host = machine / "opt/nvidia/nsight-compute/2025.3.1/host"
    importer = host / "linux-desktop-glibc_2_11_3-x64" / "QdstrmImporter"
    script(importer, f"echo '{importer}: {LOADER.format(library)}' >&2; exit 127")
    return script(host / "target-linux-x64" / "nsys", "echo NVIDIA Nsight Systems version 2025.3.1.0")


def test_nsys_whose_importer_lacks_libdw(machine: Path) -> None:
    path = nsys_of_nsight_compute(machine, "libdw.so.1")

    result = check("nsys")

    assert result.status == "broken"
    assert result.detail.startswith(f"2025.3.1.0 at {path}, but its importer cannot load libdw.so.1: ")
    assert "Importer error status: An unknown error occurred." in result.detail
    assert "apt-get install libdw1" in result.remedy


def test_nsys_whose_importer_lacks_another_library(machine: Path) -> None:
    nsys_of_nsight_compute(machine, "libother.so.2")

    assert check("nsys").remedy == "Install the package that contains libother.so.2."


@pytest.mark.parametrize("body", ["echo 2025.3.1", "echo unknown option --version >&2; exit 1"])
def test_nsys_whose_importer_starts(machine: Path, body: str) -> None:
    nsys = nsys_of_nsight_compute(machine, "libdw.so.1")
    (importer,) = nsys.parent.parent.glob("*/QdstrmImporter")
    script(importer, body)

    assert check("nsys").status == "ok"


def test_importer_is_found_through_a_link(machine: Path, tmp_path: Path) -> None:
    link = tmp_path / "nsys"
    link.symlink_to(nsys_of_nsight_compute(machine, "libdw.so.1"))

    assert check("nsys", nsys=link).status == "broken"


def test_nsys_that_was_asked_for_and_is_not_there(tmp_path: Path) -> None:
    result = check("nsys", nsys=tmp_path / "absent")

    assert (result.status, str(tmp_path / "absent") in result.detail) == ("broken", True)
    assert result.remedy


@pytest.mark.parametrize("body", ["exit 3", "echo no number here", "kill -9 $$"])
@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_tool_that_cannot_say_its_version(program: Install, name: str, body: str) -> None:
    program(name, body)

    result = check(name)

    assert result.status == "broken"
    assert result.remedy


def test_ncu_that_works(program: Install) -> None:
    lines = r"NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880) (public-release)"
    path = program("ncu", f"printf '{lines}'")

    assert check("ncu") == Check("ncu", "ok", f"2025.3.1.0 at {path}")


# -- permission, driver and GPU ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "capabilities", "status"),
    [
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", "ok"),
        ("Mobile: 4294967295\n", "0000000000000000", "ok"),
        (RESTRICTED, "000001fffeffffff", "ok"),
        (RESTRICTED, "0000000000200000", "ok"),
        (RESTRICTED, "000001ffffdfffff", "broken"),
        (RESTRICTED, "0000000000000000", "broken"),
        (RESTRICTED, "unreadable", "broken"),
    ],
)
def test_who_may_read_counters(machine: Path, parameters: str, capabilities: str, status: str) -> None:
    proc(machine, parameters, capabilities)

    result = check("counters")

    assert result.status == status
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in result.remedy) == (status == "broken")


def test_one_gpu(program: Install) -> None:
    program("nvidia-smi", SMI_ANSWER)

    assert check("gpu") == Check("gpu", "ok", "NVIDIA H200, driver 580.159.04")


def test_several_gpus(program: Install) -> None:
    program("nvidia-smi", r"printf 'NVIDIA H200, 580.1\nNVIDIA T4, 580.1\nNVIDIA H200, 580.1\n'")

    assert check("gpu").detail == "2 × NVIDIA H200, driver 580.1; NVIDIA T4, driver 580.1"


@pytest.mark.parametrize(
    ("body", "status"), [("echo No devices were found", "missing"), ("echo NVIDIA-SMI has failed; exit 9", "broken")]
)
def test_driver_without_a_usable_gpu(program: Install, body: str, status: str) -> None:
    program("nvidia-smi", body)

    result = check("gpu")

    assert result.status == status
    assert result.remedy


# -- Python and its packages ------------------------------------------------------------------------------------------


def test_the_python_of_the_active_environment_is_looked_at_and_reported_as_another(bare_python: Path) -> None:
    result = check("python")

    assert result.status == "ok"
    assert f"at {bare_python} (of the active environment, VIRTUAL_ENV), not nightsight's own" in result.detail
    assert check("torch").detail == f"not installed for {bare_python}"
    assert "The workloads need it. " in check("torch").remedy
    assert "--python " in check("torch").remedy


def test_a_python_that_cannot_be_run_is_broken_and_has_nothing_installed() -> None:
    checks = {check.name: check for check in examine(python="/no/python")}

    assert (checks["python"].status, checks["torch"].status) == ("broken", "missing")
    assert checks["python"].remedy


def fake_torch(version: str, cuda: str | None, *, available: bool) -> str:
    return (
        "import types\n"
        f"__version__, version = {version!r}, types.SimpleNamespace(cuda={cuda!r})\n"
        f"cuda = types.SimpleNamespace(is_available=lambda: {available})\n"
    )


CUDA_TORCH = fake_torch("2.11.0+cu130", "13.0", available=True)
BLIND_TORCH = fake_torch("2.11.0+cu130", "13.0", available=False)
CPU_TORCH = fake_torch("2.11.0+cpu", None, available=False)


@pytest.mark.parametrize(
    ("torch", "has_gpu", "status", "detail"),
    [
        (CUDA_TORCH, True, "ok", "2.11.0+cu130, CUDA 13.0"),
        (BLIND_TORCH, False, "ok", "2.11.0+cu130, CPU only; this machine has no GPU"),
        (CPU_TORCH, False, "ok", "2.11.0+cpu, CPU only; this machine has no GPU"),
        (BLIND_TORCH, True, "broken", "2.11.0+cu130 finds no GPU, though the driver does"),
        (CPU_TORCH, True, "broken", "2.11.0+cpu is built without CUDA"),
    ],
)
def test_torch_and_the_machine(
    program: Install, module: Install, torch: str, *, has_gpu: bool, status: str, detail: str
) -> None:
    module("torch", torch)
    if has_gpu:
        program("nvidia-smi", SMI_ANSWER)

    result = check("torch")

    assert (result.status, result.detail) == (status, detail)
    assert bool(result.remedy) == (status == "broken")


def test_torch_that_cannot_be_imported(module: Install) -> None:
    module("torch", "raise ImportError('libcudart.so.13: cannot open')")

    result = check("torch")

    assert result.status == "broken"
    assert result.detail == "cannot be imported: ImportError: libcudart.so.13: cannot open"
    assert "pip install" in result.remedy


@pytest.mark.parametrize("name", ["triton", "nvtx"])
def test_package_is_found_without_importing_it(module: Install, name: str) -> None:
    information = module(name, "raise AssertionError('it was imported')") / f"{name}-9.8.7.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.8.7\n")

    assert check(name) == Check(name, "ok", "9.8.7")


def test_package_without_metadata(module: Install) -> None:
    module("nvtx", "")

    assert check("nvtx") == Check("nvtx", "ok", "unknown version")
