"""The workload `generate`: how it generates does not change what, and its figures are those of serving benchmarks."""

import json
from argparse import Namespace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload_runs import run_together

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

SIZES = Namespace(
    batch=3,
    prompt=5,
    tokens=7,
    layers=2,
    dim=16,
    heads=4,
    vocab=50,
    dtype="float32",
    device="cpu",
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return import_module("workloads.generate")


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return import_module("torch")


@pytest.mark.parametrize("seed", range(4))
def test_decoding_with_kept_keys_and_values_is_as_computing_all_again(
    generate: ModuleType, torch: ModuleType, seed: int
) -> None:
    torch.manual_seed(seed)
    model = generate.Gpt(SIZES)
    # random parameters of their usual size generate one token over and over
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    prompts = torch.randint(SIZES.vocab, (SIZES.batch, SIZES.prompt))
    kept = generate.generated(model, prompts, SIZES.tokens)
    sequence = prompts
    with torch.inference_mode():
        for _ in range(SIZES.tokens):
            sequence = torch.cat([sequence, model.prefill(sequence)], dim=1)
    assert kept.tolist() == sequence[:, SIZES.prompt :].tolist()
    assert len(set(kept.flatten().tolist())) > 3
    # nothing is left of the batch before
    others = torch.randint(SIZES.vocab, (SIZES.batch, SIZES.prompt))
    assert generate.generated(model, others, SIZES.tokens).tolist() != kept.tolist()
    assert generate.generated(model, prompts, SIZES.tokens).tolist() == kept.tolist()


def test_what_another_decodes_is_compared_token_by_token(generate: ModuleType, torch: ModuleType) -> None:
    torch.manual_seed(0)
    model = generate.Gpt(SIZES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    prompts = torch.randint(SIZES.vocab, (SIZES.batch, SIZES.prompt))

    class Shifted:
        """Takes each token to be one place further on, as a graph that was recorded with the wrong position."""

        def prefill(self, prompt: Any) -> Any:
            return model.prefill(prompt)

        def decode(self, token: Any) -> Any:
            model.position.clamp_(min=SIZES.prompt + 1)
            return (model.decode(token) + 1) % SIZES.vocab

    assert generate.worst_choice(model, model, prompts, SIZES.tokens) == 0.0
    assert generate.worst_choice(model, Shifted(), prompts, SIZES.tokens) > 0.25


def test_figures_are_those_of_serving_benchmarks(generate: ModuleType) -> None:
    # two batches of three requests: the tokens of the first come after 1, 2 and 4 s, its answer after 5 s
    batches = [generate.Answered((1.0, 2.0, 4.0), 5.0), generate.Answered((3.0, 4.0, 5.0), 7.0)]
    figures = generate.figures(batches, Namespace(batch=3, prompt=10, tokens=3))
    assert figures["completed"] == 6
    assert figures["total_input_tokens"] == 60
    assert figures["total_output_tokens"] == 18
    assert figures["request_throughput"] == pytest.approx(6 / 12)
    assert figures["output_throughput"] == pytest.approx(18 / 12)
    assert figures["total_token_throughput"] == pytest.approx(78 / 12)
    assert (figures["mean_ttft_ms"], figures["median_ttft_ms"]) == (2000, 2000)
    # (latency - time to first token) / (tokens - 1)
    assert figures["mean_tpot_ms"] == pytest.approx(1e3 * ((5 - 1) / 2 + (7 - 3) / 2) / 2)
    assert figures["mean_itl_ms"] == pytest.approx(1e3 * (1 + 2 + 1 + 1) / 4)
    assert figures["median_itl_ms"] == pytest.approx(1000)
    assert figures["p90_e2el_ms"] == pytest.approx(6800)


@given(
    st.lists(st.lists(st.floats(0.001, 10), min_size=1, max_size=5), min_size=1, max_size=4).filter(
        lambda batches: len({len(batch) for batch in batches}) == 1
    ),
    st.integers(1, 5),
)
def test_laws_of_the_figures(gaps: list[list[float]], batch: int) -> None:
    generate = import_module("workloads.generate")
    times = [[sum(gap[: place + 1]) for place in range(len(gap))] for gap in gaps]
    tokens = len(gaps[0])
    figures = generate.figures(
        [generate.Answered(tuple(ends), ends[-1]) for ends in times], Namespace(batch=batch, prompt=4, tokens=tokens)
    )
    assert figures["output_throughput"] == pytest.approx(tokens * figures["request_throughput"])
    assert figures["total_token_throughput"] == pytest.approx((tokens + 4) * figures["request_throughput"])
    assert figures["mean_e2el_ms"] * figures["request_throughput"] == pytest.approx(1e3 * batch)
    if tokens == 1:
        assert not [name for name in figures if "tpot" in name or "itl" in name]
    else:
        # without anything after the last token, the mean of both is the same
        assert figures["mean_tpot_ms"] == pytest.approx(figures["mean_itl_ms"])
        assert figures["mean_ttft_ms"] + (tokens - 1) * figures["mean_tpot_ms"] == pytest.approx(
            figures["mean_e2el_ms"]
        )
    for metric in ("ttft", "e2el"):
        assert figures[f"median_{metric}_ms"] <= figures[f"p90_{metric}_ms"] <= figures[f"p99_{metric}_ms"]


def test_what_it_says_of_wrong_options_and_what_a_benchmark_adds(tmp_path: Path, torch_python: str) -> None:
    small = ("--iterations", "2", "--warmup", "1", "--trials", "3", "--device", "cpu", "--batch", "2")
    commands: dict[str, tuple[str, ...]] = {
        "3 heads cannot share 64 numbers": ("--heads", "3"),
        "a CUDA graph needs a GPU": ("--cuda-graph",),
        "--cuda-graph needs --model own": ("--cuda-graph", "--model", "hf"),
        "a Llama needs an even number": ("--model", "hf", "--dim", "12"),
        "these sizes need": ("--batch", "100000000"),
        "invalid choice: 'int8'": ("--dtype", "int8"),
    }
    if find_spec("transformers") is None:
        commands["the package transformers is not installed"] = ("--model", "hf")
    good = [
        (*small, "--benchmark", "b.json", "--tokens", "3"),
        (*small, "--tokens", "1"),
        (*small, "--dtype", "bfloat16"),
    ]
    runs = [("generate", *options) for options in (*good, *((*small, *options) for options in commands.values()))]
    ended = run_together(runs, tmp_path, python=torch_python)
    assert [done.status for done in ended] == [0] * len(good) + [2] * len(commands)
    for words, done in zip(commands, ended[len(good) :], strict=True):
        (line,) = done.stderr.splitlines()
        assert words in line
    document: dict[str, Any] = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    assert list(document) == ["step_ns", "steps_per_trial", "parameters", "facts", "serving"]
    # the warm-up is not among the requests
    assert document["serving"]["completed"] == 2 * 3 * 2
    assert document["serving"]["total_output_tokens"] == 2 * 3 * 2 * 3
    assert 0 < document["serving"]["mean_ttft_ms"] < document["serving"]["mean_e2el_ms"]


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_a_model_of_transformers_generates_with_its_cache_what_it_does_without(
    generate: ModuleType, torch: ModuleType
) -> None:
    torch.manual_seed(0)
    model = generate.HuggingFace(SIZES)
    prompts = torch.randint(SIZES.vocab, (SIZES.batch, SIZES.prompt))
    kept = generate.generated(model, prompts, SIZES.tokens)
    sequence = prompts
    with torch.inference_mode():
        for _ in range(SIZES.tokens):
            sequence = torch.cat([sequence, model.prefill(sequence)], dim=1)
    assert kept.tolist() == sequence[:, SIZES.prompt :].tolist()
