"""Icicles: boxes fill the boxes above them, small parts are one, texts fit, and rows of the table are found again."""

from collections.abc import Callable

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.boxes import Box, Tree
from nightsight.render.figure.icicle import icicles
from tests.recorded import Recorded

Row = tuple[str, str, str, float]
KINDS = {"compute": "busy", "communication": "busy", "copies and sets": "busy", "host code": "idle", "launch": "idle"}


def table(*rows: Row, step: str = "step #", device: int = 0) -> pd.DataFrame:
    """Return parts: path, category, `family kernel` and microseconds."""
    return pd.DataFrame(
        [
            {
                "device": device,
                "step": step,
                "steps": 10 if step else 0,
                "path": path,
                "group": KINDS.get(category, "busy"),
                "category": category,
                "family": name.split(" ")[0],
                "name": name,
                "time_ns": 1000.0 * time,
                "count": 2.0,
            }
            for path, category, name, time in rows
        ]
    )


def same(name: str) -> str:
    return name


def icicle(*rows: Row, step: str = "step #") -> Tree:
    ((tree,),) = (shown.trees for shown in icicles(table(*rows, step=step), same))
    return tree


def drawn(tree: Tree) -> list[tuple[str, int, float, float]]:
    """Return of each box the beginning of its title, its level, its left edge and its width."""
    return [(box.title.split(":")[0], box.level, box.x, box.width) for box in tree.boxes]


ROWS: tuple[Row, ...] = (
    ("step # / forward", "compute", "gemm 128", 30),
    ("step # / forward", "compute", "gemm 64", 10),
    ("step # / forward", "host code", "host code", 10),
    ("step # / backward / layer", "compute", "norm", 20),
    ("step # / backward", "communication", "nccl", 10),
    ("step #", "launch", "launch", 20),
)


def test_ranges_are_above_families_and_these_above_kernels() -> None:
    tree = icicle(*ROWS)
    assert drawn(tree) == [
        ("forward", 1, 0, 50),
        ("gemm", 3, 0, 40),
        ("gemm 128", 4, 0, 30),
        ("gemm 64", 4, 30, 10),
        ("host code", 3, 40, 10),
        ("backward", 1, 50, 30),
        ("layer", 2, 50, 20),
        ("norm", 3, 50, 20),
        ("itself", 2, 70, 10),
        ("nccl", 3, 70, 10),
        ("itself", 1, 80, 20),
        ("launch", 3, 80, 20),
    ]
    assert tree.heading == "100 µs, mean of 10 steps"
    assert tree.aside == "Busy 70.0 %, idle 30.0 % of the steps"
    assert tree.summary.startswith("100 µs, mean of 10 steps; busy 70.0 %, idle 30.0 % of the steps: ")
    assert ": forward 50.0 %, most gemm; " in tree.summary


def test_a_range_without_others_inside_reaches_down_to_its_kernels() -> None:
    boxes = {(box.title.split(":")[0], box.x): box for box in icicle(*ROWS).boxes}
    forward, layer, gemm = boxes["forward", 0.0], boxes["layer", 50.0], boxes["gemm", 0.0]
    assert forward.y + forward.height == layer.y + layer.height == gemm.y
    assert boxes["norm", 50.0].height == gemm.height + boxes["gemm 128", 0.0].height


def test_boxes_say_what_they_are_and_which_rows_they_stand_for() -> None:
    boxes = {(box.title.split(":")[0], box.x): box for box in icicle(*ROWS).boxes}
    assert boxes["forward", 0.0].title == "forward: 50.0 µs, 50.0 % of the step; GPU busy 40.0 µs"
    assert boxes["gemm", 0.0].title == "gemm: 40.0 µs, 40.0 % of the step; 4 times a step"
    assert boxes["launch", 80.0].title == "launch: 20.0 µs, 20.0 % of the step; 2 stretches a step"
    assert [boxes[key].rows for key in (("forward", 0.0), ("gemm 64", 30.0), ("backward", 50.0))] == ["0-2", "1", "3-4"]
    assert [boxes[key].path for key in (("forward", 0.0), ("layer", 50.0))] == [
        "step # / forward",
        "step # / backward / layer",
    ]
    assert [boxes[key].look for key in (("gemm", 0.0), ("nccl", 70.0), ("host code", 40.0))] == [
        "series-kernel",
        "series-set",
        "series-others",
    ]
    assert [boxes[key].is_idle for key in (("gemm", 0.0), ("host code", 40.0))] == [False, True]


def test_the_range_measure_is_around_steps_too() -> None:
    tree = icicle(("measure / step # / f", "compute", "a", 1), ("(no range)", "compute", "b", 1))
    assert [(name, level) for name, level, *_ in drawn(tree)] == [("f", 1), ("a", 2), ("(no range)", 1), ("b", 2)]
    assert tree.boxes[0].path == "measure / step # / f"


def test_without_ranges_there_are_families_and_kernels() -> None:
    tree = icicle(("(no range)", "compute", "a 1", 1), ("(no range)", "compute", "a 2", 1), step="")
    assert [name for name, *_ in drawn(tree)] == ["a", "a 1", "a 2"]
    assert tree.heading == "2.00 µs"
    assert tree.boxes[0].title == "a: 2.00 µs, 100.0 % of the window; 4 times"


def test_small_parts_are_one_but_their_time_is_kept() -> None:
    small: list[Row] = [("step # / f", "compute", f"k{number}", 0.01) for number in range(20)]
    tree = icicle(("step # / f", "compute", "gemm", 90), *small, ("step # / g", "host code", "host code", 9.8))
    assert [(name, round(width, 2)) for name, _, _, width in drawn(tree)] == [
        ("f", 90.2),
        ("gemm", 90),
        ("20 other parts", 0.2),
        ("g", 9.8),
        ("host code", 9.8),
    ]
    assert tree.boxes[2].rows == "1-20"


def test_there_are_never_too_many_boxes() -> None:
    many: list[Row] = [(f"step # / r{number}", "compute", f"k{number}", 1) for number in range(450)]
    tree = icicle(*many)
    assert len(tree.boxes) <= 300
    assert sum(box.width for box in tree.boxes if box.level == 1) == pytest.approx(100, abs=0.5)


def test_a_label_that_has_no_room_is_cut_and_one_of_a_cause_gives_way_to_its_share() -> None:
    long = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    boxes = icicle(
        ("step # / f", "compute", long, 30),
        ("step # / f", "module load and JIT", "module load and JIT", 8),
        ("step # / f", "compute", "x", 62),
    ).boxes
    assert [box.name for box in boxes if box.title.startswith("sm80")] == [
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tile…"
    ]


def test_the_first_devices_are_drawn_and_others_counted() -> None:
    of_six = pd.concat([table(("step #", "compute", "a", 1), device=device) for device in range(6)])
    (shown,) = icicles(of_six, same)
    assert [one.heading.split(":")[0] for one in shown.trees] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert shown.notes[-1] == "The first 4 of 6; the table has all."


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[:0],
        lambda frame: frame.drop(columns="path"),
        lambda frame: frame.assign(time_ns=float("nan")),
        lambda frame: frame.assign(time_ns=-1),
    ],
)
def test_without_time_there_is_no_picture(change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    assert icicles(change(table(*ROWS)), same) == ()


def test_what_a_damaged_report_can_hold_is_drawn() -> None:
    frame = table(*ROWS)
    for column, value in (
        ("name", None),
        ("family", None),
        ("category", 5),
        ("group", None),
        ("path", None),
        ("step", 3),
    ):
        assert icicles(frame.assign(**{column: value}), same)[0].trees[0].boxes
    assert icicles(frame.assign(count=None), same)[0].trees[0].boxes[0].title.startswith("forward: ")


NAMES = st.sampled_from(["f", "g", "f / h", "f / h / i", "g / x", "(no range)", ""])
PATHS = NAMES.map(lambda name: f"step # / {name}".removesuffix(" / ") if name != "(no range)" else name)
PARTS = st.tuples(PATHS, st.sampled_from(list(KINDS)), st.sampled_from(["a 1", "a 2", "b", "c"]), st.floats(0.01, 100))


def check(boxes: tuple[Box, ...]) -> None:
    """Children fill the box above them at every level, and the lowest levels show all of the step."""
    for box in boxes:
        below = [
            other
            for other in boxes
            if other.y == pytest.approx(box.y + box.height)
            and box.x - 0.002 <= other.x
            and other.x + other.width <= box.x + box.width + 0.004
        ]
        is_kernel = box.look.startswith("series")
        if not is_kernel or below:
            assert sum(other.width for other in below) == pytest.approx(box.width, abs=0.002 * (1 + len(below)))
    bottom = max(box.y + box.height for box in boxes)
    lowest = [box for box in boxes if box.y + box.height == pytest.approx(bottom)]
    assert sum(box.width for box in lowest) == pytest.approx(100, abs=0.002 * len(lowest))
    top = [box for box in boxes if box.y == 0]
    assert sum(box.width for box in top) == pytest.approx(100, abs=0.002 * len(top))


@given(st.lists(PARTS, min_size=1, max_size=25))
def test_boxes_fill_the_boxes_above_them(rows: list[Row]) -> None:
    check(icicle(*rows).boxes)


@pytest.mark.parametrize("name", ["train", "ddp2", "graph", "mlp", "mini_torch", "cpu"])
def test_boxes_of_real_captures_fill_the_boxes_above_them(name: str, recorded: Recorded) -> None:
    report = recorded.report(name)
    (shown,) = icicles(report.result("step_parts").rows, same)
    assert shown.trees
    for tree in shown.trees:
        assert len(tree.boxes) <= 300
        check(tree.boxes)
