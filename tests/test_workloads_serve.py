"""The workload `serve`: continuous batching changes no answer, and its logs are those of its client."""

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from asyncio import Queue
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pandas as pd
import pytest

from nightsight.read.requests import read_request_events, requests_of

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

FAULTS = ("whole-prompts", "small-batch", "slow-scheduler", "small-cache", "tokenize-in-engine", "no-overlap")
ROOT = Path(__file__).parents[1]
SIZES = {"layers": 2, "dim": 16, "heads": 2, "vocab": 50, "dtype": "float32", "device": "cpu"}
LOADS = {"batch": 4, "prompt": 20, "tokens": 9, "chunk": 7, "seed": 0}
# four of them have a block each at first, and need another one later
PROMPTS = [" ".join(chr(97 + (count + place) % 26) for place in range(count)) for count in (14, 3, 12, 13, 20)]


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    return import_module("workloads.serve")


def answers(serve: ModuleType, fault: str = "none") -> tuple[dict[str, list[int]], list[str]]:
    """Return the most likely answers to all prompts, and the events of the log."""
    torch = import_module("torch")
    torch.manual_seed(1)
    events: list[str] = []
    log = Namespace(note=lambda *event: events.append(event[1]), describe=lambda *_, **__: None)
    engine = serve.Engine(Namespace(**SIZES, **LOADS, fault=fault), log)
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.mul_(4)
    engine._sample = lambda logits: logits.argmax(-1)
    requests = [serve.Request(str(number), text, 5 + number, Queue()) for number, text in enumerate(PROMPTS)]
    for request in requests:
        engine.submit(request)
    engine.serve(len(requests))
    assert not engine.running
    # every block is free again, each once
    assert sorted(engine.free) == list(range(1, len(engine.free) + 1))
    return {request.name: request.tokens[request.prompt :] for request in requests}, events


def test_answers_do_not_depend_on_who_else_is_served(serve: ModuleType) -> None:
    torch = import_module("torch")
    served, _ = answers(serve)
    torch.manual_seed(1)
    engine = serve.Engine(Namespace(**SIZES, **LOADS, fault="none"), serve.Log(None))
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.mul_(4)
    for number, text in enumerate(PROMPTS):
        tokens = [sum(map(ord, word)) % SIZES["vocab"] for word in text.split()]  # type: ignore[operator]
        count = len(tokens)
        for _ in range(5 + number):
            # all tokens at once, each in the place of its position
            positions = torch.arange(len(tokens))
            batch = serve.Prompts(positions, [len(tokens)], [positions + 16], engine.model)
            with torch.inference_mode():
                tokens.append(int(engine.model(torch.tensor(tokens), batch).argmax()))
        assert served[str(number)] == tokens[count:]


@pytest.mark.parametrize(
    "fault", ["whole-prompts", "small-batch", "slow-scheduler", "small-cache", "tokenize-in-engine", "no-overlap"]
)
def test_faults_change_no_answer(serve: ModuleType, fault: str) -> None:
    (planted, events), (usual, usual_events) = answers(serve, fault), answers(serve)
    assert planted == usual
    assert "preempted" not in usual_events
    assert ("preempted" in events) == (fault == "small-cache")


def test_a_client_that_crashed_sends_no_more_requests(serve: ModuleType) -> None:
    engine = serve.Engine(Namespace(**SIZES, **LOADS, fault="none"), serve.Log(None))
    engine.submit(serve.Request("0", PROMPTS[0], 3, Queue()))
    # without an end, it would wait for the second request
    engine.serve(2, lambda: True)
    assert engine.finished == 1


def run_serve(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    small = ("--device", "cpu", "--iterations", "2", "--warmup", "1", "--requests", "6", "--log", "log")
    command = [sys.executable, "-m", "workloads.serve", *small, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=True)


def test_the_parts_of_all_times_add_up_to_those_of_the_client(tmp_path: Path) -> None:
    run_serve(tmp_path, "--benchmark", str(tmp_path / "times.json"), "--trials", "1")
    serving = json.loads((tmp_path / "times.json").read_text())["serving"]
    files = [tmp_path / "log" / f"{side}.jsonl" for side in ("server", "client")]
    table, notes = requests_of(list(map(read_request_events, files)))
    assert not notes
    assert len(table) == 6 * (1 + 2)
    # each stage follows the one before
    stages = ["sent", "received", "tokenized", "scheduled", "first_token", "first_seen", "last_seen"]
    assert (table[[f"{stage}_ns" for stage in stages]].astype("int64").diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    # the last burst is that of the figures
    last = table.tail(6).astype(dict.fromkeys([*(f"{stage}_ns" for stage in stages), "output_tokens"], "int64"))
    assert (last["first_seen_ns"] - last["sent_ns"]).mean() / 1e6 == pytest.approx(serving["mean_ttft_ms"], rel=1e-6)
    per_token = (last["last_seen_ns"] - last["first_seen_ns"]) / (last["output_tokens"] - 1)
    assert per_token.mean() / 1e6 == pytest.approx(serving["mean_tpot_ms"], rel=1e-6)
    assert last["output_tokens"].sum() == serving["total_output_tokens"]
    assert last["input_tokens"].sum() == serving["total_input_tokens"]


def test_it_serves_other_clients_until_it_is_terminated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workloads.serve", "--device", "cpu", "--listen", "0", "--log", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            port = server.stdout.readline().split()[-1]
            document = {"id": "mine", "prompt": "one two three", "max_tokens": 4}
            address = f"http://127.0.0.1:{port}/"
            with urlopen(Request(address, json.dumps(document).encode()), timeout=60) as answer:
                assert len(answer.read().split()) == 4
            for bad in (
                b"{",
                b"[]",
                b'{"id": 1, "prompt": "", "max_tokens": 4}',
                b'{"id": 1, "prompt": "a", "max_tokens": 999}',
            ):
                with pytest.raises(HTTPError, match="400"):
                    urlopen(Request(address, bad), timeout=60)
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    (row,) = requests_of([read_request_events(tmp_path / "server.jsonl")])[0].to_dict("records")
    assert (row["input_tokens"], row["output_tokens"]) == (3, 4)
    assert pd.isna(row["sent_ns"])
