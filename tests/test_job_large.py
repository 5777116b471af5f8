"""Jobs too large to hold: a few ranks stand for the others, and what ranks do together is still known of all."""

import gzip
import json
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.collectives import ANALYSES
from nightsight.captures import export_bytes
from nightsight.cli import main
from nightsight.events.timeline import Timeline
from nightsight.job.facts import RankCapture, RankSummary, rank_summary
from nightsight.job.merge import merge_ranks, merge_some_ranks
from nightsight.model.report import Profile, Report
from nightsight.results.ranks import RANKS
from nightsight.system import executor
from nightsight.tables import empty
from nightsight.workflows import job as opening_job
from nightsight.workflows.analysis import build_report
from nightsight.workflows.opening import Reading
from tests.properties import examples
from tests.recorded import DATA
from tests.world import world

STEPS = 12
SLOW = 9
summarize_rank: Callable[[Path, Reading], RankSummary | None] = vars(opening_job)["_summarize_rank"]
# rank 9 of 16 computes half as long again as the others
UNEVEN = [[1_500_000 if rank == SLOW else 1_000_000 + 1_000 * rank] * STEPS for rank in range(16)]


def of_some(parts: Sequence[RankCapture], most: int) -> Profile:
    return merge_some_ranks([rank_summary(part) for part in parts], lambda number: parts[number].profile, most)


def tables(profile: Profile) -> dict[str, pd.DataFrame]:
    timeline = Timeline(profile)
    return {one.entry.name: one.run(timeline).rows for one in ANALYSES}


def assert_same(some: Profile, every: Profile) -> None:
    """What ranks do together must not depend on whose events are held."""
    actual, expected = tables(some), tables(every)
    for name, table in expected.items():
        loaded = actual[name].drop(columns="like_rank", errors="ignore")
        pd.testing.assert_frame_equal(loaded, table, check_dtype=False, obj=name)


@pytest.mark.parametrize("most", [1, 2, 5, 16])
def test_what_ranks_do_together_is_that_of_all(most: int) -> None:
    parts = world(UNEVEN)
    some = of_some(parts, most)
    assert_same(some, merge_ranks(parts))
    held = some.tables["kernels"]["device"].nunique()
    assert held == most
    assert some.table("ranks")["rank"].tolist() == list(range(16))


@examples(20)
@given(
    st.lists(st.lists(st.integers(100_000, 2_000_000), min_size=6, max_size=6), min_size=3, max_size=7),
    st.integers(1, 4),
    st.permutations(range(7)),
    st.data(),
)
def test_whatever_ranks_do_and_whatever_their_clocks_say(
    work: list[list[int]], most: int, order: list[int], data: st.DataObject
) -> None:
    clocks = [0, *(data.draw(st.sampled_from([0, 7_000_000_000, -3_600_000_000_000])) for _ in work[1:])]
    parts = world(work, clocks=clocks)
    given = [parts[number] for number in order if number < len(parts)]
    assert_same(of_some(given, most), merge_ranks(given))


def test_the_one_that_all_wait_for_is_held_and_named() -> None:
    parts = world(UNEVEN)
    some = of_some(parts, 3)
    assert some.job is not None
    assert some.job.like[SLOW] == SLOW
    assert {some.job.like[rank] for rank in range(16) if rank != SLOW} <= set(range(16)) - {SLOW}
    every, few = build_report(merge_ranks(parts), "job"), build_report(some, "job")
    gains = []
    for report in (every, few):
        (finding,) = (finding for finding in report.findings if finding.rule == "straggler")
        assert f"Rank {SLOW}" in finding.title
        gains.append(finding.gain_pct)
    # evened out over all ranks, not over those that are held
    assert gains[1] == pytest.approx(gains[0], abs=1.0)
    assert {"some_ranks"} == {finding.rule for finding in few.findings} - {finding.rule for finding in every.findings}


def test_ranks_that_call_other_collectives_stand_for_themselves() -> None:
    parts = world(UNEVEN)
    other = parts[4].profile
    renamed = {
        name: table.assign(bytes=table["bytes"] * 2) if name == "collectives" else table
        for name, table in other.tables.items()
    }
    parts[4] = replace(parts[4], profile=replace(other, tables=renamed))
    some = of_some(parts, 3)
    assert some.job is not None
    assert [rank for rank, like in some.job.like.items() if like == 4] == [4]


@pytest.mark.nightly
def test_the_page_of_a_large_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user gets it: the traces are read in processes of their own."""
    monkeypatch.setattr(opening_job, "_MOST_HELD_BYTES", 1)
    files = [traced(tmp_path, rank) for rank in range(4)]
    (tmp_path / "train_rank4.json.gz").write_bytes(b"nothing")
    command = ["report", *map(str, files), str(tmp_path / "train_rank4.json.gz"), "-o", str(tmp_path / "job.json")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    report = Report.from_json((tmp_path / "job.json").read_bytes())
    (table,) = (result.table for result in report.results if result.name == RANKS.name)
    assert table is not None
    assert sorted(table["rank"]) == [0, 1, 2, 3]
    assert table["like_rank"].nunique() == 2
    rules = [finding.rule for finding in report.findings]
    assert rules.count("unread_rank") == rules.count("some_ranks") == 1


def traced(folder: Path, rank: int) -> Path:
    """Write the trace of a rank of four: those of the real ranks, by turns."""
    with gzip.open(DATA / "kineto" / f"exposed_rank{rank % 2}.json.gz", "rt", encoding="utf-8") as file:
        trace: dict[str, Any] = json.load(file)
    trace["distributedInfo"] |= {"rank": rank, "world_size": 4}
    path = folder / f"train_rank{rank}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def test_a_rank_that_no_reader_survives_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_job, "_MOST_HELD_BYTES", 1)
    monkeypatch.setattr(opening_job, "_summarize_rank", dies_on_rank_1)
    files = [str(traced(tmp_path, rank)) for rank in range(3)]
    done = CliRunner().invoke(main, ["report", *files, "-o", str(tmp_path / "job.json")])
    assert done.exit_code == 0, done.output
    report = Report.from_json((tmp_path / "job.json").read_bytes())
    (table,) = (result.table for result in report.results if result.name == RANKS.name)
    assert table is not None
    assert sorted(table["rank"]) == [0, 2]
    (lost,) = (finding for finding in report.findings if finding.rule == "unread_rank")
    assert "rank1" in lost.title
    assert lost.detail == "each worker that read it died: it may need more memory."


def dies_on_rank_1(path: Path, reading: Reading) -> RankSummary | None:
    if "rank1" in path.name:
        os._exit(1)
    return summarize_rank(path, reading)


def test_readers_share_the_memory_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Asked(ThreadPoolExecutor):
        def __init__(self, workers: int, most_bytes: int) -> None:
            super().__init__(workers)
            asked.append((workers, most_bytes))

    monkeypatch.setattr(executor, "Processes", Asked)
    for module in (executor, opening_job):
        monkeypatch.setattr(module, "memory_of_machine", lambda: 10_000_000_000)
        monkeypatch.setattr(module, "cores", lambda: 16)
    files = [traced(tmp_path, rank) for rank in range(2)]
    monkeypatch.setattr(opening_job, "_MOST_HELD_BYTES", sum(map(export_bytes, files)) - 1)
    monkeypatch.setattr(opening_job, "as_worker", nullcontext)
    CliRunner().invoke(main, ["report", *map(str, files), "-o", str(tmp_path / "job.json")], catch_exceptions=False)
    assert asked == [(2, 4_000_000_000)]


def test_if_all_readers_die_that_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_job, "_MOST_HELD_BYTES", 1)
    monkeypatch.setattr(opening_job, "_summarize_rank", dies)
    done = CliRunner().invoke(main, ["report", *(str(traced(tmp_path, rank)) for rank in range(2))])
    assert done.exit_code == 3
    assert "none of 2 captures could be read: each worker that read it died" in done.output
    assert "Traceback" not in done.output


def dies(*_: object) -> None:
    os._exit(1)


@pytest.mark.nightly
def test_a_reader_that_is_killed_loses_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_job, "_MOST_HELD_BYTES", 1)
    monkeypatch.setattr(opening_job, "_summarize_rank", dies_at_first)
    page = tmp_path / "job.json"
    files = [str(traced(tmp_path, rank)) for rank in range(4)]
    done = CliRunner().invoke(main, ["report", *files, "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "killed").exists()
    assert [finding.rule for finding in Report.from_json(page.read_bytes()).findings].count("unread_rank") == 0


def dies_at_first(path: Path, reading: Reading) -> RankSummary | None:
    if "rank1" in path.name and not (path.parent / "killed").exists():
        (path.parent / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return opening_job._summarize_rank(path, reading)


def test_ranks_that_do_not_communicate_are_a_job_too() -> None:
    parts = []
    for part in world([[1_000_000] * 8] * 4):
        kernels = part.profile.tables["kernels"]
        alone = {**part.profile.tables, "kernels": kernels[kernels["name"] == "work(float*)"]}
        parts.append(
            replace(part, profile=replace(part.profile, tables={**alone, "collectives": empty("collectives")}))
        )
    some = of_some(parts, 2)
    assert some.tables["kernels"]["device"].nunique() == 2
    assert not len(tables(some)["ranks"])
    assert "unknown_clock" in {finding.rule for finding in some.findings}
