"""What keeps runs from being comparable, and which verdicts it takes away."""

from dataclasses import replace
from typing import Any

import pytest

from nightsight.compare import Settings, compare, measures
from nightsight.model.compare import COUNTS, Comparison, Measures
from nightsight.model.report import Conditions, Environment
from tests.measured import hot, run
from tests.recorded import Recorded

GATE = {"step_ns": 1e6, "unprofiled_step_ns": 9e5, "launches": 40.0}
KERNELS = {"gemm": (4.0, 5e5)}


def compared(before: dict[str, Any], after: dict[str, Any], factor: float = 1.1) -> Comparison:
    """Compare runs that differ in what they say of themselves, and are slower."""
    gate = {name: value * (factor if name != "launches" else 1) for name, value in GATE.items()}
    kernels = {name: (count, value * factor) for name, (count, value) in KERNELS.items()}
    sides = [run(GATE, KERNELS, **before)] * 3, [run(gate, kernels, **after)] * 3
    return compare(*sides, settings=Settings())


def verdicts(comparison: Comparison) -> dict[str, str]:
    return dict(zip(comparison.changes["name"], comparison.changes["verdict"], strict=True))


def environment(**facts: str) -> dict[str, Any]:
    return {"environment": Environment(collector="nsys", gpu="H200", **facts)}


NEWER = environment(collector_version="2")


def clocks(**facts: Any) -> dict[str, Any]:
    return {"conditions": (Conditions(0, **facts),)}


ALL = {"step_ns", "unprofiled_step_ns", "launches", "gemm"}
TIMES = ALL - {"launches"}


@pytest.mark.parametrize(
    ("what", "before", "after", "taken"),
    [
        ("GPU", {}, {"environment": Environment(collector="nsys", gpu="A100")}, ALL),
        ("driver", environment(driver="570.1"), environment(driver="580.1"), TIMES),
        ("CUDA", environment(cuda="12.8"), environment(cuda="13.0"), TIMES),
        ("PyTorch", environment(cuda="12.8", torch="2.10"), environment(cuda="13.0", torch="2.11"), set()),
        ("profiler", {}, {"environment": Environment(collector="torch", gpu="H200")}, ALL - {"unprofiled_step_ns"}),
        ("version of the profiler", environment(collector_version="1"), NEWER, {"step_ns"}),
        ("batch", {"parameters": {"batch": "8"}}, {"parameters": {"batch": "16"}}, ALL),
        ("steps", {"parameters": {"steps": "50"}}, {"parameters": {"steps": "20"}}, set()),
        ("arguments", {"parameters": {"arguments": "none"}}, {"parameters": {"arguments": "digest 3f2a"}}, ALL),
        ("window", {}, {"window": "steady part"}, ALL - {"unprofiled_step_ns"}),
        ("what repeats", {}, {"family": "batch #"}, ALL - {"unprofiled_step_ns"}),
        ("steps of the window", {}, {"repetitions": 0}, ALL - {"unprofiled_step_ns"}),
        ("SM clock", clocks(sm_mhz=1980.0), clocks(sm_mhz=1755.0), TIMES),
        ("clock policy", clocks(clock_policy="locked"), clocks(clock_policy="default"), TIMES),
        ("MIG slice", clocks(), clocks(mig="1g.18gb"), TIMES),
        ("throttling", {}, {"conditions": hot()}, TIMES),
        ("other processes on the GPU", {}, clocks(is_shared=True), TIMES),
        ("lost events", {}, {"is_incomplete": True}, ALL - {"unprofiled_step_ns"}),
    ],
)  # fmt: skip
def test_a_difference_is_reported_and_takes_verdicts_away(what: str, before: Any, after: Any, taken: set[str]) -> None:
    comparison = compared(before, after)
    assert what in [difference.what for difference in comparison.differences]
    now = verdicts(comparison)
    assert {name for name, verdict in now.items() if verdict == "inconclusive"} == taken
    assert now["launches"] in ("unchanged", "inconclusive")
    if taken & {"step_ns"}:
        assert comparison.decision.status in (1, 4)
        assert comparison.decision.status == 4 or "unprofiled_step_ns" not in taken
        notes = comparison.changes.set_index("name")["note"]
        assert notes["step_ns"] == f"not comparable: {what}"


@pytest.mark.parametrize(
    "after",
    [
        {"environment": Environment(collector="nsys", gpu="A100")},
        {"environment": Environment(collector="torch", gpu="H200")},
        {"parameters": {"batch": "16"}},
        {"window": "steady part"},
        {"family": "batch #"},
        {"repetitions": 0},
        {"is_incomplete": True},
    ],
    ids=str,
)
def test_a_count_is_no_fact_where_something_else_can_explain_it(after: dict[str, Any]) -> None:
    before: dict[str, Any] = {"parameters": {"batch": "8"}} if "parameters" in after else {}
    few, many = ({**GATE, **dict.fromkeys(COUNTS, count)} for count in (40.0, 60.0))
    comparison = compare([run(few, **before)] * 3, [run(many, **after)] * 3, settings=Settings())
    assert {verdicts(comparison)[name] for name in COUNTS} == {"inconclusive"}
    assert comparison.decision.status == 4


@pytest.mark.parametrize("reason", ["SwPowerCap", "GpuIdle"])
def test_a_power_limit_is_the_usual_state_of_a_gpu(reason: str) -> None:
    assert compared({}, {"conditions": hot(reason)}).differences == ()


def test_runs_of_equal_machines_have_no_differences() -> None:
    assert compared(environment(driver="580.1"), environment(driver="580.1")).differences == ()
    # what one side does not know is no difference
    assert compared(environment(driver="580.1"), environment()).differences == ()


def test_a_capture_that_does_not_know_its_parameters_is_comparable() -> None:
    facts = {"parameters": {"arguments": "digest 3f2a", "names": "python"}}
    assert compared({"parameters": {}}, facts).differences == ()


def test_runs_of_one_side_must_not_differ_either() -> None:
    mixed = [run(GATE, **environment(driver="570.1")), run(GATE, **environment(driver="580.1"))]
    (difference,) = compare(mixed, mixed, settings=Settings()).differences
    assert (difference.what, difference.baseline, difference.candidate) == ("driver", "570.1, 580.1", "570.1, 580.1")


def of(recorded: Recorded, name: str) -> Measures:
    return replace(measures(recorded.report(name)), workload="graphs")


@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("names", [("graph", "graph_node"), ("graph_node", "graph")])
def test_graphs_traced_in_another_way_are_no_regression(recorded: Recorded, names: tuple[str, str], runs: int) -> None:
    sides = [[of(recorded, name)] * runs for name in names]
    comparison = compare(*sides, settings=Settings())
    assert "CUDA graphs" in [difference.what for difference in comparison.differences]
    assert set(comparison.changes["verdict"]) <= {"inconclusive", "unchanged"}
    assert set(comparison.causes["verdict"]) <= {"inconclusive", "unchanged"}
    assert (comparison.verdict, comparison.decision.status) == ("inconclusive", 4)
    launches = comparison.changes.set_index("name").loc["launches"]
    assert launches["baseline"] == launches["candidate"] == 850
