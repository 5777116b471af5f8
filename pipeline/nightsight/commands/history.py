"""The commands `nightsight history`: store the measurements of many nights, and show what changed over time."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from nightsight.commands.console import put, say, show_progress
from nightsight.commands.shared import input_option, nsys_option, prepare_libraries, window_option, workload_option

_EXPORTS: Final = ("openmetrics", "otava-csv")
_EXISTING: Final = click.Path(exists=True, path_type=Path)
_OUTPUT: Final = click.Path(path_type=Path)


def _url(_: click.Context, __: click.Parameter, value: str) -> str:
    """Accept only web addresses: they become links on a page."""
    if value and not re.match(r"https?://\S+$", value):
        raise click.BadParameter(f"{value!r} is not an http(s) address.")
    return value


_place: Final = click.option(
    "--history",
    "place",
    default="reports/history",
    show_default=True,
    metavar="DIR|URL",
    help="The history: a folder, or a URL such as s3://bucket/perf (needs the package for that store).",
)
_canary: Final = click.option(
    "--canary",
    "canaries",
    multiple=True,
    metavar="WORKLOAD",
    help="A workload whose code never changes, measured in the same nights. If it changes, the machine did, not the "
    "code. Repeat the option for several.",
)
_web: Final = partial(click.option, default="", metavar="URL", callback=_url)


@click.group(short_help="Store measurements, and see what changed.")
def history() -> None:
    """Store the measurements of nightly runs, and find what changed, when, and whether the code caused it.

    Example: nightsight history report --history reports/history
    """


@history.command(short_help="Add runs to a history.")
@click.argument("runs", nargs=-1, required=True, type=_EXISTING, metavar="RUN...")
@_place
@click.option("--name", default="", metavar="NAME", help="Name of the series (default: the workload).")
@workload_option
@_web("--link", help="Address of the report, for the trend page (default: the run's folder in reports/).")
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

    Runs of one workload, machine and commit within 12 hours are one night, represented by their median. You can safely
    add a run twice, or add from two jobs at once.

    \b
    Examples:
      nightsight history add reports/mlp/latest
      nightsight history add --history s3://bucket/perf reports/*/20261120-*
      nightsight history add --name mlp-large reports/mlp/latest
      nightsight history add --workload train night1.sqlite night2.sqlite
    """
    prepare_libraries()
    from nightsight.workflows.history import SeriesNames, add_runs
    from nightsight.workflows.opening import Reading

    with show_progress() as progress:
        reading = Reading(nsys, max_input, progress, window)
        lines = list(add_runs(runs, place, reading, SeriesNames(name, workload, link)))
    say(*lines)


@history.command(short_help="Show what changed.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@_place
@_canary
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(*, workloads: tuple[str, ...], place: str, canaries: tuple[str, ...], style: str) -> None:
    """Show what changed in the last 90 nights, and the state of each workload.

    suspect: off for one or two nights. confirmed: off for longer. accepted: listed in nightsight.toml with a reason.
    recovered: back to the old level. ended: confirmed, but the machine or the arguments changed since.

    \b
    Examples:
      nightsight history show
      nightsight history show mlp --canary matmul --format json
    """
    from nightsight.workflows.history import TrendRequest, as_json, as_text, read_trends

    trends = _warn_of_problems(read_trends(TrendRequest(place, workloads, canaries)))
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
@_web("--reports", help="Address of the reports (default: next to the page, if they are there).")
@_web("--repository", help="Web address of the repository, for links to commits.")
def report(
    *,
    workloads: tuple[str, ...],
    place: str,
    canaries: tuple[str, ...],
    output: Path,
    reports: str,
    repository: str,
) -> None:
    """Write a page of all nights: events, epochs, charts, and links to commits and reports.

    \b
    Examples:
      nightsight history report
      nightsight history report --canary matmul --repository https://example.com/team/project -o trend.html
    """
    from nightsight.workflows.history import TrendRequest, read_trends, write_page

    trends = _warn_of_problems(read_trends(TrendRequest(place, workloads, canaries)))
    write_page(trends, output, reports=reports, repository=repository)
    say(f"report: {output}")


@history.command(short_help="Export a history for other tools.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@_place
@click.option("--format", "style", type=click.Choice(_EXPORTS), required=True, help="Output format.")
@click.option(
    "-o",
    "--output",
    type=_OUTPUT,
    metavar="PATH",
    help="A file for openmetrics (default: standard output), a folder for otava-csv (default: otava).",
)
def export(*, workloads: tuple[str, ...], place: str, style: str, output: Path | None) -> None:
    """Export a history for Prometheus (openmetrics) or Apache Otava (a folder of CSV files with otava.yaml).

    \b
    Examples:
      nightsight history export --format openmetrics -o nights.om
      nightsight history export mlp --format otava-csv -o otava/
    """
    from nightsight.workflows.history import TrendRequest, read_trends, write_export

    trends = _warn_of_problems(read_trends(TrendRequest(place, workloads)))
    if written := write_export(trends, style, output):
        say(f"export: {written}")


def _warn_of_problems(trends: Any) -> Any:  # noqa: ANN401 (Trends, not imported for --help)
    """Report the unreadable parts of the history on stderr."""
    for problem in trends.problems:
        say(f"Warning: {problem}", err=True)
    return trends
