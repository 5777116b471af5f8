"""The list of all runs, reports/index.html."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Final, get_type_hints

from nightsight.render.page.index import IndexEntry, render_index
from nightsight.runs.layout import runs, write_file

TRENDS: Final = "history.html"
"""The trend page, next to the index."""
OF_FOLDER: Final = ("run_id", "href")
"""The fields of an entry that follow from the place of its run."""


def list_runs(reports: Path) -> None:
    """Write the list of all runs, reports/index.html.

    Facts come from each run.json, ids and links from the folders, since runs may have been moved.
    """
    names = IndexEntry.__dataclass_fields__.keys() - set(OF_FOLDER)
    entries = [
        IndexEntry(
            run_id=folder.name,
            href=f"{folder.relative_to(reports).as_posix()}/report.html",
            **{name: document[name] for name in names & document.keys()},
        )
        for folder, document in runs(reports)
        if _describes_a_run(document)
    ]
    page = render_index(entries, trends=TRENDS if (reports / TRENDS).is_file() else "")
    write_file(reports / "index.html", page.encode())


def _describes_a_run(document: Mapping[str, object]) -> bool:
    """Whether run.json has all fields of the list with the right types: it may be edited, or from another version."""
    types = get_type_hints(IndexEntry)
    defaults = {field.name: field.default for field in fields(IndexEntry) if field.default is not MISSING}
    values = {**defaults, **document}
    return all(name in OF_FOLDER or isinstance(values.get(name, ...), kind) for name, kind in types.items())
