"""Doubts about the report of a job: missing ranks, no common clock, different profilers."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
import pandas as pd

from nightsight.job.clocks import Clock
from nightsight.job.facts import Facts
from nightsight.model.report import Finding
from nightsight.units import format_ranks, format_value

# above this, times of ranks cannot be compared
_MOST_SPREAD_NS: Final = 1_000_000
_ALL_NAMED: Final = 8
# share of a capture's length, and in ns: a capture that ends earlier than others by more did not end with them
_EARLY: Final = 0.1
_EARLY_NS: Final = 50_000_000
# why collectives do not end together
_IN_TURNS: Final = ". Ranks that share a GPU take turns on it, so one sees the end before the others."
_NOT_TOGETHER: Final = (
    ", although a collective ends on all ranks together. The captures may come from different runs, or lack some "
    "collectives."
)


def shared_findings(told: Sequence[tuple[str, Sequence[Finding]]]) -> Iterator[Finding]:
    """Yield each finding once, even if its numbers differ by rank; one that not all ranks share names its ranks."""
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for names, findings in told:
        for finding in findings:
            alike.setdefault((finding.rule, re.sub(r"[\d.,]+", "#", finding.title)), []).append((names, finding))
    for found in alike.values():
        _, first = found[0]
        whose = list(dict.fromkeys(names for names, _ in found))
        same = "" if all(finding == first for _, finding in found) else ", with different numbers"
        more = f" and {len(whose) - _ALL_NAMED:,} more" * (len(whose) > _ALL_NAMED)
        detail = f"{', '.join(whose[:_ALL_NAMED])}{more}{same}: {first.detail}"
        yield first if len(whose) == len(told) and not same else replace(first, detail=detail)


def doubts_of(ranks: pd.DataFrame, told: Sequence[tuple[str, Facts, Clock]]) -> Iterator[Finding]:
    """Yield doubts about the report of a job: missing ranks, no common clock, different profilers."""
    every = [facts for _, facts, _ in told]
    # captures without communicators, although others have them
    silent = [names for names, facts, _ in told if not (facts.communication["group"] != "").any()]
    silent = silent if len(silent) < len(told) else []
    known = set(ranks["rank"].tolist())
    sizes = pd.concat([ranks["world_size"], *(facts.table("ranks")["world_size"] for _, facts, _ in told)]).dropna()
    # a communicator may cover a part of the job, so more ranks may be missing than are known
    size = max(int(sizes.max()) if len(sizes) else 0, max(known) + 1)
    if count := size - len(known):
        lacking = [*islice((rank for rank in range(size) if rank not in known), _ALL_NAMED)]
        yield Finding(
            "missing_ranks",
            "warning",
            f"{count:,} of {size:,} ranks {'is' if count == 1 else 'are'} missing",
            f"{format_ranks(lacking, count)} {'has' if count == 1 else 'have'} no capture here. Stragglers are found "
            "only among the captured ranks.",
            "Pass the captures of all ranks.",
        )
    elif (count := _lacking(every) - len(silent)) > 0:
        yield Finding(
            "missing_ranks",
            "warning",
            f"At least {count:,} {'rank is' if count == 1 else 'ranks are'} missing",
            "Communicators have more ranks than there are captures. Stragglers are found only among the captured "
            "ranks.",
            "Pass the captures of all ranks.",
        )
    if silent:
        yield Finding(
            "untold_communicators",
            "warning",
            f"{len(silent):,} {'capture has' if len(silent) == 1 else 'captures have'} no communicators",
            f"{', '.join(silent[:_ALL_NAMED])}: no communication kernels, or no NCCL payloads. Collectives of these "
            "ranks are matched with others by order and time, or not at all.",
            "Record CUDA and NVTX on all ranks, and export with --include-json=true.",
        )
    unknown = [names for names, _, clock in told[1:] if clock.spread_ns is None]
    if unknown:
        yield Finding(
            "unknown_clock",
            "warning",
            "Some ranks share no collective with the others",
            f"{', '.join(unknown[:_ALL_NAMED])}: their captures may come from different runs. Their times follow the "
            "clocks of their machines, or are shifted to a common start, and do not show who waits for whom.",
            "Pass captures of one run.",
        )
    loose = [(names, clock.spread_ns) for names, _, clock in told if (clock.spread_ns or 0) > _MOST_SPREAD_NS]
    if loose:
        whose, spread = max(loose, key=lambda one: one[1] or 0)
        cards = [card for _, facts, _ in told for card in facts.cards]
        are_shared = len(set(cards)) < len(cards)
        yield Finding(
            "loose_clock",
            "warning",
            "The clocks of the ranks do not match",
            f"{whose}: collectives end up to {format_value(spread or 0, 'spread_ns')} before or after those of the "
            f"other ranks{_IN_TURNS if are_shared else _NOT_TOGETHER}",
            "" if are_shared else "Pass captures of one run that all start at the same step.",
        )
    yield from _ended_early(told)
    versions = Counter(f"{one.environment.collector} {one.environment.collector_version}".strip() for _, one, _ in told)
    if len(versions) > 1:
        yield Finding(
            "different_profilers",
            "info",
            "The ranks were captured with different profilers",
            f"{', '.join(f'{count} with {name}' for name, count in versions.items())}. CPU times may differ for that "
            "reason.",
        )


def _lacking(every: Sequence[Facts]) -> int:
    """Return how many ranks have no capture, for the communicator that lacks most."""
    members = pd.concat(
        [facts.communication[["group", "group_size", "device"]].assign(part=n) for n, facts in enumerate(every)]
    )
    known = members[members["group"] != ""].dropna().drop_duplicates().groupby("group")["group_size"]
    return int((known.max() - known.size()).max()) if len(known) else 0


def _ended_early(told: Sequence[tuple[str, Facts, Clock]]) -> Iterator[Finding]:
    """Yield a finding if captures end long before most others do, on one clock."""
    known = [
        (names, facts, clock)
        for place, (names, facts, clock) in enumerate(told)
        if not place or clock.spread_ns is not None
    ]
    if len(known) < 2:
        return
    ends = np.array([facts.span[1] + clock.shift_ns for _, facts, clock in known])
    lengths = [facts.span[1] - facts.span[0] for _, facts, _ in known]
    # of two, either may be the right one
    usual = int(np.median(ends)) if len(known) > 2 else int(ends.max())
    least = max(_EARLY * float(np.median(lengths)), _EARLY_NS)
    early = [(usual - int(end), names) for (names, *_), end in zip(known, ends, strict=True) if usual - end > least]
    if early:
        most = format_value(max(early)[0], "length_ns")
        named = ", ".join(names for _, names in early[:_ALL_NAMED])
        yield Finding(
            "ended_early",
            "warning",
            f"{len(early):,} {'capture ends' if len(early) == 1 else 'captures end'} before the others",
            f"{named}: up to {most} earlier. The program died or was stopped there, or the recording stopped. Later "
            "collectives involve only the others.",
            "Check how the program ended. Record all ranks for the same steps.",
        )
