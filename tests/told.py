"""A `Progress` for tests: it notes what it is told."""

from nightsight.progress import Progress


def noted(said: list[str]) -> Progress:
    """Append every message to a list."""

    def note(message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        said.append(message)

    return note
