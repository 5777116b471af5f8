"""Adds the result files of serving benchmarks to a profile: `--attach`, and what the benchmark of a workload measured.

A file that cannot be taken must not cost the capture: after a run it becomes a finding.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.model.report import Capture, Finding, Profile
from nightsight.read.serving import read_serving, serving_of
from nightsight.results.serving import PROFILED_RUN, UNKNOWN_RUN, UNPROFILED_RUN
from nightsight.tables import conform, empty

_NAME: Final = "serving_figures"


@dataclass(frozen=True)
class Awaited:
    """Result files that a run is to write, each with what was there before it."""

    files: Mapping[Path, tuple[int, ...]]

    def taken(self) -> Iterator[pd.DataFrame | Finding]:
        """Yield the figures of each file, and findings for those that cannot be taken or are older than the run."""
        for path, before in self.files.items():
            is_new = _state(path) != before
            try:
                yield read_serving(path, PROFILED_RUN if is_new else UNKNOWN_RUN)
            except CaptureError as error:
                yield _not_attached(error, "" if path.exists() else " The program did not write it.")
            else:
                if not is_new:
                    yield Finding(
                        "old_results",
                        "warning",
                        "An attached result file is older than this run",
                        f"{path.name} existed before, and the program did not write it. Its figures are shown as "
                        "those of an unknown run.",
                        "Pass the path that the program writes its results to.",
                    )


def awaited(paths: Sequence[Path]) -> Awaited:
    """Record the state of files before a run; absolute, since the run may delete the working folder."""
    return Awaited({path.absolute(): _state(path) for path in paths})


def measured_by(capture: Capture, results: Awaited) -> tuple[Capture, pd.DataFrame]:
    """Return the table `serving_figures` of a run, and the capture with findings about files that are not in it."""
    found = list(results.taken())
    if capture.serving:
        try:
            found.append(serving_of(capture.serving, capture.workload, UNPROFILED_RUN))
        except CaptureError as error:
            found.append(_not_attached(error, ""))
    findings = (item for item in found if isinstance(item, Finding))
    tables = [item for item in found if isinstance(item, pd.DataFrame)]
    return replace(capture, findings=(*capture.findings, *findings)), _joined(tables)


def with_attached(profile: Profile, paths: Sequence[Path]) -> Profile:
    """Add result files to a profile that was captured earlier; CaptureError if one cannot be taken."""
    if not paths:
        return profile
    kept = [profile.tables[_NAME]] if _NAME in profile.tables else []
    table = _joined([*kept, *(read_serving(path, UNKNOWN_RUN) for path in paths)])
    return replace(profile, tables={**profile.tables, _NAME: table})


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return tables as one; a second file of the same program is a separate source."""
    used: set[str] = set()
    plain = []
    for table in tables:
        texts = table.astype({"metric": "str", "measured": "str", "source": "str", "statistic": "str"})
        names = {name: _unused(name, used) for name in texts["source"].unique()}
        used |= set(names.values())
        plain.append(texts.assign(source=texts["source"].map(names)))
    return conform(_NAME, pd.concat(plain)) if plain else empty(_NAME)


def _unused(name: str, used: Collection[str]) -> str:
    return next(text for text in chain([name], (f"{name} ({number})" for number in count(2))) if text not in used)


def _not_attached(error: CaptureError, more: str) -> Finding:
    detail = f"{error.message[:1].upper()}{error.message[1:]}.{more} Its figures are not in this report."
    return Finding("results_not_attached", "warning", "A result file is not in this report", detail, error.hint)


def _state(path: Path) -> tuple[int, ...]:
    """Return what differs once a file is written; () if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
