"""Find where a finding is in the program and on the page: its range, and its kernels."""

from functools import cached_property
from typing import Final

import numpy as np

from nightsight.model.report import Finding, Report
from nightsight.render.fixes import Fixes, fixes_of
from nightsight.render.table.view import floats
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.ranges import RANGE_KERNELS

_SEPARATOR: Final = " / "
# the range with more of a kernel's time than all others is its place
_MOST: Final = 0.5


class Places:
    """The places of findings about the window of a report; without a report, all are unknown."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report

    def kernels(self, finding: Finding) -> tuple[str, ...]:
        """Return the kernels of a finding that the page has, those with the most time first."""
        return tuple(name for name in finding.kernels if name in self._kernels)

    def path(self, finding: Finding) -> str:
        """Return the range of a finding and those around it, outermost first; "" if it has none."""
        # older reports have the path only in their fixes
        fix = self._fixes.about(finding) if self._fixes else None
        path = finding.path or (fix.path if fix else "")
        if not path and finding.kernels:
            path = self._most_of(finding.kernels[0])
        return "" if path.startswith("(") else path

    def unnamed_range(self, finding: Finding) -> str:
        """Return that range if the title of the finding does not name it."""
        path = self.path(finding)
        return "" if f"`{path.rsplit(_SEPARATOR, 1)[-1]}`" in finding.title else path

    @cached_property
    def _fixes(self) -> Fixes | None:
        return fixes_of(self._report) if self._report else None

    @cached_property
    def _kernels(self) -> frozenset[str]:
        rows = self._report.rows(CUDA_GPU_KERN_SUM) if self._report else None
        return frozenset(rows["name"].astype("str")) if rows is not None and "name" in rows else frozenset()

    def _most_of(self, kernel: str) -> str:
        """Return the range in which a kernel has most of its time, "" if there is none."""
        rows = self._report.rows(RANGE_KERNELS) if self._report else None
        if rows is None or not {"path", "name", "total_ns"} <= set(rows):
            return ""
        rows = rows[rows["name"] == kernel]
        times = floats(rows["total_ns"])
        total = float(np.nansum(times))
        if not total > 0 or np.nanmax(times) <= _MOST * total:
            return ""
        return str(rows["path"].iloc[int(np.nanargmax(times))])
