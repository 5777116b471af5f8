"""Copies: their rate against a peak, their sizes, and those that make the CPU wait."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.copies import copy_sizes, gpu_peaks, memory_operations, slow_copies, waiting_calls
from nightsight.analyze.ranges.callers import NOT_RECORDED, OUTSIDE
from nightsight.events.categories import is_pageable
from nightsight.events.timeline import Timeline
from nightsight.events.window import WHOLE
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.properties import examples
from tests.recorded import Recorded, whole
from tests.timeline import draw

CaptureFile = Callable[[str], Path]


def changed(profile: Profile, table: str, **columns: Any) -> Profile:
    """Give columns of a table other values."""
    frame = profile.table(table)
    return Profile({**profile.tables, table: conform(table, frame.assign(**columns))})


def with_gpus(profile: Profile, *names: str, bandwidth: int | None = None) -> Timeline:
    facts: dict[str, Any] = {"device": range(len(names)), "name": names, "compute_capability": ""}
    facts |= dict.fromkeys(("multiprocessors", "memory_bytes", "l2_bytes", "clock_hz"))
    devices = pd.DataFrame({**facts, "memory_bandwidth_bytes_per_s": bandwidth})
    return Timeline(Profile({**profile.tables, "devices": conform("devices", devices)}))


def peak_pct(timeline: Timeline) -> float:
    (share,) = memory_operations(timeline).frame["peak_pct"]
    return float(share)


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "changes", "peak"),
    [
        ("H", {}, 64e9),
        ("D", {}, 64e9),
        ("P", {}, 450e9),
        ("M", {}, 4800e9),
        ("P", {"operation": "Device-to-Device"}, 2400e9),
    ],
)
def test_a_rate_is_compared_with_what_the_operation_crosses(letter: str, changes: dict[str, str], peak: float) -> None:
    profile = changed(draw(f"cpu  CC..\ns7   ..{letter}{letter}"), "memory_ops", **changes)
    assert peak_pct(with_gpus(profile, "NVIDIA H200")) == pytest.approx(100 * (1024 / 2e-6) / peak)


def test_what_the_driver_says_of_memory_goes_before_what_is_published() -> None:
    profile = draw("cpu  C...\ns7   ..MM")
    reported, published = (peak_pct(with_gpus(profile, "NVIDIA H200", bandwidth=b)) for b in (2_400_000_000_000, None))
    assert reported == pytest.approx(2 * published)


@pytest.mark.parametrize(
    ("letter", "changes"),
    [("H", {"target_kind": "Managed"}), ("M", {"target_kind": "Pinned"}), ("H", {"operation": "Host-to-Host"})],
)
def test_where_it_is_not_certain_what_was_crossed_there_is_no_share(letter: str, changes: dict[str, str]) -> None:
    profile = changed(draw(f"cpu  C...\ns7   ..{letter}{letter}"), "memory_ops", **changes)
    assert np.isnan(peak_pct(with_gpus(profile, "NVIDIA H200")))


def test_one_gpu_without_a_known_peak_leaves_a_mixed_row_without_a_share() -> None:
    profile = draw("cpu   C.C...\ns7    ..HH..\ns7:1  ....HH")
    assert np.isnan(peak_pct(with_gpus(profile, "NVIDIA H200", "NVIDIA GeForce")))
    assert not np.isnan(peak_pct(with_gpus(profile, "NVIDIA H200", "Tesla T4")))


def test_gpus_of_different_models_each_count_with_their_own_peak() -> None:
    profile = draw("cpu   C.C...\ns7    ..HH..\ns7:1  ....HH")
    at_peak = 1024 / 64e9 + 1024 / 16e9
    assert peak_pct(with_gpus(profile, "NVIDIA H200", "Tesla T4")) == pytest.approx(100 * at_peak / 4e-6)


def test_without_a_devices_table_rates_have_no_share() -> None:
    assert np.isnan(peak_pct(Timeline(draw("cpu  C...\ns7   ..HH"))))


def test_peaks_are_listed_with_their_source_and_unknown_ones_left_empty() -> None:
    table = gpu_peaks(with_gpus(draw("cpu  L"), "NVIDIA B200", "NVIDIA GeForce")).frame
    assert table["memory_bytes_per_s"].tolist()[0] == 8e12
    assert table["nvlink_bytes_per_s"].tolist()[0] == 900e9
    assert table["host_link_bytes_per_s"].isna().all()
    assert table["source"].str.contains("datasheet").tolist() == [True, False]
    assert table.iloc[1].isna()[["memory_bytes_per_s", "pcie_generation", "nvlink_bytes_per_s", "l2_bytes"]].all()


def test_copies_inside_a_real_gpu_are_below_its_peak(recorded: Recorded) -> None:
    table = memory_operations(Timeline(whole(recorded.profile("ddp2")))).frame
    (share,) = table[table["operation"] == "Device-to-Device"]["peak_pct"]
    rate = 11_494_948_896 / 6_971_908e-9
    assert share == pytest.approx(100 * 2 * rate / 4_814_304_000_000)
    assert (table["peak_pct"] < 100).all()


# -- sizes ------------------------------------------------------------------------------------------------------------


@examples(40)
@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=20))
def test_every_copy_is_in_the_class_of_its_size(sizes: list[int]) -> None:
    profile = draw("cpu  C..\ns7   .H.")
    one = profile.table("memory_ops")
    copies = pd.concat([one] * len(sizes), ignore_index=True).assign(bytes=sizes)
    table = copy_sizes(Timeline(Profile({**profile.tables, "memory_ops": copies}))).frame
    columns = ["from_bytes", "below_bytes", "count", "total_bytes"]
    for least, limit, count, total in table[columns].to_numpy().tolist():
        inside = [size for size in sizes if least <= size < limit]
        assert (count, total) == (len(inside), sum(inside))
    assert table["count"].sum() == len(sizes)


def test_sizes_are_by_direction_and_the_host_side_of_the_copy_and_leave_out_sets() -> None:
    table = copy_sizes(Timeline(draw("cpu  CCCC....\ns7   ....HDPM"))).frame
    assert table[["operation", "host_kind", "from_bytes"]].to_numpy().tolist() == [
        ["Device-to-Host", "Pageable", 1024],
        ["Host-to-Device", "Pageable", 1024],
        ["Peer-to-Peer", "", 1024],
    ]


def test_sizes_of_a_real_capture_add_up_to_its_copies(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    operations = profile.table("memory_ops")
    copies = operations[operations["operation"] != "memset"]
    table = copy_sizes(Timeline(whole(profile))).frame
    assert table["count"].sum() == len(copies)
    assert table["total_bytes"].sum() == copies["bytes"].sum()
    assert table["total_ns"].sum() == (copies["end_ns"] - copies["start_ns"]).sum()


# -- slow ones --------------------------------------------------------------------------------------------------------


def test_pageable_and_blocking_copies_are_listed_with_the_range_they_were_made_in() -> None:
    profile = draw(
        """
        nvtx  [step        ]
        cpu   ..CCC..BB...CC
        s7    ...HH...DD...P
        """
    )
    pinned = profile.table("memory_ops").assign(
        source_kind=["Pageable", "Device", "Device"], target_kind=["Device", "Pinned", "Device"]
    )
    kinds = dict(pinned[["source_kind", "target_kind"]])
    table = slow_copies(Timeline(replace(changed(profile, "memory_ops", **kinds), window=WHOLE))).frame
    assert table.to_numpy().tolist() == [
        ["step", "cudaMemcpyAsync", "Host-to-Device", "Pageable", 0, 1, 1024, 2000, 3000, 2000, 5],
        ["step", "cudaMemcpy", "Device-to-Host", "Pinned", 0, 1, 1024, 2000, 2000, 3000, 5],
    ]


def test_a_blocking_call_that_copies_within_or_between_gpus_makes_nobody_wait() -> None:
    timeline = Timeline(draw("cpu  BB...\ns7   ..PPP"))
    assert slow_copies(timeline).frame.empty
    assert waiting_calls(timeline).tolist() == []


def test_a_call_that_copies_in_two_pieces_waits_once() -> None:
    profile = draw("cpu  CCCC..\ns7   .HHHH.")
    one = profile.table("memory_ops")
    two = Timeline(Profile({**profile.tables, "memory_ops": pd.concat([one, one], ignore_index=True)}))
    table = slow_copies(two).frame
    assert table[["count", "total_bytes", "copy_ns", "cpu_ns"]].to_numpy().tolist() == [[2, 2048, 8000, 4000]]


def test_pageable_copies_whose_call_is_lost_are_kept_and_reported() -> None:
    table = slow_copies(Timeline(draw("cpu  ....\ns7   .HH.")))
    assert table.frame["pid"].isna().all()
    assert table.frame.drop(columns="pid").to_numpy().tolist() == [
        [OUTSIDE, NOT_RECORDED, "Host-to-Device", "Pageable", 0, 1, 1024, 2000, 0, 2000],
    ]
    assert table.notes == ("1 of 1 such operations have no recorded API call; their CPU time is not counted.",)


@pytest.mark.parametrize(
    ("picture", "exposed"),
    [
        # from the call, which comes before the window's first operation, and without what a kernel hides
        ("cpu  LCCC....\ns7   ....HHHH\ns8   .aa..a..", [4]),
        # the second has what the first left
        ("cpu  LCC.CC....\ns7   ...HH.HHH.\ns8   a.........", [8]),
        # of another device, kernels hide nothing
        ("cpu    CC.....\ns7     ..HHH..\ns8:1  ..aaaaa", [3]),
    ],
)
def test_a_copy_is_exposed_while_its_device_runs_no_kernel(picture: str, exposed: list[int]) -> None:
    table = slow_copies(Timeline(draw(picture))).frame
    assert (table["exposed_ns"] / 1000).tolist() == exposed


@pytest.mark.parametrize(("kind", "listed"), [("Pinned", 1), ("Managed", 1), ("Device", 0)])
def test_a_blocking_set_waits_where_the_cpu_uses_the_memory(kind: str, listed: int) -> None:
    profile = changed(draw("cpu  BBB\ns7   .M."), "memory_ops", target_kind=kind)
    timeline = Timeline(changed(profile, "api_calls", name="cudaMemset_v3020"))
    assert (len(slow_copies(timeline).frame), len(waiting_calls(timeline))) == (listed, listed)


def test_only_copies_that_return_when_done_are_waited_for() -> None:
    # to the device, pageable memory is read before the call returns; the copy itself may come later
    timeline = Timeline(draw("cpu  CC.CC.BB\ns7   ..H.D..H"))
    assert waiting_calls(timeline).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["train", "ddp2", "gelu", "graph"])
def test_no_pageable_byte_of_a_real_capture_is_missing(recorded: Recorded, name: str) -> None:
    profile = recorded.profile(name)
    operations = profile.table("memory_ops")
    pageable = operations[is_pageable(operations)]
    table = slow_copies(Timeline(whole(profile))).frame
    assert (table["count"].sum(), table["total_bytes"].sum()) == (len(pageable), pageable["bytes"].sum())
    assert table["exposed_ns"].between(0, Timeline(profile).window.length_ns).all()


def test_the_input_copies_of_the_training_loop_are_found_in_their_range(recorded: Recorded) -> None:
    table = slow_copies(Timeline(recorded.profile("train"))).frame.set_index("path")
    loading = table.loc["iteration # / io:h2d"]
    assert (loading["name"], loading["count"], loading["total_bytes"]) == ("cudaMemcpyAsync", 19, 19 * 4_194_304)
