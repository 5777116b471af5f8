"""Flame graphs: which boxes there are, how wide they are, what is written in them, and what is left out."""

from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.boxes import Box, Tree
from nightsight.render.figure.flames import flames
from tests.recorded import Recorded

Row = tuple[str, str, float]


def table(*rows: Row, device: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        [{"device": device, "cause": cause, "stack": stack, "time_ns": 1e6 * time} for cause, stack, time in rows],
        columns=["device", "cause", "stack", "time_ns"],
    )


def flame(*rows: Row) -> Tree:
    ((tree,),) = (shown.trees for shown in flames(table(*rows)))
    return tree


def drawn(tree: Tree) -> list[tuple[str, float, float, float]]:
    """Return of each box the beginning of its title, its level, its left edge and its width."""
    return [(box.title.split(":")[0], box.y / 1.5, box.x, box.width) for box in tree.boxes]


ROWS: tuple[Row, ...] = (
    ("host code", "train (t.py:7);load (t.py:4)", 60),
    ("host code", "train (t.py:7);[backward (_tensor.py)]", 20),
    ("host code", "train (t.py:7)", 10),
    ("launch", "", 10),
)


def test_causes_are_on_top_and_functions_below_their_callers_the_largest_first() -> None:
    tree = flame(*ROWS)
    assert drawn(tree) == [
        ("host code", 0, 0, 90),
        ("launch", 0, 90, 10),
        ("train (t.py", 1, 0, 90),
        ("load (t.py", 2, 0, 60),
        ("backward (_tensor.py)", 2, 60, 20),
    ]
    assert [box.look for box in tree.boxes] == ["series-others", "series-api", "of-own", "of-own", "of-library"]
    assert [box.title for box in tree.boxes[2:4]] == [
        "train (t.py:7): 90.0 ms, 90.0 % of the idle time; itself 10.0 ms",
        "load (t.py:4): 60.0 ms, 60.0 % of the idle time",
    ]
    assert (tree.heading, tree.height) == ("Idle 100 ms", 4.5)
    assert tree.summary == "idle 100 ms: host code 90.0 %, most in train (t.py:7) → load (t.py:4); launch 10.0 %"


def test_what_is_written_fits() -> None:
    def written(name: str, share: float) -> tuple[str, str, str, str]:
        box = flame(("host code", name, share), ("launch", "", 100 - share)).boxes[2]
        return box.name, box.name_from, box.detail, box.detail_from

    # 7.3 pixels a letter and 9 around: in plots of 320, 660 and 1080 pixels
    assert written("collate (data.py:41)", 49) == ("collate", "", " (data.py:41)", "")
    assert written("collate (data.py:41)", 48) == ("collate", "", " (data.py:41)", "wide")
    assert written("collate (data.py:41)", 18) == ("collate", "wide", " (data.py:41)", "widest")
    assert written("collate (data.py:41)", 10) == ("collate", "wide", "", "")
    assert written("collate (data.py:41)", 6) == ("collate", "widest", "", "")
    assert written("collate (data.py:41)", 5) == ("", "", "", "")
    assert written("[step (adam.py)]", 50)[0] == "step"
    assert written("aten::add", 50) == ("aten::add", "", "", "")


def test_a_cause_without_room_for_its_name_has_its_share() -> None:
    boxes = flame(("module load and JIT", "a", 10), ("host code", "a", 90)).boxes
    assert [(box.name, box.detail) for box in boxes if box.look.startswith("series")] == [
        ("host code", " 90.0 %"),
        ("10.0 %", ""),
    ]


def test_small_functions_are_one_box_and_smaller_ones_none() -> None:
    rows = [("host code", f"main;f{number}", 0.3) for number in range(10)]
    tree = flame(*rows, ("host code", "main;load", 97))
    assert drawn(tree)[2:] == [("load", 2, 0, 97), ("others", 2, 97, 3)]
    assert tree.boxes[-1].title == "others: 10 functions: 3.00 ms, 3.0 % of the idle time"
    assert (tree.boxes[-1].look, tree.boxes[-1].name) == ("of-others", "")
    assert len(flame(("host code", "main;load", 99.6), ("host code", "main;f", 0.4)).boxes) == 3


def test_deep_stacks_are_cut_and_this_is_reported() -> None:
    deep = ";".join(f"f{number}" for number in range(30))
    (shown,) = flames(table(("host code", deep, 1)))
    assert len(shown.trees[0].boxes) == 20
    assert shown.notes[1:] == ("Only 20 levels are drawn; the table has them all.",)


def test_the_devices_with_the_most_idle_time_are_drawn() -> None:
    of_six = pd.concat([table(("host code", "main", 1 + device), device=device) for device in range(6)])
    (shown,) = flames(of_six)
    assert [one.heading.split(",")[0] for one in shown.trees] == ["GPU 2", "GPU 3", "GPU 4", "GPU 5"]
    assert shown.notes[1:] == ("The 4 of 6 devices with the most idle time.",)
    assert shown.trees[0].summary.startswith("GPU 2, idle 3.00 ms: ")


def test_without_gpu_work_each_thread_is_drawn_and_its_time_is_not_called_idle() -> None:
    rows = [
        table(("operators", "main", 3), ("host code", "main;load", 1)).assign(device=None, tid=tid) for tid in (7, 8)
    ]
    (shown,) = flames(pd.concat(rows))
    assert [one.heading for one in shown.trees] == ["Thread 7, time 4.00 ms", "Thread 8, time 4.00 ms"]
    assert shown.trees[0].boxes[0].title == "operators: 3.00 ms, 75.0 % of the time"
    assert not any("idle" in text for text in (shown.title, *shown.notes, shown.trees[0].summary))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        table(),
        table(("host code", "", 5)),
        table(("host code", "main", float("nan"))),
        table(("host code", "main", -1)),
        table(("host code", "main", 1)).drop(columns="cause"),
    ],
)
def test_without_stacks_there_is_no_picture(frame: pd.DataFrame) -> None:
    assert flames(frame) == ()


def test_what_a_damaged_report_can_hold_is_drawn_or_left_out() -> None:
    frame = table(("host code", "main", 1), ("host code", "load", 2))
    assert flames(frame.assign(device=None)) == ()
    (numbers,) = flames(frame.assign(stack=[5, 7.5]))
    assert [box.title[:3] for box in numbers.trees[0].boxes[1:]] == ["7.5", "5.0"]
    (missing,) = flames(frame.assign(stack=pd.Series(["main", None]), cause=pd.Series([None, 3], dtype="object")))
    assert [box.title for box in missing.trees[0].boxes if box.look.startswith("series")] == [
        "(no name): 3.00 ms, 100.0 % of the idle time"
    ]
    assert flames(frame.assign(device=["a", "b"]))[0].trees[0].heading.startswith("GPU a, idle ")


NAMES = st.sampled_from(["a", "b", "[c (x.py)]", "d (y.py:3)", "others: 1 function", ""]) | st.text(max_size=5)
TIMES = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=25).map(";".join), TIMES), min_size=1, max_size=20))
def test_boxes_lie_in_their_callers_and_beside_one_another(rows: list[Row]) -> None:
    for shown in flames(table(*rows)):
        levels: dict[float, list[Box]] = {}
        for box in shown.trees[0].boxes:
            levels.setdefault(box.y, []).append(box)
        assert levels
        for level, boxes in levels.items():
            assert all(one.x + one.width <= other.x + 0.01 for one, other in pairwise(boxes))
            above = levels.get(level - 1.5, [Box(0, 0, 100, look="", title="")])
            assert all(any(is_inside(box, other) for other in above) for box in boxes)


def is_inside(box: Box, other: Box) -> bool:
    return other.x - 0.01 <= box.x and box.x + box.width <= other.x + other.width + 0.01


def test_the_page_of_a_program_without_annotations_has_one(recorded: Recorded) -> None:
    page = recorded.page("python_names")
    assert '<svg class="flame" role="img" aria-label="idle ' in page
    assert "collate (line 4): " in page
    assert page.count("<title>&lt;module&gt; (line 9): ") == 1
