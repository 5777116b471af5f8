"""nightsight as a program that starts at once: `python -P tests/forked.py SOCKET` has imported it and forks for calls.

A `nightsight` on PATH that `Forked` writes sends its words, folder, environment and standard streams. If the variable
RECORDED names a folder, `profile` and `ab` only check their words and leave what that folder has: runs in `reports`, a
comparison in `out`, whose status is 4. What they were asked is appended to `asked` in it.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

# commands import these when they are called, which takes longer than most of the calls
from nightsight.cli import main
from nightsight.workflows import compare, history, profile, report, stats, trials  # noqa: F401

_CLIENT = """#!{python} -SE
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as there:
    there.connect({place!r})
    streams = socket.SCM_RIGHTS, array.array("i", [0, 1, 2])
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    there.sendmsg([len(said).to_bytes(4, "big")], [(socket.SOL_SOCKET, *streams)])
    there.sendall(said)
    sys.exit(int(there.recv(3)))
"""


class Forked:
    """A server, and the program that asks it: `with Forked(folder) as program`."""

    def __init__(self, folder: Path) -> None:
        # a socket's path is short
        self._place = folder / "s"
        self.program = folder / "nightsight"
        self.program.write_text(_CLIENT.format(python=sys.executable, place=str(self._place)))
        self.program.chmod(0o755)

    def __enter__(self) -> Path:
        command = [sys.executable, "-P", __file__, str(self._place)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"
        return self.program

    def __exit__(self, *_: object) -> None:
        self._server.communicate()


def serve(place: str) -> None:
    """Answer calls, one after another, until standard input ends: whoever started this may be killed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while server in select.select([server, sys.stdin], [], [])[0]:
            there, _ = server.accept()
            with there:
                length, streams, _, _ = socket.recv_fds(there, 4, 3)
                said = b""
                while len(said) < int.from_bytes(length, "big"):
                    said += there.recv(1 << 20)
                if not (child := os.fork()):
                    server.close()
                    there.close()
                    _run(streams, *json.loads(said))
                for stream in streams:
                    os.close(stream)
                there.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(streams: Sequence[int], words: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    recorded = environment.get("RECORDED", "")
    status = 0
    if recorded and words[0] in ("profile", "ab"):
        status = _replay(Path(recorded), words)
    else:
        try:
            main(words, prog_name="nightsight")
        except SystemExit as ending:
            status = int(ending.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _replay(recorded: Path, words: list[str]) -> int:
    command = main.get_command(click.Context(main), words[0])
    assert command
    asked = command.make_context(words[0], words[1:]).params
    with (recorded / "asked").open("a") as file:
        file.write(f"{json.dumps(words)}\n")
    if words[0] == "ab":
        shutil.copytree(recorded / "out", asked["output"], dirs_exist_ok=True)
        return 4
    shutil.copytree(recorded / "reports", asked["reports"], symlinks=True, dirs_exist_ok=True)
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
