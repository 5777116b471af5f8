"""Doubts about the report of a job: missing ranks, no common clock, different profilers."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
import pandas as pd

from nightsight.job.facts import RankFacts
from nightsight.job.ranks import RankedCaptures
from nightsight.model.report import Finding
from nightsight.texts import some_of
from nightsight.units import counted, format_ranks, format_value

# with a larger spread, times of ranks cannot be compared
_MOST_SPREAD_NS: Final = 1_000_000
_MOST_NAMES: Final = 8
# a capture that ends earlier than others by this share of its length, and by this time, did not end with them
_EARLY: Final = 0.1
_EARLY_NS: Final = 50_000_000
# reasons why collectives do not end together
_IN_TURNS: Final = ". Ranks that share a GPU take turns on it, so one sees the end before the others."
_NOT_TOGETHER: Final = (
    ", although a collective ends on all ranks together. The captures may come from different runs, or lack some "
    "collectives."
)


def shared_findings(ranked: RankedCaptures) -> Iterator[Finding]:
    """Yield each finding once, even if its numbers differ by rank; one that not all ranks share names its ranks."""
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for name, facts in zip(ranked.names, ranked.facts, strict=True):
        for finding in facts.findings:
            alike.setdefault((finding.rule, re.sub(r"[\d.,]+", "#", finding.title)), []).append((name, finding))
    for findings in alike.values():
        _, first = findings[0]
        names = list(dict.fromkeys(name for name, _ in findings))
        differ = "" if all(finding == first for _, finding in findings) else ", with different numbers"
        detail = f"{some_of(names, _MOST_NAMES)}{differ}: {first.detail}"
        yield first if len(names) == len(ranked.facts) and not differ else replace(first, detail=detail)


def doubts_of(ranked: RankedCaptures) -> Iterator[Finding]:
    """Yield doubts about the report of a job: missing ranks, no common clock, different profilers."""
    yield from _missing_ranks(ranked)
    yield from _unsure_clocks(ranked)
    yield from _early_ends(ranked)
    environments = (facts.environment for facts in ranked.facts)
    versions = Counter(f"{tool.collector} {tool.collector_version}".strip() for tool in environments)
    if len(versions) > 1:
        yield Finding(
            "different_profilers",
            "info",
            "The ranks were captured with different profilers",
            f"{', '.join(f'{count} with {name}' for name, count in versions.items())}. CPU times may differ for that "
            "reason.",
        )


def _missing_ranks(ranked: RankedCaptures) -> Iterator[Finding]:
    """Yield findings if ranks have no capture, or if some captures have no communicators although others do."""
    has_groups = [bool((facts.communication["group"] != "").any()) for facts in ranked.facts]
    silent = [name for name, has in zip(ranked.names, has_groups, strict=True) if not has and any(has_groups)]
    ranks = set(ranked.ranks["rank"].tolist())
    sizes = pd.concat([ranked.ranks["world_size"], *(facts.table("ranks")["world_size"] for facts in ranked.facts)])
    # a communicator may cover a part of the job, so more ranks may be missing than are known
    size = max(int(sizes.max()) if sizes.notna().any() else 0, max(ranks) + 1)
    if count := size - len(ranks):
        missing = [*islice((rank for rank in range(size) if rank not in ranks), _MOST_NAMES)]
        yield Finding(
            "missing_ranks",
            "warning",
            f"{count:,} of {size:,} ranks {'is' if count == 1 else 'are'} missing",
            f"{format_ranks(missing, count)} {'has' if count == 1 else 'have'} no capture here. Stragglers are found "
            "only among the captured ranks.",
            "Pass the captures of all ranks.",
        )
    elif (count := _missing_members(ranked.facts) - len(silent)) > 0:
        yield Finding(
            "missing_ranks",
            "warning",
            f"At least {counted(count, 'rank is', 'ranks are')} missing",
            "Communicators have more ranks than there are captures. Stragglers are found only among the captured "
            "ranks.",
            "Pass the captures of all ranks.",
        )
    if silent:
        yield Finding(
            "untold_communicators",
            "warning",
            f"{counted(len(silent), 'capture has', 'captures have')} no communicators",
            f"{', '.join(silent[:_MOST_NAMES])}: no communication kernels, or no NCCL payloads. Collectives of these "
            "ranks are matched with others by order and time, or not at all.",
            "Record CUDA and NVTX on all ranks, and export with --include-json=true.",
        )


def _missing_members(captures: Sequence[RankFacts]) -> int:
    """Return how many ranks of a communicator have no capture, for the communicator that lacks the most."""
    members = pd.concat(
        [
            facts.communication[["group", "group_size", "device"]].assign(capture=number)
            for number, facts in enumerate(captures)
        ]
    )
    groups = members[members["group"] != ""].dropna().drop_duplicates().groupby("group")["group_size"]
    return int((groups.max() - groups.size()).max()) if len(groups) else 0


def _unsure_clocks(ranked: RankedCaptures) -> Iterator[Finding]:
    """Yield findings if times of ranks cannot be compared, or not exactly."""
    clocks = list(zip(ranked.names, ranked.clocks, strict=True))
    unknown = [name for name, clock in clocks[1:] if clock.spread_ns is None]
    if unknown:
        yield Finding(
            "unknown_clock",
            "warning",
            "Some ranks share no collective with the others",
            f"{', '.join(unknown[:_MOST_NAMES])}: their captures may come from different runs. Their times follow the "
            "clocks of their machines, or are shifted to a common start, and do not show who waits for whom.",
            "Pass captures of one run.",
        )
    name, spread = max(((name, clock.spread_ns or 0) for name, clock in clocks), key=lambda pair: pair[1])
    if spread > _MOST_SPREAD_NS:
        gpu_ids = [gpu_id for facts in ranked.facts for gpu_id in facts.gpu_ids]
        are_shared = len(set(gpu_ids)) < len(gpu_ids)
        yield Finding(
            "loose_clock",
            "warning",
            "The clocks of the ranks do not match",
            f"{name}: collectives end up to {format_value(spread, 'spread_ns')} before or after those of the other "
            f"ranks{_IN_TURNS if are_shared else _NOT_TOGETHER}",
            "" if are_shared else "Pass captures of one run that all start at the same step.",
        )


def _early_ends(ranked: RankedCaptures) -> Iterator[Finding]:
    """Yield a finding if captures end long before most others do, on one clock."""
    captures = [
        (name, facts.span[1] - facts.span[0], facts.span[1] + clock.shift_ns)
        for place, (name, facts, clock) in enumerate(zip(ranked.names, ranked.facts, ranked.clocks, strict=True))
        # the clock of the first capture is the common one
        if not place or clock.spread_ns is not None
    ]
    if len(captures) < 2:
        return
    names, lengths, ends = zip(*captures, strict=True)
    # of two, either may be the right one
    usual = int(np.median(ends)) if len(captures) > 2 else max(ends)
    least = max(_EARLY * float(np.median(lengths)), _EARLY_NS)
    early = [(usual - end, name) for name, end in zip(names, ends, strict=True) if usual - end > least]
    if early:
        earliest = format_value(max(early)[0], "length_ns")
        yield Finding(
            "ended_early",
            "warning",
            f"{counted(len(early), 'capture ends', 'captures end')} before the others",
            f"{', '.join(name for _, name in early[:_MOST_NAMES])}: up to {earliest} earlier. The program died or was "
            "stopped there, or the recording stopped. Later collectives involve only the others.",
            "Check how the program ended. Record all ranks for the same steps.",
        )
