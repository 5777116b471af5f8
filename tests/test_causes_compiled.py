"""Causes in code of torch.compile, on drawn captures: the reason in PyTorch's log is joined to where time is lost."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nightsight.advise import NEEDS, advise
from nightsight.analyze import ANALYSES
from nightsight.analyze.causes.simulation import simulate
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Profile
from nightsight.results.program import GRAPH_RECORDED, GRAPH_RECORDED_AGAIN, GRAPHS_SKIPPED, SKIPS_FUNCTION
from nightsight.tables import conform
from tests.program import Body, Call, Copy, Graph, Host, Kernel, Sync, Thread, captured, repeated, within

STEPS = 12
ITEM = "`Tensor.item()` (train.py:31)"
PRINT = "`print` (train.py:33)"
ITEM_FIX = "keep the value in a tensor: no `.item()` in compiled code"
SKIPPED = f"{GRAPHS_SKIPPED}a part runs on the CPU"
# a compiled layer with `.item()` between its kernels
LAYER: Body = (
    Kernel(150, name="triton_red_fused_abs_amax_0"),
    Copy("D", 4),
    Sync(7),
    Host(60),
    Kernel(100, name="triton_poi_fused_mul_1"),
)
EAGER: Body = (Kernel(150), Copy("D", 4), Sync(7), Host(60), Kernel(100))
PARTS: Body = (Graph(4, 5), Host(40)) * 6


def row(start_ns: int, end_ns: int, pid: int, **texts: str) -> dict[str, object]:
    """Return one row of the table `compilations`."""
    usual = {"function": "forward (train.py:30)", "reason": "", "fix": "", "graph_break": ""}
    return {"start_ns": start_ns, "end_ns": end_ns, "pid": pid, **usual, **texts}


def logged(profile: Profile, *rows: dict[str, object]) -> Profile:
    return replace(profile, tables={**profile.tables, "compilations": conform("compilations", pd.DataFrame(rows))})


def pid_of(profile: Profile) -> int:
    (pid,) = profile.table("api_calls")["pid"].unique()
    return int(pid)


def broken(body: Body, **texts: str) -> Profile:
    """Return steps with this body, whose function was compiled before them."""
    profile = captured(*repeated(STEPS, body))
    pid = pid_of(profile)
    recorded = row(0, 2, pid, reason=GRAPH_RECORDED)
    return logged(
        profile, row(0, 1, pid, **texts), *([recorded] if any(isinstance(part, Graph) for part in body) else [])
    )


def advised(profile: Profile) -> Sequence[Finding]:
    timeline = Timeline(profile)
    return tuple(advise([analysis.run(timeline) for analysis in ANALYSES if analysis.entry in NEEDS]))


def first(profile: Profile) -> Finding:
    """Return the first advice on a capture."""
    findings = advised(profile)
    assert findings
    return findings[0]


def sampled(profile: Profile, stack: str) -> Profile:
    """Add a sample with this stack each 20 µs."""
    calls = profile.table("api_calls")
    times = np.arange(0, int(calls["end_ns"].max()), 20_000)
    facts = {name: int(calls[name].iloc[0]) for name in ("process", "thread", "pid", "tid")}
    samples = pd.DataFrame({"start_ns": times, **facts, "function": stack.rpartition(";")[2], "stack": stack})
    return replace(profile, tables={**profile.tables, "python_samples": conform("python_samples", samples)})


def test_a_wait_in_compiled_code_is_its_graph_break() -> None:
    finding = first(broken(LAYER, graph_break=ITEM, fix=ITEM_FIX))
    assert finding.rule in {"wait", "wait_and_host_code"}
    assert f", at a graph break by {ITEM}: " in finding.title
    assert finding.remedy.startswith("Keep the value in a tensor: no `.item()` in compiled code. ")
    assert "Python runs in between" in finding.detail


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        # no kernel of torch.compile is near
        (EAGER, {"graph_break": ITEM}),
        # at this break, nothing waits for the GPU
        (LAYER, {"graph_break": PRINT}),
        # skipped CUDA graphs make no waits
        (LAYER, {"reason": SKIPPED}),
        (LAYER, {}),
    ],
)
def test_a_wait_elsewhere_is_none(body: Body, texts: dict[str, str]) -> None:
    finding = first(broken(body, **texts))
    assert finding.rule in {"wait", "wait_and_host_code"}
    assert "graph break" not in finding.title
    assert "torch.compile" not in finding.title


def test_a_break_of_another_process_is_none() -> None:
    profile = captured(*repeated(STEPS, LAYER))
    others = [row(0, 1, pid_of(profile) + number, graph_break=ITEM) for number in (1, 2)]
    assert "graph break" not in first(logged(profile, *others)).title
    # a log of one process is that of the only process, whatever its number elsewhere
    assert "graph break" in first(logged(profile, others[0])).title


@pytest.mark.parametrize(
    ("stack", "is_inside"),
    [
        ("main (train.py:80);[compile_wrapper (eval_frame.py:736)];forward (train.py:31)", True),
        ("main (train.py:80);torch_dynamo_resume_in_forward_at_31 (train.py:31)", True),
        ("main (line 80);forward (line 31)", True),
        # the loss that the loop reads, after a compiled model and before the next one
        ("main (train.py:80)", False),
        ("main (train.py:80);forward (other.py:31)", False),
        ("main (train.py:80);old_forward (train.py:31)", False),
    ],
)
def test_samples_show_whether_a_wait_is_in_the_function_that_breaks(stack: str, is_inside: bool) -> None:
    finding = first(sampled(broken(LAYER, graph_break=ITEM), stack))
    assert ("graph break" in finding.title) == is_inside


def test_of_several_breaks_the_one_whose_line_was_sampled_comes_first() -> None:
    profile = broken(LAYER)
    pid = pid_of(profile)
    other = "`Tensor.tolist()` (train.py:39)"
    rows = [row(number, number + 1, pid, graph_break=text) for number, text in enumerate((ITEM, other, ITEM))]
    assert f"by {ITEM}: " in first(logged(profile, *rows)).title
    finding = first(sampled(logged(profile, *rows), "main (train.py:80);forward (train.py:39)"))
    assert f"by {other}: " in finding.title
    assert f" Also: {ITEM}." in finding.detail


def test_short_host_code_between_the_cuda_graphs_of_a_broken_function_is_its_break() -> None:
    profile = broken(PARTS, graph_break=PRINT)
    finding = first(profile)
    assert (finding.rule, f"at a graph break by {PRINT}" in finding.title) == ("host_code", True)
    # in six parts of 20 µs, nothing is left to wait for but launches
    simulation = simulate(Timeline(profile))
    assert simulation.unprofiled_ns - (finding.gain_ns or 0) / STEPS == pytest.approx(6 * 20_000, rel=0.6)
    assert finding.action == "remove the graph break"
    # PyTorch asks whether the stream is captured before each launch, after its host code
    asking: Body = (Host(40), Call("cudaStreamIsCapturing_v10000", 1), Graph(4, 5)) * 6
    asked = first(broken(asking, graph_break=PRINT))
    assert asked.rule == finding.rule
    assert asked.gain_pct == pytest.approx(finding.gain_pct, rel=0.1)
    # other launches come before each of these graphs
    mixed = broken((Kernel(20), Host(40), *PARTS[:2]) * 6, graph_break=PRINT)
    assert "host_code" not in {gain.remedy.rule for gain in simulate(Timeline(mixed)).gains}
    whole = simulate(Timeline(broken(PARTS)))
    assert "host_code" not in {gain.remedy.rule for gain in whole.gains}


def test_long_host_code_between_compiled_functions_needs_samples_to_be_at_a_break() -> None:
    loading: Body = (Kernel(100, name="triton_poi_fused_mul_0"), Host(3000))
    profile = broken(loading, graph_break=PRINT)
    assert "graph break" not in first(profile).title
    assert "graph break" in first(sampled(profile, "main (train.py:80);forward (train.py:33)")).title
    assert "graph break" not in first(sampled(profile, "main (train.py:80);load (train.py:9)")).title


def test_launches_are_not_many_because_of_a_graph_break() -> None:
    finding = first(broken((Kernel(3, name="triton_poi_fused_add_0"), Host(6)) * 40, graph_break=PRINT))
    assert finding.rule == "launch_bound"
    assert "graph break" not in finding.title


def test_launches_that_follow_a_wait_at_a_graph_break_are_slow_because_of_it() -> None:
    """As in a layer that takes the largest value for its scale: each part launches a few kernels."""
    launches: Body = (Host(10), Kernel(6, name="triton_poi_fused_mul_1")) * 4
    body = (*launches, Copy("D", 2), Sync(7)) * 8
    finding = first(broken(body, graph_break=ITEM, fix=ITEM_FIX))
    assert finding.rule == "launch_bound"
    assert f"(32 per step), at a graph break by {ITEM}: " in finding.title
    assert finding.remedy.startswith("Keep the value in a tensor: no `.item()` in compiled code. ")
    # one wait in a step is not why its launches are slow
    rare = first(broken((*launches * 8, Copy("D", 2), Sync(7)), graph_break=ITEM, fix=ITEM_FIX))
    assert (rare.rule, "graph break" in rare.title) == ("launch_bound", False)


def test_a_function_that_torch_compile_gives_up_is_reported_to_run_as_python() -> None:
    finding = first(broken(LAYER, graph_break=ITEM + SKIPS_FUNCTION))
    assert f"by {ITEM}: " in finding.title
    assert "cannot continue after it, so all of the function runs as Python" in finding.detail


def test_launches_of_a_function_without_its_cuda_graphs_have_the_reason() -> None:
    body = (Kernel(3, name="triton_poi_fused_add_0"), Host(6)) * 40
    finding = first(broken(body, reason=SKIPPED, fix='create its tensors on the GPU (device="cuda")'))
    assert finding.rule == "launch_bound"
    assert ", because a part runs on the CPU: " in finding.title
    assert 'device="cuda"' in finding.remedy
    assert "torch.compile makes no CUDA graph of it" in finding.detail
    # a warning may not say of which function
    finding = first(
        sampled(broken(body, reason=SKIPPED, function="(unknown)"), "main (train.py:80);forward (train.py:31)")
    )
    assert ", because a part runs on the CPU: " in finding.title


def compiled_in_steps(body: Body, reason: str, fix: str) -> Profile:
    """Return steps that begin with work of torch.compile: all that comes before the kernel."""
    profile = captured(*repeated(STEPS, body))
    ranges = profile.table("ranges")
    starts = ranges["start_ns"].to_numpy()[ranges["name"] == "step"]
    (length,) = {sum(part.us for part in body if isinstance(part, Host | Call)) * 1000}
    rows = [row(start, start + round(length), pid_of(profile), reason=reason, fix=fix) for start in starts.tolist()]
    return logged(profile, *rows)


def test_what_is_compiled_again_is_reported_with_its_reason_and_its_time() -> None:
    """Without samples of Python, and without loads: the log alone."""
    reason, fix = "the size of `x` in dimension 1 changes", "torch._dynamo.mark_dynamic(x, 1)"
    profile = compiled_in_steps((Host(5_000), Kernel(1000)), reason, fix)
    finding = first(profile)
    assert finding.rule == "compilation"
    assert finding.title.startswith(f"Code is compiled while the program runs in `step`, because {reason}: 4.0")
    assert f"torch.compile compiled `forward (train.py:30)` again in {STEPS} of {STEPS} steps" in finding.detail
    assert finding.remedy.startswith(f"{fix}. ")
    assert first(
        replace(profile, tables={**profile.tables, "compilations": profile.table("compilations")[:0]})
    ).rule == ("host_code")


def test_what_a_new_recording_of_a_cuda_graph_does_around_it_is_part_of_it() -> None:
    """It waits for the GPU first, and its log of it comes last: only samples of Python show that."""
    record: Body = (
        Sync(None),
        Host(500),
        Kernel(2, name="copies inputs"),
        Host(200),
        Call("cudaStreamBeginCapture", 5),
        Host(1_000),
        Call("cudaStreamEndCapture", 5),
        Call("cudaGraphInstantiate", 300),
        Host(400),
        Graph(4, 50),
    )
    profile = captured(*repeated(STEPS, (Kernel(600), *record, Host(4_000))))
    calls = profile.table("api_calls")
    begins, ends = (
        calls[side][calls["name"].astype("str") == name].to_numpy()
        for side, name in (("start_ns", "cudaStreamBeginCapture"), ("end_ns", "cudaGraphInstantiate"))
    )
    rows = [
        row(start, end, pid_of(profile), reason=GRAPH_RECORDED_AGAIN) for start, end in zip(begins, ends, strict=True)
    ]
    finding = first(logged(profile, *rows))
    # without samples, what follows could be the program's own work
    assert finding.rule == "wait_and_host_code"
    stack = "train (train.py:9);__call__ (output_code.py:658);finish (metrics_context.py:245);"
    logging = sampled(logged(profile, *rows), f"{stack}record_compilation_metrics (utils.py:1777)")
    finding = first(logging)
    assert finding.rule == "compilation"
    # all but the kernels and their launches: 0.5 + 0.2 + 1.0 + 0.3 + 0.4 + 4 ms, and the wait
    assert finding.title.startswith("torch.compile records a CUDA graph again in `step`: 6.")


def test_cuda_graphs_that_are_recorded_again_are_reported_though_other_captures_stay() -> None:
    record: Body = (
        Call("cudaStreamBeginCapture", 5),
        Host(2_000),
        Call("cudaStreamEndCapture", 5),
        Host(500),
        Call("cudaGraphInstantiate", 300),
    )
    profile = compiled_in_steps((*record, Kernel(400)), GRAPH_RECORDED_AGAIN, "copy inputs")
    finding = first(profile)
    assert finding.rule == "compilation"
    assert finding.title.startswith("torch.compile records a CUDA graph again in `step`: 2.4")
    assert (finding.remedy, finding.action) == ("Copy inputs.", "keep inputs at the same addresses")
    # the program's own captures of graphs are its work
    without = replace(profile, tables={**profile.tables, "compilations": profile.table("compilations")[:0]})
    assert max((gain.gain_ns for gain in simulate(Timeline(without)).gains), default=0) < 1_000_000


def test_a_short_compilation_is_not_why_others_take_long() -> None:
    """Triton compiles for 20 ms in each step, torch.compile for 0.1 ms once."""
    profile = captured(*repeated(STEPS, (Host(20_000), Call("cuLibraryLoadData", 300), Kernel(500))))
    reason = "the size of `x` in dimension 0 changes"
    finding = first(logged(profile, row(1_000_000, 1_100_000, pid_of(profile), reason=reason)))
    assert (finding.rule, "because" in finding.title) == ("compilation", False)


def test_code_of_the_program_between_its_wait_and_a_recording_is_its_own() -> None:
    body: Body = (
        Kernel(100),
        Sync(None),
        Host(20_000),
        Call("cudaStreamBeginCapture", 5),
        Host(400),
        Call("cudaStreamEndCapture", 5),
        Graph(4, 50),
    )
    profile = captured(*repeated(STEPS, body))
    calls = profile.table("api_calls")
    begins, ends = (
        calls[side][calls["name"].astype("str") == name].to_numpy()
        for side, name in (("start_ns", "cudaStreamBeginCapture"), ("end_ns", "cudaStreamEndCapture"))
    )
    rows = [
        row(start, end, pid_of(profile), reason=GRAPH_RECORDED_AGAIN) for start, end in zip(begins, ends, strict=True)
    ]
    compilation = [
        gain.gain_ns for gain in simulate(Timeline(logged(profile, *rows))).gains if gain.remedy.rule == "compilation"
    ]
    assert max(compilation, default=0) < STEPS * 1_000_000


def test_of_several_compiled_functions_none_is_named_without_samples() -> None:
    other = {"function": "prepare (setup.py:3)"}
    for body in (PARTS, LAYER):
        profile = broken(body, graph_break=ITEM)
        table = conform("compilations", pd.DataFrame([row(0, 1, pid_of(profile), **other)]))
        tables = {"compilations": conform("compilations", pd.concat([profile.table("compilations"), table]))}
        plain = replace(profile, tables={**profile.tables, **tables})
        assert all("graph break" not in finding.title for finding in advised(plain))
    samples = sampled(plain, "main (train.py:80);forward (train.py:31)")
    assert "graph break" in first(samples).title


def test_another_function_of_that_name_has_no_graph_break() -> None:
    profile = broken(LAYER, graph_break=ITEM)
    assert "graph break" not in first(sampled(profile, "main (train.py:80);forward (train.py:150)")).title


def test_a_thread_whose_samples_show_other_code_does_not_compile() -> None:
    profile = captured(*repeated(STEPS, (Host(4_000), Kernel(500))))
    whole = logged(profile, row(0, int(profile.table("api_calls")["end_ns"].max()), pid_of(profile)))
    assert first(whole).rule == "compilation"
    assert first(sampled(whole, "main (train.py:80);load (train.py:9)")).rule == "host_code"


@pytest.mark.parametrize(("reason", "ends"), [("", True), ("the size of `x` in dimension 1 changes", False)])
def test_what_is_compiled_for_the_first_time_ends(reason: str, *, ends: bool) -> None:
    """In eight of the first steps: new functions and shapes, or the same ones again."""
    steps = [within("step", *((Host(5_000),) if 1 <= number < 9 else (Host(50),)), Kernel(100)) for number in range(20)]
    profile = captured(Thread(tuple(steps)))
    calls = profile.table("api_calls")
    after = calls["start_ns"].to_numpy()
    long = np.flatnonzero(np.diff(after) > 4_000_000)
    rows = [
        row(int(calls["end_ns"].iloc[number]), int(after[number + 1]), pid_of(profile), reason=reason)
        for number in long
    ]
    gains = simulate(Timeline(logged(profile, *rows))).gains
    assert ("compilation" in {gain.remedy.rule for gain in gains}) != ends
