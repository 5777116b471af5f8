"""When compilers run kernels only to choose among them."""

from typing import Final

import numpy as np

from nightsight.events.launches import launching_calls
from nightsight.intervals import Flags, Ints, Spans, touches, union
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import are_named, positions

# what XLA runs before a kernel that it times, and after it
_OF_XLA: Final = r"RedzoneAllocatorKernel|\bDelayKernel|xla_fp_comparison"
# its compiler prepares a kernel for at most this long (1 ms in `jax_sentences` of tests/data/real)
_NEAR_NS: Final = 20_000_000
_ALWAYS: Final = (np.array([np.iinfo(np.int64).min]), np.array([np.iinfo(np.int64).max]))


def is_xla_tuning(profile: Profile, thread: Ints, start_ns: Ints) -> Flags:
    """Return which calls, by their thread and start, XLA makes to time kernels while it compiles.

    All calls of a thread that launches nothing else are such calls.
    """
    tunes = np.zeros(len(thread), dtype=bool)
    for key, spans in _tuning(profile).items():
        rows = np.flatnonzero(thread == key)
        tunes[rows] = touches(spans, start_ns[rows], start_ns[rows] + 1)
    return tunes


@memoize
def _tuning(profile: Profile) -> dict[int, Spans]:
    """Return when each thread of XLA's compiler times kernels.

    It fills memory around the results of a kernel, checks that the kernel does not change it, and compares results.
    """
    kernels = profile.recorded("kernels")
    rows = np.flatnonzero(are_named(kernels["name"], _OF_XLA)) if len(kernels) else np.empty(0, dtype=np.int64)
    if not len(rows):
        return {}
    call, calls = launching_calls(profile), profile.recorded("api_calls")
    start, thread = (calls[name].to_numpy() for name in ("start_ns", "thread"))
    tuning, launching = call[rows[call[rows] >= 0]], np.unique(call[call >= 0])
    found = {}
    for key, of_thread in positions(thread[tuning]).items():
        launch_ns = start[tuning[of_thread]]
        spans = union(launch_ns - _NEAR_NS, launch_ns + _NEAR_NS)
        launches = start[launching[thread[launching] == key]]
        found[key] = _ALWAYS if touches(spans, launches, launches + 1).all() else spans
    return found
