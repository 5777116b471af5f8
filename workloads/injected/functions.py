"""Find a function of a JAX program by its name: time its calls, record its results, and compile it with jax.jit.

The import system announces a module, but not the main script: once the script imports JAX, its lines are traced until
the function is defined. Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

JIT = "jit="
"""The prefix of the switch's name, before the name of the function."""
# the numbers of a result that are summed, and the arrays if it has no numbers
_MOST_LEAVES = 8
# the number of recorded results
_MOST = 2_000
# calls that may still run when the next one begins: the CPU prepares one call while another runs
_AHEAD = 2
_SAMPLE = 65_536
_REASONS = {
    "TracerBoolConversionError": "it branches on a value that is only known when it runs (jax.lax.cond, jnp.where)",
    "TracerArrayConversionError": "it passes an array to NumPy (jax.numpy)",
    "TracerIntegerConversionError": "it uses a value of an array as an index or a size",
    "NonConcreteBooleanIndexError": "it selects by a mask, so that the shape of the result is not known",
    "ConcretizationTypeError": "it needs a value that is only known when it runs (float, int, .item())",
    "UnexpectedTracerError": "it keeps a value of an earlier call",
    "TypeError": "an argument or its result is not an array (static_argnames)",
}
"""Why JAX cannot trace a function, by the kind of error."""


class Function:
    """The function `path` of a program, which is timed and recorded, and compiled if the switch is on.

    effects, values, times: the changes of switches, the results of the program, and its steps. is_jitted: the switch is
    on.
    """

    def __init__(self, path: str, effects: Any, values: Any, times: Any, *, is_jitted: bool) -> None:  # noqa: ANN401
        self.path, self.effects, self.values, self.times, self.is_jitted = path, effects, values, times, is_jitted
        self.module, _, self.name = path.rpartition(".")
        self.key = JIT + path
        self.effects.why[self.key] = "the program has no such function, or does not call it"

    def watch(self, on_import: Callable[..., object]) -> None:
        """Replace the function once it is defined."""
        on_import({"jax": lambda _: self._in_script(), self.module: lambda found: self._replace(found.__dict__)})

    def _in_script(self) -> None:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        name = spec.name if spec else Path(getattr(main, "__file__", None) or "").stem
        if self.module not in ("__main__", name) or self._replace(vars(main)):
            return
        frame: Any = sys._getframe()
        while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
            frame = frame.f_back
        # a debugger traces lines as well
        if frame is None or sys.gettrace() is not None:
            return

        def follow(frame: Any, event: str, _: object) -> Any:  # noqa: ANN401
            if event == "return" or self._replace(frame.f_globals):
                frame.f_trace = None
                sys.settrace(None)
                return None
            return follow

        frame.f_trace = follow
        # calls of other functions are not traced
        sys.settrace(lambda *_: None)

    def _replace(self, namespace: dict[str, Any]) -> bool:
        """Replace the function in a namespace; return whether the namespace has it."""
        function = namespace.get(self.name)
        if not callable(function):
            return False
        namespace[self.name] = self._around(function)
        # before JAX shuts its devices down
        atexit.register(self.values.save)
        return True

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        run: list[Callable[..., Any]] = []
        before: deque[Any] = deque(maxlen=_AHEAD)
        note = _Results(self.values)

        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            if not run:
                run.append(self._form(function, (given, named)))
            if len(before) == _AHEAD:
                _wait(before[0])
            self.times.begin(self.path)
            try:
                result = run[0](*given, **named)
            except Exception as error:
                if run[0] is function:
                    raise
                run[0] = function
                self._failed(error)
                result = function(*given, **named)
            finally:
                self.times.end()
            with suppress(Exception):
                before.append(note(result))
            return result

        return called

    def _form(self, function: Callable[..., Any], given: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Return the form of the function to run; called at its first call."""
        jax = import_module("jax")
        is_inside = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(given))
        if is_inside or hasattr(function, "lower"):
            self.effects.why[self.key] = "JAX traces it as part of its caller" if is_inside else "is jitted already"
            return function
        if not (self.is_jitted and self.effects.applies(self.key)):
            return function
        del self.effects.why[self.key]
        jitted: Callable[..., Any] = jax.jit(function)
        return jitted

    def _failed(self, error: Exception) -> None:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        why = next((_REASONS[kind] for kind in kinds if kind in _REASONS), kinds[0])
        self.effects.count[self.key] = 0
        self.effects.why[self.key] = f"cannot be jitted: {why}"


class _Results:
    """Records the results of a function: the sum of their numbers, or for some calls a checksum of their arrays."""

    def __init__(self, values: Any) -> None:  # noqa: ANN401
        self.values, self.calls = values, 0
        self.paths: list[Any] = []

    def __call__(self, result: Any) -> Any:  # noqa: ANN401
        """Record a result; return a part of it to wait for."""
        jax = import_module("jax")
        if not self.calls:
            self.paths = _numbers(result)
        numbers = [_at(path, result) for path in self.paths]
        leaves = numbers or [leaf for leaf in jax.tree_util.tree_leaves(result) if hasattr(leaf, "dtype")]
        smallest = min(leaves, key=lambda leaf: getattr(leaf, "size", 1))
        # an array without a value
        if isinstance(smallest, jax.core.Tracer):
            return None
        self.calls += 1
        if numbers and len(self.values.losses) < _MOST:
            self.values.losses.append(_Sum(numbers))
        # this is slow, and must not delay the typical step
        elif not numbers and self.calls & (self.calls - 1) == 0:
            self.values.outputs.append(_Sum([_summary(leaf) for leaf in leaves[:_MOST_LEAVES]]))
        return smallest


class _Sum:
    """Numbers that are read and added at the end."""

    def __init__(self, numbers: list[Any]) -> None:
        self.numbers = numbers

    def __float__(self) -> float:
        # the program may have given their memory away
        with suppress(Exception):
            return float(sum(float(number) for number in self.numbers))
        return float("nan")


def _numbers(result: Any) -> list[Any]:  # noqa: ANN401
    """Return the places of the floating-point numbers in a result, so that later calls need not search for them."""
    jax, numpy = import_module("jax"), import_module("jax.numpy")

    def is_number(leaf: Any) -> bool:  # noqa: ANN401
        is_scalar = getattr(leaf, "shape", None) == ()
        return type(leaf) is float or (is_scalar and bool(numpy.issubdtype(leaf.dtype, numpy.floating)))

    leaves, _ = jax.tree_util.tree_flatten_with_path(result)
    return [path for path, leaf in leaves if is_number(leaf) and _at(path, result) is leaf][:_MOST_LEAVES]


def _at(path: Any, value: Any) -> Any:  # noqa: ANN401
    for key in path:
        value = getattr(value, key.name) if hasattr(key, "name") else value[getattr(key, "idx", getattr(key, "key", 0))]
    return value


def _summary(leaf: Any) -> Any:  # noqa: ANN401
    """Return a checksum of an array, which depends on its magnitude, signs and order."""
    numpy = import_module("jax.numpy")
    flat = numpy.ravel(leaf).astype("float32")
    sample = flat[:: max(flat.size // _SAMPLE, 1)]
    return numpy.abs(flat).mean() + (sample * numpy.cos(numpy.arange(sample.size, dtype="float32"))).mean()


def _wait(value: Any) -> None:  # noqa: ANN401
    """Wait until a value is computed, so that the time of a step includes the work on the GPU."""
    # the program may have given its memory away
    with suppress(Exception):
        value.block_until_ready()
