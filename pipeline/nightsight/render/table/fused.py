"""The operators and lines that kernels of torch.compile fuse, as columns of *Kernel time*."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from nightsight.model.report import Result, find
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, FUSED_KERNELS

FUSED: Final = ("operators", "places")


def with_fused(results: Sequence[Result]) -> Sequence[Result]:
    """Add operators and places to *Kernel time* if some of its kernels fuse operators."""
    kernels, fused = find(results, CUDA_GPU_KERN_SUM.name), find(results, FUSED_KERNELS.name)
    if kernels is None or fused is None or not len(kernels.rows) or not set(FUSED) < set(fused.rows.columns):
        return results
    texts = fused.rows.assign(name=fused.rows["name"].astype("str")).drop_duplicates("name").set_index("name")
    of_kernels = texts[[*FUSED]].reindex(kernels.rows["name"].astype("str")).set_index(kernels.rows.index)
    if not of_kernels.notna().any(axis=None):
        return results
    table = pd.concat([kernels.rows, of_kernels.astype("str").where(of_kernels.notna(), "")], axis=1)
    note = "Operators and places: what kernels of torch.compile fuse; for a name of several kernels, of all of them."
    with_texts = replace(kernels, table=table, notes=(*kernels.notes, note))
    return tuple(with_texts if result is kernels else result for result in results)
