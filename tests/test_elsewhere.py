"""macOS and Windows, where captures are looked at: what reads and writes them needs nothing that only Linux has."""

import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from click.testing import CliRunner

from nightsight.cli import FORMATS, main
from nightsight.model.report import Profile
from nightsight.read.sqlite import read_only
from nightsight.stats import Selection, stats_texts
from tests.elsewhere import MISSING
from tests.recorded import DATA
from tests.test_cli import UNREADABLE, CaptureFile, FakeNsys
from tests.timeline import draw

Elsewhere = Callable[..., "subprocess.CompletedProcess[str]"]
ILLEGAL = set('<>:"/\\|?*') | set(map(chr, range(32)))


@pytest.fixture(params=sorted(MISSING))
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Elsewhere:
    """Run commands, one after the other, on a machine of another kind."""

    def run(*commands: list[str], expect: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [
                sys.executable,
                "-X",
                "warn_default_encoding",
                "-m",
                "tests.elsewhere",
                request.param,
                json.dumps(commands),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expect, done.stderr
        return done

    return run


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.nightly
def test_reports_and_tables_are_the_same_elsewhere(
    elsewhere: Elsewhere, capture_file: CaptureFile, tmp_path: Path
) -> None:
    details = tmp_path / "lines.details.csv"
    details.write_bytes(lzma.decompress((DATA / "ncu" / "lines.details.csv.xz").read_bytes()))
    capture = str(capture_file("graph"))
    page = ["report", str(details), str(DATA / "kineto" / "cuda_graph.json.gz"), "-o", "{0}/pages"]
    commands = [
        *(["report", capture, "--format", style, "-o", "{0}/" + style] for style in FORMATS),
        ["report", "{0}/json", "-o", "{0}/again.html"],
        page,
        ["stats", capture, "-r", "cuda_gpu_kern_sum,nvtx_kern_sum", "--format", "json", "-o", "{0}/stats"],
        ["--help"],
        ["doctor", "--help"],
        ["workloads"],
    ]

    def into(folder: Path) -> list[list[str]]:
        return [[word.format(folder) for word in command] for command in commands]

    elsewhere(*into(tmp_path / "there"))
    for command in into(tmp_path / "here"):
        assert CliRunner().invoke(main, command).exit_code == 0
    here, there = files_in(tmp_path / "here"), files_in(tmp_path / "there")
    assert here == there
    assert len(here) > len(FORMATS)


def test_an_export_of_nsys_is_read_elsewhere(elsewhere: Elsewhere, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    report = DATA / "nsys" / "mlp" / "mlp.nsys-rep"
    elsewhere(["report", str(report), "--nsys", str(fake_nsys()), "-o", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_collecting_elsewhere_is_refused_in_one_line(elsewhere: Elsewhere) -> None:
    done = elsewhere(["profile", "mlp"], expect=UNREADABLE)
    error, hint = done.stderr.splitlines()
    assert error == "Error: profiling needs Linux"
    assert "nightsight report" in hint


@pytest.mark.nightly
def test_every_file_of_a_format_has_a_name_that_windows_takes(
    run: Any, capture_file: CaptureFile, tmp_path: Path
) -> None:
    for style in FORMATS:
        run("report", capture_file("train"), "--format", style)
    names = [path.name for path in tmp_path.rglob("*")]
    assert len(names) > len(FORMATS)
    assert [name for name in names if set(name) & ILLEGAL or name != name.rstrip(". ")] == []


@pytest.mark.parametrize("name", ["a:b", 'say "x"', "<1>", "a|b", "why?", "x*y", "a\\b", "tab\there"])
def test_every_file_of_stats_has_a_name_that_windows_takes(name: str) -> None:
    profile = draw("nvtx  [x         ]\ns7    aaa")
    ranges = profile.table("ranges")
    renamed = ranges.assign(name=ranges["name"].cat.rename_categories({"x": name}))
    tables = {**profile.tables, "ranges": renamed}
    selection = Selection(["nvtx_sum"], filter_nvtx=name.replace("\\", "\\\\"))
    ((_, ending, _),) = stats_texts(Profile(tables), selection)
    assert ending.startswith("_nvtx_sum_nvtx=")
    assert not set(ending) & ILLEGAL


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (PurePosixPath("/home/me/a b%.sqlite"), "file:///home/me/a%20b%25.sqlite?mode=ro"),
        (PurePosixPath("//home/back\\slash?#.sqlite"), "file:////home/back%5Cslash%3F%23.sqlite?mode=ro"),
        (PureWindowsPath("C:\\Users\\me\\a b.sqlite"), "file:///C:/Users/me/a%20b.sqlite?mode=ro"),
        (PureWindowsPath("\\\\server\\share\\a.sqlite"), "file:////server/share/a.sqlite?mode=ro"),
    ],
)
def test_sqlite_opens_paths_of_each_system(path: PurePath, uri: str) -> None:
    assert read_only(path) == uri
