"""Whether a server is ready, from the URL, TCP port or output text that `--ready` names."""

import http.client
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
            # directly: the server is on this machine or near it, and a proxy would answer for it
            url = urllib.parse.urlsplit(self._url)
            kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
            with closing(kind(url.hostname or "", url.port, timeout=_PATIENCE_S)) as connection:
                connection.request("GET", f"{url.path or '/'}?{url.query}".rstrip("?"))
                return connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError):
            return 0


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
