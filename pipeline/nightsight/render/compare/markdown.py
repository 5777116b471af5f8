"""A comparison as Markdown for a comment on a pull request: short, bounded, and without foreign markup.

A comment holds 65,536 characters. Texts are cut so that everything except table rows fits; the remaining space
determines the number of table rows.
"""

import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.model.history import digest
from nightsight.render.compare.figures import StepBars, step_bars
from nightsight.render.compare.words import (
    CHANGED,
    LEAVES,
    NOUNS,
    ChangeText,
    MeasureNames,
    belief,
    causes,
    change_texts,
    decision_of,
    differences_of,
    evidence_of,
    facts,
    gates,
    is_changed,
    is_quiet,
    notable,
    number,
    plural,
    rows_of,
    sentence_of,
    since,
    tally,
    title_words,
    unmentioned_limits,
)
from nightsight.render.export.markdown import escape, table_lines
from nightsight.render.lines import align
from nightsight.texts import excerpt
from nightsight.units import counted

MOST_BYTES: Final = 60_000
_MAX_METRICS: Final = 6
_BAR: Final = 36
_MAX_ROWS: Final = 10
_MAX_ITEMS: Final = 3
# length limits
_NAME: Final = 70
_SENTENCE: Final = 400
_REMARK: Final = 160
_WORDS: Final = {
    "regressed": "🔴 regressed",
    "improved": "🟢 improved",
    "unchanged": "unchanged",
    "inconclusive": "🟡 inconclusive",
    "added": "added",
    "removed": "removed",
}


def marker(workload: str) -> str:
    """Return the first line of a comment, by which the next run finds it: `<!-- nightsight:mlp -->`."""
    # remove characters that could end the HTML comment; a digest distinguishes names that lose characters
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", workload).strip("-")[:100]
    if not plain or plain != workload:
        plain = f"{plain}-{digest(workload, 6)}".lstrip("-")
    return f"<!-- nightsight:{plain} -->"


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comment: one line if nothing changed, else about 30; always below MOST_BYTES."""
    head = f"{marker(comparison.workload)}\n"
    if is_quiet(comparison):
        return f"{head}{_line(comparison)}\n"
    names = MeasureNames(notable(comparison, comparison.changes))
    ending = [text for text in _method(comparison) if text]
    blocks = [
        f"### {_plain(title_words(comparison), _NAME)}: {_WORDS[comparison.verdict]}{_since(comparison)}",
        f"**{_dot(_plain(sentence_of(comparison), _SENTENCE))}**" if comparison.sentence.strip() else "",
        _plain(belief(comparison), _SENTENCE),
        _picture(step_bars(comparison, names)),
        _plain(" · ".join(facts(comparison)), 2 * _REMARK),
        *_cause_items(comparison),
        _gates(comparison, names),
        *_differences(comparison),
    ]
    room = MOST_BYTES - len(head.encode()) - sum(len(text.encode()) + 2 for text in (*blocks, *ending)) - 1
    blocks += [*_change_table(comparison, names, room), *ending]
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def _since(comparison: Comparison) -> str:
    commit = since(comparison) if comparison.verdict in CHANGED else ""
    return f" since {_plain(commit, _NAME)}" if commit else ""


def _picture(bars: StepBars | None) -> str:
    """Return a bar of characters for a step of each side: full while the GPU is busy, shaded while it is idle."""
    if bars is None:
        return ""
    rows = []
    for title, time, side in (("baseline", bars.step[0], "before"), ("candidate", bars.step[1], "after")):
        widths = [0.0, 0.0]
        for part in bars.parts:
            widths[not part.is_busy] += getattr(part, side)[1]
        ends = [round(_BAR * width / 100) for width in accumulate(widths)]
        rows.append((title, time, "█" * ends[0] + "░" * (ends[1] - ends[0])))
    return "\n".join(["A step, the GPU busy █ and idle ░:", "", "```text", *align(rows, right=(1,)), "```"])


def _line(comparison: Comparison) -> str:
    """Return the comment on a comparison without changes."""
    title = f"**{_plain(comparison.workload, _NAME)}: unchanged.**"
    runs = ", ".join(facts(comparison)[" runs" in comparison.sentence :])
    remarks = (sentence_of(comparison), runs, *comparison.notes[:_MAX_ITEMS])
    evidence = _dot(_plain(evidence_of(comparison), _SENTENCE))
    count = len(comparison.differences)
    doubts = f"{counted(count, 'difference')} between the sides: see the report." if count else ""
    return " ".join(filter(None, (title, *(_dot(_plain(text, _REMARK)) for text in remarks), evidence, doubts)))


def _plain(text: str, length: int) -> str:
    """Return text of limited length without markup."""
    return escape(excerpt(text, length)) if text.strip() else ""


def _dot(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _cause_items(comparison: Comparison) -> list[str]:
    rows = causes(comparison)
    if not len(rows):
        return []
    lines = []
    for row in rows.head(_MAX_ITEMS).to_dict("records"):
        is_new = row["verdict"] in ("added", "regressed")
        gain = number(row["candidate_gain_pct"])
        cost = f" (costs {gain:.1f} % of a step)" if is_new and math.isfinite(gain) else ""
        word = {"added": "Appeared", "removed": "Went"}.get(str(row["verdict"]), str(row["verdict"]).capitalize())
        lines.append(f"- **{word}:** {_plain(str(row['title'] or row['rule']), _REMARK)}{escape(cost)}")
    return ["\n".join([*lines, *_more(len(rows) - _MAX_ITEMS, "cause")])]


def _more(count: int, noun: str) -> list[str]:
    if count <= 0:
        return []
    return ["", f"… {counted(count, f'more {noun}')} in the report."]


def _gates(comparison: Comparison, names: MeasureNames) -> str:
    rows = gates(comparison)
    texts = change_texts(rows.head(_MAX_METRICS), names, length=_NAME)
    headings = ("Metric", "Baseline", "Candidate", "Change, 90 % interval", "Verdict")
    cells = [(text.name, text.baseline, text.candidate, text.whole, _verdict(text)) for text in texts]
    lines = table_lines(headings, cells, numbers=(1, 2, 3))
    return "\n".join([*lines, *_more(len(rows) - len(texts), "metric")])


def _verdict(text: ChangeText) -> str:
    word = _WORDS.get(text.verdict, text.verdict)
    note = text.note or text.needed
    return f"{word}: {excerpt(note, _NAME)}" if text.verdict == "inconclusive" and note else word


def _change_table(comparison: Comparison, names: MeasureNames, room: int) -> list[str]:
    """Return the largest changes in a folded table, as many as fit into `room` bytes."""
    rows = notable(comparison, rows_of(comparison, *LEAVES))
    if rows.empty:
        rows = notable(comparison, rows_of(comparison, *NOUNS))
    if rows.empty:
        return []
    title = escape(f"Largest differences: {tally(rows)}")
    # ranges, operators and families contain the rows of the table
    counts = {kind: int(is_changed(rows_of(comparison, kind)).sum()) for kind in ("family", "range", "operator")}
    changed = ", ".join(f"{count:,} {plural(count, kind)}" for kind, count in counts.items() if count)
    before = f"<details><summary>{title}</summary>\n"
    after = [f"{escape(f'Also changed: {changed}; see the report.')}\n"] if changed else []
    largest = rows.head(_MAX_ROWS)
    texts = change_texts(largest, names, length=_NAME)
    cells = [_cells(text, NOUNS[kind]) for text, kind in zip(texts, largest["kind"], strict=True)]
    headings = ("What", "Kind", "Difference", "By count", "By time", "Change", "Verdict")
    # 200 for the tags, and the note on more rows
    room -= len("\n".join((before, *after)).encode()) + 200
    lines = table_lines(headings, cells, numbers=(2, 3, 4, 5))
    sizes = accumulate(len(line.encode()) + 1 for line in lines)
    fitting = [line for line, size in zip(lines, sizes, strict=True) if size <= room]
    count = len(fitting) - 2
    if count <= 0:
        return [f"{title}."]
    table = "\n".join([*fitting, *_more(len(rows) - count, "row")])
    return ["\n".join((before, f"{table}\n", *after, "</details>"))]


def _cells(text: ChangeText, kind: str) -> tuple[str, ...]:
    name = f"{text.name} ({excerpt(text.note, _NAME)})" if text.note else text.name
    verdict = _WORDS.get(text.verdict, text.verdict)
    return (name, kind, text.difference, text.count_part, text.time_part, text.whole, verdict)


def _differences(comparison: Comparison) -> list[str]:
    differences = differences_of(comparison)
    if not differences:
        return []
    texts = [
        (*(_plain(text, _NAME) for text in values), _plain(consequence, _REMARK))
        for *values, consequence in differences[:_MAX_ITEMS]
    ]
    lines = [f"- {fact}: {baseline} → {candidate} ({consequence})" for fact, baseline, candidate, consequence in texts]
    return ["\n".join(["**Not comparable:**", "", *lines, *_more(len(differences) - _MAX_ITEMS, "difference")])]


def _method(comparison: Comparison) -> Iterator[str]:
    lists = {
        "Limits broken": unmentioned_limits(comparison),
        "Accepted": comparison.decision.accepted,
        "Notes": comparison.notes,
    }
    for title, texts in lists.items():
        if texts:
            excerpt = "; ".join(_plain(text, _REMARK) for text in texts[:_MAX_ITEMS])
            yield f"{title}: {excerpt}{f'; {len(texts) - _MAX_ITEMS:,} more' if len(texts) > _MAX_ITEMS else ''}"
    yield " ".join(_dot(_plain(text, _SENTENCE)) for text in (decision_of(comparison), comparison.noise) if text)
