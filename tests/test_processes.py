"""Processes: what becomes of one takes only its own call along, and when they are no longer needed all of them end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from nightsight.system import processes
from nightsight.system.processes import ProcessDied, Processes, as_worker, cores, memory_of_machine
from tests.calls import (
    WAIT_S,
    asleep,
    dies,
    dies_at_first,
    divides,
    finds_no_memory,
    interrupted,
    is_odd,
    spans,
    takes,
)
from tests.conftest import is_alive


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()]


def test_calls_are_made_by_as_many_processes_as_are_asked_for_and_these_end() -> None:
    with Processes(2) as executor:
        calls = [executor.submit(asleep, 0.05) for _ in range(6)]
        made = {call.result(WAIT_S) for call in calls}
        assert len(made) == 2
        assert os.getpid() not in made
        assert executor.submit(interrupted, "OMP_NUM_THREADS").result(WAIT_S) == "1"
    assert not any(map(is_alive, made))


def test_a_process_starts_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def counted(most_bytes: int) -> processes._Process:
        started.append(most_bytes)
        return real(most_bytes)

    real = processes._Process
    monkeypatch.setattr(processes, "_Process", counted)
    with Processes(8) as executor:
        for _ in range(3):
            executor.submit(asleep, 0).result(WAIT_S)
    assert len(started) == 1


def test_an_error_is_that_of_the_call_and_tells_where_it_came_from() -> None:
    with Processes(1) as executor:
        with pytest.raises(ZeroDivisionError, match="division by zero") as raised:
            executor.submit(divides, 0).result(WAIT_S)
        assert "in divides" in "".join(raised.value.__notes__)
        with pytest.raises(TypeError, match="second"):
            executor.submit(is_odd).result(WAIT_S)
        with pytest.raises(Exception, match="lambda"):
            executor.submit(lambda: 1).result(WAIT_S)
        assert executor.submit(divides, 2).result(WAIT_S) == 0.5


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with Processes(2) as executor:
        others = [executor.submit(asleep, 0.1) for _ in range(4)]
        killed = executor.submit(dies_at_first, tmp_path / "calls")
        assert killed.result(WAIT_S) == pids(tmp_path / "calls")[1]
        assert len([other.result(WAIT_S) for other in others]) == 4
        idle = executor.submit(asleep, 0).result(WAIT_S)
        os.kill(idle, signal.SIGKILL)
        assert executor.submit(asleep, 0).result(WAIT_S) != idle


@pytest.mark.parametrize(("call", "error"), [(dies, ProcessDied), (finds_no_memory, MemoryError)])
def test_a_call_that_fails_for_want_of_memory_is_made_twice(
    call: Callable[[Path], None], error: type[Exception], tmp_path: Path
) -> None:
    with Processes(2) as executor:
        failed = executor.submit(call, tmp_path / "calls")
        others = [executor.submit(asleep, 0.05) for _ in range(6)]
        with pytest.raises(error):
            failed.result(WAIT_S)
        assert len({other.result(WAIT_S) for other in others}) >= 1
    assert len(set(pids(tmp_path / "calls"))) == 2


def test_what_is_made_again_is_made_alone(tmp_path: Path) -> None:
    with Processes(3) as executor:
        again = [executor.submit(spans, tmp_path / str(number), 0.1, dies=True) for number in range(2)]
        others = [executor.submit(spans, tmp_path / "other", 0.05) for _ in range(20)]
        every: list[Future[tuple[float, float]]] = [*again, *others]
        for call in again:
            began, ended = call.result(WAIT_S)
            assert [other for other in every if other is not call and other.result(WAIT_S)[0] < ended
                    and began < other.result(WAIT_S)[1]] == []  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells what a process takes")
def test_a_process_that_takes_more_memory_than_it_may_is_ended() -> None:
    with Processes(2, 400_000_000) as executor:
        calls = [executor.submit(takes, count) for count in (1, 900_000_000, 2, 3)]
        assert [calls[place].result(WAIT_S) for place in (0, 2, 3)] == [1, 2, 3]
        with pytest.raises(ProcessDied):
            calls[1].result(WAIT_S)


def test_whoever_leaves_waits_for_nobody() -> None:
    start = time.monotonic()
    with Processes(2) as executor:
        first = executor.submit(asleep, 0).result(WAIT_S)
        rest = [executor.submit(asleep, WAIT_S) for _ in range(4)]
    assert time.monotonic() - start < WAIT_S / 2
    assert not is_alive(first)
    for call in rest:
        with pytest.raises(CancelledError):
            call.result(WAIT_S)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(asleep, 0)


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    code = """
import os, pathlib, signal
from nightsight.system.processes import Processes
from tests.calls import asleep
if __name__ == "__main__":
    executor = Processes(1)
    print(executor.submit(asleep, 0).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    program, root = tmp_path / "program.py", Path(__file__).parents[1]
    program.write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{root / 'pipeline'}{os.pathsep}{root}"}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, check=False)
    deadline = time.monotonic() + WAIT_S
    while is_alive(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(int(done.stdout))


def test_a_worker_works_in_one_thread_and_collects_garbage_in_the_end() -> None:
    import gc  # noqa: PLC0415 (only here)

    with as_worker():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("files", "count", "limit"),
    [
        ({}, 4, 8_000_000),
        ({"cpu.max": "150000 100000", "memory.max": "5000000"}, 2, 5_000_000),
        ({"cpu.max": "max 100000", "memory.max": "max", "memory.high": "3000"}, 4, 3000),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1, 8_000_000),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4, 8_000_000),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, 4, 8_000_000),
    ],
)
def test_a_container_has_its_own_cores_and_memory(
    files: dict[str, str], count: int, limit: int, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(processes, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2000, "SC_PAGE_SIZE": 4000}.__getitem__)
    assert (cores(), memory_of_machine()) == (count, limit)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals are masked on POSIX only")
def test_ctrl_c_reaches_the_one_who_waits_and_ends_the_processes() -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    executor = Processes(2)
    with pytest.raises(KeyboardInterrupt), executor:
        executor.submit(asleep, WAIT_S).result()
    assert not any(process._process.is_alive() for process in executor._all)
