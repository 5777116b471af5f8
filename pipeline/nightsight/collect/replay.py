"""The options of a replay with Nsight Compute: which launches to replay, and how."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nightsight.events.kernel_names import NO_PEERS
from nightsight.model.report import Finding

COMMUNICATING: Final = "NCCL, NVSHMEM and other communicating kernels"
GRAPHS: Final = ("graph",)
"""The name that ncu gives to every CUDA graph that it replays as a whole."""


@dataclass(frozen=True)
class Replay:
    """The options of a replay. Without `names` and `pattern` it covers all kernels, but never communicating ones.

    - `names`: mangled or base names (`base` says which); `pattern`: an expression over base names instead of them;
      `nvtx_range` limits both to work in this range.
    - For each kernel, grid and block, the first `skip` launches are skipped and the next `launches` replayed. `most`
      limits the number of kernels, grids and blocks (0: no limit). `expected`: the likely number of launches to replay
      (0: unknown).
    - Unless `is_selected`, names come from the timeline: the fewest kernels that make up `coverage_pct` of the time.
    - Ranges and graphs as a whole are not chosen by name: the first `launches` of them are replayed.
    - `ranges`: the known names of the program's ranges, for messages.
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
    def is_selected(self) -> bool:
        """Whether the user selected what to replay."""
        return bool(self.pattern or self.nvtx_range or self.everything)

    @property
    def is_range(self) -> bool:
        """Whether whole ranges are replayed, as marked by NVTX or by cudaProfilerStart and cudaProfilerStop."""
        return self.replay_mode in ("range", "app-range")

    @property
    def is_whole(self) -> bool:
        """Whether whole ranges or graphs are replayed, from which no filter can exclude a kernel."""
        return self.graph_profiling == "graph" or self.is_range

    @property
    def most_launches(self) -> int:
        """The maximum number of launches to replay; 0 for no limit."""
        return self.most * self.launches

    @property
    def name_filter(self) -> tuple[str, str]:
        """The value of --kernel-name-base and the expression to filter by, which no communicating kernel matches.

        The expression uses the ECMAScript grammar, which has no flags. To cover all kernels it matches mangled names,
        because these include the namespaces that tell communicating kernels (deep_ep::dispatch).
        """
        if self.names:
            return self.base, f"^{NO_PEERS}(?:{'|'.join(re.escape(name) for name in self.names)})$"
        return ("function" if self.pattern else "mangled"), f"^{NO_PEERS}.*(?:{self.pattern or '.'})"

    @property
    def filter_options(self) -> tuple[str, ...]:
        """The ncu options that filter what to replay. ncu rejects kernel filters when it replays ranges."""
        options = {"--replay-mode": self.replay_mode, "--launch-count": str(self.launches)}
        if self.skip:
            options["--launch-skip"] = str(self.skip)
        if not self.is_range:
            base, names = self.name_filter
            options |= {"--graph-profiling": self.graph_profiling, "--kernel-name-base": base}
            options["--kernel-name"] = f"regex:{names}"
            # to ncu, each launch of a graph is a separate configuration: --launch-count would not limit graphs
            if self.names != GRAPHS:
                options["--filter-mode"] = "per-launch-config"
        return tuple(word for option in options.items() for word in option)

    @property
    def _selection(self) -> str:
        matching = f" matching {self.pattern}" if self.pattern else ""
        inside = f" in the range {self.nvtx_range}" if self.nvtx_range else ""
        if self.is_range:
            return f"{self.launches} of {self.nvtx_range or 'the ranges of cudaProfilerStart'}, as a whole"
        if self.is_selected:
            most = f", at most {self.most_launches} launches" if self.most else ""
            return f"kernels{matching}{inside}, {self.launches} per grid and block{most}"
        if self.graph_profiling == "graph":
            return f"{self.launches} of the CUDA graphs, as a whole"
        share = f"the fewest kernels that make up {self.coverage_pct:.4g} % of the time"
        return f"{share}, {self.launches} per grid and block, at most {self.most_launches} launches"

    @property
    def description(self) -> dict[str, str]:
        """How the metrics were measured, for readers of a report."""
        return {
            "ncu replays": self._selection,
            "ncu collects": " ".join(self.collected).replace("--", ""),
            "ncu clock control": self.clock_control,
            "ncu cache control": self.cache_control,
            "ncu replay mode": self.replay_mode,
            "ncu graph profiling": self.graph_profiling,
            "ncu never replays": COMMUNICATING,
        }


def missing_metrics(replay: Replay, metrics: Iterable[str]) -> tuple[Finding, ...]:
    """Return a finding for requested metrics that are missing from `metrics`: ncu's report omits unknown ones."""
    collected = tuple(metrics)
    lists = zip(replay.collected[::2], replay.collected[1::2], strict=True)
    names = [name for option, value in lists if option == "--metrics" for name in value.split(",") if ":" not in name]
    absent = [name for name in names if not any(f"{metric}.".startswith(f"{name}.") for metric in collected)]
    if not absent:
        return ()
    title = f"ncu did not collect {len(absent)} of {len(names)} metrics"
    detail = f"Missing from its report: {', '.join(absent)}."
    return (
        Finding(
            "metrics_not_collected",
            "warning",
            title,
            detail,
            "Metric names depend on the GPU. List them: ncu --query-metrics.",
        ),
    )
