"""Small collectives: those in a row become one, unless something between them may need a result."""

import pytest

from nightsight.analyze.causes.coalescing import coalescing
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.stretches import replay_stretch
from nightsight.events.timeline import Timeline
from nightsight.model.report import find
from nightsight.results.causes import WHAT_IF
from nightsight.workflows.analysis import build_report
from tests.program import (
    Body,
    Copy,
    Follow,
    Host,
    Kernel,
    Record,
    Reduce,
    Statement,
    Sync,
    Thread,
    captured,
    step_us,
    within,
)

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
SUM = "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::sum_functor<float>>>(T)"
SMALL = Reduce(12, size=1024)
BRIEF = Kernel(2, name=ADD)


def program(*ranks: Body, times: int = 12) -> tuple[Thread, ...]:
    return tuple(Thread((within("step", *body),) * times, rank) for rank, body in enumerate(ranks))


def joined(*ranks: Body) -> tuple[float, float, float]:
    """Return per step and rank: the collectives that go, those that stay, and how much longer these get, in µs."""
    scene = Scene(replay_stretch(Timeline(captured(*program(*ranks)))))
    transformed = coalescing(scene)
    if transformed is None:
        return 0, 0, 0
    steps = scene.steps * len(ranks)
    return len(transformed.removed) / steps, len(transformed.kept) / steps, transformed.longer_ns.sum() / 1000 / steps


def repeated(statement: Statement, times: int) -> Body:
    return (WORK, *(statement,) * times)


WORK = Kernel(500, name="gemm", blocks=1024)
TEN = repeated(SMALL, 10)


def test_all_but_one_go_and_their_bytes_stay() -> None:
    # all have one size: what is beyond the latency may be for their bytes
    assert joined(TEN, TEN) == pytest.approx((9, 1, 9 * 4))
    # the smallest tells how long a message takes: 10 µs, and 20 µs more for the bytes of each larger one
    mixed = (WORK, *(Reduce(10, size=8), Reduce(30, size=1 << 20)) * 5)
    assert joined(mixed, mixed) == pytest.approx((9, 1, 4 * 20), rel=0.01)


def test_of_unmatched_ranks_waits_stay() -> None:
    assert joined((WORK, *(Reduce(25, size=1024),) * 10)) == pytest.approx((9, 1, 9 * 17))


def test_without_bytes_short_ones_are_small() -> None:
    short, long = (repeated(Reduce(us), 10) for us in (29, 31))
    assert joined(short, short) == pytest.approx((9, 1, 9 * 21))
    assert joined(long, long) == (0, 0, 0)


def test_large_ones_between_stay() -> None:
    body = (WORK, *(SMALL, Reduce(200, size=16 << 20)) * 8)
    assert joined(body, body) == pytest.approx((7, 1, 0), abs=0.2)


@pytest.mark.parametrize(
    ("between", "removed"),
    [
        ((), 19),
        ((BRIEF,) * 3, 19),
        ((Copy("I", 1024, us=2),), 19),
        # a few in a row are left, and eight are needed
        ((BRIEF,) * 4, 0),
        ((Kernel(25, name=ADD),), 0),
        ((Kernel(2, name=SUM),), 0),
        ((Kernel(2, name="gemm"),), 0),
        ((Reduce(12, size=8, stream=9), BRIEF), 19),
        ((Copy("D", 4, is_pinned=False),), 0),
        ((Sync(),), 0),
        # a stream that waits for none, while the collective runs
        ((Kernel(30, 9, name="gemm"),), 19),
        # one that does
        ((Record(1), Follow(1, 9), Kernel(2, 9, name="gemm")), 0),
        ((Record(1), Follow(1, 9), Kernel(2, 9, name=ADD)), 19),
        # one that waits for what waits
        ((Record(1), Follow(1, 9), Kernel(2, 9, name=ADD), Record(2, 9), Follow(2, 8), Kernel(2, 8, name="gemm")), 0),
    ],
)
def test_what_needs_a_result_ends_a_row(between: Body, removed: int) -> None:
    body: Body = (WORK, *(SMALL, *between) * 20)
    extra = removed and any(isinstance(each, Reduce) for each in between) and 20
    assert joined(body, body)[0] == pytest.approx(removed + extra)


def test_a_row_ends_with_the_step_and_has_eight() -> None:
    for count, removed in ((7, 0), (8, 7)):
        body: Body = (*(SMALL,) * count, WORK)
        assert joined(body, body)[0] == removed
    # in a loop without anything else, rows are as long as steps
    assert joined((SMALL,) * 10, (SMALL,) * 10)[0] == pytest.approx(9)


def test_all_ranks_must_be_able_to_join_them() -> None:
    needed: Body = (WORK, *(SMALL, Kernel(2, name="gemm")) * 10)
    assert joined(TEN, needed) == (0, 0, 0)


@pytest.mark.parametrize("host_us", [0, 60])
def test_the_gain_is_that_of_one_collective(host_us: float) -> None:
    body = (Kernel(800, name="gemm", blocks=1024), *(Host(host_us), Reduce(8, size=8)) * 40)
    fixed = (Kernel(800, name="gemm", blocks=1024), Host(host_us), Reduce(8, size=320))
    report = build_report(captured(*program(body, body)), "")
    result = find(report.results, WHAT_IF.name)
    assert result is not None
    assert result.table is not None
    (gain,) = (row for row in result.table.to_dict("records") if row["rule"] == "small_collectives")
    before, after = (step_us(Thread(each, 0), Thread(each, 1)) for each in (body, fixed))
    assert gain["cases"] == pytest.approx(40)
    assert gain["gain_ns"] / 1000 == pytest.approx(before - after, rel=0.05)
    (finding,) = (each for each in report.findings if each.rule == "small_collectives")
    assert finding.title.startswith("40 small collectives per step in `step` (allreduce, 8 B on average): ")
