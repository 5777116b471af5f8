"""Renders many captures for someone in a hurry: what recurs, in how many of them, and which to open first.

All texts are printable. See `nightsight.render.brief` for that of a report.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from shlex import quote
from typing import Any, Final

from nightsight.model.fleet import Fleet
from nightsight.render.fit import MOST_BYTES, brief_json, brief_text
from nightsight.render.fleet.page import facts_of, verdict_of
from nightsight.texts import excerpt, printable, prose
from nightsight.units import MINUS, counted, format_value, signed

_MOST_CAUSES: Final = 5
_MOST_OUTLIERS: Final = 3
_MOST_TEXTS: Final = 2
_MOST_FILES: Final = 2
# in characters
_NAME: Final = 80
_SENTENCE: Final = 160


@dataclass(frozen=True)
class BriefCause:
    """A cause: in how many captures it is, its share of all GPU time, and the captures in which it costs most.

    gain_pct, most_gain_pct: how much shorter a step becomes, the median and the largest of these captures.
    """

    rule: str
    cause: str
    others: int
    action: str
    captures: int
    share_pct: float
    gain_pct: float
    most_gain_pct: float
    within: tuple[str, ...]


@dataclass(frozen=True)
class BriefOutlier:
    """A capture unlike the others of its group. mostly: the category of the step that differs most."""

    file: str
    step_ns: float
    usual_ns: float
    change_pct: float
    mostly: str
    disturbed: str


@dataclass(frozen=True)
class FleetBrief:
    """The brief of many captures. more_*: how many are left out. commands: what to do next."""

    captures: int
    facts: tuple[str, ...]
    verdict: str
    causes: tuple[BriefCause, ...]
    more_causes: int
    outliers: tuple[BriefOutlier, ...]
    more_outliers: int
    judged: int
    unread: int
    not_read: tuple[str, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]
    is_cut: bool = False


def brief(fleet: Fleet) -> FleetBrief:
    """Return the brief of many captures, with everything that may be left out."""
    verdict = verdict_of(fleet)
    files = dict(zip(fleet.captures["capture"], fleet.captures["file"], strict=True))
    causes = [_cause(row, files) for row in fleet.causes.head(_MOST_CAUSES).to_dict("records")]
    outliers = [_outlier(row) for row in fleet.outliers.head(_MOST_OUTLIERS).to_dict("records")]
    first = fleet.causes.iloc[0]["within"][0] if len(fleet.causes) else None
    to_open = [file for file in (files.get(first), *fleet.outliers["file"].head(1)) if isinstance(file, str)]
    return FleetBrief(
        len(fleet.captures),
        facts_of(fleet),
        " ".join(filter(None, (verdict.state, verdict.cause, verdict.first))),
        tuple(causes),
        len(fleet.causes) - len(causes),
        tuple(outliers),
        len(fleet.outliers) - len(outliers),
        fleet.judged,
        len(fleet.failures),
        tuple(prose(f"{each.name}: {each.reason}", _SENTENCE) for each in fleet.failures[:_MOST_TEXTS]),
        tuple(prose(note, _SENTENCE) for note in fleet.notes[:_MOST_TEXTS]),
        tuple(f"nightsight report {quote(printable(file))} --format brief" for file in dict.fromkeys(to_open)),
    )


def _cause(row: dict[Any, Any], files: dict[str, str]) -> BriefCause:
    return BriefCause(
        excerpt(row["rule"], _NAME),
        excerpt(row["cause"], _SENTENCE),
        int(row["others"]),
        prose(row["action"], _SENTENCE),
        int(row["captures"]),
        float(row["share_pct"]),
        float(row["gain_med_pct"]),
        float(row["gain_max_pct"]),
        tuple(excerpt(files[capture], _NAME) for capture in row["within"][:_MOST_FILES]),
    )


def _outlier(row: dict[Any, Any]) -> BriefOutlier:
    category, time_ns = row["category"], float(row["category_ns"])
    mostly = ""
    if isinstance(category, str) and isfinite(time_ns):
        mostly = f"{category}, {'+' if time_ns > 0 else MINUS}{format_value(abs(time_ns), 'time_ns')}"
    step_ns, usual_ns, change_pct = (float(row[name]) for name in ("step_ns", "usual_ns", "change_pct"))
    disturbed = prose(str(row["disturbed"]), _NAME)
    return BriefOutlier(excerpt(row["file"], _NAME), step_ns, usual_ns, change_pct, mostly, disturbed)


# -- text and JSON ----------------------------------------------------------------------------------------------------


def fleet_brief(fleet: Fleet, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the brief as text."""
    return brief_text(_shorter(brief(fleet)), brief_lines, most_bytes)


def fleet_brief_json(fleet: Fleet) -> bytes:
    """Return the brief as JSON on one line."""
    return brief_json(_shorter(brief(fleet)))


def _shorter(each: FleetBrief) -> Iterator[FleetBrief]:
    """Yield a brief, then shorter and shorter ones; the verdict and the first cause stay for as long as possible."""
    yield each
    each = replace(each, is_cut=True)
    yield (each := replace(each, notes=each.notes[:1], not_read=each.not_read[:1]))
    while len(each.outliers) > 1:
        each = replace(each, outliers=each.outliers[:-1], more_outliers=each.more_outliers + 1)
        yield each
    while len(each.causes) > 1:
        each = replace(each, causes=each.causes[:-1], more_causes=each.more_causes + 1)
        yield each
    yield (each := replace(each, notes=(), not_read=(), facts=()))
    yield replace(each, causes=(), outliers=(), commands=())


def brief_lines(each: FleetBrief) -> Iterator[str]:
    """Yield the lines of a brief."""
    yield f"{counted(each.captures, 'capture')}: {', '.join(each.facts)}" if each.facts else f"{each.captures} captures"
    yield f"verdict: {each.verdict}"
    if each.unread:
        few = f": {'; '.join(each.not_read)}" if each.not_read else ""
        yield f"not read: {counted(each.unread, 'file')}{few}"
    yield from (f"note: {note}" for note in each.notes)
    for number, cause in enumerate(each.causes, start=1):
        yield ""
        share = format_value(cause.share_pct, "share_pct")
        yield f"{number}. {cause.rule}: {share} of all GPU time, in {cause.captures:,} of {each.captures:,} captures"
        others = f" (and {cause.others} more of this kind)" if cause.others else ""
        yield f"   cause: {cause.cause}{others}"
        if cause.action:
            yield f"   fix: {cause.action}"
        gains = [f"{MINUS}{format_value(gain, 'gain_pct')}" for gain in (cause.gain_pct, cause.most_gain_pct)]
        yield f"   gain per step: {gains[0]}{f', up to {gains[1]}' if gains[1] != gains[0] else ''}"
        yield f"   most in: {', '.join(cause.within)}"
    if each.more_causes:
        yield f"{counted(each.more_causes, 'more cause')} on the page"
    if each.outliers:
        yield ""
        yield f"unlike the others of their group ({counted(each.judged, 'capture')} judged):"
    for outlier in each.outliers:
        step, usual = (format_value(value, "step_ns") for value in (outlier.step_ns, outlier.usual_ns))
        details = [f"mostly {outlier.mostly}" * bool(outlier.mostly), outlier.disturbed]
        change = f"{signed(outlier.change_pct)} %"
        yield ", ".join(filter(None, (f"{outlier.file}: step {step} instead of {usual}", change, *details)))
    if each.more_outliers:
        yield f"{each.more_outliers:,} more on the page"
    if each.commands:
        yield ""
        yield from (f"next: {command}" for command in each.commands)
