"""Reports to render: a small one built by hand, and the names that try to break out of a page."""

import base64
import gzip
import re
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from nightsight.advise import NEEDS, advise
from nightsight.analyze import analyze
from nightsight.events.timeline import Timeline
from nightsight.model.report import Benchmark, Environment, Finding, Profile, Report, Result, find

HOSTILE: Final = (
    "</script><script>alert(1)</script>",
    "</style></title><!--",
    "-->",
    '"\' onmouseover="alert(1)" x=\'',
    "a & b &amp; c",
    "{{ 7 * 7 }} {% raw %}",
    "content-security-policy",
    "x" * 4096,
    "@everyone https://example.com/ |cell| `code` **bold** [link](x)",
    "\u202egnp.exe \u200f\u2066right to left",
    "two\nlines\r\nand\ttabs",
    "nul\x00bell\x07escape\x1b[31m",
    "void f<" + "std::array<std::array<float, 3>, 4>, " * 110 + "int>(int)",
    "<" * 50 + "(" * 50,
    "",
)

KERNELS: Final = ("void at::native::reduce_kernel<(int)512, (int)1>(T3)", "add(int, float *, float *)")


def unpacked(page: str) -> str:
    """Return a page with what its compressed blocks hold: nothing hides from a search there."""
    blocks = re.findall(r'<script type="application/gzip\+base64"[^>]*>([^<]+)</script>', page)
    texts = (gzip.decompress(base64.b64decode(block)).decode(errors="replace") for block in blocks)
    return "\n".join((page, *texts))


def result(name: str, table: pd.DataFrame | None, **fields: Any) -> Result:
    return Result(name, fields.pop("title", name), fields.pop("help", f"What {name} means."), table, **fields)


def analyzed(profile: Profile, name: str) -> Result:
    """Return one result of a profile, and compute no other."""
    result = find(analyze(Timeline(profile)), name)
    assert result is not None
    return result


def advised(timeline: Timeline) -> tuple[Finding, ...]:
    """Return the advice on a timeline; only what advice reads is analyzed."""
    return advise(analyze(timeline, NEEDS))


def kernel_table(names: tuple[str, ...] = KERNELS) -> pd.DataFrame:
    count = len(names)
    total = [1_000_000 * (count - place) for place in range(count)]
    return pd.DataFrame(
        {
            "time_pct": [100.0 * value / sum(total) for value in total],
            "total_ns": total,
            "instances": [10] * count,
            "stddev_ns": [float("nan")] * count,
            "name": list(names),
        }
    )


def launch_table(names: tuple[str, ...] = KERNELS, *, devices: tuple[int, ...] = (0,)) -> pd.DataFrame:
    rows = [(device, name) for device in devices for name in names]
    return pd.DataFrame(
        {
            "launches": 10,
            "api_total_ns": 50_000,
            "api_med_ns": 5_000.0,
            "queue_med_ns": float("nan"),
            "execution_med_ns": 900_000.0,
            "device": [device for device, _ in rows],
            "name": [name for _, name in rows],
        }
    )


def range_table(rows: list[tuple[str, int]], *, instances: int = 1) -> pd.DataFrame:
    columns = {"path": [path for path, _ in rows], "level": [level for _, level in rows]}
    times = dict.fromkeys(("cpu_total_ns", "cpu_med_ns", "cpu_min_ns", "cpu_max_ns"), 1_000)
    return pd.DataFrame({**columns, "instances": instances, **times, "style": "PushPop", "kernel_ns": 500})


def step_table(*, steps: int, total_ns: int) -> pd.DataFrame:
    """Return the ranges of our runner: `measure` around all its steps."""
    table = range_table([("measure", 0), ("measure / step", 1)])
    table = table.assign(instances=[1, steps], cpu_total_ns=[total_ns, total_ns - 100], cpu_max_ns=[total_ns, 10])
    return table.assign(cpu_med_ns=[total_ns, total_ns / steps])


def gpu_table(*busy_pct: float) -> pd.DataFrame:
    busy = [round(1e7 * share) for share in busy_pct]
    return pd.DataFrame(
        {
            "device": range(len(busy)),
            "window": "measure",
            "window_ns": 1_000_000_000,
            "busy_ns": busy,
            "idle_ns": [1_000_000_000 - value for value in busy],
            "busy_pct": busy_pct,
            "kernels": 7,
            "kernel_ns": busy,
            "copies": 1,
            "copy_ns": 1_500,
            "copied_bytes": 2_000_000,
            "sets": 0,
            "set_ns": 0,
            "graph_launches": 0,
            "graph_ns": 0,
            "launches": 20,
            "launch_api_med_ns": [4_000.0 + place for place in range(len(busy))],
        }
    )


def small_report(**changes: Any) -> Report:
    report = Report(
        title="matmul",
        environment=Environment(collector="nsys", gpu="NVIDIA H200", captured_utc="2026-11-20 09:00:00"),
        results=(
            result("gpu_time", gpu_table(25.0)),
            result("cuda_gpu_kern_sum", kernel_table(), title="Kernel time", notes=("A note.",)),
            result("launch_overhead", launch_table()),
            result("nvtx_ranges", None, unavailable="NVTX was off", title="NVTX ranges"),
            result("cuda_api_sum", None, unavailable="no calls", title="CUDA API"),
            result("cpu_ops", None, unavailable="NVTX was off", title="Operators"),
            result("diagnostics", pd.DataFrame({"severity": [], "times": [], "text": []})),
        ),
        findings=(Finding("a", "info", "Later", "d"), Finding("b", "error", "First", "Broken.", "Mend it.")),
        parameters={"size": "4096"},
        benchmark=Benchmark((1_000_000.0, 1_200_000.0), 20),
        stages_s={"profile": 1.5},
        generator="nightsight test",
    )
    return replace(report, **changes)


def with_gpu_time(*busy_pct: float, **changes: Any) -> Report:
    return small_report(results=(result("gpu_time", gpu_table(*busy_pct).assign(**changes)),), benchmark=None)


def hostile_report() -> Report:
    """Put a hostile text wherever a report can hold one."""
    names = HOSTILE
    texts = pd.DataFrame({"text": names, "severity": names, "times": 1})
    stacks = dict.fromkeys(("cause", "function", "calls", "stack"), names)
    operations = {"operation": names, "source_kind": names, "target_kind": names, "total_ns": 1, "total_bytes": 1}
    return small_report(
        title=names[0],
        environment=Environment(**dict.fromkeys(("gpu", "collector", "cpu", "driver"), names[0])),
        results=(
            result("cuda_gpu_kern_sum", kernel_table(names), title=names[1], help=names[2], notes=names),
            result("memory_operations", pd.DataFrame({**operations, "time_pct": 1.0}), title=names[3]),
            result("launch_overhead", launch_table(names, devices=(0, 1)), title=names[4]),
            result("idle_stacks", pd.DataFrame({**stacks, "device": 0, "time_ns": 1})),
            result("nvtx_ranges", range_table([(name, 0) for name in dict.fromkeys(names)])),
            result("cpu_ops", pd.DataFrame({"own_pct": 1.0, "own_ns": 5, "calls": 1, "name": names})),
            result(names[3], texts, title=names[0]),
            result("gone", None, title=names[0], unavailable=names[0]),
            result("diagnostics", texts),
        ),
        findings=tuple(Finding("rule", "warning", name, name, name) for name in names),
        parameters={name: name for name in names},
        generator=names[0],
    )
