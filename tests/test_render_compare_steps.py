"""Both timelines of one step: which step it is, what is cut out of it, and how two are laid side by side."""

import numpy as np
import pytest

from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Report
from nightsight.render import Source
from nightsight.render.compare import render_comparison
from nightsight.render.compare.figures import lanes
from nightsight.render.compare.steps import median_steps
from nightsight.render.timeline.payload import steps_payload
from nightsight.render.timeline.rows import lay_events, merge_events
from tests.comparisons import train_comparison
from tests.recorded import Recorded
from tests.reports import small_report
from tests.timeline import draw
from tests.timeline_payload import decode

STEPS = """
nvtx  [step].[step]....[step]..[step].
cpu   L..L...L..L......L..L....L..L...
s7    .aabb...aabbb.....aaaaabb.aabb..
""".strip()


def source(profile: Profile) -> Source:
    return Source(small_report(results=()), profile)


def steps_of(text: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Return the length of the median step of a drawn capture, and its kernels."""
    profile = draw(text)
    steps = median_steps(((source(profile),), (source(profile),)))
    assert steps is not None
    kernels = steps[0].profile.table("kernels")
    spans = zip(kernels["start_ns"], kernels["end_ns"], kernels["name"].astype("str"), strict=True)
    return steps[0].length_ns, list(spans)


def test_the_median_step_begins_with_the_first_operation_that_was_launched_in_it() -> None:
    drawn = draw(STEPS)
    (begins,) = Timeline(drawn).window.steps.values()
    assert len(begins) >= 3
    # they take 7, 10, 8 and 4 µs on the GPU, from 1 µs on
    assert steps_of(STEPS) == (7_000, [(0, 2_000, "a"), (2_000, 4_000, "b")])


def test_what_crosses_an_end_is_cut_off() -> None:
    steps = median_steps(((source(draw(STEPS)),), (source(draw(STEPS)),)))
    assert steps is not None
    for step in steps:
        for name in ("kernels", "ranges", "api_calls"):
            table = step.profile.table(name)
            assert (table["start_ns"] >= 0).all()
            assert (table["end_ns"] <= step.length_ns).all()
            assert (table["end_ns"] >= table["start_ns"]).all()


def test_a_side_without_events_has_no_timeline() -> None:
    drawn = source(draw(STEPS))
    nothing = Source(small_report(results=()), None)
    assert median_steps(((drawn,), ())) is None
    assert median_steps(((), (drawn,))) is None
    assert median_steps(((nothing,), (drawn,))) is None
    assert median_steps(((nothing, drawn), (drawn,))) is not None


def test_a_capture_without_operations_has_no_timeline() -> None:
    drawn = draw(STEPS)
    empty = Profile({name: table.head(0) for name, table in drawn.tables.items()})
    assert median_steps(((source(empty),), (source(drawn),))) is None


@pytest.mark.parametrize("names", [("train", "ddp2"), ("graph", "graph_node"), ("mini_torch", "train")])
def test_both_sides_keep_their_events_and_launches(names: tuple[str, str], recorded: Recorded) -> None:
    steps = median_steps(
        (
            (Source(recorded.report(names[0]), recorded.profile(names[0])),),
            (Source(recorded.report(names[1]), recorded.profile(names[1])),),
        )
    )
    assert steps is not None
    each = [lay_events(step.profile) for step in steps]
    both = merge_events([("A", each[0]), ("B", each[1])])
    assert len(both.start) == sum(len(events.start) for events in each) == both.total
    assert (np.diff(both.bounds) > 0).all()
    kinds = [row.kind == "kernel" for row in both.rows]
    assert kinds == sorted(kinds, reverse=True)
    for side, events in zip("AB", each, strict=True):
        rows = [place for place, row in enumerate(both.rows) if row.group.startswith(f"{side}: ")]
        at = np.concatenate([np.arange(*both.bounds[place : place + 2]) for place in rows])
        assert both.start[at].tolist() == events.start.tolist()
        assert [both.labels.names[label] for label in both.label[at]] == [
            events.labels.names[label] for label in events.label
        ]
        launched = events.launch >= 0
        assert (both.launch[at] >= 0).tolist() == launched.tolist()
        assert both.start[both.launch[at][launched]].tolist() == events.start[events.launch[launched]].tolist()


@pytest.mark.parametrize("name", ["cpu", "python_names", "unified_memory", "everything", "lines.ncu-rep", "gelu"])
def test_any_capture_has_a_step_or_none(name: str, recorded: Recorded) -> None:
    sources = (Source(small_report(results=()), recorded.profile(name)),)
    steps = median_steps((sources, sources))
    assert (steps is None) == name.endswith(".ncu-rep")
    if steps is not None:
        sides = [("A", steps[0].profile), ("B", steps[1].profile)]
        assert decode(steps_payload(sides, most_ns=steps[0].length_ns)).header["span_ns"] == steps[0].length_ns


def test_the_payload_has_the_groups_of_both_sides_and_the_longer_step(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    payload = steps_payload([("Baseline", profile), ("Candidate", profile)], most_ns=1_000)
    assert payload is not None
    groups = [group["label"] for group in decode(payload).header["groups"]]
    assert [group.split(":")[0] for group in groups[:2]] == ["Baseline", "Candidate"]
    assert "GPU 0" in groups[0]
    assert "GPU 0" in groups[1]


def test_lanes_have_one_axis_and_what_ran_where_it_ran() -> None:
    short, long = draw("cpu  L.L\ns7   aa..bb"), draw("cpu  L.L\ns7   aaaaMMMM..")
    drawn = lanes([("Baseline", short, 6_000), ("Candidate", long, 10_000)])
    assert [(lane.label, lane.end) for lane in drawn.lanes] == [("Baseline, GPU 0", 60.0), ("Candidate, GPU 0", 100.0)]
    one, two = drawn.lanes
    assert (one.kernels, one.copies) == ("M0 0H200V1H0ZM400 0H600V1H400Z", "")
    assert (two.kernels, two.copies) == ("M0 0H400V1H0Z", "M400 0H800V1H400Z")
    assert one.summary == "Baseline, GPU 0: 6.000 µs, busy 66.7 %"
    assert [(tick.place, tick.text) for tick in drawn.ticks][:2] == [(0.0, "0"), (20.0, "2")]


def test_the_lanes_of_many_short_kernels_are_no_longer_than_the_grid() -> None:
    busy = draw("cpu  L\ns7   " + "a." * 4_000)
    (lane,) = lanes([("Baseline", busy, 8_000_000)]).lanes
    assert lane.kernels.count("M") <= 1_000


def test_the_page_says_which_steps_it_shows(recorded: Recorded) -> None:
    report: Report = recorded.report("train")
    runs = (Source(report, recorded.profile("train")),)
    page = render_comparison(train_comparison(report), sources=(runs, runs))
    assert "(baseline: step 5 of 19, 3.164 ms; candidate: step 5 of 19, 3.164 ms)" in page
    assert 'id="timeline-data"' in page
    assert 'aria-label="Baseline, GPU 0: 3.164 ms, busy' in page
    assert 'id="timeline"' not in render_comparison(train_comparison(report))
