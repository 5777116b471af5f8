"""Which cases of a test are run: as many as fit into the time of `make check` or `make test`, spread evenly.

`tests/costs.txt` has the seconds that a case of a test takes, where all of its cases together take long enough to
matter. `make costs` writes it, on an idle machine. A test that is not listed is run with all its cases.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest

_COSTS: Final = Path(__file__).with_name("costs.txt")
_ROOT: Final = _COSTS.parents[1]
# what all cases of a test may take together, where it has several, and what one of them may take
_ALL_S: Final = float(os.environ.get("NIGHTSIGHT_ALL_CASES_S", "inf"))
_ONE_S: Final = float(os.environ.get("NIGHTSIGHT_ONE_CASE_S", "inf"))
_WORTH_LISTING_S: Final = 0.15
# `make costs` gives properties so many
_MEASURED_EXAMPLES: Final = 10
_TEST: Final = re.compile(r"^def (test_\w+)", re.MULTILINE)


def function_of(nodeid: str) -> str:
    """Return the test that a case belongs to: `tests/test_x.py::test_y`."""
    return nodeid.partition("[")[0]


@cache
def costs() -> dict[str, float]:
    """Return the seconds that a case of each listed test takes."""
    if not _COSTS.exists():
        return {}
    lines = (line.split() for line in _COSTS.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for seconds, name in lines}


def is_left_out(path: Path) -> bool:
    """Whether no case of any test in a file fits, so that it need not even be imported."""
    if float("inf") == _ONE_S or not path.name.startswith("test_"):
        return False
    text = path.read_text(encoding="utf-8")
    names = _TEST.findall(text)
    file = path.relative_to(_ROOT).as_posix()
    return "mark.essential" not in text and all(costs().get(f"{file}::{name}", 0.0) > _ONE_S for name in names)


def fitting_examples(test: str) -> int:
    """Return how many examples of a property fit into the time."""
    cost = costs().get(test, 0.0)
    return int(_MEASURED_EXAMPLES * _ALL_S / cost) if cost and float("inf") != _ALL_S else sys.maxsize


def chosen(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that fit, of each test from its first to its last."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[function_of(item.nodeid)].append(item)
    kept = set[pytest.Item]()
    for test, cases in tests.items():
        cost = costs().get(test, 0.0)
        kept |= {case for case in cases if case.get_closest_marker("essential")}
        if cost <= _ONE_S:
            count = len(cases) if cost * len(cases) <= _ALL_S else max(int(_ALL_S / cost), 1)
            kept |= {cases[place] for place in np.linspace(0, len(cases) - 1, count).round().astype(int).tolist()}
    return kept


class Costs:
    """A plugin of pytest that writes down what the tests of this run took."""

    def __init__(self) -> None:
        self._taken = defaultdict[str, dict[str, float]](dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what a case took to set up, to run and to clean up after."""
        cases = self._taken[function_of(report.nodeid)]
        cases[report.nodeid] = cases.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file anew; after a run of the cheap tests, raise what it has of them.

        Alone they prepare what more expensive tests had prepared for them.
        """
        means = {
            test: sum(cases.values()) / len(cases)
            for test, cases in self._taken.items()
            if sum(cases.values()) > _WORTH_LISTING_S
        }
        if float("inf") != _ONE_S:
            means = costs() | {test: max(mean, costs().get(test, 0.0)) for test, mean in means.items()}
        _COSTS.write_text("".join(f"{mean:.2g} {test}\n" for test, mean in sorted(means.items())), encoding="utf-8")
