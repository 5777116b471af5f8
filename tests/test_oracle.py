"""Ours against NVIDIA's: every CSV that `nsys stats` printed for the shared captures, byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.read.nsys import read_nsys
from pipeline.stats import REPORTS, stats_table, write_stats

DATA = Path(__file__).parent / "data" / "nsys"
CASES = sorted((path.parent.parent.name, path.stem) for path in DATA.glob("*/nsys_stats/*.csv") if path.stem in REPORTS)


def test_every_report_has_an_oracle() -> None:
    assert {report for _, report in CASES} == set(REPORTS)
    assert len(CASES) == 46


@pytest.mark.parametrize(("capture", "report"), CASES)
def test_report_equals_nsys_stats(capture: str, report: str, capture_file: Callable[[str], Path]) -> None:
    expected = (DATA / capture / "nsys_stats" / f"{report}.csv").read_text(encoding="utf-8")
    profile = read_nsys(capture_file(capture))
    assert write_stats(stats_table(profile, report), "csv").strip() == expected.strip()
