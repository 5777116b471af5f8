"""Proofs: what switches change in a program, how results are compared, and what is called proven."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.advise.prove import with_proofs
from nightsight.collect.prove import Attempt, attempt, switch_of_file
from nightsight.collect.timing import RunLimit
from nightsight.collect.workloads import Program, Request
from nightsight.compare.outcomes import compare_outcomes
from nightsight.errors import CaptureError, NotMeasured, UsageError
from nightsight.model.prove import DIFFERENT, EQUAL, UNKNOWN, WITHIN, Agreement, Proof, ProofReport
from nightsight.model.report import Finding, Report, Result
from nightsight.render.prove import proof_lines
from nightsight.results.rules import RULE
from nightsight.results.switches import (
    NO_DROPOUT,
    NONE,
    PERTURBED,
    PRECISION,
    ROUNDING,
    SWITCH,
    SWITCHES,
    Switch,
    jitted,
)
from nightsight.tables import conform
from nightsight.workflows import prove as workflow
from nightsight.workflows.patch import Patch, edited, patch_of
from nightsight.workflows.prove import ProofPlan, prove
from tests.properties import examples
from tests.traps import TRAPS, Trap

INJECTED = Path(__file__).parent.parent / "workloads" / "injected"

# -- results ----------------------------------------------------------------------------------------------------------


def runs(*values: list[float]) -> list[list[list[float]]]:
    """Return runs of one process each."""
    return [[each] for each in values]


LOSSES = [2.0, 1.5, 1.2, 1.0]


@pytest.mark.parametrize(
    ("unchanged", "changed", "numerics", "verdict", "detail"),
    [
        ([LOSSES, LOSSES], [LOSSES], NONE, EQUAL, "4 values"),
        ([LOSSES, LOSSES], [[2.001, 1.5, 1.2, 1.0]], ROUNDING, WITHIN, "4 values differ by 0.05 %"),
        ([LOSSES, LOSSES], [[2.001, 1.5, 1.2, 1.0]], NONE, DIFFERENT, "different since value 1 of 4: 2.001 against 2"),
        ([LOSSES, LOSSES], [[2.0, 1.5, 1.22, 1.0]], PRECISION, WITHIN, "4 values differ by 1.6 %"),
        (
            [LOSSES, LOSSES],
            [[2.0, 1.5, 1.4, 1.0]],
            PRECISION,
            DIFFERENT,
            "different since value 3 of 4: 1.4 against 1.2",
        ),
        # what unchanged runs differ in anyway
        ([LOSSES, [2.02, 1.5, 1.2, 1.0]], [[2.04, 1.5, 1.2, 1.0]], NONE, WITHIN, "4 values differ by 2 %"),
        ([LOSSES, [2.5, 1.5, 1.2, 1.0]], [LOSSES], NONE, UNKNOWN, "unchanged runs differ by 20 %"),
        (
            [LOSSES, LOSSES],
            [[2.0, nan, 1.2, 1.0]],
            PRECISION,
            DIFFERENT,
            "different since value 2 of 4: nan against 1.5",
        ),
        ([LOSSES, LOSSES], [[2.0, inf, 1.2, 1.0]], NONE, DIFFERENT, "different since value 2 of 4: inf against 1.5"),
        ([LOSSES, LOSSES], [LOSSES[:3]], NONE, DIFFERENT, "3 values instead of 4"),
        ([LOSSES, LOSSES[:3]], [LOSSES], NONE, UNKNOWN, "unchanged runs have different numbers of values"),
        # once unchanged runs diverge, nothing is compared; before that, it is
        (
            [[2.0, 1.5, 1.2, 1.0], [2.0, 1.5, 1.2, 1.4]],
            [[2.0, 1.5, 1.2, 3.0]],
            NONE,
            EQUAL,
            "the first 3 values, since unchanged runs diverge after them",
        ),
        (
            [[2.0, 1.5, 1.2, 1.0], [2.0, 1.5, 1.2, 1.4]],
            [[2.0, 1.6, 1.2, 1.0]],
            NONE,
            DIFFERENT,
            "different since value 2 of 4",
        ),
        (
            [[2.0, 1.5, 1.2, 1.0], [2.0, 1.5, 1.2, 1.4]],
            [[2.0, 1.5, 1.2, 30.0]],
            NONE,
            DIFFERENT,
            "different since value 4 of 4",
        ),
        # of a hundred values, three are too few
        ([[1.0] * 100, [1.0] * 3 + [2.0] * 97], [[1.0] * 100], NONE, UNKNOWN, "unchanged runs differ by 50 %"),
        # however long it trains
        (
            [[1.0] * 1500, [1.0] * 1500],
            [[1.0] * 1400 + [1.2] * 100],
            PRECISION,
            DIFFERENT,
            "different since value 1401",
        ),
        ([[], []], [[]], NONE, UNKNOWN, "no loss and no output of a model was seen"),
        ([[nan], [nan]], [[1.0]], NONE, UNKNOWN, "the unchanged program has values that are not finite"),
    ],
)
def test_results_are_compared_with_what_unchanged_runs_differ_in(
    unchanged: list[list[float]], changed: list[list[float]], numerics: str, verdict: str, detail: str
) -> None:
    agreement = compare_outcomes(runs(*unchanged), runs(*changed), numerics)
    assert agreement.verdict == verdict
    assert agreement.detail.startswith(detail)


def test_the_tolerance_of_each_process_begins_with_its_first_step() -> None:
    first, second = [1.0] * 100, [1.0, 1.0]
    off = [[first, [1.01, 1.0]]]
    assert compare_outcomes([[first, second]] * 2, off, ROUNDING).verdict == DIFFERENT
    assert compare_outcomes([[first, second]] * 2, [[[*first[:-1], 1.01], second]], ROUNDING).verdict == WITHIN


def test_small_losses_beside_large_norms_are_compared_with_themselves() -> None:
    losses, norms = [1.0, 0.9, 0.8], [1e5, 9e4, 8e4]
    changed = [[[1.0, 0.9, 1.1], norms]]
    assert compare_outcomes([[losses, norms]] * 2, changed, PRECISION).verdict == DIFFERENT


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(0, 39), st.floats(0.2, 5.0))
@examples(60)
def test_equal_values_are_equal_and_one_that_is_far_off_is_found(
    values: list[float], place: int, factor: float
) -> None:
    assert compare_outcomes(runs(values, values), runs(values), NONE).verdict == EQUAL
    place %= len(values)
    largest = max(map(abs, values))
    off = [*values[:place], values[place] + factor * (largest or 1.0), *values[place + 1 :]]
    agreement = compare_outcomes(runs(values, values), runs(off), PRECISION)
    assert agreement.verdict == DIFFERENT
    assert f"value {place + 1} of" in agreement.detail


# -- switches ---------------------------------------------------------------------------------------------------------


def test_each_switch_is_declared_and_can_be_turned_on() -> None:
    namespace: dict[str, Any] = {"__name__": "switching", "__file__": str(INJECTED / "switching.py")}
    exec((INJECTED / "switching.py").read_text(), namespace)
    declared = {switch.name for switch in (*SWITCHES, NO_DROPOUT, *PERTURBED.values()) if not switch.environment}
    assert namespace["SWITCHES"].keys() == declared
    assert {rule for switch in SWITCHES for rule in switch.rules} <= RULE.keys()


def named_switches(names: Sequence[str]) -> tuple[Switch, ...]:
    return tuple(SWITCH[name] for name in names)


PROGRAM = """
import torch
{before}
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(6):
    loss = {call}(torch.randn(2, 3, 8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""


@pytest.fixture
def program(tmp_path: Path, torch_python: str) -> Callable[..., Program]:
    def write(
        before: str = "", call: str = "model", after: str = "pass", code: str = "", python: str = torch_python
    ) -> Program:
        path = tmp_path / "train.py"
        path.write_text(code or PROGRAM.format(before=before, call=call, after=after))
        return Program("train", "script", (python, str(path)))

    return write


@pytest.mark.parametrize(
    ("switches", "parts", "effects"),
    [
        (("fused_optimizer",), {}, {"fused_optimizer": 1}),
        (("channels_last",), {}, {"channels_last": 1}),
        (("bf16",), {}, {"bf16": 6}),
        (("tf32", "cudnn_benchmark"), {}, {"tf32": 1, "cudnn_benchmark": 1}),
        (("cudnn_attention",), {}, {"cudnn_attention": 1}),
        (("keep_cache", "no_synchronize"), {"after": "torch.cuda.empty_cache()"}, {"keep_cache": 6}),
        (
            ("stored_activations",),
            {
                "before": "from torch.utils.checkpoint import checkpoint",
                "call": "(lambda x: checkpoint(model, x, use_reentrant=False))",
            },
            {"stored_activations": 6},
        ),
        (("expandable_segments", "one_connection"), {}, {"expandable_segments": 1, "one_connection": 1}),
        (("gc_freeze",), {}, {"gc_freeze": 1}),
        # not on a CPU
        (("cuda_graphs",), {}, {}),
        (("compile_dynamic",), {"call": 'torch.compile(model, backend="eager")'}, {"compile_dynamic": 6}),
        (("compile_dynamic",), {"call": 'torch.compile(model, backend="eager", dynamic=False)'}, {}),
    ],
)
def test_a_switch_counts_what_it_changed(
    switches: tuple[str, ...],
    parts: dict[str, str],
    effects: dict[str, int],
    program: Callable[..., Program],
    tmp_path: Path,
) -> None:
    if "checkpoint" in parts.get("before", ""):
        parts = {
            **parts,
            "before": "import torch.utils.checkpoint",
            "call": parts["call"].replace("checkpoint(", "torch.utils.checkpoint.checkpoint("),
        }
    outcome = attempt(program(**parts), Request(), named_switches(switches), tmp_path / "run")
    assert outcome.failure == ""
    assert dict(outcome.effects) == effects
    (losses,) = outcome.values
    assert len(losses) == 6
    # the loss of each step ends with the optimizer's
    assert outcome.times["path"].tolist()


@pytest.mark.parametrize(("switch", "expected"), [("compile_graphs", [0, 2, 4, 6, 7]), ("compile", [])])
def test_graphs_of_torch_compile_are_told_where_steps_begin(
    switch: str, expected: list[int], program: Callable[..., Program], tmp_path: Path
) -> None:
    """Else parts of a model that need no gradients overwrite one another."""
    code = f"""
import torch
calls, marks = [], []
torch.compile = lambda forward, **_: forward
torch.compiler.cudagraph_mark_step_begin = lambda: marks.append(len(calls))
model = torch.nn.Linear(4, 4)
model.register_forward_hook(lambda *_: calls.append(1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    # two passes before each update
    for _ in range(2):
        model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
with torch.no_grad():
    model(torch.ones(2, 4))
    model(torch.ones(2, 4))
assert marks == {expected}, marks
"""
    # with its own import of torch: the one that is shared has imported all of torch.optim
    started = program(code=code, python=sys.executable)
    outcome = attempt(started, Request(), named_switches([switch]), tmp_path / "run")
    assert (outcome.failure, dict(outcome.effects)) == ("", {switch: 1})


@pytest.mark.parametrize(("switch", "expected"), [("compile_graphs", [1.0, 2.0]), ("compile", [2.0, 2.0])])
def test_what_graphs_returned_is_not_overwritten_by_the_next_step(
    switch: str, expected: list[float], program: Callable[..., Program], tmp_path: Path
) -> None:
    """A program may compute something once, and use it in all of its steps."""
    code = f"""
import torch
torch.compile = lambda forward, **_: forward
memory = torch.zeros(())
class Model(torch.nn.Module):
    def forward(self, given):
        return {{"out": [memory.copy_(given)]}}
model = Model()
outputs = [model(torch.tensor(value)) for value in (1.0, 2.0)]
assert [each["out"][0].item() for each in outputs] == {expected}
"""
    outcome = attempt(program(code=code, python=sys.executable), Request(), named_switches([switch]), tmp_path / "run")
    assert (outcome.failure, dict(outcome.effects)) == ("", {switch: 1})


def test_what_the_program_computes_is_the_same_each_time_and_with_a_switch_of_rounding(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    plain, again, fused = (
        attempt(program(), Request(), named_switches(switches), tmp_path / str(number))
        for number, switches in enumerate(((), (), ("fused_optimizer",)))
    )
    assert plain.values == again.values
    assert compare_outcomes([plain.values, again.values], [fused.values], ROUNDING).verdict in (EQUAL, WITHIN)


def test_a_search_counts_what_switches_would_change_and_changes_nothing(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    names = ("fused_optimizer", "channels_last", "bf16", "tf32", "compile", "keep_cache", "sdpa", "loader_workers")
    # the search waits for a real import of torch
    plain, outcome = (
        attempt(
            program(before="torch.set_num_threads(1)", after="torch.cuda.empty_cache()", **python),
            Request(),
            named_switches(switches),
            tmp_path / str(number),
            is_search=number > 0,
        )
        for number, (switches, python) in enumerate((((), {}), (names, {"python": sys.executable})))
    )
    effects = {"fused_optimizer": 1, "channels_last": 1, "bf16": 6, "tf32": 1, "compile": 1, "keep_cache": 6}
    assert outcome.effects == effects
    assert outcome.values == plain.values


FORMS = """
import math, torch
import torch.nn.functional as F
B, H, L, D = 2, 3, 16, 8
causal = torch.tril(torch.ones(L, L, dtype=torch.bool))
weights = torch.nn.ParameterList([torch.randn(B, H, L, D) for _ in range(3)])

def scaled(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1) @ v

def with_mask(q, k, v):
    scores = (torch.matmul(q, k.transpose(2, 3)) * D**-0.5).masked_fill(~causal, float("-inf"))
    return F.dropout(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), 0.1, training=False) @ v

def in_place(q, k, v):
    scores = q @ k.transpose(-2, -1)
    scores /= 3.0
    scores += torch.where(causal, 0.0, -1e9)
    return torch.nn.Softmax(-1)(scores) @ v

def chosen(q, k, v):
    scores = torch.where(causal, q @ k.transpose(-2, -1), torch.full([], -1e9))
    return F.softmax(scores, -1) @ v

def einsum(q, k, v):
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return torch.einsum("bhls, bshd -> blhd", torch.softmax(torch.einsum("blhe,bshe->bhls", q, k) * 0.2, -1), v)

def three_dimensions(q, k, v):
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    return torch.bmm(torch.bmm(q * 0.3, k.mT).softmax(-1), v)

def weights_kept(q, k, v):
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    return weights @ v + weights.mean()

def half(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v

# as modules of timm
class Layer(torch.nn.Module):
    fused_attn = False
    def forward(self, q, k, v):
        if self.fused_attn:
            return F.scaled_dot_product_attention(q, k, v)
        scores = sum(q[..., each, None] * k[..., None, :, each] for each in range(D))
        return torch.softmax(scores / D**0.5, -1).unsqueeze(-2).matmul(v.unsqueeze(2)).squeeze(-2)

# not attention
def relu(q, k, v):
    return (q @ k.transpose(-2, -1)).relu() @ v

def other_mask(q, k, v):
    return (q @ k.transpose(-2, -1)).masked_fill(~causal, 0.5).softmax(-1) @ v

def wrong_direction(q, k, v):
    return (q @ k.transpose(-2, -1)).softmax(-2) @ v

FORMS = (scaled, with_mask, in_place, chosen, einsum, three_dimensions, weights_kept, half, Layer(), relu, other_mask,
    wrong_direction)
for form in FORMS:
    loss = form(*weights).float().square().sum()
    loss.backward()
    sum(each.grad.abs().sum() for each in weights).clone().requires_grad_().backward()
"""


# what is not attention, or must not be taken for it: the program computes the same, to the last bit
TRICKY = """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
q, k, v = (torch.nn.Parameter(torch.randn(2, 3, 8, 8)) for _ in range(3))

def logged(q, k, v):
    scores = q @ k.mT
    with torch.no_grad():
        scores.max()
    return scores.softmax(-1) * 2

def without_gradients(q, k, v):
    with torch.no_grad():
        scores = q @ k.mT
    return scores.softmax(-1) @ v

def half_then_not(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        scores = q @ k.mT
    return scores.float() + v.mean()

def recomputed(q, k, v, use_reentrant):
    return checkpoint(lambda s, v: s.softmax(-1) * v.mean(), q @ k.mT, v, use_reentrant=use_reentrant)

class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5

@torch.jit.script
def scripted(a, b):
    return torch.matmul(a, b).softmax(-1)

softmax = torch.nn.Softmax(-1)
softmax.register_full_backward_hook(lambda *_: None)
forms = (
    logged, without_gradients, half_then_not,
    lambda q, k, v: recomputed(q, k, v, True), lambda q, k, v: recomputed(q, k, v, False),
    lambda q, k, v: Own.apply(q @ k.mT) + v.mean(),
    lambda q, k, v: scripted(q, k.mT) @ v,
    lambda q, k, v: torch.func.vmap(lambda a, b: a @ b.mT)(q, k) @ v,
    lambda q, k, v: softmax(q @ k.mT) * v.mean(),
    lambda q, k, v: torch.where(q > 0, q @ k.mT, torch.tensor(0.0)).softmax(-1) @ v,
    lambda q, k, v: (q @ k.mT).softmax(-1).to(torch.int32).to(v.dtype) @ v,
)
for form in forms:
    (form(q, k, v).square().sum()).backward()
    sum(each.grad.abs().sum() for each in (q, k, v) if each.grad is not None).clone().requires_grad_().backward()
    q.grad = k.grad = v.grad = None
"""
OVERWRITTEN = (
    "kept = []\nfor _ in range(3):\n    state.mul_(0.9).add_(k)\n    kept.append(q @ state)\ntorch.cat(kept)",
    "scores = q @ k\nweights = scores.softmax(-1)\nscores.zero_()\nweights @ v",
    "scores = q @ k\ntwice = scores * 2\nscores.mul_(3)\ntwice + 1",
)


def test_what_only_looks_like_attention_computes_the_same(program: Callable[..., Program], tmp_path: Path) -> None:
    plain, fused = (
        attempt(program(code=TRICKY), Request(), named_switches(switches), tmp_path / str(number))
        for number, switches in enumerate(((), ("sdpa",)))
    )
    assert (plain.failure, fused.failure) == ("", "")
    assert len(plain.values[0]) == 22
    assert fused.values == plain.values
    assert "sdpa" not in fused.effects


@pytest.mark.parametrize("lines", OVERWRITTEN)
def test_attention_is_not_fused_where_tensors_are_overwritten(
    lines: str, program: Callable[..., Program], tmp_path: Path
) -> None:
    code = f"import torch\nq, k, v, state = (torch.randn(2, 8, 8) for _ in range(4))\n{lines}\n"
    attention = "torch.softmax(q @ k, -1) @ v\n"
    outcome = attempt(program(code=code + attention), Request(), named_switches(("sdpa",)), tmp_path / "run")
    assert (outcome.failure, outcome.effects.get("sdpa", 0)) == ("", 0)
    assert "overwritten" in outcome.why["sdpa"]


def test_attention_that_is_written_out_is_fused_and_nothing_else_is(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    plain, fused = (
        attempt(program(code=FORMS), Request(), named_switches(switches), tmp_path / str(number))
        for number, switches in enumerate(((), ("sdpa",)))
    )
    assert (plain.failure, fused.failure, fused.effects) == ("", "", {"sdpa": 9})
    (expected,), (values,) = plain.values, fused.values
    assert len(values) == 24
    # of BF16, seven bits are right
    assert values == pytest.approx(expected, rel=1e-2)
    assert values[:14] == pytest.approx(expected[:14], rel=1e-5)
    # gradients add up
    assert values[16::2] == pytest.approx(expected[16::2], rel=1e-5)


@pytest.mark.parametrize(
    ("before", "call", "losses", "outputs"),
    [
        ("torch.set_grad_enabled(False)", "net(ones)", 0, 5),
        ("net.requires_grad_(False)", "net(ones)", 0, 5),
        # nobody needs the gradients
        ("", "net(ones)", 0, 5),
        ("", "net(ones).sum().backward()", 5, 5),
        ("", "torch.nn.Softmax(-1)(net(ones))", 0, 5),
        # what is compiled as a whole must not contain our work
        ("net = torch.compile(lambda x, net=net: net(x), backend='eager', fullgraph=True)", "net(ones)", 0, 0),
    ],
)
def test_losses_and_what_models_return_are_recorded(
    before: str, call: str, losses: int, outputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    for place, name in (
        (torch.nn.Module, "__call__"),
        (torch.autograd, "backward"),
        (torch.nn.utils, "clip_grad_norm_"),
    ):
        monkeypatch.setattr(place, name, getattr(place, name))
    namespace: dict[str, Any] = {"__name__": "outcomes"}
    exec((INJECTED / "outcomes.py").read_text(), namespace)
    outcomes = namespace["Outcomes"](str(tmp_path))
    outcomes.effects = SimpleNamespace(finish=lambda: None, count={}, why={}, places={})
    outcomes.watch(torch)
    net = f"net, ones = torch.nn.Linear(4, 4), torch.ones(2, 4)\n{before}\n"
    with torch.enable_grad():
        exec(f"{net}for _ in range(5):\n    {call}\n", {"torch": torch})
    outcomes.save()
    (path,) = tmp_path.glob("*.outcome")
    facts = json.loads(path.read_text())
    assert [len(facts[name]) for name in ("losses", "outputs")] == [losses, outputs]
    assert all(len(set(facts[name])) <= 1 for name in ("losses", "outputs"))


def test_a_flag_that_the_program_sets_itself_is_not_the_effect_of_a_switch(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    products, convolutions = "torch.backends.cuda.matmul.allow_tf32 = False", "torch.backends.cudnn.allow_tf32 = False"
    for before, effects, why in (
        (products, 0, "the program sets it itself"),
        (convolutions, 1, "the program turns it off for convolutions"),
    ):
        code = f"import torch\n{before}\n"
        outcome = attempt(program(code=code), Request(), [SWITCH["tf32"]], tmp_path / "run")
        assert (outcome.effects.get("tf32", 0), outcome.why["tf32"]) == (effects, why)


def test_a_variable_that_is_set_already_has_no_effect(
    program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setenv("XLA_FLAGS", f"--x {SWITCH['xla_overlap'].environment['XLA_FLAGS']}")
    switches = named_switches(("one_connection", "eager_loading", "expandable_segments", "xla_overlap"))
    code = "import os; print(os.environ['PYTORCH_CUDA_ALLOC_CONF'], end='')"
    outcome = attempt(program(code=code), Request(), switches, tmp_path / "run")
    assert (outcome.effects, outcome.why) == (
        {"one_connection": 0, "eager_loading": 1, "expandable_segments": 1, "xla_overlap": 0},
        {"one_connection": "is set already", "xla_overlap": "is set already"},
    )
    # what the program has otherwise, it keeps
    assert (tmp_path / "run" / "run.log").read_text() == "max_split_size_mb:64,expandable_segments:True"


def test_values_of_a_job_are_in_the_order_of_its_ranks(program: Callable[..., Program], tmp_path: Path) -> None:
    code = """
import os, subprocess, sys, torch
if "RANK" in os.environ:
    weight = torch.ones(1, requires_grad=True)
    (weight * float(os.environ["RANK"])).sum().backward()
else:
    for rank in "3012":
        subprocess.run([sys.executable, __file__], env={**os.environ, "RANK": rank}, check=True)
"""
    outcome = attempt(program(code=code), Request(), (), tmp_path / "run")
    assert outcome.values == ((0.0,), (1.0,), (2.0,), (3.0,))


JOB = """
import os, subprocess, sys
if "RANK" not in os.environ:
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={{**os.environ, "RANK": rank}}) for rank in "01"
    ]
    sys.exit(max(rank.wait() for rank in ranks))
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="file://{store}", rank=int(os.environ["RANK"]), world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for passes in {passes}:
    for _ in range(passes):
        model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.fixture
def job(program: Callable[..., Program], tmp_path: Path) -> Callable[..., Attempt]:
    """Run a program of two ranks that updates after some passes each time, with switches."""

    def run(passes: list[int], *switches: str) -> Attempt:
        folder = tmp_path / ("_".join(switches) or "unchanged")
        folder.mkdir()
        code = JOB.format(passes=passes, store=folder / "store")
        return attempt(program(code=code), Request(), named_switches(switches), folder / "run")

    return run


@pytest.mark.parametrize("switch", ["reduce_once", "bucket_views", "static_graph", "large_buckets"])
def test_a_switch_of_distributed_data_parallel_reaches_each_rank_and_keeps_results(
    job: Callable[..., Attempt], switch: str
) -> None:
    passes = [2] * 6 if switch == "reduce_once" else [1] * 6
    plain, changed = job(passes), job(passes, switch)
    assert (plain.failure, changed.failure) == ("", "")
    # of two ranks; the first two updates show the number of passes
    assert changed.effects[switch] == (8 if switch == "reduce_once" else 2)
    assert len(plain.values) == 2
    assert compare_outcomes([plain.values], [changed.values], ROUNDING).verdict in (EQUAL, WITHIN)


def test_reducing_once_is_not_right_if_an_update_comes_earlier(job: Callable[..., Attempt]) -> None:
    passes = [3, 3, 3, 1, 1, 1, 3, 3]
    plain, changed = job(passes), job(passes, "reduce_once")
    assert compare_outcomes([plain.values], [changed.values], ROUNDING).verdict == DIFFERENT


QUICK_TRAPS = ("precision_that_cancels", "data_drawn_in_workers")
SLOW_STEPS = """
import time, torch
from torch.nn.utils import clip_grad_norm_
model = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout(0.5))
optimizer = torch.optim.AdamW(model.parameters(),
    lr=1e-2)
for step in range(1_000_000):
    model(torch.ones(8, 4)).sum().backward()
    clip_grad_norm_(model.parameters(), 1.0)
    torch.cuda.empty_cache()
    optimizer.step()
    time.sleep({sleep})
"""


def test_a_run_ends_after_some_steps_and_keeps_what_it_computed(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    limit = RunLimit(steps=7, family="step (ends with AdamW.step)")
    switches = named_switches(("fused_optimizer", "keep_cache"))
    slow = program(code=SLOW_STEPS.format(sleep=0.001))
    outcome = attempt(slow, Request(timeout_s=60), switches, tmp_path / "run", limit=limit)
    assert outcome.failure == ""
    losses, norms = outcome.values
    assert len(losses) == len(norms) == 8
    # where the program has what was switched, also if a call takes two lines
    lines = {name: [(Path(path).name, line) for path, line in places] for name, places in outcome.places.items()}
    assert lines == {"fused_optimizer": [("train.py", 5)], "keep_cache": [("train.py", 10)]}


def test_a_run_without_a_known_step_ends_after_some_seconds_with_steps_that_can_be_timed(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    slow = program(code=SLOW_STEPS.format(sleep=0.01))
    outcome = attempt(slow, Request(timeout_s=60), (), tmp_path / "run", limit=RunLimit(seconds=0.1))
    assert (outcome.failure, outcome.timed_out) == ("", False)
    assert outcome.times["instances"].max() >= 5


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook in a program, as a module; `left` has the statuses that the program would have ended with."""
    spec = spec_from_file_location("hook", INJECTED.parent / "timed" / "sitecustomize.py")
    assert spec
    assert spec.loader
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.left = []
    monkeypatch.setattr(module, "save_and_leave", module.left.append)
    return module


def test_a_program_of_short_steps_ends_when_no_more_times_are_kept(hook: Any, tmp_path: Path) -> None:
    hook._MOST = 20
    for label, family in (("step #{}", "step #"), ("call#{}", "call#")):
        hook.left.clear()
        times = hook.Times(str(tmp_path))
        times.save = lambda: None
        times.limit = hook.Limit(f"40 0.0 {family}", str(tmp_path))
        for number in range(41):
            assert hook.left == []
            times.enter(label.format(number))
            times.leave()
        assert hook.left == [0]
        assert len(times.began) <= 20


def test_all_ranks_of_a_job_end_after_the_same_step(hook: Any, tmp_path: Path) -> None:
    step, other = "step (ends with SGD.step)", "Linear.forward"
    alone = hook.Limit("0 0.0 ", str(tmp_path))
    assert [alone.is_reached(step) for _ in range(6)] == [*[False] * 5, True]
    hook._is_rank = lambda: True
    first, second = (hook.Limit("0 0.0 ", str(tmp_path)) for _ in range(2))
    second.ends += 1000
    for _ in range(7):
        assert not second.is_reached(step)
    second.ends = 0
    ends = []
    for rank in (first, second):
        while not rank.is_reached(step):
            assert not rank.is_reached(other)
        ends.append(rank.noted[step])
    assert ends == [9, 9]
    assert [path.name for path in tmp_path.iterdir()] == ["agreed"]


def test_without_dropout_forms_that_draw_other_numbers_compute_the_same(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    limit = RunLimit(steps=5, family="step (ends with AdamW.step)")

    def run(draws: int, *switches: Switch) -> Attempt:
        code = SLOW_STEPS.format(sleep=0).replace("for step", f"torch.rand({draws})\nfor step")
        return attempt(program(code=code), Request(timeout_s=60), switches, tmp_path / "run", limit=limit)

    plain, other = run(1), run(2)
    assert compare_outcomes([plain.values], [other.values], ROUNDING).verdict == DIFFERENT
    plain, other = run(1, NO_DROPOUT), run(2, NO_DROPOUT)
    assert compare_outcomes([plain.values], [other.values], NONE).verdict == EQUAL
    assert plain.effects["no_dropout"] == 6


def test_a_number_that_is_read_later_is_the_same_number() -> None:
    torch = pytest.importorskip("torch")
    namespace: dict[str, Any] = {"__name__": "switching", "__file__": str(INJECTED / "switching.py")}
    exec((INJECTED / "switching.py").read_text(), namespace)
    later, reads = namespace["_Later"], []

    def read(tensor: Any) -> float:
        reads.append(tensor)
        return float(tensor.item())

    later.read = read
    number = later(torch.tensor(0.1, dtype=torch.float64))
    total = 0.0
    for _ in range(3):
        total += number
    mean = -(2 * (total - 0.5) + number * number) / 3
    assert not reads
    plain = 0.1 + 0.1 + 0.1
    assert float(mean) == -(2 * (plain - 0.5) + 0.1 * 0.1) / 3
    assert f"{total:.3f} {total}" == f"{plain:.3f} {plain}"
    assert total > 0.2
    assert sorted([number, later(torch.tensor(0.05))])[0] == later(torch.tensor(0.05))
    assert (round(number, 1), abs(-number), 2**number, number % 1) == (0.1, 0.1, 2**0.1, 0.1)
    assert bool(number)
    assert (number + torch.ones(2)).tolist() == (torch.ones(2) + 0.1).tolist()
    assert (1 - number).is_integer() is False


def test_weights_and_inputs_of_convolutions_get_the_layout_of_their_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    namespace: dict[str, Any] = {"__name__": "switching", "__file__": str(INJECTED / "switching.py")}
    exec((INJECTED / "switching.py").read_text(), namespace)
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    taken = []

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.image, self.volume = torch.nn.Conv2d(4, 4, 3), torch.nn.Conv3d(4, 4, 3)
            self.lazy, self.linear = torch.nn.LazyConv2d(4, 3), torch.nn.Linear(4, 4)

        def forward(self, images: Any, others: dict[str, Any]) -> Any:
            taken.extend([images, *others.values()])
            return self.linear(self.lazy(self.image(images)).mean((2, 3))) + self.volume(others["volumes"]).mean()

    inputs = (torch.randn(2, 4, 8, 8), {"volumes": torch.randn(2, 4, 8, 8, 8), "rows": torch.randn(2, 4)})
    torch.manual_seed(0)
    before = Model()(*inputs)
    taken.clear()
    effects = namespace["Effects"]()
    namespace["SWITCHES"]["channels_last"][1](torch, effects)
    torch.manual_seed(0)
    model = Model()
    assert torch.allclose(model(*inputs), before, atol=1e-5)
    last = {4: torch.channels_last, 5: torch.channels_last_3d}
    assert [each.is_contiguous(memory_format=last.get(each.dim(), torch.contiguous_format)) for each in taken] == 3 * [
        True
    ]
    assert model.image.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.volume.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert effects.count == {"channels_last": 1}


def test_only_switches_for_the_framework_of_a_program_are_tried(plan: ProofPlan) -> None:
    advice = (finding("exposed_communication", "Communication is exposed"), finding("launch_bound", "The GPU waits"))
    replay = Result("replay", "", "", pd.DataFrame({"framework": ["JAX"]}))
    assert plan.report
    report = replace(plan.report, findings=advice, results=(replay,))
    names = {switch.name for switch, _ in workflow._chosen(replace(plan, report=report))}
    assert names == {"xla_overlap", "one_connection"}


# what we call of JAX, on NumPy: what is traced gets stand-ins first, which have no values
JAX = {
    "__init__": """
import numpy as np
from . import core, tree_util
IS_COMPILED = False

def jit(function):
    def jitted(*given):
        global IS_COMPILED
        IS_COMPILED = True
        try:
            function(*(core.Tracer(each) if isinstance(each, np.ndarray) else each for each in given))
            return getattr(function, "__wrapped__", function)(*given)
        finally:
            IS_COMPILED = False
    jitted.lower = None
    return jitted
""",
    "core": """
class TracerBoolConversionError(TypeError):
    pass

class Tracer:
    shape, size = (), 1
    def __init__(self, value):
        self.dtype = value.dtype
    def __mul__(self, other):
        return self
    __rmul__ = __gt__ = __mul__
    def sum(self):
        return self
    def __bool__(self):
        raise TracerBoolConversionError
""",
    "numpy": "from numpy import *",
    "tree_util": """
from types import SimpleNamespace

def tree_flatten_with_path(tree, path=()):
    if isinstance(tree, dict):
        parts = [(SimpleNamespace(key=key), each) for key, each in tree.items()]
    elif isinstance(tree, (tuple, list)):
        parts = [(SimpleNamespace(idx=idx), each) for idx, each in enumerate(tree)]
    else:
        return [(path, tree)], None
    return [found for key, each in parts for found in tree_flatten_with_path(each, (*path, key))[0]], None

def tree_leaves(tree):
    return [leaf for _, leaf in tree_flatten_with_path(tree)[0]]
""",
}
STEPS_OF_JAX = """
import time
import numpy as np
{imports}
{before}
def step(weights, x):
    {body}
    return {returns}
{after}
def main():
    weights = np.ones(4)
    for number in range(8):
        state = step(weights, np.arange(4.0) + number)
        weights = state["weights"] if isinstance(state, dict) else state
main()
"""
LOSSES_OF_JAX = tuple(0.9**number * (6.0 + 4 * number) for number in range(8))


@pytest.fixture
def jax_program(program: Callable[..., Program], tmp_path: Path) -> Callable[..., Program]:
    """Write a program that calls a function of JAX's eight times."""
    (tmp_path / "jax").mkdir()
    for name, text in JAX.items():
        (tmp_path / "jax" / f"{name}.py").write_text(text)

    def write(
        body: str = "pass",
        before: str = "",
        after: str = "",
        imports: str = "import jax",
        returns: str = '{"weights": weights * 0.9, "loss": (weights * x).sum()}',
    ) -> Program:
        code = STEPS_OF_JAX.format(body=body, before=before, after=after, imports=imports, returns=returns)
        return program(code=code)

    return write


@pytest.mark.parametrize(
    ("parts", "effect", "why"),
    [
        ({}, 1, ""),
        # JAX is imported when the function is there
        ({"imports": "", "after": "import jax"}, 1, ""),
        ({"body": "if (x * 2).sum() > 0: pass"}, 0, "cannot be jitted: it branches on a value that is only known when"),
        ({"before": "@jax.jit"}, 0, "is jitted already"),
        ({"after": "step = jax.jit(step)"}, 0, "JAX traces it as part of its caller"),
    ],
)
def test_a_function_that_is_named_is_jitted_and_what_it_returns_is_recorded_in_all_runs(
    parts: dict[str, str], effect: int, why: str, jax_program: Callable[..., Program], tmp_path: Path
) -> None:
    switch = jitted("jit=train.step")
    assert switch
    plain, changed = (
        attempt(jax_program(**parts), Request(), switches, tmp_path / str(number), functions=["train.step"])
        for number, switches in enumerate(((), (switch,)))
    )
    assert (plain.failure, changed.failure) == ("", "")
    assert changed.effects.get(switch.name, 0) == effect
    assert changed.why.get(switch.name, "").startswith(why)
    is_traced = "JAX traces" in why
    expected = () if is_traced else (pytest.approx(LOSSES_OF_JAX),)
    assert (plain.values, changed.values) == (expected, expected)
    assert "train.step" in plain.times["path"].tolist() or is_traced


def test_a_function_of_a_module_is_jitted_and_arrays_that_it_returns_are_distinguished(
    jax_program: Callable[..., Program], program: Callable[..., Program], tmp_path: Path
) -> None:
    jax_program()
    attempts = []
    # of different lengths: a file of the same second and size is taken for the one that was compiled before
    for number, factor in enumerate(("0.9", "0.90", "0.800")):
        (tmp_path / "lib.py").write_text(f"import jax\ndef step(weights):\n    return weights * {factor}, 3\n")
        code = "import numpy as np\nfrom lib import step\nx = np.ones(4)\nfor _ in range(9): x, _ = step(x)\n"
        switches = [switch for word in ("jit=lib.step", "jit=lib.nothing") if (switch := jitted(word))] * (number > 0)
        functions = ["lib.step", "lib.nothing"]
        attempts.append(attempt(program(code=code), Request(), switches, tmp_path / "run", functions=functions))
    plain, same, other = attempts
    assert (same.effects, same.why) == (
        {"jit=lib.step": 1},
        {"jit=lib.nothing": "the program has no such function, or does not call it"},
    )
    # of the first, second, fourth and eighth call
    assert [len(values) for values in plain.values] == [4]
    assert compare_outcomes([plain.values], [same.values], ROUNDING).verdict == EQUAL
    assert compare_outcomes([plain.values], [other.values], ROUNDING).verdict == DIFFERENT


def test_a_function_that_is_faster_when_jitted_is_proven_with_the_promise_of_its_cause(
    jax_program: Callable[..., Program], plan: ProofPlan
) -> None:
    switch = jitted("jit=train.step")
    assert switch
    assert plan.report
    slow = jax_program("jax.IS_COMPILED or time.sleep(0.02)")
    advice = (finding("not_jitted", "JAX dispatches operations one by one in `step`", 90.0),)
    report = replace(plan.report, findings=advice)
    proof_report = prove(replace(plan, program=slow, report=report, switches=(switch,)), Request())
    (proof,) = proof_report.proofs
    assert (proof.verdict, proof.results.verdict, proof_report.step) == ("proven", EQUAL, "train.step")
    assert proof.promised_ns == pytest.approx(0.1 * (proof.base_ns or 0.0))
    assert "@jax.jit" in proof.code
    assert proof_report.todo == ()
    # without the name of the function
    (line,) = (plan.folder.parent / "proofs.jsonl").read_text().splitlines()
    assert json.loads(line)["switches"] == ["jit"]
    unnamed = prove(replace(plan, program=slow, report=report), Request())
    assert [each.remedy for each in unnamed.todo] == ["Do it. To measure that: --switch jit=MODULE.FUNCTION."]
    patch = patch_of(proof_report, Path.cwd())
    assert patch.left_out == {"jit=train.step": "it is not certain which lines to edit"}


@pytest.mark.parametrize("word", ["jit=", "jit=step", "jit=a..step", "jit=a/b.step", "jit", "jit=a.1"])
def test_what_names_no_function_is_not_a_switch(word: str) -> None:
    assert jitted(word) is None


OWN = '''"""A batch of 2 in place of 8.

More words.
"""
MODULE = "torch"
NUMERICS = "rounding"
CALLS = []

def change(torch):
    ones = torch.ones
    def fewer(*size):
        CALLS.append(size)
        return ones(2, *size[1:])
    torch.ones = fewer

def holds():
    return {holds}
'''


@pytest.mark.parametrize("holds", ["bool(CALLS)", "False"])
def test_a_switch_of_the_users_own_changes_the_program(
    holds: str, program: Callable[..., Program], tmp_path: Path
) -> None:
    path = tmp_path / "fewer.py"
    path.write_text(OWN.format(holds=holds))
    switch = switch_of_file(path)
    assert (switch.name, switch.done, switch.numerics) == ("fewer", "A batch of 2 in place of 8", ROUNDING)
    net = "import torch\nnet = torch.nn.Linear(4, 4)\nwith torch.no_grad():\n    print(len(net(torch.ones(8, 4))))\n"
    outcome = attempt(program(code=net), Request(), [switch], tmp_path / "run")
    assert (tmp_path / "run" / "run.log").read_text().strip().endswith("2")
    assert outcome.effects.get("fewer", 0) == (1 if holds == "bool(CALLS)" else 0)
    assert outcome.why == {"fewer": "its function `holds` says so"}


@pytest.mark.parametrize(
    ("first", "change", "holds", "why"),
    [
        ("", "pass", "True", "its function `holds` says so"),
        ("import nothing_like_this", "pass", "True", "ModuleNotFoundError"),
        ("", "wrong", "True", "its function `change` failed: NameError"),
        ("", "pass", "wrong", "its function `holds` failed: NameError"),
    ],
)
def test_a_switch_of_the_users_own_that_fails_is_reported_and_needs_no_torch(
    first: str,
    change: str,
    holds: str,
    why: str,
    program: Callable[..., Program],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "head")
    path = tmp_path / "own.py"
    path.write_text(f"{first}\nMODULE = 'json'\ndef change(module): {change}\ndef holds(): return {holds}\n")
    switches = [switch_of_file(path), SWITCH["gc_freeze"]]
    outcome = attempt(program(code="import json"), Request(), switches, tmp_path / "run")
    assert (outcome.failure, outcome.why) == ("", {"own": why})
    assert outcome.effects.get("own", 0) == ("says so" in why)


def test_a_check_is_not_switched_and_does_not_end_early(program: Callable[..., Program], tmp_path: Path) -> None:
    outcome = attempt(
        program(code=""),
        Request(),
        named_switches(("tf32", "override_tf32")),
        tmp_path / "run",
        limit=RunLimit(steps=1, family="x"),
        check='test "$NIGHTSIGHT_SWITCHES$NIGHTSIGHT_LIMIT$NIGHTSIGHT_PROOF$NVIDIA_TF32_OVERRIDE" = tf32',
    )
    assert outcome.checked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def change(module): pass\ndef holds(): return True", "has no MODULE"),
        ("MODULE = 'torch'\ndef change(module): pass", "has no holds"),
        ("MODULE = 'torch'\nNUMERICS = 'some'\ndef change(module): pass\ndef holds(): pass", "NUMERICS of the switch"),
        ("def", "cannot read the switch"),
    ],
)
def test_a_file_that_is_not_a_switch_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        switch_of_file(path)


@pytest.mark.parametrize(
    "trap",
    [
        pytest.param(trap, id=trap.name, marks=[] if trap.name in QUICK_TRAPS else [pytest.mark.nightly])
        for trap in TRAPS
        if not trap.needs_gpu and trap.name != "compile_that_falls_back"
    ],
)
def test_a_trap_is_seen_by_its_results(trap: Trap, program: Callable[..., Program], tmp_path: Path) -> None:
    limit = RunLimit(steps=6, family="step (ends with SGD.step)")
    # the switch waits for a real import of torch
    runs = [
        attempt(program(code=trap.code, **python), Request(timeout_s=120), switches, tmp_path / "run", limit=limit)
        for switches, python in (((), {}), ((), {}), ([SWITCH[trap.switch]], {"python": sys.executable}))
    ]
    assert [run.failure for run in runs] == [""] * 3
    assert (trap.switch in runs[2].effects) == trap.has_effect
    agreement = compare_outcomes([run.values for run in runs[:2]], [runs[2].values], SWITCH[trap.switch].numerics)
    assert agreement.verdict in ((DIFFERENT, UNKNOWN) if trap.has_effect else (EQUAL,))


# -- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switch", "line", "source", "expected"),
    [
        ("pinned_batches", 1, "x = DataLoader(data, 4)\n", "x = DataLoader(data, 4, pin_memory=True)\n"),
        ("pinned_batches", 1, "x = t.u.DataLoader(*d)\n", "x = t.u.DataLoader(*d, pin_memory=True)\n"),
        (
            "pinned_batches",
            2,
            "x = DataLoader(\n    d,  # é\n)\n",
            "x = DataLoader(\n    d, pin_memory=True,  # é\n)\n",
        ),
        ("pinned_batches", 1, "x = DataLoader(d, pin_memory=é())\n", "x = DataLoader(d, pin_memory=True)\n"),
        ("pinned_batches", 1, "x = DataLoader()\n", "x = DataLoader(pin_memory=True)\n"),
        ("pinned_batches", 1, "x = DataLoader(d, **options)\n", None),
        ("pinned_batches", 1, "x = DataLoader((d))\n", None),
        ("pinned_batches", 1, "x = loader(d)\n", None),
        ("pinned_batches", 9, "x = DataLoader(d)\n", None),
        ("pinned_batches", 1, "x = DataLoader(\n", None),
        ("non_blocking", 1, "f(a.to(d), b.to(d))\n", None),
        ("non_blocking", 1, "a = a.cuda()\n", "a = a.cuda(non_blocking=True)\n"),
        (
            "loader_workers",
            1,
            "x = DataLoader(d, num_workers=0, shuffle=True)\n",
            "x = DataLoader(d, num_workers=8, shuffle=True, persistent_workers=True)\n",
        ),
        ("keep_cache", 2, "if x:\n    empty_cache()\n", "if x:\n    pass\n"),
        ("keep_cache", 2, "if x:\n    t.empty_cache()  # why\n    y()\n", "if x:\n    y()\n"),
        # a form feed ends no line
        ("keep_cache", 3, "a()\n\x0c\nempty_cache()\nb()\n", "a()\n\x0c\nb()\n"),
        ("keep_cache", 2, "if x:\r\n    empty_cache()\r\n", "if x:\r\n    pass\r\n"),
        ("fused_optimizer", 1, "x = SGD(p)\n", "x = SGD(p, fused=True)\n"),
        ("fused_optimizer", 1, "x = SGD(p, foreach=True)\n", None),
        ("keep_cache", 1, "f(); empty_cache()\n", None),
        ("keep_cache", 1, "y = empty_cache()\n", None),
        ("cudnn_benchmark", 1, "import os, torch", "import os, torch\ntorch.backends.cudnn.benchmark = True\n"),
        (
            "cudnn_benchmark",
            2,
            "def f():\n    import torch\n",
            "def f():\n    import torch\n    torch.backends.cudnn.benchmark = True\n",
        ),
        ("cudnn_benchmark", 1, "import torch as t\n", None),
        ("cudnn_benchmark", 1, "import transformers\n", None),
        ("bf16", 1, "import torch\n", None),
    ],
)
def test_a_line_is_edited_only_if_that_is_certain(switch: str, line: int, source: str, expected: str | None) -> None:
    assert edited(source, line, switch) == expected


def test_a_patch_has_what_was_proven_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    script, away = tmp_path / "train.py", tmp_path / "away" / "load.py"
    away.parent.mkdir()
    script.write_bytes(b"import torch\r\nx = DataLoader(d)\r\ny = DataLoader(d)\r\n")
    away.write_text("def load(d):\n    return DataLoader(d)")
    single = Proof(("pinned_batches",), "", "", None, 2.0, 1.0, -0.6, 0.1, 2, Agreement(EQUAL), "proven")
    places = {"pinned_batches": ((str(script), 3), (str(script), 2), (str(away), 2))}
    names = ("pinned_batches", "bf16", "one_connection", "fused_optimizer")
    best = replace(single, switches=names)
    report = ProofReport("train", "", "", {}, (replace(single, places=places),), best, ())
    patch = patch_of(report, tmp_path / "away")
    assert patch.left_out == {
        "bf16": "it is not certain which lines to edit",
        "one_connection": "it is an environment variable: CUDA_DEVICE_MAX_CONNECTIONS=1",
        "fused_optimizer": "a library makes the call, not the program",
    }
    # git takes it, of the files in this folder
    (tmp_path / "proof.patch").write_text(patch_of(replace(report, best=None), tmp_path).diff)
    subprocess.run(["git", "apply", "proof.patch"], cwd=tmp_path, check=True)
    assert script.read_text().count("pin_memory=True") == 2
    assert "pin_memory=True" in away.read_text()
    assert f"--- {script}" in patch.diff
    assert "--- a/load.py" in patch.diff
    faster = replace(report, proofs=(replace(single, verdict="faster"),), best=None)
    assert patch_of(faster, tmp_path) == Patch("", {})


# -- proofs -----------------------------------------------------------------------------------------------------------

SLOW_ITEMS = """
import time
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.full((4,), float(number))

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in torch.utils.data.DataLoader(Items(), batch_size=4):
        optimizer.zero_grad()
        model(batch).mean().backward()
        time.sleep(0.01)
        optimizer.step()
"""


def finding(rule: str, title: str, gain_pct: float | None = 50.0) -> Finding:
    return Finding(rule, "advice", title, "", "Do it.", gain_pct=gain_pct, cause=title)


@pytest.fixture
def plan(program: Callable[..., Program], tmp_path: Path) -> ProofPlan:
    advice = (
        finding("host_code", "The GPU waits for host code in `enumerate(DataLoader)#x`", 60.0),
        finding("wait", "The CPU waits for the GPU in `log`", 20.0),
    )
    report = replace(Report.from_json(EMPTY), title="train", findings=advice)
    return ProofPlan(program(code=SLOW_ITEMS), tmp_path / "reports" / "train" / "proof", report, rounds=2)


EMPTY = json.dumps(
    {
        "format": 1,
        "title": "train",
        "environment": {},
        "findings": [],
        "parameters": {},
        "benchmark": None,
        "stages_s": {},
        "generator": "",
        "unchecked": {},
        "conditions": [],
        "ranks": {},
        "shared": [],
        "windows": [],
        "results": [],
    }
)


def test_workers_for_slow_items_make_steps_shorter_and_what_needs_an_edit_is_listed(plan: ProofPlan) -> None:
    proof = prove(replace(plan, rounds=1), Request())
    workers, *others = proof.proofs
    assert workers.switches == ("loader_workers",)
    # of workers that the program does not have
    options = {each.switches: each.verdict for each in others}
    assert options == {("persistent_workers",): "no effect", ("prefetched_batches",): "no effect"}
    assert (workers.results.verdict, workers.rounds) == (EQUAL, 1)
    assert workers.base_ns is not None
    assert workers.step_ns is not None
    assert workers.step_ns < workers.base_ns
    assert workers.promised_ns == pytest.approx(0.4 * workers.base_ns)
    assert [each.rule for each in proof.todo] == ["wait"]
    assert proof.step == "step (ends with SGD.step)"
    text = "\n".join(proof_lines(proof, width=100))
    assert "The CPU waits for the GPU in `log` (about \N{MINUS SIGN}20 %): Do it." in text


STEP = "step (ends with SGD.step)"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, ...]]]:
    """Replace runs by steps in ms for each set of switches, in turn; return the sets that ran, in order."""

    def use(losses: dict[tuple[str, ...], float] | None = None, **steps: list[float]) -> list[tuple[str, ...]]:
        ran: list[tuple[str, ...]] = []

        def run_once(
            _: object, __: object, chosen: Sequence[Switch], *___: object, is_search: bool, **____: object
        ) -> Attempt:
            names = tuple(switch.name for switch in chosen)
            switches = () if is_search else names
            of_set = steps.get("_".join(switches), steps["unchanged"])
            step_ms = of_set[ran.count(switches) % len(of_set)]
            ran.append(switches)
            row = {"path": STEP, "instances": 30, "med_ns": 1e6 * step_ms, "on_gpu": True}
            loss = (losses or {}).get(switches, 1.0)
            return Attempt(
                conform("timed_ranges", pd.DataFrame([row])),
                1.0,
                ((2.0, loss),),
                dict.fromkeys({*names} - {NO_DROPOUT.name}, 1),
            )

        monkeypatch.setattr(workflow, "attempt", run_once)
        return ran

    return use


def test_a_cause_whose_switches_change_nothing_needs_an_edit(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(
        unchanged=[50.0],
        **{each.name: [20.0] for each in SWITCHES if {"tensor_cores", "allocation"} & {*each.rules, *each.tries}},
    )
    monkeypatch.setattr(workflow, "_has_effect", lambda _, switches: switches == ("tf32",))
    advice = (
        finding("tensor_cores", "Products run without tensor cores"),
        finding("allocation", "Memory is allocated"),
        finding("host_code", "The GPU waits for host code in `augment`"),
    )
    assert plan.report
    proof = prove(replace(plan, report=replace(plan.report, findings=advice)), Request())
    assert [each.rule for each in proof.todo] == ["allocation", "host_code"]


@pytest.mark.parametrize(("step_ms", "needs_edit"), [(11.0, True), (7.0, False)])
def test_what_pins_copies_is_tried_first_and_without_the_promise_of_copies_that_nothing_waits_for(
    step_ms: float, needs_edit: bool, plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    gained = {name: [step_ms] for name in ("pinned_copies", "pinned_batches", "non_blocking")}
    measured(unchanged=[17.0, 17.1, 16.9], tf32=[16.0], **gained)
    advice = (
        finding("tensor_cores", "Products run without tensor cores", 10.0),
        finding("pageable_copy", "Copies use pageable memory in `load` (Host-to-Device)", 62.0),
    )
    assert plan.report
    proof = prove(replace(plan, report=replace(plan.report, findings=advice)), Request())
    pinning, products = proof.proofs[:3], proof.proofs[3:]
    assert {proof.switches for proof in pinning} == {(name,) for name in gained}
    assert {(proof.rule, proof.promised_ns, proof.verdict) for proof in pinning} == {("pageable_copy", None, "proven")}
    # the predicted gain is that of TF32
    promised = {name: proof.promised_ns for proof in products for name in proof.switches}
    in_bf16 = {"bf16": None, "bf16_weights": None}
    assert promised == {**dict.fromkeys(promised, pytest.approx(0.9 * 17e6, rel=0.01)), **in_bf16}
    assert len(promised) > len(in_bf16)
    # and no line that compares a promise
    lines = (plan.folder.parent / "proofs.jsonl").read_text().splitlines()
    assert {json.loads(line)["rule"] for line in lines} == {"tensor_cores"}
    assert [each.rule for each in proof.todo if each.rule == "pageable_copy"] == ["pageable_copy"] * needs_edit


def test_graphs_of_torch_compile_gain_at_least_what_its_fused_kernels_do(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    measured(unchanged=[50.0], compile=[30.0], compile_graphs=[20.0])
    launches, chains = (finding(rule, rule, gain) for rule, gain in (("launch_bound", 35.0), ("fusion", 40.0)))
    assert plan.report
    promised: list[dict[tuple[str, ...], tuple[str, float | None]]] = []
    for advice in ((launches, chains), (launches,), (chains,)):
        proof = prove(replace(plan, report=replace(plan.report, findings=advice)), Request())
        promised.append({each.switches: (each.rule, each.promised_ns) for each in proof.proofs})
        assert not proof.todo
    both, only_launches, only_chains = promised
    assert both["compile_graphs",] == ("launch_bound", 0.6 * 50e6)
    assert only_launches["compile_graphs",] == ("launch_bound", 0.65 * 50e6)
    assert only_chains.keys() == {("compile",)}


def named(plan: ProofPlan, *switches: str, rounds: int = 3) -> ProofPlan:
    return replace(plan, report=None, switches=named_switches(switches), rounds=rounds)


def test_what_is_faster_with_the_same_results_is_proven_and_stored(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    options = {name: [50.0] for name in ("persistent_workers", "prefetched_batches")}
    ran = measured(unchanged=[50.0, 50.0, 51.0, 49.0], loader_workers=[20.0, 20.5, 19.8], **options)
    proof = prove(plan, Request())
    workers = proof.proofs[0]
    assert (workers.verdict, workers.results.verdict, workers.rounds) == ("proven", EQUAL, 2)
    assert workers.error is not None
    assert workers.error < 0.1
    # one to warm up, then rounds in changing order, without what does not pay
    switches = [("loader_workers",), ("persistent_workers",), ("prefetched_batches",)]
    assert ran == [(), (), *switches, switches[0], ()]
    text = "\n".join(proof_lines(proof, width=100))
    assert "proven" in text
    assert "DataLoader(..., num_workers=8, persistent_workers=True)" in text
    stored = (plan.folder / "proof.json").read_bytes()
    assert ProofReport.from_json(stored) == proof
    assert plan.report is not None
    host_code, wait = with_proofs(plan.report, proof).findings
    elsewhere = finding("host_code", "The GPU waits for host code in `augment`")
    renamed = replace(plan.report.findings[0], cause="in other words")
    assert "Measured" in with_proofs(replace(plan.report, findings=(renamed,)), proof).findings[0].detail
    another = replace(plan.report, title="another", findings=(renamed,))
    assert "Measured" not in with_proofs(another, proof).findings[0].detail
    two = with_proofs(replace(plan.report, findings=(*plan.report.findings, elsewhere)), proof).findings
    assert ["Measured" in each.detail for each in two] == [True, False, False]
    assert (host_code.proof, wait.proof) == ("proven with loader_workers: \N{MINUS SIGN}60 %", "")
    expected = "Measured with `loader_workers`: 50.50 ms became 20.25 ms (predicted: 20.20 ms), results equal: proven."
    assert host_code.detail.strip() == expected
    assert "Measured" not in wait.detail
    lines = (plan.folder.parent / "proofs.jsonl").read_text().splitlines()
    # of the switch that fixes the cause, not of those that do not
    assert [(json.loads(line)["rule"], json.loads(line)["switches"]) for line in lines] == [
        ("host_code", ["loader_workers"])
    ]


def test_only_runs_of_one_round_are_compared_and_steps_that_were_not_timed_are_left_out(plan: ProofPlan) -> None:
    def took(step_ms: float) -> Attempt:
        row = {"path": STEP, "instances": 30, "med_ns": 1e6 * step_ms, "on_gpu": True}
        return Attempt(conform("timed_ranges", pd.DataFrame([row])), 1.0, effects={"tf32": 1})

    series = workflow._ProofRuns(plan, Request(), SWITCH, family=STEP)
    series.attempts = {
        (): {0: took(50.0), 1: took(100.0), 2: took(100.0)},
        ("tf32",): {1: took(80.0), 2: took(nan), 3: took(1.0)},
    }
    proof = workflow._proof(series, [SWITCH["tf32"]], None)
    assert (proof.base_ns, proof.step_ns, proof.rounds) == (100e6, 80e6, 1)
    assert proof.gain_pct == pytest.approx(20.0)
    del series.attempts["tf32",][1], series.attempts["tf32",][3]
    proof = workflow._proof(series, [SWITCH["tf32"]], finding("tensor_cores", "x"))
    assert (proof.verdict, proof.why) == ("failed", "no step was timed")
    series.attempts[()] = {0: took(nan)}
    proof = workflow._proof(series, [SWITCH["tf32"]], finding("tensor_cores", "x"))
    assert (proof.verdict, proof.base_ns, proof.promised_ns) == ("not measured", None, None)


@pytest.mark.parametrize(("effects", "verdict"), [(("tf32", "no_dropout"), "proven"), (("no_dropout",), "faster")])
def test_a_run_without_dropout_counts_only_if_the_switch_had_its_effect(
    effects: tuple[str, ...], verdict: str, plan: ProofPlan
) -> None:
    def took(step_ms: float, loss: float, *effects: str) -> Attempt:
        row = {"path": STEP, "instances": 30, "med_ns": 1e6 * step_ms, "on_gpu": True}
        times = conform("timed_ranges", pd.DataFrame([row]))
        return Attempt(times, 1.0, ((2.0, loss),), effects=dict.fromkeys(effects, 1))

    series = workflow._ProofRuns(plan, Request(), SWITCH | {NO_DROPOUT.name: NO_DROPOUT}, family=STEP, has_dropout=True)
    series.attempts = {
        (): dict.fromkeys((0, 1), took(50.0, 1.0)),
        ("tf32",): dict.fromkeys((0, 1), took(20.0, 1.5, "tf32")),
        (NO_DROPOUT.name,): {2: took(50.0, 1.0, NO_DROPOUT.name)},
        ("tf32", NO_DROPOUT.name): {2: took(20.0, 1.0, *effects)},
    }
    (proof,) = workflow._judged([workflow._proof(series, [SWITCH["tf32"]], None)], series)
    assert proof.verdict == verdict


@pytest.mark.parametrize(
    ("steps", "loss", "rounds", "verdict"),
    [
        ([20.0, 20.5, 19.8], 1.0, 3, "proven"),
        ([20.0, 20.5, 19.8], 1.5, 3, "faster"),
        ([20.0], 1.0, 1, "faster"),
        # the spread includes no change
        ([20.0, 80.0, 50.0], 1.0, 3, "no gain"),
        # sure, but not worth a word
        ([49.5, 49.5, 49.5], 1.0, 3, "no gain"),
        ([60.0, 60.5, 59.8], 1.0, 3, "slower"),
        # each time, but how much is unknown
        ([5.0, 40.0], 1.0, 2, "faster"),
    ],
)
def test_a_verdict_is_of_the_interval_and_of_the_results(
    steps: list[float],
    loss: float,
    rounds: int,
    verdict: str,
    plan: ProofPlan,
    measured: Callable[..., list[tuple[str, ...]]],
) -> None:
    measured({("tf32",): loss}, unchanged=[50.0, 50.1, 49.9], tf32=steps)
    proof_report = prove(named(plan, "tf32", rounds=rounds), Request())
    (proof,) = proof_report.proofs
    assert proof.verdict == verdict
    text = "\n".join(proof_lines(proof_report))
    doubt = "results different (different since" if loss > 1 else "it ran in one round only"
    doubt = "its rounds vary too much" if rounds == 2 else doubt
    assert (f"tf32 is not proven: {doubt}" in text) == (verdict == "faster")


def test_of_several_switches_the_one_that_chance_favors_is_not_proven(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    steps = {"tf32": [48.0, 47.4, 47.8, 49.0, 49.2, 48.8]}
    measured(unchanged=[50.0], **steps)
    (alone,) = prove(named(plan, "tf32"), Request()).proofs
    idle = ("bf16", "channels_last", "fused_optimizer", "cudnn_benchmark", "sdpa", "gc_freeze")
    # all of them pay in the first round, and no more
    measured(unchanged=[50.0], **steps, **{name: [48.5, 51.5, 50.0] for name in idle})
    proof_report = prove(named(plan, "tf32", *idle), Request())
    (among,) = (proof for proof in proof_report.proofs if proof.switches == ("tf32",))
    assert (alone.verdict, alone.rounds, among.verdict, among.rounds) == ("proven", 3, "faster", 6)
    assert alone.p is not None
    assert among.p is not None
    assert alone.p < 0.05 < among.p
    assert "tf32 is not proven: with several switches, chance may explain the gain." in "\n".join(
        proof_lines(proof_report)
    )


def test_switches_that_change_nothing_are_hardly_ever_proven(plan: ProofPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = tuple(switch for switch in SWITCHES if not switch.is_slow)[:12]
    random = np.random.default_rng(20_261_128)

    def run_once(*given: Any, is_search: bool, **_: Any) -> Attempt:
        names = dict.fromkeys((switch.name for switch in given[2] if switch is not NO_DROPOUT), 1)
        times: Any = 50e6 * np.exp(0.03 * random.standard_normal())
        return Attempt(times, 0.0, ((2.0, 1.0),), names)

    monkeypatch.setattr(workflow, "attempt", run_once)
    monkeypatch.setattr(workflow, "timed_step", lambda step_ns, _: (STEP, step_ns))
    idle = replace(plan, report=None, switches=switches, rounds=3, steps=20)
    proofs = [prove(idle, Request()) for _ in range(60)]
    # of 60; eleven without a correction for the number of switches
    assert sum(report.best_proven is not None for report in proofs) <= 3


def test_what_is_faster_each_time_runs_as_often_again_if_its_rounds_differ(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    ran = measured(unchanged=[50.0, 50.1, 49.9], tf32=[40.0, 30.0, 40.0, 35.0])
    (proof,) = prove(named(plan, "tf32", rounds=2), Request()).proofs
    assert (proof.verdict, proof.rounds) == ("proven", 4)
    # and one to warm up
    assert (ran.count(()), ran.count(("tf32",))) == (5, 4)
    ran = measured({("tf32",): 9.0}, unchanged=[50.0, 50.1, 49.9], tf32=[40.0, 30.0, 40.0, 35.0])
    (proof,) = prove(named(plan, "tf32", rounds=2), Request()).proofs
    # its results differ, however often it runs
    assert (proof.verdict, proof.rounds) == ("faster", 2)


def test_what_compiles_runs_when_the_others_are_measured(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    ran = measured(unchanged=[50.0, 50.2, 49.9], tf32=[30.0, 30.2], compile=[40.0, 40.1], tf32_compile=[25.0, 25.1])
    proof_report = prove(named(plan, "compile", "tf32", rounds=2), Request())
    assert ran[:9] == [(), (), ("tf32",), ("tf32",), (), (), ("compile",), ("compile",), ()]
    assert {proof.switches: proof.verdict for proof in proof_report.proofs} == {
        ("tf32",): "proven",
        ("compile",): "proven",
    }
    assert proof_report.best is not None
    assert proof_report.best.switches == ("tf32", "compile")


def test_a_run_is_expected_to_take_as_long_as_the_same_one_before(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = measured(unchanged=[50.0], compile=[30.0, 30.1], compile_graphs=[20.0, 20.1])
    run_once: Callable[..., Attempt] = vars(workflow)["attempt"]
    now_s = 0.0

    def takes_its_time(*given: Any, **options: Any) -> Attempt:
        nonlocal now_s
        taken_s = 30.0 if any(switch.is_slow for switch in given[2]) and not options["is_search"] else 10.0
        now_s += taken_s
        return replace(run_once(*given, **options), seconds=taken_s)

    monkeypatch.setattr(workflow, "attempt", takes_its_time)
    monkeypatch.setattr(f"{workflow.__name__}.time.monotonic", lambda: now_s)
    proof_report = prove(replace(named(plan, "compile", "compile_graphs", rounds=2), budget_s=141.0), Request())
    # 20 s, 30 s of each, and 50 s for all three again, as their code is cached; at 30 s each, there would be no time
    assert ran[2:] == [("compile",), ("compile_graphs",), ("compile",), ("compile_graphs",), ()]
    assert [proof.rounds for proof in proof_report.proofs] == [2, 2]


def test_what_changes_nothing_costs_no_round_of_its_own(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = measured(unchanged=[50.0, 50.2, 49.9], compile=[40.0, 40.1])
    run_once: Callable[..., Attempt] = vars(workflow)["attempt"]

    def finds_nothing_for_tf32(*given: Any, **options: Any) -> Attempt:
        attempt = run_once(*given, **options)
        return replace(attempt, effects={name: count for name, count in attempt.effects.items() if name != "tf32"})

    monkeypatch.setattr(workflow, "attempt", finds_nothing_for_tf32)
    proof_report = prove(named(plan, "compile", "tf32", rounds=2), Request())
    assert {proof.switches: proof.verdict for proof in proof_report.proofs} == {
        ("tf32",): "no effect",
        ("compile",): "proven",
    }
    # to warm up, and two rounds
    assert ran == [(), (), ("compile",), ("compile",), ()]


@pytest.mark.parametrize(("perturbed", "verdict"), [(1.04, "proven"), (1.01, "faster"), (1.5, "faster")])
def test_what_perturbed_weights_lead_to_a_change_of_numerics_may_lead_to_as_well(
    perturbed: float, verdict: str, plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    measured(
        {("tf32",): 1.1, ("perturbed_precision",): perturbed}, unchanged=[50.0, 50.1, 49.9], tf32=[20.0, 20.5, 19.8]
    )
    (proof,) = prove(named(plan, "tf32"), Request()).proofs
    assert (proof.verdict, proof.results.verdict) == (verdict, WITHIN if verdict == "proven" else DIFFERENT)


def test_the_best_set_has_what_pays_together_and_nothing_that_excludes_another(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]
) -> None:
    measured(
        unchanged=[50.0, 50.2, 49.9],
        tf32=[30.0, 30.2],
        bf16=[25.0, 25.1],
        fused_optimizer=[40.0, 40.1],
        channels_last=[45.0, 45.2],
        bf16_fused_optimizer=[18.0, 18.1],
        bf16_fused_optimizer_channels_last=[18.0, 18.1],
    )
    proof = prove(named(plan, "tf32", "bf16", "fused_optimizer", "channels_last"), Request())
    assert proof.best is not None
    # TF32 makes no sense with autocast, and NHWC gains nothing more
    assert proof.best.switches == ("bf16", "fused_optimizer")
    assert proof.best.verdict == "proven"
    assert "Together: bf16 + fused_optimizer: 50.00 ms -> 18.00 ms, proven" in "\n".join(proof_lines(proof))


def test_no_run_begins_after_the_budget(plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]]) -> None:
    ran = measured(unchanged=[50.0], tf32=[30.0])
    proof = prove(replace(named(plan, "tf32", rounds=5), budget_s=2.0), Request())
    assert len(ran) == 3
    assert "1 of 5 rounds ran: the budget of 0.0333 min allows no more. Give more with --budget." in proof.notes


def test_a_budget_is_blamed_only_if_it_was_short_and_what_ran_before_a_failure_counts(
    plan: ProofPlan, measured: Callable[..., list[tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = measured(unchanged=[50.0], tf32=[80.0], fused_optimizer=[30.0, 30.1])
    slower = prove(named(plan, "tf32"), Request())
    assert (slower.proofs[0].verdict, slower.notes) == ("slower", ())
    run_once: Callable[..., Attempt] = vars(workflow)["attempt"]

    def fails_late(*given: Any, **options: Any) -> Attempt:
        attempt = run_once(*given, **options)
        return replace(attempt, failure="ended with exit status 1") if len(ran) == 6 else attempt

    monkeypatch.setattr(workflow, "attempt", fails_late)
    ran.clear()
    faster = prove(named(plan, "fused_optimizer", rounds=5), Request())
    assert (faster.proofs[0].verdict, faster.proofs[0].rounds) == ("proven", 2)
    assert faster.notes == ("The unchanged program ended with exit status 1 in round 3.",)


def test_a_check_that_rejects_is_believed_and_a_switch_without_effect_runs_once(plan: ProofPlan) -> None:
    proof = prove(
        replace(
            plan,
            report=None,
            switches=named_switches(("loader_workers", "channels_last")),
            check='test -z "$NIGHTSIGHT_SWITCHES"',
        ),
        Request(),
    )
    none, workers = proof.proofs
    assert (none.switches, none.verdict, none.why) == (("channels_last",), "no effect", "nothing to change was found")
    assert none.rounds <= 1
    assert workers.results.verdict == DIFFERENT
    assert workers.verdict != "proven"
    assert proof.best is None


def test_a_program_that_fails_is_not_measured_and_one_that_a_switch_breaks_is_reported(
    plan: ProofPlan, program: Callable[..., Program]
) -> None:
    with pytest.raises(NotMeasured, match="train ended with exit status 3 without any change"):
        prove(replace(plan, program=program(code="raise SystemExit(3)")), Request())
    breaks = "import os, torch\nif os.environ['NIGHTSIGHT_SWITCHES']: raise SystemExit(4)\n"
    code = breaks + SLOW_ITEMS
    proof = prove(replace(plan, program=program(code=code), rounds=1), Request())
    assert (proof.proofs[0].verdict, proof.proofs[0].why) == ("failed", "the program ended with exit status 4")


def test_the_command_takes_the_latest_report_and_says_what_is_wrong(tmp_path: Path, run: Any) -> None:
    listed = run("prove", "--list").stdout
    assert "tf32: matrix products and convolutions in TF32 (tensor_cores)" in listed
    assert "is not one of: tf32," in run("prove", "--switch", "nothing", "train.py", expect=2).stderr
    assert "Name a workload or script" in run("prove", expect=2).stderr
    (tmp_path / "tf32.py").write_text("MODULE = 'json'\ndef change(module): pass\ndef holds(): pass\n")
    stderr = run("prove", "--switch", str(tmp_path / "tf32.py"), "train.py", expect=2).stderr
    assert "two switches have the name tf32" in stderr
    (tmp_path / "other.json").write_text(EMPTY)
    (tmp_path / "run.py").write_text("")
    stderr = run("prove", "--report", str(tmp_path / "other.json"), str(tmp_path / "run.py"), expect=2).stderr
    assert "the report is of train, and the program is run" in stderr
    # switches that are named get the promises of the latest report, too
    latest = tmp_path / "reports" / "run" / "latest"
    latest.mkdir(parents=True)
    (latest / "report.json").write_text(EMPTY)
    options = ("--switch", "tf32", "--reports", str(tmp_path / "reports"))
    stderr = run("prove", *options, str(tmp_path / "run.py"), expect=2).stderr
    assert "the report is of train, and the program is run" in stderr


def test_promises_of_all_programs_are_compared_with_what_was_measured(tmp_path: Path, run: Any) -> None:
    assert "reports has no proof of a predicted gain yet." in run("prove", "--calibration").stdout
    for name, measured in (("a", (10.0, 20.0)), ("b", (11.0,))):
        folder = tmp_path / "reports" / name
        folder.mkdir(parents=True)
        lines = [json.dumps({"rule": "tensor_cores", "promised_ns": 10.0, "measured_ns": each}) for each in measured]
        (folder / "proofs.jsonl").write_text("\n".join([*lines, "damaged"]))
    words = run("prove", "--calibration").stdout.splitlines()[-1].split()
    assert words == ["tensor_cores", "3", "0.91", "2", "of", "3"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nightsight_proof": 2}', '{"nightsight_proof": 1, "proofs": 3}'])
def test_what_is_not_a_proof_is_refused(text: str) -> None:
    with pytest.raises(CaptureError, match=r"proof\.json"):
        ProofReport.from_json(text)


def test_the_hook_is_old_python() -> None:
    """What runs in the program may be older than ours: no syntax of newer Pythons."""
    for path in sorted(INJECTED.glob("*.py")):
        ast.parse(path.read_text(), path.name, feature_version=(3, 8))
