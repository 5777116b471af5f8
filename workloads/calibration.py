"""Times CUDA calls of each kind. nightsight runs it without and with nsys: the difference is the overhead of nsys.

It is started by path, with the Python of the program that is profiled. Calls come in bursts that fit into the GPU's
queue, and only submitting work is timed, so that the GPU is never the limit. The kind `host` makes no calls: it
measures the speed of the host while this process ran. Ends with status 3 if there is no CUDA here.
"""

import argparse
import ctypes
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

NO_CUDA = 3
_BURST = 200
_TRIALS = 25
_SLOW_BURST = 10
_BYTES = 1 << 22
_HOST_TO_DEVICE = 1


def main() -> None:
    """Write the median time of a call of each kind, in ns, to the file on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target
    if not torch.cuda.is_available():
        sys.exit(NO_CUDA)
    timed = dict(kinds())
    bursts: dict[str, list[float]] = {kind: [] for kind in timed}
    # all kinds in turn: the speed of the host changes while they run
    for trial in range(_TRIALS + 1):
        for kind, (call, count) in timed.items():
            per_call = _burst_ns(call, count)
            if trial:
                bursts[kind].append(per_call)
    aside = target.with_name(f".{target.name}")
    medians = {kind: statistics.median(times) for kind, times in bursts.items()}
    aside.write_text(json.dumps({"call_ns": medians}) + "\n", encoding="utf-8")
    aside.replace(target)


def kinds() -> Iterator[tuple[str, tuple[Callable[[], object], int]]]:
    """Yield each kind with a function that makes one such call (`allocation`: two), and how many to time."""
    x = torch.zeros(1, device="cuda")
    event, stream = torch.cuda.Event(), torch.cuda.current_stream()
    yield "host", (_work, _BURST)
    yield "launch", (lambda: x.add_(1), _BURST)
    yield "event", (event.record, _BURST)
    yield "wait", (stream.synchronize, _BURST)
    with suppress(OSError, AttributeError):
        runtime = _runtime()
        host = torch.zeros(1, pin_memory=True)
        to, source, on = (ctypes.c_void_p(place) for place in (x.data_ptr(), host.data_ptr(), stream.cuda_stream))
        size, way, zero = ctypes.c_size_t(4), ctypes.c_int(_HOST_TO_DEVICE), ctypes.c_int(0)
        copy, fill, allocate, free = (
            getattr(runtime, name) for name in ("cudaMemcpyAsync", "cudaMemsetAsync", "cudaMalloc", "cudaFree")
        )
        yield "copy", (lambda: copy(to, source, size, way, on), _BURST)
        yield "memset", (lambda: fill(to, zero, size, on), _BURST)
        place = ctypes.c_void_p()
        much = ctypes.c_size_t(_BYTES)
        yield "allocation", (lambda: (allocate(ctypes.byref(place), much), free(place)), _SLOW_BURST)


def _burst_ns(call: Callable[[], object], count: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def _work() -> int:
    return sum(range(100))


def _runtime() -> ctypes.CDLL:
    """Return the CUDA runtime that torch has loaded; OSError if it is not a separate library."""
    found = re.search(r"/\S*libcudart\S*\.so\S*", Path("/proc/self/maps").read_text())
    if found is None:
        raise OSError("no libcudart is loaded")
    return ctypes.CDLL(found[0])


if __name__ == "__main__":
    main()
