"""Record the results of a program: its losses and clipped gradient norms, or the outputs of its models.

Outputs count only in a program without a backward pass. Values stay on their device until the program ends, so that
nothing waits for them. Python, NumPy and PyTorch are seeded on import; a program that sets its own seeds overrides
this. Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import atexit
import json
import os
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

# the number of recorded losses, and of recorded outputs of models
_MOST = 2_000
_MOST_OUTPUTS = 64
# the numbers of an output whose order affects the checksum
_SAMPLE = 65_536
_SEED = 20_240_607


class Outcomes:
    """The values of a process, in order, and the changes of the switches."""

    def __init__(self, folder: str) -> None:
        self.folder, self.process = Path(folder), os.getpid()
        self.losses: list[Any] = []
        self.outputs: list[Any] = []
        self.norms: list[Any] = []
        self.effects: Any = None
        self.torch = ""
        self.is_saved = False
        # for a program without torch
        atexit.register(self.save)

    def watch(self, torch: Any) -> None:  # noqa: ANN401
        """Record values of torch, and write them when the process ends."""
        self.torch = str(torch.__version__)
        with suppress(Exception):
            torch.manual_seed(_SEED)
        # runs before handlers that were registered earlier, and before CUDA shuts down
        atexit.register(self.save)
        backward = torch.autograd.backward

        @wraps(backward)
        def noted(tensors: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            with suppress(Exception):
                first = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
                if first.numel() == 1 and len(self.losses) < _MOST:
                    self.losses.append(first.detach().double().reshape(()).clone())
            return backward(tensors, *given, **named)

        torch.autograd.backward = noted
        clip = torch.nn.utils.clip_grad_norm_

        @wraps(clip)
        def clipped(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            norm = clip(*given, **named)
            with suppress(Exception):
                if len(self.norms) < _MOST:
                    self.norms.append(norm.detach().double().clone())
            return norm

        torch.nn.utils.clip_grad_norm_ = clipped
        call = torch.nn.Module.__call__
        depth = [0]

        @wraps(call)
        def called(module: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            if depth[0] or _is_recorded(torch) or len(self.outputs) >= _MOST_OUTPUTS:
                return call(module, *given, **named)
            depth[0] += 1
            try:
                result = call(module, *given, **named)
            finally:
                depth[0] -= 1
            with suppress(Exception):
                value = _first_tensor(torch, result)
                # a softmax or dropout is not a model, and its result may be deferred
                is_model = any((module._modules, module._parameters, module._buffers))
                if value is not None and is_model:
                    self.outputs.append(_summary(torch, value.detach()))
            return result

        torch.nn.Module.__call__ = called

    def save(self) -> None:
        """Write the values of this process; a fork has none."""
        if os.getpid() != self.process or self.is_saved:
            return
        self.is_saved = True
        with suppress(Exception):
            self.effects.finish()
            document = {
                "losses": [float(value) for value in self.losses],
                "norms": [float(value) for value in self.norms],
                "outputs": [float(value) for value in self.outputs],
                "effects": dict(self.effects.count),
                "torch": self.torch,
                "why": self.effects.why,
                "places": self.effects.places,
            }
            # in a job, by rank, because process ids differ from run to run
            rank = os.environ.get("RANK", "")
            name = f"{rank if rank.isdecimal() else 0}.{self.process}"
            aside = self.folder / f"{name}.aside"
            aside.write_text(json.dumps(document), encoding="utf-8")
            aside.replace(self.folder / f"{name}.outcome")


def _is_recorded(torch: Any) -> bool:  # noqa: ANN401
    """Whether the current code is being compiled or captured as a CUDA graph, which must not contain our work."""
    compiles = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    captures = getattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return bool(compiles() or (torch.cuda.is_initialized() and captures()))


def _summary(torch: Any, value: Any) -> Any:  # noqa: ANN401
    """Return a checksum of a tensor, which depends on its magnitude, signs and order."""
    flat = value.float().reshape(-1)
    sample = flat[:: max(flat.numel() // _SAMPLE, 1)]
    place = torch.arange(sample.numel(), device=sample.device, dtype=torch.float32)
    return (flat.abs().mean() + (sample * torch.cos(place)).mean()).double()


def _first_tensor(torch: Any, result: Any) -> Any:  # noqa: ANN401
    """Return the first floating-point tensor of a model's output; None without one."""
    if isinstance(result, torch.Tensor):
        return result if result.is_floating_point() and result.numel() else None
    values = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    return next(filter(lambda value: value is not None, (_first_tensor(torch, value) for value in values)), None)


def seed_others(on_import: Callable[..., object]) -> None:
    """Seed the generators of Python and NumPy."""
    import random  # noqa: PLC0415 (in the program, only if asked for)

    random.seed(_SEED)
    on_import({"numpy": lambda module: module.random.seed(_SEED)})
