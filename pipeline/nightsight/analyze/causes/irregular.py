"""Host code of strongly varying length before the same work: a server that waits for requests looks like that.

Requests arrive at irregular times, while code takes about the same time in each step. Without samples of stacks, ranges
and calls of the operating system, a capture does not show which of both it is, so no gain is predicted.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from nightsight.analyze.causes.functions import waiting_spans
from nightsight.events.timeline import Timeline, function_names
from nightsight.intervals import Flags, Ints, covered, union
from nightsight.model.report import Finding
from nightsight.system.parallel import memoize
from nightsight.tables import positions
from nightsight.units import in_text

# shorter host code is part of a step
_LEAST_NS: Final = 500_000
# host code is irregular if the longer tenth of this many cases takes this many times as long as the shorter tenth, also
# among the longest with nearly all of the time: times between requests that do not depend on each other (an exponential
# distribution) differ by 22 and 4.5. Short cases can be other code before the same kernel
_FEWEST: Final = 12
_UNEVEN: Final = 6.0
_NEARLY_ALL: Final = 0.9
_UNEVEN_LONGEST: Final = 3.0
_SHORTER, _LONGER = 0.1, 0.9
# what is known to run in most of the time of host code: a range, or no wait
_MOSTLY: Final = 0.5
# the share of the window for which a finding is worth reading
_LEAST_SHARE: Final = 0.1


@memoize
def irregular_calls(timeline: Timeline) -> Ints:
    """Return the rows of api_calls in the window after host code of irregular length that the capture does not name."""
    table, window = timeline.profile.recorded("api_calls"), timeline.window
    process, start, end = (table[name].to_numpy() for name in ("process", "start_ns", "end_ns"))
    sampled = timeline.profile.recorded("python_samples")["process"].unique()
    code, parts = _work_codes(timeline), [np.empty(0, dtype=np.int64)]
    inside = np.flatnonzero((start >= window.start_ns) & (start < window.end_ns) & ~np.isin(process, sampled))
    for of_process in positions(process[inside]).values():
        rows = inside[of_process]
        # other threads of a process may work meanwhile, such as in the forward and the backward pass
        ordered = rows[np.argsort(start[rows], kind="stable")]
        since, call = np.maximum.accumulate(end[ordered])[:-1], ordered[1:]
        is_long = start[call] - since > _LEAST_NS
        since, call = since[is_long], call[is_long]
        is_unknown = _is_unknown(timeline, call, since)
        since, call = since[is_unknown], call[is_unknown]
        length = start[call] - since
        by_code = positions(code[call]).values()
        most = max(by_code, key=lambda alike: int(length[alike].sum()), default=length[:0])
        if _is_irregular(length[most]) and length[most].sum() > _MOSTLY * length.sum():
            parts.append(call[most])
    return np.sort(np.concatenate(parts))


def _is_irregular(length: Ints) -> bool:
    ordered = np.sort(length)
    longest = ordered[np.cumsum(ordered) > (1 - _NEARLY_ALL) * ordered.sum()]
    if len(longest) < _FEWEST:
        return False
    (short, long), (shorter, longer) = (np.quantile(times, (_SHORTER, _LONGER)) for times in (ordered, longest))
    return bool(long >= _UNEVEN * short and longer >= _UNEVEN_LONGEST * shorter)


def _work_codes(timeline: Timeline) -> Ints:
    """Return a number for what each call does: its function, and the kernel that it launches."""
    names, operations = function_names(timeline), timeline.operations
    function = np.asarray(names.codes, dtype=np.int64)
    kernel = np.full(len(function) + 1, -1, dtype=np.int64)
    kernels = np.flatnonzero(operations.of("kernels"))[::-1]
    kernel[operations.call[kernels]] = timeline.profile.recorded("kernels")["name"].cat.codes.to_numpy()[::-1]
    return np.asarray((kernel[:-1] + 1) * (len(names.categories) + 1) + function)


def _is_unknown(timeline: Timeline, call: Ints, since: Ints) -> Flags:
    """Return which host code before calls is mostly outside of ranges, and a wait if calls of the OS are recorded.

    since: when it began. All calls are of one process.
    """
    table, ranges, of_system = (timeline.profile.recorded(name) for name in ("api_calls", "ranges", "os_calls"))
    process, thread, start = (table[name].to_numpy()[call] for name in ("process", "thread", "start_ns"))
    own = ranges[ranges["process"].isin(process)]
    in_ranges = covered(union(own["start_ns"].to_numpy(), own["end_ns"].to_numpy()), since, start)
    is_unknown = np.asarray(in_ranges <= _MOSTLY * (start - since), dtype=bool)
    for key, rows in positions(thread).items():
        if (of_system["thread"] == key).any():
            waited_ns = covered(waiting_spans(timeline, key), since[rows], start[rows])
            is_unknown[rows] &= waited_ns > _MOSTLY * (start - since)[rows]
    return is_unknown


def irregular_host_code(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding if such host code takes much of the window."""
    table, window = timeline.profile.recorded("api_calls"), timeline.window
    rows = irregular_calls(timeline)
    process, start, end = (table[name].to_numpy() for name in ("process", "start_ns", "end_ns"))
    lengths, processes = [np.empty(0, dtype=np.int64)], positions(process[rows])
    for key, calls in processes.items():
        ends = np.sort(end[process == key])
        until = start[rows[calls]]
        lengths.append(until - ends[np.searchsorted(ends, until, side="right") - 1])
    length = np.concatenate(lengths)
    share = length.sum() / max(window.length_ns * len(processes), 1)
    if share < _LEAST_SHARE:
        return
    short, long = (in_text(float(each), "time_ns") for each in np.quantile(length, (_SHORTER, _LONGER)))
    yield Finding(
        "irregular_host_code",
        "info",
        f"For {in_text(100 * share, 'share_pct')} of the window, the program may wait for requests",
        f"Host code outside all ranges takes {short} to {long} before the same work ({len(length):,} times). Requests "
        "arrive like that; a step takes about the same time each time. The capture does not show what runs there, so "
        "no gain is predicted.",
        "If it is a server, it is idle, not slow: measure it under load. Otherwise, record Python's stacks (`--names "
        "auto`), or open ranges (NVTX) around that code.",
    )
