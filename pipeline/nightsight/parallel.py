"""Thread pools for work on arrays: numpy releases the GIL while it computes, most Python code does not."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import RLock
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

# each task has its own arrays, so more threads take more memory
_MOST_THREADS: Final = 2
_allowed = [_MOST_THREADS]

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def threads() -> ThreadPoolExecutor:
    """Return a thread pool for such tasks, to be used in a `with` statement."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _allowed[0]))


def use_one_thread() -> None:
    """Let `threads` have one thread from now on: for a process that is one of many, each with a core of its own."""
    _allowed[0] = 1


def mapped(function: Callable[[_Item], _Value], items: Iterable[_Item]) -> list[_Value]:
    """Apply the function to each item in several threads; return the values in the order of the items."""
    with threads() as pool:
        return list(pool.map(function, items))


def once(compute: Callable[[_Item], _Value]) -> Callable[[_Item], _Value]:
    """Memoize a function of one argument, thread-safely and with weak references to the arguments.

    Deadlocks if the function waits for a worker thread that calls it.
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
