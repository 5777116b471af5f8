"""CUDA graphs of models in training: what is replayed computes the same, and what may not be replayed is left as it is.

A CPU has no graphs. Here, what runs during a capture is noted, operation by operation, and a replay runs it again on
the same memory: whatever a replay would overwrite is overwritten here, too. `python -m tests.gpu.graphs` has real ones.
"""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

torch: Any = pytest.importorskip("torch")
INJECTED = Path(__file__).parents[1] / "workloads" / "injected"


class _Noted(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Notes operations with their arguments and what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(self, function: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        result = function(*given, **(named or {}))
        self.operations.append((function, given, named or {}, result))
        return result


class _Graph:
    """Stands for a CUDA graph. replays: of all. modes: what was asked for, if an operation waits for the GPU."""

    replays = 0
    modes: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.noted = _Noted()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def replay(self) -> None:
        _Graph.replays += 1
        leaves_of = torch.utils._pytree.tree_leaves
        for function, given, named, result in self.noted.operations:
            arguments = {
                id(each.untyped_storage()): each for each in leaves_of((given, named)) if torch.is_tensor(each)
            }
            pairs = zip(leaves_of(result), leaves_of(function(*given, **named)), strict=True)
            for place, value in pairs:
                # a view, or what was changed in place
                if torch.is_tensor(place) and all(each.data_ptr() != place.data_ptr() for each in arguments.values()):
                    place.copy_(value)


@contextmanager
def _capture(graph: _Graph, **_: Any) -> Iterator[None]:
    with graph.noted:
        yield


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Put the switch into torch; return what it did."""
    for name, value in {
        "CUDAGraph": _Graph,
        "graph": _capture,
        "Stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda _: None),
        "stream": lambda _: nullcontext(),
        "graph_pool_handle": lambda: None,
        "get_rng_state": lambda: None,
        "set_rng_state": lambda _: None,
        "set_stream": lambda _: None,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": _Graph.modes.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)

    monkeypatch.setattr(_Graph, "replays", 0)
    _Graph.modes.clear()

    def switch_on(*, is_search: bool = False) -> Any:
        monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
        modules = []
        for name in ("switching", "graphs"):
            spec = spec_from_file_location(name, INJECTED / f"{name}.py")
            assert spec
            assert spec.loader
            module: Any = module_from_spec(spec)
            spec.loader.exec_module(module)
            modules.append(module)
        switching, others = modules
        others._KIND = "cpu"
        switching._next_to_this = lambda _: others
        effects = switching.Effects(is_search=is_search)
        switching.SWITCHES["cuda_graphs"][1](torch, effects)
        return effects

    return switch_on


class Model(torch.nn.Module):  # type: ignore[misc]
    """Normalizes batches, and returns its outputs by name, with one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
        self.idle = torch.nn.Linear(16, 2)
        self.is_called = 0

    def forward(self, x: Any, scale: Any = None, *, factor: float = 1.0) -> dict[str, Any]:
        hidden = torch.relu(self.norm(self.first(x))) * factor
        result = self.last(hidden)
        return {"result": result if scale is None else result * scale, "idle": self.idle(hidden), "none": None}


def train(model: Any, step: Callable[[Any, Any, int], None], steps: int = 10) -> list[Any]:
    """Train a model; return its losses, its weights and its buffers."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses: list[Any] = []
    for number in range(steps):
        step(model, lambda loss: losses.append(loss.detach()), number)
        optimizer.step()
        optimizer.zero_grad()
    return [*losses, *(each.detach().clone() for each in (*model.parameters(), *model.buffers()))]


def plain_step(model: Any, note: Any, _: int) -> None:
    loss = model(torch.randn(6, 8), factor=2.0)["result"].square().mean()
    note(loss)
    loss.backward()


def accumulates(model: Any, note: Any, number: int) -> None:
    for _ in range(1 + number % 3):
        plain_step(model, note, number)


def keeps_gradients(model: Any, note: Any, number: int) -> None:
    plain_step(model, note, number)
    kept = [each.grad for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    plain_step(model, note, number)
    for weight, grad in zip(filter(lambda each: each.grad is not None, model.parameters()), kept, strict=True):
        weight.grad = weight.grad + 0.5 * grad


def keeps_outputs(model: Any, note: Any, number: int) -> None:
    kept = model(torch.randn(6, 8))["result"]
    kept.sum().backward()
    again = model(torch.randn(6, 8))["result"]
    note(kept.mean() + again.mean())
    (again.square().mean() + kept.detach().mean()).backward()


def two_calls_at_times(model: Any, note: Any, number: int) -> None:
    first = model(torch.randn(6, 8))["result"]
    if number > 5:
        first = first + model(torch.randn(6, 8))["result"]
    note(first.mean())
    first.square().mean().backward()


def abandons(model: Any, note: Any, number: int) -> None:
    if number > 4:
        model(torch.randn(6, 8), factor=2.0)["result"].mean()
    plain_step(model, note, number)


def other_shapes_at_times(model: Any, note: Any, number: int) -> None:
    loss = model(torch.randn(3 if number == 7 else 6, 8))["result"].square().mean()
    note(loss)
    loss.backward()


def evaluates(model: Any, note: Any, number: int) -> None:
    plain_step(model, note, number)
    model.eval()
    with torch.no_grad():
        note(model(torch.randn(6, 8))["result"].mean())
    model.train()


def freezes(model: Any, note: Any, number: int) -> None:
    if number == 6:
        model.norm.eval()
    if number == 8:
        model.last.weight.data = model.last.weight.data * 0.5
    plain_step(model, note, number)


def in_bf16(model: Any, note: Any, number: int) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=number != 6):
        plain_step(model, note, number)


def with_a_tensor(model: Any, note: Any, number: int) -> None:
    loss = model(torch.randn(6, 8), torch.tensor(1.0 + number))["result"].square().mean()
    note(loss)
    loss.backward()


@pytest.mark.parametrize(
    "step",
    [
        plain_step,
        accumulates,
        keeps_gradients,
        keeps_outputs,
        two_calls_at_times,
        abandons,
        other_shapes_at_times,
        evaluates,
        freezes,
        in_bf16,
        with_a_tensor,
    ],
)
def test_what_is_replayed_trains_the_same(step: Any, graphs: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    model = Model()
    expected = train(copy.deepcopy(model), step)
    effects = graphs()
    losses = train(model, step)
    assert (effects.count["cuda_graphs"], effects.why) == (1, {})
    # some steps of ten, each forward and backward
    assert _Graph.replays >= 6
    assert len(losses) == len(expected)
    for one, other in zip(losses, expected, strict=True):
        torch.testing.assert_close(one, other)
    # others find what was there
    assert "forward" not in vars(model)
    copy.deepcopy(model)


class Odd(Model):
    """A model whose forward pass also does something else."""

    def __init__(self, also: Callable[[Any, Any], object]) -> None:
        super().__init__()
        self.also = also

    def forward(self, x: Any, scale: Any = None, *, factor: float = 1.0) -> Any:
        result = super().forward(x, scale, factor=factor)
        other = self.also(self, result["result"])
        return result if other is None else {**result, "result": other}


def shrinks(model: Any, _: Any) -> None:
    model.first.weight.data.mul_(0.99)


def counts(model: Any, _: Any) -> None:
    model.is_called += 1


def counts_in_class(model: Any, _: Any) -> None:
    type(model).steps = getattr(model, "steps", 0) + 1


def remembers(model: Any, result: Any) -> None:
    model.remembered = result.detach()


def remembers_in_place(model: Any, result: Any) -> None:
    vars(model).setdefault("mean", torch.zeros(4)).lerp_(result.detach().mean(0), 0.1)


def waits(*_: Any) -> None:
    if _Graph.modes[-1:] == ["error"]:
        raise RuntimeError("called a synchronizing CUDA operation")


def hooked(register: Callable[[Any], object]) -> Callable[[], Any]:
    def make() -> Any:
        model = Model()
        register(model)
        return model

    return make


class Bypassing(Model):
    """A model that has its weights in a list, too, as recurrent layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = [self.first.weight]

    def forward(self, x: Any, scale: Any = None, *, factor: float = 1.0) -> dict[str, Any]:
        result = super().forward(x, scale, factor=factor)
        return {**result, "result": result["result"] * self.flat[0].mean()}


class Special(torch.nn.Parameter):  # type: ignore[misc]
    """A weight that may do anything."""


def special() -> Any:
    model = Model()
    model.first.weight = Special(model.first.weight.detach())
    return model


def weightless() -> Any:
    return Model().requires_grad_(False)


def scripted() -> Any:
    model = Model()
    model.last = torch.jit.script(torch.nn.Linear(16, 4))
    return model


def compiled() -> Any:
    return torch.compile(Model(), backend="eager")


def inner_compiled() -> Any:
    model = Model()
    model.last.compile(backend="eager")
    return model


def parallel() -> Any:
    model = Model()
    model.last = type("FullyShardedDataParallel", (torch.nn.Linear,), {})(16, 4)
    return model


def elsewhere() -> Any:
    model = Model()
    model.register_buffer("far", torch.empty(1, device="meta"))
    return model


def odd(also: Callable[[Any, Any], object]) -> Callable[[], Any]:
    return lambda: Odd(also)


def goes_back_twice(model: Any, note: Any, _: int) -> None:
    result = model(torch.randn(6, 8))["result"]
    note(result.mean())
    result.mean().backward(retain_graph=True)
    result.square().mean().backward()


def never_alike(model: Any, note: Any, number: int) -> None:
    loss = model(torch.randn(6 + number % 2, 8))["result"].mean()
    note(loss)
    loss.backward()


def gets(**named: Any) -> Callable[[Any, Any, int], None]:
    def step(model: Any, note: Any, _: int) -> None:
        loss = model(torch.randn(6, 8), **named)["result"].mean()
        note(loss)
        loss.backward()

    return step


class Scale:
    """A factor that is not a tensor."""

    def __rmul__(self, other: Any) -> Any:
        return other * 2.0


def takes_an_object(model: Any, note: Any, _: int) -> None:
    loss = model(torch.randn(6, 8), Scale())["result"].mean()
    note(loss)
    loss.backward()


def ignores(model: Any, _: Any, __: int) -> None:
    model(torch.randn(6, 8))


NO_MORE = "its forward pass changes attributes of its modules"


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(
    ("make", "step", "why"),
    [
        (odd(shrinks), plain_step, "its forward pass changes weights"),
        (odd(counts), plain_step, NO_MORE),
        (odd(counts_in_class), plain_step, NO_MORE),
        (odd(remembers), plain_step, NO_MORE),
        (odd(remembers_in_place), plain_step, NO_MORE),
        (
            odd(lambda _, result: result * random.random()),
            plain_step,
            "its forward pass draws random numbers on the CPU",
        ),
        (odd(lambda _, result: result * torch.rand(1)), plain_step, "its forward pass draws random numbers on the CPU"),
        (
            odd(lambda _, result: result.register_hook(lambda _: None) and None),
            plain_step,
            "its forward pass registers",
        ),
        (hooked(lambda model: model.last.register_forward_hook(lambda *_: None)), plain_step, "it has hooks"),
        (hooked(lambda model: model.last.register_full_backward_hook(lambda *_: None)), plain_step, "it has hooks"),
        (hooked(lambda model: model.first.weight.register_hook(lambda grad: grad)), plain_step, "it has hooks"),
        (weightless, gets(scale=torch.ones(1, requires_grad=True)), "its inputs need gradients"),
        (odd(waits), plain_step, "it waits for the GPU"),
        (Bypassing, plain_step, "its weights are used without its modules"),
        (special, plain_step, "it has weights of a special kind"),
        (scripted, plain_step, "it is compiled or scripted"),
        (compiled, plain_step, "it is compiled or scripted"),
        (inner_compiled, plain_step, "it is compiled or scripted"),
        (parallel, plain_step, "several processes or GPUs train it"),
        (elsewhere, plain_step, "its weights and inputs are not on the current GPU"),
        (Model, goes_back_twice, "its outputs have two backward passes"),
        (Model, never_alike, "no two calls in training have the same shapes and a backward pass each"),
        (Model, takes_an_object, "its inputs are not only tensors and plain values"),
        (odd(lambda *_: object()), ignores, "it returns other values than tensors"),
        (odd(lambda model, _: model.first.bias), ignores, "it returns a weight"),
    ],
)
def test_what_may_not_be_replayed_is_left_as_it_is_and_the_reason_is_reported(
    make: Callable[[], Any], step: Any, why: str, graphs: Callable[..., Any]
) -> None:
    torch.manual_seed(1)
    random.seed(1)
    model = make()
    expected = train(model, step, steps=4)
    effects = graphs()
    torch.manual_seed(1)
    random.seed(1)
    losses = train(make(), step, steps=4)
    assert effects.count["cuda_graphs"] == 0
    assert effects.why["cuda_graphs"].startswith(why)
    assert _Graph.modes[-1:] in ([], [0])
    for one, other in zip(losses, expected, strict=True):
        assert one.is_meta or torch.equal(one, other)


def test_a_search_counts_a_model_that_could_be_replayed_and_changes_nothing(graphs: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    model = Model()
    expected = train(copy.deepcopy(model), plain_step)
    effects = graphs(is_search=True)
    losses = train(model, plain_step)
    assert effects.count["cuda_graphs"] == 1
    assert all(torch.equal(one, other) for one, other in zip(losses, expected, strict=True))


def test_what_cannot_be_captured_trains_on_from_where_it_was(
    graphs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = Model()
    expected = train(copy.deepcopy(model), plain_step)
    effects = graphs()

    @contextmanager
    def fails(*_: Any, **__: Any) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", fails)
    losses = train(model, plain_step)
    assert (effects.count["cuda_graphs"], effects.why) == (0, {"cuda_graphs": "cannot be captured (RuntimeError)"})
    assert all(torch.equal(one, other) for one, other in zip(losses, expected, strict=True))


@pytest.mark.parametrize("is_second", [True, False])
def test_a_backward_pass_that_was_not_captured_ends_the_program(is_second: bool, graphs: Callable[..., Any]) -> None:
    graphs()
    model = Model()
    train(model, plain_step)
    result = model(torch.randn(6, 8), factor=2.0)
    if is_second:
        result["result"].sum().backward(retain_graph=True)
    loss = result["result"].sum() if is_second else result["result"].sum() + result["idle"].sum()
    with pytest.raises(RuntimeError, match="differs from the one in the CUDA graph"):
        loss.backward()
