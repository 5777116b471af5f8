"""The ranges and operators in which kernels of CUDA graphs were captured, against the same program without graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes import kernels
from nightsight.analyze.ranges.owners import operation_owners, range_time
from nightsight.events.graph_nodes import node_origins
from nightsight.events.operators import launching_operators
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.graph_recording import ACTIONS, COPY_OF, OTHER, THREAD, Recording, eager, graphed, replayed
from tests.properties import examples
from tests.recorded import Recorded, whole


def places_of_causes(profile: Profile) -> list[str]:
    """Return the path by which causes group each kernel."""
    codes = kernels._range_paths(Timeline(profile))
    return np.append(nested_ranges(profile)["path"].cat.categories.astype("object"), "")[codes].tolist()  # type: ignore[no-any-return]


def places(profile: Profile) -> list[tuple[str, str]]:
    """Return the path and the name of each kernel."""
    paths = np.append(nested_ranges(profile)["path"].astype("object"), "")[operation_owners(Timeline(profile))]
    return list(zip(paths.tolist(), profile.table("kernels")["name"].tolist(), strict=True))


def by_path(profile: Profile) -> dict[str, tuple[int, int, int]]:
    """Return kernels, their time and the repetitions of the ranges within steps that have any."""
    # three equal ranges would be taken for steps, and the window for these alone
    table = range_time(Timeline.of(whole(profile))).frame
    table = table[table["path"].str.startswith("step") & (table["kernels"] > 0)]
    columns = (table[name] for name in ("path", "kernels", "kernel_ns", "instances"))
    return {path: tuple(figures) for path, *figures in zip(*columns, strict=True)}


@given(ACTIONS, st.integers(1, 4), st.integers(0, 3), st.sampled_from([THREAD, OTHER]))
@examples(60)
def test_ranges_have_the_same_kernels_with_and_without_a_graph(
    actions: list[str | int], steps: int, copies: int, thread: int
) -> None:
    """`thread`: the backward pass is captured on a thread without ranges."""
    profile, expected = graphed(actions, steps, copies=copies, thread=thread), eager(actions, steps)
    with_kernels = by_path(expected)
    # a range that is open twice without kernels in between is one range with two instances
    assert {path: figures[:2] for path, figures in by_path(profile).items()} == {
        path: figures[:2] for path, figures in with_kernels.items()
    }
    assert all(by_path(profile)[path][2] <= figures[2] for path, figures in with_kernels.items())
    assert places(profile) == places(expected)
    assert places_of_causes(profile) == places_of_causes(expected)
    timeline = Timeline(profile)
    ranges, owner = nested_ranges(profile), operation_owners(timeline)
    assert len(owner) == len(timeline.operations.kind)
    assert (owner < len(ranges)).all()
    inside = ranges[ranges["in_graph"]]
    assert (inside["start_ns"] == inside["end_ns"]).all()
    assert "warm-up" not in "".join(inside["path"].astype("str"))


def test_a_graph_that_is_launched_outside_of_all_ranges_counts_for_those_of_its_capture() -> None:
    recording = Recording()
    recording.call("cudaStreamBeginCapture_v10000")
    recording.begin("layer")
    node = recording.node()
    recording.end()
    recording.call("cudaStreamEndCapture_v10000")
    recording.kernel(5, "k", recording.call("cudaGraphLaunch"), node)
    table = range_time(Timeline.of(whole(recording.profile()))).frame
    assert table[["path", "kernels", "kernel_ns", "launches"]].to_numpy().tolist() == [["layer", 1, 5, 0]]


def nested(*, after: int, between: int = 0) -> Profile:
    """Replay two graphs in a graph, as nsys records it; nodes that only the outer one has: `after` these, `between`."""
    recording = Recording()
    children = []
    for layer in ("first", "second"):
        recording.call("cudaStreamBeginCapture_v10000")
        recording.begin(layer)
        children.append([recording.node() for _ in range(3)])
        recording.end()
        recording.call("cudaStreamEndCapture_v10000")
        recording.nodes = (recording.nodes // COPY_OF + 1) * COPY_OF
    graph = recording.nodes + COPY_OF
    start = recording.now
    for copy, child in enumerate(children):
        recording.nodes = graph + (copy + 1) * COPY_OF
        for node in child:
            recording.node(original=node)
    # the nodes that stand for the children, in the outer graph: 0 and 1
    outer = [0, 1, *range(8 + between, 8 + between + after)]
    for number in outer:
        recording.nodes = graph + number - 1
        recording.node()
    recording.add(
        "api_calls",
        start_ns=start,
        end_ns=recording.tick(),
        name="cudaGraphInstantiate_v12000",
        layer="runtime",
        correlation=-1,
    )
    replayed(recording, [graph + number for number in range(2, 8)])
    return recording.profile()


@pytest.mark.parametrize("after", [0, 2])
def test_nodes_of_child_graphs_have_the_free_ids_of_the_graph_around_them(after: int) -> None:
    times = by_path(nested(after=after))
    assert times == {"step": (6, 30, 1), "step / first": (3, 15, 1), "step / second": (3, 15, 1)}


def test_nodes_of_child_graphs_are_not_guessed() -> None:
    # one id too many is free
    assert by_path(nested(after=1, between=1)) == {"step": (6, 30, 1)}


def test_a_graph_that_is_built_by_calls_has_the_ranges_opened_since_its_first_node() -> None:
    recording = Recording()
    recording.begin("setup")
    first = recording.node()
    recording.begin("layer")
    second = recording.node()
    recording.end()
    recording.end()
    replayed(recording, [first, second])
    assert by_path(recording.profile()) == {"step": (2, 10, 1), "step / layer": (1, 5, 1)}


def test_an_id_that_is_used_again_is_the_node_made_last_before_the_launch() -> None:
    recording = Recording()
    for name in ("old", "new"):
        recording.call("cudaStreamBeginCapture")
        recording.begin(name)
        recording.nodes = COPY_OF
        node = recording.node()
        recording.end()
        recording.call("cudaStreamEndCapture")
        replayed(recording, [node])
    assert by_path(recording.profile()) == {"step": (2, 10, 2), "step / old": (1, 5, 1), "step / new": (1, 5, 1)}


BEGIN, INSIDE, END = "cudaStreamBeginCapture_v10000", "cudaStreamBeginCaptureToGraph_v12030", "cudaStreamEndCapture"


def looped(*, loops: int, begin: str = BEGIN, has_copies: bool = True) -> Recording:
    """Capture a layer with a conditional node between two kernels, whose body is captured inside, and replay it.

    The GPU launches the kernels of the body, whose correlation id is 0. has_copies: the body is copied like its graph.
    """
    recording = Recording()
    recording.begin("warm-up")
    recording.call(begin)
    recording.begin("layer")
    before, conditional = recording.node(), recording.node()
    recording.call(INSIDE)
    recording.begin("body")
    recording.nodes = 2 * COPY_OF
    inside = recording.node()
    recording.end()
    recording.call(END)
    recording.nodes = conditional
    after = recording.node()
    recording.end()
    recording.call(END)
    recording.nodes = 3 * COPY_OF
    copies = [recording.node(original=node) for node in (before, conditional, after)]
    body = recording.node(original=inside) if has_copies else recording.nodes + 1
    recording.end()
    recording.begin("step")
    launch = recording.call("cudaGraphLaunch")
    recording.kernel(5, "before", launch, copies[0])
    for _ in range(loops):
        recording.kernel(7, "inside", 0, body)
    recording.kernel(5, "after", launch, copies[2])
    recording.end()
    return recording


@pytest.mark.parametrize("begin", [BEGIN, INSIDE])
@pytest.mark.parametrize("loops", [0, 1, 3])
def test_each_time_that_a_body_runs_belongs_to_the_ranges_around_its_condition(loops: int, begin: str) -> None:
    times = by_path(looped(loops=loops, begin=begin).profile())
    of_body = {"step / layer / body": (loops, 7 * loops, 1)} if loops else {}
    assert times == dict.fromkeys(("step", "step / layer"), (2 + loops, 10 + 7 * loops, 1)) | of_body


def test_a_body_without_records_belongs_to_the_launch() -> None:
    pairs = places(looped(loops=2, has_copies=False).profile())
    assert pairs == [("step / layer", "before"), ("step", "inside"), ("step", "inside"), ("step / layer", "after")]


def test_a_capture_whose_end_is_missing_is_not_around_the_next_one() -> None:
    recording = Recording()
    recording.call(BEGIN)
    recording.begin("warm-up")
    recording.call(BEGIN)
    recording.begin("layer")
    node = recording.node()
    recording.end()
    recording.call(END)
    recording.end()
    replayed(recording, [node])
    assert by_path(recording.profile()) == {"step": (1, 5, 1), "step / layer": (1, 5, 1)}


@pytest.mark.parametrize("without", ["graph_nodes", "ranges"])
def test_what_was_made_before_the_recording_belongs_to_the_launch(without: str) -> None:
    recording = Recording()
    replayed(recording, [COPY_OF + 9])
    profile = recording.profile(without=without)
    assert (node_origins(profile).time == -1).all()
    assert not nested_ranges(profile)["in_graph"].any()


def test_copies_of_one_another_end_somewhere() -> None:
    recording = Recording()
    for node, original in ((1, 2), (2, 1)):
        recording.add("graph_nodes", start_ns=recording.tick(), node=COPY_OF + node, original=COPY_OF + original)
    replayed(recording, [COPY_OF + 1])
    assert by_path(recording.profile())["step"] == (1, 5, 1)


def test_operators_of_a_graph_are_those_that_were_captured() -> None:
    recording = Recording()
    recording.call("cudaStreamBeginCapture")
    start = recording.tick()
    node = recording.node()
    recording.add("cpu_ops", start_ns=start, end_ns=recording.tick(), name="aten::mm")
    recording.call("cudaStreamEndCapture")
    for _ in range(2):
        replayed(recording, [node])
    assert launching_operators(Timeline(recording.profile())).tolist() == [0, 0]


def test_nodes_of_a_recorded_graph_have_an_origin(recorded: Recorded) -> None:
    profile = recorded.profile("graph_node")
    origins = node_origins(profile)
    kernels = profile.table("kernels")
    is_node = kernels["graph_node"].notna().to_numpy()
    assert (origins.time >= 0)[: len(kernels)].tolist() == is_node.tolist()
    # 16 nodes, replayed 50 times
    assert len(np.unique(origins.time[origins.time >= 0])) == 16
    begin = profile.table("api_calls").query("name.str.contains('BeginCapture')")["start_ns"].tolist()
    assert np.unique(origins.since[origins.time >= 0]).tolist() == begin
