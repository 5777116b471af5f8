"""The commands for captures and old runs: `sanitize` before sharing a capture, `prune` to free disk space."""

import datetime as dt
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from nightsight.commands.console import say
from nightsight.commands.shared import input_option

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")


def _age(_: click.Context, __: click.Parameter, value: str | None) -> dt.timedelta | None:
    if value is None:
        return None
    if match := _AGE.fullmatch(value):
        with suppress(OverflowError):
            return dt.timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    raise click.BadParameter(f"{value!r} is not an age such as 30d, 12h or 2w.")


@click.command(short_help="Remove private data from a capture.")
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Output file, in the same format. A trace is compressed if the name ends with .gz.",
)
@input_option
def sanitize(*, capture: Path, output: Path, max_input: int) -> None:
    """Write a copy of a capture without environment, command line, user and host names, and paths.

    For nsys SQLite exports, torch.profiler traces, and ncu CSV pages. The copy gives the same report; names of ranges
    and kernels stay. Standard error lists what was removed, by kind and count. docs/privacy.md lists what is kept.

    Example: nightsight sanitize train.sqlite -o attached.sqlite
    """
    from nightsight.sanitize import sanitize as write_sanitized

    removed = write_sanitized(capture, output, most_bytes=max_input)
    for kind, count in sorted(removed.items()):
        say(f"removed: {count:,} {kind}", err=True)
    say(f"capture: {output}")


@click.command(short_help="Delete old runs, or only their captures.")
@click.argument(
    "reports", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("reports"), required=False
)
@click.option("--keep-runs", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs of each workload.")
@click.option("--older-than", callback=_age, metavar="AGE", help="Only runs older than this: 30d, 12h, 2w.")
@click.option("--captures", is_flag=True, help="Delete only captures and logs. Reports stay.")
@click.option("--latest", is_flag=True, help="Also delete the latest run of each workload.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
def prune(
    *,
    reports: Path,
    keep_runs: int | None,
    older_than: dt.timedelta | None,
    captures: bool,
    latest: bool,
    dry_run: bool,
) -> None:
    """Delete old runs in REPORTS (default: reports), and print the freed space.

    Deletes only finished runs that nightsight wrote. Links are not followed, and other files in a run folder stay.

    \b
    Examples:
      nightsight prune --older-than 30d --keep-runs 5
      nightsight prune --captures --keep-runs 1 --dry-run
    """
    from nightsight.units import format_value
    from nightsight.workflows.index import list_runs
    from nightsight.workflows.prune import PruneRules, SkipCounts
    from nightsight.workflows.prune import prune as prune_runs

    if keep_runs is None and older_than is None and not captures:
        raise click.UsageError(
            "Choose runs with --keep-runs N or --older-than AGE, or delete only their captures with --captures."
        )
    skipped, freed, count = SkipCounts(), 0, 0
    rules = PruneRules(keep_runs, older_than, captures, latest)
    verb = "would delete" if dry_run else "deleted"
    for run in prune_runs(reports, rules, now=dt.datetime.now(dt.UTC), skipped=skipped, is_dry=dry_run):
        freed, count = freed + run.freed_bytes, count + 1
        files = f" ({', '.join(run.names)})" if captures or run.left else ""
        kept_files = f"; kept other files: {', '.join(run.left)}" if run.left else ""
        say(f"{verb}: {run.folder}{files}, {format_value(run.freed_bytes, 'freed_bytes')}{kept_files}")
    index = reports / "index.html"
    # keep a page that nightsight did not write
    if count and not dry_run and (not index.exists() or b"nightsight" in index.read_bytes()):
        list_runs(reports)
    for reason, folders in sorted(skipped.reasons.items()):
        say(f"not touched: {folders:,} {reason}", err=True)
    verb = "would free" if dry_run else "freed"
    say(f"{verb} {format_value(freed, 'freed_bytes')} of {count:,} runs" if count else "nothing to delete")
