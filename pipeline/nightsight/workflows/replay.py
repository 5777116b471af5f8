"""Decides what ncu replays after nsys, if anything: the only module that knows both the timeline and ncu."""

import re
from dataclasses import replace
from pathlib import Path

from nightsight.analyze.replay.groups import choose_kernels
from nightsight.collect.ncu import ReplayResult, no_replay, replay_kernels
from nightsight.collect.replay import COMMUNICATING, GRAPHS, Replay, missing_metrics
from nightsight.collect.tools import find_ncu
from nightsight.collect.workloads import Program, Request
from nightsight.errors import PipelineError, UsageError
from nightsight.events.kernel_names import communicates
from nightsight.model.report import Capture, Finding, Profile
from nightsight.read import read


def usable_ncu(collector: str, request: Request) -> Path | None:
    """Return the ncu to replay with; None without a replay.

    Called before anything runs. ToolError if --ncu names a file that is not a program, UsageError if kernels were
    selected for a collector without ncu.
    """
    replay = request.replay
    if replay and collector != "torch":
        return find_ncu(request.ncu)
    if replay and replay.is_selected:
        raise UsageError(
            "--ncu-kernel, --ncu-range and --ncu-all need ncu, but the collector on this machine is torch.profiler",
            "Omit them, or run on a machine with a GPU and nsys; without nsys: --collector ncu.",
        )
    return None


def with_replay(program: Program, request: Request, capture: Capture, profile: Profile) -> tuple[Capture, Profile]:
    """Run the program again under ncu and add the measurements; a failure becomes a finding.

    The options select the kernels to replay; by default, their share of the time in `profile` does.
    """
    replay = request.replay
    if replay is None or not profile.with_rows(("kernels", "graph_launches")):
        return capture, profile
    request.progress("replaying kernels with ncu")
    left_s = request.timeout_s - sum(capture.stages_s.values())
    result = _replay(program, replace(request, timeout_s=left_s), replay, profile)
    interrupted = result.outcome and result.outcome.interrupted
    capture = replace(
        capture,
        parameters={**capture.parameters, **result.description(replay)},
        findings=(*capture.findings, *result.findings),
        stages_s={**capture.stages_s, "replay": result.seconds},
        failure=f"the replay {result.outcome.ending}" if result.outcome and interrupted else "",
    )
    if result.report is None:
        return capture, profile
    profile, findings = with_replayed(profile, result.report)
    return replace(capture, findings=(*capture.findings, *findings)), profile


def with_replayed(profile: Profile, report: Path) -> tuple[Profile, tuple[Finding, ...]]:
    """Add the measurements in ncu's report of the same program; a failure becomes a finding."""
    try:
        return profile.joined(read(report)), ()
    except PipelineError as error:
        # hide paths: the message names a library that did not load
        detail = re.sub(r"\S*/\S*", "<…>", error.message)
        return profile, (Finding("no_kernel_metrics", "warning", "ncu's report cannot be read", detail, error.hint),)


def uncollected_metrics(request: Request, profile: Profile) -> tuple[Finding, ...]:
    """Return a finding for requested metrics that ncu did not collect."""
    if request.replay is None or "kernel_metrics" not in profile.tables:
        return ()
    return missing_metrics(request.replay, profile.table("kernel_metrics")["metric"].cat.categories)


def _replay(program: Program, request: Request, replay: Replay, profile: Profile) -> ReplayResult:
    """Replay the requested kernels, otherwise those that take the most time in the timeline."""
    if replay.is_whole and _may_wait_for_peers(profile):
        reason = "Nothing was replayed: kernels in a range or graph replayed as a whole would wait for their peers"
        return no_replay(reason, "Replay its kernels one by one: --replay-mode kernel --graph-profiling node.")
    if "ranges" in profile.tables:
        replay = replace(replay, ranges=tuple(profile.table("ranges")["name"].cat.categories))
    if not replay.is_selected and not replay.is_range:
        select = _select_graphs if replay.graph_profiling == "graph" else _select_kernels
        replay, refusal = select(replay, profile)
        if refusal:
            return refusal
    return replay_kernels(program, request, replay)


def _select_kernels(replay: Replay, profile: Profile) -> tuple[Replay, ReplayResult | None]:
    """Select the kernels that take the most time; return a result instead if there are none."""
    chosen = choose_kernels(profile, coverage_pct=replay.coverage_pct, most=replay.most)
    if not chosen.names:
        return replay, no_replay(
            f"Nothing was replayed: the capture has only {COMMUNICATING}, or CUDA graphs traced as a whole",
            "To see the kernels of graphs: --nsys-arg=--cuda-graph-trace=node.",
        )
    expected = chosen.launches * replay.launches
    return replace(replay, names=chosen.names, base=chosen.base, skip=chosen.skip, expected=expected), None


def _select_graphs(replay: Replay, profile: Profile) -> tuple[Replay, ReplayResult | None]:
    """Select CUDA graphs, whether traced as a whole or by their kernels; return a result instead if there are none."""
    kernels = profile.recorded("kernels")
    in_graphs = "graph_node" in kernels and kernels["graph_node"].notna().any()
    if not in_graphs and not len(profile.recorded("graph_launches")):
        return replay, no_replay("Nothing was replayed: no CUDA graph was launched", "Omit --graph-profiling.")
    return replace(replay, names=GRAPHS, base="function", expected=replay.launches), None


def _may_wait_for_peers(profile: Profile) -> bool:
    """Whether there is more than one process or GPU, or a communicating kernel; graphs do not show their kernels."""
    work = profile.with_rows(("kernels", "graph_launches"))
    places = {
        place for table in work for place in table[["process", "device"]].drop_duplicates().itertuples(index=False)
    }
    return len(places) > 1 or any(map(communicates, profile.recorded("kernels")["name"].cat.categories))
