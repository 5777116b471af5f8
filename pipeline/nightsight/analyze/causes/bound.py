"""The least time that a step can take after a change: the work that its busiest stream or copy engine has left.

A replay of a few steps can predict less: a step is measured from the end of the first one to the end of the last, and a
change can delay the first, or move work of the last one to before that.
"""

from dataclasses import dataclass

import numpy as np

from nightsight.analyze.causes.model import BYPASS, ENGINE, NEVER, PASS, STREAM, TRANSFER, Model, is_bypassed
from nightsight.intervals import Flags, Floats, Ints
from nightsight.system.parallel import memoize


@dataclass(frozen=True, eq=False)
class _Work:
    """The operations of whole steps that follow another one on their stream, by stream and time, and their edges.

    `stream`, `transfer`: the edges of each operation, -1 for none. `first`: the first operation of each stream.
    `steps`: the number of whole steps, 1 if there are none. `engine_edge`, `engine_hop_ns`, `engine`: of copies of
    whole steps that can follow another one on a copy engine.

    `near`: the operations that can leave and those after them, as positions in the others. For each of `near`:
    `bypass`: the edge from what leads around the operation before it. `passed_before`: the PASS edge from that
    operation. `is_adjacent`: whether that is the one before it in `near`. `is_bypassed`: whether edges lead around it.
    """

    stream: Ints
    transfer: Ints
    hop_ns: Ints
    first: Ints
    steps: int
    engine_edge: Ints
    engine_hop_ns: Ints
    engine: Ints
    near: Ints
    bypass: Ints
    passed_before: Ints
    is_adjacent: Flags
    is_bypassed: Flags


def least_lengths(model: Model, lags: Floats) -> Floats:
    """Return a lower bound of the length of a step in ns, per column of `lags`."""
    work = _work_of_steps(model)
    added_ns = _without_hops(lags[work.stream], work.hop_ns) + np.maximum(_lags_of(lags, work.transfer), 0)
    added_ns[work.near] = _near_what_left(work, lags)
    streams = np.add.reduceat(added_ns, work.first, axis=0) if len(work.first) else added_ns
    engines = np.zeros((int(work.engine.max(initial=-1)) + 1, lags.shape[1]))
    np.add.at(engines, work.engine, _without_hops(lags[work.engine_edge], work.engine_hop_ns))
    return np.asarray(np.concatenate([streams, engines]).max(axis=0, initial=0) / work.steps)


def _without_hops(lags: Floats, hop_ns: Ints) -> Floats:
    """Return the lags without the time from one operation to the next, which varies.

    None is negative, though two changes can shorten an operation by more than it takes.
    """
    return np.maximum(lags - np.maximum(hop_ns, 0)[:, None], 0)


def _near_what_left(work: _Work, lags: Floats) -> Floats:
    """Return what each of `near` adds to the work of its stream, in ns, where others may have left.

    Each takes its time after what left before it, if that is hidden only in part, or around it if that takes longer.
    """
    stream, bypass = lags[work.stream[work.near]], _lags_of(lags, work.bypass)
    has_bypass = bypass > NEVER / 2
    own_ns = _without_hops(np.where(has_bypass, bypass, stream), work.hop_ns[work.near])
    own_ns += np.maximum(_lags_of(lags, work.transfer[work.near]), 0)
    is_cut = stream < NEVER / 2
    # what is hidden of the operation before it
    added_ns = np.where(is_cut, 0, own_ns + np.where(has_bypass, stream - bypass, 0))
    place, is_adjacent = np.arange(len(work.near))[:, None], work.is_adjacent[:, None]
    has_left_before = (work.passed_before >= 0)[:, None] & (_lags_of(lags, work.passed_before) < NEVER / 2)
    # the way around an operation begins with the first of those that left in a row
    continues = has_left_before & is_adjacent & work.is_bypassed[:, None]
    begin = np.maximum.accumulate(np.where(continues, 0, place), axis=0)
    begin = np.where(is_adjacent, np.roll(begin, 1, axis=0), place)
    sums, cuts = (np.cumsum(values, axis=0) for values in (added_ns, is_cut))
    through_ns = sums - np.take_along_axis(sums - added_ns, begin, axis=0)
    has_cut = cuts > np.take_along_axis(cuts - is_cut, begin, axis=0)
    longer_ns = np.where(has_bypass, own_ns - through_ns, 0)
    # work of the first of these steps may be hidden behind that of the step before
    is_around = has_bypass & (has_cut | ((longer_ns > 0) & is_adjacent))
    # what a longer way leads around does not count
    next_begin = np.minimum.accumulate(np.where(is_around, begin, len(place))[::-1], axis=0)[::-1]
    is_around[:-1] &= next_begin[1:] > place[:-1]
    return added_ns + np.where(is_around, longer_ns, 0)


def _lags_of(lags: Floats, edges: Ints) -> Floats:
    """Return the lags of these edges; that of no edge never binds."""
    return np.where((edges >= 0)[:, None], lags[edges], NEVER)


@memoize
def _work_of_steps(model: Model) -> _Work:
    work, edges = model.graph.work, model.edges
    step = np.full(len(work), -1, dtype=np.int64)
    for kind in (STREAM, TRANSFER):
        items = np.flatnonzero(model.has(kind))
        step[items] = model.step[model.target[edges[kind][items]]]
    is_whole, steps = np.ones(len(work), dtype=bool), 1
    if model.steps:
        low, high = int(model.step[model.step >= 0].min()), int(model.step.max())
        # work of the first and the last step can move out of the replayed time
        is_whole, steps = (step > low) & (step < high), high - low - 1
    items, copies = (np.flatnonzero(model.has(kind) & is_whole) for kind in (STREAM, ENGINE))
    bypassed = np.append(is_bypassed(work), False)
    near = np.flatnonzero(bypassed[items] | bypassed[items - 1])
    near_items = items[near]
    stream = np.cumsum(work.previous < 0)[items]
    return _Work(
        stream=edges[STREAM][items],
        transfer=edges[TRANSFER][items],
        hop_ns=work.hop_ns[items],
        first=np.flatnonzero(np.append(True, stream[1:] != stream[:-1])[: len(items)]),
        steps=steps,
        engine_edge=edges[ENGINE][copies],
        engine_hop_ns=work.hop_ns[copies],
        engine=work.device[copies] * 8 + work.direction[copies],
        near=near,
        bypass=edges[BYPASS][near_items],
        passed_before=edges[PASS][near_items - 1],
        is_adjacent=np.append(False, near_items[1:] - near_items[:-1] == 1)[: len(near)],
        is_bypassed=bypassed[near_items],
    )
