"""The command line: Click commands and options, and the one place that maps the end of a command to an exit status.

Heavy imports wait until a command runs, so that `--help` does not load pandas.
"""

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from nightsight.commands.agents import mcp, skill
from nightsight.commands.captures import prune, sanitize
from nightsight.commands.ci import ci
from nightsight.commands.compare import compare
from nightsight.commands.completion import completion, statistics
from nightsight.commands.console import PROGRESS, put, say, show_progress, show_report
from nightsight.commands.fleet import fleet
from nightsight.commands.help import ProfileCommand, SectionedGroup, fit_help
from nightsight.commands.history import history
from nightsight.commands.prove import prove
from nightsight.commands.shared import (
    TOOL,
    input_option,
    local_names,
    local_option,
    nsys_option,
    prepare_libraries,
    quiet_option,
    reports_option,
    target_argument,
    trace_option,
    verbose_option,
    window_option,
    with_options,
)
from nightsight.commands.show import show
from nightsight.commands.trials import AFTER_DASHES, ab, bisect
from nightsight.errors import CRASHED, Interrupted, MissingTable, NoMemory, PipelineError, ToolError, UsageError
from nightsight.options import (
    NAMES,
    RECORDED,
    Number,
    ProfileOptions,
    ReportOptions,
    StatsOptions,
    Words,
    command_line,
    completed,
    names,
    ncu_regex,
    no_empty_name,
    profile_endpoint,
    rank_numbers,
    ready_sign,
    standard_output,
)
from nightsight.progress import Reporter
from nightsight.system.crash import crash_line, naming_file, place_of
from nightsight.system.interrupts import recording_interrupts
from nightsight.version import VERSION

if TYPE_CHECKING:
    from nightsight.model.prove import ProofReport
    from nightsight.runs.layout import Turn
    from nightsight.workflows.opening import Reading
    from nightsight.workflows.report import WrittenReport

FORMATS: Final = ("html", "json", "csv", "parquet", "markdown", "brief", "brief.json", "svg", "perfetto", "speedscope")
_CLOSED: Final = 141
"""The exit status if the reader closes the output: what shells report for SIGPIPE, which Windows lacks."""
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class _ExitStatusGroup(SectionedGroup):
    """Turns each way a command can end into an exit status (docs/command-line.md) and an error message."""

    def invoke(self, ctx: click.Context) -> None:
        status = 0
        with recording_interrupts() as signals:
            try:
                super().invoke(ctx)
                sys.stdout.flush()
            except click.exceptions.Exit as ending:
                status = ending.exit_code
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (every error has an exit status)
                status, lines = _explain(error, ctx, signals)
                # stderr may be closed
                with suppress(OSError):
                    say(*lines, err=True)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # Python would retry at exit, complain, and exit with 120
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # even if a report was written: callers must not take it for a report of the whole run
        ctx.exit(128 + signals[0] if signals else status)


def _explain(error: BaseException, ctx: click.Context, signals: Sequence[int]) -> tuple[int, list[str]]:
    """Return the exit status of a command that raised an exception, and the lines of its message."""
    trace = "".join(traceback.format_exception(error)).splitlines() if ctx.params["debug"] else []
    progress = ctx.meta.get(PROGRESS)
    doing = progress.doing if progress and progress.doing else f"nightsight {ctx.invoked_subcommand}"
    if isinstance(error, click.ClickException):
        # Click's own usage message, which repeats the command line
        error.show(words := StringIO())
        return error.exit_code, [*trace, *words.getvalue().rstrip("\n").split("\n")]
    if isinstance(error, MemoryError):
        error = NoMemory(place_of(error, doing))
    if isinstance(error, PipelineError):
        hint = f"Hint: {error.hint}".split("\n") if error.hint else []
        return error.exit_code, [*trace, f"Error: {error.message}", *hint]
    if signals or isinstance(error, KeyboardInterrupt):
        return Interrupted.exit_code, [*trace, "Error: interrupted"]
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        # the reader closed the pipe
        return _CLOSED, trace
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return PipelineError.exit_code, [*trace, "Error: cannot write to standard output: no space left on device"]
    assert isinstance(error, Exception)
    return CRASHED, [*trace, f"Error: {crash_line(error, doing)}"]


def _ncu_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for kernel replay."""
    count, above_zero = click.IntRange(min=1), Number(min=0, min_open=True)
    share = Number(0, 100, min_open=True)
    option = partial(click.option, show_default=True)
    several = partial(
        click.option,
        multiple=True,
        metavar="NAME,...",
        callback=no_empty_name,
        help="Collect these instead of the default set.",
    )
    decorators = (
        click.option("--ncu", type=TOOL, metavar="PATH", help="Path of ncu (default: detected)."),
        click.option("--no-ncu", is_flag=True, help="Do not replay kernels with ncu after the nsys run."),
        option("--ncu-coverage", type=share, default=90, metavar="PERCENT", help=_COVERAGE),
        option("--ncu-kernels", type=count, default=12, metavar="N", help=_MOST),
        option("--ncu-launches", type=count, default=1, metavar="N", help="Replay this many launches of each kernel."),
        click.option("--ncu-kernel", default="", metavar="REGEX", callback=ncu_regex, help=_KERNEL),
        click.option("--ncu-range", default="", metavar="NAME", help="Replay only work in this NVTX push/pop range."),
        click.option("--ncu-all", is_flag=True, help="Replay every kernel, grid and block. No limit."),
        click.option(
            "--ncu-set", metavar="SET", callback=no_empty_name, help="Section set to collect.  [default: full]"
        ),
        several("--ncu-sections"),
        several("--ncu-metrics"),
        option(
            "--ncu-budget",
            type=above_zero,
            default=300,
            metavar="SECONDS",
            help="Time limit of the replay. Results collected until then are kept.",
        ),
        option("--clock-control", type=click.Choice(["none", "base", "reset"]), default="none", help=_CLOCKS),
        option("--cache-control", type=click.Choice(["all", "none"]), default="all", help=_CACHES),
        option("--replay-mode", type=click.Choice(_MODES), default="kernel", help=_AGAIN),
        option("--graph-profiling", type=click.Choice(["node", "graph"]), default="node", help=_GRAPHS),
    )
    return with_options(command, *decorators)


def _part_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that record only part of a run."""
    seconds = partial(click.option, metavar="SECONDS")
    decorators = (
        seconds("--delay", type=Number(min=0), help="Start recording this long after the program starts (nsys)."),
        seconds("--duration", type=Number(min=0, min_open=True), help=_DURATION),
        click.option("--server", default="", metavar="COMMAND", callback=command_line, help=_SERVER),
        click.option("--ready", default="", metavar="URL|PORT|TEXT", callback=ready_sign, help=_READY),
        click.option("--client", default="", metavar="COMMAND", callback=command_line, help=_CLIENT),
        seconds("--ready-timeout", type=Number(min=0, min_open=True), default=600, help=_READY_WITHIN),
        click.option("--start-profile", default="", metavar="URL", callback=profile_endpoint, help=_START_PROFILE),
    )
    return with_options(command, *decorators)


_DURATION: Final = "Record for this long (nsys). The program keeps running until it ends or --timeout."
_SERVER: Final = (
    "Profile this server with nsys while --client loads it: start it, wait until it is ready, record until the client "
    "exits, and stop it."
)
_READY: Final = (
    "How to tell that the server is ready: a URL that answers 2xx, a port or HOST:PORT that accepts connections, or "
    "text that it prints."
)
_CLIENT: Final = "The command that loads the server. Add its result file with --attach."
_READY_WITHIN: Final = "How long to wait for the server.  [default: 600]"
_START_PROFILE: Final = (
    "POST to this URL (.../start_profile) when recording starts, and to .../stop_profile when it stops: vLLM and "
    "SGLang then name their steps."
)
_COVERAGE: Final = "Replay the fewest kernels (by name, grid and block) that cover this share of the GPU time."
_MOST: Final = "Replay at most this many kernels, even if --ncu-kernel matches more."
_KERNEL: Final = "Replay kernels whose base name matches this regular expression anywhere."
_CLOCKS: Final = "How ncu controls the GPU clocks."
_CACHES: Final = "Whether ncu flushes the GPU caches before each replay pass."
_MODES: Final = ("kernel", "application", "range", "app-range")
_AGAIN: Final = (
    "How ncu repeats the work. application: rerun the whole program. range: replay --ncu-range, or everything between "
    "cudaProfilerStart and cudaProfilerStop, as one unit."
)
_GRAPHS: Final = "node: replay single kernels, including those of CUDA graphs. graph: replay only whole graphs."

_AS_TEXT: Final = (
    "CSV contains names unchanged. In a spreadsheet, import them as text, or a name like =1+1 becomes a formula."
)
attach_option = click.option(
    "--attach",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="RESULTS.json",
    help="Result file of a serving benchmark (vLLM, TensorRT-LLM, SGLang, aiperf), log of requests, or log of an "
    "engine. Adds throughput, TTFT, TPOT and other latencies to the report, what requests wait for, and how full the "
    "KV cache is. Repeat the option for several files.",
)


def _torch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of torch.profiler."""
    option = partial(click.option, show_default=True)
    natural, count = click.IntRange(min=0), click.IntRange(min=1)
    several = partial(click.option, multiple=True, metavar="NAME", callback=no_empty_name)
    words = partial(click.option, default=(), metavar="WORD,...")
    decorators = (
        click.option("--active", type=count, metavar="N", help=_ACTIVE),
        option("--wait", type=natural, default=0, metavar="N", help="With --active: skip this many steps first."),
        option("--warmup", type=natural, default=1, metavar="N", help=_WARMUP),
        option("--cycles", type=natural, default=1, metavar="N", help=_CYCLES),
        click.option("--step-range", default="", metavar="NAME", help=_STEP_RANGE),
        several("--skip-range", help=_SKIP_RANGE),
        words("--record", type=Words(RECORDED, everything=RECORDED[:-1], others=_OF_TORCH), help=_RECORD),
        words("--activities", type=Words(("cpu", "cuda")), help=_ACTIVITIES),
    )
    return with_options(command, *decorators)


_OF_TORCH: Final = {
    "record_shapes": "Use shapes.",
    "with_stack": "Use stack.",
    "profile_memory": "Use memory.",
    "with_modules": "Use modules.",
    "flops": "torch does not write FLOPs to traces. Record shapes instead.",
    "with_flops": "torch does not write FLOPs to traces. Record shapes instead.",
}
_ACTIVE: Final = (
    "Record this many steps with torch.profiler, then end the program. Steps are detected from a range named step, the "
    "optimizer, or calls of the model (default: record the whole run)."
)
_WARMUP: Final = "With --active: then run the profiler for this many steps without recording."
_CYCLES: Final = "With --active: repeat this many times, with one trace per cycle. 0: until the program ends."
_STEP_RANGE: Final = "The NVTX or record_function range that marks a step, for torch.profiler."
_SKIP_RANGE: Final = "Record nothing in this range, such as data generation (torch.profiler, torch 2.5 or later)."
_RECORD: Final = (
    "What torch.profiler records in addition to its default: shapes, stack, memory, modules, sync, or all of these. "
    "threads: operators of all threads, without memory. stack makes traces large."
)
_ACTIVITIES: Final = "What torch.profiler records: cpu, cuda (default: all available)."

_python_option = click.option(
    "--python",
    metavar="PATH",
    help="Python for workloads and scripts (default: the active environment's, else python3 on PATH, or nightsight's "
    "own if that Python lacks what the program imports).",
)
_workloads_option = click.option(
    "--workloads",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of your workloads. Each script in it is a workload (default: [tool.nightsight] in the nearest "
    "pyproject.toml).",
)


@click.group(cls=_ExitStatusGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the traceback of any error.")
@click.version_option(VERSION, prog_name="nightsight")
def main(*, debug: bool) -> None:
    """Profile GPU workloads with nsys, ncu or torch.profiler, and turn captures into one report.

    Example: nightsight profile mlp
    """


@main.command(cls=ProfileCommand, options_metavar="[OPTIONS]", short_help="Profile a workload, script or command.")
@target_argument
@click.option(
    "--collector",
    type=click.Choice(["auto", "nsys", "ncu", "torch"]),
    default="auto",
    show_default=True,
    help="auto: nsys, then ncu, if the machine has a GPU and nsys; otherwise torch.profiler.",
)
@nsys_option
@trace_option
@click.option(
    "--capture-range",
    type=click.Choice(["auto", "cudaProfilerApi", "nvtx", "none"]),
    default="auto",
    show_default=True,
    help="What nsys records. auto: the measured part of built-in workloads, the whole run of other programs.",
)
@click.option(
    "--gpu-metrics", is_flag=True, help="Sample GPU metrics with nsys (needs permission to read the counters)."
)
@click.option(
    "--python-backtrace", is_flag=True, help="Record Python call stacks of copies, allocations and waits with nsys."
)
@click.option("--memory-usage", is_flag=True, help="Record every GPU memory allocation with nsys.")
@click.option("--page-faults", is_flag=True, help="Record page faults of managed memory with nsys.")
@click.option(
    "--names",
    default="auto",
    show_default=True,
    metavar="auto|off|NAME,...",
    shell_complete=completed("auto", "off", *NAMES),
    callback=names,
    help="Which parts of a Python program to annotate in nsys: modules by their path in the model, operators, shapes "
    "(operators with shapes), python (functions and lines). auto: modules and python where they cost less than 2 % of "
    "the time. off: load nothing into the program. Built-in workloads have their own ranges.",
)
@click.option(
    "--isolate/--no-isolate",
    default=True,
    show_default=True,
    help="Run nsys in its own PID namespace if the system allows it: elsewhere, nsys also records the environment of "
    "other processes. Without it, a program sees its usual process ids.",
)
@click.option(
    "--calibrate/--no-calibrate",
    default=None,
    help="Measure the overhead that nsys adds to a CUDA call, with a small program that needs torch. By default, once "
    "per machine and nsys version (about 20 s).",
)
@click.option(
    "--time-steps/--no-time-steps",
    default=None,
    help="Run the program once more without a profiler and time its steps, so that gains apply to an unprofiled run. "
    "By default, for Python programs whose steps the capture shows; if the profiled run took more than a minute, the "
    "timed one ends after 15 s of steps. Workloads are always timed.",
)
@_part_options
@_ncu_options
@_torch_options
@click.option("--nsys-arg", multiple=True, metavar="ARG", help="Extra option for nsys profile.")
@click.option(
    "--keep-env",
    multiple=True,
    metavar="NAME",
    help="Pass this environment variable to the program. NAME* passes all that start with NAME, except likely secrets.",
)
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
    metavar="SECONDS",
    default=3600,
    help="Stop after this time (including the timing run) and keep what was captured. Saving can add 150 s, and a "
    "program that ignores signals 20 s.  [default: 3600]",
)
@attach_option
@_python_option
@_workloads_option
@window_option
@reports_option
@click.option(
    "--ranks",
    metavar="N,...",
    callback=rank_numbers,
    help="Under a launcher, record only these ranks. The others run unprofiled (docs/cluster.md).",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Repeat N times, each in its own process and run folder, for `nightsight compare`. ncu replays kernels only "
    "in the last run.",
)
@click.option(
    "--keep",
    type=click.Choice(["captures", "reports", "nothing"]),
    default="captures",
    show_default=True,
    help="What to keep of a successful run. captures: everything. reports: all except captures and logs. nothing: "
    "print the report as Markdown. Failed runs are kept.",
)
@click.option(
    "--stats",
    multiple=True,
    metavar="REPORT,...",
    shell_complete=statistics,
    callback=no_empty_name,
    help="Print these tables of `nsys stats` after the run, such as cuda_gpu_kern_sum,cuda_api_sum. true: those of "
    "nsys profile --stats=true.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["brief", "brief.json"]),
    help="Print the verdict and the top causes on standard output, as `report --format brief` does. The path of the "
    "report then goes to standard error.",
)
@local_option
@quiet_option
@verbose_option
@click.pass_context
def profile(ctx: click.Context, /, target: str | None, **values: Any) -> None:  # noqa: ANN401 (Click's; flat)
    """Run a workload, script or command under a profiler and write a report.

    Arguments after -- go to the program. Without a target before --, they are the command to run. The verdict, the top
    causes and the top kernels go to standard error, the path of the report to standard output.

    \b
    Examples:
      nightsight profile mlp -- --dim 512 --steps 50
      nightsight profile train.py -- --epochs 1
      nightsight profile --ncu-kernels 4 --ncu-set basic matmul
      nightsight profile --gpu-metrics --memory-usage train.py
      nightsight profile --names modules,shapes,python train.py
      nightsight profile --window whole train.py
      nightsight profile --time-steps train.py
      nightsight profile --stats cuda_gpu_kern_sum,cuda_api_sum train.py
      nightsight profile --workloads bench/ train
      nightsight profile --repeat 5 mlp
      nightsight profile --format brief train.py
      nightsight profile --collector torch --wait 5 --active 3 --record shapes,modules train.py
      nightsight profile -- torchrun --nproc-per-node 2 train.py
      srun nightsight profile --ranks 0,7 train.py           # on each rank of a job, but record two
      nightsight profile --delay 60 --duration 10 train.py
      nightsight profile --server "python serve.py" --ready 8000 --client "python load.py" --attach results.json
    """
    if sys.platform != "linux":
        raise ToolError("profiling needs Linux", "To view a capture made on Linux: nightsight report FILE")
    from nightsight.collect import needs_of
    from nightsight.collect.interpreter import interpreter
    from nightsight.collect.launched import run_unless_chosen
    from nightsight.collect.tools import withheld_variables
    from nightsight.collect.workloads import resolve
    from nightsight.workflows.profile import Plan
    from nightsight.workflows.trials import profile_repeatedly

    rest = ctx.meta[AFTER_DASHES]
    options = ProfileOptions(**values)
    if bool(options.server) == bool(target or rest):
        other = "--server is the program to profile. Don't name another one."
        raise click.UsageError(other if rest or target else "Name a workload or script, or give a command after `--`.")
    options.refuse_contradictions(
        [name for name in values if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    )
    collector = options.chosen_collector
    python = interpreter(options.python, partial(needs_of, collector, target, options.workloads, options.nsys))
    program = resolve(target, options.server or rest, python=python.path, folder=options.workloads)
    run_unless_chosen(program.command, options.ranks)
    is_run_by_it = program.command[0] == python.path
    parameters = {"interpreter": python.reason} if is_run_by_it and not python.is_own else {}
    if is_run_by_it and python.remark and not options.quiet:
        say(python.remark, err=True)
    if (unseen := withheld_variables(options.keep_env)) and not options.quiet:
        say(f"Not passed to the program: {', '.join(unseen)}. To pass one: --keep-env NAME", err=True)
    with show_progress(is_quiet=options.quiet) as progress:
        show = _show_function(options, progress)
        plan = Plan(program, collector, options.reports, parameters, options.window, options.attach, show=show)
        for output in profile_repeatedly(plan, options.request(progress), options.repeat, keep=options.keep):
            with progress.paused():
                # a path, or all of a report as Markdown, which a brief replaces
                if not (options.style and options.keep == "nothing"):
                    say(*output.split("\n"), err=bool(options.style))


def _show_function(options: ProfileOptions, progress: Reporter) -> "Callable[[WrittenReport, Turn], None]":
    """Return the function that prints tables and first screen of a run; for repeats before the last, only one line.

    A brief, if asked for, replaces the screens. Raise UsageError for an unknown table.
    """
    from nightsight.progress import silent
    from nightsight.read import MOST_BYTES
    from nightsight.render import FORMATS as RENDERED
    from nightsight.render import Source
    from nightsight.workflows.opening import Reading

    tables = options.tables
    local = local_names(options.style, is_local=options.is_local)

    def show(written: "WrittenReport", turn: "Turn") -> None:
        with progress.paused():
            if tables and written.file:
                _print_tables(written.file, tables, Reading(options.nsys, MOST_BYTES, silent))
            is_followed = 0 <= turn.order < options.repeat - 1
            if options.style:
                if not is_followed:
                    put(RENDERED[options.style].render(Source(written.report, local=local))[""].decode())
            elif not options.quiet and options.keep != "nothing":
                show_report(written.report, is_brief=is_followed, local=local)

    return show


def _print_tables(file: Path, tables: Sequence[str], reading: "Reading") -> None:
    """Print tables of `nsys stats` on standard output; tables that fail are reported, and do not fail the run."""
    from nightsight.stats import Selection, details_of
    from nightsight.workflows.opening import profile_of
    from nightsight.workflows.stats import print_stats

    selection = Selection(tables, style="table")
    try:
        with profile_of(file, reading, details=details_of(selection)) as profile:
            for report, text in print_stats(profile, selection, path=file, output="-", skip=_say_skipped):
                say(f"{report}:", "")
                put(f"{text}\n")
    except PipelineError as error:
        say(f"--stats: {error.message}", err=True)


def _say_skipped(report: str, reason: str) -> None:
    say(f"Skipped {report}: {reason}", err=True)


@main.command(short_help="Create reports from captures or run folders.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="PATH",
    callback=standard_output,
    help="Output file (- for standard output) or folder. A folder: a path that exists as one or ends in /, and any "
    "path for csv, parquet or several reports.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    help=f"Output format (default: from the file name extension, otherwise html). {_AS_TEXT}",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=200_000),
    default=1_500_000,
    show_default=True,
    metavar="N",
    help="Size limit of the page. The timeline is as detailed as this allows.",
)
@click.option(
    "--assets",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write styles and scripts to this folder, for servers that forbid inline ones (Jenkins).",
)
@click.option("--apart", "is_per_file", is_flag=True, help="Write one report per rank of a job.")
@click.option(
    "--graphs",
    type=_FILE,
    metavar="CAPTURE",
    help="Another nsys capture, in which the program creates its CUDA graphs: of the same process, or of another run. "
    "Kernels of graphs then get the ranges and operators in which they were captured.",
)
@click.option(
    "--prove",
    type=_FILE,
    metavar="PROOF.json",
    help="Proof of this program by `nightsight prove`: adds the measured gains of fixes to the causes.",
)
@local_option
@window_option
@attach_option
@input_option
@nsys_option
@quiet_option
def report(files: tuple[Path, ...], **values: Any) -> None:  # noqa: ANN401
    """Create reports from captures or run folders.

    Reads .nsys-rep files (needs nsys), their SQLite exports, .ncu-rep files, ncu CSV pages, and torch traces. In a run
    folder, it reads the capture, or report.json if the capture was not kept. Each file gets a report; captures of ranks
    that communicate get one report for the whole job. The verdict, the top causes and the top kernels go to standard
    error (one line each for several reports), the paths of the reports to standard output.

    \b
    Examples:
      nightsight report train.sqlite -o train.html
      nightsight report reports/mlp/latest --window whole
      nightsight report train.sqlite --format csv -o tables/
      nightsight report train.sqlite --window step/10:19
      nightsight report rank*.json.gz -o job.html            # one report of all ranks
      nightsight report train.nsys-rep --format perfetto     # for ui.perfetto.dev
      nightsight report vllm.sqlite --attach results.json
      nightsight report serving.sqlite --graphs startup.sqlite
      nightsight report train.sqlite -o site/train.html --assets site/assets
      nightsight report reports/train/latest --prove reports/train/proof/proof.json
      nightsight report train.sqlite --format brief --local-paths
    """
    prepare_libraries()
    from nightsight.system.fork import fork_allowed
    from nightsight.workflows.opening import Reading
    from nightsight.workflows.report import Output, render_files

    options = ReportOptions(**values)
    output_name = options.output or ""
    path, is_folder = Path(output_name) if output_name else None, output_name.endswith("/")
    local = local_names(options.style, is_local=options.is_local)
    output = Output(path, options.style or "", options.max_bytes, options.assets, is_folder, local)
    with show_progress(is_quiet=options.quiet) as progress, fork_allowed():
        reading = Reading(
            options.nsys,
            options.max_input,
            progress,
            options.window,
            options.attach,
            options.is_per_file,
            options.graphs,
        )
        for rendered in render_files(files, output, reading, proofs=_proofs(options.prove)):
            with progress.paused():
                if not options.quiet:
                    with naming_file(rendered.file or rendered.path, "writing the first screen"):
                        show_report(rendered.report, is_brief=rendered.is_one_of_several, local=local)
                say(f"report: {rendered.path}")


def _proofs(path: Path | None) -> "ProofReport | None":
    """Return the proofs of fixes."""
    if path is None:
        return None
    from nightsight.model.prove import ProofReport

    return ProofReport.from_json(path.read_bytes())


@main.command(short_help="Print the tables of `nsys stats`.")
@click.argument("file", type=_FILE)
@click.option(
    "-r",
    "--report",
    "reports",
    multiple=True,
    callback=no_empty_name,
    metavar="REPORT[:ARGUMENT]",
    shell_complete=statistics,
    help="Report name as in `nsys stats`. For several, repeat the option or separate names with commas (default: those "
    "of `nsys stats`).",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["csv", "table", "json"]),
    default="table",
    show_default=True,
    help=_AS_TEXT,
)
@click.option("--timeunit", default="ns", show_default=True, metavar="UNIT", help="ns, us, ms or s.")
@click.option("--filter-time", default="", metavar="START/END", help="Only events in this time span: 1.5s/2s, 300ms/.")
@click.option("--filter-nvtx", default="", metavar="RANGE[@DOMAIN][/INDEX]", help="Only events during this NVTX range.")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="PREFIX",
    callback=standard_output,
    help="Write PREFIX_REPORT.csv and so on. PREFIX . uses the name of the capture file; - writes to standard output."
    "  [default: -]",
)
@input_option
@nsys_option
def stats(file: Path, **values: Any) -> None:  # noqa: ANN401
    """Print the tables of `nsys stats`, digit for digit, without nsys.

    \b
    Examples:
      nightsight stats train.sqlite
      nightsight stats train.sqlite -r cuda_gpu_kern_sum --format csv
      nightsight stats train.sqlite -r cuda_gpu_kern_sum:base,nvtx_kern_sum --filter-nvtx step/3 --format csv -o .
    """
    prepare_libraries()
    from nightsight.stats import OF_NSYS_ALONE, details_of
    from nightsight.workflows.opening import Reading, profile_of
    from nightsight.workflows.stats import print_stats

    options = StatsOptions(**values)
    selection = options.selection
    skipped: list[tuple[str, str]] = []
    skip = None if options.reports else lambda *reason: skipped.append(reason)
    with (
        show_progress() as progress,
        profile_of(file, Reading(options.nsys, options.max_input, progress), details=details_of(selection)) as profile,
    ):
        tables = list(print_stats(profile, selection, path=file, output=options.output, skip=skip))
    for finding in profile.findings:
        say(f"Warning: {finding.title}. {finding.detail}", err=True)
    for report, reason in skipped:
        _say_skipped(report, reason)
    if skip:
        say(f"Skipped, not supported by nightsight: {', '.join(OF_NSYS_ALONE)}", err=True)
    if not tables:
        raise MissingTable(f"{file.name} has none of the tables of `nsys stats`", "Try: nightsight report")
    is_titled = options.output == "-" and options.style == "table" and len(tables) > 1
    texts = [f"{report}:\n\n{text}" if is_titled else text for report, text in tables]
    put(("\n" if options.output == "-" else "").join(texts))


for _command in (show, compare, ab, bisect, prove, history, fleet, ci, mcp, skill, completion, sanitize, prune):
    main.add_command(_command)


@main.command(short_help="List the workloads.")
@_workloads_option
def workloads(*, workloads: Path | None) -> None:
    """List the workloads that `profile` can run by name, yours first.

    Example: nightsight workloads
    """
    from nightsight.collect.own import own_workloads
    from nightsight.collect.workloads import registered_workloads

    own = {workload.name: workload for workload in own_workloads(workloads)}
    for custom in own.values():
        say(f"{custom.name:16}{custom.summary}", f"{'':16}{shlex.join((str(custom.script), *custom.arguments))}")
    for workload in registered_workloads():
        if workload.name not in own:
            say(f"{workload.name:16}{workload.summary}", f"{'':16}{workload.options}")


@main.command("init-workload", short_help="Create your own workload.")
@click.argument("name")
@_workloads_option
def init_workload(*, name: str, workloads: Path | None) -> None:
    """Write NAME.py, a working script for your code, with comments.

    It goes to the folder of your workloads if there is one, otherwise to the current folder.

    \b
    Examples:
      nightsight init-workload train
      nightsight init-workload --workloads bench/ train
    """
    from nightsight.collect.own import own_workloads, write_workload
    from nightsight.collect.workloads import registered_workloads

    path = write_workload(name, workloads, {"sample", *(workload.name for workload in registered_workloads())})
    is_known = name in {workload.name for workload in own_workloads(workloads)}
    chosen = f"--workloads {shlex.quote(str(workloads))} " if workloads else ""
    say(f"script: {path}")
    say(f"run it: nightsight profile {f'{chosen}{name}' if is_known else shlex.quote(str(path))}")


@main.command(short_help="Print the JSON Schema of a format.")
@click.argument("name", default="", metavar="[NAME]")
def schema(*, name: str) -> None:
    """Print the JSON Schema of a JSON format; without a name, list the formats.

    \b
    Examples:
      nightsight schema
      nightsight schema report > report.schema.json
    """
    from nightsight.texts import did_you_mean
    from nightsight.workflows.schemas import FORMATS as SCHEMAS
    from nightsight.workflows.schemas import schema_text

    if name and name not in SCHEMAS:
        raise UsageError(f"{name} is not a JSON format", f"{did_you_mean(name, SCHEMAS)}All: {', '.join(SCHEMAS)}")
    if name:
        put(schema_text(name))
        return
    for each, form in SCHEMAS.items():
        say(f"{each:18}{form.version or '-':<3}{form.title}")


@main.command(short_help="Check this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@nsys_option
@_python_option
def doctor(*, as_json: bool, nsys: Path | None, python: str | None) -> None:
    """Check whether this machine can profile, how to fix what is missing, and what works without it.

    Example: nightsight doctor
    """
    from dataclasses import asdict
    from json import dumps

    from nightsight.collect.doctor import abilities, examine

    checks = examine(nsys=nsys, python=python)
    if as_json:
        put(f"{dumps([asdict(check) for check in checks], indent=1)}\n")
        return
    for check in checks:
        say(f"{check.status:8} {check.name:12} {check.detail}")
        if check.remedy:
            say(f"{'':22}{check.remedy}")
    say("", "On this machine you can")
    for ability in abilities(checks):
        lacking = f" (needs: {', '.join(ability.missing)})" if ability.missing else ""
        say(f"  {'no ' if lacking else 'yes'}  {ability.name}{lacking}")


fit_help(main)
