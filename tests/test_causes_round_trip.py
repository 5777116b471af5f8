"""Data that goes to the host, is changed there, and comes back in the same size."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze.causes.simulation import what_if
from nightsight.events.timeline import Timeline
from nightsight.tables import conform
from tests.program import Body, Copy, Host, Kernel, captured, repeated, step_us

SIZE = 32 << 20
HOST_US = 20_000.0
STEPS = 10
KERNELS = (Kernel(300), Kernel(200, name="b"))
ON_HOST = (Copy("D", SIZE, is_pinned=False), Host(HOST_US), Copy("H", SIZE, is_pinned=False))
FIXED = step_us(KERNELS)


def rules(body: Body, function: str = "scaled (a.py:3)") -> dict[str, float]:
    """Return what a step takes after each remedy in µs; `function` runs in all host code of more than 100 µs."""
    profile = captured(*repeated(STEPS, body))
    calls = profile.table("api_calls").sort_values("start_ns")
    ends, starts = calls["end_ns"].to_numpy()[:-1], calls["start_ns"].to_numpy()[1:]
    times = [np.arange(low, high, 1_000_000) for low, high in zip(ends, starts, strict=True) if high - low > 100_000]
    samples = pd.DataFrame({"start_ns": np.concatenate([*times, np.empty(0, dtype=np.int64)])})
    columns = {name: int(calls[name].iloc[0]) for name in ("process", "thread", "pid", "tid")}
    samples = conform("python_samples", samples.assign(function=function, stack=function, **columns))
    table = what_if(Timeline(replace(profile, tables={**profile.tables, "python_samples": samples}))).frame
    left = (1 - table["gain_pct"] / 100) * profile.table("api_calls")["end_ns"].max() / STEPS / 1000
    return dict(zip(table["rule"], left, strict=True))


def test_both_copies_and_the_code_between_them_go() -> None:
    found = rules((*KERNELS, *ON_HOST))
    assert next(iter(found)) == "round_trip"
    assert found["round_trip"] == pytest.approx(FIXED, rel=0.2)
    # what a step still takes if only the host code goes
    assert found["host_code"] > 5 * FIXED


@pytest.mark.parametrize(
    ("body", "function"),
    [
        # results of another size are other data
        (
            (*KERNELS, Copy("D", SIZE // 2, is_pinned=False), Host(HOST_US), Copy("H", SIZE, is_pinned=False)),
            "f (a.py:3)",
        ),
        # so are those that are written, and those that are read
        ((*KERNELS, *ON_HOST), "imread (image.py:3)"),
        ((*KERNELS, *ON_HOST), "main (a.py:1);fetch (dataloader.py:52)"),
        # nothing comes back, nothing went there, or the GPU works in between
        ((*KERNELS, *ON_HOST[:2]), "f (a.py:3)"),
        ((*KERNELS, *ON_HOST[1:]), "f (a.py:3)"),
        ((*ON_HOST[:1], Kernel(100, name="c"), *ON_HOST[1:], *KERNELS), "f (a.py:3)"),
        # small values are not worth it
        ((*KERNELS, Copy("D", 4096), Host(HOST_US), Copy("H", 4096)), "f (a.py:3)"),
    ],
)
def test_other_copies_are_no_round_trip(body: Body, function: str) -> None:
    assert "round_trip" not in rules(body, function)
