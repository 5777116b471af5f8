"""Marks in every layer of a timeline: none is lost where they are rounded, cut out or merged, or rows are few."""

import numpy as np
import pandas as pd
import pytest

from nightsight.model.report import Profile
from nightsight.render.timeline.layers import merged, stretch, whole
from nightsight.render.timeline.rows import lay_events
from nightsight.tables import conform
from tests.test_render_timeline import assert_rows_are_sound
from tests.test_render_timeline_detail import busy_profile, events_of
from tests.test_render_tracks import with_kernels
from tests.timeline import PROCESS
from tests.timeline_payload import decode, decode_layer, timeline_payload

ROW = "Thread 7, NVTX marks"


def with_marks(profile: Profile, *, count: int, names: int = 3, threads: int = 1) -> Profile:
    """Add so many marks, evenly spread over the time of the kernels."""
    kernels = profile.table("kernels")
    time = np.linspace(kernels["start_ns"].min(), kernels["end_ns"].max(), count).astype(np.int64)
    tid = 7 + np.arange(count) % threads
    facts = {"process": PROCESS, "thread": PROCESS | tid, "pid": 5, "tid": tid, "domain": "", "category": ""}
    name = [f"mark {number % names}" for number in range(count)]
    marks = pd.DataFrame({"start_ns": time, "end_ns": time, "name": name, **facts})
    return Profile({**profile.tables, "marks": conform("marks", marks)})


PROFILE = with_marks(busy_profile(4000), count=700)
EVENTS = events_of(PROFILE)
SPAN = int(EVENTS.end.max())
(PLACE,) = (place for place, row in enumerate(EVENTS.rows) if row.kind == "mark")
EXACT = decode_layer(EVENTS, whole(EVENTS, SPAN, quantum_ns=1))[PLACE]


@pytest.mark.parametrize("quantum", [32, 4000])
def test_rounded_marks_stay_in_order_and_have_no_length(quantum: int) -> None:
    drawn = decode_layer(EVENTS, whole(EVENTS, SPAN, quantum_ns=quantum))[PLACE]
    assert [event.name for event in drawn] == [event.name for event in EXACT]
    for one, other in zip(drawn, EXACT, strict=True):
        assert one.start == one.end
        assert abs(one.start - other.start) <= quantum / 2


def test_a_stretch_has_the_marks_from_its_begin_up_to_its_end() -> None:
    begin, end = EXACT[10].start, EXACT[20].start
    drawn = decode_layer(EVENTS, stretch(EVENTS, begin, end))[PLACE]
    assert [event[:3] for event in drawn] == [event[:3] for event in EXACT[10:20]]


@pytest.mark.parametrize("stretch_ns", [50, 32_000, 1_000_000, 1 << 50])
def test_merged_marks_are_counted_where_they_begin(stretch_ns: int) -> None:
    layer = merged(EVENTS, SPAN, merge_ns=stretch_ns)
    blocks = decode_layer(EVENTS, layer)[PLACE]
    at = 0
    for block in blocks:
        some = EXACT[at : at + block.stands_for]
        at += block.stands_for
        assert block.start == block.end
        assert abs(block.start - some[0].start) <= layer.quantum_ns / 2
        assert block.name == some[0].name
        assert len({event.start // stretch_ns for event in some}) == 1
    assert at == 700


@pytest.mark.parametrize("most_bytes", [12_000, 30_000])
def test_no_mark_is_lost_in_a_small_budget(most_bytes: int) -> None:
    payload = timeline_payload(PROFILE, most_bytes=most_bytes)
    decoded = decode(payload)
    assert payload is not None
    assert len(payload) <= most_bytes
    assert decoded.header["thinned"]
    assert sum(event.stands_for for event in decoded.row(ROW)) == 700
    assert_rows_are_sound(decoded)


def test_marks_are_drawn_with_the_thread_that_is_busy() -> None:
    profile = with_marks(busy_profile(400), count=40, threads=4)
    labels = [row.label for row in lay_events(profile, most_rows=6).rows]
    assert ROW in labels
    assert "Thread 7, CUDA API" in labels
    assert sum(label.endswith("marks") for label in labels) < 4


def test_ten_thousand_names_of_marks_leave_room_for_the_rest() -> None:
    profile = with_marks(with_kernels([(7, at * 100, at * 100 + 50) for at in range(500)]), count=10_000, names=10_000)
    payload = timeline_payload(profile, most_bytes=30_000)
    decoded = decode(payload)
    assert payload is not None
    assert len(payload) <= 30_000
    assert sum(event.stands_for for event in decoded.row(ROW)) == 10_000
    assert any("names are shown" in sentence for sentence in decoded.header["thinned"])
