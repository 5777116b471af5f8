"""The ladder as an SVG file, and as characters in Markdown."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len

from nightsight.render.export.markdown import render_markdown
from nightsight.render.page.picture import render_svg
from nightsight.render.page.windows import ladder_of
from nightsight.results.causes import FIX_LADDER
from tests.recorded import Recorded

_SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str) -> dict[float, float]:
    """Return the length of each bar, by its place from the top."""
    lengths: dict[float, float] = {}
    for part in ET.fromstring(svg).iter(f"{_SVG}g"):
        rect = part.find(f"{_SVG}rect")
        assert rect is not None
        top = float(rect.attrib["y"])
        lengths[top] = lengths.get(top, 0.0) + float(rect.attrib["width"])
    return lengths


def test_the_bars_are_as_long_as_the_steps_and_all_text_is_inside(recorded: Recorded) -> None:
    report = recorded.report("train")
    svg = render_svg(report)
    steps = report.rows(FIX_LADDER).groupby("order")["time_ns"].sum()
    lengths = list(bars(svg).values())
    assert [length / lengths[0] for length in lengths] == pytest.approx((steps / steps[0]).tolist(), abs=0.002)
    root = ET.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in root.iter(f"{_SVG}text"):
        assert 0 < float(text.attrib["y"]) < height
        assert float(text.attrib["x"]) + 0.4 * 13 * cell_len("".join(text.itertext())) < width or "time" in str(text)
    assert "FP32 math runs without tensor cores" in svg
    # a file of its own loads nothing
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|<script", svg)


def test_a_headline_of_two_texts_has_no_third(recorded: Recorded) -> None:
    texts = [
        "".join(text.itertext()) for text in ET.fromstring(render_svg(recorded.report("loader"))).iter(f"{_SVG}text")
    ]
    assert texts[0] == "The GPU waits for host code in load."
    assert "(no name)" not in texts


def test_long_names_end_before_the_edge(recorded: Recorded) -> None:
    root = ET.fromstring(render_svg(recorded.report("lightning_images")))
    texts = [text for text in root.iter(f"{_SVG}text") if text.attrib.get("class") != "time"]
    sizes = {"title": 24 * 0.66, "fix": 16 * 0.56}
    for text in texts:
        size = sizes.get(text.attrib.get("class", ""), 13 * 0.56)
        written = "".join(text.itertext())
        assert float(text.attrib["x"]) + size * cell_len(written) < 860, written
    assert any("…" in "".join(text.itertext()) for text in texts)


def test_a_report_without_fixes_has_its_headline(recorded: Recorded) -> None:
    report = recorded.report("lines.ncu-rep")
    assert ladder_of(report) is None
    svg = render_svg(report)
    assert not bars(svg)
    assert next(ET.fromstring(svg).iter(f"{_SVG}text")).text
    assert "```text" not in render_markdown(report)


def test_texts_of_a_report_are_not_markup(recorded: Recorded) -> None:
    report = replace(recorded.report("train"), title="<script>&")
    (title,) = (each.text or "" for each in ET.fromstring(render_svg(report)).findall(f"{_SVG}title"))
    assert title.startswith("<script>&: A step now")


def test_markdown_has_the_ladder_in_characters(recorded: Recorded) -> None:
    report = recorded.report("train")
    (block,) = re.findall(r"```text\n(.*?)\n```", render_markdown(report), re.DOTALL)
    lines = block.split("\n")
    assert lines[0].startswith("now ")
    lengths = [line.count("█") for line in lines]
    steps = report.rows(FIX_LADDER).groupby("order")["time_ns"].sum()
    assert lengths == [round(36 * step / steps[0]) for step in steps]
    assert len({line.index("█") for line in lines}) == 1
