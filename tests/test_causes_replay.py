"""The causal model on programs of which all is known: their replay, their critical path, and what remedies gain.

The programs are simulated (tests/program.py). What a remedy gains is compared with the same program without its fault.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.graph import graph
from nightsight.analyze.causes.outcome import outcome
from nightsight.analyze.causes.path import critical_path, path_table
from nightsight.events.timeline import Timeline
from tests.program import (
    Body,
    Call,
    Copy,
    Expect,
    Follow,
    Graph,
    Host,
    Kernel,
    Post,
    Record,
    Reduce,
    Statement,
    Sync,
    Thread,
    loop,
    run,
    within,
)
from tests.properties import examples

STEPS = 10
MEBI = 1 << 20


def replayed(*steps: Thread | Body, times: int = STEPS, name: str = "step", added_us: float = 0.0) -> Timeline:
    """Return the capture of a program whose threads repeat these steps."""
    threads = [step if isinstance(step, Thread) else Thread(step) for step in steps]
    looped = [Thread(loop(times, *thread.body, name=name), thread.rank) for thread in threads]
    return Timeline(run(*looped, added_us=added_us).profile)


def pageable(way: str, size: int) -> Copy:
    return Copy(way, size, is_pinned=False)


def turns(first: Body, second: Body) -> tuple[Thread, ...]:
    """Return two threads that take turns, as PyTorch's main thread and that of its backward pass do."""
    return Thread((*first, Post("go"), Expect("done"))), Thread((Expect("go"), *second, Post("done")))


# -- any program ------------------------------------------------------------------------------------------------------

streams = st.sampled_from((7, 7, 7, 8, 9))
events = st.integers(0, 1)
statements: st.SearchStrategy[Statement] = st.one_of(
    st.builds(Kernel, st.sampled_from((1, 5, 20, 80, 200)), streams, st.sampled_from("abc")),
    st.builds(Kernel, st.integers(1, 50), streams),
    st.builds(Host, st.sampled_from((1, 10, 60, 250))),
    st.builds(Copy, st.sampled_from("HD"), st.sampled_from((1000, 2 * MEBI)), streams, st.booleans()),
    st.builds(Sync, st.sampled_from((None, 7, 8))),
    st.builds(Record, events, streams),
    st.builds(Follow, events, streams),
    st.builds(Graph, st.integers(1, 5), st.sampled_from((1, 10)), streams, st.booleans()),
    st.sampled_from((Call("cudaMalloc", 50), Call("cudaFree", 10, waits=True))),
)
bodies = st.lists(statements, min_size=1, max_size=10).map(lambda body: (Kernel(30), *body))
programs = st.one_of(
    bodies.map(lambda body: (Thread(body),)),
    st.builds(turns, bodies, bodies),
    # of two ranks, each does its own and reduces once
    st.builds(lambda *ranks: tuple(Thread((*each, Reduce(30, 8)), n) for n, each in enumerate(ranks)), bodies, bodies),
)


@given(programs, st.sampled_from((1, 3, 8)))
@examples(40)
def test_any_program_is_replayed_as_it_was_and_its_path_adds_up(program: tuple[Thread, ...], times: int) -> None:
    timeline = replayed(*program, times=times)
    found = outcome(timeline)
    # what happens once has a latency of its own
    assert found.replayed_ns == pytest.approx(found.measured_ns, rel=0.01, abs=1_000 if found.model.steps else 5_000)
    assert all(0 <= gain.gain_ns <= found.unprofiled_ns + 1 for gain in found.gains)
    assert_adds_up(timeline)


def assert_adds_up(timeline: Timeline) -> None:
    """The pieces of the path touch, from the end of the window to its beginning, and the rows of its table add up."""
    pieces, window = critical_path(timeline), timeline.window
    assert (pieces.end > pieces.start).all()
    assert pieces.start[:-1].tolist() == pieces.end[1:].tolist()
    if window.length_ns:
        assert (pieces.end[0], pieces.start[-1]) == (window.end_ns, window.start_ns)
    assert path_table(timeline).frame["time_ns"].sum() == window.length_ns


@pytest.mark.parametrize(
    ("step", "times"),
    [
        # a copy that blocks runs while its call does, which is no reason to take its latency for nothing
        ((pageable("H", 1000), pageable("D", 1000)), 2),
        # nor is it that of a launch, which counts from the end of the call
        ((Kernel(5), Sync(), pageable("H", 1000)), 4),
        # a long call gives the GPU work when it returns, not in the middle
        ((Kernel(50, call_us=500), Sync(), Host(20)), 3),
        # the wait returns while a kernel of another stream still runs, but not for long
        ((Kernel(20), Host(60), Kernel(1), Sync(8)), STEPS),
        # the call returns in the very ns in which what it waited for ends
        ((Host(20), Kernel(30), Call("cudaFree", 0, waits=True)), STEPS),
        # the second copy waits for the first, on another stream, and is done in less time than passes between the two
        ((Copy("H", 2 * MEBI, 9), Kernel(5), pageable("H", 1000)), STEPS),
    ],
)
def test_latencies_and_what_was_waited_for_are_known_where_they_are_easily_mistaken(step: Body, times: int) -> None:
    found = outcome(replayed(step, times=times))
    assert found.replayed_ns == pytest.approx(found.measured_ns, rel=0.01)


def test_a_wait_for_what_was_launched_before_the_window_is_for_that() -> None:
    """The first call of the window waits for kernels that the GPU has not even begun."""
    kernels = (Kernel(100),) * 5
    timeline = Timeline(run((*kernels, within("measure", Sync(), Host(50)))).profile)
    assert timeline.window.name == "measure"
    found = graph(timeline)
    (awaited,) = found.calls.awaited
    assert found.work.end[awaited] == timeline.operations.end.max()
    path = path_table(timeline).frame.set_index("cause")["time_ns"]
    assert path["compute"] == pytest.approx(5 * 100_000, rel=0.05)
    assert path["synchronizing call"] == 4_000
    assert outcome(timeline).unexplained == pytest.approx(0, abs=0.01)


# -- the critical path ------------------------------------------------------------------------------------------------

LAUNCHED = {"launch": 8}
RETURNS = {"synchronizing call": 4}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # the GPU waits for the CPU, which waits for the GPU: all of a step is on the path
        (
            (within("load", Host(300)), Kernel(100), Sync()),
            {"host code in step / load": 300, **LAUNCHED, "compute": 100, **RETURNS},
        ),
        # the CPU is ahead: only the GPU counts, and the hops on its stream
        ((Host(5), Kernel(50), Host(20), Kernel(70)), {"compute": 120, "dependency": 2}),
        # the launch of the second kernel is hidden behind the first
        ((Kernel(100), Kernel(100), Sync()), {**LAUNCHED, "compute": 200, "dependency": 1, **RETURNS}),
        # what an event orders runs one after the other, and what nothing orders at the same time
        (
            (Kernel(100, 7), Record(0, 7), Follow(0, 8), Kernel(60, 8), Sync()),
            {**LAUNCHED, "compute": 160, "dependency": 1, **RETURNS},
        ),
        ((Kernel(100, 7), Kernel(60, 8), Sync()), {**LAUNCHED, "compute": 100, **RETURNS}),
        # a call that waits works on its own after that
        ((Kernel(100), Call("cudaFree", 50, waits=True)), {**LAUNCHED, "compute": 100, "allocation and free": 50}),
        (
            (pageable("H", MEBI), Sync()),
            {"launch": 8, "copies and sets": 3 * MEBI / 25_000, "blocking copy": 4, **RETURNS},
        ),
    ],
)
def test_each_piece_of_the_path_is_the_time_of_its_cause(step: Body, expected: dict[str, float]) -> None:
    # less than a µs is what happens once
    found = {cause: us for cause, us in per_step(replayed(step)).items() if us >= 1}
    assert found == pytest.approx(expected, rel=0.01, abs=0.5)


def per_step(timeline: Timeline) -> dict[str, float]:
    """Return the µs of a step by cause, that of host code with its place."""
    rows = path_table(timeline).frame
    place = (" in " + rows["path"]).where(rows["cause"] == "host code", "")
    return (rows["time_ns"].groupby(rows["cause"] + place).sum() / (1000 * STEPS)).to_dict()
