"""The values of a history: the measurements of each night, the changes of each series, and the events that they form.

A track is one workload under one key. A change of key (another GPU, driver, CUDA, clock policy, collector or arguments)
begins another track, an epoch, so it never counts as a change of the program.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Literal

import numpy as np

from nightsight import robust
from nightsight.intervals import Floats
from nightsight.model.compare import unit_of
from nightsight.model.report import ARGUMENTS, Conditions, Environment
from nightsight.units import heading, split

State = Literal["suspect", "confirmed", "accepted", "recovered", "ended"]
"""suspect: the last one or two nights deviate. confirmed: at least three do, and nobody accepted it. accepted: in the
settings, with a reason. recovered: a later change restored the previous level. ended: it was confirmed, and its epoch
is over, so no further night can show whether it recovers.
"""
TOGETHER: Final = dt.timedelta(hours=12)
"""Runs that began within this time belong to one night."""
Cause = Literal["code", "environment", "unknown"]
LEAST_PCT: Final = 3.0
"""A smaller change of level does not count."""


@dataclass(frozen=True, order=True)
class Key:
    """The facts that must be equal for runs to form one series. driver: its branch, the part before the first dot.

    arguments: a digest of the workload's parameters, which may contain private data and so stay out of the history.
    """

    gpu: str = ""
    mig: str = ""
    driver: str = ""
    cuda: str = ""
    clocks: str = ""
    collector: str = ""
    arguments: str = ""

    @classmethod
    def of(
        cls, environment: Environment, conditions: Sequence[Conditions], parameters: Mapping[str, str] | None = None
    ) -> "Key":
        """Return the key of a run."""
        relevant = relevant_parameters(parameters or {})
        text = json.dumps(relevant, sort_keys=True) if relevant else ""
        return cls(
            gpu=environment.gpu,
            mig=",".join(sorted({gpu.mig for gpu in conditions if gpu.mig})),
            driver=environment.driver.partition(".")[0],
            cuda=environment.cuda,
            clocks=",".join(sorted({gpu.clock_policy for gpu in conditions if gpu.clock_policy})),
            collector=environment.collector,
            arguments=digest(text, 8) if text else "",
        )

    @property
    def without_arguments(self) -> str:
        """The key in words, without the GPU and the arguments."""
        return replace(self, arguments="").text

    @property
    def machine(self) -> tuple[str, ...]:
        """The facts that workloads of one machine share."""
        return (self.gpu, self.mig, self.driver, self.cuda, self.clocks)

    @property
    def gpu_name(self) -> str:
        """The GPU, and its slice, if any."""
        return " ".join(filter(None, (self.gpu or "no GPU", self.mig and f"MIG {self.mig}")))

    def differences(self, earlier: "Key") -> tuple[str, ...]:
        """Return the changes since an earlier epoch, in words."""
        earlier_facts = asdict(earlier)
        return tuple(
            "other arguments"
            if name == "arguments"
            else f"{_WORDS.get(name, name)} {earlier_facts[name] or '?'} → {value or '?'}"
            for name, value in asdict(self).items()
            if value != earlier_facts[name]
        )

    @property
    def text(self) -> str:
        """The key in words, without the GPU."""
        facts = (
            self.driver and f"driver {self.driver}",
            self.cuda and f"CUDA {self.cuda}",
            self.clocks and f"{self.clocks} clocks",
            self.collector,
            self.arguments and f"arguments {self.arguments}",
        )
        return ", ".join(filter(None, facts))


def relevant_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that affect times: not those of replays by ncu, and of annotated names."""
    relevant = {name: text for name, text in parameters.items() if not name.startswith(_WITHOUT_EFFECT)}
    if relevant.get(ARGUMENTS) == "none":
        # as in a report without arguments
        del relevant[ARGUMENTS]
    return relevant


_WITHOUT_EFFECT: Final = ("ncu ", "names", "interpreter")
_WORDS: Final = {"gpu": "GPU", "mig": "MIG", "cuda": "CUDA"}


@dataclass(frozen=True)
class Night:
    """One point of all series of a track: the runs of one commit that were measured together.

    time: ISO, UTC. link: the report of one of its runs, a URL or `WORKLOAD/RUN`, "" if there is none. versions: of the
    software, for changes other than the commit. flags: why its numbers are not tested (throttled, shared). proof: the
    verdict of `nightsight prove` on the largest cause, "" for none.
    """

    time: str
    commit: str = ""
    link: str = ""
    runs: int = 1
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    flags: tuple[str, ...] = ()
    proof: str = ""


@dataclass(frozen=True, eq=False)
class Series:
    """One number over the nights of a track: the median of each night's runs, NaN if it was not measured.

    levels: the parts between changes, as (first night, last night, median).
    """

    kind: str
    name: str
    values: Floats
    levels: tuple[tuple[int, int, float], ...] = ()

    @property
    def unit(self) -> str:
        """The unit, as a suffix of `nightsight.units`."""
        return unit_of(self.kind, self.name)

    @property
    def column(self) -> str:
        """A name that ends with the unit, for formatting."""
        return f"value_{self.unit}" if self.unit else "value"

    @property
    def label(self) -> str:
        """The metric in words."""
        return heading(self.name).lower() if self.kind == "gate" and split(self.name)[1] else self.name

    @property
    def is_known(self) -> bool:
        """Whether any night measured it."""
        return bool(np.isfinite(self.values).any())

    @property
    def last(self) -> float:
        """The newest number, NaN if there is none."""
        measured = self.values[np.isfinite(self.values)]
        return float(measured[-1]) if len(measured) else float("nan")


@dataclass(frozen=True, eq=False)
class Track:
    """A workload under one key: its nights, oldest first, and its series, gate metrics first."""

    workload: str
    key: Key
    nights: tuple[Night, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True, eq=False)
class LevelChange:
    """A change of level of one series: from `baseline` to `candidate`, first seen in night `place` of the track."""

    track: Track
    series: Series
    place: int
    baseline: float
    candidate: float
    state: State
    reason: str = ""

    @property
    def change_pct(self) -> float:
        """The change of the level in percent; infinite if it was zero."""
        return 100 * (self.candidate / self.baseline - 1) if self.baseline else float("inf")

    @property
    def night(self) -> Night:
        """The first night of the new level."""
        return self.track.nights[self.place]

    @property
    def before(self) -> Night:
        """The last night of the old level."""
        return self.track.nights[self.place - 1]


@dataclass(frozen=True, eq=False)
class Event:
    """The changes on one machine in one night, as one event.

    changes: gate metrics first, then by the size of the change. sentence: what changed, when and why. ids: the first is
    its own, independent of the series; the others are the ids that it would have up to three nights earlier or later,
    or if it were named after another workload.
    """

    ids: tuple[str, ...]
    state: State
    cause: Cause
    sentence: str
    changes: tuple[LevelChange, ...]

    @property
    def id(self) -> str:
        """The identifier of the event."""
        return self.ids[0]

    @property
    def main(self) -> LevelChange:
        """The change after which the event is named."""
        return self.changes[0]

    @property
    def direction(self) -> Literal["slower", "faster"]:
        """Whether the program became slower; lower is better for all series."""
        return "slower" if self.main.candidate > self.main.baseline else "faster"


@dataclass(frozen=True, eq=False)
class Trends:
    """The results of a history: tracks, events (the newest first), the rule that found them, and reading problems."""

    tracks: tuple[Track, ...]
    events: tuple[Event, ...]
    rule: str
    problems: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ()


def digest(text: str, length: int) -> str:
    """Return the first digits of a digest."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


def off_level(values: Sequence[float] | Floats, *, least: int = 4) -> tuple[int, float]:
    """Return how many of the last values deviate from the previous level in one direction, and by how many percent.

    A value deviates if it differs by more than 3 % and more than 3 robust standard deviations of the previous values.
    This is the simple rule: three nights in a row are a change. (0, 0.0) if fewer than `least` values come before.
    """
    logs = np.asarray(values, dtype=np.float64)
    logs = np.log(logs[np.isfinite(logs) & (logs > 0)])
    result = (0, 0.0)
    for count in range(1, len(logs) - least + 1):
        base, last = logs[:-count], logs[-count:]
        level = float(np.median(base))
        limit = max(np.log1p(LEAST_PCT / 100), 3 * float(robust.standard_deviation(base)))
        distance = last - level
        if not (np.all(distance > limit) or np.all(distance < -limit)):
            break
        result = (count, float(100 * np.expm1(np.median(distance))))
    return result
