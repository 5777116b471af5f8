"""Idle gaps and utilization: drawn, against the split of the window, and on real captures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.gaps import LONGEST, STRETCHES, _longest, gpu_gaps, gpu_utilization
from nightsight.analyze.gpu_time import gpu_time
from nightsight.analyze.split import time_split
from nightsight.events.timeline import Timeline
from nightsight.events.window import MEASURED_RANGE, WHOLE
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

CaptureFile = Callable[[str], Path]
NSYS = ("train", "ddp2", "gelu", "graph", "graph_node", "unified_memory", "mlp")


def found(picture: str, *columns: str) -> list[list[object]]:
    profile = draw(picture)
    table = gpu_gaps(Timeline(profile if MEASURED_RANGE in picture else replace(profile, window=WHOLE))).frame
    table[["time_ns", "gap_ns"]] //= 1000
    return list(table[list(columns)].to_numpy().tolist())


def test_a_gap_has_a_time_a_cause_and_neighbors() -> None:
    picture = """
        nvtx  ....[load      ]
        cpu   L.......CC......
        s7    aaa.......HH..MM
        """
    assert found(picture, "time_ns", "gap_ns", "cause", "before", "after", "path") == [
        [3, 7, "host code", "a", "[CUDA memcpy Host-to-Device]", "load"],
        [12, 2, "unknown", "[CUDA memcpy Host-to-Device]", "[CUDA memset]", "(no range)"],
    ]


def test_gaps_at_the_ends_of_the_window_have_one_neighbor() -> None:
    assert found("nvtx  [measure  ]\ncpu   L.\ns7    ...aaa.....", "time_ns", "gap_ns", "before", "after") == [
        [6, 5, "a", ""],
        [0, 3, "", "a"],
    ]


def test_the_share_of_the_cause_is_reported() -> None:
    ((cause, share),) = found("cpu  L..AAA..L\ns7   aa........b", "cause", "cause_pct")
    assert (cause, share) == ("allocation and free", pytest.approx(100 * 3 / 8))


def test_work_on_another_device_fills_no_gap() -> None:
    table = gpu_gaps(Timeline(draw("cpu   L.L.L\ns7    aa..aa\ns7:1  .bbbb."))).frame
    assert table[["device", "gap_ns"]].to_numpy().tolist() == [[0, 2000], [1, 1000], [1, 1000]]


def test_gaps_from_a_thousandth_of_a_percent_of_the_window_on_are_listed() -> None:
    # of 100 and 200 milliseconds, a microsecond is that much or half of it
    short, long = (f"s7   {'a' * length}.{'b' * length}...c" for length in (49_000, 100_000))
    assert found(short, "gap_ns") == [[3], [1]]
    assert found(long, "gap_ns") == [[3]]


def test_gaps_that_are_next_to_nothing_are_left_out_where_there_are_longer_ones() -> None:
    both = (np.array([0, 500]), np.array([3, 1_500]))
    assert _longest(both, least=10.0).tolist() == [1]
    short = (np.array([0, 50]), np.array([3, 55]))
    assert _longest(short, least=10.0).tolist() == [1]
    assert not len(_longest((np.empty(0, int), np.empty(0, int)), least=10.0))


def test_of_gaps_of_equal_length_the_first_are_listed() -> None:
    length = np.tile([3, 1, 2, 2, 5, 2], LONGEST // 3)
    start = np.arange(len(length)) * 10
    places = sorted(range(len(length)), key=lambda place: (-length[place], place))[:LONGEST]
    # the list ends among gaps of equal length
    assert (length >= 2).sum() > LONGEST > (length > 2).sum()
    assert _longest((start, start + length), least=1).tolist() == sorted(places)


def test_utilization_is_cut_into_equal_stretches() -> None:
    table = gpu_utilization(Timeline(draw("s7   " + "a" * 30 + "." * 29 + "b"))).frame
    assert len(table) == STRETCHES
    assert table["busy_pct"].tolist() == [100.0] * 15 + [0.0] * 14 + [50.0]
    assert table["from_ns"].tolist() == list(range(0, 60_000, 2000))


@pytest.mark.parametrize("function", [gpu_gaps, gpu_utilization])
def test_without_gpu_work_there_are_no_rows(function: Callable[[Timeline], object]) -> None:
    assert not len(function(Timeline(draw("cpu  LL"))).frame)  # type: ignore[attr-defined]


@examples(60)
@given(st.text("L.SABCJF", max_size=30), st.text("ab.HM", max_size=30), st.text("c.P", max_size=30))
def test_gaps_and_utilization_agree_with_the_split(calls: str, first: str, second: str) -> None:
    timeline = Timeline(draw(f"cpu   {calls}\ns7    {first}\ns8    {second}\ns7:1  {second}"))
    split, gaps = time_split(timeline).frame, gpu_gaps(timeline).frame
    idle = split[split["group"] == "idle"].groupby("device")["time_ns"].sum()
    assert gaps.groupby("device")["gap_ns"].sum().to_dict() == {key: value for key, value in idle.items() if value}
    stretches = gpu_utilization(timeline).frame
    length = stretches["to_ns"] - stretches["from_ns"]
    spent = (stretches["busy_pct"] * length / 100).groupby(stretches["device"]).sum()
    busy = gpu_time(timeline).frame.set_index("device")["busy_ns"]
    assert {key: round(value) for key, value in spent.items()} == busy.to_dict()
    assert ((gaps["cause_pct"] > 0) & (gaps["cause_pct"] <= 100)).all()


@pytest.mark.parametrize("name", NSYS)
def test_gaps_of_real_captures_are_the_longest_idle_pieces(recorded: Recorded, name: str) -> None:
    timeline = Timeline(recorded.profile(name))
    gaps, totals = gpu_gaps(timeline).frame, gpu_time(timeline).frame
    for device, idle in zip(totals["device"], totals["idle_ns"], strict=True):
        of_device = gaps[gaps["device"] == device]
        assert len(of_device) <= LONGEST
        assert of_device["gap_ns"].is_monotonic_decreasing
        assert of_device["gap_ns"].sum() <= idle
    assert (gaps["time_ns"] + gaps["gap_ns"] <= timeline.window.length_ns).all()
