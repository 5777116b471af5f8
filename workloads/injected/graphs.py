"""Replay a model in training as two CUDA graphs, of its forward and of its backward pass, if this is safe.

The first calls run unchanged and show whether graphs are possible: the same shapes in each call, one backward pass
after each call, and no work of the CPU except launches. Then both passes are captured, as
torch.cuda.make_graphed_callables does. A call replays them only if nothing has changed since. It runs unchanged if
shapes, modules or the memory of weights differ, or if the backward pass of an earlier call is pending. The results of a
replay are copied, so that the next one does not overwrite them. Loaded by path when a program has imported torch; its
Python may be older than ours.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Iterator  # noqa: UP035 (Python 3.8)
from weakref import WeakKeyDictionary, ref

torch: Any = sys.modules["torch"]
NAME = "cuda_graphs"
# the type of device whose work can be captured
_KIND = "cuda"
# equal calls with a backward pass that are needed before a capture, and calls after which capture is given up
_ALIKE, _TRIES = 2, 20
# runs before a capture, in which libraries choose their kernels: the number in torch.cuda.make_graphed_callables
_WARM_UP = 3
_PARALLEL = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"}
_PLAIN = (bool, int, float, str, type(None))
# a float may differ in each call
_CONSTANT = (bool, int, str, type(None))
_MISSING = object()
_CHANGES = "its forward pass changes attributes of its modules"


class Graphs:
    """The models of a program. effects: the changes of switches."""

    def __init__(self, effects: Any) -> None:  # noqa: ANN401
        self.effects = effects
        self.models: Any = WeakKeyDictionary()

    def called(self, call: Callable[..., Any], module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        """Call an outermost module; in training, `forward` of its model decides how it runs."""
        if not (torch.is_grad_enabled() and module.training):
            return call(module, *given, **named)
        if module not in self.models:
            self.models[module] = _Model(self.effects)
        model, own = self.models[module], vars(module)
        if model.is_refused:
            return call(module, *given, **named)
        plain, before = module.forward, own.get("forward", _MISSING)
        # only during the call, so that copies and saved files have the original module
        own["forward"] = lambda *given, **named: model.forward(module, plain, given, named)
        try:
            return call(module, *given, **named)
        finally:
            if before is _MISSING:
                del own["forward"]
            else:
                own["forward"] = before


class _Step:
    """A call that ran unchanged. gradients: the number of gradients that each output received."""

    def __init__(self, form: Any, state: Any) -> None:  # noqa: ANN401
        self.form, self.state = form, state
        self.gradients: Counter[int] = Counter()


class _Model:
    """The state of a model: the last call, the number of equal calls before it, and its graphs, if any."""

    def __init__(self, effects: Any) -> None:  # noqa: ANN401
        self.effects = effects
        self.is_refused = False
        self.inner: list[Any] = []
        self.last: _Step | None = None
        self.alike = self.calls = 0
        self.graph: _Graph | None = None
        self.effects.why.setdefault(NAME, "no two calls in training have the same shapes and a backward pass each")

    def forward(self, module: Any, plain: Callable[..., Any], given: Any, named: Any) -> Any:  # noqa: ANN401
        """Replay the call if possible, otherwise run it unchanged."""
        leaves, tree = torch.utils._pytree.tree_flatten((given, named))
        form = (tree, [_form(leaf) for leaf in leaves], _autocast())
        if self.graph is None:
            self.inner = list(module.modules())[1:]
        state = self._state(module)
        if self.graph is not None:
            is_alike = not self.graph.is_open and (self.graph.form, self.graph.state) == (form, state)
            return self.graph(leaves) if is_alike else plain(*given, **named)
        self.calls += 1
        why = _refusal(module, leaves) or self._after_last(form)
        if why or self.calls > _TRIES:
            self._refuse(why)
        elif self.alike >= _ALIKE and self.last and self.last.state == state:
            graph = self.graph = self._captured(module, plain, leaves, form, state)
            if graph is not None:
                return graph(leaves)
        else:
            return self._watch(module, lambda: plain(*given, **named), form, state)
        return plain(*given, **named)

    def _refuse(self, why: str) -> None:
        self.is_refused = True
        if why:
            self.effects.why[NAME] = why

    def _state(self, module: Any) -> list[Any]:  # noqa: ANN401
        """Return the addresses of the weights and buffers of a module, and the training modes of its parts."""
        state: list[Any] = []
        for inner in (module, *self.inner):
            state += (inner.training, *map(id, inner._modules.values()))
            for tensors in (inner._parameters, inner._buffers):
                state += [each if each is None else _place(each) for each in tensors.values()]
        return state

    def _after_last(self, form: Any) -> str:  # noqa: ANN401
        """Count the last call if it equals this one; return why it cannot be replayed, "" if it can."""
        gradients = self.last.gradients if self.last else Counter()
        if any(count > 1 for count in gradients.values()):
            return "its outputs have two backward passes"
        self.alike = self.alike + 1 if self.last and gradients and self.last.form == form else 0
        return ""

    def _watch(self, module: Any, run: Callable[[], Any], form: Any, state: Any) -> Any:  # noqa: ANN401
        """Run a call unchanged, record its side effects, and return its result."""
        modules = [module, *self.inner]
        drawn, kept, norms = _random_state(), _attributes(modules), _norms(module)
        hooks: list[Any] = []
        with _noting_hooks(hooks):
            result = run()
        leaves, _ = torch.utils._pytree.tree_flatten(result)
        why = ""
        if hooks:
            why = "its forward pass registers hooks"
        elif _random_state() != drawn:
            why = "its forward pass draws random numbers on the CPU"
        elif _attributes(modules) != kept or self._state(module) != state:
            why = _CHANGES
        elif _norms(module) != norms:
            why = "its forward pass changes weights"
        elif not all(isinstance(leaf, (torch.Tensor, *_CONSTANT)) for leaf in leaves):
            why = "it returns other values than tensors"
        elif any(leaf.requires_grad and leaf.grad_fn is None for leaf in leaves if isinstance(leaf, torch.Tensor)):
            why = "it returns a weight"
        if why:
            self._refuse(why)
            return result
        self.last = step = _Step(form, state)
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(lambda _, number=number: step.gradients.update([number]))
        return result

    def _captured(self, module: Any, plain: Any, leaves: Any, form: Any, state: Any) -> _Graph | None:  # noqa: ANN401
        """Return the graphs of a call; None, with no change to the program, if it cannot be captured."""
        if not self.effects.applies(NAME):
            self.is_refused = True
            return None
        buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        drawn, stream, mode = torch.cuda.get_rng_state(), torch.cuda.current_stream(), torch.cuda.get_sync_debug_mode()
        used = sorted(self.last.gradients) if self.last else []
        try:
            graph = _Graph([module, *self.inner], plain, leaves, used, form, state)
        except Exception as error:  # noqa: BLE001 (a model that cannot be captured runs unchanged)
            self.effects.count[NAME] -= 1
            why = f"cannot be captured ({type(error).__name__})"
            if "synchronizing" in str(error):
                why = "it waits for the GPU"
            self._refuse(str(error) if isinstance(error, _Refused) else why)
            return None
        finally:
            # a failed capture may leave its own
            torch.cuda.set_stream(stream)
            torch.cuda.set_sync_debug_mode(mode)
            # their state before the warm-up
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            torch.cuda.set_rng_state(drawn)
        self.effects.why.pop(NAME, None)
        return graph


class _Refused(Exception):
    """The observations of the warm-up runs of a model."""


class _Graph:
    """The graphs of a call with the arguments `leaves`. used: the numbers of the outputs that receive gradients."""

    def __init__(self, modules: Any, plain: Any, leaves: Any, used: Any, form: Any, state: Any) -> None:  # noqa: ANN401
        self.form, self.state, self.used = form, state, used
        self.weights = [weight for weight in modules[0].parameters() if weight.requires_grad]
        self.inputs = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.open: Any = None
        # the weights themselves may belong to an existing autograd graph, on a stream that is not captured
        stand_ins = {id(weight): torch.nn.Parameter(weight.detach()) for weight in self.weights}

        def run() -> tuple[list[Any], Any]:
            given, named = torch.utils._pytree.tree_unflatten(self.inputs, form[0])
            with _uncached(), _in_place_of(stand_ins, modules):
                leaves, tree = torch.utils._pytree.tree_flatten(plain(*given, **named))
            return leaves, tree

        def gradients(outputs: list[Any], of_outputs: list[Any], *others: Any) -> Any:  # noqa: ANN401
            outputs = [outputs[number] for number in used]
            return torch.autograd.grad(outputs, [*stand_ins.values(), *others], of_outputs, allow_unused=True)

        kept = _attributes(modules)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for number in range(_WARM_UP):
                # the first run may wait for libraries; if later runs wait, they cannot be captured
                torch.cuda.set_sync_debug_mode("error" if number else "default")
                outputs, _ = run()
                zeros = [torch.zeros_like(outputs[number]) for number in used]
                found = gradients(outputs, zeros, *self.weights)
                if any(each is not None for each in found[len(stand_ins) :]):
                    raise _Refused("its weights are used without its modules")
                # recurrent layers move what is new to them, so that a graph would read copies of the weights
                if _attributes(modules) != kept or any(
                    stand_ins[id(weight)].data_ptr() != weight.data_ptr() for weight in self.weights
                ):
                    raise _Refused(_CHANGES)
        del outputs, found
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.current_stream().wait_stream(side)
        # "thread_local": another thread may pin batches meanwhile
        options = {"pool": torch.cuda.graph_pool_handle(), "capture_error_mode": "thread_local"}
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward, **options):
            outputs, self.tree = run()
        self.of_outputs = [torch.zeros_like(outputs[number]) for number in used]
        with torch.cuda.graph(self.backward, **options):
            self.gradients = gradients(outputs, self.of_outputs)
        self.has_gradient = [isinstance(each, torch.Tensor) and each.requires_grad for each in outputs]
        self.outputs = [each.detach() if isinstance(each, torch.Tensor) else each for each in outputs]

    @property
    def is_open(self) -> bool:
        """Whether the backward pass of a replayed call may be pending: the next call would overwrite its memory."""
        return self.open is not None and self.open() is not None

    def __call__(self, leaves: Any) -> Any:  # noqa: ANN401
        """Return the result of the call with these arguments."""
        for place, leaf in zip(self.inputs, leaves):  # noqa: B905 (Python 3.8)
            if isinstance(place, torch.Tensor):
                place.copy_(leaf)
        tensors = iter(_Replay.apply(self, *self.weights))
        outputs = [next(tensors) if isinstance(each, torch.Tensor) else each for each in self.outputs]
        return torch.utils._pytree.tree_unflatten(outputs, self.tree)


class _Call:
    """A replayed call: this object exists until its backward pass can no longer run."""


class _Replay(torch.autograd.Function):
    """Replays the forward pass, and later the backward pass."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, *_: Any) -> Any:  # noqa: ANN401
        """Return copies of the outputs that are tensors."""
        ctx.graph, ctx.call = graph, _Call()
        ctx.set_materialize_grads(False)
        graph.open = ref(ctx.call)
        graph.forward.replay()
        copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in graph.outputs]
        pairs = zip(copies, graph.has_gradient)  # noqa: B905 (Python 3.8)
        ctx.mark_non_differentiable(*(each for each, has in pairs if isinstance(each, torch.Tensor) and not has))
        ctx.tensors = [number for number, each in enumerate(copies) if isinstance(each, torch.Tensor)]
        return tuple(copies[number] for number in ctx.tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401
        """Return copies of the gradients of the weights."""
        graph = ctx.graph
        got = [number for number, each in zip(ctx.tensors, gradients) if each is not None]  # noqa: B905 (Python 3.8)
        if ctx.call is None or got != graph.used:
            raise RuntimeError("nightsight: this backward pass differs from the one in the CUDA graph")
        for place, each in zip(graph.of_outputs, filter(lambda each: each is not None, gradients)):  # noqa: B905
            place.copy_(each)
        graph.backward.replay()
        ctx.call = graph.open = None
        # weights keep the gradients, and the next replay overwrites those of the graph
        copies = iter(torch._foreach_mul([each for each in graph.gradients if each is not None], 1))
        return (None, *(each if each is None else next(copies) for each in graph.gradients))


@contextmanager
def _in_place_of(stand_ins: dict[int, Any], modules: list[Any]) -> Iterator[None]:
    """Temporarily give modules other parameters: `stand_ins`, by the identity of the original ones."""
    owners = [(inner._parameters, dict(inner._parameters)) for inner in modules]
    for parameters, own in owners:
        parameters.update({name: stand_ins.get(id(weight), weight) for name, weight in own.items()})
    try:
        yield
    finally:
        for parameters, own in owners:
            parameters.update(own)


def _refusal(module: Any, leaves: list[Any]) -> str:  # noqa: ANN401
    """Return why a module must not be replayed in any case; "" if it may be."""
    modules, weights = list(module.modules()), list(module.parameters())
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    devices = {each.device for each in (*weights, *module.buffers(), *tensors)}
    current = (_KIND, torch.cuda.current_device() if torch.cuda.is_initialized() else None)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    common = vars(sys.modules["torch.nn.modules.module"])
    distributed = torch.distributed
    is_compiled = any(getattr(inner, "_compiled_call_impl", None) for inner in modules)
    reasons = {
        "it is compiled or scripted": is_compiled
        or any(
            type(inner).__name__ == "OptimizedModule" or isinstance(inner, torch.jit.ScriptModule) for inner in modules
        ),
        "several processes or GPUs train it": bool({type(inner).__name__ for inner in modules} & _PARALLEL)
        or (distributed.is_available() and distributed.is_initialized()),
        "it has hooks": any(getattr(inner, name, None) for inner in modules for name in hooks)
        or any(common.get(f"_global{name}") for name in hooks)
        or any(weight._backward_hooks for weight in weights),
        "its weights and inputs are not on the current GPU": {(each.type, each.index) for each in devices} != {current},
        "its inputs are not only tensors and plain values": not all(
            isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves
        ),
        "its inputs need gradients": any(leaf.requires_grad for leaf in tensors),
        "it has no trained weights": not any(weight.requires_grad for weight in weights),
        "it has weights of a special kind": any(type(weight) is not torch.nn.Parameter for weight in weights),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def _attributes(modules: list[Any]) -> list[Any]:
    """Return a fingerprint of the attributes, except parameters, buffers and modules."""
    owners = [vars(inner) for inner in modules]
    kinds = {kind for inner in modules for kind in type(inner).__mro__}
    owners += [vars(kind) for kind in kinds if not kind.__module__.startswith("torch.")]
    names = ("_parameters", "_buffers", "_modules", "forward", "training")
    return [(name, _fingerprint(value)) for owner in owners for name, value in owner.items() if name not in names]


def _form(leaf: Any) -> Any:  # noqa: ANN401
    """Return the part of an argument that must not change between calls: the shape of a tensor, or a value."""
    return (leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)


def _norms(module: Any) -> list[float]:  # noqa: ANN401
    """Return a fingerprint of the values of weights."""
    with torch.no_grad():
        norms: list[float] = torch.stack(
            [each.float() for each in torch._foreach_norm([*module.parameters()])]
        ).tolist()
    return norms


def _place(tensor: Any) -> tuple[int, int, bool]:  # noqa: ANN401
    return id(tensor), tensor.data_ptr(), tensor.requires_grad


def _autocast() -> tuple[Any, ...]:
    # since torch 2.4
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(_KIND), torch.get_autocast_dtype(_KIND)
    return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()


def _uncached() -> Any:  # noqa: ANN401
    """Return the current autocast without its cache: tensors cast earlier are not part of a graph."""
    is_on, kind = _autocast()
    return torch.autocast(_KIND, kind, enabled=is_on, cache_enabled=False)


def _random_state() -> list[Any]:
    """Return the states of the generators of Python, NumPy and PyTorch on the CPU."""
    numpy: Any = sys.modules.get("numpy")
    states = [random.getstate(), torch.get_rng_state().tolist()]
    # all except the first are numbers, or arrays of numbers
    return [*states, *(numpy.asarray(each).tolist() for each in numpy.random.get_state()[1:])] if numpy else states


def _fingerprint(value: Any) -> Any:  # noqa: ANN401
    """Return a fingerprint of an attribute: its identity, and the parts that may change within it."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    return id(value), len(value) if isinstance(value, (list, dict, set)) else 0


@contextmanager
def _noting_hooks(hooks: list[Any]) -> Iterator[None]:
    """Record the tensors that get a hook."""
    register = torch.Tensor.register_hook

    def noted(self: Any, hook: Any) -> Any:  # noqa: ANN401
        hooks.append(self)
        return register(self, hook)

    torch.Tensor.register_hook = noted
    try:
        yield
    finally:
        torch.Tensor.register_hook = register
