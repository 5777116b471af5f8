"""Traces of torch.profiler recorded on a CPU and an H200, and written ones for what those do not hold."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from nightsight.analyze.facts import devices
from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read.kineto import read_kineto
from nightsight.results.categories import COMMUNICATION
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.tables import OF_COMPILER, OF_REPLAY
from tests.kineto import ON_GPU, Event, call, copy, kernel, refusal, write
from tests.recorded import DATA, Recorded

MINI = DATA / "mini_torch.json.gz"
# what autograd's own profiler wrote has no categories
RECORDED = (MINI, *sorted(path for path in (DATA / "kineto").glob("*.json.gz") if "events_" not in path.name))
GPU_TABLES = ("kernels", "memory_ops")
CATEGORIES = {
    "kernels": ("kernel",),
    "memory_ops": ("gpu_memcpy", "gpu_memset"),
    "api_calls": ("cuda_runtime", "cuda_driver"),
    "ranges": ("user_annotation",),
    "cpu_ops": ("cpu_op",),
}


def sizes(profile: Profile) -> dict[str, int]:
    return {name: len(table) for name, table in profile.tables.items()}


# -- recorded traces --------------------------------------------------------------------------------------------------


def test_all_tables_of_a_cuda_trace(recorded: Recorded) -> None:
    profile = recorded.profile("mini_torch")

    assert sizes(profile) == {
        "kernels": 63,
        "memory_ops": 15,
        "api_calls": 100,
        "ranges": 9,
        "cpu_ops": 315,
        "devices": 1,
        "diagnostics": 0,
        "unread": 0,
    }
    never = {"graph_launches", *OF_COMPILER, "marks", "overheads", "python_samples", *OF_REPLAY}
    optional = {"memory_usage", "python_functions", "syncs", "event_records", "collectives", "range_counters", "ranks"}
    assert set(profile.missing) == {*optional, *never}
    assert profile.findings == ()


def test_a_kernel_of_a_cuda_trace(recorded: Recorded) -> None:
    kernels = recorded.profile("mini_torch").tables["kernels"]

    first = kernels[kernels["correlation"] == 413].to_dict("records")[0]
    name = first.pop("name")

    assert name.startswith("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(")
    assert all(pd.isna(first.pop(column)) for column in ("graph_node", "green_context", "mangled_name"))
    assert first == {
        "start_ns": 4312717133801546,
        "end_ns": 4312717133803114,
        "process": 1310,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": 413,
        "ordinal": 0,
        "short_name": "vectorized_elementwise_kernel",
        "grid_x": 256,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": 128,
        "block_y": 1,
        "block_z": 1,
        "registers": 31,
        "static_shared_bytes": 0,
        "dynamic_shared_bytes": 0,
    }


def test_every_gpu_operation_was_started_by_one_call(recorded: Recorded) -> None:
    tables = recorded.profile("mini_torch").tables
    operations = pd.concat([tables[name][["process", "correlation"]] for name in GPU_TABLES])

    joined = operations.merge(tables["api_calls"], on=["process", "correlation"], validate="one_to_one")

    assert len(joined) == 63 + 15
    assert set(joined["name"]) == {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"}


def test_memory_operations_by_direction(recorded: Recorded) -> None:
    table = recorded.profile("mini_torch").tables["memory_ops"]

    rows = table[["operation", "source_kind", "target_kind", "bytes"]].itertuples(index=False, name=None)

    assert Counter(rows) == {
        ("Host-to-Device", "Pinned", "Device", 1048576): 3,
        ("Device-to-Host", "Device", "Pinned", 4): 3,
        ("Device-to-Device", "Device", "Device", 1048576): 3,
        ("memset", "", "Device", 4): 6,
    }


def test_backward_runs_on_another_thread_of_the_process(recorded: Recorded) -> None:
    tables = recorded.profile("mini_torch").tables

    assert set(tables["cpu_ops"]["tid"]) == {1310, 1335}
    assert set(tables["ranges"]["tid"]) == {1310}
    assert set(tables["ranges"]["name"]) == {"ProfilerStep", "forward", "backward"}
    assert (tables["ranges"]["name"] == "ProfilerStep").sum() == 3
    assert all((table["pid"] == 1310).all() for table in (tables["cpu_ops"], tables["ranges"], tables["api_calls"]))


def test_environment_of_a_cuda_trace(recorded: Recorded) -> None:
    environment = recorded.profile("mini_torch").environment

    assert (environment.collector, environment.schema_version) == ("torch.profiler", "1")
    assert (environment.gpu, environment.cuda, environment.driver) == ("NVIDIA H200", "13.0", "")
    assert environment.captured_utc == "2026-11-20 10:15:43"


def test_device_of_a_cuda_trace(recorded: Recorded) -> None:
    (device,) = recorded.profile("mini_torch").tables["devices"].to_dict("records")

    assert (device["device"], device["name"], device["compute_capability"]) == (0, "NVIDIA H200", "9.0")
    assert (device["multiprocessors"], device["memory_bytes"]) == (132, 150109880320)
    assert pd.isna(device["clock_hz"])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_recorded_time_is_exact(path: Path) -> None:
    tables = read_kineto(path).tables
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]

    for name, table in tables.items():
        spans = [
            (int(event["ts"] * 1000), int((event["ts"] + event["dur"]) * 1000))
            for category in CATEGORIES.get(name, ())
            for event in events
            if event.get("cat") == category
        ]
        if name in CATEGORIES:
            assert list(zip(table["start_ns"], table["end_ns"], strict=True)) == spans


def test_cpu_trace_says_why_it_has_no_gpu_tables() -> None:
    profile = read_kineto(DATA / "kineto" / "cpu.json.gz")

    assert sizes(profile) == {"ranges": 6, "cpu_ops": 108, "diagnostics": 0, "unread": 0}
    assert {profile.missing[name] for name in (*GPU_TABLES, "api_calls")} == {
        "the trace has no CUDA events: it was recorded on the CPU only"
    }
    assert profile.missing["devices"] == "the trace names no GPU"
    assert (profile.environment.gpu, profile.environment.cuda) == ("", "")


def test_gpu_that_was_not_recorded_is_not_an_idle_one() -> None:
    profile = read_kineto(DATA / "kineto" / "without_gpu_activity.json.gz")

    assert "cudaLaunchKernel" in set(profile.tables["api_calls"]["name"])
    assert all("ProfilerActivity.CUDA" in profile.missing[name] for name in GPU_TABLES)


def test_operations_of_a_cuda_graph_belong_to_its_launch() -> None:
    tables = read_kineto(DATA / "kineto" / "cuda_graph.json.gz").tables
    launches = tables["api_calls"].query("name == 'cudaGraphLaunch'")["correlation"]

    assert len(launches) == 3
    assert Counter(tables["kernels"]["correlation"]) == dict.fromkeys(launches, 3)
    assert Counter(tables["memory_ops"]["correlation"]) == dict.fromkeys(launches, 1)


def test_range_that_never_ended_is_open() -> None:
    ranges = read_kineto(DATA / "kineto" / "open_range.json.gz").tables["ranges"]

    assert dict(zip(ranges["name"], ranges["is_open"], strict=True)) == {"never closed": True, "forward": False}


# recorded, and sanitized
SANITIZED = {"exposed_rank0.json.gz", "exposed_rank1.json.gz"}
WITHOUT_PRIVATE = {
    MINI.name,
    "adam_loop.json.gz",
    "normalization.json.gz",
    "ops_1.13.1.json.gz",
    "ops_2.0.1.json.gz",
}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_nothing_private_is_taken(path: Path) -> None:
    profile = read_kineto(path)

    text = repr((profile.environment, profile.missing, profile.findings))

    # the others were made without anything private
    assert "private" in gzip.decompress(path.read_bytes()).decode() or path.name in WITHOUT_PRIVATE | SANITIZED
    assert "private" not in text
    assert "/tmp" not in text


def test_operators_of_the_backward_pass_name_the_thread_of_the_forward_pass(recorded: Recorded) -> None:
    operators = recorded.profile("mini_torch").tables["cpu_ops"]

    backward = operators[operators["forward_thread"].notna()]
    assert set(backward["tid"]) == {1335}
    assert set(backward["forward_thread"]) == {1310}
    assert set(backward["name"].str.contains("Backward|AccumulateGrad")) == {True}
    forward = operators[operators["forward_thread"].isna() & (operators["tid"] == 1310)]
    assert set(backward["sequence"]) <= {*forward["sequence"].dropna()}


# -- written traces ---------------------------------------------------------------------------------------------------


def test_cuda_trace_without_copies_was_looked_through(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, kernel(), call()))

    assert sizes(profile) == {
        "kernels": 1,
        "memory_ops": 0,
        "api_calls": 1,
        "ranges": 0,
        "cpu_ops": 0,
        "diagnostics": 0,
        "unread": 0,
    }


def test_calls_that_give_the_gpu_no_work_leave_its_tables_empty(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, call(name="cudaDeviceSynchronize")))

    assert [len(profile.tables[name]) for name in GPU_TABLES] == [0, 0]


def test_processes_of_a_merged_trace_cannot_be_distinguished(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, kernel(), call(), call(pid=46)))

    assert "2 processes" in error.message


def test_gpu_operations_alone_have_no_process(tmp_path: Path) -> None:
    (row,) = read_kineto(write(tmp_path, kernel())).tables["kernels"].to_dict("records")

    assert pd.isna(row["process"])
    assert (row["start_ns"], row["end_ns"], row["correlation"]) == (20500, 24500, 5)


def test_correlation_may_be_absent(tmp_path: Path) -> None:
    arguments = {"device": 0, "stream": 7}
    tables = read_kineto(write(tmp_path, kernel(args=arguments), call(args={}))).tables

    assert tables["kernels"]["correlation"].isna().all()
    assert tables["api_calls"]["correlation"].isna().all()


def operator(name: str = "aten::mm", **changes: object) -> Event:
    return call(cat="cpu_op", name=name, args={}) | changes


def test_arguments_of_an_operator_are_compact_json(tmp_path: Path) -> None:
    arguments = {
        "Input Dims": [[64, 256], [[2], [3, 4]], []],
        "Input type": ["c10::BFloat16", "TensorList", "Scalar"],
        "Concrete Inputs": ["", "", "1."],
        "Sequence number": 7,
        "Fwd thread id": 0,
    }
    first, second = (
        read_kineto(write(tmp_path, operator(args=arguments), operator())).tables["cpu_ops"].to_dict("records")
    )

    assert (first["shapes"], first["types"]) == ("[[64,256],[[2],[3,4]],[]]", '["c10::BFloat16","TensorList","Scalar"]')
    assert (first["inputs"], first["sequence"]) == ('["","","1."]', 7)
    assert pd.isna(first["forward_thread"])
    assert [second[name] for name in ("shapes", "types", "inputs", "module")] == [""] * 4
    assert pd.isna(second["sequence"])


def test_the_path_of_a_module_says_more_than_its_class(tmp_path: Path) -> None:
    modules = [
        call(cat="python_function", name="nn.Module: Linear_0", ts=10, dur=50, args={}),
        call(cat="user_annotation", name="nn.Module: layers.3", ts=20, dur=20, args={}),
        call(cat="cpu_op", name="nn.Module: layers.3.mlp", ts=25, dur=5, args={}),
        call(cat="user_annotation", name="mine", ts=26, dur=2, args={}),
    ]
    operators = [operator(ts=time, dur=1) for time in (5, 10, 20, 27, 31, 45, 60)]
    tables = read_kineto(write(tmp_path, *modules, *operators, operator(ts=27, tid=46))).tables

    named = ["", "Linear_0", "layers.3", "layers.3.mlp", "layers.3", "Linear_0", "", ""]
    assert tables["cpu_ops"]["module"].tolist() == named
    assert tables["ranges"]["name"].tolist() == ["mine"]
    assert tables["unread"].empty


def test_what_a_kernel_does_not_say_is_unknown_and_its_shape_is_zero(tmp_path: Path) -> None:
    (row,) = read_kineto(write(tmp_path, kernel(args={"device": 1, "stream": 7}))).tables["kernels"].to_dict("records")

    assert {row[name] for name in ("context", "grid_x", "block_z")} == {0}
    assert all(pd.isna(row[name]) for name in ("registers", "static_shared_bytes"))


@pytest.mark.parametrize(("node", "expected"), [(0, None), (9, 9)])
def test_graph_node_zero_is_no_graph(tmp_path: Path, node: int, expected: int | None) -> None:
    table = read_kineto(write(tmp_path, kernel(args={**ON_GPU, "graph node id": node}))).tables["kernels"]

    assert [None if pd.isna(value) else value for value in table["graph_node"]] == [expected]


def test_copy_between_devices_belongs_to_the_one_it_ran_on(tmp_path: Path) -> None:
    arguments = {"fromDevice": 3, "inDevice": 1, "toDevice": 2, "inContext": 6, "stream": 7, "bytes": 8}
    event = kernel(cat="gpu_memcpy", name="Memcpy PtoP (Device -> Device)", args=arguments)

    (row,) = read_kineto(write(tmp_path, event)).tables["memory_ops"].to_dict("records")

    assert (row["device"], row["context"], row["operation"]) == (1, 6, "Peer-to-Peer")


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("Memcpy DtoH (Device -> Pageable)", ("Device-to-Host", "Device", "Pageable")),
        ("Memcpy HtoA (Managed Static -> Array)", ("Host-to-Array", "Managed Static", "Array")),
        ("Memset (Managed)", ("memset", "", "Managed")),
        ("Memcpy <unknown> (Device -> Device)", ("Unknown", "", "")),
        ("", ("Unknown", "", "")),
    ],
)
def test_name_of_a_memory_operation_holds_its_kinds(tmp_path: Path, name: str, meaning: tuple[str, ...]) -> None:
    (row,) = read_kineto(write(tmp_path, copy(name))).tables["memory_ops"].to_dict("records")

    assert (row["operation"], row["source_kind"], row["target_kind"]) == meaning
    assert row["bytes"] == 64


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void (anonymous namespace)::softmax<float, (anonymous namespace)::Op>(int)", "softmax"),
        ("void at::f<4, at::g(int&)::{lambda()#2}::operator()() const::{lambda(float)#1}, a<b<c> > >(int)", "f"),
        ("(lambda)", "(lambda)"),
        ("", ""),
    ],
)
def test_short_name_of_a_kernel(tmp_path: Path, name: str, short: str) -> None:
    (row,) = read_kineto(write(tmp_path, kernel(name=name))).tables["kernels"].to_dict("records")

    assert (row["name"], row["short_name"]) == (name, short)


@pytest.mark.parametrize("capture", ["train", "gelu", "ddp2"])
def test_short_names_are_those_of_nsys(tmp_path: Path, recorded: Recorded, capture: str) -> None:
    kernels = recorded.profile(capture).tables["kernels"][["name", "short_name"]].drop_duplicates()
    events = [kernel(name=name) for name in kernels["name"]]

    ours = read_kineto(write(tmp_path, *events)).tables["kernels"]

    assert list(ours["short_name"]) == list(kernels["short_name"])


@pytest.mark.parametrize(
    ("used", "gpus"),
    [
        ((), "A, 2 × H"),
        ((0,), "A, 0 of 2 × H used"),
        ((1,), "0 of 1 × A used, 1 of 2 × H used"),
        ((0, 1, 2), "A, 2 × H"),
    ],
)
def test_gpus_are_counted_by_name_and_those_used_distinguished_from_those_present(
    tmp_path: Path, used: tuple[int, ...], gpus: str
) -> None:
    rows = [{"id": n, "name": "H" if n else "A", "computeMajor": 9, "computeMinor": 0} for n in range(3)]
    events = [kernel(args={**ON_GPU, "device": n}) for n in used]

    profile = read_kineto(write(tmp_path, call(), *events, deviceProperties=rows))

    assert profile.environment.gpu == gpus
    words = {n: "yes" if n in used else "no" if used else None for n in range(3)}
    assert dict(devices(Timeline(profile)).frame[["device", "used"]].itertuples(index=False)) == words


def described(*ids: int, **facts: object) -> list[dict[str, object]]:
    return [{"id": number, "name": "H", "computeMajor": 9, "computeMinor": 0, **facts} for number in ids]


def test_numbers_of_rocm_nodes_are_those_of_gpus_that_are_alike(tmp_path: Path, recorded: Recorded) -> None:
    # one GPU, and two of eight that are alike: events have the numbers 9, and 2 and 9
    one = read_kineto(write(tmp_path, call(), kernel(args={**ON_GPU, "device": 9}), deviceProperties=described(0)))
    assert (one.environment.gpu, one.table("devices")["device"].tolist()) == ("H", [9])
    events = [kernel(args={**ON_GPU, "device": number}) for number in (2, 9)]
    eight = read_kineto(write(tmp_path, call(), *events, deviceProperties=described(*range(8))))
    assert eight.environment.gpu == "2 of 8 × H used"
    advised = [
        [finding.title for finding in recorded.report(name).findings if finding.severity == "advice"]
        for name in ("12_rocm_node_ids.json", "12b_same_with_id_0.json")
    ]
    assert advised[0] == advised[1] != []


def test_numbers_of_gpus_that_differ_are_not_guessed(tmp_path: Path) -> None:
    rows = [*described(0), *described(1, name="A")]
    profile = read_kineto(write(tmp_path, call(), kernel(args={**ON_GPU, "device": 2}), deviceProperties=rows))
    (finding,) = profile.findings
    assert (finding.rule, finding.title) == ("gpu_numbers", "The GPU model is unknown")
    assert profile.table("devices")["device"].tolist() == [0, 1]


def test_a_gpu_without_a_name_is_called_so(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, call(), kernel(), deviceProperties=described(0, 1, name="")))
    assert profile.environment.gpu == "1 of 2 × GPU without a name used"


def test_events_that_are_all_there_twice_count_once(tmp_path: Path) -> None:
    events = [
        event
        for number in range(12)
        for event in (
            call(ts=10 + 9 * number, args={"correlation": number}),
            kernel(ts=20 + 9 * number, args={**ON_GPU, "correlation": number}),
        )
    ]
    once, twice = (read_kineto(write(tmp_path, *events * times)) for times in (1, 2))
    assert [finding.rule for finding in twice.findings] == ["repeated_events"]
    for name, table in once.tables.items():
        pd.testing.assert_frame_equal(table, twice.tables[name])


def test_communication_that_is_not_in_the_trace_is_reported(recorded: Recorded) -> None:
    findings = recorded.profile("32_no_nccl_kernels.json").findings
    (finding,) = (finding for finding in findings if finding.rule == "no_communication")
    assert "ranks were recorded, but no communication kernel" in finding.detail
    assert finding.detail.startswith("20 calls of collectives of up to 8 ranks")


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_collectives_of_the_cpu_need_no_kernel(tmp_path: Path, backend: str) -> None:
    fields = {"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float", "Group size": 8}
    collective = call(cat="cpu_op", name="record_param_comms", args=fields)
    info = {"backend": backend, "rank": 0, "world_size": 8}
    assert read_kineto(write(tmp_path, call(), kernel(), collective, distributedInfo=info)).findings == ()


def test_collectives_of_a_group_of_the_cpu_need_no_kernel_beside_one_of_gpus(tmp_path: Path) -> None:
    fields = {"Collective name": "broadcast", "Process Group Name": "7", "Group size": 8}
    collective = call(cat="cpu_op", name="record_param_comms", args=fields)
    groups = [{"pg_name": "0", "backend_config": "cuda:nccl"}, {"pg_name": "7", "backend_config": "cpu:gloo"}]
    info = {"backend": "nccl", "rank": 0, "world_size": 8, "pg_config": groups}
    assert read_kineto(write(tmp_path, call(), kernel(), collective, distributedInfo=info)).findings == ()
    info["pg_config"] = groups[:1]
    (finding,) = read_kineto(write(tmp_path, call(), kernel(), collective, distributedInfo=info)).findings
    assert finding.rule == "no_communication"


def test_kernels_of_all_libraries_that_communicate_are_known(recorded: Recorded) -> None:
    names = recorded.profile("27_collective_names.json").table("kernels")["name"].cat.categories
    others = [name for name in names if not communicates(name)]
    assert (len(names), others) == (17, ["sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"])
    split = recorded.report("27_collective_names.json").rows(TIME_SPLIT)
    (share,) = split.loc[split["category"] == COMMUNICATION, "share_pct"]
    assert share == pytest.approx(24.0, abs=0.1)


@pytest.mark.parametrize("base", [None, "1790857026000000000", 0, -1, 1.5, True, 2**70])
def test_start_is_not_guessed(tmp_path: Path, base: object) -> None:
    environment = read_kineto(write(tmp_path, kernel(), baseTimeNanoseconds=base)).environment

    assert environment.captured_utc == ""


@pytest.mark.parametrize("version", [None, "13.0", {}, 1.5])
def test_odd_cuda_version_is_left_out(tmp_path: Path, version: object) -> None:
    assert read_kineto(write(tmp_path, kernel(), cuda_runtime_version=version)).environment.cuda == ""


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "M", "name": "process_name", "pid": "Spans", "tid": "x", "args": {"name": "/private"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1},
        {"ph": "i", "cat": "cpu_op", "name": "marker", "pid": "Traces", "tid": "", "ts": "soon"},
        {},
    ],
)
def test_rows_that_are_no_events_are_skipped(tmp_path: Path, event: Event) -> None:
    profile = read_kineto(write(tmp_path, event, kernel(), event))

    assert sum(size for name, size in sizes(profile).items() if name != "unread") == 1
    assert profile.findings == ()
