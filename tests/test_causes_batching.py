"""Steps that could do more: only where each kernel is short and fills a small part of the GPU."""

from dataclasses import replace

import pytest

from nightsight.analyze.causes.batching import larger_steps
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.stretches import replay_stretch
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.program import Body, Kernel, Thread, captured, within


def times(profile: Profile) -> int:
    found = larger_steps(Scene(replay_stretch(Timeline(profile))))
    return found.times if found else 1


def of_steps(*body: Kernel, name: str = "step", capability: str = "9.0") -> Profile:
    steps: Body = (within(name, *body),) if name else body
    return captured(Thread(steps * 12), capability=capability)


@pytest.mark.parametrize(
    ("body", "room"),
    [
        ((Kernel(3, blocks=1),) * 10, 8),
        ((Kernel(3, blocks=26),) * 10, 5),
        ((Kernel(3, blocks=33),) * 10, 4),
        ((Kernel(3, blocks=34),) * 10, 1),
        # too few, long ones, and a large one with some of the time
        ((Kernel(3, blocks=1),) * 9, 1),
        ((Kernel(19, blocks=1),) * 10, 8),
        ((Kernel(21, blocks=1),) * 10, 1),
        ((*(Kernel(3, blocks=1),) * 20, Kernel(3, blocks=1000)), 8),
        ((*(Kernel(3, blocks=1),) * 18, Kernel(3, blocks=1000)), 1),
    ],
)
def test_kernels_with_nearly_all_of_the_time_are_short_and_leave_room(body: tuple[Kernel, ...], room: int) -> None:
    assert times(of_steps(*body)) == room


def test_the_gpu_the_grids_and_the_steps_must_be_known() -> None:
    body = (Kernel(3, blocks=1),) * 10
    assert times(of_steps(*body, capability="")) == 1
    profile = of_steps(*body)
    kernels = profile.table("kernels").drop(columns=["grid_x", "grid_y", "grid_z"])
    assert times(replace(profile, tables={**profile.tables, "kernels": kernels})) == 1
    assert times(captured(Thread((Kernel(3, blocks=1),) * 3), capability="9.0")) == 1
