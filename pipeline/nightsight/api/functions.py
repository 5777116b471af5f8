"""Two functions of this process, timed in turns, and whether they return the same.

The libraries that the program has imported are asked to wait for the GPU. Calls are timed in batches, because a wait
takes longer than a small kernel.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from nightsight.api.shown import preformatted
from nightsight.compare.statistics import effects
from nightsight.errors import UsageError
from nightsight.intervals import Floats
from nightsight.texts import excerpt
from nightsight.units import counted, in_text, signed

Function = Callable[[], Any]
Speed = Literal["faster", "slower", "unchanged", "inconclusive"]
_BATCH_S: Final = 0.02
_MOST_CALLS: Final = 100_000
_WARM_UPS: Final = 3
_LEAST_LOG: Final = math.log(1.01)
_ALPHA: Final = 0.05
# the noise of the clock, and of a process that runs alone
_FLOOR_LOG: Final = 1e-4
_MOST_DIFFERENT: Final = 1e-3
_NAME: Final = 40


@dataclass(frozen=True, repr=False)
class Functions:
    """Two functions that were timed in turns. Times are medians of batches, in ns per call.

    change_pct: how much longer a call of the second function takes, with its 90 % interval; verdict: changes below 1 %
    do not count. difference: the largest one between what both return, relative to the largest value; None if they
    return nothing that can be compared. is_same: whether that is at most 0.1 %.
    """

    names: tuple[str, str]
    times_ns: tuple[float, float]
    change_pct: float
    interval_pct: tuple[float, float]
    verdict: Speed
    difference: float | None
    pairs: int
    calls: tuple[int, int]

    @property
    def is_same(self) -> bool | None:
        """Whether both return the same; None if that is unknown."""
        return None if self.difference is None else self.difference <= _MOST_DIFFERENT

    def __repr__(self) -> str:
        """Return the verdict, the times and the results."""
        before, after = (in_text(each, "call_ns") for each in self.times_ns)
        low, high = (signed(each) for each in self.interval_pct)
        wrong = self.is_same is False and self.verdict == "faster"
        batches = " and ".join(f"{each:,}" for each in dict.fromkeys(self.calls))
        return (
            f"{self.names[0]} → {self.names[1]}: {before} → {after} a call\n"
            f"verdict: {self.verdict}{' but different' * wrong}, {signed(self.change_pct)} % ({low} to {high} %), "
            f"{counted(self.pairs, 'pair')} of {batches} calls in this process\n"
            f"results: {self._results()}"
        )

    def _results(self) -> str:
        if self.difference is None:
            return "not compared: return a tensor or an array to check them"
        if not self.difference:
            return "equal"
        size = (
            "of other shapes or types" if math.isinf(self.difference) else f"{self.difference:.1g} of the largest value"
        )
        return f"{'the same' if self.is_same else 'different'}, {size}"

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return preformatted(repr(self))


def compare_functions(first: Function, second: Function, pairs: int) -> Functions:
    """Time two functions without arguments in turns (A, B, B, A), after a warm-up of each."""
    if pairs < 3:
        raise UsageError("fewer than three pairs say nothing about the noise", "Use pairs=10.")
    functions = (first, second)
    results = [_warmed_up(function) for function in functions]
    difference = _difference(*results)
    del results
    calls = [_calls_of(function) for function in functions]
    times = np.empty((2, pairs))
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            times[side, pair] = _timed_s(functions[side], calls[side]) / calls[side]
    logs = np.log(times)
    effect = effects(logs[:1], logs[1:], np.array([_FLOOR_LOG]), is_paired=True)
    low, high = (float(end[0]) for end in effect.interval())
    is_changed = float(effect.p_values(_LEAST_LOG)[0]) < _ALPHA
    mean = float(effect.mean[0])
    verdict: Speed = "inconclusive"
    if is_changed:
        verdict = "faster" if mean < 0 else "slower"
    elif max(abs(low), abs(high)) < _LEAST_LOG:
        verdict = "unchanged"
    medians = np.median(times, axis=1) * 1e9
    return Functions(
        (_name(first, "A"), _name(second, "B")),
        (float(medians[0]), float(medians[1])),
        100 * math.expm1(mean),
        (100 * math.expm1(low), 100 * math.expm1(high)),
        verdict,
        difference,
        pairs,
        (calls[0], calls[1]),
    )


def _name(function: Function, other: str) -> str:
    name = getattr(function, "__name__", "")
    return other if name in ("", "<lambda>") else excerpt(name, _NAME)


def _warmed_up(function: Function) -> Any:  # noqa: ANN401 (what it returns)
    for _ in range(_WARM_UPS):
        result = function()
    _wait_for(result)
    return result


def _calls_of(function: Function) -> int:
    """Return how many calls take about as long as a batch."""
    calls = 1
    while calls < _MOST_CALLS:
        seconds = _timed_s(function, calls)
        if seconds >= _BATCH_S / 2:
            return max(1, min(round(calls * _BATCH_S / seconds), _MOST_CALLS))
        calls *= 2
    return _MOST_CALLS


def _timed_s(function: Function, calls: int) -> float:
    _wait_for(None)
    began_s = time.perf_counter()
    for _ in range(calls):
        result = function()
    _wait_for(result)
    return time.perf_counter() - began_s


def _wait_for(result: Any) -> None:  # noqa: ANN401 (what a function returns)
    """Wait until the GPU has done what it was asked to, by the libraries that are imported."""
    torch, cupy, jax = (sys.modules.get(name) for name in ("torch", "cupy", "jax"))
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if cupy is not None:
        cupy.cuda.get_current_stream().synchronize()
    if jax is not None:
        jax.block_until_ready(result)


def _difference(first: Any, second: Any) -> float | None:  # noqa: ANN401 (what functions return)
    """Return the largest difference of two results, relative to the largest value of one; None without numbers."""
    ours, theirs = list(_arrays(first)), list(_arrays(second))
    if not ours and not theirs:
        return None
    if [each.shape for each in ours] != [each.shape for each in theirs]:
        return math.inf
    return max(_distance(one, other) for one, other in zip(ours, theirs, strict=True))


def _distance(one: Floats, other: Floats) -> float:
    if not one.size:
        return 0.0
    is_finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
        return math.inf
    size = float(np.abs(one[is_finite]).max(initial=0.0))
    apart = float(np.abs(one - other)[is_finite].max(initial=0.0))
    return apart / size if size else (math.inf if apart else 0.0)


def _arrays(result: Any) -> Iterator[Floats]:  # noqa: ANN401 (what a function returns)
    """Yield the numbers of a result, of tensors and arrays in lists and dictionaries, too."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for each in result:
            yield from _arrays(each)
        return
    if hasattr(result, "detach"):
        # NumPy lacks types such as bfloat16
        result = result.detach().cpu().double().numpy()
    elif hasattr(result, "get") and hasattr(result, "dtype"):
        # of CuPy
        result = result.get()
    if hasattr(result, "__array__") or isinstance(result, int | float):
        array = np.asarray(result)
        if array.dtype.kind in "biuf":
            yield array.astype(np.float64)
