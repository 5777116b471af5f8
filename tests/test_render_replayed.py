from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Finding, Report
from nightsight.render.export.markdown import render_markdown
from nightsight.render.figure.bars import Bar, BarChart, stacks
from nightsight.render.figure.charts import Pictures
from nightsight.render.figure.plot import MIX_COLORS, Plane, Point
from nightsight.render.page.html import render_html
from nightsight.render.page.page import PageSection, page
from nightsight.render.table.replayed import hottest
from nightsight.render.table.view import TableView
from tests.replay_tables import NAMES, instructions, kernels, lines, replay_report, rules, stalls
from tests.reports import HOSTILE, result
from tests.test_render_html import Outline


def section_of(report: Report, name: str) -> PageSection:
    view = page(report)
    return next(section for section in (*view.results, *view.method.sections) if section.anchor == name)


def stacked(section: PageSection) -> list[tuple[str, Bar]]:
    """Return the labels and bars of the stacked bars of a section."""
    (drawn,) = section.pictures.above
    assert isinstance(drawn, BarChart)
    return [(group.label, bar) for group in drawn.groups for bar in group.bars]


def table_of(report: Report, name: str) -> TableView:
    table = section_of(report, name).table
    assert table is not None
    return table


def titles(table: TableView) -> list[str]:
    return [column.title for column in table.columns]


def test_a_launch_has_the_same_number_in_every_section() -> None:
    report = replay_report(ncu_instructions=instructions(0, 2))
    assert [row.name.text for row in table_of(report, "ncu_kernels").rows] == ["1. gemm<64>", "2. gemm<64>", "3. add"]
    assert [row.name.text for row in table_of(report, "ncu_instructions").rows] == ["3. gemm<64>", "1. gemm<64>"]
    (plane,) = section_of(report, "ncu_roofline").pictures.above
    assert isinstance(plane, Plane)
    assert [mark.number for mark in plane.plot.of(Point, "series")] == ["1", "3"]
    assert table_of(report, "ncu_rules").rows[0].cells[-1].text == "1. gemm<64>"


def test_kernels_of_one_name_are_distinguished_by_grid_and_block() -> None:
    table = table_of(replay_report(), "ncu_kernels")
    assert [[cell.text for cell in row.cells[:2]] for row in table.rows[:2]] == [
        ["1, 1, 1", "64, 1, 1"],
        ["2, 1, 1", "64, 1, 1"],
    ]


def test_columns_that_say_nothing_are_left_out() -> None:
    first = ["Kernel", "Grid", "Block", "GPU", "Launches", "Timeline median", "Replay", "SM", "Memory", "Occupancy"]
    assert titles(table_of(replay_report(), "ncu_kernels")) == [*first, "Occupancy limit", "Path"]
    alone = kernels(path="", gpu_pct=np.nan, limiter="", device=[0, 0, 1])
    shown = titles(table_of(replay_report(ncu_kernels=alone), "ncu_kernels"))
    assert not {"Path", "GPU", "Limiter", "Occupancy limit"} & set(shown)
    assert "Device" in shown


def test_the_limiter_of_a_kernel_is_the_unit_of_its_limits_and_not_what_limits_its_occupancy() -> None:
    limits = pd.DataFrame({"launch": [2, 1, 0], "unit": ["L2", "the SMs", ""], "used_pct": [92.8, 30.0, np.nan]})
    table = table_of(replay_report(ncu_limits=limits.assign(name=NAMES)), "ncu_kernels")
    shown = [row.cells[titles(table).index("Limiter") - 1].text for row in table.rows]
    assert shown == ["L2", "latencies", "–"]
    assert [row.cells[titles(table).index("Occupancy limit") - 1].text for row in table.rows] == ["warps"] * 3


def test_peaks_are_bars_in_the_table_and_what_was_not_collected_is_none() -> None:
    section = section_of(replay_report(ncu_kernels=kernels(memory_pct=[30.0, np.nan, 0.0])), "ncu_kernels")
    assert section.pictures == Pictures()
    assert section.table is not None
    at = {title: titles(section.table).index(title) - 1 for title in ("SM", "Memory", "Occupancy")}
    assert [[row.cells[place].share for place in at.values()] for row in section.table.rows] == [
        [60.0, 30.0, 12.5],
        [60.0, None, 12.5],
        [60.0, 0.0, 12.5],
    ]


def test_a_rule_has_its_message_behind_its_title_and_estimates_apart() -> None:
    frame = pd.concat([rules(), rules().assign(speedup_kind="local", bound_pct=np.nan)])
    table = table_of(replay_report(ncu_rules=frame), "ncu_rules")
    assert titles(table) == ["Rule", "Bound", "Global estimate", "Local estimate", "Kind", "Kernel"]
    assert (table.rows[0].name.text, table.rows[0].name.full) == ("Small Grid", "See https://x <b>.")
    assert [[cell.text for cell in row.cells[:3]] for row in table.rows] == [["12.0", "40.0", "–"], ["–", "–", "40.0"]]


def test_a_line_is_placed_without_its_folder_and_an_instruction_by_address() -> None:
    frame = lines(("/home/someone/k.cu", 12, None), ("C:\\Users\\someone\\k.cu", 3, None), ("", None, 0x2790))
    report = replay_report(ncu_source=frame)
    places = [
        row.cells[titles(table_of(report, "ncu_source")).index("Place") - 1]
        for row in table_of(report, "ncu_source").rows
    ]
    assert [cell.text for cell in places] == ["k.cu:12", "k.cu:3", "0x2790"]
    assert "someone" not in render_html(report)


def test_only_the_first_lines_are_shown() -> None:
    table = table_of(replay_report(ncu_source=lines(*[("k.cu", place, None) for place in range(51)])), "ncu_source")
    assert len(table.rows) == 50
    assert table.more.startswith("The first 50 of 51 lines.")


def test_stalls_are_one_bar_and_one_row_per_kernel() -> None:
    section = section_of(replay_report(ncu_stalls=stalls(wait=20.0, mio_throttle=60.0, misc=0.4)), "ncu_stalls")
    ((label, stack),) = stacked(section)
    assert (label, stack.summary) == ("1. gemm<64>", "MIO throttle 60.0 %, Wait 20.0 %")
    assert [key.label for key in stack.parts] == ["MIO throttle 60.0 %", "Wait 20.0 %"]
    assert [(part.x, part.width) for part in stack.marks[1:]] == [(0, 60), (60, 20), (80, 0.4)]
    assert section.table is not None
    assert titles(section.table) == ["Kernel", "MIO throttle", "Wait", "Misc"]
    assert section.table.is_folded


def test_kinds_of_instructions_that_none_has_are_left_out() -> None:
    section = section_of(replay_report(), "ncu_instructions")
    assert [stack.summary for _, stack in stacked(section)] == ["FP32 70.0 %, Integer 29.5 %"] * 2
    assert section.table is not None
    assert titles(section.table) == ["Kernel", "Instructions", "FP32", "Integer", "Load store"]


def test_launches_without_counts_have_a_row_and_no_bar() -> None:
    frame = instructions(2, 1).assign(fp32_pct=[70.0, np.nan], integer_pct=[29.5, np.nan], load_store_pct=[0.5, np.nan])
    section = section_of(replay_report(ncu_instructions=frame), "ncu_instructions")
    assert [label for label, _ in stacked(section)] == ["1. gemm<64>"]
    assert section.table is not None
    assert [row.cells[1].text for row in section.table.rows] == ["70.0", "–"]


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(), max_size=9))
def test_parts_follow_one_another_within_the_bar(shares: dict[str, float]) -> None:
    groups = stacks(["k"], {kind: np.array([value]) for kind, value in shares.items()})
    assert bool(groups) == any(0 < value < np.inf for value in shares.values())
    end = 0.0
    for part in (part for group in groups for part in group.bars[0].marks[1:]):
        assert part.x == pytest.approx(end, abs=0.02)
        end = part.x + part.width
    assert end <= 100.02


def test_the_largest_kinds_have_colors_of_their_own_in_all_bars() -> None:
    shares = {f"k{place}": np.array([place + 1.0, 1.0]) for place in range(MIX_COLORS + 2)}
    first, second = ([mark.look for mark in group.bars[0].marks[1:]] for group in stacks(["a", "b"], shares))
    assert first == second
    assert (first.count("series-others"), len(set(first))) == (2, MIX_COLORS + 1)


def test_how_replays_were_matched_and_roofs_are_with_the_method() -> None:
    view = page(replay_report())
    assert [section.anchor for section in view.method.sections] == ["ncu_match", "ncu_roofs"]
    assert titles(table_of(replay_report(), "ncu_roofs")) == ["Roof", "Bandwidth", "Arithmetic", "GPU"]


def test_without_ncu_the_page_says_so_once() -> None:
    none = replay_report(**{result.name: None for result in replay_report().results if result.name != "gpu_time"})
    assert page(none).unavailable == (("Single kernels (Nsight Compute)", "ncu was off"),)
    some = replay_report(ncu_source=None, ncu_stalls=None)
    assert page(some).unavailable == (("ncu_stalls, ncu_source", "ncu was off"),)


def test_of_single_kernels_some_sections_are_open_and_the_rest_is_in_groups() -> None:
    other = result("other", pd.DataFrame({"name": ["x"]}))
    report = replay_report()
    alone = tuple(some for some in report.results if some.name != "gpu_time")
    view = page(replace(report, results=(*alone, other)))
    assert [section.anchor for section in view.sections] == ["ncu_kernels", "ncu_roofline"]
    groups = {group.group: [section.anchor for section in group.sections] for group in view.details}
    assert groups == {"Nsight Compute": ["ncu_rules", "ncu_stalls", "ncu_instructions", "ncu_source"], "": ["other"]}


def test_the_page_is_sound_and_hostile_text_stays_text() -> None:
    names = tuple(dict.fromkeys(HOSTILE))
    hostile = replay_report(
        ncu_kernels=kernels(names, limiter=names, path=names, grid=names),
        ncu_rules=rules(names, names),
        ncu_source=lines(*((name, 1, None) for name in names), source=names[0]),
        ncu_stalls=pd.DataFrame({"launch": range(len(names)), "name": names, "reason": names, "stall_pct": 50.0}),
        ncu_roofs=replay_report().result("ncu_roofs").rows.assign(gpu=names[0]),
        ncu_roofline=replay_report().result("ncu_roofline").rows.assign(kind=names[3], name=names[0]),
    )
    for report in (replay_report(), hostile, Report.from_json(hostile.to_json())):
        text = render_html(report)
        outline = Outline(text)
        assert outline.open == []
        assert "b" not in {tag for tag, _ in outline.elements}
        assert len([block for block in outline.all("script") if "id" not in block]) == 1
        attributes = {name for _, element in outline.elements for name in element}
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        for svg in outline.all("svg"):
            assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg.get("aria-label"))


def test_a_report_read_back_from_json_looks_the_same() -> None:
    assert render_html(Report.from_json(replay_report().to_json())) == render_html(replay_report())


def test_markdown_folds_every_table_of_replays() -> None:
    text = render_markdown(replay_report())
    assert [
        f"<summary>{name.replace('_', chr(92) + '_')}</summary>" in text
        for name in ("ncu_kernels", "ncu_rules", "ncu_roofline", "ncu_stalls", "ncu_instructions", "ncu_source")
    ] == [True] * 6


def test_a_line_whose_text_ncu_does_not_have_is_named_by_its_place() -> None:
    frame = lines(("/home/someone/k.py", 12, None), source="")
    assert hottest(frame)["source"].tolist() == ["k.py:12"]


def test_nvidia_s_links_are_links_and_others_are_text() -> None:
    others = "(https://evil.example/) <b> (javascript:x)"
    detail = f"See the Guide (https://docs.nvidia.com/cuda/index.html#occupancy) or {others}"
    findings = (Finding("ncu_occupancy", "advice", "Few warps", detail),)
    text = render_html(replace(replay_report(), findings=findings))
    hrefs = [link["href"] for link in Outline(text).all("a") if not (link["href"] or "").startswith("#")]
    assert hrefs == ["https://docs.nvidia.com/cuda/index.html#occupancy"]
    assert "See the Guide (<a href" in text
    assert "(https://evil.example/) &lt;b&gt; (javascript:x)" in text


XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{}_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)


def test_replayed_kernels_of_long_names_have_different_labels_in_every_section() -> None:
    names = [XMMA.format(tile) for tile in ("32x32x8", "64x32x8", "128x128x8")]
    frame = kernels(name=names)
    parts = {
        "ncu_kernels": frame,
        "ncu_instructions": instructions(0, 1, 2).assign(name=names),
        "ncu_source": pd.concat(
            [lines(("k.cu", 1, None)).assign(launch=at, name=name) for at, name in enumerate(names)]
        ),
        "ncu_rules": pd.concat([rules().head(1).assign(launch=at, name=name) for at, name in enumerate(names)]),
    }
    report = replay_report(**parts)
    for section in ("ncu_kernels", "ncu_instructions", "ncu_source", "ncu_rules"):
        rows = table_of(report, section).rows
        at_end = section in ("ncu_source", "ncu_rules")
        shown = [titled.cells[-1].text if at_end else titled.name.text for titled in rows]
        assert len({text.partition(". ")[2] for text in shown}) == 3, shown
        assert all(any(tile in text for text in shown) for tile in ("32x32x8", "64x32x8", "128x128x8"))
    labels = [label for label, _ in stacked(section_of(report, "ncu_instructions"))]
    assert len({label.partition(". ")[2] for label in labels}) == 3
