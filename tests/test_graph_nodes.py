"""The ranges and operators in which kernels of CUDA graphs were captured, against the same program without graphs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes import kernels
from nightsight.analyze.ranges.owners import operation_owners, range_time
from nightsight.events.graph_nodes import node_origins
from nightsight.events.operators import launching_operators
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Environment, Profile
from nightsight.tables import conform, empty
from tests.properties import examples
from tests.recorded import Recorded

PROCESS, THREAD, OTHER = 1 << 24, (1 << 24) + 1, (1 << 24) + 2
COPY_OF = 1 << 32


@dataclass
class Recording:
    """What a profiler would record of a program that the methods execute, one after the other."""

    now: int = 0
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    open: list[tuple[str, int]] = field(default_factory=list)
    correlation: int = 0
    nodes: int = COPY_OF

    def add(self, table: str, *, thread: int = THREAD, **columns: Any) -> None:
        where = {"process": PROCESS, "thread": thread, "pid": 1, "tid": thread & 3}
        self.rows.setdefault(table, []).append({**where, **columns})

    def tick(self, ns: int = 10) -> int:
        self.now += ns
        return self.now

    def begin(self, name: str) -> None:
        self.open.append((name, self.tick()))

    def end(self) -> None:
        name, start = self.open.pop()
        self.add("ranges", start_ns=start, end_ns=self.tick(), name=name, domain="", style="PushPop", is_open=False)

    def call(self, name: str) -> int:
        self.correlation += 1
        times = {"start_ns": self.tick(), "end_ns": self.tick()}
        self.add("api_calls", **times, name=name, layer="runtime", correlation=self.correlation)
        return self.correlation

    def kernel(self, length: int, name: str, correlation: int, node: int | None = None) -> None:
        start = self.tick()
        times = {"start_ns": start, "end_ns": self.tick(length)}
        sizes = {f"{part}_{axis}": 1 for part in ("grid", "block") for axis in "xyz"}
        where: dict[str, Any] = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "graph_node": node}
        self.add("kernels", **times, **where, **sizes, name=name, short_name=name)

    def node(self, *, original: int | None = None, thread: int = THREAD) -> int:
        self.nodes += 1
        self.add("graph_nodes", thread=thread, start_ns=self.tick(), node=self.nodes, original=None)
        if original is not None:
            self.add("graph_nodes", thread=thread, start_ns=self.tick(1), node=self.nodes, original=original)
        return self.nodes

    def profile(self, *, without: str = "") -> Profile:
        names = ("kernels", "memory_ops", "graph_launches", "api_calls", "ranges", "graph_nodes", "cpu_ops")
        for name, start in reversed(self.open):
            self.add("ranges", start_ns=start, end_ns=self.now, name=name, domain="", style="PushPop", is_open=True)
        frames = {
            name: conform(name, pd.DataFrame(self.rows[name])) if self.rows.get(name) else empty(name)
            for name in names
            if name != without
        }
        return Profile(frames, environment=Environment(collector="nsys"))


def places_of_causes(profile: Profile) -> list[str]:
    """Return the path by which causes group each kernel."""
    codes = kernels._range_paths(Timeline(profile))
    return np.append(nested_ranges(profile)["path"].cat.categories.astype("object"), "")[codes].tolist()  # type: ignore[no-any-return]


def places(profile: Profile) -> list[tuple[str, str]]:
    """Return the path and the name of each kernel."""
    paths = np.append(nested_ranges(profile)["path"].astype("object"), "")[operation_owners(Timeline(profile))]
    return list(zip(paths.tolist(), profile.table("kernels")["name"].tolist(), strict=True))


ACTIONS = st.lists(st.one_of(st.sampled_from(["open a", "open b", "close"]), st.integers(1, 50)), max_size=25)


def execute(recording: Recording, actions: list[str | int], launch: Any) -> None:
    """Open and close ranges, and launch kernels of these lengths."""
    depth = len(recording.open)
    for action in actions:
        if isinstance(action, int):
            launch(action)
        elif action == "close":
            if len(recording.open) > depth:
                recording.end()
        else:
            recording.begin(action[-1])
    while len(recording.open) > depth:
        recording.end()


def eager(actions: list[str | int], steps: int) -> Profile:
    recording = Recording()
    for _ in range(steps):
        recording.begin("step")
        execute(recording, actions, lambda ns: recording.kernel(ns, f"k{ns}", recording.call("cudaLaunchKernel")))
        recording.end()
    return recording.profile()


def graphed(
    actions: list[str | int], steps: int, *, copies: int = 1, around: str = "warm-up", thread: int = THREAD
) -> Profile:
    """Capture once, copy the graph so many times, and replay the last copy in each step."""
    recording, nodes, lengths = Recording(), list[int](), list[int]()
    recording.begin(around)
    recording.call("cudaStreamBeginCapture_v10000")

    def capture(ns: int) -> None:
        lengths.append(ns)
        nodes.append(recording.node(thread=thread))

    execute(recording, actions, capture)
    recording.call("cudaStreamEndCapture_v10000")
    for _ in range(copies):
        recording.nodes = (recording.nodes // COPY_OF + 1) * COPY_OF
        nodes = [recording.node(original=node) for node in nodes]
    recording.end()
    for _ in range(steps):
        recording.begin("step")
        launch = recording.call("cudaGraphLaunch_v10000")
        for node, ns in zip(nodes, lengths, strict=True):
            recording.kernel(ns, f"k{ns}", launch, node)
        recording.end()
    return recording.profile()


def by_path(profile: Profile) -> dict[str, tuple[int, int, int]]:
    """Return kernels, their time and the repetitions of the ranges within steps that have any."""
    table = range_time(Timeline(profile)).frame
    table = table[table["path"].str.startswith("step") & (table["kernels"] > 0)]
    columns = (table[name] for name in ("path", "kernels", "kernel_ns", "instances"))
    return {path: tuple(figures) for path, *figures in zip(*columns, strict=True)}


@given(ACTIONS, st.integers(1, 4), st.integers(0, 3), st.sampled_from([THREAD, OTHER]))
@examples(60)
def test_ranges_have_the_same_kernels_with_and_without_a_graph(
    actions: list[str | int], steps: int, copies: int, thread: int
) -> None:
    """`thread`: the backward pass is captured on a thread without ranges."""
    found, expected = graphed(actions, steps, copies=copies, thread=thread), eager(actions, steps)
    with_kernels = by_path(expected)
    # a range that is open twice without kernels in between is one range with two instances
    assert {path: figures[:2] for path, figures in by_path(found).items()} == {
        path: figures[:2] for path, figures in with_kernels.items()
    }
    assert all(by_path(found)[path][2] <= figures[2] for path, figures in with_kernels.items())
    assert places(found) == places(expected)
    assert places_of_causes(found) == places_of_causes(expected)
    timeline = Timeline(found)
    ranges, owner = nested_ranges(found), operation_owners(timeline)
    assert len(owner) == len(timeline.operations.kind)
    assert (owner < len(ranges)).all()
    inside = ranges[ranges["in_graph"]]
    assert (inside["start_ns"] == inside["end_ns"]).all()
    assert "warm-up" not in "".join(inside["path"].astype("str"))


def replayed(recording: Recording, nodes: list[int]) -> None:
    recording.begin("step")
    launch = recording.call("cudaGraphLaunch")
    for node in nodes:
        recording.kernel(5, "k", launch, node)
    recording.end()


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
