"""Assigns GPU operations, and idle time that CUDA calls cause, to the categories of *Where the time went*."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.launches import GPU_TABLES, launching_calls
from nightsight.events.names import api_names
from nightsight.intervals import Flags, Ints
from nightsight.model.report import Profile
from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    BUSY,
    CAPTURE,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    GRAPHS,
    IDLE,
    MODULE,
    OTHER_CALL,
    SYNC,
)
from nightsight.system.parallel import memoize

# patterns of function names, with or without version; the first match counts
_CALLS: Final = {
    MODULE: "^nvrtc|^nvJitLink|^(?:cu(?:da)?|hip)(?:Module(?!GetLoadingMode|Launch)|Library|Link|FuncLoad)"
    "|^cuKernelGetFunction",
    ALLOCATION: "^(?:cuda|hip)(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)|MemPool)"
    "|^cuMem(?!cpy|set|Prefetch|Advise|GetInfo|Range)|^urUSM(?:Host|Device|Shared)Alloc|^urUSMFree|^zeMem(?:Alloc|Free)",
    CAPTURE: "^(?:cu(?:da)?|hip)(?:Stream(?:Begin|End)Capture|GraphInstantiate)",
    BLOCKING_COPY: "^(?:cu(?:da)?|hip)Memcpy(?!.*Async)",
    SYNC: "^(?:cu(?:da)?|hip|ze)[A-Z].*Synchronize|^ur(?:QueueFinish|EventWait)",
}


Categories = np.ndarray[Any, np.dtype[np.int8]]


class Activity(NamedTuple):
    """The activity of a device from `edge[0]` to the last edge, constant from each edge (ns) to the next.

    `category`: the activity, as a position in (*BUSY, *IDLE); neighbors differ.
    """

    edge: Ints
    category: Categories


@memoize
def operation_categories(profile: Profile) -> Ints:
    """Return the category of every GPU operation, in the order of GPU_TABLES, as a position in BUSY."""
    kernels, copies, graphs = (profile.recorded(name) for name in GPU_TABLES)
    names, directions = kernels["name"].cat, copies["operation"].cat
    categories = (
        _positions_in_busy(COMPUTE, map(communicates, names.categories))[names.codes],
        _positions_in_busy(COPIES, directions.categories == "Peer-to-Peer")[directions.codes],
        np.full(len(graphs), BUSY.index(GRAPHS)),
    )
    return np.concatenate(categories)


def _positions_in_busy(category: str, with_peers: Iterable[bool]) -> Ints:
    places = [BUSY.index(COMMUNICATION) if is_peer else BUSY.index(category) for is_peer in with_peers]
    return np.array(places, dtype=np.int64)


@memoize
def call_causes(profile: Profile) -> Categories:
    """Return, for every row of api_calls, the category of the idle time that it explains, as a position in IDLE.

    Launches count as other calls here: the idle time that they explain depends on when their work begins.
    """
    names = profile.recorded("api_calls")["name"].cat
    functions = api_names(names.categories)
    causes = np.full(len(functions), IDLE.index(OTHER_CALL), dtype=np.int8)
    # in reverse, so that the first pattern that matches is written last
    for category, pattern in reversed(_CALLS.items()):
        causes[np.asarray(functions.str.contains(pattern), dtype=bool)] = IDLE.index(category)
    cause: Categories = causes[names.codes]
    cause[_pageable(profile)] = IDLE.index(BLOCKING_COPY)
    return cause


def _pageable(profile: Profile) -> Ints:
    """Return the calls that copy from or to pageable memory: they block even if their name says Async."""
    copies = profile.recorded("memory_ops")
    before = len(profile.recorded("kernels"))
    call: Ints = launching_calls(profile)[before : before + len(copies)][is_pageable(copies)]
    return call[call >= 0]


def is_pageable(operations: pd.DataFrame) -> Flags:
    """Return which rows of memory_ops copy from or to pageable host memory."""
    flags: Flags = ((operations["source_kind"] == "Pageable") | (operations["target_kind"] == "Pageable")).to_numpy()
    return flags
