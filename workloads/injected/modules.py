"""Open a range around each call of an nn.Module, named by its path in the model: `nn.Module: layers.3.mlp`.

Where the range goes (NVTX for nsys, an annotation for torch.profiler) is a parameter. A module does not know its
parent: the model is the outermost module that is called, or the module in which it was registered. Imports nothing of
its folder, because it is loaded by path into any program that has imported torch; that, and its Python, may be older
than ours.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import suppress
from functools import wraps
from typing import Any, Callable  # noqa: UP035 (Python 3.8)
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn.modules import module as hooks

PREFIX = "nn.Module: "
# these only wrap a model, and are not part of its paths
_WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule"}

_compiles = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
# what compiles each function that is called now, if anything does: our own, too, so this has to be built in
_compiler: Callable[[], Any] = getattr(
    getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), "get_eval_frame_callback", bool
)


class Paths:
    """The paths of modules, as `named_modules` gives them; a model itself has the name of its class.

    Of several models, the one that is called first has plain paths, unless they are numbers, as those of a Sequential;
    the others begin with their class.
    """

    def __init__(self) -> None:
        self.paths: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.parents: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.models: Counter[str] = Counter()

    def registered(self, parent: Any, _: str, module: Any) -> None:  # noqa: ANN401
        """Note that a module became part of another: a hook of torch, which calls it for None too."""
        if module is not None and module is not parent:
            self.parents[module] = ref(parent)

    def path(self, module: Any, outermost: Any) -> str:  # noqa: ANN401
        """Return the path of a module that is called; `outermost`: the call that it is in."""
        # the classes are the program's own: some cannot be hashed, or fail when they are asked for their modules
        with suppress(Exception):
            for model in (outermost, module):
                path = self.paths.get(module)
                if path is not None:
                    return path
                self._learn(self._model(model))
            return self.paths[module]
        return type(module).__name__

    def _model(self, module: Any) -> Any:  # noqa: ANN401
        seen = {module}
        while (parent := self.parents.get(module, lambda: None)()) is not None and parent not in seen:
            seen.add(parent)
            module = parent
        return module

    def _learn(self, model: Any) -> None:  # noqa: ANN401
        """Name the modules of a model, unless they have a name."""
        inner = _inner(model)
        # the copies that DataParallel makes for each call have only the name of their class
        if inner not in self.paths and not getattr(inner, "_is_replica", False):
            kind = type(inner).__name__
            numbered = f"{kind}_{self.models[kind]}" if self.models[kind] else kind
            begin = numbered + "." if self.models else ""
            if next(inner.children(), None) is not None:
                self.models[kind] += 1
            else:
                numbered = kind
            for path, module in inner.named_modules():
                is_number = path.split(".")[0].isdigit()
                self.paths.setdefault(module, (begin or f"{numbered}." * is_number) + path if path else numbered)
        if inner in self.paths:
            self.paths.setdefault(model, self.paths[inner])


def _inner(module: Any) -> Any:  # noqa: ANN401
    """Return the model in its wrappers."""
    while type(module).__name__ in _WRAPPERS:
        held = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        if held is None or held is module:
            break
        module = held
    return module


def watch(
    begin: Callable[[str], Any], end: Callable[[Any], object], *, are_inner_named: bool = True
) -> Callable[[], None]:
    """Call `begin` with a name when a module is called, and `end` with the result of `begin` when the call ends.

    Without `are_inner_named`, not for modules that are called by another: that costs them a fraction of a microsecond.
    """
    paths = Paths()
    # since torch 2.0
    if hasattr(hooks, "register_module_module_registration_hook"):
        hooks.register_module_module_registration_hook(paths.registered)
    enter = lambda module, outermost: begin(PREFIX + paths.path(module, outermost))  # noqa: E731
    return on_call(enter, end, are_inner_watched=are_inner_named)


def _leave_out(function: Any) -> None:  # noqa: ANN401
    """Have torch.compile pass over a function, as over those of torch.nn: it begins with the module's own code."""
    if _compiler is not bool:
        with suppress(Exception):
            sys.modules["torch._dynamo.eval_frame"].skip_code(function.__code__)


def on_call(
    enter: Callable[[Any, Any], Any], leave: Callable[[Any], object], *, are_inner_watched: bool = True
) -> Callable[[], None]:
    """Call `enter` with a called module and its outermost call, and `leave` with the result of `enter`.

    Modules inside compiled or traced code are skipped: their code then runs under other names. Returns a function that
    stops this. Global hooks of torch are unsuitable: torch.compile warns of them, and they miss exceptions of a module.
    """
    local, call = threading.local(), torch.nn.Module.__call__

    @wraps(call)
    def called(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        # a constant for torch.compile, which removes the rest
        if _compiles() or callable(_compiler()):
            return call(self, *given, **named)
        if type(self).__name__ == "OptimizedModule":
            _leave_out(called)
        before = getattr(local, "outermost", None)
        if (before is not None and not are_inner_watched) or torch.jit.is_tracing():
            return call(self, *given, **named)
        local.outermost = self if before is None else before
        try:
            opened = enter(self, local.outermost)
            try:
                return call(self, *given, **named)
            finally:
                leave(opened)
        finally:
            local.outermost = before

    def undo() -> None:
        # other code may have changed it since
        if torch.nn.Module.__call__ is called:
            torch.nn.Module.__call__ = call

    torch.nn.Module.__call__ = called
    return undo
