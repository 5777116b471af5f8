"""Logs of engines: the usage of the KV cache and the size of the model, from lines in their documented forms.

No engine can run here: the lines are written from the source of vLLM, SGLang and TensorRT-LLM.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Capture, Profile
from nightsight.read.engine_log import EngineLog, kv_cache_of, read_engine_log, served_model_of
from nightsight.runs.unprofiled import from_text, on_clock_of_capture, to_text
from nightsight.workflows.attach import add_attached, watch_results, with_attached

S = 10**9
HOUR = 3600 * S
# 2026-11-28 22:00:05.5 UTC: lines have whole seconds, which mean their middle
NOON = dt.datetime(2026, 11, 28, 22, 0, 5, 500_000, dt.UTC)
EPOCH = round(NOON.timestamp() * 10) * S // 10

VLLM = (
    "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m INFO 11-28 21:58:01 [gpu_model_runner.py:2879] "
    "Model loading took 14.9600 GiB and 3.2 seconds\n"
    "(EngineCore pid=7) INFO 11-28 21:58:09 [gpu_worker.py:298] Available KV cache memory: 53.40 GiB\n"
    "(EngineCore pid=7) INFO 11-28 21:58:09 [kv_cache_utils.py:1087] GPU KV cache size: 437,440 tokens\n"
    "(APIServer pid=1) INFO 11-28 22:00:05 [loggers.py:248] Engine 000: Avg prompt throughput: 10.2 tokens/s, "
    "Avg generation throughput: 99.1 tokens/s, Running: 4 reqs, Waiting: 0 reqs, Preemptions: 2, "
    "GPU KV cache usage: 12.3%, Prefix cache hit rate: 0.0%\n"
    '(APIServer pid=1) INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n'
)
SGLANG = (
    "[2026-11-28 21:58:43] Load weight begin. avail mem=22.4 GB\n"
    "[2026-11-28 21:58:43] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=7.37 GB, "
    "mem usage=15.00 GB.\n"
    "[2026-11-28 21:58:43] KV Cache is allocated. #tokens: 38000, K size: 2.50 GB, V size: 2.50 GB\n"
    "[2026-11-28 21:58:44] Load weight end. type=LlamaForCausalLMEagle, avail mem=6.9 GB, mem usage=0.47 GB.\n"
    "[2026-11-28 21:58:44] KV Cache is allocated. #tokens: 38000, K size: 0.10 GB, V size: 0.10 GB\n"
    "[2026-11-28 22:00:05 TP0] Prefill batch. #new-seq: 1, #new-token: 115, #cached-token: 351, token usage: 0.02, "
    "#running-req: 0, #queue-req: 0,\n"
    "[2026-11-28 22:00:07 TP0] Decode batch, #running-req: 1, #full token: 1112, full token usage: 0.71, "
    "swa token usage: 0.1, cuda graph: True, gen throughput (token/s): 72.31, #queue-req: 0\n"
)
TRTLLM = (
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8192).\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 32.00 GiB for max tokens in paged KV cache (262144).\n"
    "[11/28/2026-22:00:05] [TRT-LLM] [I] [RANK 0] iter = 17, global_rank = 0, rank = 0, num_scheduled_requests = 3, "
    "kv_cache_util = 0.125, currank_total_requests = 1/8, host_step_time = 7.4ms, prev_device_step_time = 7.1ms, "
    "timestamp = 2026-11-28 22:00:05, states = {'num_ctx_requests': 0}\n"
    "[11/28/2026-22:00:05] [TRT-LLM] [I] [RANK 1] iter = 17, global_rank = 1, rank = 1, num_scheduled_requests = 3, "
    "kv_cache_util = 0.125, timestamp = 2026-11-28 22:00:05, states = {}\n"
    "[TRT-LLM] [I] [RANK 0] iter = 18, global_rank = 0, kv_cache_util = N/A, timestamp = 2026-11-28 22:00:05, s\n"
)
STATISTICS = json.dumps(
    [
        {"iter": 154, "timestamp": "", "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50}},
        {
            "iter": 155,
            "timestamp": "11-28-2026 22:00:05.500000",
            "kvCacheStats": {"maxNumBlocks": 4, "usedNumBlocks": 1},
        },
        {"iter": 156, "kvCacheStats": None},
        {"iter": 157, "kvCacheStats": {"maxNumBlocks": 0, "usedNumBlocks": 0}},
    ]
)
PROMETHEUS = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {"__name__": "vllm:kv_cache_usage_perc", "engine": "1", "model_name": "/home/me/private"},
                    "values": [[EPOCH / S, "0.25"], [EPOCH / S + 1, "NaN"]],
                },
                {"metric": {"__name__": "up"}, "values": [[EPOCH / S, "1"]]},
            ],
        },
    }
)
OURS = (
    '{"event": "model", "weight_bytes": 1000, "kv_token_bytes": 64, "kv_tokens": 512}\n'
    f'{{"event": "step", "time_ns": {EPOCH}, "kv_pct": 37.5}}\n'
    '{"event": "step", "time_ns": 12, "kv_'
)


def logged(tmp_path: Path, *texts: str) -> list[EngineLog]:
    logs = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.log"
        path.write_text(text)
        logs.append(read_engine_log(path))
    return logs


def rows(logs: list[EngineLog], *, near_ns: int | None = EPOCH, ahead_ns: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows of the table: seconds since EPOCH, iteration, engine, usage."""
    table = kv_cache_of(logs, near_ns=near_ns, ahead_ns=ahead_ns)
    seconds = [None if pd.isna(time) else (time - EPOCH) / S for time in table["time_ns"]]
    iterations = [None if pd.isna(number) else number for number in table["iteration"]]
    return list(zip(seconds, iterations, table["engine"], table["usage_pct"], strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VLLM, [(0, None, 0, 12.3)]),
        (VLLM.replace("Engine 000", "Engine 003"), [(0, None, 3, 12.3)]),
        (SGLANG, [(0, None, 0, 2), (2, None, 0, 71)]),
        (SGLANG.replace("05 TP0", "05 DP1 TP0"), [(0, None, 1, 2), (2, None, 0, 71)]),
        (TRTLLM, [(0, 17, 0, 12.5)]),
        (STATISTICS, [(0, 155, 0, 25), (None, 154, 0, 25)]),
        (PROMETHEUS, [(0, None, 1, 25)]),
        (OURS, [(0, None, 0, 37.5)]),
        ('{"completed": 3, "label": "KV cache"}', []),
    ],
    ids=["vLLM", "vLLM DP", "SGLang", "SGLang DP", "TensorRT-LLM", "statistics", "Prometheus", "ours", "other"],
)
def test_the_usage_of_the_cache(tmp_path: Path, text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(logged(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VLLM, (round(14.96 * 2**30), round(53.4 * 2**30 / 437_440), 437_440)),
        ("Loading model weights took 14.5000 GB\n", (round(14.5 * 2**30), None, None)),
        # the model for speculation is smaller
        (SGLANG, (15 * 2**30, round(5 * 2**30 / 38_000), 38_000)),
        (TRTLLM, (None, 2**17, 262_144)),
        (OURS, (1000, 64, 512)),
        ('{"event": "model", "weight_bytes": -5, "kv_tokens": 7}', (None, None, 7)),
        (STATISTICS, None),
    ],
    ids=["vLLM", "old vLLM", "SGLang", "TensorRT-LLM", "ours", "negative", "statistics"],
)
def test_the_size_of_the_model(tmp_path: Path, text: str, expected: tuple[int | None, ...] | None) -> None:
    found = [tuple(row) for row in served_model_of(logged(tmp_path, text)).astype(object).itertuples(index=False)]
    assert [tuple(None if pd.isna(fact) else fact for fact in row) for row in found] == ([expected] if expected else [])


def test_wall_clocks_have_a_time_zone_and_a_year(tmp_path: Path) -> None:
    logs = logged(tmp_path, VLLM, SGLANG, TRTLLM, PROMETHEUS)
    at_home, in_tokyo = rows(logs), rows(logs, ahead_ns=9 * HOUR)
    # the answer of Prometheus is since the epoch, whatever the zone
    assert sorted(row[0] for row in at_home) == [0, 0, 0, 0, 2]
    assert sorted(row[0] for row in in_tokyo) == [-9 * 3600] * 3 + [-9 * 3600 + 2, 0]
    new_year = logged(tmp_path, VLLM.replace("11-28 22:00:05", "12-31 23:59:59"))
    after = round(dt.datetime(2027, 1, 1, tzinfo=dt.UTC).timestamp()) * S
    assert kv_cache_of(new_year, near_ns=after, ahead_ns=0)["time_ns"].tolist() == [after - S // 2]
    assert kv_cache_of(new_year, near_ns=None, ahead_ns=0)["time_ns"].isna().all()
    leap_day = logged(tmp_path, VLLM.replace("11-28 22:00:05", "02-29 00:00:00"))
    assert kv_cache_of(leap_day, near_ns=EPOCH, ahead_ns=0)["time_ns"].isna().all()


def test_what_is_read_stays_with_the_capture(tmp_path: Path) -> None:
    path, before = tmp_path / "serve.log", watch_results([tmp_path / "serve.log"])
    path.write_text(OURS)
    capture, tables = add_attached(Capture("serve", "nsys", ()), before)
    assert not capture.findings
    text = to_text(tables)
    assert "private" not in text
    kept = on_clock_of_capture(from_text(text), EPOCH - 5)
    assert kept["kv_cache"]["time_ns"].tolist() == [5]
    assert kept["served_model"]["weight_bytes"].tolist() == [1000]
    assert on_clock_of_capture(from_text(text), None)["kv_cache"]["time_ns"].isna().all()
    # most servers print their log
    (tmp_path / "output").write_text(SGLANG)
    printed = add_attached(Capture("serve", "nsys", ()), watch_results([]), tmp_path / "output")[1]
    assert printed["served_model"]["kv_tokens"].tolist() == [38_000]
    assert len(printed["kv_cache"]) == 2
    # a capture that exists already, from a machine two hours ahead of UTC
    (tmp_path / "vllm.log").write_text(VLLM)
    profile = with_attached(Profile({}, epoch_ns=EPOCH - 2 * HOUR - 7, ahead_ns=2 * HOUR), [tmp_path / "vllm.log"])
    assert profile.tables["kv_cache"]["time_ns"].tolist() == [7]
    assert profile.tables["served_model"]["kv_tokens"].tolist() == [437_440]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())
LINES = st.sampled_from((VLLM + SGLANG + TRTLLM).splitlines())


@given(
    documents=st.lists(
        st.fixed_dictionaries(
            {"event": st.sampled_from(["step", "model"]) | VALUES},
            optional={
                **dict.fromkeys(("time_ns", "kv_pct", "weight_bytes", "kv_token_bytes", "kv_tokens", "iter"), VALUES),
                "kvCacheStats": VALUES | st.fixed_dictionaries({"usedNumBlocks": VALUES, "maxNumBlocks": VALUES}),
                "timestamp": VALUES,
            },
        )
    ),
    lines=st.lists(LINES.flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end]))),
)
def test_damaged_lines_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, documents: list[dict[str, Any]], lines: list[str]
) -> None:
    text = "".join(f"{json.dumps(document)}\n" for document in documents) + OURS.splitlines()[1] + "\n"
    logs = logged(tmp_path_factory.mktemp("logs"), text, "\n".join(lines))
    table = kv_cache_of(logs, near_ns=EPOCH, ahead_ns=0)
    assert (table["usage_pct"].between(0, 100)).all()
    assert EPOCH in table["time_ns"].tolist()
    both = {"kv_cache": table, "served_model": served_model_of(logs)}
    kept = from_text(to_text(both))
    assert all(kept[name].equals(frame) for name, frame in both.items() if len(frame))
