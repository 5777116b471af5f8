"""Shared by all forms of a comparison: the rows and their order, and the text of changes."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nightsight.events.kernel_labels import NAME_LENGTH, Labels
from nightsight.model.compare import CHANGES, DIRECTIONS, Comparison, Difference, Measures, unit_of
from nightsight.render.table.view import counted, floats, short_text
from nightsight.results.categories import BUSY, IDLE
from nightsight.texts import middle_cut, printable
from nightsight.units import ABSENT, heading, scale_for

CHANGED: Final = ("regressed", "improved", "added", "removed")
"""Verdicts that say something happened."""
PARTS: Final = (*BUSY, *IDLE)
"""Gate metrics that are parts of a step: together they are the step."""
FEWEST: Final = 3
"""Runs a side below which nothing can be shown to have changed."""
LEAVES: Final = ("kernel", "copy", "api")
"""Kinds that do not contain each other, so that no time is in two rows."""
NOUNS: Final = {
    "kernel": "kernel",
    "family": "kernel family",
    "range": "range",
    "operator": "operator",
    "copy": "copy",
    "api": "API call",
}
_NAMED: Final = 3
_NOTHING: Final = pd.DataFrame(columns=list(CHANGES))
_TITLES: Final = {
    "step_ns": "Step, profiled",
    "unprofiled_step_ns": "Step, unprofiled",
    "kernel_ns": "Kernel time",
    "copy_ns": "Copy time",
    "launches": "Launches",
    **{f"{name}_copies": f"{said} copies" for said, name in DIRECTIONS.items()},
    **{f"{name}_bytes": f"{said} bytes" for said, name in DIRECTIONS.items()},
}


def rows_of(comparison: Comparison, *kinds: str) -> pd.DataFrame:
    """Return the changes of some kinds, the largest impact first."""
    changes = comparison.changes if len(comparison.changes) else _NOTHING
    return changes[changes["kind"].isin(kinds)]


def gates(comparison: Comparison) -> pd.DataFrame:
    """Return the gate metrics without the parts of a step: those that changed first, in the order of impact."""
    rows = _without_absent(rows_of(comparison, "gate"))
    return by_verdict(rows[~rows["name"].isin(PARTS)])


def parts(comparison: Comparison) -> pd.DataFrame:
    """Return the parts of a step, in the order in which reports show them."""
    rows = _without_absent(rows_of(comparison, "gate"))
    rows = rows[rows["name"].isin(PARTS)]
    return rows.sort_values("name", key=lambda names: names.map(PARTS.index), kind="stable")


def _without_absent(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out metrics that neither side has, such as copies of a program without copies."""
    return rows[(rows["baseline"].fillna(0) != 0) | (rows["candidate"].fillna(0) != 0)]


def by_verdict(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort changed rows first, then inconclusive ones, then unchanged ones; each group keeps its order."""
    rank = rows["verdict"].map({**dict.fromkeys(CHANGED, 0), "inconclusive": 1}).fillna(2)
    return rows.loc[rank.sort_values(kind="stable").index]


def is_changed(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether each row changed."""
    return rows["verdict"].isin(CHANGED)


def notable(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows to show first: changes, and with too few runs to show any, also inconclusive rows."""
    has_few = min(len(comparison.baseline), len(comparison.candidate)) < FEWEST
    return rows[rows["verdict"].isin((*CHANGED, "inconclusive") if has_few else CHANGED)]


def is_quiet(comparison: Comparison) -> bool:
    """Whether there is nothing to report: every gate metric and every other measure is unchanged."""
    says_nothing = comparison.verdict == "unchanged" and not comparison.decision.status
    return says_nothing and causes(comparison).empty and not is_changed(comparison.changes).any()


def causes(comparison: Comparison) -> pd.DataFrame:
    """Return the causes that appeared or disappeared."""
    changed_causes = comparison.causes
    return changed_causes[changed_causes["verdict"].isin(CHANGED)] if len(changed_causes) else changed_causes


class Names:
    """Shortens the names of measures; different kernels of `rows` keep different names."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._kernels = Labels(map(str, rows.loc[rows["kind"] == "kernel", "name"]))

    def short(self, kind: str, name: str, length: int = NAME_LENGTH) -> str:
        """Return the name of a measure in at most `length` characters."""
        if kind == "gate":
            return title_of(name)
        return self._kernels.short(name, length) if kind == "kernel" else cut(name, length)


def plural(count: int, kind: str) -> str:
    """Return the plural noun for rows of a kind: `kernel families`."""
    return counted(count, NOUNS[kind]).split(" ", 1)[1]


def title_of(metric: str) -> str:
    """Return the name of a gate metric in words."""
    return _TITLES.get(metric) or (metric if metric in PARTS else short_text(heading(metric)))


def cut(text: object, length: int) -> str:
    """Return printable text of at most this length."""
    return middle_cut(printable(text), length)


@dataclass(frozen=True)
class ChangeText:
    """The texts of one change; they are short, but not escaped."""

    name: str
    baseline: str
    candidate: str
    difference: str
    change: str
    interval: str
    verdict: str
    count_part: str
    time_part: str
    note: str
    needed: str

    @property
    def whole(self) -> str:
        """The change with its interval."""
        return f"{self.change} {self.interval}".strip()


def change_texts(rows: pd.DataFrame, names: Names, *, length: int = NAME_LENGTH) -> list[ChangeText]:
    """Write rows of CHANGES, each in the unit that suits it."""
    return [_change_text(row, names, length) for row in rows.to_dict("records")]


def _change_text(row: Mapping[Hashable, object], names: Names, length: int) -> ChangeText:
    kind, name = str(row["kind"]), str(row["name"])
    numbers = {key: number(value) for key, value in row.items()}
    before, after = numbers["baseline"], numbers["candidate"]
    # this is reported once for all rows
    is_few = row["note"] == f"fewer than {FEWEST} runs a side"
    needed = math.nan if is_few else numbers["needed_runs"]
    scale = scale_for(unit_of(kind, name), [value for value in (before, after) if math.isfinite(value)])

    def signed(value: float) -> str:
        text = scale.with_unit(value)
        return f"+{text}" if value > 0 and text != ABSENT else text

    # added and removed measures have no parts
    count, time = (
        (ABSENT,) * 2
        if row["verdict"] in ("added", "removed")
        else (signed(numbers[name]) for name in ("count_part", "time_part"))
    )
    difference = (0 if math.isnan(after) else after) - (0 if math.isnan(before) else before)
    return ChangeText(
        names.short(kind, name, length),
        scale.with_unit(before),
        scale.with_unit(after),
        signed(difference),
        percent(numbers["change_pct"]),
        interval(numbers["low_pct"], numbers["high_pct"]),
        str(row["verdict"]),
        count,
        time,
        cut(row["note"], 2 * length) if row["note"] and not is_few else _bound(row, numbers["most_pct"]),
        f"{needed:,.0f} runs a side would settle it" if math.isfinite(needed) else "",
    )


def _bound(row: Mapping[Hashable, object], most_pct: float) -> str:
    """Return the upper bound of a metric's growth in words, if it has other evidence than its interval."""
    is_told = row["most_by"] and row["verdict"] == "inconclusive" and math.isfinite(most_pct)
    return f"at most {percent(most_pct)} {row['most_by']}" if is_told else ""


def number(value: object) -> float:
    """Return a number, NaN for any other value."""
    return float(value) if isinstance(value, int | float) and not pd.isna(value) else math.nan


def percent(value: float, *, unit: str = " %") -> str:
    """Write a relative change with its sign: `+4.1 %`."""
    if not math.isfinite(value):
        return ABSENT
    text = f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.1f}"
    return f"{'0.0' if text in ('+0.0', '-0.0') else text}{unit}"


def interval(low: float, high: float) -> str:
    """Write an interval in percent, `[+3.2, +5.0]`; "" if there is none."""
    is_known = math.isfinite(low) and math.isfinite(high)
    return f"[{percent(low, unit='')}, {percent(high, unit='')}]" if is_known else ""


def sentence_of(comparison: Comparison) -> str:
    """Return the verdict in words, without the first word, which all forms print separately."""
    text = comparison.sentence.strip()
    rest = text[len(comparison.verdict) + 1 :].lstrip()
    return f"{rest[:1].upper()}{rest[1:]}" if text.lower().startswith(f"{comparison.verdict}:") else text


def decision_of(comparison: Comparison) -> str:
    """Return the decision of the gate, without the parts that the sentence contains."""
    word, _, rest = comparison.decision.line.partition(": ")
    texts = rest.rpartition(", on ")[0].split("; ")
    is_said = all(text.lower() in comparison.sentence.lower() for text in texts)
    return f"Gate: {word}." if all(texts) and is_said else comparison.decision.line


def shown_of(comparison: Comparison) -> str:
    """Return what a passed gate has shown: `No regression above 5 %: counts equal, ...`."""
    shown = comparison.decision.line.partition(": ")[2].rpartition(", on ")[0]
    return f"{shown[:1].upper()}{shown[1:]}"


def unmentioned_limits(comparison: Comparison) -> list[str]:
    """Return the limits that were broken, unless the decision names them."""
    return [text for text in comparison.decision.broken if text not in comparison.decision.line]


def tally(rows: pd.DataFrame) -> str:
    """Count rows by verdict, changes first: `3 regressed, 1 improved, 412 unchanged`."""
    counts = rows["verdict"].value_counts()
    occurring = [verdict for verdict in (*CHANGED, "inconclusive", "unchanged") if counts.get(verdict, 0)]
    return ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in occurring)


def facts(comparison: Comparison) -> tuple[str, ...]:
    """Describe the compared runs: number, order, GPU and commits."""
    sides = (comparison.baseline, comparison.candidate)
    first, second = (len(side) for side in sides)
    order = "interleaved" if comparison.is_paired else "not interleaved"
    runs = f"{first} + {second} runs" + (f", {order}" if first + second > 2 else "")
    gpus, commits = (
        [_distinct_values(side, field) for side in sides] for field in ("gpu", "commit")
    )  # fmt: skip
    return tuple(text for text in (runs, _arrow(gpus), commits_of(commits)) if text)


def commits_of(commits: list[str]) -> str:
    """Write the commits of both sides, "" if neither is known."""
    if not any(commits):
        return ""
    labels = [re.sub(r"\+(?=,|$)", " with changes", commit) for commit in commits]
    return f"commit {_arrow([commit or 'unknown' for commit in labels])}"


def _distinct_values(side: Iterable[Measures], field: str) -> str:
    texts = dict.fromkeys(str(getattr(run.environment, field)) for run in side)
    return ", ".join(printable(text) for text in texts if text)


def _arrow(texts: list[str]) -> str:
    """Join different texts with an arrow."""
    distinct = list(dict.fromkeys(text for text in texts if text))
    return cut(" → ".join(distinct), NAME_LENGTH) if distinct else ""


def differences_of(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Return the differences between the sides: the fact, its values in baseline and candidate, and the consequence."""

    def shorten(text: str) -> str:
        return cut(text, NAME_LENGTH) if text else ABSENT

    return [
        (shorten(one.what), shorten(one.baseline), shorten(one.candidate), _follows(one))
        for one in comparison.differences
    ]


def _follows(one: Difference) -> str:
    if not one.affects:
        return "said only"
    whole = {"gate": "all gate metrics", "cause": "causes", **{kind: plural(2, kind) for kind in NOUNS}}
    kinds = [whole[name] for name in one.affects if name in whole]
    metrics = [f"“{title_of(name)}”" for name in one.affects if name not in whole]
    if len(metrics) > _NAMED:
        metrics = [f"{len(metrics)} gate metrics"]
    return f"inconclusive: {cut(', '.join((*metrics, *kinds)), NAME_LENGTH)}"


def method_of(comparison: Comparison) -> str:
    """Explain how verdicts were reached, for readers who do not know the method."""
    pairs = "pairs of runs" if comparison.is_paired else "the runs of both sides"
    few = min(len(comparison.baseline), len(comparison.candidate))
    if few < FEWEST:
        return (
            f"{'One run' if few == 1 else 'Too few runs'} on a side: nothing tells differences from the noise of a "
            f"run, so nothing is shown to have changed. Use at least {FEWEST} runs a side."
        )
    return (
        f"Each run gives one number per metric. {pairs[:1].upper()}{pairs[1:]} are compared by the logarithm of their "
        f"ratio. Regressed or improved: the change is larger than {comparison.least_pct:g} %, with an error rate of "
        "5 % after correction for the number of tests. Unchanged: the 90 % interval lies within "
        f"±{comparison.same_pct:g} %. Inconclusive: neither. A count of a step is a fact, and not tested, if all runs "
        "of a side agree on it. How much longer a step can have become is also told by its fastest steps, and at equal "
        "speed of the host, which is that of the calls that launch its work."
    )


def most_of(rows: pd.DataFrame) -> float:
    """Return the largest finite bound of the intervals, 0 if there is none."""
    values = [abs(value) for name in ("low_pct", "high_pct", "change_pct") for value in floats(rows[name])]
    return max((value for value in values if math.isfinite(value)), default=0.0)
