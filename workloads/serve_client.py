"""Sends requests to `workloads.serve`, and measures what a client sees: times to the first token, and between tokens.

It prints throughput and latencies by the names of `vllm bench serve`. With --on-demand, it sends a burst for each line
on its input. Needs no torch.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from workloads.contract import natural, positive

_PERCENTILES = (90, 95, 99)


@dataclass
class Sent:
    """A request: when it was sent, and when each token of its answer came, in ns."""

    name: str
    words: int
    limit: int
    sent_ns: int = 0
    token_ns: list[int] = field(default_factory=list)


async def burst(options: argparse.Namespace, numbers: random.Random, first: int) -> list[Sent]:
    """Send the requests of a burst at random times, and wait for all answers."""
    async with asyncio.TaskGroup() as tasks:
        sent = []
        for number in range(options.requests):
            words = numbers.randint(max(options.prompt // 4, 1), options.prompt)
            limit = numbers.randint(max(options.tokens // 2, 1), options.tokens)
            request = Sent(f"{first + number}", words, limit)
            sent.append(request)
            text = " ".join(str(numbers.randrange(10**6)) for _ in range(words))
            tasks.create_task(_ask(options.port, request, text))
            await asyncio.sleep(numbers.expovariate(options.rate) if options.rate else 0)
    return sent


async def _ask(port: int, request: Sent, text: str) -> None:
    request.sent_ns = time.time_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"id": request.name, "prompt": text, "max_tokens": request.limit}).encode()
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await reader.readuntil(b"\r\n\r\n")
    while await reader.readline():
        request.token_ns.append(time.time_ns())
    writer.close()


def log_lines(sent: Sequence[Sent]) -> Iterator[str]:
    """Yield the events of requests for a log, a line each."""
    for request in sent:
        events, seen = [("sent", request.sent_ns, request.words)], request.token_ns
        if seen:
            events += [("first_seen", seen[0], 1), ("last_seen", seen[-1], len(seen))]
        for event, time_ns, tokens in events:
            yield json.dumps({"id": request.name, "event": event, "time_ns": time_ns, "tokens": tokens}) + "\n"


def figures(sent: Sequence[Sent]) -> dict[str, float]:
    """Return throughput and latencies of requests, by the names of `vllm bench serve`."""
    done = [request for request in sent if request.token_ns]
    if not done:
        return {"completed": 0, "failed": len(sent)}
    seconds = (max(request.token_ns[-1] for request in done) - min(request.sent_ns for request in done)) / 1e9
    tokens, words = sum(len(request.token_ns) for request in done), sum(request.words for request in done)
    found: dict[str, float] = {
        "completed": len(done),
        "failed": len(sent) - len(done),
        "total_input_tokens": words,
        "total_output_tokens": tokens,
        "request_throughput": len(done) / seconds,
        "output_throughput": tokens / seconds,
        "total_token_throughput": (tokens + words) / seconds,
    }
    several = [request.token_ns for request in done if len(request.token_ns) > 1]
    latencies: dict[str, list[float]] = {
        "ttft": [request.token_ns[0] - request.sent_ns for request in done],
        "tpot": [(times[-1] - times[0]) / (len(times) - 1) for times in several],
        "itl": [later - earlier for times in several for earlier, later in pairwise(times)],
        "e2el": [request.token_ns[-1] - request.sent_ns for request in done],
    }
    for metric, times_ns in latencies.items():
        if times_ns:
            ordered = sorted(times_ns)
            found[f"mean_{metric}_ms"] = statistics.fmean(ordered) / 1e6
            found[f"median_{metric}_ms"] = statistics.median(ordered) / 1e6
            for percent in _PERCENTILES:
                # the lowest value that is not below this share of all values
                found[f"p{percent}_{metric}_ms"] = ordered[-(-percent * len(ordered) // 100) - 1] / 1e6
    return found


def main() -> None:
    """Run the client with the options on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=positive, required=True, help="of the server on this machine")
    parser.add_argument("--requests", type=positive, default=32, help="in a burst (default: %(default)s)")
    parser.add_argument("--rate", type=natural, default=0, help="requests per second (default: all at once)")
    parser.add_argument("--prompt", type=positive, default=3072, help="longest prompt in tokens (default: %(default)s)")
    parser.add_argument("--tokens", type=positive, default=128, help="longest answer (default: %(default)s)")
    parser.add_argument("--seed", type=natural, default=0, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the events of requests there")
    parser.add_argument("--on-demand", action="store_true", help="send a burst for each line on the input")
    options = parser.parse_args()
    numbers, count = random.Random(options.seed), 0  # noqa: S311 (no secrets)
    with options.log.open("w", encoding="utf-8") if options.log else nullcontext() as log:
        for _ in sys.stdin if options.on_demand else (None,):
            sent = asyncio.run(burst(options, numbers, count))
            count += len(sent)
            _write(log, sent)
            print(json.dumps(figures(sent)), flush=True)


def _write(log: TextIO | None, sent: Sequence[Sent]) -> None:
    if log:
        log.writelines(log_lines(sent))
        log.flush()


if __name__ == "__main__":
    main()
