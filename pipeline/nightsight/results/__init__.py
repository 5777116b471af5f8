"""The register: every result a report can hold, with its definition, its columns and its place on the page.

Analyses fill the tables, advice and renderers refer to them by the constants of these modules, and docs/report-json.md
is generated from them. Modules, and entries in them, stand in report order: put a new one where its result is to be
shown.
"""

from typing import Final

from nightsight.results import (
    capture,
    causes,
    gpu,
    gpu_time,
    launches,
    ncu,
    operator_roofline,
    operators,
    program,
    ranges,
    ranks,
    serving,
    steps,
)
from nightsight.results.entry import Entry

_IN_ORDER: Final = (
    gpu_time,
    causes,
    steps,
    serving,
    gpu,
    launches,
    ncu,
    ranges,
    program,
    operators,
    ranks,
    operator_roofline,
    capture,
)
RESULTS: Final = tuple(value for module in _IN_ORDER for value in vars(module).values() if isinstance(value, Entry))
_BY_NAME: Final = {entry.name: entry for entry in RESULTS}


def entry_of(name: str) -> Entry | None:
    """Return the entry of a result; None if there is none of that name."""
    return _BY_NAME.get(name)
