"""Serves a language model over HTTP: continuous batching, a paged cache, CUDA graphs for decoding, prompts in chunks.

Each step of the engine takes the next chunk of the prompts that wait, and the next token of all requests that generate;
its range has the name that vLLM gives such steps. A client in another process (workloads/serve_client.py) sends the
requests, and a step of this workload answers a burst of them. With --listen, it serves until it is terminated. --log
writes what happened to each request, and how full the cache is, for `nightsight profile --attach`. --fault plants what
slows servers down.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import nn
from torch.nn import functional

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, natural, positive, require_memory, run
from workloads.variants import triton_kernels

FAULTS = {
    "none": "nothing is planted",
    "whole-prompts": "a prompt is not cut into chunks: all requests that generate wait for it",
    "new-shapes": "cuDNN's attention is on, which is compiled for each length of a prompt",
    "small-batch": "at most two requests generate at a time",
    "slow-scheduler": "the scheduler looks at all blocks of the cache, in Python, before each step",
    "no-overlap": "a step is scheduled only when the tokens of the one before have come from the GPU",
    "sampling-syncs": "each request takes its token from the GPU on its own",
    "eager": "no CUDA graph is recorded",
    "few-graphs": "graphs are recorded for the smallest batches only",
    "small-cache": "the cache is too small for the batch: requests are preempted",
    "tokenize-in-engine": "the thread of the engine tokenizes prompts, in Python",
}
_BLOCK = 16  # tokens in a block of the cache
_SMALL_BATCH = 2
_FEW_GRAPHS = 2
# work of the planted Python loops: of a scheduler per block of the cache, of a tokenizer per token
_ROUNDS, _ROUNDS_OF_TOKENIZER = 300, 3000


class Layer(nn.Module):
    """A block of a Llama whose keys and values are in a paged cache."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, options: argparse.Namespace, blocks: int) -> None:
        super().__init__()
        dim, self.heads, self.size = options.dim, options.heads, options.dim // options.heads
        self.before_attention, self.before_mlp = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate_up, self.down = nn.Linear(dim, 8 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)
        cache = torch.zeros(blocks * _BLOCK, self.heads, self.size, dtype=getattr(torch, options.dtype))
        self.register_buffer("keys", cache, persistent=False)
        self.register_buffer("values", cache.clone(), persistent=False)

    def forward(self, x: torch.Tensor, batch: "Batch") -> torch.Tensor:
        """Map (tokens, dim) to the same shape."""
        query, key, value = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, self.size)).unbind(-3)
        self.keys.index_copy_(0, batch.slots, batch.rotate(key))
        self.values.index_copy_(0, batch.slots, value)
        x = x + self.projection(batch.attend(batch.rotate(query), self.keys, self.values).flatten(1))
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, dim=-1)
        result: torch.Tensor = x + self.down(functional.silu(gate) * up)
        return result


class Batch:
    """The tokens of a step: their positions, their places in the cache (slots), and what they attend to.

    last: the tokens whose next one is wanted; None for all.
    """

    last: Sequence[int] | None = None

    def __init__(self, positions: torch.Tensor, slots: torch.Tensor, model: "Llama") -> None:
        self.positions, self.slots = positions, slots
        half = model.size // 2
        angle = positions[:, None, None] * 10_000.0 ** (-torch.arange(half, device=positions.device) / half)
        self.cosine, self.sine = angle.cos().to(model.dtype), angle.sin().to(model.dtype)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Apply rotary position embeddings to (tokens, heads, size)."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * self.cosine - second * self.sine, second * self.cosine + first * self.sine), dim=-1)

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return (tokens, heads, size) from queries and a cache."""
        raise NotImplementedError


class Prompts(Batch):
    """Parts of prompts. seen: for each, the places of its tokens so far; the part is the last `sizes` of them."""

    def __init__(
        self, positions: torch.Tensor, sizes: Sequence[int], seen: Sequence[torch.Tensor], model: "Llama"
    ) -> None:
        slots = torch.cat([places[-size:] for size, places in zip(sizes, seen, strict=True)])
        super().__init__(positions, slots, model)
        self.sizes, self.seen = sizes, seen
        self.visible = [
            torch.arange(len(places), device=positions.device) <= part[:, None]
            for places, part in zip(seen, positions.split(list(sizes)), strict=True)
        ]
        self.last = [end - 1 for end in accumulate(sizes)]

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return (tokens, heads, size) from queries and a cache."""
        attended = []
        for part, places, visible in zip(query.split(list(self.sizes)), self.seen, self.visible, strict=True):
            of_heads = [tokens.transpose(0, 1)[None] for tokens in (part, keys[places], values[places])]
            result = functional.scaled_dot_product_attention(of_heads[0], of_heads[1], of_heads[2], visible)
            attended.append(result[0].transpose(0, 1))
        return torch.cat(attended)


class Decoding(Batch):
    """The latest token of each request. blocks: (requests, most blocks of one), those of its cache."""

    def __init__(self, positions: torch.Tensor, slots: torch.Tensor, blocks: torch.Tensor, model: "Llama") -> None:
        super().__init__(positions, slots, model)
        self.blocks = blocks

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return (tokens, heads, size) from queries and a cache."""
        if query.is_cuda:
            # gathering all blocks would read and write several times as much
            attended: torch.Tensor = triton_kernels("cuda").paged_attention(
                query, keys, values, self.blocks, self.positions, _BLOCK
            )
            return attended
        seen = _places(self.blocks)
        visible = torch.arange(seen.shape[1]) <= self.positions[:, None]
        parts = [tokens.transpose(1, 2) for tokens in (query[:, None], keys[seen], values[seen])]
        return functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], visible[:, None, None])[:, :, 0]


def _places(blocks: torch.Tensor) -> torch.Tensor:
    """Return the places in the cache of all tokens of blocks: (..., tokens)."""
    return (blocks[..., None] * _BLOCK + torch.arange(_BLOCK, device=blocks.device)).flatten(-2)


class Llama(nn.Module):
    """The model, decoder-only."""

    def __init__(self, options: argparse.Namespace, blocks: int) -> None:
        super().__init__()
        self.size, self.dtype = options.dim // options.heads, getattr(torch, options.dtype)
        self.tokens = nn.Embedding(options.vocab, options.dim)
        self.layers = nn.ModuleList(Layer(options, blocks) for _ in range(options.layers))
        self.norm, self.head = nn.RMSNorm(options.dim), nn.Linear(options.dim, options.vocab, bias=False)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the weights that a step reads, and of the keys and values of a token."""
        # of the embedding, a step reads a row per token
        weights = [weight for name, weight in self.named_parameters() if not name.startswith("tokens.")]
        cached = sum(buffer[0].nbytes for buffer in self.buffers())
        return {"weight_bytes": sum(weight.nbytes for weight in weights), "kv_token_bytes": cached}

    def forward(self, tokens: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the logits of the tokens after those that `batch` names, (those, vocab)."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, batch)
        logits: torch.Tensor = self.head(
            self.norm(x if batch.last is None else torch.stack([x[token] for token in batch.last]))
        )
        return logits


@dataclass(eq=False)
class Request:
    """A request. tokens: its prompt, then the answer; blocks: its part of the cache; done: how many tokens are in it.

    row: where its latest token is on the device. After a preemption, all tokens are computed again.
    """

    name: str
    text: str
    limit: int
    answer: asyncio.Queue[int | None]
    tokens: list[int] = field(default_factory=list)
    prompt: int = 0
    blocks: list[int] = field(default_factory=list)
    done: int = 0
    row: int = 0

    @property
    def missing(self) -> int:
        """The number of tokens that are not in the cache; the last one is computed to get the next."""
        return len(self.tokens) - self.done

    @property
    def generates(self) -> bool:
        """Whether only the latest token of the answer is missing."""
        return self.missing == 1 and len(self.tokens) > self.prompt

    @property
    def next_slot(self) -> int:
        """The place of the next token in the cache."""
        return self.blocks[self.done // _BLOCK] * _BLOCK + self.done % _BLOCK


@dataclass
class Sampled:
    """Tokens on their way from the device; requests: with their places in these; event: when all have come."""

    requests: list[tuple[Request, int]]
    tokens: torch.Tensor
    event: torch.cuda.Event | None


class Log:
    """Writes the events of requests, a line each; nothing without a file."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def note(self, request: str, event: str, tokens: int | None = None) -> None:
        """Write that something has just happened."""
        if self._file:
            line = {"id": request, "event": event, "time_ns": time.time_ns()}
            self._file.write(json.dumps(line if tokens is None else line | {"tokens": tokens}) + "\n")

    def describe(self, event: str, **facts: float) -> None:
        """Write facts about the engine: its `model`, or the `step` that begins now."""
        if self._file:
            self._file.write(json.dumps({"event": event, "time_ns": time.time_ns(), **facts}) + "\n")


class Engine:
    """Schedules requests, and runs the model for them step by step."""

    def __init__(self, options: argparse.Namespace, log: Log) -> None:
        self.log, self.fault, self.device, self.vocab = log, options.fault, options.device, options.vocab
        self.longest = options.prompt + options.tokens
        self.most = min(options.batch, _SMALL_BATCH) if self.fault == "small-batch" else options.batch
        self.chunk = self.longest if self.fault == "whole-prompts" else options.chunk
        self.table = -(-self.longest // _BLOCK)
        # block 0 takes what padding writes
        count = self.table * (max(options.batch // 8, 1) if self.fault == "small-cache" else options.batch)
        self.free, self.blocks = deque(range(1, count + 1)), count
        with torch.device(self.device):
            self.model = Llama(options, count + 1)
        self.model.to(dtype=self.model.dtype).eval()
        log.describe("model", **self.model.sizes(), kv_tokens=count * _BLOCK)
        torch.backends.cuda.enable_cudnn_sdp(self.fault == "new-shapes")
        self.arrived: deque[Request] = deque()
        self.has_arrived = threading.Event()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.sampled: Sampled | None = None
        self.finished = 0
        # the latest token of each running request stays on the device: the next step need not wait for it
        self.latest = torch.zeros(options.batch, dtype=torch.int64, device=self.device)
        self.rows = deque(range(options.batch))
        self.deliver: Callable[[list[tuple[Request, int, bool]]], object] = _deliver
        with torch.inference_mode():
            self.graphs = dict(self._recorded()) if self.device == "cuda" and self.fault != "eager" else {}

    def submit(self, request: Request) -> None:
        """Take up a request, from any thread."""
        self.log.note(request.name, "received")
        if self.fault != "tokenize-in-engine":
            self._tokenize(request)
        self.arrived.append(request)
        self.has_arrived.set()

    def serve(self, count: int | None = None, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run until that many requests have been answered; without a number, until the process ends.

        is_over: whether no more requests will come; asked when there is none.
        """
        until = None if count is None else self.finished + count
        with torch.inference_mode():
            while until is None or self.finished < until:
                if self.arrived or self.waiting or self.running:
                    self.step()
                elif self.sampled:
                    self._collect()
                elif is_over():
                    return
                else:
                    self.has_arrived.wait(0.05)
                    self.has_arrived.clear()

    def step(self) -> None:
        """Schedule, run the model once, and answer what the step before has generated."""
        with annotate("schedule"):
            chunks = self._schedule()
            decoding = [request for request in self.running if request.generates]
        tokens, count = sum(size for _, size in chunks), len(decoding)
        self.log.describe("step", kv_pct=100 * (1 - len(self.free) / self.blocks))
        with annotate(f"execute_context_{len(chunks)}({tokens})_generation_{count}({count})"):
            logits = [self._decode(decoding)] if decoding else []
            if chunks:
                of_prompts = self._prefill(chunks)
                logits += [
                    row[None] for row, (request, _) in zip(of_prompts, chunks, strict=True) if not request.missing
                ]
            complete = decoding + [request for request, _ in chunks if not request.missing]
            with annotate("sample"):
                sampled = self._sampled(complete, torch.cat(logits)) if logits else None
        if self.fault == "no-overlap":
            self.sampled, sampled = sampled, None
        with annotate("output"):
            self._collect()
        self.sampled = sampled

    def _schedule(self) -> list[tuple[Request, int]]:
        """Take up and preempt requests; return the prompts to work on, each with its next number of tokens."""
        while self.arrived:
            request = self.arrived.popleft()
            if not request.tokens:
                with annotate("tokenize"):
                    self._tokenize(request)
                    _work(request.prompt, _ROUNDS_OF_TOKENIZER)
            self.waiting.append(request)
        if self.fault == "slow-scheduler":
            _work(sum(len(request.tokens) for request in (*self.running, *self.waiting)) // _BLOCK, _ROUNDS)
        for request in list(self.running):
            # the latest request makes room for those before it
            while request in self.running and not self._reserve(request):
                self._preempt(self.running[-1])
        while self.waiting and len(self.running) < self.most and self._reserve(self.waiting[0]):
            request = self.waiting.popleft()
            request.row = self.rows.popleft()
            self.log.note(request.name, "scheduled")
            self.running.append(request)
        chunks, left = [], self.chunk
        for request in self.running:
            if left and not request.generates:
                chunks.append((request, min(request.missing, left)))
                left -= chunks[-1][1]
        return chunks

    def _reserve(self, request: Request) -> bool:
        """Give a request the blocks for all of its tokens; False if there are too few."""
        needed = -(-len(request.tokens) // _BLOCK) - len(request.blocks)
        if needed > len(self.free):
            return False
        request.blocks += [self.free.popleft() for _ in range(needed)]
        return True

    def _preempt(self, request: Request) -> None:
        # its latest token is computed again like its prompt
        self._collect()
        self.log.note(request.name, "preempted")
        self.running.remove(request)
        self._release(request)
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self.free.extend(request.blocks)
        self.rows.append(request.row)
        request.blocks, request.done = [], 0

    def _prefill(self, chunks: Sequence[tuple[Request, int]]) -> torch.Tensor:
        """Compute the next tokens of prompts; return the logits after the last of each, (prompts, vocab)."""
        sizes = [size for _, size in chunks]
        parts = [range(request.done, request.done + size) for request, size in chunks]
        tokens = [request.tokens[place] for (request, _), part in zip(chunks, parts, strict=True) for place in part]
        count, blocks = len(tokens), [request.blocks for request, _ in chunks]
        flat = self._upload([*tokens, *chain(*parts), *chain(*blocks)])
        for (request, _), part in zip(chunks, parts, strict=True):
            request.done = part.stop
        # on the device: a prompt has thousands of places
        places = [
            _places(own)[: part.stop]
            for own, part in zip(flat[2 * count :].split([len(own) for own in blocks]), parts, strict=True)
        ]
        logits: torch.Tensor = self.model(flat[:count], Prompts(flat[count : 2 * count], sizes, places, self.model))
        return logits

    def _decode(self, requests: Sequence[Request]) -> torch.Tensor:
        """Compute the latest token of each request; return the logits after it, (requests, vocab)."""
        count = len(requests)
        size = next((size for size in sorted(self.graphs) if size >= count), count)
        padding = [0] * (size - count)
        columns = (
            [request.row for request in requests],
            [request.done for request in requests],
            [request.next_slot for request in requests],
        )
        tables = [block for request in requests for block in request.blocks + [0] * (self.table - len(request.blocks))]
        flat = [value for column in columns for value in column + padding] + tables + padding * self.table
        for request in requests:
            request.done += 1
        if size not in self.graphs:
            return self._decoded(self._upload(flat), size)
        graph, given, logits = self.graphs[size]
        given.copy_(self._upload(flat))
        graph.replay()
        return logits[:count]

    def _decoded(self, flat: torch.Tensor, size: int) -> torch.Tensor:
        rows, positions, slots = flat[: 3 * size].view(3, size)
        blocks = flat[3 * size :].view(size, self.table)
        logits: torch.Tensor = self.model(self.latest[rows], Decoding(positions, slots, blocks, self.model))
        return logits

    def _recorded(self) -> Iterator[tuple[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]]]:
        """Yield a graph of a decode step for each size of a batch, with its input and its output."""
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size < self.most] + [self.most]
        aside = torch.cuda.Stream()
        for size in sizes[:_FEW_GRAPHS] if self.fault == "few-graphs" else sizes:
            given = torch.zeros(size * (3 + self.table), dtype=torch.int64, device=self.device)
            aside.wait_stream(torch.cuda.current_stream())
            # libraries allocate memory in their first calls, which a graph cannot record
            with torch.cuda.stream(aside):
                for _ in range(2):
                    self._decoded(given, size)
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                logits = self._decoded(given, size)
            yield size, (graph, given, logits)

    def _upload(self, values: list[int]) -> torch.Tensor:
        """Return whole numbers on the device, without waiting for it."""
        given = torch.tensor(values)
        return given.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else given

    def _sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Return a random token for each row, by its probability."""
        if self.fault == "sampling-syncs":
            return self._upload([int(_choice(row)) for row in logits])
        return _choice(logits)

    def _sampled(self, requests: list[Request], logits: torch.Tensor) -> Sampled:
        """Choose the next token of each request, and begin to copy them; requests that have all are done."""
        tokens, event = self._sample(logits), None
        self.latest[self._upload([request.row for request in requests])] = tokens
        if self.device == "cuda":
            tokens, event = tokens.to("cpu", non_blocking=True), torch.cuda.Event()
            event.record()
        for request in requests:
            # not known yet
            request.tokens.append(-1)
            if len(request.tokens) == request.prompt + request.limit:
                self.running.remove(request)
                self._release(request)
        return Sampled([(request, len(request.tokens) - 1) for request in requests], tokens, event)

    def _collect(self) -> None:
        """Add the tokens that were sampled last to the answers of their requests."""
        sampled, self.sampled = self.sampled, None
        if sampled is None:
            return
        if sampled.event:
            sampled.event.synchronize()
        answers = []
        for (request, place), token in zip(sampled.requests, sampled.tokens.tolist(), strict=True):
            request.tokens[place] = token
            count = place + 1 - request.prompt
            if count == 1:
                self.log.note(request.name, "first_token")
            if is_last := count == request.limit:
                self.log.note(request.name, "last_token", count)
                self.finished += 1
            answers.append((request, token, is_last))
        self.deliver(answers)

    def _tokenize(self, request: Request) -> None:
        request.tokens = [sum(map(ord, word)) % self.vocab for word in request.text.split()]
        request.prompt = len(request.tokens)
        self.log.note(request.name, "tokenized", request.prompt)


def _choice(logits: torch.Tensor) -> torch.Tensor:
    # the maximum of quotients with exponential noise has the given probabilities, and needs no wait for the GPU
    probabilities = logits.float().softmax(-1)
    return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1)


def _work(tokens: int, rounds: int) -> None:
    """Spend time in Python for each token, as a slow scheduler or tokenizer does."""
    for token in range(tokens):
        sum(range(rounds + token % 2))


class Front:
    """The HTTP server, in a thread: a request is a JSON object; the answer has a line for each token."""

    def __init__(self, engine: Engine, port: int) -> None:
        self._engine, self._loop = engine, asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._handle, "127.0.0.1", port))
        self.port: int = self._server.sockets[0].getsockname()[1]
        engine.deliver = lambda answers: self._loop.call_soon_threadsafe(_deliver, answers)
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split()[0])
            request = self._request(json.loads(await reader.readexactly(length)))
        except (ValueError, KeyError, TypeError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        self._engine.submit(request)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
        while (token := await request.answer.get()) is not None:
            writer.write(b"%d\n" % token)
        writer.close()

    def _request(self, document: Mapping[str, Any]) -> Request:
        text, limit = str(document["prompt"]), int(document["max_tokens"])
        if not 0 < limit <= self._engine.longest - len(text.split()) or not text.split():
            raise ValueError("the request does not fit")
        return Request(str(document["id"]), text, limit, asyncio.Queue())


def _deliver(answers: Sequence[tuple[Request, int, bool]]) -> None:
    for request, token, is_last in answers:
        request.answer.put_nowait(token)
        if is_last:
            request.answer.put_nowait(None)


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    faults = "; ".join(f"{name}: {what}" for name, what in FAULTS.items())
    parser.add_argument("--fault", choices=tuple(FAULTS), default="none", help=f"{faults} (default: %(default)s)")
    parser.add_argument("--requests", type=positive, default=32, help="in a burst (default: %(default)s, 4 on a CPU)")
    parser.add_argument(
        "--rate", type=natural, default=0, help="requests per second, 0: all at once (default: %(default)s)"
    )
    parser.add_argument("--batch", type=positive, default=32, help="most requests of a step (default: %(default)s)")
    parser.add_argument(
        "--chunk", type=positive, default=512, help="prompt tokens of a step (default: %(default)s, 8 on a CPU)"
    )
    parser.add_argument(
        "--prompt", type=positive, default=3072, help="longest prompt in tokens (default: %(default)s, 16 on a CPU)"
    )
    parser.add_argument(
        "--tokens", type=positive, default=128, help="longest answer (default: %(default)s, 8 on a CPU)"
    )
    parser.add_argument("--layers", type=positive, default=16, help="blocks (default: %(default)s, 2 on a CPU)")
    parser.add_argument(
        "--dim", type=positive, default=4096, help="numbers per token (default: %(default)s, 64 on a CPU)"
    )
    parser.add_argument("--heads", type=positive, default=32, help="heads (default: %(default)s, 4 on a CPU)")
    parser.add_argument(
        "--vocab", type=positive, default=32000, help="different tokens (default: %(default)s, 256 on a CPU)"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="bfloat16",
        help="type of the numbers (default: %(default)s, float32 on a CPU)",
    )
    parser.add_argument("--log", type=Path, metavar="FOLDER", help="write server.jsonl and client.jsonl there")
    parser.add_argument("--listen", type=natural, metavar="PORT", help="serve other clients until terminated")
    on_cpu = {"requests": 4, "batch": 4, "chunk": 8, "prompt": 16, "tokens": 8, "layers": 2, "dim": 64, "heads": 4}
    figures: list[Mapping[str, float]] = []
    with ExitStack() as stack:
        run(
            parser,
            lambda options: prepare(options, figures, stack),
            on_cpu={**on_cpu, "vocab": 256, "dtype": "float32"},
            serving=lambda _: figures[-1],
        )


def prepare(options: argparse.Namespace, figures: list[Mapping[str, float]], stack: ExitStack) -> Step:
    """Start the server and its client; return a step that answers a burst, and adds the client's figures."""
    _refuse(options)
    log = Log(None)
    if options.log:
        options.log.mkdir(parents=True, exist_ok=True)
        log = Log(stack.enter_context((options.log / "server.jsonl").open("w", encoding="utf-8")))
    engine = Engine(options, log)
    front = Front(engine, options.listen or 0)
    if options.listen is not None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        print(f"serving on port {front.port}", flush=True)
        engine.serve()
    given = {name: getattr(options, name) for name in ("requests", "rate", "prompt", "tokens", "seed")}
    command = [sys.executable, "-m", "workloads.serve_client", f"--port={front.port}", "--on-demand"]
    command += [f"--{name}={value}" for name, value in given.items()]
    command += [f"--log={options.log.absolute() / 'client.jsonl'}"] if options.log else []
    root, pipe = Path(__file__).parents[1], subprocess.PIPE
    client = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root))

    def step() -> None:
        assert client.stdin
        assert client.stdout
        print("go", file=client.stdin, flush=True)
        engine.serve(options.requests, lambda: client.poll() is not None)
        if not (line := client.stdout.readline()):
            raise RuntimeError("the client ended before all of its requests were answered")
        figures.append(json.loads(line))

    return step


def _refuse(options: argparse.Namespace) -> None:
    if options.dim % (2 * options.heads):
        raise CannotRun(f"{options.heads} heads cannot share {options.dim} numbers in pairs: give another --dim")
    most = options.batch * (options.prompt + options.tokens + _BLOCK)
    parameters = options.dim * (16 * options.layers * options.dim + 2 * options.vocab)
    # attention gathers keys and values of a layer
    kept = 2 * (options.layers + 1) * most * options.dim
    require_memory(getattr(torch, options.dtype).itemsize * (parameters + kept), options.device)


if __name__ == "__main__":
    main()
