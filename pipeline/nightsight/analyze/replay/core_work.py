"""Counts the arithmetic of CUDA cores by type: ncu's FLOP counts, without FP16 instructions that only load a constant.

Compilers load constants with `HFMA2.MMA R1, -RZ, RZ, 1.875, 0`, which ncu counts as four operations. Only the operands
distinguish these from arithmetic.
"""

from typing import Final

import pandas as pd

from nightsight.analyze.replay.metrics import OPERATIONS, THREAD_OPCODES, figures_of, parts
from nightsight.events.timeline import Timeline
from nightsight.tables import Frame

# for a range or graph, ncu counts executed instructions of threads by opcode only
_OPCODES: Final = {"FP64": {"DADD": 1, "DMUL": 1, "DFMA": 2}, "FP32": {"FADD": 1, "FMUL": 1, "FFMA": 2}}
_HALF_FMA: Final = r"(?:@!?U?P\w+ )?HFMA2\b"
# 0 times 0 plus a constant
_CONSTANT: Final = _HALF_FMA + r"\S* R\d+, -?RZ, -?RZ, "


def core_rates(timeline: Timeline) -> Frame:
    """Return launch, kind ("FP32") and flop_per_s of CUDA cores; no row for a launch and kind without operations."""
    names = [name for kind in OPERATIONS.values() for name in kind]
    figures = figures_of(timeline, [*names, *(f"{name}_per_cycle" for name in names), "sm_hz", "replay_ns"])
    rows = []
    for kind, instructions in OPERATIONS.items():
        per_cycle = sum(figures[f"{name}_per_cycle"] * count for name, count in instructions.items())
        executed = sum(figures[name] * count for name, count in instructions.items())
        # the best source first: rate per cycle, count, opcodes
        rate = (per_cycle * figures["sm_hz"]).fillna(executed / figures["replay_ns"] * 1e9)
        rate = rate * _real_half(timeline, figures) if kind == "FP16" else rate.fillna(_by_opcode(timeline, kind))
        rows.append(Frame({"launch": figures.index, "kind": kind, "flop_per_s": rate.to_numpy()}))
    work = pd.concat(rows, ignore_index=True)
    return work[work["flop_per_s"] > 0]


def _by_opcode(timeline: Timeline, kind: str) -> "pd.Series[float]":
    """Return the flop_per_s of launches from the opcodes that their threads executed."""
    executed = parts(timeline, THREAD_OPCODES)
    operations = executed["instance"].map(_OPCODES[kind]).astype("float64").fillna(0.0)
    flops = (executed["value"] * operations).groupby(executed["launch"]).sum()
    rates: pd.Series[float] = flops / figures_of(timeline, ["replay_ns"])["replay_ns"] * 1e9
    return rates


def _real_half(timeline: Timeline, figures: Frame) -> "pd.Series[float]":
    """Return the share of FP16 operations that are real arithmetic, not loads of constants; NaN if unknown."""
    lines = timeline.profile.recorded("kernel_lines")
    lines = lines.astype({"sass": "str"}).assign(executed=lines["instructions"].fillna(0).astype("int64"))
    counts = [
        lines[lines["sass"].str.match(pattern)].groupby("launch")["executed"].sum()
        for pattern in (_HALF_FMA, _CONSTANT)
    ]
    fused, constant = (count.reindex(figures.index).where(figures.index.isin(lines["launch"])) for count in counts)
    names = [name for name in OPERATIONS["FP16"] if name != "hfma"]
    other = sum(figures[name].fillna(figures[f"{name}_per_cycle"]) * OPERATIONS["FP16"][name] for name in names)
    fmas = figures["hfma"].fillna(figures["hfma_per_cycle"]) * OPERATIONS["FP16"]["hfma"]
    share = 1 - (constant.fillna(0) / fused).where(fused > 0)
    real: pd.Series[float] = ((other + fmas * share.where(fmas > 0, 1.0)) / (other + fmas)).where(other + fmas > 0)
    return real


def has_known_work(timeline: Timeline) -> "pd.Series[bool]":
    """Return whether the arithmetic on CUDA cores of each launch (index) was counted."""
    figures = figures_of(timeline, ["ffma", "ffma_per_cycle"])
    is_known: pd.Series[bool] = figures.notna().any(axis=1)
    return is_known | figures.index.isin(parts(timeline, THREAD_OPCODES)["launch"])


def unknown_work_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return notes on the number of launches whose arithmetic on CUDA cores is unknown, and the reason."""
    figures, opcodes = figures_of(timeline, ["hfma", "hfma_per_cycle"]), parts(timeline, THREAD_OPCODES)
    half = figures["hfma"].fillna(figures["hfma_per_cycle"])
    halves = opcodes[opcodes["instance"].str.startswith("HFMA2") & (opcodes["value"] > 0)]["launch"]
    does_half = (half > 0) | (half.isna() & figures.index.isin(halves))
    sampled = timeline.profile.recorded("kernel_lines")["launch"]
    notes = {
        "Launches whose arithmetic on CUDA cores was not counted (sections SpeedOfLight_RooflineChart and "
        "InstructionStats): {:,}.": int((~has_known_work(timeline)).sum()),
        "Launches whose FP16 arithmetic on CUDA cores is not known: {:,}. Compilers also load constants with these "
        "instructions, and only their operands tell (section SourceCounters).": int(
            (does_half & ~figures.index.isin(sampled)).sum()
        ),
    }
    return tuple(text.format(count) for text, count in notes.items() if count)
