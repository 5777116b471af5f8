"""Thread pools for work on arrays: numpy releases the GIL while it computes, most Python code does not."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from threading import RLock
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

# each task has its own arrays, so more threads take more memory
_MOST_THREADS: Final = 2
MANY_ROWS: Final = 500_000
"""Work on fewer rows of events is mostly Python code, for which threads only wait for each other."""
_allowed = [_MOST_THREADS]

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def use_one_thread() -> None:
    """Limit `thread_map` to one thread, for processes with one core each."""
    _allowed[0] = 1


def thread_map(function: Callable[[_Item], _Value], items: Iterable[_Item], *, rows: int) -> Iterator[_Value]:
    """Apply the function to each item, and yield the values in the order of the items.

    Uses several threads if the items have many rows of events; `rows` is their approximate total.
    """
    count = min(os.cpu_count() or 1, _allowed[0])
    if count < 2 or rows < MANY_ROWS:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(count) as pool:
        yield from pool.map(function, items)


def background(compute: Callable[[], _Value], *, rows: int) -> Callable[[], _Value]:
    """Start a computation in a thread if there are many rows of events; return a function that returns its value.

    One computation runs at a time. The first call returns its value, which can then be released; further calls compute
    it again.
    """
    if min(os.cpu_count() or 1, _allowed[0]) < 2 or rows < MANY_ROWS:
        return compute
    futures = [_background_pool().submit(compute)]
    return lambda: futures.pop().result() if futures else compute()


@cache
def _background_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def memoize(compute: Callable[[_Item], _Value]) -> Callable[[_Item], _Value]:
    """Memoize a function of one argument, thread-safely and with weak references to the arguments.

    Deadlocks if the function waits for a worker thread that calls it.
    """
    values: WeakKeyDictionary[_Item, _Value] = WeakKeyDictionary()
    lock = RLock()

    @wraps(compute)
    def memoized(item: _Item) -> _Value:
        with lock:
            if item not in values:
                values[item] = compute(item)
            return values[item]

    return memoized
