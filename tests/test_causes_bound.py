"""The least time of a step after a change: the work that the busiest stream or copy engine has left."""

from dataclasses import replace

import numpy as np
import pytest

from nightsight.analyze.causes.bound import least_lengths
from nightsight.analyze.causes.model import STREAM
from nightsight.analyze.causes.remedies import remedies
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.simulation import simulate
from nightsight.events.timeline import Timeline
from tests.program import Body, Copy, Follow, Host, Kernel, Record, Reduce, Thread, step_us, within
from tests.test_causes_model import ALONE, BATCH, MEBI, looped, passes, ranks

LOADED = within("load", Copy("H", BATCH))
BATCH_US = Copy("H", BATCH).length_us


def least_us(timeline: Timeline, *rules: str) -> float:
    """Return the bound of a step in µs after the first remedy of each of these rules."""
    scene = Scene(timeline)
    first = {remedy.rule: remedy.edit for remedy in reversed(remedies(scene))}
    lag = scene.model.lag
    for rule in rules:
        lag = scene.apply(first[rule], lag)
    (least,) = least_lengths(scene.model, lag[:, None])
    return float(least) / 1000


SAVED = (Kernel(20), Copy("D", 8 * MEBI), *(LOADED,) * 12, Kernel(3000))
SUMMED = passes(4, of_each=True, bucket=(Kernel(200), Record(0), Follow(0, 8), Reduce(2000, 8)))


@pytest.mark.parametrize(
    ("program", "rules", "expected"),
    [
        # the busier of two streams
        ([(Kernel(100), Host(10), Kernel(50), Kernel(60, 8))], (), 150),
        # collectives transfer after the last rank has come, and what they wait for is not work
        (ranks(*[(Kernel(200), Reduce(50))] * 2), (), 250),
        (ranks((Kernel(200), Reduce(50)), (Kernel(300), Reduce(50))), (), 350),
        # copies that leave their stream no longer count for it, what stays there does
        ([SAVED], (), 20 + 2 * BATCH_US + 12 * BATCH_US + 3000),
        ([SAVED], ("exposed_copy",), 20 + 2 * BATCH_US + 3000),
        ([SAVED], ("exposed_copy", "copies_to_host"), 3020),
        ([SAVED], ("copies_to_host", "exposed_copy"), 3020),
        ([(Kernel(20), Copy("P", MEBI), Copy("P", 2 * MEBI), Kernel(50))], ("peer_copy",), 70),
        # their engine copies one after the other
        ([(Kernel(20), *(LOADED,) * 3)], ("exposed_copy",), 3 * BATCH_US),
        # a part of a transfer is hidden, alone or after another one
        (ranks(*[(Kernel(200), Reduce(100))] * 2), ("exposed_communication",), 270),
        (ranks(*[(Kernel(200), Reduce(50), Reduce(50))] * 2), ("exposed_communication",), 270),
        (ranks(*[(Kernel(200), Reduce(95), Reduce(5))] * 2), ("exposed_communication",), 270),
        # no more than the work that it is hidden behind
        (ranks(*[(Kernel(10), Reduce(500))] * 2), ("exposed_communication",), 500),
        # what is no longer reduced takes no time
        (SUMMED, (), 4 * 3 * 2000),
        (SUMMED, ("repeated_reduction",), 3 * 2000),
    ],
)
def test_a_step_is_as_long_as_the_work_that_is_left(
    program: list[Thread | Body], rules: tuple[str, ...], expected: float
) -> None:
    assert least_us(looped(*program), *rules) == pytest.approx(expected, rel=0.01)


def test_without_steps_all_work_counts_that_follows_other_work_of_its_stream() -> None:
    assert least_us(looped(*ranks(*[(Kernel(200), Kernel(100), Reduce(50))] * 2), times=1)) == pytest.approx(150)


def test_work_that_two_changes_remove_is_not_removed_twice() -> None:
    scene = Scene(looped((Kernel(100), Kernel(50))))
    model, work = scene.model, scene.graph.work
    short = np.flatnonzero(scene.length == 50_000)
    edges = model.edges_of(STREAM, short)
    lags = np.tile(model.lag[:, None], (1, 2))
    lags[edges, 1] -= 2 * (work.end - work.start)[short]
    assert least_lengths(model, lags) == pytest.approx([150_000, 100_000])


@pytest.mark.parametrize(
    "slow",
    [
        # the large copies go to another stream, and the copy engine does them one after the other all the same
        (Kernel(30), Kernel(20, 8), Copy("H", 1000), Copy("H", 8 * MEBI)),
        (Kernel(30), Copy("H", 8 * MEBI), Record(0), Host(250), Copy("H", 1000)),
    ],
)
@pytest.mark.parametrize("times", [3, 4])
def test_no_step_is_predicted_to_be_shorter_than_the_work_that_is_left(slow: Body, times: int) -> None:
    simulation = simulate(looped(slow, times=times))
    (copy,) = (gain for gain in simulation.gains if gain.remedy.rule == "exposed_copy")
    mended = tuple(replace(each, stream=ALONE) if each == Copy("H", 8 * MEBI) else each for each in slow)
    predicted = (simulation.unprofiled_ns - copy.gain_ns) / 1000
    assert predicted >= 0.999 * 2 * BATCH_US
    assert predicted == pytest.approx(step_us(mended), rel=0.05)
