"""Time per layer, eager and in CUDA graphs: `python -m tests.gpu.graph_layers` on a GPU host, about 4 minutes.

Each form of a transformer runs under `nsys profile --cuda-graph-trace=node`: without a graph, as one graph, as one
graph per layer, as a graph inside another one, and as a graph that is updated while the program runs. Prints for each
the share of its kernel time that has a layer, and the kernel time per layer and step against that without a graph. Exit
status 1 if a layer differs by more than 3 %, or less than 95 % of the time has a layer. `--keep FOLDER` keeps captures
and reports.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.report import Report
from nightsight.results.ranges import NVTX_RANGES

ROOT: Final = Path(__file__).parents[2]
FORMS: Final = ("eager", "one_graph", "graph_per_layer", "nested", "updated")
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

def captured(run, **options):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph):
        run()
    return graph

with torch.inference_mode():
    run = lambda: model(*inputs)
    if form == "eager":
        run(), run()
        replay = run
    elif form == "one_graph":
        replay = captured(run).replay
    elif form == "graph_per_layer":
        graphs = [
            captured(lambda layer=layer, x=inputs[number % 2]: layer(x)) for number, layer in enumerate(model.layers)
        ]
        replay = lambda: [graph.replay() for graph in graphs]
    elif form == "nested":
        inner = captured(run)
        # the launch of a graph in a capture becomes a node that contains its copy
        replay = captured(inner.replay).replay
    elif form == "updated":
        first = captured(run, keep_graph=True)
        first.instantiate()
        cudart = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
        kept = [first]
        def replay():
            if len(kept) < 4 and replay.count % 15 == 14:
                kept.append(captured(run, keep_graph=True))
                told = (ctypes.c_byte * 64)()
                status = cudart.cudaGraphExecUpdate(
                    ctypes.c_void_p(first.raw_cuda_graph_exec()), ctypes.c_void_p(kept[-1].raw_cuda_graph()), told
                )
                assert not status, status
            replay.count += 1
            first.replay()
        replay.count = 0
    torch.cuda.synchronize()
    for number in range(steps):
        with torch.cuda.nvtx.range(f"step {number}"):
            replay()
        torch.cuda.synchronize()
"""


def main() -> int:
    """Profile all forms and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forms", nargs="*", metavar="FORM", help=f"only these: {', '.join(FORMS)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        eager = layers_of(profiled("eager", folder))
        print(f"eager: {1e-3 * eager.sum():.1f} us per step in {len(eager)} layers", flush=True)
        return sum(not is_right(form, folder, eager) for form in options.forms or FORMS[1:])


def profiled(form: str, folder: Path) -> Report | None:
    """Run a form under nsys; None if that failed, and then say why."""
    script = folder / f"{form}.py"
    script.write_text(PROGRAM)
    words = (
        "--no-ncu --no-time-steps --collector nsys --names modules --window whole --nsys-arg=--cuda-graph-trace=node"
    )
    command = [sys.executable, str(ROOT / "pipeline"), "profile", "--python", sys.executable, *words.split()]
    command += ["--reports", str(folder), str(script), "--", form, str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = folder / form / "latest" / "report.json"
    if done.returncode or not path.is_file():
        print(f"{form}: status {done.returncode}: {done.stderr[-1500:]}")
        return None
    return Report.from_json(path.read_bytes())


def layers_of(report: Report | None) -> "pd.Series[float]":
    """Return the kernel time of each layer per step, in ns, by its number."""
    if report is None:
        return pd.Series(dtype="float64")
    rows = report.rows(NVTX_RANGES)
    rows = rows[rows["path"].str.startswith("step")]
    number = rows["path"].str.extract(_LAYER)[0]
    return rows.groupby(number)["kernel_ns"].sum() / STEPS


def is_right(form: str, folder: Path, eager: "pd.Series[float]") -> bool:
    """Compare a form with the one without a graph, and say what differs."""
    report = profiled(form, folder)
    if report is None:
        return False
    layers = layers_of(report)
    steps = report.rows(NVTX_RANGES)
    total = steps.loc[steps["path"].str.fullmatch(r"step \d+"), "kernel_ns"].sum() / STEPS
    attributed = 100 * layers.sum() / max(total, 1)
    off = (layers.reindex(eager.index) / eager - 1).abs().fillna(np.inf)
    is_fine = attributed >= _LEAST_ATTRIBUTED and bool((off <= _MOST_OFF).all())
    figures: Mapping[str, float] = {"total": 1e-3 * total, "attributed": attributed, "off": 100 * float(off.max())}
    words = "{total:.1f} us per step, {attributed:.1f} % in layers, at most {off:.1f} % off".format_map(figures)
    print(f"{form}: {words}{'' if is_fine else '  WRONG'}", flush=True)
    return is_fine


if __name__ == "__main__":
    sys.exit(main())
