"""Operators, lines and bandwidth of fused kernels: `python -m tests.gpu.fused` on a GPU host, about 3 minutes.

A compiled transformer is trained under `nsys` and under torch.profiler: compiled now, from the cache of torch.compile,
and with CUDA graphs. Prints for each the share of the time of Triton kernels that has operators, lines and bytes, and
the kernels with the most time with their bandwidth. Exit status 1 if less than 95 % has operators or lines, less than
90 % has bytes, or a kernel with operands larger than the L2 cache is faster than the memory. `--keep FOLDER` keeps
captures and reports.
"""

import sys
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.results.gpu import CUDA_GPU_KERN_SUM, FUSED_KERNELS
from tests.gpu.forms import judge_forms, profiled

# name: the collector, and the mode of torch.compile; what is compiled by the first is in the cache later
FORMS: Final = {
    "compiled": ("nsys", "default"),
    "cached": ("nsys", "default"),
    "traced": ("torch", "default"),
    "graphs": ("nsys", "reduce-overhead"),
}
_LEAST: Final = {"operators": 95.0, "places": 95.0, "data_bytes": 90.0}
# less data can be in the L2 cache
_LARGE_BYTES: Final = 200e6
_MOST_PCT: Final = 102.0
_SHOWN: Final = 8
PROGRAM: Final = """
import sys
import torch
from torch.nn import functional

class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (-1, 64)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = functional.gelu(self.up(self.second(x)))
        return x + self.down(y)

class Model(torch.nn.Module):
    def __init__(self, layers, width, words):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.layers = torch.nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.head = torch.nn.Linear(width, words)
    def forward(self, tokens):
        logits = self.head(self.layers(self.embedding(tokens)))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())

mode, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
model = Model(6, 1024, 16384).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
compiled = torch.compile(model, mode=mode)
for step in range(steps):
    with torch.profiler.record_function("step"), torch.cuda.nvtx.range("step"):
        tokens = torch.randint(16384, (16, 512), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
"""


def is_right(form: str, folder: Path) -> bool:
    """Profile a form, and say how much of its fused kernels is described."""
    collector, mode = FORMS[form]
    # nodes of CUDA graphs one by one
    more = ["--nsys-arg=--cuda-graph-trace=node"] if collector == "nsys" else []
    options = ["--collector", collector, *more, "--keep-env", "TORCHINDUCTOR_CACHE_DIR"]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    report = profiled(PROGRAM, form, folder, options, (mode, "30"), cache)
    if report is None:
        return False
    kernels, fused = report.rows(CUDA_GPU_KERN_SUM), report.rows(FUSED_KERNELS)
    is_fused = kernels["name"].astype("str").str.startswith("triton_")
    total, whole = kernels.loc[is_fused, "total_ns"].sum(), kernels["total_ns"].sum()
    if not total or not len(fused):
        print(f"{form}: no fused kernels  WRONG", flush=True)
        return False
    is_known = {name: fused[name].notna() & (fused[name].astype("str") != "") for name in _LEAST}
    shares = {name: 100 * fused.loc[is_filled, "total_ns"].sum() / total for name, is_filled in is_known.items()}
    too_fast = fused[(fused["data_bytes"] > _LARGE_BYTES) & (fused["memory_pct"] > _MOST_PCT)]
    is_fine = all(shares[name] >= least for name, least in _LEAST.items()) and too_fast.empty
    words = ", ".join(f"{share:.1f} % with {name}" for name, share in shares.items())
    several = int((fused["kernels"] > 1).sum())
    print(f"{form}: {100 * total / whole:.1f} % of the kernel time is of {is_fused.sum()} fused kernels: {words}; ")
    print(f"    {several} names of several kernels, {len(too_fast)} too fast{'' if is_fine else '  WRONG'}", flush=True)
    columns = ["total_ns", "instances", "avg_ns", "data_bytes", "memory_pct", "operators", "places", "name"]
    with pd.option_context("display.width", 250, "display.max_columns", None, "display.max_colwidth", 60):
        print(fused[columns].head(_SHOWN).to_string(), flush=True)
    return is_fine


if __name__ == "__main__":
    sys.exit(judge_forms(__doc__, FORMS, is_right))
