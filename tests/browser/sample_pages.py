"""Real pages for the tests of how a page looks: the one with most in it, one of a run without GPU, and a list."""

from pathlib import Path
from typing import Final

from nightsight.model.report import Report
from nightsight.render.page.html import render_html
from nightsight.render.page.index import IndexEntry, render_index
from tests.recorded import Recorded

# of a page: whether all that its scripts make is there
READY: Final = """["tables", "timeline"].every((name) => !document.getElementById(`${name}-data`)
  || performance.getEntriesByName(`${name.replace("tables", "table")}: ready`).length)"""
_ROOT: Final = Path(__file__).parents[2]


def sample_pages(folder: Path, recorded: Recorded) -> dict[str, Path]:
    """Write the pages into a folder; `mlp` has Nsight Compute's part and the timeline of another run."""
    sample = Report.from_json((_ROOT / "reports" / "sample" / "report.json").read_bytes())
    runs = [
        IndexEntry(name, day, "report.html", f"2026-11-{day}", "NVIDIA H200", "nsys", 2e9, 30.0, 6e6, 8e5, day == "21")
        for name in ("mlp", "a_workload_with_a_name_of_more_than_forty_characters")
        for day in ("20", "21", "22")
    ]
    pages = {
        "mlp": render_html(sample, recorded.profile("mlp")),
        "cpu": recorded.page("cpu"),
        "index": render_index(runs),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}
