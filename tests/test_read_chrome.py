"""How a trace comes out of its file: packed or not, as an object or a list, and never more of it than is allowed."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from nightsight.cli import report, stats
from nightsight.errors import CaptureError
from nightsight.read import MOST_BYTES, read
from tests.kineto import call, kernel, refusal, write

EVENTS = [kernel(), call()]


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
    with pytest.raises(CaptureError, match="unpacked it has more than 5,000,000 bytes") as caught:
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
