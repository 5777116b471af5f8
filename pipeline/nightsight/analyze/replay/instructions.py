"""The instruction mix of replayed launches: the kind of each SASS opcode."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import in_order, replays
from nightsight.analyze.replay.metrics import OPCODES, parts
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_INSTRUCTIONS

# the first match counts; a leading U is the uniform datapath
_KINDS: Final = {
    "tensor": r"[BDHIOQ]MMA|[BHIQ]GMMA|UTC\w*MMA",
    "control": r"BRA|BRX|BRXU|JMP|JMX|JMXU|CALL|RET|EXIT|KILL|BREAK|BPT|BSSY|BSYNC|BMOV|BAR|\w*DEPBAR|WARPSYNC|"
    r"WARPGROUP\w*|NANOSLEEP|YIELD|\w*MEMBAR|FENCE|\w*ERRBAR|SYNCS\w*|UCGABAR\w*|USETMAXREG|ACQBULK|PREEXIT|ELECT",
    "load_store": r"U?(?:LD|ST|ATOM|RED(?!UX))\w*|U?CCTL\w*|SU(?:LD|ST|RED|ATOM)\w*|T(?:EX|LD|XD|XQ|MML)\w*|UTMA\w*|"
    r"UBLK\w*|QSPC",
    "fp64": r"D(?:ADD|FMA|MUL|MNMX|SET)\w*",
    "fp16": r"H(?:ADD|FMA|MUL|MNMX|SET)\w*",
    "fp32": r"U?F(?:ADD|FMA|MUL|MNMX|SET|SEL|CHK|CMP|SWZADD)\w*|MUFU|RRO",
    "integer": r"U?(?:I(?:ADD|MAD|MUL|MNMX|ABS|DP|SET|SCADD|NEG|SAD|CMP)\w*|X?MAD|LOP\w*|LEA|SH[FLR]|BREV|POPC|FLO|"
    r"BMSK|BF[EI]|SGXT|V(?:I?ADD|I?ABSDIFF|I?MNMX|HMNMX)\w*)|C?REDUX",
}
_SHARES: Final = {
    **{kind: f"{kind}_pct" for kind in ("fp64", "fp32", "fp16", "integer", "tensor", "load_store", "control")},
    "other": "other_pct",
}


def ncu_instructions(timeline: Timeline) -> Table:
    """Return one row per replayed launch: instructions that its warps executed, and the percentage of each kind."""
    counts = parts(timeline, OPCODES)
    kinds = counts.assign(kind=kind_of(counts["instance"]))
    table = kinds.pivot_table("value", "launch", "kind", "sum", observed=True)
    table = table.reindex(columns=list(_SHARES), fill_value=0.0).fillna(0.0).astype("float64")
    total = table.sum(axis=1)
    shares = (100.0 * table.div(total, axis=0)).rename(columns=_SHARES).assign(instructions=total)
    shares = shares.reindex(pd.Index(replays(timeline)["launch"], name="launch"))
    # launches without opcodes keep their row, with NaN
    lacking = int(shares["instructions"].isna().sum())
    notes = (f"Launches whose opcodes were not counted (section InstructionStats): {lacking:,}.",)
    return Table(in_order(timeline, shares.reset_index())[NCU_INSTRUCTIONS.column_names], notes if lacking else ())


def kind_of(opcodes: "pd.Series[str]") -> "pd.Series[str]":
    """Return the kind of each opcode (without modifiers): a key of _SHARES, "other" for moves and conversions."""
    matches = [opcodes.str.fullmatch(pattern).to_numpy(dtype=bool) for pattern in _KINDS.values()]
    return pd.Series(np.select(matches, list(_KINDS), "other"), opcodes.index, dtype="str")


ANALYSES: Final = (Analysis(NCU_INSTRUCTIONS, ncu_instructions),)
