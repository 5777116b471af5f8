"""The results for many captures: sums weighted by GPU time, common facts, and outliers.

A cause counts with its predicted gain, in percent of the GPU time of the captures that have it. Several causes of one
rule in a capture count as the largest of them, since gains overlap; so lost times are lower bounds.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import numpy as np
import pandas as pd

from nightsight import robust
from nightsight.captures import stem
from nightsight.model.fleet import FACTS, SPLIT, TABLES, Fleet, Summary, empty
from nightsight.results.entry import WHOLE
from nightsight.tables import aggregate
from nightsight.units import counted

_LEAST: Final = 5
"""The minimum number of captures in a group with outliers."""
_FAR: Final = 3.5
_NARROWEST: Final = 0.01
_TOGETHER: Final = ("workload", "gpu", "mig", "driver", "cuda", "clocks", "gpus", "repeated", "asked")
"""The facts that define a group: only the branch of the driver, because patches do not change speed."""
_COUNTS: Final = ("lone", "repetitions", "gpus")
_NUMBER: Final = re.compile(r"(\d+)")
RULE: Final = (
    f"Captures of one workload on one kind of machine form a group. A capture is an outlier if its step is more than "
    f"{_FAR} robust standard deviations from the group's median. These come from the median absolute deviation of the "
    f"logarithms, and are at least {_NARROWEST:.0%}. Groups of fewer than {_LEAST} are not judged."
)
_OUTLIERS: Final = ("capture", "file", "report", "group", "of", "step_ns", "usual_ns", "change_pct", "z", "category",
                    "category_ns", "disturbed")  # fmt: skip


def fleet_of(files: pd.DataFrame, summaries: Sequence[Summary]) -> Fleet:
    """Combine summaries. `files`: columns capture, file, report (its address) and workload, a row for each."""
    tables = {name: _below([each[name] for each in summaries], name) for name in TABLES}
    captures = _with_cause(_captures(tables["captures"], files), tables["causes"])
    outliers = _outliers(captures, tables["split"])
    sizes = captures.loc[captures["step_ns"].notna(), "group"].value_counts()
    return Fleet(
        captures=captures,
        common=_common(captures),
        differing=_differing_facts(captures),
        split=_split(tables["split"]),
        causes=_causes_by_rule(tables["causes"], captures),
        kernels=_kernels_by_name(tables["kernels"]),
        outliers=outliers,
        judged=int(sizes[sizes >= _LEAST].sum()),
        rule=RULE,
        notes=_waiting_notes(captures),
    )


def _waiting_notes(captures: pd.DataFrame) -> tuple[str, ...]:
    count = int(captures["lone"].sum())
    captures_wait = counted(count, "capture waits for ranks", "captures wait for ranks")
    note = f"{captures_wait} outside of it: nightsight report rank* makes one report of a job, which names these ranks"
    return (note,) * (count > 0)


def workloads_of(files: "pd.Series[str]") -> "pd.Series[str]":
    """Return the workload of captures that do not name one: the file name, with # for numbers that differ."""
    parts = [_NUMBER.split(stem(file.rpartition("/")[2])) for file in files]
    alike: dict[tuple[str, ...], list[set[str]]] = {}
    for texts in parts:
        numbers = alike.setdefault(tuple(texts[::2]), [set() for _ in texts[1::2]])
        for values, text in zip(numbers, texts[1::2], strict=True):
            values.add(text)
    names = {
        words: "".join(
            word + number for word, number in zip_longest(words, (_shared(each) for each in numbers), fillvalue="")
        )
        for words, numbers in alike.items()
    }
    return pd.Series([names[tuple(texts[::2])] for texts in parts], files.index, dtype="str")


def _shared(numbers: set[str]) -> str:
    return next(iter(numbers)) if len(numbers) == 1 else "#"


def _below(tables: Sequence[pd.DataFrame], name: str) -> pd.DataFrame:
    """Concatenate tables; numbers that are added up or divided become floats.

    int64 cannot hold the sums of a fleet, and Arrow divides no integer beyond 2^53: 100 times 25 GPU-hours.
    """
    filled = [table for table in tables if len(table)]
    joined = pd.concat(filled, ignore_index=True) if filled else empty(TABLES[name])
    added = [column.name for column in TABLES[name] if column.type == WHOLE and column.name not in _COUNTS]
    return joined.astype(dict.fromkeys(added, "float64"))


def _captures(captures: pd.DataFrame, files: pd.DataFrame) -> pd.DataFrame:
    named = captures.merge(files.rename(columns={"workload": "given"}), on="capture", validate="one_to_one")
    workload = named["workload"].where(named["workload"] != "", named["given"])
    workload = workload.where(workload != "", workloads_of(named["file"]))
    named = named.assign(workload=workload).drop(columns="given")
    keys = named.assign(driver=named["driver"].str.partition(".")[0])[list(_TOGETHER)].astype("str")
    group = keys.agg("\n".join, axis=1) if len(keys) else pd.Series(dtype="str")
    numbers = {key: number for number, key in enumerate(sorted(group.unique()))}
    return named.assign(group=group.map(numbers)).sort_values(["file", "capture"]).reset_index(drop=True)


def _with_cause(captures: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """Add the largest cause of each capture: columns cause, gain_pct."""
    ordered = causes.sort_values(["gain_pct", "cause"], ascending=[False, True]).drop_duplicates("capture")
    joined = captures.merge(ordered[["capture", "cause", "gain_pct"]], on="capture", how="left", validate="one_to_one")
    return joined.assign(cause=joined["cause"].astype("object").fillna("").astype("str"))


def _texts_of(captures: pd.DataFrame, fact: str) -> "pd.Series[str]":
    return captures[fact].astype("str")


def _common(captures: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    values = ((title, _texts_of(captures, fact).unique()) for fact, title in FACTS.items())
    return tuple((title, facts[0]) for title, facts in values if len(facts) == 1 and facts[0])


def _differing_facts(captures: pd.DataFrame) -> pd.DataFrame:
    """Return the facts with more than one value, the most frequent value first."""
    parts = []
    for fact, title in FACTS.items():
        counted = captures.assign(value=_texts_of(captures, fact)).groupby("value")["gpu_ns"].agg(["size", "sum"])
        if len(counted) > 1:
            ordered = counted.reset_index().sort_values(["size", "sum", "value"], ascending=[False, False, True])
            parts.append(ordered.assign(fact=title))
    names = {"size": "captures", "sum": "gpu_ns"}
    columns = ["fact", "value", "captures", "gpu_ns"]
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(parts, ignore_index=True).rename(columns=names)[columns]


def _split(split: pd.DataFrame) -> pd.DataFrame:
    times = split.groupby("category")["time_ns"].sum()
    rows = [(group, category, times[category]) for group, category in SPLIT if category in times.index]
    return pd.DataFrame(rows, columns=["group", "category", "time_ns"])


def _causes_by_rule(causes: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each rule: those that recur first, then the largest loss; `within`: their captures."""
    columns = ["rule", "cause", "others", "action", "captures", "share_pct", "lost_ns", "gain_med_pct", "gain_max_pct",
               "within"]  # fmt: skip
    if not len(causes):
        return pd.DataFrame(columns=columns)
    ordered = causes.sort_values(["lost_ns", "gain_pct", "cause", "capture"], ascending=[False, False, True, True])
    largest = ordered.drop_duplicates(["capture", "rule"])
    # the cause and action of each rule that cost the most
    texts = largest.groupby(["rule", "cause", "action"])["lost_ns"].sum().reset_index()
    texts = texts.sort_values(["lost_ns", "cause", "action"], ascending=[False, True, True]).drop_duplicates("rule")
    summed = aggregate(
        largest.groupby("rule"),
        captures=("capture", "nunique"),
        lost_ns=("lost_ns", "sum"),
        gain_med_pct=("gain_pct", "median"),
        gain_max_pct=("gain_pct", "max"),
        others=("cause", "nunique"),
    ).assign(within=largest.groupby("rule")["capture"].agg(tuple))
    joined = summed.reset_index().merge(texts[["rule", "cause", "action"]], on="rule", validate="one_to_one")
    whole = float(captures["gpu_ns"].sum())
    share = 100 * joined["lost_ns"] / whole if whole else joined["gain_med_pct"]
    shared = joined.assign(share_pct=share, others=joined["others"] - 1)
    recurs = shared["captures"] > 1
    ordered = shared.assign(recurs=recurs).sort_values(
        ["recurs", "lost_ns", "gain_max_pct", "rule"], ascending=[False, False, False, True]
    )
    return ordered[columns].reset_index(drop=True)


def _kernels_by_name(kernels: pd.DataFrame) -> pd.DataFrame:
    columns = ["name", "family", "total_ns", "time_pct", "captures", "instances", "low_ns", "med_ns", "high_ns",
               "spread_pct"]  # fmt: skip
    if not len(kernels):
        return pd.DataFrame(columns=columns)
    means = kernels.assign(mean=kernels["total_ns"] / kernels["instances"].clip(lower=1))
    summed = aggregate(
        means.groupby("name"),
        family=("family", "min"),
        total_ns=("total_ns", "sum"),
        captures=("capture", "nunique"),
        instances=("instances", "sum"),
        low_ns=("mean", "min"),
        med_ns=("mean", "median"),
        high_ns=("mean", "max"),
    )
    total = summed["total_ns"]
    middle = summed["med_ns"].where(summed["med_ns"] > 0)
    shared = summed.assign(
        time_pct=100 * total / (total.sum() or 1.0), spread_pct=100 * (summed["high_ns"] - summed["low_ns"]) / middle
    )
    return (
        shared.reset_index().sort_values(["total_ns", "name"], ascending=[False, True])[columns].reset_index(drop=True)
    )


def _outliers(captures: pd.DataFrame, split: pd.DataFrame) -> pd.DataFrame:
    """Return the outliers among the captures of each group, the farthest first."""
    judged = captures[captures["step_ns"] > 0]
    logs = pd.Series(np.log(judged["step_ns"]), index=judged.index)
    middle = logs.groupby(judged["group"]).transform("median")
    deviation = logs.groupby(judged["group"]).transform(lambda group: float(robust.standard_deviation(group)))
    z = (logs - middle) / deviation.clip(lower=_NARROWEST)
    size = judged.groupby("group")["capture"].transform("size")
    usual = np.exp(middle)
    scored = judged.assign(z=z, of=size, usual_ns=usual, change_pct=100 * (judged["step_ns"] / usual - 1))
    far = scored[(scored["of"] >= _LEAST) & (scored["z"].abs() > _FAR)]
    explained = far.merge(_largest(far, judged, split), on="capture", how="left", validate="one_to_one")
    ordered = explained.assign(far=explained["z"].abs()).sort_values(["far", "file"], ascending=[False, True])
    return ordered[list(_OUTLIERS)].reset_index(drop=True)


def _largest(far: pd.DataFrame, judged: pd.DataFrame, split: pd.DataFrame) -> pd.DataFrame:
    """Return for each capture the category of its step that differs most from the usual, in the direction of its step.

    A category that a capture does not have takes no time there.
    """
    groups = judged.set_index("capture")["group"]
    times = split[split["capture"].isin(groups.index)].pivot_table("step_ns", "capture", "category", "sum")
    times = times.reindex(groups.index).fillna(0.0)
    usual = times.groupby(groups).transform("median")
    longer = (times - usual).loc[far["capture"].tolist()]
    rows = []
    for capture, change in zip(far["capture"], far["change_pct"], strict=True):
        differences = longer.loc[capture] * (1 if change > 0 else -1)
        if len(differences) and differences.max() > 0:
            category = str(differences.idxmax())
            rows.append((capture, category, float(longer.loc[capture, category])))
    return pd.DataFrame(rows, columns=["capture", "category", "category_ns"])
