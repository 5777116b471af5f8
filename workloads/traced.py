"""Runs any Python script under torch.profiler, as `python script.py` would, and exports the trace however it ends.

It is run by its path, and imports nothing from beside it: what the script imports is the script's.
"""

import argparse
import runpy
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch
from torch.profiler import ProfilerActivity, profile


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
    # before Python 3.11 no path is a safe one
    if not getattr(sys.flags, "safe_path", False):
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
    with (
        profile(activities=activities(device), on_trace_ready=lambda profiler: export_trace(profiler, out)),
        saving_afterwards(),
    ):
        runpy.run_path(str(script), run_name="__main__")


@contextmanager
def saving_afterwards() -> Iterator[None]:
    """Say, when what is inside has ended, that the trace is being saved: who wants to end us then waits for it."""
    try:
        yield
    finally:
        # what has been asked to end need not be asked again
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("nightsight: saving the trace", file=sys.stderr, flush=True)


def output_path(text: str) -> Path:
    """Read the path of a file to write, in a folder that is there, as the `type` of an option."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is not a file in a folder that exists")
    return path


def export_trace(profiler: profile, path: Path) -> None:
    """Write a Chrome trace, gzipped if `path` ends in .gz; it appears whole or not at all."""
    aside = path.with_name(f".{path.name}")
    profiler.export_chrome_trace(str(aside))
    aside.replace(path)


def activities(device: str) -> list[ProfilerActivity]:
    """Return what torch.profiler is to record on "cuda" or "cpu"."""
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]


if __name__ == "__main__":
    main()
