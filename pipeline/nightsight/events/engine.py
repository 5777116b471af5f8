"""The steps of inference engines: vLLM, SGLang and TensorRT-LLM name each one after its batch.

A step runs the model once, for the next chunk of some prompts (prefill) and the next token of some requests (decode).
"""

import re
from typing import Final

import numpy as np
import pandas as pd

from nightsight.intervals import Flags, Floats, Ints, Spans, covered, union
from nightsight.model.report import Profile
from nightsight.results.serving import DECODE, MIXED, PREFILL
from nightsight.system.parallel import memoize
from nightsight.tables import nest, renamed

KINDS: Final = (PREFILL, DECODE, MIXED)
ENGINE_STEP: Final = "engine step"
"""The name of the loop that consists of such steps: those of different batches have different names."""

_NAMES: Final = (
    # vLLM, vllm/v1/worker/gpu_worker.py: `execute_context_2(512)_generation_30(30)`; with details,
    # `execute_17_context_2(sq512sk512sqsq...)_generation_30(sq30sk9000...)`, where sk is the length of all contexts
    r"(?:execute_)?(?:\d+_)?context_(?P<prefills>\d+)\((?:sq)?(?P<prefill_tokens>\d+)[^()]*\)"
    r"_generation_(?P<decodes>\d+)\((?:sq)?(?P<decode_tokens>\d+)(?:sk(?P<context_tokens>\d+))?[^()]*\)",
    # SGLang, srt/model_executor: `step[EXTEND bs=2 toks=512]`, `step[DECODE bs=30]`, `step[MIXED bs=30]`; what a draft
    # model does is part of the step that verifies it
    r"step\[(?!DRAFT_)(?P<mode>[A-Z_]+) bs=(?P<requests>\d+)(?: toks=(?P<tokens>\d+))?[^\]]*\]",
    # TensorRT-LLM, _torch/pyexecutor and inflight batching: `_forward_step 17: 2 ctx reqs, 512 ctx tokens, 30 gen reqs`
    r"(?:\[Executor\] )?(?:_forward_step|executeStep)(?: (?P<iteration>\d+))?: (?P<ctx>\d+) ctx reqs, "
    r"(?:(?P<ctx_tokens>\d+) ctx tokens, )?(?P<gen>\d+) gen reqs",
)
_NAME: Final = re.compile("|".join(f"(?:{name})$" for name in _NAMES))
# of SGLang: steps in which all requests generate; an idle rank joins the communication of the others without requests
_GENERATES: Final = frozenset(("DECODE", "TARGET_VERIFY"))
_IS_MIXED: Final = "MIXED"
_IS_IDLE: Final = "IDLE"
_LATEST: Final = np.iinfo(np.int64).max
_NUMBERS: Final = ("prefills", "decodes", "prefill_tokens", "decode_tokens", "context_tokens", "requests", "iteration")
_BATCH: Final = ("kind", *_NUMBERS)
# vLLM writes the usage of its cache every ten seconds
_NEAR_NS: Final = 10_000_000_000


@memoize
def engine_steps(profile: Profile) -> pd.DataFrame:
    """Return the steps of engines by their start: process, thread, start_ns, end_ns, kind (a position in KINDS), batch.

    The batch: prefills and decodes (requests), prefill_tokens, decode_tokens, context_tokens (what the requests that
    generate attend to), requests, and iteration (its number); NaN where the name does not say it. engine: a number;
    steps of one process are those of several engines if they run at the same time. waits: whether requests that
    generate wait for prompts in this step. is_first: whether the engine had no request before it. Steps inside others
    are left out.
    """
    ranges = profile.recorded("ranges")
    batches = [_batch(str(name)) for name in ranges["name"].cat.categories]
    is_step = np.append([batch is not None for batch in batches], False).astype(bool)
    chosen = nest(ranges[is_step[ranges["name"].cat.codes] & ~ranges["is_open"].to_numpy()])
    nothing = [np.nan] * len(_BATCH)
    batch = pd.DataFrame([batch or nothing for batch in batches], columns=list(_BATCH), dtype="float64")
    of_step = batch.take(chosen["name"].cat.codes.to_numpy()).reset_index(drop=True)
    steps = pd.concat([chosen[["process", "thread", "start_ns", "end_ns", "parent"]], of_step], axis=1)
    steps = steps[steps["parent"] < 0].drop(columns="parent").sort_values("start_ns", kind="stable", ignore_index=True)
    steps = steps.astype({"kind": "int64"}).assign(engine=0, waits=steps["kind"] == KINDS.index(MIXED), is_first=False)
    log = _served(profile)
    for _, of_process in steps.groupby("process", sort=True):
        is_parallel = (of_process["start_ns"].to_numpy()[1:] < of_process["end_ns"].cummax().to_numpy()[:-1]).any()
        for _, of_engine in of_process.groupby("thread" if is_parallel else "process", sort=True):
            waits, is_first = _others_wait(of_engine), _follows_no_request(of_engine, log)
            steps.loc[of_engine.index, "engine"] = steps["engine"].max() + 1
            steps.loc[of_engine.index, "waits"] |= waits
            steps.loc[of_engine.index, "is_first"] = is_first & ~waits
    return steps


def _others_wait(steps: pd.DataFrame) -> Flags:
    """Return which steps with prompts only make other requests of their engine wait.

    More requests generate after such steps in a row than there were prompts in them.
    """
    is_prefill = (steps["kind"] == KINDS.index(PREFILL)).to_numpy()
    row = np.cumsum(np.append(True, is_prefill[1:] != is_prefill[:-1])[: len(steps)]) - 1
    prompts = np.bincount(row, steps["prefills"].fillna(0) * is_prefill, len(steps) + 1)
    # the step after each row; the names of mixed steps can lack the number
    last = np.searchsorted(row, np.arange(len(steps)), side="right")
    after = np.append(steps["decodes"].fillna(0).to_numpy(), 0)[np.minimum(last, len(steps))]
    waits: Flags = is_prefill & (after[row] > prompts[row])
    return waits


def _follows_no_request(steps: pd.DataFrame, log: Spans) -> Flags:
    """Return before which steps an engine had no request for some time; log: when it had some, empty if unknown.

    By the batches, it can be so before steps with prompts only.
    """
    start = steps["start_ns"].to_numpy()
    by_batch: Flags = (steps["kind"] == KINDS.index(PREFILL)).to_numpy()
    if not len(log[0]):
        return by_batch
    before = np.append(start[:1], start[:-1])
    by_log = covered(log, before, start) < start - before
    return np.where((before >= log[0][0]) & (start <= log[1][-1]), by_log, by_batch)


def _served(profile: Profile) -> Spans:
    """Return when a server had requests, by its log, until the first one without an end; empty if nothing is known."""
    requests = profile.recorded("requests")
    requests = requests[requests["is_dated"]]
    begin = requests["received_ns"].fillna(requests["sent_ns"])
    end = requests["last_token_ns"].fillna(requests["last_seen_ns"]).fillna(requests["failed_ns"])
    is_known, has_end = begin.notna(), end.notna()
    until = begin[is_known & ~has_end].min()
    is_known &= has_end & (begin < (_LATEST if pd.isna(until) else until))
    start, ended = (times[is_known].to_numpy(dtype="int64") for times in (begin, end))
    return union(start, np.clip(ended, start, _LATEST if pd.isna(until) else int(until)))


def cache_usage(profile: Profile, steps: pd.DataFrame) -> tuple[Floats, int]:
    """Return how full the KV cache is in each step in percent, NaN if unknown, and how many lines of the log say it.

    The line about an iteration is that of its step. Otherwise it is the nearest line, if it is at most _NEAR_NS away.
    """
    log, count = profile.recorded("kv_cache"), len(steps)
    # no line says which of several engines runs a step
    if not count or log["engine"].nunique() != 1:
        return np.full(count, np.nan), 0
    timed = log[log["time_ns"].notna()].sort_values("time_ns", kind="stable")
    line = np.full(count, -1, dtype=np.int64)
    if len(timed):
        time, start = timed["time_ns"].to_numpy(dtype=np.int64), steps["start_ns"].to_numpy()
        after = np.searchsorted(time, start).clip(max=len(time) - 1)
        before = (after - 1).clip(min=0)
        nearest = np.where(np.abs(time[before] - start) <= np.abs(time[after] - start), before, after)
        line = np.where(np.abs(time[nearest] - start) <= _NEAR_NS, timed.index.to_numpy()[nearest], -1)
    numbered = log[log["iteration"].notna()].drop_duplicates("iteration", keep="last")
    of_iteration = pd.Series(numbered.index, numbered["iteration"].astype("float64"), dtype="float64")
    of_step = steps["iteration"].map(of_iteration).to_numpy(dtype=np.float64)
    line = np.where(np.isnan(of_step), line, np.nan_to_num(of_step)).astype(np.int64)
    usage = np.append(log["usage_pct"].to_numpy(), np.nan)[line]
    return usage, len(np.unique(line[line >= 0]))


def starts_with_prompts(profile: Profile) -> Ints:
    """Return when steps with prompts begin, in ns."""
    steps = engine_steps(profile)
    return steps["start_ns"].to_numpy()[(steps["kind"] != KINDS.index(DECODE)).to_numpy()]


def with_engine_steps(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return ranges in which all steps of engines have one name."""
    names = ranges["name"].cat.categories.astype("str")
    if not names.str.match(_NAME).any():
        return ranges
    return ranges.assign(name=renamed(ranges["name"], lambda names: names.where(~names.str.match(_NAME), ENGINE_STEP)))


def _batch(name: str) -> list[float] | None:
    """Return the batch of the step with this name; None if it is not a step, or one without requests."""
    if (match := _NAME.match(name)) is None or match["mode"] == _IS_IDLE:
        return None
    number = {key: float(text) for key, text in match.groupdict().items() if text and key != "mode"}
    mode, nan = match["mode"], np.nan
    if mode == _IS_MIXED:
        return [KINDS.index(MIXED), *[nan] * 5, number["requests"], nan]
    if mode:
        requests = number["requests"]
        number |= {"decodes": requests, "prefills": 0} if mode in _GENERATES else {"decodes": 0, "prefills": requests}
        number |= {"prefill_tokens": number.get("tokens", nan), "decode_tokens": requests if mode == "DECODE" else nan}
    elif "gen" in number:
        number |= {"decodes": number["gen"], "prefills": number["ctx"], "prefill_tokens": number.get("ctx_tokens", nan)}
    prefills, decodes = number["prefills"], number["decodes"]
    if not prefills + decodes:
        return None
    kind = MIXED if prefills and decodes else PREFILL if prefills else DECODE
    tokens = [number.get(f"{part}_tokens", nan) if number[f"{part}s"] else 0.0 for part in ("prefill", "decode")]
    others = (number.get("context_tokens", nan), prefills + decodes, number.get("iteration", nan))
    return [KINDS.index(kind), prefills, decodes, *tokens, *others]
