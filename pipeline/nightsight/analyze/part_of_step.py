"""Repetitions that are parts of a single step, such as the layers of a model: gains are then for a layer, not a step.

A trace of one step has no loop of steps, so the detected loop is within the step. A call of a model, or a step of
torch.profiler, around all repetitions shows this. Without either, there is a hint: other kernels directly before and
directly after the repetitions, such as those of an embedding and of a loss.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from nightsight.events.frameworks import PYTORCH, framework_of
from nightsight.events.loops import Loop, launched_work, loops_of
from nightsight.events.ranges import LEAST, recorded_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Profile
from nightsight.tables import MODULE

_PROFILER_STEP: Final = "ProfilerStep"


def part_of_step(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding if the repetitions of the window are parts of one step."""
    profile, window = timeline.profile, timeline.window
    loops = [loop for loop in loops_of(profile) if loop.family == window.family]
    if not loops or not len(window.repetitions):
        return
    loop, count = loops[0], len(window.repetitions)
    around = _around(profile, loop)
    may_be = not loop.is_named and framework_of(profile) == PYTORCH
    if not around and not (may_be and _is_between_others(profile, loop)):
        return
    where = f"All {count:,} are in {around}." if around else "Other kernels run directly before and after them."
    unit = f"`{loop.family.rpartition(' / ')[2]}`, in this report a step," if loop.is_named else "A repetition"
    yield Finding(
        "part_of_step",
        "info",
        f"{unit} {'is' if around else 'may be'} a part of a step of the program, such as a layer",
        f"{where} Times and gains for each are those of such a part.",
        "Record several steps: torch.profiler.schedule(wait=1, warmup=2, active=5) with prof.step() after each, or "
        "ranges around steps (torch.cuda.nvtx.range, nvtx.annotate).",
    )


def _around(profile: Profile, loop: Loop) -> str:
    """Return the range around all repetitions of a loop if it is too rare to be a loop: a step, or a model's call."""
    ranges = recorded_ranges(profile)
    ranges = ranges[(ranges["process"] == loop.process) & ~ranges["is_open"]]
    is_step, is_call = ranges["name"] == _PROFILER_STEP, ranges["style"] == MODULE
    for is_kind, words in ((is_step, "one step of torch.profiler"), (is_call, "one call of `{}`")):
        of_kind = ranges[is_kind.to_numpy(dtype=bool)]
        instances = of_kind.groupby("path", observed=True)["path"].transform("size")
        encloses = (of_kind["start_ns"] <= loop.starts[0]) & (of_kind["end_ns"] > loop.starts[-1])
        enclosing = of_kind[encloses & (instances < LEAST)]
        if len(enclosing):
            longest = enclosing.iloc[int((enclosing["end_ns"] - enclosing["start_ns"]).to_numpy().argmax())]
            return words.format(longest["name"])
    return ""


def _is_between_others(profile: Profile, loop: Loop) -> bool:
    """Whether kernels that are in no repetition are launched just before the first and just after the last one."""
    work, kernels = launched_work(profile), profile.table("kernels")
    launch_ns = work.launch_ns[: len(kernels)]
    order = np.argsort(launch_ns, kind="stable")
    order = order[work.process[: len(kernels)][order] == loop.process]
    launch_ns, names = launch_ns[order], kernels["name"].cat.codes.to_numpy()[order]
    length = (loop.starts[-1] - loop.starts[0]) // (len(loop.starts) - 1)
    end = loop.starts[-1] + length
    inside = (launch_ns >= loop.starts[0]) & (launch_ns < end)
    is_other = ~np.isin(names, names[inside])
    spans = ((loop.starts[0] - length, loop.starts[0]), (end, end + length))
    return all((is_other & (launch_ns >= low) & (launch_ns < high)).any() for low, high in spans)
