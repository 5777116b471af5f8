"""Compiled code that does not stay compiled: graph breaks, and compilations and recordings of CUDA graphs in each step.

The two forms of a program have functions of their own: torch.compile keeps what it compiled with the code.
"""

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU

Tensor = Any
# with the default of 8, torch.compile gives up and runs the function as Python
torch._dynamo.config.recompile_limit = 1000
torch._dynamo.config.accumulated_recompile_limit = 10_000
# of matrices; a test on a CPU makes them small
LARGE, SMALL = 4096, 1024
LOG = Path(os.devnull).open("w")  # noqa: SIM115 (open as long as the program)
LEVEL = 0
gelu = torch.nn.functional.gelu


def frozen(module: Any) -> Any:
    return module.to(GPU, torch.bfloat16).requires_grad_(requires_grad=False)


def random(*shape: int, dtype: Any = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device=GPU, dtype=dtype)


# -- graph breaks -----------------------------------------------------------------------------------------------------


def quantized_by_number(values: Tensor, weight: Tensor) -> Tensor:
    largest = values.abs().amax().item()
    scale = 127 / max(largest, 1e-6)
    return gelu(((values * scale).round().clamp(-127, 127) / scale) @ weight)


def quantized_by_tensor(values: Tensor, weight: Tensor) -> Tensor:
    scale = 127 / values.abs().amax().clamp(min=1e-6)
    return gelu(((values * scale).round().clamp(-127, 127) / scale) @ weight)


def compiled_item(bad: bool) -> Step:
    layer = torch.compile(quantized_by_number if bad else quantized_by_tensor)
    weights, batch = [random(LARGE, LARGE) / 64 for _ in range(24)], random(SMALL, LARGE)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            values = batch
            for weight in weights:
                values = layer(values, weight)

    return step


def stages(count: int) -> tuple[Any, ...]:
    linear, activation = torch.nn.Linear, torch.nn.GELU
    layers = [[part for _ in range(4) for part in (linear(SMALL, SMALL), activation())] for _ in range(count)]
    return tuple(frozen(torch.nn.Sequential(*parts)) for parts in layers)


def with_prints(parts: tuple[Any, ...], values: Tensor) -> Tensor:
    first, second, third, fourth, fifth, sixth = parts
    values = first(values)
    print("first", tuple(values.shape), values.dtype, file=LOG)
    values = second(values)
    print("second", tuple(values.shape), values.dtype, file=LOG)
    values = third(values)
    print("third", tuple(values.shape), values.dtype, file=LOG)
    values = fourth(values)
    print("fourth", tuple(values.shape), values.dtype, file=LOG)
    values = fifth(values)
    print("fifth", tuple(values.shape), values.dtype, file=LOG)
    return sixth(values)


def without_prints(parts: tuple[Any, ...], values: Tensor) -> Tensor:
    for part in parts:
        values = part(values)
    return values


def compiled_print(bad: bool) -> Step:
    parts, batch = stages(6), random(SMALL, SMALL)
    return inference(with_prints if bad else without_prints, lambda _: (parts, batch))


def with_hashes(parts: tuple[Any, ...], table: Tensor, values: Tensor) -> Tensor:
    first, second, third, fourth, fifth, sixth = parts
    values = first(values) + table[zlib.crc32(b"first") % 64]
    values = second(values) + table[zlib.crc32(b"second") % 64]
    values = third(values) + table[zlib.crc32(b"third") % 64]
    values = fourth(values) + table[zlib.crc32(b"fourth") % 64]
    values = fifth(values) + table[zlib.crc32(b"fifth") % 64]
    return sixth(values)


def with_rows(parts: tuple[Any, ...], table: Tensor, rows: tuple[int, ...], values: Tensor) -> Tensor:
    *earlier, last = parts
    for part, row in zip(earlier, rows, strict=True):
        values = part(values) + table[row]
    return last(values)


def compiled_call(bad: bool) -> Step:
    parts, table, batch = stages(6), frozen(torch.nn.Embedding(64, SMALL)).weight, random(SMALL, SMALL)
    if bad:
        return inference(with_hashes, lambda _: (parts, table, batch))
    rows = tuple(zlib.crc32(name) % 64 for name in (b"first", b"second", b"third", b"fourth", b"fifth"))
    return inference(with_rows, lambda _: (parts, table, rows, batch))


def inference(function: Callable[..., Tensor], arguments: Callable[[int], tuple[Any, ...]]) -> Step:
    """Return a step that calls a compiled function, with CUDA graphs."""
    run = torch.compile(function, mode="reduce-overhead")

    def step(number: int) -> None:
        with nvtx.annotate("step"):
            torch.compiler.cudagraph_mark_step_begin()
            run(*arguments(number))

    return step


def product() -> Callable[[], Any]:
    """Return what else a step does: a few milliseconds of the GPU, and next to nothing of the CPU."""
    left, right, result = (random(2 * LARGE, 2 * LARGE) for _ in range(3))
    return lambda: torch.mm(left, right, out=result)


# -- compiled again ---------------------------------------------------------------------------------------------------


def attended_one_size(scores: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(scores * 0.125, -1) * torch.sigmoid(values)


def attended_any_size(scores: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(scores * 0.125, -1) * torch.sigmoid(values)


def compiled_shape(bad: bool) -> Step:
    run = torch.compile(attended_one_size, dynamic=False) if bad else torch.compile(attended_any_size)
    multiply = product()

    def step(number: int) -> None:
        with nvtx.annotate("step"):
            multiply()
            # each length once, in no order
            length = 128 + 8 * (number * 37 % 211)
            scores, values = random(SMALL // 32, length, SMALL // 2), random(SMALL // 32, length, SMALL // 2)
            if not bad:
                torch._dynamo.mark_dynamic(scores, 1)
                torch._dynamo.mark_dynamic(values, 1)
            run(scores, values)

    return step


class CountsInPython(torch.nn.Module):
    """Noise that fades, by an integer."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 1

    def forward(self, values: Tensor, noise: Tensor) -> Tensor:
        self.seen += 1
        return torch.softmax(values + noise / self.seen, -1)


class CountsOnGPU(torch.nn.Module):
    """Noise that fades, by a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones((), device=GPU))

    def forward(self, values: Tensor, noise: Tensor) -> Tensor:
        self.seen += 1
        return torch.softmax(values + noise / self.seen, -1)


def compiled_integer(bad: bool) -> Step:
    run = torch.compile(CountsInPython() if bad else CountsOnGPU())
    values, noise, multiply = random(2 * LARGE, LARGE), random(2 * LARGE, LARGE), product()

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            multiply()
            run(values, noise)

    return step


def at_global_level(values: Tensor) -> Tensor:
    return torch.softmax(values * LEVEL, -1)


def at_level(values: Tensor, level: int) -> Tensor:
    return torch.softmax(values * level, -1)


def compiled_global(bad: bool) -> Step:
    run = torch.compile(at_global_level if bad else at_level)
    values, multiply = random(2 * LARGE, LARGE), product()

    def step(number: int) -> None:
        global LEVEL  # noqa: PLW0603 (the fault)
        LEVEL = number + 2
        with nvtx.annotate("step"):
            multiply()
            run(values) if bad else run(values, LEVEL)

    return step


# -- recorded again ---------------------------------------------------------------------------------------------------


class Adapted(torch.nn.Module):
    """Layers with an adapter, which each request has of its own."""

    def __init__(self) -> None:
        super().__init__()
        (self.layers,) = stages(1)
        self.adapter = torch.nn.Parameter(random(SMALL, SMALL), requires_grad=False)


class TakesAdapter(Adapted):
    """Requests replace the adapter."""

    def forward(self, values: Tensor) -> Tensor:
        return self.layers(values) + values @ self.adapter


class CopiesAdapter(Adapted):
    """Requests are copied into the adapter."""

    def forward(self, values: Tensor) -> Tensor:
        return self.layers(values) + values @ self.adapter


def compiled_addresses(bad: bool) -> Step:
    model, batch, multiply = TakesAdapter() if bad else CopiesAdapter(), random(SMALL, SMALL), product()
    adapters = [random(SMALL, SMALL) for _ in range(128)]
    run = torch.compile(model, mode="reduce-overhead")

    def step(number: int) -> None:
        with nvtx.annotate("step"):
            multiply()
            adapter = adapters[number % len(adapters)]
            if bad:
                model.adapter.data = adapter
            else:
                model.adapter.data.copy_(adapter)
            torch.compiler.cudagraph_mark_step_begin()
            run(batch)

    return step
