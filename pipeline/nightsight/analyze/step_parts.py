"""Divides a repetition of the window into ranges, the kernels in them, and idle time; each instant counts once.

If operations overlap, the first category of *Where the time went* gets the time, and operations of one category share
it equally, so the parts of a device add up to its mean step. Without GPU work, threads are divided instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import operation_owners, owners_at
from nightsight.analyze.split import Waits, device_splits, find_waits, operation_kinds
from nightsight.analyze.step_work import copy_names
from nightsight.events.categories import Categories
from nightsight.events.kernel_labels import family_of
from nightsight.events.names import GRAPH
from nightsight.events.operators import (
    all_operators,
    launching_operators,
    nested_operators,
    operator_modules,
    operator_timelines,
)
from nightsight.events.ranges import recorded_ranges, repetitions, without_numbers
from nightsight.events.timeline import Timeline, by_device
from nightsight.events.unseen import pauses
from nightsight.intervals import Codes, Flags, Floats, Ints, Spans, clipped_union, cut, gaps, shared, shares, without
from nightsight.results.categories import BUSY, DEPENDENCY, HOST, IDLE, LAUNCH, UNSEEN, group_of
from nightsight.results.steps import OPERATORS, OTHER_PARTS, STEP_PARTS
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, aggregate, nearest, positions

_CATEGORIES: Final = (*BUSY, OPERATORS, *IDLE)
_SEPARATOR: Final = " / "
_WINDOW: Final = "What the window is made of"
# shares of a step: a smaller range counts for the enclosing one, and smaller parts are merged
_LEAST_RANGE: Final = 0.001
_LEAST_PART: Final = 0.0002
_MOST_THREADS: Final = 4
_NEVER: Final = np.iinfo(np.int64).max
_OF_LAUNCHED: Final = np.isin(IDLE, (LAUNCH, DEPENDENCY))
# share of the operator time of the busiest thread
_LEAST_THREAD: Final = 0.01


@dataclass(frozen=True)
class _PartNames:
    """Names of parts, each with its family; the families of kernels are computed lazily, because that takes time."""

    names: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=list)

    def add(self, names: Iterable[str], families: Iterable[str]) -> int:
        """Add names, with "" for the families of kernels; return the position of the first one."""
        first = len(self.names)
        self.names.extend(names)
        self.families.extend(families)
        return first

    def family(self, position: int) -> str:
        """Return the family of a name."""
        return self.families[position] or family_of(self.names[position])


@dataclass(frozen=True, eq=False)
class _Parts:
    """Operations, operators or idle spans, one entry per array; `place` is a position in texts, `name` one in _Names.

    own: the time that counts for them (ns). category: a position in _CATEGORIES.
    """

    place: Codes
    category: Codes
    name: Codes
    start: Ints
    length: Ints
    own: Floats | Ints


@dataclass(frozen=True, eq=False)
class _Whole:
    """A device or thread (`key`) that is divided into parts: its bounds, repetitions, and the sums of its pieces."""

    key: Mapping[str, int]
    bounds: tuple[int, int]
    steps: int
    sums: pd.DataFrame


def step_parts(timeline: Timeline) -> Table:
    """Return the parts of each device, else of each thread with operators, in the order of the program."""
    names = _PartNames()
    wholes = list(_device_wholes(timeline, names))
    places = _operation_places(timeline)[1] if wholes else _paths(timeline)[1]
    wholes = wholes or list(_threads(timeline, names))
    title = "" if any(whole.steps for whole in wholes) else _WINDOW
    if not wholes:
        nothing = pd.DataFrame(columns=STEP_PARTS.column_names).drop(columns="tid")
        return Table(nothing, ("The window has neither GPU work nor PyTorch operators.",), title)
    table = pd.concat([_part_rows(timeline, whole, places, names) for whole in wholes], ignore_index=True)
    columns = [name for name in STEP_PARTS.column_names if name in table]
    whole_types = dict.fromkeys(("device", "steps", "longest_ns", "longest_at_ns"), NULLABLE)
    return Table(table[columns].astype(whole_types), (), title)


# -- devices ----------------------------------------------------------------------------------------------------------


def _device_wholes(timeline: Timeline, names: _PartNames) -> Iterator[_Whole]:
    """Yield the devices at work, and add the names of their operations to `names`."""
    if not {"kernels", "memory_ops"} <= timeline.profile.tables.keys() or not len(timeline.operations.start):
        return
    window, name = timeline.window, _operation_names(timeline, names)
    place = _operation_places(timeline)[0]
    for device, split in device_splits(timeline).items():
        begin, end = split.steps
        bounds = (int(begin[0]), int(end[-1])) if len(begin) else window.bounds
        if bounds[0] < bounds[1]:
            busy = _busy_pieces(timeline, bounds, place, name, device=device)
            idle = _idle_pieces(timeline, bounds, names, device=device, reasons=split.waits)
            yield _Whole({"device": device}, bounds, len(begin), _sum_pieces(chain(busy, idle), names))


def _paths(timeline: Timeline) -> tuple[Codes, list[str]]:
    """Return the path of each range, and of no range (-1), as a position in the distinct paths; and these paths."""
    paths = repetitions(timeline.profile)["path"].cat
    codes = np.append(np.asarray(paths.codes, dtype=np.int32), np.int32(len(paths.categories)))
    return codes, [*paths.categories.tolist(), OUTSIDE]


@memoize
def _operation_places(timeline: Timeline) -> tuple[Codes, list[str]]:
    """Return the place of each operation, as a position in the distinct places; and these places.

    The first places are those of `_paths`. Work of a step outside of its inner ranges is placed by PyTorch's events:
    the module, else the outermost operator.
    """
    paths, texts = _paths(timeline)
    place = paths[operation_owners(timeline)]
    operator = launching_operators(timeline)
    if not (operator >= 0).any():
        return place, texts
    enclosing, operators = _operators(timeline)
    inner = np.where(operator >= 0, np.append(enclosing, 0)[operator], 0)
    # the outermost ranges are the steps themselves
    step = timeline.window.family
    is_bare = np.array([text in (OUTSIDE, step) or text.endswith(f"{_SEPARATOR}{step}") for text in texts])
    key, distinct = pd.factorize(np.where(is_bare[place], inner, 0) * len(texts) + place)
    extended = [
        texts[old]
        if not new
        else operators[new]
        if texts[old] == OUTSIDE
        else f"{texts[old]}{_SEPARATOR}{operators[new]}"
        for new, old in (divmod(code, len(texts)) for code in distinct.tolist())
    ]
    return key + len(texts), [*texts, *extended]


def _operators(timeline: Timeline) -> tuple[Ints, list[str]]:
    """Return the module, else the outermost operator, of each row of all_operators as a position in texts; 0: none."""
    names = all_operators(timeline.profile)["name"].cat
    parts, count = [], 0
    for source in operator_timelines(timeline):
        nested, size = nested_operators(source), len(source.profile.table("cpu_ops"))
        row, is_operator = np.full(size, -1, dtype=np.int64), nested.row >= 0
        row[nested.row[is_operator]] = count + nested.row[_outermost(nested.parent, is_operator)[is_operator]]
        parts.append(row)
        count += size
    outermost = np.concatenate(parts)
    modules = operator_modules(timeline)[0]
    of_modules = np.asarray(modules.codes, dtype=np.int64)
    has_module = np.append(np.asarray(modules.categories != ""), False)[of_modules]
    texts = ["", *names.categories, *without_numbers(modules.categories)]
    operator = np.where(outermost >= 0, np.asarray(names.codes, dtype=np.int64)[outermost] + 1, 0)
    return np.where(has_module, of_modules + 1 + len(names.categories), operator), texts


def _outermost(parent: Ints, is_operator: Flags) -> Ints:
    """Return for each span the outermost operator around it that no range separates from it."""
    return nearest(parent, (parent >= 0) & np.append(is_operator, False)[parent])


def _operation_names(timeline: Timeline, names: _PartNames) -> Codes:
    """Return the name of each operation as a position in `names`, to which the distinct ones are added."""
    tables, operations = timeline.profile.tables, timeline.operations
    name = np.zeros(len(operations.start), dtype=np.int32)
    kernels, copies = tables["kernels"]["name"].array, copy_names(tables["memory_ops"], _copy)
    categories = kernels.categories.tolist()
    # added in place: the codes of pandas may be 8 bits wide, too narrow for the sum
    name[operations.of("kernels")] = kernels.codes
    name[operations.of("kernels")] += names.add(categories, [""] * len(categories))
    categories = copies.categories.tolist()
    name[operations.of("memory_ops")] = copies.codes
    name[operations.of("memory_ops")] += names.add(categories, (text.split(", ")[0] for text in categories))
    name[operations.of("graph_launches")] = names.add([GRAPH], [GRAPH])
    return name


def _copy(operation: str, source: str, target: str) -> str:
    kinds = " → ".join(kind for kind in (source, target) if kind not in ("", "Unknown"))
    return f"{operation}, {kinds}" if kinds else operation


def _busy_pieces(
    timeline: Timeline, bounds: tuple[int, int], place: Codes, name: Codes, *, device: int
) -> Iterator[_Parts]:
    """Yield the operations of a device; lazily, because they take much memory."""
    operations, category = timeline.operations, operation_kinds(timeline).kind
    of_device = by_device(timeline)[device]
    of_device = of_device[(operations.start[of_device] < bounds[1]) & (operations.end[of_device] > bounds[0])]
    start, end = np.maximum(operations.start[of_device], bounds[0]), np.minimum(operations.end[of_device], bounds[1])
    own = np.zeros(len(of_device))
    unassigned: Spans = (np.array(bounds[:1]), np.array(bounds[1:]))
    for position in range(len(BUSY)):
        has_category = category[of_device] == position
        if has_category.any():
            own[has_category] = shares(start[has_category], end[has_category], unassigned)
            unassigned = without(unassigned, clipped_union(start[has_category], end[has_category], bounds))
    yield _Parts(place[of_device], category[of_device], name[of_device], start, end - start, own)


def _idle_pieces(
    timeline: Timeline, bounds: tuple[int, int], names: _PartNames, *, device: int, reasons: Waits | None
) -> Iterator[_Parts]:
    """Yield the idle spans of a device, cut where the CPU enters or leaves a range.

    reasons: the causes of the idle time of the window, if known.
    """
    if reasons is None:
        operations, of_device = timeline.operations, by_device(timeline)[device]
        busy = clipped_union(operations.start[of_device], operations.end[of_device], bounds)
        reasons = find_waits(timeline, device=device, idle=gaps(busy, bounds))
    # the cause of an instant does not depend on the bounds
    is_here = (reasons.start < bounds[1]) & (reasons.end > bounds[0]) & (reasons.start < reasons.end)
    is_launched = _OF_LAUNCHED[reasons.cause] & (reasons.call >= 0)[reasons.piece]
    first_name, first_category = names.add(IDLE, IDLE), _CATEGORIES.index(IDLE[0])

    def clipped(spans: Ints) -> Spans:
        return np.maximum(reasons.start[spans], bounds[0]), np.minimum(reasons.end[spans], bounds[1])

    def pieces(owner: Ints, narrow: Categories, start: Ints, end: Ints) -> _Parts:
        cause, length = narrow.astype(np.int32), end - start
        return _Parts(_paths(timeline)[0][owner], cause + first_category, cause + first_name, start, length, length)

    def pieces_of(process: int, waiting: Ints) -> _Parts:
        start, end, span = cut(clipped(waiting), _edges(timeline, process))
        of = waiting[span]
        threads, processes = reasons.thread[reasons.piece[of]], np.broadcast_to(process, of.shape)
        return pieces(owners_at(timeline, threads, processes, start)[0], reasons.cause[of], start, end)

    # of each yield, nothing stays in memory
    waiting = np.flatnonzero(is_here & ~is_launched)
    waiting = waiting[np.argsort(reasons.start[waiting], kind="stable")]
    for process, places in positions(reasons.process[reasons.piece[waiting]]).items():
        yield pieces_of(process, waiting[places])
    waiting = np.flatnonzero(is_here & is_launched)
    # in a graph, the range that waits is the one that was captured
    owner = operation_owners(timeline)[reasons.operation[reasons.piece[waiting]]]
    yield pieces(owner, reasons.cause[waiting], *clipped(waiting))


def _edges(timeline: Timeline, process: int) -> Ints:
    """Return all times at which a range of a process begins or ends."""
    ranges = recorded_ranges(timeline.profile)
    is_of_process = ranges["process"].to_numpy() == process
    return np.concatenate([ranges[name].to_numpy()[is_of_process] for name in ("start_ns", "end_ns")])


# -- threads ----------------------------------------------------------------------------------------------------------


def _threads(timeline: Timeline, names: _PartNames) -> Iterator[_Whole]:
    """Yield the threads that spend the most time in operators; the family of an operator is the outermost around it."""
    window = timeline.window
    bounds = window.bounds
    if not len(timeline.profile.recorded("cpu_ops")) or window.length_ns <= 0:
        return
    nested = nested_operators(timeline)
    begin, until = (np.clip(times, *bounds) for times in (nested.start, nested.end))
    own, is_operator = nested.without_children(until - begin), nested.row >= 0
    outermost = _outermost(nested.parent, is_operator)
    name = _operator_names(timeline, outermost, names)
    idle_name = names.add([HOST, UNSEEN], [HOST, UNSEEN])
    paused = pauses(timeline.profile)
    threads = positions(_column(timeline, "thread"))
    operator_ns = {thread: int(own[rows].sum()) for thread, rows in threads.items() if thread >= 0}
    least = max(_LEAST_THREAD * max(operator_ns.values(), default=0), 1)
    busiest = sorted(operator_ns, key=lambda thread: (-operator_ns[thread], thread))[:_MOST_THREADS]
    for thread in (thread for thread in busiest if operator_ns[thread] >= least):
        rows = threads[thread]
        rows = rows[until[rows] > begin[rows]]
        process = int(nested.process[rows[0]])
        of, edges = (thread, process), _edges(timeline, process)
        first = rows[outermost[rows] == rows]
        outside = gaps(clipped_union(begin[first], until[first], bounds), bounds)
        spans = paused.get(process, (outside[0][:0], outside[0][:0]))
        (start, end, _), (low, high) = cut(without(outside, spans), edges), shared(outside, spans)
        yield _Whole(
            {"tid": int(_column(timeline, "tid")[rows[0]])},
            bounds,
            0,
            _sum_pieces(
                (
                    _thread_pieces(timeline, of, OPERATORS, name[rows], (begin[rows], until[rows], own[rows])),
                    _thread_pieces(timeline, of, HOST, idle_name, (start, end, end - start)),
                    _thread_pieces(timeline, of, UNSEEN, idle_name + 1, (low, high, high - low)),
                ),
                names,
            ),
        )


def _thread_pieces(
    timeline: Timeline, owner_of: tuple[int, int], category: str, name: Ints | int, spans: tuple[Ints, Ints, Ints]
) -> _Parts:
    """Return the pieces of a thread of a process (`owner_of`), from their starts, ends and own times."""
    (thread, process), (start, end, own) = owner_of, spans
    threads, processes, kind = (np.full(len(start), value) for value in (thread, process, _CATEGORIES.index(category)))
    row = owners_at(timeline, threads, processes, start)[0]
    name_of_span = np.broadcast_to(np.asarray(name, dtype=np.int64), start.shape)
    return _Parts(_paths(timeline)[0][row], kind, name_of_span, start, end - start, own)


def _operator_names(timeline: Timeline, outermost: Ints, names: _PartNames) -> Ints:
    """Return the name of each span of `nested_operators`, which are added to `names`; any for other spans."""
    row, operators = nested_operators(timeline).row, timeline.profile.table("cpu_ops")["name"].cat
    texts, codes = operators.categories.tolist(), np.append(np.asarray(operators.codes, dtype=np.int64), 0)
    name, distinct = pd.factorize(codes[row[outermost]] * len(texts) + codes[row])
    pairs = [divmod(key, len(texts)) for key in distinct.tolist()]
    families, inner = ([texts[pair[place]] for pair in pairs] for place in (0, 1))
    return np.asarray(name + names.add(inner, families), dtype=np.int64)


def _column(timeline: Timeline, column: str) -> Ints:
    """Return a column of cpu_ops for the spans of `nested_operators`; -1 for those that are not operators."""
    row, values = nested_operators(timeline).row, timeline.profile.table("cpu_ops")[column].to_numpy(dtype=np.int64)
    of_spans: Ints = np.where(row >= 0, values[row], -1)
    return of_spans


# -- rows -------------------------------------------------------------------------------------------------------------


def _part_rows(timeline: Timeline, whole: _Whole, places: list[str], names: _PartNames) -> pd.DataFrame:
    """Add up the pieces of a device or thread by place, category and name."""
    table = whole.sums.assign(longest_at_ns=whole.sums["longest_at_ns"] - timeline.window.start_ns)
    table["path"] = [places[place] for place in table["place"]]
    table["family"] = [names.family(name) for name in table["name"]]
    table["name"] = [names.names[name] for name in table["name"]]
    bounded = whole.bounds[1] - whole.bounds[0]
    table = _merge_rows(_fold_ranges(table, bounded), bounded)
    table = table.iloc[_tree_order(table)].reset_index(drop=True)
    steps = max(whole.steps, 1)
    categories = [_CATEGORIES[position] for position in table["category"]]
    return table.assign(
        device=whole.key.get("device"),
        **{name: key for name, key in whole.key.items() if name != "device"},
        step=timeline.window.family if whole.steps else "",
        steps=whole.steps,
        group=["busy" if category == OPERATORS else group_of(category) for category in categories],
        category=categories,
        time_ns=table["own"] / steps,
        time_pct=100.0 * table["own"] / bounded,
        hidden_ns=(table["whole"] - table["own"]).clip(lower=0) / steps,
        count=table["count"] / steps,
    )


def _sum_pieces(whole: Iterable[_Parts], names: _PartNames) -> pd.DataFrame:
    """Return rows of places, categories and names, in order; pieces are dropped as soon as they are added up.

    Consecutive pieces can have the same values, in separate rows; `_merge_rows` combines these.
    """
    # `map`, because a variable would keep the last pieces alive while the next ones are computed
    table = pd.concat(list(map(lambda pieces: _sum_by_part(pieces, len(names.names)), whole)), ignore_index=True)  # noqa: C417
    return table.sort_values(["place", "category", "name"], kind="stable", ignore_index=True)


def _sum_by_part(pieces: _Parts, names: int) -> pd.DataFrame:
    """Sum pieces with the same place, category and name; `names`: the number of names."""
    key = pieces.place.astype(np.int64)
    for count, number in ((len(_CATEGORIES), pieces.category), (names, pieces.name)):
        key *= count
        key += number
    part, keys = _numbered(key)
    del key
    place_and_category, name = np.divmod(keys, names)
    place, category = np.divmod(place_and_category, len(_CATEGORIES))
    longest, longest_at, first = np.zeros(len(keys), dtype=np.int64), *np.full((2, len(keys)), _NEVER)
    np.maximum.at(longest, part, pieces.length)
    # the first of equally long pieces, regardless of the order of rows in the capture
    is_longest = pieces.length == longest[part]
    np.minimum.at(longest_at, part[is_longest], pieces.start[is_longest])
    np.minimum.at(first, part, pieces.start)
    sums = {
        "own": np.bincount(part, pieces.own, len(keys)),
        "whole": np.bincount(part, pieces.length, len(keys)).astype(np.int64),
        "count": np.bincount(part, minlength=len(keys)),
    }
    longest_ones = {"longest_ns": longest, "longest_at_ns": longest_at}
    return pd.DataFrame({"place": place, "category": category, "name": name, **sums, **longest_ones, "first": first})


def _numbered(key: Ints) -> tuple[Codes, Ints]:
    """Return a number for each key, and the distinct keys, in any order."""
    most = int(key.max(initial=0)) + 1
    if most > len(key):
        return pd.factorize(key)
    # counting is quicker than hashing
    keys = np.flatnonzero(np.bincount(key, minlength=most))
    number = np.empty(most, dtype=np.int32)
    number[keys] = np.arange(len(keys))
    return number[key], keys


def _fold_ranges(table: pd.DataFrame, length: int) -> pd.DataFrame:
    """Merge ranges that take too little time into the enclosing range."""
    totals = dict[str, float]()
    for path, own in zip(table["path"], table["own"].tolist(), strict=True):
        for above in _prefixes(path):
            totals[above] = totals.get(above, 0.0) + own
    new_paths = {}
    for path in table["path"].unique():
        large = [above for above in _prefixes(path) if totals[above] >= _LEAST_RANGE * length]
        new_paths[path] = large[-1] if large else path if path == OUTSIDE else OTHER_PARTS
    return table.assign(path=table["path"].map(new_paths))


def _prefixes(path: str) -> list[str]:
    """Return the paths of all ranges of a path, the outermost first."""
    return list(accumulate(path.split(_SEPARATOR), lambda above, name: f"{above}{_SEPARATOR}{name}"))


def _merge_rows(table: pd.DataFrame, length: int) -> pd.DataFrame:
    """Sum rows with equal keys; the small parts of a range become one row per category."""
    sizes = table.groupby(["path", "category", "name"])["whole"].transform("sum")
    small = (sizes < _LEAST_PART * length) & (table["category"] < _CATEGORIES.index(IDLE[0]))
    table = table.assign(**{name: table[name].mask(small, OTHER_PARTS) for name in ("name", "family")})
    keys = ["path", "category", "family", "name"]
    table = table.sort_values(["longest_ns", "longest_at_ns"], ascending=[False, True], kind="stable")
    grouped = table.groupby(keys, sort=True)
    sums = aggregate(
        grouped,
        own=("own", "sum"),
        whole=("whole", "sum"),
        count=("count", "sum"),
        longest_ns=("longest_ns", "first"),
        longest_at_ns=("longest_at_ns", "first"),
        first=("first", "min"),
    )
    return sums.reset_index()


def _tree_order(table: pd.DataFrame) -> list[int]:
    """Return the order of rows as a tree: ranges by start, own parts after inner ranges, the largest first."""
    starts = dict[str, int]()
    for path, first in zip(table["path"], table["first"].tolist(), strict=True):
        for above in _prefixes(path):
            starts[above] = min(starts.get(above, first), first)
    place = {path: (*((starts[above], above) for above in _prefixes(path)), (_NEVER, "")) for path in starts}
    of_family = table.groupby(["path", "category", "family"])["own"].transform("sum").tolist()
    rows = table[["path", "category", "family", "name", "own"]].to_dict("records")

    def key(row: int) -> tuple[Any, ...]:
        one = rows[row]
        # the last digits of sums depend on the order of summation
        rank = (-round(of_family[row]), one["family"], -round(one["own"]), one["name"])
        return (place[one["path"]], one["category"], *rank)

    return sorted(range(len(rows)), key=key)


ANALYSES: Final = (Analysis(STEP_PARTS, step_parts),)
