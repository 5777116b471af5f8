"""A profiler sees the program's processes and no others, where the system lets us have that."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import nightsight.collect.isolation as isolation_module
from nightsight.collect.isolation import inside, isolation
from nightsight.collect.process import Child, run_logged

# that of the tests may lie in a folder that is closed to others
OTHERS = Path("/usr/bin/python3")


def test_others_and_their_environment_cannot_be_seen() -> None:
    prefix = isolation()
    if not prefix:
        pytest.skip("this system allows no PID namespaces")
    look = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; echo; ls -d /proc/[0-9]* | wc -l"
    with subprocess.Popen(["sleep", "60"], env={"CI_JOB_TOKEN": "planted"}) as other:
        environment = {"PATH": os.environ["PATH"]}
        seen = subprocess.run([*prefix, "sh", "-c", look], env=environment, capture_output=True, text=True, check=True)
        other.kill()
    assert "planted" not in seen.stdout
    assert f"PATH={os.environ['PATH']}" in seen.stdout
    assert int(seen.stdout.split()[-1]) < 6


def test_a_command_can_be_run_beside_the_isolated_program(tmp_path: Path) -> None:
    prefix = isolation()
    command = [*prefix, "sh", "-c", f"trap 'exit 3' TERM; echo $$ > {tmp_path}/inner; while :; do sleep 0.1; done"]
    # a busy machine takes its time to start the program
    kill = ["sh", "-c", f"until [ -s {tmp_path}/inner ]; do sleep 0.1; done; kill -TERM $(cat {tmp_path}/inner)"]
    child = Child(command, {"PATH": os.environ["PATH"]}, lambda pid: inside(prefix, pid, kill), patience_s=30)
    outcome = run_logged(child, log=tmp_path / "log", timeout_s=2)
    assert (outcome.status, outcome.timed_out) == (3, True)


def test_two_at_once_number_their_processes_differently() -> None:
    # nsys names folders under /tmp by its process numbers, and two ranks on one machine would share one
    script = (
        "import subprocess; from nightsight.collect.isolation import isolation\n"
        "print(subprocess.check_output([*isolation(), 'sh', '-c', 'sh -c \"echo \\$\\$\"; sleep 0.2'], text=True))"
    )
    if not isolation():
        pytest.skip("this system allows no PID namespaces")
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (int(process.communicate()[0]) for process in both)
    assert min(first, second) > 1_000
    assert abs(first - second) > 500


def test_neighbours_are_far_apart() -> None:
    numbers = sorted(isolation_module._first_number(pid) for pid in range(2_000, 2_012))
    assert min(later - sooner for sooner, later in pairwise(numbers)) >= 256


@pytest.mark.skipif(os.getuid() != 0 or not OTHERS.exists(), reason="only root can become somebody else")
def test_an_ordinary_user_gets_the_same_without_capabilities() -> None:
    source = Path(isolation_module.__file__).read_text()
    script = (
        f"exec({source!r})\n"
        "look = 'sh -c \"echo \\$\\$\"; grep CapEff /proc/self/status'\n"
        "prefix = isolation()\n"
        "print(subprocess.check_output([*prefix, 'sh', '-c', look], text=True) if prefix else 'forbidden')"
    )
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    said = subprocess.check_output([*nobody, OTHERS, "-c", script], text=True, cwd="/").split()
    if said == ["forbidden"]:
        pytest.skip("this system allows users no namespaces")
    assert int(said[0]) > 1_000
    assert int(said[-1], 16) == 0


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_there_is_no_prefix() -> None:
    assert isolation() == ()
    assert inside((), 1, ("nsys", "stop")) == ("nsys", "stop")
