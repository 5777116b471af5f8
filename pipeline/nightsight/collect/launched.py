"""Which rank of a job this process is, from variables of launchers: torchrun, Slurm, and MPI."""

import os
import sys
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from nightsight.errors import UsageError, WorkloadError


class LaunchedRank(NamedTuple):
    """A rank, the world size, the launcher that set them, and the number of the machine, from 0; None if unknown."""

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


def launched_rank(environment: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """Return which rank this process is; None if unknown, or if it is the only one."""
    for rank, size, source, node in _LAUNCHERS:
        numbers = [_rank_number(environment.get(name, "")) for name in (rank, size, node)]
        if numbers[0] is not None and numbers[1] is not None:
            rank_of_process = LaunchedRank(numbers[0], numbers[1], source, numbers[2])
            if rank_of_process.rank < rank_of_process.world_size and rank_of_process.world_size > 1:
                return rank_of_process
    return None


def _rank_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def run_unless_chosen(command: tuple[str, ...], ranks: Collection[int] | None) -> None:
    """Replace this process with the unprofiled program unless its rank is in `ranks`; None means all ranks.

    Raise UsageError if the rank is unknown; WorkloadError if the program cannot be started.
    """
    if ranks is None:
        return
    this_rank = launched_rank()
    if this_rank is None:
        variables = ", ".join(name for name, *_ in _LAUNCHERS)
        raise UsageError(
            "--ranks needs a launcher: the rank of this process is unknown",
            f"Start nightsight on each rank with torchrun --no-python, srun or mpirun, which set one of {variables}.",
        )
    if this_rank.rank in ranks:
        return
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)  # noqa: S606 (the user's own program)
    except OSError as error:
        raise WorkloadError(f"cannot run {command[0]}: {error.strerror}") from error
