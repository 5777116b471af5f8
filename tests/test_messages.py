"""What ranks send to each other: who to whom, how much, and who waited for whom."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.communication import communication, messages
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from tests.properties import examples
from tests.world import BYTES, Op, Program, all_then_all, in_turns, played

STEPS = 5
EVEN = [(300_000, 600_000)] * 3


def messages_of(
    programs: Sequence[Sequence[Program]], *, is_eager: bool = False, tells_calls: bool = True
) -> pd.DataFrame:
    parts = played(programs, is_eager=is_eager, tells_calls=tells_calls)
    return messages(communication(Timeline(merge_ranks(parts))))


def sent(programs: Sequence[Sequence[Program]]) -> dict[tuple[int, int], int]:
    """Return how many messages were drawn for each pair of ranks."""
    counts: dict[tuple[int, int], int] = {}
    for rank, steps in enumerate(programs):
        for to in (to for step in steps for op in step for to in op.to):
            counts[rank, to] = counts.get((rank, to), 0) + 1
    return counts


@pytest.mark.parametrize("schedule", [all_then_all, in_turns])
@pytest.mark.parametrize("is_eager", [False, True])
def test_each_message_is_found_with_its_sender_and_receiver(schedule: object, *, is_eager: bool) -> None:
    programs = [[program] * STEPS for program in schedule(EVEN, 4)]  # type: ignore[operator]
    table = messages_of(programs, is_eager=is_eager)
    assert table.groupby(["sender", "receiver"]).size().to_dict() == sent(programs)
    assert table["bytes"].unique().tolist() == [BYTES]
    assert table["is_directed"].all()


pieces = st.lists(
    st.tuples(st.sampled_from([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 0)]), st.integers(50_000, 900_000)),
    min_size=3,
    max_size=20,
)


@examples(25)
@given(drawn=pieces)
def test_who_waited_for_whom_is_what_was_drawn(drawn: list[tuple[tuple[int, int], int]]) -> None:
    programs: list[list[list[Op]]] = [[[Op(work=10_000 * rank + 1)]] for rank in range(4)]
    for (sender, receiver), work in drawn:
        programs[sender][0] += [Op(work=work), Op(to=(receiver,))]
        programs[receiver][0] += [Op(of=(sender,))]
    parts = played(programs)
    table = communication(Timeline(merge_ranks(parts)))
    pairs = messages(table)
    assert pairs.groupby(["sender", "receiver"]).size().to_dict() == sent(programs)
    # both sides of a message end together
    end = table["end_ns"].to_numpy()
    assert (end[pairs["sent"]] == end[pairs["got"]]).all()
    numbers = table["collective"].to_numpy()
    assert (numbers[pairs["sent"]] == numbers[pairs["got"]]).all()
    assert np.unique(numbers).size == len(drawn)
    # kernels alone tell pairs, though not who gave
    alone = messages_of(programs, tells_calls=False)
    assert not alone["is_directed"].any()
    assert (end[alone["sent"]] == end[alone["got"]]).all()
    if table["end_ns"].nunique() == len(drawn):
        assert len(alone) == len(drawn)


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("ahead", [0, 7_000_000_000, -3_600_000_000_000])
def test_messages_tell_clocks_if_nothing_else_does(ahead: int, *, is_eager: bool) -> None:
    programs = [[program] * STEPS for program in all_then_all(EVEN, 4)]
    parts = played(programs, is_eager=is_eager)
    late = {
        name: frame.assign(**{column: frame[column] + ahead for column in ("start_ns", "end_ns") if column in frame})
        for name, frame in parts[1].profile.tables.items()
    }
    moved = replace(parts[1], profile=replace(parts[1].profile, tables=late))
    job = merge_ranks([parts[0], moved, parts[2]])
    assert "unknown_clock" not in {finding.rule for finding in job.findings}
    shift = job.table("ranks")["shift_ns"].fillna(0).tolist()
    # what is sent ahead tells less: no more than how long ahead
    assert shift == pytest.approx([0, -ahead, 0], abs=20_000_000 if is_eager else 0)


# -- communicators that the capture does not tell ---------------------------------------------------------------------


def grid(delays: Sequence[Sequence[int]], wide: int) -> list[list[Program]]:
    """Return steps of ranks in rows, in which they meet after each layer, and in columns, after each step.

    delays: how long each rank computes before it meets others, in ns, three times a step. wide: ranks in a row.
    """
    programs = []
    for rank, times in enumerate(delays):
        row, column = rank // wide, rank % wide
        steps: list[Program] = []
        for works in zip(times[::3], times[1::3], times[2::3], strict=True):
            meetings = [(f"row {row}", 20), (f"row {row}", 20), (f"column {column}", 21)]
            steps.append(
                [
                    op
                    for work, (name, stream) in zip(works, meetings, strict=True)
                    for op in (Op(work=work), Op(meets=name, stream=stream + 3 * rank))
                ]
            )
        programs.append(steps)
    return programs


def drawn_groups(programs: Sequence[Sequence[Program]]) -> set[frozenset[tuple[int, int]]]:
    """Return which kernels of which ranks belong together, each by its number among those of the rank."""
    groups: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for rank, steps in enumerate(programs):
        counts: dict[str, int] = {}
        met = [op.meets for step in steps for op in step if op.meets]
        for place, name in enumerate(met):
            groups.setdefault((name, counts.get(name, 0)), set()).add((rank, place))
            counts[name] = counts.get(name, 0) + 1
    return {frozenset(members) for members in groups.values()}


def found_groups(parts: Sequence[RankCapture]) -> set[frozenset[tuple[int, int]]]:
    table = communication(Timeline(merge_ranks(parts))).sort_values(["device", "start_ns"])
    table["place"] = table.groupby("device").cumcount()
    table = table[table["collective"] >= 0]
    return {
        frozenset(zip(members["device"].tolist(), members["place"].tolist(), strict=True))
        for _, members in table.groupby("collective")
    }


@examples(25)
@given(
    shape=st.sampled_from([(2, 2), (2, 4), (4, 2)]),
    data=st.data(),
)
def test_groups_of_a_grid_that_no_call_tells_are_those_that_were_drawn(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    rows, wide = shape
    seed = data.draw(st.integers(0, 1 << 30))
    # who computes as long as another cannot be told from it, so delays are of all sizes
    delays = np.random.default_rng(seed).integers(200_000, 2_000_000, (rows * wide, 3 * STEPS)).tolist()
    programs = grid(delays, wide)
    assert found_groups(played(programs, tells_calls=False)) == drawn_groups(programs)


def test_one_group_of_all_ranks_is_still_one() -> None:
    delays = np.random.default_rng(1).integers(200_000, 2_000_000, (4, 3 * STEPS)).tolist()
    programs = [[[Op(work=work), Op(meets="all")] for work in times] for times in delays]
    assert found_groups(played(programs, tells_calls=False)) == drawn_groups(programs)
