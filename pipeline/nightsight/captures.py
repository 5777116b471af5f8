"""Names of capture files and of the files next to them. The content of a file decides its format (`read`)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

NSYS_REPORT: Final = ".nsys-rep"
NSYS_EXPORT: Final = ".sqlite"
NCU_REPORT: Final = ".ncu-rep"
TRACE: Final = ".json.gz"

# an export before the report that it was made from; a replay comes last, since it has no timeline
_PREFERRED: Final = (NSYS_EXPORT, TRACE, NSYS_REPORT, NCU_REPORT)
_NAMED_AS_CAPTURES: Final = (*_PREFERRED, ".pt.trace.json")
_NEVER_CAPTURES: Final = (".html", ".jsonl", ".md", ".txt", ".xml", ".log", ".toml", ".lock", ".parquet")
# in the order in which they are taken off: x.pt.trace.json.gz
_ENDINGS: Final = (".gz", NSYS_REPORT, NCU_REPORT, NSYS_EXPORT, ".json", ".report", ".csv", ".pt.trace")
_OF_TIMELINES: Final = (".gz", ".json", NSYS_EXPORT, NSYS_REPORT)
# the size of an .sqlite export with the same events, in times of the size of the file
_AS_EXPORT: Final = ((TRACE, 6.0), (".json", 0.5), (NSYS_REPORT, 4.0))


def preferred(files: Sequence[Path]) -> list[Path]:
    """Return the captures of a run to read, out of all of its files: those of the kind that tells most."""
    by_kind = ([file for file in files if file.name.endswith(ending)] for ending in _PREFERRED)
    return next(filter(None, by_kind), [])


def is_named_as_capture(name: str) -> bool:
    """Whether a file in a folder is taken for a capture."""
    return name.endswith(_NAMED_AS_CAPTURES)


def is_never_capture(name: str) -> bool:
    """Whether a name is one that no profiler gives to its files."""
    return name.lower().endswith(_NEVER_CAPTURES)


def stem(name: str) -> str:
    """Return the name of a capture without its endings."""
    return _without(name, _ENDINGS)


def unprofiled_file(capture: Path) -> Path:
    """Return the path of the file next to a capture with data not measured by its profiler (`unprofiled`)."""
    return capture.with_name(f"{_without(capture.name, _OF_TIMELINES)}.unprofiled.json")


def export_bytes(path: Path) -> int:
    """Return about how large a capture is as an .sqlite export: of a trace and of a .nsys-rep that is a guess."""
    times = next((times for ending, times in _AS_EXPORT if path.name.endswith(ending)), 1.0)
    return int(path.stat().st_size * times) if path.is_file() else 0


def _without(name: str, endings: Iterable[str]) -> str:
    for ending in endings:
        name = name.removesuffix(ending)
    return name
