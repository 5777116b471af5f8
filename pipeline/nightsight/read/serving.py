"""Reads the result files of serving benchmarks: `nightsight profile --attach results.json`.

Only figures that are listed here are taken. Such files also hold names of models, paths, addresses, prompts and
generated texts, none of which may get into a report.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.results.serving import (
    ALL_TOKENS,
    BATCH_LATENCY,
    FAILED_REQUESTS,
    GOODPUT,
    INPUT_TOKENS,
    ITL,
    OUTPUT_TOKENS,
    REQUEST_LATENCY,
    REQUESTS,
    TPOT,
    TTFT,
    UNPROFILED_RUN,
)
from nightsight.tables import conform

_MOST_BYTES: Final = 64_000_000
_READABLE: Final = (
    "Known are the result files of `vllm bench serve|latency|throughput`, `trtllm-bench --report_json`, "
    "sglang.bench_serving, aiperf and genai-perf, a JSON object with numbers named as by `vllm bench serve`: "
    "output_throughput, mean_ttft_ms, p99_tpot_ms, and logs of requests and engines (docs/inference.md)."
)
Document = Mapping[str, Any]
Figure = tuple[str, str, str, float | None]
"""A metric, its statistic (a column of the result `serving`), its field in the file, and its `_scaled_number`."""
_MS: Final = 1e6
_S: Final = 1e9
_RATE: Final = "rate_per_s"
_LARGEST: Final = 1e18
_STATISTICS: Final = {
    **dict.fromkeys(("mean", "avg", "average"), "avg_ns"),
    **dict.fromkeys(("median", "p50", "50"), "med_ns"),
    **{name: f"p{percent}_ns" for percent in ("90", "95", "99") for name in (f"p{percent}", percent)},
}

# `vllm bench serve --save-result` (vllm/benchmarks/serve.py). sglang.bench_serving --output-file
# (python/sglang/bench_serving.py) and benchmark_serving of TensorRT-LLM use the same names, with a few exceptions
_FLAT: Final[Mapping[str, tuple[str, str]]] = {
    "completed": (REQUESTS, "count"),
    "failed": (FAILED_REQUESTS, "count"),
    "total_input_tokens": (INPUT_TOKENS, "count"),
    "total_output_tokens": (OUTPUT_TOKENS, "count"),
    "request_throughput": (REQUESTS, _RATE),
    "request_goodput": (GOODPUT, _RATE),
    "input_throughput": (INPUT_TOKENS, _RATE),
    "output_throughput": (OUTPUT_TOKENS, _RATE),
    "total_token_throughput": (ALL_TOKENS, _RATE),
    "total_throughput": (ALL_TOKENS, _RATE),
}
_FLAT_LATENCY: Final = re.compile(r"(mean|median|p50|p90|p95|p99)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_LATENCIES: Final = {
    "ttft": TTFT,
    "tpot": TPOT,
    "itl": ITL,
    "e2el": REQUEST_LATENCY,
    "e2e_latency": REQUEST_LATENCY,
}

# `vllm bench throughput --output-json` (vllm/benchmarks/throughput.py): tokens of prompts and answers together
_OFFLINE: Final = {
    "num_requests": (REQUESTS, "count"),
    "requests_per_second": (REQUESTS, _RATE),
    "total_num_tokens": (ALL_TOKENS, "count"),
    "tokens_per_second": (ALL_TOKENS, _RATE),
}

# `trtllm-bench --report_json` (tensorrt_llm/bench/dataclasses/reporting.py)
_TRTLLM: Final = {
    ("request_info", "num_requests"): (REQUESTS, "count"),
    ("performance", "request_throughput_req_s"): (REQUESTS, _RATE),
    ("performance", "system_output_throughput_tok_s"): (OUTPUT_TOKENS, _RATE),
    ("performance", "system_total_throughput_tok_s"): (ALL_TOKENS, _RATE),
    ("performance", "avg_request_latency_ms"): (REQUEST_LATENCY, "avg_ns"),
    ("streaming_metrics", "avg_ttft_ms"): (TTFT, "avg_ns"),
    ("streaming_metrics", "avg_tpot_ms"): (TPOT, "avg_ns"),
}
_TRTLLM_PERCENTILES: Final = {
    ("performance", "request_latency_percentiles_ms"): REQUEST_LATENCY,
    ("streaming_metrics", "ttft_percentiles"): TTFT,
    ("streaming_metrics", "tpot_percentiles"): TPOT,
}

# profile_export_aiperf.json and profile_export_genai_perf.json: an object with a unit and statistics per metric. Their
# inter-token latency has one value per request, and is what other tools define as the time per output token
_AIPERF_LATENCIES: Final = {
    "time_to_first_token": TTFT,
    "inter_token_latency": TPOT,
    "request_latency": REQUEST_LATENCY,
}
_AIPERF: Final = {
    "request_count": (REQUESTS, "count"),
    "error_request_count": (FAILED_REQUESTS, "count"),
    "request_throughput": (REQUESTS, _RATE),
    "output_token_throughput": (OUTPUT_TOKENS, _RATE),
    "total_token_throughput": (ALL_TOKENS, _RATE),
}
_UNITS_NS: Final = {"ns": 1.0, "us": 1e3, "ms": _MS, "s": _S, "sec": _S}


def read_serving(path: Path, measured: str) -> pd.DataFrame:
    """Return the table `serving_figures` of a result file; CaptureError if it cannot be read or has no figures."""
    document = _document(path)
    for source, form in _FORMS:
        figures = [figure for figure in form(document) if figure[-1] is not None]
        if figures:
            return _figures_table(figures, source(document) if callable(source) else source, measured, path.name)
    raise CaptureError(f"cannot attach {path.name}: it has no serving figure", _READABLE)


def serving_of(figures: Mapping[str, Any], workload: str) -> pd.DataFrame:
    """Return the figures of a workload, named as in `vllm bench serve`; CaptureError if one is not a number."""
    return _figures_table(_flat(figures), workload, UNPROFILED_RUN, f"the benchmark of {workload}")


def attached_text(path: Path) -> bytes:
    """Return the content of a file given with `--attach`; CaptureError if it cannot be read."""
    name = path.name
    try:
        if path.exists() and not path.is_file():
            raise CaptureError(f"cannot attach {name}: it is not a regular file", _READABLE)
        if path.stat().st_size > _MOST_BYTES:
            raise CaptureError(
                f"cannot attach {name}: it is larger than {_MOST_BYTES // 10**6} MB",
                "Save the results without those of single requests (vLLM: without --save-detailed), and only the part "
                "of a log that was recorded.",
            )
        return path.read_bytes()
    except OSError as error:
        raise CaptureError(f"cannot attach {name}: {error.strerror or 'it cannot be read'}", _READABLE) from error


def _document(path: Path) -> Document:
    """Read a JSON object; of several, one per line, the last: benchmarks append to an existing file."""
    name, text = path.name, attached_text(path)
    try:
        lines = text.split(b"\n") if b"}\n{" in text.replace(b"\r", b"") else [text]
        document: Any = json.loads(next(line for line in reversed(lines) if line.strip()))
    except (ValueError, RecursionError, StopIteration) as error:
        raise CaptureError(f"cannot attach {name}: it is not JSON", _READABLE) from error
    if not isinstance(document, dict):
        raise CaptureError(f"cannot attach {name}: it is not a JSON object", _READABLE)
    return document


def _figures_table(figures: Iterable[Figure], source: str, measured: str, name: str) -> pd.DataFrame:
    rows = []
    for metric, statistic, field, value in figures:
        if value is None:
            continue
        if not 0 <= value <= _LARGEST:
            raise CaptureError(
                f"cannot attach {name}: its {field} is not a number of at least 0", "Run the benchmark again."
            )
        rows.append((metric, measured, source, statistic, value))
    columns = ["metric", "measured", "source", "statistic", "value"]
    return conform("serving_figures", pd.DataFrame(rows, columns=columns))


def _flat(document: Document) -> Iterator[Figure]:
    for field, value in document.items():
        # aiperf gives some of these names to objects
        if field in _FLAT and not isinstance(value, dict):
            yield *_FLAT[field], field, _scaled_number(value)
        elif latency := _FLAT_LATENCY.fullmatch(field):
            yield _LATENCIES[latency[2]], _STATISTICS[latency[1]], field, _scaled_number(value, _MS)


def _offline(document: Document) -> Iterator[Figure]:
    if {"elapsed_time", "requests_per_second", "tokens_per_second"} <= document.keys():
        for field, (metric, statistic) in _OFFLINE.items():
            yield metric, statistic, field, _scaled_number(document.get(field))


def _latency(document: Document) -> Iterator[Figure]:
    # `vllm bench latency --output-json` (vllm/benchmarks/latency.py), in seconds
    if {"avg_latency", "percentiles"} <= document.keys():
        yield BATCH_LATENCY, "avg_ns", "avg_latency", _scaled_number(document["avg_latency"], _S)
        yield from _statistics(BATCH_LATENCY, document["percentiles"], "percentiles", _S)


def _trtllm(document: Document) -> Iterator[Figure]:
    for (part, field), (metric, statistic) in _TRTLLM.items():
        value = _object(document, part).get(field)
        yield metric, statistic, field, _scaled_number(value, _MS if statistic.endswith("_ns") else 1.0)
    for (part, field), metric in _TRTLLM_PERCENTILES.items():
        yield from _statistics(metric, _object(document, part).get(field), field, _MS)


def _aiperf(document: Document) -> Iterator[Figure]:
    for field, (metric, statistic) in _AIPERF.items():
        yield metric, statistic, field, _scaled_number(_object(document, field).get("avg"))
    for field, metric in _AIPERF_LATENCIES.items():
        values = _object(document, field)
        unit = values.get("unit", "ms")
        yield from _statistics(metric, values, field, _UNITS_NS.get(unit) if isinstance(unit, str) else None)


_FORMS: Final[tuple[tuple[str | Callable[[Document], str], Callable[[Document], Iterator[Figure]]], ...]] = (
    ("trtllm-bench", _trtllm),
    ("aiperf", _aiperf),
    ("vllm bench throughput", _offline),
    ("vllm bench latency", _latency),
    (lambda document: "sglang.bench_serving" if "mean_e2e_latency_ms" in document else "vllm bench serve", _flat),
)


def _statistics(metric: str, values: Any, field: str, scale: float | None) -> Iterator[Figure]:  # noqa: ANN401 (JSON)
    for name, value in values.items() if isinstance(values, dict) else ():
        if name in _STATISTICS:
            yield metric, _STATISTICS[name], f"{name} of {field}", _scaled_number(value, scale)


def _object(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _scaled_number(value: Any, scale: float | None = 1.0) -> float | None:  # noqa: ANN401 (JSON)
    """Return a number times `scale`; None if it is absent, NaN if it is not a number or has no known scale."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or scale is None:
        return nan
    try:
        return float(value) * scale
    except OverflowError:
        return nan
