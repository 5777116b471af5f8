"""Results of serving benchmarks."""

from typing import Final

from nightsight.results.columns import GPU
from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column, Entry

REQUESTS: Final = "requests"
FAILED_REQUESTS: Final = "failed requests"
INPUT_TOKENS: Final = "input tokens"
OUTPUT_TOKENS: Final = "output tokens"
ALL_TOKENS: Final = "all tokens"
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
                (REQUESTS, "requests that were answered: their number, and the rate per second"),
                (FAILED_REQUESTS, "requests without an answer"),
                (INPUT_TOKENS, "tokens of the prompts"),
                (OUTPUT_TOKENS, "generated tokens"),
                (ALL_TOKENS, "both together"),
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
    short="serving",
)
