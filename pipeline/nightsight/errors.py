"""The kinds of failure a user can meet, each with the exit code it ends the command with."""


class PipelineError(Exception):
    """Something the user can act on: `message` says what happened, `hint` what to do about it."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PipelineError):
    """What was asked for cannot be: an unknown workload, a script that is not there."""

    exit_code = 2


class ToolError(PipelineError):
    """A profiler is absent, too old, broken or not permitted to work."""


class WorkloadError(PipelineError):
    """The profiled program itself failed; ours did not."""

    exit_code = 1


class CaptureError(PipelineError):
    """A file that cannot be read as a capture, or a place that cannot be written to."""


class MissingTable(PipelineError):
    """A result was asked for whose events were not captured."""
