"""The place of a finding: its range, and the kernels that the page has."""

from typing import Any

import pandas as pd
import pytest

from nightsight.model.report import Finding
from nightsight.render.page.places import Places
from nightsight.results.causes import REPLAY, WHAT_IF
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.ranges import RANGE_KERNELS
from tests.reports import result, small_report


def finding(title: str = "It is slow", **fields: Any) -> Finding:
    return Finding("wait", "advice", title, "", gain_pct=20.0, **fields)


def places(path: str = "", *kernels: tuple[str, str, float]) -> Places:
    replay = pd.DataFrame({"unprofiled_ns": [1e6], "of_repetitions": 9})
    fixes = pd.DataFrame({"rule": ["wait"], "path": [path], "gain_pct": 20.0, "order": 1, "after_ns": 8e5})
    ranges = pd.DataFrame(kernels, columns=["path", "name", "total_ns"])
    names = pd.DataFrame({"name": ["a", "b"], "total_ns": [9.0, 3.0]})
    results = (
        result(REPLAY.name, replay),
        result(WHAT_IF.name, fixes),
        result(CUDA_GPU_KERN_SUM.name, names),
        result(RANGE_KERNELS.name, ranges),
    )
    return Places(small_report(results=results))


def test_a_range_is_said_if_the_title_does_not() -> None:
    found = places("step / load")
    assert (found.path(finding()), found.unnamed_range(finding())) == ("step / load", "step / load")
    assert found.unnamed_range(finding("It is slow in `load`")) == ""
    assert places("(outside)").path(finding()) == ""


@pytest.mark.parametrize(
    ("others", "path"), [([("step / back", "a", 4.0)], "step"), ([("back", "a", 6.0)], "back"), ([("x", "a", 5.0)], "")]
)
def test_kernels_are_in_the_range_with_most_of_their_time(others: list[tuple[str, str, float]], path: str) -> None:
    found = places("", ("step", "a", 5.0), ("else", "b", 99.0), *others)
    assert found.path(finding(kernels=("a", "b"))) == path


def test_kernels_are_those_of_the_page() -> None:
    assert places().kernels(finding(kernels=("b", "gone", "a"))) == ("b", "a")


def test_without_a_report_nothing_is_known() -> None:
    nowhere = Places()
    assert (nowhere.path(finding(kernels=("a",))), nowhere.kernels(finding(kernels=("a",)))) == ("", ())
