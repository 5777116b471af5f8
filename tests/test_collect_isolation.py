"""A profiler sees the program's processes and no others, where the system lets us have that."""

import os
import subprocess
from pathlib import Path

import pytest

from nightsight.collect.isolation import inside, isolation
from nightsight.collect.process import Child, run_logged


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


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_there_is_no_prefix() -> None:
    assert isolation() == ()
    assert inside((), 1, ("nsys", "stop")) == ("nsys", "stop")
