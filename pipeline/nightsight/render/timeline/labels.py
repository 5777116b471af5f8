"""Labels of timeline events: a name and details (grid, bytes, ...); equal events share one label."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Codes, Ints
from nightsight.render.tracks import LAYERS, event_names
from nightsight.tables import SHAPE, integers, numbered
from nightsight.texts import middle_cut, prose
from nightsight.units import format_value

MOST_LABELS: Final = 20_000
OTHERS: Final = "(other names)"
_UNKNOWN: Final = frozenset({"", "Unknown"})
_DETAIL_LENGTH: Final = 200


@dataclass(frozen=True)
class EventLabels:
    """Name, details and category of each label. `without`: kinds of events whose details are left out.

    The category is a position in (*BUSY, *IDLE); -1 for events that are neither GPU work nor CUDA calls.
    """

    names: tuple[str, ...]
    details: tuple[str, ...]
    categories: tuple[int, ...]
    without: tuple[str, ...] = ()

    @cached_property
    def places(self) -> list[int]:
        """The number of each label's name; distinct names are numbered in order of appearance."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self.names))}
        return [numbers[name] for name in self.names]


def label_events(table: str, frame: pd.DataFrame, category: Ints) -> tuple[Ints, EventLabels]:
    """Return the index of each event's label, and the labels of the table; `category` is that of each event."""
    name_code, names = _names(table, frame)
    columns = [name for name in _FACTS.get(table, ()) if name in frame]
    code, first = numbered([name_code, category, *(_codes(frame[name]) for name in columns)])
    without: tuple[str, ...] = ()
    # too many different details to be worth their bytes: names only
    if columns and len(first) > MOST_LABELS:
        columns, without = [], (table.replace("_", " "),)
        code, first = numbered([name_code, category])
    facts = {name: _column_values(frame[name].iloc[first]) for name in columns}
    rows = zip(*facts.values(), strict=True) if columns else ()
    texts = (_WORDS[table](dict(zip(columns, row, strict=True))) for row in rows)
    details = [prose(text, _DETAIL_LENGTH) for text in texts] or [""] * len(first)
    own = tuple(names[name] for name in name_code[first].tolist())
    return code, EventLabels(own, tuple(details), tuple(category[first].tolist()), without)


def _names(table: str, frame: pd.DataFrame) -> tuple[Ints, list[str]]:
    """Return the index of each event's name, and the names; a table without names gives its events one name."""
    if table in _UNNAMED:
        return np.zeros(len(frame), dtype=np.int64), [_UNNAMED[table]]
    return event_names(table, frame)


def concatenate(parts: Iterable[EventLabels]) -> EventLabels:
    """Concatenate labels."""
    all_labels = list(parts)
    names = chain.from_iterable(part.names for part in all_labels)
    details = chain.from_iterable(part.details for part in all_labels)
    categories = chain.from_iterable(part.categories for part in all_labels)
    without = dict.fromkeys(chain.from_iterable(part.without for part in all_labels))
    return EventLabels(tuple(names), tuple(details), tuple(categories), tuple(without))


def _codes(column: "pd.Series[Any]") -> Ints:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, dtype=np.int64)
    return integers(column) if column.dtype != bool else column.to_numpy().astype(np.int64)


def _column_values(column: "pd.Series[Any]") -> list[object]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.astype("str"))
    return list(_codes(column).tolist())


Facts = Mapping[str, object]


def _of_kernel(facts: Facts) -> str:
    shapes = [
        f"{shape} {'×'.join(str(facts[f'{shape}_{axis}']) for axis in 'xyz')}"
        for shape in ("grid", "block")
        if f"{shape}_x" in facts
    ]
    registers = facts.get("registers", -1)
    return ", ".join([*shapes, *([] if registers == -1 else [f"{registers} registers"])])


def _of_memory(facts: Facts) -> str:
    kinds = [str(facts[name]) for name in ("source_kind", "target_kind") if facts[name] not in _UNKNOWN]
    size = format_value(float(str(facts["bytes"])), "size_bytes") if facts.get("bytes", -1) != -1 else ""
    return ", ".join(filter(None, [" → ".join(kinds), size]))


def _of_graph(facts: Facts) -> str:
    return f"graph {facts['graph']}"


def _of_range(facts: Facts) -> str:
    domain = f"domain {facts['domain']}" if facts.get("domain") else ""
    return ", ".join(filter(None, [domain, "never ended" if facts.get("is_open") else ""]))


def _of_mark(facts: Facts) -> str:
    return ", ".join(f"{name} {facts[name]}" for name in ("domain", "category") if facts.get(name))


def _of_faults(facts: Facts) -> str:
    return f"{facts['faults']} faults"


_UNNAMED: Final = {"cpu_page_faults": "CPU page fault", "gpu_page_faults": "GPU page faults"}
_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels": (*SHAPE, "registers"),
    "memory_ops": ("source_kind", "target_kind", "bytes"),
    "graph_launches": ("graph",),
    "ranges": ("domain", "is_open"),
    LAYERS: ("domain",),
    "marks": ("domain", "category"),
    "gpu_page_faults": ("faults",),
}
_WORDS: Final[Mapping[str, Callable[[Facts], str]]] = {
    "kernels": _of_kernel,
    "memory_ops": _of_memory,
    "graph_launches": _of_graph,
    "ranges": _of_range,
    LAYERS: _of_range,
    "marks": _of_mark,
    "gpu_page_faults": _of_faults,
}


@dataclass(frozen=True)
class Economy:
    """Limits on text in the timeline: number of labels, and length of a name in characters."""

    most_labels: int
    name_length: int


def fold(label: Codes, labels: EventLabels, economy: Economy) -> tuple[Codes, EventLabels, list[str]]:
    """Reduce the labels to an economy and number them by frequency, the most frequent first: small numbers pack better.

    If there are too many, details go first, then the rarest names become OTHERS. Return the new label of each event,
    the labels, and sentences on what was left out.
    """
    count = np.bincount(label, minlength=len(labels.names))
    names = tuple(middle_cut(name, economy.name_length) for name in labels.names)
    left_out = [f"Names are cut to {economy.name_length:,} characters."] if names != labels.names else []
    shortened = replace(labels, names=names)
    place, folded = _by_frequency(shortened, count)
    without = labels.without
    if len(folded.names) > economy.most_labels:
        place, folded = _by_frequency(replace(shortened, details=("",) * len(names)), count)
        without = ("events",)
    if without:
        left_out.append(f"Details are left out: there are too many different {' and '.join(without)}.")
    if (all_ := len(folded.names)) > economy.most_labels:
        # one label of others for each category that they have
        rare_categories = dict.fromkeys(folded.categories[economy.most_labels - 1 :])
        most_kept = economy.most_labels - len(rare_categories)
        rare_categories = dict.fromkeys(folded.categories[most_kept:])
        label_of_category = {category: most_kept + number for number, category in enumerate(rare_categories)}
        new = np.array(
            [*range(most_kept), *(label_of_category[category] for category in folded.categories[most_kept:])],
            dtype=np.int32,
        )
        place = new[place]
        folded = EventLabels(
            (*folded.names[:most_kept], *(OTHERS,) * len(rare_categories)),
            (*folded.details[:most_kept], *("",) * len(rare_categories)),
            (*folded.categories[:most_kept], *rare_categories),
        )
        left_out.append(
            f"Only the {most_kept:,} most frequent of {all_:,} names are shown; all others appear as {OTHERS}."
        )
    return place[label], folded, left_out


def _by_frequency(labels: EventLabels, count: Ints) -> tuple[Codes, EventLabels]:
    """Return the new number of each label, and the distinct labels that occur, the most frequent first."""
    keys = list(zip(labels.names, labels.details, labels.categories, strict=True))
    totals: dict[tuple[str, str, int], int] = {}
    for key, times in zip(keys, count.tolist(), strict=True):
        if times:
            totals[key] = totals.get(key, 0) + times
    # by name where equally frequent, so that the order is reproducible
    ordered = sorted(totals, key=lambda key: (-totals[key], key))
    places = {key: place for place, key in enumerate(ordered)}
    new_numbers = np.array([places.get(key, 0) for key in keys], dtype=np.int32)
    names, details, categories = zip(*ordered, strict=True) if ordered else ((), (), ())
    return new_numbers, EventLabels(names, details, categories)
