"""Distributions: every kernel and launch is in one class, and the classes add up to the tables."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.kernels import kernel_time
from nightsight.analyze.launches.distributions import DURATION, kernel_durations, launch_latencies
from nightsight.analyze.launches.figures import API, LATENCY, launch_phases
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

CaptureFile = Callable[[str], Path]
CAPTURES = ("train", "mlp", "ddp2", "gelu", "graph", "everything")
SUMS = ["count", "total_ns"]


def kernels_of(*durations: int, device: int = 0) -> Profile:
    """One kernel of each duration, one after the other."""
    profile = draw("cpu  L..\ns7   .a.")
    one = profile.table("kernels")
    start = np.cumsum([0, *durations[:-1]])
    rows = pd.concat([one] * len(durations), ignore_index=True)
    kernels = rows.assign(start_ns=start, end_ns=start + np.array(durations), device=device)
    return Profile({**profile.tables, "kernels": kernels.astype(one.dtypes.to_dict())})


@examples(60)
@given(st.lists(st.integers(0, 1 << 50) | st.integers(0, 200), min_size=1, max_size=30))
def test_every_kernel_is_in_the_class_of_its_duration(durations: list[int]) -> None:
    table = kernel_durations(Timeline(kernels_of(*durations))).frame
    for low, high, count, total in table[["from_ns", "below_ns", *SUMS]].to_numpy().tolist():
        inside = [duration for duration in durations if low <= duration < high]
        assert (count, total) == (len(inside), sum(inside))
    assert table["count"].sum() == len(durations)
    assert (table["med_ns"] == np.median(durations)).all()
    assert table["p95_ns"].to_numpy() == pytest.approx(np.percentile(durations, 95))


def test_classes_are_round_even_and_touch() -> None:
    table = kernel_durations(Timeline(kernels_of(*range(1, 1300)))).frame
    assert table["below_ns"].tolist()[:-1] == table["from_ns"].tolist()[1:]
    assert table["from_ns"].tolist()[-12:] == [100, 125, 160, 200, 250, 315, 400, 500, 630, 800, 1000, 1250]
    logs = np.diff(np.log10(table["from_ns"].to_numpy(dtype=np.float64)[-22:]))
    assert ((logs > 0.07) & (logs < 0.13)).all()


def test_devices_are_apart() -> None:
    timeline = Timeline(draw("cpu   LL......\ns7    ..aaaa..\ns7:1  ..b....."))
    table = kernel_durations(timeline).frame
    assert table[["device", "figure", *SUMS]].to_numpy().tolist() == [[0, DURATION, 1, 4000], [1, DURATION, 1, 1000]]


def test_without_kernels_there_is_no_class() -> None:
    timeline = Timeline(draw("cpu  C..\ns7   .H."))
    assert kernel_durations(timeline).frame.empty
    assert launch_latencies(timeline).frame.empty


@pytest.mark.parametrize("name", CAPTURES)
def test_kernels_of_a_real_capture_add_up_to_their_table(recorded: Recorded, name: str) -> None:
    timeline = Timeline(recorded.profile(name))
    table, kernels = kernel_durations(timeline).frame, kernel_time(timeline).frame
    assert table["count"].sum() == kernels["instances"].sum()
    assert table["total_ns"].sum() == kernels["total_ns"].sum()


@pytest.mark.parametrize("name", CAPTURES)
def test_launches_of_a_real_capture_add_up_to_their_table(recorded: Recorded, name: str) -> None:
    timeline = Timeline(recorded.profile(name))
    phases = launch_phases(timeline).frame
    expected = phases[phases["figure"].isin([API, LATENCY])]
    table = launch_latencies(timeline).frame
    for figure in (API, LATENCY):
        for device in expected["device"].unique():
            actual, theirs = (
                t[(t["device"] == device) & (t["figure"] == figure)][SUMS].sum() for t in (table, expected)
            )
            assert actual.tolist() == theirs.tolist()
    assert table["count"].sum() == expected["count"].sum()


def test_latency_is_counted_where_the_stream_was_empty() -> None:
    timeline = Timeline(draw("cpu  LL.LL......\ns7   ....aaaabb.."))
    table = launch_latencies(timeline).frame
    assert table[["figure", *SUMS]].to_numpy().tolist() == [[API, 2, 4000], [LATENCY, 1, 4000]]


def test_a_launch_before_its_own_call_is_in_no_class_and_reported() -> None:
    table = launch_latencies(Timeline(draw("cpu  ...LL...L..\ns7   .aaaa....b.")))
    assert table.frame[["figure", *SUMS]].to_numpy().tolist() == [
        [API, 1, 1000],
        [API, 1, 2000],
        [LATENCY, 1, 1000],
    ]
    assert table.notes == ("1 launch began before its call did, by the clock of the GPU; not counted in any bin.",)
