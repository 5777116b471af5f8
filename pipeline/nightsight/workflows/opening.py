"""Opens the sources of reports: captures, report.json files, and run folders."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from nightsight.captures import NCU_REPORT, NSYS_EXPORT, stem
from nightsight.errors import UsageError
from nightsight.events.sharing import with_own_gpus
from nightsight.events.window import AUTO, check_window
from nightsight.model.report import Capture, Finding, Profile, Report
from nightsight.progress import Progress
from nightsight.read import NSYS_KINDS, read, recognize
from nightsight.render import Format, Source
from nightsight.runs.layout import captures_of, refuse_no_run
from nightsight.runs.unprofiled import with_unprofiled
from nightsight.system.crash import naming_file
from nightsight.system.fork import compute_in_fork
from nightsight.system.parallel import background
from nightsight.system.scratch import scratch
from nightsight.tables import Details
from nightsight.texts import without_host
from nightsight.workflows.attach import with_attached

_SMALL_BYTES: Final = 60_000_000
# these are read about as soon as the modules of a report are loaded
_SOON_READ_BYTES: Final = 10_000_000
# the usual size of a row of an export
_ROW_BYTES: Final = 50


@dataclass(frozen=True)
class Reading:
    """How to read captures: the nsys that exports a .nsys-rep, and the size limit of an uncompressed trace in bytes.

    window: the part of a capture to report on, as on the command line. attach: result files of serving benchmarks.
    is_per_file: each capture gets its own report, even if the captures are ranks of one job. graphs: the capture that
    recorded the making of CUDA graphs.
    """

    nsys: Path | None
    most_bytes: int
    progress: Progress
    window: str = AUTO
    attach: tuple[Path, ...] = ()
    is_per_file: bool = False
    graphs: Path | None = None


def title_of(path: Path) -> str:
    """Return the title of a report: the file name without its usual extensions and host names.

    For a run folder, it is the workload and the id of the run.
    """
    if path.is_dir():
        run = path.resolve()
        return f"{run.parent.name}-{run.name}"
    return stem(without_host(path.name)) or path.name


def open_file(path: Path, form: Format, reading: Reading) -> Source:
    """Open a capture, a report.json, or a run folder, and prepare what the output format `form` needs."""
    check_window(reading.window)
    if path.is_dir():
        return _open_run(path, form, reading)
    if recognize(path) == "report":
        if reading.window != AUTO or reading.attach or reading.graphs:
            added = "figures" if reading.attach else "a capture"
            problem = f"{added} cannot be added to it" if reading.window == AUTO else "its window cannot be changed"
            raise UsageError(f"a report.json is complete: {problem}", "Pass the capture from which it was made.")
        from nightsight.render.table.layouts import refuse_incomplete  # noqa: PLC0415 (most reports are made from captures)

        with naming_file(path, "reading"):
            report = Report.from_json(path.read_bytes())
            refuse_incomplete(report)
        return Source(report)
    with profile_of(path, reading, details=form.of_events or is_small(path), form=form) as profile:
        from nightsight.workflows.analysis import analyze_profile  # noqa: PLC0415 (loaded while the capture is read)

        reading.progress(f"looking for causes in {path.name}")
        chosen = _prepared(profile, path, reading)
        return analyze_profile(chosen, title_of(path), form)


def _open_run(folder: Path, form: Format, reading: Reading) -> Source:
    """Open the capture of a run with ncu's report next to it and the facts in report.json, or report.json alone."""
    refuse_no_run(folder)
    files, report_file = captures_of(folder), folder / "report.json"
    if not files:
        return open_file(report_file, form, reading)
    details = form.of_events or is_small(files[0])
    replays = [] if files[0].suffix == NCU_REPORT else sorted((folder / "capture").glob(f"*{NCU_REPORT}"))
    with profile_of(files[0], reading, details=details, form=form) as timeline:
        from nightsight.workflows.analysis import analyze_profile, by_severity  # noqa: PLC0415 (as above)

        profile, findings = timeline, tuple[Finding, ...]()
        if replays:
            from nightsight.workflows.replay import with_replayed  # noqa: PLC0415 (it imports all collectors)

            profile, findings = with_replayed(timeline, replays[0])
        reading.progress(f"looking for causes in {files[0].name}")
        chosen = _prepared(profile, files[0], reading)
        if not report_file.is_file():
            return analyze_profile(chosen, title_of(files[0]), form, findings=findings)
        run = Report.from_json(report_file.read_bytes())
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
        source = analyze_profile(chosen, run.title, form, capture=capture, findings=findings)
        # keep what only the collector knew; advice may be about another window
        repeated = {"unknown_window", *(finding.rule for finding in source.report.findings)}
        kept = [finding for finding in run.findings if finding.severity != "advice" and finding.rule not in repeated]
        findings = by_severity((*kept, *source.report.findings))
        return replace(source, report=replace(source.report, findings=findings))


def _prepared(profile: Profile, path: Path, reading: Reading) -> Profile:
    """Return a profile with its window, attached files, and the making of its CUDA graphs."""
    chosen = with_attached(replace(with_own_gpus(profile), window=reading.window), reading.attach)
    if reading.graphs is None:
        return chosen
    if not {recognize(path), recognize(reading.graphs)} <= NSYS_KINDS:
        raise UsageError(
            "--graphs joins two captures of Nsight Systems",
            "Pass .nsys-rep files or their SQLite exports. Traces of torch.profiler name the kernels of a graph by "
            "torch.cuda.graph_annotations.mark_kernels.",
        )
    from nightsight.workflows.graphs import with_graphs  # noqa: PLC0415 (few reports need it)

    with profile_of(reading.graphs, reading, details=False) as graphs:
        return with_graphs(chosen, graphs, run_name=path.name, graphs_name=reading.graphs.name)


def is_small(path: Path) -> bool:
    """Whether to read grids and blocks of a capture, which cost time and memory, and which a page can do without."""
    return path.stat().st_size < _SMALL_BYTES


@contextmanager
def profile_of(
    path: Path, reading: Reading, *, details: Details = True, form: Format | None = None
) -> Iterator[Profile]:
    """Read a capture; a .nsys-rep is first exported to a temporary folder. `details`: see `read`.

    form: the format of a report of it, whose modules are loaded meanwhile.
    """
    if recognize(path) != "nsys-rep":
        if not is_small(path):
            reading.progress(f"reading {path.name}")
        with naming_file(path, "reading"):
            compute: Callable[[], Profile] = partial(read, path, details=details, most_bytes=reading.most_bytes)
            if form:
                size = path.stat().st_size
                if size < _SOON_READ_BYTES:
                    compute = next(iter(compute_in_fork(compute)), compute)
                else:
                    compute = background(compute, rows=size // _ROW_BYTES)
                _load(form)
            profile = with_unprofiled(compute(), path)
        with naming_file(path):
            yield profile
        return
    from nightsight.collect.nsys import export_sqlite, required_nsys  # noqa: PLC0415 (most captures are exported)

    tool = required_nsys(reading.nsys)
    with naming_file(path), scratch() as folder:
        reading.progress(f"exporting {path.name}")
        database = folder / f"export{NSYS_EXPORT}"
        export_sqlite(path, database, nsys=tool, log=folder / "export.log")
        yield with_unprofiled(read(database, details=details), path)


def _load(form: Format) -> None:
    """Import what makes a report and renders it."""
    import nightsight.workflows.analysis  # noqa: F401, PLC0415 (not before a copy of this process reads)

    form.load()
