"""The cell magic `%%nightsight`: a cell runs in the notebook under torch.profiler, and its report is shown.

`%load_ext nightsight` adds it. Unlike commands, which profile other programs, this is in the process of the program: it
uses the torch that the notebook uses.
"""

import importlib
import keyword
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from nightsight.api.reports import Report
from nightsight.api.reports import report as open_report
from nightsight.errors import UsageError
from nightsight.system.scratch import scratch

_NAME: Final = "nightsight"


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 (IPython's)
    """Add the magic to a notebook."""
    shell.register_magic_function(partial(profile_cell, shell), "cell", _NAME)


def profile_cell(shell: Any, line: str, cell: str) -> Report | None:  # noqa: ANN401 (IPython's)
    """Run a cell under torch.profiler, and return its report; None if the cell fails, which the notebook shows.

    line: the variable that gets the report, if any.
    """
    name = line.strip()
    if name and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"{name} is not the name of a variable", "Use: %%nightsight, or %%nightsight NAME")
    profile = _profiler()
    with scratch() as folder:
        trace = folder / "cell.json"
        with profile(record_shapes=True) as recording:
            result = shell.run_cell(cell)
        if not result.success:
            return None
        recording.export_chrome_trace(str(trace))
        report = open_report(trace)
    if name:
        shell.user_ns[name] = report
    return report


def _profiler() -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = importlib.import_module("torch.profiler").profile
    except ImportError as error:
        raise UsageError(
            "%%nightsight needs torch in this notebook", "For a program without torch: ns.profile(['script.py'])"
        ) from error
    return found
