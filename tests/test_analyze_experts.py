"""Experts on several ranks: who gets more than the others, computes longer for it, and what evening it out gains."""

import random
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import collectives
from nightsight.analyze.experts import ANALYSES
from nightsight.events.communication import communication, messages
from nightsight.events.timeline import Timeline
from nightsight.job.facts import rank_summary
from nightsight.job.merge import merge_ranks, merge_some_ranks
from nightsight.model.report import Finding
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.world import BYTES, Op, Program, played, timed

STEPS = 12
ATTENTION_NS = 400_000


def layers(work: Sequence[Sequence[int]], *, count: int = 2, step: int = 0) -> list[Program]:
    """Return a step of each rank: attention, tokens to experts, their work, and back; `work[rank][place]` in ns."""
    programs: list[Program] = []
    for times in work:
        ops: list[Op] = []
        for layer in range(count):
            spent = times[(step * count + layer) % len(times)]
            got = BYTES * spent // 1_000_000
            ops += [Op(work=ATTENTION_NS), Op(meets="9", name="all_to_all", gives=BYTES, gets=got), Op(work=spent)]
            ops += [Op(meets="9", name="all_to_all", gives=got, gets=BYTES)]
        programs.append(ops)
    return programs


def steps_of_all(work: Sequence[Sequence[int]]) -> list[list[Program]]:
    each = [layers(work, step=step) for step in range(STEPS)]
    return [[programs[rank] for programs in each] for rank in range(len(work))]


def table(work: Sequence[Sequence[int]]) -> pd.DataFrame:
    return ANALYSES[0].run(Timeline(merge_ranks(played(steps_of_all(work))))).rows.set_index("rank").sort_index()


def advised(work: Sequence[Sequence[int]]) -> dict[str, Finding]:
    return {one.rule: one for one in build_report(merge_ranks(played(steps_of_all(work))), "job").findings}


def length_of(work: Sequence[Sequence[int]]) -> float:
    times = timed(steps_of_all(work))
    return (times[0][-1][-1][1] - times[0][1][-1][1]) / (STEPS - 2)


@examples(10)
@given(st.lists(st.integers(200_000, 3_000_000), min_size=2, max_size=4))
def test_what_ranks_get_and_compute_is_what_was_drawn(work: list[int]) -> None:
    frame = table([[spent] for spent in work])
    assert frame["calls"].tolist() == pytest.approx([4] * len(work), abs=0.5)
    assert frame["between_ns"].to_numpy() == pytest.approx(2 * np.array(work), rel=0.1)
    assert frame["between_pct"].to_numpy() == pytest.approx(100 * np.array(work) / np.mean(work), rel=0.05)
    # back comes what was given
    got = (BYTES + np.array([BYTES * spent // 1_000_000 for spent in work])) / 2
    assert frame["received_bytes"].to_numpy() == pytest.approx(got, rel=0.05)


def test_an_all_to_all_is_one_collective_though_each_rank_gives_another_size() -> None:
    (analysis,) = (one for one in collectives.ANALYSES if one.entry.name == "collectives")
    table = analysis.run(Timeline(merge_ranks(played(steps_of_all([[1_000_000], [1_500_000], [2_200_000]]))))).rows
    assert table["name"].tolist() == ["all_to_all"]
    assert table["calls"].tolist() == pytest.approx([4], abs=0.5)
    assert table["transfer_ns"].notna().all()
    assert table["last_rank"].tolist() == [2]


def test_a_rank_whose_experts_are_chosen_more_often_is_named() -> None:
    work = [[1_000_000], [1_000_000], [2_200_000], [1_000_000]]
    findings = advised(work)
    assert "lone_rank" not in findings
    finding = findings["uneven_experts"]
    assert finding.title.startswith("Rank 2 has more expert work")
    before, after = length_of(work), length_of([[1_300_000]] * 4)
    assert finding.gain_pct == pytest.approx(100 * (before - after) / before, abs=2)
    # attention takes as long on all
    assert "straggler" not in findings


@pytest.mark.parametrize("most", [2, 3])
def test_of_a_large_job_those_that_are_held_stand_for_the_others(most: int) -> None:
    parts = played(steps_of_all([[2_200_000] if rank == 5 else [1_000_000] for rank in range(8)]))
    some = merge_some_ranks([rank_summary(part) for part in parts], lambda number: parts[number].profile, most)
    (finding,) = (one for one in build_report(some, "job").findings if one.rule == "uneven_experts")
    (expected,) = (one for one in build_report(merge_ranks(parts), "job").findings if one.rule == "uneven_experts")
    assert finding.title.startswith("Rank 5 has more expert work")
    assert finding.gain_pct == pytest.approx(expected.gain_pct, abs=1)


def test_another_rank_each_time_is_one_cause() -> None:
    choose = random.Random(3).choice
    work = [[choose([800_000, 800_000, 2_000_000]) for _ in range(2 * STEPS)] for _ in range(4)]
    finding = advised(work)["uneven_experts"]
    assert finding.title.startswith("Each time a different rank has more expert work")
    each = [[int(mean) for mean in np.mean(work, axis=0)]] * 4
    before, after = length_of(work), length_of(each)
    assert finding.gain_pct == pytest.approx(100 * (before - after) / before, abs=3)


def test_even_experts_get_no_advice() -> None:
    assert not {"uneven_experts", "straggler"} & advised([[1_000_000]] * 4).keys()


def test_an_all_to_all_made_of_sends_and_receives_is_one() -> None:
    ranks = range(4)
    programs = [
        [[Op(work=100_000 * (rank + 1)), Op(to=tuple(ranks), of=tuple(ranks), gives=rank + 1)] for rank in ranks]
        for _ in range(STEPS)
    ]
    parts = played([[step[rank] for step in programs] for rank in ranks])
    table = communication(Timeline(merge_ranks(parts)))
    assert set(table["name"]) == {"all_to_all"}
    assert table.groupby("collective")["device"].nunique().eq(4).all()
    assert sorted(set(table["bytes"])) == [4, 8, 12, 16]
    assert messages(table).empty
