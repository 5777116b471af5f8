"""What each GPU did at every instant: the same as *Where the time went*, exactly or in bins."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import activities
from nightsight.analyze.split import device_splits
from nightsight.events.categories import Activity
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.render.timeline.activity import CATEGORIES, account, by_piece
from nightsight.render.timeline.payload import MOST_BYTES
from nightsight.render.timeline.sums import MOST_BINS
from nightsight.render.tracks import Places
from nightsight.results.categories import BUSY, IDLE
from nightsight.tables import conform
from tests.recorded import Recorded
from tests.test_render_timeline_detail import busy_profile
from tests.timeline import PROCESS, draw
from tests.timeline_payload import Decoded, Event, decode, timeline_payload

CAPTURES = ("mlp", "train", "gelu", "graph", "graph_node", "unified_memory", "ddp2", "everything")


def drawn(profile: Profile, most_bytes: int = MOST_BYTES) -> Decoded:
    return decode(timeline_payload(profile, activities=lambda: activities(profile), most_bytes=most_bytes))


def in_window(profile: Profile, decoded: Decoded) -> dict[str, Counter[str]]:
    """Return by group the time of each category in the window, from the finest account."""
    return {
        decoded.header["groups"][group]["label"]: accounts[-1].during(*decoded.header["window"])
        for group, accounts in decoded.activities.items()
    }


def expected(profile: Profile) -> dict[str, Counter[str]]:
    timeline, places = Timeline(profile), Places(profile)
    return {
        places.gpu(device)[1]: +Counter({part.category: part.time_ns for part in split.parts})
        for device, split in device_splits(timeline).items()
    }


@pytest.mark.parametrize("name", CAPTURES)
def test_added_up_in_the_window_it_is_where_the_time_went(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    decoded = drawn(profile)
    assert [header["width_ns"] for header in decoded.header["activity"]] == [0]
    sums = in_window(profile, decoded)
    assert {group: times for group, times in sums.items() if group in expected(profile)} == expected(profile)


@pytest.mark.parametrize("name", CAPTURES)
def test_it_covers_the_capture_without_a_gap(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    decoded = drawn(profile)
    for accounts in decoded.activities.values():
        (pieces,) = (one.pieces for one in accounts)
        assert pieces[0][0] >= 0
        assert all(one[1] == other[0] and one[2] != other[2] for one, other in pairwise(pieces))
        assert pieces[-1][1] <= decoded.header["span_ns"]


def test_a_drawn_timeline_has_the_causes_of_its_gaps() -> None:
    profile = draw("cpu  L....SSSS.L..\ns7   .aaa........b")
    (accounts,) = drawn(profile).activities.values()
    begin = int(profile.table("api_calls")["start_ns"].min())
    assert begin == 0
    assert [(start // 1000, end // 1000, what) for start, end, what in accounts[0].pieces] == [
        (0, 1, "launch"),
        (1, 4, "compute"),
        (4, 5, "host code"),
        (5, 9, "synchronizing call"),
        (9, 10, "host code"),
        (10, 12, "launch"),
        (12, 13, "compute"),
    ]


def test_what_does_not_fit_is_in_bins_and_exact_where_the_events_are() -> None:
    profile = busy_profile(60_000)
    decoded = drawn(profile, most_bytes=150_000)
    coarse, fine = decoded.header["activity"]
    assert coarse["width_ns"] > 0 == fine["width_ns"]
    exact = decoded.header["layers"][1]
    assert exact["from_ns"] <= fine["from_ns"] < fine["to_ns"] <= exact["to_ns"]
    (accounts,) = decoded.activities.values()
    begin, end = (accounts[0].begin + number * accounts[0].width for number in (0, MOST_BINS))
    (edge, category) = activities(profile)[0]
    whole: Counter[str] = Counter()
    for one, time in zip(category.tolist(), np.diff(edge).tolist(), strict=True):
        whole[CATEGORIES[one]] += time
    assert accounts[0].during(begin, end) == whole


@st.composite
def accounted(draw_: st.DrawFn) -> Activity:
    lengths = draw_(st.lists(st.integers(1, 10**7), min_size=1, max_size=60))
    steps = draw_(st.lists(st.integers(1, len(CATEGORIES) - 1), min_size=len(lengths), max_size=len(lengths)))
    edge = np.cumsum([draw_(st.integers(0, 10**6)), *lengths])
    return Activity(edge, (np.cumsum(steps) % len(CATEGORIES)).astype(np.int8))


@given(accounted(), st.integers(0, 10**8), st.integers(10, 4000))
def test_bins_lose_no_time(one: Activity, origin: int, room: int) -> None:
    binned = account([one], origin_ns=origin, room=float(room))
    if binned is None:
        assert room < 1000
        return
    assert binned.size <= room
    if binned.width_ns:
        assert (origin - binned.begin_ns) % binned.width_ns == 0
        assert binned.begin_ns <= one.edge[0]
        assert binned.end_ns >= one.edge[-1]


@given(accounted(), st.data())
def test_a_part_is_cut_at_its_ends(one: Activity, data: st.DataObject) -> None:
    low, high = int(one.edge[0]), int(one.edge[-1])
    begin = data.draw(st.integers(low, high - 1))
    end = data.draw(st.integers(begin + 1, high))
    part = by_piece([one], (begin, end), 1e6)
    assert part is not None
    assert (part.begin_ns, part.end_ns, part.width_ns) == (begin, end, 0)
    assert by_piece([one], (begin - high, end), 1e6) == by_piece([one], (low, end), 1e6)
    assert by_piece([one], (high, high + 9), 1e6) is None
    assert part.counts[0] == len([at for at in one.edge.tolist() if begin < at < end]) + 1


# the events of rows


def of_kind(decoded: Decoded, kind: str) -> list[Event]:
    rows = zip(decoded.header["rows"], decoded.layers[0], strict=True)
    return [event for row, events in rows if row["kind"] == kind for event in events]


def categories(decoded: Decoded, kind: str) -> dict[str, str]:
    """Return the category of each name in rows of a kind; "" for none."""
    categories_by_row = {}
    for name, _, category in decoded.header["labels"]:
        categories_by_row[decoded.header["names"][name]] = (
            decoded.header["categories"][category][0] if category >= 0 else ""
        )
    names = {event.name for event in of_kind(decoded, kind)}
    return {name: categories_by_row[name] for name in names}


def test_events_have_the_category_of_the_split(recorded: Recorded) -> None:
    decoded = drawn(recorded.profile("train"))
    calls = categories(decoded, "api")
    assert calls["cudaLaunchKernel"] == "launch"
    assert calls["cudaStreamSynchronize"] == "synchronizing call"
    assert calls["cudaMalloc"] == "allocation and free"
    assert calls["cudaStreamIsCapturing"] == ""
    assert set(categories(decoded, "kernel").values()) == {"compute", "copies and sets"}
    assert set(categories(decoded, "range").values()) == {""}
    assert [name for name, _, is_busy in decoded.header["categories"] if is_busy] == list(BUSY)
    assert [name for name, _, is_busy in decoded.header["categories"] if not is_busy] == list(IDLE)


def test_a_kernel_and_a_range_of_one_name_keep_their_colors() -> None:
    profile = draw("nvtx  [a   ]\ncpu   L.....\ns7    ..aa")
    decoded = drawn(profile)
    assert sorted(label[2] for label in decoded.header["labels"] if decoded.header["names"][label[0]] == "a") == [-1, 0]


def test_collectives_have_a_color_of_their_own(recorded: Recorded) -> None:
    names = categories(drawn(recorded.profile("ddp2")), "kernel")
    assert {category for name, category in names.items() if "nccl" in name.lower()} == {"communication"}


# calls of the operating system, and page faults


def with_os_calls(profile: Profile, spans: list[tuple[int, int, int]]) -> Profile:
    """Add calls of the operating system: thread, start and end in ns."""
    thread, start, end = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    frame = pd.DataFrame({"start_ns": start, "end_ns": end, "process": PROCESS, "thread": thread, "pid": 1, "tid": 1})
    calls = conform("os_calls", frame.assign(name=pd.Categorical(["poll"] * len(frame))))
    return Profile({**profile.tables, "os_calls": calls})


def os_rows(decoded: Decoded) -> list[tuple[int, int]]:
    return [(event.start, event.end) for event in of_kind(decoded, "os")]


def test_calls_of_the_system_are_drawn_on_threads_that_do_something() -> None:
    profile = draw("cpu  L.........L\ns7   .aa.........b")
    thread = int(profile.table("api_calls")["thread"].iloc[0])
    idle = thread + 1
    decoded = drawn(with_os_calls(profile, [(thread, 2_000, 8_000), (idle, 0, 10_000), (thread, -5_000, 1_000)]))
    assert os_rows(decoded) == [(2_000, 8_000)]
    assert any("only those on threads with CUDA calls" in sentence for sentence in decoded.header["thinned"])


def test_without_anything_else_all_calls_of_the_system_are_drawn() -> None:
    decoded = drawn(with_os_calls(Profile({}), [(5, 0, 10), (6, 20, 40)]))
    assert os_rows(decoded) == [(0, 10), (20, 40)]
    assert decoded.header["thinned"] == []


def test_of_very_many_calls_of_the_system_short_ones_are_left_out() -> None:
    profile = draw(f"cpu  L{'.' * 500}L\ns7   .a{'.' * 500}b")
    thread = int(profile.table("api_calls")["thread"].iloc[0])
    short = [(thread, 1_000 + 20 * at, 1_010 + 20 * at) for at in range(21_000)]
    decoded = drawn(with_os_calls(profile, [*short, (thread, 450_000, 452_000)]))
    assert os_rows(decoded) == [(450_000, 452_000)]
    assert "at least 1 µs" in decoded.header["thinned"][0]


def test_waits_in_the_system_push_no_other_row_out(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    rows = decode(timeline_payload(profile, most_bytes=20_000)).header["rows"]
    assert {"kernel", "api"} <= {row["kind"] for row in rows}


def test_page_faults_have_rows(recorded: Recorded) -> None:
    profile = recorded.profile("unified_memory")
    decoded = drawn(profile)
    kinds = Counter(row["kind"] for row in decoded.header["rows"])
    assert kinds["fault"] >= 1
    faults = of_kind(decoded, "fault")
    assert len(faults) == len(profile.table("gpu_page_faults"))
    assert faults[0].details.endswith(" faults")
    assert len(decoded.row("CPU page faults")) == len(profile.table("cpu_page_faults"))


def test_without_gpus_nothing_is_reported_about_them() -> None:
    decoded = drawn(draw("nvtx  [a   ]"))
    assert (decoded.header["activity"], decoded.header["activity_groups"], decoded.activities) == ([], [], {})
    assert decoded.header["begin_ns"] == "0"
