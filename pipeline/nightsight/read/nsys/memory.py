"""Reads memory usage, GPU metrics and call stacks from nsys exports."""

import re
from typing import Final

import numpy as np
import pandas as pd

from nightsight.read.nsys.export import RUNTIME, Export
from nightsight.read.vocabulary import MEMORY_KINDS, label
from nightsight.tables import Frame, are_named, categorical, empty, renamed
from nightsight.texts import without_private

USAGE: Final = "CUDA_GPU_MEMORY_USAGE_EVENTS"
METRICS: Final = "GPU_METRICS"
STACKS: Final = "CUDA_CALLCHAINS"
_NAMES: Final = "TARGET_INFO_GPU_METRICS"
# ENUM_CUDA_DEV_MEM_EVENT_OPER; 1 is a deallocation
_ALLOCATION: Final = 0
# in older schemas, calls refer to the stack of a neighboring call (NVIDIA's release notes)
_SCHEMA_WITH_STACKS: Final = (3, 9)
_METRIC_BITS: Final = 32
# factors from stored values to the unit in the metric's name (GpuMetrics/*.config of nsys)
_CLOCK: Final = "MHz"
_WARPS: Final = "Avg Warps per Cycle"
_FACTORS: Final = {_CLOCK: 1e-6, "GB/s": 1e-9, _WARPS: 0.5, "Avg Registers per SM": 0.5}
# warps are counted per pair of multiprocessors, except in metric sets with this suffix: of Turing, and for graphics
_WITHOUT_PAIRS: Final = "[Workloads]"
_UNIT: Final = re.compile(r".*\[(.*)\]$", re.DOTALL)
_SUMMED: Final = re.compile(r"Warp.* \[Avg\]$")
_CUDA: Final = r"libcu(?:pti|da|dart)\.so"
_PYTHON: Final = r"\.py$"


def memory_usage(export: Export) -> Frame:
    """Read all allocations and deallocations that the driver reported."""
    columns = {
        "start_ns": "start",
        "process": "globalPid",
        "ordinal": "deviceId",
        "kind": "memKind",
        "bytes": "bytes",
        "operation": "memoryOperationType",
    }
    frame = export.fetch(USAGE, columns)
    frame = export.keep_possible(USAGE, frame.assign(end_ns=frame["start_ns"]))
    is_allocation = frame["operation"] == _ALLOCATION
    kind = label(frame["kind"], MEMORY_KINDS)
    return frame.assign(device=export.devices(frame), kind=kind, is_allocation=is_allocation)


def gpu_metrics(export: Export) -> Frame:
    """Read the samples of the GPU's counters in the units of their names; a metric without a name gets its number.

    Drops warps in flight as `[Avg]`, which is a sum over all cycles of a sample; nsys also writes this metric as
    `[Avg Warps per Cycle]` and `[Throughput %]`.
    """
    columns = {"start_ns": "timestamp", "type": "typeId", "metric_id": "metricId", "value": "value"}
    frame = export.fetch(METRICS, columns)
    type_codes, types = pd.factorize(frame["type"].to_numpy(dtype=np.int64))
    codes, distinct = pd.factorize(type_codes << _METRIC_BITS | frame["metric_id"].to_numpy(dtype=np.int64))
    keys = [(int(types[key >> _METRIC_BITS]), int(key) & (1 << _METRIC_BITS) - 1) for key in distinct]
    names_by_key = _metric_names(export)
    names = [names_by_key.get(key, f"metric {key[1]}") for key in keys]
    units = [_UNIT.sub(r"\1", name) for name in names]
    unpaired = {source for (source, _), name in names_by_key.items() if name.endswith(_WITHOUT_PAIRS)}
    factors = [
        1.0 if unit == _WARPS and source in unpaired else _FACTORS.get(unit, 1.0)
        for unit, (source, _) in zip(units, keys, strict=True)
    ]
    value = frame["value"].to_numpy(dtype=np.int64)
    is_clock = np.array([unit == _CLOCK for unit in units], dtype=bool)[codes]
    # clocks are stored as signed 32-bit integers: those above 2.1 GHz are negative
    value = np.where(is_clock & (value < 0), value + (1 << _METRIC_BITS), value)
    samples = frame.assign(
        # the low byte of a type is the GPU, the other bytes are the kind of source
        device=frame["type"] & 0xFF,
        metric=categorical(np.array(names, dtype=object), codes),
        value=value * np.array(factors)[codes],
    )
    return samples[~np.array([bool(_SUMMED.search(name)) for name in names], dtype=bool)[codes]]


def call_frames(export: Export) -> Frame:
    """Read a frame of the stack of each CUDA call: the innermost one of Python, else the innermost outside of CUDA.

    Frames that nsys did not resolve to a symbol are left out.
    """
    if RUNTIME not in export.database.columns:
        return empty("call_frames")
    columns = {"start_ns": "start", "thread": "globalTid", "stack": "callchainId"}
    calls = export.fetch(RUNTIME, columns, nullable=("stack",))
    # 0 is a valid stack id; calls without a stack have NULL
    calls = calls[calls["stack"].notna() & (_schema(export) >= _SCHEMA_WITH_STACKS)]
    columns = {"stack": "id", "symbol": "symbol", "module": "module", "depth": "stackDepth", "unresolved": "unresolved"}
    frames = export.fetch(STACKS, columns, nullable=("module", "unresolved"))
    modules = pd.Series(export.text(frames["module"]), index=frames.index)
    is_cuda, is_python = (are_named(modules, pattern) for pattern in (_CUDA, _PYTHON))
    is_resolved = (frames["unresolved"].fillna(0) == 0).to_numpy(dtype=bool)
    candidates = frames.assign(rank=~is_python)[is_resolved & ~is_cuda].sort_values(["stack", "rank", "depth"])
    frames = candidates.drop_duplicates("stack")[["stack", "symbol"]]
    frames = calls.astype({"stack": "int64"}).merge(frames, on="stack", validate="m:1")
    names = pd.Series(export.text(frames["symbol"]))
    return frames.assign(frame=renamed(names, lambda texts: texts.map(without_private)))


def _metric_names(export: Export) -> dict[tuple[int, int], str]:
    if _NAMES not in export.database.columns:
        return {}
    frame = export.fetch(_NAMES, {"type": "typeId", "metric_id": "metricId"})
    names = export.database.texts(_NAMES, "metricName")
    keys = zip(frame["type"].tolist(), frame["metric_id"].tolist(), strict=True)
    return dict(zip(keys, [names[row] for row in frame.index], strict=True))


def _schema(export: Export) -> tuple[int, ...]:
    """Return the schema version of the export; () if it gives none, which sorts before all that do."""
    (version,) = export.metadata("META_DATA_EXPORT").get("EXPORT_SCHEMA_VERSION", [""])[:1]
    return tuple(int(number) for number in version.split(".") if number.isdecimal())
