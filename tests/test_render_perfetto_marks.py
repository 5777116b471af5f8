"""What of a thread is beside its ranges and CUDA calls in Perfetto's rows: marks, and calls of the operating system."""

import pandas as pd

from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.test_render_perfetto import STEP, events_of
from tests.timeline import PROCESS, draw


def test_marks_are_instants_on_the_row_of_their_thread() -> None:
    drawn = draw(STEP + "\n    mark  ..x..\n    mark:9  ...y")
    marks = drawn.table("marks")
    marks = marks.assign(domain=pd.Categorical(["io", ""]), category=pd.Categorical(["reads", ""]))
    profile = Profile({**drawn.tables, "marks": marks})
    on_thread = {"ph": "i", "s": "t", "pid": 5, "cat": "mark"}
    assert events_of(profile, "i") == [
        {**on_thread, "tid": 7, "ts": 2, "name": "io:x", "args": {"domain": "io", "category": "reads"}},
        {**on_thread, "tid": 9, "ts": 3, "name": "y", "args": {}},
    ]
    named = [(event["pid"], event["tid"]) for event in events_of(profile, "M") if event["name"] == "thread_name"]
    assert sorted(named)[:2] == [(5, 7), (5, 9)]
    assert len(named) == len(set(named))


def test_marks_alone_are_a_trace() -> None:
    profile = Profile({"marks": draw("mark  ..x.x").table("marks")})
    assert [event["ts"] for event in events_of(profile, "i")] == [0, 2]


def os_calls(spans: list[tuple[int, int, int]]) -> pd.DataFrame:
    """Make calls of the OS runtime: thread, start, end."""
    facts = {"process": PROCESS, "pid": 5, "name": "poll"}
    rows = [
        {"thread": PROCESS | tid, "tid": tid, "start_ns": begin, "end_ns": end, **facts} for tid, begin, end in spans
    ]
    return conform("os_calls", pd.DataFrame(rows))


def test_calls_of_the_operating_system_are_on_their_threads() -> None:
    tables = {**draw(STEP).tables, "os_calls": os_calls([(7, 8_500, 11_000), (70, 0, 20_000)])}
    written = [event for event in events_of(Profile(tables), "X") if event["cat"] == "os"]
    assert [(event["name"], event["pid"], event["tid"], event["ts"], event["dur"]) for event in written] == [
        ("poll", 5, 7, 8.5, 2.5),
        ("poll", 5, 70, 0, 20),
    ]
