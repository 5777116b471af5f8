"""Report when the NVTX ranges of a program begin and end: those of the package nvtx and of torch.cuda.nvtx.

Their functions are wrapped when they are imported, without changes to the program. Imports nothing of its
folder, because it is loaded by path into any program; that may run a Python older than ours.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import wraps
from typing import Any, Callable, NamedTuple  # noqa: UP035 (Python 3.8)


class Ranges(NamedTuple):
    """The functions that make ranges: `begin` and `end` for those of a thread, `start` for those that may overlap.

    Labels are as nsys gives them: with the domain before a colon.
    """

    begin: Callable[[str], object]
    end: Callable[[], object]
    start: Callable[[str], object] = lambda _: None


def watch_ranges(ranges: Ranges) -> None:
    """Watch the modules that make ranges, once they are imported."""
    on_import(
        {
            "nvtx.nvtx": lambda module: _watch_nvtx(module, ranges),
            "torch.cuda.nvtx": lambda module: _watch_torch(module, ranges),
        }
    )


def on_import(changes: dict[str, Callable[[Any], object]]) -> None:
    """Change modules once they are imported, or now if they already are. A change that fails is skipped."""
    for name in changes.keys() & sys.modules.keys():
        with suppress(Exception):
            changes[name](sys.modules[name])
    finder: Any = _Finder({name: change for name, change in changes.items() if name not in sys.modules})
    sys.meta_path.insert(0, finder)


def _watch_nvtx(module: Any, ranges: Ranges) -> None:  # noqa: ANN401
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
        ranges.begin(_label(*self.nightsight))
        return entered

    @wraps(leave)
    def end(self: Any, *error: Any) -> Any:  # noqa: ANN401
        ranges.end()
        return leave(self, *error)

    @wraps(decorate)
    def call(self: Any, function: Any) -> Any:  # noqa: ANN401
        inner = decorate(self, function)
        message, domain = self.nightsight
        label = _label(function.__name__ if message is None else message, domain)

        @wraps(inner)
        def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            ranges.begin(label)
            try:
                return inner(*given, **named)
            finally:
                ranges.end()

        return timed

    kind.__init__, kind.__enter__, kind.__exit__, kind.__call__ = init, begin, end, call

    def label_of(given: tuple[Any, ...], named: dict[str, Any]) -> str:
        return _label(_given(given, named, "message", 0), _given(given, named, "domain", 2))

    _after(module, "push_range", lambda *given, **named: ranges.begin(label_of(given, named)))
    _after(module, "start_range", lambda *given, **named: ranges.start(label_of(given, named)))
    _after(module, "pop_range", lambda *_, **__: ranges.end())


def _watch_torch(module: Any, ranges: Ranges) -> None:  # noqa: ANN401
    """Watch the functions of torch.cuda.nvtx; its `range` calls them."""
    _after(module, "range_push", lambda msg: ranges.begin(str(msg)))
    _after(module, "range_start", lambda msg: ranges.start(str(msg)))
    _after(module, "range_pop", ranges.end)


def _given(given: tuple[Any, ...], named: dict[str, Any], name: str, place: int) -> Any:  # noqa: ANN401
    return named.get(name, given[place] if len(given) > place else None)


def _label(message: object, domain: object) -> str:
    text = "" if message is None else str(message)
    return f"{domain}:{text}" if domain else text


def _after(module: Any, name: str, note: Callable[..., object]) -> None:  # noqa: ANN401
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
    """Finds the modules to change with Python's own finders, and changes them once they are loaded."""

    def __init__(self, changes: dict[str, Callable[[Any], object]]) -> None:
        self.changes = changes
        self.asking = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ANN401
        """Return the spec of a module to change, with a loader that changes it; None for all others."""
        # another of our finders for the same module also asks this one
        if name not in self.changes or self.asking == name:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self and hasattr(finder, "find_spec"))
        self.asking = name
        try:
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        finally:
            self.asking = ""
        loader: Any = spec and spec.loader
        if hasattr(loader, "exec_module"):
            load = loader.exec_module

            def load_and_change(module: Any) -> None:  # noqa: ANN401
                load(module)
                with suppress(Exception):
                    self.changes[name](module)

            loader.exec_module = load_and_change
        return spec
