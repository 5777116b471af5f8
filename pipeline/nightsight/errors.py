"""The failures that users can see, each with the exit status of the command (docs/command-line.md)."""

from typing import Final

CRASHED: Final = 70
"""The exit status of a bug: EX_SOFTWARE of sysexits.h. Python's own is 1, which a gate reads as a regression."""


class PipelineError(Exception):
    """A failure that the user can act on: `message` says what happened, `hint` what to do."""

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
    """A signal ended the command; the message says what is kept. The command line knows the signal."""

    exit_code = 130


class CaptureError(PipelineError):
    """A file cannot be read as a capture, or a location cannot be written."""


class NotMeasured(PipelineError):
    """A side of a comparison could not be measured, so there is no result."""


class MissingTable(PipelineError):
    """The events of a requested result were not captured."""


class NoMemory(PipelineError):
    """There is too little memory: neither the capture nor nightsight is broken."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"not enough memory {where}",
            "A report needs 5 times the uncompressed size of a trace, and 8 times that of an .sqlite. Use a machine "
            "with more memory, raise the memory limit (ulimit -v, the container's), or capture fewer steps.",
        )
