"""Paths of ranges, and the range that each call was made in, against brute force."""

from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analyze.ranges import call_owners, nested, nested_ranges
from pipeline.analyze.timeline import Timeline
from pipeline.model import Profile
from pipeline.tables import conform, empty

SPANS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 20), st.integers(1, 2), st.sampled_from("ab"), st.sampled_from(["", "d"])
    ),
    max_size=12,
)
CALLS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 3)), max_size=12)


def on_threads(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Make a table of rows that name their thread; threads 1 and 2 are of process 1, thread 3 of another."""
    constant = {"pid": 1, "tid": 1, "layer": "runtime", "style": "PushPop", "is_open": False}
    threads = [{**constant, **row, "process": 1 + row["thread"] // 3} for row in rows]
    return conform(table, pd.DataFrame(threads)) if rows else empty(table)


def ranges_of(spans: list[tuple[int, int, int, str, str]]) -> pd.DataFrame:
    rows = [
        {"start_ns": start, "end_ns": start + length, "thread": thread, "name": name, "domain": domain}
        for start, length, thread, name, domain in spans
    ]
    return on_threads("ranges", rows)


@given(SPANS)
def test_a_path_is_that_of_the_parent_and_the_name(spans: list[tuple[int, int, int, str, str]]) -> None:
    ranges = nested(ranges_of(spans))
    paths: list[str] = []
    for parent, domain, name in zip(ranges["parent"], ranges["domain"], ranges["name"], strict=True):
        own = f"{domain}:{name}" if domain else name
        paths.append(f"{paths[parent]} / {own}" if parent >= 0 else own)
    assert ranges["path"].tolist() == paths
    assert ranges["path"].cat.categories.tolist() == sorted(set(paths))


@given(SPANS, CALLS)
def test_a_call_belongs_to_the_innermost_range_of_its_thread_else_of_its_process(
    spans: list[tuple[int, int, int, str, str]], calls: list[tuple[int, int]]
) -> None:
    rows = [
        {"start_ns": time, "end_ns": time + 1, "thread": thread, "name": "c", "correlation": number}
        for number, (time, thread) in enumerate(calls)
    ]
    timeline = Timeline(Profile({"ranges": ranges_of(spans), "api_calls": on_threads("api_calls", rows)}))
    row, on_thread = call_owners(timeline)
    ranges = nested_ranges(timeline)
    for (time, thread), found, own in zip(calls, row.tolist(), on_thread.tolist(), strict=True):
        is_open = (ranges["start_ns"] <= time) & (ranges["end_ns"] > time)
        mine, of_process = ranges[is_open & (ranges["thread"] == thread)], ranges[is_open & (thread < 3)]
        around = mine if len(mine) else of_process
        assert own == (len(mine) > 0)
        latest = around[around["start_ns"] == around["start_ns"].max()]
        shortest = latest[latest["end_ns"] == latest["end_ns"].min()]
        assert found in shortest.index if len(around) else found == -1
