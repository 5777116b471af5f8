"""A comparison as Markdown for a comment on a pull request: short, bounded, and without foreign markup.

A comment holds 65,536 characters. Texts are cut so that everything except table rows fits; tables then get as many rows
as there is room for.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.model.history import digest
from nightsight.render.compare.words import (
    LEAVES,
    NOUNS,
    ChangeText,
    Names,
    causes,
    change_texts,
    cut,
    decision_of,
    differences_of,
    facts,
    gates,
    is_changed,
    is_quiet,
    notable,
    number,
    plural,
    rows_of,
    sentence_of,
    shown_of,
    tally,
    unmentioned_limits,
)
from nightsight.render.export.markdown import escape

MOST_BYTES: Final = 60_000
_METRICS: Final = 6
_ROWS: Final = 10
_SAID: Final = 3
_NAME: Final = 70
_SENTENCE: Final = 400
_ASIDE: Final = 160
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
    return (
        f"<!-- nightsight:{plain if plain and plain == workload else f'{plain}-{digest(workload, 6)}'.lstrip('-')} -->"
    )


def comparison_markdown(comparison: Comparison, *, link: str = "") -> str:
    """Return the comment: one line if nothing changed, else about 30; always below MOST_BYTES.

    `link`: the address of the whole page.
    """
    head = f"{marker(comparison.workload)}\n"
    page = f"[Report]({_address(link)})" if _address(link) else ""
    if is_quiet(comparison):
        title = f"**{_plain(comparison.workload, _NAME)}: unchanged.**"
        about = ", ".join(facts(comparison)[" runs" in comparison.sentence :])
        sentences = (_dot(_plain(text, _ASIDE)) for text in (sentence_of(comparison), about, *comparison.notes[:_SAID]))
        shown = _dot(_plain(shown_of(comparison), _SENTENCE))
        words = (title, *sentences, shown, _doubts(comparison), page)
        return f"{head}{' '.join(word for word in words if word)}\n"
    names = Names(notable(comparison, comparison.changes))
    ending = [text for text in (*_method(comparison), page) if text]
    blocks = [
        _heading(comparison),
        f"**{_dot(_plain(sentence_of(comparison), _SENTENCE))}**" if comparison.sentence.strip() else "",
        _plain(" · ".join(facts(comparison)), 2 * _ASIDE),
        *_causes(comparison),
        _gates(comparison, names),
        *_incomparable(comparison),
    ]
    room = MOST_BYTES - len(head.encode()) - sum(len(text.encode()) + 2 for text in (*blocks, *ending)) - 1
    blocks += [*_change_table(comparison, names, room), *ending]
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def _heading(comparison: Comparison) -> str:
    return f"### {_plain(comparison.workload, _NAME)}: {_WORDS[comparison.verdict]}"


def _plain(text: str, length: int) -> str:
    """Return text of limited length without markup."""
    return escape(cut(text, length)) if text.strip() else ""


def _dot(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _address(link: str) -> str:
    """Return a link that is safe in parentheses and mentions nobody; "" if it is not a web or relative address.

    An address with a user name is left out, because others cannot follow it.
    """
    is_foreign = re.match(r"(?!https?:)\w+:|https?://[^/]*@", link)
    is_safe = re.fullmatch(r"(?:https?://)?[\w./~%?=&#+:@,-]{1,1000}", link) and not is_foreign
    return link.replace("@", "%40") if is_safe else ""


def _doubts(comparison: Comparison) -> str:
    count = len(comparison.differences)
    return f"{count} difference{'s' * (count != 1)} between the sides: see the report." if count else ""


def _causes(comparison: Comparison) -> list[str]:
    changed = causes(comparison)
    if not len(changed):
        return []
    lines = []
    for row in changed.head(_SAID).to_dict("records"):
        is_new = row["verdict"] in ("added", "regressed")
        gain = number(row["candidate_gain_pct"])
        worth = f" (costs {gain:.1f} % of a step)" if is_new and math.isfinite(gain) else ""
        word = {"added": "Appeared", "removed": "Went"}.get(str(row["verdict"]), str(row["verdict"]).capitalize())
        lines.append(f"- **{word}:** {_plain(str(row['title'] or row['rule']), _ASIDE)}{escape(worth)}")
    return ["\n".join([*lines, *_more(len(changed) - _SAID, "cause")])]


def _more(count: int, noun: str) -> list[str]:
    if count <= 0:
        return []
    return ["", f"… {count:,} more {noun}{'s' * (count != 1)} in the report."]


def _gates(comparison: Comparison, names: Names) -> str:
    rows = gates(comparison)
    texts = change_texts(rows.head(_METRICS), names, length=_NAME)
    lines = _markdown_table(
        ("Metric", "Baseline", "Candidate", "Change, 90 % interval", "Verdict"),
        [(one.name, one.baseline, one.candidate, one.whole, _verdict(one)) for one in texts],
        numbers=(1, 2, 3),
    )
    return "\n".join([*lines, *_more(len(rows) - len(texts), "metric")])


def _verdict(one: ChangeText) -> str:
    word = _WORDS.get(one.verdict, one.verdict)
    why = one.note or one.needed
    return f"{word}: {cut(why, _NAME)}" if one.verdict == "inconclusive" and why else word


def _change_table(comparison: Comparison, names: Names, room: int) -> list[str]:
    """Return the largest changes in a folded table, as many as there is room for."""
    rows = notable(comparison, rows_of(comparison, *LEAVES))
    if rows.empty:
        rows = notable(comparison, rows_of(comparison, *NOUNS))
    if rows.empty:
        return []
    top = rows.head(_ROWS)
    title = f"Largest differences: {tally(rows)}"
    other = _elsewhere(comparison)
    frame = [
        f"<details><summary>{escape(title)}</summary>\n",
        "",
        *([f"{escape(other)}\n"] if other else []),
        "</details>",
    ]
    kinds = [NOUNS[kind] for kind in top["kind"]]
    cells = [_cells(one, kind) for one, kind in zip(change_texts(top, names, length=_NAME), kinds, strict=True)]
    header = ("What", "Kind", "Difference", "By count", "By time", "Change", "Verdict")
    used = len("\n".join(frame).encode()) + 200
    head = _markdown_table(header, [], numbers=(2, 3, 4, 5))
    lines: list[str] = []
    for line in _markdown_table(header, cells, numbers=(2, 3, 4, 5))[len(head) :]:
        if used + sum(len(each.encode()) + 1 for each in (*head, *lines, line)) > room:
            break
        lines.append(line)
    frame[1] = "\n".join([*head, *lines, *_more(len(rows) - len(lines), "row")]) + "\n"
    return ["\n".join(frame)] if lines else [f"{escape(title)}."]


def _cells(one: ChangeText, kind: str) -> tuple[str, ...]:
    name = f"{one.name} ({cut(one.note, _NAME)})" if one.note else one.name
    verdict = _WORDS.get(one.verdict, one.verdict)
    return (name, kind, one.difference, one.count_part, one.time_part, one.whole, verdict)


def _elsewhere(comparison: Comparison) -> str:
    """Count the changed ranges, operators and families, which contain the rows of the table."""
    counts = []
    for kind in ("family", "range", "operator"):
        rows = rows_of(comparison, kind)
        count = int(is_changed(rows).sum())
        if count:
            counts.append(f"{count:,} {plural(count, kind)}")
    return f"Also changed: {', '.join(counts)}; see the report." if counts else ""


def _incomparable(comparison: Comparison) -> list[str]:
    differences = differences_of(comparison)
    if not differences:
        return []
    lines = [
        f"- {_plain(what, _NAME)}: {_plain(before, _NAME)} → {_plain(after, _NAME)} ({_plain(follows, _ASIDE)})"
        for what, before, after, follows in differences[:_SAID]
    ]
    return ["\n".join(["**Not comparable:**", "", *lines, *_more(len(differences) - _SAID, "difference")])]


def _method(comparison: Comparison) -> Iterable[str]:
    decision = comparison.decision
    for title, texts in (
        ("Limits broken", unmentioned_limits(comparison)),
        ("Accepted", decision.accepted),
        ("Notes", comparison.notes),
    ):
        if texts:
            excerpt = "; ".join(_plain(text, _ASIDE) for text in texts[:_SAID])
            yield f"{title}: {excerpt}{f'; {len(texts) - _SAID:,} more' if len(texts) > _SAID else ''}"
    yield " ".join(_dot(_plain(text, _SENTENCE)) for text in (decision_of(comparison), comparison.noise) if text)


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]) -> list[str]:
    rule = ["---:" if place in numbers else "---" for place in range(len(header))]
    lines = [header, rule, *([escape(text) for text in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
