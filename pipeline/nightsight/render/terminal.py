"""Renders a report on one screen: doubts, the verdict, the main causes with their fixes, and the largest kernels.

Terminals get lines, notebooks get HTML. All texts are printable: names of kernels and files cannot control a terminal.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Final, Literal

import numpy as np
from rich.cells import cell_len

from nightsight.model.report import Report
from nightsight.render.lines import align, clip, cut, wrap
from nightsight.render.page.findings import doubts_of
from nightsight.render.summary import facts, numbers, serving_sentences
from nightsight.render.table.layouts import labels_of
from nightsight.render.table.view import floats, operation_names
from nightsight.render.verdict import Verdict, cause_of, gain_of, start_up_of, verdict
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, MEMORY_OPERATIONS
from nightsight.results.ncu import NCU_KERNELS
from nightsight.results.operators import CPU_OPS
from nightsight.results.ranks import RANKS
from nightsight.texts import printable
from nightsight.units import counted, format_cell, heading, scale_for, split

Tone = Literal["", "strong", "faint", "error", "warning"]

_MAX_CAUSES: Final = 3
_MAX_ROWS: Final = 5
_MAX_DOUBTS: Final = 3
# widths in cells
_TITLE: Final = 60
_PROSE: Final = 120  # longer lines are hard to read
_NAME: Final = 36  # the least width before another column of numbers is shown
_LONGEST_NAME: Final = 160
_COLUMNS: Final = {
    CUDA_GPU_KERN_SUM.name: ("time_pct", "total_ns", "instances", "avg_ns", "med_ns", "max_ns"),
    NCU_KERNELS.name: ("replay_ns", "sm_pct", "memory_pct", "dram_pct", "occupancy_pct", "registers"),
    MEMORY_OPERATIONS.name: ("time_pct", "total_ns", "count", "total_bytes", "rate_bytes_per_s", "avg_ns"),
    CPU_OPS.name: ("own_pct", "own_ns", "calls", "total_ns", "max_ns"),
}
# times of one kernel, which are compared along a row
_SAME_UNIT: Final = ("avg_ns", "med_ns", "max_ns")
_NOUNS: Final = {
    CUDA_GPU_KERN_SUM.name: "kernel",
    NCU_KERNELS.name: "replayed kernel",
    MEMORY_OPERATIONS.name: "kind",
    CPU_OPS.name: "operator",
}


# `load` in train.py:12
_LINE: Final = re.compile(r"(?:`\w+` in )?[^\s()`]+\.\w+:\d+")
_TONES: Final[dict[str, Tone]] = {"error": "error", "warning": "warning"}


@dataclass(frozen=True)
class ScreenLine:
    """A line of a terminal, and its style where supported."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class ScreenCause:
    """A cause and its fix in one line, and the change of the time: "−15 %", "" if unknown.

    line: the line of the program that its title names, "" for none; the text may be too short for it.
    """

    gain: str
    text: str
    line: str = ""


@dataclass(frozen=True)
class TopRows:
    """The rows with the most time, the largest first: headings and cells of the numbers, and the names.

    label: shortens a name. more: the number of further rows in the report, in words; "" for none.
    """

    header: str
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    label: Callable[[str, int], str]
    more: str = ""


@dataclass(frozen=True)
class Screen:
    """The first screen of a report.

    doubts: reasons to distrust it, as (severity, text). more_doubts, more_causes: the number of further ones in the
    report. start_up: for a job, where the time before its steps went: one rank can delay all. serving: for each source,
    the results of an inference engine.
    """

    title: str
    facts: tuple[str, ...]
    doubts: tuple[tuple[Tone, str], ...]
    more_doubts: int
    verdict: Verdict
    causes: tuple[ScreenCause, ...]
    more_causes: int
    top: TopRows | None
    start_up: str = ""
    serving: tuple[str, ...] = ()


def first_screen(report: Report) -> Screen:
    """Return the first screen of a report."""
    run = numbers(report)
    summary = verdict(report, run)
    doubts = doubts_of(report.findings, summary.about)
    causes = (
        ScreenCause(
            gain_of(finding),
            cause_of(finding)
            + (f" → {printable(finding.action)}" if finding.action else "")
            + (f" ({printable(finding.proof)})" if finding.proof else ""),
            "" if (line := _LINE.search(printable(finding.title))) is None else line[0],
        )
        for finding in report.advice[:_MAX_CAUSES]
    )
    return Screen(
        title=printable(report.title),
        facts=tuple(facts(report, run)),
        doubts=tuple((_TONES[banner.severity], banner.sentence) for banner in doubts[:_MAX_DOUBTS]),
        more_doubts=len(doubts[_MAX_DOUBTS:]),
        verdict=summary,
        causes=tuple(causes),
        more_causes=len(report.advice[_MAX_CAUSES:]),
        top=_top_rows(report),
        start_up=start_up_of(report) if len(report.rows(RANKS)) else "",
        serving=tuple(serving_sentences(report)),
    )


def _top_rows(report: Report) -> TopRows | None:
    """Return the largest kernels; without kernels, the largest replayed kernels, copies, or operators."""
    entries = (CUDA_GPU_KERN_SUM, NCU_KERNELS, MEMORY_OPERATIONS, CPU_OPS)
    entry = next((entry for entry in entries if len(report.rows(entry))), None)
    if entry is None:
        return None
    frame = report.rows(entry)
    largest = frame.head(_MAX_ROWS)
    names = (operation_names(largest) if entry is MEMORY_OPERATIONS else largest["name"]).astype("str")
    values = {
        name: floats(largest[name]) for name in _COLUMNS[entry.name] if name in largest and largest[name].notna().any()
    }
    scales = {name: scale_for(split(name)[1], column) for name, column in values.items()}
    if same := [name for name in values if name in _SAME_UNIT]:
        scales |= dict.fromkeys(same, scale_for("ns", np.concatenate([values[name] for name in same])))
    columns = [[format_cell(value, name, scale=scales[name]) for value in column] for name, column in values.items()]
    more = len(frame) - len(largest)
    return TopRows(
        header=entry.header,
        headings=tuple(f"{heading(name)} {scale.symbol}".strip() for name, scale in scales.items()),
        # one section of ncu may have none of these columns
        cells=tuple(zip(*columns, strict=True)) if columns else ((),) * len(largest),
        names=tuple(names),
        label=labels_of([report.result(entry.name)]).short if entry.kernels else cut,
        more=counted(more, f"more {_NOUNS[entry.name]}") if more else "",
    )


# -- lines ------------------------------------------------------------------------------------------------------------


def screen_lines(screen: Screen, *, width: int, local: Callable[[str], str] = str) -> list[ScreenLine]:
    """Return the lines of the screen, each of at most `width` cells, with an empty line before and after.

    local: names source files by their path on this machine.
    """
    prose = min(width, _PROSE)
    about = f": {', '.join(screen.facts)}" if screen.facts else ""
    head = cut(f"{cut(screen.title, _TITLE)}{about}", 2 * prose)
    lines = [ScreenLine(""), *(ScreenLine(line, "faint") for line in wrap(head, prose))]
    for tone, text in screen.doubts:
        lines += [ScreenLine(line, tone) for line in wrap(local(text), prose)]
    lines += _more(screen.more_doubts, "warning")
    lines += [ScreenLine(line, "strong") for line in wrap(local(screen.verdict.text), prose, indent="")]
    if screen.start_up:
        lines += [ScreenLine(line) for line in wrap(local(f"Start-up: {printable(screen.start_up)}"), prose, indent="")]
    lines += [ScreenLine(line) for text in screen.serving for line in wrap(text, prose)]
    if len(screen.causes) == 1:
        lines += [ScreenLine(line) for line in _local_line(screen.causes[0], prose, local)]
    # the verdict already covers a single cause
    if len(screen.causes) > 1:
        lines += [ScreenLine(""), *_cause_lines(screen.causes, width, local), *_more(screen.more_causes, "cause")]
    if screen.top:
        lines += [ScreenLine(""), *_table_lines(screen.top, width)]
    return [*lines, ScreenLine("")]


def brief_line(screen: Screen, *, width: int) -> ScreenLine:
    """Return the screen in one line: the title, how busy the GPU was, and what to do first."""
    count = len(screen.doubts) + screen.more_doubts
    doubts = f" ({counted(count, 'warning')})" if count else ""
    summary = screen.verdict
    text = " ".join(part for part in (summary.state, summary.first or summary.cause) if part)
    tone: Tone = screen.doubts[0][0] if count else ""
    return ScreenLine(clip(f"{cut(screen.title, _TITLE)}{doubts}: {text}", width), tone)


def _cause_lines(causes: tuple[ScreenCause, ...], width: int, local: Callable[[str], str]) -> Iterator[ScreenLine]:
    gains, start = [""] * (len(causes) + 1), 2
    if any(cause.gain for cause in causes):
        gains = align([("Time",), *((cause.gain,) for cause in causes)], right=(0,))
        start = max(map(len, gains)) + 4
    yield ScreenLine(f"{f'  {gains[0]}':{start}}Cause → fix", "faint")
    for cause, gain in zip(causes, gains[1:], strict=True):
        first, *further = wrap(local(cause.text), min(width, _PROSE) - start, indent="")
        yield ScreenLine(f"{f'  {gain}':{start}}{first}")
        further += _local_line(cause, min(width, _PROSE) - start, local)
        yield from (ScreenLine(f"{' ' * start}{line}") for line in further)


def _local_line(cause: ScreenCause, width: int, local: Callable[[str], str]) -> Iterator[str]:
    """Yield the line of the program of a cause, if its file is on this machine."""
    if (line := local(cause.line)) != cause.line:
        yield from wrap(f"in {line}" if not line.startswith("`") else line, width)


def _more(count: int, noun: str) -> Iterator[ScreenLine]:
    if count:
        yield ScreenLine(f"  … {counted(count, f'more {noun}')}", "faint")


def _table_lines(top: TopRows, width: int) -> Iterator[ScreenLine]:
    """Yield a table with as many columns as fit next to the names, but at least one."""
    needed = min(max(cell_len(top.label(name, _NAME)) for name in (*top.names, top.header)), _NAME)
    # the end of each column, with the spaces next to it
    widths = [2 + max(map(len, column)) for column in zip(top.headings, *top.cells, strict=True)]
    ends = list(accumulate(widths, initial=2))
    count = max(count for count, end in enumerate(ends) if end + needed <= width or count <= 1)
    room = max(width - ends[count], 1)
    names = [cut(top.label(name, min(room, _LONGEST_NAME)), room) for name in top.names]
    rows = [(*cells[:count], name) for cells, name in zip(top.cells, names, strict=True)]
    head, *body = align([(*top.headings[:count], cut(top.header, room)), *rows], right=range(count))
    yield ScreenLine(f"  {head}", "faint")
    yield from (ScreenLine(f"  {line}") for line in body)
    if top.more:
        yield ScreenLine(f"  … {top.more}", "faint")


# -- HTML -------------------------------------------------------------------------------------------------------------


def screen_html(screen: Screen) -> str:
    """Return the screen as HTML, for a notebook."""
    return "".join(_html(screen))


def _html(screen: Screen) -> Iterator[str]:
    about = f" <small>{escape(', '.join(screen.facts))}</small>" if screen.facts else ""
    yield f"<h3>{escape(screen.title)}{about}</h3>"
    yield from (f"<p>{_html_code(text)}</p>" for _, text in screen.doubts)
    yield f"<p><b>{_html_code(screen.verdict.text)}</b></p>"
    yield from (f"<p>{_html_code(text)}</p>" for text in screen.serving)
    if len(screen.causes) > 1:
        rows = (
            f"<tr><td>{escape(cause.gain)}</td><td>{_left_aligned(cause.text)}</td></tr>" for cause in screen.causes
        )
        yield f"<table><tr><th>Time</th><th>{_left_aligned('Cause → fix')}</th></tr>{''.join(rows)}</table>"
    if screen.top:
        yield f"<table>{''.join(_html_rows(screen.top))}</table>"


def _html_rows(top: TopRows) -> Iterator[str]:
    headings = "".join(f"<th>{escape(title)}</th>" for title in top.headings)
    yield f"<tr>{headings}<th>{_left_aligned(top.header)}</th></tr>"
    for texts, name in zip(top.cells, top.names, strict=True):
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        label = top.label(name, _LONGEST_NAME // 2)
        yield f'<tr>{cells}<td title="{escape(printable(name))}">{_left_aligned(label)}</td></tr>'


def _html_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _left_aligned(text: str) -> str:
    # notebooks align tables to the right
    return f'<div style="text-align:left">{_html_code(text)}</div>'
