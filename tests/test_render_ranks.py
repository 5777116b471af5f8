"""What the GPUs of a job are called: the same on all parts of its page."""

import re
from dataclasses import replace
from html import unescape

import pytest

from nightsight.job.merge import merge_ranks
from nightsight.model.report import Report, gpu_name
from nightsight.render.page.html import render_html
from nightsight.render.page.page import page
from nightsight.render.terminal import first_screen
from nightsight.workflows.analysis import build_report
from tests.world import world

STEPS = 6
SLOW = [[1_000_000] * STEPS, [3_000_000] * STEPS]
NUMBERED = re.compile(r"\b(?:Device|GPU|Rank) \d+")


@pytest.fixture(scope="module")
def job() -> Report:
    return build_report(merge_ranks(world(SLOW)), "job")


def test_gpus_of_ranks_are_called_after_them_in_pictures_and_tables(job: Report) -> None:
    text = unescape(render_html(job, merge_ranks(world(SLOW))))
    numbers = set(NUMBERED.findall(re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)))
    assert numbers == {"Rank 0", "Rank 1"}
    tables = {section.anchor: section.table for section in page(job).results if section.table}
    for name in ("gpu_time", "launch_overhead"):
        assert "Rank" in {column.title for column in tables[name].columns}
    titles = {column.title for table in tables.values() for column in table.columns}
    assert "Device" not in titles


def test_a_gpu_is_called_by_its_number_where_no_rank_is_known() -> None:
    assert [gpu_name(0), gpu_name(0, {"0": 3}), gpu_name(1, {"0": 3})] == ["GPU 0", "Rank 3", "GPU 1"]


def test_a_report_read_from_its_json_calls_gpus_the_same(job: Report) -> None:
    assert [Report.from_json(job.to_json()).called(device) for device in (0, 1)] == ["Rank 0", "Rank 1"]


def test_ranks_on_one_gpu_are_not_counted_as_gpus(job: Report) -> None:
    own, shared = (first_screen(report).verdict.state for report in (job, replace(job, shared=((0, 1),))))
    assert own.startswith("2 GPUs ")
    assert shared == own.replace("2 GPUs ", "2 ranks on one GPU, ")
    assert "2 GPUs" not in render_html(replace(job, shared=((0, 1),)))
