"""A team's limits: nightsight.toml, or [tool.nightsight] of pyproject.toml, whichever is nearest.

Settings of a workload override the general ones: [gate] and [gate.workloads.NAME] have the same keys.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Final

from nightsight.errors import UsageError
from nightsight.model.compare import COUNTS, EXPOSED, GATE, KERNELS, KINDS, STEP, UNPROFILED, AcceptedChange, Noise
from nightsight.results.categories import BUSY, IDLE
from nightsight.system.settings_file import PYPROJECT, document_of, refuse_unknown

_FILES: Final = ("nightsight.toml", PYPROJECT)


@dataclass(frozen=True)
class Limit:
    """The limit of a gate metric: a change in percent, or an amount, in ns or in counts per step."""

    most_pct: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison.

    alpha: error rate of a family of tests. least_pct: the minimum effect; smaller changes do not count. same_pct: an
    interval within plus and minus this shows that nothing changed. green_pct: a gate passes if regressions above this
    are ruled out; None for 5, or more if runs of unchanged code are known to differ by more. least_ns: smaller changes
    of a step do not count. least_share_pct: a group that takes less of a step on both sides is not tested, nor is one
    that takes less than least_total_ns in a run. deciding: metrics whose regression fails a gate, in addition to
    metrics with a limit.
    """

    alpha: float = 0.05
    least_pct: float = 1.0
    same_pct: float = 3.0
    green_pct: float | None = None
    least_ns: float = 100.0
    least_share_pct: float = 0.05
    least_total_ns: float = 50_000.0
    deciding: tuple[str, ...] = (UNPROFILED, STEP, KERNELS, EXPOSED, *COUNTS)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    accepted: tuple[AcceptedChange, ...] = ()

    @property
    def judged(self) -> tuple[str, ...]:
        """The gate metrics that a gate decides on."""
        return tuple(dict.fromkeys((*self.deciding, *self.limits)))

    def allowed_pct(self, noise: Noise, runs: int) -> dict[str, float]:
        """Return, for each metric of a gate, the growth that need not be ruled out.

        That is 5 % by default, or the growth that 19 of 20 comparisons of unchanged code with this many runs per side
        exclude, if that is known and larger.
        """
        usual = {
            name: min(_EXCLUDED * spread / sqrt(runs), MOST_GREEN_PCT) for name, spread in noise.spread_pct.items()
        }
        allowed = {}
        for name in self.judged:
            most = self.limits.get(name, Limit()).most_pct
            green = max(_GREEN_PCT, usual.get(name, 0.0)) if self.green_pct is None else self.green_pct
            allowed[name] = green if most is None else most
        return allowed

    @property
    def doubts(self) -> Iterator[str]:
        """Limits that cannot be checked, because tests ignore changes below the minimum effect."""
        for name, limit in self.limits.items():
            if limit.most_pct is not None and limit.most_pct < self.least_pct:
                yield (
                    f"{name} may change by {limit.most_pct:g} %, but tests ignore changes below {self.least_pct:g} %: "
                    "lower least_pct, or raise the limit."
                )


MOST_GREEN_PCT: Final = 20.0
"""The upper limit on any machine, however noisy: a gate that allows more is useless."""
_GREEN_PCT: Final = 5.0
# an upper bound of the change exceeds its estimate by about 2 standard errors, and the estimate 0 by 1.6
_EXCLUDED: Final = 3.6
_NUMBERS: Final = ("alpha", "least_pct", "same_pct", "green_pct", "least_ns", "least_share_pct", "least_total_ns")
_KEYS: Final = (*_NUMBERS, "deciding", "limits")
METRICS: Final = (*GATE, *BUSY, *IDLE)
"""What a gate can decide on."""


def settings_of(folder: Path) -> Callable[[str], Settings]:
    """Read the nearest file at or above `folder` now, and return a function that gives the settings for a workload.

    UsageError if any part of it is invalid, so that a mistake is found before an hour of measuring.
    """
    for above in (folder.absolute(), *folder.absolute().parents):
        for name in _FILES:
            table = _settings_table(above / name)
            if table is not None:
                chosen = partial(_File(above / name).settings, table)
                chosen("")
                return chosen
    return lambda _: Settings()


def _settings_table(path: Path) -> Mapping[str, Any] | None:
    """Return our settings in a file; None if it does not exist or has none."""
    document = document_of(path)
    if document is None or path.name == _FILES[0]:
        return document
    tools = document.get("tool")
    table = tools.get("nightsight") if isinstance(tools, dict) else None
    # a table that only has workloads has no gate settings, so a file further up counts
    return table if isinstance(table, dict) and table.keys() - {"workloads"} else None


@dataclass(frozen=True)
class _File:
    path: Path

    def refusal(self, message: str, hint: str = "See docs/statistics.md.") -> UsageError:
        return UsageError(f"{self.path}: {message}", hint)

    def settings(self, table: Mapping[str, Any], workload: str) -> Settings:
        refuse_unknown(table, ("gate", "accepted", "workloads"), "", self.refusal)
        gate = self._a_table(table.get("gate", {}), "gate")
        refuse_unknown(gate, (*_KEYS, "workloads"), "gate.", self.refusal)
        by_workload = self._a_table(gate.get("workloads", {}), "gate.workloads")
        read: dict[str, Any] = self._gate(gate, "gate")
        for name, own in by_workload.items():
            what = f"gate.workloads.{name}"
            refuse_unknown(self._a_table(own, what), _KEYS, f"{what}.", self.refusal)
            its = self._gate(own, what)
            if name == workload:
                read = {**read, **its, "limits": {**read["limits"], **its["limits"]}}
        accepted = table.get("accepted", [])
        if not isinstance(accepted, list):
            raise self.refusal("accepted is not a list of tables", "Write [[accepted]] above each.")
        read["accepted"] = tuple(self._accepted(entry, place) for place, entry in enumerate(accepted, start=1))
        return Settings(**read)

    def _gate(self, table: Mapping[str, Any], what: str) -> dict[str, Any]:
        read: dict[str, Any] = {name: self._number(table[name], f"{what}.{name}") for name in _NUMBERS if name in table}
        if not 0 < read.get("alpha", 0.05) < 1:
            raise self.refusal(f"{what}.alpha is not between 0 and 1")
        if "deciding" in table:
            names = table["deciding"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise self.refusal(f"{what}.deciding is not a list of metrics", f"Known: {', '.join(METRICS)}.")
            refuse_unknown(dict.fromkeys(names), METRICS, f"{what}.deciding: ", self.refusal)
            read["deciding"] = tuple(names)
        limits = self._a_table(table.get("limits", {}), f"{what}.limits")
        refuse_unknown(limits, METRICS, f"{what}.limits.", self.refusal)
        read["limits"] = {name: self._limit(limit, f"{what}.limits.{name}") for name, limit in limits.items()}
        return read

    def _limit(self, table: object, what: str) -> Limit:
        names = [part.name for part in fields(Limit)]
        refuse_unknown(values := self._a_table(table, what), names, f"{what}.", self.refusal)
        if not values:
            raise self.refusal(f"{what} says nothing", "Write { most_pct = 5 } or { most = 40 }.")
        return Limit(**{name: self._number(value, f"{what}.{name}") for name, value in values.items()})

    def _accepted(self, entry: object, place: int) -> AcceptedChange:
        what = f"accepted change {place}"
        values = dict(self._a_table(entry, what))
        refuse_unknown(values, [part.name for part in fields(AcceptedChange)], f"{what}: ", self.refusal)
        if lacking := [name for name in ("name", "reason", "date") if not values.get(name)]:
            raise self.refusal(f"{what} has no {lacking[0]}", 'Write name = "step_ns", reason = "..." and a date.')
        date = values["date"]
        try:
            date = date if isinstance(date, dt.date) else dt.date.fromisoformat(date)
        except (TypeError, ValueError):
            raise self.refusal(f"the date of {what} is not a date", "Write date = 2026-11-22.") from None
        values["date"] = f"{date:%Y-%m-%d}"
        if "up_to_pct" in values:
            values["up_to_pct"] = self._number(values["up_to_pct"], f"up_to_pct of {what}")
        if wrong := [
            name for name in ("name", "reason", "kind", "workload") if not isinstance(values.get(name, ""), str)
        ]:
            raise self.refusal(f"{wrong[0]} of {what} is not a text")
        refuse_unknown({values.get("kind", "gate"): ""}, KINDS, f"kind of {what}: ", self.refusal)
        return AcceptedChange(**values)

    def _a_table(self, value: object, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.refusal(f"{what} is not a table")
        return value

    def _number(self, value: object, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise self.refusal(f"{what} is not a number of at least 0")
        return float(value)
