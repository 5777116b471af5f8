"""Icicles: the parts of a step, ranges above the families of their kernels, these above the kernels.

All boxes of a level lie side by side, so the two lowest levels show the whole step: work in color, idle time of the
device pale. A range without inner ranges reaches down to them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import finite_floats
from nightsight.render.figure.boxes import LINE, Box, Boxes, Tree
from nightsight.render.figure.shares import CAUSE_COLORS, keys_of
from nightsight.render.table.view import share_of, short_text
from nightsight.results.categories import UNSEEN
from nightsight.results.steps import OPERATORS, OTHER_PARTS
from nightsight.tables import Frame
from nightsight.units import counted, in_text

_Row = Mapping[Hashable, Any]

_NEEDED: Final = ("device", "step", "steps", "path", "group", "category", "family", "name", "time_ns", "count")
_MAX_TREES: Final = 4
_LEVELS: Final = 5
_PART_HEIGHT: Final = 2.5  # height of a family or kernel in em
# percent of a step: smaller parts are merged; doubled until there are at most _MAX_BOXES
_LEAST: Final = 0.2
_MAX_BOXES: Final = 300
_SEPARATOR: Final = " / "
_OUTSIDE: Final = "(no range)"
_MEASURED: Final = "measure"
_SUMMARIZED: Final = 5
_EVALUATES: Final = "autograd::engine::evaluate_function: "


class _NamedRows(NamedTuple):
    """Rows under one name, and their time."""

    name: str
    rows: Sequence[_Row]
    time: float


@dataclass
class _Range:
    """A range of a step: its own rows, and the ranges inside, in the order of the table."""

    path: str = ""
    rows: list[_Row] = field(default_factory=list)
    inside: dict[str, "_Range"] = field(default_factory=dict)

    def all_rows(self) -> list[_Row]:
        return self.rows + [row for inner in self.inside.values() for row in inner.all_rows()]

    @property
    def depth(self) -> int:
        return 1 + max((inner.depth for inner in self.inside.values()), default=-1)


def icicles(
    frame: Frame, shorten: Callable[[str], str], called: Callable[[object], str] = gpu_name
) -> tuple[Boxes, ...]:
    """Return the icicles of step_parts; () if it has no time or a column is missing. shorten: labels of kernels."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    # a column of a damaged report can hold anything
    texts = {name: frame[name].astype(object).map(short_text) for name in ("group", "category", "family")}
    plain = {name: frame[name].astype(object).where(frame[name].notna(), "").astype("str") for name in ("step", "path")}
    threads = frame["tid"] if "tid" in frame else [None] * len(frame)
    owners = zip(frame["device"], threads, strict=True)
    rows = frame.assign(
        **texts,
        **plain,
        name=[shorten(name) if isinstance(name, str) else short_text(name) for name in frame["name"]],
        steps=finite_floats(frame["steps"]),
        time_ns=finite_floats(frame["time_ns"]),
        count=finite_floats(frame["count"]),
        row=range(len(frame)),
        owner=[f"Thread {thread}" if pd.notna(thread) else called(device) for device, thread in owners],
    )
    rows = rows[rows["time_ns"] > 0]
    if rows.empty:
        return ()
    owned = list(rows.groupby("owner", sort=False))
    is_step = bool((rows["steps"] > 0).any())
    first, are_several = owned[:_MAX_TREES], len(owned) > 1
    times = pd.concat([of_owner for _, of_owner in first]).groupby("category")["time_ns"].sum()
    return (
        Boxes(
            look="flames icicles",
            kind="flame icicle",
            title="Mean step" if is_step else "The window",
            keys=keys_of({str(name): float(time) for name, time in times.items() if name in CAUSE_COLORS}),
            trees=tuple(
                _tree(of_owner.to_dict("records"), str(owner) if are_several else "", is_step)
                for owner, of_owner in first
            ),
            notes=tuple(_icicle_notes(frame, len(owned), is_step=is_step)),
        ),
    )


def _icicle_notes(frame: Frame, owners: int, *, is_step: bool) -> Iterator[str]:
    is_cpu = bool((frame["category"] == OPERATORS).any())
    pale = "outside of operators" if is_cpu else "idle, by cause"
    parts = "Outermost operators, and the operators with the time below them," if is_cpu else "Families and kernels"
    ranges = "Ranges are in order of their start. " if frame["path"].nunique() > 1 else ""
    yield (
        f"Width: {'mean time per repetition' if is_step else 'time'}, each instant once. Pale: {pale}. {ranges}"
        f"{parts} are sorted by size. Parts below {_LEAST} % are drawn as others."
    )
    if owners > _MAX_TREES:
        yield f"The first {_MAX_TREES} of {owners}; the table has all."


def _tree(rows: Sequence[_Row], label: str, is_step: bool) -> Tree:
    whole, root, least = _time(rows), _range_tree(rows), _LEAST
    while len(boxes := list(_Icicle(root, whole, least, "step" if is_step else "window").boxes())) > _MAX_BOXES:
        least *= 2
    busy, unknown = _time(rows, "busy"), _time(rows, "unknown")
    heading = f"{label and label + ': '}{in_text(whole, 'time_ns')}"
    if is_step:
        heading += f", mean of {counted(float(np.rint(rows[0]['steps'])), 'step')}"
    on, off = ("In operators", "outside") if any(row["category"] == OPERATORS for row in rows) else ("Busy", "idle")
    # the window also has time between the steps, so its shares differ
    of_steps = " of the steps" if is_step else ""
    aside = f"{on} {share_of(busy, whole)}, {off} {share_of(whole - busy - unknown, whole)}{of_steps}"
    aside += f", {UNSEEN} {share_of(unknown, whole)}" if unknown else ""
    height = max(box.y + box.height for box in boxes)
    return Tree(heading, tuple(boxes), height, f"{heading}; {aside.lower()}: {_summary(root, whole)}", aside)


def _time(rows: Iterable[_Row], group: str = "") -> float:
    """Return the time of rows, or of those of a group."""
    return float(sum(row["time_ns"] for row in rows if group in ("", row["group"])))


def _range_tree(rows: Sequence[_Row]) -> _Range:
    """Arrange rows by the ranges inside a step; without any, all rows belong to the root."""
    root, step = _Range(), str(rows[0]["step"])
    outer = [*step.split(_SEPARATOR)] if step else []
    prefixes = [outer, [_MEASURED, *outer]] if step else []
    for row in rows:
        names = row["path"].split(_SEPARATOR)
        skipped = next((len(prefix) for prefix in prefixes if names[: len(prefix)] == prefix), 0)
        node = root
        for end, name in enumerate(names[skipped : skipped + _LEVELS], start=skipped + 1):
            node = node.inside.setdefault(name, _Range(_SEPARATOR.join(names[:end])))
        node.rows.append(row)
    if list(root.inside) == [_OUTSIDE]:
        root = _Range(rows=root.rows + root.inside[_OUTSIDE].rows)
    return root


@dataclass(frozen=True)
class _Icicle:
    """The boxes of a tree. whole: its time. least: percent, smaller parts are merged. unit: what `whole` is."""

    root: _Range
    whole: float
    least: float
    unit: str

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes, from the outside in and from left to right."""
        root, depth = self.root, self.root.depth
        return self._range_boxes(root, 0.0, 1, depth) if root.inside else self._part_boxes(root.rows, 0.0, depth)

    def _range_boxes(self, node: _Range, left: float, level: int, depth: int) -> Iterator[Box]:
        for name, inner, time in self._ranges(node):
            rows, text, is_innermost = inner.all_rows(), short_text(name.removeprefix(_EVALUATES)), not inner.inside
            title = f"{text}: {self._amount(time)}"
            if rows[0]["category"] != OPERATORS:
                title += f"; GPU busy {in_text(_time(rows, 'busy'), 'time_ns')}"
            box = Box(
                x=self._percent(left),
                y=LINE * (level - 1),
                width=self._percent(time),
                look="of-range" if inner.path else "of-itself",
                title=title,
                height=LINE * (1 + depth - level) if is_innermost else LINE,
                level=level,
                rows=_intervals(rows),
                path=inner.path,
            )
            yield box.with_text(box.cut_to_fit(text), f" {in_text(time, 'time_ns')}")
            if is_innermost:
                yield from self._part_boxes(rows, left, depth)
            else:
                yield from self._range_boxes(inner, left, level + 1, depth)
            left += time

    def _part_boxes(self, rows: Sequence[_Row], left: float, depth: int) -> Iterator[Box]:
        """Yield the families of rows with their kernels below; a family with one kernel is one box."""
        for family in self._families(rows):
            kernels = self._merged(_by_time(_grouped(family.rows, "name")), "other part")
            is_single = len(kernels) == 1
            categories = {row["category"] for row in family.rows}
            box = Box(
                x=self._percent(left),
                y=LINE * depth,
                width=self._percent(family.time),
                look=f"series-{CAUSE_COLORS.get(categories.pop(), 'others') if len(categories) == 1 else 'others'}",
                title=self._title(family._replace(name=kernels[0].name) if is_single else family),
                height=2 * _PART_HEIGHT if is_single else _PART_HEIGHT,
                level=depth + 1,
                is_idle=family.rows[0]["group"] != "busy",
                rows=_intervals(family.rows),
            )
            names = (kernels[0].name, family.name) if is_single else (family.name,)
            yield _with_name(box, names, share_of(family.time, self.whole))
            for kernel in () if is_single else kernels:
                kernel_box = replace(
                    box,
                    x=self._percent(left),
                    y=LINE * depth + _PART_HEIGHT,
                    width=self._percent(kernel.time),
                    title=self._title(kernel),
                    level=depth + 2,
                    rows=_intervals(kernel.rows),
                )
                yield _with_name(kernel_box, (kernel.name,), share_of(kernel.time, self.whole))
                left += kernel.time
            left += family.time if is_single else 0.0

    def _ranges(self, node: _Range) -> Iterator[tuple[str, _Range, float]]:
        """Yield the ranges inside a range, small ones merged, and the rows outside of them."""
        small = list[tuple[_Range, float]]()
        for name, inner in node.inside.items():
            time = _time(inner.all_rows())
            if 100.0 * time >= self.least * self.whole:
                yield name, inner, time
            else:
                small.append((inner, time))
        if small:
            merged = _Range(rows=[row for inner, _ in small for row in inner.all_rows()])
            yield counted(len(small), "other range"), merged, sum(time for _, time in small)
        if node.rows:
            yield "itself", _Range(rows=node.rows), _time(node.rows)

    def _families(self, rows: Iterable[_Row]) -> Iterator[_NamedRows]:
        """Yield the families of kernels, the largest first, then the causes of idle time."""
        rows = list(rows)
        busy, idle = ([row for row in rows if (row["group"] == "busy") == is_busy] for is_busy in (True, False))
        yield from self._merged(_by_time(_grouped(busy, "category", "family")), "other part")
        yield from self._merged(_grouped(idle, "category", "family"), "other cause")

    def _merged(self, parts: Iterable[_NamedRows], noun: str) -> list[_NamedRows]:
        """Return the large parts, and the small ones as one at the end."""
        large, small = list[_NamedRows](), list[_NamedRows]()
        for part in parts:
            is_large = 100.0 * part.time >= self.least * self.whole and part.name != OTHER_PARTS
            (large if is_large else small).append(part)
        rows = [row for part in small for row in part.rows]
        return [*large, _NamedRows(counted(len(small), noun), rows, _time(rows))] if small else large

    def _title(self, part: _NamedRows) -> str:
        count, is_idle = in_text(sum(row["count"] for row in part.rows), "count"), part.rows[0]["group"] != "busy"
        piece = ("stretch" if is_idle else "time") if count == "1" else ("stretches" if is_idle else "times")
        return f"{part.name}: {self._amount(part.time)}; {count} {piece}{' a step' if self.unit == 'step' else ''}"

    def _amount(self, time: float) -> str:
        return f"{in_text(time, 'time_ns')}, {share_of(time, self.whole)} of the {self.unit}"

    def _percent(self, time: float) -> float:
        return round(100.0 * time / self.whole, 3)


def _with_name(box: Box, names: Sequence[str], share: str) -> Box:
    """Return a box with the first name that fits, or a cut name; an idle box with its share alone if no name fits."""
    name = next((name for name in names if box.fits(name)), "" if box.is_idle else box.cut_to_fit(names[-1]))
    if name:
        return box.with_text(name, f" {share}")
    return box.with_text(share) if box.is_idle else box


def _grouped(rows: Iterable[_Row], *columns: str) -> list[_NamedRows]:
    """Return rows by columns, the last of which names them, in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return [_NamedRows(key[-1], group, _time(group)) for key, group in groups.items()]


def _by_time(parts: Iterable[_NamedRows]) -> list[_NamedRows]:
    """Return parts with the largest first."""
    return sorted(parts, key=lambda part: -part.time)


def _intervals(rows: Iterable[_Row]) -> str:
    """Return the positions of rows in the table in short: `3-5 9`."""
    runs: list[list[int]] = []
    for row in sorted(row["row"] for row in rows):
        if runs and row == runs[-1][1] + 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _summary(root: _Range, whole: float) -> str:
    """Name the largest ranges, and the largest family of each; without ranges, the largest families."""
    if not root.inside:
        parts = _grouped(root.rows, "group", "family")
    else:
        ranges = {name: inner.all_rows() for name, inner in root.inside.items()}
        parts = [_NamedRows(name, rows, _time(rows)) for name, rows in ranges.items()]
    texts = []
    for part in _by_time(parts)[:_SUMMARIZED]:
        family = max(_grouped(part.rows, "family"), key=lambda family: family.time).name
        texts.append(f"{short_text(part.name)} {share_of(part.time, whole)}{f', most {family}' if root.inside else ''}")
    return "; ".join(texts)
