"""Operators as torch's own `key_averages` gives them, for recorded traces of several versions and drawn ones."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.operators import kernel_operators, operators, shapes
from nightsight.events.operators import launching_operators, nested_operators
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.tables import conform
from tests.gpu.key_averages import FIGURES
from tests.kineto import Event, call, kernel, write
from tests.recorded import whole

DATA = Path(__file__).parent / "data" / "kineto"
EXACT = ("2.4.1", "2.13.0")
# of these, a trace has whole microseconds only
ROUNDED = ("1.13.1", "2.0.1")
# recorded on a GPU
WITH_GPU = "2.11.0"
# it ends on another thread than it begins on, which no trace tells; torch gives it no own time
ASYNCHRONOUS = "sums"


def table(profile: Profile) -> dict[str, tuple[int, int, int]]:
    frame = operators(Timeline(profile)).frame
    columns = (frame[name].tolist() for name in ("name", "calls", "total_ns", "own_ns"))
    return {name: (calls, total_ns, own_ns) for name, calls, total_ns, own_ns in zip(*columns, strict=True)}


# -- torch's own figures ----------------------------------------------------------------------------------------------


def of_torch(version: str, *, by_shape: bool) -> dict[Any, dict[str, float]]:
    """Return the rows of key_averages, by name or by name and shapes."""
    with (DATA / f"ops_{version}.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if bool(row["shapes"]) is by_shape]
    figures = ("count", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "flops")
    return {
        (row["key"], str(json.loads(row["shapes"]))) if by_shape else row["key"]: {
            name: float(row[name]) for name in figures
        }
        for row in rows
    }


def recorded(version: str) -> Timeline:
    # torch's own figures are of all that was recorded
    return Timeline(whole(read(DATA / f"ops_{version}.json.gz")))


def as_torch_writes(shapes: str) -> str:
    """Return shapes with lists of tensors as torch's tables have them: as if they were no tensor."""
    return str([[] if shape and isinstance(shape[0], list) else shape for shape in json.loads(shapes)])


@pytest.mark.parametrize("version", EXACT)
@pytest.mark.parametrize("by_shape", [False, True])
def test_all_figures_of_operators_are_those_of_torch(version: str, *, by_shape: bool) -> None:
    result = (shapes if by_shape else operators)(recorded(version))
    frame, expected = result.frame, of_torch(version, by_shape=by_shape)
    if by_shape:
        keys = [frame["name"].astype("str"), frame["shapes"].astype("str").map(as_torch_writes).rename("key")]
        frame = frame.groupby(keys).sum(numeric_only=True)
    else:
        frame = frame.set_index("name")

    assert len(frame) > 80
    assert result.notes == ()
    other_memory = 0
    for key, row in frame.iterrows():
        torch, name = expected[key], key[0] if isinstance(key, tuple) else key
        assert row["calls"] == torch["count"]
        assert row["total_ns"] == pytest.approx(torch["cpu_time_total"] * 1000, abs=0.5)
        assert row["flops"] == torch["flops"]
        if name != ASYNCHRONOUS:
            assert row["own_ns"] == pytest.approx(torch["self_cpu_time_total"] * 1000, abs=0.5)
            memory = row["memory_bytes"], row["own_memory_bytes"]
            other_memory += memory != (torch["cpu_memory_usage"], torch["self_cpu_memory_usage"])
    # torch 2.4 converts times to microseconds and back, and so loses some allocations at the very end of an operator
    assert other_memory <= (0.05 * len(frame) if version == "2.4.1" else 0)


@pytest.mark.parametrize("version", ROUNDED)
def test_operators_in_whole_microseconds_are_those_of_torch_as_far_as_the_trace_tells(version: str) -> None:
    timeline, expected = recorded(version), of_torch(version, by_shape=False)
    nested = nested_operators(timeline)
    children = np.bincount(nested.parent[nested.parent >= 0], minlength=len(nested.row))[nested.row >= 0]
    names = timeline.profile.table("cpu_ops")["name"].astype("str").to_numpy()[nested.row[nested.row >= 0]]
    inside = pd.Series(children).groupby(names).sum().to_dict()
    result = operators(timeline)
    rows = [row for row in result.frame.to_dict("records") if row["name"] != ASYNCHRONOUS]

    assert len(rows) > 80
    assert "stride and padding" in result.notes[0]
    others = []
    for row in rows:
        name, torch = row["name"], expected[row["name"]]
        is_same = (
            row["calls"] == torch["count"]
            and abs(row["total_ns"] - 1000 * torch["cpu_time_total"]) <= 1000 * row["calls"]
            and abs(row["own_ns"] - 1000 * torch["self_cpu_time_total"]) <= 1000 * (row["calls"] + inside[name])
            # the trace of these versions has no strides
            and (pd.isna(row["flops"]) if name == "aten::conv2d" else row["flops"] == torch["flops"])
        )
        others += [] if is_same else [name]
    # torch rounds durations on their own, so that for it a child may end after its parent, and is none
    assert len(others) <= 0.1 * len(rows)


def test_all_figures_of_operators_with_gpu_work_are_those_of_torch_apart_from_what_it_counts_too_much() -> None:
    timeline = recorded(WITH_GPU)
    frame = operators(timeline).frame.set_index("name")
    with (DATA / f"ops_{WITH_GPU}.csv").open(newline="") as file:
        expected = {row["key"]: row for row in csv.DictReader(file) if not row["shapes"]}
    differences = {
        (name, ours): round(float(expected[name][theirs] or 0) * unit - float(row[ours]))
        for name, row in frame.iterrows()
        for ours, theirs, unit in FIGURES
        if name != ASYNCHRONOUS and abs(float(expected[name][theirs] or 0) * unit - float(row[ours])) >= 1
    }
    with gzip.open(DATA / f"ops_{WITH_GPU}.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    convolutions = [event for event in events if event["name"] == "aten::cudnn_convolution"]
    links = {event["args"]["External id"] for event in convolutions}
    of_device = [event for event in events if event.get("args", {}).get("External id") in links]
    # torch adds what a stream waits for another: no work of the operator
    waits = sum(event["dur"] for event in of_device if event["cat"] == "cuda_sync")
    # and it takes the profiler's own overhead for an operator in the first call, with that call's kernel once more
    first = convolutions[0]
    (overhead,) = [
        event["dur"]
        for event in events
        if event.get("cat") == "overhead" and first["ts"] < event["ts"] < first["ts"] + first["dur"]
    ]
    (kernel,) = [
        event["dur"]
        for event in of_device
        if event["cat"] == "kernel" and event["args"]["External id"] == first["args"]["External id"]
    ]
    around = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")

    assert len(frame) > 80
    assert differences == {
        **{(name, "device_ns"): round(1000 * (waits + kernel)) for name in around},
        ("aten::cudnn_convolution", "own_device_ns"): round(1000 * waits),
        ("aten::cudnn_convolution", "own_ns"): -round(1000 * overhead),
    }


@pytest.mark.parametrize("version", [*EXACT, *ROUNDED, WITH_GPU])
def test_operators_in_the_format_that_autograd_had_before_kineto_are_those_of_torch(version: str) -> None:
    with (DATA / f"events_{version}.csv").open(newline="") as file:
        expected = {row["key"]: row for row in csv.DictReader(file)}
    profile = read(DATA / f"events_{version}.json.gz")
    figures = table(profile)

    assert len(figures) > 60
    assert profile.findings == ()
    assert set(profile.table("ranges")["name"]) >= {"forward", "backward"}
    for name, (calls, total_ns, own_ns) in figures.items():
        torch = expected[name]
        assert calls == int(torch["count"])
        assert total_ns == pytest.approx(float(torch["cpu_time_total"]) * 1000, abs=calls)
        if name != ASYNCHRONOUS:
            assert own_ns == pytest.approx(float(torch["self_cpu_time_total"]) * 1000, abs=2 * calls)


def test_calls_and_times_of_recorded_operators_are_those_of_torch() -> None:
    with (DATA / "recursive.key_averages.csv").open(newline="") as file:
        expected = {
            row["name"]: (int(row["calls"]), round(float(row["total_us"]) * 1000), round(float(row["own_us"]) * 1000))
            for row in csv.DictReader(file)
        }
    assert expected["aten::div"][0] == 8
    assert (pd.Series(read(DATA / "recursive.json.gz").tables["cpu_ops"]["name"]) == "aten::div").sum() == 10
    assert table(read(DATA / "recursive.json.gz")) == expected


def test_calls_and_times_of_operators_are_those_of_the_torch_that_is_here(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        values = torch.randn(16, 16, requires_grad=True)
        ((values.sum() / 3).mean() * 2).backward()
        with torch.profiler.record_function("mine"):
            torch.nn.functional.linear(values, values).to(torch.float64)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    figures = table(read(tmp_path / "trace.json"))
    events = {event.key: event for event in profiler.key_averages() if event.key in figures}
    assert "aten::div" in events
    assert {name: calls for name, (calls, _, _) in figures.items()} == {name: events[name].count for name in figures}
    for name, (_, total_ns, own_ns) in figures.items():
        assert total_ns == pytest.approx(events[name].cpu_time_total * 1000, abs=1)
        assert own_ns == pytest.approx(events[name].self_cpu_time_total * 1000, abs=1)


# -- drawn traces -----------------------------------------------------------------------------------------------------


def operator(name: str, start: float, duration: float, **changes: object) -> Event:
    return call(cat="cpu_op", name=name, ts=start, dur=duration, args={}) | changes


@pytest.mark.parametrize(
    ("inside", "calls", "total_ns"),
    [
        ([], 1, 20_000),
        ([operator("aten::mul", 12, 8)], 1, 20_000),
        ([operator("aten::mul", 12, 8), operator("aten::mul", 13, 4)], 1, 20_000),
        # a second child of any kind makes the inner one a call of its own
        ([operator("aten::mul", 12, 8), operator("aten::to", 21, 2)], 2, 28_000),
        ([operator("aten::mul", 12, 8), call(ts=21, dur=2)], 2, 28_000),
        ([operator("aten::mul", 12, 8), operator("mine", 21, 2, cat="user_annotation")], 2, 28_000),
        ([operator("aten::to", 12, 8), operator("aten::mul", 13, 4)], 2, 24_000),
        ([operator("aten::mul", 12, 8, tid=46)], 2, 28_000),
    ],
)
def test_an_operator_that_only_calls_itself_is_one_call(
    tmp_path: Path, inside: list[Event], calls: int, total_ns: int
) -> None:
    figures = table(read(write(tmp_path, operator("aten::mul", 11, 20), *inside)))
    assert figures["aten::mul"][:2] == (calls, total_ns)
    assert sum(own for _, _, own in figures.values()) <= 28_000


def test_an_empty_operator_at_the_end_of_another_is_outside(tmp_path: Path) -> None:
    figures = table(read(write(tmp_path, operator("aten::mul", 11, 20), operator("aten::mul", 31, 0))))

    assert figures["aten::mul"] == (2, 20_000, 20_000)


def test_operators_that_torch_leaves_out_are_left_out(tmp_path: Path) -> None:
    inside = [operator("aten::is_leaf", 12, 5), operator("aten::to", 13, 2)]
    figures = table(read(write(tmp_path, operator("aten::mul", 11, 20), *inside)))

    assert figures == {"aten::mul": (1, 20_000, 18_000), "aten::to": (1, 2_000, 2_000)}


def launch(start: float, number: int, **changes: object) -> Event:
    return call(ts=start, dur=1, args={"correlation": number}) | changes


def on_gpu(start: float, duration: float, number: int) -> Event:
    return kernel(ts=start, dur=duration, args={"device": 0, "stream": 7, "correlation": number})


def test_time_on_the_gpu_belongs_to_the_launching_operator_and_to_those_around_it(tmp_path: Path) -> None:
    events = [
        operator("aten::linear", 10, 30),
        operator("aten::addmm", 12, 10),
        call(cat="user_annotation", name="mine", ts=24, dur=10, args={}),
        operator("aten::relu", 25, 8),
        *(launch(time, number) for number, time in enumerate((13, 26, 36, 50))),
        *(on_gpu(100 + 10 * number, number + 1, number) for number in range(4)),
    ]
    frame = operators(Timeline(read(write(tmp_path, *events)))).frame.set_index("name")

    assert frame["own_device_ns"].to_dict() == {"aten::linear": 3000, "aten::addmm": 1000, "aten::relu": 2000}
    assert frame["device_ns"].to_dict() == {"aten::linear": 6000, "aten::addmm": 1000, "aten::relu": 2000}
    # calls and ranges are no own time, as for torch
    assert frame["own_ns"].to_dict() == {"aten::linear": 9_000, "aten::addmm": 9_000, "aten::relu": 7_000}


def test_kernels_of_the_backward_pass_belong_to_the_operator_and_module_of_the_forward_pass(tmp_path: Path) -> None:
    forward = {"Sequence number": 7, "Fwd thread id": 0}
    events = [
        call(cat="user_annotation", name="nn.Module: layers.3", ts=10, dur=30, args={}),
        call(cat="python_function", name="a.py(7): step", ts=10, dur=30, args={}),
        operator("aten::linear", 11, 20, args=forward),
        operator("aten::addmm", 12, 10, args=forward),
        launch(13, 1),
        operator("AddmmBackward0", 60, 20, args={"Sequence number": 7, "Fwd thread id": 1}, tid=46),
        operator("aten::mm", 61, 10, tid=46),
        launch(62, 2, tid=46),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 44, "tid": 45, "ts": 12},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 44, "tid": 46, "ts": 60, "bp": "e"},
        on_gpu(100, 1, 1),
        on_gpu(110, 2, 2),
        on_gpu(120, 3, 99),
    ]
    frame = kernel_operators(Timeline(read(write(tmp_path, *events)))).frame

    named = frame[["operator", "forward", "module", "function", "total_ns"]].to_numpy().tolist()
    assert named == [
        ["", "", "", "", 3000],
        ["aten::mm", "aten::addmm", "layers.3", "step (a.py:7)", 2000],
        ["aten::addmm", "", "layers.3", "step (a.py:7)", 1000],
    ]


@pytest.mark.parametrize("name", ["adam_loop", "normalization"])
def test_every_kernel_has_the_operator_that_kineto_links_it_with(name: str) -> None:
    profile, events = read(DATA / f"{name}.json.gz"), events_of(DATA / f"{name}.json.gz")
    ids = {event["args"]["External id"]: event["name"] for event in events if event.get("cat") == "cpu_op"}
    linked = [ids.get(event["args"].get("External id"), "") for event in events if event.get("cat") == "kernel"]
    names = np.append(profile.table("cpu_ops")["name"].to_numpy(dtype=object), "")

    assert names[launching_operators(Timeline(profile))[: len(linked)]].tolist() == linked
    assert len(set(linked)) > 5


def events_of(path: Path) -> list[Event]:
    rows: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return rows


def test_allocations_belong_to_all_operators_that_run(tmp_path: Path) -> None:
    def allocation(start: float, size: int, device: int) -> Event:
        fields = {"Bytes": size, "Device Id": device, "Device Type": int(device >= 0), "Total Allocated": 9000}
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 44,
            "tid": 45,
            "ts": start,
            "args": fields,
        }

    events = [
        operator("aten::linear", 10, 30),
        operator("aten::addmm", 12, 10),
        operator("aten::relu", 30, 8, tid=46),
        allocation(11, 100, -1),
        allocation(13, 1000, -1),
        allocation(14, 7, 0),
        allocation(31, -30, -1),
    ]
    frame = operators(Timeline(read(write(tmp_path, *events)))).frame.set_index("name")

    names = ["aten::linear", "aten::addmm", "aten::relu"]
    assert frame["memory_bytes"][names].tolist() == [1070, 1000, -30]
    assert frame["own_memory_bytes"][names].tolist() == [70, 1000, -30]
    assert frame["device_memory_bytes"][names].tolist() == [7, 7, 0]
    assert frame["own_device_memory_bytes"][names].tolist() == [0, 7, 0]


# stride, padding, dilation and groups
STRIDED = ["", "", "", "[2, 1]", "[1, 0]", "[1, 2]", "2"]


@pytest.mark.parametrize(
    ("name", "sizes", "inputs", "flops"),
    [
        ("aten::mm", [[3, 4], [4, 5]], [], 2 * 3 * 4 * 5),
        ("aten::addmm", [[5], [3, 4], [4, 5]], [], 2 * 3 * 4 * 5),
        ("aten::bmm", [[7, 3, 4], [7, 4, 5]], [], 7 * 2 * 3 * 4 * 5),
        ("aten::baddbmm", [[1], [7, 3, 4], [7, 4, 5]], [], 7 * 2 * 3 * 4 * 5),
        ("aten::mul", [[3, 4], []], [], 12),
        ("aten::add", [[], [3, 4]], [], 1),
        ("aten::conv2d", [[2, 4, 8, 9], [6, 2, 3, 3], [6]], STRIDED, 2 * 2 * 4 * 5 * 9 * 4 * 6 // 2),
        ("aten::relu", [[3, 4]], [], 0),
        # what no such operator can have
        ("aten::mm", [[3, 4]], [], 0),
        ("aten::mm", [[3, 0], [0, 4]], [], 0),
        ("aten::mm", [[[3, 4]], [[4, 5]]], [], 0),
        ("aten::conv2d", [[2, 4, 8], [6, 2, 3]], [], 0),
        ("aten::conv2d", [[2, 4, 8, 9], [6, 2, 3, 3]], ["", "", "", "[0, 0]", "[1, 1]", "[1, 1]", "1"], 0),
        ("aten::conv2d", [[2, 4, 8, 9], [6, 2, 3, 3]], ["", "", "", "[1, 1]", "same", "[1, 1]", "1"], 0),
        ("aten::conv2d", [[2, 4, 8, 9], [6, 2, 3, 3]], ["", ""], 0),
    ],
)  # fmt: skip
def test_floating_point_operations_are_computed_from_shapes(
    tmp_path: Path, name: str, sizes: list[list[int]], inputs: list[str], flops: int
) -> None:
    fields = {"Input Dims": sizes, **({"Concrete Inputs": inputs} if inputs else {})}
    frame = operators(Timeline(read(write(tmp_path, operator(name, 5, 3, args=fields))))).frame

    assert frame["flops"].tolist() == [flops]


def test_without_shapes_there_are_no_operators_by_shape_and_that_is_reported(tmp_path: Path) -> None:
    result = shapes(Timeline(read(write(tmp_path, operator("aten::mm", 5, 3)))))

    assert result.frame.empty
    assert "record_shapes=True" in result.notes[0]


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 8), st.sampled_from("ab"), st.integers(0, 1)), max_size=14
    )
)
def test_operators_nest_as_torch_nests_them(spans: list[tuple[int, int, str, int]]) -> None:
    rows = [
        {"start_ns": start, "end_ns": start + length, "name": name, "thread": thread, "process": 1, "pid": 1, "tid": 1}
        for start, length, name, thread in spans
    ]
    columns = ["start_ns", "end_ns", "name", "thread", "process", "pid", "tid"]
    nested = nested_operators(Timeline(Profile({"cpu_ops": conform("cpu_ops", pd.DataFrame(rows, columns=columns))})))
    expected = as_torch_nests(rows)

    own = nested.without_children(nested.end - nested.start)
    assert {int(row): int(time) for row, time in zip(nested.row, own, strict=True)} == expected


def as_torch_nests(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Return the own time of each row: a stack, as in `EventList._populate_cpu_children`."""
    own = {number: row["end_ns"] - row["start_ns"] for number, row in enumerate(rows)}
    for thread in {row["thread"] for row in rows}:
        stack: list[int] = []
        of_thread = [number for number, row in enumerate(rows) if row["thread"] == thread]
        for number in sorted(of_thread, key=lambda number: (rows[number]["start_ns"], -rows[number]["end_ns"])):
            start, end = rows[number]["start_ns"], rows[number]["end_ns"]
            while stack and (start >= rows[stack[-1]]["end_ns"] or end > rows[stack[-1]]["end_ns"]):
                stack.pop()
            if stack:
                own[stack[-1]] -= end - start
            stack.append(number)
    return own
