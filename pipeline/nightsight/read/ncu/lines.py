"""Turns counters per address into `kernel_lines`: one row per machine instruction, with its source line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.read.ncu.dump import EXECUTED, SAMPLES, STALLED
from nightsight.read.ncu.model import clean
from nightsight.tables import NULLABLE, TABLES, Frame

Values = np.ndarray[Any, Any]

# states that are not stalls: `selected` warps issued an instruction; `_not_issued` metrics count parts of other metrics
_NO_STALL: Final = re.compile(rf"{STALLED}(?:selected|.*_not_issued)")


def instructions(launches: Sequence[Mapping[str, Any]]) -> Frame:
    """Return `kernel_lines` for dumped launches; launches without instruction counters have no rows."""
    frames = [_of_launch(launch).assign(launch=number) for number, launch in enumerate(launches) if launch["code"]]
    return pd.concat(frames, ignore_index=True) if frames else Frame(columns=list(TABLES["kernel_lines"]))


def _of_launch(launch: Mapping[str, Any]) -> Frame:
    addresses, sass, files, lines, source = zip(*launch["code"], strict=True)
    index = pd.Index(np.array(addresses, dtype=np.int64), dtype="int64")
    counts = {name: _per_address(pairs, index) for name, pairs in launch["counters"].items() if pairs}
    stall, stall_samples = _main_stall(counts, len(index))
    return Frame(
        {
            "file": [re.split(r"[\\/]", clean(file))[-1] for file in files],
            "line": pd.array([line or None for line in lines], dtype=NULLABLE),
            "source": [clean(text).strip() for text in source],
            "pc_bytes": (index - index[0]).to_numpy(),
            "sass": [clean(text).strip() for text in sass],
            "samples": counts.get(SAMPLES),
            "stall": stall,
            "stall_samples": stall_samples if SAMPLES in counts else None,
            "instructions": counts.get(EXECUTED),
        }
    )


def _per_address(pairs: Sequence[Sequence[int]], addresses: "pd.Index[int]") -> Values:
    """Return the count at each address, 0 if it has none."""
    counts = pd.DataFrame(np.array(pairs, dtype=np.int64), columns=["address", "count"])
    return counts.groupby("address")["count"].sum().reindex(addresses, fill_value=0).to_numpy(dtype=np.int64)


def _main_stall(counts: Mapping[str, Values], size: int) -> tuple[Values, Values]:
    """Return for each address the most frequent stall reason, and its number of samples."""
    names = sorted(name for name in counts if name.startswith(STALLED) and not _NO_STALL.fullmatch(name))
    if not names:
        return np.full(size, "", dtype=object), np.zeros(size, dtype=np.int64)
    table = np.column_stack([counts[name] for name in names])
    samples = table.max(axis=1)
    reasons = np.array([clean(name.removeprefix(STALLED)) for name in names], dtype=object)
    return np.where(samples > 0, reasons[table.argmax(axis=1)], ""), samples
