"""Copies by size and rate: where marks and peaks are, and that their numbers are those of the table."""

import math
from typing import Any

import pandas as pd
import pytest

from nightsight.events.kernel_labels import KernelLabels
from nightsight.render.figure.charts import pictures_of
from nightsight.render.figure.plot import Line, Plane, Point, Text
from nightsight.render.figure.scatter import copy_rates
from tests.recorded import Recorded

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


def test_marks_are_at_their_mean_size_and_rate() -> None:
    view = drawn(table((H2D, "Pinned", 1, 1e3, 1e6), (H2D, "Pinned", 10, 1e7, 1e6)))
    low, high = view.plot.of(Point)
    decade = 100 / 3.3
    assert [low.at.x, high.at.x] == pytest.approx([0.15 * decade, 3.15 * decade], abs=0.1)
    assert [100 - low.at.y, 100 - high.at.y] == pytest.approx([15 / 4.3, 415 / 4.3], abs=0.1)
    assert high.title == "Host-to-Device, pinned: 10 copies of 1.000 MB on average, 10.00 GB/s; 10.00 MB in 1.000 ms"
    assert low.title.startswith("Host-to-Device, pinned: 1 copy of 1.000 kB, 1.000 MB/s")


def test_only_sizes_of_one_kind_are_joined() -> None:
    rows = [(operation, kind, 1, size, 1e3) for operation, kind in KINDS for size in (1e3, 1e6)]
    view = drawn(table(*rows))
    assert len({key.label for key in view.keys}) == len(KINDS)
    assert len(view.plot.of(Line, "series")) == len(KINDS)


KINDS = [
    *[(name, kind) for name in (H2D, "Device-to-Host") for kind in ("Pageable", "Pinned", "")],
    (D2D, ""),
    (P2P, ""),
]


def test_peaks_are_of_what_is_crossed_and_within_a_device_each_byte_counts_twice() -> None:
    rows = table((H2D, "Pinned", 1, 1e6, 1e5), (D2D, "", 1, 1e6, 1e3), (P2P, "", 1, 1e6, 1e4))
    view = drawn(rows, peaks(64e9, memory=4.8e12, nvlink=450e9))
    assert [label.text for label in view.plot.of(Text)] == [
        "Link to the host, one way: 64.00 GB/s",
        "NVLink, one way: 450.0 GB/s",
        "Device memory, read and write: 2.400 TB/s",
    ]
    heights = [line.begin.y for line in view.plot.of(Line, "roof")]
    assert heights == [label.at.y for label in view.plot.of(Text)]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < height < 100 for height in heights)


def test_only_peaks_that_something_crosses_are_drawn() -> None:
    view = drawn(table(*TO_DEVICE), peaks(64e9, memory=4.8e12, nvlink=450e9))
    assert [label.text for label in view.plot.of(Text)] == ["Link to the host, one way: 64.00 GB/s"]


def test_gpus_that_differ_have_a_line_each_and_equal_ones_share_it() -> None:
    rows = table(*TO_DEVICE)
    assert len(drawn(rows, peaks(64e9, 64e9)).plot.of(Text)) == 1
    looks = [label.look for label in drawn(rows, peaks(64e9, 60e9)).plot.of(Text)]
    assert looks == ["of-roof under start", "of-roof over start"]


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_without_a_peak_none_is_drawn_and_the_page_says_so(value: float) -> None:
    view = drawn(table(*TO_DEVICE), peaks(value))
    assert (view.plot.of(Text), view.plot.of(Line, "roof")) == ([], [])
    assert "none are known" in view.notes[-1]


def test_one_class_is_shown_by_the_table_alone() -> None:
    assert copy_rates(table(TO_DEVICE[0]), NO_PEAKS) == ()
    assert len(copy_rates(table(*TO_DEVICE), NO_PEAKS)) == 1


@pytest.mark.parametrize("name", ["train", "ddp2", "everything"])
def test_every_class_of_a_real_report_has_a_mark_with_its_numbers(recorded: Recorded, name: str) -> None:
    report = recorded.report(name)
    (view,) = pictures_of("copy_sizes", report, KernelLabels()).above
    assert isinstance(view, Plane)
    rows = report.result("copy_sizes").rows
    assert len(view.plot.of(Point)) == len(rows)
    (link,) = (label for label in view.plot.of(Text) if label.text == "Link to the host, one way: 64.00 GB/s")
    assert min(point.at.y for point in view.plot.of(Point) if point.title.startswith(H2D)) > link.at.y
    assert rows.loc[rows["operation"] == H2D, "rate_bytes_per_s"].max() < 64e9
