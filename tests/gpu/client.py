"""Loads the server of tests/gpu/server.py and writes what `vllm bench serve --save-result` writes, by the same names.

`python -m tests.gpu.client --port 8123 --requests 40 --concurrency 4 --tokens 32 --out results.json`
"""

import argparse
import json
import statistics
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tests.gpu.server import PROMPT


def main() -> None:
    """Send all requests and write their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    url = f"http://127.0.0.1:{options.port}/generate?tokens={options.tokens}"
    begin = time.perf_counter()
    with ThreadPoolExecutor(options.concurrency) as pool:
        answered = list(pool.map(request, [url] * options.requests))
    total_s = time.perf_counter() - begin
    tokens = sum(len(times) for times in answered)
    latencies_s = {
        "ttft": [times[0] for times in answered],
        "tpot": [(times[-1] - times[0]) / (len(times) - 1) for times in answered if len(times) > 1],
        "itl": [later - earlier for times in answered for earlier, later in pairwise(times)],
        "e2el": [times[-1] for times in answered],
    }
    document = {
        "completed": len(answered),
        "failed": 0,
        "duration": total_s,
        "total_input_tokens": PROMPT * len(answered),
        "total_output_tokens": tokens,
        "request_throughput": len(answered) / total_s,
        "output_throughput": tokens / total_s,
        "total_token_throughput": (tokens + PROMPT * len(answered)) / total_s,
        **{name: value for metric, times in latencies_s.items() for name, value in figures(metric, times)},
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def request(url: str) -> list[float]:
    """Send one request; return when each of its tokens came, in seconds."""
    begin = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        return [time.perf_counter() - begin for _ in answer]


def figures(metric: str, times_s: list[float]) -> Iterator[tuple[str, float]]:
    """Yield mean, median and two percentiles in ms."""
    cuts = statistics.quantiles(times_s, n=100, method="inclusive")
    yield f"mean_{metric}_ms", 1e3 * statistics.mean(times_s)
    yield f"median_{metric}_ms", 1e3 * statistics.median(times_s)
    yield f"p90_{metric}_ms", 1e3 * cuts[89]
    yield f"p99_{metric}_ms", 1e3 * cuts[98]


if __name__ == "__main__":
    main()
