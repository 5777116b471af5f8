"""The command `stats`: NVIDIA's tables, printed or written next to a capture."""

from collections.abc import Callable, Iterator
from pathlib import Path

from nightsight.errors import UsageError
from nightsight.model.report import Profile
from nightsight.runs.layout import write_file
from nightsight.stats import Selection, stats_texts


def print_stats(
    profile: Profile, selection: Selection, *, path: Path, output: str, skip: Callable[[str, str], None] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield NVIDIA's tables of the capture in `path`, or the line `table: FILE` for each one written to a file.

    Each comes with its report. `output`: `-` for the tables themselves, `.` for files next to the capture, otherwise a
    file name prefix (UsageError if it cannot be one). For `skip` see `stats_texts`.
    """
    prefix = path.with_suffix("") if output == "." else Path(output)
    if output.startswith("@") or not prefix.name or prefix.is_char_device() or prefix.is_fifo():
        raise UsageError(f"invalid output prefix {output!r}", "Use -o PREFIX, -o . or -o - > FILE.")
    for report, ending, text in stats_texts(profile, selection, skip=skip):
        if output == "-":
            yield report, text
            continue
        target = prefix.with_name(prefix.name + ending)
        write_file(target, text.encode(), inputs=[path])
        yield report, f"table: {target}\n"
