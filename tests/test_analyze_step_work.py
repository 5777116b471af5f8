"""What a repetition runs, on drawn timelines whose counts and times can be read off."""

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze.step_work import step_work
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Profile
from nightsight.results.steps import STEP_WORK
from tests.timeline import PROCESS, draw


def worked(picture: str, *starts: int) -> pd.DataFrame:
    """Return the work of steps that begin at these microseconds, and end with the picture."""
    drawn = draw(picture)
    end = max(int(table["end_ns"].max()) for table in drawn.tables.values() if "end_ns" in table and len(table))
    steps = {PROCESS: 1000 * np.array(starts)} if starts else {}
    window = Window(1000 * starts[0] if starts else 0, end, "drawn", "", "step #", steps)
    frame = step_work(Timeline(drawn, window)).frame
    STEP_WORK.check(frame)
    return frame.set_index(["kind", "name"])


def test_work_belongs_to_the_step_in_which_it_was_launched() -> None:
    # the kernel of the second step runs in the third
    table = worked("cpu  L...L...L...\ns7   .aa......aaaaaa\ns8   .......", 0, 4, 8)
    assert table.loc[("call", "cudaLaunchKernel"), "count"] == 1
    kernels = worked("cpu  L...L...L...\ns7   .aa......aaaabbb", 0, 4, 8)
    assert kernels.loc[("kernel", "a"), "count"] == pytest.approx(2 / 3)
    assert kernels.loc[("kernel", "b"), "count"] == pytest.approx(1 / 3)


def test_a_step_takes_the_median_and_what_is_rare_the_mean() -> None:
    table = worked("cpu  L......L......LL.....\ns7   .aa.....aa......aaaaabbb", 0, 7, 14)
    # 2, 2 and 5 microseconds
    assert table.loc[("kernel", "a"), "time_ns"] == 2000
    # 3 in one of three steps
    assert table.loc[("kernel", "b"), "time_ns"] == 1000


def test_what_was_launched_before_the_window_is_left_out() -> None:
    table = worked("cpu  L.L.L...L...\ns7   .aab.b...b..", 4, 8)
    assert ("kernel", "a") not in table.index
    assert table.loc[("kernel", "b"), "count"] == 1


def test_without_steps_it_is_the_whole_window() -> None:
    table = worked("cpu  L...L...L...\ns7   .aa..aa..aa.")
    assert list(table.loc[("kernel", "a"), ["count", "time_ns"]]) == [3, 6000]


def test_copies_are_distinguished_by_memory_and_kernels_have_a_place() -> None:
    table = worked("nvtx  [outer   ]\ncpu   .C..M..L..\ns7    ..HH..S..aa".replace("M", "C").replace("S", "M"))
    assert table.loc[("copy", "Host-to-Device (Pageable to Device)"), "time_ns"] == 2000
    assert ("copy", "memset") in table.index
    assert table.loc[("kernel", "a"), "place"] == "outer"
    assert table.loc[("range", "outer"), "count"] == 1


def test_graphs_as_a_whole_are_kernels() -> None:
    table = worked("cpu  G...G...\ns7   .GG..GG.")
    assert list(table.loc[("kernel", "[CUDA graph]"), ["count", "time_ns"]]) == [2, 4000]


def test_a_capture_of_nothing_has_no_work() -> None:
    frame = step_work(Timeline(Profile({}), Window(0, 1000, "nothing"))).frame
    STEP_WORK.check(frame)
    assert frame.empty


def test_a_step_copies_so_many_bytes_unless_a_size_is_unknown() -> None:
    drawn = draw("cpu   CC.C.C..\ns7    .HD.H.H.")
    copies = drawn.tables["memory_ops"].assign(bytes=pd.array([100, 7, 300, 200], dtype="Int64"))

    def copied(frame: pd.DataFrame) -> list[float]:
        profile, window = Profile({**drawn.tables, "memory_ops": frame}), Window(0, 8000, "drawn")
        table = step_work(Timeline(profile, window)).frame
        return table.sort_values("name")["copied_bytes"].dropna().tolist()

    assert copied(copies) == [7, 600]
    assert copied(copies.assign(bytes=pd.array([100, 7, None, 200], dtype="Int64"))) == [7]
