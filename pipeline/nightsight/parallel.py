"""Work that several cores can share: numpy lets other threads run while it computes, most of Python does not."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import RLock
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

# each task has arrays of its own, so more of them take more memory
_MOST_THREADS: Final = 2

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def threads() -> ThreadPoolExecutor:
    """Return threads for tasks like these, for a `with` statement."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS))


def mapped(function: Callable[[_Item], _Value], items: Iterable[_Item]) -> list[_Value]:
    """Return the function's value for each item, in their order, computed by several threads."""
    with threads() as pool:
        return list(pool.map(function, items))


def once(compute: Callable[[_Item], _Value]) -> Callable[[_Item], _Value]:
    """Thread-safe memoization by weak reference to the argument.

    Deadlocks if the function waits for a worker that calls it.
    """
    known: WeakKeyDictionary[_Item, _Value] = WeakKeyDictionary()
    lock = RLock()

    @wraps(compute)
    def remembered(item: _Item) -> _Value:
        with lock:
            if item not in known:
                known[item] = compute(item)
            return known[item]

    return remembered
