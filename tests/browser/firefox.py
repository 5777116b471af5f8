"""Debian's Firefox through the standard WebDriver BiDi: Playwright drives only a Firefox that it built itself.

What the tests use of Playwright's browser, page and locator is here under the same names, so that helpers serve both.
"""

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

# before any fixture narrows PATH
FIREFOX: Final = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
_ARGUMENTS: Final = ("--headless", "--no-remote", "--remote-debugging-port", "0", "--profile")
_EVENTS: Final = ("log.entryAdded", "network.beforeRequestSent", "browsingContext.navigationStarted")
_DEADLINE_S: Final = 60
_THEME: Final = "layout.css.prefers-color-scheme.content-override"
_KEYS: Final = {"Enter": "\ue007", "Control": "\ue009", "Escape": "\ue00c", "Home": "\ue011"}


@contextmanager
def firefox(folder: Path, *, dark: bool = False) -> Iterator["Firefox"]:
    """Start the browser with a profile and downloads in a folder; without one, fail in CI and skip the test elsewhere.

    A CI that knows of no Firefox to install says so: WITHOUT_FIREFOX=1.
    """
    missing = "Firefox" if FIREFOX is None else "" if find_spec("websockets") else "the package websockets"
    if missing and os.environ.get("CI") == "true" and os.environ.get("WITHOUT_FIREFOX") != "1":
        pytest.fail(f"CI must have {missing}: install it, these tests must not be skipped there")
    if missing:
        pytest.skip(f"there is no {missing.removeprefix('the ')} on this machine")
    from websockets.sync.client import connect  # noqa: PLC0415 (only where it is)

    preferences = {_THEME: 0 if dark else 1, "browser.download.folderList": 2, "browser.download.dir": str(folder)}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()]
    (folder / "user.js").write_text("".join(lines))
    environment = {**os.environ, "HOME": str(folder), "MOZ_CRASHREPORTER_DISABLE": "1"}
    with (
        (folder / "firefox.log").open("wb") as log,
        subprocess.Popen([str(FIREFOX), *_ARGUMENTS, folder], stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            with connect(_address(folder, process), max_size=None, compression=None, ping_interval=None) as socket:
                yield Firefox(socket, folder)
        finally:
            process.kill()


def _address(profile: Path, process: "subprocess.Popen[bytes]") -> str:
    """Return where the browser listens, once it says so in its profile."""
    file, deadline = profile / "WebDriverBiDiServer.json", time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and (text := file.read_text()):
            return f"ws://127.0.0.1:{json.loads(text)['ws_port']}/session"
        time.sleep(0.05)
    pytest.fail(f"Firefox did not start: {(profile / 'firefox.log').read_text()[-2000:]}")


class Firefox:
    """A session: commands, and what the browser tells between their answers."""

    def __init__(self, socket: Any, folder: Path) -> None:
        self.socket = socket
        self.folder = folder  # of its downloads
        self.numbers = itertools.count()
        self.listeners: list[tuple[str, Callable[[Any], object]]] = []
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=_EVENTS)

    def send(self, method: str, **parameters: Any) -> Any:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=_DEADLINE_S))
            if message["type"] == "event":
                self._hear(message["method"], message["params"])
            elif message["id"] == number:
                assert message["type"] == "success", f"{method}: {message.get('message')}"
                return message["result"]

    def _hear(self, method: str, found: dict[str, Any]) -> None:
        url = found.get("url") or found.get("request", {}).get("url", "")
        if url.startswith(("about:", "data:")):  # a new tab, and the font that Firefox has for its own triangles
            return
        event = SimpleNamespace(url=url, text=found.get("text", ""))
        kind = "console" if method == "log.entryAdded" else "request"
        for wanted, listener in self.listeners:
            if wanted == kind:
                listener(event)

    def new_context(self, *, viewport: dict[str, int]) -> "Context":
        return Context(self, viewport)


@dataclass(frozen=True)
class Context:
    """One tab."""

    browser: Firefox
    viewport: dict[str, int]

    def new_page(self) -> "Page":
        context = self.browser.send("browsingContext.create", type="tab")["context"]
        self.browser.send("browsingContext.setViewport", context=context, viewport=self.viewport)
        return Page(self.browser, context)

    def close(self) -> None:
        for tab in self.browser.send("browsingContext.getTree")["contexts"][1:]:
            self.browser.send("browsingContext.close", context=tab["context"])
        self.browser.listeners.clear()


class Page:
    """A page, or a frame in it."""

    def __init__(self, browser: Firefox, context: str) -> None:
        self.browser = browser
        self.identity = context
        self.mouse = Mouse(self)
        self.keyboard = Keyboard(self)

    def on(self, kind: str, listener: Callable[[Any], object]) -> None:
        self.browser.listeners.append((kind, listener))

    def goto(self, url: str) -> None:
        self.browser.send("browsingContext.navigate", context=self.identity, url=url, wait="complete")

    @property
    def frames(self) -> list["Page"]:
        (tree,) = self.browser.send("browsingContext.getTree", root=self.identity)["contexts"]
        return [self, *(Page(self.browser, child["context"]) for child in tree["children"])]

    def evaluate(self, code: str, argument: Any = None) -> Any:
        """Return what an expression is, or what a function makes of the argument."""
        function = f"""async (argument) => {{
          const value = ({code});
          const result = await (typeof value === "function" ? value(JSON.parse(argument)) : value);
          return JSON.stringify(result ?? null);
        }}"""
        answer = self.browser.send(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[{"type": "string", "value": json.dumps(argument)}],
            awaitPromise=True,
            target={"context": self.identity},
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])

    def wait_for_timeout(self, ms: float) -> None:
        time.sleep(ms / 1000)

    def locator(self, selector: str) -> "Locator":
        return Locator(self, selector)

    def perform(self, kind: str, *actions: dict[str, Any]) -> None:
        source = {"type": kind, "id": kind, "actions": list(actions)}
        self.browser.send("input.performActions", context=self.identity, actions=[source])


@dataclass(frozen=True)
class Locator:
    """The first element that a selector finds."""

    page: Page
    selector: str

    def evaluate(self, function: str) -> Any:
        return self.page.evaluate(f"(selector) => ({function})(document.querySelector(selector))", self.selector)

    def inner_text(self) -> str:
        return str(self.evaluate("(element) => element.innerText"))

    def bounding_box(self) -> dict[str, float]:
        box: dict[str, float] = self.evaluate("(element) => element.getBoundingClientRect().toJSON()")
        return box

    def focus(self) -> None:
        self.evaluate("(element) => element.focus()")

    def click(self) -> None:
        self.evaluate("(element) => element.scrollIntoView({ block: 'center', behavior: 'instant' })")
        box = self.bounding_box()
        self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@dataclass
class Mouse:
    """A pointer with one button and a wheel."""

    page: Page
    place: tuple[int, int] = (0, 0)

    def move(self, x: float, y: float) -> None:
        self.place = (round(x), round(y))
        self.page.perform("pointer", self._move())

    def click(self, x: float, y: float) -> None:
        self.place = (round(x), round(y))
        presses = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self.page.perform("pointer", self._move(), *presses)

    def wheel(self, x: int, y: int) -> None:
        at = {"x": self.place[0], "y": self.place[1]}
        self.page.perform("wheel", {"type": "scroll", "deltaX": x, "deltaY": y, **at})

    def _move(self) -> dict[str, Any]:
        return {"type": "pointerMove", "x": self.place[0], "y": self.place[1]}


@dataclass(frozen=True)
class Keyboard:
    """Keys by their names in Playwright."""

    page: Page

    def down(self, key: str) -> None:
        self.page.perform("key", {"type": "keyDown", "value": _KEYS.get(key, key)})

    def up(self, key: str) -> None:
        self.page.perform("key", {"type": "keyUp", "value": _KEYS.get(key, key)})

    def press(self, keys: str) -> None:
        parts = keys.split("+") if len(keys) > 1 else [keys]
        for key in parts:
            self.down(key)
        for key in reversed(parts):
            self.up(key)

    def type(self, text: str) -> None:
        for key in text:
            self.press(key)
