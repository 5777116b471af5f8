"""Tables of kernels that Nsight Compute replayed; each launch has the same number in all sections."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PureWindowsPath
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import normalized
from nightsight.events.peaks import LIMITED_PCT
from nightsight.model.report import Result, find
from nightsight.render.table.view import floats, with_values
from nightsight.results.entry import Entry
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS
from nightsight.tables import Frame
from nightsight.units import arithmetic

PREFIX: Final = "ncu_"
LATENCIES: Final = "latencies"
"""The limiter of a launch that does not use any unit of the GPU to more than `LIMITED_PCT`."""
BRIEF: Final = 44
"""The length limit of kernel names in pictures, and in columns other than the first."""
_INTERNAL: Final = ("gpu_total_ns", "busiest_gpu_ns")
_FIRST: Final = (
    "name",
    "grid",
    "block",
    "gpu_pct",
    "launches",
    "timeline_med_ns",
    "replay_ns",
    "sm_pct",
    "memory_pct",
    "dram_pct",
    "occupancy_pct",
    "limited_by",
)
_FIGURES: Final = {"sm_pct": "sm_pct", "dram_pct": "dram_pct", "limited_by": "limiter"}
HEADINGS: Final = {
    "theoretical_pct": "theoretical_occupancy_pct",
    # readers expect a limiter to limit the kernel, not its occupancy
    "limiter": "occupancy_limit",
    "limited_by": "limiter",
    "peak_pct": "of_roof_pct",
    "flop_per_s": "rate_flop_per_s",
    "flop_per_byte": "per_DRAM_byte_flop_per_byte",
    "l2_flop_per_byte": "per_L2_byte_flop_per_byte",
    "stall_pct": "share_pct",
}
_KINDS: Final = {"info": "verdict", "optimization": "advice"}


def number_launches(results: Sequence[Result]) -> tuple[Result, ...]:
    """Prefix the name of each launch with a number, from 1, in order of first appearance in the results."""
    numbers: dict[object, int] = {}

    def with_numbers(frame: Frame) -> Frame:
        # NaN is not equal to itself, so None represents all launches without an id
        launches = (None if pd.isna(launch) else launch for launch in frame["launch"])
        prefixes = [f"{numbers.setdefault(launch, len(numbers) + 1)}. " for launch in launches]
        names = pd.Series(prefixes, frame.index, "str") + frame["name"].astype("str").fillna("")
        return frame.assign(name=names).drop(columns="launch")

    return tuple(
        replace(result, table=with_numbers(result.rows))
        if result.name.startswith(PREFIX) and {"launch", "name"} <= set(result.rows.columns)
        else result
        for result in results
    )


def with_figures(results: Sequence[Result]) -> Sequence[Result]:
    """Add limiters to replayed kernels, and figures of the replay with the most time to *Kernel time*."""
    results = _with_limits(results)
    replays = _rows_of_entry(results, NCU_KERNELS)
    if not len(replays):
        return results
    order = [name for name in ("gpu_pct", "replay_ns") if name in replays and replays[name].notna().any()]
    if order:
        replays = replays.sort_values(order, ascending=False, kind="stable")
    kernels = replays["name"].astype("str").map(normalized)
    figures = replays.assign(kernel=kernels).drop_duplicates("kernel").set_index("kernel")
    figures = figures[[name for name in _FIGURES if name in figures and figures[name].notna().any()]]
    figures = figures.rename(columns=_FIGURES)
    return tuple(
        _with_replays(result, figures) if result.name == CUDA_GPU_KERN_SUM.name else result for result in results
    )


def _with_limits(results: Sequence[Result]) -> Sequence[Result]:
    limits = _rows_of_entry(results, NCU_LIMITS)
    if not {"launch", "unit", "used_pct"} <= set(limits.columns):
        return results
    pairs = zip(limits["unit"].astype("str"), floats(limits["used_pct"]), strict=True)
    limiters = pd.Series([limiter(unit, used) for unit, used in pairs], limits["launch"], "str")
    limiters = limiters[~limiters.index.duplicated()]
    note = "Limiter: what prevents the launch from being shorter, see Limits of kernels."
    return tuple(
        replace(
            result,
            table=result.rows.assign(limited_by=result.rows["launch"].map(limiters).fillna("").astype("str")),
            notes=(*result.notes, note),
        )
        if result.name == NCU_KERNELS.name and "launch" in result.rows
        else result
        for result in results
    )


def limiter(unit: str, used_pct: float) -> str:
    """Return the limiter of a launch: its busiest unit, or latencies if that is not busy enough; "" if unknown."""
    if np.isnan(used_pct):
        return ""
    return unit if used_pct >= LIMITED_PCT else LATENCIES


def _rows_of_entry(results: Sequence[Result], entry: Entry) -> Frame:
    result = find(results, entry.name)
    return Frame() if result is None else result.rows


def _with_replays(result: Result, figures: Frame) -> Result:
    if result.table is None or not len(result.rows):
        return result
    kernels = result.rows["name"].astype("str").map(normalized)
    of_kernels = figures.reindex(kernels.to_numpy()).set_index(result.rows.index)
    if not of_kernels.notna().any(axis=None):
        return result
    note = (
        "SM, DRAM and limiter are those of the kernel's replay by Nsight Compute, of several the one that represents "
        "the most time: see Replayed kernels."
    )
    return replace(result, table=pd.concat([result.rows, of_kernels], axis=1), notes=(*result.notes, note))


def number_of(name: str) -> str:
    """Return the number that a kernel's name starts with, "" for none."""
    number, dot, _ = name.partition(". ")
    return number if dot else ""


def kernels(frame: Frame) -> Frame:
    """Order the columns: first the identification of a launch, then its summary figures, last its range path.

    Columns without any value are dropped.
    """
    columns = list(dict.fromkeys((*_FIRST, *frame.columns)))
    internal = {*_INTERNAL, *(["device"] if _is_of_one_device(frame) else [])}
    order = [name for name in columns if name in frame and name not in internal and name != "path"]
    ordered = frame[[*order, *(["path"] if "path" in frame else [])]]
    return with_values(ordered).rename(columns=HEADINGS)


def points(frame: Frame) -> Frame:
    """Rename columns so that they name the memory of their bytes (DRAM, L2); drop the device if it never differs."""
    unused = ["device"] if _is_of_one_device(frame) else []
    names = {column: arithmetic(name, _kinds(frame, "kind")) for column, name in HEADINGS.items()}
    return with_values(frame.drop(columns=unused)).rename(columns=names)


def of_arithmetic(frame: Frame, kinds: str) -> Frame:
    """Rename the columns of arithmetic if some of it is on integers. kinds: the column that says which it is."""
    return frame.rename(columns=lambda name: arithmetic(name, _kinds(frame, kinds)))


def _kinds(frame: Frame, column: str) -> Iterable[str]:
    return frame[column].astype("str") if column in frame else ()


def roofs(frame: Frame) -> Frame:
    """Rename the columns of the two kinds of roofs; drop the device if all rows have the same."""
    unused = ["device"] if _is_of_one_device(frame) else []
    names = {
        "bytes_per_s": "bandwidth_bytes_per_s",
        "flop_per_s": f"arithmetic_{arithmetic('flop_per_s', _kinds(frame, 'roof'))}",
    }
    return frame.drop(columns=unused).rename(columns=names)


def rules(frame: Frame) -> Frame:
    """Split ncu's speedup estimates into those for the launch (global) and for one unit of the GPU (local)."""
    kind = frame["speedup_kind"].astype("str")
    return Frame(
        {
            "title": frame["title"],
            "message": frame["message"],
            "bound_pct": frame["bound_pct"],
            "global_estimate_pct": frame["speedup_pct"].where(kind == "global"),
            "local_estimate_pct": frame["speedup_pct"].where(kind == "local"),
            "kind": frame["kind"].astype("str").replace(_KINDS),
            "kernel": frame["name"].astype("str"),
        }
    )


def hottest(frame: Frame) -> Frame:
    """Add the place of each row: file and line, or the address of an instruction; it replaces a missing source text."""
    places = [_place(row) for row in frame[["file", "line", "pc"]].to_dict("records")]
    place, source = pd.Series(places, frame.index, dtype="str"), frame["source"].astype("str")
    return Frame(
        {
            "source": source.where(source != "", place),
            "share_pct": frame["share_pct"],
            "samples": frame["samples"],
            "stall": frame["stall"],
            "place": place,
            "kernel": frame["name"].astype("str"),
        }
    )


def _place(row: Mapping[Any, Any]) -> str:
    """Return `file.py:12` without folders (Linux or Windows), or `0x2790`; "" if there is neither."""
    file = str(row["file"]) if pd.notna(row["file"]) else ""
    if file and pd.notna(row["line"]):
        return f"{PureWindowsPath(file).name}:{int(row['line'])}"
    return "" if pd.isna(row["pc"]) else f"{int(row['pc']):#x}"


def by_reason(frame: Frame) -> Frame:
    """One row per launch, one column per stall reason (percent); the most frequent reasons first."""
    names = frame["name"].astype("str")
    # sort=False keeps the launches in their order
    table = frame.assign(name=names).pivot_table("stall_pct", "name", "reason", "sum", sort=False)
    table = table[table.sum().sort_values(ascending=False, kind="stable").index]
    columns = [f"{reason.replace(' ', '_')}_pct" for reason in table.columns]
    return table.set_axis(columns, axis="columns").reset_index()


def by_kind(frame: Frame) -> Frame:
    """One row per launch, one column per kind of instruction (percent); unused kinds are dropped."""
    kinds = [name for name in frame.columns if name.endswith("_pct")]
    unused = [name for name in kinds if not (floats(frame[name]) > 0).any()]
    return frame.drop(columns=unused)


def _is_of_one_device(frame: Frame) -> bool:
    return "device" in frame and frame["device"].nunique() <= 1
