"""The values that the stages hand to one another: Capture -> Profile -> Report."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pandas as pd

from pipeline.errors import CaptureError, MissingTable

REPORT_FORMAT: Final = 1
Severity = Literal["error", "warning", "info", "advice"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The worst first; advice is about the program, the others are about what can be believed of the report."""


@dataclass(frozen=True)
class Environment:
    """What may be said of the machine and the tools: this list of fields is the allow-list.

    Never here, so never in a report: host, user, paths, variables, command lines, serial numbers.
    """

    collector: str = ""
    collector_version: str = ""
    schema_version: str = ""
    captured_utc: str = ""
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    cpu: str = ""
    os: str = ""
    python: str = ""
    torch: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing the reader of a report should know, with what to do about it.

    `evidence` are the cases it rests on. `gain_ns` and `gain_pct` (of the window) say how much shorter the window
    could get at most; None where that is not known.
    """

    rule: str
    severity: Severity
    title: str
    detail: str
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    gain_ns: int | None = None
    gain_pct: float | None = None


@dataclass(frozen=True)
class Benchmark:
    """Step times of the workload run without any profiler: one number per trial, each a mean over its steps."""

    step_ns: tuple[float, ...]
    steps_per_trial: int


@dataclass(frozen=True)
class Capture:
    """What a collector left on disk, and what the run that made it has to say; paths stay out of reports.

    `failure` is a sentence when the program failed or was stopped: the files then hold only a part of it.
    """

    workload: str
    collector: str
    files: tuple[Path, ...]
    environment: Environment = field(default_factory=Environment)
    parameters: Mapping[str, str] = field(default_factory=dict)
    benchmark: Benchmark | None = None
    findings: tuple[Finding, ...] = ()
    stages_s: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Profile:
    """The canonical tables of one capture (see `pipeline.tables`); `missing` says why one is not there."""

    tables: Mapping[str, pd.DataFrame]
    missing: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    findings: tuple[Finding, ...] = ()

    def table(self, name: str) -> pd.DataFrame:
        """Return a canonical table; MissingTable, with the reason, if it was not captured."""
        if name not in self.tables:
            raise MissingTable(f"no {name.replace('_', ' ')} in this capture: {self.why_missing(name)}")
        return self.tables[name]

    def joined(self, other: "Profile") -> "Profile":
        """Add what another profile of the same program has; of tables and facts that both have, ours stay."""
        tables = {**other.tables, **self.tables}
        ours = asdict(self.environment)
        environment = {name: ours[name] or value for name, value in asdict(other.environment).items()}
        missing = {name: why for name, why in {**other.missing, **self.missing}.items() if name not in tables}
        return Profile(tables, missing, Environment(**environment), (*self.findings, *other.findings))

    def why_missing(self, name: str) -> str:
        """Return the reason why a table is not there, in the reader's words."""
        return self.missing.get(name, "this kind of capture does not record them")


@dataclass(frozen=True)
class Result:
    """One table of a report. `table` is None when it could not be made; then `unavailable` says why.

    A table without rows means: looked, found none. `notes` are sentences that belong under the table.
    """

    name: str
    title: str
    help: str
    table: pd.DataFrame | None
    unavailable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> pd.DataFrame:
        """The table, empty when it is unavailable."""
        return pd.DataFrame() if self.table is None else self.table


@dataclass(frozen=True)
class Report:
    """Everything that is shown, compared or kept of one run. Same input, same bytes."""

    title: str
    environment: Environment
    results: tuple[Result, ...]
    findings: tuple[Finding, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    benchmark: Benchmark | None = None
    stages_s: Mapping[str, float] = field(default_factory=dict)
    generator: str = ""

    def result(self, name: str) -> Result:
        """Return a result by name; KeyError if this report has none such."""
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)

    def to_json(self) -> str:
        """Write the report as JSON (docs/report-json.md)."""
        fields = {name: value for name, value in vars(self).items() if name not in ("results", "environment")}
        fields["findings"] = [asdict(finding) for finding in self.findings]
        fields["benchmark"] = self.benchmark and asdict(self.benchmark)
        document = {
            "format": REPORT_FORMAT,
            **fields,
            "environment": asdict(self.environment),
            "results": [_result_to_dict(result) for result in self.results],
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=dict) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Read what `to_json` wrote; CaptureError for anything else."""
        try:
            # NaN and Infinity, which `to_json` never writes, are numbers that are missing
            document = json.loads(text, parse_constant=_missing, parse_float=_finite)
            if document.pop("format") != REPORT_FORMAT:
                raise CaptureError("this report.json has another format version", f"expected {REPORT_FORMAT}")
            return _report_from_dict(document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            hint = "make it again from the capture: nightsight report FILE --format json"
            raise CaptureError(f"not a nightsight report.json: {error}", hint) from error


def _missing(_: str) -> None:
    """Read NaN, Infinity and -Infinity, which JSON does not have, as nothing."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None


def _report_from_dict(document: dict[str, Any]) -> Report:
    benchmark = document["benchmark"]
    if benchmark:
        known = (float(time) for time in benchmark["step_ns"] if time is not None)
        benchmark = Benchmark(tuple(known), int(benchmark["steps_per_trial"]))
    replaced = {
        "environment": Environment(**document["environment"]),
        "results": tuple(_result_from_dict(result) for result in document["results"]),
        "findings": tuple(_finding_from_dict(finding) for finding in document["findings"]),
        "benchmark": benchmark,
    }
    return Report(**{**document, **replaced})


def _finding_from_dict(document: dict[str, Any]) -> Finding:
    if document["severity"] not in SEVERITIES:
        raise ValueError(f"no severity is called {document['severity']!r}")
    return Finding(**{**document, "evidence": tuple(document.get("evidence", ()))})


def _result_to_dict(result: Result) -> dict[str, Any]:
    table = None
    if result.table is not None:
        plain = result.table.astype(object)
        values = plain.where(plain.notna(), None).to_numpy().tolist()
        table = {"columns": list(result.table.columns), "rows": values}
    return {**vars(result), "notes": list(result.notes), "table": table}


def _result_from_dict(document: dict[str, Any]) -> Result:
    table = document["table"]
    if table is not None:
        _check_shape(document["name"], table["columns"], table["rows"])
        plain = pd.DataFrame(table["rows"], columns=table["columns"], dtype=object)
        table = plain.apply(_infer_type)
    return Result(**{**document, "notes": tuple(document["notes"]), "table": table})


def _check_shape(name: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Refuse rows of another length than the heading, and cells that are neither text nor number nor missing."""
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise ValueError(f"the columns of {name} are no list of names")
    if not isinstance(rows, list):
        raise ValueError(f"the rows of {name} are no list")
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise ValueError(f"row {place} of {name} has not one cell for each of its {len(columns)} columns")
        if any(isinstance(cell, list | dict) for cell in row):
            raise ValueError(f"row {place} of {name} has a cell that is neither text nor a number")


def _infer_type(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Keep whole numbers whole where some are missing: pandas on its own would turn them into floats."""
    values = column.dropna()
    whole = len(values) < len(column) and len(values) and all(type(value) is int for value in values)
    return column.astype("int64[pyarrow]") if whole else column.infer_objects()
