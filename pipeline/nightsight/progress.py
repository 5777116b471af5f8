"""Progress messages and time estimates, for stages that know nothing about terminals."""

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Takes a short message about the current activity.

    done, of: the number of equal parts that are done, and of all parts, if known. is_series: the message is about a
    series, such as repeats; the following messages are stages of its current part.
    """

    def __call__(self, message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        """Report the current activity."""


def silent(message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
    """Show nothing."""


@dataclass
class Clock:
    """The progress of an activity that started at `began_s`: at `updated_s`, `done` of `of` parts are done.

    first: the parts that were done at the start.
    """

    began_s: float
    of: float = 0.0
    first: float = 0.0
    done: float = 0.0
    updated_s: float = 0.0

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None if unknown."""
        return min(self.done / self.of, 1.0) if self.of else None

    def left_s(self, now_s: float) -> float | None:
        """Return how long the rest will take at the current rate; None if unknown."""
        if not self.of or self.done <= self.first:
            return None
        each_s = (self.updated_s - self.began_s) / (self.done - self.first)
        return max(self.updated_s + each_s * (self.of - self.done) - now_s, 0.0)


def clock_text(seconds: float) -> str:
    """Write a time as clocks do: `0:12`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Reporter(ABC):
    """A `Progress` that people see. doing: the last message, whether or not it was shown."""

    def __init__(self) -> None:
        self.doing = ""
        self._clocks: dict[bool, Clock] = {}

    @abstractmethod
    def __call__(self, message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        """Show the current activity."""

    def paused(self) -> AbstractContextManager[None]:
        """Hide progress while other output is printed."""
        return nullcontext()

    def _clock(self, done: float, of: float, *, is_series: bool) -> tuple[Clock, bool]:
        """Return the clock of the current activity, and whether it is new: another part of the same one is not."""
        now_s = time.monotonic()
        clock = self._clocks.get(is_series)
        is_new = clock is None or not of or clock.of != of
        if clock is None or is_new:
            clock = self._clocks[is_series] = Clock(now_s, of, done, done, now_s)
        clock.done, clock.updated_s = done, now_s
        if is_series:
            self._clocks.pop(False, None)
        return clock, is_new
