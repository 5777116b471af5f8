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
from nightsight.render.compare import comparison_json, comparison_markdown, render_comparison
from nightsight.render.gates import junit, openmetrics
from nightsight.runs.layout import captures_of, refuse_no_run
from nightsight.runs.noise import noise_of
from nightsight.system.crash import about
from nightsight.texts import without_host
from nightsight.workflows.analysis import released
from nightsight.workflows.opening import Reading, open_file

Sources = tuple[Sequence[Source], Sequence[Source]]

STYLES: Final[Mapping[str, Callable[[Comparison, Sources], str]]] = {
    "html": lambda comparison, sources: render_comparison(comparison, sources=sources),
    "markdown": lambda comparison, _: comparison_markdown(comparison),
    "json": lambda comparison, _: comparison_json(comparison),
    "junit": lambda comparison, _: junit(comparison),
    "openmetrics": lambda comparison, _: openmetrics(comparison),
}
_SUFFIXES: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".xml": "junit"}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A run that was opened: what it measured, and its report, with events if they were read.

    path: as it was named; file: what was read of it.
    """

    measures: Measures
    source: Source
    path: Path
    file: Path


@dataclass(frozen=True)
class Chosen:
    """The runs among the paths of a side, each once; skipped: each other path with the reason."""

    runs: tuple[Path, ...]
    skipped: tuple[str, ...] = ()


def chosen(paths: Sequence[Path]) -> Chosen:
    """Choose the runs among paths that a shell made of a pattern: `latest` and pages lie next to the runs.

    If none is one, all are returned: opening them says what they are.
    """
    runs: dict[Path, Path] = {}
    skipped = []
    for path in paths:
        if len(paths) > 1 and not _may_be_run(path):
            skipped.append(f"{path} is not a run")
        elif (first := runs.setdefault(path.resolve(), path)) is not path:
            skipped.append(f"{path} is the same run as {first}")
    if not runs:
        return Chosen(tuple({path.resolve(): path for path in paths}.values()))
    return Chosen(tuple(runs.values()), tuple(skipped))


def _may_be_run(path: Path) -> bool:
    """Whether a path could be meant as a run: those of a folder of runs, and a run that is incomplete, are refused."""
    if path.is_dir():
        return (path / "capture").is_dir() or any(path.glob("report.json")) or any(path.glob("*/report.json"))
    return not path.name.startswith(".") and not is_never_capture(path.name)


def load_sides(sides: Sequence[Sequence[Path]], reading: Reading, *, workload: str = "") -> list[list[Loaded]]:
    """Open the runs of both sides; what is told counts them as one series."""
    of = sum(map(len, sides))
    return [
        load(side, reading, workload=workload, done=sum(map(len, sides[:place])), of=of)
        for place, side in enumerate(sides)
    ]


def load(
    paths: Sequence[Path], reading: Reading, *, workload: str = "", done: int = 0, of: int | None = None
) -> list[Loaded]:
    """Open run folders, report.json files or captures; CaptureError names the one that cannot be read.

    UsageError if one is named twice, which would count one run as two. `workload`: what a capture that was not made by
    `profile` is of, since it does not say so. `done` of `of` runs: how many were opened before, of how many in all.
    """
    known: dict[Path, Path] = {}
    for path in paths:
        if (place := path.resolve()) in known:
            raise UsageError(f"{path} is the same run as {known[place]}", "Name each run once: it counts once.")
        known[place] = path
    loaded = []
    every = len(paths) if of is None else of
    for number, path in enumerate(paths, start=done):
        reading.progress(f"run {number + 1} of {every}: {path}", done=number, of=every, is_series=True)
        loaded.append(_loaded(path, reading, workload))
    return loaded


def _loaded(path: Path, reading: Reading, workload: str) -> Loaded:
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
    with about(file):
        found = measures(source.report, source=name, order=order, **texts)
    # what we collected says how long that took
    is_ours = bool(source.report.stages_s or run)
    return Loaded(replace(found, workload=found.workload if is_ours else workload), released(source), path, file)


def _report_of(folder: Path) -> Path:
    if (folder / "report.json").is_file():
        return folder / "report.json"
    refuse_no_run(folder)
    files = captures_of(folder)
    raise CaptureError(f"{folder} has no report.json", f"Name its capture: {files[0]}" if files else "Run it again.")


def _run_json(folder: Path) -> Mapping[str, Any]:
    """Return run.json; nothing if there is none, or if it is damaged: it only says more about a run."""
    try:
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def compared(
    baseline: Sequence[Loaded], candidate: Sequence[Loaded], *, settings: Callable[[str], Settings]
) -> Comparison:
    """Compare runs with the settings of their workload; captures without a workload are of that of the others."""
    runs = [*baseline, *candidate]
    names = [run.measures.workload for run in runs if run.measures.workload]
    fallback = candidate[0].source.report.title if candidate else ""
    workload = names[-1] if names else fallback
    sides = (
        [replace(run.measures, workload=run.measures.workload or workload) for run in side]
        for side in (baseline, candidate)
    )
    return compare(*sides, settings=settings(workload), noise=_noise(runs, workload))


def _noise(runs: Sequence[Loaded], workload: str) -> Noise:
    """Return what comparisons of unchanged code showed, if the runs are in a folder of reports that knows."""
    folders = dict.fromkeys(run.path.resolve().parents[1] for run in runs if run.path.is_dir())
    told = (noise_of(folder, workload, machine_key(run.measures)) for folder in folders for run in runs[-1:])
    return next((noise for noise in told if noise.text), Noise())


def style_of(output: Path | None, style: str | None) -> str:
    """Return the format: as asked for, else by the name of the file; "" for the terminal."""
    if style or output is None or str(output) == "-":
        return style or ("markdown" if output else "")
    found = _SUFFIXES.get(output.suffix.lower())
    if found is None:
        raise UsageError(f"unknown format of {output.name}", "Add --format html, markdown or json.")
    return found


def sources_of(baseline: Sequence[Loaded], candidate: Sequence[Loaded], reading: Reading) -> Sources:
    """Return the reports of both sides; of the median run of each the events too, if its capture was kept."""
    chosen = []
    for side in (baseline, candidate):
        sources = [run.source for run in side]
        if all(source.profile is None for source in sources):
            place = _median(side)
            sources[place] = _with_events(side[place], reading)
        chosen.append(sources)
    return chosen[0], chosen[1]


def _median(runs: Sequence[Loaded]) -> int:
    """Return the place of the run whose step is the median one."""
    tables = [run.measures.table for run in runs]
    steps = [table.loc[(table["kind"] == "gate") & (table["name"] == STEP), "value"].max() for table in tables]
    order = pd.Series(steps, dtype="float64").sort_values(kind="stable").index
    return int(order[(len(order) - 1) // 2])


def _with_events(run: Loaded, reading: Reading) -> Source:
    for file in captures_of(run.path if run.path.is_dir() else run.path.parent):
        try:
            return replace(open_file(file, FORMATS["html"], reading), report=run.source.report)
        except PipelineError:
            # a page without timelines is better than none
            continue
    return run.source
