"""The table layout of each result: its register entry, and functions that rearrange rows and shorten names."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from nightsight.errors import CaptureError
from nightsight.events.kernel_labels import NAME_LENGTH, KernelLabels
from nightsight.events.ranges import LEAST, NUMBER
from nightsight.model.report import MAKE_AGAIN, Report, Result
from nightsight.render.table import replayed
from nightsight.render.table.grouped import preorder
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
from nightsight.results.rules import RULE
from nightsight.tables import FUNCTION, MODULE, Frame
from nightsight.texts import printable
from nightsight.units import heading, of_operations


def layout_of(result: Result, framework: str = "") -> Layout:
    """Return the layout of a result; one without an entry (from another version) is laid out by its columns.

    framework: that of the program, in whose terms fixes are named.
    """
    entry = entry_of(result.name)
    if entry is None:
        columns = list(result.rows.columns) or ["name"]
        name = "name" if "name" in columns else str(columns[0])
        return Layout("rows", heading(name), name)
    # the figures of replays need room, and operators more
    in_place_of = {"limiter": ("min_ns", "stddev_ns"), "places": ("min_ns", "stddev_ns", "med_ns", "max_ns")}
    added = [name for name in in_place_of if entry is CUDA_GPU_KERN_SUM and name in result.rows]
    return Layout(
        entry.rows,
        entry.header,
        entry.named_by,
        full=entry.full,
        bars=entry.bars,
        minor=(*entry.minor, *map(of_operations, entry.minor), *(more for name in added for more in in_place_of[name])),
        prepare=lambda frame: _prepare(entry, frame, framework),
        shorten=printable if entry is DIAGNOSTICS else short_text,
        is_folded=entry.is_folded,
        timeline=entry.jump,
        names=entry.names,
        numbered=entry.numbered,
        # other columns have less room for a name than the first
        kernels={name: NAME_LENGTH if name == entry.named_by else replayed.BRIEF for name in entry.kernels},
    )


def with_ranks(layout: Layout, report: Report, rows: Frame) -> Layout:
    """Return a layout that names GPUs as in the report: with the heading `Rank` above the numbers of ranks."""
    devices = rows["device"].dropna().unique().tolist() if "device" in rows else []
    if not devices or "rank" in rows or any(report.ranks.get(str(device)) != device for device in devices):
        return layout
    if layout.name == "device":
        return replace(layout, header="Rank")
    return replace(layout, titles={**layout.titles, "device": "Rank"})


def labels_of(results: Iterable[Result]) -> KernelLabels:
    """Return the labels of all kernels that occur in results."""
    columns = (
        result.rows[name]
        for result in results
        # the critical path also names functions and copies, and its kernels are in other results
        if (entry := entry_of(result.name)) and entry is not CRITICAL_PATH
        for name in entry.kernels
        if name in result.rows
    )
    return KernelLabels(name for column in columns for name in column.dropna().astype("str").drop_duplicates())


def refuse_incomplete(report: Report) -> None:
    """Raise CaptureError if a result of a report.json lacks a required column of its entry."""
    for result in report.results:
        entry = entry_of(result.name)
        needed = {column.name for column in entry.columns if not column.is_optional} if entry else set()
        if len(result.rows) and (missing := needed - set(result.rows.columns)):
            names = ", ".join(sorted(missing))
            raise CaptureError(f"not a nightsight report.json: the result {result.name} lacks {names}", MAKE_AGAIN)


def _prepare(entry: Entry, frame: Frame, framework: str) -> Frame:
    """Drop optional columns in which all rows have the same value, and rearrange the others."""
    frame = frame.drop(columns=[name for name in entry.constant if name in frame and frame[name].nunique() <= 1])
    if entry is WHAT_IF:
        return _fixes(frame, framework)
    return _PREPARED[entry.name](frame) if entry.name in _PREPARED else frame


def _name_operations(frame: Frame) -> Frame:
    """Replace the operation and memory kinds by one name."""
    return frame.drop(columns=["operation", "source_kind", "target_kind"]).assign(name=operation_names(frame))


def _waits(frame: Frame) -> Frame:
    """Drop the columns on repetitions and other waits if no row has any."""
    unused = [name for name in ("steps", "of_steps", "other_waits") if name in frame and not frame[name].any()]
    return frame.drop(columns=unused)


def _without_idle_work(frame: Frame) -> Frame:
    """Drop the window, which is the same for all devices, and the kinds of work that no device executed."""
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
    names = domain.where(domain == "", domain + ":") + frame["name"].astype("str")
    unused = ["domain"] if (frame["category"] != "").any() else ["domain", "category"]
    return frame.assign(name=names).drop(columns=unused)


def _ranks(frame: Frame) -> Frame:
    """Drop the GPU number if it equals the rank, as in a job of several captures."""
    return frame.drop(columns="device") if (frame["device"] == frame["rank"]).all() else frame


_Range = tuple[object, str]  # the process and the path of a range


def _tree(frame: Frame) -> Frame:
    """Arrange ranges as a tree, each named by the last part of its path; drop columns that add nothing.

    Siblings that ran once, and whose names differ in numbers only, are repetitions: they are one row, `iteration #`.
    """
    frame = _merged(frame, _general_paths(frame, *_parents(frame)))
    ranges, parents = _parents(frame)
    names = [_name(item, parent) for item, parent in zip(ranges, parents, strict=True)]
    unused = ["path"]
    if frame["style"].nunique() == 1:
        unused.append("style")
    # with one instance each, median, minimum and maximum all repeat the total
    if (frame["instances"] == 1).all():
        unused += ["cpu_med_ns", "cpu_min_ns", "cpu_max_ns"]
    # of equal ranges, which only a damaged report has, the first is the parent
    row_of = {item: row for row, item in reversed(list(enumerate(ranges)))}
    parent_rows = [-1 if parent is None else row_of[parent] for parent in parents]
    # siblings stay in their order
    rows, depths = preorder(parent_rows, range(len(frame), 0, -1))
    return frame.assign(name=names).drop(columns=unused, errors="ignore").iloc[rows].assign(level=depths)


def _parents(frame: Frame) -> tuple[list[_Range], list[_Range | None]]:
    """Return the ranges of rows, and the parent of each."""
    paths = frame["path"].astype("str").fillna("").tolist()
    ranges = list(zip(frame["pid"].tolist() if "pid" in frame else [0] * len(frame), paths, strict=True))
    levels = dict(zip(ranges, frame["level"].fillna(0).tolist(), strict=True))
    return ranges, [_parent(item, levels) for item in ranges]


def _name(item: _Range, parent: _Range | None) -> str:
    # + 3 skips the separator between a path and its last part
    return item[1] if parent is None else item[1][len(parent[1]) + 3 :]


def _general_paths(frame: Frame, ranges: Sequence[_Range], parents: Sequence[_Range | None]) -> list[str]:
    """Return the path of each row, with `#` for the numbers of the outermost repetitions in it."""
    names = [re.sub(NUMBER, "#", _name(item, parent)) for item, parent in zip(ranges, parents, strict=True)]
    can_repeat = ((frame["instances"] == 1) & ~frame["style"].astype("str").isin([MODULE, FUNCTION])).tolist()
    siblings = list(zip((item[0] for item in ranges), parents, names, strict=True))
    counts = Counter(key for key, is_single in zip(siblings, can_repeat, strict=True) if is_single)
    general: dict[_Range, str] = {}
    for item, parent, key, is_single in sorted(
        zip(ranges, parents, siblings, can_repeat, strict=True), key=lambda row: len(row[0][1])
    ):
        above = general[parent] if parent else ""
        is_repeated = is_single and counts[key] >= LEAST and (not parent or above == parent[1])
        name = key[2] if is_repeated else _name(item, parent)
        general[item] = f"{above} / {name}" if parent else name
    return [general[item] for item in ranges]


def _merged(frame: Frame, paths: Sequence[str]) -> Frame:
    """Return rows with the same process and path as one; sums, except for what is not a sum."""
    if len(set(paths)) == len(paths):
        return frame
    keys = [name for name in ("pid", "path") if name in frame]
    kinds = {"style": "first", "level": "first", "cpu_med_ns": "median", "cpu_min_ns": "min", "cpu_max_ns": "max"}
    rows = frame.assign(path=paths, cpu_med_ns=frame["cpu_med_ns"].where(frame["instances"] == 1)).groupby(
        keys, sort=False, observed=True
    )
    merged = rows.agg({name: kinds.get(str(name), "sum") for name in frame if name not in keys}).reset_index()
    return merged[[*frame]]


def _parent(item: _Range, levels: Mapping[_Range, int]) -> _Range | None:
    """Return the parent of a range: the longest prefix of its path that is one level up, else the longest further up.

    The level decides, because a name can itself contain the separator. The parent of a module is further up, because
    its path does not contain the enclosing modules.
    """
    (process, path), further_up = item, None
    while " / " in path:
        path = path.rpartition(" / ")[0]
        level = levels.get((process, path))
        if level == levels[item] - 1:
            return process, path
        if further_up is None and level is not None and level < levels[item]:
            further_up = process, path
    return further_up


def _fixes(frame: Frame, framework: str) -> Frame:
    """Name fixes as in the ladder, and drop the kernels, which are in the evidence of the advice."""
    rules = frame["rule"].astype("str")
    actions = rules.map(lambda name: RULE[name].action_in(framework) if name in RULE else name)
    return frame.drop(columns="kernels", errors="ignore").assign(rule=actions)


_PREPARED: Final[Mapping[str, Callable[[Frame], Frame]]] = {
    GPU_TIME.name: _without_idle_work,
    MEMORY_OPERATIONS.name: _name_operations,
    NCU_KERNELS.name: replayed.kernels,
    NCU_RULES.name: replayed.rules,
    NCU_ROOFLINE.name: replayed.points,
    NCU_ROOFS.name: replayed.roofs,
    NCU_STALLS.name: replayed.by_reason,
    NCU_INSTRUCTIONS.name: replayed.by_kind,
    NCU_SOURCE.name: replayed.hottest,
    OPERATOR_ROOFLINE.name: partial(replayed.of_arithmetic, kinds="kind"),
    OPERATOR_ROOFS.name: partial(replayed.of_arithmetic, kinds="roof"),
    NVTX_RANGES.name: _tree,
    NVTX_MARKS.name: _marks,
    RANKS.name: _ranks,
    CUDA_API_SYNC.name: _waits,
    SETUP_CALLS.name: _waits,
}
