"""The command `show`, which answers questions about a report without making it again."""

from pathlib import Path

import click

from nightsight.commands.completion import things
from nightsight.commands.console import put, say, show_progress
from nightsight.commands.shared import (
    input_option,
    local_names,
    local_option,
    nsys_option,
    prepare_libraries,
    window_option,
)
from nightsight.options import no_empty_name


@click.command(short_help="Show one cause, table, kernel or range.")
@click.argument("file", type=click.Path(exists=True, path_type=Path), metavar="REPORT|CAPTURE|RUN")
@click.argument("name", default="", metavar="[CAUSE|TABLE|KERNEL|RANGE]", shell_complete=things)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="At most N rows of a table."
)
@click.option(
    "--columns",
    multiple=True,
    callback=no_empty_name,
    metavar="NAME,...",
    help="Only these columns, in this order.",
)
@click.option(
    "--where",
    multiple=True,
    callback=no_empty_name,
    metavar="CONDITION",
    help="Only rows that fulfill this: total_ns>1e6, device=0, name~gemm (contains). Repeat the option for several.",
)
@click.option("--slowest", type=click.IntRange(min=1), default=None, metavar="N", help="With steps: the N slowest.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: the same with raw values and full names, on one line.",
)
@local_option
@window_option
@input_option
@nsys_option
def show(  # noqa: PLR0913 (all by name)
    *,
    file: Path,
    name: str,
    top: int,
    columns: tuple[str, ...],
    where: tuple[str, ...],
    slowest: int | None,
    style: str,
    is_local: bool,
    window: str,
    max_input: int,
    nsys: Path | None,
) -> None:
    """Show one cause with its evidence, one table with its definition, one kernel, or one range.

    Without a name: the brief of the report, and all names. A report.json, or the folder of a run, is read and not
    analyzed again; a capture is. A kernel is named in full, as tables name it, or by a part of its name.

    \b
    Examples:
      nightsight show reports/train/latest
      nightsight show train.report.json launch_bound
      nightsight show train.report.json cuda_gpu_kern_sum --top 5 --columns total_ns,name
      nightsight show train.report.json "gemm f16" --where "total_ns>1e6"
      nightsight show train.report.json forward
      nightsight show reports/train/latest steps --slowest 3
      nightsight show train.report.json launch_bound --format json
      nightsight show train.report.json host_code --local-paths
    """
    prepare_libraries()
    from nightsight.events.window import AUTO
    from nightsight.render import FORMATS
    from nightsight.render.show import Choice, shown, shown_json
    from nightsight.system.crash import naming_file
    from nightsight.workflows.opening import Reading, open_file

    kept = file / "report.json"
    local = local_names(style, is_local=is_local)
    path = kept if file.is_dir() and kept.is_file() and window == AUTO else file
    with show_progress(is_quiet=True) as progress:
        report = open_file(path, FORMATS["csv"], Reading(nsys, max_input, progress, window)).report
        names = tuple(each for given in columns for each in given.split(","))
        choice = Choice(top, names, where, slowest or 0)
        with naming_file(path, "showing"):
            lines = [] if style == "json" else list(shown(report, name, choice))
            document = shown_json(report, name, choice) if style == "json" else ""
    say(*map(local, lines))
    put(document)
