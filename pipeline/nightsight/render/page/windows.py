"""The windows that a reader can choose on the page: where the time of each went, and the advice on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nightsight.events.window import AFTER_PAUSE, ANNOTATED, GPU_WORK, RECORDED, START_UP, STEADY
from nightsight.model import Report, View
from nightsight.render.figure.shares import Whole, wholes
from nightsight.render.page.findings import Advice, advice
from nightsight.render.table.view import middle_cut, printable

_LABELS: Final = {
    STEADY: "Steady",
    ANNOTATED: "Annotated",
    AFTER_PAUSE: "After the pause",
    GPU_WORK: "Whole",
    RECORDED: "Whole",
    START_UP: "Start-up",
}
_LENGTH: Final = 32
_SENTENCE: Final = 500


@dataclass(frozen=True)
class Choice:
    """One window: its label, how it was chosen, and for all but the chosen one the picture of its time, and advice."""

    label: str
    sentence: str
    is_chosen: bool
    wholes: tuple[Whole, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Choices:
    """The windows of a page, the chosen one first; `start_up` says in one line where the time before went."""

    windows: tuple[Choice, ...] = ()
    start_up: str = ""

    @property
    def others(self) -> tuple[Choice, ...]:
        """All but the chosen one."""
        return tuple(window for window in self.windows if not window.is_chosen)


def choices(report: Report) -> Choices:
    """Return the windows of a report that there is something to say about."""
    start_up = next((view.sentence for view in report.windows if view.name == START_UP and not view.is_chosen), "")
    return Choices(tuple(_choices(report)), _prose(start_up) if start_up else "")


def _choices(report: Report) -> Iterator[Choice]:
    for view in sorted(report.windows, key=lambda view: not view.is_chosen):
        if view.is_chosen:
            yield Choice(_label(view), _prose(view.sentence), is_chosen=True)
        elif view.split is not None and len(view.split):
            # sections of the page are about the chosen window, so the advice on others has no links to them
            yield Choice(_label(view), _prose(view.sentence), False, wholes(view.split), advice(view.findings, {}))


def _label(view: View) -> str:
    return _LABELS.get(view.name) or middle_cut(printable(view.name), _LENGTH)


def _prose(text: str) -> str:
    return middle_cut(printable(text), _SENTENCE) if text else ""
