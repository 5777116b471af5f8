"""The names of modules by their path in a model, whatever way the model is built, wrapped, copied and called."""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return import_module("torch")


@pytest.fixture
def called(torch: ModuleType) -> Iterator[Callable[..., list[str]]]:
    """Call something, and return the names of the modules that begin, and, after a `/`, end."""
    path = Path(__file__).parents[1] / "workloads/injected/modules.py"
    spec: Any = importlib.util.spec_from_file_location("nightsight_modules", path)
    # torch.compile imports the modules of functions that are called in what it compiles
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names: list[str] = []

    def begin(name: str) -> str:
        names.append(name.removeprefix("nn.Module: "))
        return names[-1]

    undo = module.watch(begin, lambda name: names.append(f"/{name}"))

    def call(function: Any, *given: Any) -> list[str]:
        names.clear()
        function(*given)
        return [*names]

    yield call
    undo()
    del sys.modules[spec.name]


@pytest.fixture
def model(torch: ModuleType) -> Callable[[], Any]:
    """Make a model with two modules in a container."""
    nn = torch.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.ReLU())])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    return Net


@pytest.fixture
def x(torch: ModuleType) -> Any:
    return torch.ones(2, 4)


PLAIN = ["Net", "layers.0", "/layers.0", "layers.1", "layers.1.0", "/layers.1.0", "/layers.1", "/Net"]


def test_paths_are_those_of_named_modules(called: Callable[..., list[str]], model: Any, x: Any) -> None:
    net = model()
    assert called(net, x) == PLAIN
    assert called(net, x) == PLAIN


def test_a_part_that_is_called_alone_has_its_path_in_the_model(called: Any, model: Any, x: Any) -> None:
    net = model()
    assert called(net.layers[1], x) == ["layers.1", "layers.1.0", "/layers.1.0", "/layers.1"]


def test_the_first_model_has_plain_paths_and_the_others_begin_with_their_class(
    called: Callable[..., list[str]], torch: ModuleType, model: Any, x: Any
) -> None:
    # what has no parts is no model
    assert called(torch.nn.ReLU(), x) == ["ReLU", "/ReLU"]
    assert called(first := model(), x) == PLAIN
    assert called(model(), x)[:2] == ["Net_1", "Net_1.layers.0"]
    assert called(copy.deepcopy(first), x)[:2] == ["Net_2", "Net_2.layers.0"]
    other = torch.nn.Sequential(torch.nn.ReLU())
    assert called(other, x) == ["Sequential", "Sequential.0", "/Sequential.0", "/Sequential"]
    assert called(first, x) == PLAIN


def test_a_number_alone_is_no_name(called: Callable[..., list[str]], torch: ModuleType, x: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()))
    assert called(model, x)[:3] == ["Sequential", "Sequential.0", "Sequential.0.0"]


def test_what_wraps_a_model_is_no_part_of_its_paths(
    called: Callable[..., list[str]], torch: ModuleType, model: Any, x: Any
) -> None:
    class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)

    assert called(DistributedDataParallel(model()), x) == ["Net", *PLAIN, "/Net"]


def test_a_call_that_raises_ends(called: Callable[..., list[str]], model: Any, torch: ModuleType, x: Any) -> None:
    net = model()

    def failing() -> None:
        with pytest.raises(RuntimeError):
            net(torch.ones(2, 5))

    assert called(failing) == ["Net", "layers.0", "/layers.0", "/Net"]
    assert called(net, x) == PLAIN


def test_a_module_that_cannot_be_hashed_has_the_name_of_its_class(
    called: Callable[..., list[str]], torch: ModuleType, x: Any
) -> None:
    class Odd(torch.nn.Sequential):  # type: ignore[misc, name-defined]
        __hash__ = None  # type: ignore[assignment]

        def modules(self) -> Any:
            raise ValueError

    assert called(Odd(torch.nn.ReLU()), x)[0] == "Odd"


def test_a_model_that_is_gone_leaves_nothing(called: Callable[..., list[str]], model: Any, x: Any) -> None:
    import_module("gc").collect()
    weakref = import_module("weakref")
    net = model()
    called(net, x)
    gone = weakref.ref(net)
    del net
    import_module("gc").collect()
    assert gone() is None


def test_torch_compile_compiles_the_code_of_the_module_and_not_ours(
    called: Callable[..., list[str]], torch: ModuleType, model: Any, x: Any
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = len(torch._dynamo.utils.get_compilation_metrics())
    net = torch.compile(model(), backend="eager")
    assert called(net, x) == ["Net", "/Net"]
    assert called(net, x) == ["Net", "/Net"]
    assert called(net, torch.ones(3, 4)) == ["Net", "/Net"]
    metrics = torch._dynamo.utils.get_compilation_metrics()[before:]
    assert {each.co_name for each in metrics} == {"forward"}
    assert not torch._dynamo.utils.counters["graph_break"]
    # inside of a compiled function, modules are part of it
    whole = torch.compile(lambda x: net._orig_mod(x) + 1, backend="eager")
    assert called(whole, x) == []
