"""Trains a decoder-only transformer to predict the next token: embedding, blocks, loss, backward, optimizer.

With --ddp its gradients are averaged over the processes that torchrun started, or over this one alone.
"""

import argparse
import atexit
import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, positive, require_memory, run


class Block(nn.Module):
    """Attention and a perceptron, each with a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (sequences, tokens, dim) to the same shape."""
        # (sequences, tokens, 3 * dim) to three of (sequences, heads, tokens, dim per head)
        queries, keys, values = (
            self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.mlp(self.before_mlp(x))
        return result


class Transformer(nn.Module):
    """Blocks between an embedding and the logits, whose ranges are the parts of `forward`."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.dim)
        self.positions = nn.Embedding(options.seq, options.dim)
        self.blocks = nn.Sequential(*(Block(options.dim, options.heads) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.dim)
        self.head = nn.Linear(options.dim, options.vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (sequences, tokens) to (sequences, tokens, vocabulary)."""
        with annotate("embedding"):
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        with annotate("blocks"):
            x = self.blocks(x)
        with annotate("logits"):
            logits: torch.Tensor = self.head(self.norm(x))
        return logits


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--layers", type=positive, default=8, help="blocks (default: %(default)s, 2 on a CPU)")
    parser.add_argument(
        "--dim", type=positive, default=1024, help="numbers per token (default: %(default)s, 64 on a CPU)"
    )
    parser.add_argument("--heads", type=positive, default=16, help="heads (default: %(default)s, 4 on a CPU)")
    parser.add_argument(
        "--seq", type=positive, default=1024, help="tokens of a sequence (default: %(default)s, 32 on a CPU)"
    )
    parser.add_argument("--batch", type=positive, default=8, help="sequences (default: %(default)s, 2 on a CPU)")
    parser.add_argument(
        "--vocab", type=positive, default=32000, help="different tokens (default: %(default)s, 256 on a CPU)"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="bfloat16",
        help="type of the products, by autocast (default: %(default)s)",
    )
    parser.add_argument("--ddp", action="store_true", help="average the gradients over the processes of torchrun")
    run(parser, prepare, on_cpu={"layers": 2, "dim": 64, "heads": 4, "seq": 32, "batch": 2, "vocab": 256})


def prepare(options: argparse.Namespace) -> Step:
    """Create the model and a batch, and return a training step."""
    if options.dim % options.heads:
        raise CannotRun(f"{options.heads} heads cannot share {options.dim} numbers: give a --dim that they divide")
    if options.ddp:
        _join_processes(options.device)
    parameters = options.dim * (12 * options.layers * options.dim + 2 * options.vocab + options.seq)
    # a parameter, its gradient and two numbers of AdamW; of the activations, the logits and their gradient alone
    require_memory(4 * (4 * parameters + 2 * options.batch * options.seq * options.vocab), options.device)
    plain = Transformer(options).to(options.device)
    model: nn.Module = DistributedDataParallel(plain) if options.ddp else plain
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(options.vocab, (options.batch, options.seq + 1), device=options.device)
    given, wanted = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with _in_type(options):
            logits = model(given)
            with annotate("loss"):
                loss = functional.cross_entropy(logits.flatten(0, 1), wanted)
        with annotate("backward"):
            loss.backward()
        with annotate("optimizer"):
            optimizer.step()

    return step


def _in_type(options: argparse.Namespace) -> AbstractContextManager[object]:
    if options.dtype == "float32":
        return nullcontext()
    context: AbstractContextManager[object] = torch.autocast(options.device, dtype=torch.bfloat16)
    return context


def _join_processes(device: str) -> None:
    """Join those that torchrun started; without it, be the only one, whose gradients then go through NCCL too."""
    if not distributed.is_available():
        raise CannotRun("--ddp needs a torch that was built with torch.distributed")
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise CannotRun(f"no GPU is left for process {local}: start at most {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    if "RANK" in os.environ:
        distributed.init_process_group(backend)
    else:
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
    atexit.register(distributed.destroy_process_group)


if __name__ == "__main__":
    main()
