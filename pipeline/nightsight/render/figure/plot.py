"""Components of pictures: marks in a plot, and the text around it. `templates/macros/plot.html` draws them.

Positions are in percent of the plot, from the left and from the top.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar

from nightsight.render.figure.axes import LogAxis, Tick

GRID: Final = 1000
"""Steps of the grid of paths in both directions: short integers, and a resolution of 0.1 %."""
MIX_COLORS: Final = 6
# SVG paths of the markers, in pixels around the point
SHAPES: Final = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6.5L6.5 0 0 6.5-6.5 0z",
    "M0-6L6 4.5H-6z",
    "M0 6L6-4.5H-6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
)


@dataclass(frozen=True)
class Dot:
    """A position."""

    x: float
    y: float


@dataclass(frozen=True)
class Mark:
    """An element of a plot. look: CSS classes."""

    kind: ClassVar[str]
    look: str


_Mark = TypeVar("_Mark", bound=Mark)


@dataclass(frozen=True)
class Line(Mark):
    """A straight line."""

    kind: ClassVar = "line"
    begin: Dot
    end: Dot


@dataclass(frozen=True)
class Rect(Mark):
    """A rectangle; the pointer shows its title, if there is one, above and below it too."""

    kind: ClassVar = "rect"
    x: float = 0
    width: float = 100
    y: float = 0
    height: float = 100
    title: str = ""


@dataclass(frozen=True)
class Text(Mark):
    """A text; `aside` moves it sideways by pixels, `more` continues it on wide screens."""

    kind: ClassVar = "text"
    at: Dot
    text: str
    more: str = ""
    aside: int = 0


@dataclass(frozen=True)
class Path(Mark):
    """An SVG path on the GRID, which the plot stretches."""

    kind: ClassVar = "path"
    grid: ClassVar = GRID
    path: str


@dataclass(frozen=True)
class Point(Mark):
    """A marker with a number; `shape` is in pixels around it. side: offset of the number in pixels, and text anchor."""

    kind: ClassVar = "point"
    at: Dot
    shape: str
    title: str = ""
    number: str = ""
    side: tuple[int, int, str] = (0, 0, "")


@dataclass(frozen=True)
class Circle(Mark):
    """A circle with a radius in pixels."""

    kind: ClassVar = "circle"
    at: Dot
    radius: float


@dataclass(frozen=True)
class Part(Mark):
    """A selectable column of the plot. span: begin and end in ns, for scripts."""

    kind: ClassVar = "part"
    x: float
    width: float
    title: str
    span: str


@dataclass(frozen=True)
class Plot:
    """Marks in drawing order; `summary` describes them in words.

    up: ticks of the vertical axis, from the top down. across: ticks of the horizontal axis; () if another plot shows
    them.
    """

    summary: str
    marks: tuple[Mark, ...]
    up: tuple[Tick, ...] = ()
    across: tuple[Tick, ...] = ()
    label: str = ""
    remark: str = ""
    look: str = ""

    def of(self, kind: type[_Mark], look: str = "") -> list[_Mark]:
        """Return the marks of a kind whose `look` starts with this text."""
        return [mark for mark in self.marks if isinstance(mark, kind) and mark.look.startswith(look)]


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend. shape: its marker, "" for a patch of color; is_idle: pale."""

    label: str
    look: str
    shape: str = ""
    is_idle: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The parts that all pictures have; `layout` names the macro in `templates/macros/pictures.html`."""

    layout: ClassVar[str]
    look: str
    title: str
    keys: tuple[LegendEntry, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Panels(Picture):
    """Plots below one another."""

    layout: ClassVar = "panels"
    plots: tuple[Plot, ...]


@dataclass(frozen=True, kw_only=True)
class Plane(Picture):
    """A plot of points on two named axes."""

    layout: ClassVar = "plane"
    plot: Plot
    across: str
    up: str = ""


@dataclass(frozen=True)
class LogPlane:
    """Two logarithmic axes."""

    across: LogAxis
    up: LogAxis

    def dot(self, x: float, y: float) -> Dot:
        """Return the position of a pair of logarithms."""
        return Dot(self.across.place(x), round(100.0 - self.up.place(y), 2))


def grid(across: Sequence[Tick], up: Sequence[Tick]) -> tuple[Line, ...]:
    """Return a line at each tick."""
    return (
        *(Line("grid", Dot(tick.place, 0), Dot(tick.place, 100)) for tick in across),
        *(Line("grid", Dot(0, tick.place), Dot(100, tick.place)) for tick in up),
    )


def with_shared_axis(plots: Sequence[Plot], ticks: tuple[Tick, ...]) -> tuple[Plot, ...]:
    """Return plots with one horizontal axis, below the last of them."""
    *upper, last = plots
    return (*upper, replace(last, across=ticks))


def marker(label: str, number: int) -> LegendEntry:
    """Return the legend entry of a kind of points; `number` counts the kinds from 0."""
    # shapes shift after each round of colors, so that pairs of color and shape do not repeat early
    shape = SHAPES[(number + number // MIX_COLORS) % len(SHAPES)]
    return LegendEntry(label, f"series-mix-{number % MIX_COLORS + 1}", shape)
