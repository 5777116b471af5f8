"""Makes a report of a profile: results, findings, and the windows that a reader can choose."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial

from nightsight.advise import NEEDS, advise, of_whole, unchecked
from nightsight.analyze import activities, analyze, analyze_others, doubts, ranks_by_gpu, shared_numbers, view_of
from nightsight.events.timeline import Timeline
from nightsight.events.window import START_UP, offered_windows
from nightsight.model.report import SEVERITIES, Capture, Environment, Finding, Profile, Report, Results, View
from nightsight.render import Source
from nightsight.render.page.summary import benchmark_doubts, numbers
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.version import VERSION


def build_report(
    profile: Profile, title: str, *, capture: Capture | None = None, findings: tuple[Finding, ...] = ()
) -> Report:
    """Analyze a profile. A `capture` that we collected adds parameters, step times, stage times and findings."""
    capture = capture or Capture(title, "", ())
    timeline = Timeline(profile)
    results = analyze(timeline)
    results.make(entry.name for entry in NEEDS)
    windows = _views(timeline)
    trusted = (*capture.findings, *findings, *doubts(timeline), *profile.findings, *advise(results))
    report = Report(
        title=title,
        environment=_merge(profile.environment, capture.environment),
        results=results,
        findings=by_severity(trusted),
        parameters=dict(capture.parameters),
        benchmark=capture.benchmark,
        stages_s={stage: round(seconds, 3) for stage, seconds in capture.stages_s.items()},
        generator=f"nightsight {VERSION}",
        unchecked=unchecked(results),
        windows=windows,
        conditions=capture.conditions,
        ranks=ranks_by_gpu(timeline),
        shared=tuple(map(tuple, shared_numbers(timeline))),
    )
    if capture.benchmark and (reasons := benchmark_doubts(numbers(report))):
        return replace(report, findings=by_severity((*report.findings, _doubtful(reasons))))
    return report


def _views(timeline: Timeline) -> tuple[View, ...]:
    """Return the windows that a reader can choose, with the split and the advice of those the report is not about."""
    needed = {TIME_SPLIT, *NEEDS}
    found = dict(analyze_others(timeline, needed))
    advice = {window: advise(results, is_start_up=window.name == START_UP) for window, results in found.items()}
    for start_up in [window for window in found if window.name == START_UP]:
        for window in found:
            if window is not start_up and window.start_ns < start_up.end_ns:
                advice[window] = of_whole(advice[window], advice[start_up])
    chosen, *offered = offered_windows(timeline.profile)
    return (view_of(chosen, None), *(view_of(window, found[window], advice[window]) for window in offered))


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the gravest first."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _doubtful(doubts: Sequence[str]) -> Finding:
    said = " and ".join(doubts)
    return Finding(
        "doubtful_benchmark",
        "warning",
        "The step times without the profiler are unreliable",
        f"{said[:1].upper()}{said[1:]}. Something other than the program affected them: other work on the machine, "
        "changing clocks, or too short a warm-up.",
        "Run it again on an idle machine, with more steps per trial.",
    )


def released(source: Source) -> Source:
    """Let go of what was computed on the way to the results so far, which takes as much memory as the events."""
    results = source.report.results
    if source.profile is None or not isinstance(results, Results):
        return source
    fresh = results.continued(analyze(Timeline(source.profile)))
    return replace(source, report=replace(source.report, results=fresh))


def source_of(report: Report, profile: Profile) -> Source:
    """Return what output formats render: a report, and the profile that it was made of."""
    return Source(report, profile, activities=partial(activities, profile))


def _merge(read_off: Environment, said: Environment) -> Environment:
    """Prefer the facts in the capture file, except the collector's version, which its runner knows best."""
    filled = {name: value or getattr(said, name) for name, value in asdict(read_off).items()}
    version = said.collector_version or read_off.collector_version
    return replace(Environment(**filled), collector_version=version)
