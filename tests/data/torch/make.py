"""Makes fused_VERSION.log.xz: what PyTorch logs of compiled functions with Triton kernels.

    python tests/data/torch/make.py OUTPUT

It needs torch and triton, and no GPU: Inductor writes Triton code for the CPU (`cpu_backend`), which differs from that
for a GPU in the name of the device. The kernels do nothing, because Triton has no backend that compiles them. Only the
entries that nightsight reads are kept, with other paths.
"""

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch._inductor import async_compile, config
from torch.nn import functional
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

KEPT = re.compile('"(?:dynamo_output_graph|inductor_post_grad_graph|inductor_output_code)"')
SETTINGS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


class Driver:
    """A driver of a GPU that is not there."""

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda


class Kernel:
    """A kernel that does nothing."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        pass


class Block(torch.nn.Module):  # type: ignore[misc]
    """Two layers, with lines to tell apart."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        y = self.second(x)
        y = functional.gelu(self.up(y))
        return x + self.down(y)


def scale(x: Tensor, secret: Tensor) -> Tensor:
    return x[:, :32] * 2 + secret


def sums(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(), (x * x).amax(dim=1)


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x @ y)


def twice(x: Tensor, y: Tensor) -> Tensor:
    left = torch.exp(x)
    right = torch.exp(y)
    return left @ right


def compile_all() -> None:
    config.cpu_backend = "triton"
    driver.set_active(Driver())
    async_compile.AsyncCompile.triton = lambda *_, **__: Kernel()
    model = torch.compile(torch.nn.Sequential(Block(64), Block(64)))
    model(torch.randn(8, 16, 64)).square().mean().backward()
    scaled = torch.compile(scale)
    for rows in (4, 6, 8):
        scaled(torch.randn(rows, 64), torch.randn(32))
    torch.compile(sums)(torch.randn(1024, 4096))
    torch.compile(product)(torch.randn(64, 64), torch.randn(64, 64))
    torch.compile(twice)(torch.randn(64, 64), torch.randn(64, 64))
    torch.compile(lambda a: torch.sigmoid(a.half()) * 3)(torch.randn(128, 64))


def make(output: Path) -> None:
    with TemporaryDirectory() as folder:
        environment = {**os.environ, **SETTINGS, "TORCH_TRACE": folder}
        subprocess.run([sys.executable, __file__], check=True, env=environment)
        (log,) = Path(folder).glob("*.log")
        lines = log.read_text().splitlines(keepends=True)
    kept, is_kept = [], False
    for line in lines:
        is_kept = bool(KEPT.search(line)) if not line.startswith("\t") else is_kept
        if is_kept:
            kept.append(line)
    text = "".join(kept).replace(str(Path(__file__).parent), "/home/user/secret")
    text = re.sub(r"(?<![\w.])/?[\w./-]*/site-packages/", "site-packages/", text)
    text = re.sub(r"/tmp/torchinductor_\w+/", "/tmp/torchinductor_user/", text)
    output.write_bytes(lzma.compress(text.encode()))


if __name__ == "__main__":
    make(Path(sys.argv[1])) if len(sys.argv) > 1 else compile_all()
