"""Result files of serving benchmarks: the figures of each program's form, and nothing else that is in the file.

The files are as short as the programs' own would be without their lists; the names are those that the programs write.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.serving import serving
from nightsight.errors import CaptureError
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read.serving import read_serving, serving_of
from nightsight.results.serving import (
    OUTPUT_TOKENS,
    PER_GPU,
    PER_USER,
    PROFILED_RUN,
    TPOT,
    UNKNOWN_RUN,
)
from nightsight.tables import conform
from tests.timeline import draw, side_by_side

SECRET = "/home/me/secret"
VLLM_SERVE = {
    "date": "20260102-030405",
    "endpoint_type": "openai",
    "label": SECRET,
    "model_id": SECRET,
    "tokenizer_id": SECRET,
    "num_prompts": 100,
    "request_rate": "inf",
    "max_concurrency": None,
    "duration": 28.5,
    "completed": 99,
    "failed": 1,
    "total_input_tokens": 12_800,
    "total_output_tokens": 6400,
    "request_throughput": 3.5,
    "request_goodput": None,
    "output_throughput": 224.5,
    "total_token_throughput": 673.7,
    "input_lens": [128],
    "ttfts": [0.01],
    "itls": [[0.01, 0.02]],
    "generated_texts": [SECRET],
    "errors": [SECRET],
    "mean_ttft_ms": 12.5,
    "median_ttft_ms": 11,
    "std_ttft_ms": 2.5,
    "p99_ttft_ms": 30.25,
    "p99.9_ttft_ms": 31.0,
    "mean_tpot_ms": 5.0,
    "p90_tpot_ms": 5.5,
    "median_itl_ms": 4.5,
    "p95_e2el_ms": 700.0,
}
SGLANG = {
    "backend": "sglang",
    "dataset_name": "random",
    "duration": 10.0,
    "completed": 64,
    "request_throughput": 6.4,
    "input_throughput": 819.2,
    "output_throughput": 409.6,
    "total_throughput": 1228.8,
    "mean_e2e_latency_ms": 900.0,
    "median_e2e_latency_ms": 850.0,
    "p90_e2e_latency_ms": 990.0,
    "mean_ttft_ms": 20.0,
    "p95_itl_ms": 9.0,
    "concurrency": 5.7,
    "accept_length": None,
}
VLLM_THROUGHPUT = {
    "elapsed_time": 10.0,
    "num_requests": 1000,
    "total_num_tokens": 256_000,
    "requests_per_second": 100.0,
    "tokens_per_second": 25_600.0,
}
VLLM_LATENCY = {
    "avg_latency": 0.5,
    "latencies": [0.4, 0.6],
    "percentiles": {"10": 0.4, "25": 0.45, "50": 0.5, "75": 0.55, "90": 0.58, "99": 0.6},
}
_PERCENTILES = {"minimum": 1.0, "maximum": 9.0, "average": 4.0, "p50": 4.5, "p90": 6.0, "p95": 7.0, "p99": 8.0}
_PERFORMANCE = {
    "total_latency_ms": 60_000.0,
    "avg_request_latency_ms": 4.0,
    "request_throughput_req_s": 50.0,
    "system_output_throughput_tok_s": 6400.0,
    "system_total_throughput_tok_s": 12_800.0,
    "request_latency_percentiles_ms": _PERCENTILES,
}
_STREAMING = {
    "avg_ttft_ms": 21.0,
    "avg_tpot_ms": 3.0,
    "tpot_percentiles": _PERCENTILES,
    "ttft_percentiles": _PERCENTILES,
    "gen_tps_percentiles": _PERCENTILES,
}
TRTLLM = {
    "engine": {"model": SECRET, "model_path": SECRET, "engine_dir": SECRET, "version": "1.0"},
    "machine": {"name": "NVIDIA H200"},
    "request_info": {"num_requests": 3000, "avg_input_length": 128.0},
    "performance": _PERFORMANCE,
    "streaming_metrics": _STREAMING,
    "dataset": {"isl": 128},
}
AIPERF = {
    "schema_version": "1.0",
    "input_config": {"endpoint": {"url": SECRET, "model_names": [SECRET]}},
    "request_throughput": {"unit": "requests/sec", "avg": 3.4},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 1150.9},
    "request_count": {"unit": "requests", "avg": 1000.0},
    "time_to_first_token": {"unit": "ms", "avg": 150.5, "p50": 145.0, "p99": 200.0, "std": 25.0},
    "inter_token_latency": {"unit": "ms", "avg": 18.5, "p50": 18.0},
    "request_latency": {"unit": "ms", "avg": 2000.0, "p90": 2400.0},
}
FORMS: dict[str, tuple[dict[str, Any], dict[tuple[str, str], float]]] = {
    "vllm bench serve": (
        VLLM_SERVE,
        {
            ("requests", "count"): 99,
            ("failed requests", "count"): 1,
            ("input tokens", "count"): 12_800,
            ("output tokens", "count"): 6400,
            ("requests", "rate_per_s"): 3.5,
            ("output tokens", "rate_per_s"): 224.5,
            ("all tokens", "rate_per_s"): 673.7,
            ("time to first token", "avg_ns"): 12.5e6,
            ("time to first token", "med_ns"): 11e6,
            ("time to first token", "p99_ns"): 30.25e6,
            ("time per output token", "avg_ns"): 5e6,
            ("time per output token", "p90_ns"): 5.5e6,
            ("inter-token latency", "med_ns"): 4.5e6,
            ("request latency", "p95_ns"): 700e6,
        },
    ),
    "sglang.bench_serving": (
        SGLANG,
        {
            ("requests", "count"): 64,
            ("requests", "rate_per_s"): 6.4,
            ("input tokens", "rate_per_s"): 819.2,
            ("output tokens", "rate_per_s"): 409.6,
            ("all tokens", "rate_per_s"): 1228.8,
            ("request latency", "avg_ns"): 900e6,
            ("request latency", "med_ns"): 850e6,
            ("request latency", "p90_ns"): 990e6,
            ("time to first token", "avg_ns"): 20e6,
            ("inter-token latency", "p95_ns"): 9e6,
        },
    ),
    "vllm bench throughput": (
        VLLM_THROUGHPUT,
        {
            ("requests", "count"): 1000,
            ("all tokens", "count"): 256_000,
            ("requests", "rate_per_s"): 100,
            ("all tokens", "rate_per_s"): 25_600,
        },
    ),
    "vllm bench latency": (
        VLLM_LATENCY,
        {
            ("batch latency", "avg_ns"): 0.5e9,
            ("batch latency", "med_ns"): 0.5e9,
            ("batch latency", "p90_ns"): 0.58e9,
            ("batch latency", "p99_ns"): 0.6e9,
        },
    ),
    "trtllm-bench": (
        TRTLLM,
        {
            ("requests", "count"): 3000,
            ("requests", "rate_per_s"): 50,
            ("output tokens", "rate_per_s"): 6400,
            ("all tokens", "rate_per_s"): 12_800,
            **{
                (metric, statistic): value * 1e6
                for metric in ("request latency", "time to first token", "time per output token")
                for statistic, value in {"avg_ns": 4, "med_ns": 4.5, "p90_ns": 6, "p95_ns": 7, "p99_ns": 8}.items()
            },
        },
    ),
    "aiperf": (
        AIPERF,
        {
            ("requests", "rate_per_s"): 3.4,
            ("output tokens", "rate_per_s"): 1150.9,
            ("requests", "count"): 1000,
            ("time to first token", "avg_ns"): 150.5e6,
            ("time to first token", "med_ns"): 145e6,
            ("time to first token", "p99_ns"): 200e6,
            # what aiperf calls so is one value per request
            ("time per output token", "avg_ns"): 18.5e6,
            ("time per output token", "med_ns"): 18e6,
            ("request latency", "avg_ns"): 2000e6,
            ("request latency", "p90_ns"): 2400e6,
        },
    ),
}
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is not JSON"),
    "cut off": (b'{"request_throughput": 3', "it is not JSON"),
    "no text": (b"\xff\xfe\x00\x01", "it is not JSON"),
    "nested": (b'{"a":' + b"[" * 100_000, "it is not JSON"),
    "a list": (b"[1, 2]", "it is not a JSON object"),
    "nothing known": (b'{"loss": 0.5, "request_goodness": 1}', "it has no serving figure"),
    "only null": (b'{"mean_ttft_ms": null}', "it has no serving figure"),
    "nan": (b'{"mean_ttft_ms": NaN}', "its mean_ttft_ms is not a number of at least 0"),
    "infinite": (b'{"output_throughput": Infinity}', "its output_throughput is not a number"),
    "text": (b'{"output_throughput": "fast"}', "its output_throughput is not a number"),
    "truth": (b'{"completed": true}', "its completed is not a number"),
    "a list of numbers": (b'{"mean_itl_ms": [1]}', "its mean_itl_ms is not a number"),
    "negative": (b'{"completed": -1}', "its completed is not a number"),
    "huge": (b'{"mean_ttft_ms": 1' + b"0" * 400 + b"}", "its mean_ttft_ms is not a number"),
    "an unknown unit": (b'{"request_latency": {"unit": "h", "avg": 1}}', "its avg of request_latency is not a number"),
    "no percentiles": (b'{"avg_latency": "x", "percentiles": 3}', "its avg_latency is not a number"),
}


def figures(path: Path) -> dict[tuple[str, str], float]:
    table = read_serving(path, UNKNOWN_RUN)
    return {(row["metric"], row["statistic"]): row["value"] for row in table.to_dict("records")}


def written(folder: Path, content: bytes) -> Path:
    path = folder / "results.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("source", FORMS)
def test_the_figures_of_each_form_are_taken_and_nothing_else(source: str, tmp_path: Path) -> None:
    document, expected = FORMS[source]
    path = written(tmp_path, json.dumps(document, indent=2).encode())
    assert figures(path) == pytest.approx(expected)
    table = read_serving(path, UNKNOWN_RUN)
    assert set(table["source"]) == {source}
    assert set(table["measured"]) == {UNKNOWN_RUN}
    assert SECRET not in table.to_json()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\n"])
def test_of_several_runs_in_a_file_the_last_is_taken(end: bytes, tmp_path: Path) -> None:
    lines = [json.dumps(document).encode() for document in (VLLM_SERVE, SGLANG, {"output_throughput": 7})]
    assert figures(written(tmp_path, b"\r\n".join(lines) + end)) == {("output tokens", "rate_per_s"): 7}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_that_cannot_be_taken_is_one_clear_line(kind: str, tmp_path: Path) -> None:
    content, reason = DAMAGED[kind]
    with pytest.raises(CaptureError) as raised:
        read_serving(written(tmp_path, content), UNKNOWN_RUN)
    assert raised.value.message.startswith(f"cannot attach results.json: {reason}")
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_a_file_that_is_missing_a_folder_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"cannot attach absent.json: No such file"):
        read_serving(tmp_path / "absent.json", UNKNOWN_RUN)
    with pytest.raises(CaptureError, match="it is not a regular file"):
        read_serving(tmp_path, UNKNOWN_RUN)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(65_000_000)
    with pytest.raises(CaptureError, match="it is larger than 64 MB"):
        read_serving(tmp_path / "large.json", UNKNOWN_RUN)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    sorted({*VLLM_SERVE, *SGLANG, *VLLM_THROUGHPUT, *VLLM_LATENCY, *TRTLLM, *AIPERF, "avg"})
                )
                | st.sampled_from(sorted({*_PERFORMANCE, *_STREAMING, *_PERCENTILES, "unit"})),
                inner,
                max_size=6,
            )
        ),
    )
)
def test_any_document_is_read_or_refused(document: object) -> None:
    with TemporaryDirectory() as folder:
        path = written(Path(folder), json.dumps(document).encode())
        try:
            table = read_serving(path, UNKNOWN_RUN)
        except CaptureError as error:
            assert error.message.startswith("cannot attach results.json: it")
        else:
            assert len(table)
            assert table["value"].between(0, 1e18).all()


@pytest.mark.parametrize("value", ["3", True, float("nan"), -1, [1]])
def test_figures_of_a_workload_are_checked_too(value: object) -> None:
    assert len(serving_of({"output_throughput": 3, "unknown": "x"}, "generate")) == 1
    with pytest.raises(CaptureError, match="the benchmark of generate: its output_throughput is not a number"):
        serving_of({"output_throughput": value}, "generate")


def test_users_and_gpus_share_the_tokens() -> None:
    one = draw("s7    .aaa....")
    both = side_by_side(one, one)
    rows = [
        (TPOT, "avg_ns", 20e6, PROFILED_RUN),
        (OUTPUT_TOKENS, "rate_per_s", 600.0, PROFILED_RUN),
        (OUTPUT_TOKENS, "rate_per_s", 900.0, UNKNOWN_RUN),
    ]
    columns = ["metric", "statistic", "value", "measured"]
    figures = conform("serving_figures", pd.DataFrame(rows, columns=columns).assign(source="vllm"))
    for gpus, profile in ((2, both), (1, one)):
        table = serving(Timeline(Profile({**profile.tables, "serving_figures": figures}))).frame
        rates = {(row["metric"], row["measured"]): row["rate_per_s"] for row in table.to_dict("records")}
        assert rates[PER_USER, PROFILED_RUN] == pytest.approx(50)
        # on one GPU, all tokens are its own; another run may have had another number
        assert {measured: rate for (metric, measured), rate in rates.items() if metric == PER_GPU} == (
            {PROFILED_RUN: 300} if gpus == 2 else {}
        )
