"""Reads what happened to each request of a server: from its log, its client's, traces of OpenTelemetry, and vLLM's.

Identifiers only join the files of one run; they can be private, and are dropped, as all texts are.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.read.serving import attached_text
from nightsight.results.serving import (
    FAILED_REQUESTS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUEST_LATENCY,
    REQUESTS,
    TPOT,
    TTFT,
)
from nightsight.tables import conform, empty, nullable_integers
from nightsight.units import format_value

EVENTS: Final = (
    "sent",
    "received",
    "tokenized",
    "scheduled",
    "preempted",
    "first_token",
    "last_token",
    "first_seen",
    "last_seen",
    "failed",
)
"""The events of a log of requests, in the order in which they happen; docs/inference.md explains them."""
_AGAIN: Final = "preempted"
_BY_CLIENT: Final = ("sent", "first_seen", "last_seen")
_BY_SERVER: Final = ("received", "tokenized", "scheduled", "first_token", "last_token")
LATEST_NS: Final = 1 << 62
DAMAGED: Final = (ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError, IndexError)
_COLUMNS: Final = ["id", "event", "time_ns", "tokens", "is_dated"]
_MARKS: Final = (b'"event"', b'"resourceSpans"', b'"ttfts"')
_LAST: Final = ("last_seen_ns", "last_token_ns")
_LOG: Final = "log of requests"
_QUANTILES: Final = {"med_ns": 0.5, "p90_ns": 0.9, "p95_ns": 0.95, "p99_ns": 0.99}
_COUNTED: Final = {
    "input_tokens": ("sent", "received", "tokenized"),
    "output_tokens": ("last_token", "last_seen"),
}
_REQUEST_SPAN: Final = "llm_request"
_QUEUED: Final = "gen_ai.latency.time_in_queue"
_FIRST: Final = "gen_ai.latency.time_to_first_token"
_WHOLE: Final = "gen_ai.latency.e2e"
_TOKENS: Final = (
    ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
    ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"),
)

Event = tuple[str, str, int, float, bool]
"""A request's identifier, what happened, when (ns), tokens (NaN: unknown), and whether the time is since the epoch."""


def read_request_events(path: Path) -> pd.DataFrame:
    """Return the events of requests in a file, a row each; without rows if the file has no requests.

    CaptureError if the file cannot be read. Damaged lines are left out: a server that is killed leaves half a line.
    """
    text = attached_text(path)
    events: list[Event] = []
    if any(mark in text for mark in _MARKS):
        for document in documents(text):
            events += _events_of(document, path.name)
    return pd.DataFrame(events, columns=_COLUMNS)


def requests_of(files: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the table `requests` of the events in all files of a run, in the order of arrival, and notes about it.

    Times with a date are since the epoch.
    """
    events = pd.concat([_numbered(frame) for frame in files if len(frame)] or [pd.DataFrame([], columns=_COLUMNS)])
    if not len(events):
        return empty("requests"), ()
    notes: tuple[str, ...] = ()
    if events["is_dated"].any() and not events["is_dated"].all():
        # the same requests from two sides, which nothing joins
        events = events[events["is_dated"].astype(bool)]
        notes = ("Times without a date cannot be joined with those that have one, and are left out.",)
    is_dated = events.groupby("id", sort=False)["is_dated"].all()
    # relative to the first event, times are exact as floats
    base = int(events["time_ns"].where(events["is_dated"]).min() if is_dated.any() else 0)
    time = events["time_ns"] - base * events["is_dated"].astype("int64")
    grouped = time.groupby([events["id"], events["event"]], sort=False)
    first, last = (
        values.unstack("event").reindex(index=is_dated.index, columns=list(EVENTS)).astype("float64")
        for values in (grouped.min(), grouped.max())
    )
    # a request that was preempted is scheduled again
    table = first.assign(last_token=last["last_token"], last_seen=last["last_seen"])
    table, about_sides = _of_one_side(table)
    table, about_clocks = _on_one_clock(table)
    notes, is_dated = (*notes, *about_sides, *about_clocks), is_dated[table.index]
    arrival = table[["sent", "received"]].min(axis=1).fillna(table.min(axis=1))
    order = np.lexsort((arrival.to_numpy(), ~is_dated.to_numpy()))
    bases = np.where(is_dated, base, 0)[order]
    columns: dict[str, Any] = {
        f"{event}_ns": nullable_integers(table[event].to_numpy()[order]) + bases for event in EVENTS if event != _AGAIN
    }
    for name, of in _COUNTED.items():
        counts = events["tokens"].where(events["event"].isin(of)).groupby(events["id"]).max()
        columns[name] = nullable_integers(counts.reindex(is_dated.index).to_numpy(dtype="float64")[order])
    preemptions = (events["event"] == _AGAIN).groupby(events["id"]).sum()
    columns["preemptions"] = preemptions.reindex(is_dated.index).to_numpy()[order]
    return conform("requests", pd.DataFrame({**columns, "is_dated": is_dated.to_numpy()[order]})), notes


def _numbered(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events of a file with identifiers that are used once: clients count from 0 in each of their runs."""
    ordered = events.drop_duplicates(["id", "event", "time_ns"]).sort_values("time_ns", kind="stable")
    is_sent, is_received = ordered["event"] == "sent", ordered["event"] == "received"
    begins = is_sent | (is_received & ~is_sent.groupby(ordered["id"]).transform("any"))
    use = begins.groupby(ordered["id"]).cumsum()
    return ordered.assign(id=ordered["id"].where(use <= 1, ordered["id"] + " " + use.astype("str")))


def figures_of(requests: pd.DataFrame, measured: str) -> pd.DataFrame:
    """Return the table `serving_figures` of logged requests: throughput, and latencies as the client sees them.

    Without the client's times, those of the server. The definitions and percentiles are those of `vllm bench serve`.
    """
    # floats cannot hold times since the epoch to the nanosecond
    base = {name: requests[name].min() for name in map(str, requests) if name.endswith("_ns")}
    begin = min((int(time) for time in base.values() if not pd.isna(time)), default=0)
    marks = {
        name: (requests[name] - begin * (name in base)).to_numpy(dtype="float64", na_value=np.nan)
        for name in map(str, requests)
    }
    sent, first, last = (
        np.where(np.isnan(marks[name]), marks[instead], marks[name])
        for name, instead in (("sent_ns", "received_ns"), ("first_seen_ns", "first_token_ns"), _LAST)
    )
    is_done = ~np.isnan(last) & np.isnan(marks["failed_ns"])
    seconds = float(last[is_done].max(initial=-np.inf) - sent[is_done].min(initial=np.inf)) / 1e9
    tokens = marks["output_tokens"]
    rows = [(FAILED_REQUESTS, "count", float((~np.isnan(marks["failed_ns"])).sum()))]
    for metric, count in (
        (REQUESTS, float(is_done.sum())),
        (INPUT_TOKENS, float(np.nansum(marks["input_tokens"][is_done]))),
        (OUTPUT_TOKENS, float(np.nansum(tokens[is_done]))),
    ):
        rows.append((metric, "count", count))
        rows += [(metric, "rate_per_s", count / seconds)] if seconds > 0 else []
    for metric, times in (
        (TTFT, first - sent),
        (TPOT, (last - first) / np.where(tokens > 1, tokens - 1, np.nan)),
        (REQUEST_LATENCY, last - sent),
    ):
        durations = times[~np.isnan(times)]
        if len(durations):
            rows.append((metric, "avg_ns", float(durations.mean())))
            rows += [(metric, name, float(np.quantile(durations, share))) for name, share in _QUANTILES.items()]
    columns = ["metric", "statistic", "value"]
    return conform("serving_figures", pd.DataFrame(rows, columns=columns).assign(measured=measured, source=_LOG))


def _of_one_side(table: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Leave out the requests of the client if none of them is one of the server's: each would count twice."""
    by_client, by_server = (table[list(events)].notna().any(axis=1) for events in (_BY_CLIENT, _BY_SERVER))
    if not by_client.any() or not by_server.any() or (by_client & by_server).any():
        return table, ()
    return table[by_server], (
        "The logs of the client and of the server have no identifier in common, so the times of the client are left "
        "out. Log the same `id` on both sides to join them.",
    )


def _on_one_clock(table: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Shift the times of the client if its clock cannot be right: no answer arrives before it is given."""
    if not len(table):
        return table, ()
    # how much earlier the client's clock must be shown at least, and at most
    least = (table["sent"] - table["received"]).max()
    most = (table["first_seen"] - table["first_token"]).min()
    if not (least > 0 or most < 0):
        return table, ()
    of_client = list(_BY_CLIENT)
    if np.isnan(least) or np.isnan(most) or least > most:
        return table.assign(**dict.fromkeys(of_client, np.nan)), (
            "The times of the client do not fit those of the server, and are left out: its log is from another run, or "
            "its clock was set meanwhile.",
        )
    shift = (least + most) / 2
    shown = format_value(abs(shift), "shift_ns")
    return table.assign(**{name: table[name] - shift for name in of_client}), (
        f"The clock of the client is {shown} {'ahead of' if shift > 0 else 'behind'} that of the server, by the times "
        "of the requests; its times are corrected.",
    )


def documents(text: bytes) -> Iterator[Any]:
    """Yield the JSON documents in a file: one, or one per line."""
    try:
        yield json.loads(text)
    except DAMAGED:
        for line in text.splitlines():
            try:
                yield json.loads(line)
            except DAMAGED:
                continue


def _events_of(document: Any, file: str) -> list[Event]:  # noqa: ANN401 (JSON)
    """Return the events in a document."""
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("event"), str):
        return _parsed(_logged, document)
    if "resourceSpans" in document:
        return [event for span in _spans(document) for event in _parsed(_traced, span)]
    if isinstance(document.get("ttfts"), list):
        numbers = range(len(document["ttfts"]))
        return [event for number in numbers for event in _parsed(_benchmarked, document, number, file)]
    return []


def _parsed(parse: Callable[..., Iterator[Event]], *arguments: Any) -> list[Event]:  # noqa: ANN401 (JSON)
    """Return the events of one request; none if it is damaged."""
    try:
        events = list(parse(*arguments))
    except DAMAGED:
        return []
    return [event for event in events if 0 <= event[2] < LATEST_NS]


def _logged(line: Mapping[str, Any]) -> Iterator[Event]:
    if line["event"] in EVENTS and not isinstance(line["time_ns"], bool):
        yield str(line["id"]), str(line["event"]), int(line["time_ns"]), _tokens(line.get("tokens")), True


def _spans(document: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the spans in the JSON of OpenTelemetry's protocol."""
    try:
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                yield from scope.get("spans", ())
    except DAMAGED:
        return


def _traced(span: Mapping[str, Any]) -> Iterator[Event]:
    # vllm/tracing: latencies in seconds since the engine got the request, which is when the span starts
    if span.get("name") != _REQUEST_SPAN:
        return
    attributes = {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}
    name, received = f"{span.get('traceId')} {span['spanId']}", int(span["startTimeUnixNano"])
    prompt, answer = (_tokens(next((attributes[key] for key in keys if key in attributes), None)) for keys in _TOKENS)
    yield name, "received", received, prompt, True
    for event, key, tokens in (
        ("scheduled", _QUEUED, nan),
        ("first_token", _FIRST, nan),
        ("last_token", _WHOLE, answer),
    ):
        if key in attributes:
            yield name, event, received + round(1e9 * float(attributes[key])), tokens, True


def _benchmarked(document: Mapping[str, Any], number: int, file: str) -> Iterator[Event]:
    # `vllm bench serve --save-result --save-detailed`: seconds by a clock without a date
    name, starts = f"{file} {number}", document.get("start_times") or [0.0]
    sent = float(starts[number]) - min(map(float, starts)) if "start_times" in document else 0.0
    yield name, "sent", round(1e9 * sent), _tokens(document["input_lens"][number]), False
    if document.get("errors", [""] * (number + 1))[number]:
        yield name, "failed", round(1e9 * sent), nan, False
        return
    first = sent + float(document["ttfts"][number])
    yield name, "first_seen", round(1e9 * first), nan, False
    last = first + sum(map(float, document["itls"][number]))
    yield name, "last_seen", round(1e9 * last), _tokens(document["output_lens"][number]), False


def _tokens(value: Any) -> float:  # noqa: ANN401 (JSON)
    """Return a number of tokens; NaN if it is none."""
    number = nan if value is None or isinstance(value, bool) else float(value)
    return number if isfinite(number) and number >= 0 else nan
