"""What profilers mean by their numbers and labels: CUPTI's enumerations, NVTX's event types, CUDA's version numbers."""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.tables import PUSH_POP, START_END, categorical, empty, used_devices

# CUPTI's own values (cupti_activity.h); the ENUM_* tables repeat them and are absent from exports before 2023
COPY_OPERATIONS: Final = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
MEMORY_KINDS: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
SEVERITIES: Final = {0: "info", 1: "info", 2: "warning", 3: "error", 4: "info"}
# NVTX event types: push/pop and start/end ranges, marks, names of categories; each of NVTX itself and of NVTXT imports
RANGE_STYLES: Final = {59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
MARKS: Final = (34, 65)
CATEGORY_NAMES: Final = (33, 64)
DOMAIN_CREATE: Final = 75
# the class of a plain call in OSRT_API; others are markers
OS_CALL: Final = 27

# anything with a slash, anything quoted, and values of options: what is left are the profiler's own words
_PRIVATE: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\S*[/\\]\S*|--?\w[\w-]*=\S+|~\S*")


def cuda_version(number: str) -> str:
    """Write CUDA's version number as people do: 13000 is 13.0."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdecimal() else ""


def list_gpus(tables: Mapping[str, pd.DataFrame]) -> str:
    """List the GPUs of a capture by name, and say how many of them it used if those are some but not all."""
    devices = tables.get("devices", empty("devices")).drop_duplicates("device")
    used = used_devices(tables)
    is_used = devices["device"].isin(used) if used else pd.Series(True, index=devices.index)
    counts = is_used.groupby(devices["name"].astype("str"), sort=False).agg(["sum", "size"])
    all_are = bool(is_used.all())
    return ", ".join(
        (f"{name}" if present == 1 else f"{present} × {name}")
        if all_are or some == present
        else f"{some} of {present} × {name} used"
        for name, some, present in counts.itertuples()
    )


def without_private(text: str) -> str:
    """Mask paths, quoted text and option values: the profiler's own messages name files and users of its machine."""
    return _PRIVATE.sub("<…>", text)


def label(values: "pd.Series[Any]", labels: Mapping[int, str]) -> "pd.Categorical[Any]":
    """Name the values of an enumeration; NULL is empty, an unknown value is its number."""
    codes, unique = pd.factorize(values.fillna(-1).to_numpy(dtype=np.int64))
    names = [labels.get(int(value), "" if value == -1 else str(value)) for value in unique]
    return categorical(np.array(names, dtype=object), codes)
