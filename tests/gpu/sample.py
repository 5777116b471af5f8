"""The program of the sample report: training in FP32, which TF32 makes five times faster.

On a GPU host, `python -m nightsight profile --time-steps tests/gpu/sample.py` makes the capture and the report, and
`python tests/gpu/sample.py --time` says how long a step takes in FP32 and in TF32 without a profiler. `make pictures`
renders the page.
"""

import sys
import time
from collections.abc import Callable

import nvtx
import torch

WIDTH = 4096
STEPS = 20


def training() -> Callable[[], None]:
    """Return one step of training: two layers of 4096 by 4096, 4096 samples."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = torch.randn(WIDTH, WIDTH, device="cuda")

    def step() -> None:
        with nvtx.annotate("forward"):
            loss = model(samples).square().mean()
        with nvtx.annotate("backward"):
            loss.backward()
        with nvtx.annotate("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def timed(step: Callable[[], None]) -> float:
    """Return the mean time of 30 steps in seconds, after five that are not counted."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 30


if __name__ == "__main__":
    if "--time" in sys.argv:
        for form in ("highest", "high"):
            torch.set_float32_matmul_precision(form)
            print(f"{form}: {1e3 * timed(training()):.3f} ms a step")
    else:
        one = training()
        for _ in range(5):
            one()
        torch.cuda.synchronize()
        for _ in range(STEPS):
            with nvtx.annotate("step"):
                one()
        torch.cuda.synchronize()
