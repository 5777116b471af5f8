"""What a step is made of: each instant once, in the right range, and all of it; and the steps one by one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.step_parts import step_parts
from nightsight.analyze.step_split import COLUMNS, step_split, step_times
from nightsight.compare import measures
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.render.page.html import render_html
from nightsight.render.table.grouped import kernel_groups
from nightsight.results.steps import STEP_CATEGORIES, STEP_PARTS, STEP_TIMES, WHOLE_STEP
from nightsight.workflows.analysis import build_report
from tests.recorded import Recorded
from tests.timeline import PROCESS, draw

CAPTURES = ("train", "ddp2", "graph", "graph_node", "crash", "mlp", "mini_torch", "cuda_graph", "unified_memory")


def stepped(picture: str, *starts: int) -> Timeline:
    """Return a timeline whose steps begin at these microseconds, and end with the picture."""
    drawn = draw(picture)
    end = max(int(table["end_ns"].max()) for table in drawn.tables.values() if "end_ns" in table and len(table))
    steps = {PROCESS: 1000 * np.array(starts)} if starts else {}
    return Timeline(drawn, Window(1000 * starts[0] if starts else 0, end, "drawn", "", "step" if starts else "", steps))


def parts(timeline: Timeline) -> dict[tuple[str, str], float]:
    """Return the microseconds in a repetition by path and name."""
    frame = step_parts(timeline).frame
    STEP_PARTS.check(frame)
    return {(row["path"], row["name"]): row["time_ns"] / 1000 for row in frame.to_dict("records")}


def test_kernels_stand_in_the_range_that_launched_them_and_idle_time_where_the_cpu_was() -> None:
    timeline = stepped(
        """
        nvtx  [step              ][step              ]
        nvtx  .[load     ][fwd  ].[load      ][fwd  ]..
        cpu   ............L...................L......
        s7    .............aaaa................aaaa...
        """,
        0,
        20,
    )
    # a step begins with its first kernel: from 13 to 33, and to the end of the ranges
    times = parts(timeline)
    assert times["step / fwd", "a"] == 4
    assert ("step / load", "a") not in times
    assert times["step / load", "host code"] == 12 / 2
    assert sum(times.values()) == pytest.approx(step_split(timeline).frame["avg_ns"].iloc[0] / 1000)


def test_hundreds_of_kernels_have_names_of_their_own() -> None:
    drawn = draw(f"s7    {'a.' * 300}M")
    names = [f"kernel {number}" for number in range(300)]
    kernels = drawn.table("kernels").assign(name=pd.Categorical(names))
    frame = step_parts(Timeline(Profile({**drawn.tables, "kernels": kernels}))).frame
    assert {*names, "memset, Device"} <= {*frame["name"]}
    assert (frame.loc[frame["name"].isin(names), "time_ns"] == 1000).all()


def test_kernels_that_run_together_share_the_time_and_copies_behind_them_are_hidden() -> None:
    frame = step_parts(stepped("s7   aaaa....\ns8   ..bbbb..\ns9   ...HHHHH")).frame.set_index("name")
    assert frame["time_ns"].to_dict() == {"a": 3000, "b": 3000, "Host-to-Device, Pageable → Device": 2000}
    assert frame["hidden_ns"].to_dict() == {"a": 1000, "b": 1000, "Host-to-Device, Pageable → Device": 3000}
    assert frame["family"].tolist() == ["other", "other", "Host-to-Device"]
    assert frame["time_pct"].sum() == pytest.approx(100)


def test_families_are_those_by_which_kernel_time_is_grouped(recorded: Recorded) -> None:
    report = recorded.report("train")
    frame = report.result("step_parts").rows
    families = set(frame.loc[frame["category"] == "compute", "family"]) - {"(others)"}
    assert {"matrix products", "foreach and optimizers"} <= families <= set(kernel_groups(report)["family"]["name"])


def test_the_longest_of_a_part_can_be_found_in_the_window() -> None:
    row = step_parts(stepped("s7   .a.aaa.aa")).frame.set_index("name").loc["a"]
    assert (row["count"], row["longest_ns"], row["longest_at_ns"]) == (3, 3000, 3000)


def test_ranges_come_as_they_begin_and_their_own_parts_after_those_inside() -> None:
    timeline = stepped(
        """
        nvtx  [second      ]...........
        nvtx  .[inner]..........[third]
        cpu   .L.L......L........L.....
        s7    ..aabb......cc.......dd..
        """
    )
    paths = list(dict.fromkeys(path for path, _ in parts(timeline)))
    assert paths == ["second / inner", "second", "(no range)", "third"]


def test_a_launch_under_way_belongs_to_what_it_launches() -> None:
    times = parts(stepped("nvtx  [a   ]......\nnvtx  ......[b  ]\ncpu   .L....L.....\ns7    ..aa...aa..."))
    assert times["b", "launch"] == 1


def test_without_repetitions_it_is_the_window_that_is_made_of_parts() -> None:
    assert step_parts(stepped("s7   aa..")).title == "What the window is made of"
    assert step_parts(stepped("cpu  L...L...\ns7   .aa..aa.", 0, 4)).title == ""


def test_devices_stand_apart_and_each_adds_up_to_its_own_step() -> None:
    timeline = stepped("cpu   L.L.L.L...\ns7    .aa..aa...\ns7:1  ...bbb.bbb", 0, 4)
    frame, split = step_parts(timeline).frame, step_split(timeline).frame
    whole = split[split["category"] == WHOLE_STEP].set_index("device")["avg_ns"]
    assert frame.groupby("device")["time_ns"].sum().to_dict() == pytest.approx(whole.to_dict())


def test_small_ranges_count_for_the_one_around_them_and_small_parts_become_one() -> None:
    calls = "".join(f"[r{number}]" for number in range(3))
    long = "a" * 9000
    timeline = stepped(f"nvtx  [all{' ' * 40}]\nnvtx  .{calls}\ncpu   ..L...L...L...L\ns7    ....b.c...d..{long}")
    paths = set(step_parts(timeline).frame["path"])
    assert paths <= {"all", "(no range)", "(others)"}
    assert sum(parts(timeline).values()) == pytest.approx(
        step_parts(timeline).frame["longest_ns"].max() / 1000, rel=0.01
    )


def test_there_are_no_parts_without_work() -> None:
    result = step_parts(Timeline(draw("cpu  L.L")))
    assert result.frame.empty
    assert result.notes == ("The window has neither GPU work nor PyTorch operators.",)


@given(
    st.lists(st.text("..LCSAFJBGE", min_size=1, max_size=40), min_size=1, max_size=2),
    st.lists(st.text("....abnPHDMG", min_size=1, max_size=60), min_size=1, max_size=3),
    st.lists(st.sampled_from(["[f  ]", "[g    ]", "[h]", "...", "[i ", "]."]), max_size=10).map("".join),
    st.lists(st.integers(1, 30), max_size=3),
)
def test_parts_add_up_to_the_mean_step_and_by_category_to_its_split(
    cpus: list[str], streams: list[str], ranges: str, lengths: list[int]
) -> None:
    assume(any(letter.isalpha() for track in streams for letter in track))
    lines = [f"cpu:{7 + row}  {cpu}" for row, cpu in enumerate(cpus)]
    lines += [f"s{row}:{row % 2}  {track}" for row, track in enumerate(streams)]
    timeline = stepped("\n".join([*lines, f"nvtx  {ranges}."]), *np.cumsum([0, *lengths]).tolist() if lengths else ())
    assume(timeline.window.length_ns > 0)
    frame, split = step_parts(timeline).frame, step_split(timeline).frame
    STEP_PARTS.check(frame)
    assert (frame[["time_ns", "hidden_ns", "count"]] >= 0).all(axis=None)
    for device, rows in frame.groupby("device"):
        assert rows["time_pct"].sum() == pytest.approx(100)
        of_device = split[split["device"] == device].set_index("category")["avg_ns"]
        if len(of_device):
            assert rows["time_ns"].sum() == pytest.approx(of_device.pop(WHOLE_STEP))
            column = rows.groupby("category")["time_ns"].sum()
            assert column[column > 0].to_dict() == pytest.approx(of_device[of_device > 0].to_dict())


@pytest.mark.parametrize("name", CAPTURES)
def test_parts_of_real_captures_add_up(name: str, recorded: Recorded) -> None:
    report = recorded.report(name)
    frame = report.result("step_parts").rows
    split = report.result("step_split").rows
    for device, rows in frame.groupby("device"):
        assert rows["time_pct"].sum() == pytest.approx(100)
        whole = split[(split["device"] == device) & (split["category"] == WHOLE_STEP)]["avg_ns"].tolist()
        assert [rows["time_ns"].sum()] * len(whole) == pytest.approx(whole)


def test_work_outside_of_ranges_stands_under_the_operator_that_launched_it(recorded: Recorded) -> None:
    frame = recorded.report("mini_torch").result("step_parts").rows
    busy = frame[frame["group"] == "busy"]
    assert busy["path"].str.contains("aten::|nn.Module|Backward|Optimizer").any()


def test_without_gpu_work_it_is_the_time_of_threads(recorded: Recorded) -> None:
    frame = recorded.report("cpu").result("step_parts").rows
    assert frame["device"].isna().all()
    assert set(frame["category"]) == {"operators", "host code"}
    for _, rows in frame.groupby("tid"):
        assert rows["time_pct"].sum() == pytest.approx(100)
    # an operator has only the time that no operator inside it has
    own = recorded.report("cpu").result("cpu_ops").rows.set_index("name")["own_ns"]
    column = frame[frame["category"] == "operators"].groupby("name")["time_ns"].sum()
    assert (column <= own.reindex(column.index) + 1).drop("(others)", errors="ignore").all()


# -- one by one -------------------------------------------------------------------------------------------------------


def times(lengths: list[int]) -> pd.DataFrame:
    """Return the rows of steps of these lengths in microseconds, each with a kernel of 1 µs at its beginning."""
    starts = np.cumsum([0, *lengths])
    cpu, work = np.full(starts[-1], "."), np.full(starts[-1], ".")
    cpu[starts[:-1]], work[starts[:-1] + 1] = "L", "a"
    frame = step_times(
        stepped(f"cpu  {''.join(cpu)}\ns7   {''.join(work)}\ns8   {'.' * (starts[-1])}", *starts[:-1])
    ).frame
    STEP_TIMES.check(frame)
    return frame


def test_each_step_has_its_length_and_where_its_time_went() -> None:
    frame = times([10, 10, 20, 10, 10])
    assert frame["time_ns"].tolist()[:4] == [10_000, 10_000, 20_000, 10_000]
    assert frame["outliers"].tolist()[:4] == [0, 0, 1, 0]
    assert frame["start_ns"].tolist()[:3] == [1000, 11_000, 21_000]
    assert frame["compute_ns"].tolist() == [1000] * 5
    spent = frame[[name for name in STEP_CATEGORIES.values() if name in frame]].sum(axis=1)
    assert spent.tolist() == frame["time_ns"].tolist()


@pytest.mark.parametrize("count", [COLUMNS, COLUMNS + 1, 7 * COLUMNS + 3])
def test_of_many_steps_rows_hold_several_and_name_the_slowest(count: int) -> None:
    lengths = [4] * count
    lengths[count // 2] = 9
    frame = times(lengths)
    assert len(frame) <= COLUMNS
    assert frame["steps"].sum() == count
    assert frame["number"].tolist() == [0, *frame["steps"].cumsum().tolist()[:-1]]
    assert (frame["time_ns"] * frame["steps"]).sum() == frame["start_ns"].iloc[-1] - 1000 + (
        frame["time_ns"] * frame["steps"]
    ).iloc[-1]
    (slow,) = frame[frame["outliers"] > 0].to_dict("records")
    assert (slow["slowest"], slow["slowest_ns"]) == (count // 2, 9000)
    assert slow["slowest_start_ns"] == 4000 * (count // 2) + 1000


@pytest.mark.parametrize(("names", "first"), [("567", 6), ("sss", 1), ("579", 1), ("012", None)])
def test_a_step_has_the_number_that_the_program_gives_it(names: str, first: int | None) -> None:
    """The first step is left out of the window; numbers that do not count up are only names."""
    ranges = "".join(f"[{name} ]" for name in names)
    starts = (0, 4, 8) if first is None else (4, 8)
    drawn = stepped(f"nvtx  {ranges}\ncpu  L...L...L...\ns7   .a...a...a..", *starts)
    window = replace(drawn.window, family="s" if names == "sss" else "#")
    frame = step_times(Timeline(drawn.profile, window)).frame
    STEP_TIMES.check(frame)
    assert frame["number"].tolist() == list(range(len(starts)))
    numbers = frame["of_program"].tolist() if "of_program" in frame else None
    assert numbers == (None if first is None else [first, first + 1])


def test_a_window_without_repetitions_has_no_steps() -> None:
    for analysis in (step_split, step_times):
        result = analysis(stepped("s7   aa.."))
        assert result.notes == ("The window is not known to consist of repetitions.",)
        assert result.frame.empty
    STEP_TIMES.check(result.frame)


@pytest.mark.parametrize("name", ["train", "ddp2", "mini_torch"])
def test_steps_of_real_captures_have_the_mean_of_the_split(name: str, recorded: Recorded) -> None:
    report = recorded.report(name)
    split, frame = report.result("step_split").rows, report.result("step_times").rows
    for device, rows in frame.groupby("device"):
        mean = split[(split["device"] == device) & (split["category"] == WHOLE_STEP)]["avg_ns"].item()
        assert (rows["time_ns"] * rows["steps"]).sum() / rows["steps"].sum() == pytest.approx(mean)


def test_without_gpu_work_steps_are_those_of_the_cpu_and_of_its_operators(tmp_path: Path) -> None:
    def event(category: str, name: str, thread: int, start: int, length: int) -> dict[str, object]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": length}

    lengths = [100, 100, 300, 100, 100]
    starts = [1000 + sum(lengths[:number]) for number in range(len(lengths))]
    events = [event("user_annotation", "step", 1, *step) for step in zip(starts, lengths, strict=True)]
    # of two threads, 20 µs together: an instant counts once
    events += [event("cpu_op", "aten::mm", 1, start + 10, 30) for start in starts]
    events += [event("cpu_op", "aten::add", 2, start + 20, 40) for start in starts]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    report = build_report(read(path), "cpu")
    frame, split = report.result("step_times").rows, report.result("step_split").rows
    STEP_TIMES.check(frame)
    assert frame["device"].isna().all()
    assert frame["time_ns"].tolist() == [1000 * length for length in lengths]
    assert frame["operators_ns"].tolist() == [50_000] * 5
    assert (frame["operators_ns"] + frame["host_ns"]).tolist() == frame["time_ns"].tolist()
    assert frame["outliers"].tolist() == [0, 0, 1, 0, 0]
    assert split.set_index("category")["avg_ns"].to_dict() == {
        WHOLE_STEP: 140_000,
        "operators": 50_000,
        "host code": 90_000,
    }
    # an odd step must not move what is compared
    assert measures(report, source="").table.set_index("name")["value"]["step_ns"] == 100_000
    page = render_html(report)
    assert "In operators" in page
    assert "Solid: in operators, on any thread. Pale: outside. The line is the median of all steps." in page


def test_without_operators_a_step_of_the_cpu_is_host_code() -> None:
    report = build_report(draw("nvtx  [s ][s   ][s ]"), "cpu")
    frame = report.result("step_times").rows
    assert frame["host_ns"].tolist() == frame["time_ns"].tolist() == [4000, 6000, 4000]
    assert "Pale: all of a step, because no operators were recorded. The line is" in render_html(report)


def test_captures_without_api_calls_have_parts_too() -> None:
    drawn = draw("s7   aa..bb")
    tables = {name: table for name, table in drawn.tables.items() if name not in ("api_calls", "ranges")}
    assert step_parts(Timeline(Profile(tables))).frame["time_pct"].sum() == pytest.approx(100)
