"""Nests and labels ranges, and finds repetitions: ranges whose names differ only in numbers."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Flags, Ints
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import MODULE, categorical, empty, nearest, nest

# matches `step 7` and `step_7`, but not `h2d` or the layers `fc1` and `fc2`; also used by the page, in JavaScript
NUMBER: Final = "(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])"
LEAST: Final = 3
"""A path is repeated if it occurs at least this often in a process."""
DEEPEST: Final = 64
DEEPER: Final = "… (deeper)"
"""Ranges more than DEEPEST levels deep share one name."""


def without_numbers(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Replace standalone numbers by `#`, so that repetitions get the same name (or path of names)."""
    return names.str.replace(NUMBER, "#", regex=True)


@memoize
def general_paths(profile: Profile) -> "pd.Index[Any]":
    """Return the paths of `nested_ranges` without numbers, by their code there."""
    return without_numbers(nested_ranges(profile)["path"].cat.categories)


@memoize
def nested_ranges(profile: Profile) -> pd.DataFrame:
    """Return the capture's ranges as `nested` does; without rows if they were not traced."""
    return nested(profile.tables.get("ranges", empty("ranges")))


def nested(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return ranges with `parent`, `level` and `path`: the names from the root (`step / forward`), as a category.

    The name of a module is its path in the model, so that enclosing modules are not repeated (`step / layers.3.mlp`).
    Ranges more than DEEPEST levels deep become children of their ancestor on the last level, all with the same name,
    which limits the length of paths.
    """
    ranges = _limit_depth(nest(ranges))
    own, names = range_labels(ranges)
    own, names = np.where(is_deeper(ranges), len(names), own), np.append(names, DEEPER)
    parent, level = (ranges[name].to_numpy() for name in ("parent", "level"))
    parent = _above(parent, (ranges["style"] == MODULE).to_numpy())
    # parent -1, of roots, finds the last entry of `path`: it refers to the first text, the empty one
    path, texts = np.zeros(len(ranges) + 1, dtype=np.int64), np.array([""], dtype=object)
    by_level = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    for rows in by_level:
        # one key per distinct (path of the parent, own name), so each text is built once per level
        codes, distinct = pd.factorize(path[parent[rows]] * len(names) + own[rows])
        path[rows] = len(texts) + codes
        above, name = np.divmod(distinct, max(len(names), 1))
        texts = np.append(texts, np.where(above > 0, texts[above] + " / ", "") + names[name])
    return ranges.assign(path=categorical(texts[1:], path[:-1] - 1))


def _above(parent: Ints, is_module: Flags) -> Ints:
    """Return the parent of each range; for modules, the innermost enclosing range that is not a module."""
    return np.where(is_module, nearest(parent, is_module), parent)


def _limit_depth(ranges: pd.DataFrame) -> pd.DataFrame:
    """Make ranges more than DEEPEST levels deep children of their ancestor on the last of these levels."""
    deeper = is_deeper(ranges)
    if not deeper.any():
        return ranges
    parent = ranges["parent"].to_numpy()
    above = np.where(deeper, nearest(parent, deeper), parent)
    return ranges.assign(parent=above, level=ranges["level"].clip(upper=DEEPEST))


def is_deeper(ranges: pd.DataFrame) -> Flags:
    """Return which ranges are more than DEEPEST levels deep."""
    return np.asarray(ranges["level"] >= DEEPEST, dtype=bool)


def range_labels(ranges: pd.DataFrame) -> tuple[Ints, np.ndarray[Any, Any]]:
    """Return the position of each label in the distinct labels, and the distinct labels: `domain:name`, or the name.

    Marks are labeled in the same way.
    """
    domains, names = ranges["domain"].cat, ranges["name"].cat
    keys = domains.codes.to_numpy(dtype=np.int64) * len(names.categories) + names.codes.to_numpy()
    codes, distinct = pd.factorize(keys)
    domain, name = np.divmod(distinct, max(len(names.categories), 1))
    prefixes = np.array([domain and f"{domain}:" for domain in domains.categories], dtype=object)
    return codes, prefixes[domain] + names.categories.to_numpy(dtype=object)[name]


@memoize
def repetitions(profile: Profile) -> pd.DataFrame:
    """Return `nested_ranges` with the result of `count_instances`."""
    return count_instances(nested_ranges(profile))


def count_instances(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return nested ranges with `#` for numbers in `path`, and `instances`: the number of them in the process."""
    paths = ranges["path"].cat
    path = categorical(without_numbers(paths.categories).to_numpy(dtype=object), paths.codes.to_numpy())
    counts = ranges.assign(path=path).groupby(["process", "path"], observed=True)["path"].transform("size")
    return ranges.assign(path=path, instances=counts)
