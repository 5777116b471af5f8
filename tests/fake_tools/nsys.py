"""An nsys for machines without one: it really runs the program, and answers with files that the real one recorded.

It is copied beside a `fake.json` that steers it, since a profiler is started with a clean environment.
What it prints, the sessions its children get and the statuses it ends with are those of nsys 2025.3.1.
"""

import contextlib
import json
import lzma
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SETTINGS: dict[str, Any] = json.loads(Path(__file__).with_name("fake.json").read_text())
BEHAVIOR: str = SETTINGS["behavior"]
USAGE = "usage: nsys profile [<args>] [application] [<application args>]"
HELP = f"""
{USAGE}

	-c, --capture-range=
	--capture-range-end=
	--cpuctxsw=
	--cuda-graph-trace=<granularity>[:<launch origin>]
	--cuda-memory-usage=
	--cuda-um-cpu-page-faults=
	--cuda-um-gpu-page-faults=
	--cudabacktrace=
	-e, --env-var=
	-f, --force-overwrite=
	--gpu-metrics-devices=
	-n, --inherit-environment=
	-o, --output=
	--python-backtrace=
	--python-sampling=
	--python-sampling-frequency=
	--pytorch=
	-s, --sample=
	--session-new=
	-Y, --start-later=
	-t, --trace=
"""
OLD_HELP = re.sub(
    r"\t.*(env-var|inherit-environment|python-sampling|python-sampling-frequency|pytorch)=\n", "", HELP
).replace("-devices=", "-device=")
EXPORT_HELP = """
usage: nsys export [<args>] [nsys-rep file]

	-f, --force-overwrite=
	--include-blobs=
	--include-json=
	-o, --output=
	-t, --type=
"""
OLD_EXPORT_HELP = re.sub(r"\t--include.*\n", "", EXPORT_HELP)
REFUSALS = {
    "no right to counters": "argument: all.\nInsufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM.",
    "counters in use": (
        "usage.\nNone of the installed GPUs are supported:\n\tNVIDIA L40S PCI[0000:01:00.0] - Already under profiling\n"
    ),
    "old GPU": (
        "arguments.\nNone of the installed GPUs are supported:\n"
        "\tTesla V100-PCIE-32GB PCI[0000:17:00.0] - Unsupported architecture\n"
    ),
}
UNSAMPLED = """WARNING: CPU IP/backtrace sampling not supported, disabling.
Try the 'nsys status --environment' command to learn more.

CUDA backtraces will not be collected because CPU sampling is disabled.
"""
MAGIC = b"NVIDIA Tegra Profiler Report"


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:
        say("NVIDIA Nsight Systems version 2025.3.1.0")
        return 0
    if arguments == ["profile", "--help"]:
        say(known_options())
        return BEHAVIOR == "no help"
    if arguments == ["export", "--help"]:
        say(EXPORT_HELP if BEHAVIOR != "old" else OLD_EXPORT_HELP)
        return BEHAVIOR == "no help"
    commands = {"profile": profile, "export": export, "start": start, "stop": stop}
    return commands[arguments[0]](list(arguments[1:]))


def known_options() -> str:
    return OLD_HELP if BEHAVIOR == "old" else HELP


def profile(arguments: list[str]) -> int:
    options: dict[str, str] = {}
    while arguments[0].startswith("-"):
        name, _, value = arguments.pop(0).partition("=")
        if name not in re.findall(r"(?<![\w-])--?[a-z-]+", known_options()):
            say(f"unrecognized option '{name}'\n\n{USAGE}")
            say("Try 'nsys profile --help' for more information.")
            return 1
        options[name] = value if name.startswith("--") else arguments.pop(0)
    if BEHAVIOR in REFUSALS and "--gpu-metrics-devices" in options:
        say(f"Illegal --gpu-metrics-devices {REFUSALS[BEHAVIOR]}\n\n{USAGE}")
        return 1
    if BEHAVIOR == "no sampling" and options["--sample"] != "none":
        say(UNSAMPLED)
    report = Path(options["-o"].replace("%%", "%") + ".nsys-rep")
    with tempfile.TemporaryDirectory() as folder:
        started = Path(folder) / "started"
        is_started_later = options.get("--start-later") == "true"

        def begin(number: int = 0, frame: FrameType | None = None) -> None:
            started.touch()

        def finish(number: int = 0, frame: FrameType | None = None) -> None:
            is_all_captured = options.get("--capture-range", "none") == "none" and not is_started_later
            write(report, is_captured=(is_all_captured or started.exists()) and BEHAVIOR != "no report")

        signal.signal(signal.SIGUSR1, finish)
        signal.signal(signal.SIGUSR2, begin)
        session(options["--session-new"]).write_text(str(os.getpid()))
        status = run(arguments, application_environment(options, started))
        if not report.exists():
            finish()
    return status


def session(name: str) -> Path:
    return Path(__file__).with_name(f"session-{name}")


def start(arguments: list[str]) -> int:
    """Begins to record what `profile --start-later=true` runs."""
    waiting = session(arguments[0].removeprefix("--session="))
    if BEHAVIOR == "no start" or not waiting.exists():
        say("There are no active sessions.")
        return 1
    os.kill(int(waiting.read_text()), signal.SIGUSR2)
    return 0


def stop(arguments: list[str]) -> int:
    """Ends the recording, not the program; the real one returns when the report is written."""
    recording = session(arguments[0].removeprefix("--session="))
    if BEHAVIOR in {"hang", "slow", "no stop"} or not recording.exists():
        say("There are no active sessions.")
        return 1
    os.kill(int(recording.read_text()), signal.SIGUSR1)
    time.sleep(0.5)
    return 0


def application_environment(options: dict[str, str], started: Path) -> dict[str, str]:
    """A program calls `cudaProfilerStart` here by making the file that FAKE_PROFILER_START names."""
    given = dict(pair.split("=", 1) for pair in options.get("--env-var", "").split(",") if pair)
    inherited = {} if options.get("--inherit-environment") == "false" else dict(os.environ)
    return {**inherited, **given, "FAKE_PROFILER_START": str(started)}


def run(command: list[str], environment: dict[str, str]) -> int:
    stopped_by: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if BEHAVIOR != "hang":
            stopped_by.append(number)
            os.killpg(application.pid, number)

    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, pass_on)
    if BEHAVIOR == "leftover":
        agent = subprocess.Popen(["sleep", "300"], start_new_session=True)
        Path(__file__).with_name("agent").write_text(str(agent.pid))
    application = subprocess.Popen(command, env=environment, start_new_session=True)
    code = application.wait()
    if stopped_by:
        return 128 + stopped_by[0]
    return 128 - code if code < 0 else code


def write(report: Path, *, is_captured: bool) -> None:
    if not is_captured:
        say("Processing events...\nGenerated:\n\tNo reports were generated")
        return
    say("Generating '/tmp/nsys-report-ca31.qdstrm'")
    time.sleep(2 if BEHAVIOR == "slow" else 0)
    if BEHAVIOR == "importer":
        report = report.with_suffix(".qdstrm")
        say("Importer error status: An unknown error occurred.")
        say("Unable to retrieve the importer version: skipping importation of the QDSTRM file.")
    recorded = (Path(SETTINGS["data"]) / "mlp" / "mlp.nsys-rep").read_bytes()
    # The real one records its own environment, whatever --inherit-environment says.
    report.write_bytes((b"cut off" if BEHAVIOR == "damaged" else recorded) + json.dumps(dict(os.environ)).encode())
    say(f"[1/1] [0%                          ] {report.name}Processing events...")
    say(f"\r[1/1] [========================100%] {report.name}\nGenerated:\n\t{report}")


def export(arguments: list[str]) -> int:
    try:
        Path.cwd()
    except FileNotFoundError:
        say("Exportation error: Throw location unknown\nboost::filesystem::current_path: No such file or directory")
        return 1
    given = [name.partition("=")[0] for name in arguments if name.startswith("--")]
    known = OLD_EXPORT_HELP if BEHAVIOR in {"old", "no help"} else EXPORT_HELP
    if unknown := [name for name in given if name not in re.findall(r"--[a-z-]+", known)]:
        say(f"unrecognized option '{unknown[0]}'")
        return 1
    Path(__file__).with_name("exported").write_text(" ".join(given))
    source, target = Path(arguments[-1]), Path(arguments[arguments.index("-o") + 1])
    if BEHAVIOR == "silent export":
        return 0
    if not source.read_bytes().startswith(MAGIC):
        target.write_bytes(b"half")
        say(f"Failed to load report file {source}: not a report")
        return 1
    target.write_bytes(lzma.decompress((Path(SETTINGS["data"]) / SETTINGS["export"]).read_bytes()))
    stretch = Path(__file__).with_name("stretch")
    if stretch.exists():
        stretched(target, float(stretch.read_text()))
    say("Processing 825 events: [1%   ]Processing 825 events: [==100%]")
    return 0


def stretched(database: Path, factor: float) -> None:
    """Make everything take longer: a program says how much by the file `stretch` beside the fake."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} & {"start", "end"}
            for column in columns:
                longer = f"CAST([{column}] * {factor} AS INTEGER) WHERE typeof([{column}]) = 'integer'"
                connection.execute(f"UPDATE {table} SET [{column}] = {longer}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
