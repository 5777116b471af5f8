"""How long a step takes now, after each fix alone, and after the fixes of the best sequence one after the other."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from nightsight.events.frameworks import reported_framework
from nightsight.model.report import Finding, Report
from nightsight.results.causes import REPLAY, WHAT_IF, error_pct
from nightsight.units import Scale, in_text, scale_for

_NEEDED: Final = {"rule", "path", "gain_pct", "order", "after_ns"}
# of a step now: a shorter one has a unit that suits it
_LEAST_SHOWN: Final = 0.01
_DIGITS: Final = 3


@dataclass(frozen=True)
class Fix:
    """A fix with a predicted gain. order: its place in the best sequence, 0 if it is not in it.

    after_ns: the length of a step after this and all before it in the sequence, 0 if it is not in it. error_pct: the
    possible error of the gain, NaN if it is unknown.
    """

    rule: str
    path: str
    gain_pct: float
    order: int
    after_ns: float
    error_pct: float = math.nan

    def is_of(self, finding: Finding) -> bool:
        """Whether a finding is about this fix."""
        return self.rule == finding.rule and finding.gain_pct == self.gain_pct


@dataclass(frozen=True)
class Fixes:
    """All fixes with a predicted gain. now_ns: a step before them. is_step: it is one, not the whole window.

    framework: that of the program, "" if it is unknown. profiled_ns: a step as recorded, 0 if it is unknown.
    """

    now_ns: float
    is_step: bool
    fixes: tuple[Fix, ...]
    framework: str = ""
    profiled_ns: float = 0.0

    @property
    def sequence(self) -> tuple[Fix, ...]:
        """The fixes in the order to apply them."""
        return tuple(sorted((fix for fix in self.fixes if fix.order), key=lambda fix: fix.order))

    def about(self, finding: Finding | None) -> Fix | None:
        """Return the fix that a finding is about, if it is one of these."""
        return next((fix for fix in self.fixes if finding is not None and fix.is_of(finding)), None)

    def change(self, fix: Fix) -> str:
        """Return the length of a step before and after a fix alone: `4.91 ms → 0.59 ms`."""
        return " → ".join(self._now_and_after(fix))

    def sentence(self, fix: Fix) -> str:
        """Return the same as a sentence: `A step then takes 0.59 ms instead of 4.91 ms`."""
        now, after = self._now_and_after(fix)
        return f"{'A step' if self.is_step else 'The window'} then takes {after} instead of {now}."

    def error(self, fix: Fix) -> str:
        """Return the possible error of the step after a fix alone, `± 0.04 ms`; "" if it is unknown."""
        error_ns, after_ns = (self.now_ns * share / 100 for share in (fix.error_pct, 100 - fix.gain_pct))
        if not math.isfinite(error_ns):
            return ""
        # of a step that nearly vanishes, only the order of magnitude is known
        return f"± {self.text(error_ns)}" if error_ns < after_ns else "roughly"

    def text(self, length_ns: float) -> str:
        """Return a length with its unit: the same for all, if the shortest one has digits then."""
        return self._scale.with_unit(length_ns) if self._scale else in_text(length_ns, "gain_ns")

    def saved(self, before_ns: float, after_ns: float) -> str:
        """Return a difference as a change: that of the printed lengths, so that a reader can subtract them."""
        if self._scale is None:
            return f"\N{MINUS SIGN}{in_text(before_ns - after_ns, 'gain_ns')}"
        before, after = (round(length / self._scale.divisor, self._scale.decimals) for length in (before_ns, after_ns))
        return f"\N{MINUS SIGN}{before - after:,.{self._scale.decimals}f} {self._scale.symbol}"

    def _now_and_after(self, fix: Fix) -> tuple[str, str]:
        return self.text(self.now_ns), self.text(self.now_ns * (1 - fix.gain_pct / 100))

    @cached_property
    def _scale(self) -> Scale | None:
        """A scale with three digits for a step now, and two for the shortest; None if these differ too much for one."""
        alone = (self.now_ns * (1 - fix.gain_pct / 100) for fix in self.fixes)
        least = min((*(fix.after_ns for fix in self.sequence), *alone), default=self.now_ns)
        if least < _LEAST_SHOWN * self.now_ns:
            return None
        scale = scale_for("ns", [self.now_ns])
        digits = ((_DIGITS, self.now_ns), (_DIGITS - 1, least))
        places = (count - 1 - math.floor(math.log10(size / scale.divisor)) for count, size in digits if size > 0)
        return Scale(scale.divisor, scale.symbol, min(max(*places, 0), _DIGITS))


def fixes_of(report: Report) -> Fixes | None:
    """Return the fixes of a report; None if no gain is predicted. A report.json may come from another version."""
    replays, rows = report.rows(REPLAY), report.rows(WHAT_IF)
    if not len(replays) or not {"unprofiled_ns", "of_repetitions"} <= set(replays) or not set(rows) >= _NEEDED:
        return None
    replay = replays.iloc[0]
    now_ns, rows = float(replay["unprofiled_ns"]), rows[rows["gain_pct"].notna()]
    if not now_ns > 0 or not len(rows):
        return None
    orders, after = (rows[name].astype("float64").fillna(0.0).tolist() for name in ("order", "after_ns"))
    texts = (rows[name].astype("str").tolist() for name in ("rule", "path"))
    # a report of another version may lack what errors are computed from
    has_errors = {"unexplained_pct", "replayed_ns"} <= set(replays)
    gains = rows["gain_pct"].tolist()
    errors = [error_pct(replay.to_dict(), gain) if has_errors else math.nan for gain in gains]
    fixes = zip(*texts, gains, map(int, orders), after, errors, strict=True)
    profiled_ns = float(replay.get("measured_ns", 0.0))
    framework, is_step = reported_framework(report), bool(replay["of_repetitions"])
    return Fixes(now_ns, is_step, tuple(Fix(*fix) for fix in fixes), framework, profiled_ns)
