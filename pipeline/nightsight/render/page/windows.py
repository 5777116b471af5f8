"""Build the first screen for each selectable window: the headline, where the time went, the first causes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nightsight.events.kernel_labels import KernelLabels
from nightsight.events.window import AFTER_PAUSE, ANNOTATED, GPU_WORK, RECORDED, START_UP, STEADY
from nightsight.model.report import Report, View
from nightsight.render.figure.ladder import Explained, Ladder, ladder
from nightsight.render.figure.shares import Wholes, wholes
from nightsight.render.fixes import Fix, fixes_of
from nightsight.render.page.figures import Figure, first_figures
from nightsight.render.page.findings import Advice, without_simulation
from nightsight.render.page.findings import advice as advice_of
from nightsight.render.page.headline import Headline, headline, headline_on
from nightsight.render.page.places import Places
from nightsight.render.summary import Numbers
from nightsight.render.verdict import Verdict, start_up, verdict, verdict_on
from nightsight.results.causes import FIX_LADDER, WHAT_IF
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.texts import excerpt, printable, prose
from nightsight.units import format_value

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
_MOST_PCT: Final = 50.0


@dataclass(frozen=True)
class Choice:
    """One window: its label, how it was chosen, its headline, figures, where its time went, and advice.

    verdict: in full, as on a terminal. figures: without GPU work, which the split shows. simulation: how well the
    simulation behind the gains matches the measurement; "" if it matches exactly. ladder: a step after each fix, if
    simulated.
    """

    label: str
    sentence: str
    verdict: Verdict
    headline: Headline
    figures: tuple[Figure, ...]
    wholes: Wholes
    advice: tuple[Advice, ...]
    simulation: str = ""
    ladder: Ladder | None = None

    @property
    def fix(self) -> Advice | None:
        """The advice that the headline is about."""
        return self.advice[0] if self.advice and self.verdict.advice is not None else None


@dataclass(frozen=True)
class Choices:
    """The windows of a page, the window of the report first.

    start_up: a line on the time before that window.
    """

    windows: tuple[Choice, ...]
    start_up: str = ""


def choices(report: Report, run: Numbers, advice: tuple[Advice, ...], labels: KernelLabels) -> Choices:
    """Return the windows of a report with something to show; `run` and `advice` belong to the chosen one."""
    chosen = report.chosen_window
    splits = wholes(report.rows(TIME_SPLIT), report.called)
    # without work on a GPU there is no choice to explain
    sentence = prose(chosen.sentence, _SENTENCE) if chosen and splits else ""
    figures = () if run.busy_pct_by_device else first_figures(run, report)
    label = _label(chosen) if chosen else ""
    outcome = verdict(report, run)
    above = headline(outcome, report, run)
    items, simulation = without_simulation(advice)
    first = Choice(label, sentence, outcome, above, figures, splits, items, simulation, ladder_of(report))
    before = start_up(report)
    other_choices = _other_choices(report, run, labels, label)
    return Choices((first, *other_choices), prose(before.sentence, _SENTENCE) if before else "")


def ladder_of(report: Report) -> Ladder | None:
    """Return the ladder of the fixes if the advice contains any of them."""
    advised, fixes = report.advice, fixes_of(report)
    if fixes is None or not any(fix.is_of(finding) for fix in fixes.sequence for finding in advised):
        return None

    def explained(fix: Fix) -> Explained:
        for number, finding in enumerate(advised, start=1):
            if fix.is_of(finding):
                proof, action = (text and printable(text) for text in (finding.proof, finding.action))
                return Explained(f"advice-0-{number}", proof, action)
        return Explained(WHAT_IF.name)

    return ladder(report.rows(FIX_LADDER), fixes, explained, is_of_others=fixes.about(advised[0]) is None)


def _other_choices(report: Report, run: Numbers, labels: KernelLabels, chosen: str) -> Iterator[Choice]:
    for view in report.windows:
        if not view.is_chosen and view.split is not None and len(view.split):
            # sections of the page cover the chosen window, so advice on others does not link to them
            items = advice_of(view.findings, {}, labels, Places())
            # the line on the start-up already says the rest, whichever window is shown
            sentence = "" if view.name == START_UP else prose(view.sentence, _SENTENCE)
            stay = f"The sections below still show *{chosen}*."
            answer = verdict_on(view, run)
            if of_start_up := _of_start_up(view, report):
                answer = replace(answer, first=of_start_up, advice=None)
            yield Choice(
                _label(view),
                f"{sentence} {stay}".strip(),
                answer,
                headline_on(answer),
                (),
                wholes(view.split, report.called),
                *without_simulation(items),
            )


def _of_start_up(view: View, report: Report) -> str:
    """Return the share of the start-up in a window, if it is most of it: advice on it does not apply to the loop."""
    for other in report.windows:
        if other.name == START_UP and view.name != START_UP and view.end_ns > view.start_ns:
            inside = min(view.end_ns, other.end_ns) - max(view.start_ns, other.start_ns)
            share = 100.0 * inside / (view.end_ns - view.start_ns)
            if share > _MOST_PCT:
                return f"{format_value(share, 'share_pct')} of the window is the start-up, a one-time cost."
    return ""


def _label(view: View) -> str:
    return _LABELS.get(view.name) or excerpt(view.name, _LENGTH)
