"""Notes when NVTX ranges of a program begin, or names what it does: Python runs this first if it finds it on its path.

With $NIGHTSIGHT_NAMES, PyTorch's modules and others get names for a profiler (`injected/naming.py`); with
$NIGHTSIGHT_SAVES, a profiler saves its buffers before the process ends (`injected/saving.py`). The times are of
a run without it. Each range that is not inside one that repeats gets two times: that of the CPU, and that at which the
GPU has done all work given to the current stream before, by a CUDA event (some microseconds each, for one range per
step). The times of each process go to a separate file in the folder $NIGHTSIGHT_TIMES when it ends. The program must
not notice: whatever fails here is left out. Runs in the program's Python, which may be older than ours.
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
from pathlib import Path
from typing import Any, Collection  # noqa: UP035 (Python 3.8)

# of the time: what the ranges of modules may cost
_SPARING = 0.02
_MOST = 50_000
# a range inside one that has started this often is part of its repetitions
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
        """Write the times of this process; a fork has none."""
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


def _injected(name: str) -> Any:  # noqa: ANN401
    """Load one of the modules that are made for any program, by path: nothing of ours is on its path."""
    path = Path(__file__).resolve().parents[1] / "injected" / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(f"nightsight_{name}", path)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(folder: str) -> None:
    """Watch the modules that make ranges, from when they are imported."""
    times, watching = Times(folder), _injected("watching")
    watching.watch_ranges(watching.Ranges(times.begin, times.end, times.note))


def name(words: Collection[str]) -> None:
    """Name what the program does, from when it imports torch: see `injected/naming.py`."""
    watching = _injected("watching")
    share = _SPARING if "sparing" in words else 0.0

    def begin(_: Any) -> None:  # noqa: ANN401
        naming, watch = _injected("naming"), _injected("modules").watch
        naming.start(watch, watching.on_import, share=share, are_annotated="annotated" in words)

    watching.on_import({"torch": begin})


def _run_hidden() -> None:
    """Run the sitecustomize that this one hides."""
    here = Path(__file__).resolve().parent
    others = [path for path in sys.path if Path(path).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    with suppress(Exception):
        if os.environ.get("NIGHTSIGHT_TIMES"):
            start(os.environ["NIGHTSIGHT_TIMES"])
        if os.environ.get("NIGHTSIGHT_SAVES"):
            _injected("saving").start()
        if os.environ.get("NIGHTSIGHT_NAMES"):
            name(os.environ["NIGHTSIGHT_NAMES"].split())
    _run_hidden()
