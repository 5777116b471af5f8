"""Generates text with a language model: the prompt at once (prefill), then one token after the other (decode).

Greedy, for a batch of requests that come and end together. The own model keeps keys and values of all positions in
memory that is allocated once, so that a decode step has the same shapes, and the same addresses, for every token: only
so can it be recorded as a CUDA graph.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, needed, positive, require_memory, run

_PERCENTILES = (90, 95, 99)
# a token that is chosen at random is several standard deviations behind the best
_ROUNDING = 0.25


class Model(Protocol):
    """A generator of text. Both methods return the most likely next token of each sequence, as (sequences, 1)."""

    def prefill(self, prompt: torch.Tensor) -> torch.Tensor:
        """Process the whole prompt (sequences, tokens), and forget earlier tokens."""

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Process the last token of each sequence (sequences, 1)."""


class Layer(nn.Module):
    """A block of a transformer with a cache of keys and values."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        dim, self.heads = options.dim, options.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        kept = torch.zeros(options.batch, options.heads, options.prompt + options.tokens, dim // options.heads)
        self.register_buffer("keys", kept, persistent=False)
        self.register_buffer("values", kept.clone(), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Map (sequences, tokens, dim) at these positions to the same shape; `visible`: (tokens, all positions)."""
        queries, keys, values = (
            self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        self.keys.index_copy_(2, positions, keys)
        self.values.index_copy_(2, positions, values)
        seen = visible.shape[1]
        attended = functional.scaled_dot_product_attention(
            queries, self.keys[:, :, :seen], self.values[:, :, :seen], attn_mask=visible
        )
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.mlp(self.before_mlp(x))
        return result


class Gpt(nn.Module):
    """The own model, decoder-only, with learned positions."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        most = options.prompt + options.tokens
        self.tokens, self.positions = nn.Embedding(options.vocab, options.dim), nn.Embedding(most, options.dim)
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(options.dim), nn.Linear(options.dim, options.vocab, bias=False)
        # the position of the next token: on the device, where a graph can read it
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64), persistent=False)
        self.register_buffer("every", torch.arange(most), persistent=False)

    position: torch.Tensor
    every: torch.Tensor

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the logits of the token after the last of these, (sequences, 1, vocabulary)."""
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = layer(x, positions, visible)
        logits: torch.Tensor = self.head(self.norm(x[:, -1:]))
        return logits

    def prefill(self, prompt: torch.Tensor) -> torch.Tensor:
        """Process the prompt; each token sees itself and the tokens before it."""
        length = prompt.shape[1]
        positions = self.every[:length]
        self.position.fill_(length)
        best: torch.Tensor = self(prompt, positions, positions <= positions[:, None]).argmax(-1)
        return best

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Process one token."""
        return self.decoded(token).argmax(-1)

    def decoded(self, token: torch.Tensor) -> torch.Tensor:
        """Process one token, return logits. Later cache entries belong to an earlier batch, and are masked."""
        logits: torch.Tensor = self(token, self.position, (self.every <= self.position)[None])
        self.position.add_(1)
        return logits


class Graphed:
    """The own model, whose decode step is one launch of a CUDA graph."""

    def __init__(self, model: Gpt, batch: int, device: str) -> None:
        self._model = model
        self._token = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        # libraries allocate memory in their first calls, which a graph cannot record
        with torch.inference_mode(), torch.cuda.stream(aside):
            for _ in range(3):
                model.position.zero_()
                model.decode(self._token)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph):
            self._next = model.decode(self._token)

    def prefill(self, prompt: torch.Tensor) -> torch.Tensor:
        """Process the prompt without a graph, because prompts differ in length."""
        return self._model.prefill(prompt)

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Process one token."""
        self._token.copy_(token)
        self._graph.replay()
        return self._next.clone()


class HuggingFace:
    """A Llama of the package transformers, with random parameters and its own cache, which grows."""

    def __init__(self, options: argparse.Namespace) -> None:
        transformers = needed("transformers", "transformers")
        config = transformers.LlamaConfig(
            vocab_size=options.vocab,
            hidden_size=options.dim,
            intermediate_size=4 * options.dim,
            num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            max_position_embeddings=options.prompt + options.tokens,
        )
        model = transformers.LlamaForCausalLM(config)
        self._model = model.to(device=options.device, dtype=getattr(torch, options.dtype)).eval()
        self._cache: object = None

    def prefill(self, prompt: torch.Tensor) -> torch.Tensor:
        """Process the prompt, with an empty cache."""
        self._cache = None
        return self.decode(prompt)

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Process tokens that follow those in the cache."""
        output = self._model(token, past_key_values=self._cache, use_cache=True)
        self._cache = output.past_key_values
        best: torch.Tensor = output.logits[:, -1:].argmax(-1)
        return best


@dataclass(frozen=True)
class Answered:
    """The times of the tokens of one batch of requests, in seconds from its start; the last one: on the host."""

    token_s: tuple[float, ...]
    end_s: float


@dataclass
class Clock:
    """Records the times of tokens, on a GPU with events, because waiting for a token would delay the next one."""

    on_gpu: bool
    _marks: list[Any] = field(default_factory=list)
    _began_s: float = 0.0

    def mark(self, *, is_first: bool = False) -> None:
        """Record when all work submitted so far is done; the first call begins a batch, on an idle GPU."""
        if is_first:
            self._marks, self._began_s = [], time.perf_counter()
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def answered(self) -> Answered:
        """Return the times of a batch whose tokens are on the host."""
        end_s = time.perf_counter() - self._began_s
        first, *others = self._marks
        return Answered(
            tuple(first.elapsed_time(other) / 1e3 if self.on_gpu else other - first for other in others), end_s
        )


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--model", choices=("own", "hf"), default="own", help="own, or a Llama of transformers (default: %(default)s)"
    )
    parser.add_argument(
        "--cuda-graph", action="store_true", help="replay the decode step of the own model as one graph"
    )
    parser.add_argument(
        "--batch", type=positive, default=8, help="requests of a step, at once (default: %(default)s, 2 on a CPU)"
    )
    parser.add_argument(
        "--prompt", type=positive, default=512, help="tokens of a prompt (default: %(default)s, 16 on a CPU)"
    )
    parser.add_argument(
        "--tokens", type=positive, default=128, help="tokens to generate for each (default: %(default)s, 8 on a CPU)"
    )
    parser.add_argument("--layers", type=positive, default=12, help="blocks (default: %(default)s, 2 on a CPU)")
    parser.add_argument(
        "--dim", type=positive, default=1024, help="numbers per token (default: %(default)s, 64 on a CPU)"
    )
    parser.add_argument("--heads", type=positive, default=16, help="heads (default: %(default)s, 4 on a CPU)")
    parser.add_argument(
        "--vocab", type=positive, default=32000, help="different tokens (default: %(default)s, 256 on a CPU)"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="bfloat16",
        help="type of the numbers (default: %(default)s, float32 on a CPU)",
    )
    on_cpu = {"batch": 2, "prompt": 16, "tokens": 8, "layers": 2, "dim": 64, "heads": 4, "vocab": 256}
    answered: list[Answered] = []
    run(
        parser,
        lambda options: prepare(options, answered),
        on_cpu={**on_cpu, "dtype": "float32"},
        # the steps of the warm-up come first
        serving=lambda options: figures(answered[options.warmup :], options),
    )


def prepare(options: argparse.Namespace, answered: list[Answered]) -> Step:
    """Create the model and prompts, and return a step that answers them; a benchmark adds its times to `answered`."""
    _refuse(options)
    prompts = torch.randint(options.vocab, (options.batch, options.prompt), device=options.device)
    model = _model(options, prompts)
    clock = Clock(options.device == "cuda") if options.benchmark else None

    def step() -> None:
        generated(model, prompts, options.tokens, clock.mark if clock else _unmarked)
        if clock:
            answered.append(clock.answered())

    return step


def generated(
    model: Model, prompts: torch.Tensor, tokens: int, mark: Callable[..., None] | None = None
) -> torch.Tensor:
    """Return the tokens that a model generates, (sequences, tokens), on the host."""
    mark = mark or _unmarked
    with torch.inference_mode():
        mark(is_first=True)
        with annotate("prefill"):
            token = model.prefill(prompts)
            mark()
        answers = [token]
        with annotate("decode"):
            for _ in range(tokens - 1):
                with annotate("token"):
                    answers.append(token := model.decode(token))
                    mark()
            return torch.cat(answers, dim=1).cpu()


def figures(answered: Sequence[Answered], options: argparse.Namespace) -> Mapping[str, float]:
    """Return the figures of serving benchmarks, by their names in `vllm bench serve`.

    All requests of a batch have the same times. Time per output token: that after the first, divided by the tokens
    after the first. Throughput: of what was asked for, over the sum of the times of the batches.
    """
    count, total_s = len(answered) * options.batch, sum(batch.end_s for batch in answered)
    latencies_s = {
        "ttft": [batch.token_s[0] for batch in answered],
        "tpot": [(batch.end_s - batch.token_s[0]) / (options.tokens - 1) for batch in answered if options.tokens > 1],
        "itl": [later - earlier for batch in answered for earlier, later in pairwise(batch.token_s)],
        "e2el": [batch.end_s for batch in answered],
    }
    rates = {
        "completed": count,
        "total_input_tokens": count * options.prompt,
        "total_output_tokens": count * options.tokens,
        "request_throughput": count / total_s,
        "output_throughput": count * options.tokens / total_s,
        "total_token_throughput": count * (options.prompt + options.tokens) / total_s,
    }
    return rates | {
        name: value
        for metric, times_s in latencies_s.items()
        if times_s
        for name, value in _statistics(metric, times_s)
    }


def _statistics(metric: str, times_s: Sequence[float]) -> Iterator[tuple[str, float]]:
    times_ms = 1e3 * torch.tensor(times_s, dtype=torch.float64)
    yield f"mean_{metric}_ms", float(times_ms.mean())
    yield f"median_{metric}_ms", float(times_ms.quantile(0.5))
    for percent in _PERCENTILES:
        yield f"p{percent}_{metric}_ms", float(times_ms.quantile(percent / 100))


def _model(options: argparse.Namespace, prompts: torch.Tensor) -> Model:
    """Create the model; with a graph, check that it generates the same tokens as without it."""
    if options.model == "hf":
        return HuggingFace(options)
    own = Gpt(options)
    own.to(device=options.device, dtype=getattr(torch, options.dtype)).eval()
    if not options.cuda_graph:
        return own
    graphed = Graphed(own, options.batch, options.device)
    worst = worst_choice(own, graphed, prompts, options.tokens)
    if worst > _ROUNDING:
        raise SystemExit(
            f"a token of the CUDA graph is {worst:.2g} standard deviations less likely than that of eager decoding"
        )
    print(f"the CUDA graph decodes as the model does, up to {worst:.2g} standard deviations of the logits")
    return graphed


def worst_choice(own: Gpt, other: Model, prompts: torch.Tensor, tokens: int) -> float:
    """Return by how much the worst token of `other` is less likely than the best, given the same tokens before it.

    In standard deviations of the logits. Libraries may choose other kernels for a graph: then sums are rounded in
    another way, and the better of two tokens that are nearly as likely is not the same.
    """
    worst = 0.0
    with torch.inference_mode():
        token = own.prefill(prompts)
        for _ in range(tokens - 1):
            position = own.position.clone()
            chosen = other.decode(token)
            own.position.copy_(position)
            logits = own.decoded(token).float()
            behind = (logits.amax(-1) - logits.gather(-1, chosen[..., None])[..., 0]) / logits.std(-1)
            worst, token = max(worst, float(behind.max())), logits.argmax(-1)
    return worst


def _refuse(options: argparse.Namespace) -> None:
    if options.dim % options.heads:
        raise CannotRun(f"{options.heads} heads cannot share {options.dim} numbers: give a --dim that they divide")
    if options.cuda_graph and options.model == "hf":
        raise CannotRun("--cuda-graph needs --model own: the cache of a transformers model grows with each token")
    if options.cuda_graph and options.device != "cuda":
        raise CannotRun("a CUDA graph needs a GPU")
    if options.model == "hf" and (options.dim // options.heads) % 2:
        raise CannotRun("a Llama needs an even number of numbers per head: give another --dim")
    most = options.prompt + options.tokens
    parameters = options.dim * (16 * options.layers * options.dim + 2 * options.vocab + most)
    kept = 2 * options.layers * options.batch * most * options.dim
    # the largest temporary: that of the perceptron for the prompt; attention may write its scores
    wide = options.batch * options.prompt * (4 * options.dim + options.heads * options.prompt)
    require_memory(getattr(torch, options.dtype).itemsize * (parameters + kept + wide), options.device)


def _unmarked(*, is_first: bool = False) -> None:
    """Record nothing."""


if __name__ == "__main__":
    main()
