"""Makes one profile of those of the ranks of a job: which rank is which, on one clock, with numbers that do not clash.

What ends on one rank ends on the others, if all wait for it. So the ends of collectives tell how far apart the clocks
of captures are, and how well the ranks of different hosts can be compared.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from nightsight.errors import UsageError
from nightsight.events.communication import ONE_CLOCK_NS, communicating, communication, shift_between
from nightsight.events.launches import GPU_TABLES, gpus
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.model import Environment, Finding, Profile
from nightsight.tables import NULLABLE, TEXT, UNPROFILED, conform, empty
from nightsight.units import format_value

_RANK: Final = re.compile(r"(?i)(?:^|[^a-z])r(?:ank)?[-_. ]?(\d{1,6})(?![0-9a-z])")
_IDS: Final = ("process", "thread", "end_thread", "forward_thread")
_TIMES: Final = ("start_ns", "end_ns", "time_ns", "domain_start_ns")
# tables whose `device` is the number of a GPU on the machine; the CPU has -1
_OF_MACHINE: Final = ("devices", "memory_usage", "gpu_metrics", "gpu_page_faults")
# above that, times of ranks cannot be compared
_MOST_SPREAD_NS: Final = 1_000_000
_BITS: Final = 32
_ALL_NAMED: Final = 8


@dataclass(frozen=True, eq=False)
class Part:
    """The capture of one rank or more, and the name of its file."""

    name: str
    profile: Profile


def is_of_job(part: Part) -> bool:
    """Whether a capture tells which rank it is of, or its program communicates."""
    tables = part.profile.tables
    is_told = any(len(tables.get(name, ())) for name in ("ranks", "launched_as", "collectives"))
    return is_told or bool(communicating(Timeline(part.profile)).any())


def title_of(names: Sequence[str]) -> str:
    """Return what the names of the ranks' files have in common: `train` for `train_rank0` and `train_rank1`."""
    bare = {_RANK.sub("", name) for name in names}
    return next(iter(bare)).strip("-_. ") or "job" if len(bare) == 1 else "job"


def joined(parts: Sequence[Part]) -> Profile:
    """Return one profile of all ranks; UsageError if they cannot be of one job.

    GPUs get the numbers of their ranks, where each rank has one.
    """
    ranks = _identified(parts)
    _refuse_strangers(ranks, parts)
    of_part = ranks.groupby("part")["rank"].agg(list)
    order = sorted(range(len(parts)), key=lambda number: min(of_part[number]))
    clocks = _clocks([parts[number].profile for number in order])
    by_part = dict(zip(order, clocks, strict=True))
    devices = _devices(ranks)
    moved = [
        _moved(parts[number].profile, place, devices.get(number, {}), by_part[number].shift_ns)
        for place, number in enumerate(order)
    ]
    tables = dict(_concatenated([profile.tables for profile in moved]))
    tables["ranks"] = _table(ranks, parts, order, by_part)
    names = {number: _of_ranks(of_part[number]) for number in order}
    findings = [*_shared([(names[number], parts[number].profile.findings) for number in order])]
    findings += _doubts(ranks, [(names[number], parts[number].profile, by_part[number]) for number in order])
    missing = {name: why for profile in moved for name, why in profile.missing.items() if name not in tables}
    environment = _environment([parts[number].profile.environment for number in order], tables)
    return Profile(tables, missing, environment, tuple(findings))


# -- which rank -------------------------------------------------------------------------------------------------------


def _identified(parts: Sequence[Part]) -> pd.DataFrame:
    """Return the ranks of all captures, with columns part, process, gpu (-1 if unknown), rank, world_size and source.

    What captures tell counts, else what the names of their files do, else their order.
    """
    found = [_told(part) for part in parts]
    named = [_RANK.search(part.name) for part in parts]
    made, following = [], 0
    for number, (ranks, name) in enumerate(zip(found, named, strict=True)):
        if ranks["rank"].notna().all():
            numbers, source = ranks["rank"], ranks["source"]
        elif name and len(ranks) == 1:
            numbers, source = pd.Series([int(name[1])]), pd.Series(["file name"])
        else:
            numbers = pd.Series(range(following, following + len(ranks)))
            source = pd.Series(["order of the files"] * len(ranks))
        made.append(ranks.assign(part=number, rank=numbers.astype("int64"), source=source))
        following += len(ranks)
    return pd.concat(made, ignore_index=True)


def _told(part: Part) -> pd.DataFrame:
    """Return the processes of a capture that used GPUs, with the ranks that it tells, or else its launcher did."""
    tables = part.profile.tables
    used = [
        pd.DataFrame({"process": tables[name]["process"], "gpu": gpus(tables[name])})
        for name in GPU_TABLES
        if name in tables
    ]
    nothing = pd.DataFrame({"process": [], "gpu": []})
    found = pd.concat([nothing, *used]).dropna().drop_duplicates().astype("int64")
    if len(told := tables.get("ranks", empty("ranks"))):
        alone = found[~found["process"].duplicated(keep=False)]
        ranks = told.merge(alone, on="process", how="left").fillna({"gpu": -1})
        return ranks[["process", "gpu", "rank", "world_size", "source"]]
    if not len(found):
        # on CPUs alone, those that call collectives
        called = tables.get("collectives", empty("collectives"))["process"].unique().tolist()
        found = pd.DataFrame({"process": called or [-1], "gpu": -1})
    found = found.sort_values(["gpu", "process"], ignore_index=True)
    launched = tables.get("launched_as", empty("launched_as"))
    if len(launched) == len(found) == 1:
        # of a launcher that was started in turn, the variables say which node it is
        return found.assign(**{name: launched[name].array for name in ("rank", "world_size", "source")})
    unknown = pd.array([None] * len(found), dtype=NULLABLE)
    return found.assign(rank=unknown, world_size=unknown, source="")


def _refuse_strangers(ranks: pd.DataFrame, parts: Sequence[Part]) -> None:
    """Raise UsageError if a rank is there twice, or ranks say that they are of jobs of different sizes."""
    sizes = ranks["world_size"].dropna().unique().tolist()
    if len(sizes) > 1:
        said = ", ".join(
            f"{parts[int(some['part'].iloc[0])].name} of {size}" for size, some in ranks.groupby("world_size")
        )
        raise UsageError(f"these are ranks of different jobs: {said}", "Pass the captures of one job.")
    doubled = ranks[ranks["rank"].duplicated(keep=False)].sort_values("rank", kind="stable")
    if len(doubled):
        rank = int(doubled["rank"].iloc[0])
        first, second, *_ = (parts[number].name for number in doubled.loc[doubled["rank"] == rank, "part"].tolist())
        raise UsageError(
            f"rank {rank} is there twice: {f'{first} and {second}' if first != second else f'two files named {first}'}",
            "Pass one capture of each rank of one job, or --apart for a report of each.",
        )


def _devices(ranks: pd.DataFrame) -> dict[int, dict[int, int]]:
    """Return by capture what the number of each GPU becomes: that of its rank, where each has one of its own."""
    used = ranks[ranks["gpu"] >= 0]
    is_own = not used.duplicated(["part", "gpu"]).any()
    numbers = used["rank"].tolist() if is_own else range(len(used))
    found: dict[int, dict[int, int]] = {}
    for part, gpu, number in zip(used["part"].tolist(), used["gpu"].tolist(), numbers, strict=True):
        found.setdefault(part, {}).setdefault(int(gpu), int(number))
    return found


def _table(
    ranks: pd.DataFrame, parts: Sequence[Part], order: Sequence[int], clocks: Mapping[int, "_Clock"]
) -> pd.DataFrame:
    """Return the table `ranks` with the numbers that processes got, by rank."""
    process = [
        _renumbered(np.array([old]), _known_ids(parts[part].profile), order.index(part))[0] if old >= 0 else -1
        for part, old in zip(ranks["part"].tolist(), ranks["process"].tolist(), strict=True)
    ]
    of_part = [clocks[part] for part in ranks["part"].tolist()]
    shifts = pd.array([clock.shift_ns or None for clock in of_part], dtype=NULLABLE)
    spreads = pd.array([clock.spread_ns for clock in of_part], dtype=NULLABLE)
    told = ranks.assign(process=process, shift_ns=shifts, spread_ns=spreads)
    return conform("ranks", told[told["process"] >= 0].sort_values("rank", kind="stable"))


# -- one clock --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clock:
    """By how much times of a capture are moved, and how far single collectives are off; None if nothing told."""

    shift_ns: int
    spread_ns: int | None


def _clocks(profiles: Sequence[Profile]) -> list[_Clock]:
    """Return how the times of each capture become those of the first, or of one that has a collective in common."""
    told = [communication(Timeline(profile)) for profile in profiles]
    clocks: list[_Clock | None] = [_Clock(0, None), *[None] * (len(profiles) - 1)]
    for place in range(1, len(profiles)):
        for other in range(place):
            through = clocks[other]
            found = shift_between(told[other], told[place]) if through is not None else None
            if through is not None and found is not None:
                shift, spread = found
                is_one = abs(shift) < ONE_CLOCK_NS
                clocks[place] = _Clock(through.shift_ns + (0 if is_one else shift), spread)
                break
    firsts = [_first(profile) for profile in profiles]
    return [clock or _Clock(firsts[0] - first, None) for clock, first in zip(clocks, firsts, strict=True)]


def _first(profile: Profile) -> int:
    """Return when the first event begins."""
    starts = (table["start_ns"] for table in profile.tables.values() if "start_ns" in table and len(table))
    return min((int(times.min()) for times in starts), default=0)


# -- one profile ------------------------------------------------------------------------------------------------------


def _moved(profile: Profile, place: int, devices: Mapping[int, int], shift_ns: int) -> Profile:
    """Return a profile with ids, numbers of GPUs and times that it can share with others; `place`: among them."""
    ids = _known_ids(profile)
    tables = {}
    for name, table in profile.tables.items():
        new: dict[str, Any] = {column: table[column] + shift_ns for column in _TIMES if column in table and shift_ns}
        for column in _IDS:
            if column in table:
                known = table[column].notna().to_numpy()
                values = _renumbered(table[column].to_numpy(dtype=np.int64, na_value=0), ids, place)
                new[column] = pd.Series(values, dtype=table[column].dtype).where(known).array
        if name in GPU_TABLES:
            new["gpu"] = pd.Series(_numbered(gpus(table), devices), dtype=NULLABLE).array
        elif name in _OF_MACHINE:
            new["device"] = _numbered(table["device"].to_numpy(dtype=np.int64), devices)
        moved = table.assign(**new)
        tables[name] = moved[moved["device"].isin(list(devices.values()))] if name == "devices" else moved
    return replace(profile, tables=tables)


def _known_ids(profile: Profile) -> Ints:
    """Return all ids of processes and threads in a profile, in rising order."""
    found = [np.empty(0, dtype=np.int64)]
    for table in profile.tables.values():
        found += [table[name].dropna().to_numpy(dtype=np.int64) for name in _IDS if name in table]
    return np.unique(np.concatenate(found))


def _renumbered(values: Ints, known: Ints, place: int) -> Ints:
    """Return ids that no other capture has."""
    return (place << _BITS) + np.searchsorted(known, values)


def _numbered(values: Ints, devices: Mapping[int, int]) -> Ints:
    """Return the new numbers of GPUs; those of others than the ranks', and of the CPU, stay."""
    distinct, codes = np.unique(values, return_inverse=True)
    return np.array([devices.get(number, number) for number in distinct.tolist()], dtype=np.int64)[codes]


def _concatenated(every: Sequence[Mapping[str, pd.DataFrame]]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each table of all captures that have it, with the columns that all of these have."""
    for name in dict.fromkeys(name for tables in every for name in tables):
        frames = [tables[name] for tables in every if name in tables]
        if len(frames) == 1 or name in UNPROFILED:
            yield name, frames[0]
            continue
        columns = [column for column in frames[0] if all(column in frame for frame in frames)]
        whole = pd.concat([frame[columns] for frame in frames], ignore_index=True)
        united: dict[str, Any] = {
            str(column): union_categoricals([frame[column] for frame in frames], sort_categories=True)
            for column in columns
            if frames[0][column].dtype == TEXT
        }
        yield name, whole.assign(**united)


# -- what to know of it -----------------------------------------------------------------------------------------------


def _environment(every: Sequence[Environment], tables: Mapping[str, pd.DataFrame]) -> Environment:
    """Return what the captures say of the machine: all values of each, where they differ."""
    told = [asdict(environment) for environment in every]
    facts: dict[str, str] = {name: ", ".join(dict.fromkeys(one[name] for one in told if one[name])) for name in told[0]}
    facts["captured_utc"] = min((one["captured_utc"] for one in told if one["captured_utc"]), default="")
    if "devices" in tables:
        counts = Counter(tables["devices"]["name"].astype("str"))
        facts["gpu"] = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return Environment(**facts)


def _shared(told: Sequence[tuple[str, Sequence[Finding]]]) -> Iterator[Finding]:
    """Yield each finding once; one that not all captures have says whose it is."""
    by_finding: dict[Finding, list[str]] = {}
    for names, findings in told:
        for finding in findings:
            by_finding.setdefault(finding, []).append(names)
    for finding, whose in by_finding.items():
        detail = f"{', '.join(whose[:_ALL_NAMED])}: {finding.detail}"
        yield finding if len(whose) == len(told) else replace(finding, detail=detail)


def _of_ranks(ranks: Sequence[int]) -> str:
    """Name ranks: "Rank 3", "Ranks 0 and 1", "Ranks 0, 2, 5 and 7 more"."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:_ALL_NAMED]]
    more = len(ranks) - len(shown)
    last = f"{more} more" if more else shown.pop()
    return f"Ranks {', '.join(shown)} and {last}"


def _doubts(ranks: pd.DataFrame, told: Sequence[tuple[str, Profile, _Clock]]) -> Iterator[Finding]:
    """Yield what the report of a job lacks: ranks, a common clock, one version of the profiler."""
    size = int(ranks["world_size"].max()) if ranks["world_size"].notna().any() else int(ranks["rank"].max()) + 1
    lacking = sorted(set(range(size)) - set(ranks["rank"].tolist()))
    if lacking:
        is_one = len(lacking) == 1
        yield Finding(
            "missing_ranks",
            "warning",
            f"{len(lacking)} of {size} ranks {'is' if is_one else 'are'} missing",
            f"{_of_ranks(lacking)} {'has' if is_one else 'have'} no capture here. Which rank the others wait for is "
            "told among those that are.",
            "Pass the captures of all ranks.",
        )
    unknown = [names for names, _, clock in told[1:] if clock.spread_ns is None]
    if unknown:
        yield Finding(
            "unknown_clock",
            "warning",
            "Some ranks have no collective in common with the others",
            f"{', '.join(unknown[:_ALL_NAMED])}: their captures may be of different runs. Their times are moved so "
            "that all begin together, and do not tell who waits for whom.",
            "Pass captures of one run.",
        )
    loose = [(names, clock.spread_ns) for names, _, clock in told if (clock.spread_ns or 0) > _MOST_SPREAD_NS]
    if loose:
        whose, spread = max(loose, key=lambda one: one[1] or 0)
        yield Finding(
            "loose_clock",
            "warning",
            "The times of the ranks do not fit together",
            f"{whose}: collectives end up to {format_value(spread or 0, 'spread_ns')} before or after those of the "
            "other ranks, although all end together. The captures may be of different runs, or lack some collectives.",
            "Pass captures of one run, each recorded from the same step on.",
        )
    versions = Counter(f"{one.environment.collector} {one.environment.collector_version}".strip() for _, one, _ in told)
    if len(versions) > 1:
        yield Finding(
            "different_profilers",
            "info",
            "The ranks were captured with different profilers",
            f"{', '.join(f'{count} with {name}' for name, count in versions.items())}. Times of the CPU may differ for "
            "that reason.",
        )
