"""Work that several cores can share: numpy lets other threads run while it computes, most of Python does not."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import RLock
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

# each task has arrays of its own, so more of them take more memory
_MOST_THREADS: Final = 2

# M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX of malloc.h
_MALLOC: Final = {-1: 2**31 - 1, -4: 0, -8: 1}

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
    """Make a function keep its value for as long as what it is of exists; threads wait for the first that asks.

    So it must not hand work to threads that ask for the same function.
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


def keep_memory() -> None:
    """Let freed arrays be used again: glibc gives large ones back to the system, which then has to clear new pages.

    For programs that end soon, as the peak of memory is kept. Elsewhere than on glibc nothing changes.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        for option, value in _MALLOC.items():
            set_option(option, value)
