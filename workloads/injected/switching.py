"""Change a program from outside, one switch at a time: the fixes of advice, without editing the program.

Each switch is a function that changes a module when it is imported, and counts its changes: a switch with nothing to
change has no effect. A search counts the possible changes without making them, so one run of the program shows which
switches can have an effect. Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
from collections import Counter
from contextlib import suppress
from functools import wraps
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 (Python 3.8)
from weakref import WeakKeyDictionary, ref

# the number of changes of a switch whose lines are recorded: each takes a few microseconds
_PLACES = 20
# the least bytes of a copy that justify pinned memory, and the most bytes of a tensor that is pinned as a whole
_LARGE, _PINNED = 1 << 20, 4 << 30
_WORKERS = 8
_BATCHES = 8
_BUCKET_MB = 100
# relative errors of an operation, and the bytes of a number in FP32
_COARSE, _FINE = 2e-3, 1e-6
_SINGLE = 4
# the dimensions of images and volumes, including batch and channels
_IMAGE, _VOLUME = 4, 5


class Effects:
    """The changes of the switches: `count` by switch, and `why` a switch could not change more.

    places: the changed lines of the program, by switch. holds: whether the change of a switch still holds, because the
    program may set the same option. is_search: changes are counted, but not made.
    """

    def __init__(self, *, is_search: bool = False) -> None:
        self.is_search = is_search
        self.count: Counter[str] = Counter()
        self.why: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, int]]] = {}
        self.holds: dict[str, Callable[[], bool]] = {}

    def finish(self) -> None:
        """Do not count the changes that the program has undone."""
        for name, holds in self.holds.items():
            try:
                is_there = holds()
            except Exception as error:  # noqa: BLE001 (it may be the user's)
                is_there = False
                self.why[name] = f"its function `holds` failed: {type(error).__name__}"
            if not is_there:
                self.count[name] = 0
                self.why.setdefault(name, "the program sets it itself")

    def applies(self, name: str) -> bool:
        """Count a change, and record its line in the program; return whether to make it."""
        self.count[name] += 1
        if self.count[name] <= _PLACES:
            place = _place_in_program(sys._getframe(1))
            if place and place not in self.places.setdefault(name, []):
                self.places[name].append(place)
        return not self.is_search

    def spoil(self, name: str, why: str) -> None:
        """Record that the results of the program are no longer valid for a switch."""
        self.why.setdefault(name, why)
        self.holds[name] = lambda: False

    def failed(self, name: str, error: BaseException) -> None:
        """Record why a switch could not change something: the type of the error, because its text may be private."""
        self.why.setdefault(name, type(error).__name__)


Change = Callable[[Any, Effects], None]


def _place_in_program(frame: Any) -> tuple[str, int] | None:  # noqa: ANN401
    """Return the file and line of the innermost caller outside libraries; None without one."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, "<")) and "site-packages" not in file and "dist-packages" not in file:
            return file, frame.f_lineno
        frame = frame.f_back
    return None


_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).resolve().parents[1]),
)


def start(names: list[str], on_import: Callable[..., object], effects: Effects) -> None:
    """Turn these switches on, each when its module is imported; a name that ends in .py is a user's file."""
    by_module: dict[str, list[tuple[str, Change]]] = {}
    for name in filter(None, names):
        try:
            changes = [_of_file(name)] if name.endswith(".py") else [SWITCHES[name]]
        except Exception as error:  # noqa: BLE001 (others must go on)
            effects.failed(name, error)
            continue
        if name in _SECOND:
            changes.append(_SECOND[name])
        for module, change in changes:
            by_module.setdefault(module, []).append((name, change))

    def change_all(chosen: list[tuple[str, Change]]) -> Callable[[Any], None]:
        def changed(module: Any) -> None:  # noqa: ANN401
            for name, change in chosen:
                try:
                    change(module, effects)
                except Exception as error:  # noqa: BLE001 (the program must go on)
                    effects.failed(name, error)

        return changed

    on_import({module: change_all(chosen) for module, chosen in by_module.items()})


def _of_file(path: str) -> tuple[str, Change]:
    """Return the module and the change of a user's switch (docs/prove.md)."""
    namespace: dict[str, Any] = {"__name__": "nightsight_switch", "__file__": path}
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), namespace)  # noqa: S102 (the user's own)

    def change(module: Any, effects: Effects) -> None:  # noqa: ANN401
        try:
            namespace["change"](module)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            effects.why[path] = f"its function `change` failed: {type(error).__name__}"
            return
        effects.count[path] += 1
        effects.why[path] = "its function `holds` says so"
        effects.holds[path] = namespace["holds"]

    return namespace["MODULE"], change


def _tf32(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    if torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32:
        effects.why["tf32"] = "is on already"
        return

    def holds() -> bool:
        is_on = bool(torch.backends.cuda.matmul.allow_tf32)
        if is_on and not torch.backends.cudnn.allow_tf32:
            effects.why["tf32"] = "the program turns it off for convolutions"
        return is_on

    if effects.applies("tf32"):
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        effects.holds["tf32"] = holds


def _cudnn_benchmark(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    if effects.applies("cudnn_benchmark"):
        torch.backends.cudnn.benchmark = True
        effects.holds["cudnn_benchmark"] = lambda: torch.backends.cudnn.benchmark


def _cudnn_attention(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    if not torch.backends.cuda.cudnn_sdp_enabled():
        effects.why["cudnn_attention"] = "attention of cuDNN is off"
        return
    if effects.applies("cudnn_attention"):
        torch.backends.cuda.enable_flash_sdp(False)
        effects.holds["cudnn_attention"] = lambda: not torch.backends.cuda.flash_sdp_enabled()


def _around_models(torch: Any, change: Callable[[Any, Any, Any, Any], Any]) -> None:  # noqa: ANN401
    """Let `change` call outermost modules: it receives the call, the module, and its arguments."""
    call = torch.nn.Module.__call__
    depth = [0]

    @wraps(call)
    def called(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        compiles = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        if compiles() or depth[0]:
            return call(self, *given, **named)
        depth[0] += 1
        try:
            return change(call, self, given, named)
        finally:
            depth[0] -= 1

    torch.nn.Module.__call__ = called


def _bf16(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        if torch.is_autocast_enabled():
            effects.why["bf16"] = "autocast is on already"
            return call(module, *given, **named)
        if not effects.applies("bf16"):
            return call(module, *given, **named)
        with torch.autocast("cuda" if torch.cuda.is_available() else "cpu", torch.bfloat16):
            return call(module, *given, **named)

    _around_models(torch, change)


def _bf16_weights(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Convert models to BF16 when they are first called without gradients; inputs and outputs keep their types."""
    converted: Any = WeakKeyDictionary()

    def with_type(value: Any, old: Any, new: Any) -> Any:  # noqa: ANN401
        return _each_tensor(torch, value, lambda tensor: tensor.to(new) if tensor.dtype == old else tensor)

    def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        if torch.is_grad_enabled() or module.training:
            effects.why.setdefault("bf16_weights", "the model is trained")
            return call(module, *given, **named)
        if module not in converted:
            is_float = any(value.dtype == torch.float32 for value in module.parameters())
            converted[module] = is_float and effects.applies("bf16_weights")
            if converted[module]:
                module.to(torch.bfloat16)
        if not converted[module]:
            return call(module, *given, **named)
        given, named = with_type((given, named), torch.float32, torch.bfloat16)
        return with_type(call(module, *given, **named), torch.bfloat16, torch.float32)

    _around_models(torch, change)


def _each_tensor(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Return a value with all its tensors changed. Outputs of transformers change in place."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        changed = {key: _each_tensor(torch, each, change) for key, each in value.items()}
        if type(value) is dict:
            return changed
        for key, each in changed.items():
            value[key] = each
        return value
    if type(value) in (tuple, list):
        return type(value)(_each_tensor(torch, each, change) for each in value)
    return value


def _channels_last(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    # by module, the numbers of dimensions of the weights of its convolutions
    changed: Any = WeakKeyDictionary()
    formats = {_IMAGE: torch.channels_last, _VOLUME: torch.channels_last_3d}
    kinds = (torch.nn.Conv2d, torch.nn.Conv3d)
    is_lazy = torch.nn.parameter.is_lazy

    def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        if module not in changed:
            weights = [each.weight for each in module.modules() if isinstance(each, kinds) and not is_lazy(each.weight)]
            changed[module] = set()
            if weights and effects.applies("channels_last"):
                changed[module] = {weight.dim() for weight in weights}
                for weight in weights:
                    weight.data = as_last(weight.data, changed[module])
        if changed[module]:
            given, named = _each_tensor(torch, (given, named), lambda value: as_last(value, changed[module]))
        return call(module, *given, **named)

    def as_last(value: Any, dimensions: set[int]) -> Any:  # noqa: ANN401
        has_channels = value.dim() in dimensions and value.is_floating_point()
        return value.contiguous(memory_format=formats[value.dim()]) if has_channels else value

    _around_models(torch, change)


# modes of torch.compile that replay CUDA graphs
_MODES_WITH_GRAPHS = ("reduce-overhead", "max-autotune")


def _compiled(name: str, **options: Any) -> Change:  # noqa: ANN401
    """Return the switch that compiles the models of a program, each at its first call."""

    def change_torch(torch: Any, effects: Effects) -> None:  # noqa: ANN401
        compiled: Any = WeakKeyDictionary()
        has_graphs = options.get("mode") in _MODES_WITH_GRAPHS
        begins_step = _steps_of_graphs(torch) if has_graphs else lambda: None

        def kept(result: Any) -> Any:  # noqa: ANN401
            # the graphs of the next step overwrite what these return, and a program may use it in all of its steps
            if not has_graphs:
                return result
            return _each_tensor(torch, result, lambda tensor: tensor if tensor.requires_grad else tensor.clone())

        def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
            if type(module).__name__ == "OptimizedModule":
                effects.why[name] = "is compiled already"
                return call(module, *given, **named)
            is_first = module not in compiled
            if is_first:
                compiled[module] = effects.applies(name)
            if compiled[module]:
                begins_step()
            if is_first and compiled[module]:
                forward = module.forward
                try:
                    # in place, so that all references to the module call the compiled code
                    module.forward = torch.compile(forward, **options)
                    return kept(call(module, *given, **named))
                except Exception as error:  # noqa: BLE001 (a model that cannot be compiled runs unchanged)
                    module.forward = forward
                    compiled[module] = False
                    effects.failed(name, error)
                    effects.count[name] -= 1
            result = call(module, *given, **named)
            return kept(result) if compiled[module] else result

        _around_models(torch, change)

    return change_torch


def _steps_of_graphs(torch: Any) -> Callable[[], None]:  # noqa: ANN401
    """Return what to call before each model: it tells torch.compile when the memory of CUDA graphs may be used again.

    Left to itself, torch.compile takes each compiled part of a model that needs no gradients for a new step, and
    overwrites what the part before it returned. A step begins with the first call after an update, and without
    gradients with each call.
    """
    is_updated = [True]

    def note(*_: object) -> None:
        is_updated[0] = True

    # of torch 2.1 and later; torch.optim deletes its attribute `optimizer`
    hook = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if not hook:
        return lambda: None
    hook(note)

    def begins_step() -> None:
        if is_updated[0] or not torch.is_grad_enabled():
            is_updated[0] = False
            torch.compiler.cudagraph_mark_step_begin()

    return begins_step


def _next_to_this(name: str) -> Any:  # noqa: ANN401
    """Load a module of this folder, which needs torch."""
    spec: Any = spec_from_file_location(f"nightsight_{name}", Path(__file__).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cuda_graphs(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    _around_models(torch, _next_to_this("graphs").Graphs(effects).called)


def _compile_dynamic(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Compile the functions that the program compiles for all shapes at once."""
    compile_now = torch.compile

    @wraps(compile_now)
    def compiled(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        if named.get("dynamic") is None and effects.applies("compile_dynamic"):
            named["dynamic"] = True
        return compile_now(*given, **named)

    torch.compile = compiled


def _gc_freeze(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Exclude objects that exist at the first call of a model from garbage collection."""

    def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        if not effects.count["gc_freeze"] and effects.applies("gc_freeze"):
            gc.collect()
            gc.freeze()
        return call(module, *given, **named)

    _around_models(torch, change)


def _reduce_once(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Reduce gradients only in the last pass before an update, once two updates had the same number of passes.

    The next update may come after fewer passes: then its gradients are not reduced, and results differ.
    """
    parallel = torch.nn.parallel.DistributedDataParallel
    forward = parallel.forward
    # the passes since the last update, and those of the two updates before
    passes = [0, 0, 0]

    def update(*_: Any) -> None:  # noqa: ANN401
        passes[:] = [0, *passes[:2]]

    @wraps(forward)
    def called(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        trains = torch.is_grad_enabled()
        passes[0] += trains
        is_early = trains and passes[0] < passes[1] == passes[2] and self.require_backward_grad_sync
        if is_early and effects.applies("reduce_once"):
            with self.no_sync():
                return forward(self, *given, **named)
        return forward(self, *given, **named)

    # not an attribute of torch.optim; since torch 2.0
    import_module("torch.optim.optimizer").register_optimizer_step_post_hook(update)
    parallel.forward = called


def _fused_optimizer(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Create Adam, AdamW, SGD and Adagrad with fused=True, unless the program sets the option."""
    for kind in ("Adam", "AdamW", "SGD", "Adagrad"):
        optimizer = getattr(torch.optim, kind, None)
        if optimizer is not None:
            _fuse(optimizer, effects)


def _fuse(optimizer: Any, effects: Effects) -> None:  # noqa: ANN401
    create = optimizer.__init__

    @wraps(create)
    def init(self: Any, params: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
        params = list(params)
        # AdamW is a subclass of Adam, and calls its constructor
        if named.get("fused") is None and not getattr(self, "nightsight_fuses", False):
            self.nightsight_fuses = True
            if effects.applies("fused_optimizer"):
                try:
                    # fused excludes foreach
                    create(self, params, *given, **{**named, "foreach": None, "fused": True})
                except Exception as error:  # noqa: BLE001 (parameters that cannot be fused)
                    effects.failed("fused_optimizer", error)
                    effects.count["fused_optimizer"] -= 1
                else:
                    return
        create(self, params, *given, **named)

    optimizer.__init__ = init


def _options(name: str, kind: str, wanted: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Return the switch that adds options when a class is created; `wanted` receives the program's options."""

    def change(module: Any, effects: Effects) -> None:  # noqa: ANN401
        changed_class = getattr(module, kind)
        create = changed_class.__init__

        @wraps(create)
        def init(self: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
            # by name, whether the program passes an option by name or by position
            _, *names = signature(create).parameters
            arguments = {**dict(zip(names, given)), **named}  # noqa: B905 (Python 3.8)
            changed = wanted(arguments)
            if changed and effects.applies(name):
                create(self, **{**arguments, **changed})
            else:
                create(self, *given, **named)

        changed_class.__init__ = init

    return change


def _loader(name: str, wanted: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[str, Change]:
    return "torch.utils.data.dataloader", _options(name, "DataLoader", wanted)


def _ddp(name: str, **wanted: Any) -> tuple[str, Change]:  # noqa: ANN401
    """Return the switch that changes options of DistributedDataParallel that the program does not set."""

    def missing(named: dict[str, Any]) -> dict[str, Any]:
        return {option: value for option, value in wanted.items() if not named.get(option)}

    return "torch.nn.parallel.distributed", _options(name, "DistributedDataParallel", missing)


def _workers(named: dict[str, Any]) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(_WORKERS, cores)
    return {} if named.get("num_workers") else {"num_workers": count, "persistent_workers": True}


def _persistent(named: dict[str, Any]) -> dict[str, Any]:
    return {"persistent_workers": True} if named.get("num_workers") and not named.get("persistent_workers") else {}


def _prefetched(named: dict[str, Any]) -> dict[str, Any]:
    return {"prefetch_factor": _BATCHES} if named.get("num_workers") and not named.get("prefetch_factor") else {}


def _pinned(named: dict[str, Any]) -> dict[str, Any]:
    return {} if named.get("pin_memory") else {"pin_memory": True}


def _non_blocking(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Make copies of pinned tensors to the GPU non-blocking."""
    for name in ("to", "cuda"):
        copy = getattr(torch.Tensor, name)

        @wraps(copy)
        def copied(self: Any, *given: Any, _copy: Any = copy, **named: Any) -> Any:  # noqa: ANN401
            if "non_blocking" not in named and not self.is_cuda and self.is_pinned():
                with suppress(TypeError):
                    is_changed = effects.applies("non_blocking")
                    return _copy(self, *given, non_blocking=is_changed, **named)
                effects.count["non_blocking"] -= 1
            return _copy(self, *given, **named)

        setattr(torch.Tensor, name, copied)


def _pinned_copies(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Make large copies to the GPU from pinned memory, without blocking.

    A tensor that is copied repeatedly, such as a dataset in memory, is pinned as a whole until it changes.
    """
    copies: dict[int, tuple[Any, int, Any]] = {}

    def in_pinned(tensor: Any) -> Any:  # noqa: ANN401
        # in the order of its dimensions, by which convolutions choose their kernels
        return torch.empty_like(tensor, pin_memory=True).copy_(tensor.detach())

    def pinned(tensor: Any) -> Any:  # noqa: ANN401
        base = tensor if tensor._base is None else tensor._base
        # memory of NumPy or of another process can change unnoticed
        if not base.untyped_storage().resizable():
            return in_pinned(tensor)
        key = id(base)
        _, version, copy = copies.get(key, (None, -1, None))
        is_again = version == base._version
        if is_again and copy is None and base.numel() * base.element_size() <= _PINNED:
            copy = in_pinned(base)
        is_alike = copy is not None and copy.stride() == base.stride()
        copies[key] = ref(base, lambda _: copies.pop(key, None)), base._version, copy if is_again else None
        if is_again and is_alike:
            return copy.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset() - base.storage_offset())
        return in_pinned(tensor)

    for name in ("to", "cuda"):
        copy_now = getattr(torch.Tensor, name)

        @wraps(copy_now)
        def copied(self: Any, *given: Any, _copy: Any = copy_now, _name: str = name, **named: Any) -> Any:  # noqa: ANN401
            target = given[0] if given else named.get("device", "cuda" if _name == "cuda" else None)
            is_to_gpu = isinstance(target, (str, int, torch.device)) and torch.device(target).type == "cuda"
            size = self.numel() * self.element_size()
            # a second argument by position may be `non_blocking`
            is_plain = type(self) is torch.Tensor and self.device.type == "cpu" and len(given) <= 1
            is_plain = is_plain and not (self.requires_grad or self.is_inference()) and torch.cuda.is_available()
            if not (is_to_gpu and is_plain and size >= _LARGE) or self.is_pinned():
                return _copy(self, *given, **named)
            if not effects.applies("pinned_copies"):
                return _copy(self, *given, **named)
            return _copy(pinned(self), *given, **{**named, "non_blocking": True})

        setattr(torch.Tensor, name, copied)


class _Later:
    """A number on the GPU that is read when the program uses it. Sums of such numbers stay on the GPU."""

    # the blocking method of tensors
    read: Any = None

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401
        self._tensor = tensor

    def __float__(self) -> float:
        value: float = _Later.read(self._tensor)
        return value

    def __bool__(self) -> bool:
        return bool(float(self))

    def __int__(self) -> int:
        return int(float(self))

    def __hash__(self) -> int:
        return hash(float(self))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(float(self), name)


def _of_later(name: str) -> Callable[..., Any]:
    """Return an operation of `_Later`: with numbers, it runs on the GPU; otherwise, it is the operation of a float."""
    reverse = f"__{name[3:]}" if name.startswith("__r") else f"__r{name[2:]}"

    def operate(self: Any, *others: Any) -> Any:  # noqa: ANN401
        if name in _STAY and all(type(other) in (int, float, _Later) for other in others):
            return _Later(getattr(self._tensor, name)(*(getattr(other, "_tensor", other) for other in others)))
        plain = [float(other) if type(other) is _Later else other for other in others]
        result = getattr(float(self), name)(*plain)
        # the operation of a tensor, for example, which accepts floats
        return getattr(plain[0], reverse)(float(self)) if result is NotImplemented and name in _BINARY else result

    return operate


_STAY = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__")
_BINARY = (*_STAY[:-1], "__rtruediv__", "__pow__", "__rpow__", "__mod__", "__floordiv__")
for _name in (
    *_BINARY,
    *("__neg__", "__abs__", "__round__", "__str__", "__repr__", "__format__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
):
    setattr(_Later, _name, _of_later(_name))


def _deferred_item(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Make `.item()` of a floating-point number on the GPU return immediately."""
    item = torch.Tensor.item

    @wraps(item)
    def later(self: Any) -> Any:  # noqa: ANN401
        if self.device.type == "cpu" or not self.is_floating_point() or self.numel() != 1:
            return item(self)
        if not effects.applies("deferred_item"):
            return item(self)
        # a copy: the program may change the tensor; Python's numbers are double
        return _Later(self.detach().reshape(()).to(torch.float64, copy=True))

    torch.Tensor.item = later
    _Later.read = item


def _stored_activations(module: Any, effects: Effects) -> None:  # noqa: ANN401
    """Keep activations instead of recomputing them."""
    kept = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
    checkpoint = module.checkpoint

    @wraps(checkpoint)
    def plain(function: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        if not effects.applies("stored_activations"):
            return checkpoint(function, *given, **named)
        return function(*given, **{name: value for name, value in named.items() if name not in kept})

    module.checkpoint = plain


def _without(path: str, name: str) -> Change:
    """Return the switch that makes a function of torch do nothing."""

    def change(torch: Any, effects: Effects) -> None:  # noqa: ANN401
        place = torch
        *outer, last = path.split(".")
        for part in outer:
            place = getattr(place, part)

        function = getattr(place, last)

        @wraps(function)
        def nothing(*given: Any, **named: Any) -> None:  # noqa: ANN401
            if not effects.applies(name):
                function(*given, **named)

        setattr(place, last, nothing)

    return change


def _sdpa(torch: Any, effects: Effects) -> None:  # noqa: ANN401
    """Let modules with two forms of attention use the fused one, and fuse attention written out by hand."""
    seen: Any = WeakKeyDictionary()

    def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
        if module not in seen:
            seen[module] = True
            for inner in module.modules():
                # timm, and libraries that follow its convention
                if getattr(inner, "fused_attn", None) is False and effects.applies("sdpa"):
                    inner.fused_attn = True
        return call(module, *given, **named)

    _around_models(torch, change)
    if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        attention = _next_to_this("attention")
        if effects.is_search:
            attention.count(lambda: effects.applies("sdpa"))
        else:
            attention.fuse(lambda: effects.applies("sdpa"), lambda why: effects.spoil("sdpa", why))


def _sdpa_of_transformers(transformers: Any, effects: Effects) -> None:  # noqa: ANN401
    """Let models of transformers use scaled_dot_product_attention."""
    model = transformers.PreTrainedModel
    create = model.__init__

    @wraps(create)
    def init(self: Any, config: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
        is_eager = getattr(config, "_attn_implementation", None) == "eager"
        if is_eager and getattr(type(self), "_supports_sdpa", False) and effects.applies("sdpa"):
            config._attn_implementation = "sdpa"
        create(self, config, *given, **named)

    model.__init__ = init


def _no_dropout(module: Any, effects: Effects) -> None:  # noqa: ANN401
    """Disable dropout, so that a program with different random numbers computes the same results."""
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        if hasattr(module, name):
            setattr(module, name, _all_kept(getattr(module, name), effects))
    attention = module.scaled_dot_product_attention

    @wraps(attention)
    def attended(
        query: Any,  # noqa: ANN401
        key: Any,  # noqa: ANN401
        value: Any,  # noqa: ANN401
        attn_mask: Any = None,  # noqa: ANN401
        dropout_p: float = 0.0,
        *given: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        effects.count["no_dropout"] += bool(dropout_p)
        return attention(query, key, value, attn_mask, dropout_p if effects.is_search else 0.0, *given, **named)

    module.scaled_dot_product_attention = attended


def _perturbed(name: str, share: float | None) -> Change:
    """Return the switch that perturbs all weights, each at the first call of its model.

    share: how much; None: by as much as another order of operations may change what the model computes.
    """

    def change_torch(torch: Any, effects: Effects) -> None:  # noqa: ANN401
        modules: Any = WeakKeyDictionary()
        weights: set[int] = set()

        def change(call: Any, module: Any, given: Any, named: Any) -> Any:  # noqa: ANN401
            if module not in modules:
                modules[module] = True
                effects.count[name] += 1
                for number, weight in enumerate(module.parameters()):
                    # shared weights, and those of a part that was called before, are already perturbed; lazy ones have
                    # no values
                    with torch.no_grad(), suppress(Exception):
                        if weight.is_floating_point() and id(weight) not in weights:
                            weights.add(id(weight))
                            # the program's own random numbers do not change
                            generator = torch.Generator(weight.device).manual_seed(number)
                            noise = torch.randn(weight.shape, generator=generator, device=weight.device)
                            weight.mul_(1 + (share or _rounding(torch, module, weight)) * noise.to(weight.dtype))
            return call(module, *given, **named)

        _around_models(torch, change)

    return change_torch


def _rounding(torch: Any, module: Any, weight: Any) -> float:  # noqa: ANN401
    """Return the relative error of an operation: that of about 10 bits for TF32, BF16 and FP16, or that of FP32."""
    backends, has_images = torch.backends, any(isinstance(inner, torch.nn.Conv2d) for inner in module.modules())
    is_coarse = torch.is_autocast_enabled() or weight.element_size() < _SINGLE
    is_tf32 = backends.cuda.matmul.allow_tf32 or (has_images and backends.cudnn.allow_tf32)
    return _COARSE if is_coarse or (weight.is_cuda and is_tf32) else _FINE


def _all_kept(dropout: Any, effects: Effects) -> Any:  # noqa: ANN401
    @wraps(dropout)
    def kept(value: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ANN401
        effects.count["no_dropout"] += bool(training and p)
        return dropout(value, p if effects.is_search else 0.0, training, inplace)

    return kept


SWITCHES: dict[str, tuple[str, Change]] = {
    "tf32": ("torch", _tf32),
    "bf16": ("torch", _bf16),
    "bf16_weights": ("torch", _bf16_weights),
    "cudnn_benchmark": ("torch", _cudnn_benchmark),
    "cudnn_attention": ("torch", _cudnn_attention),
    "channels_last": ("torch", _channels_last),
    "fused_optimizer": ("torch", _fused_optimizer),
    "loader_workers": _loader("loader_workers", _workers),
    "persistent_workers": _loader("persistent_workers", _persistent),
    "prefetched_batches": _loader("prefetched_batches", _prefetched),
    "pinned_batches": _loader("pinned_batches", _pinned),
    "non_blocking": ("torch", _non_blocking),
    "pinned_copies": ("torch", _pinned_copies),
    "deferred_item": ("torch", _deferred_item),
    "compile": ("torch", _compiled("compile")),
    "compile_autotune": ("torch", _compiled("compile_autotune", mode="max-autotune")),
    "compile_dynamic": ("torch", _compile_dynamic),
    "compile_graphs": ("torch", _compiled("compile_graphs", mode="reduce-overhead")),
    "cuda_graphs": ("torch", _cuda_graphs),
    "sdpa": ("torch", _sdpa),
    "reduce_once": ("torch", _reduce_once),
    "bucket_views": _ddp("bucket_views", gradient_as_bucket_view=True),
    "static_graph": _ddp("static_graph", static_graph=True),
    "large_buckets": _ddp("large_buckets", bucket_cap_mb=_BUCKET_MB),
    "gc_freeze": ("torch", _gc_freeze),
    "stored_activations": ("torch.utils.checkpoint", _stored_activations),
    "keep_cache": ("torch", _without("cuda.empty_cache", "keep_cache")),
    "no_synchronize": ("torch", _without("cuda.synchronize", "no_synchronize")),
    # not fixes, but aids for comparing results
    "no_dropout": ("torch.nn.functional", _no_dropout),
    "perturbed_rounding": ("torch", _perturbed("perturbed_rounding", None)),
    "perturbed_precision": ("torch", _perturbed("perturbed_precision", _COARSE)),
}
"""The module that a switch waits for, and its change; nightsight/results/switches.py describes each switch."""
_SECOND: dict[str, tuple[str, Change]] = {"sdpa": ("transformers.modeling_utils", _sdpa_of_transformers)}
"""The second module of switches that change two."""
