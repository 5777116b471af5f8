"""The page as one HTML file: rendered templates, inlined style and script, and a policy that blocks other loads."""

import base64
import hashlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined, compiler
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from nightsight.model import Profile, Report
from nightsight.render.figure.axes import spaced
from nightsight.render.page.index import IndexEntry, index_page
from nightsight.render.page.page import page
from nightsight.render.page.scripts import bundle
from nightsight.render.timeline.payload import MOST_BYTES as TIMELINE_BYTES
from nightsight.render.timeline.payload import timeline_payload
from nightsight.shipped import shipped

_TEMPLATES: Final = shipped("templates")
MOST_BYTES: Final = 2_000_000
_POLICY: Final = "content-security-policy"
_NVIDIA: Final = re.compile(r"(?<=\()(https://(?:docs|developer)\.nvidia\.com/[\w./#?=&%+~-]*)(?=\))")
_UTC: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?: UTC)?")
_NO_EVENTS: Final = "the capture has no timed events, or they do not fit the page size limit (--max-bytes)"
# bytes reserved for the policy: it contains hashes of the finished page, so it is inserted last
_LONGEST_POLICY: Final = 400
# placeholder for the data: it cannot occur elsewhere, because autoescaping replaces these brackets
_TIMELINE: Final = Markup("<timeline-data>")
_STYLES: Final = ("page", "text", "tables", "tables_tools", "charts", "pictures", "timeline", "media")


def render_html(report: Report, profile: Profile | None = None, *, most_bytes: int = MOST_BYTES) -> str:
    """Render the report as one self-contained HTML page, with a timeline if there is a profile.

    The timeline gets the room that the rest of the page leaves of `most_bytes`; the rest is never cut.
    """
    view = page(report)
    if profile is not None:
        # render first with a placeholder: the size of the rest decides how much room the timeline has
        text = _filled("report.html", page=view, timeline=_TIMELINE, no_timeline="")
        room = most_bytes - len(text.encode()) - _LONGEST_POLICY
        payload = timeline_payload(profile, results=report.results, most_bytes=min(room, TIMELINE_BYTES))
        if payload:
            return _with_policy(text.replace(_TIMELINE, payload.decode(), 1))
    reason = "report.json contains no events; render the capture itself" if profile is None else _NO_EVENTS
    return _with_policy(_filled("report.html", page=view, timeline="", no_timeline=reason))


def render_index(entries: Sequence[IndexEntry]) -> str:
    """Render the index of runs as one HTML page."""
    return _with_policy(_filled("index.html", page=index_page(entries)))


def _filled(template: str, **values: object) -> str:
    return _environment().get_template(template).render(policy=_POLICY, style=_style(), script=_script(), **values)


def _with_policy(text: str) -> str:
    # the first occurrence is in the meta tag; text from a report always comes after it
    return text.replace(_POLICY, _policy(text), 1)


class _Compiled(FileSystemBytecodeCache):
    """Keeps compiled templates in `__pycache__` next to them, as Python does with modules.

    Compiling takes a tenth of the time of a small report. If the folder cannot be written, templates are compiled each
    time. Jinja checks that a file belongs to its template. The file name stands for Jinja's compiler and for this
    module, which holds options and filters.
    """

    def __init__(self) -> None:
        sources = (Path(file).read_bytes() for file in (__file__, compiler.__file__))
        made_by = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
        super().__init__(str(_TEMPLATES / "__pycache__"), f"%s.{made_by}.jinja")

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            if not sys.dont_write_bytecode:
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=_Compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "linked": _linked,
        "marked": _marked,
        "spaced": spaced,
        "timed": _timed,
    }
    return environment


def _breakable(name: str) -> Markup:
    """Allow line breaks in a long name, but only after separators."""
    return Markup("<wbr>").join(re.split(r"(?<=[_,<…])(?=\S)", name))


def _linked(text: str) -> Markup:
    """Turn NVIDIA's URLs, which ncu's rules put in parentheses, into links; everything else stays text."""
    *parts, rest = _NVIDIA.split(text)
    link = Markup('<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>')
    words = (part if place % 2 == 0 else link.format(part, part.split("/")[2]) for place, part in enumerate(parts))
    return Markup("").join((*words, rest))


def _marked(text: str) -> Markup:
    """Mark up `code` and *titles* in definitions; everything else stays text."""
    safe = str(escape(text))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe)))  # noqa: S704


def _timed(text: str) -> Markup:
    """Wrap text that is a UTC time in a <time> element, so that scripts can add the local time."""
    found = _UTC.fullmatch(text)
    element = Markup('<time datetime="{}T{}Z">{}</time>')
    return element.format(*found.groups(), text) if found else escape(text)


@cache
def _style() -> Markup:
    texts = ((_TEMPLATES / "styles" / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)
    return Markup("\n").join(map(Markup, texts))  # our own files


@cache
def _script() -> Markup:
    return Markup(bundle(_TEMPLATES / "scripts" / "main.js"))  # noqa: S704 (our own files)


def _policy(text: str) -> str:
    """Return the policy: allow the styles and scripts of the rendered page, by hash, and nothing else."""
    return (
        f"default-src 'none'; style-src {_sources(text, 'style')}; script-src {_sources(text, 'script')}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sources(text: str, element: str) -> str:
    blocks = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    hashes = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes) or "'none'"
