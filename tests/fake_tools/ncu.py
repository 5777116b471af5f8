"""An ncu for machines without one: it really runs the program, and leaves a report that the real one wrote.

What it prints and the statuses it ends with are those of ncu 2025.3.1. `fake.json` beside it steers it.
"""

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SETTINGS: dict[str, Any] = json.loads(Path(__file__).with_name("ncu.json").read_text())
BEHAVIOR: str = SETTINGS["behavior"]
FOREVER_S = 300  # longer than any test lets it run
WITH_VALUE = (
    *("--set", "--section", "--metrics", "--clock-control", "--cache-control", "--replay-mode", "--graph-profiling"),
    *("--filter-mode", "--launch-count", "--launch-skip", "--kernel-name-base", "--kernel-name", "-o"),
    *("--nvtx-push-pop-scope", "--nvtx-include", "--profile-from-start", "--target-processes", "--import-source"),
)
KERNELS = ("softmax_kernel", "cunn_SoftMaxForwardReg", "nvjet_sm90_tst_256x128_64x4_1...")
NOT_BESIDE_RANGES = ("--kernel-name", "--filter-mode", "--profile-from-start", "--import-source")
REFUSALS = {
    "unknown section": "==ERROR== Option '--section NoSuch' did not match any section.\n"
    "==ERROR== Use --list-sections to see the list of available sections.",
    "unheard of": "==ERROR== Something went wrong in /home/alice: password=hunter2",
}
# what ends a replay at its first kernel; the program goes on, and afterwards no kernel was profiled
DENIALS = {
    "no permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0. For instructions see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    "busy": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
    "DCGM) is concurrently collecting profiling data.",
    "unknown set": "==WARNING== No metrics to collect found in sections.",
    "unknown metric": "==ERROR== Failed to find metric regex:^no_such(\\.(sum|min|max|avg))?$",
}
DONE = "0%....50%....100% - 38 passes"


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:
        say("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36562893) (public-release)")
        return 0
    if arguments == ["--help"]:
        say("  --nvtx-push-pop-scope arg (=thread)\n  --import-source arg (=no)" if BEHAVIOR != "old" else "  --nvtx")
        return 0
    options, command = parsed(list(arguments))
    Path(__file__).with_name("ncu.seen.json").write_text(json.dumps({"options": options, "command": command}))
    refused = [name for name in NOT_BESIDE_RANGES if "range" in options["--replay-mode"] and name in options]
    if refused:
        say(f"==ERROR== Option {refused[0].removeprefix('--')} is not supported during range replay.")
        return 1
    if BEHAVIOR in REFUSALS:
        say(REFUSALS[BEHAVIOR])
        return 1
    return profile(options, command)


def parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    while arguments[0].startswith("-"):
        name = arguments.pop(0)
        options[name] = arguments.pop(0) if name in WITH_VALUE else ""
    return options, arguments


def profile(options: dict[str, str], command: list[str]) -> int:
    target = Path(re.sub("%(.)", lambda macro: "%" if macro[1] == "%" else "0", options["-o"]) + ".ncu-rep")
    say("==WARNING== Note: Running with unmodified GPU clocks.")
    with subprocess.Popen(command) as program:

        def end(_: int, __: FrameType | None) -> None:
            program.terminate()
            if BEHAVIOR not in {"nothing yet", *DENIALS}:
                save(target)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        say(f"==PROF== Connected to process {program.pid} (/usr/bin/python3.12)")
        if BEHAVIOR in DENIALS:
            say(DENIALS[BEHAVIOR])
            time.sleep(FOREVER_S)
        status = program.wait() or replayed()
    say(f"==PROF== Disconnected from process {program.pid}")
    return finished(target, options, 3 if BEHAVIOR.startswith("program fails") else status)


def no_match(options: dict[str, str]) -> str:
    if "range" in options["--replay-mode"]:
        return "==WARNING== No ranges were profiled."
    return "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. elementwise_kernel\n2. gelu_kernel"


def finished(target: Path, options: dict[str, str], status: int) -> int:
    if status:
        say(f"==ERROR== The application returned an error code ({status}).")
    if BEHAVIOR in {"no kernels", "program fails at once"}:
        say(no_match(options))
        return status
    save(target)
    return status


def replayed() -> int:
    if BEHAVIOR == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if BEHAVIOR == "nothing yet":
        time.sleep(FOREVER_S)
    elif BEHAVIOR not in {"no kernels", "program fails at once"}:
        {"application": rerun, "mixed": mix}.get(BEHAVIOR, replay_each)()
    return 0


def replay_each() -> None:
    for number, name in enumerate(KERNELS):
        say(f'==PROF== Profiling "{name}" - {number} (1/1): {DONE}')
        time.sleep({"slow": FOREVER_S, "endless": 0.5}.get(BEHAVIOR, 0))
    time.sleep(FOREVER_S if BEHAVIOR == "endless" else 0)


def rerun() -> None:
    for run in (1, 2):
        say(f'==PROF== Profiling "{KERNELS[0]}" - 0: Application replay pass {run}')
    say("==PROF== Creating report from application replay data: 0%....50%....100%")


def mix() -> None:
    """Print what the program printed, a progress bar of its own as well, within the lines of ncu."""
    say("copied 100% - 38 passes\n1. alice@example.com\n" + "loss=0.1 " * 10_000)
    say('==PROF== Profiling "a" - 0: 0%....epoch 1\n50%....100% - 38 passes')
    sys.stdout.write("loss=0.2 ")
    say('==PROF== Profiling "b" - 1: 0%....50%....100% - 1 pass')


def save(target: Path) -> None:
    content = lzma.decompress(Path(SETTINGS["report"]).read_bytes())
    target.write_bytes(b"garbage" if BEHAVIOR == "garbage" else content)
    say(f"==PROF== Report: {target}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
