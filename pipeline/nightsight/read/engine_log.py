"""Reads what an inference engine says of its KV cache and its model: in its log, or in the metrics of its server.

Logs have the time of the wall clock, to the second and without a time zone. Only numbers are read.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from nightsight.read.requests import DAMAGED, LATEST_NS, documents
from nightsight.read.serving import attached_text
from nightsight.tables import TABLES, conform, empty

_GIB: Final = 1 << 30
_NS: Final = 10**9
# logs have whole seconds: in the middle, a time is wrong by half a second at most
_MIDDLE_NS: Final = _NS // 2
_NO_YEAR: Final = 2000
# the lines with the usage of the KV cache: as a share, or in percent
_LINES: Final = (
    # vLLM, v1/metrics/loggers.py, every ten seconds: `INFO 11-28 22:00:05 [loggers.py:248] Engine 000: Avg prompt
    # throughput: 0.0 tokens/s, ..., GPU KV cache usage: 12.3%, ...`
    r"(?P<date>\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d)[^\n]*?(?:Engine (?P<engine>\d+): )?Avg prompt throughput"
    r"[^\n]*?GPU KV cache usage: (?P<pct>[\d.]+)%",
    # SGLang, srt/observability, at each prefill and every 40 decode steps: `[2026-11-28 22:00:05 DP1 TP0] Decode
    # batch. #running-req: 18, #token: 16384, token usage: 0.71, ...`; hybrid models have a `full token usage` first
    r"\[(?P<date>\d{4}-\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d)(?: DP(?P<engine>\d+))?[^\]\n]*\] (?:Decode|Prefill) batch"
    r"[^\n]*?token usage: (?P<share>[\d.]+)",
    # TensorRT-LLM, _torch/pyexecutor, with print_iter_log: `iter = 17, global_rank = 0, ..., kv_cache_util = 0.125,
    # ..., timestamp = 2026-11-28 22:00:05, ...`; all ranks of an engine have the same usage
    r"iter = (?P<iteration>\d+), global_rank = 0,[^\n]*?kv_cache_util = (?P<share>[\d.]+),"
    r"[^\n]*?timestamp = (?P<date>\d{4}-\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d)",
)
_USAGE: Final = tuple(map(re.compile, _LINES))
# vLLM, v1/worker, and before 0.8 `Loading model weights took 14.96 GB`, which also was GiB; SGLang calls GiB GB
_WEIGHTS: Final = (
    re.compile(r"(?:Model loading|Loading model weights) took ([\d.]+) Gi?B"),
    re.compile(r"Load weight end\.[^\n]*?mem usage=([\d.]+) GB"),
)
_VLLM_POOL: Final = (
    re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
)
# SGLang: `KV Cache is allocated. #tokens: 38141, K size: 2.33 GB, V size: 2.33 GB`, or one size for both; TensorRT-LLM
_POOLS: Final = (
    re.compile(
        r"KV Cache is allocated\.[^\n]*?#tokens: (?P<tokens>\d+), K(?:V)? size: (?P<size>[\d.]+) GB"
        r"(?:, V size: (?P<more>[\d.]+) GB)?"
    ),
    re.compile(r"Allocated (?P<size>[\d.]+) GiB for max tokens in paged KV cache \((?P<tokens>\d+)\)"),
)
# gauges between 0 and 1 in the answers of Prometheus, with the label that numbers engines
_GAUGES: Final = {
    "vllm:kv_cache_usage_perc": "engine",
    "vllm:gpu_cache_usage_perc": "engine",
    "sglang:token_usage": "dp_rank",
    "trtllm_kv_cache_utilization": "",
}
_MARKS: Final = (b"KV cache", b"KV Cache", b"token usage", b"kv_cache_util", b"weight")
_DOCUMENTS: Final = (b'"kv_pct"', b'"weight_bytes"', b'"kvCacheStats"', *(f'"{name}"'.encode() for name in _GAUGES))
_TRTLLM_TIME: Final = "%m-%d-%Y %H:%M:%S.%f"


class Sample(NamedTuple):
    """The usage of a KV cache at a time, in an iteration, or both. is_wall: by the wall clock, else since the epoch.

    The year of a wall clock is _NO_YEAR if it is unknown.
    """

    usage_pct: float
    time_ns: int | None = None
    is_wall: bool = False
    iteration: int | None = None
    engine: int = 0


@dataclass(frozen=True)
class EngineLog:
    """What a file says: the usage of the KV cache, and columns of the table `served_model` that it has."""

    samples: Sequence[Sample] = ()
    model: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether the file says anything."""
        return bool(self.samples or self.model)


def read_engine_log(path: Path) -> EngineLog:
    """Return what a file says of an engine; CaptureError if it cannot be read. Damaged lines are left out."""
    content = attached_text(path)
    samples: list[Sample] = []
    models: list[dict[str, int]] = []
    if any(mark in content for mark in _DOCUMENTS):
        for document in documents(content):
            for part in document if isinstance(document, list) else [document]:
                samples += _parsed(_samples_of, part)
                models += _parsed(_model_of, part)
    if any(mark in content for mark in _MARKS):
        text = content.decode(errors="replace")
        for pattern in _USAGE:
            samples += [sample for match in pattern.finditer(text) for sample in _parsed(_logged, match)]
        models += _parsed(_logged_model, text)
    valid = [sample for sample in samples if _is_valid(sample)]
    # a model for speculation is smaller, and has its own lines
    model = {name: max(each.get(name, 0) for each in models) for name in TABLES["served_model"]} if models else {}
    return EngineLog(valid, {name: value for name, value in model.items() if 0 < value < LATEST_NS})


def kv_cache_of(logs: Iterable[EngineLog], *, near_ns: int | None, ahead_ns: int) -> pd.DataFrame:
    """Return the table `kv_cache` of logs, in the order of time, which is since the epoch.

    near_ns: a time in the run, for logs without the year; without it, their times are unknown. ahead_ns: how far the
    wall clock is ahead of UTC.
    """
    rows = [
        (_since_epoch(sample, near_ns, ahead_ns), sample.iteration, sample.engine, sample.usage_pct)
        for log in logs
        for sample in log.samples
    ]
    if not rows:
        return empty("kv_cache")
    frame = pd.DataFrame(rows, columns=list(TABLES["kv_cache"]), dtype="object")
    ordered = conform("kv_cache", frame).sort_values(["time_ns", "iteration"], kind="stable", ignore_index=True)
    return ordered.drop_duplicates(ignore_index=True)


def served_model_of(logs: Iterable[EngineLog]) -> pd.DataFrame:
    """Return the table `served_model` of logs: one row, or none. The last log that knows a fact counts."""
    facts = {name: value for log in logs for name, value in log.model.items()}
    frame = pd.DataFrame([facts] if facts else [], columns=list(TABLES["served_model"]), dtype="object")
    return conform("served_model", frame)


def _since_epoch(sample: Sample, near_ns: int | None, ahead_ns: int) -> int | None:
    if sample.time_ns is None or not sample.is_wall:
        return sample.time_ns
    wall = dt.datetime.fromtimestamp(sample.time_ns // _NS, dt.UTC)
    if wall.year != _NO_YEAR:
        return sample.time_ns - ahead_ns
    if near_ns is None:
        return None
    year = dt.datetime.fromtimestamp(near_ns // _NS, dt.UTC).year
    # in a year without the 29th of February, that day is not meant
    candidates = [
        _wall_ns(wall.replace(year=other)) - ahead_ns
        for other in (year - 1, year, year + 1)
        if (wall.month, wall.day) != (2, 29) or other % 4 == 0
    ]
    return min(candidates, key=lambda time: abs(time - near_ns), default=None)


def _wall_ns(time: dt.datetime) -> int:
    """Return a time to the second in ns, in the middle of that second."""
    return round(time.replace(tzinfo=dt.UTC).timestamp()) * _NS + _MIDDLE_NS


def _parsed(parse: Callable[[Any], Iterator[Any]], part: Any) -> list[Any]:  # noqa: ANN401 (JSON)
    """Return what a part of a file says; nothing if it is damaged."""
    try:
        return list(parse(part))
    except DAMAGED:
        return []


def _is_valid(sample: Sample) -> bool:
    is_placed = sample.time_ns is not None or sample.iteration is not None
    numbers = (sample.time_ns or 0, sample.iteration or 0, sample.engine)
    return is_placed and 0 <= sample.usage_pct <= 100 and all(0 <= number < LATEST_NS for number in numbers)


def _logged(match: re.Match[str]) -> Iterator[Sample]:
    parts = match.groupdict()
    date = parts["date"] if len(parts["date"]) > len("11-28") else f"{_NO_YEAR}-{parts['date']}"
    time = _wall_ns(dt.datetime.fromisoformat(f"{date}T{parts['clock']}"))
    usage = float(parts["pct"]) if "pct" in parts else _percent(parts["share"])
    iteration = int(parts["iteration"]) if "iteration" in parts else None
    yield Sample(usage, time, is_wall=True, iteration=iteration, engine=int(parts.get("engine") or 0))


def _logged_model(text: str) -> Iterator[dict[str, int]]:
    for pattern in _WEIGHTS:
        yield from ({"weight_bytes": round(float(size) * _GIB)} for size in pattern.findall(text))
    sizes, tokens = (pattern.findall(text) for pattern in _VLLM_POOL)
    pools = list(map(_pool, chain.from_iterable(pattern.finditer(text) for pattern in _POOLS)))
    if sizes and tokens:
        pools.append((max(map(float, sizes)), max(int(number.replace(",", "")) for number in tokens)))
    size, count = max(pools, default=(0.0, 0))
    if size > 0 and count > 0:
        yield {"kv_token_bytes": round(size * _GIB / count), "kv_tokens": count}


def _pool(match: re.Match[str]) -> tuple[float, int]:
    """Return the size of a cache in GiB, and its tokens."""
    parts = match.groupdict()
    return float(parts["size"]) + float(parts.get("more") or 0), int(parts["tokens"])


def _samples_of(document: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the samples in a line of our form, in statistics of TensorRT-LLM, or in an answer of Prometheus."""
    if document.get("event") == "step" and "kv_pct" in document:
        yield Sample(float(document["kv_pct"]), _whole(document["time_ns"]))
    elif "kvCacheStats" in document:
        cache = document["kvCacheStats"]
        # the time is that of the wall clock; the PyTorch backend leaves it empty
        text = document.get("timestamp")
        time = dt.datetime.strptime(text, _TRTLLM_TIME) if text else None
        time_ns = None if time is None else round(time.replace(tzinfo=dt.UTC).timestamp() * 1e6) * 1000
        usage = _percent(cache["usedNumBlocks"] / cache["maxNumBlocks"])
        yield Sample(usage, time_ns, is_wall=True, iteration=_whole(document["iter"]))
    elif isinstance(document.get("data"), dict):
        for series in document["data"].get("result", ()):
            yield from _parsed(_samples_of_series, series)


def _samples_of_series(series: Mapping[str, Any]) -> Iterator[Sample]:
    labels = series["metric"]
    if (name := labels.get("__name__")) in _GAUGES:
        engine = int(labels.get(_GAUGES[name], 0))
        for seconds, value in series["values"]:
            yield Sample(_percent(value), round(float(seconds) * 1000) * 1_000_000, engine=engine)


def _model_of(document: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    if document.get("event") == "model":
        yield {name: _whole(document[name]) for name in TABLES["served_model"] if name in document}


def _percent(share: Any) -> float:  # noqa: ANN401 (JSON)
    return round(100 * float(share), 6)


def _whole(value: Any) -> int:  # noqa: ANN401 (JSON)
    if isinstance(value, bool) or not isfinite(value):
        raise ValueError("not a number")
    return int(value)
