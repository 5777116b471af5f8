"""Drawn recordings of programs that capture and replay CUDA graphs, and of the same programs without graphs."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from nightsight.model.report import Environment, Profile
from nightsight.tables import conform, empty

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

    def kernel(self, length: int, name: str, correlation: int, node: int | None = None, *, stream: int = 7) -> None:
        start = self.tick()
        times = {"start_ns": start, "end_ns": self.tick(length)}
        sizes = {f"{part}_{axis}": 1 for part in ("grid", "block") for axis in "xyz"}
        where: dict[str, Any] = {
            "device": 0,
            "context": 1,
            "stream": stream,
            "correlation": correlation,
            "graph_node": node,
        }
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


def replayed(recording: Recording, nodes: list[int]) -> None:
    recording.begin("step")
    launch = recording.call("cudaGraphLaunch")
    for node in nodes:
        recording.kernel(5, "k", launch, node)
    recording.end()
