"""Flame graphs: the Python functions that ran while a GPU was idle, by cause; callers above the functions they call.

Without GPU work, they show what threads ran, in operators and outside.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from nightsight.events.stacks import of_library, split
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import finite_floats
from nightsight.render.figure.boxes import LINE, Box, Boxes, Tree
from nightsight.render.figure.plot import LegendEntry
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.render.table.view import share_of, short_text
from nightsight.tables import Frame
from nightsight.texts import printable
from nightsight.units import counted, in_text

_NEEDED: Final = ("device", "cause", "time_ns", "stack")
_MAX_TREES: Final = 4
_LEVELS: Final = 20
# percent of the idle time: narrower boxes are merged
_LEAST: Final = 0.5
_OTHERS: Final = "others"
_LOCATION: Final = re.compile(r"(.*\S)(\s+\([^()]*\))")


@dataclass(frozen=True)
class _FlameWords:
    """The texts of a flame graph. width: begins the note on widths; time, trees: nouns for these."""

    caption: str
    width: str
    time: str
    heading: str
    trees: str


_IDLE: Final = _FlameWords(
    "Where Python was, by the cause of the idle time",
    "Width: idle time. On top its cause, below it what Python did:",
    "idle time",
    "idle",
    "devices",
)
_THREADS: Final = _FlameWords(
    "Where Python was, in operators and outside of them",
    "Width: time in the window. On top whether the thread was in an operator, below it what Python did:",
    "time",
    "time",
    "threads",
)


@dataclass
class _CallTree:
    """A function or a cause, its time including the functions it calls, and these functions by name."""

    time: float = 0.0
    calls: dict[str, "_CallTree"] = field(default_factory=dict)

    def largest_first(self) -> list[tuple[str, "_CallTree"]]:
        return sorted(self.calls.items(), key=lambda call: (-call[1].time, call[0]))


def flames(frame: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Boxes, ...]:
    """Return the flame graphs of idle_stacks; () if no row has a stack, or a column is missing."""
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    is_idle = bool(frame["device"].notna().any()) or "tid" not in frame
    owner, time = "device" if is_idle else "tid", finite_floats(frame["time_ns"])
    # a column of a damaged report can hold anything, but all values need one type
    stacks = frame["stack"].astype(object).where(frame["stack"].notna(), "").astype("str")
    rows = frame.assign(time_ns=time, stack=stacks)[time > 0].dropna(subset=owner)
    rows = rows[rows.groupby(owner)["stack"].transform(lambda stacks: (stacks != "").any()).astype(bool)]
    times = rows.groupby(owner, sort=True)["time_ns"].sum()
    if times.empty:
        return ()
    roots = {key: _call_tree(rows[rows[owner] == key]) for key in times.nlargest(_MAX_TREES).sort_index().index}
    words = _IDLE if is_idle else _THREADS
    notes = [
        f"{words.width} functions above those that they call. Blank: the function above it is itself at work, or no "
        f"stack is known. Less than {_LEAST} % is drawn as others."
    ]
    if any(_depth(root) > _LEVELS for root in roots.values()):
        notes.append(f"Only {_LEVELS} levels are drawn; the table has them all.")
    if len(times) > _MAX_TREES:
        notes.append(f"The {_MAX_TREES} of {len(times)} {words.trees} with the most {words.time}.")
    name = called if is_idle else "Thread {}".format
    return (
        Boxes(
            look="flames",
            kind="flame",
            title=words.caption,
            keys=(LegendEntry("own code", "of-own"), LegendEntry("libraries", "of-library")),
            trees=tuple(_flame(root, name(key) if len(times) > 1 else "", words) for key, root in roots.items()),
            notes=tuple(notes),
        ),
    )


def _call_tree(rows: Frame) -> _CallTree:
    root = _CallTree()
    for cause, stack, time in zip(rows["cause"], rows["stack"], rows["time_ns"].tolist(), strict=True):
        node = root
        node.time += time
        for name in (printable(cause), *split(stack)):
            node = node.calls.setdefault(name, _CallTree())
            node.time += time
    return root


def _depth(root: _CallTree) -> int:
    """Return the number of levels below the root."""
    depth, level = 0, list(root.calls.values())
    while level:
        depth, level = depth + 1, [child for node in level for child in node.calls.values()]
    return depth


def _flame(root: _CallTree, label: str, words: _FlameWords) -> Tree:
    boxes, level, depth = list[Box](), [(root, 0.0)], 0
    while level and depth < _LEVELS:
        next_level = []
        for node, left in level:
            for name, child, x in _positions(node, left, root.time):
                boxes.append(_box(name, child, root.time, words.time, x=x, depth=depth))
                next_level.append((child, x))
        level, depth = next_level, depth + 1
    levels = 1 + max(round(box.y / LINE) for box in boxes)
    heading = f"{label and label + ', '}{words.heading} {in_text(root.time, 'time_ns')}"
    summary = f"{heading}: {_summary(root)}"
    return Tree(short_text(heading[:1].upper() + heading[1:]), tuple(boxes), levels * LINE, summary)


def _positions(node: _CallTree, left: float, whole: float) -> Iterator[tuple[str, _CallTree, float]]:
    """Yield the functions that a function calls, the largest first, small ones merged; each with its x in percent."""
    calls = node.largest_first()
    large = [(name, child) for name, child in calls if 100.0 * child.time >= _LEAST * whole]
    small = [child.time for _, child in calls[len(large) :]]
    if 100.0 * sum(small) >= _LEAST * whole:
        large.append((f"{_OTHERS}: {counted(len(small), 'function')}", _CallTree(sum(small))))
    for name, child in large:
        yield name, child, left
        left += 100.0 * child.time / whole


def _box(name: str, node: _CallTree, whole: float, noun: str, *, x: float, depth: int) -> Box:
    share, is_cause, is_library = share_of(node.time, whole), depth == 0, of_library(name)
    text = short_text(name[1:-1] if is_library else name)
    title = f"{text}: {in_text(node.time, 'time_ns')}, {share} of the {noun}"
    self_time = node.time - sum(child.time for child in node.calls.values())
    if node.calls and not is_cause and self_time > 0:
        title += f"; itself {in_text(self_time, 'time_ns')}"
    geometry = round(x, 3), depth * LINE, round(100.0 * node.time / whole, 3)
    if name.startswith(f"{_OTHERS}: "):
        return Box(*geometry, f"of-{_OTHERS}", title)
    if is_cause:
        box = Box(*geometry, f"series-{CAUSE_COLORS.get(name, _OTHERS)}", title)
        return box.with_text(text, f" {share}") if box.fits(text) else box.with_text(share)
    box = Box(*geometry, "of-library" if is_library else "of-own", title)
    location = _LOCATION.fullmatch(text)
    return box.with_text(location[1], location[2]) if location else box.with_text(text)


def _summary(root: _CallTree) -> str:
    """Name the causes, and the functions in which most of each was lost."""
    texts = []
    for cause, node in root.largest_first():
        if 100.0 * node.time >= _LEAST * root.time:
            stack = _hottest_stack(node)
            texts.append(
                f"{cause} {share_of(node.time, root.time)}" + (f", most in {' → '.join(stack)}" if stack else "")
            )
    return "; ".join(texts)


def _hottest_stack(cause: _CallTree) -> Sequence[str]:
    """Return the last three of the nested functions that have at least half of the time of a cause."""
    node, stack = cause, list[str]()
    while node.calls:
        name, node = max(node.calls.items(), key=lambda call: (call[1].time, call[0]))
        if node.time < cause.time / 2:
            break
        stack.append(short_text(name.strip("[]")))
    return stack[-3:]
