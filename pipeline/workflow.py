"""The stages in their order; the only module that knows more than one of them."""

import datetime as dt
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.analyze import analyze, trust
from pipeline.collect import COLLECTORS, Choice, choose_collector
from pipeline.collect.nsys import export_sqlite, required_nsys
from pipeline.collect.workloads import Request, resolve
from pipeline.errors import UsageError, WorkloadError
from pipeline.model import Capture, Environment, Finding, Profile, Report
from pipeline.read import read, recognize
from pipeline.render import FORMATS, IndexEntry, render_index
from pipeline.stats import stats_table, write_stats
from pipeline.store import Run, new_run, publish, runs, write_file

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ProfileOptions:
    """How `profile_program` is to work; the fields of `request` that name folders are set by it."""

    reports: Path = Path("reports")
    collector: Choice = "auto"
    python: str = sys.executable
    request: Mapping[str, Any] = field(default_factory=dict)


def profile_program(
    target: str | None, arguments: Sequence[str], options: ProfileOptions, *, progress: Progress
) -> Path:
    """Run a program under a profiler and leave its report; return the path of report.html.

    WorkloadError, after the report of what was captured is written, if the program failed.
    """
    program = resolve(target, arguments, python=options.python)
    collector, fallback = choose_collector(options.collector, program, nsys=options.request.get("nsys"))
    run = new_run(options.reports, program.name, started=dt.datetime.now(dt.UTC))
    request = Request(captures=run.captures, logs=run.logs, progress=progress, **options.request)
    capture = COLLECTORS[collector](program, request)
    progress("writing the report")
    findings = (fallback,) if fallback else ()
    report = build_report(read(capture.files[-1]), capture.workload, capture=capture, findings=findings)
    publish(run, _run_files(report, run, failed=bool(capture.failure)))
    write_file(options.reports / "index.html", _index(options.reports).encode())
    path = run.folder / "report.html"
    if capture.failure:
        raise WorkloadError(
            f"{capture.failure}; the report covers what was captured until then: {path}", f"its output: {run.logs}"
        )
    return path


def render_file(path: Path, target: Path | None, *, style: str, nsys: Path | None, progress: Progress) -> str:
    """Render the report of a captured file to `target`; return where it was written. `-` is standard output."""
    report = _load_report(path, nsys=nsys, progress=progress)
    form = FORMATS[style]
    contents = form.render(report)
    target = target or Path(f"{path.name.split('.')[0]}.report{form.suffix}")
    if str(target) == "-":
        if "" not in contents:
            raise UsageError(f"{style} is several files: they cannot go to standard output", "name a folder with -o")
        sys.stdout.buffer.write(contents[""])
        return "-"
    for name, content in contents.items():
        write_file(target / name if name else target, content)
    return str(target)


def print_stats(path: Path, reports: Sequence[str], *, style: str, nsys: Path | None, progress: Progress) -> str:
    """Return NVIDIA's tables of a captured file, one after the other."""
    with _profile_of(path, nsys=nsys, progress=progress) as profile:
        return "\n".join(write_stats(stats_table(profile, report), style) for report in reports)


def build_report(
    profile: Profile, title: str, *, capture: Capture | None = None, findings: tuple[Finding, ...] = ()
) -> Report:
    """Analyse a profile; what a capture adds (parameters, step times, stages) is there when we collected it."""
    capture = capture or Capture(title, "", ())
    trusted = (*capture.findings, *findings, *trust(profile), *profile.findings)
    severities = ("error", "warning", "info")
    return Report(
        title=title,
        environment=_merge(profile.environment, capture.environment),
        results=analyze(profile),
        findings=tuple(sorted(trusted, key=lambda finding: severities.index(finding.severity))),
        parameters=dict(capture.parameters),
        benchmark=capture.benchmark,
        stages_s={stage: round(seconds, 3) for stage, seconds in capture.stages_s.items()},
        generator=f"nightsight {__version__}",
    )


def _load_report(path: Path, *, nsys: Path | None, progress: Progress) -> Report:
    if recognize(path) == "report":
        return Report.from_json(path.read_text(encoding="utf-8"))
    with _profile_of(path, nsys=nsys, progress=progress) as profile:
        return build_report(profile, path.name.split(".")[0])


@contextmanager
def _profile_of(path: Path, *, nsys: Path | None, progress: Progress) -> Iterator[Profile]:
    """Read a captured file; a .nsys-rep is exported to a temporary folder first."""
    if recognize(path) != "nsys-rep":
        yield read(path)
        return
    tool = required_nsys(nsys)
    with tempfile.TemporaryDirectory(prefix="nightsight-") as folder:
        progress(f"exporting {path.name}")
        database = Path(folder) / "export.sqlite"
        export_sqlite(path, database, nsys=tool, log=Path(folder) / "export.log")
        yield read(database)


def _merge(read_off: Environment, said: Environment) -> Environment:
    """Prefer what the capture's own file says; but which program collected it, its runner knows best."""
    filled = {name: value or getattr(said, name) for name, value in asdict(read_off).items()}
    version = said.collector_version or read_off.collector_version
    return replace(Environment(**filled), collector_version=version)


def _run_files(report: Report, run: Run, *, failed: bool) -> dict[str, bytes]:
    entry = asdict(_entry(report, run, failed=failed))
    document = {**entry, "environment": asdict(report.environment), "stages_s": report.stages_s}
    return {
        "report.json": report.to_json().encode(),
        "report.html": FORMATS["html"].render(report)[""],
        "run.json": (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def _entry(report: Report, run: Run, *, failed: bool) -> IndexEntry:
    devices = report.result("gpu_time").rows
    has_gpu = len(devices) > 0
    steps = sorted(report.benchmark.step_ns) if report.benchmark else []
    return IndexEntry(
        workload=report.title,
        run_id=run.folder.name,
        href=f"{run.folder.parent.name}/{run.folder.name}/report.html",
        captured_utc=report.environment.captured_utc,
        gpu=report.environment.gpu,
        collector=report.environment.collector,
        window_ns=float(devices["window_ns"].max()) if has_gpu else None,
        busy_pct=float(devices["busy_pct"].mean()) if has_gpu else None,
        kernel_ns=float(devices["kernel_ns"].sum()) if has_gpu else None,
        step_ns=steps[len(steps) // 2] if steps else None,
        failed=failed,
    )


def _index(root: Path) -> str:
    names = IndexEntry.__dataclass_fields__
    entries = [document for _, document in runs(root) if names.keys() <= document.keys()]
    return render_index([IndexEntry(**{name: entry[name] for name in names}) for entry in entries])
