"""What torch.compile compiled, and why: from logs that PyTorch wrote to the advice."""

import json
import lzma
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
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

ROOT = Path(__file__).parents[1]
# of a program with a wait, and one with a print; arguments, a global, data types and a text that change
LOG = Path(__file__).parent / "data/torch/compile_2.13.0.log.xz"
# of tests/planted/programs/compiled.py, four steps each, on a CPU: only what is read
PLANTED = LOG.with_name("planted_2.13.0.log.xz")


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
        "`Tensor.item()` (recompiles.py:5)",
        "`print` (recompiles.py:10)",
    }
    fixes = table[(table["graph_break"] != "") & (table["reason"] == "")].set_index("graph_break")["fix"].to_dict()
    assert fixes["`Tensor.item()` (recompiles.py:5)"] == "keep the value in a tensor: no `.item()` in compiled code"
    assert (table["end_ns"] > table["start_ns"]).all()
    # neither data, nor folders, nor source text
    assert not table.astype("str").apply(lambda column: column.str.contains("secret|home|return")).to_numpy().any()


def test_logs_of_planted_programs_name_the_fault_and_its_fix(tmp_path: Path) -> None:
    table = taken(lzma.decompress(PLANTED.read_bytes()).decode(), tmp_path)
    breaks, again = (table[table[name] != ""] for name in ("graph_break", "reason"))
    assert breaks["graph_break"].tolist() == [
        "`Tensor.item()` (compiled.py:41)",
        *(f"`print` (compiled.py:{line})" for line in (73, 75, 77, 79, 81)),
        *(f"`zlib.crc32` (compiled.py:{line})" for line in (98, 99, 100, 101, 102)),
    ]
    outside = "call `zlib.crc32` outside of compiled code, or wrap it as an operator: torch.library.custom_op"
    assert set(breaks["fix"][6:]) == {outside}
    assert "reorderable_logging_functions" in breaks["fix"].iloc[1]
    assert Counter(zip(again["function"], again["reason"], again["fix"], strict=True)) == {
        ("quantized_by_number, after a graph break (compiled.py:41)", "a value at a graph break changes", ""): 1,
        (
            "attended_one_size (compiled.py:136)",
            "the size of `scores` in dimension 1 changes",
            "torch._dynamo.mark_dynamic(scores, 1)",
        ): 3,
        (
            "forward (compiled.py:167)",
            "the attribute `self.seen` changes",
            "keep it in a tensor (register_buffer), or torch._dynamo.config.allow_unspec_int_on_nn_module = True",
        ): 3,
        (
            "at_global_level (compiled.py:195)",
            "the global `LEVEL` changes",
            "pass `LEVEL` as an argument, or keep its value",
        ): 3,
    }


def broken(*lines: str) -> str:
    """Return an entry of a graph break, as PyTorch writes it (torch/_dynamo/symbolic_convert.py)."""
    prefix, frame = "V1128 11:26:34.333000 6788 a.py:5098]", {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    artifact = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **frame, "has_payload": "2e"}
    payload = "".join(f"\t{line}\n" for line in lines)
    metrics = {"start_time": 1e9, "entire_frame_compile_time_s": 0.1, "co_name": "f", "co_filename": "a.py"}
    compiled = {"compilation_metrics": {**metrics, "co_firstlineno": 1}, **frame}
    return f"{prefix} {json.dumps(artifact)}\n{payload}{prefix} {json.dumps(compiled)}\n"


@pytest.mark.parametrize(
    ("lines", "text", "fix"),
    [
        # what real logs say; without the first one, the cause follows on the same line
        (
            (
                "Graph break in user code at /home/secret/a.py:32",
                "Graph Break Reason: Data-dependent branching",
                "  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`).",
            ),
            "an `if` on the value of a tensor (a.py:32)",
            "torch.where or torch.cond instead of the `if`",
        ),
        # in a library that the program calls, after which Dynamo gives up
        (
            (
                "Graph break in user code at /usr/lib/python3.11/site-packages/torch/_dynamo/polyfills/__init__.py:505",
                "Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling "
                "back to eager. Graph break encountered:",
                "",
                "Unsupported method call",
                "  Explanation: Dynamo does not know how to trace method `__new__` of class `PyCFuncPtrType`",
                "User code traceback:",
                '  File "/home/secret/main.py", line 47, in <module>',
                '  File "/home/secret/a.py", line 24, in unsup',
                '  File "/usr/lib/python3.11/ctypes/__init__.py", line 389, in __getattr__',
                "Traceback (most recent call last):",
                '  File "/home/secret/wrong.py", line 1, in wrapper',
            ),
            "`PyCFuncPtrType` (a.py:24), so all of the function runs as Python",
            "call `PyCFuncPtrType` outside of compiled code, or wrap it as an operator: torch.library.custom_op",
        ),
        (
            (
                "Graph break in user code at /home/secret/a.py:3",
                "Graph Break Reason: Encountered graph break when attempting to trace CALL:",
                "Failed to trace builtin operator",
                "  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types",
                "  Developer debug context: builtin print [<class '...variables.tensor.TensorVariable'>] False",
            ),
            "`print` of a tensor (a.py:3)",
            "print outside of compiled code",
        ),
        (("Graph break in user code at a.py:3", "Something 'secret' new"), "Something ... new (a.py:3)", "move it out"),
        ((), "graph break", "move it out"),
    ],
)
def test_a_graph_break_has_its_cause_its_place_in_the_program_and_its_fix(
    lines: tuple[str, ...], text: str, fix: str, tmp_path: Path
) -> None:
    table = taken(broken(*lines), tmp_path)
    assert table["graph_break"].tolist() == [text]
    assert table["fix"].iloc[0].startswith(fix)


@pytest.mark.parametrize(
    ("reason", "words", "fix"),
    [
        (
            "skipping cudagraphs due to mutated inputs (2 instances). Found from : \n   File secret",
            "inputs are changed in place",
            "mark_static_address",
        ),
        ("skipping cudagraphs due to cpu device (arg0_1). Found from : \n secret", "a part runs on the CPU", "cuda"),
        ("skipping cudagraphs due to multiple devices: device(type='cuda', index=1)", "several devices", "each device"),
        ("skipping cudagraphs due to some new reason. Found from : \n secret", "some new reason.", ""),
        ("skipping cudagraphs due to 'secret'", "...", ""),
    ],
)
def test_cuda_graphs_that_are_skipped_have_their_reason(reason: str, words: str, fix: str, tmp_path: Path) -> None:
    metrics = {"start_time": 1e9, "entire_frame_compile_time_s": 0.5, "co_name": "f", "co_filename": "a.py"}
    metrics |= {"co_firstlineno": 3, "cudagraph_skip_reason": reason}
    line = f'V1128 04:42:48.24 51 a.py:1] {{"compilation_metrics": {json.dumps(metrics)}, "frame_id": 0}}\n'
    table = taken(line, tmp_path)
    assert len(table) == 2
    skipped = table[table["reason"] != ""].iloc[0]
    assert skipped["function"] == "f (a.py:3)"
    assert skipped["reason"].startswith("CUDA graphs are skipped: ")
    assert words in skipped["reason"]
    assert fix in skipped["fix"]
    assert "secret" not in skipped["reason"]
    # it has no time of its own
    assert skipped["start_ns"] == skipped["end_ns"] == table["end_ns"].max()


def warned(*lines: str, when: str = "1128 11:57:58.071000", pid: int = 7285) -> str:
    """Return a warning in the output of a program, as PyTorch writes it."""
    head = f"W{when} {pid} torch/_inductor/cudagraph_utils.py:380] [__cudagraphs]"
    return "".join(f"{head} {line}\n" for line in lines)


def test_cuda_graphs_that_are_skipped_in_calls_are_in_the_output_of_the_program(tmp_path: Path) -> None:
    log = lzma.decompress(LOG.read_bytes()).decode()
    output = tmp_path / "profile.log"
    mutated = "skipping cudagraphs due to mutated inputs (1 instances). Found from : "
    frames = ('   File "/home/secret/a.py", line 12, in forward', "    x.add_(1)")
    library = '   File "/usr/lib/python3.11/site-packages/timm/norm.py", line 3, in norm'
    output.write_text(
        "step 1\n"
        + warned(mutated, *frames, library)
        + "W1128 11:57:58.0 9 torch/x.py:3] other\n"
        + warned("skipping cudagraphs due to cpu device (x)", when="9999 11:57:58.0")
        + warned("skipping cudagraphs due to cpu device (x)", pid=3)
    )
    at = datetime(2026, 11, 28, 12, 0, tzinfo=UTC).astimezone()
    os.utime(output, (at.timestamp(),) * 2)
    table = taken(log, tmp_path)
    skipped = table[table["reason"].astype("str").str.startswith("CUDA graphs are skipped")]
    assert skipped[["pid", "function"]].to_numpy().tolist() == [[7285, "forward (a.py:12)"], [3, "(unknown)"]]
    assert skipped["reason"].iloc[0] == "CUDA graphs are skipped: inputs are changed in place"
    expected = datetime(2026, 11, 28, 11, 57, 58, 71_000).astimezone()
    assert skipped["start_ns"].iloc[0] == skipped["end_ns"].iloc[0] == round(1e9 * expected.timestamp())
    # in jobs, PyTorch writes the rank first
    output.write_text("[rank0]:" + warned(mutated))
    assert taken(log, tmp_path)["reason"].astype("str").str.contains("skipped").sum() == 1
    # at the turn of the year
    at = datetime(2027, 1, 1, 12, 0, tzinfo=UTC)
    output.write_text(warned(mutated, when="1231 23:59:00.0"))
    os.utime(output, (at.timestamp(),) * 2)
    of_last_year = taken(log, tmp_path)
    (start_ns,) = of_last_year["start_ns"][of_last_year["reason"].astype("str").str.contains("skipped")]
    assert start_ns == round(1e9 * datetime(2026, 12, 31, 23, 59).astimezone().timestamp())


def test_a_reason_that_the_log_has_is_not_taken_from_the_output_again(tmp_path: Path) -> None:
    reason = "skipping cudagraphs due to cpu device (x). Found from : "
    metrics = {"start_time": 1e9, "entire_frame_compile_time_s": 0.5, "cudagraph_skip_reason": reason}
    line = f'V1128 04:42:48.24 51 a.py:1] {{"compilation_metrics": {json.dumps(metrics)}, "frame_id": 0}}\n'
    (tmp_path / "profile.log").write_text(warned(reason, pid=51) + warned(reason, pid=52))
    table = taken(line, tmp_path)
    assert table["pid"][table["reason"] != ""].tolist() == [51, 52]


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
        ("0/3: self.calls == 3   # x (HINT: ... allow_unspec_int_on_nn_module = True)", "`self.calls`", "buffer"),
        ("0/0: L['config'].depth == 3", "the value of `config.depth` changes", "as a tensor"),
        ("1/0: ___stack0 == 3.5   # scale = 127 / max(largest, 1e-6)", "a value at a graph break changes", ""),
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
def test_a_guard_is_described_in_words_with_the_code_that_keeps_it(reason: str, words: str, fix: str) -> None:
    explained = explain(reason)
    assert words in explained[0]
    assert fix in explained[1]
    assert "secret" not in "".join(explained)


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
    profile = with_unprofiled(Profile({}, epoch_ns=4_000_000_000), capture)
    assert profile.table("compilations")[["start_ns", "end_ns"]].to_numpy().tolist() == [[1_000_000_000, 2_000_000_000]]
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
    frame = compilations(timeline).frame
    assert frame[["reason", "compilations", "total_ns", "idle_ns"]].to_numpy().tolist() == [
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


def test_planted_programs_break_and_compile_again_as_planted_and_their_fixes_do_not(tmp_path: Path) -> None:
    """With the PyTorch that is installed, on a CPU."""
    names = ("item", "print", "call", "shape", "integer", "global", "addresses")
    tables = {}
    for form in ("bad", "fixed"):
        request = Request(logs=tmp_path / form)
        script = [sys.executable, "-m", "tests.compiled_programs", *(f"compiled_{name}.{form}" for name in names)]
        path = os.pathsep.join(str(ROOT / part) for part in ("", "pipeline"))
        environment = {**os.environ, **compile_log(request), "PYTHONPATH": path}
        subprocess.run(script, check=True, env=environment, capture_output=True, cwd=ROOT)
        tables[form] = take_compile_log(request)["compilations"]
    bad, fixed = tables["bad"], tables["fixed"]
    breaks = bad["graph_break"].astype("str").str.partition(" (")[0]
    assert Counter(breaks[breaks != ""]) == {"`Tensor.item()`": 1, "`print`": 5, "`zlib.crc32`": 5}
    again = Counter(bad["reason"])
    assert [again[f"{what} changes"] for what in CHANGING] == [3, 3, 3]
    assert not fixed["graph_break"].astype("str").any()
    # an integer that is an argument becomes dynamic when it changes for the first time
    assert (fixed["reason"] != "").sum() <= 1


CHANGING = ("the size of `scores` in dimension 1", "the attribute `self.seen`", "the global `LEVEL`")


def test_an_unknown_graph_break_has_no_values_of_the_program(tmp_path: Path) -> None:
    table = taken(broken("cannot trace this: secret=12345, of customer 4111222233334444 'Alice'"), tmp_path)
    assert table["graph_break"].tolist() == ["cannot trace this: secret=..., of customer ... ..."]
