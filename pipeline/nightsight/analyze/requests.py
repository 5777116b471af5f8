"""What the requests of a server wait for: their times, split by stages, and by what the GPU does meanwhile."""

from collections.abc import Iterator
from math import ceil
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.engine import EngineSteps, steps_on_gpu
from nightsight.events.engine import KINDS, engine_steps
from nightsight.events.timeline import Timeline, busy_spans
from nightsight.events.window import RECORDED, Window, whole_window
from nightsight.intervals import NO_SPANS, Flags, Floats, Ints, covered, union, without
from nightsight.results.serving import DECODE, ITL, MEAN, P50, P95, P99, REQUEST_LATENCY, REQUEST_TIMES, TPOT, TTFT
from nightsight.tables import NULLABLE

_PERCENTILES: Final = {P50: 0.5, P95: 0.95, P99: 0.99}
_ENGINE: Final = ("prefill_ns", "decode_ns", "idle_ns", "unseen_ns")
_MEANWHILE: Final = "were served while the capture was recorded, and none arrived in the window"
_OF_ANOTHER_RUN: Final = (
    "No request in the log was served while the capture was recorded: it is the log of another run, or its clock is "
    "not that of the profiled machine."
)
_LATEST: Final = np.iinfo(np.int64).max


def request_times(timeline: Timeline) -> Table:
    """Return for each time of requests its mean and percentiles, and their parts; in ns."""
    logged = timeline.profile.table("requests")
    is_of_capture = _is_of_capture(timeline, logged)
    if not is_of_capture.any():
        return Table(REQUEST_TIMES.empty(), (_OF_ANOTHER_RUN,))
    arrives = is_of_capture & _arrives_in_window(timeline, logged)
    is_counted = arrives if arrives.any() else is_of_capture
    requests = logged[is_counted]
    times = [str(name) for name in requests if str(name).endswith("_ns")]
    marks = {name.removesuffix("_ns"): requests[name].to_numpy(dtype="float64", na_value=np.nan) for name in times}
    gpu = _GpuStates(timeline)
    is_dated = requests["is_dated"].to_numpy(dtype=bool)
    tokens = requests["output_tokens"].to_numpy(dtype="float64", na_value=np.nan)
    stages, numbers = _stages(marks), np.flatnonzero(is_counted) + 1
    rows: list[dict[str, object]] = []
    for metric, parts in {
        TTFT: _to_first_token(stages, gpu, is_dated),
        TPOT: _per_token(marks, tokens, gpu, is_dated),
        REQUEST_LATENCY: _to_last_token(stages, marks, gpu, is_dated),
    }.items():
        rows += _statistics(metric, parts, numbers, requests["preemptions"].to_numpy())
    # one engine at most: others would generate meanwhile
    if gpu.engines == 1 and (steps := steps_on_gpu(timeline)):
        rows += _between_tokens(steps, gpu)
    counted = "arrived in the window" if arrives.any() else _MEANWHILE
    table = pd.DataFrame(rows, columns=REQUEST_TIMES.column_names)
    # a stage that nobody logged is unknown, and not 0
    optional = [column.name for column in REQUEST_TIMES.columns if column.is_optional]
    table = table.drop(columns=[name for name in optional if not table[name].notna().any()])
    return Table(
        table.astype({"request": NULLABLE, "requests": "int64", "preemptions": "int64"}),
        tuple(_request_notes(requests, marks, len(logged), gpu.engines, counted)),
    )


class _GpuStates:
    """What the GPU of the engine does: works on steps with prompts, on steps that only decode, or nothing."""

    def __init__(self, timeline: Timeline) -> None:
        # requests are not only those of the window
        operations, starts = timeline.operations, engine_steps(timeline.profile)["start_ns"]
        low = min(operations.start.min(initial=_LATEST), starts.min()) if len(starts) else 0
        high = max(operations.end.max(initial=0), starts.max() + 1) if len(starts) else 0
        whole = timeline.at(Window(int(low), int(high), RECORDED))
        steps = steps_on_gpu(whole)
        self._prefill, self._decode, self._busy, self._seen = NO_SPANS, NO_SPANS, NO_SPANS, NO_SPANS
        self.engines = 0 if steps is None else steps.engines
        # no log says which of several engines serves a request
        if steps is None or steps.device < 0 or steps.engines > 1:
            return
        is_decode = (steps.batch["kind"] == KINDS.index(DECODE)).to_numpy()[steps.step] & (steps.step >= 0)
        of_decode, of_prefill = (steps.operations[chosen] for chosen in (is_decode, ~is_decode & (steps.step >= 0)))
        self._prefill = union(operations.start[of_prefill], operations.end[of_prefill])
        decode = union(operations.start[of_decode], operations.end[of_decode])
        self._decode = without(decode, self._prefill)
        self._busy = busy_spans(whole)[steps.device]
        self._seen = np.array([steps.begin[0]]), np.array([steps.end[-1]])

    def between(self, start: Floats, end: Floats, is_dated: Flags) -> dict[str, Floats]:
        """Return for each span the time of each part of _ENGINE; NaN for spans whose bounds are unknown."""
        is_known = ~np.isnan(start) & ~np.isnan(end)
        low = np.where(is_known & is_dated, start, 0).astype(np.int64)
        high = np.where(is_known & is_dated, end, 0).astype(np.int64)
        spans = {"prefill_ns": self._prefill, "decode_ns": self._decode, "busy": self._busy, "seen": self._seen}
        times = {name: covered(spans, low, high).astype("float64") for name, spans in spans.items()}
        recorded = np.maximum(times.pop("seen"), times["busy"])
        times["idle_ns"] = recorded - times.pop("busy")
        times["unseen_ns"] = end - start - times["prefill_ns"] - times["decode_ns"] - times["idle_ns"]
        if not len(self._seen[0]):
            times |= dict.fromkeys(("prefill_ns", "decode_ns", "idle_ns"), np.full(len(start), np.nan))
        return {name: np.where(is_known, times[name], np.nan) for name in _ENGINE}


def _stages(marks: dict[str, Floats]) -> dict[str, Floats]:
    """Return the bounds of the stages until the first token, in their order; a mark that is missing has no length."""
    first_seen = np.where(np.isnan(marks["first_seen"]), marks["first_token"], marks["first_seen"])
    bounds = {"begin": np.where(np.isnan(marks["sent"]), marks["received"], marks["sent"])}
    bounds["transfer_ns"] = _at_least(bounds["begin"], marks["received"])
    bounds["tokenize_ns"] = _at_least(bounds["transfer_ns"], marks["tokenized"])
    bounds["queue_ns"] = _at_least(bounds["tokenize_ns"], marks["scheduled"])
    bounds["engine"] = _at_least(
        bounds["queue_ns"], np.where(np.isnan(marks["first_token"]), first_seen, marks["first_token"])
    )
    # with the client's and the server's clock in one row, no stage ends after the whole
    return {name: np.minimum(bound, first_seen) for name, bound in bounds.items()} | {"output_ns": first_seen}


def _at_least(before: Floats, bound: Floats) -> Floats:
    return np.fmax(before, np.where(np.isnan(bound), before, bound))


def _to_first_token(stages: dict[str, Floats], gpu: _GpuStates, is_dated: Flags) -> dict[str, Floats]:
    """Return the time to the first token of each request, and its parts."""
    begin, *bounds = stages.values()
    before = [begin, *bounds[:-1]]
    lengths = {name: bound - low for (name, bound), low in zip(list(stages.items())[1:], before, strict=True)}
    lengths.pop("engine")
    return {
        "time_ns": stages["output_ns"] - begin,
        **lengths,
        **gpu.between(stages["queue_ns"], stages["engine"], is_dated),
    }


def _per_token(marks: dict[str, Floats], tokens: Floats, gpu: _GpuStates, is_dated: Flags) -> dict[str, Floats]:
    """Return the time per output token after the first of each request, and its parts."""
    is_of_client = ~np.isnan(marks["first_seen"]) & ~np.isnan(marks["last_seen"])
    begin = np.where(is_of_client, marks["first_seen"], marks["first_token"])
    end = np.where(is_of_client, marks["last_seen"], marks["last_token"])
    others = np.where(tokens > 1, tokens - 1, np.nan)
    parts = {"time_ns": end - begin, **gpu.between(begin, end, is_dated)}
    return {name: part / others for name, part in parts.items()}


def _to_last_token(
    stages: dict[str, Floats], marks: dict[str, Floats], gpu: _GpuStates, is_dated: Flags
) -> dict[str, Floats]:
    """Return the time of each whole request, and its parts."""
    end = np.where(np.isnan(marks["last_seen"]), marks["last_token"], marks["last_seen"])
    done = np.fmin(np.where(np.isnan(marks["last_token"]), end, marks["last_token"]), end)
    first = _to_first_token(stages, gpu, is_dated)
    # a client that crashed may have seen only the first token, after the engine had given the last one
    until = np.minimum(np.fmax(stages["engine"], done), end)
    parts = {name: first[name] for name in ("transfer_ns", "tokenize_ns", "queue_ns")}
    return {
        "time_ns": end - stages["begin"],
        **parts,
        **gpu.between(stages["queue_ns"], until, is_dated),
        "output_ns": end - until,
    }


def _between_tokens(steps: EngineSteps, gpu: _GpuStates) -> Iterator[dict[str, object]]:
    """Yield the rows of the time between tokens: from the end of a step that generates to the end of the next one.

    Each request that generates in a step counts. What comes after a time without requests has no token before it.
    """
    generates = np.flatnonzero(steps.batch["decodes"].to_numpy() > 0)
    first = steps.batch["is_first"].to_numpy().cumsum()[generates]
    before, after = generates[:-1][np.diff(first) == 0], generates[1:][np.diff(first) == 0]
    # copies on another stream can outlast the next step
    done = np.maximum.accumulate(steps.done).astype("float64")
    start, end = done[before], done[after]
    if not len(end):
        return
    tokens = steps.batch["decodes"].to_numpy()[after]
    parts = {"time_ns": end - start, **gpu.between(start, end, np.ones(len(end), dtype=bool))}
    common: dict[str, object] = {"metric": ITL, "requests": int(tokens.sum()), "request": None, "preemptions": 0}
    yield {
        **common,
        "statistic": MEAN,
        **{name: float(np.average(part, weights=tokens)) for name, part in parts.items()},
    }
    order = np.argsort(parts["time_ns"], kind="stable")
    reached = tokens[order].cumsum()
    for statistic, share in _PERCENTILES.items():
        row = order[np.searchsorted(reached, share * reached[-1])]
        yield {**common, "statistic": statistic, **{name: float(part[row]) for name, part in parts.items()}}


def _is_of_capture(timeline: Timeline, requests: pd.DataFrame) -> Flags:
    """Return which requests were served while the capture was recorded, or have no date."""
    whole = whole_window(timeline.profile)
    marks = requests[[str(name) for name in requests if str(name).endswith("_ns")]]
    first, last = marks.min(axis=1), marks.max(axis=1)
    has_ended = requests[["last_token_ns", "last_seen_ns", "failed_ns"]].notna().any(axis=1)
    is_during = (first < whole.end_ns) & ((last > whole.start_ns) | ~has_ended)
    return ~requests["is_dated"].to_numpy(dtype=bool) | is_during.to_numpy(dtype=bool, na_value=False)


def _arrives_in_window(timeline: Timeline, requests: pd.DataFrame) -> Flags:
    """Return which requests have a date, and arrive in the window."""
    arrival = requests["sent_ns"].fillna(requests["received_ns"]).to_numpy(dtype="float64", na_value=np.nan)
    is_inside: Flags = requests["is_dated"].to_numpy() & timeline.window.contains(arrival)
    return is_inside


def _statistics(metric: str, parts: dict[str, Floats], numbers: Ints, preemptions: Ints) -> Iterator[dict[str, object]]:
    """Yield the rows of a time: its mean, and the request at each percentile; numbers: those of the requests."""
    time = parts["time_ns"]
    timed = np.flatnonzero(~np.isnan(time))
    if not len(timed):
        return
    common = {"metric": metric, "requests": len(timed)}
    yield {
        **common,
        "statistic": MEAN,
        "request": None,
        "preemptions": int(preemptions[timed].sum()),
        **{name: float(part[timed].mean()) for name, part in parts.items()},
    }
    ordered = timed[np.argsort(time[timed], kind="stable")]
    for statistic, share in _PERCENTILES.items():
        row = int(ordered[max(ceil(share * len(ordered)) - 1, 0)])
        yield {
            **common,
            "statistic": statistic,
            "request": int(numbers[row]),
            "preemptions": int(preemptions[row]),
            **{name: float(part[row]) for name, part in parts.items()},
        }


def _request_notes(
    requests: pd.DataFrame, marks: dict[str, Floats], logged: int, engines: int, counted: str
) -> Iterator[str]:
    """Yield what a reader must know: which of the logged requests count, their times, and the number of engines."""
    if len(requests) < logged:
        yield f"{len(requests):,} of {logged:,} requests {counted}."
    if engines > 1:
        yield f"{engines} engines run, and no log says which one serves a request: what the GPU did is unknown."
    failed = int((~np.isnan(marks["failed"])).sum())
    is_done = ~np.isnan(marks["last_token"]) | ~np.isnan(marks["last_seen"]) | ~np.isnan(marks["failed"])
    if failed:
        yield f"{failed:,} of {len(requests):,} requests failed. Times that they do not have leave them out."
    if not is_done.all():
        yield f"{int((~is_done).sum()):,} of {len(requests):,} requests were not finished when the log ended."
    if (count := int(requests["preemptions"].sum())) > 0:
        yield f"Requests were preempted {count:,} times: others needed their cache, which was computed again later."
    if np.isnan(marks["sent"]).all():
        yield "There is no log of the client: times begin when the server gets a request, and end in its engine."
    elif np.isnan(marks["received"]).all():
        yield "There is no log of the server: only what the client sees is known."
    if not requests["is_dated"].all():
        yield "Times without a date are not on the clock of the capture, so what the GPU did meanwhile is unknown."


ANALYSES: Final = (Analysis(REQUEST_TIMES, request_times, "requests"),)
