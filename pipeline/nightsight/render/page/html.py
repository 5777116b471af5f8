"""The page as one HTML file: rendered templates, inlined style and script, and a policy that blocks other loads."""

import base64
import hashlib
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined, compiler
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from nightsight.model.report import Profile, Report
from nightsight.render.figure.axes import spaced
from nightsight.render.page import MOST_BYTES
from nightsight.render.page.page import page
from nightsight.render.page.scripts import bundle
from nightsight.render.timeline.activity import Activities
from nightsight.render.timeline.payload import MOST_BYTES as TIMELINE_BYTES
from nightsight.render.timeline.payload import timeline_of
from nightsight.render.timeline.rows import TimelineEvents
from nightsight.system.parallel import background
from nightsight.system.shipped import shipped
from nightsight.units import SCALES

TEMPLATES: Final = shipped("templates")
_POLICY: Final = "content-security-policy"
_NVIDIA: Final = re.compile(r"(?<=\()(https://(?:docs|developer)\.nvidia\.com/[\w./#?=&%+~-]*)(?=\))")
_UTC: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?: UTC)?")
_UNITS: Final = "|".join(symbol for scales in SCALES.values() for _, symbol in scales if symbol)
_BEFORE_UNIT: Final = re.compile(rf"(?<=\d) (?=(?:{_UNITS})(?![\w/])|±)|(?<=±) (?=\d)")
_NO_EVENTS: Final = "the capture has no timed events, or they do not fit the page size limit (--max-bytes)"
# bytes reserved for the policy: it contains hashes of the finished page, so it is inserted last
_LONGEST_POLICY: Final = 400
# placeholder for the data: it cannot occur elsewhere, because autoescaping replaces these brackets
_TIMELINE: Final = Markup("<timeline-data>")
_MOVED: Final = (
    ("style", "css", '<link rel="stylesheet" href="', '">'),
    ("script", "js", '<script src="', '"></script>'),
)
_FROM_FILES: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)
_STYLES: Final = (
    "tokens",
    "page",
    "first",
    "text",
    "tables",
    "tables_tools",
    "charts",
    "series",
    "pictures",
    "comparison",
    "timeline",
    "media",
)


def render_html(
    report: Report,
    profile: Profile | None = None,
    *,
    most_bytes: int = MOST_BYTES,
    activities: Activities = dict,
    events: Callable[[], TimelineEvents] | None = None,
) -> str:
    """Render the report as one self-contained HTML page, with a timeline if there is a profile.

    activities: returns the activity of each device at every instant, which the timeline draws. events: returns the
    events of the timeline (`all_events`) if they are computed already.

    The timeline gets the room that the rest of the page leaves of `most_bytes`; the rest is never cut.
    """
    timeline = None
    if profile is not None:
        # of a large capture, while the rest is rendered
        prepare = partial(timeline_of, profile, results=report.results, activities=activities, events=events)
        timeline = background(prepare, rows=profile.rows)
    view = page(report)
    if timeline:
        # render first with a placeholder: the size of the rest decides how much room the timeline has
        text = fill("report.html", page=view, timeline=_TIMELINE, no_timeline="")
        room = most_bytes - len(text.encode()) - _LONGEST_POLICY
        if payload := timeline()(min(room, TIMELINE_BYTES)):
            return with_policy(text.replace(_TIMELINE, payload.decode(), 1))
    reason = "report.json contains no events; render the capture itself" if profile is None else _NO_EVENTS
    return with_policy(fill("report.html", page=view, timeline="", no_timeline=reason))


def preload() -> None:
    """Read the style and the script of a page, which takes 20 ms, so that `render_html` has them."""
    _style()
    _script()


def fill(
    template: str,
    *,
    entry: str = "main",
    styles: tuple[str, ...] = _STYLES,
    vendored: tuple[Markup, Markup] = (Markup(), Markup()),
    **values: object,
) -> str:
    """Return a rendered template, before its policy is known.

    entry: the entry module of the page's script. vendored: third-party style and script, which come before ours.
    """
    pairs = zip(vendored, (_style(styles), _script(entry)), strict=True)
    style, script = (Markup("\n").join(filter(None, pair)) for pair in pairs)
    return _environment().get_template(template).render(policy=_POLICY, style=style, script=script, **values)


def filled(source: str, **values: object) -> str:
    """Return a rendered template that is not among the files, with the styles of all pages and without scripts."""
    template = _environment().from_string(source)
    return template.render(policy=_POLICY, style=_style(_STYLES), script=Markup(), **values)


def with_policy(text: str) -> str:
    """Return the finished page, with a policy that allows its own styles and scripts."""
    # the first occurrence is in the meta tag; text from a report always comes after it
    return text.replace(_POLICY, _policy(text), 1)


def with_assets(text: str, address: str) -> tuple[str, dict[str, bytes]]:
    """Move style and script of a finished page into separate files, for hosts that forbid them inside a page.

    address: the folder of these files, relative to the page. Return the page, and the files by name. The names are
    digests of the content, so that many pages share the files, and an old page keeps its own.
    """
    files: dict[str, bytes] = {}
    for element, suffix, before, after in _MOVED:
        for whole, block in re.findall(rf"(<{element}>(.*?)</{element}>)", text, re.DOTALL):
            name = f"nightsight-{hashlib.sha256(block.encode()).hexdigest()[:12]}.{suffix}"
            files[name] = block.encode()
            text = text.replace(whole, f"{before}{escape(quote(address))}/{name}{after}", 1)
    return re.sub(r'(-Security-Policy" content=")[^"]*', rf"\g<1>{_FROM_FILES}", text, count=1), files


class _Compiled(FileSystemBytecodeCache):
    """Keeps compiled templates in `__pycache__` next to them, as Python does with modules.

    Compiling takes a tenth of the time of a small report. If the folder cannot be written, templates are compiled each
    time. Jinja checks that a file belongs to its template. The file name identifies Jinja's compiler and this
    module, which holds options and filters.
    """

    def __init__(self) -> None:
        sources = (Path(file).read_bytes() for file in (__file__, compiler.__file__))
        made_by = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
        super().__init__(str(TEMPLATES / "__pycache__"), f"%s.{made_by}.jinja")

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
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=_Compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "coded": _code,
        "linked": _links,
        "marked": _marks,
        "spaced": spaced,
        "timed": _time,
        "unbroken": _unbroken,
    }
    return environment


def _breakable(name: str) -> Markup:
    """Allow line breaks in a long name, but only after separators."""
    return Markup("<wbr>").join(re.split(r"(?<=[_,<…])(?=\S)", name))


def _code(text: str) -> Markup:
    """Mark up `code`; everything else stays text, asterisks of types too."""
    parts = text.split("`")
    # a last backtick without a partner is text
    lone = ["`" + parts.pop()] if len(parts) % 2 == 0 else []
    code = Markup("<code>{}</code>")
    markup = [code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join([*markup, *lone])


def _links(text: str) -> Markup:
    """Mark up `code`, and turn NVIDIA's URLs, which ncu's rules put in parentheses, into links; the rest stays text."""
    *pieces, tail = _NVIDIA.split(text)
    link = Markup('<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>')
    words = (
        _code(part) if place % 2 == 0 else link.format(part, part.split("/")[2]) for place, part in enumerate(pieces)
    )
    return Markup("").join((*words, _code(tail)))


def _marks(text: str) -> Markup:
    """Mark up `code` and *titles* in definitions; everything else stays text."""
    safe = str(escape(text))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe)))  # noqa: S704


def _time(text: str) -> Markup:
    """Wrap text that is a UTC time in a <time> element, so that scripts can add the local time."""
    match = _UTC.fullmatch(text)
    element = Markup('<time datetime="{}T{}Z">{}</time>')
    return element.format(*match.groups(), text) if match else escape(text)


def _unbroken(text: str) -> str:
    """Keep units, and possible errors, on the line of their numbers."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


@cache
def _style(styles: tuple[str, ...] = _STYLES) -> Markup:
    texts = ((TEMPLATES / "styles" / f"{name}.css").read_text(encoding="utf-8") for name in styles)
    return Markup("\n").join(map(Markup, texts))  # our own files


@cache
def _script(entry: str = "main") -> Markup:
    return Markup(bundle(TEMPLATES / "scripts" / f"{entry}.js"))  # noqa: S704 (our own files)


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
