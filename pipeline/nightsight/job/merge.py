"""Merges the profiles of a job's ranks into one, with numbers that do not clash."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from nightsight.events.sharing import gpu_ids
from nightsight.intervals import Spans
from nightsight.job.doubts import doubts_of, shared_findings
from nightsight.job.facts import IDS, RankCapture, RankSummary
from nightsight.job.ranks import RankedCaptures, by_rank, hosts_of
from nightsight.job.standins import communication_of, stand_ins
from nightsight.model.report import Environment, Finding, Job, Profile
from nightsight.tables import ABOUT_GPUS, NULLABLE, OF_COMPILER, TEXT, UNPROFILED, conform
from nightsight.units import format_ranks

_TIMES: Final = ("start_ns", "end_ns", "time_ns", "domain_start_ns")


def merge_ranks(captures: Sequence[RankCapture]) -> Profile:
    """Return one profile of all ranks; UsageError if they cannot be of one job.

    GPUs get the numbers of their ranks; the other GPUs come after them.
    """
    ranked = by_rank([capture.facts for capture in captures])
    return _profile(ranked, {place: captures[number].profile for place, number in enumerate(ranked.order)})


def merge_some_ranks(summaries: Sequence[RankSummary], read: Callable[[int], Profile], most: int) -> Profile:
    """Return one profile of a large job, with the events of a few representative captures.

    read: returns the profile of a capture. most: how many to read. UsageError if they cannot be of one job.
    """
    ranked = by_rank([summary.facts for summary in summaries])
    communication = communication_of(ranked)
    ranks = stand_ins(communication, ranked, most)
    places = sorted(set(ranks["like_capture"].tolist()))
    profile = _profile(ranked, {place: read(ranked.order[place]) for place in places})
    overlapping_work, steps, pids = dict[int, Spans](), dict[int, Spans](), dict[int, int]()
    for place, number in enumerate(ranked.order):
        summary, devices, shift_ns = summaries[number], ranked.devices[place], ranked.clocks[place].shift_ns
        for of_job, of_rank in ((overlapping_work, summary.overlapping_work), (steps, summary.steps)):
            of_job |= {devices[gpu]: (start + shift_ns, end + shift_ns) for gpu, (start, end) in of_rank.items()}
        pids |= {ranked.process(place, process): pid for process, pid in summary.pids.items()}
    like = dict(zip(ranks["rank"].tolist(), ranks["like"].tolist(), strict=True))
    representatives = sorted(set(like.values()))
    finding = Finding(
        "some_ranks",
        "info",
        f"{len(representatives):,} of {len(like):,} ranks represent the others",
        f"{format_ranks(representatives)}: kernels, timeline, sums and causes come from them. Every other rank "
        "resembles one of them in its collectives and its waits there. *Ranks*, their steps and *Collectives* cover "
        "all ranks.",
    )
    job = Job(communication, overlapping_work, steps, pids, like)
    return replace(profile, job=job, findings=(*profile.findings, finding))


def _profile(ranked: RankedCaptures, profiles: Mapping[int, Profile]) -> Profile:
    """Return one profile of the captures that are loaded, by place, with the facts of the others."""
    tables = dict(_concatenated([_converted(ranked, place, part.tables) for place, part in profiles.items()]))
    if len(profiles) < len(ranked.facts):
        of_all_ranks = [_converted(ranked, place, facts.tables) for place, facts in enumerate(ranked.facts)]
        tables |= _concatenated(of_all_ranks)
    tables.pop("launched_as", None)
    tables["ranks"] = _ranks_table(ranked)
    findings = [*shared_findings(ranked), *doubts_of(ranked)]
    missing = {name: why for part in profiles.values() for name, why in part.missing.items() if name not in tables}
    environment = _environment([facts.environment for facts in ranked.facts], tables)
    return Profile(tables, missing, environment, tuple(findings))


def _ranks_table(ranked: RankedCaptures) -> pd.DataFrame:
    """Return the table `ranks` with the new process numbers, by rank."""
    ranks = ranked.ranks[ranked.ranks["process"] >= 0].sort_values("rank", kind="stable")
    places, processes = ranks["capture"].tolist(), ranks["process"].to_numpy(dtype=np.int64)
    clocks, hosts = [ranked.clocks[place] for place in places], hosts_of(ranked.facts)
    ranks = ranks.assign(
        process=[ranked.process(place, process) for place, process in zip(places, processes, strict=True)],
        shift_ns=pd.array([clock.shift_ns or None for clock in clocks], dtype=NULLABLE),
        spread_ns=pd.array([clock.spread_ns for clock in clocks], dtype=NULLABLE),
        host=pd.array([hosts[place] for place in places], dtype=NULLABLE),
    )
    return conform("ranks", ranks)


def _converted(ranked: RankedCaptures, place: int, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables of a capture with the ids, GPU numbers and times of the job.

    Facts about GPUs that it did not use are left out.
    """
    converted, shift_ns = {}, ranked.clocks[place].shift_ns
    # a shift of 0 would copy the columns
    times = _TIMES if shift_ns else ()
    for name, recorded in tables.items():
        table = _with_processes(recorded, tables) if name == "compilations" else recorded
        columns: dict[str, Any] = {column: table[column] + shift_ns for column in times if column in table}
        for column in IDS:
            if column in table:
                has_id = table[column].notna().to_numpy()
                ids = ranked.renumbered_ids(place, table[column].to_numpy(dtype=np.int64, na_value=0))
                columns[column] = pd.Series(ids, dtype=table[column].dtype).where(has_id).array
        if "device" in table:
            columns["device"] = ranked.renumbered_devices(place, table["device"].to_numpy(dtype=np.int64))
        converted[name] = table.assign(**columns)
        if name in ABOUT_GPUS:
            converted[name] = converted[name][table["device"].isin([-1, *ranked.devices[place]])]
    return converted


def _with_processes(compilations: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return what torch.compile did in a capture with the processes of their pids; the only process has any pid."""
    calls = tables.get("api_calls", pd.DataFrame({"pid": [], "process": []}))
    processes = calls[["pid", "process"]].drop_duplicates().astype("int64")
    if len(processes) == 1 and compilations["pid"].nunique() == 1:
        processes = processes.assign(pid=compilations["pid"].iloc[0])
    process = compilations["pid"].map(processes.drop_duplicates("pid").set_index("pid")["process"])
    return compilations.assign(process=process.astype(NULLABLE))[process.notna()]


def _concatenated(captures: Sequence[Mapping[str, pd.DataFrame]]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each table, concatenated over the captures that have it, with the columns that they share."""
    for name in dict.fromkeys(name for tables in captures for name in tables):
        frames = [tables[name] for tables in captures if name in tables]
        if len(frames) == 1 or (name in UNPROFILED and name not in OF_COMPILER):
            yield name, frames[0]
            continue
        columns = [column for column in frames[0] if all(column in frame for frame in frames)]
        texts = [column for column in columns if frames[0][column].dtype == TEXT]
        others = [frame.drop(columns=frame.columns.difference(columns).union(texts)) for frame in frames]
        united: dict[str, Any] = {
            str(column): union_categoricals([_as_texts(frame[column]) for frame in frames], sort_categories=True)
            for column in texts
        }
        yield name, pd.concat(others, ignore_index=True).assign(**united)[columns]


def _as_texts(column: "pd.Series[Any]") -> "pd.Categorical[Any]":
    """Return a column of texts; one without rows may have categories of another type."""
    categories = column.cat.categories.astype("str")
    return pd.Categorical.from_codes(column.cat.codes.to_numpy(), categories=categories)


def _environment(captures: Sequence[Environment], tables: Mapping[str, pd.DataFrame]) -> Environment:
    """Return the environment of all captures; facts that differ list all values."""
    rows = [asdict(environment) for environment in captures]
    values = {name: list(dict.fromkeys(row[name] for row in rows if row[name])) for name in rows[0]}
    facts: dict[str, str] = {name: ", ".join(distinct) for name, distinct in values.items()}
    facts["captured_utc"] = min(values["captured_utc"], default="")
    if "devices" in tables:
        devices = tables["devices"]
        # a GPU that several ranks use has several numbers
        identities = gpu_ids(devices)
        is_repeated = identities.duplicated() & (identities != "")
        counts = Counter(devices["name"][~is_repeated].astype("str"))
        facts["gpu"] = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return Environment(**facts)
