"""The command `compare`: opens runs, compares them, and writes the comparison."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.captures import is_never_capture
from nightsight.compare import STEP, Settings, compare, measures
from nightsight.errors import CaptureError, PipelineError, UsageError
from nightsight.model.compare import Comparison, Measures, Noise, machine_key
from nightsight.render import FORMATS, Source
from nightsight.render.compare import (
    comparison_brief,
    comparison_brief_json,
    comparison_json,
    comparison_markdown,
    render_comparison,
)
from nightsight.render.gates import junit, openmetrics
from nightsight.runs.layout import captures_of, refuse_no_run
from nightsight.runs.noise import noise_of
from nightsight.system.crash import naming_file
from nightsight.texts import without_host
from nightsight.workflows.analysis import without_intermediates
from nightsight.workflows.opening import Reading, open_file

Sources = tuple[Sequence[Source], Sequence[Source]]

STYLES: Final[Mapping[str, Callable[[Comparison, Sources], str]]] = {
    "html": lambda comparison, sources: render_comparison(comparison, sources=sources),
    "markdown": lambda comparison, _: comparison_markdown(comparison),
    "json": lambda comparison, _: comparison_json(comparison),
    "brief": lambda comparison, _: comparison_brief(comparison).decode(),
    "brief.json": lambda comparison, _: comparison_brief_json(comparison).decode(),
    "junit": lambda comparison, _: junit(comparison),
    "openmetrics": lambda comparison, _: openmetrics(comparison),
}
# the first that matches counts
_SUFFIXES: Final = {
    ".brief.txt": "brief",
    ".brief.json": "brief.json",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".json": "json",
    ".xml": "junit",
}


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run that was opened: its measures, and its report, with events if they were read.

    path: as given by the user; file: the file that was read.
    """

    measures: Measures
    source: Source
    path: Path
    file: Path


@dataclass(frozen=True)
class RunSelection:
    """The runs among the paths of a side, without duplicates; skipped: the other paths, each with the reason."""

    runs: tuple[Path, ...]
    skipped: tuple[str, ...] = ()


def select_runs(paths: Sequence[Path]) -> RunSelection:
    """Select the runs among the paths to which a shell expanded a pattern, such as `latest` and pages next to runs.

    If no path is a run, returns all: opening them gives a precise error.
    """
    runs: dict[Path, Path] = {}
    skipped = []
    for path in paths:
        if len(paths) > 1 and not _may_be_run(path):
            skipped.append(f"{path} is not a run")
        elif (first := runs.setdefault(path.resolve(), path)) is not path:
            skipped.append(f"{path} is the same run as {first}")
    if not runs:
        return RunSelection(tuple({path.resolve(): path for path in paths}.values()))
    return RunSelection(tuple(runs.values()), tuple(skipped))


def _may_be_run(path: Path) -> bool:
    """Whether a path may be a run. An incomplete run or a folder of runs may: opening it gives a precise error."""
    if path.is_dir():
        return (path / "capture").is_dir() or any(path.glob("report.json")) or any(path.glob("*/report.json"))
    return not path.name.startswith(".") and not is_never_capture(path.name)


def load_sides(sides: Sequence[Sequence[Path]], reading: Reading, *, workload: str = "") -> list[list[LoadedRun]]:
    """Open the runs of both sides; progress counts them as one series."""
    total = sum(map(len, sides))
    return [
        load(side, reading, workload=workload, done=sum(map(len, sides[:place])), of=total)
        for place, side in enumerate(sides)
    ]


def load(
    paths: Sequence[Path], reading: Reading, *, workload: str = "", done: int = 0, of: int | None = None
) -> list[LoadedRun]:
    """Open run folders, report.json files or captures; CaptureError names the one that cannot be read.

    UsageError if a run is named twice. `workload`: the workload of captures that `profile` did not make. `done`: the
    number of runs opened before these; `of`: the number of all runs.
    """
    first_names: dict[Path, Path] = {}
    for path in paths:
        first = first_names.setdefault(path.resolve(), path)
        if first is not path:
            raise UsageError(f"{path} is the same run as {first}", "Name each run once: it counts once.")
    total = len(paths) if of is None else of
    runs = []
    for number, path in enumerate(paths, start=done):
        reading.progress(f"run {number + 1} of {total}: {path}", done=number, of=total, is_series=True)
        runs.append(_load_run(path, reading, workload))
    return runs


def _load_run(path: Path, reading: Reading, workload: str) -> LoadedRun:
    folder = path if path.is_dir() else path.parent
    file = _report_of(path) if path.is_dir() else path
    try:
        source = open_file(file, FORMATS["json"], reading)
    except CaptureError as error:
        raise CaptureError(f"{path}: {error.message}", error.hint) from error
    run = _run_json(folder) if file.name == "report.json" else {}
    if run.get("failed") is True:
        raise CaptureError(f"{path}: the program failed in this run", "Leave it out, and run it again.")
    texts = {name: value for name in ("series", "side") if isinstance(value := run.get(name), str)}
    order = place if isinstance(place := run.get("order"), int) else -1
    # latest is a link to the folder of a run
    name = folder.resolve().name if file.name == "report.json" else without_host(file.name)
    with naming_file(file):
        run_measures = measures(source.report, source=name, order=order, **texts)
    # only runs of `profile` have times of stages
    if not (source.report.stages_s or run):
        run_measures = replace(run_measures, workload=workload)
    return LoadedRun(run_measures, without_intermediates(source), path, file)


def _report_of(folder: Path) -> Path:
    report = folder / "report.json"
    if report.is_file():
        return report
    refuse_no_run(folder)
    files = captures_of(folder)
    raise CaptureError(f"{folder} has no report.json", f"Name its capture: {files[0]}" if files else "Run it again.")


def _run_json(folder: Path) -> Mapping[str, Any]:
    """Return the content of run.json; {} if it is missing or damaged, because its facts are optional."""
    try:
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def compare_runs(
    baseline: Sequence[LoadedRun], candidate: Sequence[LoadedRun], *, settings: Callable[[str], Settings]
) -> Comparison:
    """Compare runs with the settings of their workload; captures without a workload get that of the others."""
    runs = [*baseline, *candidate]
    names = [run.measures.workload for run in runs if run.measures.workload]
    fallback = candidate[0].source.report.title if candidate else ""
    workload = names[-1] if names else fallback
    sides = (
        [replace(run.measures, workload=run.measures.workload or workload) for run in side]
        for side in (baseline, candidate)
    )
    return compare(*sides, settings=settings(workload), noise=_noise(runs, workload))


def _noise(runs: Sequence[LoadedRun], workload: str) -> Noise:
    """Return the noise of unchanged code that a reports folder of these runs has recorded, if any."""
    folders = dict.fromkeys(run.path.resolve().parents[1] for run in runs if run.path.is_dir())
    noises = (noise_of(folder, workload, machine_key(run.measures)) for folder in folders for run in runs[-1:])
    return next((noise for noise in noises if noise.text), Noise())


def style_of(output: Path | None, style: str | None) -> str:
    """Return the requested format, or that of the file name extension; "" for the terminal."""
    if style or output is None or str(output) == "-":
        return style or ("markdown" if output else "")
    style = next((form for suffix, form in _SUFFIXES.items() if output.name.lower().endswith(suffix)), None)
    if style is None:
        raise UsageError(f"unknown format of {output.name}", "Add --format html, markdown or json.")
    return style


def sources_of(baseline: Sequence[LoadedRun], candidate: Sequence[LoadedRun], reading: Reading) -> Sources:
    """Return the reports of both sides, each with the events of its median run if that capture was kept."""
    both = []
    for side in (baseline, candidate):
        sources = [run.source for run in side]
        if all(source.profile is None for source in sources):
            place = _median_run(side)
            sources[place] = _with_events(side[place], reading)
        both.append(sources)
    return both[0], both[1]


def _median_run(runs: Sequence[LoadedRun]) -> int:
    """Return the position of the run with the median step time."""
    steps = [run.measures.metric(STEP) for run in runs]
    order = pd.Series(steps, dtype="float64").sort_values(kind="stable").index
    return int(order[(len(order) - 1) // 2])


def _with_events(run: LoadedRun, reading: Reading) -> Source:
    for file in captures_of(run.path if run.path.is_dir() else run.path.parent):
        try:
            return replace(open_file(file, FORMATS["html"], reading), report=run.source.report)
        except PipelineError:
            # a page without timelines is better than none
            continue
    return run.source
