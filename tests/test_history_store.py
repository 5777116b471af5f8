"""Where a history is kept: what two writers, a full disk and a merge leave of it."""

import json
import multiprocessing
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError
from nightsight.history import HistoryRow, append, read_rows
from nightsight.history.rows import key_of, row_from
from nightsight.model.history import Key
from nightsight.model.report import Conditions
from tests.nights import measures, row

STEP = {"step_ns": 1e6}


def stored(place: Path) -> Path:
    (path,) = place.rglob("*.jsonl")
    return path


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = row(measures(STEP, kernels={"a": 5e5, "b": 3e5}), measures({"step_ns": 2e6}), link="mlp/1")
    assert append(str(tmp_path), written)
    (read,) = read_rows(str(tmp_path)).rows
    assert (read, read.id) == (written, written.id)
    assert read.values == {"gate": {"step_ns": (1e6, 2e6)}, "kernel": {"a": (5e5,), "b": (3e5,)}}
    assert (read.time, read.key.driver, read.versions["driver"]) == ("2026-09-01T02:00:00Z", "580", "580.95.05")


def test_the_same_runs_count_once(tmp_path: Path) -> None:
    one = row(measures(STEP))
    assert [append(str(tmp_path), each) for each in (one, one, row(measures(STEP, night=1)))] == [True, False, True]
    text = stored(tmp_path).read_text()
    stored(tmp_path).write_text(text + text)
    assert [each.time[:10] for each in read_rows(str(tmp_path)).rows] == ["2026-09-01", "2026-09-02"]


def test_each_workload_and_key_has_a_file_of_its_own(tmp_path: Path) -> None:
    for each in (
        measures(STEP),
        measures(STEP, night=1, driver="580.99.01"),
        measures(STEP, driver="590.1"),
        measures(STEP, cuda="13.1"),
        measures(STEP, conditions=(Conditions(0, mig="1g.18gb"),)),
        measures(STEP, conditions=(Conditions(0, clock_policy="locked"),)),
        measures(STEP, workload="train this: /home/me"),
    ):
        append(str(tmp_path), row(each))
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.jsonl"))
    assert len(names) == 6
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_./") for name in names)


def test_other_arguments_of_a_script_are_another_series() -> None:
    given: tuple[dict[str, str], ...] = ({}, {"arguments": "none"}, {"arguments": "digest 3f2a"})
    before, without, other = (key_of(replace(measures(STEP), parameters=each)) for each in given)
    # a report from before the digest does not say
    assert before == without != other
    assert other.differences(before) == ("other arguments",)


def test_only_the_largest_kernels_are_kept_and_long_names_stay_apart() -> None:
    names = [f"{'x' * 200}{place}" for place in range(80)]
    (kept,) = (
        row(measures(STEP, kernels={name: 1000.0 + place for place, name in enumerate(names)})).values["kernel"],
    )
    assert len(kept) == 50
    assert max(map(len, kept)) <= 160
    assert min(min(values) for values in kept.values()) == 1030.0


def test_nothing_of_the_machine_or_its_user_is_in_a_row() -> None:
    run = measures(STEP, os="Linux host7", cpu="EPYC")
    line = row(measures(STEP)).line()
    assert "host7" not in row(run).line()
    assert run.source not in line
    assert set(json.loads(line)) == {"format", "id", "workload", "key", "time", "values", "commit", "versions"}


def test_throttled_and_shared_runs_count_only_if_there_are_no_others() -> None:
    slowed = measures({"step_ns": 2e6}, conditions=(Conditions(0, throttled=("HwSlowdown",)),))
    capped = measures({"step_ns": 3e6}, conditions=(Conditions(0, throttled=("SwPowerCap",)),))
    shared = measures({"step_ns": 4e6}, conditions=(Conditions(0, is_shared=True),))
    assert row(slowed, capped, shared).values["gate"]["step_ns"] == (3e6,)
    both = row(slowed, shared)
    assert (both.flags, both.values["gate"]["step_ns"]) == (("shared", "throttled"), (2e6, 4e6))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_is_no_number_is_not_kept(value: float) -> None:
    assert row(measures({"step_ns": value, "launches": 5.0})).values == {"gate": {"launches": (5.0,)}}
    with pytest.raises(CaptureError, match="run0 has no number to keep"):
        row(measures({"step_ns": value}))


def test_a_line_that_was_cut_costs_that_line_only(tmp_path: Path) -> None:
    for night in range(3):
        append(str(tmp_path), row(measures(STEP, night=night)))
    path = stored(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    read = read_rows(str(tmp_path))
    assert [each.time[:10] for each in read.rows] == ["2026-09-01", "2026-09-02"]
    assert read.problems == (
        f"{path.relative_to(tmp_path).as_posix()}, line 3 was skipped: not JSON: truncated or edited",
    )
    # the next night stands on a line of its own, and the cut one can be added again
    assert append(str(tmp_path), row(measures(STEP, night=3)))
    assert append(str(tmp_path), row(measures(STEP, night=2)))
    assert len(read_rows(str(tmp_path)).rows) == 4


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: truncated or edited"),
        ("[" * 10_000, "not JSON: truncated or edited"),
        ("[]", "not a row of a history"),
        ("{}", "not a row of a history"),
        ('{"format": 2, "workload": "mlp"}', "format 2, written by a newer nightsight"),
        ('{"format": 1, "workload": 5, "values": {}}', "a field has the wrong type"),
        ('{"format": 1, "workload": "mlp", "key": [], "values": {}}', "a field has the wrong type"),
        ('{"format": 1, "workload": "mlp", "flags": 1, "values": {}}', "a field has the wrong type"),
        ('{"format": 1, "workload": "mlp", "versions": {"torch": 2}, "values": {}}', "a field has the wrong type"),
        ('{"format": 1, "workload": "mlp"}', "its values are not numbers by name"),
        ('{"format": 1, "workload": "mlp", "values": {"gate": {"step_ns": [NaN]}}}', "it contains no number"),
        ('{"format": 1, "workload": "mlp", "values": {"gate": 1}}', "its values are not numbers by name"),
    ],
)
def test_what_is_no_row_is_reported_in_one_line(line: str, problem: str, tmp_path: Path) -> None:
    append(str(tmp_path), row(measures(STEP)))
    path = stored(tmp_path)
    path.write_text(f"{line}\n\n{path.read_text()}")
    read = read_rows(str(tmp_path))
    assert len(read.rows) == 1
    assert read.problems == (f"{path.relative_to(tmp_path).as_posix()}, line 1 was skipped: {problem}",)


@pytest.mark.parametrize(
    ("was", "is_now"),
    [("1000000.0", "900000.0"), ('"workload":"mlp"', '"workload":"gelu"'), ("2026-09-01T", "2026-09-02T")],
)
def test_a_line_that_was_edited_is_noticed(tmp_path: Path, was: str, is_now: str) -> None:
    append(str(tmp_path), row(measures(STEP)))
    path = stored(tmp_path)
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, is_now))
    read = read_rows(str(tmp_path))
    assert read.rows == ()
    place = f"{path.relative_to(tmp_path).as_posix()}, line 1"
    assert read.problems == (f"{place} was skipped: it was edited: its id does not match its content",)
    # who means it takes the id away; a link is not of the content
    path.write_text(path.read_text().replace(f'"id":"{row(measures(STEP)).id}",', ""))
    assert len(read_rows(str(tmp_path)).rows) == 1
    path.write_text(text.replace("}\n", ',"link":"mlp/1"}\n'))
    assert [each.link for each in read_rows(str(tmp_path)).rows] == ["mlp/1"]


def test_many_bad_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{\n" * 100)
    assert read_rows(str(tmp_path)).problems[5:] == ("95 more lines were skipped",)


def test_numbers_that_are_none_are_left_out_of_a_row() -> None:
    text = '{"format":1,"workload":"w","values":{"gate":{"a":[NaN,1,null,"x",true,-1,1e999],"b":[NaN],"c":3,"d":{}}}}'
    assert row_from(text).values == {"gate": {"a": (1.0,), "c": (3.0,)}}


@given(
    st.builds(
        HistoryRow,
        st.text(min_size=1),
        st.builds(Key, *[st.text(max_size=9)] * 7),
        st.datetimes().map(lambda time: f"{time.isoformat(timespec='seconds')}Z"),
        st.fixed_dictionaries(
            {
                kind: st.dictionaries(st.text(), st.lists(st.floats(0, 1e200), min_size=1).map(tuple), min_size=1)
                for kind in ("gate", "kernel")
            }
        ),
        st.text(),
        st.text(),
        proof=st.text(),
    )
)
def test_any_row_survives(written: HistoryRow) -> None:
    line = written.line()
    assert line.count("\n") == 1
    assert row_from(line) == written


def add_many(place: str, writer: int) -> None:
    for night in range(40):
        append(place, row(measures({"step_ns": 1e6 * (1 + writer)}, night=night, kernels={"x" * 150: 1.0})))


@pytest.mark.nightly
def test_jobs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    jobs = [
        multiprocessing.get_context("spawn").Process(target=add_many, args=(str(tmp_path), each)) for each in range(4)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    read = read_rows(str(tmp_path))
    assert (len(read.rows), read.problems) == (160, ())
    assert len(stored(tmp_path).read_text().splitlines()) == 160


def test_branches_that_both_add_are_merged_without_conflict(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        quiet = (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
        )
        subprocess.run(("git", *quiet, *arguments), cwd=tmp_path, check=True, capture_output=True)

    git("init")
    append(str(tmp_path), row(measures(STEP)))
    git("add", "-A")
    git("commit", "-m", "first")
    git("checkout", "-b", "other")
    for each in ((2, 3), (1, 3)):
        for night in each:
            append(str(tmp_path), row(measures(STEP, night=night)))
        git("commit", "-am", "more")
        if each == (2, 3):
            git("checkout", "main")
    git("merge", "other")
    read = read_rows(str(tmp_path))
    assert [each.time[8:10] for each in read.rows] == ["01", "02", "03", "04"]
    assert read.problems == ()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match=r"cannot write the history to .*/file"):
        append(str(tmp_path / "file"), row(measures(STEP)))
    with pytest.raises(CaptureError, match=r"there is no history in .*/none"):
        read_rows(str(tmp_path / "none"))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(str(tmp_path), row(measures(STEP)))
    before = stored(tmp_path).read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    with pytest.raises(CaptureError, match="no space left on device"):
        append(str(tmp_path), row(measures(STEP, night=1)))
    assert stored(tmp_path).read_bytes() == before


def test_a_url_has_an_object_for_each_row() -> None:
    url = "memory://nights/of/a/team"
    rows = [row(measures(STEP, night=night, kernels={"k": 5.0})) for night in (1, 0)]
    assert [append(url, each) for each in (*rows, rows[0])] == [True, True, False]
    read = read_rows(url)
    assert [each.id for each in read.rows] == [rows[1].id, rows[0].id]
    assert read_rows("memory://nothing/here").rows == ()


@pytest.mark.parametrize("url", ["nosuch://bucket/x", "file:///proc/nothing/here"])
def test_a_url_that_cannot_be_used_is_one_line(url: str) -> None:
    with pytest.raises(CaptureError) as caught:
        append(url, row(measures(STEP)))
    assert "\n" not in caught.value.message
    assert url in caught.value.message
