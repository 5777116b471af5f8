"""The noise between runs of unchanged code on a machine: REPORTS/WORKLOAD/noise.jsonl, a line per comparison."""

import json
import statistics
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from nightsight.errors import CaptureError
from nightsight.model.compare import Noise
from nightsight.units import format_value

METRIC_LABELS: Final = {
    "unprofiled_step_ns": "step without the profiler",
    "step_ns": "step",
    "kernel_ns": "GPU kernels of a step",
    "launches": "launches of a step",
}
"""The metrics whose noise is shown, and their names."""
_FILE: Final = "noise.jsonl"
_NIGHTS: Final = 30


def noise_of(reports: Path, workload: str, machine: str) -> Noise:
    """Return the noise that comparisons of a workload with itself showed on this machine."""
    rows = [row for row in _valid_noise_rows(reports / workload / _FILE) if row["machine"] == machine][-_NIGHTS:]
    if not rows:
        return Noise()
    flagged = sum(row["flagged"] > 0 for row in rows)
    spreads = {name: [row["spread_pct"][name] for row in rows if name in row["spread_pct"]] for name in METRIC_LABELS}
    medians = {name: statistics.median(values) for name, values in spreads.items() if values}
    texts = [f"{METRIC_LABELS[name]} {format_value(value, 'share_pct')}" for name, value in medians.items()]
    count = f"{len(rows)} comparisons" if len(rows) > 1 else "1 comparison"
    summary = f"{count} of unchanged code on this machine: {flagged} flagged"
    return Noise(f"{summary}; pairs differ by (standard deviation): {', '.join(texts)}" if texts else summary, medians)


def keep_noise(reports: Path, workload: str, row: Mapping[str, Any]) -> None:
    """Add a line about a comparison of a workload with itself: machine, flagged, spread_pct by metric, and any other.

    CaptureError if the file cannot be written.
    """
    path = reports / workload / _FILE
    line = f"{json.dumps(row)}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # one write at the end of the file, so that two jobs do not lose each other's lines
        with path.open("ab", buffering=0) as file:
            if file.tell() and not path.read_bytes().endswith(b"\n"):
                # a truncated line stays a separate line
                line = b"\n" + line
            file.write(line)
    except OSError as error:
        raise CaptureError(f"cannot write {path}: {error.strerror}", "Check path and permissions.") from error


def _valid_noise_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the valid lines of the file, which may be truncated or from another version."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
            numbers = (row["flagged"], *row["spread_pct"].values())
            if isinstance(row["machine"], str) and all(isfinite(number) for number in numbers):
                yield row
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            continue
