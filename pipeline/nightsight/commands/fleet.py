"""The command `fleet`."""

from pathlib import Path

import click

from nightsight.commands.console import put, say, show_progress
from nightsight.commands.shared import brief_option, input_option, nsys_option, quiet_option, window_option

_MOST_LISTED = 5


@click.command(short_help="Summarize many captures on one page.")
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("fleet.html"),
    show_default=True,
    metavar="FILE",
    help="Where to write the page.",
)
@click.option(
    "--scheduler",
    default="local",
    show_default=True,
    metavar="ADDRESS|local",
    help="Dask scheduler whose workers read the captures: tcp://host:8786 (needs the extra `fleet`). local: "
    "processes on this machine.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="With local: number of workers (default: one per core).",
)
@click.option(
    "--memory",
    default="",
    metavar="SIZE",
    help="With local: memory per worker, such as 3GB (default: 1.5 GB, or less if the machine has less).",
)
@click.option(
    "--summaries",
    default="",
    metavar="DIR|URL",
    help="Where to keep the summaries of captures, so that each is read only once (default: next to the page).",
)
@brief_option
@click.option("--workload", default="", metavar="NAME", help="Workload of captures that do not name one.")
@window_option
@input_option
@nsys_option
@quiet_option
def fleet(  # noqa: PLR0913 (Click's)
    *,
    patterns: tuple[str, ...],
    output: Path,
    style: str | None,
    scheduler: str,
    workers: int | None,
    memory: str,
    summaries: str,
    workload: str,
    window: str,
    max_input: int,
    nsys: Path | None,
    quiet: bool,
) -> None:
    """Read many captures in parallel, and write one page: causes, kernels, differences, outliers.

    A PATTERN is a file, a folder, or a pattern with *, ? and **, local or at a URL that fsspec opens. A worker reads
    each capture once and keeps a summary. Captures that cannot be read are listed on the page and on standard error.
    The exit status is 0 if any capture was read, and 3 if none was.

    \b
    Examples:
      nightsight fleet 'nights/**/*.sqlite' -o fleet.html
      nightsight fleet reports/ --workers 8 --memory 3GB
      nightsight fleet 'nights/*.sqlite' --format brief
      nightsight fleet 's3://bucket/nights/*/rank*.sqlite' --scheduler tcp://head:8786
    """
    import gc

    from nightsight.runs.layout import write_file
    from nightsight.system.executor import LOCAL, Cluster
    from nightsight.workflows.fleet import BRIEFS, FleetRequest, report_fleet, verdict_of
    from nightsight.workflows.opening import Reading

    if scheduler != LOCAL and (workers or memory):
        raise click.UsageError("--workers and --memory apply only to local workers, without --scheduler.")
    # a long-lived process: the objects of thousands of messages must be collected
    gc.enable()
    request = FleetRequest(patterns, output, summaries, workload, Cluster(scheduler, workers or 0, memory))
    with show_progress(is_quiet=quiet) as progress:
        overview, page = report_fleet(request, Reading(nsys, max_input, progress, window))
        write_file(output, page.encode())
    for failure in overview.failures[:_MOST_LISTED]:
        say(f"Not read: {failure.name}: {failure.reason}", err=True)
    if len(overview.failures) > _MOST_LISTED:
        say(f"Not read: {len(overview.failures) - _MOST_LISTED} more, listed on the page", err=True)
    if style:
        put(BRIEFS[style](overview).decode())
    elif not quiet:
        verdict = verdict_of(overview)
        say(" ".join(filter(None, (verdict.state, verdict.cause, verdict.first))), err=True)
    say(f"report: {output}", err=bool(style))
