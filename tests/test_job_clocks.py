"""Ranks whose clocks differ, whose times are uncertain, who come late, or who are launched far ahead."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes import stretches
from nightsight.analyze.causes.simulation import simulate
from nightsight.events.meetings import meetings
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.properties import examples
from tests.world import GAP_NS, TRANSFER_NS, world

MS = 1_000_000
STEPS = 30


def in_turns(part: RankCapture, seed: int) -> RankCapture:
    """Return a rank whose kernels end up to 2 ms from when they should, as on a GPU that others use in turns."""
    kernels = part.profile.table("kernels")
    moved = np.random.default_rng(seed).integers(-2 * MS, 2 * MS, len(kernels))
    times = {name: kernels[name] + moved for name in ("start_ns", "end_ns")}
    return with_tables(part, kernels=kernels.assign(**times))


def with_tables(part: RankCapture, **tables: pd.DataFrame) -> RankCapture:
    return replace(part, profile=replace(part.profile, tables={**part.profile.tables, **tables}))


def made_here(part: RankCapture) -> RankCapture:
    """Return a rank whose capture has the call that made its communicator."""
    return with_tables(part, collectives=part.profile.table("collectives").assign(is_whole=True))


def shift_of(parts: Sequence[RankCapture]) -> int:
    ranks = merge_ranks(list(parts)).table("ranks").set_index("rank")
    return int(ranks["shift_ns"].fillna(0)[1])


clocks = st.integers(-3_000 * MS, 3_000 * MS)


@pytest.mark.nightly
@given(clock=clocks, seed=st.integers(0, 99))
def test_in_a_communicator_made_in_the_captures_the_first_call_is_the_first_on_all_ranks(clock: int, seed: int) -> None:
    ranks = world([[5 * MS] * STEPS] * 2, clocks=[0, clock])
    shift = shift_of([made_here(in_turns(part, seed + place)) for place, part in enumerate(ranks)])
    # steps are alike, and 5 ms long
    assert abs(shift + clock) < 2 * MS


@pytest.mark.nightly
@given(clock=clocks, error=st.integers(-MS // 2, MS // 2), seed=st.integers(0, 99))
def test_if_nothing_fits_ranks_are_where_the_clocks_of_their_machines_say(clock: int, error: int, seed: int) -> None:
    ranks = [in_turns(part, seed) for part in world([[5 * MS] * STEPS] * 2, clocks=[0, clock])]
    first, other = (
        replace(part, profile=replace(part.profile, epoch_ns=10**18 + offset))
        for part, offset in zip(ranks, (0, error - clock), strict=True)
    )
    assert abs(shift_of([first, in_turns(other, seed + 1)]) + clock) < 3 * MS


@examples(100)
@given(clock=clocks, wrong=clocks)
def test_a_clock_that_is_wrong_does_not_matter_if_collectives_tell(clock: int, wrong: int) -> None:
    work = [[(3 + step * step % 7) * MS for step in range(STEPS)]] * 2
    first, other = (
        replace(part, profile=replace(part.profile, epoch_ns=10**18 + offset))
        for part, offset in zip(world(work, clocks=[0, clock]), (0, wrong), strict=True)
    )
    assert abs(shift_of([first, other]) + clock) < MS // 10


def call(process: int, start: int, end: int, **facts: object) -> dict[str, object]:
    on = {"process": process, "thread": process, "pid": process, "tid": process}
    return {"start_ns": start, "end_ns": end, **on, "name": "allgather", "group": "7", "is_whole": True, **facts}


def met(*calls: dict[str, object]) -> pd.DataFrame:
    """Return what held threads, on a timeline that has nothing but these calls."""
    return meetings(Timeline(Profile({"collectives": conform("collectives", pd.DataFrame(calls))})))


@given(late=st.lists(st.integers(0, 500), min_size=2, max_size=6, unique=True))
def test_all_are_held_until_the_last_has_come(late: list[int]) -> None:
    come = [100 * MS * one for one in late]
    table = met(*(call(process, start, max(come) + 5 * MS) for process, start in enumerate(come)))
    last = int(np.argmax(come))
    held = dict(zip(table["process"], table["met_ns"] - table["begin_ns"], strict=True))
    assert held == {process: max(come) - one for process, one in enumerate(come) if process != last}
    assert set(table["last"]) == {last}


@pytest.mark.parametrize(
    ("own", "other"),
    [
        pytest.param({"end": 10 * MS}, {}, id="returned before"),
        pytest.param({"end": 900 * MS}, {}, id="went on alone"),
        pytest.param({"is_whole": False}, {"is_whole": False}, id="calls before may be missing"),
        pytest.param({"name": "send"}, {"name": "recv"}, id="a pair"),
        pytest.param({"group": "8"}, {}, id="another communicator"),
    ],
)
def test_a_call_that_waits_for_no_one_is_not_held(own: dict[str, object], other: dict[str, object]) -> None:
    both = (call(1, 0, 105 * MS), own), (call(2, 100 * MS, 106 * MS), other)
    changed = [{**made, **facts, "end_ns": facts.get("end", made["end_ns"])} for made, facts in both]
    assert len(met(call(1, 0, 105 * MS), call(2, 100 * MS, 106 * MS))) == 1
    assert not len(met(*changed))


@pytest.mark.parametrize("most", [60, 200, 10_000])
def test_a_step_takes_as_long_however_far_the_cpu_is_ahead(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "MOST_REPLAYED", most)
    simulation = simulate(Timeline(merge_ranks(world([[2 * MS] * STEPS] * 2))))
    assert simulation.measured_ns == pytest.approx(2 * MS + TRANSFER_NS + GAP_NS, rel=0.02)
    assert abs(simulation.unexplained) < 0.02


def test_ranks_are_not_compared_by_steps_that_only_some_have() -> None:
    uneven = merge_ranks(world([[1 * MS] * STEPS, [3 * MS] * STEPS]))
    assert "straggler" in {gain.remedy.rule for gain in simulate(Timeline(uneven)).gains}
    ranges = uneven.table("ranges")
    without = ranges[ranges["process"] == ranges["process"].min()]
    some = replace(uneven, tables={**uneven.tables, "ranges": without})
    assert "straggler" not in {gain.remedy.rule for gain in simulate(Timeline(some)).gains}
