"""The site of docs/: links that lead nowhere are found, and the gallery shows what it names. `make site` builds it."""

from pathlib import Path

import pytest

from tests.gallery import GALLERY, shown
from tests.site import faults_of

PAGE = '<h1 id="top">A page</h1>'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="b.html#there">', ""),
        ('<a href="gallery/one.html#timeline=0,5">', ""),
        ('<a href="https://example.org/#x">', ""),
        ('<a href="#top">', ""),
        ('<a href="c.html">', "a.html links to c.html, which is not there"),
        ('<a href="b.html#gone">', "a.html links to b.html#gone, which has no such heading"),
        ('<a href="#gone">', "a.html links to #gone, which has no such heading"),
        ('<img src="b.png">', "a.html links to b.png, which is not there"),
        ('<script src="https://example.org/x.js">', "a.html loads https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "a.html loads //example.org/x.css"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE + text)
    (tmp_path / "b.html").write_text('<h2 id="there">Another page</h2>')
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "one.html").write_text("<a href='#what-its-own-tests-check'>")
    assert [*faults_of(tmp_path)] == [fault] * bool(fault)


def test_a_report_of_the_gallery_has_its_cause_in_page_and_picture() -> None:
    (entry,) = (entry for entry in GALLERY if entry.rule == "small_grid")
    report = shown(entry)
    assert "few of the GPU's SMs" in report.title
    assert report.page.startswith(b"<!doctype html>")
    assert report.picture.startswith(b"<svg ")


def test_reports_of_the_gallery_have_different_names() -> None:
    assert len({entry.name for entry in GALLERY}) == len(GALLERY)
