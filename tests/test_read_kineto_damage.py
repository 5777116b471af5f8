"""Traces that are damaged, cut off, mistyped or none at all, and properties that hold for any of them."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError
from nightsight.read.kineto import read_kineto
from tests.kineto import ON_GPU, Event, call, copy, kernel, refusal, write

MINI = Path(__file__).parent / "data" / "mini_torch.json.gz"


@pytest.mark.parametrize(
    "damage",
    [
        {"dur": -1},
        {"dur": None},
        {"dur": float("nan")},
        {"dur": float("inf")},
        {"dur": 1e300},
        {"ts": None},
        {"ts": float("nan")},
        {"ts": float("-inf")},
        {"ts": 0},
        {"ts": -5.5},
        {"ts": 9e15},
    ],
    ids=str,
)
def test_events_without_a_place_in_time_are_left_out_and_counted(tmp_path: Path, damage: Event) -> None:
    profile = read_kineto(write(tmp_path, kernel(), kernel(**damage), kernel(), call()))

    (finding,) = profile.findings
    assert len(profile.tables["kernels"]) == 2
    assert (finding.rule, finding.severity) == ("damaged_events", "warning")
    assert "1 of 3 kernel events" in finding.title


def test_trace_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    assert "has no torch.profiler events" in refusal(write(tmp_path, kernel(dur=-1))).message


@pytest.mark.parametrize(
    "event",
    [
        7,
        None,
        [],
        kernel(cat=["kernel"]),
        kernel(name=7),
        kernel(name=None),
        kernel(name="\ud800"),
        kernel(ts="20.5"),
        kernel(dur=[1]),
        kernel(dur=10**400),
        kernel(args=None),
        kernel(args=[1]),
        kernel(args={}, pid="0"),
        kernel(args={**ON_GPU, "device": "0"}),
        kernel(args={**ON_GPU, "stream": 1.5}),
        kernel(args={**ON_GPU, "stream": 2**64}),
        kernel(args={**ON_GPU, "stream": 2**80}),
        call(pid="44"),
        call(tid=None),
    ],
    ids=lambda event: json.dumps(event)[-60:],
)
def test_wrong_types_are_refused(tmp_path: Path, event: object) -> None:
    error = refusal(write(tmp_path, kernel(), copy(), call(), event))

    assert " is not " in error.message
    assert "export_chrome_trace" in error.hint


@pytest.mark.parametrize(
    ("event", "field", "column"),
    [
        (kernel(args={**ON_GPU, "correlation": True}), "correlation", "correlation"),
        (kernel(args={**ON_GPU, "context": "1"}), "context", "context"),
        (kernel(args={**ON_GPU, "grid": [1, 1]}), "grid", "grid_x"),
        (kernel(args={**ON_GPU, "grid": [1, 1, None]}), "grid", "grid_x"),
        (kernel(args={**ON_GPU, "block": 1}), "block", "block_z"),
        (kernel(args={**ON_GPU, "shared memory": 2**64}), "shared memory", "static_shared_bytes"),
        (copy(bytes=1.5), "bytes", "bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_odd_value_of_a_field_that_can_be_missing_is_unknown_and_reported(
    tmp_path: Path, event: Event, field: str, column: str
) -> None:
    good = {**event, "args": {**ON_GPU, "grid": [4, 5, 6], "block": [1, 2, 3], "shared memory": 9, "bytes": 64}}
    profile = read_kineto(write(tmp_path, good, event, good))

    table = profile.tables["kernels" if event["cat"] == "kernel" else "memory_ops"]
    expected = {"grid_x": 4, "block_z": 3, "static_shared_bytes": 9, "bytes": 64, "correlation": 5, "context": 1}
    assert [None if pd.isna(value) else int(value) for value in table[column]] == [
        expected[column],
        0 if column in ("grid_x", "block_z", "context") else None,
        expected[column],
    ]
    findings = [finding for finding in profile.findings if finding.rule == "unreadable_fields"]
    assert [f"'{field}' (1 x)" in finding.detail for finding in findings] == [True]


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        ("Input Dims", "[[1]]", "shapes"),
        ("Input Dims", [[1.5]], "shapes"),
        ("Input Dims", [[True]], "shapes"),
        ("Input Dims", [[[[1]]]], "shapes"),
        ("Input Dims", [4], "shapes"),
        ("Input Dims", {}, "shapes"),
        ("Input type", "float", "types"),
        ("Input type", [1], "types"),
        ("Concrete Inputs", ["", None], "inputs"),
        ("Sequence number", "5", "sequence"),
        ("Sequence number", 2**64, "sequence"),
        ("Fwd thread id", [], "forward_thread"),
    ],
)
def test_an_odd_argument_of_an_operator_is_unknown_and_reported(
    tmp_path: Path, field: str, value: object, column: str
) -> None:
    event = call(cat="cpu_op", name="aten::mm")
    profile = read_kineto(write(tmp_path, event | {"args": {field: value}}, event | {"args": {}}))

    assert set(profile.tables["cpu_ops"][column].astype("object").fillna("")) == {""}
    (finding,) = profile.findings
    assert f"'{field}' (1 x)" in finding.detail


@pytest.mark.parametrize("damage", [{"id": "5"}, {"id": None}, {"tid": "x"}, {"ts": "soon"}, {"ts": float("nan")}])
def test_a_damaged_arrow_leads_nowhere(tmp_path: Path, damage: Event) -> None:
    forward = call(cat="cpu_op", name="aten::mm", ts=5, args={"Sequence number": 3, "Fwd thread id": 0})
    backward = call(cat="cpu_op", name="MmBackward0", ts=50, tid=46, args={"Sequence number": 3, "Fwd thread id": 1})
    arrows = [
        {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 44, "tid": event["tid"], "ts": event["ts"]}
        for phase, event in (("s", forward), ("f", backward))
    ]
    whole = read_kineto(write(tmp_path, forward, backward, *arrows)).tables["cpu_ops"]
    assert whole["forward_thread"].fillna(-1).tolist() == [-1, forward["tid"]]

    damaged = read_kineto(write(tmp_path, forward, backward, arrows[0] | damage, arrows[1])).tables["cpu_ops"]
    assert damaged["forward_thread"].isna().all()


@pytest.mark.parametrize("properties", [7, {}, [7], [{}], [{"id": 0, "name": 5, "computeMajor": 9, "computeMinor": 0}]])
def test_wrong_device_properties_lose_no_event_and_are_reported(tmp_path: Path, properties: object) -> None:
    profile = read_kineto(write(tmp_path, kernel(), deviceProperties=properties))

    assert len(profile.tables["kernels"]) == 1
    assert [finding.rule for finding in profile.findings] == ["unreadable_fields"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x00\xff\xfe binary", "not JSON"),
        (b"SQLite format 3\x00", "not JSON"),
        (gzip.compress(b"no json", mtime=0), "not JSON"),
        (b"[" * 100_000, "nesting"),
        (b'{"traceEvents": [], "n": ' + b"9" * 5000 + b"}", "number"),
        (b"[]", "has no torch.profiler events"),
        (b"[", "has no torch.profiler events"),
        (b'[{"ph": "X", "cat": "nvtx"}', "has no torch.profiler events, only 1 nvtx"),
        (b"3", "no list 'traceEvents'"),
        (b'{"result": 1}', "no list 'traceEvents'"),
        (b'{"traceEvents": {}}', "no list 'traceEvents'"),
        (b'{"traceEvents": []}', "has no torch.profiler events"),
        (b'{"traceEvents": [{"ph": "X", "cat": "other"}]}', "has no torch.profiler events"),
        (b"\x1f\x8b", "gzip"),
        (b"\x1f\x8b\x08\x00 not deflate at all", "gzip"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)

    assert message in refusal(path).message


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.json").message
    assert "Is a directory" in refusal(tmp_path).message


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("unpack", [False, True])
def test_trace_that_was_cut_off_is_refused(tmp_path: Path, share: float, *, unpack: bool) -> None:
    whole = gzip.decompress(MINI.read_bytes()) if unpack else MINI.read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(len(whole) * share)])

    assert "truncated" in refusal(path).message


def test_names_with_raw_control_characters_and_broken_utf8_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, kernel(name="a-b"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"a-b", b"a\x07\tb\xff"))

    assert list(read_kineto(path).tables["kernels"]["name"]) == ["a\x07\tb\N{REPLACEMENT CHARACTER}"]


# -- properties -------------------------------------------------------------------------------------------------------

TIMES_NS = st.integers(min_value=1, max_value=2**43 * 1000 - 1)
ENTRIES = st.tuples(st.sampled_from(["kernel", "copy", "call", "op", "range"]), TIMES_NS, TIMES_NS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all examples of a property share: each overwrites the last one's file."""
    return tmp_path_factory.mktemp("traces")


def microseconds(nanoseconds: int) -> float:
    """Write a time as Kineto does, with three decimals, and read it as JSON does."""
    return float(f"{nanoseconds // 1000}.{nanoseconds % 1000:03}")


def event_of(kind: str, start_ns: int, duration_ns: int) -> Event:
    times = {"ts": microseconds(start_ns), "dur": microseconds(duration_ns)}
    if kind in ("op", "range"):
        return call(cat={"op": "cpu_op", "range": "user_annotation"}[kind], **times)
    if kind == "older":
        return {"ph": "X", "name": "aten::mm", "pid": "CPU functions", "tid": 1, "args": {}, **times}
    if kind == "wait":
        return kernel(cat="cuda_sync", name="Stream Wait Event", **times)
    return {"kernel": kernel, "copy": copy, "call": call}[kind]() | times


@given(entries=st.lists(ENTRIES, min_size=1, max_size=30))
def test_any_valid_trace_keeps_every_event_to_the_nanosecond(folder: Path, entries: list[tuple[str, int, int]]) -> None:
    profile = read_kineto(write(folder, *(event_of(*entry) for entry in entries)))

    tables = {"kernel": "kernels", "copy": "memory_ops", "call": "api_calls", "op": "cpu_ops", "range": "ranges"}
    for kind, name in tables.items():
        spans = [(start, start + duration) for entry, start, duration in entries if entry == kind]
        table = profile.tables.get(name, pd.DataFrame({"start_ns": [], "end_ns": []}))
        assert list(zip(table["start_ns"], table["end_ns"], strict=True)) == spans
    assert profile.findings == ()


@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"\x1f\x8b\x08", b'{"traceEvents": [', b"["]))
def test_random_bytes_are_refused(folder: Path, content: bytes, start: bytes) -> None:
    path = folder / "random.json"
    path.write_bytes(start + content)

    refusal(path)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
OF_OPERATORS = (
    *("Input Dims", "Input type", "Concrete Inputs", "Sequence number", "Fwd thread id"),
    *("Collective name", "dtype", "In msg nelems", "Process Group Ranks", "Rank"),
)
OF_WAITS = ("wait_on_stream", "wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id")
ARGUMENTS = st.sampled_from(
    [*ON_GPU, *OF_OPERATORS, *OF_WAITS, "inDevice", "grid", "block", "bytes", "finished", "graph node id"]
)


@given(
    fields=st.dictionaries(FIELDS, ANY_JSON, max_size=2),
    arguments=st.dictionaries(ARGUMENTS, ANY_JSON, max_size=2),
    top=st.dictionaries(
        st.sampled_from(["deviceProperties", "baseTimeNanoseconds", "cuda_runtime_version", "schemaVersion"]),
        ANY_JSON,
        max_size=1,
    ),
    kind=st.sampled_from(["kernel", "copy", "call", "op", "range", "wait", "older"]),
)
def test_any_value_in_any_field_is_read_or_refused(
    folder: Path, fields: Event, arguments: Event, top: dict[str, object], kind: str
) -> None:
    event = event_of(kind, 5000, 3000)
    changed = event | {"args": {**event["args"], **arguments}} | fields
    path = write(folder, kernel(), changed, **top)

    try:
        profile = read_kineto(path)
    except CaptureError as error:
        assert error.message.startswith(path.name)
    else:
        assert all(
            (table["end_ns"] >= table["start_ns"]).all() for table in profile.tables.values() if "end_ns" in table
        )
