"""nightsight compare: what it reads, what it writes, its exit status, and what it refuses in one line."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nightsight.cli import main
from nightsight.model.report import Benchmark, Report
from nightsight.workflows.compare import load_sides
from nightsight.workflows.opening import Reading
from tests.kineto import call, kernel
from tests.kineto import write as write_trace
from tests.recorded import Recorded
from tests.reports import unpacked

pytestmark = pytest.mark.usefixtures("remembered_analyses")

CaptureFile = Callable[[str], Path]


# by the step in ms, and the workload
_REPORTS: dict[tuple[float, str], str] = {}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def runs(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Write run folders: their unprofiled step takes so many ms."""
    monkeypatch.chdir(tmp_path)
    numbers = iter(range(100))

    def report_of(step: float, workload: str) -> str:
        if (step, workload) not in _REPORTS:
            benchmark = Benchmark((1e6 * step,) * 3, 20)
            report = replace(recorded.report("train"), title=workload, benchmark=benchmark, stages_s={"profile": 1.0})
            _REPORTS[step, workload] = report.to_json()
        return _REPORTS[step, workload]

    def write(*steps_ms: float, workload: str = "mlp", document: dict[str, object] | None = None) -> list[Path]:
        folders = []
        for step in steps_ms:
            folder = tmp_path / "reports" / workload / f"20261122-1200{next(numbers):02}"
            folder.mkdir(parents=True)
            (folder / "report.json").write_text(report_of(step, workload), encoding="utf-8")
            (folder / "run.json").write_text(json.dumps(document or {}), encoding="utf-8")
            folders.append(folder)
        return folders

    return write


SAME = (3.0, 3.001, 2.999)
SLOWER = (3.3, 3.301, 3.299)


def test_the_terminal_gets_a_summary_that_ends_with_the_decision(runs: Callable[..., list[Path]]) -> None:
    result = invoke("--baseline", *runs(*SAME), "--candidate", *runs(*SLOWER))
    assert result.exit_code == 0
    assert result.stdout.startswith("mlp: regressed.")
    assert "regression: step time without the profiler +10.0 %" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("after", "options", "status"),
    [
        (SAME, ("--gate",), 0),
        (SLOWER, ("--gate",), 1),
        (SLOWER[:2], ("--gate",), 4),
        (SLOWER[:2], ("--gate", "--strict"), 1),
        (SLOWER, (), 0),
    ],
)
def test_a_gate_sets_the_exit_status(
    runs: Callable[..., list[Path]], after: tuple[float, ...], options: tuple[str, ...], status: int
) -> None:
    assert invoke("--baseline", *runs(*SAME), "--candidate", *runs(*after), *options).exit_code == status


def test_limits_are_read_from_the_current_folder(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (tmp_path / "nightsight.toml").write_text("[gate.limits]\nlaunches = { most = 40 }", encoding="utf-8")
    result = invoke("--baseline", *runs(*SAME), "--candidate", *runs(*SAME), "--gate")
    assert result.exit_code == 1
    assert "launches per step 60, at most 40 allowed" in result.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("name", ["nightsight.toml", "pyproject.toml"])
def test_settings_that_are_wrong_are_reported_before_a_run_is_read(
    runs: Callable[..., list[Path]], tmp_path: Path, name: str, encoding: str
) -> None:
    (run,) = runs(3.0)
    (run / "report.json").write_text("damaged", encoding="utf-8")
    key = "gate" if name == "nightsight.toml" else "tool.nightsight.gate"
    (tmp_path / name).write_text(f"[{key}]\nlast_pct = 1", encoding=encoding)
    message = "unknown key 'gate.last_pct'" if encoding == "utf-8" else "is not in UTF-8"
    refused(invoke("--baseline", run, "--candidate", run), 2, message)


def test_a_pyproject_that_names_no_part_of_ours_is_refused(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nightsight.gates]\nleast_pct = 2", encoding="utf-8")
    (run,) = runs(3.0)
    refused(invoke("--baseline", run, "--candidate", run), 2, "unknown key 'gates'")


def test_the_runs_of_both_sides_are_one_series(runs: Callable[..., list[Path]]) -> None:
    amounts: list[tuple[float, float]] = []

    def note(message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        amounts.extend([(done, of)] * is_series)

    load_sides((runs(3.0, 3.0), runs(3.0)), Reading(None, 1 << 30, note))
    assert amounts == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("name", "begins"), [("a.html", "<!DOCTYPE html>"), ("a.md", "<!-- nightsight:mlp -->"), ("a.json", "{")]
)
def test_the_name_of_the_file_says_its_format(
    runs: Callable[..., list[Path]], tmp_path: Path, name: str, begins: str
) -> None:
    result = invoke("--baseline", *runs(*SAME), "--candidate", *runs(*SLOWER), "-o", tmp_path / name)
    assert result.exit_code == 0
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins.lower())
    assert result.stdout.splitlines()[0] == f"comparison: {tmp_path / name}"


def test_json_has_the_rows_and_what_each_run_measured(runs: Callable[..., list[Path]]) -> None:
    turns = [{"series": "s", "side": side, "order": place} for place, side in enumerate(("baseline", "candidate") * 3)]
    sides = [
        [runs(step, document=turn)[0] for step, turn in zip(steps, turns[number::2], strict=True)]
        for number, steps in enumerate((SAME, SLOWER))
    ]
    result = invoke("--baseline", *sides[0], "--candidate", *sides[1], "--format", "json", "-o", "-")
    document = json.loads(result.stdout)
    assert (document["format"], document["workload"], document["verdict"], document["is_paired"]) == (
        1,
        "mlp",
        "regressed",
        True,
    )
    rows = [dict(zip(document["changes"]["columns"], row, strict=True)) for row in document["changes"]["rows"]]
    assert rows[0]["name"] == "unprofiled_step_ns"
    assert rows[0]["change_pct"] == pytest.approx(10, abs=0.1)
    assert document["decision"]["status"] == 1
    assert [run["gate"]["unprofiled_step_ns"] for run in document["candidate"]] == [3.3e6, 3.301e6, 3.299e6]
    assert [run["order"] for run in document["candidate"]] == [1, 3, 5]
    assert str(sides[0][0].parent) not in result.stdout


def test_two_paths_are_a_baseline_and_a_candidate(runs: Callable[..., list[Path]]) -> None:
    before, after, third = runs(3.0, 3.3, 3.6)
    document = json.loads(invoke(before, "--format", "json", after).stdout)
    assert [run["gate"]["unprofiled_step_ns"] for run in document["baseline"]] == [3e6]
    assert [run["gate"]["unprofiled_step_ns"] for run in document["candidate"]] == [3.3e6]
    # files that lie in no folder of a run have a page too
    files = [Path(shutil.copy(run / "report.json", run.with_suffix(".json"))) for run in (before, after)]
    assert invoke(*files, "-o", before.parent / "page.html").exit_code == 0
    for given in ((before,), (before, after, third), (before, "--candidate", after), ("--baseline", before), ()):
        assert "Name two runs, BASELINE CANDIDATE" in invoke(*given).stderr


def test_captures_are_compared_as_one_workload(capture_file: CaptureFile) -> None:
    result = invoke("--baseline", capture_file("graph"), "--candidate", capture_file("graph_node"), "--gate")
    assert result.exit_code == 4
    assert "CUDA graphs" in result.stdout


def test_the_link_to_the_latest_run_is_a_run(runs: Callable[..., list[Path]]) -> None:
    (first, second) = runs(3.0, 3.3)
    latest = first.parent / "latest"
    latest.symlink_to(second.name, target_is_directory=True)
    result = invoke("--baseline", first, "--candidate", latest / "report.json", "--format", "json", "-o", "-")
    assert json.loads(result.stdout)["candidate"][0]["source"] == second.name


def test_all_that_a_shell_finds_in_a_folder_can_be_named(runs: Callable[..., list[Path]]) -> None:
    folders = runs(*SAME)
    parent = folders[0].parent
    (parent / "latest").symlink_to(folders[-1].name, target_is_directory=True)
    (parent / "index.html").write_text("<html>")
    (parent / "noise.jsonl").write_text("{}")
    (parent / "ab-1").mkdir()
    (parent / "ab-1" / "comparison.json").write_text("{}")
    result = invoke("--baseline", *sorted(parent.iterdir()), "--candidate", *runs(*SAME), "--format", "json")
    assert len(json.loads(result.stdout)["baseline"]) == 3
    skipped = [line.removeprefix("Skipped: ") for line in result.stderr.splitlines() if line.startswith("Skipped: ")]
    assert skipped == [
        *(f"{parent / name} is not a run" for name in ("ab-1", "index.html")),
        f"{parent / 'latest'} is the same run as {folders[-1]}",
        f"{parent / 'noise.jsonl'} is not a run",
    ]


def test_a_run_that_is_named_twice_counts_once(runs: Callable[..., list[Path]]) -> None:
    (one, other) = runs(3.0, 3.0)
    result = invoke("--baseline", one, one / "../" / one.name, "--candidate", other, one, "--format", "json")
    document = json.loads(result.stdout)
    assert (len(document["baseline"]), len(document["candidate"])) == (1, 2)
    assert "is the same run as" in result.stderr


def test_what_is_no_run_is_refused_if_nothing_else_is_named(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (run,) = runs(3.0)
    page = tmp_path / "index.html"
    page.write_text("<html>")
    for named in ([page], [page, page]):
        refused(invoke("--baseline", *named, "--candidate", run), 3, "is not a capture that nightsight can read")
    # what is incomplete is a run
    (run.parent / "broken" / "capture").mkdir(parents=True)
    refused(invoke("--baseline", run, run.parent / "broken", "--candidate", run), 3, "has no report.json")
    refused(invoke("--baseline", run, run.parent, "--candidate", run), 2, "holds several runs")


def refused(result: Result, status: int, message: str) -> None:
    assert result.exit_code == status, result.output
    error = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert message in error[0]


def test_what_cannot_be_compared_is_refused(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (run,) = runs(3.0)
    (other,) = runs(3.0, workload="gemm")
    (failed,) = runs(3.0, document={"failed": True})
    refused(invoke("--baseline", run, "--candidate", other), 2, "different workloads: gemm, mlp")
    refused(invoke("--baseline", failed, "--candidate", run), 3, "the program failed in this run")
    refused(invoke("--baseline", run.parent, "--candidate", run), 2, "holds several runs")
    refused(invoke("--baseline", tmp_path, "--candidate", run), 2, "is not the folder of a run")
    refused(invoke("--baseline", run, "--candidate", run, "-o", tmp_path / "a.txt"), 2, "unknown format of a.txt")
    refused(invoke("--baseline", "--candidate", run), 2, "--baseline needs at least one run. Did its pattern")
    refused(invoke("--baseline", run, "--candidate"), 2, "--candidate needs at least one run")
    refused(invoke("--baseline", run, "--candidate", run, "--strict"), 2, "--strict needs --gate.")
    refused(invoke("--baseline", run, "--candidate", tmp_path / "none"), 2, "does not exist")
    refused(invoke("--baseline", run, "--candidate", run, "-o", run / "report.json"), 2, "is also the input")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1, "results"', "not a nightsight report.json"),
        ('{"format": 99, "title": "", "results": []}', "unsupported format version"),
        ("", "is empty"),
        ('{"format": 1}', "not a nightsight report.json"),
    ],
)
def test_a_damaged_report_is_named(runs: Callable[..., list[Path]], text: str, message: str) -> None:
    good, bad = runs(3.0, 3.0)
    (bad / "report.json").write_text(text, encoding="utf-8")
    refused(invoke("--baseline", good, "--candidate", bad), 3, message)
    assert str(bad) in invoke("--baseline", good, "--candidate", bad).stderr


def test_a_damaged_run_json_says_nothing(runs: Callable[..., list[Path]]) -> None:
    before, after = runs(3.0, 3.0)
    (after / "run.json").write_text("{", encoding="utf-8")
    assert invoke("--baseline", before, "--candidate", after).exit_code == 0


def test_a_run_without_a_report_names_its_capture(tmp_path: Path, runs: Callable[..., list[Path]]) -> None:
    (run,) = runs(3.0)
    (run / "report.json").unlink()
    (run / "capture").mkdir()
    refused(invoke("--baseline", run, "--candidate", run), 3, "has no report.json")


def test_reports_without_anything_could_not_be_measured(runs: Callable[..., list[Path]]) -> None:
    before, after = runs(3.0, 3.0)
    report = Report.from_json((after / "report.json").read_bytes())
    nothing = replace(report, results=(), windows=(), benchmark=None, findings=())
    (after / "report.json").write_text(nothing.to_json(), encoding="utf-8")
    result = invoke("--baseline", before, "--candidate", after, "--gate")
    assert result.exit_code == 3


@pytest.mark.parametrize("style", ["html", "markdown", "json"])
def test_a_host_in_the_name_of_a_trace_is_in_no_comparison(tmp_path: Path, style: str) -> None:
    traces = []
    for pid in (41, 42):
        path = tmp_path / f"alices-box_{pid}.1795615349382737875.pt.trace.json"
        traces.append(write_trace(tmp_path, kernel(), call()).rename(path))
    sides = [part for side, path in zip(("--baseline", "--candidate"), traces, strict=True) for part in (side, path)]
    assert invoke(*sides, "--workload", "x", "-o", tmp_path / f"out.{style}", "--format", style).exit_code == 0
    text = unpacked((tmp_path / f"out.{style}").read_text(encoding="utf-8"))
    assert "alices-box" not in text
