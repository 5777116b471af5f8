"""The MCP server, asked by the SDK's own client over the pipes of a real child process, without a GPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

from nightsight.agents.jobs import running_jobs
from nightsight.agents.server import _MEASURED_AGAIN, _TOOLS, MOST_BYTES, fitted, make_server
from tests.conftest import is_alive
from tests.recorded import DATA, unpacked
from tests.test_cli import FakeNsys

TOOLS = ["diagnose", "show", "compare", "profile_start", "profile_status", "prove_start", "prove_status"]
Ask = Callable[..., Awaitable[tuple[str, bool]]]


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Ask]:
    """Start the server as clients do; yield what returns the text of an answer, and whether it is an error."""
    words = ["-m", "nightsight", "mcp", "--folder", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:

        async def ask(tool: str, **arguments: Any) -> tuple[str, bool]:
            answer = await client.call_tool(tool, arguments)
            assert answer.structured_content is None, "it would repeat the text"
            (content,) = answer.content
            assert isinstance(content, TextContent)
            assert len(content.text.encode()) <= MOST_BYTES
            return content.text, bool(answer.is_error)

        yield ask


async def ended(ask: Ask, started: str) -> tuple[str, bool]:
    """Return what a job has answered at its end; a start that finds a mistake at once has answered already."""
    running = re.match(r"((profile|prove)-\d+) is running\.", started)
    if running is None:
        return started, True
    while True:
        text, is_error = await ask(f"{running[2]}_status", id=running[1], wait_s=50)
        if f"{running[1]} still runs" not in text:
            return text, is_error


def test_captures_and_reports_are_answered(tmp_path: Path) -> None:
    unpacked(DATA / "real" / "vit_attention.sqlite.xz", tmp_path)

    async def main() -> None:
        async with asking(tmp_path) as ask:
            brief, is_error = await ask("diagnose", path="vit_attention.sqlite")
            assert not is_error
            assert "verdict: GPU 97.9 % busy. Attention is not fused" in brief
            assert 'check: prove_start(program=PROGRAM, cause=["attention"])' in brief
            assert 'show(path=REPORT, name="attention")' in brief
            assert "nightsight " not in brief
            cause, _ = await ask("show", path="vit_attention.sqlite", name="attention")
            assert "torch.nn.functional.scaled_dot_product_attention(" in cause
            assert "evidence: 48 kernels per step" in cause
            rows, _ = await ask(
                "show", path="vit_attention.sqlite", name="cuda_gpu_kern_sum", top=2, columns=["instances", "name"]
            )
            assert re.search(r"instances  name\n +\d+  gemm", rows)
            steps, _ = await ask("show", path="vit_attention.sqlite", name="steps", slowest=2, where=["device=0"])
            assert steps.startswith("step_times: Steps one by one")
            for arguments, message in (
                ({"name": "atention"}, "Did you mean attention? "),
                ({"name": "--help"}, "--help is not a cause"),
                ({"window": "stp"}, "no range 'stp' in this capture"),
            ):
                text, is_error = await ask("show", path="vit_attention.sqlite", **arguments)
                assert is_error
                assert message in text
                assert "nightsight " not in text
            text, is_error = await ask("diagnose", path="-q")
            assert is_error
            assert text.startswith(f"Error: -q does not exist. Relative paths start at {tmp_path}.")
            same, _ = await ask("compare", baseline=["vit_attention.sqlite"], candidate=["vit_attention.sqlite"])
            assert "verdict: " in same
            assert (await ask("compare", baseline=[], candidate=["x"]))[1]

    anyio.run(main)


def test_programs_are_measured_in_the_background(
    tmp_path: Path, script: Any, fake_nsys: FakeNsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys()
    monkeypatch.chdir(tmp_path)
    script()
    script("import time\nopen('begun', 'w').close()\ntime.sleep(600)", "long.py")

    async def main() -> None:
        async with asking(tmp_path) as ask:
            text, is_error = await ended(ask, (await ask("profile_start", program=["nosuch.py"]))[0])
            assert (text.startswith("Error: script nosuch.py does not exist"), is_error) == (True, True)
            text, is_error = await ask("profile_start", program=[])
            assert is_error
            options = ["--collector", "nsys", "--no-time-steps", "--no-calibrate"]
            text, _ = await ended(ask, (await ask("profile_start", program=["train.py"], options=options))[0])
            assert "verdict: " in text
            folder = text.splitlines()[-1].removeprefix("folder: ")
            assert (tmp_path / folder / "report.json").is_file()
            assert (await ask("diagnose", path=folder))[0].startswith(text.splitlines()[0])
            # one that takes longer, with others that would compete for the GPU
            started, _ = await ask("profile_start", program=["long.py"], options=options)
            assert 'profile-3 is running. For its result: profile_status(id="profile-3")' in started
            text, is_error = await ask("prove_start", program=["train.py"], switch=["tf32"])
            assert (text.startswith("Error: profile-3 runs, and would be disturbed."), is_error) == (True, True)
            while not (tmp_path / "begun").exists():
                text, _ = await ask("profile_status", id="profile-3", wait_s=0)
                assert "profile-3 still runs" in text
            await ask("profile_status", id="profile-3", wait_s=0, stop=True)
            text, is_error = await ended(ask, started)
            assert is_error
            assert "interrupted after" in text
            text, is_error = await ask("prove_status", id="profile-3")
            assert "is not the id of a job of this server. None was started: prove_start." in text
            text, _ = await ended(ask, (await ask("prove_start", program=["train.py"], cause=["nonsense"]))[0])
            assert "nonsense is not one of: " in text

    anyio.run(main)


LONG = "import os, time\nopen('begun', 'w').write(f'{os.getpid()} ')\ntime.sleep(600)"


def pid_of(begun: Path) -> int:
    """Return the number of the process that LONG writes; 0 if it has not begun."""
    text = begun.read_text() if begun.exists() else ""
    return int(text) if text.endswith(" ") else 0


def test_programs_end_when_the_client_leaves(tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script(LONG, "long.py")

    async def main() -> None:
        async with asking(tmp_path) as ask:
            await ask("prove_start", program=["long.py"], switch=["tf32"])
            while not pid_of(tmp_path / "begun"):
                await ask("prove_status", id="prove-1", wait_s=0.1)

    anyio.run(main)
    while is_alive(pid_of(tmp_path / "begun")):
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, children do not hear of a killed parent")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_programs_end_when_the_server_is_killed(
    tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    script(LONG, "long.py")
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    what = {"name": "prove_start", "arguments": {"program": ["long.py"], "switch": ["tf32"]}}
    words = [sys.executable, "-m", "nightsight", "mcp"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        for request in (
            {"id": 1, "method": "initialize", "params": who},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": what},
        ):
            server.stdin.write(f"{json.dumps({'jsonrpc': '2.0', **request})}\n")
            server.stdin.flush()
            if "id" in request:
                assert json.loads(server.stdout.readline())["id"] == request["id"]
        while not pid_of(tmp_path / "begun"):
            time.sleep(0.05)
        server.send_signal(number)
        assert server.wait() == status
    while is_alive(pid_of(tmp_path / "begun")):
        time.sleep(0.05)


def test_a_long_analysis_goes_on_and_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = unpacked(DATA / "planted" / "small_grid.bad.sqlite.xz", tmp_path)
    monkeypatch.setattr("nightsight.agents.server._ANSWER_S", 0.01)

    async def main() -> None:
        with running_jobs() as jobs:
            async with Client(make_server(jobs)) as client:
                texts = [""]
                while "verdict: " not in texts[-1]:
                    (content,) = (await client.call_tool("diagnose", {"path": str(capture)})).content
                    assert isinstance(content, TextContent)
                    texts.append(content.text)
                assert texts[1] == "report-1 still runs. Ask the same again to wait for it."
                # one job makes the report, and one shows it
                assert jobs.ids("report") == ["report-1", "report-2"]
            # this process does not end with the server, as that of a command does
            for name in jobs.ids("report"):
                jobs[name].process.wait()

    anyio.run(main)


def test_tools_and_instructions_cost_few_tokens() -> None:
    async def main() -> None:
        with running_jobs() as jobs:
            async with Client(make_server(jobs)) as client:
                tools = (await client.list_tools()).tools
                assert [tool.name for tool in tools] == TOOLS
                assert all(tool.description and tool.output_schema is None for tool in tools)
                is_reading = [bool(tool.annotations and tool.annotations.read_only_hint) for tool in tools]
                assert is_reading == [True, True, True, False, False, False, False]
                listed = json.dumps([tool.model_dump(by_alias=True, exclude_none=True) for tool in tools])
                assert len(listed) + len(client.instructions or "") < 7_000
                assert "change one thing" in (client.instructions or "")

    anyio.run(main)


def test_long_answers_are_cut_and_say_how_to_get_more() -> None:
    text = "\n".join(f"row {number}" for number in range(2_000))
    cut = fitted(text, "For more: show.", 500)
    assert len(cut.encode()) <= 500
    shown, last = cut.rsplit("\n", 1)
    assert text.startswith(shown)
    assert last == f"... {2_000 - len(shown.splitlines()):,} more lines. For more: show."
    assert fitted("short", "For more: show.", 500) == "short"
    long_line = fitted("é" * 1_000, "For more: show.", 500)
    assert len(long_line.encode()) <= 500
    assert long_line.endswith("é ... For more: show.")


@pytest.mark.parametrize(
    ("command", "tool"),
    [
        ("nightsight show CANDIDATE wait-2", 'show(path=CANDIDATE, name="wait-2")'),
        ("nightsight show REPORT steps --slowest 3", 'show(path=REPORT, name="steps", slowest=3)'),
        ("All names: nightsight show REPORT", "All names: show(path=REPORT)"),
        ("nightsight report CANDIDATE --format brief", "diagnose(path=CANDIDATE)"),
        ("nightsight prove --switch jit=M.F PROGRAM", 'prove_start(program=PROGRAM, switch=["jit=M.F"])'),
        ("nightsight ab --base abc --head . --pairs 8 PROGRAM", _MEASURED_AGAIN),
        ("See `nightsight show a/latest wait`.", 'See `show(path=a/latest, name="wait")`.'),
        ("nightsight show a/latest, or another", "show(path=a/latest), or another"),
        ("nightsight show 'my run/latest' kernels", "nightsight show 'my run/latest' kernels"),
        ("report: reports/a b/2026/report.html", "folder: reports/a b/2026"),
    ],
)
def test_tools_replace_commands(command: str, tool: str) -> None:
    for pattern, replacement in _TOOLS:
        command = pattern.sub(replacement, command)
    assert command == tool


def test_without_the_package_people_hear_how_to_install_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "nightsight.agents.server")
    text = run("mcp", expect=3).stderr
    assert text.startswith("Error: the MCP server needs the package mcp\nHint: ")
    assert text.rstrip().endswith(" mcp")
