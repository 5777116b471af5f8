"""Advice from ncu's rules: per kernel the rule that could save most of its time in the window.

Only global estimates, for the whole kernel, bound a gain. Local ones are about one unit of the GPU, not about time.
"""

import re
from typing import Any, Final

from nightsight.advise.tables import Tables
from nightsight.events.kernel_names import base_name
from nightsight.model import Finding
from nightsight.results import NCU_KERNELS, NCU_RULES
from nightsight.units import format_value

_MOST: Final = 5
_LEAST_PCT: Final = 1.0
_NAME_LENGTH: Final = 60
_GROUP: Final = ["name", "grid", "block"]
_KERNELS: Final = ["launch", *_GROUP, "launches", "busiest_gpu_ns"]
_RULES: Final = ["launch", "rule", "title", "message", "kind", "speedup_kind", "speedup_pct"]
# only for memory allocated as compressible, and the estimate assumes that all data compress
_NOT_FOR_MOST: Final = "MemoryL2Compression"
_VERDICT: Final = "info"
_WORD_ENDS: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_REMEDY: Final = 'See "Hottest lines" for where in the kernel, and "Warp stalls" and "Nsight Compute rules" for more.'
_TITLES: Final = {
    "AchievedOccupancy": "Fewer warps run than would fit",
    "CPIStall": "Warps stall",
    "FPInstructions": "Multiplications and additions are not fused",
    "HighPipeUtilization": "One arithmetic pipe is the bottleneck",
    "LaunchConfiguration": "The grid does not fill the GPU evenly",
    "MemoryApertureUsage": "The kernel accesses memory of another device or of the host",
    "MemoryCacheAccessPattern": "Little of the fetched memory is used",
    "SharedMemoryConflicts": "Shared memory has bank conflicts",
    "SlowPipeLimiter": "Slow instructions limit the kernel",
    "TheoreticalOccupancy": "The resources of a block leave room for few warps",
    "ThreadDivergence": "Threads of a warp diverge",
    "UncoalescedGlobalAccess": "Accesses to global memory are not coalesced",
    "UncoalescedSharedAccess": "Accesses to shared memory are not coalesced",
    "WorkloadImbalance": "Work is unevenly spread over the units of the GPU",
}


def replay_advice(tables: Tables) -> tuple[Finding, ...]:
    """Return a finding for each of up to five kernels (name, grid, block): its largest global estimate."""
    rules, kernels = tables.rows(NCU_RULES, *_RULES)[_RULES], tables.rows(NCU_KERNELS, *_KERNELS)[_KERNELS]
    is_advice = (rules["speedup_kind"] == "global") & (rules["kind"] != _VERDICT)
    rules = rules[is_advice & (rules["rule"] != _NOT_FOR_MOST)].drop(columns="kind")
    cases = rules.merge(kernels[kernels["busiest_gpu_ns"].notna()], on="launch", validate="m:1")
    # the busiest GPU bounds the gain: GPUs work in parallel, so their times do not add up
    gain = cases["speedup_pct"].astype("float64").clip(0, 100) / 100 * cases["busiest_gpu_ns"].astype("float64")
    cases = cases.assign(gain_ns=gain.clip(upper=tables.window_ns))
    cases = cases.sort_values("gain_ns", ascending=False, kind="stable").drop_duplicates(_GROUP)
    cases = cases[cases["gain_ns"] * 100 >= _LEAST_PCT * max(tables.window_ns, 1)]
    return tuple(_finding(case, tables.window_ns) for case in cases.head(_MOST).to_dict("records"))


def _finding(case: dict[Any, Any], window_ns: int) -> Finding:
    kernel = base_name(case["name"])
    kernel = kernel if len(kernel) <= _NAME_LENGTH else f"{kernel[: _NAME_LENGTH - 1]}…"
    time, saved = (format_value(float(case[column]), column) for column in ("busiest_gpu_ns", "speedup_pct"))
    shape = f"grid {case['grid']}, block {case['block']}"
    gain = round(case["gain_ns"])
    return Finding(
        f"ncu_{_WORD_ENDS.sub('_', case['rule']).lower()}",
        "advice",
        f"{_TITLES.get(case['rule'], case['title'])}: {kernel}",
        case["message"],
        _REMEDY,
        (
            f"{kernel}, {shape}, {case['launches']:,} ×: {time} in the window",
            f"{case['title']}: at most {saved} of that (ncu's global estimate)",
        ),
        gain_ns=gain,
        gain_pct=100.0 * gain / window_ns,
        source=NCU_RULES.name,
    )
