"""Runs any Python script under torch.profiler, as `python script.py` would, and exports the trace however it ends."""

import argparse
import runpy
import sys
from pathlib import Path
from types import TracebackType

import torch
from torch.profiler import profile

from workloads.runner import activities, export_trace, output_path


def main() -> None:
    """Run the script as the command line says; its exit status and its traceback are the program's."""
    usage = "traced --out TRACE.json.gz -- script.py [ARGUMENT ...]"
    parser = argparse.ArgumentParser(prog="traced", usage=usage, description=__doc__)
    parser.add_argument("--out", type=output_path, required=True, help="the trace to write; gzipped if it ends in .gz")
    parser.add_argument("command", nargs="+", help="the script to run, and its arguments")
    options = parser.parse_args()
    script = Path(options.command[0]).absolute()
    if not script.is_file():
        parser.error(f"there is no script {script}")
    sys.argv = [str(script), *options.command[1:]]
    if not sys.flags.safe_path:
        sys.path[0] = str(script.resolve().parent)
    # absolute, for the script may change the folder it works in
    trace(script, options.out.absolute())


def trace(script: Path, out: Path) -> None:
    """Run `script` as the main program and write its Chrome trace to `out`."""

    def show_error(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        while frames and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        sys.__excepthook__(kind, error.with_traceback(frames), frames)

    sys.excepthook = show_error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with profile(activities=activities(device), on_trace_ready=lambda profiler: export_trace(profiler, out)):
        runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
