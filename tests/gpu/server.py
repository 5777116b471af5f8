"""A small inference server, as real ones are built: HTTP in front, and the model on the GPU in a process of its own.

`python -m tests.gpu.server --port 8123` answers GET /health with 200 once the model has answered three requests, and
GET /generate?tokens=N with one token per line, each sent when it is there. Without a GPU it uses the CPU. --fault makes
it fail: `early` ends before it is ready, `never` is never ready, `dies` ends at the tenth request, `stubborn` ignores
signals.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final
from urllib.parse import parse_qs, urlsplit

PROMPT, MOST_TOKENS, WARMUP = 256, 256, 3
DIES_AT: Final = 10
FAULTS: Final = ("none", "early", "never", "dies", "stubborn")


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    options = parser.parse_args()
    if options.fault == "early":
        sys.exit("the model is too large")
    if options.fault == "stubborn":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs,), daemon=True)
    worker.start()
    for _ in range(WARMUP):
        list(answers(ours, 4))
    serve(options, ours)


def serve(options: argparse.Namespace, worker: Connection) -> None:
    """Answer requests, one at a time."""
    turn, served = threading.Lock(), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            self.send_response(503 if options.fault == "never" else 200)
            self.end_headers()
            if url.path == "/generate":
                with turn:
                    served.append(url)
                    if options.fault == "dies" and len(served) == DIES_AT:
                        os._exit(7)
                    for token in answers(worker, int(parse_qs(url.query)["tokens"][0])):
                        self.wfile.write(b"%d\n" % token)
                        self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Print nothing for each request."""

    with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("ending\n")


def answers(worker: Connection, tokens: int) -> Iterator[int]:
    """Yield the tokens of an answer as they come."""
    worker.send(tokens)
    for _ in range(tokens):
        yield worker.recv()


def work(front: Connection) -> None:
    """Generate, in the process that has the model."""
    # the process in front of it needs no torch
    torch, generate, runner = map(import_module, ("torch", "workloads.generate", "workloads.runner"))
    annotate = runner.annotate
    on_gpu = torch.cuda.is_available()
    layers, dim = (12, 1024) if on_gpu else (1, 16)
    options = argparse.Namespace(
        batch=1, prompt=PROMPT, tokens=MOST_TOKENS, layers=layers, dim=dim, heads=max(dim // 64, 2), vocab=32 * dim
    )
    device = "cuda" if on_gpu else "cpu"
    model = generate.Gpt(options)
    model.to(device=device, dtype=torch.bfloat16 if on_gpu else torch.float32).eval()
    prompt = torch.randint(options.vocab, (1, PROMPT), device=device)
    count = 0
    with torch.inference_mode():
        while True:
            try:
                tokens = front.recv()
            except (EOFError, KeyboardInterrupt):
                return
            count += 1
            with annotate("warm-up" if count <= WARMUP else "request"):
                with annotate("prefill"):
                    token = model.prefill(prompt)
                    front.send(int(token))
                with annotate("decode"):
                    for _ in range(tokens - 1):
                        token = model.decode(token)
                        front.send(int(token))


if __name__ == "__main__":
    main()
