"""Nests and labels ranges, and finds repetitions: ranges whose names differ only in numbers.

A range inside a CUDA graph is open while the graph is captured. Its kernels run in each replay of the graph, so each
replay gets a copy of the range, inside the range that launches the graph.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.graph_nodes import NodeOrigins, joined_origins, node_origins
from nightsight.events.launches import launching_calls
from nightsight.intervals import Flags, Ints
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import MODULE, TEXT, categorical, conform, innermost_of, levels, nearest, nest

# matches `step 7` and `step_7`, but not `h2d` or the layers `fc1` and `fc2`; also used by the page, in JavaScript
NUMBER: Final = "(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])"
_TEXTS: Final = ("domain", "name", "style")
LEAST: Final = 3
"""A path is repeated if it occurs at least this often in a process."""
DEEPEST: Final = 64
DEEPER: Final = "… (deeper)"
"""Ranges more than DEEPEST levels deep share one name."""


def without_numbers(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Replace standalone numbers by `#`, so that repetitions get the same name (or path of names)."""
    return names.str.replace(NUMBER, "#", regex=True)


@memoize
def general_paths(profile: Profile) -> "pd.Index[Any]":
    """Return the paths of `nested_ranges` without numbers, by their code there."""
    return without_numbers(nested_ranges(profile)["path"].cat.categories)


@memoize
def nested_ranges(profile: Profile) -> pd.DataFrame:
    """Return the capture's ranges as `nested` does, then those in replays of CUDA graphs; no rows if not traced.

    `in_graph`: which are in replays. These begin and end with the launch of the graph, and take no CPU time.
    """
    return _ranges_and_owners(profile)[0]


@memoize
def recorded_ranges(profile: Profile) -> pd.DataFrame:
    """Return the capture's ranges as `nested` does: the first rows of `nested_ranges`."""
    return nested(profile.recorded("ranges"))


def owners_in_graphs(profile: Profile) -> Ints:
    """Return for each GPU operation the row in `nested_ranges` of its range in the replay of a graph, -1 for none."""
    return _ranges_and_owners(profile)[1]


def ranges_at(profile: Profile, thread: Ints, process: Ints, time: Ints) -> tuple[Ints, Flags]:
    """Return the range of threads at times, as a row in `nested_ranges` or -1, and whether it is via the thread.

    It is the innermost range open on the thread, else the innermost open in its process.
    """
    return _ranges_at(recorded_ranges(profile), thread, process, time)


def _ranges_at(ranges: pd.DataFrame, thread: Ints, process: Ints, time: Ints) -> tuple[Ints, Flags]:
    row = innermost_of(ranges, thread, time)
    on_thread = row >= 0
    unowned = np.flatnonzero(~on_thread)
    row[unowned] = innermost_of(ranges, process[unowned], time[unowned], by="process")
    return row, on_thread


@memoize
def _ranges_and_owners(profile: Profile) -> tuple[pd.DataFrame, Ints]:
    """Return all ranges, and for each GPU operation its range in the replay of a graph."""
    recorded = recorded_ranges(profile)
    ranges = recorded.assign(in_graph=np.zeros(len(recorded), dtype=bool))
    owner = np.full(len(launching_calls(profile)), -1, dtype=np.int64)
    sources = [(profile, node_origins(profile))]
    sources += [(profile.graphs, joined_origins(profile))] if profile.graphs else []
    for recording, origins in sources:
        replays, operation, place = _replays(profile, recorded_ranges(recording), origins)
        if not len(operation):
            continue
        # parents in the replay are counted from its first row
        inner, launching = replays["inner"].to_numpy(), replays["parent"].to_numpy()
        replays = replays.assign(parent=np.where(inner >= 0, len(ranges) + inner, launching), in_graph=True)
        owner[operation] = len(ranges) + place
        replays = replays.drop(columns="inner")
        ranges = pd.concat([ranges[replays.columns], replays], ignore_index=True)
        # two captures have different names
        ranges = ranges.astype(dict.fromkeys(_TEXTS, TEXT))
    if len(ranges) == len(recorded):
        return ranges, owner
    return _with_paths(_limit_depth(ranges.assign(level=levels(ranges["parent"].to_numpy())))), owner


def _replays(profile: Profile, captured: pd.DataFrame, origins: NodeOrigins) -> tuple[pd.DataFrame, Ints, Ints]:
    """Return the ranges of replays, the operations inside them, and the range of each.

    captured: the ranges that were open when the graphs were made, as `nested` returns them. Of a range of a replay,
    `inner` is the row of the range around it, -1 for none, and `parent` then the range that launches the graph.
    """
    call, count = launching_calls(profile), len(captured)
    operation = np.flatnonzero((origins.time >= 0) & (call >= 0))
    row, _ = _ranges_at(captured, *(column[operation] for column in (origins.thread, origins.process, origins.time)))
    # ranges that were open before the capture belong to the program around it
    since = origins.since[operation]
    is_inside = (row >= 0) & (np.append(captured["start_ns"].to_numpy(), 0)[row] >= since)
    operation, row, since = operation[is_inside], row[is_inside], since[is_inside]
    if not len(operation):
        return captured[:0], operation, operation
    keys = _with_open_around(captured, call[operation] * count + row, since)
    of_call, of_row = np.divmod(keys, count)
    above = captured["parent"].to_numpy()[of_row]
    place = np.minimum(np.searchsorted(keys, of_call * count + above), len(keys) - 1)
    has_parent = (above >= 0) & (keys[place] == of_call * count + above)
    calls = profile.table("api_calls").iloc[of_call]
    launching, _ = ranges_at(profile, *(calls[name].to_numpy() for name in ("thread", "process", "start_ns")))
    replays = conform(
        "ranges",
        captured.iloc[of_row]
        .drop(columns=["end_thread", "number"])
        .assign(
            **{name: calls[name].to_numpy() for name in ("start_ns", "thread", "process", "pid", "tid")},
            end_ns=calls["start_ns"].to_numpy(),
            is_open=False,
        ),
    ).assign(parent=launching, inner=np.where(has_parent, place, -1))
    return replays, operation, np.searchsorted(keys, call[operation] * count + row)


def _with_open_around(ranges: pd.DataFrame, key: Ints, since: Ints) -> Ints:
    """Return the keys of replays (call * number of ranges + row of the range), with the ranges around these, sorted.

    Only ranges that began after `since`, when the capture began, belong to the replay.
    """
    parent, start, keys = ranges["parent"].to_numpy(), np.append(ranges["start_ns"].to_numpy(), 0), []
    while len(key):
        key, first = np.unique(key, return_index=True)
        since = since[first]
        keys.append(key)
        call, row = np.divmod(key, len(ranges))
        above = parent[row]
        is_kept = (above >= 0) & (start[above] >= since)
        key, since = call[is_kept] * len(ranges) + above[is_kept], since[is_kept]
    return np.unique(np.concatenate(keys))


def nested(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return ranges with `parent`, `level` and `path`: the names from the root (`step / forward`), as a category.

    The name of a module is its path in the model, so that enclosing modules are not repeated (`step / layers.3.mlp`).
    Ranges more than DEEPEST levels deep become children of their ancestor on the last level, all with the same name,
    which limits the length of paths.
    """
    return _with_paths(_limit_depth(nest(ranges)))


def _with_paths(ranges: pd.DataFrame) -> pd.DataFrame:
    own, names = range_labels(ranges)
    own, names = np.where(is_deeper(ranges), len(names), own), np.append(names, DEEPER)
    parent, level = (ranges[name].to_numpy() for name in ("parent", "level"))
    parent = _enclosing(parent, (ranges["style"] == MODULE).to_numpy())
    # parent -1, of roots, finds the last entry of `path`: it refers to the first text, the empty one
    path, texts = np.zeros(len(ranges) + 1, dtype=np.int64), np.array([""], dtype=object)
    by_level = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    for rows in by_level:
        # one key per distinct (path of the parent, own name), so each text is built once per level
        codes, distinct = pd.factorize(path[parent[rows]] * len(names) + own[rows])
        path[rows] = len(texts) + codes
        above, name = np.divmod(distinct, max(len(names), 1))
        texts = np.append(texts, np.where(above > 0, texts[above] + " / ", "") + names[name])
    return ranges.assign(path=categorical(texts[1:], path[:-1] - 1))


def _enclosing(parent: Ints, is_module: Flags) -> Ints:
    """Return the parent of each range; for modules, the innermost enclosing range that is not a module."""
    return np.where(is_module, nearest(parent, is_module), parent)


def _limit_depth(ranges: pd.DataFrame) -> pd.DataFrame:
    """Make ranges more than DEEPEST levels deep children of their ancestor on the last of these levels."""
    deeper = is_deeper(ranges)
    if not deeper.any():
        return ranges
    parent = ranges["parent"].to_numpy()
    ancestor = np.where(deeper, nearest(parent, deeper), parent)
    return ranges.assign(parent=ancestor, level=ranges["level"].clip(upper=DEEPEST))


def is_deeper(ranges: pd.DataFrame) -> Flags:
    """Return which ranges are more than DEEPEST levels deep."""
    return np.asarray(ranges["level"] >= DEEPEST, dtype=bool)


def range_labels(ranges: pd.DataFrame) -> tuple[Ints, np.ndarray[Any, Any]]:
    """Return the position of each label in the distinct labels, and the distinct labels: `domain:name`, or the name.

    Marks are labeled in the same way.
    """
    domains, names = ranges["domain"].cat, ranges["name"].cat
    keys = domains.codes.to_numpy(dtype=np.int64) * len(names.categories) + names.codes.to_numpy()
    codes, distinct = pd.factorize(keys)
    domain, name = np.divmod(distinct, max(len(names.categories), 1))
    prefixes = np.array([domain and f"{domain}:" for domain in domains.categories], dtype=object)
    return codes, prefixes[domain] + names.categories.to_numpy(dtype=object)[name]


@memoize
def repetitions(profile: Profile) -> pd.DataFrame:
    """Return `nested_ranges` with the result of `count_instances`."""
    return count_instances(nested_ranges(profile))


def count_instances(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return nested ranges with `#` for numbers in `path`, and `instances`: the number of them in the process."""
    paths = ranges["path"].cat
    path = categorical(without_numbers(paths.categories).to_numpy(dtype=object), paths.codes.to_numpy())
    counts = ranges.assign(path=path).groupby(["process", "path"], observed=True)["path"].transform("size")
    return ranges.assign(path=path, instances=counts)
