"""That nothing is left of what was run, however it or nightsight ends; how long that takes; and what the log keeps."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.collect import guard, output, process
from nightsight.collect.process import Child, run_logged
from nightsight.errors import CaptureError
from tests.conftest import is_alive

ROOT = Path(__file__).parents[1]
# with a child in a session of its own, and a daemon: forked twice, and with no environment
STAYS = """
import os, subprocess, sys, time
{first}
sleep = [sys.executable, "-c", "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(333.25)"]
subprocess.Popen([*sleep, "{folder}/session"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [*sleep, "{folder}/daemon"], dict())
    os._exit(0)
open("{folder}/program", "w").close()
{last}
"""
MARKS = ("session", "daemon", "program")


def running(word: str) -> list[int]:
    """The processes that have a word in their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes() and is_alive(int(path.parent.name)):
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def wait_until(happened: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happened()


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., Child]:
    return lambda code, **options: Child([sys.executable, "-c", code], dict(os.environ), **options)


def stays(folder: Path, first: str = "", last: str = "time.sleep(333.25)") -> str:
    return STAYS.format(folder=folder, first=first, last=last)


def started(folder: Path) -> bool:
    return all((folder / mark).exists() for mark in MARKS)


@pytest.mark.parametrize("collector", ["nsys", "nsys without namespaces", "torch"])
def test_a_nightsight_that_is_killed_leaves_no_process(
    request: pytest.FixtureRequest, fake_nsys: Callable[..., Path], tmp_path: Path, collector: str
) -> None:
    name = collector.split(maxsplit=1)[0]
    if name == "torch":
        pytest.importorskip("torch")
    fake_nsys()
    if "without" in collector:
        request.getfixturevalue("no_namespaces")
    script = tmp_path / "stays.py"
    script.write_text(stays(tmp_path))
    command = [sys.executable, "-m", "nightsight", "profile", "--no-ncu" if name == "nsys" else "-v"]
    command += ["--collector", name, "--reports", str(tmp_path / "reports"), str(script)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as nightsight:
        assert wait_until(lambda: started(tmp_path), 60)
        nightsight.kill()
    assert wait_until(lambda: not running(str(tmp_path)), 10), running(str(tmp_path))


def test_a_guard_that_is_killed_takes_the_command_along(child: Callable[..., Child], tmp_path: Path) -> None:
    code = f"import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(333.25) # {tmp_path}"
    outcome = run_logged(child(code), log=tmp_path / "log", timeout_s=30)
    assert outcome.status == 128 + signal.SIGKILL
    assert wait_until(lambda: not running(f"# {tmp_path}"), 5)


def test_a_guard_that_is_killed_before_it_answers_is_a_killed_command(
    child: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = tmp_path / "dies.py"
    dies.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(guard, "__file__", str(dies))
    outcome = run_logged(child("pass"), log=tmp_path / "log", timeout_s=30)
    assert (outcome.status, outcome.timed_out, outcome.interrupted) == (128 + signal.SIGKILL, False, False)


def test_a_daemon_with_an_empty_environment_is_gone_at_the_end(child: Callable[..., Child], tmp_path: Path) -> None:
    wait = f"while not all(os.path.exists(f'{tmp_path}/{{mark}}') for mark in {MARKS}): time.sleep(0.05)"
    outcome = run_logged(child(stays(tmp_path, last=wait)), log=tmp_path / "log", timeout_s=30)
    assert (outcome.ok, started(tmp_path)) == (True, True)
    assert not running(str(tmp_path))


def test_orphans_that_end_are_not_kept_as_zombies(child: Callable[..., Child], tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        os.fork() or time.sleep(0.2)
        os._exit(0)
    os.wait()
time.sleep(1)
guard = os.getppid()
stats = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        stats.append(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split())
    except OSError:
        pass  # it has ended meanwhile
print([stat for stat in stats if stat[0] == "Z" and int(stat[1]) == guard])
"""
    assert run_logged(child(code), log=tmp_path / "log", timeout_s=30).ok
    assert (tmp_path / "log").read_text() == "[]\n"


@pytest.mark.parametrize("ignores", ["signal.SIG_IGN", "lambda *_: print('no')"])
def test_a_program_that_ignores_signals_is_not_waited_for_as_one_that_saves(
    child: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignores: str
) -> None:
    monkeypatch.setattr(process, "_REACT_S", 0.5)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.5)
    code = stays(tmp_path, f"import signal; [signal.signal(number, {ignores}) for number in (2, 15)]")
    code += "\nwhile True: time.sleep(1)"
    outcome = run_logged(child(code, saving="saving"), log=tmp_path / "log", timeout_s=2)
    assert (outcome.timed_out, outcome.status) == (True, 137)
    assert outcome.seconds < 10
    assert not running(str(tmp_path))


def test_what_the_help_says_of_the_time_that_is_added_is_so() -> None:
    assert process._REACT_S + process._TERMINATE_S <= 20
    assert process.SAVE_S + process._REACT_S + process._TERMINATE_S + process._KILL_S <= 150


def test_what_says_that_it_saves_is_given_the_time_to(
    child: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_REACT_S", 0.5)
    code = f"""
import time
try:
    time.sleep(60)
finally:
    print("saving", flush=True)
    time.sleep(3)
    open("{tmp_path}/saved", "w").close()
"""
    run_logged(child(code, saving="saving"), log=tmp_path / "log", timeout_s=1)
    assert (tmp_path / "saved").exists()


def test_an_interrupt_does_not_cut_a_trace_short_that_is_being_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text("import torch\nfor _ in range(3000): torch.ones(8).add(1)\n")
    command = [sys.executable, str(ROOT / "workloads/traced.py"), "--out", str(tmp_path / "t.json.gz"), str(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as traced:
        assert traced.stderr is not None
        assert any("saving the trace" in line for line in iter(traced.stderr.readline, ""))
        traced.send_signal(signal.SIGINT)
        traced.communicate(timeout=120)
    assert traced.returncode == 0
    assert (tmp_path / "t.json.gz").stat().st_size > 1000


# -- signals that were ignored ----------------------------------------------------------------------------------------


def test_under_nohup_a_hangup_ends_neither_nightsight_nor_the_program(
    fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    script = tmp_path / "stays.py"
    script.write_text(f"""
import os, signal, time
handlers = [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)]
assert handlers == [signal.SIG_IGN, signal.SIG_DFL], handlers
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
open("{tmp_path}/program", "w").close()
while not os.path.exists("{tmp_path}/end"):
    time.sleep(0.05)
""")
    command = ["nohup", sys.executable, "-m", "nightsight", "profile", "--no-ncu", "--collector", "nsys"]
    command += ["--reports", str(tmp_path / "reports"), str(script)]
    # as a shell starts what runs in the background
    quiet = f"trap '' INT; exec {' '.join(command)}"
    with subprocess.Popen(
        ["sh", "-c", quiet], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as nightsight:
        assert wait_until((tmp_path / "program").exists, 60), nightsight.communicate()
        nightsight.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        (tmp_path / "end").touch()
        output, _ = nightsight.communicate(timeout=60)
    assert nightsight.returncode == 0, output
    assert "report: " in output.decode()


# -- the log ----------------------------------------------------------------------------------------------------------


def test_a_log_keeps_its_first_and_last_lines_and_says_what_it_left_out(
    child: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"_MOST_BYTES": 4000, "_FIRST_BYTES": 2000, "_LAST_BYTES": 1000, "_CHUNK_BYTES": 300}.items():
        monkeypatch.setattr(output, name, size)
    heard: list[str] = []
    code = "print(*(f'line {number:04} é' for number in range(5000)), sep='\\n')"

    def hear(text: str) -> bool:
        heard.append(text)
        return False

    run_logged(child(code), log=tmp_path / "log", timeout_s=30, listen=hear)
    written = "".join(f"line {number:04} é\n" for number in range(5000))
    assert "".join(heard) == written
    log = (tmp_path / "log").read_bytes()
    first, omitted, last = re.split(rb"\n\[nightsight omitted ([\d,]+) bytes here\]\n", log)
    assert (first, last) == (written.encode()[:2000], written.encode()[-len(last) :])
    assert last.startswith(b"line ")
    assert 900 < len(last) < 2000
    assert len(first) + int(omitted.replace(b",", b"")) + len(last) == len(written.encode())


def test_while_a_program_prints_without_end_its_log_stays_small(child: Callable[..., Child], tmp_path: Path) -> None:
    log = tmp_path / "log"
    largest = 0

    def look(_: str) -> bool:
        nonlocal largest
        largest = max(largest, log.stat().st_size)
        return False

    code = "import sys\nfor number in range(300): sys.stdout.write(f'{number}' + 'x' * 1_000_000 + '\\n')"
    outcome = run_logged(child(code), log=log, timeout_s=120, listen=look)
    assert outcome.ok
    assert 20_000_000 < largest < 34_000_000
    assert log.read_bytes().startswith(b"0xxx")
    assert b"\n299xxx" in log.read_bytes()


def test_a_short_log_is_whole(child: Callable[..., Child], tmp_path: Path) -> None:
    run_logged(child("print('x' * 3_000_000)"), log=tmp_path / "log", timeout_s=30)
    assert (tmp_path / "log").read_bytes() == b"x" * 3_000_000 + b"\n"


# -- a program that deletes the folder it works in --------------------------------------------------------------------


@pytest.mark.parametrize("collector", ["nsys", "torch"])
def test_a_deleted_working_folder_is_one_line_that_says_so(
    fake_nsys: Callable[..., Path], tmp_path: Path, collector: str
) -> None:
    if collector == "torch":
        pytest.importorskip("torch")
    fake_nsys()
    folder = tmp_path / "work"
    folder.mkdir()
    script = tmp_path / "deletes.py"
    script.write_text("import os, shutil; shutil.rmtree(os.getcwd())")
    command = [sys.executable, "-m", "nightsight", "profile", "--collector", collector, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert re.search(rf"^Error: {folder}/reports/deletes/.* was deleted while the program ran$", done.stderr, re.M)
    assert "--reports" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_deleted_working_folder_does_not_matter_to_reports_elsewhere(
    fake_nsys: Callable[..., Path], fake_ncu: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    ncu = fake_ncu()
    folder = tmp_path / "work"
    folder.mkdir()
    script = tmp_path / "deletes.py"
    script.write_text("import os, shutil\ntry: shutil.rmtree(os.getcwd())\nexcept OSError: pass")
    command = [sys.executable, "-m", "nightsight", "profile", "--collector", "nsys"]
    command += ["--ncu", os.path.relpath(ncu, folder), "--reports", "../reports", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("report: ../reports/deletes/")
    assert ncu.with_name("ncu.seen.json").exists()


def test_a_full_disk_for_the_log_does_not_stop_the_program(child: Callable[..., Child], tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    code = f"print('x' * 100); open({str(tmp_path / 'ran')!r}, 'w').close()"
    with pytest.raises(CaptureError, match="No space left"):
        run_logged(child(code), log=tmp_path / "log", timeout_s=30)
    assert (tmp_path / "ran").exists()
