"""The MCP server: each tool runs a command of nightsight as a child process, and answers what that prints.

Answers are texts of at most MOST_BYTES, with tools where the command line would name commands. Nothing is sent
anywhere: the server reads and writes standard input and output, and the files of this machine.
"""

import os
import re
import signal
from bisect import bisect
from collections.abc import Sequence
from hashlib import sha256
from inspect import getdoc
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from nightsight.agents.jobs import Job, Jobs, running_jobs
from nightsight.collect.workloads import target_of
from nightsight.texts import middle_cut
from nightsight.version import VERSION

MOST_BYTES: Final = 4_500
"""The most bytes of an answer: below 2,000 tokens even for tables, which have 2.3 bytes per token."""
# clients give up after a minute
_ANSWER_S: Final = 45.0
# mistakes on a command line are found sooner
_MISTAKE_S: Final = 2.0
_MOST_WAIT_S: Final = 50.0
_INSTRUCTIONS: Final = (
    "nightsight finds out why a GPU program is slow, predicts what each fix gains, and measures it. Work like this: "
    "profile_start the program, or diagnose a capture, report.json or run folder that exists; show the first cause; "
    "change one thing; measure it: prove_start if the answer says so, otherwise profile the edited program and compare "
    "it with the earlier run. Stop when the report names no cause, or when the next gain is too small for you. "
    "A predicted gain is a prediction until it is measured."
)
_MEASURED_AGAIN: Final = (
    'profile_start(program=PROGRAM, options=["--repeat", "3"]) before and after the edit, then compare'
)
Words = Annotated[
    Sequence[str], Field(description='Workload, script or command with its arguments: ["train.py", "--steps", "50"].')
]
Path_ = Annotated[str, Field(description="A run folder (reports/NAME/latest), a report.json, or a capture.")]
Runs = Annotated[Sequence[str], Field(description="Run folders, report.json files or captures.")]
Window = Annotated[str, Field(description="Part to report on: auto, whole, RANGE, RANGE/FIRST:LAST, or 1.2s/3s.")]
Options = Annotated[Sequence[str], Field(description='More options of the command, as in ["--repeat", "3"].')]
Wait = Annotated[float, Field(description="Seconds to wait for the end.", ge=0, le=_MOST_WAIT_S)]

# a word of a command in a sentence, without what encloses or ends it; quoted words do not match
_WORD: Final = r"([^\s`'\",;)]*[^\s`'\",;.:)])"
_TOOLS: Final = tuple(
    (re.compile(command.replace("WORD", _WORD), re.MULTILINE), tool)
    for command, tool in (
        (r"nightsight show WORD steps --slowest (\d+)", r'show(path=\1, name="steps", slowest=\2)'),
        (r"nightsight show WORD WORD", r'show(path=\1, name="\2")'),
        (r"nightsight show WORD", r"show(path=\1)"),
        (r"nightsight report WORD --format brief", r"diagnose(path=\1)"),
        (r"nightsight prove --(cause|switch) (\S+) PROGRAM", r'prove_start(program=PROGRAM, \1=["\2"])'),
        (r"nightsight ab --base \S+ --head \S+ (?:--pairs \d+ )?PROGRAM", _MEASURED_AGAIN),
        (r"nightsight profile --repeat (\d+) PROGRAM", r'profile_start(program=PROGRAM, options=["--repeat", "\1"])'),
        (r"^(?:report|proof): (.*)/(?:report\.html|proof\.json)$", r"folder: \1"),
    )
)
"""Commands in answers, and the tools that do the same."""


class Tools:
    """The tools, by the names of their methods; their descriptions are what a client reads."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._asked: dict[tuple[str, ...], Job] = {}

    async def diagnose(self, path: Path_, window: Window = "auto") -> CallToolResult:
        """Why a program is slow: the verdict and up to three causes, with gain, place, fix and how to check it."""
        words = ("report", "--format", "brief", "--local-paths", "-q", "-o", "-")
        return await self._about(path, window, words, (), "show has each cause and table in full.")

    async def show(
        self,
        path: Path_,
        name: Annotated[str, Field(description="A cause (launch_bound), table, kernel, range, or steps.")] = "",
        top: Annotated[int, Field(description="At most N rows.", ge=1)] = 10,
        columns: Annotated[Sequence[str], Field(description="Only these columns.")] = (),
        where: Annotated[Sequence[str], Field(description="Conditions: total_ns>1e6, name~gemm.")] = (),
        slowest: Annotated[int, Field(description="With steps: the slowest ones.", ge=0)] = 0,
        window: Window = "auto",
    ) -> CallToolResult:
        """One thing of a report: a cause with its evidence, a table, a kernel, a range, the slowest steps.

        Without a name: the brief, and the names of all causes and tables.
        """
        # the first word that may begin with a dash is the name
        chosen = [
            *(f"--columns={each}" for each in columns),
            *(f"--where={each}" for each in where),
            *([f"--slowest={slowest}"] if slowest else []),
        ]
        words = ("show", "--local-paths", f"--top={top}", *chosen, "--")
        more = "For less: top, columns and where; for the rest: one name."
        return await self._about(path, window, words, (name,) if name else (), more)

    async def compare(self, baseline: Runs, candidate: Runs) -> CallToolResult:
        """Whether a program became faster or slower, whether that is believed, and what changed.

        Give at least three runs of each side: fewer cannot exceed the noise.
        """
        sides = ("--baseline", *map(self._file, baseline), "--candidate", *map(self._file, candidate))
        if not baseline or not candidate:
            return _answer("Error: each side needs a run.", is_error=True)
        return await self._answer(("compare", "--format", "brief", *sides), "report.json of each run has the rest.")

    async def profile_start(self, program: Words, options: Options = ()) -> CallToolResult:
        """Run a program under a profiler, in the background. Ask profile_status for the result.

        Options are those of `nightsight profile`, such as --names, --window, --collector, --python, --repeat.
        """
        return await self._start(("profile", "--format", "brief", "--local-paths"), program, options)

    async def profile_status(self, id: str, wait_s: Wait = 20, stop: bool = False) -> CallToolResult:  # noqa: A002
        """The diagnosis of a program that profile_start runs, or what it is doing. stop=true ends it early."""
        return await self._status("profile", id, wait_s, stop=stop)

    async def prove_start(
        self,
        program: Words,
        cause: Annotated[Sequence[str], Field(description="Only fixes of these causes.")] = (),
        switch: Annotated[Sequence[str], Field(description="Measure these, whatever the causes are.")] = (),
        options: Options = (),
    ) -> CallToolResult:
        """Measure fixes without editing: run a program with and without them, in the background, and check results.

        Options are those of `nightsight prove`, such as --report, --check, --budget, --rounds, --steps.
        """
        chosen = [*(f"--cause={each}" for each in cause), *(f"--switch={each}" for each in switch)]
        return await self._start(("prove", "--format", "brief", *chosen), program, options)

    async def prove_status(self, id: str, wait_s: Wait = 20, stop: bool = False) -> CallToolResult:  # noqa: A002
        """What prove_start has measured, or what it is doing. stop=true ends it early."""
        return await self._status("prove", id, wait_s, stop=stop)

    # -- commands -----------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> str:
        """Return the whole path of a file, which no command takes for an option."""
        return str(Path(path).expanduser().absolute())

    async def _about(
        self, path: str, window: str, words: tuple[str, ...], name: tuple[str, ...], more: str
    ) -> CallToolResult:
        """Answer what a command prints about a report, which is made first if the path is a capture, and once."""
        file = Path(self._file(path))
        if not file.exists():
            near = f"Relative paths start at {Path.cwd()}."
            return _answer(f"Error: {path} does not exist. {near} To make a report: profile_start.", is_error=True)
        is_run = file.is_dir() and (file / "report.json").is_file() and window == "auto"
        if not is_run:
            status = file.stat()
            key = f"{file.resolve()} {status.st_mtime_ns} {status.st_size} {window}"
            kept = self._jobs.state / f"{sha256(key.encode()).hexdigest()[:16]}.json"
            if not kept.exists():
                make = ("report", "-q", "--format=json", f"--window={window}", "-o", str(kept), str(file))
                made = await self._answer(make, "")
                if not kept.exists():
                    return made
            file = kept
        return await self._answer((*words, str(file), *name), more)

    async def _answer(self, words: tuple[str, ...], more: str) -> CallToolResult:
        """Answer what a command prints; one that takes long goes on, and the same question asks for it again."""
        job = self._asked.pop(words, None) or self._jobs.start(words)
        if await job.ends_within(_ANSWER_S):
            return _result(job, more)
        self._asked[words] = job
        return _answer(f"{_doing(job)}. Ask the same again to wait for it.")

    async def _start(self, words: tuple[str, ...], program: Sequence[str], options: Sequence[str]) -> CallToolResult:
        if not program:
            return _answer('Error: name the program, as in ["train.py", "--steps", "50"].', is_error=True)
        if running := self._jobs.measuring:
            command = running.id.partition("-")[0]
            wait = f'Wait for it, or end it: {command}_status(id="{running.id}", stop=true).'
            return _answer(f"Error: {running.id} runs, and would be disturbed. {wait}", is_error=True)
        command = words[0]
        target, arguments = target_of(program)
        named = [target] if target else []
        job = self._jobs.start((*words, *options, *named, "--", *arguments))
        if await job.ends_within(_MISTAKE_S):
            return _result(job, "")
        return _answer(
            f'{job.id} is running. For its result: {command}_status(id="{job.id}"). It ends with this server.'
        )

    async def _status(self, command: str, name: str, wait_s: float, *, stop: bool) -> CallToolResult:
        known = self._jobs.ids(command)
        if name not in known:
            listed = f"There are: {', '.join(known)}." if known else f"None was started: {command}_start."
            kept = "Finished runs of earlier servers are kept: diagnose reports/NAME/latest."
            return _answer(f"Error: {name} is not the id of a job of this server. {listed} {kept}", is_error=True)
        job = self._jobs[name]
        if stop:
            job.stop()
        if await job.ends_within(wait_s):
            return _result(job, "The folder below has the rest.")
        return _answer(f'{_doing(job)}. Ask again: {command}_status(id="{name}", wait_s=50), or stop=true.')


def _doing(job: Job) -> str:
    return f"{job.id} still runs{f': {job.doing}' if job.doing else ''}"


def _result(job: Job, more: str) -> CallToolResult:
    """Answer what a job that has ended has printed; its messages come last, and are never cut."""
    messages = "\n".join(job.messages)
    return _answer(job.output, messages, more=more, is_error=bool(job.status))


def _answer(text: str, messages: str = "", *, more: str = "", is_error: bool = False) -> CallToolResult:
    text, messages = text.rstrip("\n"), middle_cut(messages, MOST_BYTES // 4)
    for command, tool in _TOOLS:
        text, messages = command.sub(tool, text), command.sub(tool, messages)
    whole = "\n\n".join(filter(None, (fitted(text, more, MOST_BYTES - len(messages.encode()) - 2), messages)))
    return CallToolResult(content=[TextContent(type="text", text=whole or "Nothing was printed.")], is_error=is_error)


def fitted(text: str, more: str, most_bytes: int) -> str:
    """Return a text of at most `most_bytes` bytes; a last line says how many lines were cut, and how to get more."""
    if len(text.encode()) <= most_bytes:
        return text
    lines = text.split("\n")
    ends = list(accumulate(len(line.encode()) + 1 for line in lines))
    for count in range(bisect(ends, most_bytes), 0, -1):
        last = f"... {len(lines) - count:,} more lines. {more}".rstrip()
        if ends[count - 1] + len(last.encode()) <= most_bytes:
            return "\n".join([*lines[:count], last])
    return f"{text.encode()[: most_bytes - len(more.encode()) - 5].decode(errors='ignore')} ... {more}".rstrip()


def make_server(jobs: Jobs) -> MCPServer[None]:
    """Return the server with its tools."""
    server: MCPServer[None] = MCPServer("nightsight", version=VERSION, instructions=_INSTRUCTIONS, log_level="WARNING")
    tools = Tools(jobs)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    runs = ToolAnnotations(read_only_hint=False, open_world_hint=False)
    for reading in (tools.diagnose, tools.show, tools.compare):
        server.add_tool(reading, description=getdoc(reading), annotations=reads, structured_output=False)
    for running in (tools.profile_start, tools.profile_status, tools.prove_start, tools.prove_status):
        server.add_tool(running, description=getdoc(running), annotations=runs, structured_output=False)
    return server


def serve() -> None:
    """Answer a client on standard input and output until it goes."""
    with running_jobs() as jobs:

        def end(number: int, _: object) -> None:
            """End at once: a thread waits for standard input, and nothing else would end it."""
            jobs.stop()
            os._exit(128 + number)

        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, end)
        make_server(jobs).run("stdio")
