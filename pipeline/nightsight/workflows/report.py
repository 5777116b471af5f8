"""The command `report`: decides which reports to make from which files, and writes them."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nightsight.errors import UsageError
from nightsight.model.report import Report
from nightsight.render import FORMATS, Format, format_of
from nightsight.runs.layout import captures_of, write_file
from nightsight.system.crash import naming_file
from nightsight.workflows.opening import Reading, open_file, title_of

if TYPE_CHECKING:
    from nightsight.model.prove import ProofReport


@dataclass(frozen=True, eq=False)
class WrittenReport:
    """A report, and the path of its file.

    file: the file it was made from; None for several files. is_one_of_several: other reports are written with it.
    """

    path: Path
    report: Report
    file: Path | None = None
    is_one_of_several: bool = False


@dataclass(frozen=True)
class Output:
    """What to write, and where: `path` is a file (`-`: standard output), or a folder, as for several reports.

    path: None means the current folder. style: "" means the format of the file name extension. most_bytes: the size
    limit of a page. assets: a folder for the styles and scripts of a page; None if they stay in the page. is_folder:
    `path` is a folder even if it does not exist. local: names source files on standard output by their path here.
    """

    path: Path | None
    style: str
    most_bytes: int
    assets: Path | None = None
    is_folder: bool = False
    local: Callable[[str], str] = str


def render_files(
    paths: Sequence[Path], output: Output, reading: Reading, *, proofs: "ProofReport | None" = None
) -> Iterator[WrittenReport]:
    """Write the report of each capture or run, or one report if all belong to one job; yield each written report.

    proofs: the measured gains of fixes, which are added to the causes. UsageError for an impossible `output`.
    """
    style = output.style or format_of(str(output.path or ""))
    form = FORMATS[style]
    # `latest` is a link to a run that may be there too
    paths = list({path.resolve() if path.is_dir() else path: path for path in paths}.values())
    captures = {path: captures_of(path) if path.is_dir() else [] for path in paths}
    # a run with several traces gets a report for each; the folder of another run has more facts than its capture
    paths = [each for path, files in captures.items() for each in (files if len(files) > 1 else [path])]
    if len(paths) > 1 and reading.attach:
        raise UsageError("--attach takes one capture", "Make the reports one by one.")
    if len(paths) > 1 and reading.graphs:
        raise UsageError("--graphs takes one capture", "Make the reports one by one.")
    if form.is_folder and str(output.path) == "-":
        raise UsageError(
            f"{style} consists of several files and cannot go to standard output", "Name a folder with -o."
        )
    if output.assets and (style != "html" or str(output.path) == "-"):
        raise UsageError("--assets needs a page in a file", "Name the page with -o, and omit --format.")
    files = [next(iter(captures[path]), path / "report.json") if path.is_dir() else path for path in paths]
    inputs = [*files, *(path / "report.json" for path in paths if path.is_dir())]
    job = None
    if len(paths) > 1 and not reading.is_per_file:
        from nightsight.workflows.job import open_job  # noqa: PLC0415 (most reports are made from one capture)

        job = open_job(files, form, reading)
    titles = [job.report.title] if job else [title_of(path) for path in paths]
    targets = _targets(titles, output, form)
    for done, target in enumerate(targets):
        if len(targets) > 1:
            reading.progress(f"file {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
        source = job or open_file(paths[done], form, reading)
        if proofs:
            from nightsight.advise.prove import with_proofs  # noqa: PLC0415 (few reports have proofs)

            source = replace(source, report=with_proofs(source.report, proofs))
        reading.progress(f"writing {target.name}")
        # rendering computes results on demand
        with nullcontext() if job else naming_file(paths[done]):
            local = output.local if str(target) == "-" else str
            contents = form.render(replace(source, most_bytes=output.most_bytes, local=local))
        if output.assets:
            contents[""] = _with_assets(contents[""], output.assets, target, inputs)
        if str(target) == "-":
            sys.stdout.buffer.write(contents[""])
            continue
        for name, content in contents.items():
            write_file(target / name if name else target, content, inputs=inputs)
        yield WrittenReport(target, source.report, None if job else paths[done], is_one_of_several=len(targets) > 1)


def _with_assets(page: bytes, folder: Path, target: Path, inputs: Sequence[Path]) -> bytes:
    """Write the styles and scripts of a page to a folder; return the page that links to them."""
    from nightsight.render.page.html import with_assets  # noqa: PLC0415 (only pages need the modules of pages)

    text, files = with_assets(page.decode(), Path(os.path.relpath(folder, target.parent)).as_posix())
    for name, content in files.items():
        write_file(folder / name, content, inputs=inputs)
    return text.encode()


def _targets(titles: Sequence[str], output: Output, form: Format) -> list[Path]:
    """Return the path of each report."""
    path = output.path
    if len(titles) == 1 and path is None and form.is_printed:
        return [Path("-")]
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
