"""The kinds of failure that users can meet, each with the exit code of the command."""


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


class CaptureError(PipelineError):
    """A file cannot be read as a capture, or a place cannot be written to."""


class NotMeasured(PipelineError):
    """What was to be compared could not be measured, so nothing is known of it."""


class MissingTable(PipelineError):
    """The events of a requested result were not captured."""
