"""Kernels of CUDA graphs with unknown ranges are counted, with the reason and the option that would have helped."""

from dataclasses import replace
from pathlib import Path

import pytest

from nightsight.analyze.ranges.graphs import graphs_without_ranges
from nightsight.analyze.ranges.owners import range_time
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Profile
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.graph_recording import COPY_OF, Recording, replayed
from tests.recorded import Recorded, whole
from tests.test_graph_layers import of_two_layers
from tests.test_graph_nodes import looped
from tests.test_read_kineto_graphs import steps
from tests.test_workflow_graphs import joined, replays_of, split, start_of_step, two_graphs


def finding_of(profile: Profile) -> Finding | None:
    return next(iter(graphs_without_ranges(Timeline.of(whole(profile)))), None)


def captured_earlier() -> Profile:
    return replays_of("gemm", "softmax", is_made=False)


def captured_outside() -> Profile:
    """The range `setup` was opened before the capture."""
    recording = Recording()
    recording.begin("setup")
    recording.call("cudaStreamBeginCapture")
    node = recording.node()
    recording.call("cudaStreamEndCapture")
    recording.end()
    replayed(recording, [node])
    return recording.profile()


def not_recorded() -> Profile:
    recording = Recording()
    recording.call("cudaGraphInstantiate_v12000")
    replayed(recording, [COPY_OF + 1])
    return recording.profile()


def without_nodes() -> Profile:
    """Exports before 2022 show graphs only by launches that kernels share."""
    profile = captured_earlier()
    return replace(profile, tables={**profile.tables, "kernels": profile.table("kernels").drop(columns="graph_node")})


def half_joined() -> Profile:
    run = split(two_graphs(second="add"), start_of_step(two_graphs(second="add"), 0))[0]
    return joined(run, two_graphs(second="other"))


@pytest.mark.parametrize(
    ("profile", "title", "detail", "remedy"),
    [
        (captured_earlier(), "4 of 4 kernels", "They were captured before the recording.", "--graphs CAPTURE"),
        (captured_outside(), "1 of 1 kernels", "They were captured outside of all ranges.", "--names modules"),
        (not_recorded(), "1 of 1 kernels", "They are nodes whose making nsys did not record.", "Update nsys"),
        (without_nodes(), "4 of 4 kernels", "They have no node in this export.", "Update nsys"),
        (half_joined(), "3 of 6 kernels", "They are in no graph that the other capture made.", "of all graphs there"),
        (
            looped(loops=2, has_copies=False).profile(),
            "2 of 4 kernels",
            "They run in bodies of conditional nodes, and nsys did not record how these were made.",
            "",
        ),
    ],
    ids=["earlier", "outside", "not recorded", "old", "joined", "bodies"],
)
def test_a_reason_comes_with_what_helps(profile: Profile, title: str, detail: str, remedy: str) -> None:
    finding = finding_of(profile)
    assert finding is not None
    assert finding.title == f"{title} of CUDA graphs belong to no range of their capture"
    assert finding.detail == f"{detail} They count for the range that launches the graph."
    assert remedy in finding.remedy
    notes = range_time(Timeline.of(whole(profile))).notes
    assert any("the range of the capture is unknown" in note for note in notes)


def test_several_reasons_are_counted_one_by_one() -> None:
    recording = Recording()
    recording.call("cudaStreamBeginCapture")
    node = recording.node()
    recording.call("cudaStreamEndCapture")
    replayed(recording, [node, 7 * COPY_OF, 7 * COPY_OF + 1])
    finding = finding_of(recording.profile())
    assert finding is not None
    assert finding.detail.startswith("2 were captured before the recording; 1 were captured outside of all ranges. ")


def test_kernels_that_have_a_range_need_no_finding(recorded: Recorded) -> None:
    assert finding_of(of_two_layers().profile()) is None
    assert finding_of(looped(loops=3).profile()) is None
    assert finding_of(recorded.profile("train")) is None
    notes = range_time(Timeline.of(whole(of_two_layers().profile()))).notes
    assert not any("unknown" in note for note in notes)


def test_a_program_without_ranges_is_not_advised_to_name_some() -> None:
    profile = captured_outside()
    assert finding_of(replace(profile, tables={**profile.tables, "ranges": profile.table("ranges")[:0]})) is None


def test_a_trace_of_torch_needs_marks_or_nsys(tmp_path: Path, recorded: Recorded) -> None:
    for profile in (steps(tmp_path, {}, {}), recorded.profile("cuda_graph")):
        finding = finding_of(profile)
        assert finding is not None
        assert "torch.profiler does not record" in finding.detail
        assert "mark_kernels" in finding.remedy
    finding = finding_of(steps(tmp_path, {"name": "a"}, {}))
    assert finding is not None
    assert finding.detail.startswith("They have no mark.")
    assert finding_of(steps(tmp_path, {"name": "a"}, {"name": "b"})) is None


def test_the_page_says_it() -> None:
    profile = captured_earlier()
    page = render_html(build_report(profile, "serving"), profile)
    assert "4 of 4 kernels of CUDA graphs belong to no range of their capture" in page
    assert "--graphs CAPTURE" in page


def test_graphs_as_a_whole_are_named_with_the_option(recorded: Recorded) -> None:
    findings = recorded.report("graph").findings
    (finding,) = [finding for finding in findings if finding.rule == "graph_level_trace"]
    assert "the ranges and operators that were captured are unknown" in finding.detail
    assert "--cuda-graph-trace=node" in finding.remedy
