"""Times, sizes and counts as large as they can be: their sums, products and shares are right, and no page is lost."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.compare import compare, measures
from nightsight.compare.settings import Settings
from nightsight.errors import CaptureError
from nightsight.fleet import summary_of
from nightsight.intervals import divided
from nightsight.model.report import Profile, Report
from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.render.compare import render_comparison
from nightsight.render.fleet import render_fleet, verdict_of
from nightsight.render.terminal import first_screen, screen_html
from nightsight.stats.summary import distinct_counts, throughput
from nightsight.workflows.analysis import build_report
from tests.damage import PICTURE, everything
from tests.fleets import made_fleet, summary
from tests.properties import examples
from tests.reports import small_report
from tests.timeline import draw

LARGE = st.integers(0, 2**62)


def scaled(profile: Profile, *, times: int = 1, sizes: int = 1) -> Profile:
    """Return a profile whose times and sizes are so many times as large."""
    tables = {}
    for name, table in profile.tables.items():
        factors = {column: times for column in table if column in ("start_ns", "end_ns")}
        factors |= {column: sizes for column in table if column == "bytes"}
        tables[name] = table.assign(**{column: table[column] * factor for column, factor in factors.items()})
    return replace(profile, tables=tables)


# the picture is 30 us long, and copies 1 kB; what is unknown of its ends is left out only if that is 10 ms or more
@pytest.mark.parametrize(("least", "times", "sizes"), [(2**20, 2**26, 2**50), (1, 1, 2**50)])
def test_a_report_of_large_numbers_is_that_of_small_ones(least: int, times: int, sizes: int) -> None:
    small = scaled(draw(PICTURE), times=least)
    large = scaled(small, times=times, sizes=sizes)
    everything(large)
    one, other = (build_report(profile, "drawn").result("memory_operations").rows for profile in (small, large))
    assert other["total_ns"].tolist() == (one["total_ns"] * times).tolist()
    assert other["total_bytes"].tolist() == (one["total_bytes"] * sizes).tolist()
    rates = one["rate_bytes_per_s"].astype("float64") * sizes / times
    assert other["rate_bytes_per_s"].tolist() == pytest.approx(rates.tolist())
    parts, wider = (build_report(profile, "drawn").result("gpu_utilization").rows for profile in (small, large))
    assert wider["from_ns"].is_monotonic_increasing
    assert wider["busy_pct"].mean() == pytest.approx(parts["busy_pct"].mean(), rel=1e-4)


@given(st.integers(-(2**62), 2**62 - 1), LARGE, st.integers(0, 2000))
def test_equal_parts_of_a_span_are_exact(begin: int, length: int, count: int) -> None:
    edges = divided(begin, length, count).tolist()
    assert edges == [begin + length * place // max(count, 1) for place in range(count + 1)]


@given(st.lists(st.tuples(st.integers(0, 50), LARGE), min_size=1))
def test_distinct_values_are_counted_however_large(pairs: list[tuple[int, int]]) -> None:
    codes, values = (pd.Series(column, dtype="int64").to_numpy() for column in zip(*pairs, strict=True))
    expected = [len({value for code, value in pairs if code == group}) for group in range(max(codes) + 1)]
    assert distinct_counts(codes, values).tolist() == expected


def test_the_throughput_of_a_copy_is_exact_or_not_known() -> None:
    sizes = pd.Series([2**30, 2**62, 8, None], dtype="int64[pyarrow]")
    column = throughput(sizes, pd.Series([1_000_003, 1, 0, 5]))
    assert column.isna().tolist() == [False, True, True, True]
    assert column[0] == 2**30 * (10**9 // 1_000_003)


# -- report.json ------------------------------------------------------------------------------------------------------


def enlarged(report: Report, value: int) -> Report:
    """Return a report whose times, sizes and counts are all this number."""
    document = json.loads(report.to_json())
    for table in [result["table"] for result in document["results"] if result["table"]]:
        for row in table["rows"]:
            row[:] = [
                value if type(cell) is int and name != "device" else cell
                for cell, name in zip(row, table["columns"], strict=True)
            ]
    return Report.from_json(json.dumps(document))


@pytest.mark.parametrize("value", [2**53 + 1, 2**60, 2**62])
def test_all_is_made_of_a_report_with_large_numbers(value: int) -> None:
    report = enlarged(small_report(), value)
    for name, form in FORMATS.items():
        if not form.of_events:
            assert form.render(Source(report)), name
    assert screen_html(first_screen(report))
    run = measures(report)
    assert render_comparison(compare([run] * 3, [run] * 3, settings=Settings()), sources=([Source(report)], []))
    assert render_fleet(made_fleet([summary_of(report, run, name, asked="auto") for name in "ab"]))


def test_a_capture_whose_sums_no_number_holds_is_refused() -> None:
    report = enlarged(small_report(), 2**62)
    both = report.result("gpu_time").rows
    doubled = replace(report, results=(replace(report.results[0], table=pd.concat([both] * 2)), *report.results[1:]))
    with pytest.raises(CaptureError, match="its gpu_ns is larger than any real one"):
        summary_of(doubled, measures(doubled), "c", asked="auto")


# -- fleets -----------------------------------------------------------------------------------------------------------


def test_eight_gpus_for_four_hours_have_a_page(capture_file: Callable[[str], Path]) -> None:
    report = build_report(read(capture_file("34_eight_gpus_4_hours.json")), "34")
    kept = summary_of(report, measures(report), "c", asked="auto")
    (facts,) = kept["captures"].to_dict("records")
    assert facts["gpus"] == 8
    assert 100 * facts["busy_ns"] > 2**53
    share = f"{100 * facts['busy_ns'] / facts['gpu_ns']:.1f}"
    fleet = made_fleet([kept])
    assert f"GPUs {share} % busy" in verdict_of(fleet).state
    assert f">{share}<" in render_fleet(fleet)


@examples(10)
@given(st.lists(st.tuples(LARGE, LARGE, LARGE, LARGE), min_size=1, max_size=4))
def test_a_fleet_of_large_numbers_has_a_page_and_the_right_shares(numbers: list[tuple[int, int, int, int]]) -> None:
    fleet = [
        summary(
            f"c{place}",
            kernels={"a": (max(count, 1), time)},
            gpu_ns=gpu_ns,
            busy_ns=min(busy_ns, gpu_ns),
            copied_bytes=time,
            kernel_ns=time,
        )
        for place, (gpu_ns, busy_ns, count, time) in enumerate(numbers)
    ]
    summed = made_fleet(fleet)
    assert "captures" in render_fleet(summed)
    assert summed.captures["gpu_ns"].sum() == pytest.approx(sum(gpu_ns for gpu_ns, *_ in numbers))
    (kernel,) = summed.kernels.to_dict("records")
    assert kernel["total_ns"] == pytest.approx(sum(time for *_, time in numbers))
    assert kernel["instances"] == pytest.approx(sum(max(count, 1) for _, _, count, _ in numbers))
