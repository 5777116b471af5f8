"""Programs that start at once: a server has imported what they need, and forks for each call.

A server is a module of tests that calls `serve`, and is named to `Forked`. The program that this writes takes the place
of the real one: it sends its words, folder, environment and standard streams, and ends as the fork does. If it is
killed, so is the fork.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

# a program may replace it
_LEAVE = os._exit
_ROOT = Path(__file__).parent.parent
_CLIENT = """#!{python} -SE
import array, json, os, signal, socket, sys
if {real!r} and (len(sys.argv) < 2 or sys.argv[1].startswith("-") and sys.argv[1] != "-m"):
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as there:
    there.connect({place!r})
    streams = socket.SCM_RIGHTS, array.array("i", [0, 1, 2])
    message = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    there.sendmsg([len(message).to_bytes(4, "big")], [(socket.SOL_SOCKET, *streams)])
    there.sendall(message)
    status = int(there.recv(4))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""

Run = Callable[[list[str]], int | None]
"""Runs a call in the fork: it gets the words, of which the first is the program's path, and returns the status."""


class Forked:
    """A server, and the program that asks it: `with Forked(folder, "nightsight", "tests.server") as program`.

    real: the Python that the program is, which itself runs what is neither a script nor a module.
    """

    def __init__(self, folder: Path, name: str, module: str, *, real: str = "") -> None:
        # a socket's path is short
        self._place = folder / "s"
        self._module = module
        self.program = folder / name
        self.program.write_text(_CLIENT.format(python=sys.executable, place=str(self._place), real=real))
        self.program.chmod(0o755)

    def __enter__(self) -> Path:
        command = [sys.executable, "-m", self._module, str(self._place)]
        self._server = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"
        return self.program

    def __exit__(self, *_: object) -> None:
        self._server.communicate()


def serve(run: Run) -> None:
    """Answer calls until standard input ends: whoever started this may be killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while server in select.select([server, sys.stdin], [], [])[0]:
            there, _ = server.accept()
            with there:
                if not os.fork():
                    server.close()
                    _answer(there, run)


def _answer(there: socket.socket, run: Run) -> NoReturn:
    """Run a call in a fork, and tell how it ended; end it if nobody waits for it any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(there, 4, 3)
    message = b""
    while len(message) < int.from_bytes(length, "big"):
        message += there.recv(1 << 20)
    if not (child := os.fork()):
        there.close()
        words, folder, environment = json.loads(message)
        _begin(streams, words, folder, environment, run)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    if ended not in select.select([there.fileno(), ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        there.sendall(b"%d" % status)
    finally:
        os._exit(0)


def _begin(streams: Sequence[int], words: list[str], folder: str, environment: dict[str, str], run: Run) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = 1
    try:
        status = run(words) or 0
    except SystemExit as ending:
        status = _status(ending.code)
    except BaseException:  # noqa: BLE001 (as a program ends with any)
        sys.excepthook(*sys.exc_info())
    # as Python ends, but nothing is taken down: that takes as long as many a call
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    _LEAVE(status)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1
