"""The verdict on a report: how busy the GPU was, the largest cost, and the first fix with its gain."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.frameworks import CUDA, reported_framework
from nightsight.events.kernel_labels import label_of
from nightsight.events.peaks import LIMITED_PCT
from nightsight.events.window import GPU_WORK, LONG_REST, START_UP
from nightsight.model.report import Finding, Report, View, find
from nightsight.render.fixes import Fixes, fixes_of
from nightsight.render.summary import Numbers
from nightsight.results.categories import BUSY, COMMUNICATES_PCT, COMMUNICATION, COMPUTE, GRAPHS, HOST, IDLE, UNSEEN
from nightsight.results.causes import REPLAY, WHAT_IF
from nightsight.results.gpu import IDLE_STACKS
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS
from nightsight.results.operators import CPU_OPS
from nightsight.results.rules import RULE, RULES, WORTH_PCT
from nightsight.results.steps import OPERATORS, STEP_PARTS
from nightsight.tables import Frame
from nightsight.texts import excerpt, middle_cut, printable, prose
from nightsight.units import counted, in_text

_LONG: Final = 90
_LONGEST: Final = 160
SENTENCES: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
"""The gap between two sentences."""
_LAST_BRACKETS: Final = re.compile(r" \([^()]*\)$")
# a smaller share of waiting is not named
_LEAST_PCT: Final = 5.0
# above this, a GPU works more than it waits, and a program is more inside operators than outside
_BUSY_PCT: Final = 50.0
# if more than this share of a window is missing in the capture, the busy time is a lower limit
_UNSEEN_PCT: Final = 1.0
# a cause outside the window is also named if it gains this many times more
_MORE_OUTSIDE: Final = 1.5
# a start-up of this share of the run, and its cause of this share of the start-up, are part of the verdict
_MAIN_PCT: Final = 50.0
# most of a short recording is often its start-up, in which imports alone take up to 6 s (stored captures)
_LEAST_START_UP_NS: Final = 1e10
# causes that take at least this share of the start-up are named
_START_UP_PCT: Final = 25.0
# predictions above this have no decimals, unless nearly all of the time goes: 99.5 % is not 100 %
_WHOLE_PCT: Final = 10.0
_NEARLY_ALL_PCT: Final = 99.0
# descriptions of captures without GPU work, by the rules that explain why there is none
# of several, the first says most
_WITHOUT_GPU: Final = {
    "forked_work_lost": "GPU work was not recorded.",
    "gpu_not_recorded": "GPU work was not recorded.",
    "lost_events": "GPU work was not saved.",
    "no_gpu_work": "No work on a GPU.",
    "no_kernels": "No kernel was recorded.",
}


@dataclass(frozen=True)
class Verdict:
    """Up to five sentences about a report, and the doubt that they already cover (`about`).

    state: how busy the GPU was, or what else was recorded. cause: the largest cost. first: the fix, and its gain. step:
    how long a step takes with it. more: what else the run lost. advice: the finding that `cause` and `first` are about.
    nothing_found: causes were checked, and none is worth fixing.
    """

    state: str
    cause: str = ""
    first: str = ""
    step: str = ""
    more: str = ""
    about: Finding | None = None
    advice: Finding | None = None
    nothing_found: bool = False

    @property
    def text(self) -> str:
        """All sentences, joined."""
        return " ".join(part for part in (self.state, self.cause, self.first, self.step, self.more) if part)


def verdict(report: Report, run: Numbers) -> Verdict:
    """Return the verdict on the window of a report."""
    # a hang comes before any advice
    causes = [*(finding for finding in report.findings if finding.rule == "hanging"), *report.advice]
    split = report.rows(TIME_SPLIT)
    if not run.busy_pct_by_device or any(finding.rule == "no_kernels" for finding in report.findings):
        return _without_gpu(report, run, causes)
    state = _state(run.busy_pct_by_device, run, at_least=unseen_pct(split) >= _UNSEEN_PCT)
    state = _communicating_state(split, run) or state
    outside = _outside_window(report)
    if not causes:
        sentences = _without_advice(report, split)
        if outside:
            action = excerpt(outside.finding.action, _LONG)
            sentences = (
                f"No known cause is worth fixing in these steps, but outside of them: {cause_of(outside.finding)}.",
                f"First: {action}, about {gain_of(outside.finding)} of the whole run.",
            )
        more = "" if outside else _before_window(report)
        return Verdict(state, *sentences, more=more, nothing_found=not outside and _is_checked(report))
    outcome = _on_finding(state, causes[0], fixes_of(report))
    if outside is None or (outside.finding.gain_ns or 0) < _MORE_OUTSIDE * (causes[0].gain_ns or 0):
        return replace(outcome, more=_before_window(report))
    share = in_text(100 * outside.share, "share_pct")
    return replace(outcome, more=f"After these steps ({share} of the run): {cause_of(outside.finding)}.")


def _before_window(report: Report) -> str:
    """Return a sentence on the main cause of a start-up that takes most of the run and is long enough to matter."""
    whole = next((view for view in report.windows if view.name == GPU_WORK), None)
    before = start_up(report)
    if whole is None or before is None:
        return ""
    took = before.end_ns - before.start_ns
    share = took / max(whole.end_ns - whole.start_ns, 1)
    cause = next((finding for finding in before.findings if (finding.gain_pct or 0.0) >= _MAIN_PCT), None)
    if cause is None or share < _MAIN_PCT / 100 or (cause.gain_ns or 0) < _LEAST_START_UP_NS:
        return ""
    took_text, share_text = in_text(float(cause.gain_ns or 0), "gain_ns"), in_text(100 * share, "share_pct")
    return f"Before these steps ({share_text} of the run): {cause_of(cause)}, {took_text} once."


class _Outside(NamedTuple):
    """The largest cause of the whole run, and the share of the run after the window."""

    finding: Finding
    share: float


def _outside_window(report: Report) -> _Outside | None:
    """Return the largest cause of the whole run if much time follows the window."""
    whole = next((view for view in report.windows if view.name == GPU_WORK and not view.is_chosen), None)
    if whole is None:
        return None
    chosen = report.chosen_window
    share = (whole.end_ns - chosen.end_ns) / (whole.end_ns - whole.start_ns) if chosen else 1.0
    # one-time costs of the start-up have no action
    causes = (finding for finding in whole.findings if finding.action)
    largest = next((finding for finding in causes if (finding.gain_pct or 0.0) >= _LEAST_PCT), None)
    return _Outside(largest, share) if largest and share >= LONG_REST else None


def verdict_on(view: View, run: Numbers) -> Verdict:
    """Return the verdict on another window of the capture; `run` covers the window of the report."""
    split = pd.DataFrame() if view.split is None else view.split
    busy = busy_by_device(split)
    state = _state(busy, run, at_least=unseen_pct(split) >= _UNSEEN_PCT) if busy else ""
    outcome = _on_finding(state, view.findings[0]) if view.findings else Verdict(state, _largest_wait_text(split))
    return replace(outcome, first="One-time cost.", advice=None) if outcome.cause and view.name == START_UP else outcome


def cause_of(finding: Finding) -> str:
    """Return the cause in one short clause, without long lists of names in parentheses."""
    cause = printable(finding.cause or finding.title)
    if len(cause) > _LONG:
        cause = _LAST_BRACKETS.sub("", cause)
    return middle_cut(cause, _LONGEST)


def gain_of(finding: Finding) -> str:
    """Return the gain of a fix as a change of time: "−15 %"; "" if it is unknown."""
    if finding.gain_pct is None:
        return ""
    gain = round(finding.gain_pct, 1)
    return f"\N{MINUS SIGN}{gain:.{0 if _WHOLE_PCT <= gain < _NEARLY_ALL_PCT else 1}f} %"


def first_sentences(text: str, length: int) -> str:
    """Return as many sentences of a text as have room, at least one."""
    first, *others = SENTENCES.split(text)
    for sentence in others:
        if len(first) + 1 + len(sentence) > length:
            break
        first = f"{first} {sentence}"
    return prose(first, length)


def start_up(report: Report) -> View | None:
    """Return the window before the chosen one, if any; its sentence describes its time."""
    return next((view for view in report.windows if view.name == START_UP and not view.is_chosen), None)


def start_up_of(report: Report) -> str:
    """Return a description of the time before the chosen window, and its main cause; "" without a start-up."""
    view = start_up(report)
    if view is None:
        return ""
    cause = next((finding for finding in view.findings if (finding.gain_pct or 0.0) >= _START_UP_PCT), None)
    if cause is None:
        return view.sentence
    return f"{view.sentence} {cause_of(cause)}: {in_text(float(cause.gain_ns or 0), 'gain_ns')}."


def _on_finding(state: str, finding: Finding, fixes: Fixes | None = None) -> Verdict:
    cause, gain = cause_of(finding), gain_of(finding)
    action = excerpt(finding.action, _LONG)
    proof = finding.proof and f" ({printable(finding.proof)})"
    first = f"First: {action}{gain and f', about {gain}'}{proof}." if finding.action else ""
    fix = fixes and fixes.about(finding)
    # a proof has the times that were measured
    step = fixes.sentence(fix) if fixes and fix and finding.action and not finding.proof else ""
    # a truncated list ends with dots
    return Verdict(state, cause if cause.endswith("...") else f"{cause}.", first, step, advice=finding)


def _shares(split: Frame) -> Frame:
    """Return the share of each category in percent, one row per device; none if a column is missing."""
    if not {"device", "category", "time_ns"} <= set(split.columns):
        return pd.DataFrame()
    # pandas' pivot takes milliseconds, and a page calls this nine times
    split = split[split["device"].notna() & split["category"].notna()]
    row, devices = pd.factorize(split["device"], sort=True)
    column, categories = pd.factorize(split["category"].astype("str"), sort=True)
    times = np.zeros((len(devices), len(categories)))
    np.add.at(times, (row, column), split["time_ns"].to_numpy(dtype=np.float64, na_value=0.0))
    whole = times.sum(axis=1, keepdims=True)
    return pd.DataFrame(100.0 * times / np.where(whole > 0, whole, np.nan), devices, categories)


def _state(busy: Sequence[float], run: Numbers, *, at_least: bool) -> str:
    low, high = (in_text(share, "busy_pct") for share in (min(busy), max(busy)))
    least = "at least " if at_least else ""
    if len(busy) == 1 and not run.ranks:
        return f"GPU {least}{low} busy."
    return f"{_all_gpus(len(busy), run)} {least}{low if low == high else f'{low[:-2]} to {high}'} busy."


def _communicating_state(split: Frame, run: Numbers) -> str:
    """Return how long GPUs compute and only communicate, which is mostly waiting; "" if that is little."""
    shares = _shares(split).reindex(columns=list(BUSY)).fillna(0.0)
    communicating = shares[COMMUNICATION]
    if not len(shares) or communicating.mean() < COMMUNICATES_PCT:
        return ""
    # as in the bars of the page
    computing = shares[COMPUTE] + shares[GRAPHS]
    texts = []
    for values in (computing, communicating):
        low, high = (in_text(float(value), "busy_pct") for value in (values.min(), values.max()))
        texts.append(low if low == high else f"{low[:-2]} to {high}")
    if len(shares) == 1 and not run.ranks:
        return f"GPU computes {texts[0]} of the time, and only communicates in {texts[1]}."
    return f"{_all_gpus(len(shares), run)} compute {texts[0]} of the time, and only communicate in {texts[1]}."


def _all_gpus(count: int, run: Numbers) -> str:
    on = f" on {'one GPU' if run.shared_gpus == 1 else f'{run.shared_gpus} GPUs'}," if run.shared_gpus else ""
    return f"{gpus(count, run)}{on}"


def gpus(count: int, run: Numbers) -> str:
    """Return the number of GPUs in a report: `8 GPUs`, `8 of 64 GPUs`; `2 ranks` if they share one."""
    return f"{count} of {run.ranks} {each_of(run)}" if run.ranks and run.ranks > count else f"{count} {each_of(run)}"


def each_of(run: Numbers) -> str:
    """Return the plural noun of the numbers: GPUs, or ranks if some share a GPU."""
    return "ranks" if run.shared_gpus else "GPUs"


def _largest_wait_text(split: Frame) -> str:
    """Return a sentence on the largest wait of the GPU, communication included; "" if it is small."""
    waits = largest_wait(split)
    if waits is None or waits[1] < _LEAST_PCT:
        return ""
    name, share = waits
    return f"Largest wait: {name}, {in_text(share, 'share_pct')} of the window."


def largest_wait(split: Frame) -> tuple[str, float] | None:
    """Return the largest wait of the GPUs and its mean share in percent: idle time by cause, or communication."""
    mean = mean_shares(split).reindex([*IDLE, COMMUNICATION]).fillna(0.0).drop(UNSEEN)
    mean = mean[mean > 0].sort_values(ascending=False, kind="stable")
    return (str(mean.index[0]), float(mean.iloc[0])) if len(mean) else None


def mean_shares(split: Frame) -> "pd.Series[float]":
    """Return the mean share of each category in percent."""
    shares = _shares(split)
    return shares.fillna(0.0).mean() if len(shares) else pd.Series(dtype="float64")


def unseen_pct(split: Frame) -> float:
    """Return the mean share of a window, in percent, in which the work of the GPUs is unknown."""
    return float(mean_shares(split).get(UNSEEN, 0.0))


def busy_by_device(split: Frame) -> list[float]:
    """Return the busy share of a window for each GPU, in percent; empty if it has no split."""
    return _shares(split).reindex(columns=list(BUSY)).sum(axis=1).tolist()


def _without_advice(report: Report, split: Frame) -> tuple[str, str]:
    """Return the sentences for a report without advice: the largest wait; the checked causes and the largest gain."""
    wait = _largest_wait_text(split)
    if not _is_checked(report):
        reason = next(iter(report.unchecked.values()), "")
        return wait, f"Causes could not be checked: {printable(reason).rstrip('.')}." if reason else ""
    gains, lacking = report.rows(WHAT_IF), not_recorded(report, split)
    hint = f" {lacking.what} {lacking.how}" if lacking else ""
    if not {"gain_pct", "rule"} <= set(gains) or gains["gain_pct"].isna().all():
        checked = sum(rule.name not in report.unchecked for rule in RULES)
        return wait, f"None of {checked} known causes applies.{hint}"
    largest: dict[Any, Any] = gains.nlargest(1, "gain_pct").to_dict("records")[0]
    gain, rule = in_text(float(largest["gain_pct"]), "gain_pct"), str(largest["rule"])
    # a report.json may come from another version
    known = RULE.get(rule)
    fix = known.action_in(reported_framework(report)) if known else rule
    worth_pct = known.worth_pct if known else WORTH_PCT
    # a larger gain that is not worth its work needs an explanation
    below = f" (rarely worth the work below {worth_pct:.0f} %)" * bool(largest["gain_pct"] > WORTH_PCT)
    return wait, f"Nothing worth fixing was found. The best fix would save {gain}: {fix}{below}.{hint}"


def _is_checked(report: Report) -> bool:
    return bool(len(report.rows(REPLAY))) and RULES[0].name not in report.unchecked


@dataclass(frozen=True)
class NotRecorded:
    """What a report lacks, as a sentence, and how to record it, as another."""

    what: str
    how: str


def not_recorded(report: Report, split: Frame) -> NotRecorded | None:
    """Return what to record to know more about what takes most of the time; None if nothing is missing."""
    busy = busy_by_device(split)
    if busy and sum(busy) / len(busy) >= _BUSY_PCT:
        if len(report.rows(NCU_LIMITS)):
            return None
        return NotRecorded("Kernel efficiency was not measured.", "Profile with ncu to check it.")
    return unnamed_code(report, split)


def unnamed_code(report: Report, split: Frame) -> NotRecorded | None:
    """Return how to record which host code the GPU waits for, if it mostly waits for that and nothing names it."""
    wait = largest_wait(split)
    if wait is None or wait[0] != HOST or wait[1] < _LEAST_PCT or len(report.rows(IDLE_STACKS)):
        return None
    marking = reported_framework(report) == CUDA
    how = "Mark the parts of the program with NVTX ranges" if marking else "Profile with `--names python`"
    return NotRecorded("The capture does not show which code that is.", f"{how} to see it.")


def _largest_replay(limits: Frame) -> str:
    """Return a sentence on the limiter of the kernel with the most time, if no rule applies to it."""
    if not len(limits) or limits["replay_ns"].isna().all():
        return "What limits them was not collected."
    row: dict[Any, Any] = limits.nlargest(1, "replay_ns").to_dict("records")[0]
    name, limit = label_of(str(row["name"]), _LONG), limit_of(row)
    if not limit:
        return f"What limits the longest, `{name}`, was not collected."
    return f"The longest, `{name}`, {limit}."


def limit_of(row: Mapping[Any, Any]) -> str:
    """Return the limiter of a kernel as a predicate, from its row of `ncu_limits`; "" if it was not collected."""
    if pd.isna(row["used_pct"]):
        return ""
    unit, used = printable(row["unit"]), in_text(float(row["used_pct"]), "used_pct")
    if row["used_pct"] >= LIMITED_PCT:
        return f"is limited by {unit}, used to {used}"
    return f"waits on latencies: its busiest unit is used to {used} ({unit})"


def _without_gpu(report: Report, run: Numbers, causes: Sequence[Finding]) -> Verdict:
    """Return the verdict on single kernels, or on a program without GPU work."""
    kernels = len(report.rows(NCU_KERNELS))
    if kernels:
        state = f"{counted(kernels, 'kernel')} replayed by ncu, without a timeline."
        causes = causes or [finding for finding in report.findings if finding.source.startswith("ncu_")]
        return _on_finding(state, causes[0]) if causes else Verdict(state, _largest_replay(report.rows(NCU_LIMITS)))
    doubts = [finding for finding in report.findings if finding.rule in _WITHOUT_GPU]
    if doubts:
        doubt = min(doubts, key=lambda finding: [*_WITHOUT_GPU].index(finding.rule))
        reason = printable(SENTENCES.split(doubt.detail, maxsplit=1)[0]) if doubt.detail else ""
        first = f"First: {doubt.remedy[:1].lower()}{doubt.remedy[1:]}"
        return Verdict(_WITHOUT_GPU[doubt.rule], reason, first, about=doubt)
    if len(report.rows(CPU_OPS)) and run.top_operator_pct is not None:
        # as on the page
        share, name = in_text(run.top_operator_pct, "own_pct"), excerpt(run.top_operator, _LONG)
        top_operator = f"The top operator, `{name}`, takes {share} of operator time."
        return Verdict(
            "No work on a GPU.",
            f"{_operator_share(report)} {top_operator}".lstrip(),
            "Reports of GPU work also have kernels, copies, launches and causes.",
        )
    if causes:
        return _on_finding("", causes[0])
    operators = find(report.results, CPU_OPS.name)
    recorded_operators = operators is not None and operators.table is not None
    if not recorded_operators or any(finding.rule == "nothing_recorded" for finding in report.findings):
        return Verdict("No work on a GPU.")
    return Verdict(
        "No work on a GPU, and no PyTorch operator.",
        "torch.profiler records only the thread that starts it.",
        "First: if other threads do the work, record them (--record threads, or profile_all_threads=True).",
    )


def _operator_share(report: Report) -> str:
    """Return a sentence on the time of a CPU program outside operators or in them, whichever is more.

    "" if unknown: several threads can be in operators at the same time.
    """
    parts = report.rows(STEP_PARTS)
    if not {"category", "time_ns", "tid", "steps"} <= set(parts.columns) or parts["tid"].nunique() != 1:
        return ""
    category, whole = parts["category"].astype("str"), "the window"
    if (parts["steps"].astype("float64") > 0).any():
        whole = "a step"
    # a pause of the recording may or may not be in operators
    times = parts["time_ns"].astype("float64").groupby(category).sum().drop(UNSEEN, errors="ignore")
    inside = float(times.get(OPERATORS, 0.0))
    if not inside > 0:
        return ""
    share = 100.0 * inside / float(times.sum())
    larger, where = (share, "in operators") if share >= _BUSY_PCT else (100.0 - share, "outside operators")
    return f"{in_text(larger, 'share_pct')} of {whole} is {where}."
