from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nightsight.model.report import Profile
from nightsight.render.timeline.labels import OTHERS
from nightsight.render.timeline.layers import RowSample, _longest, count_inside, merged, stretch, whole
from nightsight.render.timeline.rows import TimelineEvents, lay_events
from nightsight.tables import conform
from tests.test_render_timeline import assert_rows_are_sound, launched
from tests.test_render_tracks import with_kernels, with_ranges
from tests.timeline import PROCESS
from tests.timeline_payload import Event, decode, decode_layer, timeline_payload

_SHAPE = dict.fromkeys([f"{shape}_{axis}" for shape in ("grid", "block") for axis in "xyz"], 1)


def busy_profile(kernels: int, *, streams: int = 2, steps: int = 50, names: int = 30, seed: int = 0) -> Profile:
    """Make a program of uneven kernels on some streams, each launched by a call, in steps of one length."""
    random = np.random.default_rng(seed)
    length = random.integers(200, 9000, kernels)
    gap = random.integers(1, 3000, kernels)
    end = np.cumsum(length + gap) + 100_000
    # before the kernel, and apart from the next call
    call_start = end - length - gap - 80_000
    correlation = np.arange(kernels) + 1
    on_gpu = {"device": 0, "context": 1, "process": PROCESS, "correlation": correlation, **_SHAPE, "registers": 8}
    name = random.choice([f"kernel_{number}<float, {number}>" for number in range(names)], kernels)
    launches = {"start_ns": end - length, "end_ns": end, "stream": random.integers(0, streams, kernels), "name": name}
    thread = {"process": PROCESS, "thread": PROCESS | 7, "pid": 5, "tid": 7}
    calls = {"start_ns": call_start, "end_ns": call_start + 200, "name": "cudaLaunchKernel", "layer": "runtime"}
    edges = np.linspace(call_start[0], call_start[-1] + 200, steps + 1).astype(np.int64)
    ranges = {"start_ns": edges[:-1], "end_ns": edges[1:], "name": [f"step {step}" for step in range(steps)]}
    range_facts = {**thread, "domain": "", "style": "PushPop", "is_open": False}
    tables = {
        "kernels": pd.DataFrame({**launches, **on_gpu, "short_name": name}),
        "api_calls": pd.DataFrame({**calls, **thread, "correlation": correlation}),
        "ranges": pd.DataFrame({**ranges, **range_facts}),
    }
    return Profile({name: conform(name, frame) for name, frame in tables.items()})


def events_of(profile: Profile) -> TimelineEvents:
    """The events, times from the first one."""
    events = lay_events(profile)
    begin = events.start.min()
    return replace(events, start=events.start - begin, end=events.end - begin)


def exact_rows(events: TimelineEvents) -> list[list[Event]]:
    return decode_layer(events, whole(events, int(events.end.max()), quantum_ns=1))


PROFILE = busy_profile(4000)


@pytest.mark.parametrize("quantum", [1, 32, 100, 250, 1000, 4000])
def test_a_coarse_layer_has_every_event_within_half_a_quantum(quantum: int) -> None:
    events = events_of(PROFILE)
    drawn = decode_layer(events, whole(events, int(events.end.max()), quantum_ns=quantum))
    for exactly, roughly in zip(exact_rows(events), drawn, strict=True):
        assert [event.name for event in exactly] == [event.name for event in roughly]
        assert [event.launch for event in exactly] == [event.launch for event in roughly]
        for one, other in zip(exactly, roughly, strict=True):
            assert max(abs(one.start - other.start), abs(one.end - other.end)) <= quantum / 2
        busy, drawn_busy = (sum(event.end - event.start for event in row) for row in (exactly, roughly))
        assert abs(busy - drawn_busy) <= quantum * len(exactly) ** 0.5 * 3 + quantum


@pytest.mark.parametrize("stretch_ns", [50, 4000, 32_000, 1_000_000, 1 << 50])
def test_blocks_keep_the_sums_and_the_counts_of_their_rows(stretch_ns: int) -> None:
    events = events_of(PROFILE)
    layer = merged(events, int(events.end.max()), merge_ns=stretch_ns)
    for exactly, blocks in zip(exact_rows(events), decode_layer(events, layer), strict=True):
        assert sum(block.stands_for for block in blocks) == len(exactly)
        at = 0
        for block in blocks:
            some = exactly[at : at + block.stands_for]
            at += block.stands_for
            assert abs(block.start - some[0].start) <= layer.quantum_ns / 2
            busy = sum(event.end - event.start for event in some)
            assert abs(block.end - block.start - busy) <= layer.quantum_ns
            assert block.name == max(some, key=lambda event: event.end - event.start).name
            if block.stands_for > 1:
                assert all(event.end - event.start < stretch_ns for event in some)
                assert len({event.start // stretch_ns for event in some}) == 1
        assert len(blocks) < len(exactly) or stretch_ns <= 4000 or len(exactly) < 100


def test_a_stretch_has_exactly_what_has_any_time_in_it() -> None:
    events = events_of(PROFILE)
    begin, end = 3_000_000, 3_400_000
    drawn = decode_layer(events, stretch(events, begin, end))
    for exactly, some in zip(exact_rows(events), drawn, strict=True):
        expected = [event for event in exactly if event.start < end and (event.end > begin or event.start >= begin)]
        assert [event[:4] for event in some] == [event[:4] for event in expected]
    assert count_inside(events, begin, end) == sum(map(len, drawn))
    rows = exact_rows(events)
    all_calls = {event.start: rows[event.launch[0]][event.launch[1]] for event in rows[0] if event.launch}
    is_found = []
    for event in drawn[0]:
        call = all_calls[event.start]
        is_found.append(event.launch is not None)
        assert is_found[-1] == (call.end > begin and call.start < end)
        if event.launch:
            assert drawn[event.launch[0]][event.launch[1]].start == call.start
    assert set(is_found) == {True, False}


@pytest.mark.parametrize("most_bytes", [2_000_000, 560_000, 200_000, 60_000, 15_000])
def test_the_budget_is_kept_and_used(most_bytes: int) -> None:
    payload = timeline_payload(busy_profile(100_000, streams=9), most_bytes=most_bytes)
    assert payload is not None
    assert len(payload) <= most_bytes
    decoded = decode(payload)
    assert_rows_are_sound(decoded)
    first, *further = decoded.header["layers"]
    assert (first["quantum_ns"] == 1) == (most_bytes == 2_000_000) == (not decoded.header["thinned"])
    assert first["is_merged"] == (most_bytes <= 200_000)
    if most_bytes < 2_000_000:
        assert len(further) == 1
        assert len(payload) > 0.5 * most_bytes


@pytest.mark.parametrize("most_bytes", range(1200, 20_000, 900))
def test_a_small_budget_is_kept_or_refused(most_bytes: int) -> None:
    payload = timeline_payload(PROFILE, most_bytes=most_bytes)
    assert (payload is None) == (most_bytes < 3000)
    assert payload is None or most_bytes / 3 < len(payload) <= most_bytes


def test_the_exact_stretch_is_whole_steps_with_what_they_launched() -> None:
    profile = busy_profile(60_000, steps=600)
    decoded = decode(timeline_payload(profile, most_bytes=300_000))
    _, exact = decoded.header["layers"]
    begin = min(int(frame["start_ns"].min()) for frame in profile.tables.values())
    steps = profile.table("ranges")
    starts, ends = (set((steps[name] - begin).tolist()) for name in ("start_ns", "end_ns"))
    assert exact["from_ns"] in starts
    inside = [event for event in decoded.row("Thread 7, NVTX", 1) if event.end <= exact["to_ns"]]
    assert 1 <= len(inside) <= 8
    assert exact["from_ns"] == inside[0].start
    assert any(end <= exact["to_ns"] for end in ends)
    started = [event for event, call in launched(decoded, 1) if exact["from_ns"] <= call.start < inside[0].end]
    assert started
    assert all(event.end <= exact["to_ns"] for event in started)
    sentence, _ = decoded.header["thinned"]
    begin_ms, end_ms = (f"{(exact[edge] - decoded.header['window'][0]) / 1e6:.1f} ms" for edge in ("from_ns", "to_ns"))
    assert sentence.endswith(f"; exact from {begin_ms} to {end_ms}.")


def test_without_steps_the_middle_is_exact() -> None:
    profile = busy_profile(60_000)
    kernels = Profile({"kernels": profile.table("kernels")})
    header = decode(timeline_payload(kernels, most_bytes=150_000)).header
    _, exact = header["layers"]
    assert abs((exact["from_ns"] + exact["to_ns"]) / 2 - sum(header["window"]) / 2) <= 1
    assert 0 < exact["to_ns"] - exact["from_ns"] < header["span_ns"]


@pytest.mark.parametrize("streams", [2_000, 10_000])
def test_of_many_streams_the_busiest_are_drawn(streams: int) -> None:
    spans = [(stream, 100 * stream, 100 * stream + 10 + stream % 7) for stream in range(streams)]
    spans += [(stream, start + 50, end + 50) for stream, start, end in spans]
    spans += [(number, 0, 10**6) for number in (55, 1234)]
    decoded = decode(timeline_payload(with_kernels(spans)))
    labels = [row["label"] for row in decoded.header["rows"]]
    assert len(labels) == 150
    assert {"Stream 55", "Stream 1234"} < set(labels[:3])
    assert decoded.header["totals"]["events"] == len(spans)
    drawn, counted = decoded.header["thinned"]
    assert drawn == f"Only the 150 busiest of {decoded.header['totals']['rows']:,} rows are drawn."
    assert counted.startswith("Statistics of a selection cover all events")
    assert_rows_are_sound(decoded)


def test_many_streams_in_a_small_budget_are_fewer_rows() -> None:
    profile = with_kernels([(stream, 977 * stream, 977 * stream + 10 + stream % 7) for stream in range(2000)])
    decoded = decode(timeline_payload(profile, most_bytes=1500))
    assert len(decoded.header["rows"]) == 40
    assert decoded.header["thinned"][-2] == "Only the 40 busiest of 2,000 rows are drawn."


def test_threads_keep_their_rows_beside_many_streams() -> None:
    profile = busy_profile(5000, streams=400)
    rows = decode(timeline_payload(profile)).header["rows"]
    assert [row["kind"] for row in rows].count("kernel") == 148
    assert [row["label"] for row in rows[-2:]] == ["Thread 7, NVTX", "Thread 7, CUDA API"]


@pytest.mark.nightly
def test_names_get_shorter_before_events_have_no_room() -> None:
    profile = with_kernels([(7, 10 * number, 10 * number + 5) for number in range(3000)])
    random = np.random.default_rng(0)
    names = ["".join(map(chr, random.integers(97, 123, 3000))) for _ in range(600)]
    kernels = profile.table("kernels").assign(name=pd.Categorical([names[number % 600] for number in range(3000)]))
    profile = Profile({"kernels": kernels})
    decoded = decode(timeline_payload(profile, most_bytes=400_000))
    assert max(map(len, decoded.header["names"])) == 500
    assert "Names are cut to 500 characters." in decoded.header["thinned"]
    assert {len(name) for name in decode(timeline_payload(profile, most_bytes=4_000_000)).header["names"]} == {3000}


def test_of_too_many_names_the_rarest_are_folded() -> None:
    count = 30_000
    often = [(7, 10 * number, 10 * number + 5) for number in range(count + 10)]
    kernels = with_kernels(often).table("kernels")
    kernels = kernels.assign(name=pd.Categorical([*map(str, range(count)), *["often"] * 10]))
    header = decode(timeline_payload(Profile({"kernels": kernels}))).header
    assert (header["names"][0], header["names"][-1]) == ("often", OTHERS)
    assert len(header["labels"]) == len(header["names"]) == 20_000
    sentence = f"Only the 19,999 most frequent of 30,001 names are shown; all others appear as {OTHERS}."
    assert sentence in header["thinned"]


def test_of_too_many_details_none_are_given() -> None:
    count = 30_000
    kernels = with_kernels([(7, 10 * number, 10 * number + 5) for number in range(count)]).table("kernels")
    header = decode(timeline_payload(Profile({"kernels": kernels.assign(grid_x=np.arange(count))}))).header
    assert header["labels"] == [[0, "", 0]]
    assert header["thinned"] == ["Details are left out: there are too many different kernels."]


def test_a_budget_for_nothing_gives_no_timeline() -> None:
    assert timeline_payload(PROFILE, most_bytes=100) is None


@pytest.mark.parametrize("quantum", [1, 4000])
def test_the_size_of_a_layer_is_foretold_from_a_sample(quantum: int) -> None:
    events = events_of(busy_profile(200_000, streams=3))
    layer = whole(events, int(events.end.max()), quantum_ns=quantum)
    assert RowSample(events).size(quantum) == pytest.approx(len(layer.columns.body.compressed), rel=0.07)


def test_the_same_profile_gives_the_same_bytes() -> None:
    profile = busy_profile(20_000)
    assert timeline_payload(profile, most_bytes=50_000) == timeline_payload(profile, most_bytes=50_000)


def test_many_labels_of_long_times_come_back() -> None:
    count = 15_000
    last = (1 << 53) - 1
    spans = [(stream, number, last - count + number) for number in range(count // 100) for stream in range(100)]
    ranges = with_ranges([(thread, last - start, last - start) for thread, start, _ in spans]).table("ranges")
    ranges = ranges.assign(name=pd.Categorical([f"name {number}" for number in range(count)]))
    ranges.loc[0, "start_ns"] = 0
    decoded = decode(timeline_payload(Profile({"ranges": ranges})))
    expected = zip(ranges["start_ns"], ranges["end_ns"], ranges["name"].astype("str"), strict=True)
    assert {event[:3] for row in decoded.layers[0] for event in row} == set(expected)


def test_layers_that_a_number_in_a_word_tells_apart_are_no_repetitions_to_be_exact_about() -> None:
    profile = busy_profile(60_000, steps=600)
    ranges = profile.table("ranges")

    def exact_part(prefix: str) -> dict[str, int]:
        named = ranges.assign(name=pd.Categorical([f"{prefix}{number}" for number in range(600)]))
        header = decode(timeline_payload(Profile({**profile.tables, "ranges": named}), most_bytes=300_000)).header
        return {**header["layers"][1], "middle": sum(header["window"]) / 2}

    begin = min(int(frame["start_ns"].min()) for frame in profile.tables.values())
    starts = set((ranges["start_ns"] - begin).tolist())
    assert exact_part("step ")["from_ns"] in starts
    layers = exact_part("fc")
    assert layers["from_ns"] not in starts
    assert abs((layers["from_ns"] + layers["to_ns"]) / 2 - layers["middle"]) <= 1


def test_the_label_of_a_block_is_that_of_the_first_of_its_longest_events() -> None:
    chance = np.random.default_rng(1)
    for _ in range(50):
        length, count = chance.integers(0, 4, 60), np.diff(np.unique([0, *chance.integers(0, 60, 9), 60]))
        first = np.cumsum(count) - count
        expected = [
            begin + int(np.argmax(length[begin : begin + many])) for begin, many in zip(first, count, strict=True)
        ]
        assert _longest(length, first, count).tolist() == expected
