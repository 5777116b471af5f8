"""Traces of other accelerators, and kinds of events that not every trace has: what is there is read, what is not, said.

The shapes are those that Kineto writes on ROCm and MTIA, with its range profiler, and with PyTorch's memory profiler.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.model import Profile, Report
from nightsight.read.kineto import read_kineto
from nightsight.render import FORMATS, Source
from nightsight.workflow import build_report
from tests.kineto import Event, call, kernel, refusal, write

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
    (found,) = report.result(result).rows.to_dict("records")
    return {str(name): value for name, value in found.items()}


# -- ROCm -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"size": "2560"}, {"bytes": "2560"}, {"size": 2560}])
def test_the_size_of_a_rocm_copy_is_in_the_call_that_launched_it(tmp_path: Path, said: Mapping[str, object]) -> None:
    profile = read_kineto(write(tmp_path, rocm_copy(), hip_copy(**said)))

    assert list(profile.tables["memory_ops"]["bytes"]) == [2560]
    assert row(made(profile), "memory_operations")["total_bytes"] == 2560
    assert profile.findings == ()


@pytest.mark.parametrize("said", [{}, {"size": "0x9"}, {"size": "2560", "correlation": [5]}, {"size": "9" * 30}])
def test_a_copy_whose_size_nobody_says_is_of_unknown_size_and_not_of_zero(
    tmp_path: Path, said: Mapping[str, object]
) -> None:
    profile = read_kineto(write(tmp_path, rocm_copy(), hip_copy(**said)))
    report = made(profile)

    assert profile.tables["memory_ops"]["bytes"].isna().all()
    found = row(report, "memory_operations")
    assert found["count"] == 1
    assert all(pd.isna(found[name]) for name in ("total_bytes", "avg_bytes", "rate_bytes_per_s"))
    assert pd.isna(row(report, "gpu_time")["copied_bytes"])
    assert report.result("copy_sizes").rows.empty
    (finding,) = [finding for finding in report.findings if finding.rule == "unknown_sizes"]
    assert finding.title == "The size of 1 of 1 copies and memsets is not in the trace"


def test_one_unknown_size_makes_the_sum_unknown_and_leaves_the_classes_of_the_others(tmp_path: Path) -> None:
    known = rocm_copy(ts=30.0, args={**ROCM_COPY, "correlation": 6, "bytes": 64})
    report = made(read_kineto(write(tmp_path, rocm_copy(), known, hip_copy())))

    assert pd.isna(row(report, "memory_operations")["total_bytes"])
    assert row(report, "copy_sizes")["total_bytes"] == 64
    assert report.result("copy_sizes").notes == ("Copies whose size is not known: 1. They are in no bin.",)


def test_a_gpu_event_without_arguments_ran_where_its_pid_and_tid_say(tmp_path: Path) -> None:
    (found,) = read_kineto(write(tmp_path, kernel(pid=3, tid=11, args={}))).tables["kernels"].to_dict("records")

    assert (found["device"], found["stream"]) == (3, 11)


def test_hip_calls_that_give_work_tell_a_gpu_that_was_not_recorded(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, call(name="hipExtModuleLaunchKernel")))

    assert "ProfilerActivity.CUDA" in profile.missing["kernels"]


# -- facts of devices, processes --------------------------------------------------------------------------------------


def test_a_device_that_does_not_say_its_capability_is_a_device(tmp_path: Path) -> None:
    mtia = [{"id": 0, "name": "MTIA", "totalGlobalMem": 64}, {"id": 1}]
    profile = read_kineto(write(tmp_path, kernel(), deviceProperties=mtia))

    found = profile.tables["devices"].to_dict("records")
    assert [(one["device"], one["name"], one["compute_capability"]) for one in found] == [(0, "MTIA", ""), (1, "", "")]
    assert (found[0]["memory_bytes"], pd.isna(found[0]["multiprocessors"])) == (64, True)
    assert profile.findings == ()


def test_an_annotation_of_another_process_does_not_hide_whose_the_gpu_work_is(tmp_path: Path) -> None:
    other = call(cat="user_annotation", name="ProfilerStep#1", pid=99, tid=99)
    tables = read_kineto(write(tmp_path, other, call(), kernel())).tables

    assert set(tables["ranges"]["process"]) == {99}
    assert list(tables["kernels"]["process"]) == [44]


def test_gpu_work_is_of_the_process_whose_call_has_its_correlation_id(tmp_path: Path) -> None:
    calls = [call(pid=pid, args={"correlation": number}) for pid, number in ((44, 5), (46, 6))]
    kernels = [kernel(args={"device": 0, "stream": 7, "correlation": number}) for number in (6, 5, 7)]
    found = read_kineto(write(tmp_path, *calls, *kernels)).tables["kernels"]["process"]

    assert [None if pd.isna(process) else process for process in found] == [46, 44, None]


def test_gpu_work_that_two_processes_may_have_launched_is_refused(tmp_path: Path) -> None:
    assert "2 processes" in refusal(write(tmp_path, kernel(), call(), call(pid=46))).message


# -- memory -----------------------------------------------------------------------------------------------------------


def test_memory_events_are_the_memory_usage_counted_from_what_was_there_before(tmp_path: Path) -> None:
    events = [memory(10, 512, 1512), memory(20, -1000, 512), memory(30, 256, 768), memory(40, -256, 512)]
    profile = read_kineto(write(tmp_path, kernel(), call(), *events))
    report = made(profile)

    found = row(report, "memory_usage")
    assert (found["peak_bytes"], found["end_bytes"]) == (1512, 512)
    assert (found["allocations"], found["frees"], found["kind"]) == (2, 2, "Device")
    assert report.result("memory_over_time").rows["bytes"].tolist() == [1512, 512, 768, 512]
    (note,) = report.result("memory_usage").notes
    assert note == "PyTorch had reserved at most 4.096 kB of device 0; tensors get their memory from that."


def test_instants_of_the_first_exporters_have_no_category(tmp_path: Path) -> None:
    event = {name: value for name, value in memory(10, 512, 512).items() if name != "cat"}

    assert len(read_kineto(write(tmp_path, kernel(), event)).tables["memory_usage"]) == 1


def test_memory_of_the_cpu_is_not_counted_as_memory_of_a_gpu_and_named_as_not_shown(tmp_path: Path) -> None:
    cpu = memory(10, 64, 64, **{"Device Id": -1, "Device Type": 0})
    profile = read_kineto(write(tmp_path, kernel(), cpu, memory(20, 512, 512)))

    assert list(profile.tables["memory_usage"]["bytes"]) == [512]
    assert row(made(profile), "not_shown")["kind"] == "allocations and frees of CPU memory"


def test_memory_events_without_a_size_are_left_out_and_said(tmp_path: Path) -> None:
    profile = read_kineto(write(tmp_path, kernel(), memory(10, 512, 512), memory(20, 1, 1, Bytes=None)))

    assert len(profile.tables["memory_usage"]) == 1
    assert [finding.title for finding in profile.findings] == ["1 of 2 [memory] events were left out"]


def test_a_trace_without_memory_events_says_how_to_record_them(tmp_path: Path) -> None:
    assert "profile_memory=True" in read_kineto(write(tmp_path, kernel())).missing["memory_usage"]


# -- kinds that are not read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "words"),
    [
        ("mtia_ccp_events", "3 operations of MTIA accelerators"),
        ("cuda_profiler_range", "3 kernels with counters"),
        ("hpu_op", "3 hpu_op"),
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
