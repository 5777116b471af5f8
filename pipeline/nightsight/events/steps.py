"""Finds when the repetitions of the window begin on each GPU: the CPU can be many repetitions ahead."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import communicating, of_all_ranks
from nightsight.events.timeline import Timeline, by_device, launch_times, operation_column
from nightsight.intervals import NO_SPANS, NOTHING, Ints, Spans
from nightsight.tables import SHAPE, integers, positions

_LATEST: Final = np.iinfo(np.int64).max


def device_steps(timeline: Timeline, device: int) -> tuple[Ints, Ints]:
    """Return when each repetition of the window begins and ends on a device, in ns: with its first operation there.

    The CPU can be many repetitions ahead, so its times say nothing about the GPU. A repetition without work on the
    device begins when the CPU begins it. The repetitions of the process with the most work count.
    """
    window = timeline.window
    of_device = by_device(timeline)[device]
    if len(window.steps) > 1:
        processes = operation_column(timeline, "process")[of_device]
        process = next((process for process in window.steps if (processes == process).any()), -1)
        of_device, starts = of_device[processes == process], window.steps.get(process, NOTHING)
    else:
        starts = window.repetitions
    if not len(starts):
        return NO_SPANS
    return begin_of_work(timeline, of_device, starts)


def begin_of_work(timeline: Timeline, operations: Ints, starts: Ints) -> Spans:
    """Return when steps begin and end on a device: with the first of its operations that was launched in each.

    operations: those of the device, and of the process; starts: when the CPU begins each step, in ns, ascending.
    """
    window, all_operations = timeline.window, timeline.operations
    step = np.searchsorted(starts, launch_times(timeline)[operations], side="right") - 1
    begin = np.full(len(starts) + 1, _LATEST)
    np.minimum.at(begin, step, all_operations.start[operations])
    # the last entry is for work from before the first step
    begin = np.where(begin[:-1] == _LATEST, starts, begin[:-1])
    begin = np.clip(np.maximum.accumulate(begin), window.start_ns, window.end_ns)
    return begin, np.append(begin[1:], window.end_ns)


def computing_by_step(timeline: Timeline, *, least: int) -> Iterator[tuple[int, int, pd.DataFrame, Ints]]:
    """Yield each device with at least `least` steps: its number, its steps, its kernels in them, the step of each.

    Kernels that communicate are left out. Of the others, there are names, times and grids.
    """
    kernels = timeline.profile.recorded("kernels")
    columns = [name for name in ("device", "name", "start_ns", "end_ns", *SHAPE[:3]) if name in kernels]
    kernels = kernels.loc[~communicating(timeline)[: len(kernels)], columns]
    for device, rows in positions(integers(kernels["device"])).items():
        begin, end = device_steps(timeline, device)
        if len(begin) < least:
            continue
        start = kernels["start_ns"].to_numpy()[rows]
        is_inside = (start >= begin[0]) & (start < end[-1])
        step: Ints = np.searchsorted(begin, start[is_inside], side="right") - 1
        if len(step):
            yield device, len(begin), kernels.iloc[rows[is_inside]], step


def worked_steps(timeline: Timeline, device: int) -> Spans:
    """Return the steps of a device, or the window as one; the last one ends with the last work on the device."""
    window = timeline.window
    begin, end = device_steps(timeline, device)
    if not len(begin):
        begin, end = window.spans
    last = int(timeline.operations.end[by_device(timeline)[device]].max())
    return begin, np.append(end[:-1], max(min(int(end[-1]), last), int(begin[-1])))


def steps_in_window(timeline: Timeline, device: int) -> Spans:
    """Return when the steps of a device begin and end in the window; a window without steps counts as one.

    In a large job, the steps of all devices are known.
    """
    window = timeline.window
    if (job := timeline.profile.job) is None:
        return worked_steps(timeline, device)
    begin, end = job.steps[device]
    chosen = window.contains(begin)
    if not chosen.any():
        return window.spans
    return begin[chosen], np.minimum(end[chosen], window.end_ns)


def first_numbers(timeline: Timeline, steps: Mapping[int, Spans]) -> dict[int, int]:
    """Return the number of the first step of each device: recordings of devices may start at different steps.

    Steps with the same collectives have the same number, which is that of the device with the most steps. Without
    collectives, a step has the number of the step that ran on that device at the time.
    """
    if not steps:
        return {}
    all_ranks = of_all_ranks(timeline)
    collectives = {
        device: all_ranks[(all_ranks["collective"] >= 0) & (all_ranks["device"] == device)] for device in steps
    }
    longest = max(steps, key=lambda device: len(steps[device][0]))
    numbers = _step_of_collectives(collectives[longest], steps[longest])
    begin = steps[longest][0]
    middle = (begin[1:] + begin[:-1]) // 2
    first = {}
    for device, own in steps.items():
        difference = numbers.sub(_step_of_collectives(collectives[device], own)).dropna()
        by_time = np.searchsorted(middle, own[0][0])
        first[device] = int(np.rint(difference.median())) if len(difference) else int(by_time)
    # numbers start at the earliest step of all devices
    least = min(first.values())
    return {device: number - least for device, number in first.items()}


def _step_of_collectives(collectives: pd.DataFrame, steps: Spans) -> "pd.Series[float]":
    """Return the step of a device in which each of its collectives begins, by collective."""
    begin, end = steps
    start = collectives["start_ns"].to_numpy()
    inside = (start >= begin[0]) & (start < end[-1])
    number = np.searchsorted(begin, start[inside], side="right") - 1.0
    numbers = pd.Series(number, index=collectives["collective"].to_numpy()[inside])
    return numbers[~numbers.index.duplicated()]
