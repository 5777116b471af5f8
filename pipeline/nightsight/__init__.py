"""nightsight: workloads run under a profiler, captures become reports. `docs/architecture.md` is the map.

In notebooks and scripts: `import nightsight as ns; report = ns.report("x.sqlite")` (docs/api.md). Heavy modules are
imported on first use.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nightsight.version import VERSION

if TYPE_CHECKING:
    from nightsight.api.many import fleet, history
    from nightsight.api.reports import Report, profile, report
    from nightsight.api.runs import ab, compare, prove

__version__ = VERSION
_MODULES = {
    **dict.fromkeys(("Report", "profile", "report"), "reports"),
    **dict.fromkeys(("ab", "compare", "prove"), "runs"),
    **dict.fromkeys(("fleet", "history"), "many"),
    "load_ipython_extension": "notebook",
}
__all__ = ["Report", "__version__", "ab", "compare", "fleet", "history", "profile", "prove", "report"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (the module's own)
    if name in _MODULES:
        return getattr(import_module(f"nightsight.api.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__


def _of_api(name: str) -> property:
    """Return an attribute of the API that stays what it is when the subpackage of this name is imported."""

    def get(_: ModuleType) -> Any:  # noqa: ANN401 (as above)
        return __getattr__(name)

    def ignore(_: ModuleType, __: object) -> None:
        """Do nothing: Python would replace the function by the subpackage."""

    return property(get, ignore)


class _Package(ModuleType):
    """The package. Three functions have the names of subpackages: import those as `from nightsight.compare import`."""

    compare = _of_api("compare")
    fleet = _of_api("fleet")
    history = _of_api("history")


sys.modules[__name__].__class__ = _Package
