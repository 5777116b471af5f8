"""The report as Markdown for a comment on a pull request: key figures and the first rows of each table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nightsight.events.kernel_labels import NAME_LENGTH
from nightsight.model.report import Report
from nightsight.render.page.findings import Advice, Banner
from nightsight.render.page.page import Page, page
from nightsight.render.table.view import Column, Row, TableView
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.texts import middle_cut

ROWS: Final = 10
_OPEN: Final = CUDA_GPU_KERN_SUM.name  # the only table that is not collapsed
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]|~$#!])")
_LIVE: Final = re.compile(r"@|#(?=\d)|\bGH-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_WAS_LIVE: Final = re.compile(r"(@|#(?=.\d)|\bGH-(?=.\d)|:(?=.//)|\bwww(?=.\.))\N{ZERO WIDTH SPACE}", re.IGNORECASE)
_WAS_MARKUP: Final = re.compile(r"\\([\\`*_{}\[\]|~$#!])|&(?:amp|lt|gt);")
_CHARACTERS: Final = {entity: chr(sign) for sign, entity in _ENTITIES.items()}
_INDENT: Final = "\N{NO-BREAK SPACE}" * 3


def render_markdown(report: Report) -> str:
    """Return a summary: findings, key figures, and the first ROWS rows of each table."""
    view = page(report)
    blocks = [
        f"## {escape(middle_cut(view.title, NAME_LENGTH))}",
        escape(" · ".join(view.facts)),
        escape(view.windows.windows[0].verdict.text),
        *(_banner(banner) for banner in (*view.doubts, *view.notes)),
        _grid(("", "", ""), [(figure.label, figure.value, figure.note) for figure in view.figures], numbers=(1,)),
        _advice(view.advice),
        *_sections(view),
        *(f"**{escape(titles)}.** Not available: {escape(reason)}." for titles, reason in view.unavailable),
        escape(view.generator),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """Return any text as plain Markdown on one line, without markup, HTML, mentions or links."""
    text = _MARKUP.sub(r"\\\1", re.sub(r"[\r\n]+", " ", text).translate(_ENTITIES))
    # prevent mentions, which notify people, references to issues, as in `lambda(int)#1`, and automatic links
    return _LIVE.sub("\\g<0>\N{ZERO WIDTH SPACE}", text)


def unescape(text: str) -> str:
    """Undo `escape`: `escape(unescape(text))` is plain, and equals `text` if `escape` returned that."""
    text = _WAS_LIVE.sub("\\g<1>", text)
    return _WAS_MARKUP.sub(lambda found: found[1] or _CHARACTERS[found[0]], text)


def _banner(banner: Banner) -> str:
    text = escape(" ".join(part for part in (banner.detail, banner.remedy) if part))
    return f"> **{banner.word}: {escape(banner.title)}**  \n> {text}"


def _advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return ""
    items = [f"- **{escape(item.title)}**{_gain(item)}. {escape(item.remedy)}" for item in advice]
    return "\n".join(["### Advice", "", *items])


def _gain(item: Advice) -> str:
    return f" – gains {escape(item.of_window)}" if item.of_window else ""


def _sections(view: Page) -> Iterator[str]:
    for section in view.results:
        if section.table is None:
            if section.message:
                yield f"**{escape(section.title)}.** {escape(section.message)}"
            continue
        table = _rows(section.table)
        if section.anchor == _OPEN:
            yield f"### {escape(section.title)}"
            yield table
        else:
            yield f"<details><summary>{escape(section.title)}</summary>"
            yield table
            yield "</details>"


def _rows(table: TableView) -> str:
    rows = [_texts(row) for row in table.rows[:ROWS]]
    places = tuple(place for place, column in enumerate(table.columns) if column.is_number)
    text = _grid([_heading(column) for column in table.columns], rows, numbers=places)
    more = len(table.rows) > ROWS
    return f"{text}\n\nThe first {ROWS} rows; the report has more." if more else text


def _texts(row: Row) -> list[str]:
    names = [row.name.text, *(cell.text for cell in row.cells)]
    first, *others = (middle_cut(name, NAME_LENGTH) for name in names)
    return [_INDENT * row.level + first, *others]


def _heading(column: Column) -> str:
    return f"{column.title} ({column.unit})" if column.unit else column.title


def _grid(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    rule = ["---:" if place in numbers else "---" for place in range(len(headers))]
    lines = [[escape(text) for text in headers], rule, *([escape(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
