"""Finds the limiter of each replayed kernel, and the one change that would gain most, bounded by that limiter.

A change that does not reduce the work gains at most the headroom of the busiest unit. Two changes take work from a
unit: tensor cores from the FP32 pipe, and coalesced accesses from the caches. These are bounded by the other units.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.instructions import kind_of as kind_of_opcode
from nightsight.analyze.replay.join import replays
from nightsight.analyze.replay.kernels import ncu_kernels
from nightsight.analyze.replay.metrics import KERNEL, OPCODES, parts
from nightsight.analyze.replay.roofline import ncu_roofline, ncu_roofs
from nightsight.events.kernel_kinds import is_named_product
from nightsight.events.peaks import MEMORIES, OF_TENSOR_PEAK
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Floats
from nightsight.results.ncu import NCU_LIMITS
from nightsight.system.parallel import memoize
from nightsight.tables import Frame

__all__ = ["ANALYSES", "MEMORIES", "ncu_limits"]


# at or above this utilization, a unit is practically at its peak: ncu's own rules use the same limit
_AT_ROOF_PCT: Final = 80.0
# smaller gains are not reported; a last wave costs less than it seems, because blocks do not end at the same time
_LEAST_PCT: Final = 3.0
_LEAST_TAIL_PCT: Final = 10.0
# a kernel waits for latencies, not for a unit, if no unit is busier than this
_WAITS_PCT: Final = 60.0
# among units this close to the busiest one, the first in the list is named
_CLOSE: Final = 0.97
_FP32_BUSY_PCT: Final = 40.0
_TENSOR_IDLE_PCT: Final = 5.0
_EXCESSIVE_PCT: Final = 30.0
_FEW_WARPS_PCT: Final = 50.0
_NEARLY_ALL: Final = 0.8
_FILLED_SHARE: Final = 0.5
# the shortest time that a launch can reach with more blocks
_LEAST_NS: Final = 6_000.0
# products of matrices, written by hand or not, hardly do other arithmetic than FFMA, on operands from shared memory
_FFMA_SHARE: Final = 0.9
_FP32_SHARE: Final = 0.5
# waves are a quotient: a smaller fraction of a wave is rounding
_NO_PART: Final = 1e-6
_FIGURES: Final = (
    *("replay_ns", "sm_pct", "memory_pct", "dram_pct", "l2_pct", "l1_pct", "tensor_pct", "occupancy_pct"),
    *("theoretical_pct", "waves", "sectors_per_request", "excessive_pct"),
)


class _PossibleGain(NamedTuple):
    """The possible gain of a launch in percent (NaN: it does not apply), and the figures behind it."""

    rule: str
    gain: Floats
    reason: list[str]


@memoize
def ncu_limits(timeline: Timeline) -> Table:
    """Return one row per replayed launch, in the order of `replays`: its limiting unit, and the possible gain."""
    kernels = ncu_kernels(timeline).frame
    figures = {name: kernels[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in _FIGURES}
    fp32 = _fp32(timeline, kernels)
    unit, used = _limiting(figures, fp32)
    changes = [
        _tensor_cores(timeline, kernels, figures, fp32),
        _uncoalesced(figures, unit),
        _small_grid(timeline, kernels, figures, used),
        _tail(figures, used),
        *_few_warps(figures, used, kernels["limiter"].astype("str").to_numpy(dtype=object)),
    ]
    # without a known limiting unit, nothing bounds a gain
    is_known = ~np.isnan(used)
    gains = np.array([np.where((change.gain >= _LEAST_PCT) & is_known, change.gain, -1.0) for change in changes])
    best, gain = gains.argmax(axis=0), gains.max(axis=0)
    best_changes = [changes[place] if most > 0 else None for place, most in zip(best, gain, strict=True)]
    rules = [change.rule if change else "" for change in best_changes]
    reasons = [change.reason[row] if change else "" for row, change in enumerate(best_changes)]
    for row in np.flatnonzero((gain <= 0) & (used >= _AT_ROOF_PCT)):
        remedy = "only less traffic helps" if unit[row] in MEMORIES else "only less work for it helps"
        rules[row], reasons[row] = "at_roof", f"{used[row]:.0f} % of {unit[row]}: {remedy}"
    table = kernels[["launch", "name", "gpu_pct", "replay_ns"]].assign(
        unit=pd.Series(unit, kernels.index, dtype="str"),
        used_pct=used,
        left_pct=100.0 - used,
        rule=pd.Series(rules, kernels.index, dtype="str"),
        gain_pct=np.where(gain > 0, gain, np.nan),
        reason=pd.Series(reasons, kernels.index, dtype="str"),
    )
    return Table(table[NCU_LIMITS.column_names])


def _limiting(figures: Mapping[str, Floats], fp32: Floats) -> "tuple[np.ndarray[Any, Any], Floats]":
    """Return the name and the utilization (percent) of the unit that each launch keeps busiest; NaN if unknown.

    ncu's figure for memory includes L1, L2 and DRAM; its figure for SMs includes all of their pipes.
    """
    several = np.fmax(np.fmax(figures["dram_pct"], figures["l2_pct"]), figures["l1_pct"])
    memory = np.where(np.isnan(figures["memory_pct"]), several, figures["memory_pct"])
    tensor = figures["tensor_pct"]
    compute = np.fmax(figures["sm_pct"], tensor)
    used = np.fmax(memory, compute)
    in_memory = np.nan_to_num(memory, nan=-1.0) > np.nan_to_num(compute, nan=-1.0)
    names: list[tuple[Flags, str]] = [
        ((tensor >= _CLOSE * used) & (tensor > 0), "the tensor pipe"),
        *((in_memory & (figures[part] >= _CLOSE * memory), name) for part, name in _PARTS.items()),
        (in_memory, "memory"),
        (fp32 >= _FP32_BUSY_PCT, "the FP32 pipe"),
        (~np.isnan(compute), "the SMs"),
    ]
    unit = np.select([flags for flags, _ in names], [name for _, name in names], "")
    return unit, np.clip(np.where(names[0][0], tensor, used), 0.0, 100.0)


_PARTS: Final = {"dram_pct": "DRAM", "l2_pct": "L2", "l1_pct": "L1"}


def _fp32(timeline: Timeline, kernels: Frame) -> Floats:
    """Return the FP32 arithmetic of each launch in percent of the roof; 0 if it has none, or if it is unknown."""
    points = ncu_roofline(timeline).frame
    of_launch = points[points["kind"] == "FP32"].set_index("launch")["peak_pct"]
    shares: Floats = np.nan_to_num(kernels["launch"].map(of_launch).to_numpy(dtype=np.float64))
    return shares


def _tensor_cores(timeline: Timeline, kernels: Frame, figures: Mapping[str, Floats], fp32: Floats) -> _PossibleGain:
    """Let tensor cores do products in FP32; they need the same from DRAM, but not from the caches."""
    roofs = ncu_roofs(timeline).frame
    peaks = roofs.pivot_table("flop_per_s", "device", "roof", "max").reindex(columns=["FP32", "tensor TF32"])
    ratio = kernels["device"].map(peaks["tensor TF32"] / peaks["FP32"]).to_numpy(dtype=np.float64)
    applies = (fp32 >= _FP32_BUSY_PCT) & (np.nan_to_num(figures["tensor_pct"]) < _TENSOR_IDLE_PCT)
    applies &= _multiplies(timeline, kernels)
    # NaN if the roof is unknown: then no gain is predicted
    gain = 100.0 * (1.0 - np.maximum(1.0 / (OF_TENSOR_PEAK * ratio), np.nan_to_num(figures["dram_pct"]) / 100.0))
    reason = [f"{share:.0f} % of the FP32 roof, tensor pipe idle" for share in fp32]
    return _PossibleGain("tensor_cores", np.where(applies, gain, np.nan), reason)


def _multiplies(timeline: Timeline, kernels: Frame) -> Flags:
    """Return which launches multiply matrices: by name, or because they do little else than FFMA on shared memory."""
    is_named = np.array([is_named_product(name) for name in kernels["name"]], dtype=bool)
    counts = parts(timeline, OPCODES)
    is_fp32 = kind_of_opcode(counts["instance"]) == "fp32"
    total, fp32, fused, shared = (
        kernels["launch"]
        .map(counts[is_counted].groupby("launch")["value"].sum())
        .fillna(0.0)
        .to_numpy(dtype=np.float64)
        for is_counted in (counts["value"] > 0, is_fp32, counts["instance"] == "FFMA", counts["instance"] == "LDS")
    )
    is_mix: Flags = (fused > 0) & (fused >= _FFMA_SHARE * fp32) & (fp32 >= _FP32_SHARE * total) & (shared > 0)
    return is_named | is_mix


def _uncoalesced(figures: Mapping[str, Floats], unit: "np.ndarray[Any, Any]") -> _PossibleGain:
    """Let a launch that waits for a cache fetch only the requested bytes."""
    excess = np.nan_to_num(figures["excessive_pct"])
    applies = (excess >= _EXCESSIVE_PCT) & np.isin(unit, MEMORIES[1:]) & (figures["memory_pct"] >= _WAITS_PCT)
    other_units = np.fmax(np.fmax(figures["sm_pct"], figures["dram_pct"]), figures["tensor_pct"])
    gain = 100.0 - np.fmax(100.0 - excess, other_units)
    # loads may be coalesced while stores are not
    loads = [f", {count:.0f} sectors per load" if count > 0 else "" for count in figures["sectors_per_request"]]
    reason = [f"{share:.0f} % of the sectors are needless{load}" for share, load in zip(excess, loads, strict=True)]
    return _PossibleGain("uncoalesced", np.where(applies, gain, np.nan), reason)


def _small_grid(timeline: Timeline, kernels: Frame, figures: Mapping[str, Floats], used: Floats) -> _PossibleGain:
    """Let a launch with fewer blocks than half of the SMs use all SMs."""
    launches = replays(timeline)
    blocks = (launches["grid_x"] * launches["grid_y"] * launches["grid_z"]).to_numpy(dtype=np.float64)
    devices = timeline.profile.recorded("devices").drop_duplicates("device").set_index("device")
    sms = kernels["device"].map(devices["multiprocessors"]).to_numpy(dtype=np.float64, na_value=np.nan)
    share = blocks / np.where(sms > 0, sms, np.nan)
    replay = figures["replay_ns"]
    floor = np.fmin(_LEAST_NS / np.where(replay > 0, replay, np.nan), 1.0)
    applies = (launches["kind"] == KERNEL).to_numpy(dtype=bool) & (share > 0) & (share < _FILLED_SHARE)
    gain = np.fmin(100.0 * (1.0 - np.fmax(share, floor)), 100.0 - used)
    reason = [f"{count:,.0f} blocks on {number:,.0f} SMs" for count, number in zip(blocks, sms, strict=True)]
    return _PossibleGain("small_grid", np.where(applies, gain, np.nan), reason)


def _tail(figures: Mapping[str, Floats], used: Floats) -> _PossibleGain:
    """Let the last wave of blocks fill the GPU like the others."""
    waves = figures["waves"]
    whole_waves = np.ceil(waves - _NO_PART)
    gain = np.fmin(100.0 * (1.0 - waves / np.where(whole_waves > 1, whole_waves, np.nan)), 100.0 - used)
    reason = [f"{count:.2f} waves of blocks" for count in waves]
    return _PossibleGain("tail", np.where((whole_waves > 1) & (gain >= _LEAST_TAIL_PCT), gain, np.nan), reason)


def _few_warps(figures: Mapping[str, Floats], used: Floats, limiter: "np.ndarray[Any, Any]") -> Iterator[_PossibleGain]:
    """Let a launch that waits for latencies run more warps, if a resource of its blocks limits them to few."""
    theory = figures["theoretical_pct"]
    waits = (used < _WAITS_PCT) & (theory < _FEW_WARPS_PCT) & ~(figures["tensor_pct"] >= _TENSOR_IDLE_PCT)
    # a grid that does not fill the SMs gains nothing from a higher limit
    waits &= (figures["waves"] >= 1) & (figures["occupancy_pct"] >= _NEARLY_ALL * theory)
    gain = 100.0 - np.fmax(used, theory)
    for rule, word in (("registers", "registers"), ("shared_memory", "shared memory")):
        reason = [f"{share:.0f} % of the warps fit, limited by {word}" for share in theory]
        yield _PossibleGain(rule, np.where(waits & (limiter == word), gain, np.nan), reason)


ANALYSES: Final = (Analysis(NCU_LIMITS, ncu_limits),)
