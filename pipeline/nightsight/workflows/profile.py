"""The command `profile`, stage by stage."""

import datetime as dt
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.analyze.causes.cost import timed_ns
from nightsight.captures import NSYS_REPORT, unprofiled_file
from nightsight.collect import COLLECTORS, Choice, choose_collector
from nightsight.collect.calibrate import calibration_of
from nightsight.collect.compilations import take_compile_log
from nightsight.collect.conditions import findings_of, logging_gpus
from nightsight.collect.launched import launched_rank
from nightsight.collect.names import is_python
from nightsight.collect.timing import RunLimit, not_timed, of_benchmark, time_ranges
from nightsight.collect.workloads import PROGRAM_OUTPUT, OnlyTimed, Program, Request, arguments_of
from nightsight.errors import CaptureError, Interrupted, UsageError, WorkloadError
from nightsight.events.loops import ENDS_WITH
from nightsight.events.ranges import recorded_ranges, without_numbers
from nightsight.events.sharing import with_own_gpus
from nightsight.events.window import AUTO, check_window, chosen_window
from nightsight.model.report import Capture, Finding, Profile, Report
from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.render.page.index import index_entry
from nightsight.runs.layout import PROOF, Turn, captures_of, new_run, publish, runs, write_file
from nightsight.runs.unprofiled import to_text, with_unprofiled
from nightsight.system.crash import note
from nightsight.tables import TABLES
from nightsight.workflows.analysis import build_report, by_severity, make_source
from nightsight.workflows.attach import add_attached, watch_results
from nightsight.workflows.index import OF_FOLDER, list_runs
from nightsight.workflows.opening import is_small
from nightsight.workflows.prune import Keep, discard
from nightsight.workflows.replay import uncollected_metrics, usable_ncu, with_replay
from nightsight.workflows.report import WrittenReport


@dataclass(frozen=True)
class Plan:
    """What to profile, with which collector, and where the report goes. `parameters` extend the measured ones.

    window: the part of the run to report on, as on the command line. attach: result files that the program will write.
    turn: its place in a series. remarks: returns findings to add to a report. show: takes the written report, even if
    the program failed.
    """

    program: Program
    collector: Choice
    reports: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    window: str = AUTO
    attach: tuple[Path, ...] = ()
    turn: Turn = field(default_factory=Turn)
    remarks: Callable[[Report], tuple[Finding, ...]] = lambda _: ()
    show: Callable[[WrittenReport, Turn], None] = lambda _, __: None


def profile_program(plan: Plan, request: Request) -> WrittenReport:
    """Run a program under a profiler, and write its report.

    Sets the folders of `request`. WorkloadError if the program failed or was interrupted, after writing the report of
    what was captured; Interrupted if that happens after the program ended: the message names the capture.
    """
    program = plan.program
    check_window(plan.window)
    collector, fallback, request = _choose_collector(plan, request)
    ncu = usable_ncu(collector, request)
    # absolute: the program may delete its working directory
    reports = plan.reports.resolve()
    run = new_run(reports, program.name, started=dt.datetime.now(dt.UTC))
    request = replace(request, captures=run.captures, logs=run.logs, ncu=ncu)
    results = watch_results(plan.attach)
    with _errors_name_the_capture(request):
        capture = _collect(collector, plan, request)
        # before another run of the program overwrites its results
        capture, attached = add_attached(capture, results, run.logs / PROGRAM_OUTPUT)
        capture, unprofiled = _measure_overhead(program, request, capture, attached)
        file = capture.files[-1] if capture.files else None
        profile, unknown = _read(file, request, plan.window)
        if file and (timing := _timing(plan, request, capture, profile)):
            capture, profile = _with_times(program, *timing, capture, profile)
            _write_unprofiled(file, {**unprofiled, "timed_ranges": profile.table("timed_ranges")})
        if collector == "nsys" and not capture.failure:
            capture, profile = with_replay(program, request, capture, profile)
        findings = (*uncollected_metrics(request, profile), *unknown, *((fallback,) if fallback else ()))
        request.progress("looking for causes")
        report = build_report(profile, capture.workload, capture=capture, findings=findings)
        report = _with_earlier_proofs(report, reports / program.name)
        if not capture.failure and (remarks := plan.remarks(report)):
            report = replace(report, findings=by_severity((*report.findings, *remarks)))
        publish(run, _run_files(make_source(report, profile), plan.turn, failed=bool(capture.failure)))
        list_runs(reports)
    path = plan.reports / run.folder.relative_to(reports) / "report.html"
    written = WrittenReport(path, report, file)
    plan.show(written, plan.turn)
    if capture.failure:
        covers = "covers the events captured until then" if file else "has only step times"
        raise WorkloadError(f"{capture.failure}; the report {covers}: {path}", f"Its output: {run.logs}")
    return written


def _read(file: Path | None, request: Request, window: str) -> tuple[Profile, tuple[Finding, ...]]:
    """Read a capture and choose the requested window; return a finding if it has no such window."""
    if file is None:
        return Profile({}, dict.fromkeys(TABLES, "nothing was profiled")), ()
    request.progress(f"reading {file.name}")
    details = request.replay is not None or is_small(file)
    return _with_window(with_own_gpus(with_unprofiled(read(file, details=details), file)), window)


def warm_up(plan: Plan, request: Request) -> None:
    """Run a program under a profiler without a report, so that later runs find compiled code and loaded files.

    Its files stay in `plan.reports`. WorkloadError if it failed.
    """
    collector, _, request = _choose_collector(plan, request)
    run = new_run(plan.reports.resolve(), plan.program.name, started=dt.datetime.now(dt.UTC))
    request = replace(request, captures=run.captures, logs=run.logs)
    capture = COLLECTORS[collector](plan.program, request)
    take_compile_log(request)
    if capture.failure:
        raise WorkloadError(capture.failure, f"Its output: {run.logs}")


def _choose_collector(plan: Plan, request: Request) -> tuple[str, Finding | None, Request]:
    """Return the collector, a finding if it is only a fallback, and the request with its recordings."""
    program = plan.program
    only_nsys = (*request.recordings, *["names"] * bool(request.names))
    collector, fallback = choose_collector(
        plan.collector, program, nsys=request.nsys, recordings=only_nsys, tracing=request.tracing
    )
    if collector == "nsys":
        # the recordings that the workload needs and the requested ones, without duplicates
        request = replace(request, recordings=tuple(dict.fromkeys((*program.recordings, *request.recordings))))
    return collector, fallback, request


def _collect(collector: str, plan: Plan, request: Request) -> Capture:
    """Run a program under a collector, and log the state of the GPUs meanwhile."""
    with logging_gpus() as log:
        try:
            capture = COLLECTORS[collector](plan.program, request)
        except OnlyTimed as error:
            capture = error.capture(plan.program, collector)
        except BaseException:
            # its log has source text
            take_compile_log(request)
            raise
    return replace(
        capture,
        parameters={**capture.parameters, **plan.parameters, **arguments_of(plan.program, request)},
        conditions=log.conditions,
        findings=(*capture.findings, *findings_of(log.conditions)),
    )


def _measure_overhead(
    program: Program, request: Request, capture: Capture, attached: Mapping[str, pd.DataFrame]
) -> tuple[Capture, dict[str, pd.DataFrame]]:
    """Measure the overhead of the profiler; store it and the step times of a workload next to the capture, as tables.

    `attached`: what the program measured itself, as tables. For a program that failed, only these are stored.
    """
    rank = launched_rank()
    ranks = pd.DataFrame([rank] if rank else [], columns=list(TABLES["launched_as"]))
    tables = {**attached, "launched_as": ranks, **take_compile_log(request)}
    is_whole = capture.collector != "ncu" and not capture.failure
    if is_whole and capture.collector == "nsys":
        calibration = calibration_of(program, request)
        tables["profiler_costs"] = calibration.costs
        capture = _with_stage(capture, "calibration", calibration.seconds)
        if calibration.reason:
            request.progress(f"a typical overhead of the profiler is assumed: {calibration.reason}")
    if is_whole and capture.benchmark:
        tables["timed_ranges"] = of_benchmark(capture.benchmark)
    if capture.files:
        _write_unprofiled(capture.files[-1], tables)
    return capture, tables


def _with_earlier_proofs(report: Report, workload: Path) -> Report:
    """Return the report with earlier measurements of its fixes; a damaged file is ignored."""
    path = workload / PROOF
    if not path.is_file():
        return report
    from nightsight.advise.prove import with_proofs  # noqa: PLC0415 (few reports have proofs)
    from nightsight.model.prove import ProofReport  # noqa: PLC0415

    try:
        return with_proofs(report, ProofReport.from_json(path.read_bytes()))
    except (OSError, CaptureError):
        return report


def _write_unprofiled(file: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the measurements without a profiler next to a capture, if there are any."""
    if any(len(table) for table in tables.values()):
        write_file(unprofiled_file(file), to_text(tables).encode())


def _timing(plan: Plan, request: Request, capture: Capture, profile: Profile) -> tuple[Request, RunLimit | None] | None:
    """Return how a program runs once more without a profiler, to time its steps; None: not at all.

    By default, that must cost little: a program that takes long ends after some of its steps. And something must repeat
    in the window. A server, a part of a run, and a program whose results are
    attached are left alone, as running them again may do harm; so is a rank of a job, as the others may not run again;
    and repeats, which are measured often enough.
    """
    left_s = request.timeout_s - sum(capture.stages_s.values())
    if capture.collector == "ncu" or capture.failure or capture.benchmark or request.time_steps is False:
        return None
    if request.time_steps:
        return (replace(request, timeout_s=left_s), None) if left_s > 0 else None
    window = chosen_window(profile)
    is_alone = not (request.part or plan.attach or plan.turn.series or launched_rank())
    is_usual = plan.program.kind != "workload" and is_python(plan.program)
    if not (window.family and is_alone and is_usual):
        return None
    profiled_s, name = capture.stages_s["profile"], plan.program.name
    if min(profiled_s, _QUICK_S) >= left_s:
        request.progress(f"not timing {name} without a profiler: {max(left_s, 0.0):.0f} s of --timeout are left")
        return None
    is_quick = profiled_s < max(_QUICK_S, _QUICK_SHARE * sum(capture.stages_s.values()))
    # under the profiler, a step takes longer
    steps_s = min(max(_STEPS_S, 1e-9 * _STEPS * window.length_ns / max(len(window.repetitions), 1)), profiled_s)
    timing = replace(request, timeout_s=min(_PATIENCE * profiled_s + _PATIENCE_S, left_s))
    return timing, None if is_quick else RunLimit(seconds=steps_s)


# a run without a profiler is quick if the profiled one took less than this, or this share of the time until then
_QUICK_S: Final = 60.0
_QUICK_SHARE: Final = 0.5
# another ends this long after its first step, or this many steps, if they take long
_STEPS_S: Final = 15.0
_STEPS: Final = 30
# it should end within the time of the profiled run
_PATIENCE: Final = 2.0
_PATIENCE_S: Final = 30.0


def _with_times(
    program: Program, request: Request, limit: RunLimit | None, capture: Capture, profile: Profile
) -> tuple[Capture, Profile]:
    """Time the steps of a program without a profiler, and add the table `timed_ranges`."""
    window = chosen_window(profile)
    timed = time_ranges(program, request, limit, has_names=_has_names(profile, window.family))
    profile, findings = replace(profile, tables={**profile.tables, "timed_ranges": timed.ranges}), timed.findings
    if request.time_steps and len(timed.ranges) and not timed_ns(profile, window) > 0:
        reason = (
            f"the window consists of repetitions of {window.family}, which the run without the profiler does not show"
        )
        findings = (not_timed(reason if window.family else "nothing repeats in the window", is_asked=True),)
    capture = _with_stage(capture, "times", timed.seconds)
    return replace(capture, findings=(*capture.findings, *findings)), profile


def _has_names(profile: Profile, family: str) -> bool:
    """Whether the repetitions in a capture are ranges, calls or steps that the hook in the program sees, too.

    Executions of programs of XLA and repeated launches are not.
    """
    paths = without_numbers(recorded_ranges(profile)["path"].cat.categories).str.replace("##", "#")
    return not family or family.startswith(ENDS_WITH.partition("{")[0]) or family in set(paths)


def _with_stage(capture: Capture, stage: str, seconds: float) -> Capture:
    return replace(capture, stages_s={**capture.stages_s, stage: seconds}) if seconds else capture


def _with_window(profile: Profile, window: str) -> tuple[Profile, tuple[Finding, ...]]:
    """Choose a window of the run; if it has no such window, return a finding and keep the default."""
    chosen = replace(profile, window=window)
    try:
        chosen_window(chosen)
    except UsageError as error:
        detail = f"{error.message[:1].upper()}{error.message[1:]}. The report covers the default window."
        finding = Finding("unknown_window", "warning", "The window was not found", detail, error.hint)
        return profile, (finding,)
    return chosen, ()


def keep_of_run(path: Path, keep: Keep) -> str:
    """Delete the files of a run that `keep` excludes; return the text to print. `path`: its report.html.

    The text is the path of the report, or the report as Markdown if nothing is kept.
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
            # it contains other files
            reports.rmdir()
    return FORMATS["markdown"].render(Source(report))[""].decode().rstrip("\n")


@contextmanager
def _errors_name_the_capture(request: Request) -> Iterator[None]:
    """Add the capture that is kept to errors; turn an interrupt into an Interrupted with the command for its report."""
    try:
        yield
    except Exception as error:
        if capture := _kept_capture(request):
            note(error, capture)
        raise
    except KeyboardInterrupt:
        capture = _kept_capture(request)
        if capture is None:
            raise Interrupted("interrupted before anything was captured") from None
        tool = ("--nsys", str(request.nsys)) if request.nsys and capture.suffix == NSYS_REPORT else ()
        command = shlex.join(("nightsight", "report", *tool, str(capture)))
        raise Interrupted(
            f"interrupted before the report was written; the capture is kept: {capture}",
            f"Make its report: {command}",
        ) from None


def _kept_capture(request: Request) -> Path | None:
    """Return the capture of a run, preferably an export; None if there is none yet."""
    return next(iter(captures_of(request.captures.parent)), None)


def _run_files(source: Source, turn: Turn, *, failed: bool) -> dict[str, bytes]:
    report = source.report
    entry = asdict(index_entry(report, failed=failed))
    of_run = {name: value for name, value in entry.items() if name not in OF_FOLDER}
    facts = {"environment": asdict(report.environment), "parameters": dict(report.parameters)}
    document = {**of_run, **asdict(turn), **facts, "stages_s": report.stages_s}
    return {
        "report.json": FORMATS["json"].render(source)[""],
        "report.html": FORMATS["html"].render(source)[""],
        "run.json": (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode(),
    }
