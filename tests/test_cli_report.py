"""`nightsight report`, driven whole: captures in, pages and tables out."""

import lzma
import re
import shutil
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

from nightsight.cli import FORMATS
from nightsight.commands.shared import prepare_libraries
from nightsight.model.report import Benchmark, Finding, Report
from nightsight.render import FORMATS as RENDERED
from nightsight.render.export.data import render_json
from nightsight.workflows.opening import title_of
from tests.kineto import call, kernel, write
from tests.recorded import DATA, Recorded
from tests.reports import unpacked
from tests.test_cli import UNREADABLE, USAGE, CaptureFile, FakeNsys, error_lines


def test_every_format_of_the_command_is_rendered() -> None:
    assert tuple(RENDERED) == FORMATS


@pytest.mark.parametrize("name", ["run.csv", "run.ncu-rep", "run.sqlite", "run.json.gz", "run.report.json"])
def test_a_report_is_called_after_its_file_without_the_endings(name: str) -> None:
    assert title_of(Path("folder") / name) == "run"


HOST = "alices-box.example.com"
OF_HANDLER = f"{HOST}_7053.1795615349382737875.pt.trace.json"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (OF_HANDLER, "trace_7053.1795615349382737875"),
        ("my_gpu_1.1623143089861.pt.trace.json.gz", "trace_1.1623143089861"),
        # names that somebody gave
        ("rank_3.1623143089861.pt.trace.json", "rank_3.1623143089861"),
        ("worker0.1623143089861.pt.trace.json", "worker0.1623143089861"),
        ("resnet_50.json", "resnet_50"),
    ],
)
def test_a_title_has_no_name_of_a_host(name: str, title: str) -> None:
    assert title_of(Path("folder") / name) == title


@pytest.mark.parametrize("style", ["html", "json", "csv", "markdown"])
def test_a_host_in_the_name_of_a_trace_is_in_no_report(style: str, run: Any, tmp_path: Path) -> None:
    trace = write(tmp_path, kernel(), call()).rename(tmp_path / OF_HANDLER)
    run("report", trace, "--format", style, "-o", f"{tmp_path / 'out'}/")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert written
    assert HOST not in " ".join(map(str, (tmp_path / "out").rglob("*")))
    assert not any(HOST.encode() in path.read_bytes() for path in written)
    page = next((unpacked(path.read_text()) for path in written if path.suffix == ".html"), "")
    assert HOST not in page


def test_a_host_in_the_name_of_a_rank_that_was_left_out_is_in_no_report(run: Any, tmp_path: Path) -> None:
    ranks = [DATA / "kineto" / f"exposed_rank{rank}.json.gz" for rank in (0, 1)]
    (tmp_path / OF_HANDLER).write_text("{")
    run("report", *ranks, tmp_path / OF_HANDLER, "-o", tmp_path / "job.json")
    text = (tmp_path / "job.json").read_text()
    assert "trace_7053.1795615349382737875.pt.trace.json was left out" in text
    assert HOST not in text


@pytest.mark.parametrize("style", ["html", "json", "markdown"])
def test_one_file_formats(run: Any, capture_file: CaptureFile, style: str, tmp_path: Path) -> None:
    run("report", capture_file("train"), "--format", style, "-o", tmp_path / "out")
    piped = run("report", capture_file("train"), "--format", style, "-o", "-")
    assert piped.stdout == (tmp_path / "out").read_text()
    assert "gemm f32" in piped.stdout


def test_csv_and_parquet_are_a_file_per_result(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    run("report", capture_file("train"), "--format", "csv", "-o", tmp_path / "csv")
    run("report", capture_file("train"), "--format", "parquet", "-o", tmp_path / "parquet")
    from_csv = pd.read_csv(tmp_path / "csv" / "cuda_gpu_kern_sum.csv")
    from_parquet = pd.read_parquet(tmp_path / "parquet" / "cuda_gpu_kern_sum.parquet")
    assert from_csv["total_ns"].tolist() == from_parquet["total_ns"].tolist()
    assert from_csv["total_ns"].sum() == 46_238_048
    run("report", capture_file("train"), "--format", "csv", "-o", "-", expect=USAGE)


def test_the_default_name_and_several_files(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    assert run("report", capture_file("graph")).stdout == "report: graph.report.html\n"
    run("report", capture_file("graph"), capture_file("gelu"), "-o", tmp_path / "both")
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["gelu.report.html", "graph.report.html"]


def test_several_files_of_one_name_do_not_overwrite_one_another(
    run: Any, capture_file: CaptureFile, tmp_path: Path
) -> None:
    for rank in ("rank0", "rank1"):
        (tmp_path / rank).mkdir()
        shutil.copy(capture_file("graph"), tmp_path / rank / "run.sqlite")
    both = (tmp_path / "rank0" / "run.sqlite", tmp_path / "rank1" / "run.sqlite")
    assert "same name" in run("report", *both, expect=USAGE).stderr
    assert "standard output" in run("report", *both, "-o", "-", expect=USAGE).stderr
    assert not list(tmp_path.glob("*.html"))


def test_markdown_has_one_suffix(run: Any, capture_file: CaptureFile) -> None:
    assert run("report", capture_file("graph"), "--format", "markdown").stdout == "report: graph.report.md\n"


def test_a_report_json_is_rendered_again(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    run("report", capture_file("train"), "--format", "json", "-o", tmp_path / "train.json")
    run("report", capture_file("train"), "-o", tmp_path / "a.html")
    run("report", tmp_path / "train.json", "-o", tmp_path / "b.html")
    ours, again = ((tmp_path / name).read_text() for name in ("a.html", "b.html"))
    section, link, reason = (
        r'<section id="timeline".*?</section>',
        r'<li(?: class="of-timeline")?><a href="#timeline"[^>]*>.*?</li>',
        r"<div><dt>Timeline</dt>.*?</div>",
    )
    parts = re.compile(rf"\s*({section}|{link}|{reason})\s*", re.DOTALL)
    # a list of nothing but a link to the timeline
    emptied = re.compile(r'<ul class="whereabouts">\s*</ul>')
    ours_without, again_without = (emptied.sub("", parts.sub("\n", page)).split() for page in (ours, again))
    assert ours_without == again_without
    assert 'id="timeline-data"' in ours
    assert "report.json contains no events" in again


@pytest.fixture
def kept(recorded: Recorded, capture_file: CaptureFile, tmp_path: Path) -> Path:
    """The folder of a run with its capture, and what only its collector knew."""
    folder = tmp_path / "reports/mlp/20261125-120000"
    (folder / "capture").mkdir(parents=True)
    shutil.copy(capture_file("train"), folder / "capture/mlp.sqlite")
    (folder / "capture/mlp.nsys-rep").write_bytes(b"not to be read")
    partial = Finding("partial_capture", "error", "This is only a part", "It was stopped.")
    advice = Finding("old_rule", "advice", "Advice of an older version", "It is made again.")
    report = replace(
        recorded.report("train"),
        title="mlp",
        parameters={"dim": "64"},
        benchmark=Benchmark((3e6, 3e6), 20),
        findings=(partial, advice),
    )
    (folder / "report.json").write_bytes(render_json(report)[""])
    (tmp_path / "reports/mlp/latest").symlink_to(folder.name)
    return folder


def test_a_run_is_its_capture_and_what_its_collector_knew(run: Any, kept: Path, tmp_path: Path) -> None:
    done = run("report", "reports/mlp/latest", "--format", "json", "--window", "whole")
    assert done.stdout == "report: mlp-20261125-120000.report.json\n"
    again = Report.from_json((tmp_path / "mlp-20261125-120000.report.json").read_text())
    assert (again.title, again.parameters, again.benchmark) == ("mlp", {"dim": "64"}, Benchmark((3e6, 3e6), 20))
    assert [finding.rule for finding in again.findings if finding.severity == "error"] == ["partial_capture"]
    assert "old_rule" not in {finding.rule for finding in again.findings}
    assert again.windows[0].name == "first to last GPU operation"
    # the timeline needs the events
    assert "span_ns" in unpacked(run("report", kept, "-o", "-").stdout)


def test_a_run_without_its_capture_is_its_report(run: Any, kept: Path, tmp_path: Path) -> None:
    shutil.rmtree(kept / "capture")
    run("report", kept, "-o", "page.json")
    assert (tmp_path / "page.json").read_bytes() == (kept / "report.json").read_bytes()
    refused = run("report", kept, "-o", kept / "report.json", expect=USAGE)
    assert "is also the input file" in refused.stderr


def test_a_run_that_was_interrupted_before_its_report_has_one_made(run: Any, kept: Path, tmp_path: Path) -> None:
    (kept / "report.json").unlink()
    run("report", kept, "-o", "page.json")
    assert Report.from_json((tmp_path / "page.json").read_text()).title == "mlp"


def test_the_report_of_a_run_has_its_replay(run: Any, kept: Path) -> None:
    (kept / "capture/mlp.ncu-rep").write_bytes(b"NVR\0 damaged")
    assert "ncu's report cannot be read" in run("report", kept, "--format", "markdown", "-o", "-").stdout


def test_traces_of_cycles_are_a_report_each_and_other_folders_are_none(run: Any, kept: Path, tmp_path: Path) -> None:
    for name in ("mlp.json.gz", "mlp.2.json.gz"):
        shutil.copy(DATA / "mini_torch.json.gz", kept / "capture" / name)
    (kept / "capture/mlp.sqlite").unlink()
    assert run("report", kept, "--apart").stdout == "report: mlp.2.report.html\nreport: mlp.report.html\n"
    assert "holds several runs" in run("report", kept.parent, expect=USAGE).stderr
    shutil.rmtree(kept / "capture")
    assert run("report", *sorted(kept.parent.iterdir())).stdout == "report: mlp-20261125-120000.report.html\n"
    assert "is not the folder of a run" in run("report", tmp_path, expect=USAGE).stderr


def test_nsys_rep_needs_nsys(run: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    result = run("report", DATA / "nsys" / "mlp" / "mlp.nsys-rep", expect=UNREADABLE)
    assert "nsys was not found" in error_lines(result)[0]
    fake_nsys()
    run("report", DATA / "nsys" / "mlp" / "mlp.nsys-rep", "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_a_torch_trace_made_on_a_gpu(run: Any, tmp_path: Path) -> None:
    run("report", DATA / "mini_torch.json.gz", "--format", "json", "-o", tmp_path / "out.json")
    report = Report.from_json((tmp_path / "out.json").read_text())
    assert report.environment.gpu == "NVIDIA H200"
    assert report.result("cuda_gpu_kern_sum").rows["instances"].sum() == 42


def test_a_capture_without_gpu_work_says_so(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    path = tmp_path / "idle.sqlite"
    shutil.copy(capture_file("graph"), path)
    connection = sqlite3.connect(path)
    for table in ("KERNEL", "MEMCPY", "GRAPH_TRACE", "RUNTIME"):
        connection.execute(f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}")
    connection.commit()
    connection.close()
    assert "no kernel, copy or memset ran while the capture was on" in run("report", path, "-o", "-").stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"SQLite format 3\x00" + bytes(200), "truncated|cannot read"),
        (b"\x1f\x8b\x08\x00garbage", "gzip|truncated|damaged|trace"),
        (b'{"traceEvents": [', "trace|JSON"),
        (b"ID,Kernel Name\n", "not a capture that nightsight can read"),
        (b'{\n "format": 7}', "format"),
    ],
)
def test_files_that_are_no_captures(run: Any, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    error, hint = error_lines(run("report", path, "-o", tmp_path / "out.html", expect=UNREADABLE))
    assert "file" in error or "report.json" in error
    assert pd.Series([error]).str.contains(message).all()
    assert hint
    assert not (tmp_path / "out.html").exists()


def test_a_compressed_capture_is_refused_with_the_command_that_decompresses_it(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "a run.sqlite.xz"
    path.write_bytes(lzma.compress(b"SQLite format 3"))
    error, hint = error_lines(run("report", path, expect=UNREADABLE))
    assert error.endswith("a run.sqlite.xz is compressed")
    assert hint.strip() == "Decompress it first: xz -d 'a run.sqlite.xz'"


def test_a_file_that_is_not_there_is_a_usage_error(run: Any) -> None:
    assert "does not exist" in run("report", "none.sqlite", expect=USAGE).stderr


def test_an_output_that_cannot_be_written(run: Any, capture_file: CaptureFile) -> None:
    result = run("report", capture_file("graph"), "-o", "/dev/null/page.html", expect=UNREADABLE)
    assert "cannot write /dev/null/page.html" in error_lines(result)[0]


def test_threads_take_turns_more_often_until_the_command_ends() -> None:
    before = sys.getswitchinterval()
    with click.Context(click.Command("report")):
        prepare_libraries()
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == pytest.approx(before)
