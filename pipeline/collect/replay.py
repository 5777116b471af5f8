"""What Nsight Compute is asked for: which launches it replays, and how."""

from dataclasses import dataclass
from typing import Final

COMMUNICATING: Final = "NCCL and NVSHMEM kernels"


@dataclass(frozen=True)
class Replay:
    """Options of a replay. Without `names` and `pattern` all kernels are meant, but never those that communicate.

    `names` are mangled or base names (`base`); `pattern` is an expression over base names in their place; `nvtx_range`
    limits both to the time of a range. Of each kernel, grid and block `launches` are replayed after the first `skip`;
    `most` launches in all, 0 for no limit; `expected` is how many there are likely to be, 0 if that is not known.
    Unless `is_chosen`, names are found in the timeline: the fewest that make up `coverage_pct` of the time.
    """

    coverage_pct: float = 90.0
    most: int = 12
    launches: int = 1
    names: tuple[str, ...] = ()
    base: str = "function"
    pattern: str = ""
    nvtx_range: str = ""
    everything: bool = False
    skip: int = 0
    expected: int = 0
    budget_s: float = 300.0
    collected: tuple[str, ...] = ("--set", "full")
    clock_control: str = "none"
    cache_control: str = "all"
    replay_mode: str = "kernel"
    graph_profiling: str = "node"

    @property
    def is_chosen(self) -> bool:
        """Whether the user said what to replay."""
        return bool(self.pattern or self.nvtx_range or self.everything)

    @property
    def described(self) -> dict[str, str]:
        """What a reader of the figures must know of how they were measured."""
        return {
            "ncu collects": " ".join(self.collected).replace("--", ""),
            "ncu clock control": self.clock_control,
            "ncu cache control": self.cache_control,
            "ncu replay mode": self.replay_mode,
            "ncu graph profiling": self.graph_profiling,
            "ncu never replays": COMMUNICATING,
        }
