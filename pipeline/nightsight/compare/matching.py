"""Matches kernels of the two sides by name, or by what they do if their names differ.

Autotuning and recompilation rename kernels, and a compiler fuses several into one. Their times must then be compared:
one kernel removed and another added would not show the change. But new work must not hide behind old work, so two
kernels at the same place match only if their names also show that they do the same.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.kernel_kinds import kind_of, operation
from nightsight.events.kernel_names import base_name

_WORD: Final = re.compile(r"[A-Za-z]+|\d+")
# the same work is launched equally often, but autotuning may split it in two
_COUNT: Final = 1.25
# another implementation of the same work is rarely slower or faster by more
_TIME: Final = 4.0
# the least share of common words in two names
_ALIKE: Final = 0.5
# a fused kernel takes at most as long as its parts, plus noise, and is not much faster than any one of them
_FUSED: Final = 1.1
_FASTER: Final = 8.0
# for each removed kernel, this many shorter and longer new ones are checked: all pairs can be millions
_LOOKED_AT: Final = 16
_MOST_PARTS: Final = 16
_TRITON_FUSED: Final = re.compile(r"^triton_[a-z]+_fused_?(.*)")
_PRODUCT: Final = re.compile(r"(?i)gemm|nvjet|_mm_|matmul|cutlass")
_SAYS_FUSED: Final = re.compile(r"(?i)fus(?:ed|ion)|flash|fmha|attention|sdpa|^triton_")
# words that do not describe what a kernel does
_NOTHING_SAID: Final = re.compile(
    "a|of|the|kernels?|elementwise|vectorized|unrolled|fus(?:ed|ion)|loop|triton|poi|red|per|[fb]wd|forward|backward"
    "|warp|block|my|cuda|impl|at|native|multi|tensor|apply|functor|math|in|place|to"
)
_MADE_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("flash", "fmha", "attention", "sdpa", "mha"), "product softmax mul add div where masked fill"),
    "softmax": "exp max sum sub div",
    "gelu": "tanh erf pow mul add",
    **dict.fromkeys(("silu", "swish"), "sigmoid mul"),
    "bias": "add",
    "residual": "add",
    "norm": "mean var pow rsqrt mul add sub div sum",
    "layernorm": "mean var pow rsqrt mul add sub div sum",
    "rmsnorm": "mean pow rsqrt mul",
    "adam": "mul add addcmul addcdiv sqrt div lerp",
    "sgd": "mul add",
}
"""The operations of a fused kernel, as named by the kernels that compute them one by one."""


@dataclass(frozen=True)
class Match:
    """Names of the baseline and of the candidate that are compared as one measure, `name`; note: the reason."""

    name: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class _StepKernel:
    name: str
    count: float
    value: float
    place: str


@dataclass(frozen=True)
class Matches:
    """Kernels that were renamed, fused or split; note: says if not all pairs of names were checked, else ""."""

    kernels: tuple[Match, ...]
    note: str = ""


def matches(baseline: pd.DataFrame, candidate: pd.DataFrame) -> Matches:
    """Match renamed, fused and split kernels among those that only one side has.

    The tables have the columns name, count, value (per step) and place (where it is launched, "" if unknown).
    """
    removed = baseline[~baseline["name"].isin(candidate["name"])]
    added = candidate[~candidate["name"].isin(baseline["name"])]
    pairs, is_all = _candidate_pairs(removed, added)
    note = (
        f"{len(removed):,} kernels disappeared and {len(added):,} appeared: only those with the nearest times were "
        "checked for new names, so some renamed kernels may count as removed and added."
    )
    renamed = dict(_renamings(pairs))
    removed, added = removed[~removed["name"].isin(renamed)], added[~added["name"].isin(renamed.values())]
    fused = list(_fusions(removed, added))
    removed = removed[~removed["name"].isin([part for parts, _ in fused for part in parts])]
    added = added[~added["name"].isin([whole for _, whole in fused])]
    split = list(_fusions(added, removed))
    matched = (
        *(Match(after, (before,), (after,), f"renamed from {before}") for before, after in renamed.items()),
        *(Match(after, parts, (after,), f"fused from {' + '.join(parts)}") for parts, after in fused),
        *(Match(before, (before,), parts, f"split into {' + '.join(parts)}") for parts, before in split),
    )
    is_complete = is_all or not len(removed) or not len(added)
    return Matches(matched, "" if is_complete else note)


# -- renamed ----------------------------------------------------------------------------------------------------------


def _candidate_pairs(removed: pd.DataFrame, added: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return pairs of kernels with the same work and place, and whether all pairs with similar times are among them."""
    removed, added = _with_work(removed), _with_work(added)
    near, is_all = _near(removed, added, ["work", "place"])
    # if very many kernels do the same kind of work, add those that do exactly the same
    exact, _ = _near(removed, added, ["work", "place", "does"])
    return pd.concat([near, exact], ignore_index=True).drop_duplicates(["name", "name_new"]), is_all


def _near(removed: pd.DataFrame, added: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, bool]:
    """Pair each row of `removed` with the rows of `added` that agree in columns `by` and have the nearest times.

    Also return whether these are all pairs with similar times.
    """
    group = pd.concat([removed, added], ignore_index=True).groupby(by, sort=False).ngroup().to_numpy()
    time = np.log(np.maximum(np.concatenate([removed["value"], added["value"]]).astype(np.float64), 1.0))
    # one axis for all groups: the distance between groups exceeds that between any two times
    here, there = np.split(1000.0 * group + time, [len(removed)])
    order = np.argsort(there, kind="stable")
    there = there[order]
    at = np.add.outer(np.searchsorted(there, here), np.arange(-_LOOKED_AT, _LOOKED_AT))
    row, column = np.nonzero((at >= 0) & (at < len(there)))
    neighbor = order[at[row, column]]
    is_same = group[row] == group[len(removed) + neighbor]
    removed_rows, added_rows = (
        table.iloc[rows[is_same]].reset_index(drop=True) for table, rows in ((removed, row), (added, neighbor))
    )
    similar = np.searchsorted(there, here + np.log(_TIME)) - np.searchsorted(there, here - np.log(_TIME))
    return pd.concat([removed_rows, added_rows.add_suffix("_new")], axis=1), bool((similar <= _LOOKED_AT).all())


def _renamings(pairs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield pairs of names with similar counts, times and words, the most similar first, each name once."""
    counts, times = pairs["count"] / pairs["count_new"], pairs["value"] / pairs["value_new"]
    near = pairs[counts.between(1 / _COUNT, _COUNT) & times.between(1 / _TIME, _TIME)]
    alike = [_likeness(before, after) for before, after in zip(near["name"], near["name_new"], strict=True)]
    near = near.assign(alike=alike, distance=np.abs(np.log(times[near.index])))
    # cuBLAS has hundreds of names for one product
    near = near[(near["alike"] >= _ALIKE) | (near["place"] != "") & near["work"].isin(["product", "convolution"])]
    used: tuple[set[str], set[str]] = (set(), set())
    best_first = near.sort_values(["alike", "distance", "name", "name_new"], ascending=[False, True, True, True])
    for before, after in best_first[["name", "name_new"]].to_numpy():
        if before not in used[0] and after not in used[1]:
            used[0].add(before)
            used[1].add(after)
            yield before, after


def _with_work(table: pd.DataFrame) -> pd.DataFrame:
    parsed = [_parse_name(name) for name in table["name"]]
    return table.assign(work=[one.work for one in parsed], does=[" ".join(sorted(one.does)) for one in parsed])


def _likeness(first: str, second: str) -> float:
    """Return the similarity of two names with the same kind of work: 1 for the same function, 0 for another."""
    one, other = _parse_name(first), _parse_name(second)
    if one.work == "fused":
        return _share(one.does, other.does)
    if one.work in ("elementwise", "reduction") and one.does and other.does:
        # equal operations differ only in types and tiles
        return max(_ALIKE, _share(one.words, other.words)) if one.does == other.does else 0.0
    if one.base == other.base:
        return _ALIKE + (1 - _ALIKE) * _share(one.words, other.words)
    return _share(one.words, other.words)


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


class _ParsedName(NamedTuple):
    """The parts of a name: the kind of work, the function, what it does (words, possibly none), and all words."""

    work: str
    base: str
    does: frozenset[str]
    words: frozenset[str]


@cache
def _parse_name(name: str) -> _ParsedName:
    fused = _TRITON_FUSED.match(name)
    kind = "fused" if fused else "product" if _PRODUCT.search(name) else kind_of(name)
    description = fused[1] if fused else name if kind == "foreach" else operation(name)
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+", description)]
    does = {*(word for word in words if not _NOTHING_SAID.fullmatch(word)), *["product"] * (kind == "product")}
    return _ParsedName(kind, base_name(name), frozenset(does), frozenset(_WORD.findall(name)))


# -- fused, and split -------------------------------------------------------------------------------------------------


def _fusions(parts: pd.DataFrame, wholes: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield kernels that a fused kernel replaces according to its name, and the fused kernel; the longest first."""
    unused = {kernel.name: kernel for kernel in _step_kernels(parts)}
    by_word, by_place = defaultdict[str, list[_StepKernel]](list), defaultdict[str, list[_StepKernel]](list)
    for kernel in unused.values():
        by_place[kernel.place].append(kernel)
        for word in _parse_name(kernel.name).does:
            by_word[word].append(kernel)
    for whole in _step_kernels(wholes):
        fused = _of_words(whole, by_word, unused) or _of_place(whole, by_place, unused)
        if len(fused) > 1 and whole.value <= _FUSED * sum(part.value for part in fused):
            yield tuple(sorted(part.name for part in fused)), whole.name
            for part in fused:
                del unused[part.name]


def _step_kernels(table: pd.DataFrame) -> list[_StepKernel]:
    ordered = table.sort_values(["value", "name"], ascending=[False, True])
    return [
        _StepKernel(*row) for row in ordered[["name", "count", "value", "place"]].itertuples(index=False, name=None)
    ]


def _of_words(
    whole: _StepKernel, by_word: Mapping[str, list[_StepKernel]], unused: Mapping[str, _StepKernel]
) -> list[_StepKernel]:
    """Return the parts whose operation the name of a kernel contains, or implies.

    If several are at the same place as the kernel, only those; a compiler may move the kernels that it fuses.
    """
    parsed = _parse_name(whole.name)
    words = sorted({*parsed.does, *(part for word in parsed.does for part in _MADE_OF.get(word, "").split())})
    usable = {part.name: part for word in words for part in _usable(by_word.get(word, ()), whole, unused)}
    here = [part for part in usable.values() if part.place == whole.place]
    return here if len(here) > 1 else list(usable.values()) if parsed.work == "fused" else []


def _of_place(
    whole: _StepKernel, by_place: Mapping[str, list[_StepKernel]], unused: Mapping[str, _StepKernel]
) -> list[_StepKernel]:
    """Return the parts at the same place as a kernel whose name says that it is fused."""
    if not whole.place or not _SAYS_FUSED.search(whole.name):
        return []
    return list(_usable(by_place.get(whole.place, ()), whole, unused))


def _usable(
    parts: Iterable[_StepKernel], whole: _StepKernel, unused: Mapping[str, _StepKernel]
) -> Iterator[_StepKernel]:
    """Yield the longest unused parts that ran at least as often as the whole, and not much longer."""
    free = (part for part in parts if part.name in unused)
    plausible = (part for part in free if part.count >= whole.count / _COUNT and part.value <= _FASTER * whole.value)
    return islice(plausible, _MOST_PARTS)
