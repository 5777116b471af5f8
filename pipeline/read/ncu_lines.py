"""How ncu_report ties counters to machine instructions, and these to lines of source."""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.read.ncu_library import Native
from pipeline.read.ncu_model import clean
from pipeline.tables import TABLES

Frame = pd.DataFrame
Values = np.ndarray[Any, Any]

_EXECUTED: Final = "inst_executed"
_SAMPLES: Final = "smsp__pcsamp_sample_count"
_STALLED: Final = "smsp__pcsamp_warps_issue_stalled_"
# a warp that was selected did issue
_NO_STALLS: Final = re.compile(rf"{_STALLED}(?:selected|.*_not_issued)")


def instructions(actions: Sequence[Native]) -> Frame:
    """Return `kernel_lines` of all launches; none of a launch whose instructions were not counted."""
    frames = [_of_launch(action).assign(launch=launch) for launch, action in enumerate(actions)]
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else Frame(columns=list(TABLES["kernel_lines"]))


def _of_launch(action: Native) -> Frame:
    executed, samples = (_per_instruction(action, name) for name in (_EXECUTED, _SAMPLES))
    addresses = executed.index.union(samples.index).sort_values()
    if addresses.empty:
        return Frame()
    counts = {"instructions": executed, "samples": samples}
    frame = Frame({name: _aligned(count, addresses) for name, count in counts.items()})
    stall, stall_samples = _main_stall(action, addresses)
    return frame.assign(
        pc_bytes=(addresses - addresses[0]).to_numpy(),
        sass=[clean(action.sass_by_pc(address)).strip() for address in addresses.tolist()],
        stall=stall,
        stall_samples=stall_samples if len(samples) else None,
        **_source(action, addresses.tolist()),
    )


def _per_instruction(action: Native, name: str) -> "pd.Series[int]":
    """Return a metric per address; empty if it was not collected."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return pd.Series(dtype="int64")
    places, addresses = range(metric.num_instances()), metric.correlation_ids()
    index = pd.Index([addresses.as_uint64(place) for place in places], dtype="int64")
    counts = pd.Series([metric.as_uint64(place) for place in places], index=index, dtype="int64")
    return counts.groupby(level=0).sum()


def _aligned(counts: "pd.Series[int]", addresses: "pd.Index[int]") -> "pd.Series[Any] | None":
    """Return a count for each address: 0 where there is none, missing if nothing was counted."""
    return counts.reindex(addresses, fill_value=0).reset_index(drop=True) if len(counts) else None


def _main_stall(action: Native, addresses: "pd.Index[int]") -> tuple[Values, Values]:
    """For each address, the reason that most of its stalled samples had, and how many had it."""
    names = [name for name in action.metric_names() if name.startswith(_STALLED) and not _NO_STALLS.fullmatch(name)]
    columns = [_per_instruction(action, name).reindex(addresses, fill_value=0).to_numpy() for name in sorted(names)]
    if not columns:
        return np.full(len(addresses), "", dtype=object), np.zeros(len(addresses), dtype=np.int64)
    table, reasons = np.column_stack(columns), np.array(sorted(names), dtype=object)
    most = table.max(axis=1)
    reason = np.array([name.removeprefix(_STALLED) for name in reasons], dtype=object)[table.argmax(axis=1)]
    return np.where(most > 0, reason, ""), most


def _source(action: Native, addresses: Sequence[int]) -> dict[str, list[Any]]:
    """Return file (without its folders), line and text of the source of each address, as far as they are known."""
    contents = {name: clean(text).splitlines() for name, text in dict(action.source_files()).items()}
    found = [action.source_info(address) for address in addresses]
    places = [(info.file_name(), info.line()) if info else ("", 0) for info in found]
    return {
        "file": [re.split(r"[\\/]", clean(name))[-1] for name, _ in places],
        "line": [line or None for _, line in places],
        "source": [_line(contents.get(name, []), line) for name, line in places],
    }


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
