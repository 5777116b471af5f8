"""What the timeline tells of ranks: what they do together, their steps, who stands for whom, and that it fits."""

import base64
import gzip
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.communication import ONE_CLOCK_NS
from nightsight.job.facts import RankCapture, rank_summary
from nightsight.job.merge import merge_ranks, merge_some_ranks
from nightsight.model.report import Profile
from nightsight.render.timeline.layers import merged
from nightsight.render.timeline.ranks import numbered_collectives
from nightsight.render.timeline.rows import lay_events
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline_payload import Decoded, Event, decode, read_columns, timeline_payload
from tests.world import TRANSFER_NS, world

STEPS = 12
EVEN = [[1_000_000] * STEPS] * 8
works = st.integers(2, 6).flatmap(
    lambda ranks: st.lists(
        st.lists(st.integers(200_000, 2_000_000), min_size=STEPS, max_size=STEPS), min_size=ranks, max_size=ranks
    )
)


def decoded(parts: list[RankCapture], **more: Any) -> Decoded:
    profile = merge_ranks(parts)
    return decode(timeline_payload(profile, results=build_report(profile, "job").results, **more))


def together(decoded: Decoded, binary: bytes, layer: int = 0) -> dict[int, list[tuple[int, Event]]]:
    """Return the rows and events of each collective in a layer."""
    columns = read_columns(decoded.header["layers"][layer], binary)
    events = [(row, event) for row, events in enumerate(decoded.layers[layer]) for event in events]
    members = zip(accumulate(columns["member"]), accumulate(columns["collective"]), strict=True)
    grouped: dict[int, list[tuple[int, Event]]] = {}
    for member, collective in members:
        grouped.setdefault(collective, []).append(events[member])
    return grouped


def body(payload: bytes | None) -> bytes:
    """Return the binary part of a payload."""
    data = gzip.decompress(base64.b64decode(payload or b""))
    return data[4 + int.from_bytes(data[:4], "little") :]


def of_job(profile: Profile, **more: Any) -> tuple[Decoded, bytes]:
    payload = timeline_payload(profile, results=build_report(profile, "job").results, **more)
    return decode(payload), body(payload)


def facts(decoded: Decoded, binary: bytes) -> dict[str, list[int]]:
    return read_columns(decoded.header["ranks"]["together"], binary)


def likes(work: list[list[int]]) -> list[int]:
    return [rank["like"] for rank in decoded(world(work)).header["ranks"]["each"]]


@pytest.mark.nightly
@examples(15)
@given(work=works)
def test_each_collective_has_a_kernel_of_each_rank_and_who_came_last(work: list[list[int]]) -> None:
    decoded, binary = of_job(merge_ranks(world(work)))
    grouped = together(decoded, binary)
    columns = facts(decoded, binary)
    times = np.array(work)
    assert sorted(grouped) == list(range(STEPS))
    for number, members in grouped.items():
        rows = [decoded.header["rows"][row] for row, _ in members]
        assert [row["group"] for row in rows] == list(range(len(work)))
        assert {row["kind"] for row in rows} == {"kernel"}
        assert len({event.end for _, event in members}) == 1
        assert columns["members"][number] == len(work)
        assert columns["late"][number] == np.ptp(times[:, number])
        assert times[columns["last"][number], number] == times[:, number].max()
        assert min(event.end - event.start for _, event in members) == TRANSFER_NS


@pytest.mark.nightly
@examples(10)
@given(work=works)
def test_steps_of_ranks_begin_when_their_work_does(work: list[list[int]]) -> None:
    decoded, binary = of_job(merge_ranks(world(work)))
    header = decoded.header
    edges = iter(read_columns(header["ranks"]["steps"], binary)["edge"])
    for rank, events in zip(header["ranks"]["each"], decoded.layers[0], strict=False):
        starts = [header["window"][0] + time for time in accumulate(next(edges) for _ in range(rank["edges"]))]
        assert starts == [*(event.start for event in events[::2]), events[-1].end]
        assert rank["step"] == 0
    assert not list(edges)


def test_rows_are_those_of_their_rank() -> None:
    header = decoded(world(EVEN[:3])).header
    labels = [[header["groups"][group]["label"] for group in rank["groups"]] for rank in header["ranks"]["each"]]
    assert [names[0].split(" (")[0] for names in labels] == ["GPU 0", "GPU 1", "GPU 2"]
    assert [names[1].split()[0] for names in labels] == ["Process"] * 3
    assert len({name for names in labels for name in names}) == 6


def test_ranks_that_are_alike_stand_behind_the_first_one() -> None:
    work = [list(row) for row in EVEN]
    work[5] = [1_400_000] * STEPS
    assert likes(work) == [0, 0, 0, 0, 0, 5, 0, 0]
    # one that waits for long, too
    work[7] = [500_000] * STEPS
    assert likes(work) == [0, 0, 0, 0, 0, 5, 0, 7]


def test_the_one_that_others_wait_for_is_named_if_it_matters() -> None:
    work = [list(row) for row in EVEN]
    assert decoded(world(work)).header["ranks"]["awaited"] == -1
    work[5] = [1_400_000] * STEPS
    assert decoded(world(work)).header["ranks"]["awaited"] == 5


def test_few_ranks_are_all_shown() -> None:
    assert likes(EVEN[:3]) == [0, 1, 2]
    assert likes(EVEN[:4]) == [0, 0, 0, 0]


def test_of_many_ranks_that_all_differ_few_are_shown() -> None:
    work = [[500_000 + 100_000 * rank] * STEPS for rank in range(16)]
    ranks = likes(work)
    assert ranks[15] == 15
    assert len(set(ranks)) <= 4


def test_a_capture_of_one_rank_has_no_ranks(recorded: Recorded) -> None:
    decoded = decode(timeline_payload(recorded.profile("train")))
    assert decoded.header["ranks"] is None
    assert "collective" not in decoded.header["layers"][0]["columns"]


@pytest.mark.parametrize("name", ["ddp2", "ddp_exposed"])
def test_real_ranks_end_together(name: str, recorded: Recorded) -> None:
    decoded, binary = of_job(recorded.profile(name))
    grouped = together(decoded, binary)
    assert len(grouped) > 10
    distances = [abs(one.end - other.end) for (_, one), (_, other) in grouped.values()]
    assert np.median(distances) < ONE_CLOCK_NS
    columns = facts(decoded, binary)
    for number, ((_, one), (_, other)) in grouped.items():
        assert columns["late"][number] == abs(one.start - other.start)


@pytest.mark.parametrize("most_bytes", [4_000, 8_000, 16_000, 40_000])
def test_small_pages_have_what_fits(most_bytes: int) -> None:
    generator = np.random.default_rng(7)
    profile = merge_ranks(world(generator.integers(200_000, 2_000_000, (8, 600)).tolist()))
    payload = timeline_payload(profile, most_bytes=most_bytes)
    assert payload is not None
    assert len(payload) <= most_bytes
    decoded = decode(payload)
    ranks, thinned = decoded.header["ranks"], " ".join(decoded.header["thinned"])
    assert (ranks["together"] is None) == ("not connected" in thinned)
    assert (ranks["steps"] is None) == ("cannot be aligned" in thinned)
    for layer in decoded.header["layers"]:
        assert ("collective" in layer["columns"]) == (ranks["together"] is not None)
    assert [rank["number"] for rank in ranks["each"]] == list(range(8))


def test_what_is_merged_with_others_is_not_connected() -> None:
    """A block is no kernel, but what is long enough to stand by itself is."""
    generator = np.random.default_rng(7)
    profile = merge_ranks(world(generator.integers(200_000, 2_000_000, (4, 100)).tolist()))
    events = lay_events(profile, collective=numbered_collectives(profile))
    layer = merged(events, int(events.end.max()), merge_ns=1_000_000)
    columns = read_columns(layer.header(0), layer.columns.body.data)
    members = list(accumulate(columns["member"]))
    assert 0 < len(members) < 400
    assert {columns["events"][member] for member in members} == {1}
    assert len(columns["collective"]) == len(members)


def test_of_a_large_job_those_that_are_drawn_stand_for_the_others() -> None:
    work = [[1_000_000 + 1_000 * rank] * STEPS for rank in range(12)]
    work[7] = [1_400_000] * STEPS
    parts = world(work)
    profile = merge_some_ranks([rank_summary(part) for part in parts], lambda number: parts[number].profile, 3)
    decoded, binary = of_job(profile)
    ranks = decoded.header["ranks"]
    drawn = [rank["number"] for rank in ranks["each"] if rank["groups"]]
    assert len(ranks["each"]) == 12
    assert len(drawn) == 3
    assert 7 in drawn
    assert {ranks["each"][rank["like"]]["number"] for rank in ranks["each"]} == set(drawn)
    # what is told of a collective is of all, and its kernels are those that are drawn
    columns = facts(decoded, binary)
    assert set(columns["members"]) == {12}
    assert set(columns["last"]) == {7}
    assert set(columns["late"]) == {400_000}
    assert {len(members) for members in together(decoded, binary).values()} == {3}
    assert [rank["edges"] for rank in ranks["each"] if rank["groups"]] == [STEPS + 1] * 3
    assert {rank["edges"] for rank in ranks["each"] if not rank["groups"]} == {0}
