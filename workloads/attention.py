"""Computes causal attention: operation by operation, with torch's fused function, and compiled."""

import argparse

import torch
from torch.nn import functional

from workloads.runner import Step, WorkloadParser, positive, require_memory, run
from workloads.variants import Builder, Exact, add_implementations, compiled, eager, prepare_variants

# the tolerance of a result for each type: scores and weights are rounded to the type
TYPES = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--batch", type=positive, default=4, help="sequences (default: %(default)s, 1 on a CPU)")
    parser.add_argument("--heads", type=positive, default=16, help="heads (default: %(default)s, 2 on a CPU)")
    parser.add_argument(
        "--seq", type=positive, default=2048, help="tokens of a sequence (default: %(default)s, 128 on a CPU)"
    )
    parser.add_argument("--dim", type=positive, default=64, help="numbers per head and token (default: %(default)s)")
    parser.add_argument("--dtype", choices=TYPES, default="bfloat16", help="data type (default: %(default)s)")
    add_implementations(parser, BUILDERS)
    run(parser, prepare, on_cpu={"batch": 1, "heads": 2, "seq": 128})


def prepare(options: argparse.Namespace) -> Step:
    """Create queries, keys and values, and return a step that computes the attention."""
    dtype = getattr(torch, options.dtype)
    heads = options.batch * options.heads
    # three matrices of scores exist at once: the products, the masked products, and the weights
    require_memory(dtype.itemsize * heads * options.seq * (5 * options.dim + 3 * options.seq), options.device)
    shape = (options.batch, options.heads, options.seq, options.dim)
    inputs = tuple(torch.randn(*shape, device=options.device, dtype=dtype) for _ in range(3))
    return prepare_variants(options, BUILDERS, inputs, exact(options.dtype))


def naive(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Compute it operation by operation: the scores of all pairs of tokens go through memory several times."""
    scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1) @ values


def fused(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Let torch choose a kernel that never writes the scores, if there is one for this GPU, type and size."""
    return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def exact(dtype: str) -> Exact:
    """Return the exact result for a type. Errors are relative to the largest value in the mean that forms a result."""
    return Exact(
        _head_by_head, lambda _wanted, _queries, _keys, values: values.abs().amax(-2, keepdim=True), TYPES[dtype]
    )


def _head_by_head(*inputs: torch.Tensor) -> torch.Tensor:
    """Compute it in float64 without holding the scores of all heads at once."""
    heads = zip(*(tensor.flatten(0, 1) for tensor in inputs), strict=True)
    return torch.stack([naive(*head) for head in heads]).reshape(inputs[0].shape)


BUILDERS: dict[str, Builder] = {"naive": eager(naive), "sdpa": eager(fused), "compile": compiled(naive)}

if __name__ == "__main__":
    main()
