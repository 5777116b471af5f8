"""Paths of ranges, and the range that each call was made in, against brute force."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import doubts
from nightsight.analyze.ranges.owners import open_ranges, owners_of, range_time
from nightsight.events.ranges import nested, nested_ranges, without_numbers
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.render.table.layouts import layout_of
from nightsight.tables import MODULE, PUSH_POP, conform, empty, nest
from tests.recorded import Recorded
from tests.reports import analyzed
from tests.timeline import draw, side_by_side

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


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("step 7", "step #"),
        ("step 7 / fc1", "step # / fc1"),
        ("sizes = [2, 3]", "sizes = [#, #]"),
        ("batch, size = 3", "batch, size = #"),
        ("a, op_ids = 3", "a, op_ids = #"),
    ],
)
def test_names_of_a_family_differ_in_numbers(name: str, family: str) -> None:
    assert without_numbers(pd.Index([name])).tolist() == [family]


def test_the_path_of_a_module_leaves_out_the_modules_around_it() -> None:
    rows = [
        {"start_ns": start, "end_ns": end, "thread": 1, "name": name, "domain": "", "style": style}
        for start, end, name, style in (
            (0, 90, "step", PUSH_POP),
            (10, 80, "GPT", MODULE),
            (20, 70, "layers.3", MODULE),
            (30, 60, "layers.3.mlp", MODULE),
            (35, 55, "mine", PUSH_POP),
            (40, 50, "layers.3.mlp.fc", MODULE),
        )
    ]
    ranges = nested_ranges(Profile({"ranges": on_threads("ranges", rows)}))
    assert ranges["path"].tolist() == [
        "step",
        "step / GPT",
        "step / layers.3",
        "step / layers.3.mlp",
        "step / layers.3.mlp / mine",
        "step / layers.3.mlp / mine / layers.3.mlp.fc",
    ]
    assert ranges["level"].tolist() == [0, 1, 2, 3, 4, 5]


@given(SPANS, CALLS)
def test_a_call_belongs_to_the_innermost_range_of_its_thread_else_of_its_process(
    spans: list[tuple[int, int, int, str, str]], calls: list[tuple[int, int]]
) -> None:
    rows = [
        {"start_ns": time, "end_ns": time + 1, "thread": thread, "name": "c", "correlation": number}
        for number, (time, thread) in enumerate(calls)
    ]
    timeline = Timeline(Profile({"ranges": ranges_of(spans), "api_calls": on_threads("api_calls", rows)}))
    row, on_thread = owners_of(timeline, np.arange(len(calls)))
    ranges = nested_ranges(timeline.profile)
    for (time, thread), range_row, own in zip(calls, row.tolist(), on_thread.tolist(), strict=True):
        is_open = (ranges["start_ns"] <= time) & (ranges["end_ns"] > time)
        of_thread, of_process = ranges[is_open & (ranges["thread"] == thread)], ranges[is_open & (thread < 3)]
        around = of_thread if len(of_thread) else of_process
        assert own == (len(of_thread) > 0)
        latest = around[around["start_ns"] == around["start_ns"].max()]
        shortest = latest[latest["end_ns"] == latest["end_ns"].min()]
        assert range_row in shortest.index if len(around) else range_row == -1


def test_ranges_of_two_processes_have_a_row_each_with_their_own_work() -> None:
    first, second = (draw(f"nvtx  [s ][s ]\ncpu   {calls}\ns7    ..aaabbb") for calls in ("L...L...", "LL......"))
    timeline = Timeline(side_by_side(first, second))
    table = range_time(timeline).frame[["path", "pid", "instances", "kernels", "kernel_ns"]]
    assert table.to_numpy().tolist() == [["s", 5, 2, 2, 6000], ["s", 6, 2, 1, 3000]]
    result = analyzed(timeline.profile, "nvtx_ranges")
    shown = layout_of(result).prepare(result.rows)
    assert shown[["name", "pid", "level"]].to_numpy().tolist() == [["s", 5, 0], ["s", 6, 0]]


def test_a_range_is_below_that_around_it_in_its_own_process() -> None:
    inside = "nvtx  [a       ]\nnvtx  .[b ]....."
    both = side_by_side(draw(inside), draw(f"{inside}\nnvtx  .....[c]"))
    result = analyzed(both, "nvtx_ranges")
    shown = layout_of(result).prepare(result.rows)
    assert shown[["name", "pid", "level"]].to_numpy().tolist() == [
        ["a", 5, 0],
        ["b", 5, 1],
        ["a", 6, 0],
        ["b", 6, 1],
        ["c", 6, 1],
    ]
    alone = result.rows[result.rows["pid"] == 5]
    assert "pid" not in layout_of(result).prepare(alone)


@pytest.mark.parametrize(("name", "title"), [("mini_torch", "User ranges"), ("train", "NVTX ranges")])
def test_ranges_are_called_what_recorded_them(name: str, title: str, recorded: Recorded) -> None:
    assert recorded.report(name).result("nvtx_ranges").title == title
    text = re.sub(r"<script.*?</script>", "", recorded.page(name), flags=re.DOTALL)
    heading, other = (f">{one}</h" for one in (title, "NVTX ranges" if title == "User ranges" else "User ranges"))
    assert heading in text
    assert other not in text


def test_ranges_that_never_ended_are_reported_with_the_first_names() -> None:
    ranges = ranges_of([(place, 9, 1, name, "") for place, name in enumerate(["a" * 99, "b", "c", "d", "e"])])
    assert open_ranges(Timeline(Profile({"ranges": ranges}))) == ()
    profile = Profile({"ranges": ranges.assign(is_open=ranges["name"] != "b")})
    (finding,) = doubts(Timeline(profile))
    assert (finding.rule, finding.severity, finding.title) == (
        *("open_ranges", "warning"),
        "4 NVTX ranges were never ended",
    )
    assert finding.detail.startswith(
        f"`{'a' * 24}…{'a' * 23}`, `c`, `d` and 1 more: the capture holds only their start."
    )
    note = "4 ranges were never ended and are counted up to the last event recorded."
    for name in ("nvtx_ranges", "range_iterations"):
        assert analyzed(profile, name).notes == (note,)


def test_one_range_that_never_ended_is_named() -> None:
    ranges = ranges_of([(0, 9, 1, "measure", ""), (1, 2, 1, "x", "d")])
    (finding,) = open_ranges(Timeline(Profile({"ranges": ranges.assign(is_open=[True, False])})))
    assert finding.title == "1 NVTX range was never ended"
    assert finding.detail.startswith("`measure`: the capture holds only its start. It is shown as lasting to")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_levels_count_what_is_around(spans: list[tuple[int, int]]) -> None:
    ranges = nest(ranges_of([(start, length, 1, "a", "") for start, length in spans]))
    levels: list[int] = []
    for parent in ranges["parent"]:
        levels.append(levels[parent] + 1 if parent >= 0 else 0)
    assert ranges["level"].tolist() == levels


@pytest.mark.parametrize("depth", [63, 64, 65, 66, 130, 500])
def test_what_is_too_deep_is_in_one_row_and_owns_its_work_once(depth: int) -> None:
    ranges = ranges_of([(place, 2 * (depth - place), 1, f"r{place}", "") for place in range(depth)])
    call = {"start_ns": depth, "end_ns": depth + 1, "thread": 1, "name": "cudaLaunchKernel", "correlation": 1}
    place = {"process": 1, "device": 0, "context": 1, "stream": 7}
    kernel = conform("kernels", pd.DataFrame([{**draw("cpu  L\ns7   .a").table("kernels").iloc[0], **call, **place}]))
    tables = {"ranges": ranges, "kernels": kernel, "memory_ops": empty("memory_ops")}
    profile = Profile({**tables, "api_calls": on_threads("api_calls", [call])})
    result = analyzed(profile, "nvtx_ranges")
    rows, deeper = result.rows, max(depth - 64, 0)
    assert len(rows) == min(depth, 65)
    assert rows["instances"].sum() == depth
    assert (rows["kernels"] == 1).all()
    assert rows["level"].tolist() == list(range(len(rows)))
    assert rows["path"].iloc[-1] == rows["path"].iloc[-2] + (" / … (deeper)" if deeper else f" / r{depth - 1}")
    assert [note.partition(" more than")[0] for note in result.notes[1:]] == (
        [f"{deeper} range lies" if deeper == 1 else f"{deeper} ranges lie"] if deeper else []
    )
    shown = layout_of(result).prepare(rows)
    assert shown["level"].tolist() == list(range(len(rows)))


def test_ten_thousand_open_ranges_stay_small() -> None:
    ranges = ranges_of([(place, 20_000 - place, 1, f"step {place}", "") for place in range(10_000)])
    timeline = Timeline(Profile({"ranges": ranges.assign(is_open=True)}))
    paths = nested_ranges(timeline.profile)["path"].cat.categories
    assert len(paths) == 65
    assert paths.str.len().max() < 65 * 20
