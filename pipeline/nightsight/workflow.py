"""The stages in their order: what `profile`, `report` and `stats` do, one after the other."""

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

from nightsight import __version__
from nightsight.advise import advise, unchecked
from nightsight.analyze import analyze
from nightsight.collect import COLLECTORS, Choice, choose_collector
from nightsight.collect.nsys import export_sqlite, required_nsys
from nightsight.collect.workloads import Program, Request
from nightsight.errors import UsageError, WorkloadError
from nightsight.model import SEVERITIES, Capture, Environment, Finding, Profile, Report
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
from nightsight.runs import new_run, publish, runs, write_file
from nightsight.stats import Selection, stats_texts

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is profiled, by what, and where its report goes. `parameters` are added to those that are measured."""

    program: Program
    collector: Choice
    reports: Path
    parameters: Mapping[str, str] = field(default_factory=dict)


def profile_program(plan: Plan, request: Request) -> Path:
    """Run a program under a profiler and leave its report; return the path of report.html.

    The folders of `request` are set here. WorkloadError if the program failed, after the report of what was captured
    is written, and for an interrupt that comes when the program has ended: it names the capture.
    """
    program = plan.program
    collector, fallback = choose_collector(plan.collector, program, nsys=request.nsys, recordings=request.recordings)
    ncu = usable_ncu(collector, request)
    # not by way of the folder that the program works in, which it may delete
    reports = plan.reports.resolve()
    run = new_run(reports, program.name, started=dt.datetime.now(dt.UTC))
    request = replace(request, captures=run.captures, logs=run.logs, ncu=ncu)
    with _interrupts_name_the_capture(request):
        capture = COLLECTORS[collector](program, request)
        capture = replace(capture, parameters={**capture.parameters, **plan.parameters})
        profile = read(capture.files[-1], details=request.replay is not None)
        if collector == "nsys" and not capture.failure:
            capture, profile = with_replay(program, request, capture, profile)
        request.progress("writing the report")
        findings = (*not_collected(request, profile), *((fallback,) if fallback else ()))
        report = build_report(profile, capture.workload, capture=capture, findings=findings)
        publish(run, _run_files(Source(report, profile), failed=bool(capture.failure)))
        write_file(reports / "index.html", _index(reports).encode())
    path = plan.reports / run.folder.relative_to(reports) / "report.html"
    if capture.failure:
        raise WorkloadError(
            f"{capture.failure}; the report covers what was captured until then: {path}", f"its output: {run.logs}"
        )
    return path


@contextmanager
def _interrupts_name_the_capture(request: Request) -> Iterator[None]:
    """Turn an interrupt into an error that says where the capture is, and what makes its report."""
    try:
        yield
    except KeyboardInterrupt:
        # an export before what it was made of
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
            f"interrupted before the report was written; what was captured is kept: {capture}",
            f"Make its report: {command}",
        ) from None


@dataclass(frozen=True)
class Output:
    """What is written where: `path` is a file (`-`: standard output), or with several captures the folder of the files.

    By default they go into the current one. Without a `style` the ending of the path says it. A page has `most_bytes`.
    """

    path: Path | None
    style: str
    most_bytes: int


@dataclass(frozen=True)
class Reading:
    """How captured files are read: the nsys that exports a .nsys-rep, and the most bytes of a trace, unpacked."""

    nsys: Path | None
    most_bytes: int
    progress: Progress


def render_files(paths: Sequence[Path], output: Output, reading: Reading) -> Iterator[str]:
    """Render the report of each captured file, yielding where it was written."""
    style = output.style or format_of(str(output.path or ""))
    form = FORMATS[style]
    if form.is_folder and str(output.path) == "-":
        raise UsageError(f"{style} is several files, which cannot go to standard output", "name a folder with -o")
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
        raise UsageError("several reports cannot go to standard output together", "name a folder with -o")
    targets = [(output or Path()) / f"{_title(path)}.report{suffix}" for path in paths]
    if len(set(targets)) < len(targets):
        raise UsageError(
            "several of these files have the same name, and so would their reports", "render them one by one"
        )
    return targets


def _title(path: Path) -> str:
    """Name a report after its file, whose usual endings say nothing."""
    name = path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or path.name


_ENDINGS: Final = (".gz", ".nsys-rep", ".ncu-rep", ".sqlite", ".json", ".report")


def print_stats(profile: Profile, selection: Selection, *, path: Path, output: str) -> Iterator[str]:
    """Yield NVIDIA's tables of the capture in `path`; for those that go to files, the line `table: FILE`.

    `output` is `-` for the tables themselves, `.` for files beside the captured one, or what their names begin with.
    """
    prefix = path.with_suffix("") if output == "." else Path(output)
    if output.startswith("@") or not prefix.name or prefix.is_char_device() or prefix.is_fifo():
        raise UsageError(f"{output!r} is not the beginning of a file name", "Write -o PREFIX, -o . or -o - > FILE.")
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
    """Analyse a profile; what a capture adds (parameters, step times, stages) is there when we collected it."""
    capture = capture or Capture(title, "", ())
    results, trust = analyze(profile)
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
    )
    if doubts := benchmark_doubts(numbers(report)):
        return replace(report, findings=_ranked((*report.findings, _doubtful(doubts))))
    return report


def _ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _doubtful(doubts: Sequence[str]) -> Finding:
    said = " and ".join(doubts)
    return Finding(
        "doubtful_benchmark",
        "warning",
        "The step times without the profiler are doubtful",
        f"{said[:1].upper()}{said[1:]}. Something else than the program was measured: other work on the machine, "
        "clocks that change, or a warm-up that was too short.",
        "Run it again on an idle machine, with more steps per trial.",
    )


def open_file(path: Path, form: Format, reading: Reading) -> Source:
    """Read a captured file, or a report.json, for a format of its report."""
    if recognize(path) == "report":
        report = Report.from_json(path.read_bytes())
        refuse_incomplete(report)
        return Source(report)
    # a page can do without grids and blocks, which in a large capture cost time and memory
    details = form.of_events or path.stat().st_size < _SMALL_BYTES
    with profile_of(path, reading, details=details) as profile:
        return Source(build_report(profile, _title(path)), profile)


@contextmanager
def profile_of(path: Path, reading: Reading, *, details: bool = True) -> Iterator[Profile]:
    """Read a captured file; a .nsys-rep is exported to a temporary folder first. For `details` see `read`."""
    if recognize(path) != "nsys-rep":
        yield read(path, details=details, most_bytes=reading.most_bytes)
        return
    tool = required_nsys(reading.nsys)
    with tempfile.TemporaryDirectory(prefix="nightsight-") as folder:
        reading.progress(f"exporting {path.name}")
        database = Path(folder) / "export.sqlite"
        export_sqlite(path, database, nsys=tool, log=Path(folder) / "export.log")
        yield read(database, details=details)


def _merge(read_off: Environment, said: Environment) -> Environment:
    """Prefer what the capture's own file says; but which program collected it, its runner knows best."""
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
    """List the runs by their run.json; where a run lies now, its folder says."""
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
    """Whether run.json has what the list shows, in the right types: other versions, and people, write them too."""
    types = get_type_hints(IndexEntry)
    defaults = {field.name: field.default for field in fields(IndexEntry) if field.default is not MISSING}
    given = {**defaults, **document}
    return all(name in _OF_FOLDER or isinstance(given.get(name, ...), kind) for name, kind in types.items())


_OF_FOLDER: Final = ("run_id", "href")
_SMALL_BYTES: Final = 20_000_000
