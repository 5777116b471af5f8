"""Ranges of CUDA graphs on streams: around their kernels in each replay, in the timeline and in the parts of a step."""

import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.ranges.owners import operation_owners
from nightsight.analyze.step_parts import step_parts
from nightsight.events.graph_layers import graph_layers
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.events.window import WHOLE
from nightsight.render.export.perfetto import perfetto_trace
from nightsight.render.export.speedscope import speedscope_profile
from nightsight.render.timeline.rows import lay_events
from tests.graph_recording import ACTIONS, Recording, graphed
from tests.properties import examples
from tests.timeline import draw


def of_two_layers(*, steps: int = 3, streams: tuple[int, int] = (7, 7)) -> Recording:
    """Capture `layer 0` and `layer 1` in `model`, with two kernels each on these streams, and replay them."""
    recording, nodes = Recording(), list[int]()
    recording.call("cudaStreamBeginCapture")
    recording.begin("model")
    for name in ("layer 0", "layer 1"):
        recording.begin(name)
        nodes += [recording.node(), recording.node()]
        recording.end()
    recording.end()
    recording.call("cudaStreamEndCapture")
    for _ in range(steps):
        recording.begin("step")
        launch = recording.call("cudaGraphLaunch")
        for place, node in enumerate(nodes):
            recording.kernel(100, "k", launch, node, stream=streams[place % 2])
        recording.end()
    return recording


@given(ACTIONS, st.integers(1, 3))
@examples(60)
def test_around_a_kernel_are_the_ranges_of_its_capture(actions: list[str | int], steps: int) -> None:
    profile = graphed(actions, steps)
    layers, kernels = graph_layers(profile), profile.table("kernels")
    paths = nested_ranges(profile)["path"].astype("str")
    for kernel, owner in zip(kernels.itertuples(), operation_owners(Timeline(profile)), strict=True):
        is_around = (layers["start_ns"] <= kernel.start_ns) & (layers["end_ns"] >= kernel.end_ns)
        assert ["step", *layers["name"][is_around]] == paths[owner].split(" / ")
    starts, ends = set(kernels["start_ns"]), set(kernels["end_ns"])
    assert set(layers["start_ns"]) <= starts
    assert set(layers["end_ns"]) <= ends


def test_a_range_on_two_streams_lasts_on_each_from_its_own_first_kernel_to_its_last() -> None:
    profile = of_two_layers(steps=1, streams=(7, 8)).profile()
    layers, kernels = graph_layers(profile), profile.table("kernels")
    for stream in (7, 8):
        own = kernels[kernels["stream"] == stream]
        spans = layers[layers["stream"] == stream].set_index("name")[["start_ns", "end_ns"]].to_dict("index")
        each = {
            f"layer {at}": {"start_ns": own["start_ns"].iloc[at], "end_ns": own["end_ns"].iloc[at]} for at in (0, 1)
        }
        assert spans == {"model": {"start_ns": own["start_ns"].min(), "end_ns": own["end_ns"].max()}, **each}


def test_layers_are_above_their_kernels_and_joined_to_the_launch_of_the_graph() -> None:
    events = lay_events(of_two_layers().profile())
    on_gpu = [(row.label, row.kind) for row in events.rows if row.group == "GPU 0"]
    assert on_gpu == [("Stream 7, NVTX", "layer"), ("Stream 7, NVTX (2)", "layer"), ("Stream 7", "kernel")]
    names = [events.labels.names[label] for label in events.label]
    of_row = [names[slice(*events.bounds[row : row + 2])] for row in range(3)]
    assert of_row == [["model"] * 3, ["layer 0", "layer 1"] * 3, ["k"] * 12]
    calls = events.launch[: events.bounds[3]]
    assert {names[call] for call in calls} == {"cudaGraphLaunch"}
    # those of a replay have the same launch as its kernels
    assert calls[:3].tolist() == sorted(set(calls[9:].tolist()))


@pytest.mark.parametrize("most", [1, 2])
def test_with_few_rows_kernels_come_first(most: int) -> None:
    events = lay_events(of_two_layers().profile(), most_rows=2 * most)
    assert [row.label for row in events.rows if row.group == "GPU 0"] == ["Stream 7, NVTX", "Stream 7"][2 - most :]


def test_exports_have_a_track_of_layers_for_each_stream() -> None:
    profile = of_two_layers(steps=2, streams=(7, 9)).profile()
    spans = sorted(graph_layers(profile)[["stream", "start_ns", "end_ns", "name"]].itertuples(index=False, name=None))
    trace = json.loads(gzip.decompress(perfetto_trace(profile)))["traceEvents"]
    rows = {
        event["tid"]: event["args"]["name"] for event in trace if (event["ph"], event["name"]) == ("M", "thread_name")
    }
    origin = min(event["ts"] for event in trace if event["ph"] == "X")
    first = min(int(profile.tables[name]["start_ns"].min()) for name in ("ranges", "api_calls", "kernels"))
    slices = [
        (int(rows[event["tid"]].removesuffix(", NVTX").split()[-1]), event["ts"] - origin, event["dur"], event["name"])
        for event in trace
        if event["ph"] == "X" and rows[event["tid"]].endswith("NVTX")
    ]
    assert sorted(slices) == [
        (stream, pytest.approx((start - first) / 1000), pytest.approx((end - start) / 1000), name)
        for stream, start, end, name in spans
    ]
    profiles = json.loads(speedscope_profile(profile))["profiles"]
    names = [part["name"].rpartition(" [")[0] for part in profiles if "NVTX" in part["name"]]
    assert names == [f"GPU 0, context 1, stream {stream}, NVTX" for stream in (7, 9)]
    assert [len(part["events"]) for part in profiles if "NVTX" in part["name"]] == [12, 12]


def test_a_capture_without_graphs_has_no_layers() -> None:
    profile = draw("nvtx  [step   ]\ncpu   L......\ns7    ..aaa..")
    assert graph_layers(profile).empty
    assert "layer" not in {row.kind for row in lay_events(profile).rows}


def test_idle_time_between_kernels_of_a_graph_belongs_to_the_layer_that_waits() -> None:
    profile = of_two_layers(steps=4).profile()
    parts = step_parts(Timeline.of(replace(profile, window=WHOLE))).frame
    waits = parts[parts["category"] == "launch"].groupby("path")["time_ns"].sum()
    # 10 ns before each kernel, and before the first of a replay that runs after a call, 20 ns
    assert waits.to_dict() == {"step / model / layer #": pytest.approx(4 * 3 * 10 + 3 * 20)}
