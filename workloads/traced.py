"""Run a Python script under torch.profiler like `python script.py`, and export the trace however the script ends.

It is started by path and adds nothing to the script's path: the script's imports find the script's modules. The script
is not changed, so its steps must be detected. The first of these events decides what ends a step:

- a range (NVTX, record_function) named `step`, `iteration` or `batch` (`train_step 12`) begins: the next such range;
- an optimizer's step() returns: each return from step() of the same optimizer;
- a module with parameters is called, without an optimizer: the next call of that module.

Work before the first step belongs to it. A program that uses torch.profiler itself takes precedence: its traces
are copied. Its torch and its Python may be older than ours.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import importlib.util
import json
import os
import re
import runpy
import shutil
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Callable, Iterator  # noqa: UP035 (Python 3.8)

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule

# what can be recorded: the arguments of torch.profiler.profile, and of its experimental configuration
_ARGUMENTS = {"shapes": "record_shapes", "stack": "with_stack", "memory": "profile_memory"}
_EXPERIMENTAL = {"sync": "enable_cuda_sync_events", "threads": "profile_all_threads"}
_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_STEP = re.compile(r"(?:(?:train|training|eval|val|test)[ _.-]?)?(?:step|iter|iteration|batch)", re.IGNORECASE)
_NUMBER = re.compile(r"[ _#:/.-]*\d+$")
_OPTIMIZER = re.compile(r"Optimizer\.step#(.*)\.step")


def main() -> None:
    """Run the script given on the command line. Its exit status and its traceback become the program's."""
    usage = "traced --out TRACE.json.gz [OPTION ...] -- script.py [ARGUMENT ...]"
    parser = argparse.ArgumentParser(prog="traced", usage=usage, description=__doc__)
    parser.add_argument("--out", type=_path, required=True, help="trace to write; further ones get a number")
    parser.add_argument("--facts", type=_path, help="JSON to write: the steps and the traces")
    parser.add_argument("--schedule", type=int, nargs=4, metavar=("WAIT", "WARMUP", "ACTIVE", "REPEAT"))
    parser.add_argument("--activities", type=_words, help="cpu, cuda (default: all available)")
    parser.add_argument("--record", type=_words, default=[], help="shapes, stack, memory, modules, sync, threads")
    parser.add_argument("--skip-range", action="append", default=[], help="record nothing inside this range")
    parser.add_argument("--step-range", default="", help="the range that is a step")
    parser.add_argument("command", nargs="+", help="the script to run, and its arguments")
    options = parser.parse_args()
    script = Path(options.command[0]).absolute()
    if not script.is_file():
        parser.error(f"there is no script {script}")
    if "cuda" in (options.activities or ()) and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device on this machine: leave out --activities cuda")
    sys.argv = [str(script), *options.command[1:]]
    # safe_path exists since Python 3.11
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(script.resolve().parent)
    trace(script, options)


def trace(script: Path, options: argparse.Namespace) -> None:
    """Run `script` as the main program, and write its Chrome traces."""

    def show_error(kind: type[BaseException], error: BaseException, frames: Any) -> None:  # noqa: ANN401
        while frames and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        sys.__excepthook__(kind, error.with_traceback(frames), frames)

    sys.excepthook = show_error
    with Tracer(options).tracing():
        runpy.run_path(str(script), run_name="__main__")


class Tracer:
    """The profiler of a program, and the traces that it wrote: their names, and how many steps are in each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.process, self.thread = options, os.getpid(), threading.get_ident()
        self.traces: list[tuple[str, int]] = []
        self.recorded = 0
        self.is_running = False
        self.depth = 0
        self.off = 0
        self.skipped = dict.fromkeys(options.skip_range, 0)
        self.status = 0
        self.own_profiler = False
        # that the program started, and those among them with ranges
        self.threads = self.ranged = 0
        self.known = threading.local()
        self.unsaved: Any = None
        self.steps = Steps(options.step_range, self.step)
        devices = options.activities or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        self.activities = [getattr(ProfilerActivity, device.upper()) for device in devices]
        arguments: dict[str, Any] = {given: True for name, given in _ARGUMENTS.items() if name in options.record}
        experimental = {given: True for name, given in _EXPERIMENTAL.items() if name in options.record}
        if experimental:
            arguments["experimental_config"] = torch._C._profiler._ExperimentalConfig(**experimental)
        if options.schedule:
            wait, warmup, active, repeat = options.schedule
            arguments["schedule"] = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
        self.profiler = profile(activities=self.activities, on_trace_ready=self.save, **arguments)
        # not before the ends of steps are known: torch's range of a step would begin in one range and end in another
        self.profiler.record_steps = False

    @property
    def is_here(self) -> bool:
        """Whether this process and thread started the profiler: forks and other threads cannot stop it."""
        return os.getpid() == self.process and threading.get_ident() == self.thread

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Record the enclosed code, and save the trace however it ends."""
        self.watch()
        self.profiler.start()
        self.is_running = True
        try:
            yield
        except BaseException as error:
            self.status = _status(error)
            raise
        finally:
            self.finish()

    def finish(self) -> None:
        """Save the trace: a process that asks us to end then waits."""
        if not self.is_here:
            return
        # already ending: ignore a second request
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("nightsight: saving the trace", file=sys.stderr, flush=True)
        try:
            self.stop()
            unsaved, self.unsaved = self.unsaved, None
            if getattr(unsaved, "kineto_results", None) is not None:
                self._add(lambda aside: _export_plain(unsaved, aside))
        finally:
            if self.options.facts:
                facts = {"traces": self.traces, "steps": self.steps.count, "by": self.steps.by, "of": self.steps.name}
                facts.update(skipped=self.skipped, own_profiler=self.own_profiler)
                facts.update(threads=self.threads, ranged=self.ranged)
                self.options.facts.write_text(json.dumps(facts), encoding="utf-8")

    def stop(self) -> None:
        """End the recording, and save it."""
        if self.is_running and self.is_here:
            self.is_running = False
            # the code after the last step is not a step: do not end its range
            last, self.profiler.step_rec_fn = self.profiler.step_rec_fn, None
            self.recorded += self.steps.is_begun
            self.profiler.stop()
            del last

    def step(self) -> None:
        """Continue the schedule after a step, and end the program after the schedule."""
        if not self.is_running:
            return
        self.recorded += self.profiler.current_action in _RECORDS
        # a range around this place would end inside that of the step
        self.profiler.record_steps = self.steps.by != "range" and not self.depth
        self.profiler.step()
        # a repeat of 0 has no end
        if self.options.schedule and len(self.traces) == self.options.schedule[-1] > 0:
            self.is_running = False
            print("nightsight: all requested steps are recorded; the program is ended", file=sys.stderr, flush=True)
            sys.exit()

    def save(self, profiler: profile) -> None:
        """Export the trace, unless it contains only the rest after the last step."""
        if self.recorded or not self.traces:
            self._add(lambda aside: profiler.export_chrome_trace(str(aside)))
        self.recorded = self.off = 0

    def _add(self, export: Callable[[Path], object]) -> None:
        """Write a trace. The file appears complete or not at all."""
        out: Path = self.options.out
        number = f".{len(self.traces) + 1}" if self.traces else ""
        path = out.with_name(out.name.replace(".json", f"{number}.json", 1))
        aside = path.with_name(f".{path.name}")
        export(aside)
        aside.replace(path)
        self.traces.append((path.name, self.recorded))

    def watch(self) -> None:
        """Observe the ranges, steps and modules of the program, its own profilers, and its end."""
        open_ranges = threading.local()
        watching, modules = _injected("watching"), _injected("modules")

        def begin(label: str) -> None:
            annotation = record_function(label)
            # it may end the program
            annotation.__enter__()
            open_ranges.__dict__.setdefault("stack", []).append(annotation)

        def end() -> None:
            stack = open_ranges.__dict__.get("stack")
            if stack:
                stack.pop().__exit__(None, None, None)

        self._watch_annotations()
        self._watch_profilers()
        self._watch_threads()
        self._watch_exit()
        watching.watch_ranges(watching.Ranges(begin, end))
        self.steps.watch(modules.on_call)
        if "modules" in self.options.record:
            modules.watch(_opened, lambda opened: opened.__exit__(None, None, None))

    def _watch_annotations(self) -> None:
        enter, leave = record_function.__enter__, record_function.__exit__

        def is_theirs(annotation: Any) -> bool:  # noqa: ANN401
            return (
                self.is_here and annotation is not self.profiler.step_rec_fn and annotation.name[:13] != "ProfilerStep#"
            )

        @wraps(enter)
        def begin(annotation: Any) -> Any:  # noqa: ANN401
            if is_theirs(annotation):
                self.steps.range_begins(annotation.name)
                self.depth += 1
            elif not self.is_here and not self.known.__dict__:
                # the ident of an ended thread is reused
                self.known.is_counted = True
                self.ranged += 1
            entered = enter(annotation)
            self._switch(annotation.name, is_inside=True)
            return entered

        @wraps(leave)
        def end(annotation: Any, *error: Any) -> Any:  # noqa: ANN401
            self._switch(annotation.name, is_inside=False)
            left = leave(annotation, *error)
            if is_theirs(annotation):
                self.depth = max(self.depth - 1, 0)
                self.steps.range_ends(annotation.name)
            return left

        record_function.__enter__, record_function.__exit__ = begin, end

    def _switch(self, name: str, *, is_inside: bool) -> None:
        """Record nothing inside a skipped range; the range itself is recorded."""
        if name not in self.skipped or not self.is_running or self.profiler.current_action not in _RECORDS:
            return
        if self.is_here and (is_inside or self.off):
            self.off += 1 if is_inside else -1
            self.skipped[name] += is_inside
            if self.off == is_inside:
                self.profiler.toggle_collection_dynamic(not is_inside, self.activities)

    def _watch_profilers(self) -> None:
        """Stop when the program starts its own profiler: torch allows one at a time."""
        kind = autograd_profiler.profile
        prepare, leave, export = kind._prepare_trace, kind.__exit__, kind.export_chrome_trace

        @wraps(prepare)
        def preparing(profiler: Any) -> Any:  # noqa: ANN401
            if profiler is not self.profiler.profiler and self.is_here:
                if not self.own_profiler:
                    print("nightsight: the program uses torch.profiler itself", file=sys.stderr, flush=True)
                self.own_profiler, self.unsaved = True, None
                self.stop()
            return prepare(profiler)

        @wraps(leave)
        def left(profiler: Any, *error: Any) -> Any:  # noqa: ANN401
            result = leave(profiler, *error)
            if profiler is not self.profiler.profiler and self.is_here:
                self.unsaved = profiler
            return result

        @wraps(export)
        def exported(profiler: Any, path: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            result = export(profiler, path, *given, **named)
            if profiler is self.unsaved:
                self.unsaved = None
                self._add(lambda aside: _copy(Path(path), aside))
            return result

        kind._prepare_trace, kind.__exit__, kind.export_chrome_trace = preparing, left, exported

    def _watch_threads(self) -> None:
        """Count the threads that the program starts: by default, torch records only this one."""
        start = threading.Thread.start

        @wraps(start)
        def started(thread: threading.Thread) -> None:
            self.threads += self.is_running and os.getpid() == self.process
            start(thread)

        threading.Thread.start = started  # type: ignore[assignment, method-assign]

    def _watch_exit(self) -> None:
        leave = os._exit

        def end(status: int) -> None:
            with suppress(BaseException):
                self.finish()
            leave(status)

        def end_fork() -> None:
            if os.getpid() != self.process:
                sys.stdout.flush()
                sys.stderr.flush()
                leave(self.status)

        os._exit = end  # type: ignore[assignment]
        # a fork inherits the running profiler; torch would crash or hang when it shuts it down
        atexit.register(end_fork)


class Steps:
    """Detects the steps of a program in one thread, and calls `ended` at the end of each.

    by: what they were found by, "" before the first. name: of the range, or of the class of the optimizer or module.
    """

    def __init__(self, named: str, ended: Callable[[], None]) -> None:
        self.named, self.ended = named, ended
        self.by = self.name = ""
        self.count = 0
        self.mark: Any = None
        self.has_optimizer = False
        self.stepped: Any = None
        self.forget: Callable[[], None] = lambda: None
        self.thread = threading.get_ident()

    @property
    def is_begun(self) -> bool:
        """Whether a step has begun but not ended, for steps that begin with their mark."""
        return bool(self.count) and self.by != "optimizer"

    def watch(self, on_call: Callable[..., Callable[[], None]]) -> None:
        """Observe optimizers and modules, unless the range of a step is given."""
        if self.named:
            return
        kind = torch.optim.Optimizer
        create = kind.__init__

        @wraps(create)
        def created(optimizer: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
            self.has_optimizer = True
            create(optimizer, *given, **named)

        kind.__init__ = created
        # without it, since torch 2.0: each optimizer of a class counts
        register = getattr(sys.modules[kind.__module__], "register_optimizer_step_post_hook", None)
        if register is not None:
            register(lambda optimizer, *_: setattr(self, "stepped", optimizer))
        self.forget = on_call(self._called, lambda _: None)

    def range_begins(self, name: str) -> None:
        """Handle the start of a range."""
        family = _NUMBER.sub("", name)
        if self.named in (name, family) if self.named else _STEP.fullmatch(family):
            self._begins("range", self.named or family, self.named or family)

    def range_ends(self, name: str) -> None:
        """Handle the end of a range: optimizers open one around their step()."""
        found = _OPTIMIZER.fullmatch(name)
        if found and not self.named and self._is("optimizer", found[1], id(self.stepped)):
            self.count += 1
            self.ended()

    def _called(self, module: Any, outermost: Any) -> None:  # noqa: ANN401
        if module is outermost and threading.get_ident() == self.thread and not self.has_optimizer:
            with suppress(StopIteration):
                next(module.parameters())
                self._begins("module", type(module).__name__, id(module))

    def _begins(self, by: str, name: str, mark: object) -> None:
        if self._is(by, name, mark):
            self.count += 1
            if self.count > 1:
                self.ended()

    def _is(self, by: str, name: str, mark: object) -> bool:
        """Return whether this marks steps: the first mark decides."""
        if not self.by:
            self.by, self.name, self.mark = by, name, mark
            if by != "module":
                self.forget()
        return (self.by, self.mark) == (by, mark)


def _opened(name: str) -> Any:  # noqa: ANN401
    """Open an annotation: the fast kind of torch 2.2, because there are many modules."""
    quick = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    opened = (quick or record_function)(name)
    opened.__enter__()
    return opened


def _export_plain(profiler: Any, path: Path) -> None:  # noqa: ANN401
    """Export a trace with a method that does not compress it."""
    plain = path.with_name(f"{path.name}.plain")
    profiler.export_chrome_trace(str(plain))
    _copy(plain, path)
    plain.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copy and compress a trace."""
    with source.open("rb") as read:
        is_compressed = read.read(2) == b"\x1f\x8b"
        read.seek(0)
        with target.open("wb") if is_compressed else gzip.open(target, "wb") as written:
            shutil.copyfileobj(read, written)


def _injected(name: str) -> Any:  # noqa: ANN401
    """Load a module for arbitrary programs by its path."""
    spec: Any = importlib.util.spec_from_file_location(
        f"nightsight_{name}", Path(__file__).resolve().parent / "injected" / f"{name}.py"
    )
    # torch.compile finds functions by name
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _status(error: BaseException) -> int:
    """Return the exit status of Python for this value."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


def _path(text: str) -> Path:
    # absolute, because the script may change its working folder
    return Path(text).absolute()


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
