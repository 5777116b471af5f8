"""The table layout of each result: its register entry, plus how rows are rearranged and names are shortened."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.events.kernel_labels import NAME_LENGTH, Labels
from nightsight.model.report import MAKE_AGAIN, Report, Result
from nightsight.render.table import replayed
from nightsight.render.table.view import Layout, operation_names, short_text
from nightsight.results import entry_of
from nightsight.results.capture import DIAGNOSTICS
from nightsight.results.causes import WHAT_IF
from nightsight.results.entry import Entry
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, MEMORY_OPERATIONS
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME
from nightsight.results.ncu import (
    NCU_INSTRUCTIONS,
    NCU_KERNELS,
    NCU_ROOFLINE,
    NCU_ROOFS,
    NCU_RULES,
    NCU_SOURCE,
    NCU_STALLS,
)
from nightsight.results.operator_roofline import OPERATOR_ROOFLINE, OPERATOR_ROOFS
from nightsight.results.program import CUDA_API_SYNC, SETUP_CALLS
from nightsight.results.ranges import NVTX_MARKS, NVTX_RANGES
from nightsight.results.ranks import RANKS
from nightsight.texts import printable
from nightsight.units import heading, of_operations

Frame = pd.DataFrame


def layout_of(result: Result) -> Layout:
    """Return the layout of a result; one without an entry (from another version) is laid out by its columns."""
    entry = entry_of(result.name)
    if entry is None:
        columns = list(result.rows.columns) or ["name"]
        name = "name" if "name" in columns else str(columns[0])
        return Layout("rows", heading(name), name)
    return Layout(
        entry.rows,
        entry.header,
        entry.named_by,
        full=entry.full,
        bars=entry.bars,
        minor=(*entry.minor, *map(of_operations, entry.minor), *_crowded_out(result)),
        prepare=lambda frame: _prepare(entry, frame),
        shorten=_SHORTENED.get(entry.name, short_text),
        is_folded=entry.is_folded,
        timeline=entry.jump,
        names=entry.names,
        numbered=entry.numbered,
        # other columns have less room for a name than the first
        kernels={name: NAME_LENGTH if name == entry.named_by else replayed.BRIEF for name in entry.kernels},
    )


def _crowded_out(result: Result) -> tuple[str, ...]:
    """Return the columns of *Kernel time* that are hidden at first, to make room for the figures of replays."""
    has_figures = result.name == CUDA_GPU_KERN_SUM.name and "limiter" in result.rows
    return ("min_ns", "stddev_ns") if has_figures else ()


def with_ranks(layout: Layout, report: Report, rows: Frame) -> Layout:
    """Return a layout that names GPUs as in the report: with the heading `Rank` above the numbers of ranks."""
    devices = rows["device"].dropna().unique().tolist() if "device" in rows else []
    if not devices or "rank" in rows or any(report.ranks.get(str(device)) != device for device in devices):
        return layout
    if layout.name == "device":
        return replace(layout, header=_RANK)
    return replace(layout, titles={**layout.titles, "device": _RANK})


_RANK: Final = "Rank"


def labels_of(results: Iterable[Result]) -> Labels:
    """Return the labels of all kernels that occur in results."""
    # the critical path names functions and copies, too, and its kernels are in other results
    with_entries = [
        (result, entry) for result in results if (entry := entry_of(result.name)) and entry is not CRITICAL_PATH
    ]
    columns = (result.rows[name] for result, entry in with_entries for name in entry.kernels if name in result.rows)
    names = (column.dropna().astype("str") for column in columns)
    return Labels(name for values in names for name in values.drop_duplicates())


def refuse_incomplete(report: Report) -> None:
    """Raise CaptureError if a result of a report.json lacks a required column of its entry."""
    for result in report.results:
        entry = entry_of(result.name)
        needed = {column.name for column in entry.columns if not column.is_optional} if entry else set()
        if len(result.rows) and (lacking := needed - set(result.rows.columns)):
            names = ", ".join(sorted(lacking))
            raise CaptureError(f"not a nightsight report.json: the result {result.name} lacks {names}", MAKE_AGAIN)


def _prepare(entry: Entry, frame: Frame) -> Frame:
    """Drop optional columns in which all rows have the same value, and rearrange the rest."""
    agreed = [name for name in entry.constant if name in frame and frame[name].nunique() <= 1]
    frame = frame.drop(columns=agreed)
    return _PREPARED[entry.name](frame) if entry.name in _PREPARED else frame


def _name_operations(frame: Frame) -> Frame:
    """Replace the operation and memory kinds by one name."""
    other_columns = frame.drop(columns=["operation", "source_kind", "target_kind"])
    return other_columns.assign(name=operation_names(frame))


def _waits(frame: Frame) -> Frame:
    """Drop the columns on repetitions and other waits if no row has any."""
    unused = [name for name in ("steps", "of_steps", "other_waits") if name in frame and not frame[name].any()]
    return frame.drop(columns=unused)


def _devices(frame: Frame) -> Frame:
    """Drop the window, which is the same for all devices, and the kinds of work that no device did."""
    unused = [kind for kind in _KINDS_OF_WORK if kind in frame and not frame[kind].any()]
    columns = [name for kind in unused for name in _KINDS_OF_WORK[kind]]
    return frame.drop(columns=[*columns, "window", "window_ns"], errors="ignore")


_KINDS_OF_WORK: Final = {
    "copies": ("copies", "copy_ns", "copied_bytes"),
    "sets": ("sets", "set_ns"),
    "graph_launches": ("graph_launches", "graph_ns"),
}


def _marks(frame: Frame) -> Frame:
    """Name marks `domain:name`, like ranges; drop the category if no mark has one."""
    domain = frame["domain"].astype("str")
    with_domain = frame.assign(name=domain.where(domain == "", domain + ":") + frame["name"].astype("str"))
    return with_domain.drop(columns=["domain", *([] if (frame["category"] != "").any() else ["category"])])


def _ranks(frame: Frame) -> Frame:
    """Drop the GPU number if it equals the rank, as in a job of several captures."""
    return frame.drop(columns="device") if (frame["device"] == frame["rank"]).all() else frame


def _tree(frame: Frame) -> Frame:
    """Arrange ranges as a tree, each named by the last part of its path; drop columns that add nothing."""
    paths = frame["path"].astype("str").fillna("").tolist()
    places = list(zip(frame["pid"].tolist() if "pid" in frame else [0] * len(frame), paths, strict=True))
    levels = dict(zip(places, frame["level"].fillna(0).tolist(), strict=True))
    around = [_around(place, levels) for place in places]
    # + 3 skips the separator between a path and its last part
    names = [path if above is None else path[len(above[1]) + 3 :] for path, above in zip(paths, around, strict=True)]
    idle = ["style"] if frame["style"].nunique() == 1 else []
    # with one instance each, median, minimum and maximum all repeat the total
    if (frame["instances"] == 1).all():
        idle += ["cpu_med_ns", "cpu_min_ns", "cpu_max_ns"]
    rows, depths = _preorder(places, around)
    flat = frame.assign(name=names).drop(columns=["path", *idle], errors="ignore")
    return flat.iloc[rows].assign(level=depths)


_Place = tuple[object, str]  # process and path of a range


def _around(place: _Place, levels: Mapping[_Place, int]) -> _Place | None:
    """Return the parent of a range: the longest prefix of its path that is one level up, else the longest further up.

    The level decides, because a name can itself contain the separator. The parent of a module is further up, because
    its path leaves out the enclosing modules.
    """
    (process, above), further = place, None
    while " / " in above:
        above = above.rpartition(" / ")[0]
        level = levels.get((process, above))
        if level == levels[place] - 1:
            return process, above
        if further is None and level is not None and level < levels[place]:
            further = process, above
    return further


def _preorder(places: Sequence[_Place], around: Sequence[_Place | None]) -> tuple[list[int], list[int]]:
    """Return the rows in preorder, and the depth of each; iterative, because trees can be deep."""
    inside: dict[_Place | None, list[int]] = {}
    for row, above in enumerate(around):
        inside.setdefault(above, []).append(row)
    rows, depths = [], []
    # a stack, reversed so that rows come out in their original order
    waiting = [(row, 0) for row in reversed(inside.pop(None, []))]
    while waiting:
        row, depth = waiting.pop()
        rows.append(row)
        depths.append(depth)
        waiting += [(below, depth + 1) for below in reversed(inside.pop(places[row], []))]
    return rows, depths


_PREPARED: Final[Mapping[str, Callable[[Frame], Frame]]] = {
    GPU_TIME.name: _devices,
    MEMORY_OPERATIONS.name: _name_operations,
    NCU_KERNELS.name: replayed.kernels,
    NCU_RULES.name: replayed.rules,
    NCU_ROOFLINE.name: replayed.points,
    NCU_ROOFS.name: replayed.roofs,
    NCU_STALLS.name: replayed.by_reason,
    NCU_INSTRUCTIONS.name: replayed.by_kind,
    NCU_SOURCE.name: replayed.hottest,
    OPERATOR_ROOFLINE.name: replayed.of_operators,
    OPERATOR_ROOFS.name: replayed.operator_roofs,
    NVTX_RANGES.name: _tree,
    NVTX_MARKS.name: _marks,
    RANKS.name: _ranks,
    CUDA_API_SYNC.name: _waits,
    # these are in the evidence of the advice
    WHAT_IF.name: lambda frame: frame.drop(columns="kernels", errors="ignore"),
    SETUP_CALLS.name: _waits,
}
_SHORTENED: Final[Mapping[str, Callable[[str], str]]] = {DIAGNOSTICS.name: printable}
