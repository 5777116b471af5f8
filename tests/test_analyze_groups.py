"""Which kernels are chosen for a replay: the fewest launches that stand for most of the time."""

import pytest

from nightsight.analyze.replay.groups import KernelChoice, choose_kernels
from nightsight.events.window import WHOLE
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.timeline import draw


def sized(picture: str, *grids: int) -> Profile:
    """Draw kernels and give each its grid."""
    drawn = draw(picture)
    kernels = drawn.table("kernels").assign(grid_x=grids)
    return Profile({**drawn.tables, "kernels": conform("kernels", kernels)}, window=WHOLE)


def choose(profile: Profile, *, coverage_pct: float = 90, most: int = 12) -> KernelChoice:
    return choose_kernels(profile, coverage_pct=coverage_pct, most=most)


@pytest.mark.parametrize(("coverage", "names"), [(50, ("b",)), (60, ("b",)), (61, ("b", "a")), (100, ("b", "a", "c"))])
def test_the_fewest_that_cover_enough_are_chosen(coverage: float, names: tuple[str, ...]) -> None:
    chosen = choose(draw("s7   aaa.bbbbbb.c"), coverage_pct=coverage)
    assert (chosen.names, chosen.launches) == (names, len(names))
    assert chosen.coverage_pct >= coverage


def test_with_a_kernel_come_all_of_its_grids() -> None:
    chosen = choose(sized("s7   aaa.bb.aa.bb", 1, 1, 2, 1), coverage_pct=50)
    assert (chosen.names, chosen.launches) == (("b", "a"), 3)


def test_what_does_not_fit_comes_first_if_it_takes_more_time() -> None:
    kernels = sized("s7   aaa.bb.aa.bb.c", 1, 1, 2, 1, 1)
    assert choose(kernels, most=1).names == ("b",)
    # 5 us of both grids of a, or 4 of b and 1 of c
    assert choose(sized("s7   aaa.bb.aa.b.c", 1, 1, 2, 1, 1), most=2).names == ("a",)
    assert choose(kernels, most=3).names == ("b", "a")


def test_no_more_launches_are_promised_than_allowed() -> None:
    chosen = choose(sized("s7   a.a.a.a.a", 1, 2, 3, 4, 5), most=3)
    assert (chosen.names, chosen.launches) == (("a",), 3)


def test_a_kernel_of_too_many_grids_is_chosen_if_a_part_of_it_takes_more_time_than_all_that_fits() -> None:
    many = "s7   bb." + "a." * 20
    assert choose(sized(many, *range(1, 22))).names == ("a",)
    # 2 of 20 groups are 2 us, as much as b
    assert choose(sized(many, *range(1, 22)), most=2).names == ("b",)


def test_kernels_that_communicate_and_those_outside_the_window_are_not_chosen() -> None:
    chosen = choose(draw("nvtx  ....[measure   ]\ns7    aa...nnn.b.b.bb"), coverage_pct=100)
    assert chosen.names == ("b",)
    assert chosen.coverage_pct == 100
