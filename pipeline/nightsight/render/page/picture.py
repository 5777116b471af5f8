"""The ladder of a report as one SVG file, to show in a chat, a slide or a pull request.

It has the headline of the page above the bars. Text in an image does not wrap, so all places are computed here.
"""

from dataclasses import dataclass, replace
from typing import Final

from nightsight.model.report import Report
from nightsight.render.figure.ladder import Ladder, Rung
from nightsight.render.lines import cut, wrap
from nightsight.render.page.headline import headline
from nightsight.render.page.html import fill
from nightsight.render.page.windows import ladder_of
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.texts import printable

_STYLES: Final = ("tokens", "series")
_WIDTH, _MARGIN = 860, 24
# of an average character, per pixel of its size; the title is bold, and sans-serif fonts of Linux are wide
_CHARACTER, _BOLD_CHARACTER = 0.56, 0.66
_TITLE, _TEXT, _SMALL = 24, 16, 13
_LEADING: Final = 1.35
_RUNG, _BAR, _TIMES = 44, 18, 84
_SWATCH: Final = 12


@dataclass(frozen=True)
class _Line:
    text: str
    look: str
    x: float
    y: float


def render_svg(report: Report) -> str:
    """Return the picture: only the headline if no fix has a predicted gain."""
    ladder, run = ladder_of(report), numbers(report)
    if ladder:
        ladder = replace(ladder, rungs=tuple(map(_fitting, ladder.rungs)))
    top = headline(verdict(report, run), report, run)
    texts = (
        (top.title, "title", _TITLE, _BOLD_CHARACTER),
        (top.fix.replace("*", ""), "fix", _TEXT, _CHARACTER),
        (top.more, "fix", _TEXT, _CHARACTER),
    )
    lines, y = [], float(_MARGIN)
    for text, look, size, character in texts:
        if not text:
            continue
        for line in wrap(text.replace("`", ""), round((_WIDTH - 2 * _MARGIN) / (size * character)), indent=""):
            y += size * _LEADING
            lines.append(_Line(line, look, _MARGIN, y))
        y += size / 3
    y += 1.5 * _SMALL
    keys = _keys(ladder, y + len(ladder.rungs) * _RUNG + _SMALL * _LEADING) if ladder else []
    bars = {"x": _MARGIN + _TIMES, "y": y, "width": _WIDTH - 2 * _MARGIN - _TIMES, "height": _BAR, "step": _RUNG}
    height = round(max((line.y for line in (*lines, *keys)), default=0) + _MARGIN)
    return fill(
        "ladder.svg",
        styles=_STYLES,
        title=printable(report.title),
        lines=lines,
        ladder=ladder,
        keys=keys,
        bars=bars,
        width=_WIDTH,
        height=height,
    )


def _fitting(rung: Rung) -> Rung:
    """Return a bar whose label is no longer than the bar can be, together with its number and its change."""
    room = round((_WIDTH - 2 * _MARGIN - _TIMES) / (_SMALL * _CHARACTER))
    return replace(rung, label=cut(rung.label.replace("`", ""), room - len(f"10   {rung.change}, {rung.proof}")))


def _keys(ladder: Ladder, y: float) -> list[_Line]:
    """Return the entries of the legend, in as many lines as they need."""
    keys: list[_Line] = []
    x = left = float(_MARGIN + _TIMES)
    for key in ladder.keys:
        width = _SWATCH + 6 + len(key.label) * _SMALL * _CHARACTER + 18
        if x + width > _WIDTH - _MARGIN and x > left:
            x, y = left, y + _SMALL * 1.6
        keys.append(_Line(key.label, key.look, x, y))
        x += width
    return keys
