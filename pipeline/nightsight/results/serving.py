"""Results of inference servers: the figures of their benchmarks, the steps of their engines, and their requests."""

from typing import Final

from nightsight.results.columns import GPU
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

REQUESTS: Final = "requests"
FAILED_REQUESTS: Final = "failed requests"
INPUT_TOKENS: Final = "input tokens"
OUTPUT_TOKENS: Final = "output tokens"
ALL_TOKENS: Final = "all tokens"
GOODPUT: Final = "requests in time"
PER_USER: Final = "output tokens per user"
PER_GPU: Final = "output tokens per GPU"
TTFT: Final = "time to first token"
TPOT: Final = "time per output token"
ITL: Final = "inter-token latency"
REQUEST_LATENCY: Final = "request latency"
BATCH_LATENCY: Final = "batch latency"
UNPROFILED_RUN: Final = "without the profiler"
PROFILED_RUN: Final = "with the profiler"
UNKNOWN_RUN: Final = "unknown run"
SERVING: Final = Entry(
    "serving",
    "Serving figures",
    "Throughput and latencies of an inference engine, as its own benchmark measured them: by the benchmark of a "
    "workload, or in a result file given with --attach.",
    (),
    (
        Column(
            "metric",
            TEXT,
            "what was measured",
            (
                (REQUESTS, "number of answered requests, and their rate per second"),
                (FAILED_REQUESTS, "requests without an answer"),
                (GOODPUT, "goodput: requests that met the limits given to the benchmark (vLLM: --goodput)"),
                (INPUT_TOKENS, "tokens of the prompts"),
                (OUTPUT_TOKENS, "generated tokens"),
                (ALL_TOKENS, "both together"),
                (PER_USER, "while its answer is generated: 1 / mean TPOT"),
                (PER_GPU, "over the GPUs that work in this capture"),
                (TTFT, "TTFT: from a request to its first token"),
                (
                    TPOT,
                    "TPOT: one value per request, the latency of the request without that of its first token, divided "
                    "by the number of its other tokens",
                ),
                (ITL, "ITL: from one token to the next; all such times of all requests"),
                (REQUEST_LATENCY, "from a request to its last token (end to end)"),
                (BATCH_LATENCY, "the same, for a whole batch of requests"),
            ),
        ),
        Column(
            "measured",
            TEXT,
            "in which run",
            (
                (UNPROFILED_RUN, "the benchmark of a workload"),
                (PROFILED_RUN, "the run in this capture, which the profiler slowed down"),
                (UNKNOWN_RUN, "the file was given to `nightsight report`, or was there before the profiled run"),
            ),
        ),
        Column("source", TEXT, "the program that writes such a file, or the workload"),
        Column("count", WHOLE, "how many", is_optional=True, is_plain=True),
        Column("rate_per_s", NUMBER, "throughput per second", is_optional=True),
        Column("avg_ns", NUMBER, "mean", is_optional=True, is_plain=True),
        Column("med_ns", NUMBER, "median", is_optional=True, is_plain=True),
        Column("p90_ns", NUMBER, "90th percentile", is_optional=True),
        Column("p95_ns", NUMBER, "95th percentile", is_optional=True),
        Column("p99_ns", NUMBER, "99th percentile", is_optional=True),
    ),
    rows="serving figures",
    header="Figure",
    named_by="metric",
    group=GPU,
)

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "prefill and decode"
ENGINE_STEPS: Final = Entry(
    "engine_steps",
    "Steps of the engine",
    "The steps of vLLM, SGLang or TensorRT-LLM in the window, by what they do. A step begins with the first operation "
    "that was launched in it, and lasts until the next one begins, so scheduling counts in the step before it. If the "
    "engine has no requests after a step (by their log; without one, possibly before steps that only have prompts), "
    "the step ends with its last operation.",
    (),
    (
        Column(
            "kind",
            TEXT,
            "what the steps do",
            (
                (PREFILL, "prompts only: generating requests wait"),
                (DECODE, "the next token of each request"),
                (MIXED, "both in one step: generating requests get their token only when the prompts are done"),
            ),
        ),
        Column("steps", WHOLE, "number of steps", is_plain=True),
        Column("time_pct", NUMBER, "share of the time of all steps"),
        Column("total_ns", WHOLE, "time of all these steps", is_plain=True),
        Column("med_ns", NUMBER, "median", is_plain=True),
        Column("p99_ns", NUMBER, "99th percentile", is_plain=True),
        Column("busy_pct", NUMBER, "share of their time in which the GPU works"),
        Column("idle_ns", NUMBER, "time per step in which the GPU is idle, mean"),
        Column("requests", NUMBER, "requests in a step, mean"),
        Column("tokens", NUMBER, "tokens in a step, mean; prompt tokens if the engine reports them"),
        Column("most_tokens", NUMBER, "most prompt tokens in a step, if the engine reports them"),
        Column(
            "token_ns",
            NUMBER,
            "mean GPU time that a prompt token adds: the GPU time of steps with prompts beyond the median of decode "
            "steps, divided by their prompt tokens",
            is_optional=True,
        ),
        Column("waits_pct", NUMBER, "share of the steps in which generating requests wait for prompts"),
        Column("graph_pct", NUMBER, "share of the steps that launch a CUDA graph"),
        Column(
            "kv_cache_pct",
            NUMBER,
            "share of the KV cache that is in use, mean of the steps, if a log of the engine says it",
            is_optional=True,
        ),
        Column("most_kv_cache_pct", NUMBER, "the same, in the step with the most", is_optional=True),
    ),
    rows="kinds of steps",
    header="Step",
    named_by="kind",
    group=GPU,
    bars=("time_pct",),
)
DECODE_ROOFLINE: Final = Entry(
    "decode_roofline",
    "Roofline of decode",
    "How fast the steps that only decode could be. Each of them reads the weights, and the keys and values of its "
    "requests, whatever the number of requests. The least time is that of these bytes at the peak rate of the GPU's "
    "memory; products of a large batch can need more.",
    (),
    (
        Column("batch", TEXT, "requests in a step", is_plain=True),
        Column("steps", WHOLE, "number of steps", is_plain=True),
        Column("med_ns", NUMBER, "median time of a step, with the profiler", is_plain=True),
        Column("weight_bytes", NUMBER, "weights that a step reads, on this GPU"),
        Column(
            "kv_bytes",
            NUMBER,
            "keys and values that a step reads, mean; missing if unknown, and then not counted",
        ),
        Column("least_ns", NUMBER, "time of these bytes at the peak rate of the memory, mean of the steps"),
        Column("roofline_pct", NUMBER, "least time as a share of the time, of the median step"),
        Column("low_roofline_pct", NUMBER, "a tenth of the steps have at most this share"),
        Column("tokens_per_s", NUMBER, "generated tokens per second of these steps"),
        Column("roofline_tokens_per_s", NUMBER, "tokens per second if each step had its least time"),
    ),
    rows="steps that decode",
    header="Requests",
    named_by="batch",
    group=GPU,
    bars=("roofline_pct",),
)
MEAN: Final = "mean"
P50, P95, P99 = "50th percentile", "95th percentile", "99th percentile"
REQUEST_TIMES: Final = Entry(
    "request_times",
    "What requests wait for",
    "Times to the first token, per output token, between tokens, and of whole requests, and where they go: the parts "
    "of a row add up. Each percentile is one request: this share of those that arrived in the window was at most as "
    "slow.",
    (),
    (
        Column(
            "metric",
            TEXT,
            "what is measured, by the client's clock if there is one, else in the server",
            (
                (TTFT, "from a request to its first token"),
                (TPOT, "time after the first token, divided by the number of the other tokens"),
                (ITL, "from one token to the next, by the steps of the engine in the window"),
                (REQUEST_LATENCY, "from a request to its last token"),
            ),
        ),
        Column(
            "statistic",
            TEXT,
            "over which requests, or tokens for ITL",
            (
                (MEAN, "all with such a time"),
                (P50, "the one in the middle"),
                (P95, "only 5 % are slower"),
                (P99, "only 1 % are slower"),
            ),
        ),
        Column("request", WHOLE, "the request, by arrival, from 1; empty for a mean, and for ITL"),
        Column("requests", WHOLE, "number of requests in the window, or of tokens, with such a time", is_plain=True),
        Column("preemptions", WHOLE, "number of times it was preempted; for a mean, of all requests together"),
        Column("time_ns", NUMBER, "the time", is_plain=True),
        Column("transfer_ns", NUMBER, "from the client to the server", is_optional=True),
        Column("tokenize_ns", NUMBER, "until the prompt is tokenized", is_optional=True),
        Column("queue_ns", NUMBER, "until it is scheduled for the first time", is_optional=True),
        Column(
            "prefill_ns",
            NUMBER,
            "after that, the GPU works on steps with prompts, of this request or of others",
            is_optional=True,
        ),
        Column("decode_ns", NUMBER, "the GPU works on steps that only decode", is_optional=True),
        Column("idle_ns", NUMBER, "the GPU is idle: the host schedules, samples, or tokenizes", is_optional=True),
        Column("unseen_ns", NUMBER, "in the engine, while the capture does not show its steps", is_optional=True),
        Column("output_ns", NUMBER, "from the engine to the client: detokenization and sending", is_optional=True),
    ),
    rows="times of requests",
    header="Time",
    named_by="metric",
    group=GPU,
    constant=("requests", "preemptions"),
)
