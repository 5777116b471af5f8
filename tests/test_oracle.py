"""Ours against NVIDIA's: every CSV that `nsys stats` printed for the shared captures, byte for byte."""

import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipeline.model import Profile
from pipeline.read.nsys import read_nsys
from pipeline.stats import REPORTS, stats_table, write_stats

DATA = Path(__file__).parent / "data" / "nsys"
FILES = {(path.parent.parent.name, path.name.split(".")[0]): path for path in sorted(DATA.glob("*/nsys_stats/*"))}
# none of the captures has start/end ranges, and their owner did not print the trace of calls
WITHOUT_ORACLE = {"cuda_api_trace", "nvtx_startend_sum"}


@pytest.fixture(scope="module")
def profile_of(capture_file: Callable[[str], Path]) -> Callable[[str], Profile]:
    return cache(lambda capture: read_nsys(capture_file(capture)))


def test_every_report_has_an_oracle() -> None:
    assert {report for _, report in FILES} == set(REPORTS) - WITHOUT_ORACLE
    assert len(FILES) == 87


@pytest.mark.parametrize(("capture", "report"), FILES)
def test_report_equals_nsys_stats(capture: str, report: str, profile_of: Callable[[str], Profile]) -> None:
    file = FILES[capture, report]
    content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    ours = write_stats(stats_table(profile_of(capture), report), "csv")
    assert ours.rstrip("\n") == content.decode().rstrip("\n")
