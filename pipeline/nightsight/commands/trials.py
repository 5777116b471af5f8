"""The commands `ab` and `bisect`, which measure commits."""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nightsight.commands.console import put, say, show_progress, width_of
from nightsight.commands.shared import (
    brief_option,
    nsys_option,
    reports_option,
    target_argument,
    trace_option,
    verbose_option,
    window_option,
    with_options,
)
from nightsight.errors import ToolError
from nightsight.options import NAMES, Number, TrialOptions, completed, names
from nightsight.progress import Reporter

if TYPE_CHECKING:
    from nightsight.progress import Progress
    from nightsight.workflows.trials import Trial, TrialResult

AFTER_DASHES: Final = "nightsight.rest"
_FILES: Final = {
    "html": "comparison.html",
    "markdown": "comparison.md",
    "json": "comparison.json",
    "junit": "comparison.xml",
    "openmetrics": "comparison.txt",
}


class ProgramCommand(click.Command):
    """A command that runs a program, and keeps all words after `--` for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words after `--`, and parse the others; for an unknown option, suggest to put it after `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[AFTER_DASHES] = tuple(args[cut + 1 :])
        try:
            return super().parse_args(ctx, args[:cut])
        except click.UsageError as error:
            place = self._place_of_rest(ctx, args[:cut])
            if place is None:
                raise
            line = shlex.join([*ctx.command_path.split(), *args[:place], "--", *args[place:cut], *args[cut + 1 :]])
            message = error.format_message().rstrip(".")
            raise click.UsageError(f"{message}. If it is for the program: {line}", ctx) from error

    def _place_of_rest(self, ctx: click.Context, args: Sequence[str]) -> int | None:
        """Return how many words precede the first unknown option after the program's name; None without one."""
        parser = self.make_parser(ctx)
        is_named = False
        for place in range(len(args) + 1):
            try:
                parsed, remaining, _ = parser.parse_args(list(args[:place]))
            except click.NoSuchOption:
                return place - 1 if is_named else None
            except click.UsageError:
                # an option whose value comes next
                continue
            if remaining:
                return place - 1
            is_named = isinstance(parsed.get("target"), str)
        return None


def program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for how a program is run, and for where its runs are stored."""
    folder = click.Path(file_okay=False, path_type=Path)
    return with_options(
        command,
        click.option(
            "--keep-env", multiple=True, metavar="NAME", help="Pass this environment variable to the program."
        ),
        click.option(
            "--timeout",
            type=Number(min=0, min_open=True),
            metavar="SECONDS",
            default=3600,
            help="Stop a run after this time.  [default: 3600]",
        ),
        click.option("--python", metavar="PATH", help="Python for workloads and scripts, as in `profile`."),
        click.option("--workloads", type=folder, metavar="DIR", help="Folder of your workloads, as in `profile`."),
        reports_option,
        verbose_option,
    )


def _trial_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that apply to all commits: the program, and how it is measured."""
    option = partial(click.option, show_default=True)
    return with_options(
        program_options(command),
        target_argument,
        click.option("--build", default="", metavar="COMMAND", help=_BUILD),
        option("--collector", type=click.Choice(["auto", "nsys", "torch"]), default="auto", help=_COLLECTOR),
        nsys_option,
        trace_option,
        option(
            "--names",
            default="auto",
            metavar="auto|off|NAME,...",
            shell_complete=completed("auto", "off", *NAMES),
            callback=names,
            help="Which parts of a Python program to annotate in nsys, as in `profile`.",
        ),
        click.option("--time-steps", is_flag=True, help="Also time the steps without a profiler, as in `profile`."),
        window_option,
    )


_BUILD: Final = "Run this command with sh in each commit's checkout before measuring it."
_COLLECTOR: Final = "As in `profile`, without replays by ncu."


@click.command(cls=ProgramCommand, options_metavar="[OPTIONS]", short_help="Compare two commits.")
@click.option("--base", required=True, metavar="REF", help="Commit to compare with. A dot: the checkout as it is.")
@click.option("--head", default="", metavar="REF", help="Commit to judge. A dot: the checkout as it is.")
@click.option("--aa", is_flag=True, help="Compare the base with itself, to measure and store the noise.")
@click.option("--pairs", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Pairs of runs.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the comparison (default: one next to the runs).",
)
@click.option("--gate", is_flag=True, help="Exit with 1 for a regression, 4 if inconclusive.")
@click.option("--strict", is_flag=True, help="With --gate: also exit with 1 if inconclusive.")
@brief_option
@_trial_options
@click.pass_context
def ab(ctx: click.Context, /, target: str | None, **values: Any) -> None:  # noqa: ANN401 (Click's)
    """Measure two commits of this repository in turns, and compare them.

    Each commit is checked out in its own worktree, which is removed afterwards. After one warm-up run of each, runs are
    interleaved (base, head, head, base). They share caches of compiled kernels. Measuring stops early once the decision
    is settled. Exit status 3: nothing was measured.

    \b
    Examples:
      nightsight ab --base main --head HEAD train.py --pairs 5 -- --steps 50
      nightsight ab --base main --head . mlp
      nightsight ab --base v1.2 --head v1.3 --build "make -j8" --gate -- ./build/bench
      nightsight ab --base main --aa mlp --pairs 10
      nightsight ab --base HEAD --head . --format brief train.py
    """
    from nightsight.compare import settings_of
    from nightsight.render.compare import comparison_lines
    from nightsight.workflows.compare import STYLES
    from nightsight.workflows.trials import compare_commits

    base, head, pairs, output, style = (values.pop(name) for name in ("base", "head", "pairs", "output", "style"))
    is_itself, is_gate, is_strict = (values.pop(name) for name in ("aa", "gate", "strict"))
    if bool(head) == is_itself:
        raise click.UsageError("Name the commit to judge with --head, or compare the base with itself: --aa.")
    if is_strict and not is_gate:
        raise click.UsageError("--strict needs --gate.")
    with show_progress() as progress:
        trial = _trial(ctx, target, TrialOptions(**values), progress)
        result = compare_commits(trial, base, head, pairs, settings=settings_of(Path.cwd()))
        page = _write(result, output, trial.reports, progress)
    if style:
        put(STYLES[style](result.comparison, ((), ())))
    else:
        say(*comparison_lines(result.comparison, width=width_of()))
    say(f"comparison: {page}", err=bool(style))
    status = result.comparison.decision.status
    if is_gate:
        ctx.exit(1 if is_strict and status == 4 else status)


@click.command(cls=ProgramCommand, options_metavar="[OPTIONS]", short_help="Find the commit that changed a metric.")
@click.option("--good", required=True, metavar="REF", help="Commit before the change.")
@click.option("--bad", required=True, metavar="REF", help="Commit after the change.")
@click.option(
    "--metric", default="", metavar="METRIC", help="The metric, such as step_ns (default: the one that changed most)."
)
@click.option(
    "--pairs",
    type=click.IntRange(min=3),
    default=3,
    show_default=True,
    metavar="N",
    help="Pairs of runs of each commit and the good one. Twice as many if the result is inconclusive.",
)
@_trial_options
@click.pass_context
def bisect(ctx: click.Context, /, target: str | None, **values: Any) -> None:  # noqa: ANN401 (Click's)
    """Find the first commit of this repository that changed a metric, with git bisect.

    Both ends are measured first; if they do not differ, bisecting stops. Commits are checked out in a separate
    worktree, so your checkout does not change. A commit that fails to build or run is skipped.

    \b
    Examples:
      nightsight bisect --good v1.2 --bad main train.py -- --steps 50
      nightsight bisect --good HEAD~20 --bad HEAD --metric kernel_ns mlp
    """
    from nightsight.compare import settings_of
    from nightsight.workflows.bisect import find_first_bad

    good, bad, metric, pairs = (values.pop(name) for name in ("good", "bad", "metric", "pairs"))
    with show_progress() as progress:
        trial = _trial(ctx, target, TrialOptions(**values), progress)
        culprit = find_first_bad(trial, (good, bad), metric, pairs, settings=settings_of(Path.cwd()))
    say(f"first bad commit: {culprit.commit} {culprit.subject}", culprit.sentence)


def _trial(ctx: click.Context, target: str | None, options: TrialOptions, progress: Reporter) -> "Trial":
    """Return the measurement to make at each commit."""
    from nightsight.collect import needs_of
    from nightsight.collect.interpreter import interpreter
    from nightsight.collect.worktrees import ProgramRequest
    from nightsight.workflows.trials import Trial

    if sys.platform != "linux":
        raise ToolError("profiling needs Linux", "To compare runs made on Linux: nightsight compare")
    rest = ctx.meta[AFTER_DASHES]
    if target is None and not rest:
        raise click.UsageError("Name a workload or script, or give a command after `--`.")
    needs = partial(needs_of, options.collector, target, options.workloads, options.nsys)
    python = interpreter(options.python, needs)
    if target and python.remark:
        with progress.paused():
            say(python.remark, err=True)
    request = ProgramRequest(target, rest, python.path, options.workloads)
    return Trial(
        request, options.reports.resolve(), options.request(progress), options.collector, options.window, options.build
    )


def _write(result: "TrialResult", output: Path | None, reports: Path, progress: "Progress") -> Path:
    """Write a comparison in all formats; return the path of its page."""
    from nightsight.read import MOST_BYTES
    from nightsight.runs.layout import write_file
    from nightsight.workflows.compare import STYLES, load_sides, sources_of
    from nightsight.workflows.opening import Reading

    comparison = result.comparison
    folder = output or reports / comparison.workload / f"ab-{result.series}"
    reading = Reading(None, MOST_BYTES, progress)
    baseline, candidate = load_sides((result.baseline, result.candidate), reading)
    sources = sources_of(baseline, candidate, reading)
    for style, name in _FILES.items():
        if style in STYLES:
            write_file(folder / name, STYLES[style](comparison, sources).encode())
    return folder / _FILES["html"]
