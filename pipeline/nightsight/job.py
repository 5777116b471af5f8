"""Makes one profile of those of the ranks of a job: which rank is which, on one clock, with numbers that do not clash.

What ends on one rank ends on the others, if all wait for it. So the ends of collectives tell how far apart the clocks
of captures are, and how well the ranks of different hosts can be compared.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
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
from nightsight.tables import NULLABLE, TEXT, UNPROFILED, conform, empty, used_devices
from nightsight.units import format_value

# the last number in a name that says that it is of a rank
_NAMES: Final = (
    re.compile(r"(?i)rank[-_. ]?(\d{1,6})(?!\d)(?!.*rank[-_. ]?\d)"),
    re.compile(r"(?i)(?<![a-z0-9])r(\d{1,6})(?![0-9a-z])(?!.*(?<![a-z0-9])r\d)"),
)
_IDS: Final = ("process", "thread", "end_thread", "forward_thread")
_TIMES: Final = ("start_ns", "end_ns", "time_ns", "domain_start_ns")
# tables whose `device` is the number of a GPU on the machine; the CPU has -1
_OF_MACHINE: Final = ("devices", "memory_usage", "gpu_metrics", "gpu_page_faults")
# above that, times of ranks cannot be compared
_MOST_SPREAD_NS: Final = 1_000_000
_BITS: Final = 32
_ALL_NAMED: Final = 8
# only the rank in the largest communicator: there may be none of all
_OF_NCCL: Final = "NCCL"


@dataclass(frozen=True, eq=False)
class Part:
    """The capture of one rank or more, and the name of its file."""

    name: str
    profile: Profile


def is_of_job(part: Part) -> bool:
    """Whether the program of a capture communicates, or the capture tells which of several ranks it is of."""
    calls = len(part.profile.tables.get("collectives", ())) > 0
    return calls or _tells(part) or bool(communicating(Timeline(part.profile)).any())


def are_of_one_job(parts: Sequence[Part]) -> bool:
    """Whether captures that are each of a job can be of one: they tell ranks, or their names differ only in numbers."""
    are_alike = len({re.sub(r"\d+", "#", part.name) for part in parts}) == 1
    return all(map(_tells, parts)) or (are_alike and len(parts) > 1)


def _tells(part: Part) -> bool:
    sizes = part.profile.tables.get("ranks", empty("ranks"))["world_size"]
    return bool((sizes.fillna(2) > 1).any()) or len(part.profile.tables.get("launched_as", ())) > 0


def name_of_job(names: Sequence[str]) -> str:
    """Return what the names of the ranks' files have in common: `train` for `train_rank0` and `train_rank1`."""
    for pattern in (*_NAMES, re.compile(r"\d+(?!.*\d)")):
        bare = {pattern.sub("", name) for name in names}
        if len(bare) == 1:
            return next(iter(bare)).strip("-_. ") or "job"
    return "job"


def joined(parts: Sequence[Part]) -> Profile:
    """Return one profile of all ranks; UsageError if they cannot be of one job.

    GPUs get the numbers of their ranks; those that are no rank's own come after them.
    """
    ranks = _identified(parts)
    _refuse_strangers(ranks, parts)
    order = ranks.groupby("part")["rank"].min().sort_values(kind="stable").index.tolist()
    parts = [parts[number] for number in order]
    ranks = ranks.assign(part=ranks["part"].map({number: place for place, number in enumerate(order)}))
    clocks, ids = _clocks([part.profile for part in parts]), [_known_ids(part.profile) for part in parts]
    devices = _devices(ranks, parts)
    moved = [
        _moved(part.profile, (place, ids[place]), devices[place], clocks[place].shift_ns)
        for place, part in enumerate(parts)
    ]
    tables = dict(_concatenated([profile.tables for profile in moved]))
    tables.pop("launched_as", None)
    tables["ranks"] = _table(ranks, ids, clocks)
    names = [_of_ranks(ranks.loc[ranks["part"] == place, "rank"].tolist()) for place in range(len(parts))]
    findings = [*_shared([(name, part.profile.findings) for name, part in zip(names, parts, strict=True)])]
    findings += _doubts(ranks, list(zip(names, (part.profile for part in parts), clocks, strict=True)))
    missing = {name: why for profile in moved for name, why in profile.missing.items() if name not in tables}
    environment = _environment([part.profile.environment for part in parts], tables)
    return Profile(tables, missing, environment, tuple(findings))


# -- which rank -------------------------------------------------------------------------------------------------------


def _identified(parts: Sequence[Part]) -> pd.DataFrame:
    """Return the ranks of all captures, with columns part, process, gpu (-1 if unknown), rank, world_size and source.

    What captures tell counts, else what launchers said, else the names of files; if not all have a number then, or not
    one of their own because communicators number their ranks anew, the order of the files.
    """
    found = [_processes(part).assign(part=number) for number, part in enumerate(parts)]
    named = next((numbers for pattern in _NAMES if (numbers := _numbered_names(pattern, parts))), None)
    for others in ((), (_OF_NCCL,)):
        ranks = pd.concat(
            [
                _told(part, rows, None if named is None else named[number], without=others)
                for number, (part, rows) in enumerate(zip(parts, found, strict=True))
            ],
            ignore_index=True,
        )
        is_known, is_own = ranks["rank"].notna().all(), ranks["rank"].is_unique
        if is_known and (is_own or _OF_NCCL not in set(ranks["source"])):
            return ranks.astype({"rank": "int64"})
    every = pd.concat(found, ignore_index=True)
    unknown = pd.array([None] * len(every), dtype=NULLABLE)
    return every.assign(rank=np.arange(len(every)), world_size=unknown, source="order of the files")


def _numbered_names(pattern: re.Pattern[str], parts: Sequence[Part]) -> list[int] | None:
    """Return the numbers of ranks in the names of files; None unless each has one."""
    found = [pattern.search(part.name) for part in parts]
    return [int(match[1]) for match in found if match] if all(found) else None


def _processes(part: Part) -> pd.DataFrame:
    """Return the processes of a capture that used GPUs, each with the one it communicated on, else used most."""
    tables = part.profile.tables
    communicates = communicating(Timeline(part.profile))
    used, first = [pd.DataFrame({"process": [], "gpu": [], "time": []})], 0
    for name in GPU_TABLES:
        if name in tables:
            table = tables[name]
            time = (table["end_ns"] - table["start_ns"]).to_numpy(dtype=np.float64)
            time = np.where(communicates[first : first + len(table)], 1e18, time)
            used.append(pd.DataFrame({"process": table["process"], "gpu": gpus(table), "time": time}))
            first += len(table)
    spent = pd.concat(used).dropna().groupby(["process", "gpu"])["time"].sum().reset_index()
    spent = spent.sort_values(["time", "gpu"], ascending=[False, True]).drop_duplicates("process")
    found = spent.astype({"process": "int64", "gpu": "int64"}).sort_values(["gpu", "process"], ignore_index=True)
    if not len(found):
        # on CPUs alone, those that call collectives
        called = tables.get("collectives", empty("collectives"))["process"].unique().tolist()
        found = pd.DataFrame({"process": called or [-1], "gpu": -1})
    return found[["process", "gpu"]]


def _told(part: Part, processes: pd.DataFrame, named: int | None, *, without: Collection[str]) -> pd.DataFrame:
    """Return the processes of a capture with the ranks that it tells, its launcher did, or its name does."""
    told = part.profile.tables.get("ranks", empty("ranks"))
    told = told[~told["source"].isin(without)]
    if len(told):
        others = told[~told["process"].isin(processes["process"])].assign(part=processes["part"].iloc[0], gpu=-1)
        ranks = processes.merge(told, on="process", how="left")
        ranks = pd.concat([ranks, others])[["process", "gpu", "part", "rank", "world_size", "source"]]
        return ranks[ranks["rank"].notna() | ranks["gpu"].ge(0)].astype({"source": "str"})
    unknown = pd.array([None] * len(processes), dtype=NULLABLE)
    launched = part.profile.tables.get("launched_as", empty("launched_as"))
    if len(launched) == len(processes) == 1:
        # of a launcher that was started in turn, the variables say which node it is
        return processes.assign(**{name: launched[name].array for name in ("rank", "world_size", "source")})
    if named is not None and len(processes) == 1:
        return processes.assign(rank=named, world_size=unknown, source="file name")
    return processes.assign(rank=unknown, world_size=unknown, source="")


def _refuse_strangers(ranks: pd.DataFrame, parts: Sequence[Part]) -> None:
    """Raise UsageError if a rank is there twice, or ranks say that they are of jobs of different sizes."""
    sized = ranks[ranks["source"] != _OF_NCCL].dropna(subset=["world_size"])
    if sized["world_size"].nunique() > 1:
        said = ", ".join(
            f"{parts[int(some['part'].iloc[0])].name} of {size}" for size, some in sized.groupby("world_size")
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


def _devices(ranks: pd.DataFrame, parts: Sequence[Part]) -> list[dict[int, int]]:
    """Return for each capture what the number of each GPU in it becomes: that of its (first) rank, else a new one."""
    found: list[dict[int, int]] = [{} for _ in parts]
    for part, gpu, rank in ranks.sort_values("rank")[["part", "gpu", "rank"]].itertuples(index=False):
        if gpu >= 0:
            found[part].setdefault(int(gpu), int(rank))
    following = int(ranks["rank"].max()) + 1
    for part, numbers in zip(parts, found, strict=True):
        for gpu in sorted(used_devices(part.profile.tables) - numbers.keys()):
            numbers[int(gpu)] = following
            following += 1
    return found


def _table(ranks: pd.DataFrame, ids: Sequence[Ints], clocks: Sequence["_Clock"]) -> pd.DataFrame:
    """Return the table `ranks` with the numbers that processes got, by rank."""
    kept = ranks[ranks["process"] >= 0].sort_values("rank", kind="stable")
    pairs = zip(kept["part"].tolist(), kept["process"].to_numpy(dtype=np.int64), strict=True)
    process = [_renumbered(np.array([old]), ids[part], part)[0] for part, old in pairs]
    of_part = [clocks[part] for part in kept["part"].tolist()]
    shifts = pd.array([clock.shift_ns or None for clock in of_part], dtype=NULLABLE)
    spreads = pd.array([clock.spread_ns for clock in of_part], dtype=NULLABLE)
    return conform("ranks", kept.assign(process=process, shift_ns=shifts, spread_ns=spreads))


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
                # whatever differs by little is one clock; by how little, is said
                is_one = abs(shift) < ONE_CLOCK_NS
                clocks[place] = _Clock(through.shift_ns + (0 if is_one else shift), max(spread, abs(shift) * is_one))
                break
    spans = [_span(profile) for profile in profiles]
    return [clock or _guessed(spans[0], span) for clock, span in zip(clocks, spans, strict=True)]


def _guessed(first: tuple[int, int], span: tuple[int, int]) -> _Clock:
    """Leave times as they are where captures overlap; else let them begin together."""
    overlap = span[0] < first[1] and first[0] < span[1]
    return _Clock(0 if overlap else first[0] - span[0], None)


def _span(profile: Profile) -> tuple[int, int]:
    """Return when the first event begins and the last one does."""
    starts = [table["start_ns"] for table in profile.tables.values() if "start_ns" in table and len(table)]
    return min((int(times.min()) for times in starts), default=0), max(
        (int(times.max()) for times in starts), default=0
    )


# -- one profile ------------------------------------------------------------------------------------------------------


def _moved(profile: Profile, own: tuple[int, Ints], devices: Mapping[int, int], shift_ns: int) -> Profile:
    """Return a profile with ids, numbers of GPUs and times that it can share with others.

    own: its place among them, and its ids. What is of GPUs that it did not use is left out.
    """
    (place, ids), tables = own, {}
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
        is_own = table["device"].isin([-1, *devices]) if name in _OF_MACHINE else slice(None)
        tables[name] = moved[is_own]
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
    """Return the new numbers of GPUs; that of the CPU stays."""
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
        texts = [column for column in columns if frames[0][column].dtype == TEXT]
        rest = [frame.drop(columns=frame.columns.difference(columns).union(texts)) for frame in frames]
        whole = pd.concat(rest, ignore_index=True)
        united: dict[str, Any] = {
            str(column): union_categoricals([_texts(frame[column]) for frame in frames], sort_categories=True)
            for column in texts
        }
        yield name, whole.assign(**united)[columns]


def _texts(column: "pd.Series[Any]") -> "pd.Categorical[Any]":
    """Return a column of texts; one without rows may have categories of another type."""
    categories = column.cat.categories.astype("str")
    return pd.Categorical.from_codes(column.cat.codes.to_numpy(), categories=categories)


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
    """Yield findings once, though ranks may have other numbers in them; one that not all share says whose it is."""
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for names, findings in told:
        for finding in findings:
            alike.setdefault((finding.rule, re.sub(r"[\d.,]+", "#", finding.title)), []).append((names, finding))
    for found in alike.values():
        _, first = found[0]
        whose = list(dict.fromkeys(names for names, _ in found))
        same = "" if all(finding == first for _, finding in found) else ", each with other numbers"
        more = f" and {len(whose) - _ALL_NAMED:,} more" * (len(whose) > _ALL_NAMED)
        detail = f"{', '.join(whose[:_ALL_NAMED])}{more}{same}: {first.detail}"
        yield first if len(whose) == len(told) and not same else replace(first, detail=detail)


def _of_ranks(ranks: Sequence[int], count: int = 0) -> str:
    """Name ranks, `count` in all: "Rank 3", "Ranks 0 and 1", "Ranks 0, 2, 5 and 7 more"."""
    shown, more = [str(rank) for rank in ranks[:_ALL_NAMED]], max(count, len(ranks)) - min(len(ranks), _ALL_NAMED)
    if len(shown) == 1 and not more:
        return f"Rank {shown[0]}"
    last = f"{more:,} more" if more else shown.pop()
    return f"Ranks {', '.join(shown)} and {last}"


def _doubts(ranks: pd.DataFrame, told: Sequence[tuple[str, Profile, _Clock]]) -> Iterator[Finding]:
    """Yield what the report of a job lacks: ranks, a common clock, one version of the profiler."""
    known = set(ranks["rank"].tolist())
    sizes = ranks.loc[ranks["source"] != _OF_NCCL, "world_size"].dropna()
    size = max(int(sizes.max()) if len(sizes) else 0, max(known) + 1)
    if count := size - len(known):
        lacking = [*islice((rank for rank in range(size) if rank not in known), _ALL_NAMED)]
        yield Finding(
            "missing_ranks",
            "warning",
            f"{count:,} of {size:,} ranks {'is' if count == 1 else 'are'} missing",
            f"{_of_ranks(lacking, count)} {'has' if count == 1 else 'have'} no capture here. Which rank the others "
            "wait for is told among those that are.",
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
