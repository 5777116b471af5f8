"""`nightsight history`: what many nights measured, and what changed in the course of them."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from nightsight.commands.console import put, say, shown_progress
from nightsight.commands.shared import input_option, keep_memory, nsys_option, window_option, workload_option

_EXPORTS: Final = ("openmetrics", "otava-csv")
_EXISTING: Final = click.Path(exists=True, path_type=Path)
_OUTPUT: Final = click.Path(path_type=Path)


def _url(_: click.Context, __: click.Parameter, value: str) -> str:
    """Accept web addresses only: they become links on a page."""
    if value and not re.match(r"https?://\S+$", value):
        raise click.BadParameter(f"{value!r} is no http(s) address.")
    return value


_place: Final = click.option(
    "--history",
    "place",
    default="reports/history",
    show_default=True,
    metavar="DIR|URL",
    help="Where the history is: a folder, or a URL such as s3://bucket/perf (needs the extra `trend` and the package "
    "of the store).",
)
_canary: Final = click.option(
    "--canary",
    "canaries",
    multiple=True,
    metavar="WORKLOAD",
    help="A workload whose code never changes, measured in the same nights: if it moves, it is the machine and not the "
    "code. For several, repeat the option.",
)
_web: Final = partial(click.option, default="", metavar="URL", callback=_url)


@click.group(short_help="Keep what runs measured, and see what changed.")
def history() -> None:
    """Keep what the runs of many nights measured, and find what changed, when, and whether it was the code.

    Example: nightsight history report --history reports/history
    """


@history.command(short_help="Add runs to a history.")
@click.argument("runs", nargs=-1, required=True, type=_EXISTING, metavar="RUN...")
@_place
@click.option("--name", default="", metavar="NAME", help="What the series is called (default: the workload).")
@workload_option
@_web("--link", help="The address of the report, for the trend page (default: the run's folder in reports/).")
@window_option
@input_option
@nsys_option
def add(  # noqa: PLR0913 (Click's)
    *,
    runs: tuple[Path, ...],
    place: str,
    name: str,
    workload: str,
    link: str,
    window: str,
    max_input: int,
    nsys: Path | None,
) -> None:
    """Add runs to a history: run folders, report.json files or captures.

    Runs of one workload, machine and commit within 12 hours are one night, which counts as their median. Adding a
    run twice is harmless, and so are two jobs that add at once.

    \b
    Examples:
      nightsight history add reports/mlp/latest
      nightsight history add --history s3://bucket/perf reports/*/20261120-*
      nightsight history add --name mlp-large reports/mlp/latest
      nightsight history add --workload train night1.sqlite night2.sqlite
    """
    from nightsight.workflows.history import Called, add_runs
    from nightsight.workflows.opening import Reading

    keep_memory()
    with shown_progress() as progress:
        reading = Reading(nsys, max_input, progress, window)
        lines = list(add_runs(runs, place, reading, Called(name, workload, link)))
    say(*lines)


@history.command(short_help="Say what changed.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@_place
@_canary
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(*, workloads: tuple[str, ...], place: str, canaries: tuple[str, ...], style: str) -> None:
    """Say what changed in the last 90 nights, and where each workload stands.

    suspect: off for one or two nights. confirmed: for more. accepted: in nightsight.toml, with a reason. recovered:
    back to where it was. ended: confirmed, and since then the machine or the arguments are others.

    \b
    Examples:
      nightsight history show
      nightsight history show mlp --canary matmul --format json
    """
    from nightsight.workflows.history import Asked, as_json, as_text, read_trends

    trends = _complaining(read_trends(Asked(place, workloads, canaries)))
    if style == "json":
        put(as_json(trends, is_complete=not workloads))
    else:
        say(*as_text(trends))


@history.command(short_help="Write the trend page.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@_place
@_canary
@click.option(
    "-o",
    "--output",
    type=_OUTPUT,
    default=Path("reports/history.html"),
    show_default=True,
    metavar="FILE",
    help="Where to write the page.",
)
@_web("--reports", help="Where the reports are (default: beside the page, if they are there).")
@_web("--repository", help="The web address of the repository, for links to commits.")
def report(  # noqa: PLR0913 (Click's)
    *,
    workloads: tuple[str, ...],
    place: str,
    canaries: tuple[str, ...],
    output: Path,
    reports: str,
    repository: str,
) -> None:
    """Write a page with all nights: events, epochs, charts, and links to commits and reports.

    \b
    Examples:
      nightsight history report
      nightsight history report --canary matmul --repository https://example.com/team/project -o trend.html
    """
    from nightsight.workflows.history import Asked, read_trends, write_page

    trends = _complaining(read_trends(Asked(place, workloads, canaries)))
    write_page(trends, output, reports=reports, repository=repository)
    say(f"report: {output}")


@history.command(short_help="Write a history for other tools.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@_place
@click.option("--format", "style", type=click.Choice(_EXPORTS), required=True, help="What to write.")
@click.option(
    "-o",
    "--output",
    type=_OUTPUT,
    metavar="PATH",
    help="A file for openmetrics (default: standard output), a folder for otava-csv (default: otava).",
)
def export(*, workloads: tuple[str, ...], place: str, style: str, output: Path | None) -> None:
    """Write a history for Prometheus (openmetrics), or for Apache Otava (a folder of CSV files, and its otava.yaml).

    \b
    Examples:
      nightsight history export --format openmetrics -o nights.om
      nightsight history export mlp --format otava-csv -o otava/
    """
    from nightsight.workflows.history import Asked, read_trends, write_export

    trends = _complaining(read_trends(Asked(place, workloads)))
    if written := write_export(trends, style, output):
        say(f"export: {written}")


def _complaining(trends: Any) -> Any:  # noqa: ANN401 (Trends, not imported for --help)
    """Say on stderr what of the history could not be read."""
    for problem in trends.problems:
        say(f"Warning: {problem}", err=True)
    return trends
