from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.render.export.perfetto import perfetto_trace
from nightsight.render.tracks import Places, Slices, event_names, process_slices, stream_slices, thread_slices
from nightsight.tables import conform, empty
from tests.recorded import DATA
from tests.timeline import PROCESS, draw

SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[1], s[1] + s[2])),
    max_size=40,
)


def with_kernels(spans: list[tuple[int, int, int]]) -> Profile:
    """Make a profile of kernels: stream, start, end."""
    columns = dict.fromkeys(
        [*(f"{shape}_{axis}" for shape in ("grid", "block") for axis in "xyz"), "context", "process", "device"], 1
    )
    rows = [{"stream": s, "start_ns": b, "end_ns": e, "name": "k", "short_name": "k", **columns} for s, b, e in spans]
    return Profile({"kernels": conform("kernels", pd.DataFrame(rows)) if rows else empty("kernels")})


def with_ranges(spans: list[tuple[int, int, int]], style: str = "PushPop") -> Profile:
    """Make a profile of ranges: thread, start, end."""
    facts = {"process": PROCESS, "pid": 5, "domain": "", "style": style, "is_open": False, "name": "r"}
    rows = [{"thread": PROCESS | t, "tid": t, "start_ns": b, "end_ns": e, **facts} for t, b, e in spans]
    return Profile({"ranges": conform("ranges", pd.DataFrame(rows)) if rows else empty("ranges")})


def spans_of(slices: Slices) -> dict[int, list[tuple[int, int]]]:
    return {
        track: list(zip(slices.start[here].tolist(), slices.end[here].tolist(), strict=True))
        for track in range(len(slices.tracks))
        if (here := slices.track == track).any()
    }


def cross(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (first, last), (begin, end) = sorted([one, other])
    return first < begin < last < end


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def most_at_a_time(spans: list[tuple[int, int]]) -> int:
    return max(sum(begin <= time < end for begin, end in spans) for time in range(50))


@given(SPANS)
def test_on_a_thread_everything_is_there_once_and_nothing_crosses(spans: list[tuple[int, int, int]]) -> None:
    profile = with_ranges(spans)
    slices = thread_slices(profile, Places(profile))
    assert sorted(slices.row.tolist()) == list(range(len(spans)))
    ranges = profile.table("ranges")
    np.testing.assert_array_equal(slices.start, ranges["start_ns"].to_numpy()[slices.row])
    np.testing.assert_array_equal(slices.end, ranges["end_ns"].to_numpy()[slices.row])
    for track in spans_of(slices).values():
        assert track == sorted(track, key=lambda span: (span[0], -span[1]))
        assert not any(cross(*pair) for pair in combinations(track, 2))


@given(SPANS)
def test_what_crosses_nothing_stays_on_its_thread(spans: list[tuple[int, int, int]]) -> None:
    profile = with_ranges(spans)
    slices = thread_slices(profile, Places(profile))
    for thread in {thread for thread, _, _ in spans}:
        of_thread = [span[1:] for span in spans if span[0] == thread]
        uncrossed = sorted(span for span in of_thread if not any(cross(span, other) for other in of_thread))
        row = next(place for place, track in enumerate(slices.tracks) if track.tid == thread)
        on_row = spans_of(slices).get(row, [])
        assert all(on_row.count(span) == of_thread.count(span) for span in uncrossed)


@given(SPANS)
def test_on_a_stream_nothing_overlaps_and_no_row_is_wasted(spans: list[tuple[int, int, int]]) -> None:
    profile = with_kernels(spans)
    slices = stream_slices(profile, Places(profile))
    assert sorted(slices.row.tolist()) == list(range(len(spans)))
    for track in spans_of(slices).values():
        assert not any(overlap(*pair) for pair in combinations(track, 2))
    for stream in {stream for stream, _, _ in spans}:
        rows = [track for track in slices.tracks if f"stream {stream}" in track.name]
        assert len(rows) == max(most_at_a_time([span[1:] for span in spans if span[0] == stream]), 1)


@given(SPANS)
def test_nesting_counts_what_is_around_and_inside(spans: list[tuple[int, int, int]]) -> None:
    profile = with_ranges(spans)
    slices = thread_slices(profile, Places(profile))
    level, inside = (values.tolist() for values in slices.nesting)
    # a bracket for each: all that follows until one as high is inside
    for place, own in enumerate(level):
        same_track = [level[i] for i in range(place + 1, len(level)) if slices.track[i] == slices.track[place]]
        deeper = next((i for i, other in enumerate(same_track) if other <= own), len(same_track))
        assert inside[place] == deeper + 1
        open_ = [i for i in range(place) if i + inside[i] > place]
        assert len(open_) == own
        assert all(slices.end[i] >= slices.end[place] for i in open_)


def test_kernels_that_follow_one_another_share_a_row_after_others_overlapped() -> None:
    slices = stream_slices(
        profile := draw("""
        s7  aaa.ccdd.e
        s7  ..bb......
        """),
        Places(profile),
    )
    starts = [[start // 1000 for start, _ in spans_of(slices)[row]] for row in (0, 1)]
    assert starts == [[0, 4, 6, 9], [2]]
    assert [track.name for track in slices.tracks] == ["context 1, stream 7", "context 1, stream 7 (2)"]


def test_a_chain_of_overlapping_kernels_takes_two_rows() -> None:
    spans = [(7, 10 * i, 10 * i + 11) for i in range(1000)]
    profile = with_kernels(spans)
    assert len(stream_slices(profile, Places(profile)).tracks) == 2


def test_a_range_that_crosses_a_call_goes_beside_it() -> None:
    profile = draw("""
        nvtx  [step    ]..
        cpu   LL......LLLL
    """)
    slices = thread_slices(profile, Places(profile))
    assert [(track.tid, track.name) for track in slices.tracks] == [(7, "thread"), (1 << 23, "thread (2)")]
    assert [len(spans) for spans in spans_of(slices).values()] == [2, 1]


@pytest.mark.parametrize("style", ["PushPop", "StartEnd", "Annotation"])
def test_only_start_end_ranges_are_of_no_thread(style: str) -> None:
    profile = with_ranges([(7, 0, 10), (8, 5, 15), (8, 20, 30)], style)
    of_threads, of_process = (lay(profile, Places(profile)) for lay in (thread_slices, process_slices))
    assert (len(of_threads.row), len(of_process.row)) == ((0, 3) if style == "StartEnd" else (3, 0))
    rows = [track.name for track in (*of_threads.tracks, *of_process.tracks)]
    assert rows == (["start/end ranges", "start/end ranges (2)"] if style == "StartEnd" else ["thread", "thread"])


def threads(names: dict[int, str]) -> pd.DataFrame:
    rows = [{"thread": PROCESS | tid, "name": name} for tid, name in names.items()]
    return conform("threads", pd.DataFrame(rows))


def test_threads_have_their_own_names_but_never_the_programs() -> None:
    drawn = draw("""
        cpu:5  L
        cpu:6  L
        cpu:7  L
        cpu:8  L
    """)
    names = {5: "secret_program", 6: "secret_program", 7: "pt_autograd_0\x00", 99: "other_people"}
    profile = Profile({**drawn.tables, "threads": threads(names)})
    slices = thread_slices(profile, Places(profile))
    assert [track.name for track in slices.tracks] == ["main thread", "thread", "pt_autograd_0\ufffd", "thread"]


@pytest.mark.parametrize("name", ["train", "mini_torch"])
def test_what_reports_leave_out_is_not_needed(name: str, capture_file: Callable[[str], Path]) -> None:
    path = next(DATA.rglob(f"{name}.json.gz"), None) or capture_file(name)
    whole, lean = (read(path, details=details) for details in (True, False))
    for lay in (thread_slices, process_slices, stream_slices):
        assert lay(lean, Places(lean)).tracks == lay(whole, Places(whole)).tracks
    assert perfetto_trace(lean)[:2] == b"\x1f\x8b"


def test_processes_with_one_number_stay_apart() -> None:
    one = draw("cpu  LL").table("api_calls")
    other = one.assign(process=one["process"] + (1 << 48), thread=one["thread"] + (1 << 48))
    profile = Profile({"api_calls": pd.concat([one, other], ignore_index=True)})
    slices = thread_slices(profile, Places(profile))
    assert [(track.pid, track.tid) for track in slices.tracks] == [(5, 7), (1 << 23, 7)]


def test_processes_on_one_gpu_have_rows_of_their_own() -> None:
    drawn = draw("""
        cpu  L
        s7   .a
    """)

    def twice(table: str, **changes: Any) -> pd.DataFrame:
        frame = drawn.table(table)
        return pd.concat([frame, frame.assign(**changes)], ignore_index=True)

    other = 6 << 24
    tables = {
        "kernels": twice("kernels", process=other),
        "api_calls": twice("api_calls", process=other, thread=other | 7, pid=6),
    }
    profile = Profile(tables)
    names = [track.name for track in stream_slices(profile, Places(profile)).tracks]
    assert names == ["process 5, context 1, stream 7", "process 6, context 1, stream 7"]


def test_a_gpu_has_the_name_that_the_capture_gives_it() -> None:
    kernels = draw("s7  ab").table("kernels").assign(device=[3, 0])
    devices = conform("devices", pd.DataFrame([{"device": 3, "name": "NVIDIA\nH200", "compute_capability": "9.0"}]))
    profile = Profile({"kernels": kernels, "devices": devices})
    tracks = stream_slices(profile, Places(profile)).tracks
    assert [track.process for track in tracks] == ["GPU 0", "GPU 3 (NVIDIA H200)"]


def test_a_capture_without_events_has_no_rows() -> None:
    for profile in (Profile({}), draw("")):
        for lay in (thread_slices, process_slices, stream_slices):
            slices = lay(profile, Places(profile))
            assert slices.tracks == ()
            assert [len(values) for values in (slices.row, *slices.nesting)] == [0, 0, 0]


def test_ranges_are_named_with_their_domain_as_in_the_tables() -> None:
    ranges = with_ranges([(7, 0, 1), (7, 2, 3)]).table("ranges")
    domains = pd.Categorical(["", "io"])
    codes, names = event_names("ranges", ranges.assign(domain=domains))
    assert [names[code] for code in codes] == ["r", "io:r"]
