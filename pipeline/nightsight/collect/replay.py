"""What Nsight Compute is asked for: which launches it replays, and how."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nightsight.events.kernel_names import NO_PEERS
from nightsight.model import Finding

COMMUNICATING: Final = "NCCL, NVSHMEM and other communicating kernels"
GRAPHS: Final = ("graph",)
"""What ncu calls all CUDA graphs that it replays as a whole."""


@dataclass(frozen=True)
class Replay:
    """Options of a replay. Without `names` and `pattern` all kernels are meant, but never those that communicate.

    `names` are mangled or base names (`base`); `pattern` is an expression over base names in their place; `nvtx_range`
    limits both to the time of a range. Of each kernel, grid and block `launches` are replayed after the first `skip`,
    and `most` kernels, grids and blocks in all, 0 for no limit; `expected` is how many launches there are likely to
    be, 0 if that is not known. Unless `is_chosen`, names are found in the timeline: the fewest that make up
    `coverage_pct` of the time. Ranges and graphs as a whole are not chosen by name: `launches` of them are replayed.
    `ranges` are the names that a range can have, as far as they are known.
    """

    coverage_pct: float = 90.0
    most: int = 12
    launches: int = 1
    names: tuple[str, ...] = ()
    base: str = "function"
    pattern: str = ""
    nvtx_range: str = ""
    ranges: tuple[str, ...] = ()
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
    def is_range(self) -> bool:
        """Whether ranges are replayed as one: those that NVTX or the program's cudaProfilerStart and Stop mark."""
        return self.replay_mode in ("range", "app-range")

    @property
    def is_whole(self) -> bool:
        """Whether ranges or graphs are replayed as one: no filter keeps a kernel out of them."""
        return self.graph_profiling == "graph" or self.is_range

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
    def chosen(self) -> tuple[str, ...]:
        """The options by which ncu chooses what it replays: it refuses filters of kernels where it replays ranges."""
        options = {"--replay-mode": self.replay_mode, "--launch-count": str(self.launches)}
        if self.skip:
            options["--launch-skip"] = str(self.skip)
        if not self.is_range:
            base, names = self.name_filter
            options |= {"--graph-profiling": self.graph_profiling, "--kernel-name-base": base}
            options["--kernel-name"] = f"regex:{names}"
            # every launch of a graph is a configuration of its own to ncu
            if self.names != GRAPHS:
                options["--filter-mode"] = "per-launch-config"
        return tuple(word for option in options.items() for word in option)

    @property
    def _selection(self) -> str:
        named = f" whose name has {self.pattern}" if self.pattern else ""
        inside = f" in the range {self.nvtx_range}" if self.nvtx_range else ""
        if self.is_range:
            return f"{self.launches} of {self.nvtx_range or 'what cudaProfilerStart begins'}, as a whole"
        if self.is_chosen:
            most = f", at most {self.most_launches} launches" if self.most else ""
            return f"kernels{named}{inside}, {self.launches} of each grid and block{most}"
        if self.graph_profiling == "graph":
            return f"{self.launches} of the CUDA graphs, as a whole"
        share = f"the fewest kernels that take {self.coverage_pct:.4g} % of the time"
        return f"{share}, {self.launches} of each grid and block, at most {self.most_launches} launches"

    @property
    def described(self) -> dict[str, str]:
        """What a reader of the figures must know of how they were measured."""
        return {
            "ncu replays": self._selection,
            "ncu collects": " ".join(self.collected).replace("--", ""),
            "ncu clock control": self.clock_control,
            "ncu cache control": self.cache_control,
            "ncu replay mode": self.replay_mode,
            "ncu graph profiling": self.graph_profiling,
            "ncu never replays": COMMUNICATING,
        }


def uncollected(replay: Replay, metrics: Iterable[str]) -> tuple[Finding, ...]:
    """Tell of metrics that were asked for and are not among those of ncu's report, which leaves out unknown ones."""
    known = tuple(metrics)
    lists = zip(replay.collected[::2], replay.collected[1::2], strict=True)
    asked = [name for option, value in lists if option == "--metrics" for name in value.split(",") if ":" not in name]
    absent = [name for name in asked if not any(f"{other}.".startswith(f"{name}.") for other in known)]
    if not absent:
        return ()
    title = f"ncu did not collect {len(absent)} of {len(asked)} metrics"
    detail = f"Not in its report: {', '.join(absent)}."
    return (Finding("metrics_not_collected", "warning", title, detail, "Names differ by GPU: ncu --query-metrics."),)
