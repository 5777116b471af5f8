"""Names of capture files and of the files next to them, and how to write a capture again.

The content of a file decides its format (`read`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

NSYS_REPORT: Final = ".nsys-rep"
NSYS_EXPORT: Final = ".sqlite"
NSYS_RECORDING: Final = ".qdstrm"
"""What nsys leaves if it could not write a report."""
NCU_REPORT: Final = ".ncu-rep"
TRACE: Final = ".json.gz"

EXPORT_AGAIN: Final = f"Export the report again: nsys export --type sqlite --force-overwrite=true REPORT{NSYS_REPORT}"
AS_CSV: Final = f"ncu --import FILE{NCU_REPORT} --csv --page raw --print-units base > FILE.csv"
PROFILE_AGAIN: Final = "Profile or copy it again. If a newer ncu wrote it, a newer ncu-report may be able to read it."

# an export before its .nsys-rep; a replay comes last, since it has no timeline
_PREFERRED: Final = (NSYS_EXPORT, TRACE, NSYS_REPORT, NCU_REPORT)
_NAMED_AS_CAPTURES: Final = (*_PREFERRED, ".pt.trace.json")
_NEVER_CAPTURES: Final = (".html", ".jsonl", ".md", ".txt", ".xml", ".log", ".toml", ".lock", ".parquet")
# in the order of removal: x.pt.trace.json.gz
_ENDINGS: Final = (".gz", NSYS_REPORT, NCU_REPORT, NSYS_EXPORT, ".json", ".report", ".csv", ".pt.trace")
_OF_TIMELINES: Final = (".gz", ".json", NSYS_EXPORT, NSYS_REPORT)
# the size of an .sqlite export with the same events, relative to the size of the file
_AS_EXPORT: Final = ((TRACE, 6.0), (".json", 0.5), (NSYS_REPORT, 4.0))


def preferred(files: Sequence[Path]) -> list[Path]:
    """Return the captures of a run to read: those of its files that are of the most informative kind."""
    by_kind = ([file for file in files if file.name.endswith(ending)] for ending in _PREFERRED)
    return next(filter(None, by_kind), [])


def is_named_as_capture(name: str) -> bool:
    """Whether a file in a folder counts as a capture."""
    return name.endswith(_NAMED_AS_CAPTURES)


def is_never_capture(name: str) -> bool:
    """Whether no profiler writes files with such a name."""
    return name.lower().endswith(_NEVER_CAPTURES)


def stem(name: str) -> str:
    """Return the name of a capture without its endings."""
    return _without(name, _ENDINGS)


def unprofiled_file(capture: Path) -> Path:
    """Return the path of the file next to a capture with data not measured by its profiler (`unprofiled`)."""
    return capture.with_name(f"{_without(capture.name, _OF_TIMELINES)}.unprofiled.json")


def export_bytes(path: Path) -> int:
    """Return the approximate size of a capture as an .sqlite export: a guess for a trace and a .nsys-rep."""
    factor = next((factor for ending, factor in _AS_EXPORT if path.name.endswith(ending)), 1.0)
    return int(path.stat().st_size * factor) if path.is_file() else 0


def _without(name: str, endings: Iterable[str]) -> str:
    for ending in endings:
        name = name.removesuffix(ending)
    return name
