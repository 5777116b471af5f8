"""The command line, driven whole: real files in, reports and exit statuses out."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from nightsight.cli import main
from nightsight.collect import doctor
from nightsight.collect.workloads import registered_workloads
from nightsight.model.report import Report
from tests.recorded import DATA
from tests.reports import unpacked

CaptureFile = Callable[[str], Path]
FakeNsys = Callable[..., Path]
OK, FAILED, USAGE, UNREADABLE = 0, 1, 2, 3


def only_run(tmp_path: Path, workload: str = "train") -> Path:
    (folder,) = (path for path in (tmp_path / "reports" / workload).iterdir() if not path.is_symlink())
    return folder


def error_lines(result: Result) -> tuple[str, str]:
    """The error and its hint; what comes before them is progress, or the first screen."""
    error, hint = result.stderr.rsplit("Error: ", 1)[1].split("\nHint: ", 1)
    return error, hint


# -- profile ----------------------------------------------------------------------------------------------------------


def test_profile_leaves_a_run_and_prints_its_report(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys()
    result = run("profile", "--collector", "nsys", script())
    folder = only_run(tmp_path)
    assert result.stdout == f"report: reports/train/{folder.name}/report.html\n"
    assert sorted(path.name for path in folder.iterdir()) == [
        "capture",
        "log",
        "report.html",
        "report.json",
        "run.json",
    ]
    assert (tmp_path / "reports/train/latest").resolve() == folder
    report = Report.from_json((folder / "report.json").read_text())
    assert report.title == "train"
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() == 769
    assert f"train/{folder.name}/report.html" in (tmp_path / "reports/index.html").read_text()


def test_profile_ends_with_the_first_screen_and_tables_of_nvidia(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    done = run("profile", "--collector", "nsys", "--stats", "cuda_gpu_kern_sum,osrt_sum", script())
    assert done.stdout.startswith("cuda_gpu_kern_sum:\n\nTime (%)  Total Time (ns)")
    assert re.fullmatch(r"report: reports/train/\S+/report\.html", done.stdout.splitlines()[-1])
    assert "osrt_sum: no os calls in this capture" in done.stderr
    screen = done.stderr[done.stderr.index("\ntrain: ") :]
    assert "% busy." in screen
    assert "  Kernel\n" in screen


def test_quiet_leaves_the_path(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    done = run("profile", "-q", "--no-ncu", "--collector", "nsys", script())
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_a_program_that_fails_has_a_first_screen_too(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    done = run("profile", "--collector", "nsys", script("raise SystemExit(3)"), expect=FAILED)
    assert "Error: The capture covers only part of the run" in done.stderr
    assert done.stderr.index("% busy.") < done.stderr.index("Error: train ended with exit status 3")


@pytest.mark.nightly
def test_repeats_are_a_line_each_and_the_last_is_a_screen(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    done = run("profile", "--collector", "nsys", "--no-ncu", "--repeat", 2, script())
    assert done.stderr.count("% busy.") == 2
    assert done.stderr.count("  Kernel\n") == 1
    assert done.stderr.index("  Kernel\n") > done.stderr.index("run 2 of 2")


@pytest.mark.nightly
def test_profile_keeps_what_it_is_asked_to(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys()
    stdout = run("profile", "--collector", "nsys", "--keep", "nothing", script()).stdout
    assert stdout.startswith("#")
    assert "train" in stdout
    assert not (tmp_path / "reports").exists()
    run("profile", "--collector", "nsys", script())
    kept = only_run(tmp_path)
    run("profile", "--collector", "nsys", "--keep", "nothing", script())
    assert only_run(tmp_path) == kept
    assert (tmp_path / "reports/train/latest").resolve() == kept
    assert (tmp_path / "reports/index.html").read_text().count("report.html") == 1
    stdout = run("profile", "--collector", "nsys", "--keep", "reports", script()).stdout
    folder = (tmp_path / "reports/train/latest").resolve()
    assert stdout == f"report: reports/train/{folder.name}/report.html\n"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "run.json"]


def test_a_run_that_fails_is_kept(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--keep", "nothing", script("raise SystemExit(3)"), expect=1)
    folder = only_run(tmp_path)
    assert (folder / "log").is_dir()
    assert (folder / "capture").is_dir()


def test_nothing_private_reaches_what_is_attached(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys()
    monkeypatch.setenv("CI_JOB_TOKEN", "planted-in-environment")
    code = "print('planted-in-output')"
    run("profile", "--collector", "nsys", script(code), "--", "--password=planted-in-arguments")
    folder = only_run(tmp_path)
    attached = [folder / name for name in ("report.html", "report.json", "run.json")] + [
        tmp_path / "reports/index.html"
    ]
    assert "span_ns" in unpacked(attached[0].read_text())
    for path in attached:
        text = unpacked(path.read_text())
        assert "planted" not in text
        assert str(tmp_path) not in text
    captured = b"".join(path.read_bytes() for path in (folder / "capture").iterdir())
    assert b"planted-in-environment" not in captured


def test_a_failing_program_keeps_its_partial_report_and_the_status_says_so(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path
) -> None:
    fake_nsys()
    result = run("profile", "--collector", "nsys", script("import sys; sys.exit(7)"), expect=FAILED)
    error, _ = error_lines(result)
    page = only_run(tmp_path) / "report.html"
    assert error.startswith("train ended with exit status 7; the report covers the events captured until then")
    assert "The capture covers only part of the run" in page.read_text()
    assert json.loads(page.with_name("run.json").read_text())["failed"] is True


@pytest.mark.parametrize(
    ("behavior", "message"),
    [
        ("importer", "its importer did not start"),
        ("no report", "nsys wrote no report"),
        ("silent export", "cannot export"),
    ],
)
def test_what_nsys_can_do_wrong_is_reported_without_a_traceback(
    run: Any, script: Any, fake_nsys: FakeNsys, behavior: str, message: str
) -> None:
    fake_nsys(behavior)
    result = run("profile", "--collector", "nsys", script(), expect=UNREADABLE)
    error, hint = error_lines(result)
    assert message in error
    assert hint


def test_counters_that_may_not_be_read_are_reported_with_what_to_do(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys("no right to counters")
    result = run("profile", "--collector", "nsys", "--gpu-metrics", script(), expect=UNREADABLE)
    error, hint = error_lines(result)
    assert error == "nsys did not start train: Illegal --gpu-metrics-devices argument: all."
    assert hint.startswith("This user may not read the GPU's counters. Run as root")
    assert "report.html" not in result.output


def test_each_recording_is_asked_of_nsys(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys("no sampling")
    asked = ("--gpu-metrics", "--python-backtrace", "--memory-usage")
    show = "import os, pathlib; print(pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text().replace(chr(0), ' '))"
    run("profile", "--collector", "nsys", *asked, script(show))
    folder = only_run(tmp_path)
    log = (folder / "log" / "profile.log").read_text()
    assert all(
        f" {option}=" in log for option in ("--gpu-metrics-devices", "--python-backtrace", "--cuda-memory-usage")
    )
    assert "No stacks were recorded" in (folder / "report.html").read_text()


def test_without_nsys_the_error_names_the_way_out(run: Any, script: Any, tmp_path: Path) -> None:
    result = run("profile", "--collector", "nsys", script(), expect=UNREADABLE)
    assert "nsys was not found" in error_lines(result)[0]
    assert "--collector torch" in error_lines(result)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlpp"], "unknown workload 'mlpp'"),
        (["none.py"], "script none.py does not exist"),
        (["--", "no-such-program"], "no-such-program was not found"),
        ([], "Name a workload or script"),
        (["mlp", "extra"], "unexpected extra argument"),
        (["--timeout", "0", "mlp"], "--timeout"),
        (["--stats", "kernsum", "mlp"], "unknown report 'kernsum'"),
        (["--stats", "cuda_gpu_kern_sum,", "mlp"], "contains an empty name"),
        (["--stats", "nvtx_sum", "--collector", "ncu", "mlp"], "--stats has no effect with --collector ncu"),
        (
            ["--collector", "torch", "--active", "3", "--ranks", "0", "mlp"],
            "--active ends the program on the recorded",
        ),
        (["--gpu-metrics", "mlp"], "--gpu-metrics: only nsys can record this"),
        (["--collector", "torch", "--python-backtrace", "mlp"], "only nsys can record this"),
        (["--collector", "nsys", "--record", "stack", "mlp"], "--record has no effect with --collector nsys"),
        (
            ["--collector", "ncu", "--active", "3", "--wait", "0", "mlp"],
            "--active, --wait has no effect with --collector ncu",
        ),
        (["--record", "stack", "--", "sh"], "--step-range need torch.profiler"),
        (["--wait", "3", "--cycles", "2", "mlp"], "--wait needs --active."),
        (["--record", "all,threads", "mlp"], "--record memory and threads exclude each other"),
        (
            ["--record", "with_stack", "mlp"],
            "'with_stack' is not one of shapes, stack, memory, modules, sync, threads, all",
        ),
        (["--record", "flops", "mlp"], "torch does not write FLOPs to traces. Record shapes instead"),
        (["--record", "", "mlp"], "'' is not one of"),
        (["--activities", "cpu,xpu", "mlp"], "'xpu' is not one of cpu, cuda."),
        (["--active", "0", "mlp"], "0 is not in the range x>=1"),
        (["--skip-range", "", "mlp"], "'' contains an empty name"),
        (["--skip-range", "step", "--step-range", "step", "mlp"], "--skip-range and --step-range name the same range"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(run: Any, arguments: list[str], message: str, tmp_path: Path) -> None:
    assert message in run("profile", *arguments, expect=USAGE).stderr
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("profile mlp --dim 64", "profile mlp -- --dim 64"),
        (
            "profile --collector torch mlp --dim=64 -- --layers 2",
            "profile --collector torch mlp -- --dim=64 --layers 2",
        ),
        ("profile mlp 5", "profile mlp -- 5"),
        ("ab --base main train.py --epochs 1", "ab --base main train.py -- --epochs 1"),
    ],
)
def test_the_error_of_an_option_for_the_program_says_where_it_goes(run: Any, given: str, line: str) -> None:
    stderr = run(*given.split(), expect=USAGE).stderr
    assert stderr.endswith(f" If it is for the program: {main.name} {line}\n")


@pytest.mark.parametrize("given", ["profile --dim 64 mlp", "profile mlp --collector", "profile mlp --timeout 0"])
def test_other_mistakes_are_not_reported_as_for_the_program(run: Any, given: str) -> None:
    assert "for the program" not in run(*given.split(), expect=USAGE).stderr


def test_the_error_of_a_misspelled_workload_names_the_nearest(run: Any) -> None:
    assert "Did you mean mlp?" in run("profile", "mlpp", expect=USAGE).stderr


def test_reports_that_cannot_be_written_are_an_error_before_anything_runs(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path
) -> None:
    fake_nsys()
    mark = tmp_path / "ran"
    options = ("--collector", "nsys", "--reports", "/dev/null/reports")
    result = run("profile", *options, script(f"open({str(mark)!r}, 'w')"), expect=UNREADABLE)
    assert "cannot write /dev/null/reports" in error_lines(result)[0]
    assert not mark.exists()
    (tmp_path / "reports").touch()
    assert "is a file" in run("profile", "mlp", expect=USAGE).stderr


@pytest.mark.parametrize(
    "name", ["two words.py", 'it\'s "quoted".py', "<script>alert(1)<script>.py", "new\nline.py", "-dash.py"]
)
def test_odd_names_of_scripts(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path, name: str) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--", sys.executable, script(name=name))
    (page,) = (tmp_path / "reports").glob("*/2*/report.html")
    assert "<script>alert" not in page.read_text()


def test_auto_without_a_gpu_uses_torch_and_the_report_says_what_is_missing(
    run: Any, script: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    run("profile", script("import torch; torch.ones(64).sum()"))
    report = Report.from_json((only_run(tmp_path) / "report.json").read_text())
    assert report.environment.collector == "torch.profiler"
    assert report.findings[0].rule == "collector_fallback"
    assert report.result("cuda_gpu_kern_sum").table is None
    assert "aten::sum" in set(report.result("cpu_ops").rows["name"])


def test_a_script_without_torch_gets_a_report_that_says_so(
    run: Any, script: Any, tmp_path: Path, torch_python: str
) -> None:
    run("profile", "--collector", "torch", "--python", torch_python, script("print(1)"))
    report = Report.from_json((only_run(tmp_path) / "report.json").read_text())
    assert [finding.rule for finding in report.findings] == ["nothing_recorded"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_program_and_keeps_the_report(
    script: Any, fake_nsys: FakeNsys, tmp_path: Path, number: signal.Signals
) -> None:
    fake_nsys()
    path = script("import time; open('there', 'w').close(); time.sleep(60)")
    command = [sys.executable, "-m", "nightsight", "profile", "--collector", "nsys", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "there").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "train was interrupted" in stderr
    assert "The capture covers only part of the run" in (only_run(tmp_path) / "report.html").read_text()


@pytest.mark.parametrize("foreign", ['{"captured_utc": null}', '{"workload": 1}', "[]", "no json"])
def test_a_foreign_run_json_does_not_spoil_the_index(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path, foreign: str
) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", script())
    other = tmp_path / "reports" / "other" / "20260101-000000"
    other.mkdir(parents=True)
    good = json.loads((only_run(tmp_path) / "run.json").read_text())
    changed = json.loads(foreign) if foreign.startswith("{") else None
    (other / "run.json").write_text(json.dumps({**good, **changed}) if changed else foreign)
    run("profile", "--collector", "nsys", script())
    assert "20260101-000000" not in (tmp_path / "reports/index.html").read_text()


def test_make_prints_nothing_after_the_path(run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    result = run("profile", "--collector", "nsys", script())
    assert result.stdout.splitlines()[-1].endswith("/report.html")
    assert "exporting" in result.stderr


# -- the others -------------------------------------------------------------------------------------------------------


def test_stats_prints_what_nsys_prints(run: Any, capture_file: CaptureFile) -> None:
    reports = ("cuda_gpu_kern_sum", "nvtx_sum")
    options = [option for report in reports for option in ("-r", report)]
    printed = run("stats", capture_file("ddp2"), *options, "--format", "csv").stdout
    expected = [(DATA / "nsys/ddp2/nsys_stats" / f"{report}.csv").read_text().strip() for report in reports]
    assert printed.strip() == "\n\n".join(expected)


def test_a_full_standard_output_is_an_error(capture_file: CaptureFile) -> None:
    command = [sys.executable, "-m", "nightsight", "stats", str(capture_file("graph")), "-r", "cuda_gpu_kern_sum"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == UNREADABLE
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_stats_says_what_had_to_be_left_out(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    path = tmp_path / "damaged.sqlite"
    shutil.copy(capture_file("train"), path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid % 2")
    connection.commit()
    connection.close()
    result = run("stats", path, "-r", "cuda_gpu_kern_sum", "--format", "csv")
    assert "Warning: 612 of 1,224 rows of CUPTI_ACTIVITY_KIND_KERNEL were left out." in result.stderr
    assert result.stdout.startswith("Time (%)")


def test_stats_of_what_was_not_captured(run: Any, capture_file: CaptureFile) -> None:
    result = run("stats", capture_file("unified_memory"), "-r", "nvtx_sum", expect=UNREADABLE)
    assert "no ranges in this capture: NVTX tracing was off" in result.stderr
    stderr = run("stats", capture_file("graph"), "-r", "gpukernsum", expect=USAGE).stderr
    assert "Did you mean cuda_gpu_kern_sum? Known reports: cuda_api_sum, " in stderr


def test_stats_without_names_prints_what_nsys_stats_does(run: Any, capture_file: CaptureFile) -> None:
    cuda = ["cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"]
    there = [*cuda, "um_sum", "um_total_sum", "um_cpu_page_faults_sum"]
    done = run("stats", capture_file("unified_memory"))
    assert re.findall(r"^(\w+):\n\n", done.stdout, re.MULTILINE) == there
    assert "Skipped nvtx_sum: no ranges in this capture: NVTX tracing was off" in done.stderr
    assert "Skipped, not supported by nightsight: openmp_sum, " in done.stderr
    expected = [(DATA / "nsys/unified_memory/nsys_stats" / f"{report}.csv").read_text().strip() for report in there]
    assert run("stats", capture_file("unified_memory"), "--format", "csv").stdout.strip() == "\n\n".join(expected)


def test_stats_of_a_capture_that_has_none_of_the_usual_tables(run: Any, capture_file: CaptureFile) -> None:
    stderr = run("stats", capture_file("lines.raw.csv"), expect=UNREADABLE).stderr
    assert "lines.raw.csv has none of the tables" in stderr


def test_workloads_are_listed(run: Any) -> None:
    names = [line.split()[0] for line in run("workloads").stdout.splitlines() if not line.startswith(" ")]
    assert names == [workload.name for workload in registered_workloads()]


def test_doctor_speaks_to_people_and_programs(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = json.loads(run("doctor", "--json").stdout)
    # to import torch once more takes seconds
    (torch,) = (doctor.Check(**check) for check in checks if check["name"] == "torch")
    monkeypatch.setattr(doctor, "_torch", lambda *_: torch)
    assert {check["status"] for check in checks} <= {"ok", "missing", "broken"}
    text = run("doctor").stdout
    assert all(check["name"] in text for check in checks)
    assert all(check["remedy"] for check in checks if check["status"] != "ok")


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_has_help_with_an_example_to_paste(run: Any, command: str) -> None:
    text = run(command, "--help").stdout
    examples = [line.split("Example: ")[-1].strip() for line in text.splitlines() if f"nightsight {command}" in line]
    assert examples[-1].startswith(f"nightsight {command}")
    assert "\b" not in text
    assert "\\b" not in text


def test_every_example_of_profile_stands_on_its_own_line(run: Any) -> None:
    lines = [line.strip() for line in run("profile", "--help").stdout.splitlines()]
    assert [line for line in lines if line.startswith("nightsight profile")] == [
        "nightsight profile mlp -- --dim 512 --steps 50",
        "nightsight profile train.py -- --epochs 1",
        "nightsight profile --ncu-kernels 4 --ncu-set basic matmul",
        "nightsight profile --gpu-metrics --memory-usage train.py",
        "nightsight profile --names modules,shapes,python train.py",
        "nightsight profile --window whole train.py",
        "nightsight profile --time-steps train.py",
        "nightsight profile --stats cuda_gpu_kern_sum,cuda_api_sum train.py",
        "nightsight profile --workloads bench/ train",
        "nightsight profile --repeat 5 mlp",
        "nightsight profile --format brief train.py",
        "nightsight profile --collector torch --wait 5 --active 3 --record shapes,modules train.py",
        "nightsight profile -- torchrun --nproc-per-node 2 train.py",
        "nightsight profile --delay 60 --duration 10 train.py",
        'nightsight profile --server "python serve.py" --ready 8000 --client "python load.py" --attach results.json',
    ]


@pytest.mark.parametrize(
    ("arguments", "kept_out"),
    [(["--help"], "pandas"), (["profile", "--help"], "pandas"), (["--version"], "pandas"), (["workloads"], "torch")],
)
def test_light_commands_import_nothing_heavy(arguments: list[str], kept_out: str) -> None:
    code = (
        "import sys; from nightsight.cli import main\n"
        f"try: main({arguments!r})\n"
        f"except SystemExit: print({kept_out!r} in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"
