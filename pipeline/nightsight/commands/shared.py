"""What several commands share: options about captures, and what to print; memory."""

import sys
from pathlib import Path
from typing import Final

import click

TOOL: Final = click.Path(dir_okay=False, path_type=Path)
# M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX of malloc.h
_MALLOC: Final = {-1: 2**31 - 1, -4: 0, -8: 1}

input_option = click.option(
    "--max-input",
    type=click.IntRange(min=1),
    default=1_000_000_000,
    show_default=True,
    metavar="BYTES",
    help="Refuse torch.profiler traces larger than this, uncompressed. Reading takes about 5 times the size in memory.",
)
window_option = click.option(
    "--window",
    default="auto",
    show_default=True,
    metavar="auto|whole|RANGE[@DOMAIN][/FIRST:LAST]|START/END",
    help="The part that the report is about. auto: the range `measure`, else the steady part: the repetitions of the "
    "program's loop, without its slow beginning. RANGE: all ranges of that name, or those from FIRST to LAST, counted "
    "from 0 in each process: step/10:19. START/END: a span in the time of the capture: 1.2s/3s.",
)
workload_option = click.option(
    "--workload", default="", metavar="NAME", help="What captures are of that were not made by nightsight profile."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print only what scripts read, and errors: no progress and no summary."
)
nsys_option = click.option("--nsys", type=TOOL, metavar="PATH", help="The nsys to use (default: detected).")


def keep_memory() -> None:
    """Reuse the memory of freed arrays: glibc returns large ones to the system, which must then zero new pages.

    For short-lived commands only, since memory use stays at its peak. Has no effect without glibc.
    """
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        for option, value in _MALLOC.items():
            set_option(option, value)
