"""Causes in the data that a step gets: padding."""

import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU

_LONGEST = 512


def padding(bad: bool) -> Step:
    """Train an encoder on samples of 20 to 119 tokens, padded to 512; fixed: to the longest of the batch."""
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True) for _ in range(4)]
    encoder = torch.nn.ModuleList(layers).to(GPU, torch.bfloat16)
    lengths = torch.randint(20, 120, (32, 1), device=GPU)
    width = _LONGEST if bad else int(lengths.max())
    is_padding = torch.arange(width, device=GPU) >= lengths
    samples = torch.randn(32, width, 768, device=GPU, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            hidden = samples
            for layer in encoder:
                hidden = layer(hidden, src_key_padding_mask=is_padding)
            hidden.float().square().mean().backward()
            encoder.zero_grad(set_to_none=True)

    return step
