"""A `Progress` for tests that keeps its messages."""

from nightsight.progress import Progress


def progress_into(messages: list[str]) -> Progress:
    """Append every message to a list."""

    def note(message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        messages.append(message)

    return note
