"""Renderers: a Report in the form somebody asked for. Adding one is a function and a line in FORMATS."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import Report
from pipeline.render.data import render_csv, render_json, render_parquet
from pipeline.render.html import render_html, render_index
from pipeline.render.index import IndexEntry, index_entry
from pipeline.render.markdown import render_markdown
from pipeline.render.summary import Numbers, numbers

__all__ = [
    "FORMATS",
    "Format",
    "IndexEntry",
    "Numbers",
    "index_entry",
    "numbers",
    "render_html",
    "render_index",
    "render_markdown",
]


@dataclass(frozen=True)
class Format:
    """A form of a report: its file name suffix, and its files by name; a single file has the name ""."""

    suffix: str
    render: Callable[[Report], dict[str, bytes]]


FORMATS: Final[Mapping[str, Format]] = {
    "html": Format(".html", lambda report: {"": render_html(report).encode()}),
    "json": Format(".json", render_json),
    "csv": Format(".csv", render_csv),
    "parquet": Format(".parquet", render_parquet),
    "markdown": Format(".md", lambda report: {"": render_markdown(report).encode()}),
}
