"""The command `nightsight`, also as `python -m nightsight`."""

import atexit
import gc
import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is loading ends like Ctrl-C later."""
    # garbage collection takes a fifth of the CPU time of a small report, and short-lived programs do not need it;
    # frozen objects are also skipped by the collection at exit
    gc.disable()
    atexit.register(gc.freeze)
    try:
        from nightsight.cli import main as command  # noqa: PLC0415 (this import takes time)
    except KeyboardInterrupt:
        sys.stderr.write("Error: interrupted\n")
        sys.exit(128 + signal.SIGINT)
    command(prog_name="nightsight")


if __name__ == "__main__":
    main()
