"""Commands of nightsight as child processes, which are waited for for a while and asked about later.

A child has its own process group, no input, and files for its output: a server whose standard output is a protocol
stays undisturbed, and a child that is told to stop can save what it has recorded after the server has ended.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from nightsight.system.scratch import scratch

# of this Python, but without the modules of the folder that the command runs in
_NIGHTSIGHT: Final = (sys.executable, "-P", "-m", "nightsight")
# Linux tells a child that its parent has ended in any way (PR_SET_PDEATHSIG): it ends like after Ctrl-C
_ORPHANED: Final = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
_POLL_S: Final = 0.05
_PROGRESS: Final = " ..."
_MEASURING: Final = ("profile-", "prove-")
_USAGE: Final = ("Usage: ", "Try 'nightsight ")


@dataclass
class Job:
    """A command that runs, or has ended. folder: the files of its output. is_told: it was asked to end."""

    id: str
    process: subprocess.Popen[bytes]
    folder: Path
    began_s: float = field(default_factory=time.monotonic)
    is_told: bool = False

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self.process.poll()

    @property
    def output(self) -> str:
        """What it has printed on standard output."""
        return self._text("out")

    @property
    def messages(self) -> list[str]:
        """What it has said on standard error, without progress and usage."""
        lines = (line for line in self._text("err").splitlines() if line and not line.endswith(_PROGRESS))
        return [line for line in lines if not line.startswith(_USAGE)]

    @property
    def doing(self) -> str:
        """The last message of its progress."""
        lines = [line for line in self._text("err").splitlines() if line.endswith(_PROGRESS)]
        return lines[-1].removesuffix(_PROGRESS) if lines else ""

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8", errors="replace")

    async def ends_within(self, seconds: float) -> bool:
        """Wait for its end, and say whether it has ended."""
        with anyio.move_on_after(seconds):
            while self.status is None:
                await anyio.sleep(_POLL_S)
        return self.status is not None

    def stop(self) -> None:
        """Ask it to end like Ctrl-C: it then saves what it has recorded. A second signal would end it at once."""
        if self.status is None and not self.is_told:
            self.is_told = True
            self.process.terminate()


class Jobs:
    """The jobs of a server. state: the folder of their output."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._jobs: dict[str, Job] = {}

    def __getitem__(self, name: str) -> Job:
        """Return a job by its id; KeyError if there is none."""
        return self._jobs[name]

    def ids(self, command: str) -> list[str]:
        """Return the ids of the jobs of a command."""
        return [name for name in self._jobs if name.startswith(f"{command}-")]

    @property
    def measuring(self) -> Job | None:
        """The job that runs a program; None if none does. Two would compete for the GPU."""
        jobs = (job for name, job in self._jobs.items() if name.startswith(_MEASURING))
        return next((job for job in jobs if job.status is None), None)

    def start(self, words: Sequence[str]) -> Job:
        """Start a command, such as `profile train.py`."""
        name = f"{words[0]}-{len(self.ids(words[0])) + 1}"
        folder = self.state / name
        folder.mkdir()
        is_linux = sys.platform == "linux"
        before = (sys.executable, "-I", "-S", "-c", _ORPHANED, str(os.getpid())) if is_linux else ()
        with (folder / "out").open("wb") as output, (folder / "err").open("wb") as messages:
            process = subprocess.Popen(
                (*before, *_NIGHTSIGHT, *words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=messages,
                start_new_session=True,
            )
        self._jobs[name] = Job(name, process, folder)
        return self._jobs[name]

    def stop(self) -> None:
        """Ask all jobs to end. On Linux, they are asked when the server has ended."""
        for job in self._jobs.values() if sys.platform != "linux" else ():
            job.stop()


@contextmanager
def running_jobs() -> Iterator[Jobs]:
    """Keep jobs until the end, and then stop those that still run: nobody would hear of them."""
    with scratch() as state:
        jobs = Jobs(state)
        try:
            yield jobs
        finally:
            jobs.stop()
