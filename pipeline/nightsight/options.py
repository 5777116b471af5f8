"""The options of each command, and the checks before any program runs."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from nightsight.collect import Choice
    from nightsight.collect.replay import Replay
    from nightsight.collect.tracing import Tracing
    from nightsight.collect.workloads import Load, Request, Span
    from nightsight.progress import Progress
    from nightsight.stats import Selection
    from nightsight.workflows.prune import Keep

RECORDINGS: Final = ("gpu_metrics", "python_backtrace", "memory_usage", "page_faults")
NAMES: Final = ("modules", "operators", "shapes", "python")
RECORDED: Final = ("shapes", "stack", "memory", "modules", "sync", "threads")
"""Data that torch.profiler can record in addition to its default, in the words of workloads/traced.py."""

# escaped characters and bracket expressions: everything in them is literal
_LITERALS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_NOT_ECMASCRIPT: Final = re.compile(r"\(\?(?![:=!])(?:P?<[=!]?|P?.?)")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The ncu options of `profile`, named as on the command line."""

    ncu: Path | None
    no_ncu: bool
    ncu_coverage: float
    ncu_kernels: int
    ncu_launches: int
    ncu_kernel: str
    ncu_range: str
    ncu_all: bool
    ncu_set: str | None
    ncu_sections: tuple[str, ...]
    ncu_metrics: tuple[str, ...]
    ncu_budget: float
    clock_control: str
    cache_control: str
    replay_mode: str
    graph_profiling: str

    @property
    def replay(self) -> "Replay | None":
        """The requested ncu replay; None without one."""
        from nightsight.collect.replay import Replay

        if self.no_ncu:
            return None
        sections = [name for names_given in self.ncu_sections for name in names_given.split(",")]
        metrics = ",".join(self.ncu_metrics)
        collected: list[str] = []
        if self.ncu_set or not (sections or metrics):
            collected += ["--set", self.ncu_set or "full"]
        for name in sections:
            collected += ["--section", name]
        if metrics:
            collected += ["--metrics", metrics]
        return Replay(
            coverage_pct=self.ncu_coverage,
            most=0 if self.ncu_all else self.ncu_kernels,
            launches=self.ncu_launches,
            pattern=self.ncu_kernel,
            nvtx_range=self.ncu_range,
            everything=self.ncu_all,
            budget_s=self.ncu_budget,
            collected=tuple(collected),
            clock_control=self.clock_control,
            cache_control=self.cache_control,
            replay_mode=self.replay_mode,
            graph_profiling=self.graph_profiling,
        )


@dataclass(frozen=True, kw_only=True)
class TracingOptions:
    """The options of `profile` for torch.profiler, named as on the command line."""

    wait: int
    warmup: int
    active: int | None
    cycles: int
    activities: tuple[str, ...]
    record: tuple[str, ...]
    skip_range: tuple[str, ...]
    step_range: str

    @property
    def tracing(self) -> "Tracing":
        """The requested recording of torch.profiler."""
        from nightsight.collect.tracing import Schedule, Tracing

        schedule = Schedule(self.wait, self.warmup, self.active, self.cycles) if self.active else None
        return Tracing(schedule, self.activities, self.record, self.skip_range, self.step_range)


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ReplayOptions, TracingOptions):
    """The options of `profile`, named as on the command line."""

    collector: "Choice"
    nsys: Path | None
    trace: str
    capture_range: str
    gpu_metrics: bool
    python_backtrace: bool
    memory_usage: bool
    page_faults: bool
    names: tuple[str, ...] | None
    isolate: bool
    calibrate: bool | None
    time_steps: bool | None
    delay: float | None
    duration: float | None
    server: tuple[str, ...]
    ready: str
    client: tuple[str, ...]
    ready_timeout: float
    start_profile: str
    nsys_arg: tuple[str, ...]
    keep_env: tuple[str, ...]
    timeout: float
    attach: tuple[Path, ...]
    python: str | None
    reports: Path
    keep: "Keep"
    style: str | None
    workloads: Path | None
    window: str
    ranks: frozenset[int] | None
    repeat: int
    stats: tuple[str, ...]
    is_local: bool
    quiet: bool
    verbose: bool

    @property
    def tables(self) -> tuple[str, ...]:
        """The reports of `nsys stats` to print after the run; UsageError if one is unknown."""
        from nightsight.stats import OF_A_RUN, refuse_unknown

        texts = tuple(name.strip() for words in self.stats for name in words.split(","))
        tables = tuple(dict.fromkeys(name for word in texts for name in (OF_A_RUN if word == "true" else (word,))))
        refuse_unknown(tables)
        return tables

    @property
    def chosen_collector(self) -> "Choice":
        """The requested collector, or nsys for part of a run: no other collector can record one."""
        return "nsys" if self.part and self.collector == "auto" else self.collector

    @property
    def part(self) -> "Span | Load | None":
        """The part of the run to record; None for the whole run."""
        from nightsight.collect.workloads import Load, Span, resolve

        if self.server:
            return Load(resolve(None, self.client), self.ready, self.ready_timeout, self.start_profile)
        return Span(self.delay or 0.0, self.duration) if self.delay or self.duration else None

    def request(self, progress: "Progress") -> "Request":
        """Return these options in the form that collectors take."""
        from nightsight.collect.workloads import Request

        return Request(
            timeout_s=self.timeout,
            keep_env=self.keep_env,
            progress=progress,
            verbose=self.verbose,
            nsys=self.nsys,
            trace=self.trace,
            capture_range=None if self.capture_range == "auto" else self.capture_range,
            recordings=tuple(name.replace("_", "-") for name in RECORDINGS if getattr(self, name)),
            names=self.names,
            isolate=self.isolate,
            nsys_arguments=self.nsys_arg,
            ncu=self.ncu,
            # a replay would start the server without load
            replay=None if self.server else self.replay,
            calibrate=self.calibrate,
            time_steps=self.time_steps,
            part=self.part,
            tracing=self.tracing,
        )

    def refuse_contradictions(self, given: Collection[str]) -> None:
        """Raise UsageError for options without effect, so that none is silently ignored.

        `given`: the names of the options on the command line.
        """
        on_line = set(given)
        for name, needed in _NEEDED:
            if name in on_line and not getattr(self, needed):
                raise click.UsageError(f"--{name.replace('_', '-')} needs --{needed}.")
        other_collector = f"--collector {self.collector}" if self.collector in ("ncu", "torch") else ""
        part = "--server" if self.server else "--delay" if self.delay else "--duration" if self.duration else ""
        without = "--no-ncu" if self.no_ncu else "--collector torch" if self.collector == "torch" else ""
        ncu_alone = "--collector ncu" if self.collector == "ncu" else ""
        all_kernels = "--ncu-all" if self.ncu_all else ""
        chosen = all_kernels or ("--ncu-kernel" if self.ncu_kernel else "--ncu-range" if self.ncu_range else "")
        as_whole = f"--replay-mode {self.replay_mode}" if "range" in self.replay_mode else ""
        meaningless = (
            (_OF_NCU, without),
            ({"no_ncu"}, ncu_alone),
            ({"trace", "nsys_arg", "time_steps", "attach", "names", "stats"}, ncu_alone),
            ({"calibrate", "delay", "duration", "isolate", "server"}, other_collector),
            ({"delay", "duration", "time_steps", "workloads", *_OF_NCU}, "--server" if self.server else ""),
            ({"capture_range"} if self.capture_range in ("cudaProfilerApi", "nvtx") else set(), part),
            (_OF_TORCH, f"--collector {self.collector}" if self.collector in ("nsys", "ncu") else part),
            ({"ncu_coverage"}, chosen or ncu_alone),
            ({"ncu_kernel", "ncu_range", "ncu_kernels"}, all_kernels),
            ({"ncu_all", "ncu_kernel", "ncu_kernels", "ncu_coverage", "graph_profiling"}, as_whole),
        )
        for names, other in meaningless:
            if other and names & on_line:
                message = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names & on_line))
                raise click.UsageError(f"{message} has no effect with {other}.")
        excluded = (
            (
                "names" in on_line and self.collector == "torch",
                "--names is for nsys. With torch.profiler, use --record modules,shapes,stack.",
            ),
            (
                {"memory", "threads"} <= set(self.record),
                "--record memory and threads exclude each other: torch records memory of one thread only.",
            ),
            (
                bool(self.step_range) and self.step_range in self.skip_range,
                "--skip-range and --step-range name the same range. Nothing would be recorded.",
            ),
            (
                self.ranks is not None and bool(self.active and self.cycles),
                "--active ends the program on the recorded ranks, and the others would wait for them. Use --cycles 0 "
                "to let it run to its end.",
            ),
        )
        for is_given, message in excluded:
            if is_given:
                raise click.UsageError(message)


_NEEDED: Final = (
    *((name, "server") for name in ("ready", "client", "ready_timeout", "start_profile")),
    *(("server", name) for name in ("ready", "client")),
    *((name, "active") for name in ("wait", "warmup", "cycles")),
)
_OF_NCU: Final = frozenset(ReplayOptions.__dataclass_fields__) - {"no_ncu"}
_OF_TORCH: Final = frozenset(TracingOptions.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """The options of `ab` and `bisect` for each measurement, named as on the command line."""

    build: str
    collector: "Choice"
    nsys: Path | None
    trace: str
    names: tuple[str, ...] | None
    time_steps: bool
    keep_env: tuple[str, ...]
    timeout: float
    python: str | None
    workloads: Path | None
    window: str
    reports: Path
    verbose: bool

    def request(self, progress: "Progress") -> "Request":
        """Return these options in the form that collectors take, with absolute paths: each commit has its folder."""
        from nightsight.collect.workloads import Request

        return Request(
            timeout_s=self.timeout,
            keep_env=self.keep_env,
            progress=progress,
            verbose=self.verbose,
            nsys=self.nsys and self.nsys.absolute(),
            trace=self.trace,
            names=self.names,
            time_steps=self.time_steps,
        )


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `report`, named as on the command line."""

    output: str | None
    style: str | None
    window: str
    attach: tuple[Path, ...]
    graphs: Path | None
    prove: Path | None
    assets: Path | None
    max_bytes: int
    is_per_file: bool
    is_local: bool
    max_input: int
    nsys: Path | None
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`, named as on the command line."""

    baseline: tuple[Path, ...]
    candidate: tuple[Path, ...]
    output: Path | None
    style: str | None
    gate: bool
    strict: bool
    workload: str
    window: str
    max_input: int
    nsys: Path | None


@dataclass(frozen=True, kw_only=True)
class StatsOptions:
    """The options of `stats`, named as on the command line."""

    reports: tuple[str, ...]
    style: str
    timeunit: str
    filter_time: str
    filter_nvtx: str
    output: str
    max_input: int
    nsys: Path | None

    @property
    def selection(self) -> "Selection":
        """The requested tables, and which events they cover."""
        from nightsight.stats import OF_A_FILE, Selection

        reports = [report for names_given in self.reports for report in names_given.split(",")] or OF_A_FILE
        return Selection(
            reports,
            style=self.style,
            timeunit=self.timeunit,
            filter_time=self.filter_time,
            filter_nvtx=self.filter_nvtx,
        )


def matching(names: Iterable[str], incomplete: str, *, is_list: bool = False) -> list[CompletionItem]:
    """Return the names that a shell completes what was typed to. is_list: several names between commas."""
    head, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    return [CompletionItem(f"{head}{comma}{name}") for name in dict.fromkeys(names) if name.startswith(last)]


def completed(*words: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes words between commas in a shell."""
    return lambda _, __, incomplete: matching(words, incomplete, is_list=True)


class Number(click.FloatRange):
    """A number in a range. Rejects NaN, which passes Click's range checks."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Convert as Click does; fail for NaN."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value} is not a number.", param, ctx) if isnan(number) else number


def ncu_regex(_: click.Context, __: click.Parameter, value: str) -> str:
    """Reject regular expressions that ncu does not accept: it uses C++'s ECMAScript grammar."""
    try:
        # checked as ncu gets it: inside a group, where inline flags are errors
        re.compile(f".(?:{value})")
    except re.error as error:
        raise click.BadParameter(f"{value!r} is not a regular expression that ncu accepts: {error.msg}.") from error
    match = _NOT_ECMASCRIPT.search(_LITERALS.sub("", value))
    if match:
        reason = f"{match[0]} is not in its grammar. Groups are (...), (?:...), (?=...) and (?!...)"
        raise click.BadParameter(f"{value!r} is not a regular expression that ncu accepts: {reason}.")
    return value


def command_line(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Split a command as a shell does, without expansion."""
    try:
        parts = tuple(shlex.split(value))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a command: {error}.") from error
    if not parts and _is_given(ctx, parameter):
        raise click.BadParameter("the command is empty.")
    return parts


def ready_sign(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Reject a ready sign that cannot be waited for."""
    if not _is_given(ctx, parameter):
        return value
    from nightsight.collect.ready import problem_of

    if problem := problem_of(value):
        raise click.BadParameter(f"{value!r} cannot show that a server is ready: {problem}.")
    return value


def profile_endpoint(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Reject a URL with which the profiler of a server cannot be started."""
    if not _is_given(ctx, parameter):
        return value
    from nightsight.collect.ready import endpoint_problem

    if problem := endpoint_problem(value):
        raise click.BadParameter(f"{value!r} does not start a profiler: {problem}.")
    return value


def _is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    return ctx.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT


def names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...] | None:
    """Return the words of NAMES to annotate; empty for `off`, None for `auto`."""
    if value in ("auto", "off"):
        return None if value == "auto" else ()
    parts = tuple(name.strip() for name in value.split(","))
    if unknown := [name for name in parts if name not in NAMES]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of auto, off, {', '.join(NAMES)}.")
    return parts


def no_empty_name(_: click.Context, __: click.Parameter, value: Any) -> Any:  # noqa: ANN401 (one text, or several)
    """Reject an empty name, alone or between commas."""
    for text in (value,) if isinstance(value, str) else value or ():
        if not all(name.strip() for name in text.split(",")):
            raise click.BadParameter(f"{text!r} contains an empty name.")
    return value


def rank_numbers(_: click.Context, __: click.Parameter, value: str | None) -> frozenset[int] | None:
    """Return the numbers between commas."""
    if value is None:
        return None
    numbers = [name.strip() for name in value.split(",")]
    if not all(name.isascii() and name.isdigit() for name in numbers):
        raise click.BadParameter(f"{value!r} is not a list of ranks, such as 0,7.")
    return frozenset(map(int, numbers))


class Words(click.ParamType[tuple[str, ...]]):
    """A comma-separated choice of words, as a tuple in their order. `others`: hints for some wrong words."""

    name = "words"

    def __init__(
        self, words: tuple[str, ...], *, everything: tuple[str, ...] = (), others: Mapping[str, str] | None = None
    ) -> None:
        self.words, self.everything, self.others = words, everything, others or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:  # noqa: ANN401
        """Return the words; `all` means `everything`."""
        if isinstance(value, tuple):
            return value
        words = {word.strip() for word in value.split(",")}
        if self.everything and "all" in words:
            words = words - {"all"} | set(self.everything)
        for word in sorted(words - set(self.words)):
            offered = ", ".join((*self.words, *(["all"] if self.everything else [])))
            self.fail(f"{word!r} is not one of {offered}. {self.others.get(word, '')}".rstrip(), param, ctx)
        return tuple(word for word in self.words if word in words)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the words, also between commas."""
        offered = (*self.words, *(["all"] if self.everything else []))
        return completed(*offered)(ctx, param, incomplete)


def standard_output(_: click.Context, __: click.Parameter, value: Any) -> Any:  # noqa: ANN401 (a path, or its text)
    """Treat /dev/stdout as `-`: the file that it links to must not be replaced."""
    return type(value)("-") if str(value) == "/dev/stdout" else value
