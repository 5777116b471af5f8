"""The command line: what can be asked for, in Click's terms, and the one place where an error becomes an exit status.

Nothing heavy is imported before a command runs: `--help` answers without pandas.
"""

import errno
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipeline import __version__
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.collect.replay import Replay

FORMATS: Final = ("html", "json", "csv", "parquet", "markdown")
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_TOOL: Final = click.Path(dir_okay=False, path_type=Path)
_REST: Final = "nightsight.rest"


class _Group(click.Group):
    """Turns our errors into two lines and an exit status; anything else is a bug and shows its traceback."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 (Click's signature)
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            click.echo(f"Error: {error.message}", err=True)
            if error.hint:
                click.echo(f"Hint: {error.hint}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            click.echo("Error: cannot write to standard output: there is no space left", err=True)
            ctx.exit(PipelineError.exit_code)


class _WithRest(click.Command):
    """A command that keeps all that follows `--` for the program it starts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[_REST] = tuple(args[cut + 1 :])
        return super().parse_args(ctx, args[:cut])


def _ncu_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what can be said of the replay of kernels."""
    decorators = (
        click.option("--ncu", type=_TOOL, metavar="PATH", help="The ncu to use (default: found by itself)."),
        click.option("--no-ncu", is_flag=True, help="Do not replay kernels with ncu after nsys."),
        click.option(
            "--ncu-coverage",
            type=click.FloatRange(0, 100, min_open=True),
            default=90,
            show_default=True,
            metavar="PERCENT",
            help="Replay the fewest kernels that take this share of the GPU time ...",
        ),
        click.option(
            "--ncu-kernels",
            type=click.IntRange(min=1),
            default=12,
            show_default=True,
            metavar="N",
            help="... but at most so many launches.",
        ),
        click.option(
            "--ncu-launches",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            metavar="N",
            help="Of each kernel, grid and block.",
        ),
        click.option("--ncu-kernel", default="", metavar="REGEX", help="Replay the kernels of this base name."),
        click.option("--ncu-range", default="", metavar="NAME", help="Replay what runs in this NVTX range."),
        click.option("--ncu-all", is_flag=True, help="Replay every kernel, grid and block; without a limit."),
        click.option("--ncu-set", default="full", show_default=True, metavar="SET", help="What is collected."),
        click.option("--ncu-section", multiple=True, metavar="NAME", help="Collect sections in place of the set."),
        click.option("--ncu-metric", multiple=True, metavar="NAME", help="Collect metrics in place of the set."),
        click.option(
            "--ncu-budget",
            type=click.FloatRange(min=0, min_open=True),
            default=300,
            show_default=True,
            metavar="SECONDS",
            help="Keep what is done by then.",
        ),
        click.option(
            "--clock-control", type=click.Choice(["none", "base", "reset"]), default="none", show_default=True
        ),
        click.option("--cache-control", type=click.Choice(["all", "none"]), default="all", show_default=True),
        click.option(
            "--replay-mode",
            type=click.Choice(["kernel", "application", "range", "app-range"]),
            default="kernel",
            show_default=True,
            help="How ncu runs a kernel again.",
        ),
        click.option(
            "--graph-profiling",
            type=click.Choice(["node", "graph"]),
            default="node",
            show_default=True,
            help="Whether ncu replays the kernels of a CUDA graph, or the graph.",
        ),
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


nsys_option = click.option("--nsys", type=_TOOL, metavar="PATH", help="The nsys to use (default: found by itself).")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="nightsight")
def main() -> None:
    """Run GPU workloads under nsys or torch.profiler, and turn captures into one report.

    Example: nightsight profile mlp
    """


@main.command(cls=_WithRest, options_metavar="[OPTIONS]", short_help="Profile a workload, script or command.")
@click.argument("target", required=False, metavar="[WORKLOAD|SCRIPT.py|PROGRAM] [-- ARGUMENTS]")
@click.option(
    "--collector",
    type=click.Choice(["auto", "nsys", "ncu", "torch"]),
    default="auto",
    show_default=True,
    help="auto: nsys, then ncu, where there is a GPU and nsys, else torch.profiler.",
)
@nsys_option
@click.option("--trace", default="cuda,nvtx", show_default=True, help="What nsys traces.")
@click.option(
    "--capture-range",
    type=click.Choice(["auto", "cudaProfilerApi", "nvtx", "none"]),
    default="auto",
    show_default=True,
    help="What nsys records; auto: the measured part of our workloads, all of others.",
)
@click.option("--gpu-metrics", is_flag=True, help="Let nsys sample the GPU's counters (needs the right to read them).")
@click.option("--python-backtrace", is_flag=True, help="Let nsys record who made copies, allocations and waits.")
@click.option("--memory-usage", is_flag=True, help="Let nsys record each allocation of GPU memory.")
@_ncu_options
@click.option("--nsys-arg", multiple=True, metavar="ARG", help="A further option for nsys profile.")
@click.option("--keep-env", multiple=True, metavar="NAME", help="Let the program see this variable; NAME* is a prefix.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=3600,
    help="Stop after this time (with the run that is only timed) and keep what was captured.  [default: 3600]",
)
@click.option("--python", metavar="PATH", default=sys.executable, help="The Python that runs workloads and scripts.")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    metavar="DIR",
    help="Where runs are kept.",
)
@click.option("-v", "--verbose", is_flag=True, help="Pass the program's output on.")
@click.pass_context
def profile(ctx: click.Context, /, target: str | None, **options: Any) -> None:  # noqa: ANN401
    """Run a workload, a script or any command under a profiler and write its report.

    What follows -- goes to the program; without a name before it, it is the command itself.

    \b
    Examples:
      nightsight profile mlp -- --dim 512 --steps 50
      nightsight profile train.py -- --epochs 1
      nightsight profile --ncu-kernels 4 --ncu-set basic matmul
      nightsight profile --gpu-metrics --memory-usage train.py
      nightsight profile -- torchrun --nproc-per-node 2 train.py
    """
    from pipeline.collect import RECORDINGS
    from pipeline.collect.workloads import Request
    from pipeline.workflow import Plan, profile_program

    rest = ctx.meta[_REST]
    if target is None and not rest:
        raise click.UsageError("Name a workload or a script, or give a command after `--`.")
    plan = Plan(target, rest, options["collector"], options["python"], options["reports"])
    # a cancelled CI job (SIGTERM) and a closed terminal (SIGHUP) end the program and keep what was captured, as Ctrl-C
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with _progress() as progress:
        request = Request(
            timeout_s=options["timeout"],
            keep_env=options["keep_env"],
            progress=progress,
            verbose=options["verbose"],
            nsys=options["nsys"],
            trace=options["trace"],
            capture_range=None if options["capture_range"] == "auto" else options["capture_range"],
            recordings=tuple(name for name in RECORDINGS if options[name.replace("-", "_")]),
            nsys_arguments=options["nsys_arg"],
            ncu=options["ncu"],
            replay=None if options["no_ncu"] else _replay(options),
        )
        path = profile_program(plan, request)
    click.echo(f"report: {path}")


def _replay(options: Mapping[str, Any]) -> "Replay":
    from pipeline.collect.replay import Replay

    parts = [(name, value) for name in ("section", "metric") for value in options[f"ncu_{name}"]]
    collected = [text for name, value in parts for text in (f"--{name.replace('metric', 'metrics')}", value)]
    return Replay(
        coverage_pct=options["ncu_coverage"],
        most=0 if options["ncu_all"] else options["ncu_kernels"],
        launches=options["ncu_launches"],
        pattern=options["ncu_kernel"],
        nvtx_range=options["ncu_range"],
        everything=options["ncu_all"],
        budget_s=options["ncu_budget"],
        collected=tuple(collected) or ("--set", options["ncu_set"]),
        **{name: options[name] for name in ("clock_control", "cache_control", "replay_mode", "graph_profiling")},
    )


@main.command(short_help="Make the report of files captured elsewhere.")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to write: a file (- for standard output); a folder for csv, parquet or several files.",
)
@click.option("--format", "style", type=click.Choice(FORMATS), default="html", show_default=True, help="What to write.")
@nsys_option
def report(files: tuple[Path, ...], output: Path | None, style: str, nsys: Path | None) -> None:
    """Make the report of files captured elsewhere.

    They may be a .nsys-rep (needs nsys), its SQLite export, a .ncu-rep, a CSV page of ncu, or a torch trace.

    Example: nightsight report train.sqlite -o train.html
    """
    from pipeline.workflow import render_files

    with _progress() as progress:
        written = list(render_files(files, output, style=style, nsys=nsys, progress=progress))
    for path in written:
        click.echo(f"report: {path}")


@main.command(short_help="Print the tables of `nsys stats`.")
@click.argument("file", type=_FILE)
@click.option(
    "-r",
    "--report",
    "reports",
    multiple=True,
    required=True,
    metavar="REPORT[:ARGUMENT]",
    help="As `nsys stats` names it; again, or after a comma, for several.",
)
@click.option("--format", "style", type=click.Choice(["csv", "table", "json"]), default="table", show_default=True)
@click.option("--timeunit", default="ns", show_default=True, metavar="UNIT", help="ns, us, ms or s.")
@click.option("--filter-time", default="", metavar="START/END", help="Only events in this time: 1.5s/2s, 300ms/.")
@click.option("--filter-nvtx", default="", metavar="RANGE[@DOMAIN][/INDEX]", help="Only events in the time of a range.")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="PREFIX",
    help="Write PREFIX_REPORT.csv and so on; . is the captured file's own name, - standard output.  [default: -]",
)
@nsys_option
def stats(file: Path, **options: Any) -> None:  # noqa: ANN401
    """Print the tables of `nsys stats`, to the digit, without nsys.

    \b
    Examples:
      nightsight stats train.sqlite -r cuda_gpu_kern_sum --format csv
      nightsight stats train.sqlite -r cuda_gpu_kern_sum:base,nvtx_kern_sum --filter-nvtx step/3 --format csv -o .
    """
    from pipeline.stats import Selection
    from pipeline.workflow import print_stats, profile_of

    reports = [report for given in options["reports"] for report in given.split(",")]
    named = {name: options[name] for name in ("style", "timeunit", "filter_time", "filter_nvtx")}
    output = options["output"]
    with _progress() as progress, profile_of(file, nsys=options["nsys"], progress=progress) as profile:
        texts = list(print_stats(profile, Selection(reports, **named), path=file, output=output))
    for finding in profile.findings:
        click.echo(f"Warning: {finding.title}. {finding.detail}", err=True)
    click.echo(("\n" if output == "-" else "").join(texts), nl=False)


@main.command(short_help="List the workloads.")
def workloads() -> None:
    """List the workloads that `profile` knows by name.

    Example: nightsight workloads
    """
    from pipeline.collect.workloads import registered

    for workload in registered():
        click.echo(f"{workload.name:14}{workload.summary}\n{'':14}{workload.options}")


@main.command(short_help="Check this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@nsys_option
def doctor(*, as_json: bool, nsys: Path | None) -> None:
    """Check what profiling needs on this machine, and say what to do about what is missing.

    Example: nightsight doctor
    """
    from dataclasses import asdict
    from json import dumps

    from pipeline.collect.doctor import examine

    checks = examine(nsys=nsys)
    if as_json:
        click.echo(dumps([asdict(check) for check in checks], indent=1))
        return
    for check in checks:
        click.echo(f"{check.status:8} {check.name:12} {check.detail}")
        if check.remedy:
            click.echo(f"{'':22}{check.remedy}")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show what is being done: a live line on a terminal, plain lines elsewhere, always on stderr."""
    if not sys.stderr.isatty():
        yield lambda message: click.echo(f"{message} ...", err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
