"""One drawn timeline, five generations of exports: every result and every one of NVIDIA's tables is the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.analyze import analyze, doubts
from nightsight.errors import MissingTable
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Result
from nightsight.read import read
from nightsight.results.capture import NOT_SHOWN
from nightsight.stats import REPORTS, stats_table, write_stats
from nightsight.tables import DETAILS, conform, empty
from tests.build import GENERATIONS, build
from tests.reports import analyzed
from tests.timeline import PROCESS, draw

TRAIN = """
    nvtx    [step                       ][step                        ]
    nvtx    .[forward   ]................[load  ].....[forward ]
    nvtx:8  ...............[backward  ]
    nvtx:9  ...................................................[tail  ]
    mark    .x...y...x...y...x
    mark:8  ..........x......z
    cpu     ..LL.LLL..C............SSSS...CC.LL...C..........C.L..LL.
    cpu:8   .................L.LLL.L
    s7      ....aaaa..bb..c...ddd....ee.ff......HHHH.g....DDDD.MM.hh.i
    s9      ......................jjj..
"""
RANK = """
    nvtx  [step       ][step      ]
    mark  .x..........x
    cpu   .LL.L..SSSS...L.C...SSS
    s7    ...aa.bb...cc....aa.DDD
"""
GRAPH = """
    nvtx  [replay                ]
    cpu   GG..GG..L..L...SSSSSS
    s7    ..GGGGGGGG..aa.bbb..
"""
DEVICES_SAY_WHICH_GPU = ("2025", "2026")
# what a generation has no table for
LACKS: dict[str, set[str]] = {
    "2021": {"graph_launches", "diagnostics"},
    "2023": {"graph_launches", "diagnostics"},
    "2024": set(),
    "2025": set(),
    "2026": {"devices"},
}


def _changed(profile: Profile, table: str, change: Callable[[pd.DataFrame], dict[str, Any]]) -> Profile:
    """Replace columns of a table."""
    frame = profile.table(table)
    return replace(profile, tables={**profile.tables, table: conform(table, frame.assign(**change(frame)))})


def _with(profile: Profile, **tables: list[dict[str, Any]]) -> Profile:
    """Add tables."""
    return replace(profile, tables={**profile.tables, **{n: conform(n, pd.DataFrame(r)) for n, r in tables.items()}})


def _other_names(calls: pd.DataFrame) -> dict[str, Any]:
    """Let some calls be the driver's, and one a version with five digits."""
    names, rows = calls["name"].astype("str"), calls.index
    names = names.mask(rows == 1, "cuLaunchKernelEx").mask(rows == 3, "cudaLaunchKernelExC_v11060")
    return {"name": names, "layer": calls["layer"].astype("str").mask(rows == 1, "driver")}


def _other_ranges(ranges: pd.DataFrame) -> dict[str, Any]:
    """Let the loads be in a domain, the backward range close on thread 7, and the tail stay open."""
    names = ranges["name"].astype("str")
    crossing, is_open = names == "backward", names == "tail"
    last = ranges["end_ns"].max()
    return {
        "domain": names.map({"load": "io", "forward": "io"}).fillna(""),
        "style": ranges["style"].astype("str").mask(crossing, "StartEnd"),
        "end_thread": pd.Series(pd.NA, index=ranges.index, dtype="Int64").mask(crossing, PROCESS | 7),
        "is_open": is_open,
        "end_ns": ranges["end_ns"].mask(is_open, last),
    }


def _other_marks(marks: pd.DataFrame) -> dict[str, Any]:
    """Let some be in a domain, or of a category: of the same number in both domains, with a name or without."""
    names = marks["name"].astype("str")
    return {
        "domain": names.map({"x": "io"}).fillna("").mask(marks.index == 0, "marks only"),
        "category": names.map({"x": "reads", "y": "steps", "z": "7"}).mask(marks.index.isin([0, 3]), ""),
        "name": names.mask(marks.index == 4, ""),
    }


def _moved(profile: Profile, process: int) -> Profile:
    """Let all of it have happened in another process, under the same correlation ids."""
    tables = {}
    for name, frame in profile.tables.items():
        moved: dict[str, Any] = {"process": process} if "process" in frame else {}
        if "thread" in frame:
            moved |= {"thread": process | frame["tid"], "pid": process >> 24 & 0xFFFFFF}
        tables[name] = conform(name, frame.assign(**moved))
    return Profile(tables)


def _recorded(profile: Profile) -> Profile:
    """Add what every export says: the row of a range, and that its calls succeeded."""
    profile = _changed(profile, "api_calls", lambda _: {"status": 0})
    return _changed(profile, "ranges", lambda ranges: {"number": range(1, len(ranges) + 1)})


def _train() -> Profile:
    profile = _changed(_changed(draw(TRAIN), "api_calls", _other_names), "ranges", _other_ranges)
    profile = _changed(profile, "kernels", lambda k: {"process": k["process"].mask(k.index == 4)})
    profile = _changed(profile, "marks", _other_marks)
    span = {"start_ns": 1000, "end_ns": 3000, "process": PROCESS}
    on_thread = {**span, "thread": PROCESS | 7, "pid": 5, "tid": 7}
    on_stream = {**span, "device": 0, "context": 1, "stream": 7, "correlation": 1004, "kind": 3}
    gpu = {"multiprocessors": 132, "memory_bytes": 2**37, "l2_bytes": 2**26, "clock_hz": 1_980_000_000}
    return _with(
        _recorded(profile),
        overheads=[{**on_thread, "name": "CUPTI Buffer flush"}],
        syncs=[on_stream],
        os_calls=[{**on_thread, "name": "poll"}],
        threads=[{"thread": PROCESS | 7, "name": "main", "priority": 20}],
        diagnostics=[{"time_ns": 5, "severity": "warning", "text": "Not all CUDA events might have been collected."}],
        devices=[
            {"device": 0, "name": "NVIDIA H200", "compute_capability": "9.0", **gpu}
            | {"memory_bandwidth_bytes_per_s": 4_814_304_000_000}
        ],
    )


def _two_processes() -> Profile:
    """Two ranks that each call their GPU 0; the global ids of the second are negative."""
    other = (-3 << 56) | (6 << 24)
    ranks = [draw(RANK), _moved(draw(RANK.replace("aa", "eee")), other)]
    tables = {
        name: conform(name, pd.concat([rank.tables[name].astype(object) for rank in ranks])) for name in ranks[0].tables
    }
    return _recorded(_on_gpus(Profile(tables), lambda operations: (operations["process"] == other).astype("int64")))


def _on_gpus(profile: Profile, which: Callable[[pd.DataFrame], "pd.Series[Any]"]) -> Profile:
    for table in ("kernels", "memory_ops", "graph_launches"):
        profile = _changed(profile, table, lambda operations: {"device": which(operations)})
    return profile


def _graph() -> Profile:
    """A graph traced as a whole, and one traced node by node: kernels that share the launch's id."""
    nodes = _changed(
        draw(GRAPH), "kernels", lambda k: {"correlation": k["correlation"].max(), "graph_node": k.index + 1}
    )
    return _recorded(nodes)


PICTURES = {"train": _train, "two_processes": _two_processes, "graph": _graph}


Both = tuple[Profile, Profile]


@pytest.fixture(
    scope="module", params=[(name, generation) for name in PICTURES for generation in GENERATIONS], ids="-".join
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Read a picture's export of one generation; beside it what of the picture that generation can hold."""
    name, generation = request.param
    drawn = PICTURES[name]()
    profile = read(build(drawn, tmp_path_factory.mktemp(name) / "export.sqlite", generation=generation))
    return profile, _what_can_be_held(drawn, profile, generation)


def _what_can_be_held(drawn: Profile, profile: Profile, generation: str) -> Profile:
    """Take from the drawn profile what the generation has no tables for; what nobody drew did not happen."""
    (first, *others) = drawn.table("api_calls")["process"].unique()
    if not others:
        # an event that names no process is of the only one
        drawn = _changed(drawn, "kernels", lambda k: {"process": k["process"].fillna(first)})
    if generation not in DEVICES_SAY_WHICH_GPU:
        drawn = _on_gpus(drawn, lambda operations: operations.get("ordinal", operations["device"]))
    if "graph_node" not in profile.tables["kernels"]:
        drawn = replace(drawn, tables={**drawn.tables, "kernels": drawn.table("kernels").drop(columns="graph_node")})
    held = {name: frame for name, frame in drawn.tables.items() if name not in LACKS[generation]}
    assert {name for name, frame in held.items() if len(frame)} <= profile.tables.keys()
    absent = {name: empty(name) for name in profile.tables.keys() - held.keys()}
    return Profile({**absent, **{name: held[name] for name in held if name in profile.tables}}, profile.missing)


def _stats(profile: Profile, report: str) -> str:
    try:
        return write_stats(stats_table(profile, report), "csv")
    except MissingTable as error:
        return error.message


def _as_text(result: Result) -> str:
    table = "" if result.table is None else result.table.to_csv(index=False)
    return "\n".join((table, result.unavailable, *result.notes))


def test_every_analysis_gives_what_the_drawn_profile_gives(both: Both) -> None:
    profile, drawn = both
    assert profile.findings == ()
    results, expected = (analyze(Timeline(each)) for each in (profile, drawn))
    findings, expected_findings = (doubts(Timeline(each)) for each in (profile, drawn))
    for result, other in zip(results, expected, strict=True):
        if result.name == NOT_SHOWN.name:
            continue  # a picture is no file: it has no tables that nobody asks for
        assert _as_text(result) == _as_text(other), result.name
    assert findings == expected_findings


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", PICTURES)
def test_a_report_needs_no_details(name: str, generation: str, tmp_path: Path) -> None:
    path = build(PICTURES[name](), tmp_path / "export.sqlite", generation=generation)
    profile, lean = read(path), read(path, details=False)
    for table, frame in lean.tables.items():
        pd.testing.assert_frame_equal(frame, profile.tables[table].drop(columns=list(DETAILS.get(table, ()))))
    results = zip(analyze(Timeline(lean)), analyze(Timeline(profile)), strict=True)
    assert all(_as_text(result) == _as_text(other) for result, other in results)


def test_every_table_of_nvidia_is_what_the_drawn_profile_gives(both: Both) -> None:
    profile, drawn = both
    for report in REPORTS:
        assert _stats(profile, report) == _stats(drawn, report), report


@pytest.mark.parametrize("generation", GENERATIONS)
def test_rows_of_every_kind_survive(generation: str, tmp_path: Path) -> None:
    """That the two sides are equal says nothing if both have lost what is special about these pictures."""
    profile = read(build(_train(), tmp_path / "export.sqlite", generation=generation))
    ranges, kernels, calls = (profile.table(name) for name in ("ranges", "kernels", "api_calls"))
    assert ranges["name"].astype("str").tolist() == ["step", "step", "forward", "load", "forward", "backward", "tail"]
    assert ranges["domain"].astype("str").tolist() == ["", "", "io", "io", "io", "", ""]
    assert ranges["end_thread"].dropna().tolist() == [PROCESS | 7]
    assert ranges["is_open"].sum() == 1
    marks = profile.table("marks")
    assert marks["name"].astype("str").tolist() == ["x", "y", "x", "y", "", "x", "z"]
    assert marks["domain"].astype("str").tolist() == ["marks only", "", "io", "", "io", "io", ""]
    assert marks["category"].astype("str").tolist() == ["", "steps", "reads", "", "reads", "reads", "7"]
    assert (kernels["process"].unique().tolist(), kernels["correlation"].isna().sum()) == ([PROCESS], 1)
    assert set(calls["layer"].astype("str")) == {"runtime", "driver"}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_negative_ids_keep_their_process_and_thread(generation: str, tmp_path: Path) -> None:
    profile = read(build(_two_processes(), tmp_path / "export.sqlite", generation=generation))
    calls = profile.table("api_calls")
    assert calls.drop_duplicates("process")[["pid", "tid"]].to_numpy().tolist() == [[5, 7], [6, 7]]
    assert (calls["process"] < 0).any()
    assert set(profile.table("kernels")["process"]) == set(calls["process"])


@pytest.mark.parametrize("generation", ["2024", "2025", "2026"])
def test_the_capture_says_whether_nothing_happened_or_tracing_was_off(generation: str, tmp_path: Path) -> None:
    quiet = draw("cpu  S")
    profile = read(build(quiet, tmp_path / "on.sqlite", generation=generation))
    assert all(profile.table(name).empty for name in ("kernels", "ranges", "marks"))
    without_nvtx = replace(quiet, tables={n: f for n, f in quiet.tables.items() if n not in ("ranges", "marks")})
    profile = read(build(without_nvtx, tmp_path / "off.sqlite", generation=generation))
    assert profile.table("kernels").empty
    assert all("nsys profile --trace=nvtx" in profile.missing[name] for name in ("ranges", "marks"))


@pytest.mark.parametrize("generation", ["2021", "2023"])
def test_exports_before_2024_do_not_say_whether_ranges_were_traced(generation: str, tmp_path: Path) -> None:
    profile = read(build("cpu  S", tmp_path / "export.sqlite", generation=generation))
    assert profile.table("kernels").empty
    for name in ("ranges", "marks"):
        assert profile.missing[name].startswith("this export does not have them, and does not say")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_marks_without_any_range_are_read(generation: str, tmp_path: Path) -> None:
    profile = read(build("mark  x.x\ncpu  S", tmp_path / "export.sqlite", generation=generation))
    assert profile.table("marks")[["start_ns", "end_ns"]].to_numpy().tolist() == [[0, 0], [2000, 2000]]
    assert profile.table("ranges").empty


@pytest.mark.parametrize("generation", DEVICES_SAY_WHICH_GPU)
def test_ranks_that_both_call_their_gpu_0_have_a_gpu_each(generation: str, tmp_path: Path) -> None:
    profile = read(build(_two_processes(), tmp_path / "export.sqlite", generation=generation))
    assert analyzed(profile, "gpu_time").rows["device"].tolist() == [0, 1]
    assert set(stats_table(profile, "cuda_kern_exec_sum")["DevId"]) == {0}


def test_ordinals_that_are_swapped_are_swapped_back(tmp_path: Path) -> None:
    drawn = draw("cpu  L.L\ns7:0  ..a\ns7:1  ....bbb")
    swapped = _on_gpus(drawn, lambda operations: 1 - operations["device"])
    profile = read(build(swapped, tmp_path / "export.sqlite", generation="2025"))
    busy = analyzed(profile, "gpu_time").rows.set_index("device")["busy_ns"]
    assert busy.to_dict() == {0: 3000, 1: 1000}
