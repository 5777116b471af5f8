"""Work of tensor cores by type, which ncu's own FLOP counts leave out.

It comes from the counters `sm__ops_path_tensor_*` (a multiply-add is two operations, as in FLOPs). For launches without
these it comes from the executed opcodes, whose names tell the shape: HMMA.16816 multiplies 16x16 by 16x8 matrices.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.replay.metrics import OPCODES_IN_FULL, TENSOR, figures_of, matching, parts
from nightsight.events.timeline import Timeline
from nightsight.system.parallel import memoize
from nightsight.tables import Frame

_KEYS: Final = ["launch", "type"]
_PEAK: Final = ".peak_sustained"
# GMMA: each of the four warps of a warpgroup executes, and counts, the one instruction that they do together
_OPCODE: Final = (
    r"^(?P<letter>[BDHIOQ])(?P<group>G?)MMA\b.*?"
    r"\.(?:(?P<gm>\d+)x(?P<gn>\d+)x(?P<gk>\d+)|(?P<m>8|16)(?P<n>8)(?P<k>\d+))(?:\.|$)"
)
_TENSOR_OPCODE: Final = r"^(?:[BDHIOQ]G?MMA|UTC\w*MMA)\b"
_TYPES: Final = {"B": "int1", "D": "fp64", "H": "fp16", "I": "int8", "O": "fp4", "Q": "fp8"}
# on cc 7.0 a warp does four products at once, in four steps (HMMA instructions), or two if it accumulates in FP16
_HALF_AS_MANY: Final = r"^HMMA\.884\.F16\b"
_MARKED_TYPES: Final = {r"\.BF16\b": "bf16", r"\.TF32\b": "tf32", r"\.[SU]4\b": "int4"}
_ROUNDING: Final = 0.01


def tensor_rates(timeline: Timeline) -> Frame:
    """Return launch, type ("bf16") and flop_per_s of tensor cores; no row for launches that did not use them."""
    counters, executed = _by_counters(timeline), _by_opcodes(timeline)
    executed = executed[~executed["launch"].isin(_counters(timeline)["launch"])]
    rates = pd.concat([counters, executed], ignore_index=True)
    return rates[rates["flop_per_s"] > 0].reset_index(drop=True)


def tensor_peaks(timeline: Timeline) -> Frame:
    """Return launch, type and the peak flop_per_s, at the launch's clock, of the fastest instruction for dense data."""
    rows = matching(timeline, TENSOR)
    rows = rows[(rows["rate"] == _PEAK) & (rows["sparsity"] != "_sparsity_on")]
    # a peak that does not mention sparsity is that of sparse matrices: use it only if there is no other
    dense = rows["sparsity"] == "_sparsity_off"
    rows = rows[dense | ~rows["type"].isin(rows["type"][dense])]
    clock = figures_of(timeline, ["sm_hz"])["sm_hz"]
    rows = rows.assign(flop_per_s=rows["value"] * rows["launch"].map(clock))
    return rows.groupby(_KEYS)["flop_per_s"].max().reset_index()


def has_known_work(timeline: Timeline) -> "pd.Series[bool]":
    """Return for each launch (index) whether the work of tensor cores is known."""
    launches = timeline.profile.table("profiled_launches")["launch"]
    opcodes = parts(timeline, OPCODES_IN_FULL)
    tensor = opcodes[opcodes["instance"].str.contains(_TENSOR_OPCODE)]
    shapeless = tensor["launch"][_flops(tensor["instance"]).isna()]
    has_shapes = launches.isin(opcodes["launch"]) & ~launches.isin(shapeless)
    return (launches.isin(_counters(timeline)["launch"]) | has_shapes).set_axis(launches.to_numpy())


def unknown_work_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return notes: for how many launches the tensor core work is not known, and how many multiply sparse matrices."""
    counters = _counters(timeline)
    sparse = counters["launch"][(counters["sparsity"] == "_sparsity_on") & (counters["flop_per_s"] > 0)]
    notes = {
        "Launches whose tensor-core work is not known: {:,}. Neither sm__ops_path_tensor metrics (section "
        "SpeedOfLight_HierarchicalTensorRooflineChart) nor opcodes that tell it were collected.": int(
            (~has_known_work(timeline)).sum()
        ),
        "Launches that multiply sparse matrices: {:,}. Zeros count as work, so these can exceed the roof, which is for "
        "dense matrices.": sparse.nunique(),
    }
    return tuple(text.format(count) for text, count in notes.items() if count)


@memoize
def _counters(timeline: Timeline) -> Frame:
    """Return launch, counter, op, type, sparsity and flop_per_s, from counts, rates per cycle or rates per second."""
    rows = matching(timeline, TENSOR)
    rows = rows[rows["rate"] != _PEAK].fillna({"op": "", "sparsity": "", "rate": ""})
    clock, time = figures_of(timeline, ["sm_hz", "replay_ns"]).loc[rows["launch"]].to_numpy().T
    per_cycle, per_s = (rows["rate"].to_numpy() == rate for rate in (".per_cycle_elapsed", ".per_second"))
    factor = np.where(per_cycle, clock, np.where(per_s, 1.0, 1e9 / np.where(time > 0, time, np.nan)))
    counter = rows["metric"].astype("str").str.replace(r"\..*", "", regex=True)
    rows = rows.assign(counter=counter, flop_per_s=rows["value"] * factor)
    # the same counter in several forms is the same work: take one, do not add them up
    return rows.groupby(["launch", "counter", "op", "type", "sparsity"])["flop_per_s"].max().reset_index()


def _by_counters(timeline: Timeline) -> Frame:
    """Return launch, type and flop_per_s from ncu's counters.

    ncu can count a type in three ways: by instruction, by sparsity, and as a whole. The largest sum is the most
    complete.
    """
    counters = _counters(timeline)
    way = np.where(counters["op"] != "", "instruction", np.where(counters["sparsity"] != "", "sparsity", "whole"))
    sums = counters.assign(way=way).groupby([*_KEYS, "way"])["flop_per_s"].sum()
    rates = sums.groupby(_KEYS).max().reset_index()
    return _without_parts(rates.pivot_table("flop_per_s", "launch", "type"))


def _without_parts(table: Frame) -> Frame:
    """Subtract from counters of several types (fp4_fp6) what the counters of some of these types hold; return rows."""
    types = {str(name): frozenset(str(name).split("_")) for name in table.columns}
    # from few types to many, so that each subtrahend no longer contains others
    for name in sorted(types, key=lambda name: (len(types[name]), name)):
        rest = table[name] - table[[other for other in types if types[other] < types[name]]].sum(axis=1)
        table = table.assign(**{name: rest.where(rest > _ROUNDING * table[name])})
    rows = table.reset_index().melt("launch", var_name="type", value_name="flop_per_s").dropna()
    return rows.astype({"type": "str", "flop_per_s": "float64"})


def _by_opcodes(timeline: Timeline) -> Frame:
    executed = parts(timeline, OPCODES_IN_FULL)
    executed = executed[executed["instance"].str.contains(_TENSOR_OPCODE)]
    seconds = figures_of(timeline, ["replay_ns"])["replay_ns"] / 1e9
    rate = executed["value"] * _flops(executed["instance"]) / executed["launch"].map(seconds)
    executed = executed.assign(type=_types(executed["instance"]), flop_per_s=rate)
    return executed.groupby(_KEYS)["flop_per_s"].sum().reset_index()


def _flops(opcodes: "pd.Series[str]") -> "pd.Series[float]":
    """Return the operations of one warp per execution of each opcode; NaN if it names no shape (UTCHMMA of cc 10)."""
    shapes = opcodes.str.extract(_OPCODE)
    m, n, k = (shapes[f"g{axis}"].fillna(shapes[axis]).astype("float64") for axis in "mnk")
    flops: pd.Series[float] = 2 * m * n * k / np.where(shapes["group"] == "G", 4, 1)
    return flops.where(~opcodes.str.contains(_HALF_AS_MANY), 2 * flops)


def _types(opcodes: "pd.Series[str]") -> "pd.Series[str]":
    types = opcodes.str.slice(0, 1).map(_TYPES).astype("str")
    for mark, name in _MARKED_TYPES.items():
        types = types.mask(opcodes.str.contains(mark), name)
    return types
