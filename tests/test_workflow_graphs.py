"""`report RUN --graphs CAPTURE`: kernels get the ranges of a capture elsewhere, and never those of another graph."""

import lzma
import sqlite3
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.operator_work.roofline import operator_roofline
from nightsight.analyze.operators import kernel_operators, operators
from nightsight.analyze.ranges.owners import operation_owners, range_time
from nightsight.analyze.step_parts import step_parts
from nightsight.cli import main
from nightsight.errors import CaptureError, PipelineError, UsageError
from nightsight.events.graph_nodes import joined_origins, node_origins, replayed_nodes, unknown_nodes
from nightsight.events.operators import all_operators, launching_operators
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read.nsys.tables import read_nsys
from nightsight.tables import conform
from nightsight.workflows.graphs import with_graphs
from tests.graph_recording import ACTIONS, COPY_OF, PROCESS, THREAD, Recording, graphed, replayed
from tests.properties import examples
from tests.recorded import Recorded
from tests.test_graph_nodes import by_path, looped, places

OTHER_PROCESS = 9 << 24


def split(profile: Profile, at: int) -> tuple[Profile, Profile]:
    """Return what recordings until and from a time would have; the later one has a clock of its own."""
    early, late = dict(profile.tables), dict(profile.tables)
    for name, table in profile.tables.items():
        if "start_ns" in table:
            early[name] = table[table["start_ns"] < at]
            later = table[table["start_ns"] >= at]
            shifted = {column: later[column] - at for column in ("start_ns", "end_ns") if column in later}
            late[name] = conform(name, later.assign(**shifted))
    return replace(profile, tables=late), replace(profile, tables=early)


def moved(profile: Profile, process: int) -> Profile:
    """Return the profile of the same program in another process."""
    tables = {
        name: conform(name, table.assign(process=process)) if "process" in table else table
        for name, table in profile.tables.items()
    }
    return replace(profile, tables=tables)


def joined(run: Profile, graphs: Profile) -> Profile:
    return with_graphs(run, graphs, run_name="run.sqlite", graphs_name="start.sqlite")


def start_of_step(profile: Profile, number: int) -> int:
    steps = profile.table("ranges").query("name == 'step'").sort_values("start_ns")
    return int(steps["start_ns"].iloc[number])


@given(ACTIONS, st.integers(1, 3), st.integers(0, 3), st.booleans())
@examples(50)
def test_two_captures_report_what_one_would_report(
    actions: list[str | int], steps: int, copies: int, is_same: bool
) -> None:
    whole = graphed(actions, steps + 1, copies=copies)
    assume(len(whole.table("kernels")))
    # one replay is in both halves of the program's life, so that names can be compared
    run, graphs = split(whole, start_of_step(whole, 1))
    expected = graphed(actions, steps, copies=copies)
    profile = joined(run, graphs if is_same else moved(graphs, OTHER_PROCESS))
    assert places(profile) == places(expected)
    assert by_path(profile) == by_path(expected)
    assert (node_origins(profile).time == -1).all()
    # ranges of the capture are not ranges of the run
    recorded = nested_ranges(profile).query("not in_graph")
    assert recorded["path"].astype("str").unique().tolist() == ["step"]


def replays_of(*names: str, nodes: int = COPY_OF, is_made: bool = True, process: int = PROCESS) -> Profile:
    """Capture a kernel per name in `layer`, and replay the graph twice; without `is_made`, the capture is missing."""
    recording = Recording(nodes=nodes)
    recording.call("cudaStreamBeginCapture")
    recording.begin("layer")
    ids = [recording.node() for _ in names]
    recording.end()
    recording.call("cudaStreamEndCapture")
    for _ in range(2):
        recording.begin("step")
        launch = recording.call("cudaGraphLaunch")
        for node, name in zip(ids, names, strict=True):
            recording.kernel(5, name, launch, node)
        recording.end()
    profile = moved(recording.profile(), process)
    return profile if is_made else split(profile, start_of_step(profile, 0))[0]


RUN = replays_of("gemm", "softmax", is_made=False)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        (replays_of("gemm", "add"), "is from another program"),
        (replays_of("add", "add", process=OTHER_PROCESS), "is from another program"),
        # half of the nodes agree: in another process, that is chance
        (
            replays_of("gemm", "add", process=OTHER_PROCESS),
            "node 4294967298 of its CUDA graphs ran `add`, not `softmax`",
        ),
        (split(replays_of("gemm", "softmax"), 45)[1], "has none of the CUDA graphs"),
        (replays_of("gemm", "softmax", nodes=7 * COPY_OF), "has none of the CUDA graphs that run.sqlite replays"),
        # the second node of this graph is missing
        (replays_of("gemm"), "has none of the CUDA graphs"),
        (moved(split(replays_of("gemm", "softmax"), 100)[1], OTHER_PROCESS), "cannot be checked"),
        (replays_of("gemm", "softmax", is_made=False), "does not record how CUDA graphs are made"),
    ],
)
def test_a_capture_that_did_not_make_the_graphs_is_refused(graphs: Profile, message: str) -> None:
    if message == "is from another program" and graphs.table("kernels")["process"].iloc[0] == PROCESS:
        graphs = replace(graphs, tables={**graphs.tables, "kernels": renamed(graphs.table("kernels"))})
    with pytest.raises(CaptureError, match=message) as caught:
        joined(RUN, graphs)
    assert caught.value.hint
    assert "start.sqlite" in caught.value.message


def renamed(kernels: pd.DataFrame) -> pd.DataFrame:
    return kernels.assign(name=pd.Categorical(["other"] * len(kernels)))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (replays_of("gemm"), "itself records"),
        (Recording().profile(), "has no kernels of CUDA graphs"),
    ],
)
def test_a_run_that_needs_no_other_capture_is_refused(run: Profile, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        joined(run, replays_of("gemm"))


def test_graphs_that_were_traced_as_a_whole_are_refused_with_the_option(recorded: Recorded) -> None:
    with pytest.raises(UsageError, match="as a whole") as caught:
        joined(recorded.profile("graph"), recorded.profile("graph_node"))
    assert "--cuda-graph-trace=node" in caught.value.hint


def two_graphs(*, second: str, without: int | None = None) -> Profile:
    """Make a graph of three kernels in `first`, and another in `second`, and replay both."""
    recording, ids = Recording(), list[int]()
    for number, layer in enumerate(("first", "second")):
        recording.nodes = (number + 1) * COPY_OF
        recording.call("cudaStreamBeginCapture")
        recording.begin(layer)
        ids += [recording.node() for _ in range(3)]
        recording.end()
        recording.call("cudaStreamEndCapture")
    recording.begin("step")
    names = ["gemm"] * 3 + [second] * 3
    for at in (0, 3):
        launch = recording.call("cudaGraphLaunch")
        for node, name in zip(ids[at : at + 3], names[at : at + 3], strict=True):
            recording.kernel(5, name, launch, node)
    recording.end()
    profile = recording.profile()
    if without is None:
        return profile
    nodes = profile.table("graph_nodes")
    return replace(profile, tables={**profile.tables, "graph_nodes": nodes[nodes["node"] != ids[without]]})


@pytest.mark.parametrize("graphs", [two_graphs(second="other"), two_graphs(second="add", without=4)])
def test_an_id_that_was_used_again_between_the_captures_gives_no_range(graphs: Profile) -> None:
    run = split(two_graphs(second="add"), start_of_step(graphs, 0))[0]
    profile = joined(run, graphs)
    assert [path for path, _ in places(profile)] == ["step / first"] * 3 + ["step"] * 3
    (finding,) = [finding for finding in profile.findings if finding.rule == "other_graphs"]
    assert finding.title == "1 of 2 CUDA graphs are different ones in start.sqlite"


def test_what_the_run_itself_recorded_comes_first() -> None:
    """The ids of the capture are used again in the run, for another layer."""
    recording = Recording(nodes=COPY_OF)
    recording.begin("step")
    launch = recording.call("cudaGraphLaunch")
    recording.kernel(5, "gemm", launch, COPY_OF + 1)
    recording.end()
    recording.call("cudaStreamBeginCapture")
    recording.begin("new")
    node = recording.node()
    recording.end()
    recording.call("cudaStreamEndCapture")
    recording.begin("step")
    recording.kernel(5, "gemm", recording.call("cudaGraphLaunch"), node)
    recording.end()
    profile = joined(recording.profile(), replays_of("gemm"))
    assert [path for path, _ in places(profile)] == ["step / layer", "step / new"]
    assert ((node_origins(profile).time >= 0) != (joined_origins(profile).time >= 0)).all()
    assert range_time(Timeline(profile)).frame.query("path.str.startswith('step')")["kernels"].tolist() == [2, 1, 1]


def test_a_run_without_ranges_gets_those_of_the_capture() -> None:
    tables = {name: table for name, table in RUN.tables.items() if name != "ranges"}
    run = replace(RUN, tables=tables, missing={"ranges": "NVTX was not traced"})
    profile = joined(run, replays_of("gemm", "softmax"))
    assert [path for path, _ in places(profile)] == ["layer"] * 4
    assert profile.missing == {}


# -- operators --------------------------------------------------------------------------------------------------------


def with_operators(profile: Profile) -> Profile:
    """Return the profile with an operator instead of each range `a` and `b`, whose module has the same name."""
    ranges = profile.table("ranges")
    is_operator = ranges["name"].isin(["a", "b"])
    made = ranges[is_operator]
    frame = made.assign(shapes="", types="", inputs="", strides="", module=made["name"].astype("str"))
    tables = {"ranges": conform("ranges", ranges[~is_operator]), "cpu_ops": conform("cpu_ops", frame)}
    return replace(profile, tables={**profile.tables, **tables})


def without_operators(profile: Profile) -> Profile:
    """Return the profile as nsys records it without operators."""
    tables = {name: table for name, table in profile.tables.items() if name != "cpu_ops"}
    return replace(profile, tables=tables, missing={"cpu_ops": "operators were not recorded"})


def with_own(profile: Profile) -> Profile:
    """Return the profile with an operator that has nothing to do with graphs."""
    own = {"start_ns": 0, "end_ns": 1, "process": PROCESS, "thread": THREAD + 2, "pid": 1, "tid": 3, "name": "own"}
    first = conform("cpu_ops", pd.DataFrame([own]))
    table = conform("cpu_ops", pd.concat([first, profile.table("cpu_ops")]))
    return replace(profile, tables={**profile.tables, "cpu_ops": table})


def owning_operators(profile: Profile) -> list[str | None]:
    names = all_operators(profile)["name"].astype("str").tolist() if "cpu_ops" in profile.tables else []
    return [names[row] if row >= 0 else None for row in launching_operators(Timeline(profile)).tolist()]


@given(ACTIONS, st.integers(1, 3), st.integers(0, 3), st.booleans(), st.booleans())
@examples(50)
def test_two_captures_have_the_operators_that_one_would_have(
    actions: list[str | int], steps: int, copies: int, is_same: bool, has_own: bool
) -> None:
    whole = with_operators(graphed(actions, steps + 1, copies=copies))
    assume(len(whole.table("kernels")))
    run, graphs = split(whole, start_of_step(whole, 1))
    expected = with_operators(graphed(actions, steps, copies=copies))
    run, expected = (with_own(run), with_own(expected)) if has_own else (without_operators(run), expected)
    profile = joined(run, graphs if is_same else moved(graphs, OTHER_PROCESS))
    assert owning_operators(profile) == owning_operators(expected)
    if len(graphs.table("cpu_ops")):
        both = (Timeline(profile), Timeline(expected))
        for analysis in (kernel_operators, step_parts):
            joint, single = (analysis(timeline).frame for timeline in both)
            pd.testing.assert_frame_equal(joint, single)
        # the run has not called those that were captured
        assert set(operators(both[0]).frame["name"]) <= {"own"}


def product(
    recording: Recording, name: str, *, module: str = "", sequence: int | None = None, backward: bool = False
) -> int:
    """Capture a node inside an operator that multiplies matrices."""
    start = recording.tick()
    node = recording.node()
    recording.add(
        "cpu_ops",
        start_ns=start,
        end_ns=recording.tick(),
        name=name,
        shapes="[[64,32],[32,16]]",
        types='["float","float"]',
        inputs="",
        strides="",
        sequence=sequence,
        forward_thread=THREAD if backward else None,
        module=module,
    )
    return node


def two_products(*, is_made: bool = True) -> Profile:
    """Capture a forward and a backward product, and replay the graph in two steps."""
    recording = Recording()
    recording.call("cudaStreamBeginCapture")
    nodes = [
        product(recording, "aten::mm", module="layers.3", sequence=7),
        product(recording, "MmBackward0", sequence=7, backward=True),
    ]
    recording.call("cudaStreamEndCapture")
    for _ in range(2):
        replayed(recording, nodes)
    whole = recording.profile()
    return whole if is_made else without_operators(split(whole, start_of_step(whole, 0))[0])


def test_captured_operators_have_modules_forward_operators_and_a_roofline() -> None:
    profile = joined(two_products(is_made=False), two_products())
    assert "cpu_ops" not in profile.missing
    rows = kernel_operators(Timeline(profile)).frame.to_dict("records")
    columns = ("operator", "forward", "module", "instances")
    assert sorted(tuple(row[name] for name in columns) for row in rows) == [
        ("MmBackward0", "aten::mm", "layers.3", 2),
        ("aten::mm", "", "layers.3", 2),
    ]
    (row,) = operator_roofline(Timeline(profile)).frame.query("name == 'aten::mm'").to_dict("records")
    assert (row["calls"], row["total_ns"], row["work_flop"]) == (2, 10, 2 * 64 * 32 * 16)
    # a Python function that runs at that time by the clock of the run has not called them
    function = {"start_ns": 0, "end_ns": 10**6, "process": PROCESS, "thread": THREAD, "pid": 1, "tid": 1}
    functions = conform("python_functions", pd.DataFrame([{**function, "function": "load (train.py:12)"}]))
    with_function = replace(profile, tables={**profile.tables, "python_functions": functions})
    assert set(kernel_operators(Timeline(with_function)).frame["function"]) == {""}


def ranked(profile: Profile, processes: dict[int, int]) -> Profile:
    ranks = pd.DataFrame({"process": list(processes), "rank": list(processes.values())})
    ranks = ranks.assign(world_size=len(ranks), source="", group="", shift_ns=None, spread_ns=None, host=None)
    return replace(profile, tables={**profile.tables, "ranks": conform("ranks", ranks)})


def together(*profiles: Profile) -> Profile:
    names = profiles[0].tables
    tables = {name: conform(name, pd.concat([each.tables[name] for each in profiles])) for name in names}
    return replace(profiles[0], tables=tables)


def test_processes_of_another_run_are_matched_by_rank() -> None:
    first, second = 11 << 24, 12 << 24
    run = together(RUN, moved(replays_of("add", "add", is_made=False), OTHER_PROCESS))
    graphs = together(moved(replays_of("add", "add"), first), moved(replays_of("gemm", "softmax"), second))
    with pytest.raises(CaptureError, match="have no ranks"):
        joined(run, graphs)
    profile = joined(ranked(run, {PROCESS: 1, OTHER_PROCESS: 0}), ranked(graphs, {first: 0, second: 1}))
    assert (operation_owners(Timeline(profile)) >= 0).all()
    assert (joined_origins(profile).time >= 0).all()


@pytest.fixture
def real(tmp_path: Path) -> tuple[Path, Path]:
    """Return a real capture without the records of nodes, and with them."""
    start, run = tmp_path / "start.sqlite", tmp_path / "run.sqlite"
    packed = Path(__file__).parent / "data" / "nsys" / "graph_node" / "graph_node.sqlite.xz"
    for path in (start, run):
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    with sqlite3.connect(run) as database:
        database.execute("DELETE FROM CUDA_GRAPH_NODE_EVENTS")
    database.close()
    return run, start


def test_the_command_joins_two_exports(real: tuple[Path, Path], tmp_path: Path) -> None:
    run, start = real
    output = tmp_path / "report.json"
    done = CliRunner().invoke(main, ["report", str(run), "--graphs", str(start), "-o", str(output), "-q"])
    assert done.exit_code == 0, done.output
    assert output.stat().st_size


def test_nodes_that_were_made_before_the_recording_are_not_damaged(real: tuple[Path, Path]) -> None:
    """nsys lists them with negative times (H200, nsys 2025.3)."""
    _, start = real
    with sqlite3.connect(start) as database:
        database.execute('UPDATE CUDA_GRAPH_NODE_EVENTS SET start = start - 100000000000, "end" = "end" - 100000000000')
    database.close()
    profile = read_nsys(start)
    assert not len(profile.table("graph_nodes"))
    assert not [finding for finding in profile.findings if "CUDA_GRAPH_NODE_EVENTS" in finding.title]
    assert len(unknown_nodes(profile)) == len(replayed_nodes(profile)) > 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("run.sqlite", "--graphs", "cpu.json.gz"), "--graphs joins two captures of Nsight Systems"),
        (("run.sqlite", "start.sqlite", "--apart", "--graphs", "start.sqlite"), "--graphs takes one capture"),
        (("start.sqlite", "--graphs", "run.sqlite"), "start.sqlite itself records"),
    ],
)
def test_the_command_refuses_what_cannot_be_joined(
    real: tuple[Path, Path], tmp_path: Path, files: tuple[str, ...], message: str
) -> None:
    trace = Path(__file__).parent / "data" / "kineto" / "cpu.json.gz"
    (tmp_path / trace.name).write_bytes(trace.read_bytes())
    words = [str(tmp_path / word) if "." in word else word for word in files]
    done = CliRunner().invoke(main, ["report", *words, "-o", f"{tmp_path}/out/"])
    assert isinstance(done.exception, (PipelineError, SystemExit))
    assert message in done.output


def test_bodies_that_no_capture_records_do_not_make_a_graph_another_one() -> None:
    whole_life = looped(loops=2, has_copies=False).profile()
    run, graphs = split(whole_life, start_of_step(whole_life, 0))
    paths = [path for path, _ in places(joined(run, graphs))]
    assert paths == ["step / layer", "step", "step", "step / layer"]
