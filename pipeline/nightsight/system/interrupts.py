"""Handles the signals that ask this process to end like Ctrl-C, and records them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# Windows has no SIGHUP
_ENDING: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def recording_interrupts() -> Iterator[list[int]]:
    """Record the signals that arrive, because the exceptions that they raise may be caught or replaced.

    A canceled CI job (SIGTERM) and a closed terminal (SIGHUP) raise KeyboardInterrupt as well. Ignored signals, as
    under nohup, stay ignored. Only the main thread can handle signals; in other threads, none are recorded.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    handled = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        outer = before[signal.Signals(number)]
        if callable(outer):
            outer(number, frame)
        signal.default_int_handler(number, frame)

    for number in handled:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number in handled:
            signal.signal(number, before[number])
