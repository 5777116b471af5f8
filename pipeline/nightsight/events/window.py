"""Which part of a capture a report is about.

By default that is the range `measure`, else the steady part: the program's loop (`nightsight.events.loops`) from its
first usual repetition to the end of the last one's work. Slow repetitions at its beginning load, compile and allocate,
so they do not count. Without a loop it is what follows the last pause that dwarfs all others, else everything from the
first to the last GPU operation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nightsight.events.launches import GPU_TABLES
from nightsight.events.loops import LEAST_OF_WORK, Loop, Work, loops_of, work_of
from nightsight.intervals import Ints, union
from nightsight.model import Profile
from nightsight.parallel import once
from nightsight.units import format_value

MEASURED_RANGE: Final = "measure"
"""The range that our workloads and the tracer put around the measured part."""
AUTO: Final = "auto"
WHOLE: Final = "whole"
"""What `--window` takes besides a range and a span of time."""
STEADY: Final = "steady part"
START_UP: Final = "start-up"
GPU_WORK: Final = "first to last GPU operation"
RECORDED: Final = "everything recorded"
AFTER_PAUSE: Final = "after the last long pause"
"""The names of windows; that of a range is its label, and that of a span of time says its bounds."""

_NOTHING: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Window:
    """The time span that percentages and idle time refer to; `name` says where it comes from, `sentence` in full.

    steps: by process, the times in ns at which the CPU began each repetition of the loop, in rising order; the process
    with the most GPU work comes first. family: what the repetitions are called (`step #`).
    """

    start_ns: int
    end_ns: int
    name: str
    sentence: str = ""
    family: str = ""
    steps: Mapping[int, Ints] = field(default_factory=dict, compare=False)

    @property
    def length_ns(self) -> int:
        """The length of the window."""
        return self.end_ns - self.start_ns

    @property
    def repetitions(self) -> Ints:
        """When the CPU began each repetition, in ns: each ends where the next begins, and the last with the window.

        Empty if the window is not known to consist of repetitions. Of several processes it is the one with the most GPU
        work. A GPU can be behind: what it runs at such a time can be the work of an earlier repetition.
        """
        return next(iter(self.steps.values()), _NOTHING)


@once
def chosen_window(profile: Profile) -> Window:
    """Return the window that the profile asks for (`Profile.window`); UsageError if it has no such range or span."""
    if profile.window == AUTO:
        return _measured(profile) or steady_window(profile) or whole_window(profile)
    return whole_window(profile)


@once
def whole_window(profile: Profile) -> Window:
    """Return the span from the first to the last GPU operation, else that of everything recorded."""
    if bounds := _bounds(profile, GPU_TABLES):
        return Window(*bounds, GPU_WORK, "It reaches from the first GPU operation to the last.")
    bounds = _bounds(profile, _ON_CPU) or (0, 0)
    return Window(*bounds, RECORDED, "It is all that was recorded: there is no GPU work.")


@once
def steady_window(profile: Profile) -> Window | None:
    """Return the steady part: the loop without its slow beginning, else what follows a long pause; None if neither."""
    loops = loops_of(profile)
    return _of_loops(profile, loops) if loops else _after_pause(profile)


def _measured(profile: Profile) -> Window | None:
    ranges = profile.tables.get("ranges")
    if ranges is None:
        return None
    measured = ranges[(ranges["name"] == MEASURED_RANGE) & (ranges["domain"] == "")]
    if not len(measured):
        return None
    start, end = int(measured["start_ns"].min()), int(measured["end_ns"].max())
    window = Window(start, end, MEASURED_RANGE, f"It is the range `{MEASURED_RANGE}`.")
    return _with_steps(window, steady_window(profile))


def _with_steps(window: Window, steady: Window | None) -> Window:
    """Add those repetitions of the loop that begin inside the window."""
    if steady is None or not steady.steps:
        return window
    inside = {
        process: starts[(starts >= window.start_ns) & (starts < window.end_ns)]
        for process, starts in steady.steps.items()
    }
    steps = {process: starts for process, starts in inside.items() if len(starts)}
    return replace(window, steps=steps, family=steady.family if steps else "")


def _of_loops(profile: Profile, loops: list[Loop]) -> Window:
    """Return the window of the loops of all processes: from the first usual repetition to the end of their work."""
    # ranks that take as many steps go through them together, so that what is slow for one is slow for all
    together = {len(loop.starts): 0 for loop in loops}
    for loop in loops:
        together[len(loop.starts)] = max(together[len(loop.starts)], loop.slow)
    slow = max(together[len(loop.starts)] for loop in loops)
    steps = {loop.process: loop.starts[together[len(loop.starts)] :] for loop in loops}
    work, start = work_of(profile), min(int(starts[0]) for starts in steps.values())
    end = max(max(loop.end_ns, _work_end(work, loop, int(steps[loop.process][0]))) for loop in loops)
    return Window(start, end, STEADY, _said(loops, steps, slow), loops[0].family, steps)


def _work_end(work: Work, loop: Loop, start_ns: int) -> int:
    mine = (work.launched >= start_ns) & (work.launched <= loop.end_ns)
    if (work.process != loop.process).any():
        mine &= work.process == loop.process
    return int(work.end[mine].max(initial=loop.end_ns))


def _said(loops: list[Loop], steps: Mapping[int, Ints], slow: int) -> str:
    counts = sorted({len(starts) for starts in steps.values()})
    often = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    family = loops[0].family
    of_what = f"`{family}`" if loops[0].is_named else family
    where = f" in each of {len(loops)} processes" if len(loops) > 1 else ""
    first = "The first one is" if slow == 1 else f"The first {slow:,} are"
    left_out = f" {first} left out: much slower than the others." if slow else ""
    return f"It consists of {often} repetitions of {of_what}{where}.{left_out}"


def _after_pause(profile: Profile) -> Window | None:
    """Return what follows the last pause of all GPUs that dwarfs the others, if that is most of the work."""
    work = work_of(profile)
    start, end = union(work.start, work.end)
    if len(start) < _LEAST_STRETCHES:
        return None
    pauses = start[1:] - end[:-1]
    ordered = np.sort(pauses)[::-1][: _MOST_PAUSES + 1]
    dwarfs = np.flatnonzero(ordered[:-1] >= _DWARFS * ordered[1:])
    if not len(dwarfs) or ordered[dwarfs[-1]] < _LEAST_PAUSE * (end[-1] - start[0]):
        return None
    last = int(np.flatnonzero(pauses >= ordered[dwarfs[-1]])[-1]) + 1
    begin, stop = int(start[last]), int(end[-1])
    length = work.end - work.start
    if length[work.start >= begin].sum() < LEAST_OF_WORK * length.sum():
        return None
    pause = format_value(int(pauses[last - 1]), "pause_ns")
    said = f"Nothing repeats in order, so it is what follows the last long pause of the GPU ({pause})."
    return Window(begin, stop, AFTER_PAUSE, said)


_LEAST_STRETCHES: Final = 3
# no more than these many pauses can each dwarf the rest
_MOST_PAUSES: Final = 8
_DWARFS: Final = 10
# of the time from the first to the last operation
_LEAST_PAUSE: Final = 0.1

_ON_CPU: Final = ("ranges", "marks", "cpu_ops", "api_calls")


def _bounds(profile: Profile, names: Iterable[str]) -> tuple[int, int] | None:
    frames = [profile.tables[name] for name in names if len(profile.tables.get(name, ()))]
    if not frames:
        return None
    return int(min(frame["start_ns"].min() for frame in frames)), int(max(frame["end_ns"].max() for frame in frames))
