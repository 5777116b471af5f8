"""Chooses the window: the part of a capture that a report covers.

By default that is the range `measure`, else the steady part: the program's loop (`nightsight.events.loops`) from its
first normal repetition to the end of the work of the last one. Slow repetitions at the start load, compile and
allocate, so they do not count. Without a loop, the window is the annotated part if most of the work is launched there,
else the part after the last pause that is far longer than the others, else everything from the first to the last GPU
operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.errors import UsageError
from nightsight.events.launches import GPU_TABLES
from nightsight.events.loops import (
    LEAST_OF_WORK,
    Loop,
    launched_work,
    longest_part_without,
    loops_of,
    one_thread,
    prepares,
)
from nightsight.events.names import api_names
from nightsight.events.ranges import LEAST, without_numbers
from nightsight.events.selection import RANGE_HINT, TIME_HINT, as_range, as_span, instances, known_ranges
from nightsight.events.unseen import AFTER, BEFORE, pauses, unseen
from nightsight.intervals import NOTHING, Flags, Ints, Spans, union
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.units import in_text

MEASURED_RANGE: Final = "measure"
"""The range that our workloads and the tracer put around the measured part."""
AUTO: Final = "auto"
WHOLE: Final = "whole"
"""Values of `--window` other than a range or a span of time."""
STEADY: Final = "steady part"
START_UP: Final = "start-up"
GPU_WORK: Final = "first to last GPU operation"
RECORDED: Final = "everything recorded"
AFTER_PAUSE: Final = "part after the last long pause"
ANNOTATED: Final = "annotated part"
"""The names of windows; a range is named by its label, and a span of time by its bounds."""

_NO_LOOP: Final = "Nothing repeats long enough to count as a steady part."


@dataclass(frozen=True)
class Window:
    """The time span that percentages and idle time refer to; `name` is its origin in brief, `sentence` in full.

    steps: by process, the times in ns at which the CPU began each repetition of the loop, in rising order; the process
    with the most GPU work comes first. If the capture lacks GPU work at an end of the loop, the times at which the GPU
    began each. ends: when the loop of each process ended. family: the name of the repetitions (`step #`).
    """

    start_ns: int
    end_ns: int
    name: str
    sentence: str = ""
    family: str = ""
    steps: Mapping[int, Ints] = field(default_factory=dict, compare=False)
    ends: Mapping[int, int] = field(default_factory=dict, compare=False)

    @property
    def bounds(self) -> tuple[int, int]:
        """The start and the end of the window, in ns."""
        return self.start_ns, self.end_ns

    @property
    def spans(self) -> Spans:
        """The window as spans."""
        return np.array([self.start_ns]), np.array([self.end_ns])

    def contains(self, time: "Ints | pd.Series[Any]") -> Flags:
        """Return which times are in the window."""
        times = np.asarray(time)
        flags: Flags = (times >= self.start_ns) & (times < self.end_ns)
        return flags

    def contains_end(self, end: "Ints | pd.Series[Any]") -> Flags:
        """Return which events end in the window, by their ends."""
        ends = np.asarray(end)
        flags: Flags = (ends > self.start_ns) & (ends <= self.end_ns)
        return flags

    @property
    def length_ns(self) -> int:
        """The length of the window."""
        return self.end_ns - self.start_ns

    @property
    def repetitions(self) -> Ints:
        """When the CPU began each repetition, in ns; each ends where the next one begins, the last at `ended_ns`.

        Empty if the window does not consist of repetitions. Of several processes, the one with the most GPU work
        counts. The GPU can lag, so it may still run an earlier repetition at such a time.
        """
        return next(iter(self.steps.values()), NOTHING)

    @property
    def first_steps(self) -> Mapping[int, int]:
        """The number of the first step of each process, counted in steps of the process with the most steps.

        Recordings may start at different steps. Equal step counts mean the same start, although one may be ahead.
        """
        longest = max(self.steps.values(), key=len, default=NOTHING)
        midpoints = (longest[1:] + longest[:-1]) // 2
        return {
            process: min(int(np.searchsorted(midpoints, starts[0])), len(longest) - len(starts))
            for process, starts in self.steps.items()
            if len(starts)
        }

    @property
    def ended_ns(self) -> int:
        """When the last of the `repetitions` ended, in ns; other processes may continue in the window."""
        return min(self.ends.get(next(iter(self.steps), -1), self.end_ns), self.end_ns)


def check_window(text: str) -> None:
    """Raise UsageError if a window cannot fit any capture, before one is made."""
    if text in (AUTO, WHOLE):
        return
    span = as_span(text)
    if span is None:
        *_, first, last = as_range(text)
        if first is not None and last is not None and last < first:
            raise UsageError(f"the window {text!r} ends before it starts", RANGE_HINT)
    elif span[0] is not None and span[1] is not None and span[0] >= span[1]:
        what = "is empty" if span[0] == span[1] else "ends before it starts"
        raise UsageError(f"the window {text!r} {what}", TIME_HINT)


@memoize
def chosen_window(profile: Profile) -> Window:
    """Return the requested window (`Profile.window`); UsageError if the profile has no such range or span."""
    if profile.window == AUTO:
        window = _default_window(profile)
        return window if window.name != GPU_WORK else replace(window, sentence=f"{_NO_LOOP} {window.sentence}")
    if profile.window == WHOLE:
        return whole_window(profile)
    check_window(profile.window)
    if span := as_span(profile.window):
        return _with_whole_steps(profile, _span_window(profile, *span))
    window = _range_window(profile)
    return window if window.steps else _with_steps(profile, window)


@memoize
def offered_windows(profile: Profile) -> tuple[Window, ...]:
    """Return the windows on offer: the chosen one, the usual one, the whole, and the start-up.

    Windows that hardly differ from an earlier one are left out.
    """
    default, offered = _default_window(profile), [chosen_window(profile)]
    for window in (default, whole_window(profile), _start_up(profile, default)):
        if window is not None and not any(_are_alike(window, earlier) for earlier in offered):
            offered.append(window)
    return tuple(offered)


@memoize
def whole_window(profile: Profile) -> Window:
    """Return the span from the first to the last GPU operation, else that of everything recorded."""
    if bounds := profile.bounds(GPU_TABLES):
        return Window(*bounds, GPU_WORK, "The window spans from the first to the last GPU operation.")
    bounds = profile.bounds(_ON_CPU) or profile.bounds(_PYTHON) or (0, 0)
    return Window(*bounds, RECORDED, "The window is everything recorded: there is no GPU work.")


def _default_window(profile: Profile) -> Window:
    return _measured_range(profile) or _steady_part(profile) or whole_window(profile)


def _steady_part(profile: Profile) -> Window | None:
    """Return the steady part without the ends in which the GPU ran work that is not in the capture.

    A host that is ahead launches the first recorded steps while the GPU still runs earlier ones. The remaining steps
    are therefore defined by their work on the GPU.
    """
    window, unseen_by_gpu = steady_window(profile), unseen(profile)
    ends = {gpu: [hidden.of(reason) for reason in (BEFORE, AFTER)] for gpu, hidden in unseen_by_gpu.items()}
    if window is None or not any(len(start) for spans in ends.values() for start, _ in spans):
        return window
    low, high, work = window.start_ns, window.end_ns, launched_work(profile)
    begins, ended = [], []
    number = np.concatenate([profile.tables[name]["device"] for name in GPU_TABLES if name in profile.tables])
    for gpu in np.unique(number[(work.end > low) & (work.start < high)]).tolist():
        before, after = ends[gpu]
        begins.append(max([low, *before[1].tolist()]))
        ended.append(min([high, *after[0].tolist()]))
    # the time that is known for all GPUs if that is most of the window, else the time that is known for any
    start, end = max(begins, default=low), min(ended, default=high)
    if end - start < (high - low) / 2:
        start, end = min(begins), max(ended)
    if start >= end or (start - low) + (high - end) < _ALIKE * window.length_ns:
        return window
    steps = {}
    for process, starts in window.steps.items():
        rows = np.flatnonzero((work.process == process) & (work.launch_ns >= starts[0]))
        step = np.searchsorted(starts, work.launch_ns[rows], side="right") - 1
        first = np.full(len(starts), np.iinfo(np.int64).max)
        np.minimum.at(first, step, work.start[rows])
        steps[process] = np.unique(first[(first >= start) & (first < end)])
    has_steps = all(len(starts) >= LEAST for starts in steps.values())
    count = max(map(len, steps.values()), default=0)
    explanation = "GPU work from before or after the recording is not in the capture, so that time is excluded"
    remain = f"; {count:,} repetitions remain" if has_steps and count != len(window.repetitions) else ""
    return replace(
        window,
        start_ns=start,
        end_ns=end,
        sentence=f"{window.sentence} {explanation}{remain}.",
        steps=steps if has_steps else {},
        ends={process: min(until, end) for process, until in window.ends.items()} if has_steps else {},
        family=window.family if has_steps else "",
    )


def _start_up(profile: Profile, default: Window) -> Window | None:
    """Return the part before the usual window; None if the usual window is everything, or if the part is brief.

    It begins with the first GPU operation, like the whole window, or with the first event if no operation comes before.
    """
    bounds = profile.bounds((*GPU_TABLES, *_ON_CPU))
    if bounds is None or default.name in (GPU_WORK, RECORDED):
        return None
    start = whole_window(profile).start_ns
    start = start if start < default.start_ns else bounds[0]
    length = default.start_ns - start
    if length < _ALIKE * default.length_ns:
        return None
    until = f"the range `{default.name}`" if default.name == MEASURED_RANGE else f"the {default.name}"
    return Window(start, default.start_ns, START_UP, f"{in_text(length, 'length_ns')} until {until}.")


def _are_alike(first: Window, second: Window) -> bool:
    least = _ALIKE * min(first.length_ns, second.length_ns)
    return max(abs(first.start_ns - second.start_ns), abs(first.end_ns - second.end_ns)) <= least


# share of a window's length: a difference too small for any figure to show
_ALIKE: Final = 0.01


@memoize
def steady_window(profile: Profile) -> Window | None:
    """Return the loop without its slow start, else the annotated part, else the part after a long pause, else None.

    If the recording was paused, the loop is its longest part between two pauses.
    """
    loops, paused = loops_of(profile), pauses(profile)
    if len(loops) == 1 and loops[0].process in paused:
        loops = [longest_part_without(profile, loops[0], paused[loops[0].process])]
    return _loop_window(profile, loops) if loops else _annotated_part(profile) or _part_after_pause(profile)


def _measured_range(profile: Profile) -> Window | None:
    ranges = profile.recorded("ranges")
    measured = ranges[(ranges["name"] == MEASURED_RANGE) & (ranges["domain"] == "")]
    if not len(measured):
        return None
    start, end = int(measured["start_ns"].min()), int(measured["end_ns"].max())
    window = Window(start, end, MEASURED_RANGE, f"The window is the range `{MEASURED_RANGE}`.")
    return _with_steps(profile, window)


def _with_steps(profile: Profile, window: Window) -> Window:
    """Add the repetitions of the program's loop that begin inside the window, including slow ones."""
    loops = loops_of(profile)
    inside = {loop.process: loop.starts[window.contains(loop.starts)] for loop in loops}
    steps = {process: starts for process, starts in inside.items() if len(starts)}
    if not steps:
        return window
    family = loops[0].family.removeprefix(f"{MEASURED_RANGE} / ")
    return replace(window, steps=steps, ends={loop.process: loop.end_ns for loop in loops}, family=family)


def _with_whole_steps(profile: Profile, window: Window) -> Window:
    """Add the repetitions of the program's loop that lie inside the window: a part of one says nothing about a step."""
    steps, ends = {}, {}
    loops = loops_of(profile)
    for loop in loops:
        until = np.append(loop.starts[1:], loop.end_ns)
        # typed or copied times are rounded
        rounded = _ALIKE * (until - loop.starts)
        is_whole = (loop.starts >= window.start_ns - rounded) & (until <= window.end_ns + rounded)
        if is_whole.any():
            steps[loop.process] = np.maximum(loop.starts[is_whole], window.start_ns)
            ends[loop.process] = min(int(until[is_whole][-1]), window.end_ns)
    return replace(window, steps=steps, ends=ends, family=loops[0].family) if steps else window


def _loop_window(profile: Profile, loops: list[Loop]) -> Window:
    """Return the window of the loops of all processes: from the first usual repetition to the end of their work."""
    # ranks with equal step counts run in lockstep, so a step that is slow for one is slow for all
    slow_of = {len(loop.starts): 0 for loop in loops}
    for loop in loops:
        slow_of[len(loop.starts)] = max(slow_of[len(loop.starts)], loop.slow, loop.waiting)
    slow = max(slow_of[len(loop.starts)] for loop in loops)
    steps = {loop.process: loop.starts[slow_of[len(loop.starts)] :] for loop in loops}
    ends = {loop.process: loop.end_ns for loop in loops}
    start, end = min(int(starts[0]) for starts in steps.values()), max(ends.values())
    sentence = f"{_describe(profile, loops, steps, slow)}{_describe_rest(profile, end)}"
    return Window(start, end, STEADY, sentence, loops[0].family, steps, ends)


def _describe_rest(profile: Profile, end_ns: int) -> str:
    """Return a sentence on what the GPU did after the loop, if that took long; it may be another loop."""
    whole_capture = whole_window(profile)
    rest = whole_capture.end_ns - end_ns
    if rest < LONG_REST * whole_capture.length_ns:
        return ""
    return f" The {in_text(rest, 'rest_ns')} of GPU work after it are not part of it."


LONG_REST: Final = 0.1
"""Share of the time from the first to the last operation: a longer rest after the loop is reported."""


def _describe(profile: Profile, loops: list[Loop], steps: Mapping[int, Ints], slow: int) -> str:
    """Return a description of the steady part and how it was found."""
    counts = sorted({len(starts) for starts in steps.values()})
    repetitions = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    loop = loops[0]
    of_what = f"`{loop.family}`" if loop.is_named else loop.family
    where = f" in each of {len(loops)} processes" if len(loops) > 1 else ""
    ranges = profile.recorded("ranges")
    sentences = []
    if not loop.is_named:
        lacking = "No range repeats" if len(ranges) else "There are no ranges"
        sentences.append(f"{lacking}, but the same kernels are launched repeatedly.")
    sentences.append(f"The steady part consists of {repetitions} repetitions of {of_what}{where}.")
    if slow:
        first = "The first one is" if slow == 1 else f"The first {slow:,} are"
        waits = next((loop.early_wait for loop in loops if loop.waiting == slow), "")
        (waits,) = api_names(pd.Index([waits]))
        why = f"the CPU waits in {waits}, which is rare in later ones" if waits else "much slower than the others"
        sentences.append(f"{first} skipped as warm-up ({why}).")
    if loop.is_named and ranges["is_open"].any():
        sentences.append("Ranges that never ended are ignored.")
    if len(launched_work(profile).start) and not len(profile.recorded("api_calls")):
        sentences.append(
            "No CUDA calls were recorded, so work counts toward the repetition in which it began on the GPU."
        )
    return " ".join(sentences)


def _annotated_part(profile: Profile) -> Window | None:
    """Return the work between the first and the last range, without warm-up and compilation around them.

    None if that is nearly the whole, or if most of the GPU work was launched elsewhere.
    """
    ranges, work = profile.recorded("ranges"), launched_work(profile)
    ranges = ranges[~prepares(ranges["name"]) & ~ranges["is_open"].to_numpy()]
    inside = (work.launch_ns >= ranges["start_ns"].min()) & (work.launch_ns < ranges["end_ns"].max())
    length = work.end - work.start
    if not inside.any() or length[inside].sum() < LEAST_OF_WORK * length.sum():
        return None
    sentence = "Nothing repeats, so the window covers the ranges: from their first launch to the end of their work."
    window = Window(int(work.launch_ns[inside].min()), int(work.end[inside].max()), ANNOTATED, sentence)
    return None if _are_alike(window, whole_window(profile)) else window


def _part_after_pause(profile: Profile) -> Window | None:
    """Return the part after the last pause of all GPUs that dwarfs the others, if most of the work is in that part."""
    work = launched_work(profile)
    start, end = union(work.start, work.end)
    if len(start) < _LEAST_STRETCHES:
        return None
    pauses = start[1:] - end[:-1]
    ordered = np.sort(pauses)[::-1][: _MOST_PAUSES + 1]
    dwarfs = np.flatnonzero(ordered[:-1] >= _DWARF_FACTOR * ordered[1:])
    if not len(dwarfs) or ordered[dwarfs[-1]] < _LEAST_PAUSE * (end[-1] - start[0]):
        return None
    last = int(np.flatnonzero(pauses >= ordered[dwarfs[-1]])[-1]) + 1
    begin, stop = int(start[last]), int(end[-1])
    length = work.end - work.start
    if length[work.start >= begin].sum() < LEAST_OF_WORK * length.sum():
        return None
    pause = in_text(int(pauses[last - 1]), "pause_ns")
    sentence = f"Nothing repeats, so the window begins after the last long GPU pause ({pause})."
    return Window(begin, stop, AFTER_PAUSE, sentence)


_LEAST_STRETCHES: Final = 3
# at most this many pauses can each dwarf the rest
_MOST_PAUSES: Final = 8
_DWARF_FACTOR: Final = 10
# share of the time from the first to the last operation
_LEAST_PAUSE: Final = 0.1


def _span_window(profile: Profile, start: int | None, end: int | None) -> Window:
    """Return the part of the capture between two times; UsageError if it is empty or nothing was recorded in it."""
    first, last = profile.bounds((*GPU_TABLES, *_ON_CPU)) or profile.bounds(_PYTHON) or (0, 0)
    recorded = f"Recorded: {in_text(first, 'time_ns')} to {in_text(last, 'time_ns')}."
    low, high = max(first, start if start is not None else first), min(last, end if end is not None else last)
    if low >= high:
        raise UsageError(f"nothing was recorded in the window {profile.window!r}", recorded)
    span = f"{in_text(low, 'time_ns')} to {in_text(high, 'time_ns')}"
    return Window(low, high, span, f"The window is the requested span, in capture time: {span}.")


def _range_window(profile: Profile) -> Window:
    """Return the window of the ranges `NAME[@DOMAIN][/FIRST[:LAST]]`; UsageError if there are none."""
    request = profile.window
    name, domain, first, last = as_range(request)
    ranges = profile.recorded("ranges")
    instances_of_range, family = _ranges_named(ranges, name, domain)
    if not len(instances_of_range):
        raise UsageError(f"no range {name!r} in this capture for the window {request!r}", known_ranges(ranges))
    if first is not None:
        last = first if last is None else last
        # each process counts its own
        number = instances_of_range.groupby("process", sort=False).cumcount()
        most = int(number.max()) + 1
        if last >= most:
            raise UsageError(f"no range {request!r} in this capture: only {most} of them", "Numbers start at 0.")
        instances_of_range = instances_of_range[number.between(first, last)]
    start, end = int(instances_of_range["start_ns"].min()), int(instances_of_range["end_ns"].max())
    if start >= end:
        raise UsageError(f"the window {request!r} is empty", "The range begins and ends at the same time.")
    if len(instances_of_range) == 1:
        return Window(start, end, request, f"The window is the range `{request}`.")
    processes = np.unique(instances_of_range["process"]).tolist()
    by_process = {
        process: one_thread(instances_of_range[instances_of_range["process"] == process]) for process in processes
    }
    steps = {process: rows["start_ns"].to_numpy() for process, rows in by_process.items()}
    ends = {process: int(rows["end_ns"].max()) for process, rows in by_process.items()}
    return Window(
        start,
        end,
        request,
        f"The window consists of {len(instances_of_range):,} ranges `{family}`.",
        family,
        steps,
        ends,
    )


def _ranges_named(ranges: pd.DataFrame, name: str, domain: str) -> tuple[pd.DataFrame, str]:
    """Return the ranges with a name, in order, else those with the name and a number; and their common name."""
    label = f"{domain}:{name}" if domain else name
    exact = instances(ranges, name, domain)
    if len(exact):
        return exact, label
    names = ranges["name"].cat.categories
    # `step` and `step #` mean `step 0`, `step 1` and so on
    bare = name.removesuffix("#").rstrip()
    numbered = names[without_numbers(names).isin([f"{bare} #", f"{bare}#", f"{bare}_#", f"{bare}##"])]
    return instances(ranges, numbered, domain), f"{label.removesuffix('#').rstrip()} #"


_ON_CPU: Final = ("ranges", "marks", "cpu_ops", "api_calls")
# also recorded around the profiler's own start and end, so they count only if there is nothing else
_PYTHON: Final = ("python_functions",)
