"""Steps that could do more: where each kernel fills a small part of the GPU, and is short or a matrix product."""

from dataclasses import replace
from typing import Any

import pytest

from nightsight.analyze.causes.batching import LargerSteps, larger_steps
from nightsight.analyze.causes.scene import Scene
from nightsight.analyze.causes.simulation import simulate
from nightsight.analyze.causes.stretches import replay_stretch
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.program import Body, Kernel, Thread, captured, within


def times(profile: Profile) -> int:
    larger_steps = larger(Timeline(profile))
    return larger_steps.times if larger_steps else 1


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


@pytest.mark.parametrize(("threads", "room"), [(512, 1), (256, 1), (64, 7), (2, 8)])
def test_blocks_of_a_few_warps_fill_less(threads: int, room: int) -> None:
    """66 blocks of 256 threads are too many for 132 SMs to have room; those of 64 threads count as 17."""
    profile = of_steps(*(Kernel(3, blocks=66),) * 10)
    kernels = profile.table("kernels").assign(block_x=threads)
    assert times(replace(profile, tables={**profile.tables, "kernels": kernels})) == room


GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel"


def of_products(*, blocks: int = 192, name: str = GEMM, **resources: int) -> Timeline:
    """Return steps of ten products of 30 µs: 192 blocks are 18 % of what 132 SMs hold."""
    profile = of_steps(*(Kernel(30, name=name, blocks=blocks),) * 10)
    held = {"block_x": 64, "registers": 126, "static_shared_bytes": 0, "dynamic_shared_bytes": 9984, **resources}
    tables = {**profile.tables, "kernels": profile.table("kernels").assign(**held)}
    return Timeline(replace(profile, tables=tables))


def larger(timeline: Timeline) -> LargerSteps | None:
    return larger_steps(Scene(replay_stretch(timeline)))


def test_longer_products_have_room_if_their_blocks_are_few_of_those_that_the_sms_hold() -> None:
    larger_steps = larger(of_products())
    assert larger_steps
    assert (larger_steps.times, larger_steps.blocks) == (5, 192)
    # an SM holds eight such blocks: 65,536 registers, 128 for each of 64 threads
    assert larger_steps.filled == pytest.approx(192 / (132 * 8))


@pytest.mark.parametrize(
    ("resources", "filled"),
    [
        ({"dynamic_shared_bytes": 20_000}, 192 / (132 * 8)),
        ({"registers": 20}, 192 / (132 * 21)),
        ({"registers": 20, "dynamic_shared_bytes": 1000}, 192 / (132 * 32)),
    ],
)
def test_what_an_sm_holds_depends_on_what_blocks_need(resources: dict[str, Any], filled: float) -> None:
    larger_steps = larger(of_products(**resources))
    assert larger_steps
    assert larger_steps.filled == pytest.approx(filled)


@pytest.mark.parametrize(
    "wrong",
    [
        {"blocks": 300},
        {"registers": 0},
        {"dynamic_shared_bytes": 100_000},
        {"block_x": 512},
        # a long kernel in few blocks that is not a product may have other reasons
        {"name": "void iterate_kernel(float*)"},
    ],
)
def test_products_that_fill_the_sms_and_other_long_kernels_have_no_room(wrong: dict[str, Any]) -> None:
    assert larger(of_products(**wrong)) is None


@pytest.mark.parametrize("blocks", [40, 192, 250])
def test_products_take_longer_with_more_rows_by_the_root_of_what_they_fill(blocks: int) -> None:
    simulation = simulate(of_products(blocks=blocks))
    assert simulation.larger
    growth = 1 + (simulation.larger.times - 1) * (blocks / (132 * 8)) ** 0.5
    assert simulation.larger_ns / simulation.unprofiled_ns == pytest.approx(growth, rel=0.03)


def test_the_gpu_the_grids_and_the_steps_must_be_known() -> None:
    body = (Kernel(3, blocks=1),) * 10
    assert times(of_steps(*body, capability="")) == 1
    profile = of_steps(*body)
    kernels = profile.table("kernels").drop(columns=["grid_x", "grid_y", "grid_z"])
    assert times(replace(profile, tables={**profile.tables, "kernels": kernels})) == 1
    assert times(captured(Thread((Kernel(3, blocks=1),) * 3), capability="9.0")) == 1
