"""The native workload: which GPUs it is built for, what is kept of a build, and how its program is started."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect.workloads import PACKAGE
from nightsight.model.report import Report
from workloads import unified_memory
from workloads.contract import CannotRun
from workloads.unified_memory import CAPABILITIES, architectures, gpus

FAKE_NVCC = Path(__file__).parent / "fake_tools" / "nvcc.py"
Install = Callable[..., Path]
Start = Callable[..., "subprocess.CompletedProcess[str]"]

KNOWN = "75 80 86 87 88 89 90 100 110 103 120 121"
# as nvidia-smi prints them
NAMES = {
    "Tesla V100-SXM2-16GB": "7.0",
    "Tesla T4": "7.5",
    "NVIDIA A100-SXM4-80GB": "8.0",
    "NVIDIA A100 80GB PCIe": "8.0",
    "NVIDIA A30": "8.0",
    "NVIDIA GeForce RTX 3090 Ti": "8.6",
    "NVIDIA GeForce RTX 3080 Laptop GPU": "8.6",
    "NVIDIA L4": "8.9",
    "NVIDIA L40": "8.9",
    "NVIDIA L40S": "8.9",
    "NVIDIA GeForce RTX 4090": "8.9",
    "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA H100 NVL": "9.0",
    "NVIDIA H200": "9.0",
    "NVIDIA GH200 480GB": "9.0",
    "NVIDIA B200": "10.0",
    "NVIDIA GB200": "10.0",
    "NVIDIA GeForce RTX 5090": "12.0",
}
# names that resemble those of the table: these cards are of other architectures
OTHERS = (
    "Quadro RTX 4000",
    "NVIDIA RTX 5000 Ada Generation",
    "NVIDIA T400",
    "NVIDIA A10",
    "NVIDIA B2000",
    "Tesla P100",
)


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a fake CUDA toolkit, and a fake nvidia-smi that lists GPUs (the driver tells their architecture)."""

    def install(
        *listed: str,
        behavior: str = "ok",
        release: str = "13.0",
        known: str = KNOWN,
        status: int = 0,
        says: bool = True,
    ) -> Path:
        home, programs = tmp_path / "cuda", tmp_path / "smi"
        for folder in (home / "bin", programs):
            folder.mkdir(parents=True, exist_ok=True)
        lines = listed or ("NVIDIA H200, 9.0",)
        names = [line.partition(", ")[0] for line in lines]
        asked = "".join(f"{line}\\n" for line in lines)
        refused = 'Field \\"compute_cap\\" is not a valid field to query.'
        smi = f"""#!/bin/sh
case "$1" in
  -L) printf 'GPU 0: {names[0]} (UUID: GPU-0)\\n' ;;
  --query-gpu=name,compute_cap) {f"printf '{asked}'" if says else f"echo '{refused}'; exit 2"} ;;
  --query-gpu=name) printf '{"".join(f"{name}{chr(92)}n" for name in names)}' ;;
  *) exit 2 ;;
esac
"""
        nvcc = home / "bin" / "nvcc"
        nvcc.write_text(f"#!{sys.executable}\n{FAKE_NVCC.read_text()}")
        (programs / "nvidia-smi").write_text(smi)
        for program in (nvcc, programs / "nvidia-smi"):
            program.chmod(0o755)
        settings = {"behavior": behavior, "release": release, "known": known, "status": status}
        nvcc.with_name("nvcc.json").write_text(json.dumps(settings))
        monkeypatch.setenv("CUDA_HOME", str(home))
        monkeypatch.delenv("CXX", raising=False)
        if str(programs) not in os.environ["PATH"]:
            monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        return nvcc

    return install


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run the workload, as nightsight does."""

    def run(*options: object, expect: int = 0) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(PACKAGE), "workloads.unified_memory", *map(str, options)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == expect, done.stderr
        return done

    return run


def builds(nvcc: Path) -> list[list[str]]:
    """Return the arguments of each build."""
    record = nvcc.with_name("built.jsonl")
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def built_for(arguments: list[str]) -> list[str]:
    return [after for before, after in pairwise(arguments) if before == "-gencode"]


# -- which GPU it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "capability"), NAMES.items())
def test_the_table_knows_a_gpu_by_its_name_where_the_driver_does_not_say(
    toolkit: Install, name: str, capability: str
) -> None:
    toolkit(name, says=False)
    assert gpus() == {name: capability}


def test_every_row_of_the_table_is_tried() -> None:
    assert set(NAMES.values()) == set(CAPABILITIES.values())


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_only_resembles_one_of_the_table_is_unknown(toolkit: Install, name: str) -> None:
    toolkit(name, says=False)
    with pytest.raises(CannotRun, match=f"the architecture of {name} is unknown"):
        gpus()


@pytest.mark.parametrize("answer", ["[N/A]", "[Not Supported]", ""])
def test_a_driver_that_says_nothing_is_no_reason_to_give_up(toolkit: Install, answer: str) -> None:
    toolkit(f"NVIDIA H200, {answer}")
    assert gpus() == {"NVIDIA H200": "9.0"}


def test_the_driver_is_believed_and_a_contradiction_is_reported(
    toolkit: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    toolkit("NVIDIA A40, 8.6", "NVIDIA L4, 8.6")
    assert gpus() == {"NVIDIA A40": "8.6", "NVIDIA L4": "8.6"}
    assert capsys.readouterr().err == "the table says 8.9 of NVIDIA L4, but its driver 8.6: taking that\n"


@given(listed=st.text())
def test_whatever_nvidia_smi_lists_there_are_architectures_or_one_reason(listed: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unified_memory, "output_of", lambda *_: listed.strip())
        try:
            capabilities = gpus()
        except CannotRun as reason:
            assert len(str(reason).splitlines()) == 1
            return
    assert capabilities
    assert all(float(capability) > 0 for capability in capabilities.values())


# -- what it is built for ---------------------------------------------------------------------------------------------


def test_it_is_built_for_the_gpus_at_hand(toolkit: Install, start: Start) -> None:
    nvcc = toolkit("NVIDIA H200, 9.0", "NVIDIA H200, 9.0", "Tesla T4, 7.5")
    start()
    (arguments,) = builds(nvcc)
    assert built_for(arguments) == ["arch=compute_75,code=sm_75", "arch=compute_90,code=sm_90"]


def test_a_fat_binary_has_all_that_nvcc_knows_and_ptx_of_the_newest(toolkit: Install, start: Start) -> None:
    nvcc = toolkit()
    assert start("--fatbin").stdout.startswith("not built for 7.0, which nvcc 13.0 does not know\n")
    (arguments,) = builds(nvcc)
    numbers = (75, 80, 86, 89, 90, 100, 120)
    ptx = "arch=compute_120,code=compute_120"
    assert built_for(arguments) == [*(f"arch=compute_{number},code=sm_{number}" for number in numbers), ptx]


def test_an_nvcc_that_does_not_list_what_it_knows_is_tried(toolkit: Install) -> None:
    nvcc = toolkit(known="")
    assert architectures({"NVIDIA H200": "9.0"}, str(nvcc), is_fat=False) == ["-gencode", "arch=compute_90,code=sm_90"]


def test_a_gpu_newer_than_nvcc_runs_the_ptx_of_a_fat_binary(toolkit: Install) -> None:
    nvcc = str(toolkit(known="75 80 90", release="12.0"))
    capabilities = {"NVIDIA B200": "10.0"}
    with pytest.raises(CannotRun, match=r"nvcc 12.0 cannot build for NVIDIA B200 \(architecture 10.0\): use a newer"):
        architectures(capabilities, nvcc, is_fat=False)
    assert built_for(architectures(capabilities, nvcc, is_fat=True))[-2:] == [
        "arch=compute_90,code=sm_90",
        "arch=compute_90,code=compute_90",
    ]


@pytest.mark.parametrize("is_fat", [False, True])
def test_a_gpu_that_is_too_old_for_nvcc(toolkit: Install, *, is_fat: bool) -> None:
    with pytest.raises(CannotRun, match=r"cannot build for Tesla V100-SXM2-16GB \(architecture 7.0\): use an older"):
        architectures({"Tesla V100-SXM2-16GB": "7.0"}, str(toolkit()), is_fat=is_fat)


# -- what is kept -----------------------------------------------------------------------------------------------------


def kept(machine: Path) -> list[str]:
    return sorted(path.name for path in (machine / "cache" / "nightsight").iterdir())


def test_what_was_built_is_not_built_again(toolkit: Install, start: Start, machine: Path) -> None:
    nvcc = toolkit()
    first, second = start(), start("--size", 5)
    assert len(builds(nvcc)) == 1
    ((_, name),) = {tuple(map(str, json.loads(done.stdout))) for done in (first, start())}
    assert kept(machine) == [name]
    assert json.loads(second.stdout)[1] == name


def test_another_gpu_nvcc_or_source_is_another_program(
    toolkit: Install, start: Start, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = toolkit()
    start()
    toolkit("Tesla T4, 7.5")
    start()
    toolkit(release="12.9")
    start()
    source = tmp_path / "unified_memory.cu"
    source.write_text("another")
    monkeypatch.setattr(unified_memory, "SOURCE", source)
    unified_memory.build(str(nvcc), ["-gencode", "arch=compute_90,code=sm_90"])
    assert len(kept(machine)) == len(builds(nvcc)) == 4


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        ("no compiler", "gcc: No such file or directory"),
        ("broken source", '/x/unified_memory.cu(1): error: identifier "fooo" is undefined'),
        ("no header", "/x/unified_memory.cu:9:10: fatal error: nvtx3/nvToolsExt.h: No such file or directory"),
        ("silent", "exit status 1"),
    ],
)
def test_a_build_that_fails_is_one_line_and_leaves_nothing(
    toolkit: Install, start: Start, machine: Path, behavior: str, reason: str
) -> None:
    toolkit(behavior=behavior)
    (line,) = start(expect=2).stderr.splitlines()
    assert line == f"unified_memory: error: nvcc could not build the program: {reason} (see --help)"
    assert kept(machine) == []


def test_a_folder_that_cannot_be_written_to(toolkit: Install, start: Start, machine: Path) -> None:
    toolkit()
    (machine / "cache").mkdir(exist_ok=True)
    (machine / "cache" / "nightsight").write_text("a file")
    (line,) = start(expect=2).stderr.splitlines()
    assert "the program cannot be kept in" in line
    assert "set XDG_CACHE_HOME" in line


# -- how it is run ----------------------------------------------------------------------------------------------------


def test_the_program_takes_the_place_of_its_builder(toolkit: Install, start: Start) -> None:
    toolkit()
    done = start("--size", 10, "--iterations", 3, "--warmup", 0, "--part", "prefetched")
    assert json.loads(done.stdout)[0] == ["10", "3", "0", "0", "prefetched"]


def test_the_benchmark_is_that_of_the_program(toolkit: Install, start: Start, tmp_path: Path) -> None:
    toolkit()
    done = start("--size", 10, "--trials", 3, "--iterations", 2, "--benchmark", "bench.json")
    document = json.loads((tmp_path / "bench.json").read_text())
    assert document == {
        "step_ns": [1000.5, 1001.5, 1002.5],
        "steps_per_trial": 2,
        "parameters": {
            "iterations": "2",
            "warmup": "5",
            "seed": "0",
            "device": "auto",
            "trials": "3",
            "size": "10",
            "part": "all",
            "fatbin": "False",
        },
        "facts": {"device": "cuda", "device_name": "NVIDIA H200", "cuda": "13.0"},
    }
    assert "(3 trials of 2 steps)" in done.stdout


@pytest.mark.parametrize("options", [(), ("--benchmark", "bench.json")])
def test_how_the_program_fails_is_how_the_workload_fails(
    toolkit: Install, start: Start, tmp_path: Path, options: tuple[str, ...]
) -> None:
    toolkit(status=2)
    assert start(*options, expect=2).stderr == "unified_memory: error: no GPU can be used\n"
    assert not (tmp_path / "bench.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--device", "cpu"), "without a GPU no pages move"),
        (("--size", "0"), "argument --size: 0 is less than 1"),
        (("--size", 1 << 60), f"argument --size: {1 << 60} is more than"),
        (("--part", "two-threads"), "argument --part: invalid choice: 'two-threads'"),
    ],
)
def test_wrong_options_are_one_line(toolkit: Install, start: Start, options: tuple[str, ...], words: str) -> None:
    toolkit()
    (line,) = start(*options, expect=2).stderr.splitlines()
    assert words in line


def test_without_a_gpu_there_is_one_line(toolkit: Install, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    toolkit()
    monkeypatch.setenv("PATH", path)
    (line,) = start(expect=2).stderr.splitlines()
    assert "no NVIDIA GPU was found" in line


def test_without_nvcc_there_is_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CannotRun, match="nvcc was not found: install the CUDA toolkit, or set CUDA_HOME"):
        unified_memory.find_nvcc()


# -- under nightsight -------------------------------------------------------------------------------------------------

Run = Callable[..., Result]


def test_its_page_faults_are_recorded_without_being_asked_for(
    run: Run, toolkit: Install, fake_nsys: Install, tmp_path: Path, script: Callable[..., Path]
) -> None:
    toolkit()
    nsys = fake_nsys(export="unified_memory/unified_memory.sqlite.xz")
    seen = tmp_path / "seen"
    real = nsys.rename(nsys.with_name("real"))
    nsys.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec {real} "$@"\n')
    nsys.chmod(0o755)
    options = ("--no-ncu", "--no-calibrate", "--capture-range", "none")
    run("profile", *options, "--page-faults", "--memory-usage", "unified_memory", "--", "--iterations", "2")
    (command,) = [line for line in seen.read_text().splitlines() if line.startswith("profile -o")]
    for option in ("--cuda-um-cpu-page-faults=true", "--cuda-um-gpu-page-faults=true", "--cuda-memory-usage=true"):
        assert command.count(option) == 1
    (path,) = tmp_path.glob("reports/unified_memory/2*/report.json")
    report = Report.from_json(path.read_text())
    assert report.benchmark is not None
    assert report.benchmark.step_ns[0] == 1000.5
    table = report.result("unified_memory").table
    assert table is not None
    assert {"CPU page faults", "GPU page faults"} <= set(table["event"])


@pytest.mark.parametrize("with_nsys", [False, True])
def test_torch_is_never_chosen_for_it(run: Run, toolkit: Install, fake_nsys: Install, *, with_nsys: bool) -> None:
    toolkit()
    refused = run("profile", "--collector", "torch", "unified_memory", expect=3)
    assert "--collector torch cannot profile unified_memory: it is not a Python program" in refused.stderr
    if with_nsys:
        fake_nsys()
    else:
        assert "nsys was not found" in run("profile", "unified_memory", expect=3).stderr


def test_what_the_workload_refuses_is_what_nightsight_says(
    run: Run, toolkit: Install, fake_nsys: Install, gpu: None
) -> None:
    toolkit(behavior="no compiler")
    fake_nsys()
    stderr = run("profile", "unified_memory", expect=1).stderr
    assert "nvcc could not build the program: gcc: No such file or directory" in stderr


# -- the program itself, on a CUDA that runs on the CPU ---------------------------------------------------------------

FAKE_CUDA = Path(__file__).parent / "fake_tools" / "cuda"
FILLED = ["<fill", ">"]
ONE, MANY = (["<add", f"launch {launch}", ">"] for launch in ("1 x 1", "4 x 256"))
CHECKED = ["<check", ">"]
BACK, THERE = (["<prefetch", f"to {side}", f"to {side}", ">"] for side in ("host", "device"))
IN_PART = {
    "one-thread": ["<one thread", *FILLED, *ONE, *CHECKED, ">"],
    "many-threads": ["<many threads", *FILLED, *MANY, *CHECKED, ">"],
    "prefetched": ["<prefetched", *BACK, *FILLED, *THERE, *MANY, *BACK, *CHECKED, ">"],
}


@pytest.fixture(scope="module", params=[12040, 13000])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the real source with a C++ compiler, for both forms that cudaMemPrefetchAsync has had."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("program")
    source, count = re.subn(r"\badd<<<(.+?)>>>\(", r"emulated(\1, add, ", unified_memory.SOURCE.read_text())
    assert count == 2
    (folder / "program.cpp").write_text(source)
    options = [
        f"-I{FAKE_CUDA}",
        f"-DCUDART_VERSION={request.param}",
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    subprocess.run([compiler, *options, "-o", folder / "program", folder / "program.cpp"], check=True)
    return folder / "program"


def started(
    program: Path, *arguments: object, trouble: str = "", expect: int = 0
) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "FAKE_CUDA": trouble}
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr
    return done


@pytest.mark.parametrize("part", [*IN_PART, "all"])
def test_each_part_does_what_its_ranges_say(program: Path, part: str) -> None:
    done = started(program, 1000, 2, 1, 0, part)
    inside = [line for name, lines in IN_PART.items() if part in (name, "all") for line in lines]
    measured = ["start", "<measure", *(2 * ["<step", *inside, ">"]), ">", "stop"]
    assert done.stderr.splitlines() == ["<warmup", *inside, ">", *measured]
    assert done.stdout == "2 steps on NVIDIA H200\n"


def test_a_benchmark_is_the_name_of_the_gpu_and_a_time_for_each_trial(program: Path) -> None:
    done = started(program, 1000, 2, 0, 3, "all")
    name, *step_ns = done.stdout.splitlines()
    assert name == "NVIDIA H200"
    assert [float(text) > 0 for text in step_ns] == [True] * 3
    assert not {"start", "stop", "<step"} & set(done.stderr.splitlines())
    assert done.stderr.count("launch 1 x 1") == 6


@pytest.mark.parametrize(
    ("elements", "trouble", "status", "words"),
    [
        (1000, "no device", 2, "no GPU can be used: no such thing"),
        (1000, "no migration", 2, "here pages do not move on demand"),
        (1000, "no kernel", 2, "add: no such thing"),
        (1000, "fault", 1, "add: unknown error"),
        (1000, "lost work", 1, "one thread: 1000 of 1000 elements are not 3"),
        (12_500, "", 0, ""),
        (12_501, "", 2, "--size 12501 needs 0.0001 GB of managed memory, and at most 0.0001 GB are used"),
        (1 << 48, "", 2, f"--size {1 << 48} needs 2.252e+06 GB"),
    ],
)
def test_what_goes_wrong_is_one_line(program: Path, elements: int, trouble: str, status: int, words: str) -> None:
    lines = started(program, elements, 1, 0, 0, "all", trouble=trouble, expect=status).stderr.splitlines()
    errors = [line for line in lines if line.startswith("unified_memory: error: ")]
    assert len(errors) == bool(status)
    assert words in "".join(errors)


def test_the_program_alone_names_what_starts_it(program: Path) -> None:
    assert "it is started by unified_memory.py" in started(program, expect=2).stderr


# -- nvcc itself, where there is one ----------------------------------------------------------------------------------

NVCC = shutil.which("nvcc")


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_nvcc_builds_it(machine: Path) -> None:
    assert NVCC is not None
    wanted = architectures({"NVIDIA GPU": "8.0"}, NVCC, is_fat=False)
    built = unified_memory.build(NVCC, wanted)
    assert kept(machine) == [built.name]
    # without a GPU it says so in a line
    done = subprocess.run([str(built), "100", "1", "0", "0", "all"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or len(done.stderr.splitlines()) == 1
