from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.intervals import clipped_union, length
from nightsight.model.report import Profile
from nightsight.render.timeline.labels import OTHERS, EventLabels
from nightsight.render.timeline.rows import RowKind, TimelineEvents, TimelineRow, lay_events
from nightsight.render.timeline.sums import MOST_BINS, Sums, fitting, sums_of
from tests.properties import examples
from tests.test_render_timeline_detail import busy_profile, events_of
from tests.test_render_tracks import with_kernels
from tests.timeline_payload import DecodedSums, Section, Statistics, decode, decode_sums, timeline_payload

NAMES = ("a", "b", "a", "c", "d", "e")
ROWS: tuple[tuple[str, RowKind], ...] = (
    ("GPU 0", "kernel"),
    ("GPU 0", "kernel"),
    ("Process 1", "range"),
    ("GPU 0", "kernel"),
    ("Process 1", "mark"),
)


def laid(rows: list[list[tuple[int, int, int]]]) -> TimelineEvents:
    """Make events of gaps, lengths and labels in rows."""
    spans: list[tuple[int, int, int]] = []
    for row in rows:
        end = 0
        for gap, size, label in row:
            spans.append((end + gap, end + gap + size, label))
            end += gap + size
    start, stop, code = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    bounds = np.cumsum([0, *map(len, rows)])
    kept = [place for place, row in enumerate(rows) if row]
    drawn = tuple(TimelineRow(ROWS[place][0], str(place), ROWS[place][1]) for place in kept)
    labels = EventLabels(NAMES, ("", "", "other details", "", "", ""), (-1,) * len(NAMES))
    nothing = np.full(len(start), -1)
    return TimelineEvents(
        drawn, bounds[[0, *(place + 1 for place in kept)]], start, stop, code, labels, nothing, 0, len(kept)
    )


def read_back(sums: Sums | None, names: tuple[str, ...]) -> DecodedSums:
    written = fitting(sums, 1e9)
    assert written
    distinct = list(dict.fromkeys(names))
    return decode_sums(written.header(0), distinct, written.columns.body.data)


def expected(events: TimelineEvents, begin: int, end: int) -> dict[Section, Statistics]:
    """Sum up what has any time from `begin` to `end`; what has no length is there if it begins there."""
    statistics: dict[Section, Statistics] = {}
    for row, (low, high) in zip(events.rows, pairwise(events.bounds.tolist()), strict=True):
        sums = statistics.setdefault((row.group, row.kind), Statistics())
        for event in range(low, high):
            start, stop = int(events.start[event]), int(events.end[event])
            if start < end and (stop > begin or start >= begin):
                name = events.labels.names[int(events.label[event])]
                sums.events[name] += 1
                sums.time[name] += min(stop, end) - max(start, begin)
    for section, sums in statistics.items():
        rows = [place for place, row in enumerate(events.rows) if (row.group, row.kind) == section]
        spans = [slice(*events.bounds[row : row + 2]) for row in rows]
        both = [np.concatenate([times[span] for span in spans]) for times in (events.start, events.end)]
        sums.busy = length(clipped_union(both[0], both[1], (begin, end)))
    return {section: sums for section, sums in statistics.items() if sums.events}


def folded(statistics: dict[Section, Statistics], kept: set[tuple[Section, str | None]]) -> dict[Section, Statistics]:
    """Put names without sums of their own together."""
    return {
        section: Statistics(sums.busy, *(_folded(one, section, kept) for one in (sums.time, sums.events)))
        for section, sums in statistics.items()
    }


def _folded(sums: Counter[str | None], section: Section, kept: set[tuple[Section, str | None]]) -> Counter[str | None]:
    result: Counter[str | None] = Counter()
    for name, amount in sums.items():
        result[name if (section, name) in kept else None] += amount
    return result


def assert_exact(events: TimelineEvents, read: DecodedSums, first: int, end: int) -> None:
    wanted = folded(expected(events, read.edge(first), read.edge(end)), set(read.slots))
    assert read.statistics(first, end) == wanted


LENGTHS = st.one_of(st.just(0), st.integers(0, 40), st.integers(0, 200_000), st.integers(0, 30_000_000))
EVENT = st.tuples(LENGTHS, LENGTHS, st.integers(0, len(NAMES) - 1))
SCENES = st.lists(st.lists(EVENT, max_size=12), min_size=len(ROWS), max_size=len(ROWS)).filter(any)


@examples(300)
@given(SCENES, st.integers(0, 8), st.sampled_from((0, 0.001, 0.01, 0.1, 1)), st.data())
def test_any_span_of_bins_has_the_sums_of_its_events(
    rows: list[list[tuple[int, int, int]]], doublings: int, names: float, data: Any
) -> None:
    events = laid(rows)
    span = int(events.end.max()) + data.draw(st.integers(0, 10_000))
    sums = sums_of(events, span_ns=span, origin_ns=data.draw(st.integers(0, span)))
    assert sums
    assert sums.bins <= MOST_BINS
    read = read_back(sums.coarser(doublings).with_names(names), NAMES)
    bins = read.header["bins"]
    assert read.edge(0) <= 0
    assert read.edge(bins - 1) <= span < read.edge(bins)
    first, end = sorted(data.draw(st.tuples(*[st.integers(0, bins)] * 2)))
    assert_exact(events, read, first, max(end, first + 1))
    assert_exact(events, read, 0, bins)


@given(SCENES, st.integers(0, 10**7), st.integers(1, 8))
def test_coarser_sums_are_those_that_wide_bins_have(
    rows: list[list[tuple[int, int, int]]], origin: int, doublings: int
) -> None:
    events = laid(rows)
    span = int(events.end.max()) + origin
    sums = sums_of(events, span_ns=span, origin_ns=origin)
    assert sums
    coarse = sums.coarser(doublings)
    assert coarse.width_ns == sums.width_ns << doublings
    assert (origin - coarse.begin_ns) % coarse.width_ns == 0
    again = sums.coarser(1).coarser(doublings - 1)
    for part in ("cells", "crossings", "overlaps"):
        for one, other in zip(vars(getattr(coarse, part)).values(), vars(getattr(again, part)).values(), strict=True):
            assert one.tolist() == other.tolist()


def test_one_event_fills_the_bins_that_it_runs_in() -> None:
    events = laid([[(1_000, 7_000_000, 0)]])
    read = read_back(sums_of(events, span_ns=8_000_000, origin_ns=0), NAMES)
    width = read.header["width_ns"]
    assert read.rows == [{1: (0, 7_001_000 - width)}]
    middle = read.statistics(100, 103)[("GPU 0", "kernel")]
    assert (middle.busy, middle.events, middle.time) == (3 * width, Counter({"a": 1}), Counter({"a": 3 * width}))


def test_events_without_length_are_counted_where_they_begin() -> None:
    spans = [(7, 5_000_000, 5_000_000), (7, 10_000_000, 10_000_000), (7, 0, 0), (7, 5_000_000, 5_000_000)]
    events = lay_events(with_kernels(spans))
    read = read_back(sums_of(events, span_ns=10_000_000, origin_ns=0), events.labels.names)
    bins = read.header["bins"]
    half = 5_000_000 // read.header["width_ns"]
    counts = [[sums.events["k"] for sums in read.statistics(*span).values()] for span in ((0, half), (half, bins))]
    assert counts == [[1], [3]]
    assert next(iter(read.statistics(0, bins).values())).busy == 0


def in_tables(profile: Profile) -> dict[str, Statistics]:
    """All events of a profile by the kind of their rows; as these have one group each, that is all of it."""
    statistics = {}
    for table, kind in {"kernels": "kernel", "api_calls": "api", "ranges": "range"}.items():
        if table in profile.tables:
            frame = profile.table(table)
            start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
            sums = statistics[kind] = Statistics(length(clipped_union(start, end, (0, 1 << 60))))
            for name, duration in zip(frame["name"].astype("str"), (end - start).tolist(), strict=True):
                sums.time[name] += duration
                sums.events[name] += 1
    return statistics


def in_sums(read: DecodedSums | None) -> dict[str, Statistics]:
    assert read
    return {kind: sums for (_, kind), sums in read.statistics(0, read.header["bins"]).items()}


@pytest.mark.parametrize("most_bytes", [400_000, 60_000, 15_000])
def test_a_thinned_timeline_has_the_sums_of_its_tables(most_bytes: int) -> None:
    profile = busy_profile(60_000, streams=9)
    decoded = decode(timeline_payload(profile, most_bytes=most_bytes))
    statistics, all_ = in_sums(decoded.sums), in_tables(profile)
    for kind, sums in statistics.items():
        assert (sums.busy, sums.time.total()) == (all_[kind].busy, all_[kind].time.total())
        assert sums.events.total() == all_[kind].events.total()
        named = {name for name in sums.events if name}
        assert {name: sums.time[name] for name in named} == {name: all_[kind].time[name] for name in named}
        assert {name: sums.events[name] for name in named} == {name: all_[kind].events[name] for name in named}
    assert set(statistics) == set(all_)
    assert decoded.sums
    columns = decoded.sums.header["columns"].values()
    assert sum(count * width for count, width in columns) < most_bytes
    (sentence,) = [sentence for sentence in decoded.header["thinned"] if "Statistics" in sentence]
    assert sentence.startswith("Statistics of a selection cover all events, in steps of ")


def test_an_exact_timeline_needs_no_sums() -> None:
    assert decode(timeline_payload(busy_profile(1000))).header["sums"] is None


def test_without_room_for_sums_the_timeline_says_so() -> None:
    header = decode(timeline_payload(busy_profile(4000), most_bytes=2_900)).header
    assert header["sums"] is None
    assert [sentence for sentence in header["thinned"] if "Statistics" in sentence] == [
        "Statistics of a selection are available only in the exact part (page size limit, --max-bytes)."
    ]


def test_rows_that_are_not_drawn_are_in_the_sums() -> None:
    streams = 10_000
    spans = [(stream, 1000 * stream, 1000 * stream + 900 + stream % 7) for stream in range(streams)]
    spans += [(stream, start + 10**7, end + 10**7) for stream, start, end in spans]
    profile = with_kernels(spans)
    decoded = decode(timeline_payload(profile))
    assert len(decoded.header["rows"]) == 150
    assert [layer["quantum_ns"] for layer in decoded.header["layers"]] == [1]
    assert in_sums(decoded.sums) == in_tables(profile)


def test_processes_beyond_count_have_no_sums() -> None:
    events = events_of(busy_profile(100))
    count = 20_000
    rows = tuple(TimelineRow(f"Process {number}", "", "api") for number in range(count))
    start = np.arange(count)
    label = np.zeros(count, dtype=np.int64)
    many = replace(events, rows=rows, bounds=np.arange(count + 1), start=start, end=start + 9, label=label)
    assert sums_of(many, span_ns=count + 9, origin_ns=0) is None
    assert fitting(None, 1e9) is None


@pytest.mark.nightly
def test_a_hundred_thousand_names_are_in_the_sums_though_not_each() -> None:
    count = 100_000
    start = np.arange(count) * 10_000 + np.random.default_rng(0).integers(0, 5_000, count)
    one = with_kernels([(7, 0, 1)]).table("kernels")
    name = pd.Categorical.from_codes(np.arange(count), [f"kernel_{number}" for number in range(count)])  # type: ignore[call-overload]
    kernels = one.loc[np.zeros(count, dtype=int)].reset_index(drop=True)
    kernels = kernels.assign(start_ns=start, end_ns=start + 10 + start % 4_999, name=name)
    decoded = decode(timeline_payload(Profile({"kernels": kernels}), most_bytes=150_000))
    (sums,) = in_sums(decoded.sums).values()
    (all_,) = in_tables(Profile({"kernels": kernels})).values()
    assert (sums.busy, sums.time.total(), sums.events.total()) == (all_.busy, all_.time.total(), count)
    assert sums.events[None] > 100
    assert sums.events[OTHERS] > count / 2
    assert len(sums.events) > 8


def test_sums_that_do_not_fit_are_coarser_and_of_fewer_names() -> None:
    events = events_of(busy_profile(100_000, streams=3, names=200))
    sums = sums_of(events, span_ns=int(events.end.max()), origin_ns=0)
    widths, slots, last = [], [], float("inf")
    for room in (200_000, 60_000, 10_000, 3_000):
        written = fitting(sums, room)
        assert written
        assert written.size <= min(room, last)
        last = written.size
        widths.append(written.width_ns)
        slots.append(len(written.slots.name))
    assert widths == sorted(widths)
    assert slots == sorted(slots, reverse=True)
    assert widths[-1] > widths[0]
    assert fitting(sums, 100) is None
