"""Which kernels of the two sides are the same: by name, or by what they do where the name is another.

Autotuning and recompilation rename kernels; a compiler fuses several into one. Their times belong together then: a
kernel that came and one that went would say nothing of the change. But new work must not hide behind old: a place
alone proves nothing, so names have to tell that two kernels do the same.
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
# the same work launches as often; autotuning may split it in two
_COUNT: Final = 1.25
# another implementation of the same work is rarely as much slower or faster
_TIME: Final = 4.0
# of the words of two names
_ALIKE: Final = 0.5
# a fused kernel takes at most as long as its parts, but for noise, and is not much faster than any one of them
_FUSED: Final = 1.1
_FASTER: Final = 8.0
# for each removed kernel, this many shorter and longer new ones are checked: all pairs can be millions
_LOOKED_AT: Final = 16
_MOST_PARTS: Final = 16
_TRITON_FUSED: Final = re.compile(r"^triton_[a-z]+_fused_?(.*)")
_PRODUCT: Final = re.compile(r"(?i)gemm|nvjet|_mm_|matmul|cutlass")
_SAYS_FUSED: Final = re.compile(r"(?i)fus(?:ed|ion)|flash|fmha|attention|sdpa|^triton_")
# words of names that do not tell what a kernel does
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
"""What a kernel of that name computes, in the words of kernels that compute it step by step."""


@dataclass(frozen=True)
class Match:
    """Names of the baseline and of the candidate that are compared as one measure, `name`; note: why."""

    name: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class _Kernel:
    name: str
    count: float
    value: float
    place: str


@dataclass(frozen=True)
class Matches:
    """What was renamed, fused or split; note: that not all pairs of names were looked at, "" if they were."""

    found: tuple[Match, ...]
    note: str = ""


def matches(baseline: pd.DataFrame, candidate: pd.DataFrame) -> Matches:
    """Return what was renamed, fused or split among kernels that only one side has.

    Tables with the columns name, count, value (of a step) and place (where it is launched, "" if unknown).
    """
    gone = baseline[~baseline["name"].isin(candidate["name"])]
    new = candidate[~candidate["name"].isin(baseline["name"])]
    pairs, is_all = _looked_at(gone, new)
    note = (
        f"{len(gone):,} kernels disappeared and {len(new):,} appeared: only those with the nearest times were checked "
        "for new names, so some renamed kernels may count as removed and added."
    )
    renamed = dict(_renamed(pairs))
    gone, new = gone[~gone["name"].isin(renamed)], new[~new["name"].isin(renamed.values())]
    fused = list(_fused(gone, new))
    gone = gone[~gone["name"].isin([part for parts, _ in fused for part in parts])]
    new = new[~new["name"].isin([whole for _, whole in fused])]
    split = list(_fused(new, gone))
    found = (
        *(Match(after, (before,), (after,), f"renamed from {before}") for before, after in renamed.items()),
        *(Match(after, parts, (after,), f"fused from {' + '.join(parts)}") for parts, after in fused),
        *(Match(before, (before,), parts, f"split into {' + '.join(parts)}") for parts, before in split),
    )
    is_complete = is_all or not len(gone) or not len(new)
    return Matches(found, "" if is_complete else note)


# -- renamed ----------------------------------------------------------------------------------------------------------


def _looked_at(gone: pd.DataFrame, new: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return pairs of kernels of the same work and place, and whether those are all that have similar times."""
    gone, new = _with_work(gone), _with_work(new)
    near, is_all = _near(gone, new, ["work", "place"])
    # where very many do the same kind of work, those that do the very same
    same, _ = _near(gone, new, ["work", "place", "does"])
    return pd.concat([near, same], ignore_index=True).drop_duplicates(["name", "name_new"]), is_all


def _near(gone: pd.DataFrame, new: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, bool]:
    """Return pairs that agree in some columns: with each of `gone` those of `new` with the nearest times.

    And whether these are all pairs whose times are similar.
    """
    group = pd.concat([gone, new], ignore_index=True).groupby(by, sort=False).ngroup().to_numpy()
    time = np.log(np.maximum(np.concatenate([gone["value"], new["value"]]).astype(np.float64), 1.0))
    # one axis for all groups, which are further apart than any two times are
    here, there = np.split(1000.0 * group + time, [len(gone)])
    order = np.argsort(there, kind="stable")
    there = there[order]
    at = np.add.outer(np.searchsorted(there, here), np.arange(-_LOOKED_AT, _LOOKED_AT))
    row, column = np.nonzero((at >= 0) & (at < len(there)))
    other = order[at[row, column]]
    is_same = group[row] == group[len(gone) + other]
    left, right = (table.iloc[rows[is_same]].reset_index(drop=True) for table, rows in ((gone, row), (new, other)))
    similar = np.searchsorted(there, here + np.log(_TIME)) - np.searchsorted(there, here - np.log(_TIME))
    return pd.concat([left, right.add_suffix("_new")], axis=1), bool((similar <= _LOOKED_AT).all())


def _renamed(pairs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the pairs of names whose counts, times and words are similar; the most alike first, each name once."""
    counts, times = pairs["count"] / pairs["count_new"], pairs["value"] / pairs["value_new"]
    near = pairs[counts.between(1 / _COUNT, _COUNT) & times.between(1 / _TIME, _TIME)]
    alike = [_likeness(before, after) for before, after in zip(near["name"], near["name_new"], strict=True)]
    near = near.assign(alike=alike, apart=np.abs(np.log(times[near.index])))
    # cuBLAS has hundreds of names for one product
    near = near[(near["alike"] >= _ALIKE) | (near["place"] != "") & near["work"].isin(["product", "convolution"])]
    used: tuple[set[str], set[str]] = (set(), set())
    best_first = near.sort_values(["alike", "apart", "name", "name_new"], ascending=[False, True, True, True])
    for before, after in best_first[["name", "name_new"]].to_numpy():
        if before not in used[0] and after not in used[1]:
            used[0].add(before)
            used[1].add(after)
            yield before, after


def _with_work(table: pd.DataFrame) -> pd.DataFrame:
    named = [_named(name) for name in table["name"]]
    return table.assign(work=[one.work for one in named], does=[" ".join(sorted(one.does)) for one in named])


def _likeness(first: str, second: str) -> float:
    """Return how much of two names of the same kind of work is the same: 1 for the same function, 0 for another."""
    ours, theirs = _named(first), _named(second)
    if ours.work == "fused":
        return _share(ours.does, theirs.does)
    if ours.work in ("elementwise", "reduction") and ours.does and theirs.does:
        # they differ in their types and tiles only, or they compute something else
        return max(_ALIKE, _share(ours.words, theirs.words)) if ours.does == theirs.does else 0.0
    if ours.base == theirs.base:
        return _ALIKE + (1 - _ALIKE) * _share(ours.words, theirs.words)
    return _share(ours.words, theirs.words)


def _share(ours: frozenset[str], theirs: frozenset[str]) -> float:
    return len(ours & theirs) / max(len(ours | theirs), 1)


class _Named(NamedTuple):
    """What a name tells: the kind of work, the function, what it does (words, may be none), and all words."""

    work: str
    base: str
    does: frozenset[str]
    words: frozenset[str]


@cache
def _named(name: str) -> _Named:
    fused = _TRITON_FUSED.match(name)
    kind = "fused" if fused else "product" if _PRODUCT.search(name) else kind_of(name)
    said = fused[1] if fused else name if kind == "foreach" else operation(name)
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+", said)]
    does = {*(word for word in words if not _NOTHING_SAID.fullmatch(word)), *["product"] * (kind == "product")}
    return _Named(kind, base_name(name), frozenset(does), frozenset(_WORD.findall(name)))


# -- fused, and split -------------------------------------------------------------------------------------------------


def _fused(parts: pd.DataFrame, wholes: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the parts whose work a kernel does now, as far as its name tells, and that kernel; the longest first."""
    left = {kernel.name: kernel for kernel in _kernels(parts)}
    by_word, by_place = defaultdict[str, list[_Kernel]](list), defaultdict[str, list[_Kernel]](list)
    for kernel in left.values():
        by_place[kernel.place].append(kernel)
        for word in _named(kernel.name).does:
            by_word[word].append(kernel)
    for whole in _kernels(wholes):
        mine = _of_words(whole, by_word, left) or _of_place(whole, by_place, left)
        if len(mine) > 1 and whole.value <= _FUSED * sum(part.value for part in mine):
            yield tuple(sorted(part.name for part in mine)), whole.name
            for part in mine:
                del left[part.name]


def _kernels(table: pd.DataFrame) -> list[_Kernel]:
    ordered = table.sort_values(["value", "name"], ascending=[False, True])
    return [_Kernel(*row) for row in ordered[["name", "count", "value", "place"]].itertuples(index=False, name=None)]


def _of_words(whole: _Kernel, by_word: Mapping[str, list[_Kernel]], left: Mapping[str, _Kernel]) -> list[_Kernel]:
    """Return the parts whose operation is in the name of a kernel, or is known to be a part of what that names.

    Those of its place, if there are several; a compiler may give what it fuses another place.
    """
    named = _named(whole.name)
    words = sorted({*named.does, *(part for word in named.does for part in _MADE_OF.get(word, "").split())})
    found = {part.name: part for word in words for part in _usable(by_word.get(word, ()), whole, left)}
    here = [part for part in found.values() if part.place == whole.place]
    return here if len(here) > 1 else list(found.values()) if named.work == "fused" else []


def _of_place(whole: _Kernel, by_place: Mapping[str, list[_Kernel]], left: Mapping[str, _Kernel]) -> list[_Kernel]:
    """Return the parts of the place of a kernel whose name says that it is fused."""
    if not whole.place or not _SAYS_FUSED.search(whole.name):
        return []
    return list(_usable(by_place.get(whole.place, ()), whole, left))


def _usable(parts: Iterable[_Kernel], whole: _Kernel, left: Mapping[str, _Kernel]) -> Iterator[_Kernel]:
    """Yield the longest parts that nothing else has taken, and that ran at least as often, and not for much longer."""
    free = (part for part in parts if part.name in left)
    plausible = (part for part in free if part.count >= whole.count / _COUNT and part.value <= _FASTER * whole.value)
    return islice(plausible, _MOST_PARTS)
