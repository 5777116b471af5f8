"""What tests let other processes do. They import this first, so it imports little."""

import os
import signal
import time
from pathlib import Path

WAIT_S = 60


def asleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def noted(file: Path) -> int:
    """Note in a file that it was called, and return how often it has been."""
    with file.open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    return len(file.read_text().splitlines())


def dies_at_first(file: Path) -> int:
    if noted(file) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def dies(file: Path) -> None:
    noted(file)
    os._exit(1)


def finds_no_memory(file: Path) -> None:
    noted(file)
    raise MemoryError


def takes(count: int) -> int:
    held = b"x" * count
    time.sleep(WAIT_S if count > 10**8 else 0)
    return len(held)


def divides(number: float) -> float:
    return 1 / number


class Odd(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def is_odd() -> None:
    raise Odd(1, 2)


def interrupted(variable: str) -> str:
    """Press Ctrl-C, and return the value of an environment variable."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    return os.environ[variable]


def spans(file: Path, seconds: float, *, dies: bool = False) -> tuple[float, float]:
    """Return when it was called and when it returned."""
    began = time.monotonic()
    time.sleep(seconds)
    if dies and noted(file) == 1:
        os._exit(1)
    return began, time.monotonic()
