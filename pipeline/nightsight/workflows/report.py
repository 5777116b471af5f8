"""The command `report`: which reports are made of which files, and where they go."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from nightsight.errors import UsageError
from nightsight.model.report import Report
from nightsight.render import FORMATS, Format, Source, format_of
from nightsight.runs.layout import captures_of, write_file
from nightsight.system.crash import about
from nightsight.workflows.opening import Reading, open_file, title_of


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
    job = None if len(paths) == 1 or reading.is_apart else _job(files, form, reading)
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


def _job(files: Sequence[Path], form: Format, reading: Reading) -> Source | None:
    from nightsight.workflows.job import open_job  # noqa: PLC0415 (most reports are of one capture)

    return open_job(files, form, reading)


def _refuse_assets(style: str, output: Output) -> None:
    if output.assets and (style != "html" or str(output.path) == "-"):
        raise UsageError("--assets is for a page in a file", "Name the page with -o, and leave out --format.")


def _with_assets(page: bytes, folder: Path, target: Path, inputs: Sequence[Path]) -> bytes:
    """Write the style and the script of a page into a folder; return the page that uses them there."""
    from nightsight.render.page.html import with_assets  # noqa: PLC0415 (only pages need the modules of pages)

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
