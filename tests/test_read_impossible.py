"""Operations with times that cannot be are left out, and nothing else is."""

from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Profile
from nightsight.read import read
from tests.kineto import ON_GPU, call, kernel, write


def trace(folder: Path, *spans: tuple[str, float, float], **arguments: Any) -> Profile:
    """Read a trace of kernels by name, start and length in µs, all on one stream, each with its launch."""
    events = [
        event
        for number, (name, start, length) in enumerate(spans, start=1)
        for event in (
            call(ts=number, dur=0.5, args={"correlation": number}),
            kernel(name=name, ts=start, dur=length, args={**ON_GPU, "correlation": number, **arguments}),
        )
    ]
    return read(write(folder, *events))


def left_out(profile: Profile) -> list[int]:
    """Return the ids of the launches of operations that were left out."""
    return profile.tables["untimed"]["correlation"].tolist() if "untimed" in profile.tables else []


EVEN = [("a", 100.0 + 20 * number, 10.0) for number in range(20)]


def with_length(number: int, length: float) -> list[tuple[str, float, float]]:
    return [(name, start, length if place == number else own) for place, (name, start, own) in enumerate(EVEN)]


@pytest.mark.parametrize(
    ("length", "is_wrong"),
    [
        (500.0, True),  # it outlasts those after it
        (26.0, True),  # it reaches 6 µs into the next one, and is longer than others of its name
        (24.0, False),  # that is within what clocks differ by
        (15.0, False),
    ],
)
def test_an_operation_that_reaches_into_the_next_on_its_stream_is_wrong(
    tmp_path: Path, length: float, *, is_wrong: bool
) -> None:
    profile = trace(tmp_path, *with_length(7, length))
    assert left_out(profile) == ([8] if is_wrong else [])
    assert len(profile.table("kernels")) == 20 - is_wrong
    assert [finding.rule for finding in profile.findings] == ["impossible_times"] * is_wrong


def test_the_last_operation_cannot_outlast_the_program_by_much(tmp_path: Path) -> None:
    assert left_out(trace(tmp_path, *with_length(19, 40e6))) == [20]
    assert left_out(trace(tmp_path, *with_length(19, 5e6))) == []


def test_a_kernel_takes_time(tmp_path: Path) -> None:
    fine = [(name, start, length + 0.25 * bool(length)) for name, start, length in with_length(3, 0.0)]
    assert left_out(trace(tmp_path, *fine)) == [4]
    # PyTorch up to 2.0 writes whole microseconds
    assert left_out(trace(tmp_path, *with_length(3, 0.0))) == []


def test_kernels_before_one_that_begins_early_are_right_if_others_of_their_name_are_shorter(tmp_path: Path) -> None:
    # of the six products of a layer the last one is larger, and programmatic dependent launch starts what follows it
    spans, now = [], 100.0
    for _ in range(10):
        for place in range(6):
            length = 140.0 if place == 5 else 100.0
            spans.append(("product", now, length))
            now += length + 1
        spans.append(("norm", now - 14, 33.0))
        now += 20
    assert left_out(trace(tmp_path, *spans)) == []


def test_copies_of_two_engines_under_one_number_are_right(tmp_path: Path) -> None:
    copies = [("Memcpy HtoD", 0.0, 7500.0), *(("Memcpy DtoH", 500 + 900.0 * number, 4.0) for number in range(5))]
    events = [
        kernel(name=name, cat="gpu_memcpy", ts=100 + 10_000 * number + start, dur=length)
        for number in range(20)
        for name, start, length in copies
    ]
    assert left_out(read(write(tmp_path, call(), *events))) == []


def test_kernels_that_begin_while_the_one_before_ends_are_right(tmp_path: Path) -> None:
    # programmatic dependent launch: each begins 8 µs before the one before it ends
    assert left_out(trace(tmp_path, *[("a", 100 + 12.0 * number, 20.0) for number in range(20)])) == []


def test_nodes_of_a_graph_may_run_side_by_side(tmp_path: Path) -> None:
    assert left_out(trace(tmp_path, *with_length(7, 500.0), **{"graph node id": 9})) == []
    events = [kernel(name=name, ts=start, dur=length) for name, start, length in with_length(7, 500.0)]
    assert left_out(read(write(tmp_path, call(), *events))) == []


def test_a_stream_on_which_operations_overlap_all_the_time_is_none(tmp_path: Path) -> None:
    assert (
        left_out(trace(tmp_path, *[("a", 100 + 20.0 * number, 95.0 - number % 2 * 80) for number in range(20)])) == []
    )
