"""Which of ncu's rules are worth heeding: those of the kernels whose time in the window they could shorten most.

Only estimates for the whole kernel (global) bound a gain: a local one is about one unit of the GPU, not about time.
"""

import re
from typing import Any, Final

from nightsight.advise.cases import Tables
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
# it wants memory that was allocated as compressible, and supposes that all of its data compress
_NOT_FOR_MOST: Final = "MemoryL2Compression"
_VERDICT: Final = "info"
_WORD_ENDS: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_REMEDY: Final = "Where in the kernel, and what else there is: Hottest lines, Warp stalls and Rules of Nsight Compute."
_TITLES: Final = {
    "AchievedOccupancy": "Fewer warps run than would fit",
    "CPIStall": "Warps wait",
    "FPInstructions": "Multiplications and additions are not fused",
    "HighPipeUtilization": "One arithmetic pipe is the bottleneck",
    "LaunchConfiguration": "The grid does not fill the GPU evenly",
    "MemoryApertureUsage": "Memory of another device or of the host is accessed",
    "MemoryCacheAccessPattern": "Little of the memory that is fetched is used",
    "SharedMemoryConflicts": "Banks of shared memory conflict",
    "SlowPipeLimiter": "Slow instructions limit the kernel",
    "TheoreticalOccupancy": "What a block needs leaves room for few warps",
    "ThreadDivergence": "Threads of a warp go different ways",
    "UncoalescedGlobalAccess": "Accesses to global memory are scattered",
    "UncoalescedSharedAccess": "Accesses to shared memory are scattered",
    "WorkloadImbalance": "The units of the GPU have unequal work",
}


def replay_advice(tables: Tables) -> tuple[Finding, ...]:
    """Return a finding for each of up to five kernels (name, grid, block): what ncu expects most of."""
    rules, kernels = tables.rows(NCU_RULES, *_RULES)[_RULES], tables.rows(NCU_KERNELS, *_KERNELS)[_KERNELS]
    is_advice = (rules["speedup_kind"] == "global") & (rules["kind"] != _VERDICT)
    rules = rules[is_advice & (rules["rule"] != _NOT_FOR_MOST)].drop(columns="kind")
    cases = rules.merge(kernels[kernels["busiest_gpu_ns"].notna()], on="launch", validate="m:1")
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
