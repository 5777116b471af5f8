"""The gate metrics of a comparison for CI systems: JUnit for GitLab and Jenkins, OpenMetrics for GitLab."""

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Final
from xml.etree import ElementTree as ET

from nightsight.model.compare import Comparison, unit_of
from nightsight.openmetrics import escaped, openmetrics_text
from nightsight.texts import excerpt
from nightsight.units import scale_for, signed

_LENGTH: Final = 1000


def junit(comparison: Comparison) -> str:
    """Return a test case for the decision, and one for each gate metric.

    A metric is a failure only if it made the gate fail, not if its change is accepted or within its limit.
    """
    decision = comparison.decision
    suite = ET.Element("testsuite", name=_printable(f"nightsight {comparison.workload}"))

    def add_case(name: str, kind: str, line: str, text: str) -> None:
        """Add a test case; `kind`: failure, error, skipped, or "" if it passed."""
        case = ET.SubElement(suite, "testcase", classname=_printable(comparison.workload), name=_printable(name))
        outcome = ET.SubElement(case, kind, message=_printable(line)) if kind else ET.SubElement(case, "system-out")
        outcome.text = _printable(text, lines=True) if text else None

    kind = {0: "", 1: "failure", 4: "skipped"}.get(decision.status, "error")
    text = "\n".join((decision.line, *decision.broken, *decision.accepted))
    add_case("gate", kind, decision.line, "" if kind == "skipped" else text)
    rows = _gates(comparison)
    # the decision may not name the metrics
    regressed = decision.regressed or [row["name"] for row in rows if row["verdict"] == "regressed"]
    for row in rows:
        name, line = str(row["name"]), _line(row)
        if decision.status == 1 and name in regressed:
            add_case(name, "failure", line, str(row["note"] or ""))
        elif row["verdict"] == "inconclusive":
            add_case(name, "skipped", line, "")
        else:
            add_case(name, "", line, line)
    suite.set("tests", str(len(suite)))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def openmetrics(comparison: Comparison) -> str:
    """Return the gate metrics of the candidate, rounded: GitLab shows every digit that differs as a change."""
    values = {str(row["name"]): float(str(row["candidate"])) for row in _gates(comparison)}
    workload = escaped(_printable(comparison.workload))

    def samples(unit: str, family: str, factor: float) -> Iterator[str]:
        for name, value in values.items():
            if unit_of("gate", name) == unit and math.isfinite(value):
                yield f'{family}{{workload="{workload}",name="{escaped(_printable(name))}"}} {value * factor:.3g}'

    return openmetrics_text(samples)


def _gates(comparison: Comparison) -> list[dict[Hashable, object]]:
    # sorted, because the order of impacts must not affect files that are compared with each other
    changes = comparison.changes
    return changes[changes["kind"] == "gate"].sort_values("name").to_dict("records")


def _line(row: Mapping[Hashable, object]) -> str:
    before, after, change, low, high = (
        float(str(row[name])) for name in ("baseline", "candidate", "change_pct", "low_pct", "high_pct")
    )
    scale = scale_for(unit_of("gate", str(row["name"])), [value for value in (before, after) if math.isfinite(value)])
    interval = f" [{signed(low)}, {signed(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    percent = f", {signed(change)} %{interval}" if math.isfinite(change) else ""
    return f"{row['verdict']}: {scale.with_unit(before)} -> {scale.with_unit(after)}{percent}"


def _printable(text: str, *, lines: bool = False) -> str:
    """Return text without characters that XML does not allow."""
    if lines:
        return "\n".join(_printable(line) for line in text.splitlines())
    # a lone surrogate is not a character in a file either
    return excerpt(text.encode(errors="replace").decode(), _LENGTH)
