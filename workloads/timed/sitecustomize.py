"""Record when the steps of a program begin, or name its parts: Python runs this file first if it is on its path.

Environment variables choose what it does. $NIGHTSIGHT_NAMES: PyTorch's modules and others get names for a profiler
(`injected/naming.py`). $NIGHTSIGHT_SAVES: a profiler saves its buffers before the process ends, and a fork
that used CUDA leaves a file in that folder (`injected/saving.py`).
$NIGHTSIGHT_PROOF: the results of the program are recorded, and the switches in $NIGHTSIGHT_SWITCHES are on, or, with
$NIGHTSIGHT_SEARCH, only count their possible changes; the functions in $NIGHTSIGHT_FUNCTIONS are timed and recorded
(`injected/functions.py`). $NIGHTSIGHT_LIMIT: the program ends after some steps or seconds.
$NIGHTSIGHT_LOOPS: iterations of its loops count as possible steps (`injected/loops.py`).

Times are recorded in a run without a profiler, by the same names: at the beginning of NVTX ranges, of outermost
modules, of backward passes and data loaders, and at the end of optimizer steps; and how long the CPU was in each. Each
beginning that is not inside a repetition gets two times: that of the CPU, and that at which the GPU has done all
earlier work of the current stream, by a CUDA event (some microseconds each, for a few per step). Each process writes
its times to a separate file in the folder $NIGHTSIGHT_TIMES when it ends. The program must not be affected: failures
here are ignored. Runs in the program's Python, which may be older than ours.
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
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Collection  # noqa: UP035 (Python 3.8)

# the share of the time that ranges of modules, and timing their calls, may cost
_SPARING = 0.02
# the same for iterations of loops: steps of a program without calls of a model can be as short as 0.1 ms
_SPARING_LOOPS = 0.05
# the calls that are recorded before their cost is known; the times that are kept, at most half of them for calls
_FEW = 100
_MOST = 50_000
# a range inside one that has started this often is part of its repetitions
_OFTEN = 3
_NUMBER = re.compile("(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])")
# a program does not end before a step has begun this often: fewer steps cannot be timed
_TIMED = 5
# the share of its steps so far that each rank of a job still runs when the time of one rank is over
_LATER = 10
_OPTIMIZER = "Optimizer.step#"
_STEP = "step (ends with "
_LOOP = "loop "


class Times:
    """The beginnings, in order: path, thread, CPU time in ns, CUDA event (None without CUDA), and a second CPU time.

    Both CPU times are equal, except for steps that end with an optimizer step: there the second one is its beginning.
    `took_ns`: for the places of beginnings in this order, how long the CPU was in the range or call.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.process = Path(folder), os.getpid()
        self.began: list[tuple[str, int, int, Any, int]] = []
        self.took_ns: dict[int, int] = {}
        self.counts: Counter[str] = Counter()
        self.local = threading.local()
        self.calls: Counter[str] = Counter()
        self.since_ns = self.spent_ns = 0
        self.left_out: set[str] = set()
        self.limit: Limit | None = None

    def begin(self, label: str) -> None:
        """Record that a range begins on this thread, and the ranges around it."""
        around, inside, *_ = self.stack[-1] if self.stack else ("", False)
        path = f"{around} / {label}" if around else label
        is_repeated = inside or self.counts[self._counted(path)] >= _OFTEN
        place = -1 if inside else self.note(path)
        # since then: the time of the note is not that of the program
        self.stack.append((path, is_repeated, place, time.perf_counter_ns()))

    def _counted(self, path: str) -> str:
        """Count a range or call; return its name without numbers."""
        family = _family(path)
        self.counts[family] += 1
        return family

    def note(self, path: str, since_ns: int = 0) -> int:
        """Take the time of a beginning, or, for a step that ends with a call begun at `since_ns`, of its end.

        Returns its place in `began`, -1 if there is no room.
        """
        place = -1
        if len(self.began) < _MOST:
            place = len(self.began)
            if not self.began:
                # not earlier: the handler that is registered first runs last, after CUDA has shut down
                atexit.register(self.save)
            now = time.perf_counter_ns()
            self.began.append((path, threading.get_ident(), now, _event(), since_ns or now))
        self.leave_at_limit(path)
        return place

    def leave_at_limit(self, path: str) -> None:
        """End the process if enough has begun; a worker of a loader, and any other fork, has no steps."""
        with suppress(Exception):
            if self.limit and self.limit.is_reached(_family(path)) and os.getpid() == self.process and not _is_worker():
                (self.folder / "cut").touch()
                for stream in (sys.stdout, sys.stderr):
                    with suppress(Exception):
                        stream.flush()
                save_and_leave(0)

    def end(self) -> None:
        """Record that the innermost range of this thread ends."""
        if self.stack:
            *_, place, since_ns = self.stack.pop()
            self._took(place, since_ns)

    def _took(self, place: int, since_ns: int) -> None:
        """Record that the range or call at a place ends."""
        if place >= 0:
            self.took_ns[place] = time.perf_counter_ns() - since_ns

    @property
    def stack(self) -> list[tuple[str, bool, int, int]]:
        """The open ranges of this thread: path, whether ranges inside are part of a repetition, place, and beginning.

        The place is that in `began`, -1 for none.
        """
        stack: list[tuple[str, bool, int, int]] = self.local.__dict__.setdefault("stack", [])
        return stack

    def enter(self, name: str) -> None:
        """Record that one of PyTorch's functions is called on this thread.

        Ranges are counted independently of calls, because a program with ranges needs no names for calls.
        """
        now, (open_calls, ranges) = time.perf_counter_ns(), (self.entered, self.stack)
        inside = bool((open_calls and open_calls[-1][1]) or (ranges and ranges[-1][1]))
        family = self._counted(name)
        is_repeated, place, since_ns = inside or self.counts[family] >= _OFTEN, -1, now
        # steps of optimizers are always recorded, when they end
        if not inside and not name.startswith(_OPTIMIZER):
            if family in self.left_out or len(self.began) > _MOST // 2:
                self.leave_at_limit(name)
            else:
                place = self.note(name)
                since_ns = time.perf_counter_ns()
                self._afford(family, now, since_ns - now, _SPARING)
        open_calls.append((name, is_repeated, place, since_ns))

    def _afford(self, family: str, now: int, spent_ns: int, share: float) -> None:
        """Exclude the most frequent calls once calls cost more than a share: they are unlikely to be steps."""
        self.calls[family] += 1
        self.since_ns, self.spent_ns = self.since_ns or now, self.spent_ns + spent_ns
        if sum(self.calls.values()) >= _FEW and self.spent_ns > share * (now - self.since_ns):
            ((most, _),) = self.calls.most_common(1)
            self.left_out.add(most)
            self.calls.clear()
            self.since_ns, self.spent_ns = now, 0

    def iteration(self, name: str) -> bool:
        """Record that an iteration of a loop ends; return whether those after it are wanted, too."""
        if any(open_ and open_[-1][1] for open_ in (self.entered, self.stack)) or _is_before_cuda():
            return True
        if name in self.left_out or len(self.began) > _MOST // 2:
            return False
        now = time.perf_counter_ns()
        self.note(name)
        self._afford(name, now, time.perf_counter_ns() - now, _SPARING_LOOPS)
        return True

    def leave(self, _: object = None) -> None:
        """Record that the innermost call ends; the call of an outermost optimizer ends a step."""
        name, _, place, since_ns = self.entered.pop()
        self._took(place, since_ns)
        if name.startswith(_OPTIMIZER) and not any(outer.startswith(_OPTIMIZER) for outer, *_ in self.entered):
            took_ns = time.perf_counter_ns() - since_ns
            self.took_ns[self.note(f"{_STEP}{name[len(_OPTIMIZER) :]})", since_ns)] = took_ns

    @property
    def entered(self) -> list[tuple[str, bool, int, int]]:
        """The calls that have not ended on this thread, as `stack`."""
        entered: list[tuple[str, bool, int, int]] = self.local.__dict__.setdefault("entered", [])
        return entered

    def save(self) -> None:
        """Write the times of this process; a fork has none."""
        if os.getpid() != self.process:
            return
        with suppress(Exception):
            on_gpu = _on_gpu([event for *_, event, _ in self.began])
            places = {path: place for place, path in enumerate(dict.fromkeys(path for path, *_ in self.began))}
            began = [
                [places[path], thread, ns, gpu_ns, since_ns, self.took_ns.get(place)]
                for place, ((path, thread, ns, _, since_ns), gpu_ns) in enumerate(
                    zip(self.began, on_gpu)  # noqa: B905 (Python 3.8)
                )
            ]
            # loops that were left out have times of the start only
            kept = [not (path.startswith(_LOOP) and path in self.left_out) for path, *_ in self.began]
            began = [row for row, is_kept in zip(began, kept) if is_kept]  # noqa: B905
            document = {"paths": list(places), "began": began}
            aside = self.folder / f"{self.process}.new"
            aside.write_text(json.dumps(document), encoding="utf-8")
            aside.replace(self.folder / f"{self.process}.json")


class Limit:
    """After how many steps of a family, or else after how many seconds, a program ends; from "STEPS SECONDS FAMILY".

    The seconds
    count from the first repetition, so the time of imports does not matter.
    """

    def __init__(self, text: str, folder: str) -> None:
        steps, seconds, self.family = text.split(" ", 2)
        self.steps, self.seconds, self.ends = int(steps), float(seconds), 0.0
        self.noted: Counter[str] = Counter()
        self.agreed = Path(folder) / "agreed"

    def is_reached(self, family: str) -> bool:
        """Count a beginning; return whether the limit is reached."""
        self.noted[family] += 1
        self.ends = self.ends or time.monotonic() + self.seconds
        if self.family:
            # the last step ends when the next one begins
            return family == self.family and self.noted[family] > self.steps
        if self.noted[family] <= _TIMED or time.monotonic() < self.ends:
            return False
        if not _is_rank():
            return True
        is_step = family.startswith(_STEP)
        if is_step or not any(each.startswith(_STEP) for each in self.noted):
            self.steps, self.family = self._agree(family)
        return False

    def _agree(self, family: str) -> tuple[int, str]:
        """Return the step after which all ranks of a job end, because a single rank would wait for the others.

        The first rank whose time is over chooses it, some steps ahead, because other ranks may be further.
        """
        own = self.agreed.with_suffix(f".{os.getpid()}")
        own.write_text(f"{self.noted[family] + max(2, self.noted[family] // _LATER)} {family}", encoding="utf-8")
        with suppress(FileExistsError):
            os.link(own, self.agreed)
        own.unlink()
        steps, _, agreed = self.agreed.read_text(encoding="utf-8").partition(" ")
        return int(steps), agreed


def _family(path: str) -> str:
    """Return a path without numbers, by which times are summed."""
    return _NUMBER.sub("#", path).replace("##", "#")


def _is_rank() -> bool:
    """Whether this process is one of several ranks of a job."""
    distributed: Any = sys.modules.get("torch.distributed")
    with suppress(Exception):
        return bool(distributed.is_initialized() and distributed.get_world_size() > 1)
    return False


def _is_worker() -> bool:
    """Whether this process is a DataLoader worker, which may also call models."""
    loading: Any = sys.modules.get("torch.utils.data")
    return bool(loading and loading.get_worker_info())


_SAVES: list[Callable[[], None]] = []
_leave = os._exit


def save_and_leave(status: int) -> None:
    """End this process at once, after saving the records; exit handlers do not run."""
    for save in _SAVES:
        with suppress(Exception):
            save()
    _leave(status)


def _event() -> Any:  # noqa: ANN401
    """Record a CUDA event on the current stream; None if the program does not use CUDA, or records a graph."""
    with suppress(Exception):
        cuda = sys.modules["torch"].cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            event = cuda.Event(enable_timing=True)
            event.record()
            return event
    return None


def _is_before_cuda() -> bool:
    """Whether the program uses PyTorch and has not used a GPU yet: no step of its work has begun."""
    cuda: Any = sys.modules.get("torch.cuda")
    with suppress(Exception):
        return bool(cuda) and not cuda.is_initialized()
    return False


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
    """Load one of the modules for arbitrary programs by path: none of our files are on the program's path."""
    path = Path(__file__).resolve().parents[1] / "injected" / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(f"nightsight_{name}", path)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(folder: str) -> Times:
    """Watch the modules that make ranges, and PyTorch's functions, once they are imported."""
    times, watching = Times(folder), _injected("watching")
    watching.watch_ranges(watching.Ranges(times.begin, times.end, times.note))

    def calls(_: Any) -> None:  # noqa: ANN401
        _injected("naming").watch_calls(times.enter, times.leave, watching.on_import)
        modules = _injected("modules")
        enter = lambda name: times.enter(name[len(modules.PREFIX) :])  # noqa: E731
        modules.watch(enter, times.leave, are_inner_named=False)

    watching.on_import({"torch": calls})
    if os.environ.get("NIGHTSIGHT_LOOPS"):
        _injected("loops").watch(times.iteration)
    _SAVES.append(times.save)
    if os.environ.get("NIGHTSIGHT_LIMIT"):
        times.limit = Limit(os.environ["NIGHTSIGHT_LIMIT"], folder)
    # it runs no exit handlers
    os._exit = save_and_leave  # type: ignore[assignment]
    return times


def name(words: Collection[str]) -> None:
    """Name the parts of the program once it has imported torch: see `injected/naming.py`."""
    watching = _injected("watching")
    share = _SPARING if "sparing" in words else 0.0

    def begin(_: Any) -> None:  # noqa: ANN401
        naming, watch = _injected("naming"), _injected("modules").watch
        naming.start(watch, watching.on_import, share=share, are_annotated="annotated" in words)

    watching.on_import({"torch": begin})


def prove(times: Times, folder: str, switches: list[str], functions: list[str], is_search: bool) -> None:
    """Turn switches on, and record what the program computes: see `switching.py` and `outcomes.py` in `injected`.

    functions: of a JAX program, by their modules: each is timed, recorded, and jitted if its switch is on.
    """
    switching, outcomes, watching = _injected("switching"), _injected("outcomes"), _injected("watching")
    values = outcomes.Outcomes(folder)
    values.effects = switching.Effects(is_search=is_search)
    _SAVES.append(values.save)
    outcomes.seed_others(watching.on_import)
    watching.on_import({"torch": values.watch})
    jitting = _injected("functions")
    jits = {jitting.JIT + path: path for path in functions if path}
    for name, path in jits.items():
        function = jitting.Function(path, values.effects, values, times, is_jitted=name in switches)
        function.watch(watching.on_import)
    # after: a switch is around what is recorded
    switching.start([name for name in switches if name not in jits], watching.on_import, values.effects)


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
            watched = start(os.environ["NIGHTSIGHT_TIMES"])
            if os.environ.get("NIGHTSIGHT_PROOF"):
                on, named = (os.environ.get(f"NIGHTSIGHT_{kind}", "").split("\n") for kind in ("SWITCHES", "FUNCTIONS"))
                prove(watched, os.environ["NIGHTSIGHT_PROOF"], on, named, bool(os.environ.get("NIGHTSIGHT_SEARCH")))
        if os.environ.get("NIGHTSIGHT_SAVES"):
            _injected("saving").start(os.environ["NIGHTSIGHT_SAVES"])
        if os.environ.get("NIGHTSIGHT_NAMES"):
            name(os.environ["NIGHTSIGHT_NAMES"].split())
    _run_hidden()
