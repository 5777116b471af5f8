"""Flame graphs: where Python was while a GPU was idle, its causes on top, callers above what they call.

Without GPU work: where its threads were, in operators and outside of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from nightsight.events.stacks import of_library, split
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import measured
from nightsight.render.figure.boxes import LINE, Box, Boxes, Tree, fits, written
from nightsight.render.figure.plot import Key
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.render.table.view import counted, share_of, short_text
from nightsight.texts import printable
from nightsight.units import format_value

Frame = pd.DataFrame

_NEEDED: Final = ("device", "cause", "time_ns", "stack")
_MOST: Final = 4
_LEVELS: Final = 20
# percent of the idle time: narrower boxes are drawn as one
_LEAST: Final = 0.5
_OTHERS: Final = "others"
_KEYS: Final = (Key("own code", "of-own"), Key("libraries", "of-library"))
_PLACE: Final = re.compile(r"(.*\S)(\s+\([^()]*\))")


@dataclass(frozen=True)
class _Words:
    """What the time of a flame graph is called, and what has it; width: begins the note on widths."""

    caption: str
    width: str
    time: str
    heading: str
    wholes: str


_IDLE: Final = _Words(
    "Where Python was, by the cause of the idle time",
    "Width: idle time. On top its cause, below it what Python did:",
    "idle time",
    "idle",
    "devices",
)
_THREADS: Final = _Words(
    "Where Python was, in operators and outside of them",
    "Width: time in the window. On top whether the thread was in an operator, below it what Python did:",
    "time",
    "time",
    "threads",
)


@dataclass
class _Node:
    """A function, or a cause, and what it calls; its time with all of that."""

    time: float = 0.0
    called: dict[str, "_Node"] = field(default_factory=dict)


def flames(frame: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Boxes, ...]:
    """Return the flame graphs of idle_stacks; none if no row has a stack, or the table lacks a column."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    is_idle = bool(frame["device"].notna().any()) or "tid" not in frame
    of, time = "device" if is_idle else "tid", measured(frame["time_ns"])
    # a column of a damaged report can hold anything, but all of it of one type
    stacks = frame["stack"].astype(object).where(frame["stack"].notna(), "").astype("str")
    known = frame.assign(time_ns=time, stack=stacks)[time > 0].dropna(subset=of)
    known = known[known.groupby(of)["stack"].transform(lambda stacks: (stacks != "").any()).astype(bool)]
    spent = known.groupby(of, sort=True)["time_ns"].sum()
    if spent.empty:
        return ()
    drawn = spent.nlargest(_MOST).sort_index()
    trees = {key: _tree(known[known[of] == key]) for key in drawn.index}
    words = _IDLE if is_idle else _THREADS
    notes = [
        f"{words.width} functions above those that they call. Blank: the function above it is itself at work, or no "
        f"stack is known. Less than {_LEAST} % is drawn as others."
    ]
    if any(_depth(tree) > _LEVELS for tree in trees.values()):
        notes.append(f"Only {_LEVELS} levels are drawn; the table has them all.")
    if len(spent) > _MOST:
        notes.append(f"The {_MOST} of {len(spent)} {words.wholes} with the most {words.time}.")
    name = called if is_idle else "Thread {}".format
    shown = tuple(_flame(tree, name(key) if len(spent) > 1 else "", words) for key, tree in trees.items())
    return (Boxes(look="flames", kind="flame", title=words.caption, keys=_KEYS, trees=shown, notes=tuple(notes)),)


def _tree(rows: Frame) -> _Node:
    root = _Node()
    for cause, stack, time in zip(rows["cause"], rows["stack"], rows["time_ns"].tolist(), strict=True):
        node = root
        node.time += time
        for name in (printable(cause), *split(stack)):
            node = node.called.setdefault(name, _Node())
            node.time += time
    return root


def _depth(tree: _Node) -> int:
    """Return the number of levels below the root."""
    depth, level = 0, list(tree.called.values())
    while level:
        depth, level = depth + 1, [child for node in level for child in node.called.values()]
    return depth


def _flame(tree: _Node, label: str, words: _Words) -> Tree:
    boxes, level, depth = list[Box](), [(tree, 0.0)], 0
    while level and depth < _LEVELS:
        following = []
        for node, left in level:
            for name, child, x in _placed(node, left, tree.time):
                boxes.append(_box(name, child, tree.time, words.time, x=x, depth=depth))
                following.append((child, x))
        level, depth = following, depth + 1
    levels = 1 + max(round(box.y / LINE) for box in boxes)
    heading = f"{label and label + ', '}{words.heading} {format_value(tree.time, 'time_ns')}"
    summary = f"{heading}: {_summary(tree)}"
    heading = short_text(heading[:1].upper() + heading[1:])
    return Tree(heading, tuple(boxes), levels * LINE, summary)


def _placed(node: _Node, left: float, whole: float) -> Iterator[tuple[str, _Node, float]]:
    """Yield what a function calls, the largest first, and the rest as one; with its place in percent."""
    ordered = sorted(node.called.items(), key=lambda item: (-item[1].time, item[0]))
    large = [(name, child) for name, child in ordered if 100.0 * child.time >= _LEAST * whole]
    small = [child for _, child in ordered[len(large) :]]
    rest = _Node(sum(child.time for child in small))
    if 100.0 * rest.time >= _LEAST * whole:
        large.append((f"{_OTHERS}: {counted(len(small), 'function')}", rest))
    for name, child in large:
        yield name, child, left
        left += 100.0 * child.time / whole


def _box(name: str, node: _Node, whole: float, what: str, *, x: float, depth: int) -> Box:
    width, share, is_cause = 100.0 * node.time / whole, share_of(node.time, whole), depth == 0
    text = short_text(name[1:-1] if of_library(name) else name)
    title = f"{text}: {format_value(node.time, 'time_ns')}, {share} of the {what}"
    itself = node.time - sum(child.time for child in node.called.values())
    if node.called and not is_cause and itself > 0:
        title += f"; itself {format_value(itself, 'time_ns')}"
    is_rest = name.startswith(f"{_OTHERS}: ")
    look = f"series-{CAUSE_COLORS.get(name, _OTHERS)}" if is_cause else "of-library" if of_library(name) else "of-own"
    box = Box(round(x, 3), depth * LINE, round(width, 3), f"of-{_OTHERS}" if is_rest else look, title)
    return box if is_rest else _written(box, text, share if is_cause else "")


def _written(box: Box, text: str, share: str) -> Box:
    """Return a box with what there is room for: of a function its name and place, of a cause its name and share."""
    found = _PLACE.fullmatch(text)
    if not share:
        return written(box, *((found[1], found[2]) if found else (text, "")))
    return written(box, text, f" {share}") if fits(box, text) else written(box, share, "")


def _summary(tree: _Node) -> str:
    """Say what the causes are, and for each where most of it is."""
    words = []
    for cause, node in sorted(tree.called.items(), key=lambda item: (-item[1].time, item[0])):
        if 100.0 * node.time >= _LEAST * tree.time:
            way = _longest(node)
            words.append(f"{cause} {share_of(node.time, tree.time)}" + (f", most in {' → '.join(way)}" if way else ""))
    return "; ".join(words)


def _longest(node: _Node) -> Sequence[str]:
    """Return the functions that have at least half of the time of a cause, the outermost first; only the last three."""
    way, least = list[str](), node.time / 2
    while node.called:
        name, node = max(node.called.items(), key=lambda item: (item[1].time, item[0]))
        if node.time < least:
            break
        way.append(short_text(name.strip("[]")))
    return way[-3:]
