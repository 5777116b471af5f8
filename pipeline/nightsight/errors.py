"""The kinds of failure that users can meet, each with the exit status of the command (docs/command-line.md)."""

from typing import Final

CRASHED: Final = 70
"""The exit status of a bug: EX_SOFTWARE of sysexits.h. Python's own is 1, which a gate takes for a regression."""


class PipelineError(Exception):
    """A failure that the user can act on: `message` says what happened, `hint` what to do about it."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PipelineError):
    """The request is invalid: an unknown workload, a script that does not exist."""

    exit_code = 2


class ToolError(PipelineError):
    """A profiler is missing, too old, broken or not permitted to run."""


class WorkloadError(PipelineError):
    """The profiled program failed; nightsight did not."""

    exit_code = 1


class Interrupted(PipelineError):
    """A signal has ended the command: the message says what is kept. The command line knows which signal it was."""

    exit_code = 130


class CaptureError(PipelineError):
    """A file cannot be read as a capture, or a place cannot be written to."""


class NotMeasured(PipelineError):
    """What was to be compared could not be measured, so nothing is known of it."""


class MissingTable(PipelineError):
    """The events of a requested result were not captured."""


class NoMemory(PipelineError):
    """There is too little memory: neither the capture nor nightsight is broken."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"not enough memory {where}",
            "A report takes 5 times the size of a trace (unpacked), and 8 times that of an .sqlite. Use a machine with "
            "more memory, raise the limit of this one (ulimit -v, the container's), or capture fewer steps.",
        )
