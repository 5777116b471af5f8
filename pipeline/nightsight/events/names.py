"""NVIDIA's names of CUDA functions and GPU operations, and the equivalent function names of other vendors."""

import re
from collections.abc import Iterable
from typing import Any, Final

import pandas as pd

GRAPH: Final = "[CUDA graph]"
LAUNCHES: Final = "launch"
WAITS: Final = "wait"
OTHERS: Final = "other"
# the first pattern that matches counts
_KINDS: Final = {
    LAUNCHES: "^cu(?:da)?(?:Launch|GraphLaunch)|^hip(?:Ext)?(?:Module)?(?:Launch|GraphLaunch)"
    "|^urEnqueueKernelLaunch|^zeCommandList(?:Immediate)?AppendLaunch",
    "copy": "^(?:cu(?:da)?|hip)Mem(?:cpy|Prefetch)|^urEnqueueUSMMemcpy|^zeCommandList(?:Immediate)?AppendMemoryCopy",
    "memset": "^(?:cu(?:da)?|hip)Memset|^urEnqueueUSMFill|^zeCommandList(?:Immediate)?AppendMemoryFill",
    WAITS: "^(?:cu(?:da)?|hip|ze)[A-Z].*Synchronize|^ur(?:QueueFinish|EventWait)",
    "event": "^(?:cu(?:da)?|hip)(?:Event(?:Record|Query)|StreamWaitEvent)",
    "allocation": "^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree)|^cuMem(?:Alloc|Free|Create|Release)"
    "|^urUSM(?:Host|Device|Shared)Alloc|^urUSMFree|^zeMem(?:Alloc|Free)",
}
CALL_KINDS: Final = (*_KINDS, OTHERS)
"""The kinds of calls to which a profiler adds different amounts of time."""


def operation_names(operations: Iterable[str]) -> list[str]:
    """Return NVIDIA's names of copies and memsets: `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`."""
    return ["[CUDA memset]" if text == "memset" else f"[CUDA memcpy {text}]" for text in operations]


def api_names(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Strip the CUDA version that CUPTI appends to entry points (`_v3020`, `_v11060`), not their ABI suffix (`_v2`).

    The tables of `nsys stats` strip exactly four characters (see nightsight.stats.summary).
    """
    return names.str.replace(r"_v\d{4,}$", "", regex=True)


def call_kinds(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Return which of CALL_KINDS each function is."""
    kinds = (next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name)), OTHERS) for name in names)
    return pd.Index(list(kinds), dtype="object")
