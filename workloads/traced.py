"""Runs any Python script under torch.profiler, as `python script.py` would, and exports the trace however that ends.

It is started by path and imports nothing from its own folder: the script's imports find the script's modules.
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
    """Run the script given on the command line. Its exit status and its traceback become the program's."""
    usage = "traced --out TRACE.json.gz -- script.py [ARGUMENT ...]"
    parser = argparse.ArgumentParser(prog="traced", usage=usage, description=__doc__)
    parser.add_argument(
        "--out", type=output_path, required=True, help="trace to write; compressed if the name ends in .gz"
    )
    parser.add_argument("command", nargs="+", help="the script to run, and its arguments")
    options = parser.parse_args()
    script = Path(options.command[0]).absolute()
    if not script.is_file():
        parser.error(f"there is no script {script}")
    sys.argv = [str(script), *options.command[1:]]
    # safe_path exists since Python 3.11
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(script.resolve().parent)
    # absolute, because the script may change its working folder
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
    """Announce, when the enclosed work has ended, that the trace is being saved: whoever wants to end us then waits."""
    try:
        yield
    finally:
        # already ending: no second request is needed
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("nightsight: saving the trace", file=sys.stderr, flush=True)


def output_path(text: str) -> Path:
    """Parse the path of an output file in an existing folder, as the `type` of an option."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is not a file in a folder that exists")
    return path


def export_trace(profiler: profile, path: Path) -> None:
    """Write a Chrome trace, compressed if `path` ends in .gz. The file appears complete or not at all."""
    aside = path.with_name(f".{path.name}")
    profiler.export_chrome_trace(str(aside))
    aside.replace(path)


def activities(device: str) -> list[ProfilerActivity]:
    """Return what torch.profiler records on "cuda" or "cpu"."""
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]


if __name__ == "__main__":
    main()
