"""What every test may ask for: recorded captures, a fake nsys, and a machine on which there is nothing else."""

import functools
import gc
import itertools
import json
import lzma
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner, Result

import nightsight
from nightsight.analyze.analysis import Analysis
from nightsight.cli import main
from nightsight.collect import tools
from nightsight.system.parallel import use_one_thread
from tests.browser.chromium import Browser, chromium
from tests.continuous import GitHub
from tests.damage import Damage, damaged
from tests.forked import Forked
from tests.memory import remembered
from tests.properties import keep_calm
from tests.recorded import DATA, Recorded
from tests.tiers import Costs, chosen, is_left_out

keep_calm()
if "PYTEST_XDIST_WORKER" in os.environ:
    # the workers keep all cores busy: more threads would only wait for one another
    use_one_thread()
# what a script starts with & ignores interrupts, and so would all programs that tests interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)

FAKE_NSYS = Path(__file__).parent / "fake_tools" / "nsys.py"
FAKE_NCU = FAKE_NSYS.with_name("ncu.py")
PACKAGE = Path(nightsight.__file__).parent
_REAL_TOOLS = ("nsys", "ncu", "nvidia-smi")
_NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Measure what tests take for `make costs`; one process hears of all of them."""
    if os.environ.get("NIGHTSIGHT_COSTS") == "write" and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Costs())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files of which no test fits into the time."""
    return is_left_out(collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases that do not fit into the time."""
    kept = chosen(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave alone what was imported and collected: to look at all of it takes long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def written_nsys(folder: Path, behavior: str = "ok", *, export: str = "gelu/gelu.sqlite.xz") -> Path:
    """Write a fake nsys into a folder."""
    folder.mkdir(exist_ok=True)
    program = folder / "nsys"
    program.write_text(f"#!{sys.executable}\n{FAKE_NSYS.read_text()}")
    program.chmod(0o755)
    settings = {"behavior": behavior, "export": export, "data": str(DATA / "nsys")}
    program.with_name("fake.json").write_text(json.dumps(settings))
    return program


def is_alive(pid: int) -> bool:
    """Say whether a process runs: one that has ended but that nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture(scope="session")
def capture_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Decompress a recorded file: `capture_file("train")` is the path of train.sqlite; others by their full names."""
    folder = tmp_path_factory.mktemp("captures")

    @functools.cache
    def decompress(name: str) -> Path:
        (recorded,) = (path for end in ("", ".sqlite") for path in DATA.rglob(f"{name}{end}.xz"))
        target = folder / recorded.stem
        target.write_bytes(lzma.decompress(recorded.read_bytes()))
        return target

    return decompress


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what is made once in a session, whichever process needs it first."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def recorded(capture_file: Callable[[str], Path], shared: Path) -> Recorded:
    """Return the recorded captures, read and analyzed once: `recorded.report("train")`."""
    return Recorded(capture_file, shared)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium; each test opens pages of its own in it."""
    with chromium() as started:
        yield Browser(started)


@pytest.fixture(scope="session")
def torch_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Python that has PyTorch at once; return its path. A test of how a real one starts has no use for it."""
    pytest.importorskip("torch")
    with Forked(tmp_path_factory.mktemp("torch"), "python", "tests.forked_torch", real=sys.executable) as program:
        yield str(program)


@pytest.fixture(scope="session")
def forked_nightsight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start nightsight once for all calls: its imports take longer than most of what it is asked."""
    with Forked(tmp_path_factory.mktemp("nightsight"), "nightsight", "tests.forked_nightsight") as program:
        yield program


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    """Make a function that writes an export and damages it with SQL."""
    return damaged(tmp_path)


@pytest.fixture(scope="session")
def path_without_tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return PATH, with each folder that holds one of NVIDIA's tools replaced by links to all else in it."""

    def without(folder: Path) -> Path:
        if not any((folder / name).exists() for name in _REAL_TOOLS):
            return folder
        linked = tmp_path_factory.mktemp("bin")
        for program in folder.iterdir():
            if program.name not in _REAL_TOOLS:
                (linked / program.name).symlink_to(program)
        return linked

    return os.pathsep.join(str(without(Path(folder))) for folder in os.environ["PATH"].split(os.pathsep))


@pytest.fixture(autouse=True)
def machine(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    path_without_tools: str,
) -> Path | None:
    """Hide this machine's GPU and tools from all but the tests marked `gpu`; return the root of the bare one."""
    monkeypatch.setenv("COLUMNS", "100")
    # programs run with the Python of the tests, though nobody activated its environment
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    if request.node.get_closest_marker("gpu"):
        return None
    # mktemp looks at all folders that there are to find a new number: there are thousands
    root = tmp_path_factory.getbasetemp() / f"machine-{next(_NUMBERS)}"
    root.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    monkeypatch.setenv("PATH", path_without_tools)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("NSYS", raising=False)
    monkeypatch.delenv("NCU", raising=False)
    monkeypatch.setattr(tools, "ROOT", root)
    return root


@pytest.fixture
def gpu(machine: Path) -> None:
    """Put a GPU into the bare machine, as far as the driver's list of them goes."""
    (machine / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)


@pytest.fixture
def fake_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a fake nsys on PATH: `fake_nsys("importer")` chooses how it behaves, `export` the recording it exports."""

    def install(behavior: str = "ok", *, export: str = "gelu/gelu.sqlite.xz") -> Path:
        program = written_nsys(tmp_path / "fake", behavior, export=export)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return install


@pytest.fixture
def remembered_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Analyze the same events once only: for tests of commands, which are not about what the numbers are."""
    monkeypatch.setattr(Analysis, "run", remembered)
    # a copy of the process would forget what it computed
    monkeypatch.setattr("nightsight.workflows.analysis.compute_in_fork", lambda *_: ())


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give runs an empty page: rendering takes as long as a small run."""
    monkeypatch.setattr("nightsight.render.page.html.render_html", lambda *_, **__: "")


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a fake ncu on PATH: `fake_ncu("busy")` chooses how it behaves; what it saw is in ncu.seen.json beside it.

    report: what it leaves; by default the smallest one, as it takes NVIDIA's module seconds to read a large one.
    """

    def install(behavior: str = "ok", *, report: str = "range.ncu-rep.xz") -> Path:
        program = tmp_path / "fake" / "ncu"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{FAKE_NCU.read_text()}")
        program.chmod(0o755)
        settings = {"behavior": behavior, "report": str(DATA / "ncu" / report)}
        program.with_name("ncu.json").write_text(json.dumps(settings))
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return install


@pytest.fixture
def fake_gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GitHub]:
    """Put a fake gh on PATH, with a token: `fake_gh(pulls={"12": ...})` chooses what GitHub knows."""

    def install(**fields: Any) -> GitHub:
        github = GitHub(tmp_path / "fake-gh", **fields)
        monkeypatch.setenv("PATH", f"{github.folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("GH_TOKEN", "a token")
        monkeypatch.setenv("GITHUB_REPOSITORY", "owner/program")
        return github

    return install


@pytest.fixture
def no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an unshare on PATH that says what the real one says where namespaces are forbidden."""
    program = tmp_path / "forbidden" / "unshare"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def interrupt() -> Iterator[Callable[..., None]]:
    """Press Ctrl-C when a file appears, and again after each further pause, as long as nightsight runs."""

    def inside(number: int, frame: FrameType | None) -> None:
        # pytest would end if the command ended before the last one
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
                signal.default_int_handler(number, frame)
            frame = frame.f_back

    previous = signal.signal(signal.SIGINT, inside)
    threads = []

    def press(file: Path, *pauses_s: float) -> None:
        def wait_and_press() -> None:
            deadline = time.monotonic() + 120
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            for pause_s in (0.0, *pauses_s):
                time.sleep(pause_s)
                os.kill(os.getpid(), signal.SIGINT)

        threads.append(threading.Thread(target=wait_and_press))
        threads[0].start()

    yield press
    threads[0].join()
    signal.signal(signal.SIGINT, previous)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered_analyses: None) -> Callable[..., Result]:
    """Run a command in an empty folder, and check how it ended. Only a test that says so times steps with nsys."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object, expect: int = 0) -> Result:
        words = [str(argument) for argument in arguments]
        if words[:1] == ["profile"] and "nsys" in words and not {"--time-steps", "--server"} & {*words}:
            words.insert(1, "--no-time-steps")
        result = CliRunner().invoke(main, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == expect, result.output
        return result

    return invoke


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a program of one's own."""

    def write(code: str = "print('done')", name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(code)
        return path

    return write
