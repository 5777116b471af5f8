"""The output of a command: read as it comes, kept in a log of limited size, and passed to listeners."""

import codecs
import os
import queue
import select
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from nightsight.collect.tools import writable_folder, write_error

_MOST_BYTES: Final = 32_000_000
_FIRST_BYTES: Final = 16_000_000
_LAST_BYTES: Final = 8_000_000
_CHUNK_BYTES: Final = 1 << 20
_POLL_MS: Final = 100
_DRAIN_S: Final = 1.0


class LoggedOutput:
    """A pipe for a command's output, and a log that one of our threads fills from it; CaptureError if that fails.

    The command waits only for that thread. Nothing waits for the end of the pipe, since a stray process could hold it
    open. Beyond _MOST_BYTES the log keeps the first and the last part, with a line between them that says how much was
    omitted.
    """

    def __init__(self, log: Path, *, has_listeners: bool) -> None:
        self._folder, self._has_listeners = log.parent, has_listeners
        writable_folder(log.parent)
        try:
            # keep this descriptor open to the end: the program may delete the folder
            self._log: BinaryIO = log.open("w+b")
        except OSError as error:
            raise write_error(log.parent, error) from error
        self._printed = 0
        self._failure: OSError | None = None
        self._new: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drained_by = float("inf")
        self._reader, self.writer = os.pipe()
        self._thread = threading.Thread(target=self._take_all, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.finish()
        with suppress(OSError):
            self._log.close()
        if self._failure and not error:
            raise write_error(self._folder, self._failure)

    def new_text(self) -> str:
        """Return the output since the last call."""
        chunks = []
        with suppress(queue.Empty):
            while True:
                chunks.append(self._new.get_nowait())
        return self._decoder.decode(b"".join(chunks))

    def finish(self) -> None:
        """Close our end of the pipe and read the rest of its content, for at most _DRAIN_S."""
        self._drained_by = time.monotonic() + _DRAIN_S
        if self.writer >= 0:
            writer, self.writer = self.writer, -1
            os.close(writer)
        self._thread.join()

    def _take_all(self) -> None:
        pipe = select.poll()
        pipe.register(self._reader, select.POLLIN)
        chunk = b"begun"
        while chunk and time.monotonic() < self._drained_by:
            if pipe.poll(_POLL_MS):
                chunk = os.read(self._reader, _CHUNK_BYTES)
                self._take(chunk)
        os.close(self._reader)

    def _take(self, chunk: bytes) -> None:
        if self._has_listeners:
            self._new.put(chunk)
        self._printed += len(chunk)
        if self._failure:
            return
        try:
            self._log.write(chunk)
            self._log.flush()
            if self._log.tell() > _MOST_BYTES:
                self._shorten()
        except OSError as error:
            self._failure = error

    def _shorten(self) -> None:
        """Cut out everything between the first part and the last lines."""
        self._log.seek(-_LAST_BYTES, os.SEEK_END)
        last = self._log.read(_LAST_BYTES)
        last = last[last.find(b"\n") + 1 :]
        omitted = self._printed - _FIRST_BYTES - len(last)
        self._log.seek(_FIRST_BYTES)
        self._log.truncate()
        self._log.write(f"\n[nightsight omitted {omitted:,} bytes here]\n".encode() + last)
        self._log.flush()
