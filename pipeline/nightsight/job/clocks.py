"""Puts the captures of a job on one clock.

What ends on one rank ends on the others, if all wait for it. So the ends of collectives tell how far apart the clocks
of captures are, and how well the ranks of different hosts can be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nightsight.events.communication import ONE_CLOCK_NS, shift_between
from nightsight.job.facts import Facts

# with how many others a rank's clock is compared until one fits
_MOST_TRIED: Final = 8


@dataclass(frozen=True)
class Clock:
    """By how much times of a capture are moved, and how far single collectives are off; None if nothing told."""

    shift_ns: int
    spread_ns: int | None


def clocks_of(every: Sequence[Facts]) -> list[Clock]:
    """Return how the times of each capture become those of the first, or of one that has a collective in common."""
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
            # whatever differs by little is one clock, as are those of ranks that share a GPU; by how little, is said
            is_one = abs(shift) < ONE_CLOCK_NS or _share_a_clock(every[other], every[place], shift)
            clock = Clock(through.shift_ns + (0 if is_one else shift), max(spread, abs(shift) * is_one))
            clocks[place] = min(clocks[place] or clock, clock, key=lambda one: one.spread_ns or 0)
            tried += 1
            # if the capture tells no communicators, they may have none in common
            if spread < ONE_CLOCK_NS or tried == _MOST_TRIED:
                break
    return [
        replace(clock, shift_ns=clock.shift_ns + said_ns) if clock else _guessed(every[0].span, facts.span, said_ns)
        for clock, facts, said_ns in zip(clocks, every, said, strict=True)
    ]


def _share_a_clock(one: Facts, other: Facts, shift_ns: int) -> bool:
    """Whether clocks of machines are known, and of one: then they tell more than collectives of ranks in turns.

    What would have to be moved by more than a capture is long was not recorded at one time, whatever clocks say.
    """
    is_near = abs(shift_ns) < min(facts.span[1] - facts.span[0] for facts in (one, other))
    return is_near and None not in (one.epoch_ns, other.epoch_ns) and bool(one.cards & other.cards)


def _said(first: Facts, other: Facts) -> int:
    """Return what is added to the times of a capture for those of the first, by the clocks of their machines."""
    return 0 if first.epoch_ns is None or other.epoch_ns is None else other.epoch_ns - first.epoch_ns


def _guessed(first: tuple[int, int], span: tuple[int, int], said_ns: int) -> Clock:
    """Believe the clocks of the machines where captures overlap then; else let them begin together."""
    overlap = span[0] + said_ns < first[1] and first[0] < span[1] + said_ns
    return Clock(said_ns if overlap else first[0] - span[0], None)
