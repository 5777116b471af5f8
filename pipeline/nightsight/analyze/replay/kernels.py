"""Figures of each replayed kernel: throughput, cache hit rates, occupancy, waves and coalescing."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.join import replays
from nightsight.analyze.replay.metrics import KERNEL, figures_of
from nightsight.events.timeline import Timeline
from nightsight.results.ncu import NCU_KERNELS
from nightsight.system.parallel import memoize
from nightsight.tables import Frame, nullable_integers
from nightsight.units import heading

_LIMITS: Final = {
    "limit_registers": "registers",
    "limit_shared": "shared memory",
    "limit_blocks": "blocks",
    "limit_warps": "warps",
    "limit_barriers": "barriers",
}
_PARTS: Final = ("load_sectors", "load_requests", "load_sectors_per_request", "sectors", "ideal_sectors")
# columns that ncu measured or that are derived from its metrics: sm_pct and all after it
_FIGURES: Final = NCU_KERNELS.column_names[NCU_KERNELS.column_names.index("sm_pct") :]
_DERIVED: Final = ("limiter", "tail_pct", "sectors_per_request", "excessive_pct")
_READ: Final = [name for name in _FIGURES if name not in (*_DERIVED, "tensor_pct")]
_TENSOR: Final = ["tensor_pct", "tensor_fp64_pct", "tensor_integer_pct"]
_WHOLE: Final = ("launches", "gpu_total_ns", "busiest_gpu_ns", "registers", "shared_bytes")
_WHOLE_ONES: Final = (
    "Registers, shared memory, waves and limits belong to single launches. For a range or graph, ncu prints those of "
    "one launch, and they are left out."
)
# waves are a quotient: a smaller fraction of a wave is rounding
_NO_PART: Final = 1e-6


@memoize
def ncu_kernels(timeline: Timeline) -> Table:
    """Return one row per replayed launch, in the order of `replays`: times in ns, rates in percent; NaN if unknown."""
    launches = replays(timeline)
    values = figures_of(timeline, [*_READ, *_TENSOR, *_LIMITS, *_PARTS]).loc[launches["launch"]]
    values = values.reset_index(drop=True)
    table = launches.join(values).assign(
        grid=_shape(launches, "grid"),
        block=_shape(launches, "block"),
        path=launches["range_path"].astype("str"),
        # a chip may have only one of these pipes, or a kernel may use only one: take the busiest
        tensor_pct=values[_TENSOR].max(axis=1),
        limiter=_limiter(values),
        tail_pct=_tail_share(values["waves"]),
        sectors_per_request=_sectors_per_request(values),
        excessive_pct=_share(values["sectors"] - values["ideal_sectors"], values["sectors"]),
    )
    table = table.assign(**{name: nullable_integers(table[name].to_numpy(dtype=np.float64)) for name in _WHOLE})
    is_kernel = launches["kind"] == KERNEL
    notes = _not_collected(table[is_kernel] if is_kernel.any() else table.iloc[:0])
    return Table(table[NCU_KERNELS.column_names], (*notes, *(() if is_kernel.all() else (_WHOLE_ONES,))))


def _shape(launches: Frame, kind: str) -> "pd.Series[str]":
    """Return a size as text, `256, 1, 1`; empty for ranges and graphs, which have none."""
    x, y, z = (launches[f"{kind}_{axis}"].astype("str") for axis in "xyz")
    return (x + ", " + y + ", " + z).where(launches["kind"] == KERNEL, "")


def _limiter(values: Frame) -> "pd.Series[str]":
    """Return the limiter of the number of blocks per SM; several names if they are equal."""
    limits = values[list(_LIMITS)]
    least, text = limits.min(axis=1), pd.Series("", index=values.index, dtype="str")
    for column, word in _LIMITS.items():
        extended = (text + ", ").where(text != "", "") + word
        text = text.where(limits[column] != least, extended)
    return text


def _tail_share(waves: "pd.Series[float]") -> "pd.Series[float]":
    """Return the share of a partial last wave in all waves, in percent: an upper bound of its cost."""
    partial = waves % 1
    # a few blocks are a partial wave too: ncu's CSV rounds them to 0.00
    is_partial = (partial < 1 - _NO_PART) & ((partial > _NO_PART) | (waves < _NO_PART))
    return (100.0 / (waves // 1 + 1)).where(is_partial, waves.where(waves.isna(), 0.0))


def _sectors_per_request(values: Frame) -> "pd.Series[float]":
    loads = values["load_requests"]
    return (values["load_sectors"] / loads.where(loads > 0)).fillna(
        values["load_sectors_per_request"].where(loads.isna())
    )


def _share(part: "pd.Series[Any]", total: "pd.Series[Any]") -> "pd.Series[Any]":
    return 100.0 * part / total.where(total > 0)


def _not_collected(table: Frame) -> tuple[str, ...]:
    """Return a note with the figures that no launch has."""
    texts = table["limiter"].replace("", None)
    absent = [heading(name) for name in _FIGURES if table.assign(limiter=texts)[name].isna().all()]
    if not absent or table.empty:
        return ()
    return (f"Not collected for any of these launches (ncu --set full collects most): {', '.join(absent)}.",)


ANALYSES: Final = (Analysis(NCU_KERNELS, ncu_kernels),)
