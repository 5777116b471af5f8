"""What several programs are made of."""

import time
from collections.abc import Callable
from typing import Any

import nvtx
import torch

GPU = torch.device("cuda")


def mlp(dim: int, layers: int, dtype: Any = torch.bfloat16) -> Any:
    """Make linear layers with an activation after each."""
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(dim, dim, device=GPU, dtype=dtype), torch.nn.GELU()) for _ in range(layers)]
    return torch.nn.Sequential(*(part for pair in pairs for part in pair))


def training(
    dim: int, batch: int, layers: int, dtype: Any = torch.bfloat16, between: Callable[[], None] = lambda: None
) -> Callable[..., Any]:
    """Return a training step with a range for each phase; it takes a batch or uses its own, and returns the loss.

    `between` is called after the forward and after the backward pass.
    """
    model = mlp(dim, layers, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    own = torch.randn(batch, dim, device=GPU, dtype=dtype)

    def step(given: Any = None) -> Any:
        with nvtx.annotate("forward"):
            loss = model(own if given is None else given).float().square().mean()
        between()
        with nvtx.annotate("backward"):
            loss.backward()
        between()
        with nvtx.annotate("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def work(seconds: float) -> None:
    """Keep this thread busy with Python, without letting go of the interpreter."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))
