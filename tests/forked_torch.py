"""Python as a program that has PyTorch at once (tests/forked.py): an import of it takes two seconds.

To a program it looks as if nothing was imported: a first `import torch` brings its modules in the order in which they
were imported, so that what waits for the import of one is told. Generators of random numbers differ from run to run, as
they do otherwise. Scripts and modules (`-m`) can be run.
"""

import gc
import importlib.util
import os
import runpy
import sys
import types
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

from tests.forked import serve

_PACKAGES = ("torch", "numpy")


class _Finder(MetaPathFinder):
    """Finds modules that are there already."""

    def __init__(self, modules: dict[str, types.ModuleType]) -> None:
        self.specs = {name: (module, module.__spec__) for name, module in modules.items()}

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        module, spec = self.specs.get(fullname, (None, None))
        if not (module and spec) or _is_made(fullname, self.specs):
            return None
        module_spec = ModuleSpec(fullname, _Loader(module, self.specs), origin=spec.origin)
        module_spec.submodule_search_locations = spec.submodule_search_locations
        return module_spec


@dataclass
class _Loader(Loader):
    """Loads a module that is there already: one of its own for each, as who waits for an import changes it."""

    module: types.ModuleType
    specs: dict[str, tuple[types.ModuleType, ModuleSpec | None]]

    def create_module(self, _: ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        for other in FIRST if name in _PACKAGES else ():
            if name == "torch" or other.startswith(f"{name}."):
                if _is_made(other, self.specs):
                    sys.modules[other] = self.specs[other][0]
                else:
                    importlib.import_module(other)


def _is_made(name: str, specs: dict[str, tuple[types.ModuleType, ModuleSpec | None]]) -> bool:
    """Whether a module was not imported: the library made it."""
    around, _ = specs.get(name.rpartition(".")[0], (None, None))
    return not specs[name][1] or (around is not None and not hasattr(around, "__path__"))


def _is_hidden(name: str) -> bool:
    return name.partition(".")[0] in _PACKAGES


def run(words: list[str]) -> None:
    """Run a script or a module as Python would."""
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_hidden(name)}
    sys.meta_path.insert(0, _Finder(hidden))
    hidden["numpy"].random.seed()
    sys.modules["random"].seed()
    # what is started by the program starts at once, too
    sys.executable = words[0]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *PATH]
    sys.modules.pop("sitecustomize", None)
    if importlib.util.find_spec("sitecustomize"):
        importlib.import_module("sitecustomize")
    if words[1] == "-m":
        sys.argv = words[2:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        return
    sys.argv = words[1:]
    script = Path(words[1]).absolute()
    sys.path.insert(0, str(script.parent))
    module = types.ModuleType("__main__")
    vars(module).update(__file__=words[1], __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(script.read_bytes(), words[1], "exec"), vars(module))


if __name__ == "__main__":
    PATH = [path for path in sys.path if Path(path) != Path.cwd()]
    importlib.import_module("torch")
    FIRST = [name for name in sys.modules if _is_hidden(name)]
    # the first step of an optimizer imports it
    importlib.import_module("torch._dynamo")
    gc.freeze()
    serve(run)
