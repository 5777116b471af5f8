"""Kernels of CUDA graphs in traces of torch.profiler belong to what `mark_kernels` calls their nodes.

No GPU here has a driver for `mark_kernels`: traces are written as torch 2.13 to 2.15 do (`export_chrome_trace`, and
`torch.cuda._annotate_cuda_graph_trace` before it).
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.ranges.owners import range_time
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.read.kineto_events import node_label
from nightsight.render.timeline.rows import lay_events
from nightsight.workflows.analysis import build_report
from tests.kineto import ON_GPU, Event, call, kernel, write
from tests.properties import examples
from tests.test_graph_nodes import places

GRAPH = 2
NODE = GRAPH << 32


def replay(number: int, *labels: object, ids: list[dict[str, int]] | None = None, name: str = "k") -> list[Event]:
    """Return a step, the launch of a graph in it, and its kernels with these arguments."""
    start = 1_000.0 * (number + 1)
    ids = ids or [{"graph node id": NODE + place} for place in range(len(labels))]
    step = call(cat="user_annotation", name="ProfilerStep#1", ts=start, dur=900.0, args={})
    launch = call(name="cudaGraphLaunch", ts=start + 1, args={"correlation": number + 1})
    kernels = [
        kernel(
            name=name,
            ts=start + 50 + 10 * place,
            args={**ON_GPU, "correlation": number + 1, **node, **(label if isinstance(label, dict) else {})},
        )
        for place, (label, node) in enumerate(zip(labels, ids, strict=True))
    ]
    return [step, launch, *kernels]


def steps(folder: Path, *labels: object, count: int = 3, **options: Any) -> Profile:
    events = [event for number in range(count) for event in replay(number, *labels, **options)]
    return read(write(folder, *events))


@pytest.mark.parametrize(
    "form",
    [
        lambda label: {"annotation": label},
        lambda label: {"annotation": {"name": label, "stream": 7}},
        lambda label: {"annotation": [{"name": "model"}, {"name": label}]},
        lambda label: {"name": label, "stream": 7},
        lambda label: {"module_fqn": label},
        lambda label: {"annotation": {"module_fqn": label}},
    ],
)
def test_replayed_kernels_belong_to_the_label_of_their_node(tmp_path: Path, form: Any) -> None:
    profile = steps(tmp_path, form("attention"), form("attention"), {}, form("mlp"))
    replayed = ["ProfilerStep / attention", "ProfilerStep / attention", "ProfilerStep", "ProfilerStep / mlp"]
    assert [path for path, _ in places(profile)] == 3 * replayed
    table = range_time(Timeline(profile)).frame
    assert dict(zip(table["path"], table["kernels"], strict=True)) == {
        "ProfilerStep": 12,
        "ProfilerStep / attention": 6,
        "ProfilerStep / mlp": 3,
    }
    assert [row.label for row in lay_events(profile).rows][:2] == ["Stream 7, user ranges", "Stream 7"]
    # labels are not ranges of the CPU
    assert profile.table("ranges")["name"].unique().tolist() == ["ProfilerStep"]


def test_work_of_the_backward_pass_is_apart(tmp_path: Path) -> None:
    forward, backward = {"name": "mlp"}, {"name": "mlp", "autograd_phase": "backward"}
    names = [path for path, _ in places(steps(tmp_path, forward, backward, count=1))]
    assert names == ["ProfilerStep / mlp", "ProfilerStep / mlp (backward)"]


def test_halves_of_an_id_are_joined(tmp_path: Path) -> None:
    """Two graphs have nodes of the same number."""
    halves = [{"graph id": 2, "graph node id": 3}, {"graph id": 4, "graph node id": 3}]
    profile = steps(tmp_path, {"name": "a"}, {"name": "b"}, ids=halves, count=2)
    assert profile.table("kernels")["graph_node"].tolist() == [(2 << 32) + 3, (4 << 32) + 3] * 2
    assert [path for path, _ in places(profile)] == ["ProfilerStep / a", "ProfilerStep / b"] * 2


def test_a_node_with_two_labels_has_none(tmp_path: Path) -> None:
    """Its id was used again, and nothing says when."""
    events = [*replay(0, {"name": "a"}, {"name": "b"}), *replay(1, {"name": "a"}, {"name": "c"})]
    paths = [path for path, _ in places(read(write(tmp_path, *events)))]
    assert paths == ["ProfilerStep / a", "ProfilerStep"] * 2


def test_names_of_arguments_outside_of_graphs_are_no_labels(tmp_path: Path) -> None:
    profile = read(write(tmp_path, call(), kernel(args={**ON_GPU, "name": "a", "graph node id": 0})))
    assert profile.graphs is None
    assert profile.table("kernels")["graph_node"].isna().all()


def test_a_page_is_made_of_such_a_trace(tmp_path: Path) -> None:
    profile = steps(tmp_path, {"name": "attention"}, {"name": "mlp"}, count=6)
    parts = build_report(profile, "graphs").result("step_parts").rows
    assert {"ProfilerStep / attention", "ProfilerStep / mlp"} <= set(parts.query("group == 'busy'")["path"])


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["name", "x"]), inner)),
    max_leaves=6,
)
KEYS = st.sampled_from(["annotation", "name", "module_fqn", "autograd_phase", "graph id", "graph node id"])


@given(st.dictionaries(KEYS, VALUES))
@examples(200)
def test_any_arguments_have_a_label_or_none(fields: dict[str, Any]) -> None:
    label = node_label(fields)
    assert label is None or label.strip()


@given(st.lists(st.dictionaries(KEYS, VALUES), min_size=1, max_size=3))
@examples(40)
def test_any_arguments_can_be_read(tmp_path_factory: pytest.TempPathFactory, arguments: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    events = [call(), *(kernel(ts=20.0 + 5 * place, args={**ON_GPU, **some}) for place, some in enumerate(arguments))]
    # integers may be of any size, which JSON writes and SQL types refuse
    profile = read(write(folder, *json.loads(json.dumps(events))))
    assert len(places(profile)) == len(arguments)
