"""Memory: how much was allocated and when, what unified memory moved, and the GPU's counters."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.memory import gpu_metrics, memory_over_time, memory_usage, unified_memory
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

CaptureFile = Callable[[str], Path]
Event = tuple[int, int]


def allocating(events: Sequence[Event], *, device: int = 0, kind: str = "Device") -> pd.DataFrame:
    """Make events of (time in ns, bytes); negative bytes are freed."""
    rows = [
        {"start_ns": time, "process": 5 << 24, "device": device, "kind": kind, "bytes": abs(size)}
        | {"is_allocation": size >= 0}
        for time, size in events
    ]
    return conform("memory_usage", pd.DataFrame(rows))


def recorded(*parts: pd.DataFrame) -> Timeline:
    return Timeline(Profile({**draw("s7  ....a").tables, "memory_usage": conform("memory_usage", pd.concat(parts))}))


def test_the_peak_is_the_most_at_a_time_and_not_the_sum() -> None:
    (row,) = memory_usage(recorded(allocating([(10, 100), (20, -100), (30, 60), (40, 20)]))).frame.itertuples()
    assert (row.peak_bytes, row.end_bytes) == (100, 80)
    assert (row.allocations, row.allocated_bytes, row.frees, row.freed_bytes) == (3, 180, 1, 100)


def test_devices_and_kinds_of_memory_are_never_merged() -> None:
    parts = (
        allocating([(10, 100)]),
        allocating([(10, 7)], kind="Pinned"),
        allocating([(10, 50), (20, -50)], device=1),
    )
    table = memory_usage(recorded(*parts)).frame
    assert table[["device", "kind", "peak_bytes", "end_bytes"]].to_numpy().tolist() == [
        [0, "Device", 100, 100],
        [0, "Pinned", 7, 7],
        [1, "Device", 50, 0],
    ]


def test_what_changes_at_one_moment_counts_together() -> None:
    (row,) = memory_usage(recorded(allocating([(10, 100), (20, 100), (20, -100)]))).frame.itertuples()
    assert row.peak_bytes == 100


def test_memory_from_before_the_capture_shows_when_it_is_freed_and_is_reported() -> None:
    table = memory_usage(recorded(allocating([(10, 20), (20, -100), (30, 50)])))
    (row,) = table.frame.itertuples()
    assert (row.peak_bytes, row.end_bytes) == (100, 50)
    assert "before" not in table.notes[0]
    assert "the capture began after" in table.notes[0]
    assert memory_usage(recorded(allocating([(10, 20)]))).notes == ()


def test_the_series_is_of_the_devices_own_memory_from_the_start_of_the_window() -> None:
    parts = (allocating([(1000, 100), (6000, 50)]), allocating([(2000, 9)], kind="Pinned"))
    table = memory_over_time(recorded(*parts)).frame
    assert table.to_numpy().tolist() == [[0, -3000, 100], [0, 2000, 150]]


@examples(25)
@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 52), st.integers(-(1 << 40), 1 << 40)),
        min_size=1,
        max_size=40,
    )
)
def test_thinning_keeps_the_peak_and_the_end(events: list[Event]) -> None:
    spread = [(time + shift, size) for time, size in events for shift in range(0, 1 << 50, 1 << 46)]
    timeline = recorded(allocating(spread), allocating(spread, device=1))
    series = memory_over_time(timeline).frame.groupby("device")
    usage = memory_usage(timeline).frame.set_index("device")
    assert series["bytes"].max().tolist() == usage["peak_bytes"].tolist()
    assert series["bytes"].last().tolist() == usage["end_bytes"].tolist()
    assert (series.size() <= 500).all()
    assert series["time_ns"].is_monotonic_increasing.all()


def test_ten_thousand_changes_become_five_hundred_points() -> None:
    events = [(time, 1) for time in range(10_000)]
    table = memory_over_time(recorded(allocating(events))).frame
    assert 250 <= len(table) <= 500
    assert table["bytes"].max() == 10_000


def test_usage_of_a_real_capture_is_what_was_allocated_less_what_was_freed(recorded: Recorded) -> None:
    timeline = Timeline(recorded.profile("train"))
    table = memory_usage(timeline).frame
    assert (table["end_bytes"] == table["allocated_bytes"] - table["freed_bytes"]).all()
    assert table[["kind", "peak_bytes", "allocations"]].to_numpy().tolist() == [
        ["Device", 740_558_848, 40],
        ["Device Static", 10_137, 821],
        ["Pinned", 4, 1],
    ]
    assert memory_over_time(timeline).frame["bytes"].iloc[-1] == 740_558_848 + 10_137


# -- unified memory ---------------------------------------------------------------------------------------------------


def test_migrations_and_page_faults_are_those_that_nvidia_counts(recorded: Recorded) -> None:
    table = unified_memory(Timeline(recorded.profile("unified_memory"))).frame.set_index("event")
    assert table["count"].to_dict() == {
        "CPU page faults": 36,
        "GPU page faults": 19,
        "Unified Device-to-Host": 24,
        "Unified Host-to-Device": 48,
    }
    assert table["total_bytes"].dropna().tolist() == [4_194_304, 8_388_608]
    assert table["device"].isna().tolist() == [True, False, False, False]
    assert table["total_ns"].isna().tolist() == [True, False, False, False]


def test_migrations_are_shown_where_faults_were_not_recorded(recorded: Recorded) -> None:
    tables = recorded.profile("unified_memory").tables
    alone = Profile({name: table for name, table in tables.items() if "fault" not in name})
    events = unified_memory(Timeline(alone)).frame["event"]
    assert events.tolist() == ["Unified Device-to-Host", "Unified Host-to-Device"]


def test_ordinary_copies_are_no_migrations(recorded: Recorded) -> None:
    assert unified_memory(Timeline(recorded.profile("train"))).frame.empty


# -- GPU metrics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "mean", "most"), [(0, 50.0, 80), (1, 7.0, 7)])
def test_metrics_are_those_of_the_window(device: int, mean: float, most: int) -> None:
    values = [(0, 0, 100), (0, 4000, 20), (0, 4500, 80), (1, 4500, 7), (0, 9000, 100)]
    samples = pd.DataFrame(values, columns=["device", "start_ns", "value"]).assign(metric="SM Active [Throughput %]")
    tables = {**draw("s7  ....a").tables, "gpu_metrics": conform("gpu_metrics", samples)}
    table = gpu_metrics(Timeline(Profile(tables))).frame
    (row,) = table[table["device"] == device].itertuples()
    assert (row.metric, row.mean, row.max) == ("SM Active [Throughput %]", mean, most)
