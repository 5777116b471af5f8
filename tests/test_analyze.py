"""The analyses on drawn timelines, and their laws on real captures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import ANALYSES, analyze
from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.api import cuda_api
from nightsight.analyze.copies import memory_operations
from nightsight.analyze.facts import devices, trust
from nightsight.analyze.gpu_time import gpu_time
from nightsight.analyze.kernels import kernel_time
from nightsight.analyze.launches.overhead import launch_overhead
from nightsight.analyze.operators import operators
from nightsight.analyze.ranges.owners import range_coverage, range_time
from nightsight.events.launches import GPU_TABLES, launching_calls
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline
from nightsight.events.window import GPU_WORK, RECORDED
from nightsight.model.report import Finding, Profile, Results
from nightsight.read import read
from nightsight.results import RESULTS
from nightsight.results.capture import DEVICES
from nightsight.results.entry import Column, Entry
from nightsight.tables import TABLES, conform, empty
from tests.properties import at_night
from tests.recorded import Recorded, of_laws, unpacked, whole
from tests.timeline import PROCESS
from tests.timeline import draw as draw_profile


def draw(picture: str) -> Timeline:
    return Timeline(draw_profile(picture))


CaptureFile = Callable[[str], Path]
# a longer definition is a list: of columns and of what they can hold
LONGEST_HELP = 400
CAPTURES = ("train", "ddp_exposed", "graph_node", "unified_memory", "crash", *at_night("ddp2", "gelu", "graph", "mlp"))
OF_TORCH = ("mini_torch", *at_night("cuda_graph"))


@pytest.fixture(params=CAPTURES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def capture(name: str, recorded: Recorded) -> Profile:
    return recorded.profile(name)


def holds(column: Column, values: "pd.Series[Any]") -> bool:
    """Whether values are of a column's type; missing ones are of every type."""
    present = values.dropna().infer_objects()
    if not len(present):
        return True
    if column.type == "text":
        return all(isinstance(value, str) for value in pd.unique(present))
    return pd.api.types.is_integer_dtype(present) or (column.type == "number" and pd.api.types.is_float_dtype(present))


def row(table: pd.DataFrame, **where: object) -> dict[str, Any]:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return dict(table.iloc[0])


def test_launch_phases_are_api_queue_and_execution() -> None:
    profile = draw(
        """
        cpu   LLL..LL....
        s7    ....aaa..bb
        """
    )
    table = launch_overhead(profile).frame
    a, b = row(table, name="a"), row(table, name="b")
    assert (a["api_total_ns"], a["queue_med_ns"], a["execution_total_ns"]) == (3000, 1000, 3000)
    assert (b["api_total_ns"], b["queue_med_ns"], b["execution_total_ns"]) == (2000, 2000, 2000)


def test_a_kernel_that_starts_before_its_call_returns_was_not_queued() -> None:
    a = row(launch_overhead(draw("cpu  LLLL\ns7  ..aaaa")).frame, name="a")
    assert (a["launches"], a["queued"]) == (1, 0)
    assert pd.isna(a["queue_med_ns"])


def test_one_graph_launch_is_one_launch_whatever_it_contains() -> None:
    profile = draw("cpu  GG......\ns7   ..aa.bb.").profile
    kernels = profile.table("kernels").assign(correlation=1000, graph_node=[1, 2])
    node_traced = Timeline(Profile({**profile.tables, "kernels": conform("kernels", kernels)}))
    graph = row(launch_overhead(node_traced).frame, name="[CUDA graph]")
    assert (graph["launches"], graph["api_total_ns"], graph["execution_total_ns"]) == (1, 2000, 5000)
    whole = row(launch_overhead(draw("cpu  GG......\ns7   ..GGGGG.")).frame, name="[CUDA graph]")
    assert whole == graph


def test_launches_without_a_recorded_call_are_kept_and_reported() -> None:
    profile = draw("cpu  LL......\ns7   ..aa.bb.")
    table = launch_overhead(profile)
    assert row(table.frame, name="b")["execution_total_ns"] == 2000
    assert table.notes == ("1 of 2 launches (50%) have no recorded API call; only their execution is counted.",)


def test_the_same_correlation_id_in_another_process_is_another_launch() -> None:
    profile = draw("cpu  LL......\ns7   ..aa....").profile
    other = profile.table("api_calls").assign(process=PROCESS * 2, start_ns=0, end_ns=9000)
    calls = pd.concat([profile.table("api_calls"), other])
    mixed = Timeline(Profile({**profile.tables, "api_calls": conform("api_calls", calls)}))
    assert row(launch_overhead(mixed).frame, name="a")["api_total_ns"] == 2000


@given(
    st.lists(st.integers(-1, 9), min_size=1, max_size=12),
    st.lists(st.integers(-1, 11), min_size=1, max_size=12),
    st.sampled_from([1, 1000]),
)
def test_the_call_of_an_operation_is_the_first_with_its_id(calls: list[int], launched: list[int], factor: int) -> None:
    """Of ids that follow one another, and of ids that lie far apart."""
    drawn = draw(f"cpu  {'L.' * len(calls)}\ns7   {'a.' * len(launched)}").profile
    tables = {"api_calls": calls, "kernels": launched}
    frames = {name: drawn.table(name) for name in tables}
    of = {name: [None if each < 0 else factor * each for each in ids] for name, ids in tables.items()}
    numbered = {
        name: conform(name, frame.assign(correlation=pd.array(of[name], "Int64"))) for name, frame in frames.items()
    }
    numbered_calls = launching_calls(Profile({**drawn.tables, **numbered}))[: len(launched)]
    assert numbered_calls.tolist() == [calls.index(each) if each in calls and each >= 0 else -1 for each in launched]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("later_ns", [0, 500])
def test_of_calls_that_share_an_id_the_outermost_launched(later_ns: int, order: list[int]) -> None:
    """A driver call has the id of the runtime call around it; both may begin in the same ns."""
    profile = draw("cpu  LL......\ns7   ..aa....").profile
    outer = profile.table("api_calls")
    inner = outer.assign(start_ns=outer["start_ns"] + later_ns, end_ns=outer["end_ns"] - 500, layer="driver")
    calls = pd.concat([outer, inner], ignore_index=True).iloc[order].reset_index(drop=True)
    both = Profile({**profile.tables, "api_calls": conform("api_calls", calls)})
    assert launching_calls(both).tolist() == [order.index(0)]


def test_busy_counts_overlap_once_and_idle_is_the_rest() -> None:
    profile = draw(
        """
        s7   aaaa....bb
        s8   ..HHHH....
        """
    )
    device = row(gpu_time(profile).frame, device=0)
    assert (device["window_ns"], device["busy_ns"], device["idle_ns"]) == (10_000, 8000, 2000)
    assert (device["kernel_ns"], device["copy_ns"]) == (6000, 4000)


def test_devices_are_never_merged() -> None:
    table = gpu_time(draw("s7    aaaa....\ns7:1  ....bbbb")).frame
    assert table[["device", "busy_ns", "idle_ns"]].to_numpy().tolist() == [[0, 4000, 4000], [1, 4000, 4000]]


def test_the_measured_range_is_the_window() -> None:
    profile = draw(
        """
        nvtx  [warmup][measure   ]
        s7    .aaa.....bbbb.......
        """
    )
    device = row(gpu_time(profile).frame, device=0)
    assert (device["window"], device["window_ns"], device["busy_ns"]) == ("measure", 12_000, 4000)
    assert (device["kernels"], device["kernel_ns"]) == (1, 4000)


def test_a_range_of_that_name_in_a_domain_of_its_own_is_not_the_window() -> None:
    profile = draw_profile("nvtx  [measure][measure     ]\ns7    .aaa.....bbbb.......")
    domains = pd.Series(["of a library", ""], dtype="category")
    ranges = conform("ranges", profile.table("ranges").assign(domain=domains))
    both = Timeline(Profile({**profile.tables, "ranges": ranges})).window
    assert (both.start_ns, both.name) == (9000, "measure")
    foreign = Profile({**profile.tables, "ranges": ranges.iloc[:1]})
    alone = Timeline(foreign).window
    assert (alone.start_ns, alone.end_ns, alone.name) == (1000, 13_000, "first to last GPU operation")


def test_an_operation_belongs_to_the_innermost_range_of_the_launching_thread() -> None:
    profile = draw(
        """
        nvtx  [step               ]
        nvtx  .[fwd  ].............
        cpu   ..L.......L..........
        s7    ......aa....bbb......
        """
    )
    table = range_time(profile).frame
    assert row(table, path="step / fwd")["kernel_ns"] == 2000
    assert row(table, path="step")["kernel_ns"] == 5000


def test_a_range_is_busy_once_where_operations_overlap_and_idle_between_them() -> None:
    timeline = draw(
        """
        nvtx  [step                ]
        nvtx  .[fwd  ][bwd    ].....
        cpu   ..L.L...L.............
        s7    ....aaaa.....bb.......
        s8    ......cccc............
        """
    )
    table = range_time(timeline).frame
    step, forward = row(table, path="step"), row(table, path="step / fwd")
    assert (forward["launches"], forward["gpu_busy_ns"], forward["gpu_idle_ns"]) == (2, 6000, 0)
    assert (step["launches"], step["gpu_busy_ns"], step["gpu_idle_ns"]) == (3, 8000, 3000)
    assert step["kernel_ns"] == 10_000


def test_backward_kernels_launched_by_another_thread_belong_to_the_range_open_then() -> None:
    profile = draw(
        """
        nvtx   [fwd  ][backward  ]
        cpu    ..L................
        cpu:8  .........L.........
        s7     .....a.......bbb...
        """
    )
    table = range_time(profile)
    assert row(table.frame, path="backward")["kernel_ns"] == 3000
    assert "1 on the range's own thread, 1 on another thread" in table.notes[0]
    coverage = range_coverage(profile).frame.iloc[0]
    ways = ("operations", "on_thread", "in_process", "outside", "without_call", "attributed", "coverage_pct")
    assert [coverage[way] for way in ways] == [2, 1, 1, 0, 0, 2, 100.0]


def test_a_range_of_another_process_owns_nothing() -> None:
    profile = draw("nvtx  [other     ]\ncpu   ..L.........\ns7    ....aa......").profile
    ranges = profile.table("ranges").assign(process=PROCESS * 2, thread=PROCESS * 2 + 7)
    table = range_time(Timeline(Profile({**profile.tables, "ranges": ranges}))).frame
    assert row(table, path="other")["kernels"] == 0


def test_copies_carry_direction_kind_size_and_rate() -> None:
    copy = row(memory_operations(draw("cpu  C.C.....\ns7   ..HH.DD.")).frame, operation="Host-to-Device")
    assert (copy["source_kind"], copy["target_kind"], copy["total_bytes"]) == ("Pageable", "Device", 1024)
    assert copy["rate_bytes_per_s"] == pytest.approx(1024 / 2e-6)


def test_api_names_lose_their_version_but_not_their_abi() -> None:
    names = pd.Index(["cudaMalloc_v3020", "cudaLaunchKernelExC_v11060", "cuGetProcAddress_v2", "cuMemAlloc"])
    assert api_names(names).tolist() == ["cudaMalloc", "cudaLaunchKernelExC", "cuGetProcAddress_v2", "cuMemAlloc"]


def test_own_time_of_an_operator_leaves_out_those_inside() -> None:
    drawn = draw_profile("nvtx  [outer       ]\nnvtx  ..[inner]").table("ranges")
    table = operators(Timeline(Profile({"cpu_ops": conform("cpu_ops", drawn)}))).frame
    outer, inner = row(table, name="outer"), row(table, name="inner")
    assert (outer["own_ns"], inner["own_ns"]) == (outer["total_ns"] - inner["total_ns"], inner["total_ns"])


# -- laws on real captures --------------------------------------------------------------------------------------------


def test_busy_and_idle_add_up_to_the_window(capture: Profile) -> None:
    table = gpu_time(Timeline(capture)).frame
    assert (table["busy_ns"] + table["idle_ns"] == table["window_ns"]).all()
    sums = table[["kernel_ns", "copy_ns", "set_ns", "graph_ns"]].sum(axis=1)
    assert (table["busy_ns"] <= sums).all()
    streams = Timeline(capture).operations.stream
    assert (sums <= table["window_ns"] * len(set(streams.tolist()))).all()


def test_joining_launches_adds_no_row_and_loses_none(capture: Profile) -> None:
    timeline, kernels = Timeline(capture), capture.table("kernels")
    operations = timeline.operations
    assert len(operations.call) == sum(len(capture.table(name)) for name in GPU_TABLES)
    graphs = kernels[kernels["graph_node"].notna()][["process", "correlation", "device"]].drop_duplicates()
    single = int(kernels["graph_node"].isna().sum())
    assert len(timeline.launches) == single + len(graphs) + len(capture.table("graph_launches"))


def test_every_operation_is_matched_with_a_call_of_its_process_and_id(capture: Profile) -> None:
    calls, call = capture.table("api_calls"), Timeline(capture).operations.call
    operations = pd.concat([capture.table(name)[["process", "correlation"]] for name in GPU_TABLES], ignore_index=True)
    has_call = call >= 0
    matched = calls.iloc[call[has_call]].reset_index(drop=True)
    for key in ("process", "correlation"):
        assert (operations[key][has_call].reset_index(drop=True) == matched[key]).all()
    unmatched = operations[~has_call].merge(calls, on=["process", "correlation"])
    assert unmatched.empty


def test_sums_by_name_are_the_sums_of_the_events(capture: Profile) -> None:
    for analysis, source in ((kernel_time, "kernels"), (cuda_api, "api_calls")):
        events = capture.table(source)
        assert (
            analysis(Timeline(whole(capture))).frame["total_ns"].sum() == (events["end_ns"] - events["start_ns"]).sum()
        )


def test_tables_are_about_the_window(capture: Profile) -> None:
    """What they add up to is what the figures of the window say, but for what is under way where it begins."""
    timeline = Timeline(capture)
    window, operations = timeline.window, timeline.operations
    gpus, kernels, calls = (one(timeline).frame for one in (gpu_time, kernel_time, cuda_api))
    crossing = ((operations.start < window.start_ns) & (operations.end > window.start_ns)).sum()
    assert abs(gpus["kernels"].sum() - kernels["instances"].sum()) <= crossing
    if window.name not in (GPU_WORK, RECORDED):
        start = capture.table("api_calls")["start_ns"]
        assert calls["calls"].sum() == ((start >= window.start_ns) & (start < window.end_ns)).sum()


@pytest.mark.parametrize("name", [*CAPTURES, *OF_TORCH])
def test_row_order_changes_nothing(name: str, capture: Profile, recorded: Recorded) -> None:
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in capture.tables.items()}
    results = analyze(Timeline(Profile(shuffled, capture.missing, capture.environment)))
    for expected, result in zip(recorded.report(name).results, results, strict=True):
        pd.testing.assert_frame_equal(result.rows, expected.rows)


@pytest.mark.parametrize("name", [*CAPTURES, *OF_TORCH])
def test_shifting_all_times_changes_no_result(name: str, capture: Profile, recorded: Recorded) -> None:
    shifted = {
        name: frame.assign(**{column: frame[column] + 10**9 for column in ("start_ns", "end_ns") if column in frame})
        for name, frame in capture.tables.items()
    }
    results = analyze(Timeline(Profile(shifted, capture.missing, capture.environment)))
    for expected, result in zip(recorded.report(name).results, results, strict=True):
        pd.testing.assert_frame_equal(result.rows, expected.rows)


def test_ranges_are_busy_no_longer_than_the_sum_of_their_operations(capture: Profile) -> None:
    table = range_time(Timeline(capture)).frame if "ranges" in capture.tables else pd.DataFrame()
    if "gpu_busy_ns" in table:
        sums = table[[name for name in ("kernel_ns", "copy_ns", "set_ns", "graph_ns") if name in table]].sum(axis=1)
        assert (table["gpu_busy_ns"] <= sums).all()
        assert (table["gpu_idle_ns"] >= 0).all()
        assert ((table["launches"] == 0) == (sums == 0)).all()


def test_all_kernels_of_the_training_capture_are_attributed(recorded: Recorded) -> None:
    timeline = Timeline(whole(recorded.profile("train")))
    table = range_time(timeline).frame
    assert table[table["level"] == 0]["kernels"].sum() == 1224
    backward = table[table["path"].str.endswith("/ backward")]
    assert backward["kernels"].tolist() == [32] * 20


# -- every analysis, whatever is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.entry.name)
def test_empty_tables_give_empty_results(analysis: Analysis) -> None:
    result = analysis.run(Timeline(Profile({name: empty(name) for name in TABLES})))
    assert result.table is not None
    assert result.rows.empty


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.entry.name)
def test_a_missing_table_gives_its_reason(analysis: Analysis) -> None:
    for need in analysis.entry.needs:
        tables = {name: empty(name) for name in TABLES if name != need}
        result = analysis.run(Timeline(Profile(tables, {need: "tracing was off"})))
        assert result.table is None
        assert result.unavailable == "tracing was off"


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.entry.name)
def test_without_any_of_the_tables_of_which_one_is_enough_the_reason_is_given(analysis: Analysis) -> None:
    enough = analysis.entry.one_of
    missing = dict.fromkeys(enough, "ncu records no timeline")
    for kept in enough:
        tables = {name: empty(name) for name in TABLES if name == kept or name not in enough}
        assert analysis.run(Timeline(Profile(tables, missing))).table is not None
    result = analysis.run(Timeline(Profile({name: empty(name) for name in TABLES if name not in enough}, missing)))
    assert result.unavailable == ("ncu records no timeline" if enough else "")


def test_every_entry_of_the_register_is_computed_by_one_analysis() -> None:
    assert [analysis.entry for analysis in ANALYSES] == list(RESULTS)
    assert len({entry.name for entry in RESULTS}) == len(RESULTS)


@pytest.mark.parametrize("entry", RESULTS, ids=lambda entry: entry.name)
def test_an_entry_of_the_register_is_sound(entry: Entry) -> None:
    columns = [column.name for column in entry.columns]
    assert len(set(columns)) == len(columns)
    assert set(entry.constant) <= set(columns)
    assert {*entry.needs, *entry.one_of} <= set(TABLES)
    assert all(column.meaning for column in entry.columns)
    assert entry.place in ("points", "method") or entry.group
    assert len(entry.help) <= LONGEST_HELP


def test_a_table_that_differs_from_its_entry_is_a_bug() -> None:
    def wrong(timeline: Timeline) -> Table:
        return Table(devices(timeline).frame.drop(columns="name"))

    timeline = Timeline(Profile({name: empty(name) for name in TABLES}))
    with pytest.raises(ValueError, match="devices has the columns"):
        Analysis(DEVICES, wrong).run(timeline)


@pytest.mark.parametrize("file", of_laws("*.sqlite.xz", "*.json.gz"))
def test_the_columns_of_every_report_are_of_the_types_that_the_register_says(file: Path, tmp_path: Path) -> None:
    are_of_their_types(analyze(Timeline(read(unpacked(file, tmp_path)))))


def test_a_large_capture_without_grids_gives_every_result(capture_file: CaptureFile) -> None:
    """Of a large capture, the columns of DETAILS are not read."""
    are_of_their_types(analyze(Timeline(read(capture_file("everything"), details=False))))


def are_of_their_types(results: Results) -> None:
    for result, entry in zip(results, RESULTS, strict=True):
        for column in entry.columns:
            if column.name in result.rows:
                assert holds(column, result.rows[column.name]), (entry.name, column.name)


def test_trust_says_when_no_gpu_work_was_captured() -> None:
    empty_capture = Timeline(Profile({"kernels": empty("kernels")}))
    assert [finding.rule for finding in trust(empty_capture)] == ["no_gpu_work"]
    assert trust(draw("cpu  L.....\ns7   ..aa..")) == ()


def test_trust_says_when_only_the_cpu_of_a_program_that_uses_the_gpu_was_recorded() -> None:
    calls = draw("cpu  L.L...\ns7   ..a..b").profile.tables["api_calls"]
    (finding,) = trust(Timeline(Profile({"api_calls": calls})))
    assert (finding.rule, finding.severity) == ("gpu_not_recorded", "warning")
    waits = calls.assign(name="cudaDeviceSynchronize").astype({"name": "category"})
    assert trust(Timeline(Profile({"api_calls": waits}))) == ()


def lossy(timeline: Timeline) -> Timeline:
    text = ["Not all CUDA events might have been collected.", "Profiling started due to cudaProfilerStart API."]
    diagnostics = conform("diagnostics", pd.DataFrame({"time_ns": 1, "severity": ["warning", "info"], "text": text}))
    return Timeline(Profile({**timeline.profile.tables, "diagnostics": diagnostics}))


def test_lost_events_are_only_reported_when_launches_lack_their_work() -> None:
    assert trust(lossy(draw("cpu  L.L...\ns7   ..a..b"))) == ()
    (finding,) = trust(lossy(draw("cpu  L.L...\ns7   ..a...")))
    assert finding.rule == "lost_events"
    assert finding.detail.startswith("No GPU work is recorded for 1 of 2 launch calls.")
    (inferred,) = trust(draw("cpu  L.L...\ns7   ..a..."))
    assert inferred == finding
    (nothing,) = trust(lossy(draw("cpu  ......")))
    assert (nothing.rule, nothing.title) == ("lost_events", "No GPU work was saved")


def test_a_program_whose_calls_give_the_gpu_no_work_has_lost_nothing() -> None:
    waiting = draw("cpu  LLL...\ns7   ..a...").profile.tables["api_calls"].assign(name="cudaDeviceSynchronize")
    tables = {"api_calls": waiting.astype({"name": "category"}), "kernels": empty("kernels")}
    (finding,) = trust(lossy(Timeline(Profile(tables))))
    assert finding.rule == "no_gpu_work"


def test_a_stopped_capture_range_is_not_taken_for_lost_events(recorded: Recorded) -> None:
    profile = recorded.profile("mlp")
    assert profile.table("diagnostics")["text"].astype(str).str.contains("Not all CUDA events might").any()
    assert trust(Timeline(profile)) == ()


@pytest.mark.parametrize("share", [2, 10])
def test_kernels_that_vanished_are_missed_whatever_the_profiler_says(recorded: Recorded, share: int) -> None:
    profile = recorded.profile("train")
    kernels = profile.table("kernels")
    thinned = {**profile.tables, "kernels": kernels[kernels.index % share != 0]}
    assert [finding.rule for finding in trust(Timeline(Profile(thinned)))] == ["lost_events"]
    gone = {**profile.tables, "kernels": empty("kernels"), "memory_ops": empty("memory_ops")}
    assert trust(Timeline(Profile(gone)))[0].title == "No GPU work was saved"


@pytest.mark.parametrize(
    ("emptied", "seen", "else_rule"),
    [
        (("kernels",), "No GPU work is recorded for 1,224 of 1,224 launch calls.", "lost_events"),
        (("kernels", "memory_ops"), "No kernel, copy or memset was found.", "lost_events"),
        (("kernels", "memory_ops", "api_calls"), "No kernel, copy or memset was found.", "no_gpu_work"),
    ],
)
def test_kernels_in_a_table_of_another_name_are_not_lost(
    recorded: Recorded, emptied: tuple[str, ...], seen: str, else_rule: str
) -> None:
    profile, newer = recorded.profile("train"), "CUPTI_ACTIVITY_KIND_KERNEL_V2"
    tables = {**profile.tables, **{name: empty(name) for name in emptied}}

    def found(kind: str, source: str, rows: int = 1_224) -> Finding:
        unread = conform("unread", pd.DataFrame({"kind": [kind], "events": [rows], "source": [source]}))
        return trust(Timeline(Profile({**tables, "unread": unread})))[0]

    assert found(newer, newer).rule == "unknown_tables"
    assert found(newer, newer).detail.startswith(
        f"{seen} The capture has events that are not read: {newer} (1,224 rows)"
    )
    assert found("spans of CUPTI overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD").rule == else_rule
    if emptied == ("kernels",):
        # too few to be the missing work
        assert found(newer, newer, 1_223).rule == "lost_events"


def test_a_table_that_nobody_knows_is_not_worth_a_word_while_nothing_is_missing(recorded: Recorded) -> None:
    profile, newer = recorded.profile("train"), "CUPTI_ACTIVITY_KIND_CLOCKS"
    unread = conform("unread", pd.DataFrame({"kind": [newer], "events": [5], "source": [newer]}))
    assert trust(Timeline(Profile({**profile.tables, "unread": unread}))) == ()


def test_without_api_calls_nothing_is_missed() -> None:
    tables = lossy(draw("cpu  L.L...\ns7   ..a...")).profile.tables
    assert trust(Timeline(Profile({name: table for name, table in tables.items() if name != "api_calls"}))) == ()
