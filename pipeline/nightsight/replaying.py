"""What ncu replays after nsys, and when it replays nothing: the one place that knows both the timeline and ncu."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.analyze.replay.groups import choose_kernels
from nightsight.collect.ncu import Replayed, not_replayed, replay_kernels
from nightsight.collect.replay import COMMUNICATING, GRAPHS, Replay, uncollected
from nightsight.collect.tools import find_ncu
from nightsight.collect.workloads import Program, Request
from nightsight.errors import PipelineError, UsageError
from nightsight.events.kernel_names import communicates
from nightsight.model import Capture, Finding, Profile
from nightsight.read import read

_NONE: Final = pd.DataFrame()


def usable_ncu(collector: str, request: Request) -> Path | None:
    """Return the ncu to replay with, None if nothing is to be replayed.

    Before anything runs: ToolError if --ncu names one that is not there, UsageError for kernels that were chosen for a
    collector without ncu.
    """
    replay = request.replay
    if replay and collector != "torch":
        return find_ncu(request.ncu)
    if replay and replay.is_chosen:
        raise UsageError(
            "--ncu-kernel, --ncu-range and --ncu-all need ncu, and this machine's collector is torch.profiler",
            "Leave them out, or run where there are a GPU and nsys; without nsys: --collector ncu.",
        )
    return None


def with_replay(program: Program, request: Request, capture: Capture, profile: Profile) -> tuple[Capture, Profile]:
    """Run the program again under ncu and add what that measures; what goes wrong is a finding.

    Which kernels are replayed the options say, else their share of the time in `profile`.
    """
    replay = request.replay
    if replay is None or not any(len(profile.tables.get(name, ())) for name in ("kernels", "graph_launches")):
        return capture, profile
    request.progress("replaying kernels with ncu")
    left_s = request.timeout_s - sum(capture.stages_s.values())
    replayed = _replayed(program, replace(request, timeout_s=left_s), replay, profile)
    interrupted = replayed.outcome and replayed.outcome.interrupted
    capture = replace(
        capture,
        parameters={**capture.parameters, **replayed.described(replay)},
        findings=(*capture.findings, *replayed.findings),
        stages_s={**capture.stages_s, "replay": replayed.seconds},
        failure=f"the replay {replayed.outcome.ending}" if replayed.outcome and interrupted else "",
    )
    if replayed.report is None:
        return capture, profile
    try:
        return capture, profile.joined(read(replayed.report))
    except PipelineError as error:
        # of a library that does not load, its path
        said = re.sub(r"\S*/\S*", "<…>", error.message)
        finding = Finding("no_kernel_metrics", "warning", "ncu's report cannot be read", said, error.hint)
        return replace(capture, findings=(*capture.findings, finding)), profile


def not_collected(request: Request, profile: Profile) -> tuple[Finding, ...]:
    """Tell of metrics that were asked for and that ncu did not collect."""
    if request.replay is None or "kernel_metrics" not in profile.tables:
        return ()
    return uncollected(request.replay, profile.table("kernel_metrics")["metric"].cat.categories)


def _replayed(program: Program, request: Request, replay: Replay, profile: Profile) -> Replayed:
    """Replay what was asked for, or what the timeline says is worth it."""
    if replay.is_whole and _may_wait_for_peers(profile):
        reason = "Nothing was replayed: in a range or graph replayed as a whole, kernels would wait for their peers"
        return not_replayed(reason, "Replay its kernels one by one: --replay-mode kernel --graph-profiling node.")
    if "ranges" in profile.tables:
        replay = replace(replay, ranges=tuple(profile.table("ranges")["name"].cat.categories))
    if not replay.is_chosen and not replay.is_range:
        replay, nothing = (_graphs if replay.graph_profiling == "graph" else _worth_most)(replay, profile)
        if nothing:
            return nothing
    return replay_kernels(program, request, replay)


def _worth_most(replay: Replay, profile: Profile) -> tuple[Replay, Replayed | None]:
    """Choose the kernels that take the most time."""
    chosen = choose_kernels(profile, coverage_pct=replay.coverage_pct, most=replay.most)
    if not chosen.names:
        return replay, not_replayed(
            f"Nothing was replayed: there are only {COMMUNICATING}, or CUDA graphs that were traced as a whole",
            "To see the kernels of graphs: --nsys-arg=--cuda-graph-trace=node.",
        )
    expected = chosen.launches * replay.launches
    return replace(replay, names=chosen.names, base=chosen.base, skip=chosen.skip, expected=expected), None


def _graphs(replay: Replay, profile: Profile) -> tuple[Replay, Replayed | None]:
    """Choose CUDA graphs, whether they were traced as a whole or by their kernels."""
    kernels = profile.tables.get("kernels", _NONE)
    in_graphs = "graph_node" in kernels and kernels["graph_node"].notna().any()
    if not in_graphs and not len(profile.tables.get("graph_launches", _NONE)):
        return replay, not_replayed("Nothing was replayed: no CUDA graph was launched", "Leave out --graph-profiling.")
    return replace(replay, names=GRAPHS, base="function", expected=replay.launches), None


def _may_wait_for_peers(profile: Profile) -> bool:
    """Whether there is more than one process or GPU, or a kernel that communicates: graphs do not show theirs."""
    work = [profile.tables[name] for name in ("kernels", "graph_launches") if len(profile.tables.get(name, ()))]
    places = {
        place for table in work for place in table[["process", "device"]].drop_duplicates().itertuples(index=False)
    }
    names = profile.tables["kernels"]["name"].cat.categories if "kernels" in profile.tables else ()
    return len(places) > 1 or any(communicates(name) for name in names)
