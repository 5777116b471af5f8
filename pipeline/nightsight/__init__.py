"""nightsight: workloads run under a profiler, captures become reports. `docs/architecture.md` is the map.

In notebooks and scripts: `import nightsight as ns; report = ns.report("x.sqlite")` (docs/api.md). Heavy modules are
imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nightsight.version import VERSION

if TYPE_CHECKING:
    from nightsight.api import Report, profile, report

__version__ = VERSION
__all__ = ["Report", "__version__", "profile", "report"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (the module's own)
    if name in __all__:
        return getattr(import_module("nightsight.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
