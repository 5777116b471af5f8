"""Whether a server is ready, from the URL, TCP port or output text that `--ready` names; and its own profiler."""

import http.client
import json
import re
import socket
import urllib.parse
from contextlib import closing
from typing import Final

from nightsight.errors import UsageError

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_PORT: Final = re.compile(r"(?:([\w.-]*):)?(\d+)", re.ASCII)
_LARGEST_PORT: Final = 65535
_PATIENCE_S: Final = 2.0
# all workers of a large engine have to answer
_PROFILER_S: Final = 60.0
START_PROFILE, STOP_PROFILE = "start_profile", "stop_profile"


class Readiness:
    """Finds out whether a server is ready: by a request, or from its output."""

    def __init__(self, sign: str) -> None:
        port = _PORT.fullmatch(sign)
        self.sign = sign
        self._url = sign if _URL.match(sign) else ""
        self._place = (port[1] or "localhost", int(port[2])) if port and not self._url else None
        self._is_text = not self._url and self._place is None
        self._tail, self._was_said = "", False

    def refuse_another(self) -> None:
        """Raise UsageError if something answers before the server is started: a client would load that instead."""
        if self.now():
            raise UsageError(
                f"something already answers at {self.sign}, so it cannot show when the server is ready",
                "Stop the server that runs there, or use another port.",
            )

    def hear(self, text: str) -> None:
        """Take new output of the server."""
        if self._is_text:
            self._tail += text
            self._was_said = self._was_said or self.sign in self._tail
            self._tail = self._tail[-len(self.sign) :]

    def now(self) -> bool:
        """Whether the server is ready: the URL answers 2xx, or the port accepts connections."""
        return self._was_said if self._is_text else self._status() // 100 == 2

    def is_there(self) -> bool:
        """Whether the server answers at all; True if it is known only by its output."""
        return self._is_text or self._status() > 0

    def _status(self) -> int:
        """Return the status of an HTTP answer, 200 for a port; 0 if nobody answers."""
        try:
            if self._place:
                socket.create_connection(self._place, timeout=_PATIENCE_S).close()
                return 200
            return _status_of(self._url, "GET", "", _PATIENCE_S)
        except (OSError, http.client.HTTPException, ValueError):
            return 0


def switch_profiler(url: str) -> str:
    """Send the request that starts or stops the profiler of a server; return the problem, "" if there is none.

    SGLang would start torch.profiler, which cannot run under nsys; vLLM has this setting on its command line.
    """
    try:
        status = _status_of(url, "POST", json.dumps({"activities": ["CUDA_PROFILER"]}), _PROFILER_S)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
    return "" if status // 100 == 2 else f"the server answered with status {status}"


def _status_of(text: str, method: str, body: str, patience_s: float) -> int:
    """Return the status of an HTTP answer; OSError, HTTPException or ValueError without one."""
    # directly: the server is on this machine or near it, and a proxy would answer for it
    url = urllib.parse.urlsplit(text)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    with closing(kind(url.hostname or "", url.port, timeout=patience_s)) as connection:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, f"{url.path or '/'}?{url.query}".rstrip("?"), body or None, headers)
        return connection.getresponse().status


def problem_of(sign: str) -> str:
    """Return why this cannot be waited for; "" if it can."""
    if not sign.strip():
        return "it is empty"
    port = _PORT.fullmatch(sign)
    if port and not 0 < int(port[2]) <= _LARGEST_PORT:
        return f"ports are 1 to {_LARGEST_PORT}"
    if _URL.match(sign):
        try:
            parts = urllib.parse.urlsplit(sign)
            if not parts.hostname or parts.port == 0 or re.search(r"[\s\x00-\x1f]", sign):
                return "it is not a URL"
        except ValueError as error:
            return str(error)
    return ""


def endpoint_problem(url: str) -> str:
    """Return why a server's profiler cannot be started with this URL; "" if it can."""
    if not _URL.match(url):
        return "it is not a URL"
    if not url.endswith(f"/{START_PROFILE}"):
        return f"it does not end in /{START_PROFILE}"
    return problem_of(url)
