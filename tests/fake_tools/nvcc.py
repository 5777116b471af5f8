"""An nvcc for machines without one: answers as the real one does, and builds a program that says how it was started.

It is copied beside an `nvcc.json` that steers it. What it prints is what nvcc 13.0 prints.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = json.loads(Path(__file__).with_name("nvcc.json").read_text())
VERSION = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release {release}, V{release}.88
Build cuda_{release}.r{release}/compiler.36424714_0
"""
MESSAGES = {
    "no compiler": "gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.\n",
    "broken source": '/x/unified_memory.cu(1): error: identifier "fooo" is undefined\n  fooo;\n\n1 error\n',
    "no header": "/x/unified_memory.cu:9:10: fatal error: nvtx3/nvToolsExt.h: No such file or directory\n",
    "silent": "",
}
PROGRAM = """#!{python}
import json, sys
elements, iterations, warmup, trials, part = sys.argv[1:]
if {status}:
    sys.stderr.write("unified_memory: error: no GPU can be used\\n")
    sys.exit({status})
if trials != "0":
    print("NVIDIA H200")
    for trial in range(int(trials)):
        print(f"{{1000.5 + trial:.1f}}")
else:
    print(json.dumps([sys.argv[1:], sys.argv[0].rpartition("/")[2]]))
"""


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write(VERSION.format(release=SETTINGS["release"]))
        return 0
    if arguments == ["--list-gpu-arch"]:
        sys.stdout.write("".join(f"compute_{number}\n" for number in SETTINGS["known"].split()))
        return not SETTINGS["known"]
    with Path(__file__).with_name("built.jsonl").open("a") as built:
        built.write(json.dumps(list(arguments)) + "\n")
    target = Path(arguments[arguments.index("-o") + 1])
    if SETTINGS["behavior"] in MESSAGES:
        target.write_text("half")
        sys.stderr.write(MESSAGES[SETTINGS["behavior"]])
        return 1
    target.write_text(PROGRAM.format(python=sys.executable, status=SETTINGS["status"]))
    target.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
