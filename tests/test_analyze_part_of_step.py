"""A capture of a single step: its repetitions are parts of the step, and the report says so."""

from dataclasses import replace

import pytest

from nightsight.analyze.part_of_step import part_of_step
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import MODULE
from tests.program import Body, Kernel, Statement, Thread, captured, within

LAYER: Body = tuple(
    Kernel(5, name=f"void at::native::vectorized_elementwise_kernel<4, at::native::{word}>") for word in "abcdef"
)
BEFORE, AFTER = Kernel(5, name="void at::native::embedding"), Kernel(5, name="void at::native::loss")


def titles(*body: Statement, style: str = "", name: str = "") -> list[str]:
    """Return the titles of the findings on a program, whose range `around` has this style and name."""
    return [each.title for each in part_of_step(Timeline(styled(captured(Thread(body)), style, name)))]


def styled(profile: Profile, style: str, name: str) -> Profile:
    ranges = profile.table("ranges")
    is_around = ranges["name"] == "around"
    if style:
        ranges = ranges.assign(style=ranges["style"].astype("str").mask(is_around, style).astype("category"))
    if name:
        ranges = ranges.assign(name=ranges["name"].astype("str").mask(is_around, name).astype("category"))
    return replace(profile, tables={**profile.tables, "ranges": ranges})


def test_layers_in_one_call_of_a_model_are_no_steps() -> None:
    body = within("around", *LAYER * 12)
    expected = ["A repetition is a part of a step of the program, such as a layer"]
    assert titles(body, style=MODULE) == expected
    assert titles(body, name="ProfilerStep") == expected
    assert titles(body) == []
    # a few repetitions before the call are of something else
    assert titles(*LAYER * 2, within("around", *LAYER * 12), style=MODULE) == []


def test_named_layers_are_called_steps_and_are_none() -> None:
    layers = within("around", *(within("layer", *LAYER),) * 12)
    expected = ["`layer`, in this report a step, is a part of a step of the program, such as a layer"]
    assert titles(layers, style=MODULE) == expected
    assert titles(layers) == []
    # three calls are a loop
    assert titles(*(layers,) * 2, style=MODULE) == []
    assert titles(*(layers,) * 3, style=MODULE) == []


@pytest.mark.parametrize(
    ("before", "after", "is_hinted"),
    [((BEFORE,), (AFTER,), True), ((BEFORE,), (), False), ((), (AFTER,), False), ((), (), False)],
)
def test_other_kernels_on_both_sides_are_a_hint(before: Body, after: Body, *, is_hinted: bool) -> None:
    expected = ["A repetition may be a part of a step of the program, such as a layer"] * is_hinted
    assert titles(*before, *LAYER * 12, *after) == expected
    # not of programs whose kernels are their own
    plain = tuple(Kernel(5, name=name) for name in "abcdef") * 12
    assert titles(*(Kernel(5, name=f"x{n}") for n in range(len(before))), *plain, *(Kernel(5, name="y"),)) == []


def test_steps_with_names_are_steps() -> None:
    assert titles(*(within("step", BEFORE, *LAYER * 4, AFTER),) * 8) == []
