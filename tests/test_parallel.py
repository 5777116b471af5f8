"""Threads: order, errors, values that are computed once, and the same report however they run."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nightsight.read import read
from nightsight.system import parallel
from nightsight.system.parallel import memoize, thread_map
from nightsight.workflows.analysis import build_report


class Owner:
    """Something that values are of."""


@pytest.mark.parametrize("rows", [0, 10**9])
def test_values_come_in_the_order_of_their_items_and_errors_are_raised(rows: int) -> None:
    def slow(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return -number

    assert list(thread_map(slow, range(5), rows=rows)) == [0, -1, -2, -3, -4]
    with pytest.raises(ZeroDivisionError):
        list(thread_map(lambda number: 1 // number, [1, 0], rows=rows))


def test_threads_wait_for_the_one_that_computes_a_value() -> None:
    computed: list[int] = []

    @memoize
    def value(_: Owner) -> int:
        time.sleep(0.02)
        computed.append(threading.get_ident())
        return 7

    owner = Owner()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(value, [owner] * 8)) == [7] * 8
    assert len(computed) == 1
    assert value(Owner()) == 7
    assert len(computed) == 2


def test_a_value_that_could_not_be_computed_is_asked_for_again() -> None:
    tries: list[int] = []

    @memoize
    def value(_: Owner) -> int:
        tries.append(1)
        return 1 // (len(tries) - 1)

    owner = Owner()
    with pytest.raises(ZeroDivisionError):
        value(owner)
    assert value(owner) == 1


def test_threads_change_no_result(capture_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    capture, reports = capture_file("everything"), set()
    monkeypatch.setattr(parallel, "MANY_ROWS", 0)
    for count in (1, 2, 2):
        monkeypatch.setattr(parallel, "_allowed", [count])
        reports.add(build_report(read(capture), "everything").to_json())
    assert len(reports) == 1
