import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze import analyze
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Result
from nightsight.read import read
from nightsight.render.page.html import render_html
from nightsight.render.timeline.counters import curves
from nightsight.render.tracks import event_names
from nightsight.tables import conform
from tests.kineto import write
from tests.recorded import Recorded
from tests.reports import small_report
from tests.test_render_tracks import with_kernels, with_ranges
from tests.timeline import PROCESS, draw
from tests.timeline_payload import Decoded, Event, decode, timeline_payload

NSYS = ("mlp", "train", "gelu", "graph", "graph_node", "unified_memory", "ddp2", "everything")
TABLES = ("kernels", "memory_ops", "graph_launches", "ranges", "cpu_ops", "api_calls", "marks")
Span = tuple[int, int, str]


def spans_of_tables(profile: Profile, names: Iterable[str] = TABLES) -> Counter[Span]:
    """Every event of some tables: start, end, name."""
    spans: Counter[Span] = Counter()
    for table in names:
        frame = profile.tables.get(table, pd.DataFrame())
        if len(frame):
            codes, texts = event_names(table, frame)
            named = [texts[code] for code in codes.tolist()]
            spans.update(zip(frame["start_ns"].tolist(), frame["end_ns"].tolist(), named, strict=True))
    return spans


def spans_of_rows(decoded: Decoded, kinds: Iterable[str], *, layer: int = 0, begin: int = 0) -> Counter[Span]:
    rows = zip(decoded.header["rows"], decoded.layers[layer], strict=True)
    events = [event for row, events in rows if row["kind"] in kinds for event in events]
    return Counter((event.start + begin, event.end + begin, event.name) for event in events)


def first_time(profile: Profile) -> int:
    times = [profile.tables[name]["start_ns"].min() for name in TABLES if len(profile.tables.get(name, ()))]
    faults = profile.tables.get("cpu_page_faults", pd.DataFrame({"time_ns": []}))["time_ns"]
    return int(min([*times, *faults]))


def not_of_system(sentences: list[str]) -> list[str]:
    return [sentence for sentence in sentences if "operating system" not in sentence]


def assert_rows_are_sound(decoded: Decoded) -> None:
    for events in (row for layer in decoded.layers for row in layer):
        for before, after in pairwise(events):
            assert before.start <= before.end <= after.start <= after.end
    json.dumps(decoded.header, allow_nan=False)


def launched(decoded: Decoded, layer: int = 0) -> list[tuple[Event, Event]]:
    """Every operation with its call."""
    rows = decoded.layers[layer]
    return [(event, rows[event.launch[0]][event.launch[1]]) for row in rows for event in row if event.launch]


@pytest.mark.parametrize("name", NSYS)
@pytest.mark.parametrize("details", [True, False])
def test_an_exact_timeline_holds_every_event_of_the_tables(
    name: str, details: bool, capture_file: Callable[[str], Path]
) -> None:
    profile = read(capture_file(name), details=details)
    decoded = decode(timeline_payload(profile))
    begin = first_time(profile)
    for kinds, tables in {
        ("kernel",): TABLES[:3],
        ("range",): TABLES[3:4],
        ("op",): TABLES[4:5],
        ("api",): TABLES[5:6],
        ("mark",): TABLES[6:],
    }.items():
        spans = spans_of_rows(decoded, kinds, begin=begin)
        faults = Counter({span: count for span, count in spans.items() if span[2] == "CPU page fault"})
        assert spans - faults == spans_of_tables(profile, tables)
        assert faults.total() == (len(profile.tables.get("cpu_page_faults", ())) if kinds == ("mark",) else 0)
    assert [layer["quantum_ns"] for layer in decoded.header["layers"]] == [1]
    assert not_of_system(decoded.header["thinned"]) == []
    assert decoded.header["totals"]["events"] == sum(len(row) for row in decoded.layers[0])
    assert_rows_are_sound(decoded)


@pytest.mark.parametrize("name", NSYS)
def test_each_stream_is_a_row_with_all_that_ran_on_it(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    decoded = decode(timeline_payload(profile))
    operations = pd.concat([profile.table(table) for table in TABLES[:3]])
    sums = (operations["end_ns"] - operations["start_ns"]).groupby(operations["stream"]).sum()
    drawn: Counter[int] = Counter()
    for row, events in zip(decoded.header["rows"], decoded.layers[0], strict=True):
        if row["kind"] == "kernel":
            stream = int(row["label"].partition(" (")[0].split()[-1])
            drawn[stream] += sum(event.end - event.start for event in events)
    assert drawn == Counter(sums.to_dict())


@pytest.mark.parametrize("name", NSYS)
def test_operations_point_at_the_call_that_launched_them(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    decoded, begin = decode(timeline_payload(profile)), first_time(profile)
    calls = profile.table("api_calls").sort_values(["start_ns", "end_ns"], ascending=[True, False])
    keys = ["process", "correlation"]
    outermost = calls.drop_duplicates(keys)[[*keys, "start_ns", "end_ns"]]
    operations = pd.concat([profile.table(table) for table in TABLES[:3]])
    pairs = operations.merge(outermost, on=keys, suffixes=("", "_call"))
    columns = ("start_ns", "end_ns", "start_ns_call", "end_ns_call")
    expected = Counter(zip(*(pairs[column].tolist() for column in columns), strict=True))
    counts = Counter(
        tuple(time + begin for time in (work.start, work.end, call.start, call.end)) for work, call in launched(decoded)
    )
    assert len(pairs) > 0
    assert counts == expected


@pytest.mark.parametrize("name", NSYS)
def test_the_window_is_the_reports(name: str, capture_file: Callable[[str], Path]) -> None:
    profile = read(capture_file(name), details=False)
    window = Timeline(profile).window
    begin = first_time(profile)
    header = decode(timeline_payload(profile)).header
    assert header["window"] == [window.start_ns - begin, window.end_ns - begin]


def test_a_torch_trace_has_its_operators_by_depth(tmp_path: Path) -> None:
    spans = [("outer", 1, 99), ("inner", 10, 20), ("innermost", 12, 3), ("inner", 40, 20)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 5, "ts": ts, "dur": dur} for name, ts, dur in spans
    ]
    decoded = decode(timeline_payload(read(write(tmp_path, *events))))
    labels = [row["label"] for row in decoded.header["rows"]]
    assert labels == ["Main thread, operators", "Main thread, operators (2)", "Main thread, operators (3)"]
    assert [[event.name for event in row] for row in decoded.layers[0]] == [["outer"], ["inner"] * 2, ["innermost"]]


def test_a_torch_trace_with_stacks_has_the_functions_of_python_by_depth(tmp_path: Path) -> None:
    spans = [("cpu_op", "aten::mm", 12, 3), ("python_function", "t.py(7): main", 1, 99)]
    spans += [("python_function", "t.py(2): step", 10, 20), ("python_function", "torch/nn/x.py(2): forward", 11, 5)]
    events = [
        {"ph": "X", "cat": kind, "name": name, "pid": 5, "tid": 5, "ts": t, "dur": d} for kind, name, t, d in spans
    ]
    decoded = decode(timeline_payload(read(write(tmp_path, *events))))
    assert {
        row["label"]: [event.name for event in row_events]
        for row, row_events in zip(decoded.header["rows"], decoded.layers[0], strict=True)
    } == {
        "Main thread, Python": ["main (t.py:7)"],
        "Main thread, Python (2)": ["step (t.py:2)"],
        "Main thread, operators": ["aten::mm"],
    }


def test_rows_stand_by_gpu_and_thread_the_busiest_first() -> None:
    decoded = decode(
        timeline_payload(
            draw("""
            nvtx    [step        ]
            nvtx    .[part]
            mark    .x....y
            mark:8  ....x..
            cpu     .LL..........
            cpu:8   .......SSSSSSSSSSSSSSSSSS
            s9      ...aa
            s7      ...aaaaaaa
            s7      ....bb
            s2:1    ......H
            """)
        )
    )
    groups = [group["label"] for group in decoded.header["groups"]]
    assert groups == ["GPU 0", "GPU 1", "Process 5"]
    assert [(row["group"], row["label"], row["kind"]) for row in decoded.header["rows"]] == [
        (0, "Stream 7", "kernel"),
        (0, "Stream 7 (2)", "kernel"),
        (0, "Stream 9", "kernel"),
        (1, "Stream 2", "kernel"),
        (2, "Thread 7, NVTX", "range"),
        (2, "Thread 7, NVTX (2)", "range"),
        (2, "Thread 7, NVTX marks", "mark"),
        (2, "Thread 7, CUDA API", "api"),
        (2, "Thread 8, NVTX marks", "mark"),
        (2, "Thread 8, CUDA API", "api"),
    ]
    assert [(event.name, event.start, event.end) for event in decoded.row("Thread 7, NVTX marks")] == [
        ("x", 1000, 1000),
        ("y", 6000, 6000),
    ]
    assert [(event.name, event.start, event.end) for event in decoded.row("Thread 7, NVTX (2)")] == [
        ("part", 1000, 7000)
    ]


def test_the_calls_of_two_threads_are_distinguished() -> None:
    decoded = decode(
        timeline_payload(
            draw("""
            cpu    L...L.....
            cpu:8  ..L...L...
            s7     .a.b.c.d..
            """)
        )
    )
    pairs = [(work.name, call.start) for work, call in launched(decoded)]
    assert pairs == [("a", 0), ("b", 2000), ("c", 4000), ("d", 6000)]


def test_one_correlation_id_in_two_processes_is_two_launches() -> None:
    one = draw("""
        cpu  L
        s7   .a
    """)
    calls, kernels = one.table("api_calls"), one.table("kernels")
    other = PROCESS << 1
    moved = calls.assign(process=other, thread=other | 7, pid=6, start_ns=500, end_ns=700)
    tables = {
        "api_calls": pd.concat([calls, moved], ignore_index=True),
        "kernels": pd.concat([kernels, kernels.assign(process=other, stream=8)], ignore_index=True),
    }
    decoded = decode(timeline_payload(Profile(tables)))
    assert sorted((work.start, call.start) for work, call in launched(decoded)) == [(1000, 0), (1000, 500)]
    assert len({event.launch for row in decoded.layers[0] for event in row if event.launch}) == 2


def test_an_operation_without_a_known_call_has_none() -> None:
    profile = draw("""
        cpu  L..L
        s7   .ab.c
    """)
    kernels = profile.table("kernels").assign(correlation=pd.array([1000, None, 77], dtype="int64[pyarrow]"))
    decoded = decode(timeline_payload(Profile({**profile.tables, "kernels": kernels})))
    assert [event.launch is not None for event in decoded.row("Stream 7")] == [True, False, False]


def test_details_say_what_is_known_of_an_event() -> None:
    profile = draw("""
        nvtx  [step  ]
        mark  x.y
        s7    a.H.D.M.G
    """)
    kernels = profile.table("kernels").assign(grid_x=8, grid_y=32, block_x=64, registers=96)
    ranges = profile.table("ranges").assign(domain=pd.Categorical(["NCCL\x00"]), is_open=True)
    memory = profile.table("memory_ops").assign(bytes=[4_194_304, 12, 0])
    marks = profile.table("marks").assign(domain=pd.Categorical(["io", ""]), category=pd.Categorical(["reads", ""]))
    changed = {"kernels": kernels, "ranges": ranges, "memory_ops": memory, "marks": marks}
    decoded = decode(timeline_payload(Profile({**profile.tables, **changed})))
    assert [(event.name, event.details) for event in decoded.row("Stream 7")] == [
        ("a", "grid 8×32×1, block 64×1×1, 96 registers"),
        ("[CUDA memcpy Host-to-Device]", "Pageable → Device, 4.194 MB"),
        ("[CUDA memcpy Device-to-Host]", "Device → Pageable, 12 B"),
        ("[CUDA memset]", "Device, 0 B"),
        ("[CUDA graph]", "graph 1"),
    ]
    assert decoded.row("Thread 7, NVTX")[0].details == "domain NCCL\ufffd, never ended"
    assert [(event.name, event.details) for event in decoded.row("Thread 7, NVTX marks")] == [
        ("io:x", "domain io, category reads"),
        ("y", ""),
    ]


def test_names_no_reader_may_trip_over_are_made_printable() -> None:
    hostile = ["</script><!--", "a\u202eb\x00c", "", "x" * 9000, 'q"&\\']
    kernels = with_kernels([(7, 10 * i, 10 * i + 5) for i in range(5)]).table("kernels")
    kernels = kernels.assign(name=pd.Categorical(hostile))
    decoded = decode(timeline_payload(Profile({"kernels": kernels})))
    names = [event.name for event in decoded.row("Stream 7")]
    assert names[:3] == ["</script><!--", "a\ufffdb\ufffdc", "(no name)"]
    assert (len(names[3]), names[4]) == (4096, 'q"&\\')


def test_nothing_of_the_programs_name_or_paths_is_in_the_payload(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    names = [str(name) for name in profile.table("threads")["name"]]
    secret = pd.Categorical(["/home/me/secret.py" if name == names[0] else name for name in names])
    threads = profile.table("threads").assign(name=secret)
    text = json.dumps(decode(timeline_payload(Profile({**profile.tables, "threads": threads}))).header)
    assert "secret" not in text


def test_one_event_is_a_timeline() -> None:
    decoded = decode(timeline_payload(draw("s7  ...aa")))
    assert decoded.layers == [[[Event(0, 2000, "a", "grid 1×1×1, block 1×1×1, 0 registers")]]]
    assert (decoded.header["span_ns"], decoded.header["window"]) == (2000, [0, 2000])


def test_without_an_event_there_is_no_timeline() -> None:
    assert timeline_payload(Profile({})) is None
    assert timeline_payload(draw("")) is None


def test_events_without_length_are_drawn_where_they_are() -> None:
    spans = [(7, 0, 10), (7, 5, 5), (7, 10, 10), (7, 10, 20), (7, 10, 10), (7, 30, 30), (7, 30, 30)]
    for profile in (with_kernels(spans), with_ranges(spans)):
        decoded = decode(timeline_payload(profile))
        assert_rows_are_sound(decoded)
        assert sorted((e.start, e.end) for row in decoded.layers[0] for e in row) == sorted(s[1:] for s in spans)


def test_marks_alone_are_a_timeline() -> None:
    decoded = decode(timeline_payload(Profile({"marks": draw("mark  ..x..y").table("marks")})))
    assert decoded.layers == [[[Event(0, 0, "x"), Event(3000, 3000, "y")]]]
    assert (decoded.header["span_ns"], decoded.header["window"]) == (3000, [0, 3000])


def test_marks_at_one_time_are_all_drawn() -> None:
    marks = draw("mark  xyz").table("marks").assign(start_ns=5, end_ns=5)
    decoded = decode(timeline_payload(Profile({"marks": marks})))
    assert_rows_are_sound(decoded)
    assert sorted(event.name for row in decoded.layers[0] for event in row) == ["x", "y", "z"]


def test_the_longest_times_a_reader_lets_through_are_exact() -> None:
    last = (1 << 53) - 1
    spans = [(thread, start, end) for thread in range(70) for start, end in ((0, last), (1, last - 1), (last, last))]
    decoded = decode(timeline_payload(with_ranges(spans)))
    assert decoded.header["span_ns"] == last
    assert_rows_are_sound(decoded)
    assert {(e.start, e.end) for row in decoded.layers[0] for e in row} == {(0, last), (1, last - 1), (last, last)}


def result(name: str, **columns: Any) -> Result:
    return Result(name, name, "", pd.DataFrame(columns))


def test_curves_stand_with_their_gpu_and_count_from_the_first_event() -> None:
    profile = draw("""
        cpu  LL....
        s7   ...aaa
    """)
    samples = [{"start_ns": 4000, "device": 1, "metric": "SM Active [Throughput %]", "value": 17}]
    tables = {**profile.tables, "gpu_metrics": conform("gpu_metrics", pd.DataFrame(samples))}
    memory = result("memory_over_time", device=[0] * 4, time_ns=[-1000, 0, 1000, 2000], bytes=[5, 7, 7, 2])
    depth = result("in_flight", device=[0], time_ns=[0], in_flight_max=[3], in_flight_avg=[1.5])
    header = decode(timeline_payload(Profile(tables), results=[memory, depth])).header
    assert [group["label"] for group in header["groups"]] == ["GPU 0", "GPU 1", "Process 5"]
    assert header["curves"] == [
        {
            "group": 0,
            "label": "Memory in use",
            "unit": "bytes",
            "time_ns": [2000, 3000, 5000],
            "value": [5, 7, 2],
            "max": 7,
        },
        {
            "group": 0,
            "label": "Operations in flight",
            "unit": "count",
            "time_ns": [3000, 6000],
            "value": [3, 0],
            "max": 3,
        },
        {"group": 1, "label": "SM Active [Throughput %]", "unit": "pct", "time_ns": [4000], "value": [17], "max": 17},
    ]


def test_the_kv_cache_of_an_engine_is_a_curve_of_its_first_gpu() -> None:
    profile = draw("""
        cpu   .LLLL......
        s7    .....aa....
        s8:1  .....bbbbbb
    """)
    lines = [(-7000, 30.0), (-5000, 10.0), (None, 50.0), (7000, 20.0), (6000, 10.0), (7000, 90.0), (11000, 95.0)]
    log = pd.DataFrame([{"time_ns": time, "engine": 0, "usage_pct": usage} for time, usage in lines])
    tables = {**profile.tables, "kv_cache": conform("kv_cache", log.astype({"time_ns": "Int64"}))}
    (curve,) = decode(timeline_payload(Profile(tables))).header["curves"]
    assert (curve["group"], curve["label"], curve["unit"]) == (0, "KV cache", "pct")
    # from the first kernel, at 5 µs, to the last. The first event is at 1 µs. A line without a change is no point
    assert (curve["time_ns"], curve["value"], curve["max"]) == ([4000, 6000], [10, 90], 90)
    # no line says which GPU another engine has
    several = tables["kv_cache"].assign(engine=[0, 1, 0, 1, 0, 1, 0])
    assert not decode(timeline_payload(Profile({**tables, "kv_cache": several}))).header["curves"]


def test_operations_in_flight_come_down_at_the_end_of_the_window(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    window = Timeline(profile).window
    end = window.end_ns - first_time(profile)
    results = analyze(Timeline(profile))
    thin = curves(profile, results, window=(window.start_ns, window.end_ns), most_points=20)
    header = decode(timeline_payload(profile, results=results)).header
    (whole,) = (curve for curve in header["curves"] if curve["label"] == "Operations in flight")
    (short,) = (curve for curve in thin if curve.label == "Operations in flight")
    assert (whole["time_ns"][-1], whole["value"][-1]) == (end, 0)
    assert (short.time[-1], short.value[-1]) == (end + first_time(profile), 0)
    assert len(short.time) <= 20 < len(whole["time_ns"])
    assert short.value.max() == whole["max"]


@pytest.mark.parametrize(
    ("picture", "name"),
    [
        ("nvtx  [measure ]\ns7   ..aaa", "measure"),
        ("nvtx  [step    ]\ns7   ..aaa", "first to last GPU operation"),
        ("nvtx  [step    ]", "everything recorded"),
    ],
)
def test_the_window_is_called_what_it_is(picture: str, name: str) -> None:
    assert decode(timeline_payload(draw(picture))).header["window_name"] == name


def test_no_page_speaks_of_a_measured_window() -> None:
    assert "measured window" not in render_html(small_report(), draw("s7  aaa")).lower()


def test_a_curve_leaves_out_what_is_no_number_and_keeps_its_maximum() -> None:
    values = np.arange(50_000) % 977 + 0.25
    values[::7] = np.nan
    values[4242] = np.inf
    frame = {"device": [0] * len(values), "time_ns": np.arange(len(values)), "bytes": values}
    profile = draw("s7  aaa")
    (curve,) = decode(timeline_payload(profile, results=[result("memory_over_time", **frame)])).header["curves"]
    finite = values[np.isfinite(values)]
    assert len(curve["time_ns"]) == len(curve["value"]) <= 2000
    assert curve["max"] == max(curve["value"]) == finite.max()
    assert curve["time_ns"] == sorted(curve["time_ns"])
    assert all(np.isfinite(curve["value"]))


def test_a_curve_of_nothing_but_gaps_is_none() -> None:
    nothing = result("memory_over_time", device=[0, 0], time_ns=[0, 1], bytes=[np.nan, np.nan])
    assert decode(timeline_payload(draw("s7  a"), results=[nothing])).header["curves"] == []


def test_the_reports_own_results_are_drawn(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    results = analyze(Timeline(profile))
    header = decode(timeline_payload(profile, results=results)).header
    peak = next(result for result in results if result.name == "memory_over_time").rows["bytes"].max()
    assert {curve["label"]: curve["max"] for curve in header["curves"]}["Memory in use"] == peak
    assert "Operations in flight" in {curve["label"] for curve in header["curves"]}


def test_ranges_of_torch_are_not_called_nvtx(tmp_path: Path) -> None:
    annotation = {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 7, "tid": 7, "ts": 1.0, "dur": 2.0}
    decoded = decode(timeline_payload(read(write(tmp_path, annotation))))
    assert [row["label"] for row in decoded.header["rows"]] == ["Main thread, user ranges"]
