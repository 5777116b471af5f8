"""Logs of requests: what each form says about a request, on one clock, without anything private."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Capture, Profile
from nightsight.read.requests import EVENTS, figures_of, read_request_events, requests_of
from nightsight.results.serving import PROFILED_RUN, REQUESTS
from nightsight.runs.unprofiled import from_text, on_clock_of_capture, to_text
from nightsight.tables import empty
from nightsight.workflows import attach
from nightsight.workflows.attach import add_attached, watch_results

LAST = "last_token"
EPOCH = 1_790_000_000_123_456_789
MS = 1_000_000


def read(tmp_path: Path, *texts: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Write a file for each text, and return the rows of the table, without times that are missing."""
    files = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        files.append(read_request_events(path))
    table, notes = requests_of(files)
    rows = [{str(name): value for name, value in row.items() if pd.notna(value)} for row in table.to_dict("records")]
    return rows, notes


def log(*events: tuple[Any, ...]) -> str:
    """Return a log of (identifier, event, ms, tokens)."""
    keys = ("id", "event", "time_ns", "tokens")
    lines = [dict(zip(keys, (*event[:2], EPOCH + round(event[2] * MS), *event[3:]), strict=False)) for event in events]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


SERVER: list[tuple[Any, ...]] = [
    ("a", "received", 1, 100),
    ("a", "tokenized", 2),
    ("a", "scheduled", 5),
    ("a", "first_token", 30),
]
CLIENT: list[tuple[Any, ...]] = [("a", "sent", 0, 100), ("a", "first_seen", 31), ("a", "last_seen", 80, 6)]


def since_start(row: dict[str, Any]) -> dict[str, float]:
    """Return the times of a row in ms since EPOCH."""
    return {name: (value - EPOCH) / MS for name, value in row.items() if name.endswith("_ns")}


def test_the_logs_of_server_and_client_join_by_request(tmp_path: Path) -> None:
    server = log(("b", "received", 7, 50), *SERVER, ("a", "preempted", 40), ("a", "scheduled", 45))
    server += log(("a", "preempted", 50), ("a", "scheduled", 60), ("a", "last_token", 79, 6), ("b", "failed", 8))
    rows, notes = read(tmp_path, server, log(*CLIENT))
    assert not notes
    assert since_start(rows[0]) == {
        "sent_ns": 0,
        "received_ns": 1,
        "tokenized_ns": 2,
        "scheduled_ns": 5,
        "first_token_ns": 30,
        "last_token_ns": 79,
        "first_seen_ns": 31,
        "last_seen_ns": 80,
    }
    assert {name: rows[0][name] for name in rows[0] if not name.endswith("_ns")} == {
        "input_tokens": 100,
        "output_tokens": 6,
        "preemptions": 2,
        "is_dated": True,
    }
    # one that never ended, and without the client
    assert since_start(rows[1]) == {"received_ns": 7, "failed_ns": 8}


def test_identifiers_can_be_used_again(tmp_path: Path) -> None:
    server = [*SERVER, *((*event[:2], event[2] + 500, *event[3:]) for event in SERVER)]
    client = [*CLIENT, *((*event[:2], event[2] + 500, *event[3:]) for event in CLIENT)]
    rows, notes = read(tmp_path, log(*server), log(*client))
    assert [since_start(row)["received_ns"] for row in rows] == [1, 501]
    assert [since_start(row)["last_seen_ns"] for row in rows] == [80, 580]
    assert not notes
    # in one file
    assert read(tmp_path, log(*server, *client))[0] == rows


def test_a_server_that_was_killed_leaves_half_a_line(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, log(*SERVER) + '{"id": "b", "event": "received", "time_')
    assert [row["received_ns"] for row in rows] == [EPOCH + MS]


@pytest.mark.parametrize("shift", [-700.0, 700.0])
def test_the_clock_of_a_client_on_another_machine_is_corrected(tmp_path: Path, shift: float) -> None:
    client: list[tuple[Any, ...]] = [(*event[:2], event[2] + shift, *event[3:]) for event in CLIENT]
    rows, (note,) = read(tmp_path, log(*SERVER), log(*client))
    # neither way takes negative time: 1 ms there, 1 ms back
    assert since_start(rows[0])["sent_ns"] == pytest.approx(0, abs=1e-3)
    assert since_start(rows[0])["last_seen_ns"] == pytest.approx(80, abs=1e-3)
    assert ("700.0 ms ahead of" if shift > 0 else "700.0 ms behind") in note


def test_the_log_of_another_run_of_the_client_is_left_out(tmp_path: Path) -> None:
    client = log(*CLIENT, ("b", "sent", -500), ("b", "first_seen", -400))
    rows, (note,) = read(tmp_path, log(*SERVER, ("b", "received", 90), ("b", "first_token", 99)), client)
    assert "do not fit" in note
    assert not {"sent_ns", "first_seen_ns", "last_seen_ns"} & {name for row in rows for name in row}


def span(attributes: Mapping[str, float], name: str = "llm_request") -> dict[str, Any]:
    """Return a span as an OpenTelemetry collector writes it."""
    values = [{"key": f"gen_ai.{key}", "value": {"doubleValue": value}} for key, value in attributes.items()]
    values.append({"key": "gen_ai.request.id", "value": {"stringValue": "private"}})
    start = str(EPOCH)
    return {"traceId": "t", "spanId": "s", "name": name, "startTimeUnixNano": start, "attributes": values}


def test_traces_of_vllm(tmp_path: Path) -> None:
    latencies = {"latency.time_in_queue": 0.01, "latency.time_to_first_token": 0.05, "latency.e2e": 0.45}
    request = span({**latencies, "usage.prompt_tokens": 30, "usage.completion_tokens": 9})
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span({}, "other"), request, {"name": "llm_request"}]}]}]}
    (row,), _ = read(tmp_path, f"{json.dumps(document)}\n{json.dumps(document)}\n")
    assert since_start(row) == {"received_ns": 0, "scheduled_ns": 10, "first_token_ns": 50, "last_token_ns": 450}
    assert (row["input_tokens"], row["output_tokens"], row["is_dated"]) == (30, 9, True)


def test_detailed_results_of_vllm_have_no_date(tmp_path: Path) -> None:
    document = {
        "ttfts": [0.5, 0.0, 0.25],
        "itls": [[0.1, 0.2], [], [0.5]],
        "errors": ["", "refused", ""],
        "input_lens": [10, 20, 30],
        "output_lens": [3, 0, 2],
        "start_times": [1000.5, 1001, 1000],
    }
    rows, _ = read(tmp_path, json.dumps(document))
    assert [row["is_dated"] for row in rows] == [False] * 3
    assert [row.get("last_seen_ns") for row in rows] == [750 * MS, 1300 * MS, None]
    assert [row.get("failed_ns") for row in rows] == [None, None, 1000 * MS]
    # next to times with a date, they would be further requests
    rows, (note,) = read(tmp_path, json.dumps(document), log(*SERVER))
    assert [row["received_ns"] for row in rows] == [EPOCH + MS]
    assert "left out" in note


def test_requests_of_a_client_with_other_identifiers_are_left_out(tmp_path: Path) -> None:
    client = [("chat-a", *event[1:]) for event in CLIENT]
    rows, (note,) = read(tmp_path, log(*SERVER), log(*client))
    assert [since_start(row)["received_ns"] for row in rows] == [1]
    assert "no identifier in common" in note
    # some of the client's requests are known: the others were refused
    rows, notes = read(tmp_path, log(*SERVER), log(*CLIENT, ("b", "sent", 5)))
    assert len(rows) == 2
    assert not notes


def test_a_capture_keeps_the_last_requests_of_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_MOST_STORED", 3)
    path, before = tmp_path / "log", watch_results([tmp_path / "log"])
    ends = [event for number in range(9) for event in ((f"r{number}", "received", number), (f"r{number}", LAST, 9))]
    path.write_text(log(*ends))
    capture, tables = add_attached(Capture("serve", "nsys", ()), before)
    assert ((tables["requests"]["received_ns"] - EPOCH) // MS).tolist() == [6, 7, 8]
    assert "the last 3 of 9 requests" in capture.findings[0].detail
    figures = tables["serving_figures"].set_index(["metric", "statistic"])["value"]
    assert figures[REQUESTS, "count"] == 9


def test_times_are_those_of_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(log(*SERVER, *CLIENT))
    table, _ = requests_of([read_request_events(path)])
    kept = from_text(to_text({"requests": table}))
    shifted = on_clock_of_capture(kept, EPOCH)["requests"]
    assert shifted["first_seen_ns"].tolist() == [31 * MS]
    assert shifted["is_dated"].tolist() == [True]
    # a capture without a date: durations stay right
    undated = on_clock_of_capture(kept, None)["requests"]
    assert (undated["first_seen_ns"] - undated["sent_ns"]).tolist() == [31 * MS]
    assert undated["is_dated"].tolist() == [False]
    assert Profile({"requests": shifted}).rows == 1


def test_figures_of_a_log_are_those_of_its_client(tmp_path: Path) -> None:
    path = tmp_path / "log"
    other = [("b", "sent", 10, 50), ("b", "first_seen", 20), ("b", "last_seen", 80, 1), ("c", "sent", 11, 7)]
    path.write_text(log(*SERVER, *CLIENT, *other, ("c", "failed", 12)))
    table, _ = requests_of([read_request_events(path)])
    rows = figures_of(table, PROFILED_RUN).to_dict("records")
    assert {row["source"] for row in rows} == {"log of requests"}
    values = {(row["metric"], row["statistic"]): row["value"] for row in rows}
    assert values["requests", "count"] == 2
    assert values["requests", "rate_per_s"] == pytest.approx(2 / 0.080)
    assert values["output tokens", "rate_per_s"] == pytest.approx(7 / 0.080)
    assert values["input tokens", "count"] == 150
    assert values["failed requests", "count"] == 1
    assert values["time to first token", "avg_ns"] == pytest.approx((31 + 10) / 2 * MS)
    # the other one has no second token
    assert values["time per output token", "med_ns"] == pytest.approx(49 / 5 * MS)
    assert values["request latency", "p99_ns"] == pytest.approx((70 + 0.99 * 10) * MS)


def test_figures_of_requests_without_an_end() -> None:
    rows = figures_of(empty("requests"), PROFILED_RUN)
    assert set(rows["value"]) == {0.0}


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": VALUES,
                "event": VALUES | st.sampled_from(EVENTS),
                "time_ns": VALUES,
                "tokens": VALUES,
                "ttfts": VALUES,
                "itls": VALUES,
                "resourceSpans": VALUES,
            },
        )
    )
)
def test_damaged_lines_are_left_out(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + log(*SERVER))
    table, _ = requests_of([read_request_events(path)])
    assert len(table) >= 1
    assert from_text(to_text({"requests": table}))["requests"].equals(table)
