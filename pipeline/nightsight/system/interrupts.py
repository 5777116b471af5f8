"""The signals that ask this process to end: all of them do what Ctrl-C does, and are noted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# Windows has no SIGHUP
_ENDING: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def interrupts_noted() -> Iterator[list[int]]:
    """List the signals that come: what they raise may be caught, or become another exception, on its way.

    A cancelled CI job (SIGTERM) and a closed terminal (SIGHUP) raise KeyboardInterrupt as well. A signal that is
    ignored, as under nohup, stays ignored. Only the main thread can ask for signals: in another, none is listed.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    taken = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        outer = before[signal.Signals(number)]
        if callable(outer):
            outer(number, frame)
        signal.default_int_handler(number, frame)

    for number in taken:
        signal.signal(number, note)
    try:
        yield seen
    finally:
        for number in taken:
            signal.signal(number, before[number])
