"""Finding tools, cleaning the environment, and running something so that nothing of it is left."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect import guard, process
from nightsight.collect.process import Child, Outcome, last_lines, run_logged
from nightsight.collect.tools import (
    allowed_environment,
    find_ncu,
    find_nsys,
    has_gpu,
    tool_version,
    withheld_variables,
    writable_folder,
)
from nightsight.errors import CaptureError, ToolError
from tests.conftest import is_alive


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Outcome]:
    def run(script: str, *, timeout_s: float = 20.0, verbose: bool = False) -> Outcome:
        command = [sys.executable, "-c", script]
        environment = {**os.environ, "TEST_FOLDER": str(tmp_path)}
        return run_logged(Child(command, environment), log=tmp_path / "log", timeout_s=timeout_s, verbose=verbose)

    return run


def test_a_bare_machine_has_no_tools_and_no_gpu() -> None:
    assert find_nsys() is None
    assert find_ncu() is None
    assert not has_gpu()


def test_explicit_before_variable_before_path_before_folders(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder = make_program(machine / "usr/local/cuda/bin/nsys")
    assert find_nsys() == in_folder
    on_path = make_program(tmp_path / "bin/nsys")
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.environ['PATH']}")
    assert find_nsys() == on_path
    named = make_program(tmp_path / "named")
    monkeypatch.setenv("NSYS", str(named))
    assert find_nsys() == named
    explicit = make_program(tmp_path / "explicit")
    assert find_nsys(explicit) == explicit


def test_newest_of_a_folder_and_the_full_package_before_the_one_inside_ncu(machine: Path) -> None:
    inside_ncu = make_program(machine / "opt/nvidia/nsight-compute/2026.1.0/host/target-linux-x64/nsys")
    assert find_nsys() == inside_ncu
    make_program(machine / "opt/nvidia/nsight-systems/2025.9.1/bin/nsys")
    newest = make_program(machine / "opt/nvidia/nsight-systems/2025.10.1/bin/nsys")
    make_program(machine / "opt/nvidia/nsight-systems/2026.1.1/bin/nsys").chmod(0o644)
    assert find_nsys() == newest
    assert find_ncu() is None
    ncu = make_program(machine / "opt/nvidia/nsight-compute/2026.1.0/ncu")
    assert find_ncu() == ncu


def test_a_tool_asked_for_by_name_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match=r"nowhere/nsys is not an executable file") as raised:
        find_nsys(tmp_path / "nowhere/nsys")
    assert raised.value.hint == "Correct or remove --nsys."
    monkeypatch.setenv("NCU", str(tmp_path))
    with pytest.raises(ToolError) as raised:
        find_ncu()
    assert raised.value.hint == "Correct or remove $NCU."


def test_version_of_nsys_and_ncu(fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    assert tool_version(fake_nsys()) == "2025.3.1.0"
    words = "Copyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36398880)"
    assert tool_version(make_program(tmp_path / "ncu", f"#!/bin/sh\necho '{words}'\n")) == "2025.3.1.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho hello\n", "prints no version"),
        ("#!/bin/sh\necho libdw.so.1 is missing >&2; exit 127\n", "failed with exit status 127"),
        ("#!/no/such/interpreter\n", "cannot start .*: No such file"),
        ("\x7fELF of another machine", "cannot start .*: Exec format error"),
    ],
)
def test_a_tool_that_cannot_say_its_version(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        tool_version(make_program(tmp_path / "nsys", text))


def test_gpu_by_the_drivers_list(gpu: None) -> None:
    assert has_gpu()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'", True), ("echo 'No devices were found'; exit 6", False)],
)
def test_nvidia_smi_has_the_last_word(
    *, gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: bool
) -> None:
    make_program(tmp_path / "nvidia-smi", f"#!/bin/sh\n{answer}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert has_gpu() is expected


@pytest.mark.parametrize(
    ("name", "keep", "passes"),
    [
        ("CUDA_VISIBLE_DEVICES", (), True),
        ("NCCL_NVLS_ENABLE", (), True),
        ("LC_ALL", (), True),
        ("PYTHONHASHSEED", (), True),
        ("PYTHONSTARTUP", (), False),
        ("PYTHONSTARTUP", ("PYTHONSTARTUP",), True),
        ("USER", (), False),
        # families that are too large to list, or grow with each version
        *((name, (), True) for name in ("OMPI_MCA_plm", "PMIX_MCA_gds", "PMIX_SERVER_URI41", "SLURM_JOB_ID")),
        *((name, (), True) for name in ("HF_HOME", "HF_HUB_OFFLINE", "XLA_FLAGS", "JAX_PLATFORMS", "CUPY_CACHE_DIR")),
        *(
            (name, (), False)
            for name in ("SLURM_JWT", "HF_TOKEN", "VLLM_API_KEY", "OMPI_PASSWORD", "SLURMX", "MYHF_HOME")
        ),
        ("WANDB_MODE", (), False),
        ("WANDB_MODE", ("WANDB_*",), True),
        ("WANDB_MODE", ("WANDB",), False),
        ("HF_TOKEN", ("HF_*",), False),
        ("HF_TOKEN", ("HF_TOKEN",), True),
        ("NVIDIA_API_KEY", (), False),
        ("TORCH_password", (), False),
        ("AWS_SECRET_ACCESS_KEY", ("*",), False),
        ("CUDA_PAT", (), False),
        ("TORCH_AUTH", (), False),
        ("PYTHON_PASS", (), False),
        ("LC_SESSION", (), False),
        ("NCCL_ANYTHING", (), False),
        ("PYTHONPATH", (), True),
        ("NCCL_IB_PKEY", (), True),
        ("CUBLAS_WORKSPACE_CONFIG", (), True),
        ("TORCHINDUCTOR_CACHE_DIR", (), True),
        ("MY_PATH", ("MY_*",), True),
        ("MY_AUTHOR", ("MY_*",), True),
        ("XAUTHORITY", ("X*",), True),
        ("MY_PAT", ("MY_*",), False),
        ("MY_PAT", ("MY_PAT",), True),
        ("MY_PAT_2", ("MY_*",), False),
        ("MY_SSHPASS", ("MY_*",), False),
        ("MY_AUTH_HEADER", ("MY_*",), False),
        ("MY_AUTHORIZATION", ("MY_*",), False),
        ("MY_CRED", ("MY_*",), False),
        ("MY_COOKIES", ("MY_*",), False),
        ("MY_SESSION_ID", ("MY_*",), False),
    ],
)
def test_only_allowed_variables_pass(
    *, monkeypatch: pytest.MonkeyPatch, name: str, keep: tuple[str, ...], passes: bool
) -> None:
    monkeypatch.setenv(name, "value")
    assert (allowed_environment(keep).get(name) == "value") is passes


@pytest.mark.parametrize(
    ("value", "passes"), [("redis://u:hush@host/0", False), ("https://hush@host", False), ("file://host/a@b", True)]
)
def test_a_url_that_names_a_user_passes_only_by_name(
    monkeypatch: pytest.MonkeyPatch, value: str, *, passes: bool
) -> None:
    for name in ("TORCH_HOME", "HF_ENDPOINT", "MY_URL"):
        monkeypatch.setenv(name, value)
        assert (name in allowed_environment(["MY_*"])) is passes
        assert allowed_environment([name])[name] == value


def test_what_steers_cuda_or_torch_and_is_withheld_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_NEW_OPTION", "TORCH_AUTH", "NCCL_DEBUG", "MY_OWN"):
        monkeypatch.setenv(name, "1")
    assert {"NCCL_NEW_OPTION", "TORCH_AUTH"} <= set(withheld_variables())
    assert not {"NCCL_DEBUG", "MY_OWN"} & set(withheld_variables())
    assert "NCCL_NEW_OPTION" not in withheld_variables(["NCCL_*"])


def test_output_and_status_are_kept(run: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = run("import os, sys; print('out'); sys.stdout.flush(); os.write(2, b'err\\n'); sys.exit(3)")
    assert (outcome.status, outcome.ok, outcome.stopped) == (3, False, False)
    assert outcome.ending == "ended with exit status 3"
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_a_signal_has_its_shell_status_and_its_name(run: Callable[..., Outcome]) -> None:
    outcome = run("import os; os.abort()")
    assert outcome.status == 134
    assert outcome.ending == "was terminated by SIGABRT (exit status 134)"


def test_verbose_passes_the_output_on(run: Callable[..., Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("print('step 1')").ok
    assert capsys.readouterr().err == ""
    assert run("print('step 1')", verbose=True).ok
    assert capsys.readouterr().err == "step 1\n"


def test_stdin_is_empty(run: Callable[..., Outcome]) -> None:
    assert run("import sys; sys.exit(len(sys.stdin.read()))").ok


LEAVES_A_CHILD = """
import os, subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
child = subprocess.Popen(sleep, start_new_session=True)
open(os.environ["TEST_FOLDER"] + "/child", "w").write(str(child.pid))
"""


def test_a_grandchild_in_another_session_neither_blocks_nor_survives(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcome = run(LEAVES_A_CHILD)
    assert outcome.ok
    assert outcome.seconds < 10
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_an_unrelated_process_is_left_alone(run: Callable[..., Outcome]) -> None:
    with subprocess.Popen(["sleep", "60"], env={"NIGHTSIGHT_RUN": "another"}) as other:
        assert run("pass").ok
        assert is_alive(other.pid)
        other.kill()


SAVES_AT_SIGINT = """
import os, time
folder = os.environ["TEST_FOLDER"]
try:
    open(folder + "/ready", "w").close()
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(0.3)
    open(folder + "/saved", "w").close()
"""


def test_at_the_time_limit_there_is_time_to_save(run: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = run(SAVES_AT_SIGINT, timeout_s=1)
    assert (outcome.timed_out, outcome.interrupted, outcome.ok) == (True, False, False)
    assert outcome.ending == "was stopped after 1 s"
    assert (tmp_path / "saved").exists()


IGNORES = """
import os, signal, time
for name in {names}:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
open(os.environ["TEST_FOLDER"] + "/ready", "w").close()
time.sleep(300)
"""


@pytest.mark.parametrize(("names", "status"), [(["SIGINT"], 143), (["SIGINT", "SIGTERM"], 137)])
def test_what_ignores_a_signal_gets_the_next(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, names: list[str], status: int
) -> None:
    monkeypatch.setattr(process, "_REACT_S", 0.2)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.2)
    outcome = run(IGNORES.format(names=names), timeout_s=1)
    assert outcome.status == status
    assert outcome.timed_out


def test_interrupt_gives_time_to_save(
    run: Callable[..., Outcome], interrupt: Callable[..., None], tmp_path: Path
) -> None:
    interrupt(tmp_path / "ready")
    outcome = run(SAVES_AT_SIGINT)
    assert (outcome.timed_out, outcome.interrupted) == (False, True)
    assert outcome.ending.startswith("was interrupted after ")
    assert (tmp_path / "saved").exists()


def test_an_interrupt_while_a_program_is_started_is_one_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def press(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", press)
    outcome = run_logged(Child([sys.executable, "-c", "pass"], {}), log=tmp_path / "log", timeout_s=1)
    assert (outcome.interrupted, outcome.timed_out, outcome.status) == (True, False, 137)


SLOW_TO_ANSWER = """
import os, runpy, time
write = os.write
os.write = lambda *given: time.sleep(1) or write(*given)
runpy.run_path({guard!r}, run_name="__main__")
"""


def test_an_interrupt_before_the_start_is_known_gives_time_to_save(
    run: Callable[..., Outcome], interrupt: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW_TO_ANSWER.format(guard=guard.__file__))
    monkeypatch.setattr(guard, "__file__", str(slow))
    interrupt(tmp_path / "ready")
    outcome = run(SAVES_AT_SIGINT)
    assert outcome.interrupted
    assert (tmp_path / "saved").exists()


def test_a_second_interrupt_kills_at_once(
    run: Callable[..., Outcome], interrupt: Callable[..., None], tmp_path: Path
) -> None:
    interrupt(tmp_path / "ready", 0.5)
    outcome = run(IGNORES.format(names=["SIGINT", "SIGTERM"]))
    assert (outcome.status, outcome.interrupted) == (137, True)
    assert outcome.seconds < 10


def test_a_command_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot start no-such-program: No such file"):
        run_logged(Child(["no-such-program"], {}), log=tmp_path / "log", timeout_s=1)


def test_a_log_that_cannot_be_written_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(CaptureError, match=f"cannot write to {tmp_path}: Is a directory"):
        run_logged(Child(["true"], {}), log=tmp_path / "log", timeout_s=1)


def test_folders_are_made_or_named(tmp_path: Path) -> None:
    assert writable_folder(tmp_path / "a/b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match=f"cannot write to {tmp_path}/file: File exists"):
        writable_folder(tmp_path / "file")
    with pytest.raises(CaptureError, match="cannot write to /proc/nightsight"):
        writable_folder(Path("/proc/nightsight"))


def test_last_lines_leave_out_progress_and_terminal_codes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"first\n\nstep 1\rstep 2\r\x1b[31mred\x1b[0m\n[1/1] [0%      ] x.nsys-repProcessing events...\n"
        b"Processing 825 events: [1%   ]Processing 825 events: [==2%   ]\nsaid \xff\n"
    )
    assert last_lines(log) == "first\nstep 1\nstep 2\nred\nProcessing events...\nsaid \N{REPLACEMENT CHARACTER}"
    assert last_lines(log, 1) == "said \N{REPLACEMENT CHARACTER}"
    assert last_lines(tmp_path / "absent") == ""


@given(content=st.binary(max_size=400), count=st.integers(1, 20))
def test_last_lines_of_anything_are_few_and_harmless(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, count: int
) -> None:
    log = tmp_path_factory.getbasetemp() / "anything"
    log.write_bytes(content)
    lines = last_lines(log, count).split("\n")
    assert len(lines) <= count
    assert not any(ord(character) < 32 and character != "\t" for line in lines for character in line)
