"""Makes the report of a profile: results, findings, and the windows that a reader can choose."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from nightsight.advise import NEEDS, advise, advise_on_whole, unchecked_rules
from nightsight.analyze import activities, analyze, analyze_others, doubts, ranks_by_gpu, shared_numbers, view_of
from nightsight.events.timeline import Timeline
from nightsight.events.window import START_UP, offered_windows
from nightsight.model.report import (
    SEVERITIES,
    Capture,
    Environment,
    Finding,
    Profile,
    Report,
    Result,
    Results,
    View,
    Windows,
)
from nightsight.render import Format, Source
from nightsight.render.summary import benchmark_doubts, numbers
from nightsight.results import RESULTS
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.results.ranges import NVTX_RANGES
from nightsight.system.fork import compute_in_fork
from nightsight.system.parallel import MANY_ROWS, background
from nightsight.version import VERSION


def analyze_profile(
    profile: Profile,
    title: str,
    form: Format,
    *,
    capture: Capture | None = None,
    findings: tuple[Finding, ...] = (),
) -> Source:
    """Analyze a profile as `build_report` does, and meanwhile prepare the events for an output format."""
    timeline, in_fork = Timeline.of(profile), tuple[Callable[[], Any], ...]()
    ahead = [partial(form.prepare, profile), partial(activities, profile)] if form.prepare else []
    if form.has_windows and profile.rows < MANY_ROWS:
        # before this process is copied: both need it
        offered_windows(profile)
        in_fork = compute_in_fork(partial(_other_results, timeline), lambda: tuple(_other_views(timeline)), *ahead)
    prepared = in_fork[2:] or [background(compute, rows=profile.rows) for compute in ahead]
    report = build_report(profile, title, capture=capture, findings=findings, is_whole=form.has_windows and not in_fork)
    if in_fork:
        report = replace(report, windows=Windows(next(iter(report.windows)), in_fork[1]))
        if isinstance(report.results, Results):
            report = replace(report, results=_with_others(report.results, in_fork[0]))
    source = make_source(report, profile)
    return replace(source, prepared=prepared[0], activities=prepared[1]) if prepared else source


_OTHER_RESULTS: Final = tuple(entry for entry in RESULTS[RESULTS.index(NVTX_RANGES) :] if entry not in NEEDS)


def _other_results(timeline: Timeline) -> dict[str, Result]:
    return {result.name: result for result in analyze(timeline, _OTHER_RESULTS)}


def _with_others(results: Results, others: Callable[[], dict[str, Result]]) -> Results:
    """Return all results, some of which a copy of this process computes."""
    names = [entry.name for entry in _OTHER_RESULTS]

    def finished() -> dict[str, Result]:
        # outputs ask in their own order; the copy is done at about the time at which this half is
        joined.make(name for name in joined.names if name not in names)
        return others()

    joined = results.replaced({name: partial(_result, finished, name) for name in names})
    return joined


def _result(others: Callable[[], dict[str, Result]], name: str) -> Result:
    return others()[name]


def build_report(
    profile: Profile,
    title: str,
    *,
    capture: Capture | None = None,
    findings: tuple[Finding, ...] = (),
    is_whole: bool = False,
) -> Report:
    """Analyze a profile. A `capture` from `nightsight profile` adds parameters, step and stage times, and findings.

    is_whole: all results are needed, so those of a large capture are computed before anything is waited for.
    """
    capture = capture or Capture(title, "", ())
    timeline = Timeline.of(profile)
    results = analyze(timeline)
    doubtful = background(partial(doubts, timeline), rows=profile.rows)
    needed = [entry.name for entry in NEEDS]
    results.make(dict.fromkeys([*needed, *results.names]) if is_whole and profile.rows >= MANY_ROWS else needed)
    all_findings = (*capture.findings, *findings, *doubtful(), *profile.findings, *advise(results))
    report = Report(
        title=title,
        environment=_merge(profile.environment, capture.environment),
        results=results,
        findings=by_severity(all_findings),
        parameters=dict(capture.parameters),
        benchmark=capture.benchmark,
        stages_s={stage: round(seconds, 3) for stage, seconds in capture.stages_s.items()},
        generator=f"nightsight {VERSION}",
        unchecked=unchecked_rules(results),
        windows=_windows(timeline),
        conditions=capture.conditions,
        ranks=ranks_by_gpu(timeline),
        shared=tuple(map(tuple, shared_numbers(timeline))),
    )
    if capture.benchmark and (reasons := benchmark_doubts(numbers(report))):
        return replace(report, findings=by_severity((*report.findings, _unreliable_benchmark(reasons))))
    return report


def _windows(timeline: Timeline) -> Windows:
    """Return the windows that a reader can choose."""
    return Windows(view_of(offered_windows(timeline.profile)[0], None), partial(_other_views, timeline))


def _other_views(timeline: Timeline) -> Iterator[View]:
    """Yield the windows that the report does not cover, with their time split and advice."""
    needed = {TIME_SPLIT, *NEEDS}
    by_window = dict(analyze_others(timeline, needed))
    advice = {window: advise(results, is_start_up=window.name == START_UP) for window, results in by_window.items()}
    for start_up in [window for window in by_window if window.name == START_UP]:
        for window in by_window:
            if window is not start_up and window.start_ns < start_up.end_ns:
                advice[window] = advise_on_whole(advice[window], advice[start_up])
    for window in offered_windows(timeline.profile)[1:]:
        yield view_of(window, by_window[window], advice[window])


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the most severe first."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _unreliable_benchmark(reasons: Sequence[str]) -> Finding:
    text = " and ".join(reasons)
    return Finding(
        "doubtful_benchmark",
        "warning",
        "The step times without the profiler are unreliable",
        f"{text[:1].upper()}{text[1:]}. Something other than the program affected them: other work on the machine, "
        "changing clocks, or too short a warm-up.",
        "Run it again on an idle machine, with more steps per trial.",
    )


def without_intermediates(source: Source) -> Source:
    """Drop intermediate values, which take as much memory as the events; further results compute them again."""
    results = source.report.results
    if source.profile is None or not isinstance(results, Results):
        return source
    timeline = Timeline(source.profile)
    report = replace(source.report, results=results.continued(analyze(timeline)), windows=_windows(timeline))
    return replace(source, report=report)


def make_source(report: Report, profile: Profile) -> Source:
    """Return what output formats render: a report, and the profile from which it was made."""
    return Source(report, profile, activities=partial(activities, profile))


def _merge(in_file: Environment, in_run: Environment) -> Environment:
    """Prefer the facts in the capture file, except the collector's version, which the run knows best."""
    facts = {name: value or getattr(in_run, name) for name, value in asdict(in_file).items()}
    return Environment(**{**facts, "collector_version": in_run.collector_version or in_file.collector_version})
