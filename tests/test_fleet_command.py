"""`nightsight fleet`: many captures become one page, whatever happens to files, workers and schedulers meanwhile."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import psutil
import pytest

from nightsight.errors import ToolError
from nightsight.model.fleet import Fleet
from nightsight.progress import silent
from nightsight.render.fleet import render_fleet
from nightsight.system import executor
from nightsight.system.executor import Cluster, map_inputs
from nightsight.workflows import fleet as workflow

CaptureFile = Callable[[str], Path]
HERE = 2


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Start a cluster inside this process, and return its address."""
    from distributed import LocalCluster  # noqa: PLC0415 (takes a second)

    with LocalCluster(n_workers=HERE, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as local:
        yield local.scheduler_address


def copied(source: Path, folder: Path, count: int, *, name: str = "night") -> list[Path]:
    """Make captures that hold the same, and yet are different files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number in range(count):
        made.append(folder / f"{name}{number}.sqlite")
        shutil.copy(source, made[-1])
        with closing(sqlite3.connect(made[-1])) as connection:
            connection.execute(f"PRAGMA user_version = {number + 1}")
    return made


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "captures").glob("*.parquet"))


def test_captures_become_a_page_and_are_read_once(
    run: Any, capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = copied(capture_file("mlp"), tmp_path / "nights" / "20", 2)
    shutil.copy(capture_file("train"), tmp_path / "nights" / "21.sqlite")
    (tmp_path / "nights" / "half.sqlite").write_bytes(nights[0].read_bytes()[:40_000])
    (tmp_path / "nights" / "text.sqlite").write_text("hello")
    asked = ("fleet", "nights/**/*.sqlite", "nights/none.sqlite", "-o", "out/fleet.html", "--workers", 2)
    done = run(*asked)
    assert done.stdout == "report: out/fleet.html\n"
    assert "3 of 5 captures" in done.stderr or "5 of 5 captures" in done.stderr
    assert "Not read: nights/none.sqlite: there is no such file\n" in done.stderr
    assert "Not read: half.sqlite: half.sqlite is truncated" in done.stderr
    assert "Not read: text.sqlite: text.sqlite is not a capture that nightsight can read\n" in done.stderr
    assert "3 captures, " in done.stderr
    page = (tmp_path / "out" / "fleet.html").read_text()
    assert "3 captures" in page
    assert "20/night0.sqlite" in page
    assert len(kept(tmp_path / "out" / "fleet.summaries")) == 3
    everything = page + "".join(
        path.read_bytes().decode("latin-1") for path in (tmp_path / "out" / "fleet.summaries").rglob("*.parquet")
    )
    assert str(tmp_path) not in everything
    # nothing is left to do but what failed
    (tmp_path / "nights" / "half.sqlite").unlink()
    (tmp_path / "nights" / "text.sqlite").unlink()
    monkeypatch.setattr(workflow, "map_inputs", None)
    assert "Traceback" not in run(*asked).output
    assert (tmp_path / "out" / "fleet.html").read_text() != page
    again = (tmp_path / "out" / "fleet.html").read_bytes()
    run(*asked, "-q")
    assert (tmp_path / "out" / "fleet.html").read_bytes() == again


def test_a_file_that_only_moved_is_not_read_again(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 2)
    run("fleet", "a", "--scheduler", scheduler)
    before = [(path.name, path.stat().st_mtime_ns) for path in kept(tmp_path / "fleet.summaries")]
    (tmp_path / "a").rename(tmp_path / "b")
    monkeypatch.setattr(workflow, "load", None)
    assert "2 captures" in run("fleet", "b", "--scheduler", scheduler).stderr
    assert [(path.name, path.stat().st_mtime_ns) for path in kept(tmp_path / "fleet.summaries")] == before


@pytest.mark.nightly
def test_a_changed_file_another_window_and_a_damaged_summary_are_read_anew(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path
) -> None:
    (capture,) = copied(capture_file("mlp"), tmp_path / "a", 1)
    asked = ("fleet", "a", "--scheduler", scheduler)
    run(*asked)
    run(*asked, "--window", "whole")
    assert len(kept(tmp_path / "fleet.summaries")) == 2
    shutil.copy(capture_file("train"), capture)
    run(*asked)
    paths = kept(tmp_path / "fleet.summaries")
    assert len(paths) == 3
    for path in paths:
        path.write_bytes(path.read_bytes()[:100])
    run(*asked)
    assert sum(path.stat().st_size > 100 for path in paths) == 1


def test_the_same_capture_twice_counts_once(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    for name in ("one", "two"):
        shutil.copy(capture_file("mlp"), tmp_path / "a" / f"{name}.sqlite")
    assert "1 capture, " in run("fleet", "a", "--scheduler", scheduler).stderr
    assert "two.sqlite holds the same as one.sqlite, and counts once" in (tmp_path / "fleet.html").read_text()


@pytest.mark.nightly
def test_runs_are_captures_and_the_page_links_to_their_reports(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path
) -> None:
    for workload, name in (("mlp", "20261120-111931"), ("gelu", "20261121-111931")):
        folder = tmp_path / "reports" / workload / name
        run("report", capture_file(workload), "-o", folder / "report.json")
        (folder / "report.html").touch()
        (folder / "run.json").write_text("{}")
    failed = tmp_path / "reports" / "mlp" / "20261122-111931"
    shutil.copytree(folder, failed)
    (failed / "run.json").write_text('{"failed": true}')
    done = run("fleet", "reports", "--scheduler", scheduler)
    assert "Not read: mlp/20261122-111931: the program failed in this run\n" in done.stderr
    page = (tmp_path / "fleet.html").read_text()
    assert 'href="reports/mlp/20261120-111931/report.html"' in page
    # an address that leads out of the folder of the page would tell where it is
    run("fleet", "reports", "--scheduler", scheduler, "-o", "deep/page.html")
    assert "report.html" not in (tmp_path / "deep" / "page.html").read_text()


def test_files_and_summaries_may_be_in_stores(run: Any, scheduler: str, capture_file: CaptureFile) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/nights/20/mlp.sqlite", capture_file("mlp").read_bytes())
    asked = ("fleet", "memory://nights/*/*.sqlite", "--scheduler", scheduler, "--summaries", "memory://kept")
    assert "1 capture, " in run(*asked).stderr
    assert len(system.glob("/kept/captures/*.parquet")) == 1
    assert "captures ..." not in run(*asked).stderr
    system.store.clear()


@pytest.mark.nightly
def test_of_several_files_that_cannot_be_read_a_few_are_printed_and_all_are_on_the_page(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path
) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 1)
    for number in range(8):
        (tmp_path / "a" / f"bad{number}.sqlite").write_text("no")
    done = run("fleet", "a/*", "--scheduler", scheduler)
    assert done.stderr.count("Not read: ") == 6
    assert "Not read: 3 more, listed on the page" in done.stderr
    assert (tmp_path / "fleet.html").read_text().count("is not a capture that nightsight can read") == 8


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (["none/*.sqlite"], "no capture could be read: none/*.sqlite: nothing matches", 3),
        (["none.sqlite"], "no capture could be read: none.sqlite: there is no such file", 3),
        (["text.sqlite"], "no capture could be read: text.sqlite: text.sqlite is not a capture", 3),
        (["text.sqlite", "-o", "text.sqlite"], "text.sqlite is one of the captures", 2),
        (["text.sqlite", "--window", "3/1"], "", 2),
        (["text.sqlite", "--summaries", "text.sqlite"], "", 3),
        (["text.sqlite", "--summaries", "s5://x"], "the summaries in s5://x: cannot be opened", 3),
        (["text.sqlite", "--workers", "2"], "--workers and --memory apply only to local workers", 2),
        ([], "Missing argument 'PATTERN...'", 2),
    ],
)
def test_a_request_that_gives_nothing_is_one_line(
    arguments: list[str], message: str, status: int, *, run: Any, scheduler: str, tmp_path: Path
) -> None:
    (tmp_path / "text.sqlite").write_text("hello")
    done = run("fleet", *arguments, "--scheduler", scheduler, expect=status)
    assert message in done.output
    assert "Traceback" not in done.output
    assert (tmp_path / "text.sqlite").read_text() == "hello"
    assert not (tmp_path / "fleet.html").exists()


@pytest.mark.parametrize(
    ("size", "message"), [("much", "'much' is not a memory size"), ("0", "0 is too little memory for a worker")]
)
def test_sizes_of_memory_are_checked(size: str, message: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("hello")
    assert message in run("fleet", "text.sqlite", "--memory", size, expect=2).output


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://127.0.0.1:9", "no answer"),
        ("nowhere", "missing port number"),
        ("xyz://host:1", "unknown address scheme 'xyz'"),
        ("tls://127.0.0.1:9", "TLS expects"),
    ],
)
def test_a_scheduler_that_is_not_there_is_one_line(
    address: str, reason: str, *, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_ANSWER_S", "500ms")
    (tmp_path / "text.sqlite").write_text("hello")
    output = run("fleet", "text.sqlite", "--scheduler", address, expect=3).output
    assert f"Error: there is no Dask scheduler at {address}: {reason}" in output
    assert "Traceback" not in output


def test_a_cluster_needs_dask_and_says_what_installs_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.sqlite").write_text("hello")
    monkeypatch.setitem(sys.modules, "distributed", None)
    output = run("fleet", "text.sqlite", "--scheduler", "tcp://host:8786", expect=3).output
    assert "--scheduler needs dask and distributed" in output
    assert "install dask distributed\n" in output


def test_workers_here_do_without_dask(capture_file: CaptureFile, tmp_path: Path) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 1)
    code = """
import sys
from nightsight.cli import main
if __name__ == "__main__":
    sys.modules.update({"dask": None, "distributed": None, "cryptography": None, "psutil": None})
    main(["fleet", "a", "-q"], standalone_mode=False)
"""
    (tmp_path / "program.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert "<title>1 capture" in (tmp_path / "fleet.html").read_text()


@pytest.mark.nightly
def test_an_interrupt_keeps_what_was_read(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 3)
    real = map_inputs

    def stopped(*given: Any) -> Iterator[Any]:
        yield next(iter(real(*given)))
        raise KeyboardInterrupt

    with monkeypatch.context() as pressed:
        pressed.setattr(workflow, "map_inputs", stopped)
        output = run("fleet", "a", "--scheduler", scheduler, expect=130).output
    assert "Error: interrupted after 1 of 3 captures" in output
    assert len(kept(tmp_path / "fleet.summaries")) == 1
    assert "2 of 3 captures" in run("fleet", "a", "--scheduler", scheduler).stderr


def test_a_capture_that_breaks_the_page_is_listed_on_it(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 3)

    def broken(fleet: Fleet) -> str:
        if "night1.sqlite" in set(fleet.captures["file"]):
            raise ZeroDivisionError("no such number")
        return render_fleet(fleet)

    monkeypatch.setattr(workflow, "render_fleet", broken)
    reason = "night1.sqlite: no page can be made of it: ZeroDivisionError: no such number"
    assert f"Not read: {reason}" in run("fleet", "a", "--scheduler", scheduler).stderr
    page = (tmp_path / "fleet.html").read_text()
    assert "ZeroDivisionError: no such number" in page
    assert "<title>2 captures" in page
    # what no capture alone is to blame for is a bug
    monkeypatch.setattr(workflow, "render_fleet", lambda fleet: 1 / (len(fleet.captures) < 3))
    assert "ZeroDivisionError: division by zero" in run("fleet", "a", "--scheduler", scheduler, expect=70).stderr


def test_workers_of_another_version_are_refused(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(capture_file("mlp"), tmp_path / "a", 1)
    real = map_inputs

    def older(*given: Any) -> Iterator[Any]:
        for each in real(*given):
            yield replace(each, value=replace(each.value, version="nightsight 0.0.1, summary 1"))

    monkeypatch.setattr(workflow, "map_inputs", older)
    output = run("fleet", "a", "--scheduler", scheduler, expect=3).output
    assert "Error: the workers have nightsight 0.0.1, summary 1, and this is nightsight" in output


# -- what runs on workers must be importable there ---------------------------------------------------------------------


def greedy(number: int) -> int:
    if number == 0:
        held = b"x" * 900_000_000
        time.sleep(60)
        return len(held)
    return number


def wrong(number: int) -> int:
    if number == 0:
        raise RecursionError("too deep\nin line 3")
    return number


def deadly(number: int) -> int:
    if number == 0:
        os._exit(1)
    return number


def unknown(_: int) -> int:
    raise ModuleNotFoundError("No module named 'nightsight'", name="nightsight")


@pytest.mark.nightly
def test_an_input_that_needs_more_memory_than_a_worker_has_fails_alone(capfd: pytest.CaptureFixture[str]) -> None:
    inputs = {str(number): (number,) for number in range(6)}
    done = {each.key: each for each in map_inputs(greedy, inputs, Cluster(workers=2, memory="700MB"), silent)}
    assert str(done["0"].error) == "each worker that read it died: it may need more memory"
    assert [done[str(number)].value for number in range(1, 6)] == [1, 2, 3, 4, 5]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.nightly
def test_an_input_that_kills_the_workers_of_a_cluster_fails_alone() -> None:
    import dask  # noqa: PLC0415 (takes a second)
    from distributed import LocalCluster  # noqa: PLC0415 (the same)

    inputs = {str(number): (number,) for number in range(4)}
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
    ):
        done = {each.key: each for each in map_inputs(deadly, inputs, Cluster(local.scheduler_address), silent)}
    assert str(done["0"].error) == "each worker that read it died: it may need more memory"
    assert [done[str(number)].value for number in range(1, 4)] == [1, 2, 3]


class Counted(ThreadPoolExecutor):
    """Workers that note what they are asked for."""

    made: ClassVar[list["Counted"]] = []

    def __init__(self, workers: int, memory: int) -> None:
        super().__init__(workers)
        self.workers, self.memory, self.asked = workers, memory, 0
        self.made.append(self)

    def submit(self, function: Any, /, *given: Any, **named: Any) -> Future[Any]:
        self.asked += 1
        return super().submit(function, *given, **named)


def test_of_thousands_of_inputs_a_few_are_asked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "Processes", Counted)
    monkeypatch.setattr(executor, "_MOST_ASKED", 3)
    inputs = {str(number): (number,) for number in range(1, 20)}
    lines = []
    for count, each in enumerate(map_inputs(wrong, inputs, Cluster(workers=2), silent)):
        assert Counted.made[-1].asked <= count + 3
        lines.append(each.value)
    assert sorted(lines) == list(range(1, 20))


@pytest.mark.parametrize(
    ("workers", "memory", "expected"),
    [
        (2, "2GB", (2, 2_000_000_000)),
        (2, "1.5 gb", (2, 1_500_000_000)),
        (2, "900MiB", (2, 900 * 1024**2)),
        (2, "700000000", (2, 700_000_000)),
        (0, "", (8, 1_500_000_000)),
        # no more than there are inputs
        (100, "", (9, 1_500_000_000)),
        (9, "small", (9, 400_000_000)),
    ],
)
def test_workers_share_cores_and_memory_of_the_machine(
    workers: int, memory: str, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "Processes", Counted)
    monkeypatch.setattr(executor, "cores", lambda: 8)
    monkeypatch.setattr(executor, "memory_of_machine", lambda: 4_500_000_000 if memory == "small" else 10**12)
    inputs = {str(number): (number,) for number in range(1, 10)}
    list(map_inputs(wrong, inputs, Cluster(workers=workers, memory=memory.replace("small", "")), silent))
    assert (Counted.made[-1].workers, Counted.made[-1].memory) == expected


def test_an_input_that_fails_is_one_line_and_workers_without_nightsight_are_named(scheduler: str) -> None:
    inputs = {"a": (0,), "b": (1,)}
    done = {each.key: each for each in map_inputs(wrong, inputs, Cluster(scheduler), silent)}
    assert (str(done["a"].error), done["b"].value) == ("RecursionError: too deep", 1)
    with pytest.raises(ToolError, match="nightsight is not installed on the workers of the cluster"):
        list(map_inputs(unknown, inputs, Cluster(scheduler), silent))


def slow(number: int) -> int:
    time.sleep(0.3)
    return number


def test_a_scheduler_that_goes_away_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    from distributed import LocalCluster  # noqa: PLC0415 (takes a second)

    inputs = {str(number): (number,) for number in range(4)}
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as local:
        done = map_inputs(slow, inputs, Cluster(local.scheduler_address), silent)
        assert next(done).value == 0
        local.close()
        with pytest.raises(ToolError, match="the scheduler went away"):
            list(done)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.nightly
def test_a_killed_worker_loses_nothing(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    copied(capture_file("gelu"), tmp_path / "a", 6)
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    killed = []

    def kill() -> None:
        while not kept(tmp_path / "fleet.summaries"):
            time.sleep(0.02)
        children = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
        workers = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
        killed.append(workers[0].pid)
        os.kill(workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = run("fleet", "a", "--workers", 2)
    killer.join()
    assert killed
    assert "6 captures, " in done.stderr
    assert "Not read" not in done.stderr
    assert len(kept(tmp_path / "fleet.summaries")) == 6


@pytest.mark.nightly
def test_ctrl_c_ends_all_processes_and_the_same_command_goes_on(
    run: Any, scheduler: str, capture_file: CaptureFile, tmp_path: Path
) -> None:
    copied(capture_file("gelu"), tmp_path / "a", 5)
    command = [sys.executable, "-m", "nightsight", "fleet", "a", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "fleet.summaries" / "files.parquet").exists():
        time.sleep(0.02)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Error: interrupted after " in stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    count = len(kept(tmp_path / "fleet.summaries"))
    assert 1 <= count < 5
    again = run("fleet", "a", "--scheduler", scheduler).stderr
    assert "5 captures, " in again
    assert "\n1 of 5 captures" not in again
