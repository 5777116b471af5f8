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
"""What of an entry follows from where its run is."""


def list_runs(reports: Path) -> None:
    """Write the list of all runs, reports/index.html."""
    write_file(reports / "index.html", _index(reports).encode())


def _index(root: Path) -> str:
    """List the runs by their run.json; ids and links come from the folders, since runs may have been moved."""
    wanted = IndexEntry.__dataclass_fields__.keys() - set(OF_FOLDER)
    entries = [
        IndexEntry(
            run_id=folder.name,
            href=f"{folder.relative_to(root).as_posix()}/report.html",
            **{name: document[name] for name in wanted & document.keys()},
        )
        for folder, document in runs(root)
        if _describes_a_run(document)
    ]
    return render_index(entries, trends=TRENDS if (root / TRENDS).is_file() else "")


def _describes_a_run(document: Mapping[str, object]) -> bool:
    """Whether run.json has all fields of the list, with the right types: it may be from another version, or edited."""
    types = get_type_hints(IndexEntry)
    defaults = {field.name: field.default for field in fields(IndexEntry) if field.default is not MISSING}
    given = {**defaults, **document}
    return all(name in OF_FOLDER or isinstance(given.get(name, ...), kind) for name, kind in types.items())
