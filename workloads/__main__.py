"""Runs one of the workloads: `python /path/to/workloads workloads.mlp --dim 512`, with any Python that has torch.

Nothing is added to the path of that Python, because packages next to this one may be of versions it cannot use. This
package is loaded from the folder of this file.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the module named on the command line as the main program."""
    here = Path(__file__).absolute().parent
    spec = importlib.util.spec_from_file_location("workloads", here / "__init__.py")
    if spec is None:
        raise ImportError(f"{here} is not a package")
    sys.modules["workloads"] = importlib.util.module_from_spec(spec)
    # Python added this folder
    del sys.path[0]
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
