"""Reads the settings files of a team, nightsight.toml and pyproject.toml: TOML in UTF-8."""

import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from nightsight.errors import UsageError
from nightsight.texts import did_you_mean

PYPROJECT: Final = "pyproject.toml"


def document_of(path: Path) -> Mapping[str, Any] | None:
    """Return the content of a file; None if it does not exist, or is a pyproject.toml without our name.

    UsageError if it is damaged, except for a pyproject.toml without our name.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    # in UTF-16, every other byte of our name is 0
    if path.name == PYPROJECT and b"nightsight" not in content.replace(b"\0", b""):
        return None
    if b"\0" in content:
        raise UsageError(f"{path} is not in UTF-8", "Save it in UTF-8, as TOML requires.")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not in UTF-8", "Save it in UTF-8, as TOML requires.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", "Correct it.") from error


def refuse_unknown(
    table: Mapping[str, object], allowed: Collection[str], prefix: str, refusal: Callable[[str, str], UsageError]
) -> None:
    """Raise `refusal(reason, hint)` if a key is unknown."""
    for key in table:
        if key not in allowed:
            raise refusal(f"unknown key {prefix + key!r}", f"{did_you_mean(key, allowed)}Known: {', '.join(allowed)}.")
