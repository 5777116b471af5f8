"""What a page may weigh, whatever was captured."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.read import read
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.bench import MILLION
from tests.recorded import Recorded
from tests.tile import tile

BUDGET = 1_500_000
CAPTURES = ("mlp", "train", "graph", "ddp2", "unified_memory")


@pytest.mark.parametrize("name", CAPTURES)
def test_a_page_keeps_to_its_bytes(name: str, recorded: Recorded) -> None:
    assert len(recorded.page(name).encode()) < 1_000_000


@pytest.mark.nightly
def test_a_million_kernels_are_a_small_page(tmp_path: Path, capture_file: Callable[[str], Path]) -> None:
    tile(capture_file("mlp"), tmp_path / "million.sqlite", MILLION)
    profile = read(tmp_path / "million.sqlite", details=False)
    assert len(render_html(build_report(profile, "million"), profile).encode()) < BUDGET
