"""Time per layer, eager and in CUDA graphs: `python -m tests.gpu.graph_layers` on a GPU host, about 3 minutes.

Each form of a transformer runs under `nsys profile --cuda-graph-trace=node`: as one graph, as one graph per layer, as a
graph inside another one, and as a graph that is updated while the program runs. Each step is run without a graph, too,
because the clocks of two runs differ by as much as is to be shown here. Prints for each form the share of its kernel
time that has a layer, and the kernel time per layer and step against that without a graph. Exit status 1 if a layer
differs by more than 3 %, or less than 95 % of the time has a layer. `--keep FOLDER` keeps captures and reports.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.report import Report
from nightsight.results.ranges import NVTX_RANGES
from tests.gpu.forms import judge_forms, profiled

FORMS: Final = ("one_graph", "graph_per_layer", "nested", "updated")
STEPS: Final = 60
_LAYER: Final = r" layers\.(\d+)$"
_MOST_OFF, _LEAST_ATTRIBUTED = 0.03, 95.0
PROGRAM: Final = """
import ctypes, sys
import torch
import triton
import triton.language as tl

@triton.jit
def gelu_kernel(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < count).to(tl.float32)
    tl.store(y + place, value * tl.sigmoid(1.702 * value), mask=place < count)

def gelu(x):
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y

class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (-1, 64)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(x)))

class Model(torch.nn.Module):
    def __init__(self, count, width):
        super().__init__()
        # not all are equally long
        self.layers = torch.nn.ModuleList(Layer(width * (1 + number % 2)) for number in range(count))
    def forward(self, x, wide):
        for number, layer in enumerate(self.layers):
            if number % 2:
                wide = layer(wide)
            else:
                x = layer(x)
        return x, wide

form, steps = sys.argv[1], int(sys.argv[2])
model = Model(8, 1024).cuda().to(torch.bfloat16).eval()
inputs = [torch.randn(8, 512, width, device="cuda", dtype=torch.bfloat16) for width in (1024, 2048)]

cudart = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])

def checked(status):
    assert not status, status

def captured(run, warm_up=3, **options):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph):
        run()
    return graph

with torch.inference_mode():
    run, update = lambda: model(*inputs), lambda number: None
    if form == "one_graph":
        replay = captured(run).replay
    elif form == "graph_per_layer":
        graphs = [
            captured(lambda layer=layer, x=inputs[number % 2]: layer(x)) for number, layer in enumerate(model.layers)
        ]
        replay = lambda: [graph.replay() for graph in graphs]
    elif form == "nested":
        inner = captured(run, keep_graph=True)
        outer, node, whole = (ctypes.c_void_p() for _ in range(3))
        checked(cudart.cudaGraphCreate(ctypes.byref(outer), 0))
        inside = ctypes.c_void_p(inner.raw_cuda_graph())
        checked(cudart.cudaGraphAddChildGraphNode(ctypes.byref(node), outer, None, ctypes.c_size_t(0), inside))
        checked(cudart.cudaGraphInstantiate(ctypes.byref(whole), outer, ctypes.c_ulonglong(0)))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        replay = lambda: checked(cudart.cudaGraphLaunch(whole, stream))
    elif form == "updated":
        first = captured(run, keep_graph=True)
        first.instantiate()
        kept, replay = [first], first.replay
        def update(number):
            if number % 15 == 14 and len(kept) < 4:
                kept.append(captured(run, warm_up=0, keep_graph=True))
                result = (ctypes.c_byte * 64)()
                new = ctypes.c_void_p(kept[-1].raw_cuda_graph())
                checked(cudart.cudaGraphExecUpdate(ctypes.c_void_p(first.raw_cuda_graph_exec()), new, result))
    torch.cuda.synchronize()
    for number in range(steps):
        with torch.cuda.nvtx.range(f"eager {number}"):
            run()
        torch.cuda.synchronize()
        with torch.cuda.nvtx.range(f"step {number}"):
            replay()
        torch.cuda.synchronize()
        update(number)
"""


def layers_of(report: Report, part: str) -> "pd.Series[float]":
    """Return the kernel time of each layer per step, in ns, by its number."""
    rows = report.rows(NVTX_RANGES)
    rows = rows[rows["path"].str.startswith(part)]
    number = rows["path"].str.extract(_LAYER)[0]
    return rows.groupby(number)["kernel_ns"].sum() / STEPS


def is_right(form: str, folder: Path) -> bool:
    """Compare a form with the same steps without a graph, and say what differs."""
    options = "--collector nsys --names modules --window whole --nsys-arg=--cuda-graph-trace=node"
    report = profiled(PROGRAM, form, folder, options.split(), (form, str(STEPS)))
    if report is None:
        return False
    eager, layers = layers_of(report, "eager"), layers_of(report, "step")
    steps = report.rows(NVTX_RANGES)
    total = steps.loc[steps["path"].str.fullmatch(r"step \d+"), "kernel_ns"].sum() / STEPS
    attributed = 100 * layers.sum() / max(total, 1)
    off = (layers.reindex(eager.index) / eager - 1).abs().fillna(np.inf)
    is_fine = attributed >= _LEAST_ATTRIBUTED and len(off) > 0 and bool((off <= _MOST_OFF).all())
    figures: Mapping[str, float] = {"total": 1e-3 * total, "attributed": attributed, "off": 100 * float(off.max())}
    words = "{total:.1f} us per step, {attributed:.1f} % in layers, at most {off:.1f} % off".format_map(figures)
    print(f"{form}: {words}{'' if is_fine else '  WRONG'}", flush=True)
    return is_fine


if __name__ == "__main__":
    sys.exit(judge_forms(__doc__, FORMS, is_right))
