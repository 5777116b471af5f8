"""Pipelines of ranks: which rank is which stage, how long each only waits, and what of that even stages have, too."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.pipelines import ANALYSES
from nightsight.events.timeline import Timeline
from nightsight.job.facts import rank_summary
from nightsight.job.merge import merge_ranks, merge_some_ranks
from nightsight.model.report import Finding
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.world import BYTES, HOP_NS, TRANSFER_NS, Op, Program, all_then_all, in_turns, played, timed

STEPS = 12
EVEN = [(1_000_000, 2_000_000)] * 4


def table(programs: Sequence[Program], name: str = "pipeline_stages") -> pd.DataFrame:
    (analysis,) = (one for one in ANALYSES if one.entry.name == name)
    parts = played([[program] * STEPS for program in programs])
    return analysis.run(Timeline(merge_ranks(parts))).rows


@pytest.mark.parametrize("schedule", [all_then_all, in_turns])
def test_even_stages_have_the_bubble_of_the_formula(schedule: object) -> None:
    frame = table(schedule(EVEN, 8))  # type: ignore[operator]
    assert frame["rank"].tolist() == frame["stage"].tolist() == [0, 1, 2, 3]
    assert set(frame["microbatches"]) == {8}
    assert frame["even_pct"].tolist() == pytest.approx([100 * 3 / 11] * 4)
    # messages take time, too
    assert frame["bubble_pct"].tolist() == pytest.approx([100 * 3 / 11] * 4, abs=5)
    assert frame["work_ns"].tolist() == pytest.approx([8 * 3_000_000] * 4, rel=0.02)


@examples(15)
@given(
    stages=st.lists(st.tuples(st.integers(200_000, 900_000), st.integers(200_000, 900_000)), min_size=2, max_size=4),
    microbatches=st.integers(1, 5),
    order=st.permutations(range(4)),
)
def test_stages_work_as_long_as_was_drawn_whatever_their_ranks_are(
    stages: list[tuple[int, int]], microbatches: int, order: list[int]
) -> None:
    ranks = [rank for rank in order if rank < len(stages)]
    programs: list[Program] = [()] * len(stages)
    for stage, program in enumerate(all_then_all(stages, microbatches)):
        programs[ranks[stage]] = [
            Op(work=op.work, to=tuple(ranks[to] for to in op.to), of=tuple(ranks[of] for of in op.of)) for op in program
        ]
    frame = table(programs)
    assert frame["rank"].tolist() == ranks
    assert set(frame["microbatches"]) == {microbatches}
    drawn = [microbatches * (forward + backward) for forward, backward in stages]
    # nothing but hops from kernel to kernel is neither work nor communication
    assert frame["work_ns"].to_numpy() == pytest.approx(np.array(drawn), abs=HOP_NS * 6 * microbatches + HOP_NS)
    assert (frame["waited_ns"] <= frame["step_ns"] - frame["work_ns"]).all()


def test_pairs_have_the_messages_and_waits_that_were_drawn() -> None:
    # rank 1 is there 300 us after rank 0 has begun to send, and 1 ms before it gets the second
    first = [Op(work=200_000), Op(to=(1,), gives=BYTES), Op(work=1_500_000), Op(to=(1,), gives=3 * BYTES)]
    second = [Op(work=500_000), Op(of=(0,)), Op(work=500_000), Op(of=(0,))]
    (row,) = table([first, second], "sends").to_dict("records")
    assert (row["from_rank"], row["to_rank"], row["calls"], row["message_bytes"]) == (0, 1, 2, 2 * BYTES)
    assert row["transfer_ns"] == TRANSFER_NS
    assert row["bytes_per_s"] == pytest.approx(2 * BYTES / TRANSFER_NS * 1e9)
    assert row["from_waited_ns"] == pytest.approx(300_000, rel=0.02)
    assert row["to_waited_ns"] == pytest.approx(1_000_000, rel=0.02)


def test_a_circle_is_no_pipeline() -> None:
    ring = [[Op(work=300_000), Op(to=((rank + 1) % 4,), of=((rank - 1) % 4,))] for rank in range(4)]
    assert table(ring).empty
    assert len(table(ring, "sends")) == 4


def test_what_only_goes_forward_has_no_bubble_of_a_formula() -> None:
    programs = [[Op(work=500_000), Op(to=(1,))], [Op(of=(0,)), Op(work=500_000)]]
    frame = table(programs)
    assert frame["microbatches"].tolist() == [1, 1]
    assert frame["even_pct"].isna().all()


def test_without_messages_there_are_no_rows() -> None:
    alone = [[Op(work=500_000), Op(meets="7")]] * 2
    assert table(alone).empty
    assert table(alone, "sends").empty


# -- advice -----------------------------------------------------------------------------------------------------------


def advised(programs: Sequence[Program]) -> dict[str, Finding]:
    report = build_report(merge_ranks(played([[program] * STEPS for program in programs])), "job")
    return {finding.rule: finding for finding in report.findings}


def length_of(programs: Sequence[Program]) -> float:
    """Return what a step takes, in ns, as it is drawn: the steps between the first and the last."""
    ends = [steps[-1][-1][1] - steps[1][-1][1] for steps in timed([[program] * STEPS for program in programs])]
    return max(ends) / (STEPS - 2)


def test_a_stage_with_more_layers_is_named_with_what_an_even_split_gains() -> None:
    stages = [(500_000, 1_000_000)] * 4
    uneven = [(800_000, 1_600_000) if stage == 2 else each for stage, each in enumerate(stages)]
    findings = advised(all_then_all(uneven, 8))
    assert "straggler" not in findings
    finding = findings["uneven_stages"]
    assert finding.title.startswith("Rank 2 is the slowest stage of the pipeline")
    mean = (sum(forward for forward, _ in uneven) // 4, sum(backward for _, backward in uneven) // 4)
    before, after = length_of(all_then_all(uneven, 8)), length_of(all_then_all([mean] * 4, 8))
    assert finding.gain_pct == pytest.approx(100 * (before - after) / before, abs=2)


def test_even_stages_that_are_kept_busy_get_no_advice() -> None:
    findings = advised(in_turns([(500_000, 1_000_000)] * 2, 16))
    assert not {"uneven_stages", "straggler", "pipeline_bubble"} & findings.keys()


@pytest.mark.parametrize("ranks", [2, 4])
def test_neighbors_that_exchange_are_no_pipeline(ranks: int) -> None:
    # halos, or a ring of two: each sends to and receives from all that are next to it, in one kernel
    near = [tuple(other for other in (rank - 1, rank + 1) if 0 <= other < ranks) for rank in range(ranks)]
    programs = [[Op(work=1_000_000 + 400_000 * (rank == 1)), Op(to=one, of=one)] * 2 for rank, one in enumerate(near)]
    assert table(programs).empty


def test_few_microbatches_are_reported_with_what_more_would_gain() -> None:
    findings = advised(all_then_all([(1_000_000, 2_000_000)] * 3, 4))
    assert "uneven_stages" not in findings
    finding = findings["pipeline_bubble"]
    assert "4 microbatches on 3 stages" in finding.detail
    assert "(3 - 1) / (4 + 3 - 1) = 33 %" in finding.detail
    # of 6 x 3 ms, 8 microbatches of half the size take 10 x 1.5 ms: 3 ms less
    assert "would save up to 3.0" in finding.detail
    assert finding.gain_pct is None


def test_what_the_formula_does_not_explain_promises_nothing() -> None:
    # the last stage does something else while it has nothing to do
    programs = all_then_all([(1_000_000, 2_000_000)] * 3, 2)
    slow = [[*program, *[Op(work=4_000_000)] * (rank == 2)] for rank, program in enumerate(programs)]
    assert "would save" not in advised(slow)["pipeline_bubble"].detail


def test_a_job_of_which_only_some_events_are_held_has_the_same_stages() -> None:
    parts = played([[program] * STEPS for program in in_turns([(500_000, 1_000_000), (700_000, 1_000_000)] * 2, 6)])
    some = merge_some_ranks([rank_summary(part) for part in parts], lambda number: parts[number].profile, 2)
    for analysis in ANALYSES:
        table, expected = (analysis.run(Timeline(profile)).rows for profile in (some, merge_ranks(parts)))
        pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def test_the_page_shows_pairs_and_stages() -> None:
    profile = merge_ranks(played([[program] * STEPS for program in in_turns(EVEN, 4)]))
    page = render_html(build_report(profile, "job"), profile)
    for title in ("Sends and receives", "Pipeline stages"):
        assert f">{title}" in page
