"""The injected module that has a profiler save its buffers: run in processes that end in different ways."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[1] / "workloads" / "injected" / "saving.py"
_BEGIN = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("saving", {str(MODULE)!r})
saving = importlib.util.module_from_spec(spec)
spec.loader.exec_module(saving)
loaded = [True]
in_use = [True]

class Driver:
    def cuDeviceGetCount(self, _):
        return 0 if in_use[0] else 3

    def cuProfilerStop(self):
        os.write(1, b"saved ")

saving._driver = lambda: Driver() if loaded[0] else None
saving.start(sys.argv[1])
"""


def printed(program: str, folder: str = "") -> list[str]:
    """Return the words that a program prints after our module was started in it."""
    command = [sys.executable, "-W", "ignore", "-c", _BEGIN + textwrap.dedent(program), folder]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.split()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("os.write(1, b'end ')", ["end", "saved"]),
        ("os._exit(0)", ["saved"]),
        ("raise SystemExit(3)", ["saved"]),
        # libraries take CUDA down in atexit, after which there is nothing to save
        ("import atexit; atexit.register(os.write, 1, b'down ')", ["saved", "down"]),
        ("loaded[0] = False; os._exit(0)", []),
        # loaded by an import, and not used
        ("in_use[0] = False; os._exit(0)", []),
    ],
)
def test_saved_before_the_process_ends(program: str, words: list[str]) -> None:
    assert printed(program) == words


def test_a_fork_saves_only_what_is_its_own() -> None:
    forks = """
    if os.fork() == 0:
        loaded[0] = True
        os._exit(0)
    os.wait()
    loaded[0] = False
    """
    # the parent has CUDA: the child cannot use it, and must not touch it
    assert printed(forks) == []
    assert printed(f"loaded[0] = False\n{textwrap.dedent(forks)}") == ["saved"]


@pytest.mark.parametrize(("child", "count"), [("in_use[0] = True", 1), ("pass", 0)])
def test_a_fork_that_used_cuda_leaves_a_file(tmp_path: Path, child: str, count: int) -> None:
    program = f"""
    in_use[0] = False
    if os.fork() == 0:
        {child}
        os._exit(0)
    os.wait()
    in_use[0] = True
    """
    # the program itself is recorded
    assert printed(program, str(tmp_path)) == ["saved"] * (1 + count)
    assert len([*tmp_path.iterdir()]) == count


def test_a_driver_that_fails_does_not_disturb_the_program() -> None:
    program = """
    def fail(self):
        raise RuntimeError
    Driver.cuProfilerStop = fail
    os.write(1, b"end ")
    """
    assert printed(program) == ["end"]


def test_without_the_driver_nothing_is_loaded() -> None:
    program = f"""
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    fresh._DRIVER = "libcuda-{"x" * 8}.so.1"
    print(fresh._driver())
    loaded[0] = False
    """
    assert printed(program) == ["None"]
