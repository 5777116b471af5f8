"""The commands `profile`, `report` and `stats`, stage by stage."""

import datetime as dt
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Final, get_type_hints

import pandas as pd

from nightsight.advise import NEEDS, advise, of_whole, unchecked
from nightsight.analyze import analyze, analyze_others, doubts, ranks_by_gpu, shared_numbers, spent, view_of
from nightsight.attaching import awaited, measured_by, with_attached
from nightsight.captures import NCU_REPORT, NSYS_REPORT, beside, export_bytes, stem
from nightsight.collect import COLLECTORS, Choice, choose_collector
from nightsight.collect.calibrate import calibrated
from nightsight.collect.conditions import findings_of, logged
from nightsight.collect.launched import launched
from nightsight.collect.nsys import export_sqlite, required_nsys
from nightsight.collect.timing import of_benchmark, time_ranges
from nightsight.collect.workloads import OnlyTimed, Program, Request, arguments_of
from nightsight.crash import about, note
from nightsight.errors import CaptureError, Interrupted, UsageError, WorkloadError
from nightsight.events.sharing import with_own_gpus
from nightsight.events.timeline import Timeline
from nightsight.events.window import AUTO, START_UP, check_window, chosen_window, offered_windows
from nightsight.job import Apart, Part, apart, are_of_one_job, joined, joined_of_some, name_of_job
from nightsight.model import SEVERITIES, Capture, Environment, Finding, Profile, Report, Results, View
from nightsight.parallel import use_one_thread
from nightsight.progress import Progress, silent
from nightsight.pruning import Keep, discard
from nightsight.read import read, recognize
from nightsight.render import (
    FORMATS,
    Format,
    IndexEntry,
    Source,
    format_of,
    index_entry,
    refuse_incomplete,
    render_index,
    with_assets,
)
from nightsight.render.page.summary import benchmark_doubts, numbers
from nightsight.replaying import not_collected, usable_ncu, with_replay, with_replayed
from nightsight.results import TIME_SPLIT
from nightsight.runs import Turn, captures_of, new_run, publish, refuse_no_run, runs, write_file
from nightsight.scratch import scratch
from nightsight.stats import Selection, stats_texts
from nightsight.tables import TABLES, Details
from nightsight.texts import without_host
from nightsight.unprofiled import as_text, with_unprofiled
from nightsight.version import VERSION


@dataclass(frozen=True, eq=False)
class Made:
    """A report, and the path of its file.

    file: what it was made from; None if that is several files. is_one_of_several: other reports are made with it.
    """

    path: Path
    report: Report
    file: Path | None = None
    is_one_of_several: bool = False


@dataclass(frozen=True)
class Plan:
    """What to profile, with which collector, and where the report goes. `parameters` extend the measured ones.

    window: the part of the run that the report is about, as on the command line. attach: result files that the program
    is to write. turn: its place in a series. remarks: findings to add, about a report without them. show: gets the
    report when it is written, even if the program failed.
    """

    program: Program
    collector: Choice
    reports: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    window: str = AUTO
    attach: tuple[Path, ...] = ()
    turn: Turn = field(default_factory=Turn)
    remarks: Callable[[Report], tuple[Finding, ...]] = lambda _: ()
    show: Callable[[Made, Turn], None] = lambda _, __: None


def profile_program(plan: Plan, request: Request) -> Made:
    """Run a program under a profiler, and write its report.

    Sets the folders of `request`. WorkloadError if the program failed or was interrupted (the report of what was
    captured is written first); Interrupted after the program ended: the message names the capture.
    """
    program = plan.program
    check_window(plan.window)
    collector, fallback, request = _chosen(plan, request)
    ncu = usable_ncu(collector, request)
    # absolute: the program may delete its working directory
    reports = plan.reports.resolve()
    run = new_run(reports, program.name, started=dt.datetime.now(dt.UTC))
    request = replace(request, captures=run.captures, logs=run.logs, ncu=ncu)
    results = awaited(plan.attach)
    with _errors_name_the_capture(request):
        capture = _collected(collector, plan, request)
        # before any other run of the program writes its results again
        capture, serving = measured_by(capture, results)
        capture = _measured_beside(program, request, capture, serving)
        file = capture.files[-1] if capture.files else None
        profile, unknown = _read(file, request, plan.window)
        if collector == "nsys" and not capture.failure:
            capture, profile = with_replay(program, request, capture, profile)
        findings = (*not_collected(request, profile), *unknown, *((fallback,) if fallback else ()))
        request.progress("looking for causes")
        report = _remarked(plan, capture, build_report(profile, capture.workload, capture=capture, findings=findings))
        publish(run, _run_files(_source(report, profile), plan.turn, failed=bool(capture.failure)))
        list_runs(reports)
    path = plan.reports / run.folder.relative_to(reports) / "report.html"
    made = Made(path, report, file)
    plan.show(made, plan.turn)
    if capture.failure:
        covers = "covers what was captured until then" if file else "has only step times"
        raise WorkloadError(f"{capture.failure}; the report {covers}: {path}", f"Its output: {run.logs}")
    return made


def _read(file: Path | None, request: Request, window: str) -> tuple[Profile, tuple[Finding, ...]]:
    """Read a capture, with the window that was asked for, or else with a finding that there is none."""
    if file is None:
        return Profile({}, dict.fromkeys(TABLES, "nothing was profiled")), ()
    request.progress(f"reading {file.name}")
    details = request.replay is not None or _is_small(file)
    return _with_window(with_own_gpus(with_unprofiled(read(file, details=details), file)), window)


def warm_up(plan: Plan, request: Request) -> None:
    """Run a program under a profiler for nothing but what it compiles and loads for the first time.

    What it leaves is in `plan.reports`. WorkloadError if it failed.
    """
    collector, _, request = _chosen(plan, request)
    run = new_run(plan.reports.resolve(), plan.program.name, started=dt.datetime.now(dt.UTC))
    capture = COLLECTORS[collector](plan.program, replace(request, captures=run.captures, logs=run.logs))
    if capture.failure:
        raise WorkloadError(capture.failure, f"Its output: {run.logs}")


def _chosen(plan: Plan, request: Request) -> tuple[str, Finding | None, Request]:
    """Return the collector, a finding if it is not the best one, and the request with what it records."""
    program = plan.program
    only_nsys = (*request.recordings, *["names"] * bool(request.names))
    collector, fallback = choose_collector(
        plan.collector, program, nsys=request.nsys, recordings=only_nsys, tracing=request.tracing
    )
    if collector == "nsys":
        # what the program's story needs, and what was asked for, each once
        request = replace(request, recordings=tuple(dict.fromkeys((*program.recordings, *request.recordings))))
    return collector, fallback, request


def _remarked(plan: Plan, capture: Capture, report: Report) -> Report:
    """Add what the series of a run says about it; nothing is said of a run that failed."""
    remarks = () if capture.failure else plan.remarks(report)
    return replace(report, findings=_ranked((*report.findings, *remarks))) if remarks else report


def _collected(collector: str, plan: Plan, request: Request) -> Capture:
    """Run a program under a collector, and log how the GPUs run meanwhile."""
    with logged() as log:
        try:
            capture = COLLECTORS[collector](plan.program, request)
        except OnlyTimed as stopped:
            capture = stopped.capture(plan.program, collector)
    return replace(
        capture,
        parameters={**capture.parameters, **plan.parameters, **arguments_of(plan.program, request)},
        conditions=log.conditions,
        findings=(*capture.findings, *findings_of(log.conditions)),
    )


def _measured_beside(program: Program, request: Request, capture: Capture, serving: pd.DataFrame) -> Capture:
    """Measure what the profiler costs, and how long the program takes without it; keep all beside the capture.

    `serving`: figures that the program measured itself. Nothing else is measured of a program that failed.
    """
    told = [one] if (one := launched()) else []
    tables = {"serving_figures": serving, "launched_as": pd.DataFrame(told, columns=list(TABLES["launched_as"]))}
    is_whole = capture.collector != "ncu" and not capture.failure
    if is_whole and capture.collector == "nsys":
        calibration = calibrated(program, request)
        tables["profiler_costs"] = calibration.costs
        capture = _with_stage(capture, "calibration", calibration.seconds)
        if calibration.reason:
            request.progress(f"a typical cost of the profiler is assumed: {calibration.reason}")
    if is_whole and capture.benchmark:
        tables["timed_ranges"] = of_benchmark(capture.benchmark)
    elif is_whole and request.time_steps:
        left_s = request.timeout_s - sum(capture.stages_s.values())
        timed = time_ranges(program, replace(request, timeout_s=left_s))
        tables["timed_ranges"] = timed.ranges
        capture = _with_stage(capture, "times", timed.seconds)
        capture = replace(capture, findings=(*capture.findings, *timed.findings))
    if capture.files and any(len(table) for table in tables.values()):
        write_file(beside(capture.files[-1]), as_text(tables).encode())
    return capture


def _with_stage(capture: Capture, stage: str, seconds: float) -> Capture:
    return replace(capture, stages_s={**capture.stages_s, stage: seconds}) if seconds else capture


def _with_window(profile: Profile, asked: str) -> tuple[Profile, tuple[Finding, ...]]:
    """Choose a window of the run; if it has none of that name, return a finding, and the report gets the usual one."""
    chosen = replace(profile, window=asked)
    try:
        chosen_window(chosen)
    except UsageError as error:
        detail = f"{error.message[:1].upper()}{error.message[1:]}. The report is about the usual window."
        finding = Finding("unknown_window", "warning", "The window was not found", detail, error.hint)
        return profile, (finding,)
    return chosen, ()


def keep_of_run(path: Path, keep: Keep) -> str:
    """Delete what is not to be kept of the run whose report.html is `path`; return what to print of it.

    If nothing is kept, that is its report as Markdown.
    """
    if keep == "captures":
        # the working folder may be gone
        return f"report: {path}"
    run = path.resolve().parent
    reports = run.parents[1]
    if keep == "reports":
        discard(run, keep)
        return f"report: {path}"
    report = Report.from_json((run / "report.json").read_bytes())
    discard(run, keep)
    list_runs(reports)
    if not runs(reports):
        (reports / "index.html").unlink()
        with suppress(OSError):
            # it holds something else
            reports.rmdir()
    return FORMATS["markdown"].render(Source(report))[""].decode().rstrip("\n")


def list_runs(reports: Path) -> None:
    """Write the list of all runs, reports/index.html."""
    write_file(reports / "index.html", _index(reports).encode())


@contextmanager
def _errors_name_the_capture(request: Request) -> Iterator[None]:
    """Note on errors which capture is kept; turn an interrupt into an Interrupted with the command for its report."""
    try:
        yield
    except Exception as error:
        if capture := _kept(request):
            note(error, capture)
        raise
    except KeyboardInterrupt:
        capture = _kept(request)
        if capture is None:
            raise Interrupted("interrupted before anything was captured") from None
        tool = ("--nsys", str(request.nsys)) if request.nsys and capture.suffix == NSYS_REPORT else ()
        command = shlex.join(("nightsight", "report", *tool, str(capture)))
        raise Interrupted(
            f"interrupted before the report was written; the capture is kept: {capture}",
            f"Make its report: {command}",
        ) from None


def _kept(request: Request) -> Path | None:
    """Return the capture of a run, an export before the file that it was made from; None if there is none yet."""
    return next(iter(captures_of(request.captures.parent)), None)


@dataclass(frozen=True)
class Output:
    """What to write where: `path` is a file (`-`: standard output) or a folder; for several reports it is a folder.

    is_folder: it is one even if it does not exist. Default: the current folder. Without a `style`, the extension of
    `path` decides. A page has at most `most_bytes`.
    assets: a folder for the style and the script of a page; None: they are in the page.
    """

    path: Path | None
    style: str
    most_bytes: int
    assets: Path | None = None
    is_folder: bool = False


@dataclass(frozen=True)
class Reading:
    """How to read captures: the nsys that exports a .nsys-rep, and the size limit of an uncompressed trace in bytes.

    window: the part of a capture that its report is about, as on the command line. attach: result files of serving
    benchmarks. is_apart: captures get a report each, even those of the ranks of one job.
    """

    nsys: Path | None
    most_bytes: int
    progress: Progress
    window: str = AUTO
    attach: tuple[Path, ...] = ()
    is_apart: bool = False


def render_files(paths: Sequence[Path], output: Output, reading: Reading) -> Iterator[Made]:
    """Render the report of each capture or run, or one of all if they are of one job; yield each one written.

    UsageError for an impossible `output`.
    """
    style = output.style or format_of(str(output.path or ""))
    form = FORMATS[style]
    # `latest` is a link to a run that may be there too
    paths = list({path.resolve() if path.is_dir() else path: path for path in paths}.values())
    captures = {path: captures_of(path) if path.is_dir() else [] for path in paths}
    # each trace of a run with several is a report; the folder of another run tells more than its capture
    paths = [each for path, files in captures.items() for each in (files if len(files) > 1 else [path])]
    if len(paths) > 1 and reading.attach:
        raise UsageError("--attach is about one capture", "Make their reports one by one.")
    if form.is_folder and str(output.path) == "-":
        raise UsageError(
            f"{style} consists of several files and cannot go to standard output", "Name a folder with -o."
        )
    _refuse_assets(style, output)
    files = [next(iter(captures[path]), path / "report.json") if path.is_dir() else path for path in paths]
    inputs = [*files, *(path / "report.json" for path in paths if path.is_dir())]
    job = None if len(paths) == 1 or reading.is_apart else open_job(files, form, reading)
    titles = [job.report.title] if job else [title_of(path) for path in paths]
    targets = _targets(titles, output, form)
    for done, target in enumerate(targets):
        if len(targets) > 1:
            reading.progress(f"file {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
        source = job or open_file(paths[done], form, reading)
        reading.progress(f"writing {target.name}")
        # results are computed when they are asked for
        with nullcontext() if job else about(paths[done]):
            contents = form.render(replace(source, most_bytes=output.most_bytes))
        if output.assets:
            contents[""] = _with_assets(contents[""], output.assets, target, inputs)
        if str(target) == "-":
            sys.stdout.buffer.write(contents[""])
            continue
        for name, content in contents.items():
            write_file(target / name if name else target, content, inputs=inputs)
        yield Made(target, source.report, None if job else paths[done], is_one_of_several=len(targets) > 1)


def _refuse_assets(style: str, output: Output) -> None:
    if output.assets and (style != "html" or str(output.path) == "-"):
        raise UsageError("--assets is for a page in a file", "Name the page with -o, and leave out --format.")


def _with_assets(page: bytes, folder: Path, target: Path, inputs: Sequence[Path]) -> bytes:
    """Write the style and the script of a page into a folder; return the page that uses them there."""
    text, files = with_assets(page.decode(), Path(os.path.relpath(folder, target.parent)).as_posix())
    for name, content in files.items():
        write_file(folder / name, content, inputs=inputs)
    return text.encode()


def _targets(titles: Sequence[str], output: Output, form: Format) -> list[Path]:
    """Return where each report goes."""
    path = output.path
    if len(titles) == 1 and path and (form.is_folder or not (output.is_folder or path.is_dir())):
        return [path]
    if str(path) == "-":
        raise UsageError("cannot write several reports to standard output", "Name a folder with -o.")
    targets = [(path or Path()) / f"{title}.report{form.suffix}" for title in titles]
    if len(set(targets)) < len(targets):
        raise UsageError(
            "some of these files have the same name, so their reports would overwrite each other",
            "Render them one by one.",
        )
    return targets


def title_of(path: Path) -> str:
    """Return the title of a report: the file name without the usual extensions, and without the name of a host.

    Of a run, it is the workload and its id.
    """
    if path.is_dir():
        run = path.resolve()
        return f"{run.parent.name}-{run.name}"
    return stem(without_host(path.name)) or path.name


def print_stats(
    profile: Profile, selection: Selection, *, path: Path, output: str, skip: Callable[[str, str], None] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield NVIDIA's tables of the capture in `path`, or the line `table: FILE` for each one written to a file.

    Each comes with its report. `output`: `-` for the tables themselves, `.` for files next to the capture, otherwise a
    file name prefix (UsageError if it cannot be one). For `skip` see `stats_texts`.
    """
    prefix = path.with_suffix("") if output == "." else Path(output)
    if output.startswith("@") or not prefix.name or prefix.is_char_device() or prefix.is_fifo():
        raise UsageError(f"invalid output prefix {output!r}", "Use -o PREFIX, -o . or -o - > FILE.")
    for report, ending, text in stats_texts(profile, selection, skip=skip):
        if output == "-":
            yield report, text
            continue
        target = prefix.with_name(prefix.name + ending)
        write_file(target, text.encode(), inputs=[path])
        yield report, f"table: {target}\n"


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
        findings=_ranked(trusted),
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
        return replace(report, findings=_ranked((*report.findings, _doubtful(reasons))))
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


def _ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
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


def open_file(path: Path, form: Format, reading: Reading) -> Source:
    """Read a capture, a report.json, or the folder of a run, with what the output format `form` needs."""
    check_window(reading.window)
    if path.is_dir():
        return _open_run(path, form, reading)
    if recognize(path) == "report":
        if reading.window != AUTO:
            raise UsageError(
                "a report.json has the window that it was made with", "Pass the capture that it was made from."
            )
        if reading.attach:
            raise UsageError(
                "a report.json has the figures that it was made with", "Pass the capture that it was made from."
            )
        with about(path, "reading"):
            report = Report.from_json(path.read_bytes())
            refuse_incomplete(report)
        return Source(report)
    with profile_of(path, reading, details=form.of_events or _is_small(path)) as profile:
        reading.progress(f"looking for causes in {path.name}")
        chosen = with_attached(replace(with_own_gpus(profile), window=reading.window), reading.attach)
        return _source(build_report(chosen, title_of(path)), chosen)


def _open_run(folder: Path, form: Format, reading: Reading) -> Source:
    """Read the capture of a run, ncu's report beside it, and what else its report.json tells of the run.

    Without a capture it is the report.json alone.
    """
    refuse_no_run(folder)
    files, told = captures_of(folder), folder / "report.json"
    if not files:
        return open_file(told, form, reading)
    details = form.of_events or _is_small(files[0])
    replays = [] if files[0].suffix == NCU_REPORT else sorted((folder / "capture").glob(f"*{NCU_REPORT}"))
    with profile_of(files[0], reading, details=details) as timeline:
        profile, findings = with_replayed(timeline, replays[0]) if replays else (timeline, ())
        reading.progress(f"looking for causes in {files[0].name}")
        chosen = with_attached(replace(with_own_gpus(profile), window=reading.window), reading.attach)
        if not told.is_file():
            return _source(build_report(chosen, title_of(files[0]), findings=findings), chosen)
        run = Report.from_json(told.read_bytes())
        capture = Capture(
            run.title,
            run.environment.collector,
            (files[0],),
            environment=run.environment,
            parameters=run.parameters,
            benchmark=run.benchmark,
            stages_s=run.stages_s,
            conditions=run.conditions,
        )
        report = build_report(chosen, run.title, capture=capture, findings=findings)
        # what only the collector knew; of another window nothing else holds
        known = {"unknown_window", *(finding.rule for finding in report.findings)}
        kept = [finding for finding in run.findings if finding.severity != "advice" and finding.rule not in known]
        return _source(replace(report, findings=_ranked((*kept, *report.findings))), chosen)


def open_job(paths: Sequence[Path], form: Format, reading: Reading) -> Source | None:
    """Read captures as the ranks of one job, and make one report of them; None if they are not of one.

    A capture that cannot be read, or does not communicate, is left out if others are of a job. Of a large job, captures
    are read in processes of their own, and only a few of them are kept.
    """
    check_window(reading.window)
    # a folder of runs also has a link to its latest one
    paths = list({path.resolve(): path for path in paths}.values())
    is_large = sum(map(export_bytes, paths)) > _MOST_HELD_BYTES
    details = form.of_events or all(map(_is_small, paths))
    every, kept, findings, unreadable = list[Part | Apart](), list[Path](), list[Finding](), 0
    with _apart(paths, reading) if is_large else nullcontext(_parts(paths, reading, details=details)) as found:
        for done, path in enumerate(paths):
            reading.progress(f"rank {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
            try:
                one = next(found)()
            except CaptureError as error:
                title, said = f"{without_host(path.name)} was left out", f"{without_host(error.message)}."
                findings.append(Finding("unread_rank", "warning", title, said, error.hint))
                unreadable += 1
                continue
            if one is None:
                return None
            if one.facts.is_of_job:
                every.append(one)
                kept.append(path)
                continue
            said = "Its program does not communicate, and nothing tells which rank it is of."
            findings.append(Finding("unread_rank", "warning", f"{without_host(path.name)} was left out", said))
            if not every and len(findings) > 1:
                return None
    facts = [one.facts for one in every]
    if not facts or not are_of_one_job(facts) or len(facts) + unreadable < 2:
        return None
    profile = _joined(every, kept, reading, details=details)
    # half of the memory
    every.clear()
    reading.progress("looking for causes in all ranks")
    chosen = replace(profile, window=reading.window)
    title = name_of_job([one.name for one in facts])
    return _source(build_report(chosen, title, findings=tuple(findings)), chosen)


def _parts(paths: Iterable[Path], reading: Reading, *, details: bool) -> Iterator[Callable[[], Part | None]]:
    """Yield for each capture what reads it; that returns None if it cannot be of a rank."""
    yield from (partial(_part, path, reading, details=details) for path in paths)


def _part(path: Path, reading: Reading, *, details: bool) -> Part | None:
    """Read a capture as a part of a job; None if it cannot be of a rank."""
    if recognize(path) not in _OF_RANKS:
        return None
    with profile_of(path, reading, details=details) as profile:
        return Part(title_of(path), with_own_gpus(profile))


@contextmanager
def _apart(paths: Sequence[Path], reading: Reading) -> Iterator[Iterator[Callable[[], Apart | None]]]:
    """Read captures in processes of their own; yield what returns the facts of each, or raises its error."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor  # noqa: PLC0415 (few reports need it)
    from multiprocessing import get_context  # noqa: PLC0415 (the same)

    at_once = 2 * _MOST_HELD_BYTES // max(*map(export_bytes, paths), 1)
    count = max(min(os.cpu_count() or 1, len(paths), _MOST_READERS, at_once), 1)
    # forks of a process with threads can hang
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin_to_read)
    try:
        asked = [pool.submit(_read_apart, path, replace(reading, progress=silent)) for path in paths]
        yield (future.result for future in asked)
    except BrokenProcessPool:
        raise CaptureError(
            "a process that read captures has died, maybe for want of memory",
            "Pass the captures of fewer ranks, or use a machine with more memory.",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_to_read() -> None:
    """Prepare a process that reads captures: whoever started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_one_thread()


def _read_apart(path: Path, reading: Reading) -> Apart | None:
    part = _part(path, reading, details=False)
    return None if part is None else apart(part)


def _joined(every: Sequence[Part | Apart], paths: Sequence[Path], reading: Reading, *, details: bool) -> Profile:
    """Return one profile of all ranks; of a large job, with the events of those that stand for the others."""
    parts = [one for one in every if isinstance(one, Part)]
    if len(parts) == len(every):
        return joined(parts)
    others = [one for one in every if isinstance(one, Apart)]
    most = int(_MOST_HELD_BYTES / max(sum(map(export_bytes, paths)) / len(paths), 1))

    def held(number: int) -> Profile:
        reading.progress(f"reading {paths[number].name}")
        with profile_of(paths[number], reading, details=details) as profile:
            return with_own_gpus(profile)

    return joined_of_some(others, held, max(most, _FEWEST_HELD))


def released(source: Source) -> Source:
    """Let go of what was computed on the way to the results so far, which takes as much memory as the events."""
    results = source.report.results
    if source.profile is None or not isinstance(results, Results):
        return source
    fresh = results.continued(analyze(Timeline(source.profile)))
    return replace(source, report=replace(source.report, results=fresh))


def _source(report: Report, profile: Profile) -> Source:
    return Source(report, profile, spent=partial(spent, profile))


def _is_small(path: Path) -> bool:
    """Whether a capture is read with grids and blocks, which a page can do without, and which cost time and memory."""
    return path.stat().st_size < _SMALL_BYTES


@contextmanager
def profile_of(path: Path, reading: Reading, *, details: Details = True) -> Iterator[Profile]:
    """Read a capture; a .nsys-rep is exported to a temporary folder first. For `details` see `read`."""
    if recognize(path) != "nsys-rep":
        if not _is_small(path):
            reading.progress(f"reading {path.name}")
        with about(path, "reading"):
            profile = with_unprofiled(read(path, details=details, most_bytes=reading.most_bytes), path)
        with about(path):
            yield profile
        return
    tool = required_nsys(reading.nsys)
    with about(path), scratch() as folder:
        reading.progress(f"exporting {path.name}")
        database = folder / "export.sqlite"
        export_sqlite(path, database, nsys=tool, log=folder / "export.log")
        yield with_unprofiled(read(database, details=details), path)


def _merge(read_off: Environment, said: Environment) -> Environment:
    """Prefer the facts in the capture file, except the collector's version, which its runner knows best."""
    filled = {name: value or getattr(said, name) for name, value in asdict(read_off).items()}
    version = said.collector_version or read_off.collector_version
    return replace(Environment(**filled), collector_version=version)


def _run_files(source: Source, turn: Turn, *, failed: bool) -> dict[str, bytes]:
    report = source.report
    entry = asdict(index_entry(report, run_id="", href="", failed=failed))
    of_run = {name: value for name, value in entry.items() if name not in _OF_FOLDER}
    facts = {"environment": asdict(report.environment), "parameters": dict(report.parameters)}
    document = {**of_run, **asdict(turn), **facts, "stages_s": report.stages_s}
    return {
        "report.json": report.to_json().encode(),
        "report.html": FORMATS["html"].render(source)[""],
        "run.json": (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def _index(root: Path) -> str:
    """List the runs by their run.json; ids and links come from the folders, since runs may have been moved."""
    wanted = IndexEntry.__dataclass_fields__.keys() - set(_OF_FOLDER)
    entries = [
        IndexEntry(
            run_id=folder.name,
            href=f"{folder.relative_to(root).as_posix()}/report.html",
            **{name: document[name] for name in wanted & document.keys()},
        )
        for folder, document in runs(root)
        if _describes_a_run(document)
    ]
    return render_index(entries, trends=TRENDS if (root / TRENDS).is_file() else "")


def _describes_a_run(document: Mapping[str, object]) -> bool:
    """Whether run.json has all fields of the list, with the right types: it may be from another version, or edited."""
    types = get_type_hints(IndexEntry)
    defaults = {field.name: field.default for field in fields(IndexEntry) if field.default is not MISSING}
    given = {**defaults, **document}
    return all(name in _OF_FOLDER or isinstance(given.get(name, ...), kind) for name, kind in types.items())


TRENDS: Final = "history.html"
"""The trend page, beside the index."""
_OF_FOLDER: Final = ("run_id", "href")
_SMALL_BYTES: Final = 60_000_000
# of jobs whose captures are larger together, as .sqlite exports, only so much is held: it takes 8 times the memory
_MOST_HELD_BYTES: Final = 200_000_000
_FEWEST_HELD: Final = 2
_MOST_READERS: Final = 4
_OF_RANKS: Final = ("nsys-rep", "nsys-sqlite", "kineto")
