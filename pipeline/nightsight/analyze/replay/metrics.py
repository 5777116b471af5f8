"""Maps figures to ncu's metrics, whose names differ by chip (cc 7.0 to 12.0) and by release.

For each figure, the first metric that a launch has is used. If it has none of them, the figure is missing, not 0.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.system.parallel import memoize
from nightsight.tables import Frame

_SOL: Final = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE: Final = "avg.pct_of_peak_sustained_active"
# the instructions that ncu's rooflines count per type of arithmetic, and the operations of one instruction of a thread;
# FP16 instructions work on two values
OPERATIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "FP64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "FP32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "FP16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_INSTRUCTIONS: Final = [name for names in OPERATIONS.values() for name in names]


def _tensor_pipe(kind: str) -> tuple[str, ...]:
    """Return the metrics of the utilization of tensor cores by one kind of instruction, the best first."""
    return (
        f"sm__pipe_tensor_subpipe_{kind}_cycles_active.{_SOL}",
        f"sm__pipe_tensor_op_{kind}_cycles_active.{_SOL}",
        f"sm__pipe_tensor_op_{kind}_cycles_active_v2.{_SOL}",
        f"sm__pipe_tensor_op_{kind}_cycles_active.{_ACTIVE}",
        # the only ones that releases of 2020 to 2022 collect on cc 8.x
        f"sm__inst_executed_pipe_tensor_op_{kind}.{_SOL}",
        f"sm__inst_executed_pipe_tensor_op_{kind}.{_ACTIVE}",
    )


METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "replay_ns": ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max"),
    "sm_pct": (f"sm__throughput.{_SOL}", "sm__sol_pct"),
    "memory_pct": (f"gpu__compute_memory_throughput.{_SOL}", "gpu__compute_memory_sol_pct"),
    "dram_pct": (
        f"gpu__dram_throughput.{_SOL}",
        f"dram__throughput.{_SOL}",
        f"dram__cycles_active.{_SOL}",
        "dram__bytes.sum.pct_of_peak_sustained_elapsed",
    ),
    "l2_pct": (f"lts__throughput.{_SOL}", f"lts__t_sectors.{_SOL}", f"lts__t_bytes.{_SOL}"),
    "l1_pct": (f"l1tex__throughput.{_ACTIVE}", f"l1tex__throughput.{_SOL}"),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "lts__average_t_sector_hit_rate_realtime.pct"),
    "l1_hit_pct": ("l1tex__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate_realtime.pct"),
    # metrics without types also count HFMA2.MMA, with which compilers load constants
    "tensor_pct": (
        f"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.{_SOL}",
        f"sm__pipe_tc_cycles_active.{_SOL}",
        f"sm__pipe_tensor_cycles_active.{_SOL}",
        f"sm__pipe_tensor_cycles_active_v2.{_SOL}",
        *_tensor_pipe("hmma"),
        f"sm__pipe_tensor_cycles_active.{_ACTIVE}",
        f"sm__inst_executed_pipe_tensor.{_SOL}",
        f"sm__inst_executed_pipe_tensor.{_ACTIVE}",
    ),
    # the `hmma` metrics above are for FP16 only and leave these out
    "tensor_fp64_pct": _tensor_pipe("dmma"),
    "tensor_integer_pct": _tensor_pipe("imma"),
    "occupancy_pct": (f"sm__warps_active.{_ACTIVE}",),
    "theoretical_pct": ("sm__maximum_warps_per_active_cycle_pct",),
    "limit_registers": ("launch__occupancy_limit_registers",),
    "limit_shared": ("launch__occupancy_limit_shared_mem",),
    "limit_blocks": ("launch__occupancy_limit_blocks",),
    "limit_warps": ("launch__occupancy_limit_warps",),
    "limit_barriers": ("launch__occupancy_limit_barriers",),
    "registers": ("launch__registers_per_thread", "launch__registers_per_thread_allocated"),
    "shared_bytes": ("launch__shared_mem_per_block", "launch__shared_mem_per_block_allocated"),
    "waves": ("launch__waves_per_multiprocessor",),
    "load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "load_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "load_sectors_per_request": ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",),
    "sectors": ("memory_l2_theoretical_sectors_global",),
    "ideal_sectors": ("memory_l2_theoretical_sectors_global_ideal",),
    "device_khz": ("device__attribute_clock_rate",),
    "sm_hz": ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second"),
    "dram_hz": ("dram__cycles_elapsed.avg.per_second",),
    "l2_hz": ("lts__cycles_elapsed.avg.per_second",),
    "dram_bytes_per_s": ("dram__bytes.sum.per_second",),
    "dram_read_bytes_per_s": ("dram__bytes_read.sum.per_second",),
    "dram_written_bytes_per_s": ("dram__bytes_write.sum.per_second",),
    "dram_bytes": ("dram__bytes.sum",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_written_bytes": ("dram__bytes_write.sum",),
    "dram_bytes_per_cycle": ("dram__bytes.sum.peak_sustained",),
    # the same order in all three, so that a point and its roof count the same bytes
    "l2_bytes_per_s": ("derived__lts__lts2xbar_bytes.sum.per_second", "lts__t_bytes.sum.per_second"),
    "l2_bytes": ("derived__lts__lts2xbar_bytes.sum", "lts__t_bytes.sum"),
    "l2_bytes_per_cycle": ("derived__lts__lts2xbar_bytes.sum.peak_sustained", "lts__t_bytes.sum.peak_sustained"),
    **{
        f"{name}_per_cycle": tuple(
            f"{unit}__sass_thread_inst_executed_op_{name}_pred_on.sum.per_cycle_elapsed" for unit in ("smsp", "sm")
        )
        for name in _INSTRUCTIONS
    },
    **{
        name: tuple(f"{unit}__sass_thread_inst_executed_op_{name}_pred_on.sum" for unit in ("smsp", "sm"))
        for name in _INSTRUCTIONS
    },
    **{
        f"{name}_peak": tuple(
            f"{unit}__sass_thread_inst_executed_op_{name}_pred_on.sum.peak_sustained" for unit in ("sm", "smsp")
        )
        for name in ("dfma", "ffma", "hfma")
    },
}
"""For each figure the metrics that hold it, the best first. Suffixes are units; `_per_cycle` and `_peak`: per cycle."""

KERNEL: Final = "kernel"
"""The kind of a replay of a single launch; other replays are of ranges and graphs."""
DEVICE_NAME: Final = "device__attribute_display_name"
OPCODES: Final = "sass__inst_executed_per_opcode"
THREAD_OPCODES: Final = "sass__thread_inst_executed_true_per_opcode"
OPCODES_IN_FULL: Final = "sass__inst_executed_per_opcode_with_modifier_all"
# for a range or graph, ncu gives these for just one of its launches
_OF_ONE: Final = r"launch__|sm__maximum_warps_"
# cycles per issued instruction, the same from warp latency, and samples; the first that a launch has is used
STALLS: Final = (
    r"smsp__average_warps_issue_stalled_(?P<reason>\w+)_per_issue_active\.ratio",
    r"smsp__average_warp_latency_issue_stalled_(?P<reason>\w+)\.ratio",
    r"smsp__pcsamp_warps_issue_stalled_(?P<reason>(?!\w+_not_issued$)\w+)",
)
TENSOR: Final = (
    r"sm__ops_path_tensor_(?P<op>op_[a-z]+_)?src_(?P<type>\w+?)(?:_dst_\w+?)?(?P<sparsity>_sparsity_(?:on|off))?"
    r"\.sum(?P<rate>\.per_cycle_elapsed|\.per_second|\.peak_sustained)?"
)


def figures_of(timeline: Timeline, figures: Iterable[str]) -> Frame:
    """Return a column for each of these figures of METRICS, a row per replayed launch (index); NaN if not collected."""
    figures = list(figures)
    metrics, launches = _totals(timeline), timeline.profile.table("profiled_launches")["launch"]
    names = {name for figure in figures for name in METRICS[figure]}
    rows = metrics[metrics["metric"].isin(names)].astype({"metric": "str"})
    wide = rows.drop_duplicates(["launch", "metric"]).pivot_table("value", "launch", "metric", "first")
    wide = wide.reindex(index=pd.Index(launches, name="launch"), columns=sorted(names)).astype("float64")
    return Frame({figure: wide[list(METRICS[figure])].bfill(axis=1).iloc[:, 0] for figure in figures}, wide.index)


def matching(timeline: Timeline, pattern: str) -> Frame:
    """Return launch, metric, value and the groups of `pattern` for all metrics whose full name matches."""
    metrics = _totals(timeline)
    names = metrics["metric"].cat.categories.to_series()
    matches = names.str.fullmatch(pattern).to_numpy(dtype=bool)[metrics["metric"].cat.codes]
    rows = metrics[matches & metrics["value"].notna()].reset_index(drop=True)
    groups = names.str.extract(pattern).iloc[rows["metric"].cat.codes].reset_index(drop=True)
    return rows[["launch", "metric", "value"]].join(groups)


def parts(timeline: Timeline, metric: str) -> Frame:
    """Return launch, instance and value of a metric with several instances, such as one per opcode."""
    metrics = _metric_values(timeline)
    rows = metrics[(metrics["metric"] == metric) & (metrics["instance"] != "")]
    return rows[["launch", "instance", "value"]].astype({"instance": "str"}).reset_index(drop=True)


def device_names(timeline: Timeline) -> "pd.Series[str]":
    """Return the GPU's name for each launch (index); "" if the report does not contain it."""
    metrics, launches = _totals(timeline), timeline.profile.table("profiled_launches")["launch"]
    rows = metrics[metrics["metric"] == DEVICE_NAME].drop_duplicates("launch").set_index("launch")
    return rows["text"].astype("str").reindex(launches).fillna("")


@memoize
def _totals(timeline: Timeline) -> Frame:
    metrics, launches = _metric_values(timeline), timeline.profile.table("profiled_launches")
    is_total = np.asarray(metrics["instance"] == "", dtype=bool)
    # leave out metrics that do not cover the whole range or graph
    combined = launches["launch"][launches["kind"] != KERNEL]
    if len(combined):
        of_one = metrics["metric"].cat.categories.str.match(_OF_ONE)[metrics["metric"].cat.codes]
        is_total = is_total & ~(of_one & metrics["launch"].isin(combined))
    return metrics[is_total]


def _metric_values(timeline: Timeline) -> Frame:
    return timeline.profile.recorded("kernel_metrics")
