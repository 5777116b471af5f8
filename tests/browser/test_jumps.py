"""Rows of tables lead to what they are about in the timeline: the right event of the right name, in the right place."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from nightsight.model.report import Profile, Report
from nightsight.render.page.html import render_html
from nightsight.units import format_value
from tests import replay_tables
from tests.browser.table_pages import rows_of, visited, wait_until
from tests.browser.timeline_samples import MS, nearly, number, text, value
from tests.recorded import Recorded
from tests.reports import result

pytestmark = pytest.mark.browser

Visit = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def profile(recorded: Recorded) -> Profile:
    return recorded.profile("everything")


@pytest.fixture(scope="module")
def shape(profile: Profile) -> tuple[str, str, str, float]:
    """Return a kernel that was launched with several grids: its name, one of them, its block, the median time."""
    kernels = profile.table("kernels").assign(name=lambda frame: frame["name"].astype("str"))
    axes = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
    time = (kernels["end_ns"] - kernels["start_ns"]).rename("time")
    medians = time.groupby([kernels[key] for key in ["name", *axes]]).agg(["median", "size"]).reset_index()
    several = medians[medians.groupby("name")["name"].transform("size") > 1].sort_values("size").iloc[-1]
    grid, block = (", ".join(str(several[axis]) for axis in some) for some in (axes[:3], axes[3:]))
    return str(several["name"]), grid, block, float(several["median"])


@pytest.fixture(scope="module")
def report(recorded: Recorded, shape: tuple[str, str, str, float]) -> Report:
    name, grid, block, median = shape
    kernels = replay_tables.kernels((name,), grid=grid, block=block, timeline_med_ns=median, launch=2)
    report = recorded.report("everything")
    others = (each for each in report.results if not each.name.startswith("ncu_"))
    rules = replay_tables.rules().assign(name=name)
    counters = pd.DataFrame({"device": [0], "metric": ["SMs Active [%]"], "mean": 1.0, "max": 2.0, "samples": 3})
    made = (
        result("ncu_kernels", kernels),
        result("ncu_rules", rules),
        result("gpu_metrics", counters),
    )
    return replace(report, results=(*(each for each in others if each.name != "gpu_metrics"), *made))


@pytest.fixture(scope="module")
def visit(browser: Any, report: Report, profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    file = tmp_path_factory.mktemp("jumps") / "everything.html"
    file.write_text(render_html(report, profile), encoding="utf-8")
    return lambda: visited(browser, file)


def jump(page: Any, table: str, row: int) -> None:
    """Press the button of a row, wherever on the screen it is."""
    page.evaluate("performance.clearMeasures('timeline: frame')")
    rows_of(page.locator(f"#{table}")).nth(row).locator("[data-does=show]").dispatch_event("click")
    wait_until(page, lambda: bool(page.evaluate("performance.getEntriesByName('timeline: frame').length")))


def rows(report: Report, name: str) -> pd.DataFrame:
    return next(result.rows for result in report.results if result.name == name)


@pytest.mark.nightly
def test_a_row_leads_to_its_longest_event(visit: Visit, report: Report) -> None:
    tables = "cuda_gpu_kern_sum memory_operations cuda_api_sum cuda_api_sync setup_calls range_iterations"
    with visit() as page:
        for name in tables.split():
            longest = rows(report, name)["max_ns"].tolist()
            count = rows_of(page.locator(f"#{name}")).count()
            for row in range(min(count, 14)):
                jump(page, name, row)
                assert nearly(value(page, "Duration"), longest[row]), (name, row)


def test_a_range_leads_to_the_instance_in_the_ranges_around_it(visit: Visit, report: Report) -> None:
    ranges = rows(report, "nvtx_ranges")
    with visit() as page:
        names = rows_of(page.locator("#nvtx_ranges")).locator("th bdi:first-child").all_text_contents()
        for row in [place for place, name in enumerate(names) if name == "step"][:4]:
            jump(page, "nvtx_ranges", row)
            path = ranges["path"].iloc[row]
            assert nearly(value(page, "Duration"), ranges["cpu_max_ns"].iloc[row]), path
            depth = path.count(" / ") + 1
            assert value(page, "Row").endswith(f"NVTX ({depth})"), path


def test_a_copy_has_the_direction_and_the_memory_of_its_row(visit: Visit, report: Report) -> None:
    copies, sizes, slow = (rows(report, name) for name in ("memory_operations", "copy_sizes", "slow_copies"))
    with visit() as page:
        for row, copy in enumerate(copies.to_dict("records")):
            jump(page, "memory_operations", row)
            assert copy["operation"] in text(page, "event").splitlines()[0]
            kinds = [kind for kind in (copy["source_kind"], copy["target_kind"]) if kind not in ("", "Unknown")]
            assert value(page, "Details").startswith(" → ".join(kinds))
        for row, copy in enumerate(sizes.head(8).to_dict("records")):
            jump(page, "copy_sizes", row)
            assert copy["operation"] in text(page, "event").splitlines()[0]
            amount, unit = value(page, "Details").rpartition(", ")[2].split()
            size = float(amount) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]
            assert copy["from_bytes"] * 0.999 <= size < copy["below_bytes"]
        for row, copy in enumerate(slow.to_dict("records")):
            jump(page, "slow_copies", row)
            assert f"[CUDA memcpy {copy['operation']}]" in value(page, "Launched")


def test_a_replayed_kernel_is_a_typical_launch_of_its_name_and_shape(
    visit: Visit, shape: tuple[str, str, str, float]
) -> None:
    name, grid, block, median = shape
    with visit() as page:
        for table in ("ncu_kernels", "ncu_rules"):
            jump(page, table, 0)
            assert name in text(page, "event")
            details = f"grid {grid.replace(', ', '×')}, block {block.replace(', ', '×')}"
            assert value(page, "Details").startswith(details)
            assert number(value(page, "Duration")) * MS == pytest.approx(median, rel=0.2)


def test_parts_of_the_window_lead_to_the_calls_behind_them(visit: Visit, report: Report) -> None:
    parts = rows(report, "time_split")
    with visit() as page:
        page.locator("#time_split summary", has_text="All numbers").click()
        for row, functions in enumerate(parts["functions"]):
            button = rows_of(page.locator("#time_split")).nth(row).locator("[data-does=show]")
            assert button.count() == bool(functions)
            if functions:
                jump(page, "time_split", row)
                assert text(page, "event").splitlines()[0] in functions.split(", ")


def test_memory_leads_to_the_peak_of_its_curve(visit: Visit, report: Report) -> None:
    level = rows(report, "memory_over_time")
    peak = level["time_ns"].iloc[level["bytes"].to_numpy().argmax()] / 1e6
    with visit() as page:
        jump(page, "memory_usage", 0)
        assert f"from {peak:.6f} ms" in text(page, "span").splitlines()[0]
        assert (
            text(page, "announcement") == f"Memory in use, maximum {format_value(level['bytes'].max(), 'in_use_bytes')}"
        )


def test_what_is_not_drawn_offers_nothing_and_what_is_not_found_does_no_harm(visit: Visit) -> None:
    with visit() as page:
        assert page.locator(":is(#osrt_sum, #launch_bound, #devices, #diagnostics) [data-does=show]").count() == 0
        pinned = rows_of(page.locator("#memory_usage")).filter(has_text="Pinned")
        faults = rows_of(page.locator("#unified_memory")).filter(has_text="page faults")
        assert (pinned.count(), faults.count()) == (1, 2)
        assert pinned.or_(faults).locator("[data-does=show]").count() == 0
        jump(page, "gpu_metrics", 0)  # the capture has no samples
        assert text(page, "event") == ""


def test_a_mark_and_a_gap_are_shown_where_they_are(visit: Visit, report: Report) -> None:
    gap = rows(report, "gpu_gaps").iloc[2]
    with visit() as page:
        jump(page, "gpu_gaps", 2)
        start, end = (f"{time / 1e6:.6f} ms" for time in (gap["time_ns"], gap["time_ns"] + gap["gap_ns"]))
        assert f"from {start} to {end}" in text(page, "span")
        jump(page, "nvtx_marks", 0)
        assert value(page, "Start") == f"{rows(report, 'nvtx_marks')['first_ns'].iloc[0] / 1e6:,.6f} ms"
