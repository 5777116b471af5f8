"""Format findings as text: banners on the reliability of a report, and advice with its predicted gain and its code."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import SEVERITIES, Finding
from nightsight.render.page.places import Places
from nightsight.render.verdict import SENTENCES, cause_of, gain_of
from nightsight.results.causes import SIMULATED
from nightsight.texts import log_line, printable, prose
from nightsight.units import format_value

_UP_TO: Final = re.compile(r", up to \N{MINUS SIGN}[\d.]+ % of (?:its|their) time$")
_SIMULATED: Final = SIMULATED.partition("{")[0]
_LONGEST_CODE: Final = 2_000
_HOW: Final = 300
_WORDS: Final = {"error": "Error", "warning": "Warning", "info": "Note"}


@dataclass(frozen=True)
class Banner:
    """A finding about the capture or the report; `word` is its severity in words, `evidence` lists its cases."""

    severity: str
    word: str
    title: str
    detail: str
    remedy: str
    evidence: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The title, and the first sentence of the detail."""
        first, *_ = SENTENCES.split(self.detail, maxsplit=1)
        return f"{self.word}: {self.title}{first and f'. {first}'}"


@dataclass(frozen=True)
class Advice:
    """A finding about the program; `share` is the gain in percent for the bar, None if unknown, `change` as text.

    `cause` is the title without amounts, but with the gain for a kernel alone. `anchor` and `source` are the anchor
    and title of the section with its evidence, "" if that is not on the page. `code`: lines to paste. `place`: a range
    to look in that the title does not name. `path`: the range that the timeline shows. `kernels`: those that the page
    has, in full and as tables call them.
    """

    rule: str
    title: str
    gain: str
    of_window: str
    share: float | None
    detail: str
    evidence: tuple[str, ...]
    remedy: str
    anchor: str = ""
    source: str = ""
    change: str = ""
    cause: str = ""
    code: str = ""
    place: str = ""
    path: str = ""
    kernels: tuple[tuple[str, str], ...] = ()

    @property
    def how(self) -> str:
        """The first sentence of the fix, where no code tells it."""
        return "" if self.code else prose(SENTENCES.split(self.remedy, maxsplit=1)[0], _HOW)


def banners(findings: tuple[Finding, ...]) -> tuple[Banner, ...]:
    """Return the findings that are not advice, the worst first."""
    ordered = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return tuple(
        Banner(
            finding.severity,
            _WORDS[finding.severity],
            prose(finding.title, 200),
            prose(finding.detail, 1_000),
            prose(finding.remedy, 1_000),
            tuple(prose(text, 300) for text in finding.evidence),
        )
        for finding in ordered
        if finding.severity in _WORDS
    )


def doubts_of(findings: tuple[Finding, ...], about: Finding | None) -> tuple[Banner, ...]:
    """Return the reasons to distrust a report, the worst first; `about`: the one that its verdict already covers."""
    others = tuple(finding for finding in findings if finding is not about)
    return tuple(banner for banner in banners(others) if banner.severity != "info")


def advice(
    findings: tuple[Finding, ...], titles: Mapping[str, str], labels: KernelLabels, places: Places
) -> tuple[Advice, ...]:
    """Return the findings that are advice, in their order.

    titles: the titles of the page's sections, by anchor. labels: the labels of kernels, as in the page's tables.
    """
    return tuple(
        Advice(
            printable(finding.rule),
            prose(finding.title, 200),
            "" if finding.gain_ns is None else format_value(float(finding.gain_ns), "gain_ns"),
            "" if finding.gain_pct is None else format_value(finding.gain_pct, "gain_pct"),
            finding.gain_pct,
            prose(finding.detail, 1_000),
            (*(prose(text, 300) for text in finding.evidence), *_unnamed_kernels(finding, labels)),
            prose(finding.remedy, 1_000),
            finding.source if finding.source in titles else "",
            titles.get(finding.source, ""),
            gain_of(finding),
            f"{cause_of(finding)}{_bound(finding)}",
            # of a report.json, it may be anything
            "\n".join(log_line(line) for line in finding.code[:_LONGEST_CODE].split("\n")),
            prose(places.unnamed_range(finding), 200),
            places.path(finding),
            tuple((name, printable(labels.short(name))) for name in places.kernels(finding)),
        )
        for finding in findings
        if finding.severity == "advice"
    )


def without_simulation(items: tuple[Advice, ...]) -> tuple[tuple[Advice, ...], str]:
    """Return the advice without the sentence on the simulation, which all advice shares, and that sentence."""
    sentences = [text for item in items for text in item.evidence if text.startswith(_SIMULATED)]
    bare = (
        replace(item, evidence=tuple(text for text in item.evidence if not text.startswith(_SIMULATED)))
        for item in items
    )
    return tuple(bare), f"{sentences[0]}." if sentences else ""


def _bound(finding: Finding) -> str:
    """Return the gain for a kernel alone from the action, if the gain for the window is unknown."""
    match = _UP_TO.search(finding.action) if finding.gain_pct is None else None
    return printable(match[0]) if match else ""


def _unnamed_kernels(finding: Finding, labels: KernelLabels) -> Iterator[str]:
    """Yield the kernels that advice is about, as tables call them; except those that its evidence names."""
    for label in dict.fromkeys(labels.short(name) for name in finding.kernels):
        if not any(text.startswith((f"{label},", f"{label}:")) for text in finding.evidence):
            yield f"Kernel: {printable(label)}"
