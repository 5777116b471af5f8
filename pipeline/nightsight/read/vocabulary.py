"""The meaning of profilers' numbers and labels: CUPTI enumerations, NVTX event types, CUDA version numbers."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.tables import PUSH_POP, START_END, categorical, empty, used_devices

# values of CUPTI (cupti_activity.h); the ENUM_* tables repeat them, but exports before 2023 lack those tables
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
# NVTX event types: push/pop and start/end ranges, marks, category names; from NVTX and from NVTXT imports
RANGE_STYLES: Final = {59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
MARKS: Final = (34, 65)
CATEGORY_NAMES: Final = (33, 64)
DOMAIN_CREATE: Final = 75
# all known event types: also names of threads (39) and ends of domains (76), which carry no information here
EVENTS: Final = (*RANGE_STYLES, *MARKS, *CATEGORY_NAMES, 39, DOMAIN_CREATE, 76)
# the class of a plain call in OSRT_API; others are markers
OS_CALL: Final = 27


def cuda_version(number: str) -> str:
    """Format a CUDA version number: 13000 is 13.0; "" if it is not a number."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdecimal() else ""


def list_gpus(tables: Mapping[str, pd.DataFrame]) -> str:
    """List the GPUs of a capture by name, with the number of used ones if only some were used."""
    devices = tables.get("devices", empty("devices")).drop_duplicates("device")
    used = used_devices(tables)
    is_used = devices["device"].isin(used) if used else pd.Series(True, index=devices.index)
    counts = is_used.groupby(devices["name"].astype("str"), sort=False).agg(["sum", "size"])
    texts = []
    for name, used_count, count in counts.itertuples():
        gpu = name or "GPU without a name"
        if used_count < count:
            texts.append(f"{used_count} of {count} × {gpu} used")
        else:
            texts.append(gpu if count == 1 else f"{count} × {gpu}")
    return ", ".join(texts)


def label(values: "pd.Series[Any]", labels: Mapping[int, str]) -> "pd.Categorical[Any]":
    """Return the labels of enumeration values; "" for NULL, the number itself for unknown values."""
    codes, unique = pd.factorize(values.fillna(-1).to_numpy(dtype=np.int64))
    names = [labels.get(int(value), "" if value == -1 else str(value)) for value in unique]
    return categorical(np.array(names, dtype=object), codes)
