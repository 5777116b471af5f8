"""An ncu for machines without one: it really runs the program, and leaves a report that the real one wrote.

What it prints and the statuses it ends with are those of ncu 2025.3.1. `fake.json` beside it steers it.
"""

import json
import lzma
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SETTINGS: dict[str, Any] = json.loads(Path(__file__).with_name("ncu.json").read_text())
BEHAVIOUR: str = SETTINGS["behaviour"]
WITH_VALUE = (
    *("--set", "--section", "--metrics", "--clock-control", "--cache-control", "--replay-mode", "--graph-profiling"),
    *("--filter-mode", "--launch-count", "--launch-skip", "--kernel-name-base", "--kernel-name", "-o"),
    *("--nvtx-push-pop-scope", "--nvtx-include", "--profile-from-start", "--target-processes"),
)
KERNELS = ("softmax_kernel", "cunn_SoftMaxForwardReg", "nvjet_sm90_tst_256x128_64x4_1...")
REFUSALS = {
    "no permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0. For instructions see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    "busy": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
    "DCGM) is concurrently collecting profiling data.",
    "unknown section": "==ERROR== Option '--section NoSuch' did not match any section.\n"
    "==ERROR== Use --list-sections to see the list of available sections.",
}


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:
        say("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36562893) (public-release)")
        return 0
    if arguments == ["--help"]:
        say("  --nvtx-push-pop-scope arg (=thread)" if BEHAVIOUR != "old" else "  --nvtx")
        return 0
    options, command = parsed(list(arguments))
    Path(__file__).with_name("ncu.seen.json").write_text(json.dumps({"options": options, "command": command}))
    if BEHAVIOUR in REFUSALS:
        say(REFUSALS[BEHAVIOUR])
        return 1
    return profile(options, command)


def parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    while arguments[0].startswith("-"):
        name = arguments.pop(0)
        options[name] = arguments.pop(0) if name in WITH_VALUE else ""
    return options, arguments


def profile(options: dict[str, str], command: list[str]) -> int:
    target = Path(options["-o"] + ".ncu-rep")
    say("==WARNING== Note: Running with unmodified GPU clocks.")
    with subprocess.Popen(command) as program:

        def end(_: int, __: FrameType | None) -> None:
            program.terminate()
            save(target)
            sys.exit(143)

        signal.signal(signal.SIGTERM, end)
        say(f"==PROF== Connected to process {program.pid} (/usr/bin/python3.12)")
        status = program.wait() or replayed()
    say(f"==PROF== Disconnected from process {program.pid}")
    if BEHAVIOUR == "no kernels":
        say("==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. gelu_kernel\n2. elementwise_kernel")
        return 0
    if BEHAVIOUR == "program fails":
        status = 3
    if status:
        say(f"==ERROR== The application returned an error code ({status}).")
    save(target)
    return status


def replayed() -> int:
    if BEHAVIOUR == "no kernels":
        return 0
    for number, name in enumerate(KERNELS):
        say(f'==PROF== Profiling "{name}" - {number} (1/1): 0%....50%....100% - 38 passes')
        if BEHAVIOUR == "slow":
            time.sleep(30)
        if BEHAVIOUR == "endless":
            time.sleep(0.5)
    if BEHAVIOUR == "endless":
        time.sleep(30)
    return 0


def save(target: Path) -> None:
    content = lzma.decompress(Path(SETTINGS["report"]).read_bytes())
    target.write_bytes(b"garbage" if BEHAVIOUR == "garbage" else content)
    say(f"==PROF== Report: {target}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
