"""Puts the captures of a job on one clock.

A collective that all ranks wait for ends on all of them at once. So the ends of collectives give the offsets between
the clocks of captures, and the accuracy of comparisons between hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nightsight.events.communication import ONE_CLOCK_NS, shift_between
from nightsight.job.facts import RankFacts

# the most captures with which a clock is compared until one matches
_MOST_TRIED: Final = 8


@dataclass(frozen=True)
class CaptureClock:
    """The shift of a capture's times, and the spread of single collectives; None if unknown."""

    shift_ns: int
    spread_ns: int | None


def clocks_of(captures: Sequence[RankFacts]) -> list[CaptureClock]:
    """Return how to convert the times of each capture to those of the first, directly or through shared collectives."""
    # the offsets between the clocks of the machines
    offsets_ns = [_offset_ns(captures[0], facts) for facts in captures]
    communication = [
        facts.communication.assign(**{name: facts.communication[name] + offset_ns for name in ("start_ns", "end_ns")})
        for facts, offset_ns in zip(captures, offsets_ns, strict=True)
    ]
    clocks: list[CaptureClock | None] = [CaptureClock(0, None), *[None] * (len(captures) - 1)]
    for place in range(1, len(captures)):
        tried = 0
        # the first capture and neighbors are the likeliest to have a communicator in common
        for reference in (0, *range(place - 1, 0, -1)):
            through = clocks[reference]
            difference = shift_between(communication[reference], communication[place]) if through is not None else None
            if through is None or difference is None:
                continue
            shift, spread = difference
            # clocks that differ by little are one, as are those of ranks that share a GPU; the difference is reported
            is_one = abs(shift) < ONE_CLOCK_NS or _share_a_clock(captures[reference], captures[place], shift)
            clock = CaptureClock(through.shift_ns + (0 if is_one else shift), max(spread, abs(shift) * is_one))
            clocks[place] = min(clocks[place] or clock, clock, key=lambda clock: clock.spread_ns or 0)
            tried += 1
            # without known communicators, they may have none in common
            if spread < ONE_CLOCK_NS or tried == _MOST_TRIED:
                break
    return [
        replace(clock, shift_ns=clock.shift_ns + offset_ns)
        if clock
        else _without_collectives(captures[0].span, facts.span, offset_ns)
        for clock, facts, offset_ns in zip(clocks, captures, offsets_ns, strict=True)
    ]


def _offset_ns(first: RankFacts, facts: RankFacts) -> int:
    """Return the offset from the times of a capture to those of the first, by the clocks of their machines."""
    return 0 if first.epoch_ns is None or facts.epoch_ns is None else facts.epoch_ns - first.epoch_ns


def _share_a_clock(reference: RankFacts, facts: RankFacts, shift_ns: int) -> bool:
    """Whether both captures are from one machine with a known clock, which beats collectives of ranks in turns.

    Captures that need a shift of more than their length were not recorded at the same time, whatever the clocks say.
    """
    is_near = abs(shift_ns) < min(end - start for start, end in (reference.span, facts.span))
    return is_near and None not in (reference.epoch_ns, facts.epoch_ns) and bool(reference.gpu_ids & facts.gpu_ids)


def _without_collectives(first: tuple[int, int], span: tuple[int, int], offset_ns: int) -> CaptureClock:
    """Trust the clocks of the machines if captures then overlap; else align their starts."""
    do_overlap = span[0] + offset_ns < first[1] and first[0] < span[1] + offset_ns
    return CaptureClock(offset_ns if do_overlap else first[0] - span[0], None)
