"""What Nsight Compute is asked for: which launches it replays, and how."""

import re
from dataclasses import dataclass
from typing import Final

from pipeline.names import NO_PEERS

COMMUNICATING: Final = "NCCL, NVSHMEM and other communicating kernels"


@dataclass(frozen=True)
class Replay:
    """Options of a replay. Without `names` and `pattern` all kernels are meant, but never those that communicate.

    `names` are mangled or base names (`base`); `pattern` is an expression over base names in their place; `nvtx_range`
    limits both to the time of a range. Of each kernel, grid and block `launches` are replayed after the first `skip`,
    and `most` kernels, grids and blocks in all, 0 for no limit; `expected` is how many launches there are likely to
    be, 0 if that is not known. Unless `is_chosen`, names are found in the timeline: the fewest that make up
    `coverage_pct` of the time.
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
    def is_whole(self) -> bool:
        """Whether ranges or graphs are replayed as one: no filter keeps a kernel out of them."""
        return self.graph_profiling == "graph" or self.replay_mode in ("range", "app-range")

    @property
    def most_launches(self) -> int:
        """How many launches are replayed at most; 0 for no limit."""
        return self.most * self.launches

    @property
    def name_filter(self) -> tuple[str, str]:
        """Which names are filtered, as --kernel-name-base says it, and the expression, which no peer's kernel matches.

        It is in ECMAScript's grammar, which has no flags. Where all kernels are meant, mangled names are compared:
        they have the namespaces (deep_ep::dispatch).
        """
        if self.names:
            return self.base, f"^{NO_PEERS}(?:{'|'.join(re.escape(name) for name in self.names)})$"
        return ("function" if self.pattern else "mangled"), f"^{NO_PEERS}.*(?:{self.pattern or '.'})"

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
