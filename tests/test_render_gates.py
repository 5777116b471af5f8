"""A comparison as JUnit and OpenMetrics: what a CI system shows of it."""

import math
import re
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.compare import CHANGES, Comparison, Decision
from nightsight.render.gates import junit, openmetrics

NAN = math.nan


def change(name: str, verdict: str, **others: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(CHANGES, NAN),
        "kind": "gate",
        "name": name,
        "baseline": 2_750_000.0,
        "candidate": 2_862_750.0,
        "change_pct": 4.1,
        "low_pct": 3.2,
        "high_pct": 5.0,
        "verdict": verdict,
        "note": "",
        **others,
    }


def comparison(*rows: dict[str, Any], status: int = 1, workload: str = "mlp", **decided: Any) -> Comparison:
    changes = pd.DataFrame(list(rows), columns=list(CHANGES))
    causes = pd.DataFrame()
    decision = Decision(status, f"the gate decided {status}", **decided)
    return Comparison(workload, (), (), changes, causes, (), "regressed", "slower", decision)


def cases(text: str) -> dict[str, str]:
    """Return how each test case ended."""
    (suite,) = ET.fromstring(text)
    outcomes = {case.get("name", ""): case[0].tag for case in suite}
    assert int(suite.get("tests", "")) == len(outcomes)
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.get(name, "")) == list(outcomes.values()).count(kind)
    return outcomes


def test_each_gate_metric_is_a_test_case() -> None:
    rows = [
        change("kernel_ns", "unchanged"),
        change("step_ns", "regressed", note="clocks differ"),
        change("launches", "inconclusive", baseline=40.0, candidate=NAN, change_pct=NAN, low_pct=NAN),
        {**change("gemm", "regressed"), "kind": "kernel"},
    ]
    text = junit(comparison(*rows, broken=("step_ns: +4.1 %, at most 3 % allowed",)))
    ended = {"gate": "failure", "kernel_ns": "system-out", "launches": "skipped", "step_ns": "failure"}
    assert cases(text) == ended
    assert list(cases(text)) == list(ended)
    (suite,) = ET.fromstring(text)
    gate, _, launches, step = suite
    assert gate[0].text == "the gate decided 1\nstep_ns: +4.1 %, at most 3 % allowed"
    assert step[0].get("message") == "regressed: 2.750 ms -> 2.863 ms, +4.1 % [+3.2, +5.0]"
    assert step[0].text == "clocks differ"
    assert launches[0].get("message") == "inconclusive: 40 -> –"


@pytest.mark.parametrize(("status", "kind"), [(0, "system-out"), (1, "failure"), (3, "error"), (4, "skipped")])
def test_the_decision_is_a_test_case(status: int, kind: str) -> None:
    ended = cases(junit(comparison(change("step_ns", "regressed"), status=status)))
    # what the gate lets pass, because it is accepted or within its limit, is no failure
    assert ended == {"gate": kind, "step_ns": "failure" if status == 1 else "system-out"}


def test_metrics_are_in_the_units_of_openmetrics_and_rounded() -> None:
    rows = [
        change("step_ns", "regressed"),
        change("launches", "unchanged", candidate=41.0),
        change("host code", "unchanged", candidate=123_456.0),
        change("copy_ns", "removed", candidate=NAN),
        {**change("gemm", "regressed"), "kind": "kernel"},
    ]
    assert openmetrics(comparison(*rows)).splitlines() == [
        "# TYPE nightsight_time_seconds gauge",
        "# UNIT nightsight_time_seconds seconds",
        'nightsight_time_seconds{workload="mlp",name="host code"} 0.000123',
        'nightsight_time_seconds{workload="mlp",name="step_ns"} 0.00286',
        "# TYPE nightsight_count gauge",
        'nightsight_count{workload="mlp",name="launches"} 41',
        "# EOF",
    ]


def test_the_order_does_not_depend_on_the_impact() -> None:
    rows = [change(name, "regressed") for name in ("step_ns", "kernel_ns", "launches")]
    assert openmetrics(comparison(*rows)) == openmetrics(comparison(*reversed(rows)))


def test_nothing_to_show() -> None:
    assert cases(junit(comparison(status=3))) == {"gate": "error"}
    assert openmetrics(comparison()) == "# EOF\n"


@given(st.text(), st.text(), st.text())
def test_any_text_is_well_formed(workload: str, name: str, note: str) -> None:
    rows = [change(name, "regressed", note=note)]
    made = comparison(*rows, workload=workload, broken=(note,), accepted=(name,))
    (suite,) = ET.fromstring(junit(made).encode())
    assert len(suite) == 2
    samples = [line for line in openmetrics(made).splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'\w+\{workload="(\\.|[^"\\])*",name="(\\.|[^"\\])*"\} \S+', line) for line in samples)
    assert len(samples) == 1
