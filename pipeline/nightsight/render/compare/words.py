"""The rows of a comparison, their order, and the texts of changes, for all of its forms."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nightsight.events.kernel_labels import NAME_LENGTH, KernelLabels
from nightsight.model.compare import CHANGES, DIRECTIONS, GATE, Comparison, Difference, Measures, unit_of
from nightsight.render.table.view import short_text
from nightsight.results.categories import BUSY, IDLE
from nightsight.texts import excerpt, printable, some_of
from nightsight.units import ABSENT, Scale, counted, heading, scale_for, signed

CHANGED: Final = ("regressed", "improved", "added", "removed")
"""The verdicts on changes."""
PARTS: Final = (*BUSY, *IDLE)
"""Gate metrics that are parts of a step: together they are the step."""
LEAST_RUNS: Final = 3
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
_MAX_METRICS: Final = 3
_TITLES: Final = {
    "step_ns": "Step, profiled",
    "unprofiled_step_ns": "Step, unprofiled",
    "kernel_ns": "Kernel time",
    "copy_ns": "Copy time",
    "launches": "Launches",
    **{f"{name}_copies": f"{direction} copies" for direction, name in DIRECTIONS.items()},
    **{f"{name}_bytes": f"{direction} bytes" for direction, name in DIRECTIONS.items()},
}


def rows_of(comparison: Comparison, *kinds: str) -> pd.DataFrame:
    """Return the changes of some kinds, the largest impact first."""
    changes = comparison.changes if len(comparison.changes) else pd.DataFrame(columns=list(CHANGES))
    return changes[changes["kind"].isin(kinds)]


def gates(comparison: Comparison) -> pd.DataFrame:
    """Return the gate metrics without the parts of a step: changed, inconclusive, unchanged; each by impact."""
    rows = _gate_rows(comparison)
    rows = rows[~rows["name"].isin(PARTS)]
    rank = rows["verdict"].map({**dict.fromkeys(CHANGED, 0), "inconclusive": 1}).fillna(2)
    return rows.loc[rank.sort_values(kind="stable").index]


def parts(comparison: Comparison) -> pd.DataFrame:
    """Return the parts of a step, in the order in which reports show them."""
    rows = _gate_rows(comparison)
    rows = rows[rows["name"].isin(PARTS)]
    return rows.sort_values("name", key=lambda names: names.map(PARTS.index), kind="stable")


def _gate_rows(comparison: Comparison) -> pd.DataFrame:
    """Return the gate metrics that at least one side has: a program without copies has no metrics of them."""
    rows = rows_of(comparison, "gate")
    return rows[(rows["baseline"].fillna(0) != 0) | (rows["candidate"].fillna(0) != 0)]


def is_changed(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether each row changed."""
    return rows["verdict"].isin(CHANGED)


def notable(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows to show first: changes, and with too few runs to show any, also inconclusive rows."""
    return rows[rows["verdict"].isin((*CHANGED, "inconclusive") if has_few_runs(comparison) else CHANGED)]


def is_quiet(comparison: Comparison) -> bool:
    """Whether there is nothing to report: all gate metrics and all other measures are unchanged."""
    is_unchanged = comparison.verdict == "unchanged" and not comparison.decision.status
    return is_unchanged and causes(comparison).empty and not is_changed(comparison.changes).any()


def causes(comparison: Comparison) -> pd.DataFrame:
    """Return the causes that appeared or disappeared."""
    return comparison.causes[is_changed(comparison.causes)] if len(comparison.causes) else comparison.causes


class MeasureNames:
    """Shortens the names of measures; different kernels of `rows` keep different names."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._kernels = KernelLabels(map(str, rows.loc[rows["kind"] == "kernel", "name"]))

    def short(self, kind: str, name: str, length: int = NAME_LENGTH) -> str:
        """Return the name of a measure in at most `length` characters."""
        if kind == "gate":
            return title_of(name)
        return self._kernels.short(name, length) if kind == "kernel" else excerpt(name, length)


def plural(count: int, kind: str) -> str:
    """Return the plural noun for rows of a kind: `kernel families`."""
    return counted(count, NOUNS[kind]).split(" ", 1)[1]


def title_of(metric: str) -> str:
    """Return the name of a gate metric in words."""
    return _TITLES.get(metric) or (metric if metric in PARTS else short_text(heading(metric)))


@dataclass(frozen=True)
class ChangeText:
    """The texts of a change; they are short, but not escaped."""

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


def change_texts(
    rows: pd.DataFrame, names: MeasureNames, *, length: int = NAME_LENGTH, scale: Scale | None = None
) -> list[ChangeText]:
    """Return the texts of rows of CHANGES, each in the unit that suits it, or all on one scale."""
    return [_change_text(row, names, length, scale) for row in rows.to_dict("records")]


def both_sides(before: float, after: float, scale: Scale) -> tuple[str, str, str]:
    """Format the values of both sides, and the difference of what is printed; a missing value counts as 0."""
    one, other = (scale.with_unit(value) for value in (before, after))
    return one, other, _signed(rounded(after, scale) - rounded(before, scale), scale)


def rounded(value: float, scale: Scale) -> float:
    """Return a value as it is printed on a scale; 0 for a missing one."""
    return round(value / scale.divisor, scale.decimals) * scale.divisor if math.isfinite(value) else 0.0


def _signed(value: float, scale: Scale) -> str:
    """Format a difference with its sign."""
    text = scale.with_unit(value)
    return f"+{text}" if value > 0 and text != ABSENT else text


def _change_text(
    row: Mapping[Hashable, object], names: MeasureNames, length: int, scale: Scale | None = None
) -> ChangeText:
    kind, name, verdict, note = (str(row[key] or "") for key in ("kind", "name", "verdict", "note"))
    numbers = {key: number(value) for key, value in row.items()}
    before, after = numbers["baseline"], numbers["candidate"]
    needed, most_pct = numbers["needed_runs"], numbers["most_pct"]
    scale = scale or scale_for(unit_of(kind, name), [value for value in (before, after) if math.isfinite(value)])
    baseline, candidate, difference = both_sides(before, after, scale)
    # this is reported once for all rows
    if note == f"fewer than {LEAST_RUNS} runs a side":
        note, needed = "", math.nan
    # the upper bound of a metric's growth, if it has other evidence than its interval
    if not note and row["most_by"] and verdict == "inconclusive" and math.isfinite(most_pct):
        note = f"at most {percent(most_pct)} {row['most_by']}"
    has_parts = verdict not in ("added", "removed")
    return ChangeText(
        name=names.short(kind, name, length),
        baseline=baseline,
        candidate=candidate,
        difference=difference,
        change=percent(numbers["change_pct"]),
        interval=interval(numbers["low_pct"], numbers["high_pct"]),
        verdict=verdict,
        count_part=_signed(numbers["count_part"], scale) if has_parts else ABSENT,
        time_part=_signed(numbers["time_part"], scale) if has_parts else ABSENT,
        note=excerpt(note, 2 * length) if note else "",
        needed=f"{needed:,.0f} runs a side would settle it" if math.isfinite(needed) else "",
    )


def number(value: object) -> float:
    """Return a number, NaN for any other value."""
    return float(value) if isinstance(value, int | float) and not pd.isna(value) else math.nan


def percent(value: float, *, unit: str = " %") -> str:
    """Format a relative change with its sign: `+4.1 %`."""
    if not math.isfinite(value):
        return ABSENT
    text = signed(value, 0 if abs(value) >= 1000 else 1)
    return f"{text if text[1:] != '0.0' else '0.0'}{unit}"


def interval(low: float, high: float) -> str:
    """Format an interval in percent, `[+3.2, +5.0]`; "" if there is none."""
    is_finite = math.isfinite(low) and math.isfinite(high)
    return f"[{percent(low, unit='')}, {percent(high, unit='')}]" if is_finite else ""


def sentence_of(comparison: Comparison) -> str:
    """Return the verdict in words, without the first word, which all forms print separately."""
    text = comparison.sentence.strip()
    if not text.lower().startswith(f"{comparison.verdict}:"):
        return text
    text = text[len(comparison.verdict) + 1 :].lstrip()
    return f"{text[:1].upper()}{text[1:]}"


def decision_of(comparison: Comparison) -> str:
    """Return the decision of the gate, without the parts that the sentence contains."""
    word, _, evidence = comparison.decision.line.partition(": ")
    parts_of_evidence = evidence.rpartition(", on ")[0].lower().split("; ")
    repeats = all(text and text in comparison.sentence.lower() for text in parts_of_evidence)
    return f"Gate: {word}." if repeats else comparison.decision.line


def evidence_of(comparison: Comparison) -> str:
    """Return the evidence of a passed gate: `No regression above 5 %: counts equal, ...`."""
    evidence = comparison.decision.line.partition(": ")[2].rpartition(", on ")[0]
    return f"{evidence[:1].upper()}{evidence[1:]}"


def unmentioned_limits(comparison: Comparison) -> list[str]:
    """Return the limits that were broken, unless the decision names them."""
    return [text for text in comparison.decision.broken if text not in comparison.decision.line]


def tally(rows: pd.DataFrame) -> str:
    """Count rows by verdict, changes first: `3 regressed, 1 improved, 412 unchanged`."""
    counts = rows["verdict"].value_counts()
    verdicts = (*CHANGED, "inconclusive", "unchanged")
    return ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in verdicts if counts.get(verdict, 0))


def title_words(comparison: Comparison) -> str:
    """Return the workload; if that is the name of a run, the names of both sides: `A → C`."""
    runs = [_stem(run.source) for run in (*comparison.baseline, *comparison.candidate)]
    sides = _sides(comparison)
    return printable(sides if sides and _stem(comparison.workload) in runs else comparison.workload)


def _stem(source: str) -> str:
    """Return the name of a run without its number: `ab_C` of `ab_C_1.sqlite`."""
    return re.sub(r"[\W_]*\d*$", "", source.partition(".")[0])


def _sides(comparison: Comparison) -> str:
    """Return what the runs of each side are called, if all runs of a side have one name: `A → C`."""
    names = [{_stem(run.source) for run in side} for side in (comparison.baseline, comparison.candidate)]
    if any(len(of_side) != 1 for of_side in names) or names[0] == names[1]:
        return ""
    return _arrow([name for of_side in names for name in of_side]) if all(map(min, names)) else ""


def since(comparison: Comparison) -> str:
    """Return the commit of the candidate, if it is known and not that of the baseline; else ""."""
    before, after = (_values_of(side, "commit") for side in (comparison.baseline, comparison.candidate))
    return after if after and "," not in after and after != before else ""


def deciding_metric(comparison: Comparison) -> Mapping[Hashable, object]:
    """Return the row of the most important gate metric; {} if nothing was measured."""
    rows = gates(comparison).set_index("name", drop=False)
    name = next((name for name in GATE if name in rows.index), "")
    return rows.loc[name].to_dict() if name else {}


def has_few_runs(comparison: Comparison) -> bool:
    """Whether a side has too few runs to show that anything changed."""
    return min(len(comparison.baseline), len(comparison.candidate)) < LEAST_RUNS


def is_believed(comparison: Comparison) -> bool:
    """Whether the runs suffice for the verdict."""
    row = deciding_metric(comparison)
    return bool(row) and not has_few_runs(comparison) and row["verdict"] != "inconclusive"


def belief(comparison: Comparison) -> str:
    """Say in one line why the verdict is believed, or why not: the runs that agree, and the interval."""
    row = deciding_metric(comparison)
    name = str(row.get("name", ""))
    unlike = [each.what for each in comparison.differences if name in each.affects]
    if row and unlike and row["verdict"] == "inconclusive":
        # no number of runs would settle it
        return f"Not believed. {title_of(name)}: the sides are not comparable ({some_of(unlike, _MAX_METRICS)})."
    if has_few_runs(comparison):
        return f"Not believed: fewer than {LEAST_RUNS} runs a side cannot be distinguished from noise."
    if not row:
        return ""
    low, high = number(row["low_pct"]), number(row["high_pct"])
    if row["is_fact"]:
        reasons = ["all runs of a side agree, so it needs no test"]
    else:
        reasons = [text for text in (_agreeing(comparison, name),) if text]
        if math.isfinite(low) and math.isfinite(high):
            reasons.append(f"90 % interval {percent(low, unit='')} to {percent(high)}")
    if row["verdict"] == "inconclusive":
        needed = number(row["needed_runs"])
        reasons.append(str(row["note"]) or (f"{needed:.0f} runs a side would settle it" if needed > 0 else ""))
    word = "Believed" if is_believed(comparison) else "Not believed yet"
    return f"{word}. {title_of(name)}: {'; '.join(filter(None, reasons))}." if any(reasons) else ""


def _agreeing(comparison: Comparison, metric: str) -> str:
    """Count the pairs, or the runs, in which a metric of the candidate is larger."""
    before, after = ([run.metric(metric) for run in side] for side in (comparison.baseline, comparison.candidate))
    if comparison.is_paired:
        pairs = [(one, other) for one, other in zip(before, after, strict=False) if one > 0 and other > 0]
        more = sum(other > one for one, other in pairs)
        word, most = ("longer", more) if 2 * more >= len(pairs) else ("shorter", len(pairs) - more)
        return f"{word} in {most} of {counted(len(pairs), 'pair')}" if pairs else ""
    before, after = ([value for value in side if value > 0] for side in (before, after))
    if not before or not after:
        return ""
    if min(after) > max(before):
        return "each run of the candidate takes longer than each of the baseline"
    return (
        "each run of the candidate is shorter than each of the baseline"
        if max(after) < min(before)
        else "runs of both sides overlap"
    )


def facts(comparison: Comparison) -> tuple[str, ...]:
    """Describe the compared runs: names, number, order, GPU and commits."""
    sides = (comparison.baseline, comparison.candidate)
    before, after = map(len, sides)
    order = "interleaved" if comparison.is_paired else "not interleaved"
    named = _sides(comparison)
    runs = f"{named + ', ' if named else ''}{before} + {after} runs" + (f", {order}" if before + after > 2 else "")
    gpus, commits = ([_values_of(side, field) for side in sides] for field in ("gpu", "commit"))
    labels = [re.sub(r"\+(?=,|$)", " with changes", commit) or "unknown" for commit in commits]
    return tuple(text for text in (runs, _arrow(gpus), f"commit {_arrow(labels)}" if any(commits) else "") if text)


def _values_of(side: Iterable[Measures], field: str) -> str:
    texts = dict.fromkeys(str(getattr(run.environment, field)) for run in side)
    return ", ".join(printable(text) for text in texts if text)


def _arrow(texts: list[str]) -> str:
    """Join different texts with an arrow."""
    distinct = list(dict.fromkeys(text for text in texts if text))
    return excerpt(" → ".join(distinct), NAME_LENGTH) if distinct else ""


def differences_of(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Return the differences between the sides: the fact, its values in baseline and candidate, and the consequence."""

    def shorten(text: str) -> str:
        return excerpt(text, NAME_LENGTH) if text else ABSENT

    return [
        (shorten(item.what), shorten(item.baseline), shorten(item.candidate), _consequence(item))
        for item in comparison.differences
    ]


def _consequence(difference: Difference) -> str:
    if not difference.affects:
        return "said only"
    nouns = {"gate": "all gate metrics", "cause": "causes", **{kind: plural(2, kind) for kind in NOUNS}}
    kinds = [nouns[name] for name in difference.affects if name in nouns]
    metrics = [f"“{title_of(name)}”" for name in difference.affects if name not in nouns]
    if len(metrics) > _MAX_METRICS:
        metrics = [f"{len(metrics)} gate metrics"]
    return f"inconclusive: {excerpt(', '.join((*metrics, *kinds)), NAME_LENGTH)}"


def method_of(comparison: Comparison) -> str:
    """Explain how verdicts were reached, for readers who do not know the method."""
    pairs = "pairs of runs" if comparison.is_paired else "the runs of both sides"
    count = min(len(comparison.baseline), len(comparison.candidate))
    if count < LEAST_RUNS:
        return (
            f"{'One run' if count == 1 else 'Too few runs'} on a side: differences cannot be distinguished from the "
            f"noise of a run, so no change is shown. Use at least {LEAST_RUNS} runs per side."
        )
    return (
        f"Each run gives one number per metric. {pairs[:1].upper()}{pairs[1:]} are compared by the logarithm of their "
        f"ratio. Regressed or improved: the change is larger than {comparison.least_pct:g} %, with an error rate of "
        "5 % after correction for the number of tests. Unchanged: the 90 % interval lies within "
        f"±{comparison.same_pct:g} %. Inconclusive: neither. A count of a step is a fact, and not tested, if all runs "
        "of a side agree on it. Two more estimates limit how much longer a step can have become: one from the fastest "
        "steps, and one at equal speed of the host, which is measured by the calls that launch its work."
    )
