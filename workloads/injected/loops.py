"""Tell when an iteration of a loop of the program ends, for programs that call no model and no optimizer.

`sys.monitoring` (Python 3.12) calls back for each jump back, which is the end of an iteration, and for nothing else: an
iteration costs less than a microsecond, and a loop of a library nothing after its first one. Loops have names without
digits that are the same in each run and contain nothing of the program. Loaded by path into any program, whose Python
may be older than ours.
"""

from __future__ import annotations

import sys
import sysconfig
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

PREFIX = "loop "
# iterations that end after less time are not steps of work on a GPU that could be timed one by one
_SHORTEST_NS = 100_000
# as many iterations decide
_TRIED = 20
# folders of libraries outside of the usual paths
_PACKAGES = {"site-packages", "dist-packages"}
_LETTERS = "bcdfghjklmnpqrstvwxz"


def watch(note: Callable[[str], bool]) -> None:
    """Call `note` with the name of a loop after each iteration, until it returns False; nothing in an older Python."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    elsewhere = {Path(__file__).absolute().parents[1], *map(Path, filter(None, libraries))}
    loops: dict[tuple[Any, int], Loop] = {}

    def jump(code: Any, offset: int, target: int) -> Any:  # noqa: ANN401
        if target > offset:
            return monitoring.DISABLE
        place = (code, target)
        loop = loops.get(place)
        if loop is None:
            path = Path(code.co_filename)
            if path.name.startswith("<frozen") or elsewhere.intersection(path.parents) or _PACKAGES & {*path.parts}:
                return monitoring.DISABLE
            loop = loops[place] = Loop(f"{path}:{code.co_qualname}:{target}")
        goes_on = True
        with suppress(Exception):
            goes_on = loop.is_slow_enough() and note(loop.name)
        return None if goes_on else monitoring.DISABLE

    for tool in (4, 3, monitoring.PROFILER_ID):
        with suppress(ValueError):
            monitoring.use_tool_id(tool, "nightsight")
            monitoring.register_callback(tool, monitoring.events.JUMP, jump)
            monitoring.set_events(tool, monitoring.events.JUMP)
            return


class Loop:
    """A loop of the program, and when its first iterations ended."""

    def __init__(self, place: str) -> None:
        number, letters = zlib.crc32(place.encode("utf-8", "replace")), ""
        while number:
            number, letter = divmod(number, len(_LETTERS))
            letters += _LETTERS[letter]
        self.name = PREFIX + letters
        self.count, self.since_ns = 0, 0

    def is_slow_enough(self) -> bool:
        """Count an iteration; return whether iterations take long enough to be steps."""
        self.count += 1
        if self.count == 1:
            self.since_ns = time.perf_counter_ns()
        if self.count != _TRIED:
            return True
        return time.perf_counter_ns() - self.since_ns >= (_TRIED - 1) * _SHORTEST_NS
