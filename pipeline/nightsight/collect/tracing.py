"""The request to torch.profiler, and findings about the resulting steps and traces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nightsight.errors import CaptureError, ToolError
from nightsight.model.report import Finding
from nightsight.units import counted

# how to tell that torch supports it: a file of its package, and a word in that file
FEATURES: Final = {
    "--skip-range": ("profiler/profiler.py", "toggle_collection_dynamic"),
    "--record sync": ("_C/_profiler.pyi", "enable_cuda_sync_events"),
    "--record threads": ("_C/_profiler.pyi", "profile_all_threads"),
}


@dataclass(frozen=True)
class Schedule:
    """The number of steps to skip, to warm up the profiler with, and to record; and of cycles (0: no end)."""

    wait: int
    warmup: int
    active: int
    repeat: int

    def __str__(self) -> str:
        """Return the schedule in torch's terms."""
        return f"wait {self.wait}, warmup {self.warmup}, active {self.active}, repeat {self.repeat}"


@dataclass(frozen=True)
class Tracing:
    """What torch.profiler records. Without a schedule: the whole run. Without activities: all available.

    recorded: the words of --record. skipped: ranges in which nothing is recorded. step_range: the range of a step.
    """

    schedule: Schedule | None = None
    activities: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    step_range: str = ""

    def arguments(self, step_range: str) -> Iterator[str]:
        """Yield the arguments of workloads/traced.py; `step_range`: the default."""
        if self.schedule:
            schedule = self.schedule
            yield from ("--schedule", *map(str, (schedule.wait, schedule.warmup, schedule.active, schedule.repeat)))
        if self.activities:
            yield from ("--activities", ",".join(self.activities))
        if self.recorded:
            yield from ("--record", ",".join(self.recorded))
        yield from (f"--skip-range={name}" for name in self.skipped)
        yield f"--step-range={self.step_range or step_range}"

    @property
    def parameters(self) -> dict[str, str]:
        """The requested settings, as parameters of the run."""
        texts = {
            "schedule": str(self.schedule or ""),
            "activities": ", ".join(self.activities),
            "recorded": ", ".join(self.recorded),
            "skipped ranges": ", ".join(self.skipped),
        }
        return {name: text for name, text in texts.items() if text}

    def refuse_unknown(self, version: str, features: Sequence[str]) -> None:
        """Raise ToolError for the first option that this torch does not support; `features`: some of FEATURES."""
        options = [*(f"--record {word}" for word in self.recorded), *(["--skip-range"] if self.skipped else [])]
        for option in options:
            if option in FEATURES and option not in features:
                _, needed = FEATURES[option]
                raise ToolError(
                    f"torch {version} does not support {option}: it has no {needed}",
                    "Omit the option, or choose a Python with a newer torch: --python.",
                )


WHOLE_RUN: Final = Tracing()
"""What is recorded by default."""


@dataclass(frozen=True)
class TraceFacts:
    """The result of workloads/traced.py: traces with their steps, the number of steps, and how they were detected.

    step_source, step_name: how steps were detected, and the range, optimizer or module. threads: the number of threads
    that the program started; threads_with_ranges: those of them that had ranges. is_known: whether it wrote its facts,
    which it does last.
    """

    traces: tuple[tuple[str, int], ...] = ()
    steps: int = 0
    step_source: str = ""
    step_name: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    own_profiler: bool = False
    threads: int = 0
    threads_with_ranges: int = 0
    is_known: bool = True

    @classmethod
    def of_facts(cls, document: Mapping[str, Any]) -> "TraceFacts":
        """Read the facts that traced.py writes at its end."""
        traces = tuple((Path(str(name)).name, int(steps)) for name, steps in document["traces"])
        names = ("steps", "by", "of", "skipped", "own_profiler", "threads", "ranged")
        return cls(traces, *(document[name] for name in names))

    @property
    def chosen(self) -> str:
        """The trace to report on: the program's own last one, or the last of those with the most steps."""
        if self.own_profiler or not self.traces:
            return self.traces[-1][0] if self.traces else ""
        most = max(steps for _, steps in self.traces)
        return next(name for name, steps in reversed(self.traces) if steps == most)

    @property
    def steps_text(self) -> str:
        """The number of steps, and how they were detected."""
        if not self.steps:
            return "no steps"
        sources = {"range": f"the range {self.step_name}", "optimizer": f"calls of {self.step_name}.step()"}
        source = sources.get(self.step_source, f"calls of the module {self.step_name}")
        return f"{counted(self.steps, 'step')}, detected from {source}"

    def refuse_empty(self, name: str, schedule: Schedule) -> None:
        """Raise CaptureError if the schedule recorded nothing, although the program succeeded."""
        if self.traces:
            return
        if not self.steps:
            raise CaptureError(
                f"no steps were detected in {name}, so nothing was recorded",
                "Name the range of a step with --step-range, or omit --active to record the whole run. A step ends "
                "with an optimizer's step(), a call of the model, or a range named step.",
            )
        raise CaptureError(
            f"{name} has {self.steps_text}; --wait {schedule.wait} --warmup {schedule.warmup} skip the first "
            f"{schedule.wait + schedule.warmup}, so nothing was recorded",
            "Run more steps, or reduce --wait and --warmup.",
        )

    def findings(self, tracing: Tracing) -> Iterator[Finding]:
        """Yield findings about the recording; nothing if the program wrote no facts."""
        if not self.is_known:
            return
        recorded = dict(self.traces).get(self.chosen, 0)
        unused = [name for name, _ in self.traces if name != self.chosen]
        if self.own_profiler:
            yield _used_by_the_program(len(self.traces))
        elif tracing.schedule and recorded < tracing.schedule.active:
            yield Finding(
                "few_steps",
                "warning",
                f"{recorded} of {tracing.schedule.active} steps were recorded",
                f"The program ran {self.steps_text}, and ended before the schedule did: {tracing.schedule}.",
                "Run more steps, or record fewer.",
            )
        elif tracing.schedule or self.step_source in ("optimizer", "module"):
            sentence = f"{recorded} of them {'is' if recorded == 1 else 'are'} in the trace."
            yield Finding("steps_found", "info", f"The program ran {self.steps_text}", sentence if self.steps else "")
        if unused and not self.own_profiler:
            yield Finding(
                "other_cycles",
                "info",
                f"The report covers one of {len(self.traces)} traces: {self.chosen}",
                f"Each cycle of the schedule wrote one. The others: {', '.join(unused)}.",
                "For their reports, run nightsight report FILE in the folder `capture` of this run.",
            )
        if self.threads and "threads" not in tracing.recorded and not self.own_profiler:
            yield _other_threads(self.threads, self.threads_with_ranges)
        for name, count in self.skipped.items():
            yield _skipped(name, count)


def _used_by_the_program(traces: int) -> Finding:
    return Finding(
        "own_profiler",
        "warning",
        "The program uses torch.profiler itself",
        "torch allows one profiler at a time, so the program's own recorded, with its own schedule and options. "
        + ("The report covers its last trace." if traces > 1 else "It wrote no trace: the report ends before it."),
        "Remove it from the program to record with nightsight's options.",
    )


def _other_threads(started: int, with_ranges: int) -> Finding:
    """Return a warning if threads have ranges; otherwise only an info, as they may belong to a library."""
    count = f"{with_ranges:,} have ranges" if with_ranges else f"{started:,} were started"
    return Finding(
        "other_threads",
        "warning" if with_ranges else "info",
        f"Work of other threads was not recorded: {count}",
        "torch.profiler records the thread that starts it, and its backward pass. The report includes the GPU work of "
        "other threads, but not their operators and ranges.",
        "Record all threads: nightsight profile --record threads.",
    )


def _skipped(name: str, count: int) -> Finding:
    if not count:
        return Finding(
            "skipped_range", "warning", f"There was no range {name} to skip", "The whole program was recorded."
        )
    return Finding(
        "skipped_range",
        "info",
        f"Nothing was recorded in the range {name}, {counted(count, 'time')}",
        "Its time is in the report, but not its operators, calls and GPU work: the GPU may have been busy there.",
    )
