"""How a trace comes out of its file: packed or not, as an object or a list, and never more of it than is allowed."""

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from nightsight.cli import report, stats
from nightsight.errors import CaptureError
from nightsight.read import MOST_BYTES, read
from nightsight.read.chrome import read_document
from tests.kineto import call, kernel, refusal, write

EVENTS = [kernel(), call()]
CASES = Path(__file__).parent / "data" / "cases"


def test_the_most_that_is_read_is_what_the_help_says() -> None:
    defaults = {
        option.default for command in (report, stats) for option in command.params if option.name == "max_input"
    }
    assert defaults == {MOST_BYTES}


@pytest.mark.parametrize("content", [b"[" + b"{}," * 20_000_000, b" " * 60_000_000], ids=["objects", "blanks"])
def test_a_small_gzip_of_a_large_trace_is_refused_before_it_is_in_memory(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(content, 9, mtime=0))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(CaptureError, match="uncompressed, it has more than 5,000,000 bytes") as caught:
        read(path, most_bytes=5_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
    assert "--max-input" in caught.value.hint


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_exactly_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path, *, packed: bool) -> None:
    path = write(tmp_path, *EVENTS)
    size = path.stat().st_size
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    assert len(read(path, most_bytes=size).tables["kernels"]) == 1
    with pytest.raises(CaptureError, match="is too large"):
        read(path, most_bytes=size - 1)


@pytest.mark.parametrize("command", [("report",), ("stats", "-r", "cuda_gpu_kern_sum")])
def test_the_command_line_sets_the_limit(tmp_path: Path, run: Callable[..., Result], command: tuple[str, ...]) -> None:
    path = write(tmp_path, *EVENTS)
    refused = run(*command, path, "--max-input", 100, expect=3)
    assert "trace.json is too large: it has more than 100 bytes" in refused.output
    run(*command, path, "--max-input", path.stat().st_size)


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ("[", ""), ("[", ","), ("\n [", ",\n"), ("[", " \n")])
@pytest.mark.parametrize("packed", [False, True])
def test_a_list_of_events_is_a_trace_whether_it_was_closed_or_not(
    tmp_path: Path, before: str, after: str, *, packed: bool
) -> None:
    path = tmp_path / "list.json"
    text = before + ",\n".join(map(json.dumps, EVENTS)) + after
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())
    tables = read(path).tables
    assert [len(tables[name]) for name in ("kernels", "api_calls")] == [1, 1]


def test_a_list_that_was_cut_inside_an_event_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(EVENTS)[:-20])
    assert "truncated" in refusal(path).message


def case(folder: Path, name: str) -> Path:
    """Return a trace that somebody had trouble with."""
    path = folder / name.removesuffix(".xz")
    packed = (CASES / name).read_bytes()
    path.write_bytes(lzma.decompress(packed) if name.endswith(".xz") else packed)
    return path


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("05a_backslash.json.xz", "Unescaped backslashes are kept (in 1 string). The first is on"),
        ("05c_na.json.xz", "Invalid values, such as N/A, count as unknown (30 x). The first is on line 1, "),
        ("05d_nan.json.xz", "Invalid values, such as inf, count as unknown (30 x). The first is on line 1, "),
    ],
)
def test_what_kineto_wrote_that_is_not_json_is_read_with_a_warning(tmp_path: Path, name: str, detail: str) -> None:
    profile = read(case(tmp_path, name))
    assert [len(profile.tables[table]) for table in ("kernels", "ranges")] == [30, 3]
    (finding,) = (finding for finding in profile.findings if finding.rule == "mended_json")
    assert finding.severity == "warning"
    assert finding.detail.startswith(detail)


def test_only_what_is_not_json_is_mended(tmp_path: Path) -> None:
    event = call(name="D:NAME", args={"correlation": 5, "note": "a: N/A, inf"})
    written = json.dumps({"schemaVersion": 1, "traceEvents": [event, kernel()]})
    path = tmp_path / "windows.json"
    path.write_text(
        written.replace("NAME", r"\prof\run\new.py\\x\"y").replace('"stream": 7', '"stream": 7, "x": [-nan(ind), 1e5]')
    )
    document, _ = read_document(path, 10_000)
    assert document["traceEvents"][0] == event | {"name": 'D:\\prof\\run\\new.py\\x"y'}
    assert document["traceEvents"][1]["args"]["x"] == [None, 100000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": [\n{"ph": "X"} {"ph": "X"}]}', "is not JSON on line 2, column 13: Expecting ',' delimiter"),
        (
            '{"traceEvents": [{"a": -inf, "b": N/A,\n"c": N/A, "d" 1}]}',
            "is not JSON on line 2, near null, \"d\" 1}]}: Expecting ':' delimiter",
        ),
        ('{"traceEvents": [\n{"ph": "X"},\n', "is truncated: it ends on line 3 in the middle of its JSON"),
        ('{"traceEvents": [{"ph": N/A, "name": "void k', "is truncated: it ends on line 1 in the middle of its JSON"),
        ('{"a":' * 200_000, "cannot be read: its nesting or a number is too large"),
    ],
    ids=["wrong", "mended and wrong", "cut", "cut in a name", "deep"],
)
def test_a_trace_that_is_cut_is_distinguished_from_one_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert refusal(path).message == f"trace.json {message}"


def test_a_real_trace_that_was_cut_says_so(tmp_path: Path) -> None:
    assert "is truncated" in refusal(case(tmp_path, "05f_cut.json.xz")).message


_EVENTS = {"name": "k", "ph": "X", "ts": 1, "dur": 2, "tid": 0}


@pytest.mark.parametrize(
    ("name", "text", "who", "hint"),
    [
        ("14_jax.json.gz", "", "jax.profiler", "--collector nsys"),
        ("04_npu_array.json.xz", "", "Ascend", "MindStudio"),
        ("04b_npu_object.json.xz", "", "Ascend", "MindStudio"),
        ("p.hatchet", json.dumps([{"frame": {"name": "ROOT"}, "metrics": {}, "children": []}]), "Proton", "nsys"),
        (
            "p.chrome_trace",
            2 * (json.dumps({"traceEvents": [_EVENTS | {"cat": "kernel", "args": {"call_stack": ["ROOT"]}}]}) + "\n"),
            "Proton",
            "nsys",
        ),
        (
            "ncclprof.json",
            '[\n{"name": "Send", "cat": "P2P_API", "ph": "b", "id": 0, "pid": 9, "tid": 1, "ts": 0.0, "args": '
            '{"datatype": ncclFloat32, "Stream": 0x4142e90}},\n',
            "NCCL",
            "torch.profiler",
        ),
    ],
)
def test_traces_of_other_profilers_are_named_with_what_to_do(
    tmp_path: Path, name: str, text: str, who: str, hint: str
) -> None:
    path = tmp_path / name
    if text:
        path.write_text(text)
    else:
        path = case(tmp_path, name)
    error = refusal(path)
    assert who in error.message
    assert error.message.endswith(", which nightsight cannot read")
    assert hint in error.hint
    assert "export_chrome_trace" not in error.hint
