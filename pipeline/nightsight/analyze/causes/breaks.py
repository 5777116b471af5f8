"""Which graph breaks of torch.compile, or CUDA graphs that it skipped, lie behind a cause.

PyTorch's log says where a compiled function breaks, but not when it runs. Samples of Python's stack show whether the
calls of a cause are made in this function; without samples, kernels that torch.compile generated around them do.
"""

import re
from typing import Final

import numpy as np

from nightsight.analyze.causes.model import BEGIN, CALL
from nightsight.analyze.causes.scene import Edit, Scene
from nightsight.events.compiled import INDUCTOR, Obstacle, is_sole_function, obstacles, uses_graphs
from nightsight.intervals import Flags, Ints, union
from nightsight.results.rules import Rule
from nightsight.system.parallel import memoize
from nightsight.tables import are_named, positions

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# share of the time, or of the samples, of a cause that is in compiled code (stored: 0.25 to 0.75)
_MOSTLY: Final = 0.5
# obstacles that a finding names
_MOST: Final = 2
# without samples, longer host code between compiled functions is not assumed to be at a graph break: Dynamo resumes
# sooner (stored: 0.5 to 2 ms)
_RESUMES_NS: Final = 1_000_000


def obstacles_at(scene: Scene, edit: Edit, rule: Rule) -> tuple[Obstacle, ...]:
    """Return the obstacles in the host code and calls that an edit shortens, at most two; none if they lie elsewhere.

    Launches are many because CUDA graphs were skipped; a graph break makes host code, and some make a wait.
    """
    model, calls = scene.model, scene.graph.calls
    edges = np.concatenate([change.edges for change in edit] or [np.empty(0, dtype=np.int64)])
    calling = np.unique(model.item[edges[np.isin(model.kind[edges], (BEGIN, CALL))]])
    candidates = [each for each in obstacles(scene.timeline) if each.skips_graphs == rule.is_graph]
    candidates = [
        each
        for each in candidates
        if (each.waits or not rule.is_wait) and (calls.process[calling] == each.process).any()
    ]
    if not candidates or not len(calling):
        return ()
    # launches themselves show what torch.compile made
    if not rule.is_graph and (stacks := _stacks_in(scene, calling)):
        return _in_stacks(stacks, candidates)
    length = scene.gap[calling] + (calls.end - calls.start)[calling]
    is_compiled = np.logical_or(*scene.around(_launches_compiled(scene)))[calling]
    if not (rule.is_wait or rule.is_graph):
        is_compiled &= scene.gap[calling] < _RESUMES_NS
    # of several functions, it could be another one
    candidates = [each for each in candidates if is_sole_function(scene.timeline, each)]
    return tuple(candidates[:_MOST]) if length[is_compiled].sum() > _MOSTLY * length.sum() else ()


def _stacks_in(scene: Scene, calling: Ints) -> dict[str, int]:
    """Return how often each stack of Python was sampled in these calls and in the host code before them."""
    calls, samples = scene.graph.calls, scene.timeline.profile.recorded("python_samples")
    times, stack = samples["start_ns"].to_numpy(), samples["stack"].cat
    rows, counts = positions(samples["thread"].to_numpy()), np.zeros(len(stack.categories) + 1, dtype=np.int64)
    for thread, of_thread in positions(calls.thread[calling]).items():
        start, end = union(scene.gap_start[calling[of_thread]], calls.end[calling[of_thread]])
        sampled = rows.get(thread, of_thread[:0])
        place = np.searchsorted(start, times[sampled], side="right") - 1
        is_inside = (place >= 0) & (times[sampled] < end[place])
        counts += np.bincount(stack.codes.to_numpy()[sampled[is_inside]], minlength=len(counts))
    sampled_stacks = np.flatnonzero(counts[:-1])
    return dict(zip(stack.categories[sampled_stacks].astype("str"), counts[sampled_stacks].tolist(), strict=True))


def _in_stacks(stacks: dict[str, int], candidates: list[Obstacle]) -> tuple[Obstacle, ...]:
    """Return the obstacles whose function is in most of the sampled stacks; those whose very line is, come first.

    None if no line of them is: a file has several functions named `forward`.
    """
    every = "\n".join(stacks)

    def share(pattern: str) -> float:
        return sum(count for stack, count in stacks.items() if re.search(pattern, stack)) / sum(stacks.values())

    likely = [each for each in candidates if each.function in every]
    inside = [each for each in likely if share(_frames_of(each)) > _MOSTLY]
    at_line = {each: share(_frame_at(each)) for each in inside}
    inside = sorted(inside, key=lambda each: -at_line[each])[:_MOST]
    return tuple(inside) if inside and at_line[inside[0]] > 0 else ()


def _frames_of(obstacle: Obstacle) -> str:
    """Return the pattern of frames of a compiled function, and of what Dynamo makes of it after a graph break."""
    name, file = re.escape(obstacle.function), re.escape(obstacle.file)
    return rf"(?<!\w)(?:{name}|torch_dynamo_resume_in_{name}_at_\d+) \((?:{file}:|line )"


def _frame_at(obstacle: Obstacle) -> str:
    """Return the pattern of frames at the line of an obstacle, and of the code after it; of all if it is unknown."""
    if not obstacle.place:
        return ""
    file, _, line = obstacle.place.rpartition(":")
    return rf"\((?:{re.escape(file)}:|line ){line}\)|torch_dynamo_resume_in_{re.escape(obstacle.function)}_at_{line} \("


@memoize
def _launches_compiled(scene: Scene) -> Flags:
    """Return the calls that launch a kernel that torch.compile generated, or a CUDA graph that it recorded."""
    calls, work = scene.graph.calls, scene.graph.work
    kernels = scene.timeline.profile.recorded("kernels")
    is_generated = np.append(are_named(kernels["name"], INDUCTOR), False)
    flags = calls.named("GraphLaunch") & np.isin(calls.process, uses_graphs(scene.timeline))
    launched = np.flatnonzero((work.call >= 0) & (work.operation < len(kernels)))
    flags[work.call[launched[is_generated[work.operation[launched]]]]] = True
    return flags
