"""The first screen, for each window that a reader can choose: the verdict, where the time went, the first causes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nightsight.events.kernel_labels import Labels
from nightsight.events.window import AFTER_PAUSE, ANNOTATED, GPU_WORK, RECORDED, START_UP, STEADY
from nightsight.model import Report, View
from nightsight.render.figure.shares import Wholes, wholes
from nightsight.render.page.findings import Advice
from nightsight.render.page.findings import advice as advice_of
from nightsight.render.page.summary import Numbers
from nightsight.render.verdict import Verdict, verdict, verdict_on
from nightsight.results import TIME_SPLIT
from nightsight.texts import middle_cut, printable

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
    """One window: its label, how it was chosen, the verdict on it, where its time went, and advice."""

    label: str
    sentence: str
    verdict: Verdict
    wholes: Wholes
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Choices:
    """The windows of a page, the one that the report is about first.

    start_up: in one line, where the time before that window went.
    """

    windows: tuple[Choice, ...]
    start_up: str = ""


def choices(report: Report, run: Numbers, advice: tuple[Advice, ...], labels: Labels) -> Choices:
    """Return the windows of a report that there is something to say about; `run` and `advice` are of the chosen one."""
    chosen = next((view for view in report.windows if view.is_chosen), None)
    drawn = wholes(report.rows(TIME_SPLIT))
    # without work on a GPU there is no choice to explain
    sentence = _prose(chosen.sentence) if chosen and drawn else ""
    first = Choice(_label(chosen) if chosen else "", sentence, verdict(report, run), drawn, advice)
    start_up = next((view.sentence for view in report.windows if view.name == START_UP and not view.is_chosen), "")
    return Choices((first, *_others(report, labels)), _prose(start_up))


def _others(report: Report, labels: Labels) -> Iterator[Choice]:
    for view in report.windows:
        if not view.is_chosen and view.split is not None and len(view.split):
            # sections of the page are about the chosen window, so the advice on others has no links to them
            said = advice_of(view.findings, {}, labels)
            # the line on the start-up says this already, whichever window is shown
            sentence = "" if view.name == START_UP else _prose(view.sentence)
            yield Choice(_label(view), sentence, verdict_on(view), wholes(view.split), said)


def _label(view: View) -> str:
    return _LABELS.get(view.name) or middle_cut(printable(view.name), _LENGTH)


def _prose(text: str) -> str:
    return middle_cut(printable(text), _SENTENCE) if text else ""
