"""Does a little of all that `nsys stats` has a table for. With --open as its argument two ranges are never ended."""

import ctypes
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nvtx
import torch

SIZE = 1 << 20
MANAGED_BYTES = 8 << 20
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def main() -> None:
    runtime = loaded_runtime()
    copies(runtime)
    faults(runtime)
    with nvtx.annotate("steps"):
        for number in range(5):
            step(number)
    threads()
    names()
    graph()
    if "--open" in sys.argv:
        nvtx.push_range("never popped")
        nvtx.start_range("never ended", domain="io")
        torch.ones(SIZE, device="cuda").sum().item()


def loaded_runtime() -> Any:
    """The CUDA runtime that torch has loaded: another one would not know its context."""
    torch.cuda.init()
    match = re.search(r"/\S*/libcudart\S*\.so\S*", Path("/proc/self/maps").read_text())
    return ctypes.CDLL(match[0] if match else "libcudart.so")


def copies(runtime: Any) -> None:
    pageable, pinned = torch.ones(SIZE), torch.ones(SIZE).pin_memory()
    with nvtx.annotate("copies", domain="io", category="host", color="blue"):
        device = pageable.to("cuda")
        device.copy_(pinned, non_blocking=True)
        torch.empty_like(device).copy_(device)
        device.zero_()
        pinned.copy_(device)
        device.cpu()
    pointers = ctypes.c_void_p(device.data_ptr()), ctypes.c_void_p(pageable.data_ptr())
    for kind, (target, source) in ((HOST_TO_DEVICE, pointers), (DEVICE_TO_HOST, pointers[::-1])):
        succeeded(runtime.cudaMemcpy(target, source, ctypes.c_size_t(4 * SIZE), kind))
    succeeded(runtime.cudaMemset(pointers[0], 0, ctypes.c_size_t(4 * SIZE)))


def faults(runtime: Any) -> None:
    """Pages of managed memory go to and fro, since each side writes to all of them."""
    pointer = ctypes.c_void_p()
    succeeded(runtime.cudaMallocManaged(ctypes.byref(pointer), ctypes.c_size_t(MANAGED_BYTES), 1))
    with nvtx.annotate("faults"):
        ctypes.memset(pointer, 0, MANAGED_BYTES)
        values = torch.as_tensor(Managed(pointer.value), device="cuda")
        for _ in range(3):
            values.add_(1)
            torch.cuda.synchronize()
            ctypes.memset(pointer, 0, MANAGED_BYTES)
    del values
    succeeded(runtime.cudaFree(pointer))


class Managed:
    def __init__(self, address: int | None) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (MANAGED_BYTES // 4,),
            "typestr": "<f4",
            "data": (address, False),
        }


def step(number: int) -> None:
    """Push/pop ranges of two domains around one another, registered and plain names, and autograd's own thread."""
    model = torch.nn.Linear(256, 256, device="cuda")
    rows = torch.randn(64, 256, device="cuda")
    torch.cuda.nvtx.range_push(f"step {number}")
    with nvtx.annotate("step", domain="io", category="step"), nvtx.annotate("step"), nvtx.annotate("step"):
        loss = model(rows).square().mean()
        nvtx.mark("loss", domain="io")
    with nvtx.annotate("backward"):
        loss.backward()
    loss.item()
    torch.cuda.nvtx.range_pop()


def threads() -> None:
    """Start/end ranges that overlap, and one that another thread ends; kernels of two threads on two streams."""
    first, second = nvtx.start_range("overlapping"), nvtx.start_range("overlapping", domain="io")
    handed_over = nvtx.start_range("handed over", category="threads")

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()), nvtx.annotate("worker"):
            torch.randn(SIZE, device="cuda").sin().sum().item()
        nvtx.end_range(handed_over)

    workers = [threading.Thread(target=work), threading.Thread(target=time.sleep, args=(0.002,))]
    for worker in workers:
        worker.start()
    torch.ones(SIZE, device="cuda").cumsum(0)
    nvtx.end_range(first)
    for worker in workers:
        worker.join()
    nvtx.end_range(second)
    plain = torch.cuda.nvtx.range_start("started by torch")
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_end(plain)


def names() -> None:
    for name in ("with/slash", "with@at", "with space", 'with "quotes", and comma', "ünïcode"):
        for domain in (None, "io", "in/out"):
            with nvtx.annotate(name, domain=domain):
                torch.ones(256, device="cuda").mul_(2)


def graph() -> None:
    rows = torch.randn(64, 256, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        rows.mul_(2).sin_()
    with nvtx.annotate("graph"):
        for _ in range(3):
            recorded.replay()
        torch.cuda.synchronize()


def succeeded(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA runtime returned {status}")


if __name__ == "__main__":
    main()
