"""OpenMetrics: the name of the metrics of each unit, in the base units that Prometheus asks for."""

from collections.abc import Callable, Iterable
from typing import Final

_FAMILIES: Final = {
    "ns": ("nightsight_time_seconds", "seconds", 1e-9),
    "bytes": ("nightsight_size_bytes", "bytes", 1.0),
    "pct": ("nightsight_share_ratio", "ratio", 0.01),
    "": ("nightsight_count", "", 1.0),
}


def openmetrics_text(samples: Callable[[str, str, float], Iterable[str]]) -> str:
    """Return samples as a file. samples: returns those of a unit, by its name, that of its metrics, and a factor."""
    lines: list[str] = []
    for unit, (family, word, factor) in _FAMILIES.items():
        if of_unit := [*samples(unit, family, factor)]:
            lines += [f"# TYPE {family} gauge", *([f"# UNIT {family} {word}"] if word else []), *of_unit]
    return "\n".join((*lines, "# EOF", ""))


def escaped(text: str) -> str:
    """Return the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
