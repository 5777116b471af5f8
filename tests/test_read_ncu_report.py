"""The reader of .ncu-rep files: real reports, damaged ones, and files made up block by block."""

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.read import read, recognize
from nightsight.read.ncu import dump as ncu_dump
from nightsight.read.ncu import report as ncu_reader
from nightsight.read.ncu.blocks import Launch, read_blocks
from nightsight.read.ncu.dump import SAMPLES
from nightsight.read.ncu.lines import instructions
from nightsight.read.ncu.model import METRIC_COLUMNS, base_unit, in_base_units, plain_message, range_path
from nightsight.read.ncu.report import read_ncu_report
from nightsight.tables import TABLES
from nightsight.workflows.analysis import build_report
from tests import ncu
from tests.properties import examples
from tests.recorded import Recorded

SESSION = ncu.field(
    3, ncu.field(1, 42) + ncu.field(8, ncu.field(1, "Nsight Compute Target") + ncu.field(2, "2025.3 (b)"))
)
SHAPE = b"".join(ncu.field(axis, 8) for axis in (1, 2, 3))
KERNEL = ncu.field(6, "k") + ncu.field(10, SHAPE) + ncu.field(11, SHAPE) + ncu.field(13, ncu.field(1, 0))
RESULT = ncu.block(ncu.field(2, 1) + ncu.field(4, ncu.field(1, "metric")), KERNEL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ncu")


@pytest.fixture(scope="module")
def measure(recorded: Recorded) -> Profile:
    """Five kernels of PyTorch and Triton inside NVTX ranges."""
    return recorded.profile("measure.ncu-rep")


@pytest.fixture(scope="module")
def lines(recorded: Recorded) -> Profile:
    """Four kernels with line information and source, in each of two processes."""
    return recorded.profile("lines.ncu-rep")


def value(profile: Profile, launch: int, metric: str, instance: str = "") -> float:
    metrics = profile.table("kernel_metrics")
    chosen = metrics[(metrics["launch"] == launch) & (metrics["metric"] == metric) & (metrics["instance"] == instance)]
    (single,) = chosen["value"]
    return float(single)


def test_tables_have_the_canonical_columns_and_types(measure: Profile, lines: Profile) -> None:
    for profile in (measure, lines):
        assert set(profile.tables) == {"profiled_launches", "kernel_metrics", "kernel_rules", "kernel_lines", "devices"}
        for name, frame in profile.tables.items():
            assert dict(frame.dtypes.astype(str)) == dict(TABLES[name])
        assert set(profile.missing) == TABLES.keys() - profile.tables.keys()


def test_environment_holds_facts_of_the_machine(measure: Profile) -> None:
    environment = measure.environment
    assert (environment.collector, environment.collector_version) == ("ncu", "2025.3.1.0")
    assert (environment.gpu, environment.cuda, environment.captured_utc) == (
        "NVIDIA H200",
        "13.0",
        "2026-11-20 09:22:41",
    )


def test_nothing_private_is_read(measure: Profile, lines: Profile) -> None:
    for profile in (measure, lines):
        frames = [ncu.comparable(frame).to_csv() for frame in profile.tables.values()]
        text = "".join([*frames, *vars(profile.environment).values(), *profile.missing.values()])
        for private in ("/home", "anyone", "/tmp", "/usr", "/opt/", "127.0.0.1", "python3"):
            assert private not in text


def test_launches_are_in_order_of_replay_over_all_processes(lines: Profile) -> None:
    launches = lines.table("profiled_launches")
    assert list(launches["launch"]) == list(range(8))
    assert list(launches["pid"]) == [2423] * 4 + [2596] * 4
    assert list(launches["short_name"]) == ["scaled", "scaled", "strided", "tensor"] * 2
    shape = launches.loc[3, ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]]
    assert list(shape) == [8, 1, 1, 32, 1, 1]
    assert launches["mangled_name"].str.startswith("_ZN7project").all()


def test_ranges_around_a_launch(measure: Profile) -> None:
    paths = ["measure / softmax", "measure / softmax", "measure / matmul"] + ["measure / elementwise"] * 2
    assert list(measure.table("profiled_launches")["range_path"]) == paths


def test_metrics_are_in_base_units(measure: Profile) -> None:
    metrics = measure.table("kernel_metrics")
    time = metrics[metrics["metric"] == "gpu__time_duration.sum"]
    assert set(time["unit"]) == {"ns"}
    assert value(measure, 0, "gpu__time_duration.sum") == 64576
    assert not metrics["metric"].str.contains(":").any()
    assert not metrics.duplicated(["launch", "metric", "instance"]).any()
    words = metrics[metrics["text"] != ""]
    assert words["value"].isna().all()
    assert (words[words["metric"] == "device__attribute_display_name"]["text"] == "NVIDIA H200").all()


def test_what_was_not_collected_has_no_row(measure: Profile) -> None:
    metrics = measure.table("kernel_metrics")
    assert "sass__inst_executed_register_spilling_mem_local" not in set(metrics["metric"])
    assert metrics[metrics["text"] == ""]["value"].notna().all()


def test_instances_with_names_add_up(measure: Profile) -> None:
    metrics = measure.table("kernel_metrics")
    opcodes = metrics[(metrics["metric"] == "sass__inst_executed_per_opcode") & (metrics["instance"] != "")]
    sums = opcodes.groupby("launch")["value"].sum()
    assert len(sums) == 5
    for launch, executed in sums.items():
        assert executed == value(measure, int(str(launch)), "sass__inst_executed_per_opcode")


def test_rules_are_plain_words(measure: Profile) -> None:
    rules = measure.table("kernel_rules")
    assert len(rules) == 43
    assert not rules["message"].str.contains("@").any()
    assert set(rules["kind"]) == {"info", "optimization"}
    rule = ncu.comparable(rules).query("launch == 0 and rule == 'HighPipeUtilization'").iloc[0]
    assert (rule["section"], rule["title"], rule["speedup_kind"]) == (
        "ComputeWorkloadAnalysis",
        "Low Utilization",
        "local",
    )
    assert rule["speedup_pct"] == pytest.approx(85.8715, abs=1e-3)
    assert rules["speedup_pct"].isna().eq(rules["speedup_kind"] == "").all()


def test_instructions_add_up_to_the_counters_of_the_kernel(measure: Profile, lines: Profile) -> None:
    for profile in (measure, lines):
        sums = profile.table("kernel_lines").groupby("launch")[["instructions", "samples"]].sum()
        for launch in profile.table("profiled_launches")["launch"]:
            assert sums.loc[launch, "instructions"] == value(profile, launch, "inst_executed")
            assert sums.loc[launch, "samples"] == value(profile, launch, "smsp__pcsamp_sample_count")


def test_the_hottest_line_has_its_source(lines: Profile) -> None:
    strided = lines.table("kernel_lines").query("launch == 2")
    assert strided["pc_bytes"].is_monotonic_increasing
    hottest = ncu.comparable(strided).sort_values("samples").iloc[-1]
    assert (hottest["file"], hottest["line"]) == ("lines.cu", 17)
    assert hottest["source"] == "tile[threadIdx.x] = in[(i * 17) % n];"
    assert (hottest["sass"], hottest["stall"]) == ("STS.64 [R3], R4", "long_scoreboard")
    assert 0 < hottest["stall_samples"] <= hottest["samples"]


def test_without_line_information_instructions_stay(measure: Profile) -> None:
    matmul = measure.table("kernel_lines").query("launch == 2")
    assert matmul["line"].isna().all()
    assert (matmul["file"] == "").all()
    assert (matmul["sass"] != "").all()


def test_without_counters_there_are_no_instructions() -> None:
    frame = instructions([{"code": [], "counters": {}}])
    assert frame.empty
    assert list(frame) == list(TABLES["kernel_lines"])


def test_instructions_without_samples_have_counts_alone() -> None:
    frame = instructions([{"code": [(16, "EXIT", "/a/k.cu", 3, " x")], "counters": {"inst_executed": [(16, 5)]}}])
    assert frame["instructions"].tolist() == [5]
    assert frame[["samples", "stall_samples"]].isna().all(axis=None)
    assert frame[["file", "line", "source", "stall"]].to_numpy().tolist() == [["k.cu", 3, "x", ""]]


def test_the_module_reads_the_same_in_this_process(capture_file: Callable[[str], Path], lines: Profile) -> None:
    read_here = ncu_dump.launches(importlib.import_module("ncu_report"), str(capture_file("lines.ncu-rep")))
    assert [launch["function"] for launch in read_here] == list(lines.table("profiled_launches")["short_name"])
    rows = sum(len(launch["code"]) for launch in read_here)
    assert rows == len(lines.table("kernel_lines"))


def test_code_of_ranges_and_graphs_is_not_asked_for() -> None:
    """The module crashes when it is, if kernels of several modules are among them."""

    class Whole:
        WorkloadType_KERNEL = 0

        def workload_type(self) -> int:
            return 1

    read_here = ncu_dump._instructions(Whole(), [ncu_dump.SAMPLES])
    assert read_here == {"counters": {}, "code": []}


@pytest.mark.parametrize(("name", "kinds"), [("graph", ["kernel"] * 2 + ["graph"] * 2), ("range", ["range"] * 3)])
def test_ranges_and_graphs_are_distinguished_from_kernels(recorded: Recorded, name: str, kinds: list[str]) -> None:
    launches = recorded.profile(f"{name}.ncu-rep").table("profiled_launches")
    assert list(launches["kind"]) == kinds
    whole = launches[launches["kind"] != "kernel"]
    assert set(whole["range_path"]) == {"pair"}
    assert not whole[["grid_x", "block_x"]].to_numpy().any()


def test_a_device_is_what_nsys_says_of_it(measure: Profile) -> None:
    device = measure.table("devices").iloc[0]
    assert (device["name"], device["compute_capability"], device["multiprocessors"]) == ("NVIDIA H200", "9.0", 132)
    assert (device["memory_bytes"], device["l2_bytes"]) == (150_109_880_320, 62_914_560)
    assert device["memory_bandwidth_bytes_per_s"] == 4_814_304_000_000
    assert device["clock_hz"] == 1_980_000_000


def test_a_missing_table_says_why(measure: Profile) -> None:
    assert "no timeline" in measure.why_missing("kernels")


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"NVR\0", b"NVR\0\2\0\0\0\x08\x07", b"NVR\0" + b"x" * 500, b"NVR\0" + bytes(500), ncu.report(version=8)],
)
def test_garbage_behind_the_first_bytes_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.ncu-rep"
    path.write_bytes(content)
    assert recognize(path) == "ncu-rep"
    with pytest.raises(CaptureError, match=r"some\.ncu-rep is damaged or truncated"):
        read(path)


def test_an_empty_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.ncu-rep"
    path.touch()
    for reader in (read, read_ncu_report):
        with pytest.raises(CaptureError, match=r"some\.ncu-rep"):
            reader(path)


@pytest.mark.parametrize("place", range(10, 14))
def test_a_flipped_bit_in_the_size_of_a_block_is_found(place: int, tmp_path: Path) -> None:
    content = bytearray(ncu.content("lines.ncu-rep"))
    content[place] ^= 4
    path = tmp_path / "flipped.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=r"flipped\.ncu-rep is damaged"):
        read(path)


LINES = ncu.content("lines.ncu-rep")


@examples(40)
@given(st.integers(0, len(LINES) - 1) | st.integers(0, 200))
def test_a_cut_report_is_refused_wherever_it_is_cut(folder: Path, size: int) -> None:
    path = folder / "cut.ncu-rep"
    path.write_bytes(LINES[:size])
    with pytest.raises(CaptureError, match=r"cut\.ncu-rep"):
        read_blocks(path)


@examples(40)
@given(st.integers(0, len(LINES) - 1), st.integers(0, 7))
def test_any_flipped_bit_is_refused_or_leaves_all_launches(folder: Path, place: int, bit: int) -> None:
    content = bytearray(LINES)
    content[place] ^= 1 << bit
    path = folder / "flip.ncu-rep"
    path.write_bytes(content)
    try:
        assert len(read_blocks(path).launches) == 8
    except CaptureError as error:
        assert "flip.ncu-rep" in error.message


def test_what_the_library_drops_in_silence_is_noticed(tmp_path: Path) -> None:
    content = bytearray(LINES)
    # the value of an instance gets another field number: without a required field the library drops the launch
    instance = ncu.field(1, ncu.field(5, 0)) + ncu.field(2, ncu.field(5, 256))
    place = content.index(ncu.field(3, instance)) + len(ncu.field(3, instance)) - 5
    assert content[place] == 2 << 3 | 2
    content[place] = 7 << 3 | 2
    path = tmp_path / "dropped.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=r"dropped\.ncu-rep is damaged: NVIDIA's ncu_report module"):
        read(path)


# what the module says of the launch in RESULT
DUMPED: dict[str, Any] = {
    "name": "k(int)",
    "function": "k",
    "mangled": "_Z1ki",
    "names": 1,
    "ranges": [("library", "step")],
    "metrics": [
        ("device__attribute_compute_capability_major", "", 9, ""),
        ("device__attribute_compute_capability_minor", "", 0, ""),
        ("device__attribute_total_memory", "", 80_000_000_000, "byte"),
        ("device__attribute_multiprocessor_count", "", 132, ""),
        ("device__attribute_display_name", "", "H100", ""),
        ("launch__device_id", "", 0, ""),
        ("gpu__time_duration.sum", "", 4.5, "usecond"),
        ("inst_executed", "FFMA", 5.0, "inst"),
    ],
    "rules": [
        {"section": "SOL", "rule": "Bottleneck", "name": "n", "title": "t", "message": "m", "type": 1}
        | {"speedup_type": 1, "speedup_pct": 12.5}
    ],
    "counters": {"inst_executed": [(16, 5), (32, 6)], SAMPLES: [(16, 3), (32, 0)]},
    "code": [(16, "FFMA", "/a/k.cu", 3, " x"), (32, "EXIT", "/a/k.cu", 4, "}")],
}
ODD: dict[type, list[Any]] = {
    str: [None, "\udcff"],
    int: [0, -1, (1 << 64) - 1],
    float: [math.nan, math.inf, 1e300, (1 << 64) - 1, None],
}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if not isinstance(value, dict | list | tuple):
        yield path, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    changed = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    changed[path[0]] = put(value[path[0]], path[1:], leaf)
    return changed if isinstance(value, dict) else list(changed.values())


CASES = [
    (place, other)
    for place, leaf in leaves(DUMPED)
    # a metric has a value of any kind
    for other in ([*ODD[float], "x"] if "metrics" in place and isinstance(leaf, int) else ODD[type(leaf)])
]


def read_dumped(launch: dict[str, Any], folder: Path) -> Profile:
    """Read a report of which the module says this."""
    path = folder / "odd.ncu-rep"
    path.write_bytes(ncu.report(ncu.block(SESSION), RESULT))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ncu_reader, "dump", lambda _: [launch])
        return read_ncu_report(path)


@examples(25)
@given(st.sampled_from(CASES))
def test_whatever_the_module_says_is_read_or_refused(folder: Path, case: tuple[tuple[Any, ...], Any]) -> None:
    try:
        devices = read_dumped(put(DUMPED, *case), folder).table("devices")
    except CaptureError as error:
        assert error.message.startswith("odd.ncu-rep is damaged: ")
        assert case[0][0] in ("name", "function", "names", "counters", "code", "metrics")
    else:
        assert len(devices) == 1


@pytest.mark.parametrize(
    ("place", "other"),
    [(("name",), None), (("names",), 0), (("code", 0, 0), 1 << 63), (("counters", SAMPLES, 0, 1), 1 << 63)],
)
def test_what_cannot_be_is_damage(tmp_path: Path, place: tuple[Any, ...], other: Any) -> None:
    (device,) = read_dumped(DUMPED, tmp_path).table("devices").to_dict("records")
    assert (device["name"], device["compute_capability"], device["multiprocessors"]) == ("H100", "9.0", 132)
    with pytest.raises(CaptureError, match=r"odd\.ncu-rep is damaged"):
        read_dumped(put(DUMPED, place, other), tmp_path)


def test_a_launch_that_the_module_cannot_read_is_damage(capture_file: Callable[[str], Path]) -> None:
    with pytest.raises(CaptureError, match=r"damaged_253\.ncu-rep is damaged: NVIDIA's ncu_report module"):
        read(capture_file("damaged_253.ncu-rep"))


RANGE = ncu.content("range.ncu-rep")


@examples(8)
@given(st.lists(st.tuples(st.integers(0, len(RANGE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_report_with_other_bytes_is_read_or_refused(folder: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(RANGE)
    for place, byte in changes:
        content[place] = byte
    path = folder / "bytes.ncu-rep"
    path.write_bytes(content)
    try:
        assert build_report(read(path), "bytes").results
    except CaptureError as error:
        assert "bytes.ncu-rep" in error.message


# -- framing ----------------------------------------------------------------------------------------------------------


def blocks_of(content: bytes, folder: Path) -> tuple[Launch, ...]:
    path = folder / "made.ncu-rep"
    path.write_bytes(content)
    return read_blocks(path).launches


def test_a_made_up_report_is_whole(tmp_path: Path) -> None:
    shape = (8, 8, 8)
    expected = Launch("kernel", 42, "k", grid=shape, block=shape, metrics=1)
    assert blocks_of(ncu.report(ncu.block(SESSION), RESULT), tmp_path) == (expected,)


def test_ranges_and_graphs_are_launches_too(tmp_path: Path) -> None:
    process = ncu.field(6, ncu.field(1, 5))
    results = ncu.block(ncu.field(7, 1) + ncu.field(9, 2) + process, b"", b"", b"")
    launches = blocks_of(ncu.report(ncu.block(SESSION), results), tmp_path)
    assert [(launch.kind, launch.pid) for launch in launches] == [("range", 5), ("graph", 5), ("graph", 5)]


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ((ncu.block(SESSION),), "no launch"),
        ((RESULT,), "is missing"),
        ((ncu.block(SESSION), RESULT, ncu.block(ncu.field(1, 1), b"")), "is missing"),
        ((ncu.block(SESSION), RESULT[:-1]), "ends inside"),
        ((ncu.block(SESSION), RESULT, b"\0\0"), "ends inside"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), KERNEL)), "name of a metric is missing"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), ncu.field(13, b""))), "has no name"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), b"\xff" * 12)), "does not end"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), b"\x0b")), "unknown type"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), b"\x32\x09k")), "beyond the end"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), ncu.field(6, b"\xff"))), "not UTF-8"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), ncu.field(6, 3))), "where a text should"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), ncu.field(10, 3))), "where a message should"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, "x"))), "where a number should"),
        ((ncu.block(SESSION), ncu.block(ncu.field(2, 1), ncu.field(22, 1 << 63))), "out of range"),
        ((ncu.block(SESSION), ncu.block(b"", KERNEL)), "differs from its header"),
    ],
)
def test_each_kind_of_damage_is_named(blocks: tuple[bytes, ...], reason: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=reason):
        blocks_of(ncu.report(*blocks), tmp_path)


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"gone\.ncu-rep cannot be read"):
        read_blocks(tmp_path / "gone.ncu-rep")


# -- words and units --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("", (1, "")),
        ("%", (1, "%")),
        ("Kbyte", (1e3, "byte")),
        ("Tbyte/s", (1e12, "byte/s")),
        ("Gbyte/second", (1e9, "byte/s")),
        ("byte/block", (1, "byte/block")),
        ("us", (1e3, "ns")),
        ("usecond", (1e3, "ns")),
        ("msecond", (1e6, "ns")),
        ("s", (1e9, "ns")),
        ("Ghz", (1e9, "hz")),
        ("MHz", (1e6, "hz")),
        ("cycle/nsecond", (1e9, "hz")),
        ("sector/us", (1e6, "sector/s")),
        ("sector/ns", (1e9, "sector/s")),
        ("inst/cycle", (1, "inst/cycle")),
        ("%/Kbyte", (1e3, "%/byte")),
        ("register/thread", (1, "register/thread")),
        ("Quux", (1, "Quux")),
    ],
)
def test_units_become_base_units(unit: str, expected: tuple[float, str]) -> None:
    assert base_unit(unit) == expected
    assert base_unit(expected[1]) == (1, expected[1])


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_ratios_of_nothing_were_not_collected(value: float) -> None:
    rows = [(0, "x__y.ratio", "", value, "%", ""), (0, "x__z.ratio", "", 2.0, "Kbyte", "")]
    assert in_base_units(pd.DataFrame(rows, columns=METRIC_COLUMNS))["value"].tolist() == [2000]


def test_messages_lose_their_markup_and_folders() -> None:
    markup = "See @section:Stats:the Statistics@ and @url:the guide:https://docs.nvidia.com/a#b@ for @sass:12:this@."
    assert plain_message(markup) == "See the Statistics and the guide (https://docs.nvidia.com/a#b) for this."
    assert plain_message("@source:/home/me/k.cu:3:k.cu, line 4@ of /home/me/k.cu") == "k.cu, line 4 of k.cu"
    assert plain_message("L1/TEX and/or 3/4 of C:\\Users\\me\\k.cu") == "L1/TEX and/or 3/4 of k.cu"


def test_range_paths_name_domains_but_the_default_one() -> None:
    ranges = [("<default domain>", "step"), ("cuDNN", "conv"), ("", "x")]
    assert range_path(ranges) == "step / cuDNN:conv / x"
