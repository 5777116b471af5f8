"""Kernel time by range: repetitions count together, and the backward pass belongs to the range that is open then."""

import pytest

from nightsight.analyze.ranges.kernels import range_kernels
from nightsight.events.timeline import Timeline
from nightsight.results.ranges import RANGE_KERNELS
from tests.recorded import Recorded, whole
from tests.timeline import draw


def test_kernels_count_for_the_innermost_range_that_launched_them() -> None:
    drawn = draw(
        """
        nvtx   ..[step_0.........][step_1.........]
        nvtx   ...[fwd.]..........[fwd.]...........
        cpu    L...L.....L.........L.....L.........
        s7     .c...aa....bbb.......aaa...b........
        """
    )
    table = range_kernels(Timeline(drawn)).frame
    columns = ["path", "name", "instances", "total_ns"]
    # `c` is launched before the first step, where the window begins
    assert table[columns].to_numpy().tolist() == [["step_# / fwd", "a", 2, 5_000], ["step_#", "b", 2, 4_000]]
    RANGE_KERNELS.check(table)
    table = range_kernels(Timeline(whole(drawn))).frame
    assert table[columns].to_numpy().tolist()[2:] == [["(no range)", "c", 1, 1_000]]


def test_without_ranges_there_are_no_rows() -> None:
    assert not len(range_kernels(Timeline(draw("cpu  L...\ns7   .aa."))).frame)


def test_the_rows_add_up_to_kernel_time(recorded: Recorded) -> None:
    report = recorded.report("train")
    by_range = report.rows(RANGE_KERNELS)
    kernels = next(result.rows for result in report.results if result.name == "cuda_gpu_kern_sum")
    assert by_range["total_ns"].sum() == kernels["total_ns"].sum()
    assert by_range["time_pct"].sum() == pytest.approx(100)
    assert by_range.groupby("name")["instances"].sum().to_dict() == dict(
        zip(kernels["name"], kernels["instances"], strict=True)
    )
