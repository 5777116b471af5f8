"""The links at the top of a page: its sections in groups, under titles short enough to stand side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "GPU": {
        "gpu_time": "busy time",
        "time_split": "where the time went",
        "gpu_gaps": "idle gaps",
        "cuda_gpu_kern_sum": "kernels",
        "memory_operations": "memory operations",
        "copy_sizes": "copy sizes",
        "slow_copies": "slow copies",
    },
    "Launches": {
        "launch_overhead": "overhead",
        "launch_phases": "figures",
        "launch_bound": "launch bound",
    },
    "Nsight Compute": {
        "ncu_kernels": "kernels",
        "ncu_rules": "rules",
        "ncu_roofline": "roofline",
        "ncu_stalls": "stalls",
        "ncu_instructions": "instructions",
        "ncu_source": "lines",
    },
    "Program": {
        "nvtx_ranges": "ranges",
        "range_iterations": "repetitions",
        "nvtx_marks": "marks",
        "cuda_api_sync": "synchronization",
        "osrt_sum": "OS calls",
        "setup_calls": "loading, allocation",
        "memory_usage": "memory use",
        "unified_memory": "unified memory",
        "gpu_metrics": "GPU metrics",
        "cuda_api_sum": "CUDA API",
        "cpu_ops": "operators",
    },
}
_PLACES: Final = {anchor: (group, text) for group, texts in _GROUPS.items() for anchor, text in texts.items()}


@dataclass(frozen=True)
class Links:
    """Links to adjacent sections, pairs of anchor and text; `group` is "" for a section that belongs to none."""

    group: str
    targets: tuple[tuple[str, str], ...]


def links(sections: Iterable[tuple[str, str]]) -> tuple[Links, ...]:
    """Group sections (anchor and title) that follow one another; one without a group keeps its title."""
    placed = [(anchor, *_PLACES.get(anchor, ("", title))) for anchor, title in sections]
    return tuple(
        Links(group, tuple((anchor, text) for anchor, _, text in members))
        for group, members in groupby(placed, lambda section: section[1])
    )
