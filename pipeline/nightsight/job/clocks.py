"""Puts the captures of a job on one clock.

A collective that all ranks wait for ends on all of them at once. So the ends of collectives give the offsets between
the clocks of captures, and the accuracy of comparisons between hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nightsight.events.communication import ONE_CLOCK_NS, shift_between
from nightsight.job.facts import Facts

# the most other ranks with which a rank's clock is compared until one matches
_MOST_TRIED: Final = 8


@dataclass(frozen=True)
class Clock:
    """The shift of a capture's times, and the spread of single collectives; None if unknown."""

    shift_ns: int
    spread_ns: int | None


def clocks_of(every: Sequence[Facts]) -> list[Clock]:
    """Return how to convert the times of each capture to those of the first, directly or through shared collectives."""
    said = [_said(every[0], facts) for facts in every]
    told = [
        facts.communication.assign(**{name: facts.communication[name] + said_ns for name in ("start_ns", "end_ns")})
        for facts, said_ns in zip(every, said, strict=True)
    ]
    clocks: list[Clock | None] = [Clock(0, None), *[None] * (len(every) - 1)]
    for place in range(1, len(every)):
        tried = 0
        # neighbours, and those of the first, are the likeliest to have a communicator in common
        for other in (0, *range(place - 1, 0, -1)):
            through = clocks[other]
            found = shift_between(told[other], told[place]) if through is not None else None
            if through is None or found is None:
                continue
            shift, spread = found
            # clocks that differ by little are one, as are those of ranks that share a GPU; the difference is reported
            is_one = abs(shift) < ONE_CLOCK_NS or _share_a_clock(every[other], every[place], shift)
            clock = Clock(through.shift_ns + (0 if is_one else shift), max(spread, abs(shift) * is_one))
            clocks[place] = min(clocks[place] or clock, clock, key=lambda one: one.spread_ns or 0)
            tried += 1
            # without known communicators, they may have none in common
            if spread < ONE_CLOCK_NS or tried == _MOST_TRIED:
                break
    return [
        replace(clock, shift_ns=clock.shift_ns + said_ns) if clock else _guessed(every[0].span, facts.span, said_ns)
        for clock, facts, said_ns in zip(clocks, every, said, strict=True)
    ]


def _share_a_clock(one: Facts, other: Facts, shift_ns: int) -> bool:
    """Whether both captures are from one machine with a known clock, which beats collectives of ranks in turns.

    Captures that need a shift of more than their length were not recorded at one time, whatever the clocks say.
    """
    is_near = abs(shift_ns) < min(facts.span[1] - facts.span[0] for facts in (one, other))
    return is_near and None not in (one.epoch_ns, other.epoch_ns) and bool(one.cards & other.cards)


def _said(first: Facts, other: Facts) -> int:
    """Return the offset from the times of a capture to those of the first, by the clocks of their machines."""
    return 0 if first.epoch_ns is None or other.epoch_ns is None else other.epoch_ns - first.epoch_ns


def _guessed(first: tuple[int, int], span: tuple[int, int], said_ns: int) -> Clock:
    """Trust the clocks of the machines if captures then overlap; else align their starts."""
    overlap = span[0] + said_ns < first[1] and first[0] < span[1] + said_ns
    return Clock(said_ns if overlap else first[0] - span[0], None)
