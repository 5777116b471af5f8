"""A profiler sees the program's processes and no others, where the system lets us have that."""

import os
import subprocess
from pathlib import Path

import pytest

import nightsight.collect.isolation as isolation_module
from nightsight.collect.isolation import inside, isolation
from nightsight.collect.process import Child, run_logged

# that of the tests may lie in a folder that is closed to others
OTHERS = Path("/usr/bin/python3")


def test_others_and_their_environment_cannot_be_seen(tmp_path: Path) -> None:
    prefix = isolation(tmp_path)
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
    prefix = isolation(tmp_path)
    command = [*prefix, "sh", "-c", f"trap 'exit 3' TERM; echo $$ > {tmp_path}/inner; while :; do sleep 0.1; done"]
    # a busy machine takes its time to start the program
    kill = ["sh", "-c", f"until [ -s {tmp_path}/inner ]; do sleep 0.1; done; kill -TERM $(cat {tmp_path}/inner)"]
    child = Child(command, {"PATH": os.environ["PATH"]}, lambda pid: inside(prefix, pid, kill), patience_s=30)
    outcome = run_logged(child, log=tmp_path / "log", timeout_s=2)
    assert (outcome.status, outcome.timed_out) == (3, True)


def test_each_has_a_folder_of_nsys_of_its_own(tmp_path: Path) -> None:
    # nsys names folders under /tmp/nvidia by its process numbers, and two ranks on one machine would share one
    prefix = isolation(tmp_path)
    if not prefix:
        pytest.skip("this system allows no PID namespaces")
    subprocess.run([*prefix, "touch", "/tmp/nvidia/session"], check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["session"]
    assert not Path("/tmp/nvidia/session").exists()


@pytest.mark.skipif(os.getuid() != 0 or not OTHERS.exists(), reason="only root can become somebody else")
def test_an_ordinary_user_gets_the_same_without_capabilities() -> None:
    source = Path(isolation_module.__file__).read_text()
    script = (
        f"exec({source!r})\n"
        "look = 'ls /tmp/nvidia; grep CapEff /proc/self/status'\n"
        "prefix = isolation(Path('/usr/share/doc/..'))\n"
        "print(subprocess.check_output([*prefix, 'sh', '-c', look], text=True) if prefix else 'forbidden')"
    )
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    words = subprocess.check_output([*nobody, OTHERS, "-c", script], text=True, cwd="/").split()
    if words == ["forbidden"]:
        pytest.skip("this system allows users no namespaces")
    assert "doc" in words
    assert int(words[-1], 16) == 0


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_there_is_no_prefix() -> None:
    assert isolation(Path("/tmp")) == ()
    assert inside((), 1, ("nsys", "stop")) == ("nsys", "stop")
