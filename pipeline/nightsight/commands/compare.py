"""The command `compare`."""

from pathlib import Path
from typing import Any, Final

import click

from nightsight.commands.console import put, say, show_progress, width_of
from nightsight.commands.shared import input_option, nsys_option, prepare_libraries, window_option, workload_option
from nightsight.options import CompareOptions, standard_output

STYLES: Final = ("html", "markdown", "json", "brief", "brief.json", "junit", "openmetrics")
_SIDES: Final = ("--baseline", "--candidate")
_RUNS: Final[dict[str, Any]] = {
    "multiple": True,
    "type": click.Path(exists=True, path_type=Path),
    "metavar": "PATH...",
}


class _ManyPaths(click.Command):
    """A command whose two sides take all paths up to the next option, so that shells can expand patterns."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        parsed: list[str] = []
        side = ""
        for place, arg in enumerate(args):
            if arg in _SIDES:
                side = arg
                if place + 1 == len(args) or args[place + 1].startswith("-"):
                    raise click.UsageError(f"{arg} needs at least one run. Did its pattern match nothing?", ctx)
            elif arg.startswith("-"):
                side = ""
                parsed.append(arg)
            else:
                parsed += [side, arg] if side else [arg]
        return super().parse_args(ctx, parsed)


@click.command(cls=_ManyPaths, short_help="Compare runs, and gate on regressions.")
@click.argument("pair", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[BASELINE CANDIDATE]")
@click.option("--baseline", **_RUNS, help="Runs to compare with.")
@click.option("--candidate", **_RUNS, help="Runs to judge.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=standard_output,
    help="Write the comparison to a file, or to standard output (-).",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(STYLES),
    help="Output format (default: from the file name extension; without a file, a summary for the terminal). brief: at "
    "most 3,000 bytes, for coding agents and people in a hurry.",
)
@click.option(
    "--gate", is_flag=True, help="Exit with 1 for a regression, 3 if nothing was measured, 4 if inconclusive."
)
@click.option("--strict", is_flag=True, help="With --gate: also exit with 1 if inconclusive.")
@workload_option
@window_option
@input_option
@nsys_option
@click.pass_context
def compare(ctx: click.Context, /, pair: tuple[Path, ...], **values: Any) -> None:  # noqa: ANN401 (Click's)
    """Compare runs of a workload: run folders, report.json files or captures.

    A difference counts only if it exceeds the noise between runs of one side. Give at least three runs of each side,
    better five, measured in turns. Limits and accepted changes come from nightsight.toml or [tool.nightsight].
    Paths that are not runs, and links to runs already named, are skipped, so main/mlp/* means all runs.
    Two paths without --baseline and --candidate are one run of each side.

    \b
    Examples:
      nightsight compare before.sqlite after.sqlite
      nightsight compare --baseline main/mlp/2* --candidate branch/mlp/2* -o comparison.html
      nightsight compare before.sqlite after.sqlite --format brief
      nightsight compare --baseline main/mlp/2* --candidate branch/mlp/2* --gate --strict
    """
    prepare_libraries()
    from nightsight.compare import settings_of
    from nightsight.render.compare import comparison_lines
    from nightsight.runs.layout import write_file
    from nightsight.workflows.compare import STYLES as WRITERS
    from nightsight.workflows.compare import compare_runs, load_sides, select_runs, sources_of, style_of
    from nightsight.workflows.opening import Reading

    options = CompareOptions(**{**values, **_sides(pair, values)})
    style = style_of(options.output, options.style)
    if options.strict and not options.gate:
        raise click.UsageError("--strict needs --gate.")
    # read first, to report mistakes in them before reading captures
    settings, sides = settings_of(Path.cwd()), [select_runs(paths) for paths in (options.baseline, options.candidate)]
    for skipped in dict.fromkeys(text for side in sides for text in side.skipped):
        say(f"Skipped: {skipped}", err=True)
    with show_progress() as progress:
        reading = Reading(options.nsys, options.max_input, progress, options.window)
        baseline, candidate = load_sides([side.runs for side in sides], reading, workload=options.workload)
        comparison = compare_runs(baseline, candidate, settings=settings)
        sources = sources_of(baseline, candidate, reading) if style == "html" else ((), ())
    if not style:
        say(*comparison_lines(comparison, width=width_of()))
    elif options.output is None or str(options.output) == "-":
        put(WRITERS[style](comparison, sources))
    else:
        text = WRITERS[style](comparison, sources)
        write_file(options.output, text.encode(), inputs=[run.file for run in (*baseline, *candidate)])
        say(f"comparison: {options.output}", comparison.decision.line)
    if options.gate:
        status = comparison.decision.status
        ctx.exit(1 if options.strict and status == 4 else status)


def _sides(pair: tuple[Path, ...], values: dict[str, Any]) -> dict[str, tuple[Path, ...]]:
    """Return the runs of both sides: those of the options, or one of each."""
    named = {name: values[name] for name in ("baseline", "candidate")}
    if len(pair) == 2 and not any(named.values()):
        return {"baseline": pair[:1], "candidate": pair[1:]}
    if pair or not all(named.values()):
        raise click.UsageError(
            "Name two runs, BASELINE CANDIDATE, or the runs of each side with --baseline and --candidate."
        )
    return named
