"""Naming what is to be run, and timing it without a profiler."""

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect.workloads import (
    PACKAGE,
    Load,
    Measured,
    OnlyTimed,
    Program,
    Request,
    arguments_of,
    child_environment,
    delete_old,
    read_benchmark,
    registered_workloads,
    resolve,
    run_benchmark,
    safe_name,
)
from nightsight.errors import CaptureError, UsageError, WorkloadError
from nightsight.model.report import Benchmark

GOOD = {
    "step_ns": [1000.0, 1200],
    "steps_per_trial": 20,
    "parameters": {"dim": "64"},
    "facts": {"device": "cpu", "torch": "2.11.0", "cuda": None},
}


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=20)


def workload(tmp_path: Path, script: str) -> Program:
    path = tmp_path / "workload.py"
    path.write_text(script)
    return Program("tiny", "workload", (sys.executable, str(path)))


def test_each_registered_workload_is_a_module_with_a_summary() -> None:
    workloads = registered_workloads()
    assert "mlp" in [workload.name for workload in workloads]
    for entry in workloads:
        assert (PACKAGE.parent / entry.module.replace(".", "/")).with_suffix(".py").is_file()
        assert entry.summary.endswith(".")
        assert safe_name(entry.name) == entry.name


def test_a_workload_is_run_by_its_path_by_the_named_python() -> None:
    program = resolve("mlp", ["--dim", "64"], python="python3")
    assert program == Program("mlp", "workload", ("python3", str(PACKAGE), "workloads.mlp", "--dim", "64"))


def test_a_script_is_run_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-my train.py").touch()
    program = resolve("-my train.py", ["--lr", "1"], python="python3")
    assert program == Program("my_train", "script", ("python3", str(tmp_path / "-my train.py"), "--lr", "1"))


def test_an_executable_file_and_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    binary = tmp_path / "a.out"
    binary.touch(0o755)
    expected = Program("a_out", "command", (str(binary), "1"))
    assert resolve("a.out", ["1"]) == expected
    assert resolve("./a.out", ["1"]) == expected
    assert resolve(None, ["./a.out", "1"]) == expected
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve(None, ["a.out", "1"]) == expected


def test_a_command_that_is_python_and_a_script_is_a_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert resolve(None, [sys.executable, str(script), "-v"]) == Program(
        "train", "script", (sys.executable, str(script), "-v")
    )
    assert resolve(None, [sys.executable, "-m", "train"]).kind == "command"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("torchrun --nproc-per-node 2 src/train.py --epochs 3", "train"),
        ("python3 -m torch.distributed.run --standalone pre_train.py", "pre_train"),
        ("accelerate launch --config=conf.py train.py", "train"),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", "api_server"),
        ("python3 -u -m pytest -k x", "pytest"),
        ("python3 -m torch.distributed.run ./train", "python3"),
        ("mpirun -m 2 ./bench", "mpirun"),
        # what a shell runs is not looked at
        ("bash -c 'cd x; python train.py'", "bash"),
        ("torchrun mlp.py", "mlp_file"),
    ],
)
def test_a_command_has_the_name_of_the_script_or_module_that_it_starts(
    words: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *further = shlex.split(words)
    (tmp_path / first).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = resolve(None, [first, *further])
    assert (program.name, program.kind) == (name, "command")
    assert program.command == (str(tmp_path / first), *further)


@pytest.mark.parametrize(
    ("target", "arguments", "message", "hint"),
    [
        ("mpl", [], "unknown workload 'mpl'", "Did you mean mlp"),
        ("qqqqqq", [], "unknown workload 'qqqqqq'", "Workloads: mlp, "),
        ("train.py", [], "script train.py does not exist", "Check the path"),
        ("./a.out", [], "a.out was not found", "Give its path"),
        ("notes.txt", [], "notes.txt is not an executable file", "chmod"),
        (".", [], "unknown workload '.'", "give a path"),
        (None, ["./notes.txt"], "./notes.txt is not an executable file", "chmod"),
        (None, ["no-such-program"], "no-such-program was not found", "PATH"),
        (None, [], "nothing to run", "give a command"),
    ],
)
def test_what_cannot_be_run(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str | None,
    arguments: list[str],
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError) as raised:
        resolve(target, arguments)
    assert message in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mlp", "mlp"),
        ("/home/me/train-v2", "train-v2"),
        ("train.v2", "train_v2"),
        ("my 'best'\nrun", "my_best_run"),
        ("<script>alert(1)", "script_alert_1"),
        ("..", "program"),
        ("", "program"),
        ("模型", "program"),
        ("%q{HOME}", "q_HOME"),
        ("a" * 300, "a" * 48),
    ],
)
def test_names_become_safe(text: str, name: str) -> None:
    assert safe_name(text) == name


@given(st.text())
def test_any_name_becomes_safe_and_stays_so(text: str) -> None:
    name = safe_name(text)
    assert 0 < len(name) <= 48
    assert name.isascii()
    assert name.replace("-", "").replace("_", "").isalnum()
    assert not name.startswith("-")
    assert safe_name(name) == name


def test_nothing_of_ours_is_put_on_the_path_of_the_program(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/wheels")
    assert child_environment(request_)["PYTHONPATH"] == "/wheels"
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in child_environment(request_)


def test_a_benchmark_is_read_and_its_seconds_are_kept(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hush")
    script = f"""
import os, sys
assert "MY_SECRET" not in os.environ
assert sys.argv[1] == "--benchmark"
open(sys.argv[2], "w").write({json.dumps(GOOD)!r})
"""
    measured = run_benchmark(workload(tmp_path, script), request_)
    assert measured.benchmark == Benchmark((1000.0, 1200.0), 20)
    assert measured.parameters == {"dim": "64"}
    assert measured.facts == {"device": "cpu", "torch": "2.11.0"}
    assert measured.findings == ()
    assert list(measured.stages_s) == ["benchmark"]
    assert measured.stages_s["benchmark"] > 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit(3)", "tiny ended with exit status 3"),
        ("pass", "the workload wrote no benchmark"),
        ("import sys; open(sys.argv[2], 'w').write('{')", "the workload's benchmark cannot be read"),
    ],
)
def test_a_failing_benchmark_is_a_finding_without_anything_private(
    request_: Request, tmp_path: Path, script: str, message: str
) -> None:
    measured = run_benchmark(workload(tmp_path, script), request_)
    assert measured.benchmark is None
    (finding,) = measured.findings
    assert (finding.rule, finding.severity) == ("benchmark_failed", "warning")
    assert finding.detail.startswith(f"{message}. ")
    assert str(tmp_path) not in repr(finding)


def test_the_benchmark_of_an_earlier_run_is_not_taken(request_: Request, tmp_path: Path) -> None:
    request_.logs.mkdir()
    (request_.logs / "benchmark.json").write_text(json.dumps(GOOD))
    assert run_benchmark(workload(tmp_path, "pass"), request_).benchmark is None


def test_a_benchmark_that_takes_too_long(tmp_path: Path) -> None:
    request = Request(captures=tmp_path, logs=tmp_path, timeout_s=0.5)
    with pytest.raises(WorkloadError, match=r"tiny was stopped after 0\.5 s; nothing was captured"):
        run_benchmark(workload(tmp_path, "import time; time.sleep(60)"), request)


def test_options_that_a_workload_does_not_accept_are_not_tried_twice(request_: Request, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="tiny ended with exit status 2"):
        run_benchmark(workload(tmp_path, "import sys; sys.exit(2)"), request_)


@pytest.mark.parametrize("name", ["mlp", "sample"])
def test_a_script_does_not_take_the_place_of_a_workload_or_the_sample(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").touch()
    assert resolve(str(tmp_path / f"{name}.py"), ()).name == f"{name}_file"


def test_only_our_workloads_are_timed(request_: Request) -> None:
    assert run_benchmark(Program("true", "command", ("/no/such/file",)), request_) == Measured()


@pytest.mark.parametrize(
    "damage",
    [
        {"step_ns": []},
        {"step_ns": [0]},
        {"step_ns": [-1.0]},
        {"step_ns": [float("nan")]},
        {"step_ns": [10**400]},
        {"step_ns": None},
        {"steps_per_trial": "many"},
        {"parameters": ["dim"]},
        {"facts": None},
    ],
)
def test_a_damaged_benchmark_is_an_error(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = tmp_path / "benchmark.json"
    path.write_text(json.dumps({**GOOD, **damage}))
    with pytest.raises(CaptureError, match="cannot be read"):
        read_benchmark(path)


def test_what_a_workload_leaves_out_is_a_warning_that_names_no_file(tmp_path: Path) -> None:
    path = tmp_path / "benchmark.json"
    notes = ["triton: left out, since Triton needs a GPU", "extension: left out, since /home/me/x.cu:3: error: no"]
    path.write_text(json.dumps({**GOOD, "notes": notes}))
    (finding,) = read_benchmark(path).findings
    assert (finding.severity, finding.title) == ("warning", "The workload skipped some work")
    assert finding.detail == f"T{notes[0][1:]}; extension: left out, since <…> error: no."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(GOOD)), inner, max_size=4),
    max_leaves=12,
)


@given(document=JSON)
def test_any_json_is_a_benchmark_or_an_error(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    path = tmp_path_factory.getbasetemp() / "benchmark.json"
    path.write_text(json.dumps(document))
    try:
        measured = read_benchmark(path)
    except CaptureError:
        return
    assert measured.benchmark is not None
    assert min(measured.benchmark.step_ns) > 0


@given(steps=st.lists(st.floats(min_value=1, max_value=1e15), min_size=1))
def test_step_times_survive_the_file(tmp_path_factory: pytest.TempPathFactory, steps: list[float]) -> None:
    path = tmp_path_factory.getbasetemp() / "benchmark.json"
    path.write_text(json.dumps({**GOOD, "step_ns": steps}))
    assert read_benchmark(path).benchmark == Benchmark(tuple(steps), 20)


def test_the_way_is_cleared_or_the_folder_named(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    delete_old(tmp_path / "old", tmp_path / "new" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(CaptureError, match=f"cannot write to {tmp_path}"):
        delete_old(tmp_path / "new")


def test_an_interrupted_benchmark_ends_the_run(
    request_: Request, tmp_path: Path, interrupt: Callable[..., None]
) -> None:
    interrupt(tmp_path / "ready")
    script = f"import time; open({str(tmp_path / 'ready')!r}, 'w').close(); time.sleep(60)"
    with pytest.raises(WorkloadError, match="tiny was interrupted after"):
        run_benchmark(workload(tmp_path, script), request_)


def test_a_benchmark_that_was_stopped_keeps_its_step_times(
    request_: Request, tmp_path: Path, interrupt: Callable[..., None]
) -> None:
    ready = tmp_path / "ready"
    script = (
        "import json, sys, time\n"
        f"try:\n    open({str(ready)!r}, 'w').close(); time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    open(sys.argv[-1], 'w').write({json.dumps(GOOD)!r})\n    sys.exit(130)\n"
    )
    interrupt(ready)
    with pytest.raises(OnlyTimed, match=r"tiny was interrupted after .* s; nothing was captured") as raised:
        run_benchmark(workload(tmp_path, script), request_)
    assert raised.value.measured.benchmark == Benchmark((1000.0, 1200.0), 20)
    capture = raised.value.capture(workload(tmp_path, script), "torch")
    assert capture.failure.startswith("tiny was interrupted after")
    assert capture.files == ()


# -- arguments, which no report has -----------------------------------------------------------------------------------


def digest_of(*arguments: str, program: str = "/bin/sh") -> str:
    return arguments_of(resolve(None, [program, *arguments]), Request())["arguments"]


def test_a_digest_tells_runs_with_other_arguments_apart() -> None:
    assert digest_of() == "none"
    assert re.fullmatch("digest [0-9a-f]{4}", digest_of("--batch", "8"))
    assert digest_of("--batch", "8") == digest_of("--batch", "8")
    assert digest_of("--batch", "8") != digest_of("--batch", "16")
    assert digest_of("--max-tokens", "64") != digest_of("--max-tokens", "128")
    assert digest_of("--model", "/models/small") != digest_of("--model", "/models/large")


def test_it_does_not_depend_on_folders_or_secrets() -> None:
    assert digest_of("--data", "/home/me/data.bin", "x=/a/b") == digest_of("--data", "/mnt/data.bin", "x=/c/b")
    folder = Path(tempfile.gettempdir())
    assert digest_of(f"--out={folder / 'a'}") == digest_of(f"--out={folder / 'b'}")
    assert digest_of("--api-key", "abc", "--password=def") == digest_of("--api-key", "ghi", "--password=jkl")
    assert digest_of("http://me:secret@host") == digest_of("http://me:other@host")


def test_the_parameters_of_a_workload_say_more() -> None:
    assert arguments_of(resolve("mlp", ["--dim", "64"]), Request()) == {}


def test_a_server_is_distinguished_by_what_loads_it_too() -> None:
    server, *clients = (resolve(None, ["/bin/sh", rate]) for rate in ("--serve", "10", "20"))
    requests = [Request(part=Load(client, "8000", 10)) for client in clients]
    assert len({arguments_of(server, request)["arguments"] for request in (*requests, Request())}) == 3


@given(st.lists(st.text()))
def test_any_arguments_have_a_digest(arguments: list[str]) -> None:
    program = Program("train", "script", ("python3", "train.py"), arguments=tuple(arguments))
    assert re.fullmatch("none|digest [0-9a-f]{4}", arguments_of(program, Request())["arguments"])
