"""Find steps so small that a larger batch would take hardly longer: each kernel fills a small part of the GPU.

Such a step takes the time of its launches and of the first and last instructions of its kernels, whatever their work
is. With more samples, environments or requests per step, kernels have more blocks and run at the same time on more SMs.
Longer matrix products also have room if their blocks are few of those that the SMs can hold at once.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.model import BEGIN, LAUNCH, STREAM
from nightsight.analyze.causes.remedies import is_launch_code, link_rate, request_waits, shorten
from nightsight.analyze.causes.scene import Change, Edit, Scene
from nightsight.events.kernel_labels import label_of
from nightsight.intervals import Floats, Ints
from nightsight.tables import RESOURCES, SHAPE, are_named, integers

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# kernels with this share of the time fill at most a quarter of the GPU, and are at most this long: longer ones compute
# in few blocks for other reasons (`small_grid`). Steps of `sentence_embeddings` (tests/data/real) fill between an
# eighth and a quarter (stored: 0.475 to 0.975, from 2, 10 to 40 µs)
_NEARLY_ALL: Final = 0.95
_LEAST_ROOM: Final = 4
_SHORT_NS: Final = 20_000
# threads of a usual block (stored: 128 to 512)
_BLOCK: Final = 256
# or this share of the time is that of products whose blocks are a quarter of those that the SMs hold, or fewer: 0 to
# 3 % in healthy captures, 73 % in one of a model that gets 8 sentences at a time
_MOSTLY: Final = 0.7
_PRODUCT: Final = re.compile(r"(?:gemm|gemv)\b")
# fewer kernels per step: its repetition is more likely a part of a step (stored: 5 to 20)
_FEWEST_KERNELS: Final = 10
# with more, kernels become longer (stored: 4 to 16)
_MOST_TIMES: Final = 8
# the capacity of an SM by compute capability (the CUDA C++ Programming Guide has a table of technical specifications):
# threads, blocks, and bytes of shared memory. It has 64 Ki registers, and a block takes 1 KiB of shared memory more
# than it requests
_SM: Final = {
    "8.0": (2048, 32, 164 << 10),
    "8.6": (1536, 16, 100 << 10),
    "8.9": (1536, 24, 100 << 10),
    "9.0": (2048, 32, 228 << 10),
    "10.0": (2048, 32, 228 << 10),
    "12.0": (1536, 24, 100 << 10),
}
_REGISTERS: Final = 1 << 16
_RESERVED_BYTES: Final = 1 << 10
_WARP: Final = 32


@dataclass(frozen=True, eq=False)
class LargerSteps:
    """Steps with several times the work. multiprocessors: of the GPU.

    blocks: the most of the kernels that have room. filled: the most of what the SMs hold that they fill, a share; NaN
    if nearly all kernels are short and `blocks` is a quarter of the SMs or less.
    """

    times: int
    blocks: int
    multiprocessors: int
    edit: Edit
    filled: float = np.nan


def larger_steps(scene: Scene) -> LargerSteps | None:
    """Return larger steps if the GPU has room for them: the same kernels and launches, other host code several times.

    None without steps, grids, or the number of SMs.
    """
    timeline, work = scene.timeline, scene.graph.work
    kernels, devices = (timeline.profile.recorded(name) for name in ("kernels", "devices"))
    if not scene.model.steps or not {*SHAPE} <= set(kernels.columns):
        return None
    is_replayed = scene.model.has(LAUNCH) | scene.model.has(STREAM)
    rows = np.flatnonzero((work.operation < len(kernels)) & ~work.is_communication & is_replayed)
    used = devices[devices["device"].isin(work.device[rows])]
    multiprocessors = int(integers(used["multiprocessors"]).min(initial=1 << 20)) if len(used) else 0
    if multiprocessors <= 0 or len(rows) < _FEWEST_KERNELS * scene.steps:
        return None
    kernels = kernels.iloc[work.operation[rows]]
    blocks, threads = (kernels[axes].to_numpy(dtype=np.float64).prod(axis=1) for axes in (SHAPE[:3], SHAPE[3:]))
    length = scene.length[rows].astype(np.float64)
    # several blocks of a few warps count as one
    most = _quantile(np.ceil(blocks * np.minimum(threads / _BLOCK, 1)), length, _NEARLY_ALL)
    if 1 <= most <= multiprocessors / _LEAST_ROOM and _quantile(length, length, _NEARLY_ALL) <= _SHORT_NS:
        times = int(min(multiprocessors // most, _MOST_TIMES))
        return LargerSteps(times, int(most), multiprocessors, _repeat_host_code(scene, times))
    return _larger_products(scene, rows, kernels, blocks / multiprocessors, used)


def _larger_products(
    scene: Scene, rows: Ints, kernels: pd.DataFrame, blocks_per_sm: Floats, used: pd.DataFrame
) -> LargerSteps | None:
    """Return larger steps if products that fill little of the SMs take most of the time.

    A product with N times as many blocks takes 1 + (N - 1) * sqrt(filled) times as long: few warps already use more of
    an SM than their share. cuBLAS, 4 times as many rows (an H100, 2026-11-27): 2.0 to 2.9 times as long with 12 to 24 %
    filled, 2.8 with 48 %, 3.5 with 73 %; this says 2.0 to 2.5, 3.1 and 3.6.
    """
    capabilities = used["compute_capability"].astype("str").unique()
    if len(capabilities) != 1 or capabilities[0] not in _SM or not {*RESOURCES} <= set(kernels.columns):
        return None
    length = scene.length[rows].astype(np.float64)
    filled = blocks_per_sm / _resident_blocks(kernels, *_SM[capabilities[0]])
    is_product = are_named(kernels["name"], lambda name: _PRODUCT.match(label_of(name)))
    has_room = is_product & (filled * _LEAST_ROOM <= 1)
    if not length[has_room].sum() >= _MOSTLY * length.sum():
        return None
    most = float(filled[has_room].max())
    times = int(min(1 / most, _MOST_TIMES))
    growth = np.where(is_product, (times - 1) * np.sqrt(np.minimum(filled, 1)), np.maximum(times * filled - 1, 0))
    multiprocessors = int(integers(used["multiprocessors"]).min())
    edit = (*_repeat_host_code(scene, times), *shorten(scene, rows, -growth * length))
    blocks = round(float(blocks_per_sm[has_room].max()) * multiprocessors)
    return LargerSteps(times, blocks, multiprocessors, edit, most)


def _resident_blocks(kernels: pd.DataFrame, threads: int, blocks: int, shared_bytes: int) -> Floats:
    """Return how many blocks of each kernel an SM of this size holds at once; NaN if unknown."""
    warps = np.ceil(kernels[SHAPE[3:]].to_numpy(dtype=np.float64).prod(axis=1) / _WARP)
    registers, *shared = (kernels[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in RESOURCES)
    registers = np.where(registers > 0, registers, np.nan)
    limits = (
        np.full(len(kernels), float(blocks)),
        np.floor(threads / _WARP / np.maximum(warps, 1)),
        # a thread gets a multiple of eight registers
        np.floor(_REGISTERS / np.maximum(np.ceil(registers / 8) * 8 * _WARP * warps, 1)),
        np.floor(shared_bytes / (np.sum(shared, axis=0) + _RESERVED_BYTES)),
    )
    held: Floats = np.maximum(np.min(limits, axis=0), 1)
    return held


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return the value that this share of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


def _repeat_host_code(scene: Scene, times: int) -> Edit:
    """Return the edit that multiplies host code other than that of launches, and the bytes of copies."""
    work, table = scene.graph.work, scene.timeline.profile.recorded("memory_ops")
    longer = scene.in_calls[~is_launch_code(scene)[scene.in_calls]]
    longer = longer[scene.model.has(BEGIN)[longer] & ~np.isin(longer, request_waits(scene))]
    copies = np.flatnonzero((work.direction >= 0) & scene.model.has(LAUNCH))
    first_copy = int(scene.timeline.operations.of("kernels").sum())
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=0.0)[work.operation[copies] - first_copy]
    return (
        Change(scene.model.edges_of(BEGIN, longer), "earlier", (1 - times) * scene.gap[longer]),
        *shorten(scene, copies, (1 - times) * size / link_rate(scene.timeline)),
    )
