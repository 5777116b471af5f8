"""Prints the work of operators beside what ncu counts: `python -m tests.gpu.roofline` on a GPU host, in a minute.

One program runs twice: under torch.profiler with shapes, and under ncu with a few counters. A line per operator says
what we compute, how fast it ran, and by how much ncu's figures differ. Exit status 1 if a product's operations differ
by more than 10 %, or nothing could be compared.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pandas as pd

from nightsight.analyze.operator_work.roofline import operator_roofline
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.tables import OF_REPLAY
from nightsight.units import format_value

ROOT: Final = Path(__file__).parents[2]
COUNTERS: Final = (
    *("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"),
    *(f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("bf16_dst_fp32", "tf32_dst_fp32", "fp16", "fp64")),
    *(f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum" for kind in ("fadd", "fmul", "ffma")),
)
FIGURES: Final = (
    *("avg_ns", "work_flop", "data_bytes", "work_flop_per_s", "data_bytes_per_s", "compute_pct", "memory_pct"),
    *("flop_difference_pct", "bytes_difference_pct", "measured_flop_per_s", "measured_bytes_per_s"),
)
REPEATS: Final = 5
PRODUCTS_DIFFER_PCT: Final = 10.0


def main() -> int:
    """Run both, and compare."""
    with TemporaryDirectory() as folder:
        trace, report = Path(folder) / "trace.json", Path(folder) / "replayed.ncu-rep"
        myself = [sys.executable, "-m", "tests.gpu.roofline"]
        subprocess.run([*myself, "trace", str(trace)], cwd=ROOT, check=True)
        ncu = ["ncu", "-f", "-o", str(report), "--profile-from-start", "off", "--clock-control", "none"]
        ncu += ["--metrics", ",".join(COUNTERS)]
        subprocess.run([*ncu, *myself, "replay"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        table = compared(read(trace), read(report))
    sys.stdout.write("\n".join(lines(table)) + "\n")
    return judged(table)


def compared(traced: Profile, replayed: Profile) -> pd.DataFrame:
    """Return the roofline of a trace with what ncu measured of the same kernels."""
    measured = {name: replayed.tables[name] for name in OF_REPLAY if name in replayed.tables}
    joined = Profile({**traced.tables, **measured}, traced.missing, traced.environment)
    kernels = traced.table("kernels")
    window = Window(int(kernels["start_ns"].min()), int(kernels["end_ns"].max()), "all kernels")
    table = operator_roofline(Timeline(joined, window))
    for note in table.notes:
        sys.stdout.write(f"note: {note}\n")
    return table.frame


def lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield a line per operator, those that took longest first."""
    for row in table.to_dict("records"):
        figures = ", ".join(f"{name} {format_value(row[name], name)}" for name in FIGURES if name in row)
        yield f"{row['name']} [{row['shapes']}] {row['types']}: {row['kind'] or '-'}, {row['bound'] or '-'}: {figures}"


def judged(table: pd.DataFrame) -> int:
    """Say whether products agree with ncu."""
    if "flop_difference_pct" not in table:
        sys.stdout.write("FAILED: no kernel of an operator was replayed\n")
        return 1
    products = table[table["kind"].str.startswith("tensor") | table["name"].str.endswith("mm")]
    counted = products.dropna(subset="flop_difference_pct")
    wrong = counted[counted["flop_difference_pct"].abs() > PRODUCTS_DIFFER_PCT]
    sys.stdout.write(f"{len(counted)} of {len(products)} products compared, {len(wrong)} differ by more than 10 %\n")
    return int(len(wrong) > 0 or not len(counted))


# -- the program -------------------------------------------------------------------------------------------------------

Operators = Iterator[Callable[[], object]]


class Tensors:
    """Makes random tensors on a device; sizes above 512 are divided by `scale`."""

    def __init__(self, device: str, scale: int) -> None:
        import torch  # noqa: PLC0415 - the process that compares needs none

        self.torch, self.device, self.scale = torch, device, scale

    def __call__(self, *sizes: int, kind: str = "bfloat16", learns: bool = False) -> Any:
        shape = [max(size // self.scale, 1) if size > 512 else size for size in sizes]
        dtype = getattr(self.torch, kind)
        return self.torch.randn(shape, device=self.device, dtype=dtype, requires_grad=learns)


def products(tensor: Tensors) -> Operators:
    torch, ops = tensor.torch, tensor.torch.nn.functional
    single, half = (tensor(4096, 4096, kind=kind) for kind in ("float32", "bfloat16"))

    def multiplied(*, in_tf32: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = in_tf32
        torch.mm(single, single)
        torch.backends.cuda.matmul.allow_tf32 = False

    yield partial(multiplied, in_tf32=False)
    yield partial(multiplied, in_tf32=True)
    yield partial(torch.mm, half, half)
    yield partial(ops.linear, half, tensor(16384, 4096), tensor(16384))
    batch = tensor(32, 1024, 1024)
    yield partial(torch.bmm, batch, batch)
    image = tensor(32, 256, 56, 56).to(memory_format=torch.channels_last).requires_grad_()
    taps = tensor(256, 256, 3, 3, learns=True)
    yield lambda: ops.conv2d(image, taps, padding=1).backward(image.detach())
    heads = [tensor(8, 16, 2048, 64, learns=True) for _ in range(3)]
    yield lambda: ops.scaled_dot_product_attention(*heads).backward(heads[0].detach())
    yield lambda: ops.scaled_dot_product_attention(*heads, is_causal=True).backward(heads[0].detach())


def others(tensor: Tensors) -> Operators:
    torch, ops = tensor.torch, tensor.torch.nn.functional
    wide, large = tensor(16384, 4096, learns=True), tensor(16384, 4096, kind="float32")
    scales = tensor(4096, learns=True)
    yield lambda: ops.layer_norm(wide, scales.shape, scales, scales).backward(wide.detach())
    yield partial(torch.softmax, wide.detach(), -1)
    yield partial(torch.add, large, large)
    yield partial(ops.gelu, large)
    yield partial(torch.sum, large, dim=1)
    yield partial(torch.mean, large)
    yield partial(large.to, torch.bfloat16)
    yield partial(torch.cat, [large, large])
    yield partial(torch._foreach_add_, [large, large], 1.0)
    yield partial(ops.embedding, torch.arange(len(large), device=tensor.device), large)


def run(around: AbstractContextManager[Any], device: str = "cuda", *, scale: int = 1, repeats: int = 1) -> None:
    """Run every operator, so often inside of `around`; gradients are thrown away."""
    tensor = Tensors(device, scale)
    prepared = [*products(tensor), *others(tensor)]
    wait = tensor.torch.cuda.synchronize if device == "cuda" else list
    # once before: the libraries choose their kernels, and the code of these is loaded
    for operator in prepared:
        operator()
    wait()
    with around:
        for operator in prepared:
            for _ in range(repeats):
                operator()
        wait()


def trace(path: Path, device: str = "cuda", *, scale: int = 1) -> None:
    """Run the program under torch.profiler."""
    import torch  # noqa: PLC0415 - the process that compares needs none

    profiler = torch.profiler.profile(record_shapes=True)
    run(profiler, device, scale=scale, repeats=REPEATS)
    profiler.export_chrome_trace(str(path))


def replay() -> None:
    """Run the program for ncu, which replays what runs between these two calls."""
    import torch  # noqa: PLC0415 - the process that compares needs none

    runtime = torch.cuda.cudart()

    @contextmanager
    def profiled() -> Iterator[None]:
        runtime.cudaProfilerStart()
        yield
        runtime.cudaProfilerStop()

    run(profiled())


if __name__ == "__main__":
    if sys.argv[1:2] == ["trace"]:
        trace(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["replay"]:
        replay()
    else:
        sys.exit(main())
