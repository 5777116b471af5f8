"""Renders a report for someone in a hurry, often a coding agent: what to change first, where, and how to check it.

At most MOST_BYTES: code, names of kernels and the last causes are left out until the rest fits, and `nightsight show`
has what is left out. All texts are printable.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import pandas as pd

from nightsight.events.frameworks import reported_framework
from nightsight.events.kernel_labels import KernelLabels, label_of
from nightsight.events.peaks import LIMITED_PCT, MEMORIES
from nightsight.model.report import Finding, Json, Report, ids_of
from nightsight.render.fit import MOST_BYTES, brief_document, brief_json, brief_text
from nightsight.render.fixes import fixes_of
from nightsight.render.page.findings import doubts_of
from nightsight.render.page.places import Places
from nightsight.render.summary import Numbers, facts, numbers, serving_sentences
from nightsight.render.verdict import (
    NotRecorded,
    Verdict,
    first_sentences,
    gain_of,
    limit_of,
    mean_shares,
    not_recorded,
    verdict,
)
from nightsight.results.categories import (
    ALLOCATION,
    BLOCKING_COPY,
    CAPTURE,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    GRAPHS,
    HOST,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    SYNC,
)
from nightsight.results.causes import REPLAY
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS
from nightsight.results.rules import RULE, RULES
from nightsight.results.switches import JIT, switches_for
from nightsight.texts import excerpt, log_line, middle_cut, printable, prose
from nightsight.units import in_text

_MOST_CAUSES: Final = 3
_MOST_KERNELS: Final = 2
_MOST_PARTS: Final = 3
_MOST_DOUBTS: Final = 2
_MOST_SERVING: Final = 2
# a smaller part of the time does not say what bounds a program
_LEAST_PCT: Final = 1.0
# in characters
_NAME: Final = 60
_TITLE: Final = 200
_PLACE: Final = 120
_FIX: Final = 240
_SENTENCE: Final = 200
_REPR: Final = 1_800
_AFTER_EDIT: Final = "nightsight ab"
_BOUND: Final = (
    ("GPU", (COMPUTE, GRAPHS)),
    ("communication", (COMMUNICATION,)),
    ("memory copies", (COPIES,)),
    ("host", (HOST, LAUNCH, SYNC, BLOCKING_COPY, ALLOCATION, MODULE, CAPTURE, OTHER_CALL)),
)
"""What can bound a program, and the categories of its time that show it."""


@dataclass(frozen=True, repr=False)
class BriefCause:
    """A cause, and its fix. id: the name of its rule, with a number after the first finding of that rule.

    step: how long a step takes before and after the fix alone, "" if unknown; step_after_ns: the latter. place: the
    ranges around it. code: lines to paste. check: the command that measures the fix, "" if `proof` says what it gained.
    """

    id: str
    cause: str
    gain: str
    gain_pct: float | None
    step: str
    step_after_ns: float | None
    place: str
    kernels: tuple[str, ...]
    fix: str
    code: str
    check: str
    proof: str

    def __repr__(self) -> str:
        """Return the cause as a brief has it."""
        head = f"{self.id}: {', '.join(filter(None, (self.gain, self.step)))}".removesuffix(": ")
        return middle_cut("\n".join([head, *(f"  {line}" for line in cause_lines(self))]), _REPR)


@dataclass(frozen=True)
class Bound:
    """What bounds a program, and the categories of its time that show it: the share of each in percent.

    kernels: what limits the longest kernel that ncu replayed; "" if none was.
    """

    by: str
    shares_pct: dict[str, float]
    kernels: str = ""


@dataclass(frozen=True)
class Brief:
    """The brief of a report.

    step_ns: the step that gains refer to, or the window if nothing repeats; None if unknown. more_causes: the
    number of further ones in the report. is_cut: something was left out because of the size.
    """

    title: str
    facts: tuple[str, ...]
    verdict: str
    window: str
    step_ns: float | None
    profiled_step_ns: float | None
    bound: Bound
    serving: tuple[str, ...]
    doubts: tuple[str, ...]
    causes: tuple[BriefCause, ...]
    more_causes: int
    not_recorded: tuple[NotRecorded, ...]
    is_cut: bool = False


def brief(report: Report) -> Brief:
    """Return the brief of a report, with everything that may be left out."""
    run = numbers(report)
    summary = verdict(report, run)
    fixes, named = fixes_of(report), identified(report)
    chosen = report.chosen_window
    causes = [cause_of_brief(report, name) for name in list(named)[:_MOST_CAUSES]]
    return Brief(
        excerpt(report.title, _TITLE),
        tuple(facts(report, run)),
        summary.text,
        prose(chosen.sentence, _SENTENCE) if chosen and run.busy_pct_by_device else "",
        fixes.now_ns if fixes else run.step_ns,
        run.profiled_step_ns,
        _bound(report),
        tuple(prose(text, _SENTENCE) for text in islice(serving_sentences(report), _MOST_SERVING)),
        _doubts(report, summary),
        tuple(causes),
        len(named) - len(causes),
        tuple(_not_recorded(report, run)),
    )


def identified(report: Report) -> dict[str, Finding]:
    """Return the causes of a report by their ids, in order."""
    return dict(zip(ids_of(finding.rule for finding in report.advice), report.advice, strict=True))


def kernel_labels(report: Report) -> dict[str, str]:
    """Return the labels of the kernels of a report by their names; different kernels have different labels."""
    tables = (report.rows(entry) for entry in (CUDA_GPU_KERN_SUM, NCU_KERNELS))
    names = dict.fromkeys(name for rows in tables if "name" in rows for name in rows["name"].dropna().astype("str"))
    labels = KernelLabels(names)
    return {name: labels.short(name) for name in names}


def check_of(finding: Finding, framework: str) -> str:
    """Return the command that measures the fix of a finding: with a switch, or, after an edit, between two commits."""
    if finding.rule in RULE and switches_for(finding.rule, finding.title, framework):
        return f"nightsight prove --cause {finding.rule} PROGRAM"
    if JIT.fixes(finding.rule, finding.title):
        return f"nightsight prove --switch {JIT.name} PROGRAM"
    return f"{_AFTER_EDIT} --base HEAD --head . PROGRAM"


def cause_of_brief(report: Report, name: str) -> BriefCause:
    """Return a cause of a report by its id; KeyError if there is none."""
    finding, fixes, labels = identified(report)[name], fixes_of(report), kernel_labels(report)
    fix = fixes.about(finding) if fixes else None
    after_ns = fixes.now_ns * (1 - fix.gain_pct / 100) if fixes and fix else None
    return BriefCause(
        name,
        excerpt(finding.title, _TITLE),
        gain_of(finding),
        finding.gain_pct,
        fixes.change(fix) if fixes and fix else "",
        after_ns,
        prose(Places(report).path(finding), _PLACE),
        tuple(
            dict.fromkeys(
                printable(labels.get(kernel) or label_of(kernel)) for kernel in finding.kernels[:_MOST_KERNELS]
            )
        ),
        first_sentences(finding.remedy, _FIX) or prose(finding.action, _FIX),
        "\n".join(log_line(line) for line in finding.code.split("\n")),
        "" if finding.proof else check_of(finding, reported_framework(report)),
        prose(finding.proof, _SENTENCE),
    )


def _bound(report: Report) -> Bound:
    """Return what takes most of the time; if that is the GPU's memory, according to ncu, that is said."""
    shares = mean_shares(report.rows(TIME_SPLIT)).sort_values(ascending=False, kind="stable")
    shares = shares[shares >= _LEAST_PCT]
    sums = {name: float(shares.reindex(categories).sum()) for name, categories in _BOUND}
    by = max(sums, key=lambda name: sums[name]) if any(sums.values()) else ""
    limits = report.rows(NCU_LIMITS)
    kernels = ""
    if {"name", "replay_ns", "unit", "used_pct"} <= set(limits.columns) and limits["replay_ns"].notna().any():
        row: dict[Any, Any] = limits.nlargest(1, "replay_ns").to_dict("records")[0]
        if limit := limit_of(row):
            kernels = f"`{printable(label_of(str(row['name']), _NAME))}` {limit}"
            if by in ("", "GPU") and row["used_pct"] >= LIMITED_PCT:
                by = "GPU memory" if row["unit"] in MEMORIES else "GPU"
    return Bound(by, {str(name): float(share) for name, share in shares.head(_MOST_PARTS).items()}, kernels)


def _doubts(report: Report, summary: Verdict) -> tuple[str, ...]:
    shown = [prose(banner.sentence, _SENTENCE) for banner in doubts_of(report.findings, summary.about)]
    more = len(shown[_MOST_DOUBTS:])
    return (*shown[:_MOST_DOUBTS], *([f"{more} more in the report"] if more else []))


def _not_recorded(report: Report, run: Numbers) -> Iterator[NotRecorded]:
    """Yield what this report cannot say, and how to record it."""
    if lacking := not_recorded(report, report.rows(TIME_SPLIT)):
        yield lacking
    timed = report.rows(REPLAY).get("timed_ns", pd.Series(dtype="float64"))
    if run.busy_pct_by_device and run.step_ns is None and not timed.notna().any():
        yield NotRecorded("A step without a profiler was not timed.", "Profile with `--time-steps`.")
    if reason := report.unchecked.get(RULES[0].name, ""):
        yield NotRecorded(f"Causes could not be checked: {prose(reason, _SENTENCE).rstrip('.')}.", "")


# -- text and JSON ----------------------------------------------------------------------------------------------------


def render_brief(report: Report, local: Callable[[str], str] = str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the brief as text. local: names source files by their path on this machine."""
    return brief_text(_shorter(brief(report)), lambda each: map(local, brief_lines(each)), most_bytes)


def render_brief_json(report: Report) -> bytes:
    """Return the brief as JSON on one line."""
    return brief_json(_shorter(brief(report)))


def _shorter(each: Brief) -> Iterator[Brief]:
    """Yield a brief, then shorter and shorter ones; the first cause is complete for as long as possible."""
    yield each
    each = replace(each, is_cut=True)
    for place in reversed(range(len(each.causes))):
        causes = [*each.causes]
        for lacking in ({"code": ""}, {"kernels": (), "fix": causes[place].fix[: _FIX // 2]}):
            causes[place] = replace(causes[place], **lacking)
            each = replace(each, causes=tuple(causes))
            yield each
    yield (each := replace(each, serving=(), doubts=each.doubts[:1]))
    while each.causes:
        each = replace(each, causes=each.causes[:-1], more_causes=each.more_causes + 1)
        yield each


def brief_lines(each: Brief) -> Iterator[str]:
    """Yield the lines of a brief."""
    yield f"{excerpt(each.title, _NAME)}: {', '.join(each.facts)}" if each.facts else excerpt(each.title, _NAME)
    yield f"verdict: {each.verdict}"
    if each.window:
        yield f"window: {each.window}"
    if each.bound.by:
        shares = ", ".join(f"{name} {in_text(share, 'share_pct')}" for name, share in each.bound.shares_pct.items())
        kernels = each.bound.kernels and f"; {each.bound.kernels}"
        yield f"bound by: {each.bound.by}{shares and f' ({shares})'}{kernels}"
    yield from (f"serving: {text}" for text in each.serving)
    yield from (f"doubt: {text}" for text in each.doubts)
    for lacking in each.not_recorded:
        if lacking.what not in each.verdict:
            yield f"missing: {f'{lacking.what} {lacking.how}'.strip()}"
    for number, cause in enumerate(each.causes, start=1):
        yield ""
        gain = ", ".join(filter(None, (cause.gain, cause.step)))
        yield f"{number}. {cause.id}{gain and f': {gain}'}"
        yield from (f"   {line}" for line in cause_lines(cause))
    if each.causes:
        yield ""
        more = f"{each.more_causes} more causes, and " if each.more_causes else ""
        yield f"{more}details{' with code' * each.is_cut}: nightsight show REPORT {each.causes[0].id}"


def cause_lines(cause: BriefCause) -> Iterator[str]:
    """Yield the lines of a cause, without its id and gain."""
    yield f"cause: {cause.cause}"
    if cause.place:
        yield f"place: {cause.place}"
    if cause.kernels:
        yield f"kernels: {'; '.join(cause.kernels)}"
    if cause.fix:
        yield f"fix: {cause.fix}"
    if cause.code:
        yield "code:"
        yield from (f"  {line}" for line in cause.code.split("\n"))
    if cause.proof:
        yield f"proof: {cause.proof}"
    else:
        yield f"check{' after the edit' * cause.check.startswith(_AFTER_EDIT)}: {cause.check}"


def verdict_document(report: Report) -> dict[str, Json]:
    """Return what report.json says of the verdict: the brief, of which nothing is left out."""
    document = brief_document(brief(report))
    of_report = ("format", "title", "facts", "is_cut")
    rest = {name: value for name, value in document.items() if name not in ("verdict", *of_report)}
    return {"text": document["verdict"], **rest}
