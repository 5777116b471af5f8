"""Traces in torch.profiler's format, written event by event, and what refusing one has to say."""

import json
from pathlib import Path
from typing import Any

import pytest

from nightsight.errors import CaptureError
from nightsight.read.kineto import read_kineto

ON_GPU = {"device": 0, "context": 1, "stream": 7, "correlation": 5}

Event = dict[str, Any]


def kernel(**changes: Any) -> Event:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20.5, "dur": 4.0, "args": ON_GPU}
    return event | changes


def copy(name: str = "Memcpy HtoD (Pinned -> Device)", **arguments: Any) -> Event:
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    return kernel(cat=category, name=name, args={**ON_GPU, "bytes": 64, **arguments})


def call(**changes: Any) -> Event:
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 44, "tid": 45, "ts": 10, "dur": 2.25}
    return event | {"args": {"correlation": 5}} | changes


def write(folder: Path, *events: object, **fields: object) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **fields}))
    return path


def refusal(path: Path) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        read_kineto(path)
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    assert caught.value.hint
    return caught.value
