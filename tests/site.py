"""Hooks of MkDocs (`make site`): parts of the site that are not in docs/, and a check of all its links.

A link of a document to a file elsewhere in the repository leads to that page of the site, or to a copy of the file.
NIGHTSIGHT_GALLERY=0 leaves out the reports of the gallery, which take half a minute.
"""

import os
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.gallery import Entry, Shown, gallery

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
SAMPLE: Final = "reports/sample/report.html"
_COPIES: Final = {SAMPLE: "sample/report.html"}
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#:]+)|(?<=href=\")([^\"#:]+)|(?<=src=\")([^\":]+)|(?<=srcset=\")([^\":]+)")
_PICTURE: Final = re.compile(r"(!\[[^\]]*\]\(img/case-(\w+)\.svg\))")
_LIST: Final = re.compile(r"<!-- written by .*?<!-- end -->", re.DOTALL)
# what the theme links to in its footer, and tags whose addresses a browser requests
_REQUESTS: Final = {"script": "src", "img": "src", "iframe": "src", "source": "srcset"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository, the sample report, the gallery, and files that documents link to."""
    for path, page in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_linked(text, (ROOT / path).parent)))
    linked = {path for text, folder in _documents() for path in _outside(text, folder)}
    for path in sorted({*linked, SAMPLE} - {*PAGES}):
        files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
    for entry, report in _reports().items():
        files.append(File.generated(config, f"gallery/{entry.name}.html", content=report.page))
        files.append(File.generated(config, f"gallery/{entry.name}.svg", content=report.picture))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and show the reports of the gallery."""
    if page.file.src_uri in PAGES.values():
        return markdown
    if page.file.src_uri == "gallery.md" and _reports():
        markdown = _LIST.sub(lambda _: "\n".join(_listed()), markdown)
    if page.file.src_uri == "cases.md" and _reports():
        markdown = _PICTURE.sub(r"[\1](gallery/\2.html)\n\n[Open the report](gallery/\2.html)", markdown)
    return _linked(markdown, ROOT / "docs")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Fail if a link leads nowhere, or if a page would make a request to another host."""
    faults = [*faults_of(Path(config.site_dir))]
    if faults:
        raise PluginError("\n".join(["links of the site:", *faults]))


def faults_of(site: Path) -> Iterator[str]:
    """Yield the links of all pages that lead nowhere, and addresses elsewhere that a page loads.

    Reports are files of their own, whose tests check them.
    """
    reports = {site / "sample", site / "gallery"}
    pages = {path: _Links(path) for path in sorted(site.rglob("*.html")) if path.parent not in reports}
    for path, found in pages.items():
        # its addresses begin with that of the site, which is unknown here
        if path.name == "404.html":
            continue
        for address in found.requests:
            if urlsplit(address).netloc:
                yield f"{path.relative_to(site)} loads {address}"
        for address in {*found.links, *found.requests}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path.relative_to(site)} links to {address}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{path.relative_to(site)} links to {address}, which has no such heading"


class _Links(HTMLParser):
    """The addresses of a page: those it links to, those it loads, and its own anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.ids: set[str] = {"__top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: Mapping[str, str | None] = dict(attrs)
        if given.get("id"):
            self.ids.add(given["id"] or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag == "link" and "canonical" not in (given.get("rel") or ""):
            self.requests.append(given.get("href") or "")
        if address := given.get(_REQUESTS.get(tag, "")):
            self.requests.append(address)


def _reports() -> dict[Entry, Shown]:
    return {} if os.environ.get("NIGHTSIGHT_GALLERY") == "0" else gallery()


def _listed() -> Iterator[str]:
    for entry, report in _reports().items():
        cause = re.split(r":| \(| in `| outside |\.$", report.title)[0]
        yield f"## {cause}\n"
        rule = f"Rule: [`{entry.rule}`](advice.md). " if entry.rule else ""
        yield f"{entry.program[0].upper()}{entry.program[1:]}. {rule}[Open the report](gallery/{entry.name}.html).\n"
        yield f"[![A step now, and after each fix](gallery/{entry.name}.svg)](gallery/{entry.name}.html)\n"


def _documents() -> Iterator[tuple[str, Path]]:
    for path in {*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in PAGES)}:
        yield path.read_text(encoding="utf-8"), path.parent


def _outside(text: str, folder: Path) -> Iterator[str]:
    """Yield the files of the repository that a document links to, except those in docs/."""
    for match in _LINK.finditer(text):
        path = (folder / match[0]).resolve()
        if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "docs"):
            yield str(path.relative_to(ROOT))


def _place(path: str) -> str:
    """Return where a file of the repository is on the site."""
    if place := PAGES.get(path) or _COPIES.get(path):
        return place
    # MkDocs leaves out folders that begin with a dot
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path.removeprefix('.')}"


def _linked(text: str, folder: Path) -> str:
    """Return a document with links to places on the site, whose pages are all in one folder."""

    def place(match: re.Match[str]) -> str:
        path = (folder / match[0]).resolve()
        if not path.is_file() or not path.is_relative_to(ROOT):
            return match[0]
        return _place(str(path.relative_to(ROOT)))

    return _LINK.sub(place, text)
