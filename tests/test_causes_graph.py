"""The rules by which calls and operations are said to have waited for each other, each on a drawn timeline."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.graph import build_graph
from nightsight.analyze.causes.model import (
    AWAIT,
    BEGIN,
    BYPASS,
    CALL,
    ENGINE,
    LAUNCH,
    MEET,
    OTHER,
    PASS,
    SKIP,
    STREAM,
    TRANSFER,
    _list_edges,
    is_bypassed,
)
from nightsight.events.timeline import Timeline
from nightsight.events.window import WHOLE
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.timeline import CALLS, PROCESS, draw, side_by_side

TURNS = ("L...", "..L.")
AT_ONCE = ("LL..", ".LL.")


@pytest.mark.parametrize(
    ("turns", "at_once", "lines"),
    [
        (20, 0, 1),
        # a call that returns a little late is not work side by side
        (20, 1, 1),
        # of 40 changes from one to the other, 4 overlap
        (16, 4, 2),
        (0, 20, 2),
    ],
)
def test_threads_whose_calls_hardly_overlap_are_one_line_of_execution(turns: int, at_once: int, lines: int) -> None:
    """As PyTorch's main thread and that of its backward pass."""
    first, second = (alone * turns + overlapping * at_once for alone, overlapping in zip(TURNS, AT_ONCE, strict=True))
    graph = build_graph(Timeline(draw(f"cpu    {first}\ncpu:8  {second}\ns7     {'ab' * (turns + at_once)}")))
    assert len(set(graph.calls.line.tolist())) == lines


def test_three_threads_that_call_at_the_same_time_are_three_lines_of_execution() -> None:
    """In the order of their calls, some of them only follow each other after a third one."""
    calls = "\n".join(f"cpu:{thread}  {'LL' * 20}" for thread in (7, 8, 9))
    graph = build_graph(Timeline(draw(f"{calls}\ns7     {'abc' * 20}")))
    assert len(set(graph.calls.line.tolist())) == 3


def edges(timeline: Timeline, kind: int) -> set[str]:
    """Return the edges of a kind, such as `b follows end of a`: calls are L1, S1, operations a, H, b."""
    graph, profile = build_graph(timeline), timeline.profile
    calls, work = graph.calls, graph.work
    groups = np.unique(work.group[work.group >= 0])
    every = _list_edges(graph, groups, timeline.window)
    letters = {name: letter for letter, name in CALLS.items()}
    count: Counter[str] = Counter()
    events = []
    for name in calls.names[calls.name]:
        letter = letters[name]
        count[letter] += 1
        events += [f"begin of {letter}{count[letter]}", f"end of {letter}{count[letter]}"]
    copies = profile.table("memory_ops")["operation"].astype("str").str[0]
    names = pd.concat([profile.table("kernels")["name"].astype("str"), copies], ignore_index=True)
    events += [f"end of {name}" for name in names[work.operation]]
    events += [f"all of {group}" for group in groups]
    events += [f"all before {names[operation]}" for operation in work.operation[is_bypassed(work)]]
    chosen = np.flatnonzero((every.kind == kind) & (every.source >= 0))
    pairs = zip(every.target[chosen], every.source[chosen], strict=True)
    return {f"{events[target]} after {events[source]}" for target, source in pairs}


COPIED = "cpu  L.C.L.S......\ns7   .aa.HHHbb.."
AMONG_COPIES = "cpu  L.C.C.C.L.......\ns7   .a..HH.D..HHbb."


@pytest.mark.parametrize(
    ("kind", "picture", "expected"),
    [
        # threads that take turns are one line
        (BEGIN, "cpu    L...L....\ncpu:8  ..A....A\ns7     .aaaa.b..", {"begin of L1 after end of A1"}),
        (CALL, COPIED, {f"end of {call} after begin of {call}" for call in ("C1", "L1", "S1")}),
        # a copy of pageable memory returns when what was before it is done, a synchronization when all is
        (AWAIT, COPIED, {"end of C1 after end of a", "end of S1 after end of H"}),
        (LAUNCH, COPIED, {"end of H after begin of C1", "end of b after begin of L1"}),
        (STREAM, COPIED, {"end of H after end of a", "end of b after end of H"}),
        (PASS, COPIED, {"all before H after end of a"}),
        (BYPASS, COPIED, {"end of b after all before H"}),
        # without records of events: what is launched next on another stream follows what was launched before the record
        (OTHER, "cpu  L.EWL.L......\ns7   .aaaa........\ns8   ........bbcc.", {"end of b after end of a"}),
        # unless it runs before that has ended
        (OTHER, "cpu  L.EWL........\ns7   .aaaaaaaaa...\ns8   .....bb......", set()),
        # without an event: what starts late, right after other work of the GPU, was handed the hardware by that
        (
            OTHER,
            "cpu  L.L...............\ns7   .aaaaaaaaaaaaa.....\ns8   ................bb.",
            {"end of b after end of a"},
        ),
        # but not what starts a while after it
        (OTHER, "cpu  L.L....................\ns7   .aaaaaaaaaaaaa..........\ns8   .....................bb.", set()),
        # nor what its launch explains
        (OTHER, "cpu  L...L..........\ns7   .aaaaaaaaa......\ns8   ............bb.", set()),
        (ENGINE, COPIED, set()),
        # copies of one direction have one engine, whatever runs between them
        (ENGINE, AMONG_COPIES, {"end of H after end of H"}),
        # any of the copies can leave the stream: what follows it follows what was before it
        (
            PASS,
            AMONG_COPIES,
            {"all before H after end of a", "all before D after end of H", "all before H after end of D"},
        ),
        (SKIP, AMONG_COPIES, {"all before D after all before H", "all before H after all before D"}),
        (
            BYPASS,
            AMONG_COPIES,
            {"end of D after all before H", "end of H after all before D", "end of b after all before H"},
        ),
    ],
)
def test_each_kind_of_edge_leads_from_what_was_waited_for(kind: int, picture: str, expected: set[str]) -> None:
    assert edges(Timeline(replace(draw(picture), window=WHOLE)), kind) == expected


def test_a_collective_ends_when_the_last_rank_has_come() -> None:
    early, late = (draw(f"cpu  L.L.....S....\ns7   {stream}") for stream in (".aa.nnnn.....", ".aaaaann....."))
    timeline = Timeline(replace(side_by_side(early, late), window=WHOLE))
    assert edges(timeline, STREAM) == {"all of 0 after end of a"}
    assert edges(timeline, TRANSFER) == {"end of ncclDevKernel_AllReduce_Sum_f32 after all of 0"}


RECORDED = "cpu  L.E.L.W.L.........\ns7   .aaa..ccc.........\ns8   ............bb....."


def with_events(profile: Profile, record: int) -> Profile:
    """Return the capture with what its E and W calls were about: E is record 1 on stream 7, W lets stream 8 wait."""
    calls = profile.table("api_calls").set_index("name")["correlation"].astype("int64")
    facts = {"process": PROCESS, "event": 3}
    recorded = {**facts, "stream": 7, "correlation": calls["cudaEventRecord"], "record": 1}
    wait = {"start_ns": 0, "end_ns": 0, "device": 0, "context": 1, "stream": 8, "kind": 0, "record": record}
    waits = {**facts, **wait, "correlation": calls["cudaStreamWaitEvent"]}
    rows = {"event_records": recorded, "syncs": waits}
    tables = {name: conform(name, pd.DataFrame([row])) for name, row in rows.items()}
    return replace(profile, tables={**profile.tables, **tables})


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # the last of its stream before the record, though the thread launched c after that
        (1, {"end of b after end of a"}),
        # of a record that the capture lacks, nothing is known
        (2, set()),
    ],
)
def test_an_event_leads_from_what_was_launched_before_its_record(record: int, expected: set[str]) -> None:
    profile = with_events(replace(draw(RECORDED), window=WHOLE), record)
    assert edges(Timeline(profile), OTHER) == expected


WAIT_US = 2_000


def test_a_rank_that_waited_for_another_goes_on_after_the_first_call_of_that_one() -> None:
    """NCCL creates a communicator: the thread of the first rank is blocked until the second rank has come."""
    wait = "." * WAIT_US
    early = f"cpu  LL.{wait}...L..\ns7   .a.{wait}....b."
    late = f"cpu  LL.{wait}.L....\ns7   .a.{wait}..b..."
    joined = replace(side_by_side(draw(early), draw(late)), window=WHOLE)
    end_us = 3 + WAIT_US
    spans = pd.DataFrame({"process": [PROCESS, 6 << 24], "start_ns": [2000, 1000 * (end_us - 1)]})
    calls = spans.assign(thread=spans["process"] | 7, pid=5, tid=7, end_ns=1000 * end_us)
    joining = conform("collectives", calls.assign(name="allgather", group="7", is_whole=True))
    joined = replace(joined, tables={**joined.tables, "collectives": joining})
    assert edges(Timeline(joined), MEET) == {"begin of L2 after begin of L4"}
    # its host code is only what follows the wait
    waited = build_graph(Timeline(joined)).calls.rank_wait_ns
    assert waited.tolist() == [0, 1000 * (end_us - 1 - 2), 0, 0]


@given(
    st.lists(st.text("..LS", min_size=30, max_size=30), min_size=1, max_size=2),
    st.lists(st.text("..aab", min_size=30, max_size=60), min_size=1, max_size=2),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_a_window_has_the_operations_that_run_in_it_or_are_launched_in_it(
    cpu: list[str], streams: list[str], begin_us: int, length_us: int
) -> None:
    picture = [f"cpu:{thread + 7}  {track}" for thread, track in enumerate(cpu)]
    whole = Timeline(draw("\n".join([*picture, *(f"s{number + 7}  {track}" for number, track in enumerate(streams))])))
    window = replace(whole.window, start_ns=begin_us * 1000, end_ns=(begin_us + length_us) * 1000)
    graph, operations, (start, end) = build_graph(whole.at(window)), whole.operations, whole.call_times
    is_inside = (end > window.start_ns) & (start < window.end_ns)
    runs = (operations.end > window.start_ns) & (operations.start < window.end_ns)
    is_launched = np.append(is_inside, False)[operations.call]
    assert sorted(graph.work.operation.tolist()) == np.flatnonzero(runs | is_launched).tolist()
    # drawn calls are not inside others
    assert sorted(graph.calls.row.tolist()) == np.flatnonzero(is_inside).tolist()
    launched = graph.work.call >= 0
    rows = operations.call[graph.work.operation]
    assert (graph.calls.row[graph.work.call[launched]] == rows[launched]).all()
    assert not np.append(is_inside, False)[rows[~launched]].any()
