"""The links at the top of a page: its sections in groups, under titles short enough to stand side by side."""

from collections.abc import Iterable
from dataclasses import dataclass

from nightsight.results import entry_of


@dataclass(frozen=True)
class Links:
    """Links to sections, pairs of anchor and text; `group` is "" for those of results that the register lacks."""

    group: str
    targets: tuple[tuple[str, str], ...]


def links(sections: Iterable[tuple[str, str]]) -> tuple[Links, ...]:
    """Group sections (anchor and title), groups in the order of their first section."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for anchor, title in sections:
        entry = entry_of(anchor)
        group, text = (entry.group, entry.short or title) if entry else ("", title)
        groups.setdefault(group, []).append((anchor, text))
    return tuple(Links(group, tuple(targets)) for group, targets in groups.items())
