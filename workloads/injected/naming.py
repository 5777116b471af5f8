"""Name the parts of a PyTorch program for nsys: modules, optimizer steps, backward passes and data loaders.

Each call gets an NVTX range with the name that PyTorch's own profiler gives it. Modules are called often and briefly,
so the overhead of their ranges can be limited to a share of the time. The cost of a range is measured under the
profiler when torch is imported; calls of modules are counted between calls of the model. If the ranges cost too much,
inner modules get no further ranges. Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import wraps
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

import torch

PRIVATE = "nightsight: "
"""The prefix of nightsight's own ranges and marks."""
# calls of the model: the first ones are slow, so the time between these two decides
_FROM, _TO = 2, 4
_MEASURED = 100
_UNLIMITED = 1 << 30

Function = Callable[..., Any]
_compiles = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


class Modules:
    """The ranges of modules: `most` levels of calls in one another. `share`: of the time, 0 for no limit."""

    def __init__(self, push: Function, pop: Function, share: float) -> None:
        self.push, self.pop, self.share = push, pop, share
        self.most, self.cost_s = _UNLIMITED, 0.0
        self.local = threading.local()
        self.models, self.since = 0, 0.0
        self.calls: Counter[int] = Counter()
        self.plain = torch.nn.Module.__call__

    def begin(self, name: str) -> bool:
        """Open the range of a called module; return whether it has one."""
        depth = self.local.depth = getattr(self.local, "depth", 0) + 1
        if self.share:
            self._count(depth)
        if depth > self.most:
            return False
        self.push(name)
        return True

    def end(self, opened: bool) -> None:
        """Close the range of a module, if it has one."""
        self.local.depth -= 1
        if opened:
            self.pop()

    def measure(self) -> None:
        """Measure the cost of a module's range: opening and closing it, and looking up its name."""
        module, allowed = torch.nn.Identity(), (self.most, self.share)
        self.most, self.share = 0, 0.0
        named, plain = _each(lambda: module(None)), _each(lambda: self.plain(module, None))
        self.most, self.share = allowed

        def open_and_close() -> None:
            self.push(f"{PRIVATE}cost")
            self.pop()

        self.cost_s = max(named - plain, 0.0) + _each(open_and_close)

    def _count(self, depth: int) -> None:
        if depth == 1:
            self.models += 1
            if self.models == _FROM:
                self.since = time.perf_counter()
                self.calls.clear()
            elif self.models == _TO:
                self._decide(time.perf_counter() - self.since)
                return
        self.calls[depth] += 1

    def _decide(self, took_s: float) -> None:
        """Exclude the levels of modules that cost too much, from the innermost outwards."""
        counts = [self.calls[depth] for depth in sorted(self.calls)]
        sums = [sum(counts[: depth + 1]) for depth in range(len(counts))]
        self.most = sum(calls * self.cost_s <= self.share * took_s for calls in sums)
        self.share = 0.0
        told = f"{self.most} of {len(counts)} levels, {([0, *sums])[self.most]} of {sums[-1]} calls"
        torch.cuda.nvtx.mark(f"{PRIVATE}modules, {told}, {self.cost_s * 1e9:.0f} ns each in {took_s * 1e9:.0f} ns")
        if self.most == len(counts):
            self.most = _UNLIMITED
        elif not self.most:
            torch.nn.Module.__call__ = self.plain


def _each(function: Function) -> float:
    """Return how many seconds a call takes."""
    since = time.perf_counter()
    for _ in range(_MEASURED):
        function()
    return (time.perf_counter() - since) / _MEASURED


def start(watch: Function, on_import: Function, *, share: float, are_annotated: bool) -> None:
    """Name modules by `watch` and the rest; `are_annotated`: PyTorch itself names optimizers and data loaders.

    RuntimeError if this PyTorch has no NVTX.
    """
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    push(f"{PRIVATE}cost")
    pop()
    modules = Modules(push, pop, share)
    watch(modules.begin, modules.end)
    if share:
        modules.measure()
    watch_calls(push, pop, on_import, are_annotated=are_annotated)


def watch_calls(begin: Function, end: Function, on_import: Function, *, are_annotated: bool = False) -> None:
    """Call `begin` with a name, and then `end`, around backward passes, steps of optimizers and batches of loaders."""

    def named(function: Function, name_of: Callable[[Any], str]) -> Function:
        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            # a constant for torch.compile, which removes the rest
            if _compiles():
                return function(*given, **named)
            begin(name_of(given[0] if given else None))
            try:
                return function(*given, **named)
            finally:
                end()

        return called

    torch.autograd.backward = named(torch.autograd.backward, lambda _: "torch.autograd.backward")
    if are_annotated:
        return
    optimizer = torch.optim.Optimizer
    hook = getattr(optimizer, "profile_hook_step", None)
    if hook is not None:
        # PyTorch calls this once for each class, and uses the result as the method
        hooked = lambda step: named(hook(step), lambda self: f"Optimizer.step#{type(self).__name__}.step")  # noqa: E731
        optimizer.profile_hook_step = staticmethod(hooked)

    def loaders(module: Any) -> None:  # noqa: ANN401
        kind = module._BaseDataLoaderIter
        kind.__next__ = named(kind.__next__, lambda self: f"enumerate(DataLoader)#{type(self).__name__}.__next__")

    on_import({"torch.utils.data.dataloader": loaders})
