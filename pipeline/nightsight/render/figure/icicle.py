"""Icicles: what a step is made of, ranges above the families of kernels in them, these above the kernels.

All boxes of a level lie side by side, so the two lowest levels show all of the step: what ran in color, what the device
waited for hatched. A range without others inside reaches down to them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import measured
from nightsight.render.figure.boxes import LINE, Box, Boxes, Tree, cut_to_fit, fits, written
from nightsight.render.figure.shares import CAUSE_COLORS, keys_of
from nightsight.render.table.view import counted, share_of, short_text
from nightsight.results.categories import UNSEEN
from nightsight.results.steps import OPERATORS, OTHER_PARTS
from nightsight.units import format_value

Frame = pd.DataFrame
_Rows = Sequence[dict[str, Any]]

_NEEDED: Final = ("device", "step", "steps", "path", "group", "category", "family", "name", "time_ns", "count")
_WHOLES: Final = 4
_LEVELS: Final = 5
_PART: Final = 1.75  # height of a family or kernel in em
# percent of a step: smaller parts are drawn as one; more if there would be too many boxes
_LEAST: Final = 0.2
_MOST: Final = 300
_SEPARATOR: Final = " / "
_OUTSIDE: Final = "(no range)"
_MEASURED: Final = "measure"
_SUMMED: Final = 5
_EVALUATES: Final = "autograd::engine::evaluate_function: "


@dataclass
class _Range:
    """A range of a step: its own rows, and the ranges inside, in the order of the table."""

    path: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    inside: dict[str, "_Range"] = field(default_factory=dict)

    def all_rows(self) -> list[dict[str, Any]]:
        return self.rows + [row for inner in self.inside.values() for row in inner.all_rows()]

    @property
    def depth(self) -> int:
        return 1 + max((inner.depth for inner in self.inside.values()), default=-1)


def icicles(
    frame: Frame, shorten: Callable[[str], str], called: Callable[[object], str] = gpu_name
) -> tuple[Boxes, ...]:
    """Return the icicles of step_parts; none if it has no time or lacks a column. `shorten`: labels of kernels."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    # a column of a damaged report can hold anything
    texts = {name: frame[name].astype(object).map(short_text) for name in ("group", "category", "family")}
    plain = {name: frame[name].astype(object).where(frame[name].notna(), "").astype("str") for name in ("step", "path")}
    known = frame.assign(**texts, **plain).assign(
        name=[shorten(name) if isinstance(name, str) else short_text(name) for name in frame["name"]],
        time_ns=measured(frame["time_ns"]),
        count=measured(frame["count"]),
        row=range(len(frame)),
        of=_wholes(frame, called),
    )
    known = known[known["time_ns"] > 0]
    if known.empty:
        return ()
    wholes = list(known.groupby("of", sort=False))
    is_step = bool((measured(known["steps"]) > 0).any())
    first, are_several = wholes[:_WHOLES], len(wholes) > 1
    drawn = [_icicle(_records(rows), str(of) if are_several else "", is_step) for of, rows in first]
    sums = [rows.groupby("category")["time_ns"].sum() for _, rows in first]
    categories = {name for times in sums for name in times.index[100.0 * times >= _LEAST * times.sum()]}
    keys = keys_of(name for name in CAUSE_COLORS if name in categories)
    return (
        Boxes(
            look="flames icicles",
            kind="flame icicle",
            title="Mean step" if is_step else "The window",
            keys=keys,
            trees=tuple(drawn),
            notes=tuple(_notes(frame, len(wholes), is_step=is_step)),
        ),
    )


def _wholes(frame: Frame, called: Callable[[object], str]) -> list[str]:
    """Return what each row is a part of: a device, or a thread."""
    threads = frame["tid"] if "tid" in frame else [None] * len(frame)
    return [
        f"Thread {thread}" if pd.notna(thread) else called(device)
        for device, thread in zip(frame["device"], threads, strict=True)
    ]


def _notes(frame: Frame, wholes: int, *, is_step: bool) -> Iterator[str]:
    is_cpu = bool((frame["category"] == OPERATORS).any())
    hatched = "outside of operators" if is_cpu else "idle, by cause"
    parts = "Outermost operators, and below them those that have the time," if is_cpu else "Families and kernels"
    ranges = "Ranges stand in the order in which they begin. " if frame["path"].nunique() > 1 else ""
    yield (
        f"Width: {'mean time per repetition' if is_step else 'time'}, each instant once. Hatched: {hatched}. {ranges}"
        f"{parts} stand with the largest first. Parts below {_LEAST} % are drawn as others."
    )
    if wholes > _WHOLES:
        yield f"The first {_WHOLES} of {wholes}; the table has them all."


def _records(rows: Frame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]


def _icicle(rows: _Rows, label: str, is_step: bool) -> Tree:
    whole = _time(rows)
    tree, least = _tree(rows), _LEAST
    while len(blocks := list(_blocks(tree, whole, least, "step" if is_step else "window"))) > _MOST:
        least *= 2
    height = max(block.y + block.height for block in blocks)
    busy, unknown = _time(rows, "busy"), _time(rows, "unknown")
    time = format_value(whole, "time_ns")
    of = f"{rows[0]['steps']:.0f}" if is_step else ""
    what = f"{label}: " if label else ""
    step = f"{what}{time}, mean of {counted(float(of), 'step')}" if is_step else f"{what}{time}"
    on, off = ("In operators", "outside") if any(row["category"] == OPERATORS for row in rows) else ("Busy", "idle")
    # the window also has what lies between the steps, so its shares are others
    of_steps = " of the steps" if is_step else ""
    named = f"{on} {share_of(busy, whole)}, {off} {share_of(whole - busy - unknown, whole)}{of_steps}"
    named += f", {UNSEEN} {share_of(unknown, whole)}" if unknown else ""
    return Tree(step, tuple(blocks), height, f"{step}; {named.lower()}: {_summary(tree, whole)}", named)


def _time(rows: _Rows, group: str = "") -> float:
    """Return the time of rows, or of those of a group."""
    return float(sum(row["time_ns"] for row in rows if group in ("", row["group"])))


def _tree(rows: _Rows) -> _Range:
    """Arrange rows by the ranges inside a step; without any, all rows are the root's."""
    root = _Range()
    around = [name for name in str(rows[0]["step"]).split(_SEPARATOR) if rows[0]["step"]]
    for row in rows:
        names = row["path"].split(_SEPARATOR)
        start = next((at for at in (0, 1) if around and names[at : at + len(around)] == around), None)
        start = start if start == 0 or names[0] == _MEASURED else None
        inner = names if start is None else names[start + len(around) :]
        node, first = root, len(names) - len(inner)
        for depth, name in enumerate(inner[:_LEVELS], start=1):
            node = node.inside.setdefault(name, _Range(_SEPARATOR.join(names[: first + depth])))
        node.rows.append(row)
    if list(root.inside) == [_OUTSIDE]:
        root = _Range(rows=root.rows + root.inside[_OUTSIDE].rows)
    return root


def _blocks(tree: _Range, whole: float, least: float, unit: str) -> Iterator[Box]:
    """Yield the boxes of a tree, from the outside in and from left to right."""
    depth = tree.depth

    def ranges(node: _Range, left: float, level: int) -> Iterator[Box]:
        for name, inner, time in _inside(node, whole, least):
            rows, text, is_last = inner.all_rows(), short_text(name.removeprefix(_EVALUATES)), not inner.inside
            title = f"{text}: {_amount(time, whole, unit)}"
            if rows[0]["category"] != OPERATORS:
                title += f"; GPU busy {format_value(_time(rows, 'busy'), 'time_ns')}"
            block = Box(
                x=round(100.0 * left / whole, 3),
                y=LINE * (level - 1),
                width=round(100.0 * time / whole, 3),
                look="of-range" if inner.path else "of-itself",
                title=title,
                height=LINE * (1 + depth - level) if is_last else LINE,
                level=level,
                rows=_intervals(rows),
                path=inner.path,
            )
            yield written(block, cut_to_fit(block, text), f" {format_value(time, 'time_ns')}")
            yield from parts(rows, left, depth + 1) if is_last else ranges(inner, left, level + 1)
            left += time

    def parts(rows: _Rows, left: float, level: int) -> Iterator[Box]:
        for name, alike, time in _families(rows, whole, least):
            kernels = list(_kernels(alike, whole, least))
            is_one = len(kernels) == 1
            block = Box(
                x=round(100.0 * left / whole, 3),
                y=LINE * depth,
                width=round(100.0 * time / whole, 3),
                look=f"series-{_color(alike)}",
                title=_titled(kernels[0][0] if is_one else name, alike, time, whole, unit),
                height=2 * _PART if is_one else _PART,
                level=level,
                is_idle=alike[0]["group"] != "busy",
                rows=_intervals(alike),
            )
            yield _labelled(block, (kernels[0][0], name) if is_one else (name,), share_of(time, whole))
            for kernel, same, part in () if is_one else kernels:
                inner = replace(
                    block,
                    x=round(100.0 * left / whole, 3),
                    y=LINE * depth + _PART,
                    width=round(100.0 * part / whole, 3),
                    title=_titled(kernel, same, part, whole, unit),
                    level=level + 1,
                    rows=_intervals(same),
                )
                yield _labelled(inner, (kernel,), share_of(part, whole))
                left += part
            left += time if is_one else 0.0

    yield from ranges(tree, 0.0, 1) if tree.inside else parts(tree.rows, 0.0, 1)


def _labelled(block: Box, names: Sequence[str], share: str) -> Box:
    """Return a box with the first name that fits, else with a part of the last one; of a cause, its share will do."""
    name = next((name for name in names if fits(block, name)), "" if block.is_idle else cut_to_fit(block, names[-1]))
    return written(block, name, f" {share}") if name else written(block, share, "") if block.is_idle else block


def _inside(node: _Range, whole: float, least: float) -> Iterator[tuple[str, _Range, float]]:
    """Yield the ranges inside a range, the small ones as one, and what is outside of them."""
    times = {name: _time(inner.all_rows()) for name, inner in node.inside.items()}
    large = [name for name, time in times.items() if 100.0 * time >= least * whole]
    for name in large:
        yield name, node.inside[name], times[name]
    small = [name for name in times if name not in large]
    if small:
        rest = _Range(rows=[row for name in small for row in node.inside[name].all_rows()])
        yield f"{counted(len(small), 'other range')}", rest, sum(times[name] for name in small)
    if node.rows:
        yield "itself", _Range(rows=node.rows), _time(node.rows)


def _grouped(rows: _Rows, key: Callable[[dict[str, Any]], Any]) -> list[tuple[Any, list[dict[str, Any]], float]]:
    """Return rows by a key, with their time, in the order of their first rows."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [(name, some, _time(some)) for name, some in groups.items()]


def _families(rows: _Rows, whole: float, least: float) -> Iterator[tuple[str, list[dict[str, Any]], float]]:
    """Yield the families of kernels, the largest first, then the causes of idle time; the small ones of each as one."""
    for is_busy in (True, False):
        mine = [row for row in rows if (row["group"] == "busy") == is_busy]
        found = _grouped(mine, lambda row: (row["category"], row["family"]))
        found = sorted(found, key=lambda one: -one[2]) if is_busy else found
        yield from _large(((key[1], some, time) for key, some, time in found), whole, least, is_busy=is_busy)


def _kernels(rows: _Rows, whole: float, least: float) -> Iterator[tuple[str, list[dict[str, Any]], float]]:
    found = sorted(_grouped(rows, lambda row: row["name"]), key=lambda one: -one[2])
    yield from _large(found, whole, least, is_busy=True)


def _large(
    found: Iterable[tuple[str, list[dict[str, Any]], float]], whole: float, least: float, *, is_busy: bool
) -> Iterator[tuple[str, list[dict[str, Any]], float]]:
    """Yield the large ones of some parts, and all others as one."""
    small: list[dict[str, Any]] = []
    count = 0
    for name, rows, time in found:
        if 100.0 * time >= least * whole and name != OTHER_PARTS:
            yield name, rows, time
        else:
            small += rows
            count += 1
    if small:
        noun = "other part" if is_busy else "other cause"
        yield counted(count, noun), small, _time(small)


def _color(rows: _Rows) -> str:
    kinds = {row["category"] for row in rows}
    return CAUSE_COLORS.get(kinds.pop(), "others") if len(kinds) == 1 else "others"


def _titled(text: str, rows: _Rows, time: float, whole: float, unit: str) -> str:
    count, is_idle = sum(row["count"] for row in rows), rows[0]["group"] != "busy"
    often = format_value(count, "count")
    piece = "stretch" if is_idle else "time"
    said = f"{often} {piece}{'' if often == '1' else 'es' if is_idle else 's'}"
    return f"{text}: {_amount(time, whole, unit)}; {said}{' a step' if unit == 'step' else ''}"


def _amount(time: float, whole: float, unit: str) -> str:
    return f"{format_value(time, 'time_ns')}, {share_of(time, whole)} of the {unit}"


def _intervals(rows: _Rows) -> str:
    """Return the positions of rows in the table in short: `3-5 9`."""
    runs: list[list[int]] = []
    for row in sorted(row["row"] for row in rows):
        if runs and row == runs[-1][1] + 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _summary(tree: _Range, whole: float) -> str:
    """Say what the largest ranges are, or without ranges the largest families, and in each what is the most."""
    if tree.inside:
        found = [(name, inner.all_rows()) for name, inner in tree.inside.items()]
    else:
        found = [(name, rows) for (_, name), rows, _ in _grouped(tree.rows, lambda row: (row["group"], row["family"]))]
    sized = [(name, rows, _time(rows)) for name, rows in found]
    words = []
    for name, rows, time in sorted(sized, key=lambda one: -one[2])[:_SUMMED]:
        most = max(_grouped(rows, lambda row: row["family"]), key=lambda one: one[2])[0]
        words.append(f"{short_text(name)} {share_of(time, whole)}" + (f", most {most}" if tree.inside else ""))
    return "; ".join(words)
