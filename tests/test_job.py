"""One report of the captures of all ranks: who is who, on which clock, and what keeps the others waiting."""

import gzip
import json
import random
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.collectives import ANALYSES
from nightsight.errors import UsageError
from nightsight.events.communication import communication
from nightsight.events.compiled import compiling
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture, are_of_one_job, name_of_job
from nightsight.job.merge import merge_ranks
from nightsight.model.report import Finding, Profile, Report
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.tables import NULLABLE, conform, empty
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import DATA, Recorded
from tests.reports import advised
from tests.test_cli import USAGE
from tests.world import BYTES, GAP_NS, TRANSFER_NS, begun_late, world

RANKS = [DATA / "kineto" / f"exposed_rank{rank}.json.gz" for rank in (0, 1)]
HOUR_NS = 3_600_000_000_000
STEPS = 20
EVEN = [[1_000_000] * STEPS] * 3


def report(parts: list[RankCapture]) -> Report:
    return build_report(merge_ranks(parts), "job")


def table(parts: list[RankCapture], name: str) -> pd.DataFrame:
    """Return one result of a job: much faster than its report."""
    (analysis,) = (one for one in ANALYSES if one.entry.name == name)
    return analysis.run(Timeline(merge_ranks(parts))).rows


def without(part: RankCapture, *names: str) -> RankCapture:
    tables = {name: frame for name, frame in part.profile.tables.items() if name not in names}
    return replace(part, profile=replace(part.profile, tables=tables))


def real(recorded: Recorded) -> list[RankCapture]:
    return [RankCapture(f"exposed_rank{rank}", recorded.profile(f"exposed_rank{rank}")) for rank in (0, 1)]


# -- real ranks -------------------------------------------------------------------------------------------------------


def test_two_traces_of_a_job_become_one_profile(recorded: Recorded) -> None:
    parts = real(recorded)
    job = merge_ranks(parts[::-1])
    for name in ("kernels", "memory_ops", "api_calls", "ranges", "cpu_ops", "collectives"):
        assert len(job.table(name)) == sum(len(part.profile.table(name)) for part in parts)
    assert job.table("ranks")["rank"].tolist() == [0, 1]
    assert job.environment.gpu == "2 × NVIDIA H100 80GB HBM3"
    assert set(job.table("kernels")["device"]) == set(job.table("devices")["device"]) == {0, 1}
    assert job.table("kernels")["process"].nunique() == 2
    # each has one for the backward pass
    assert job.table("api_calls")["thread"].nunique() == 4
    # PyTorch's clock is that of the machine
    assert job.table("ranks")["shift_ns"].isna().all()
    assert job.table("ranks")["spread_ns"].tolist()[1] < 1_000
    assert job.findings == ()


def test_the_order_of_files_is_of_no_consequence(recorded: Recorded) -> None:
    one, other = (merge_ranks(parts) for parts in (real(recorded), real(recorded)[::-1]))
    for name, frame in one.tables.items():
        pd.testing.assert_frame_equal(frame, other.tables[name])


def test_what_real_ranks_wait_for(recorded: Recorded) -> None:
    whole = report(real(recorded))
    rows = whole.result("ranks").rows
    assert rows["rank"].tolist() == [0, 1]
    assert rows["last_pct"].tolist() == [100, 0]
    assert rows["waited_ns"].tolist() == [0, rows["awaited_ns"][0]]
    (row,) = whole.result("collectives").rows.to_dict("records")
    assert (row["name"], row["message_bytes"], row["group_size"], row["last_rank"]) == ("allreduce", 201_375_744, 2, 0)
    # two ranks: the bus carries what the algorithm does
    assert (
        row["bus_bytes_per_s"] == row["algorithm_bytes_per_s"] == pytest.approx(201_375_744 / row["transfer_ns"] * 1e9)
    )
    assert row["link_pct"] == pytest.approx(row["bus_bytes_per_s"] / 450e9 * 100)


def test_ranks_of_one_capture_of_nsys_have_the_numbers_of_their_gpus(recorded: Recorded) -> None:
    for name in ("ddp2", "ddp_exposed"):
        result = recorded.report(name).result("ranks")
        assert sorted(result.rows["rank"].tolist()) == sorted(result.rows["device"].tolist()) == [0, 1]
        assert "they are numbered by GPU" in result.notes[0]
    # rank 1 of ddp2 computes longer
    assert recorded.report("ddp2").result("ranks").rows["rank"].tolist() == [1, 0]


def test_what_no_rank_meets_in_is_reported(recorded: Recorded) -> None:
    for name in ("ranks", "rank_steps"):
        result = recorded.report("train").result(name)
        assert result.rows.empty
        assert result.notes[0].startswith("No two GPUs")
    assert recorded.report("exposed_rank0").result("ranks").rows.empty
    alone = recorded.report("exposed_rank0").result("collectives")
    assert alone.rows["skew_ns"].isna().all()
    assert "Only one rank" in alone.notes[0]


def test_a_rank_that_begins_its_steps_late_has_the_same_steps() -> None:
    """By its first work, it is nearer to the step after: what all do together tells which one it is."""
    first, second, third = world(EVEN)
    numbers = table([first, begun_late(second, 900_000), third], "rank_steps").groupby("rank")["number"]
    assert numbers.min().tolist() == [0, 0, 0]
    assert numbers.max().tolist() == [STEPS - 1] * 3


# -- drawn ranks ------------------------------------------------------------------------------------------------------

drawn = st.integers(2, 5).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(200_000, 2_000_000), min_size=STEPS, max_size=STEPS), min_size=count, max_size=count
    )
)


@examples(25)
@given(work=drawn, hours=st.lists(st.integers(-3, 3), min_size=5, max_size=5))
def test_ranks_wait_as_long_as_was_drawn_whatever_their_clocks_are(work: list[list[int]], hours: list[int]) -> None:
    clocks = [hour * HOUR_NS for hour in hours[: len(work)]]
    frame = table(world(work, clocks=clocks), "ranks").set_index("rank").sort_index()
    longest = np.max(work, axis=0)
    waited = (longest - np.array(work)).mean(axis=1)
    # nothing else runs meanwhile
    assert frame["waited_ns"].to_numpy() == pytest.approx(waited)
    assert (frame["work_ns"] + frame["waited_ns"]).to_numpy() == pytest.approx(
        np.full(len(work), (longest + TRANSFER_NS + GAP_NS).mean()), abs=GAP_NS
    )
    ordered = np.sort(work, axis=0)
    awaited = np.where(np.array(work) == longest, ordered[-1] - ordered[-2], 0).mean(axis=1)
    assert frame["awaited_ns"].to_numpy() == pytest.approx(awaited)
    assert frame["spread_ns"].dropna().tolist() == [0] * (len(work) - 1)


@examples(25)
@given(work=drawn, begin=st.integers(0, 8), end=st.integers(0, 8))
def test_a_rank_that_was_recorded_later_or_died_meets_the_others_where_it_was(
    work: list[list[int]], begin: int, end: int
) -> None:
    *parts, last = world(work)
    kernels = last.profile.table("kernels").iloc[2 * begin : 2 * (STEPS - end)]
    tables = {**last.profile.tables, "kernels": kernels.reset_index(drop=True)}
    table = communication(Timeline(merge_ranks([*parts, RankCapture(last.name, replace(last.profile, tables=tables))])))
    met = table[table["collective"] >= 0].groupby("collective")
    assert met["end_ns"].nunique().eq(1).all()
    assert met["device"].nunique().eq(len(work)).sum() == STEPS - begin - end


def test_collectives_of_known_size_have_the_bandwidth_of_nccl_tests() -> None:
    (row,) = table(world(EVEN), "collectives").to_dict("records")
    assert row["transfer_ns"] == TRANSFER_NS
    assert row["skew_ns"] == 0
    assert row["exposed_ns"] == TRANSFER_NS
    assert row["algorithm_bytes_per_s"] == pytest.approx(BYTES / TRANSFER_NS * 1e9)
    assert row["bus_bytes_per_s"] == pytest.approx(row["algorithm_bytes_per_s"] * 2 * 2 / 3)


@pytest.mark.parametrize("tells_calls", [True, False])
def test_a_rank_that_computes_longer_is_named_with_what_it_costs(tells_calls: bool) -> None:
    work = [[1_000_000] * STEPS, [1_600_000] * STEPS, [1_000_000] * STEPS, [1_000_000] * STEPS]
    whole = report(world(work, tells_calls=tells_calls))
    (first, *_) = (finding for finding in whole.findings if finding.severity == "advice")
    assert first.rule == "straggler"
    assert first.title.startswith("Rank 1 computes longer than the others")
    # 1.6 ms become the mean of 1.15 ms, of steps of 1.7 ms
    assert first.gain_pct == pytest.approx(100 * 0.45 / 1.7, rel=0.05)


def test_each_rank_has_what_torch_compile_did_in_it() -> None:
    """In containers, the processes of all ranks have the same pid."""
    texts = {"reason": "", "fix": "", "graph_break": ""}
    amounts = dict.fromkeys(("read_bytes", "written_bytes", "flop"))
    parts = []
    for rank, part in enumerate(world(EVEN)):
        compiled = {"start_ns": 10 * rank, "end_ns": 10 * rank + 5, "pid": 24, "function": f"f{rank} (a.py:1)", **texts}
        kernel = {
            "name": f"triton_poi_fused_{rank}",
            "operators": "add",
            "places": "f (a.py:2)",
            "graphs": 1,
            **amounts,
        }
        tables = {
            "compilations": conform("compilations", pd.DataFrame([compiled])),
            "fused_kernels": conform("fused_kernels", pd.DataFrame([kernel])),
        }
        parts.append(replace(part, profile=part.profile.joined(Profile(tables))))
    job = merge_ranks(parts)
    ranks = job.table("ranks")
    process = dict(zip(ranks["process"].tolist(), ranks["rank"].tolist(), strict=True))
    table = job.table("compilations")
    assert [process[number] for number in table["process"]] == [0, 1, 2]
    assert table["function"].tolist() == [f"f{rank} (a.py:1)" for rank in range(3)]
    spans = compiling(Timeline(job))
    assert {process[number]: len(start) for number, (start, _) in spans.items()} == {0: 1, 1: 1, 2: 1}
    assert len(job.table("fused_kernels")) == 3


def test_a_part_of_a_step_does_not_tell_that_ranks_take_turns() -> None:
    # of the first step only 0.02 ms were recorded of rank 1, and 0.9 ms of rank 0
    work = [[900_000, *[1_000_000] * (STEPS - 1)], [20_000, *[1_150_000] * (STEPS - 1)]]
    whole = report(world(work))
    (first, *_) = (finding for finding in whole.findings if finding.severity == "advice")
    assert first.title.startswith("Rank 1 computes longer than the others")


def sized(part: RankCapture, ranks: int | None) -> Profile:
    """Return the capture of a rank whose calls tell the size of their communicator, if they are known."""
    tables = dict(part.profile.tables)
    if "collectives" in tables:
        calls = tables["collectives"]
        tables["collectives"] = calls.assign(group_size=pd.array([ranks] * len(calls), dtype=NULLABLE))
    return replace(part.profile, tables=tables)


@examples(10)
@given(
    times=st.lists(st.tuples(st.integers(200_000, 2_000_000), st.integers(0, 400_000)), min_size=STEPS, max_size=STEPS),
    tells_ranks=st.booleans(),
    tells_calls=st.booleans(),
    tells_size=st.booleans(),
)
def test_a_rank_alone_does_not_tell_what_it_waits_for(
    times: list[tuple[int, int]], *, tells_ranks: bool, tells_calls: bool, tells_size: bool
) -> None:
    work = [[time for time, _ in times], [time + more for time, more in times]]
    parts = world(work, tells_ranks=tells_ranks, tells_calls=tells_calls)
    findings = advised(Timeline(sized(parts[0], 2 if tells_size else None)))
    # a step is work, what the other rank works longer, the transfer and a gap
    alone = sum(more + TRANSFER_NS for _, more in times)
    share = 100 * alone / (alone + sum(time + GAP_NS for time, _ in times))
    assume(abs(share - 10) > 0.5)
    advice = [(finding.rule, finding.gain_pct) for finding in findings]
    assert advice == [("lone_rank", None)] * (share > 10)
    if advice:
        found_pct = float(re.findall(r"spends (.*) % of the window", findings[0].title)[0])
        assert found_pct == pytest.approx(share, abs=0.5)
    assert "lone_rank" not in {finding.rule for finding in advised(Timeline(merge_ranks(parts)))}


def test_a_communicator_of_one_rank_waits_for_no_other() -> None:
    (part,) = world([[200_000] * STEPS])
    assert [finding.rule for finding in advised(Timeline(sized(part, 1)))] == ["exposed_communication"]
    assert [finding.rule for finding in advised(Timeline(sized(part, 2)))] == ["lone_rank"]


def test_ranks_that_take_turns_are_one_cause() -> None:
    choose = random.Random(1).choice
    work = [[choose([1_000_000, 1_000_000, 1_600_000]) for _ in range(STEPS)] for _ in range(4)]
    (first, *_) = (finding for finding in report(world(work)).findings if finding.severity == "advice")
    assert first.title.startswith("In each step a different rank computes longer than the others")
    longest, mean = np.max(work, axis=0).mean(), np.mean(work)
    assert first.gain_pct == pytest.approx(100 * (longest - mean) / (longest + TRANSFER_NS), rel=0.05)


def test_a_collective_that_one_rank_calls_otherwise_is_a_finding() -> None:
    first, second, third = world(EVEN)
    calls = second.profile.table("collectives")
    other = calls.assign(bytes=calls["bytes"].where(calls.index != 7, 4 * BYTES))
    odd = replace(second, profile=replace(second.profile, tables={**second.profile.tables, "collectives": other}))
    (finding,) = (one for one in report([first, odd, third]).findings if one.rule == "different_collectives")
    assert finding.detail.startswith(
        "1 call differs from what other ranks call in the same place of a communicator; call 8: allreduce of 4.194 MB "
    )
    assert finding.evidence == ("call 8: allreduce of 4.194 MB on rank 1, allreduce of 1.049 MB on rank 0",)


@pytest.mark.parametrize(("dropped", "still_works", "is_named"), [(6, True, True), (2, True, False), (6, False, False)])
def test_a_rank_that_stops_to_call_is_named(dropped: int, *, still_works: bool, is_named: bool) -> None:
    first, second, third = world(EVEN)
    calls = second.profile.table("collectives")
    tables = {**second.profile.tables, "collectives": calls.iloc[: len(calls) - dropped]}
    if not still_works:
        # it was recorded for a shorter time
        end = calls["end_ns"].iloc[-dropped - 1]
        tables |= {name: tables[name][tables[name]["start_ns"] < end] for name in ("api_calls", "ranges", "kernels")}
    odd = replace(second, profile=replace(second.profile, tables=tables))
    findings = [one for one in report([first, odd, third]).findings if one.rule == "stopped_calling"]
    assert bool(findings) == is_named
    if is_named:
        assert findings[0].title == "1 rank stops calling collectives"
        assert findings[0].evidence == ("allreduce of 1.049 MB on rank 1 is its last: 6 fewer than others call",)


def test_a_rank_for_which_the_others_wait_for_long_hangs_them() -> None:
    first, second, third = world(EVEN)
    calls = second.profile.table("collectives")
    short = replace(second.profile, tables={**second.profile.tables, "collectives": calls.iloc[:-1]})
    last = first.profile.table("api_calls").iloc[[-1]]
    waits = last.assign(start_ns=last["end_ns"], end_ns=last["end_ns"] + 60_000_000_000, correlation=-1)
    api_calls = pd.concat([first.profile.table("api_calls"), waits], ignore_index=True)
    stuck = replace(first.profile, tables={**first.profile.tables, "api_calls": conform("api_calls", api_calls)})
    of_job = report([replace(first, profile=stuck), replace(second, profile=short), third])
    (finding,) = (one for one in of_job.findings if one.rule == "hanging")
    assert finding.detail == "allreduce of 1.049 MB on rank 0 waits for 60.00 s; rank 1 never calls it."
    assert verdict(of_job, numbers(of_job)).cause == "Ranks wait in a collective that another rank never calls."
    # one call fewer is the edge of what was recorded
    assert "hanging" not in {one.rule for one in report([first, replace(second, profile=short), third]).findings}


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        ({1: 2, 6: 2}, "Each of ranks 1 and 6 computes longer than the others"),
        ({4: 2, 5: 2, 6: 2, 7: 2}, "Each of ranks 4 to 7 computes longer than the others"),
        ({5: 2}, "Rank 5 computes longer than the others"),
    ],
)
def test_ranks_that_are_slow_together_are_named_together(slow: dict[int, int], named: str) -> None:
    draw = random.Random(5).uniform
    work = [[int(1_000_000 * slow.get(rank, 1) * draw(0.98, 1.02)) for _ in range(STEPS)] for rank in range(8)]
    (finding,) = (one for one in report(world(work)).findings if one.rule == "straggler")
    assert finding.title.startswith(named)
    mean, most = np.mean(work), np.mean(np.max(work, axis=0))
    assert finding.gain_pct == pytest.approx(100 * (most - mean) / (most + TRANSFER_NS + GAP_NS), abs=1)


@pytest.mark.parametrize("lacking", [1, 6])
def test_a_rank_that_lacks_the_last_steps_changes_no_gain(lacking: int) -> None:
    work = [[1_000_000 * (1 + (rank == 2))] * STEPS for rank in range(4)]
    *others, last = world(work)
    end = int(last.profile.table("kernels")["end_ns"].iloc[-2 * lacking - 1])
    tables = {
        name: table[table["start_ns"] < end] if "start_ns" in table else table
        for name, table in last.profile.tables.items()
    }
    cut = replace(last, profile=replace(last.profile, tables=tables))
    whole, some = (
        next(one.gain_pct for one in report(parts).findings if one.rule == "straggler")
        for parts in ([*others, last], [*others, cut])
    )
    assert some == pytest.approx(whole, abs=2)


def test_captures_that_tell_no_communicators_are_no_missing_ranks() -> None:
    first, second, third = world(EVEN)
    findings = {one.rule: one for one in report([first, without(second, "collectives"), third]).findings}
    assert "missing_ranks" not in findings
    assert findings["untold_communicators"].detail.startswith("Rank 1: no communication kernels, or no NCCL payloads")


def test_ranks_that_were_recorded_from_different_calls_on_call_the_same() -> None:
    *parts, last = world(EVEN)
    names = ["allreduce" if place % 3 else "broadcast" for place in range(STEPS)]
    profiles = [
        replace(part.profile, tables={**part.profile.tables, "collectives": calls.assign(name=pd.Categorical(names))})
        for part in [*parts, last]
        for calls in [part.profile.table("collectives")]
    ]
    late = profiles[-1].table("collectives").iloc[4:].reset_index(drop=True)
    profiles[-1] = replace(profiles[-1], tables={**profiles[-1].tables, "collectives": late})
    named = [RankCapture(f"rank{rank}", profile) for rank, profile in enumerate(profiles)]
    assert "different_collectives" not in {finding.rule for finding in report(named).findings}


def test_a_rank_that_comes_late_once_is_named() -> None:
    work = [[1_000_000] * STEPS for _ in range(4)]
    work[2][3] = 5_000_000_000
    (finding,) = (finding for finding in report(world(work)).findings if finding.rule == "late_rank")
    assert finding.title == "Rank 2 arrived late once, and all others waited: 5.00 s"
    assert finding.gain_pct is None
    work[2][3] = 500_000_000
    assert "late_rank" not in {finding.rule for finding in report(world(work)).findings}


def test_ranks_with_the_same_work_get_no_advice_about_it() -> None:
    assert "straggler" not in {finding.rule for finding in report(world(EVEN)).findings}


def test_steps_of_ranks_add_up() -> None:
    work = [[1_000_000 + 1_000 * step * rank for step in range(400)] for rank in range(3)]
    steps = table(world(work), "rank_steps")
    assert steps.groupby("rank")["steps"].sum().tolist() == [400] * 3
    assert (steps.groupby("rank").size() <= 150).all()
    assert (steps["work_ns"] + steps["waited_ns"]).to_numpy() == pytest.approx(steps["time_ns"].to_numpy())


# -- who is who -------------------------------------------------------------------------------------------------------


def test_names_of_files_tell_ranks_if_captures_do_not() -> None:
    parts = world(EVEN, tells_ranks=False)
    for order in permutations(parts):
        job = merge_ranks(order)
        assert job.table("ranks")["rank"].tolist() == [0, 1, 2]
        assert set(job.table("ranks")["source"]) == {"file name"}
    notes = build_report(merge_ranks(parts), "job").result("ranks").notes
    assert "Source of the rank numbers: file name." in notes


@pytest.mark.parametrize(
    "name", ["resnet_r50_rank{}", "llama-r2_rank{}", "run.r1.rank{}", "rank_{}of3", "gpu-n3_r{}", "r{}"]
)
def test_the_last_number_of_a_name_that_says_rank_counts(name: str) -> None:
    parts = [replace(part, name=name.format(place)) for place, part in enumerate(world(EVEN, tells_ranks=False))]
    assert merge_ranks(parts[::-1]).table("ranks")["rank"].tolist() == [0, 1, 2]
    assert set(merge_ranks(parts).table("ranks")["source"]) == {"file name"}


def test_ranks_of_communicators_that_are_not_of_all_are_not_those_of_the_job() -> None:
    parts = world([[1_000_000] * STEPS] * 4, tells_ranks=False)
    for place, part in enumerate(parts):
        ranks = pd.DataFrame({"process": [1], "rank": [place % 2], "world_size": [2], "source": "NCCL"})
        tables = {**part.profile.tables, "ranks": conform("ranks", ranks)}
        parts[place] = replace(part, profile=replace(part.profile, tables=tables))
    job = merge_ranks(parts)
    assert job.table("ranks")["rank"].tolist() == [0, 1, 2, 3]
    assert set(job.table("ranks")["source"]) == {"file name"}


def of_nccl(parts: list[RankCapture], groups: list[str], size: int) -> list[RankCapture]:
    """Return captures in which only NCCL tells ranks: each in the communicator given for it."""
    captures, counts = list[RankCapture](), dict.fromkeys(groups, 0)
    for part, group in zip(parts, groups, strict=True):
        ranks = {"process": [1], "rank": [counts[group]], "world_size": [size], "source": "NCCL", "group": group}
        tables = {**part.profile.tables, "ranks": conform("ranks", pd.DataFrame(ranks))}
        if "collectives" in tables:
            tables["collectives"] = tables["collectives"].assign(group=pd.Categorical([group] * STEPS))
        captures.append(RankCapture(f"x.{len(captures)}", replace(part.profile, tables=tables)))
        counts[group] += 1
    return captures


def test_the_last_rank_is_missed_though_only_nccl_tells_ranks() -> None:
    parts = of_nccl(world([[1_000_000] * STEPS] * 4), ["7"] * 4, 4)
    assert [finding.title for finding in merge_ranks(parts[:3]).findings] == ["1 of 4 ranks is missing"]
    assert merge_ranks(parts).findings == ()


def test_a_copy_of_a_rank_is_refused_whatever_its_name_says() -> None:
    parts = of_nccl(world(EVEN), ["7"] * 3, 3)
    parts = [RankCapture(f"rank{place}", part.profile) for place, part in enumerate([*parts, parts[1]])]
    with pytest.raises(UsageError, match="rank 1 occurs twice: rank1 and rank3"):
        merge_ranks(parts)


def test_the_same_recording_is_refused_whatever_its_name_says() -> None:
    parts = [
        replace(part, profile=replace(part.profile, epoch_ns=place)) for place, part in enumerate(nameless(world(EVEN)))
    ]
    assert len(merge_ranks(parts).table("ranks")) == 3
    with pytest.raises(UsageError, match="one capture occurs twice: train_rank2 and train_rank7"):
        merge_ranks([*parts, RankCapture("train_rank7", parts[2].profile)])


def nameless(parts: list[RankCapture]) -> list[RankCapture]:
    return [without(part, "ranks") for part in parts]


@pytest.mark.parametrize("groups", [["7", "7", "8", "8"], ["7", "8"]])
def test_two_jobs_are_not_taken_for_one(groups: list[str]) -> None:
    """Nothing but the numbers of their own communicators tells the ranks."""
    parts = of_nccl(world([[1_000_000] * STEPS] * len(groups)), groups, 2)
    stranger = groups.index("8")
    with pytest.raises(UsageError, match=f"x.0 and x.{stranger} share no communicator") as caught:
        merge_ranks(parts)
    assert "--apart" in caught.value.hint
    # whoever names them after their ranks says that they are of one
    named = [RankCapture(f"rank{place}", part.profile) for place, part in enumerate(parts)]
    assert merge_ranks(named).table("ranks")["rank"].tolist() == list(range(len(groups)))
    assert "unknown_clock" in {finding.rule for finding in merge_ranks(named).findings}


def test_members_of_a_communicator_that_have_no_capture_are_missed() -> None:
    parts = [replace(part, profile=sized(part, 5)) for part in nameless(world(EVEN))]
    (finding,) = merge_ranks(parts).findings
    assert (finding.rule, finding.title) == ("missing_ranks", "At least 2 ranks are missing")


def test_what_may_wait_for_a_missing_rank_is_neither_work_nor_healthy() -> None:
    parts = [replace(part, profile=sized(part, 4)) for part in world([[200_000] * STEPS, [300_000] * STEPS])]
    (finding,) = (finding for finding in advised(Timeline(merge_ranks(parts))) if finding.rule == "lone_rank")
    assert finding.gain_pct is None
    assert "in communication with missing ranks: only captures of all ranks show" in finding.title
    frame = table(parts, "ranks").set_index("rank")
    # not the transfer, which may be a wait, and only the gap besides
    assert frame.loc[[0, 1], "work_ns"].tolist() == pytest.approx([200_000, 300_000], abs=2 * GAP_NS)
    assert frame.loc[0, "waited_ns"] == pytest.approx(100_000, abs=2 * GAP_NS)


def test_without_any_word_the_order_of_files_counts() -> None:
    names = ["b", "a", "c"]
    parts = [replace(part, name=name) for part, name in zip(world(EVEN, tells_ranks=False), names, strict=True)]
    assert merge_ranks(parts).table("ranks")["source"].unique().tolist() == ["order of the files"]
    assert merge_ranks(parts).table("ranks")["rank"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (["train_rank0", "train_rank1"], "train"),
        (["rank0", "rank1"], "job"),
        (["train.r0", "train.r12"], "train"),
        (["resnet_r50_rank0", "resnet_r50_rank1"], "resnet_r50"),
        (["node0", "node1"], "node"),
        (["a", "b"], "job"),
        (["rank0_of_llama", "rank1_of_llama"], "_of_llama".strip("_")),
    ],
)
def test_the_title_is_what_names_share(names: list[str], title: str) -> None:
    assert name_of_job(names) == title


def until(part: RankCapture, end_ns: int) -> RankCapture:
    """Return a capture whose program died at a time."""
    tables = {
        name: table[table["start_ns"] < end_ns] if "start_ns" in table else table
        for name, table in part.profile.tables.items()
    }
    return replace(part, profile=replace(part.profile, tables=tables))


@pytest.mark.parametrize(("clock", "kept", "is_named"), [(0, 120, True), (HOUR_NS, 120, True), (0, 198, False)])
def test_a_rank_that_died_is_named(clock: int, kept: int, *, is_named: bool) -> None:
    parts = world([[1_000_000] * 200] * 4, clocks=[0, 0, clock, 0])
    kernels = parts[2].profile.tables["kernels"]["start_ns"]
    died = int(kernels.sort_values().iloc[2 * kept])
    parts[2] = until(parts[2], died)
    findings = {finding.rule: finding for finding in merge_ranks(parts).findings}
    assert ("ended_early" in findings) == is_named
    if is_named:
        assert findings["ended_early"].title == "1 capture ends before the others"
        assert findings["ended_early"].detail.startswith("Rank 2: up to 8")


def test_missing_ranks_are_named() -> None:
    parts = world([[1_000_000] * STEPS] * 6)
    (finding,) = merge_ranks([parts[0], parts[2], parts[5]]).findings
    assert finding.title == "3 of 6 ranks are missing"
    assert finding.detail.startswith("Ranks 1, 3 and 4 have no capture here.")


def test_a_rank_that_is_there_twice_is_refused() -> None:
    parts = world(EVEN)
    with pytest.raises(UsageError, match="rank 1 occurs twice: train_rank1 and again") as caught:
        merge_ranks([*parts, RankCapture("again", parts[1].profile)])
    assert "--apart" in caught.value.hint


def test_ranks_of_jobs_of_different_sizes_are_refused() -> None:
    parts = [world(EVEN)[0], world([*EVEN, *EVEN])[1]]
    with pytest.raises(UsageError, match="different jobs: train_rank0 of 3, train_rank1 of 6"):
        merge_ranks(parts)


def test_ranks_without_a_collective_in_common_may_be_of_different_runs() -> None:
    parts = [world(EVEN, group="7")[0], world(EVEN, group="8")[1], world(EVEN, group="7")[2]]
    rules = {finding.rule: finding.detail for finding in merge_ranks(parts).findings}
    assert rules.keys() == {"unknown_clock"}
    assert rules["unknown_clock"].startswith("Rank 1: their captures may come from different runs")


def test_ranks_whose_collectives_do_not_end_together_are_doubted() -> None:
    other = [[random.Random(1).randint(100_000, 30_000_000) for _ in range(STEPS)] for _ in range(3)]
    (finding,) = merge_ranks([world(EVEN)[0], world(other)[1], world(EVEN)[2]]).findings
    assert (finding.rule, finding.severity) == ("loose_clock", "warning")
    assert finding.detail.startswith("Rank 1: collectives end up to ")


def test_different_profilers_are_reported() -> None:
    first, *others = world(EVEN)
    environment = replace(first.profile.environment, collector="nsys", collector_version="2025.3.2")
    (finding,) = merge_ranks(
        [replace(first, profile=replace(first.profile, environment=environment)), *others]
    ).findings
    assert finding.detail.startswith("1 with nsys 2025.3.2, 2 with torch.profiler.")


def test_a_finding_of_some_ranks_says_of_which() -> None:
    first, second, third = world(EVEN)
    lost = Finding("lost", "warning", "Events were lost", "Some of them.")
    some = [replace(part, profile=replace(part.profile, findings=(lost,))) for part in (first, third)]
    assert [one.detail for one in merge_ranks([some[0], second, some[1]]).findings] == ["Rank 0, Rank 2: Some of them."]
    every = [replace(part, profile=replace(part.profile, findings=(lost,))) for part in (first, second, third)]
    assert merge_ranks(every).findings == (lost,)


def test_findings_that_differ_in_their_numbers_are_one() -> None:
    parts = [
        replace(
            part, profile=replace(part.profile, findings=(Finding("lost", "warning", f"{rank} lost", f"{rank} of 9."),))
        )
        for rank, part in enumerate(world(EVEN))
    ]
    (finding,) = merge_ranks(parts).findings
    assert finding.title == "0 lost"
    assert finding.detail == "Rank 0, Rank 1, Rank 2, with different numbers: 0 of 9."


@pytest.mark.parametrize("name", ["kernels", "memory_ops", "api_calls", "ranges", "devices", "collectives"])
def test_a_table_without_rows_in_one_rank_is_none_of_the_others_loss(name: str) -> None:
    first, *others = world(EVEN)
    tables = {**first.profile.tables, name: empty(name)}
    job = merge_ranks([replace(first, profile=replace(first.profile, tables=tables)), *others])
    assert len(job.table(name)) == 2 * len(others[0].profile.table(name))
    assert build_report(job, "job").results


def test_captures_of_different_profilers_can_be_joined(recorded: Recorded) -> None:
    parts = [RankCapture("rank0", recorded.profile("exposed_rank0")), RankCapture("rank1", recorded.profile("ddp2"))]
    assert len(merge_ranks(parts).table("kernels")) == sum(len(part.profile.table("kernels")) for part in parts)


def test_every_table_of_a_job_has_its_numbers_of_gpus() -> None:
    # each rank calls its GPU 0, has a context on GPU 1, and waits there for nothing
    rows_by_table: dict[str, dict[str, Any]] = {
        "devices": {"device": [0, 1], "name": "H100", "compute_capability": "9.0"},
        "gpu_metrics": {"start_ns": 5, "device": [0, 1], "metric": "SMs Active [Throughput %]", "value": 50.0},
        "memory_usage": {"start_ns": 5, "device": [-1, 0, 1], "kind": "Device", "bytes": 8, "is_allocation": True},
        "gpu_page_faults": {"start_ns": 5, "end_ns": 6, "device": [0, 1], "address": 1, "faults": 1},
        "untimed": {"device": [0], "context": 1, "stream": 7},
        "syncs": {"start_ns": 5, "end_ns": 6, "device": [0, 1], "context": 1, "stream": 7, "kind": 1},
        "range_counters": {"device": [0, 1], "range": 0, "name": "work", "metric": "dram.bytes", "value": 1.0},
    }
    tables = {name: conform(name, pd.DataFrame(rows).assign(process=1)) for name, rows in rows_by_table.items()}
    parts = [
        replace(part, profile=replace(part.profile, tables={**part.profile.tables, **tables})) for part in world(EVEN)
    ]
    job = merge_ranks(parts)
    devices = {name: sorted(job.table(name)["device"].tolist()) for name in rows_by_table}
    assert devices == {
        "devices": [0, 1, 2],
        "gpu_metrics": [0, 1, 2],
        "gpu_page_faults": [0, 1, 2],
        "untimed": [0, 1, 2],
        "memory_usage": [-1, -1, -1, 0, 1, 2],
        # what the program did stays, wherever it was
        "syncs": [0, 1, 1, 1, 1, 2],
        "range_counters": [0, 1, 1, 1, 1, 2],
    }


def other_gpu(part: RankCapture) -> RankCapture:
    """Return a capture whose rank also used a second GPU a little."""
    kernels = part.profile.table("kernels")
    stray = kernels.iloc[:1].assign(device=1, correlation=900_000, name=kernels["name"].iloc[0])
    both = conform(
        "kernels", pd.concat([kernels, stray], ignore_index=True).astype({"name": "str", "short_name": "str"})
    )
    devices = part.profile.table("devices")
    every = conform("devices", pd.concat([devices, devices.assign(device=1)]).astype({"name": "str"}))
    return replace(
        part, profile=replace(part.profile, tables={**part.profile.tables, "kernels": both, "devices": every})
    )


@pytest.mark.parametrize("tells_ranks", [True, False])
def test_a_rank_that_touches_another_gpu_keeps_its_own(tells_ranks: bool) -> None:
    job = merge_ranks([other_gpu(part) for part in world(EVEN, tells_ranks=tells_ranks)])
    assert job.table("kernels").groupby("device").size().to_dict() == {0: 40, 1: 40, 2: 40, 3: 1, 4: 1, 5: 1}
    assert job.environment.gpu == "6 × NVIDIA H100 80GB HBM3"
    assert build_report(job, "job").result("ranks").rows["rank"].nunique() == 3


def test_a_rank_that_died_is_not_the_slowest() -> None:
    *parts, last = world(EVEN)
    tables = {**last.profile.tables}
    for name, count in {"kernels": 20, "api_calls": 20, "ranges": 10, "collectives": 10}.items():
        tables[name] = tables[name].iloc[:count].reset_index(drop=True)
    whole = report([*parts, RankCapture(last.name, replace(last.profile, tables=tables))])
    assert "straggler" not in {finding.rule for finding in whole.findings}
    rows = whole.result("ranks").rows.set_index("rank")
    assert rows["steps"].to_dict() == {0: 20, 1: 20, 2: 10}
    assert rows["work_ns"].max() - rows["work_ns"].min() < GAP_NS
    assert "Not all ranks have 20 steps: 2 (10)." in whole.result("ranks").notes


def test_a_rank_that_was_recorded_later_is_compared_in_the_same_steps() -> None:
    turns = [[1_000_000 if step % 2 else 1_600_000 for step in range(STEPS)]] * 3
    *parts, last = world(turns)
    tables = {**last.profile.tables}
    for name, rows in {"kernels": 2, "api_calls": 2, "ranges": 1, "collectives": 1}.items():
        tables[name] = tables[name].iloc[rows:].reset_index(drop=True)
    whole = report([*parts, RankCapture(last.name, replace(last.profile, tables=tables))])
    assert "straggler" not in {finding.rule for finding in whole.findings}
    steps = whole.result("rank_steps").rows
    assert steps.groupby("number")["work_ns"].agg(np.ptp).max() < GAP_NS


def test_without_all_members_transfer_and_bandwidth_are_unknown() -> None:
    parts = [
        replace(part, profile=replace(part.profile, tables={**part.profile.tables, "collectives": calls}))
        for part in world(EVEN)
        for calls in [part.profile.table("collectives").assign(group_size=pd.array([4] * STEPS, dtype=NULLABLE))]
    ]
    result = report(parts).result("collectives")
    assert result.rows[["transfer_ns", "algorithm_bytes_per_s"]].isna().all(axis=None)
    assert "Collectives with unknown ranks" in result.notes[0]


def test_what_a_graph_recorded_is_not_reported_for_what_it_replays() -> None:
    (part,) = world([[1_000_000] * STEPS])
    kernels = part.profile.table("kernels")
    graph = kernels.assign(correlation=1, graph_node=pd.array(range(len(kernels)), dtype=NULLABLE))
    collector = replace(part.profile.environment, collector="nsys")
    profile = replace(part.profile, tables={**part.profile.tables, "kernels": graph}, environment=collector)
    assert communication(Timeline(profile))["bytes"].fillna(0).max() <= BYTES


def test_tables_that_only_some_ranks_have_are_kept() -> None:
    first, *others = world(EVEN)
    job = merge_ranks([without(first, "ranges"), *others])
    assert len(job.table("ranges")) == 2 * STEPS


def test_ranks_of_cpus_are_a_job() -> None:
    parts = [without(part, "kernels", "memory_ops", "api_calls", "devices") for part in world(EVEN, tells_ranks=False)]
    assert all(part.facts.is_of_job for part in parts)
    job = merge_ranks(parts)
    assert job.table("ranks")["rank"].tolist() == [0, 1, 2]
    (row,) = table(parts, "collectives").to_dict("records")
    assert row["message_bytes"] == BYTES


def test_captures_without_communication_are_of_no_job(recorded: Recorded) -> None:
    assert not RankCapture("train", recorded.profile("train")).facts.is_of_job
    parts = [RankCapture(name, recorded.profile(name)) for name in ("ddp2", "ddp_exposed")]
    assert all(part.facts.is_of_job for part in parts)
    # each a job of its own
    assert not are_of_one_job([part.facts for part in parts])
    assert are_of_one_job([RankCapture(f"node{number}", part.profile).facts for number, part in enumerate(parts)])


def test_a_capture_of_a_node_with_several_ranks() -> None:
    first, second, third = world(EVEN)
    node = merge_ranks([first, second])
    job = merge_ranks([RankCapture("node0", node), RankCapture("node1", third.profile)])
    assert job.table("ranks")["rank"].tolist() == [0, 1, 2]
    assert job.table("kernels")["device"].nunique() == 3
    assert communication(Timeline(job))["collective"].nunique() == STEPS


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_job_gets_one_report(run: Any, tmp_path: Path) -> None:
    run("report", *RANKS, "-o", tmp_path / "job.json")
    document = json.loads((tmp_path / "job.json").read_text())
    assert document["title"] == "exposed"
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_its_page_is_named_after_what_the_files_share(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", *RANKS).stdout == "report: exposed.report.html\n"


def test_its_page_can_go_to_a_folder(run: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for folder in (there, f"{tmp_path}/new/"):
        run("report", *RANKS, "--format", "json", "-o", folder)
        assert [path.name for path in Path(folder).iterdir()] == ["exposed.report.json"]


def test_apart_each_rank_gets_its_own(run: Any, tmp_path: Path) -> None:
    run("report", *RANKS, "--apart", "--format", "json", "-o", tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["exposed_rank0.report.json", "exposed_rank1.report.json"]


def test_a_rank_that_cannot_be_read_is_left_out_and_named(run: Any, tmp_path: Path) -> None:
    broken = tmp_path / "exposed_rank2.json.gz"
    broken.write_bytes(gzip.compress(b'{"traceEvents": ['))
    run("report", *RANKS, broken, "-o", tmp_path / "job.json")
    findings = json.loads((tmp_path / "job.json").read_text())["findings"]
    (left_out,) = (finding for finding in findings if finding["rule"] == "unread_rank")
    assert left_out["title"] == "exposed_rank2.json.gz was left out"


def test_files_of_no_job_get_a_report_each(run: Any, tmp_path: Path) -> None:
    files = [RANKS[0], DATA / "mini_torch.json.gz"]
    run("report", *files, "--format", "json", "-o", tmp_path)
    assert not any("unread_rank" in path.read_text() for path in tmp_path.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exposed_rank0.report.json", "mini_torch.report.json"]


def test_a_link_to_a_rank_is_no_other_rank(run: Any, tmp_path: Path) -> None:
    (tmp_path / "latest.json.gz").symlink_to(RANKS[0])
    run("report", *RANKS, tmp_path / "latest.json.gz", "-o", tmp_path / "job.json")
    assert len(Report.from_json((tmp_path / "job.json").read_bytes()).result("ranks").rows) == 2


def test_a_file_of_no_job_is_left_out_of_one(run: Any, tmp_path: Path) -> None:
    run("report", *RANKS, DATA / "mini_torch.json.gz", "-o", tmp_path / "job.json")
    findings = json.loads((tmp_path / "job.json").read_text())["findings"]
    assert [one["title"] for one in findings if one["rule"] == "unread_rank"] == ["mini_torch.json.gz was left out"]


def test_a_rank_given_twice_is_an_error_of_one_line(run: Any, tmp_path: Path) -> None:
    copied = tmp_path / "again.json.gz"
    copied.write_bytes(RANKS[0].read_bytes())
    result = run("report", RANKS[0], copied, "-o", tmp_path / "job.html", expect=USAGE)
    assert "Error: rank 0 occurs twice: exposed_rank0 and again" in result.stderr


def test_calls_of_a_cpu_are_collectives_too() -> None:
    profile = world([[1_000_000] * 3])[0].profile
    calls = profile.table("collectives").assign(group_size=2)
    alone = Profile({"collectives": conform("collectives", calls), "ranges": profile.table("ranges")})
    (row,) = build_report(alone, "x").result("collectives").rows.to_dict("records")
    assert (row["name"], row["message_bytes"], row["group_size"]) == ("allreduce", BYTES, 2)
