import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given

from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.render.export.speedscope import speedscope_profile
from tests.kineto import write
from tests.recorded import DATA
from tests.test_render_perfetto import hostile_profile
from tests.test_render_tracks import SPANS, with_kernels, with_ranges
from tests.timeline import draw

TABLES = ("ranges", "cpu_ops", "api_calls", "kernels", "memory_ops", "graph_launches")
RECORDED = ("train", "everything", "graph", "graph_node", "ddp2", "unified_memory", "mini_torch", "open_range")


def document_of(profile: Profile) -> dict[str, Any]:
    """Load the file, and check it as file-format-schema.json of speedscope's npm package (1.25) does, and beyond.

    The schema cannot say that times never decrease, nor that all that opens is closed, the last first.
    """
    document: dict[str, Any] = json.loads(speedscope_profile(profile))
    assert document.keys() == {"$schema", "exporter", "shared", "profiles"}
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert document["shared"].keys() == {"frames"}
    frames = document["shared"]["frames"]
    assert all(frame.keys() == {"name"} and isinstance(frame["name"], str) for frame in frames)
    for part in document["profiles"]:
        assert part.keys() == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert (part["type"], part["unit"], part["startValue"]) == ("evented", "nanoseconds", 0)
        check(part["events"], part["endValue"], frames=len(frames))
    return document


def check(events: list[dict[str, Any]], end: int, *, frames: int) -> None:
    open_frames = []
    for event in events:
        assert event.keys() == {"type", "frame", "at"}
        assert 0 <= event["frame"] < frames
        if event["type"] == "O":
            open_frames.append(event["frame"])
        else:
            assert (event["type"], open_frames.pop()) == ("C", event["frame"])
    assert open_frames == []
    times = [0, *(event["at"] for event in events), end]
    assert all(type(time) is int for time in times)
    assert all(earlier <= later for earlier, later in pairwise(times))


def totals(document: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Count the spans and sum their ns by name."""
    names = [frame["name"] for frame in document["shared"]["frames"]]
    sums: Counter[tuple[str, str]] = Counter()
    for event in (event for part in document["profiles"] for event in part["events"]):
        opens = event["type"] == "O"
        sums[names[event["frame"]], "events"] += opens
        sums[names[event["frame"]], "ns"] += -event["at"] if opens else event["at"]
    return sums


def expected_totals(profile: Profile) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for table in TABLES:
        for event in profile.tables.get(table, pd.DataFrame()).to_dict("records"):
            name = event["name"] if "name" in event else event.get("operation", "[CUDA graph]")
            if table == "memory_ops":
                name = "[CUDA memset]" if name == "memset" else f"[CUDA memcpy {name}]"
            name = re.sub(r"_v\d{4,}$", "", name) if table == "api_calls" else name
            name = f"{event['domain']}:{name}" if event.get("domain") else name
            sums[name, "events"] += 1
            sums[name, "ns"] += event["end_ns"] - event["start_ns"]
    return sums


def written(document: dict[str, Any]) -> dict[str, str]:
    """Write each profile as brackets: `step(launch())`."""
    names = [frame["name"] for frame in document["shared"]["frames"]]

    def brackets(events: list[dict[str, Any]]) -> str:
        return "".join(f"{names[event['frame']]}(" if event["type"] == "O" else ")" for event in events)

    return {part["name"]: brackets(part["events"]) for part in document["profiles"]}


def test_a_profile_per_thread_and_per_stream() -> None:
    document = document_of(
        draw("""
        nvtx    [step          ]
        nvtx    .[inner].......
        cpu     .LL..CCC...SSSS
        cpu:8   ....L..........
        s7      ....aa.........
        s7      .....bbb.......
        s9      .........HH....
        """)
    )
    gpu, free = "GPU 0", 1 << 23
    assert written(document) == {
        "process 5, thread [7]": "step(inner(cudaLaunchKernel()cudaMemcpyAsync())cudaStreamSynchronize())",
        "process 5, thread [8]": "cudaLaunchKernel()",
        f"{gpu}, context 1, stream 7 [{free}]": "a()",
        f"{gpu}, context 1, stream 7 (2) [{free + 1}]": "b()",
        f"{gpu}, context 1, stream 9 [{free + 2}]": "[CUDA memcpy Host-to-Device]()",
    }
    assert {part["endValue"] for part in document["profiles"]} == {16_000}


def test_ranges_that_cross_are_in_profiles_of_their_own() -> None:
    document = document_of(with_ranges([(7, 100, 110), (8, 105, 115), (8, 106, 107)], "StartEnd"))
    names = [f"process 5, start/end ranges{lane} [{(1 << 23) + place}]" for place, lane in enumerate(("", " (2)"))]
    assert written(document) == {names[0]: "r(r())", names[1]: "r()"}


@given(SPANS)
def test_any_spans_become_brackets(spans: list[tuple[int, int, int]]) -> None:
    for profile in (with_ranges(spans), with_ranges(spans, "StartEnd"), with_kernels(spans)):
        assert totals(document_of(profile)) == expected_totals(profile)


@pytest.mark.parametrize("name", RECORDED)
def test_every_event_of_a_recording_is_there_with_its_time(name: str, capture_file: Callable[[str], Path]) -> None:
    kineto = next(DATA.rglob(f"{name}.json.gz"), None)
    profile = read(kineto or capture_file(name))
    assert totals(document_of(profile)) == expected_totals(profile)


def test_more_events_than_one_block_are_one_list() -> None:
    profile = with_ranges([(thread, 10 * place, 10 * place + 5) for thread in (7, 8) for place in range(70_000)])
    document = document_of(profile)
    assert [len(part["events"]) for part in document["profiles"]] == [140_000, 140_000]


def test_hostile_names_are_plain_text() -> None:
    document = document_of(hostile_profile())
    names = {frame["name"] for frame in document["shared"]["frames"]}
    assert "</script><script>alert(1)</script>" in names
    assert not any(re.search("[\x00-\x1f\u202a-\u202e\u2066-\u2069]", name) for name in names)


@pytest.mark.parametrize("profile", [Profile({}), draw("")])
def test_a_capture_without_events_has_no_profiles(profile: Profile) -> None:
    assert document_of(profile)["profiles"] == []


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert speedscope_profile(hostile_profile()) == speedscope_profile(hostile_profile())


def test_functions_of_python_are_around_the_operators_that_they_call(tmp_path: Path) -> None:
    spans = [("cpu_op", "aten::mm", 12, 3), ("python_function", "t.py(2): step", 12, 8)]
    events = [
        {"ph": "X", "cat": kind, "name": name, "pid": 5, "tid": 5, "ts": t, "dur": d} for kind, name, t, d in spans
    ]
    document = document_of(read(write(tmp_path, *events)))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    (part,) = document["profiles"]
    assert [(event["type"], names[event["frame"]], event["at"]) for event in part["events"]] == [
        ("O", "step (t.py:2)", 0),
        ("O", "aten::mm", 0),
        ("C", "aten::mm", 3000),
        ("C", "step (t.py:2)", 8000),
    ]
