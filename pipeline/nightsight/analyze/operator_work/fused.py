"""Kernels that torch.compile wrote: the operators that they fuse, their lines in the program, and their bandwidth.

A name can be that of several kernels: each compiled graph counts its kernels from 0. A capture has only the name, so
that such a kernel gets the operators and lines of all of them, and its work is unknown unless it is equal in all.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import gpu_peaks
from nightsight.events.compiled import INDUCTOR
from nightsight.events.timeline import Timeline, of_window
from nightsight.results.gpu import FUSED_KERNELS
from nightsight.tables import Frame, time_summary
from nightsight.units import format_value

_MOST_NAMED: Final = 12
_LEAST_PCT: Final = 1.0


def fused_kernels(timeline: Timeline) -> Table:
    """Return one row per kernel that torch.compile wrote and GPU, the longest time first."""
    table = time_summary(of_window(timeline, "kernels", ["device", "name"]), ["device", "name"])
    table = table.astype({"name": "str"}).rename(columns={"count": "instances"})
    work = work_of_fused(timeline)
    is_known = table["name"].isin(work.index)
    fused = table[is_known].join(work, on="name")
    peaks = gpu_peaks(timeline).frame if "devices" in timeline.profile.tables else Frame(columns=["device"])
    peaks = peaks.drop_duplicates("device").set_index("device").reindex(columns=["memory_bytes_per_s"])
    memory = fused["device"].map(peaks["memory_bytes_per_s"]).to_numpy(dtype=np.float64, na_value=np.nan)
    seconds = fused["avg_ns"].where(fused["avg_ns"] > 0) / 1e9
    rate = fused["data_bytes"] / seconds
    fused = fused.assign(
        data_bytes_per_s=rate, memory_pct=100.0 * rate / memory, work_flop_per_s=fused["work_flop"] / seconds
    )
    fused = fused.sort_values(["total_ns", "name", "device"], ascending=[False, True, True], ignore_index=True)
    return Table(fused[list(FUSED_KERNELS.column_names)], tuple(_unlogged_notes(table, is_known)))


def work_of_fused(timeline: Timeline) -> Frame:
    """Return operators, places, kernels, data_bytes and work_flop of the kernels that torch.compile wrote, by name."""
    table = timeline.profile.recorded("fused_kernels")
    columns = {"data_bytes": table["read_bytes"] + table["written_bytes"], "work_flop": table["flop"]}
    amounts = {name: column.to_numpy(dtype=np.float64, na_value=np.nan) for name, column in columns.items()}
    texts = {name: table[name].astype("str") for name in ("name", "operators", "places")}
    # each rank of a job has its own rows
    by_name = pd.DataFrame({**texts, **amounts}).drop_duplicates().groupby("name", sort=False)
    # amounts that differ, or that one of the kernels lacks, are unknown
    equal = {
        name: by_name[name].first().where((by_name[name].nunique() == 1) & (by_name[name].count() == by_name.size()))
        for name in amounts
    }
    return pd.DataFrame(
        {
            "operators": by_name["operators"].agg(lambda lists: _listed(_union(lists))).astype("str"),
            "places": by_name["places"].agg(lambda lists: _listed(_by_function(_union(lists)))).astype("str"),
            "kernels": by_name.size(),
            **equal,
        }
    )


def _union(lists: Iterable[str]) -> list[str]:
    """Return the names in several lists, each once."""
    return list(dict.fromkeys(name for text in lists for name in text.split(", ") if name))


def _by_function(places: Iterable[str]) -> list[str]:
    """Return places with the lines of a function together: `forward (model.py:42, 44)`."""
    lines: dict[str, list[str]] = {}
    for place in places:
        start, _, line = place.removesuffix(")").rpartition(":")
        lines.setdefault(start or place, []).append(line if start else "")
    return [
        f"{start}:{', '.join(sorted(of, key=_number_of_line))})" if any(of) else start for start, of in lines.items()
    ]


def _number_of_line(line: str) -> int:
    return int(line) if line.isdecimal() else 0


def _listed(names: list[str]) -> str:
    """Return names as text, without those after the first dozen."""
    # how many more is unknown: the file next to a capture has few names of each kernel
    return ", ".join([*names[:_MOST_NAMED], *["and more"] * (len(names) > _MOST_NAMED)])


def _unlogged_notes(kernels: Frame, is_known: "pd.Series[bool]") -> Iterable[str]:
    unknown = kernels["name"].str.match(INDUCTOR) & ~is_known
    share = 100.0 * kernels.loc[unknown, "total_ns"].sum() / max(kernels["total_ns"].sum(), 1)
    if share >= _LEAST_PCT:
        yield (
            f"{format_value(share, 'time_pct')} of the time is of other kernels that torch.compile wrote: its log does "
            "not have them, because the program loaded them from elsewhere."
        )


ANALYSES: Final = (Analysis(FUSED_KERNELS, fused_kernels),)
