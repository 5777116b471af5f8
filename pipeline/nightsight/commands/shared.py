"""Shared by several commands: options for captures and output, and settings of libraries."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from nightsight.commands.completion import programs

TOOL: Final = click.Path(dir_okay=False, path_type=Path)
# M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX of malloc.h
_MALLOC: Final = {-1: 2**31 - 1, -4: 0, -8: 1}
_SWITCH_S: Final = 0.0005
_THREADS: Final = "OPENBLAS_NUM_THREADS"

input_option = click.option(
    "--max-input",
    type=click.IntRange(min=1),
    default=1_000_000_000,
    show_default=True,
    metavar="BYTES",
    help="Reject torch.profiler traces larger than this, uncompressed. Reading takes about 5 times the size in memory.",
)
window_option = click.option(
    "--window",
    default="auto",
    show_default=True,
    metavar="auto|whole|RANGE[@DOMAIN][/FIRST:LAST]|START/END",
    help="The part to report on. auto: the range `measure`, otherwise the steady part: the repetitions of the "
    "program's loop without its slow start. RANGE: all ranges of that name, or those from FIRST to LAST, counted from "
    "0 in each process: step/10:19. START/END: a time span of the capture: 1.2s/3s.",
)
workload_option = click.option(
    "--workload", default="", metavar="NAME", help="Workload of captures that nightsight profile did not make."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print only output for scripts and errors: no progress, no summary."
)
brief_option = click.option(
    "--format",
    "style",
    type=click.Choice(["brief", "brief.json"]),
    help="Print a brief of at most 3,000 bytes on standard output, for coding agents and people in a hurry, instead of "
    "the summary. The path of the page then goes to standard error.",
)
local_option = click.option(
    "--local-paths",
    "is_local",
    is_flag=True,
    help="In printed texts, name source files by their path below the current folder or in its repository: "
    "src/train.py:12 instead of train.py:12. Written files and JSON never have them.",
)
nsys_option = click.option("--nsys", type=TOOL, metavar="PATH", help="Path of nsys (default: detected).")
trace_option = click.option("--trace", default="cuda,nvtx", show_default=True, help="APIs that nsys traces.")
reports_option = click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    metavar="DIR",
    help="Folder for the runs.",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show the program's output.")
target_argument = click.argument(
    "target", required=False, metavar="[WORKLOAD|SCRIPT.py|PROGRAM] [-- ARGUMENTS]", shell_complete=programs
)


def local_names(style: str | None, *, is_local: bool) -> Callable[[str], str]:
    """Return what names source files in printed texts; UsageError for a format that is for other programs."""
    if not is_local:
        return str
    if style and style.endswith("json"):
        raise click.UsageError(
            "--local-paths is for texts: JSON has no paths of this machine, so that it can be shared."
        )
    from nightsight.workflows.local import LocalFiles

    return LocalFiles(Path.cwd()).named


def with_options(command: Callable[..., Any], *decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Add options and arguments to a command, in the order of its help."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def prepare_libraries() -> None:
    """Import numpy and pandas with the settings that are best for short-lived commands; call it before both.

    Memory of freed arrays is reused: glibc returns large ones to the system, which must then zero new pages. Memory use
    stays at its peak. Has no effect without glibc. Linear algebra has no threads: nothing here uses them, they get
    separate arenas, which others then share, and wait for work by spinning.

    Until the command ends, text in tables consists of Python's strings: a report has hundreds of small tables, for
    which Arrow's take longer. And a thread that runs Python code lets another continue sooner: operations on arrays
    take a millisecond, and the thread that made one would then wait for up to five.
    """
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        for option, value in _MALLOC.items():
            set_option(option, value)
    if _THREADS not in os.environ:
        # not for longer: programs that a command starts have their own settings
        os.environ[_THREADS] = "1"
        import numpy  # noqa: F401

        del os.environ[_THREADS]
    import pandas as pd

    context = click.get_current_context()
    context.with_resource(pd.option_context("mode.string_storage", "python"))
    context.call_on_close(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(_SWITCH_S)
