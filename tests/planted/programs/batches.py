"""Causes in the data that a step gets: padding, and too little of it."""

from itertools import pairwise

import numpy as np
import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU

_LONGEST = 512
_SAMPLES = 256
_WIDTH = 1024


def padding(bad: bool) -> Step:
    """Train an encoder on samples of 20 to 119 tokens, padded to 512; fixed: to the longest of the batch.

    The batch is so large that the GPU limits both forms, although recording shapes doubles the time of the host.
    """
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(_WIDTH, 16, 4 * _WIDTH, dropout=0.0, batch_first=True) for _ in range(4)]
    encoder = torch.nn.ModuleList(layers).to(GPU, torch.bfloat16)
    lengths = torch.randint(20, 120, (_SAMPLES, 1), device=GPU)
    width = _LONGEST if bad else int(lengths.max())
    is_padding = torch.arange(width, device=GPU) >= lengths
    samples = torch.randn(_SAMPLES, width, _WIDTH, device=GPU, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            hidden = samples
            for layer in encoder:
                hidden = layer(hidden, src_key_padding_mask=is_padding)
            hidden.float().square().mean().backward()
            encoder.zero_grad(set_to_none=True)

    return step


def small_batch(bad: bool) -> Step:
    """Let a policy act in one environment at a time; fixed: in eight. A step is one action in one environment."""
    torch.manual_seed(0)
    sizes = (16, 256, 256, 256, 4)
    layers = [(torch.nn.Linear(*pair), torch.nn.Tanh()) for pair in pairwise(sizes)]
    policy = torch.nn.Sequential(*(part for pair in layers for part in pair)).to(GPU)
    many = 1 if bad else 8
    state = np.zeros((many, 16), dtype=np.float32)

    def step(number: int) -> None:
        nonlocal state
        if number % many:
            return
        with nvtx.annotate("step"), torch.no_grad():
            scores = policy(torch.from_numpy(state).to(GPU))
            actions = torch.distributions.Categorical(logits=scores).sample().cpu().numpy()
            state = np.tanh(0.9 * state + 0.1 * actions[:, None]).astype(np.float32)

    return step
