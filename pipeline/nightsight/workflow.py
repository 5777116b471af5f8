"""The commands `profile`, `report` and `stats`, stage by stage."""

import datetime as dt
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Final, get_type_hints

import pandas as pd

from nightsight import __version__
from nightsight.advise import NEEDS, advise, unchecked
from nightsight.analyze import analyze_others, analyze_timeline, view_of
from nightsight.attaching import awaited, measured_by, with_attached
from nightsight.collect import COLLECTORS, Choice, choose_collector
from nightsight.collect.calibrate import calibrated
from nightsight.collect.nsys import export_sqlite, required_nsys
from nightsight.collect.timing import of_benchmark, time_ranges
from nightsight.collect.workloads import Program, Request
from nightsight.errors import UsageError, WorkloadError
from nightsight.events.timeline import Timeline
from nightsight.events.window import AUTO, check_window, chosen_window, offered_windows
from nightsight.model import SEVERITIES, Capture, Environment, Finding, Profile, Report, View
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
)
from nightsight.render.page.summary import benchmark_doubts, numbers
from nightsight.replaying import not_collected, usable_ncu, with_replay
from nightsight.results import TIME_SPLIT
from nightsight.runs import new_run, publish, runs, write_file
from nightsight.stats import Selection, stats_texts
from nightsight.tables import Details
from nightsight.unprofiled import as_text, beside, with_unprofiled

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to profile, with which collector, and where the report goes. `parameters` extend the measured ones.

    window: the part of the run that the report is about, as on the command line. attach: result files that the program
    is to write.
    """

    program: Program
    collector: Choice
    reports: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    window: str = AUTO
    attach: tuple[Path, ...] = ()


def profile_program(plan: Plan, request: Request) -> Path:
    """Run a program under a profiler, write its report and return the path of report.html.

    Sets the folders of `request`. WorkloadError if the program failed (the report of what was captured is written
    first), or on an interrupt after the program ended; the message then names the capture.
    """
    program = plan.program
    check_window(plan.window)
    only_nsys = (*request.recordings, *["names"] * bool(request.names))
    collector, fallback = choose_collector(plan.collector, program, nsys=request.nsys, recordings=only_nsys)
    if collector == "nsys":
        # what the program's story needs, and what was asked for, each once
        request = replace(request, recordings=tuple(dict.fromkeys((*program.recordings, *request.recordings))))
    ncu = usable_ncu(collector, request)
    # absolute: the program may delete its working directory
    reports = plan.reports.resolve()
    run = new_run(reports, program.name, started=dt.datetime.now(dt.UTC))
    request = replace(request, captures=run.captures, logs=run.logs, ncu=ncu)
    results = awaited(plan.attach)
    with _interrupts_name_the_capture(request):
        capture = COLLECTORS[collector](program, request)
        capture = replace(capture, parameters={**capture.parameters, **plan.parameters})
        # before any other run of the program writes its results again
        capture, serving = measured_by(capture, results)
        capture = _measured_beside(program, request, capture, serving)
        file = capture.files[-1]
        read_off = with_unprofiled(read(file, details=request.replay is not None or _is_small(file)), file)
        profile, unknown = _with_window(read_off, plan.window)
        if collector == "nsys" and not capture.failure:
            capture, profile = with_replay(program, request, capture, profile)
        request.progress("writing the report")
        findings = (*not_collected(request, profile), *unknown, *((fallback,) if fallback else ()))
        report = build_report(profile, capture.workload, capture=capture, findings=findings)
        publish(run, _run_files(Source(report, profile), failed=bool(capture.failure)))
        write_file(reports / "index.html", _index(reports).encode())
    path = plan.reports / run.folder.relative_to(reports) / "report.html"
    if capture.failure:
        raise WorkloadError(
            f"{capture.failure}; the report covers what was captured until then: {path}", f"Its output: {run.logs}"
        )
    return path


def _measured_beside(program: Program, request: Request, capture: Capture, serving: pd.DataFrame) -> Capture:
    """Measure what the profiler costs, and how long the program takes without it; keep all beside the capture.

    `serving`: figures that the program measured itself. Nothing else is measured of a program that failed.
    """
    tables = {"serving_figures": serving}
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
    if any(len(table) for table in tables.values()):
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


@contextmanager
def _interrupts_name_the_capture(request: Request) -> Iterator[None]:
    """Turn an interrupt into a WorkloadError that names the capture and the command that makes its report."""
    try:
        yield
    except KeyboardInterrupt:
        # an export before the file that it was made from
        files = (
            path
            for ending in (".sqlite", ".json.gz", ".nsys-rep", ".ncu-rep")
            for path in request.captures.glob(f"*{ending}")
        )
        capture = next((path for path in files if path.stat().st_size), None)
        if capture is None:
            raise WorkloadError("interrupted before anything was captured") from None
        tool = ("--nsys", str(request.nsys)) if request.nsys and capture.suffix == ".nsys-rep" else ()
        command = shlex.join(("nightsight", "report", *tool, str(capture)))
        raise WorkloadError(
            f"interrupted before the report was written; the capture is kept: {capture}",
            f"Make its report: {command}",
        ) from None


@dataclass(frozen=True)
class Output:
    """What to write where: `path` is a file (`-`: standard output), or for several captures a folder.

    Default: the current folder. Without a `style`, the extension of `path` decides. A page has at most `most_bytes`.
    """

    path: Path | None
    style: str
    most_bytes: int


@dataclass(frozen=True)
class Reading:
    """How to read captures: the nsys that exports a .nsys-rep, and the size limit of an uncompressed trace in bytes.

    window: the part of a capture that its report is about, as on the command line. attach: result files of serving
    benchmarks.
    """

    nsys: Path | None
    most_bytes: int
    progress: Progress
    window: str = AUTO
    attach: tuple[Path, ...] = ()


def render_files(paths: Sequence[Path], output: Output, reading: Reading) -> Iterator[str]:
    """Render the report of each capture; yield the path of each one written. UsageError for an impossible `output`."""
    style = output.style or format_of(str(output.path or ""))
    form = FORMATS[style]
    if len(paths) > 1 and reading.attach:
        raise UsageError("--attach is about one capture", "Make their reports one by one.")
    if form.is_folder and str(output.path) == "-":
        raise UsageError(
            f"{style} consists of several files and cannot go to standard output", "Name a folder with -o."
        )
    for path, target in zip(paths, _targets(paths, output.path, form.suffix), strict=True):
        contents = form.render(replace(open_file(path, form, reading), most_bytes=output.most_bytes))
        if str(target) == "-":
            sys.stdout.buffer.write(contents[""])
            continue
        for name, content in contents.items():
            write_file(target / name if name else target, content, inputs=paths)
        yield str(target)


def _targets(paths: Sequence[Path], output: Path | None, suffix: str) -> list[Path]:
    if len(paths) == 1 and output:
        return [output]
    if str(output) == "-":
        raise UsageError("cannot write several reports to standard output", "Name a folder with -o.")
    targets = [(output or Path()) / f"{_title(path)}.report{suffix}" for path in paths]
    if len(set(targets)) < len(targets):
        raise UsageError(
            "some of these files have the same name, so their reports would overwrite each other",
            "Render them one by one.",
        )
    return targets


def _title(path: Path) -> str:
    """Return the title of a report: the file name without the usual extensions."""
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or path.name


_ENDINGS: Final = (".gz", ".nsys-rep", ".ncu-rep", ".sqlite", ".json", ".report")


def print_stats(profile: Profile, selection: Selection, *, path: Path, output: str) -> Iterator[str]:
    """Yield NVIDIA's tables of the capture in `path`, or the line `table: FILE` for each one written to a file.

    `output`: `-` for the tables themselves, `.` for files next to the capture, otherwise a file name prefix (UsageError
    if it cannot be one).
    """
    prefix = path.with_suffix("") if output == "." else Path(output)
    if output.startswith("@") or not prefix.name or prefix.is_char_device() or prefix.is_fifo():
        raise UsageError(f"invalid output prefix {output!r}", "Use -o PREFIX, -o . or -o - > FILE.")
    for ending, text in stats_texts(profile, selection):
        if output == "-":
            yield text
            continue
        target = prefix.with_name(prefix.name + ending)
        write_file(target, text.encode(), inputs=[path])
        yield f"table: {target}\n"


def build_report(
    profile: Profile, title: str, *, capture: Capture | None = None, findings: tuple[Finding, ...] = ()
) -> Report:
    """Analyze a profile. A `capture` that we collected adds parameters, step times, stage times and findings."""
    capture = capture or Capture(title, "", ())
    timeline = Timeline(profile)
    results, trust = analyze_timeline(timeline)
    windows = _views(timeline)
    trusted = (*capture.findings, *findings, *trust, *profile.findings, *advise(results))
    report = Report(
        title=title,
        environment=_merge(profile.environment, capture.environment),
        results=results,
        findings=_ranked(trusted),
        parameters=dict(capture.parameters),
        benchmark=capture.benchmark,
        stages_s={stage: round(seconds, 3) for stage, seconds in capture.stages_s.items()},
        generator=f"nightsight {__version__}",
        unchecked=unchecked(results),
        windows=windows,
    )
    if doubts := benchmark_doubts(numbers(report)):
        return replace(report, findings=_ranked((*report.findings, _doubtful(doubts))))
    return report


def _views(timeline: Timeline) -> tuple[View, ...]:
    """Return the windows that a reader can choose, with the split and the advice of those the report is not about."""
    needed = {TIME_SPLIT, *NEEDS}
    others = {window: view_of(window, results, advise(results)) for window, results in analyze_others(timeline, needed)}
    chosen, *offered = offered_windows(timeline.profile)
    return (view_of(chosen, None), *(others[window] for window in offered))


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
    """Read a capture, or a report.json, with what the output format `form` needs."""
    check_window(reading.window)
    if recognize(path) == "report":
        if reading.window != AUTO:
            raise UsageError(
                "a report.json has the window that it was made with", "Pass the capture that it was made from."
            )
        if reading.attach:
            raise UsageError(
                "a report.json has the figures that it was made with", "Pass the capture that it was made from."
            )
        report = Report.from_json(path.read_bytes())
        refuse_incomplete(report)
        return Source(report)
    with profile_of(path, reading, details=form.of_events or _is_small(path)) as profile:
        chosen = with_attached(replace(profile, window=reading.window), reading.attach)
        return Source(build_report(chosen, _title(path)), chosen)


def _is_small(path: Path) -> bool:
    """Whether a capture is read with grids and blocks, which a page can do without, and which cost time and memory."""
    return path.stat().st_size < _SMALL_BYTES


@contextmanager
def profile_of(path: Path, reading: Reading, *, details: Details = True) -> Iterator[Profile]:
    """Read a capture; a .nsys-rep is exported to a temporary folder first. For `details` see `read`."""
    if recognize(path) != "nsys-rep":
        yield with_unprofiled(read(path, details=details, most_bytes=reading.most_bytes), path)
        return
    tool = required_nsys(reading.nsys)
    with tempfile.TemporaryDirectory(prefix="nightsight-") as folder:
        reading.progress(f"exporting {path.name}")
        database = Path(folder) / "export.sqlite"
        export_sqlite(path, database, nsys=tool, log=Path(folder) / "export.log")
        yield with_unprofiled(read(database, details=details), path)


def _merge(read_off: Environment, said: Environment) -> Environment:
    """Prefer the facts in the capture file, except the collector's version, which its runner knows best."""
    filled = {name: value or getattr(said, name) for name, value in asdict(read_off).items()}
    version = said.collector_version or read_off.collector_version
    return replace(Environment(**filled), collector_version=version)


def _run_files(source: Source, *, failed: bool) -> dict[str, bytes]:
    report = source.report
    entry = asdict(index_entry(report, run_id="", href="", failed=failed))
    of_run = {name: value for name, value in entry.items() if name not in _OF_FOLDER}
    document = {**of_run, "environment": asdict(report.environment), "stages_s": report.stages_s}
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
    return render_index(entries)


def _describes_a_run(document: Mapping[str, object]) -> bool:
    """Whether run.json has all fields of the list, with the right types: it may be from another version, or edited."""
    types = get_type_hints(IndexEntry)
    defaults = {field.name: field.default for field in fields(IndexEntry) if field.default is not MISSING}
    given = {**defaults, **document}
    return all(name in _OF_FOLDER or isinstance(given.get(name, ...), kind) for name, kind in types.items())


_OF_FOLDER: Final = ("run_id", "href")
_SMALL_BYTES: Final = 60_000_000
