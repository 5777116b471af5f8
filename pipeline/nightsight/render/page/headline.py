"""The headline of a page: what is wrong, in a sentence, and how much shorter a step becomes with the fix."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nightsight.events.kernel_labels import label_of
from nightsight.model.report import Finding, Report
from nightsight.render.fixes import Fixes, fixes_of
from nightsight.render.summary import Numbers
from nightsight.render.table.view import floats
from nightsight.render.verdict import SENTENCES, Verdict, first_sentences, gain_of, limit_of, mean_shares, unnamed_code
from nightsight.results.categories import COMPUTE, COPIES, GRAPHS
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ncu import NCU_LIMITS
from nightsight.texts import excerpt, printable
from nightsight.units import in_text

_ACTION: Final = 120
_NAME: Final = 60
_COUNTS: Final = {2: "Both fixes"}


@dataclass(frozen=True)
class Headline:
    """The title, and two texts below it. fix: the fix, with its numbers between asterisks. more: everything else."""

    title: str
    fix: str = ""
    more: str = ""

    @property
    def text(self) -> str:
        """All texts, joined."""
        return " ".join(part for part in (self.title, self.fix.replace("*", ""), self.more) if part)


def headline(outcome: Verdict, report: Report, run: Numbers) -> Headline:
    """Return the headline for the window of a report."""
    if outcome.advice is not None:
        found = _on_advice(outcome, outcome.advice, fixes_of(report))
        return replace(found, more=" ".join(part for part in (found.more, _unnamed(outcome.advice, report)) if part))
    if run.busy_pct_by_device and outcome.about is None:
        step_ns = run.step_ns if run.step_ns is not None else run.profiled_step_ns
        step = "" if step_ns is None else f"A step takes {in_text(step_ns, 'step_ns')}."
        part = _largest_part(report)
        if part and outcome.nothing_found:
            title, *others = SENTENCES.split(outcome.first, maxsplit=1)
            more = [outcome.state, step, part, outcome.cause, *others]
        else:
            title = outcome.cause or part or outcome.state
            more = [part if outcome.cause else "", outcome.first, step]
        return Headline(title, more=" ".join(filter(None, (*more, outcome.more))))
    if outcome.cause and len(report.rows(NCU_LIMITS)):
        return Headline(outcome.cause, more=outcome.state)
    return Headline(outcome.state, more=" ".join(part for part in (outcome.cause, outcome.first) if part))


def headline_on(outcome: Verdict) -> Headline:
    """Return the headline for another window of the capture."""
    if outcome.advice is not None:
        return _on_advice(outcome, outcome.advice, None)
    return Headline(outcome.cause or outcome.state, more=outcome.first)


def _on_advice(outcome: Verdict, finding: Finding, fixes: Fixes | None) -> Headline:
    action, gain = excerpt(finding.action, _ACTION) if finding.action else "", gain_of(finding)
    proof = printable(finding.proof) if finding.proof else ""
    fix = fixes and fixes.about(finding)
    fix_text = f"{action[:1].upper()}{action[1:]}"
    if fixes and fix:
        per_step = " per step" * fixes.is_step
        sure = proof or ", ".join(filter(None, ("predicted", fixes.error(fix))))
        fix_text = f"{fix_text or 'With the fix'}: *{fixes.change(fix)}*{per_step}, {gain} ({sure})."
        if fix.order and len(fixes.sequence) > 1:
            count = len(fixes.sequence)
            together = _COUNTS.get(count, f"All {count} fixes")
            fix_text += f" {together} together: *{fixes.text(fixes.sequence[-1].after_ns)}*."
    elif fix_text:
        fix_text += f"{gain and f': about *{gain}*'}{proof and f' ({proof})'}."
    elif finding.severity != "advice":
        # the page has the first sentence of advice below the headline
        fix_text = first_sentences(finding.remedy, _ACTION)
    return Headline(outcome.cause, fix_text, outcome.more)


def _unnamed(finding: Finding, report: Report) -> str:
    """Return how to see the code that a fix is about, if the capture does not name it; else ""."""
    fixes = fixes_of(report)
    fix = fixes and fixes.about(finding)
    lacking = unnamed_code(report, report.rows(TIME_SPLIT)) if fix and fix.path.startswith("(") else None
    return f"{lacking.what} {lacking.how}" if lacking else ""


def _largest_part(report: Report) -> str:
    """Return what takes most of the time, the largest kernel or copies, and what limits the kernel.

    "" if the GPU mostly waits.
    """
    shares = mean_shares(report.rows(TIME_SPLIT))
    part = str(shares.idxmax()) if len(shares) else ""
    kernels = report.rows(CUDA_GPU_KERN_SUM)
    if part == GRAPHS:
        return f"CUDA graphs take {in_text(float(shares[part]), 'share_pct')} of the time, recorded as a whole."
    if part == COPIES:
        return f"Copies and memsets take {in_text(float(shares[part]), 'share_pct')} of the time."
    if part != COMPUTE or not {"name", "total_ns"} <= set(kernels.columns):
        return ""
    times = floats(kernels["total_ns"])
    if not np.nansum(times) > 0:
        return ""
    largest = int(np.nanargmax(times))
    share = 100 * float(times[largest]) / float(np.nansum(times))
    name = label_of(str(kernels["name"].iloc[largest]), _NAME)
    return f"The largest kernel, `{name}`, takes {share:.0f} % of the kernel time. {_limit(report, name)}".rstrip()


def _limit(report: Report, name: str) -> str:
    """Return a sentence on what limits a kernel, by its label; "" if no kernel was measured."""
    limits = report.rows(NCU_LIMITS)
    if not len(limits):
        return ""
    # nsys and ncu spell the arguments of templates differently, but not what labels keep
    rows = limits[limits["name"].astype("str").map(lambda full: label_of(full, _NAME)) == name]
    rows = rows[rows["used_pct"].notna()].sort_values("replay_ns", ascending=False)
    if not len(rows):
        return "What limits it was not measured: select it for ncu, too."
    return f"It {limit_of(rows.iloc[0].to_dict())}."
