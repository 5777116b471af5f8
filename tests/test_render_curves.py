import math
import re
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight.model.report import Report
from nightsight.render.export.markdown import render_markdown
from nightsight.render.figure.curves import MAX_PANELS, CurveKind, over_time
from nightsight.render.figure.plot import GRID, Circle, Dot, Panels, Path, Plot, Rect
from nightsight.render.page.html import render_html
from nightsight.render.page.page import PageSection, page
from nightsight.results.program import MEMORY_OVER_TIME
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import gpu_table, result, small_report
from tests.test_render_html import Outline
from tests.timeline import draw

KIND = CurveKind(MEMORY_OVER_TIME, "Level", "time_ns", (("level", ""),), "", "api")
TWO = CurveKind(
    MEMORY_OVER_TIME, "Level", "time_ns", (("most_bytes", "maximum"), ("mean_bytes", "mean")), "bytes", "bytes"
)
Point = tuple[int, int]

times = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1000, 1000)
levels = st.floats(min_value=-1e9) | st.integers(0, 100).map(float) | st.just(math.nan)


def table(*rows: tuple[int, int, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["device", "time_ns", "level"])


def chart(frame: pd.DataFrame, *, kind: CurveKind = KIND, window_ns: float = 0.0) -> Panels:
    (drawn,) = over_time(kind, frame, window_ns=window_ns)
    return drawn


def paths(plot: Plot) -> list[str]:
    return [mark.path for mark in plot.of(Path)]


def peaks(plot: Plot) -> list[Dot]:
    return [mark.at for mark in plot.of(Circle)]


def windows(drawn: Panels) -> list[tuple[float, float]]:
    return [(mark.x, mark.width) for mark in drawn.plots[0].of(Rect)]


def points(path: str) -> list[Point]:
    """Follow a path: the corners of the curve, base line included."""
    x, y = 0, 0
    corners = []
    for letter, numbers in re.findall(r"([MHV])([^MHV]+)", path):
        values = [int(text) for text in numbers.split()]
        x, y = (values[0], values[1]) if letter == "M" else (values[0], y) if letter == "H" else (x, values[0])
        corners.append((x, y))
    return corners


def heights(path: str) -> list[int]:
    """Return the highest point of a curve at each place across, measured from the base line."""
    corners = points(path)
    highest = [0] * (GRID + 1)
    for (begin, y), (end, to) in pairwise(corners):
        for x in range(begin, end + 1):
            highest[x] = max(highest[x], GRID - min(y, to))
    return highest


def report_with(name: str, frame: pd.DataFrame, *, beside: str = "launch_bound") -> Report:
    owner = gpu_table(25.0) if beside == "gpu_time" else pd.DataFrame({"device": [0], "kind": ["Device"]})
    results = (result("gpu_time", gpu_table(25.0)), result(beside, owner), result(name, frame))
    return small_report(results=results[beside == "gpu_time" :])


def section_of(report: Report, name: str) -> PageSection:
    return next(section for section in page(report).results if section.anchor == name)


def curves_of(report: Report, name: str) -> list[Panels]:
    return [drawn for drawn in section_of(report, name).pictures.above if isinstance(drawn, Panels)]


# -- curves -----------------------------------------------------------------------------------------------------------


def test_a_level_holds_until_the_next_and_the_last_to_the_end() -> None:
    drawn = chart(table((0, 0, 1), (0, 200, 4), (0, 500, 0)), window_ns=1000)
    assert paths(drawn.plots[0]) == ["M0 1000V750H200V0H500V1000H1000V1000"]
    assert [(tick.place, tick.text) for tick in drawn.plots[0].up] == [(0, "4"), (50, "2"), (100, "0")]


def test_a_curve_begins_with_its_first_level() -> None:
    assert paths(chart(table((0, 250, 2)), window_ns=1000).plots[0]) == ["M250 1000V0H1000V1000"]


def test_a_level_that_stays_is_drawn_once() -> None:
    same = table(*((0, time, 2) for time in range(0, 1000, 2)))
    assert paths(chart(same, window_ns=1000).plots[0]) == ["M0 1000V0H1000V1000"]


def test_of_many_levels_at_one_place_the_highest_and_the_last_remain() -> None:
    crowd = [(0, 500_000 + place, level) for place, level in enumerate((3, 10, 1, 2))]
    drawn = chart(table((0, 0, 5), *crowd), window_ns=1_000_000)
    assert points(paths(drawn.plots[0])[0])[2:6] == [(500, 500), (500, 0), (500, 800), (1000, 800)]


def test_a_spike_that_falls_back_at_once_is_seen() -> None:
    drawn = chart(table((0, 0, 2), (0, 500_000, 4), (0, 500_001, 2)), window_ns=1_000_000)
    assert paths(drawn.plots[0]) == ["M0 1000V500H500V0V500H1000V1000"]


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 1_000_000)), min_size=1, max_size=300))
def test_thinning_drops_no_maximum(rows: list[tuple[int, int]]) -> None:
    drawn = chart(table(*((0, time, level) for time, level in rows)), window_ns=100_000)
    top = float(drawn.plots[0].up[0].text.replace(",", ""))
    reached = heights(paths(drawn.plots[0])[0])
    for time, level in rows:
        place = GRID * time / 100_000
        assert max(reached[math.floor(place)], reached[math.ceil(place)]) >= math.floor(GRID * level / top)
    assert max(reached) == pytest.approx(GRID * max(level for _, level in rows) / top, abs=0.5)


@given(st.lists(st.tuples(st.integers(0, 2), times, levels), max_size=60), st.floats(-1e3, 1e18) | st.just(0.0))
@example([(0, -(1 << 63), 1e308), (1, (1 << 63) - 1, math.inf)], 1.0)
@example([(0, 0, 5e-324)], 0.0)
def test_whatever_table_comes_in_all_is_on_the_chart(rows: list[tuple[int, int, float]], window_ns: float) -> None:
    charts = over_time(KIND, table(*rows), window_ns=window_ns)
    assert len(charts) == any(math.isfinite(level) for _, _, level in rows)
    for drawn in charts:
        places = [tick.place for tick in (*drawn.plots[0].up, *drawn.plots[-1].across)]
        places += [place for plot in drawn.plots for peak in peaks(plot) for place in (peak.x, peak.y)]
        assert all(0 <= place <= 100 for place in [*places, *chain(*windows(drawn))])
        assert 2 <= len(drawn.plots[0].up) <= 4
        assert len(drawn.plots[-1].across) <= 6
        assert sum(chain(*windows(drawn))) <= 100.01
        for plot in drawn.plots:
            corners = points(paths(plot)[0])
            assert all(0 <= place <= GRID for corner in corners for place in corner)
            assert corners == sorted(corners, key=lambda corner: corner[0])
            assert not re.search(r"nan|inf", plot.summary)


@examples(20)
@given(st.lists(st.tuples(st.integers(0, 30), times, levels, levels), max_size=40))
def test_the_page_of_any_table_is_valid(rows: list[tuple[int, int, float, float]]) -> None:
    columns = ["device", "time_ns", "in_flight_avg", "in_flight_max"]
    outline = Outline(render_html(report_with("in_flight", pd.DataFrame(rows, columns=columns))))
    assert outline.open == []
    assert "style" not in {attribute for _, attributes in outline.elements for attribute in attributes}


# -- axes -------------------------------------------------------------------------------------------------------------


def test_a_share_is_drawn_up_to_all_of_it() -> None:
    kind = CurveKind(MEMORY_OVER_TIME, "Busy", "time_ns", (("level", ""),), "pct", "busy", full=100.0)
    drawn = chart(table((0, 0, 3.0), (0, 5, 1.0)), kind=kind)
    assert [tick.text for tick in drawn.plots[0].up] == ["100 %", "50 %", "0"]
    assert heights(paths(drawn.plots[0])[0])[0] == 30


def test_a_window_that_fills_the_plot_is_not_shaded() -> None:
    drawn = chart(table((0, 0, 1)), window_ns=23_666_469)
    assert [tick.text for tick in drawn.plots[0].across] == ["0", "5", "10", "15", "20 ms"]
    assert (windows(drawn), drawn.notes) == ([], ())


def test_what_lies_outside_the_window_is_distinguished_from_it() -> None:
    drawn = chart(table((0, -3_000, 1), (0, 500, 2)), window_ns=1_000)
    assert [(tick.place, tick.text) for tick in drawn.plots[-1].across] == [
        (0, "\N{MINUS SIGN}3"),
        (25, "\N{MINUS SIGN}2"),
        (50, "\N{MINUS SIGN}1"),
        (75, "0"),
        (100, "1 µs"),
    ]
    assert windows(drawn) == [(75.0, 25.0)]
    assert drawn.notes == ("Shaded: the window; time 0 is its start.",)
    assert [tick.classes for tick in drawn.plots[-1].across] == ["", "", "", "", "last"]


# -- words ------------------------------------------------------------------------------------------------------------


def test_devices_have_panels_of_their_own_over_the_same_axes() -> None:
    drawn = chart(table((0, 0, 1), (1, 0, 4), (1, 600, 2), (0, 500, 2)), window_ns=1000)
    assert [plot.label for plot in drawn.plots] == ["GPU 0", "GPU 1"]
    assert [paths(plot) for plot in drawn.plots] == [
        ["M0 1000V750H500V500H1000V1000"],
        ["M0 1000V0H600V500H1000V1000"],
    ]
    assert [bool(plot.across) for plot in drawn.plots] == [False, True]


def test_range_and_maximum_are_described_in_words() -> None:
    frame = pd.DataFrame(
        {"device": 0, "time_ns": [0, 10_000, 20_000], "most_bytes": [9, 3_000, 5], "mean_bytes": [4, 1_000, 2]}
    )
    (plot,) = chart(frame, kind=TWO, window_ns=30_000).plots
    assert plot.label == ""
    assert plot.remark == "maximum 3.000 kB at 10.00 µs"
    assert plot.summary == "Level, from 0 to 30.00 µs: between 2 B and 3.000 kB, maximum 3.000 kB at 10.00 µs"
    assert [peak.x for peak in peaks(plot)] == [pytest.approx(33.33)]


def test_a_flat_curve_has_no_peak() -> None:
    (plot,) = chart(table((0, 0, 2), (0, 5, 2)), window_ns=10).plots
    assert (plot.remark, plot.summary) == ("2 throughout", "Level, from 0 to 10 ns: 2 throughout")
    assert peaks(plot) == []


def test_more_devices_than_fit_are_counted() -> None:
    drawn = chart(table(*((device, 0, device) for device in range(MAX_PANELS + 3))))
    assert len(drawn.plots) == MAX_PANELS
    assert drawn.notes[-1].startswith(f"The first {MAX_PANELS} of {MAX_PANELS + 3} devices.")
    assert drawn.plots[0].up[0].text == "20"


@pytest.mark.parametrize("frame", [pd.DataFrame(), table(), table((0, 0, math.nan)), table().drop(columns="device")])
def test_a_table_with_nothing_to_draw_has_no_chart(frame: pd.DataFrame) -> None:
    assert over_time(KIND, frame, window_ns=10) == ()


# -- on the page ------------------------------------------------------------------------------------------------------


def series(columns: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame({"device": [0] * 4, columns[0]: [0, 250_000_000, 500_000_000, 750_000_000]})
    return frame.assign(**{name: [1, 2, 0, 1] for name in columns[1:]})


@pytest.mark.parametrize(
    ("owner", "name", "columns"),
    [
        ("launch_bound", "in_flight", ("time_ns", "in_flight_avg", "in_flight_max")),
        ("memory_usage", "memory_over_time", ("time_ns", "bytes")),
        ("gpu_time", "gpu_utilization", ("from_ns", "to_ns", "busy_pct")),
    ],
)
def test_each_series_is_a_chart_of_its_owner_and_no_section(owner: str, name: str, columns: tuple[str, ...]) -> None:
    report = report_with(name, series(columns), beside=owner)
    (drawn,) = curves_of(report, owner)
    assert drawn.plots[-1].across[-1].text == "1.0 s"
    assert name not in [section.anchor for section in page(report).results]
    assert 'class="curve' in render_html(report)
    assert name not in render_markdown(report)


@pytest.mark.parametrize("owner", ["launch_bound", "memory_usage", "gpu_time"])
def test_a_report_without_the_series_has_no_chart(owner: str) -> None:
    report = report_with("other", series(("time_ns", "level")), beside=owner)
    assert curves_of(report, owner) == []


def test_the_chart_stands_above_the_table() -> None:
    frame = series(("time_ns", "in_flight_avg", "in_flight_max"))
    html = render_html(report_with("in_flight", frame))
    places = [
        html.index(mark) for mark in ('id="launch_bound"', 'class="chart over-time"', 'data-table="launch_bound"')
    ]
    assert places == sorted(places)
    assert html.index("<bdi>maximum</bdi>") < html.index("<bdi>mean</bdi>")


def test_the_maximum_is_drawn_behind_the_mean() -> None:
    frame = series(("time_ns", "in_flight_avg", "in_flight_max")).assign(in_flight_avg=0.5)
    html = render_html(report_with("in_flight", frame))
    drawn = re.findall(r'<path class="curve curve-(\d) series-api" d="([^"]*)"', html)
    assert [level for level, _ in drawn] == ["2", "1"]
    assert [max(heights(path)) for _, path in drawn] == [1000, 250]


def test_a_drawn_timeline_has_its_curve_on_the_page() -> None:
    profile = draw(
        """
        cpu  L.L.L.......
        s0   ......aabbcc
        """
    )
    (drawn,) = curves_of(build_report(profile, "drawn"), "launch_bound")
    assert paths(drawn.plots[0])[0] == "M0 1000V0H334V333H668V667H1000V1000"
    assert [tick.text for tick in drawn.plots[-1].across] == ["0", "2", "4", "6 µs"]


def test_real_curves_are_small_and_keep_their_peak(recorded: Recorded) -> None:
    report = recorded.report("train")
    in_flight, memory = (curves_of(report, name)[0].plots[0] for name in ("launch_bound", "memory_usage"))
    assert in_flight.remark == "maximum 25 at 36.52 ms"
    assert memory.remark == "maximum 740.6 MB at 0.003 s"
    assert sum(map(len, [*paths(in_flight), *paths(memory)])) < 8_000
    most = report.result("in_flight").rows["in_flight_max"]
    assert max(heights(paths(in_flight)[0])) == round(GRID * int(np.max(most)) / 30)
