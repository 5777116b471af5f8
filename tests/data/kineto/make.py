"""Makes the traces `ops_*.json.gz`, and beside each what torch itself says of its operators.

Run it once with each version of torch (1.13 needs numpy < 2), here with Python 3.11:

    python -m pip install torch==2.4.1 "numpy<2"
    python make.py            # writes ops_2.4.1.json.gz and ops_2.4.1.csv into this folder

`python make.py cuda FOLDER` records the same on a GPU (tests/gpu/key_averages.py does it, and compares).

The CSV holds the rows of `key_averages()`, and those of `key_averages(group_by_input_shape=True)`, which have shapes.
`events_*.json.gz` is the same program under autograd's own profiler, written by `function_events.export_chrome_trace`:
the format that this profiler had before Kineto.
"""

import csv
import gzip
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

HERE = Path(__file__).parent
VERSION = torch.__version__.partition("+")[0]
COLUMNS = (
    "key",
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_time_total",
    "self_device_time_total",
    "device_memory_usage",
    "self_device_memory_usage",
    "flops",
    "is_user_annotation",
)
kept: list[torch.Tensor] = []


@torch.jit.script  # type: ignore[untyped-decorator]
def sums(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Work on another thread."""
    first = torch.jit.fork(torch.add, left, right)
    second = torch.jit.fork(torch.mul, left, right)
    return torch.jit.wait(first) + torch.jit.wait(second)


class Block(nn.Module):  # type: ignore[misc]
    """Convolutions, and a product."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(4, 4, 3, groups=2, dilation=2, padding=(2, 1))
        self.out = nn.Linear(16, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Take images of 8 by 8."""
        return self.out(torch.relu(self.grouped(self.convolution(images))).flatten(1)[:, :16])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, matrices: torch.Tensor) -> None:
    """Train once; a tensor is never freed."""
    with record_function("forward"):
        loss = model(images).sum() / 3
        product = torch.bmm(matrices, matrices)
        product = torch.baddbmm(product, matrices, matrices, beta=2)
        product = torch.cat([product, product[:1]]) * 2 + 1
        loss = loss + torch.mm(product[0], product[1]).mean()
    with record_function("backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.zeros(1000))
    sums(images, images)
    # the forked functions return after their result is known
    time.sleep(0.002)


def rows(profiler: profile, *, by_shape: bool) -> list[dict[str, object]]:
    """Return what torch says of each operator."""
    table = profiler.key_averages(group_by_input_shape=by_shape)
    shapes = [json.dumps(event.input_shapes) if by_shape else "" for event in table]
    return [
        {"shapes": shape, **{name: figure(event, name) for name in COLUMNS}}
        for shape, event in zip(shapes, table)  # noqa: B905 - Python 3.9 has no `strict`
        if "CPU" in str(event.device_type)
    ]


def figure(event: object, name: str) -> object:
    """Return a figure, which older versions call by the name of CUDA."""
    return getattr(event, name) if hasattr(event, name) else getattr(event, name.replace("device", "cuda"), "")


def write(path: Path, table: list[dict[str, object]]) -> None:
    """Write what torch says of operators."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("shapes", *COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def main(device: str, folder: Path) -> None:
    """Record two steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, images = Block().to(device), torch.randn(2, 2, 8, 8, device=device)
    matrices = torch.randn(3, 4, 4, device=device, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        step(model, optimizer, images, matrices)
    options: dict[str, object] = {"record_shapes": True, "profile_memory": True, "with_flops": True}
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
        options["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=activities, with_stack=True, **options) as profiler:
        for _ in range(2):
            step(model, optimizer, images, matrices)
            profiler.step()
        if device == "cuda":
            torch.cuda.synchronize()
    path = folder / f"ops_{VERSION}.json"
    profiler.export_chrome_trace(str(path))
    pack(path)
    write(path.with_suffix(".csv"), rows(profiler, by_shape=False) + rows(profiler, by_shape=True))
    with torch.autograd.profiler.profile() as older:
        step(model, optimizer, images, matrices)
    path = folder / f"events_{VERSION}.json"
    older.function_events.export_chrome_trace(str(path))
    pack(path)
    write(path.with_suffix(".csv"), rows(older, by_shape=False))


def pack(path: Path) -> None:
    """Compress a trace, without the path that newer versions write into it."""
    document = json.loads(path.read_text().replace(f"{HERE}/", ""))
    if isinstance(document, dict):
        document.pop("traceName", None)
    packed = path.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))
    path.unlink()
    print(packed.name, packed.stat().st_size, file=sys.stderr)  # noqa: T201 - a script


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "cpu", Path(sys.argv[2]) if sys.argv[2:] else HERE)
