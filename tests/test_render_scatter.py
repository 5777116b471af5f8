"""Copies by size and rate: where marks and peaks are, and that their numbers are those of the table."""

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.kernel_labels import Labels
from nightsight.render import render_html
from nightsight.render.figure.charts import pictures_of
from nightsight.render.figure.plot import Line, Plane, Point, Text
from nightsight.render.figure.scatter import copy_rates
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import HOSTILE, result, small_report
from tests.test_render_html import Outline

H2D, D2D, P2P = "Host-to-Device", "Device-to-Device", "Peer-to-Peer"
NO_PEAKS = pd.DataFrame()
TO_DEVICE = [(H2D, "Pinned", 1, 1e6, 1e5), (H2D, "Pinned", 1, 1e7, 1e6)]


def table(*rows: tuple[str, str, int, float, float], **changes: Any) -> pd.DataFrame:
    """Rows of operation, host_kind, count, total_bytes, total_ns."""
    frame = pd.DataFrame(rows, columns=["operation", "host_kind", "count", "total_bytes", "total_ns"])
    classes = frame.assign(from_bytes=0, below_bytes=1, rate_bytes_per_s=frame["total_bytes"] * 1e9 / frame["total_ns"])
    return classes.assign(**changes)


def peaks(*links: float, memory: float = math.nan, nvlink: float = math.nan) -> pd.DataFrame:
    rates = {"host_link_bytes_per_s": links, "memory_bytes_per_s": memory, "nvlink_bytes_per_s": nvlink}
    return pd.DataFrame({"device": range(len(links)), "name": "GPU", **rates})


def drawn(frame: pd.DataFrame, limits: pd.DataFrame = NO_PEAKS) -> Plane:
    (view,) = copy_rates(frame, limits)
    return view


def points(view: Plane) -> list[Point]:
    return [mark for mark in view.plot.marks if isinstance(mark, Point)]


def peak_labels(view: Plane) -> list[Text]:
    return [mark for mark in view.plot.marks if isinstance(mark, Text)]


def lines(view: Plane, look: str) -> list[Line]:
    return [mark for mark in view.plot.marks if isinstance(mark, Line) and look in mark.look]


def test_marks_are_at_their_mean_size_and_rate() -> None:
    view = drawn(table((H2D, "Pinned", 1, 1e3, 1e6), (H2D, "Pinned", 10, 1e7, 1e6)))
    low, high = points(view)
    decade = 100 / 3.3
    assert [low.at.x, high.at.x] == pytest.approx([0.15 * decade, 3.15 * decade], abs=0.1)
    assert [100 - low.at.y, 100 - high.at.y] == pytest.approx([15 / 4.3, 415 / 4.3], abs=0.1)
    assert high.title == "Host-to-Device, pinned: 10 copies of 1.000 MB on average, 10.00 GB/s; 10.00 MB in 1.000 ms"
    assert low.title.startswith("Host-to-Device, pinned: 1 copy of 1.000 kB, 1.000 MB/s")


def test_kinds_differ_in_shape_and_colour_and_only_sizes_of_one_are_joined() -> None:
    rows = [(operation, kind, 1, size, 1e3) for operation, kind in KINDS for size in (1e3, 1e6)]
    view = drawn(table(*rows))
    assert len({key.label for key in view.keys}) == len(KINDS)
    assert len({(key.look, key.shape) for key in view.keys}) == len(KINDS)
    assert len({key.shape for key in view.keys[:6]}) == len({key.look for key in view.keys[:6]}) == 6
    assert len(lines(view, "pair")) == len(KINDS)


KINDS = [
    *[(name, kind) for name in (H2D, "Device-to-Host") for kind in ("Pageable", "Pinned", "")],
    (D2D, ""),
    (P2P, ""),
]


def test_peaks_are_of_what_is_crossed_and_within_a_device_each_byte_counts_twice() -> None:
    rows = table((H2D, "Pinned", 1, 1e6, 1e5), (D2D, "", 1, 1e6, 1e3), (P2P, "", 1, 1e6, 1e4))
    view = drawn(rows, peaks(64e9, memory=4.8e12, nvlink=450e9))
    assert [label.text for label in peak_labels(view)] == [
        "Link to the host, one way: 64.00 GB/s",
        "NVLink, one way: 450.0 GB/s",
        "Device memory, read and write: 2.400 TB/s",
    ]
    heights = [line.begin.y for line in lines(view, "roof")]
    assert heights == [label.at.y for label in peak_labels(view)]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < height < 100 for height in heights)


def test_only_peaks_that_something_crosses_are_drawn() -> None:
    view = drawn(table(*TO_DEVICE), peaks(64e9, memory=4.8e12, nvlink=450e9))
    assert [label.text for label in peak_labels(view)] == ["Link to the host, one way: 64.00 GB/s"]


def test_gpus_that_differ_have_a_line_each_and_equal_ones_share_it() -> None:
    rows = table(*TO_DEVICE)
    assert len(peak_labels(drawn(rows, peaks(64e9, 64e9)))) == 1
    looks = [label.look for label in peak_labels(drawn(rows, peaks(64e9, 60e9)))]
    assert looks == ["of-roof under start", "of-roof over start"]


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_without_a_peak_none_is_drawn_and_the_page_says_so(value: float) -> None:
    view = drawn(table(*TO_DEVICE), peaks(value))
    assert (peak_labels(view), lines(view, "roof")) == ([], [])
    assert "none are known" in view.notes[-1]


@pytest.mark.parametrize("column", ["count", "total_bytes", "total_ns", "rate_bytes_per_s"])
@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_what_has_no_size_or_rate_is_not_drawn(column: str, value: float) -> None:
    assert copy_rates(table(*TO_DEVICE, **{column: value}), NO_PEAKS) == ()


def test_a_table_that_lacks_a_column_is_not_drawn() -> None:
    assert copy_rates(table(*TO_DEVICE).drop(columns="host_kind"), NO_PEAKS) == ()


def test_one_class_is_said_by_the_table_alone() -> None:
    assert copy_rates(table(TO_DEVICE[0]), NO_PEAKS) == ()
    assert len(copy_rates(table(*TO_DEVICE), NO_PEAKS)) == 1


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.floats(), st.floats(), st.floats()), min_size=1, max_size=6))
def test_any_numbers_stay_inside_the_plot(rows: list[tuple[int, float, float, float]]) -> None:
    frame = table(*((H2D, "", count, size, time) for count, size, time, _ in rows))
    for view in copy_rates(frame.assign(rate_bytes_per_s=[row[3] for row in rows]), peaks(64e9)):
        assert all(0 <= point.at.x <= 100 and 0 <= point.at.y <= 100 for point in points(view))


@pytest.mark.parametrize("name", ["train", "ddp2", "everything"])
def test_every_class_of_a_real_report_has_a_mark_with_its_numbers(recorded: Recorded, name: str) -> None:
    report = recorded.report(name)
    (view,) = pictures_of("copy_sizes", report, Labels()).above
    assert isinstance(view, Plane)
    rows = report.result("copy_sizes").rows
    assert len(points(view)) == len(rows)
    (link,) = (label for label in peak_labels(view) if label.text == "Link to the host, one way: 64.00 GB/s")
    assert min(point.at.y for point in points(view) if point.title.startswith(H2D)) > link.at.y
    assert rows.loc[rows["operation"] == H2D, "rate_bytes_per_s"].max() < 64e9


def test_hostile_operations_stay_text() -> None:
    frame = table(*((name, name, 1, 1e6, 1e5) for name in HOSTILE))
    html = render_html(small_report(results=(result("copy_sizes", frame),)))
    assert "<script>alert" not in html
    assert any("script" in (svg.get("aria-label") or "") for svg in Outline(html).all("svg"))
