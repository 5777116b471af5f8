"""Give advice from ncu's replays: for each kernel, the one change that could save most of its time.

ncu's rules are independent of each other: they estimate 36 % for the accesses of a kernel whose tensor pipe is busy
94 % of the time. An estimate therefore counts only if its rule is about the limiter of the kernel, and its gain is at
most the headroom of the limiting unit. Only global estimates, for the whole kernel, bound a gain; local ones are about
one unit of the GPU. The table of rules has ncu's own text.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.advise.tables import Tables
from nightsight.events.kernel_labels import label_of
from nightsight.events.peaks import MEMORIES
from nightsight.model.report import Finding
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS, NCU_RULES
from nightsight.results.rules import AT_ROOF, KERNEL_WORDS
from nightsight.units import in_text

_MOST: Final = 5
_MOST_EVIDENCE: Final = 3
_LEAST_PCT: Final = 3.0
_NAME_LENGTH: Final = 60
_GROUP: Final = ["name", "grid", "block"]
_KERNELS: Final = ["launch", *_GROUP, "launches", "busiest_gpu_ns", "sm_pct", "dram_pct", "tensor_pct", "excessive_pct"]
_RULES: Final = ["launch", "rule", "title", "kind", "speedup_kind", "speedup_pct"]
_LIMITS: Final = ["launch", "replay_ns", "unit", "used_pct", "left_pct"]
_FIX_COLUMNS: Final = ["rule", "gain_pct", "reason"]
_NOTE: Final = "info"
# rules that the causes of a timeline already cover, and the one without a gain
_OTHER_RULES: Final = frozenset(("tensor_cores", "small_grid", AT_ROOF))
# a unit above this share is at its peak
_AT_ROOF_PCT: Final = 80.0
# kernels at their peak get a note if they take this share of the window, or of the replayed time
_DOMINANT_PCT: Final = 25.0
# if no unit is above this share, the kernel waits on latencies
_WAITS_PCT: Final = 60.0

# the subject of each rule: accesses, which fetch more from the caches than they need; other traffic; arithmetic; or
# waiting, with too few warps or blocks to hide it. Other rules are ignored. MemoryL2Compression is one of them: it is
# only for memory allocated as compressible, and assumes that all data compress
_ABOUT: Final = {
    "AchievedOccupancy": ("waiting", "Fewer warps run than would fit"),
    "CPIStall": ("waiting", "Warps stall"),
    "FPInstructions": ("arithmetic", "Multiplications and additions are not fused"),
    "HighPipeUtilization": ("arithmetic", "One arithmetic pipe limits the kernel"),
    "LaunchConfiguration": ("waiting", "The grid does not fill the GPU evenly"),
    "MemoryApertureUsage": ("traffic", "The kernel accesses memory of another device or of the host"),
    "MemoryCacheAccessPattern": ("accesses", "Most of the fetched memory is unused"),
    "SharedMemoryConflicts": ("traffic", "Shared memory has bank conflicts"),
    "SlowPipeLimiter": ("arithmetic", "Slow instructions limit the kernel"),
    "TheoreticalOccupancy": ("waiting", "The resources of a block limit occupancy"),
    "ThreadDivergence": ("arithmetic", "Threads of a warp take different branches"),
    "UncoalescedGlobalAccess": ("accesses", "Accesses to global memory are not coalesced"),
    "UncoalescedSharedAccess": ("traffic", "Accesses to shared memory are not coalesced"),
    "WorkloadImbalance": ("waiting", "Work is unevenly spread across the units of the GPU"),
}
_DETAILS: Final = {
    "accesses": "The kernel waits on the caches, which move more data than it needs.",
    "traffic": "The kernel waits on the memory system.",
    "arithmetic": "The kernel waits on arithmetic.",
    "waiting": "No unit of the GPU is at its peak: the kernel waits on latencies, with too little work to hide them.",
}
_REMEDY: Final = (
    'See "Hottest lines" for the place in the kernel; "Warp stalls" and "Nsight Compute rules" for details.'
)
_NOT_MEASURED: Final = (
    "The unit that limits them is nearly always busy. Whether the memory traffic is needed was not measured."
)
_WORD_ENDS: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def replay_advice(tables: Tables) -> tuple[Finding, ...]:
    """Return a finding for each of up to five kernels (name, grid, block), weighted by their time in the window.

    Without a timeline, return one for each change that the replays suggest, weighted by the replayed time. Dominant
    kernels at the hardware limit come last, as notes: without less work, they cannot become faster.
    """
    kernels = tables.rows(NCU_KERNELS, *_KERNELS)[_KERNELS]
    if kernels.empty:
        return ()
    limits = tables.rows(NCU_LIMITS, *_LIMITS, *_FIX_COLUMNS)[[*_LIMITS, *_FIX_COLUMNS]].rename(columns={"rule": "fix"})
    # without their limits, estimates would be unbounded
    kernels = kernels.merge(limits, on="launch", validate="1:1")
    if not tables.window_ns:
        replayed_ns = kernels["replay_ns"].astype("float64")
        return (
            *_untimed_findings(kernels),
            *_roof_note(kernels, replayed_ns, max(float(replayed_ns.sum()), 1.0), "replayed time"),
        )
    timed = kernels[kernels["busiest_gpu_ns"].notna()]
    own_rules = timed[timed["fix"].isin(KERNEL_WORDS.keys() - _OTHER_RULES)].rename(columns={"fix": "rule"})
    cases = pd.concat(
        [_estimates(tables, timed), own_rules.assign(capped_pct=own_rules["gain_pct"])], ignore_index=True
    )
    # the busiest GPU bounds the gain: GPUs work in parallel, so their times do not add up
    gain = cases["capped_pct"].astype("float64") / 100 * cases["busiest_gpu_ns"].astype("float64")
    cases = cases.assign(gain_ns=gain.clip(upper=tables.window_ns))
    cases = cases.sort_values("gain_ns", ascending=False, kind="stable").drop_duplicates(_GROUP)
    cases = cases[cases["gain_ns"] * 100 >= _LEAST_PCT * max(tables.window_ns, 1)]
    gpu_ns = timed["busiest_gpu_ns"].astype("float64")
    return (
        *(_kernel_finding(case, tables.window_ns) for case in cases.head(_MOST).to_dict("records")),
        *_roof_note(timed, gpu_ns, max(tables.window_ns, 1), "window"),
    )


def _estimates(tables: Tables, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return ncu's global estimates about the limit of their kernel; `capped_pct`: capped at the remaining time."""
    rules = tables.rows(NCU_RULES, *_RULES)[_RULES]
    rules = rules[(rules["speedup_kind"] == "global") & (rules["kind"] != _NOTE) & rules["rule"].isin(_ABOUT)]
    # a change that follows from the metrics themselves is more specific
    without_fix = kernels[~kernels["fix"].isin(KERNEL_WORDS.keys() - {AT_ROOF})]
    cases = rules.merge(without_fix, on="launch", validate="m:1")
    about = cases["rule"].map({rule: what for rule, (what, _) in _ABOUT.items()})
    used = cases["used_pct"].astype("float64").fillna(0.0)
    in_memory = cases["unit"].isin(MEMORIES)
    waits = used < _WAITS_PCT
    applies = (
        (about.isin(["accesses", "traffic"]) & (in_memory | waits))
        | ((about == "arithmetic") & (~in_memory | waits))
        | ((about == "waiting") & (used < _AT_ROOF_PCT))
    )
    # coalesced accesses relieve the caches, and are bounded by the other units
    other_units = cases[["sm_pct", "dram_pct", "tensor_pct", "excessive_pct"]].astype("float64").max(axis=1).fillna(0.0)
    headroom = 100.0 - np.where(about == "accesses", other_units, used)
    estimate_pct = cases["speedup_pct"].astype("float64").clip(0, 100)
    return cases.assign(capped_pct=np.minimum(estimate_pct, headroom), about=about)[applies]


def _kernel_finding(case: dict[Any, Any], window_ns: int) -> Finding:
    kernel, words = label_of(case["name"], _NAME_LENGTH), KERNEL_WORDS.get(case["rule"])
    time, saved = (in_text(float(case[column]), column) for column in ("busiest_gpu_ns", "capped_pct"))
    gain = round(case["gain_ns"])
    finding = Finding(
        case["rule"],
        "advice",
        kernel,
        "",
        evidence=(
            f"{kernel}, grid {case['grid']}, block {case['block']}, {case['launches']:,} ×: {time} in the window",
        ),
        gain_ns=gain,
        gain_pct=100.0 * gain / window_ns,
        kernels=(case["name"],),
    )
    if words:
        return replace(
            finding,
            title=f"{words.title}: {kernel}",
            detail=words.detail,
            remedy=words.remedy,
            evidence=(*finding.evidence, f"{case['reason']}: at most {saved} of that"),
            source=NCU_LIMITS.name,
            action=words.action,
        )
    estimate_pct = float(case["speedup_pct"])
    bound = f", the rest of {case['unit']}" if case["capped_pct"] < estimate_pct else ""
    estimate = f"At most {saved} of that{bound} (ncu estimates {in_text(estimate_pct, 'speedup_pct')})"
    return replace(
        finding,
        rule=f"ncu_{_WORD_ENDS.sub('_', case['rule']).lower()}",
        title=f"{_ABOUT[case['rule']][1]}: {kernel}",
        detail=_DETAILS[case["about"]],
        remedy=_REMEDY,
        evidence=(*finding.evidence, estimate),
        source=NCU_RULES.name,
    )


def _roof_note(kernels: pd.DataFrame, gpu_ns: "pd.Series[float]", whole_ns: float, of_what: str) -> Iterator[Finding]:
    """Yield a note on the kernels at the hardware limit, if they take much of the total."""
    at_peak = kernels.assign(share_pct=100.0 * gpu_ns / whole_ns)[kernels["fix"] == AT_ROOF]
    share = float(at_peak["share_pct"].sum())
    if share < _DOMINANT_PCT:
        return
    sentences, words = [], KERNEL_WORDS[AT_ROOF]
    by_unit = at_peak.sort_values("share_pct", ascending=False, kind="stable").groupby("unit", sort=False)
    for unit, of_unit in list(by_unit)[:_MOST_EVIDENCE]:
        low, high = (f"{of_unit['used_pct'].agg(which):.0f}" for which in ("min", "max"))
        used = low if low == high else f"{low} to {high}"
        remedy = of_unit["reason"].iloc[0].partition(": ")[2]
        names = ", ".join(pd.unique(of_unit["name"].map(label_of))[:_MOST_EVIDENCE])
        share_text = in_text(float(of_unit["share_pct"].sum()), "share_pct")
        sentences.append(f"{used} % of {unit}, where {remedy}: {names} ({share_text}).")
    # uncoalesced accesses keep a memory busy with data that nobody reads
    is_unmeasured = at_peak["unit"].isin(MEMORIES) & at_peak["excessive_pct"].isna()
    detail = _NOT_MEASURED if is_unmeasured.any() else words.detail
    title = f"{words.title} for {in_text(min(share, 100.0), 'share_pct')} of the {of_what}"
    yield Finding(AT_ROOF, "info", title, " ".join((*sentences, detail)), words.remedy, source=NCU_LIMITS.name)


def _untimed_findings(kernels: pd.DataFrame) -> tuple[Finding, ...]:
    """Return the advice from replays without a timeline, the largest share of the replayed time first."""
    cases = kernels[kernels["fix"].isin(KERNEL_WORDS.keys() - {AT_ROOF})]
    total = float(kernels["replay_ns"].astype("float64").sum())
    saved_pct = cases["gain_pct"].astype("float64") * cases["replay_ns"].astype("float64") / max(total, 1.0)
    cases = cases.assign(share_pct=100.0 * cases["replay_ns"].astype("float64") / max(total, 1.0), saved_pct=saved_pct)
    cases = cases.sort_values("saved_pct", ascending=False, kind="stable").drop_duplicates(_GROUP)
    by_rule = cases.groupby("fix", sort=False)["saved_pct"].sum()
    worthwhile = by_rule[by_rule >= _LEAST_PCT].sort_values(ascending=False, kind="stable")
    return tuple(_untimed_finding(cases[cases["fix"] == rule].head(_MOST_EVIDENCE), rule) for rule in worthwhile.index)


def _untimed_finding(cases: pd.DataFrame, rule: str) -> Finding:
    words = KERNEL_WORDS[rule]
    evidence = []
    for case in cases.to_dict("records"):
        columns = ("replay_ns", "share_pct", "gain_pct")
        time, share, gain = (in_text(float(case[column]), column) for column in columns)
        name = label_of(case["name"], _NAME_LENGTH)
        evidence.append(f"{name}: {case['reason']}; {time}, {share} of the replayed time, could be {gain} shorter")
    first = cases.iloc[0].to_dict()
    others = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
    limit = f", limited by {first['unit']}" if first["used_pct"] >= _WAITS_PCT and not others else ""
    cause = f"{words.title}: `{label_of(first['name'], _NAME_LENGTH)}`{others}{limit}"
    saved = 100.0 * float(cases["saved_pct"].sum()) / float(cases["share_pct"].sum())
    return Finding(
        rule,
        "advice",
        cause,
        words.detail,
        words.remedy,
        tuple(evidence),
        source=NCU_LIMITS.name,
        cause=cause,
        action=f"{words.action}, up to \N{MINUS SIGN}{saved:.0f} % of {'their' if others else 'its'} time",
        kernels=tuple(dict.fromkeys(cases["name"].astype("str"))),
    )
