"""Operators that call themselves: counted and timed as torch's own `key_averages` does."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from nightsight.analyze.api import operators
from nightsight.events.timeline import Timeline
from nightsight.model import Profile
from nightsight.read import read
from tests.kineto import Event, call, write

DATA = Path(__file__).parent / "data" / "kineto"


def table(profile: Profile) -> dict[str, tuple[int, int, int]]:
    frame = operators(Timeline(profile)).frame
    columns = (frame[name].tolist() for name in ("name", "calls", "total_ns", "own_ns"))
    return {name: (calls, total_ns, own_ns) for name, calls, total_ns, own_ns in zip(*columns, strict=True)}


def test_calls_and_times_of_recorded_operators_are_those_of_torch() -> None:
    with (DATA / "recursive.key_averages.csv").open(newline="") as file:
        of_torch = {
            row["name"]: (int(row["calls"]), round(float(row["total_us"]) * 1000), round(float(row["own_us"]) * 1000))
            for row in csv.DictReader(file)
        }
    assert of_torch["aten::div"][0] == 8
    assert (pd.Series(read(DATA / "recursive.json.gz").tables["cpu_ops"]["name"]) == "aten::div").sum() == 10
    assert table(read(DATA / "recursive.json.gz")) == of_torch


@pytest.mark.slow
def test_calls_and_times_of_operators_are_those_of_the_torch_that_is_here(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        values = torch.randn(16, 16, requires_grad=True)
        ((values.sum() / 3).mean() * 2).backward()
        with torch.profiler.record_function("mine"):
            torch.nn.functional.linear(values, values).to(torch.float64)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = table(read(tmp_path / "trace.json"))
    of_torch = {event.key: event for event in profiler.key_averages() if event.key in found}
    assert "aten::div" in of_torch
    assert {name: calls for name, (calls, _, _) in found.items()} == {name: of_torch[name].count for name in found}
    for name, (_, total_ns, own_ns) in found.items():
        assert total_ns == pytest.approx(of_torch[name].cpu_time_total * 1000, abs=1)
        assert own_ns == pytest.approx(of_torch[name].self_cpu_time_total * 1000, abs=1)


def operator(name: str, start: float, duration: float, **changes: object) -> Event:
    return call(cat="cpu_op", name=name, ts=start, dur=duration, args={}) | changes


@pytest.mark.parametrize(
    ("inside", "calls", "total_ns"),
    [
        ([], 1, 20_000),
        ([operator("aten::mul", 12, 8)], 1, 20_000),
        ([operator("aten::mul", 12, 8), operator("aten::mul", 13, 4)], 1, 20_000),
        # a second child of any kind makes the inner one a call of its own
        ([operator("aten::mul", 12, 8), operator("aten::to", 21, 2)], 2, 28_000),
        ([operator("aten::mul", 12, 8), call(ts=21, dur=2)], 2, 28_000),
        ([operator("aten::mul", 12, 8), operator("mine", 21, 2, cat="user_annotation")], 2, 28_000),
        ([operator("aten::to", 12, 8), operator("aten::mul", 13, 4)], 2, 24_000),
        ([operator("aten::mul", 12, 8, tid=46)], 2, 28_000),
    ],
)
def test_an_operator_that_only_calls_itself_is_one_call(
    tmp_path: Path, inside: list[Event], calls: int, total_ns: int
) -> None:
    found = table(read(write(tmp_path, operator("aten::mul", 11, 20), *inside)))
    assert found["aten::mul"][:2] == (calls, total_ns)
    assert sum(own for _, _, own in found.values()) <= 28_000
