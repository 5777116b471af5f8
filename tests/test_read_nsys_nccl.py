"""What NCCL is called with, from the payloads of its ranges: a real export of two ranks, and changed ones."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.communication import communication, messages
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read.nsys.tables import read_nsys
from nightsight.sanitize import sanitize
from nightsight.stats import Selection, details_of
from nightsight.tables import conform
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

BYTES = 201_375_744
Changed = Callable[..., Profile]


@pytest.fixture
def changed(capture_file: Callable[[str], Path], tmp_path: Path) -> Changed:
    """Read the export after SQL statements, each with its parameters."""

    def read(*statements: tuple[str, tuple[Any, ...]]) -> Profile:
        path = Path(shutil.copy(capture_file("ddp_exposed"), tmp_path / "changed.sqlite"))
        with closing(sqlite3.connect(path)) as connection:
            for statement, parameters in statements:
                connection.execute(statement, parameters)
            connection.commit()
        return read_nsys(path)

    return read


def payload(**facts: object) -> tuple[str, tuple[str]]:
    """Return the statement that gives every range of NCCL this payload."""
    return "UPDATE NVTX_EVENTS SET jsonText = ? WHERE jsonText LIKE '%communicator%'", (json.dumps(facts),)


def test_calls_of_nccl_have_their_size_and_communicator(recorded: Recorded) -> None:
    calls = recorded.profile("ddp_exposed").table("collectives")
    assert len(calls) == 30
    assert set(calls["name"]) == {"allreduce"}
    assert set(calls["bytes"]) == {BYTES}
    assert calls["group"].nunique() == 1
    assert calls["process"].nunique() == 2
    # the communicators were made before the part that was recorded
    assert calls["group_size"].isna().all()
    (row,) = recorded.report("ddp_exposed").result("collectives").rows.to_dict("records")
    assert row["calls"] == 1
    assert row["message_bytes"] == BYTES
    assert row["total_ns"] > 2 * 15 * 500_000


@pytest.mark.parametrize("call", ["ncclReduceScatter", "ncclAlltoAll"])
def test_the_call_that_makes_a_communicator_tells_its_size_and_the_rank(call: str, changed: Changed) -> None:
    facts = {"NCCL communicator ID": 7, "Message size [bytes]": 100}
    first = "SELECT MIN(rowid) FROM NVTX_EVENTS WHERE jsonText LIKE '%communicator%' GROUP BY globalTid"
    made = json.dumps({"NCCL communicator ID": 7, "No. of ranks": 4, "Rank": 3, "CUDA device": 0})
    renamed = f"UPDATE StringIds SET value = '{call}' WHERE value = 'ncclAllReduce'"
    calls = changed(
        payload(**facts),
        (renamed, ()),
        (
            f"UPDATE NVTX_EVENTS SET jsonText = ?, textId = NULL, text = 'ncclCommInitRank' WHERE rowid IN ({first})",
            (made,),
        ),
    ).table("collectives")
    assert len(calls) == 28
    assert set(calls["name"]) == {{"ncclReduceScatter": "reduce_scatter", "ncclAlltoAll": "all_to_all"}[call]}
    assert set(calls["group_size"]) == {4}
    assert set(calls["rank"]) == {3}
    # NCCL tells what a rank ends up with, or what it sends to each; four H100 confirm the second by their rate
    assert set(calls["bytes"]) == {400}


def test_a_rank_that_receives_gives_nothing(changed: Changed) -> None:
    renamed = "UPDATE StringIds SET value = 'ncclRecv' WHERE value = 'ncclAllReduce'"
    assert set(changed((renamed, ())).table("collectives")["bytes"]) == {0}


def test_a_send_and_its_receive_are_one_message(changed: Changed) -> None:
    threads = "(SELECT {}(globalTid) FROM NVTX_EVENTS WHERE jsonText LIKE '%communicator%')"
    statements = []
    # the real kernels of an all-reduce, as if one rank had sent to the other
    for name, which, peer in (("ncclSend", "MIN", 1), ("ncclRecv", "MAX", 0)):
        payload = json.dumps({"NCCL communicator ID": 7, "Message size [bytes]": BYTES, "Peer rank": peer})
        where = f"jsonText LIKE '%communicator%' AND globalTid = {threads.format(which)}"
        statements.append(
            (f"UPDATE NVTX_EVENTS SET textId = NULL, text = ?, jsonText = ? WHERE {where}", (name, payload))
        )
    profile = changed(*statements)
    calls = profile.table("collectives")
    assert calls.groupby("name", observed=True)["peer"].unique().map(list).to_dict() == {"send": [1], "recv": [0]}
    assert calls.groupby("name", observed=True)["received_bytes"].sum().to_dict() == {"send": 0, "recv": 15 * BYTES}
    timeline = Timeline(profile)
    table = messages(communication(timeline))
    assert len(table) == 15
    assert set(table["bytes"]) == {BYTES}
    assert table["sender"].nunique() == table["receiver"].nunique() == 1
    (row,) = build_report(profile, "x").result("sends").rows.to_dict("records")
    assert (row["calls"], row["message_bytes"]) == (1, BYTES)
    # as long as its ranks were found to wait for each other
    assert row["to_waited_ns"] + row["from_waited_ns"] > 0
    assert row["bytes_per_s"] > 1e11


@pytest.mark.parametrize(("gap_us", "is_known"), [(900, True), (1_100, False)])
def test_calls_of_a_group_launch_the_kernel_that_soon_follows_them(gap_us: int, *, is_known: bool) -> None:
    """What is launched later belongs to calls that were not recorded."""
    drawn = draw(f"cpu  ..{'.' * gap_us}L...\ns7   ..{'.' * gap_us}..nn")
    thread = drawn.table("api_calls")[["process", "thread", "pid", "tid"]].loc[[0, 0]].reset_index(drop=True)
    # two calls in the two microseconds before the gap
    called = thread.assign(start_ns=[0, 1_000], end_ns=[1_000, 2_000], name="allreduce", group="7", bytes=BYTES)
    profile = Profile({**drawn.tables, "collectives": conform("collectives", called)})
    (row,) = communication(Timeline(profile)).to_dict("records")
    assert (row["bytes"] == 2 * BYTES) == is_known


def test_without_payloads_it_is_reported_how_to_export_them(changed: Changed) -> None:
    profile = changed(("UPDATE NVTX_EVENTS SET jsonText = NULL", ()))
    assert "collectives" not in profile.tables
    assert "--include-json=true" in profile.missing["collectives"]
    # kernels are there, whose names say what they do
    (row,) = build_report(profile, "x").result("collectives").rows.to_dict("records")
    assert (row["name"], row["calls"], row["group_size"]) == ("allreduce", 1, 2)
    assert row["skew_ns"] > 0
    assert row["algorithm_bytes_per_s"] != row["algorithm_bytes_per_s"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"NCCL communicator ID"', '{"NCCL communicator ID": "x"}', "[" * 100_000 + "NCCL communicator ID"],
)
def test_a_payload_that_is_none_is_no_call(changed: Changed, text: str) -> None:
    whole = (f'{text} "NCCL communicator ID"',)
    profile = changed(("UPDATE NVTX_EVENTS SET jsonText = ? WHERE jsonText LIKE '%communicator%'", whole))
    assert "collectives" not in profile.tables


values = st.one_of(st.none(), st.booleans(), st.integers(-1, 1 << 80), st.floats(), st.text(max_size=3), st.just([]))


@examples(20)
@given(payload_=st.fixed_dictionaries({"NCCL communicator ID": values, "Message size [bytes]": values, "Rank": values}))
def test_whatever_a_payload_holds_only_whole_numbers_count(
    capture_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory, payload_: dict[str, object]
) -> None:
    path = Path(shutil.copy(capture_file("ddp_exposed"), tmp_path_factory.mktemp("nccl") / "x.sqlite"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(*payload(**payload_))
        connection.commit()
    profile = read_nsys(path)
    size, group = payload_["Message size [bytes]"], payload_["NCCL communicator ID"]
    if type(group) is not int or not 0 <= group < 1 << 64:
        assert "collectives" not in profile.tables or profile.table("collectives").empty
        return
    calls = profile.table("collectives")
    assert set(calls["group"]) == {str(group)}
    is_size = type(size) is int and 0 <= size < 1 << 62
    assert calls["bytes"].isna().all() if not is_size else set(calls["bytes"]) == {size}


def test_a_sanitized_export_says_the_same(capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    source, target = Path(shutil.copy(capture_file("ddp_exposed"), tmp_path / "job.sqlite")), tmp_path / "out.sqlite"
    private = '{"NCCL communicator ID":7,"Message size [bytes]":8,"Path":"/home/someone"}'
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET jsonText = ? WHERE rowid % 3 = 0 AND jsonText <> ''", (private,))
        connection.commit()
    sanitize(source, target, most_bytes=1 << 30)
    assert b"someone" not in target.read_bytes()
    columns = ["start_ns", "name", "bytes", "group"]
    before, after = (read_nsys(path).table("collectives")[columns] for path in (source, target))
    assert len(before) == 30
    pd.testing.assert_frame_equal(before, after)


def test_tables_of_nsys_do_without(capture_file: Callable[[str], Path]) -> None:
    profile = read_nsys(capture_file("ddp_exposed"), details=details_of(Selection(["nvtx_sum"])))
    assert "collectives" not in profile.tables
