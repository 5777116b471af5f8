"""Pages of managed memory that are moved while a kernel or host code needs them: how long that waits."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from nightsight.analyze.causes.simulation import Gain, simulate
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.reports import advised
from tests.timeline import PROCESS, draw

# five steps of 2 ms: a kernel of 1.2 ms, and host code that reads its result after the wait
MS = 1_000_000
STEP = 2 * MS
DRAWN = draw(
    """
    nvtx  [step              ][step              ][step              ][step              ][step              ]
    cpu   L.SSSSSSSSSSSSS.....L.SSSSSSSSSSSSS.....L.SSSSSSSSSSSSS.....L.SSSSSSSSSSSSS.....L.SSSSSSSSSSSSS.....
    s7    ..aaaaaaaaaaaa........aaaaaaaaaaaa........aaaaaaaaaaaa........aaaaaaaaaaaa........aaaaaaaaaaaa......
    """
)
# a letter is 100 µs
PROGRAM = {
    name: table.assign(**{edge: table[edge] * 100 for edge in ("start_ns", "end_ns")})
    for name, table in DRAWN.tables.items()
    if "end_ns" in table
}


def moving(operation: str, start: float, end: float, size: int = 0) -> Profile:
    """Return the program with pages that are moved in each step from `start` to `end` (ms)."""
    facts: dict[str, Any] = dict.fromkeys(("context", "stream", "device"), 0) | {"process": PROCESS}
    facts |= {"operation": operation, "bytes": size, "source_kind": "", "target_kind": ""}
    steps = [(begin + round(start * MS), begin + round(end * MS)) for begin in range(0, 5 * STEP, STEP)]
    moves = pd.DataFrame(steps, columns=["start_ns", "end_ns"]).assign(**facts)
    return Profile({**PROGRAM, "memory_ops": conform("memory_ops", moves)})


def gain(profile: Profile) -> Gain | None:
    simulation = simulate(Timeline(profile))
    assert simulation.is_trusted
    return next((gain for gain in simulation.gains if gain.remedy.rule == "migration"), None)


def test_a_kernel_gets_shorter_by_what_it_waits_for_pages() -> None:
    # a fault of the GPU is served for 70 µs before its pages are moved
    simulated = gain(moving("Unified Host-to-Device", 0.4, 1.2))
    assert simulated
    assert simulated.gain_ns == pytest.approx(0.87 * MS, rel=0.02)
    assert (simulated.remedy.path, simulated.remedy.cases) == ("step", 1)


def test_recorded_faults_replace_the_usual_time_before_a_move() -> None:
    profile = moving("Unified Host-to-Device", 0.4, 1.2)
    moves = profile.table("memory_ops")
    faults = pd.DataFrame(
        {"start_ns": moves["start_ns"] - 10_000, "end_ns": moves["start_ns"], "device": 0, "process": PROCESS}
    ).assign(address=0, faults=1)
    simulated = gain(replace(profile, tables={**profile.tables, "gpu_page_faults": conform("gpu_page_faults", faults)}))
    assert simulated
    assert simulated.gain_ns == pytest.approx(0.81 * MS, rel=0.01)


def test_bytes_still_have_to_be_moved() -> None:
    # 10 MB at 25 GB/s take 0.4 ms
    simulated = gain(moving("Unified Host-to-Device", 0.4, 1.2, size=10_000_000))
    assert simulated
    assert simulated.gain_ns == pytest.approx(0.47 * MS, rel=0.02)
    assert gain(moving("Unified Host-to-Device", 0.4, 1.2, size=30_000_000)) is None


def test_a_kernel_takes_some_time_without_waiting() -> None:
    simulated = gain(moving("Unified Host-to-Device", 0, 1.6))
    assert simulated
    assert simulated.gain_ns == pytest.approx(1.2 * MS, rel=0.05)


def test_host_code_gets_shorter_by_what_it_waits_for_pages() -> None:
    # a fault of the CPU is served for 50 µs before its pages are moved
    simulated = gain(moving("Unified Device-to-Host", 1.6, 1.8))
    assert simulated
    assert simulated.gain_ns == pytest.approx(0.25 * MS, rel=0.02)


def test_host_code_waits_until_its_pages_are_mapped() -> None:
    # 400 kB: 100 µs to map them; to copy them takes 16 µs
    simulated = gain(moving("Unified Device-to-Host", 1.6, 1.8, size=400_000))
    assert simulated
    assert simulated.gain_ns == pytest.approx(0.334 * MS, rel=0.02)


def test_pages_that_nobody_waits_for_gain_nothing() -> None:
    assert gain(moving("Unified Host-to-Device", 1.5, 1.9)) is None
    assert gain(moving("Unified Device-to-Host", 0.4, 1.2)) is None


def test_advice_says_where() -> None:
    first, *_ = advised(Timeline(moving("Unified Host-to-Device", 0.3, 1.3)))
    assert first.rule == "migration"
    assert first.title.startswith("Kernels or host code wait for pages of managed memory in `step`: ")
