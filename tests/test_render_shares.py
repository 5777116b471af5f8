"""Where the time went: the parts of a bar fill it and say their numbers."""

import math
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.shares import Wholes, whole_percents, wholes
from nightsight.render.page.page import page
from tests.properties import examples
from tests.recorded import Recorded


def table(*rows: tuple[str, str, float], device: int = 0) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["group", "category", "time_ns"])
    total = frame["time_ns"].sum()
    return frame.assign(device=device, share_pct=100 * frame["time_ns"] / total, hidden_ns=None, functions="")


def test_parts_are_beside_one_another_and_busy_ones_come_first() -> None:
    drawn = wholes(table(("idle", "host code", 50e6), ("busy", "compute", 40e6), ("busy", "copies and sets", 10e6)))
    (whole,) = drawn.bars
    assert [part.label for part in drawn.key] == ["host code", "compute", "copies and sets"]
    assert [(part.label, part.x, part.width) for part in whole.parts] == [
        ("compute", 0, 40),
        ("copies and sets", 40, 10),
        ("host code", 50, 50),
    ]
    assert (whole.busy, whole.busy_text, whole.idle_text) == (50, "Busy 50.0 %, 50.0 ms", "Idle 50.0 %, 50.0 ms")
    assert whole.total == "100 ms"
    assert whole.summary == "100 ms: compute 40.0 %, copies and sets 10.0 %, host code 50.0 %"


def test_a_gpu_that_communicates_is_not_called_busy() -> None:
    parts = [("busy", "compute", 70e6), ("busy", "communication", 24e6), ("busy", "CUDA graphs", 5e6)]
    frame = table(*parts, ("idle", "launch", 1e6))
    assert wholes(frame).bars[0].busy_text == "Computing 75.0 %, communicating 24.0 %"
    assert [bar.busy_text for bar in wholes(pd.concat([frame, frame.assign(device=1)])).bars] == [
        "Computing 75.0 %"
    ] * 2
    # one word for all, also for those that communicate little
    waits = table(("busy", "compute", 10e6), ("busy", "communication", 2e6), ("idle", "host code", 88e6), device=1)
    assert [bar.busy_text for bar in wholes(pd.concat([frame, waits])).bars] == ["Computing 75.0 %", "Computing 10.0 %"]
    little = table(("busy", "compute", 96e6), ("busy", "communication", 4e6))
    assert wholes(little).bars[0].busy_text == "Busy 100.0 %, 100 ms"


def test_a_part_is_written_on_where_there_is_room() -> None:
    (whole,) = wholes(table(("busy", "compute", 900), ("busy", "copies and sets", 80), ("idle", "launch", 20))).bars
    assert [part.inside for part in whole.parts] == ["all", "share", ""]


def test_devices_have_a_bar_each() -> None:
    one, two = table(("busy", "compute", 5)), table(("idle", "launch", 7), device=4)
    drawn = wholes(pd.concat([two, one]))
    assert [(whole.label, whole.busy) for whole in drawn.bars] == [("GPU 0", 100), ("GPU 4", 0)]


def test_several_devices_have_one_key_of_their_mean() -> None:
    one = table(("busy", "compute", 90), ("idle", "launch", 10))
    two = table(("busy", "compute", 50), ("idle", "host code", 50), device=1)
    drawn = wholes(pd.concat([one, two]))
    assert [(part.label, part.share) for part in drawn.key] == [
        ("compute", "70.0 %"),
        ("host code", "25.0 %"),
        ("launch", "5.0 %"),
    ]
    assert drawn.notes[0].startswith("The numbers are means of all bars.")


def test_the_bars_have_one_order_whatever_a_device_lacks_and_the_key_has_the_largest_first() -> None:
    one = table(("busy", "compute", 80), ("idle", "host code", 20))
    parts = (("busy", "compute", 40), ("busy", "communication", 20), ("idle", "allocation and free", 10))
    two = table(*parts, ("idle", "host code", 30), device=1)
    drawn = wholes(pd.concat([one, two]))
    labels = ["compute", "communication", "allocation and free", "host code"]
    assert [part.label for part in drawn.bars[1].parts] == labels
    assert [part.label for part in drawn.key] == ["compute", "host code", "communication", "allocation and free"]


def test_the_key_adds_up_the_parts_below_one_percent() -> None:
    small = [("idle", "launch", 5e6), ("idle", "dependency", 0.4e6)]
    drawn = wholes(table(("busy", "compute", 900e6), ("idle", "host code", 94.6e6), *small))
    assert [(part.label, part.share, part.time) for part in drawn.key] == [
        ("compute", "90.0 %", "900 ms"),
        ("host code", "9.5 %", "94.6 ms"),
        ("2 more, each below 1 %", "0.5 %", "5.40 ms"),
    ]
    assert [part.label for part in drawn.bars[0].parts] == ["compute", "launch", "dependency", "host code"]
    one = wholes(table(("busy", "compute", 995), ("idle", "launch", 5)))
    assert [part.label for part in one.key] == ["compute", "launch"]


def test_of_many_devices_the_first_have_a_bar_and_the_others_are_counted() -> None:
    drawn = wholes(pd.concat([table(("busy", "compute", 5), device=device) for device in range(11)]))
    assert len(drawn.bars) == 8
    assert drawn.notes[0].endswith(" 3 more are in the table, and in the means.")


@examples(200)
@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=12))
def test_the_percentages_of_a_whole_add_up(times: list[int]) -> None:
    texts = whole_percents(times)
    shown = [0.0 if text.startswith("<") else float(text.removesuffix(" %")) for text in texts]
    assert sum(shown) == pytest.approx(100.0 if sum(times) else 0.0, abs=1e-6)
    for time, text, number in zip(times, texts, shown, strict=True):
        assert (time == 0) == (text == "0 %")
        assert abs(number - 100 * time / max(sum(times), 1)) <= 0.1 + 1e-9


@examples(100)
@given(st.lists(st.floats() | st.integers(0, 1 << 62).map(float), max_size=12))
def test_parts_fill_the_bar_whatever_they_are(times: list[float]) -> None:
    rows = pd.DataFrame({"device": 0, "group": "idle", "category": [f"c{place}" for place in range(len(times))]})
    drawn = wholes(rows.assign(time_ns=times))
    positive = [time for time in times if math.isfinite(time) and time > 0]
    assert len(drawn.bars) == bool(positive)
    for whole in drawn.bars:
        assert len(whole.parts) == len(positive)
        assert whole.parts[-1].x + whole.parts[-1].width == pytest.approx(100)
        assert all(left.x + left.width == pytest.approx(right.x) for left, right in pairwise(whole.parts))


def test_a_table_that_lacks_a_column_is_not_drawn() -> None:
    assert wholes(table(("busy", "compute", 5)).drop(columns="group")) == Wholes()


@pytest.mark.parametrize("name", ["train", "ddp2", "mlp", "everything"])
def test_the_bar_of_a_real_report_is_its_table(recorded: Recorded, name: str) -> None:
    report = recorded.report(name)
    rows = report.result("time_split").rows
    drawn = page(report).windows.windows[0].wholes
    for (_, of_device), whole in zip(rows.groupby("device"), drawn.bars, strict=True):
        assert [part.label for part in whole.parts] == of_device["category"].tolist()
        assert [part.width for part in whole.parts] == pytest.approx(of_device["share_pct"].tolist(), abs=0.002)
        assert sum(part.width for part in whole.parts) == pytest.approx(100)
