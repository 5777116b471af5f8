"""Ranks that share a GPU: processes of a capture are told apart, and the report says that they share one."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nightsight.events.sharing import with_own_gpus
from nightsight.job.facts import RankCapture
from nightsight.job.merge import merge_ranks
from nightsight.model.report import Finding, Profile, Report
from nightsight.read.nsys.tables import read_nsys
from nightsight.tables import conform
from nightsight.workflows.analysis import build_report
from tests.recorded import Recorded
from tests.world import world

pytestmark = pytest.mark.usefixtures("remembered_analyses")

UUID = "4d5f2c1a-0b6e-4e11-9d3a-2f7c1e8b9a00"
STEPS = 20
EVEN = [[1_000_000] * STEPS] * 3
SLOW = [[1_000_000] * STEPS, [1_600_000] * STEPS, [1_000_000] * STEPS]


def with_tables(profile: Profile, **tables: pd.DataFrame) -> Profile:
    return replace(profile, tables={**profile.tables, **tables})


def with_uuids(profile: Profile, uuids: list[str]) -> Profile:
    devices = profile.table("devices").assign(uuid=uuids)
    return with_tables(profile, devices=conform("devices", devices))


def on_gpus(job: Profile, chosen: list[int]) -> Profile:
    """Return one capture of all ranks, with the GPU that each of them runs on."""
    moved: dict[str, Any] = {
        name: table.assign(device=table["device"].map(dict(enumerate(chosen))).astype("int64"))
        for name in ("kernels", "memory_ops")
        for table in [job.table(name)]
    }
    return with_tables(job, **moved, devices=job.table("devices").iloc[: max(chosen) + 1])


def of_rule(report: Report, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


@pytest.mark.parametrize("chosen", [[0, 0, 0], [0, 1, 0], [0, 1, 1]])
def test_ranks_of_a_capture_have_a_number_of_a_gpu_each(chosen: list[int]) -> None:
    job = merge_ranks(world(EVEN))
    separate = with_own_gpus(on_gpus(job, chosen))
    assert separate.table("kernels")["device"].tolist() == job.table("kernels")["device"].tolist()
    assert separate.table("devices")["device"].tolist() == [0, 1, 2]
    assert {str(kind) for kind in separate.table("devices").dtypes} == {
        str(kind) for kind in job.table("devices").dtypes
    }


def test_what_each_process_allocates_is_on_its_gpu_and_the_rest_stays_once() -> None:
    capture = on_gpus(merge_ranks(world(EVEN)), [0, 0, 0])
    process = sorted(capture.table("kernels")["process"].unique().tolist())
    usage = pd.DataFrame({"start_ns": 5, "process": [*process, process[2]], "device": [0, 0, 0, -1], "kind": "Device"})
    lost = pd.DataFrame({"process": process, "device": 0, "context": 1, "stream": 7})
    metrics = pd.DataFrame({"start_ns": [5], "device": 0, "metric": "SMs Active [Throughput %]", "value": 50.0})
    capture = with_tables(
        capture,
        memory_usage=conform("memory_usage", usage.assign(bytes=8, is_allocation=True)),
        gpu_metrics=conform("gpu_metrics", metrics),
        untimed=conform("untimed", lost),
    )
    separate = with_own_gpus(capture)
    assert separate.table("memory_usage")["device"].tolist() == [0, 1, 2, -1]
    assert separate.table("untimed")["device"].tolist() == [0, 1, 2]
    same = capture.tables.keys() - {"kernels", "memory_ops", "memory_usage", "untimed", "devices"}
    assert all(separate.tables[name] is capture.tables[name] for name in same)
    assert (separate.environment, separate.findings, separate.missing) == (capture.environment, (), capture.missing)


def test_a_capture_in_which_no_ranks_share_a_gpu_is_left_as_it_is() -> None:
    for capture in (world(EVEN)[0].profile, merge_ranks(world(EVEN)), Profile({})):
        assert with_own_gpus(capture) is capture
    # a process beside them does not communicate
    job = on_gpus(merge_ranks(world(EVEN)), [0, 1, 1])
    kernels = job.table("kernels")
    quiet = kernels["process"] == kernels["process"].max()
    name = pd.Categorical(kernels["name"].astype("str").mask(quiet, "work(float*)"))
    alone = with_tables(job, kernels=kernels.assign(name=name))
    assert with_own_gpus(alone) is alone


def test_processes_that_follow_each_other_on_a_gpu_do_not_share_it() -> None:
    capture = on_gpus(merge_ranks(world(EVEN)), [0, 1, 0])
    kernels = capture.table("kernels")
    is_last = (kernels["process"] == kernels["process"].max()).to_numpy(dtype=bool)
    later = np.where(is_last, kernels["end_ns"].max() + 1_000_000, 0)
    after = kernels.assign(start_ns=kernels["start_ns"] + later, end_ns=kernels["end_ns"] + later)
    assert with_own_gpus(capture) is not capture
    capture = with_tables(capture, kernels=after)
    assert with_own_gpus(capture) is capture


def test_gpus_that_nothing_identifies_are_those_of_their_captures() -> None:
    first, second = (with_own_gpus(on_gpus(merge_ranks(world([[1_000_000] * STEPS] * 2)), [0, 0])) for _ in range(2))
    uuids = [set(one.table("devices")["uuid"]) for one in (first, second)]
    assert len(uuids[0]) == len(uuids[1]) == 1
    assert uuids[0] != uuids[1]


def test_the_report_of_a_capture_names_who_is_slow_and_who_shares() -> None:
    report = build_report(with_own_gpus(on_gpus(merge_ranks(world(SLOW)), [0, 0, 0])), "job")
    assert of_rule(report, "straggler")[0].title.startswith("Rank 1 computes longer than the others")
    (shared,) = of_rule(report, "shared_device")
    assert (shared.severity, shared.title) == ("warning", "Ranks 0, 1 and 2 share one GPU")
    assert report.shared == ((0, 1, 2),)
    assert Report.from_json(report.to_json()).shared == report.shared


def test_pairs_of_ranks_on_one_gpu_are_counted() -> None:
    report = build_report(with_own_gpus(on_gpus(merge_ranks(world([*EVEN, EVEN[0]])), [0, 1, 0, 1])), "job")
    (shared,) = of_rule(report, "shared_device")
    assert shared.title == "4 ranks share 2 GPUs"
    assert shared.evidence == ("Ranks 0 and 2", "Ranks 1 and 3")


def parts_on(uuids: list[str], work: list[list[int]], **options: Any) -> list[RankCapture]:
    parts = world(work, **options)
    return [replace(part, profile=with_uuids(part.profile, [uuid])) for part, uuid in zip(parts, uuids, strict=True)]


def test_captures_of_ranks_apart_tell_by_the_uuid_that_they_share_a_gpu() -> None:
    job = merge_ranks(parts_on([UUID, UUID, "another"], EVEN))
    assert job.environment.gpu == "2 × NVIDIA H100 80GB HBM3"
    report = build_report(job, "job")
    (shared,) = of_rule(report, "shared_device")
    assert shared.title == "Ranks 0 and 1 share one GPU"
    # it numbers the machine
    assert UUID not in report.to_json()


@pytest.mark.parametrize("uuids", [["a", "b", "c"], [""] * 3])
def test_captures_that_name_other_gpus_or_none_are_not_reported_to_share(uuids: list[str]) -> None:
    assert of_rule(build_report(merge_ranks(parts_on(uuids, EVEN)), "job"), "shared_device") == []


def test_slices_of_a_gpu_are_not_shared() -> None:
    parts = [
        replace(
            part,
            profile=with_tables(part.profile, devices=devices.assign(name=pd.Categorical([f"{name} MIG 1g.10gb"]))),
        )
        for part in parts_on([UUID] * 3, EVEN)
        for devices in [part.profile.table("devices")]
        for name in devices["name"]
    ]
    assert of_rule(build_report(merge_ranks(parts), "job"), "shared_device") == []


def in_turns(part: RankCapture, turn_ns: int) -> RankCapture:
    """Return a rank that sees the end of every other collective later."""
    kernels = part.profile.table("kernels")
    number = np.arange(len(kernels))
    later = kernels.assign(end_ns=kernels["end_ns"] + np.where(number % 4 == 1, turn_ns, 0))
    return replace(part, profile=with_tables(part.profile, kernels=later))


def test_ranks_that_take_turns_are_not_reported_as_of_different_runs() -> None:
    work = [[20_000_000] * STEPS] * 2
    for uuids, explanation in (([UUID, UUID], "take turns"), (["a", "b"], "different runs")):
        first, second = parts_on(uuids, work)
        (loose,) = (
            one for one in merge_ranks([first, in_turns(second, 4_000_000)]).findings if one.rule == "loose_clock"
        )
        assert explanation in loose.detail


@pytest.mark.parametrize(("epochs", "shift"), [((1_000_000_000, 1_003_000_000), 3_000_000), ((None, None), 1_000_000)])
def test_ranks_that_share_a_gpu_have_the_clock_of_their_machine(epochs: tuple[int | None, ...], shift: int) -> None:
    parts = parts_on([UUID, UUID], EVEN[:2], clocks=[0, -1_000_000])
    timed = [
        replace(part, profile=replace(part.profile, epoch_ns=epoch)) for part, epoch in zip(parts, epochs, strict=True)
    ]
    assert merge_ranks(timed).table("ranks")["shift_ns"].tolist()[1] == shift


def test_the_reader_tells_what_identifies_a_gpu(capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    devices = []
    for uuid in (UUID, "00000000-0000-0000-0000-000000000000"):
        path = tmp_path / "copy.sqlite"
        path.write_bytes(capture_file("train").read_bytes())
        connection = sqlite3.connect(path)
        if "uuid" not in {row[1] for row in connection.execute("PRAGMA table_info(TARGET_INFO_GPU)")}:
            connection.execute("ALTER TABLE TARGET_INFO_GPU ADD COLUMN uuid TEXT")
        connection.execute("UPDATE TARGET_INFO_GPU SET uuid = ?", (uuid,))
        connection.commit()
        connection.close()
        devices.append(read_nsys(path).table("devices")["uuid"].unique().tolist())
    assert devices == [[UUID], [""]]


def test_nvidias_tables_count_a_shared_gpu_once(
    capture_file: Callable[[str], Path], tmp_path: Path, run: Any, recorded: Recorded
) -> None:
    path = tmp_path / "shared.sqlite"
    path.write_bytes(capture_file("ddp2").read_bytes())
    connection = sqlite3.connect(path)
    for (table,) in connection.execute(
        "SELECT m.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c WHERE c.name = 'deviceId' "
        "AND m.name LIKE 'CUPTI%'"
    ).fetchall():
        connection.execute(f"UPDATE {table} SET deviceId = 0")
    connection.commit()
    connection.close()
    traced = run("stats", path, "-r", "cuda_gpu_trace", "--format", "csv").stdout
    assert "(0)" in traced
    assert "(1)" not in traced
    run("report", path, "-o", tmp_path / "shared.json")
    report = Report.from_json((tmp_path / "shared.json").read_bytes())
    assert len(of_rule(report, "shared_device")) == 1
    before = recorded.report("ddp2").result("ranks").rows
    assert report.result("ranks").rows["waited_ns"].tolist() == pytest.approx(before["waited_ns"].tolist())
