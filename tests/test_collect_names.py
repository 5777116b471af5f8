"""What `--names` asks of nsys and puts into the program, and that a capture never fails because of it."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nightsight import options
from nightsight.cli import main
from nightsight.collect.names import FORKED, NAMES, Annotation, annotation_of, watching_forks
from nightsight.collect.nsys import collect_nsys
from nightsight.collect.workloads import PACKAGE, Program, Request

Script = Callable[..., Path]
SCRIPT = Program("train", "script", ("/usr/bin/python3", "train.py"))
WORKLOAD = Program("mlp", "workload", ("/usr/bin/python3", "workloads", "mlp"))
BINARY = Program("sh", "command", ("/bin/sh", "-c", "true"))
KNOWN = "\t--python-sampling=\n\t--python-sampling-frequency=\n\t--pytorch=\n"
SAMPLING = "--python-sampling=true"


def named(
    names: tuple[str, ...] | None, program: Program = SCRIPT, *, known: str = KNOWN, given: str = ""
) -> Annotation:
    arguments = (given,) if given else ()
    return annotation_of(program, Request(names=names, nsys_arguments=arguments), help_text=known)


def test_the_names_that_can_be_asked_for_are_those_of_the_command_line() -> None:
    assert options.NAMES == NAMES


def test_auto_names_what_costs_little_and_says_so() -> None:
    annotation = named(None)
    assert annotation.options == (SAMPLING, "--python-sampling-frequency=200")
    assert annotation.environment["NIGHTSIGHT_NAMES"] == "modules sparing"
    assert (annotation.description, annotation.findings) == ("modules, python (auto)", ())


def test_nothing_is_loaded_into_a_program_if_that_is_off_and_by_itself_into_no_other_than_python() -> None:
    assert named((), SCRIPT) == named(None, BINARY) == named(None, WORKLOAD) == Annotation()


def test_ranges_of_xla_which_nsys_cannot_import_are_left_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import jax.numpy as jnp\n")
    program = Program("train", "script", (sys.executable, str(script)))
    assert named(None, program).options == ("--nvtx-domain-exclude=TSL",)
    assert named(None, program, known="").options == named(None, SCRIPT).options[2:] == ()
    assert named(None, program, given="--nvtx-domain-include=TSL").options == ()


@pytest.mark.parametrize(
    ("names", "expected", "words"),
    [
        (("operators",), ("--pytorch=autograd-nvtx",), None),
        (("shapes",), ("--pytorch=autograd-shapes-nvtx",), None),
        (("operators", "shapes"), ("--pytorch=autograd-shapes-nvtx",), None),
        (("python",), (SAMPLING,), None),
        (("modules",), (), "modules"),
        (("python", "modules", "shapes"), ("--pytorch=autograd-shapes-nvtx", SAMPLING), "modules annotated"),
    ],
)
def test_what_is_asked_for_is_named(names: tuple[str, ...], expected: tuple[str, ...], words: str | None) -> None:
    for program in (SCRIPT, WORKLOAD, BINARY):
        annotation = named(names, program)
        assert (annotation.options, annotation.environment.get("NIGHTSIGHT_NAMES"), annotation.findings) == (
            expected,
            words,
            (),
        )
        assert annotation.description == ", ".join(name for name in NAMES if name in names)


@pytest.mark.parametrize("known", ["", "\t--python-backtrace=\n\t--pytorch-other=\n"])
def test_an_nsys_that_cannot_do_it_is_not_asked_to(known: str) -> None:
    assert named(None, known=known) == replace(named(None), options=(), description="modules (auto)")
    annotation = named(("modules", "shapes", "python"), known=known)
    assert (annotation.options, annotation.description) == ((), "modules")
    (finding,) = annotation.findings
    assert (finding.severity, finding.title) == ("warning", "Not annotated: shapes, python")


def test_options_of_nsys_that_the_user_gives_are_not_given_twice() -> None:
    assert named(None, given="--python-sampling=true").options == ()
    assert named(("python", "shapes"), given="--pytorch=autograd-nvtx").options == (SAMPLING,)
    assert named(("python", "shapes"), given="--pytorch=autograd-nvtx").findings == ()


def test_a_program_that_python_runs_is_known_by_its_first_line(tmp_path: Path) -> None:
    for name, head, is_python in (("torchrun", f"#!{sys.executable}\n", True), ("run", "#!/bin/sh\n", False)):
        path = tmp_path / name
        path.write_text(head)
        assert bool(named(None, Program(name, "command", (str(path),))).description) == is_python
    assert named(None, Program("gone", "command", (str(tmp_path / "gone"),))) == Annotation()
    assert named(None, Program("python3", "command", ("/nowhere/python3.12", "-m", "train"))).description


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        ("import jax\n", False),
        ("import numpy\nfrom flax import linen\n", False),
        ("def main():\n    import jax.numpy as jnp\n", False),
        ("import torch\n# import jax\n", True),
        ("import jaxtyping\n", True),
    ],
)
def test_python_is_not_sampled_where_that_loses_the_kernels(tmp_path: Path, text: str, *, is_sampled: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    annotation = named(None, Program("train", "script", (sys.executable, str(script))))
    assert (SAMPLING in annotation.options) == is_sampled
    # who asks for it gets it
    assert SAMPLING in named(("python",), Program("train", "script", (sys.executable, str(script)))).options


def test_what_was_on_the_path_of_python_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    environment = named(("modules",)).environment
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(PACKAGE / "timed"), "/mine"]
    # nsys splits its list of variables there
    assert not any("," in value for value in environment.values())


SHOW = "tr '\\0' '\\n' < /proc/$PPID/cmdline; echo names=$NIGHTSIGHT_NAMES"


@pytest.mark.parametrize("behavior", ["ok", "old", "no help"])
@pytest.mark.parametrize("names", [None, (), ("modules", "shapes", "python")])
def test_a_capture_with_every_nsys(
    fake_nsys: Callable[..., Path], tmp_path: Path, behavior: str, names: tuple[str, ...] | None
) -> None:
    fake_nsys(behavior)
    request = Request(tmp_path / "captures", tmp_path / "logs", timeout_s=20, names=names)
    capture = collect_nsys(Program("tiny", "command", ("/bin/sh", "-c", SHOW)), request)
    lines = (request.logs / "profile.log").read_text().splitlines()
    can = behavior == "ok"
    assert ("--pytorch=autograd-shapes-nvtx" in lines, SAMPLING in lines) == (bool(names) and can,) * 2
    assert ("names=modules annotated" if can else "names=modules") in lines or not names
    assert [finding.rule for finding in capture.findings] == ["no_names"] * (bool(names) and not can)
    expected = ("modules, shapes, python" if can else "modules") if names else None
    assert capture.parameters.get("names") == expected


def test_forks_that_used_cuda_are_a_finding(fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    fake_nsys("ok")
    used = "import os; [open(os.environ['NIGHTSIGHT_SAVES'] + '/' + str(n), 'w') for n in range(2)]"
    request = Request(tmp_path / "captures", tmp_path / "logs", timeout_s=20)
    capture = collect_nsys(Program("tiny", "script", (sys.executable, "-c", used)), request)
    (finding,) = (finding for finding in capture.findings if finding.rule == FORKED)
    assert finding.detail.startswith("The program forked 2 processes that used CUDA.")
    assert not (request.logs / "forks").exists()


@pytest.mark.parametrize(
    ("files", "options", "count"), [(0, (), 0), (1, (), 1), (1, ("--trace-fork-before-exec=true",), 0)]
)
def test_forks_that_are_traced_are_not_a_finding(
    tmp_path: Path, files: int, options: tuple[str, ...], count: int
) -> None:
    with watching_forks(Request(logs=tmp_path, nsys_arguments=options)) as findings:
        for number in range(files):
            (tmp_path / "forks" / str(number)).touch()
    assert len(findings) == count


def test_ranges_that_are_not_traced_are_not_made(fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    fake_nsys()
    request = Request(tmp_path / "captures", tmp_path / "logs", timeout_s=20, names=NAMES, trace="cuda")
    capture = collect_nsys(Program("tiny", "command", ("/bin/sh", "-c", SHOW)), request)
    assert "--pytorch" not in (request.logs / "profile.log").read_text()
    assert "names" not in capture.parameters


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--names", "module", "train.py"], "'module' is not one of auto, off, modules, operators, shapes, python"),
        (["--names", "", "train.py"], "'' is not one of auto"),
        (["--names", "modules,,python", "train.py"], "'' is not one of auto"),
        (["--names", "auto,python", "train.py"], "'auto' is not one of auto"),
        (["--collector", "ncu", "--names", "off", "train.py"], "--names has no effect with --collector ncu"),
        (
            ["--collector", "torch", "--names", "python", "train.py"],
            "use --record modules,shapes,stack",
        ),
    ],
)
def test_what_cannot_be_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["profile", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_where_nsys_is_not_used_names_that_were_asked_for_are_not_silently_left_out(
    tmp_path: Path, script: Script
) -> None:
    result = CliRunner().invoke(main, ["profile", "--reports", str(tmp_path), "--names", "python", str(script("pass"))])
    assert result.exit_code == 2
    assert "--names: only nsys can record this" in result.output
