"""All output of the command line: messages, with control characters removed, and requested output, unchanged.

Standard output holds only what was requested: paths, tables, reports. Scripts read these. Messages for people go to
standard error, including the first screen of a report.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from nightsight.progress import Reporter, clock_text
from nightsight.texts import log_line

if TYPE_CHECKING:
    from nightsight.model.report import Report
    from nightsight.render.terminal import ScreenLine

PROGRESS: Final = "nightsight.progress"
"""The key under which a command's context holds its `Reporter`."""
_PIPE_WIDTH: Final = 100
_USUAL_WIDTH: Final = 80
_NARROWEST: Final = 40
_WIDEST: Final = 300
# each replaced by one character, so that columns stay aligned
_ASCII: Final = str.maketrans("−–—µ…→×·“”’", '---u~>x*""\'')
_CONTROLS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "strong": {"bold": True},
    "faint": {"dim": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
}


def say(*lines: str, err: bool = False) -> None:
    """Print messages, one line each; names in them cannot break lines or control the terminal."""
    encoding = _stream(err=err).encoding or "utf-8"
    for line in lines:
        click.echo(encodable(log_line(line), encoding), err=err)


def put(text: str) -> None:
    """Print requested output on standard output unchanged; on a terminal, without control characters."""
    printed = harmless(text) if sys.stdout.isatty() else text
    click.echo(encodable(printed, sys.stdout.encoding or "utf-8"), nl=False)


def show_report(report: "Report", *, is_brief: bool, local: Callable[[str], str] = str) -> None:
    """Print the first screen of a report on standard error, or one line that sums it up.

    local: names source files by their path on this machine.
    """
    from nightsight.render.terminal import brief_line, first_screen, screen_lines

    screen, width = first_screen(report), width_of(err=True)
    _say_lines([brief_line(screen, width=width)] if is_brief else screen_lines(screen, width=width, local=local))


def _say_lines(lines: Iterable["ScreenLine"]) -> None:
    """Print lines on standard error; bold and colors only on terminals, and not if NO_COLOR forbids them."""
    stream = _stream(err=True)
    is_styled = stream.isatty() and not os.environ.get("NO_COLOR") and not _is_dumb()
    for line in lines:
        text = encodable(log_line(line.text), stream.encoding or "utf-8")
        style = _STYLES[line.tone] if is_styled else {}
        click.echo(click.style(text, **style) if style else text, err=True)


def width_of(*, err: bool = False) -> int:
    """Return the number of cells per line: the width of the terminal, or a fixed number without one."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return min(max(int(columns), _NARROWEST), _WIDEST)
    stream = _stream(err=err)
    if not stream.isatty():
        return _PIPE_WIDTH
    try:
        # some terminals report zero columns
        wide = os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except OSError:
        wide = _USUAL_WIDTH
    return min(max(wide, _NARROWEST), _WIDEST)


def encodable(text: str, encoding: str) -> str:
    """Return a text in an encoding; characters that it lacks become their usual ASCII spelling or `?`."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        signs = (sign if _has(encoding, sign) else sign.translate(_ASCII) for sign in text)
        return "".join(signs).encode(encoding, "replace").decode(encoding)
    return text


def _has(encoding: str, sign: str) -> bool:
    try:
        sign.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def harmless(text: str) -> str:
    """Return a text of several lines without characters that control a terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _stream(*, err: bool) -> TextIO:
    return sys.stderr if err else sys.stdout


def _is_dumb() -> bool:
    return os.environ.get("TERM", "") in ("dumb", "unknown")


class _Lines(Reporter):
    """Prints each message as a line on standard error, with the time left if known."""

    def __init__(self, *, is_quiet: bool) -> None:
        super().__init__()
        self._is_quiet = is_quiet

    def __call__(self, message: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:
        """Print it, unless quiet."""
        self.doing = message
        if self._is_quiet:
            return
        clock, _ = self._clock(done, of, is_series=is_series)
        left_s = clock.left_s(time.monotonic()) if done < of else None
        say(f"{message}{'' if left_s is None else f', about {clock_text(left_s)} left'} ...", err=True)


@contextmanager
def show_progress(*, is_quiet: bool = False) -> Iterator[Reporter]:
    """Show progress on stderr: bars with times on a terminal, plain lines elsewhere, nothing if `is_quiet`."""
    with ExitStack() as stack:
        if is_quiet or _is_dumb() or not sys.stderr.isatty():
            progress: Reporter = _Lines(is_quiet=is_quiet)
        else:
            from nightsight.commands.bars import show_bars

            progress = stack.enter_context(show_bars())
        if context := click.get_current_context(silent=True):
            context.meta[PROGRESS] = progress
        yield progress
