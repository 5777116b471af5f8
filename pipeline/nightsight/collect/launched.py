"""Which rank of a job this process is, as launchers tell those that they start: torchrun, Slurm, and MPI."""

import os
import sys
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from nightsight.errors import UsageError, WorkloadError


class Launched(NamedTuple):
    """A rank, of how many, which launcher says so, and on which of its machines, counted from 0; None if unknown."""

    rank: int
    world_size: int
    source: str
    node: int | None = None


# the innermost launcher first: torchrun can be started by Slurm
_LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE", "torchrun", "GROUP_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", "Slurm", "SLURM_NODEID"),
)


def launched(environment: Mapping[str, str] = os.environ) -> Launched | None:
    """Return which rank this process is; None if nothing says so, or it is the only one."""
    for rank, size, source, node in _LAUNCHERS:
        told = [_number(environment.get(name, "")) for name in (rank, size, node)]
        if told[0] is not None and told[1] is not None:
            found = Launched(told[0], told[1], source, told[2])
            if found.rank < found.world_size and found.world_size > 1:
                return found
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def run_unless_chosen(command: tuple[str, ...], ranks: Collection[int] | None) -> None:
    """Become the program, without a profiler, if this is a rank that is not to be recorded; all are if None.

    UsageError if nothing tells which rank this is; WorkloadError if the program cannot be started.
    """
    if ranks is None:
        return
    told = launched()
    if told is None:
        variables = ", ".join(name for name, *_ in _LAUNCHERS)
        raise UsageError(
            "nothing tells which rank this is, for --ranks",
            f"Start nightsight on each rank by torchrun --no-python, srun or mpirun, which set one of {variables}.",
        )
    if told.rank in ranks:
        return
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)  # noqa: S606 (the user's own program)
    except OSError as error:
        raise WorkloadError(f"cannot run {command[0]}: {error.strerror}") from error
