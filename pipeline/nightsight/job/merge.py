"""Merges the profiles of a job's ranks into one, with numbers that do not clash."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from nightsight.events.sharing import cards
from nightsight.intervals import Ints, Spans
from nightsight.job.doubts import doubts_of, shared_findings
from nightsight.job.facts import IDS, Apart, Part
from nightsight.job.ranks import Ranked, by_rank, hosts_of, numbered, renumbered
from nightsight.job.standins import communication_of, stand_ins
from nightsight.model.report import Environment, Finding, Job, Profile
from nightsight.tables import NULLABLE, TEXT, UNPROFILED, conform
from nightsight.units import format_ranks

_TIMES: Final = ("start_ns", "end_ns", "time_ns", "domain_start_ns")
# columns of what the program did, which stays even if nothing tells which GPU of the job that was on
_OF_PROGRAM: Final = {"stream", "range"}


def joined(parts: Sequence[Part]) -> Profile:
    """Return one profile of all ranks; UsageError if they cannot be of one job.

    GPUs get the numbers of their ranks; the other GPUs come after them.
    """
    ranked = by_rank([part.facts for part in parts])
    return _profile(ranked, {place: parts[number].profile for place, number in enumerate(ranked.order)})


def joined_of_some(every: Sequence[Apart], read: Callable[[int], Profile], most: int) -> Profile:
    """Return one profile of a large job, with the events of a few representative captures.

    read: returns the profile of a capture. most: how many to read. UsageError if they cannot be of one job.
    """
    ranked = by_rank([one.facts for one in every])
    told = communication_of(ranked)
    of_rank = stand_ins(told, ranked, most)
    places = sorted(set(of_rank["like_part"].tolist()))
    profile = _profile(ranked, {place: read(ranked.order[place]) for place in places})
    overlapping_work, steps, numbers = dict[int, Spans](), dict[int, Spans](), dict[int, int]()
    for place, number in enumerate(ranked.order):
        one, devices, shift_ns = every[number], ranked.devices[place], ranked.clocks[place].shift_ns
        for of_all, own in ((overlapping_work, one.overlapping_work), (steps, one.steps)):
            of_all |= {devices[gpu]: (start + shift_ns, end + shift_ns) for gpu, (start, end) in own.items()}
        numbers |= {ranked.process(place, process): pid for process, pid in one.pids.items()}
    like = dict(zip(of_rank["rank"].tolist(), of_rank["like"].tolist(), strict=True))
    shown = sorted(set(like.values()))
    return replace(
        profile,
        job=Job(told, overlapping_work, steps, numbers, like),
        findings=(
            *profile.findings,
            Finding(
                "some_ranks",
                "info",
                f"{len(shown):,} of {len(like):,} ranks represent the others",
                f"{format_ranks(shown)}: kernels, timeline, sums and causes come from them. Every other rank resembles "
                "one of them in its collectives and its waits there. *Ranks*, their steps and *Collectives* cover all "
                "ranks.",
            ),
        ),
    )


def _profile(ranked: Ranked, held: Mapping[int, Profile]) -> Profile:
    """Return one profile of the captures that are held, by place, with the facts of the others."""

    def moved(place: int, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        ids, clock = ranked.facts[place].ids, ranked.clocks[place]
        return _moved(tables, (place, ids), ranked.devices[place], clock.shift_ns)

    tables = dict(_concatenated([moved(place, profile.tables) for place, profile in held.items()]))
    if len(held) < len(ranked.facts):
        tables |= _concatenated([moved(place, facts.tables) for place, facts in enumerate(ranked.facts)])
    tables.pop("launched_as", None)
    tables["ranks"] = _table(ranked)
    names = [
        format_ranks(ranked.ranks.loc[ranked.ranks["part"] == place, "rank"].tolist())
        for place in range(len(ranked.facts))
    ]
    named = list(zip(names, ranked.facts, ranked.clocks, strict=True))
    findings = [*shared_findings([(name, facts.findings) for name, facts, _ in named]), *doubts_of(ranked.ranks, named)]
    missing = {name: why for profile in held.values() for name, why in profile.missing.items() if name not in tables}
    environment = _environment([facts.environment for facts in ranked.facts], tables)
    return Profile(tables, missing, environment, tuple(findings))


def _table(ranked: Ranked) -> pd.DataFrame:
    """Return the table `ranks` with the new process numbers, by rank."""
    kept = ranked.ranks[ranked.ranks["process"] >= 0].sort_values("rank", kind="stable")
    parts = kept["part"].tolist()
    process = [ranked.process(*pair) for pair in zip(parts, kept["process"].to_numpy(dtype=np.int64), strict=True)]
    of_part = [ranked.clocks[part] for part in parts]
    shifts = pd.array([clock.shift_ns or None for clock in of_part], dtype=NULLABLE)
    spreads = pd.array([clock.spread_ns for clock in of_part], dtype=NULLABLE)
    hosts = pd.array([hosts_of(ranked.facts)[part] for part in parts], dtype=NULLABLE)
    return conform("ranks", kept.assign(process=process, shift_ns=shifts, spread_ns=spreads, host=hosts))


def _moved(
    every: Mapping[str, pd.DataFrame], own: tuple[int, Ints], devices: Mapping[int, int], shift_ns: int
) -> dict[str, pd.DataFrame]:
    """Return the tables of a capture with ids, GPU numbers and times that do not clash with others.

    own: its place among them, and its ids. What is told of GPUs that it did not use is left out.
    """
    (place, ids), tables = own, {}
    for name, table in every.items():
        new: dict[str, Any] = {column: table[column] + shift_ns for column in _TIMES if column in table and shift_ns}
        for column in IDS:
            if column in table:
                known = table[column].notna().to_numpy()
                values = renumbered(table[column].to_numpy(dtype=np.int64, na_value=0), ids, place)
                new[column] = pd.Series(values, dtype=table[column].dtype).where(known).array
        if "device" in table:
            new["device"] = numbered(table["device"].to_numpy(dtype=np.int64), devices)
        tables[name] = table.assign(**new)
        if "device" in table and not _OF_PROGRAM & set(table):
            tables[name] = tables[name][table["device"].isin([-1, *devices])]
    return tables


def _concatenated(every: Sequence[Mapping[str, pd.DataFrame]]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each table, concatenated over the captures that have it, with the columns that they share."""
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


def _environment(every: Sequence[Environment], tables: Mapping[str, pd.DataFrame]) -> Environment:
    """Return the environment of all captures; facts that differ list all values."""
    told = [asdict(environment) for environment in every]
    facts: dict[str, str] = {name: ", ".join(dict.fromkeys(one[name] for one in told if one[name])) for name in told[0]}
    facts["captured_utc"] = min((one["captured_utc"] for one in told if one["captured_utc"]), default="")
    if "devices" in tables:
        devices = tables["devices"]
        # a GPU that several ranks use has several numbers
        known = cards(devices)
        is_again = known.duplicated() & (known != "")
        counts = Counter(devices["name"][~is_again].astype("str"))
        facts["gpu"] = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return Environment(**facts)
