"""Style and script of a page in files of their own, for hosts that forbid them inside a page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from nightsight.render.page.html import render_html, with_assets
from tests.recorded import Recorded
from tests.reports import hostile_report, small_report
from tests.test_cli import USAGE

LINKS = re.compile(r'<link rel="stylesheet" href="([^"]*)">|<script src="([^"]*)"></script>')


def test_a_page_has_neither_style_nor_script_of_its_own_and_is_else_the_same() -> None:
    whole = render_html(hostile_report())
    page, files = with_assets(whole, "../assets")
    assert sorted(name.rpartition(".")[2] for name in files) == ["css", "js"]
    assert "<style>" not in page
    assert "<script>" not in page
    assert [style or script for style, script in LINKS.findall(page)] == [f"../assets/{name}" for name in files]
    assert "content=\"default-src 'none'; style-src 'self'; script-src 'self';" in page
    for content in files.values():
        assert content.decode() in whole
    body = re.compile(r"<body>.*?<footer>", re.DOTALL)
    assert body.findall(page) == body.findall(whole)


def test_pages_share_their_files() -> None:
    assert with_assets(render_html(small_report()), "a")[1] == with_assets(render_html(hostile_report()), "a")[1]


def test_an_address_cannot_leave_its_attribute() -> None:
    page, _ = with_assets(render_html(small_report()), 'a"><script>alert(1)</script>')
    assert "<script>alert" not in page


def test_files_are_written_where_the_page_finds_them(
    run: Callable[..., Result], tmp_path: Path, recorded: Recorded
) -> None:
    report = tmp_path / "mlp.json"
    report.write_text(recorded.report("mlp").to_json())
    page = tmp_path / "site" / "pages" / "small.html"
    run("report", report, "-o", page, "--assets", tmp_path / "site" / "a folder")
    addresses = [style or script for style, script in LINKS.findall(page.read_text())]
    assert all(address.startswith("../a%20folder/nightsight-") for address in addresses)
    files = [page.parent / address.replace("%20", " ") for address in addresses]
    assert len(files) == 2
    assert all(file.is_file() for file in files)


@pytest.mark.parametrize("options", [("--format", "json", "-o", "x.json"), ("-o", "-")])
def test_other_formats_have_no_such_files(options: tuple[str, ...], run: Callable[..., Result], tmp_path: Path) -> None:
    report = tmp_path / "small.json"
    report.write_text(small_report().to_json())
    assert "--assets needs a page" in run("report", report, *options, "--assets", "a", expect=USAGE).stderr
