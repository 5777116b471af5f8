"""The whole of `profile` with ncu: what may be asked for, what is refused, and what stands when the replay fails."""

import json
import lzma
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nightsight.cli import main
from nightsight.collect.replay import Replay
from nightsight.model.report import Profile, Report
from nightsight.read import read
from nightsight.tables import Details
from nightsight.workflows import profile
from tests.recorded import DATA

pytestmark = pytest.mark.usefixtures("remembered_analyses")

FakeNcu = Callable[..., Path]


def seen(ncu: Path) -> dict[str, Any]:
    """What the fake was asked for."""
    return dict(json.loads(ncu.with_name("ncu.seen.json").read_text())["options"])


def replays(ncu: Path, *names: str) -> list[str]:
    """Which of these kernels its filter lets through."""
    expression = seen(ncu)["--kernel-name"].removeprefix("regex:")
    return [name for name in names if re.search(expression, name)]


def profiled(tmp_path: Path, *options: str) -> tuple[Result, Report]:
    (tmp_path / "train.py").write_text("print('done')\n")
    reports = ("--reports", str(tmp_path / "reports"))
    result = CliRunner().invoke(main, ["profile", *reports, *options, str(tmp_path / "train.py")])
    return result, Report.from_json((tmp_path / "reports/train/latest/report.json").read_text())


def test_profile_replays_the_fewest_kernels_that_take_most_of_the_time(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path
) -> None:
    fake_nsys()
    ncu = fake_ncu(report="measure.ncu-rep.xz")
    result, report = profiled(tmp_path, "--collector", "nsys", "--ncu-coverage", "50")
    assert result.exit_code == 0
    options = seen(ncu)
    # the one kernel of `gelu` that takes more than half of the time
    assert options["--kernel-name-base"] == "mangled"
    assert replays(ncu, "triton_poi_fused_add_mul_tanh_0", "_ZN2at6native") == ["triton_poi_fused_add_mul_tanh_0"]
    assert report.parameters["ncu collects"] == "set full"
    assert "replay" in report.stages_s
    assert len(report.result("cuda_gpu_kern_sum").rows)


@pytest.mark.parametrize("behavior", ["no permission", "no kernels", "garbage", "program fails"])
def test_the_timeline_stands_when_the_replay_fails(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path, behavior: str
) -> None:
    fake_nsys()
    fake_ncu(behavior)
    result, report = profiled(tmp_path, "--collector", "nsys")
    assert result.exit_code == 0
    assert {finding.rule for finding in report.findings} & {"no_kernel_metrics", "replay_failed"}
    assert str(tmp_path) not in report.to_json()


def test_no_ncu_leaves_it_out(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    ncu = fake_ncu()
    _, report = profiled(tmp_path, "--collector", "nsys", "--no-ncu")
    assert not ncu.with_name("ncu.seen.json").exists()
    assert "replay" not in report.stages_s


def test_grids_are_read_without_ncu_too(fake_nsys: FakeNcu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spied(path: Path, *, details: Details = True) -> Profile:
        asked.append(details)
        return read(path, details=details)

    monkeypatch.setattr(profile, "read", spied)
    fake_nsys()
    profiled(tmp_path, "--collector", "nsys", "--no-ncu")
    assert asked == [True]


def test_ncu_alone_makes_a_report(fake_ncu: FakeNcu, tmp_path: Path) -> None:
    ncu = fake_ncu()
    result, report = profiled(tmp_path, "--collector", "ncu", "--ncu-metrics", "gpu__time_duration.sum")
    assert result.exit_code == 0
    assert report.environment.collector == "ncu"
    assert seen(ncu)["--metrics"] == "gpu__time_duration.sum"
    assert "--set" not in seen(ncu)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), {"--set": "full"}),
        (("--ncu-set", "basic"), {"--set": "basic"}),
        (("--ncu-sections", "Occupancy"), {"--section": "Occupancy"}),
        (("--ncu-metrics", "a.sum", "--ncu-metrics", "b.sum,c"), {"--metrics": "a.sum,b.sum,c"}),
        (("--ncu-set", "basic", "--ncu-metrics", "a"), {"--set": "basic", "--metrics": "a"}),
    ],
)
def test_what_is_collected(fake_ncu: FakeNcu, tmp_path: Path, options: tuple[str, ...], asked: dict[str, str]) -> None:
    ncu = fake_ncu()
    profiled(tmp_path, "--collector", "ncu", *options)
    given = seen(ncu)
    assert {name: given[name] for name in ("--set", "--section", "--metrics") if name in given} == asked


@pytest.mark.nightly
def test_what_was_replayed_is_reported_as_it_was_chosen(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    fake_ncu()
    _, report = profiled(tmp_path, "--collector", "nsys", "--ncu-coverage", "50")
    assert report.parameters["ncu replays"].startswith("the fewest kernels that make up 50 % of the time")
    assert report.parameters["ncu version"].startswith("2025.3.1")
    _, report = profiled(tmp_path, "--collector", "ncu")
    assert report.parameters["ncu replays"] == "kernels, 1 per grid and block, at most 12 launches"
    _, report = profiled(tmp_path, "--collector", "nsys", "--ncu-range", "step", "--replay-mode", "range")
    assert report.parameters["ncu replays"] == "1 of step, as a whole"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--no-ncu", "--ncu-all"), "--ncu-all has no effect with --no-ncu"),
        (("--no-ncu", "--clock-control", "base"), "--clock-control has no effect with --no-ncu"),
        (("--collector", "torch", "--ncu-kernel", "x"), "--ncu-kernel has no effect with --collector torch"),
        (("--collector", "ncu", "--no-ncu"), "--no-ncu has no effect with --collector ncu"),
        (("--collector", "ncu", "--ncu-coverage", "50"), "--ncu-coverage has no effect with --collector ncu"),
        (("--ncu-range", "a", "--ncu-coverage", "50"), "--ncu-coverage has no effect with --ncu-range"),
        (("--ncu-all", "--ncu-kernels", "3", "--ncu-kernel", "x"), "--ncu-kernel, --ncu-kernels has no effect with"),
        (("--replay-mode", "range", "--ncu-kernel", "x"), "--ncu-kernel has no effect with --replay-mode range"),
        (("--replay-mode", "app-range", "--graph-profiling", "graph"), "--graph-profiling has no effect with"),
        (("--ncu-kernel", "("), "'(' is not a regular expression that ncu accepts: missing )"),
        (("--ncu-kernel", "(?i)gelu"), "global flags"),
        (("--ncu-kernel", "(?<=a)b"), "(?<= is not in its grammar"),
        (("--ncu-kernel", "(?P<x>b)"), "(?P< is not in its grammar"),
        (("--ncu-set", ""), "'' contains an empty name"),
        (("--ncu-metrics", ""), "'' contains an empty name"),
        (("--ncu-sections", ","), "',' contains an empty name"),
        (("--collector", "ncu", "--trace", "cuda"), "--trace has no effect with --collector ncu"),
        (("--collector", "ncu", "--nsys-arg=-x"), "--nsys-arg has no effect with --collector ncu"),
        (("--ncu-budget", "0"), "0.0 is not in the range x>0"),
        (("--ncu-budget", "nan"), "nan is not a number"),
        (("--ncu-coverage", "0"), "not in the range 0<x<=100"),
        (("--ncu-coverage", "101"), "not in the range 0<x<=100"),
        (("--ncu-kernel", "x"), "--ncu-kernel, --ncu-range and --ncu-all need ncu"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    result = CliRunner().invoke(main, ["profile", *options, str(tmp_path / "train.py")])
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "ran").exists()


def test_an_ncu_that_is_not_there_is_refused_before_anything_runs(fake_nsys: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    (tmp_path / "train.py").write_text("print('done')\n")
    options = ("--collector", "nsys", "--ncu", str(tmp_path / "none"), "--reports", str(tmp_path / "reports"))
    result = CliRunner().invoke(main, ["profile", *options, str(tmp_path / "train.py")])
    assert (result.exit_code, (tmp_path / "reports").exists()) == (3, False)
    assert "remove --ncu" in result.stderr


@pytest.mark.nightly
def test_ctrl_c_during_the_replay_leaves_the_timeline(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path, interrupt: Any
) -> None:
    fake_nsys()
    interrupt(fake_ncu("slow").with_name("ncu.seen.json"))
    result, report = profiled(tmp_path, "--collector", "nsys")
    assert result.exit_code == 130
    assert "the replay was interrupted" in result.stderr
    assert len(report.result("cuda_gpu_kern_sum").rows)


def test_a_program_that_fails_under_ncu_alone_ends_with_status_1(fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_ncu("program fails")
    result, report = profiled(tmp_path, "--collector", "ncu")
    assert result.exit_code == 1
    assert {"partial_capture", "replay_failed"} <= {finding.rule for finding in report.findings}


@pytest.mark.parametrize("whole", [("--replay-mode", "app-range"), ("--graph-profiling", "graph")])
def test_nothing_with_peers_is_replayed_as_a_whole(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path, whole: tuple[str, ...]
) -> None:
    fake_nsys(export="ddp2/ddp2.sqlite.xz")
    ncu = fake_ncu()
    result, report = profiled(tmp_path, "--collector", "nsys", *whole)
    assert result.exit_code == 0
    assert not ncu.with_name("ncu.seen.json").exists()
    (finding,) = (finding for finding in report.findings if finding.rule == "no_kernel_metrics")
    assert "wait for their peers" in finding.title


@pytest.mark.nightly
def test_a_graph_without_peers_is_replayed_as_a_whole(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys(export="graph/graph.sqlite.xz")
    ncu = fake_ncu()
    profiled(tmp_path, "--collector", "nsys", "--graph-profiling", "graph", "--ncu-all")
    assert seen(ncu)["--graph-profiling"] == "graph"


def test_without_a_choice_of_kernels_graphs_alone_are_replayed(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path
) -> None:
    fake_nsys(export="graph/graph.sqlite.xz")
    ncu = fake_ncu()
    profiled(tmp_path, "--collector", "nsys", "--graph-profiling", "graph")
    assert replays(ncu, "graph", "a_kernel") == ["graph"]


def test_where_no_graph_was_launched_none_is_replayed(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    ncu = fake_ncu()
    _, report = profiled(tmp_path, "--collector", "nsys", "--graph-profiling", "graph")
    assert not ncu.with_name("ncu.seen.json").exists()
    (finding,) = (finding for finding in report.findings if finding.rule == "no_kernel_metrics")
    assert finding.title == "Nothing was replayed: no CUDA graph was launched"


def test_ranges_of_the_timeline_are_named_when_ncu_finds_none(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path
) -> None:
    fake_nsys(export="mlp/mlp.sqlite.xz")
    fake_ncu("no kernels")
    _, report = profiled(tmp_path, "--collector", "nsys", "--ncu-range", "backwards", "--replay-mode", "range")
    (finding,) = (finding for finding in report.findings if finding.rule == "no_kernel_metrics")
    assert "Ranges of the program: backward, " in finding.detail


@pytest.mark.nightly
def test_a_metric_that_is_not_in_the_report_is_named(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    fake_ncu()
    _, report = profiled(tmp_path, "--collector", "nsys", "--ncu-metrics", "no__such.sum")
    (finding,) = (finding for finding in report.findings if finding.rule == "metrics_not_collected")
    assert finding.severity == "warning"


def test_where_only_peers_ran_nothing_is_replayed(
    fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = lzma.decompress(next(DATA.rglob("ddp2.sqlite.xz")).read_bytes())
    (tmp_path / "only.sqlite").write_bytes(recorded)
    with closing(sqlite3.connect(tmp_path / "only.sqlite")) as database, database:
        database.execute(
            "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName NOT IN "
            "(SELECT id FROM StringIds WHERE value LIKE 'nccl%')"
        )
    (tmp_path / "only.sqlite.xz").write_bytes(lzma.compress((tmp_path / "only.sqlite").read_bytes(), preset=0))
    fake_nsys(export=str(tmp_path / "only.sqlite.xz"))
    ncu = fake_ncu()
    result, report = profiled(tmp_path, "--collector", "nsys")
    assert result.exit_code == 0
    assert not ncu.with_name("ncu.seen.json").exists()
    (finding,) = (finding for finding in report.findings if finding.rule == "no_kernel_metrics")
    assert finding.title.startswith("Nothing was replayed: the capture has only NCCL, NVSHMEM")


@pytest.mark.nightly
def test_how_it_was_measured_is_on_the_page(fake_nsys: FakeNcu, fake_ncu: FakeNcu, tmp_path: Path) -> None:
    fake_nsys()
    fake_ncu()
    profiled(tmp_path, "--collector", "nsys", "--clock-control", "base", "--replay-mode", "application")
    page = (tmp_path / "reports/train/latest/report.html").read_text()
    for name, value in Replay(clock_control="base", replay_mode="application").description.items():
        assert re.search(rf"{name}\W.{{0,80}}?{value}", page, re.DOTALL)
