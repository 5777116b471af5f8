"""What torch.compile compiled, and why: from logs that PyTorch wrote to the advice."""

import json
import lzma
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.compilations import compilations
from nightsight.captures import unprofiled_file
from nightsight.collect.compilations import compilations_of, compile_log, explain, take_compile_log
from nightsight.collect.workloads import Request
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.render.page.html import render_html
from nightsight.runs.unprofiled import to_text, with_unprofiled
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.timeline import draw

# of a program with a wait, and one with a print; arguments, a global, data types and a text that change
LOG = Path(__file__).parent / "data/torch/compile_2.13.0.log.xz"


def taken(text: str, folder: Path) -> pd.DataFrame:
    """Take the compilations of a run that left this log."""
    request = Request(logs=folder)
    (log,) = (Path(path) for path in compile_log(request).values())
    log.mkdir(parents=True)
    (log / "dedicated_log_torch_trace_a.log").write_text(text)
    table = take_compile_log(request)["compilations"]
    # it holds source text
    assert not log.exists()
    return table


def test_a_log_of_pytorch_says_what_was_compiled_again_and_why(tmp_path: Path) -> None:
    table = taken(lzma.decompress(LOG.read_bytes()).decode(), tmp_path)
    assert Counter(zip(table["function"], table["reason"], strict=True)) == {
        ("scale (recompiles.py:3)", ""): 1,
        ("scale (recompiles.py:3)", "the size of `x` in dimension 0 changes"): 3,
        ("scale, after a graph break (recompiles.py:5)", ""): 1,
        ("scale, after a graph break (recompiles.py:5)", "the value of `k` changes"): 3,
        ("weigh (recompiles.py:7)", ""): 1,
        ("weigh (recompiles.py:7)", "the global `FACTOR` changes"): 2,
        ("shape (recompiles.py:9)", ""): 1,
        ("shape, after a graph break (recompiles.py:10)", ""): 1,
        ("shape, after a graph break (recompiles.py:10)", "the dtype of `x` changes"): 2,
        ("shape, after a graph break (recompiles.py:10)", "the requires_grad of `x` changes"): 1,
        ("flag (recompiles.py:19)", ""): 1,
        ("flag (recompiles.py:19)", "the value of `mode` changes"): 2,
    }
    breaks = set(table["graph_break"]) - {""}
    assert breaks == {
        "Unsupported Tensor.item() call with capture_scalar_outputs=False (recompiles.py:5)",
        "Failed to trace builtin operator (recompiles.py:10)",
    }
    assert (table["end_ns"] > table["start_ns"]).all()
    # neither data, nor folders, nor source text
    assert not table.astype("str").apply(lambda column: column.str.contains("secret|home|return")).to_numpy().any()


def event(name: str, phase: str, ms: float, compiled: str = "0/0") -> str:
    """Return an event as PyTorch writes it (torch/_dynamo/utils.py, ChromiumEventLogger)."""
    line = 'V1128 04:48:01.708000 7285 torch/_dynamo/utils.py:2350] {"chromium_event": {}, "has_payload": "7"}'
    payload = {"name": name, "ts": 1e12 + 1000 * ms, "args": {"compile_id": compiled}, "ph": phase, "tid": 0, "pid": 0}
    return f"{line}\n" + "".join(f"\t{part}\n" for part in json.dumps(payload, indent=0).splitlines())


def test_cuda_graphs_that_are_recorded_again_and_tuned_kernels(tmp_path: Path) -> None:
    log = lzma.decompress(LOG.read_bytes()).decode()
    record, tune = "CUDAGraphNode.record", "CachingAutotuner.benchmark_all_configs"
    log += event(record, "B", 1) + event(tune, "B", 2) + event(tune, "E", 5) + event(record, "E", 9)
    log += (
        event(record, "B", 10) + event(record, "E", 12) + event(record, "B", 13, "9/9") + event(record, "E", 14, "9/9")
    )
    # without a beginning, damaged, and of another kind
    log += event(record, "E", 20) + event(record, "B", 21).replace('"ts"', '"t"') + event("dynamo", "B", 22)
    table = taken(log, tmp_path)
    table = table[table["reason"].astype("str").str.startswith("its ")]
    assert (table["end_ns"] - table["start_ns"]).div(10**6).tolist() == [8, 3, 2, 1]
    assert table["function"].tolist() == ["scale (recompiles.py:3)"] * 3 + ["(unknown)"]
    assert [reason.partition(":")[0] for reason in table["reason"]] == [
        "its CUDA graph is recorded",
        "its kernels are tuned",
        "its CUDA graph is recorded again",
        "its CUDA graph is recorded",
    ]
    assert ["mark_static_address" in fix for fix in table["fix"]] == [False, False, True, False]


@pytest.mark.parametrize(
    ("reason", "words", "fix"),
    [
        ("", "", ""),
        ("0/0: tensor 'x' size mismatch at index 1. expected 3, actual 6", "dimension 1 changes", "mark_dynamic(x, 1)"),
        (
            "0/0: tensor 'L['x']' stride mismatch at index 0. expected 1, actual 4",
            "the stride of `x`",
            "x.contiguous()",
        ),
        ("0/0: tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), actual", "dispatch key set", "same"),
        ("2/0: G['FACTOR'] == 1   # return x * FACTOR", "the global `FACTOR` changes", "as an argument"),
        ("0/0: L['n'] == 4", "the value of `n` changes", "as a tensor"),
        ("0/0: L['mode'] == 'secret'", "the value of `mode` changes", "as a tensor"),
        ("0/0: 2 <= L['x'].size()[0] <= 9", "the shape of `x` changes", "maybe_mark_dynamic(x, DIMENSION)"),
        ("0/0: len(L['xs']) == 3", "the value of `xs` changes", "as a tensor"),
        ("0/0: ___check_type_id(L['self'], 12345)", "another guard fails", ""),
        ("0/0: GLOBAL_STATE changed: grad_mode", "a mode of PyTorch changes", "one function for each mode"),
        (
            "0/0: tensor 'L['xs'][0]' size mismatch at index 0. expected 3, actual 6",
            "`xs[0]`",
            "mark_dynamic(xs[0], 0)",
        ),
        ("\u0000\n'", "another guard fails", ""),
    ],
)
def test_a_guard_is_told_in_words_with_the_code_that_keeps_it(reason: str, words: str, fix: str) -> None:
    found = explain(reason)
    assert words in found[0]
    assert fix in found[1]
    assert "secret" not in "".join(found)


@given(st.text(max_size=80), st.sampled_from(["compilation_metrics", "dynamo_graph_break_reason", "artifact"]))
@examples(60)
def test_damaged_logs_have_no_compilations(text: str, entry: str) -> None:
    assert len(explain(text)) == 2
    lines = f'V1128 04:42:48.24 51 a.py:1] {{"{entry}": {text}}}', f'V1128 04:42 x a.py:1] {{"{entry}"}}', text
    with TemporaryDirectory() as folder:
        assert len(taken("\n".join(lines), Path(folder))) == 0


@pytest.mark.parametrize("start", ["1e999", "NaN", "-5", "1e12", '"soon"', "null", "[]"])
def test_impossible_times_are_left_out(start: str, tmp_path: Path) -> None:
    metrics = f'{{"start_time": {start}, "entire_frame_compile_time_s": 0.1}}'
    line = f'V1128 04:42:48.24 51 a.py:1] {{"compilation_metrics": {metrics}, "frame_id": 0}}\n'
    assert len(taken(line, tmp_path)) == 0
    assert len(taken(line.replace(start, "1e9"), tmp_path)) == 1


def test_times_are_those_of_the_capture(tmp_path: Path) -> None:
    rows = [{"start_ns": 5_000_000_000, "end_ns": 6_000_000_000, "pid": 1, "function": "f (a.py:1)"}]
    table = compilations_of([{**rows[0], "reason": "", "fix": "", "graph_break": ""}])
    capture = tmp_path / "train.sqlite"
    unprofiled_file(capture).write_text(to_text({"compilations": table}))
    found = with_unprofiled(Profile({}, epoch_ns=4_000_000_000), capture)
    assert found.table("compilations")[["start_ns", "end_ns"]].to_numpy().tolist() == [[1_000_000_000, 2_000_000_000]]
    # a capture without a date
    assert "compilations" not in with_unprofiled(Profile({}), capture).tables


def compiled(spans: list[tuple[int, int, str]]) -> pd.DataFrame:
    """Return compilations of one function that take these µs."""
    return compilations_of(
        [
            {"start_ns": 1000 * start, "end_ns": 1000 * end, "pid": 1, "function": "f (a.py:1)", "reason": reason}
            | {"fix": "fix()" if reason else "", "graph_break": ""}
            for start, end, reason in spans
        ]
    )


def test_compilations_of_a_window_cost_the_time_in_which_no_gpu_works() -> None:
    drawn = draw("cpu  L.........L.........\ns7   .aaaa......bb.......")
    table = compiled([(5, 6, ""), (3, 9, "x changes"), (10, 14, "x changes"), (99, 120, "x changes")])
    timeline = Timeline(Profile({**drawn.tables, "compilations": table}))
    found = compilations(timeline).frame
    assert found[["reason", "compilations", "total_ns", "idle_ns"]].to_numpy().tolist() == [
        ["x changes", 2, 10_000, 6000],
        ["", 1, 1000, 1000],
    ]


def test_the_page_shows_names_in_reasons_as_code() -> None:
    drawn = draw("cpu  L.........L.........\ns7   .aaaa......bb.......")
    table = compiled([(3, 9, "the size of `x` in dimension 0 changes")])
    profile = Profile({**drawn.tables, "compilations": table})
    page = render_html(build_report(profile, "train"), profile)
    assert "the size of <code>x</code> in dimension 0 changes" in page
    assert "the size of `x`" not in page.partition("<script")[0]


def test_pytorch_writes_the_log_that_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "@torch.compile(backend='eager', dynamic=False)\n"
        "def double(x): return x * 2\n"
        "double(torch.ones(3)), double(torch.ones(4))\n"
    )
    request = Request(logs=tmp_path / "log")
    began = time.time_ns()
    subprocess.run([sys.executable, str(script)], check=True, env={**os.environ, **compile_log(request)})
    table = take_compile_log(request)["compilations"]
    assert table["function"].tolist() == ["double (train.py:2)"] * 2
    assert table["reason"].tolist() == ["", "the size of `x` in dimension 0 changes"]
    assert (table["start_ns"] > began).all()
    assert (table["end_ns"] < time.time_ns()).all()


def test_a_program_with_its_own_log_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_log(Request())
    # nothing is loaded into the program
    assert not compile_log(Request(names=()))
    monkeypatch.setenv("TORCH_TRACE", "/somewhere")
    assert not compile_log(Request(keep_env=("TORCH_TRACE",)))
