"""The report as Markdown for a comment on a pull request: key figures and the first rows of each table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nightsight.events.kernel_labels import NAME_LENGTH
from nightsight.model.report import Report
from nightsight.render.figure.ladder import Ladder, Rung
from nightsight.render.lines import align, cut
from nightsight.render.page.findings import Advice, Banner
from nightsight.render.page.page import Page, page
from nightsight.render.table.view import TableView
from nightsight.results.code import language_of
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.texts import middle_cut

ROWS: Final = 10
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]|~$#!])")
_LIVE: Final = re.compile(r"@|#(?=\d)|\bGH-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ESCAPED_LIVE: Final = re.compile(r"(@|#(?=.\d)|\bGH-(?=.\d)|:(?=.//)|\bwww(?=.\.))\N{ZERO WIDTH SPACE}", re.IGNORECASE)
_ESCAPED_MARKUP: Final = re.compile(r"\\([\\`*_{}\[\]|~$#!])|&(?:amp|lt|gt);")
_CHARACTERS: Final = {entity: chr(code) for code, entity in _ENTITIES.items()}
# of a bar, and of the text before it, in characters
_BAR: Final = 36
_LABEL: Final = 48
_INDENT: Final = "\N{NO-BREAK SPACE}" * 3


def render_markdown(report: Report) -> str:
    """Return a summary: findings, key figures, and the first ROWS rows of each table."""
    view = page(report)
    blocks = [
        f"## {escape(middle_cut(view.title, NAME_LENGTH))}",
        escape(" · ".join(view.facts)),
        escape(view.windows.windows[0].verdict.text),
        _ladder(view.windows.windows[0].ladder),
        *(_banner(banner) for banner in (*view.doubts, *view.notes)),
        _table(("", "", ""), [(figure.label, figure.value, figure.note) for figure in view.figures], numbers=(1,)),
        _advice(view.advice),
        *_sections(view),
        *(f"**{escape(titles)}.** Not available: {escape(reason)}." for titles, reason in view.unavailable),
        escape(view.generator),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _ladder(ladder: Ladder | None) -> str:
    """Return a bar of characters for a step now, and one after each fix; images need a host, and this does not."""
    if ladder is None:
        return ""
    rows = [
        (cut(rung.label.replace("`", ""), _LABEL), rung.time, "█" * max(round(_BAR * _length(rung) / 100), 1))
        for rung in ladder.rungs
    ]
    lines = align(rows, right=(1,))
    return "\n".join([f"{escape(ladder.title)}:", "", "```text", *lines, "```"])


def _length(rung: Rung) -> float:
    return sum(part.width for part in rung.parts)


def escape(text: str) -> str:
    """Return any text as plain Markdown on one line, without markup, HTML, mentions or links."""
    text = _MARKUP.sub(r"\\\1", re.sub(r"[\r\n]+", " ", text).translate(_ENTITIES))
    # prevent mentions, which notify people, references to issues, as in `lambda(int)#1`, and automatic links
    return _LIVE.sub("\\g<0>\N{ZERO WIDTH SPACE}", text)


def unescape(text: str) -> str:
    """Undo `escape`: `escape(unescape(text))` is plain, and equals `text` if `escape` returned that."""
    text = _ESCAPED_LIVE.sub("\\g<1>", text)
    return _ESCAPED_MARKUP.sub(lambda match: match[1] or _CHARACTERS[match[0]], text)


def _banner(banner: Banner) -> str:
    text = escape(" ".join(part for part in (banner.detail, banner.remedy) if part))
    return f"> **{banner.word}: {escape(banner.title)}**  \n> {text}"


def _advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return ""
    gains = [f" – gains {escape(item.of_window)}" if item.of_window else "" for item in advice]
    items = zip(advice, gains, strict=True)
    first, *others = (f"- **{escape(item.title)}**{gain}. {escape(item.remedy)}" for item, gain in items)
    return "\n".join(["### Advice", "", first, *_fenced(advice[0].code), *others])


def _fenced(code: str) -> Iterator[str]:
    """Yield the lines of code as a block in an item of a list."""
    if code:
        # longer than any in the code
        fence = max(("```", *(f"{ticks}`" for ticks in re.findall("`+", code))), key=len)
        yield from ("", f"  {fence}{language_of(code)}", *(f"  {line}" for line in code.split("\n")), f"  {fence}")


def _sections(view: Page) -> Iterator[str]:
    for section in view.results:
        if section.table is None:
            if section.message:
                yield f"**{escape(section.title)}.** {escape(section.message)}"
        elif section.anchor == CUDA_GPU_KERN_SUM.name:
            yield f"### {escape(section.title)}"
            yield _first_rows(section.table)
        else:
            yield f"<details><summary>{escape(section.title)}</summary>"
            yield _first_rows(section.table)
            yield "</details>"


def _first_rows(view: TableView) -> str:
    headings = [f"{column.title} ({column.unit})" if column.unit else column.title for column in view.columns]
    rows = []
    for row in view.rows[:ROWS]:
        name, *values = (middle_cut(cell.text, NAME_LENGTH) for cell in (row.name, *row.cells))
        rows.append([_INDENT * row.level + name, *values])
    numbers = [index for index, column in enumerate(view.columns) if column.is_number]
    more = f"\n\nThe first {ROWS} rows; the report has more." if len(view.rows) > ROWS else ""
    return _table(headings, rows, numbers=numbers) + more


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int]) -> str:
    return "\n".join(table_lines(headings, rows, numbers=numbers)) if rows else ""


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]) -> list[str]:
    """Return a table of any texts, two lines before the rows; `numbers`: the columns that are aligned right."""
    rule = ["---:" if index in numbers else "---" for index in range(len(headings))]
    lines = [[escape(text) for text in headings], rule, *([escape(text) for text in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
