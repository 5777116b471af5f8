"""Notes when the NVTX ranges of a program begin, without a profiler: Python runs this first if it finds it on its path.

Each range that is not inside one that repeats gets two times: that of the CPU, and that at which the GPU has done all
work given to the current stream before, by a CUDA event (some microseconds each, for one range per step). The times of
each process go to a file of its own in the folder $NIGHTSIGHT_TIMES when it ends. The program must not notice: whatever
fails here is left out. Runs in the program's Python, which may be older than ours.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import threading
import time
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

_MOST = 50_000
# a range inside one that has begun so often is part of its repetitions
_OFTEN = 3
_NUMBER = re.compile("(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])")


class Times:
    """The ranges that began, in order: path, thread, CPU time in ns, CUDA event (None without CUDA)."""

    def __init__(self, folder: str) -> None:
        self.folder, self.process = Path(folder), os.getpid()
        self.began: list[tuple[str, int, int, Any]] = []
        self.counts: dict[str, int] = {}
        self.local = threading.local()

    def begin(self, label: str) -> None:
        """Note that a range begins on this thread, and what it is in."""
        around, inside = self.stack[-1] if self.stack else ("", False)
        path = f"{around} / {label}" if around else label
        family = _NUMBER.sub("#", path)
        often = self.counts[family] = self.counts.get(family, 0) + 1
        self.stack.append((path, inside or often >= _OFTEN))
        if not inside:
            self.note(path)

    def note(self, path: str) -> None:
        """Take the time of a range that begins."""
        if len(self.began) >= _MOST:
            return
        if not self.began:
            # not earlier: what is registered first runs last, after others have taken CUDA down
            atexit.register(self.save)
        self.began.append((path, threading.get_ident(), time.perf_counter_ns(), _event()))

    def end(self) -> None:
        """Note that the innermost range of this thread ends."""
        if self.stack:
            self.stack.pop()

    @property
    def stack(self) -> list[tuple[str, bool]]:
        """The ranges that are open on this thread: path, and whether what begins inside is part of a repetition."""
        stack: list[tuple[str, bool]] = self.local.__dict__.setdefault("stack", [])
        return stack

    def save(self) -> None:
        """Write the times of this process; a fork has none of its own."""
        if os.getpid() != self.process:
            return
        with suppress(Exception):
            on_gpu = _on_gpu([event for *_, event in self.began])
            places = {path: place for place, path in enumerate(dict.fromkeys(path for path, *_ in self.began))}
            began = [[places[path], thread, ns] for path, thread, ns, _ in self.began]
            document = {"paths": list(places), "began": [[*row, gpu_ns] for row, gpu_ns in zip(began, on_gpu)]}  # noqa: B905
            aside = self.folder / f"{self.process}.new"
            aside.write_text(json.dumps(document), encoding="utf-8")
            aside.replace(self.folder / f"{self.process}.json")


def _event() -> Any:  # noqa: ANN401
    """Record a CUDA event on the current stream; None if the program does not use CUDA, or records a graph."""
    with suppress(Exception):
        cuda = sys.modules["torch"].cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            event = cuda.Event(enable_timing=True)
            event.record()
            return event
    return None


def _on_gpu(events: list[Any]) -> list[int | None]:
    """Return when each event was reached, in ns since the first; None for all if they are of several GPUs."""
    times: list[int | None] = []
    last, now = None, 0.0
    with suppress(Exception):
        for event in events:
            if event is not None:
                event.synchronize()
                # single precision: exact enough from one to the next
                now += last.elapsed_time(event) * 1e6 if last is not None else 0.0
                last = event
            times.append(None if event is None else round(now))
        return times
    return [None] * len(events)


def _watch_nvtx(module: Any, times: Times) -> None:  # noqa: ANN401
    """Watch the functions of the package nvtx."""
    kind = module.annotate
    create, enter, leave, decorate = kind.__init__, kind.__enter__, kind.__exit__, kind.__call__

    @wraps(create)
    def init(self: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
        create(self, *given, **named)
        self.nightsight = _given(given, named, "message", 0), _given(given, named, "domain", 2)

    @wraps(enter)
    def begin(self: Any) -> Any:  # noqa: ANN401
        entered = enter(self)
        times.begin(_label(*self.nightsight))
        return entered

    @wraps(leave)
    def end(self: Any, *error: Any) -> Any:  # noqa: ANN401
        times.end()
        return leave(self, *error)

    @wraps(decorate)
    def call(self: Any, function: Any) -> Any:  # noqa: ANN401
        inner = decorate(self, function)
        message, domain = self.nightsight
        label = _label(function.__name__ if message is None else message, domain)

        @wraps(inner)
        def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            times.begin(label)
            try:
                return inner(*given, **named)
            finally:
                times.end()

        return timed

    kind.__init__, kind.__enter__, kind.__exit__, kind.__call__ = init, begin, end, call

    def label_of(given: tuple[Any, ...], named: dict[str, Any]) -> str:
        return _label(_given(given, named, "message", 0), _given(given, named, "domain", 2))

    _watch(module, "push_range", lambda *given, **named: times.begin(label_of(given, named)))
    _watch(module, "start_range", lambda *given, **named: times.note(label_of(given, named)))
    _watch(module, "pop_range", lambda *_, **__: times.end())


def _watch_torch(module: Any, times: Times) -> None:  # noqa: ANN401
    """Watch the functions of torch.cuda.nvtx; its `range` calls them."""
    _watch(module, "range_push", lambda msg: times.begin(str(msg)))
    _watch(module, "range_start", lambda msg: times.note(str(msg)))
    _watch(module, "range_pop", times.end)


def _given(given: tuple[Any, ...], named: dict[str, Any], name: str, place: int) -> Any:  # noqa: ANN401
    return named.get(name, given[place] if len(given) > place else None)


def _label(message: object, domain: object) -> str:
    text = "" if message is None else str(message)
    return f"{domain}:{text}" if domain else text


def _watch(module: Any, name: str, note: Callable[..., None]) -> None:  # noqa: ANN401
    """Call `note` after a function, with its arguments."""
    function = getattr(module, name, None)
    if function is None:
        return

    @wraps(function)
    def noted(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        result = function(*given, **named)
        with suppress(Exception):
            note(*given, **named)
        return result

    setattr(module, name, noted)


class _Finder:
    """Finds the modules to watch as Python would have, and changes them once they are loaded."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ANN401
        """Return the spec of a module to watch, with a loader that changes it; None for all others."""
        if name not in self.changes:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        if hasattr(loader, "exec_module"):
            load = loader.exec_module

            def load_and_change(module: Any) -> None:  # noqa: ANN401
                load(module)
                with suppress(Exception):
                    self.changes[name](module)

            loader.exec_module = load_and_change
        return spec


def start(folder: str) -> None:
    """Watch the modules that make ranges, from when they are imported."""
    times = Times(folder)
    finder: Any = _Finder(
        {
            "nvtx.nvtx": lambda module: _watch_nvtx(module, times),
            "torch.cuda.nvtx": lambda module: _watch_torch(module, times),
        }
    )
    sys.meta_path.insert(0, finder)


def _run_hidden() -> None:
    """Run the sitecustomize that this one hides."""
    here = Path(__file__).resolve().parent
    others = [path for path in sys.path if Path(path).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if os.environ.get("NIGHTSIGHT_TIMES"):
        with suppress(Exception):
            start(os.environ["NIGHTSIGHT_TIMES"])
    _run_hidden()
