"""Streams: the work of each, and the part of it that overlaps work on other streams of the same GPU."""

import pandas as pd
import pytest

from nightsight.analyze.gpu_time import gpu_time
from nightsight.analyze.streams import streams
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.recorded import Recorded
from tests.timeline import draw, side_by_side


def rows(table: pd.DataFrame, *columns: str) -> list[list[object]]:
    return table[list(columns)].to_numpy().tolist()


def test_work_on_two_streams_overlaps_where_both_run() -> None:
    table = streams(
        Timeline(
            draw(
                """
                cpu   LLCL......
                s7    ..aaaa..bb
                s8    ...HHHHH..
                """
            )
        )
    ).frame
    assert rows(table, "stream", "kernels", "copies", "busy_ns", "overlap_ns") == [
        [7, 2, 0, 6000, 3000],
        [8, 0, 1, 5000, 3000],
    ]
    assert table["overlap_pct"].tolist() == [50.0, 60.0]
    assert rows(table, "main_operation", "main_operation_pct")[1] == ["[CUDA memcpy Host-to-Device]", 100.0]
    assert (table["main_operation"][0], round(table["main_operation_pct"][0], 1)) == ("a", 66.7)


def test_three_streams_share_time_only_once() -> None:
    table = streams(Timeline(draw("s7  aaaa..\ns8  aaaa..\ns9  ..aaaa"))).frame
    assert rows(table, "stream", "busy_ns", "overlap_ns") == [[7, 4000, 4000], [8, 4000, 4000], [9, 4000, 2000]]


def test_kernels_side_by_side_on_one_stream_overlap_no_other_stream() -> None:
    """Kernels of a CUDA graph can run concurrently, although all are on the stream of its launch."""
    drawn = draw("s7  aa.b..")
    longer = drawn.table("kernels").assign(end_ns=[5000, 4000])
    table = streams(Timeline(Profile({**drawn.tables, "kernels": longer}))).frame
    assert rows(table, "busy_ns", "overlap_ns") == [[5000, 0]]


def test_streams_of_other_gpus_and_processes_are_other_streams() -> None:
    one = draw("cpu  L...\ns7   .aaa")
    table = streams(Timeline(side_by_side(one, one))).frame
    assert rows(table, "device", "pid", "stream", "overlap_ns") == [[0, 5, 7, 0], [1, 6, 7, 0]]
    shared = side_by_side(one, one)
    kernels = shared.table("kernels").assign(device=0)
    table = streams(Timeline(Profile({**shared.tables, "kernels": kernels}))).frame
    assert rows(table, "device", "pid", "stream", "overlap_ns") == [[0, 5, 7, 3000], [0, 6, 7, 3000]]


def test_only_the_part_in_the_window_counts() -> None:
    drawn = draw("nvtx  ..[measure]...\ncpu   LLL.......\ns7    a.aaaaaaaaaaaa\ns8    aaaa")
    table = streams(Timeline(drawn)).frame
    assert rows(table, "stream", "kernels", "busy_ns", "busy_pct", "overlap_ns") == [
        [7, 1, 9000, 100.0, 2000],
        [8, 1, 2000, 100 * 2 / 9, 2000],
    ]


@pytest.mark.parametrize("name", ["train", "ddp_exposed", "graph", "graph_node", "unified_memory", "mini_torch"])
def test_streams_add_up_to_the_work_of_their_gpu(name: str, recorded: Recorded) -> None:
    timeline = Timeline(recorded.profile(name))
    table, gpus = streams(timeline).frame, gpu_time(timeline).frame.set_index("device")
    of_gpu = table.groupby("device")
    assert (of_gpu["kernels"].sum() == gpus["kernels"]).all()
    assert ((table["busy_ns"] - table["overlap_ns"]).groupby(table["device"]).sum() <= gpus["busy_ns"]).all()
    if name != "unified_memory":
        assert (of_gpu["copies"].sum() == gpus["copies"] + gpus["sets"]).all()
        assert (of_gpu["busy_ns"].sum() >= gpus["busy_ns"]).all()
