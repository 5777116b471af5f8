"""A program whose GPU work is in processes that it starts, in the way its argument names; each ends differently."""

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import NoReturn

WAYS = ("spawn", "fork", "pool", "exit", "service")
KERNELS = 20
"""Of one piece of work; a service does three."""


def work() -> None:
    import torch  # noqa: PLC0415 (a fork must not inherit CUDA)

    ones = torch.ones(1 << 20, device="cuda")
    for number in range(KERNELS // 2):
        (ones + number).sum().item()


def work_and_exit() -> NoReturn:
    work()
    os._exit(0)


def serve() -> None:
    """Serve requests until a signal ends the process, as workers of Ray do."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for _ in sys.stdin:
        work()
        print("done", flush=True)


def start(way: str) -> None:
    if way == "pool":
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(work).result()
    elif way == "service":
        command = [sys.executable, __file__, "serve"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as worker:
            assert worker.stdin
            assert worker.stdout
            for _ in range(3):
                print("work", file=worker.stdin, flush=True)
                worker.stdout.readline()
            worker.terminate()
    else:
        multiprocessing.set_start_method("fork" if way == "fork" else "spawn")
        process = multiprocessing.Process(target=work_and_exit if way == "exit" else work)
        process.start()
        process.join()


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else start(sys.argv[1])
