"""Traces of other accelerators, and kinds of events that not every trace has: what is there is read, what is not, said.

The shapes are those that Kineto writes on ROCm and MTIA, with its range profiler, and with PyTorch's memory profiler.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze.memory import range_counters
from nightsight.analyze.ranges.owners import owners_of
from nightsight.events.names import call_kinds
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Report
from nightsight.read.kineto import read_kineto
from nightsight.render import FORMATS, Source
from nightsight.workflows.analysis import build_report
from tests.kineto import Event, call, copy, kernel, refusal, write
from tests.recorded import DATA

# on ROCm, GPU events say neither grid nor size, and calls say sizes as text
ROCM_COPY = {"device": 2, "stream": 3, "correlation": 5, "kind": "CopyHostToDevice"}
COPY_NAME = "Memcpy HtoD (Host -> Device)"


def rocm_copy(**changes: Any) -> Event:
    return kernel(cat="gpu_memcpy", name=COPY_NAME, pid=2, tid=3, args=ROCM_COPY) | changes


def hip_copy(**arguments: object) -> Event:
    fields = {"cid": 63, "correlation": 5, "src": "0x1", "dst": "0x2", "kind": "1", **arguments}
    return call(name="hipMemcpyWithStream", args=fields)


def memory(time: float, size: int, allocated: int, **changes: object) -> Event:
    fields = {"Total Reserved": 4096, "Total Allocated": allocated, "Bytes": size, "Device Id": 0, "Device Type": 1}
    instant = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 44, "tid": 45, "ts": time}
    return {**instant, "args": {**fields, "Addr": 7, **changes}}


def made(profile: Profile) -> Report:
    """Make every form of the report: what is not known must not stop any."""
    report = build_report(profile, "trace")
    for form in FORMATS.values():
        form.render(Source(report, profile))
    return report


def row(report: Report, result: str) -> Mapping[str, Any]:
    (fields,) = report.result(result).rows.to_dict("records")
    return {str(name): value for name, value in fields.items()}


# -- ROCm -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [{"size": "2560"}, {"bytes": "2560"}, {"size": 2560}])
def test_the_size_of_a_rocm_copy_is_in_the_call_that_launched_it(tmp_path: Path, size: Mapping[str, object]) -> None:
    profile = read_kineto(write(tmp_path, rocm_copy(), hip_copy(**size)))

    assert list(profile.tables["memory_ops"]["bytes"]) == [2560]
    assert row(made(profile), "memory_operations")["total_bytes"] == 2560
    assert profile.findings == ()


@pytest.mark.parametrize("size", [{}, {"size": "0x9"}, {"size": "2560", "correlation": [5]}, {"size": "9" * 30}])
def test_a_copy_whose_size_nobody_says_is_of_unknown_size_and_not_of_zero(
    tmp_path: Path, size: Mapping[str, object]
) -> None:
    profile = read_kineto(write(tmp_path, rocm_copy(), hip_copy(**size)))
    report = made(profile)

    assert profile.tables["memory_ops"]["bytes"].isna().all()
    fields = row(report, "memory_operations")
    assert fields["count"] == 1
    assert all(pd.isna(fields[name]) for name in ("total_bytes", "avg_bytes", "rate_bytes_per_s"))
    assert pd.isna(row(report, "gpu_time")["copied_bytes"])
    assert report.result("copy_sizes").rows.empty
    (finding,) = [finding for finding in report.findings if finding.rule == "unknown_sizes"]
    assert finding.title == "The size of 1 of 1 copies and memsets is not in the trace"


def test_one_unknown_size_makes_the_sum_unknown_and_leaves_the_classes_of_the_others(tmp_path: Path) -> None:
    sized = rocm_copy(ts=30.0, args={**ROCM_COPY, "correlation": 6, "bytes": 64})
    report = made(read_kineto(write(tmp_path, rocm_copy(), sized, hip_copy())))

    assert pd.isna(row(report, "memory_operations")["total_bytes"])
    assert row(report, "copy_sizes")["total_bytes"] == 64
    assert report.result("copy_sizes").notes == ("Copies whose size is not known: 1. They are in no bin.",)


def test_a_gpu_event_without_arguments_ran_where_its_pid_and_tid_say(tmp_path: Path) -> None:
    (row,) = read_kineto(write(tmp_path, kernel(pid=3, tid=11, args={}))).tables["kernels"].to_dict("records")

    assert (row["device"], row["stream"]) == (3, 11)


def test_hip_calls_that_give_work_tell_a_gpu_that_was_not_recorded(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, call(name="hipExtModuleLaunchKernel")))

    assert "ProfilerActivity.CUDA" in profile.missing["kernels"]


def test_rocm_calls_are_launches_copies_and_waits(tmp_path: Path) -> None:
    calls = ["hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyWithStream", "hipMemsetAsync"]
    calls += ["hipStreamSynchronize", "hipMalloc", "hipModuleLoadData", "hipEventRecord", "hipGetDevice"]
    kinds = call_kinds(pd.Index(calls))

    words = ["launch", "launch", "copy", "memset", "wait", "allocation", "other", "event", "other"]
    assert kinds.tolist() == words
    events = [call(name="hipLaunchKernel"), kernel(), call(name="hipDeviceSynchronize", ts=15.0, dur=20.0, args={})]
    report = made(read_kineto(write(tmp_path, *events)))
    assert row(report, "cuda_gpu_kern_sum")["instances"] == 1
    assert row(report, "launch_overhead")["launches"] == 1
    assert row(report, "cuda_api_sync")["name"] == "hipDeviceSynchronize"


# -- Intel's GPUs, MTIA, Gaudi and others -----------------------------------------------------------------------------

# as PTI has them: contexts and queues are addresses, streams are given by tid
ON_XPU = {
    "appended": 1,
    "submitted": 2,
    "device": 0,
    "context": "0x000000000a1b2c30",
    "sycl queue": 3,
    "l0 queue": "0x0000000001234560",
    "correlation": 5,
}


def on_xpu(**changes: Any) -> Event:
    return kernel(pid=0, tid=3, args=ON_XPU) | changes


def test_a_trace_of_an_xpu_has_kernels_copies_and_calls(tmp_path: Path) -> None:
    copied = on_xpu(
        cat="gpu_memcpy", name="Memcpy M2D (MEMORY -> DEVICE)", args={**ON_XPU, "bytes": 64, "correlation": 6}
    )
    filled = on_xpu(cat="gpu_memset", name="Memset (0 -> DEVICE)", args={**ON_XPU, "bytes": 32, "correlation": 7})
    names = ("urEnqueueKernelLaunch", "urEnqueueUSMMemcpy", "urEnqueueUSMFill")
    calls = [
        call(cat="xpu_runtime", name=name, ts=10 + number, args={"correlation": 5 + number})
        for number, name in enumerate(names)
    ]
    driver = call(cat="xpu_driver", name="zeCommandListAppendLaunchKernel", args={"correlation": 5}, ts=10.1, dur=0.2)
    profile = read_kineto(write(tmp_path, on_xpu(), copied, filled, *calls, driver))

    assert profile.findings == ()
    (fields,) = profile.tables["kernels"].to_dict("records")
    assert (fields["device"], fields["stream"], fields["context"], fields["correlation"]) == (0, 3, 1, 5)
    operations = profile.tables["memory_ops"][["operation", "source_kind", "target_kind", "bytes"]]
    assert operations.to_numpy().tolist() == [
        ["Host-to-Device", "Pageable", "Device", 64],
        ["memset", "", "Device", 32],
    ]
    assert profile.tables["api_calls"]["layer"].tolist() == ["runtime"] * 3 + ["driver"]
    assert row(made(profile), "launch_overhead")["launches"] == 1


@pytest.mark.parametrize("category", ["mtia_runtime", "privateuse1_runtime", "hpu_op", "runtime", "privateuse1_driver"])
def test_calls_of_other_makers_are_calls(tmp_path: Path, category: str) -> None:
    profile = read_kineto(write(tmp_path, kernel(), call(cat=category, name="Launch")))

    (fields,) = profile.tables["api_calls"].to_dict("records")
    assert (fields["name"], fields["layer"]) == ("Launch", "driver" if "driver" in category else "runtime")
    assert profile.tables["unread"].empty
    assert row(made(profile), "cuda_gpu_kern_sum")["instances"] == 1


def test_operations_of_an_mtia_accelerator_are_kernels(tmp_path: Path) -> None:
    operation = kernel(cat="mtia_ccp_events", name="fc_kernel", pid=2, tid=9, args={"correlation": 5})
    profile = read_kineto(write(tmp_path, operation, call(cat="mtia_runtime", name="launch")))

    (row,) = profile.tables["kernels"].to_dict("records")
    assert (row["name"], row["device"], row["stream"]) == ("fc_kernel", 2, 9)
    assert Timeline(profile).operations.call.tolist() == [0]


# -- synchronizations -------------------------------------------------------------------------------------------------


def sync(name: str, stream: int, **arguments: object) -> Event:
    fields = {"cuda_sync_kind": name, "stream": stream, "correlation": 9, "device": 0, "context": 1, **arguments}
    return kernel(cat="cuda_sync", name=name, tid=stream, args=fields)


def test_waits_and_the_records_that_they_wait_for_are_read(tmp_path: Path) -> None:
    waited = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 6, "wait_on_cuda_event_id": 2}
    unknown = {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1, "wait_on_cuda_event_id": 3}
    events = [
        sync("Stream Wait Event", 13, **waited),
        sync("Event Sync", -1, **unknown),
        sync("Stream Sync", 7),
        sync("Context Sync", -1),
        sync("Stream Wait Event", 17, **waited),
    ]
    tables = read_kineto(write(tmp_path, kernel(), call(), *events)).tables

    assert tables["syncs"]["kind"].tolist() == [2, 1, 3, 4, 2]
    assert tables["syncs"]["stream"].tolist() == [13, -1, 7, -1, 17]
    assert tables["syncs"]["event"].fillna(-1).tolist() == [2, 3, -1, -1, 2]
    assert set(tables["syncs"]["process"]) == {44}
    (record,) = tables["event_records"].to_dict("records")
    assert record == {"process": 44, "stream": 7, "correlation": 6, "event": 2, "record": 6}
    assert tables["unread"].empty


def test_damaged_waits_are_reported_once(tmp_path: Path) -> None:
    damaged = sync("Stream Sync", 7) | {"dur": -1}
    profile = read_kineto(write(tmp_path, kernel(), call(), damaged, sync("Stream Sync", 7, wait_on_stream="x")))

    assert [finding.title for finding in profile.findings] == [
        "1 of 2 cuda_sync events were left out",
        "Some fields of the trace could not be read",
    ]
    assert "'wait_on_stream' (1 x)" in profile.findings[1].detail


# -- collectives ------------------------------------------------------------------------------------------------------

REDUCED = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
    "Rank": 1,
}


def test_collectives_have_sizes_ranks_and_the_time_of_their_kernels(tmp_path: Path) -> None:
    operator = {"cat": "cpu_op", "name": "record_param_comms", "dur": 5.0}
    events = [
        call(**operator, ts=9.0, args=REDUCED),
        call(),
        kernel(name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        call(**operator, ts=50.0, args={"Collective name": "wait"}),
        call(**operator, ts=60.0, args={**REDUCED, "dtype": "unheard of", "Rank": "x"}),
        call(**operator, ts=70.0, args={}),
    ]
    profile = read_kineto(write(tmp_path, *events))

    first, second = profile.tables["collectives"].to_dict("records")
    assert (first["name"], first["type"], first["bytes"], first["rank"]) == ("allreduce", "BFloat16", 2000, 1)
    assert (first["group"], first["group_size"], first["ranks"]) == ("0", 2, "[0, 1]")
    assert pd.isna(second["bytes"])
    assert pd.isna(second["rank"])
    rows = made(profile).result("collectives").rows
    # the second launched nothing itself
    assert rows["total_ns"].fillna(-1).tolist() == [4000, -1]
    assert rows["message_bytes"].fillna(-1).tolist() == [2000, -1]


def test_sends_and_receives_tell_both_ranks(tmp_path: Path) -> None:
    # torch gives the number of the other one as the rank of a send or receive
    pair = {**REDUCED, "Group size": 3, "Process Group Name": "5", "Process Group Ranks": "[1, 4, 6]"}
    operator = {"cat": "cpu_op", "name": "record_param_comms", "dur": 5.0}
    events = [
        call(**operator, ts=9.0, args={**pair, "Collective name": "send", "Rank": 2, "Dst Rank": 6}),
        call(**operator, ts=20.0, args={**pair, "Collective name": "recv", "Rank": 0, "Src Rank": 1}),
        call(**operator, ts=30.0, args={**pair, "Process Group Ranks": "[]", "Collective name": "recv", "Rank": 0}),
        call(),
        kernel(),
    ]
    path = write(tmp_path, *events)
    of_world, of_job = {"rank": 4, "world_size": 8}, {"rank": 2, "world_size": 3}
    for info, places in ((of_world, [1, 1, -1]), (of_job, [2, 2, 2]), ({}, [-1] * 3)):
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "distributedInfo": info}))
        table = read_kineto(path).table("collectives")
        assert table["peer"].tolist() == [2, 0, 0]
        assert table["rank"].fillna(-1).tolist() == places
        assert table["bytes"].tolist() == [2000, 0, 0]
        assert table["received_bytes"].tolist() == [0, 2000, 2000]


def test_a_trace_without_collectives_says_so(tmp_path: Path) -> None:
    assert "no collective" in read_kineto(write(tmp_path, kernel())).missing["collectives"]


# -- ranges on the GPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kineto/adam_loop.json.gz", "mini_torch.json.gz"])
def test_ranges_on_the_gpu_are_those_that_kineto_projects(name: str) -> None:
    path = DATA / name
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    projected: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("cat") == "gpu_user_annotation":
            label = event["name"].partition("#")[0] if event["name"].startswith("ProfilerStep") else event["name"]
            projected.setdefault(label, []).append((event["ts"], event["ts"] + event["dur"]))
    timeline = Timeline(read_kineto(path))
    operations = timeline.operations
    owner, _ = owners_of(timeline, np.arange(len(timeline.profile.table("api_calls"))))
    ranges = nested_ranges(timeline.profile)
    own, threads = np.append(owner, -1)[operations.call], timeline.profile.table("api_calls")["thread"].to_numpy()
    # Kineto counts for the innermost range only, and knows nothing of work that autograd launches on its own thread
    is_own = (own >= 0) & (ranges["thread"].to_numpy()[own] == threads[operations.call])
    work = pd.DataFrame({"range": own, "start": operations.start, "end": operations.end})[is_own]
    extent = work.groupby("range").agg(start=("start", "min"), end=("end", "max"))
    extent = extent.assign(name=ranges["name"].astype("str").to_numpy()[extent.index])

    assert len(projected) >= 2
    for label, spans in projected.items():
        ours = sorted(extent[extent["name"] == label][["start", "end"]].itertuples(index=False, name=None))
        theirs = [(start * 1000, end * 1000) for start, end in sorted(spans)]
        # Kineto widens them by a nanosecond
        assert np.abs(np.array(ours) - np.array(theirs)).max() < 2.5


# -- facts of devices, processes --------------------------------------------------------------------------------------


def test_a_device_that_does_not_say_its_capability_is_a_device(tmp_path: Path) -> None:
    mtia = [{"id": 0, "name": "MTIA", "totalGlobalMem": 64}, {"id": 1}]
    profile = read_kineto(write(tmp_path, kernel(), deviceProperties=mtia))

    rows = profile.tables["devices"].to_dict("records")
    assert [(one["device"], one["name"], one["compute_capability"]) for one in rows] == [(0, "MTIA", ""), (1, "", "")]
    assert (rows[0]["memory_bytes"], pd.isna(rows[0]["multiprocessors"])) == (64, True)
    assert profile.findings == ()


def test_an_annotation_of_another_process_does_not_hide_whose_the_gpu_work_is(tmp_path: Path) -> None:
    other = call(cat="user_annotation", name="ProfilerStep#1", pid=99, tid=99)
    tables = read_kineto(write(tmp_path, other, call(), kernel())).tables

    assert set(tables["ranges"]["process"]) == {99}
    assert list(tables["kernels"]["process"]) == [44]


def test_gpu_work_is_of_the_process_whose_call_has_its_correlation_id(tmp_path: Path) -> None:
    calls = [call(pid=pid, args={"correlation": number}) for pid, number in ((44, 5), (46, 6))]
    kernels = [kernel(args={"device": 0, "stream": 7, "correlation": number}) for number in (6, 5, 7)]
    column = read_kineto(write(tmp_path, *calls, *kernels)).tables["kernels"]["process"]

    assert [None if pd.isna(process) else process for process in column] == [46, 44, None]


def test_gpu_work_that_two_processes_may_have_launched_is_refused(tmp_path: Path) -> None:
    assert "2 processes" in refusal(write(tmp_path, kernel(), call(), call(pid=46))).message


# -- memory -----------------------------------------------------------------------------------------------------------


def test_memory_events_are_the_memory_usage_counted_from_what_was_there_before(tmp_path: Path) -> None:
    events = [memory(10, 512, 1512), memory(20, -1000, 512), memory(30, 256, 768), memory(40, -256, 512)]
    profile = read_kineto(write(tmp_path, kernel(), call(), *events))
    report = made(profile)

    fields = row(report, "memory_usage")
    assert (fields["peak_bytes"], fields["end_bytes"]) == (1512, 512)
    assert (fields["allocations"], fields["frees"], fields["kind"]) == (2, 2, "Device")
    assert report.result("memory_over_time").rows["bytes"].tolist() == [1512, 512, 768, 512]
    (note,) = report.result("memory_usage").notes
    assert note == "PyTorch had reserved at most 4.096 kB of device 0; tensors get their memory from that."


def test_instants_of_the_first_exporters_have_no_category(tmp_path: Path) -> None:
    event = {name: value for name, value in memory(10, 512, 512).items() if name != "cat"}

    assert len(read_kineto(write(tmp_path, kernel(), event)).tables["memory_usage"]) == 1


def test_memory_of_the_cpu_is_distinguished_from_that_of_a_gpu(tmp_path: Path) -> None:
    cpu = memory(10, 64, 64, **{"Device Id": -1, "Device Type": 0, "Total Reserved": 0})
    profile = read_kineto(write(tmp_path, kernel(), call(), cpu, memory(20, 512, 512)))
    report = made(profile)

    table = profile.tables["memory_usage"]
    assert table[["kind", "device", "bytes"]].to_numpy().tolist() == [["Host", -1, 64], ["Device", 0, 512]]
    usage = report.result("memory_usage").rows
    assert usage["device"].isna().tolist() == [True, False]
    assert usage["peak_bytes"].tolist() == [64, 512]
    levels = report.result("memory_over_time").rows
    assert levels[["bytes", "reserved_bytes"]].fillna(0).to_numpy().tolist() == [[64, 0], [512, 4096]]
    assert report.result("not_shown").rows.empty
    (note,) = report.result("memory_usage").notes
    assert "4.096 kB of device 0" in note


@pytest.mark.parametrize(("freed", "is_leaking"), [(60, True), (64, False)])
def test_what_each_step_leaves_allocated_is_reported(tmp_path: Path, freed: int, *, is_leaking: bool) -> None:
    events: list[Event] = []
    level = 1000
    for number in range(8):
        start = 100.0 * number + 10
        events.append(call(cat="user_annotation", name=f"ProfilerStep#{number}", ts=start, dur=90, args={}))
        events.append(call(ts=start + 5, dur=2, args={"correlation": number}))
        events.append(kernel(ts=start + 10, dur=20, args={"device": 0, "stream": 7, "correlation": number}))
        for time, change in ((12, 64), (40, -freed)):
            level += change
            events.append(memory(start + time, change, level))
    notes = made(read_kineto(write(tmp_path, *events))).result("memory_usage").notes

    leaks = [note for note in notes if "Each repetition" in note]
    assert [
        note.startswith("Each repetition of 'ProfilerStep' leaves 4 B more allocated on device 0") for note in leaks
    ] == ([True] if is_leaking else [])


def test_memory_events_without_a_size_are_left_out_and_reported(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, kernel(), memory(10, 512, 512), memory(20, 1, 1, Bytes=None)))

    assert len(profile.tables["memory_usage"]) == 1
    assert [finding.title for finding in profile.findings] == ["1 of 2 [memory] events were left out"]


def test_a_trace_without_memory_events_says_how_to_record_them(tmp_path: Path) -> None:
    assert "profile_memory=True" in read_kineto(write(tmp_path, kernel())).missing["memory_usage"]


# -- steps ------------------------------------------------------------------------------------------------------------


def test_a_step_that_had_not_begun_when_the_recording_ended_is_none(tmp_path: Path) -> None:
    def step(number: int, **fields: object) -> Event:
        name = f"ProfilerStep#{number}"
        return call(cat="user_annotation", name=name, ts=100 * number + 10, dur=90, args=fields)

    ranges = read_kineto(write(tmp_path, step(0), step(1), step(2, finished=False))).table("ranges")
    assert ranges["name"].tolist() == ["ProfilerStep"] * 2
    assert not ranges["is_open"].any()


# -- counters ---------------------------------------------------------------------------------------------------------


def counted(name: str, **metrics: object) -> Event:
    """Return an event of CUPTI's range profiler, as Kineto writes it."""
    return kernel(cat="cuda_profiler_range", name=name, tid=0, args=metrics)


def test_counters_of_kernels_are_read_and_summed_up_by_name(tmp_path: Path) -> None:
    instructions = "smsp__inst_executed.sum"
    events = [counted("gemm", **{instructions: 10, "dram.bytes": 2.5}), counted("gemm", **{instructions: 30})]
    events += [counted("add", **{instructions: 7, "odd": "text", "flag": True, "huge": 10**400})]
    profile = read_kineto(write(tmp_path, call(cat="cpu_op", name="aten::mm"), *events))
    rows = range_counters(Timeline(profile)).frame

    assert rows.to_dict("records") == [
        {"device": 0, "metric": "dram.bytes", "ranges": 1, "mean": 2.5, "min": 2.5, "max": 2.5, "name": "gemm"},
        {"device": 0, "metric": instructions, "ranges": 1, "mean": 7.0, "min": 7.0, "max": 7.0, "name": "add"},
        {"device": 0, "metric": instructions, "ranges": 2, "mean": 20.0, "min": 10.0, "max": 30.0, "name": "gemm"},
    ]
    assert profile.tables["unread"].empty
    assert "counters of the GPU" in profile.missing["kernels"]


def test_without_counters_the_reason_says_how_to_record_them(tmp_path: Path) -> None:
    assert "profiler_metrics" in read_kineto(write(tmp_path, kernel())).missing["range_counters"]


# -- kinds that are not read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "words"),
    [
        ("mtia_insight", "3 events of MTIA Insight"),
        ("gcu_op", "3 gcu_op"),
    ],
)
@pytest.mark.parametrize("with_calls", [False, True])
def test_accelerator_work_of_a_kind_that_is_not_read_is_never_called_unrecorded(
    tmp_path: Path, category: str, words: str, *, with_calls: bool
) -> None:
    events = [kernel(cat=category)] * 3 + [call(cat="cpu_op", name="aten::add")] + [call()] * with_calls
    profile = read_kineto(write(tmp_path, *events))

    for name in ("kernels", "memory_ops"):
        assert words in profile.missing[name]
        assert "CPU only" not in profile.missing[name]
        assert "add ProfilerActivity" not in profile.missing[name]
    assert ("api_calls" in profile.missing) is not with_calls


def test_python_functions_and_overhead_do_not_make_a_cpu_trace_one_of_an_accelerator(tmp_path: Path) -> None:
    events = [call(cat=kind) for kind in ("cpu_op", "python_function", "overhead")]
    profile = read_kineto(write(tmp_path, *events))

    assert profile.missing["kernels"] == "the trace has no CUDA events: it was recorded on the CPU only"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("train.py(12): load", ["load (train.py:12)"]),
        ("/home/someone/secret/train.py(12): load", ["load (train.py:12)"]),
        ("secret/data/loaders.py(7): <lambda>", ["<lambda> (loaders.py:7)"]),
        ("<ipython-input-1-ab>(3): load", ["load (<ipython-input-1-ab>:3)"]),
        ("torch/nn/modules/module.py(1739): _wrapped_call_impl", []),
        ("threading.py(1002): _bootstrap", []),
        ("/opt/venv/lib/python3.12/site-packages/einops/einops.py(5): rearrange", []),
        ("<string>(2): __init__", []),
        ("<built-in method randn of type object at 0x7f>", []),
        ("nn.Module: Linear_0", []),
        ("a.py(99999999999999999999): load", []),
    ],
)
def test_python_functions_of_the_user_are_read_without_paths(tmp_path: Path, name: str, shown: list[str]) -> None:
    profile = read_kineto(write(tmp_path, kernel(), call(), call(cat="python_function", name=name, args={})))
    functions = profile.table("python_functions")
    assert functions["function"].tolist() == shown
    assert functions["end_ns"].tolist() == [12_250] * len(shown)
    assert "secret" not in repr(list(functions["function"].cat.categories))
    assert profile.table("unread").empty


def test_a_trace_without_python_functions_says_how_to_get_them(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, kernel(), call()))
    assert "with_stack=True" in profile.missing["python_functions"]


def test_the_categories_and_threads_of_torch_before_1_13_are_read(tmp_path: Path) -> None:
    common = {"ph": "X", "pid": 44, "tid": "45"}
    events: list[Event] = [
        {**common, "cat": "Operator", "name": "ProfilerStep#3", "ts": 5, "dur": 90, "args": {"External id": 1}},
        {**common, "cat": "Operator", "name": "aten::mm", "ts": 8, "dur": 20, "args": {"Input Dims": [[2, 3], [3, 4]]}},
        call(cat="Runtime", tid="45", args={"cbid": 211, "correlation": 5, "external id": 2}),
        kernel(cat="Kernel", tid="stream 7"),
        copy() | {"cat": "Memcpy", "tid": "stream 7"},
        copy("Memset (Device)") | {"cat": "Memset", "tid": "stream 7"},
    ]
    profile = read_kineto(write(tmp_path, *events))
    assert {
        name: len(profile.tables[name]) for name in ("ranges", "cpu_ops", "api_calls", "kernels", "memory_ops")
    } == {
        **dict.fromkeys(("ranges", "cpu_ops", "api_calls", "kernels"), 1),
        "memory_ops": 2,
    }
    assert profile.tables["ranges"]["name"].tolist() == ["ProfilerStep"]
    assert profile.tables["cpu_ops"][["tid", "shapes"]].to_numpy().tolist() == [[45, "[[2,3],[3,4]]"]]
    assert profile.tables["kernels"][["stream", "process"]].to_numpy().tolist() == [[7, 44]]
    assert profile.tables["unread"].empty
