"""What ranks send to each other: who to whom, how much, and who waited for whom."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.communication import communication, messages
from nightsight.events.timeline import Timeline
from nightsight.job import joined
from tests.properties import examples
from tests.world import BYTES, Op, Program, all_then_all, in_turns, played

STEPS = 5
EVEN = [(300_000, 600_000)] * 3


def told(programs: Sequence[Sequence[Program]], *, is_eager: bool = False, tells_calls: bool = True) -> pd.DataFrame:
    parts = played(programs, is_eager=is_eager, tells_calls=tells_calls)
    return messages(communication(Timeline(joined(parts))))


def sent(programs: Sequence[Sequence[Program]]) -> dict[tuple[int, int], int]:
    """Return how many messages were drawn for each pair of ranks."""
    found: dict[tuple[int, int], int] = {}
    for rank, steps in enumerate(programs):
        for to in (to for step in steps for op in step for to in op.to):
            found[rank, to] = found.get((rank, to), 0) + 1
    return found


@pytest.mark.parametrize("schedule", [all_then_all, in_turns])
@pytest.mark.parametrize("is_eager", [False, True])
def test_each_message_is_found_with_its_sender_and_receiver(schedule: object, *, is_eager: bool) -> None:
    programs = [[program] * STEPS for program in schedule(EVEN, 4)]  # type: ignore[operator]
    found = told(programs, is_eager=is_eager)
    assert found.groupby(["sender", "receiver"]).size().to_dict() == sent(programs)
    assert found["bytes"].unique().tolist() == [BYTES]
    assert found["is_directed"].all()


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
    found = communication(Timeline(joined(parts)))
    pairs = messages(found)
    assert pairs.groupby(["sender", "receiver"]).size().to_dict() == sent(programs)
    # both sides of a message end together
    end = found["end_ns"].to_numpy()
    assert (end[pairs["sent"]] == end[pairs["got"]]).all()
    numbers = found["collective"].to_numpy()
    assert (numbers[pairs["sent"]] == numbers[pairs["got"]]).all()
    assert np.unique(numbers).size == len(drawn)
    # kernels alone tell pairs, though not who gave
    alone = told(programs, tells_calls=False)
    assert not alone["is_directed"].any()
    assert (end[alone["sent"]] == end[alone["got"]]).all()
    if found["end_ns"].nunique() == len(drawn):
        assert len(alone) == len(drawn)
