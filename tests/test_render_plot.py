"""Marks and what is around them: each is drawn where it is, and whatever texts there are stay texts."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from nightsight.render.figure.axes import Tick
from nightsight.render.figure.bars import Bar, BarChart, Group, Strip
from nightsight.render.figure.boxes import Box, Boxes, Tree
from nightsight.render.figure.heat import Heat, HeatRow
from nightsight.render.figure.ladder import Ladder, Rung, RungPart
from nightsight.render.figure.plot import (
    GRID,
    MIX_COLORS,
    SHAPES,
    Circle,
    Dot,
    LegendEntry,
    Line,
    Mark,
    Panels,
    Part,
    Path,
    Picture,
    Plane,
    Plot,
    Point,
    Rect,
    Text,
    grid,
    marker,
    with_shared_axis,
)
from nightsight.render.figure.shares import wholes
from nightsight.render.page import html
from tests.reports import HOSTILE
from tests.test_render_html import Outline

AT = Dot(10, 20)
NASTY = "".join(HOSTILE[:6])


def outline(macro: str, value: object) -> Outline:
    source = '{% from "macros/plot.html" import draw %}{% from "macros/pictures.html" import drawn, strip %}'
    template = html._environment().from_string(f"{source}{{{{ {macro}(value) }}}}")
    return Outline(template.render(value=value))


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Line("a", AT, Dot(30, 40)), [("line", {"class": "a", "x1": "10%", "x2": "30%", "y1": "20%", "y2": "40%"})]),
        (Rect("a", 1, 2, 3, 4), [("rect", {"class": "a", "x": "1%", "y": "3%", "width": "2%", "height": "4%"})]),
        (
            Rect("a", 1, 2, 3, 4, "said"),
            [
                *(("g", {}), ("title", {})),
                ("rect", {"class": "hit", "x": "1%", "width": "2%", "height": "100%"}),
                ("rect", {"class": "a", "x": "1%", "y": "3%", "width": "2%", "height": "4%"}),
            ],
        ),
        (Text("a", AT, "said", aside=-3), [("text", {"class": "a", "x": "10%", "y": "20%", "dx": "-3"})]),
        (
            Text("a", AT, "said", more="m"),
            [("text", {"class": "a", "x": "10%", "y": "20%"}), ("tspan", {"class": "amount"})],
        ),
        (Circle("a", AT, 5), [("circle", {"class": "a", "cx": "10%", "cy": "20%", "r": "5"})]),
        (Path("a", "M0 0"), [("svg", {"viewbox": f"0 0 {GRID} {GRID}"}), ("path", {"class": "a", "d": "M0 0"})]),
        (
            Point("a", AT, SHAPES[0], "said", "7", (9, 4, "end")),
            [
                ("svg", {"class": "a", "x": "10%", "y": "20%"}),
                *(("path", {"d": SHAPES[0]}), ("title", {})),
                ("text", {"class": "end", "x": "9", "y": "4"}),
            ],
        ),
        (
            Part("a", 1, 2, "said", "0 5"),
            [
                ("svg", {"x": "1%", "width": "2%", "data-span": "0 5"}),
                *(("title", {}), ("rect", {"class": "a"})),
            ],
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Mark) else "",
)
def test_a_mark_is_drawn_where_it_is(mark: Mark, expected: list[tuple[str, dict[str, str]]]) -> None:
    parsed = outline("draw", mark)
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in expected]
    for (_, attributes), (_, wanted) in zip(parsed.elements, expected, strict=True):
        assert {name: attributes.get(name) for name in wanted} == wanted
    assert parsed.text.get("title", parsed.text.get("text", ["said"])) == ["said"]


def pictures() -> list[Picture]:
    """Return a picture of each layout, with the same text wherever there is one."""
    ticks = (Tick(50, NASTY),)
    marks = (Text("a", AT, NASTY, NASTY), Rect("a", title=NASTY), Point("a", AT, "M0 0", NASTY, NASTY))
    plot = Plot(NASTY, (*marks, Part("hit", 0, 9, NASTY, "0 1")), ticks, ticks, NASTY, NASTY, "a")
    around: dict[str, Any] = {"look": "a", "title": NASTY, "notes": (NASTY,)}
    around["keys"] = (
        LegendEntry(NASTY, "a"),
        LegendEntry(NASTY, "a", SHAPES[0]),
        LegendEntry(NASTY, "a", is_idle=True),
    )
    bars = (Bar(NASTY, (Rect("a"),), NASTY, NASTY, NASTY), Bar(NASTY, (Rect("a"),), parts=(LegendEntry(NASTY, "a"),)))
    box = Box(0, 0, 9, "a", NASTY, NASTY, NASTY, is_idle=True, level=1, rows="1", path=NASTY)
    whole = pd.DataFrame({"device": [0, 1], "group": ["busy", "idle"], "category": NASTY, "time_ns": 5})
    rung = Rung(NASTY, NASTY, NASTY, (RungPart(NASTY, "a", is_idle=True, x=0, width=9, time=NASTY),), NASTY, "a", NASTY)
    numbers: dict[str, Any] = {"longest": 1, "steps": 1, "size": 1, "first": 0}
    return [
        Panels(**around, plots=(plot, plot)),
        Plane(**around, plot=plot, across=NASTY, up=NASTY),
        Strip(**around, plot=plot),
        BarChart(**around, groups=(Group(NASTY, bars),)),
        Boxes(**around, kind="a", trees=(Tree(NASTY, (box,), 1, NASTY, NASTY),)),
        Heat(**around, rows=(HeatRow(NASTY, ("", "M0 0"), NASTY, "00"),), numbers=ticks, summary=NASTY, **numbers),
        wholes(whole, lambda _: NASTY),
        Ladder(**around, rungs=(rung, replace(rung, anchor="")), whole_ns=9.0),
    ]


@pytest.mark.parametrize("picture", pictures(), ids=lambda picture: picture.layout)
def test_whatever_stands_in_a_picture_stays_text(picture: Picture) -> None:
    parsed = outline("strip" if isinstance(picture, Strip) else "drawn", picture)
    assert parsed.open == []
    assert {tag for tag, _ in parsed.elements} <= {
        *("figure", "figcaption", "div", "p", "span", "bdi", "strong", "ul", "ol", "li", "a", "wbr"),
        *("svg", "g", "rect", "line", "path", "text", "tspan", "title"),
    }
    assert not {name for _, attributes in parsed.elements for name in attributes if name.startswith("on")}
    # what people see, and what is read out
    assert any("script" in text for texts in parsed.text.values() for text in texts)
    for svg in parsed.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and "script" in str(svg.get("aria-label")))


def test_each_layout_is_drawn() -> None:
    def kinds(kind: type[Picture]) -> list[type[Picture]]:
        return [kind, *(each for below in kind.__subclasses__() for each in kinds(below))]

    assert {type(picture) for picture in pictures()} == {*kinds(Picture)} - {Picture}


def test_a_grid_has_a_line_at_each_tick() -> None:
    lines = grid([Tick(25, "a")], [Tick(0, "b"), Tick(100, "c")])
    assert [(line.begin, line.end) for line in lines] == [
        (Dot(25, 0), Dot(25, 100)),
        (Dot(0, 0), Dot(100, 0)),
        (Dot(0, 100), Dot(100, 100)),
    ]


def test_the_last_of_plots_on_one_axis_has_its_ticks() -> None:
    ticks = (Tick(0, "a"),)
    assert [plot.across for plot in with_shared_axis([Plot("", ())] * 3, ticks)] == [(), (), ticks]


def test_kinds_differ_in_color_and_shape_and_pairs_of_these_repeat_late() -> None:
    keys = [marker("k", place) for place in range(MIX_COLORS * len(SHAPES))]
    assert len({(key.look, key.shape) for key in keys}) == len(keys)
    assert all(one.look != other.look and one.shape != other.shape for one, other in pairwise(keys[:MIX_COLORS]))
